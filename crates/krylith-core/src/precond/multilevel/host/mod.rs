//! The steps of an AMG set-up on the host, on all threads of a pool. Tests compare the steps of a GPU with
//! these.

pub mod aggregate;
pub mod air;
#[cfg(test)]
mod air_tests;
#[cfg(test)]
mod classical_tests;
pub mod galerkin;
pub mod interpolate;
pub mod multipass;
pub mod near_null;
pub mod parallel;
pub mod split;
mod sums;

use super::{CoarsenKind, Coarsening, Transfer};
use crate::Result;
use crate::matrix::Bsr;
use crate::threads::Pool;

/// Marks a node that is not a coarse point.
pub const FINE: u32 = u32::MAX;

/// See [`Coarsen::transfer`](super::Coarsen::transfer).
pub fn transfer(pool: &Pool, couplings: &Bsr, how: &Coarsening, level: usize) -> Result<Option<Transfer>> {
    let prolongation = match how.kind {
        CoarsenKind::Air { distance } => {
            let strong = split::strong(pool, couplings, how.strength, split::Size::Absolute);
            let coarse = split::pmis(pool, couplings, &strong, level);
            let prolongation = air::one_point(pool, couplings, &coarse, |i| i as u64);
            if !coarsens(&prolongation) {
                return Ok(None);
            }
            let restriction = air::restriction(pool, couplings, &strong, &coarse, distance, coarse.len());
            return Ok(Some(Transfer { prolongation, restriction, coarse: air::marks(pool, &coarse) }));
        }
        CoarsenKind::Classical => {
            let strong = split::strong(pool, couplings, how.strength, split::Size::Negative);
            if level < how.aggressive {
                let coarse = split::aggressive_pmis(pool, couplings, &strong, level);
                multipass::multipass(pool, couplings, &strong, &coarse, how.truncate, None)
            } else {
                let coarse = split::pmis(pool, couplings, &strong, level);
                interpolate::extended_i(pool, couplings, &strong, &coarse, how.truncate, None)
            }
        }
        CoarsenKind::Aggregation { smoothed } => {
            let theta = aggregate::threshold(how.strength, level);
            if smoothed {
                let strong = aggregate::strong(pool, couplings, theta, aggregate::Couplings::All);
                let aggregates = aggregate::by_independent_set(pool, couplings, &strong, level);
                aggregate::smoothed(pool, couplings, &strong, &aggregates)
            } else {
                let passes = if level < how.aggressive { 3 } else { 2 };
                let aggregates = aggregate::by_matching(pool, couplings, theta, passes, level)?;
                aggregate::constant(pool, &aggregates)
            }
        }
    };
    if !coarsens(&prolongation) {
        return Ok(None);
    }
    let restriction = galerkin::transpose(pool, &prolongation)?;
    Ok(Some(Transfer { prolongation, restriction, coarse: Vec::new() }))
}

/// Returns true if P has coarse points, and fewer than nodes.
fn coarsens(p: &Bsr) -> bool {
    (1..p.block_rows()).contains(&p.block_columns())
}

//! The steps of an AMG set-up on the host, on all threads of a pool. Tests compare the steps of a GPU with
//! these.

pub mod aggregate;
pub mod air;
#[cfg(test)]
mod air_tests;
mod around;
#[cfg(test)]
mod classical_tests;
pub mod galerkin;
pub mod interpolate;
pub mod multipass;
pub mod near_null;
pub mod parallel;
pub mod split;
mod sums;

use super::ranks::air::columns_of_restriction;
use super::{CoarsenKind, Coarsening, Neighbourhood, OwnProlongation};
use crate::matrix::Bsr;
use crate::threads::Pool;
use crate::{Error, Result};
use around::Around;

/// Marks a node that is not a coarse point.
pub const FINE: u32 = u32::MAX;

/// See [`Coarsen::prolongation`](super::Coarsen::prolongation).
pub fn prolongation(
    pool: &Pool,
    a: &Bsr,
    how: &Coarsening,
    level: usize,
    near: Option<&Neighbourhood>,
) -> Result<Option<OwnProlongation>> {
    match how.kind {
        CoarsenKind::Aggregation { smoothed } => aggregation(pool, a, how, smoothed, level, near),
        CoarsenKind::Classical | CoarsenKind::Air { .. } => splitting(pool, a, how, level, near),
    }
}

/// Classical coarsening and approximate ideal restriction: some nodes are coarse points.
fn splitting(
    pool: &Pool,
    a: &Bsr,
    how: &Coarsening,
    level: usize,
    near: Option<&Neighbourhood>,
) -> Result<Option<OwnProlongation>> {
    let (around, n) = (Around::of(near), a.block_rows());
    let own = around.own(n);
    let size = if how.kind.is_air() { split::Size::Absolute } else { split::Size::Negative };
    let strong = split::strong(pool, a, how.strength, size);
    let aggressive = level < how.aggressive;
    let coarse = match aggressive {
        true => split::aggressive_pmis(pool, a, &strong, level, around)?,
        false => split::pmis(pool, a, &strong, level, around)?,
    };
    let here = count(&coarse[..own]);
    if !around.coarsens(here, n)? {
        return Ok(None);
    }
    let ghosts = near.map_or(Ok(Vec::new()), |near| near.coarse_ghosts(&coarse))?;
    if let CoarsenKind::Air { distance } = how.kind {
        let p = air::one_point(pool, a, &coarse, |i| around.number(i));
        let r = air::restriction(pool, a, &strong, &coarse, distance, own);
        let mut made = OwnProlongation::new(p, here, ghosts);
        made.coarse = air::marks(pool, &coarse[..own]);
        made.columns = Some(match near {
            None => galerkin::transpose(pool, &r)?,
            Some(near) => columns_of_restriction(pool, near, &r, here, &mut made.ghosts)?,
        });
        return Ok(Some(made));
    }
    // Global numbers of coarse points order equal weights.
    let names = near
        .map(|near| -> Vec<u64> { (0..n).filter(|&i| coarse[i] != FINE).map(|i| near.number(i)).collect() });
    let interpolate = if aggressive { multipass::multipass } else { interpolate::extended_i };
    let p = interpolate(pool, a, &strong, &coarse, how.truncate, names.as_deref());
    Ok(Some(OwnProlongation::new(p, here, ghosts)))
}

/// Aggregation: groups of nodes are coarse nodes.
fn aggregation(
    pool: &Pool,
    a: &Bsr,
    how: &Coarsening,
    smoothed: bool,
    level: usize,
    near: Option<&Neighbourhood>,
) -> Result<Option<OwnProlongation>> {
    let around = Around::of(near);
    let theta = aggregate::threshold(how.strength, level);
    if !smoothed {
        if near.is_some() {
            return Err(Error::Internal("pairs are matched among the nodes of one rank".into()));
        }
        let p = aggregate::constant(
            pool,
            &aggregate::by_matching(pool, a, theta, aggregate::passes(how, level), level)?,
        );
        let stay = p.block_columns();
        return Ok((1..a.block_rows()).contains(&stay).then(|| OwnProlongation::new(p, stay, Vec::new())));
    }
    let strong = aggregate::strong(pool, a, theta, aggregate::Couplings::All, around)?;
    let aggregates = aggregate::by_independent_set(pool, a, &strong, level, around)?;
    let stay = aggregates.own;
    if !around.coarsens(stay, a.block_rows())? {
        return Ok(None);
    }
    let p = aggregate::smoothed(pool, a, &strong, &aggregates.of);
    let ghosts = near.map_or(Ok(Vec::new()), |near| near.coarse_ghosts(&aggregates.roots))?;
    Ok(Some(OwnProlongation::new(p, stay, ghosts)))
}

/// Returns the number of coarse points.
fn count(number: &[u32]) -> usize {
    number.iter().filter(|&&k| k != FINE).count()
}

//! Levels that several ranks share: each rank has its own rows, and the hierarchy is that of the whole
//! system.
//!
//! A [`Neighbourhood`] knows the nodes around a rank's own, a few layers deep, with their rows. `choose.rs`
//! and `aggregate.rs` coarsen own nodes, and tell neighbours once a round what boundary nodes became. Numbers
//! in the whole system break ties, so the result is that of one rank.
//!
//! `share.rs` makes R A P: own rows give parts of coarse rows of other ranks, whose owners add them.
//! `level.rs` takes vectors down and up. It gathers the first small level on all ranks, and each goes on
//! alone with the same bits.
//!
//! If borders are long and few nodes lie there (`Border`), each rank coarsens only among its own nodes
//! (`local_transfer`). P and R then work as on one rank, and only the rows of P of ghosts travel.

mod aggregate;
mod choose;
mod distinct;
mod level;
mod neighbourhood;
pub(crate) mod rows;
mod runs;
mod share;

pub(super) use level::{Joint, Next, Route, level};
pub use neighbourhood::Neighbourhood;

/// Returns the numbers of own nodes if each rank has a consecutive range of them. Collective.
pub(super) fn numbers(comm: &dyn Communicator, own: usize) -> Result<OwnRows> {
    Ok(OwnRows::Run(runs::Runs::new(comm, own)?.own()))
}

use super::{Coarsen, CoarsenKind, Coarsening, Transfer};
use crate::Result;
use crate::comm::{Communicator, agree};
use crate::halo::OwnRows;
use crate::matrix::Bsr;

/// P for own nodes of a level that ranks share.
#[doc(hidden)]
pub struct NearTransfer {
    /// P, with the rows of own nodes first. Columns are own coarse nodes, then those of other ranks.
    pub prolongation: Bsr,
    /// Number of own coarse nodes.
    pub own: usize,
    /// Owner of each coarse node of another rank, and its number there.
    pub ghosts: Vec<(u32, u32)>,
}

/// Coarsens all nodes on the host. Unsmoothed aggregation matches pairs only among each rank's own nodes.
pub(crate) fn transfer_by_ranks<S: Coarsen>(
    space: &S,
    couplings: &Bsr,
    how: &Coarsening,
    level: usize,
    near: &Neighbourhood,
) -> Result<Option<NearTransfer>> {
    let pool = space.host_threads();
    match how.kind {
        CoarsenKind::Classical => return choose::transfer(&pool, couplings, how, level, near),
        CoarsenKind::Aggregation { smoothed: true } => {
            return aggregate::transfer(&pool, couplings, how, level, near);
        }
        CoarsenKind::Aggregation { smoothed: false } => {}
    }
    let made = local_transfer(space, near.comm(), couplings, near.own, how, level)?;
    Ok(made.map(|made| {
        let own = made.prolongation.block_columns();
        NearTransfer { prolongation: made.prolongation, own, ghosts: Vec::new() }
    }))
}

/// Coarsens own nodes by the couplings among them. Collective.
pub(super) fn local_transfer<S: Coarsen>(
    space: &S,
    comm: &dyn Communicator,
    couplings: &Bsr,
    own: usize,
    how: &Coarsening,
    level: usize,
) -> Result<Option<Transfer>> {
    let made = space.own_couplings(couplings, own).and_then(|own| space.transfer(&own, how, level));
    let made = agree(comm, made)?;
    let stay = made.as_ref().map_or(0, |made| made.prolongation.block_columns());
    if !some_stay(comm, stay, own)? {
        return Ok(None);
    }
    // If only other ranks coarsen, this rank keeps all of its nodes.
    Ok(Some(made.unwrap_or_else(|| unchanged(own))))
}

/// Returns a transfer that keeps every node.
pub(super) fn unchanged(nodes: usize) -> Transfer {
    let identity = rows::identity(nodes);
    Transfer { prolongation: identity.clone(), restriction: identity }
}

/// Returns true if some, but not all, nodes of all ranks are coarse points; `stay` of the `own` nodes here
/// are. Collective.
fn some_stay(comm: &dyn Communicator, stay: usize, own: usize) -> Result<bool> {
    let mut sums = [stay as f64, own as f64];
    comm.sum(&mut sums)?;
    Ok(sums[0] > 0.0 && sums[0] < sums[1])
}

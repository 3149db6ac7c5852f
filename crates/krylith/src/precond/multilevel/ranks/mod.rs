//! Levels of several ranks: each has its own rows, and the hierarchy is that of the whole system.

mod aggregate;
mod choose;
mod level;
mod neighbourhood;
pub(crate) mod rows;
mod runs;
mod share;
mod wire;

pub(super) use level::{Joint, Next, level};
pub use neighbourhood::Neighbourhood;

/// Numbers of own nodes where each rank has a run of them. Collective.
pub(super) fn numbers(comm: &dyn Communicator, own: usize) -> Result<OwnRows> {
    Ok(OwnRows::Run(runs::Runs::new(comm, own)?.own()))
}

use super::{Coarsen, CoarsenKind, Coarsening};
use crate::Result;
use crate::comm::Communicator;
use crate::matrix::Bsr;
use crate::partition::OwnRows;

/// What interpolates own nodes of a level of all ranks.
pub struct NearTransfer {
    /// P; rows of own nodes come first. Columns are own coarse nodes, then those of other ranks.
    pub prolongation: Bsr,
    /// Own coarse nodes.
    pub own: usize,
    /// Of each coarse node of another rank its owner, and its number there.
    pub ghosts: Vec<(u32, u32)>,
}

/// Coarsening of all nodes on the host; pairs of nodes are matched by each rank among its own nodes alone.
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
    let own = rows::own_part(couplings, near.own);
    let made = space.transfer(&own, how, level)?;
    if !near.coarsens(made.as_ref().map_or(0, |made| made.prolongation.block_columns()))? {
        return Ok(None);
    }
    // A rank whose nodes all stay, or none, where others coarsen: they all do.
    let prolongation = match made {
        Some(made) => made.prolongation,
        None => rows::identity(near.own),
    };
    let own = prolongation.block_columns();
    Ok(Some(NearTransfer { prolongation, own, ghosts: Vec::new() }))
}

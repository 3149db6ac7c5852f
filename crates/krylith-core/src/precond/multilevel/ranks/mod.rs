//! Levels that several ranks share. Each rank has its own rows of the hierarchy of the whole system.
//!
//! A [`Neighbourhood`] has a few layers of nodes around a rank's own nodes, with their rows. Coarsening is
//! that of one rank (`host/`). It announces new states of boundary nodes to neighbours in every round. Global
//! numbers break ties, so the result is that of a single rank.
//!
//! `share.rs` computes R A P. Own rows contribute to coarse rows of other ranks, and the owners of these rows
//! add the contributions. `level.rs` restricts and interpolates vectors. It gathers the first small level on
//! all ranks. From there on each rank computes alone, with bitwise equal results.
//!
//! If borders between ranks are long but have only a small share of the nodes (`Border`), each rank coarsens
//! only among its own nodes (`local_transfer`). P and R then work as on one rank. Ranks exchange only the
//! rows of P that belong to ghosts.
//!
//! With near-null vectors each rank forms aggregates among its own nodes. Ranks exchange the rows of the
//! tentative T that belong to ghosts, so that P = (I − ω D⁻¹A) T is smoothed across borders.

pub(super) mod air;
mod far;
pub(crate) mod fetch;
mod level;
mod neighbourhood;
pub(crate) mod rows;
mod runs;
mod share;

pub(crate) use far::FarRows;
pub use fetch::Places;
pub(super) use level::{Joint, Next, Route, level};
pub use neighbourhood::Neighbourhood;
pub(crate) use neighbourhood::all_to_all;

/// Returns the global numbers of own nodes, for ranks that own consecutive ranges of nodes. Collective.
pub(super) fn numbers(comm: &dyn Communicator, own: usize) -> Result<OwnRows> {
    Ok(OwnRows::Run(runs::Runs::new(comm, own)?.own()))
}

use super::{Coarsen, CoarsenKind, Coarsening, NearNull, NearNullTransfer, Transfer, host};
use crate::Result;
use crate::comm::{Communicator, agree};
use crate::halo::OwnRows;
use crate::matrix::Bsr;

/// Coarsens own nodes by the couplings among own nodes only. Collective.
pub(super) fn local_transfer<S: Coarsen>(
    space: &S,
    comm: &dyn Communicator,
    couplings: &Bsr,
    own: usize,
    how: &Coarsening,
    level: usize,
) -> Result<Option<Transfer>> {
    let made = space.own_couplings(couplings, own).and_then(|own| space.transfer(&own, how, level));
    // If other ranks can coarsen but this rank cannot, it keeps all of its nodes.
    let made = made.and_then(|made| match made {
        Some(made) => Ok((made.prolongation.block_columns(), made)),
        None => Ok((0, unchanged(space, own)?)),
    });
    let (stay, made) = agree(comm, made)?;
    Ok(some_stay(comm, stay, own)?.then_some(made))
}

/// Computes T from near-null vectors and the couplings among own nodes. Collective.
pub(super) fn local_near_null_transfer<S: Coarsen>(
    space: &S,
    comm: &dyn Communicator,
    a: &Bsr,
    couplings: &Bsr,
    near: &NearNull,
    how: &Coarsening,
    level: usize,
) -> Result<Option<NearNullTransfer>> {
    let own = a.block_rows();
    let made = space
        .own_couplings(couplings, own)
        .and_then(|couplings| space.near_null_transfer(a, &couplings, near, how, level, own));
    let made = agree(comm, made)?;
    if !some_stay(comm, made.as_ref().map_or(0, NearNullTransfer::nodes), own)? {
        return Ok(None);
    }
    // If other ranks can coarsen but this rank cannot, every node is an aggregate.
    let smooth = how.kind == CoarsenKind::Aggregation { smoothed: true };
    Ok(Some(made.unwrap_or_else(|| host::near_null::unchanged(&space.host_threads(), a, near, smooth))))
}

/// Returns a transfer that keeps every node.
pub(super) fn unchanged<S: Coarsen>(space: &S, nodes: usize) -> Result<Transfer> {
    // The first rows are all rows, in the memory of the device.
    let identity = space.first_rows(&rows::identity(nodes), nodes, nodes)?;
    Ok(Transfer { prolongation: identity.clone(), restriction: identity, coarse: Vec::new() })
}

/// Returns true if some, but not all, nodes of all ranks are coarse points. On this rank `stay` of the `own`
/// nodes are. Collective.
fn some_stay(comm: &dyn Communicator, stay: usize, own: usize) -> Result<bool> {
    let mut sums = [stay as f64, own as f64];
    comm.sum(&mut sums)?;
    Ok(sums[0] > 0.0 && sums[0] < sums[1])
}

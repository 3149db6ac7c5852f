//! A system that only exchanges: ranks form a ring, and each boundary row copies a node of a neighbour.
//!
//! Rank r has `message` rows for each of its neighbours (r ± 1 around the ring; one neighbour if there are
//! two ranks). Then follow `interior` rows that copy an own node. A block is the identity, stored dense.

use krylith_core::Result;
use krylith_core::matrix::{Bsr, Dense};
use krylith_core::operator::Terms;
use krylith_core::partition::{Halo, Neighbour};
use std::borrow::Cow;
use std::sync::Arc;

/// Block size and stages of the OKP paper: 64 bytes per node.
pub(super) const BLOCK: usize = 4;
pub(super) const STAGES: usize = 2;
/// Bytes of a node.
pub(super) const NODE: usize = 8 * BLOCK * STAGES;

/// Returns the neighbours of a rank, ascending; none if it is alone.
pub(super) fn neighbours(rank: usize, size: usize) -> Vec<usize> {
    let mut all = vec![(rank + size - 1) % size, (rank + 1) % size];
    all.retain(|&q| q != rank);
    all.sort_unstable();
    all.dedup();
    all
}

/// Returns the rows of one rank; a rank alone copies own nodes, as many as it would with `neighbours`
/// neighbours.
pub(super) fn ring(
    rank: usize,
    size: usize,
    rows_for: usize,
    message: usize,
    interior: usize,
) -> Result<Terms<'static>> {
    let others = neighbours(rank, size);
    let boundary = rows_for * message;
    let own = boundary + interior;
    let ghosts = others.len() * message;
    let column = |i: usize| if i < ghosts { own + i } else { i };
    let col: Vec<u32> = (0..own).map(|i| column(i) as u32).collect();
    let identity = Dense::identity(BLOCK);
    let values = identity.values().repeat(own);
    let matrix = Bsr::new(BLOCK, own, own + ghosts, (0..=own).collect(), col, values)?;
    let part = |slot: usize| slot * message..(slot + 1) * message;
    let halo = Halo {
        own,
        ghosts,
        neighbours: others
            .iter()
            .enumerate()
            .map(|(slot, &rank)| Neighbour { rank, send: part(slot), receive: part(slot) })
            .collect(),
        send: (0..ghosts as u32).collect(),
    };
    let halo = (size > 1).then(|| Arc::new(halo));
    Ok(Terms::new(vec![(Dense::identity(STAGES), Cow::Owned(matrix))])?.with_halo(halo))
}

/// Returns number `e` of node `i` of a rank's x: exact, and different for all.
pub(super) fn value(rank: usize, i: usize, e: usize) -> f64 {
    (rank * (1 << 40) + i * 16 + e) as f64
}

/// Returns the owner and the number of the node that row `i` of a rank copies.
pub(super) fn source(rank: usize, size: usize, message: usize, i: usize) -> (usize, usize) {
    let others = neighbours(rank, size);
    match others.get(i / message.max(1)) {
        Some(&q) if i < others.len() * message => {
            let slot = neighbours(q, size).iter().position(|&r| r == rank).unwrap_or(0);
            (q, slot * message + i % message)
        }
        _ => (rank, i),
    }
}

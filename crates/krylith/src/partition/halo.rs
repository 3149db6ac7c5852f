//! What one rank exchanges with its neighbours before a product.

use std::ops::Range;

/// A halo, in local numbers of one rank: its own nodes are 0..own, ghosts follow as own..own + ghosts, ordered by owner
/// and then by global number.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Halo {
    /// Nodes that this rank owns.
    pub own: usize,
    /// Nodes of others that its rows use.
    pub ghosts: usize,
    /// Ranks that it exchanges with, ascending. Where rank p lists q, q lists p: one of the ranges may be empty.
    pub neighbours: Vec<Neighbour>,
    /// Own nodes to be sent, neighbour by neighbour.
    pub send: Vec<u32>,
}

/// One neighbour of a rank.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbour {
    /// Its rank.
    pub rank: usize,
    /// Range of [`Halo::send`] that it needs.
    pub send: Range<usize>,
    /// Ghosts that it owns, counted from 0.
    pub receive: Range<usize>,
}

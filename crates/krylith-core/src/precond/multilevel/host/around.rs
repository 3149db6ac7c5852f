//! Nodes of other ranks around own nodes, as the steps of coarsening see them. On one rank there are none.

use super::super::ranks::Neighbourhood;
use super::FINE;
use crate::Result;
use crate::comm::wire::Wire;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The nodes of a graph: own nodes, followed by nodes of other ranks.
#[derive(Clone, Copy)]
pub struct Around<'a> {
    near: Option<&'a Neighbourhood<'a>>,
    /// The position of each node of the neighbourhood in the graph, or [`FINE`] for nodes outside it. Without
    /// it, the graph has all nodes in the same order.
    places: Option<&'a [u32]>,
}

impl<'a> Around<'a> {
    /// Returns the nodes of a neighbourhood, or of one rank.
    pub fn of(near: Option<&'a Neighbourhood<'a>>) -> Self {
        Self { near, places: None }
    }

    /// Returns the graph in which node i of this graph is at position `places[i]`.
    pub fn within(self, places: &'a [u32]) -> Self {
        Self { places: Some(places), ..self }
    }

    /// Returns true on one rank.
    pub fn is_alone(self) -> bool {
        self.near.is_none()
    }

    /// Returns true if some, but not all, nodes are coarse points. `stay` of the own nodes among these `n`
    /// are. Collective.
    pub fn coarsens(self, stay: usize, n: usize) -> Result<bool> {
        match self.near {
            None => Ok((1..n).contains(&stay)),
            Some(near) => near.coarsens(stay),
        }
    }

    /// Returns the global number of a node of the neighbourhood.
    #[inline(always)]
    pub fn number(self, node: usize) -> u64 {
        self.near.map_or(node as u64, |near| near.number(node))
    }

    /// Returns how many of the `n` nodes of the graph are own ones.
    pub fn own(self, n: usize) -> usize {
        match (self.near, self.places) {
            (None, _) => n,
            (Some(near), None) => near.own,
            (Some(near), Some(places)) => places[..near.own].iter().filter(|&&k| k != FINE).count(),
        }
    }

    /// Returns true if the condition is true on any rank. Collective.
    pub fn any(self, here: bool) -> Result<bool> {
        let Some(near) = self.near else { return Ok(here) };
        let mut sum = [f64::from(u8::from(here))];
        near.comm().sum(&mut sum)?;
        Ok(sum != [0.0])
    }

    /// Exchanges values of nodes. `of` returns the value of an own node. `take` receives the position of each
    /// node of another rank, and the value that its owner has. Collective.
    pub fn exchange<T: Wire + Default>(
        self,
        of: impl Fn(usize) -> T,
        mut take: impl FnMut(usize, T),
    ) -> Result<()> {
        let Some(near) = self.near else { return Ok(()) };
        let place = |node: usize| match self.places {
            None => Some(node),
            Some(places) => (places[node] != FINE).then(|| places[node] as usize),
        };
        let sent: Vec<T> = near.send.iter().map(|&i| place(i as usize).map_or(T::default(), &of)).collect();
        for (k, value) in near.exchange(&sent)?.into_iter().enumerate() {
            place(near.own + k).into_iter().for_each(|place| take(place, value));
        }
        Ok(())
    }

    /// Exchanges nodes that belong to nodes. Each node of another rank gets the node that its owner names, or
    /// [`FINE`] if that is outside this neighbourhood. Collective.
    pub fn exchange_nodes(self, of: &[AtomicU32]) -> Result<()> {
        let Some(near) = self.near else { return Ok(()) };
        let name = |i: usize| match of[i].load(Relaxed) {
            FINE => u64::MAX,
            node => near.name(node),
        };
        let place = |name: u64| if name == u64::MAX { FINE } else { near.place(name).unwrap_or(FINE) };
        self.exchange(name, |i, name: u64| of[i].store(place(name), Relaxed))
    }
}

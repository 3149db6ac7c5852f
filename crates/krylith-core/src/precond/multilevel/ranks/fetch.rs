//! Rows of matrices that ranks send to each other.
//!
//! A node is identified by its number in [`Runs`](super::runs::Runs). Rows travel with these numbers. On
//! arrival a number becomes a place: own nodes come first, then the known nodes of other ranks.

use super::super::host::parallel::Rows;
use super::far::FarRows;
use super::neighbourhood::all_to_all;
use crate::Result;
use crate::comm::Communicator;
use crate::comm::wire::Reader;
use crate::halo::Halo;
use rayon::prelude::*;
use std::borrow::Cow;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;

/// A fast hash for numbers that no adversary chooses. It combines both halves of the product with an odd
/// number.
#[derive(Default)]
pub struct Multiplied(u64);

impl Hasher for Multiplied {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(self.0 ^ u64::from(byte)));
    }
    fn write_u64(&mut self, number: u64) {
        let product = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ product >> 32;
    }
}

/// Places of nodes, by number.
pub type Index = HashMap<u64, u32, BuildHasherDefault<Multiplied>>;

/// Nodes in the order of their places: own nodes, followed by nodes of other ranks.
#[doc(hidden)]
pub struct Places<'a> {
    /// Numbers of own nodes.
    pub own: Range<u64>,
    /// Numbers of the other nodes.
    pub others: Cow<'a, [u64]>,
    /// True if the other nodes ascend. Otherwise new ones follow the known ones.
    ascend: bool,
    /// Places of the first `indexed` other nodes.
    index: Index,
    indexed: usize,
}

impl<'a> Places<'a> {
    /// Wraps a list of other nodes that keep their places.
    pub fn new(own: Range<u64>, others: impl Into<Cow<'a, [u64]>>) -> Self {
        Self { own, others: others.into(), ascend: false, index: Index::default(), indexed: 0 }
    }

    /// Wraps a list of other nodes that ascend. Their places change if there are new ones.
    pub fn ascending(own: Range<u64>, others: impl Into<Cow<'a, [u64]>>) -> Self {
        Self { ascend: true, ..Self::new(own, others) }
    }

    /// Returns the number of nodes.
    pub fn count(&self) -> usize {
        (self.own.end - self.own.start) as usize + self.others.len()
    }

    /// Returns the number of the node at a place.
    pub fn number(&self, place: u32) -> u64 {
        let own = self.own.end - self.own.start;
        match u64::from(place).checked_sub(own) {
            None => self.own.start + u64::from(place),
            Some(other) => self.others[other as usize],
        }
    }

    /// Returns how many of the `known` other nodes keep their places if there are new ones.
    pub fn kept(&self, known: usize) -> usize {
        if self.ascend { 0 } else { known }
    }

    /// Adds nodes of other ranks that are not known yet, in any order, each once.
    pub fn add(&mut self, mut new: Vec<u64>) {
        if new.is_empty() {
            return;
        }
        new.par_sort_unstable();
        let others = self.others.to_mut();
        others.extend(new);
        if self.ascend {
            others.par_sort_unstable();
            (self.indexed, self.index) = (0, Index::default());
        }
    }

    /// Brings the index up to date.
    fn indexed(&mut self) -> &Index {
        let own = (self.own.end - self.own.start) as usize;
        let new = &self.others[self.indexed..];
        self.index.reserve(new.len());
        for (place, &number) in (own + self.indexed..).zip(new) {
            self.index.insert(number, place as u32);
        }
        self.indexed = self.others.len();
        &self.index
    }
}

/// Sends rows from the host, with `size` numbers per entry, and returns those that arrive, with their places
/// as columns. `rows` are those of the halo's `send`, and `columns` has the numbers of their columns. Nodes
/// that are not known yet are added to `places`. Collective.
///
/// # Errors
/// A rank that has ended or failed.
pub fn by_host(
    comm: &dyn Communicator,
    rows: &Rows,
    size: usize,
    halo: &Halo,
    columns: &Places,
    places: &mut Places,
) -> Result<Rows> {
    let number = |j: u32| columns.number(j);
    let messages = halo.neighbours.iter();
    let messages = messages.map(|n| (n.rank, FarRows::message(rows, n.send.clone(), size, &number)));
    let messages = all_to_all(comm, messages)?;
    let mut far = FarRows::default();
    for n in &halo.neighbours {
        far.take(&mut Reader::new(&messages[n.rank], n.rank), n.receive.len(), size)?;
    }
    let own = places.own.clone();
    let known = places.indexed();
    let unknown = |number: &u64| !own.contains(number) && !known.contains_key(number);
    let mut new: Vec<u64> = far.col.par_iter().copied().filter(unknown).collect();
    new.par_sort_unstable();
    new.dedup();
    places.add(new);
    let known = places.indexed();
    let place = |number: u64| match own.contains(&number) {
        true => (number - own.start) as u32,
        false => known.get(&number).copied().unwrap_or_default(), // all are known here
    };
    Ok(far.placed(size, place))
}

#[cfg(test)]
mod tests {
    use super::{Places, by_host};
    use crate::comm::{Communicator, Team};
    use crate::halo::{Halo, Neighbour};
    use crate::precond::multilevel::host::parallel::Rows;

    /// Each of two ranks sends a row with two own nodes and one of the other rank.
    #[test]
    fn rows_arrive_with_places_as_columns() {
        let found = Team::run(2, |comm| {
            let (own, other) = (2 * comm.rank() as u64, 2 - 2 * comm.rank() as u64);
            let neighbours = vec![Neighbour { rank: 1 - comm.rank(), send: 0..1, receive: 0..1 }];
            let halo = Halo { own: 2, ghosts: 1, neighbours, send: vec![0] };
            let mut rows = Rows::default();
            rows.push(&[(0, 1.0), (1, 2.0), (2, 3.0)]);
            let columns = Places::new(own..own + 2, vec![other]);
            let all = [
                Places::new(own..own + 2, vec![other + 1]),
                Places::ascending(own..own + 2, vec![other + 1]),
            ];
            let mut made = Vec::new();
            for mut places in all {
                let rows = by_host(&*comm, &rows, 1, &halo, &columns, &mut places)?;
                made.push((rows.col, rows.values, places.others.iter().map(|&node| node - other).collect()));
            }
            Ok(made)
        });
        for made in found.unwrap() {
            let expected: [(Vec<u32>, Vec<f64>, Vec<u64>); 2] = [
                (vec![0, 2, 3], vec![3.0, 2.0, 1.0], vec![1, 0]),
                (vec![0, 2, 3], vec![3.0, 1.0, 2.0], vec![0, 1]),
            ];
            assert_eq!(made, expected);
        }
    }
}

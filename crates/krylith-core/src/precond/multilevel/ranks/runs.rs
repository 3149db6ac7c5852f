//! Consecutive numbers of all nodes of a level, rank by rank.

use crate::Result;
use crate::comm::wire::{Reader, packed};
use crate::comm::{Communicator, gather};
use crate::halo::Halo;
use rayon::prelude::*;
use std::ops::Range;

/// Numbers of all nodes of a level. Each rank has a consecutive range of them.
#[derive(Clone)]
pub struct Runs {
    rank: usize,
    /// Beginning of each rank's range, and the total number at the end.
    pub begins: Vec<u64>,
}

impl Runs {
    /// Builds the ranges; this rank has `own` nodes. Collective.
    pub fn new(comm: &dyn Communicator, own: usize) -> Result<Self> {
        let mut begins = vec![0];
        for (rank, bytes) in gather(comm, &packed(&[own as u64]))?.iter().enumerate() {
            let count = Reader::new(bytes, rank).take::<u64>(1)?[0];
            begins.push(begins[rank] + count);
        }
        Ok(Self { rank: comm.rank(), begins })
    }

    /// Returns the number of nodes on all ranks.
    pub fn all(&self) -> usize {
        self.begins[self.begins.len() - 1] as usize
    }

    /// Returns the range of own numbers.
    pub fn own(&self) -> Range<u64> {
        self.begins[self.rank]..self.begins[self.rank + 1]
    }

    /// Returns the number of own nodes.
    pub fn count(&self) -> usize {
        let own = self.own();
        (own.end - own.start) as usize
    }

    /// Returns the rank that owns a number.
    pub fn owner(&self, number: u64) -> usize {
        self.begins.partition_point(|&begin| begin <= number) - 1
    }

    /// Returns the position of a number among own nodes followed by these ghosts, which ascend.
    pub fn place(&self, ghosts: &[u64], number: u64) -> u32 {
        let own = self.own();
        match own.contains(&number) {
            true => (number - own.start) as u32,
            false => self.count() as u32 + ghosts.partition_point(|&ghost| ghost < number) as u32,
        }
    }

    /// Returns the positions of own nodes and of the numbers `far` among own nodes followed by these ghosts.
    pub fn places(&self, far: &[u64], ghosts: &[u64]) -> Vec<u32> {
        let far = far.iter().map(|&number| self.place(ghosts, number));
        (0..self.count() as u32).chain(far).collect()
    }

    /// Returns the number at a position.
    pub fn number(&self, ghosts: &[u64], place: u32) -> u64 {
        let own = self.own();
        match (place as usize).checked_sub(self.count()) {
            None => own.start + u64::from(place),
            Some(ghost) => ghosts[ghost],
        }
    }

    /// Returns the halo of own nodes and these ghosts, which ascend. Collective.
    pub fn halo(&self, comm: &dyn Communicator, ghosts: &[u64]) -> Result<Halo> {
        let asked: Vec<Vec<u32>> = self
            .begins
            .windows(2)
            .map(|w| {
                let [begin, end] = [w[0], w[1]].map(|bound| ghosts.partition_point(|&ghost| ghost < bound));
                ghosts[begin..end].iter().map(|ghost| (ghost - w[0]) as u32).collect()
            })
            .collect();
        let counts: Vec<usize> = asked.iter().map(Vec::len).collect();
        let told = comm.all_to_all(asked.iter().map(|nodes| packed(nodes)).collect())?;
        let to = told.iter().enumerate().map(|(rank, bytes)| Reader::new(bytes, rank).all());
        Ok(Halo::new(self.count(), &counts, to.collect::<Result<_>>()?))
    }

    /// Returns the distinct numbers among `numbers` that other ranks own, ascending.
    pub fn others(&self, numbers: impl ParallelIterator<Item = u64>) -> Vec<u64> {
        let own = self.own();
        let mut others: Vec<u64> = numbers.filter(|number| !own.contains(number)).collect();
        others.par_sort_unstable();
        others.dedup();
        others
    }
}

//! Nodes of other ranks around the own ones, layer by layer, with their rows of couplings, and what ranks tell each other of them.
//!
//! A node of another rank is known by its owner and its number there; its number in the whole system is for hashes and ties.

use super::super::Coarsen;
use super::super::host::FINE;
use super::super::host::parallel::Rows;
use super::wire::{Reader, Wire, packed};
use crate::Result;
use crate::comm::Communicator;
use crate::matrix::Bsr;
use crate::partition::Halo;
use std::collections::HashMap;

/// Own nodes, and behind them those of other ranks that are near: first the ghosts of the level's halo.
pub struct Neighbourhood<'a> {
    comm: &'a dyn Communicator,
    /// Own nodes.
    pub own: usize,
    /// Number of each node in the whole system.
    pub numbers: Vec<u64>,
    /// Own nodes that others know of, rank by rank.
    pub send: Vec<u32>,
    /// Owner of each node of another rank, and its number there.
    pub far: Vec<(u32, u32)>,
    /// Rank, how many of `send` go there, and which far nodes come from there.
    links: Vec<(usize, usize, Vec<u32>)>,
}

impl<'a> Neighbourhood<'a> {
    /// Grows `layers` layers around own nodes, the first the halo's ghosts, and gives the couplings with their rows; columns reach one layer further.
    /// Collective.
    ///
    /// # Errors
    /// A device without room; a rank that is gone or failed.
    pub(super) fn grow<S: Coarsen>(
        space: &S,
        comm: &'a dyn Communicator,
        halo: &Halo,
        numbers: &[u64],
        couplings: &Bsr,
        layers: usize,
    ) -> Result<(Self, Bsr)> {
        let own = halo.own;
        let mut near = Self {
            comm,
            own,
            numbers: numbers.to_vec(),
            send: Vec::new(),
            far: Vec::new(),
            links: Vec::new(),
        };
        let mut known: HashMap<(u32, u32), u32> = HashMap::new();
        // The halo's ghosts by their owners.
        let letters = halo.neighbours.iter().map(|n| {
            let nodes = &halo.send[n.send.clone()];
            let bytes = [packed(nodes.iter().copied()), packed(nodes.iter().map(|&i| numbers[i as usize]))];
            (n.rank, bytes.concat())
        });
        let letters = all_to_all(comm, letters)?;
        for n in &halo.neighbours {
            let mut from = Reader::new(&letters[n.rank], n.rank);
            let nodes: Vec<u32> = from.take(n.receive.len())?;
            for (node, number) in nodes.into_iter().zip(from.take::<u64>(n.receive.len())?) {
                near.name(&mut known, (n.rank as u32, node), number);
            }
        }
        let mut below = Rows::default();
        let mut begin = 0;
        for _ in 0..layers {
            let end = near.far.len();
            near.import(space, couplings, begin..end, &mut known, &mut below)?;
            begin = end;
        }
        (begin..near.far.len()).for_each(|_| below.end_row());
        near.link()?;
        let widened = space.with_rows(couplings, &below, near.numbers.len())?;
        Ok((near, widened))
    }

    /// The number of a node here, which is a new one perhaps.
    fn name(&mut self, known: &mut HashMap<(u32, u32), u32>, node: (u32, u32), number: u64) -> u32 {
        if node.0 as usize == self.comm.rank() {
            return node.1;
        }
        let next = self.numbers.len() as u32;
        let found = *known.entry(node).or_insert(next);
        if found == next {
            self.far.push(node);
            self.numbers.push(number);
        }
        found
    }

    /// Rows of these far nodes, appended to `below`.
    fn import<S: Coarsen>(
        &mut self,
        space: &S,
        couplings: &Bsr,
        wanted: std::ops::Range<usize>,
        known: &mut HashMap<(u32, u32), u32>,
        below: &mut Rows,
    ) -> Result<()> {
        let (comm, rank) = (self.comm, self.comm.rank() as u32);
        let mut asked: Vec<Vec<u32>> = vec![Vec::new(); comm.size()];
        self.far[wanted.clone()].iter().for_each(|&(owner, node)| asked[owner as usize].push(node));
        let requests = comm.all_to_all(asked.iter().map(|nodes| packed(nodes.iter().copied())).collect())?;
        let mut lists: Vec<Vec<u32>> = Vec::new();
        for (from, bytes) in requests.iter().enumerate() {
            lists.push(Reader::new(bytes, from).all()?);
        }
        let rows = space.rows_of(couplings, &lists.concat())?;
        let mut first = 0;
        let replies = lists.iter().map(|list| {
            let ends = &rows.row_ptr[first..=first + list.len()];
            first += list.len();
            let entries = ends[0]..ends[list.len()];
            let node = |j: u32| match (j as usize).checked_sub(self.own) {
                None => (rank, j),
                Some(far) => self.far[far],
            };
            let col = &rows.col[entries.clone()];
            let mut bytes = packed(ends.windows(2).map(|w| (w[1] - w[0]) as u32));
            bytes.extend(packed(col.iter().flat_map(|&j| [node(j).0, node(j).1])));
            bytes.extend(packed(col.iter().map(|&j| self.numbers[j as usize])));
            bytes.extend(packed(rows.values[entries].iter().copied()));
            bytes
        });
        let replies = comm.all_to_all(replies.collect())?;
        // Rows come by owner, and are wanted in the order of nodes.
        let mut by_owner = Vec::new();
        for (from, nodes) in asked.iter().enumerate() {
            let mut bytes = Reader::new(&replies[from], from);
            let lengths: Vec<u32> = bytes.take(nodes.len())?;
            let entries = lengths.iter().map(|&length| length as usize).sum::<usize>();
            let ids: Vec<u32> = bytes.take(2 * entries)?;
            let (numbers, values) = (bytes.take::<u64>(entries)?, bytes.take::<f64>(entries)?);
            let mut rows = Vec::with_capacity(nodes.len());
            let mut at = 0;
            for length in lengths {
                let end = at + length as usize;
                let mut row: Vec<(u32, f64)> = (at..end)
                    .map(|p| (self.name(known, (ids[2 * p], ids[2 * p + 1]), numbers[p]), values[p]))
                    .collect();
                row.sort_unstable_by_key(|entry| entry.0);
                rows.push(row);
                at = end;
            }
            by_owner.push(rows.into_iter());
        }
        for k in wanted {
            for (j, v) in by_owner[self.far[k].0 as usize].next().unwrap_or_default() {
                below.col.push(j);
                below.values.push(v);
            }
            below.end_row();
        }
        Ok(())
    }

    /// Tells owners which of their nodes are known here.
    fn link(&mut self) -> Result<()> {
        let mut nodes: Vec<Vec<u32>> = vec![Vec::new(); self.comm.size()];
        let mut places = nodes.clone();
        for (place, &(owner, node)) in self.far.iter().enumerate() {
            nodes[owner as usize].push(node);
            places[owner as usize].push(place as u32);
        }
        let told = self.comm.all_to_all(nodes.iter().map(|nodes| packed(nodes.iter().copied())).collect())?;
        for (rank, (bytes, places)) in told.iter().zip(places).enumerate() {
            let wanted: Vec<u32> = Reader::new(bytes, rank).all()?;
            if !wanted.is_empty() || !places.is_empty() {
                self.links.push((rank, wanted.len(), places));
                self.send.extend(wanted);
            }
        }
        Ok(())
    }

    /// The ranks.
    pub fn comm(&self) -> &dyn Communicator {
        self.comm
    }

    /// Whether nodes stay, `stay` of the own ones, but not all of all ranks. Collective.
    ///
    /// # Errors
    /// A rank that is gone or failed.
    pub fn coarsens(&self, stay: usize) -> Result<bool> {
        let mut sums = [stay as f64, self.own as f64];
        self.comm.sum(&mut sums)?;
        Ok(sums[0] > 0.0 && sums[0] < sums[1])
    }

    /// Of each far node that stays its owner, and its number there; `number` says of every node which it has here, [`FINE`] where it does not stay. Collective.
    ///
    /// # Errors
    /// As [`exchange`](Self::exchange).
    pub fn coarse_ghosts(&self, number: &[u32]) -> Result<Vec<(u32, u32)>> {
        let sent: Vec<u32> = self.send.iter().map(|&i| number[i as usize]).collect();
        let far = self.far.iter().zip(self.exchange(&sent)?).zip(&number[self.own..]);
        let stay = far.filter(|&(_, &here)| here != FINE);
        Ok(stay.map(|((&(owner, _), there), _)| (owner, there)).collect())
    }

    /// What far nodes have, where `sent` is what own nodes have that others know of, in the order of [`send`](Self::send). Collective.
    ///
    /// # Errors
    /// A rank that is gone or failed.
    pub fn exchange<T: Wire + Default>(&self, sent: &[T]) -> Result<Vec<T>> {
        let mut rest = sent;
        let letters = self.links.iter().map(|&(rank, count, _)| {
            let (own, after) = rest.split_at(count);
            rest = after;
            (rank, packed(own.iter().copied()))
        });
        let letters = all_to_all(self.comm, letters)?;
        let mut all = vec![T::default(); self.far.len()];
        for (rank, _, places) in &self.links {
            let numbers: Vec<T> = Reader::new(&letters[*rank], *rank).take(places.len())?;
            places.iter().zip(numbers).for_each(|(&place, number)| all[place as usize] = number);
        }
        Ok(all)
    }
}

/// One message to some of the ranks, and what came from all.
pub(super) fn all_to_all(
    comm: &dyn Communicator,
    letters: impl Iterator<Item = (usize, Vec<u8>)>,
) -> Result<Vec<Vec<u8>>> {
    let mut out = vec![Vec::new(); comm.size()];
    letters.for_each(|(rank, letter)| out[rank] = letter);
    comm.all_to_all(out)
}

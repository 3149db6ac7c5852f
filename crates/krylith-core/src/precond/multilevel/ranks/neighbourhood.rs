//! Layers of nodes of other ranks around a rank's own nodes, with their rows of couplings, and the exchange
//! of values for these nodes.
//!
//! A node of another rank is identified by its owner and its number on that rank. Its global number is used
//! to break ties.

use super::super::Coarsen;
use super::super::host::FINE;
use super::fetch::{Index, Places};
use super::runs::Runs;
use crate::Result;
use crate::comm::Communicator;
use crate::comm::wire::{Reader, Wire, packed};
use crate::matrix::Bsr;
use crate::partition::{Halo, RowNumbers};
use rayon::prelude::*;
use std::borrow::Cow;
use std::sync::OnceLock;

/// Own nodes, followed by nearby nodes of other ranks ("far" nodes). The first far nodes are the ghosts of
/// the level's halo.
#[doc(hidden)]
pub struct Neighbourhood<'a> {
    comm: &'a dyn Communicator,
    /// Number of own nodes.
    pub own: usize,
    /// Global numbers of own nodes.
    pub numbers: RowNumbers<'a>,
    /// Global numbers of nodes of other ranks.
    pub far_numbers: Vec<u64>,
    /// Numbers that identify all nodes: consecutive, rank by rank.
    runs: Runs,
    /// Position of each far node, by its number in `runs`; made when it is first used.
    known: OnceLock<Index>,
    /// Own nodes that are in the neighbourhoods of other ranks, rank by rank.
    pub send: Vec<u32>,
    /// Owner of each far node, and its number on that rank.
    pub far: Vec<(u32, u32)>,
    /// For each linked rank: the rank, the number of `send` entries that go there, and the far nodes that
    /// come from there.
    links: Vec<(usize, usize, Vec<u32>)>,
}

impl<'a> Neighbourhood<'a> {
    /// Adds `layers` layers of nodes around own nodes, of which the halo's ghosts are the first. Returns the
    /// couplings with the rows of these nodes appended. Columns reach one layer further. Collective.
    ///
    /// # Errors
    /// Out of device memory; a rank that has ended or failed.
    pub(super) fn grow<S: Coarsen>(
        space: &S,
        comm: &'a dyn Communicator,
        halo: &Halo,
        numbers: RowNumbers<'a>,
        couplings: &Bsr,
        layers: usize,
    ) -> Result<(Self, Bsr)> {
        let runs = Runs::new(comm, halo.own)?;
        let usual = numbers.is_empty() || numbers.as_run() == Some(runs.own());
        let mut listed = [f64::from(u8::from(!usual))];
        comm.sum(&mut listed)?;
        // Owners send the numbers of their nodes that are ghosts here.
        let messages = halo.neighbours.iter().map(|n| (n.rank, packed(&halo.send[n.send.clone()])));
        let messages = all_to_all(comm, messages)?;
        let mut ghosts: Vec<u64> = Vec::with_capacity(halo.ghosts);
        for n in &halo.neighbours {
            let nodes: Vec<u32> = Reader::new(&messages[n.rank], n.rank).take(n.receive.len())?;
            ghosts.extend(nodes.into_iter().map(|node| runs.begins[n.rank] + u64::from(node)));
        }
        let mut near = Self {
            comm,
            own: halo.own,
            numbers,
            far_numbers: Vec::new(),
            runs,
            known: OnceLock::new(),
            send: Vec::new(),
            far: Vec::new(),
            links: Vec::new(),
        };
        let columns = Places::new(near.runs.own(), &ghosts);
        let mut places = Places::new(near.runs.own(), ghosts.clone());
        let (mut below, mut lists) = (Vec::new(), vec![(Vec::new(), Vec::new()); comm.size()]);
        near.list(halo, &places.others, &mut lists);
        for layer in 0..layers {
            let wanted = match layer {
                0 => Cow::Borrowed(halo),
                _ => Cow::Owned(near.runs.halo(comm, &places.others[near.far.len()..])?),
            };
            if layer > 0 {
                near.list(&wanted, &places.others, &mut lists);
            }
            below.push(space.fetch_rows(couplings, &wanted, &columns, &mut places)?);
        }
        let last = near.runs.halo(comm, &places.others[near.far.len()..])?;
        near.list(&last, &places.others, &mut lists);
        for (rank, (sent, far)) in lists.into_iter().enumerate() {
            if !sent.is_empty() || !far.is_empty() {
                near.links.push((rank, sent.len(), far));
                near.send.extend(sent);
            }
        }
        near.far_numbers = match listed == [0.0] {
            true => places.others.into_owned(),
            false => {
                let sent: Vec<u64> = near.send.iter().map(|&node| near.numbers.at(node as usize)).collect();
                near.exchange(&sent)?
            }
        };
        let widened = space.stack(couplings, &below, near.nodes(), near.nodes())?;
        Ok((near, widened))
    }

    /// Appends the ghosts of this halo, the next ones of `numbers`, to the far nodes. `lists` has the own
    /// nodes that go to each rank, and the far nodes that come from there.
    fn list(&mut self, halo: &Halo, numbers: &[u64], lists: &mut [(Vec<u32>, Vec<u32>)]) {
        let begin = self.far.len();
        let far = numbers[begin..begin + halo.ghosts].par_iter().map(|&number| {
            let owner = self.runs.owner(number);
            (owner as u32, (number - self.runs.begins[owner]) as u32)
        });
        let far: Vec<(u32, u32)> = far.collect();
        self.far.extend(far);
        for n in &halo.neighbours {
            let (sent, received) = &mut lists[n.rank];
            sent.extend_from_slice(&halo.send[n.send.clone()]);
            received.extend((begin + n.receive.start) as u32..(begin + n.receive.end) as u32);
        }
    }

    /// Returns the number of own and far nodes together.
    pub fn nodes(&self) -> usize {
        self.own + self.far.len()
    }

    /// Returns the global number of a node.
    pub fn number(&self, node: usize) -> u64 {
        match node.checked_sub(self.own) {
            None => self.numbers.at(node),
            Some(far) => self.far_numbers[far],
        }
    }

    /// Returns the position of the node with this number in `runs`, if it is known.
    pub fn place(&self, name: u64) -> Option<u32> {
        let own = self.runs.own();
        match own.contains(&name) {
            true => Some((name - own.start) as u32),
            false => self.known.get_or_init(|| self.index()).get(&name).copied(),
        }
    }

    /// Returns the number of a node in `runs`.
    pub fn name(&self, node: u32) -> u64 {
        let (owner, node) = match (node as usize).checked_sub(self.own) {
            None => (self.comm.rank(), node),
            Some(far) => (self.far[far].0 as usize, self.far[far].1),
        };
        self.runs.begins[owner] + u64::from(node)
    }

    /// Returns the positions of far nodes.
    fn index(&self) -> Index {
        (self.own as u32..self.nodes() as u32).map(|node| (self.name(node), node)).collect()
    }

    /// Returns the communicator.
    pub fn comm(&self) -> &dyn Communicator {
        self.comm
    }

    /// Returns true if some, but not all, nodes of all ranks are coarse points. On this rank `stay` of the
    /// own nodes are. Collective.
    ///
    /// # Errors
    /// A rank that has ended or failed.
    pub fn coarsens(&self, stay: usize) -> Result<bool> {
        super::some_stay(self.comm, stay, self.own)
    }

    /// Returns the owner of each far coarse point and its number on that rank. `number` has the coarse number
    /// of every own and far node, or [`FINE`] for fine points. Collective.
    ///
    /// # Errors
    /// As [`exchange`](Self::exchange).
    pub fn coarse_ghosts(&self, number: &[u32]) -> Result<Vec<(u32, u32)>> {
        let sent: Vec<u32> = self.send.iter().map(|&i| number[i as usize]).collect();
        let far = self.far.iter().zip(self.exchange(&sent)?).zip(&number[self.own..]);
        let stay = far.filter(|&(_, &here)| here != FINE);
        Ok(stay.map(|((&(owner, _), there), _)| (owner, there)).collect())
    }

    /// Returns the number of own nodes in [`send`](Self::send) that go to each rank.
    pub fn counts(&self) -> Vec<usize> {
        let mut counts = vec![0; self.comm.size()];
        self.links.iter().for_each(|&(rank, count, _)| counts[rank] = count);
        counts
    }

    /// Returns the position of each far node among values that arrive rank by rank. `begins` has the first
    /// position of each rank.
    pub fn arrivals(&self, begins: &[usize]) -> Vec<u32> {
        let mut order = vec![0; self.far.len()];
        for (rank, _, places) in &self.links {
            let from = begins[*rank] as u32..;
            places.iter().zip(from).for_each(|(&place, from)| order[place as usize] = from);
        }
        order
    }

    /// Returns the values of far nodes. `sent` has the values of own nodes for other ranks, in the order of
    /// [`send`](Self::send). Collective.
    ///
    /// # Errors
    /// A rank that has ended or failed.
    pub fn exchange<T: Wire + Default>(&self, sent: &[T]) -> Result<Vec<T>> {
        let mut rest = sent;
        let messages = self.links.iter().map(|&(rank, count, _)| {
            let (own, after) = rest.split_at(count);
            rest = after;
            (rank, packed(own))
        });
        let messages = all_to_all(self.comm, messages)?;
        if let [(rank, ..)] = &self.links[..] {
            return Reader::new(&messages[*rank], *rank).take(self.far.len());
        }
        let mut all = vec![T::default(); self.far.len()];
        for (rank, _, places) in &self.links {
            let numbers: Vec<T> = Reader::new(&messages[*rank], *rank).take(places.len())?;
            places.iter().zip(numbers).for_each(|(&place, number)| all[place as usize] = number);
        }
        Ok(all)
    }
}

/// Sends one message to each rank that is listed. Returns for every rank the message that it sent here.
pub(crate) fn all_to_all(
    comm: &dyn Communicator,
    messages: impl Iterator<Item = (usize, Vec<u8>)>,
) -> Result<Vec<Vec<u8>>> {
    let mut out = vec![Vec::new(); comm.size()];
    messages.for_each(|(rank, message)| out[rank] = message);
    comm.all_to_all(out)
}

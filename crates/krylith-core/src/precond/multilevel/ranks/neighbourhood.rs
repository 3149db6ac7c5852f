//! Layers of nodes of other ranks around a rank's own nodes, with their rows of couplings, and the exchange
//! of values for these nodes.
//!
//! A node of another rank is identified by its owner and its number on that rank. Its global number is used
//! in hashes and to break ties.

use super::super::Coarsen;
use super::super::host::FINE;
use super::super::host::parallel::Rows;
use super::rows::append_ascending;
use super::runs::Runs;
use crate::Result;
use crate::comm::Communicator;
use crate::comm::wire::{MessageBuilder, Reader, Wire, packed};
use crate::matrix::Bsr;
use crate::partition::{Halo, RowNumbers};
use rayon::prelude::*;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;

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
    /// True if on some rank the global numbers differ from the numbers of `runs`.
    listed: bool,
    /// Position of each far node, by its number in `runs`.
    known: HashMap<u64, u32, BuildHasherDefault<Multiplied>>,
    /// Own nodes that are in the neighbourhoods of other ranks, rank by rank.
    pub send: Vec<u32>,
    /// Owner of each far node, and its number on that rank.
    pub far: Vec<(u32, u32)>,
    /// For each linked rank: the rank, the number of `send` entries that go there, and the far nodes that
    /// come from there.
    links: Vec<(usize, usize, Vec<u32>)>,
}

/// A fast hash for numbers that no adversary chooses. It combines both halves of the product with an odd
/// number.
#[derive(Default)]
struct Multiplied(u64);

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
        let mut near = Self {
            comm,
            own: halo.own,
            numbers,
            far_numbers: Vec::new(),
            runs,
            listed: listed != [0.0],
            known: HashMap::with_capacity_and_hasher(
                (layers + 1) * halo.ghosts,
                BuildHasherDefault::default(),
            ),
            send: Vec::new(),
            far: Vec::new(),
            links: Vec::new(),
        };
        // Owners send the numbers of their nodes that are ghosts here, which identifies them.
        let messages = halo.neighbours.iter().map(|n| {
            let nodes = &halo.send[n.send.clone()];
            let mut message = MessageBuilder::new(if near.listed { 12 } else { 4 } * nodes.len());
            message.put(nodes);
            if near.listed {
                message.put_each(nodes, &|i| near.number(i as usize));
            }
            (n.rank, message.bytes())
        });
        let messages = all_to_all(comm, messages)?;
        for n in &halo.neighbours {
            let mut from = Reader::new(&messages[n.rank], n.rank);
            let nodes: Vec<u32> = from.take(n.receive.len())?;
            let begin = near.runs.begins[n.rank];
            let names: Vec<u64> = nodes.into_iter().map(|node| begin + u64::from(node)).collect();
            let numbers = if near.listed { from.take::<u64>(names.len())? } else { names.clone() };
            names.into_iter().zip(numbers).for_each(|(name, number)| near.add(name, number));
        }
        let mut below = Rows::default();
        let mut begin = 0;
        for _ in 0..layers {
            let end = near.far.len();
            near.import(space, couplings, begin..end, &mut below)?;
            begin = end;
        }
        (begin..near.far.len()).for_each(|_| below.end_row());
        near.link()?;
        let widened = space.with_rows(couplings, &below, near.nodes())?;
        Ok((near, widened))
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

    /// Adds a far node unless it is known already.
    fn add(&mut self, name: u64, number: u64) {
        let owner = self.runs.owner(name);
        self.known.insert(name, self.nodes() as u32);
        self.far.push((owner as u32, (name - self.runs.begins[owner]) as u32));
        self.far_numbers.push(number);
    }

    /// Returns the position of the node with this number in `runs`, if it is known.
    pub fn place(&self, name: u64) -> Option<u32> {
        let own = self.runs.own();
        match own.contains(&name) {
            true => Some((name - own.start) as u32),
            false => self.known.get(&name).copied(),
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

    /// Appends the rows of these far nodes, which are the last ones added, to `below`.
    fn import<S: Coarsen>(
        &mut self,
        space: &S,
        couplings: &Bsr,
        wanted: Range<usize>,
        below: &mut Rows,
    ) -> Result<()> {
        let comm = self.comm;
        let mut asked: Vec<Vec<u32>> = vec![Vec::new(); comm.size()];
        let nodes = &self.far[wanted];
        debug_assert!(nodes.is_sorted_by_key(|node| node.0), "rows come by owner, in the order of nodes");
        nodes.iter().for_each(|&(owner, node)| asked[owner as usize].push(node));
        let requests = comm.all_to_all(asked.iter().map(|nodes| packed(nodes)).collect())?;
        let lists = requests.iter().enumerate().map(|(from, bytes)| Reader::new(bytes, from).all());
        let lists: Vec<Vec<u32>> = lists.collect::<Result<_>>()?;
        let rows = space.rows_of(couplings, &lists.concat())?;
        let mut first = 0;
        let replies = lists.iter().map(|list| {
            let ends = &rows.row_ptr[first..=first + list.len()];
            first += list.len();
            let entries = ends[0]..ends[list.len()];
            let col = &rows.col[entries.clone()];
            let mut message =
                MessageBuilder::new(4 * list.len() + if self.listed { 24 } else { 16 } * entries.len());
            message.put_lengths(ends);
            message.put_each(col, &|j| self.name(j));
            if self.listed {
                message.put_each(col, &|j| self.number(j as usize));
            }
            message.put(&rows.values[entries]);
            message.bytes()
        });
        let replies = comm.all_to_all(replies.collect())?;
        let mut read = Vec::new();
        for (from, nodes) in asked.iter().enumerate() {
            let mut bytes = Reader::new(&replies[from], from);
            let (lengths, entries) = bytes.lengths(nodes.len())?;
            let names = bytes.array::<u64>(entries)?;
            let numbers = if self.listed { Some(bytes.array::<u64>(entries)?) } else { None };
            read.push((lengths, entries, names, numbers, bytes.array::<f64>(entries)?));
        }
        let own = self.runs.own();
        let mut found: Vec<(u64, u64)> = Vec::new();
        for (_, entries, names, numbers, _) in &read {
            found.par_extend((0..*entries).into_par_iter().filter_map(|p| {
                let name = names.at(p);
                let unknown = !own.contains(&name) && !self.known.contains_key(&name);
                unknown.then(|| (name, numbers.as_ref().map_or(name, |numbers| numbers.at(p))))
            }));
        }
        found.par_sort_unstable();
        found.dedup();
        self.known.reserve(found.len());
        found.into_iter().for_each(|(name, number)| self.add(name, number));
        for (lengths, _, names, _, values) in &read {
            let column = |p: usize| self.place(names.at(p)).unwrap_or_default(); // all are known here
            append_ascending(below, lengths, 1, column, |p| values.at(p));
        }
        Ok(())
    }

    /// Tells owners which of their nodes are in this neighbourhood.
    fn link(&mut self) -> Result<()> {
        let mut nodes: Vec<Vec<u32>> = vec![Vec::new(); self.comm.size()];
        let mut places = nodes.clone();
        for (place, &(owner, node)) in self.far.iter().enumerate() {
            nodes[owner as usize].push(node);
            places[owner as usize].push(place as u32);
        }
        let told = self.comm.all_to_all(nodes.iter().map(|nodes| packed(nodes)).collect())?;
        for (rank, (bytes, places)) in told.iter().zip(places).enumerate() {
            let wanted: Vec<u32> = Reader::new(bytes, rank).all()?;
            if !wanted.is_empty() || !places.is_empty() {
                self.links.push((rank, wanted.len(), places));
                self.send.extend(wanted);
            }
        }
        Ok(())
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

//! The data that one rank exchanges with its neighbours before a product, and the map between global and
//! local numbers.
//!
//! If every rank owns consecutive numbers, [`Halo::build`] knows the owners of ghosts from all runs.
//! Otherwise it finds them through a distributed directory: rank ⌊g/64⌋ mod P stores the owner of number g,
//! and answers queries for it. So a rank stores its own numbers, its ghosts, and a P-th of the directory.

mod ghosts;
mod numbers;

#[doc(hidden)]
pub use ghosts::to_owners;
#[doc(hidden)]
pub use ghosts::{from_bytes, to_bytes};
#[doc(hidden)]
pub use numbers::OwnRows;
pub use numbers::RowNumbers;

use crate::comm::{Communicator, agree, gather};
use crate::{Error, Result};
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::ops::Range;

/// Number of consecutive numbers that one rank stores in the directory. Queries for neighbouring rows go to
/// the same rank, and any long range of numbers still spreads over all ranks.
const RUN: u64 = 64;

/// The directory's answer for a number without an owner.
const NOBODY: u64 = u64::MAX;

/// A halo, in local numbers of one rank: own nodes are 0..own; ghosts follow as own..own + ghosts, ordered by
/// owner and then by global number.
///
/// # Examples
/// ```
/// use krylith::comm::{Communicator, Team};
/// use krylith::partition::Halo;
/// // Rows 0 and 1 are rank 0's, row 2 is rank 1's; neighbours couple.
/// let halos = Team::run(2, |comm| {
///     let (own, columns) = match comm.rank() {
///         0 => (vec![0, 1], vec![0, 1, 2]),
///         _ => (vec![2], vec![1, 2]),
///     };
///     Ok(Halo::build(&*comm, &own, columns)?.0)
/// })?;
/// // Rank 0 sends its second row to rank 1.
/// assert_eq!((halos[0].own, halos[0].ghosts, &halos[0].send[..]), (2, 1, &[1][..]));
/// assert_eq!(halos[1].neighbours[0].rank, 0);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Halo {
    /// Number of nodes that this rank owns.
    pub own: usize,
    /// Number of nodes of other ranks that its rows use.
    pub ghosts: usize,
    /// Ranks with which it exchanges, ascending. If rank p lists q, q lists p; one of the ranges may be
    /// empty.
    pub neighbours: Vec<Neighbour>,
    /// Own nodes to send, neighbour by neighbour.
    pub send: Vec<u32>,
}

/// One neighbour of a rank.
///
/// # Examples
/// ```
/// use krylith::partition::Halo;
/// use krylith_base::halo::Neighbour;
/// let zero = Neighbour { rank: 1, send: 0..1, receive: 0..2 }; // one node goes there, two come back
/// let halo = Halo { own: 3, ghosts: 2, neighbours: vec![zero], send: vec![2] };
/// let numbers: usize = halo.neighbours.iter().map(|n| n.send.len() * 4).sum();
/// assert_eq!(numbers, 4); // sent for each product with blocks of 4
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Neighbour {
    /// The neighbour's rank.
    pub rank: usize,
    /// Range of [`Halo::send`] that the neighbour needs.
    pub send: Range<usize>,
    /// Range of the ghosts that the neighbour owns, counted from 0.
    pub receive: Range<usize>,
}

impl Halo {
    /// Returns the reverse halo, which sends ghosts to their owners. There the ghosts are own nodes, numbered
    /// from `first` on. The values that arrive are in the order of this halo's `send`.
    #[doc(hidden)]
    pub fn reversed(&self, first: usize) -> Halo {
        let back =
            |n: &Neighbour| Neighbour { rank: n.rank, send: n.receive.clone(), receive: n.send.clone() };
        let own = first + self.ghosts;
        let neighbours = self.neighbours.iter().map(back).collect();
        Halo { own, ghosts: self.send.len(), neighbours, send: (first as u32..own as u32).collect() }
    }

    /// Builds the halo of rows that use `columns`, and the matching numbering. Collective.
    ///
    /// `own` are the global numbers of this rank's block rows: any set in any order, disjoint over the ranks,
    /// possibly empty. `columns` are the global block columns of its rows over all terms; they may repeat and
    /// include own numbers. Local numbers are those of [`Halo`], with own nodes in the given order.
    ///
    /// # Errors
    /// The same on every rank: a number that two ranks own or one lists twice, a column that no rank owns,
    /// more nodes than 32-bit local numbers can count, a rank that is gone.
    pub fn build(
        comm: &dyn Communicator,
        own: &[u64],
        columns: impl IntoIterator<Item = u64>,
    ) -> Result<(Halo, Numbering)> {
        let (me, size) = (comm.rank(), comm.size());
        let numbering = agree(comm, Numbering::of_own(me, own))?;
        let mut needed: Vec<u64> = columns.into_iter().filter(|&g| numbering.local(g).is_none()).collect();
        needed.sort_unstable();
        needed.dedup();

        let owners = owners(comm, own, &needed)?;
        let orphan = needed.iter().zip(&owners).find(|(_, owner)| **owner == NOBODY);
        agree(
            comm,
            match orphan {
                Some((g, _)) => Err(Error::invalid(format!(
                    "a row of rank {me} uses block column {g}, but no rank owns block row {g}; assign \
                     each block row to a rank"
                ))),
                None => Ok(()),
            },
        )?;

        let mut from: Vec<Vec<u64>> = vec![Vec::new(); size];
        for (&g, &owner) in needed.iter().zip(&owners) {
            from[owner as usize].push(g);
        }
        // Each owner learns which nodes to send, in the order in which the receiver expects them.
        let wanted = comm.all_to_all(from.iter().map(|list| pack(list)).collect())?;
        let to: Vec<Vec<u32>> = wanted
            .iter()
            .map(|bytes| unpack(bytes).map(|g| numbering.local(g).expect("the directory named its owner")))
            .map(Iterator::collect)
            .collect();
        let ghosts: Vec<u64> = from.iter().flatten().copied().collect();
        let counts: Vec<usize> = from.iter().map(Vec::len).collect();
        let numbering = agree(comm, numbering.with_ghosts(me, ghosts))?;
        Ok((Halo::new(own.len(), &counts, to), numbering))
    }

    /// Returns the halo of the parts of nodes that have `parts` each.
    #[doc(hidden)]
    pub fn in_parts(&self, parts: usize) -> Halo {
        let range = |range: &Range<usize>| range.start * parts..range.end * parts;
        let neighbours = self.neighbours.iter();
        let neighbours =
            neighbours.map(|n| Neighbour { rank: n.rank, send: range(&n.send), receive: range(&n.receive) });
        let part = |&node: &u32| (0..parts as u32).map(move |part| node * parts as u32 + part);
        Halo {
            own: self.own * parts,
            ghosts: self.ghosts * parts,
            neighbours: neighbours.collect(),
            send: self.send.iter().flat_map(part).collect(),
        }
    }

    /// Creates a halo from the number of ghosts that each rank owns and the own nodes that each rank needs.
    #[doc(hidden)]
    pub fn new(own: usize, receive: &[usize], to: Vec<Vec<u32>>) -> Halo {
        let mut halo = Halo { own, ghosts: receive.iter().sum(), ..Halo::default() };
        let mut first = 0;
        for (rank, (&count, nodes)) in receive.iter().zip(to).enumerate() {
            if count == 0 && nodes.is_empty() {
                continue;
            }
            let begin = halo.send.len();
            halo.send.extend(nodes);
            let send = begin..halo.send.len();
            halo.neighbours.push(Neighbour { rank, send, receive: first..first + count });
            first += count;
        }
        halo
    }
}

/// The owner of every number in `needed`, [`NOBODY`] if it has none. Collective.
fn owners(comm: &dyn Communicator, own: &[u64], needed: &[u64]) -> Result<Vec<u64>> {
    if let Some(runs) = runs(comm, own)? {
        return Ok(needed.iter().map(|&g| owner_in(&runs, g)).collect());
    }
    let size = comm.size();
    let keeper = |g: u64| (g / RUN % size as u64) as usize;
    // To each directory rank: the count of registered numbers, those numbers, then the queried ones.
    let mut messages: Vec<Vec<u64>> = vec![vec![0]; size];
    for &g in own {
        messages[keeper(g)].push(g);
    }
    messages.iter_mut().for_each(|l| l[0] = l.len() as u64 - 1);
    for &g in needed {
        messages[keeper(g)].push(g);
    }
    let messages = comm.all_to_all(messages.iter().map(|l| pack(l)).collect())?;

    let mut directory: HashMap<u64, u64, Mixed> = HashMap::default();
    let mut twice = Ok(());
    let mut asked: Vec<Vec<u64>> = Vec::with_capacity(size);
    for (rank, message) in messages.iter().enumerate() {
        let mut numbers = unpack(message);
        let registered = numbers.next().unwrap_or(0);
        for g in numbers.by_ref().take(registered as usize) {
            if let Some(other) = directory.insert(g, rank as u64) {
                twice = Err(owned_twice(g, other, rank as u64));
            }
        }
        asked.push(numbers.collect());
    }
    agree(comm, twice)?;
    let answer = |asked: &Vec<u64>| -> Vec<u64> {
        asked.iter().map(|g| directory.get(g).copied().unwrap_or(NOBODY)).collect()
    };
    let answers = comm.all_to_all(asked.iter().map(|asked| pack(&answer(asked))).collect())?;
    // Answers arrive in the order of the queries to each directory rank.
    let mut answers: Vec<_> = answers.iter().map(|bytes| unpack(bytes)).collect();
    Ok(needed.iter().map(|&g| answers[keeper(g)].next().unwrap_or(NOBODY)).collect())
}

/// A rank's consecutive numbers, and the rank.
type Run = (Range<u64>, u64);

/// Returns the runs of all ranks in ascending order, without empty ones; `None` if the numbers of a rank are
/// not consecutive. Collective.
fn runs(comm: &dyn Communicator, own: &[u64]) -> Result<Option<Vec<Run>>> {
    let run = if own.is_empty() { Some(0..0) } else { RowNumbers::List(own).as_run() };
    let mine = run.map_or([0, 0, 0], |run| [1, run.start, run.end]);
    let all = gather(comm, &pack(&mine))?;
    let mut runs: Vec<Run> = Vec::with_capacity(all.len());
    for (rank, message) in all.iter().enumerate() {
        let words: Vec<u64> = unpack(message).collect();
        match words[..] {
            [1, start, end] if start < end => runs.push((start..end, rank as u64)),
            [1, ..] => {}
            _ => return Ok(None),
        }
    }
    runs.sort_unstable_by_key(|(run, rank)| (run.start, *rank));
    match runs.windows(2).find(|pair| pair[1].0.start < pair[0].0.end) {
        None => Ok(Some(runs)),
        Some(pair) => Err(owned_twice(pair[1].0.start, pair[0].1, pair[1].1)),
    }
}

/// Returns the owner of a number, or [`NOBODY`].
fn owner_in(runs: &[Run], g: u64) -> u64 {
    let next = runs.partition_point(|(run, _)| run.start <= g);
    runs[..next].last().filter(|(run, _)| g < run.end).map_or(NOBODY, |(_, rank)| *rank)
}

fn owned_twice(g: u64, one: u64, other: u64) -> Error {
    let (first, second) = (one.min(other), one.max(other));
    Error::invalid(format!(
        "block row {g} is owned by rank {first} and by rank {second}; give each row to one rank"
    ))
}

fn pack(numbers: &[u64]) -> Vec<u8> {
    numbers.iter().flat_map(|g| g.to_le_bytes()).collect()
}

fn unpack(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.as_chunks().0.iter().map(|&word| u64::from_le_bytes(word))
}

/// Global and local numbers of one rank's own nodes and ghosts.
///
/// # Examples
/// ```
/// use krylith::comm::Team;
/// use krylith::{comm::Communicator, partition::Halo};
/// let ghosts = Team::run(2, |comm| {
///     let own = [10 + comm.rank() as u64];
///     let (_, numbering) = Halo::build(&*comm, &own, [10, 11])?;
///     assert_eq!(numbering.local(own[0]), Some(0)); // own rows come first
///     Ok(numbering.global()[1])
/// })?;
/// assert_eq!(ghosts, [11, 10]);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Numbering {
    global: Vec<u64>,
    /// The numbers of the first local nodes, if they are consecutive; empty otherwise.
    run: Range<u64>,
    /// Local numbers of the others.
    local: HashMap<u64, u32, Mixed>,
}

/// A fast hash of row numbers. It need not resist numbers that are chosen to collide.
type Mixed = BuildHasherDefault<Mixer>;

#[derive(Debug, Clone, Default)]
struct Mixer(u64);

impl Hasher for Mixer {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(u64::from(byte)));
    }
    fn write_u64(&mut self, number: u64) {
        // The upper half of a product depends on all bits of the number; the table uses both ends of a hash.
        let product = u128::from(self.0 ^ number) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product >> 64) as u64 ^ product as u64;
    }
    fn finish(&self) -> u64 {
        self.0
    }
}

impl Numbering {
    /// The local number of a global one, if it is this rank's own or a ghost.
    #[inline]
    pub fn local(&self, global: u64) -> Option<u32> {
        if self.run.contains(&global) {
            return Some((global - self.run.start) as u32);
        }
        self.local.get(&global).copied()
    }

    /// The global number of each local one: own nodes, then ghosts.
    pub fn global(&self) -> &[u64] {
        &self.global
    }

    /// The numbering of own nodes and ghosts with these global numbers.
    #[doc(hidden)]
    pub fn of(rank: usize, global: &[u64]) -> Result<Self> {
        Numbering::default().extended(rank, global)
    }

    fn of_own(rank: usize, own: &[u64]) -> Result<Self> {
        Numbering::default().extended(rank, own)
    }

    fn with_ghosts(self, rank: usize, ghosts: Vec<u64>) -> Result<Self> {
        self.extended(rank, &ghosts)
    }

    fn extended(mut self, rank: usize, more: &[u64]) -> Result<Self> {
        check_local(rank, self.global.len() + more.len())?;
        self.global.reserve_exact(more.len());
        if self.global.is_empty()
            && let Some(run) = RowNumbers::List(more).as_run()
        {
            self.global.extend_from_slice(more);
            self.run = run;
            return Ok(self);
        }
        self.local.reserve(more.len());
        for &g in more {
            if self.run.contains(&g) || self.local.insert(g, self.global.len() as u32).is_some() {
                return Err(Error::invalid(format!(
                    "block row {g} is given twice by rank {rank}; give it once"
                )));
            }
            self.global.push(g);
        }
        Ok(self)
    }
}

/// Fails if there are more nodes than local numbers can count.
#[doc(hidden)]
pub fn check_local(rank: usize, nodes: usize) -> Result<()> {
    if nodes > u32::MAX as usize {
        return Err(Error::invalid(format!(
            "rank {rank} has {nodes} own and ghost block rows, more than 32-bit numbers can count; use more \
             ranks"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::Team;

    /// Builds the halos of nine nodes in a ring over three ranks. Rank 2 owns the given numbers.
    fn ring(last: [u64; 3]) -> Vec<(Vec<u64>, Halo)> {
        let own: [&[u64]; 3] = [&[0, 1, 2, 3], &[4, 5, 6], &last];
        let built = Team::run(3, |comm| {
            let own = own[comm.rank()];
            let nodes = own.iter().filter(|g| **g < 9);
            let columns = nodes.flat_map(|g| [(g + 8) % 9, *g, (g + 1) % 9]);
            let (halo, numbering) = Halo::build(&*comm, own, columns)?;
            assert!(numbering.global().iter().zip(0..).all(|(g, i)| numbering.local(*g) == Some(i)));
            assert_eq!(numbering.local(100), None);
            Ok((numbering.global()[halo.own..].to_vec(), halo))
        });
        built.unwrap()
    }

    #[test]
    fn runs_and_the_directory_find_the_same_owners() {
        // 9 and 30 are numbers that no row uses.
        let (runs, scattered) = ([7, 8, 9], [30, 7, 8]);
        for (one, other) in ring(runs).iter().zip(&ring(scattered)) {
            assert_eq!((&one.0, one.1.own, one.1.ghosts), (&other.0, other.1.own, other.1.ghosts));
            let ranks = |halo: &Halo| halo.neighbours.iter().map(|n| n.rank).collect::<Vec<_>>();
            assert_eq!(ranks(&one.1), ranks(&other.1));
        }
    }

    #[test]
    fn numbers_that_two_ranks_own_or_none_are_named() {
        let fails = |own: [&'static [u64]; 2], column: u64| {
            let built = Team::run(2, |comm| {
                Halo::build(&*comm, own[comm.rank()], [own[comm.rank()][0], column]).map(drop)
            });
            built.unwrap_err().to_string()
        };
        for own in [[&[0, 1, 2][..], &[2, 3]], [&[2, 0, 1], &[3, 2]]] {
            let error = fails(own, 0);
            assert!(error.contains("block row 2 is owned by rank 0 and by rank 1"), "{error}");
        }
        for own in [[&[0, 1][..], &[2, 3]], [&[1, 0], &[3, 2]]] {
            let error = fails(own, 7);
            assert!(error.contains("no rank owns block row 7"), "{error}");
        }
    }

    #[test]
    fn owners_are_found_in_runs() {
        assert_eq!(owner_in(&[(2..4, 1), (8..9, 0)], 3), 1);
        assert_eq!([1, 4, 9].map(|g| owner_in(&[(2..4, 1), (8..9, 0)], g)), [NOBODY; 3]);
    }
}

//! The rows of each subdomain with its overlap, and the halos that bring the vectors and blocks of these
//! rows.
//!
//! A layer of overlap consists of the nodes that are columns of the rows in the layer before. A rank knows
//! the columns of its own rows. It requests the rows of other ranks from their owners, layer by layer. After
//! δ rounds it knows the rows of all nodes in its subdomains.

use crate::Error;
use crate::Result;
use crate::comm::{Communicator, agree};
use crate::matrix::Bsr;
use crate::operator::Terms;
use crate::partition::{Halo, RowNumbers, Subdomains};
use rayon::prelude::*;
use std::collections::{HashMap, HashSet};

/// Smallest number of rows for a thread.
const ROWS: usize = 4096;

/// Result of [`find`]. Nodes are numbered with own nodes first, followed by imported nodes by owner and
/// number.
pub(super) struct Overlap {
    /// Halo of vectors: the nodes imported from other ranks.
    pub nodes: Halo,
    /// Halo of blocks: the blocks of imported rows that some subdomain uses.
    pub blocks: Halo,
    /// Global number of each node.
    pub global: Vec<u64>,
    /// Nodes of each subdomain by global number.
    pub rows: Vec<Vec<u32>>,
    /// For each imported node, the columns that some subdomain uses, as nodes, and the positions of their
    /// blocks.
    pub imported: Vec<Vec<(u32, u32)>>,
    own: usize,
    /// The node of each ghost of the matrix, or `u32::MAX` if no subdomain uses it.
    ghosts: Vec<u32>,
}

impl Overlap {
    /// Returns the node of a column in an own row, or `u32::MAX`.
    pub fn node(&self, column: u32) -> u32 {
        match (column as usize).checked_sub(self.own) {
            None => column,
            Some(ghost) => self.ghosts[ghost],
        }
    }
}

/// A node of another rank. Such nodes follow own nodes in the order in which the search meets them, ghosts
/// first.
struct Far {
    global: u64,
    owner: usize,
    /// The row, once it is fetched: the number of its first block on its owner, and its columns.
    row: Option<(u64, Vec<u32>)>,
}

/// The part of the system that this rank knows.
struct Known<'a> {
    a: &'a Bsr,
    own: usize,
    rank: usize,
    /// Global number of each own node.
    numbers: Vec<u64>,
    /// The same numbers with their nodes, ascending.
    places: Vec<(u64, u32)>,
    far: Vec<Far>,
    named: HashMap<u64, u32>,
}

/// Grows every subdomain by `layers` layers. Collective; an error occurs on every rank.
pub(super) fn find(
    comm: &dyn Communicator,
    terms: &Terms,
    numbers: Option<RowNumbers>,
    subdomains: &Subdomains,
    layers: usize,
) -> Result<Overlap> {
    let mut known = Known::new(comm, terms, numbers)?;
    let own = known.own;
    let mut label = vec![0u32; own];
    for p in 0..subdomains.count() {
        subdomains.rows(p).iter().for_each(|&i| label[i as usize] = p as u32);
    }
    let mut overlap: Vec<HashSet<u32>> = vec![HashSet::new(); subdomains.count()];
    let mut fronts: Vec<Option<Vec<u32>>> = vec![None; subdomains.count()];
    for _ in 0..layers {
        fronts = fronts
            .par_iter()
            .enumerate()
            .map(|(p, front)| {
                let rows = front.as_deref().unwrap_or_else(|| subdomains.rows(p));
                let inside = |j: u32| {
                    label.get(j as usize).is_some_and(|&q| q as usize == p) || overlap[p].contains(&j)
                };
                let outside = |&i: &u32| known.row(i).iter().copied().filter(|&j| !inside(j));
                // The search is parallel inside a subdomain, because a rank may have only one.
                let mut new: Vec<u32> = rows.par_iter().with_min_len(ROWS).flat_map_iter(outside).collect();
                new.par_sort_unstable();
                new.dedup();
                Some(new)
            })
            .collect();
        let new = || fronts.iter().flatten().flatten().copied();
        overlap.iter_mut().zip(&fronts).for_each(|(all, new)| all.extend(new.iter().flatten()));
        if comm.size() > 1 {
            let mut wanted: Vec<u32> = new().filter(|&j| known.is_unknown(j)).collect();
            wanted.sort_unstable();
            wanted.dedup();
            known.fetch(comm, &wanted)?;
        }
    }
    known.finish(comm, terms, subdomains, &label, overlap)
}

impl<'a> Known<'a> {
    fn new(comm: &dyn Communicator, terms: &'a Terms, numbers: Option<RowNumbers>) -> Result<Self> {
        let (a, own, rank) = (&*terms.terms[0].1, terms.block_rows(), comm.rank());
        let numbers: Vec<u64> = (0..own).map(|i| numbers.map_or(i as u64, |numbers| numbers.at(i))).collect();
        let mut known =
            Self { a, own, rank, numbers, places: Vec::new(), far: Vec::new(), named: HashMap::new() };
        if let Some(halo) = &terms.halo
            && comm.size() > 1
        {
            known.places = known.numbers.iter().copied().zip(0..).collect();
            known.places.sort_unstable();
            // Numbers below 2⁵³ are exact in f64.
            let all: Vec<f64> = known.numbers.iter().map(|&g| g as f64).collect();
            let all = halo.with_ghosts(comm, 1, &all)?;
            for neighbour in &halo.neighbours {
                for &global in &all[own..][neighbour.receive.clone()] {
                    known.name(global as u64, neighbour.rank);
                }
            }
        }
        Ok(known)
    }

    /// Returns the global number of a node.
    fn global(&self, node: u32) -> u64 {
        match (node as usize).checked_sub(self.own) {
            None => self.numbers[node as usize],
            Some(far) => self.far[far].global,
        }
    }

    /// Returns the own node with a global number.
    fn place(&self, global: u64) -> Result<u32> {
        let at = self.places.binary_search_by_key(&global, |place| place.0);
        at.map(|at| self.places[at].1).map_err(|_| {
            Error::invalid(format!(
                "rank {} was asked for block row {global}, which it does not own",
                self.rank
            ))
        })
    }

    /// Returns the node of another rank with a global number.
    fn name(&mut self, global: u64, owner: usize) -> u32 {
        let new = (self.own + self.far.len()) as u32;
        let node = *self.named.entry(global).or_insert(new);
        if node == new {
            self.far.push(Far { global, owner, row: None });
        }
        node
    }

    /// Returns the columns of a known row.
    fn row(&self, node: u32) -> &[u32] {
        match (node as usize).checked_sub(self.own) {
            None => &self.a.col()[self.a.row_ptr()[node as usize]..self.a.row_ptr()[node as usize + 1]],
            Some(far) => self.far[far].row.as_ref().map_or(&[], |row| &row.1),
        }
    }

    fn is_unknown(&self, node: u32) -> bool {
        (node as usize).checked_sub(self.own).is_some_and(|far| self.far[far].row.is_none())
    }

    /// Requests the rows of nodes from their owners. Collective.
    fn fetch(&mut self, comm: &dyn Communicator, wanted: &[u32]) -> Result<()> {
        let mut asked: Vec<Vec<u32>> = vec![Vec::new(); comm.size()];
        for &node in wanted {
            asked[self.far[node as usize - self.own].owner].push(node);
        }
        let messages = asked.iter().map(|nodes| pack(nodes.iter().map(|&node| self.global(node)))).collect();
        let questions = comm.all_to_all(messages)?;
        let answers = questions.iter().map(|message| {
            let mut answer = Vec::new();
            for global in unpack(message) {
                let node = self.place(global)?;
                let columns = self.row(node);
                answer.extend([columns.len() as u64, self.a.row_ptr()[node as usize] as u64]);
                for &j in columns {
                    let owner =
                        (j as usize).checked_sub(self.own).map_or(self.rank, |far| self.far[far].owner);
                    answer.extend([self.global(j), owner as u64]);
                }
            }
            Ok(pack(answer.into_iter()))
        });
        let answers = agree(comm, answers.collect::<Result<Vec<_>>>())?;
        let answers = comm.all_to_all(answers)?;
        let read = asked.iter().zip(&answers).try_for_each(|(nodes, answer)| {
            let mut words = unpack(answer);
            let mut next = || {
                words.next().ok_or_else(|| Error::invalid("a row received from another rank is truncated"))
            };
            for &node in nodes {
                let (count, first) = (next()?, next()?);
                let mut columns = Vec::with_capacity(count as usize);
                for _ in 0..count {
                    let (global, owner) = (next()?, next()? as usize);
                    columns.push(match owner == self.rank {
                        true => self.place(global)?,
                        false => self.name(global, owner),
                    });
                }
                self.far[node as usize - self.own].row = Some((first, columns));
            }
            Ok(())
        });
        agree(comm, read)
    }

    /// Numbers the imported nodes and notifies their owners. Collective.
    fn finish(
        self,
        comm: &dyn Communicator,
        terms: &Terms,
        subdomains: &Subdomains,
        label: &[u32],
        overlap: Vec<HashSet<u32>>,
    ) -> Result<Overlap> {
        let (own, size) = (self.own, comm.size());
        let mut used: Vec<Vec<bool>> =
            self.far.iter().map(|far| vec![false; far.row.as_ref().map_or(0, |row| row.1.len())]).collect();
        let mut imported: Vec<u32> = Vec::new();
        for (p, all) in overlap.iter().enumerate() {
            for &node in all.iter().filter(|&&node| node as usize >= own) {
                imported.push(node);
                for (k, &j) in self.row(node).iter().enumerate() {
                    let inside = label.get(j as usize).is_some_and(|&q| q as usize == p) || all.contains(&j);
                    used[node as usize - own][k] |= inside;
                }
            }
        }
        let far = |node: u32| &self.far[node as usize - own];
        imported.sort_unstable_by_key(|&node| (far(node).owner, far(node).global));
        imported.dedup();
        let mut name = vec![u32::MAX; self.far.len()];
        imported.iter().enumerate().for_each(|(k, &node)| name[node as usize - own] = (own + k) as u32);
        let named = |j: u32| (j as usize).checked_sub(own).map_or(j, |far| name[far]);

        // Sort blocks by owner and by number on that rank, which may differ from the order of rows.
        let mut blocks: Vec<(usize, u64, u32, usize)> = Vec::new();
        for &node in &imported {
            let used = &used[node as usize - own];
            let first = far(node).row.as_ref().map_or(0, |row| row.0);
            let used = used.iter().enumerate().filter(|(_, used)| **used);
            blocks.extend(used.map(|(k, _)| (far(node).owner, first + k as u64, node, k)));
        }
        blocks.sort_unstable();
        let stored = self.a.blocks();
        let too_many = stored + blocks.len() >= u32::MAX as usize;
        agree(comm, if too_many { Err(many_blocks(stored + blocks.len())) } else { Ok(()) })?;
        let mut rows = vec![Vec::new(); imported.len()];
        for (k, &(_, _, node, column)) in blocks.iter().enumerate() {
            let columns = self.row(node);
            rows[named(node) as usize - own].push((named(columns[column]), (stored + k) as u32));
        }

        let (mut nodes_from, mut blocks_from) = (vec![0; size], vec![0; size]);
        imported.iter().for_each(|&node| nodes_from[far(node).owner] += 1);
        blocks.iter().for_each(|block| blocks_from[block.0] += 1);
        let (nodes_to, blocks_to) = if size > 1 {
            let mut messages: Vec<Vec<u64>> = nodes_from.iter().map(|&count| vec![count as u64]).collect();
            imported.iter().for_each(|&node| messages[far(node).owner].push(far(node).global));
            blocks.iter().for_each(|block| messages[block.0].push(block.1));
            let messages = comm.all_to_all(messages.into_iter().map(|l| pack(l.into_iter())).collect())?;
            let read = messages.iter().map(|message| {
                let mut words = unpack(message);
                let count = words.next().unwrap_or(0) as usize;
                let nodes: Vec<u32> =
                    words.by_ref().take(count).map(|global| self.place(global)).collect::<Result<_>>()?;
                Ok((nodes, words.map(|block| block as u32).collect::<Vec<u32>>()))
            });
            agree(comm, read.collect::<Result<Vec<_>>>())?.into_iter().unzip()
        } else {
            (vec![Vec::new(); size], vec![Vec::new(); size])
        };

        let mut all: Vec<Vec<u32>> = Vec::with_capacity(overlap.len());
        for (p, overlap) in overlap.iter().enumerate() {
            all.push(subdomains.rows(p).iter().chain(overlap).copied().collect());
        }
        all.par_iter_mut().for_each(|rows| {
            rows.par_sort_unstable_by_key(|&node| self.global(node));
            rows.iter_mut().for_each(|node| *node = named(*node));
        });
        let ghosts = terms.halo.as_ref().map_or(0, |halo| halo.ghosts);
        let global = self.numbers.iter().copied().chain(imported.iter().map(|&node| far(node).global));
        Ok(Overlap {
            nodes: Halo::new(own, &nodes_from, nodes_to),
            blocks: Halo::new(stored, &blocks_from, blocks_to),
            global: global.collect(),
            rows: all,
            imported: rows,
            own,
            ghosts: (0..ghosts).map(|ghost| name.get(ghost).copied().unwrap_or(u32::MAX)).collect(),
        })
    }
}

fn many_blocks(blocks: usize) -> Error {
    Error::Unsupported(format!(
        "own and imported rows have {blocks} blocks; the most per rank is 2³² − 2: use more ranks"
    ))
}

fn pack(numbers: impl Iterator<Item = u64>) -> Vec<u8> {
    numbers.flat_map(u64::to_le_bytes).collect()
}

fn unpack(bytes: &[u8]) -> impl Iterator<Item = u64> + '_ {
    bytes.as_chunks().0.iter().map(|&word| u64::from_le_bytes(word))
}

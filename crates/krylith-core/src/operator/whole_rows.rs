//! A distributed matrix as the rows that its ranks need for products with whole vectors.
//!
//! No rank ever holds the whole matrix. Each rank has its own rows, and sends those that a mode assigns to
//! other ranks. A whole vector is the own vectors of all ranks, one after the other, so block rows are
//! numbered in that order. Each rank has the row pointers of the whole matrix, which take as much memory as a
//! vector, and every rank cuts them alike.

use super::Terms;
use super::cuts::{Cuts, Mode, OnHost, Run};
use crate::comm::{Channel, Communicator, Message, agree, gather};
use crate::matrix::{Bsr, Csr};
use crate::threads;
use crate::{Error, Result};
use std::ops::Range;

/// Entries before a run of rows keep their offset modulo this number, on which the order of sums may depend
/// (`device/cuda/replicated.rs`). Rows that every rank computes then have the same bits on all ranks.
const ALIGNMENT: usize = 8;

/// This rank's rows of a distributed matrix, as scalar rows with columns of the whole matrix.
pub(crate) struct WholeRows {
    /// The first scalar row of each rank, and the number of all rows.
    first: Vec<usize>,
    /// Row pointers of the whole matrix.
    row_ptr: Vec<usize>,
    /// Own entries, row by row.
    col: Vec<u32>,
    values: Vec<f64>,
}

impl WholeRows {
    /// Collects the rows of all ranks. `terms` are this rank's rows of one matrix. Collective; every rank
    /// gets the same error.
    pub fn new(comm: &dyn Communicator, terms: &Terms) -> Result<Self> {
        let (block, own) = (terms.block(), terms.block_rows());
        let counts = gather(comm, &(own as u64).to_le_bytes())?;
        let counts = counts.iter().map(|bytes| bytes.as_slice().try_into().map_or(0, u64::from_le_bytes));
        let mut nodes = vec![0];
        counts.for_each(|count| nodes.push(nodes[nodes.len() - 1] + count as usize));
        let first: Vec<usize> = nodes.iter().map(|node| node * block).collect();
        let all = first[comm.size()];
        if all > u32::MAX as usize {
            return Err(Error::Unsupported(format!(
                "the system has {all} unknowns; products with whole vectors support fewer than 2^32"
            )));
        }
        // Numbers of nodes are exact in f64.
        let mine: Vec<f64> = (nodes[comm.rank()]..nodes[comm.rank() + 1]).map(|node| node as f64).collect();
        let columns = match terms.halo() {
            None => mine,
            Some(halo) => halo.with_ghosts(comm, 1, &mine)?,
        };
        let (lengths, col, values) = agree(comm, scalar_rows(terms, &columns))?;
        let lengths: Vec<u8> = lengths.iter().flat_map(|length| length.to_le_bytes()).collect();
        let mut row_ptr = Vec::with_capacity(all + 1);
        row_ptr.push(0);
        for bytes in gather(comm, &lengths)? {
            for length in bytes.as_chunks::<4>().0 {
                row_ptr.push(row_ptr[row_ptr.len() - 1] + u32::from_le_bytes(*length) as usize);
            }
        }
        if row_ptr.len() != all + 1 {
            return Err(Error::Internal("a rank sent the lengths of other rows than its own".into()));
        }
        Ok(Self { first, row_ptr, col, values })
    }

    /// Returns the number of rows of the whole matrix.
    pub fn rows(&self) -> usize {
        self.row_ptr.len() - 1
    }

    /// Returns the mean row length.
    pub fn mean_row(&self) -> f64 {
        self.row_ptr[self.rows()] as f64 / self.rows().max(1) as f64
    }

    /// Cuts the rows for a mode. Every rank gets the same cuts.
    pub fn cut(&self, mode: &Mode, ranks: usize) -> Result<Cuts> {
        Cuts::find(&OnHost(&self.row_ptr), mode, ranks)
    }

    /// Sends rows to the ranks that compute them. Returns a matrix with this rank's rows, in which all other
    /// rows are empty or meaningless, and the cuts with this rank's entries in it. Collective; every rank
    /// gets the same error.
    pub fn place(&self, comm: &dyn Communicator, cuts: &Cuts) -> Result<(Csr, Cuts)> {
        let (rank, size) = (comm.rank(), comm.size());
        let own = self.first[rank]..self.first[rank + 1];
        let base = self.row_ptr[own.start];
        let out = (0..size).map(|q| {
            let mut message = Vec::new();
            if q == rank {
                return message;
            }
            for rows in needed(cuts, q).iter().filter_map(|rows| overlap(rows, &own)) {
                let entries = self.row_ptr[rows.start] - base..self.row_ptr[rows.end] - base;
                message.extend(self.col[entries.clone()].iter().flat_map(|j| j.to_le_bytes()));
                message.extend(self.values[entries].iter().flat_map(|v| v.to_le_bytes()));
            }
            message
        });
        let received = comm.all_to_all(out.collect())?;
        agree(comm, self.assembled(rank, cuts, &received))
    }

    /// Assembles this rank's rows from its own and the received ones.
    fn assembled(&self, rank: usize, cuts: &Cuts, received: &[Vec<u8>]) -> Result<(Csr, Cuts)> {
        let n = self.rows();
        let mut row_ptr = vec![0; n + 1];
        let (mut col, mut values) = (Vec::new(), Vec::new());
        let mut at = vec![0; received.len()];
        let short = || Error::Internal("a rank sent fewer entries than its rows have".into());
        let (mut local, mut end) = (cuts.clone(), 0);
        for rows in needed(cuts, rank) {
            // Rows between two runs are not used, so they can hold the entries that align the next run.
            row_ptr[end + 1..=rows.start].fill(col.len());
            if rows.start > 0 && n >= ALIGNMENT {
                let (offset, here) = (self.row_ptr[rows.start] % ALIGNMENT, col.len() % ALIGNMENT);
                let padding = if rows.start > end { (ALIGNMENT + offset - here) % ALIGNMENT } else { 0 };
                col.extend(0..padding as u32);
                values.resize(col.len(), 0.0);
                row_ptr[rows.start] = col.len();
            }
            for (q, bytes) in received.iter().enumerate() {
                let theirs = self.first[q]..self.first[q + 1];
                let Some(part) = overlap(&rows, &theirs) else { continue };
                let count = self.row_ptr[part.end] - self.row_ptr[part.start];
                if q == rank {
                    let from = self.row_ptr[part.start] - self.row_ptr[self.first[rank]];
                    col.extend_from_slice(self.col.get(from..from + count).ok_or_else(short)?);
                    values.extend_from_slice(self.values.get(from..from + count).ok_or_else(short)?);
                    continue;
                }
                let (middle, last) = (at[q] + 4 * count, at[q] + 12 * count);
                let (j, v) = (bytes.get(at[q]..middle), bytes.get(middle..last));
                let (j, v) = j.zip(v).ok_or_else(short)?;
                col.extend(j.as_chunks().0.iter().map(|j| u32::from_le_bytes(*j)));
                values.extend(v.as_chunks().0.iter().map(|v| f64::from_le_bytes(*v)));
                at[q] = last;
            }
            let shift = col.len() - (self.row_ptr[rows.end] - self.row_ptr[rows.start]);
            for i in rows.start..=rows.end {
                row_ptr[i] = self.row_ptr[i] - self.row_ptr[rows.start] + shift;
            }
            end = rows.end;
        }
        row_ptr[end..].fill(col.len());
        for run in local.stages.iter_mut().flat_map(|stage| &mut stage.runs[rank]) {
            run.entries = row_ptr[run.rows.start]..row_ptr[run.rows.end];
        }
        Ok((Csr::new(n, n, row_ptr, col, values)?, local))
    }
}

/// Returns the runs of rows that a rank computes, in ascending order and without overlap.
fn needed(cuts: &Cuts, rank: usize) -> Vec<Range<usize>> {
    let mut all: Vec<Range<usize>> = cuts.of_rank(rank).map(|run: &Run| run.rows.clone()).collect();
    all.sort_by_key(|rows| rows.start);
    all
}

/// Returns the common part of two ranges, if there is one.
fn overlap(a: &Range<usize>, b: &Range<usize>) -> Option<Range<usize>> {
    let (start, end) = (a.start.max(b.start), a.end.min(b.end));
    (start < end).then_some(start..end)
}

/// Returns the lengths, columns and values of the scalar rows of one matrix. `columns` has the global number
/// of each block column.
fn scalar_rows(terms: &Terms, columns: &[f64]) -> Result<(Vec<u32>, Vec<u32>, Vec<f64>)> {
    const ROWS: usize = 1 << 12;
    let [(c, a)] = &terms.terms[..] else {
        return Err(Error::Internal("products with whole vectors of a sum of two terms".into()));
    };
    let (b, n, factor) = (a.block(), a.block_rows(), c[(0, 0)]);
    // All host arrays are fetched by this thread, because a matrix may be in device memory.
    let (row_ptr, cols, blocks) = (a.row_ptr(), a.col(), a.values());
    let part = |chunk: usize| {
        let (mut lengths, mut col, mut values) = (Vec::new(), Vec::new(), Vec::new());
        let mut order: Vec<(u32, usize)> = Vec::new();
        for i in chunk * ROWS..n.min((chunk + 1) * ROWS) {
            order.clear();
            let entries = row_ptr[i]..row_ptr[i + 1];
            order.extend(entries.map(|p| (columns[cols[p] as usize] as u32, p)));
            order.sort_unstable();
            for row in 0..b {
                lengths.push((order.len() * b) as u32);
                for &(j, p) in &order {
                    col.extend((0..b as u32).map(|q| j * b as u32 + q));
                    let from = (p * b + row) * b;
                    values.extend(blocks[from..from + b].iter().map(|v| factor * v));
                }
            }
        }
        (lengths, col, values)
    };
    let parts = threads::collect(0..n.div_ceil(ROWS), 1, &part);
    let (mut lengths, mut col, mut values) = (Vec::new(), Vec::new(), Vec::new());
    for (own_lengths, own_col, own_values) in parts {
        lengths.extend(own_lengths);
        col.extend(own_col);
        values.extend(own_values);
    }
    Ok((lengths, col, values))
}

/// The own parts of a vector that all ranks send to each other, so that each has the whole vector.
pub(crate) struct Collecting {
    channel: Box<dyn Channel>,
    /// Own numbers, and their place in a whole vector.
    own: Range<usize>,
}

impl Collecting {
    /// Prepares the exchange for vectors with these rows. Collective.
    pub fn new(comm: &dyn Communicator, rows: &WholeRows) -> Result<Self> {
        let rank = comm.rank();
        let own = rows.first[rank]..rows.first[rank + 1];
        let others = (0..comm.size()).filter(|q| *q != rank);
        let messages = others.map(|q| {
            let before = if q > rank { own.len() } else { 0 };
            let receive = rows.first[q] - before..rows.first[q + 1] - before;
            Message { rank: q, send: 0..own.len(), receive }
        });
        let channel = comm.channel(&messages.collect::<Vec<_>>())?;
        Ok(Self { channel, own })
    }

    /// Returns the place of own numbers in a whole vector.
    pub fn own(&self) -> Range<usize> {
        self.own.clone()
    }

    /// Copies the own numbers of all ranks to a whole vector. Collective; allocates nothing.
    pub fn collect(&mut self, own: &[f64], whole: &mut [f64]) -> Result<()> {
        self.channel.outgoing()[..own.len()].copy_from_slice(own);
        self.channel.start()?;
        let others = self.channel.finish()?;
        let (before, after) = others.split_at(self.own.start);
        whole[..self.own.start].copy_from_slice(before);
        whole[self.own.clone()].copy_from_slice(own);
        whole[self.own.end..].copy_from_slice(after);
        Ok(())
    }
}

/// Returns the diagonal blocks of all ranks, as a block-diagonal matrix; zero for a missing block.
/// Collective; every rank gets the same error.
pub(crate) fn whole_diagonal(comm: &dyn Communicator, terms: &Terms) -> Result<Bsr> {
    let (c, a) = &terms.terms[0];
    let (b, factor) = (a.block(), c[(0, 0)]);
    let mut own = Vec::with_capacity(8 * a.block_rows() * b * b);
    for i in 0..a.block_rows() {
        match a.diagonal_block(i) {
            Some(block) => own.extend(block.iter().flat_map(|v| (factor * v).to_le_bytes())),
            None => own.resize(own.len() + 8 * b * b, 0),
        }
    }
    let all = gather(comm, &own)?;
    let values: Vec<f64> =
        all.iter().flat_map(|bytes| bytes.as_chunks().0).map(|v| f64::from_le_bytes(*v)).collect();
    let n = values.len() / (b * b);
    agree(comm, Bsr::new(b, n, n, (0..=n).collect(), (0..n as u32).collect(), values))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::Team;
    use crate::partition::{Partition, split};

    #[test]
    fn each_rank_gets_the_rows_that_it_computes() {
        let n = 60;
        let length = |i: usize| if i == 20 { n } else { 1 + i % 5 };
        let entries: Vec<(u32, u32, f64)> = (0..n)
            .flat_map(|i| (0..length(i)).map(move |k| (i as u32, ((i + k) % n) as u32, (i * n + k) as f64)))
            .collect();
        let a = Csr::from_triplets(n, n, &entries).unwrap();
        let terms = Terms::csr(&a).unwrap();
        let owner = (0..n).map(|i| [0, 0, 1, 2][i * 4 / n]).collect();
        let parts = split(&terms, &Partition::new(owner, 3).unwrap()).unwrap();
        let modes = ["nz", "2nz", "nz:4", "lra:0.3", "lra+rc:0.3/0.2", "lra+rc:0.2/0.8", "alone"];
        let placed = Team::run(3, |comm| {
            let rows = WholeRows::new(&*comm, &parts[comm.rank()].terms)?;
            assert_eq!((rows.rows(), rows.mean_row()), (n, a.nonzeros() as f64 / n as f64));
            let mut collecting = Collecting::new(&*comm, &rows)?;
            let (own, mut whole) = (collecting.own(), vec![0.0; n]);
            let numbers: Vec<f64> = own.map(|i| i as f64).collect();
            collecting.collect(&numbers, &mut whole)?;
            assert!(whole.iter().enumerate().all(|(i, &v)| v == i as f64));
            for mode in modes {
                let mode: Mode = mode.parse()?;
                let cuts = rows.cut(&mode, 3)?;
                assert_eq!(cuts, Cuts::of(&a, &mode, 3)?);
                let (local, own) = rows.place(&*comm, &cuts)?;
                for (run, whole) in own.of_rank(comm.rank()).zip(cuts.of_rank(comm.rank())) {
                    assert_eq!((&run.rows, run.entries.len()), (&whole.rows, whole.entries.len()));
                    assert_eq!(run.entries.start % ALIGNMENT, whole.entries.start % ALIGNMENT, "{mode}");
                    assert_eq!(local.values()[run.entries.clone()], a.values()[whole.entries.clone()]);
                    run.rows.clone().for_each(|i| assert_eq!(local.row(i), a.row(i), "{mode}, row {i}"));
                }
            }
            Ok(())
        });
        placed.unwrap();
    }

    #[test]
    fn diagonal_blocks_are_collected_in_the_order_of_ranks() {
        // Rank 0 has node 1, and rank 1 has nodes 0 and 2.
        let col = vec![0, 0, 1, 2];
        let a = Bsr::new(1, 3, 3, vec![0, 1, 3, 4], col, vec![1.0, 9.0, 2.0, 3.0]).unwrap();
        let parts = split(&Terms::bsr(&a), &Partition::new(vec![1, 0, 1], 2).unwrap()).unwrap();
        let all = Team::run(2, |comm| whole_diagonal(&*comm, &parts[comm.rank()].terms));
        all.unwrap().iter().for_each(|diagonal| assert_eq!(diagonal.values(), [2.0, 1.0, 3.0]));
    }
}

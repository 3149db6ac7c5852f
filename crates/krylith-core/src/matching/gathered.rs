//! Gathers the whole matrix on every rank, so that each computes the same matching, independent of the number
//! of ranks.

use crate::comm::wire::{Array, MessageBuilder, Reader};
use crate::comm::{Communicator, agree, gather};
use crate::matrix::{Csr, Dense};
use crate::operator::Terms;
use crate::partition::{RowBlocks, RowNumbers, Rows, distribute};
use crate::{Error, Result};
use rayon::prelude::*;

/// Largest number of unknowns for a matching on several ranks, each of which gets the whole matrix: some GB
/// per rank.
pub(crate) const MOST: usize = 1 << 22;

/// Returns the global numbers of own unknowns.
pub(crate) fn unknowns(numbers: RowNumbers, block: usize) -> Vec<u64> {
    let node = |i: usize| (0..block as u64).map(move |c| numbers.at(i) * block as u64 + c);
    (0..numbers.len()).flat_map(node).collect()
}

/// Gathers the matrix of all ranks' rows. This rank has the rows `own` with numbers `rows`; their columns are
/// own nodes and ghosts of `terms`. Collective.
///
/// # Errors
/// A rank that is gone or failed; rows that do not form a matrix.
pub(crate) fn whole(comm: &dyn Communicator, terms: &Terms, own: &Csr, rows: &[u64]) -> Result<Csr> {
    let block = terms.block();
    // Numbers are exact as f64: there are at most `MOST`.
    let nodes: Vec<f64> = rows.iter().step_by(block).map(|&row| (row / block as u64) as f64).collect();
    let nodes = match &terms.halo {
        Some(halo) => halo.with_ghosts(comm, 1, &nodes)?,
        None => nodes,
    };
    let column = |j: u32| nodes[j as usize / block] as u32 * block as u32 + j % block as u32;
    let mut message = MessageBuilder::new(8 + 12 * (rows.len() + own.nonzeros()));
    message.put(&[rows.len() as u64]);
    message.put(rows);
    message.put_lengths(own.row_ptr());
    message.put_each(own.col(), &column);
    message.put(own.values());
    let messages = gather(comm, &message.bytes())?;
    agree(comm, assembled(&messages))
}

/// Rows received from a rank.
struct Sent<'a> {
    numbers: Vec<u64>,
    lengths: Vec<u32>,
    col: Array<'a, u32>,
    values: Array<'a, f64>,
}

impl<'a> Sent<'a> {
    fn read((rank, message): (usize, &'a Vec<u8>)) -> Result<Self> {
        let mut from = Reader::new(message, rank);
        let rows = from.take::<u64>(1)?[0] as usize;
        let numbers = from.take(rows)?;
        let (lengths, entries) = from.lengths(rows)?;
        Ok(Self { numbers, lengths, col: from.array(entries)?, values: from.array(entries)? })
    }

    /// Iterates over the number and the length of each row.
    fn rows(&self) -> impl Iterator<Item = (usize, usize)> {
        self.numbers.iter().zip(&self.lengths).map(|(&row, &length)| (row as usize, length as usize))
    }
}

/// Assembles the rows of all ranks by their numbers.
fn assembled(messages: &[Vec<u8>]) -> Result<Csr> {
    let wrong = |rank: usize| {
        Error::invalid(format!(
            "matching: the rows of rank {rank} do not form one matrix with those of the other ranks"
        ))
    };
    let sent: Vec<Sent> = messages.iter().enumerate().map(Sent::read).collect::<Result<_>>()?;
    let n = sent.iter().map(|own| own.numbers.len()).sum::<usize>();
    let mut row_ptr = vec![0; n + 1];
    for (rank, own) in sent.iter().enumerate() {
        for (row, length) in own.rows() {
            *row_ptr.get_mut(row + 1).ok_or_else(|| wrong(rank))? = length;
        }
    }
    (0..n).for_each(|i| row_ptr[i + 1] += row_ptr[i]);
    let mut entries = vec![(0, 0.0); row_ptr[n]];
    for (rank, own) in sent.iter().enumerate() {
        let mut at = 0;
        for (row, length) in own.rows() {
            // If two ranks have the same row, its length is that of the last rank.
            let to = &mut entries[row_ptr[row]..row_ptr[row + 1]];
            if to.len() != length {
                return Err(wrong(rank));
            }
            to.iter_mut().zip(at..).for_each(|(to, p)| *to = (own.col.at(p), own.values.at(p)));
            at += length;
        }
    }
    let mut rest = &mut entries[..];
    let row = |ends: &[usize]| {
        let (row, after) = std::mem::take(&mut rest).split_at_mut(ends[1] - ends[0]);
        rest = after;
        row
    };
    let mut rows: Vec<_> = row_ptr.windows(2).map(row).collect();
    rows.par_iter_mut().for_each(|row| row.sort_unstable_by_key(|entry| entry.0));
    let (col, values) = entries.into_iter().unzip();
    Csr::new(n, n, row_ptr, col, values)
}

/// Extracts these rows of a whole matrix, with their halo. Collective.
pub(crate) fn part(comm: &dyn Communicator, whole: &Csr, numbers: &[u64]) -> Result<Terms<'static>> {
    let terms = vec![(Dense::identity(1), RowBlocks::of_rows(whole, numbers))];
    Ok(distribute(comm, Rows { numbers: numbers.to_vec(), block: 1, terms })?.terms)
}

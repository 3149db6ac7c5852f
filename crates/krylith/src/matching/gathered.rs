//! The whole matrix on every rank, so that each finds the same matching, whatever the ranks.

use crate::comm::{Communicator, agree, gather};
use crate::matrix::{Csr, Dense};
use crate::operator::Terms;
use crate::partition::{RowBlocks, RowNumbers, Rows, distribute, to_bytes, with_ghosts};
use crate::{Error, Result};
use rayon::prelude::*;

/// Unknowns of a system of several ranks, each of which gets the whole of it, at most: some GB a rank.
pub(crate) const MOST: usize = 1 << 22;

/// Numbers of own unknowns in the whole system.
pub(crate) fn unknowns(numbers: RowNumbers, block: usize) -> Vec<u64> {
    let node = |i: usize| (0..block as u64).map(move |c| numbers.at(i) * block as u64 + c);
    (0..numbers.len()).flat_map(node).collect()
}

/// The matrix of all ranks' rows, of which this rank has `own`, whose numbers are `rows`, in columns of own nodes and ghosts of `terms`. Collective.
///
/// # Errors
/// A rank that is gone or failed; rows that do not make a matrix.
pub(crate) fn whole(comm: &dyn Communicator, terms: &Terms, own: &Csr, rows: &[u64]) -> Result<Csr> {
    let block = terms.block();
    // Numbers are exact as f64: there are at most `MOST`.
    let nodes: Vec<f64> = rows.iter().step_by(block).map(|&row| (row / block as u64) as f64).collect();
    let nodes = match &terms.halo {
        Some(halo) => with_ghosts(comm, halo, 1, &nodes)?,
        None => nodes,
    };
    let column = |j: u32| nodes[j as usize / block] * block as f64 + (j as usize % block) as f64;
    let mut letter = Vec::with_capacity(1 + 2 * (rows.len() + own.nonzeros()));
    letter.push(rows.len() as f64);
    letter.extend(rows.iter().map(|&row| row as f64));
    letter.extend(own.row_ptr().windows(2).map(|w| (w[1] - w[0]) as f64));
    letter.extend(own.col().iter().map(|&j| column(j)));
    letter.extend_from_slice(own.values());
    let letters = gather(comm, &to_bytes(&letter))?;
    agree(comm, assembled(&letters))
}

/// Rows as a rank sent them.
struct Sent {
    /// Numbers and lengths.
    rows: Vec<(usize, usize)>,
    col: Vec<u32>,
    values: Vec<f64>,
}

impl Sent {
    fn read(letter: &[u8]) -> Option<Self> {
        let numbers: Vec<f64> = letter.as_chunks::<8>().0.iter().map(|v| f64::from_le_bytes(*v)).collect();
        let (&count, rest) = numbers.split_first()?;
        let (rows, rest) = rest.split_at_checked(count as usize)?;
        let (lengths, rest) = rest.split_at_checked(count as usize)?;
        let rows: Vec<_> =
            rows.iter().zip(lengths).map(|(row, length)| (*row as usize, *length as usize)).collect();
        let (col, values) = rest.split_at_checked(rows.iter().map(|row| row.1).sum())?;
        let col = col.iter().map(|&j| j as u32).collect();
        Some(Self { rows, col, values: values.to_vec() })
    }
}

/// The rows of all ranks, by their numbers.
fn assembled(letters: &[Vec<u8>]) -> Result<Csr> {
    let wrong = |rank: usize| {
        Error::invalid(format!("rows of rank {rank}, to be matched with columns: not those of a system"))
    };
    let read = |(rank, letter): (usize, &Vec<u8>)| Sent::read(letter).ok_or_else(|| wrong(rank));
    let sent: Vec<Sent> = letters.iter().enumerate().map(read).collect::<Result<_>>()?;
    let n = sent.iter().map(|own| own.rows.len()).sum::<usize>();
    let mut row_ptr = vec![0; n + 1];
    for (rank, own) in sent.iter().enumerate() {
        for &(row, length) in &own.rows {
            *row_ptr.get_mut(row + 1).ok_or_else(|| wrong(rank))? = length;
        }
    }
    (0..n).for_each(|i| row_ptr[i + 1] += row_ptr[i]);
    let mut entries = vec![(0, 0.0); row_ptr[n]];
    for (rank, own) in sent.iter().enumerate() {
        let mut own_entries = own.col.iter().copied().zip(own.values.iter().copied());
        for &(row, length) in &own.rows {
            // A row that two ranks have is as long as the last has it.
            let to = entries[row_ptr[row]..row_ptr[row + 1]].iter_mut();
            if to.len() != length || own.values.len() != own.col.len() {
                return Err(wrong(rank));
            }
            to.zip(&mut own_entries).for_each(|(to, entry)| *to = entry);
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

/// These rows of a whole matrix, with a halo of their own. Collective.
pub(crate) fn part(comm: &dyn Communicator, whole: &Csr, numbers: &[u64]) -> Result<Terms<'static>> {
    let mut own = RowBlocks { row_ptr: vec![0], ..RowBlocks::default() };
    for &i in numbers {
        let (col, values) = whole.row(i as usize);
        own.col.extend(col.iter().map(|&j| u64::from(j)));
        own.values.extend_from_slice(values);
        own.row_ptr.push(own.col.len());
    }
    let terms = vec![(Dense::identity(1), own)];
    Ok(distribute(comm, Rows { numbers: numbers.to_vec(), block: 1, terms })?.terms)
}

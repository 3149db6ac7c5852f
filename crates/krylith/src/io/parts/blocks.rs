//! From scalar rows to blocks: which size suits the pattern of all ranks, and the blocks of one rank.

use super::{ScalarRows, whole_numbers};
use crate::Result;
use crate::comm::{Communicator, Solo};
use crate::matrix::{Csr, MAX_BLOCK};
use crate::partition::RowBlocks;
use rayon::prelude::*;

/// Stored zeros that a block size may add, as a share of the entries there are.
const FILL: f64 = 0.2;

/// The largest block size up to [`MAX_BLOCK`] that adds at most 20 % stored zeros, and the share it adds; 1 if there is
/// none.
pub fn suited_block(a: &Csr) -> (usize, f64) {
    let found = suited(&Solo, a, a.rows());
    found.expect("nobody else is there to fail")
}

/// The same for the rows of all ranks, each of which begins and ends at a multiple of every size. Collective.
pub(super) fn suited(comm: &dyn Communicator, a: &Csr, rows: usize) -> Result<(usize, f64)> {
    let sum = |n| Ok::<usize, crate::Error>(whole_numbers(comm, &[n])?.iter().map(|n| n[0]).sum());
    let stored = sum(a.nonzeros())?;
    for b in (2..=MAX_BLOCK).rev() {
        if rows.is_multiple_of(b) && a.columns().is_multiple_of(b) {
            let added = (sum(touched(a, b))? * b * b) as f64 / stored as f64 - 1.0;
            if added <= FILL {
                return Ok((b, added));
            }
        }
    }
    Ok((1, 0.0))
}

/// Blocks that a b×b grid over the matrix touches.
fn touched(a: &Csr, b: usize) -> usize {
    let count = |columns: &mut Vec<u32>, i| {
        block_columns(a, b, i, columns);
        columns.len()
    };
    (0..a.rows() / b).into_par_iter().map_init(Vec::new, count).sum()
}

/// The block columns of block row `i`, ascending.
fn block_columns(a: &Csr, b: usize, i: usize, columns: &mut Vec<u32>) {
    columns.clear();
    for row in i * b..(i + 1) * b {
        for &j in a.row(row).0 {
            let j = j / b as u32;
            if columns.last() != Some(&j) {
                columns.push(j);
            }
        }
    }
    columns.sort_unstable();
    columns.dedup();
}

/// Groups own rows into b×b blocks; entries that are absent become stored zeros.
pub(super) fn blocks(own: ScalarRows, b: usize) -> RowBlocks {
    let a = own.matrix;
    let mut out = RowBlocks { row_ptr: vec![0], ..Default::default() };
    let mut columns = Vec::new();
    for i in 0..a.rows() / b {
        block_columns(&a, b, i, &mut columns);
        let begin = out.values.len();
        out.values.resize(begin + columns.len() * b * b, 0.0);
        for r in 0..b {
            let (col, values) = a.row(i * b + r);
            let mut at = 0;
            for (&j, &v) in col.iter().zip(values) {
                while columns[at] < j / b as u32 {
                    at += 1;
                }
                out.values[begin + at * b * b + r * b + j as usize % b] = v;
            }
        }
        out.col.extend(columns.iter().map(|&j| u64::from(j)));
        out.row_ptr.push(out.col.len());
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn block_sizes_are_found() {
        let mut dense = Vec::new();
        for i in 0..12u32 {
            for j in 0..12u32 {
                if i / 3 == j / 3 {
                    dense.push((i, j, 1.0));
                }
            }
        }
        let a = Csr::from_triplets(12, 12, &dense).unwrap();
        assert_eq!(suited_block(&a), (3, 0.0));
        let diagonal: Vec<_> = (0..12).map(|i| (i, i, 1.0)).collect();
        assert_eq!(suited_block(&Csr::from_triplets(12, 12, &diagonal).unwrap()), (1, 0.0));
    }
}

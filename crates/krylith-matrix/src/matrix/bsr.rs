//! Point-block matrices: compressed block rows of dense b×b blocks.

use super::storage::Storage;
use super::{Csr, check_columns, check_pattern, first_not_finite};
use crate::memory::Numbers;
use crate::{Error, Result};
use rayon::prelude::*;
use std::ops::Range;

/// A sparse matrix of dense row-major b×b blocks, stored by block rows (BSR, PETSc's BAIJ).
///
/// A clone shares the arrays until the values of one of the two change. Arrays that were given in the memory
/// of a GPU ([`from_arrays`](Self::from_arrays)) stay there, and the host gets a copy at its first use of
/// them.
///
/// # Examples
/// ```
/// use krylith::matrix::Bsr;
/// // Two nodes with velocities u and v each; node 1 depends on node 0.
/// let (own, other) = ([4.0, 1.0, 1.0, 4.0], [-1.0, 0.0, 0.0, -1.0]); // by rows
/// let a = Bsr::from_block_triplets(2, 2, 2, &[(0, 0, own), (1, 0, other), (1, 1, own)])?;
/// assert_eq!((a.block(), a.blocks(), a.rows()), (2, 3, 4));
/// assert_eq!(a.diagonal_block(1), Some(&own[..]));
/// assert_eq!(a.to_csr().get(3, 1), -1.0); // v of node 1, v of node 0
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Bsr {
    block: usize,
    storage: Storage,
}

impl Bsr {
    /// Creates a matrix from the arrays of the format; `values` holds b² numbers per block, row by row.
    ///
    /// # Errors
    /// Lengths that disagree; a block size of 0; columns out of range, unsorted or repeated; values that are
    /// not finite.
    pub fn new(
        block: usize,
        block_rows: usize,
        block_columns: usize,
        row_ptr: Vec<usize>,
        col: Vec<u32>,
        values: Vec<f64>,
    ) -> Result<Self> {
        if block == 0 {
            return Err(Error::invalid("BSR matrix: the block size must be at least 1"));
        }
        check_columns("BSR matrix", block_columns)?;
        check_pattern("BSR matrix", block_rows, block_columns, &row_ptr, &col)?;
        if values.len() != col.len() * block * block {
            return Err(Error::invalid(format!(
                "BSR matrix: {} values for {} blocks of {block}×{block}; expected {}",
                values.len(),
                col.len(),
                col.len() * block * block
            )));
        }
        let storage = Storage::host(block_rows, block_columns, row_ptr, col, values);
        let matrix = Self { block, storage };
        matrix.check_finite()?;
        Ok(matrix)
    }

    /// Groups a scalar matrix into b×b blocks; absent entries become stored zeros.
    ///
    /// # Errors
    /// The number of rows or columns is not a multiple of `block`.
    pub fn from_csr(a: &Csr, block: usize) -> Result<Self> {
        let (rows, columns) = (a.rows(), a.columns());
        Self::check_divides(rows, columns, block)?;
        if block == 1 {
            return Ok(Self { block, storage: a.storage().clone() });
        }
        if let Some(storage) = a.storage().grouped(block)? {
            return Ok(Self { block, storage });
        }
        let (n, m, bb) = (rows / block, columns / block, block * block);
        // Both passes go over runs of block rows on all threads.
        const ROWS: usize = 1024;
        let runs: Vec<Range<usize>> =
            (0..n.div_ceil(ROWS)).map(|r| r * ROWS..n.min((r + 1) * ROWS)).collect();
        let (mut row_ptr, mut full) = (vec![0usize; n + 1], vec![false; n]);
        let counts = row_ptr[1..].par_chunks_mut(ROWS).zip(full.par_chunks_mut(ROWS)).zip(&runs);
        counts.for_each_init(Vec::new, |next, ((counts, full), run)| {
            for ((i, count), full) in run.clone().zip(counts).zip(full) {
                match full_columns(a, i, block) {
                    Some(columns) => (*count, *full) = (columns.len() / block, true),
                    None => for_block_columns(a, i, block, next, |_| *count += 1),
                }
            }
        });
        (0..n).for_each(|i| row_ptr[i + 1] += row_ptr[i]);
        let (mut col, mut values) = (vec![0u32; row_ptr[n]], vec![0.0; row_ptr[n] * bb]);
        let (mut cols, mut numbers) = (&mut col[..], &mut values[..]);
        let mut pieces = Vec::with_capacity(runs.len());
        for run in runs {
            let blocks = row_ptr[run.end] - row_ptr[run.start];
            let (own, others) = std::mem::take(&mut cols).split_at_mut(blocks);
            let (own_numbers, other_numbers) = std::mem::take(&mut numbers).split_at_mut(blocks * bb);
            (cols, numbers) = (others, other_numbers);
            pieces.push((run, own, own_numbers));
        }
        pieces.into_par_iter().for_each_init(Vec::new, |next, (run, cols, numbers)| {
            let mut blocks = cols.iter_mut().zip(numbers.chunks_exact_mut(bb));
            for i in run {
                if full[i] {
                    let first = &a.row_ptr()[i * block..(i + 1) * block];
                    let columns = &a.col()[first[0]..a.row_ptr()[i * block + 1]];
                    for (at, (j, (col, to))) in columns.iter().step_by(block).zip(&mut blocks).enumerate() {
                        *col = j / block as u32;
                        for (to, first) in to.chunks_exact_mut(block).zip(first) {
                            let from = &a.values()[first + at * block..][..block];
                            to.iter_mut().zip(from).for_each(|(to, v)| *to = *v);
                        }
                    }
                    continue;
                }
                for_block_columns(a, i, block, next, |(j, parts)| {
                    let Some((col, to)) = blocks.next() else { return };
                    *col = j;
                    for (to, part) in to.chunks_exact_mut(block).zip(parts) {
                        part.clone().for_each(|p| to[a.col()[p] as usize % block] = a.values()[p]);
                    }
                });
            }
        });
        Self::new(block, n, m, row_ptr, col, values)
    }

    /// Checks that a block size divides rows and columns.
    #[doc(hidden)]
    pub fn check_divides(rows: usize, columns: usize, block: usize) -> Result<()> {
        if block > 0 && rows % block == 0 && columns % block == 0 {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "a {rows}×{columns} matrix cannot be cut into {block}×{block} blocks: \
             give a block size that divides both"
        )))
    }

    /// Converts to scalar rows; stored zeros inside the blocks remain stored.
    pub fn to_csr(&self) -> Csr {
        let (b, bb) = (self.block, self.block * self.block);
        let mut row_ptr = Vec::with_capacity(self.block_rows() * b + 1);
        row_ptr.push(0);
        let mut col = Vec::with_capacity(self.values().len());
        let mut values = Vec::with_capacity(self.values().len());
        for i in 0..self.block_rows() {
            for r in 0..b {
                for p in self.row_ptr()[i]..self.row_ptr()[i + 1] {
                    for c in 0..b {
                        col.push(self.col()[p] * b as u32 + c as u32);
                        values.push(self.values()[p * bb + r * b + c]);
                    }
                }
                row_ptr.push(col.len());
            }
        }
        Csr::new(self.rows(), self.columns(), row_ptr, col, values)
            .expect("blocks of a valid matrix are valid")
    }

    /// Block size b.
    #[inline]
    pub fn block(&self) -> usize {
        self.block
    }
    /// Number of block rows n.
    #[inline]
    pub fn block_rows(&self) -> usize {
        self.storage.rows
    }
    /// Number of block columns.
    #[inline]
    pub fn block_columns(&self) -> usize {
        self.storage.columns
    }
    /// Number of scalar rows N = n·b.
    #[inline]
    pub fn rows(&self) -> usize {
        self.block_rows() * self.block
    }
    /// Number of scalar columns.
    #[inline]
    pub fn columns(&self) -> usize {
        self.block_columns() * self.block
    }
    /// Number of stored blocks.
    #[inline]
    pub fn blocks(&self) -> usize {
        self.storage.entries
    }
    /// Number of stored numbers: b² per block.
    #[inline]
    pub fn stored(&self) -> usize {
        self.blocks() * self.block * self.block
    }
    /// `block_rows + 1` offsets, counted in blocks.
    #[inline]
    pub fn row_ptr(&self) -> &[usize] {
        self.storage.row_ptr()
    }
    /// Block column of each block.
    #[inline]
    pub fn col(&self) -> &[u32] {
        self.storage.col()
    }
    /// The values: b² numbers per block, row by row.
    #[inline]
    pub fn values(&self) -> &[f64] {
        self.storage.values()
    }
    /// The values, for changes in place under the same pattern.
    #[inline]
    pub fn values_mut(&mut self) -> &mut [f64] {
        self.storage.values_mut()
    }

    /// The b² numbers of block `p`.
    #[inline]
    pub fn block_values(&self, p: usize) -> &[f64] {
        let bb = self.block * self.block;
        &self.values()[p * bb..(p + 1) * bb]
    }

    /// The diagonal block of block row `i`, if it is stored.
    #[inline]
    pub fn diagonal_block(&self, i: usize) -> Option<&[f64]> {
        self.diagonal_position(i).map(|p| self.block_values(p))
    }

    /// The position of the diagonal block of block row `i` among the stored blocks, if it is stored.
    #[inline]
    pub fn diagonal_position(&self, i: usize) -> Option<usize> {
        let row = &self.col()[self.row_ptr()[i]..self.row_ptr()[i + 1]];
        row.binary_search(&(i as u32)).ok().map(|p| self.row_ptr()[i] + p)
    }

    /// True if both matrices have the same block pattern.
    pub fn same_pattern(&self, other: &Bsr) -> bool {
        self.block == other.block && self.storage.same_pattern(&other.storage)
    }

    #[doc(hidden)]
    #[inline]
    pub fn storage(&self) -> &Storage {
        &self.storage
    }

    #[doc(hidden)]
    pub fn storage_mut(&mut self) -> &mut Storage {
        &mut self.storage
    }

    /// The same matrix with its arrays in another storage.
    #[doc(hidden)]
    pub fn with_storage(&self, storage: Storage) -> Self {
        Self { block: self.block, storage }
    }

    /// Creates a matrix from arrays that were checked elsewhere, or are right by construction.
    #[doc(hidden)]
    pub fn from_storage(block: usize, storage: Storage) -> Self {
        Self { block, storage }
    }

    /// The values on the device if they are there, else on the host.
    #[doc(hidden)]
    #[inline]
    pub fn numbers(&self) -> Numbers<'_> {
        self.storage.numbers()
    }

    /// Fails on the first value that is NaN or infinite, and names it.
    pub fn check_finite(&self) -> Result<()> {
        match first_not_finite(self.values()) {
            None => Ok(()),
            Some(e) => {
                let (b, bb) = (self.block, self.block * self.block);
                let p = e / bb;
                let i = self.row_ptr().partition_point(|&q| q <= p) - 1;
                Err(Error::NotFinite {
                    what: "BSR matrix".into(),
                    row: i * b + e % bb / b,
                    column: self.col()[p] as usize * b + e % b,
                    value: self.values()[e],
                })
            }
        }
    }
}

/// The arrays of a matrix on the host. Loops fetch them once, because each access to the matrix checks
/// whether they are on the host.
#[derive(Clone, Copy)]
#[doc(hidden)]
pub struct Arrays<'a> {
    /// Start of each row, and the end of the last.
    pub row_ptr: &'a [usize],
    /// Block columns.
    pub col: &'a [u32],
    /// b² numbers per block.
    pub values: &'a [f64],
}

impl<'a> Arrays<'a> {
    /// The arrays of `a`.
    #[inline]
    pub fn of(a: &'a Bsr) -> Self {
        Self { row_ptr: a.row_ptr(), col: a.col(), values: a.values() }
    }

    /// The arrays of a scalar matrix.
    #[inline]
    pub fn of_csr(a: &'a Csr) -> Self {
        Self { row_ptr: a.row_ptr(), col: a.col(), values: a.values() }
    }

    /// The blocks of row `i`.
    #[inline]
    pub fn row(&self, i: usize) -> Range<usize> {
        self.row_ptr[i]..self.row_ptr[i + 1]
    }

    /// −1 if the diagonal entry of row `i` of a scalar matrix is negative, else 1.
    #[inline]
    pub fn sign(&self, i: usize) -> f64 {
        let (col, values) = (&self.col[self.row(i)], &self.values[self.row(i)]);
        let negative = |(&j, &v): (&u32, &f64)| (j as usize == i) & (v < 0.0);
        if col.iter().zip(values).fold(false, |is, entry| is | negative(entry)) { -1.0 } else { 1.0 }
    }
}

/// Returns the columns of the scalar rows of block row `i` if they are the same in all of them and fill whole
/// blocks, which is usual and fast.
fn full_columns(a: &Csr, i: usize, block: usize) -> Option<&[u32]> {
    let row = |r: usize| &a.col()[a.row_ptr()[r]..a.row_ptr()[r + 1]];
    let (first, b) = (row(i * block), block as u32);
    let whole = |columns: &[u32]| {
        columns[0].is_multiple_of(b) && columns.iter().zip(columns[0]..).all(|(&j, next)| j == next)
    };
    let fills = first.len().is_multiple_of(block) && first.chunks_exact(block).all(whole);
    (fills && (1..block).all(|r| row(i * block + r) == first)).then_some(first)
}

/// Calls `each` for the block columns of block row `i` of a scalar matrix, from left to right, with the range
/// of entries of each scalar row in that block column. `parts` is scratch.
fn for_block_columns(
    a: &Csr,
    i: usize,
    block: usize,
    parts: &mut Vec<Range<usize>>,
    mut each: impl FnMut((u32, &[Range<usize>])),
) {
    let (row_ptr, col, b) = (a.row_ptr(), a.col(), block as u32);
    let rows = i * block..(i + 1) * block;
    parts.clear();
    parts.extend(rows.clone().map(|r| row_ptr[r]..row_ptr[r]));
    let ends = &row_ptr[rows.start + 1..=rows.end];
    loop {
        let first =
            parts.iter().zip(ends).filter(|(part, end)| part.end < **end).map(|(part, _)| col[part.end]);
        let Some(j) = first.min().map(|j| j / b) else { return };
        for (part, &end) in parts.iter_mut().zip(ends) {
            part.start = part.end;
            part.end += col[part.end..end].iter().take_while(|&&c| c / b == j).count();
        }
        each((j, parts));
    }
}

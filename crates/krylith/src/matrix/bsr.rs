//! Point-block matrices: compressed block rows of dense b×b blocks.

use super::storage::Storage;
use super::{Csr, check_columns, check_pattern, first_not_finite};
use crate::memory::Numbers;
use crate::{Error, Result};

/// A sparse matrix of dense row-major b×b blocks, stored by block rows (BSR, PETSc's BAIJ).
///
/// A clone shares the arrays until one of the two gets other values. Arrays that were given in the memory of a GPU
/// ([`from_arrays`](Self::from_arrays)) stay there: they come to the host when they are asked for there.
#[derive(Debug, Clone, PartialEq)]
pub struct Bsr {
    block: usize,
    storage: Storage,
}

impl Bsr {
    /// Takes the arrays of the format; `values` holds b² numbers a block, row by row.
    ///
    /// # Errors
    /// Lengths that disagree, a block size of 0, columns out of range, unsorted or repeated, values not finite.
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
                "BSR matrix: {} values for {} blocks of {block}×{block}",
                values.len(),
                col.len()
            )));
        }
        let storage = Storage::host(block_rows, block_columns, row_ptr, col, values);
        let matrix = Self { block, storage };
        matrix.check_finite()?;
        Ok(matrix)
    }

    /// Groups a scalar matrix into b×b blocks; entries that are absent become stored zeros.
    ///
    /// # Errors
    /// Rows or columns that `block` does not divide.
    pub fn from_csr(a: &Csr, block: usize) -> Result<Self> {
        let (rows, columns) = (a.rows(), a.columns());
        Self::check_divides(rows, columns, block)?;
        if block == 1 {
            return Ok(Self { block, storage: a.storage().clone() });
        }
        let (n, m, bb) = (rows / block, columns / block, block * block);
        let mut row_ptr = Vec::with_capacity(n + 1);
        row_ptr.push(0);
        let mut col: Vec<u32> = Vec::new();
        let mut values: Vec<f64> = Vec::new();
        let mut slot = vec![usize::MAX; m]; // where block column j of this row is stored
        for i in 0..n {
            let begin = col.len();
            for r in 0..block {
                col.extend(a.row(i * block + r).0.iter().filter_map(|&j| {
                    let j = j as usize / block;
                    (std::mem::replace(&mut slot[j], 0) == usize::MAX).then_some(j as u32)
                }));
            }
            col[begin..].sort_unstable();
            for (p, &j) in col[begin..].iter().enumerate() {
                slot[j as usize] = begin + p;
            }
            values.resize(col.len() * bb, 0.0);
            for r in 0..block {
                let (c, v) = a.row(i * block + r);
                for (&j, &v) in c.iter().zip(v) {
                    let (j, c) = (j as usize / block, j as usize % block);
                    values[slot[j] * bb + r * block + c] = v;
                }
            }
            for &j in &col[begin..] {
                slot[j as usize] = usize::MAX;
            }
            row_ptr.push(col.len());
        }
        Self::new(block, n, m, row_ptr, col, values)
    }

    /// Refuses a block size that does not divide rows and columns.
    pub(crate) fn check_divides(rows: usize, columns: usize, block: usize) -> Result<()> {
        if block > 0 && rows % block == 0 && columns % block == 0 {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "a {rows}×{columns} matrix cannot be cut into {block}×{block} blocks: \
             give a block size that divides both"
        )))
    }

    /// The same matrix by scalar rows; stored zeros inside the blocks stay stored.
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
    pub fn block(&self) -> usize {
        self.block
    }
    /// Block rows n.
    pub fn block_rows(&self) -> usize {
        self.storage.rows
    }
    /// Block columns.
    pub fn block_columns(&self) -> usize {
        self.storage.columns
    }
    /// Scalar rows N = n·b.
    pub fn rows(&self) -> usize {
        self.block_rows() * self.block
    }
    /// Scalar columns.
    pub fn columns(&self) -> usize {
        self.block_columns() * self.block
    }
    /// Stored blocks.
    pub fn blocks(&self) -> usize {
        self.storage.entries
    }
    /// Stored numbers: b² a block.
    pub fn stored(&self) -> usize {
        self.blocks() * self.block * self.block
    }
    /// `block_rows + 1` offsets, counted in blocks.
    pub fn row_ptr(&self) -> &[usize] {
        self.storage.row_ptr()
    }
    /// Block column of each block.
    pub fn col(&self) -> &[u32] {
        self.storage.col()
    }
    /// b² numbers a block, row by row.
    pub fn values(&self) -> &[f64] {
        self.storage.values()
    }
    /// Values, to be changed in place under the same pattern.
    pub fn values_mut(&mut self) -> &mut [f64] {
        self.storage.values_mut()
    }

    /// The b² numbers of block `p`.
    pub fn block_values(&self, p: usize) -> &[f64] {
        let bb = self.block * self.block;
        &self.values()[p * bb..(p + 1) * bb]
    }

    /// The diagonal block of block row `i`, if it is stored.
    pub fn diagonal_block(&self, i: usize) -> Option<&[f64]> {
        self.diagonal_position(i).map(|p| self.block_values(p))
    }

    /// The number of the diagonal block of block row `i`, if it is stored.
    pub fn diagonal_position(&self, i: usize) -> Option<usize> {
        let row = &self.col()[self.row_ptr()[i]..self.row_ptr()[i + 1]];
        row.binary_search(&(i as u32)).ok().map(|p| self.row_ptr()[i] + p)
    }

    /// True when both matrices have the same block pattern.
    pub fn same_pattern(&self, other: &Bsr) -> bool {
        self.block == other.block && self.storage.same_pattern(&other.storage)
    }

    pub(crate) fn storage(&self) -> &Storage {
        &self.storage
    }

    /// The same matrix with its arrays elsewhere.
    #[cfg(feature = "cuda")]
    pub(crate) fn with_storage(&self, storage: Storage) -> Self {
        Self { block: self.block, storage }
    }

    /// A matrix whose arrays were checked where they lie, or are right by construction.
    pub(crate) fn from_storage(block: usize, storage: Storage) -> Self {
        Self { block, storage }
    }

    /// Its values on the device where it was placed, else on the host.
    pub(crate) fn numbers(&self) -> Numbers<'_> {
        self.storage.numbers()
    }

    /// Names the first value that is NaN or infinite.
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

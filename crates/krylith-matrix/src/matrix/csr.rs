//! Compressed sparse rows.

use super::storage::Storage;
use super::{check_columns, check_pattern, first_not_finite};
use crate::{Error, Result};

/// A sparse matrix by rows: sorted, distinct columns in each row.
///
/// A clone shares the arrays until the values of one of the two change. Arrays that were given in the memory
/// of a GPU ([`from_arrays`](Self::from_arrays)) stay there, and the host gets a copy at its first use of
/// them.
///
/// # Examples
/// ```
/// use krylith::matrix::Csr;
/// // A pipe of three cells: the flow between two neighbours enters two rows.
/// // Repeated entries are summed, as an assembly over faces leaves them.
/// let mut entries = vec![(0, 0, 1.0), (2, 2, 1.0)]; // open ends
/// for (i, j) in [(0, 1), (1, 2)] {
///     entries.extend([(i, i, 1.0), (j, j, 1.0), (i, j, -1.0), (j, i, -1.0)]);
/// }
/// let a = Csr::from_triplets(3, 3, &entries)?;
/// assert_eq!(a.row(1), (&[0, 1, 2][..], &[-1.0, 2.0, -1.0][..]));
/// // The same from arrays that an application has.
/// let (row_ptr, columns) = (vec![0, 2, 5, 7], vec![0, 1, 0, 1, 2, 1, 2]);
/// let b = Csr::new(3, 3, row_ptr, columns, vec![2.0, -1.0, -1.0, 2.0, -1.0, -1.0, 2.0])?;
/// assert_eq!(a, b);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Csr {
    storage: Storage,
}

impl Csr {
    /// Creates a matrix from the three arrays of the format.
    ///
    /// # Errors
    /// Lengths that disagree, columns out of range, unsorted or repeated, values that are not finite.
    pub fn new(
        rows: usize,
        columns: usize,
        row_ptr: Vec<usize>,
        col: Vec<u32>,
        values: Vec<f64>,
    ) -> Result<Self> {
        check_columns("CSR matrix", columns)?;
        check_pattern("CSR matrix", rows, columns, &row_ptr, &col)?;
        if values.len() != col.len() {
            return Err(Error::invalid(format!(
                "CSR matrix: {} values for {} column indices; expected one value per index",
                values.len(),
                col.len()
            )));
        }
        let matrix = Self { storage: Storage::host(rows, columns, row_ptr, col, values) };
        matrix.check_finite()?;
        Ok(matrix)
    }

    /// Builds a matrix from coordinates in any order; duplicates are summed.
    ///
    /// # Errors
    /// An index out of range, or a sum that is not finite.
    pub fn from_triplets(rows: usize, columns: usize, entries: &[(u32, u32, f64)]) -> Result<Self> {
        check_columns("CSR matrix", columns)?;
        let mut count = vec![0usize; rows + 1];
        for &(i, j, _) in entries {
            if i as usize >= rows || j as usize >= columns {
                return Err(Error::invalid(format!(
                    "entry ({i}, {j}) is outside a {rows}×{columns} matrix; rows and columns count from 0"
                )));
            }
            count[i as usize + 1] += 1;
        }
        for i in 0..rows {
            count[i + 1] += count[i];
        }
        let mut next = count.clone();
        let mut order = vec![(0u32, 0.0f64); entries.len()];
        for &(i, j, v) in entries {
            let at = &mut next[i as usize];
            order[*at] = (j, v);
            *at += 1;
        }
        let mut row_ptr = Vec::with_capacity(rows + 1);
        let (mut col, mut values) = (Vec::with_capacity(entries.len()), Vec::with_capacity(entries.len()));
        row_ptr.push(0);
        for i in 0..rows {
            let row = &mut order[count[i]..count[i + 1]];
            row.sort_by_key(|e| e.0); // stable: duplicates are summed in the order given
            let begin = col.len();
            for &(j, v) in row.iter() {
                if col.len() > begin && col[col.len() - 1] == j {
                    *values.last_mut().expect("a value beside each column") += v;
                } else {
                    col.push(j);
                    values.push(v);
                }
            }
            row_ptr.push(col.len());
        }
        Self::new(rows, columns, row_ptr, col, values)
    }

    /// Number of rows.
    #[inline]
    pub fn rows(&self) -> usize {
        self.storage.rows
    }
    /// Number of columns.
    #[inline]
    pub fn columns(&self) -> usize {
        self.storage.columns
    }
    /// Number of stored entries.
    #[inline]
    pub fn nonzeros(&self) -> usize {
        self.storage.entries
    }
    /// `rows + 1` offsets into [`col`](Self::col) and [`values`](Self::values).
    #[inline]
    pub fn row_ptr(&self) -> &[usize] {
        self.storage.row_ptr()
    }
    /// Column of each entry.
    #[inline]
    pub fn col(&self) -> &[u32] {
        self.storage.col()
    }
    /// Value of each entry.
    #[inline]
    pub fn values(&self) -> &[f64] {
        self.storage.values()
    }
    /// The values, for changes in place under the same pattern.
    #[inline]
    pub fn values_mut(&mut self) -> &mut [f64] {
        self.storage.values_mut()
    }

    /// Columns and values of row `i`.
    #[inline]
    pub fn row(&self, i: usize) -> (&[u32], &[f64]) {
        let range = self.row_ptr()[i]..self.row_ptr()[i + 1];
        (&self.col()[range.clone()], &self.values()[range])
    }

    /// The entry at (i, j), or 0 if none is stored.
    #[inline]
    pub fn get(&self, i: usize, j: usize) -> f64 {
        let (col, values) = self.row(i);
        col.binary_search(&(j as u32)).map_or(0.0, |p| values[p])
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

    /// Creates a matrix from arrays that were checked on the device that holds them.
    #[doc(hidden)]
    pub fn from_storage(storage: Storage) -> Self {
        Self { storage }
    }

    /// Fails on the first value that is NaN or infinite, and names it.
    pub fn check_finite(&self) -> Result<()> {
        match first_not_finite(self.values()) {
            None => Ok(()),
            Some(p) => Err(Error::NotFinite {
                what: "CSR matrix".into(),
                row: self.row_ptr().partition_point(|&q| q <= p) - 1,
                column: self.col()[p] as usize,
                value: self.values()[p],
            }),
        }
    }

    /// The transposed matrix.
    pub fn transpose(&self) -> Csr {
        let mut row_ptr = vec![0usize; self.columns() + 1];
        for &j in self.col() {
            row_ptr[j as usize + 1] += 1;
        }
        for j in 0..self.columns() {
            row_ptr[j + 1] += row_ptr[j];
        }
        let mut next = row_ptr.clone();
        let (mut col, mut values) = (vec![0u32; self.nonzeros()], vec![0.0; self.nonzeros()]);
        for i in 0..self.rows() {
            let (c, v) = self.row(i);
            for (&j, &v) in c.iter().zip(v) {
                let at = &mut next[j as usize];
                col[*at] = i as u32;
                values[*at] = v;
                *at += 1;
            }
        }
        Csr { storage: Storage::host(self.columns(), self.rows(), row_ptr, col, values) }
    }

    /// The matrix with rows and columns renumbered: entry (i, j) moves to (`new[i]`, `new[j]`).
    ///
    /// # Errors
    /// A matrix that is not square, or `new` that is not a permutation of its rows.
    pub fn permute(&self, new: &[u32]) -> Result<Csr> {
        let n = self.rows();
        let mut seen = vec![false; n];
        if n != self.columns() || new.len() != n {
            return Err(Error::invalid(format!(
                "cannot permute a {}×{} matrix by a permutation of length {}; expected a square matrix and \
                 one number per row",
                n,
                self.columns(),
                new.len()
            )));
        }
        for &p in new {
            if p as usize >= n || std::mem::replace(&mut seen[p as usize], true) {
                return Err(Error::invalid(format!(
                    "{p} repeats in the permutation or is out of range; expected each of 0 to {} once",
                    n - 1
                )));
            }
        }
        let mut entries = Vec::with_capacity(self.nonzeros());
        for i in 0..n {
            let (c, v) = self.row(i);
            entries.extend(c.iter().zip(v).map(|(&j, &v)| (new[i], new[j as usize], v)));
        }
        Csr::from_triplets(n, n, &entries)
    }
}

//! Diagonals: structured-grid matrices.

use super::Csr;
use crate::{Error, Result};

/// A sparse matrix by diagonals; `values[d · rows + i]` is the entry (i, i + `offsets[d]`).
///
/// Positions outside the matrix hold 0. (SciPy's `dia_array` indexes by column instead; reading converts.)
///
/// # Examples
/// ```
/// use krylith::matrix::{Csr, Dia};
/// let a = Csr::from_triplets(3, 3, &[(0, 0, 2.0), (0, 1, -1.0), (1, 1, 2.0), (1, 2, -1.0), (2, 2, 2.0)])?;
/// let d = Dia::from_csr(&a, 5)?;
/// assert_eq!(d.offsets(), [0, 1]); // the diagonal, and the one above it
/// assert_eq!(d.to_csr(), a);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Dia {
    rows: usize,
    columns: usize,
    offsets: Vec<i64>,
    values: Vec<f64>,
}

impl Dia {
    /// Creates a matrix from sorted, distinct offsets and `rows` numbers per diagonal.
    ///
    /// # Errors
    /// Lengths that disagree, unsorted offsets, values that are not finite, or values that are not 0 outside
    /// the matrix.
    pub fn new(rows: usize, columns: usize, offsets: Vec<i64>, values: Vec<f64>) -> Result<Self> {
        if values.len() != offsets.len() * rows {
            return Err(Error::invalid(format!(
                "DIA matrix: {} values for {} diagonals of {rows} rows; expected {}",
                values.len(),
                offsets.len(),
                offsets.len() * rows
            )));
        }
        if offsets.windows(2).any(|w| w[0] >= w[1]) {
            return Err(Error::invalid(
                "DIA matrix: the offsets of the diagonals must ascend, without repetition",
            ));
        }
        for (d, &o) in offsets.iter().enumerate() {
            for i in 0..rows {
                let (j, v) = (i as i64 + o, values[d * rows + i]);
                if !v.is_finite() {
                    let column = j.max(0) as usize;
                    return Err(Error::NotFinite { what: "DIA matrix".into(), row: i, column, value: v });
                }
                if v != 0.0 && (j < 0 || j >= columns as i64) {
                    return Err(Error::invalid(format!(
                        "DIA matrix: diagonal {o} holds {v} in row {i}, outside the {columns} columns; \
                         expected 0 there"
                    )));
                }
            }
        }
        Ok(Self { rows, columns, offsets, values })
    }

    /// Stores every diagonal of a sparse matrix that has an entry.
    ///
    /// # Errors
    /// More than `most` diagonals: CSR stores such a matrix better.
    pub fn from_csr(a: &Csr, most: usize) -> Result<Self> {
        let mut offsets: Vec<i64> = Vec::new();
        for i in 0..a.rows() {
            for &j in a.row(i).0 {
                let o = j as i64 - i as i64;
                if let Err(at) = offsets.binary_search(&o) {
                    offsets.insert(at, o);
                    if offsets.len() > most {
                        return Err(Error::invalid(format!(
                            "the matrix has more than {most} diagonals; store it as CSR"
                        )));
                    }
                }
            }
        }
        let mut values = vec![0.0; offsets.len() * a.rows()];
        for i in 0..a.rows() {
            let (c, v) = a.row(i);
            for (&j, &v) in c.iter().zip(v) {
                let d = offsets.binary_search(&(j as i64 - i as i64)).expect("every offset was stored");
                values[d * a.rows() + i] = v;
            }
        }
        Self::new(a.rows(), a.columns(), offsets, values)
    }

    /// Converts to rows; zeros on the diagonals are dropped.
    pub fn to_csr(&self) -> Csr {
        let (mut row_ptr, mut col, mut values) = (vec![0], Vec::new(), Vec::new());
        for i in 0..self.rows {
            for (d, &o) in self.offsets.iter().enumerate() {
                let v = self.values[d * self.rows + i];
                if v != 0.0 {
                    col.push((i as i64 + o) as u32);
                    values.push(v);
                }
            }
            row_ptr.push(col.len());
        }
        Csr::new(self.rows, self.columns, row_ptr, col, values)
            .expect("diagonals of a valid matrix are valid")
    }

    /// Number of rows.
    #[inline]
    pub fn rows(&self) -> usize {
        self.rows
    }
    /// Number of columns.
    #[inline]
    pub fn columns(&self) -> usize {
        self.columns
    }
    /// Column minus row of each stored diagonal, ascending.
    #[inline]
    pub fn offsets(&self) -> &[i64] {
        &self.offsets
    }
    /// The values: `rows` numbers per diagonal.
    #[inline]
    pub fn values(&self) -> &[f64] {
        &self.values
    }
}

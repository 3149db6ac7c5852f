//! Small dense matrices, row-major: Butcher matrices and single blocks.

use crate::{Error, Result};

/// A small dense matrix, row-major.
///
/// # Examples
/// ```
/// use krylith::matrix::Dense;
/// let mut b = Dense::new(2, 2, vec![5.0 / 12.0, -1.0 / 12.0, 3.0 / 4.0, 1.0 / 4.0])?; // Radau IIA
/// assert_eq!(b[(1, 0)], 0.75);
/// b[(0, 1)] = 0.0;
/// assert_eq!(b.values(), [5.0 / 12.0, 0.0, 0.75, 0.25]);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Dense {
    rows: usize,
    columns: usize,
    values: Vec<f64>,
}

impl Dense {
    /// Creates a matrix from `rows · columns` numbers, row by row.
    ///
    /// # Errors
    /// A length that is not `rows · columns`, or a value that is not finite.
    pub fn new(rows: usize, columns: usize, values: Vec<f64>) -> Result<Self> {
        if values.len() != rows * columns {
            return Err(Error::invalid(format!(
                "{} numbers for a {rows}×{columns} matrix; expected {}",
                values.len(),
                rows * columns
            )));
        }
        if let Some(p) = values.iter().position(|v| !v.is_finite()) {
            return Err(Error::NotFinite {
                what: "dense matrix".into(),
                row: p / columns,
                column: p % columns,
                value: values[p],
            });
        }
        Ok(Self { rows, columns, values })
    }

    /// The identity of order `n`.
    pub fn identity(n: usize) -> Self {
        let mut values = vec![0.0; n * n];
        for i in 0..n {
            values[i * n + i] = 1.0;
        }
        Self { rows: n, columns: n, values }
    }

    /// The transpose.
    ///
    /// ```
    /// use krylith::matrix::Dense;
    /// let a = Dense::new(1, 2, vec![1.0, 2.0])?;
    /// assert_eq!(a.transposed(), Dense::new(2, 1, vec![1.0, 2.0])?);
    /// # Ok::<(), krylith::Error>(())
    /// ```
    pub fn transposed(&self) -> Self {
        let (rows, columns) = (self.columns, self.rows);
        let values = (0..rows * columns).map(|e| self.values[e % columns * rows + e / columns]).collect();
        Self { rows, columns, values }
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
    /// All numbers, row by row.
    #[inline]
    pub fn values(&self) -> &[f64] {
        &self.values
    }
    /// max|aᵢⱼ|.
    #[doc(hidden)]
    pub fn largest(&self) -> f64 {
        self.values.iter().fold(0.0, |m, v| m.max(v.abs()))
    }
}

impl std::ops::Index<(usize, usize)> for Dense {
    type Output = f64;
    #[inline]
    fn index(&self, (i, j): (usize, usize)) -> &f64 {
        &self.values[i * self.columns + j]
    }
}

impl std::ops::IndexMut<(usize, usize)> for Dense {
    #[inline]
    fn index_mut(&mut self, (i, j): (usize, usize)) -> &mut f64 {
        &mut self.values[i * self.columns + j]
    }
}

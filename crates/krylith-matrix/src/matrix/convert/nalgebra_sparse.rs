//! From `nalgebra-sparse`.

use super::by_rows;
use crate::matrix::Csr;
use crate::{Error, Result};
use nalgebra_sparse::{CscMatrix, CsrMatrix};

/// ```
/// use krylith::matrix::Csr;
/// use nalgebra_sparse::{CooMatrix, CsrMatrix};
///
/// let (rows, columns) = (vec![0, 0, 1], vec![0, 1, 1]);
/// let entries = CooMatrix::try_from_triplets(2, 2, rows, columns, vec![4.0, 1.0, 2.0]).unwrap();
/// let a = Csr::try_from(&CsrMatrix::from(&entries))?;
/// assert_eq!(a.get(0, 1), 1.0);
/// # Ok::<(), krylith::Error>(())
/// ```
impl TryFrom<&CsrMatrix<f64>> for Csr {
    type Error = Error;

    fn try_from(a: &CsrMatrix<f64>) -> Result<Self> {
        let (pointers, columns) = (a.row_offsets(), a.col_indices());
        by_rows(a.nrows(), a.ncols(), |i| pointers[i]..pointers[i + 1], |p| columns[p], a.values())
    }
}

impl TryFrom<&CscMatrix<f64>> for Csr {
    type Error = Error;

    fn try_from(a: &CscMatrix<f64>) -> Result<Self> {
        let (pointers, rows) = (a.col_offsets(), a.row_indices());
        let transposed =
            by_rows(a.ncols(), a.nrows(), |j| pointers[j]..pointers[j + 1], |p| rows[p], a.values())?;
        Ok(transposed.transpose())
    }
}

//! From `faer`.

use super::by_rows;
use crate::matrix::Csr;
use crate::{Error, Result};
use faer::Index;
use faer::sparse::{SparseColMat, SparseColMatRef, SparseRowMat, SparseRowMatRef};

/// ```
/// use faer::sparse::{SparseColMat, Triplet};
/// use krylith::matrix::Csr;
///
/// let entries = [Triplet::new(0usize, 0usize, 4.0), Triplet::new(0, 1, 1.0), Triplet::new(1, 1, 2.0)];
/// let a = SparseColMat::try_new_from_triplets(2, 2, &entries).unwrap();
/// assert_eq!(Csr::try_from(&a)?.get(0, 1), 1.0);
/// # Ok::<(), krylith::Error>(())
/// ```
impl<I: Index> TryFrom<&SparseColMat<I, f64>> for Csr {
    type Error = Error;

    fn try_from(a: &SparseColMat<I, f64>) -> Result<Self> {
        Self::try_from(a.as_ref())
    }
}

impl<I: Index> TryFrom<&SparseRowMat<I, f64>> for Csr {
    type Error = Error;

    fn try_from(a: &SparseRowMat<I, f64>) -> Result<Self> {
        Self::try_from(a.as_ref())
    }
}

impl<I: Index> TryFrom<SparseColMatRef<'_, I, f64>> for Csr {
    type Error = Error;

    fn try_from(a: SparseColMatRef<'_, I, f64>) -> Result<Self> {
        Ok(Self::try_from(a.transpose())?.transpose())
    }
}

impl<I: Index> TryFrom<SparseRowMatRef<'_, I, f64>> for Csr {
    type Error = Error;

    fn try_from(a: SparseRowMatRef<'_, I, f64>) -> Result<Self> {
        // Rows may have spare memory after their entries; ranges cover only the entries.
        let (pattern, columns) = (a.symbolic(), a.symbolic().col_idx());
        by_rows(a.nrows(), a.ncols(), |i| pattern.row_range(i), |p| columns[p].zx(), a.val())
    }
}

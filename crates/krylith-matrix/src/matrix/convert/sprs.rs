//! From `sprs`.

use super::by_rows;
use crate::matrix::Csr;
use crate::{Error, Result};
use sprs::{CsMatBase, SpIndex};
use std::ops::Deref;

/// From a matrix stored by rows or by columns, owned or borrowed.
///
/// ```
/// use krylith::matrix::Csr;
///
/// let a = sprs::CsMat::new((2, 2), vec![0, 2, 3], vec![0, 1, 1], vec![4.0, 1.0, 2.0]);
/// assert_eq!(Csr::try_from(&a)?.get(0, 1), 1.0);
/// assert_eq!(Csr::try_from(&a.transpose_view())?.get(1, 0), 1.0);
/// # Ok::<(), krylith::Error>(())
/// ```
impl<I, Iptr, IptrStorage, IndStorage, DataStorage>
    TryFrom<&CsMatBase<f64, I, IptrStorage, IndStorage, DataStorage, Iptr>> for Csr
where
    I: SpIndex,
    Iptr: SpIndex,
    IptrStorage: Deref<Target = [Iptr]>,
    IndStorage: Deref<Target = [I]>,
    DataStorage: Deref<Target = [f64]>,
{
    type Error = Error;

    fn try_from(a: &CsMatBase<f64, I, IptrStorage, IndStorage, DataStorage, Iptr>) -> Result<Self> {
        let (rows, columns) = if a.is_csr() { (a.rows(), a.cols()) } else { (a.cols(), a.rows()) };
        let (pointers, indices) = (a.proper_indptr(), a.indices());
        let places = |i: usize| pointers[i].index()..pointers[i + 1].index();
        let stored = by_rows(rows, columns, places, |p| indices[p].index(), a.data())?;
        Ok(if a.is_csr() { stored } else { stored.transpose() })
    }
}

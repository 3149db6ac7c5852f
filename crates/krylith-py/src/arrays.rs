//! Arrays that Python lends: NumPy's on the host, or an address in the memory of a GPU.

use crate::errors::{bounded, refuse_forked};
use krylith_core::device::cuda::FromDevice;
use krylith_core::memory::{Array, Number, Numbers, NumbersMut};
use numpy::{PyReadonlyArray1, PyReadwriteArray1};
use pyo3::prelude::*;
use rayon::prelude::*;

/// Address, length, GPU and stream of numbers on a GPU, as `_arrays.py` takes them from `__cuda_array_interface__`. Its caller keeps
/// the memory alive until the function that is given it returns.
#[derive(FromPyObject, Clone, Copy)]
pub struct Remote(u64, usize, usize, Option<usize>);

impl Remote {
    fn stream(self) -> Option<*mut std::ffi::c_void> {
        self.3.map(|stream| stream as *mut _)
    }
}

/// Numbers to be read.
#[derive(FromPyObject)]
pub enum Lent<'py> {
    /// On the host, without gaps.
    Host(PyReadonlyArray1<'py, f64>),
    /// On a GPU.
    Remote(Remote),
}

impl Lent<'_> {
    /// The numbers as the library takes them.
    pub fn array(&self) -> PyResult<Numbers<'_>> {
        match self {
            Lent::Host(array) => Ok(Numbers::from(array.as_slice()?)),
            // SAFETY: the Python caller holds the array whose address this is until the call returns.
            Lent::Remote(r) => Ok(unsafe { Numbers::from_device(r.0, r.1, r.2, r.stream()) }),
        }
    }
}

/// Numbers to be written.
#[derive(FromPyObject)]
pub enum LentMut<'py> {
    /// On the host, without gaps.
    Host(PyReadwriteArray1<'py, f64>),
    /// On a GPU.
    Remote(Remote),
}

impl LentMut<'_> {
    /// The numbers as the library takes them.
    pub fn array(&mut self) -> PyResult<NumbersMut<'_>> {
        match self {
            LentMut::Host(array) => Ok(NumbersMut::from(array.as_slice_mut()?)),
            // SAFETY: the Python caller holds the array whose address this is until the call returns.
            LentMut::Remote(r) => Ok(unsafe { NumbersMut::from_device(r.0, r.1, r.2, r.stream()) }),
        }
    }
}

/// Whole numbers of either width.
#[derive(FromPyObject)]
pub enum Indices<'py> {
    /// Of 32 bits, on the host.
    Narrow(PyReadonlyArray1<'py, i32>),
    /// Of 64 bits, on the host.
    Wide(PyReadonlyArray1<'py, i64>),
    /// Of so many bytes, on a GPU.
    Remote(Remote, usize),
}

/// What [`Indices`] are to the library.
pub enum IndexArray<'a> {
    /// Of 32 bits.
    Narrow(Array<'a, i32>),
    /// Of 64 bits.
    Wide(Array<'a, i64>),
}

impl Indices<'_> {
    /// The numbers as the library takes them.
    pub fn array(&self) -> PyResult<IndexArray<'_>> {
        Ok(match self {
            Indices::Narrow(array) => IndexArray::Narrow(Array::from(array.as_slice()?)),
            Indices::Wide(array) => IndexArray::Wide(Array::from(array.as_slice()?)),
            Indices::Remote(r, 4) => {
                // SAFETY: the Python caller holds the array whose address this is until the call returns.
                IndexArray::Narrow(unsafe { Array::from_device(r.0, r.1, r.2, r.stream()) })
            }
            Indices::Remote(r, _) => {
                // SAFETY: as above.
                IndexArray::Wide(unsafe { Array::from_device(r.0, r.1, r.2, r.stream()) })
            }
        })
    }
}

/// Calls `$make` with two index arrays of whatever widths they have.
macro_rules! of_any_width {
    ($one:expr, $other:expr, $make:expr) => {
        match ($one, $other) {
            (IndexArray::Narrow(a), IndexArray::Narrow(b)) => $make(a, b),
            (IndexArray::Wide(a), IndexArray::Narrow(b)) => $make(a, b),
            (IndexArray::Narrow(a), IndexArray::Wide(b)) => $make(a, b),
            (IndexArray::Wide(a), IndexArray::Wide(b)) => $make(a, b),
        }
    };
}
pub(crate) use of_any_width;

/// True where both are on the host and hold the same numbers, compared on so many threads, or on all.
#[pyfunction]
#[pyo3(signature = (a, b, threads=None))]
pub fn same_indices(
    py: Python<'_>,
    a: Indices<'_>,
    b: Indices<'_>,
    threads: Option<usize>,
) -> PyResult<bool> {
    refuse_forked()?;
    fn same<A: Number + Into<i64>, B: Number + Into<i64>>(a: Array<'_, A>, b: Array<'_, B>) -> bool {
        const RUN: usize = 1 << 18;
        let (Some(a), Some(b)) = (a.as_host(), b.as_host()) else { return false };
        let runs = a.par_chunks(RUN).zip(b.par_chunks(RUN));
        a.len() == b.len()
            && runs.all(|(a, b)| a.iter().zip(b).all(|(a, b)| Into::<i64>::into(*a) == (*b).into()))
    }
    let (a, b) = (a.array()?, b.array()?);
    of_any_width!(a, b, |a, b| bounded(py, threads, || Ok(same(a, b))))
}

//! Arrays of Python: NumPy arrays on the host, or addresses in the memory of a GPU.

use crate::errors::{bounded, detached, refuse_forked};
use krylith_core::device::cuda::FromDevice;
use krylith_core::memory::{Array, Number, Numbers, NumbersMut};
use numpy::{PyArray1, PyReadonlyArray1, PyReadwriteArray1};
use pyo3::prelude::*;
use rayon::prelude::*;

/// Address, length, GPU and stream of numbers on a GPU, which `_arrays.py` reads from
/// `__cuda_array_interface__`. The caller keeps the memory alive until the function that receives this
/// returns.
#[derive(FromPyObject, Clone, Copy)]
pub struct Remote(u64, usize, usize, Option<usize>);

impl Remote {
    fn stream(self) -> Option<*mut std::ffi::c_void> {
        self.3.map(|stream| stream as *mut _)
    }
}

/// Numbers to read.
#[derive(FromPyObject)]
pub enum Lent<'py> {
    /// Contiguous numbers on the host.
    Host(PyReadonlyArray1<'py, f64>),
    /// Numbers on a GPU.
    Remote(Remote),
}

impl Lent<'_> {
    /// Returns the numbers in the form that the library accepts.
    pub fn array(&self) -> PyResult<Numbers<'_>> {
        match self {
            Lent::Host(array) => Ok(Numbers::from(array.as_slice()?)),
            // SAFETY: the Python caller holds the array at this address until the call returns.
            Lent::Remote(r) => Ok(unsafe { Numbers::from_device(r.0, r.1, r.2, r.stream()) }),
        }
    }
}

/// Numbers on a GPU, with the array that owns them.
#[derive(FromPyObject)]
pub struct HeldRemote(Remote, #[allow(dead_code)] Py<PyAny>);

impl HeldRemote {
    /// Returns the numbers in the form that the library accepts.
    pub fn numbers(&self) -> Numbers<'_> {
        let r = self.0;
        // SAFETY: the array is held as long as the numbers are borrowed, and its library frees memory in the
        // order of the stream.
        unsafe { Numbers::from_device(r.0, r.1, r.2, r.stream()) }
    }
}

/// Numbers on the host, with the array that owns them.
pub struct HeldHost(usize, usize, #[allow(dead_code)] Py<PyArray1<f64>>);

impl<'py> FromPyObject<'_, 'py> for HeldHost {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        let array: PyReadonlyArray1<'_, f64> = object.extract()?;
        let numbers = array.as_slice()?;
        let place = (numbers.as_ptr() as usize, numbers.len());
        Ok(Self(place.0, place.1, object.cast::<PyArray1<f64>>()?.to_owned().unbind()))
    }
}

/// Numbers that a Python function returned, with the array that owns them.
#[derive(FromPyObject)]
pub enum Held {
    /// Contiguous numbers on the host.
    Host(HeldHost),
    /// Numbers on a GPU.
    Remote(HeldRemote),
}

impl Held {
    /// Returns the numbers in the form that the library accepts.
    pub fn numbers(&self) -> Numbers<'_> {
        match self {
            // SAFETY: the array is held as long as the numbers are borrowed. NumPy does not move its numbers.
            Held::Host(host) => {
                Numbers::from(unsafe { std::slice::from_raw_parts(host.0 as *const f64, host.1) })
            }
            Held::Remote(remote) => remote.numbers(),
        }
    }
}

/// Numbers to write.
#[derive(FromPyObject)]
pub enum LentMut<'py> {
    /// Contiguous numbers on the host.
    Host(PyReadwriteArray1<'py, f64>),
    /// Numbers on a GPU.
    Remote(Remote),
}

impl LentMut<'_> {
    /// Returns the numbers in the form that the library accepts.
    pub fn array(&mut self) -> PyResult<NumbersMut<'_>> {
        match self {
            LentMut::Host(array) => Ok(NumbersMut::from(array.as_slice_mut()?)),
            // SAFETY: the Python caller holds the array at this address until the call returns.
            LentMut::Remote(r) => Ok(unsafe { NumbersMut::from_device(r.0, r.1, r.2, r.stream()) }),
        }
    }
}

/// Indices of 32 or 64 bits.
#[derive(FromPyObject)]
pub enum Indices<'py> {
    /// 32-bit indices on the host.
    Narrow(PyReadonlyArray1<'py, i32>),
    /// 64-bit indices on the host.
    Wide(PyReadonlyArray1<'py, i64>),
    /// Indices on a GPU, and the bytes of an index.
    Remote(Remote, usize),
}

/// [`Indices`] in the form that the library accepts.
pub enum IndexArray<'a> {
    /// 32-bit indices.
    Narrow(Array<'a, i32>),
    /// 64-bit indices.
    Wide(Array<'a, i64>),
}

impl Indices<'_> {
    /// Returns the numbers in the form that the library accepts.
    pub fn array(&self) -> PyResult<IndexArray<'_>> {
        Ok(match self {
            Indices::Narrow(array) => IndexArray::Narrow(Array::from(array.as_slice()?)),
            Indices::Wide(array) => IndexArray::Wide(Array::from(array.as_slice()?)),
            Indices::Remote(r, 4) => {
                // SAFETY: the Python caller holds the array at this address until the call returns.
                IndexArray::Narrow(unsafe { Array::from_device(r.0, r.1, r.2, r.stream()) })
            }
            Indices::Remote(r, _) => {
                // SAFETY: as above.
                IndexArray::Wide(unsafe { Array::from_device(r.0, r.1, r.2, r.stream()) })
            }
        })
    }
}

/// Calls `$make` with two index arrays of any widths.
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

/// Returns true if both arrays are on the host and equal. Compares them with `threads` threads, or with all.
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

/// Returns indices as a list, from the host or from a GPU.
#[pyfunction]
pub fn read_indices(py: Python<'_>, indices: Indices<'_>) -> PyResult<Vec<i64>> {
    refuse_forked()?;
    fn read<T: Number + Into<i64>>(array: Array<'_, T>) -> krylith_core::Result<Vec<i64>> {
        Ok(array.to_vec()?.into_iter().map(Into::into).collect())
    }
    let indices = indices.array()?;
    detached(py, || match indices {
        IndexArray::Narrow(array) => read(array),
        IndexArray::Wide(array) => read(array),
    })
}

/// Copies numbers of the host to an array on the host or on a GPU.
#[pyfunction]
pub fn write_numbers(py: Python<'_>, from: PyReadonlyArray1<'_, f64>, mut to: LentMut<'_>) -> PyResult<()> {
    refuse_forked()?;
    let (from, mut to) = (from.as_slice()?, to.array()?);
    detached(py, || to.write(from))
}

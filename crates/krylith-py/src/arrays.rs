//! Arrays that Python lends: NumPy's on the host, or an address in the memory of a GPU.

use crate::fork;
use krylith::memory::{Array, ArrayMut, Number};
use numpy::{Element, PyReadonlyArray1, PyReadwriteArray1};
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
pub enum Lent<'py, T: Number + Element> {
    /// On the host, without gaps.
    Host(PyReadonlyArray1<'py, T>),
    /// On a GPU.
    Remote(Remote),
}

impl<T: Number + Element> Lent<'_, T> {
    /// The numbers as the library takes them.
    pub fn array(&self) -> PyResult<Array<'_, T>> {
        match self {
            Lent::Host(array) => Ok(Array::from(array.as_slice()?)),
            // SAFETY: the Python caller holds the array whose address this is until the call returns.
            Lent::Remote(r) => Ok(unsafe { Array::from_device(r.0, r.1, r.2, r.stream()) }),
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
    pub fn array(&mut self) -> PyResult<ArrayMut<'_, f64>> {
        match self {
            LentMut::Host(array) => Ok(ArrayMut::from(array.as_slice_mut()?)),
            // SAFETY: the Python caller holds the array whose address this is until the call returns.
            LentMut::Remote(r) => Ok(unsafe { ArrayMut::from_device(r.0, r.1, r.2, r.stream()) }),
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

/// True where both hold the same numbers, compared on all threads.
#[pyfunction]
pub fn same_indices(py: Python<'_>, a: Indices<'_>, b: Indices<'_>) -> PyResult<bool> {
    fork::check()?;
    fn same<T: PartialEq + Sync>(a: &[T], b: &[T]) -> bool {
        const RUN: usize = 1 << 18;
        a.len() == b.len() && a.par_chunks(RUN).zip(b.par_chunks(RUN)).all(|(a, b)| a == b)
    }
    match (a.array()?, b.array()?) {
        (IndexArray::Narrow(a), IndexArray::Narrow(b)) => match (a.as_host(), b.as_host()) {
            (Some(a), Some(b)) => Ok(py.detach(|| same(a, b))),
            _ => Ok(false),
        },
        (IndexArray::Wide(a), IndexArray::Wide(b)) => match (a.as_host(), b.as_host()) {
            (Some(a), Some(b)) => Ok(py.detach(|| same(a, b))),
            _ => Ok(false),
        },
        (IndexArray::Narrow(a), IndexArray::Wide(b)) | (IndexArray::Wide(b), IndexArray::Narrow(a)) => {
            match (a.as_host(), b.as_host()) {
                (Some(a), Some(b)) => {
                    Ok(a.len() == b.len() && a.iter().zip(b).all(|(a, b)| i64::from(*a) == *b))
                }
                _ => Ok(false),
            }
        }
    }
}

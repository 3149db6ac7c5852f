//! Numbers at an address on a GPU as a capsule of DLPack, which other libraries take without a copy.

use pyo3::exceptions::PyMemoryError;
use pyo3::ffi::{PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_New, PyObject};
use pyo3::prelude::*;
use std::ffi::{CStr, c_void};

/// The name of a capsule that nobody has taken yet.
const NAME: &CStr = c"dltensor";

/// `DLDevice`, with the type of CUDA.
#[repr(C)]
struct Place {
    kind: i32,
    number: i32,
}

/// The number of CUDA among the kinds of `DLDevice`.
const CUDA: i32 = 2;

/// `DLDataType`.
#[repr(C)]
struct Number {
    code: u8,
    bits: u8,
    lanes: u16,
}

/// The number of floating-point numbers among the codes of `DLDataType`.
const FLOAT: u8 = 2;

/// `DLTensor`.
#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device: Place,
    dimensions: i32,
    number: Number,
    shape: *mut i64,
    strides: *mut i64,
    offset: u64,
}

/// `DLManagedTensor`, and the length to which its shape points.
#[repr(C)]
struct Managed {
    tensor: Tensor,
    context: *mut c_void,
    delete: Option<unsafe extern "C" fn(*mut Managed)>,
    length: i64,
}

/// Frees a tensor, but not its numbers.
unsafe extern "C" fn delete(managed: *mut Managed) {
    // SAFETY: made by `capsule`, and deleted once by its owner.
    drop(unsafe { Box::from_raw(managed) });
}

/// Frees the tensor of a capsule that nobody has taken.
unsafe extern "C" fn forget(capsule: *mut PyObject) {
    // SAFETY: a capsule that is being destroyed. A capsule that was taken has another name.
    unsafe {
        if PyCapsule_IsValid(capsule, NAME.as_ptr()) == 1 {
            let managed = PyCapsule_GetPointer(capsule, NAME.as_ptr()).cast::<Managed>();
            if !managed.is_null() {
                delete(managed);
            }
        }
    }
}

/// Returns a capsule of `len` numbers in f64 at an address on a GPU. The capsule does not own the numbers.
#[pyfunction]
pub fn capsule(py: Python<'_>, pointer: u64, len: usize, gpu: i32) -> PyResult<Py<PyAny>> {
    let mut managed = Box::new(Managed {
        tensor: Tensor {
            data: pointer as *mut c_void,
            device: Place { kind: CUDA, number: gpu },
            dimensions: 1,
            number: Number { code: FLOAT, bits: 64, lanes: 1 },
            shape: std::ptr::null_mut(),
            strides: std::ptr::null_mut(),
            offset: 0,
        },
        context: std::ptr::null_mut(),
        delete: Some(delete),
        length: len as i64,
    });
    managed.tensor.shape = &raw mut managed.length;
    let managed = Box::into_raw(managed);
    // SAFETY: the tensor lives until the capsule or its owner deletes it.
    let made = unsafe { PyCapsule_New(managed.cast(), NAME.as_ptr(), Some(forget)) };
    if made.is_null() {
        // SAFETY: nobody has the tensor.
        unsafe { delete(managed) };
        return Err(PyErr::take(py).unwrap_or_else(|| PyMemoryError::new_err("a capsule of DLPack")));
    }
    // SAFETY: a new reference.
    Ok(unsafe { Bound::from_owned_ptr(py, made) }.unbind())
}

/// Returns the address and the length of the numbers in a capsule, which must be contiguous f64 on this GPU.
/// The capsule stays their owner.
#[pyfunction]
pub fn numbers_of(capsule: &Bound<'_, PyAny>, gpu: i32) -> PyResult<(u64, usize)> {
    let wrong = |why: &str| crate::errors::named("InvalidInput", format!("a function returned {why}"));
    // SAFETY: the name is checked; an invalid capsule gives a null pointer and an exception.
    let managed = unsafe { PyCapsule_GetPointer(capsule.as_ptr(), NAME.as_ptr()).cast::<Managed>() };
    if managed.is_null() {
        return Err(PyErr::take(capsule.py()).unwrap_or_else(|| wrong("no array")));
    }
    // SAFETY: a live capsule with this name has a `DLManagedTensor`, whose first part is a `DLTensor`.
    let tensor = unsafe { &(*managed).tensor };
    let Number { code, bits, lanes } = tensor.number;
    if (code, bits, lanes) != (FLOAT, 64, 1) {
        return Err(wrong("numbers of another type than float64"));
    }
    if tensor.device.kind != CUDA || tensor.device.number != gpu {
        return Err(wrong("an array that is not on the GPU of its argument"));
    }
    let dimensions = usize::try_from(tensor.dimensions).unwrap_or(0);
    // SAFETY: `dimensions` numbers each, where the pointers are not null.
    let extents = |from: *mut i64| match from.is_null() || dimensions == 0 {
        true => &[][..],
        false => unsafe { std::slice::from_raw_parts(from, dimensions) },
    };
    let (shape, strides, mut step) = (extents(tensor.shape), extents(tensor.strides), 1);
    for (n, stride) in shape.iter().zip(strides).rev() {
        if *n > 1 && *stride != step {
            return Err(wrong("an array that is not contiguous"));
        }
        step *= n;
    }
    let len = shape.iter().product::<i64>();
    Ok((tensor.data as u64 + tensor.offset, usize::try_from(len).unwrap_or(0)))
}

/// Starts to copy `len` numbers in f64 within a GPU, as work of a stream.
#[pyfunction]
pub fn copy(gpu: usize, to: u64, from: u64, len: usize, stream: usize) -> PyResult<()> {
    // SAFETY: Python's side holds both arrays until the stream has passed the copy.
    let done = unsafe { krylith_core::device::cuda::copy_in_stream(gpu, to, from, len, stream) };
    done.map_err(crate::errors::exception)
}

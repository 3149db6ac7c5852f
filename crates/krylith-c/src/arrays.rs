//! Arrays that a program lends: on the host, or in the memory of a GPU.

use krylith_core::device::cuda::FromDevice;
use krylith_core::memory::{Array, ArrayMut, Number};
use krylith_core::{Error, Result};
use std::ffi::c_void;

/// Where the arrays of a call lie. In its place a null pointer means host memory.
///
/// Nothing needs to be synchronised by hand: the library's work comes after what the stream holds at the time
/// of the call, and what is put into the stream afterwards comes after the library's.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    /// The GPU, as CUDA counts them from 0; -1 means host memory.
    pub gpu: i32,
    /// The CUDA stream (cudaStream_t or CUstream) in which the caller works; null is the default stream.
    pub stream: *mut c_void,
}

/// A length that the caller gives.
pub fn length(n: i64, what: &str) -> Result<usize> {
    usize::try_from(n).map_err(|_| Error::invalid(format!("{what} is {n}; it must not be negative")))
}

/// Refuses null pointers to anything, and addresses that numbers of this type cannot have.
fn check<T>(address: *const T, len: usize, what: &str) -> Result<()> {
    if address.is_null() && len > 0 {
        return Err(Error::invalid(format!("{what} is a null pointer; expected {len} numbers")));
    }
    if !address.is_aligned()
        || len.checked_mul(size_of::<T>()).is_none_or(|bytes| bytes > isize::MAX as usize)
    {
        return Err(Error::invalid(format!("{what}: {len} numbers at {address:?} cannot be")));
    }
    Ok(())
}

/// Numbers to be read, on the host.
pub fn slice<'a, T: Number>(address: *const T, len: usize, what: &str) -> Result<&'a [T]> {
    check(address, len, what)?;
    // SAFETY: the caller's promise: so many numbers lie there, and nobody writes to them during the call.
    Ok(if len == 0 { &[] } else { unsafe { std::slice::from_raw_parts(address, len) } })
}

/// Numbers to be written, on the host.
pub fn slice_mut<'a, T: Number>(address: *mut T, len: usize, what: &str) -> Result<&'a mut [T]> {
    check(address, len, what)?;
    // SAFETY: the caller's promise: so many numbers lie there, and nobody else uses them during the call.
    Ok(if len == 0 { &mut [] } else { unsafe { std::slice::from_raw_parts_mut(address, len) } })
}

/// Numbers to be read, wherever they lie.
pub fn array<'a, T: Number>(
    address: *const T,
    len: usize,
    memory: Option<&Memory>,
    what: &str,
) -> Result<Array<'a, T>> {
    let Some((gpu, stream)) = memory.and_then(Memory::on_gpu) else {
        return Ok(Array::from(slice(address, len, what)?));
    };
    check(address, len, what)?;
    // SAFETY: the caller's promise, as on the host.
    Ok(unsafe { Array::from_device(address as u64, len, gpu, Some(stream)) })
}

/// Numbers to be written, wherever they lie.
pub fn array_mut<'a, T: Number>(
    address: *mut T,
    len: usize,
    memory: Option<&Memory>,
    what: &str,
) -> Result<ArrayMut<'a, T>> {
    let Some((gpu, stream)) = memory.and_then(Memory::on_gpu) else {
        return Ok(ArrayMut::from(slice_mut(address, len, what)?));
    };
    check(address, len, what)?;
    // SAFETY: the caller's promise, as on the host.
    Ok(unsafe { ArrayMut::from_device(address as u64, len, gpu, Some(stream)) })
}

impl Memory {
    /// GPU and stream.
    fn on_gpu(&self) -> Option<(usize, *mut c_void)> {
        usize::try_from(self.gpu).ok().map(|gpu| (gpu, self.stream))
    }
}

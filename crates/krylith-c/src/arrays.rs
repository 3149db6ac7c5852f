//! Arrays of the caller, on the host or in the memory of a GPU.

use krylith_core::device::cuda::FromDevice;
use krylith_core::memory::{Array, ArrayMut, Number};
use krylith_core::{Error, Result};
use std::ffi::c_void;

/// The location of the arrays of a call. A null pointer to it means host memory.
///
/// The caller need not synchronise: the library's work starts after the work that is in the stream at the
/// time of the call. Work that the caller adds to the stream later starts after the library's work.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Memory {
    /// The number of the GPU, which CUDA counts from 0; -1 means host memory.
    pub gpu: i32,
    /// The CUDA stream (cudaStream_t or CUstream) that the caller uses; null is the default stream.
    pub stream: *mut c_void,
}

/// Converts a length that the caller gives; a negative one is an error.
pub fn length(n: i64, what: &str) -> Result<usize> {
    usize::try_from(n).map_err(|_| Error::invalid(format!("{what} is {n}; it must not be negative")))
}

/// Rejects null pointers unless the length is 0, misaligned addresses, and lengths over the address space.
fn check<T>(address: *const T, len: usize, what: &str) -> Result<()> {
    if address.is_null() && len > 0 {
        return Err(Error::invalid(format!("{what} is a null pointer; expected {len} numbers")));
    }
    if !address.is_aligned()
        || len.checked_mul(size_of::<T>()).is_none_or(|bytes| bytes > isize::MAX as usize)
    {
        return Err(Error::invalid(format!(
            "{what}: {len} numbers at address {address:?} are misaligned or too many for the address space"
        )));
    }
    Ok(())
}

/// Returns numbers to read, on the host.
pub fn slice<'a, T: Number>(address: *const T, len: usize, what: &str) -> Result<&'a [T]> {
    check(address, len, what)?;
    // SAFETY: the caller promises `len` numbers at this address that nothing writes to during the call.
    Ok(if len == 0 { &[] } else { unsafe { std::slice::from_raw_parts(address, len) } })
}

/// Returns an array of pointers, on the host.
pub fn pointers<'a, T>(address: *const *const T, len: usize, what: &str) -> Result<&'a [*const T]> {
    if address.is_null() && len > 0 {
        return Err(Error::invalid(format!("{what} is a null pointer; expected {len} pointers")));
    }
    check(address, len, what)?;
    // SAFETY: the caller promises `len` pointers at this address that nothing writes to during the call.
    Ok(if len == 0 { &[] } else { unsafe { std::slice::from_raw_parts(address, len) } })
}

/// Returns numbers to write, on the host.
pub fn slice_mut<'a, T: Number>(address: *mut T, len: usize, what: &str) -> Result<&'a mut [T]> {
    check(address, len, what)?;
    // SAFETY: the caller promises `len` numbers at this address that nothing else uses during the call.
    Ok(if len == 0 { &mut [] } else { unsafe { std::slice::from_raw_parts_mut(address, len) } })
}

/// Returns numbers to read, on the host or on a GPU.
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
    // SAFETY: the caller's promise is the same as on the host.
    Ok(unsafe { Array::from_device(address as u64, len, gpu, Some(stream)) })
}

/// Returns numbers to write, on the host or on a GPU.
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
    // SAFETY: the caller's promise is the same as on the host.
    Ok(unsafe { ArrayMut::from_device(address as u64, len, gpu, Some(stream)) })
}

impl Memory {
    /// Returns the GPU and the stream, or none for host memory.
    fn on_gpu(&self) -> Option<(usize, *mut c_void)> {
        usize::try_from(self.gpu).ok().map(|gpu| (gpu, self.stream))
    }
}

//! Host memory for long vectors, and a hint to the cache.

use crate::{Error, Result};

/// Prefetches the cache line at an address that will be read soon; any address is allowed.
#[inline(always)]
#[doc(hidden)]
pub fn prefetch<T>(at: *const T) {
    // SAFETY: a prefetch is a hint; an address outside of any allocation is allowed.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        std::arch::x86_64::_mm_prefetch::<{ std::arch::x86_64::_MM_HINT_T0 }>(at.cast())
    };
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Allocates `n` zeros, or fails with the number of bytes. The pages of a large array are not touched here:
/// the system fills each with zeros at the first touch, on the thread that touches it.
#[doc(hidden)]
pub fn zeros<T: Copy + Default>(n: usize, what: &str) -> Result<Vec<T>> {
    drop(allocate::<T>(n, what)?); // fails if memory is short
    let mut zeros = vec![T::default(); n];
    ask_for_large_pages(&mut zeros);
    Ok(zeros)
}

/// Allocates memory for `n` numbers, or fails with the number of bytes.
#[doc(hidden)]
pub fn allocate<T>(n: usize, what: &str) -> Result<Vec<T>> {
    let mut room = Vec::new();
    crate::alloc::reserve(&mut room, n).map_err(|_| Error::Memory {
        what: what.into(),
        needed: (n * size_of::<T>()) as u64,
        free: 0,
        place: "the host".into(),
        remedy: "use a smaller restart, f32 storage or a machine with more memory",
    })?;
    ask_for_large_pages(&mut room);
    Ok(room)
}

/// Requests large pages, which save most address translations in arrays of many megabytes; a hint, given
/// before the first touch.
fn ask_for_large_pages<T>(memory: &mut Vec<T>) {
    #[cfg(target_os = "linux")]
    {
        const PAGE: usize = 1 << 21;
        let start = memory.as_mut_ptr() as usize;
        let (from, to) =
            (start.next_multiple_of(PAGE), (start + memory.capacity() * size_of::<T>()) / PAGE * PAGE);
        if to > from {
            // SAFETY: whole pages inside one allocation that is ours; the advice changes no content.
            unsafe { libc::madvise(from as *mut libc::c_void, to - from, libc::MADV_HUGEPAGE) };
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = memory;
}

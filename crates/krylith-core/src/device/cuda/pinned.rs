//! Pinned host memory, for direct copies and for words that a GPU reads.

use super::driver::Device;
use crate::Result;
use crate::waiting::gpus_are_given_up;
use cudarc::driver::sys;

/// Numbers in pinned host memory, to which the driver copies directly.
pub(super) struct Pinned {
    host: *mut f64,
    len: usize,
}

// SAFETY: memory of the process, reached only through this owner.
unsafe impl Send for Pinned {}

impl Pinned {
    pub(super) fn new(device: &Device, len: usize) -> Result<Self> {
        device.bind()?;
        let (mut host, bytes) = (std::ptr::null_mut(), (len * size_of::<f64>()).max(8));
        // SAFETY: writes one pointer.
        let code = unsafe { sys::cuMemHostAlloc(&mut host, bytes, sys::CU_MEMHOSTALLOC_PORTABLE) };
        device.driver("cuMemHostAlloc", code)?;
        // SAFETY: zeroes the fresh allocation.
        unsafe { host.cast::<u8>().write_bytes(0, bytes) };
        Ok(Self { host: host.cast(), len })
    }

    pub(super) fn numbers(&mut self) -> &mut [f64] {
        // SAFETY: `len` numbers that were written, borrowed through their one owner.
        unsafe { std::slice::from_raw_parts_mut(self.host, self.len) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if gpus_are_given_up() {
            return; // freeing it would wait for the GPU
        }
        // SAFETY: allocated once, freed once; every copy to it was waited for.
        let _ = unsafe { sys::cuMemFreeHost(self.host.cast()) };
    }
}

/// One word of host memory that this GPU can read.
pub(super) struct Word {
    host: *mut u32,
    pointer: u64,
}

// SAFETY: one aligned word, written and read as a whole.
unsafe impl Send for Word {}
// SAFETY: as above.
unsafe impl Sync for Word {}

impl Word {
    pub(super) fn new(device: &Device) -> Result<Self> {
        device.bind()?;
        let (mut host, mut pointer) = (std::ptr::null_mut(), 0);
        let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
        // SAFETY: writes one pointer.
        device.driver("cuMemHostAlloc", unsafe { sys::cuMemHostAlloc(&mut host, 64, flags) })?;
        // SAFETY: the allocation above, mapped.
        let code = unsafe { sys::cuMemHostGetDevicePointer_v2(&mut pointer, host, 0) };
        device.driver("cuMemHostGetDevicePointer", code)?;
        let word = Self { host: host.cast(), pointer };
        word.set(0);
        Ok(word)
    }
    /// Returns the address for the GPU.
    pub(super) fn pointer(&self) -> u64 {
        self.pointer
    }
    pub(super) fn set(&self, value: u32) {
        // SAFETY: the word lives as long as self.
        unsafe { self.host.write_volatile(value) }
    }
}

impl Drop for Word {
    fn drop(&mut self) {
        if gpus_are_given_up() {
            return; // kernels may still read it
        }
        // SAFETY: allocated once, freed once.
        unsafe { sys::cuMemFreeHost(self.host.cast()) };
    }
}

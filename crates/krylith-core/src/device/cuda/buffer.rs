//! Memory of a GPU: buffers, copies, and a pool per GPU, from which an allocation takes 1 µs instead of 200
//! µs.

use super::driver::{Device, failure};
use super::pinned::Pinned;
use crate::waiting::gpus_are_given_up;
use crate::{Error, Result};
use cudarc::driver::result::{self, DriverError};
use cudarc::driver::{CudaContext, sys};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

/// A pool of memory that the driver keeps for this process. Without a pool every allocation goes to the
/// driver.
pub(super) struct Pool(sys::CUmemoryPool);

/// Share of a GPU's memory that a pool keeps while no solver uses the GPU, for the next one. It takes 10 ms
/// to acquire and release the gigabyte of a solve on 128³ nodes.
const KEPT: usize = 8;

// SAFETY: a handle that the driver lets any thread use.
unsafe impl Send for Pool {}
// SAFETY: as above.
unsafe impl Sync for Pool {}

impl Pool {
    /// Returns no pool.
    fn none() -> Self {
        Self(std::ptr::null_mut())
    }

    /// Returns the pool of a GPU, which all its users share until the process ends.
    pub(super) fn of(context: &Arc<CudaContext>, ordinal: usize) -> Arc<Self> {
        static POOLS: Mutex<Vec<(usize, Arc<Pool>)>> = Mutex::new(Vec::new());
        let mut pools = POOLS.lock().unwrap_or_else(|e| e.into_inner());
        if let Some((_, pool)) = pools.iter().find(|(of, _)| *of == ordinal) {
            return pool.clone();
        }
        let pool = Arc::new(Self::new(context, ordinal));
        pools.push((ordinal, pool.clone()));
        pool
    }

    /// Makes a pool on a GPU, which keeps freed memory. There is none where the driver does not support
    /// pools.
    fn new(context: &Arc<CudaContext>, ordinal: usize) -> Self {
        let attribute = sys::CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED;
        if context.attribute(attribute).unwrap_or(0) == 0 || context.bind_to_thread().is_err() {
            return Self::none();
        }
        // SAFETY: plain data for which zeros are a valid value: no handles to share, no limit.
        let mut properties: sys::CUmemPoolProps = unsafe { std::mem::zeroed() };
        properties.allocType = sys::CUmemAllocationType::CU_MEM_ALLOCATION_TYPE_PINNED;
        properties.location.type_ = sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE;
        properties.location.id = ordinal as i32;
        let mut pool = std::ptr::null_mut();
        // SAFETY: writes one handle, reads the properties.
        if unsafe { sys::cuMemPoolCreate(&mut pool, &properties) }.result().is_err() {
            return Self::none();
        }
        let mut keep = u64::MAX;
        let threshold = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
        // SAFETY: reads one number of the attribute's type.
        let _ = unsafe { sys::cuMemPoolSetAttribute(pool, threshold, (&raw mut keep).cast()) };
        // Memory is reused once its last user is done. A stream never waits for another one to get it.
        let waits = sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES;
        let mut no = 0i32;
        // SAFETY: as above.
        let _ = unsafe { sys::cuMemPoolSetAttribute(pool, waits, (&raw mut no).cast()) };
        Self(pool)
    }

    fn is_there(&self) -> bool {
        !self.0.is_null()
    }

    fn allocate(&self, bytes: usize, stream: sys::CUstream) -> std::result::Result<u64, DriverError> {
        let mut pointer = 0;
        match self.is_there() {
            // SAFETY: writes one address; the buffer made of it frees it.
            true => unsafe { sys::cuMemAllocFromPoolAsync(&mut pointer, bytes, self.0, stream) }.result()?,
            // SAFETY: as above.
            false => pointer = unsafe { result::malloc_sync(bytes) }?,
        }
        Ok(pointer)
    }

    /// Bytes that the pool keeps and no buffer uses.
    pub(super) fn idle(&self) -> u64 {
        let read = |attribute| {
            let mut value = 0u64;
            // SAFETY: writes one number of the attribute's type.
            let done = unsafe { sys::cuMemPoolGetAttribute(self.0, attribute, (&raw mut value).cast()) };
            done.result().map_or(0, |()| value)
        };
        if !self.is_there() {
            return 0;
        }
        let kept = read(sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT);
        kept.saturating_sub(read(sys::CUmemPool_attribute::CU_MEMPOOL_ATTR_USED_MEM_CURRENT))
    }

    /// Lets GPU `ordinal` read and write memory of this pool.
    fn open_to(&self, ordinal: usize) -> std::result::Result<(), DriverError> {
        if !self.is_there() {
            return Ok(());
        }
        let location = sys::CUmemLocation {
            type_: sys::CUmemLocationType::CU_MEM_LOCATION_TYPE_DEVICE,
            id: ordinal as i32,
        };
        let flags = sys::CUmemAccess_flags::CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
        let access = sys::CUmemAccessDesc { location, flags };
        // SAFETY: reads one description.
        unsafe { sys::cuMemPoolSetAccess(self.0, &access, 1) }.result()
    }

    /// Returns unused memory above `kept` bytes to the driver.
    fn trim(&self, kept: usize) {
        if self.is_there() {
            // SAFETY: a live pool.
            let _ = unsafe { sys::cuMemPoolTrimTo(self.0, kept) };
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        if self.is_there() {
            // SAFETY: made once, destroyed once; buffers hold a device, which holds the pool.
            let _ = unsafe { sys::cuMemPoolDestroy(self.0) };
        }
    }
}

impl Device {
    /// Allocates `len` zeros. `what` names the buffer in errors.
    pub fn zeros<T: Copy>(self: &Arc<Self>, len: usize, what: &str) -> Result<Buffer<T>> {
        let buffer = self.allocate(len, what)?;
        self.clear_bytes(buffer.pointer, buffer.bytes)?;
        Ok(buffer)
    }

    /// Allocates `len` numbers whose bits are all set.
    pub(super) fn ones(self: &Arc<Self>, len: usize, what: &str) -> Result<Buffer<u64>> {
        let buffer: Buffer<u64> = self.allocate(len, what)?;
        // SAFETY: the whole of a live allocation.
        self.check("cuMemsetD8Async", unsafe {
            result::memset_d8_async(buffer.pointer, u8::MAX, buffer.bytes, self.stream.cu_stream())
        })?;
        Ok(buffer)
    }

    /// Allocates `len` numbers without initialising them.
    pub(super) fn allocate<T: Copy>(self: &Arc<Self>, len: usize, what: &str) -> Result<Buffer<T>> {
        self.allocate_from(len, what, &self.pool)
    }

    /// Allocates `len` zeros in memory that can be shared with other GPUs and processes, which memory of a
    /// pool cannot.
    pub(super) fn peer_zeros<T: Copy>(self: &Arc<Self>, len: usize, what: &str) -> Result<Buffer<T>> {
        let buffer = self.allocate_from(len, what, &Pool::none())?;
        self.clear_bytes(buffer.pointer, buffer.bytes)?;
        Ok(buffer)
    }

    /// Returns this pool's unused memory to the driver.
    pub(super) fn trim_pool(&self) {
        self.pool.trim(0);
    }

    /// Lets GPU `ordinal` read and write memory of this device's pool.
    ///
    /// # Errors
    /// GPUs that cannot reach each other.
    pub(super) fn open_pool_to_gpu(&self, ordinal: usize) -> Result<()> {
        self.bind()?;
        self.check("cuMemPoolSetAccess", self.pool.open_to(ordinal))
    }

    fn allocate_from<T: Copy>(self: &Arc<Self>, len: usize, what: &str, pool: &Pool) -> Result<Buffer<T>> {
        let bytes = (len * size_of::<T>()).max(16);
        self.bind()?;
        let stream = self.stream.cu_stream();
        let mut allocated = pool.allocate(bytes, stream);
        if matches!(allocated, Err(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY))) {
            self.wait()?;
            self.pool.trim(0);
            allocated = pool.allocate(bytes, stream);
        }
        let pointer = match allocated {
            Ok(pointer) => pointer,
            Err(DriverError(sys::CUresult::CUDA_ERROR_OUT_OF_MEMORY)) => {
                return Err(Error::Memory {
                    what: what.into(),
                    needed: bytes as u64,
                    free: self.free_memory().unwrap_or(0),
                    place: self.info.name.clone(),
                    remedy: "use f32 storage, a smaller restart, or a larger GPU",
                });
            }
            Err(e) => return Err(failure(&self.info.name, "cuMemAlloc", e)),
        };
        self.allocations.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        let pooled = pool.is_there();
        Ok(Buffer { device: self.clone(), pointer, len, bytes, pooled, of: std::marker::PhantomData })
    }

    fn clear_bytes(&self, pointer: u64, bytes: usize) -> Result<()> {
        // SAFETY: the whole of a live allocation.
        self.check("cuMemsetD8Async", unsafe {
            result::memset_d8_async(pointer, 0, bytes, self.stream.cu_stream())
        })
    }

    /// Copies host numbers to a new buffer.
    pub fn upload<T: Copy>(self: &Arc<Self>, host: &[T], what: &str) -> Result<Buffer<T>> {
        let mut buffer = self.allocate(host.len(), what)?;
        self.write(host, &mut buffer, 0)?;
        Ok(buffer)
    }

    /// Copies host numbers to elements `at..` of a buffer. The host's may be changed when this returns.
    pub fn write<T: Copy>(&self, host: &[T], to: &mut Buffer<T>, at: usize) -> Result<()> {
        assert!(at + host.len() <= to.len);
        // SAFETY: in bounds by the check above.
        unsafe { self.send(host, to.at(at)) }
    }

    /// Copies elements `at..` of a buffer to the host and waits.
    pub fn read<T: Copy>(&self, from: &Buffer<T>, at: usize, host: &mut [T]) -> Result<()> {
        assert!(at + host.len() <= from.len);
        // SAFETY: in bounds by the check above.
        unsafe { self.fetch(from.at(at), host) }
    }

    /// Copies the first `len` numbers of a buffer to pinned memory and waits.
    pub(super) fn read_pinned<'p>(
        &self,
        from: &Buffer<f64>,
        len: usize,
        to: &'p mut Pinned,
    ) -> Result<&'p [f64]> {
        self.copy_to_pinned(from, len, to)?;
        self.wait()?;
        Ok(&to.numbers()[..len])
    }

    /// Starts a copy of the first `len` numbers of a buffer to pinned memory, which must outlive the copy.
    pub(super) fn copy_to_pinned(&self, from: &Buffer<f64>, len: usize, to: &mut Pinned) -> Result<()> {
        assert!(len <= from.len);
        self.bind()?;
        let host = &mut to.numbers()[..len];
        // SAFETY: in bounds by the check above.
        self.check("cuMemcpyDtoHAsync", unsafe {
            result::memcpy_dtoh_async(host, from.pointer, self.stream.cu_stream())
        })
    }

    /// Copies between buffers of this device.
    pub fn copy<T: Copy>(&self, from: &Buffer<T>, to: &mut Buffer<T>, len: usize) -> Result<()> {
        assert!(len <= from.len && len <= to.len);
        // SAFETY: in bounds by the check above.
        self.check("cuMemcpyDtoDAsync", unsafe {
            result::memcpy_dtod_async(to.pointer, from.pointer, len * size_of::<T>(), self.stream.cu_stream())
        })
    }

    /// Copies bytes between addresses of GPUs that can reach each other.
    pub(super) fn copy_part(&self, from: u64, to: u64, bytes: usize) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        // SAFETY: device memory, which no Rust reference points to; a wrong address is a fault that the
        // driver reports.
        self.check("cuMemcpyDtoDAsync", unsafe {
            result::memcpy_dtod_async(to, from, bytes, self.stream.cu_stream())
        })
    }

    /// Sets a buffer to zeros.
    pub fn clear<T: Copy>(&self, buffer: &mut Buffer<T>) -> Result<()> {
        self.clear_bytes(buffer.pointer, buffer.len * size_of::<T>())
    }
}

/// Numbers in the memory of a GPU.
#[doc(hidden)]
pub struct Buffer<T> {
    device: Arc<Device>,
    pointer: sys::CUdeviceptr,
    len: usize,
    /// Bytes of the allocation; 0 for a part of another buffer, which is not freed.
    bytes: usize,
    pooled: bool,
    of: std::marker::PhantomData<T>,
}

impl<T: Copy> Buffer<T> {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }
    /// True when there are no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
    /// Address of the first element.
    pub fn pointer(&self) -> u64 {
        self.pointer
    }
    /// Address of element `i`.
    pub fn at(&self, i: usize) -> u64 {
        self.pointer + (i * size_of::<T>()) as u64
    }
    /// Lets `work` use `len` numbers from `at` on as a buffer of their own.
    pub(super) fn with_part<R>(&mut self, at: usize, len: usize, work: impl FnOnce(&mut Self) -> R) -> R {
        assert!(at + len <= self.len);
        let (device, pointer) = (self.device.clone(), self.at(at));
        work(&mut Self { device, pointer, len, bytes: 0, pooled: false, of: std::marker::PhantomData })
    }
    /// Returns `len` numbers from `at` on as a buffer of their own, which frees nothing.
    ///
    /// # Safety
    /// The view must not be used after this buffer is dropped.
    pub(super) unsafe fn view(&self, at: usize, len: usize) -> Self {
        assert!(at + len <= self.len);
        let (device, pointer) = (self.device.clone(), self.at(at));
        Self { device, pointer, len, bytes: 0, pooled: false, of: std::marker::PhantomData }
    }
    /// Returns the device of this buffer.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }
}

impl Drop for Device {
    /// The last user of a GPU returns most of the pool's memory.
    fn drop(&mut self) {
        // The list of pools holds one reference, too.
        let is_last = Arc::strong_count(&self.pool) <= 2;
        if is_last && !gpus_are_given_up() && self.context.bind_to_thread().is_ok() && self.wait().is_ok() {
            let total = self.context.mem_get_info().map_or(0, |(_, total)| total);
            self.pool.trim(total / KEPT);
        }
    }
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        if self.bytes == 0 {
            return;
        }
        self.device.bytes.fetch_sub(self.bytes as u64, Ordering::Relaxed);
        if gpus_are_given_up() && !self.pooled {
            return; // freeing it would wait for the GPU
        }
        if self.device.context.bind_to_thread().is_ok() {
            // SAFETY: allocated by `allocate` and freed once. Memory of the pool is freed after the work that
            // is in the stream now; other memory is freed when the driver has waited for its users.
            let _ = unsafe {
                match self.pooled {
                    true => result::free_async(self.pointer, self.device.stream.cu_stream()),
                    false => result::free_sync(self.pointer),
                }
            };
        }
    }
}

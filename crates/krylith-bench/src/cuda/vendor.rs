//! cuBLAS and cuSPARSE on Krylith's stream: thin calls with checked statuses.
//!
//! Pointers are device addresses of buffers that the caller owns and that are large enough; every caller is
//! in this folder.

use cudarc::cublas::sys as blas;
use cudarc::cusparse::sys as sparse;
use cudarc::driver::sys::CUevent_flags;
use cudarc::driver::{CudaEvent, result as driver};
use krylith_core::device::cuda::{Buffer, Device};
use krylith_core::{Error, Result};
use std::rc::Rc;
use std::sync::Arc;

/// Largest count of numbers that one read-back copies.
const PINNED: usize = 256;

/// Handles of both libraries, and pinned memory for scalars that return to the host.
pub(crate) struct Vendor {
    /// Scalars that return; declared before the device, because they need its context when dropped.
    pinned: Pinned,
    pub device: Arc<Device>,
    blas: blas::cublasHandle_t,
    sparse: sparse::cusparseHandle_t,
    pub matrix: sparse::cusparseMatDescr_t,
}

/// Returns the error for a missing library, with the remedy.
pub(crate) fn missing(library: &str, message: impl Into<String>) -> Error {
    Error::Library {
        library: library.into(),
        message: message.into(),
        remedy: "install the libraries of the CUDA 13 toolkit and add their folder to LD_LIBRARY_PATH".into(),
    }
}

/// Runs `f`, and converts a panic of the loading layer ("Missing symbol …") to an error.
pub(crate) fn loading<T>(library: &str, f: impl FnOnce() -> Result<T>) -> Result<T> {
    // The panic hook is global to the process, and ranks of several GPUs load at the same time.
    static HOOK: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _one = HOOK.lock().unwrap_or_else(|e| e.into_inner());
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
    std::panic::set_hook(hook);
    done.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        Err(missing(library, text.unwrap_or_else(|| "the library cannot be loaded".into())))
    })
}

impl Vendor {
    /// Opens both libraries on the device's stream.
    pub fn open(device: &Arc<Device>) -> Result<Rc<Self>> {
        // SAFETY: only looks for the libraries.
        let found = unsafe { (blas::is_culib_present(), sparse::is_culib_present()) };
        if !found.0 {
            return Err(missing("libcublas.so.13", "cuBLAS was not found"));
        }
        if !found.1 {
            return Err(missing("libcusparse.so.12", "cuSPARSE was not found"));
        }
        let mut vendor = Self {
            device: device.clone(),
            blas: std::ptr::null_mut(),
            sparse: std::ptr::null_mut(),
            matrix: std::ptr::null_mut(),
            pinned: Pinned { at: std::ptr::null_mut(), len: 0 },
        };
        device.stream().context().bind_to_thread().map_err(|e| vendor.failure("cuCtxSetCurrent", e))?;
        let stream = device.stream().cu_stream();
        loading("libcublas.so.13", || {
            // SAFETY: a handle is created once and destroyed once; the stream lives as long as the device.
            let (made, set) = unsafe {
                let made = blas::cublasCreate_v2(&mut vendor.blas);
                (made, blas::cublasSetStream_v2(vendor.blas, stream.cast()))
            };
            vendor.blas("cublasCreate", made)?;
            vendor.blas("cublasSetStream", set)
        })?;
        loading("libcusparse.so.12", || {
            // SAFETY: as above.
            let (made, set, matrix) = unsafe {
                let made = sparse::cusparseCreate(&mut vendor.sparse);
                let set = sparse::cusparseSetStream(vendor.sparse, stream.cast());
                (made, set, sparse::cusparseCreateMatDescr(&mut vendor.matrix))
            };
            vendor.sparse("cusparseCreate", made)?;
            vendor.sparse("cusparseSetStream", set)?;
            vendor.sparse("cusparseCreateMatDescr", matrix)
        })?;
        vendor.pinned = Pinned::new(&vendor, PINNED)?;
        Ok(Rc::new(vendor))
    }

    fn error(&self, call: &str, message: String) -> Error {
        Error::Device { device: self.device.info().name.clone(), call: call.into(), message }
    }
    pub fn failure(&self, call: &str, e: cudarc::driver::DriverError) -> Error {
        self.error(call, e.to_string())
    }
    fn blas(&self, call: &str, status: blas::cublasStatus_t) -> Result<()> {
        if status == blas::cublasStatus_t::CUBLAS_STATUS_SUCCESS {
            return Ok(());
        }
        Err(self.error(call, format!("{status:?}")))
    }
    pub fn sparse(&self, call: &str, status: sparse::cusparseStatus_t) -> Result<()> {
        if status == sparse::cusparseStatus_t::CUSPARSE_STATUS_SUCCESS {
            return Ok(());
        }
        Err(self.error(call, format!("{status:?}")))
    }
    /// Creates an event, with or without timing.
    pub fn event(&self, timed: bool) -> Result<CudaEvent> {
        let flags = match timed {
            true => CUevent_flags::CU_EVENT_DEFAULT,
            false => CUevent_flags::CU_EVENT_DISABLE_TIMING,
        };
        let made = self.device.stream().context().new_event(Some(flags));
        made.map_err(|e| self.failure("cuEventCreate", e))
    }
    pub fn handle(&self) -> sparse::cusparseHandle_t {
        self.sparse
    }

    /// Returns the versions of cuBLAS and cuSPARSE in their own numbering.
    pub fn versions(&self) -> (i32, i32) {
        let (mut b, mut s) = (0, 0);
        // SAFETY: each writes one integer.
        unsafe {
            let _ = blas::cublasGetVersion_v2(self.blas, &mut b);
            let _ = sparse::cusparseGetVersion(self.sparse, &mut s);
        }
        (b, s)
    }

    /// Fills memory with a byte: 0, or 0xFF, which makes every f64 a NaN.
    pub fn fill(&self, at: u64, numbers: usize, byte: u8) -> Result<()> {
        let stream = self.device.stream().cu_stream();
        // SAFETY: the caller's buffer holds `numbers` f64 from `at` on.
        let done = unsafe { driver::memset_d8_async(at, byte, 8 * numbers, stream) };
        done.map_err(|e| self.failure("cuMemsetD8Async", e))
    }
    /// Copies f64 on the device.
    pub fn copy(&self, from: u64, to: u64, numbers: usize) -> Result<()> {
        let stream = self.device.stream().cu_stream();
        // SAFETY: both buffers hold `numbers` f64.
        let done = unsafe { driver::memcpy_dtod_async(to, from, 8 * numbers, stream) };
        done.map_err(|e| self.failure("cuMemcpyDtoDAsync", e))
    }
    /// Starts a copy of f64 to pinned memory, at index `at`; [`pinned`](Self::pinned) is valid after a wait.
    pub fn fetch(&self, from: u64, at: usize, numbers: usize) -> Result<()> {
        let stream = self.device.stream().cu_stream();
        // SAFETY: no thread reads the memory before it has waited for the stream; the memory outlives the
        // copy.
        let done = unsafe { driver::memcpy_dtoh_async(self.pinned.write(at, numbers), from, stream) };
        done.map_err(|e| self.failure("cuMemcpyDtoHAsync", e))
    }
    /// Returns a fetched number.
    pub fn pinned(&self, at: usize) -> f64 {
        assert!(at < PINNED);
        // SAFETY: in bounds; the device wrote it before the wait that callers make.
        unsafe { self.pinned.at.add(at).read_volatile() }
    }

    /// Computes y += a x.
    pub fn axpy(&self, n: usize, a: f64, x: u64, y: u64) -> Result<()> {
        // SAFETY: the caller's buffers hold n f64; `a` is read before the call returns.
        let done = unsafe { blas::cublasDaxpy_v2(self.blas, n as i32, &a, x as _, 1, y as _, 1) };
        self.blas("cublasDaxpy", done)
    }
    /// Returns xᵀy on the host; waits. The result arrives in pinned memory.
    pub fn dot(&self, n: usize, x: u64, y: u64) -> Result<f64> {
        // SAFETY: the caller's buffers hold n f64; in host pointer mode the call waits for the result.
        let done = unsafe { blas::cublasDdot_v2(self.blas, n as i32, x as _, 1, y as _, 1, self.pinned.at) };
        self.blas("cublasDdot", done)?;
        Ok(self.pinned(0))
    }
    /// Writes xᵀy to a device address, in stream order.
    pub fn dot_on_device(&self, n: usize, x: u64, y: u64, to: u64) -> Result<()> {
        let (host, device) = (
            blas::cublasPointerMode_t::CUBLAS_POINTER_MODE_HOST,
            blas::cublasPointerMode_t::CUBLAS_POINTER_MODE_DEVICE,
        );
        // SAFETY: the caller's buffers hold n f64, and one at `to`; every other call in this file passes host
        // scalars.
        let (done, back) = unsafe {
            let _ = blas::cublasSetPointerMode_v2(self.blas, device);
            let done = blas::cublasDdot_v2(self.blas, n as i32, x as _, 1, y as _, 1, to as _);
            (done, blas::cublasSetPointerMode_v2(self.blas, host))
        };
        self.blas("cublasDdot", done)?;
        self.blas("cublasSetPointerMode", back)
    }
    /// Returns ‖x‖ on the host; waits.
    pub fn norm(&self, n: usize, x: u64) -> Result<f64> {
        // SAFETY: as for `dot`.
        let done = unsafe { blas::cublasDnrm2_v2(self.blas, n as i32, x as _, 1, self.pinned.at) };
        self.blas("cublasDnrm2", done)?;
        Ok(self.pinned(0))
    }
    /// Computes x *= a.
    pub fn scale(&self, n: usize, a: f64, x: u64) -> Result<()> {
        // SAFETY: the caller's buffer holds n f64.
        let done = unsafe { blas::cublasDscal_v2(self.blas, n as i32, &a, x as _, 1) };
        self.blas("cublasDscal", done)
    }
    /// Computes y = a Vᵀx + b y with `columns` columns of `n` numbers, or y = a V x + b y.
    pub fn gemv(
        &self,
        transposed: bool,
        (n, columns): (usize, usize),
        a: f64,
        v: u64,
        x: u64,
        b: f64,
        y: u64,
    ) -> Result<()> {
        let how = match transposed {
            true => blas::cublasOperation_t::CUBLAS_OP_T,
            false => blas::cublasOperation_t::CUBLAS_OP_N,
        };
        let (m, k) = (n as i32, columns as i32);
        // SAFETY: the caller's buffers hold n·columns, and n and columns f64.
        let done =
            unsafe { blas::cublasDgemv_v2(self.blas, how, m, k, &a, v as _, m, x as _, 1, &b, y as _, 1) };
        self.blas("cublasDgemv", done)
    }
    /// Computes Y = X Cᵀ, where X and Y have `n` rows and s columns, stage by stage, and C (row-major s×s) is
    /// on the device.
    pub fn combine_stages(&self, n: usize, s: usize, x: u64, c: u64, y: u64) -> Result<()> {
        let (m, k) = (n as i32, s as i32);
        let op = blas::cublasOperation_t::CUBLAS_OP_N;
        // Row-major C is Cᵀ by columns, so nothing needs transposing.
        // SAFETY: X and Y hold n·s f64, C holds s².
        let done = unsafe {
            blas::cublasDgemm_v2(self.blas, op, op, m, k, k, &1.0, x as _, m, c as _, k, &0.0, y as _, m)
        };
        self.blas("cublasDgemm", done)
    }

    /// Computes C = Bᵀ A for `count` pairs of matrices with `rows` rows and s columns of `stride` numbers, by
    /// columns. The arrays on the device hold the addresses of every A, B and C.
    pub fn gram_batched(
        &self,
        (rows, s, stride): (usize, usize, usize),
        [a, b, c]: [u64; 3],
        count: usize,
    ) -> Result<()> {
        let (m, k, ld) = (s as i32, rows as i32, stride as i32);
        let (t, op) = (blas::cublasOperation_t::CUBLAS_OP_T, blas::cublasOperation_t::CUBLAS_OP_N);
        let (a, b, c, count) = (a as _, b as _, c as _, count as i32);
        // SAFETY: the caller's arrays have `count` addresses of matrices of these sizes.
        let done = unsafe {
            blas::cublasDgemmBatched(self.blas, t, op, m, m, k, &1.0, b, ld, a, ld, &0.0, c, m, count)
        };
        self.blas("cublasDgemmBatched", done)
    }

    /// Copies numbers to the device; waits.
    pub fn write(&self, x: &[f64], to: u64) -> Result<()> {
        // SAFETY: the caller's buffer holds as many; the copy is waited for.
        let done = unsafe { driver::memcpy_htod_async(to, x, self.device.stream().cu_stream()) };
        done.map_err(|e| self.failure("cuMemcpyHtoDAsync", e))?;
        self.device.wait()
    }
    /// Copies numbers from the device; waits.
    pub fn read(&self, from: &Buffer<f64>) -> Result<Vec<f64>> {
        let mut host = vec![0.0; from.len()];
        self.device.read(from, 0, &mut host)?;
        Ok(host)
    }
    /// Fills a buffer with NaN.
    pub fn poison(&self, buffer: &Buffer<f64>) -> Result<()> {
        self.fill(buffer.pointer(), buffer.len(), 0xFF)
    }

    /// Allocates device memory and fills it with zeros.
    pub fn zeros(&self, n: usize) -> Result<Buffer<f64>> {
        self.device.zeros(n, "a baseline's vector")
    }
}

impl Drop for Vendor {
    fn drop(&mut self) {
        let _ = self.device.wait();
        // SAFETY: each handle was created once, or is null and skipped.
        unsafe {
            if !self.blas.is_null() {
                let _ = blas::cublasDestroy_v2(self.blas);
            }
            if !self.matrix.is_null() {
                let _ = sparse::cusparseDestroyMatDescr(self.matrix);
            }
            if !self.sparse.is_null() {
                let _ = sparse::cusparseDestroy(self.sparse);
            }
        }
    }
}

/// Page-locked numbers on the host that every thread and every GPU of the process may read.
pub(super) struct Pinned {
    at: *mut f64,
    len: usize,
}

// SAFETY: plain memory without an owner thread; the users of a shared one decide who writes when.
unsafe impl Send for Pinned {}
// SAFETY: as above.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// Allocates in the context of the vendor's device.
    pub fn new(vendor: &Vendor, len: usize) -> Result<Self> {
        const PORTABLE: u32 = 1;
        // SAFETY: freed once, in `drop`.
        let at = unsafe { driver::malloc_host((8 * len).max(8), PORTABLE) };
        Ok(Self { at: at.map_err(|e| vendor.failure("cuMemHostAlloc", e))?.cast(), len })
    }
    /// # Safety
    /// Nothing writes the range while the slice lives.
    pub unsafe fn read(&self, from: usize, len: usize) -> &[f64] {
        assert!(from + len <= self.len);
        // SAFETY: in bounds; the caller's promise.
        unsafe { std::slice::from_raw_parts(self.at.add(from), len) }
    }
    /// # Safety
    /// Nothing else reads or writes the range while the slice lives.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn write(&self, from: usize, len: usize) -> &mut [f64] {
        assert!(from + len <= self.len);
        // SAFETY: in bounds; the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.at.add(from), len) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        if !self.at.is_null() {
            // SAFETY: allocated in `new`.
            let _ = unsafe { driver::free_host(self.at.cast()) };
        }
    }
}

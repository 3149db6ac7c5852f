//! Driver calls: finding GPUs, counting allocated memory, streams, graphs, launches.

use super::DRIVER_NEEDED;
pub use super::buffer::Buffer;
use super::buffer::Pool;
use super::compiler::Kernel;
use super::fabric::Watch;
use super::launch::{At, Entry, kernels};
use super::modules::{Ahead, Held, Modules, Wanted};
use super::waiting::milliseconds;
use crate::profile::{self, SetupPart};
use crate::waiting::Taken;
use crate::{Error, Result};
use cudarc::driver::result::DriverError;
use cudarc::driver::sys::{self, CUdevice_attribute as Attribute};
use cudarc::driver::{CudaContext, CudaFunction, CudaModule, CudaStream, DevicePtrMut, DeviceSlice, result};
use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

kernels! {
    READ in "read.cu", |_| vec![read.plain().into()];
    fn read(a: At<[f64; 2]>, out: At<f64>, n: i64);
}

/// Flags of events that record time.
const TIMED: sys::CUevent_flags = sys::CUevent_flags::CU_EVENT_DEFAULT;

/// Properties of a GPU, as `krylith info` prints them.
///
/// # Examples
/// ```
/// match krylith_core::device::cuda::devices() {
///     Ok(all) => {
///         for gpu in all {
///             println!("cuda:{} {} {} GiB", gpu.ordinal, gpu.name, gpu.memory >> 30);
///         }
///     }
///     Err(why) => println!("{why}"), // no driver, an old one, or no GPU, and what to do about it
/// }
/// ```
#[derive(Debug, Clone)]
pub struct DeviceInfo {
    /// Number of the GPU in CUDA's numbering.
    pub ordinal: usize,
    /// Name of the GPU.
    pub name: String,
    /// Compute capability.
    pub arch: (i32, i32),
    /// Size of its memory in bytes.
    pub memory: u64,
}

/// Returns the GPUs of this machine, or the reason why none can be used.
///
/// # Errors
/// No driver, a driver that is too old, or no GPU, each with the remedy.
pub fn devices() -> Result<Vec<DeviceInfo>> {
    static FOUND: OnceLock<std::result::Result<Vec<DeviceInfo>, (String, String)>> = OnceLock::new();
    let found = FOUND.get_or_init(|| quietly(probe).unwrap_or_else(|text| Err((text, old_driver()))));
    found.clone().map_err(|(message, remedy)| Error::Library {
        library: "libcuda.so.1".into(),
        message,
        remedy,
    })
}

/// Returns the UUIDs of the GPUs that this process sees, by ordinal.
///
/// # Errors
/// As [`devices`]; a driver that does not name its GPUs.
pub fn uuids() -> Result<Vec<[u8; 16]>> {
    let failed = |e: DriverError| Error::Device {
        device: "cuda".into(),
        call: "cuDeviceGetUuid".into(),
        message: text(&e),
    };
    let uuid = |info: &DeviceInfo| {
        let device = result::device::get(info.ordinal as i32)?;
        let mut id = sys::CUuuid { bytes: [0; 16] };
        // SAFETY: writes one identifier of a device that the driver returned.
        unsafe { sys::cuDeviceGetUuid_v2(&mut id, device) }.result()?;
        Ok(id.bytes.map(|b| b as u8))
    };
    devices()?.iter().map(uuid).collect::<std::result::Result<_, _>>().map_err(failed)
}

fn old_driver() -> String {
    format!(
        "install NVIDIA driver 525 or newer (CUDA {}.{})",
        DRIVER_NEEDED / 1000,
        DRIVER_NEEDED % 1000 / 10
    )
}

fn probe() -> std::result::Result<Vec<DeviceInfo>, (String, String)> {
    // SAFETY: only looks for the library.
    if !unsafe { sys::is_culib_present() } {
        return Err(("no NVIDIA driver was found".into(), old_driver()));
    }
    result::init().map_err(|e| match e.0 {
        sys::CUresult::CUDA_ERROR_NO_DEVICE => {
            (text(&e), "check CUDA_VISIBLE_DEVICES and `nvidia-smi`".into())
        }
        _ => (format!("the driver failed to start: {}", text(&e)), old_driver()),
    })?;
    let mut version = 0;
    // SAFETY: writes one integer.
    let _ = unsafe { sys::cuDriverGetVersion(&mut version) };
    if version < DRIVER_NEEDED {
        let (major, minor) = (version / 1000, version % 1000 / 10);
        return Err((format!("the driver offers CUDA {major}.{minor}, which is too old"), old_driver()));
    }
    let fail = |e: DriverError| (text(&e), "run `nvidia-smi` to check the driver".to_string());
    let count = result::device::get_count().map_err(fail)?;
    let mut found = Vec::new();
    for ordinal in 0..count as usize {
        let device = result::device::get(ordinal as i32).map_err(fail)?;
        // SAFETY: `device` was returned by the driver.
        let (memory, major, minor) = unsafe {
            (
                result::device::total_mem(device).map_err(fail)?,
                result::device::get_attribute(
                    device,
                    Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                )
                .map_err(fail)?,
                result::device::get_attribute(
                    device,
                    Attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                )
                .map_err(fail)?,
            )
        };
        let name = result::device::get_name(device).map_err(fail)?;
        found.push(DeviceInfo { ordinal, name, arch: (major, minor), memory: memory as u64 });
    }
    if found.is_empty() {
        return Err(("the driver works but sees no GPU".into(), "check CUDA_VISIBLE_DEVICES".into()));
    }
    Ok(found)
}

type Hook = Box<dyn Fn(&std::panic::PanicHookInfo<'_>) + Sync + Send>;

/// Runs `f`, and turns a panic of the loading layer ("Missing symbol …") into its text. Several threads may
/// run this at once: the first one silences the panic hook, the last one restores it.
pub(super) fn quietly<T>(f: impl FnOnce() -> T) -> std::result::Result<T, String> {
    static QUIET: Mutex<(usize, Option<Hook>)> = Mutex::new((0, None));
    let quiet = || QUIET.lock().unwrap_or_else(|e| e.into_inner());
    {
        let mut quiet = quiet();
        if quiet.0 == 0 {
            quiet.1 = Some(std::panic::take_hook());
            std::panic::set_hook(Box::new(|_| {}));
        }
        quiet.0 += 1;
    }
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f));
    {
        let mut quiet = quiet();
        quiet.0 -= 1;
        if quiet.0 == 0
            && let Some(hook) = quiet.1.take()
        {
            std::panic::set_hook(hook);
        }
    }
    done.map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|s| s.to_string())).unwrap_or_default()
    })
}

fn text(e: &DriverError) -> String {
    let text = e.error_string().ok().map(|s| s.to_string_lossy().into_owned());
    text.unwrap_or_else(|| format!("{e:?}"))
}

/// Contexts of this process.
static KEPT: Mutex<Vec<(usize, Arc<CudaContext>)>> = Mutex::new(Vec::new());

/// True if this process has opened a GPU, or is about to.
pub(crate) fn is_open(ordinal: usize) -> bool {
    match KEPT.try_lock() {
        Ok(kept) => kept.iter().any(|(kept, _)| *kept == ordinal),
        Err(_) => true, // another thread is opening one now
    }
}

/// Returns the major version of CUDA that the driver supports; `None` without a usable driver.
pub(super) fn cuda_major() -> Option<i32> {
    devices().ok()?;
    let mut version = 0;
    // SAFETY: writes one integer; the driver was found above.
    let _ = unsafe { sys::cuDriverGetVersion(&mut version) };
    (version > 0).then_some(version / 1000)
}

/// True if the system has the files of a driver. The driver is not started.
pub(crate) fn seems_there() -> bool {
    ["/dev/nvidiactl", "/dev/dxg", "/dev/nvhost-ctrl"].iter().any(|path| std::path::Path::new(path).exists())
}

/// Returns the primary context of a GPU. It is kept until the process ends, because making one takes a
/// quarter of a second.
pub(super) fn context(ordinal: usize) -> std::result::Result<Arc<CudaContext>, DriverError> {
    let mut kept = KEPT.lock().unwrap_or_else(|e| e.into_inner());
    if let Some((_, context)) = kept.iter().find(|(kept, _)| *kept == ordinal) {
        return Ok(context.clone());
    }
    let context = CudaContext::new(ordinal)?;
    kept.push((ordinal, context.clone()));
    Ok(context)
}

/// Addresses of the static texts that make up a kernel, and the number of its variant.
pub(super) type TextKey = [usize; 6];

/// One GPU: its context, a stream, loaded kernels and a count of its allocations.
///
/// # Examples
/// ```
/// use krylith::device::{Cuda, Device};
/// use krylith::operator::Space;
/// match Device::open(0) {
///     Ok(device) => {
///         // Spaces of different lengths share it.
///         let (fine, coarse) = (Cuda::new(&device, 8000)?, Cuda::new(&device, 1000)?);
///         assert_eq!((fine.len(), coarse.len()), (8000, 1000));
///     }
///     Err(why) => println!("{why}"),
/// }
/// # Ok::<(), krylith::Error>(())
/// ```
pub struct Device {
    pub(super) context: Arc<CudaContext>,
    pub(super) stream: Arc<CudaStream>,
    pub(super) info: DeviceInfo,
    multiprocessors: usize,
    modules: Arc<Modules>,
    /// Kernels that are loaded before their first use.
    ahead: Mutex<Option<Ahead>>,
    pub(super) kernels: Mutex<HashMap<Kernel, CudaFunction>>,
    /// Functions of kernels made from a method's text, by the address of that text. Assembling the text
    /// itself takes long.
    by_text: Mutex<HashMap<TextKey, CudaFunction>>,
    pub(super) pool: Arc<Pool>,
    pub(super) allocations: AtomicUsize,
    pub(super) bytes: AtomicU64,
    compiled: AtomicUsize,
    /// Address of the flag that ends guarded launches early, or 0. It belongs to the stream, so every space
    /// on this GPU obeys it.
    guard: AtomicU64,
    pub(super) watch: Mutex<Option<Arc<Watch>>>,
    /// Host threads for work that no kernel does; started at first use.
    pub(super) host: OnceLock<Arc<crate::threads::Pool>>,
    /// Address of the function that was launched last, for error texts.
    pub(super) last: AtomicUsize,
}

impl Device {
    /// Opens GPU `ordinal`.
    ///
    /// # Errors
    /// The errors of [`devices`]; an ordinal that does not exist.
    pub fn open(ordinal: usize) -> Result<Arc<Self>> {
        let all = devices()?;
        let count = all.len();
        let info = all.into_iter().nth(ordinal).ok_or_else(|| {
            Error::invalid(format!("there is no GPU {ordinal}; this machine has {count}, numbered from 0"))
        })?;
        let fail = |call: &str, e: DriverError| failure(&info.name, call, e);
        let context = context(ordinal).map_err(|e| fail("cuDevicePrimaryCtxRetain", e))?;
        // SAFETY: all work of a device goes to one stream, so buffers need no events between streams.
        unsafe { context.disable_event_tracking() };
        let stream = context.new_stream().map_err(|e| fail("cuStreamCreate", e))?;
        let multiprocessors = context
            .attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
            .map_err(|e| fail("cuDeviceGetAttribute", e))? as usize;
        let pool = Pool::of(&context, ordinal);
        let modules = Modules::of(&context, &info.name, info.arch);
        Ok(Arc::new(Self {
            context,
            pool,
            stream,
            info,
            multiprocessors,
            modules,
            ahead: Mutex::default(),
            kernels: Mutex::default(),
            by_text: Mutex::default(),
            allocations: AtomicUsize::new(0),
            bytes: AtomicU64::new(0),
            compiled: AtomicUsize::new(0),
            guard: AtomicU64::new(0),
            watch: Mutex::default(),
            host: OnceLock::new(),
            last: AtomicUsize::new(0),
        }))
    }

    /// Returns the properties of this GPU.
    pub fn info(&self) -> &DeviceInfo {
        &self.info
    }
    /// Number of streaming multiprocessors.
    pub fn multiprocessors(&self) -> usize {
        self.multiprocessors
    }
    /// Number of allocations made so far.
    #[cfg(any(test, feature = "testing"))]
    pub fn allocations(&self) -> usize {
        self.allocations.load(Ordering::Relaxed)
    }
    /// Number of bytes allocated now.
    pub fn bytes_held(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
    /// Address of the flag that ends launches early, or null.
    pub(super) fn halt(&self) -> u64 {
        self.guard.load(Ordering::Relaxed)
    }
    /// Sets the guard of all later launches.
    pub(super) fn set_guard(&self, flag: u64) {
        self.guard.store(flag, Ordering::Relaxed);
    }
    /// Number of kernels loaded so far.
    #[cfg(any(test, feature = "testing"))]
    pub fn kernels_loaded(&self) -> usize {
        self.compiled.load(Ordering::Relaxed)
    }
    /// Returns the stream of all work on this GPU, for other libraries that work on it.
    pub fn stream(&self) -> &Arc<CudaStream> {
        &self.stream
    }

    pub(super) fn check<T>(&self, call: &str, result: std::result::Result<T, DriverError>) -> Result<T> {
        result.map_err(|e| failure(&self.info.name, call, e))
    }

    /// Returns the function of a specialised kernel, which is compiled or loaded at its first use.
    pub(super) fn load(&self, kernel: &Kernel) -> Result<CudaFunction> {
        let kernels = || self.kernels.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(function) = kernels().get(kernel) {
            return Ok(function.clone());
        }
        let _compile = profile::begin_inside(SetupPart::Compile);
        let module = self.modules.load(kernel)?;
        let function = self.check("cuModuleGetFunction", module.load_function(kernel.entry))?;
        self.compiled.fetch_add(1, Ordering::Relaxed);
        kernels().insert(kernel.clone(), function.clone());
        Ok(function)
    }

    /// Starts to compile and load kernels on threads of their own, before their first use. Each `key` is
    /// fetched once per process.
    pub(crate) fn fetch_ahead(&self, key: String, wanted: impl FnOnce() -> Wanted) {
        if self.modules.is_new(key) {
            let ahead = Ahead::fetch(&self.modules, wanted());
            let before = self.ahead.lock().unwrap_or_else(|e| e.into_inner()).replace(ahead);
            drop(before); // waits for its threads, without the lock
        }
    }

    /// Keeps other threads from loading kernels ahead while the returned value lives; see [`Modules::quiet`].
    pub(super) fn quiet(&self) -> Result<Taken<'_>> {
        self.modules.quiet()
    }

    /// Returns the function of a kernel made from static text, which is assembled at its first use.
    pub(super) fn load_text(&self, key: TextKey, kernel: impl FnOnce() -> Kernel) -> Result<CudaFunction> {
        let known = || self.by_text.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(function) = known().get(&key) {
            return Ok(function.clone());
        }
        let function = self.load(&kernel())?; // may take seconds, without the lock
        known().insert(key, function.clone());
        Ok(function)
    }

    /// Returns a module with the given numbers in this constant, shared by all operators of the kernel that
    /// use the same numbers. With `alone` it belongs to a single operator, which is going to change them.
    pub(super) fn module_with(
        &self,
        kernel: &Kernel,
        constant: &str,
        numbers: &[f64],
        alone: bool,
    ) -> Result<Arc<Held>> {
        let _compile = profile::begin_inside(SetupPart::Compile);
        let write = |module: &Arc<CudaModule>| {
            self.compiled.fetch_add(1, Ordering::Relaxed);
            Constant::find(self, module, constant)?.write(self, numbers)?;
            self.wait()
        };
        if alone {
            let held = Held { module: self.modules.load_another(kernel)? };
            write(&held.module)?;
            return Ok(Arc::new(held));
        }
        self.modules.with_numbers(kernel, numbers, write)
    }

    /// True if nothing else holds the module, and nothing can acquire it.
    pub(super) fn is_own(&self, held: &Arc<Held>) -> bool {
        self.modules.is_own(held)
    }

    /// Returns a function of a module.
    pub(super) fn entry(&self, module: &Arc<CudaModule>, name: &str) -> Result<CudaFunction> {
        self.check("cuModuleGetFunction", module.load_function(name))
    }

    /// Bytes of shared memory that a thread block may use.
    pub(super) fn shared_memory(&self) -> usize {
        let attribute = Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN;
        self.context.attribute(attribute).map_or(48 << 10, |n| n as usize)
    }

    /// Lets a function use `shared` bytes, and returns how many thread blocks then fit on a multiprocessor.
    /// Limits set earlier by other holders of the function stay valid.
    pub(super) fn allow_shared(
        &self,
        function: &CudaFunction,
        threads: usize,
        shared: usize,
    ) -> Result<usize> {
        let attribute = sys::CUfunction_attribute_enum::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
        let allowed = self.check("cuFuncGetAttribute", function.get_attribute(attribute))?;
        if shared as i32 > allowed {
            self.check("cuFuncSetAttribute", function.set_attribute(attribute, shared as i32))?;
        }
        let resident = function.occupancy_max_active_blocks_per_multiprocessor(threads as u32, shared, None);
        self.check("cuOccupancyMaxActiveBlocksPerMultiprocessor", resident).map(|n| (n as usize).max(1))
    }

    /// Returns the free memory of the GPU in bytes.
    pub fn free_memory(&self) -> Result<u64> {
        let (free, _) = self.check("cuMemGetInfo", self.context.mem_get_info())?;
        Ok(free as u64 + self.pool.idle())
    }

    /// Measures the read bandwidth of this GPU's memory in bytes per second; reported shares of bandwidth
    /// refer to it.
    ///
    /// The result is that of the fastest of 20 passes over 1 GB, or over a quarter of the free memory.
    ///
    /// # Errors
    /// Out of device memory; a missing NVRTC.
    pub fn read_bandwidth(self: &Arc<Self>) -> Result<f64> {
        let pairs = (self.free_memory()? / 4).min(1 << 30) as usize / 16;
        let (data, out) =
            (self.zeros::<[f64; 2]>(pairs, "a bandwidth measurement")?, self.zeros::<f64>(1, "a sum")?);
        let function = self.function(&read.plain())?;
        let mut best = f64::INFINITY;
        for _ in 0..20 {
            self.wait()?;
            let start = self.check("cuEventRecord", self.stream.record_event(Some(TIMED)))?;
            let grid = 16 * self.multiprocessors;
            function.on(self, grid, 512).run(&data, &out, pairs as i64)?;
            let end = self.check("cuEventRecord", self.stream.record_event(Some(TIMED)))?;
            self.wait()?;
            let milliseconds = milliseconds(self, &start, &end)?;
            best = best.min(milliseconds as f64 * 1e-3);
        }
        Ok(16.0 * pairs as f64 / best)
    }

    /// Returns a stream besides the main one.
    pub(super) fn second_stream(&self) -> Result<Arc<CudaStream>> {
        self.check("cuStreamCreate", self.context.new_stream())
    }

    /// Makes later work in `other` wait for the work that is in the main stream now.
    pub(super) fn fork(&self, other: &CudaStream) -> Result<()> {
        let event = self.check("cuEventRecord", self.stream.record_event(None))?;
        self.check("cuStreamWaitEvent", other.wait(&event))
    }

    /// Makes later work in the main stream wait for the work that is in `other` now.
    pub(super) fn join(&self, other: &CudaStream) -> Result<()> {
        let event = self.check("cuEventRecord", other.record_event(None))?;
        self.check("cuStreamWaitEvent", self.stream.wait(&event))
    }

    /// Makes this device current on the calling thread.
    pub(super) fn bind(&self) -> Result<()> {
        self.check("cuCtxSetCurrent", self.context.bind_to_thread())
    }

    /// Turns the result of a raw call into a `Result`.
    pub(super) fn driver(&self, call: &str, code: sys::CUresult) -> Result<()> {
        self.check(call, code.result())
    }

    /// Returns the UUID of this GPU.
    pub(super) fn uuid(&self) -> Result<[u8; 16]> {
        let id = self.check("cuDeviceGetUuid", self.context.uuid())?;
        Ok(id.bytes.map(|b| b as u8))
    }

    /// Address of the primary context, for threads of this process.
    pub(super) fn context_pointer(&self) -> usize {
        self.context.cu_ctx() as usize
    }

    /// True if this GPU can read and write the memory of the GPU with this UUID.
    pub(super) fn can_access(&self, uuid: &[u8]) -> bool {
        let count = result::device::get_count().unwrap_or(0);
        (0..count).filter_map(|i| result::device::get(i).ok()).any(|other| {
            let mut id = sys::CUuuid { bytes: [0; 16] };
            // SAFETY: writes one identifier of a device that the driver returned.
            let known = unsafe { sys::cuDeviceGetUuid_v2(&mut id, other) } == sys::CUresult::CUDA_SUCCESS;
            let same = id.bytes.iter().zip(uuid).all(|(a, b)| *a as u8 == *b);
            let mut can = 0;
            // SAFETY: writes one integer.
            known
                && same
                && unsafe { sys::cuDeviceCanAccessPeer(&mut can, self.context.cu_device(), other) }
                    == sys::CUresult::CUDA_SUCCESS
                && can == 1
        })
    }

    /// Launches a kernel in a stream of this device.
    ///
    /// # Safety
    /// `arguments` must point to values of the kernel's parameter types.
    pub(super) unsafe fn launch_in(
        &self,
        stream: &CudaStream,
        function: &CudaFunction,
        grid: usize,
        block: usize,
        shared: usize,
        arguments: &mut [*mut c_void],
    ) -> Result<()> {
        let (grid, block) = ((grid as u32, 1, 1), (block as u32, 1, 1));
        self.last.store(function.cu_function() as usize, Ordering::Relaxed);
        // SAFETY: guaranteed by the caller.
        let done = unsafe {
            result::launch_kernel(
                function.cu_function(),
                grid,
                block,
                shared as u32,
                stream.cu_stream(),
                arguments,
            )
        };
        self.check("cuLaunchKernel", done)
    }
}

/// A constant of a module, written in stream order.
pub(super) struct Constant {
    pointer: sys::CUdeviceptr,
    bytes: usize,
    _module: Arc<CudaModule>,
}

impl Constant {
    pub(super) fn find(device: &Device, module: &Arc<CudaModule>, name: &str) -> Result<Self> {
        let mut symbol = device.check("cuModuleGetGlobal", module.get_global(name, &device.stream))?;
        let bytes = symbol.num_bytes();
        let pointer = symbol.device_ptr_mut(&device.stream).0;
        Ok(Self { pointer, bytes, _module: module.clone() })
    }

    pub(super) fn write(&self, device: &Device, host: &[f64]) -> Result<()> {
        assert!(size_of_val(host) <= self.bytes);
        // SAFETY: in bounds by the check above.
        device.check("cuMemcpyHtoDAsync", unsafe {
            result::memcpy_htod_async(self.pointer, host, device.stream.cu_stream())
        })
    }
}

/// Returns a driver's error with the device and the call.
pub(super) fn failure(device: &str, call: &str, e: DriverError) -> Error {
    Error::Device { device: device.into(), call: call.into(), message: text(&e) }
}

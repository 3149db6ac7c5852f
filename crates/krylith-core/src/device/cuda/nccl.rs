//! NCCL, found at run time: sums and messages between GPUs that cannot store into each other's memory.
//!
//! The file has three layers, since few calls are needed: the library's functions, their results, and
//! [`Nccl`].

use super::driver::Device;
use crate::comm::{Communicator, gather};
use crate::{Error, Result};
use cudarc::driver::sys::CUstream;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::{Arc, OnceLock};

type Handle = *mut c_void;
type Code = c_int;

/// `ncclUniqueId`.
#[repr(C)]
#[derive(Clone, Copy)]
struct UniqueId([u8; 128]);

/// `ncclFloat64` and `ncclSum`.
const FLOAT64: c_int = 8;
const SUM: c_int = 0;

/// The functions in use, with NCCL's own signatures (2.x).
struct Library {
    get_unique_id: unsafe extern "C" fn(*mut UniqueId) -> Code,
    init_rank: unsafe extern "C" fn(*mut Handle, c_int, UniqueId, c_int) -> Code,
    all_reduce:
        unsafe extern "C" fn(*const c_void, *mut c_void, usize, c_int, c_int, Handle, CUstream) -> Code,
    send: unsafe extern "C" fn(*const c_void, usize, c_int, c_int, Handle, CUstream) -> Code,
    receive: unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, Handle, CUstream) -> Code,
    group_start: unsafe extern "C" fn() -> Code,
    group_end: unsafe extern "C" fn() -> Code,
    abort: unsafe extern "C" fn(Handle) -> Code,
    destroy: unsafe extern "C" fn(Handle) -> Code,
    error: unsafe extern "C" fn(Code) -> *const c_char,
    version: unsafe extern "C" fn(*mut c_int) -> Code,
}

impl Library {
    fn load() -> std::result::Result<Self, String> {
        // SAFETY: loading a library runs its initialisers; NCCL's have no precondition.
        let library = unsafe { libc::dlopen(c"libnccl.so.2".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return Err(last_error());
        }
        macro_rules! find {
            ($name:literal) => {{
                // SAFETY: the library is open and stays open.
                let symbol = unsafe { libc::dlsym(library, $name.as_ptr()) };
                if symbol.is_null() {
                    return Err(last_error());
                }
                // SAFETY: the signatures above are those of NCCL 2's header.
                unsafe { std::mem::transmute_copy::<*mut c_void, _>(&symbol) }
            }};
        }
        Ok(Self {
            get_unique_id: find!(c"ncclGetUniqueId"),
            init_rank: find!(c"ncclCommInitRank"),
            all_reduce: find!(c"ncclAllReduce"),
            send: find!(c"ncclSend"),
            receive: find!(c"ncclRecv"),
            group_start: find!(c"ncclGroupStart"),
            group_end: find!(c"ncclGroupEnd"),
            abort: find!(c"ncclCommAbort"),
            destroy: find!(c"ncclCommDestroy"),
            error: find!(c"ncclGetErrorString"),
            version: find!(c"ncclGetVersion"),
        })
    }

    fn get() -> Result<&'static Self> {
        static LIBRARY: OnceLock<std::result::Result<Library, String>> = OnceLock::new();
        LIBRARY.get_or_init(Self::load).as_ref().map_err(|message| Error::Library {
            library: "libnccl.so.2".into(),
            message: message.clone(),
            remedy: "install NCCL 2 (package libnccl2, or nvidia-nccl-cu13 from PyPI with its lib folder on LD_LIBRARY_PATH)"
                .into(),
        })
    }
}

fn last_error() -> String {
    // SAFETY: dlerror gives a string or null.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "it cannot be loaded".into();
    }
    // SAFETY: not null, and ended by a zero.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Returns NCCL's version, such as 22803, or the reason why it cannot be used.
///
/// # Errors
/// The library is missing.
pub fn nccl_version() -> Result<i32> {
    let (library, mut version) = (Library::get()?, 0);
    // SAFETY: writes one integer.
    unsafe { (library.version)(&mut version) };
    Ok(version)
}

/// One rank's end of an NCCL communicator.
///
/// # Examples
/// A [`Fabric`](super::Fabric) makes one where ranks need it. The installed version:
/// ```
/// match krylith_core::device::cuda::nccl_version() {
///     Ok(version) => println!("NCCL {}.{}", version / 10_000, version / 100 % 100),
///     Err(why) => println!("{why}"), // which library is missing, and where to get it
/// }
/// ```
pub struct Nccl {
    library: &'static Library,
    handle: Handle,
    device: Arc<Device>,
    aborted: std::sync::atomic::AtomicBool,
}

// SAFETY: NCCL allows calls on one communicator from any thread, one at a time; only `abort` may run beside
// others.
unsafe impl Send for Nccl {}
// SAFETY: as above.
unsafe impl Sync for Nccl {}

impl Nccl {
    /// Joins the ranks of `comm`. Collective.
    ///
    /// # Errors
    /// The library is missing on a rank; NCCL fails, for example with two ranks on one GPU.
    pub fn new(device: &Arc<Device>, comm: &dyn Communicator) -> Result<Self> {
        let library = Library::get();
        let library = crate::comm::agree(comm, library)?;
        let mut id = UniqueId([0; 128]);
        if comm.rank() == 0 {
            // SAFETY: writes one identifier.
            check(library, device, "ncclGetUniqueId", unsafe { (library.get_unique_id)(&mut id) })?;
        }
        let all = gather(comm, &id.0)?;
        id.0.copy_from_slice(&all[0]);
        device.bind()?;
        let mut handle = std::ptr::null_mut();
        let (size, rank) = (comm.size() as c_int, comm.rank() as c_int);
        // SAFETY: writes one handle; every rank calls it with the same identifier.
        let code = unsafe { (library.init_rank)(&mut handle, size, id, rank) };
        check(library, device, "ncclCommInitRank", code)?;
        Ok(Self { library, handle, device: device.clone(), aborted: false.into() })
    }

    fn check(&self, call: &str, code: Code) -> Result<()> {
        check(self.library, &self.device, call, code)
    }

    /// Sums `n` numbers at a device address over the ranks, in stream order.
    pub(super) fn sum(&self, values: u64, n: usize) -> Result<()> {
        let stream = self.device.stream().cu_stream();
        let at = values as *mut c_void;
        // SAFETY: the caller's buffer holds n numbers and lives until the stream is done.
        let code =
            unsafe { (self.library.all_reduce)(at.cast_const(), at, n, FLOAT64, SUM, self.handle, stream) };
        self.check("ncclAllReduce", code)
    }

    /// Sends and receives all messages at once: each is (rank, address, number of values).
    pub(super) fn exchange(
        &self,
        stream: CUstream,
        send: impl Iterator<Item = (usize, u64, usize)>,
        receive: impl Iterator<Item = (usize, u64, usize)>,
    ) -> Result<()> {
        // SAFETY: no precondition.
        self.check("ncclGroupStart", unsafe { (self.library.group_start)() })?;
        for (rank, at, n) in send.filter(|m| m.2 > 0) {
            let (at, rank) = (at as *const c_void, rank as c_int);
            // SAFETY: the buffer holds n numbers and lives until the stream is done.
            let code = unsafe { (self.library.send)(at, n, FLOAT64, rank, self.handle, stream) };
            self.check("ncclSend", code)?;
        }
        for (rank, at, n) in receive.filter(|m| m.2 > 0) {
            let (at, rank) = (at as *mut c_void, rank as c_int);
            // SAFETY: as above.
            let code = unsafe { (self.library.receive)(at, n, FLOAT64, rank, self.handle, stream) };
            self.check("ncclRecv", code)?;
        }
        // SAFETY: closes the group that was opened above.
        self.check("ncclGroupEnd", unsafe { (self.library.group_end)() })
    }

    /// Sums as [`Fabric`](super::Fabric) does, for baselines.
    ///
    /// # Errors
    /// The error of NCCL.
    ///
    /// # Safety
    /// The address must hold `n` f64 until the device's stream is done.
    pub unsafe fn sum_at(&self, values: u64, n: usize) -> Result<()> {
        self.sum(values, n)
    }

    /// Exchanges messages as [`Fabric`](super::Fabric) does, for baselines: each is (rank, address, number of
    /// values).
    ///
    /// # Errors
    /// The error of NCCL.
    ///
    /// # Safety
    /// The addresses must hold that many f64 until `stream`, one of this device, is done.
    pub unsafe fn exchange_at(
        &self,
        stream: CUstream,
        send: impl Iterator<Item = (usize, u64, usize)>,
        receive: impl Iterator<Item = (usize, u64, usize)>,
    ) -> Result<()> {
        self.exchange(stream, send, receive)
    }

    /// Aborts pending operations, so that the stream drains although a rank is lost. Any thread may call
    /// this.
    pub fn abort(&self) {
        if !self.aborted.swap(true, std::sync::atomic::Ordering::SeqCst) {
            // SAFETY: once; the handle is not used afterwards.
            unsafe { (self.library.abort)(self.handle) };
        }
    }
}

impl Drop for Nccl {
    fn drop(&mut self) {
        if !self.aborted.load(std::sync::atomic::Ordering::SeqCst) && self.device.bind().is_ok() {
            // SAFETY: once; nothing of it is under way any more.
            unsafe { (self.library.destroy)(self.handle) };
        }
    }
}

fn check(library: &Library, device: &Device, call: &str, code: Code) -> Result<()> {
    if code == 0 {
        return Ok(());
    }
    // SAFETY: gives a constant string for any code.
    let text = unsafe { CStr::from_ptr((library.error)(code)) }.to_string_lossy().into_owned();
    Err(Error::Device { device: device.info().name.clone(), call: call.into(), message: text })
}

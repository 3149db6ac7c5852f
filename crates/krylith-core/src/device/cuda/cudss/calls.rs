//! Calls of cuDSS: its handles, parameters, phases and results.

use super::library::{Code, Handle, Library};
use crate::device::cuda::Device;
use crate::interrupt::{self, Limits};
use crate::waiting::gpus_are_given_up;
use crate::{Error, Result};
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

// Constants of cuDSS's headers, the same from 0.8 to 1.0: types of numbers, parameters, phases, results.
const F64: c_int = 1;
const I32: c_int = 10;
const I64: c_int = 24;
pub(super) mod config {
    pub const MATCHING: i32 = 3;
    pub const SOLVE_MODE: i32 = 4;
    pub const HYBRID_MEMORY: i32 = 11;
    pub const HYBRID_LIMIT: i32 = 12;
    pub const HOST_THREADS: i32 = 14;
    pub const LEVELS: i32 = 17;
    pub const BATCH: i32 = 18;
    pub const DEVICES: i32 = 21;
    pub const DEVICE_NUMBERS: i32 = 22;
}
pub(super) mod data {
    pub const INFO: i32 = 0;
    pub const NUMBERS: i32 = 1;
    pub const REPLACED: i32 = 2;
    pub const ORDER: i32 = 9;
    pub const PARTS: i32 = 21;
    pub const INTERRUPT: i32 = 23;
}
pub(super) mod phase {
    pub const ANALYSIS: i32 = 3;
    pub const FACTORS: i32 = 4;
    pub const NEW_FACTORS: i32 = 8;
    pub const SOLVE: i32 = 0x3f0;
}
pub(super) const OUT_OF_MEMORY: Code = 2;
/// Matching algorithms: none, and that of the largest product on the diagonal.
pub(super) const NO_MATCHING: c_int = 0;
pub(super) const LARGEST_PRODUCT: c_int = 5;
/// Time between two looks at the limits of the caller's work.
const LOOK: Duration = Duration::from_millis(10);
/// What is allocated, in error texts.
pub(super) const WHAT: &str = "direct factors on the GPU";

/// The handles of one set of factors.
pub(super) struct Calls {
    pub library: &'static Library,
    handle: Handle,
    config: Handle,
    data: Handle,
    /// A number other than 0 ends a phase; the library keeps this address.
    interrupt: Box<AtomicI32>,
}

impl Calls {
    /// Makes handles for one GPU, or for several: the numbers of the others.
    pub fn new(library: &'static Library, device: &Device, others: &[usize]) -> Result<Self> {
        device.bind()?;
        let mut calls = Self {
            library,
            handle: null_mut(),
            config: null_mut(),
            data: null_mut(),
            interrupt: Box::new(AtomicI32::new(0)),
        };
        let all = std::iter::once(&device.info().ordinal).chain(others);
        let numbers: Vec<c_int> = all.map(|&number| number as c_int).collect();
        // SAFETY: each call writes one handle, or uses those that calls before it wrote.
        unsafe {
            let (count, own) = (numbers.len() as c_int, device.stream().cu_stream());
            if count > 1 {
                let code = (library.create_mg)(&mut calls.handle, count, numbers.as_ptr());
                check(device, "cudssCreateMg", code)?;
                // Other GPUs use their default streams, and the library orders them after this one.
                let mut streams = vec![null_mut(); numbers.len()];
                streams[0] = own;
                let code = (library.set_streams)(calls.handle, streams.as_ptr(), count);
                check(device, "cudssSetMgStreams", code)?;
            } else {
                let code = (library.create)(&mut calls.handle);
                check(device, "cudssCreate", code)?;
                let code = (library.set_stream)(calls.handle, own);
                check(device, "cudssSetStream", code)?;
            }
            if let Some(threads) = &library.threads {
                // Without its library of threads, the analysis takes one thread.
                (library.set_threading)(calls.handle, threads.as_ptr());
            }
            let code = (library.config_create)(&mut calls.config);
            check(device, "cudssConfigCreate", code)?;
            let code = (library.data_create)(calls.handle, &mut calls.data);
            check(device, "cudssDataCreate", code)?;
            let flag: *const AtomicI32 = &*calls.interrupt;
            // An older library without this parameter cannot be interrupted, and with several GPUs none can.
            if numbers.len() == 1 {
                (library.data_set)(
                    calls.handle,
                    calls.data,
                    data::INTERRUPT,
                    flag.cast(),
                    size_of::<c_int>(),
                );
            }
        }
        calls.set(config::HOST_THREADS, rayon::current_num_threads() as c_int);
        if numbers.len() > 1 {
            calls.set(config::DEVICES, numbers.len() as c_int);
            let bytes = size_of_val(&numbers[..]);
            // SAFETY: reads this many bytes.
            let code = unsafe {
                (library.config_set)(calls.config, config::DEVICE_NUMBERS, numbers.as_ptr().cast(), bytes)
            };
            check(device, "cudssConfigSet (numbers of GPUs)", code)?;
        }
        Ok(calls)
    }

    /// Sets an integer parameter. A version that lacks it ignores it.
    pub fn set(&self, parameter: i32, value: c_int) {
        // SAFETY: reads one integer.
        unsafe {
            (self.library.config_set)(self.config, parameter, (&raw const value).cast(), size_of::<c_int>());
        }
    }

    /// Sets a number of bytes.
    pub fn set_bytes(&self, parameter: i32, bytes: u64) {
        let value = bytes as i64;
        // SAFETY: reads one integer.
        unsafe {
            (self.library.config_set)(self.config, parameter, (&raw const value).cast(), size_of::<i64>());
        }
    }

    /// Gives the library an array on the host, which it copies.
    pub fn give(&self, parameter: i32, numbers: &[u32]) -> Code {
        let bytes = size_of_val(numbers);
        // SAFETY: reads this many bytes.
        unsafe { (self.library.data_set)(self.handle, self.data, parameter, numbers.as_ptr().cast(), bytes) }
    }

    /// Reads a number of the library; `None` if it has none.
    pub fn get<T: Default>(&self, parameter: i32) -> Option<T> {
        let (mut value, mut written) = (T::default(), 0);
        let to = (&raw mut value).cast::<c_void>();
        // SAFETY: writes at most the bytes of the value.
        let code = unsafe {
            (self.library.data_get)(self.handle, self.data, parameter, to, size_of::<T>(), &mut written)
        };
        (code == 0 && written == size_of::<T>()).then_some(value)
    }

    /// Describes a scalar matrix of `entries` entries whose row pointers, columns and values are at these
    /// addresses, of a type and the part of it that is read.
    pub fn csr(
        &self,
        device: &Device,
        n: usize,
        entries: usize,
        arrays: [u64; 3],
        (kind, view): (c_int, c_int),
    ) -> Result<Handle> {
        let mut handle = null_mut();
        let [row_ptr, col, values] = arrays.map(|at| at as *const c_void);
        let (n, entries, none) = (n as i64, entries as i64, std::ptr::null());
        let create = self.library.create_csr;
        // SAFETY: writes one handle.
        let code = unsafe {
            create(&mut handle, n, n, entries, row_ptr, none, col, values, I64, I32, F64, kind, view, 0)
        };
        check(device, "cudssMatrixCreateCsr", code)?;
        Ok(handle)
    }

    /// Describes `count` vectors of n numbers that follow one another at an address.
    pub fn dense(&self, device: &Device, n: usize, count: usize, at: u64) -> Result<Handle> {
        let (mut handle, n) = (null_mut(), n as i64);
        // SAFETY: writes one handle.
        let code = unsafe {
            (self.library.create_dense)(&mut handle, n, count as i64, n, at as *const c_void, F64, 0)
        };
        check(device, "cudssMatrixCreateDn", code)?;
        Ok(handle)
    }

    /// Sets the address of the numbers of a matrix or of vectors.
    pub fn set_values(&self, device: &Device, handle: Handle, at: u64) -> Result<()> {
        // SAFETY: stores the address.
        check(device, "cudssMatrixSetValues", unsafe {
            (self.library.set_values)(handle, at as *const c_void)
        })
    }

    pub fn destroy_matrix(&self, handle: Handle) {
        if !handle.is_null() && !gpus_are_given_up() {
            // SAFETY: created once, and used no more.
            unsafe { (self.library.destroy_matrix)(handle) };
        }
    }

    /// Runs phases.
    pub fn run(&self, phases: c_int, a: Handle, [b, x]: [Handle; 2]) -> Code {
        // SAFETY: handles of this library, whose arrays live as long as the factors.
        unsafe { (self.library.execute)(self.handle, phases, self.config, self.data, a, x, b) }
    }

    /// Runs phases, and ends them early if the limits of the caller's work are reached.
    pub fn execute(&self, phases: c_int, a: Handle, vectors: [Handle; 2]) -> Result<Code> {
        let run = || self.run(phases, a, vectors);
        let Some(limits) = interrupt::limits() else { return Ok(run()) };
        limits.check()?;
        let code = self.watched(&limits, run);
        self.interrupt.store(0, Ordering::Relaxed);
        limits.check()?;
        Ok(code)
    }

    fn watched(&self, limits: &Limits, run: impl FnOnce() -> Code) -> Code {
        let (done, flag) = (AtomicBool::new(false), &*self.interrupt);
        std::thread::scope(|scope| {
            let watch = scope.spawn(|| {
                while !done.load(Ordering::Acquire) {
                    if limits.reached().is_some() {
                        flag.store(1, Ordering::Relaxed);
                    }
                    std::thread::park_timeout(LOOK);
                }
            });
            let code = run();
            done.store(true, Ordering::Release);
            watch.thread().unpark();
            code
        })
    }
}

impl Drop for Calls {
    fn drop(&mut self) {
        if gpus_are_given_up() {
            return; // freeing memory would wait for the GPU
        }
        // SAFETY: each handle was created once and is used no more.
        unsafe {
            if !self.data.is_null() {
                (self.library.data_destroy)(self.handle, self.data);
            }
            if !self.config.is_null() {
                (self.library.config_destroy)(self.config);
            }
            if !self.handle.is_null() {
                (self.library.destroy)(self.handle);
            }
        }
    }
}

/// Returns the error of a call.
pub(super) fn check(device: &Device, call: &str, code: Code) -> Result<()> {
    match code {
        0 => Ok(()),
        OUT_OF_MEMORY => Err(too_large(device, 0)),
        code => Err(Error::Device {
            device: device.info().name.clone(),
            call: call.into(),
            message: meaning(code).into(),
        }),
    }
}

/// Binds the context of the GPU to this thread, and waits until arrays that the library will read on other
/// streams are complete.
pub(super) fn device_idle(device: &Device) -> Result<()> {
    device.bind()?;
    device.wait()
}

/// Returns the error of factors that do not fit into the memory of a GPU.
pub(super) fn too_large(device: &Device, needed: u64) -> Error {
    Error::Memory {
        what: WHAT.into(),
        needed,
        free: device.free_memory().unwrap_or(0),
        place: device.info().name.clone(),
        remedy: "lu:on=host takes host memory instead; or try another preconditioner",
    }
}

/// Returns the meaning of a result.
pub(super) fn meaning(code: Code) -> &'static str {
    match code {
        1 => "not initialised",
        2 => "out of memory",
        3 => "invalid value",
        4 => "not supported",
        5 => "execution failed",
        6 => "internal error",
        7 => "refinement failed",
        _ => "unknown error",
    }
}

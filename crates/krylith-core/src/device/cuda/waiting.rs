//! Bounded waits for a GPU, which also end when the GPU itself waits for other ranks and one of them is lost.
//!
//! The driver's own waits have no time limit, so a stream or an event is polled; see [`waiting`] for the
//! interval.
//!
//! A GPU that waits for others is polled, and the communicator is asked about their ranks. If one is gone, a
//! word in pinned memory or `ncclCommAbort` ends the kernels that wait.

use super::driver::Device;
use super::fabric::Watch;
use crate::waiting;
use crate::{Error, Result};
use cudarc::driver::CudaEvent;
use cudarc::driver::sys;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Interval at which a wait checks that the other ranks are alive.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// Time that a stream may take to drain after everything that waits was told to give up.
const DRAIN: Duration = Duration::from_secs(5);

/// Returns the milliseconds between two events that record times and have happened.
///
/// The bindings call the second version of the function, which drivers before 570 lack.
pub(super) fn milliseconds(device: &Device, start: &CudaEvent, end: &CudaEvent) -> Result<f32> {
    type Elapsed = unsafe extern "C" fn(*mut f32, sys::CUevent, sys::CUevent) -> sys::CUresult;
    static FOUND: OnceLock<Option<Elapsed>> = OnceLock::new();
    let found = FOUND.get_or_init(|| {
        // SAFETY: looks for a function of the driver, which is loaded and stays loaded; it has this
        // signature.
        unsafe {
            let driver = libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
            let function =
                if driver.is_null() { driver } else { libc::dlsym(driver, c"cuEventElapsedTime".as_ptr()) };
            (!function.is_null()).then(|| std::mem::transmute_copy::<_, Elapsed>(&function))
        }
    });
    let Some(elapsed) = found else {
        return Err(failure_text(
            &device.info().name,
            "cuEventElapsedTime",
            "the driver has no such function",
        ));
    };
    let mut milliseconds = 0.0;
    // SAFETY: writes one number; two live events.
    let code = unsafe { elapsed(&mut milliseconds, start.cu_event(), end.cu_event()) };
    device.driver("cuEventElapsedTime", code)?;
    Ok(milliseconds)
}

impl Device {
    /// Waits for the stream. Where the stream may wait for other ranks, the loss of a rank ends the wait.
    ///
    /// # Errors
    /// A failure of the device; a lost rank.
    pub fn wait(&self) -> Result<()> {
        let watch = self.watch.lock().unwrap_or_else(|e| e.into_inner()).clone();
        match watch {
            None => self.wait_for_stream(self.stream().cu_stream(), "its stream"),
            // SAFETY: a stream of this device.
            Some(watch) => {
                self.wait_for_ranks(&watch, &|| unsafe { sys::cuStreamQuery(self.stream().cu_stream()) })
            }
        }
    }

    /// Waits for a live stream in the context of this GPU; `name` describes it in errors.
    fn wait_for_stream(&self, stream: sys::CUstream, name: &str) -> Result<()> {
        self.bind()?;
        // SAFETY: the caller's promise that the stream is alive.
        self.wait_until_done("cuStreamQuery", name, &|| unsafe { sys::cuStreamQuery(stream) })
    }

    /// Waits for a live event.
    pub(super) fn wait_for_event(&self, event: sys::CUevent) -> Result<()> {
        self.bind()?;
        // SAFETY: the caller's promise that the event is alive.
        self.wait_until_done("cuEventQuery", "an event of its stream", &|| unsafe {
            sys::cuEventQuery(event)
        })
    }

    fn wait_until_done(&self, call: &str, name: &str, query: &dyn Fn() -> sys::CUresult) -> Result<()> {
        let what = || format!("{}, {name}: {}", self.info().name, self.last_launch());
        match until_done(&what, query) {
            Some(code) => self.driver(call, code),
            None => Err(waiting::late(&what(), waiting::limit())),
        }
    }

    /// Describes the last launch in words.
    fn last_launch(&self) -> String {
        let kernels = self.kernels.lock().unwrap_or_else(|e| e.into_inner());
        match self.last.load(Relaxed) {
            NOTHING => "nothing was launched".into(),
            GRAPH => "the last launch was a recorded batch".into(),
            last => {
                let known = kernels.iter().find(|(_, function)| function.cu_function() as usize == last);
                known.map_or("the last launch was a product's kernel".into(), |(kernel, _)| {
                    format!("the last launch was {} of {}", kernel.entry, kernel.file)
                })
            }
        }
    }

    fn wait_for_ranks(&self, watch: &Watch, query: &dyn Fn() -> sys::CUresult) -> Result<()> {
        let begin = Instant::now();
        let (mut looked, mut given_up, mut lost) = (begin, begin, None);
        loop {
            match query() {
                sys::CUresult::CUDA_ERROR_NOT_READY => {}
                code => {
                    let done = self.driver("a wait for other ranks", code);
                    return lost.map_or(done, Err);
                }
            }
            let now = Instant::now();
            if now - looked < LOOK_EVERY {
                std::thread::yield_now();
                continue;
            }
            looked = now;
            lost = match lost {
                None => {
                    let over = now - begin > Duration::from_secs_f64(watch.seconds);
                    let why = watch.comm.check().err().or_else(|| {
                        let late = "the GPU did not finish in time";
                        over.then(|| failure_text(&self.info().name, "cuStreamQuery", late))
                    });
                    if why.is_some() {
                        watch.give_up();
                        given_up = now;
                    }
                    why
                }
                Some(why) if now - given_up > DRAIN => {
                    waiting::give_up_gpus();
                    return Err(why);
                }
                why => why,
            };
        }
    }

    /// Ends the checks for other ranks, unless another fabric has replaced this one.
    pub(super) fn forget(&self, own: &Arc<Watch>) {
        let mut watch = self.watch.lock().unwrap_or_else(|e| e.into_inner());
        if watch.as_ref().is_some_and(|now| Arc::ptr_eq(now, own)) {
            *watch = None;
        }
    }

    /// Sets what later waits check.
    pub(super) fn watch(&self, watch: Option<Arc<Watch>>) {
        *self.watch.lock().unwrap_or_else(|e| e.into_inner()) = watch;
    }
}

/// Returns the final result of a query; `None` if the GPU does not finish in time.
fn until_done(what: &dyn Fn() -> String, query: &dyn Fn() -> sys::CUresult) -> Option<sys::CUresult> {
    let done = waiting::poll(waiting::limit(), what, || {
        Some(query()).filter(|code| *code != sys::CUresult::CUDA_ERROR_NOT_READY)
    });
    if done.is_none() {
        waiting::give_up_gpus();
    }
    done
}

/// Waits for a live stream of the caller, whose context is current.
pub(super) fn wait_for_caller(stream: sys::CUstream) -> Result<sys::CUresult> {
    let what = || "the stream of the caller's array".to_string();
    // SAFETY: the caller's promise that the stream is alive.
    let done = until_done(&what, &|| unsafe { sys::cuStreamQuery(stream) });
    done.ok_or_else(|| waiting::late(&what(), waiting::limit()))
}

/// [`Device::last`] before the first launch.
const NOTHING: usize = 0;
/// [`Device::last`] after the launch of a graph.
pub(super) const GRAPH: usize = 1;

/// A point in the stream for which the host can wait.
pub(super) struct Event(CudaEvent);

impl Event {
    pub(super) fn new(device: &Device) -> Result<Self> {
        device.check("cuEventCreate", device.context.new_event(None)).map(Self)
    }

    /// Moves the event to the present end of the stream.
    pub(super) fn record(&self, device: &Device) -> Result<()> {
        device.check("cuEventRecord", self.0.record(device.stream()))
    }

    /// Waits for the work that was in the stream when the event was recorded. Like [`Device::wait`], it also
    /// ends when a rank is lost.
    pub(super) fn wait(&self, device: &Device) -> Result<()> {
        let watch = device.watch.lock().unwrap_or_else(|e| e.into_inner()).clone();
        match watch {
            None => device.wait_for_event(self.0.cu_event()),
            // SAFETY: a live event.
            Some(watch) => device.wait_for_ranks(&watch, &|| unsafe { sys::cuEventQuery(self.0.cu_event()) }),
        }
    }
}

fn failure_text(device: &str, call: &str, message: &str) -> Error {
    Error::Device { device: device.into(), call: call.into(), message: message.into() }
}

//! The CUDA context of the caller's thread, which a call into Krylith leaves as it was.

use cudarc::driver::sys;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Makes the context that was current when it was made current again when it is dropped. A thread without a
/// context has none afterwards. It must be dropped on the same thread.
///
/// # Examples
/// ```
/// let _kept = krylith_core::device::cuda::KeptContext::new(); // also where there is no driver
/// ```
#[must_use = "the context is restored when this is dropped"]
pub struct KeptContext(sys::CUcontext);

impl KeptContext {
    /// Notes the context of this thread.
    #[allow(clippy::new_without_default)] // a default would be dropped at once
    pub fn new() -> Self {
        Self(if driver_is_loaded() { current() } else { std::ptr::null_mut() })
    }
}

impl Drop for KeptContext {
    fn drop(&mut self) {
        if driver_is_loaded() && current() != self.0 {
            // SAFETY: the context was current on this thread before; the driver refuses one that has ended.
            let _ = unsafe { sys::cuCtxSetCurrent(self.0) };
        }
    }
}

/// Returns the context of this thread; null if there is none, or the driver has not started.
fn current() -> sys::CUcontext {
    let mut context = std::ptr::null_mut();
    // SAFETY: writes one pointer; the driver is loaded.
    let _ = unsafe { sys::cuCtxGetCurrent(&mut context) };
    context
}

/// Returns true once this process has loaded the driver. Does not load it.
fn driver_is_loaded() -> bool {
    static LOADED: AtomicBool = AtomicBool::new(false);
    if LOADED.load(Relaxed) {
        return true;
    }
    // SAFETY: only looks for a library that is open.
    let found = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    LOADED.store(!found.is_null(), Relaxed);
    !found.is_null()
}

//! A process that was forked has none of the threads that Krylith started: what would wait for them is refused.

use crate::errors::named;
use pyo3::prelude::*;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// The process in which threads were started; 0 before that.
static HOME: AtomicU32 = AtomicU32::new(0);

/// True where threads were started by this process's parent, before it forked.
pub fn is_away() -> bool {
    !matches!(HOME.load(Relaxed), 0) && HOME.load(Relaxed) != std::process::id()
}

/// Notes that threads are started here, or refuses.
pub fn check() -> PyResult<()> {
    let here = std::process::id();
    match HOME.compare_exchange(0, here, Relaxed, Relaxed) {
        Ok(_) => Ok(()),
        Err(home) if home == here => Ok(()),
        Err(home) => Err(named(
            "DeviceError",
            format!(
                "process {here} was forked from process {home} after Krylith had been used there, and has none of its threads; \
                 start processes with multiprocessing.get_context(\"spawn\") or \"forkserver\", or use Krylith only after the fork"
            ),
        )),
    }
}

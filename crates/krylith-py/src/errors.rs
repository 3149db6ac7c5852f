//! Conversion of Krylith's errors to exceptions with the same text.

use krylith_core::device::cuda::KeptContext;
use krylith_core::{Error, Options};
use krylith_report::words::Language;
use pyo3::prelude::*;
use pyo3::types::PyType;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Returns the exception for an error; its class is one of `krylith/_errors.py`.
pub fn exception(error: Error) -> PyErr {
    let class = match &error {
        Error::Memory { .. } => "OutOfMemory",
        _ if error.is_interrupt() => "Error",
        _ if error.exit_code() == 3 => "DeviceError",
        _ => "InvalidInput",
    };
    // Python calls this option `maxiter`.
    named(class, error.to_string() + &Language::Keywords.remedies(&error))
}

/// Rejects calls in a process that was forked after Krylith was used: they would wait forever for threads.
pub fn refuse_forked() -> PyResult<()> {
    krylith_core::solver::host::refuse_forked().map_err(exception)
}

/// Returns an exception, by the name of its class.
pub fn named(class: &'static str, text: String) -> PyErr {
    Python::attach(|py| {
        let found = py.import("krylith._errors").and_then(|errors| errors.getattr(class));
        match found.and_then(|class| Ok(class.cast_into::<PyType>()?)) {
            Ok(class) => PyErr::from_type(class, text),
            Err(e) => e,
        }
    })
}

/// Runs `work` without the interpreter's lock; an error or a panic becomes an exception. Other libraries find
/// the GPU that was current before.
pub fn detached<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> krylith_core::Result<T> + Send,
) -> PyResult<T> {
    let done = py.detach(|| {
        let _kept = KeptContext::new();
        catch_unwind(AssertUnwindSafe(work))
    });
    match done {
        Ok(done) => done.map_err(exception),
        Err(panic) => Err(exception(Error::of_panic(&*panic))),
    }
}

/// Runs `work` as [`detached`] does, with at most `threads` threads, so that the preparation of a solve uses
/// no more threads than the solve.
pub fn bounded<T: Send>(
    py: Python<'_>,
    threads: Option<usize>,
    work: impl FnOnce() -> krylith_core::Result<T> + Send,
) -> PyResult<T> {
    let options = Options { threads, ..Options::default() };
    detached(py, || options.within(work)?)
}

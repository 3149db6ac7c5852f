//! Python callbacks that receive the progress of a solve, and their exceptions.

use krylith_core::Error;
use pyo3::prelude::*;
use std::ops::ControlFlow;
use std::sync::Mutex;

/// The first exception of a callback or a signal, kept until the solve has ended.
#[derive(Default)]
pub struct Raised(Mutex<Option<PyErr>>);

impl Raised {
    /// Keeps an exception, and returns an error that stands for it until the solve has ended.
    pub fn keep(&self, error: PyErr) -> Error {
        self.0.lock().unwrap_or_else(|e| e.into_inner()).get_or_insert(error);
        Error::invalid("a Python function raised an exception")
    }

    /// Takes the exception out, if there is one.
    pub fn take(&self) -> Option<PyErr> {
        self.0.lock().unwrap_or_else(|e| e.into_inner()).take()
    }

    /// Returns the exception, if there is one, instead of the error that followed from it.
    pub fn instead<T>(self, result: PyResult<T>) -> PyResult<T> {
        self.take().map_or(result, Err)
    }
}

/// A callback, if there is one, that receives iterations and residuals. A true return value or an exception
/// ends the solve.
pub struct Callback<'a> {
    pub callback: Option<Py<PyAny>>,
    pub raised: &'a Raised,
}

impl Callback<'_> {
    /// Calls the function.
    pub fn tell(&self, iteration: usize, residual: f64) -> ControlFlow<()> {
        let Some(callback) = &self.callback else { return ControlFlow::Continue(()) };
        match Python::attach(|py| callback.call1(py, (iteration, residual))?.is_truthy(py)) {
            Ok(false) => ControlFlow::Continue(()),
            Ok(true) => ControlFlow::Break(()),
            Err(e) => {
                self.raised.keep(e);
                ControlFlow::Break(())
            }
        }
    }
}

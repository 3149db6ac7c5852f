//! Functions of Python that are told how a solve goes, and what they raise.

use krylith_core::Error;
use pyo3::prelude::*;
use std::ops::ControlFlow;
use std::sync::Mutex;

/// What a function or a signal raised first: the exception outlives the error that ends the solve.
#[derive(Default)]
pub struct Raised(Mutex<Option<PyErr>>);

impl Raised {
    /// Keeps an exception; the error stands for it until the solve has ended.
    pub fn keep(&self, error: PyErr) -> Error {
        self.0.lock().unwrap_or_else(|e| e.into_inner()).get_or_insert(error);
        Error::invalid("a function of Python raised an exception")
    }

    /// The exception, if there was one.
    pub fn take(&self) -> Option<PyErr> {
        self.0.lock().unwrap_or_else(|e| e.into_inner()).take()
    }

    /// The exception in place of the error that followed from it.
    pub fn instead<T>(self, result: PyResult<T>) -> PyResult<T> {
        self.take().map_or(result, Err)
    }
}

/// Tells a function of iterations and residuals, if there is one; it ends the solve by an answer that is true, or by an exception.
pub struct Told<'a> {
    pub callback: Option<Py<PyAny>>,
    pub raised: &'a Raised,
}

impl Told<'_> {
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

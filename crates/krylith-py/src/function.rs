//! Python functions as operators of a solver, on the host or on a GPU.

use crate::callback::Raised;
use crate::errors::{detached, refuse_forked};
use krylith_core::device::cuda::order_streams;
use krylith_core::operator::{DeviceVectors, FunctionOperator};
use krylith_report::callers::Callers;
use pyo3::prelude::*;
use std::sync::{Arc, Mutex};

/// The exception of a function, and the solvers whose callers wait for it during a solve.
#[derive(Default)]
pub struct Calls {
    pub raised: Raised,
    callers: Mutex<Option<Callers>>,
}

impl Calls {
    /// Sets the solvers that the function must not call.
    fn set(&self, callers: Option<Callers>) {
        *self.callers.lock().unwrap_or_else(|e| e.into_inner()) = callers;
    }

    /// Runs `call` as part of a solve, and keeps its exception.
    fn during<T>(&self, call: impl FnOnce(Python<'_>) -> PyResult<T>) -> krylith_core::Result<T> {
        let callers = self.callers.lock().unwrap_or_else(|e| e.into_inner()).clone();
        let _called = callers.as_ref().map(Callers::enter);
        Python::attach(call).map_err(|e| self.raised.keep(e))
    }

    fn on_device(self: &Arc<Self>, call: Py<PyAny>) -> FunctionOperator<'static> {
        let calls = self.clone();
        FunctionOperator::on_device(move |v: &DeviceVectors| {
            calls.during(|py| call.call1(py, (v.x, v.y, v.len, v.gpu, v.stream, v.recording)).map(drop))
        })
    }

    fn on_host(self: &Arc<Self>, call: Py<PyAny>) -> FunctionOperator<'static> {
        let calls = self.clone();
        FunctionOperator::on_host(move |x, y| {
            let callers = calls.callers.lock().unwrap_or_else(|e| e.into_inner()).clone();
            let _called = callers.as_ref().map(Callers::enter);
            calls.raised.call(&call, x, y)
        })
    }

    /// Returns an operator that calls these functions.
    pub fn operator(
        self: &Arc<Self>,
        call: Py<PyAny>,
        transpose: Option<Py<PyAny>>,
        on_device: bool,
        capturable: bool,
    ) -> FunctionOperator<'static> {
        let of = |call| match on_device {
            true => self.on_device(call).capturable(capturable),
            false => self.on_host(call),
        };
        match transpose {
            Some(transpose) => of(call).with_transpose(of(transpose)),
            None => of(call),
        }
    }
}

/// A linear map that is a Python function. On a GPU the function gets the addresses of x and y, their length,
/// the number of the GPU, the stream, and whether the stream records. On the host it gets an array and
/// returns one.
#[pyclass(frozen)]
pub struct Function {
    pub operator: FunctionOperator<'static>,
    pub calls: Arc<Calls>,
}

#[pymethods]
impl Function {
    #[new]
    #[pyo3(signature = (call, transpose, on_device, capturable))]
    fn new(call: Py<PyAny>, transpose: Option<Py<PyAny>>, on_device: bool, capturable: bool) -> Self {
        let calls = Arc::new(Calls::default());
        Self { operator: calls.operator(call, transpose, on_device, capturable), calls }
    }
}

impl Function {
    /// Prepares for a solve, whose solvers are `callers`.
    pub fn begin(&self, callers: &Callers) {
        self.calls.raised.take();
        self.calls.set(Some(callers.clone()));
    }

    /// Returns the exception of a solve that has ended.
    pub fn end(&self) -> Option<PyErr> {
        self.calls.set(None);
        self.calls.raised.take()
    }
}

/// Makes work that a stream of a GPU gets later wait for the work that another stream has now.
#[pyfunction]
pub fn order(py: Python<'_>, gpu: usize, first: usize, later: usize) -> PyResult<()> {
    refuse_forked()?;
    detached(py, || order_streams(gpu, first, later))
}

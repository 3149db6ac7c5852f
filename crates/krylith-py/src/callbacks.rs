//! Operators and nonlinear systems that are Python functions.

use crate::arrays::{Held, LentMut};
use crate::callback::{Callback, Raised};
use crate::errors::{detached, exception, refuse_forked};
use crate::system::System;
use krylith_core::matrix::Bsr;
use krylith_core::memory::Numbers;
use krylith_core::newton::{Newton, NewtonObserver, NewtonOptions, NewtonStep, NonlinearSystem};
use krylith_core::operator::{DeviceVectors, FunctionOperator};
use krylith_core::solver::{Function as HostFunction, solve_functions};
use krylith_core::{Error, Observer, Options, Problem, Progress};
use numpy::{PyArray1, PyReadonlyArray1, PyReadwriteArray1};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::ops::ControlFlow;

impl Raised {
    /// Computes `to ← call(from)`.
    pub fn call(&self, call: &Py<PyAny>, from: &[f64], to: &mut [f64]) -> krylith_core::Result<()> {
        let done = Python::attach(|py| -> PyResult<usize> {
            let answer = call.call1(py, (PyArray1::from_slice(py, from),))?;
            let answer: PyReadonlyArray1<'_, f64> = answer.extract(py)?;
            let numbers = answer.as_slice()?;
            if numbers.len() == to.len() {
                to.copy_from_slice(numbers);
            }
            Ok(numbers.len())
        });
        match done {
            Ok(len) if len == to.len() => Ok(()),
            Ok(len) => Err(Error::invalid(format!(
                "a Python function returned {len} numbers; expected {}",
                to.len()
            ))),
            Err(e) => Err(self.keep(e)),
        }
    }
}

impl Observer for Callback<'_> {
    fn progress(&mut self, p: Progress) -> ControlFlow<()> {
        self.tell(p.iteration, p.relative_residual)
    }
}

/// A function that is called with a copy of x.
struct Viewer<'a> {
    callback: Callback<'a>,
    view: Option<Py<PyAny>>,
    /// The last iteration whose x the function has seen.
    last: usize,
}

impl Observer for Viewer<'_> {
    fn progress(&mut self, p: Progress) -> ControlFlow<()> {
        self.callback.progress(p)
    }
    fn sees_x(&self) -> bool {
        self.view.is_some()
    }
    fn shown(&mut self, iteration: usize, x: &[f64]) -> ControlFlow<()> {
        self.last = iteration;
        let Some(view) = &self.view else { return ControlFlow::Continue(()) };
        match Python::attach(|py| view.call1(py, (PyArray1::from_slice(py, x),)).map(drop)) {
            Ok(()) => ControlFlow::Continue(()),
            Err(e) => {
                self.callback.raised.keep(e);
                ControlFlow::Break(())
            }
        }
    }
}

/// Solves A x = b with the initial guess x, where A and P⁻¹ are functions of vectors. `view` is called with x
/// after each iteration or cycle. Returns the outcome, the iterations and the relative residual, recomputed
/// from x.
#[pyfunction]
#[pyo3(signature = (a, p, b, x, options, callback, view=None))]
pub fn solve_operators(
    py: Python<'_>,
    a: Py<PyAny>,
    p: Option<Py<PyAny>>,
    b: PyReadonlyArray1<'_, f64>,
    mut x: PyReadwriteArray1<'_, f64>,
    options: &str,
    callback: Option<Py<PyAny>>,
    view: Option<Py<PyAny>>,
) -> PyResult<(&'static str, usize, f64)> {
    refuse_forked()?;
    let options: Options = options.parse().map_err(exception)?;
    let (b, x) = (b.as_slice()?, x.as_slice_mut()?);
    let raised = Raised::default();
    let done = detached(py, || {
        let mut product = |from: &[f64], to: &mut [f64]| raised.call(&a, from, to);
        let mut inverse = p.as_ref().map(|p| |from: &[f64], to: &mut [f64]| raised.call(p, from, to));
        let inverse = inverse.as_mut().map(|inverse| inverse as &mut HostFunction<'_>);
        let callback = Callback { callback, raised: &raised };
        let mut viewer = Viewer { callback, view, last: 0 };
        let history = solve_functions(&mut product, inverse, b, x, &options, &mut viewer)?;
        if viewer.last != history.iterations {
            let _ = viewer.shown(history.iterations, x); // the solve has ended
        }
        Ok((history.outcome.name(), history.iterations, history.true_relative_residual))
    });
    raised.instead(done)
}

/// A nonlinear system whose F and J are Python functions. The values of J are in the order of the matrix of
/// `problem`. Both functions get x as an array of NumPy, or as the place of numbers on a GPU, and return an
/// array of NumPy, or such a place with its array.
struct Functions<'a> {
    problem: &'a Problem<'static>,
    residual: &'a Py<PyAny>,
    jacobian: &'a Py<PyAny>,
    /// Returns the product with J at x as a function of vectors.
    product: Option<&'a Py<PyAny>>,
    raised: &'a Raised,
    /// True if x stays on the GPU that solves.
    on_gpu: bool,
    /// The last F and the last values of J.
    f: Option<Held>,
    values: Option<Held>,
}

impl Functions<'_> {
    /// Returns what a function returns for x.
    fn call<T>(&self, function: &Py<PyAny>, x: Numbers<'_>) -> krylith_core::Result<T>
    where
        T: for<'a, 'py> FromPyObject<'a, 'py, Error = PyErr>,
    {
        let place = x.lent().filter(|_| self.on_gpu).map(|lent| lent.remote);
        let host = match place {
            // Libraries may use the memory without the order of streams, so wait for what was written there.
            Some(_) => x.range(0..x.len().min(1)).to_vec()?,
            None => x.to_vec()?,
        };
        let answer = Python::attach(|py| {
            let answer = match place {
                Some(at) => function.call1(py, ((at.pointer, at.len, at.ordinal, at.stream),))?,
                None => function.call1(py, (PyArray1::from_slice(py, &host),))?,
            };
            answer.extract(py)
        });
        answer.map_err(|e: PyErr| self.raised.keep(e))
    }
}

impl NonlinearSystem for Functions<'_> {
    fn pattern(&self) -> &Bsr {
        &self.problem.terms().terms()[0].1
    }
    fn problem(&self) -> krylith_core::Result<Problem<'_>> {
        Ok(Problem::from(self.problem))
    }
    fn residual(&mut self, _: &[f64], _: &mut [f64]) -> krylith_core::Result<()> {
        Err(Error::Internal("F is in memory of Python".into()))
    }
    fn jacobian(&mut self, _: &[f64], _: &mut [f64]) -> krylith_core::Result<()> {
        Err(Error::Internal("J is in memory of Python".into()))
    }
    fn solves_on(&mut self, _: Option<usize>) -> krylith_core::Result<bool> {
        Ok(true)
    }
    fn residual_in_own_memory(&mut self, x: Numbers<'_>) -> krylith_core::Result<Numbers<'_>> {
        self.f = None; // before the next numbers take memory
        let f: Held = self.call(self.residual, x)?;
        match f.numbers().len() {
            len if len == x.len() => Ok(self.f.insert(f).numbers()),
            len => {
                Err(Error::invalid(format!("a Python function returned {len} numbers; expected {}", x.len())))
            }
        }
    }
    fn jacobian_in_own_memory(&mut self, x: Numbers<'_>) -> krylith_core::Result<Numbers<'_>> {
        self.values = None;
        let values: Held = self.call(self.jacobian, x)?;
        Ok(self.values.insert(values).numbers())
    }
    fn jacobian_operator(&mut self, x: Numbers<'_>) -> krylith_core::Result<Option<FunctionOperator<'_>>> {
        let Some(product) = self.product else { return Ok(None) };
        let on_device = self.on_gpu && x.gpu().is_some();
        let (at, raised) = (self.call::<Function>(product, x)?.0, self.raised);
        Ok(Some(match on_device {
            true => FunctionOperator::on_device(move |v: &DeviceVectors| {
                let vectors = (v.x, v.y, v.len, v.gpu, v.stream, v.recording);
                Python::attach(|py| at.call1(py, vectors).map(drop)).map_err(|e| raised.keep(e))
            }),
            false => FunctionOperator::on_host(move |v, y| raised.call(&at, v, y)),
        }))
    }
}

/// A function that Python returned.
struct Function(Py<PyAny>);

impl FromPyObject<'_, '_> for Function {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, '_, PyAny>) -> PyResult<Self> {
        Ok(Self(object.to_owned().unbind()))
    }
}

impl NewtonObserver for Callback<'_> {
    fn residual(&mut self, steps: usize, norm: f64, _: f64) -> ControlFlow<()> {
        self.tell(steps, norm)
    }
}

/// Solves F(x) = 0 with the initial guess x, which is overwritten. `residual(x)` returns F, and `jacobian(x)`
/// the values of J in the order of the matrix of `system`. If x is on a GPU, both get the place of an x there
/// when the GPU solves; see [`Functions`]. `product(x)` returns the product with J at x as a function, for a
/// Jacobian-free method, in which the values of `jacobian` precondition.
#[pyfunction]
#[pyo3(signature = (
    system, residual, jacobian, x, rtol, atol, max_steps, forcing, options, callback, product=None,
))]
pub fn newton<'py>(
    py: Python<'py>,
    system: &System,
    residual: Py<PyAny>,
    jacobian: Py<PyAny>,
    mut x: LentMut<'_>,
    rtol: f64,
    atol: f64,
    max_steps: usize,
    forcing: &str,
    options: &str,
    callback: Option<Py<PyAny>>,
    product: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    refuse_forked()?;
    let mut x = x.array()?;
    let on_gpu = x.gpu().is_some();
    let raised = Raised::default();
    let done = detached(py, || {
        let options: Options = options.parse()?;
        let forcing = forcing.parse()?;
        let newton = NewtonOptions { rtol, atol, max_steps, forcing, ..NewtonOptions::default() };
        let (residual, jacobian, raised) = (&residual, &jacobian, &raised);
        let problem = &system.problem;
        let (f, values, product) = (None, None, product.as_ref());
        let mut functions = Functions { problem, residual, jacobian, product, raised, on_gpu, f, values };
        let mut callback = Callback { callback, raised };
        Ok(Newton::new(newton, &options)?
            .solve_observed(&mut functions, x.reborrow(), &mut callback)?
            .clone())
    });
    let report = raised.instead(done)?;
    let answer = PyDict::new(py);
    let step = |s: &NewtonStep| {
        let linear = (s.linear.name(), s.iterations, s.linear_residual);
        (s.before, s.after, s.forcing, linear, s.damping)
    };
    let seconds = report.seconds;
    answer.set_item("outcome", report.outcome.name())?;
    answer.set_item("norms", [report.first, report.last, report.target])?;
    answer.set_item("steps", report.steps.iter().map(step).collect::<Vec<_>>())?;
    answer
        .set_item("events", report.events.iter().map(|e| (e.step, e.detail.clone())).collect::<Vec<_>>())?;
    answer.set_item("seconds", [seconds.residual, seconds.jacobian, seconds.setup, seconds.solve])?;
    Ok(answer)
}

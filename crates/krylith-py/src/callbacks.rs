//! Operators and nonlinear systems that are Python functions.

use crate::arrays::HeldRemote;
use crate::callback::{Callback, Raised};
use crate::errors::{detached, exception, refuse_forked};
use crate::system::System;
use krylith_core::matrix::Bsr;
use krylith_core::memory::Numbers;
use krylith_core::newton::{Newton, NewtonObserver, NewtonOptions, NewtonStep, NonlinearSystem};
use krylith_core::solver::{Function, solve_functions};
use krylith_core::{Error, Observer, Options, Problem, Progress};
use numpy::{PyArray1, PyReadonlyArray1, PyReadwriteArray1};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::ops::ControlFlow;

impl Raised {
    /// Computes `to ← call(from)`.
    fn call(&self, call: &Py<PyAny>, from: &[f64], to: &mut [f64]) -> krylith_core::Result<()> {
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

/// Solves A x = b with the initial guess x, where A and P⁻¹ are functions of vectors. Returns the outcome,
/// the iterations and the relative residual, recomputed from x.
#[pyfunction]
#[pyo3(signature = (a, p, b, x, options, callback))]
pub fn solve_operators(
    py: Python<'_>,
    a: Py<PyAny>,
    p: Option<Py<PyAny>>,
    b: PyReadonlyArray1<'_, f64>,
    mut x: PyReadwriteArray1<'_, f64>,
    options: &str,
    callback: Option<Py<PyAny>>,
) -> PyResult<(&'static str, usize, f64)> {
    refuse_forked()?;
    let options: Options = options.parse().map_err(exception)?;
    let (b, x) = (b.as_slice()?, x.as_slice_mut()?);
    let raised = Raised::default();
    let done = detached(py, || {
        let mut product = |from: &[f64], to: &mut [f64]| raised.call(&a, from, to);
        let mut inverse = p.as_ref().map(|p| |from: &[f64], to: &mut [f64]| raised.call(p, from, to));
        let inverse = inverse.as_mut().map(|inverse| inverse as &mut Function<'_>);
        let mut callback = Callback { callback, raised: &raised };
        let history = solve_functions(&mut product, inverse, b, x, &options, &mut callback)?;
        Ok((history.outcome.name(), history.iterations, history.true_relative_residual))
    });
    raised.instead(done)
}

/// A nonlinear system whose F and J are Python functions. The values of J are in the order of the matrix of
/// `problem`.
struct Functions<'a> {
    problem: &'a Problem<'static>,
    residual: &'a Py<PyAny>,
    jacobian: &'a Py<PyAny>,
    raised: &'a Raised,
    /// True if the values of J are on a GPU, and the last of them.
    on_gpu: bool,
    values: Option<HeldRemote>,
}

impl NonlinearSystem for Functions<'_> {
    fn pattern(&self) -> &Bsr {
        &self.problem.terms().terms()[0].1
    }
    fn problem(&self) -> krylith_core::Result<Problem<'_>> {
        Ok(Problem::from(self.problem))
    }
    fn residual(&mut self, x: &[f64], f: &mut [f64]) -> krylith_core::Result<()> {
        self.raised.call(self.residual, x, f)
    }
    fn jacobian(&mut self, x: &[f64], values: &mut [f64]) -> krylith_core::Result<()> {
        self.raised.call(self.jacobian, x, values)
    }
    fn jacobian_in_own_memory(&mut self, x: &[f64]) -> krylith_core::Result<Option<Numbers<'_>>> {
        if !self.on_gpu {
            return Ok(None);
        }
        self.values = None; // before the next values take memory
        let answer = Python::attach(|py| {
            let answer = self.jacobian.call1(py, (PyArray1::from_slice(py, x),))?;
            answer.extract(py)
        });
        let values = answer.map_err(|e| self.raised.keep(e))?;
        Ok(Some(self.values.insert(values).numbers()))
    }
}

impl NewtonObserver for Callback<'_> {
    fn residual(&mut self, steps: usize, norm: f64, _: f64) -> ControlFlow<()> {
        self.tell(steps, norm)
    }
}

/// Solves F(x) = 0 with the initial guess x. `residual(x)` returns F, and `jacobian(x)` the values of J in
/// the order of the matrix of `system`. With `on_gpu`, `jacobian(x)` returns values in the memory of a GPU,
/// as a pair: their place and length, and the array.
#[pyfunction]
#[pyo3(signature = (system, residual, jacobian, on_gpu, x, rtol, atol, max_steps, forcing, options, callback))]
pub fn newton<'py>(
    py: Python<'py>,
    system: &System,
    residual: Py<PyAny>,
    jacobian: Py<PyAny>,
    on_gpu: bool,
    mut x: PyReadwriteArray1<'_, f64>,
    rtol: f64,
    atol: f64,
    max_steps: usize,
    forcing: &str,
    options: &str,
    callback: Option<Py<PyAny>>,
) -> PyResult<Bound<'py, PyDict>> {
    refuse_forked()?;
    let x = x.as_slice_mut()?;
    let raised = Raised::default();
    let done = detached(py, || {
        let options: Options = options.parse()?;
        let forcing = forcing.parse()?;
        let newton = NewtonOptions { rtol, atol, max_steps, forcing, ..NewtonOptions::default() };
        let (residual, jacobian, raised) = (&residual, &jacobian, &raised);
        let problem = &system.problem;
        let mut functions = Functions { problem, residual, jacobian, raised, on_gpu, values: None };
        let mut callback = Callback { callback, raised };
        Ok(Newton::new(newton, &options)?.solve_observed(&mut functions, x, &mut callback)?.clone())
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

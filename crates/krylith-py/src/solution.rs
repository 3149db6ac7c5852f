//! Results of solves.

use crate::errors::exception;
use krylith_core::Options;
use krylith_core::solver::EventKind;
use krylith_report::plot;
use krylith_report::words::{self, Language};
use numpy::{IntoPyArray, PyArray1};
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::path::PathBuf;
use std::sync::Arc;

/// The arguments that make a [`Curve`], for pickles.
type CurveParts = (String, Vec<f64>, f64, f64, Vec<usize>, Vec<(usize, String)>, bool, String);

/// A plot of residuals.
#[pyclass(frozen, module = "krylith._native")]
pub struct Curve(plot::Curve);

#[pymethods]
impl Curve {
    #[new]
    #[pyo3(signature = (subtitle, residuals, true_residual, target, restarts, attempts, converged, quantity="‖r‖/‖b‖".into()))]
    fn new(
        subtitle: String,
        residuals: Vec<f64>,
        true_residual: f64,
        target: f64,
        restarts: Vec<usize>,
        attempts: Vec<(usize, String)>,
        converged: bool,
        quantity: String,
    ) -> Self {
        Self(plot::Curve {
            subtitle,
            residuals,
            true_residual,
            target,
            restarts,
            attempts,
            converged,
            quantity,
        })
    }
    fn __getnewargs__(&self) -> CurveParts {
        let plot::Curve {
            subtitle,
            residuals,
            true_residual,
            target,
            restarts,
            attempts,
            converged,
            quantity,
        } = self.0.clone();
        (subtitle, residuals, true_residual, target, restarts, attempts, converged, quantity)
    }
    /// Returns the plot as text in SVG.
    fn svg(&self, title: &str) -> String {
        self.0.draw(title).svg()
    }
    /// Writes the plot to a file whose name ends in .png or .svg.
    fn write(&self, title: &str, path: PathBuf) -> PyResult<()> {
        plot::write(&self.0.draw(title), &path).map_err(exception)
    }
}

/// The result of a solve.
#[pyclass(frozen)]
pub struct Solution {
    pub solution: krylith_core::solver::Solution,
    pub options: Arc<Options>,
    pub lines: Arc<Vec<String>>,
}

#[pymethods]
impl Solution {
    #[getter]
    fn outcome(&self) -> &'static str {
        self.solution.outcome().name()
    }
    #[getter]
    fn iterations(&self) -> usize {
        self.solution.history.iterations
    }
    #[getter]
    fn restarts(&self) -> usize {
        self.solution.history.restarts
    }
    #[getter]
    fn residuals<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        self.solution.history.residuals.to_vec().into_pyarray(py)
    }
    #[getter]
    fn row_scaled_residual(&self) -> Option<f64> {
        self.solution.row_scaled_residual
    }
    #[getter]
    fn true_residual(&self) -> f64 {
        self.solution.history.true_relative_residual
    }
    #[getter]
    fn criterion(&self) -> &'static str {
        self.solution.history.criterion.name()
    }
    #[getter]
    fn relative_to(&self) -> &'static str {
        self.solution.history.relative_to.name()
    }
    #[getter]
    fn criterion_value(&self) -> f64 {
        self.solution.history.criterion_value
    }
    #[getter]
    fn convergence_factor(&self) -> Option<f64> {
        self.solution.history.convergence_factor()
    }
    #[getter]
    fn target(&self) -> f64 {
        self.solution.target
    }
    #[getter]
    fn method(&self) -> String {
        self.solution.method.title()
    }
    #[getter]
    fn precond(&self) -> String {
        self.solution.precond.text.clone()
    }
    /// The kind of device, `cpu` or `cuda`.
    #[getter]
    fn device(&self) -> &'static str {
        self.solution.device.kind
    }
    /// True if an event is a warning.
    #[getter]
    fn has_warnings(&self) -> bool {
        self.solution.events.iter().any(|e| e.kind == EventKind::Warning)
    }
    /// Returns the seconds of set-up, of iterations, and of the parts of the set-up.
    fn seconds<'py>(&self, py: Python<'py>) -> PyResult<(f64, f64, Bound<'py, PyDict>)> {
        let parts = PyDict::new(py);
        for (part, seconds) in self.solution.setup_parts.iter() {
            parts.set_item(part.name(), seconds)?;
        }
        Ok((self.solution.setup_seconds, self.solution.solve_seconds, parts))
    }
    /// Returns the kind, iteration and text of each event.
    fn events(&self) -> Vec<(&'static str, Option<usize>, String)> {
        let events = self.solution.events.iter();
        events.map(|e| (e.kind.name(), e.iteration, e.words().into_owned())).collect()
    }

    /// Returns the summary that the command prints.
    fn text(&self) -> String {
        words::text(self.lines.to_vec(), &self.solution, &self.options)
    }
    /// Returns why the solve did not converge, and what to try.
    fn verdict(&self) -> String {
        words::verdict("krylith", &self.solution, &self.options, Language::Keywords)
    }
    /// Returns the plot of the residuals.
    fn curve(&self) -> Curve {
        Curve(plot::Curve::of(&self.solution))
    }
    /// Returns a line that describes the system.
    fn system(&self) -> &str {
        self.lines.first().map_or("", String::as_str)
    }
}

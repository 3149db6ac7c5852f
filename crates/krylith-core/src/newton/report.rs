//! What a Newton solve answers, and who may watch it.

use crate::space::{Outcome, Progress};
use std::ops::ControlFlow;

/// How a Newton solve ended.
///
/// # Examples
/// ```
/// use krylith::newton::NewtonOutcome;
/// assert_eq!(NewtonOutcome::LineSearch.to_string(), "line-search");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewtonOutcome {
    /// ‖F(x)‖ is within tolerance.
    Converged,
    /// The limit of steps came first.
    MaxSteps,
    /// No step along the direction made ‖F‖ smaller, although the linear solve was as exact as asked: a local minimum of ‖F‖, a Jacobian
    /// that does not belong to F, or rounding.
    LineSearch,
    /// A linear solve ended before its tolerance, and what it left led nowhere.
    LinearSolve,
    /// F of the first guess has a NaN or an infinity.
    NotFinite,
    /// The observer asked to stop, or the solve was cancelled.
    Interrupted,
}

impl NewtonOutcome {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            NewtonOutcome::Converged => "converged",
            NewtonOutcome::MaxSteps => "max-steps",
            NewtonOutcome::LineSearch => "line-search",
            NewtonOutcome::LinearSolve => "linear-solve",
            NewtonOutcome::NotFinite => "not-finite",
            NewtonOutcome::Interrupted => "interrupted",
        }
    }
}

impl std::fmt::Display for NewtonOutcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Seconds by kind of work.
///
/// # Examples
/// ```
/// use krylith_core::newton::NewtonSeconds;
/// let seconds = NewtonSeconds { residual: 0.5, jacobian: 1.0, setup: 0.25, solve: 2.25 };
/// assert_eq!(seconds.total(), 4.0);
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct NewtonSeconds {
    /// F, in the line search too.
    pub residual: f64,
    /// J.
    pub jacobian: f64,
    /// The linear solver made, or given new values.
    pub setup: f64,
    /// Linear solves.
    pub solve: f64,
}

impl NewtonSeconds {
    /// All of them.
    pub fn total(&self) -> f64 {
        self.residual + self.jacobian + self.setup + self.solve
    }

    pub(super) fn add(&mut self, other: &NewtonSeconds) {
        self.residual += other.residual;
        self.jacobian += other.jacobian;
        self.setup += other.setup;
        self.solve += other.solve;
    }
}

/// One step of Newton's method.
///
/// # Examples
/// A log of a step, as an [observer](NewtonObserver) would print it:
/// ```
/// use krylith::newton::NewtonStep;
/// fn line(step: &NewtonStep) -> String {
///     let linear = format!("{} iterations to {:.0e}", step.iterations, step.forcing);
///     format!("{:3}  ‖F‖ {:.2e}  {linear}, λ = {}", step.number, step.after, step.damping)
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NewtonStep {
    /// Its number, from 1.
    pub number: usize,
    /// ‖F‖ before it.
    pub before: f64,
    /// ‖F‖ after it.
    pub after: f64,
    /// The tolerance η of the linear solve.
    pub forcing: f64,
    /// How the linear solve ended.
    pub linear: Outcome,
    /// Its iterations.
    pub iterations: usize,
    /// ‖J s + F‖/‖F‖ that it reached.
    pub linear_residual: f64,
    /// The share λ of the direction that was taken.
    pub damping: f64,
    /// Values of λ that were tried.
    pub trials: usize,
    /// Where the time went.
    pub seconds: NewtonSeconds,
}

/// Something that happened on the way.
///
/// # Examples
/// ```
/// use krylith::newton::NewtonEvent;
/// let event = NewtonEvent { step: 3, detail: "the linear solve stagnated".into() };
/// assert_eq!(format!("step {}: {}", event.step, event.detail), "step 3: the linear solve stagnated");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewtonEvent {
    /// The step in which it did, from 1.
    pub step: usize,
    /// In words.
    pub detail: String,
}

/// How a Newton solve went.
///
/// # Examples
/// ```
/// use krylith::{matrix::Bsr, newton::{Newton, NewtonOptions, NonlinearSystem}};
/// struct Root(Bsr); // x² = 2
/// impl NonlinearSystem for Root {
///     fn pattern(&self) -> &Bsr { &self.0 }
///     fn residual(&mut self, x: &[f64], f: &mut [f64]) -> krylith::Result<()> { Ok(f[0] = x[0] * x[0] - 2.0) }
///     fn jacobian(&mut self, x: &[f64], values: &mut [f64]) -> krylith::Result<()> { Ok(values[0] = 2.0 * x[0]) }
/// }
/// let mut newton = Newton::new(NewtonOptions::default(), &"device=cpu".parse()?)?;
/// let report = newton.solve(&mut Root(Bsr::new(1, 1, 1, vec![0, 1], vec![0], vec![0.0])?), &mut [1.0])?;
/// assert!(report.converged() && report.last <= report.target);
/// assert_eq!(report.first, 1.0); // |1 − 2|
/// assert!(report.steps.windows(2).all(|s| s[1].before == s[0].after));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct NewtonReport {
    /// How it ended.
    pub outcome: NewtonOutcome,
    /// ‖F‖ of the first guess.
    pub first: f64,
    /// ‖F‖ of the x handed back.
    pub last: f64,
    /// ‖F‖ that ends the solve.
    pub target: f64,
    /// Every step that was taken.
    pub steps: Vec<NewtonStep>,
    /// What was worth saying.
    pub events: Vec<NewtonEvent>,
    /// Where the time went, with steps that came to nothing.
    pub seconds: NewtonSeconds,
}

impl NewtonReport {
    pub(super) fn new() -> Self {
        Self {
            outcome: NewtonOutcome::MaxSteps,
            first: f64::NAN,
            last: f64::NAN,
            target: f64::NAN,
            steps: Vec::new(),
            events: Vec::new(),
            seconds: NewtonSeconds::default(),
        }
    }

    /// True where ‖F(x)‖ is within tolerance.
    pub fn converged(&self) -> bool {
        self.outcome == NewtonOutcome::Converged
    }

    /// Iterations of all linear solves.
    pub fn iterations(&self) -> usize {
        self.steps.iter().map(|step| step.iterations).sum()
    }
}

/// Watches a Newton solve; solvers never print.
///
/// # Examples
/// ```
/// use krylith::matrix::Bsr;
/// use krylith::newton::{Newton, NewtonObserver, NewtonOptions, NewtonStep, NonlinearSystem};
/// # struct Root(Bsr); // x² = 2
/// # impl NonlinearSystem for Root {
/// #     fn pattern(&self) -> &Bsr { &self.0 }
/// #     fn residual(&mut self, x: &[f64], f: &mut [f64]) -> krylith::Result<()> { Ok(f[0] = x[0] * x[0] - 2.0) }
/// #     fn jacobian(&mut self, x: &[f64], values: &mut [f64]) -> krylith::Result<()> { Ok(values[0] = 2.0 * x[0]) }
/// # }
/// # let mut root = Root(Bsr::new(1, 1, 1, vec![0, 1], vec![0], vec![0.0])?);
/// struct Log(Vec<f64>);
/// impl NewtonObserver for Log {
///     fn stepped(&mut self, step: &NewtonStep) {
///         self.0.push(step.after);
///     }
/// }
/// let mut log = Log(Vec::new());
/// let mut newton = Newton::new(NewtonOptions::default(), &"device=cpu".parse()?)?;
/// newton.solve_watched(&mut root, &mut [1.5], &mut log)?;
/// assert!(log.0.is_sorted_by(|a, b| a >= b)); // ‖F‖ falls in every step
/// # Ok::<(), krylith::Error>(())
/// ```
pub trait NewtonObserver {
    /// ‖F‖ after so many steps, and the ‖F‖ that ends the solve. Break to interrupt.
    fn residual(&mut self, _steps: usize, _norm: f64, _target: f64) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
    /// Where the linear solve of a step, from 1, is. Break to interrupt.
    fn linear(&mut self, _step: usize, _progress: Progress) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
    /// A step was taken.
    fn stepped(&mut self, _step: &NewtonStep) {}
    /// Something happened.
    fn event(&mut self, _event: &NewtonEvent) {}
    /// Continuation goes on to this value of the parameter.
    fn parameter(&mut self, _value: f64) {}
}

impl NewtonObserver for () {}

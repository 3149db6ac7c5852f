//! Results of a Newton solve, and observers of a Newton solve.

use crate::space::{Outcome, Progress};
use std::ops::ControlFlow;

/// Outcome of a Newton solve.
///
/// # Examples
/// ```
/// use krylith::newton::NewtonOutcome;
/// assert_eq!(NewtonOutcome::LineSearch.to_string(), "line-search");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewtonOutcome {
    /// ‖F(x)‖ meets the tolerance.
    Converged,
    /// The maximum number of steps was reached.
    MaxSteps,
    /// No step along the direction decreased ‖F‖, although the linear solve met its tolerance. Possible
    /// causes are a local minimum of ‖F‖, a Jacobian that does not match F, and rounding errors.
    LineSearch,
    /// A linear solve missed its tolerance, and no step along its direction decreased ‖F‖.
    LinearSolve,
    /// F at the initial guess is NaN or infinite.
    NotFinite,
    /// The observer asked to stop, or the solve was cancelled.
    Interrupted,
}

impl NewtonOutcome {
    /// Every outcome.
    pub const ALL: [NewtonOutcome; 6] = [
        NewtonOutcome::Converged,
        NewtonOutcome::MaxSteps,
        NewtonOutcome::LineSearch,
        NewtonOutcome::LinearSolve,
        NewtonOutcome::NotFinite,
        NewtonOutcome::Interrupted,
    ];

    /// Returns the name in reports.
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
    /// Seconds to evaluate F, including the line search.
    pub residual: f64,
    /// Seconds to evaluate the Jacobian J.
    pub jacobian: f64,
    /// Seconds to set up the linear solver, or to update its values.
    pub setup: f64,
    /// Seconds of linear solves.
    pub solve: f64,
}

impl NewtonSeconds {
    /// Returns the total of all parts.
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
    /// Number of the step, from 1.
    pub number: usize,
    /// ‖F‖ before the step.
    pub before: f64,
    /// ‖F‖ after the step.
    pub after: f64,
    /// The tolerance η of the linear solve.
    pub forcing: f64,
    /// Outcome of the linear solve.
    pub linear: Outcome,
    /// Number of iterations of the linear solve.
    pub iterations: usize,
    /// ‖J s + F‖/‖F‖ at the end of the linear solve.
    pub linear_residual: f64,
    /// The damping λ of the step along the direction.
    pub damping: f64,
    /// Number of values of λ that were tried.
    pub trials: usize,
    /// Seconds of the step by kind of work.
    pub seconds: NewtonSeconds,
}

/// An event of a Newton solve.
///
/// # Examples
/// ```
/// use krylith::newton::NewtonEvent;
/// let event = NewtonEvent { step: 3, detail: "the linear solve stagnated".into() };
/// assert_eq!(format!("step {}: {}", event.step, event.detail), "step 3: the linear solve stagnated");
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewtonEvent {
    /// The step in which it happened, from 1.
    pub step: usize,
    /// A description, as text.
    pub detail: String,
}

/// The result of a Newton solve.
///
/// # Examples
/// ```
/// use krylith::{matrix::Bsr, newton::{Newton, NewtonOptions, NonlinearSystem}};
/// struct Root(Bsr); // x² = 2
/// impl NonlinearSystem for Root {
///     fn pattern(&self) -> &Bsr { &self.0 }
///     fn residual(&mut self, x: &[f64], f: &mut [f64]) -> krylith::Result<()> {
///         f[0] = x[0] * x[0] - 2.0;
///         Ok(())
///     }
///     fn jacobian(&mut self, x: &[f64], values: &mut [f64]) -> krylith::Result<()> {
///         values[0] = 2.0 * x[0];
///         Ok(())
///     }
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
    /// Outcome of the solve.
    pub outcome: NewtonOutcome,
    /// ‖F‖ at the initial guess.
    pub first: f64,
    /// ‖F‖ at the returned x.
    pub last: f64,
    /// The tolerance on ‖F‖.
    pub target: f64,
    /// All steps that were made.
    pub steps: Vec<NewtonStep>,
    /// Events in order, such as fallbacks of linear solves.
    pub events: Vec<NewtonEvent>,
    /// Seconds by kind of work, including steps that failed.
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

    /// Returns true if ‖F(x)‖ meets the tolerance.
    pub fn converged(&self) -> bool {
        self.outcome == NewtonOutcome::Converged
    }

    /// Returns the number of iterations of all linear solves.
    pub fn iterations(&self) -> usize {
        self.steps.iter().map(|step| step.iterations).sum()
    }
}

/// Observer of a Newton solve. The library itself never prints.
///
/// # Examples
/// ```
/// use krylith::matrix::Bsr;
/// use krylith::newton::{Newton, NewtonObserver, NewtonOptions, NewtonStep, NonlinearSystem};
/// # struct Root(Bsr); // x² = 2
/// # impl NonlinearSystem for Root {
/// #     fn pattern(&self) -> &Bsr { &self.0 }
/// #     fn residual(&mut self, x: &[f64], f: &mut [f64]) -> krylith::Result<()> {
/// #         f[0] = x[0] * x[0] - 2.0;
/// #         Ok(())
/// #     }
/// #     fn jacobian(&mut self, x: &[f64], values: &mut [f64]) -> krylith::Result<()> {
/// #         values[0] = 2.0 * x[0];
/// #         Ok(())
/// #     }
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
/// newton.solve_observed(&mut root, &mut [1.5], &mut log)?;
/// assert!(log.0.is_sorted_by(|a, b| a >= b)); // ‖F‖ falls in every step
/// # Ok::<(), krylith::Error>(())
/// ```
pub trait NewtonObserver {
    /// Receives ‖F‖ after this number of steps, and the tolerance on ‖F‖. Return `Break` to interrupt the
    /// solve.
    fn residual(&mut self, _steps: usize, _norm: f64, _target: f64) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
    /// Receives the progress of the linear solve of a step, which is numbered from 1. Return `Break` to
    /// interrupt the solve.
    fn linear(&mut self, _step: usize, _progress: Progress) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
    /// Called after each step.
    fn stepped(&mut self, _step: &NewtonStep) {}
    /// Called for each event.
    fn event(&mut self, _event: &NewtonEvent) {}
    /// Called when continuation begins to solve for this value of the parameter.
    fn parameter(&mut self, _value: f64) {}
}

impl NewtonObserver for () {}

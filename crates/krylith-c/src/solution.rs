//! Results of solves.

use crate::status::say;
use krylith_core::space::History;
use std::ffi::c_char;

/// How a solve ended.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The residual, recomputed from x, meets the tolerance.
    KrylithConverged = 0,
    /// The solve reached the iteration limit first.
    KrylithMaxIterations = 1,
    /// The method broke down: the matrix is singular for this right-hand side.
    KrylithBreakdown = 2,
    /// The residual no longer decreases.
    KrylithStagnated = 3,
    /// The tolerance is below the attainable residual; x is as accurate as that of a direct solve.
    KrylithRoundingLimit = 4,
    /// No x meets the tolerance; x is the least-squares solution.
    KrylithInconsistent = 5,
    /// The residual grew far above its initial value.
    KrylithDiverged = 6,
    /// A NaN or an infinity appeared.
    KrylithNotFinite = 7,
    /// The solve was cancelled, or its monitor ended it; x is the best solution found so far.
    KrylithInterrupted = 8,
}

impl From<krylith_core::Outcome> for Outcome {
    fn from(outcome: krylith_core::Outcome) -> Self {
        use krylith_core::Outcome as From;
        match outcome {
            From::Converged => Self::KrylithConverged,
            From::MaxIterations => Self::KrylithMaxIterations,
            From::Breakdown => Self::KrylithBreakdown,
            From::Stagnated => Self::KrylithStagnated,
            From::RoundingLimit => Self::KrylithRoundingLimit,
            From::Inconsistent => Self::KrylithInconsistent,
            From::Diverged => Self::KrylithDiverged,
            From::NotFinite => Self::KrylithNotFinite,
            From::Interrupted => Self::KrylithInterrupted,
        }
    }
}

/// The criterion of convergence.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Criterion {
    /// ‖b − A x‖₂, relative to ‖b‖₂ or to the initial residual.
    KrylithCriterionResidual = 0,
    /// The same with every row divided by its 1-norm.
    KrylithCriterionRows = 1,
    /// The component-wise backward error of x.
    KrylithCriterionBackward = 2,
}

impl From<krylith_core::space::Criterion> for Criterion {
    fn from(criterion: krylith_core::space::Criterion) -> Self {
        use krylith_core::space::Criterion as From;
        match criterion {
            From::Residual => Self::KrylithCriterionResidual,
            From::Rows => Self::KrylithCriterionRows,
            From::Backward => Self::KrylithCriterionBackward,
        }
    }
}

/// The result of a solve.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Solution {
    /// How the solve ended.
    pub outcome: Outcome,
    /// Iterations of all attempts.
    pub iterations: i64,
    /// Number of restarts of the method from the recomputed residual.
    pub restarts: i64,
    /// The relative residual ‖b − A x‖ / ‖b‖, recomputed from x.
    pub true_residual: f64,
    /// The largest value of the criterion that counts as converged: of the relative residual, by default.
    pub target: f64,
    /// Seconds of set-up since the previous solve.
    pub setup_seconds: f64,
    /// Seconds of iterations.
    pub solve_seconds: f64,
    /// The value of the criterion, recomputed from x: by default the relative residual.
    pub criterion_value: f64,
    /// The criterion of convergence, which the option `criterion` names.
    pub criterion: Criterion,
}

impl From<&krylith_core::solver::Solution> for Solution {
    fn from(solution: &krylith_core::solver::Solution) -> Self {
        let (setup_seconds, solve_seconds) = (solution.setup_seconds, solution.solve_seconds);
        Self { setup_seconds, solve_seconds, ..Self::of(&solution.history, solution.target) }
    }
}

impl Solution {
    pub fn of(history: &History, target: f64) -> Self {
        Self {
            outcome: history.outcome.into(),
            iterations: history.iterations as i64,
            restarts: history.restarts as i64,
            true_residual: history.true_relative_residual,
            target,
            setup_seconds: 0.0,
            solve_seconds: 0.0,
            criterion_value: history.criterion_value,
            criterion: history.criterion.into(),
        }
    }
}

/// Returns the name of an outcome, such as "converged" or "max-iterations". The text is valid until the
/// calling thread asks for another text.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_outcome_name(outcome: i32) -> *const c_char {
    let found = krylith_core::Outcome::ALL.into_iter().find(|&known| Outcome::from(known) as i32 == outcome);
    say(found.map_or("unknown", |known| known.name()).into())
}

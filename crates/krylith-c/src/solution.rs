//! How a solve went.

use crate::status::say;
use krylith_core::space::History;
use std::ffi::c_char;

/// How a solve ended.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The true residual satisfies the tolerance.
    KrylithConverged = 0,
    /// The limit of iterations came first.
    KrylithMaxIterations = 1,
    /// The method cannot go on: the matrix is singular for this right-hand side.
    KrylithBreakdown = 2,
    /// No progress any more.
    KrylithStagnated = 3,
    /// The tolerance lies below what rounding makes of the residual, and x is as good as a direct solve's.
    KrylithRoundingLimit = 4,
    /// No x satisfies the tolerance; x is the least-squares answer.
    KrylithInconsistent = 5,
    /// The residual grew far past its start.
    KrylithDiverged = 6,
    /// A NaN or an infinity appeared.
    KrylithNotFinite = 7,
    /// The solve was cancelled, or its monitor asked to stop; x is the best so far.
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

/// How a solve went.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Solution {
    /// How it ended.
    pub outcome: Outcome,
    /// Iterations of all attempts.
    pub iterations: i64,
    /// How often the method began anew from the true residual.
    pub restarts: i64,
    /// ‖b − A x‖ / ‖b‖, computed anew from x.
    pub true_residual: f64,
    /// What it was to be.
    pub target: f64,
    /// Seconds of set-up since the solve before.
    pub setup_seconds: f64,
    /// Seconds of iterating.
    pub solve_seconds: f64,
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
        }
    }
}

/// An outcome in a word, such as "converged" or "max-iterations". The text is the calling thread's, until it
/// asks for another.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_outcome_name(outcome: i32) -> *const c_char {
    let found = krylith_core::Outcome::ALL.into_iter().find(|&known| Outcome::from(known) as i32 == outcome);
    say(found.map_or("unknown", |known| known.name()).into())
}

//! What the host knows of a solve under way.

use super::ending::Known;
use crate::space::{History, Observer, Progress, Stop};

/// Iterations that a recurrence has before it is taken to be lost in rounding.
const FEW: usize = 50;

/// What the host knows of a solve under way.
pub(super) struct Convergence {
    pub norm_b: f64,
    pub target: f64,
    /// The same over ‖b‖.
    pub relative_target: f64,
    pub max_iters: usize,
    /// ‖r‖ at the start.
    pub first: f64,
    /// What is known of the first guess.
    pub start: Known,
    /// Smallest true residual so far.
    pub best: f64,
    /// Restarts in a row without progress.
    pub idle: usize,
    /// Iterations when the true residual was last known.
    pub verified: usize,
    /// That residual was the certified one.
    pub certified: bool,
    /// Batches in a row that did nothing.
    pub empty: usize,
    /// Rounding has been seen to count.
    pub near: bool,
    /// The iteration that the observer heard of last.
    pub told: Option<usize>,
}

impl Convergence {
    pub fn new(norm_b: f64, stop: &Stop) -> Self {
        Self {
            norm_b,
            target: stop.target(norm_b),
            max_iters: stop.max_iters,
            relative_target: stop.rtol.max(stop.atol / norm_b),
            first: f64::NAN,
            start: Known { norm: f64::NAN, rounding: f64::NAN },
            best: f64::INFINITY,
            idle: 0,
            verified: 0,
            certified: false,
            empty: 0,
            near: false,
            told: None,
        }
    }

    /// True where the recurrence has gone on for long since the last true residual, for as long as there were iterations before it.
    pub fn is_waiting(&self, iterations: usize) -> bool {
        iterations.saturating_sub(self.verified) > self.verified.max(FEW)
    }

    pub fn progress(&self, iteration: usize, residual: f64) -> Progress {
        let (norm_b, target) = (self.norm_b, self.target);
        Progress { iteration, relative_residual: residual / norm_b, target: target / norm_b }
    }

    /// Tells the observer where the solve is, each iteration once, and a restart, which repeats the one before it, too.
    pub fn tell(&mut self, history: &History, verified: bool, observer: &mut dyn Observer) -> bool {
        let iteration = history.iterations;
        let news = verified || self.told != Some(iteration);
        self.told = Some(iteration);
        let relative = history.residuals.last().copied().unwrap_or(f64::NAN);
        news && observer.progress(self.progress(iteration, relative * self.norm_b)).is_break()
    }
}

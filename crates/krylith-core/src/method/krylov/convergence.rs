//! The host's view of a solve in progress.

use super::ending::Known;
use crate::space::{History, Observer, Progress, Stop};

/// Iterations that a recurrence may take before it counts as lost in rounding.
const FEW: usize = 50;

/// The host's view of a solve in progress.
pub(super) struct Convergence {
    pub norm_b: f64,
    pub target: f64,
    /// The target divided by ‖b‖.
    pub relative_target: f64,
    pub max_iters: usize,
    /// ‖r‖ at the start.
    pub first: f64,
    /// Residual of the initial guess.
    pub start: Known,
    /// Smallest true residual so far.
    pub best: f64,
    /// Restarts in a row without progress.
    pub idle: usize,
    /// Number of iterations when the true residual was last computed.
    pub verified: usize,
    /// True if that residual was the certified one.
    pub certified: bool,
    /// Number of consecutive batches that took no iteration.
    pub empty: usize,
    /// True once the residual came so close to the rounding level that rounding matters.
    pub near: bool,
    /// The iteration that the observer was last notified of.
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

    /// Returns true if the recurrence has gone on for long without a true residual: for more iterations than
    /// it took before the last one.
    pub fn is_waiting(&self, iterations: usize) -> bool {
        iterations.saturating_sub(self.verified) > self.verified.max(FEW)
    }

    pub fn progress(&self, iteration: usize, residual: f64) -> Progress {
        let (norm_b, target) = (self.norm_b, self.target);
        Progress { iteration, relative_residual: residual / norm_b, target: target / norm_b }
    }

    /// Notifies the observer of the progress: of each iteration once, and also of a restart, which repeats
    /// the iteration before it.
    pub fn tell(&mut self, history: &History, verified: bool, observer: &mut dyn Observer) -> bool {
        let iteration = history.iterations;
        let news = verified || self.told != Some(iteration);
        self.told = Some(iteration);
        let relative = history.residuals.last().copied().unwrap_or(f64::NAN);
        news && observer.progress(self.progress(iteration, relative * self.norm_b)).is_break()
    }
}

//! The host's view of a solve in progress.

use super::ending::Known;
use crate::Result;
use crate::space::{History, Observer, Progress, Space, Stop};

/// Smallest number of iterations after which a recurrence may count as lost in rounding errors.
const FEW: usize = 50;

/// The host's view of a solve in progress.
pub(super) struct Convergence {
    pub norm_b: f64,
    pub target: f64,
    /// The target divided by ‖b‖.
    pub relative_target: f64,
    pub max_iters: usize,
    /// ‖r‖ at the start of the solve.
    pub first: f64,
    /// Residual of the initial guess.
    pub start: Known,
    /// Smallest true residual so far.
    pub best: f64,
    /// Restarts in a row without progress.
    pub idle: usize,
    /// Number of iterations at the last true residual.
    pub verified: usize,
    /// True if the last true residual was a certified residual.
    pub certified: bool,
    /// Number of consecutive batches without an iteration.
    pub empty: usize,
    /// True once the residual was so close to the rounding level that rounding errors matter.
    pub near: bool,
    /// The last iteration that was reported to the observer.
    pub told: Option<usize>,
    /// The last iteration whose x the observer has seen.
    pub shown: usize,
    /// The unit of b and x.
    pub unit: f64,
}

impl Convergence {
    pub fn new(norm_b: f64, unit: f64, stop: &Stop) -> Self {
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
            shown: 0,
            unit,
        }
    }

    /// Shows the sum of x and the correction since the last restart, if they are known, to an observer that
    /// sees x.
    pub fn show<S: Space>(
        &mut self,
        s: &S,
        iteration: usize,
        vectors: Option<[&S::Vector; 2]>,
        observer: &mut dyn Observer,
    ) -> Result<bool> {
        let Some([x, correction]) = vectors.filter(|_| observer.sees_x() && self.shown != iteration) else {
            return Ok(false);
        };
        self.shown = iteration;
        let (mut sum, mut more) = (vec![0.0; s.len()], vec![0.0; s.len()]);
        s.read(x, &mut sum)?;
        s.read(correction, &mut more)?;
        sum.iter_mut().zip(more).for_each(|(x, d)| *x = (*x + d) / self.unit);
        Ok(observer.shown(iteration, &sum).is_break())
    }

    /// Returns true if the recurrence has run for long without a true residual: for more iterations than
    /// before the last true residual.
    pub fn is_waiting(&self, iterations: usize) -> bool {
        iterations.saturating_sub(self.verified) > self.verified.max(FEW)
    }

    pub fn progress(&self, iteration: usize, residual: f64) -> Progress {
        let (norm_b, target) = (self.norm_b, self.target);
        Progress { iteration, relative_residual: residual / norm_b, target: target / norm_b }
    }

    /// Reports progress to the observer: each iteration once, and also a restart, which repeats the iteration
    /// before it.
    pub fn tell(&mut self, history: &History, verified: bool, observer: &mut dyn Observer) -> bool {
        let iteration = history.iterations;
        let news = verified || self.told != Some(iteration);
        self.told = Some(iteration);
        let relative = history.residuals.last().copied().unwrap_or(f64::NAN);
        news && observer.progress(self.progress(iteration, relative * self.norm_b)).is_break()
    }
}

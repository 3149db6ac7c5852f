//! The host's view of a solve in progress.

use super::ending::Known;
use crate::Result;
use crate::space::{Criterion, History, Observer, Progress, RelativeTo, Space, Stop};

/// Smallest number of iterations after which a recurrence may count as lost in rounding errors.
const FEW: usize = 50;

/// The host's view of a solve in progress.
pub(super) struct Convergence {
    /// The norm of b in the criterion: ‖b‖₂, ‖D⁻¹b‖₂, or 1 for a backward error.
    pub norm_b: f64,
    /// ‖b‖₂.
    pub euclidean: f64,
    /// True for ‖r‖₂ ≤ max(rtol ‖b‖₂, atol).
    pub usual: bool,
    /// The norm that divides residuals: that of b or of r₀. NaN as long as that of r₀ is unknown.
    pub reference: f64,
    /// How many units of the solve's norm a unit of the criterion's norm is.
    pub units: f64,
    /// The value of the criterion's norm that ends the solve.
    pub target: f64,
    /// The target divided by the reference.
    pub relative_target: f64,
    tolerances: [f64; 2],
    /// The last certified value of the criterion, if the norm of the recurrence is another.
    pub reading: Option<Known>,
    /// ‖r‖₂ at the last certified residual, if rows are scaled.
    pub plain: Option<f64>,
    /// The criterion's norm divided by that of the recurrence, at the last certified residual.
    pub ratio: f64,
    /// Share of the estimated norm at which the recurrence ends.
    pub margin: f64,
    /// True if the host computes the target of the recurrence after a certified residual.
    pub aims: bool,
    /// True if the recurrence has the norm of the criterion.
    exact: bool,
    pub max_iters: usize,
    /// ‖r‖ at the start of the solve.
    pub first: f64,
    /// Residual of the initial guess.
    pub start: Known,
    /// Smallest true residual so far, in the criterion's norm and in that of the recurrence.
    pub best: f64,
    pub best_norm: f64,
    /// ‖r‖ of the recurrence at the start of the solve.
    pub first_norm: f64,
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
    /// Begins a solve with these norms of b: ‖b‖₂, and that of the criterion.
    pub fn new([euclidean, norm_b]: [f64; 2], unit: f64, stop: &Stop) -> Self {
        let mut new = Self {
            norm_b,
            euclidean,
            usual: stop.is_usual(),
            reference: f64::NAN,
            units: unit,
            target: 0.0,
            relative_target: 0.0,
            tolerances: [stop.rtol, stop.atol],
            reading: None,
            plain: None,
            ratio: 1.0,
            margin: 1.0,
            aims: false,
            exact: true,
            max_iters: stop.max_iters,
            first: f64::NAN,
            start: Known { norm: f64::NAN, rounding: f64::NAN, plain: f64::NAN },
            best: f64::INFINITY,
            best_norm: f64::INFINITY,
            first_norm: f64::NAN,
            idle: 0,
            verified: 0,
            certified: false,
            empty: 0,
            near: false,
            told: None,
            shown: 0,
            unit,
        };
        new.set_reference(stop);
        new
    }

    /// Sets what the quantity of a criterion knows.
    pub fn set_quantity(&mut self, units: f64, margin: f64, exact: bool, stop: &Stop) {
        (self.units, self.margin, self.exact) = (units, margin, exact);
        self.set_reference(stop);
        self.aims |= !exact;
    }

    fn set_reference(&mut self, stop: &Stop) {
        self.reference = match (stop.criterion, stop.reference, stop.relative_to) {
            (Criterion::Backward, ..) => 1.0,
            (_, Some(reference), _) => reference * self.units,
            (_, None, RelativeTo::B) => stop.given_norm.map_or(self.norm_b, |norm| norm * self.units),
            (_, None, RelativeTo::R0) => f64::NAN,
        };
        self.aims = self.reference.is_nan();
        self.set_target();
    }

    fn set_target(&mut self) {
        let [rtol, atol] = [self.tolerances[0], self.tolerances[1] * self.units];
        self.target = (rtol * self.reference).max(atol);
        self.relative_target = rtol.max(atol / self.reference);
    }

    /// Takes the norm of r₀, to which residuals may be relative.
    pub fn take_first(&mut self, value: f64) {
        if self.reference.is_nan() {
            self.reference = if value > 0.0 && value.is_finite() { value } else { self.norm_b };
            self.set_target();
        }
    }

    /// Lets the device run ahead of the host, if the target of the recurrence stays as it is.
    pub fn settle_aim(&mut self) {
        self.aims = !self.exact;
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
        let relative_residual = self.ratio * residual / self.reference;
        Progress { iteration, relative_residual, target: self.target / self.reference }
    }

    /// Reports progress to the observer: each iteration once, and also a restart, which repeats the iteration
    /// before it.
    pub fn tell(&mut self, history: &History, verified: bool, observer: &mut dyn Observer) -> bool {
        let iteration = history.iterations;
        let news = verified || self.told != Some(iteration);
        self.told = Some(iteration);
        let relative = history.residuals.last().copied().unwrap_or(f64::NAN);
        news && observer.progress(self.progress(iteration, relative * self.reference / self.ratio)).is_break()
    }
}

//! Solves against the matrix as given where the device stores it, or the preconditioner, rounded.
//!
//! A matrix rounded to f32 has another solution: a method on it converges to a residual that the given system does not
//! have. So each pass solves A₃₂ d = r for the residual r = b − A x of the given system, computed on the host in
//! f64, and adds d to x, until r itself is small enough or no longer falls: iterative refinement. The x of the smallest r is the answer.

use super::OriginalSystem;
use super::solution::copy_history;
use crate::memory::Numbers;
use crate::method::{LIMIT, Method};
use crate::operator::LinearOperator;
use crate::space::Space;
use crate::space::Transfer;
use crate::{History, Observer, Outcome, Progress, Result, Stop};
use std::ops::ControlFlow;

/// The parts of one solve.
pub(super) struct Parts<'a, S: Space> {
    /// Where it runs.
    pub space: &'a S,
    /// The operator on the device.
    pub a: &'a dyn LinearOperator<S>,
    /// P⁻¹.
    pub p: Option<&'a dyn LinearOperator<S>>,
    /// When to stop.
    pub stop: Stop,
}

/// b and x on the device.
pub(super) struct Vectors<S: Space> {
    pub b: S::Vector,
    pub x: S::Vector,
}

/// x so far, what a pass solves for, and the x of the smallest residual, on the host.
pub(super) struct Passes {
    pub x: Vec<f64>,
    correction: Vec<f64>,
    best: Vec<f64>,
}

impl Passes {
    /// Room for vectors of `n` numbers.
    pub fn new(n: usize) -> Self {
        Self { x: vec![0.0; n], correction: vec![0.0; n], best: vec![0.0; n] }
    }
}

/// Tells an observer of a pass as part of the whole.
struct Shifted<'a> {
    observer: &'a mut dyn Observer,
    /// Iterations of the passes before.
    done: usize,
    /// ‖r‖/‖b‖ at which the pass began.
    share: f64,
    /// ‖r‖/‖b‖ that ends the solve.
    target: f64,
}

impl Observer for Shifted<'_> {
    fn progress(&mut self, p: Progress) -> ControlFlow<()> {
        self.observer.progress(Progress {
            iteration: self.done + p.iteration,
            relative_residual: p.relative_residual * self.share,
            target: self.target,
        })
    }
    fn restarted(&mut self, iteration: usize, why: &'static str) {
        self.observer.restarted(self.done + iteration, why);
    }
}

/// One solve from `x`, which stays as it is: the answer is left in `on.x`.
pub(super) fn once<'m, S: Transfer>(
    parts: &Parts<S>,
    method: &'m mut dyn Method<S>,
    rhs: Numbers,
    x: Numbers,
    on: &mut Vectors<S>,
    observer: &mut dyn Observer,
) -> Result<&'m History> {
    let s = parts.space;
    s.write_from(rhs, &mut on.b)?;
    s.write_from(x, &mut on.x)?;
    method.solve(s, parts.a, parts.p, &on.b, &mut on.x, &parts.stop, observer)
}

/// As many solves from `x` as the residual of the system as given needs; the answer is left in `passes.x`, the history of
/// all passes in `history`. Returns their number.
pub(super) fn refined<S: Transfer>(
    parts: &Parts<S>,
    method: &mut dyn Method<S>,
    original: OriginalSystem,
    rhs: &[f64],
    x: &[f64],
    on: &mut Vectors<S>,
    passes: &mut Passes,
    history: &mut History,
    observer: &mut dyn Observer,
) -> Result<usize> {
    passes.x.copy_from_slice(x);
    let norm_b = original.norm(rhs)?;
    if norm_b == 0.0 {
        copy_history(history, once(parts, method, rhs.into(), x.into(), on, observer)?);
        parts.space.read(&on.x, &mut passes.x)?;
        return Ok(1);
    }
    let target = parts.stop.target(norm_b);
    history.clear();
    history.rhs_norm = norm_b;
    let (mut before, mut count, mut last) = (f64::INFINITY, 0, Outcome::Converged);
    let (mut best, mut rounding) = (f64::INFINITY, 0.0);
    history.outcome = loop {
        let r = original.residual(rhs, &passes.x)?;
        let beta = original.norm(&r)?;
        history.true_relative_residual = beta / norm_b;
        match history.residuals.last_mut() {
            None => history.residuals.push(beta / norm_b),
            Some(last) => *last = beta / norm_b, // the true one replaces the rounded system's
        }
        history.rounding = original.rounding(rhs, &passes.x)? / norm_b;
        if beta < best {
            (best, rounding) = (beta, history.rounding);
            passes.best.copy_from_slice(&passes.x);
        }
        if beta <= target {
            history.reason = None;
            break Outcome::Converged;
        }
        if !beta.is_finite() {
            break Outcome::NotFinite;
        }
        if matches!(last, Outcome::MaxIterations | Outcome::Interrupted) {
            break last;
        }
        // However the rounded system's solve ended, another pass follows one that reduced the residual of the given system. What rounding
        // allows is said of that system alone.
        if beta >= 0.5 * before {
            break match last {
                _ if best <= LIMIT * rounding * norm_b => Outcome::RoundingLimit,
                Outcome::Converged | Outcome::RoundingLimit => Outcome::Stagnated,
                other => other,
            };
        }
        before = beta;
        // The first pass may well be enough; the next ones leave room for the rounding of A.
        let share = if count == 0 { 1.0 } else { 0.5 };
        let done = history.iterations;
        let stop = Stop { rtol: 0.0, atol: share * target, max_iters: parts.stop.max_iters - done };
        if count > 0 {
            observer
                .restarted(done, "the residual of the matrix in f64 was larger than that of the stored one");
        }
        let mut shifted =
            Shifted { observer: &mut *observer, done, share: beta / norm_b, target: target / norm_b };
        passes.correction.fill(0.0);
        let pass = Parts { stop, ..*parts };
        let correction = Numbers::from(&passes.correction);
        let inner = once(&pass, method, Numbers::from(&r), correction, on, &mut shifted)?;
        history.residuals.extend(inner.residuals[1..].iter().map(|r| r * beta / norm_b));
        history.iterations += inner.iterations;
        history.restarts += inner.restarts + usize::from(count > 0);
        history.reductions += inner.reductions;
        history.reason = inner.reason;
        (last, count) = (inner.outcome, count + 1);
        parts.space.read(&on.x, &mut passes.correction)?;
        passes.x.iter_mut().zip(&passes.correction).for_each(|(x, d)| *x += d);
    };
    if history.true_relative_residual * norm_b != best && best.is_finite() {
        passes.x.copy_from_slice(&passes.best);
        history.true_relative_residual = best / norm_b;
        history.rounding = rounding;
        if let Some(last) = history.residuals.last_mut() {
            *last = best / norm_b;
        }
    }
    Ok(count)
}

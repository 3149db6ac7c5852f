//! Solves against the matrix as given where the device stores it, or the preconditioner, rounded.
//!
//! A matrix rounded to f32 has another solution: a method on it converges to a residual that the given system does not
//! have. So each pass solves A₃₂ d = r for the residual r = b − A x of the given system, computed on the host in
//! f64, and adds d to x, until r itself is small enough: iterative refinement.

use crate::residual::Given;
use krylith::method::Method;
use krylith::operator::LinearOperator;
use krylith::space::Space;
use krylith::{History, Observer, Outcome, Progress, Result, Stop};
use std::ops::ControlFlow;

/// The parts of one solve.
pub struct Parts<'a, S: Space> {
    /// Where it runs.
    pub space: &'a S,
    /// The operator on the device.
    pub a: &'a dyn LinearOperator<S>,
    /// P⁻¹.
    pub p: Option<&'a dyn LinearOperator<S>>,
    /// b.
    pub rhs: &'a [f64],
    /// When to stop.
    pub stop: Stop,
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

/// One solve from `x`.
pub fn once<S: Space>(
    parts: &Parts<S>,
    method: &mut dyn Method<S>,
    x: &mut [f64],
    observer: &mut dyn Observer,
) -> Result<History> {
    let s = parts.space;
    let (mut b, mut dx) = (s.vector()?, s.vector()?);
    s.write(parts.rhs, &mut b)?;
    s.write(x, &mut dx)?;
    let history = method.solve(s, parts.a, parts.p, &b, &mut dx, &parts.stop, observer)?.clone();
    s.read(&dx, x)?;
    Ok(history)
}

/// As many solves as the residual of `given` needs. The history goes on through all of them.
pub fn refined<S: Space>(
    parts: &Parts<S>,
    method: &mut dyn Method<S>,
    given: Given,
    x: &mut [f64],
    observer: &mut dyn Observer,
) -> Result<(History, usize)> {
    let norm_b = given.norm(parts.rhs)?;
    if norm_b == 0.0 {
        return Ok((once(parts, method, x, observer)?, 1));
    }
    let target = (parts.stop.rtol * norm_b).max(parts.stop.atol);
    let mut history = History::with_room(0);
    history.rhs_norm = norm_b;
    let (mut before, mut passes, mut last) = (f64::INFINITY, 0, Outcome::Converged);
    let mut correction = vec![0.0; x.len()];
    history.outcome = loop {
        let r = given.residual(parts.rhs, x)?;
        let beta = given.norm(&r)?;
        history.true_relative_residual = beta / norm_b;
        match history.residuals.last_mut() {
            None => history.residuals.push(beta / norm_b),
            Some(last) => *last = beta / norm_b, // the true one replaces the rounded system's
        }
        if beta <= target {
            break Outcome::Converged;
        }
        if !beta.is_finite() {
            break Outcome::NotFinite;
        }
        if last != Outcome::Converged {
            break last;
        }
        if beta >= 0.5 * before {
            break Outcome::Stagnated;
        }
        before = beta;
        // The first pass may well be enough; the next ones leave room for the rounding of A.
        let share = if passes == 0 { 1.0 } else { 0.5 };
        let done = history.iterations;
        let stop = Stop { rtol: 0.0, atol: share * target, max_iterations: parts.stop.max_iterations - done };
        if passes > 0 {
            observer
                .restarted(done, "the residual of the matrix in f64 was larger than that of the stored one");
        }
        let mut shifted =
            Shifted { observer: &mut *observer, done, share: beta / norm_b, target: target / norm_b };
        correction.fill(0.0);
        let pass = Parts { rhs: &r, stop, ..*parts };
        let inner = once(&pass, method, &mut correction, &mut shifted)?;
        x.iter_mut().zip(&correction).for_each(|(x, d)| *x += d);
        history.residuals.extend(inner.residuals[1..].iter().map(|r| r * beta / norm_b));
        history.iterations += inner.iterations;
        history.restarts += inner.restarts + usize::from(passes > 0);
        history.reductions += inner.reductions;
        (last, passes) = (inner.outcome, passes + 1);
    };
    Ok((history, passes))
}

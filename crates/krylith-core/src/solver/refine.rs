//! Iterative refinement, which solves the system as given although the device stores a rounded matrix or
//! preconditioner.
//!
//! A matrix A₃₂ rounded to f32 has another solution, so its residual says little about the given system. Each
//! pass therefore computes the residual r = b − A x of the given system on the host in f64, solves A₃₂ d = r
//! on the device, and adds d to x. Passes continue until r is small enough or no longer falls. The x with the
//! smallest r is returned.

use super::OriginalSystem;
use super::host_criterion::HostCriterion;
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
    /// The space of the device.
    pub space: &'a S,
    /// The operator on the device.
    pub a: &'a dyn LinearOperator<S>,
    /// P⁻¹.
    pub p: Option<&'a dyn LinearOperator<S>>,
    /// The stopping criteria.
    pub stop: Stop,
}

/// b and x on the device.
pub(super) struct Vectors<S: Space> {
    pub b: S::Vector,
    pub x: S::Vector,
}

/// Host vectors: the current x, the correction of a pass, and the x with the smallest residual.
pub(super) struct Passes {
    pub x: Vec<f64>,
    correction: Vec<f64>,
    best: Vec<f64>,
}

impl Passes {
    /// Allocates vectors of length `n`.
    pub fn new(n: usize) -> Self {
        Self { x: vec![0.0; n], correction: vec![0.0; n], best: vec![0.0; n] }
    }
}

/// Reports to an observer the progress of one pass, as part of the whole solve.
struct Shifted<'a> {
    observer: &'a mut dyn Observer,
    /// Number of iterations of earlier passes.
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

/// Runs one solve from `x`, which does not change. The solution is in `on.x` afterwards.
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

/// Runs passes from `x` until the residual of the given system is small enough or no longer falls. Afterwards
/// `passes.x` has the solution, and `history` the history of all passes. Returns the number of passes.
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
    let criterion = HostCriterion::new(original, parts.stop);
    history.clear();
    history.rhs_norm = norm_b;
    (history.criterion, history.relative_to) = (parts.stop.criterion, parts.stop.relative_to);
    let (mut before, mut count, mut last) = (f64::INFINITY, 0, Outcome::Converged);
    let (mut best, mut plain, mut rounding) = (f64::INFINITY, f64::INFINITY, 0.0);
    let mut reference = None;
    history.outcome = loop {
        let r = original.residual(rhs, &passes.x)?;
        let found = criterion.of(rhs, &passes.x, &r)?;
        let beta = found.value;
        let reference = match reference {
            Some(known) => known,
            None => *reference.insert(criterion.reference(rhs, norm_b, beta)?),
        };
        let target = parts.stop.target(reference);
        history.true_relative_residual = found.plain / norm_b;
        (history.criterion_value, history.reference) = (beta / reference, reference);
        match history.residuals.last_mut() {
            None => history.residuals.push(beta / reference),
            Some(last) => *last = beta / reference, // replaces the residual of the rounded system
        }
        history.rounding = found.rounding / reference;
        if beta < best {
            (best, plain, rounding) = (beta, found.plain, history.rounding);
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
        // Another pass follows if the solve of the rounded system reduced the residual of the given system,
        // whatever its outcome was. The rounding limit is that of the given system alone.
        if beta >= 0.5 * before {
            break match last {
                _ if best <= LIMIT * rounding * reference => Outcome::RoundingLimit,
                Outcome::Converged | Outcome::RoundingLimit => Outcome::Stagnated,
                other => other,
            };
        }
        before = beta;
        // The first pass may suffice. Later passes leave a margin for the rounding of A.
        let share = if count == 0 { 1.0 } else { 0.5 };
        let done = history.iterations;
        let stop = criterion.of_pass(share * target, beta, parts.stop.max_iters - done);
        if count > 0 {
            observer.restarted(
                done,
                "the residual with the matrix in f64 was larger than with the matrix in f32",
            );
        }
        let mut shifted =
            Shifted { observer: &mut *observer, done, share: beta / reference, target: target / reference };
        passes.correction.fill(0.0);
        let pass = Parts { stop, ..*parts };
        let correction = Numbers::from(&passes.correction);
        let inner = once(&pass, method, Numbers::from(&r), correction, on, &mut shifted)?;
        history.residuals.extend(inner.residuals[1..].iter().map(|r| r * beta / reference));
        history.iterations += inner.iterations;
        history.restarts += inner.restarts + usize::from(count > 0);
        history.reductions += inner.reductions;
        history.reason = inner.reason;
        (last, count) = (inner.outcome, count + 1);
        parts.space.read(&on.x, &mut passes.correction)?;
        passes.x.iter_mut().zip(&passes.correction).for_each(|(x, d)| *x += d);
    };
    if history.criterion_value * history.reference != best && best.is_finite() {
        passes.x.copy_from_slice(&passes.best);
        history.true_relative_residual = plain / norm_b;
        history.criterion_value = best / history.reference;
        history.rounding = rounding;
        if let Some(last) = history.residuals.last_mut() {
            *last = history.criterion_value;
        }
    }
    Ok(count)
}

//! The end of a solve: the x that it returns, and its outcome.
//!
//! The outcome describes the x that the caller gets, by its certified residual. [`Krylov::end`] decides about
//! x and the outcome, after the last iteration. x is always finite: it is the last x, the best x, or the
//! initial guess.

use super::convergence::Convergence;
use super::{
    DIGITS, DIVERGED, Header, Krylov, LIMIT, NEAR, Now, Operators, PROGRESS, Recurrence, clear, finite,
    measure, norm_of_residual, norm_squared, rescale, scale,
};
use crate::Result;
use crate::space::{COMPLETED, FLAGS, Observer, Outcome, REASON, Reason, Space, VERIFIED};

/// Reason why x, scaled back to the unit of the system, is not the x that the iterations found.
const OVERFLOW: &str = "x overflows double precision";
const UNDERFLOW: &str = "x is below the smallest normal number";
/// Message of a solve that does not start from the initial guess.
const GUESS: &str = "the residual of the initial guess is not finite; the solve starts from zeros";

/// The norm ‖b − A x‖ of an x in the criterion, the effect of rounding x on it, and the 2-norm, all in the
/// unit of the solve.
#[derive(Debug, Clone, Copy)]
pub(in crate::method) struct Known {
    pub norm: f64,
    pub rounding: f64,
    pub plain: f64,
}

impl Known {
    /// Returns true if rounding of x in double precision explains the residual.
    pub fn is_at_limit(self, norm_b: f64) -> bool {
        self.norm <= (LIMIT * self.rounding).min(DIGITS * norm_b)
    }

    /// Returns true if this residual is smaller than the other, or if only this residual is finite.
    fn is_better_than(self, other: Self) -> bool {
        self.norm < other.norm || (self.norm.is_finite() && !other.norm.is_finite())
    }

    /// Returns the outcome of a solve that returns this x. An x that meets the tolerance is `Converged`,
    /// whatever ended the iterations. `RoundingLimit` is only for an x at the limit of rounding.
    fn settle(self, ended: Outcome, c: &Convergence) -> Outcome {
        match ended {
            _ if self.norm <= c.target => Outcome::Converged,
            _ if !self.norm.is_finite() => Outcome::NotFinite,
            Outcome::Converged | Outcome::RoundingLimit if self.is_at_limit(c.norm_b) => {
                Outcome::RoundingLimit
            }
            Outcome::Converged | Outcome::RoundingLimit => Outcome::Stagnated,
            other => other,
        }
    }
}

impl<S: Space, R: Recurrence<S>> Krylov<S, R> {
    /// Ends a solve: certifies the residual of an interrupted one, and writes x.
    pub(super) fn conclude(
        &mut self,
        s: &S,
        on: &Operators<S>,
        x: &mut S::Vector,
        unit: f64,
        outcome: Outcome,
        now: &mut Now,
        convergence: &mut Convergence,
    ) -> Result<()> {
        self.drain(s, &mut now.flags, &mut now.under_way, convergence)?;
        if convergence.verified != self.history.iterations {
            // An interrupted solve made iterations after the last true residual.
            self.certify(s, on, &mut now.flags, convergence)?;
        }
        self.end(s, on, x, unit, outcome, convergence)
    }

    /// Waits for the batches in flight and collects their results.
    pub(super) fn drain(
        &mut self,
        s: &S,
        flags: &mut [i32; FLAGS],
        under_way: &mut usize,
        convergence: &mut Convergence,
    ) -> Result<()> {
        while *under_way > 0 {
            let mut next = [0; FLAGS];
            self.collect_history(s, &mut next, convergence)?;
            *under_way -= 1;
            convergence.certified &= next[COMPLETED] == 0;
            if next[VERIFIED] != 0 {
                // The residual that was left to the host is not computed yet.
                convergence.verified = if self.is_left() { usize::MAX } else { self.history.iterations };
            }
            // Ignore batches that did nothing.
            if next[COMPLETED] > 0 || next[VERIFIED] != 0 {
                *flags = next;
            }
        }
        Ok(())
    }

    /// Returns the residual that the host read last.
    pub(super) fn known(&self, c: &Convergence) -> Known {
        let norm = self.host[Header::AT.norm];
        let rounding = self.host[Header::AT.rounding];
        c.reading.unwrap_or(Known { norm, rounding, plain: c.plain.unwrap_or(norm) })
    }

    /// Replaces the last residual of the history.
    pub(super) fn replace_last(&mut self, relative: f64) {
        *self.history.residuals.last_mut().expect("the first residual was pushed") = relative;
    }

    /// Reads the criterion after a batch that ended with a certified residual.
    pub(super) fn read_certified(
        &mut self,
        s: &S,
        on: &Operators<S>,
        flags: &[i32; FLAGS],
        c: &mut Convergence,
    ) -> Result<()> {
        self.read_quantity(s, on.quantity, c)?;
        self.aim(s, on, flags, c)?;
        self.replace_last(self.known(c).norm / c.reference);
        Ok(())
    }

    /// Returns true if the last true residual is as small as rounding allows.
    pub(super) fn is_at_limit(&self, c: &Convergence) -> bool {
        self.known(c).is_at_limit(c.norm_b)
    }

    /// Returns true if rounding affects the plain residual.
    pub(super) fn is_near(&self, c: &Convergence) -> bool {
        let target = if c.reading.is_some() { self.host[Header::AT.target] } else { c.target };
        self.host[Header::AT.norm] <= target.max(NEAR * self.host[Header::AT.rounding])
    }

    /// Returns the outcome if a true residual ends the solve. Otherwise that residual was a restart.
    pub(super) fn check_convergence(
        &mut self,
        flags: &[i32; FLAGS],
        c: &mut Convergence,
        observer: &mut dyn Observer,
    ) -> Option<Outcome> {
        let (beta, reason) = (self.known(c).norm, Reason::from_code(flags[REASON]));
        let norm = self.host[Header::AT.norm];
        c.verified = self.history.iterations;
        c.certified = c.reading.is_some();
        if c.first.is_nan() {
            (c.first, c.first_norm) = (beta, norm);
        }
        let progress = beta < c.best * if self.is_at_limit(c) { 0.5 } else { 1.0 - PROGRESS };
        // The norm of the recurrence may fall long before the quantity of the criterion does.
        let halved = c.reading.is_some() && norm < 0.5 * c.best_norm;
        c.idle = if progress || halved { 0 } else { c.idle + 1 };
        (c.best, c.best_norm) = (beta.min(c.best), norm.min(c.best_norm));
        let ended = self.outcome(flags, c);
        if ended.is_none() && reason != Reason::None && reason != Reason::Stopped {
            observer.restarted(self.history.iterations, reason.text());
        }
        ended
    }

    /// Checks by the certified residual an end that a plain residual suggested. If rounding errors caused
    /// that end, the solve continues.
    pub(super) fn judge(
        &mut self,
        flags: &[i32; FLAGS],
        c: &mut Convergence,
        ended: Option<Outcome>,
    ) -> Option<Outcome> {
        let near = self.is_near(c);
        let first = near && !std::mem::replace(&mut c.near, near);
        if first && matches!(ended, Some(Outcome::Stagnated | Outcome::Breakdown)) {
            (c.idle, c.best) = (0, self.known(c).norm);
        }
        self.outcome(flags, c)
    }

    /// Returns the outcome by the last true residual, if it ends the solve.
    fn outcome(&mut self, flags: &[i32; FLAGS], c: &Convergence) -> Option<Outcome> {
        let (beta, reason) = (self.known(c).norm, Reason::from_code(flags[REASON]));
        let has_grown = beta > DIVERGED * c.first || self.host[Header::AT.norm] > DIVERGED * c.first_norm;
        let budget = if reason == Reason::Invariant { 1 } else { R::PATIENCE };
        let stuck = c.idle >= budget || reason.is_final();
        self.history.reason = None;
        match () {
            () if beta <= c.target => Some(Outcome::Converged),
            () if !beta.is_finite() || reason == Reason::NotFinite => Some(Outcome::NotFinite),
            () if has_grown && !reason.is_final() => Some(Outcome::Diverged),
            // Rounding limits ‖r‖ from below. A breakdown counts as the reason only above that limit.
            () if stuck && self.is_at_limit(c) => Some(Outcome::RoundingLimit),
            () if stuck && reason.is_breakdown() => {
                self.history.reason = Some(reason.text());
                Some(Outcome::Breakdown)
            }
            () if stuck => Some(Outcome::Stagnated),
            () if self.history.iterations >= c.max_iters => Some(Outcome::MaxIterations),
            () => None,
        }
    }

    /// Starts from the initial guess, or from zeros if the residual of the guess is not finite.
    pub(super) fn begin_from(
        &mut self,
        s: &S,
        on: &Operators<S>,
        x: &mut S::Vector,
        (flags, under_way): (&[i32; FLAGS], &mut usize),
        c: &mut Convergence,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        self.read_quantity(s, on.quantity, c)?;
        let mut flags = *flags;
        if !self.known(c).norm.is_finite() && !self.is_zero(s, x)? {
            self.drain(s, &mut flags, under_way, c)?;
            self.clear(s, x)?;
            s.sweep(clear, &mut self.scalars, [], [], [&mut self.x], [])?;
            self.reopen(s, on, &mut flags, c)?;
            observer.restarted(0, GUESS);
        }
        c.start = self.known(c);
        c.take_first(c.start.norm);
        self.aim(s, on, &flags, c)?;
        c.settle_aim();
        self.history.residuals[0] = c.start.norm / c.reference;
        Ok(())
    }

    fn is_zero(&mut self, s: &S, x: &S::Vector) -> Result<bool> {
        s.guard(None);
        s.sweep(norm_squared, &mut self.scalars, [], [x], [], [Header::AT.rr])?;
        Ok(self.read_sum(s)? == 0.0)
    }

    /// Sets x to zeros if it has an entry that is not finite, for solves that do not start.
    pub(super) fn make_finite(&mut self, s: &S, x: &mut S::Vector) -> Result<()> {
        s.guard(None);
        s.sweep(finite, &mut self.scalars, [], [x], [], [Header::AT.rr])?;
        if self.read_sum(s)?.is_nan() { self.clear(s, x) } else { Ok(()) }
    }

    fn clear(&mut self, s: &S, x: &mut S::Vector) -> Result<()> {
        s.guard(None);
        s.sweep(clear, &mut self.scalars, [], [], [x], [])
    }

    /// Writes the solution to the caller's x, which still holds the initial guess, and records how the solve
    /// ended. No batch may be in flight.
    pub(super) fn end(
        &mut self,
        s: &S,
        on: &Operators<S>,
        x: &mut S::Vector,
        unit: f64,
        ended: Outcome,
        c: &mut Convergence,
    ) -> Result<()> {
        let ended = self.name_growth(s, ended, c)?;
        let mut known = self.best_known(s, on, c)?;
        let reason = self.history.reason.take();
        let mut outcome = known.settle(ended, c);
        self.history.reason = reason.filter(|_| outcome == ended);
        let mut better = known.is_better_than(c.start);
        if better && unit != 1.0 {
            let rounded = self.round_trip(s, on, unit, c)?;
            if !rounded.norm.is_finite() {
                better = false;
                (outcome, self.history.reason) = (Outcome::NotFinite, Some(OVERFLOW));
            } else if outcome == Outcome::Converged && rounded.norm > c.target {
                (outcome, self.history.reason) = (Outcome::RoundingLimit, Some(UNDERFLOW));
            }
            known = rounded;
        }
        match better {
            true if unit == 1.0 => s.copy(&self.x, x)?,
            true => s.sweep(scale, &mut self.scalars, [Header::AT.unit], [&self.x], [x], [])?,
            // x still holds the initial guess.
            false => known = c.start,
        }
        self.recurrence.read_scalars(&self.host);
        s.wait()?;
        let relative = known.norm / c.reference;
        let converged = outcome == Outcome::Converged;
        let history = &mut self.history;
        history.outcome = outcome;
        history.rounding = known.rounding / c.reference;
        history.reference = c.reference / c.units;
        // The quotient is rounded. It may exceed the tolerance although numerator and denominator meet it.
        history.criterion_value = if converged { relative.min(c.relative_target) } else { relative };
        history.true_relative_residual =
            if c.usual { history.criterion_value } else { known.plain / c.euclidean };
        Ok(())
    }

    /// Returns `Diverged` for a solve that ended because x is not finite although b − A x is finite. Then
    /// unknowns that no row reads have grown.
    fn name_growth(&mut self, s: &S, ended: Outcome, c: &Convergence) -> Result<Outcome> {
        if ended != Outcome::NotFinite || !self.known(c).norm.is_nan() {
            return Ok(ended);
        }
        s.guard(None);
        let r = self.recurrence.residual();
        s.sweep(norm_squared, &mut self.scalars, [], [r], [], [Header::AT.rr])?;
        let norm = self.read_sum(s)?;
        if !norm.is_finite() {
            return Ok(ended);
        }
        self.replace_last(c.ratio * norm / c.reference);
        Ok(Outcome::Diverged)
    }

    /// Returns the certified residual of the last x. If the best x so far has a smaller certified residual,
    /// it replaces the last x.
    fn best_known(&mut self, s: &S, on: &Operators<S>, c: &mut Convergence) -> Result<Known> {
        if !c.certified && self.known(c).norm.is_finite() {
            self.reopen(s, on, &mut [0; FLAGS], c)?;
        }
        let (last, best) = (self.known(c), self.host[Header::AT.best]);
        let norm = self.host[Header::AT.norm];
        let other = best < norm || (!norm.is_finite() && best.is_finite());
        if last.norm <= c.target || !other {
            return Ok(last);
        }
        // The best x was chosen by plain residuals. Its certified residual decides.
        let best = self.certified_best(s, on)?;
        if !best.is_better_than(last) {
            return Ok(last);
        }
        s.copy(&self.x_best, &mut self.x)?;
        Ok(best)
    }

    fn certified_best(&mut self, s: &S, on: &Operators<S>) -> Result<Known> {
        let Self { recurrence, scalars, b, correction, x_best, .. } = self;
        s.guard(None);
        let work = &mut on.work(s, scalars, true);
        work.sweep(clear, [], [correction])?;
        work.certified_residual(b, x_best, recurrence.residual(), correction)?;
        work.sweep(norm_of_residual, [recurrence.residual(), x_best], [])?;
        work.step(measure, 0)?;
        let (mut header, mut flags) = ([0.0; Header::<usize, usize>::LEN], [0; FLAGS]);
        s.read_scalars(scalars, 0, &mut header, &mut flags)?;
        let (norm, rounding) = (header[Header::AT.norm], header[Header::AT.rounding]);
        match on.quantity {
            Some(quantity) => quantity.read(s, norm, rounding),
            None => Ok(Known { norm, rounding, plain: norm }),
        }
    }

    /// Scales x to the unit of the system, in which entries may overflow or lose digits by underflow, and
    /// back. Returns the residual of the result in the unit of the solve. Afterwards the slot of the unit,
    /// which sweeps read, has the inverse of the unit.
    fn round_trip(&mut self, s: &S, on: &Operators<S>, unit: f64, c: &mut Convergence) -> Result<Known> {
        for unit in [1.0 / unit, unit] {
            self.write_unit(s, unit)?;
            s.sweep(rescale, &mut self.scalars, [Header::AT.unit], [], [&mut self.x], [])?;
        }
        self.reopen(s, on, &mut [0; FLAGS], c)?;
        self.write_unit(s, 1.0 / unit)?;
        Ok(self.known(c))
    }
}

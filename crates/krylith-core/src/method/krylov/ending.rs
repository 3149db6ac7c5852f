//! What a solve gives back, and what is said of it.
//!
//! The outcome is that of the x that the caller gets, by its certified residual: [`Krylov::end`] is the one place where both are
//! decided, after the last iteration. x is finite whatever happened: the last x, the best one, or the first guess.

use super::convergence::Convergence;
use super::{
    DIGITS, Header, Krylov, LIMIT, Operators, Recurrence, clear, finite, measure, norm_of_residual,
    norm_squared, rescale, scale,
};
use crate::Result;
use crate::space::{FLAGS, Observer, Outcome, Space};

/// Why x is not what the iterations found, where b is far from 1.
const OVERFLOW: &str = "x overflows double precision";
const UNDERFLOW: &str = "x is below the smallest normal number";
/// Why a solve does not begin from the first guess.
const GUESS: &str = "the residual of the first guess is not finite: begun from zeros";

/// ‖b − A x‖ of an x, and what rounding x makes of it; in the unit of the solve.
#[derive(Debug, Clone, Copy)]
pub(super) struct Known {
    pub norm: f64,
    pub rounding: f64,
}

impl Known {
    /// As good as double precision gets.
    pub fn is_at_limit(self, norm_b: f64) -> bool {
        self.norm <= (LIMIT * self.rounding).min(DIGITS * norm_b)
    }

    /// Smaller, or the only one that is a number.
    fn is_better_than(self, other: Self) -> bool {
        self.norm < other.norm || (self.norm.is_finite() && !other.norm.is_finite())
    }

    /// How a solve ended that gives back this x: nothing is called converged, or at the limit of rounding, that is not.
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
    /// What was read last.
    pub(super) fn known(&self) -> Known {
        Known { norm: self.host[Header::AT.norm], rounding: self.host[Header::AT.rounding] }
    }

    /// Takes the first guess, or zeros where its residual is no number.
    pub(super) fn begin_from(
        &mut self,
        s: &S,
        on: &Operators<S>,
        x: &mut S::Vector,
        under_way: &mut usize,
        c: &mut Convergence,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        if !self.known().norm.is_finite() && !self.is_zero(s, x)? {
            let mut flags = [0; FLAGS];
            self.drain(s, &mut flags, under_way, c)?;
            self.clear(s, x)?;
            s.sweep(clear, &mut self.scalars, [], [], [&mut self.x], [])?;
            self.reopen(s, on, &mut flags)?;
            self.history.residuals[0] = self.known().norm / c.norm_b;
            observer.restarted(0, GUESS);
        }
        c.start = self.known();
        Ok(())
    }

    fn is_zero(&mut self, s: &S, x: &S::Vector) -> Result<bool> {
        s.guard(None);
        s.sweep(norm_squared, &mut self.scalars, [], [x], [], [Header::AT.rr])?;
        Ok(self.read_sum(s)? == 0.0)
    }

    /// x becomes zeros where it has a number that is none: nothing is solved with it.
    pub(super) fn make_finite(&mut self, s: &S, x: &mut S::Vector) -> Result<()> {
        s.guard(None);
        s.sweep(finite, &mut self.scalars, [], [x], [], [Header::AT.rr])?;
        if self.read_sum(s)?.is_nan() { self.clear(s, x) } else { Ok(()) }
    }

    fn clear(&mut self, s: &S, x: &mut S::Vector) -> Result<()> {
        s.guard(None);
        s.sweep(clear, &mut self.scalars, [], [], [x], [])
    }

    /// Leaves the answer in the caller's x, which still is the first guess, and notes how the solve ended. Nothing may be under way.
    pub(super) fn end(
        &mut self,
        s: &S,
        on: &Operators<S>,
        x: &mut S::Vector,
        unit: f64,
        ended: Outcome,
        c: &Convergence,
    ) -> Result<()> {
        let ended = self.name_growth(s, ended, c)?;
        let mut known = self.best_known(s, on, c)?;
        let reason = self.history.reason.take();
        let mut outcome = known.settle(ended, c);
        self.history.reason = reason.filter(|_| outcome == ended);
        let mut better = known.is_better_than(c.start);
        if better && unit != 1.0 {
            let rounded = self.round_trip(s, on, unit)?;
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
            // The first guess, which x is still.
            false => known = c.start,
        }
        self.recurrence.read_scalars(&self.host);
        s.wait()?;
        let relative = known.norm / c.norm_b;
        let converged = outcome == Outcome::Converged;
        self.history.outcome = outcome;
        self.history.rounding = known.rounding / c.norm_b;
        // The quotient is rounded, and may come out above what its numbers satisfy.
        self.history.true_relative_residual =
            if converged { relative.min(c.relative_target) } else { relative };
        Ok(())
    }

    /// A solve that ended because x is no number while b − A x is one has diverged, in unknowns that no row reads.
    fn name_growth(&mut self, s: &S, ended: Outcome, c: &Convergence) -> Result<Outcome> {
        if ended != Outcome::NotFinite || !self.known().norm.is_nan() {
            return Ok(ended);
        }
        s.guard(None);
        let r = self.recurrence.residual();
        s.sweep(norm_squared, &mut self.scalars, [], [r], [], [Header::AT.rr])?;
        let norm = self.read_sum(s)?;
        if !norm.is_finite() {
            return Ok(ended);
        }
        *self.history.residuals.last_mut().expect("the first residual was pushed") = norm / c.norm_b;
        Ok(Outcome::Diverged)
    }

    /// The certified residual of the last x, or of the best so far where that is smaller, which then becomes the last.
    fn best_known(&mut self, s: &S, on: &Operators<S>, c: &Convergence) -> Result<Known> {
        if !c.certified && self.known().norm.is_finite() {
            self.reopen(s, on, &mut [0; FLAGS])?;
        }
        let (last, best) = (self.known(), self.host[Header::AT.best]);
        let other = best < last.norm || (!last.norm.is_finite() && best.is_finite());
        if last.norm <= c.target || !other {
            return Ok(last);
        }
        // Plain norms have chosen it: what counts is its certified one.
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
        Ok(Known { norm: header[Header::AT.norm], rounding: header[Header::AT.rounding] })
    }

    /// x as the caller gets it, whose numbers may overflow, or be too small for all their digits, in the unit of the solve; and
    /// its residual. The inverse of the unit is left where sweeps read it.
    fn round_trip(&mut self, s: &S, on: &Operators<S>, unit: f64) -> Result<Known> {
        for unit in [1.0 / unit, unit] {
            self.write_unit(s, unit)?;
            s.sweep(rescale, &mut self.scalars, [Header::AT.unit], [], [&mut self.x], [])?;
        }
        self.reopen(s, on, &mut [0; FLAGS])?;
        self.write_unit(s, 1.0 / unit)?;
        Ok(self.known())
    }
}

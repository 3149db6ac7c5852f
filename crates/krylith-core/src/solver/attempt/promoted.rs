//! Repeats an attempt in f64 whose preconditioner computed in f32, or stored its matrices in bf16.
//!
//! Factors and levels in f32 are rounded, and so is each of their steps. Where the matrix needs more digits,
//! an attempt stagnates or breaks down that succeeds in f64. The set-up cannot see that, so the failure
//! decides: the attempt is repeated, and all later ones compute in f64 at once. An attempt that makes steady
//! progress and is merely too slow would be too slow in f64 too.

use super::Rank;
use crate::precond::PrecondSpec;
use crate::solver::SolverSpace;
use crate::solver::fallbacks::Attempt;
use crate::solver::watch::FAR;
use crate::space::{Precision, PrecondPrecision, Reason};
use std::borrow::Cow;

impl<S: SolverSpace> Rank<S> {
    /// Returns the precision that was asked for preconditioners.
    pub(super) fn precond_precision(&self) -> Option<PrecondPrecision> {
        if self.promoted { Some(PrecondPrecision::F64) } else { self.options.precond_precision }
    }

    /// Returns the precision of stored numbers of preconditioners.
    pub(super) fn stored_in(&self) -> Precision {
        let asked = self.precond_precision().map(PrecondPrecision::of_vectors);
        asked.or(self.options.precision).unwrap_or_default()
    }

    /// Returns the preconditioner of an attempt, with the keys of its precision.
    pub(super) fn wanted<'a>(&self, attempt: &'a Attempt) -> Cow<'a, Attempt> {
        if !self.promoted {
            return Cow::Borrowed(attempt);
        }
        Cow::Owned(Attempt { precond: PrecondSpec::in_f64(attempt.precond.clone()), ..attempt.clone() })
    }

    /// Returns true if the preconditioner that is set up computes in f32, or is stored in it or in bf16, on
    /// every rank.
    pub(super) fn is_narrow(&self) -> bool {
        let asked = self.options.precond_precision;
        !self.promoted && self.current.as_ref().is_some_and(|current| current.info.is_narrow(asked))
    }

    /// Drops a preconditioner in f32 if `wanted`. The next one is in f64.
    pub(super) fn promote_if(&mut self, wanted: bool) {
        if wanted && self.is_narrow() {
            (self.promoted, self.current) = (true, None);
        }
    }

    /// Returns true if the attempt that has just failed is to be repeated in f64. It was in f32, and would go
    /// on for `too_slow` iterations if that is a number.
    pub(super) fn promotes(&self, too_slow: Option<f64>) -> bool {
        let is = |reason: Reason| self.history.reason == Some(reason.text());
        // That pᵀA p is negative has nothing to do with the preconditioner. An indefinite preconditioner has
        // negative pivots, mostly in f64 too.
        let is_steady = |left: f64| left <= FAR * self.history.iterations as f64;
        let others = is(Reason::IndefinitePreconditioner) || too_slow.is_some_and(is_steady);
        let remain = self.after(self.next_attempt).is_some();
        !(is(Reason::IndefiniteMatrix) || others && remain)
    }
}

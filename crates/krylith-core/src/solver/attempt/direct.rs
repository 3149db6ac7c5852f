//! The cost of attempts, and direct factors as the next one.

use super::{Current, Rank};
use crate::operator::LinearOperator;
use crate::precond::PrecondSpec;
use crate::problem::LocalProblem;
use crate::solver::SolverSpace;
use crate::solver::fallbacks::Last;

impl<S: SolverSpace> Rank<S> {
    /// Returns the first attempt from `from` on with direct factors, unless it is known to be impossible or
    /// has already ended.
    pub(super) fn direct_from(&self, from: usize) -> Option<usize> {
        let is_direct = |k: &usize| matches!(self.fallbacks[*k].precond, PrecondSpec::Lu(_));
        let known = |k: &usize| !self.impossible.contains(k) && !self.ended.contains(k);
        (from..self.fallbacks.len()).find(|k| is_direct(k) && known(k))
    }

    /// Returns the attempt after the last one: `next`, or direct factors if other attempts would take
    /// longer. The last one failed or was too slow, with this number of iterations left. Iterations so far
    /// were `done` and moved this many bytes.
    pub(super) fn next_or_direct(
        &mut self,
        local: &LocalProblem,
        next: usize,
        (done, moved): (usize, f64),
        left: Option<f64>,
    ) -> usize {
        let Some(direct) = self.direct_from(next).filter(|direct| *direct > next) else { return next };
        let by_jacobi = matches!(self.fallbacks[self.next_attempt].precond, PrecondSpec::Jacobi { .. });
        let last = match left {
            None => Last::Failed,
            Some(left) if by_jacobi => Last::SlowJacobi { left },
            Some(_) => Last::Slow,
        };
        if (last != Last::Failed || !by_jacobi) && self.before_direct.is_in_doubt(last, done) {
            self.before_direct.refine(local);
        }
        let is_over = self.before_direct.is_over(done, moved, last, &self.fallbacks[next]);
        if is_over { direct } else { next }
    }

    /// Returns the bytes that an iteration of the current attempt moves, on average over this many.
    pub(super) fn bytes_of_iteration(&self, iterations: usize) -> f64 {
        let Some(Current { p, is_whole, .. }) = &self.current else { return 0.0 };
        let own = || (self.a.bytes() + p.as_ref().map_or(0, |p| p.bytes()), self.space.len());
        let (fixed, n) = self.sharing.sizes(*is_whole).unwrap_or_else(own);
        let method = self.fallbacks[self.next_attempt].method;
        method.iteration_bytes(fixed as f64, p.is_some(), n as f64, iterations)
    }
}

//! Limits on the attempts that precede direct factors.

use super::direct::by_bisection;
use super::rules::System;
use super::{Attempt, Seen};
use crate::precond::PrecondSpec;
use crate::problem::LocalProblem;
use crate::solver::watch::Budget;

/// A limit on all attempts that precede direct factors. It counts bytes and no seconds, so that every run
/// decides alike.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct BeforeDirect {
    /// Number of iterations of all attempts.
    iterations: usize,
    /// Estimated seconds of direct factors; infinite if they are not known.
    direct: f64,
    /// Seconds of direct factors up to which a costly attempt does not follow one that was too slow.
    soon: f64,
    /// Seconds in which a separator gives a closer estimate.
    bisection: f64,
    /// True if CG may solve the system.
    symmetric: bool,
    /// True if a separator gave the estimate.
    is_close: bool,
}

/// Multiple of the time of direct factors that all attempts before them may take, and the smallest number of
/// iterations of an attempt.
const BEFORE: (f64, usize) = (1.5, 20);
/// Bytes that iterations on the host move in an estimated second. Measured: 10e9 to 30e9 for multigrid,
/// splits and incomplete factors of the systems of `direct.rs`.
const BANDWIDTH: f64 = 15e9;
/// An attempt runs for this multiple of the time of a bisection before the bisection.
const PATIENCE: f64 = 2.0;
/// Seconds that attempts before direct factors may take in any case, because so little time does not matter.
const AT_LEAST: f64 = 0.03;

impl BeforeDirect {
    /// Creates a limit by the estimated seconds of direct factors. A separator can be computed in this number
    /// of seconds, which are infinite if it gave the estimate. `soon` are the seconds up to which a costly
    /// attempt does not follow one that was too slow.
    pub(super) fn by_time(direct: f64, bisection: f64, soon: f64, symmetric: bool) -> Self {
        let direct = direct.max(AT_LEAST);
        Self { iterations: usize::MAX, direct, soon, bisection, symmetric, is_close: bisection.is_infinite() }
    }

    /// Creates a limit of this many iterations.
    pub(super) fn by_iterations(iterations: usize) -> Self {
        Self { iterations, ..Self::by_time(f64::INFINITY, f64::INFINITY, 0.0, false) }
    }

    /// Returns the bytes that iterations move in the estimated time of direct factors.
    fn bytes(&self) -> f64 {
        self.direct * BANDWIDTH
    }

    /// Returns the number of iterations that an attempt may take, if iterations before it were `done` and
    /// moved this many bytes, and each of its own moves `each`.
    pub fn left(&self, done: usize, moved: f64, each: f64) -> usize {
        let bytes = BEFORE.0 * self.bytes() - moved;
        let by_bytes =
            if bytes.is_finite() { (bytes / each).max(BEFORE.1 as f64) as usize } else { usize::MAX };
        self.iterations.saturating_sub(done).max(1).min(by_bytes)
    }

    /// Returns true if direct factors are next instead of attempt `next`, after this many iterations that
    /// moved so many bytes. `stalled` is true if the last attempt was too slow.
    pub fn is_over(&self, done: usize, moved: f64, stalled: bool, next: &Attempt) -> bool {
        let is_cheap = matches!(next.precond, PrecondSpec::Ildu(_) | PrecondSpec::Lu(_));
        done >= self.iterations || moved >= self.bytes() || stalled && !is_cheap && self.direct <= self.soon
    }

    /// Returns the iteration of an attempt from which a closer estimate is worth its time; `None` if there is
    /// none. An iteration moves `each` bytes.
    pub fn refined_at(&self, each: f64) -> Option<usize> {
        let at = PATIENCE * self.bisection * BANDWIDTH / each;
        (self.direct.is_finite() && !self.is_close && at.is_finite()).then(|| at.ceil() as usize)
    }

    /// Estimates the seconds of direct factors more closely, once.
    pub fn refine(&mut self, local: &LocalProblem) {
        if self.direct.is_finite() && !std::mem::replace(&mut self.is_close, true) {
            self.direct = by_bisection(local, self.symmetric).unwrap_or(self.direct).max(AT_LEAST);
        }
    }

    /// Returns the budget of an attempt each of whose iterations moves `each` bytes: at most the estimated
    /// time of direct factors.
    pub fn tighten(&self, budget: Budget, each: f64) -> Budget {
        if self.direct.is_finite() { budget.at_most(self.bytes() / each) } else { budget }
    }
}

/// Returns the limit on all attempts that precede direct factors.
pub(crate) fn before_direct(local: &LocalProblem, seen: Seen) -> BeforeDirect {
    System::new(local, seen).before_direct()
}

#[cfg(all(test, feature = "lu"))]
mod tests {
    use super::super::Costs;
    use super::*;
    use crate::matrix::Bsr;
    use crate::method::{MethodName, MethodSpec};
    use crate::options::Options;
    use crate::problem::Problem;

    /// The attempt with this preconditioner.
    fn attempt(precond: &str) -> Attempt {
        Attempt {
            precond: precond.parse().unwrap(),
            method: MethodSpec::of(MethodName::Cg, &Options::default(), 30),
            equilibrate: false,
            matching: false,
            budget: Budget::USUAL,
        }
    }

    fn limit(n: usize, direct: f64, on_gpu: bool) -> BeforeDirect {
        let a = Bsr::new(1, n, n, (0..=n).collect(), (0..n as u32).collect(), vec![1.0; n]).unwrap();
        let costs = Costs { direct, iteration: 1e-3, on_gpu, ..Costs::default() };
        before_direct(&Problem::bsr(&a).unwrap().part_of_one(), Seen { costs, ..Seen::default() })
    }

    /// Attempts before direct factors may move as many bytes as fit in one and a half times their estimated
    /// time.
    #[test]
    fn attempts_before_direct_factors_take_no_longer() {
        let amg = attempt("amg");
        let second = limit(50_000, 1.0, false);
        let bytes = second.bytes();
        assert_eq!(second.left(7, 0.0, bytes / 100.0), 150);
        assert_eq!(second.left(7, bytes, bytes / 100.0), 50);
        assert_eq!(second.left(7, 2.0 * bytes, bytes / 100.0), 20, "at least some iterations");
        let is_over = |done: usize, moved: f64| second.is_over(done, moved, false, &amg);
        assert!(!is_over(9999, 0.99 * bytes) && is_over(0, bytes));
        assert_eq!(second.tighten(Budget::USUAL, bytes / 100.0), Budget::of(33, 100.0));
        assert_eq!(second.tighten(Budget::of(8, 30.0), bytes / 100.0), Budget::of(8, 30.0));
        // Without an estimate and on a GPU, iterations are counted.
        for limit in [limit(50_000, f64::INFINITY, false), limit(5000, f64::INFINITY, true)] {
            assert_eq!(limit.left(100, 1e30, 1.0), 2900);
            assert_eq!(limit.tighten(Budget::USUAL, 1.0), Budget::USUAL);
            assert!(limit.is_over(3000, 0.0, false, &amg) && !limit.is_over(2999, 1e30, true, &amg));
        }
        assert_eq!(limit(1 << 19, 1.0, false).left(100, 1e30, 1.0), usize::MAX - 100, "no limit");
    }

    /// After an attempt that was too slow, cheap direct factors come before multigrid, but not before
    /// incomplete factors.
    #[test]
    fn a_stalled_attempt_is_followed_by_direct_factors_that_come_soon() {
        for (direct, precond, over) in
            [(0.4, "amg", true), (0.4, "ildu:fill=2", false), (0.6, "amg", false), (0.4, "jacobi", true)]
        {
            let found = limit(50_000, direct, false).is_over(10, 0.0, true, &attempt(precond));
            assert_eq!(found, over, "{direct} {precond}");
            assert!(!limit(50_000, direct, false).is_over(10, 0.0, false, &attempt(precond)));
        }
    }

    /// A diagonal matrix has no separator, so its factors take hardly any time.
    #[test]
    fn estimates_are_refined_once() {
        let n = 50_000;
        let a = Bsr::new(1, n, n, (0..=n).collect(), (0..n as u32).collect(), vec![1.0; n]).unwrap();
        let problem = Problem::bsr(&a).unwrap();
        let mut limit = limit(n, 100.0, false);
        // The bisection takes as long as 40 iterations.
        assert_eq!(limit.refined_at(limit.bytes() / 1e5), Some(80));
        limit.refine(&problem.part_of_one());
        assert!(limit.direct < 1.0 && limit.is_close, "{limit:?}");
        assert_eq!(limit.refined_at(1.0), None);
        limit.direct = 7.0;
        limit.refine(&problem.part_of_one());
        assert_eq!(limit.direct, 7.0);
    }
}

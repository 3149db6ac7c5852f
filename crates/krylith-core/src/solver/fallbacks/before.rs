//! Limits on the attempts that precede direct factors.

use super::direct::{WORSE, by_order};
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
    /// Seconds in which an elimination order gives a closer estimate.
    closer: f64,
    /// Number of iterations from which one of Jacobi that is too slow counts as hopeless.
    hard: f64,
    /// Share of the time of direct factors that an attempt is permitted to have left.
    permitted: f64,
    /// True if CG may solve the system.
    symmetric: bool,
    /// True if an elimination order gave the estimate.
    is_close: bool,
}

/// Multiple of the time of direct factors that all attempts before them may take, and the smallest number of
/// iterations of an attempt.
const BEFORE: (f64, usize) = (1.5, 20);
/// Bytes that iterations on the host move in an estimated second. Measured: 10e9 to 30e9 for multigrid,
/// splits and incomplete factors of the systems of `direct.rs`.
const BANDWIDTH: f64 = 15e9;
/// An attempt runs for this multiple of the time of a closer estimate before the estimate.
const PATIENCE: f64 = 2.0;
/// On grids CG with Jacobi needs 1 to 1.25 iterations per breadth-first level. From this number on per level,
/// multigrid mostly fails as well: 17 to 140 for shells, frames, micropolar bodies, ice sheets and
/// fourth-order equations. Elasticity has 40 and more, but multigrid suits it.
const HARD: f64 = 8.0;
/// Largest multiple of the limit after Jacobi at which the levels' estimate of direct factors is in doubt.
const DOUBT: f64 = 8.0;
/// Seconds that attempts before direct factors may take in any case, because so little time does not matter.
const AT_LEAST: f64 = 0.03;

/// How the last attempt before direct factors ended.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Last {
    /// It broke down, or could not be set up.
    Failed,
    /// It was too slow.
    Slow,
    /// It was too slow with Jacobi, by an estimate of the iterations left.
    SlowJacobi { left: f64 },
}

impl BeforeDirect {
    /// Creates a limit by the estimated seconds of direct factors, for a graph of `levels` breadth-first
    /// levels. An elimination order takes `closer` seconds, which are infinite if it gave the estimate.
    /// `soon` are the seconds up to which a costly attempt does not follow one that was too slow.
    pub(super) fn by_time(direct: f64, [closer, soon]: [f64; 2], levels: usize, symmetric: bool) -> Self {
        let (direct, hard) = (direct.max(AT_LEAST), HARD * levels as f64);
        let is_close = closer.is_infinite();
        Self { iterations: usize::MAX, direct, soon, closer, hard, permitted: 1.0, symmetric, is_close }
    }

    /// Returns the same limit for attempts that may have this share of the time of direct factors left.
    pub(super) fn permitting(self, share: f64) -> Self {
        Self { permitted: share, ..self }
    }

    /// Creates a limit of this many iterations.
    pub(super) fn by_iterations(iterations: usize) -> Self {
        Self { iterations, ..Self::by_time(f64::INFINITY, [f64::INFINITY, 0.0], 0, false) }
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

    /// Returns true if direct factors are next instead of attempt `next`, after `done` iterations that moved
    /// so many bytes.
    pub fn is_over(&self, done: usize, moved: f64, last: Last, next: &Attempt) -> bool {
        let is_cheap = matches!(next.precond, PrecondSpec::Ildu(_) | PrecondSpec::Lu(_));
        let soon = !is_cheap && self.direct <= self.soon_after(last, done);
        done >= self.iterations || moved >= self.bytes() || soon
    }

    /// Returns the seconds up to which direct factors precede costly attempts after the last one, which ended
    /// after `done` iterations.
    fn soon_after(&self, last: Last, done: usize) -> f64 {
        match last {
            Last::Slow => self.soon,
            Last::SlowJacobi { left } if done as f64 + left > self.hard => self.soon,
            Last::SlowJacobi { .. } | Last::Failed => 0.0,
        }
    }

    /// Returns true if a closer estimate may change the attempt after the last one.
    pub fn is_in_doubt(&self, last: Last, done: usize) -> bool {
        let by_jacobi = matches!(last, Last::SlowJacobi { .. });
        !by_jacobi || self.direct <= DOUBT * self.soon_after(last, done)
    }

    /// Returns the iteration of an attempt from which a closer estimate is worth its time; `None` if there is
    /// none. An iteration moves `each` bytes.
    pub fn refined_at(&self, each: f64) -> Option<usize> {
        let at = PATIENCE * self.closer * BANDWIDTH / each;
        (self.direct.is_finite() && !self.is_close && at.is_finite()).then(|| at.ceil() as usize)
    }

    /// Estimates the seconds of direct factors more closely, once.
    pub fn refine(&mut self, local: &LocalProblem) {
        if self.direct.is_finite() && !std::mem::replace(&mut self.is_close, true) {
            let known = by_order(local, self.symmetric, 1.0).unwrap_or(f64::INFINITY);
            self.direct = known.min(WORSE * self.direct).max(AT_LEAST);
        }
    }

    /// Returns the budget of an attempt each of whose iterations moves `each` bytes: at most the permitted
    /// share of the estimated time of direct factors.
    pub fn tighten(&self, budget: Budget, each: f64) -> Budget {
        if self.direct.is_finite() { budget.at_most(self.permitted * self.bytes() / each) } else { budget }
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
        let costs = Costs { direct, iteration: 1e-3, levels: 10, on_gpu, ..Costs::default() };
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
        let is_over = |done: usize, moved: f64| second.is_over(done, moved, Last::Failed, &amg);
        assert!(!is_over(9999, 0.99 * bytes) && is_over(0, bytes));
        assert_eq!(second.tighten(Budget::USUAL, bytes / 100.0), Budget::of(33, 100.0));
        assert_eq!(second.tighten(Budget::of(8, 30.0), bytes / 100.0), Budget::of(8, 30.0));
        assert_eq!(second.permitting(0.5).tighten(Budget::USUAL, bytes / 100.0), Budget::of(16, 50.0));
        // Without an estimate and on a GPU, iterations are counted.
        for limit in [limit(50_000, f64::INFINITY, false), limit(5000, f64::INFINITY, true)] {
            assert_eq!(limit.left(100, 1e30, 1.0), 2900);
            assert_eq!(limit.tighten(Budget::USUAL, 1.0), Budget::USUAL);
            assert!(limit.is_over(3000, 0.0, Last::Failed, &amg));
            assert!(!limit.is_over(2999, 1e30, Last::Slow, &amg));
        }
        assert_eq!(limit(1 << 19, 1.0, false).left(100, 1e30, 1.0), usize::MAX - 100, "no limit");
    }

    /// After an attempt that was too slow, cheap direct factors come before multigrid, but not before
    /// incomplete factors.
    #[test]
    fn a_stalled_attempt_is_followed_by_direct_factors_that_come_soon() {
        for (direct, precond, over) in [
            (0.2, "amg", true),
            (0.4, "amg", true),
            (0.4, "ildu:fill=2", false),
            (0.6, "amg", false),
            (0.4, "jacobi", true),
        ] {
            let (limit, next) = (limit(50_000, direct, false), attempt(precond));
            let is_over = |last: Last| limit.is_over(10, 0.0, last, &next);
            assert_eq!(is_over(Last::Slow), over, "{direct} {precond}");
            assert!(!is_over(Last::Failed));
            // The graph of the limit has ten levels.
            assert_eq!(is_over(Last::SlowJacobi { left: 100.0 }), over, "{direct} {precond}");
            assert!(!is_over(Last::SlowJacobi { left: 50.0 }));
        }
    }

    /// The factors of a diagonal matrix take hardly any time.
    #[test]
    fn estimates_are_refined_once() {
        let n = 50_000;
        let a = Bsr::new(1, n, n, (0..=n).collect(), (0..n as u32).collect(), vec![1.0; n]).unwrap();
        let problem = Problem::bsr(&a).unwrap();
        let mut limit = limit(n, 100.0, false);
        // The closer estimate takes as long as 40 iterations.
        assert_eq!(limit.refined_at(limit.bytes() / 1e5), Some(80));
        limit.refine(&problem.part_of_one());
        assert!(limit.direct < 1.0 && limit.is_close, "{limit:?}");
        assert_eq!(limit.refined_at(1.0), None);
        limit.direct = 7.0;
        limit.refine(&problem.part_of_one());
        assert_eq!(limit.direct, 7.0);
    }
}

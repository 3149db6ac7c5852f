//! Cancellation, time limits, observers, and the iteration budget of attempts.

use super::functions::Given;
use crate::interrupt::Limits;
use crate::space::{Observer, Progress, Stop};
use std::ops::ControlFlow;

/// Limits of one solve.
pub(super) struct Run<'f> {
    /// Tolerances and iteration limit.
    pub stop: Stop,
    /// Cancellation token and deadline.
    pub limits: Limits,
    /// Number of the column, if it was solved together with others.
    pub column: Option<usize>,
    /// Functions of the caller that replace A and the preconditioner.
    pub given: Given<'f>,
    /// True if preconditioners are to compute in f64 from now on.
    pub promoted: bool,
    /// True if the solve continues one to a smaller tolerance.
    pub continues: bool,
}

/// Decides whether an attempt is too slow. It extrapolates the number of iterations that are left until the
/// tolerance from the overall or the recent rate of convergence, whichever is faster. For conjugate
/// gradients, whose residual may rise far before it falls, the rate since the peak counts too. The decision
/// uses only residuals, and not the iteration limit. So every rank and every run decides alike.
#[derive(Debug, Clone, Copy)]
pub(super) struct Pace {
    budget: Budget,
    start: f64,
    best: f64,
    /// Iteration and value of the largest residual, if the method's residual may rise.
    peak: Option<(usize, f64)>,
    /// Iteration and smallest residual at the last check.
    mark: (usize, f64),
    /// Iteration of the next check.
    next: usize,
    /// Estimated number of iterations left, if the attempt is too slow.
    pub too_slow: Option<f64>,
}

/// Iteration budget of an attempt.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Budget {
    /// Minimum number of iterations. It is doubled if the residual may rise before it falls, unless `left` is
    /// set.
    few: usize,
    /// The attempt ends if more than this number of iterations are estimated to be left. `None` means
    /// [`PATIENCE`] times the number of iterations so far.
    left: Option<f64>,
    /// True if the attempt ends early if its residual [hardly falls](HOPELESS).
    early: bool,
}

/// Largest ratio of estimated iterations left to iterations so far.
const PATIENCE: f64 = 8.0;

impl Budget {
    /// Budget of an attempt whose successor costs about as much.
    pub const USUAL: Self = Self { few: 500, left: None, early: false };
    /// Budget of multigrid cycles, each of which costs about ten products.
    pub const CYCLES: Self = Self { few: 100, left: None, early: false };

    /// Creates the budget of an attempt whose successor would solve the system in the time of `left`
    /// iterations. The minimum is a third of `left`, but not below 10 or above 60.
    pub fn until(left: f64) -> Self {
        Self::of((left / 3.0).clamp(10.0, 60.0) as usize, left)
    }

    /// Returns the budget, with at most `left` iterations left to go.
    pub fn at_most(self, left: f64) -> Self {
        let own = Self::until(left);
        if self.left.is_none_or(|most| most > left) {
            Self { few: own.few.min(self.few), early: self.early, ..own }
        } else {
            self
        }
    }

    /// Creates a budget of `few` iterations. The attempt may continue while at most `left` further iterations
    /// are estimated.
    pub const fn of(few: usize, left: f64) -> Self {
        Self { few, left: Some(left), early: false }
    }

    /// Returns the same budget for an attempt that makes steady progress if it suits the system.
    pub const fn early(self) -> Self {
        Self { early: true, ..self }
    }
}

/// An attempt whose residual hardly falls ends earlier: after this share of the minimum number of iterations,
/// if more than this multiple of the permitted number is left.
const HOPELESS: [(f64, f64); 2] = [(0.25, 100.0), (0.5, 8.0)];
/// The smallest number of iterations of such an attempt.
const FEWEST: usize = 8;

/// Smallest target for the extrapolation, near the attainable residual.
const SMALLEST: f64 = 1e-15;

impl Pace {
    /// Creates the check. `rises` is true if the residual of the method may rise while its error falls.
    pub fn new(rises: bool, budget: Budget) -> Self {
        let (start, mark) = (f64::NAN, (0, f64::NAN));
        let peak = rises.then_some((0, 0.0));
        let next = if budget.early && !rises { FEWEST } else { budget.few / 2 };
        Self { budget, start, best: f64::INFINITY, peak, mark, next, too_slow: None }
    }

    /// Records a residual.
    fn see(&mut self, p: Progress) {
        if self.start.is_nan() {
            (self.start, self.mark) = (p.relative_residual, (p.iteration, p.relative_residual));
        }
        self.best = self.best.min(p.relative_residual);
        if let Some(peak) = self.peak.as_mut().filter(|peak| p.relative_residual >= peak.1) {
            *peak = (p.iteration, p.relative_residual);
        }
    }

    /// Estimates the number of iterations left.
    fn left(&self, p: Progress) -> f64 {
        let pace = |(from, residual): (usize, f64)| (residual / self.best).ln() / (p.iteration - from) as f64;
        let best = pace((0, self.start)).max(pace(self.mark));
        let target = p.target.max(SMALLEST);
        let mut left = (self.best / target).ln() / best;
        if let Some((from, peak)) = self.peak.filter(|peak| peak.0 < p.iteration) {
            let since = (peak / p.relative_residual).ln() / (p.iteration - from) as f64;
            if since > 0.0 {
                left = left.min((p.relative_residual / target).ln() / since);
            }
        }
        left
    }

    fn tell(&mut self, p: Progress) {
        self.see(p);
        if p.iteration < self.next {
            return;
        }
        let left = self.left(p);
        let Budget { few, left: most, early } = self.budget;
        let few = if self.peak.is_some() && most.is_none() { 2 * few } else { few };
        if p.iteration >= few && !(left <= most.unwrap_or(PATIENCE * p.iteration as f64)) {
            self.too_slow = Some(left);
        }
        let is_hopeless = |(share, times): (f64, f64)| {
            p.iteration >= FEWEST.max((share * few as f64) as usize)
                && most.is_some_and(|most| !(left <= times * most))
        };
        if early && self.peak.is_none() && HOPELESS.into_iter().any(is_hopeless) {
            self.too_slow = Some(left);
        }
        self.mark = (p.iteration, self.best);
        self.next = p.iteration + (p.iteration / 4).max(1);
    }
}

/// Decides whether an attempt in f32 has come to a standstill, which an attempt in f64 may not: a rounded
/// preconditioner can end its progress without ending the attempt. It has if the last half of its iterations
/// [hardly](STANDING) reduced the residual, by the rate before, and if the rest would take too long at this
/// pace; or, after the usual number of iterations, if the rest would take [far too long](FAR).
#[derive(Debug, Clone, Copy)]
pub(super) struct Standstill {
    start: f64,
    best: f64,
    /// Iteration and smallest residual at the last check.
    mark: (usize, f64),
    pub is_reached: bool,
}

/// Largest share of the mean rate of convergence that counts as a standstill.
const STANDING: f64 = 0.1;
/// Ratio of estimated iterations left to iterations so far from which an attempt is no longer steady.
pub(super) const FAR: f64 = 100.0;
/// Iterations of the first mark. The residual of conjugate gradients may rise before it falls.
const MARK: [usize; 2] = [40, 200];

impl Standstill {
    /// Creates the check. `rises` is true if the residual of the method may rise while its error falls.
    pub fn new(rises: bool) -> Self {
        let first = MARK[usize::from(rises)] / 2;
        Self { start: f64::NAN, best: f64::INFINITY, mark: (first, f64::NAN), is_reached: false }
    }

    fn tell(&mut self, p: Progress) {
        if self.start.is_nan() {
            self.start = p.relative_residual;
        }
        self.best = self.best.min(p.relative_residual);
        if p.iteration < 2 * self.mark.0 {
            return;
        }
        let rate = |(from, residual): (usize, f64)| (residual / self.best).ln() / (p.iteration - from) as f64;
        let (mean, last) = (rate((0, self.start)), rate(self.mark));
        let left = (self.best / p.target.max(SMALLEST)).ln() / last;
        let is_beyond = |ratio: f64| !(left <= ratio * p.iteration as f64);
        self.is_reached |= last <= STANDING * mean && is_beyond(PATIENCE);
        self.is_reached |= p.iteration >= Budget::USUAL.few && !last.is_nan() && is_beyond(FAR);
        self.mark = (p.iteration, self.best);
    }
}

/// Multiple of the iterations before a later budget that must be left. Direct factors, whose estimate is that
/// budget, take at least five times as long as the estimate, which takes half of those iterations.
const WORTH: f64 = 3.0;

/// A budget that replaces that of an attempt once it has run for some iterations.
pub(super) struct Later<'a> {
    /// The iteration from which the new budget counts, if more than [`WORTH`] times as many are left.
    pub at: usize,
    /// Computes the budget.
    pub budget: &'a mut dyn FnMut() -> Budget,
}

/// Reports an attempt to an observer as part of the whole solve, and records restarts and interrupts.
pub(super) struct Watch<'a> {
    run: &'a Run<'a>,
    observer: &'a mut dyn Observer,
    /// Number of iterations of earlier attempts.
    done: usize,
    restarts: &'a mut Vec<(usize, &'static str)>,
    /// The reason why the solve was stopped.
    pub halted: Option<&'static str>,
    /// The budget check, if another attempt may follow.
    pub pace: Option<Pace>,
    /// A budget for later iterations.
    pub later: Option<Later<'a>>,
    /// The check for a standstill, if the attempt is in f32.
    pub standstill: Option<Standstill>,
}

impl<'a> Watch<'a> {
    pub fn new(
        run: &'a Run<'a>,
        observer: &'a mut dyn Observer,
        done: usize,
        restarts: &'a mut Vec<(usize, &'static str)>,
        pace: Option<Pace>,
    ) -> Self {
        Self { run, observer, done, restarts, halted: None, pace, later: None, standstill: None }
    }

    /// Returns the estimated number of iterations left, if the attempt was too slow.
    pub fn too_slow(&self) -> Option<f64> {
        let stands = self.standstill.is_some_and(|standstill| standstill.is_reached);
        if stands { Some(f64::INFINITY) } else { self.pace.and_then(|pace| pace.too_slow) }
    }
}

impl Observer for Watch<'_> {
    fn progress(&mut self, p: Progress) -> ControlFlow<()> {
        let iteration = self.done + p.iteration;
        // The last iteration of the previous attempt has already been reported.
        let told = self.done > 0 && p.iteration == 0;
        if !told && self.observer.progress(Progress { iteration, ..p }).is_break() {
            self.halted = Some("stopped by the observer");
        } else if let Some(why) = self.run.limits.reached() {
            self.halted = Some(why);
        }
        let too_slow = self.pace.as_mut().is_some_and(|pace| {
            pace.see(p);
            let is_due =
                |later: &mut Later| p.iteration >= later.at && !(pace.left(p) <= WORTH * later.at as f64);
            if let Some(later) = self.later.take_if(is_due) {
                pace.budget = (later.budget)();
            }
            pace.tell(p);
            pace.too_slow.is_some()
        });
        let stands = self.standstill.as_mut().is_some_and(|standstill| {
            standstill.tell(p);
            standstill.is_reached
        });
        if self.halted.is_some() || too_slow || stands {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    }

    fn restarted(&mut self, iteration: usize, why: &'static str) {
        self.restarts.push((self.done + iteration, why));
        self.observer.restarted(self.done + iteration, why);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the iteration at which an attempt with these residuals is abandoned.
    fn given_up(residual: impl Fn(usize) -> f64, every: usize) -> Option<usize> {
        slow(Pace::new(false, Budget::USUAL), residual, every)
    }

    fn slow(mut pace: Pace, residual: impl Fn(usize) -> f64, every: usize) -> Option<usize> {
        (0..20_000).step_by(every).find(|&iteration| {
            pace.tell(Progress { iteration, relative_residual: residual(iteration), target: 1e-8 });
            pace.too_slow.is_some()
        })
    }

    #[test]
    fn slow_attempts_are_given_up_and_steady_ones_are_not() {
        for every in [1, 8, 100] {
            let falling = |total: f64| move |i: usize| 1e-8f64.powf(i as f64 / total);
            assert_eq!(given_up(falling(4000.0), every), None);
            assert!(given_up(falling(6000.0), every).is_some_and(|i| (500..700).contains(&i)));
            assert!(given_up(|_| 0.1, every).is_some_and(|i| (500..700).contains(&i)));
            // The residual stays constant, then falls: the recent rate counts.
            let late = |i: usize| if i < 450 { 1.0 } else { 1e-8f64.powf((i - 450) as f64 / 2000.0) };
            assert_eq!(given_up(late, every), None);
            // With conjugate gradients, the residual rises to twelve times its first value and then falls
            // steadily.
            let hill = |i: usize| {
                if i < 150 {
                    1.0 + 11.0 * i as f64 / 150.0
                } else {
                    12.0 * 1e-9f64.powf((i - 150) as f64 / 2000.0)
                }
            };
            assert_eq!(slow(Pace::new(true, Budget::USUAL), hill, every), None);
            // The same curve, oscillating by a factor of 9 in the first 700 iterations.
            let jagged = |i: usize| hill(i) * if i.is_multiple_of(2) && i < 700 { 9.0 } else { 1.0 };
            assert_eq!(slow(Pace::new(true, Budget::USUAL), jagged, every), None);
            // The residual rises, falls a little, and then stays constant.
            let ledge = |i: usize| if i < 150 { 12.0 } else { 3.0 };
            assert!(slow(Pace::new(true, Budget::USUAL), ledge, every).is_some_and(|i| i < 2500));
            assert!(slow(Pace::new(true, Budget::USUAL), |_| f64::NAN, every).is_some());
            // With NaN no rate can be computed.
            assert!(given_up(|_| f64::NAN, every).is_some());
        }
    }

    /// An attempt in f32 that stays at some residual is ended soon, a steady one never.
    #[test]
    fn a_standstill_is_told_from_slow_progress() {
        let ended = |rises: bool, residual: &dyn Fn(usize) -> f64| {
            let mut standstill = Standstill::new(rises);
            let runs = |iteration: &usize| !(residual(*iteration) <= 1e-10);
            (0..5000).take_while(runs).find(|&iteration| {
                let relative_residual = residual(iteration);
                standstill.tell(Progress { iteration, relative_residual, target: 1e-10 });
                standstill.is_reached
            })
        };
        let falling = |total: f64| move |i: usize| 1e-8f64.powf(i as f64 / total);
        for total in [50.0, 500.0, 3000.0] {
            assert_eq!(ended(false, &falling(total)), None);
            assert_eq!(ended(true, &falling(total)), None);
        }
        // It falls to 1e-6, and stays there.
        let stays = |i: usize| falling(40.0)(i).max(1e-6) * if i.is_multiple_of(2) { 1.0 } else { 3.0 };
        assert_eq!(ended(false, &stays), Some(80));
        assert_eq!(ended(true, &stays), Some(400));
        // It does not begin to fall, or falls so little that it would take 100 times as long.
        assert_eq!(ended(false, &|_| 1.0), Some(80));
        assert_eq!(ended(false, &falling(1e6)), Some(640));
        // A plateau within the first iterations is none.
        let late = |i: usize| if i < 30 { 1.0 } else { falling(200.0)(i - 30) };
        assert_eq!(ended(false, &late), None);
        // NaN is for the method to judge.
        assert_eq!(ended(false, &|_| f64::NAN), None);
    }

    #[test]
    fn what_another_attempt_would_do_sooner_is_left_early() {
        let falling = |total: f64| move |i: usize| 1e-8f64.powf(i as f64 / total).max(1e-9);
        for rises in [false, true] {
            let until = |left: f64| Pace::new(rises, Budget::until(left));
            assert_eq!(slow(until(250.0), falling(250.0), 1), None);
            assert!(slow(until(250.0), falling(1000.0), 1).is_some_and(|i| (60..80).contains(&i)));
            // An attempt that is nearly converged is not abandoned.
            assert_eq!(slow(until(250.0), |i| if i < 50 { 1e-7 } else { 1e-8 }, 1), None);
            // No progress at all, and a plateau that is no reason to end a usual attempt.
            let early = Budget::of(40, 100.0).early();
            let flat = |i: usize| if i < 20 { 1.0 } else { 1e-8f64.powf((i - 20) as f64 / 60.0).max(1e-9) };
            assert_eq!(slow(Pace::new(false, early), flat, 1), Some(10));
            assert_eq!(slow(Pace::new(false, Budget::of(40, 100.0)), flat, 1), None);
            assert_eq!(slow(Pace::new(false, early), falling(120.0), 1), None);
            let cycles = Pace::new(rises, Budget::CYCLES);
            assert!(slow(cycles, |_| 0.1, 1).is_some_and(|i| i < 300));
        }
    }
}

//! What ends a solve beside its outcome, and who watches it.

use crate::space::{Observer, Progress, Stop};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Stops a solve from another thread: the best x so far is kept, and the outcome is
/// [`Interrupted`](crate::Outcome::Interrupted).
///
/// ```
/// use krylith::{Options, Outcome, Solver, matrix::Csr};
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 1.0), (1, 0, 1.0), (1, 1, 3.0)])?;
/// let mut solver = Solver::new(&a, &"precond=none device=cpu".parse()?)?;
/// let cancel = solver.cancel_token();
/// cancel.cancel(); // from a signal handler, or a user's click
/// let mut x = [0.0; 2];
/// assert_eq!(solver.solve(&[1.0, 1.0], &mut x)?.outcome(), Outcome::Interrupted);
/// cancel.reset();
/// assert_eq!(solver.solve(&[1.0, 1.0], &mut x)?.outcome(), Outcome::Converged);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Asks the solve to stop, and those after it, until [`reset`](Self::reset).
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Lets solves run again.
    pub fn reset(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// True once it was asked for.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// One solve's limits.
pub(super) struct Run {
    /// Tolerances and iterations.
    pub stop: Stop,
    /// When its seconds are over.
    pub deadline: Option<Instant>,
    /// Stops it from outside.
    pub cancel: Cancel,
}

/// Tells an observer of an attempt as part of the whole, and notes what it tells.
pub(super) struct Watch<'a> {
    run: &'a Run,
    observer: &'a mut dyn Observer,
    /// Iterations of the attempts before.
    done: usize,
    restarts: &'a mut Vec<(usize, &'static str)>,
    /// What stopped the solve.
    pub halted: Option<&'static str>,
}

impl<'a> Watch<'a> {
    pub fn new(
        run: &'a Run,
        observer: &'a mut dyn Observer,
        done: usize,
        restarts: &'a mut Vec<(usize, &'static str)>,
    ) -> Self {
        Self { run, observer, done, restarts, halted: None }
    }
}

impl Observer for Watch<'_> {
    fn progress(&mut self, p: Progress) -> ControlFlow<()> {
        let iteration = self.done + p.iteration;
        // The iteration that ended the attempt before has been told.
        let told = self.done > 0 && p.iteration == 0;
        if !told && self.observer.progress(Progress { iteration, ..p }).is_break() {
            self.halted = Some("by who watched it");
        } else if self.run.cancel.is_cancelled() {
            self.halted = Some("cancelled");
        } else if self.run.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            self.halted = Some("the time limit is over");
        }
        if self.halted.is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    fn restarted(&mut self, iteration: usize, why: &'static str) {
        self.restarts.push((self.done + iteration, why));
        self.observer.restarted(self.done + iteration, why);
    }
}

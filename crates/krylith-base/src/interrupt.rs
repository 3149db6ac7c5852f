//! Interrupts of long work by a cancel token or a time limit.
//!
//! A solver's thread [`enter`](Limits::enter)s the limits of its task: a set-up, an update of values, or a
//! solve. Code that runs during the task calls [`check`] every few milliseconds, at points where it may
//! return an error. Threads that help the solver's thread take a copy of [`limits`]. A check reads a flag
//! and, with a deadline, the clock.
//!
//! An interrupt reaches one rank before another, so it must be passed on to the others, like every error of a
//! single rank. Parts of a set-up end in [`agree`]; before that, [`check`] may end a rank's own work. Between
//! collective calls the check is [`check_together`], itself a collective call. Afterwards all ranks hold an
//! error for which [`Error::is_interrupt`] is true.

use crate::comm::{Communicator, agree};
use crate::{Error, Result};
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// Stops a solve from another thread. The solve keeps the best x so far, and its outcome is `Interrupted`. A
/// set-up that has the token (`Solver::new_cancellable`) and an update of values end with
/// [`Error::Interrupted`](crate::Error::Interrupted).
///
/// # Examples
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
    /// Asks the running solve and all later ones to stop, until [`reset`](Self::reset).
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Lets solves run again.
    pub fn reset(&self) {
        self.0.store(false, Ordering::Relaxed);
    }

    /// True after [`cancel`](Self::cancel), until [`reset`](Self::reset).
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Conditions that end work early.
#[derive(Debug, Clone)]
#[doc(hidden)]
pub struct Limits {
    /// Ends the work from outside.
    pub cancel: Cancel,
    /// Ends the work at this time.
    pub deadline: Option<Instant>,
}

impl Limits {
    /// The reason to end the work now, if there is one.
    pub fn reached(&self) -> Option<&'static str> {
        if self.cancel.is_cancelled() {
            Some("cancelled")
        } else if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            Some("the time limit was reached")
        } else {
            None
        }
    }

    /// # Errors
    /// [`Error::Interrupted`] if the work must end.
    #[inline]
    pub fn check(&self) -> Result<()> {
        self.reached().map_or(Ok(()), |why| Err(Error::Interrupted(why)))
    }

    /// Makes these the limits of this thread, until the returned guard is dropped.
    pub fn enter(&self) -> Entered {
        Entered(CURRENT.replace(Some(self.clone())))
    }
}

thread_local! {
    static CURRENT: RefCell<Option<Limits>> = const { RefCell::new(None) };
}

/// A guard for the limits of this thread; its drop restores the previous limits.
#[must_use = "the limits end when this is dropped"]
#[doc(hidden)]
pub struct Entered(Option<Limits>);

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

/// The limits of this thread's work, for threads that help with it; `None` if there are none.
#[doc(hidden)]
#[inline]
pub fn limits() -> Option<Limits> {
    CURRENT.with_borrow(Clone::clone)
}

/// Checks the limits of this thread's work.
///
/// # Errors
/// [`Error::Interrupted`] if the work must end.
#[doc(hidden)]
#[inline]
pub fn check() -> Result<()> {
    CURRENT.with_borrow(|limits| limits.as_ref().map_or(Ok(()), Limits::check))
}

/// This thread's limits for the loops of its helper threads. All loops stop once one finds that the work must
/// end, and the caller gets the error.
#[doc(hidden)]
pub struct Lookout {
    limits: Option<Limits>,
    ended: OnceLock<&'static str>,
}

impl Lookout {
    /// Creates it from the limits of this thread.
    pub fn here() -> Self {
        Self { limits: limits(), ended: OnceLock::new() }
    }

    /// True if the work must end.
    pub fn ends(&self) -> bool {
        let Some(limits) = &self.limits else { return false };
        if let Some(why) = limits.reached() {
            _ = self.ended.set(why); // or another thread has
        }
        self.ended.get().is_some()
    }

    /// # Errors
    /// [`Error::Interrupted`] if a loop stopped early.
    pub fn finish(self) -> Result<()> {
        self.ended.into_inner().map_or(Ok(()), |why| Err(Error::Interrupted(why)))
    }
}

/// Budget of a part of a set-up. Exceeding it is not an interrupt: it is an error of its own, after which the
/// set-up tries something else.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
#[doc(hidden)]
pub struct Bounds {
    /// Largest number of operations on the pattern, such as finding fill. It is not a time, so that all ranks
    /// and all runs decide alike.
    pub operations: Option<u64>,
    /// Largest predicted time of another library's work, in seconds.
    pub seconds: Option<f64>,
}

thread_local! {
    static BOUNDS: Cell<Bounds> = const { Cell::new(Bounds { operations: None, seconds: None }) };
}

/// A guard for the bounds of this thread; its drop restores the previous bounds.
#[must_use = "the bounds end when this is dropped"]
#[doc(hidden)]
pub struct Bounded(Bounds);

impl Drop for Bounded {
    fn drop(&mut self) {
        BOUNDS.set(self.0);
    }
}

impl Bounds {
    /// Makes these the bounds of this thread, until the returned guard is dropped.
    pub fn enter(self) -> Bounded {
        Bounded(BOUNDS.replace(self))
    }

    /// The bounds of this thread; `seconds` is at most the time to its deadline.
    pub fn here() -> Self {
        let deadline = limits().and_then(|limits| limits.deadline);
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()).as_secs_f64());
        let own = BOUNDS.get();
        let seconds = [own.seconds, left].into_iter().flatten().reduce(f64::min);
        Self { seconds, ..own }
    }
}

/// This thread's limits and bounds for helper threads, which share one count of operations.
#[doc(hidden)]
pub struct Allowance {
    limits: Option<Limits>,
    operations: Option<u64>,
    spent: AtomicU64,
    what: &'static str,
    remedy: &'static str,
}

impl Allowance {
    /// Creates it from this thread, for finding the fill of incomplete factors.
    pub fn of_fill() -> Self {
        Self::here("finding the fill of incomplete factors", "use less fill or precond=lu")
    }

    /// Creates it from this thread, for the work `what`, with the remedy for exceeding the bound.
    pub fn here(what: &'static str, remedy: &'static str) -> Self {
        let operations = Bounds::here().operations;
        Self { limits: limits(), operations, spent: AtomicU64::new(0), what, remedy }
    }

    /// Counts operations. Whether their total exceeds the bound does not depend on the order of the threads.
    ///
    /// # Errors
    /// The limits are reached; [`Error::TooLong`] if the bound is exceeded.
    #[inline]
    pub fn spend(&self, operations: u64) -> Result<()> {
        let spent = self.spent.fetch_add(operations, Relaxed) + operations;
        match self.operations.filter(|most| spent > *most) {
            Some(most) => {
                Err(Error::TooLong { what: self.what, operations: most as f64, remedy: self.remedy })
            }
            None => self.limits.as_ref().map_or(Ok(()), Limits::check),
        }
    }
}

/// Runs a call of another library, which cannot be stopped, on its own thread. If this thread's work ends
/// first, that thread continues to its end, and only then frees its memory. Without limits on this thread,
/// the call runs on this thread.
///
/// # Errors
/// [`Error::Interrupted`]; the thread cannot be started, or it panicked.
#[doc(hidden)]
pub fn apart<T: Send + 'static>(name: &'static str, work: impl FnOnce() -> T + Send + 'static) -> Result<T> {
    use std::sync::mpsc::{self, RecvTimeoutError};
    const LOOK: std::time::Duration = std::time::Duration::from_millis(20);
    let Some(limits) = limits() else { return Ok(work()) };
    let (bounds, (send, receive)) = (Bounds::here(), mpsc::sync_channel(1));
    let own = limits.clone();
    let run = move || {
        let (_limits, _bounds) = (own.enter(), bounds.enter());
        let _ = send.send(work()); // fails if the caller no longer waits
    };
    let thread = std::thread::Builder::new().name(name.into()).spawn(run);
    let thread = thread.map_err(|e| Error::Device {
        device: "the host".into(),
        call: format!("start a thread for {name}"),
        message: format!("{e}; raise the process limit (ulimit -u)"),
    })?;
    loop {
        match receive.recv_timeout(LOOK) {
            Ok(done) => return Ok(done),
            Err(RecvTimeoutError::Timeout) => limits.check()?,
            Err(RecvTimeoutError::Disconnected) => {
                let panic = thread.join().err();
                return Err(panic.map_or_else(
                    || Error::Internal(format!("the thread of {name} ended without a result")),
                    |panic| Error::of_panic(&*panic),
                ));
            }
        }
    }
}

/// As [`check`], for all ranks: none continues unless all do. Collective.
///
/// # Errors
/// On every rank if one must end its work; a rank that is gone or failed.
#[doc(hidden)]
pub fn check_together(comm: &dyn Communicator) -> Result<()> {
    agree(comm, check())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::Team;
    use std::sync::mpsc;
    use std::time::Duration;

    fn of(deadline: Option<Instant>) -> Limits {
        Limits { cancel: Cancel::default(), deadline }
    }

    #[test]
    fn a_flag_or_a_deadline_ends_the_work_of_a_thread() {
        check().unwrap(); // nothing limits it
        let outer = of(None);
        let entered = outer.enter();
        check().unwrap();
        {
            let _inner = of(Some(Instant::now())).enter();
            let e = check().unwrap_err();
            assert!(e.is_interrupt() && e.to_string().contains("the time limit was reached"), "{e}");
        }
        check().unwrap();
        let _later = of(Some(Instant::now() + Duration::from_secs(3600))).enter();
        check().unwrap();
        let helper = limits().unwrap();
        helper.cancel.cancel();
        let e = std::thread::spawn(move || helper.check()).join().unwrap().unwrap_err();
        assert!(e.to_string().contains("cancelled") && e.exit_code() == 130, "{e}");
        drop(entered);
    }

    #[test]
    fn calls_of_others_are_left_behind() {
        assert_eq!(apart("unlimited", std::thread::current).unwrap().id(), std::thread::current().id());
        let own = of(Some(Instant::now() + Duration::from_millis(50)));
        let _entered = own.enter();
        assert_eq!(apart("quick", || 7).unwrap(), 7);
        let (begun, (send, receive)) = (Instant::now(), mpsc::channel::<()>());
        let e = apart("slow", move || receive.recv()).unwrap_err();
        assert!(e.is_interrupt() && begun.elapsed() < Duration::from_secs(20), "{e}");
        drop(send); // and it ends
        let later = of(Some(Instant::now() + Duration::from_secs(60)));
        let _entered = later.enter();
        let e = apart::<()>("failing", || panic!("words")).unwrap_err();
        assert!(e.to_string().contains("words"), "{e}");
    }

    #[test]
    fn operations_are_counted_together_and_bounds_end_with_their_scope() {
        let _outer = Bounds { operations: Some(100), seconds: Some(3.0) }.enter();
        {
            let _inner = Bounds { operations: Some(5), ..Bounds::here() }.enter();
            assert_eq!(Bounds::here(), Bounds { operations: Some(5), seconds: Some(3.0) });
        }
        let all = Allowance::of_fill();
        let failed: Vec<bool> = std::thread::scope(|scope| {
            let one = || scope.spawn(|| (0..30).any(|_| all.spend(1).is_err()));
            let threads = [one(), one(), one(), one()];
            threads.map(|thread| thread.join().unwrap()).to_vec()
        });
        assert!(failed.contains(&true), "120 of 100");
        let _deadline = of(Some(Instant::now())).enter();
        assert_eq!(Bounds::here().seconds, Some(0.0));
        assert!(Allowance::of_fill().spend(1).unwrap_err().is_interrupt());
        let lookout = Lookout::here();
        assert!(lookout.ends() && lookout.finish().unwrap_err().is_interrupt());
    }

    #[test]
    fn what_interrupts_one_rank_interrupts_all() {
        let ranks: Vec<_> = Team::new(3)
            .unwrap()
            .into_iter()
            .map(|comm| {
                std::thread::spawn(move || {
                    let own = of(None);
                    let _entered = own.enter();
                    check_together(&comm).unwrap();
                    if comm.rank() == 1 {
                        own.cancel.cancel();
                    }
                    check_together(&comm).unwrap_err()
                })
            })
            .collect();
        for rank in ranks {
            let e = rank.join().unwrap();
            assert!(e.is_interrupt() && e.to_string().contains("cancelled"), "{e}");
        }
    }
}

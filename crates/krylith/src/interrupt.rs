//! Work that ends before it is done: what is long looks here now and then whether it shall go on.
//!
//! A solver's thread [`enter`](Limits::enter)s the limits of what it was asked to do: a set-up, new values, a solve. Code under it calls
//! [`check`] wherever it may fail by itself, every few milliseconds of work; threads that work for it take a copy of [`limits`] along. A
//! look costs a load, and where there is a deadline a reading of the clock.
//!
//! An interrupt reaches one rank before another, so it travels as every error that one rank has alone: parts of a set-up end in
//! [`agree`], and up to there [`check`] may end a rank's own work. Between collective calls the look is [`check_together`], a
//! collective call itself. All ranks then hold an error of which [`Error::is_interrupt`] is true.

use crate::comm::{Communicator, agree};
use crate::solver::Cancel;
use crate::{Error, Result};
use std::cell::RefCell;
use std::time::Instant;

/// When work ends though it is not done.
#[derive(Debug, Clone)]
pub(crate) struct Limits {
    /// From outside.
    pub cancel: Cancel,
    /// When its seconds are over.
    pub deadline: Option<Instant>,
}

impl Limits {
    /// Why the work shall end, if it shall.
    pub fn reached(&self) -> Option<&'static str> {
        if self.cancel.is_cancelled() {
            Some("cancelled")
        } else if self.deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            Some("the time limit is over")
        } else {
            None
        }
    }

    /// # Errors
    /// [`Error::Interrupted`] once the work shall end.
    pub fn check(&self) -> Result<()> {
        self.reached().map_or(Ok(()), |why| Err(Error::Interrupted(why)))
    }

    /// Makes these the limits of this thread, until what is returned is dropped.
    pub fn enter(&self) -> Entered {
        Entered(CURRENT.replace(Some(self.clone())))
    }
}

thread_local! {
    static CURRENT: RefCell<Option<Limits>> = const { RefCell::new(None) };
}

/// Limits that hold on this thread; those around them hold again when this is dropped.
#[must_use = "the limits end when this is dropped"]
pub(crate) struct Entered(Option<Limits>);

impl Drop for Entered {
    fn drop(&mut self) {
        CURRENT.set(self.0.take());
    }
}

/// The limits of this thread's work, for threads that help with it; `None` where nothing limits it.
pub(crate) fn limits() -> Option<Limits> {
    CURRENT.with_borrow(Clone::clone)
}

/// Whether this thread's work shall go on.
///
/// # Errors
/// [`Error::Interrupted`] where it shall not.
pub(crate) fn check() -> Result<()> {
    CURRENT.with_borrow(|limits| limits.as_ref().map_or(Ok(()), Limits::check))
}

/// As [`check`], of all ranks: none goes on unless all do. Collective.
///
/// # Errors
/// On every rank where one shall not go on; a rank that is gone or failed.
pub(crate) fn check_together(comm: &dyn Communicator) -> Result<()> {
    agree(comm, check())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::Team;
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
            assert!(e.is_interrupt() && e.to_string().contains("the time limit is over"), "{e}");
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

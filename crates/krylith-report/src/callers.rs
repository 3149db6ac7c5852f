//! Whose callbacks a thread runs. A solver that its own callback uses, or one that this calls, would wait for itself: C and Python, where
//! many may hold a solver, refuse that.

use krylith_core::{Error, Result};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A solver, for as long as the process lives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SolverId(u64);

impl SolverId {
    /// One that no other solver has.
    #[allow(clippy::new_without_default)] // each is another
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Relaxed))
    }

    /// # Errors
    /// This thread runs a callback of the solver, or of one that its callback called.
    pub fn check(self, callback: &str) -> Result<()> {
        match CALLERS.with_borrow(|callers| callers.0.contains(&self)) {
            true => Err(Error::invalid(format!("a {callback} cannot use the solver that calls it"))),
            false => Ok(()),
        }
    }
}

/// Solvers whose callbacks are under way, the outermost first. A callback runs on a thread of its solver, and knows by this who waits for it.
#[derive(Debug, Clone)]
pub struct Callers(Arc<[SolverId]>);

thread_local! {
    static CALLERS: RefCell<Callers> = RefCell::new(Callers(Arc::new([])));
}

impl Callers {
    /// Those of this thread, and one more that it calls.
    pub fn and(solver: SolverId) -> Self {
        let before = CALLERS.with_borrow(Clone::clone);
        Self(before.0.iter().copied().chain([solver]).collect())
    }

    /// Makes these the callers of this thread, until what is returned is dropped.
    pub fn enter(&self) -> Entered {
        Entered(CALLERS.replace(self.clone()))
    }
}

/// Callers of this thread; those before are back when this is dropped.
#[must_use = "the callers end when this is dropped"]
pub struct Entered(Callers);

impl Drop for Entered {
    fn drop(&mut self) {
        CALLERS.set(self.0.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_that_wait_are_refused_and_nobody_else() {
        let [a, b, c] = [SolverId::new(), SolverId::new(), SolverId::new()];
        let in_a = Callers::and(a);
        assert!(a.check("callback").is_ok());
        // The callback of a runs on a thread of a, and solves with b, whose callback runs on another.
        std::thread::spawn(move || {
            let _a = in_a.enter();
            let in_b = Callers::and(b);
            std::thread::spawn(move || {
                let _b = in_b.enter();
                for (solver, free) in [(a, false), (b, false), (c, true)] {
                    assert_eq!(solver.check("callback").is_ok(), free, "{solver:?}");
                }
            })
            .join()
            .unwrap();
            {
                let _c = Callers::and(c).enter();
                assert!(c.check("monitor").unwrap_err().to_string().contains("a monitor cannot use"));
            }
            // What the inner callback ended leaves the outer one known.
            assert!(
                a.check("callback").is_err() && b.check("callback").is_ok() && c.check("callback").is_ok()
            );
        })
        .join()
        .unwrap();
    }
}

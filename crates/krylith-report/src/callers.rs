//! Tracks the solvers whose callbacks a thread runs. A callback that uses its own solver, directly or through
//! other solvers, would wait for itself. The C library and the Python package, where a callback can hold its
//! solver, reject such calls.

use krylith_core::{Error, Result};
use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Identifies a solver; unique in the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SolverId(u64);

impl SolverId {
    /// Creates an identifier that no other solver has.
    #[allow(clippy::new_without_default)] // each one is different
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Relaxed))
    }

    /// Checks that the current thread may use the solver; `callback` names the kind of callback for the
    /// error.
    ///
    /// # Errors
    /// This thread runs a callback of the solver, or of another solver that such a callback uses.
    pub fn check(self, callback: &str) -> Result<()> {
        match CALLERS.with_borrow(|callers| callers.0.contains(&self)) {
            true => Err(Error::invalid(format!(
                "a {callback} cannot use the solver that calls it; use another solver, or wait until this \
                 solve ends"
            ))),
            false => Ok(()),
        }
    }
}

/// Solvers whose callbacks are running, the outermost first. A callback runs on a thread of its solver; this
/// list tells it which solvers wait for it.
#[derive(Debug, Clone)]
pub struct Callers(Arc<[SolverId]>);

thread_local! {
    static CALLERS: RefCell<Callers> = RefCell::new(Callers(Arc::new([])));
}

impl Callers {
    /// Returns the callers of this thread and one more solver, which this thread calls.
    pub fn and(solver: SolverId) -> Self {
        let before = CALLERS.with_borrow(Clone::clone);
        Self(before.0.iter().copied().chain([solver]).collect())
    }

    /// Sets the callers of this thread, until the returned guard is dropped.
    pub fn enter(&self) -> Entered {
        Entered(CALLERS.replace(self.clone()))
    }
}

/// A guard that restores the previous callers of this thread when it is dropped.
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
            // The end of the inner callback restores the outer one.
            assert!(
                a.check("callback").is_err() && b.check("callback").is_ok() && c.check("callback").is_ok()
            );
        })
        .join()
        .unwrap();
    }
}

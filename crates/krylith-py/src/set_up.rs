//! A solver's set-up, which Ctrl-C ends.

use crate::errors::{detached, exception};
use crate::told::Raised;
use krylith_core::solver::Cancel;
use krylith_core::{Error, Options, Problem, Solver};
use pyo3::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Unknowns up to which a set-up takes less than anybody waits for: a thread more would take a part of that.
const SMALL: usize = 1000;
/// Between two looks at Python's signals.
const EVERY: Duration = Duration::from_millis(50);
/// How long a set-up that was cancelled is waited for.
const GRACE: Duration = Duration::from_millis(200);

/// Sets a solver up, without the interpreter's lock. What Python's signals raise meanwhile ends it: what looks at no token, as the
/// factors of another library, is left to its thread, which ends when they are done.
pub fn set_up(
    py: Python<'_>,
    problem: Problem<'static>,
    options: &Options,
    cancel: &Cancel,
    raised: &Arc<Raised>,
    signals: Box<dyn FnMut() + Send>,
) -> PyResult<Solver<'static>> {
    // Ranks end a set-up together, or not at all.
    if problem.unknowns() <= SMALL || problem.comm().size() > 1 {
        let made = detached(py, || Solver::new_watched(problem, options, cancel, Some(signals)));
        return raised.take().map_or(made, Err);
    }
    let (tell, told) = channel();
    let (options, token, mut signals) = (options.clone(), cancel.clone(), signals);
    let work = move || {
        let made = catch_unwind(AssertUnwindSafe(|| Solver::new_watched(problem, &options, &token, None)));
        let _ = tell.send(made.unwrap_or_else(|panic| Err(Error::of_panic(&*panic)))); // nobody waits any more
    };
    let thread = std::thread::Builder::new().name("krylith-set-up".into()).spawn(work);
    thread.map_err(|e| {
        exception(Error::Device {
            device: "the host".into(),
            call: "a new thread".into(),
            message: format!("{e}; raise the limit of processes (ulimit -u)"),
        })
    })?;
    let (made, signals) = py.detach(move || {
        let made = loop {
            match told.recv_timeout(EVERY) {
                Err(RecvTimeoutError::Timeout) => signals(),
                done => break done.ok(),
            }
            if cancel.is_cancelled() {
                break told.recv_timeout(GRACE).ok();
            }
        };
        (made, signals)
    });
    if let Some(e) = raised.take() {
        return Err(e);
    }
    let mut solver =
        made.unwrap_or_else(|| Err(Error::Internal("a set-up was lost".into()))).map_err(exception)?;
    solver.while_waiting(Some(signals));
    Ok(solver)
}

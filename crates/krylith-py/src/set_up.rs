//! The set-up of a solver, which Ctrl-C can end.

use crate::callback::Raised;
use crate::errors::{detached, exception};
use krylith_core::solver::Cancel;
use krylith_core::{Error, Options, Problem, Solver};
use pyo3::prelude::*;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Number of unknowns up to which a set-up runs on the calling thread: it is so short that starting a thread
/// would cost a notable part.
const SMALL: usize = 1000;
/// Interval of the checks for Python signals.
const EVERY: Duration = Duration::from_millis(50);
/// Timeout of the wait for a cancelled set-up.
const GRACE: Duration = Duration::from_millis(200);

/// Sets up a solver, without the interpreter's lock. If a Python signal handler raises an exception, the
/// set-up ends. Work that does not check the cancellation token, such as a factorisation of another library,
/// is left to its thread, which ends when the work is done.
pub fn set_up(
    py: Python<'_>,
    problem: Problem<'static>,
    options: &Options,
    cancel: &Cancel,
    raised: &Arc<Raised>,
    signals: Box<dyn FnMut() + Send>,
) -> PyResult<Solver<'static>> {
    // Ranks must end a set-up together, so none may abandon its thread.
    if problem.unknowns() <= SMALL || problem.comm().size() > 1 {
        let made = detached(py, || Solver::new_cancellable(problem, options, cancel, Some(signals)));
        return raised.take().map_or(made, Err);
    }
    let (tell, callback) = channel();
    let (options, token, mut signals) = (options.clone(), cancel.clone(), signals);
    let work = move || {
        let made =
            catch_unwind(AssertUnwindSafe(|| Solver::new_cancellable(problem, &options, &token, None)));
        // An error means that the caller no longer waits.
        let _ = tell.send(made.unwrap_or_else(|panic| Err(Error::of_panic(&*panic))));
    };
    let thread = std::thread::Builder::new().name("krylith-set-up".into()).spawn(work);
    thread.map_err(|e| {
        exception(Error::Device {
            device: "the host".into(),
            call: "a new thread".into(),
            message: format!("{e}; raise the process limit (ulimit -u)"),
        })
    })?;
    let (made, signals) = py.detach(move || {
        let made = loop {
            match callback.recv_timeout(EVERY) {
                Err(RecvTimeoutError::Timeout) => signals(),
                done => break done.ok(),
            }
            if cancel.is_cancelled() {
                break callback.recv_timeout(GRACE).ok();
            }
        };
        (made, signals)
    });
    if let Some(e) = raised.take() {
        return Err(e);
    }
    let mut solver = made
        .unwrap_or_else(|| Err(Error::Internal("the thread of a set-up ended without a result".into())))
        .map_err(exception)?;
    solver.while_waiting(Some(signals));
    Ok(solver)
}

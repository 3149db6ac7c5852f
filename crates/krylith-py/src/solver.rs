//! A system on its device, solved as often as wanted.

use crate::arrays::{Lent, LentMut};
use crate::errors::{detached, exception, named, refuse_forked};
use crate::solution::Solution;
use crate::system::System;
use crate::told::{Raised, Told};
use krylith::solver::host::is_forked;
use krylith::solver::{Cancel, Refresh};
use krylith::{Observer, Options, Progress};
use pyo3::prelude::*;
use std::cell::Cell;
use std::mem::ManuallyDrop;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard};

/// A solver; threads of Python take turns.
#[pyclass(frozen)]
pub struct Solver {
    solver: Mutex<ManuallyDrop<krylith::Solver<'static>>>,
    options: Arc<Options>,
    lines: Arc<Vec<String>>,
    cancel: Cancel,
    /// What Python's signals or callback raised while a solve was under way.
    raised: Arc<Raised>,
}

thread_local! {
    /// The solver whose callback this thread runs.
    static CALLED_BY: Cell<usize> = const { Cell::new(0) };
}

#[pymethods]
impl Solver {
    #[new]
    fn new(py: Python<'_>, system: &System, options: &str) -> PyResult<Self> {
        refuse_forked()?;
        let options: Options = options.parse().map_err(exception)?;
        let problem = system.problem.clone();
        let mut solver = detached(py, || krylith::Solver::new(problem, &options))?;
        py.check_signals()?;
        let (cancel, raised) = (solver.cancel_token(), Arc::new(Raised::default()));
        let (stop, told) = (cancel.clone(), raised.clone());
        solver.while_waiting(Some(Box::new(move || {
            if let Err(e) = Python::attach(|py| py.check_signals()) {
                told.keep(e);
                stop.cancel();
            }
        })));
        Ok(Self {
            solver: Mutex::new(ManuallyDrop::new(solver)),
            options: Arc::new(options),
            lines: Arc::new(system.lines.clone()),
            cancel,
            raised,
        })
    }

    /// Solves A x = b from x and overwrites it; gives the solution, and what a callback or a signal raised.
    #[pyo3(signature = (b, x, rtol=None, atol=None, maxiter=None, callback=None))]
    fn solve(
        &self,
        py: Python<'_>,
        b: Lent<'_>,
        mut x: LentMut<'_>,
        rtol: Option<f64>,
        atol: Option<f64>,
        maxiter: Option<usize>,
        callback: Option<Py<PyAny>>,
    ) -> PyResult<(Solution, Option<PyErr>)> {
        self.check()?;
        let (b, x) = (b.array()?, x.array()?);
        let mut options = self.options.clone();
        if rtol.is_some() || atol.is_some() || maxiter.is_some() {
            let changed = Arc::make_mut(&mut options);
            changed.rtol = rtol.or(changed.rtol);
            changed.atol = atol.or(changed.atol);
            changed.max_iters = maxiter.or(changed.max_iters);
            changed.settled().map_err(exception)?;
        }
        let mut watch = Watch { told: Told { callback, raised: &self.raised }, solver: self.address() };
        let (solution, raised) = detached(py, || {
            let mut solver = lock(&self.solver);
            let unknowns = solver.problem().unknowns();
            solver.set_stop(options.stop_of(unknowns));
            self.cancel.reset();
            self.raised.take();
            let solution = match watch.told.callback.is_some() {
                true => solver.solve_told(b, x, &mut watch)?,
                false => solver.solve(b, x)?,
            };
            let solution = solution.clone();
            Ok((solution, self.raised.take()))
        })?;
        Ok((Solution { solution, options, lines: self.lines.clone() }, raised))
    }

    /// y ← A x, or y ← P⁻¹ x.
    fn apply(&self, py: Python<'_>, preconditioner: bool, x: Lent<'_>, mut y: LentMut<'_>) -> PyResult<()> {
        self.check()?;
        let (x, y) = (x.array()?, y.array()?);
        detached(py, || {
            let mut solver = lock(&self.solver);
            if preconditioner { solver.precondition(x, y) } else { solver.multiply(x, y) }
        })
    }

    /// New values of a term, in the order of the matrix that was given.
    fn update(&self, py: Python<'_>, term: usize, values: Lent<'_>) -> PyResult<()> {
        self.check()?;
        let values = values.array()?;
        detached(py, || lock(&self.solver).update_term(term, values))
    }

    /// A new τ.
    fn set_tau(&self, py: Python<'_>, tau: f64) -> PyResult<()> {
        self.check()?;
        detached(py, || lock(&self.solver).set_tau(tau))
    }

    /// What becomes of the preconditioner when values change: `keep`, `refresh` or `rebuild`.
    fn set_refresh(&self, py: Python<'_>, refresh: &str) -> PyResult<()> {
        self.check()?;
        let refresh: Refresh = refresh.parse().map_err(exception)?;
        detached(py, || {
            lock(&self.solver).set_refresh(refresh);
            Ok(())
        })
    }

    /// Stops the solve that another thread has under way.
    fn cancel(&self) {
        self.cancel.cancel();
    }
}

impl Solver {
    /// Refuses what would wait for ever: threads that a fork has left behind, and a callback that uses its own solver.
    fn check(&self) -> PyResult<()> {
        refuse_forked()?;
        match CALLED_BY.get() == self.address() {
            true => Err(named("InvalidInput", "a callback cannot use the solver that calls it".into())),
            false => Ok(()),
        }
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }
}

impl Drop for Solver {
    /// In a forked process there are no threads to be joined, and nothing is freed.
    fn drop(&mut self) {
        if !is_forked() {
            let solver = self.solver.get_mut().unwrap_or_else(|e| e.into_inner());
            // Without the interpreter's lock: threads end, and on several GPUs a solve of another thread is waited for, which may want it.
            let dropped = Python::try_attach(|py| {
                // SAFETY: it is not used after this.
                py.detach(|| unsafe { ManuallyDrop::drop(&mut *solver) });
            });
            if dropped.is_none() {
                // SAFETY: as above, where the interpreter ends.
                unsafe { ManuallyDrop::drop(solver) };
            }
        }
    }
}

/// Tells a Python function of the progress, and notes whose it is.
struct Watch<'a> {
    told: Told<'a>,
    solver: usize,
}

impl Observer for Watch<'_> {
    fn progress(&mut self, p: Progress) -> ControlFlow<()> {
        CALLED_BY.set(self.solver);
        let answer = self.told.tell(p.iteration, p.relative_residual);
        CALLED_BY.set(0);
        answer
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

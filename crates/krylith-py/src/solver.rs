//! A system on its device, ready for many solves.

use crate::arrays::{Lent, LentMut};
use crate::callback::{Callback, Raised};
use crate::errors::{detached, exception, refuse_forked};
use crate::set_up::set_up;
use crate::solution::Solution;
use crate::system::{GivenMatrix, System, dense, named_matrix};
use krylith_core::solver::host::is_forked;
use krylith_core::solver::{Cancel, Refresh, first_use};
use krylith_core::{Observer, Options, Progress};
use krylith_report::callers::{Callers, SolverId};
use numpy::PyReadonlyArray2;
use pyo3::prelude::*;
use std::mem::ManuallyDrop;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, MutexGuard};

/// Gives a remark to Python's logging, as a warning of the logger `krylith`.
fn warn(py: Python<'_>, text: &str) -> PyResult<()> {
    let logger = py.import("logging")?.call_method1("getLogger", ("krylith",))?;
    logger.call_method1("warning", (text,)).map(|_| ())
}

/// A solver. Calls of several Python threads wait for each other.
#[pyclass(frozen)]
pub struct Solver {
    solver: Mutex<ManuallyDrop<krylith_core::Solver<'static>>>,
    options: Arc<Options>,
    lines: Arc<Vec<String>>,
    cancel: Cancel,
    /// The exception of a Python signal or callback during the current call.
    raised: Arc<Raised>,
    id: SolverId,
}

#[pymethods]
impl Solver {
    #[new]
    fn new(py: Python<'_>, system: &System, options: &str) -> PyResult<Self> {
        refuse_forked()?;
        let options: Options = options.parse().map_err(exception)?;
        let (cancel, raised, id) = (Cancel::default(), Arc::new(Raised::default()), SolverId::new());
        let (stop, callback, mut told) = (cancel.clone(), raised.clone(), false);
        let signals = move || {
            let _called = Callers::and(id).enter();
            let mut looked = Python::attach(|py| py.check_signals());
            if !told && let Some(text) = first_use() {
                told = true;
                looked = looked.and(Python::attach(|py| warn(py, &text)));
            }
            if let Err(e) = looked {
                callback.keep(e);
                stop.cancel();
            }
        };
        let solver = set_up(py, system.problem.clone(), &options, &cancel, &raised, Box::new(signals))?;
        Ok(Self {
            solver: Mutex::new(ManuallyDrop::new(solver)),
            options: Arc::new(options),
            lines: Arc::new(system.lines.clone()),
            cancel,
            raised,
            id,
        })
    }

    /// Solves A x = b with the initial guess x, and overwrites x. Returns the solution, and the exception of
    /// a callback or a signal.
    #[pyo3(signature = (b, x, rtol=None, atol=None, max_iters=None, callback=None))]
    fn solve(
        &self,
        py: Python<'_>,
        b: Lent<'_>,
        mut x: LentMut<'_>,
        rtol: Option<f64>,
        atol: Option<f64>,
        max_iters: Option<usize>,
        callback: Option<Py<PyAny>>,
    ) -> PyResult<(Solution, Option<PyErr>)> {
        self.check()?;
        let (b, x) = (b.array()?, x.array()?);
        let mut options = self.options.clone();
        if rtol.is_some() || atol.is_some() || max_iters.is_some() {
            let changed = Arc::make_mut(&mut options);
            changed.rtol = rtol.or(changed.rtol);
            changed.atol = atol.or(changed.atol);
            changed.max_iters = max_iters.or(changed.max_iters);
            changed.settled().map_err(exception)?;
        }
        let mut watch =
            Watch { callback: Callback { callback, raised: &self.raised }, callers: Callers::and(self.id) };
        let (solution, raised) = detached(py, || {
            let mut solver = lock(&self.solver);
            let unknowns = solver.problem().unknowns();
            solver.set_stop(options.stop_of(unknowns));
            self.cancel.reset();
            self.raised.take();
            let solution = match watch.callback.callback.is_some() {
                true => solver.request(b, x).observer(&mut watch).run()?,
                false => solver.solve(b, x)?,
            };
            let solution = solution.clone();
            Ok((solution, self.raised.take()))
        })?;
        Ok((Solution { solution, options, lines: self.lines.clone() }, raised))
    }

    /// Computes y ← A x or y ← P⁻¹ x.
    fn apply(&self, py: Python<'_>, preconditioner: bool, x: Lent<'_>, mut y: LentMut<'_>) -> PyResult<()> {
        let (x, y) = (x.array()?, y.array()?);
        self.alone(
            py,
            |solver| if preconditioner { solver.precondition(x, y) } else { solver.multiply(x, y) },
        )
    }

    /// Sets new values of a matrix, in the order in which it was given.
    fn update(&self, py: Python<'_>, values: Lent<'_>) -> PyResult<()> {
        let values = values.array()?;
        self.alone(py, |solver| solver.update_values(values))
    }

    /// Sets a new A⊗M + τB⊗L; if one part is rejected, nothing changes. Values of M and L have the order in
    /// which each was given.
    fn update_kronecker(
        &self,
        py: Python<'_>,
        a: PyReadonlyArray2<'_, f64>,
        b: PyReadonlyArray2<'_, f64>,
        tau: f64,
        m: Lent<'_>,
        l: Lent<'_>,
    ) -> PyResult<()> {
        let (a, b) = (dense(&a).map_err(exception)?, dense(&b).map_err(exception)?);
        let (m, l) = (m.array()?, l.array()?);
        self.alone(py, |solver| solver.update_kronecker(&a, &b, tau, m, l))
    }

    /// Gives a matrix that preconditioners name new values, which take effect with the next update.
    fn set_matrix(&self, py: Python<'_>, name: &str, arrays: GivenMatrix<'_>) -> PyResult<()> {
        let matrix = named_matrix(name, arrays)?;
        self.alone(py, |solver| solver.set_matrix(name, matrix))
    }

    /// Sets a new τ.
    fn set_tau(&self, py: Python<'_>, tau: f64) -> PyResult<()> {
        self.alone(py, |solver| solver.set_tau(tau))
    }

    /// Sets what happens to the preconditioner when values change: `keep`, `refresh` or `rebuild`.
    fn set_refresh(&self, py: Python<'_>, refresh: &str) -> PyResult<()> {
        let refresh: Refresh = refresh.parse().map_err(exception)?;
        self.alone(py, |solver| {
            solver.set_refresh(refresh);
            Ok(())
        })
    }

    /// Ends the solve that another thread runs.
    fn cancel(&self) {
        self.cancel.cancel();
    }
}

impl Solver {
    /// Rejects calls that would wait forever: those in a forked process, and those of a callback to its own
    /// solver.
    fn check(&self) -> PyResult<()> {
        refuse_forked()?;
        self.id.check("callback").map_err(exception)
    }

    /// Runs `work` while no other thread uses the solver; afterwards raises the exception of a signal, if
    /// there was one.
    fn alone(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut krylith_core::Solver<'static>) -> krylith_core::Result<()> + Send,
    ) -> PyResult<()> {
        self.check()?;
        let mut signal = None;
        let done = detached(py, || {
            let mut solver = lock(&self.solver);
            self.cancel.reset();
            self.raised.take();
            let done = work(&mut solver);
            signal = self.raised.take();
            done
        });
        signal.map_or(done, Err)
    }
}

impl Drop for Solver {
    /// Frees nothing in a forked process, where the threads to join do not exist.
    fn drop(&mut self) {
        if !is_forked() {
            let solver = self.solver.get_mut().unwrap_or_else(|e| e.into_inner());
            // Without the interpreter's lock, because this joins threads; on several GPUs it waits for a
            // solve of another thread, which may need the lock.
            let dropped = Python::try_attach(|py| {
                // SAFETY: the solver is not used after this.
                py.detach(|| unsafe { ManuallyDrop::drop(&mut *solver) });
            });
            if dropped.is_none() {
                // SAFETY: as above; the interpreter has ended.
                unsafe { ManuallyDrop::drop(solver) };
            }
        }
    }
}

/// Reports progress to a Python function, and records the solvers whose callers wait for it.
struct Watch<'a> {
    callback: Callback<'a>,
    callers: Callers,
}

impl Observer for Watch<'_> {
    fn progress(&mut self, p: Progress) -> ControlFlow<()> {
        let _called = self.callers.enter();
        self.callback.tell(p.iteration, p.relative_residual)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

//! A system on its device, ready for many solves.

use crate::arrays::{Lent, LentMut};
use crate::callback::{Callback, Raised};
use crate::errors::{detached, exception, refuse_forked};
use crate::function::Function;
use crate::set_up::set_up;
use crate::solution::Solution;
use crate::system::{GivenMatrix, System, dense, named_matrix};
use krylith_core::device::cuda::KeptContext;
use krylith_core::matrix::Bsr;
use krylith_core::precond::PrecondInfo;
use krylith_core::solver::host::is_forked;
use krylith_core::solver::{Cancel, Refresh, first_use, method_of_functions, solve_functions};
use krylith_core::{Error, Observer, Options, Progress, Stop};
use krylith_report::callers::{Callers, SolverId};
use numpy::{IntoPyArray, PyArray1, PyReadonlyArray1, PyReadonlyArray2, PyReadwriteArray1};
use pyo3::prelude::*;
use std::mem::ManuallyDrop;
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

/// A matrix for Python: block size, rows and columns, offsets, block columns, and values.
type BlockArrays<'py> =
    (usize, [usize; 2], Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<i64>>, Bound<'py, PyArray1<f64>>);

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
    /// The kind of device; a reader need not wait for a solve.
    device: &'static str,
    /// Nanoseconds of the set-up, until a solve with a function has reported them.
    set_up: AtomicU64,
}

#[pymethods]
impl Solver {
    #[new]
    fn new(py: Python<'_>, system: &System, options: &str) -> PyResult<Self> {
        refuse_forked()?;
        let options: Options = options.parse().map_err(exception)?;
        let (cancel, raised, id) = (Cancel::default(), Arc::new(Raised::default()), SolverId::new());
        let signals = signals(id, cancel.clone(), raised.clone());
        let begin = Instant::now();
        let solver = set_up(py, system.problem.clone(), &options, &cancel, &raised, signals)?;
        Ok(Self {
            device: solver.solution().device.kind,
            set_up: AtomicU64::new(begin.elapsed().as_nanos() as u64),
            solver: Mutex::new(ManuallyDrop::new(solver)),
            options: Arc::new(options),
            lines: Arc::new(system.lines.clone()),
            cancel,
            raised,
            id,
        })
    }

    /// Makes a solver without a matrix, whose solves give A as a function.
    #[staticmethod]
    fn without_matrix(py: Python<'_>, unknowns: usize, options: &str) -> PyResult<Self> {
        refuse_forked()?;
        let options: Options = options.parse().map_err(exception)?;
        let (raised, id, begin) = (Arc::new(Raised::default()), SolverId::new(), Instant::now());
        let made = detached(py, || krylith_core::Solver::without_matrix(unknowns, &options));
        let mut solver = made?;
        let cancel = solver.cancel_token();
        solver.while_waiting(Some(signals(id, cancel.clone(), raised.clone())));
        Ok(Self {
            device: solver.solution().device.kind,
            set_up: AtomicU64::new(begin.elapsed().as_nanos() as u64),
            solver: Mutex::new(ManuallyDrop::new(solver)),
            options: Arc::new(options),
            lines: Arc::new(vec![format!("{unknowns} unknowns, A is a function")]),
            cancel,
            raised,
            id,
        })
    }

    /// Solves A x = b, or Aᵀ x = b, with the initial guess x, and overwrites x. `operator` replaces A, and
    /// `preconditioner` P⁻¹. Returns the solution, and the exception of a callback or a signal.
    #[pyo3(signature = (
        b, x, rtol=None, atol=None, max_iters=None, callback=None, transpose=false, operator=None, preconditioner=None,
    ))]
    fn solve(
        &self,
        py: Python<'_>,
        b: Lent<'_>,
        mut x: LentMut<'_>,
        rtol: Option<f64>,
        atol: Option<f64>,
        max_iters: Option<usize>,
        callback: Option<Py<PyAny>>,
        transpose: bool,
        operator: Option<Py<Function>>,
        preconditioner: Option<Py<Function>>,
    ) -> PyResult<(Solution, Option<PyErr>)> {
        self.check()?;
        let (b, x) = (b.array()?, x.array()?);
        let [a, p] = [&operator, &preconditioner].map(|given| given.as_ref().map(Py::get));
        let options = self.options_of(rtol, atol, max_iters)?;
        let mut watch = Watch {
            callback: Callback { callback, raised: &self.raised },
            callers: Callers::and(self.id),
            cancel: None,
            last: None,
        };
        let callers = watch.callers.clone();
        let done = detached(py, || {
            let mut solver = self.ready(&options);
            a.into_iter().chain(p).for_each(|function| function.begin(&callers));
            let mut request = solver.request(b, x).transposed(transpose);
            if let Some(a) = a {
                request = request.operator(&a.operator);
            }
            if let Some(p) = p {
                request = request.preconditioner(&p.operator);
            }
            let solution = match watch.callback.callback.is_some() {
                true => request.observer(&mut watch).run()?,
                false => request.run()?,
            };
            let solution = solution.clone();
            Ok((solution, self.raised.take()))
        });
        let failed = a.into_iter().chain(p).fold(None, |first, function| function.end().or(first));
        if let Some(e) = failed {
            return Err(e);
        }
        let (solution, raised) = done?;
        Ok((Solution { solution, options, lines: self.lines.clone() }, raised))
    }

    /// Solves for several right-hand sides, stored one after the other, with the initial guesses x, and
    /// overwrites x. Returns their solutions, and the exception of a signal.
    #[pyo3(signature = (b, x, rtol=None, atol=None, max_iters=None, transpose=false))]
    fn solve_columns(
        &self,
        py: Python<'_>,
        b: Lent<'_>,
        mut x: LentMut<'_>,
        rtol: Option<f64>,
        atol: Option<f64>,
        max_iters: Option<usize>,
        transpose: bool,
    ) -> PyResult<(Vec<Solution>, Option<PyErr>)> {
        self.check()?;
        let (b, x) = (b.array()?, x.array()?);
        let options = self.options_of(rtol, atol, max_iters)?;
        let (solutions, raised) = detached(py, || {
            let mut solver = self.ready(&options);
            let solutions = solver.request(b, x).transposed(transpose).columns()?;
            Ok((solutions, self.raised.take()))
        })?;
        let lines = &self.lines;
        let named = |solution| Solution { solution, options: options.clone(), lines: lines.clone() };
        Ok((solutions.into_iter().map(named).collect(), raised))
    }

    /// Solves A x = b as [`solve`](Self::solve) does, on the host and with a function that applies P⁻¹.
    #[pyo3(signature = (p, b, x, rtol=None, atol=None, max_iters=None, callback=None))]
    fn solve_with(
        &self,
        py: Python<'_>,
        p: Py<PyAny>,
        b: PyReadonlyArray1<'_, f64>,
        mut x: PyReadwriteArray1<'_, f64>,
        rtol: Option<f64>,
        atol: Option<f64>,
        max_iters: Option<usize>,
        callback: Option<Py<PyAny>>,
    ) -> PyResult<(Solution, Option<PyErr>)> {
        self.check()?;
        let (b, x) = (b.as_slice()?, x.as_slice_mut()?);
        let options = self.options_of(rtol, atol, max_iters)?;
        let without = Options { precond: None, ..(*options).clone() };
        let callers = Callers::and(self.id);
        let raised = &*self.raised;
        let cancel = Some(&self.cancel);
        let mut watch =
            Watch { callback: Callback { callback, raised }, callers: callers.clone(), cancel, last: None };
        let done = detached(py, || {
            let mut solver = lock(&self.solver);
            self.cancel.reset();
            raised.take();
            let mut solution = solver.solution().clone();
            let begin = Instant::now();
            let mut product = |from: &[f64], to: &mut [f64]| solver.multiply(from, to);
            let mut inverse = |from: &[f64], to: &mut [f64]| {
                let _called = callers.enter();
                raised.call(&p, from, to)
            };
            let history = solve_functions(&mut product, Some(&mut inverse), b, x, &without, &mut watch)?;
            if watch.last != Some(history.iterations)
                && let Some(&relative_residual) = history.residuals.last()
            {
                let _called = callers.enter();
                let _ = watch.callback.tell(history.iterations, relative_residual); // the solve has ended
            }
            solution.method = method_of_functions(&options, b.len())?;
            let norm = history.reference;
            let Stop { rtol, atol, .. } = options.stop_of(b.len());
            solution.target = if norm > 0.0 { rtol.max(atol / norm) } else { atol };
            solution.precond = Arc::new(PrecondInfo {
                name: "function".into(),
                text: "a function of the caller".into(),
                ..PrecondInfo::default()
            });
            solution.history = history;
            solution.events.clear();
            solution.setup_seconds = self.set_up.swap(0, Relaxed) as f64 * 1e-9;
            solution.solve_seconds = begin.elapsed().as_secs_f64();
            Ok(solution)
        });
        match (done, raised.take()) {
            (Ok(solution), e) => Ok((Solution { solution, options, lines: self.lines.clone() }, e)),
            (Err(_), Some(e)) => Err(e),
            (Err(e), None) => Err(e),
        }
    }

    /// Returns the kind of device, `cpu` or `cuda`.
    #[getter]
    fn device(&self) -> &'static str {
        self.device
    }

    /// Returns the bytes of the matrix and of the preconditioner on the host, and the largest number of bytes
    /// on a GPU if a GPU has solved.
    fn memory(&self, py: Python<'_>) -> PyResult<(u64, Option<u64>)> {
        let mut memory = (0, None);
        self.alone(py, |solver| {
            let terms = solver.problem().terms().terms();
            let bytes = |a: &Bsr| 8 * (a.stored() + a.block_rows() + 1) + 4 * a.blocks();
            let matrices: usize = terms.iter().map(|(_, a)| bytes(a)).sum();
            let solution = solver.solution();
            let on_host = solution.device.kind == "cpu";
            let factors = if on_host { 8.0 * solution.precond.numbers } else { 0.0 };
            memory = (matrices as u64 + factors as u64, solution.device_memory);
            Ok(())
        })?;
        Ok(memory)
    }

    /// Returns the current matrices: block size, rows and columns, offsets, block columns, and values.
    fn matrices<'py>(&self, py: Python<'py>) -> PyResult<Vec<BlockArrays<'py>>> {
        let mut copies = Vec::new();
        self.alone(py, |solver| {
            let terms = solver.problem().terms().terms();
            let copy = |a: &Bsr| {
                let offsets: Vec<i64> = a.row_ptr().iter().map(|&p| p as i64).collect();
                let columns: Vec<i64> = a.col().iter().map(|&j| i64::from(j)).collect();
                (a.block(), [a.rows(), a.columns()], offsets, columns, a.values().to_vec())
            };
            copies = terms.iter().map(|(_, a)| copy(a)).collect();
            Ok(())
        })?;
        let arrays = copies.into_iter().map(|(block, shape, offsets, columns, values)| {
            (block, shape, offsets.into_pyarray(py), columns.into_pyarray(py), values.into_pyarray(py))
        });
        Ok(arrays.collect())
    }

    /// Computes y ← A x or y ← P⁻¹ x, or applies the transpose.
    #[pyo3(signature = (preconditioner, x, y, transpose=false))]
    fn apply(
        &self,
        py: Python<'_>,
        preconditioner: bool,
        x: Lent<'_>,
        mut y: LentMut<'_>,
        transpose: bool,
    ) -> PyResult<()> {
        let (x, y) = (x.array()?, y.array()?);
        self.alone(py, |solver| match (preconditioner, transpose) {
            (false, false) => solver.multiply(x, y),
            (false, true) => solver.multiply_transposed(x, y),
            (true, false) => solver.precondition(x, y),
            (true, true) => solver.precondition_transposed(x, y),
        })
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
        let coefficients = dense(&a).and_then(|a| Ok((a, dense(&b)?)));
        let (m, l) = match (m.array(), l.array()) {
            (Ok(m), Ok(l)) => (m, l),
            (Err(e), _) | (_, Err(e)) => {
                // Other ranks begin their update meanwhile.
                let text = e.to_string();
                self.alone(py, |solver| solver.agreed(Err(Error::invalid(text))))?;
                return Err(e);
            }
        };
        self.alone(py, |solver| match coefficients {
            Ok((a, b)) => solver.update_kronecker(&a, &b, tau, m, l),
            Err(e) => solver.agreed(Err(e)),
        })
    }

    /// Raises an error for new values that Python rejects. Other ranks, which call `update` or
    /// `update_kronecker` meanwhile, raise an error with the same text.
    fn refuse(&self, py: Python<'_>, text: String) -> PyResult<()> {
        self.alone(py, |solver| solver.agreed(Err(Error::invalid(text))))
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
    /// Returns the options with the tolerances and the limit of one solve.
    fn options_of(
        &self,
        rtol: Option<f64>,
        atol: Option<f64>,
        max_iters: Option<usize>,
    ) -> PyResult<Arc<Options>> {
        let mut options = self.options.clone();
        if rtol.is_some() || atol.is_some() || max_iters.is_some() {
            let changed = Arc::make_mut(&mut options);
            changed.rtol = rtol.or(changed.rtol);
            changed.atol = atol.or(changed.atol);
            changed.max_iters = max_iters.or(changed.max_iters);
            changed.settled().map_err(exception)?;
        }
        Ok(options)
    }

    /// Locks the solver for a solve with these options, and forgets what ended an earlier one.
    fn ready(&self, options: &Options) -> MutexGuard<'_, ManuallyDrop<krylith_core::Solver<'static>>> {
        let mut solver = lock(&self.solver);
        let unknowns = solver.problem().unknowns();
        solver.set_stop(options.stop_of(unknowns));
        self.cancel.reset();
        self.raised.take();
        solver
    }

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
            let _kept = KeptContext::new();
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
    /// The token that ends the solve, where the library does not check it.
    cancel: Option<&'a Cancel>,
    /// The last iteration that was reported.
    last: Option<usize>,
}

impl Observer for Watch<'_> {
    fn progress(&mut self, p: Progress) -> ControlFlow<()> {
        if self.cancel.is_some_and(Cancel::is_cancelled) {
            return ControlFlow::Break(());
        }
        self.last = Some(p.iteration);
        let _called = self.callers.enter();
        self.callback.tell(p.iteration, p.relative_residual)
    }
}

/// Returns what the waiting thread calls: it handles Python's signals, and ends the solve if a handler
/// raises.
fn signals(id: SolverId, stop: Cancel, callback: Arc<Raised>) -> Box<dyn FnMut() + Send> {
    let mut told = false;
    Box::new(move || {
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
    })
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

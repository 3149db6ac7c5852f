//! Solvers: problems on their devices, ready for many solves.

use crate::arrays::{Memory, array, array_mut, length, slice, slice_mut};
use crate::functions::{Monitor, Operator, Watch, operator};
use crate::problem::{Problem, dense, free, hand_over};
use crate::solution::Solution;
use crate::status::{Failure, Result, Status, given, guard, needed, say, text};
use krylith_core::memory::{Numbers, NumbersMut};
use krylith_core::operator::FunctionOperator;
use krylith_core::solver::{Cancel, Refresh, host};
use krylith_core::{Error, Observer, Options, Progress};
use krylith_report::callers::{Callers, SolverId};
use krylith_report::words::{self, Language};
use std::ffi::{c_char, c_void};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

/// A problem on its device, ready for many solves. Calls of several threads on the same solver wait for each
/// other.
pub struct Solver {
    state: Mutex<ManuallyDrop<State>>,
    cancel: Cancel,
    unknowns: usize,
    id: SolverId,
}

struct State {
    solver: krylith_core::Solver<'static>,
    options: Options,
    lines: Vec<String>,
    watch: Watch,
    /// Functions as A and as P⁻¹, and the last number that they returned.
    operators: [Option<FunctionOperator<'static>>; 2],
    returned: Arc<AtomicI32>,
}

impl Solver {
    fn new(problem: &Problem, options: *const c_char) -> Result<Self> {
        let options: Options = text(options, "options")?.parse()?;
        let solver = krylith_core::Solver::new(problem.system.clone(), &options)?;
        Ok(Self::of(solver, options, problem.system.own_len(), problem.lines.clone()))
    }

    fn without_matrix(unknowns: usize, options: *const c_char) -> Result<Self> {
        let options: Options = text(options, "options")?.parse()?;
        let solver = krylith_core::Solver::without_matrix(unknowns, &options)?;
        let lines = vec![format!("{unknowns} unknowns, A is a function")];
        Ok(Self::of(solver, options, unknowns, lines))
    }

    fn of(
        solver: krylith_core::Solver<'static>,
        options: Options,
        unknowns: usize,
        lines: Vec<String>,
    ) -> Self {
        let cancel = solver.cancel_token();
        let watch = Watch { monitor: None, user: std::ptr::null_mut() };
        let (operators, returned) = ([None, None], Arc::default());
        let state = State { solver, options, lines, watch, operators, returned };
        Self { state: Mutex::new(ManuallyDrop::new(state)), cancel, unknowns, id: SolverId::new() }
    }

    /// Locks the solver for this thread; rejects a monitor or an operator that uses its own solver, as it
    /// would wait for itself.
    fn lock(&self) -> Result<MutexGuard<'_, ManuallyDrop<State>>> {
        self.id.check("callback")?;
        Ok(self.state.lock().unwrap_or_else(|e| e.into_inner()))
    }

    fn solve(
        &self,
        transposed: bool,
        columns: usize,
        b: *const f64,
        x: *mut f64,
        memory: Option<&Memory>,
        mut each: impl FnMut(usize, Solution),
    ) -> Result<()> {
        let n = self.unknowns;
        let len = n.checked_mul(columns).ok_or_else(|| {
            Error::invalid(format!(
                "the number of entries in {columns} columns of length {n} does not fit into 64 bits"
            ))
        })?;
        let (b, mut x) = (array(b, len, memory, "b")?, array_mut(x, len, memory, "x")?);
        let state = &mut **self.lock()?;
        self.cancel.reset();
        // Nothing of the program is called in between.
        if columns > 1
            && n > 0
            && state.watch.monitor.is_none()
            && state.operators.iter().all(Option::is_none)
        {
            let solutions = state.solver.request(b, x).transposed(transposed).columns()?;
            solutions.iter().enumerate().for_each(|(k, solution)| each(k, solution.into()));
            return Ok(());
        }
        for k in 0..columns {
            let (b, x) = (b.range(k * n..(k + 1) * n), x.range(k * n..(k + 1) * n));
            state.returned.store(0, Relaxed);
            let mut request = state.solver.request(b, x).transposed(transposed);
            if let Some(a) = &state.operators[0] {
                request = request.operator(a);
            }
            if let Some(p) = &state.operators[1] {
                request = request.preconditioner(p);
            }
            let solution = match state.watch.monitor {
                None => request.run(),
                Some(_) => {
                    let mut told = Told { watch: state.watch, callers: Callers::and(self.id) };
                    request.observer(&mut told).run()
                }
            };
            let code = state.returned.load(Relaxed);
            if code != 0 {
                return Err(Failure::Callback(code));
            }
            let solution = solution.map_err(|e| if columns > 1 { e.in_column(k) } else { e })?;
            each(k, Solution::from(solution));
            if solution.outcome() == krylith_core::Outcome::Interrupted {
                // The remaining columns keep their initial guesses; their results report 0 iterations.
                let told = Solution { iterations: 0, ..Solution::from(solution) };
                (k + 1..columns).for_each(|k| each(k, told));
                break;
            }
        }
        Ok(())
    }

    /// Sets new values or coefficients; resets an earlier cancellation.
    fn update(
        &self,
        how: impl FnOnce(&mut krylith_core::Solver<'static>) -> krylith_core::Result<()>,
    ) -> Result<()> {
        let state = &mut **self.lock()?;
        self.cancel.reset();
        Ok(how(&mut state.solver)?)
    }

    /// Applies an operator: y ← how(x).
    fn apply(
        &self,
        x: *const f64,
        y: *mut f64,
        memory: Option<&Memory>,
        how: impl FnOnce(&mut krylith_core::Solver<'static>, Numbers, NumbersMut) -> krylith_core::Result<()>,
    ) -> Result<()> {
        let n = self.unknowns;
        let (x, y) = (array(x, n, memory, "x")?, array_mut(y, n, memory, "y")?);
        Ok(how(&mut self.lock()?.solver, x, y)?)
    }
}

impl Drop for Solver {
    /// Frees nothing in a forked process, where the threads to join do not exist.
    fn drop(&mut self) {
        if !host::is_forked() {
            let state = self.state.get_mut().unwrap_or_else(|e| e.into_inner());
            // SAFETY: the state is not used after this.
            unsafe { ManuallyDrop::drop(state) };
        }
    }
}

/// A monitor as an observer, and the solvers whose callers wait for it.
struct Told {
    watch: Watch,
    callers: Callers,
}

impl Observer for Told {
    fn progress(&mut self, p: Progress) -> ControlFlow<()> {
        let _called = self.callers.enter();
        self.watch.progress(p)
    }
}

/// Returns the solver behind a handle. Threads may share it, so it is never borrowed mutably.
fn handle<'a>(solver: *mut Solver) -> krylith_core::Result<&'a Solver> {
    // SAFETY: the caller promises a handle that is not freed during the call.
    given(unsafe { solver.as_ref() }, "solver")
}

/// Solves for one right-hand side.
fn one(
    solver: *mut Solver,
    transposed: bool,
    b: *const f64,
    x: *mut f64,
    memory: Option<&Memory>,
    solution: Option<&mut MaybeUninit<Solution>>,
) -> Result<()> {
    let mut last = None;
    handle(solver)?.solve(transposed, 1, b, x, memory, |_, told| last = Some(told))?;
    if let (Some(solution), Some(last)) = (solution, last) {
        solution.write(last);
    }
    Ok(())
}

/// Copies a problem to a device and sets up the first attempt. `options` is a list of key=value words, such
/// as "method=gmres precond=ildu rtol=1e-8 device=cpu"; a null pointer or an empty text means the defaults.
/// Collective if the problem is distributed.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_solver_new(
    problem: Option<&Problem>,
    options: *const c_char,
    solver: Option<&mut MaybeUninit<*mut Solver>>,
) -> Status {
    guard(|| hand_over(solver, Solver::new(given(problem, "problem")?, options)?))
}

/// Checks the name and the value of each option of a text, for programs that take options one by one.
/// krylith_solver_new also checks that options suit each other and the problem.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_check_options(options: *const c_char) -> Status {
    guard(|| {
        text(options, "options")?.parse::<Options>()?;
        Ok(())
    })
}

/// Solves A x = b with the initial guess x, and overwrites x with the best solution found. `solution` may be
/// a null pointer. Collective if the problem is distributed.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_solver_solve(
    solver: *mut Solver,
    b: *const f64,
    x: *mut f64,
    memory: Option<&Memory>,
    solution: Option<&mut MaybeUninit<Solution>>,
) -> Status {
    guard(|| one(solver, false, b, x, memory, solution))
}

/// Solves Aᵀ x = b as krylith_solver_solve solves A x = b, from the set-up for A: with the transpose of its
/// preconditioner. The first call lays out Aᵀ. Collective if the problem is distributed.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_solver_solve_transposed(
    solver: *mut Solver,
    b: *const f64,
    x: *mut f64,
    memory: Option<&Memory>,
    solution: Option<&mut MaybeUninit<Solution>>,
) -> Status {
    guard(|| one(solver, true, b, x, memory, solution))
}

/// Solves for `columns` right-hand sides. They are stored one after the other, and so are their solutions.
/// `solutions` is an array of `columns` results, or a null pointer.
///
/// Up to 16 columns are solved together, unless a monitor or an operator is set. Products then read the
/// matrix once for all of them.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_solver_solve_columns(
    solver: *mut Solver,
    columns: i32,
    b: *const f64,
    x: *mut f64,
    memory: Option<&Memory>,
    solutions: *mut Solution,
) -> Status {
    guard(|| {
        let columns = length(columns.into(), "columns")?;
        handle(solver)?.solve(false, columns, b, x, memory, |k, told| {
            if !solutions.is_null() {
                // SAFETY: the caller promises an array of `columns` results.
                unsafe { solutions.add(k).write(told) }
            }
        })
    })
}

/// Sets new values of a term with the same pattern, in the order in which the matrix was given. The term is
/// 0, except for L of A⊗M + τB⊗L, which is 1. The preconditioner is refreshed, unless
/// krylith_solver_set_refresh says otherwise.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_solver_update_values(
    solver: *mut Solver,
    term: i32,
    count: i64,
    values: *const f64,
    memory: Option<&Memory>,
) -> Status {
    guard(|| {
        let values = array(values, length(count, "count")?, memory, "values")?;
        let term = length(term.into(), "term")?;
        handle(solver)?.update(|solver| solver.update_term(term, values))
    })
}

/// Gives a matrix that preconditioners refer to by name new values, in the order in which it was given. They
/// take effect with the next krylith_solver_update_values or krylith_solver_set_tau.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_solver_set_matrix(
    solver: *mut Solver,
    name: *const c_char,
    count: i64,
    values: *const f64,
) -> Status {
    guard(|| {
        let name = needed(name, "name")?;
        let values = slice(values, length(count, "count")?, "values")?;
        handle(solver)?.update(|solver| solver.set_matrix_values(name, values))
    })
}

/// Sets a new τ of A⊗M + τB⊗L. Collective for a distributed sum: all ranks set the same.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_solver_set_tau(solver: *mut Solver, tau: f64) -> Status {
    guard(|| handle(solver)?.update(|solver| solver.set_tau(tau)))
}

/// Sets new A, B, τ, M and L of A⊗M + τB⊗L. The number of stages and the patterns of M and L stay the same.
/// If one part is rejected, nothing changes. A and B are dense, stages × stages, row by row on the host; `m`
/// and `l` hold values as for krylith_solver_update_values. Collective for a distributed sum: all ranks give
/// the same A, B and τ, and an error on one rank is an error on all.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_solver_update_kronecker(
    solver: *mut Solver,
    stages: i32,
    a: *const f64,
    b: *const f64,
    tau: f64,
    m_count: i64,
    m: *const f64,
    l_count: i64,
    l: *const f64,
    memory: Option<&Memory>,
) -> Status {
    guard(|| {
        let read = || {
            let s = length(stages.into(), "stages")?;
            let m = array(m, length(m_count, "m_count")?, memory, "m")?;
            let l = array(l, length(l_count, "l_count")?, memory, "l")?;
            Ok((dense(s, a, "a")?, dense(s, b, "b")?, m, l))
        };
        handle(solver)?.update(|solver| match read() {
            Ok((a, b, m, l)) => solver.update_kronecker(&a, &b, tau, m, l),
            Err(e) => solver.agreed(Err(e)),
        })
    })
}

/// Sets what happens to the preconditioner when values change: "keep", "refresh" (the default) or "rebuild".
#[unsafe(no_mangle)]
pub extern "C" fn krylith_solver_set_refresh(solver: *mut Solver, refresh: *const c_char) -> Status {
    guard(|| {
        let refresh: Refresh = text(refresh, "refresh")?.parse()?;
        handle(solver)?.lock()?.solver.set_refresh(refresh);
        Ok(())
    })
}

/// Sets the tolerances and the iteration limit of later solves. A negative number keeps the value of the
/// options.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_solver_set_tolerance(
    solver: *mut Solver,
    rtol: f64,
    atol: f64,
    max_iters: i64,
) -> Status {
    guard(|| {
        let state = &mut **handle(solver)?.lock()?;
        let mut options = state.options.clone();
        let set = |to: &mut Option<f64>, value: f64| {
            if value >= 0.0 || value.is_nan() {
                *to = Some(value);
            }
        };
        set(&mut options.rtol, rtol);
        set(&mut options.atol, atol);
        options.max_iters = usize::try_from(max_iters).ok().or(options.max_iters);
        let stop = options.settled()?.stop_of(state.solver.problem().unknowns());
        state.solver.set_stop(stop);
        Ok(())
    })
}

/// Sets the callback that later solves call with their progress; a null pointer removes it. It is called on a
/// thread of the solver while the caller waits.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_solver_set_monitor(
    solver: *mut Solver,
    monitor: Monitor,
    user: *mut c_void,
) -> Status {
    guard(|| {
        handle(solver)?.lock()?.watch = Watch { monitor, user };
        Ok(())
    })
}

/// Creates a solver of n unknowns without a matrix, whose A is an operator that krylith_solver_set_operators
/// sets. It solves on the CPU unless the options name a GPU. The options name no preconditioner, and the
/// default method is GMRES.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_solver_without_matrix(
    n: i64,
    options: *const c_char,
    solver: Option<&mut MaybeUninit<*mut Solver>>,
) -> Status {
    guard(|| hand_over(solver, Solver::without_matrix(length(n, "n")?, options)?))
}

/// Sets operators that later solves use: `a` instead of the matrix, which then only preconditions, and `p` as
/// P⁻¹ instead of the preconditioner of the options. A null pointer removes one. On a GPU they get device
/// memory and a stream, and nothing is copied to the host. Such a solve makes one attempt, and the method
/// `auto` is GMRES. If P changes between applications, use the method fgmres.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_solver_set_operators(
    solver: *mut Solver,
    a: Option<&Operator>,
    p: Option<&Operator>,
) -> Status {
    guard(|| {
        let (handle, callers) = (handle(solver)?, Callers::and(handle(solver)?.id));
        let state = &mut **handle.lock()?;
        let on_gpu = state.solver.solution().device.kind == "cuda";
        let of =
            |given: Option<&Operator>| given.map(|given| operator(given, on_gpu, &state.returned, &callers));
        state.operators = [of(a).transpose()?, of(p).transpose()?];
        Ok(())
    })
}

/// Computes y ← A x on the device.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_solver_multiply(
    solver: *mut Solver,
    x: *const f64,
    y: *mut f64,
    memory: Option<&Memory>,
) -> Status {
    guard(|| handle(solver)?.apply(x, y, memory, |solver, x, y| solver.multiply(x, y)))
}

/// Computes y ← Aᵀ x on the device. The first call lays out Aᵀ.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_solver_multiply_transposed(
    solver: *mut Solver,
    x: *const f64,
    y: *mut f64,
    memory: Option<&Memory>,
) -> Status {
    guard(|| handle(solver)?.apply(x, y, memory, |solver, x, y| solver.multiply_transposed(x, y)))
}

/// Computes y ← P⁻¹ x with the preconditioner that is set up; without one, copies x to y.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_solver_precondition(
    solver: *mut Solver,
    x: *const f64,
    y: *mut f64,
    memory: Option<&Memory>,
) -> Status {
    guard(|| handle(solver)?.apply(x, y, memory, |solver, x, y| solver.precondition(x, y)))
}

/// Computes y ← P⁻ᵀ x with the preconditioner that is set up; without one, copies x to y. Refuses a
/// preconditioner that is not a fixed linear map.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_solver_precondition_transposed(
    solver: *mut Solver,
    x: *const f64,
    y: *mut f64,
    memory: Option<&Memory>,
) -> Status {
    guard(|| handle(solver)?.apply(x, y, memory, |solver, x, y| solver.precondition_transposed(x, y)))
}

/// Ends the solve that another thread runs; its x is the best solution found so far. May be called in a
/// signal handler.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_solver_cancel(solver: *mut Solver) {
    if let Ok(solver) = handle(solver) {
        solver.cancel.cancel();
    }
}

/// Writes the relative residuals of the last solve to `residuals`: first that of the initial guess, then one
/// for each iteration. `room` is the length of `residuals`, and `*count` becomes the number of all residuals.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_solver_residuals(
    solver: Option<&Solver>,
    room: i64,
    residuals: *mut f64,
    count: Option<&mut MaybeUninit<i64>>,
) -> Status {
    guard(|| {
        let state = given(solver, "solver")?.lock()?;
        let all = &state.solver.solution().history.residuals;
        let room = length(room, "room")?.min(all.len());
        slice_mut(residuals, room, "residuals")?.copy_from_slice(&all[..room]);
        if let Some(count) = count {
            count.write(all.len() as i64);
        }
        Ok(())
    })
}

/// Returns a table of the last solve, as the krylith command prints it: system, device, method, outcome,
/// residual, time. The text is valid until the calling thread asks for another text.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_solver_summary(solver: Option<&Solver>) -> *const c_char {
    told(solver, |state| words::text(state.lines.clone(), state.solver.solution(), &state.options))
}

/// Returns why the last solve did not converge and what to try; the text is empty if it converged. The text
/// is valid until the calling thread asks for another text.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_solver_advice(solver: Option<&Solver>) -> *const c_char {
    told(solver, |state| match state.solver.solution() {
        solution if solution.converged() => String::new(),
        solution => words::verdict("krylith", solution, &state.options, Language::Text),
    })
}

fn told(solver: Option<&Solver>, words: impl FnOnce(&State) -> String) -> *const c_char {
    let mut text = String::new();
    guard(|| {
        text = words(&**given(solver, "solver")?.lock()?);
        Ok(())
    });
    say(text)
}

/// Frees a solver and its memory on the device. A null pointer is allowed.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_solver_free(solver: *mut Solver) {
    free(solver);
}

/// Solves A x = b in one call: krylith_solver_new, krylith_solver_solve and krylith_solver_free.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_solve(
    problem: Option<&Problem>,
    options: *const c_char,
    b: *const f64,
    x: *mut f64,
    memory: Option<&Memory>,
    solution: Option<&mut MaybeUninit<Solution>>,
) -> Status {
    guard(|| {
        let mut last = None;
        Solver::new(given(problem, "problem")?, options)?
            .solve(false, 1, b, x, memory, |_, told| last = Some(told))?;
        if let (Some(solution), Some(last)) = (solution, last) {
            solution.write(last);
        }
        Ok(())
    })
}

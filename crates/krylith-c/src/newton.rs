//! Nonlinear systems, whose F and Jacobian are callbacks of the program.

use crate::arrays::slice_mut;
use crate::functions::{Function, Monitor, Product, checked, product};
use crate::problem::{Problem, free, hand_over};
use crate::status::{Failure, Status, given, guard, say, text};
use krylith_core::memory::Numbers;
use krylith_core::newton::{
    Newton as Method, NewtonObserver, NewtonOptions, NewtonOutcome as Outcome, NewtonReport, NonlinearSystem,
};
use krylith_core::operator::FunctionOperator;
use krylith_core::solver::{Cancel, host};
use krylith_core::{Error, Options, Problem as System, matrix::Bsr};
use krylith_report::callers::{Callers, SolverId};
use std::ffi::{c_char, c_void};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ops::ControlFlow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

/// A callback that computes the values of the Jacobian at x. It writes all of them, in the order in which the
/// matrix of the problem was given; `values` is not zero before. It returns 0; any other number ends the
/// solve with KRYLITH_CALLBACK.
pub type Jacobian =
    Option<extern "C" fn(user: *mut c_void, n: i64, x: *const f64, entries: i64, values: *mut f64) -> i32>;

/// How a Newton solve ended.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewtonOutcome {
    /// The norm of F(x) meets the tolerance.
    KrylithNewtonConverged = 0,
    /// The solve reached the limit of steps first.
    KrylithNewtonMaxSteps = 1,
    /// No step along the direction decreased the norm of F, although the linear solve met its tolerance. The
    /// Jacobian may not match F, or the tolerance is below the rounding errors of F.
    KrylithNewtonLineSearch = 2,
    /// A linear solve missed its tolerance, and no step along its direction decreased the norm of F.
    KrylithNewtonLinearSolve = 3,
    /// F at the initial guess is NaN or infinite.
    KrylithNewtonNotFinite = 4,
    /// The solve was cancelled, or its monitor ended it; x is that of the last step.
    KrylithNewtonInterrupted = 5,
}

impl From<Outcome> for NewtonOutcome {
    fn from(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Converged => Self::KrylithNewtonConverged,
            Outcome::MaxSteps => Self::KrylithNewtonMaxSteps,
            Outcome::LineSearch => Self::KrylithNewtonLineSearch,
            Outcome::LinearSolve => Self::KrylithNewtonLinearSolve,
            Outcome::NotFinite => Self::KrylithNewtonNotFinite,
            Outcome::Interrupted => Self::KrylithNewtonInterrupted,
        }
    }
}

/// The result of a Newton solve.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct NewtonResult {
    /// How the solve ended.
    pub outcome: NewtonOutcome,
    /// Number of steps.
    pub steps: i64,
    /// Iterations of all linear solves.
    pub iterations: i64,
    /// The norm of F at the initial guess.
    pub first_norm: f64,
    /// The norm of F at the end.
    pub norm: f64,
    /// The largest norm of F that counts as converged.
    pub target: f64,
    /// Seconds in F, including the line search.
    pub residual_seconds: f64,
    /// Seconds in the Jacobian.
    pub jacobian_seconds: f64,
    /// Seconds of set-ups of the linear solver, and of its updates.
    pub setup_seconds: f64,
    /// Seconds of linear solves.
    pub solve_seconds: f64,
}

impl From<&NewtonReport> for NewtonResult {
    fn from(report: &NewtonReport) -> Self {
        let seconds = report.seconds;
        Self {
            outcome: report.outcome.into(),
            steps: report.steps.len() as i64,
            iterations: report.iterations() as i64,
            first_norm: report.first,
            norm: report.last,
            target: report.target,
            residual_seconds: seconds.residual,
            jacobian_seconds: seconds.jacobian,
            setup_seconds: seconds.setup,
            solve_seconds: seconds.solve,
        }
    }
}

/// Newton's method for one system, with its linear solver, ready for many solves such as time steps. Calls of
/// several threads on the same handle wait for each other.
pub struct Newton {
    state: Mutex<ManuallyDrop<State>>,
    cancel: Cancel,
    id: SolverId,
}

struct State {
    method: Method,
    system: System<'static>,
    /// The product with the Jacobian, and its user pointer.
    product: (Product, *mut c_void),
}

impl Drop for Newton {
    /// Frees nothing in a forked process, where the threads to join do not exist.
    fn drop(&mut self) {
        if !host::is_forked() {
            let state = self.state.get_mut().unwrap_or_else(|e| e.into_inner());
            // SAFETY: the state is not used after this.
            unsafe { ManuallyDrop::drop(state) };
        }
    }
}

/// The callbacks of one solve.
struct Callbacks<'a> {
    system: &'a System<'static>,
    residual: extern "C" fn(*mut c_void, i64, *const f64, *mut f64) -> i32,
    jacobian: extern "C" fn(*mut c_void, i64, *const f64, i64, *mut f64) -> i32,
    user: *mut c_void,
    product: (Product, *mut c_void),
    /// The last nonzero number that a callback returned.
    returned: &'a AtomicI32,
}

impl NonlinearSystem for Callbacks<'_> {
    fn pattern(&self) -> &Bsr {
        &self.system.terms().terms()[0].1
    }
    fn problem(&self) -> krylith_core::Result<System<'_>> {
        Ok(System::from(self.system))
    }
    fn residual(&mut self, x: &[f64], f: &mut [f64]) -> krylith_core::Result<()> {
        checked(self.returned, (self.residual)(self.user, x.len() as i64, x.as_ptr(), f.as_mut_ptr()))
    }
    fn jacobian(&mut self, x: &[f64], values: &mut [f64]) -> krylith_core::Result<()> {
        let (n, entries) = (x.len() as i64, values.len() as i64);
        checked(self.returned, (self.jacobian)(self.user, n, x.as_ptr(), entries, values.as_mut_ptr()))
    }
    fn jacobian_operator(&mut self, x: Numbers<'_>) -> krylith_core::Result<Option<FunctionOperator<'_>>> {
        let (Some(call), user) = self.product else { return Ok(None) };
        Ok(Some(product(call, user, x.to_vec()?, self.returned)))
    }
}

struct Watch {
    monitor: Monitor,
    user: *mut c_void,
}

// SAFETY: the monitor runs on the calling thread, between steps.
unsafe impl Send for Watch {}

impl NewtonObserver for Watch {
    fn residual(&mut self, steps: usize, norm: f64, _: f64) -> ControlFlow<()> {
        match self.monitor {
            Some(monitor) if monitor(self.user, steps as i64, norm) != 0 => ControlFlow::Break(()),
            _ => ControlFlow::Continue(()),
        }
    }
}

/// Returns Newton's method behind a handle. Threads may share it, so it is never borrowed mutably.
fn handle<'a>(newton: *mut Newton) -> krylith_core::Result<&'a Newton> {
    // SAFETY: the caller promises a handle that is not freed during the call.
    given(unsafe { newton.as_ref() }, "newton")
}

/// Creates Newton's method for F(x) = 0. `problem` has the pattern of the Jacobian, and what its solves can
/// use, such as fields, coordinates or the ranks of a distributed problem. Its values are ignored, and it may
/// be freed afterwards.
///
/// `options` is a list of key=value words: rtol and atol (the norm of F must fall to rtol times its first
/// value, or to atol), max_steps, forcing (ew, or the relative tolerance of the linear solves), and refresh
/// (keep, refresh or rebuild the preconditioner). `linear` has the options of the linear solves, as for
/// krylith_solver_new. A null pointer or an empty text means the defaults.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_newton_new(
    problem: Option<&Problem>,
    options: *const c_char,
    linear: *const c_char,
    newton: Option<&mut MaybeUninit<*mut Newton>>,
) -> Status {
    guard(|| {
        let system = given(problem, "problem")?.system.clone();
        if system.terms().terms().len() != 1 {
            return Err(Error::invalid("a sum of terms cannot be the Jacobian; give one matrix").into());
        }
        let options: NewtonOptions = text(options, "options")?.parse()?;
        let linear: Options = text(linear, "linear")?.parse()?;
        let method = Method::new(options, &linear)?;
        let (cancel, state) = (
            method.cancel_token(),
            ManuallyDrop::new(State { method, system, product: (None, std::ptr::null_mut()) }),
        );
        hand_over(newton, Newton { state: Mutex::new(state), cancel, id: SolverId::new() })
    })
}

/// Solves F(x) = 0 from the initial guess x, and overwrites x with the best x found. `residual` writes F(x),
/// and `jacobian` the values of the Jacobian; both run on the calling thread. `monitor` may be a null
/// pointer; it receives the number of finished steps and the norm of F. `user` is passed to all three.
/// `result` may be a null pointer. The linear solver is kept for later solves. If the problem is distributed,
/// the call is collective, and x and F have the rows of this rank.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_newton_solve(
    newton: *mut Newton,
    residual: Function,
    jacobian: Jacobian,
    user: *mut c_void,
    x: *mut f64,
    monitor: Monitor,
    result: Option<&mut MaybeUninit<NewtonResult>>,
) -> Status {
    let returned = AtomicI32::new(0);
    guard(|| {
        let newton = handle(newton)?;
        newton.id.check("callback")?;
        let state = &mut **newton.state.lock().unwrap_or_else(|e| e.into_inner());
        newton.cancel.reset();
        let (residual, jacobian) = (given(residual, "residual")?, given(jacobian, "jacobian")?);
        let x = slice_mut(x, state.system.own_len(), "x")?;
        let (system, product, returned) = (&state.system, state.product, &returned);
        let mut callbacks = Callbacks { system, residual, jacobian, user, product, returned };
        let callers = Callers::and(newton.id);
        let _called = callers.enter();
        let done = state.method.solve_observed(&mut callbacks, x, &mut Watch { monitor, user });
        let code = returned.load(Relaxed);
        if code != 0 {
            return Err(Failure::Callback(code));
        }
        let report = NewtonResult::from(done?);
        if let Some(result) = result {
            result.write(report);
        }
        Ok(())
    })
}

/// Sets the product with the Jacobian for later solves, which are then Jacobian-free: the values of
/// `jacobian` only precondition, and may be an approximation. A null pointer removes it. The linear solves
/// run on the CPU.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_newton_set_product(
    newton: *mut Newton,
    product: Product,
    user: *mut c_void,
) -> Status {
    guard(|| {
        let newton = handle(newton)?;
        newton.id.check("callback")?;
        newton.state.lock().unwrap_or_else(|e| e.into_inner()).product = (product, user);
        Ok(())
    })
}

/// Ends the solve that another thread runs; its outcome is KRYLITH_NEWTON_INTERRUPTED.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_newton_cancel(newton: *mut Newton) {
    if let Ok(newton) = handle(newton) {
        newton.cancel.cancel();
    }
}

/// Frees Newton's method and its linear solver; a null pointer is ignored.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_newton_free(newton: *mut Newton) {
    free(newton);
}

/// Returns the name of an outcome of Newton's method, such as "converged" or "line-search". The text is valid
/// until the calling thread asks for another text.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_newton_outcome_name(outcome: i32) -> *const c_char {
    let found = Outcome::ALL.into_iter().find(|&known| NewtonOutcome::from(known) as i32 == outcome);
    say(found.map_or("unknown", |known| known.name()).into())
}

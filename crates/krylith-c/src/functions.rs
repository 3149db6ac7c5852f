//! Callbacks of the program: monitors, operators and preconditioners.

use crate::arrays::{Memory, length, slice, slice_mut};
use crate::solution::Solution;
use crate::status::{Failure, Status, given, guard, text};
use krylith_core::operator::FunctionOperator;
use krylith_core::solver::{Function as HostFunction, solve_functions};
use krylith_core::{Error, Observer, Options, Progress};
use krylith_report::callers::Callers;
use std::cell::Cell;
use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};

/// A callback that computes y ← A x or y ← P⁻¹ x and writes the n numbers of y. It returns 0; any other
/// number ends the solve with KRYLITH_CALLBACK.
pub type Function = Option<extern "C" fn(user: *mut c_void, n: i64, x: *const f64, y: *mut f64) -> i32>;

/// A callback that computes y ← A x, or y ← Aᵀ x if `transposed` is not 0, for an operator of a solver. Both
/// vectors have n numbers.
///
/// If `memory` is a null pointer, they are on the host. Otherwise they are in the memory of its GPU, and the
/// callback puts its work in its stream, without a wait. It must not change x. It returns 0; any other number
/// ends the solve with KRYLITH_CALLBACK. It runs on a thread of the solver while the caller waits.
pub type Apply = Option<
    extern "C" fn(
        user: *mut c_void,
        n: i64,
        x: *const f64,
        y: *mut f64,
        transposed: i32,
        memory: Option<&Memory>,
    ) -> i32,
>;

/// A linear map that is a callback, for krylith_solver_set_operators.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct Operator {
    /// The callback.
    pub apply: Apply,
    /// The first argument of the callback.
    pub user: *mut c_void,
    /// Not 0 if the callback computes y ← Aᵀ x too.
    pub has_transpose: i32,
    /// Not 0 if all work of the callback is in the stream, and is the same for every x. It is then recorded
    /// in a CUDA graph with the rest of the iteration, and not called in each iteration. It must not wait
    /// for the GPU, and what it uses must live until the operator is replaced.
    pub capturable: i32,
}

/// A user pointer that threads of a solver use.
#[derive(Clone, Copy)]
struct User(*mut c_void);

// SAFETY: the caller promises that a thread of the solver may use the pointer while the caller waits.
unsafe impl Send for User {}
// SAFETY: as above; one thread uses it at a time.
unsafe impl Sync for User {}

impl User {
    fn get(self) -> *mut c_void {
        self.0
    }
}

/// Keeps the number that a callback returned, and makes an error of one that is not 0.
pub fn checked(returned: &AtomicI32, code: i32) -> krylith_core::Result<()> {
    match code {
        0 => Ok(()),
        code => {
            returned.store(code, Relaxed);
            Err(Error::invalid("a callback of the program failed"))
        }
    }
}

/// Returns an operator of the library for one of the caller, on the host or on a GPU. What the callback
/// returns comes to `returned`, and it cannot use the solvers of `callers`.
pub fn operator(
    of: &Operator,
    on_gpu: bool,
    returned: &Arc<AtomicI32>,
    callers: &Callers,
) -> krylith_core::Result<FunctionOperator<'static>> {
    let apply = given(of.apply, "apply")?;
    let side = |transposed: i32| {
        let (user, returned, callers) = (User(of.user), returned.clone(), callers.clone());
        match on_gpu {
            true => FunctionOperator::on_device(move |v| {
                let _called = callers.enter();
                let memory = Memory { gpu: v.gpu as i32, stream: v.stream as *mut c_void };
                let (x, y) = (v.x as *const f64, v.y as *mut f64);
                checked(&returned, apply(user.get(), v.len as i64, x, y, transposed, Some(&memory)))
            })
            .capturable(of.capturable != 0),
            false => FunctionOperator::on_host(move |x, y| {
                let _called = callers.enter();
                let (n, x, y) = (x.len() as i64, x.as_ptr(), y.as_mut_ptr());
                checked(&returned, apply(user.get(), n, x, y, transposed, None))
            }),
        }
    };
    Ok(match of.has_transpose != 0 {
        true => side(0).with_transpose(side(1)),
        false => side(0),
    })
}

/// A callback that computes the product y ← J(x) v with the Jacobian at x, for a Jacobian-free Newton method.
/// It returns 0; any other number ends the solve with KRYLITH_CALLBACK. It runs on a thread of the solver
/// while the caller waits.
pub type Product =
    Option<extern "C" fn(user: *mut c_void, n: i64, x: *const f64, v: *const f64, y: *mut f64) -> i32>;

/// Returns the product with the Jacobian at x as an operator.
pub fn product<'a>(
    call: extern "C" fn(*mut c_void, i64, *const f64, *const f64, *mut f64) -> i32,
    user: *mut c_void,
    x: Vec<f64>,
    returned: &'a AtomicI32,
) -> FunctionOperator<'a> {
    let user = User(user);
    FunctionOperator::on_host(move |v, y| {
        checked(returned, call(user.get(), x.len() as i64, x.as_ptr(), v.as_ptr(), y.as_mut_ptr()))
    })
}

/// A callback that receives the iteration and the relative residual. It returns 0 to continue; any other
/// number ends the solve with the outcome KRYLITH_INTERRUPTED.
pub type Monitor = Option<extern "C" fn(user: *mut c_void, iteration: i64, relative_residual: f64) -> i32>;

/// A monitor and its user pointer.
#[derive(Clone, Copy)]
pub struct Watch {
    pub monitor: Monitor,
    pub user: *mut c_void,
}

// SAFETY: the caller promises that a thread of the solver may use the user pointer while the caller waits.
unsafe impl Send for Watch {}

impl Observer for Watch {
    fn progress(&mut self, p: Progress) -> ControlFlow<()> {
        match self.monitor {
            Some(monitor) if monitor(self.user, p.iteration as i64, p.relative_residual) != 0 => {
                ControlFlow::Break(())
            }
            _ => ControlFlow::Continue(()),
        }
    }
}

/// Solves A x = b with the initial guess x, where A is a callback instead of a stored matrix. `p` applies
/// P⁻¹; a null pointer means no preconditioner. All vectors have n numbers on the host. The callbacks run on
/// the calling thread. If P changes between applications, use the method fgmres. `monitor` may be a null
/// pointer.
///
/// The options `method` with its own options, `rtol`, `atol`, `max_iters` and `threads` are used. The default
/// method is GMRES.
#[unsafe(no_mangle)]
pub extern "C" fn krylith_solve_functions(
    n: i64,
    a: Function,
    a_user: *mut c_void,
    p: Function,
    p_user: *mut c_void,
    b: *const f64,
    x: *mut f64,
    options: *const c_char,
    monitor: Monitor,
    monitor_user: *mut c_void,
    solution: Option<&mut MaybeUninit<Solution>>,
) -> Status {
    let returned = Cell::new(0);
    guard(|| {
        let len = length(n, "n")?;
        let (b, x) = (slice(b, len, "b")?, slice_mut(x, len, "x")?);
        let options: Options = text(options, "options")?.parse()?;
        let checked = |code: i32| match code {
            0 => Ok(()),
            code => {
                returned.set(code);
                Err(Error::invalid("a callback of the program failed"))
            }
        };
        let a = given(a, "a")?;
        let mut product =
            |x: &[f64], y: &mut [f64]| checked(a(a_user, x.len() as i64, x.as_ptr(), y.as_mut_ptr()));
        let mut inverse = p.map(|p| {
            move |x: &[f64], y: &mut [f64]| checked(p(p_user, x.len() as i64, x.as_ptr(), y.as_mut_ptr()))
        });
        let inverse = inverse.as_mut().map(|inverse| inverse as &mut HostFunction<'_>);
        let mut watch = Watch { monitor, user: monitor_user };
        let history = solve_functions(&mut product, inverse, b, x, &options, &mut watch);
        if returned.get() != 0 {
            return Err(Failure::Callback(returned.get()));
        }
        let history = history?;
        if let Some(solution) = solution {
            let stop = options.stop_of(len);
            let norm = history.rhs_norm;
            let target = if norm > 0.0 { stop.rtol.max(stop.atol / norm) } else { stop.atol };
            solution.write(Solution::of(&history, target));
        }
        Ok(())
    })
}

//! Callbacks of the program: monitors, operators and preconditioners.

use crate::arrays::{length, slice, slice_mut};
use crate::solution::Solution;
use crate::status::{Failure, Status, given, guard, text};
use krylith_core::solver::{Function as HostFunction, solve_functions};
use krylith_core::{Error, Observer, Options, Progress};
use std::cell::Cell;
use std::ffi::{c_char, c_void};
use std::mem::MaybeUninit;
use std::ops::ControlFlow;

/// A callback that computes y ← A x or y ← P⁻¹ x and writes the n numbers of y. It returns 0; any other
/// number ends the solve with KRYLITH_CALLBACK.
pub type Function = Option<extern "C" fn(user: *mut c_void, n: i64, x: *const f64, y: *mut f64) -> i32>;

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

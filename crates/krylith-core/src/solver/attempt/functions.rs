//! Solves in which A or P⁻¹ is a function of the caller, beside the matrix of the solver.
//!
//! Such a solve makes one attempt: what analysis found of the matrix says little about the function. On a
//! GPU a function writes to a vector of its own, which a sweep copies. The sweep obeys the guard that ends
//! batches early, and the function does not.

use super::Rank;
use crate::memory::{Numbers, NumbersMut};
use crate::method::{Method, MethodSpec, keep};
use crate::operator::{FunctionOperator, LinearOperator, Transposed};
use crate::precond::PrecondInfo;
use crate::problem::LocalProblem;
use crate::profile;
use crate::solver::SolverSpace;
use crate::solver::functions::{Given, method_of_functions};
use crate::solver::refine::{self, Parts};
use crate::solver::solution::{Event, EventKind, copy_history};
use crate::solver::watch::{Run, Watch};
use crate::space::{Observer, Outcome};
use crate::{Error, Result};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

/// What solves with functions keep.
pub(super) struct Kept<S: SolverSpace> {
    /// The method, unless it is that of the attempt.
    method: Option<(MethodSpec, Box<dyn Method<S>>)>,
    /// Where functions on a GPU write their products: that of A, and that of P⁻¹.
    products: [Option<Product<S>>; 2],
}

impl<S: SolverSpace> Default for Kept<S> {
    fn default() -> Self {
        Self { method: None, products: [None, None] }
    }
}

/// A vector that a function writes, and scalars for the sweep that copies it.
struct Product<S: SolverSpace> {
    vector: RefCell<S::Vector>,
    scalars: RefCell<S::Scalars>,
}

impl<S: SolverSpace> Product<S> {
    /// Allocates the vector on a GPU. On the host, a function writes its result in place.
    fn prepare(kept: &mut Option<Self>, space: &S) -> Result<()> {
        if kept.is_none() && space.is_gpu() {
            let (vector, scalars) = (RefCell::new(space.vector()?), RefCell::new(space.scalars(1)?));
            *kept = Some(Self { vector, scalars });
        }
        Ok(())
    }
}

/// A function as an operator on the vectors of a device.
struct Called<'f, S: SolverSpace> {
    function: &'f FunctionOperator<'f>,
    product: Option<&'f Product<S>>,
    len: usize,
}

impl<'f, S: SolverSpace> Called<'f, S> {
    fn new(function: &'f FunctionOperator<'f>, product: &'f Option<Product<S>>, len: usize) -> Self {
        Self { function, product: product.as_ref(), len }
    }

    fn call(
        &self,
        function: &FunctionOperator<'_>,
        space: &S,
        x: &S::Vector,
        y: &mut S::Vector,
    ) -> Result<()> {
        let Some(product) = self.product else { return space.call(function, x, y) };
        let (mut vector, mut scalars) = (product.vector.borrow_mut(), product.scalars.borrow_mut());
        space.call(function, x, &mut vector)?;
        space.sweep(keep, &mut scalars, [], [&*vector], [y], [])
    }
}

impl<S: SolverSpace> LinearOperator<S> for Called<'_, S> {
    fn apply(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        self.call(self.function, space, x, y)
    }
    fn has_transpose(&self) -> bool {
        self.function.transpose().is_some()
    }
    fn apply_transpose(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        match self.function.transpose() {
            Some(turned) => self.call(turned, space, x, y),
            None => Err(without_transpose()),
        }
    }
    fn key(&self) -> u64 {
        self.function.key()
    }
    fn bytes(&self) -> u64 {
        16 * self.len as u64 // it reads x and writes y, at least
    }
    fn recordable(&self) -> bool {
        self.function.is_recordable()
    }
}

/// The error of a function without a transpose.
fn without_transpose() -> Error {
    Error::Unsupported("a function has no transpose; give it one (with_transpose)".into())
}

/// The operator, or its transpose.
fn side<'a, S: SolverSpace, A: LinearOperator<S> + 'a>(
    a: A,
    turned: bool,
) -> Result<Box<dyn LinearOperator<S> + 'a>> {
    Ok(if turned { Box::new(Transposed::of(a)?) } else { Box::new(a) })
}

impl<S: SolverSpace> Rank<S> {
    /// Solves the system of the given functions from `x`, with the preconditioner that is set up if no
    /// function replaces it. With `turned`, the system is Aᵀ x = b.
    pub(super) fn solved_by_functions(
        &mut self,
        local: &LocalProblem,
        (run, turned): (&Run, bool),
        rhs: Numbers,
        mut x: NumbersMut,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        if self.current.is_none() {
            self.climb(local, self.next_attempt, None)?;
        }
        if self.current.is_none() {
            return Err(self.nothing_to_try());
        }
        if turned && run.given.a.is_none() {
            return Err(Error::Unsupported(
                "a solve with Aᵀ in which only the preconditioner is a function is not supported; give A as a function \
                 too, or the preconditioner by name"
                    .into(),
            ));
        }
        if turned && run.given.p.is_none() {
            self.prepare_turned(local)?;
        }
        self.solution.clear_events();
        let done = self.run_functions(run, turned, rhs, x.reborrow(), observer);
        if done.is_err() {
            // Batches may be left of the solve that failed: work under way, and a guard that is up.
            self.space.guard(None);
            self.functions.method = None;
            self.current = None;
        }
        done
    }

    /// Makes the attempt.
    fn run_functions(
        &mut self,
        run: &Run,
        turned: bool,
        rhs: Numbers,
        x: NumbersMut,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        let Self { current, functions, space, on, options, solution, history, .. } = self;
        let Some(current) = current else { return Err(Error::Internal("a solve without an attempt".into())) };
        let (Given { a, p }, len) = (run.given, space.len());
        let attempt = &self.fallbacks[self.next_attempt];
        let spec = method_of_functions(options, len)?;
        let Kept { method: own, products: [of_a, of_p] } = functions;
        if a.is_some() {
            Product::prepare(of_a, space)?;
        }
        if p.is_some() {
            Product::prepare(of_p, space)?;
        }
        let a: Box<dyn LinearOperator<S>> = match a {
            Some(a) => side(Called::new(a, of_a, len), turned)?,
            None => Box::new(self.a.clone()),
        };
        let p: Option<Box<dyn LinearOperator<S>>> = match (p, &current.p) {
            (Some(p), _) => Some(side(Called::new(p, of_p, len), turned)?),
            (None, Some(p)) => Some(side(&**p, turned)?),
            (None, None) => None,
        };
        let method = match own {
            _ if attempt.method == spec && !current.is_whole => &mut current.method,
            Some((known, method)) if *known == spec => method,
            own => &mut own.insert((spec, spec.build(space)?)).1,
        };
        let begin = Instant::now();
        self.restarts.clear();
        let mut watch = Watch::new(run, observer, 0, &mut self.restarts, None);
        let parts = Parts { space, a: &*a, p: p.as_deref(), stop: run.stop };
        copy_history(history, refine::once(&parts, &mut **method, rhs, x.as_array(), on, &mut watch)?);
        let halted = watch.halted;
        let mut x = x;
        space.read_into(&on.x, x.reborrow())?;
        copy_history(&mut solution.history, history);
        solution.solve_seconds = begin.elapsed().as_secs_f64();
        let remark = method.remark().map(|text| Event::new(EventKind::Choice, None, text));
        solution.events.extend(remark);
        solution.add_restarts(&mut self.restarts);
        if let Some(why) = halted.filter(|_| history.outcome == Outcome::Interrupted) {
            solution.events.push(Event::new(EventKind::Interrupted, Some(history.iterations), why));
        }
        let fixed = (a.bytes() + p.as_ref().map_or(0, |p| p.bytes())) as f64;
        solution.bytes_per_iteration =
            spec.iteration_bytes(fixed, p.is_some(), len as f64, history.iterations);
        (solution.method, solution.symmetric, solution.row_scaled_residual) = (spec, None, None);
        solution.precond = match run.given.p {
            Some(_) => Arc::new(function_info()),
            None => current.info.clone(),
        };
        let by_matrix = run.given.p.is_none();
        solution.equilibrated = attempt.equilibrate && by_matrix;
        solution.matched = attempt.matching && by_matrix;
        solution.target = run.stop.relative_target(history);
        solution.setup_parts = profile::take();
        solution.setup_seconds = solution.setup_parts.total();
        solution.phases = space.take_phases();
        solution.device_memory = space.memory_held().max(solution.device_memory);
        Ok(())
    }
}

/// Describes a preconditioner that is a function.
fn function_info() -> PrecondInfo {
    let (name, text) = ("function".into(), "a function of the caller".into());
    PrecondInfo { name, text, ..PrecondInfo::default() }
}

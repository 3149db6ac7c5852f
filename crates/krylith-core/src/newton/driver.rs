//! Inexact Newton with a line search (Dembo, Eisenstat and Steihaug 1982; Eisenstat and Walker 1996).
//!
//! A linear solve gives s with ‖J s − F‖ ≤ η ‖F‖, where J is the Jacobian and η the forcing term. The next x
//! is x − λ s, where λ is the first of 1, λ₁, λ₂, … with ‖F(x − λ s)‖ ≤ (1 − 10⁻⁴ λ) ‖F‖. Each λ minimises a
//! parabola through ‖F‖² at 0 and at the previous λ, with slope −2 ‖F‖² at 0. λ is clamped to [0.1, 0.5]
//! times the previous λ.
//!
//! x, s and F are on the GPU that solves if the system evaluates F and J there.

use super::{
    NewtonEvent, NewtonObserver, NewtonOptions, NewtonOutcome, NewtonReport, NewtonSeconds, NewtonStep,
    NonlinearSystem,
};
use crate::comm::{Communicator, Solo, agree};
use crate::memory::{Numbers, NumbersMut};
use crate::options::Options;
use crate::problem::Problem;
use crate::solver::{Cancel, EventKind, Solution, Solver, gpu_for, vectors};
use crate::space::{Criterion, HeldVectors, Observer, Outcome, Progress, RelativeTo, Stop};
use crate::{Error, Result};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Instant;

/// Required relative decrease of ‖F‖, as a share of λ.
const ARMIJO: f64 = 1e-4;
/// Smallest and largest λ, as a share of the previous λ.
const SHORTER: [f64; 2] = [0.1, 0.5];
/// Smallest λ that is tried.
const LEAST: f64 = 1e-8;
/// The vectors s and F; vectors 0 and 1 are x and the next x.
const DIRECTION: usize = 2;
const F: usize = 3;
const VECTORS: usize = 4;

/// Newton's method with its linear solver. The linear solver is kept as long as the pattern of the Jacobian
/// stays the same.
///
/// A second solve, such as the next time step, reuses the analysis of the pattern. See the [module](super)
/// for an example.
///
/// # Examples
/// The angle of a hanging cable, tan x = 1 − x, as a single equation; on a mesh only the pattern differs.
/// ```
/// use krylith::{matrix::Bsr, newton::{Newton, NewtonOptions, NonlinearSystem}};
/// struct Angle(Bsr);
/// impl NonlinearSystem for Angle {
///     fn pattern(&self) -> &Bsr { &self.0 }
///     fn residual(&mut self, x: &[f64], f: &mut [f64]) -> krylith::Result<()> {
///         Ok(f[0] = x[0].tan() - 1.0 + x[0])
///     }
///     fn jacobian(&mut self, x: &[f64], values: &mut [f64]) -> krylith::Result<()> {
///         Ok(values[0] = 2.0 + x[0].tan().powi(2))
///     }
/// }
/// let mut newton = Newton::new(NewtonOptions::default(), &"device=cpu".parse()?)?;
/// let mut x = [0.0];
/// let report = newton.solve(&mut Angle(Bsr::new(1, 1, 1, vec![0, 1], vec![0], vec![0.0])?), &mut x)?;
/// assert!(report.converged() && (x[0].tan() + x[0] - 1.0).abs() < 1e-7);
/// # Ok::<(), krylith::Error>(())
/// ```
pub struct Newton {
    options: NewtonOptions,
    linear: Options,
    /// The ranks that share the system of the last solve.
    pub(super) comm: Arc<dyn Communicator>,
    solver: Option<Solver<'static>>,
    cancel: Cancel,
    report: NewtonReport,
    held: Option<Held>,
    values: Vec<f64>,
}

/// The vectors of a solve.
struct Held {
    vectors: Box<dyn HeldVectors>,
    /// The GPU of the vectors; `None` on the host.
    gpu: Option<usize>,
    /// Number of the vector x: 0 or 1. The other is the next x.
    x: usize,
    /// True if the system evaluates F and J in its own memory.
    apart: bool,
}

/// Reports the progress of a linear solve as part of a step.
struct Inner<'a> {
    step: usize,
    cancel: &'a Cancel,
    observer: &'a mut (dyn NewtonObserver + Send),
}

impl Observer for Inner<'_> {
    fn progress(&mut self, p: Progress) -> ControlFlow<()> {
        match self.cancel.is_cancelled() {
            true => ControlFlow::Break(()),
            false => self.observer.linear(self.step, p),
        }
    }
}

/// Result of a line search.
struct Found {
    damping: f64,
    norm: f64,
    trials: usize,
}

impl Newton {
    /// Creates a Newton solver. `linear` has the options of its linear solves. Their relative tolerance is
    /// replaced by the forcing term of each step.
    ///
    /// # Errors
    /// Invalid options.
    pub fn new(options: NewtonOptions, linear: &Options) -> Result<Self> {
        options.check()?;
        Ok(Self {
            options,
            linear: with_forcing(linear.settled()?)?,
            comm: Arc::new(Solo),
            solver: None,
            cancel: Cancel::default(),
            report: NewtonReport::new(),
            held: None,
            values: Vec::new(),
        })
    }

    /// Solves F(x) = 0 from the given x, and overwrites it with the best x found. x is on the host or in the
    /// memory of a GPU. Collective over the ranks of the system; each passes the x of its rows.
    ///
    /// # Errors
    /// The same on every rank.
    /// An x of another length; errors of the system's functions; errors of [`Solver`]. Non-convergence is a
    /// [`NewtonOutcome`], not an error.
    pub fn solve<'x, T: NonlinearSystem + ?Sized>(
        &mut self,
        system: &mut T,
        x: impl Into<NumbersMut<'x>>,
    ) -> Result<&NewtonReport> {
        self.solve_observed(system, x, &mut ())
    }

    /// Solves as [`solve`](Self::solve) does, and reports every step and its linear solve to an observer.
    ///
    /// # Errors
    /// As [`solve`](Self::solve).
    pub fn solve_observed<'x, T: NonlinearSystem + ?Sized>(
        &mut self,
        system: &mut T,
        x: impl Into<NumbersMut<'x>>,
        observer: &mut (dyn NewtonObserver + Send),
    ) -> Result<&NewtonReport> {
        let mut x = x.into();
        let (n, gpu) = {
            let problem = system.problem()?;
            self.comm = problem.comm().clone();
            (problem.own_len(), agree(&*self.comm, gpu_for(&problem, &self.linear))?)
        };
        let fits = match x.len() == n {
            true => Ok(()),
            false => Err(Error::invalid(format!("x has {} numbers; the system has {n} unknowns", x.len()))),
        };
        agree(&*self.comm, fits)?;
        let apart = agree(&*self.comm, system.solves_on(gpu))?;
        let gpu = gpu.filter(|_| apart);
        let kept = self.held.take().filter(|held| held.gpu == gpu && held.vectors.len() == n);
        let vectors = match kept {
            Some(held) => Ok(held.vectors),
            None => vectors(gpu, VECTORS, n),
        };
        let mut held = Held { vectors: agree(&*self.comm, vectors)?, gpu, x: 0, apart };
        agree(&*self.comm, held.vectors.write_from(x.as_array(), held.x))?;
        let done = self.iterate(system, &mut held, observer);
        let wrote = held.vectors.read_into(held.x, x.reborrow());
        self.held = Some(held);
        done?;
        agree(&*self.comm, wrote)?;
        Ok(&self.report)
    }

    /// Makes steps until an outcome is known.
    fn iterate<T: NonlinearSystem + ?Sized>(
        &mut self,
        system: &mut T,
        held: &mut Held,
        observer: &mut (dyn NewtonObserver + Send),
    ) -> Result<()> {
        self.report = NewtonReport::new();
        let clock = Instant::now();
        let mut norm = self.residual(system, held, held.x)?;
        self.report.seconds.residual = clock.elapsed().as_secs_f64();
        let target = (self.options.rtol * norm).max(self.options.atol);
        (self.report.first, self.report.last, self.report.target) = (norm, norm, target);
        let mut last = None;
        let outcome = loop {
            let number = self.report.steps.len() + 1;
            let stopped = observer.residual(number - 1, norm, target).is_break();
            let stopped = self.any(stopped || self.cancel.is_cancelled())?;
            match () {
                () if !norm.is_finite() => break NewtonOutcome::NotFinite,
                () if norm <= target => break NewtonOutcome::Converged,
                () if stopped => break NewtonOutcome::Interrupted,
                () if number > self.options.max_steps => break NewtonOutcome::MaxSteps,
                () => {}
            }
            let forcing = self.options.forcing.eta(norm, target, last);
            match self.step(system, held, number, norm, forcing, observer)? {
                Err(outcome) => break outcome,
                Ok(after) => (last, norm) = (Some((norm, forcing)), after),
            }
        };
        (self.report.outcome, self.report.last) = (outcome, norm);
        tracing::info!(outcome = outcome.name(), steps = self.report.steps.len(), residual = norm, "newton");
        Ok(())
    }

    /// Sets F to F(x) of a vector x, and returns ‖F‖ over all ranks.
    fn residual<T: NonlinearSystem + ?Sized>(
        &mut self,
        system: &mut T,
        held: &mut Held,
        x: usize,
    ) -> Result<f64> {
        agree(&*self.comm, held.residual(system, x))?;
        let squares = self.within(|| held.vectors.squares(F))?;
        Ok(self.sum(agree(&*self.comm, squares)?)?.sqrt())
    }

    /// Runs work on the threads of the solver.
    fn within<R: Send>(&mut self, work: impl FnOnce() -> R + Send) -> Result<R> {
        match &mut self.solver {
            Some(solver) => Ok(solver.first(work)),
            None => self.linear.within(work),
        }
    }

    /// Makes one step from x, with F(x) in `f`. Returns ‖F‖ after the step, or the outcome if there is no
    /// step.
    fn step<T: NonlinearSystem + ?Sized>(
        &mut self,
        system: &mut T,
        held: &mut Held,
        number: usize,
        before: f64,
        forcing: f64,
        observer: &mut (dyn NewtonObserver + Send),
    ) -> Result<std::result::Result<f64, NewtonOutcome>> {
        let mut seconds = NewtonSeconds::default();
        match self.set_up(system, held, &mut seconds) {
            Err(e) if e.is_interrupt() => return Ok(Err(NewtonOutcome::Interrupted)),
            done => done?,
        }

        let clock = Instant::now();
        let solver = self.solver.as_mut().ok_or_else(without)?;
        let most = self.linear.stop().max_iters;
        solver.set_stop(Stop { rtol: forcing, atol: 0.0, max_iters: most, ..Stop::default() });
        let cleared = solver.first(|| held.vectors.clear(DIRECTION));
        agree(&*self.comm, cleared)?;
        let mut inner = Inner { step: number, cancel: &self.cancel, observer };
        let x = held.vectors.numbers(held.x);
        let product = agree(&*self.comm, system.jacobian_operator(x))?;
        let (f, direction) = held.vectors.pair(F, DIRECTION);
        let request = solver.request(f, direction).observer(&mut inner);
        let solution = match &product {
            Some(product) => request.operator(product).run()?,
            None => request.run()?,
        };
        drop(product);
        seconds.solve = clock.elapsed().as_secs_f64();
        let (linear, iterations) = (solution.outcome(), solution.history.iterations);
        let linear_residual = solution.history.true_relative_residual;
        let mut details: Vec<String> = solution
            .events
            .iter()
            .filter(|e| matches!(e.kind, EventKind::Fallback | EventKind::Inconsistent))
            .chain(solution.events.iter().filter(|e| e.kind == EventKind::Choice && number == 1))
            .map(|e| e.detail.to_string())
            .collect();
        let exact = matches!(linear, Outcome::Converged | Outcome::RoundingLimit);
        if linear == Outcome::Interrupted {
            self.report.seconds.add(&seconds);
            return Ok(Err(NewtonOutcome::Interrupted));
        }
        if !exact {
            details.push(format!(
                "the linear solve ended as {linear} after {iterations} iterations, with residual \
                 {linear_residual:.1e} above its tolerance {forcing:.1e}; Newton uses its best direction if \
                 that decreases ‖F‖"
            ));
        }
        for detail in details {
            let event = NewtonEvent { step: number, detail };
            observer.event(&event);
            self.report.events.push(event);
        }

        let clock = Instant::now();
        let found = self.search(system, held, before)?;
        seconds.residual = clock.elapsed().as_secs_f64();
        self.report.seconds.add(&seconds);
        let Some(found) = found else {
            return Ok(Err(if exact { NewtonOutcome::LineSearch } else { NewtonOutcome::LinearSolve }));
        };
        let step = NewtonStep {
            number,
            before,
            after: found.norm,
            forcing,
            linear,
            iterations,
            linear_residual,
            damping: found.damping,
            trials: found.trials,
            seconds,
        };
        observer.stepped(&step);
        self.report.steps.push(step);
        Ok(Ok(found.norm))
    }

    /// Computes the Jacobian at x and sets up the linear solver for it. Updates the existing solver if the
    /// pattern is the same, else creates a new one.
    fn set_up<T: NonlinearSystem + ?Sized>(
        &mut self,
        system: &mut T,
        held: &Held,
        seconds: &mut NewtonSeconds,
    ) -> Result<()> {
        let clock = Instant::now();
        let pattern = system.pattern();
        let kept = |solver: &Solver| solver.whole().terms.terms[0].1.same_pattern(pattern);
        let changed = !self.solver.as_ref().is_some_and(kept);
        let problem = match self.any(changed)? {
            true => {
                self.solver = None; // free the old solver's memory first
                Some(agree(&*self.comm, system.problem().map(Problem::into_owned))?)
            }
            false => None,
        };
        let entries = self.solver.as_ref().map(Solver::whole).or(problem.as_ref()).map(|p| p.entries(0));
        let entries = agree(&*self.comm, entries.unwrap_or(Ok(0)))?;
        let before = clock.elapsed();

        let clock = Instant::now();
        let x = held.vectors.numbers(held.x);
        let values = match held.apart {
            true => agree(&*self.comm, system.jacobian_in_own_memory(x))?,
            false => {
                self.values.resize(entries, 0.0);
                let x = x.as_host().ok_or_else(elsewhere);
                let done = x.and_then(|x| system.jacobian(x, &mut self.values));
                agree(&*self.comm, done)?;
                Numbers::from(&self.values[..])
            }
        };
        seconds.jacobian = clock.elapsed().as_secs_f64();

        let clock = Instant::now();
        match (problem, &mut self.solver) {
            (None, Some(solver)) => solver.update_values(values)?,
            (None, None) => return Err(without()),
            (Some(mut problem), _) => {
                let filled = self.linear.within(|| problem.fill(values)).and_then(|done| done);
                agree(&*self.comm, filled)?;
                let mut solver = Solver::new_cancellable(problem, &self.linear, &self.cancel, None)?;
                solver.set_refresh(self.options.refresh);
                self.solver = Some(solver);
            }
        }
        seconds.setup = (before + clock.elapsed()).as_secs_f64();
        Ok(())
    }

    /// Sets x to x − λ s and F to F(x) with the first λ that decreases ‖F‖ enough. If there is none, x does
    /// not change.
    fn search<T: NonlinearSystem + ?Sized>(
        &mut self,
        system: &mut T,
        held: &mut Held,
        before: f64,
    ) -> Result<Option<Found>> {
        let (mut damping, mut trials, trial) = (1.0, 0, 1 - held.x);
        while damping >= LEAST {
            let moved = self.within(|| held.vectors.combine(trial, held.x, -damping, DIRECTION))?;
            agree(&*self.comm, moved)?;
            trials += 1;
            let after = self.residual(system, held, trial)?;
            if after <= (1.0 - ARMIJO * damping) * before {
                held.x = trial;
                return Ok(Some(Found { damping, norm: after, trials }));
            }
            // Relative to ‖F‖², the parabola is 1 − 2 λ + c λ².
            let ratio = (after / before).powi(2);
            let curvature = (ratio - 1.0 + 2.0 * damping) / (damping * damping);
            let lowest = if curvature.is_finite() { 1.0 / curvature } else { SHORTER[0] * damping };
            damping = lowest.clamp(SHORTER[0] * damping, SHORTER[1] * damping);
        }
        Ok(None)
    }

    /// Returns the sum over all ranks.
    fn sum(&self, own: f64) -> Result<f64> {
        let mut all = [own];
        self.comm.sum(&mut all)?;
        Ok(all[0])
    }

    /// Returns true on every rank if it is true on one.
    fn any(&self, own: bool) -> Result<bool> {
        Ok(self.sum(f64::from(u8::from(own)))? > 0.0)
    }

    /// Returns the report of the last solve.
    pub fn report(&self) -> &NewtonReport {
        &self.report
    }

    /// Returns the solution of the last linear solve; `None` before the first one.
    pub fn linear(&self) -> Option<&Solution> {
        self.solver.as_ref().map(Solver::solution)
    }

    /// Returns true after a failure of the linear solver that left ranks at different steps. See
    /// [`Solver::is_broken`].
    pub fn is_broken(&self) -> bool {
        self.solver.as_ref().is_some_and(Solver::is_broken)
    }

    /// Returns the options of this Newton solver.
    pub fn options(&self) -> &NewtonOptions {
        &self.options
    }

    /// Returns a token that stops a solve from another thread.
    pub fn cancel_token(&self) -> Cancel {
        self.cancel.clone()
    }
}

/// Refuses a criterion of the linear solves. The forcing term is that of ‖J s − F‖₂ ≤ η ‖F‖₂.
fn with_forcing(linear: Options) -> Result<Options> {
    let wrong = |key: &'static str, value: &str| {
        let message = format!(
            "is {value}, but the linear solves of Newton's method end at ‖J s − F‖₂ ≤ η ‖F‖₂; leave {key} out"
        );
        Err(Error::Option { key, message })
    };
    match (linear.criterion.unwrap_or_default(), linear.relative_to.unwrap_or_default()) {
        (Criterion::Residual, RelativeTo::B) => Ok(linear),
        (Criterion::Residual, other) => wrong("relative_to", other.name()),
        (other, _) => wrong("criterion", other.name()),
    }
}

fn without() -> Error {
    Error::Internal("Newton without a solver".into())
}

fn elsewhere() -> Error {
    Error::Internal("vectors of Newton's method are on a GPU, and F or J is not".into())
}

impl Held {
    /// Sets F to F(x) of a vector x.
    fn residual<T: NonlinearSystem + ?Sized>(&mut self, system: &mut T, x: usize) -> Result<()> {
        if self.apart {
            // F stands in the system's memory until the copy.
            let f = system.residual_in_own_memory(self.vectors.numbers(x))?;
            return self.vectors.write_from(f, F);
        }
        let (x, mut f) = self.vectors.pair(x, F);
        let x = x.as_host().ok_or_else(elsewhere)?;
        system.residual(x, f.as_host().ok_or_else(elsewhere)?)
    }
}

//! Stopping criteria, outcomes, and observers of a solve.
//!
//! A new [`Outcome`] also needs a name here and a value in `krylith-c/src/solution.rs`. The guide gets a row
//! under "Outcomes", and a test must end with it.

use super::criterion::{Criterion, RelativeTo};
use std::ops::ControlFlow;

/// Outcome of a solve. Only [`Converged`](Outcome::Converged) means that the true residual meets the
/// tolerance, in the chosen [`Criterion`].
///
/// # Examples
/// ```
/// use krylith::{Outcome, matrix::Csr};
/// // A row without an entry and with a load: no x satisfies that.
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 1.0)])?;
/// let solution = krylith::solve(&a, &[1.0, 1.0])?;
/// assert_eq!(solution.outcome(), Outcome::Inconsistent);
/// assert_eq!(solution.outcome().to_string(), "inconsistent");
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The true residual meets the tolerance.
    Converged,
    /// The solve reached the iteration limit.
    MaxIterations,
    /// The Krylov space cannot be extended and the residual is not small: the matrix is singular for this b.
    /// Or an inner product that BiCGSTAB divides by vanishes again after every restart.
    Breakdown,
    /// Whole cycles, or restarts of a recurrence, make no progress. The tolerance is out of reach, or cycles
    /// are too short.
    Stagnated,
    /// The tolerance lies below the attainable residual, which rounding x to double precision allows. The
    /// true residual is within a factor of four of it: x is as good as that of a backward stable direct
    /// solve.
    RoundingLimit,
    /// No x meets the tolerance, because b has a part outside the range of A. That part lies in empty rows,
    /// along a null vector of Aᵀ, or in rows that together have too few columns. The solver finds the first
    /// two before the first iteration, and the last after a failed attempt. For the first two, x is the
    /// least-squares solution to the tolerance, or an event of the solve says that it is not.
    Inconsistent,
    /// The true residual grew far above its initial value.
    Diverged,
    /// A NaN or an infinity appeared.
    NotFinite,
    /// The observer asked to stop.
    Interrupted,
}

impl Outcome {
    /// All outcomes.
    pub const ALL: [Outcome; 9] = [
        Outcome::Converged,
        Outcome::MaxIterations,
        Outcome::Breakdown,
        Outcome::Stagnated,
        Outcome::RoundingLimit,
        Outcome::Inconsistent,
        Outcome::Diverged,
        Outcome::NotFinite,
        Outcome::Interrupted,
    ];

    /// Returns the name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Outcome::Converged => "converged",
            Outcome::MaxIterations => "max-iterations",
            Outcome::Breakdown => "breakdown",
            Outcome::Stagnated => "stagnated",
            Outcome::RoundingLimit => "rounding-limit",
            Outcome::Inconsistent => "inconsistent",
            Outcome::Diverged => "diverged",
            Outcome::NotFinite => "not-finite",
            Outcome::Interrupted => "interrupted",
        }
    }
}

impl std::fmt::Display for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Stopping criteria: a solve ends when ‖r‖ ≤ max(rtol·‖b‖, atol), or after `max_iters`. Other criteria than
/// the norm of r are those of [`Criterion`].
///
/// # Examples
/// ```
/// use krylith::{Solver, Stop, matrix::Csr};
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 1.0), (1, 1, 3.0)])?;
/// let mut solver = Solver::new(&a, &"device=cpu".parse()?)?;
/// solver.set_stop(Stop { rtol: 1e-12, ..Stop::default() }); // from here on
/// let solution = solver.solve(&[3.0, 3.0], &mut [0.0; 2])?;
/// assert!(solution.converged() && solution.history.true_relative_residual <= 1e-12);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Stop {
    /// Relative tolerance, with respect to ‖b‖₂ or as the criterion says.
    pub rtol: f64,
    /// Absolute tolerance, in the norm of the criterion.
    pub atol: f64,
    /// Iteration limit. An iteration takes one product with the operator in GMRES, two in BiCGSTAB.
    pub max_iters: usize,
    /// The quantity that is compared with the tolerance.
    pub criterion: Criterion,
    /// The vector whose norm divides the residual.
    pub relative_to: RelativeTo,
    /// The norm that divides the residual, if it is known, instead of that of `relative_to`. It is in the
    /// norm of the criterion, and `backward` ignores it. A solve that continues another one has the reference
    /// of that one.
    pub reference: Option<f64>,
    /// ‖b‖₂ of the given system, if another one with the same residual is solved in its place. Only for
    /// ‖r‖₂ ≤ max(rtol ‖b‖₂, atol).
    #[doc(hidden)]
    pub given_norm: Option<f64>,
}

impl Stop {
    /// The default: ‖r‖₂ ≤ 1e-6 ‖b‖₂, or 10,000 iterations.
    pub const DEFAULT: Self = Self {
        rtol: 1e-6,
        atol: 0.0,
        max_iters: 10_000,
        criterion: Criterion::Residual,
        relative_to: RelativeTo::B,
        reference: None,
        given_norm: None,
    };

    /// Returns the ‖r‖ that ends a solve with this ‖b‖.
    pub(crate) fn target(&self, norm_b: f64) -> f64 {
        (self.rtol * self.given_norm.unwrap_or(norm_b)).max(self.atol)
    }
}

impl Default for Stop {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Progress of a solve.
///
/// # Examples
/// ```
/// use krylith::{Progress, Solver, matrix::Csr};
/// use std::ops::ControlFlow;
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 1.0), (1, 1, 3.0)])?;
/// let mut bar = |p: Progress| {
///     let share = p.relative_residual.ln() / p.target.ln(); // of the decades to go
///     println!("{:5} {:3.0} %", p.iteration, 100.0 * share.clamp(0.0, 1.0));
///     ControlFlow::Continue(())
/// };
/// Solver::new(&a, &"device=cpu".parse()?)?.request(&[3.0, 3.0], &mut [0.0; 2]).observer(&mut bar).run()?;
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// Number of iterations so far.
    pub iteration: usize,
    /// ‖r‖/‖b‖ after that iteration, or the quantity of another [`Criterion`]. Between restarts the latter is
    /// an estimate.
    pub relative_residual: f64,
    /// The value of this quantity that ends the solve.
    pub target: f64,
}

/// Observes a solve; solvers never print. Called after every iteration on a CPU, and once per cycle or batch
/// on a device that records work.
///
/// # Examples
/// A closure is an observer too. An observer that stops a solve after two iterations:
/// ```
/// use krylith::{Observer, Outcome, Progress, Solver, matrix::Csr};
/// use std::ops::ControlFlow;
/// struct Impatient;
/// impl Observer for Impatient {
///     fn progress(&mut self, p: Progress) -> ControlFlow<()> {
///         if p.iteration < 2 { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
///     }
/// }
/// let entries: Vec<_> = (0..50).flat_map(|i| [(i, i, 2.0), (i, (i + 1) % 50, -1.0)]).collect();
/// let a = Csr::from_triplets(50, 50, &entries)?;
/// let mut solver = Solver::new(&a, &"method=gmres precond=none device=cpu".parse()?)?;
/// let b: Vec<f64> = (0..50).map(|i| i as f64).collect();
/// let solution = solver.request(&b, &mut vec![0.0; 50]).observer(&mut Impatient).run()?;
/// assert_eq!(solution.outcome(), Outcome::Interrupted); // x is the best so far
/// # Ok::<(), krylith::Error>(())
/// ```
pub trait Observer {
    /// Called with the progress of the solve. Break to interrupt it: the best x so far is kept.
    fn progress(&mut self, _: Progress) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
    /// Called when a method restarts from the true residual after this iteration because its recurrence came
    /// to an end, with the reason.
    fn restarted(&mut self, _iteration: usize, _why: &'static str) {}
    /// Returns true to be [shown](Self::shown) x. A method then computes x for each iteration, which costs
    /// passes over vectors.
    fn sees_x(&self) -> bool {
        false
    }
    /// Called with x after an iteration of a [matrix-free solve](crate::solver::solve_functions), or after a
    /// cycle in methods that compute x once per cycle. It is not called after the last iteration.
    fn shown(&mut self, _iteration: usize, _x: &[f64]) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

impl Observer for () {}

impl<F: FnMut(Progress) -> ControlFlow<()>> Observer for F {
    fn progress(&mut self, progress: Progress) -> ControlFlow<()> {
        self(progress)
    }
}

/// Record of a solve.
///
/// # Examples
/// ```
/// use krylith::{Solver, matrix::Csr};
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 1.0), (1, 0, 1.0), (1, 1, 3.0)])?;
/// let mut solver = Solver::new(&a, &"method=cg precond=none device=cpu".parse()?)?;
/// let history = &solver.solve(&[3.0, 4.0], &mut [0.0; 2])?.history;
/// assert_eq!((history.residuals[0], history.rhs_norm), (1.0, 5.0)); // from x = 0
/// assert_eq!(history.residuals.len(), history.iterations + 1);
/// assert!(history.iterations <= 2); // CG ends after as many steps as there are unknowns
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct History {
    /// Outcome of the solve.
    pub outcome: Outcome,
    /// Number of iterations.
    pub iterations: usize,
    /// ‖r‖/‖b‖ before the first and after each iteration: `iterations + 1` entries. With another criterion,
    /// the entries are values of its quantity. Those between restarts are estimates: ‖r‖₂ of the recurrence,
    /// times the ratio of both at the last certified residual.
    pub residuals: Vec<f64>,
    /// ‖b − A x‖₂/‖b‖₂, recomputed at the end, whatever the criterion is.
    pub true_relative_residual: f64,
    /// The criterion that decided about convergence.
    pub criterion: Criterion,
    /// The vector whose norm divided the residual.
    pub relative_to: RelativeTo,
    /// The value of the criterion's quantity, recomputed at the end. For the default criterion it is
    /// `true_relative_residual`.
    pub criterion_value: f64,
    /// The norm that divides residuals: ‖b‖₂, ‖D⁻¹b‖₂, or that of r₀; 1 for `backward`.
    pub reference: f64,
    /// u ‖|b| + |A||x|‖/‖b‖ with u = 2⁻⁵³: the effect of rounding x to double precision on the residual. A
    /// tolerance below it may be out of reach. An estimate if the operator does not know |A|; NaN if nothing
    /// was computed. With another criterion, it is the effect on the quantity of that criterion.
    pub rounding: f64,
    /// ‖b‖₂.
    pub rhs_norm: f64,
    /// Number of cycles after the first; in BiCGSTAB, of restarts from the true residual.
    pub restarts: usize,
    /// Number of all-reduces within iterations.
    pub reductions: usize,
    /// Reason why the recurrence could not go on, if the outcome is a breakdown.
    pub reason: Option<&'static str>,
}

impl History {
    /// Returns an empty history with capacity for `iterations`.
    pub fn with_capacity(iterations: usize) -> Self {
        Self {
            outcome: Outcome::MaxIterations,
            iterations: 0,
            residuals: Vec::with_capacity(iterations + 1),
            true_relative_residual: f64::NAN,
            criterion: Criterion::Residual,
            relative_to: RelativeTo::B,
            criterion_value: f64::NAN,
            reference: 0.0,
            rounding: f64::NAN,
            rhs_norm: 0.0,
            restarts: 0,
            reductions: 0,
            reason: None,
        }
    }

    /// Returns the mean factor by which an iteration reduced the residual, (‖r_n‖/‖r_0‖)^(1/n); `None`
    /// without iterations.
    ///
    /// # Examples
    /// ```
    /// let mut history = krylith_core::History::with_capacity(2);
    /// history.iterations = 2;
    /// history.residuals.extend([1.0, 0.5, 0.01]);
    /// assert_eq!(history.convergence_factor(), Some(0.1));
    /// ```
    pub fn convergence_factor(&self) -> Option<f64> {
        let (first, last) = (self.residuals.first()?, self.residuals.last()?);
        let factor = (last / first).powf(1.0 / self.iterations as f64);
        (self.iterations > 0 && factor.is_finite()).then_some(factor)
    }

    /// Divides residuals by another norm than that of the right-hand side.
    pub(crate) fn refer_to(&mut self, reference: f64) {
        let share = if reference > 0.0 { self.rhs_norm / reference } else { 1.0 };
        self.residuals.iter_mut().for_each(|r| *r *= share);
        for value in [&mut self.true_relative_residual, &mut self.criterion_value, &mut self.rounding] {
            *value *= share;
        }
        self.reference = reference;
    }

    /// Clears the record of the last solve and keeps the capacity.
    pub fn clear(&mut self) {
        self.residuals.clear();
        (self.outcome, self.iterations, self.restarts, self.reductions) = (Outcome::MaxIterations, 0, 0, 0);
        (self.true_relative_residual, self.criterion_value, self.rounding) = (f64::NAN, f64::NAN, f64::NAN);
        (self.criterion, self.relative_to) = (Criterion::Residual, RelativeTo::B);
        (self.rhs_norm, self.reference, self.reason) = (0.0, 0.0, None);
    }
}

//! One solve with its own observer, stopping criteria and number of right-hand sides.

use super::functions::Given;
use super::{Solution, Solver};
use crate::memory::{Numbers, NumbersMut};
use crate::operator::FunctionOperator;
use crate::space::{Observer, Progress, Stop};
use crate::{Error, Result};
use std::ops::ControlFlow;

/// A solve of A x = b that has not run yet. [`Solver::request`] creates it.
///
/// # Examples
/// ```
/// use krylith::{Progress, Solver, matrix::Csr};
/// use std::ops::ControlFlow;
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 1.0), (1, 0, 1.0), (1, 1, 3.0)])?;
/// let mut solver = Solver::new(&a, &"precond=none device=cpu".parse()?)?;
/// let mut seen = Vec::new();
/// let mut observer = |p: Progress| {
///     seen.push(p.relative_residual);
///     ControlFlow::Continue(()) // or Break(()), which ends the solve
/// };
/// let (b, mut x) = ([1.0, 1.0], [0.0; 2]);
/// assert!(solver.request(&b, &mut x).observer(&mut observer).run()?.converged());
/// assert!(seen[0] == 1.0 && seen[seen.len() - 1] < 1e-6);
/// # Ok::<(), krylith::Error>(())
/// ```
#[must_use = "a request does nothing until it runs"]
pub struct Request<'s, 'a, 'v> {
    solver: &'s mut Solver<'a>,
    b: Numbers<'v>,
    x: NumbersMut<'v>,
    observer: Option<&'v mut (dyn Observer + Send)>,
    stop: Option<Stop>,
    transposed: bool,
    given: Given<'v>,
}

impl<'a> Solver<'a> {
    /// Prepares a solve of A x = b, starting from x. [`Request`] has the options of a single solve.
    /// [`solve`](Self::solve) is a request without options.
    pub fn request<'s, 'v>(
        &'s mut self,
        b: impl Into<Numbers<'v>>,
        x: impl Into<NumbersMut<'v>>,
    ) -> Request<'s, 'a, 'v> {
        let (b, x, given) = (b.into(), x.into(), Given::default());
        Request { solver: self, b, x, observer: None, stop: None, transposed: false, given }
    }
}

impl<'s, 'v> Request<'s, '_, 'v> {
    /// Reports progress to an observer: every iteration on a CPU, every cycle or batch of iterations on a
    /// GPU, and the last iteration. The observer may end the solve, except after the last iteration.
    pub fn observer(self, observer: &'v mut (dyn Observer + Send)) -> Self {
        Self { observer: Some(observer), ..self }
    }

    /// Sets the tolerances and the iteration limit of this solve only.
    pub fn stop(self, stop: Stop) -> Self {
        Self { stop: Some(stop), ..self }
    }

    /// Solves Aᵀ x = b instead, with the transpose of the preconditioner; see
    /// [`Solver::solve_transposed`].
    ///
    /// ```
    /// use krylith::{Solver, matrix::Csr};
    /// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 1.0), (1, 1, 4.0)])?;
    /// let mut solver = Solver::new(&a, &"precond=ildu device=cpu rtol=1e-10".parse()?)?;
    /// let mut x = [0.0; 2];
    /// assert!(solver.request(&[2.0, 5.0], &mut x).transposed(true).run()?.converged());
    /// assert!(x.iter().all(|x| (x - 1.0).abs() < 1e-9));
    /// # Ok::<(), krylith::Error>(())
    /// ```
    pub fn transposed(self, transposed: bool) -> Self {
        Self { transposed, ..self }
    }

    /// Solves with a function as A. The preconditioner is still that of the solver's matrix, and the residual
    /// is that of the function. The solve makes one attempt, and the method `auto` is GMRES.
    ///
    /// On a GPU the function gets device memory and a stream, and nothing is copied to the host. An operator
    /// that is [capturable](FunctionOperator::capturable) is recorded with the rest of the iteration.
    /// [`FunctionOperator`] has an example.
    pub fn operator(self, a: &'v FunctionOperator<'v>) -> Self {
        Self { given: Given { a: Some(a), ..self.given }, ..self }
    }

    /// Solves with a function as P⁻¹, instead of the preconditioner of the options. If P varies from one
    /// application to the next, choose the method `fgmres`. The solve makes one attempt, and the method
    /// `auto` is GMRES.
    ///
    /// ```
    /// use krylith::{Solver, matrix::Csr};
    /// use krylith::operator::FunctionOperator;
    /// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 1.0), (1, 1, 4.0)])?;
    /// let mut solver = Solver::new(&a, &"precond=none device=cpu rtol=1e-10".parse()?)?;
    /// let halve = FunctionOperator::on_host(|x, y| Ok(y.iter_mut().zip(x).for_each(|(y, x)| *y = x / 2.0)));
    /// let mut x = [0.0; 2];
    /// assert!(solver.request(&[3.0, 4.0], &mut x).preconditioner(&halve).run()?.converged());
    /// # Ok::<(), krylith::Error>(())
    /// ```
    pub fn preconditioner(self, p: &'v FunctionOperator<'v>) -> Self {
        Self { given: Given { p: Some(p), ..self.given }, ..self }
    }

    /// Solves. Collective where the problem is distributed.
    ///
    /// # Errors
    /// As [`Solver::solve`].
    pub fn run(self) -> Result<&'s Solution> {
        let Self { solver, b, x, observer, stop, transposed, given } = self;
        let kept = solver.stop;
        solver.stop = stop.unwrap_or(kept);
        let done = match observer {
            None => solver.run_given(given, transposed, b, x, &mut ()),
            Some(observer) => observed(solver, (given, transposed), b, x, observer),
        };
        solver.stop = kept;
        done?;
        Ok(&solver.solution)
    }

    /// Solves A X = B for several right-hand sides with one set-up. B and X are stored column by column, and
    /// X holds the initial guesses. Collective where the problem is distributed.
    ///
    /// Up to [`MOST_COLUMNS`](crate::space::MOST_COLUMNS) columns are solved together, so that products read
    /// the matrix once. Each column has its own scalars and ends on its own. With an observer, in f32, and if
    /// the preconditioner costs less than a product, the columns are solved one after the other. So are
    /// columns that this attempt does not solve.
    ///
    /// # Errors
    /// Lengths of B and X that are not the same multiple of the number of unknowns; the errors of
    /// [`Solver::solve`]. After such an error, the columns of X that were solved before hold their solutions.
    ///
    /// ```
    /// use krylith::{Solver, matrix::Csr};
    /// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 1.0), (1, 1, 4.0)])?;
    /// let mut solver = Solver::new(&a, &"device=cpu".parse()?)?;
    /// let mut x = [0.0; 4];
    /// let solutions = solver.request(&[3.0, 4.0, 2.0, 0.0], &mut x).columns()?;
    /// assert!(solutions.iter().all(|solution| solution.converged()));
    /// assert!(x.iter().zip([1.0, 1.0, 1.0, 0.0]).all(|(x, exact)| (x - exact).abs() < 1e-5));
    /// # Ok::<(), krylith::Error>(())
    /// ```
    pub fn columns(self) -> Result<Vec<Solution>> {
        let Self { solver, b, mut x, mut observer, stop, transposed, given } = self;
        if solver.leaders.is_some() && !given.is_any() {
            let stop = stop.unwrap_or(solver.stop);
            let observer = observer.map(|observer| observer as &mut (dyn Observer + Send));
            return solver.columns_on_leaders(transposed, stop, b, x, observer);
        }
        let n = solver.problem.own_len();
        if b.len() != x.len() || n == 0 || !b.len().is_multiple_of(n) {
            return Err(Error::invalid(format!(
                "B has {} numbers and X has {}; both need the same whole number of columns with {n} numbers",
                b.len(),
                x.len()
            )));
        }
        let count = b.len() / n;
        if count == 0 {
            return Ok(Vec::new());
        }
        let own = stop.unwrap_or(solver.stop);
        let width = match observer {
            None if count > 1 && !given.is_any() && !solver.is_without_matrix => {
                solver.columns_at_once(transposed, own, b.range(0..n), x.range(0..n))?
            }
            _ => 1,
        };
        // Groups of about equal numbers of columns.
        let group = count.div_ceil(count.div_ceil(width.max(1)));
        let mut solutions = vec![None; count];
        for first in (0..count).step_by(group) {
            let last = (first + group).min(count);
            let (mut together, mut order) = (last - first > 1, Vec::from_iter(0..last - first));
            if together {
                match solver.solve_columns(transposed, own, first..last, b, &mut x) {
                    Ok(best) => order = best,
                    // One column at a time takes less.
                    Err(e) if e.is_memory() => together = false,
                    Err(e) => return Err(e),
                }
            }
            for k in order.into_iter().map(|k| first + k) {
                let range = k * n..(k + 1) * n;
                let observer = observer.as_deref_mut().map(|observer| observer as &mut (dyn Observer + Send));
                let (b, x) = (b.range(range.clone()), x.range(range));
                solver.column = together.then_some(k - first);
                let solution =
                    Request { solver: &mut *solver, b, x, observer, stop, transposed, given }.run().cloned();
                solver.column = None;
                solutions[k] = Some(solution.map_err(|e| e.in_column(k))?);
            }
        }
        Ok(solutions.into_iter().flatten().collect())
    }
}

/// An observer, and the last iteration that was reported to it.
struct Reported<'a> {
    observer: &'a mut (dyn Observer + Send),
    last: Option<usize>,
}

impl Observer for Reported<'_> {
    fn progress(&mut self, p: Progress) -> ControlFlow<()> {
        self.last = Some(p.iteration);
        self.observer.progress(p)
    }
    fn restarted(&mut self, iteration: usize, why: &'static str) {
        self.observer.restarted(iteration, why);
    }
}

/// Solves, and reports the last iteration too. Methods call an observer to ask whether to continue, so they
/// do not call it after the last iteration.
fn observed(
    solver: &mut Solver,
    (given, transposed): (Given, bool),
    b: Numbers,
    x: NumbersMut,
    observer: &mut (dyn Observer + Send),
) -> Result<()> {
    let mut reported = Reported { observer, last: None };
    solver.run_given(given, transposed, b, x, &mut reported)?;
    let solution = &solver.solution;
    let (iteration, residual) = (solution.history.iterations, solution.history.residuals.last());
    if let Some(&relative_residual) = residual.filter(|_| reported.last != Some(iteration)) {
        let last = Progress { iteration, relative_residual, target: solution.target };
        let _ = reported.observer.progress(last); // the solve has ended
    }
    Ok(())
}

//! Solves with Aᵀ.
//!
//! A transposed solve uses the set-up for A: the transpose of its preconditioner, and the operator of Aᵀ,
//! which the first transposed solve lays out (`attempt/adjoint.rs`). In two cases `auto` sets up a solver of
//! Aᵀ instead: if the preconditioner has no transpose, and if rows of Aᵀ differ in scale (`rows.rs`).

use super::rows::UNEVEN;
use super::solution::{Event, EventKind};
use super::{Solution, Solver, fallbacks};
use crate::memory::{Numbers, NumbersMut};
use crate::method::MethodName;
use crate::precond::PrecondSpec;
use crate::space::{Observer, Stop};
use crate::{Error, Result};
use std::time::Instant;

impl Solver<'_> {
    /// Solves Aᵀ x = b, starting from x, with the transpose of the preconditioner for A. Nothing is analysed
    /// or factorised for it. The first transposed solve lays out Aᵀ, and new values refresh it. A symmetric
    /// matrix needs nothing. Everything else is as in [`solve`](Self::solve). Collective where the problem is
    /// distributed.
    ///
    /// Given null vectors of A are used if they are null vectors of Aᵀ too.
    ///
    /// # Errors
    /// As [`solve`](Self::solve). [`Error::Unsupported`] if the options name a preconditioner that is not a
    /// fixed linear map, such as randomized sweeps or an inner Krylov method; `auto` then sets up another one
    /// for Aᵀ.
    ///
    /// ```
    /// use krylith::{Solver, matrix::Csr};
    /// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 1.0), (1, 1, 4.0)])?;
    /// let mut solver = Solver::new(&a, &"rtol=1e-10 device=cpu".parse()?)?;
    /// let mut x = [0.0; 2];
    /// assert!(solver.solve_transposed(&[2.0, 5.0], &mut x)?.converged());
    /// assert!(x.iter().all(|x| (x - 1.0).abs() < 1e-9)); // the columns of A sum to 2 and 5
    /// # Ok::<(), krylith::Error>(())
    /// ```
    pub fn solve_transposed<'v>(
        &mut self,
        b: impl Into<Numbers<'v>>,
        x: impl Into<NumbersMut<'v>>,
    ) -> Result<&Solution> {
        self.run(true, b.into(), x.into(), &mut ())?;
        Ok(&self.solution)
    }

    /// Solves Aᵀ x = b from the set-up for A, or with a solver of its own. Collective.
    pub(super) fn run_transposed(
        &mut self,
        stop: Stop,
        b: Numbers,
        mut x: NumbersMut,
        deadline: Option<Instant>,
        observer: &mut (dyn Observer + Send),
    ) -> Result<()> {
        if self.adjoint.is_some() {
            return self.run_apart(stop, None, b, x, deadline, observer);
        }
        let any_precond = *self.options.precond_or_auto() == PrecondSpec::Auto;
        let any_method = matches!(self.options.method, None | Some(MethodName::Auto));
        match self.run_attempts(true, stop, b, x.reborrow(), deadline, observer) {
            Err(Error::Unsupported(why)) if any_precond => {
                return self.run_apart(stop, Some(why), b, x, deadline, observer);
            }
            done => done?,
        }
        let uneven = self.solution.converged() && self.solution.diagnosis.rows.ratio() > UNEVEN;
        if uneven && any_method && !self.is_scaled && stop.is_usual() {
            let why = "rows of the transposed matrix differ in scale".to_string();
            let mut before = self.solution.clone();
            self.run_apart(stop, Some(why), b, x, deadline, observer)?;
            // The second solve began from the x of the first.
            fallbacks::join(&mut before.history, &self.solution.history);
            before.history.true_relative_residual = self.solution.history.true_relative_residual;
            before.history.criterion_value = self.solution.history.criterion_value;
            self.solution.history = before.history;
            self.solution.solve_seconds += before.solve_seconds;
            self.solution.setup_seconds += before.setup_seconds;
            self.solution.setup_parts.add(before.setup_parts);
        }
        Ok(())
    }

    /// Solves Aᵀ x = b with a solver of the transposed system, which is set up first if there is none.
    /// Collective.
    fn run_apart(
        &mut self,
        stop: Stop,
        why: Option<String>,
        b: Numbers,
        x: NumbersMut,
        deadline: Option<Instant>,
        observer: &mut (dyn Observer + Send),
    ) -> Result<()> {
        let mut solver = match self.adjoint.take() {
            Some(solver) => solver,
            None => {
                let problem = self.workers.first(|| self.problem.transposed())?;
                Box::new(Solver::new_cancellable(problem, &self.options, &self.cancel, None)?)
            }
        };
        solver.stop = stop;
        solver.time_limit = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        solver.run(false, b, x, observer)?;
        self.solution.copy_from(&solver.solution);
        let event = why.map(|why| {
            Event::new(EventKind::Choice, None, format!("the transposed system was set up on its own: {why}"))
        });
        self.solution.events.splice(0..0, event);
        self.adjoint = Some(solver);
        Ok(())
    }
}

//! The interface between a solver and its ranks, and single applications of A and P⁻¹.

use super::{Rank, Update};
use crate::Result;
use crate::memory::{Numbers, NumbersMut};
use crate::operator::LinearOperator;
use crate::problem::LocalProblem;
use crate::solver::solution::Solution;
use crate::solver::watch::Run;
use crate::solver::{Refresh, SolverSpace};
use crate::space::Observer;

/// The commands of a solver to one of its threads, independent of the device.
pub(in crate::solver) trait Engine {
    /// Solves the system from the initial guess `x`, and overwrites it with the best x found.
    fn solve(
        &mut self,
        local: &LocalProblem,
        run: &Run,
        rhs: Numbers,
        x: NumbersMut,
        observer: &mut dyn Observer,
    ) -> Result<()>;
    /// Updates the values of the terms, or the coefficients.
    fn update(&mut self, local: &LocalProblem, what: Update, refresh: Refresh) -> Result<()>;
    /// Applies the matrix, or the preconditioner that is set up, once.
    fn apply(&mut self, local: &LocalProblem, what: Operand, from: Numbers, to: NumbersMut) -> Result<()>;
    /// Returns the result of the last solve.
    fn solution(&mut self) -> &mut Solution;
    /// Returns true after a failure that may have left ranks at different steps, so that they can no longer
    /// work together.
    fn is_lost(&self) -> bool;
    /// Measures the read bandwidth of the device, in bytes per second.
    fn read_bandwidth(&self) -> Option<f64>;
}

/// An operator that can be applied on its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::solver) enum Operand {
    /// A.
    Matrix,
    /// P⁻¹.
    Preconditioner,
}

impl<S: SolverSpace> Rank<S> {
    /// Computes `to ← A from`, or applies P⁻¹ of the attempt that is set up; without a preconditioner it
    /// copies. Collective.
    pub(super) fn applied(
        &mut self,
        local: &LocalProblem,
        what: Operand,
        from: Numbers,
        to: NumbersMut,
    ) -> Result<()> {
        if what == Operand::Preconditioner && self.current.is_none() {
            self.climb(local, self.next_attempt, None)?;
        }
        self.lost = true; // from here on, this rank may fail alone
        let (space, on) = (&self.space, &mut self.on);
        space.write_from(from, &mut on.b)?;
        match what {
            Operand::Matrix => self.a.borrow().apply(space, &on.b, &mut on.x)?,
            Operand::Preconditioner => match self.current.as_ref().and_then(|current| current.p.as_ref()) {
                Some(p) => p.apply(space, &on.b, &mut on.x)?,
                None => space.copy(&on.b, &mut on.x)?,
            },
        }
        space.read_into(&on.x, to)?;
        self.lost = false;
        Ok(())
    }
}

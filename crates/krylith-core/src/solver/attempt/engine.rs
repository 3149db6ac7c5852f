//! What a solver asks of a rank, and single applications of what a rank has.

use super::{Rank, Update};
use crate::Result;
use crate::memory::{Numbers, NumbersMut};
use crate::operator::LinearOperator;
use crate::problem::LocalProblem;
use crate::solver::solution::Solution;
use crate::solver::watch::Run;
use crate::solver::{Refresh, SolverSpace};
use crate::space::Observer;

/// What a solver's thread can do, whatever its device.
pub(in crate::solver) trait Engine {
    /// Solves from `x`, which gets the best x.
    fn solve(
        &mut self,
        local: &LocalProblem,
        run: &Run,
        rhs: Numbers,
        x: NumbersMut,
        observer: &mut dyn Observer,
    ) -> Result<()>;
    /// Follows new values of the terms, or new coefficients.
    fn update(&mut self, local: &LocalProblem, what: Update, refresh: Refresh) -> Result<()>;
    /// The product with the matrix, or one application of the preconditioner that is set up.
    fn apply(&mut self, local: &LocalProblem, what: Operand, from: Numbers, to: NumbersMut) -> Result<()>;
    /// How the last solve went.
    fn solution(&mut self) -> &mut Solution;
    /// True once a failure has left the ranks out of step.
    fn is_lost(&self) -> bool;
    /// Bytes a second that the device reads, measured now.
    fn read_bandwidth(&self) -> Option<f64>;
}

/// What can be applied by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::solver) enum Operand {
    /// A.
    Matrix,
    /// P⁻¹.
    Preconditioner,
}

impl<S: SolverSpace> Rank<S> {
    /// `to ← A from`, or P⁻¹ of the attempt that is set up; where it has none, a copy. Collective.
    pub(super) fn applied(
        &mut self,
        local: &LocalProblem,
        what: Operand,
        from: Numbers,
        to: NumbersMut,
    ) -> Result<()> {
        if what == Operand::Preconditioner && self.current.is_none() {
            self.climb(local, self.rung, None)?;
        }
        self.lost = true; // what fails from here on may have failed here alone
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

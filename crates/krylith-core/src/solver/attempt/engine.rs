//! The interface between a solver and its ranks, and single applications of A and P⁻¹.

use super::adjoint::Adjoint;
use super::{Rank, Update};
use crate::Result;
use crate::memory::{Numbers, NumbersMut};
use crate::operator::{LinearOperator, applied};
use crate::problem::LocalProblem;
use crate::solver::solution::Solution;
use crate::solver::watch::Run;
use crate::solver::{Refresh, SolverSpace};
use crate::space::Observer;

/// The commands of a solver to one of its threads, independent of the device.
pub(in crate::solver) trait Engine {
    /// Solves the system from the initial guess `x`, and overwrites it with the best x found. With
    /// `transposed`, the system is Aᵀ x = b.
    fn solve(
        &mut self,
        transposed: bool,
        local: &LocalProblem,
        run: &Run,
        rhs: Numbers,
        x: NumbersMut,
        observer: &mut dyn Observer,
    ) -> Result<()>;
    /// Returns how many right-hand sides can be solved together. Collective.
    fn columns_at_once(&mut self, transposed: bool, local: &LocalProblem) -> Result<usize>;
    /// Takes column k of `count` columns, and solves all of them once it has the last one. `solve` then
    /// reports them one by one, best in the order that is returned. Collective.
    fn take_column(
        &mut self,
        transposed: bool,
        local: &LocalProblem,
        run: &Run,
        column: (usize, usize),
        rhs: Numbers,
        x: Numbers,
    ) -> Result<Vec<usize>>;
    /// Updates the values of the terms, or the coefficients.
    fn update(&mut self, local: &LocalProblem, what: Update, refresh: Refresh) -> Result<()>;
    /// Applies the matrix, or the preconditioner that is set up, or a transpose once.
    fn apply(
        &mut self,
        transposed: bool,
        local: &LocalProblem,
        what: Operand,
        from: Numbers,
        to: NumbersMut,
    ) -> Result<()>;
    /// Returns the result of the last solve, or of the last transposed solve.
    fn solution(&mut self, transposed: bool) -> &mut Solution;
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
    /// Computes `to ← A from`, or applies P⁻¹ of the attempt that is set up, or P⁻ᵀ if `turned` is true.
    /// Without a preconditioner it copies. Collective.
    pub(super) fn applied(
        &mut self,
        local: &LocalProblem,
        (what, turned): (Operand, bool),
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
                Some(p) => applied(p, turned, space, &on.b, &mut on.x)?,
                None => space.copy(&on.b, &mut on.x)?,
            },
        }
        space.read_into(&on.x, to)?;
        self.lost = false;
        Ok(())
    }

    /// Runs `work` on this rank, or on its adjoint, which is up to date.
    fn on_side<R>(
        &mut self,
        transposed: bool,
        local: &LocalProblem,
        work: impl FnOnce(&mut Self, &LocalProblem) -> Result<R>,
    ) -> Result<R> {
        match self.adjoint.take() {
            Some(Adjoint::Other(mut turned)) if transposed => {
                let done = turned.run(local, work);
                self.adjoint = Some(Adjoint::Other(turned));
                done
            }
            kept => {
                self.adjoint = kept;
                work(self, local)
            }
        }
    }
}

impl<S: SolverSpace> Engine for Rank<S> {
    fn solve(
        &mut self,
        transposed: bool,
        local: &LocalProblem,
        run: &Run,
        rhs: Numbers,
        x: NumbersMut,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        let _entered = run.limits.enter();
        if run.given.is_any() {
            return self.solved_by_functions(local, (run, transposed), rhs, x, observer);
        }
        if transposed {
            self.prepare_adjoint(local)?;
        }
        self.on_side(transposed, local, |rank, local| rank.solved(local, run, rhs, x, observer))
    }

    fn columns_at_once(&mut self, transposed: bool, local: &LocalProblem) -> Result<usize> {
        if transposed {
            self.prepare_adjoint(local)?;
        }
        self.on_side(transposed, local, |rank, _| rank.most_columns())
    }

    fn take_column(
        &mut self,
        transposed: bool,
        local: &LocalProblem,
        run: &Run,
        column: (usize, usize),
        rhs: Numbers,
        x: Numbers,
    ) -> Result<Vec<usize>> {
        let _entered = run.limits.enter();
        self.on_side(transposed, local, |rank, _| rank.take_column(run, column, rhs, x))
    }

    fn update(&mut self, local: &LocalProblem, what: Update, refresh: Refresh) -> Result<()> {
        self.is_adjoint_stale = true;
        self.updated(local, what, refresh)
    }

    fn apply(
        &mut self,
        transposed: bool,
        local: &LocalProblem,
        what: Operand,
        from: Numbers,
        to: NumbersMut,
    ) -> Result<()> {
        if transposed {
            self.prepare_adjoint(local)?;
        }
        // The preconditioner of a symmetric matrix may not be symmetric.
        let turned = transposed && self.is_same() && what == Operand::Preconditioner;
        if turned {
            self.prepare_turned(local)?;
        }
        self.on_side(transposed, local, |rank, local| rank.applied(local, (what, turned), from, to))
    }

    fn solution(&mut self, transposed: bool) -> &mut Solution {
        match &mut self.adjoint {
            Some(Adjoint::Other(turned)) if transposed => &mut turned.rank().solution,
            _ => &mut self.solution,
        }
    }

    fn is_lost(&self) -> bool {
        let adjoint = match &self.adjoint {
            Some(Adjoint::Other(turned)) => turned.is_lost(),
            _ => false,
        };
        self.lost || adjoint
    }

    fn read_bandwidth(&self) -> Option<f64> {
        SolverSpace::read_bandwidth(&self.space)
    }
}

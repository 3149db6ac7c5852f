//! What is found out of a system once an attempt at it has failed, and what CG is not for.

use super::Rank;
use crate::Result;
use crate::memory::{Numbers, NumbersMut};
use crate::method::MethodName;
use crate::operator::PointBlock;
use crate::options::Options;
use crate::precond::PrecondSpec;
use crate::problem::LocalProblem;
use crate::solver::SolverSpace;
use crate::solver::diagnosis::Diagnosis;
use crate::solver::null_space::Depth;
use crate::solver::solution::{Event, EventKind};
use crate::solver::symmetric::{self, Symmetry};
use crate::space::{Outcome, Stop};
use std::sync::Arc;

/// How far a set-up looks for constants that A maps to zero: not where that would bring entries to the host. Collective.
pub(super) fn depth<S: SolverSpace>(space: &S, local: &LocalProblem) -> Result<Depth> {
    let far = local.terms.terms.iter().any(|(_, a)| a.storage().is_on_device_alone());
    Ok(if space.any(far)? { Depth::Nothing } else { Depth::First })
}

/// Whether the operator is symmetric, where that decides about CG: it was asked for, or may be taken. Collective.
pub(super) fn symmetry<S: SolverSpace>(
    space: &S,
    a: &PointBlock<S>,
    local: &LocalProblem,
    options: &Options,
) -> Result<Option<Symmetry>> {
    let asked = options.method.unwrap_or_default();
    let open = asked == MethodName::Auto && options.precond_or_auto().keeps_symmetry();
    let counts = open || asked.needs_symmetry();
    counts.then(|| symmetric::symmetry(space, a, local.numbers, local.order())).transpose()
}

/// What is said before CG is tried on a matrix that is not symmetric.
pub(super) fn not_symmetric(options: &Options, found: Option<Symmetry>) -> Option<Event> {
    let asked = options.method.filter(|method| method.needs_symmetry())?;
    let why = format!("the matrix is not symmetric, and {asked} needs that: bicgstab and gmres do not");
    found.filter(|found| !found.symmetric).map(|_| Event::new(EventKind::Choice, None, why))
}

impl<S: SolverSpace> Rank<S> {
    /// After an attempt that failed: whether the system has singular parts that a set-up does not look for, and no x fits b. Collective.
    pub(super) fn is_singular_after_all(
        &mut self,
        local: &LocalProblem,
        stop: Stop,
        rhs: Numbers,
    ) -> Result<bool> {
        if !self.look_deeper(local)? {
            return Ok(false);
        }
        let floor = self.diagnosis.out_of_range().floor(local, &rhs.to_vec()?)?;
        Ok(floor.is_some_and(|floor| floor.residual > stop.target(floor.residual / floor.relative)))
    }

    /// The same after a solve that failed, for another one from `x`, which loses what it has along those constants: they may have grown until
    /// nothing else of it had a digit. Collective.
    pub(super) fn finds_singular_parts(&mut self, local: &LocalProblem, mut x: NumbersMut) -> Result<bool> {
        let found = self.look_deeper(local)?;
        if found {
            let mut own = x.as_array().to_vec()?;
            self.diagnosis.out_of_range().take_basis_off(local, &mut own)?;
            x.write(&own)?;
        }
        Ok(found)
    }

    /// True where a second look, which costs more than that of the set-up, has found constants that A maps to zero. Once; collective.
    pub(super) fn look_deeper(&mut self, local: &LocalProblem) -> Result<bool> {
        if let Some(found) = self.found_deeper {
            return Ok(found);
        }
        let known = !local.null.is_empty() || !self.diagnosis.constants.is_none();
        let mut found = false;
        if !known {
            let deeper = Diagnosis::of_survey(local, self.space.survey(local.terms)?, Depth::Parts)?;
            found = !deeper.constants.is_none();
            if found {
                self.diagnosis = Arc::new(deeper);
                self.solution.diagnosis = self.diagnosis.clone();
            }
        }
        self.found_deeper = Some(found);
        Ok(found)
    }

    /// The attempt after one that failed, `next` as a rule. Where A is known to be singular, and attempts end where others have ended, no x may
    /// fit b: what may still tell are direct factors.
    pub(super) fn after_singular(&self, next: usize, stuck: bool) -> Option<usize> {
        if !(stuck && self.diagnosis.out_of_range().is_partly_unknown()) {
            return Some(next);
        }
        self.direct_from(next)
    }

    /// The first attempt from rung `from` on with direct factors, as far as they can be made.
    pub(super) fn direct_from(&self, from: usize) -> Option<usize> {
        let is_direct = |k: &usize| matches!(self.ladder[*k].precond, PrecondSpec::Lu(_));
        let known = |k: &usize| !self.impossible.contains(k) && !self.ended.contains(k);
        (from..self.ladder.len()).find(|k| is_direct(k) && known(k))
    }

    /// Finds out whether the matrix is symmetric, where CG has failed and nobody knows. Collective.
    pub(super) fn tell_symmetry(&mut self, local: &LocalProblem) -> Result<()> {
        let solution = &self.solution;
        let failed = !matches!(solution.history.outcome, Outcome::Converged | Outcome::Interrupted);
        if failed && solution.method.name().needs_symmetry() && solution.symmetric.is_none() {
            let a = self.a.borrow();
            let found = symmetric::symmetry(&self.space, &*a, local.numbers, local.order())?;
            self.solution.symmetric = Some(found.symmetric);
        }
        Ok(())
    }
}

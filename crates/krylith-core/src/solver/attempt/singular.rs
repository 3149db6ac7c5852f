//! The search for null vectors, the test for symmetry and the estimate of costs, at set-up and after a failed
//! attempt.

use super::Rank;
use super::inconsistent::least_part;
use crate::Result;
use crate::comm::agree;
use crate::memory::{Numbers, NumbersMut};
use crate::method::MethodName;
use crate::operator::PointBlock;
use crate::options::Options;
use crate::precond::{LeftNull, PrecondSpec};
use crate::problem::LocalProblem;
use crate::solver::SolverSpace;
use crate::solver::diagnosis::Diagnosis;
use crate::solver::fallbacks::{self, Costs};
use crate::solver::null_space::Depth;
use crate::solver::solution::{Event, EventKind};
use crate::solver::symmetric::{self, Symmetry};
use crate::space::{Outcome, Stop};
use std::sync::Arc;

/// Returns the depth of the search for constant null vectors at set-up. The device judges the row sums of
/// entries that it alone has. There is no search if it cannot. Collective.
pub(super) fn depth<S: SolverSpace>(space: &S, local: &LocalProblem) -> Result<Depth> {
    let far = local.terms.terms.iter().any(|(_, a)| a.storage().is_on_device_alone());
    let judged = if far { space.judge_constants(local.terms) } else { Ok(None) };
    let judged = agree(space.comm(), judged)?;
    Ok(if space.any(far && judged.is_none())? { Depth::Nothing } else { Depth::First(judged) })
}

/// Estimates the costs of attempts, and counts couplings that convection dominates in a matrix that is not
/// symmetric.
pub(super) fn costs<S: SolverSpace>(
    space: &S,
    local: &LocalProblem,
    options: &Options,
    symmetric: bool,
) -> Result<Costs> {
    let mut costs = fallbacks::costs(local, options, symmetric, space.is_gpu());
    let counts = !symmetric && local.comm.size() == 1;
    if counts && *options.precond_or_auto() == PrecondSpec::Auto {
        costs.convective = space.convective(local.terms)?.unwrap_or(costs.convective);
    }
    Ok(costs)
}

/// Tests whether the operator is symmetric if CG was requested or `auto` may choose it; otherwise returns
/// `None`. Collective.
pub(super) fn symmetry<S: SolverSpace>(
    space: &S,
    a: &PointBlock<S>,
    local: &LocalProblem,
    options: &Options,
) -> Result<Option<Symmetry>> {
    let asked = options.method.unwrap_or_default();
    let open = asked == MethodName::Auto && options.precond_or_auto().keeps_symmetry();
    let counts = open || asked.needs_symmetry();
    if !counts {
        return Ok(None);
    }
    Ok(Some(symmetric::of_system(space, a, local)?))
}

/// Returns the event to report before CG is tried on a matrix that is not symmetric.
pub(super) fn not_symmetric(options: &Options, found: Option<Symmetry>) -> Option<Event> {
    let asked = options.method.filter(|method| method.needs_symmetry())?;
    let why = format!(
        "{asked} needs a symmetric matrix, and this one is not symmetric; use bicgstab or \
                       gmres"
    );
    found.filter(|found| !found.symmetric).map(|_| Event::new(EventKind::Choice, None, why))
}

impl<S: SolverSpace> Rank<S> {
    /// Called after a failed attempt. Returns true if b is inconsistent with singular parts of the system for
    /// which the set-up did not search. Collective.
    pub(super) fn is_singular_after_all(
        &mut self,
        local: &LocalProblem,
        stop: Stop,
        rhs: Numbers,
    ) -> Result<bool> {
        if !self.look_deeper(local)? {
            return Ok(false);
        }
        let floor = self.diagnosis.out_of_range().floor(local, &rhs.to_vec()?, stop.given_norm)?;
        Ok(floor.is_some_and(|floor| floor.residual > least_part(&stop, floor.residual / floor.relative)))
    }

    /// Searches for singular parts after a failed solve, to prepare another solve from `x`. If there are any,
    /// their null vectors are projected out of `x`. Components along null vectors may have grown so large
    /// that no digit of the rest is left. Collective.
    pub(super) fn finds_singular_parts(&mut self, local: &LocalProblem, mut x: NumbersMut) -> Result<bool> {
        let found = self.look_deeper(local)?;
        if found {
            let mut own = x.as_array().to_vec()?;
            self.diagnosis.out_of_range().take_basis_off(local, &mut own)?;
            x.write(&own)?;
        }
        Ok(found)
    }

    /// Returns true if the factors of the current attempt show null vectors, or if a second search, which
    /// costs more than that of the set-up, finds constant ones. It runs only once for the same values.
    /// Collective.
    pub(super) fn look_deeper(&mut self, local: &LocalProblem) -> Result<bool> {
        if self.are_shown(local)? {
            return Ok(true);
        }
        if let Some(found) = self.found_deeper {
            return Ok(found);
        }
        let known = !local.null.is_empty() || !self.diagnosis.constants.is_none();
        let mut found = false;
        if !known {
            let deeper = Diagnosis::of_analysis(local, self.space.analyze(local.terms)?, Depth::Parts)?;
            found = !deeper.constants.is_none();
            if found {
                self.diagnosis = Arc::new(deeper);
                self.solution.diagnosis = self.diagnosis.clone();
            }
        }
        self.found_deeper = Some(found);
        Ok(found)
    }

    /// Returns true if the factors of the current or an earlier attempt show null vectors, where none are
    /// known otherwise. Collective.
    fn are_shown(&mut self, local: &LocalProblem) -> Result<bool> {
        let known = self.diagnosis.out_of_range();
        if known.is_shown() || known.null > 0 {
            return Ok(known.is_shown());
        }
        let p = self.current.as_ref().and_then(|current| current.p.as_ref());
        let shown = p.map_or_else(|| Ok(LeftNull::default()), |p| p.left_null_vectors(&self.space));
        let shown = agree(self.space.comm(), shown)?;
        if !self.space.any(!shown.vectors.is_empty())? {
            return Ok(false);
        }
        let found = Arc::make_mut(&mut self.diagnosis).add(local, shown)?;
        self.solution.diagnosis = self.diagnosis.clone();
        Ok(found)
    }

    /// Returns the attempt after a failed one, usually `next`. If A is known to be singular and attempts make
    /// no progress, b may be inconsistent. Then only direct factors are worth another attempt.
    pub(super) fn after_singular(&self, next: usize, stuck: bool) -> Option<usize> {
        if !(stuck && self.diagnosis.out_of_range().is_partly_unknown()) {
            return Some(next);
        }
        self.direct_from(next)
    }

    /// Tests whether the matrix is symmetric, if CG has failed and the symmetry is not known yet. Collective.
    pub(super) fn report_symmetry(&mut self, local: &LocalProblem) -> Result<()> {
        let solution = &self.solution;
        let failed = !matches!(solution.history.outcome, Outcome::Converged | Outcome::Interrupted);
        if failed && solution.method.name().needs_symmetry() && solution.symmetric.is_none() {
            let a = self.a.borrow();
            let found = symmetric::of_system(&self.space, &*a, local)?;
            self.solution.symmetric = Some(found.symmetric);
        }
        Ok(())
    }
}

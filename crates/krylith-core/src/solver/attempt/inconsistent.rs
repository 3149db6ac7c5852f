//! Detection of systems that no x solves within the tolerance. Empty rows and known null vectors reveal this
//! before the first iteration. After a failed attempt there is a search for rows that together have too few
//! columns, and for singular parts of the system.

use super::Rank;
use crate::Result;
use crate::memory::{Numbers, NumbersMut};
use crate::method::LIMIT;
use crate::problem::LocalProblem;
use crate::solver::SolverSpace;
use crate::solver::crowded::Crowded;
use crate::solver::diagnosis::{Floor, Indices};
use crate::solver::solution::{Event, EventKind};
use crate::solver::watch::Run;
use crate::space::{Observer, Outcome, Stop};
use crate::text::plural;

/// Returns the smallest part of b outside the range of A, in the 2-norm, for which b is inconsistent. Only
/// ‖r‖₂ ≤ rtol ‖b‖₂ has a larger bound than that of rounding.
pub(in crate::solver) fn least_part(stop: &Stop, norm_b: f64) -> f64 {
    if stop.is_usual() { stop.target(norm_b) } else { LIMIT * f64::EPSILON * norm_b }
}

impl<S: SolverSpace> Rank<S> {
    /// Returns true if no x meets the tolerance. Then the system is solved for the projection of b onto the
    /// range of A, so that x is a least-squares solution.
    pub(super) fn without_solution(
        &mut self,
        local: &LocalProblem,
        run: &Run,
        rhs: Numbers,
        mut x: NumbersMut,
        observer: &mut dyn Observer,
    ) -> Result<bool> {
        let diagnosis = self.diagnosis.clone();
        let range = diagnosis.out_of_range();
        // Other criteria have no floor before a solve (see `names_inconsistency`).
        if range.is_whole() || !run.stop.is_usual() {
            return Ok(false);
        }
        let b = rhs.to_vec()?;
        let Some(floor) = range.floor(local, &b, run.stop.given_norm)? else { return Ok(false) };
        let norm = floor.residual / floor.relative;
        let target = least_part(&run.stop, norm);
        // A lower bound that is smaller than the rounding error of b does not matter.
        if floor.residual <= target.max(LIMIT * f64::EPSILON * norm) {
            return Ok(false);
        }
        let mut reached = b.clone();
        range.project(local, &mut reached)?;
        let stop = Stop { rtol: 0.0, atol: target, ..run.stop };
        self.attempts_on_host_if_refining(local, run, stop, Numbers::from(&reached), x.reborrow(), observer)?;
        let answer = x.as_array().to_vec()?;
        let residual = local.original().norm(&local.original().residual(&b, &answer)?)? / norm;
        let unsolved = self.make_whole(norm, floor.relative, residual);
        let reason = floor.reason + &unsolved.unwrap_or_default();
        self.solution.events.push(Event::new(EventKind::Inconsistent, None, reason));
        Ok(true)
    }

    /// Names the outcome of a failed solve with another criterion than ‖r‖₂ ≤ rtol ‖b‖₂: if b has a part
    /// outside the range of A, the system is inconsistent. x stays the best x of the attempts.
    pub(super) fn names_inconsistency(
        &mut self,
        local: &LocalProblem,
        run: &Run,
        rhs: Numbers,
    ) -> Result<()> {
        let Some(floor) = self.unusual_floor(local, &run.stop, rhs)? else { return Ok(()) };
        let history = &mut self.solution.history;
        (history.outcome, history.reason) = (Outcome::Inconsistent, None);
        let reason = floor.reason + "; x is not the least-squares solution, but the best x of the attempts";
        self.solution.events.push(Event::new(EventKind::Inconsistent, None, reason));
        Ok(())
    }

    /// Returns the part of b outside the range of A, if there is one and the criterion is another than ‖r‖₂ ≤
    /// rtol ‖b‖₂. Collective.
    pub(super) fn unusual_floor(
        &mut self,
        local: &LocalProblem,
        stop: &Stop,
        rhs: Numbers,
    ) -> Result<Option<Floor>> {
        let diagnosis = self.diagnosis.clone();
        let range = diagnosis.out_of_range();
        if stop.is_usual() || range.is_whole() {
            return Ok(None);
        }
        let floor = range.floor(local, &rhs.to_vec()?, None)?;
        Ok(floor.filter(|floor| floor.residual > least_part(stop, floor.residual / floor.relative)))
    }

    /// Converts the history of the solve with the projected b to residuals of the whole b. The part outside
    /// the range is orthogonal to the other. Returns a remark if the solve did not converge.
    fn make_whole(&mut self, norm: f64, floor: f64, residual: f64) -> Option<String> {
        let history = &mut self.solution.history;
        let share = history.reference / norm;
        history.reference = norm;
        history.residuals.iter_mut().for_each(|r| *r = (*r * share).hypot(floor));
        (history.rhs_norm, history.rounding) = (norm, history.rounding * share);
        (history.true_relative_residual, history.criterion_value) = (residual, residual);
        let unsolved = match history.outcome {
            Outcome::Interrupted | Outcome::NotFinite => return None,
            Outcome::Converged | Outcome::RoundingLimit => None,
            other => Some(other),
        };
        (history.outcome, history.reason) = (Outcome::Inconsistent, None);
        unsolved.map(|outcome| {
            format!(
                "; x is not the least-squares solution: the solve for the consistent part of b ended as \
                 {outcome}"
            )
        })
    }

    /// Returns true if an attempt failed because b is inconsistent in rows that together have too few
    /// columns. Then no other attempt can do better. This is checked only on a single rank, and only if the
    /// diagonal has zeros.
    pub(super) fn is_crowded(
        &mut self,
        local: &LocalProblem,
        stop: Stop,
        rhs: Numbers,
        best: f64,
    ) -> Result<bool> {
        let diagnosis = self.diagnosis.clone();
        if self.space.comm().size() > 1 || diagnosis.missing_diagonal.count == 0 {
            return Ok(false);
        }
        let found = self.crowded.get_or_insert_with(|| Crowded::of(local.terms));
        let Some(crowded) = found else { return Ok(false) };
        let norm = stop.given_norm.unwrap_or(self.solution.history.rhs_norm);
        let floor = crowded.floor(&rhs.to_vec()?);
        if floor <= least_part(&stop, norm) {
            return Ok(false);
        }
        let rows = Indices::of(&crowded.rows).named(local.terms);
        let columns = plural(crowded.columns, "column");
        let detail = format!(
            "rows {rows} have entries in only {columns}, and b does not fit them: no x brings ‖b − A x‖/‖b‖ \
             below {:.1e}",
            floor / norm
        );
        self.solution.events.push(Event::new(EventKind::Inconsistent, None, detail));
        self.solution.history.outcome = Outcome::Inconsistent;
        self.solution.history.true_relative_residual = best;
        Ok(true)
    }
}

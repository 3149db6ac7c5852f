//! Systems without a solution within the tolerance: found before the first iteration where rows are empty or null vectors are
//! known, and after an attempt that failed where rows together have too few columns.

use super::Rank;
use crate::Result;
use crate::memory::{Numbers, NumbersMut};
use crate::method::LIMIT;
use crate::problem::LocalProblem;
use crate::solver::SolverSpace;
use crate::solver::crowded::Crowded;
use crate::solver::diagnosis::Indices;
use crate::solver::solution::{Event, EventKind};
use crate::solver::watch::Run;
use crate::space::{Observer, Outcome, Stop};
use crate::text::plural;

/// Share of b in empty rows up to which the other rows are solved.
const SMALL: f64 = 1e-2;

impl<S: SolverSpace> Rank<S> {
    /// True where no x satisfies the tolerance. Then x is the least-squares answer if null vectors are why, or a small part of b
    /// in empty rows; it stays as it is if that part is large.
    pub(super) fn without_solution(
        &mut self,
        local: &LocalProblem,
        run: &Run,
        rhs: Numbers,
        x: NumbersMut,
        observer: &mut dyn Observer,
    ) -> Result<bool> {
        let diagnosis = self.diagnosis.clone();
        if diagnosis.is_clean() {
            return Ok(false);
        }
        let mut b = rhs.to_vec()?;
        let Some(floor) = diagnosis.floor_of(local, &b)? else { return Ok(false) };
        let norm = floor.residual / floor.relative;
        let target = run.stop.target(norm);
        // Below rounding of b itself the floor is in nobody's way.
        if floor.residual <= target.max(LIMIT * f64::EPSILON * norm) {
            return Ok(false);
        }
        if floor.relative <= SMALL && diagnosis.zero_empty_rows(&mut b) || diagnosis.project(local, &mut b)? {
            let stop = Stop { rtol: 0.0, atol: target, ..run.stop };
            self.on_its_side(local, run, stop, Numbers::from(&b), x, observer)?;
        } else {
            let stop = Stop { max_iterations: 0, ..run.stop };
            self.on_its_side(local, run, stop, rhs, x, observer)?;
        }
        // Residuals are those of b, whose part that no A x has is orthogonal to the rest.
        let history = &mut self.solution.history;
        if history.rhs_norm != norm {
            let share = history.rhs_norm / norm;
            let whole = |r: f64| (r * share).hypot(floor.relative);
            history.residuals.iter_mut().for_each(|r| *r = whole(*r));
            history.true_relative_residual = whole(history.true_relative_residual);
            (history.rhs_norm, history.rounding) = (norm, history.rounding * share);
        }
        if matches!(history.outcome, Outcome::Converged | Outcome::RoundingLimit | Outcome::MaxIterations) {
            history.outcome = Outcome::Inconsistent;
        }
        self.solution.events.push(Event::new(EventKind::Inconsistent, None, floor.reason));
        Ok(true)
    }

    /// True where an attempt has failed because rows that together have too few columns do not fit b: no other can do better. Looked
    /// for by one rank alone, where zeros on the diagonal make it possible.
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
        let norm = self.solution.history.rhs_norm;
        let floor = crowded.floor(&rhs.to_vec()?);
        if floor <= stop.target(norm) {
            return Ok(false);
        }
        let rows = Indices::of(&crowded.rows).named(local.terms);
        let columns = plural(crowded.columns, "column");
        let detail = format!(
            "rows {rows} have entries in {columns} alone, and b does not fit them: no x brings ‖b − A x‖/‖b‖ below {:.1e}",
            floor / norm
        );
        self.solution.events.push(Event::new(EventKind::Inconsistent, None, detail));
        self.solution.history.outcome = Outcome::Inconsistent;
        self.solution.history.true_relative_residual = best;
        Ok(true)
    }
}

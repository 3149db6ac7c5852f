//! What comes after a first attempt that solves: a stronger preconditioner, once many solves repay its set-up, or where new values leave the old
//! one impossible.

use super::Rank;
use crate::precond::PrecondSpec;
use crate::problem::LocalProblem;
use crate::profile::{self, SetupPart};
use crate::solver::SolverSpace;
use crate::solver::solution::{Event, EventKind, NEXT};
use crate::{Error, Result};

impl<S: SolverSpace> Rank<S> {
    /// Sets up the stronger preconditioner where solves of the same values have taken as long as that would have: however many follow, all
    /// together then take about twice as long as with the better of both at most. Iterations decide, which are the same on every rank and in every run.
    pub(super) fn climb_if_repaid(&mut self, local: &LocalProblem) -> Result<()> {
        let Some(stronger) = self.stronger.filter(|s| self.rung == 0 && s.is_repaid(self.spent)) else {
            return Ok(());
        };
        let _setup = profile::begin(SetupPart::Other);
        let [solves, iterations] = self.spent;
        self.stronger = None;
        self.spent = [0; 2];
        self.climb(local, stronger.rung, None)?;
        if self.current.is_none() || self.rung != stronger.rung {
            return self.climb(local, 0, None); // it cannot be built: back to what solves
        }
        let detail = format!(
            "{} from here on: {solves} solves took {iterations} iterations of {}, as long as its set-up",
            self.ladder[self.rung].name(),
            self.ladder[0].name()
        );
        self.pending.push(Event::new(EventKind::Choice, None, detail));
        Ok(())
    }

    /// What follows a preconditioner that new values made impossible: a stronger one where the choice is open.
    pub(super) fn rung_after(&mut self, local: &LocalProblem, error: Error, from: usize) -> Result<()> {
        self.current = None;
        if *self.options.precond_or_auto() != PrecondSpec::Auto {
            return Err(error);
        }
        let name = self.ladder[self.rung].name();
        let detail = format!("{name}: {error}{NEXT}{}", self.ladder[from].name());
        self.pending.push(Event::new(EventKind::Fallback, Some(0), detail));
        self.climb(local, from, None)
    }
}

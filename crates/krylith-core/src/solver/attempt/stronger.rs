//! Switches to a stronger preconditioner: once repeated solves amortise its set-up, or when new values make
//! the old one impossible.

use super::Rank;
use crate::precond::PrecondSpec;
use crate::problem::LocalProblem;
use crate::profile::{self, SetupPart};
use crate::solver::SolverSpace;
use crate::solver::solution::{Event, EventKind, NEXT};
use crate::{Error, Result};

impl<S: SolverSpace> Rank<S> {
    /// Sets up the stronger preconditioner once solves of the same values have taken as long as that set-up
    /// would have. However many solves follow, the total is then at most about twice that of the better
    /// choice from the start. Iteration counts decide, because they are the same on every rank and in every
    /// run.
    pub(super) fn climb_if_repaid(&mut self, local: &LocalProblem) -> Result<()> {
        let Some(stronger) = self.stronger.filter(|s| self.next_attempt == 0 && s.is_repaid(self.spent))
        else {
            return Ok(());
        };
        let _setup = profile::begin(SetupPart::Other);
        let [solves, iterations] = self.spent;
        self.stronger = None;
        self.spent = [0; 2];
        self.climb(local, stronger.next_attempt, None)?;
        if self.current.is_none() || self.next_attempt != stronger.next_attempt {
            return self.climb(local, 0, None); // it cannot be built: return to the attempt that solves
        }
        let detail = format!(
            "switched to {}: {solves} solves took {iterations} iterations with {}, so that the new set-up \
             pays off",
            self.fallbacks[self.next_attempt].name(),
            self.fallbacks[0].name()
        );
        self.pending.push(Event::new(EventKind::Choice, None, detail));
        Ok(())
    }

    /// Falls back from a preconditioner that new values made impossible: to a stronger one, if `auto` chose
    /// it.
    pub(super) fn attempt_after(&mut self, local: &LocalProblem, error: Error, from: usize) -> Result<()> {
        self.current = None;
        if *self.options.precond_or_auto() != PrecondSpec::Auto {
            return Err(error);
        }
        let name = self.fallbacks[self.next_attempt].name();
        let detail = format!("{name}: {error}{NEXT}{}", self.fallbacks[from].name());
        self.pending.push(Event::new(EventKind::Fallback, Some(0), detail));
        self.climb(local, from, None)
    }
}

//! Switches to a stronger preconditioner, if repeated solves amortise its set-up or if the old one cannot be
//! built from new values.

use super::Rank;
use crate::precond::PrecondSpec;
use crate::problem::LocalProblem;
use crate::profile::{self, SetupPart};
use crate::solver::SolverSpace;
use crate::solver::fallbacks;
use crate::solver::solution::{Event, EventKind, NEXT};
use crate::solver::watch::Run;
use crate::{Error, Result};

impl<S: SolverSpace> Rank<S> {
    /// Sets up the stronger preconditioner once solves with the same values have taken as long as its set-up
    /// would. Then the total time is at most about twice that of the better preconditioner from the start,
    /// for any number of solves. The decision uses numbers of iterations, because these are the same on every
    /// rank and in every run. A solve that continues the last one keeps its preconditioner.
    pub(super) fn climb_if_repaid(&mut self, local: &LocalProblem, run: &Run) -> Result<()> {
        let is_due = self.next_attempt == 0 && !run.continues;
        let Some(stronger) = self.stronger.filter(|s| is_due && s.is_repaid(self.spent)) else {
            return Ok(());
        };
        let _setup = profile::begin(SetupPart::Other);
        let [solves, iterations] = self.spent;
        self.stronger = None;
        self.spent = [0; 2];
        self.climb(local, stronger.next_attempt, None)?;
        if self.current.is_none() || self.next_attempt != stronger.next_attempt {
            return self.climb(local, 0, None); // it cannot be built, so return to the old one
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

    /// Falls back to a stronger preconditioner if the current one cannot be built from new values and `auto`
    /// chose it.
    pub(super) fn attempt_after(&mut self, local: &LocalProblem, error: Error, from: usize) -> Result<()> {
        self.current = None;
        if *self.options.precond_or_auto() != PrecondSpec::Auto {
            return Err(error);
        }
        let name = self.fallbacks[self.next_attempt].name();
        if !error.is_memory() {
            self.impossible.extend(fallbacks::with_same_factors(&self.fallbacks, self.next_attempt));
        }
        let is_impossible = self.impossible.contains(&from);
        let from = Some(from).filter(|_| !is_impossible).or_else(|| self.after(from)).unwrap_or(from);
        let detail = format!("{name}: {error}{NEXT}{}", self.fallbacks[from].name());
        self.pending.push(Event::new(EventKind::Fallback, Some(0), detail));
        self.climb(local, from, None)
    }
}

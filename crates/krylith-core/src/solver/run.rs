//! One solve on the devices of a solver: the attempts, what is checked after them, and what is reported.

use super::apply::on_parts;
use super::functions::Given;
use super::solution::{Event, EventKind};
use super::watch::Run;
use super::{Solver, experience, lock, recognise};
use crate::interrupt::Limits;
use crate::memory::{Numbers, NumbersMut};
use crate::space::{Observer, Stop};
use crate::{Error, Result};
use std::sync::Mutex;
use std::time::Instant;

impl Solver<'_> {
    /// Runs the attempts from `x` until one of them reaches `stop`, and keeps their solution. Collective.
    pub(super) fn run_attempts(
        &mut self,
        transposed: bool,
        stop: Stop,
        b: Numbers,
        x: NumbersMut,
        deadline: Option<Instant>,
        observer: &mut (dyn Observer + Send),
    ) -> Result<()> {
        let limits = Limits { cancel: self.cancel.clone(), deadline };
        let run = Run {
            stop,
            limits,
            given: Given::default(),
            column: self.column,
            promoted: false,
            continues: false,
        };
        self.run_once(transposed, &run, b, x, observer)
    }

    /// Makes one solve on the devices. Collective.
    pub(super) fn run_once(
        &mut self,
        transposed: bool,
        run: &Run,
        b: Numbers,
        x: NumbersMut,
        observer: &mut (dyn Observer + Send),
    ) -> Result<()> {
        let (watcher, answer) = (Mutex::new(Some(&mut *observer)), Mutex::new(&mut self.solution));
        let done = on_parts(&mut self.workers, &self.problem, b, x, &|number, engine, local, b, x| {
            // The first thread calls the observer and notifies the others of an interrupt.
            let mut first = if number == 0 { lock(&watcher).take() } else { None };
            let observer: &mut dyn Observer = match &mut first {
                Some(observer) => *observer,
                None => &mut (),
            };
            engine.solve(transposed, local, run, b, x, observer)?;
            if number == 0 {
                lock(&answer).copy_from(engine.solution(transposed));
            }
            Ok(())
        });
        self.after(done)
    }

    /// Solves, and reports progress to an observer, except for the last iteration.
    pub(super) fn run(
        &mut self,
        transposed: bool,
        b: Numbers,
        x: NumbersMut,
        observer: &mut (dyn Observer + Send),
    ) -> Result<()> {
        self.check_whole()?;
        if self.leaders.is_some() {
            return self.run_on_leaders(transposed, b, x, observer);
        }
        self.check_matrix().and_then(|()| self.stop.check())?;
        self.check_vectors([("b", b.len()), ("x", x.len())])?;
        self.check_finite([("b", b), ("x0", x.as_array())])?;
        let remarks = recognise::remarks(self.fixed.as_ref(), self.dropped.as_ref(), self.recognised);
        self.without_fixed(transposed, b, x, |solver, stop, b, x| {
            solver.run_to(transposed, stop, remarks, b, x, observer)
        })?;
        for event in &self.solution.events {
            tracing::debug!(kind = event.kind.name(), iteration = event.iteration, "{}", event.words());
        }
        self.trace("solved");
        Ok(())
    }

    /// Writes the outcome of a solve to the log.
    pub(super) fn trace(&self, what: &'static str) {
        let history = &self.solution.history;
        tracing::info!(
            outcome = history.outcome.name(),
            iterations = history.iterations,
            residual = history.true_relative_residual,
            "{what}"
        );
    }

    /// Solves the system that the devices have until it meets `stop`, with these remarks.
    fn run_to(
        &mut self,
        transposed: bool,
        stop: Stop,
        remarks: Vec<String>,
        b: Numbers,
        mut x: NumbersMut,
        observer: &mut (dyn Observer + Send),
    ) -> Result<()> {
        let deadline = self.time_limit.and_then(|limit| Instant::now().checked_add(limit));
        match transposed {
            false => self.run_attempts(false, stop, b, x.reborrow(), deadline, observer)?,
            true => self.run_transposed(stop, b, x.reborrow(), deadline, observer)?,
        }
        self.check_begun(b)?;
        let solution = &mut self.solution;
        solution.setup_parts.add(std::mem::take(&mut self.setup));
        solution.setup_seconds = solution.setup_parts.total();
        let remarks = remarks.into_iter().map(|remark| Event::new(EventKind::Choice, None, remark));
        let renamed = self.options.renamed.iter().map(|(old, new)| {
            let text = format!("option `{old}` is now called `{new}`; the next version refuses the old name");
            Event::new(EventKind::Warning, None, text)
        });
        if let Some(norm) = stop.given_norm {
            solution.history.rhs_norm = norm;
        }
        solution.events.splice(0..0, renamed.chain(remarks).chain(self.pending.take()));
        if !transposed {
            let judged = self.judge_by_rows(stop, b, &mut x, deadline, observer);
            self.after(judged)?;
        }
        let solution = &mut self.solution;
        if let Some(trial) = self.trial.take().filter(|_| solution.converged()) {
            experience::note(&trial, solution.setup_seconds + solution.solve_seconds);
        }
        Ok(())
    }

    /// Records a failure that leaves ranks at different steps.
    pub(super) fn after(&mut self, done: Result<()>) -> Result<()> {
        if let Err(e) = &done
            && self.workers.lost
        {
            self.broken = Some(e.to_string());
        }
        done
    }

    pub(super) fn check_whole(&self) -> Result<()> {
        match &self.broken {
            None => Ok(()),
            Some(why) => {
                Err(Error::invalid(format!("this solver has failed before ({why}); create a new solver")))
            }
        }
    }
}

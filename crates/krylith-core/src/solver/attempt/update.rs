//! Updates the operator and the preconditioner on a rank's device for new values and coefficients.

use super::{Rank, singular};
use crate::Result;
use crate::comm::agree;
use crate::memory::Numbers;
use crate::operator::TermValues;
use crate::problem::LocalProblem;
use crate::profile::{self, SetupPart};
use crate::solver::build::operator;
use crate::solver::diagnosis::Diagnosis;
use crate::solver::solution::{Event, EventKind};
use crate::solver::{Refresh, SolverSpace};
use std::sync::Arc;

/// New values and coefficients.
#[derive(Debug, Clone, Copy)]
pub(in crate::solver) struct Update<'a> {
    /// Indices of terms with new values, and the values themselves if they are in device memory.
    pub values: &'a [(usize, Option<Numbers<'a>>)],
    pub coefficients: Option<Coefficients>,
}

/// The new coefficients of A⊗M + τB⊗L.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::solver) enum Coefficients {
    /// τ alone.
    Tau(f64),
    /// A, B and τ; the problem already holds the new A and B.
    Stages(f64),
}

impl Coefficients {
    /// τ.
    pub fn tau(self) -> f64 {
        match self {
            Self::Tau(tau) | Self::Stages(tau) => tau,
        }
    }
}

impl<S: SolverSpace> Rank<S> {
    /// Updates operator and preconditioner for new values of the terms, or for new coefficients. Collective.
    pub(super) fn updated(&mut self, local: &LocalProblem, what: Update, refresh: Refresh) -> Result<()> {
        let _setup = profile::begin(SetupPart::Other);
        let (space, comm) = (&self.space, self.space.comm());
        let mut values = TermValues::from(local.terms);
        let product = profile::begin(SetupPart::Product);
        let mut updated = Ok(());
        for &(t, lent) in what.values {
            if let Some(lent) = lent {
                values = values.with_values(t, lent);
            }
            let host = || Numbers::from(local.terms.terms[t].1.values());
            let mut a = self.a.borrow_mut();
            updated = updated.and_then(|()| a.update_values(space, t, lent.unwrap_or_else(host)));
        }
        if let (Some(new), Some((a, b))) = (what.coefficients, local.stages) {
            let mut operator = self.a.borrow_mut();
            updated = updated.and_then(|()| match new {
                Coefficients::Tau(tau) => operator.set_tau(space, a, tau),
                Coefficients::Stages(tau) => operator.set_stages(space, a, b, tau),
            });
        }
        // The analysis of A and B is no longer valid, so the preconditioner is built anew.
        let refresh = match what.coefficients {
            Some(Coefficients::Stages(_)) if refresh == Refresh::Refresh => Refresh::Rebuild,
            _ => refresh,
        };
        drop(product);
        // New values may break the pattern that was found inside the blocks. Then a new operator is built.
        if space.any(updated.is_err())? {
            let made = operator(space, local, self.options.precision.unwrap_or_default(), &self.options);
            *self.a.borrow_mut() = agree(comm, made)?;
            let why =
                updated.err().map_or("the new values on another rank require it".into(), |e| e.to_string());
            self.pending.push(Event::new(
                EventKind::Fallback,
                None,
                format!("the operator was set up again: {why}"),
            ));
        }
        self.sharing.renew(local)?;
        // Complex coefficients suit complex matrices alone; real ones suit any.
        let was_complex = self.fallbacks.iter().any(|attempt| attempt.method.is_complex());
        let ends_complex = was_complex && !super::complex::is_complex(space, local, &self.options)?;
        if ends_complex {
            self.fallbacks.iter_mut().for_each(|a| a.method = a.method.with_complex(false));
        }
        (self.crowded, self.found_deeper, self.solution.symmetric) = (None, None, None);
        let untouched = self.diagnosis.untouched().map(<[_]>::to_vec);
        // A clean diagnosis is not repeated after an update, so it can only under-report.
        if !self.diagnosis.is_clean() {
            let survey = self.space.analyze(local.terms)?;
            let depth = singular::depth(space, local)?;
            self.diagnosis = Arc::new(Diagnosis::of_analysis(local, survey, depth)?);
            self.solution.diagnosis = self.diagnosis.clone();
        }
        let others = space.any(self.diagnosis.untouched().map(<[_]>::to_vec) != untouched)?;
        let refresh = if others || ends_complex { Refresh::Rebuild } else { refresh };
        self.impossible.clear();
        self.matched.forget();
        if refresh != Refresh::Keep {
            self.spent = [0; 2];
        }
        match (refresh, &mut self.current) {
            (Refresh::Keep, _) | (_, None) => Ok(()),
            (Refresh::Rebuild, Some(_)) => self.climb(local, self.next_attempt, None),
            (Refresh::Refresh, Some(current)) => {
                let _factors = profile::begin(SetupPart::Factors);
                let p = current.p.as_mut().map_or(Ok(()), |p| p.update_values(space, local.terms, values));
                let events = current.p.as_mut().map_or_else(Vec::new, |p| p.take_events());
                let events = events.into_iter().map(|event| Event::new(EventKind::Fallback, None, event));
                self.pending.extend(events);
                match agree(comm, p) {
                    Err(e) if e.is_interrupt() => {
                        self.current = None; // partly updated, so the next solve sets it up
                        Err(e)
                    }
                    Err(e) if !e.is_fatal() => {
                        let from = (self.next_attempt + 1).min(self.fallbacks.len() - 1);
                        self.attempt_after(local, e, from)
                    }
                    Ok(()) => {
                        let precond = &self.fallbacks[self.next_attempt].precond;
                        self.sharing.renew_precond(local, precond, &current.info)
                    }
                    lost => lost,
                }
            }
        }
    }
}

//! One attempt of a solve: one method with one preconditioner, from a given x.

use super::{Current, Rank};
use crate::memory::{Numbers, NumbersMut};
use crate::operator::LinearOperator;
use crate::problem::LocalProblem;
use crate::solver::SolverSpace;
use crate::solver::refine::{self, Parts};
use crate::solver::solution::{Event, EventKind, copy_history};
use crate::solver::watch::Run;
use crate::space::{Observer, Stop};
use crate::{Error, Result};

impl<S: SolverSpace> Rank<S> {
    /// Runs one attempt from `x`, with as many refinement passes as a matrix in reduced precision needs. Its
    /// history is in `self.history`.
    pub(super) fn attempt(
        &mut self,
        local: &LocalProblem,
        stop: Stop,
        rhs: Numbers,
        x: Numbers,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        if self.attempt_on_whole_vectors(stop, (rhs, x), observer)? {
            self.add_remark();
            return Ok(());
        }
        let Current { p, method, .. } = self.current.as_mut().expect("an attempt was set up");
        let p = p.as_ref().map(|p| p as &dyn LinearOperator<S>);
        let parts = Parts { space: &self.space, a: &*self.a, p, stop };
        let Some(passes) = &mut self.passes else {
            let history = refine::once(&parts, &mut **method, rhs, x, &mut self.on, observer)?;
            copy_history(&mut self.history, history);
            self.add_remark();
            return Ok(());
        };
        let on_host = || Error::Internal("refinement of vectors that are not on the host".into());
        let (rhs, x) = (rhs.as_host().ok_or_else(on_host)?, x.as_host().ok_or_else(on_host)?);
        let (original, history) = (local.original(), &mut self.history);
        let count = refine::refined(
            &parts,
            &mut **method,
            original,
            rhs,
            x,
            &mut self.on,
            passes,
            history,
            observer,
        )?;
        if count > 1 {
            let detail =
                format!("{count} passes of iterative refinement: residuals in f64, the stored matrix in f32");
            self.solution.events.push(Event::new(EventKind::Refinement, None, detail));
        }
        Ok(())
    }

    /// Reports what the method remarks on its last solve.
    fn add_remark(&mut self) {
        let remark = self.current.as_ref().and_then(|current| current.method.remark());
        if let Some(text) = remark {
            self.solution.insert(self.solution.events.len(), Event::new(EventKind::Choice, None, text));
        }
    }

    /// Runs all attempts; copies vectors to the host first if iterative refinement needs them there.
    pub(super) fn attempts_on_host_if_refining(
        &mut self,
        local: &LocalProblem,
        run: &Run,
        stop: Stop,
        rhs: Numbers,
        mut x: NumbersMut,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        if self.passes.is_none() || (rhs.gpu(), x.gpu()) == (None, None) {
            return self.attempts(local, run, stop, rhs, x, observer);
        }
        let (b, mut own) = (rhs.to_vec()?, x.as_array().to_vec()?);
        self.attempts(local, run, stop, Numbers::from(&b), NumbersMut::from(&mut own), observer)?;
        x.write(&own)
    }
}

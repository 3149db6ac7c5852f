//! Several right-hand sides that the current attempt solves together.
//!
//! The columns are solved before the solves that report them. Each of these finds its column solved, and does
//! the rest as any other solve: it judges the outcome, and goes on to the next attempt after a failure.

use super::{Current, FEW, Rank};
use crate::comm::{agree, largest};
use crate::memory::Numbers;
use crate::method::{ColumnsMethod, MethodSpec};
use crate::operator::LinearOperator;
use crate::solver::SolverSpace;
use crate::solver::fallbacks;
use crate::solver::watch::{Pace, Run, Standstill, Watch};
use crate::space::{Columns, History, MOST_COLUMNS, Observer, Outcome, Space, Stop};
use crate::{Error, Result};
use std::time::Instant;

/// Share of the free memory that the vectors of all columns may need.
const SHARE: f64 = 0.5;

/// The workspace of columns, and what their solve has left for the solves that report them.
pub(super) struct TogetherOn<S: SolverSpace> {
    space: Columns<S>,
    method: Box<dyn ColumnsMethod<S>>,
    spec: MethodSpec,
    b: Vec<S::Vector>,
    x: Vec<S::Vector>,
    solved: Vec<Option<Solved>>,
    /// Number of the attempt that solved them, and true if it was [promoted](Rank::promoted).
    attempt: (usize, bool),
}

/// The solve of one column.
struct Solved {
    history: History,
    restarts: Vec<(usize, &'static str)>,
    halted: Option<&'static str>,
    /// This column's share of the time.
    seconds: f64,
}

impl<S: SolverSpace> Rank<S> {
    /// Returns how many right-hand sides the current attempt can solve together: as many as fit in memory, or
    /// 1 if it must solve them one after the other, or gains nothing by more. Collective.
    pub(super) fn most_columns(&self) -> Result<usize> {
        let p = self.current.as_ref().and_then(|current| current.p.as_ref());
        let fits = |spec: MethodSpec| {
            let (basis, vectors) = spec.memory(self.space.len() as u64);
            let own = basis + vectors + p.map_or(0, |p| p.bytes_of_column());
            let room = self.room.map_or(f64::INFINITY, |room| SHARE * room as f64);
            (room / own.max(1) as f64).min(MOST_COLUMNS as f64) as usize
        };
        // Columns lose the sums that products and cheap preconditioners fuse.
        let costly = p.is_some_and(|p| p.bytes() >= self.a.borrow().bytes());
        let by_p = p.is_some_and(|p| p.gains_by_columns(&self.space));
        let gains = costly && (by_p || self.space.gains_by_columns(self.a.borrow().product()));
        let plain = gains && self.passes.is_none() && self.diagnosis.out_of_range().is_whole();
        let own = match &self.current {
            Some(Current { is_whole: false, .. }) if plain => fits(self.fallbacks[self.next_attempt].method),
            _ => 1,
        };
        let fewest = MOST_COLUMNS as f64 - largest(self.space.comm(), (MOST_COLUMNS - own.max(1)) as f64)?;
        Ok(fewest as usize)
    }

    /// Takes b and the initial x of column k of `count`, and solves all of them once it has the last one.
    /// Then it returns the order in which to report them: failed ones come last, because they move the solver
    /// on to another attempt. Collective; every rank gets the same error.
    pub(super) fn take_column(
        &mut self,
        run: &Run,
        (k, count): (usize, usize),
        rhs: Numbers,
        x: Numbers,
    ) -> Result<Vec<usize>> {
        if k == 0 {
            let made = self.make_room(count);
            agree(self.space.comm(), made)?;
        }
        let Some(on) = &mut self.together else {
            return Err(Error::Internal("columns without a workspace".into()));
        };
        self.space.write_from(rhs, &mut on.b[k])?;
        self.space.write_from(x, &mut on.x[k])?;
        if k + 1 < count {
            return Ok(Vec::new());
        }
        self.lost = true; // from here on, this rank may fail alone
        self.solve_columns(run, count)?;
        self.lost = false;
        let solved = self.together.iter().flat_map(|on| &on.solved).flatten();
        let failed: Vec<bool> = solved.map(|solved| fallbacks::worth_another(&solved.history)).collect();
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by_key(|&k| failed[k]);
        Ok(order)
    }

    /// Allocates the workspace for `count` columns, unless there is one.
    fn make_room(&mut self, count: usize) -> Result<()> {
        let spec = self.fallbacks[self.next_attempt].method;
        if let Some(p) = self.current.as_ref().and_then(|current| current.p.as_ref()) {
            p.prepare_columns(&self.space, count)?;
        }
        if let Some(on) = &mut self.together
            && on.spec == spec
            && on.space.width() >= count
        {
            on.solved.clear();
            return Ok(());
        }
        self.together = None;
        let space = Columns::new(self.space.among(self.space.len())?, count)?;
        let (method, b, x) = (spec.build_columns(&space)?, space.vector()?, space.vector()?);
        self.together =
            Some(TogetherOn { space, method, spec, b, x, solved: Vec::new(), attempt: (0, false) });
        Ok(())
    }

    fn solve_columns(&mut self, run: &Run, count: usize) -> Result<()> {
        let attempt = &self.fallbacks[self.next_attempt];
        let rises = attempt.method.is_cg();
        let is_last = self.next_attempt + 1 == self.fallbacks.len();
        let direct = self.direct_from(self.next_attempt).is_some_and(|direct| direct > self.next_attempt);
        let each = self.bytes_of_iteration(FEW);
        let left = if direct { self.before_direct.left(0, 0.0, each) } else { run.stop.max_iters };
        let stop = Stop { max_iters: left.min(run.stop.max_iters), ..run.stop };
        let mut restarts = vec![Vec::new(); count];
        let pace = || (!is_last).then(|| Pace::new(rises, attempt.budget));
        let mut nobody = vec![(); count];
        let watches = nobody.iter_mut().zip(&mut restarts);
        let mut watches: Vec<Watch> =
            watches.map(|(nobody, restarts)| Watch::new(run, nobody, 0, restarts, pace())).collect();
        let narrow = self.is_narrow();
        watches.iter_mut().for_each(|watch| watch.standstill = narrow.then(|| Standstill::new(rises)));
        let (Some(on), Some(current)) = (&mut self.together, &self.current) else {
            return Err(Error::Internal("columns without an attempt".into()));
        };
        let p = current.p.as_ref().map(|p| p as &dyn LinearOperator<S>);
        let begin = Instant::now();
        let histories = {
            let mut observers: Vec<&mut dyn Observer> =
                watches.iter_mut().map(|watch| watch as &mut dyn Observer).collect();
            on.method.solve(&on.space, &*self.a, p, &on.b, &mut on.x, &stop, &mut observers)?
        };
        let seconds = begin.elapsed().as_secs_f64() / count as f64;
        let ends: Vec<_> = watches.iter().map(|watch| (watch.halted, watch.too_slow().is_some())).collect();
        on.solved.clear();
        on.attempt = (self.next_attempt, self.promoted);
        for ((mut history, restarts), (halted, slow)) in histories.into_iter().zip(restarts).zip(ends) {
            if slow && halted.is_none() && history.outcome == Outcome::Interrupted {
                history.outcome = Outcome::Stagnated;
            }
            on.solved.push(Some(Solved { history, restarts, halted, seconds }));
        }
        Ok(())
    }

    /// Takes the result of column k, if the current attempt has solved it together with others: x goes to the
    /// vector of a solve, and the history to that of the attempt. Returns the seconds of the column, and why
    /// it was halted.
    pub(super) fn take_solved(
        &mut self,
        k: usize,
        stop: &Stop,
    ) -> Result<Option<(f64, Option<&'static str>)>> {
        let Some(on) = self.together.as_mut().filter(|on| on.attempt == (self.next_attempt, self.promoted))
        else {
            return Ok(None);
        };
        let Some(solved) = on.solved.get_mut(k).and_then(Option::take) else { return Ok(None) };
        self.space.copy(&on.x[k], &mut self.on.x)?;
        super::copy_history(&mut self.history, &solved.history);
        if let Some(norm) = stop.given_norm {
            // The columns were solved to the tolerance of the strictest.
            self.history.refer_to(norm);
            let met = self.history.criterion_value <= stop.relative_target(&self.history);
            if met && self.history.outcome != Outcome::Interrupted {
                (self.history.outcome, self.history.reason) = (Outcome::Converged, None);
            }
        }
        self.restarts = solved.restarts;
        Ok(Some((solved.seconds, solved.halted)))
    }
}

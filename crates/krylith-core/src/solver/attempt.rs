//! One rank of a solve, generic over devices. It has the operator, and the preconditioner and the method of
//! the current attempt, and moves from a failed attempt to the next.

mod adjoint;
mod columns;
mod complex;
mod direct;
mod engine;
mod functions;
mod inconsistent;
mod one;
mod promoted;
mod share;
mod singular;
mod stronger;
mod unstable;
mod update;

pub(super) use engine::{Engine, Operand};
pub(super) use inconsistent::least_part;
pub(super) use update::{Coefficients, Update};

use super::SolverSpace;
use super::build::operator;
use super::crowded::Crowded;
use super::diagnosis::Diagnosis;
use super::fallbacks::{self, Attempt, Seen};
use super::refine::{Passes, Vectors};
use super::solution::{DeviceUsed, Event, EventKind, NEXT, Solution, copy_history};
use super::watch::{Later, Pace, Run, Standstill, Watch};
use crate::comm::{Communicator, agree};
use crate::interrupt::{self, Bounds};
use crate::matching::MatchingFound;
use crate::memory::{Numbers, NumbersMut};
use crate::method::{Method, MethodName};
use crate::options::Options;
use crate::precond::{Boxed, PrecondInfo, PrecondSpec, SharedOperator};
use crate::problem::LocalProblem;
use crate::profile::{self, SetupPart};
use crate::space::{History, Observer, Outcome, Precision, Stop};
use crate::{Error, Result};
use adjoint::{Adjoint, Shared};
use columns::TogetherOn;
use share::Sharing;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

/// Limit of `auto` on the operations that compute fill, which take some seconds: a constant, and a number per
/// unknown.
const FILL: [u64; 2] = [1 << 30, 20_000];

/// The attempt that is set up.
struct Current<S: SolverSpace> {
    p: Boxed<S>,
    info: Arc<PrecondInfo>,
    method: Box<dyn Method<S>>,
    /// True if the method works with whole vectors ([`Sharing`]).
    is_whole: bool,
    /// The preconditioner inside `p`, if the adjoint uses it too.
    shared: Option<Shared<S>>,
    /// True if `p` is the transpose of another rank's preconditioner.
    is_turned: bool,
}

/// The number of iterations for which the bytes of an iteration are estimated before an attempt.
const FEW: usize = 30;
/// If an attempt leaves more than this share of the residual, it has made no progress.
const STUCK: f64 = 0.9;

/// One rank with its device.
pub(super) struct Rank<S: SolverSpace> {
    current: Option<Current<S>>,
    a: SharedOperator<S>,
    on: Vectors<S>,
    passes: Option<Passes>,
    sharing: Sharing<S>,
    space: S,
    options: Arc<Options>,
    /// Number of bytes that were free before this solver allocated memory on the device.
    room: Option<u64>,
    fallbacks: Vec<Attempt>,
    /// Attempts whose preconditioner cannot be built from the current values.
    impossible: Vec<usize>,
    /// Number of attempts that did not fit in memory, and the error of the last one.
    too_large: (usize, Option<Error>),
    /// Attempts of this solve that ended by themselves, so that a repetition would end the same way.
    ended: Vec<usize>,
    diagnosis: Arc<Diagnosis>,
    /// Rows that together have too few columns; `None` before the first search for such rows.
    crowded: Option<Option<Crowded>>,
    /// True if the second, more expensive search has found singular parts of the system; `None` before that
    /// search.
    found_deeper: Option<bool>,
    /// Limit on all attempts that precede direct factors.
    before_direct: fallbacks::BeforeDirect,
    /// The attempt whose set-up repeated solves with these values amortise. The next field counts `[solves,
    /// iterations]` so far.
    stronger: Option<fallbacks::Stronger>,
    spent: [usize; 2],
    /// Index in `fallbacks` of the current attempt, or of the last one that could be built.
    next_attempt: usize,
    /// True once an attempt has failed whose preconditioner computed in f32. All later ones compute in f64.
    promoted: bool,
    /// Restarts of the current attempt: iteration and reason.
    restarts: Vec<(usize, &'static str)>,
    /// History of the current attempt.
    history: History,
    /// Events that report choices for all solves of this solver.
    choices: Vec<Event>,
    /// Event to report once an attempt has matched rows with columns.
    matching: Option<Event>,
    /// The matching of rows with columns for these values, once an attempt has computed it.
    matched: MatchingFound,
    /// Events of set-ups since the last solve.
    pending: Vec<Event>,
    solution: Solution,
    lost: bool,
    comm: Arc<dyn Communicator>,
    /// Columns that were solved together, and the column that the next attempt finds solved.
    together: Option<TogetherOn<S>>,
    column: Option<usize>,
    /// What solves with Aᵀ, once there was such a solve, and true if values have changed since.
    adjoint: Option<Adjoint<S>>,
    is_adjoint_stale: bool,
    /// What solves with functions of the caller keep.
    functions: functions::Kept<S>,
}

impl<S: SolverSpace> Rank<S> {
    /// Puts the operator on the device and sets up an attempt. Collective; every rank gets the same error.
    pub fn new(
        space: S,
        local: &LocalProblem,
        comm: &Arc<dyn Communicator>,
        options: &Arc<Options>,
        device: Arc<DeviceUsed>,
        room: Option<u64>,
    ) -> Result<Self> {
        let _setup = profile::begin(SetupPart::Other);
        let precision = options.precision.unwrap_or_default();
        let upload = profile::begin(SetupPart::Upload);
        let placed = agree(space.comm(), space.place(local.terms))?;
        drop(upload);
        let local = &LocalProblem { terms: &placed, ..*local };
        let made = operator(&space, local, precision, options)
            .and_then(|a| Ok((a, Vectors { b: space.vector()?, x: space.vector()? })));
        let (a, on) = agree(space.comm(), made)?;
        let survey_part = profile::begin(SetupPart::SystemAnalysis);
        let _ = space.take_phases();
        let open = matches!(options.method, None | Some(MethodName::Auto));
        let symmetry = singular::symmetry(&space, &a, local, options)?;
        let symmetric = open && symmetry.is_some_and(|found| found.symmetric && found.one_sign);
        let survey = space.analyze(local.terms)?;
        let depth = singular::depth(&space, local)?;
        let diagnosis = Arc::new(Diagnosis::of_analysis(local, survey, depth)?);
        let most_rows = space.most_rows(local.order());
        let tiles = symmetric && fallbacks::tiles_fit(&space, local)?;
        // A definite matrix has no zero diagonal entry.
        let symmetric = symmetric && diagnosis.missing_diagonal.count == 0;
        let costs = singular::costs(&space, local, options, symmetric)?;
        let weak = fallbacks::weak_rows(&space, local, options, &diagnosis)?;
        let seen = Seen::new(symmetric, tiles, &diagnosis, weak, costs);
        drop(survey_part);
        let (sharing, no_effect) = Sharing::new(comm, local, options, &device, &diagnosis)?;
        let mut fallbacks = fallbacks::attempts(local, options, most_rows, seen);
        let complex = complex::is_complex(&space, local, options)?;
        fallbacks.iter_mut().for_each(|attempt| attempt.method = attempt.method.with_complex(complex));
        let stronger = fallbacks::stronger(local, seen, &fallbacks);
        let before_direct = fallbacks::before_direct(local, seen);
        let first = &fallbacks[0];
        let mut choices = Vec::new();
        if first.equilibrate && options.equilibrate.is_none() {
            let why = "rows and columns are scaled: their largest entries differ by a factor above 1e6";
            choices.push(Event::new(EventKind::Choice, None, why));
        }
        choices.extend(no_effect);
        choices.extend(singular::not_symmetric(options, symmetry));
        let [matching, unmatched] = fallbacks::matching_choice(local, options, weak, &fallbacks)?;
        choices.extend(unmatched);
        choices.extend(fallbacks::first_choice(&fallbacks[0], open));
        choices.extend(fallbacks::recognised(local));
        let solution = Solution {
            equilibrated: first.equilibrate,
            matched: first.matching,
            null_vectors: local.null.len(),
            symmetric: symmetry.map(|found| found.symmetric),
            diagnosis: diagnosis.clone(),
            device,
            events: Vec::with_capacity(256),
            ..Solution::unsolved(first.method)
        };
        let mut rank = Self {
            current: None,
            a: Rc::new(RefCell::new(a)),
            on,
            passes: (precision != Precision::F64).then(|| Passes::new(space.len())),
            sharing,
            space,
            options: options.clone(),
            room,
            impossible: Vec::with_capacity(fallbacks.len()),
            too_large: (0, None),
            ended: Vec::with_capacity(fallbacks.len()),
            fallbacks,
            diagnosis,
            crowded: None,
            found_deeper: None,
            before_direct,
            stronger,
            spent: [0; 2],
            next_attempt: 0,
            promoted: false,
            restarts: Vec::with_capacity(256),
            history: History::with_capacity(0),
            choices,
            matching,
            matched: MatchingFound::default(),
            pending: Vec::new(),
            solution,
            lost: false,
            comm: comm.clone(),
            together: None,
            column: None,
            adjoint: None,
            is_adjoint_stale: false,
            functions: Default::default(),
        };
        rank.climb(local, 0, None)?;
        match rank.current {
            None => Err(rank.nothing_to_try()),
            Some(_) => Ok(rank),
        }
    }

    /// Returns the error if no attempt could be set up, because none fits in memory or because of the matrix.
    /// It lists each reason once.
    fn nothing_to_try(&mut self) -> Error {
        if let (count, Some(error)) = std::mem::take(&mut self.too_large)
            && count >= self.pending.len()
        {
            return error;
        }
        let mut reasons: Vec<(&str, usize)> = Vec::new();
        for event in &self.pending {
            let (_, why) = event.detail.split_once(": ").unwrap_or(("", &event.detail));
            let why = why.rsplit_once("; n").map_or(why, |(why, _)| why);
            match reasons.iter_mut().find(|(known, _)| *known == why) {
                Some((_, count)) => *count += 1,
                None => reasons.push((why, 1)),
            }
        }
        let mut parts = Vec::new();
        let empty = &self.diagnosis.empty_rows;
        if empty.count > 0 {
            parts.push(format!("rows {empty} have no nonzero entry"));
        }
        parts.extend(
            reasons
                .iter()
                .map(|(why, count)| format!("{} of {} attempts: {why}", count, self.fallbacks.len())),
        );
        Error::invalid(format!("no preconditioner can be built: {}", parts.join("; ")))
    }

    /// Returns the next attempt after `k` that is not known to be impossible and has not already ended by
    /// itself.
    fn after(&self, k: usize) -> Option<usize> {
        let known = |next: &usize| {
            let mut known = self.impossible.iter().chain(&self.ended);
            known.any(|&k| self.fallbacks[k].is_same(&self.fallbacks[*next]))
        };
        (k + 1..self.fallbacks.len()).find(|next| !known(next))
    }

    /// Sets up the first attempt from `from` on that can be built. `done` is the number of iterations of
    /// earlier attempts in this solve. If there were earlier attempts, it is not an error if no other can be
    /// built.
    fn climb(&mut self, local: &LocalProblem, from: usize, done: Option<usize>) -> Result<()> {
        let _setup = profile::begin(SetupPart::Other);
        let before = self.fallbacks[self.next_attempt].clone();
        // Free the memory of the methods first, and that of the preconditioner unless the next attempt uses
        // the same one.
        self.together = None;
        let mut kept = self.current.take().map(|current| (current.p, current.info));
        let open = *self.options.precond_or_auto() == PrecondSpec::Auto;
        // After an attempt that needs too much memory or exceeds a limit of `auto`, an attempt that needs
        // less may succeed.
        let alone = self.space.comm().size() == 1;
        // The first attempt is set up again only in f64.
        let repeats = |k: usize| k > 0 || done.is_some();
        let recoverable =
            |e: &Error, k: usize| (open && !e.is_fatal()) || (repeats(k) && (alone || e.is_memory()));
        let mut next_attempt = Some(from).filter(|&from| from < self.fallbacks.len());
        while let Some(k) = next_attempt {
            interrupt::check_together(self.space.comm())?;
            self.impossible.retain(|&known| known != k);
            self.impossible.push(k); // removed below if it is set up
            next_attempt = self.after(k);
            let attempt = self.fallbacks[k].clone();
            let goes_on = |why: String, fallbacks: &[Attempt], next: Option<usize>| {
                let next =
                    next.map_or("; no attempt is left".into(), |n| format!("{NEXT}{}", fallbacks[n].name()));
                let detail = format!("{}: {why}{next}", attempt.name());
                Event::new(EventKind::Fallback, Some(done.unwrap_or(0)), detail)
            };
            if k > 0 {
                let large = fallbacks::too_large(local.terms, &attempt, &self.options, self.room);
                if self.space.any(large.is_some())? {
                    self.pending.push(goes_on(
                        "it may not fit in memory".into(),
                        &self.fallbacks,
                        next_attempt,
                    ));
                    self.too_large = (self.too_large.0 + 1, large.or(self.too_large.1.take()));
                    continue;
                }
            }
            let of = |a: &Attempt| (a.precond.clone(), a.equilibrate, a.matching);
            let same = of(&attempt) == of(&before);
            let kept = kept.take().filter(|_| same && done.is_some());
            // `auto` limits the operations of a set-up, so that it abandons the set-up before that takes
            // longer than direct factors would.
            let operations = open.then(|| FILL[0] + FILL[1] * local.unknowns as u64);
            let _bounds = Bounds { operations, seconds: self.options.time_limit }.enter();
            match self.set_up(local, k, kept) {
                Ok(current) => {
                    (self.current, self.next_attempt) = (Some(current), k);
                    self.pending.extend(self.matching.clone().filter(|_| attempt.matching));
                    self.impossible.pop();
                    return Ok(());
                }
                Err(e) if e.is_interrupt() => {
                    self.impossible.pop(); // the next solve sets it up
                    return Err(e);
                }
                // Another preconditioner may be possible. If a device or a rank has failed, every attempt
                // would fail.
                Err(e) if recoverable(&e, k) && (next_attempt.is_some() || done.is_some()) => {
                    if alone && matches!(e, Error::TooLong { .. }) {
                        self.impossible.extend(fallbacks::deeper(&self.fallbacks, k));
                        next_attempt = self.after(k);
                    } else if !e.is_memory() && !matches!(e, Error::TooLong { .. }) {
                        self.impossible.extend(fallbacks::with_same_factors(&self.fallbacks, k));
                        next_attempt = self.after(k);
                    }
                    self.pending.push(goes_on(e.to_string(), &self.fallbacks, next_attempt));
                    if e.is_memory() {
                        self.too_large = (self.too_large.0 + 1, Some(e));
                    }
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Sets up the preconditioner and the method of attempt k. Collective; every rank gets the same error.
    fn set_up(
        &mut self,
        local: &LocalProblem,
        k: usize,
        kept: Option<(Boxed<S>, Arc<PrecondInfo>)>,
    ) -> Result<Current<S>> {
        let asked = self.precond_precision();
        let precision = self.stored_in();
        let (space, mut notes) = (&self.space, Vec::new());
        let attempt = &self.fallbacks[k];
        let (p, info) = match kept {
            Some(kept) => kept,
            None => {
                // The set-up analyses a copy on the device. A system from the host was uploaded for the first
                // attempt and freed afterwards, so upload it again.
                let upload = profile::begin(SetupPart::Upload);
                let placed = agree(space.comm(), space.place(local.terms))?;
                drop(upload);
                let local = &LocalProblem { terms: &placed, precond_precision: asked, ..*local };
                let known = self.diagnosis.known(&self.matched);
                let wanted = self.wanted(attempt);
                let (p, info) =
                    super::build::build(space, local, &wanted, precision, &self.a, known, &mut notes)?;
                (p, Arc::new(info))
            }
        };
        let _method = profile::begin(SetupPart::Method);
        let narrow = info.is_narrow(asked);
        if let (Some(p), true) =
            (&p, attempt.method.is_complex() && attempt.method.name() == MethodName::Gmres)
            && !complex::is_linear(space, p, local, narrow)?
        {
            self.fallbacks[k].method = attempt.method.with_complex(false);
        }
        let attempt = &self.fallbacks[k];
        let (a, on) = (&*self.a, (space, &mut self.on));
        let (method, is_whole) =
            self.sharing.method(on, local, attempt, (a, &p, &info), &mut self.choices)?;
        self.pending.extend(notes.into_iter().map(|note| Event::new(EventKind::Fallback, None, note)));
        Ok(Current { p, info, method, is_whole, shared: None, is_turned: false })
    }

    /// Runs attempts until one solves the system or none is left. Residuals are in the units of `rhs`.
    fn attempts(
        &mut self,
        local: &LocalProblem,
        run: &Run,
        stop: Stop,
        rhs: Numbers,
        mut x: NumbersMut,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        let (mut best, mut plain, mut moved, mut first) = (f64::INFINITY, f64::INFINITY, 0.0, true);
        let mut halted = None;
        self.solution.history.clear();
        self.ended.clear();
        loop {
            let (done, k) = (self.solution.history.iterations, self.next_attempt);
            let Attempt { method, equilibrate, matching, budget, .. } = self.fallbacks[k];
            let narrow = self.is_narrow();
            let is_last = self.after(k).is_none();
            let direct = self.direct_from(k).filter(|&d| d > k);
            let left = stop.max_iters - done;
            let each = self.bytes_of_iteration(FEW);
            let left = direct.map_or(left, |_| left.min(self.before_direct.left(done, moved, each)));
            let budget = direct.map_or(budget, |_| self.before_direct.tighten(budget, each));
            let own = Stop { max_iters: left, ..stop.continued(&self.solution.history) };
            let mut restarts = std::mem::take(&mut self.restarts);
            let rises = method.is_cg();
            let pace = (!is_last).then(|| Pace::new(rises, budget));
            let (base, mut limit) = (budget, self.before_direct);
            let mut refined = || {
                limit.refine(local);
                limit.tighten(base, each)
            };
            let mut watch = Watch::new(run, &mut *observer, done, &mut restarts, pace);
            let at = direct.and_then(|_| self.before_direct.refined_at(each));
            watch.later = at.map(|at| Later { at, budget: &mut refined });
            watch.standstill = narrow.then(|| Standstill::new(rises));
            let start = Instant::now();
            let solved = self.column.take().map_or(Ok(None), |column| self.take_solved(column, &stop))?;
            let ended = match &solved {
                None => self.attempt(local, own, rhs, x.as_array(), &mut watch),
                Some(_) => Ok(()),
            };
            halted = watch.halted.or(halted);
            let too_slow = watch.too_slow().filter(|_| watch.halted.is_none());
            self.before_direct = limit;
            match solved {
                None => self.restarts = restarts,
                Some((seconds, why)) => {
                    self.solution.solve_seconds += seconds;
                    halted = why.or(halted);
                }
            }
            ended?;
            self.solution.solve_seconds += start.elapsed().as_secs_f64();
            if too_slow.is_some() && self.history.outcome == Outcome::Interrupted {
                self.history.outcome = Outcome::Stagnated;
            }
            let iterations = self.history.iterations;
            moved += self.bytes_of_iteration(iterations) * iterations.max(1) as f64;
            let info = &self.current.as_ref().expect("it was just solved with").info;
            (self.solution.precond, self.solution.share) = (info.clone(), self.sharing.name());
            (self.solution.method, self.solution.equilibrated) = (method, equilibrate);
            self.solution.matched = matching;
            let residual = self.history.criterion_value;
            let before = best;
            if first {
                plain = if stop.is_usual() { f64::INFINITY } else { self.history.true_relative_residual };
                best = self.history.residuals.first().copied().unwrap_or(f64::INFINITY);
            }
            // If the residual of the initial guess is not finite, any x is better.
            if residual <= best || !best.is_finite() || (self.fallbacks.len() == 1 && !narrow) {
                (best, plain) = (residual, self.history.true_relative_residual);
                match &self.passes {
                    None => self.space.read_into(&self.on.x, x.reborrow())?,
                    Some(passes) => x.write(&passes.x)?,
                }
            }
            let unstable = self.unstable_factors(local)?;
            let again =
                fallbacks::worth_another(&self.history) && done + self.history.iterations < stop.max_iters;
            self.solution.add_restarts(&mut self.restarts);
            match first {
                true => copy_history(&mut self.solution.history, &self.history),
                false => fallbacks::join(&mut self.solution.history, &self.history),
            }
            first = false;
            let promotes = again && narrow && self.promotes(too_slow);
            if too_slow.is_none() && !promotes {
                self.ended.extend(fallbacks::that_end_so(&self.fallbacks, k, &self.history));
            }
            let next = match Some(k).filter(|_| promotes).or_else(|| self.after(k)) {
                Some(next) if again && !self.is_crowded(local, stop, rhs, best)? => next,
                _ => {
                    let last = |why| format!("{}: {why}; no attempt is left", self.fallbacks[k].name());
                    let at = Some(self.solution.history.iterations);
                    let last = unstable.map(|why| Event::new(EventKind::Fallback, at, last(why)));
                    self.pending.extend(last);
                    break;
                }
            };
            if self.is_singular_after_all(local, stop, rhs)?
                || self.unusual_floor(local, &stop, rhs)?.is_some()
            {
                break;
            }
            let Some(next) = self.after_singular(next, best > STUCK * before) else { break };
            let iterations = self.solution.history.iterations;
            let next = self.next_or_direct(local, next, (iterations, moved), too_slow);
            let name = self.fallbacks[k].name();
            let mut next_name = self.fallbacks[next].name();
            if promotes {
                self.promote_if(true);
                next_name += if next == k { " in f64" } else { "" };
            }
            let ended = fallbacks::ending(&self.history, too_slow, unstable);
            let detail = format!("{name}: {ended}{NEXT}{next_name}");
            self.pending.push(Event::new(EventKind::Fallback, Some(iterations), detail));
            match self.climb(local, next, Some(iterations)) {
                Err(e) if e.is_interrupt() => {
                    halted = Some(run.limits.reached().unwrap_or("cancelled")); // or another rank
                    self.solution.history.outcome = Outcome::Interrupted;
                }
                done => done?,
            }
            if self.current.is_none() {
                break;
            }
        }
        // If no attempt was better than the initial guess, the residual is that of the guess.
        let kept = if stop.is_usual() { best } else { plain };
        (self.solution.history.true_relative_residual, self.solution.history.criterion_value) = (kept, best);
        let mut bytes = [moved / self.solution.history.iterations.max(1) as f64];
        self.space.comm().sum(&mut bytes)?;
        self.solution.bytes_per_iteration = bytes[0];
        if let Some(why) = halted {
            let at = Some(self.solution.history.iterations);
            self.solution.events.push(Event::new(EventKind::Interrupted, at, why));
        }
        Ok(())
    }
}

impl<S: SolverSpace> Rank<S> {
    /// Solves the system from `x`.
    fn solved(
        &mut self,
        local: &LocalProblem,
        run: &Run,
        rhs: Numbers,
        mut x: NumbersMut,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        self.column = run.column;
        let solution = &mut self.solution;
        (solution.solve_seconds, solution.setup_seconds) = (0.0, 0.0);
        solution.clear_events();
        solution.events.extend(self.choices.iter().cloned());
        self.promote_if(run.promoted);
        if self.current.is_none() {
            self.climb(local, self.next_attempt, None)?;
        }
        self.climb_if_repaid(local, run)?;
        if self.current.is_none() {
            return Err(self.nothing_to_try());
        }
        let room = run.stop.max_iters.min(1 << 20) + 1;
        for history in [&mut self.history, &mut self.solution.history] {
            history.residuals.reserve(room.saturating_sub(history.residuals.len()));
        }
        self.lost = true; // from here on, this rank may fail alone
        if !self.without_solution(local, run, rhs, x.reborrow(), observer)? {
            self.attempts_on_host_if_refining(local, run, run.stop, rhs, x.reborrow(), observer)?;
            let failed = fallbacks::worth_another(&self.solution.history);
            if failed && self.finds_singular_parts(local, x.reborrow())? {
                self.without_solution(local, run, rhs, x, observer)?;
            }
            if failed {
                self.names_inconsistency(local, run, rhs)?;
            }
        }
        self.report_symmetry(local)?;
        self.lost = false;
        let solution = &mut self.solution;
        self.spent = [self.spent[0] + 1, self.spent[1] + solution.history.iterations];
        solution.target = run.stop.relative_target(&solution.history);
        solution.setup_parts = profile::take();
        solution.setup_seconds = solution.setup_parts.total();
        solution.phases = self.sharing.take_phases().or(self.space.take_phases());
        solution.format = self.sharing.format(self.a.borrow().format());
        solution.device_memory = self.space.memory_held().max(solution.device_memory);
        // Events are sorted by kind, and fallbacks come before restarts.
        let at = solution.events.iter().position(|e| e.kind > EventKind::Fallback);
        let at = at.unwrap_or(solution.events.len());
        self.pending.drain(..).fold(at, |at, event| solution.insert(at, event));
        Ok(())
    }
}

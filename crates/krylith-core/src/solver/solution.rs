//! The result of a solve: outcome, method and preconditioner, device, and events.

use super::diagnosis::Diagnosis;
use crate::Outcome;
use crate::method::MethodSpec;
use crate::operator::Format;
use crate::precond::PrecondInfo;
use crate::profile::SetupParts;
use crate::space::{History, Phases};
use crate::text::count;
use std::borrow::Cow;
use std::sync::Arc;

/// The result of a solve. A [`Solver`](crate::Solver) keeps the result of its last solve.
///
/// # Examples
/// ```
/// use krylith::{Outcome, matrix::Csr};
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 4.0), (0, 1, 1.0), (1, 1, 2.0)])?;
/// let solution = krylith::solve(&a, &[5.0, 2.0])?;
/// assert_eq!(solution.outcome(), Outcome::Converged);
/// println!("{} with {} on {}", solution.method.title(), solution.precond.text, solution.device.names[0]);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Solution {
    /// The solution x of [`krylith::solve`](crate::solve); empty if the caller supplied a vector for x.
    pub x: Vec<f64>,
    /// Outcome, iterations and residuals. The residuals of all attempts form one curve.
    pub history: History,
    /// The method of the last attempt.
    pub method: MethodSpec,
    /// The preconditioner of the last attempt.
    pub precond: Arc<PrecondInfo>,
    /// The storage format of the matrix on the first rank. It is `auto` for blocks and sums of terms, which
    /// have their own formats.
    pub format: Format,
    /// How ranks shared products, as in the option `share`: `halo`, or a mode with whole vectors. `None` on
    /// one rank.
    pub share: Option<Arc<str>>,
    /// True if rows and columns were scaled for the preconditioner.
    pub equilibrated: bool,
    /// True if rows were matched with columns for the preconditioner, and both scaled by the matching.
    pub matched: bool,
    /// Number of null vectors projected out.
    pub null_vectors: usize,
    /// True if A = Aᵀ without fixed unknowns, as tested by two products. `None` unless CG was an option or
    /// has failed.
    pub symmetric: Option<bool>,
    /// Findings about the entries, such as empty rows and zero diagonal entries.
    pub diagnosis: Arc<Diagnosis>,
    /// The device that solved.
    pub device: Arc<DeviceUsed>,
    /// The tolerance on ‖r‖/‖b‖, or on the quantity of another criterion; on ‖r‖ if b is zero. The history
    /// has the criterion and the value that was reached.
    pub target: f64,
    /// ‖D⁻¹(b − A x)‖/‖D⁻¹b‖, where D is diagonal with the 1-norms of the rows. Only for a converged solve
    /// whose rows differ in scale by more than 1e6.
    pub row_scaled_residual: Option<f64>,
    /// Choices, fallbacks, refinements and restarts, in that order. What happens again is one event.
    pub events: Vec<Event>,
    /// The iterations at which the method restarted.
    pub(super) restarted: Vec<usize>,
    /// Seconds of set-up since the previous solve, for device, operator, preconditioners and workspaces.
    pub setup_seconds: f64,
    /// Seconds of set-up by part, on the first rank.
    pub setup_parts: SetupParts,
    /// Seconds of iterations.
    pub solve_seconds: f64,
    /// Seconds of iterations by phase, if the device records them.
    pub phases: Option<Phases>,
    /// Bytes that one iteration moves on all ranks, computed by a model and not measured.
    pub bytes_per_iteration: f64,
    /// Largest number of bytes that a device of this process has allocated for the solver, if known.
    pub device_memory: Option<u64>,
}

impl Solution {
    /// Returns the solution of a solver before its first solve.
    pub(super) fn unsolved(method: MethodSpec) -> Self {
        Self {
            x: Vec::new(),
            history: History::with_capacity(0),
            method,
            precond: Arc::default(),
            format: Format::default(),
            share: None,
            equilibrated: false,
            matched: false,
            null_vectors: 0,
            symmetric: None,
            diagnosis: Arc::default(),
            device: Arc::default(),
            target: 0.0,
            row_scaled_residual: None,
            events: Vec::new(),
            restarted: Vec::new(),
            setup_seconds: 0.0,
            setup_parts: SetupParts::default(),
            solve_seconds: 0.0,
            phases: None,
            bytes_per_iteration: 0.0,
            device_memory: None,
        }
    }

    /// Copies everything but x, without allocating.
    pub(super) fn copy_from(&mut self, other: &Solution) {
        copy_history(&mut self.history, &other.history);
        (self.method, self.precond) = (other.method, other.precond.clone());
        (self.format, self.share) = (other.format, other.share.clone());
        (self.equilibrated, self.null_vectors) = (other.equilibrated, other.null_vectors);
        (self.matched, self.symmetric) = (other.matched, other.symmetric);
        (self.device, self.target) = (other.device.clone(), other.target);
        self.diagnosis = other.diagnosis.clone();
        self.row_scaled_residual = other.row_scaled_residual;
        self.clear_events();
        self.events.extend(other.events.iter().cloned());
        self.restarted.extend_from_slice(&other.restarted);
        (self.setup_seconds, self.solve_seconds) = (other.setup_seconds, other.solve_seconds);
        self.setup_parts = other.setup_parts;
        (self.phases, self.bytes_per_iteration) = (other.phases, other.bytes_per_iteration);
        self.device_memory = other.device_memory;
    }

    /// Returns the outcome of the solve.
    pub fn outcome(&self) -> Outcome {
        self.history.outcome
    }

    /// Returns true if the recomputed residual b − A x meets the tolerance, in the chosen criterion.
    pub fn converged(&self) -> bool {
        self.outcome() == Outcome::Converged
    }

    /// Returns the first iteration and the name of each attempt; empty if there was only one attempt.
    pub fn attempts(&self) -> Vec<(usize, &str)> {
        let mut begun: Vec<(usize, &str)> = Vec::new();
        for event in self.events.iter().filter(|e| e.kind == EventKind::Fallback) {
            let Some((iteration, next)) = event.iteration.zip(event.detail.rsplit_once(NEXT)) else {
                continue;
            };
            if begun.is_empty() {
                begun.extend(next.0.split_once(": ").map(|(first, _)| (0, first)));
            }
            // Drop attempts that could not be set up, because they did not begin.
            begun.retain(|attempt| attempt.0 < iteration);
            begun.push((iteration, next.1));
        }
        begun
    }

    /// Returns the iterations at which the method restarted.
    pub fn restarts(&self) -> impl Iterator<Item = usize> + '_ {
        self.restarted.iter().copied()
    }

    /// Forgets the events of the last solve.
    pub(super) fn clear_events(&mut self) {
        self.events.clear();
        self.restarted.clear();
    }

    /// Inserts an event, or counts it if it has happened before. A fallback to another attempt is always
    /// inserted. Returns the place for the next event.
    pub(super) fn insert(&mut self, at: usize, event: Event) -> usize {
        let is_same = |known: &&mut Event| known.kind == event.kind && known.detail == event.detail;
        match self.events.iter_mut().find(is_same).filter(|_| !event.detail.contains(NEXT)) {
            Some(known) => {
                known.times += event.times;
                at
            }
            None => {
                self.events.insert(at, event);
                at + 1
            }
        }
    }

    /// Adds the restarts of an attempt, with their iterations and reasons.
    pub(super) fn add_restarts(&mut self, restarts: &mut Vec<(usize, &'static str)>) {
        for (iteration, why) in restarts.drain(..) {
            self.restarted.push(iteration);
            self.insert(self.events.len(), Event::new(EventKind::Restart, Some(iteration), why));
        }
    }
}

/// Separator before the name of the next attempt in the detail of an [`EventKind::Fallback`].
pub(super) const NEXT: &str = "; next ";

/// The device that a solve ran on.
///
/// # Examples
/// ```
/// let a = krylith::matrix::Csr::from_triplets(1, 1, &[(0, 0, 2.0)])?;
/// let device = krylith::solve(&a, &[4.0])?.device;
/// println!("on {} ({}): {}", device.names.join(", "), device.kind, device.reason);
/// assert_eq!((device.ranks, device.names.len()), (1, 1));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeviceUsed {
    /// `cpu` or `cuda`.
    pub kind: &'static str,
    /// The name of each rank's device.
    pub names: Vec<String>,
    /// Number of CPU threads that solve, or number of host threads that drive GPUs.
    pub threads: usize,
    /// The reason for this device.
    pub reason: String,
    /// Number of ranks that solve together: processes, or GPUs of this process.
    pub ranks: usize,
}

/// An event of a solve, such as a choice, a fallback or a restart.
///
/// # Examples
/// [`Solution::events`] has them.
/// ```
/// use krylith::{matrix::Csr, solver::EventKind};
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 4.0), (0, 1, 1.0), (1, 1, 2.0)])?;
/// let solution = krylith::solve(&a, &[5.0, 2.0])?;
/// for event in solution.events.iter().filter(|e| e.kind == EventKind::Choice) {
///     println!("{}", event.detail); // what was picked, and why
/// }
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The kind of event.
    pub kind: EventKind,
    /// The iteration at which it happened first, if it belongs to one.
    pub iteration: Option<usize>,
    /// A description of the event, as text.
    pub detail: Cow<'static, str>,
    /// How often it happened.
    pub times: usize,
}

impl Event {
    /// Creates an event, with an iteration if it belongs to one.
    pub fn new(kind: EventKind, iteration: Option<usize>, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, iteration, detail: detail.into(), times: 1 }
    }

    /// Returns the detail, and how often it happened if that was more than once.
    pub fn words(&self) -> Cow<'static, str> {
        match self.times {
            1 => self.detail.clone(),
            n => format!("{} ({} times)", self.detail, count(n)).into(),
        }
    }
}

/// Kinds of [`Event`], in the order in which a solution lists them.
///
/// # Examples
/// ```
/// use krylith::solver::EventKind;
/// assert!(EventKind::Choice < EventKind::Restart); // in the order of a solution's events
/// assert_eq!(EventKind::Fallback.name(), "fallback");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum EventKind {
    /// `auto` made a choice that the options did not make.
    Choice,
    /// An attempt failed, and another follows.
    Fallback,
    /// Iterative refinement with residuals in f64, because the matrix or the preconditioner is stored in
    /// lower precision.
    Refinement,
    /// The method restarted from the recomputed residual.
    Restart,
    /// The system has no solution within the tolerance. The detail gives the reason.
    Inconsistent,
    /// The solve meets the options as given, but the result may not be what the user intended.
    Warning,
    /// The solve was cancelled or reached its time limit.
    Interrupted,
}

impl EventKind {
    /// Returns the name in reports.
    pub fn name(self) -> &'static str {
        match self {
            EventKind::Choice => "choice",
            EventKind::Fallback => "fallback",
            EventKind::Refinement => "refinement",
            EventKind::Restart => "restart",
            EventKind::Inconsistent => "inconsistent",
            EventKind::Warning => "warning",
            EventKind::Interrupted => "interrupted",
        }
    }
}

/// Copies a history without allocating.
pub(super) fn copy_history(to: &mut History, from: &History) {
    let room = from.residuals.capacity();
    to.residuals.clear();
    to.residuals.reserve(room); // keep the capacity for the limit
    to.residuals.extend_from_slice(&from.residuals);
    (to.outcome, to.iterations, to.restarts) = (from.outcome, from.iterations, from.restarts);
    (to.reductions, to.rhs_norm) = (from.reductions, from.rhs_norm);
    (to.true_relative_residual, to.rounding) = (from.true_relative_residual, from.rounding);
    (to.criterion, to.relative_to) = (from.criterion, from.relative_to);
    (to.criterion_value, to.reference) = (from.criterion_value, from.reference);
    to.reason = from.reason;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_are_those_that_iterated() {
        let a = crate::matrix::Csr::from_triplets(1, 1, &[(0, 0, 2.0)]).unwrap();
        let mut solution = crate::solve(&a, &[1.0]).unwrap();
        assert!(solution.attempts().is_empty());
        let told = |at, text: &'static str| Event::new(EventKind::Fallback, at, text);
        solution.events = vec![
            told(None, "the operator was set up again"),
            told(Some(7), "jacobi with cg: breakdown at relative residual 1.00e0; next ildu with gmres(30)"),
            told(Some(7), "ildu with gmres(30): block row 3: singular; next ras with gmres(30)"),
            told(Some(90), "ras with gmres(30): no progress; next ras:fill=3 with gmres(100)"),
            told(Some(120), "ras:fill=3 with gmres(100): stagnated; no attempt is left"),
        ];
        let names = [(0, "jacobi with cg"), (7, "ras with gmres(30)"), (90, "ras:fill=3 with gmres(100)")];
        assert_eq!(solution.attempts(), names);
    }
}

//! What a solve answers: how it went, by what means, where, and what happened on the way.

use super::diagnosis::Diagnosis;
use crate::Outcome;
use crate::method::MethodSpec;
use crate::operator::Format;
use crate::precond::PrecondInfo;
use crate::profile::SetupParts;
use crate::space::{History, Phases};
use std::borrow::Cow;
use std::sync::Arc;

/// How a solve went. A [`Solver`](crate::Solver) keeps that of its last solve.
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
    /// x, from [`krylith::solve`](crate::solve); empty where the caller brought an x of its own.
    pub x: Vec<f64>,
    /// Outcome, iterations and residuals of all attempts as one curve.
    pub history: History,
    /// The method that ended the solve.
    pub method: MethodSpec,
    /// Its preconditioner.
    pub precond: Arc<PrecondInfo>,
    /// How the product is stored on the first rank; `auto` for blocks and sums of terms, which have formats of their own.
    pub format: Format,
    /// Rows and columns were scaled for it.
    pub equilibrated: bool,
    /// Rows were matched with columns for it, and both scaled by that.
    pub matched: bool,
    /// Null vectors projected out.
    pub null_vectors: usize,
    /// Whether A = Aᵀ, by two products, where that counts: before CG, and where CG has failed.
    pub symmetric: Option<bool>,
    /// What the entries tell, such as empty rows and diagonal entries that are zero.
    pub diagnosis: Arc<Diagnosis>,
    /// Where it ran.
    pub device: Arc<DeviceUsed>,
    /// ‖r‖/‖b‖ that was to be reached.
    pub target: f64,
    /// ‖D⁻¹(b − A x)‖/‖D⁻¹b‖, D the 1-norms of the rows, of a converged solve whose rows differ in scale by more than 1e6.
    pub row_scaled_residual: Option<f64>,
    /// Choices, fallbacks, refinements and restarts, in that order.
    pub events: Vec<Event>,
    /// Seconds of set-up since the solve before: the device, the operator, preconditioners, workspaces.
    pub setup_seconds: f64,
    /// The same by part, of the first rank.
    pub setup_parts: SetupParts,
    /// Seconds of iterating.
    pub solve_seconds: f64,
    /// Where the time of iterating went, if the device keeps it.
    pub phases: Option<Phases>,
    /// Bytes that an iteration moves on all ranks, counted and not measured.
    pub bytes_per_iteration: f64,
    /// Most bytes that a device of this process has held for the solver, where it is known.
    pub device_memory: Option<u64>,
}

impl Solution {
    /// Becomes the same but for x, in the room that it has.
    pub(super) fn copy_from(&mut self, other: &Solution) {
        copy_history(&mut self.history, &other.history);
        (self.method, self.precond) = (other.method, other.precond.clone());
        self.format = other.format;
        (self.equilibrated, self.null_vectors) = (other.equilibrated, other.null_vectors);
        (self.matched, self.symmetric) = (other.matched, other.symmetric);
        (self.device, self.target) = (other.device.clone(), other.target);
        self.diagnosis = other.diagnosis.clone();
        self.row_scaled_residual = other.row_scaled_residual;
        self.events.clear();
        self.events.extend(other.events.iter().cloned());
        (self.setup_seconds, self.solve_seconds) = (other.setup_seconds, other.solve_seconds);
        self.setup_parts = other.setup_parts;
        (self.phases, self.bytes_per_iteration) = (other.phases, other.bytes_per_iteration);
        self.device_memory = other.device_memory;
    }

    /// How the solve ended.
    pub fn outcome(&self) -> Outcome {
        self.history.outcome
    }

    /// True where the true residual is within tolerance.
    pub fn converged(&self) -> bool {
        self.outcome() == Outcome::Converged
    }

    /// The iteration at which each attempt of a ladder began, and its name: empty where the first one was the only one.
    pub fn attempts(&self) -> Vec<(usize, &str)> {
        let mut begun: Vec<(usize, &str)> = Vec::new();
        for event in self.events.iter().filter(|e| e.kind == EventKind::Fallback) {
            let Some((iteration, next)) = event.iteration.zip(event.detail.rsplit_once(NEXT)) else {
                continue;
            };
            if begun.is_empty() {
                begun.extend(next.0.split_once(": ").map(|(first, _)| (0, first)));
            }
            // One that could not be set up did not begin.
            begun.retain(|attempt| attempt.0 < iteration);
            begun.push((iteration, next.1));
        }
        begun
    }

    /// Iterations at which the method began anew.
    pub fn restarts(&self) -> impl Iterator<Item = usize> + '_ {
        self.events.iter().filter(|e| e.kind == EventKind::Restart).filter_map(|e| e.iteration)
    }
}

/// What stands before the name of the next attempt in the detail of a [`EventKind::Fallback`].
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
    /// Threads of the CPU team; host threads beside GPUs.
    pub threads: usize,
    /// Why this one.
    pub reason: String,
    /// Ranks that solve together: processes, or GPUs of this one.
    pub ranks: usize,
}

/// Something that happened on the way.
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
    /// What kind of thing.
    pub kind: EventKind,
    /// When, where there is a when.
    pub iteration: Option<usize>,
    /// In words.
    pub detail: Cow<'static, str>,
}

impl Event {
    /// An event, at an iteration where it has one.
    pub fn new(kind: EventKind, iteration: Option<usize>, detail: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, iteration, detail: detail.into() }
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
    /// Something that was left open was decided.
    Choice,
    /// An attempt ended without an answer, and another follows.
    Fallback,
    /// Passes against the matrix in f64, where less is stored.
    Refinement,
    /// The method began anew from the true residual.
    Restart,
    /// The system has no solution within the tolerance, and why.
    Inconsistent,
    /// What was asked for holds, and may not be what was meant.
    Warning,
    /// The solve was stopped.
    Interrupted,
}

impl EventKind {
    /// Its name in reports.
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

/// Makes `to` the same history, in the room that it has.
pub(super) fn copy_history(to: &mut History, from: &History) {
    let room = from.residuals.capacity();
    to.residuals.clear();
    to.residuals.reserve(room); // what the limit of iterations allows
    to.residuals.extend_from_slice(&from.residuals);
    (to.outcome, to.iterations, to.restarts) = (from.outcome, from.iterations, from.restarts);
    (to.reductions, to.rhs_norm) = (from.reductions, from.rhs_norm);
    (to.true_relative_residual, to.rounding) = (from.true_relative_residual, from.rounding);
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
            told(None, "the operator was set up anew"),
            told(Some(7), "jacobi with cg: breakdown at relative residual 1.00e0; next ildu with gmres(30)"),
            told(Some(7), "ildu with gmres(30): block row 3: singular; next ras with gmres(30)"),
            told(Some(90), "ras with gmres(30): no progress; next ras:fill=3 with gmres(100)"),
            told(Some(120), "ras:fill=3 with gmres(100): stagnated; nothing stronger is left"),
        ];
        let names = [(0, "jacobi with cg"), (7, "ras with gmres(30)"), (90, "ras:fill=3 with gmres(100)")];
        assert_eq!(solution.attempts(), names);
    }
}

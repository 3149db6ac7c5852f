//! Time of an iteration of unpreconditioned GMRES(30), and of its parts: on one device, and on several GPUs.

use super::{Plan, RESTART};
use crate::platform::Platform;
use crate::publish::Check;
use crate::samples::{Samples, in_turn};
use crate::systems::{self, Case};
use crate::textbook::{Ours, Session, Textbook, Timer, Times};
use krylith_core::method::GmresOptions;
use krylith_core::operator::Terms;
use krylith_core::{Error, Precision, Result};
use std::rc::Rc;

/// A solver on one device, or on a number of GPUs.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub name: String,
    pub ours: bool,
    /// Bytes that the orthogonalisation of a rank reads and writes per iteration if no cache holds anything;
    /// 0 if unknown.
    pub traffic: f64,
    /// Seconds of whole solves without instrumentation, on the slowest rank.
    pub samples: Samples,
    /// Seconds of each part per solve, from separate instrumented solves; the largest over the ranks.
    pub times: Vec<Times>,
    /// ‖r‖/‖b‖.
    pub residuals: Vec<f64>,
    /// Outcome of the fixed number of iterations, for Krylith.
    pub outcome: &'static str,
    /// Largest difference from the reference's residuals over the first cycle.
    pub agreement: f64,
    /// ‖b − A x‖/‖b‖ by a loop on the host, or the reason of a failure.
    pub check: Check,
}

impl Row {
    pub fn iterations(&self) -> usize {
        self.residuals.len().saturating_sub(1).max(1)
    }
    /// Returns the seconds per iteration.
    pub fn iteration(&self) -> f64 {
        self.samples.median() / self.iterations() as f64
    }
    /// Returns the seconds of each part per solve: the mean of the instrumented runs.
    pub fn parts(&self) -> [f64; 5] {
        Times::mean(&self.times).0
    }

    fn failed(entry: &Entry, place: &str, e: &Error) -> Self {
        Self {
            name: entry.name.clone(),
            ours: entry.ours,
            traffic: entry.traffic,
            samples: Samples::default(),
            times: Vec::new(),
            residuals: Vec::new(),
            outcome: "",
            agreement: f64::NAN,
            check: Err(format!("{}{place}: {e}", entry.name)),
        }
    }
}

/// A solver to be measured.
pub(super) struct Entry<'a> {
    pub name: String,
    pub ours: bool,
    /// True if everything is in f64, so that its residuals must agree with the others'.
    pub exact: bool,
    /// As in [`Row::traffic`].
    pub traffic: f64,
    pub session: Result<Box<dyn Session + 'a>>,
}

/// Number of solves to time.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rounds {
    pub warm: usize,
    pub solves: usize,
    /// Number of instrumented solves, after one that creates the events.
    pub timed: usize,
}

/// Returns every solver on one device.
pub(super) fn on_one<'a, P: Platform>(p: &'a P, case: &Case, plan: &Plan) -> Result<Vec<Entry<'a>>>
where
    P::Space: 'a,
{
    let (k, rhs) = (&case.kronecker, case.rhs.as_slice());
    let timer = || -> Timer<'a> { Box::new(|work| p.time(work)) };
    let textbook = |machine: Box<dyn crate::textbook::Machine + 'a>| {
        let (name, norm) = (machine.name(), case.norm());
        let time = timer();
        let session = Textbook { machine, restart: RESTART, iterations: plan.iterations, norm, time };
        Entry { name, ours: false, exact: true, traffic: 0.0, session: Ok(Box::new(session)) }
    };
    let mut all: Vec<Entry> = p.machines(k, rhs, RESTART)?.into_iter().map(textbook).collect();
    let (space, terms) = (Rc::new(p.space(k.rows())?), Terms::kronecker(k));
    for (dense, basis) in [(true, Precision::F64), (false, Precision::F64), (false, Precision::F32)] {
        // If structure is not used, the structured row would repeat the dense one.
        let dense = match (dense || p.structures(), basis) {
            (true, _) => dense,
            (false, Precision::F32) => true,
            (false, Precision::F64) => continue,
        };
        let blocks = if dense { "dense" } else { "structured" };
        let f32_basis = if basis == Precision::F32 { ", f32 basis" } else { "" };
        let options = GmresOptions { restart: RESTART, basis, ..GmresOptions::default() };
        let keep = |space: &P::Space, on| p.keep_time(space, on);
        let session = Ours::new(&space, (&terms, rhs), dense, (options, plan.iterations), timer(), keep)?;
        all.push(Entry {
            name: format!("Krylith, {blocks} blocks{f32_basis}"),
            ours: true,
            exact: basis == Precision::F64,
            traffic: 0.0,
            session: Ok(Box::new(session)),
        });
    }
    Ok(all)
}

/// Measures every solver on the same devices: first all are checked, then timed in turn. A solver that fails
/// in between loses its times; the others continue.
pub(super) fn measure(
    mut entries: Vec<Entry>,
    place: &str,
    case: &Case,
    rounds: Rounds,
    mut reference: Option<Vec<f64>>,
) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for entry in &mut entries {
        let row = first(entry, case, &mut reference).unwrap_or_else(|e| Row::failed(entry, place, &e));
        if row.check.is_err() {
            entry.session = Err(Error::invalid("it is not timed"));
        }
        rows.push(row);
    }
    let samples = in_turn(rows.len(), rounds.warm, rounds.solves, |i| {
        let Ok(session) = &mut entries[i].session else { return Ok(f64::NAN) };
        Ok(session.solve(false).map(|solve| solve.seconds).unwrap_or_else(|e| {
            rows[i] = Row::failed(&entries[i], place, &e);
            entries[i].session = Err(e);
            f64::NAN
        }))
    })?;
    for ((row, samples), entry) in rows.iter_mut().zip(samples).zip(&mut entries) {
        let Ok(session) = &mut entry.session else { continue };
        row.samples = samples;
        let times: Result<Vec<Times>> =
            (0..=rounds.timed).map(|_| session.solve(true).map(|solve| solve.times)).collect();
        match times {
            Ok(times) => row.times = times[1..].to_vec(),
            Err(e) => *row = Row::failed(entry, place, &e),
        }
    }
    Ok(rows)
}

/// Runs and checks the first solve. Its residuals become the reference if there is none yet.
fn first(entry: &mut Entry, case: &Case, reference: &mut Option<Vec<f64>>) -> Result<Row> {
    let Entry { name, ours, exact, traffic, session } = entry;
    let session = match session {
        Ok(session) => session,
        Err(e) => return Err(std::mem::replace(e, Error::invalid("it could not be made"))),
    };
    let made = session.solve(false)?;
    let (residuals, outcome) = (made.residuals, made.outcome);
    let end = systems::residual(&case.kronecker, &case.rhs, &session.solution()?) / case.norm();
    // Cycles end with the true residual, so the last one of the history must be that of the solution.
    let last = residuals.last().copied().unwrap_or(f64::NAN);
    let reference = reference.get_or_insert_with(|| residuals.clone());
    let cycle = residuals.iter().zip(&*reference).take(RESTART + 1);
    let agreement = cycle.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    let check = if !((end - last).abs() <= 1e-9 + 1e-6 * end) {
        Err(format!("{name}: the residual of the answer is {end:e}, its history ends at {last:e}"))
    } else if *exact && !(agreement <= 1e-8) {
        Err(format!("{name}: residuals of the first cycle differ from the reference's by {agreement:e}"))
    } else {
        Ok(end)
    };
    let (samples, times) = (Samples::default(), Vec::new());
    let (name, ours, traffic) = (name.clone(), *ours, *traffic);
    Ok(Row { name, ours, traffic, samples, times, residuals, outcome, agreement, check })
}

//! The result of a solve as bytes, for the ranks whose rows a leader has.

use super::message::{Parts, Writer};
use crate::method::{GmresOptions, MethodSpec};
use crate::operator::Format;
use crate::precond::{PrecondInfo, Value};
use crate::profile::SetupParts;
use crate::solver::analysis::Extent;
use crate::solver::diagnosis::{Indices, OutOfRange};
use crate::solver::{Constants, DeviceUsed, Diagnosis, Event, EventKind, Solution};
use crate::space::{Criterion, History, Outcome, Phases, Precision, RelativeTo};
use crate::{Error, Result};
use std::ops::Range;
use std::sync::{Arc, Mutex};

/// Kinds of events, by their number in a message.
const EVENTS: [EventKind; 7] = [
    EventKind::Choice,
    EventKind::Fallback,
    EventKind::Refinement,
    EventKind::Restart,
    EventKind::Inconsistent,
    EventKind::Warning,
    EventKind::Interrupted,
];

/// Writes a solution for the rank that owns the unknowns `run` of the leader's.
pub(super) fn write(out: &mut Writer, solution: &Solution, run: Range<usize>) {
    history(out, &solution.history);
    out.text(&solution.method.to_string());
    out.flag(solution.method.is_complex());
    out.flag(matches!(solution.method, MethodSpec::Gmres(GmresOptions { basis: Precision::F32, .. })));
    let precond = &*solution.precond;
    out.text(&precond.name);
    parameters(out, &precond.parameters);
    out.real(precond.numbers);
    out.real(precond.matrix);
    out.text(&precond.text);
    out.list(&precond.details, |out, line| out.text(line));
    out.text(&precond.reason);
    out.flag(precond.keeps_symmetry);
    out.text(solution.format.name());
    out.option(solution.share.as_deref(), Writer::text);
    out.flag(solution.equilibrated);
    out.flag(solution.matched);
    out.word(solution.null_vectors as u64);
    out.option(solution.symmetric, Writer::flag);
    diagnosis(out, &solution.diagnosis, run);
    let device = &*solution.device;
    out.text(device.kind);
    out.list(&device.names, |out, name| out.text(name));
    out.word(device.threads as u64);
    out.text(&device.reason);
    out.word(device.ranks as u64);
    out.real(solution.target);
    out.option(solution.row_scaled_residual, Writer::real);
    out.list(&solution.events, |out, event| {
        out.word(EVENTS.iter().position(|kind| *kind == event.kind).unwrap_or(0) as u64);
        out.option(event.iteration, |out, at| out.word(at as u64));
        out.text(&event.detail);
        out.word(event.times as u64);
    });
    out.list(&solution.restarted, |out, at| out.word(*at as u64));
    out.real(solution.setup_seconds);
    let parts: Vec<f64> = solution.setup_parts.iter().map(|(_, seconds)| seconds).collect();
    out.numbers(&parts);
    out.real(solution.solve_seconds);
    out.option(solution.phases, |out, p| {
        out.numbers(&[p.product, p.orthogonalization, p.preconditioner, p.communication, p.other]);
    });
    out.real(solution.bytes_per_iteration);
    out.option(solution.device_memory, Writer::word);
}

/// Reads a solution.
pub(super) fn read(from: &mut Parts) -> Result<Solution> {
    let history = read_history(from)?;
    let method = from.text()?.parse::<MethodSpec>()?.with_complex(from.flag()?);
    let method = match (method, from.flag()?) {
        (MethodSpec::Gmres(gmres), true) => {
            MethodSpec::Gmres(GmresOptions { basis: Precision::F32, ..gmres })
        }
        (method, _) => method,
    };
    let precond = PrecondInfo {
        name: from.text()?,
        parameters: read_parameters(from)?,
        numbers: from.real()?,
        matrix: from.real()?,
        text: from.text()?,
        details: from.list(Parts::text)?,
        reason: from.text()?,
        keeps_symmetry: from.flag()?,
    };
    Ok(Solution {
        x: Vec::new(),
        history,
        method,
        precond: Arc::new(precond),
        format: from.text()?.parse::<Format>()?,
        share: from.option(Parts::text)?.map(Into::into),
        equilibrated: from.flag()?,
        matched: from.flag()?,
        null_vectors: from.count()?,
        symmetric: from.option(Parts::flag)?,
        diagnosis: Arc::new(read_diagnosis(from)?),
        device: Arc::new(DeviceUsed {
            kind: if from.text()? == "cuda" { "cuda" } else { "cpu" },
            names: from.list(Parts::text)?,
            threads: from.count()?,
            reason: from.text()?,
            ranks: from.count()?,
        }),
        target: from.real()?,
        row_scaled_residual: from.option(Parts::real)?,
        events: from.list(|from| {
            let kind = EVENTS[from.count()? % EVENTS.len()];
            let event = Event::new(kind, from.option(Parts::count)?, from.text()?);
            Ok(Event { times: from.count()?, ..event })
        })?,
        restarted: from.list(Parts::count)?,
        setup_seconds: from.real()?,
        setup_parts: SetupParts::of_seconds(&from.numbers::<f64>()?),
        solve_seconds: from.real()?,
        phases: from.option(|from| match from.numbers::<f64>()?[..] {
            [product, orthogonalization, preconditioner, communication, other] => {
                Ok(Phases { product, orthogonalization, preconditioner, communication, other })
            }
            _ => Err(Error::Internal("the phases of a solve have another number".into())),
        })?,
        bytes_per_iteration: from.real()?,
        device_memory: from.option(Parts::word)?,
    })
}

fn history(out: &mut Writer, history: &History) {
    out.text(history.outcome.name());
    [history.iterations, history.restarts, history.reductions].into_iter().for_each(|n| out.word(n as u64));
    out.numbers(&history.residuals);
    out.text(history.criterion.name());
    out.text(history.relative_to.name());
    let History { true_relative_residual, criterion_value, reference, rounding, rhs_norm, .. } = *history;
    let reals = [true_relative_residual, criterion_value, reference, rounding, rhs_norm];
    reals.into_iter().for_each(|v| out.real(v));
    out.option(history.reason, Writer::text);
}

fn read_history(from: &mut Parts) -> Result<History> {
    let outcome = from.text()?;
    let known = Outcome::ALL.into_iter().find(|known| known.name() == outcome);
    Ok(History {
        outcome: known.ok_or_else(|| Error::Internal(format!("the outcome {outcome} of another rank")))?,
        iterations: from.count()?,
        restarts: from.count()?,
        reductions: from.count()?,
        residuals: from.numbers()?,
        criterion: from.text()?.parse::<Criterion>()?,
        relative_to: from.text()?.parse::<RelativeTo>()?,
        true_relative_residual: from.real()?,
        criterion_value: from.real()?,
        reference: from.real()?,
        rounding: from.real()?,
        rhs_norm: from.real()?,
        reason: from.option(Parts::text)?.map(lasting),
    })
}

/// Returns a text that lives as long as the process. There are a few reasons, and each is kept once.
fn lasting(text: String) -> &'static str {
    static KNOWN: Mutex<Vec<&'static str>> = Mutex::new(Vec::new());
    let mut known = KNOWN.lock().unwrap_or_else(|e| e.into_inner());
    match known.iter().find(|known| **known == text) {
        Some(known) => known,
        None => {
            let text: &'static str = text.leak();
            known.push(text);
            text
        }
    }
}

fn parameters(out: &mut Writer, all: &[(String, Value)]) {
    out.list(all, |out, (name, value)| {
        out.text(name);
        match value {
            Value::Count(count) => {
                out.word(0);
                out.word(*count);
            }
            Value::Number(number) => {
                out.word(1);
                out.real(*number);
            }
            Value::Text(text) => {
                out.word(2);
                out.text(text);
            }
            Value::Parameters(inner) => {
                out.word(3);
                parameters(out, inner);
            }
        }
    });
}

fn read_parameters(from: &mut Parts) -> Result<Vec<(String, Value)>> {
    from.list(|from| {
        let name = from.text()?;
        let value = match from.word()? {
            0 => Value::Count(from.word()?),
            1 => Value::Number(from.real()?),
            2 => Value::Text(from.text()?),
            _ => Value::Parameters(read_parameters(from)?),
        };
        Ok((name, value))
    })
}

fn diagnosis(out: &mut Writer, found: &Diagnosis, run: Range<usize>) {
    for Indices { count, first } in [&found.empty_rows, &found.empty_columns, &found.missing_diagonal] {
        out.word(*count as u64);
        out.numbers(first);
    }
    out.word(found.weak_diagonal as u64);
    for Extent { smallest, largest } in [&found.entries, &found.rows, &found.columns] {
        out.real(*smallest);
        out.real(*largest);
    }
    out.word(found.longest_row as u64);
    vectors(out, &found.constants.vectors, &run);
    out.flag(found.constants.named);
    out.text(&found.constants.to_string());
    runs(out, &found.own_empty_columns, &run);
    let range = found.out_of_range();
    runs(out, &range.own_empty, &run);
    out.word(range.empty as u64);
    vectors(out, &range.basis, &run);
    out.text(&range.words);
    out.word(range.null as u64);
    out.real(range.error);
}

fn read_diagnosis(from: &mut Parts) -> Result<Diagnosis> {
    let indices = |from: &mut Parts| Ok::<_, Error>(Indices { count: from.count()?, first: from.numbers()? });
    let extent = |from: &mut Parts| Ok::<_, Error>(Extent { smallest: from.real()?, largest: from.real()? });
    Ok(Diagnosis {
        empty_rows: indices(from)?,
        empty_columns: indices(from)?,
        missing_diagonal: indices(from)?,
        weak_diagonal: from.count()?,
        entries: extent(from)?,
        rows: extent(from)?,
        columns: extent(from)?,
        longest_row: from.count()?,
        constants: Constants::of_words(from.list(Parts::numbers)?, from.flag()?, from.text()?),
        own_empty_columns: read_runs(from)?,
        range: OutOfRange {
            own_empty: read_runs(from)?,
            empty: from.count()?,
            basis: from.list(Parts::numbers)?,
            words: from.text()?,
            null: from.count()?,
            error: from.real()?,
        },
    })
}

/// Writes the unknowns `run` of vectors.
fn vectors(out: &mut Writer, all: &[Vec<f64>], run: &Range<usize>) {
    out.list(all, |out, v| out.numbers(v.get(run.clone()).unwrap_or_default()));
}

/// Writes the ranges of unknowns that lie in `run`, counted from its start.
fn runs(out: &mut Writer, all: &[Range<usize>], run: &Range<usize>) {
    let own = all.iter().map(|r| r.start.max(run.start)..r.end.min(run.end)).filter(|r| r.start < r.end);
    let bounds = own.flat_map(|r| [r.start, r.end]).map(|at| (at - run.start) as u64);
    out.numbers(&bounds.collect::<Vec<_>>());
}

fn read_runs(from: &mut Parts) -> Result<Vec<Range<usize>>> {
    Ok(from.numbers::<u64>()?.chunks_exact(2).map(|r| r[0] as usize..r[1] as usize).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Csr;

    #[test]
    fn a_solution_is_the_same_after_its_journey() {
        // Row and column 2 are empty, and b has a part there.
        let entries = [(0, 0, 4.0), (0, 1, -1.0), (1, 0, -1.0), (1, 1, 4.0), (3, 3, 1.0)];
        let a = Csr::from_triplets(4, 4, &entries).unwrap();
        let texts = ["precond=none method=gmres:restart=7", "precision=f32", "", "max_iters=0"];
        for text in texts {
            let options = format!("{text} device=cpu").parse().unwrap();
            let mut solver = crate::Solver::new(&a, &options).unwrap();
            let solution = solver.solve(&[1.0, 2.0, 3.0, 4.0], &mut [0.0; 4]).unwrap().clone();
            let mut out = Writer::default();
            write(&mut out, &solution, 0..4);
            let read = read(&mut Parts::new(&out.0, 0)).unwrap();
            let print = |of: &Solution| format!("{:?}", Solution { x: Vec::new(), ..of.clone() });
            assert_eq!(print(&read), print(&solution), "{text}");
            let problem = crate::Problem::csr(&a).unwrap();
            let floor = |of: &Solution| of.diagnosis.floor(&problem, &[1.0, 2.0, 3.0, 4.0]).unwrap();
            assert_eq!(floor(&read), floor(&solution), "{text}");
        }
    }

    #[test]
    fn ranges_are_those_of_the_rank() {
        let mut out = Writer::default();
        runs(&mut out, &[0..3, 5..9, 12..13], &(2..7));
        assert_eq!(read_runs(&mut Parts::new(&out.0, 0)).unwrap(), [0..1, 3..5]);
    }
}

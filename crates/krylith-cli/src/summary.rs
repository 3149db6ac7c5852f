//! What a person reads on stdout when a solve has ended.

use crate::options::Ordering;
use crate::progress::rate_text;
use crate::solve::Finished;
use crate::system::{Operator, System};
use krylith::method::MethodName;
use krylith::operator::Format;
use krylith::precond::PrecondSpec;
use krylith::solver::{EventKind, SetupParts};
use krylith::text::{count, plural, seconds};
use krylith::{Outcome, Store};
use std::fmt::Write;

/// Most restarts that are named one by one; the report has all.
const SHOWN: usize = 5;

/// The name on the command line.
pub fn ordering(ordering: Ordering) -> &'static str {
    match ordering {
        Ordering::Interleaved => "interleaved",
        Ordering::Segregated => "segregated",
    }
}

/// `GMRES(30), point-block Jacobi`.
pub fn method(done: &Finished) -> String {
    format!("{}, {}", done.solution.method.title(), preconditioner(done))
}

fn preconditioner(done: &Finished) -> String {
    let equilibrated = if done.solution.equilibrated { ", equilibrated" } else { "" };
    let matched = if done.solution.matched { ", rows matched" } else { "" };
    let null = match done.solution.null_vectors {
        0 => String::new(),
        n => format!(", {} projected out", plural(n, "null vector")),
    };
    let info = &*done.solution.precond;
    format!("{}{equilibrated}{matched}{null}", info.text)
}

/// `converged after 42 iterations, 1 restart`.
pub fn outcome(done: &Finished) -> String {
    let history = &done.solution.history;
    let restarts = match history.restarts {
        0 => String::new(),
        n => format!(", {}", plural(n, "restart")),
    };
    let words = match history.outcome {
        Outcome::Converged => "converged",
        Outcome::MaxIterations => "not converged (max-iterations)",
        Outcome::Breakdown => "not converged (breakdown)",
        Outcome::Stagnated => "not converged (stagnated)",
        Outcome::RoundingLimit => "at the limit of double precision (rounding-limit)",
        Outcome::Inconsistent => "no solution within the tolerance (inconsistent)",
        Outcome::Diverged => "not converged (diverged)",
        Outcome::NotFinite => "not converged (not-finite)",
        Outcome::Interrupted => "interrupted",
    };
    format!("{words} after {}{restarts}", plural(history.iterations, "iteration"))
}

/// One line for stderr where the solve did not converge: the outcome by name, and what to try.
pub fn verdict(done: &Finished) -> String {
    let history = &done.solution.history;
    format!(
        "{}: {}{} after {}, relative residual {:.2e}, wanted {:.2e}{}",
        done.system.label,
        history.outcome,
        history.reason.map(|why| format!(" ({why})")).unwrap_or_default(),
        plural(history.iterations, "iteration"),
        history.true_relative_residual,
        done.solution.target,
        remedy(done)
    )
}

/// What to try, or what is the matter with the system.
fn remedy(done: &Finished) -> String {
    let solution = &done.solution;
    let (history, restarts) = (&solution.history, solution.method.restart().is_some());
    let structure = structure(done);
    match history.outcome {
        Outcome::Converged => String::new(),
        Outcome::Interrupted => "; x is the best so far".into(),
        Outcome::Inconsistent => {
            let why = solution.events.iter().find(|e| e.kind == EventKind::Inconsistent);
            why.map(|e| format!("; {}", e.detail)).unwrap_or_default()
        }
        Outcome::RoundingLimit if history.reason.is_some() => "; scale the system".into(),
        Outcome::RoundingLimit => format!(
            "; rounding x to double precision makes {:.1e} of the residual, so x is as good as a direct solve's: loosen --rtol",
            history.rounding
        ),
        Outcome::NotFinite if history.reason.is_some() => "; scale the system".into(),
        Outcome::NotFinite if done.options.store == Some(Store::F32) => {
            "; numbers overflow, or vanish in f32: store them in f64, or scale the system".into()
        }
        Outcome::NotFinite => "; numbers overflow: scale the system, or try --precond none".into(),
        Outcome::Stagnated | Outcome::Breakdown if !restarts => {
            format!("; try --method gmres{}", structure.unwrap_or_default())
        }
        _ if structure.is_some() => structure.unwrap_or_default(),
        Outcome::MaxIterations if !restarts => "; raise --max-iters, or try --method gmres".into(),
        Outcome::MaxIterations => "; raise --max-iters or --restart".into(),
        Outcome::Breakdown => {
            "; the matrix is singular: give its --nullspace if the system is consistent".into()
        }
        Outcome::Stagnated => "; raise --restart, or try a --precond with more fill".into(),
        Outcome::Diverged => "; try another --precond, or none".into(),
    }
}

/// What stands in the way of any method: empty rows and columns, and zeros on the diagonal.
fn structure(done: &Finished) -> Option<String> {
    let found = &*done.solution.diagnosis;
    for (one, many, indices) in
        [("row", "rows", &found.empty_rows), ("column", "columns", &found.empty_columns)]
    {
        match indices.count {
            0 => {}
            1 => return Some(format!("; {one} {indices} has no nonzero entry: the matrix is singular")),
            _ => return Some(format!("; {many} {indices} have no nonzero entry: the matrix is singular")),
        }
    }
    if found.missing_diagonal.count == 0 {
        return None;
    }
    let rows = if found.missing_diagonal.count == 1 { "row" } else { "rows" };
    Some(format!(
        "; the diagonal is zero in {rows} {}: give unknowns of one node as a block (--block), permute rows to a zero-free \
         diagonal, or raise --max-iters",
        found.missing_diagonal
    ))
}

/// Names, each once with how often it comes.
fn counted(names: &[String]) -> String {
    let mut once: Vec<(&String, usize)> = Vec::new();
    for name in names {
        match once.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => once.push((name, 1)),
        }
    }
    let text = once.iter().map(|(name, n)| if *n > 1 { format!("{n} × {name}") } else { name.to_string() });
    text.collect::<Vec<_>>().join(", ")
}

/// What a system is, in a line or two.
pub fn describe(system: &System) -> Vec<String> {
    let (b, s) = (system.order.block, system.order.stages);
    let size = plural(system.len(), "unknown");
    let mut lines = vec![system.name.clone()];
    lines.push(match &system.operator {
        Operator::Matrix(a) => {
            let zeros = 1.0 - system.nonzeros as f64 / a.values().len() as f64;
            let filled = match () {
                () if b == 1 => String::new(),
                () => format!(" in {}", plural(a.blocks(), "block")),
            };
            let zeros =
                if zeros > 5e-4 { format!(", {:.1} % zeros added", 100.0 * zeros) } else { String::new() };
            format!("{size}, {} stored entries{filled}{zeros}", count(system.nonzeros))
        }
        Operator::Kronecker(k) => format!(
            "{size}: A⊗M + τB⊗L with {}, M and L of {} rows ({} and {} blocks), τ = {}",
            plural(s, "stage"),
            count(system.order.rows()),
            count(k.m.blocks()),
            count(k.l.blocks()),
            k.tau
        ),
        Operator::Share(_) => format!(
            "{size}, {} stored entries, {}, on {}",
            count(system.nonzeros),
            plural(s, "stage"),
            plural(system.comm().size(), "rank")
        ),
    });
    lines.push(format!("blocks {b}×{b} ({}), {}", system.block_reason, ordering(system.order.user)));
    lines
}

/// The whole text.
pub fn text(done: &Finished, wrote: &[String]) -> String {
    let Finished { system, options, solution, .. } = done;
    let (history, device) = (&solution.history, &solution.device);
    let mut rows: Vec<(&str, Vec<String>)> = Vec::new();
    let mut lines = describe(system);
    lines.push(format!(
        "right-hand side: {}{}",
        done.rhs,
        if history.rhs_norm == 0.0 { "; it is zero, and so is x" } else { "" }
    ));
    rows.push(("system", lines));
    let cpu = device.kind == "cpu";
    let threads = if cpu { format!(", {}", plural(device.threads, "thread")) } else { String::new() };
    let threads = if device.ranks > 1 && cpu { format!("{threads} a rank") } else { threads };
    rows.push(("device", vec![format!("{}{threads} ({})", counted(&device.names), device.reason)]));
    let auto = if matches!(options.method, None | Some(MethodName::Auto)) { " (auto)" } else { "" };
    let stored = if options.store == Some(Store::F32) { ", stored in f32" } else { "" };
    let by = match solution.format {
        Format::Dia => ", products by half the diagonals",
        Format::DiaFull => ", products by diagonals",
        Format::Csr | Format::Auto => "",
    };
    let method = &solution.method;
    let mut lines = vec![format!("{}, {}{stored}{by}{auto}", method.title(), method.manner())];
    let info = &solution.precond;
    let reason = match (options.precond.as_ref(), info.reason.as_str()) {
        (None | Some(PrecondSpec::Auto), "") => " (auto)".into(),
        (None | Some(PrecondSpec::Auto), reason) => format!(" ({reason})"),
        _ => String::new(),
    };
    lines.push(format!("{}{reason}", preconditioner(done)));
    lines.extend(info.details.iter().cloned());
    let of = |kinds: &'static [EventKind]| solution.events.iter().filter(|e| kinds.contains(&e.kind));
    lines.extend(of(&[EventKind::Fallback, EventKind::Refinement, EventKind::Inconsistent]).map(|e| {
        match e.iteration {
            Some(i) => format!("{} after {}: {}", e.kind.name(), plural(i, "iteration"), e.detail),
            None => format!("{}: {}", e.kind.name(), e.detail),
        }
    }));
    // Methods that restart by design do so too often to be told.
    if method.restart().is_none() {
        lines.extend(of(&[EventKind::Restart]).take(SHOWN).map(|e| {
            format!("restart after {}: {}", plural(e.iteration.unwrap_or(0), "iteration"), e.detail)
        }));
    }
    rows.push(("method", lines));

    rows.push(("outcome", vec![outcome(done)]));
    let mut lines = vec![format!(
        "{:.3e} true, ‖b − A x‖/‖b‖; wanted {:.3e}; rounding of x makes up to {:.1e}",
        history.true_relative_residual, done.solution.target, history.rounding
    )];
    if done.fields.len() > 1 {
        let fields: Vec<String> =
            done.fields.iter().enumerate().map(|(c, r)| format!("{c}: {r:.2e}")).collect();
        lines.push(format!("by field  {}", fields.join("  ")));
    }
    rows.push(("residual", lines));
    let rate = history.iterations as f64 / solution.solve_seconds.max(1e-9);
    let mut lines = vec![format!(
        "{} set-up, {} solve; {} iterations/s",
        seconds(solution.setup_seconds),
        seconds(solution.solve_seconds),
        rate_text(rate)
    )];
    lines.push(set_up(done.load, &solution.setup_parts));
    if let Some(p) = solution.phases.filter(|_| history.iterations > 0) {
        let share = |t: f64| 100.0 * t / solution.solve_seconds.max(1e-12);
        lines.push(format!(
            "product {:.0} %, {} {:.0} %, preconditioner {:.0} %{}",
            share(p.product),
            if method.restart().is_none() { "vectors" } else { "orthogonalisation" },
            share(p.orthogonalization),
            share(p.preconditioner),
            match device.ranks {
                1 => String::new(),
                _ => format!(", waiting for other ranks {:.0} %", share(p.communication)),
            }
        ));
    }
    if let Some(b) = done.bandwidth.filter(|_| history.iterations > 0) {
        let moved = solution.bytes_per_iteration * rate;
        lines.push(format!(
            "{:.1} GB/s, {:.0} % of the read bandwidth measured here ({:.1} GB/s)",
            moved / 1e9,
            100.0 * moved / b,
            b / 1e9
        ));
    }
    rows.push(("time", lines));
    if !wrote.is_empty() {
        rows.push(("wrote", wrote.to_vec()));
    }
    table(&rows)
}

/// Columns that the parts of a set-up may take.
const PARTS_WIDTH: usize = 60;

/// `loaded in 41.0 ms; product 3.1 ms, factors 2.0 ms`: the longest parts of a set-up, as many as fit a line.
fn set_up(load: f64, parts: &SetupParts) -> String {
    let mut all: Vec<(&str, f64)> = parts.iter().map(|(part, seconds)| (part.name(), seconds)).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut line = format!("loaded in {}", seconds(load));
    for (i, (name, t)) in all.into_iter().filter(|(_, t)| *t > 0.02 * parts.total()).enumerate() {
        let next = format!("{} {name} {}", if i == 0 { ";" } else { "," }, seconds(t));
        if line.chars().count() + next.chars().count() > PARTS_WIDTH {
            break;
        }
        line += &next;
    }
    line
}

/// Labels in one column, lines in the other.
pub fn table(rows: &[(&str, Vec<String>)]) -> String {
    let width = rows.iter().map(|r| r.0.chars().count()).max().unwrap_or(0) + 2;
    let mut out = String::new();
    for (label, lines) in rows {
        for (i, line) in lines.iter().enumerate() {
            let label = if i == 0 { label } else { "" };
            let _ = writeln!(out, "{}", format!("{label:width$}{line}").trim_end()); // strings never fail
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_parts_of_a_set_up_come_first_and_fit_a_line() {
        let none = set_up(0.0412, &SetupParts::default());
        assert_eq!(none, "loaded in 41.2 ms");
        let a = krylith::matrix::Csr::from_triplets(1, 1, &[(0, 0, 2.0)]).unwrap();
        let parts = krylith::solve(&a, &[1.0]).unwrap().setup_parts;
        let line = set_up(1.0, &parts);
        let (longest, t) = parts.iter().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
        let first = format!("loaded in 1 s; {} {}", longest.name(), seconds(t));
        assert!(line.starts_with(&first) && line.chars().count() <= PARTS_WIDTH, "{line}");
    }
}

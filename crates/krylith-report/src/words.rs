//! Descriptions of solutions in text, for the command, Python and C.

use krylith_core::method::MethodName;
use krylith_core::operator::Format;
use krylith_core::precond::PrecondSpec;
use krylith_core::solver::{EventKind, SetupParts, Solution};
use krylith_core::space::{Criterion, History, RelativeTo, UNSTABLE};
use krylith_core::text::{count, plural, seconds};
use krylith_core::{Options, Outcome, Precision, Problem, Remedy};
use std::fmt::Write;

/// Largest number of restarts that a summary lists; the report has all.
const SHOWN: usize = 5;

/// The spelling of options in messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    /// The command's flags.
    Flags,
    /// Keyword arguments of Python.
    Keywords,
    /// The text form of [`Options`], which programs in C use.
    Text,
}

impl Language {
    /// Spells an option, with a value or without; `key` is its name in [`Options`].
    fn option(self, key: &str, value: &str) -> String {
        match (self, key, value) {
            (Language::Flags, _, "") => format!("--{}", key.replace('_', "-")),
            (Language::Flags, ..) => format!("--{} {value}", key.replace('_', "-")),
            (Language::Keywords | Language::Text, _, "") => key.into(),
            (Language::Text, ..) => format!("{key}={value}"),
            (Language::Keywords, ..) => format!("{key}=\"{value}\""),
        }
    }

    /// Returns the options that may remedy an error, in parentheses, or an empty text.
    pub fn remedies(self, error: &krylith_core::Error) -> String {
        let options = error.remedies().iter().filter_map(|remedy| {
            let (key, value) = match remedy {
                Remedy::SmallerRestart => ("restart", ""),
                Remedy::SinglePrecision => ("precision", "f32"),
                Remedy::NoPreconditioner => ("precond", "none"),
                Remedy::OtherBlockSize => ("block", ""),
                Remedy::PivotShift => ("precond", "ildu:shift=1e-3"),
                Remedy::OtherDevice => ("device", ""),
                _ => return None,
            };
            Some(self.option(key, value))
        });
        let options: Vec<String> = options.collect();
        if options.is_empty() { String::new() } else { format!(" ({})", options.join(", ")) }
    }
}

/// Returns the method and the preconditioner, such as `GMRES(30), point-block Jacobi`.
pub fn method(solution: &Solution) -> String {
    format!("{}, {}", solution.method.title(), preconditioner(solution))
}

fn preconditioner(solution: &Solution) -> String {
    let equilibrated = if solution.equilibrated { ", equilibrated" } else { "" };
    let matched = if solution.matched { ", rows matched" } else { "" };
    let null = match solution.null_vectors {
        0 => String::new(),
        n => format!(", {} projected out", plural(n, "null vector")),
    };
    let info = &*solution.precond;
    format!("{}{equilibrated}{matched}{null}", info.text)
}

/// Returns the outcome, such as `converged after 42 iterations, 1 restart`.
pub fn outcome(solution: &Solution) -> String {
    let history = &solution.history;
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

/// Returns a line for stderr about a solve that did not converge: the outcome by name, and what to try.
pub fn verdict(label: &str, solution: &Solution, options: &Options, language: Language) -> String {
    let history = &solution.history;
    format!(
        "{}: {}{} after {}, {} {:.2e}, wanted {:.2e}{}",
        label,
        history.outcome,
        history.reason.map(|why| format!(" ({why})")).unwrap_or_default(),
        plural(history.iterations, "iteration"),
        history.criterion.words(history.relative_to),
        history.criterion_value,
        solution.target,
        remedy(solution, options, language)
    )
}

/// Returns what to try, or what is wrong with the system.
fn remedy(solution: &Solution, options: &Options, language: Language) -> String {
    let [rtol, restart, max_iters] = ["rtol", "restart", "max_iters"].map(|key| language.option(key, ""));
    let [precond, nullspace] = ["precond", "nullspace"].map(|key| language.option(key, ""));
    let [none, gmres] =
        [("precond", "none"), ("method", "gmres")].map(|(key, value)| language.option(key, value));
    let (history, restarts) = (&solution.history, solution.method.restart().is_some());
    let structure = structure(solution, language);
    match history.outcome {
        Outcome::Converged => String::new(),
        Outcome::Breakdown | Outcome::NotFinite if history.reason == Some(UNSTABLE) => {
            let [direct, shift] = ["lu", "ildu:shift=1e-3"].map(|value| language.option("precond", value));
            format!("; try another fill or order, {shift} or {direct}")
        }
        Outcome::Interrupted => "; x is the best so far".into(),
        Outcome::Inconsistent => inconsistent(solution, language),
        Outcome::RoundingLimit if history.reason.is_some() => "; scale the system".into(),
        // Rounding of x explains the residual within a small factor; the rest comes from underflow.
        Outcome::RoundingLimit if history.criterion_value > 100.0 * history.rounding => format!(
            "; rounding of x alone causes a relative residual of only {:.1e}; numbers of x, or products \
             with them, are too small for double precision (below 2.2e-308): scale the system",
            history.rounding
        ),
        Outcome::RoundingLimit => format!(
            "; rounding of x causes a {} of up to {:.1e}, so x is as good as that of a direct solve: \
             loosen {rtol}",
            short_words(history),
            history.rounding
        ),
        Outcome::NotFinite if history.reason.is_some() => "; scale the system".into(),
        Outcome::NotFinite if options.precision == Some(Precision::F32) => {
            "; numbers are too large or too small for f32: store them in f64, or scale the system".into()
        }
        _ if needs_symmetry_in_vain(solution) => {
            let others = ["bicgstab", "gmres"].map(|method| language.option("method", method));
            let method = solution.method.name();
            format!(
                "; the matrix is not symmetric, but {method} needs a symmetric one: try {} or {}",
                others[0], others[1]
            )
        }
        Outcome::NotFinite => format!("; numbers overflow: scale the system, or try {none}"),
        _ if solution.diagnosis.is_singular() => singular(solution, language),
        Outcome::Stagnated | Outcome::Breakdown if !restarts => {
            format!("; try {gmres}{}", structure.unwrap_or_default())
        }
        _ if structure.is_some() => structure.unwrap_or_default(),
        Outcome::MaxIterations if !restarts => format!("; raise {max_iters}, or try {gmres}"),
        Outcome::MaxIterations => format!("; raise {max_iters} or {restart}"),
        Outcome::Breakdown => {
            format!(
                "; the matrix is singular: give its null vectors with {nullspace} if the system is consistent"
            )
        }
        Outcome::Stagnated => format!("; raise {restart}, or try a {precond} with more fill"),
        Outcome::Diverged => format!("; try another preconditioner ({precond}), or none"),
    }
}

/// Returns true if a solve used CG, CBCG or MINRES on a matrix that is not symmetric.
fn needs_symmetry_in_vain(solution: &Solution) -> bool {
    solution.method.name().needs_symmetry() && solution.symmetric == Some(false)
}

/// Describes the component of b outside the range of A, and the option that declares the null vectors in
/// advance.
fn inconsistent(solution: &Solution, language: Language) -> String {
    let why = solution.events.iter().find(|e| e.kind == EventKind::Inconsistent);
    let mut text = why.map(|e| format!("; {}", e.detail)).unwrap_or_default();
    if solution.null_vectors == 0 && solution.diagnosis.constants.named {
        text +=
            &format!("; {} declares these null vectors in advance", language.option("nullspace", "constant"));
    }
    text
}

/// Describes a singular matrix after a failed solve.
fn singular(solution: &Solution, language: Language) -> String {
    let found = &solution.diagnosis.constants;
    let outside = "b may have a component outside the range of A";
    match (solution.null_vectors, found.named) {
        (0, true) => format!(
            "; A maps {found} to zero: the matrix is singular, and {outside}; {} projects them out",
            language.option("nullspace", "constant")
        ),
        (0, false) => format!(
            "; A maps {found} to zero: the matrix is singular, and {outside}; give them as {}",
            language.option("nullspace", "")
        ),
        _ => {
            format!("; the matrix is singular and not symmetric, and {outside}, along a null vector of Aᵀ")
        }
    }
}

/// Describes obstacles to any method: empty rows and columns, and zeros on the diagonal.
fn structure(solution: &Solution, language: Language) -> Option<String> {
    let found = &*solution.diagnosis;
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
    // A split expects zeros on the diagonal of a constraint.
    if solution.precond.text.contains("split") {
        return Some(format!(
            "; a part of the split is too weak: try a stronger one, such as amg:smoother=ildu for convection, or \
             raise {}",
            language.option("restart", "")
        ));
    }
    let rows = if found.missing_diagonal.count == 1 { "row" } else { "rows" };
    Some(format!(
        "; the diagonal is zero in {rows} {}: group the unknowns of a node into a block ({}), permute rows \
         until the diagonal is nonzero, or raise {}",
        found.missing_diagonal,
        language.option("block", ""),
        language.option("max_iters", "")
    ))
}

/// Lists each name once, with the number of times it occurs.
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

/// Returns the device of a solve, and the reason for its choice.
pub fn device(solution: &Solution) -> String {
    let device = &solution.device;
    let cpu = device.kind == "cpu";
    let threads = if cpu { format!(", {}", plural(device.threads, "thread")) } else { String::new() };
    let threads = if device.ranks > 1 && cpu { format!("{threads} a rank") } else { threads };
    format!("{}{threads} ({})", counted(&device.names), device.reason)
}

/// Returns lines with the method, the preconditioner, the settings that they chose, and the events of the
/// solve.
pub fn description(solution: &Solution, options: &Options) -> Vec<String> {
    let auto = if matches!(options.method, None | Some(MethodName::Auto)) { " (auto)" } else { "" };
    let stored = if options.precision == Some(Precision::F32) { ", stored in f32" } else { "" };
    let by = match solution.format {
        Format::Dia => ", products with half of the diagonals by symmetry",
        Format::DiaFull => ", products with all diagonals",
        Format::Csr | Format::Auto => "",
    };
    let whole = match solution.share.as_deref() {
        None | Some("halo") => String::new(),
        Some(mode) => format!(", whole vectors on every rank by share={mode}"),
    };
    let method = &solution.method;
    let mut lines = vec![format!("{}, {}{stored}{by}{whole}{auto}", method.title(), method.description())];
    let info = &solution.precond;
    let reason = match (options.precond.as_ref(), info.reason.as_str()) {
        (None | Some(PrecondSpec::Auto), "") => " (auto)".into(),
        (None | Some(PrecondSpec::Auto), reason) => format!(" ({reason})"),
        _ => String::new(),
    };
    lines.push(format!("{}{reason}", preconditioner(solution)));
    lines.extend(info.details.iter().cloned());
    let of = |kinds: &'static [EventKind]| solution.events.iter().filter(|e| kinds.contains(&e.kind));
    lines.extend(
        of(&[EventKind::Fallback, EventKind::Refinement, EventKind::Inconsistent, EventKind::Warning]).map(
            |e| match e.iteration {
                Some(i) => format!("{} after {}: {}", e.kind.name(), plural(i, "iteration"), e.words()),
                None => format!("{}: {}", e.kind.name(), e.words()),
            },
        ),
    );
    // Methods that restart by design do so too often to list.
    if method.restart().is_none() {
        lines.extend(of(&[EventKind::Restart]).take(SHOWN).map(|e| {
            format!("restart after {}: {}", plural(e.iteration.unwrap_or(0), "iteration"), e.words())
        }));
    }
    lines
}

/// Returns the quantity that rounding bounds.
fn short_words(history: &History) -> &'static str {
    match history.criterion {
        Criterion::Residual => "residual",
        other => other.words(history.relative_to),
    }
}

/// Returns the residual at the end, the target, and the share of rounding.
pub fn residual(solution: &Solution) -> String {
    let history = &solution.history;
    let by_rows = solution.row_scaled_residual.map(|r| format!(", {r:.1e} with rows scaled to norm 1"));
    let usual = history.criterion == Criterion::Residual && history.relative_to == RelativeTo::B;
    let text = match usual {
        true => format!(
            "{:.3e} true, ‖b − A x‖/‖b‖{}; wanted {:.3e}",
            history.true_relative_residual,
            by_rows.unwrap_or_default(),
            solution.target
        ),
        false => format!(
            "{:.3e} {}; wanted {:.3e}; ‖b − A x‖/‖b‖ {:.3e}",
            history.criterion_value,
            history.criterion.words(history.relative_to),
            solution.target,
            history.true_relative_residual
        ),
    };
    // With b = 0 the share of rounding is not defined.
    match history.rounding.is_finite() {
        true => format!("{text}; rounding of x adds at most {:.1e}", history.rounding),
        false => text,
    }
}

/// Returns the iterations per second.
pub fn rate(solution: &Solution) -> f64 {
    solution.history.iterations as f64 / solution.solve_seconds.max(1e-9)
}

/// Formats iterations per second with three digits or so.
pub fn rate_text(rate: f64) -> String {
    if rate >= 100.0 { count(rate.round() as usize) } else { format!("{rate:.1}") }
}

/// Returns lines with the times: set-up and solve, the parts of the set-up with `prefix` before them, and the
/// shares of an iteration.
pub fn time(solution: &Solution, prefix: &str) -> Vec<String> {
    let pace = match solution.history.iterations {
        0 => String::new(),
        _ => format!("; {} iterations/s", rate_text(rate(solution))),
    };
    let mut lines = vec![format!(
        "{} set-up, {} solve{pace}",
        seconds(solution.setup_seconds),
        seconds(solution.solve_seconds),
    )];
    // A solve without a set-up of its own has no parts.
    lines.extend((solution.setup_parts.total() > 0.0).then(|| set_up(prefix, &solution.setup_parts)));
    if let Some(p) = solution.phases.filter(|_| solution.history.iterations > 0) {
        let share = |t: f64| 100.0 * t / solution.solve_seconds.max(1e-12);
        lines.push(format!(
            "product {:.0} %, {} {:.0} %, preconditioner {:.0} %{}",
            share(p.product),
            if solution.method.restart().is_none() { "vectors" } else { "orthogonalisation" },
            share(p.orthogonalization),
            share(p.preconditioner),
            match solution.device.ranks {
                1 => String::new(),
                _ => format!(", waiting for other ranks {:.0} %", share(p.communication)),
            }
        ));
    }
    lines
}

/// Describes a system in lines: its unknowns, its `entries` stored in `format`, and its block size.
pub fn system(problem: &Problem, entries: usize, format: &str) -> Vec<String> {
    let (b, s) = (problem.block(), problem.stages());
    let stages = if s > 1 { format!(", {}", plural(s, "stage")) } else { String::new() };
    vec![
        format!(
            "{}, {} stored entries{stages} ({format})",
            plural(problem.unknowns(), "unknown"),
            count(entries)
        ),
        format!("blocks {b}×{b}"),
    ]
}

/// Returns a table of a solve; `system` describes the system.
pub fn text(system: Vec<String>, solution: &Solution, options: &Options) -> String {
    table(&[
        ("system", system),
        ("device", vec![device(solution)]),
        ("method", description(solution, options)),
        ("outcome", vec![outcome(solution)]),
        ("residual", vec![residual(solution)]),
        ("time", time(solution, "set-up:")),
    ])
}

/// Largest width, in columns, of the line with the parts of a set-up.
const PARTS_WIDTH: usize = 60;

/// Returns `prefix` and the longest parts of a set-up, as many as fit in a line, such as
/// `loaded in 41.0 ms; product 3.1 ms, factors 2.0 ms`.
fn set_up(prefix: &str, parts: &SetupParts) -> String {
    let mut all: Vec<(&str, f64)> = parts.iter().map(|(part, seconds)| (part.name(), seconds)).collect();
    all.sort_by(|a, b| b.1.total_cmp(&a.1));
    let mut line = prefix.to_string();
    for (i, (name, t)) in all.into_iter().filter(|(_, t)| *t > 0.02 * parts.total()).enumerate() {
        let next = format!(
            "{} {name} {}",
            if i > 0 {
                ","
            } else if prefix.ends_with(':') {
                ""
            } else {
                ";"
            },
            seconds(t)
        );
        if line.chars().count() + next.chars().count() > PARTS_WIDTH {
            break;
        }
        line += &next;
    }
    line
}

/// Formats a table with labels in one column and lines in the other.
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
        let none = set_up("loaded in 41.2 ms", &SetupParts::default());
        assert_eq!(none, "loaded in 41.2 ms");
        let a = krylith_core::matrix::Csr::from_triplets(1, 1, &[(0, 0, 2.0)]).unwrap();
        let parts = krylith_core::solve(&a, &[1.0]).unwrap().setup_parts;
        let line = set_up("loaded in 1 s", &parts);
        let (longest, t) = parts.iter().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
        let first = format!("loaded in 1 s; {} {}", longest.name(), seconds(t));
        assert!(line.starts_with(&first) && line.chars().count() <= PARTS_WIDTH, "{line}");
    }
}

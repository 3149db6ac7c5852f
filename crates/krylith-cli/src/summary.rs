//! The summary of a solve on stdout.

use crate::options::Ordering;
use crate::report::Choice;
use crate::solve::{Finished, Solved};
use crate::system::{Operator, System};
use crate::term;
use krylith_core::solver::Solution;
use krylith_core::text::{bytes, count, plural, seconds, shown};
use krylith_report::words;

/// Returns the name of a numbering on the command line.
pub fn ordering(ordering: Ordering) -> &'static str {
    match ordering {
        Ordering::Interleaved => "interleaved",
        Ordering::Segregated => "segregated",
    }
}

/// Describes a system in a few lines.
pub fn describe(system: &System) -> Vec<String> {
    let (b, s) = (system.order.block, system.order.stages);
    let size = match system.complex {
        true => plural(system.len() / 2, "complex unknown"),
        false => plural(system.len(), "unknown"),
    };
    let mut lines = vec![shown(&system.name)];
    lines.push(match &system.operator {
        Operator::Matrix(a) => {
            let zeros = 1.0 - system.nonzeros as f64 / a.values().len() as f64;
            let filled = match () {
                () if b == 1 => String::new(),
                () => format!(" in {}", plural(a.blocks(), "block")),
            };
            let zeros =
                if zeros > 5e-4 { format!(", {:.1} % zeros added", 100.0 * zeros) } else { String::new() };
            let stored = if system.complex { system.nonzeros / 4 } else { system.nonzeros };
            format!("{size}, {} stored entries{filled}{zeros}", count(stored))
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
    if system.complex {
        lines.push("solved as a real system: the entry a + ib is the block [[a, −b], [b, a]]".into());
    }
    let blocks = format!("blocks {b}×{b} ({})", system.block_reason);
    lines.push(if b == 1 { blocks } else { format!("{blocks}, {}", ordering(system.order.user)) });
    lines
}

/// Returns the name of a system for titles of plots and for errors.
pub fn label(done: &Finished) -> String {
    match (done.wanted, done.solved.iter().position(|s| !s.solution.converged())) {
        (1, _) => done.system.label.clone(),
        (k, Some(c)) => format!("{}, right-hand side {} of {k}", done.system.label, c + 1),
        (k, None) => format!("{}, the first of {k} right-hand sides", done.system.label),
    }
}

/// Largest number of right-hand sides that are listed.
const SHOWN: usize = 12;

/// Returns the whole summary; `lost` is true if x is not written to a file.
pub fn text(done: &Finished, wrote: &[String], verbose: u8, lost: bool) -> String {
    let Finished { system, options, .. } = done;
    let Solved { solution, fields } = done.shown();
    let history = &solution.history;
    let mut lines = describe(system);
    lines.push(format!(
        "right-hand side: {}{}{}",
        shown(&done.rhs),
        if done.wanted > 1 { format!(", {} of them", count(done.wanted)) } else { String::new() },
        if history.rhs_norm == 0.0 { "; it is zero, and so is x" } else { "" }
    ));
    let mut rows = vec![
        ("system", lines),
        ("device", vec![words::device(solution)]),
        ("method", words::description(solution, options)),
    ];
    if verbose > 0 {
        rows.push(("chosen", chosen(done)));
        rows.push(("events", events(solution)));
    }
    if done.wanted > 1 {
        rows.push(("outcome", each(done)));
    } else {
        rows.push(("outcome", vec![words::outcome(solution)]));
        let mut lines = vec![words::residual(solution)];
        if fields.len() > 1 {
            let fields: Vec<String> =
                fields.iter().enumerate().map(|(c, r)| format!("{c}: {r:.2e}")).collect();
            lines.push(format!("by field  {}", fields.join("  ")));
        }
        rows.push(("residual", lines));
    }
    let mut lines = words::time(solution, &format!("loaded in {}", seconds(done.load)));
    if done.wanted > 1 {
        let all: f64 = done.solved.iter().map(|s| s.solution.setup_seconds + s.solution.solve_seconds).sum();
        let of = plural(done.solved.len(), "right-hand side");
        lines.insert(0, format!("{} for {of} with one set-up; the one shown took:", seconds(all)));
    }
    if let Some(b) = done.bandwidth.filter(|_| history.iterations > 0) {
        let moved = solution.bytes_per_iteration * words::rate(solution);
        lines.push(format!(
            "{:.1} GB/s, {:.0} % of the read bandwidth measured here ({:.1} GB/s)",
            moved / 1e9,
            100.0 * moved / b,
            b / 1e9
        ));
    }
    rows.push(("time", lines));
    if verbose > 1 {
        rows.push(("set-up", set_up(solution)));
        rows.push(("machine", machine(solution)));
    }
    if !wrote.is_empty() {
        rows.push(("wrote", wrote.to_vec()));
    }
    let converged = done.solved.len() == done.wanted && done.solved.iter().all(|s| s.solution.converged());
    let columns = term::columns();
    let mut text = term::table(&rows, columns, |label| match (label, converged) {
        ("outcome", true) => term::GOOD,
        ("outcome", false) => term::BAD,
        _ => term::PLAIN,
    });
    if lost {
        let hint = "x is not written: --out x.npy keeps it, --vtu x.vtu shows it in ParaView";
        let hint = if system.coordinates.is_some() { hint } else { "x is not written: --out x.npy keeps it" };
        for line in term::wrap(hint, columns.unwrap_or(usize::MAX)) {
            text += &(term::styled(term::DIM, &line) + "\n");
        }
    }
    text
}

/// Returns a line for each right-hand side, and the number of those that are not listed.
fn each(done: &Finished) -> Vec<String> {
    let told = done.solved.iter().enumerate().take(SHOWN).map(|(c, s)| {
        let residual = s.solution.history.criterion_value;
        format!("{}: {}, residual {residual:.2e}", c + 1, words::outcome(&s.solution))
    });
    let mut lines: Vec<String> = told.collect();
    let rest = done.solved.get(SHOWN..).unwrap_or_default();
    if !rest.is_empty() {
        let converged = rest.iter().filter(|s| s.solution.converged()).count();
        lines.push(format!("… and {} more, {} of them converged", count(rest.len()), count(converged)));
    }
    if done.solved.len() < done.wanted {
        lines.push(format!("{} not started", plural(done.wanted - done.solved.len(), "right-hand side")));
    }
    lines
}

/// Returns the values that the solve chose for options that were not given.
fn chosen(done: &Finished) -> Vec<String> {
    let mut all = crate::report::automatic(&done.shown().solution, &done.given);
    let system = &done.system;
    if system.block_detected {
        let reason = Some(system.block_reason.clone());
        all.insert(0, crate::report::choice("block", system.order.block.to_string(), reason));
    }
    choices(&all)
}

/// Formats choices in lines.
pub fn choices(all: &[Choice]) -> Vec<String> {
    let line = |c: &Choice| {
        let reason = c.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
        format!("{} {}{reason}", c.option, c.taken)
    };
    all.iter().map(line).collect()
}

/// Returns a line for each event.
fn events(solution: &Solution) -> Vec<String> {
    let line = |e: &krylith_core::solver::Event| match e.iteration {
        Some(i) => format!("{} after {}: {}", e.kind.name(), plural(i, "iteration"), e.words()),
        None => format!("{}: {}", e.kind.name(), e.words()),
    };
    let lines: Vec<String> = solution.events.iter().map(line).collect();
    if lines.is_empty() { vec!["none".into()] } else { lines }
}

/// Returns a line for each part of the set-up.
pub fn set_up(solution: &Solution) -> Vec<String> {
    let (parts, whole) = (&solution.setup_parts, solution.setup_parts.total());
    let part = |(part, t): (krylith_core::solver::SetupPart, f64)| {
        let share = if whole > 0.0 { 100.0 * t / whole } else { 0.0 };
        format!("{:<11} {:>9}  {share:3.0} %", part.name(), seconds(t))
    };
    parts.iter().map(part).collect()
}

/// Returns lines about the devices, their memory and the versions of their software.
pub fn machine(solution: &Solution) -> Vec<String> {
    let device = &solution.device;
    let mut lines = device.names.clone();
    let cores = krylith_core::solver::host::cores();
    lines.push(match device.kind {
        "cpu" => format!(
            "{} of {}, {}",
            plural(device.threads, "thread"),
            plural(cores, "core"),
            krylith_core::solver::host::simd()
        ),
        _ => format!("{} to drive it", plural(device.threads, "host thread")),
    });
    if let Some(held) = solution.device_memory {
        lines.push(format!("at most {} of device memory allocated", bytes(held)));
    }
    if solution.bytes_per_iteration > 0.0 {
        lines.push(format!("{} moved per iteration", bytes(solution.bytes_per_iteration as u64)));
    }
    let versions = crate::report::provenance::versions(device.kind == "cuda");
    let named = [("driver", versions.driver), ("CUDA", versions.cuda), ("NVRTC", versions.nvrtc)];
    let named: Vec<String> =
        named.into_iter().filter_map(|(name, version)| Some(format!("{name} {}", version?))).collect();
    if !named.is_empty() {
        lines.push(named.join(", "));
    }
    lines
}

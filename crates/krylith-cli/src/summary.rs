//! What a person reads on stdout when the command has solved a system.

use crate::options::Ordering;
use crate::solve::Finished;
use crate::system::{Operator, System};
use crate::words;
use krylith::text::{count, plural, seconds};

/// The name on the command line.
pub fn ordering(ordering: Ordering) -> &'static str {
    match ordering {
        Ordering::Interleaved => "interleaved",
        Ordering::Segregated => "segregated",
    }
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
    let history = &solution.history;
    let mut lines = describe(system);
    lines.push(format!(
        "right-hand side: {}{}",
        done.rhs,
        if history.rhs_norm == 0.0 { "; it is zero, and so is x" } else { "" }
    ));
    let mut rows = vec![
        ("system", lines),
        ("device", vec![words::device(solution)]),
        ("method", words::manner(solution, options)),
        ("outcome", vec![words::outcome(solution)]),
    ];
    let mut lines = vec![words::residual(solution)];
    if done.fields.len() > 1 {
        let fields: Vec<String> =
            done.fields.iter().enumerate().map(|(c, r)| format!("{c}: {r:.2e}")).collect();
        lines.push(format!("by field  {}", fields.join("  ")));
    }
    rows.push(("residual", lines));
    let mut lines = words::time(solution, &format!("loaded in {}", seconds(done.load)));
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
    if !wrote.is_empty() {
        rows.push(("wrote", wrote.to_vec()));
    }
    words::table(&rows)
}

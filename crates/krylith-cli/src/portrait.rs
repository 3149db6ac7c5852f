//! `krylith info SYSTEM`: the properties of a system, and how a solve would run, in short lines.

use crate::failure::{Failure, Result};
use crate::options::Ordering;
use crate::system::{Operator, Order, System};
use krylith_core::Problem;
use krylith_core::matching::MatchingChoice;
use krylith_core::matrix::Shape;
use krylith_core::operator::Terms;
use krylith_core::solver::{Diagnosis, Extent, Indices, Memory, Plan};
use krylith_core::text::{bytes, count, plural};

/// A label and its lines.
type Row = (&'static str, Vec<String>);

/// Limit of the search for the structural rank, as a multiple of the stored entries.
const LOOKS: usize = 200;

/// Largest number of attempts that are listed.
const ATTEMPTS: usize = 4;

/// Returns rows about the values, the diagonal, empty rows, rank and symmetry of a system, and about the plan
/// of a solve.
///
/// # Errors
/// The device of the options is missing, or options in the system's file do not suit the system.
pub fn rows(system: &System) -> Result<Vec<Row>> {
    let problem = system.problem()?;
    let diagnosis = problem.diagnosis()?;
    let terms = system.operator.terms();
    let shapes: Vec<Shape> = terms.terms().iter().map(|(_, a)| Shape::of(a)).collect();
    let mut rows = vec![("values", values(&diagnosis)), ("diagonal", diagonal(system, &diagnosis, &shapes))];
    let empty = empty(system, &diagnosis);
    if !empty.is_empty() {
        rows.push(("empty", empty));
    }
    let mut rank = rank(system, &terms, &diagnosis);
    rank.extend(singular(&diagnosis));
    rows.push(("rank", rank));
    rows.push(("symmetry", symmetry(system, &shapes)));
    let fields = fields(&problem)?;
    if !fields.is_empty() {
        rows.push(("fields", fields));
    }
    let plan = Plan::of(&problem, &diagnosis, &system.solver)
        .map_err(|e| Failure::from(e).within(&format!("{}: [solver]", system.label)))?;
    if let Some(found) = &plan.recognised {
        rows.push(("recognised", vec![found.clone()]));
    }
    rows.push(("", vec![String::new()]));
    rows.push(("a solve", attempts(system, &diagnosis, &plan)));
    rows.push(("memory", memory(&plan)));
    Ok(rows)
}

/// Describes the fields, and the blocks of the matrix between them.
fn fields(problem: &Problem) -> Result<Vec<String>> {
    let mut lines: Vec<String> = Vec::new();
    for block in problem.field_blocks()? {
        let entries = plural(block.nonzeros, "nonzero");
        let (f, g) = (&block.rows, &block.columns);
        lines.push(match (block.zero_diagonal, block.mirror) {
            (Some(zero), mirror) => {
                let symmetry = match mirror {
                    _ if block.nonzeros == 0 => "zero",
                    Some(1.0) => "symmetric",
                    Some(_) => "skew-symmetric",
                    None => "not symmetric",
                };
                let zero = if zero > 0 && block.nonzeros > 0 {
                    format!(", {} zero on the diagonal", count(zero))
                } else {
                    String::new()
                };
                format!("{f}: {}, {entries}, {symmetry}{zero}", plural(block.shape[0], "unknown"))
            }
            (None, _) if block.nonzeros == 0 => format!("{f}–{g}: zero"),
            (None, Some(1.0)) => format!("{f}–{g}: {entries}, the transpose of {g}–{f}"),
            (None, Some(_)) => format!("{f}–{g}: {entries}, minus the transpose of {g}–{f}"),
            (None, None) => format!("{f}–{g}: {entries}, not the transpose of {g}–{f}"),
        });
    }
    Ok(lines)
}

/// Formats a number with three digits, and with a power of ten if it is very small or large.
fn number(v: f64) -> String {
    let v: f64 = format!("{v:.2e}").parse().unwrap_or(v);
    if (1e-3..1e5).contains(&v) || v == 0.0 { v.to_string() } else { format!("{v:e}") }
}

/// Formats a range, such as `0.001 to 400`.
fn range(extent: Extent) -> String {
    match extent {
        e if e.largest == 0.0 => "none".into(),
        e if e.largest == e.smallest => number(e.largest),
        e => format!("{} to {}", number(e.smallest), number(e.largest)),
    }
}

fn values(d: &Diagnosis) -> Vec<String> {
    vec![
        format!("magnitudes {}", range(d.entries)),
        format!("largest of each row {}, of each column {}", range(d.rows), range(d.columns)),
    ]
}

/// Formats a list in the user's numbering, such as `row 3` or `rows 3, 17 and 4 more`.
fn list(one: &str, indices: &Indices, order: Order) -> String {
    let plural = if indices.count == 1 { "" } else { "s" };
    format!("{one}{plural} {}", named(indices, order))
}

/// Formats row numbers in the user's numbering.
fn named(indices: &Indices, order: Order) -> String {
    let s = order.stages;
    indices.text(&|unknown| {
        let (row, stage) = (unknown as usize / s, unknown as usize % s);
        let row = match order.user {
            Ordering::Interleaved => row,
            Ordering::Segregated => row % order.block * order.nodes + row / order.block,
        };
        if s == 1 { row.to_string() } else { format!("{row} of stage {stage}") }
    })
}

fn diagonal(system: &System, d: &Diagnosis, shapes: &[Shape]) -> Vec<String> {
    let n = system.len();
    let mut lines = vec![match &d.missing_diagonal {
        all if all.count == 0 => "complete: no entry is missing or zero".into(),
        some => {
            let of = format!("{} of {}", count(some.count), entries(n));
            format!("{of} missing or zero: {} (counted from 0)", list("row", some, system.order))
        }
    }];
    if d.weak_diagonal > d.missing_diagonal.count {
        let small = d.weak_diagonal - d.missing_diagonal.count;
        lines.push(format!("{} smaller than 1e-3 times the largest entry of the row", entries(small)));
    }
    if let (Operator::Matrix(_), [shape]) = (&system.operator, shapes) {
        lines.push(match shape.dominant_rows {
            all if all == n => "dominant in every row (no smaller than the sum of the other entries)".into(),
            0 => "dominant in no row".into(),
            some => format!("dominant in {} of {}", count(some), plural(n, "row")),
        });
    }
    lines
}

fn empty(system: &System, d: &Diagnosis) -> Vec<String> {
    let mut lines = Vec::new();
    if d.empty_rows.count > 0 {
        let has = if d.empty_rows.count == 1 { "has" } else { "have" };
        let what = format!("{has} no nonzero entry: there is no solution if b is not zero there");
        lines.push(format!("{} {what}", list("row", &d.empty_rows, system.order)));
    }
    if d.empty_columns.count > 0 {
        let has = if d.empty_columns.count == 1 { "has" } else { "have" };
        let what = format!("{has} no nonzero entry: these unknowns can have any value");
        lines.push(format!("{} {what}", list("column", &d.empty_columns, system.order)));
    }
    lines
}

fn rank(system: &System, terms: &Terms, d: &Diagnosis) -> Vec<String> {
    let n = system.len();
    if d.missing_diagonal.count == 0 {
        return vec![format!(
            "structural rank {} of {}, because the diagonal has no zero",
            count(n),
            count(n)
        )];
    }
    let stages = terms.stages() * terms.stages();
    let stored: usize = terms.terms().iter().map(|(_, a)| a.values().len() * stages).sum();
    let Some(found) = terms.structural_rank(stored.saturating_mul(LOOKS)) else {
        return vec!["structural rank not known: the search reached its limit of operations".into()];
    };
    let mut lines = vec![format!("structural rank {} of {}", count(found.rank), count(n))];
    if found.rank < n {
        lines[0] += ": the matrix is singular, whatever its values";
        let rows = list("row", &Indices::of(&found.crowded_rows), system.order);
        lines.push(match (found.crowded_rows.len(), found.crowded_columns()) {
            (1, _) => format!("{rows} has no entry"),
            (_, 0) => format!("{rows} have no entry"),
            (_, columns) => format!("{rows} have entries only in {}", plural(columns, "column")),
        });
    }
    lines
}

fn singular(d: &Diagnosis) -> Option<String> {
    let given = if d.constants.named { "--nullspace constant projects them out" } else { "null vectors" };
    (!d.constants.is_none()).then(|| format!("singular: A maps {} to zero ({given})", d.constants))
}

/// Largest difference of mirrored entries that counts as rounding, as a share of the largest of their row.
const ROUNDING: f64 = 1e-12;

fn symmetry(system: &System, shapes: &[Shape]) -> Vec<String> {
    let names: &[&str] = if system.is_kronecker() { &["M ", "L "] } else { &[""] };
    let mut lines = Vec::new();
    for (name, shape) in names.iter().zip(shapes) {
        let share = 100.0 * shape.alone as f64 / shape.entries.max(1) as f64;
        let percent = |p: f64| format!("{} %", number(p));
        let pattern = match shape.alone {
            0 => "pattern symmetric".into(),
            some => format!("{} ({}) have no entry at the transposed position", count(some), percent(share)),
        };
        lines.push(match shape {
            s if s.is_symmetric() => format!("{name}symmetric"),
            s if s.asymmetry <= ROUNDING => format!(
                "{name}symmetric up to rounding: mirrored entries differ by at most {:.0e} of the largest of their row",
                s.asymmetry
            ),
            s if s.alone == 0 => {
                format!(
                    "{name}{pattern}; values at transposed positions differ by up to {}",
                    percent(100.0 * s.mismatch)
                )
            }
            s if s.mismatch == 0.0 => format!("{name}not symmetric: of {} {pattern}", entries(s.entries)),
            s => format!(
                "{name}not symmetric: of {} {pattern}; values at transposed positions differ by up to {}",
                entries(s.entries),
                percent(100.0 * s.mismatch)
            ),
        });
        let width = format!("{name}bandwidth {}", count(shape.bandwidth));
        lines.push(if shape.bandwidth == 0 { format!("{name}diagonal") } else { width });
    }
    lines
}

fn entries(n: usize) -> String {
    if n == 1 { "1 entry".into() } else { format!("{} entries", count(n)) }
}

fn attempts(system: &System, d: &Diagnosis, plan: &Plan) -> Vec<String> {
    let mut lines = vec![format!("on {} ({})", plan.device, plan.reason)];
    if plan.attempts.len() > 1 {
        lines.push("one after the other, until one converges:".into());
    }
    lines.extend(plan.remarks.iter().cloned());
    for (k, attempt) in plan.attempts.iter().take(ATTEMPTS).enumerate() {
        let why = match k {
            0 if plan.symmetric && attempt.name.ends_with("with cg") => ", because the matrix is symmetric",
            _ => "",
        };
        lines.push(format!("{}. {}{why}", k + 1, attempt.name));
    }
    if plan.attempts.len() > ATTEMPTS {
        lines.push(format!("and {} stronger ones", count(plan.attempts.len() - ATTEMPTS)));
    }
    if plan.equilibrate {
        lines.push(match system.solver.equilibrate {
            Some(true) => "rows and columns scaled, as requested".into(),
            _ => format!("rows and columns scaled: their largest entries differ by {:.0e}", d.spread()),
        });
    }
    if plan.matching {
        let asked = system.solver.matching == Some(MatchingChoice::On);
        lines.push(match d.weak_diagonal {
            _ if asked => "rows matched with columns, as requested".into(),
            weak => format!("rows matched with columns: {} of the diagonal missing or small", entries(weak)),
        });
    }
    lines
}

fn memory(plan: &Plan) -> Vec<String> {
    let parts = |m: Memory| {
        let list = [
            ("matrix", m.matrix),
            ("preconditioner", m.preconditioner),
            ("basis", m.basis),
            ("vectors", m.vectors),
        ];
        let list =
            list.iter().filter(|(_, size)| *size > 0).map(|(name, size)| format!("{name} {}", bytes(*size)));
        list.collect::<Vec<_>>().join(", ")
    };
    let Some(first) = plan.attempts.first() else { return Vec::new() };
    let mut lines =
        vec![format!("{} for the first attempt: {}", bytes(first.memory.total()), parts(first.memory))];
    if let Some(most) =
        plan.attempts.iter().max_by_key(|a| a.memory.total()).filter(|a| a.memory != first.memory)
    {
        lines.push(format!("about {} for the largest attempt: {}", bytes(most.memory.total()), most.name));
    }
    if let Some(free) = plan.free {
        let short = if first.memory.total() > free {
            ": the first attempt does not fit; try --precision f32"
        } else {
            ""
        };
        lines.push(format!("{} free{short}", bytes(free)));
    }
    lines
}

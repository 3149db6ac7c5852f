//! `krylith info SYSTEM`: the properties of a system, and how a solve would run, in short lines.

use crate::failure::{Failure, Result};
use crate::options::Ordering;
use crate::system::{Operator, Order, System};
use krylith_core::Problem;
use krylith_core::matching::MatchingChoice;
use krylith_core::matrix::{MAX_BLOCK, Numbering, Shape, WEAK_DIAGONAL, rows_to_negate};
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
/// of a solve. Also returns lines about the order of its unknowns.
///
/// # Errors
/// The device of the options is missing, or options in the system's file do not suit the system.
pub fn rows(system: &System) -> Result<(Vec<Row>, Vec<String>)> {
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
    let plan = Plan::of(&problem, &diagnosis, &system.solver)
        .map_err(|e| Failure::from(e).within(&format!("{}: [solver]", system.label)))?;
    rows.push(("symmetry", symmetry(system, &diagnosis, &shapes, &plan)));
    let fields = fields(&problem)?;
    if !fields.is_empty() {
        rows.push(("fields", fields));
    }
    if let Some(found) = plan.recognised.as_ref().or(plan.unrecognised.as_ref()) {
        rows.push(("recognised", vec![found.clone()]));
    }
    rows.push(("", vec![String::new()]));
    rows.push(("a solve", attempts(system, &diagnosis, &shapes, &plan)));
    rows.push(("memory", memory(&plan)));
    Ok((rows, numbering(system, &plan)))
}

/// Describes the order of the unknowns: of fields, or of what the pattern shows.
fn numbering(system: &System, plan: &Plan) -> Vec<String> {
    let Operator::Matrix(a) = &system.operator else { return Vec::new() };
    let found = Numbering::of(a);
    let cells = found.cells.map(|k| format!("cells of {k} unknowns fit; blocks go to {MAX_BLOCK}"));
    if a.block() > 1 {
        return cells.into_iter().collect();
    }
    let text = match (&plan.numbering, cells, found.fields) {
        (Some(fields), _, _) => fields.clone(),
        (None, Some(cells), _) => format!("interleaved: {cells}"),
        (None, None, Some(k)) => {
            format!("by fields: {k} of {} unknowns, one after the other", count(system.len() / k))
        }
        (None, None, None) => "unknown: neither fields nor cells are seen".into(),
    };
    vec![format!("numbering {text}")]
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
            (None, Some(sign)) => {
                let minus = if sign < 0.0 { "minus " } else { "" };
                let rounding = match block.alone {
                    0 => String::new(),
                    1 => "; 1 rounding error has no entry there".into(),
                    some => format!("; {} rounding errors have no entry there", count(some)),
                };
                format!("{f}–{g}: {entries}, {minus}the transpose of {g}–{f}{rounding}")
            }
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
    if let (Operator::Matrix(_), [shape]) = (&system.operator, shapes) {
        if shape.weak_rows > 0 {
            let small = entries(shape.weak_rows);
            lines.push(format!("{small} smaller than {WEAK_DIAGONAL:e} times the largest entry of the row"));
        }
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

/// Largest difference of mirrored entries in a term of a sum that counts as rounding, as a share of the
/// largest of their row. Of a single matrix the solver's own test decides.
const ROUNDING: f64 = 1e-12;
/// The same in a matrix that the solver takes for symmetric, with rows of unlike scales.
const UNLIKE: f64 = 1e-6;

fn symmetry(system: &System, d: &Diagnosis, shapes: &[Shape], plan: &Plan) -> Vec<String> {
    let names: &[&str] = if system.is_kronecker() { &["M ", "L "] } else { &[""] };
    let tested = plan.tested_symmetric.filter(|_| !system.is_kronecker());
    let mut lines = Vec::new();
    for (name, shape) in names.iter().zip(shapes) {
        let up_to = || format!("{name}symmetric up to {:.0e} of the largest entry of a row", shape.asymmetry);
        let is_symmetric = tested.unwrap_or(shape.asymmetry <= ROUNDING);
        lines.push(match (is_symmetric, shape.asymmetry) {
            (_, 0.0) => format!("{name}symmetric"),
            (true, asymmetry) if asymmetry <= UNLIKE => up_to(),
            (true, _) if !plan.remarks.is_empty() => {
                format!("{}; symmetric without what is separated before a solve", unlike(name, shape))
            }
            (true, _) => format!("{}; products with A and its transpose agree", unlike(name, shape)),
            (false, _) => unlike(name, shape),
        });
        if is_symmetric && !system.is_kronecker() && shape.asymmetry <= UNLIKE {
            lines.extend(definiteness(d, shape));
        } else if !is_symmetric && shape.unlike_magnitudes <= ROUNDING {
            lines.extend(up_to_signs(system));
        }
        let width = format!("{name}bandwidth {}", count(shape.bandwidth));
        lines.push(if shape.bandwidth == 0 { format!("{name}diagonal") } else { width });
    }
    lines
}

/// Describes how a matrix that is not symmetric differs from its transpose.
fn unlike(name: &str, shape: &Shape) -> String {
    let percent = |p: f64| format!("{} %", number(p));
    let values =
        || format!("values at transposed positions differ by up to {}", percent(100.0 * shape.mismatch));
    let share = 100.0 * shape.alone as f64 / shape.entries.max(1) as f64;
    let pattern = match shape.alone {
        0 => return format!("{name}pattern symmetric; {}", values()),
        some => format!("{} ({}) have no entry at the transposed position", count(some), percent(share)),
    };
    let all = format!("{name}not symmetric: of {} {pattern}", entries(shape.entries));
    if shape.mismatch == 0.0 { all } else { format!("{all}; {}", values()) }
}

/// Returns the rows whose signs make the matrix symmetric, if there are such rows.
fn up_to_signs(system: &System) -> Option<String> {
    let Operator::Matrix(a) = &system.operator else { return None };
    let rows = rows_to_negate(a)?;
    let (first, last) = (*rows.first()?, *rows.last()?);
    let named = match last - first + 1 == rows.len() && rows.len() > 1 {
        true if system.order.user == Ordering::Interleaved => {
            format!("rows {} to {}", count(first), count(last))
        }
        _ => list("row", &Indices::of(&rows), system.order),
    };
    Some(format!("symmetric up to the signs of {named} (counted from 0)"))
}

/// Returns what the diagonal of a symmetric matrix says about its definiteness for certain, and otherwise
/// what remains possible.
fn definiteness(d: &Diagnosis, shape: &Shape) -> Option<String> {
    let [negative, positive] = shape.signs;
    let zero = d.missing_diagonal.count.saturating_sub(d.empty_rows.count);
    let rows = shape.dominant_rows + d.empty_rows.count;
    let all = negative + positive + d.missing_diagonal.count;
    Some(match (negative, positive) {
        (0, 0) if zero == 0 => return None,
        (1.., 1..) => {
            let signs = format!("{} negative, {} positive", count(negative), count(positive));
            format!("indefinite: diagonal entries are {signs}")
        }
        _ if zero > 0 => format!(
            "indefinite: {} of the diagonal {} zero, and their rows are not",
            entries(zero),
            if zero == 1 { "is" } else { "are" }
        ),
        (0, _) if rows == all => "positive semidefinite: the diagonal is positive and dominant".into(),
        (_, 0) if rows == all => "negative semidefinite: the diagonal is negative and dominant".into(),
        (0, _) => "may be positive definite: the diagonal is positive".into(),
        _ => "may be negative definite: the diagonal is negative".into(),
    })
}

fn entries(n: usize) -> String {
    if n == 1 { "1 entry".into() } else { format!("{} entries", count(n)) }
}

fn attempts(system: &System, d: &Diagnosis, shapes: &[Shape], plan: &Plan) -> Vec<String> {
    let is_indefinite = matches!(shapes, [shape] if shape.signs[0] > 0 && shape.signs[1] > 0);
    let mut lines = vec![format!("on {} ({})", plan.device, plan.reason)];
    if plan.attempts.len() > 1 {
        lines.push("one after the other, until one converges:".into());
    }
    lines.extend(plan.remarks.iter().cloned());
    for (k, attempt) in plan.attempts.iter().take(ATTEMPTS).enumerate() {
        let why = match k {
            0 if plan.symmetric && attempt.name.ends_with("with cg") => match is_indefinite {
                false => ", because the matrix is symmetric",
                // It costs an iteration or so, and direct factors follow.
                true => ", although the symmetric matrix is indefinite: CG may break down",
            },
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

//! Table V of the P-CBCG paper: the cost of an iteration by kernels, per GPU of 1,024.
//!
//! The measured kernels are scaled to the cells of one of those GPUs. One device exchanges no messages, so
//! the table has the paper's sums and halos only.

use super::kernels::{Role, Row};
use crate::publish::{Pages, number, rows_of};
use serde_json::{Value, json};

/// Cells of a GPU in the table: 1280×1280×4608 on 1,024.
const CELLS: f64 = 1280.0 * 1280.0 * 4608.0 / 1024.0;

/// A line of the table: method, part, milliseconds on KNL, ABCI and Summit without overlap.
struct Published {
    method: &'static str,
    part: &'static str,
    roles: &'static [Role],
    milliseconds: [f64; 3],
}

const fn line(
    method: &'static str,
    part: &'static str,
    roles: &'static [Role],
    milliseconds: [f64; 3],
) -> Published {
    Published { method, part, roles, milliseconds }
}

const TABLE: [Published; 13] = [
    line("P-CG", "sums over ranks", &[], [2.46, 0.20, 0.14]),
    line("P-CG", "halo", &[], [0.78, 1.48, 2.18]),
    line("P-CG", "preconditioner", &[Role::Preconditioner], [2.81, 1.61, 1.63]),
    line("P-CG", "SpMV", &[Role::Product], [1.21, 1.19, 1.28]),
    line("P-CG", "AXPY", &[Role::Vectors], [0.69, 0.36, 0.38]),
    line("P-CG", "kernels", &[Role::Preconditioner, Role::Product, Role::Vectors], [4.71, 3.16, 3.29]),
    line("P-CBCG", "sums over ranks", &[], [0.91, 0.03, 0.03]),
    line("P-CBCG", "halo", &[], [1.05, 1.37, 2.12]),
    line("P-CBCG", "preconditioner", &[Role::Preconditioner], [2.32, 1.44, 1.44]),
    line("P-CBCG", "SpMV", &[Role::Product], [1.71, 0.93, 0.93]),
    line("P-CBCG", "blocks of vectors", &[Role::Matrix], [2.75, 1.09, 1.10]),
    line("P-CBCG", "recurrence of the basis", &[Role::Basis], [f64::NAN; 3]),
    line("P-CBCG", "kernels", &[Role::Preconditioner, Role::Product, Role::Matrix], [6.78, 3.46, 3.47]),
];

/// Returns the seconds per cell and product that kernels of some roles take in an iteration: NaN unless each
/// role has a kernel. Of several preconditioners the first counts.
pub(super) fn seconds(rows: &[Row], ours: bool, roles: &[Role]) -> f64 {
    let of = |role: &Role| {
        let mut all = rows.iter().filter(|row| row.ours == ours && row.role == *role && row.check.is_ok());
        let each = |row: &Row| row.runs as f64 * row.samples.median() / row.cells as f64;
        match role {
            Role::Preconditioner => all.next().map_or(f64::NAN, each),
            _ => all.map(each).reduce(|a, b| a + b).unwrap_or(f64::NAN),
        }
    };
    if roles.is_empty() { f64::NAN } else { roles.iter().map(of).sum() }
}

/// Builds the table and the JSON.
pub(super) fn report(spec: &str, rows: &[Row], pages: &mut Pages) -> Value {
    if rows.is_empty() {
        return Value::Null;
    }
    let cost = |line: &Published, ours: bool| 1e3 * CELLS * seconds(rows, ours, line.roles);
    let title = format!("{spec}: Table V, ms an iteration of {CELLS} cells, without messages");
    pages.tables.push(
        rows_of(title, &TABLE)
            .column("", |line| format!("{}, {}", line.method, line.part))
            .column("Krylith", |line| number(cost(line, true), 3))
            .column("the paper's kernels here", |line| number(cost(line, false), 3))
            .column("× faster", |line| number(cost(line, false) / cost(line, true), 2))
            .column("paper: KNL", |line| number(line.milliseconds[0], 2))
            .column("ABCI (V100)", |line| number(line.milliseconds[1], 2))
            .column("Summit (V100)", |line| number(line.milliseconds[2], 2))
            .table(),
    );
    let one = |line: &Published| {
        json!({
            "method": line.method, "part": line.part, "krylith_ms": cost(line, true),
            "paper_kernels_ms": cost(line, false), "paper_ms": line.milliseconds,
        })
    };
    TABLE.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::Samples;

    fn row(role: Role, ours: bool, runs: usize, nanoseconds: f64) -> Row {
        Row {
            name: String::new(),
            role,
            ours,
            flops: 1.0,
            bytes: 1.0,
            paper: None,
            cells: 1000,
            runs,
            samples: Samples(vec![1e-6 * nanoseconds]),
            check: Ok(0.0),
        }
    }

    #[test]
    fn costs_are_those_of_sums_by_hand() {
        let mut rows = vec![
            row(Role::Product, true, 1, 0.1),
            row(Role::Preconditioner, true, 1, 0.2),
            row(Role::Preconditioner, true, 1, 7.0), // another tile
            row(Role::Matrix, true, 1, 0.3),
            row(Role::Matrix, true, 1, 0.5),
            row(Role::Matrix, false, 2, 0.5),
        ];
        let close = |a: f64, b: f64| assert!((a - b).abs() < 1e-22, "{a} {b}");
        close(seconds(&rows, true, &[Role::Matrix]), 0.8e-9);
        close(seconds(&rows, false, &[Role::Matrix]), 1e-9);
        close(seconds(&rows, true, &[Role::Preconditioner, Role::Product]), 0.3e-9);
        assert!(seconds(&rows, true, &[Role::Vectors]).is_nan() && seconds(&rows, true, &[]).is_nan());
        rows[0].check = Err("wrong".into());
        assert!(seconds(&rows, true, &[Role::Product]).is_nan());
        // 7,372,800 cells.
        let mut pages = Pages::default();
        let json = report("x", &rows, &mut pages);
        let found = json.as_array().and_then(|all| all.iter().find(|l| l["part"] == "blocks of vectors"));
        let found = found.and_then(|line| line["krylith_ms"].as_f64());
        assert!(found.is_some_and(|ms| (ms - 7.3728 * 0.8).abs() < 1e-9), "{found:?}");
    }

    #[test]
    fn the_papers_kernels_add_up_to_its_totals() {
        for (method, totals) in [("P-CG", [7.95, 4.84, 5.61]), ("P-CBCG", [8.74, 4.86, 5.63])] {
            for (machine, total) in totals.into_iter().enumerate() {
                let of = |part: &str| {
                    let line = TABLE.iter().find(|line| line.method == method && line.part == part);
                    line.map_or(f64::NAN, |line| line.milliseconds[machine])
                };
                let sum = of("sums over ranks") + of("halo") + of("kernels");
                assert!((sum - total).abs() < 0.015, "{method}, {machine}: {sum}");
            }
        }
    }
}

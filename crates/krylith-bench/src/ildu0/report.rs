//! Tables, JSON and the page from the measurements; tables are numbered as in the paper that `ildu0/mod.rs`
//! names.

use super::measure::{Found, Row, Solve};
use super::{Of, Solves};
use crate::publish::{Pages, Report, error, facts, label, number, outcome, percent, rows_of};
use krylith_core::text::plural;
use krylith_plot::html::Table;
use krylith_plot::svg;
use serde_json::{Value, json};

/// The reported parts: one lower solve and a whole application.
const PARTS: [(&str, bool); 2] = [("one lower solve", false), ("one application of L, D and U", true)];

/// Returns the rows of one part.
fn of_part(found: &Found, all: bool) -> Vec<&Row> {
    found.rows.iter().filter(|row| (row.solves == Solves::All) == all).collect()
}

/// Makes the report of some systems; `failures` are those of others.
pub(super) fn make(
    bandwidth: (&'static str, f64),
    found: &[Found],
    failures: &[String],
    mut meta: Value,
) -> Report {
    let (tables, failures) = (vec![matrices(found)], failures.to_vec());
    let mut pages = Pages { tables, failures, ..Pages::default() };
    let mut cases = Vec::new();
    for case in found {
        pages.failures.extend(case.failures.iter().map(|f| format!("{}: {f}", case.name)));
        let mut applications = Vec::new();
        for (what, all) in PARTS {
            let rows = of_part(case, all);
            if !rows.is_empty() {
                applications.extend(table(case, what, &rows, bandwidth, &mut pages));
            }
        }
        let solves = solves(case, &mut pages);
        pages.tables.push(
            rows_of(format!("{}: set-up", case.name), &case.setups)
                .column("", |setup| setup.name.clone())
                .column("ms", |setup| setup.samples.text(1e3))
                .table(),
        );
        let setups = case.setups.iter().map(|s| json!({ "name": s.name, "seconds": s.samples.json() }));
        cases.push(json!({
            "name": case.name, "system": case.spec, "cut": case.cut.text(), "rtol": case.rtol, "block": case.block,
            "block_rows": case.block_rows, "blocks": case.blocks, "dropped": case.dropped,
            "subdomains": case.subdomains, "largest": case.largest, "levels": case.levels, "applications": applications, "bicgstab": solves,
            "setup": setups.collect::<Value>(),
        }));
        pictures(case, &mut pages);
    }
    let (means, summary) = means(found);
    if found.len() > 1 {
        pages.tables.insert(1, means);
    }
    let (kind, bytes) = bandwidth;
    let first = format!("; {kind} bandwidth {:.0} GB/s, to which every share relates", bytes / 1e9);
    let more = format!("{} samples each, median (minimum–maximum)", meta["repetitions"]);
    meta["bandwidth"] = json!({ "kind": kind, "bytes_per_second": bytes });
    meta["cases"] = json!(cases);
    meta["geometric_means"] = json!(summary);
    pages.report("ILDU(0) on subdomains, and BiCGSTAB", facts(&meta, &first, vec![more]), meta)
}

/// Returns the seconds of the first baseline on a matrix over `seconds`.
fn over<'r>(mut rows: impl Iterator<Item = &'r Row>, of: Of, seconds: f64) -> f64 {
    rows.find(|r| r.of == of && !r.ours).map_or(f64::NAN, |r| r.alone.median()) / seconds
}

/// Returns geometric means over the matrices, for variants that ran on all of them: applications relative to
/// the baselines, solves relative to the first solver.
fn means(found: &[Found]) -> (Table, Vec<Value>) {
    let mean = |factors: Vec<Option<f64>>| {
        let all = factors.iter().map(|f| f.map_or(f64::NAN, f64::ln)).sum::<f64>();
        (all / factors.len().max(1) as f64).exp()
    };
    let named = |f: &'_ Found, name: &str| -> Option<f64> {
        of_part(f, true).iter().find(|r| r.name == name).map(|r| r.alone.median())
    };
    let mut rows: Vec<(&String, [f64; 3])> = Vec::new();
    for name in found.first().map_or(Vec::new(), |f| of_part(f, true)).iter().map(|r| &r.name) {
        if found.iter().any(|f| named(f, name).is_none()) {
            continue; // different block sizes use different libraries
        }
        let application = |of: Of| {
            let one = |f: &Found| Some(over(of_part(f, true).into_iter(), of, named(f, name)?));
            mean(found.iter().map(one).collect())
        };
        let solve = |f: &Found| {
            let own = f.solves.iter().find(|s| s.name == *name)?;
            Some(f.solves.first()?.samples.median() / own.samples.median())
        };
        let solves = mean(found.iter().map(solve).collect());
        rows.push((name, [application(Of::Whole), application(Of::Decomposed), solves]));
    }
    let json = |(name, [whole, decomposed, solves]): &(&String, [f64; 3])| {
        json!({
            "name": name, "application_over_whole": whole, "application_over_decomposed": decomposed,
            "bicgstab_over_first": solves,
        })
    };
    let out = rows_of(format!("Geometric means over {} matrices", found.len()), &rows)
        .column("", |row| row.0.clone())
        .column("application, × baseline, whole", |row| number(row.1[0], 2))
        .column("× baseline, decomposed", |row| number(row.1[1], 2))
        .column("BiCGSTAB, × first", |row| number(row.1[2], 2))
        .table();
    (out, rows.iter().map(json).collect())
}

/// Builds the paper's Table 5.4, with the levels.
fn matrices(found: &[Found]) -> Table {
    let numbers = |c: &Found, blocks: usize| (blocks * c.block * c.block).to_string();
    rows_of("What cutting into subdomains drops", found)
        .column("", |c| c.name.clone())
        .column("cut", |c| c.cut.text())
        .column("block rows", |c| c.block_rows.to_string())
        .column("nonzeros", |c| numbers(c, c.blocks))
        .column("subdomains", |c| c.subdomains.to_string())
        .column("rows of the largest", |c| c.largest.to_string())
        .column("nonzeros kept", |c| numbers(c, c.blocks - c.dropped))
        .column("dropped", |c| percent(c.dropped as f64 / c.blocks.max(1) as f64, 2))
        .column("levels of L", |c| c.levels[0].to_string())
        .column("of U", |c| c.levels[1].to_string())
        .table()
}

/// Builds the paper's Tables 5.2 and 5.3.
fn table(
    case: &Found,
    what: &str,
    rows: &[&Row],
    (kind, bandwidth): (&'static str, f64),
    pages: &mut Pages,
) -> Vec<Value> {
    let share = |row: &Row| row.bytes as f64 / row.alone.median() / bandwidth;
    let speedup = |row: &Row, of: Of| over(rows.iter().copied(), of, row.alone.median());
    pages.show(
        &format!("{}: ", case.name),
        rows_of(format!("{}: {what}", case.name), rows.iter().copied())
            .checked(|row| &row.check, 1)
            .column("", |row| label(&row.name, &row.notes))
            .column("ms", |row| row.alone.text(1e3))
            .column("after other data, ms", |row| row.cold.text(1e3))
            .column("MB", |row| number(row.bytes as f64 / 1e6, 0))
            .column(format!("share of {kind}"), |row| percent(share(row), 1))
            .column("× baseline, whole", |row| number(speedup(row, Of::Whole), 2))
            .column("× baseline, decomposed", |row| number(speedup(row, Of::Decomposed), 2))
            .column("error", |row| error(&row.check, 0)),
        |row| &row.check,
    );
    let one = |row: &&Row| {
        json!({
            "name": row.name, "notes": row.notes, "ours": row.ours,
            "matrix": if row.of == Of::Whole { "whole" } else { "decomposed" },
            "part": if row.solves == Solves::All { "all" } else { "lower" },
            "bytes": row.bytes, "check": outcome(&row.check), "alone": row.alone.json(), "cold": row.cold.json(),
            "bandwidth_fraction": share(row), "speedup_whole": speedup(row, Of::Whole),
            "speedup_decomposed": speedup(row, Of::Decomposed),
        })
    };
    rows.iter().map(one).collect()
}

/// Returns the number of solves after which the more expensive set-up pays off; `None` if never.
fn break_even(solve: &Solve, base: &Solve) -> Option<u64> {
    let (saved, paid) = (base.samples.median() - solve.samples.median(), solve.setup - base.setup);
    (saved > 0.0).then(|| (paid / saved).max(0.0).ceil().max(1.0) as u64)
}

/// Builds the paper's Tables 5.5 and 5.6.
fn solves(case: &Found, pages: &mut Pages) -> Value {
    let Some(base) = case.solves.first() else { return json!([]) };
    let iterations = |solve: &Solve| match solve.iterations {
        [least, most] if least == most => most.to_string(),
        [least, most] => format!("{least}–{most}"),
    };
    let speedup = |solve: &Solve| base.samples.median() / solve.samples.median();
    let pays = |solve: &Solve| break_even(solve, base).filter(|_| !std::ptr::eq(solve, base));
    pages.show(
        &format!("{}: ", case.name),
        rows_of(format!("{}: BiCGSTAB to {:e}", case.name, case.rtol), &case.solves)
            .checked(|solve| &solve.check, 2)
            .column("", |solve| solve.name.clone())
            .column("iterations", iterations)
            .column("solve, s", |solve| solve.samples.text(1.0))
            .column("set-up, s", |solve| number(solve.setup, 3))
            .column("× first", |solve| number(speedup(solve), 2))
            .column("pays after", |solve| pays(solve).map_or("–".into(), |n| plural(n as usize, "solve")))
            .column("true residual", |solve| error(&solve.check, 1)),
        |solve| &solve.check,
    );
    let one = |solve: &Solve| {
        json!({
            "name": solve.name, "ours": solve.ours, "iterations": solve.iterations, "seconds": solve.samples.json(),
            "setup_seconds": solve.setup, "speedup": speedup(solve), "pays_after_solves": pays(solve),
            "residuals": solve.residuals, "check": outcome(&solve.check),
        })
    };
    case.solves.iter().map(one).collect()
}

fn pictures(case: &Found, pages: &mut Pages) {
    for (what, all) in PARTS {
        let right = of_part(case, all).into_iter().filter(|row| row.check.is_ok());
        let bars: Vec<_> = right.map(|r| (r.name.clone(), vec![1e6 * r.alone.median()])).collect();
        if !bars.is_empty() {
            let title = format!("{}: {what}", case.name);
            pages.picture(title, |title| svg::stacked_bars(title, "µs", &["time"], &bars));
        }
    }
    let curves: Vec<_> = case.solves.iter().map(|s| (s.name.clone(), s.residuals.as_slice())).collect();
    if !curves.is_empty() {
        let title = format!("{}: relative residual of BiCGSTAB", case.name);
        pages.picture(title, |title| svg::curves(title, &curves));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Samples;

    fn row(name: &str, of: Of, seconds: f64, check: Result<f64, String>) -> Row {
        let alone = Samples(if check.is_ok() { vec![seconds] } else { vec![] });
        Row {
            name: name.into(),
            notes: String::new(),
            of,
            solves: Solves::All,
            ours: false,
            bytes: 1_000_000,
            cold: alone.clone(),
            alone,
            check,
        }
    }

    fn solve(name: &str, seconds: f64, setup: f64) -> Solve {
        Solve {
            name: name.into(),
            ours: false,
            setup,
            samples: Samples(vec![seconds]),
            iterations: [3, 4],
            residuals: vec![1.0, 1e-9],
            check: Ok(1e-9),
        }
    }

    fn found() -> Found {
        Found {
            name: "small <&>".into(),
            spec: "laplace".into(),
            rtol: 1e-8,
            cut: Cut::Boxes { grid: [4, 4, 4], size: [2, 2, 2] },
            block: 1,
            block_rows: 64,
            blocks: 352,
            dropped: 44,
            subdomains: 8,
            largest: 8,
            levels: [4, 4],
            rows: vec![
                row("vendor", Of::Whole, 8e-6, Ok(1e-16)),
                row("vendor", Of::Decomposed, 4e-6, Ok(1e-16)),
                row("fast", Of::Decomposed, 1e-6, Ok(1e-16)),
                row("bad", Of::Decomposed, 1e-9, Err("bad: differs".into())),
            ],
            solves: vec![solve("base", 2.0, 1.0), solve("dear", 1.0, 4.5), solve("slow", 3.0, 0.0)],
            setups: vec![Setup { name: "partition".into(), samples: Samples(vec![0.5]) }],
            failures: vec!["no memory".into()],
        }
    }
    use super::super::{Setup, cut::Cut};

    #[test]
    fn speed_ups_shares_and_failures_are_reported() {
        let report =
            make(("read", 2e12), &[found()], &[], json!({ "device": { "name": "test" }, "repetitions": 1 }));
        let rows = &report.json["cases"][0]["applications"];
        assert_eq!(rows[2]["speedup_whole"].as_f64().unwrap().round(), 8.0);
        assert_eq!(rows[2]["speedup_decomposed"].as_f64().unwrap().round(), 4.0);
        assert!((rows[2]["bandwidth_fraction"].as_f64().unwrap() - 0.5).abs() < 1e-12);
        assert_eq!(report.failures.len(), 2);
        assert!(report.tables.contains("WRONG") && report.tables.contains("12.50 %"));
        assert!(!report.html.contains("small <&>"));
        krylith_plot::svg::assert_well_formed(&report.html);
    }

    #[test]
    fn means_are_geometric_and_of_what_ran_everywhere() {
        let (mut one, two) = (found(), found());
        one.rows[2].alone = Samples(vec![4e-6]);
        one.rows.push(row("alone", Of::Decomposed, 1e-6, Ok(0.0)));
        let (table, json) = means(&[one, two]);
        // "fast" is 2 and 8 times as fast as the first on the whole matrix; "alone" ran once, and "bad" has
        // no time.
        let fast = json.iter().find(|r| r["name"] == "fast").unwrap();
        assert!((fast["application_over_whole"].as_f64().unwrap() - 4.0).abs() < 1e-12);
        assert!((fast["application_over_decomposed"].as_f64().unwrap() - 2.0).abs() < 1e-12);
        assert!(fast["bicgstab_over_first"].is_null());
        assert!(json.iter().all(|r| r["name"] != "alone"));
        assert!(table.text().contains("–"));
    }

    #[test]
    fn a_dearer_set_up_pays_after_a_number_of_solves_or_never() {
        let [base, dear, slow] = &found().solves[..] else { panic!("three") };
        assert_eq!(break_even(dear, base), Some(4));
        assert_eq!(break_even(slow, base), None);
        assert_eq!(break_even(&solve("cheap", 1.0, 0.0), base), Some(1));
    }
}

//! Tables, JSON and the page from what was measured.

use super::measure::{Found, Row, Solve};
use super::{Of, Solves};
use crate::okp::OkpReport;
use krylith_plot::html::{Table, page};
use krylith_plot::svg;
use serde_json::{Value, json};

/// A number, or a dash where nothing was timed.
fn number(x: f64, digits: usize) -> String {
    if x.is_finite() { format!("{x:.digits$}") } else { "–".into() }
}

fn outcome(check: &Result<f64, String>) -> Value {
    match check {
        Ok(error) => json!({ "ok": true, "error": error }),
        Err(text) => json!({ "ok": false, "message": text }),
    }
}

fn label(name: &str, notes: &str) -> String {
    if notes.is_empty() { name.into() } else { format!("{name} [{notes}]") }
}

pub(super) fn make(bandwidth: (&'static str, f64), found: &[Found], mut meta: Value) -> OkpReport {
    let mut failures: Vec<String> = Vec::new();
    let mut tables = vec![matrices(found)];
    let mut cases = Vec::new();
    for case in found {
        failures.extend(case.failures.iter().map(|f| format!("{}: {f}", case.name)));
        let lower = |r: &&Row| r.solves != Solves::All;
        let parts: [(&str, Vec<&Row>); 2] = [
            ("one lower solve", case.rows.iter().filter(lower).collect()),
            ("one application of L, D and U", case.rows.iter().filter(|r| !lower(r)).collect()),
        ];
        let mut applications = Vec::new();
        for (what, rows) in parts.iter().filter(|p| !p.1.is_empty()) {
            let title = format!("{}: {what}", case.name);
            applications.extend(table(&case.name, title, rows, bandwidth, &mut tables, &mut failures));
        }
        let solves = solves(case, &mut tables, &mut failures);
        setups(case, &mut tables);
        cases.push(json!({
            "name": case.name, "system": case.spec, "grid": case.grid, "box": case.size, "block": case.block,
            "block_rows": case.block_rows, "blocks": case.blocks, "dropped": case.dropped,
            "subdomains": case.subdomains, "levels": case.levels, "applications": applications, "bicgstab": solves,
            "setup": case.setups.iter().map(|s| json!({ "name": s.name, "seconds": s.samples.json() }))
                .collect::<Vec<_>>(),
        }));
    }
    let (means, summary) = means(found);
    if found.len() > 1 {
        tables.insert(1, means);
    }
    let name = meta["device"]["name"].as_str().unwrap_or("unknown").to_string();
    let mut facts = vec![
        format!(
            "{name}; {} bandwidth {:.0} GB/s, of which every share is taken",
            bandwidth.0,
            bandwidth.1 / 1e9
        ),
        format!("{} samples each, median (minimum–maximum)", meta["repetitions"]),
        format!("{}", meta["device"]),
        format!("command: {}", meta["command"].as_str().unwrap_or("")),
    ];
    facts.extend(failures.iter().map(|f| format!("FAILED, not timed: {f}")));
    let text: String = facts
        .iter()
        .map(|f| format!("{f}\n"))
        .chain(tables.iter().map(|t| format!("\n{}", t.text())))
        .collect();
    let html = page("Krylith: ILDU(0) on subdomains, and BiCGSTAB", &facts, &pictures(found), &tables);
    meta["bandwidth"] = json!({ "kind": bandwidth.0, "bytes_per_second": bandwidth.1 });
    meta["cases"] = json!(cases);
    meta["geometric_means"] = json!(summary);
    meta["failures"] = json!(failures);
    OkpReport { tables: text, json: meta, html, failures, files: Vec::new() }
}

/// Seconds of the first baseline on a matrix over `seconds`.
fn over(rows: &[Row], of: Of, seconds: f64) -> f64 {
    let base = rows.iter().find(|r| r.of == of && r.solves == Solves::All && !r.ours);
    base.map_or(f64::NAN, |r| r.alone.median()) / seconds
}

/// Geometric means over the matrices of whatever ran on all of them: applications over the baselines, solves over the
/// first solver.
fn means(found: &[Found]) -> (Table, Vec<Value>) {
    let header = ["", "application, × baseline, whole", "× baseline, decomposed", "BiCGSTAB, × first"];
    let mut out = Table::new(format!("Geometric means over {} matrices", found.len()), &header);
    let mean = |factors: Vec<Option<f64>>| {
        let all = factors.iter().map(|f| f.map_or(f64::NAN, f64::ln)).sum::<f64>();
        (all / factors.len().max(1) as f64).exp()
    };
    let mut json = Vec::new();
    let names = found.first().map_or(&[][..], |f| &f.rows).iter().filter(|r| r.solves == Solves::All);
    for name in names.map(|r| &r.name) {
        let rows: Vec<Option<&Row>> = found
            .iter()
            .map(|f| f.rows.iter().find(|r| r.name == *name && r.solves == Solves::All))
            .collect();
        if rows.iter().any(Option::is_none) {
            continue; // block sizes have different libraries
        }
        let applications = [Of::Whole, Of::Decomposed].map(|of| {
            let pairs = found.iter().zip(&rows);
            mean(pairs.map(|(f, r)| r.map(|r| over(&f.rows, of, r.alone.median()))).collect())
        });
        let solves = mean(
            found
                .iter()
                .map(|f| {
                    let own = f.solves.iter().find(|s| s.name == *name)?;
                    Some(f.solves.first()?.samples.median() / own.samples.median())
                })
                .collect(),
        );
        let [whole, decomposed] = applications;
        out.rows.push(vec![name.clone(), number(whole, 2), number(decomposed, 2), number(solves, 2)]);
        json.push(json!({
            "name": name, "application_over_whole": whole, "application_over_decomposed": decomposed,
            "bicgstab_over_first": solves,
        }));
    }
    (out, json)
}

/// The paper's Table 5.4, with the levels.
fn matrices(found: &[Found]) -> Table {
    let header = [
        "",
        "block rows",
        "nonzeros",
        "subdomains",
        "rows of each",
        "nonzeros kept",
        "dropped",
        "levels of L",
        "of U",
    ];
    let mut out = Table::new("What cutting into boxes drops", &header);
    for case in found {
        let (bb, dropped) = (case.block * case.block, case.dropped as f64 / case.blocks.max(1) as f64);
        out.rows.push(vec![
            case.name.clone(),
            case.block_rows.to_string(),
            (case.blocks * bb).to_string(),
            case.subdomains.to_string(),
            case.size.iter().product::<usize>().min(case.block_rows).to_string(),
            ((case.blocks - case.dropped) * bb).to_string(),
            format!("{:.2} %", 100.0 * dropped),
            case.levels[0].to_string(),
            case.levels[1].to_string(),
        ]);
    }
    out
}

/// The paper's Tables 5.2 and 5.3.
fn table(
    case: &str,
    title: String,
    rows: &[&Row],
    bandwidth: (&'static str, f64),
    tables: &mut Vec<Table>,
    failures: &mut Vec<String>,
) -> Vec<Value> {
    let share = format!("share of {}", bandwidth.0);
    let header = [
        "",
        "ms",
        "after other data, ms",
        "MB",
        &share,
        "× baseline, whole",
        "× baseline, decomposed",
        "error",
    ];
    let mut out = Table::new(title, &header);
    let base = |of: Of| {
        let row = rows.iter().find(|r| r.of == of && !r.ours);
        row.map_or(f64::NAN, |r| r.alone.median())
    };
    let (whole, decomposed) = (base(Of::Whole), base(Of::Decomposed));
    let mut json = Vec::new();
    for row in rows {
        let seconds = row.alone.median();
        let fraction = row.bytes as f64 / seconds / bandwidth.1;
        match &row.check {
            Ok(error) => out.rows.push(vec![
                label(&row.name, &row.notes),
                row.alone.text(1e3),
                row.cold.text(1e3),
                number(row.bytes as f64 / 1e6, 0),
                format!("{} %", number(100.0 * fraction, 1)),
                number(whole / seconds, 2),
                number(decomposed / seconds, 2),
                format!("{error:.0e}"),
            ]),
            Err(message) => {
                failures.push(format!("{case}: {message}"));
                let mut line = vec![label(&row.name, &row.notes)];
                line.resize(header.len() - 1, "–".into());
                line.push("WRONG".into());
                out.rows.push(line);
            }
        }
        json.push(json!({
            "name": row.name, "notes": row.notes, "ours": row.ours,
            "matrix": if row.of == Of::Whole { "whole" } else { "decomposed" },
            "part": if row.solves == Solves::All { "all" } else { "lower" },
            "bytes": row.bytes, "check": outcome(&row.check), "alone": row.alone.json(), "cold": row.cold.json(),
            "bandwidth_fraction": fraction, "speedup_whole": whole / seconds,
            "speedup_decomposed": decomposed / seconds,
        }));
    }
    tables.push(out);
    json
}

/// After how many solves the dearer set-up has paid for itself; None: never.
fn break_even(solve: &Solve, base: &Solve) -> Option<u64> {
    let (saved, paid) = (base.samples.median() - solve.samples.median(), solve.setup - base.setup);
    match saved > 0.0 {
        true => Some((paid / saved).max(0.0).ceil().max(1.0) as u64),
        false => None,
    }
}

/// The paper's Tables 5.5 and 5.6.
fn solves(case: &Found, tables: &mut Vec<Table>, failures: &mut Vec<String>) -> Vec<Value> {
    let header = ["", "iterations", "solve, s", "set-up, s", "× first", "pays after", "true residual"];
    let mut out = Table::new(format!("{}: BiCGSTAB", case.name), &header);
    let mut json = Vec::new();
    for solve in &case.solves {
        let [least, most] = solve.iterations;
        let iterations = if least == most { format!("{most}") } else { format!("{least}–{most}") };
        let base = &case.solves[0];
        let speedup = base.samples.median() / solve.samples.median();
        let pays = if std::ptr::eq(solve, base) { None } else { break_even(solve, base) };
        match &solve.check {
            Ok(end) => out.rows.push(vec![
                solve.name.clone(),
                iterations,
                solve.samples.text(1.0),
                number(solve.setup, 3),
                number(speedup, 2),
                pays.map_or("–".into(), |n| format!("{n} solves")),
                format!("{end:.1e}"),
            ]),
            Err(message) => {
                failures.push(format!("{}: {message}", case.name));
                let mut line = vec![solve.name.clone(), iterations];
                line.resize(header.len() - 1, "–".into());
                line.push("WRONG".into());
                out.rows.push(line);
            }
        }
        json.push(json!({
            "name": solve.name, "ours": solve.ours, "iterations": solve.iterations, "seconds": solve.samples.json(),
            "setup_seconds": solve.setup, "speedup": speedup, "pays_after_solves": pays,
            "residuals": solve.residuals, "check": outcome(&solve.check),
        }));
    }
    if !case.solves.is_empty() {
        tables.push(out);
    }
    json
}

fn setups(case: &Found, tables: &mut Vec<Table>) {
    let mut out = Table::new(format!("{}: set-up", case.name), &["", "ms"]);
    for setup in &case.setups {
        out.rows.push(vec![setup.name.clone(), setup.samples.text(1e3)]);
    }
    tables.push(out);
}

fn pictures(found: &[Found]) -> Vec<(String, String)> {
    let mut pictures = Vec::new();
    for case in found {
        for (what, all) in [("one lower solve", false), ("one application of L, D and U", true)] {
            let bars: Vec<(String, Vec<f64>)> = case
                .rows
                .iter()
                .filter(|r| r.check.is_ok() && (r.solves == Solves::All) == all)
                .map(|r| (r.name.clone(), vec![1e6 * r.alone.median()]))
                .collect();
            if !bars.is_empty() {
                let title = format!("{}: {what}", case.name);
                let picture = svg::stacked_bars(&title, "µs", &["time"], &bars);
                pictures.push((title, picture));
            }
        }
        let curves: Vec<(String, &[f64])> =
            case.solves.iter().map(|s| (s.name.clone(), s.residuals.as_slice())).collect();
        if !curves.is_empty() {
            let title = format!("{}: relative residual of BiCGSTAB", case.name);
            let picture = svg::curves(&title, &curves);
            pictures.push((title, picture));
        }
    }
    pictures
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
            grid: [4, 4, 4],
            size: [2, 2, 2],
            block: 1,
            block_rows: 64,
            blocks: 352,
            dropped: 44,
            subdomains: 8,
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
    use super::super::Setup;

    #[test]
    fn speed_ups_shares_and_failures_are_reported() {
        let report =
            make(("read", 2e12), &[found()], json!({ "device": { "name": "test" }, "repetitions": 1 }));
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
        // "fast" is 2 and 8 times the first on the whole matrix; "alone" ran once, and "bad" has no time.
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

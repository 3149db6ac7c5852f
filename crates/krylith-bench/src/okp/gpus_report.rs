//! Tables, JSON and the page of the experiments on several GPUs.

use super::solve::Row;
use crate::publish::{Pages, Report, error, facts, number, outcome, percent, ranks_of};
use crate::textbook::{Part, Times};
use krylith_plot::html::Table;
use krylith_plot::svg;
use serde_json::{Value, json};

/// All solvers on one number of devices.
#[derive(Debug, Clone)]
pub(super) struct Run {
    pub gpus: usize,
    pub nodes: [usize; 3],
    pub rows: Vec<Row>,
}

/// A series over numbers of devices.
pub(super) struct Experiment {
    pub title: String,
    /// True if the system grows with the number of devices.
    pub weak: bool,
    pub runs: Vec<Run>,
}

#[derive(Default)]
pub(super) struct Findings {
    pub experiments: Vec<Experiment>,
    /// Measurements that failed, with the reason.
    pub notes: Vec<String>,
}

/// Returns the seconds per iteration of a solver on a number of GPUs, or NaN.
fn of(runs: &[Run], gpus: usize, name: &str) -> f64 {
    let run = runs.iter().find(|r| r.gpus == gpus);
    run.and_then(|r| r.rows.iter().find(|r| r.name == name)).map_or(f64::NAN, Row::iteration)
}

/// Returns the efficiency: T₁/(P·T_P) for a constant system, T₁/T_P if it grows with P.
fn efficiency(e: &Experiment, run: &Run, row: &Row) -> f64 {
    let ratio = of(&e.runs, 1, &row.name) / row.iteration();
    if e.weak { ratio } else { ratio / run.gpus as f64 }
}

/// Returns the seconds of each part per iteration.
fn parts(row: &Row) -> [f64; 5] {
    row.parts().map(|t| t / row.iterations() as f64)
}

fn rows(e: &Experiment) -> impl Iterator<Item = (&Run, &Row)> {
    e.runs.iter().flat_map(|run| run.rows.iter().map(move |row| (run, row)))
}

/// Returns the name of the first solver, to which speed-ups relate.
fn base(e: &Experiment) -> &str {
    e.runs.iter().find_map(|run| run.rows.first()).map_or("the first", |row| &row.name)
}

pub(super) fn make(found: &Findings, mut meta: Value) -> Report {
    let mut pages = Pages::default();
    let (unit, bandwidth) = (ranks_of(&meta), meta["bandwidth"].as_f64().unwrap_or(f64::NAN));
    for e in &found.experiments {
        pages.fail("", rows(e).map(|(_, row)| &row.check));
        pages.tables.push(times(e, unit, bandwidth));
        // One solver has nothing to be compared with.
        pages.tables.extend(Some(speedups(e)).filter(|table| !table.rows.is_empty()));
        pictures(e, &mut pages);
    }
    // The first run of weak scaling equals that of strong scaling.
    pages.failures.sort();
    pages.failures.dedup();
    let place = meta["place"].as_str().unwrap_or_default();
    let nccl = meta["nccl"].as_i64().map_or(String::new(), |version| format!("; NCCL {version}"));
    let first = format!(", {unit} {}; {place}{nccl}", meta["gpus"]);
    let how = format!(
        "GMRES({}), unpreconditioned, f64; {} iterations a solve at the first size, {} at the others; T_all \
         from {} solves without instrumentation, median (minimum–maximum) of the slowest rank; parts are \
         means of {} more solves, maxima over ranks; nothing overlaps in these solves, so parts may add up \
         to more than T_all",
        meta["restart"],
        meta["iterations"],
        meta["iterations_of_other_sizes"],
        meta["solves"],
        meta["timed_solves"]
    );
    let mut facts = facts(&meta, &first, vec![how]);
    facts.extend(found.notes.iter().cloned());
    meta["experiments"] = found.experiments.iter().map(|e| values(e, bandwidth)).collect();
    meta["notes"] = json!(found.notes);
    pages.report("GMRES(30) on several GPUs", facts, meta)
}

/// Returns the share of the bandwidth that the passes of the orthogonalisation reach, with sums over ranks.
fn share(row: &Row, bandwidth: f64) -> f64 {
    let share = row.traffic / parts(row)[Part::Orthogonalization as usize] / bandwidth;
    if row.traffic > 0.0 { share } else { f64::NAN }
}

fn times(e: &Experiment, unit: &str, bandwidth: f64) -> Table {
    let over = format!("× {}", base(e));
    let mut header = vec!["", unit, "µs an iteration (T_all)", &over, "efficiency"];
    header.extend(Times::NAMES);
    header.extend(["T_Gn: its passes, share of bandwidth", "residual", "differs over cycle 1"]);
    let mut out = Table::new(format!("{}: µs an iteration", e.title), &header);
    for (run, row) in rows(e) {
        let mut line = vec![row.name.clone(), run.gpus.to_string()];
        if row.check.is_err() {
            line.push("WRONG".into());
            line.resize(header.len(), "–".into());
        } else {
            line.push(row.samples.text(1e6 / row.iterations() as f64));
            line.push(number(run.rows[0].iteration() / row.iteration(), 2));
            line.push(percent(efficiency(e, run, row), 0));
            line.extend(parts(row).map(|t| number(1e6 * t, 1)));
            line.push(percent(share(row, bandwidth), 1));
            line.extend([error(&row.check, 2), format!("{:.0e}", row.agreement)]);
        }
        out.rows.push(line);
    }
    out
}

/// Builds every part's speed-up over the first solver on the same GPUs, as in Fig. 13.
fn speedups(e: &Experiment) -> Table {
    let mut header = vec!["", "GPUs"];
    header.extend(&Times::NAMES[..4]);
    header.extend(["T_dt + T_c", "T_all"]);
    let title = format!("{}: times faster than {} on as many GPUs", e.title, base(e));
    let mut out = Table::new(title, &header);
    for run in &e.runs {
        let Some((base, others)) = run.rows.split_first() else { continue };
        let b = parts(base);
        for row in others.iter().filter(|r| r.check.is_ok()) {
            let r = parts(row);
            let mut line = vec![row.name.clone(), run.gpus.to_string()];
            line.extend((0..4).map(|i| number(b[i] / r[i], 2)));
            line.push(number((b[0] + b[2]) / (r[0] + r[2]), 2));
            line.push(number(base.iteration() / row.iteration(), 2));
            out.rows.push(line);
        }
    }
    out
}

fn pictures(e: &Experiment, pages: &mut Pages) {
    let bar = |(run, row): (&Run, &Row)| {
        let parts = parts(row).map(|t| 1e6 * t).to_vec();
        (format!("{}, {}", row.name, run.gpus), parts, 1e6 * row.iteration())
    };
    let names = ["transfer (T_dt)", "product (T_Kx)", "communication (T_c)", "orthogonal. (T_Gn)", "other"];
    let bars = rows(e).filter(|(_, row)| row.check.is_ok()).map(bar).collect();
    let title = format!("{}: where an iteration's time goes, by number of GPUs", e.title);
    pages.parts(title, "separate runs", &names, bars);

    let gpus: Vec<usize> = e.runs.iter().map(|r| r.gpus).collect();
    let mut names: Vec<String> = Vec::new();
    for (_, row) in rows(e) {
        if !names.contains(&row.name) {
            names.push(row.name.clone());
        }
    }
    let first = names.first().cloned().unwrap_or_default();
    let mut over = |what: &str, value: &dyn Fn(usize, &str) -> f64| {
        let lines: Vec<(String, Vec<f64>)> =
            names.iter().map(|n| (n.clone(), gpus.iter().map(|&p| value(p, n)).collect())).collect();
        pages.picture(format!("{}: {what}", e.title), |title| svg::over_gpus(title, &gpus, &lines));
    };
    over(&format!("times faster than {} on as many GPUs", base(e)), &|p, name| {
        of(&e.runs, p, &first) / of(&e.runs, p, name)
    });
    // In weak scaling the work grows with the number of GPUs.
    let work = |p: usize| if e.weak { p as f64 } else { 1.0 };
    over("speed-up over one GPU", &|p, name| work(p) * of(&e.runs, 1, name) / of(&e.runs, p, name));
}

fn values(e: &Experiment, bandwidth: f64) -> Value {
    let one = |run: &Run, row: &Row| {
        json!({
            "name": row.name, "check": outcome(&row.check), "iterations": row.iterations(),
            "seconds_per_solve": row.samples.json(), "seconds_per_iteration": row.iteration(),
            "speedup": run.rows[0].iteration() / row.iteration(), "efficiency": efficiency(e, run, row),
            "parts": Times::NAMES, "seconds_per_iteration_by_part": parts(row),
            "seconds_per_solve_by_part": row.times.iter().map(|t| t.0).collect::<Vec<_>>(),
            "orthogonalization_bytes": row.traffic, "orthogonalization_share": share(row, bandwidth),
            "residuals": row.residuals, "first_cycle_difference": row.agreement,
        })
    };
    let run = |run: &Run| {
        let rows: Value = run.rows.iter().map(|row| one(run, row)).collect();
        json!({ "gpus": run.gpus, "nodes": run.nodes, "rows": rows })
    };
    json!({ "title": e.title, "weak": e.weak, "runs": e.runs.iter().map(run).collect::<Value>() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::Samples;

    fn row(name: &str, seconds: f64, check: Result<f64, String>) -> Row {
        let timed = check.is_ok();
        Row {
            name: name.into(),
            ours: false,
            traffic: 8e9,
            outcome: "",
            samples: Samples(if timed { vec![10.0 * seconds; 3] } else { Vec::new() }),
            times: if timed {
                vec![Times([seconds, 2.0 * seconds, 0.0, seconds, 0.0]); 3]
            } else {
                Vec::new()
            },
            residuals: vec![1.0; 11],
            agreement: 1e-14,
            check,
        }
    }

    #[test]
    fn speedups_and_efficiencies_are_those_of_the_numbers_and_a_wrong_row_has_no_time() {
        let run = |gpus, seconds: f64| Run {
            gpus,
            nodes: [2, 2, 2],
            rows: vec![
                row("CU-Solver", 4.0 * seconds, Ok(0.1)),
                row("good <&>", seconds, Ok(0.1)),
                row("bad", seconds, Err("bad is wrong".into())),
            ],
        };
        let new = |weak| Experiment { title: "T".into(), weak, runs: vec![run(1, 1.0), run(2, 0.8)] };
        let found = Findings { experiments: vec![new(false), new(true)], notes: vec!["a note".into()] };
        let made = make(&found, json!({ "device": { "name": "GPU" }, "gpus": [0, 1], "bandwidth": 4e9 }));
        assert_eq!(made.failures, ["bad is wrong"]);
        let rows = |i: usize| made.json["experiments"][i]["runs"][1]["rows"].clone();
        assert_eq!(rows(0)[1]["speedup"], 4.0);
        assert!((rows(0)[1]["efficiency"].as_f64().unwrap() - 0.625).abs() < 1e-12);
        // 8 GB in ten iterations of 0.08 s.
        assert!((rows(0)[1]["orthogonalization_share"].as_f64().unwrap() - 25.0).abs() < 1e-9);
        assert!((rows(1)[1]["efficiency"].as_f64().unwrap() - 1.25).abs() < 1e-12);
        assert!(made.tables.contains("WRONG") && made.tables.contains("a note"));
        svg::assert_well_formed(&made.html);
        assert!(made.html.matches("<svg").count() == 6);
    }
}

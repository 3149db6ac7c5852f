//! Tables, JSON and the page of the experiments on several GPUs.

use super::OkpReport;
use super::gpus::{Experiment, Row, Run};
use super::report::{number, outcome};
use crate::multi::Times;
use krylith_plot::html::{Table, page};
use krylith_plot::bars::{self, Bars};
use krylith_plot::svg;
use serde_json::{Value, json};

/// Everything that was measured.
#[derive(Default)]
pub(super) struct Findings {
    pub experiments: Vec<Experiment>,
    /// What could not be measured, and why.
    pub notes: Vec<String>,
}

/// Seconds an iteration of a solver on a number of GPUs, or NaN.
fn of(runs: &[Run], gpus: usize, name: &str) -> f64 {
    let run = runs.iter().find(|r| r.gpus == gpus);
    run.and_then(|r| r.rows.iter().find(|r| r.name == name)).map_or(f64::NAN, Row::iteration)
}

/// Share of the ideal: T₁/(P·T_P) where the system stays, T₁/T_P where it grows with P.
fn efficiency(e: &Experiment, run: &Run, row: &Row) -> f64 {
    let ratio = of(&e.runs, 1, &row.name) / row.iteration();
    if e.weak { ratio } else { ratio / run.gpus as f64 }
}

pub(super) fn make(found: &Findings, mut meta: Value) -> OkpReport {
    let (mut tables, mut failures) = (Vec::new(), Vec::new());
    for e in &found.experiments {
        tables.push(times(e, &mut failures));
        tables.push(speedups(e));
    }
    // The first run of weak scaling is that of strong scaling.
    failures.sort();
    failures.dedup();
    let name = meta["device"]["name"].as_str().unwrap_or("unknown").to_string();
    let text = |key: &str| meta[key].to_string();
    let mut facts = vec![
        format!("{name}, GPUs {}; a thread each in one process; NCCL {}", text("gpus"), text("nccl")),
        format!(
            "GMRES({}), unpreconditioned, f64; {} iterations a solve at the first size, {} at the others; T_all from {} \
             solves without instrumentation, median (minimum–maximum) of the slowest rank; parts from {} more, maxima \
             over ranks, mean: there nothing overlaps, so they may add up to more than T_all",
            text("restart"),
            text("iterations"),
            text("iterations_of_other_sizes"),
            text("solves"),
            text("timed_solves")
        ),
        format!("{}", meta["device"]),
        format!("command: {}", meta["command"].as_str().unwrap_or("")),
    ];
    facts.extend(found.notes.iter().cloned());
    facts.extend(failures.iter().map(|f| format!("FAILED, not timed: {f}")));
    let pictures: Vec<(String, String)> = found.experiments.iter().flat_map(pictures).collect();
    let text: String = facts
        .iter()
        .map(|f| format!("{f}\n"))
        .chain(tables.iter().map(|t| format!("\n{}", t.text())))
        .collect();
    let html = page("Krylith: GMRES(30) on several GPUs", &facts, &pictures, &tables);
    meta["experiments"] = found.experiments.iter().map(values).collect();
    meta["notes"] = json!(found.notes);
    meta["failures"] = json!(failures);
    OkpReport { tables: text, json: meta, html, failures, files: Vec::new() }
}

fn times(e: &Experiment, failures: &mut Vec<String>) -> Table {
    let mut header = vec!["", "GPUs", "µs an iteration (T_all)", "× CU-Solver", "efficiency"];
    header.extend(Times::NAMES);
    header.extend(["residual", "differs over cycle 1"]);
    let mut out = Table::new(format!("{}: µs an iteration", e.title), &header);
    for run in &e.runs {
        for row in &run.rows {
            let mut line = vec![row.name.clone(), run.gpus.to_string()];
            match &row.check {
                Ok(residual) => {
                    line.push(row.samples.text(1e6 / row.iterations() as f64));
                    line.push(number(run.rows[0].iteration() / row.iteration(), 2));
                    line.push(format!("{} %", number(100.0 * efficiency(e, run, row), 0)));
                    line.extend(row.parts().map(|t| number(1e6 * t, 1)));
                    line.extend([format!("{residual:.2e}"), format!("{:.0e}", row.agreement)]);
                }
                Err(message) => {
                    failures.push(message.clone());
                    line.push("WRONG".into());
                    line.resize(header.len(), "–".into());
                }
            }
            out.rows.push(line);
        }
    }
    out
}

/// Every part's speed-up over CU-Solver on the same GPUs, as in Fig. 13.
fn speedups(e: &Experiment) -> Table {
    let mut header = vec!["", "GPUs"];
    header.extend(&Times::NAMES[..4]);
    header.extend(["T_dt + T_c", "T_all"]);
    let mut out = Table::new(format!("{}: times faster than CU-Solver on as many GPUs", e.title), &header);
    for run in &e.runs {
        let Some((base, others)) = run.rows.split_first() else { continue };
        let b = base.parts();
        for row in others.iter().filter(|r| r.check.is_ok()) {
            let r = row.parts();
            let mut line = vec![row.name.clone(), run.gpus.to_string()];
            line.extend((0..4).map(|i| number(b[i] / r[i], 2)));
            line.push(number((b[0] + b[2]) / (r[0] + r[2]), 2));
            line.push(number(base.iteration() / row.iteration(), 2));
            out.rows.push(line);
        }
    }
    out
}

fn pictures(e: &Experiment) -> Vec<(String, String)> {
    let rows = || e.runs.iter().flat_map(|run| run.rows.iter().map(move |row| (run, row)));
    let bars: Vec<(String, Vec<f64>)> = rows()
        .filter(|(_, row)| row.check.is_ok())
        .map(|(run, row)| (format!("{}, {}", row.name, run.gpus), row.parts().map(|t| 1e6 * t).to_vec()))
        .collect();
    let parts = ["transfer (T_dt)", "product (T_Kx)", "communication (T_c)", "orthogonal. (T_Gn)", "other"];
    let title = format!("{}: where an iteration's time goes, by number of GPUs", e.title);
    let whole: Vec<f64> =
        rows().filter(|(_, row)| row.check.is_ok()).map(|(_, row)| 1e6 * row.iteration()).collect();
    let picture = bars::stacked(&Bars {
        title: &title,
        subtitle: "parts from runs of their own, with clocks between; mark and number: the run without (T_all)",
        unit: "µs",
        parts: &parts,
        bars: &bars,
        whole: Some(&whole),
    });
    let mut pictures = vec![(title.clone(), picture.svg())];

    let gpus: Vec<usize> = e.runs.iter().map(|r| r.gpus).collect();
    let mut names: Vec<String> = Vec::new();
    for (_, row) in rows() {
        if !names.contains(&row.name) {
            names.push(row.name.clone());
        }
    }
    let series = |value: &dyn Fn(usize, &str) -> f64| -> Vec<(String, Vec<f64>)> {
        names.iter().map(|n| (n.clone(), gpus.iter().map(|&p| value(p, n)).collect())).collect()
    };
    let first = names.first().cloned().unwrap_or_default();
    let over = series(&|p, name| of(&e.runs, p, &first) / of(&e.runs, p, name));
    let title = format!("{}: times faster than CU-Solver on as many GPUs", e.title);
    pictures.push((title.clone(), svg::over_gpus(&title, &gpus, &over)));
    // Where the system grows, the work done in the time of one GPU grows too.
    let work = |p: usize| if e.weak { p as f64 } else { 1.0 };
    let scaling = series(&|p, name| work(p) * of(&e.runs, 1, name) / of(&e.runs, p, name));
    let title = format!("{}: speed-up over one GPU", e.title);
    pictures.push((title.clone(), svg::over_gpus(&title, &gpus, &scaling)));
    pictures
}

fn values(e: &Experiment) -> Value {
    let runs: Vec<Value> = e
        .runs
        .iter()
        .map(|run| {
            let rows: Vec<Value> = run
                .rows
                .iter()
                .map(|row| {
                    json!({
                        "name": row.name, "check": outcome(&row.check), "iterations": row.iterations(),
                        "seconds_per_solve": row.samples.json(), "seconds_per_iteration": row.iteration(),
                        "speedup": run.rows[0].iteration() / row.iteration(),
                        "efficiency": efficiency(e, run, row),
                        "parts": Times::NAMES,
                        "seconds_per_iteration_by_part": row.parts(),
                        "seconds_per_solve_by_part": row.times.iter().map(|t| t.0).collect::<Vec<_>>(),
                        "residuals": row.residuals, "first_cycle_difference": row.agreement,
                    })
                })
                .collect();
            json!({ "gpus": run.gpus, "nodes": run.nodes, "rows": rows })
        })
        .collect();
    json!({ "title": e.title, "weak": e.weak, "runs": runs })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::Samples;

    fn row(name: &str, seconds: f64, check: Result<f64, String>) -> Row {
        let timed = check.is_ok();
        Row {
            name: name.into(),
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
        let made = make(&found, json!({ "device": { "name": "GPU" }, "gpus": [0, 1] }));
        assert_eq!(made.failures, ["bad is wrong"]);
        let rows = |i: usize| made.json["experiments"][i]["runs"][1]["rows"].clone();
        assert_eq!(rows(0)[1]["speedup"], 4.0);
        assert!((rows(0)[1]["efficiency"].as_f64().unwrap() - 0.625).abs() < 1e-12);
        assert!((rows(1)[1]["efficiency"].as_f64().unwrap() - 1.25).abs() < 1e-12);
        assert!(made.tables.contains("WRONG") && made.tables.contains("a note"));
        svg::assert_well_formed(&made.html);
        assert!(made.html.matches("<svg").count() == 6);
    }
}

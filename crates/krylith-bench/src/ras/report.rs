//! Tables, figures, JSON and the page from the measurements.

use super::cases::{Kind, Setting};
use super::measure::{Mean, Row, Run};
use super::targets::targets;
use crate::publish::{Figure, Pages, Report, Target, machine, number, ranks_of, rows_of, summary};
use krylith_core::Result;
use krylith_plot::svg;
use serde_json::{Value, json};
use std::path::Path;

/// All rows of one problem.
pub(crate) struct Found {
    pub setting: &'static Setting,
    pub spec: String,
    pub rows: usize,
    pub blocks: usize,
    /// Seconds to evaluate F and J on the host, for each Newton step.
    pub assembly: Vec<(usize, f64)>,
    pub solves: Vec<Row>,
}

#[derive(Default)]
pub(super) struct Made {
    pub meta: Value,
    pub found: Vec<Found>,
    /// Independent runs of one setting, and exact RAS for comparison.
    pub repeated: Option<Found>,
    /// Measurements on 1, 2, … GPUs.
    pub scaling: Vec<Found>,
}

impl Found {
    fn rows_of(&self, step: usize) -> impl Iterator<Item = &Row> + Clone {
        self.solves.iter().filter(move |row| row.step == step)
    }

    /// Returns the first row of a kind that has times.
    pub fn first(&self, step: usize, kind: Kind) -> Option<&Row> {
        self.rows_of(step).find(|row| row.way.kind == kind && row.failure.is_none())
    }
}

pub(super) fn write(made: &Made, folder: Option<&Path>) -> Result<Report> {
    let (mut json, mut pages) = (made.meta.clone(), Pages::default());
    json["problems"] = made.found.iter().map(|found| problem(found, &mut pages)).collect();
    json["repeated"] = made.repeated.as_ref().map_or(Value::Null, |found| repeated(found, &mut pages));
    let unit = ranks_of(&made.meta);
    json["scaling"] = made.scaling.iter().map(|found| scaling(found, unit, &mut pages)).collect();
    let goals = targets(&made.found, made.repeated.as_ref(), &made.scaling);
    json["targets"] = goals.iter().map(Target::json).collect();
    pages.tables.insert(0, summary(&goals));
    let facts = vec![
        format!(
            "{}: {}",
            json["device"]["name"].as_str().unwrap_or("unknown"),
            machine(&json).unwrap_or_default()
        ),
        "T_f: factors; T_g: FGMRES; both in ms, means (least–largest) of converged runs. Values are on the \
         device before a clock starts. From the second Newton step on, Krylith's T_f includes their upload."
            .into(),
        "For cuSPARSE the faster layout of blocks and the faster policy (with or without levels) are used. \
         Its T_f includes gathering and factorising the values; its analyses belong to the set-up."
            .into(),
        format!("command: {}", json["command"].as_str().unwrap_or("")),
    ];
    pages.publish(("Randomized Schwarz", "ras"), facts, json, folder)
}

/// Builds a table per Newton step.
fn problem(found: &Found, pages: &mut Pages) -> Value {
    let setting = found.setting;
    let mut steps = Vec::new();
    for &(step, assembly) in &found.assembly {
        let title = format!(
            "{} ({}), Newton step {step}: {} block rows, {} blocks; FGMRES({}), ILU({}), overlap {}, {} parts, to {:.0e}; F and J \
             take {} ms; the paper's T_g: {}× one core, {}× cuSPARSE",
            setting.name,
            found.spec,
            found.rows,
            found.blocks,
            setting.restart,
            setting.shape.fill,
            setting.shape.overlap,
            setting.shape.parts,
            setting.rtol,
            number(1e3 * assembly, 1),
            setting.paper[0],
            setting.paper[1]
        );
        let of =
            |kind, what: fn(&Row) -> Mean| found.first(step, kind).map_or(f64::NAN, |row| what(row).mean);
        let (core, vendor) = (of(Kind::OneCore, Row::solve), of(Kind::Vendor, Row::solve));
        let vendor_both = of(Kind::Vendor, Row::both);
        let ratios = |row: &Row| {
            let (solve, both) = (row.solve().mean, row.both().mean);
            [core / solve, vendor / solve, vendor_both / both, (assembly + vendor_both) / (assembly + both)]
        };
        let residual = |row: &Row| match row.residual() {
            residual if residual.is_finite() => format!("{residual:.1e}"),
            _ => "–".into(),
        };
        for row in found.rows_of(step) {
            // Failures of another preconditioner or of the vendor are results, not failures of the suite.
            let ours = matches!(row.way.kind, Kind::Exact | Kind::Random | Kind::OneCore);
            let failed = row.failure.iter().filter(|_| ours);
            pages.failures.extend(failed.map(|why| format!("{}, Newton step {step}: {why}", found.spec)));
        }
        pages.tables.push(
            rows_of(title, found.rows_of(step))
                .broken(|row| row.failure.is_some(), 1, "FAILED")
                .column("", |row| row.way.name.clone())
                .column("set-up", |row| row.setup().text(1e3, 1))
                .column("T_f", |row| row.factor().text(1e3, 2))
                .column("T_g", |row| row.solve().text(1e3, 2))
                .column("I_g", |row| row.iterations().text(1.0, 0))
                .column("T_f + T_g", |row| row.both().text(1e3, 2))
                .column("T_g: × one core", |row| number(ratios(row)[0], 2))
                .column("T_g: × cuSPARSE", |row| number(ratios(row)[1], 2))
                .column("T_f + T_g: × cuSPARSE", |row| number(ratios(row)[2], 2))
                .column("whole step: × cuSPARSE", |row| number(ratios(row)[3], 2))
                .column("residual", residual)
                .table(),
        );
        let one = |row: &Row| {
            let (mut one, ratios) = (row_json(row), ratios(row));
            one["over_one_core_solve"] = json!(ratios[0]);
            one["over_vendor_solve"] = json!(ratios[1]);
            one["over_vendor_factor_and_solve"] = json!(ratios[2]);
            one["over_vendor_whole_step"] = json!(ratios[3]);
            one
        };
        let solves: Value = found.rows_of(step).map(one).collect();
        steps.push(json!({ "step": step, "assembly_seconds": assembly, "solves": solves }));
        over_gamma(found, step, &mut pages.figures);
    }
    json!({
        "name": setting.name, "spec": found.spec, "block_rows": found.rows, "blocks": found.blocks,
        "restart": setting.restart, "fill": setting.shape.fill, "overlap": setting.shape.overlap,
        "parts": setting.shape.parts, "rtol": setting.rtol, "paper": setting.paper, "steps": steps,
    })
}

fn row_json(row: &Row) -> Value {
    let mean = |mean: Mean| json!({ "mean": mean.mean, "deviation": mean.deviation, "min": mean.min, "max": mean.max });
    let run = |run: &Run| {
        json!({
            "setup": run.setup, "factor": run.factor, "solve": run.solve, "iterations": run.iterations,
            "converged": run.converged, "residual": run.residual,
        })
    };
    let runs: Value = row.runs.iter().map(run).collect();
    json!({
        "name": row.way.name, "kind": row.way.kind.name(), "options": row.way.text, "sweeps": row.way.sweeps,
        "gpus": row.gpus, "setup": mean(row.setup()), "factor": mean(row.factor()), "solve": mean(row.solve()),
        "iterations": mean(row.iterations()), "runs": runs, "notes": row.notes, "failure": row.failure,
    })
}

/// Draws seconds and iterations of FGMRES over γ, with a line for each η and f_dp; exact variants are
/// horizontal lines.
fn over_gamma(found: &Found, step: usize, figures: &mut Vec<Figure>) {
    let mut gammas: Vec<usize> =
        found.rows_of(step).filter_map(|row| row.way.sweeps.map(|[_, gamma, _]| gamma)).collect();
    gammas.sort_unstable();
    gammas.dedup();
    if gammas.is_empty() {
        return;
    }
    type What = fn(&Row) -> f64;
    let pictures: [(&str, &str, What); 2] =
        [("tg", "T_g, ms", |row| 1e3 * row.solve().mean), ("ig", "I_g", |row| row.iterations().mean)];
    for (short, title, what) in pictures {
        let mut lines: Vec<(String, Vec<f64>)> = Vec::new();
        for row in found.rows_of(step).filter(|row| row.failure.is_none()) {
            match row.way.sweeps {
                Some([_, gamma, _]) => {
                    let name = row.way.name.replace(&format!(", γ {gamma}"), "");
                    let at = gammas.binary_search(&gamma).unwrap_or(0);
                    match lines.iter_mut().find(|line| line.0 == name) {
                        Some(line) => line.1[at] = what(row),
                        None => {
                            let mut line = vec![f64::NAN; gammas.len()];
                            line[at] = what(row);
                            lines.push((name, line));
                        }
                    }
                }
                None if matches!(row.way.kind, Kind::Vendor | Kind::Exact) => {
                    lines.push((row.way.name.clone(), vec![what(row); gammas.len()]));
                }
                None => {}
            }
        }
        let title = format!("{}, Newton step {step}: {title} over γ", found.spec);
        let svg = svg::over_counts(&title, "γ", &gammas, &lines);
        figures.push(Figure { file: format!("ras-{}-{step}-{short}.svg", found.setting.name), title, svg });
    }
}

/// Fig. 10 of Ma, Le and Cai: draws run after run, and counts failures.
fn repeated(found: &Found, pages: &mut Pages) -> Value {
    pages.tables.push(
        rows_of(format!("{}: independent runs", found.spec), &found.solves)
            .column("", |row| row.way.name.clone())
            .column("runs", |row| row.runs.len().to_string())
            .column("converged", |row| row.runs.iter().filter(|run| run.converged).count().to_string())
            .column("I_g", |row| row.iterations().text(1.0, 1))
            .column("median", |row| number(row.median(), 1))
            .column("deviation", |row| number(row.iterations().deviation, 2))
            .column("T_g, ms", |row| row.solve().text(1e3, 2))
            .column("deviation", |row| number(1e3 * row.solve().deviation, 3))
            .column("T_f, ms", |row| row.factor().text(1e3, 2))
            .table(),
    );
    for row in found.solves.iter().filter(|row| row.way.kind == Kind::Random) {
        let shown = &row.runs[..row.runs.len().min(SHOWN)];
        let numbers: Vec<usize> = (1..=shown.len()).collect();
        let gamma = row.way.sweeps.map_or(0, |s| s[1]);
        let mut figure = |short: &str, name: &str, of: fn(&Run) -> f64| {
            let title = format!("{}: {name} of independent runs, {}", found.spec, row.way.name);
            let lines = [(name.to_string(), shown.iter().map(of).collect())];
            let svg = svg::over_counts(&title, "run", &numbers, &lines);
            pages.figures.push(Figure { file: format!("ras-repeat-gamma{gamma}-{short}.svg"), title, svg });
        };
        figure("tg", "T_g, ms", |run| 1e3 * run.solve);
        figure("ig", "I_g", |run| run.iterations as f64);
    }
    json!({ "spec": found.spec, "rows": found.solves.iter().map(row_json).collect::<Value>() })
}

/// Number of runs in the figure, as in the paper's.
const SHOWN: usize = 30;

/// Builds a table of the seconds of factorisation and FGMRES on 1, 2, … GPUs, always with the same parts.
fn scaling(found: &Found, unit: &str, pages: &mut Pages) -> Value {
    let (mut counts, mut lines) = (Vec::new(), Vec::<(String, Vec<f64>)>::new());
    for row in &found.solves {
        let failed = row.failure.iter().map(|why| format!("{} on {} {unit}: {why}", found.spec, row.gpus));
        pages.failures.extend(failed);
        if !counts.contains(&row.gpus) {
            counts.push(row.gpus);
        }
        let solve = efficiency(found, row, Row::solve);
        match lines.iter_mut().find(|line| line.0 == row.way.name) {
            Some(line) => line.1.push(solve),
            None => lines.push((row.way.name.clone(), vec![solve])),
        }
    }
    let title = format!("{}: strong scaling, {} block rows", found.spec, found.rows);
    pages.tables.push(
        rows_of(title, &found.solves)
            .column("", |row| row.way.name.clone())
            .column(unit, |row| row.gpus.to_string())
            .column("T_f", |row| row.factor().text(1e3, 2))
            .column("T_g", |row| row.solve().text(1e3, 2))
            .column("I_g", |row| row.iterations().text(1.0, 0))
            .column("T_f + T_g", |row| row.both().text(1e3, 2))
            .column("efficiency of T_g", |row| number(efficiency(found, row, Row::solve), 3))
            .column("efficiency of T_f + T_g", |row| number(efficiency(found, row, Row::both), 3))
            .table(),
    );
    let title = format!("{}: parallel efficiency of T_g", found.spec);
    let svg = svg::over_gpus(&title, &counts, &lines);
    pages.figures.push(Figure { file: format!("ras-{}-scaling.svg", found.setting.name), title, svg });
    let one = |row: &Row| {
        let mut one = row_json(row);
        one["efficiency_solve"] = json!(efficiency(found, row, Row::solve));
        one["efficiency"] = json!(efficiency(found, row, Row::both));
        one
    };
    let rows: Value = found.solves.iter().map(one).collect();
    json!({ "spec": found.spec, "block_rows": found.rows, "rows": rows })
}

/// Returns the efficiency: seconds on one GPU over the number of GPUs times seconds on that many.
pub(super) fn efficiency(found: &Found, row: &Row, what: fn(&Row) -> Mean) -> f64 {
    let same = |other: &&Row| other.way == row.way && other.gpus == 1;
    let one = found.solves.iter().find(same).map_or(f64::NAN, |one| what(one).mean);
    one / (row.gpus as f64 * what(row).mean)
}

//! Tables, figures, JSON and the page from what was measured.

use super::cases::{Kind, Setting};
use super::measure::{Mean, Row};
use super::targets::targets;
use crate::okp::OkpReport;
use crate::publish::{Figure, Published, Target, number, summary};
use krylith::Result;
use krylith_plot::html::Table;
use krylith_plot::svg;
use serde_json::{Value, json};
use std::path::Path;

/// One problem's rows.
pub(crate) struct Found {
    pub setting: &'static Setting,
    pub spec: String,
    pub rows: usize,
    pub blocks: usize,
    /// Seconds of evaluating F and J on the host, for each Newton step.
    pub assembly: Vec<(usize, f64)>,
    pub solves: Vec<Row>,
}

/// All of it.
#[derive(Default)]
pub(super) struct Made {
    pub meta: Value,
    pub found: Vec<Found>,
    /// Independent runs of one setting, and exact RAS beside them.
    pub repeated: Option<Found>,
    /// On 1, 2, … GPUs.
    pub scaling: Vec<Found>,
}

impl Found {
    fn rows_of(&self, step: usize) -> impl Iterator<Item = &Row> + Clone {
        self.solves.iter().filter(move |row| row.step == step)
    }

    /// The first row of a kind that has times.
    pub fn first(&self, step: usize, kind: Kind) -> Option<&Row> {
        self.rows_of(step).find(|row| row.way.kind == kind && row.failure.is_none())
    }
}

/// The report and its files.
pub(super) fn write(made: &Made, folder: Option<&Path>) -> Result<OkpReport> {
    make(made).write("ras", folder)
}

fn make(made: &Made) -> Published {
    let (mut tables, mut failures, mut figures) = (Vec::new(), Vec::new(), Vec::new());
    let mut problems = Vec::new();
    for found in &made.found {
        problems.push(problem(found, &mut tables, &mut failures));
        for &(step, _) in &found.assembly {
            over_gamma(found, step, &mut figures);
        }
    }
    let mut meta = made.meta.clone();
    meta["problems"] = json!(problems);
    meta["repeated"] =
        made.repeated.as_ref().map_or(Value::Null, |found| repeated(found, &mut tables, &mut figures));
    meta["scaling"] =
        made.scaling.iter().map(|found| scaling(found, &mut tables, &mut failures, &mut figures)).collect();
    let goals = targets(&made.found, made.repeated.as_ref(), &made.scaling);
    meta["targets"] = json!(goals.iter().map(Target::json).collect::<Vec<_>>());
    tables.insert(0, summary(&goals));
    meta["failures"] = json!(failures);
    let facts = vec![
        format!("{}", meta["device"]),
        "T_f: factors; T_g: FGMRES; both in ms, means (least–largest) of converged runs. \
         Values lie on the device before a clock runs, but for Krylith's from the second Newton step on, whose T_f has their upload."
            .into(),
        "Of cuSPARSE the faster layout of blocks and the faster policy, with and without levels, is taken; its T_f \
         gathers values and factorises, its analyses are set-up."
            .into(),
        format!("command: {}", meta["command"].as_str().unwrap_or("")),
    ];
    Published { title: "Randomized Schwarz", facts, tables, figures, json: meta, failures }
}

/// One table a Newton step.
fn problem(found: &Found, tables: &mut Vec<Table>, failures: &mut Vec<String>) -> Value {
    let header = [
        "",
        "set-up",
        "T_f",
        "T_g",
        "I_g",
        "T_f + T_g",
        "T_g: × one core",
        "T_g: × cuSPARSE",
        "T_f + T_g: × cuSPARSE",
        "whole step: × cuSPARSE",
        "residual",
    ];
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
        let mut out = Table::new(title, &header);
        let of =
            |kind, what: fn(&Row) -> Mean| found.first(step, kind).map_or(f64::NAN, |row| what(row).mean);
        let (core, vendor) = (of(Kind::OneCore, Row::solve), of(Kind::Vendor, Row::solve));
        let vendor_both = of(Kind::Vendor, Row::both);
        let mut json = Vec::new();
        for row in found.rows_of(step) {
            let (solve, both) = (row.solve(), row.both());
            let ratios = [
                core / solve.mean,
                vendor / solve.mean,
                vendor_both / both.mean,
                (assembly + vendor_both) / (assembly + both.mean),
            ];
            let line = match &row.failure {
                Some(message) => {
                    // What another preconditioner or the vendor cannot do is a finding.
                    if matches!(row.way.kind, Kind::Exact | Kind::Random | Kind::OneCore) {
                        failures.push(format!("{}, Newton step {step}: {message}", found.spec));
                    }
                    let mut line = vec![row.way.name.clone()];
                    line.resize(header.len() - 1, "–".into());
                    line.push("FAILED".into());
                    line
                }
                None => {
                    let mut line = vec![
                        row.way.name.clone(),
                        row.setup().text(1e3, 1),
                        row.factor().text(1e3, 2),
                        solve.text(1e3, 2),
                        row.iterations().text(1.0, 0),
                        both.text(1e3, 2),
                    ];
                    line.extend(ratios.map(|ratio| number(ratio, 2)));
                    let residual = row.residual();
                    line.push(if residual.is_finite() { format!("{residual:.1e}") } else { "–".into() });
                    line
                }
            };
            out.rows.push(line);
            let mut one = row_json(row);
            one["over_one_core_solve"] = json!(ratios[0]);
            one["over_vendor_solve"] = json!(ratios[1]);
            one["over_vendor_factor_and_solve"] = json!(ratios[2]);
            one["over_vendor_whole_step"] = json!(ratios[3]);
            json.push(one);
        }
        tables.push(out);
        steps.push(json!({ "step": step, "assembly_seconds": assembly, "solves": json }));
    }
    json!({
        "name": setting.name, "spec": found.spec, "block_rows": found.rows, "blocks": found.blocks,
        "restart": setting.restart, "fill": setting.shape.fill, "overlap": setting.shape.overlap,
        "parts": setting.shape.parts, "rtol": setting.rtol, "paper": setting.paper, "steps": steps,
    })
}

fn row_json(row: &Row) -> Value {
    let mean = |mean: Mean| json!({ "mean": mean.mean, "deviation": mean.deviation, "min": mean.min, "max": mean.max });
    let runs: Vec<Value> = row
        .runs
        .iter()
        .map(|run| {
            json!({
                "setup": run.setup, "factor": run.factor, "solve": run.solve, "iterations": run.iterations,
                "converged": run.converged, "residual": run.residual,
            })
        })
        .collect();
    json!({
        "name": row.way.name, "kind": row.way.kind.name(), "options": row.way.text, "sweeps": row.way.sweeps,
        "gpus": row.gpus, "setup": mean(row.setup()), "factor": mean(row.factor()), "solve": mean(row.solve()),
        "iterations": mean(row.iterations()), "runs": runs, "notes": row.notes, "failure": row.failure,
    })
}

/// T_g and I_g over γ, a line for each η and f_dp; exact ways are level lines.
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

/// Fig. 10: run after run, and how many failed.
fn repeated(found: &Found, tables: &mut Vec<Table>, figures: &mut Vec<Figure>) -> Value {
    let title = format!("{}: independent runs", found.spec);
    let header = ["", "runs", "converged", "I_g", "median", "deviation", "T_g, ms", "deviation", "T_f, ms"];
    let mut out = Table::new(title, &header);
    let mut json = Vec::new();
    for row in &found.solves {
        let (iterations, solve) = (row.iterations(), row.solve());
        out.rows.push(vec![
            row.way.name.clone(),
            row.runs.len().to_string(),
            row.runs.iter().filter(|run| run.converged).count().to_string(),
            iterations.text(1.0, 1),
            number(row.median(), 1),
            number(iterations.deviation, 2),
            solve.text(1e3, 2),
            number(1e3 * solve.deviation, 3),
            row.factor().text(1e3, 2),
        ]);
        json.push(row_json(row));
        if row.way.kind != Kind::Random {
            continue;
        }
        let shown = &row.runs[..row.runs.len().min(SHOWN)];
        let numbers: Vec<usize> = (1..=shown.len()).collect();
        let gamma = row.way.sweeps.map_or(0, |s| s[1]);
        for (short, name, values) in [
            ("tg", "T_g, ms", shown.iter().map(|run| 1e3 * run.solve).collect::<Vec<_>>()),
            ("ig", "I_g", shown.iter().map(|run| run.iterations as f64).collect()),
        ] {
            let title = format!("{}: {name} of independent runs, {}", found.spec, row.way.name);
            let svg = svg::over_counts(&title, "run", &numbers, &[(name.to_string(), values)]);
            figures.push(Figure { file: format!("ras-repeat-gamma{gamma}-{short}.svg"), title, svg });
        }
    }
    tables.push(out);
    json!({ "spec": found.spec, "rows": json })
}

/// Runs in the figure, as in the paper's.
const SHOWN: usize = 30;

/// T_f + T_g on 1, 2, … GPUs with the same parts.
fn scaling(
    found: &Found,
    tables: &mut Vec<Table>,
    failures: &mut Vec<String>,
    figures: &mut Vec<Figure>,
) -> Value {
    let title = format!("{}: strong scaling, {} block rows", found.spec, found.rows);
    let header =
        ["", "GPUs", "T_f", "T_g", "I_g", "T_f + T_g", "efficiency of T_g", "efficiency of T_f + T_g"];
    let mut out = Table::new(title, &header);
    let (mut json, mut counts, mut lines) = (Vec::new(), Vec::new(), Vec::<(String, Vec<f64>)>::new());
    for row in &found.solves {
        if let Some(message) = &row.failure {
            failures.push(format!("{} on {} GPUs: {message}", found.spec, row.gpus));
        }
        let solve = efficiency(found, row, Row::solve);
        let both = efficiency(found, row, Row::both);
        out.rows.push(vec![
            row.way.name.clone(),
            row.gpus.to_string(),
            row.factor().text(1e3, 2),
            row.solve().text(1e3, 2),
            row.iterations().text(1.0, 0),
            row.both().text(1e3, 2),
            number(solve, 3),
            number(both, 3),
        ]);
        let mut one = row_json(row);
        (one["efficiency_solve"], one["efficiency"]) = (json!(solve), json!(both));
        json.push(one);
        if !counts.contains(&row.gpus) {
            counts.push(row.gpus);
        }
        match lines.iter_mut().find(|line| line.0 == row.way.name) {
            Some(line) => line.1.push(solve),
            None => lines.push((row.way.name.clone(), vec![solve])),
        }
    }
    let title = format!("{}: parallel efficiency of T_g", found.spec);
    let svg = svg::over_gpus(&title, &counts, &lines);
    figures.push(Figure { file: format!("ras-{}-scaling.svg", found.setting.name), title, svg });
    tables.push(out);
    json!({ "spec": found.spec, "block_rows": found.rows, "rows": json })
}

/// Seconds on one GPU over GPUs times seconds on that many.
pub(super) fn efficiency(found: &Found, row: &Row, what: fn(&Row) -> Mean) -> f64 {
    let same = |other: &&Row| other.way == row.way && other.gpus == 1;
    let one = found.solves.iter().find(same).map_or(f64::NAN, |one| what(one).mean);
    one / (row.gpus as f64 * what(row).mean)
}

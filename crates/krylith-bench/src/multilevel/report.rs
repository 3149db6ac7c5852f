//! Tables, figures and raw data from what was measured.

use super::measure::{Found, Row};
use super::targets::{CORES, GOALS, efficiency, targets};
use super::updates::Updates;
use super::{systems, ways};
use crate::answer::report::{ms, way_json};
use crate::okp::OkpReport;
use crate::publish::{Figure, Published, Target, number, summary};
use crate::samples::Samples;
use krylith::Result;
use krylith_plot::html::Table;
use krylith_plot::svg;
use serde_json::{Value, json};
use std::path::Path;

/// A system on one core of the host.
pub(super) struct OneCore {
    pub found: Found,
    /// Seconds of its product there.
    pub product: f64,
    /// It has the size of the comparison.
    pub whole: bool,
}

/// A system on some GPUs.
pub(super) struct Scaled {
    /// `weak` or `strong`.
    pub series: &'static str,
    pub gpus: usize,
    pub found: Found,
    /// It has the size of the promise.
    pub whole: bool,
}

/// All of it.
#[derive(Default)]
pub(super) struct Made {
    pub meta: Value,
    /// The suite's device is a GPU, so arrays in its memory are timed.
    pub gpu: bool,
    pub table: Vec<Found>,
    /// A family each.
    pub growth: Vec<Vec<Found>>,
    pub updates: Vec<Updates>,
    pub cpu: Vec<OneCore>,
    pub scaling: Vec<Scaled>,
}

/// The report and its files.
pub(super) fn write(made: &Made, folder: Option<&Path>) -> Result<OkpReport> {
    make(made).write("multilevel", folder)
}

fn make(made: &Made) -> Published {
    let (mut tables, mut figures, mut failures) = (Vec::new(), Vec::new(), Vec::new());
    let goals = targets(made);
    tables.push(summary(&goals));
    for found in &made.table {
        tables.push(single(found, made.gpu));
        figures.extend(parts(found));
        failures.extend(lost(found));
    }
    for series in made.growth.iter().filter(|series| !series.is_empty()) {
        tables.push(growth(series));
        figures.extend(over_size(series));
        failures.extend(series.iter().flat_map(lost));
    }
    if !made.updates.is_empty() {
        tables.push(updates(&made.updates));
        let failed = made.updates.iter().filter_map(|u| Some((u, u.failure.as_ref()?)));
        failures.extend(
            failed.filter(|(u, _)| is_ours(&u.way)).map(|(u, why)| format!("{}, {}: {why}", u.name, u.way)),
        );
    }
    for one in &made.cpu {
        tables.push(one_core(one));
        failures.extend(lost(&one.found));
    }
    if !made.scaling.is_empty() {
        tables.push(scaling(&made.scaling));
        failures.extend(made.scaling.iter().flat_map(|one| lost(&one.found)));
    }
    let mut json = made.meta.clone();
    json["table"] = made.table.iter().map(found_json).collect();
    json["growth"] =
        made.growth.iter().map(|series| series.iter().map(found_json).collect::<Value>()).collect();
    json["updates"] = made.updates.iter().map(Updates::json).collect();
    json["cpu"] = made.cpu.iter().map(cpu_json).collect();
    json["scaling"] = made.scaling.iter().map(|one| scaling_json(&made.scaling, one)).collect();
    json["targets"] = goals.iter().map(Target::json).collect();
    json["failures"] = json!(failures);
    let facts = vec![
        json["device"]["name"].as_str().unwrap_or("unknown device").to_string(),
        format!(
            "Right-hand side of ones, relative residual {}, recomputed on the host; milliseconds, medians of up to {} rounds. \
             Set-up is everything from arrays to the first iteration; in all has x brought back, too.",
            json["rtol"], json["rounds"]
        ),
        format!("command: {}", json["command"].as_str().unwrap_or("")),
    ];
    Published { title: "Coarse levels", facts, tables, figures, json, failures }
}

/// True of ways that must find an answer: what is picked, and what a user gets who asks for a hierarchy.
fn is_ours(way: &str) -> bool {
    way == ways::AUTO || way == ways::DEFAULT
}

/// Ways without an answer that ought to have one.
fn lost(found: &Found) -> Vec<String> {
    let failed = found.rows.iter().filter(|row| is_ours(&row.text));
    failed.filter_map(|row| Some(format!("{}, {}: {}", found.spec, row.text, row.failure()?))).collect()
}

/// A number that may be missing, or a dash.
fn count(x: Option<f64>, digits: usize) -> String {
    number(x.unwrap_or(f64::NAN), digits)
}

/// Every way on one system.
fn single(found: &Found, gpu: bool) -> Table {
    let Found { name, spec, unknowns, order, stored, symmetric, .. } = found;
    let kind = if *symmetric { "symmetric" } else { "not symmetric" };
    let mut title =
        format!("{name} ({spec}): {unknowns} unknowns in blocks of {order}, {stored} numbers, {kind}");
    let goal = GOALS.iter().find(|goal| goal.name == name);
    if let Some(goal) = goal {
        let [setup, solve] = goal.amgx;
        title += &format!(
            "; AmgX 2.5 at its size on an H200: {} + {} ms ({}, another day)",
            ms(setup),
            ms(solve),
            goal.setting
        );
    }
    let (from, other) = match gpu {
        true => ("in all, from device arrays", "in all, from host arrays"),
        false => ("in all", ""),
    };
    let mut header = vec!["way", "set-up", "solve", from];
    header.extend((!other.is_empty()).then_some(other));
    header.extend([
        "× the fastest",
        "iterations",
        "levels",
        "operator complexity",
        "grid complexity",
        "device MB",
        "residual",
    ]);
    let mut out = Table::new(title, &header);
    let fastest = found.fastest(|_| true).map_or(f64::NAN, Row::total);
    for row in &found.rows {
        if let Some(why) = row.failure() {
            let mut cells = vec![format!("{}: no answer, {why}", row.text)];
            cells.resize(header.len(), "–".into());
            out.rows.push(cells);
            continue;
        }
        let levels = row.levels();
        let mut cells = vec![label(row), ms(row.setup()), ms(row.solve()), ms(row.total())];
        if gpu {
            cells.push(row.host.as_ref().map_or("–".into(), |way| ms(way.totals().median())));
        }
        let residual = row.main().map_or(f64::NAN, |way| way.residual);
        cells.extend([
            number(row.total() / fastest, 2),
            number(row.iterations(), 0),
            count(levels.levels, 0),
            count(levels.operators, 2),
            count(levels.grids, 2),
            count(levels.memory.map(|bytes| bytes as f64 / 1e6), 0),
            format!("{residual:.1e}"),
        ]);
        out.rows.push(cells);
    }
    out
}

/// The way with what was picked for it.
fn label(row: &Row) -> String {
    match row.means() {
        "" => row.text.clone(),
        means => format!("{} ({means})", row.text),
    }
}

/// Set-up and solve of every way that has an answer, one above the other.
fn parts(found: &Found) -> Option<Figure> {
    let bars: Vec<(String, Vec<f64>)> = found
        .rows
        .iter()
        .filter(|row| row.total().is_finite())
        .map(|row| {
            let (setup, solve) = (row.setup(), row.solve());
            (row.text.clone(), [setup, solve, row.total() - setup - solve].map(|s| 1e3 * s.max(0.0)).to_vec())
        })
        .collect();
    let title = format!("{}: set-up and solve", found.spec);
    let svg = svg::stacked_bars(&title, "ms", &["set-up", "solve", "x back"], &bars);
    let file = format!("multilevel-{}-parts.svg", file_name(&found.name));
    (!bars.is_empty()).then_some(Figure { file, title, svg })
}

/// Letters and digits of a name; what files are called may have others.
fn file_name(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}

/// One family: a row for each size and way.
fn growth(series: &[Found]) -> Table {
    let name = &series[0].name;
    let header = [
        "nodes",
        "unknowns",
        "way",
        "iterations",
        "× the smallest's",
        "set-up",
        "solve",
        "in all",
        "ns an unknown",
        "levels",
        "operator complexity",
        "device MB",
    ];
    let spec = series[0].spec.as_str();
    let mut out = Table::new(format!("{name}: growth, from {spec} on"), &header);
    for found in series {
        for row in &found.rows {
            let first = series[0].row(&row.text).map_or(f64::NAN, Row::iterations);
            let mut cells = vec![format!("{}³", found.side), found.unknowns.to_string()];
            if let Some(why) = row.failure() {
                cells.push(format!("{}: no answer, {why}", row.text));
                cells.resize(header.len(), "–".into());
                out.rows.push(cells);
                continue;
            }
            let levels = row.levels();
            cells.extend([
                row.text.clone(),
                number(row.iterations(), 0),
                number(row.iterations() / first, 2),
                ms(row.setup()),
                ms(row.solve()),
                ms(row.total()),
                number(1e9 * row.total() / found.unknowns as f64, 1),
                count(levels.levels, 0),
                count(levels.operators, 2),
                count(levels.memory.map(|bytes| bytes as f64 / 1e6), 0),
            ]);
            out.rows.push(cells);
        }
    }
    out
}

/// Iterations, and nanoseconds of an unknown, against size.
fn over_size(series: &[Found]) -> Vec<Figure> {
    let sides: Vec<usize> = series.iter().map(|found| found.side).collect();
    let name = &series[0].name;
    let figure = |short: &str, what: &str, of: &dyn Fn(&Found, &Row) -> f64| {
        // Ways that are no longer tried keep the sizes that they had.
        let lines: Vec<(String, Vec<f64>)> = series[0]
            .rows
            .iter()
            .map(|row| {
                let at = |found: &Found| found.row(&row.text).map_or(f64::NAN, |row| of(found, row));
                (row.text.clone(), series.iter().map(at).collect())
            })
            .collect();
        let title = format!("{name}: {what} against size");
        let svg = svg::over_counts(&title, "nodes along an edge of the cube", &sides, &lines);
        Figure { file: format!("multilevel-{}-{short}.svg", file_name(name)), title, svg }
    };
    vec![
        figure("iterations", "iterations", &|_, row| row.iterations()),
        figure("seconds", "nanoseconds an unknown, set-up and solve,", &|found, row| {
            1e9 * row.total() / found.unknowns as f64
        }),
    ]
}

fn updates(all: &[Updates]) -> Table {
    let header = [
        "system",
        "way",
        "updates",
        "update",
        "update + solve",
        "last tenth over the first",
        "memory, last over first",
        "iterations",
        "residual",
    ];
    let mut out = Table::new("New values and a solve, again and again", &header);
    for made in all {
        if let Some(why) = &made.failure {
            let mut cells = vec![made.name.clone(), format!("{}: {why}", made.way)];
            cells.resize(header.len(), "–".into());
            out.rows.push(cells);
            continue;
        }
        let (least, most) = (made.iterations.iter().min(), made.iterations.iter().max());
        out.rows.push(vec![
            made.name.clone(),
            made.way.clone(),
            made.together.len().to_string(),
            ms(Samples(made.seconds.clone()).median()),
            ms(Samples(made.together.clone()).median()),
            number(made.slower(), 3),
            number(made.larger(), 4),
            format!("{}–{}", least.unwrap_or(&0), most.unwrap_or(&0)),
            format!("{:.1e}", made.residual),
        ]);
    }
    out
}

/// One core, beside what other libraries took on theirs.
fn one_core(one: &OneCore) -> Table {
    let OneCore { found, product, .. } = one;
    let title = format!("{} ({}): one core; a product takes {} ms", found.name, found.spec, ms(*product));
    let header =
        ["way", "set-up, s", "solve, s", "in all, s", "in products", "iterations", "operator complexity"];
    let mut out = Table::new(title, &header);
    for row in &found.rows {
        if let Some(why) = row.failure() {
            let mut cells = vec![format!("{}: no answer, {why}", row.text)];
            cells.resize(header.len(), "–".into());
            out.rows.push(cells);
            continue;
        }
        out.rows.push(vec![
            label(row),
            number(row.setup(), 3),
            number(row.solve(), 3),
            number(row.total(), 3),
            number(row.total() / product, 0),
            number(row.iterations(), 0),
            count(row.levels().operators, 2),
        ]);
    }
    if let Some(core) = CORES.iter().find(|core| core.name == found.name && one.whole) {
        for (name, [seconds, iterations]) in [
            ("AMGCL, smoothed aggregation, another machine", core.amgcl),
            ("hypre, BoomerAMG, another machine", core.hypre),
        ] {
            out.rows.push(vec![
                name.into(),
                "–".into(),
                "–".into(),
                number(seconds, 3),
                number(seconds / core.product, 0),
                number(iterations, 0),
                "–".into(),
            ]);
        }
    }
    out
}

fn scaling(all: &[Scaled]) -> Table {
    let header = [
        "series",
        "GPUs",
        "system",
        "way",
        "set-up",
        "solve",
        "in all",
        "iterations",
        "efficiency of the solve",
        "efficiency in all",
    ];
    let mut out = Table::new("Scaling, from host arrays", &header);
    for one in all {
        for row in &one.found.rows {
            let mut cells = vec![one.series.to_string(), one.gpus.to_string(), one.found.spec.clone()];
            if let Some(why) = row.failure() {
                cells.push(format!("{}: no answer, {why}", row.text));
                cells.resize(header.len(), "–".into());
            } else {
                cells.extend([
                    label(row),
                    ms(row.setup()),
                    ms(row.solve()),
                    ms(row.total()),
                    number(row.iterations(), 0),
                    number(efficiency(all, one, row, Row::solve), 3),
                    number(efficiency(all, one, row, Row::total), 3),
                ]);
            }
            out.rows.push(cells);
        }
    }
    out
}

fn row_json(row: &Row) -> Value {
    let levels = row.levels();
    json!({
        "way": row.text, "options": ways::options(&row.text), "refused": row.refused,
        "from_device": row.resident.as_ref().map(way_json), "from_host": row.host.as_ref().map(way_json),
        "levels": levels.levels, "operator_complexity": levels.operators, "grid_complexity": levels.grids,
        "numbers": levels.numbers, "device_bytes": levels.memory,
    })
}

fn found_json(found: &Found) -> Value {
    let amgx = GOALS.iter().find(|goal| goal.name == found.name);
    json!({
        "name": found.name, "system": found.spec, "unknowns": found.unknowns, "block": found.order,
        "numbers": found.stored, "symmetric": found.symmetric, "nodes_along_an_edge": found.side,
        "real_rock": systems::real_rock(&found.spec),
        "amgx_another_day": amgx.map(|goal| json!({ "setup": goal.amgx[0], "solve": goal.amgx[1], "setting": goal.setting })),
        "ways": found.rows.iter().map(row_json).collect::<Vec<_>>(),
    })
}

fn cpu_json(one: &OneCore) -> Value {
    let mut json = found_json(&one.found);
    json["product_seconds"] = json!(one.product);
    json["amgx_another_day"] = Value::Null;
    let core = CORES.iter().find(|core| core.name == one.found.name);
    json["another_machine"] = json!(core.map(|core| json!({
        "amgcl_seconds": core.amgcl[0], "hypre_seconds": core.hypre[0], "product_seconds": core.product,
    })));
    json
}

fn scaling_json(all: &[Scaled], one: &Scaled) -> Value {
    let mut json = found_json(&one.found);
    (json["series"], json["gpus"]) = (json!(one.series), json!(one.gpus));
    let of = |row: &Row| json!({ "way": row.text, "solve": efficiency(all, one, row, Row::solve), "total": efficiency(all, one, row, Row::total) });
    json["efficiency"] = one.found.rows.iter().map(of).collect();
    json
}

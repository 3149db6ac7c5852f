//! Tables, figures and raw data from the measurements.

use super::measure::{Found, Row};
use super::targets::{CORES, GOALS, efficiency, targets};
use super::updates::Updates;
use super::{systems, ways};
use crate::answer::report::{ms, way_json};
use crate::publish::{Figure, Pages, Report, Target, number, ranks_of, rows_of, summary};
use crate::samples::Samples;
use krylith_core::Result;
use krylith_core::text::plural;
use krylith_plot::html::Table;
use krylith_plot::svg;
use serde_json::{Value, json};
use std::path::Path;

/// A system on one core of the host.
pub(super) struct OneCore {
    pub found: Found,
    /// Seconds of the system's product on one core.
    pub product: f64,
    /// True if it has the size of the comparison.
    pub whole: bool,
}

/// A system on a number of GPUs.
pub(super) struct Scaled {
    /// The series: `weak` or `strong`.
    pub series: &'static str,
    pub gpus: usize,
    pub found: Found,
    /// True if it has the size of the target.
    pub whole: bool,
}

#[derive(Default)]
pub(super) struct Made {
    pub meta: Value,
    /// True if the suite's device is a GPU, so that arrays in its memory are timed.
    pub gpu: bool,
    pub table: Vec<Found>,
    /// One list per family.
    pub growth: Vec<Vec<Found>>,
    pub updates: Vec<Updates>,
    pub cpu: Vec<OneCore>,
    pub scaling: Vec<Scaled>,
}

pub(super) fn write(made: &Made, folder: Option<&Path>) -> Result<Report> {
    let goals = targets(made);
    let mut pages = Pages { tables: vec![summary(&goals)], ..Pages::default() };
    for found in &made.table {
        pages.tables.push(single(found, made.gpu));
        pages.figures.extend(parts(found));
        pages.failures.extend(lost(found));
    }
    for series in made.growth.iter().filter(|series| !series.is_empty()) {
        pages.tables.push(growth(series));
        pages.figures.extend(over_size(series));
        pages.failures.extend(series.iter().flat_map(lost));
    }
    if !made.updates.is_empty() {
        pages.tables.push(updates(&made.updates));
        let ours = made.updates.iter().filter(|u| is_ours(&u.way));
        let failed = ours.filter_map(|u| Some(format!("{}, {}: {}", u.name, u.way, u.failure.as_ref()?)));
        pages.failures.extend(failed);
    }
    for one in &made.cpu {
        pages.tables.push(one_core(one));
        pages.failures.extend(lost(&one.found));
    }
    if !made.scaling.is_empty() {
        pages.tables.push(scaling(&made.scaling, ranks_of(&made.meta)));
        pages.failures.extend(made.scaling.iter().flat_map(|one| lost(&one.found)));
    }
    let mut json = made.meta.clone();
    json["table"] = made.table.iter().map(found_json).collect();
    json["growth"] =
        made.growth.iter().map(|series| series.iter().map(found_json).collect::<Value>()).collect();
    json["updates"] = made.updates.iter().map(Updates::json).collect();
    json["cpu"] = made.cpu.iter().map(cpu_json).collect();
    json["scaling"] = made.scaling.iter().map(|one| scaling_json(&made.scaling, one)).collect();
    json["targets"] = goals.iter().map(Target::json).collect();
    let facts = vec![
        json["device"]["name"].as_str().unwrap_or("unknown device").to_string(),
        format!(
            "Right-hand side of ones, relative residual {}, recomputed on the host; times are milliseconds, \
             medians of up to {}. Set-up is everything from arrays to the first iteration; in all includes \
             copying x to the host.",
            json["rtol"],
            plural(json["rounds"].as_u64().unwrap_or(0) as usize, "round")
        ),
        format!("command: {}", json["command"].as_str().unwrap_or("")),
    ];
    pages.publish(("Coarse levels", "multilevel"), facts, json, folder)
}

/// Returns true for variants that must find a solution: the automatic choice, and the default hierarchy.
fn is_ours(way: &str) -> bool {
    way == ways::AUTO || way == ways::DEFAULT
}

/// Returns variants without a solution that should have one.
fn lost(found: &Found) -> Vec<String> {
    let failed = found.rows.iter().filter(|row| is_ours(&row.text));
    failed.filter_map(|row| Some(format!("{}, {}: {}", found.spec, row.text, row.failure()?))).collect()
}

fn count(x: Option<f64>, digits: usize) -> String {
    number(x.unwrap_or(f64::NAN), digits)
}

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
    let from = if gpu { "in all, from device arrays" } else { "in all" };
    let fastest = found.fastest(|_| true).map_or(f64::NAN, Row::total);
    let over = |row: &Row| number(row.total() / fastest, 2);
    let host = |row: &Row| row.host.as_ref().map_or("–".into(), |way| ms(way.totals().median()));
    let residual = |row: &Row| format!("{:.1e}", row.main().map_or(f64::NAN, |way| way.residual));
    let lines = rows_of(title, &found.rows)
        .broken(|row| row.failure().is_some(), 1, "–")
        .column("way", label)
        .column("set-up", |row| ms(row.setup()))
        .column("solve", |row| ms(row.solve()))
        .column(from, |row| ms(row.total()));
    let lines = if gpu { lines.column("in all, from host arrays", host) } else { lines };
    lines
        .column("× the fastest", over)
        .column("iterations", |row| number(row.iterations(), 0))
        .column("levels", |row| count(row.levels().levels, 0))
        .column("operator complexity", |row| count(row.levels().operators, 2))
        .column("grid complexity", |row| count(row.levels().grids, 2))
        .column("device MB", megabytes)
        .column("residual", residual)
        .table()
}

/// Returns the bytes on the device as text.
fn megabytes(row: &Row) -> String {
    count(row.levels().memory.map(|bytes| bytes as f64 / 1e6), 0)
}

/// Returns the variant with the automatic choice, or the reason why it has no solution.
fn label(row: &Row) -> String {
    match (row.failure(), row.means()) {
        (Some(why), _) => format!("{}: no answer, {why}", row.text),
        (None, "") => row.text.clone(),
        (None, means) => format!("{} ({means})", row.text),
    }
}

/// Returns every variant of every system.
fn ways_of<'r>(all: impl IntoIterator<Item = &'r Found>) -> Vec<(&'r Found, &'r Row)> {
    all.into_iter().flat_map(|found| found.rows.iter().map(move |row| (found, row))).collect()
}

/// Draws set-up and solve of every variant that has a solution.
fn parts(found: &Found) -> Option<Figure> {
    let bar = |row: &Row| {
        let (setup, solve) = (row.setup(), row.solve());
        (row.text.clone(), [setup, solve, row.total() - setup - solve].map(|s| 1e3 * s.max(0.0)).to_vec())
    };
    let bars: Vec<_> = found.rows.iter().filter(|row| row.total().is_finite()).map(bar).collect();
    let title = format!("{}: set-up and solve", found.spec);
    let svg = svg::stacked_bars(&title, "ms", &["set-up", "solve", "x back"], &bars);
    let file = format!("multilevel-{}-parts.svg", file_name(&found.name));
    (!bars.is_empty()).then_some(Figure { file, title, svg })
}

/// Returns the letters and digits of a name; file names allow no others.
fn file_name(name: &str) -> String {
    name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect()
}

/// Builds the table of one family: a row for each size and variant.
fn growth(series: &[Found]) -> Table {
    let first = |row: &Row| series[0].row(&row.text).map_or(f64::NAN, Row::iterations);
    let way =
        |row: &Row| row.failure().map_or(row.text.clone(), |why| format!("{}: no answer, {why}", row.text));
    let title = format!("{}: growth, from {} on", series[0].name, series[0].spec);
    rows_of(title, &ways_of(series))
        .broken(|(_, row)| row.failure().is_some(), 3, "–")
        .column("nodes", |(found, _)| format!("{}³", found.side))
        .column("unknowns", |(found, _)| found.unknowns.to_string())
        .column("way", |(_, row)| way(row))
        .column("iterations", |(_, row)| number(row.iterations(), 0))
        .column("× the smallest's", |(_, row)| number(row.iterations() / first(row), 2))
        .column("set-up", |(_, row)| ms(row.setup()))
        .column("solve", |(_, row)| ms(row.solve()))
        .column("in all", |(_, row)| ms(row.total()))
        .column("ns an unknown", |(found, row)| number(1e9 * row.total() / found.unknowns as f64, 1))
        .column("levels", |(_, row)| count(row.levels().levels, 0))
        .column("operator complexity", |(_, row)| count(row.levels().operators, 2))
        .column("device MB", |(_, row)| megabytes(row))
        .table()
}

/// Draws iterations, and nanoseconds per unknown, over the size.
fn over_size(series: &[Found]) -> Vec<Figure> {
    let sides: Vec<usize> = series.iter().map(|found| found.side).collect();
    let name = &series[0].name;
    let figure = |short: &str, what: &str, of: &dyn Fn(&Found, &Row) -> f64| {
        // Variants that stopped at a smaller size have shorter lines.
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
    let way = |u: &Updates| u.failure.as_ref().map_or(u.way.clone(), |why| format!("{}: {why}", u.way));
    let iterations = |u: &Updates| {
        let (least, most) = (u.iterations.iter().min(), u.iterations.iter().max());
        format!("{}–{}", least.unwrap_or(&0), most.unwrap_or(&0))
    };
    let median = |seconds: &[f64]| ms(Samples(seconds.to_vec()).median());
    rows_of("New values and a solve, again and again", all)
        .broken(|u| u.failure.is_some(), 2, "–")
        .column("system", |u| u.name.clone())
        .column("way", way)
        .column("updates", |u| u.together.len().to_string())
        .column("update", |u| median(&u.seconds))
        .column("update + solve", |u| median(&u.together))
        .column("last tenth over the first", |u| number(u.slower(), 3))
        .column("memory, last over first", |u| number(u.larger(), 4))
        .column("iterations", iterations)
        .column("residual", |u| format!("{:.1e}", u.residual))
        .table()
}

/// Builds the table of one core, compared with other libraries' times on their machine.
fn one_core(one: &OneCore) -> Table {
    let OneCore { found, product, .. } = one;
    let title = format!("{} ({}): one core; a product takes {} ms", found.name, found.spec, ms(*product));
    let mut out = rows_of(title, &ways_of([found]))
        .broken(|(_, row)| row.failure().is_some(), 1, "–")
        .column("way", |(_, row)| label(row))
        .column("set-up, s", |(_, row)| number(row.setup(), 3))
        .column("solve, s", |(_, row)| number(row.solve(), 3))
        .column("in all, s", |(_, row)| number(row.total(), 3))
        .column("in products", |(_, row)| number(row.total() / product, 0))
        .column("iterations", |(_, row)| number(row.iterations(), 0))
        .column("operator complexity", |(_, row)| count(row.levels().operators, 2))
        .table();
    if let Some(core) = CORES.iter().find(|core| core.name == found.name && one.whole) {
        for (name, [seconds, iterations]) in [
            ("AMGCL, smoothed aggregation, another machine", core.amgcl),
            ("hypre, BoomerAMG, another machine", core.hypre),
        ] {
            let numbers = [(seconds, 3), (seconds / core.product, 0), (iterations, 0)];
            let mut cells = vec![name.into(), "–".into(), "–".into()];
            cells.extend(numbers.map(|(x, digits)| number(x, digits)));
            cells.push("–".into());
            out.rows.push(cells);
        }
    }
    out
}

fn scaling(all: &[Scaled], unit: &str) -> Table {
    let rows: Vec<(&Scaled, &Row)> =
        all.iter().flat_map(|one| one.found.rows.iter().map(move |row| (one, row))).collect();
    let of = |one: &Scaled, row: &Row, what: fn(&Row) -> f64| number(efficiency(all, one, row, what), 3);
    rows_of("Scaling, from host arrays", &rows)
        .broken(|(_, row)| row.failure().is_some(), 4, "–")
        .column("series", |(one, _)| one.series.to_string())
        .column(unit, |(one, _)| one.gpus.to_string())
        .column("system", |(one, _)| one.found.spec.clone())
        .column("way", |(_, row)| label(row))
        .column("set-up", |(_, row)| ms(row.setup()))
        .column("solve", |(_, row)| ms(row.solve()))
        .column("in all", |(_, row)| ms(row.total()))
        .column("iterations", |(_, row)| number(row.iterations(), 0))
        .column("efficiency of the solve", |(one, row)| of(one, row, Row::solve))
        .column("efficiency in all", |(one, row)| of(one, row, Row::total))
        .table()
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

//! Tables, JSON and the page from the measurements.

use super::crossover::{self, Crossover};
use super::network::{DELAYS, Network};
use super::solves::{Row, Scaled};
use super::{Found, kernels, memory};
use crate::publish::{Pages, Report, error, facts, number, outcome, percent, ranks_of, rows_of, sizes};
use krylith_core::Result;
use krylith_plot::svg;
use serde_json::{Value, json};

pub(super) struct Made {
    pub meta: Value,
    /// The rates of the device; needed for kernels.
    pub roof: Option<kernels::Roof>,
    pub found: Vec<Found>,
    pub scaling: Vec<Scaled>,
    pub network: Option<Network>,
    /// The prediction, or the reason if there is none.
    pub crossover: Option<std::result::Result<Crossover, String>>,
    /// True to print the memory of the paper's large grid.
    pub memory: bool,
}

/// # Errors
/// Returns an error if a machine file of Krylith cannot be read.
pub(super) fn make(made: &Made) -> Result<Report> {
    let (mut meta, mut pages) = (made.meta.clone(), Pages::default());
    let mut systems = Vec::new();
    for found in &made.found {
        let kernels = made.roof.as_ref().map(|roof| kernels(roof, found, &mut pages));
        let costs = super::costs::report(&found.spec, &found.kernels, &mut pages);
        let shapes = super::shapes::report(&found.spec, &found.shapes, &mut pages);
        let solves = solves(found, &mut pages);
        let right = found.solves.iter().filter(|row| row.ours && row.check.is_ok());
        let curves: Vec<_> = right.map(|row| (row.name.clone(), row.residuals.as_slice())).collect();
        if !curves.is_empty() {
            let title = format!("Relative residual, {}", found.spec);
            pages.picture(title, |title| svg::curves(title, &curves));
        }
        systems.push(json!({
            "system": found.spec, "grid": found.grid, "kernels": kernels, "costs": costs, "tiles": shapes,
            "solves": solves,
        }));
    }
    meta["systems"] = json!(systems);
    meta["scaling"] = scaling(&made.scaling, ranks_of(&meta), &mut pages);
    meta["network"] = made.network.as_ref().map_or(Value::Null, |network| delays(network, &mut pages));
    meta["crossover"] = match &made.crossover {
        Some(Ok(found)) => crossover::report(found, &mut pages),
        Some(Err(reason)) => {
            pages.failures.push(format!("crossover: {reason}"));
            Value::Null
        }
        None => Value::Null,
    };
    meta["memory"] = if made.memory { memory::report(&mut pages)? } else { Value::Null };
    let bandwidth = made.roof.as_ref().map(|roof| roof.bandwidth);
    meta["bandwidth"] =
        json!(bandwidth.map(|(kind, bytes)| json!({ "kind": kind, "bytes_per_second": bytes })));
    meta["peak_flops"] = json!(made.roof.as_ref().and_then(|roof| roof.peak));
    let (first, more) = match bandwidth {
        Some((kind, bytes)) => (
            format!("; {kind} bandwidth {:.0} GB/s, used for rooflines", bytes / 1e9),
            vec![format!("{} samples of a kernel, median (minimum–maximum)", meta["repetitions"])],
        ),
        None => (String::new(), Vec::new()),
    };
    Ok(pages.report("P-CG and P-CBCG", facts(&meta, &first, more), meta))
}

/// Builds Table III of the P-CBCG paper.
fn kernels(roof: &kernels::Roof, found: &Found, pages: &mut Pages) -> Value {
    type Row = kernels::Row;
    let seconds = |row: &Row| row.samples.median() / row.cells as f64;
    let paper = |row: &Row| row.paper.map_or("–".into(), |[f, b, share]| format!("{f}, {b}, {share:.2}"));
    pages.show(
        &format!("{}: ", found.spec),
        rows_of(format!("{}: kernels", found.spec), &found.kernels)
            .checked(|row| &row.check, 1)
            .column("kernel", |row| row.name.clone())
            .column("flop/cell", |row| number(row.flops, 1))
            .column("byte/cell", |row| number(row.bytes, 1))
            .column("flop/byte", |row| number(row.flops / row.bytes, 2))
            .column("roofline, ns/cell", |row| number(1e9 * roof.seconds(row), 4))
            .column("ns/cell", |row| row.samples.text(1e9 / row.cells as f64))
            .column("Gflop/s", |row| number(1e-9 * row.flops / seconds(row), 0))
            .column("share of roofline", |row| number(roof.seconds(row) / seconds(row), 3))
            .column("paper: flop, byte, share", paper),
        |row| &row.check,
    );
    let one = |row: &Row| {
        json!({
            "name": row.name, "role": format!("{:?}", row.role).to_lowercase(), "ours": row.ours,
            "runs": row.runs,
            "flops_per_cell": row.flops, "bytes_per_cell": row.bytes, "cells": row.cells,
            "roofline_seconds_per_cell": roof.seconds(row), "seconds": row.samples.json(),
            "share": roof.seconds(row) / seconds(row), "paper": row.paper, "check": outcome(&row.check),
        })
    };
    found.kernels.iter().map(one).collect()
}

/// Builds the table and the JSON of all solves to the tolerance. They cover Table I (tiles of the
/// preconditioner) and Fig. 4 (P-CG and P-CBCG) of the P-CBCG paper.
fn solves(found: &Found, pages: &mut Pages) -> Value {
    if found.solves.is_empty() {
        return json!([]);
    }
    let whole = |row: &Row| row.setup + row.samples.median();
    // Speed-ups relate to the first baseline, or, on a CPU, to the first row.
    let base = found.solves.iter().find(|row| !row.ours).or(found.solves.first()).map_or(f64::NAN, whole);
    let each = |row: &Row, count: f64| count / row.iterations.max(1) as f64;
    let sums = |row: &Row| if row.ours { number(each(row, row.reductions as f64), 2) } else { "–".into() };
    // A failed solve of a baseline is only reported; a failed solve of Krylith counts as a failure.
    let ours = found.solves.iter().filter(|row| row.ours);
    pages.fail(&format!("{}: ", found.spec), ours.map(|row| &row.check));
    pages.tables.push(
        rows_of(format!("{}: solves", found.spec), &found.solves)
            .checked(|row| &row.check, 1)
            .column("", |row| row.name.clone())
            .column("iterations", |row| row.iterations.to_string())
            .column("sums an iteration", sums)
            .column("set-up, s", |row| number(row.setup, 4))
            .column("solve, s", |row| row.samples.text(1.0))
            .column("µs an iteration", |row| number(each(row, 1e6 * row.samples.median()), 1))
            .column("× first, with set-up", |row| number(base / whole(row), 2))
            .column("residual", |row| error(&row.check, 1))
            .table(),
    );
    let one = |row: &Row| {
        json!({
            "name": row.name, "ours": row.ours, "iterations": row.iterations, "reductions": row.reductions,
            "setup_seconds": row.setup, "seconds": row.samples.json(), "residuals": row.residuals,
            "check": outcome(&row.check),
        })
    };
    found.solves.iter().map(one).collect()
}

fn scaling(rows: &[Scaled], unit: &str, pages: &mut Pages) -> Value {
    if rows.is_empty() {
        return Value::Null;
    }
    let each = |s: &Scaled| s.row.samples.median() / s.row.iterations.max(1) as f64;
    let one = |s: &Scaled| {
        let same = |o: &&Scaled| o.series == s.series && o.row.name == s.row.name && o.gpus == 1;
        rows.iter().find(same).map_or(f64::NAN, each)
    };
    let weak = |s: &Scaled| s.series == "weak";
    // The work per GPU is the same, so the additional time is exchange and waiting.
    let exposed = |s: &Scaled| if weak(s) && s.gpus > 1 { (each(s) - one(s)) / each(s) } else { f64::NAN };
    let speedup = |s: &Scaled| one(s) / each(s) * if weak(s) { s.gpus as f64 } else { 1.0 };
    let exposed_text =
        |s: &Scaled| if exposed(s).is_finite() { percent(exposed(s), 1) } else { "–".into() };
    for s in rows {
        pages.fail(&format!("{} scaling on {} {unit}: ", s.series, s.gpus), [&s.row.check]);
    }
    pages.tables.push(
        rows_of(format!("Several {unit}"), rows)
            .checked(|s| &s.row.check, 1)
            .column("", |s| format!("{}, {}", s.series, s.row.name))
            .column("cells", |s| sizes(s.grid))
            .column(unit, |s| s.gpus.to_string())
            .column("iterations", |s| s.row.iterations.to_string())
            .column("µs an iteration", |s| number(1e6 * each(s), 1))
            .column("× one GPU", |s| number(speedup(s), 2))
            .column("exposed", exposed_text)
            .column("residual", |s| error(&s.row.check, 1))
            .table(),
    );
    let json = |s: &Scaled| {
        json!({
            "series": s.series, "gpus": s.gpus, "grid": s.grid, "name": s.row.name, "iterations": s.row.iterations,
            "seconds": s.row.samples.json(), "speedup": speedup(s), "exposed": exposed(s), "check": outcome(&s.row.check),
        })
    };
    rows.iter().map(json).collect()
}

/// Builds a table of the seconds of a solve at each delay, measured and predicted. It also has the smallest
/// delay from which on a method is always faster than the first one.
fn delays(network: &Network, pages: &mut Pages) -> Value {
    type Row = super::network::Row;
    let first = &network.rows[0];
    let from = |row: &Row| {
        let ahead = |delay: usize| row.seconds.get(delay) < first.seconds.get(delay);
        (0..DELAYS.len()).find(|&d| (d..DELAYS.len()).all(ahead)).map(|d| DELAYS[d])
    };
    let cells = |delay: usize| {
        move |row: &Row| {
            let measured = row.seconds.get(delay).map_or(f64::NAN, |seconds| 1e3 * seconds);
            format!("{} ({})", number(measured, 1), number(1e3 * row.predicted(delay), 1))
        }
    };
    let title = format!("{}: {} ranks, delayed messages; whole solves", network.spec, network.ranks);
    pages.fail("", network.rows.iter().map(|row| &row.check));
    let mut lines = rows_of(title, &network.rows)
        .checked(|row| &row.check, 1)
        .column("", |row| row.method.clone())
        .column("iterations", |row| row.iterations.to_string())
        .column("messages an iteration", |row| number(row.messages, 2));
    for (d, delay) in DELAYS.into_iter().enumerate() {
        lines = lines.column(format!("{delay} µs: ms (predicted)"), cells(d));
    }
    let last = |row: &Row| from(row).map_or("–".into(), |delay| format!("{delay} µs"));
    pages.tables.push(lines.column("faster than the first from", last).table());
    let one = |row: &Row| {
        let predicted: Vec<f64> = (0..row.seconds.len()).map(|d| row.predicted(d)).collect();
        json!({
            "method": row.method, "iterations": row.iterations, "messages_per_iteration": row.messages,
            "delays_us": DELAYS, "seconds": row.seconds, "predicted_seconds": predicted,
            "faster_from_us": from(row), "check": outcome(&row.check),
        })
    };
    let methods: Value = network.rows.iter().map(one).collect();
    json!({ "system": network.spec, "ranks": network.ranks, "methods": methods })
}

//! Tables, JSON and the page from what was measured.

use super::network::{DELAYS, Network};
use super::solves::{Row, Scaled};
use super::{Found, kernels};
use crate::okp::OkpReport;
use krylith_plot::html::{Table, page};
use krylith_plot::svg;
use serde_json::{Value, json};

/// All of it.
pub(super) struct Made {
    pub meta: Value,
    pub roof: kernels::Roof,
    pub found: Vec<Found>,
    pub scaling: Vec<Scaled>,
    pub network: Option<Network>,
}

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

/// A row of dashes that ends in a word.
fn wrong(name: &str, columns: usize) -> Vec<String> {
    let mut line = vec![name.to_string()];
    line.resize(columns - 1, "–".into());
    line.push("WRONG".into());
    line
}

pub(super) fn make(made: &Made) -> OkpReport {
    let (mut tables, mut failures, mut pictures) = (Vec::new(), Vec::new(), Vec::new());
    let mut systems = Vec::new();
    for found in &made.found {
        let kernels = kernels(&made.roof, found, &mut tables, &mut failures);
        let solves = solves(found, &mut tables, &mut failures);
        let curves: Vec<(String, &[f64])> = found
            .solves
            .iter()
            .filter(|row| row.ours && row.check.is_ok())
            .map(|row| (row.name.clone(), row.residuals.as_slice()))
            .collect();
        if !curves.is_empty() {
            let title = format!("{}: relative residual", found.spec);
            pictures.push((title.clone(), svg::curves(&title, &curves)));
        }
        systems
            .push(json!({ "system": found.spec, "grid": found.grid, "kernels": kernels, "solves": solves }));
    }
    let mut meta = made.meta.clone();
    meta["systems"] = json!(systems);
    meta["scaling"] = scaling(&made.scaling, &mut tables, &mut failures);
    meta["network"] =
        made.network.as_ref().map_or(Value::Null, |network| delays(network, &mut tables, &mut failures));
    let bandwidth = made.roof.bandwidth;
    meta["bandwidth"] = json!({ "kind": bandwidth.0, "bytes_per_second": bandwidth.1 });
    meta["peak_flops"] = json!(made.roof.peak);
    meta["failures"] = json!(failures);
    let name = meta["device"]["name"].as_str().unwrap_or("unknown").to_string();
    let mut facts = vec![
        format!(
            "{name}; {} bandwidth {:.0} GB/s, of which rooflines are made",
            bandwidth.0,
            bandwidth.1 / 1e9
        ),
        format!("{} samples of a kernel, median (minimum–maximum)", meta["repetitions"]),
        format!("{}", meta["device"]),
        format!("command: {}", meta["command"].as_str().unwrap_or("")),
    ];
    facts.extend(failures.iter().map(|f| format!("FAILED, not timed: {f}")));
    let text: String = facts
        .iter()
        .map(|f| format!("{f}\n"))
        .chain(tables.iter().map(|t| format!("\n{}", t.text())))
        .collect();
    let html = page("Krylith: P-CG and P-CBCG", &facts, &pictures, &tables);
    OkpReport { tables: text, json: meta, html, failures, files: Vec::new() }
}

/// The paper's Table III.
fn kernels(
    roof: &kernels::Roof,
    found: &Found,
    tables: &mut Vec<Table>,
    failures: &mut Vec<String>,
) -> Vec<Value> {
    let header = [
        "kernel",
        "flop/cell",
        "byte/cell",
        "flop/byte",
        "roofline, ns/cell",
        "ns/cell",
        "Gflop/s",
        "share of roofline",
        "paper: flop, byte, share",
    ];
    let mut out = Table::new(format!("{}: kernels", found.spec), &header);
    let mut json = Vec::new();
    for row in &found.kernels {
        let (cells, roofline) = (row.cells as f64, roof.seconds(row));
        let seconds = row.samples.median() / cells;
        let paper = row.paper.map_or("–".into(), |[f, b, share]| format!("{f}, {b}, {share:.2}"));
        match &row.check {
            Ok(_) => out.rows.push(vec![
                row.name.clone(),
                number(row.flops, 1),
                number(row.bytes, 1),
                number(row.flops / row.bytes, 2),
                number(1e9 * roofline, 4),
                row.samples.text(1e9 / cells),
                number(1e-9 * row.flops / seconds, 0),
                number(roofline / seconds, 3),
                paper,
            ]),
            Err(message) => {
                failures.push(format!("{}: {message}", found.spec));
                out.rows.push(wrong(&row.name, header.len()));
            }
        }
        json.push(json!({
            "name": row.name, "flops_per_cell": row.flops, "bytes_per_cell": row.bytes, "cells": row.cells,
            "roofline_seconds_per_cell": roofline, "seconds": row.samples.json(), "share": roofline / seconds,
            "paper": row.paper, "check": outcome(&row.check),
        }));
    }
    tables.push(out);
    json
}

/// Table I and Fig. 4 in numbers: everything that ran to the tolerance.
fn solves(found: &Found, tables: &mut Vec<Table>, failures: &mut Vec<String>) -> Vec<Value> {
    let header = [
        "",
        "iterations",
        "sums an iteration",
        "set-up, s",
        "solve, s",
        "µs an iteration",
        "× first, with set-up",
        "residual",
    ];
    let mut out = Table::new(format!("{}: solves", found.spec), &header);
    let whole = |row: &Row| row.setup + row.samples.median();
    // The first of those that are not ours is what speed-ups are counted from; on a CPU the first.
    let base = found.solves.iter().find(|row| !row.ours).or(found.solves.first()).map_or(f64::NAN, whole);
    let mut json = Vec::new();
    for row in &found.solves {
        let (seconds, iterations) = (row.samples.median(), row.iterations.max(1) as f64);
        match &row.check {
            Ok(residual) => out.rows.push(vec![
                row.name.clone(),
                row.iterations.to_string(),
                if row.ours { number(row.reductions as f64 / iterations, 2) } else { "–".into() },
                number(row.setup, 4),
                row.samples.text(1.0),
                number(1e6 * seconds / iterations, 1),
                number(base / whole(row), 2),
                format!("{residual:.1e}"),
            ]),
            Err(message) => {
                // What a baseline cannot solve is a finding; what Krylith cannot is a failure.
                if row.ours {
                    failures.push(format!("{}: {message}", found.spec));
                }
                out.rows.push(wrong(&row.name, header.len()));
            }
        }
        json.push(json!({
            "name": row.name, "ours": row.ours, "iterations": row.iterations, "reductions": row.reductions,
            "setup_seconds": row.setup, "seconds": row.samples.json(), "residuals": row.residuals,
            "check": outcome(&row.check),
        }));
    }
    tables.push(out);
    json
}

fn scaling(rows: &[Scaled], tables: &mut Vec<Table>, failures: &mut Vec<String>) -> Value {
    if rows.is_empty() {
        return Value::Null;
    }
    let header = ["", "cells", "GPUs", "iterations", "µs an iteration", "× one GPU", "exposed", "residual"];
    let mut out = Table::new("Several GPUs", &header);
    let each = |s: &Scaled| s.row.samples.median() / s.row.iterations.max(1) as f64;
    let mut json = Vec::new();
    for s in rows {
        let same = |o: &&Scaled| o.series == s.series && o.row.name == s.row.name && o.gpus == 1;
        let one = rows.iter().find(same).map_or(f64::NAN, each);
        let weak = s.series == "weak";
        // The same work on each GPU: what one more GPU adds is exchange and waiting.
        let exposed = if weak && s.gpus > 1 { (each(s) - one) / each(s) } else { f64::NAN };
        let speedup = one / each(s) * if weak { s.gpus as f64 } else { 1.0 };
        match &s.row.check {
            Ok(residual) => out.rows.push(vec![
                format!("{}, {}", s.series, s.row.name),
                format!("{}×{}×{}", s.grid[0], s.grid[1], s.grid[2]),
                s.gpus.to_string(),
                s.row.iterations.to_string(),
                number(1e6 * each(s), 1),
                number(speedup, 2),
                if exposed.is_finite() { format!("{:.1} %", 100.0 * exposed) } else { "–".into() },
                format!("{residual:.1e}"),
            ]),
            Err(message) => {
                failures.push(format!("{} scaling on {} GPUs: {message}", s.series, s.gpus));
                out.rows.push(wrong(&s.row.name, header.len()));
            }
        }
        json.push(json!({
            "series": s.series, "gpus": s.gpus, "grid": s.grid, "name": s.row.name, "iterations": s.row.iterations,
            "seconds": s.row.samples.json(), "speedup": speedup, "exposed": exposed, "check": outcome(&s.row.check),
        }));
    }
    tables.push(out);
    json!(json)
}

/// Seconds by delay, measured and predicted, and from which delay on a method is faster than the first.
fn delays(network: &Network, tables: &mut Vec<Table>, failures: &mut Vec<String>) -> Value {
    let mut header: Vec<String> = ["", "iterations", "messages an iteration"].map(String::from).into();
    header.extend(DELAYS.map(|delay| format!("{delay} µs: ms (predicted)")));
    header.push("faster than the first from".into());
    let names: Vec<&str> = header.iter().map(String::as_str).collect();
    let title = format!("{}: {} ranks, delayed messages; whole solves", network.spec, network.ranks);
    let mut out = Table::new(title, &names);
    let mut json = Vec::new();
    for row in &network.rows {
        let first = &network.rows[0];
        let ahead = |delay: &usize| row.seconds.get(*delay) < first.seconds.get(*delay);
        let from = (0..DELAYS.len()).find(|&d| (d..DELAYS.len()).all(|d| ahead(&d)));
        match &row.check {
            Ok(_) => {
                let mut line = vec![row.method.clone(), row.iterations.to_string(), number(row.messages, 2)];
                line.extend(row.seconds.iter().enumerate().map(|(d, seconds)| {
                    format!("{} ({})", number(1e3 * seconds, 1), number(1e3 * row.predicted(d), 1))
                }));
                line.push(from.map_or("–".into(), |d| format!("{} µs", DELAYS[d])));
                out.rows.push(line);
            }
            Err(message) => {
                failures.push(message.clone());
                out.rows.push(wrong(&row.method, header.len()));
            }
        }
        let predicted: Vec<f64> = (0..row.seconds.len()).map(|d| row.predicted(d)).collect();
        json.push(json!({
            "method": row.method, "iterations": row.iterations, "messages_per_iteration": row.messages,
            "delays_us": DELAYS, "seconds": row.seconds, "predicted_seconds": predicted,
            "faster_from_us": from.map(|d| DELAYS[d]), "check": outcome(&row.check),
        }));
    }
    tables.push(out);
    json!({ "system": network.spec, "ranks": network.ranks, "methods": json })
}

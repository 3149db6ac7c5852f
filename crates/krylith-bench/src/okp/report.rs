//! Tables, JSON and the page from what was measured.

use super::{OkpReport, orthogonalization, product, solve};
use krylith_plot::bars::{self, Bars};
use krylith_plot::html::{Table, page};
use krylith_plot::svg;
use serde_json::{Value, json};

/// Everything that was measured.
#[derive(Default)]
pub(super) struct Findings {
    pub bandwidth: (&'static str, f64),
    pub peak: Option<f64>,
    pub products: Vec<product::Table>,
    /// Every block size and number of stages.
    pub sweep: Vec<product::Table>,
    pub orthogonalizations: Vec<orthogonalization::Row>,
    pub solves: Vec<solve::Row>,
}

/// A number, or a dash where nothing was timed.
pub(super) fn number(x: f64, digits: usize) -> String {
    if x.is_finite() { format!("{x:.digits$}") } else { "–".into() }
}

/// A check's result as JSON.
pub(super) fn outcome(check: &Result<f64, String>) -> Value {
    match check {
        Ok(error) => json!({ "ok": true, "error": error }),
        Err(text) => json!({ "ok": false, "message": text }),
    }
}

pub(super) fn make(found: &Findings, mut meta: Value) -> OkpReport {
    let (ceiling, bandwidth) = found.bandwidth;
    let mut failures = Vec::new();
    let mut tables = Vec::new();
    let products = found.products.iter().map(|t| products(t, found, &mut tables, &mut failures));
    let products: Vec<Value> = products.collect();
    let orthogonalizations = orthogonalizations(found, &mut tables, &mut failures);
    let sweep = sweep(found, &mut tables, &mut failures);
    let solves = solves(found, &mut tables, &mut failures);

    let name = meta["device"]["name"].as_str().unwrap_or("unknown").to_string();
    let mut facts = vec![
        format!("{name}; {ceiling} bandwidth {:.0} GB/s, of which every share is taken", bandwidth / 1e9),
        format!("{}; {} samples each, median (minimum–maximum)", meta["system"], meta["repetitions"]),
        format!("{}", meta["device"]),
        format!("command: {}", meta["command"].as_str().unwrap_or("")),
    ];
    facts.extend(failures.iter().map(|f| format!("FAILED, not timed: {f}")));
    let pictures = pictures(found);
    let text: String = facts
        .iter()
        .map(|f| format!("{f}\n"))
        .chain(tables.iter().map(|t| format!("\n{}", t.text())))
        .collect();
    let html = page("Krylith: Kronecker products and GMRES(30)", &facts, &pictures, &tables);
    meta["bandwidth"] = json!({ "kind": ceiling, "bytes_per_second": bandwidth });
    meta["peak_flops"] = json!(found.peak);
    meta["products"] = json!(products);
    meta["sweep"] = json!(sweep);
    meta["orthogonalization"] = orthogonalizations;
    meta["gmres"] = solves;
    meta["failures"] = json!(failures);
    OkpReport { tables: text, json: meta, html, failures, files: Vec::new() }
}

fn products(
    table: &product::Table,
    found: &Findings,
    tables: &mut Vec<Table>,
    failures: &mut Vec<String>,
) -> Value {
    let title = format!(
        "Product (A⊗M + τB⊗L)x, {}: b = {}, s = {}, {} block rows, {} sets of buffers in rotation",
        table.case, table.block, table.stages, table.block_rows, table.sets
    );
    let share = format!("share of {}", found.bandwidth.0);
    let header =
        ["", "alone, ms", "rotating, ms", "GFLOPS", "GB/s (least bytes)", &share, "× baseline", "error"];
    let mut out = Table::new(title, &header);
    let base = table.rows.first().map_or(f64::NAN, |r| r.rotating.median());
    let mut rows = Vec::new();
    for row in &table.rows {
        let seconds = row.rotating.median();
        let (flops, bytes) = (row.cost.flops as f64 / seconds, row.cost.bytes as f64 / seconds);
        let label =
            if row.notes.is_empty() { row.name.clone() } else { format!("{} [{}]", row.name, row.notes) };
        match &row.check {
            Ok(error) => out.rows.push(vec![
                label,
                row.alone.text(1e3),
                row.rotating.text(1e3),
                number(flops / 1e9, 0),
                number(bytes / 1e9, 0),
                format!("{} %", number(100.0 * bytes / found.bandwidth.1, 1)),
                number(base / seconds, 2),
                format!("{error:.0e}"),
            ]),
            Err(message) => {
                failures.push(message.clone());
                let mut line = vec![label];
                line.resize(header.len() - 1, "–".into());
                line.push("WRONG".into());
                out.rows.push(line);
            }
        }
        rows.push(json!({
            "name": row.name, "notes": row.notes, "ours": row.ours, "check": outcome(&row.check),
            "flops": row.cost.flops, "least_bytes": row.cost.bytes, "declared_bytes": row.declared,
            "alone": row.alone.json(), "rotating": row.rotating.json(),
            "bandwidth_fraction": bytes / found.bandwidth.1, "speedup": base / seconds,
            "speedup_alone": table.rows[0].alone.median() / row.alone.median(),
        }));
    }
    tables.push(out);
    json!({
        "case": table.case, "block": table.block, "stages": table.stages, "block_rows": table.block_rows,
        "blocks": table.blocks, "sets": table.sets, "rows": rows,
    })
}

/// One line a block size and number of stages; the details are in the JSON.
fn sweep(found: &Findings, tables: &mut Vec<Table>, failures: &mut Vec<String>) -> Vec<Value> {
    let share = format!("share of {}", found.bandwidth.0);
    let header =
        ["b", "s", "block rows", "sets", "baseline, ms", "Krylith, ms", "× baseline", &share, "error"];
    let mut out =
        Table::new("Products with random dense blocks: every block size and number of stages", &header);
    let mut details = Vec::new();
    for table in &found.sweep {
        details.push(products(table, found, &mut Vec::new(), failures));
        let [base, ours] = table.rows.as_slice() else { continue };
        let seconds = ours.rotating.median();
        let fraction = ours.cost.bytes as f64 / seconds / found.bandwidth.1;
        let timed = |row: &product::Row| match &row.check {
            Ok(_) => row.rotating.text(1e3),
            Err(_) => "WRONG".into(),
        };
        out.rows.push(vec![
            table.block.to_string(),
            table.stages.to_string(),
            table.block_rows.to_string(),
            table.sets.to_string(),
            timed(base),
            timed(ours),
            number(base.rotating.median() / seconds, 2),
            format!("{} %", number(100.0 * fraction, 1)),
            ours.check.as_ref().map_or("–".into(), |e| format!("{e:.0e}")),
        ]);
    }
    if !found.sweep.is_empty() {
        tables.push(out);
    }
    details
}

fn orthogonalizations(found: &Findings, tables: &mut Vec<Table>, failures: &mut Vec<String>) -> Value {
    let share = format!("share of {}", found.bandwidth.0);
    let len = found.orthogonalizations.first().map_or(0, |r| r.len);
    let mut out = Table::new(
        format!("One orthogonalisation, vectors of {len} numbers"),
        &["", "columns", "ms", &share, "× first baseline", "‖I − QᵀQ‖"],
    );
    let mut rows = Vec::new();
    for row in &found.orthogonalizations {
        let base = found.orthogonalizations.iter().find(|r| r.columns == row.columns && !r.ours);
        let (base, seconds) = (base.map_or(f64::NAN, |r| r.samples.median()), row.samples.median());
        let fraction = row.bytes as f64 / seconds / found.bandwidth.1;
        match &row.check {
            Ok(defect) => out.rows.push(vec![
                row.name.clone(),
                row.columns.to_string(),
                row.samples.text(1e3),
                format!("{} %", number(100.0 * fraction, 1)),
                number(base / seconds, 2),
                format!("{defect:.0e}"),
            ]),
            Err(message) => {
                failures.push(message.clone());
                let dash = || "–".to_string();
                let columns = row.columns.to_string();
                out.rows.push(vec![row.name.clone(), columns, dash(), dash(), dash(), "WRONG".into()]);
            }
        }
        rows.push(json!({
            "name": row.name, "columns": row.columns, "length": row.len, "ours": row.ours,
            "check": outcome(&row.check), "seconds": row.samples.json(), "least_bytes": row.bytes,
            "bandwidth_fraction": fraction, "speedup": base / seconds,
        }));
    }
    tables.push(out);
    json!(rows)
}

fn solves(found: &Findings, tables: &mut Vec<Table>, failures: &mut Vec<String>) -> Value {
    let baselines: Vec<&solve::Row> = found.solves.iter().filter(|r| !r.ours).collect();
    let mut header: Vec<String> = ["", "iterations", "µs an iteration"].map(String::from).to_vec();
    header.extend(baselines.iter().map(|b| format!("× {}", b.name)));
    header.extend(["T_Kx, µs", "T_Gn, µs", "other, µs", "differs over cycle 1"].map(String::from));
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let mut out = Table::new(
        "GMRES(30), unpreconditioned: time without instrumentation, phases from a run of their own",
        &header,
    );
    let mut rows = Vec::new();
    for row in &found.solves {
        let scale = 1e6 / row.iterations.max(1) as f64;
        let phase = |seconds: f64| number(seconds * scale, 1);
        let speedups: Vec<f64> = baselines.iter().map(|b| b.iteration() / row.iteration()).collect();
        if let Err(message) = &row.check {
            failures.push(message.clone());
        }
        let mut line = vec![row.name.clone(), row.iterations.to_string()];
        line.push(if row.check.is_ok() { row.samples.text(scale) } else { "WRONG".into() });
        line.extend(speedups.iter().map(|s| number(*s, 2)));
        line.extend([row.phases.product, row.phases.orthogonalization, row.phases.other].map(phase));
        line.push(format!("{:.0e}", row.agreement));
        out.rows.push(line);
        rows.push(json!({
            "name": row.name, "ours": row.ours, "check": outcome(&row.check), "iterations": row.iterations,
            "outcome": row.outcome, "seconds_per_solve": row.samples.json(),
            "seconds_per_iteration": row.iteration(), "speedups": speedups,
            "phases_per_solve": {
                "product": row.phases.product, "orthogonalization": row.phases.orthogonalization,
                "other": row.phases.other,
            },
            "residuals": row.residuals, "first_cycle_difference": row.agreement,
        }));
    }
    tables.push(out);
    json!(rows)
}

fn pictures(found: &Findings) -> Vec<(String, String)> {
    let mut pictures = Vec::new();
    let bars: Vec<(String, Vec<f64>)> = found
        .solves
        .iter()
        .map(|row| {
            let scale = 1e6 / row.iterations.max(1) as f64;
            let phases = [row.phases.product, row.phases.orthogonalization, row.phases.other];
            (row.name.clone(), phases.map(|p| p * scale).to_vec())
        })
        .collect();
    let parts = ["product (T_Kx)", "orthogonalisation (T_Gn)", "other"];
    let title = "Where an iteration's time goes";
    let whole: Vec<f64> = found.solves.iter().map(|row| 1e6 * row.iteration()).collect();
    let picture = bars::stacked(&Bars {
        title,
        subtitle: "parts from a run of their own, with clocks between; mark and number: the run without",
        unit: "µs",
        parts: &parts,
        bars: &bars,
        whole: Some(&whole),
    });
    pictures.push((title.to_string(), picture.svg()));
    for table in found.products.iter().take(2) {
        let points: Vec<(String, f64, f64)> = table
            .rows
            .iter()
            .filter(|r| r.check.is_ok())
            .map(|r| {
                let (flops, bytes) = (r.cost.flops as f64, r.cost.bytes as f64);
                (r.name.clone(), flops / bytes, flops / r.rotating.median())
            })
            .collect();
        let title = format!("Roofline: {}", table.case);
        let picture = svg::roofline(&title, found.bandwidth.1, found.peak, &points);
        pictures.push((title, picture));
    }
    let curves: Vec<(String, &[f64])> =
        found.solves.iter().map(|r| (r.name.clone(), r.residuals.as_slice())).collect();
    pictures.push(("Relative residual".into(), svg::curves("Relative residual", &curves)));
    pictures
}

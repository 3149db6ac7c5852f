//! Tables, JSON and the page from the measurements.

use super::{orthogonalization, product, solve};
use crate::publish::{Pages, Report, error, facts, label, number, outcome, percent, rows_of};
use krylith_plot::html::Table;
use krylith_plot::svg;
use serde_json::{Value, json};

#[derive(Default)]
pub(super) struct Findings {
    pub bandwidth: (&'static str, f64),
    pub peak: Option<f64>,
    pub products: Vec<product::Table>,
    /// Products for every block size and number of stages.
    pub sweep: Vec<product::Table>,
    pub orthogonalizations: Vec<orthogonalization::Row>,
    pub solves: Vec<solve::Row>,
}

pub(super) fn make(found: &Findings, mut meta: Value) -> Report {
    let (ceiling, bandwidth) = found.bandwidth;
    let mut pages = Pages::default();
    let of = |table: &product::Table, pages: &mut Pages| {
        pages.tables.push(products(table, found));
        products_json(table, found, pages)
    };
    meta["products"] = found.products.iter().map(|table| of(table, &mut pages)).collect();
    meta["orthogonalization"] = orthogonalizations(found, &mut pages);
    meta["sweep"] = found.sweep.iter().map(|table| products_json(table, found, &mut pages)).collect();
    pages.tables.extend((!found.sweep.is_empty()).then(|| sweep(found)));
    meta["gmres"] = solves(found, &mut pages);
    meta["bandwidth"] = json!({ "kind": ceiling, "bytes_per_second": bandwidth });
    meta["peak_flops"] = json!(found.peak);
    pictures(found, &mut pages);
    let first = format!("; {ceiling} bandwidth {:.0} GB/s, to which every share relates", bandwidth / 1e9);
    let more = format!(
        "{}; {} samples each, median (minimum–maximum)",
        meta["system"].as_str().unwrap_or(""),
        meta["repetitions"]
    );
    pages.report("Kronecker products and GMRES(30)", facts(&meta, &first, vec![more]), meta)
}

/// Returns the median seconds of the speed-ups' baseline, and a function for a row's share of the bandwidth.
fn base_and_share(table: &product::Table, found: &Findings) -> (f64, impl Fn(&product::Row) -> f64) {
    let bandwidth = found.bandwidth.1;
    let base = table.rows.first().map_or(f64::NAN, |r| r.rotating.median());
    (base, move |row: &product::Row| row.cost.bytes as f64 / row.rotating.median() / bandwidth)
}

fn products(t: &product::Table, found: &Findings) -> Table {
    let title = format!(
        "Product (A⊗M + τB⊗L)x, {}: b = {}, s = {}, {} block rows, {} sets of buffers in rotation",
        t.case, t.block, t.stages, t.block_rows, t.sets
    );
    let (base, share) = base_and_share(t, found);
    let rate = |count: u64, row: &product::Row| number(count as f64 / row.rotating.median() / 1e9, 0);
    rows_of(title, &t.rows)
        .broken(|row| row.check.is_err(), 1, "WRONG")
        .column("", |row| label(&row.name, &row.notes))
        .column("alone, ms", |row| row.alone.text(1e3))
        .column("rotating, ms", |row| row.rotating.text(1e3))
        .column("GFLOPS", |row| rate(row.cost.flops, row))
        .column("GB/s (least bytes)", |row| rate(row.cost.bytes, row))
        .column(format!("share of {}", found.bandwidth.0), |row| percent(share(row), 1))
        .column("× baseline", |row| number(base / row.rotating.median(), 2))
        .column("error", |row| error(&row.check, 0))
        .table()
}

fn products_json(t: &product::Table, found: &Findings, pages: &mut Pages) -> Value {
    let (base, share) = base_and_share(t, found);
    pages.fail("", t.rows.iter().map(|row| &row.check));
    let one = |row: &product::Row| {
        json!({
            "name": row.name, "notes": row.notes, "ours": row.ours, "check": outcome(&row.check),
            "flops": row.cost.flops, "least_bytes": row.cost.bytes, "declared_bytes": row.declared,
            "alone": row.alone.json(), "rotating": row.rotating.json(), "bandwidth_fraction": share(row),
            "speedup": base / row.rotating.median(),
            "speedup_alone": t.rows[0].alone.median() / row.alone.median(),
        })
    };
    json!({
        "case": t.case, "block": t.block, "stages": t.stages, "block_rows": t.block_rows, "blocks": t.blocks,
        "sets": t.sets, "rows": t.rows.iter().map(one).collect::<Value>(),
    })
}

fn sweep(found: &Findings) -> Table {
    let timed = |row: &product::Row| row.check.as_ref().map_or("WRONG".into(), |_| row.rotating.text(1e3));
    let title = "Products with random dense blocks: every block size and number of stages";
    let pairs = found.sweep.iter().filter(|t| t.rows.len() == 2);
    rows_of(title, pairs)
        .column("b", |t| t.block.to_string())
        .column("s", |t| t.stages.to_string())
        .column("block rows", |t| t.block_rows.to_string())
        .column("sets", |t| t.sets.to_string())
        .column("baseline, ms", |t| timed(&t.rows[0]))
        .column("Krylith, ms", |t| timed(&t.rows[1]))
        .column("× baseline", |t| number(t.rows[0].rotating.median() / t.rows[1].rotating.median(), 2))
        .column(format!("share of {}", found.bandwidth.0), |t| {
            percent(base_and_share(t, found).1(&t.rows[1]), 1)
        })
        .column("error", |t| error(&t.rows[1].check, 0))
        .table()
}

fn orthogonalizations(found: &Findings, pages: &mut Pages) -> Value {
    type Row = orthogonalization::Row;
    let rows = &found.orthogonalizations;
    let title = format!("One orthogonalisation, vectors of {} numbers", rows.first().map_or(0, |r| r.len));
    let of = |bytes: u64, row: &Row| bytes as f64 / row.samples.median() / found.bandwidth.1;
    let (share, moved) = (|row: &Row| of(row.bytes, row), |row: &Row| of(row.traffic, row));
    let speedup = |row: &Row| {
        let base = rows.iter().find(|r| r.columns == row.columns && !r.ours);
        base.map_or(f64::NAN, |r| r.samples.median()) / row.samples.median()
    };
    pages.show(
        "",
        rows_of(title, rows)
            .checked(|row| &row.check, 2)
            .column("", |row| row.name.clone())
            .column("columns", |row| row.columns.to_string())
            .column("ms", |row| row.samples.text(1e3))
            .column(format!("least bytes, share of {}", found.bandwidth.0), |row| percent(share(row), 1))
            .column(format!("its passes, share of {}", found.bandwidth.0), |row| percent(moved(row), 1))
            .column("× first baseline", |row| number(speedup(row), 2))
            .column("‖I − QᵀQ‖", |row| error(&row.check, 0)),
        |row| &row.check,
    );
    let one = |row: &Row| {
        json!({
            "name": row.name, "columns": row.columns, "length": row.len, "ours": row.ours,
            "check": outcome(&row.check), "seconds": row.samples.json(), "least_bytes": row.bytes,
            "bandwidth_fraction": share(row), "speedup": speedup(row),
            "bytes_of_passes": row.traffic, "bandwidth_fraction_of_passes": moved(row),
        })
    };
    rows.iter().map(one).collect()
}

fn solves(found: &Findings, pages: &mut Pages) -> Value {
    let baselines: Vec<&solve::Row> = found.solves.iter().filter(|r| !r.ours).collect();
    let speedups = |row: &solve::Row| -> Vec<f64> {
        baselines.iter().map(|b| b.iteration() / row.iteration()).collect()
    };
    let mut header: Vec<String> = ["", "iterations", "µs an iteration"].map(String::from).to_vec();
    // The first baseline, and the fastest.
    let fastest = baselines.iter().filter(|b| b.check.is_ok());
    let fastest = fastest.min_by(|a, b| a.iteration().total_cmp(&b.iteration()));
    let shown: Vec<&solve::Row> = baselines.first().into_iter().chain(fastest).copied().collect();
    header.extend(shown.iter().map(|b| format!("× {}", b.name)));
    header.extend(["T_Kx, µs", "T_Gn, µs", "other, µs", "differs over cycle 1"].map(String::from));
    let title = "GMRES(30), unpreconditioned: time without instrumentation, phases from a run of their own";
    let mut out = Table { title: title.into(), header, rows: Vec::new() };
    pages.fail("", found.solves.iter().map(|row| &row.check));
    for row in &found.solves {
        let scale = 1e6 / row.iterations() as f64;
        let mut line = vec![row.name.clone(), row.iterations().to_string()];
        line.push(if row.check.is_ok() { row.samples.text(scale) } else { "WRONG".into() });
        line.extend(shown.iter().map(|b| number(b.iteration() / row.iteration(), 2)));
        line.extend(phases(row).map(|seconds| number(seconds * scale, 1)));
        line.push(format!("{:.0e}", row.agreement));
        out.rows.push(line);
    }
    pages.tables.push(out);
    let one = |row: &solve::Row| {
        let [product, orthogonalization, other] = phases(row);
        json!({
            "name": row.name, "ours": row.ours, "check": outcome(&row.check), "iterations": row.iterations(),
            "outcome": row.outcome, "seconds_per_solve": row.samples.json(),
            "seconds_per_iteration": row.iteration(), "speedups": speedups(row),
            "phases_per_solve": { "product": product, "orthogonalization": orthogonalization, "other": other },
            "residuals": row.residuals, "first_cycle_difference": row.agreement,
        })
    };
    found.solves.iter().map(one).collect()
}

/// Returns the seconds of product, orthogonalisation and the rest, per solve.
fn phases(row: &solve::Row) -> [f64; 3] {
    let [_, product, _, orthogonalization, other] = row.parts();
    [product, orthogonalization, other]
}

fn pictures(found: &Findings, pages: &mut Pages) {
    let bar = |row: &solve::Row| {
        let scale = 1e6 / row.iterations() as f64;
        (row.name.clone(), phases(row).map(|seconds| seconds * scale).to_vec(), 1e6 * row.iteration())
    };
    let parts = ["product (T_Kx)", "orthogonalisation (T_Gn)", "other"];
    let bars = found.solves.iter().map(bar).collect();
    pages.parts("Where an iteration's time goes".into(), "a separate run", &parts, bars);
    for table in found.products.iter().take(2) {
        let point = |r: &product::Row| {
            let (flops, bytes) = (r.cost.flops as f64, r.cost.bytes as f64);
            (r.name.clone(), flops / bytes, flops / r.rotating.median())
        };
        let points: Vec<_> = table.rows.iter().filter(|r| r.check.is_ok()).map(point).collect();
        pages.picture(format!("Roofline: {}", table.case), |title| {
            svg::roofline(title, found.bandwidth.1, found.peak, &points)
        });
    }
    let curves: Vec<(String, &[f64])> =
        found.solves.iter().map(|r| (r.name.clone(), r.residuals.as_slice())).collect();
    pages.picture("Relative residual", |title| svg::curves(title, &curves));
}

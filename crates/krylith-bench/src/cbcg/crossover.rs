//! The number of GPUs from which P-CBCG is faster than P-CG, on simulated networks.
//!
//! Kernels were measured on one device, by this run or by an earlier one. Halos and sums follow from the
//! network of a machine file: grids are cut into boxes with the least surface, and a sum goes up and down a
//! tree over hosts. Nothing of it was measured on so many GPUs. The part `network` measures the effect of
//! slow messages on a few ranks instead.

use crate::publish::{Pages, number, rows_of, sizes};
use krylith_core::{Error, Result};
use krylith_model::Machine;
use krylith_model::poisson::{Iteration, Measured, Method, STEPS};
use krylith_plot::svg;
use serde_json::{Value, json};
use std::path::Path;

/// The paper's large grid.
const GRID: [usize; 3] = [1280, 1280, 4608];
/// Networks that are simulated unless a machine file is given.
const MACHINES: [&str; 3] = ["summit", "abci", "jupiter"];
/// Powers of two up to this one: boxes of about 32³ cells.
const MOST: u32 = 17;
/// Every so many powers of two have a line in the table.
const SHOWN: usize = 2;
/// Latencies of a level of a sum's tree, in µs.
const HOPS: [f64; 6] = [1.0, 2.0, 5.0, 10.0, 20.0, 50.0];
/// Kernels of an iteration of P-CG, and of P-CBCG by product: product, tiles with sums, two updates and two
/// steps of scalars; product, tiles, recurrence, and six kernels in s products.
const KERNELS: [f64; 2] = [6.0, 3.0 + 6.0 / STEPS as f64];
const METHODS: [Method; 2] = [Method::Cg, Method::Cbcg];

/// Measured times of one device.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Times {
    /// The device, and where the times come from.
    pub source: String,
    pub cells: f64,
    /// Seconds per cell of P-CG and of P-CBCG.
    kernels: [Measured; 2],
    /// Iterations of P-CG and of P-CBCG to the tolerance.
    pub iterations: [f64; 2],
}

impl Times {
    /// Reads the times from the raw data of a run.
    ///
    /// # Errors
    /// Returns an error that names the file if it cannot be read, is no run of this suite, or lacks the
    /// kernels or the solves.
    pub fn read(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).map_err(|e| Error::io(path, e))?;
        let named = |e: String| Error::invalid(format!("--times {}: {e}", path.display()));
        let json = serde_json::from_str(&text).map_err(|e| named(e.to_string()))?;
        Self::of(&json, &path.display().to_string()).map_err(|e| named(e.to_string()))
    }

    /// Takes the times from the raw data of a run.
    ///
    /// # Errors
    /// Returns an error if the first system lacks its kernels, or a solve by P-CG or P-CBCG with tiles.
    pub fn of(json: &Value, source: &str) -> Result<Self> {
        let system = &json["systems"][0];
        let list = |key: &str| system[key].as_array().map_or(&[][..], Vec::as_slice);
        let named = |key: &str, matches: &dyn Fn(&str) -> bool| {
            list(key)
                .iter()
                .find(|row| row["name"].as_str().is_some_and(matches) && row["check"]["ok"] == true)
        };
        let lacks = |what: &str| {
            Error::invalid(format!(
                "there is no {what}; measure it with `krylith bench cbcg --parts kernels,solves`"
            ))
        };
        let median = |row: &Value| -> Option<f64> {
            let samples = row["seconds"]["samples"].as_array()?.iter().filter_map(Value::as_f64);
            let median = krylith_model::Samples(samples.collect()).median();
            median.is_finite().then_some(median)
        };
        let kernel = |what: &str, begins: &str| -> Result<f64> {
            let row = named("kernels", &|name| name.starts_with(begins)).ok_or_else(|| lacks(what))?;
            let cells = row["cells"].as_f64().filter(|cells| *cells > 0.0);
            median(row).zip(cells).map(|(t, cells)| t / cells).ok_or_else(|| lacks(what))
        };
        let product = kernel("time of the product", "SpMV")?;
        let preconditioner = kernel("time of the tiles", "tiles ")?;
        let grid = system["grid"].as_array().map(|g| g.iter().filter_map(Value::as_f64).product::<f64>());
        let cells = grid.filter(|cells| *cells > 0.0).ok_or_else(|| lacks("grid of the system"))?;
        let solve = |method: &str| -> Result<(f64, f64)> {
            let lacks = || lacks(&format!("solve by `{method}, block-jacobi`"));
            let name = format!("{method}, block-jacobi");
            let row = named("solves", &|found| found == name).ok_or_else(lacks)?;
            let count = row["iterations"].as_f64().filter(|count| *count > 0.0);
            let (seconds, iterations) = median(row).zip(count).ok_or_else(lacks)?;
            Ok((seconds / iterations / cells, iterations))
        };
        let [cg, cbcg] = [solve("cg")?, solve(&format!("cbcg:s={STEPS}"))?];
        // An iteration has more than the kernels of the table: its rest counts as vectors.
        let rest = |each: f64| (each - product - preconditioner).max(0.0);
        let kernels =
            [cg.0, cbcg.0].map(|each| Measured { product, preconditioner, vectors: rest(each), fixed: 0.0 });
        let device = json["device"]["name"].as_str().unwrap_or("unknown device");
        let source = format!("{device} ({source})");
        Ok(Self { source, cells, kernels, iterations: [cg.1, cbcg.1] })
    }

    /// Returns the seconds of an iteration of P-CG and of P-CBCG.
    fn predict(&self, machine: &Machine, gpus: usize) -> Result<[Iteration; 2]> {
        let of = |k: usize| {
            let kernels = Measured { fixed: KERNELS[k] * machine.launch, ..self.kernels[k] };
            machine.poisson_measured(GRID, METHODS[k], STEPS, gpus, &kernels)
        };
        Ok([of(0)?, of(1)?])
    }

    /// Returns the time of P-CG to the tolerance over that of P-CBCG.
    fn ratio(&self, [cg, cbcg]: &[Iteration; 2]) -> f64 {
        self.iterations[0] * cg.total(true) / (self.iterations[1] * cbcg.total(true))
    }
}

/// A network with the prediction of every number of GPUs.
pub(super) struct Simulated {
    machine: Machine,
    rows: Vec<Point>,
    /// For each latency: the ratio at every number of GPUs.
    by_hop: Vec<(f64, Vec<f64>)>,
}

struct Point {
    gpus: usize,
    times: [Iteration; 2],
    ratio: f64,
}

pub(super) struct Crossover {
    pub times: Times,
    pub networks: Vec<Simulated>,
}

/// Predicts both methods on the network of a machine, or on those of the machines that ship with Krylith.
///
/// # Errors
/// Returns an error if a machine has no network.
pub(super) fn simulate(times: Times, machine: Option<&Machine>) -> Result<Crossover> {
    let machines = match machine {
        Some(machine) => vec![machine.clone()],
        None => MACHINES.iter().map(|name| Machine::open(name.as_ref())).collect::<Result<_>>()?,
    };
    let one = |machine: Machine| -> Result<Simulated> {
        let point = |machine: &Machine, gpus: usize| -> Result<Point> {
            let both = times.predict(machine, gpus)?;
            Ok(Point { gpus, ratio: times.ratio(&both), times: both })
        };
        let rows = counts().map(|gpus| point(&machine, gpus)).collect::<Result<_>>()?;
        let by_hop = HOPS.into_iter().map(|hop| {
            let mut machine = machine.clone();
            if let Some(network) = &mut machine.network {
                network.hop = 1e-6 * hop;
            }
            let ratios = counts().map(|gpus| Ok(point(&machine, gpus)?.ratio)).collect::<Result<_>>()?;
            Ok((hop, ratios))
        });
        let by_hop = by_hop.collect::<Result<_>>()?;
        Ok(Simulated { machine, rows, by_hop })
    };
    let networks = machines.into_iter().map(one).collect::<Result<_>>()?;
    Ok(Crossover { times, networks })
}

fn counts() -> impl Iterator<Item = usize> {
    (0..=MOST).map(|k| 1 << k)
}

/// Returns the least number of GPUs from which on P-CBCG is always faster.
fn faster_from(ratios: &[f64]) -> Option<usize> {
    let last = ratios.iter().rposition(|ratio| !(*ratio > 1.0));
    let first = last.map_or(0, |last| last + 1);
    (first < ratios.len()).then(|| 1 << first)
}

fn from_text(ratios: &[f64]) -> String {
    faster_from(ratios).map_or("–".into(), |gpus| gpus.to_string())
}

/// Builds the tables, the pictures and the JSON.
pub(super) fn report(crossover: &Crossover, pages: &mut Pages) -> Value {
    let Crossover { times, networks } = crossover;
    let name = |s: &Simulated| s.machine.name.clone();
    let grid = sizes(GRID);
    for s in networks {
        let title = format!("{grid}, simulated: kernels of {}, network of {}", times.source, name(s));
        let milli = |k: usize| move |p: &Point| number(1e3 * p.times[k].total(true), 4);
        let sums = |k: usize| move |p: &Point| number(1e3 * p.times[k].all_reduce, 4);
        let shown = s.rows.iter().skip(1).step_by(SHOWN);
        pages.tables.push(
            rows_of(title, shown)
                .column("GPUs", |p| p.gpus.to_string())
                .column("boxes", |p| sizes(p.times[0].boxes))
                .column("P-CG: ms an iteration", milli(0))
                .column("its sums", sums(0))
                .column("P-CBCG: ms", milli(1))
                .column("its sums", sums(1))
                .column("halo", |p| number(1e3 * p.times[0].halo, 4))
                .column("exposed", |p| number(1e3 * p.times[0].exposed, 4))
                .column("P-CG / P-CBCG, to the tolerance", |p| number(p.ratio, 3))
                .table(),
        );
        let lines: Vec<_> =
            s.by_hop.iter().map(|(hop, r)| (format!("{hop} µs a level"), r.clone())).collect();
        let gpus: Vec<usize> = counts().collect();
        let title = format!("Time of P-CG over that of P-CBCG, {}: above 1 P-CBCG is faster", name(s));
        pages.picture(title, |title| svg::over_counts(title, "GPUs", &gpus, &lines));
    }
    let title =
        format!("{grid}, simulated: number of GPUs from which P-CBCG is faster (at most {})", 1u64 << MOST);
    let mut lines = rows_of(title, networks).column("network", name).column("its own latency", |s| {
        let ratios: Vec<f64> = s.rows.iter().map(|p| p.ratio).collect();
        let hop = s.machine.network.as_ref().map_or(f64::NAN, |network| 1e6 * network.hop);
        format!("{} µs: {}", number(hop, 2), from_text(&ratios))
    });
    for (h, hop) in HOPS.into_iter().enumerate() {
        lines = lines.column(format!("{hop} µs a level"), move |s: &Simulated| from_text(&s.by_hop[h].1));
    }
    pages.tables.push(lines.table());
    let parts = |t: &Iteration| {
        json!({
            "boxes": t.boxes, "product": t.product, "preconditioner": t.preconditioner, "vectors": t.vectors,
            "halo": t.halo, "exposed": t.exposed, "all_reduce": t.all_reduce, "seconds": t.total(true),
        })
    };
    let network = |s: &Simulated| {
        let ratios: Vec<f64> = s.rows.iter().map(|p| p.ratio).collect();
        let rows: Vec<Value> = s
            .rows
            .iter()
            .map(|p| {
                let [cg, cbcg] = [parts(&p.times[0]), parts(&p.times[1])];
                json!({ "gpus": p.gpus, "cg": cg, "cbcg": cbcg, "ratio": p.ratio })
            })
            .collect();
        let hops: Vec<Value> = s
            .by_hop
            .iter()
            .map(|(hop, r)| json!({ "hop_us": hop, "ratios": r, "faster_from_gpus": faster_from(r) }))
            .collect();
        json!({
            "machine": s.machine.name, "network": s.machine.network, "launch": s.machine.launch,
            "faster_from_gpus": faster_from(&ratios), "rows": rows, "by_hop": hops,
        })
    };
    let measured = |k: usize| {
        let Measured { product, preconditioner, vectors, .. } = times.kernels[k];
        json!({ "product": product, "preconditioner": preconditioner, "vectors": vectors })
    };
    json!({
        "grid": GRID, "s": STEPS, "source": times.source, "cells": times.cells,
        "iterations": times.iterations,
        "seconds_per_cell": { "cg": measured(0), "cbcg": measured(1) },
        "networks": networks.iter().map(network).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run of a million cells: product and tiles take 10 ns each, an iteration 40 (P-CG) and 60 ns.
    fn run() -> Value {
        let row = |name: &str, seconds: f64| {
            json!({
                "name": name, "cells": 1_000_000, "iterations": 100, "check": { "ok": true },
                "seconds": { "samples": [seconds, 9.0, seconds] },
            })
        };
        json!({
            "device": { "name": "a device" },
            "systems": [{
                "grid": [100, 100, 100],
                "kernels": [row("SpMV with its dot", 0.01), row("tiles 8×8×1 with their dots", 0.01)],
                "solves": [row("cg, block-jacobi", 4.0), row("cbcg:s=12, block-jacobi", 6.0)],
            }],
        })
    }

    #[test]
    fn times_of_a_run_are_read_and_what_lacks_is_named() {
        let times = Times::of(&run(), "a file").unwrap();
        let [cg, cbcg] = times.kernels;
        for (found, expected) in
            [(cg.product, 1e-8), (cg.preconditioner, 1e-8), (cg.vectors, 2e-8), (cbcg.vectors, 4e-8)]
        {
            assert!((found / expected - 1.0).abs() < 1e-9, "{found} {expected}");
        }
        assert_eq!((times.iterations, times.source.as_str()), ([100.0, 100.0], "a device (a file)"));
        for (key, lacking) in [("kernels", "product"), ("solves", "cg, block-jacobi"), ("grid", "grid")] {
            let mut json = run();
            json["systems"][0][key] = Value::Null;
            let error = Times::of(&json, "a file").unwrap_err().to_string();
            assert!(error.contains(lacking) && error.contains("--parts kernels,solves"), "{error}");
        }
        let mut json = run();
        json["systems"][0]["solves"][1]["check"]["ok"] = json!(false);
        assert!(Times::of(&json, "").unwrap_err().to_string().contains("cbcg:s=12"));
    }

    #[test]
    fn slower_sums_let_pcbcg_win_on_fewer_gpus() {
        let times = Times::of(&run(), "a file").unwrap();
        let summit = Machine::open("summit".as_ref()).unwrap();
        let crossover = simulate(times, Some(&summit)).unwrap();
        let network = &crossover.networks[0];
        // On one GPU nothing is exchanged: 40 over 60 ns.
        assert!((network.rows[0].ratio - 2.0 / 3.0).abs() < 1e-9, "{}", network.rows[0].ratio);
        let from: Vec<_> = network.by_hop.iter().map(|(_, r)| faster_from(r).unwrap_or(usize::MAX)).collect();
        assert!(from.windows(2).all(|pair| pair[1] <= pair[0]) && from[5] < from[0], "{from:?}");
        let mut pages = Pages::default();
        let json = report(&crossover, &mut pages);
        assert_eq!(json["networks"][0]["by_hop"][5]["faster_from_gpus"], from[5]);
        assert_eq!((pages.tables.len(), pages.figures.len()), (2, 1));
        assert!(pages.tables[1].text().contains(&from[5].to_string()));
    }

    #[test]
    fn pcbcg_must_stay_ahead() {
        assert_eq!(faster_from(&[0.9, 1.1, 0.9, 1.2, 1.3]), Some(8));
        assert_eq!(faster_from(&[1.1, 1.2]), Some(1));
        assert_eq!((faster_from(&[0.9, 1.0]), faster_from(&[])), (None, None));
        assert_eq!(faster_from(&[0.9, f64::NAN]), None);
    }
}

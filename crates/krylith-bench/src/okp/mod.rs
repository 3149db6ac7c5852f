//! The experiments of "A multi-GPU enabled solver in Kronecker product form" (the OKP paper). On one device:
//! the product, the orthogonalisation, and GMRES(30) with them. On several GPUs: GMRES(30) on 1, 2, 4, … of
//! them. On processes of a launcher: Krylith's GMRES(30) on all of them.

#[cfg(feature = "cuda")]
mod gpus;
mod gpus_report;
mod orthogonalization;
mod processes;
mod product;
mod report;
mod solve;

use crate::options::{self, Asked};
use crate::platform::{Effort, Platform};
use crate::publish::{Report, meta, sizes};
use crate::systems::{self, PAPER};
use krylith_core::text::plural;
use krylith_core::{Precision, Result};
use serde_json::json;

options::parts! {
    /// A series of runs on 1, 2, 4, … GPUs.
    Series {
        /// The paper's size on more and more GPUs.
        Strong = "strong",
        /// The paper's size on each GPU.
        Weak = "weak",
        /// Eight times the paper's size on more and more GPUs.
        Large = "large",
    }
}

const RESTART: usize = 30;

/// Number of instrumented runs on several devices, of which the mean is reported, as in the paper.
const TIMED: usize = 3;

/// Runs the suite; `progress` receives a line before each part.
///
/// # Errors
/// Returns an error if a device or library is missing (by name), if memory is not sufficient, or if an output
/// file cannot be written. A result that fails its check is no error: it is a row without a time in the
/// tables, and is listed under `failures`.
pub fn okp(options: &Asked, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    options.check()?;
    let series = Series::named("--series", &options.parts)?;
    if let Some(comm) = options.launch.comm() {
        return options::on_processes!(options, |ground| {
            processes::run(ground, comm, options, &series, progress)
        });
    }
    options::on_device!(options, |p| run(p, options, progress), |gpus| gpus::run(
        gpus, options, &series, progress
    ))
}

/// The options, with the device's defaults where none was given.
#[derive(Debug, Clone, Copy)]
struct Plan {
    nodes: [usize; 3],
    repetitions: usize,
    solves: usize,
    iterations: usize,
    traffic: u64,
}

fn run<P: Platform>(p: &P, options: &Asked, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    let plan = Plan {
        nodes: systems::scaled(PAPER, options.scale(0.125)),
        repetitions: options.repetitions(),
        solves: options.solves.unwrap_or(options.pick(20, 3)),
        iterations: options.iterations.unwrap_or(options.pick(300, 60)),
        traffic: options.traffic.unwrap_or(options.pick(1_000_000_000, 250_000_000)),
    };
    let mut found = report::Findings::default();

    progress("measuring the bandwidth, the reference for the percentages");
    found.bandwidth = p.bandwidth()?;
    found.peak = p.peak();
    let grid = sizes(plan.nodes);

    progress(&format!("products, random dense blocks, {grid} nodes"));
    let k = systems::random(plan.nodes, 4, 2, 11)?;
    let ours = [(Precision::F64, true), (Precision::F32, true)];
    let name = format!("random blocks, {grid}");
    found.products.push(product::measure(p, &name, &k, &ours, &plan, Effort::All)?);
    drop(k);

    progress(&format!("products, Stokes, {grid} nodes"));
    let case = systems::stokes(plan.nodes)?;
    let ours = [(Precision::F64, true), (Precision::F64, false), (Precision::F32, false)];
    let name = format!("Stokes, {grid}");
    found.products.push(product::measure(p, &name, &case.kronecker, &ours, &plan, Effort::Vendor)?);

    for columns in [1, 5, 15, 30] {
        progress(&format!("orthogonalisation against {}", plural(columns, "column")));
        let len = case.kronecker.rows();
        found.orthogonalizations.extend(orthogonalization::measure(p, len, columns, &plan)?);
    }

    progress(&format!("GMRES({RESTART}), {} iterations, {grid} nodes", plan.iterations));
    let rounds = solve::Rounds { warm: 2, solves: plan.solves, timed: 1 };
    found.solves = solve::measure(solve::on_one(p, &case, &plan)?, "", &case, rounds, None)?;
    let spec = case.spec.clone();
    drop(case);

    let more = json!({
        "system": spec, "nodes": plan.nodes, "repetitions": plan.repetitions, "solves": plan.solves,
        "iterations": plan.iterations, "restart": RESTART,
    });
    let meta = meta("okp", &options.command, p.describe(), more);
    if options.full {
        for b in 1..=8usize {
            // The sweep takes long: keep the results so far in case it is interrupted.
            report::make(&found, meta.clone()).write(options.out.as_deref(), "okp")?;
            let per_node = 15.0 * (16 * b * b + 4) as f64;
            let side = (1.05 * plan.traffic as f64 / per_node).cbrt().ceil() as usize;
            let mut k = systems::random([side; 3], b, 1, b as u64)?;
            for s in 1..=4 {
                progress(&format!("products, random blocks, b = {b}, s = {s}, {side}³ nodes"));
                (k.a, k.b) = systems::coefficients(s, (8 * b + s) as u64)?;
                let name = format!("random blocks, {side}³");
                let ours = [(Precision::F64, true)];
                found.sweep.push(product::measure(p, &name, &k, &ours, &plan, Effort::First)?);
            }
        }
    }

    let mut made = report::make(&found, meta);
    made.write(options.out.as_deref(), "okp")?;
    Ok(made)
}

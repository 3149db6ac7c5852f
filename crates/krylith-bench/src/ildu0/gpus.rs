//! ILDU(0) and BiCGSTAB on 1, 2, 4, … GPUs, or on the processes of a launcher: strong scaling of the
//! application, which needs no communication, and of the whole solver. The paper (named in `ildu0/mod.rs`)
//! measured only the application (its Fig. 5.8) and left the solver to future work.
//!
//! Ranks hold whole layers of boxes, so the preconditioner is the same on any number of GPUs. Before a time
//! is kept, three results must equal those on one GPU. They are the norm and a weighted sum of an
//! application, the first five residuals of BiCGSTAB, and its true residual.

use super::{BOX, MOST, RTOL};
use crate::options::Asked;
use crate::platform::{Platform, read};
use crate::publish::{Pages, Report, meta, number, percent, rows_of, sizes};
use crate::samples::{Samples, repeated, together};
use crate::spmv::Ground;
use krylith_core::comm::{Communicator, agree as agreed};
use krylith_core::method::{Bicgstab, BicgstabOptions};
use krylith_core::operator::{LinearOperator, PointBlock};
use krylith_core::partition::{Part, Subdomains, distribute};
use krylith_core::precond::{Ildu, IlduOptions};
use krylith_core::space::Space;
use krylith_core::{Error, Outcome, Precision, Result, Stop};
use serde_json::{Value, json};
use std::sync::Arc;

/// The paper's first three Laplacians, in blocks of 3.
const GRIDS: [[usize; 3]; 3] = [[128, 128, 128], [256, 128, 128], [256, 256, 128]];
const BLOCK: usize = 3;
/// Number of consecutive applications per sample, which is their mean: starting one costs up to a tenth of
/// it.
const ROW: usize = 10;

/// A measurement of one size on one number of GPUs.
struct Run {
    gpus: usize,
    grid: [usize; 3],
    application: Samples,
    solve: Samples,
    residuals: Vec<f64>,
    true_residual: f64,
    /// ‖y‖² and Σ (i mod 7) yᵢ of one application.
    sums: [f64; 2],
    bytes: f64,
    check: std::result::Result<(), String>,
}

/// Runs the experiment on 1, 2, 4, … and all devices of a ground, or on its processes.
///
/// # Errors
/// Returns an error if a GPU or library is missing, if memory is not sufficient, or if an output file cannot
/// be written.
pub(super) fn run<G: Ground>(ground: &G, options: &Asked, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    let (describe, bandwidth) = {
        let p = ground.one()?;
        (ground.launch().describe(p.describe()), p.bandwidth()?)
    };
    let mut runs: Vec<Run> = Vec::new();
    for grid in GRIDS {
        // Whole layers of boxes per GPU, for every number of GPUs.
        let mut grid = crate::systems::scaled(grid, options.scale(1.0 / 64.0));
        grid[2] = grid[2].next_multiple_of(BOX[2] * ground.ranks());
        for count in ground.launch().counts(ground.ranks()) {
            progress(&format!("{} points, b = {BLOCK}, on {count} GPUs", sizes(grid)));
            if !grid[2].is_multiple_of(BOX[2] * count) {
                continue;
            }
            let mut run = ground.launch().run(count, |comm| rank(ground, grid, options, comm))?;
            if let Some(one) = runs.iter().find(|r| r.grid == grid)
                && run.check.is_ok()
            {
                run.check = agree(one, &run);
            }
            runs.push(run);
        }
    }
    let mut made = report(&runs, bandwidth, describe, options, ground.launch().place());
    made.write(options.out.as_deref(), "ildu0")?;
    Ok(made)
}

fn rank<G: Ground>(
    ground: &G,
    grid: [usize; 3],
    options: &Asked,
    comm: Arc<dyn Communicator>,
) -> Result<Run> {
    let [x, y, z] = grid;
    let made = krylith_problems::generate_rows(
        &format!("laplace:{x}x{y}x{z},block={BLOCK}"),
        comm.rank(),
        comm.size(),
    )?;
    let rhs = made.rhs;
    let Part { terms, rows, .. } = distribute(&*comm, made.rows)?;
    let layers = rows.len() / (x * y);
    let cut = Subdomains::boxes([x, y, layers], BOX);
    let space = agreed(&*comm, ground.joined(&comm, rhs.len()))?;
    let a = agreed(&*comm, PointBlock::new(&space, &terms, Precision::F64, false))?;
    let ildu = agreed(&*comm, Ildu::new(&space, &terms, &cut, IlduOptions::default()))?;
    let mut bicgstab = Bicgstab::new(&space, BicgstabOptions::default())?;
    let (mut b, mut u, zero) = (space.vector()?, space.vector()?, space.vector()?);
    space.write(&rhs, &mut b)?;

    // The quantities to compare with one GPU.
    ildu.apply(&space, &b, &mut u)?;
    let first = rows.first().map_or(0, |&r| r as usize * BLOCK);
    let mut sums = [0.0; 2];
    for (i, v) in read(&space, &u)?.iter().enumerate() {
        sums[0] += v * v;
        sums[1] += ((first + i) % 7) as f64 * v;
    }
    comm.sum(&mut sums)?;
    let stop = Stop { rtol: RTOL, atol: 0.0, max_iters: options.iterations.unwrap_or(MOST), ..Stop::DEFAULT };

    let application = repeated(2, options.repetitions(), || {
        let row = || (0..ROW).try_for_each(|_| ildu.apply(&space, &b, &mut u));
        Ok(together(&space, &*comm, row)? / ROW as f64)
    })?;
    let mut last = None;
    let solve = repeated(2, options.solves.unwrap_or(5), || {
        space.copy(&zero, &mut u)?;
        together(&space, &*comm, || {
            let history = bicgstab.solve(&space, &a, Some(&ildu), &b, &mut u, &stop, &mut ())?;
            last = Some((history.outcome, history.residuals.clone(), history.true_relative_residual));
            Ok(())
        })
    })?;
    let (outcome, residuals, true_residual) = last.ok_or_else(|| Error::invalid("nothing was solved"))?;
    let mut bytes = [ildu.bytes() as f64];
    comm.sum(&mut bytes)?;
    let check = match outcome {
        Outcome::Converged => Ok(()),
        other => Err(format!("{} on {} GPUs: {}", sizes(grid), comm.size(), other.name())),
    };
    let gpus = comm.size();
    Ok(Run { gpus, grid, application, solve, residuals, true_residual, sums, bytes: bytes[0], check })
}

/// Checks that the results equal those on one GPU, to rounding.
fn agree(one: &Run, run: &Run) -> std::result::Result<(), String> {
    let what = format!("{} on {} GPUs", sizes(run.grid), run.gpus);
    for (a, b) in one.sums.iter().zip(run.sums) {
        if !((a - b).abs() <= 1e-10 * one.sums[0].abs()) {
            return Err(format!("{what}: an application sums to {b:e}; on one GPU it sums to {a:e}"));
        }
    }
    for (k, (a, b)) in one.residuals.iter().zip(&run.residuals).take(6).enumerate() {
        if !((a - b).abs() <= 1e-10 * one.residuals[0]) {
            return Err(format!("{what}: residual {k} is {b:e}; on one GPU it is {a:e}"));
        }
    }
    if run.true_residual <= RTOL {
        Ok(())
    } else {
        Err(format!("{what}: the true residual is {:e}", run.true_residual))
    }
}

fn report(
    runs: &[Run],
    (of, bandwidth): (&str, f64),
    describe: Value,
    options: &Asked,
    place: &str,
) -> Report {
    let gpus = options.device.gpus();
    let unit = if options.device.is_gpu() { "GPU" } else { "rank" };
    let iterations = |r: &Run| r.residuals.len().saturating_sub(1).max(1);
    let one = |r: &Run, of: &dyn Fn(&Run) -> f64| {
        runs.iter().find(|o| o.grid == r.grid && o.gpus == 1).map_or(f64::NAN, of)
    };
    let application = |r: &Run| r.application.median();
    let iteration = |r: &Run| r.solve.median() / iterations(r) as f64;
    let title = "ILDU(0) on boxes of 16×16×8 points, b = 3, and BiCGSTAB to 1e-8 with it";
    let mut out = rows_of(title, runs)
        .column("grid", |r| sizes(r.grid))
        .column(format!("{unit}s"), |r| r.gpus.to_string())
        .column("application, ms", |r| r.application.text(1e3))
        .column(format!("share of {of}"), |r| {
            percent(r.bytes / r.gpus as f64 / application(r) / bandwidth, 1)
        })
        .column(format!("× one {unit}"), |r| number(one(r, &application) / application(r), 2))
        .column("BiCGSTAB, s", |r| r.solve.text(1.0))
        .column("iterations", |r| iterations(r).to_string())
        .column("µs an iteration", |r| number(iteration(r) * 1e6, 1))
        .column(format!("× one {unit}, an iteration"), |r| number(one(r, &iteration) / iteration(r), 2))
        .column("true residual", |r| format!("{:.1e}", r.true_residual))
        .table();
    let mut pages = Pages::default();
    for (run, line) in runs.iter().zip(&mut out.rows) {
        if let Err(why) = &run.check {
            line.truncate(2);
            line.push(format!("FAILED: {why}"));
            pages.failures.push(why.clone());
        }
    }
    pages.tables.push(out);
    let name = describe["name"].as_str().unwrap_or("unknown");
    let facts = vec![
        format!("{name}, GPUs {gpus:?}; {place}"),
        format!("{of} bandwidth of one {unit} {:.0} GB/s, to which every share relates", bandwidth * 1e-9),
        format!(
            "{} samples of an application, each the mean of {ROW} in a row; of the slowest rank, median \
             (minimum–maximum)",
            options.repetitions()
        ),
        format!("command: {}", options.command),
    ];
    let run = |r: &Run| {
        json!({
            "gpus": r.gpus, "grid": r.grid, "block": BLOCK, "application": r.application.json(),
            "solve": r.solve.json(), "iterations": iterations(r), "residuals": r.residuals,
            "true_residual": r.true_residual, "bytes": r.bytes, "sums": r.sums,
        })
    };
    let more = json!({
        "gpus": gpus, "read_bandwidth": bandwidth, "rtol": RTOL, "runs": runs.iter().map(run).collect::<Value>(),
    });
    let meta = meta("ildu0", &options.command, describe, more);
    pages.report("ILDU(0) on several GPUs", facts, meta)
}

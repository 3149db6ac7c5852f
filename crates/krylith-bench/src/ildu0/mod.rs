//! The experiments of "Mapping sparse triangular solves to GPUs via fine-grained domain decomposition". They
//! are one lower solve (its Table 5.2), one application of ILU(0) (Table 5.3), the dropped entries (Table
//! 5.4), and BiCGSTAB (Tables 5.5, 5.6).
//!
//! On a GPU the baselines are cuSPARSE on the whole and on the decomposed matrix, and the paper's kernels; on
//! a CPU, plain loops over both matrices. Every result is checked against a sequential reference before a
//! time is kept.

mod application;
pub(crate) mod count;
mod gpus;
mod host;
pub(crate) mod levels;
mod measure;
pub(crate) mod ours;
pub(crate) mod reference;
mod report;
pub(crate) mod system;

pub(crate) use application::{Application, Candidates, Case, Ground, Of, Setup, Solver, Solves, TOLERANCE};

use crate::options::{self, Asked};
use crate::publish::{Report, meta, sizes};
use krylith_core::matrix::Bsr;
use krylith_core::{Error, Result};
use krylith_problems::SystemKind;
use serde_json::json;
use std::time::Instant;
use system::{SubdomainSystem, boxes};

/// Relative tolerance of a solve, ‖r‖ ≤ `RTOL`·‖b‖, as in the paper.
const RTOL: f64 = 1e-8;

/// Iteration limit of BiCGSTAB.
const MOST: usize = 5000;

/// The paper's subdomains, in grid points.
const BOX: [usize; 3] = [16, 16, 8];

/// Grids and block sizes: those of TARGETS for one GPU, and the paper's second Laplacian.
const GRIDS: [([usize; 3], usize); 4] = [([128; 3], 1), ([256; 3], 1), ([128; 3], 3), ([256, 128, 128], 3)];

/// Runs the suite; `progress` receives a line before each part.
///
/// # Errors
/// Returns an error if a device or library is missing (by name), if memory is not sufficient, or if an output
/// file cannot be written. A result that fails its check is no error: it is a row without a time, and is
/// listed under `failures`.
pub fn ildu0(options: &Asked, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    options.check()?;
    if options.launch.comm().is_some() {
        return options::on_processes!(options, |ground| gpus::run(ground, options, progress));
    }
    options::on_device!(options, |p| run(p, options, progress), |all| gpus::run(
        &crate::cuda::ground::Gpus::open(all)?,
        options,
        progress
    ))
}

fn run<P: Ground>(p: &P, options: &Asked, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    let scale = options.scale(1.0 / 64.0);
    let plan = measure::Plan {
        repetitions: options.repetitions(),
        solves: options.solves.unwrap_or(options.pick(5, 3)),
        iterations: options.iterations.unwrap_or(MOST),
        rtol: RTOL,
    };
    progress("measuring the bandwidth, the reference for the percentages");
    let bandwidth = p.bandwidth()?;
    let more = json!({
        "scale": scale, "repetitions": plan.repetitions, "solves": plan.solves, "most_iterations": plan.iterations,
        "rtol": plan.rtol,
    });
    let meta = meta("ildu0", &options.command, p.describe(), more);
    let mut found = Vec::new();
    for (grid, block) in GRIDS.into_iter().take(if options.full { 4 } else { 3 }) {
        let grid = crate::systems::scaled(grid, scale);
        progress(&format!("{} points, b = {block}: the matrix and its subdomains", sizes(grid)));
        let case = case(grid, block)?;
        found.push(measure::case(p, &case, &plan, progress)?);
        // The next part may take long: keep the results so far in case it is interrupted.
        report::make(bandwidth, &found, meta.clone()).write(options.out.as_deref(), "ildu0")?;
    }
    let mut made = report::make(bandwidth, &found, meta);
    made.write(options.out.as_deref(), "ildu0")?;
    Ok(made)
}

/// The 7-point Laplacian in blocks.
#[cfg(test)]
pub(crate) fn laplacian(grid: [usize; 3], block: usize) -> Result<Bsr> {
    Ok(generated(grid, block)?.0)
}

fn generated([x, y, z]: [usize; 3], block: usize) -> Result<(Bsr, String)> {
    let made = krylith_problems::generate(&format!("laplace:{x}x{y}x{z},block={block}"))?;
    let a = match made.system {
        SystemKind::Csr(a) => Bsr::from_csr(&a, 1)?,
        SystemKind::Bsr(a) => a,
        SystemKind::Kronecker(_) => {
            return Err(Error::invalid(
                "the problem `laplace` was generated as a Kronecker sum; expected a CSR or BSR matrix",
            ));
        }
    };
    Ok((a, made.spec))
}

fn case(grid: [usize; 3], block: usize) -> Result<Case> {
    let (a, spec) = generated(grid, block)?;
    let begin = Instant::now();
    let (labels, count) = boxes(grid, BOX);
    let labelled = begin.elapsed().as_secs_f64();
    let begin = Instant::now();
    let decomposed = SubdomainSystem::decompose(&a, &labels, count)?;
    let cut = begin.elapsed().as_secs_f64();
    Ok(Case {
        name: format!("laplacian {}, b = {block}", sizes(grid)),
        spec,
        grid,
        size: BOX,
        rhs: crate::systems::Random(7).numbers(a.rows()),
        whole: SubdomainSystem::whole(&a)?,
        factors: reference::Factors::new(&decomposed)?,
        a,
        decomposed,
        partition: [labelled, cut],
    })
}

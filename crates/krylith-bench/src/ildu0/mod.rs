//! The experiments of "Mapping sparse triangular solves to GPUs via fine-grained domain decomposition". They
//! are one lower solve (its Table 5.2), one application of ILU(0) (Table 5.3), the dropped entries (Table
//! 5.4), and BiCGSTAB (Tables 5.5, 5.6). The systems are those of its Table 5.1, of the same kinds and sizes
//! (`systems.rs`), and any others; `cut.rs` cuts them.
//!
//! On a GPU the baselines are cuSPARSE on the whole and on the decomposed matrix, and the paper's kernels; on
//! a CPU, plain loops over both matrices. Every result is checked against a sequential reference before a
//! time is kept.

mod application;
pub(crate) mod count;
pub(crate) mod cut;
mod gpus;
mod host;
pub(crate) mod levels;
mod measure;
pub(crate) mod ours;
mod parabolic;
pub(crate) mod reference;
mod report;
pub(crate) mod system;
mod systems;

pub(crate) use application::{Application, Candidates, Case, Ground, Of, Setup, Solver, Solves, TOLERANCE};

use crate::options::{self, Asked};
use crate::publish::{Report, meta};
use cut::{Cut, Way};
use krylith_core::{Error, Result};
use serde_json::json;
use std::time::Instant;
use system::SubdomainSystem;
use systems::{Made, RTOL};

/// Iteration limit of BiCGSTAB.
const MOST: usize = 5000;

/// The paper's subdomains of its Laplacians, in grid points.
const BOX: [usize; 3] = [16, 16, 8];

/// Runs the suite; `progress` receives a line before each part.
///
/// # Errors
/// Returns an error if a device or library is missing (by name), if memory is not sufficient, or if an output
/// file cannot be written. A result that fails its check is no error: it is a row without a time, and is
/// listed under `failures`.
pub fn ildu0(options: &Asked, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    options.check()?;
    let several = options.launch.comm().is_some() || options.device.gpus().len() > 1;
    if several && !(options.systems.is_empty() && options.cuts.is_empty()) {
        return Err(Error::invalid(
            "--systems and --cuts need one device; several GPUs or ranks measure the paper's Laplacians in boxes",
        ));
    }
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
    let wanted = systems::wanted(&options.systems, options.full)?;
    let ways = match &options.cuts[..] {
        [] => None,
        words => Some(options::named(Way::ALL, "--cuts", words)?),
    };
    let plan = measure::Plan {
        repetitions: options.repetitions(),
        solves: options.solves.unwrap_or(options.pick(5, 3)),
        iterations: options.iterations.unwrap_or(MOST),
    };
    progress("measuring the bandwidth, the reference for the percentages");
    let bandwidth = p.bandwidth()?;
    let more = json!({
        "scale": scale, "repetitions": plan.repetitions, "solves": plan.solves, "most_iterations": plan.iterations,
    });
    let meta = meta("ildu0", &options.command, p.describe(), more);
    let (mut found, mut failures) = (Vec::new(), Vec::new());
    for system in &wanted {
        progress(&system.text(scale));
        let made = match system.make(scale, options.rock.as_deref()) {
            Ok(made) => made,
            Err(e) if found.is_empty() && wanted.len() == 1 => return Err(e),
            Err(e) => {
                failures.push(format!("{}: {e}", system.text(scale)));
                continue;
            }
        };
        let own = [system.way()];
        let ways = ways.as_deref().unwrap_or(&own).iter();
        let cuts: Vec<Cut> =
            ways.filter_map(|way| Cut::new(*way, &made.a, made.grid, made.laplacian)).collect();
        if cuts.is_empty() {
            failures.push(format!(
                "{}: boxes need the grid of a generated problem; use --cuts multilevel",
                made.name
            ));
        }
        for cut in cuts {
            progress(&format!("{}, {}: the subdomains and the reference", made.name, cut.text()));
            match case(&made, cut).and_then(|case| measure::case(p, &case, &plan, progress)) {
                Ok(case) => found.push(case),
                Err(e) => failures.push(format!("{}, {}: {e}", made.name, cut.text())),
            }
            // The next part may take long: keep the results so far in case it is interrupted.
            let mut so_far = report::make(bandwidth, &found, &failures, meta.clone());
            so_far.write(options.out.as_deref(), "ildu0")?;
        }
    }
    let mut made = report::make(bandwidth, &found, &failures, meta);
    made.write(options.out.as_deref(), "ildu0")?;
    Ok(made)
}

/// The 7-point Laplacian in blocks.
#[cfg(test)]
pub(crate) fn laplacian([x, y, z]: [usize; 3], block: usize) -> Result<krylith_core::matrix::Bsr> {
    let text = format!("laplace:{x}x{y}x{z},block={block}");
    Ok(systems::Wanted::Spec(text).make(1.0, None)?.a)
}

/// Cuts a system, and makes the reference factors.
fn case(made: &Made, cut: Cut) -> Result<Case> {
    let a = &made.a;
    let parts = cut.make(a)?;
    let begin = Instant::now();
    let decomposed = SubdomainSystem::decompose(a, &parts.labels, parts.count)?;
    let grouped = begin.elapsed().as_secs_f64();
    let begin = Instant::now();
    let factors = reference::Factors::new(&decomposed)?;
    let others = [made.seconds, begin.elapsed().as_secs_f64()];
    let name = match cut {
        Cut::Boxes { .. } if made.laplacian => made.name.clone(),
        _ => format!("{}, {}", made.name, cut.text()),
    };
    Ok(Case {
        name,
        spec: made.spec.clone(),
        rtol: made.rtol,
        cut,
        subdomains: parts.subdomains,
        rhs: made.rhs.clone(),
        whole: SubdomainSystem::whole(a)?,
        a: a.clone(),
        factors,
        decomposed,
        partition: [parts.seconds, grouped],
        others,
    })
}

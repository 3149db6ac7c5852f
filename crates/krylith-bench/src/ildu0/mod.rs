//! The experiments of "Mapping sparse triangular solves to GPUs via fine-grained domain decomposition": one lower solve
//! (its Table 5.2), one application of ILU(0) (Table 5.3), what cutting drops (Table 5.4), and BiCGSTAB (Tables 5.5, 5.6).
//!
//! On a GPU the baselines are cuSPARSE on the whole and on the decomposed matrix and the paper's kernels; on a CPU
//! plain loops over both. Every result is checked against a sequential reference before a time is kept.

mod application;
pub(crate) mod count;
#[cfg(feature = "cuda")]
mod gpus;
mod host;
pub(crate) mod levels;
mod measure;
pub(crate) mod ours;
pub(crate) mod reference;
mod report;
pub(crate) mod system;

pub(crate) use application::{Application, Candidates, Case, Ground, Of, Setup, Solver, Solves};

use crate::cpu::CpuPlatform;
use crate::okp::{DeviceChoice, OkpReport};
use krylith::matrix::Bsr;
use krylith::{Error, Result};
use krylith_problems::SystemKind;
use serde_json::json;
use std::path::PathBuf;
use std::time::Instant;
use system::{SubdomainSystem, boxes};

/// What to measure.
#[derive(Debug, Clone)]
pub struct Ildu0Options {
    /// Device. On several GPUs scaling is measured, without baselines.
    pub device: DeviceChoice,
    /// Factor on the number of grid points; 1 is the paper's size. Default: 1 on a GPU, 1/64 on a CPU.
    pub scale: Option<f64>,
    /// Folder for `ildu0.txt`, `ildu0.json` and `ildu0.html`; nothing is written without one.
    pub out: Option<PathBuf>,
    /// Samples of an application; at least 20 for figures that are quoted.
    pub repetitions: usize,
    /// Samples of a whole solve. Default: 5 on a GPU, 3 on a CPU.
    pub solves: Option<usize>,
    /// Most iterations of BiCGSTAB.
    pub iterations: usize,
    /// Threads on a CPU; 0 means all cores.
    pub threads: usize,
    /// The paper's second Laplacian too, 256×128×128 blocks of 3.
    pub full: bool,
    /// How the program was called, for the record.
    pub command: String,
}

impl Default for Ildu0Options {
    fn default() -> Self {
        Self {
            device: DeviceChoice::Cpu,
            scale: None,
            out: None,
            repetitions: 20,
            solves: None,
            iterations: 5000,
            threads: 0,
            full: false,
            command: crate::command_line(),
        }
    }
}

/// ‖r‖ ≤ this·‖b‖ ends a solve, as in the paper.
const RTOL: f64 = 1e-8;

/// The paper's subdomains, in grid points.
const BOX: [usize; 3] = [16, 16, 8];

/// Grids and block sizes: those of TARGETS for one GPU, and the paper's second Laplacian.
const GRIDS: [([usize; 3], usize); 4] = [([128; 3], 1), ([256; 3], 1), ([128; 3], 3), ([256, 128, 128], 3)];

/// Runs the suite; `progress` hears a line before each part.
///
/// # Errors
/// A device or library that is missing (by name), no room, an output file that cannot be written. A result that fails
/// its check is no error: it is a row without a time, and is listed under `failures`.
pub fn ildu0(options: &Ildu0Options, progress: &mut dyn FnMut(&str)) -> Result<OkpReport> {
    if options.repetitions == 0 || options.iterations == 0 || options.solves == Some(0) {
        return Err(Error::invalid("repetitions, solves and iterations must be at least 1"));
    }
    if options.scale.is_some_and(|s| !(s.is_finite() && s > 0.0)) {
        return Err(Error::invalid("the scale must be a positive number"));
    }
    match &options.device {
        DeviceChoice::Cpu => run(&CpuPlatform::new(options.threads), options, progress),
        #[cfg(feature = "cuda")]
        DeviceChoice::Cuda(gpus) => match gpus[..] {
            [gpu] => run(&crate::cuda::CudaPlatform::open(gpu)?, options, progress),
            _ => self::gpus::run(gpus, options, progress),
        },
        #[cfg(not(feature = "cuda"))]
        DeviceChoice::Cuda(_) => Err(Error::Unsupported("this build has no CUDA".into())),
    }
}

fn run<P: Ground>(p: &P, options: &Ildu0Options, progress: &mut dyn FnMut(&str)) -> Result<OkpReport> {
    let gpu = options.device != DeviceChoice::Cpu;
    let scale = options.scale.unwrap_or(if gpu { 1.0 } else { 1.0 / 64.0 });
    let plan = measure::Plan {
        repetitions: options.repetitions,
        solves: options.solves.unwrap_or(if gpu { 5 } else { 3 }),
        iterations: options.iterations,
        rtol: RTOL,
    };
    progress("measuring the bandwidth that shares are taken of");
    let bandwidth = p.bandwidth()?;
    let meta = json!({
        "schema": 1, "suite": "ildu0", "krylith": env!("CARGO_PKG_VERSION"), "command": options.command,
        "device": p.describe(), "scale": scale, "repetitions": plan.repetitions, "solves": plan.solves,
        "most_iterations": plan.iterations, "rtol": plan.rtol,
        "seconds_since_epoch": std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_secs()),
    });
    let mut found = Vec::new();
    for (grid, block) in GRIDS.into_iter().take(if options.full { 4 } else { 3 }) {
        let grid = crate::systems::scaled(grid, scale);
        progress(&format!(
            "{}×{}×{} points, b = {block}: the matrix and its subdomains",
            grid[0], grid[1], grid[2]
        ));
        let case = case(grid, block)?;
        found.push(measure::case(p, &case, &plan, progress)?);
        // The next one may be long: what there is by now stays if it is interrupted.
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
        SystemKind::Kronecker(_) => return Err(Error::invalid("the Laplacian is no Kronecker sum")),
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
        name: format!("laplacian {}×{}×{}, b = {block}", grid[0], grid[1], grid[2]),
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

//! The experiments of the P-CBCG paper (Ali et al. 2019): kernels at the roofline (its Table III) and their
//! share of an iteration (Table V), tiles of the preconditioner (Table I), P-CG and P-CBCG to the tolerance
//! (Fig. 4), the effect of a slow network on both, and the number of GPUs from which P-CBCG is faster.
//!
//! On a GPU the baselines are the paper's own kernels (`cuda/cbcg/`), and what a user would write with the
//! vendor's libraries. Before a time is kept, every kernel is compared with a loop on the host, on a case of
//! 1/64 of the size, and every solve is checked by b − A x on the host.

mod blocks;
mod costs;
mod crossover;
#[cfg_attr(not(feature = "cuda"), allow(dead_code))] // its tests run without CUDA
mod diagonals;
mod kernels;
mod memory;
mod network;
mod report;
mod shapes;
mod solves;
mod tiles;

#[cfg(feature = "cuda")]
pub(crate) use blocks::{
    S, coefficients as block_coefficients, less as block_less, numbers as block_numbers,
};
#[cfg(feature = "cuda")]
pub(crate) use diagonals::Diagonals;
pub(crate) use diagonals::Storage;
pub(crate) use kernels::Kernel;
#[cfg(feature = "cuda")]
pub(crate) use kernels::{ALPHA, BETA, Role};
#[cfg(feature = "cuda")]
pub(crate) use tiles::reference;

use crate::options::{self, Asked};
use crate::platform::Platform;
use crate::publish::{Report, meta};
use krylith_core::matrix::Csr;
use krylith_core::precond::TileFactors;
use krylith_core::{Error, Result};
use krylith_problems::SystemKind;
use serde_json::json;

options::parts! {
    /// A part of the suite.
    Part {
        /// Kernels compared with their rooflines.
        Kernels = "kernels",
        /// Table I: solves by the tile of the preconditioner.
        Tiles = "tiles",
        /// Krylith's solves.
        Solves = "solves",
        /// The vendor's solves, on a GPU; they take the longest.
        Vendor = "vendor",
        /// Scaling from one GPU to several; the part for processes of a launcher.
        Scaling = "scaling",
        /// Ranks with delayed messages, on a CPU.
        Network = "network",
        /// The number of GPUs from which P-CBCG is faster, predicted on simulated networks.
        Crossover = "crossover",
        /// Bytes of the paper's large grid, and the number of GPUs that hold them.
        Memory = "memory",
    }
}

/// Relative tolerance of a solve, ‖b − A x‖ ≤ `RTOL`·‖b‖, as in the paper.
pub(crate) const RTOL: f64 = 1e-8;

/// Iteration limit.
const MOST: usize = 50_000;

/// The paper's case for one GPU.
const CELLS: [usize; 3] = [256, 128, 512];

/// The tile that is fastest in the paper's Table I.
#[cfg(feature = "cuda")]
pub(crate) const PAPER_TILE: [usize; 3] = [8, 8, 1];

/// A solve by a baseline.
pub(crate) struct Solved {
    pub iterations: usize,
    pub converged: bool,
    /// Seconds of the iterations.
    pub seconds: f64,
    pub x: Vec<f64>,
}

/// A baseline that solves a case from x = 0 to the tolerance; it takes the iteration limit.
pub(crate) type Solve<'k> = Box<dyn FnMut(usize) -> Result<Solved> + 'k>;

/// Size of the grid on which kernels are checked against the host, relative to the measured grid.
const SMALLER: f64 = 1.0 / 64.0;

/// A system on a grid of cells.
pub(crate) struct Case {
    pub spec: String,
    pub grid: [usize; 3],
    pub a: Csr,
    pub rhs: Vec<f64>,
}

impl Case {
    fn new(spec: &str) -> Result<Self> {
        let made = krylith_problems::generate(spec)?;
        let a = match made.system {
            SystemKind::Csr(a) => a,
            SystemKind::Bsr(a) if a.block() == 1 => a.to_csr(),
            _ => return Err(Error::invalid(format!("{spec}: this suite accepts only scalar problems"))),
        };
        let grid = made.grid.ok_or_else(|| {
            Error::invalid(format!(
                "{spec}: this suite accepts only problems on a grid, such as poisson-multiphase"
            ))
        })?;
        Ok(Self { spec: made.spec, grid, a, rhs: made.rhs })
    }

    pub fn rows(&self) -> usize {
        self.rhs.len()
    }

    /// Returns A x by a plain loop.
    pub fn product(&self, x: &[f64]) -> Vec<f64> {
        let row = |i: usize| self.a.row(i).0.iter().zip(self.a.row(i).1);
        (0..self.rows()).map(|i| row(i).map(|(&j, v)| v * x[j as usize]).sum()).collect()
    }

    /// Returns ‖b − A x‖/‖b‖ by a plain loop.
    fn residual(&self, x: &[f64]) -> f64 {
        let (mut sum, mut norm) = (0.0, 0.0);
        for (i, b) in self.rhs.iter().enumerate() {
            let (columns, values) = self.a.row(i);
            let product: f64 = columns.iter().zip(values).map(|(&j, v)| v * x[j as usize]).sum();
            sum += (b - product).powi(2);
            norm += b * b;
        }
        (sum / norm).sqrt()
    }
}

/// Returns `NAME:XxYxZ` with the remaining keys of another text of the same kind.
fn resized(spec: &str, [x, y, z]: [usize; 3]) -> String {
    let name = spec.split(':').next().unwrap_or(spec);
    let words = spec.split_once(',').map(|(_, words)| format!(",{words}")).unwrap_or_default();
    format!("{name}:{x}x{y}x{z}{words}")
}

/// Runs the suite; `progress` receives a line before each part.
///
/// # Errors
/// Returns an error if a device or library is missing (by name), if a problem is not scalar or not on a grid,
/// if memory is not sufficient, or if an output file cannot be written. A result that fails its check is no
/// error: it is a row without a time, and is listed under `failures`.
pub fn cbcg(options: &Asked, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    options.check()?;
    let parts = match options.times.is_some() && options.parts.is_empty() {
        true => vec![Part::Crossover],
        false => Part::named("--parts", &options.parts)?,
    };
    let parts = options.launch.parts(parts, &options.parts, &[("scaling", Part::Scaling)])?;
    let measured = [Part::Kernels, Part::Solves].iter().all(|part| parts.contains(part));
    if parts.contains(&Part::Crossover) && !measured && options.times.is_none() {
        return Err(Error::invalid(
            "--parts crossover needs measured times: add the parts kernels and solves, or give --times \
             FILE.json of an earlier run",
        ));
    }
    if !parts.contains(&Part::Crossover) && (options.times.is_some() || options.network.is_some()) {
        return Err(Error::invalid("--times and --network apply only to --parts crossover"));
    }
    options::on_device!(options, |p| run(p, options, &parts, progress))
}

/// All measurements of one system.
struct Found {
    spec: String,
    grid: [usize; 3],
    kernels: Vec<kernels::Row>,
    shapes: Vec<shapes::Shape>,
    solves: Vec<solves::Row>,
}

fn run<P: Platform>(p: &P, options: &Asked, parts: &[Part], progress: &mut dyn FnMut(&str)) -> Result<Report>
where
    P::Space: TileFactors,
{
    let scale = options.scale(1.0 / 64.0);
    let specs = match options.systems.is_empty() {
        true => vec![resized("poisson-multiphase", crate::systems::scaled(CELLS, scale))],
        false => options.systems.clone(),
    };
    // A wrong file fails before anything is measured.
    let times = options.times.as_deref().map(crossover::Times::read).transpose()?;
    let wanted = |part| parts.contains(&part);
    let of_systems = [Part::Kernels, Part::Tiles, Part::Solves, Part::Vendor];
    let systems = of_systems.into_iter().any(wanted);
    let mut roof = None;
    if wanted(Part::Kernels) {
        progress("measuring the bandwidth of the rooflines");
        roof = Some(kernels::Roof { bandwidth: p.bandwidth()?, peak: p.peak() });
    }
    let mut made = report::Made {
        meta: meta(
            "cbcg",
            &options.command,
            options.launch.describe(p.describe()),
            json!({ "scale": scale, "repetitions": options.repetitions(), "rtol": RTOL }),
        ),
        roof,
        found: Vec::new(),
        scaling: Vec::new(),
        network: None,
        crossover: None,
        memory: wanted(Part::Memory),
    };
    for spec in specs.iter().filter(|_| systems) {
        progress(spec);
        let case = Case::new(spec)?;
        let small = Case::new(&resized(spec, crate::systems::scaled(case.grid, SMALLER)))?;
        let mut kernels = Vec::new();
        if wanted(Part::Kernels) {
            progress("kernels: against the host's loops, and their times");
            kernels = kernels::measure(p, &small, &case, options)?;
        }
        let solves = solves::measure(p, &case, options, parts, progress)?;
        let (spec, grid) = (case.spec.clone(), case.grid);
        made.found.push(Found { spec, grid, kernels, shapes: Vec::new(), solves });
        // The next part may take long: keep the results so far in case it is interrupted.
        report::make(&made)?.write(options.out.as_deref(), "cbcg")?;
        if let Some(found) = made.found.last_mut().filter(|_| wanted(Part::Tiles)) {
            found.shapes = shapes::measure(p, &small, &case, options, progress)?;
            report::make(&made)?.write(options.out.as_deref(), "cbcg")?;
        }
    }
    let several = options.device.gpus().len() > 1 || options.launch.comm().is_some();
    if several && wanted(Part::Scaling) {
        made.scaling = solves::scaling(&specs[0], options, progress)?;
        report::make(&made)?.write(options.out.as_deref(), "cbcg")?;
    }
    // The effect of a slow network is measured on a CPU; it would keep a GPU idle.
    let ranks = options.ranks.unwrap_or(options.pick(0, 8));
    if ranks > 0 && wanted(Part::Network) {
        made.network = Some(network::measure(&specs[0], ranks, options, progress)?);
    }
    if wanted(Part::Crossover) {
        // Kernels or solves that failed their check leave nothing to predict from; that is reported.
        let times = match times {
            Some(times) => Ok(times),
            None => crossover::Times::of(&report::make(&made)?.json, "this run"),
        };
        made.crossover = Some(match times {
            Ok(times) => Ok(crossover::simulate(times, options.network.as_ref())?),
            Err(e) => Err(e.to_string()),
        });
    }
    let mut report = report::make(&made)?;
    report.write(options.out.as_deref(), "cbcg")?;
    Ok(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_keeps_its_words_at_another_size() {
        assert_eq!(
            resized("poisson-multiphase:8x4x2,dz=3,seed=5", [4, 2, 1]),
            "poisson-multiphase:4x2x1,dz=3,seed=5"
        );
        assert_eq!(resized("laplace", [4, 2, 1]), "laplace:4x2x1");
    }

    #[test]
    fn what_is_no_grid_of_numbers_is_refused() {
        let error = Case::new("laplace:4x4x4,block=3").map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("scalar"), "{error}");
    }
}

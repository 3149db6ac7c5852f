//! The experiments of "Optimization of Large-Scale Sparse Matrix-Vector Multiplication on Multi-GPU Systems"
//! (Gao, Ji and Wang 2024) on its 24 matrices (its Figs. 6 to 17 and Tables 2 to 4). They compare products on
//! one device with published ones, and every way to distribute products over several devices. They also
//! contain the paper's sweep of parameters, and conjugate gradients. Processes of a launcher measure products
//! and conjugate gradients with halos.
//!
//! Each matrix has its own process, so a crash affects only one, and its results are kept: an interrupted run
//! continues where it stopped. Results are compared with compensated sums on the host before a time is kept.

mod cg;
mod figures;
mod found;
mod ground;
mod matrix;
mod means;
mod multi;
mod report;
mod run;
mod single;
mod unchecked;

use crate::options::{self, Asked, DeviceChoice};
use crate::publish::Report;
use krylith_core::{Error, Result};

#[cfg(feature = "cuda")]
pub(crate) use ground::{CUSPARSE, Given, One, Own, Piece, VECTOR, runs_on_host};
pub(crate) use ground::{Ground, Threads};
#[cfg(feature = "cuda")]
pub(crate) use matrix::Case;
#[cfg(feature = "cuda")]
pub(crate) use multi::rows_of;

options::parts! {
    /// A part of the suite.
    Part {
        /// Products on one device, compared with published ones.
        Single = "single",
        /// Products on several devices, or on ranks that are threads of a CPU.
        Multi = "multi",
        /// Conjugate gradients with a fixed number of iterations.
        Cg = "cg",
        /// The paper's sweep of d_l and d_c, the shares of rows in its long block and of redundant rows.
        Sweep = "sweep",
    }
}

/// The options with the suite's defaults.
struct Plan<'a> {
    options: &'a Asked,
    parts: Vec<Part>,
    scale: f64,
    repetitions: usize,
    iterations: usize,
    ranks: usize,
}

impl<'a> Plan<'a> {
    fn new(options: &'a Asked) -> Result<Self> {
        Ok(Self {
            options,
            parts: options.launch.parts(
                Part::named("--parts", &options.parts)?,
                &options.parts,
                &[("multi", Part::Multi), ("cg", Part::Cg)],
            )?,
            scale: options.scale(1.0 / 256.0),
            repetitions: options.rounds.unwrap_or(20),
            iterations: options.iterations.unwrap_or(options.pick(1000, 50)),
            ranks: options.launch.comm().map_or(options.ranks.unwrap_or(2), |comm| comm.size()),
        })
    }
}

/// Runs the suite; `progress` receives a line before each part.
///
/// # Errors
/// Returns an error if a device or library is missing (by name), if a name is not in the table, or if an
/// output file cannot be written. A matrix that does not fit, or takes too long, is no error: the notes name
/// it. A result that fails its check has no time, and is listed under `failures`.
pub fn spmv(options: &Asked, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    options.check()?;
    if options.scale.is_some_and(|s| s > 1.0) {
        return Err(Error::invalid("the scale must be a positive number, at most 1"));
    }
    if options.device == DeviceChoice::Cuda(Vec::new()) {
        return Err(Error::invalid("no GPU is named"));
    }
    options::apart(options.device.gpus())?;
    run::all(&Plan::new(options)?, progress)
}

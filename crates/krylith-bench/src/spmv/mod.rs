//! The experiments of "Optimization of Large-Scale Sparse Matrix-Vector Multiplication on Multi-GPU Systems" (Gao, Ji and Wang 2024)
//! on its 24 matrices: products on one device beside published ones, every way to share them over several, its sweep of parameters,
//! and conjugate gradients around them (its Figs. 6 to 17 and Tables 2 to 4).
//!
//! A matrix has a process of its own, so that none is lost with another, and what was measured of it is kept: a run that
//! was interrupted goes on where it stopped. Results are compared with compensated sums on the host before a time is kept.

mod cg;
mod figures;
mod found;
mod ground;
mod matrix;
mod means;
mod multi;
mod report;
mod run;
mod shared;
mod single;

use crate::options::{self, DeviceChoice};
use crate::publish::Report;
use krylith::{Error, Result};
use std::path::PathBuf;
use std::time::Duration;

pub(crate) use ground::{CUSPARSE, Candidate, Given, Ground, One, Own, Piece, VECTOR};
#[cfg(feature = "cuda")]
pub(crate) use matrix::Case;
#[cfg(feature = "cuda")]
pub(crate) use shared::rows_of;

options::parts! {
    /// A part of the suite.
    Part {
        /// Products on one device, beside published ones.
        Single = "single",
        /// Products on several devices, or on ranks that are threads of a CPU.
        Multi = "multi",
        /// Conjugate gradients, a fixed number of iterations.
        Cg = "cg",
        /// The paper's sweep of d_l and d_c.
        Sweep = "sweep",
    }
}

impl Part {
    fn name(self) -> &'static str {
        Part::ALL.iter().find(|(part, _)| *part == self).map_or("", |(_, name)| name)
    }
}

options::options! {
    /// What to measure.
    SpmvOptions {
        /// Devices. On several GPUs the parts for several are measured on all of them.
        device: DeviceChoice = DeviceChoice::Cpu,
        /// Factor on the numbers of rows and nonzeros. Default: 1 on a GPU, 1/256 on a CPU.
        scale: Option<f64> = None,
        /// Names of the paper's Table 2, or generated problems `NAME:SIZE`; none stands for the whole table.
        only: Vec<String> = Vec::new(),
        /// Rows and columns of look-alikes in a random order: nothing lies near anything.
        permuted: bool = false,
        /// What is measured.
        parts: Vec<Part> = Part::all(),
        /// Folder of `NAME.mtx`, which are taken instead of look-alikes.
        matrices: Option<PathBuf> = None,
        /// Folder for `spmv.txt`, `.json` and `.html`, and `raw/NAME.json` of every matrix; nothing is written without one.
        out: Option<PathBuf> = None,
        /// Samples of each time; at least 20 for figures that are quoted.
        repetitions: usize = 20,
        /// Iterations of conjugate gradients. Default: the paper's 1,000 on a GPU, 50 on a CPU.
        iterations: Option<usize> = None,
        /// Threads on a CPU; 0 means all cores.
        threads: usize = 0,
        /// Ranks on a CPU, which are threads; on GPUs there is one a GPU.
        ranks: usize = 2,
        /// The command that measures a matrix in a process of its own, `krylith`; without one, or without a folder, all happens in
        /// this process.
        program: Option<PathBuf> = None,
        /// Longest time of a matrix that has its own process.
        limit: Duration = Duration::from_secs(300),
    }
}

impl SpmvOptions {
    fn gpu(&self) -> bool {
        self.device.is_gpu()
    }
    fn scale(&self) -> f64 {
        self.scale.unwrap_or(if self.gpu() { 1.0 } else { 1.0 / 256.0 })
    }
    fn iterations(&self) -> usize {
        self.iterations.unwrap_or(if self.gpu() { 1000 } else { 50 })
    }
    fn wants(&self, part: Part) -> bool {
        self.parts.contains(&part)
    }
}

/// Runs the suite; `progress` hears a line before each part.
///
/// # Errors
/// A device or library that is missing (by name), a name that is not in the table, an output file that cannot be written. A matrix
/// that does not fit, or takes too long, is no error: it is named among the notes. A result that fails its check has no time, and
/// is listed under `failures`.
pub fn spmv(options: &SpmvOptions, progress: &mut dyn FnMut(&str)) -> Result<Report> {
    let counts = [options.repetitions, options.ranks, options.iterations.unwrap_or(1)];
    options::check("repetitions, iterations and ranks", &counts, options.scale)?;
    if options.scale.is_some_and(|s| s > 1.0) {
        return Err(Error::invalid("the scale must be a positive number, at most 1"));
    }
    if options.device == DeviceChoice::Cuda(Vec::new()) {
        return Err(Error::invalid("no GPU is named"));
    }
    options::apart(options.device.gpus())?;
    run::all(options, progress)
}

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

use crate::okp::{DeviceChoice, OkpReport};
use krylith::{Error, Result};
use std::path::PathBuf;
use std::time::Duration;

pub(crate) use ground::{CUSPARSE, Candidate, Given, Ground, One, Own, Piece, VECTOR};
#[cfg(feature = "cuda")]
pub(crate) use matrix::Case;
#[cfg(feature = "cuda")]
#[cfg(feature = "cuda")]
pub(crate) use shared::rows_of;

/// A part of the suite.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// Products on one device, beside published ones.
    Single,
    /// Products on several devices, or on ranks that are threads of a CPU.
    Multi,
    /// Conjugate gradients, a fixed number of iterations.
    Cg,
    /// The paper's sweep of d_l and d_c.
    Sweep,
}

impl Part {
    /// All of them, with their names.
    pub const ALL: [(Part, &'static str); 4] =
        [(Part::Single, "single"), (Part::Multi, "multi"), (Part::Cg, "cg"), (Part::Sweep, "sweep")];

    fn name(self) -> &'static str {
        Part::ALL.iter().find(|(part, _)| *part == self).map_or("", |(_, name)| name)
    }
}

impl std::str::FromStr for Part {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        crate::part_named(&Part::ALL, text)
    }
}

/// What to measure.
#[derive(Debug, Clone)]
pub struct SpmvOptions {
    /// Devices. On several GPUs the parts for several are measured on all of them.
    pub device: DeviceChoice,
    /// Factor on the numbers of rows and nonzeros. Default: 1 on a GPU, 1/256 on a CPU.
    pub scale: Option<f64>,
    /// Names of the paper's Table 2, or generated problems `NAME:SIZE`; none stands for the whole table.
    pub only: Vec<String>,
    /// Rows and columns of look-alikes in a random order: nothing lies near anything.
    pub permuted: bool,
    /// What is measured.
    pub parts: Vec<Part>,
    /// Folder of `NAME.mtx`, which are taken instead of look-alikes.
    pub matrices: Option<PathBuf>,
    /// Folder for `spmv.txt`, `.json` and `.html`, and `raw/NAME.json` of every matrix; nothing is written without one.
    pub out: Option<PathBuf>,
    /// Samples of each time; at least 20 for figures that are quoted.
    pub repetitions: usize,
    /// Iterations of conjugate gradients. Default: the paper's 1,000 on a GPU, 50 on a CPU.
    pub iterations: Option<usize>,
    /// Threads on a CPU; 0 means all cores.
    pub threads: usize,
    /// Ranks on a CPU, which are threads; on GPUs there is one a GPU.
    pub ranks: usize,
    /// The command that measures a matrix in a process of its own, `krylith`; without one, or without a folder, all happens in this
    /// process.
    pub program: Option<PathBuf>,
    /// Longest time of a matrix that has its own process.
    pub limit: Duration,
    /// How the program was called, for the record.
    pub command: String,
}

impl Default for SpmvOptions {
    fn default() -> Self {
        Self {
            device: DeviceChoice::Cpu,
            scale: None,
            only: Vec::new(),
            permuted: false,
            parts: Part::ALL.map(|(part, _)| part).to_vec(),
            matrices: None,
            out: None,
            repetitions: 20,
            iterations: None,
            threads: 0,
            ranks: 2,
            program: None,
            limit: Duration::from_secs(300),
            command: crate::command_line(),
        }
    }
}

impl SpmvOptions {
    fn gpu(&self) -> bool {
        self.device != DeviceChoice::Cpu
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
pub fn spmv(options: &SpmvOptions, progress: &mut dyn FnMut(&str)) -> Result<OkpReport> {
    if options.repetitions == 0 || options.iterations == Some(0) || options.ranks == 0 {
        return Err(Error::invalid("repetitions, iterations and ranks must be at least 1"));
    }
    if options.scale.is_some_and(|s| !(s.is_finite() && s > 0.0 && s <= 1.0)) {
        return Err(Error::invalid("the scale must be a positive number, at most 1"));
    }
    if let DeviceChoice::Cuda(gpus) = &options.device {
        if gpus.is_empty() {
            return Err(Error::invalid("no GPU is named"));
        }
        if let Some((i, gpu)) = gpus.iter().enumerate().find(|(i, gpu)| gpus[..*i].contains(gpu)) {
            return Err(Error::invalid(format!(
                "GPU {gpu} is named twice (at {i}); each rank needs its own"
            )));
        }
    }
    run::all(options, progress)
}

//! The arguments of `krylith steps`.

use super::flags::SolveFlags;
use crate::options;
use clap::{Args, ValueHint};
use std::path::PathBuf;

pub(super) const EXAMPLES: &str = "\
Examples:
  krylith steps stokes:16x16x16,tau=0.05 --steps 100 --picture speed.svg
  krylith steps stokes:pipe.msh,scheme=gauss-2 --steps 100 --every 10 --vtu flow.vtu
  krylith steps M.mtx L.mtx --rhs f.mtx --tau 0.01 --scheme radau-iia-3 --steps 50 --out u.npy

A long run in two parts, with the same result as in one:
  krylith steps stokes:pipe.msh --steps 50 --checkpoint half.steps
  krylith steps stokes:pipe.msh --steps 100 --resume half.steps --out u.npy

Exit codes: 0 all steps done · 1 a step did not converge · 2 usage, input or output file ·
            3 memory, driver or device · 130 interrupted; --checkpoint has the last whole step";

/// `krylith steps`.
#[derive(Debug, Args)]
pub struct StepsArgs {
    /// System M u′ + L u = f: a problem such as stokes:16x16x16,scheme=radau-iia-2,tau=0.125, which has f, τ
    /// and the scheme, or the file of M
    #[arg(value_name = "PROBLEM|M")]
    pub system: PathBuf,
    /// File of L, if the system is a file [default: none]
    #[arg(value_name = "L")]
    pub stiffness: Option<PathBuf>,

    /// Number of steps in all, counted from time 0; a resumed run does those that are left
    #[arg(long, value_name = "N", value_parser = options::max_iters, help_heading = "Time")]
    pub steps: usize,
    /// Length of a step, for files; a problem has the key tau
    #[arg(long, value_name = "TAU", allow_negative_numbers = true, help_heading = "Time")]
    pub tau: Option<f64>,
    /// Runge-Kutta scheme, for files: implicit-euler, gauss-1..8, radau-iia-1..8 or lobatto-iiic-2..8; a
    /// problem has the key scheme [default: radau-iia-2]
    #[arg(long, value_name = "NAME", help_heading = "Time")]
    pub scheme: Option<String>,
    /// Go on from this checkpoint [default: start at step 0]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "u0", help_heading = "Time")]
    pub resume: Option<PathBuf>,

    /// Right-hand side f of files, constant in time, with one number per row of M [default: zeros]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "System")]
    pub rhs: Option<PathBuf>,
    /// State at time 0, with one number per row of M [default: zeros]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "System")]
    pub u0: Option<PathBuf>,
    /// Block size of files: the number of unknowns per node, 1 to 8 [default: found from the pattern of L]
    #[arg(long, value_name = "B", value_parser = options::block_size, help_heading = "System")]
    pub block: Option<usize>,
    #[command(flatten)]
    pub flags: SolveFlags,

    /// Write outputs and the checkpoint after every N-th step too, with the number of the step in the names
    /// of outputs: u-10.npy for u.npy [default: only after the last step]
    #[arg(long, value_name = "N", value_parser = options::max_iters, help_heading = "Output")]
    pub every: Option<usize>,
    /// Write u as a NumPy array, a Matrix Market array or text, by the file's extension [default: u is not
    /// written]
    #[arg(long, value_name = "u.npy|u.mtx|u.txt", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub out: Option<PathBuf>,
    /// Write the checkpoint: step, time, u and stage derivatives; the next one replaces it [default: none]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub checkpoint: Option<PathBuf>,
    /// Write velocity and pressure of a problem for ParaView [default: none]
    #[arg(long, value_name = "u.vtu", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub vtu: Option<PathBuf>,
    /// Draw the speed in a section of a problem in colours [default: none]
    #[arg(long, value_name = "u.svg|u.png", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub picture: Option<PathBuf>,
    /// Print only errors [default: off]
    #[arg(long, short, help_heading = "Output")]
    pub quiet: bool,
}

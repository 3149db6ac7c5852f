//! The arguments of `krylith newton`.

use super::flags::LinearFlags;
use crate::options;
use clap::{Args, ValueHint};
use krylith_core::Options;
use krylith_core::method::MethodName;
use krylith_core::newton::Forcing;
use krylith_core::options::tolerance;
use std::path::PathBuf;

pub(super) const EXAMPLES: &str = "\
Examples:
  krylith newton cavity:64x64,re=100 --plot steps.svg --picture speed.svg
  krylith newton cavity:600x600,re=1000 --continuation 100,400,1000 --vtu cavity.vtu
  krylith newton cavity:128x128 --method fgmres:restart=100 --forcing 1e-4 --report r.json

It stops when ‖F(x)‖ ≤ max(newton-rtol·‖F(x₀)‖, newton-atol), in each time step and for each value of --continuation.
Exit codes: 0 converged · 1 not converged, the outcome is named on stderr ·
            2 usage, input or output file · 3 memory, driver or device ·
            130 interrupted, the x of the last step is written";

/// `krylith newton`.
#[derive(Debug, Args)]
pub struct NewtonArgs {
    /// The problem: NAME:SIZE[,key=value…], see below; without one all are listed
    #[arg(value_name = "PROBLEM")]
    pub problem: Option<String>,

    /// Relative tolerance: stop when ‖F(x)‖ ≤ rtol·‖F(x₀)‖
    #[arg(long, value_name = "TOL", value_parser = tolerance, default_value = "1e-8", allow_negative_numbers = true, help_heading = "Newton")]
    pub newton_rtol: f64,
    /// Absolute tolerance: stop when ‖F(x)‖ ≤ atol, if that comes before --newton-rtol
    #[arg(long, value_name = "TOL", value_parser = tolerance, default_value = "0", allow_negative_numbers = true, help_heading = "Newton")]
    pub newton_atol: f64,
    /// Most steps, in each time step and for each value of --continuation
    #[arg(long, value_name = "N", value_parser = options::max_iters, default_value = "50", help_heading = "Newton")]
    pub max_steps: usize,
    /// How exact linear solves are: ew (Eisenstat and Walker's second choice: 0.1 at first, then as fast as ‖F‖ falls), or the same
    /// relative tolerance for all
    #[arg(long, value_name = "ew|TOL", default_value = "ew", help_heading = "Newton")]
    pub forcing: Forcing,
    /// Values of the problem's parameter (of cavity: re), each solved for from the one before; where Newton fails, values between are
    /// put in [default: the problem's own value alone]
    #[arg(long, value_name = "P,…", value_delimiter = ',', help_heading = "Newton")]
    pub continuation: Vec<f64>,

    #[command(flatten)]
    pub flags: LinearFlags,

    /// Write x, shape (nodes, components), as a NumPy array, a Matrix Market array or text, by the name's ending; - is standard output, in
    /// NumPy's format [default: x is not written]
    #[arg(long, value_name = "x.npy|x.mtx|x.txt|-", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub out: Option<PathBuf>,
    /// Write what was done as JSON: every step, linear iterations, times; - is standard output [default: none]
    #[arg(long, value_name = "r.json|-", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub report: Option<PathBuf>,
    /// Draw ‖F‖ and the linear iterations of each step, as SVG or PNG by the name's ending [default: none]
    #[arg(long, value_name = "r.svg|r.png", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub plot: Option<PathBuf>,
    /// Write the solution for ParaView; of a problem with time steps one file each, NAME-1.vtu, NAME-2.vtu, … [default: none]
    #[arg(long, value_name = "x.vtu", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub vtu: Option<PathBuf>,
    /// Draw the solution in colours, as SVG or PNG by the name's ending [default: none]
    #[arg(long, value_name = "x.svg|x.png", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub picture: Option<PathBuf>,
    /// Say more: -v what was chosen, -vv the parts of the last linear set-up and the devices too [default: off]
    #[arg(long, short, action = clap::ArgAction::Count, conflicts_with = "quiet", help_heading = "Output")]
    pub verbose: u8,
    /// Print errors and nothing else [default: off]
    #[arg(long, short, help_heading = "Output")]
    pub quiet: bool,
}

impl NewtonArgs {
    /// What the command line says of linear solves; FGMRES where it names no method.
    pub fn linear(&self) -> Options {
        let given = &self.flags.0;
        Options { method: given.method.or(Some(MethodName::Fgmres)), ..given.clone() }
    }
}

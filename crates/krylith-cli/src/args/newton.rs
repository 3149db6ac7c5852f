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

Newton's method stops when ‖F(x)‖ ≤ max(newton-rtol·‖F(x₀)‖, newton-atol).
This test applies to each time step and each value of --continuation.
Exit codes: 0 converged · 1 not converged, the outcome is named on stderr ·
            2 usage, input or output file · 3 memory, driver or device ·
            130 interrupted, --out gets the x of the last step";

/// `krylith newton`.
#[derive(Debug, Args)]
pub struct NewtonArgs {
    /// Problem NAME:SIZE[,key=value…], see below; without one, all problems are listed
    #[arg(value_name = "PROBLEM")]
    pub problem: Option<String>,

    /// Relative tolerance of Newton's method; the rule that uses it is below
    #[arg(long, value_name = "TOL", value_parser = tolerance, default_value = "1e-8", allow_negative_numbers = true,
        help_heading = "Newton")]
    pub newton_rtol: f64,
    /// Absolute tolerance of Newton's method
    #[arg(long, value_name = "TOL", value_parser = tolerance, default_value = "0", allow_negative_numbers = true,
        help_heading = "Newton")]
    pub newton_atol: f64,
    /// Limit of the number of Newton steps, for each time step and each value of --continuation
    #[arg(long, value_name = "N", value_parser = options::max_iters, default_value = "50", help_heading = "Newton")]
    pub max_steps: usize,
    /// Tolerance of the linear solves: ew, the second choice of Eisenstat and Walker (0.1 at first,
    /// then smaller as ‖F‖ falls), or a constant relative tolerance
    #[arg(long, value_name = "ew|TOL", default_value = "ew", help_heading = "Newton")]
    pub forcing: Forcing,
    /// Values that a parameter of the problem takes in turn. They replace the value of its key. Only cavity
    /// has such a parameter: re. Each solve starts from the solution for the previous value. If a solve
    /// fails, Krylith inserts values between the previous value and this one. [default: only the value of
    /// the key]
    #[arg(long, value_name = "P,…", value_delimiter = ',', help_heading = "Newton")]
    pub continuation: Vec<f64>,

    #[command(flatten)]
    pub flags: LinearFlags,

    /// Write x, of shape (nodes, components), as a NumPy array, a Matrix Market array or text, by the file's
    /// extension; - writes NumPy's format to standard output [default: x is not written]
    #[arg(long, value_name = "x.npy|x.mtx|x.txt|-", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub out: Option<PathBuf>,
    /// Write a JSON report with every step, linear iterations and times; - is standard output [default: none]
    #[arg(long, value_name = "r.json|-", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub report: Option<PathBuf>,
    /// Draw ‖F‖ and the linear iterations of each step as SVG or PNG, by the file's extension [default: none]
    #[arg(long, value_name = "r.svg|r.png", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub plot: Option<PathBuf>,
    /// Write the solution for ParaView; a problem with time steps writes NAME-1.vtu, NAME-2.vtu, … [default:
    /// none]
    #[arg(long, value_name = "x.vtu", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub vtu: Option<PathBuf>,
    /// Draw the solution in colours as SVG or PNG, by the file's extension [default: none]
    #[arg(long, value_name = "x.svg|x.png", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub picture: Option<PathBuf>,
    /// Print more: -v shows choices, -vv also the parts of the last linear set-up and the devices [default:
    /// off]
    #[arg(long, short, action = clap::ArgAction::Count, conflicts_with = "quiet", help_heading = "Output")]
    pub verbose: u8,
    /// Print only errors [default: off]
    #[arg(long, short, help_heading = "Output")]
    pub quiet: bool,
}

impl NewtonArgs {
    /// Options of the linear solves on the command line; the default method is FGMRES.
    pub fn linear(&self) -> Options {
        let given = &self.flags.0;
        Options { method: given.method.or(Some(MethodName::Fgmres)), ..given.clone() }
    }
}

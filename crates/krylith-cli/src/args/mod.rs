//! The command line: its names, help texts and defaults.

mod flags;
mod hints;
mod model;
mod newton;
mod solve;
mod spy;
mod steps;

pub use model::ModelArgs;
pub use newton::NewtonArgs;
pub use solve::SolveArgs;
pub use spy::SpyArgs;
pub use steps::StepsArgs;

use crate::failure::{DONE, Result};
use crate::options::{self, Ordering};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand, ValueHint};
use krylith_core::PrecondPrecision;
use std::ffi::OsString;
use std::path::PathBuf;

const EXAMPLES: &str = "\
Try it now, without any file of your own (unsteady Stokes flow in a duct, two implicit stages):
  krylith solve stokes:12x12x12 --plot convergence.svg

Then with your matrix:
  krylith solve A.mtx
  krylith solve A.npz --rhs b.npy --rtol 1e-8 --out x.npy --report report.json
  krylith solve A.mtx --block 4 --ordering segregated --precond jacobi

Exit codes: 0 converged · 1 not converged · 2 usage, input or output file ·
            3 memory, driver or device · 130 interrupted (--out still gets x)";

/// Solve the large sparse block systems of multiphysics simulation with Krylov methods.
#[derive(Debug, Parser)]
#[command(name = "krylith", version, after_help = EXAMPLES, max_term_width = 104)]
pub struct Cli {
    /// The subcommand.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Solve A x = b for a matrix from a file, or for a generated problem
    #[command(after_help = solve::EXAMPLES)]
    Solve(Box<SolveArgs>),
    /// Solve a nonlinear problem F(x) = 0 by an inexact Newton method (`krylith newton` lists the problems)
    Newton(Box<NewtonArgs>),
    /// Advance a linear system M u′ + L u = f in time by an implicit Runge-Kutta scheme
    #[command(after_help = steps::EXAMPLES)]
    Steps(Box<StepsArgs>),
    /// Write a generated system: matrices, right-hand side, system.toml and mesh.vtu
    Problem(ProblemArgs),
    /// Run a benchmark suite, such as the experiments of a paper, and compare Krylith with baselines
    #[command(disable_help_flag = true)]
    Bench(BenchArgs),
    /// Predict the time per iteration on many GPUs and hosts, for a method that you name or for the one that
    /// `krylith solve` would choose
    #[command(after_help = model::EXAMPLES)]
    Model(Box<ModelArgs>),
    /// Show the devices and libraries of this machine; with SYSTEM, also the properties of the system and the
    /// attempts that a solve would make
    Info(InfoArgs),
    /// Compile the GPU kernels of common sizes into the kernel cache, so that first solves do not wait for
    /// them
    Warm(WarmArgs),
    /// Draw the pattern of a matrix, its blocks, and its partition among ranks
    #[command(after_help = spy::EXAMPLES)]
    Spy(SpyArgs),
    /// Print a shell script for tab completion of this command
    #[command(after_help = COMPLETIONS)]
    Completions(CompletionsArgs),
    /// Print the manual as a man page: krylith man | man -l -
    Man(ManArgs),
}

/// `krylith bench`: arguments of another program.
#[derive(Debug, Args)]
pub struct BenchArgs {
    /// Suite and options of the program `krylith-bench`, which is installed separately; --help lists them
    #[arg(value_name = "SUITE …", trailing_var_arg = true, allow_hyphen_values = true)]
    pub words: Vec<OsString>,
}

/// `krylith warm`.
#[derive(Debug, Args)]
pub struct WarmArgs {
    /// Compute capability to compile for, such as 9.0 [default: those of the GPUs of this machine]
    #[arg(long, value_name = "MAJOR.MINOR", value_parser = capability)]
    pub arch: Option<(i32, i32)>,
    /// Precision in which preconditioners will compute: with f32 or bf16, their kernels are compiled too
    #[arg(long, value_name = "f64|f32|bf16", default_value_t)]
    pub precond_precision: PrecondPrecision,
    /// Number of threads [default: one for each core]
    #[arg(long, value_name = "N", value_parser = options::ranks)]
    pub threads: Option<usize>,
}

/// Reads a compute capability.
fn capability(text: &str) -> std::result::Result<(i32, i32), String> {
    let number = |text: &str| text.parse::<i32>().ok().filter(|n| (0..100).contains(n));
    let read = text.split_once('.').and_then(|(major, minor)| Some((number(major)?, number(minor)?)));
    read.filter(|(major, _)| *major >= 8).ok_or_else(|| {
        format!("`{text}` is not a compute capability of 8.0 or later; `krylith info` shows that of your GPU")
    })
}

const COMPLETIONS: &str = "\
Where to save the script:
  krylith completions bash > ~/.local/share/bash-completion/completions/krylith
  krylith completions zsh > ~/.zfunc/_krylith          (a folder of $fpath)
  krylith completions fish > ~/.config/fish/completions/krylith.fish";

/// `krylith completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL", ignore_case = true)]
    pub shell: clap_complete::Shell,
}

/// `krylith man`.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// The subcommand of the page [default: the whole command]
    #[arg(value_name = "COMMAND")]
    pub page: Option<String>,
    /// Write the pages of all subcommands into a folder, which is created if it is missing [default: none]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, conflicts_with = "page")]
    pub out: Option<PathBuf>,
}

/// `krylith problem`.
#[derive(Debug, Args)]
pub struct ProblemArgs {
    /// The problem: NAME:SIZE[,key=value…], see below; without it, all problems are listed
    #[arg(value_name = "SPEC")]
    pub spec: Option<String>,
    /// Folder to write to, required with SPEC; it is created if it is missing, and files of the same names
    /// are replaced
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, requires = "spec")]
    pub out: Option<PathBuf>,
    /// Format of the matrices: petsc (binary, compact) or mtx (Matrix Market text, readable everywhere);
    /// neither rounds a value
    #[arg(
        long,
        value_name = "petsc|mtx",
        default_value = "petsc",
        ignore_case = true,
        hide_possible_values = true
    )]
    pub format: MatrixFormat,
}

/// The file format in which `krylith problem` writes matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum MatrixFormat {
    #[allow(missing_docs)] // a comment would become a second help text
    Petsc,
    #[allow(missing_docs)]
    Mtx,
}

/// `krylith info`.
#[derive(Debug, Args)]
pub struct InfoArgs {
    /// A matrix file, a system.toml or a generated problem, as for `krylith solve` [default: show only the
    /// machine]
    #[arg(value_name = "SYSTEM")]
    pub system: Option<PathBuf>,
    /// Block size: the number of unknowns per node, 1 to 8 [default: that of the file, else found from the
    /// pattern]
    #[arg(long, value_name = "B", value_parser = options::block_size)]
    pub block: Option<usize>,
    /// Numbering of the matrix: interleaved, or segregated, which needs a block size [default: interleaved]
    #[arg(long, value_name = "interleaved|segregated")]
    pub ordering: Option<Ordering>,
    /// Fields of the system, as for `krylith solve`; their blocks are listed [default: those of the system]
    #[arg(long, value_name = "NAME=START:STOP,…", requires = "system")]
    pub fields: Option<String>,
    /// Compare the partitions of the system's block rows among P ranks [default: none]
    #[arg(long, value_name = "P", value_parser = options::ranks, requires = "system")]
    pub ranks: Option<usize>,
}

/// Terminal width below which the meaning of an option is printed below it.
const NARROW: usize = 90;

/// Returns the whole command line, with lists of problems.
pub fn command() -> clap::Command {
    let problems = |of| crate::problem::catalogue(of);
    // Two columns need a wide terminal; the manual has its own layout.
    let narrow = crate::term::columns().is_some_and(|columns| columns < NARROW);
    crate::term::fit_help(Cli::command())
        .mut_subcommands(|c| crate::term::fit_help(c.next_line_help(narrow)))
        .mut_subcommand("problem", |c| {
            c.after_help(problems(krylith_problems::catalogue()) + crate::problem::NEXT)
        })
        .mut_subcommand("newton", |c| {
            let examples = clap::Command::new("examples").after_help(newton::EXAMPLES);
            let examples = crate::term::fit_help(examples).get_after_help().map(ToString::to_string);
            let problems = problems(krylith_problems::nonlinear::catalogue());
            c.after_help(problems + "\n" + &examples.unwrap_or_default())
        })
}

/// Reads the command line. Help, version and usage errors are printed here, and their exit code is the error.
pub fn parse(mut words: Vec<OsString>) -> std::result::Result<Cli, u8> {
    let command = command();
    hints::any_case(&mut words, &command);
    let parsed = command.clone().try_get_matches_from(&words).and_then(|found| Cli::from_arg_matches(&found));
    parsed.map_err(|e| crate::output::of_clap(&hints::with_hint(e, &words, &command)))
}

/// Prints the help of `krylith` without arguments.
pub fn print_help() -> Result<u8> {
    crate::output::print(&command().render_help().to_string());
    Ok(DONE)
}

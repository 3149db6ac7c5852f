//! The arguments of `krylith solve`.

use super::flags::SolveFlags;
use crate::options::{self, NearNull, Null, Ordering, Rhs};
use clap::{Args, ValueHint};
use std::path::PathBuf;

pub(super) const EXAMPLES: &str = "\
Examples:
  krylith solve A.mtx                                    all defaults, right-hand side of ones
  krylith solve A.npz --rhs b.npy --out x.npy            SciPy in, NumPy out
  krylith solve A.mtx --block 4 --ordering segregated    u1…un v1…vn w1…wn p1…pn
  krylith solve system.toml --report r.json --plot r.svg
  krylith solve stokes:16x16x16,scheme=radau-iia-2,tau=0.125

The solve stops when ‖b − A x‖₂ ≤ max(rtol·‖b‖₂, atol), where A and b are not scaled.
A system.toml may hold defaults for these options in its section [solver], outputs included.

Exit codes: 0 converged · 1 not converged, the outcome is named on stderr ·
            2 usage, input or output file · 3 memory, driver or device ·
            130 interrupted, --out gets the best x so far";

/// `krylith solve`.
#[derive(Debug, Args)]
pub struct SolveArgs {
    /// System to solve: a matrix file, a system.toml, or a generated problem such as
    /// stokes:16x16x16,tau=0.125 (`krylith problem --help` lists them). Matrix files: Matrix Market (.mtx,
    /// .mtx.gz), SciPy (.npz), PETSc binary, Harwell–Boeing and Rutherford–Boeing (.rua, .rsa, .rb, .hb),
    /// MATLAB (.mat)
    #[arg(value_name = "SYSTEM")]
    pub system: PathBuf,

    /// Right-hand side b: a file (.npy, .mtx, PETSc Vec, MATLAB .mat, text), ones, zeros, or random numbers
    /// in (−1, 1) from a SEED (0 if it is not given). For N unknowns, an array of shape (N, k) is k
    /// right-hand sides, solved one after the other with one set-up. For a Kronecker system of s stages,
    /// shape (N, s) is one right-hand side, where N is the number of rows of M. [default: that of the
    /// system, else ones]
    #[arg(long, value_name = "FILE|ones|zeros|random[:SEED]", value_parser = options::file_or_word::<Rhs>(),
        help_heading = "System")]
    pub rhs: Option<Rhs>,
    /// Initial guess, of the shape of b; for several right-hand sides, a single vector serves for all of them
    /// [default: zeros]
    #[arg(long, value_name = "FILE", help_heading = "System")]
    pub x0: Option<PathBuf>,
    /// Block size: the number of unknowns per node, 1 to 8 [default: that of the file, else found from the
    /// pattern]
    #[arg(long, value_name = "B", value_parser = options::block_size, help_heading = "System")]
    pub block: Option<usize>,
    /// Numbering of the matrix and the vectors: interleaved (u1 v1 p1 u2 v2 p2 …), or segregated
    /// (u1 u2 … v1 v2 … p1 p2 …), which needs a block size. x has the same numbering. [default: interleaved]
    #[arg(long, value_name = "interleaved|segregated", help_heading = "System")]
    pub ordering: Option<Ordering>,
    /// Null space of a singular consistent system, such as enclosed flow, a free body or a pure Neumann
    /// problem. constant tests vectors that are one in a component of every node, or in all components, and
    /// zero elsewhere. It takes those that are null vectors. FILE has one vector per column. [default: the
    /// constant null vectors that Krylith finds]
    #[arg(long, value_name = "constant|FILE", value_parser = options::file_or_word::<Null>(),
        help_heading = "System")]
    pub nullspace: Option<Null>,
    /// Near-null vectors, from which the preconditioners amg and coarse build their coarse levels. rigid
    /// computes the rigid body modes of an elastic body from the coordinates of the nodes. FILE has one
    /// vector per column. [default: none]
    #[arg(long, value_name = "rigid|FILE", value_parser = options::file_or_word::<NearNull>(),
        help_heading = "System")]
    pub near_nullspace: Option<NearNull>,
    /// Fields of the system, for preconditioners such as split and cpr. START:STOP:STEP are the unknowns of a
    /// field, counted from 0, as in a slice of Python; + joins slices. A number in brackets is the block size
    /// of the field: u[3]=0::4+1::4+2::4,p=3::4 [default: those of the system, else none]
    #[arg(long, value_name = "NAME=START:STOP,…", help_heading = "System")]
    pub fields: Option<String>,
    /// Matrix that a preconditioner uses by NAME, such as Mp in split(u: amg, p: jacobi; S=Mp). Repeat the
    /// option for several matrices. [default: those of the system, else none]
    #[arg(long, value_name = "NAME=FILE", value_parser = options::named_file, help_heading = "System")]
    pub matrix: Vec<(String, PathBuf)>,
    #[command(flatten)]
    pub flags: SolveFlags,

    /// Write x as a NumPy array, a Matrix Market array or text, by the file's extension; - writes NumPy's
    /// format to standard output. The shape is (N,), (N, k) for k right-hand sides, or (N, stages) for a
    /// Kronecker system. [default: x is not written]
    #[arg(long, value_name = "x.npy|x.mtx|x.txt|-", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub out: Option<PathBuf>,
    /// Write a JSON report with choices, outcome, residuals and times; - is standard output [default: none]
    #[arg(long, value_name = "r.json|-", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub report: Option<PathBuf>,
    /// Draw the residuals as SVG or PNG, by the file's extension [default: none]
    #[arg(long, value_name = "r.svg|r.png", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub plot: Option<PathBuf>,
    /// Draw a section through the solution of a generated problem in colours [default: none]
    #[arg(long, value_name = "u.svg|u.png", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub picture: Option<PathBuf>,
    /// Write x for ParaView, on the mesh of a generated problem or at the coordinates of a system.toml
    /// [default: none]
    #[arg(long, value_name = "x.vtu", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub vtu: Option<PathBuf>,
    /// Print more: -v shows choices and events, -vv also the parts of the set-up and the devices [default:
    /// off]
    #[arg(long, short, action = clap::ArgAction::Count, conflicts_with = "quiet", help_heading = "Output")]
    pub verbose: u8,
    /// Print only errors [default: off]
    #[arg(long, short, help_heading = "Output")]
    pub quiet: bool,
}

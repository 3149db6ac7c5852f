//! The arguments of `krylith solve`.

use super::MachineArgs;
use crate::options::{self, NearNull, Null, Ordering, Rhs};
use clap::{Args, ValueHint};
use krylith_core::Options;
use krylith_core::matching::MatchingChoice;
use krylith_core::matrix::ZerosChoice;
use krylith_core::method::{CgForm, Orthogonalization, Reductions};
use krylith_core::operator::Format;
use krylith_core::options::tolerance;
use krylith_core::precond::PrecondSpec;
use std::path::PathBuf;

pub(super) const EXAMPLES: &str = "\
Examples:
  krylith solve A.mtx                                    all defaults, right-hand side of ones
  krylith solve A.npz --rhs b.npy --out x.npy            SciPy in, NumPy out
  krylith solve A.mtx --block 4 --ordering segregated    u1…un v1…vn w1…wn p1…pn
  krylith solve system.toml --report r.json --plot r.svg
  krylith solve stokes:16x16x16,scheme=radau-iia-2,tau=0.125

The solve stops when ‖b − A x‖ ≤ max(rtol·‖b‖, atol), in the 2-norm of the system as given.
A system.toml may hold defaults for these options in its section [solver], outputs included.

Exit codes: 0 converged · 1 not converged, the outcome is named on stderr ·
            2 usage, input or output file · 3 memory, driver or device ·
            130 interrupted, the best x so far is written";

/// `krylith solve`.
#[derive(Debug, Args)]
pub struct SolveArgs {
    /// What to solve: a matrix file (Matrix Market .mtx, .mtx.gz; SciPy .npz; PETSc binary; Harwell–Boeing or
    /// Rutherford–Boeing .rua, .rsa, .rb, .hb; MATLAB .mat), a system.toml, or a generated problem NAME:SIZE[,key=value…]
    /// such as stokes:16x16x16,tau=0.125 (`krylith problem --help` lists them)
    #[arg(value_name = "SYSTEM")]
    pub system: PathBuf,

    /// Right-hand side b: a file (.npy, .mtx, PETSc Vec, MATLAB .mat, text), ones, zeros, or random[:SEED] in (−1, 1), seed 0
    /// where none is given; shape (N, k) is k right-hand sides, solved one after the other with one set-up [default: the
    /// system's own, else ones]
    #[arg(long, value_name = "FILE|ones|zeros|random[:SEED]", value_parser = options::file_or_word::<Rhs>(), help_heading = "System")]
    pub rhs: Option<Rhs>,
    /// First guess, of the same shape as b, or one for all of several [default: zeros]
    #[arg(long, value_name = "FILE", help_heading = "System")]
    pub x0: Option<PathBuf>,
    /// Unknowns of one node, 1 to 8: rows are taken B at a time [default: what the file says, else the largest that
    /// adds at most 20 % stored zeros, or 75 % if the rows of a node have the same neighbours]
    #[arg(long, value_name = "B", value_parser = options::block_size, help_heading = "System")]
    pub block: Option<usize>,
    /// Numbering of your matrix and vectors: interleaved (u1 v1 p1 u2 v2 p2 …) or segregated (u1 u2 … v1 v2 … p1 p2 …,
    /// needs a block size); x comes back in the same [default: interleaved]
    #[arg(long, value_name = "interleaved|segregated", help_heading = "System")]
    pub ordering: Option<Ordering>,
    /// Null space of a singular consistent system (enclosed flow, free body, pure Neumann): constant finds the fields
    /// whose constant A maps to zero; FILE holds one vector a column [default: none, the system is regular]
    #[arg(long, value_name = "constant|FILE", value_parser = options::file_or_word::<Null>(), help_heading = "System")]
    pub nullspace: Option<Null>,
    /// Vectors that the matrix maps nearly to zero, for coarse levels (amg, coarse), which then have an unknown for each at every node: rigid are
    /// the rigid motions of an elastic body, from the nodes' coordinates; FILE holds one vector a column [default: none]
    #[arg(long, value_name = "rigid|FILE", value_parser = options::file_or_word::<NearNull>(), help_heading = "System")]
    pub near_nullspace: Option<NearNull>,
    /// Scale rows and columns before the preconditioner is built; residuals and tolerances stay those of the system as
    /// given [default: off, unless the preconditioner is auto and entries differ by more than 1e6]
    #[arg(long, help_heading = "System")]
    pub equilibrate: bool,
    /// Match rows with columns, so that the preconditioner finds a large diagonal: auto, on or off; residuals and tolerances stay those of
    /// the system as given [default: auto, which is on where the preconditioner is auto and diagonal entries are zero or small]
    #[arg(long, value_name = "auto|on|off", help_heading = "System")]
    pub matching: Option<MatchingChoice>,
    /// Zeros that the matrix stores: auto drops those off the diagonal where they are more than a tenth of its entries (of blocks where
    /// whole blocks are zero), keep keeps them, drop drops them [default: auto]
    #[arg(long, value_name = "auto|keep|drop", help_heading = "System")]
    pub zeros: Option<ZerosChoice>,

    #[command(flatten)]
    pub machine: MachineArgs,
    /// How a product of scalar rows is stored: csr (by rows), dia (by diagonals, half of them where the matrix is symmetric) or
    /// dia-full (all of them) [default: auto, which is dia where the entries lie on at most 32 diagonals and fill most of them]
    #[arg(long, value_name = "auto|csr|dia|dia-full", help_heading = "Machine")]
    pub format: Option<Format>,

    /// Krylov method: auto, gmres, fgmres (for preconditioners that vary: a second basis), bicgstab (short recurrences: eleven vectors, two products an iteration, a residual that
    /// may rise and fall), cg (for symmetric definite systems: eight vectors, one product), or cbcg (cg with two reductions in
    /// s products, for many ranks: 4s + 7 vectors; cbcg:s=12,basis=chebyshev|monomial). Options of a method may follow its
    /// name, as gmres:restart=50 [default: auto, which is cg where the system is symmetric, then bicgstab, then gmres with
    /// longer restarts; the method whose options are named]
    #[arg(long, value_name = "auto|NAME[:key=value,…]", value_parser = options::method, help_heading = "Method")]
    pub method: Option<Options>,
    /// Basis vectors that GMRES keeps before it restarts; more memory, fewer iterations; refused with bicgstab, which
    /// restarts only when its recurrence ends [default: 30, and more where a solve needs it]
    #[arg(long, value_name = "M", value_parser = options::restart, help_heading = "Method")]
    pub restart: Option<usize>,
    /// How GMRES makes a new basis vector orthogonal: lowsync (one reduction an iteration), cgs2 (three) or mgs (one a
    /// vector) [default: lowsync]
    #[arg(long, value_name = "lowsync|cgs2|mgs", help_heading = "Method")]
    pub orthogonalization: Option<Orthogonalization>,
    /// How BiCGSTAB sums over threads, GPUs and ranks: merged (two reductions an iteration) or classical (three)
    /// [default: merged]
    #[arg(long, value_name = "merged|classical", help_heading = "Method")]
    pub reductions: Option<Reductions>,
    /// How CG forms its recurrence: textbook (two reductions an iteration), one-reduction, flexible (for preconditioners
    /// that vary), or pipelined (one reduction behind the next product) [default: textbook]
    #[arg(long, value_name = "textbook|one-reduction|flexible|pipelined", help_heading = "Method")]
    pub form: Option<CgForm>,
    /// Preconditioner, NAME[:key=value,…]: auto (ildu, then stronger ones if it fails), none, jacobi (inverts each
    /// node's diagonal block; jacobi:block=1 inverts single diagonal entries), block-jacobi (IC(0) or ILU(0) of the tiles of a
    /// structured grid with a 7-point stencil; keys tile=XxYxZ|whole|slab, factor=ic0|ilu0), ildu (incomplete factors of subdomains; keys
    /// fill=K, rows=N, cut=NAME of auto, whole, runs, geometric, curve, multilevel, graph and two-level, shift=S), stage (the same for
    /// each stage of a Kronecker system, one after the other), ras (restricted additive Schwarz: ILU(K) of subdomains that overlap,
    /// randomized; keys overlap=D, parts=N, fill=K, order=natural|rcm, factor=random|exact, eta=N, solve=random|jacobi|exact, gamma=N,
    /// fdp=N, deterministic); amg (algebraic multigrid; keys cycle=v|w|k,
    /// coarsen=classical|aggregation|smoothed, strength=T, truncate=N, aggressive=N, smoother=jacobi|chebyshev|ildu, sweeps=N, degree=N,
    /// coarsest=N, levels=N, store=f64|f32), coarse (the same keys: coarse levels without smoothing on the finest, for compositions); "A+B" adds
    /// two, "A then B" applies B to the residual that A leaves, "symmetric(A then B)" goes back by A, so that cg can take it [default: auto]
    #[arg(long, value_name = "auto|NAME[:key=value,…]", help_heading = "Method")]
    pub precond: Option<PrecondSpec>,

    /// Relative tolerance: stop when ‖r‖ ≤ rtol·‖b‖ [default: 1e-6]
    #[arg(long, value_name = "TOL", value_parser = tolerance, allow_negative_numbers = true, help_heading = "When to stop")]
    pub rtol: Option<f64>,
    /// Absolute tolerance: stop when ‖r‖ ≤ atol, if that comes before --rtol [default: 0]
    #[arg(long, value_name = "TOL", value_parser = tolerance, allow_negative_numbers = true, help_heading = "When to stop")]
    pub atol: Option<f64>,
    /// Most iterations [default: 10000, and 20 √n for n unknowns where that is more]
    #[arg(long, value_name = "N", value_parser = options::max_iters, allow_negative_numbers = true, help_heading = "When to stop")]
    pub max_iters: Option<usize>,

    /// Write x as a NumPy array, a Matrix Market array or text, by the name's ending: shape (N,), (N, stages) for a Kronecker system,
    /// column k being stage k, or (N, k) for k right-hand sides; - is standard output, in NumPy's format [default: x is not written]
    #[arg(long, value_name = "x.npy|x.mtx|x.txt|-", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub out: Option<PathBuf>,
    /// Write what was done as JSON: choices, outcome, every residual, times; - is standard output [default: none]
    #[arg(long, value_name = "r.json|-", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub report: Option<PathBuf>,
    /// Draw the residuals, as SVG or PNG by the name's ending [default: none]
    #[arg(long, value_name = "r.svg|r.png", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub plot: Option<PathBuf>,
    /// Draw the solution of a generated problem in colours, a section through its grid [default: none]
    #[arg(long, value_name = "u.svg|u.png", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub picture: Option<PathBuf>,
    /// Write x for ParaView, on the mesh of a generated problem or at the `coordinates` of a system.toml [default: none]
    #[arg(long, value_name = "x.vtu", value_hint = ValueHint::FilePath, help_heading = "Output")]
    pub vtu: Option<PathBuf>,
    /// Say more: -v what happened and what was chosen, -vv the parts of the set-up and the devices too [default: off]
    #[arg(long, short, action = clap::ArgAction::Count, conflicts_with = "quiet", help_heading = "Output")]
    pub verbose: u8,
    /// Print errors and nothing else [default: off]
    #[arg(long, short, help_heading = "Output")]
    pub quiet: bool,
}

impl SolveArgs {
    /// What the command line says of the solve.
    pub fn options(&self) -> Options {
        let method = self.method.clone().unwrap_or_default();
        Options {
            method: method.method,
            restart: self.restart.or(method.restart),
            orthogonalization: self.orthogonalization.or(method.orthogonalization),
            reductions: self.reductions.or(method.reductions),
            form: self.form.or(method.form),
            s: method.s,
            basis: method.basis,
            precond: self.precond.clone(),
            rtol: self.rtol,
            atol: self.atol,
            max_iters: self.max_iters,
            format: self.format,
            equilibrate: self.equilibrate.then_some(true),
            matching: self.matching,
            zeros: self.zeros,
            ..self.machine.options()
        }
    }
}

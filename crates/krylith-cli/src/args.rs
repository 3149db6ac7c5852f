//! The command line: names, help texts and defaults.

use crate::failure::{DONE, Result};
use crate::options::{self, NearNull, Null, Ordering, Rhs};
use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use krylith::matching::MatchingChoice;
use krylith::method::{CgForm, MethodName, Orthogonalization, Reductions};
use krylith::newton::Forcing;
use krylith::operator::Format;
use krylith::options::tolerance;
use krylith::partition::{PartitionSpec, Partitioner};
use krylith::precond::PrecondSpec;
use krylith::{DeviceSpec, Options, Store};
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
            3 memory, driver or device · 130 interrupted (the best x so far is written)";

const SOLVE_EXAMPLES: &str = "\
Examples:
  krylith solve A.mtx                                    all defaults, right-hand side of ones
  krylith solve A.npz --rhs b.npy --out x.npy            SciPy in, NumPy out
  krylith solve A.mtx --block 4 --ordering segregated    u1…un v1…vn w1…wn p1…pn
  krylith solve system.toml --report r.json --plot r.svg
  krylith solve stokes:16x16x16,scheme=radau-iia-2,tau=0.125

The solve stops when ‖b − A x‖ ≤ max(rtol·‖b‖, atol), in the 2-norm of the system as given.
A system.toml may hold defaults for these options in its section [solver].

Exit codes: 0 converged · 1 not converged, the outcome is named on stderr ·
            2 usage, input or output file · 3 memory, driver or device ·
            130 interrupted, the best x so far is written";

const NEWTON_EXAMPLES: &str = "\
Examples:
  krylith newton cavity:64x64,re=100 --plot steps.svg --picture speed.svg
  krylith newton cavity:600x600,re=1000 --continuation 100,400,1000 --vtu cavity.vtu
  krylith newton cavity:128x128 --method fgmres:restart=100 --forcing 1e-4 --report r.json

It stops when ‖F(x)‖ ≤ max(newton-rtol·‖F(x₀)‖, newton-atol), in each time step and for each value of --continuation.
Exit codes: 0 converged · 1 not converged, the outcome is named on stderr ·
            2 usage, input or output file · 3 memory, driver or device ·
            130 interrupted, the x of the last step is written";

const BENCH_EXAMPLES: &str = "\
Examples:
  krylith bench okp --device cuda --full --out okp               one GPU beside cuBLAS and cuSPARSE
  krylith bench okp --device cuda:0,1,2,3 --out okp4             GMRES(30) on 1, 2 and 4 GPUs
  krylith bench ildu0 --device cuda --out ildu0                  triangular solves beside cuSPARSE and the paper's kernels
  krylith bench spmv --device cuda:0,1 --out spmv                products of 24 matrices on one GPU and on both
  krylith bench spmv --device cpu --scale 0.004 --only FullChip  one of them, small, on this CPU
  krylith bench links --device cuda:0,1,2,3 --out machine.toml   what `krylith model` needs to know of these GPUs";

const MODEL_EXAMPLES: &str = "\
Examples:
  krylith bench links --device cuda:0,1,2,3 --out machine.toml    measures the machine, without any solve on several GPUs
  krylith model stokes:53x53x54 --machine machine.toml --gpus 1,2,4 --out predicted
  krylith bench okp --device cuda:0,1,2,3 --out okp
  krylith model laplace:128x128x128 --precond amg --machine machine.toml    coarse levels: bytes, time of an iteration
  krylith model --compare predicted/prediction.json okp/okp.json    exit code 1 beyond 15 %
  krylith model --spmv spmv/spmv.json --machine machine.toml --out predicted
  krylith model --weak 151686 --to 8192 --machine machine.toml --machine bench/machines/jupiter.toml --out scaling
  krylith model --strong 1e9 --to 8192 --machine machine.toml --out scaling

Times are those of an iteration of GMRES(M) in f64 without a preconditioner, one reduction an iteration.";

/// Solve the large sparse block systems of multiphysics simulation with Krylov methods.
#[derive(Debug, Parser)]
#[command(name = "krylith", version, after_help = EXAMPLES, max_term_width = 104)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Option<Command>,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Solve A x = b for a matrix from a file, or for a generated problem
    #[command(after_help = SOLVE_EXAMPLES)]
    Solve(Box<SolveArgs>),
    /// Solve a nonlinear problem F(x) = 0 by an inexact Newton method: NAME:SIZE[,key=value…], see below
    Newton(Box<NewtonArgs>),
    /// Write a generated system: matrices, right-hand side, system.toml and mesh.vtu
    Problem(ProblemArgs),
    /// Repeat a paper's experiment on this machine, beside the vendor's library and the paper's own algorithm
    #[command(after_help = BENCH_EXAMPLES)]
    Bench(Box<BenchArgs>),
    /// Predict the time of a GMRES iteration on many GPUs and hosts from a machine file
    #[command(after_help = MODEL_EXAMPLES)]
    Model(Box<ModelArgs>),
    /// Show this machine as Krylith sees it; with SYSTEM also what is worth knowing before a solve
    Info(InfoArgs),
}

/// `krylith solve`.
#[derive(Debug, Args)]
pub struct SolveArgs {
    /// What to solve: a matrix file (Matrix Market .mtx, .mtx.gz; SciPy .npz; PETSc binary; Harwell–Boeing or
    /// Rutherford–Boeing .rua, .rsa, .rb, .hb; MATLAB .mat), a system.toml, or a generated problem NAME:SIZE[,key=value…]
    /// such as stokes:16x16x16,tau=0.125 (`krylith problem --help` lists them)
    #[arg(value_name = "SYSTEM")]
    pub system: PathBuf,

    /// Right-hand side b: a file (.npy, .mtx, PETSc Vec, MATLAB .mat, text), ones, or random[:SEED] in (−1, 1), seed 0
    /// where none is given [default: the system's own, else ones]
    #[arg(long, value_name = "FILE|ones|random[:SEED]", value_parser = options::file_or_word::<Rhs>(), help_heading = "System")]
    pub rhs: Option<Rhs>,
    /// First guess, of the same shape as b [default: zeros]
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

    #[command(flatten)]
    pub machine: MachineArgs,
    /// How a product of scalar rows is stored: csr (by rows), dia (by diagonals, half of them where the matrix is symmetric) or
    /// dia-full (all of them) [default: auto, which is dia where the entries lie on at most 32 diagonals and fill most of them]
    #[arg(long, value_name = "auto|csr|dia|dia-full", help_heading = "Machine")]
    pub format: Option<Format>,

    /// Krylov method: auto, gmres, fgmres (for preconditioners that vary: a second basis), bicgstab (short recurrences: ten vectors, two products an iteration, a residual that
    /// may rise and fall), cg (for symmetric definite systems: seven vectors, one product), or cbcg (cg with two reductions in
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
    /// fill=K, rows=N, cut=auto|whole|runs|geometric|curve|multilevel|graph|two-level, shift=S), stage (the same for
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
    /// Most iterations [default: 10000]
    #[arg(long, value_name = "N", value_parser = options::max_iters, allow_negative_numbers = true, help_heading = "When to stop")]
    pub max_iters: Option<usize>,

    /// Write x as a NumPy array: shape (N,), or (N, stages) for a Kronecker system, column k being stage k [default:
    /// x is not written]
    #[arg(long, value_name = "x.npy", help_heading = "Output")]
    pub out: Option<PathBuf>,
    /// Write what was done as JSON: choices, outcome, every residual, times [default: none]
    #[arg(long, value_name = "r.json", help_heading = "Output")]
    pub report: Option<PathBuf>,
    /// Draw the residuals as a picture that any browser shows [default: none]
    #[arg(long, value_name = "r.svg", help_heading = "Output")]
    pub plot: Option<PathBuf>,
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
            ..self.machine.options()
        }
    }
}

/// Where a solve runs, and in what precision it stores.
#[derive(Debug, Args)]
pub struct MachineArgs {
    /// Where to run: auto, cpu, or cuda[:0,1,…] for GPUs by number, several of which solve together; under mpirun each
    /// rank takes one of them [default: auto, the first GPU if one can be used and an estimate says that it is sooner]
    #[arg(long, value_name = "auto|cpu|cuda[:0,1,…]", help_heading = "Machine")]
    pub device: Option<DeviceSpec>,
    /// How block rows are given to several GPUs or ranks: rows or nonzeros (runs of rows), geometric,
    /// multilevel (parts of the graph), graph (the same by METIS)
    /// [default: auto, runs of rows unless the graph leaves much less to exchange]
    #[arg(long, value_name = "auto|rows|nonzeros|geometric|multilevel|graph", help_heading = "Machine")]
    pub partition: Option<PartitionSpec>,
    /// Threads on the CPU [default: one a core]
    #[arg(long, value_name = "N", value_parser = options::threads, help_heading = "Machine")]
    pub threads: Option<usize>,
    /// Bitwise equal results from run to run [default: off; all but randomized sweeps of `ras` on a GPU are bitwise equal anyway]
    #[arg(long, help_heading = "Machine")]
    pub deterministic: bool,
    /// Precision in which matrix, preconditioner and basis are stored; arithmetic is f64, and so is the residual that
    /// counts [default: f64]
    #[arg(long, value_name = "f64|f32", help_heading = "Machine")]
    pub store: Option<Store>,
}

impl MachineArgs {
    /// What they say; nothing of the rest.
    fn options(&self) -> Options {
        Options {
            store: self.store,
            device: self.device.clone(),
            threads: self.threads,
            deterministic: self.deterministic.then_some(true),
            partition: self.partition,
            ..Options::default()
        }
    }
}

/// `krylith newton`.
#[derive(Debug, Args)]
pub struct NewtonArgs {
    /// The problem: NAME:SIZE[,key=value…], see below
    #[arg(value_name = "PROBLEM")]
    pub problem: String,

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
    pub machine: MachineArgs,

    /// Krylov method of linear solves, as of `krylith solve` [default: fgmres]
    #[arg(long, value_name = "auto|NAME[:key=value,…]", value_parser = options::method, help_heading = "Linear solves")]
    pub method: Option<Options>,
    /// Basis vectors that GMRES and FGMRES keep before they restart [default: 30, and more where a solve needs it]
    #[arg(long, value_name = "M", value_parser = options::restart, help_heading = "Linear solves")]
    pub restart: Option<usize>,
    /// Preconditioner, as of `krylith solve` [default: auto]
    #[arg(long, value_name = "auto|NAME[:key=value,…]", help_heading = "Linear solves")]
    pub precond: Option<PrecondSpec>,
    /// Most iterations of a linear solve [default: 10000]
    #[arg(long, value_name = "N", value_parser = options::max_iters, allow_negative_numbers = true, help_heading = "Linear solves")]
    pub max_iters: Option<usize>,

    /// Write x as a NumPy array of shape (nodes, components) [default: x is not written]
    #[arg(long, value_name = "x.npy", help_heading = "Output")]
    pub out: Option<PathBuf>,
    /// Write what was done as JSON: every step, linear iterations, times [default: none]
    #[arg(long, value_name = "r.json", help_heading = "Output")]
    pub report: Option<PathBuf>,
    /// Draw ‖F‖ and the linear iterations of each step [default: none]
    #[arg(long, value_name = "r.svg", help_heading = "Output")]
    pub plot: Option<PathBuf>,
    /// Write the solution for ParaView; of a problem with time steps one file each, NAME-1.vtu, NAME-2.vtu, … [default: none]
    #[arg(long, value_name = "x.vtu", help_heading = "Output")]
    pub vtu: Option<PathBuf>,
    /// Draw the solution in colours [default: none]
    #[arg(long, value_name = "x.svg", help_heading = "Output")]
    pub picture: Option<PathBuf>,
    /// Print errors and nothing else [default: off]
    #[arg(long, short, help_heading = "Output")]
    pub quiet: bool,
}

impl NewtonArgs {
    /// What the command line says of linear solves; FGMRES where it names no method.
    pub fn linear(&self) -> Options {
        let method = self.method.clone().unwrap_or_default();
        Options {
            method: method.method.or(Some(MethodName::Fgmres)),
            restart: self.restart.or(method.restart),
            precond: self.precond.clone(),
            max_iters: self.max_iters,
            ..self.machine.options().or(&method)
        }
    }
}

/// `krylith problem`.
#[derive(Debug, Args)]
pub struct ProblemArgs {
    /// The problem: NAME:SIZE[,key=value…], see below
    #[arg(value_name = "SPEC")]
    pub spec: String,
    /// Folder to write to; it is made if it is missing, and files of the same names are replaced
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
    /// Format of the matrices: petsc (binary, compact) or mtx (Matrix Market text, readable everywhere); both are exact
    #[arg(long, value_name = "petsc|mtx", default_value = "petsc")]
    pub format: MatrixFormat,
}

/// How `krylith problem` writes matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum MatrixFormat {
    #[allow(missing_docs)] // a comment would become a second help text
    Petsc,
    #[allow(missing_docs)]
    Mtx,
}

/// `krylith bench`.
#[derive(Debug, Args)]
#[cfg_attr(not(feature = "bench"), allow(dead_code))]
pub struct BenchArgs {
    /// What to measure: okp, GMRES on Kronecker systems (product, orthogonalisation, whole solves); ildu0,
    /// triangular solves on subdomains and BiCGSTAB; cbcg, P-CG and P-CBCG on structured grids (kernels at the roofline, tiles,
    /// slow networks); ras, randomized Schwarz on linear systems of Newton steps; answer, everything from arrays to x, beside what a user would write;
    /// multilevel, hierarchies of coarse levels: set-up and solve, growth with size, new values, one core, several GPUs;
    /// spmv, products of 24 large sparse matrices on one device and several, and CG around them;
    /// links, what kernels and links of this machine's GPUs take, for `krylith model`
    #[arg(value_name = "SUITE")]
    pub suite: Suite,
    /// Where: auto, cpu, cuda[:N] or cuda:N,M,… for scaling over GPUs [default: auto, the first GPU if one works]
    #[arg(long, value_name = "auto|cpu|cuda[:N,…]")]
    pub device: Option<DeviceSpec>,
    /// Factor on the number of mesh nodes or rows; 1 is the paper's size [default: 1 on a GPU; on a CPU 1/8, 1/64 for ildu0,
    /// cbcg, ras, answer and multilevel, and 1/256 for spmv]
    #[arg(long, value_name = "FACTOR")]
    pub scale: Option<f64>,
    /// Threads on a CPU [default: all cores]
    #[arg(long, value_name = "N")]
    pub threads: Option<usize>,
    /// okp: every block size from 1 to 8 with 1 to 4 stages too; ildu0: the paper's second Laplacian too;
    /// cbcg: every tile and every s; ras: every number of sweeps of the paper's figures; multilevel: every combination of
    /// coarsening, cycle, smoother and precision, and the largest size
    #[arg(long)]
    pub full: bool,
    /// okp on several GPUs: strong (the paper's size), weak (that size on each GPU), large (8 times that size) [default:
    /// all three]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub series: Vec<String>,
    /// cbcg: what to measure, of kernels, solves, vendor, scaling (on several GPUs) and network (on a CPU); spmv: of single,
    /// multi, cg and sweep; ras: of cavity600, cavity1200, ventricle, artery, repeat and scaling (on several GPUs), and on each problem of
    /// ours, sweeps, vendor and one-core [default: all]
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub parts: Option<Vec<String>>,
    /// spmv: matrices by their names in the paper's table, or generated problems NAME:SIZE [default: the table]
    #[arg(long, value_name = "NAME", num_args = 1..)]
    pub only: Vec<String>,
    /// spmv: rows and columns of look-alikes in a random order
    #[arg(long)]
    pub permuted: bool,
    /// spmv: folder of NAME.mtx, which are taken instead of look-alikes
    #[arg(long, value_name = "DIR")]
    pub matrices: Option<PathBuf>,
    /// spmv: iterations of CG [default: 1000 on a GPU, 50 on a CPU]
    #[arg(long, value_name = "N", value_parser = options::restart)]
    pub iterations: Option<usize>,
    /// spmv: ranks on a CPU, which are threads [default: 2]
    #[arg(long, value_name = "N", value_parser = options::restart)]
    pub ranks: Option<usize>,
    /// spmv: seconds that a matrix may take [default: 300]
    #[arg(long, value_name = "SECONDS", value_parser = options::restart)]
    pub limit: Option<usize>,
    /// spmv: all matrices in this process; with --out each has one of its own otherwise
    #[arg(long)]
    pub in_process: bool,
    /// okp, ildu0, cbcg: number of whole solves; the median of their times counts [default: 20 on a GPU, ildu0 and cbcg 5; 3 on a
    /// CPU]; ras: runs whose mean counts [default: 3]
    #[arg(long, value_name = "N", value_parser = options::restart)]
    pub solves: Option<usize>,
    /// answer, and the table of multilevel: what to solve: names of the table of answer, `hard` for small hard matrices, generated problems NAME:SIZE, matrix files, folders of them [default: the
    /// table]; cbcg: generated problems on a grid [default: poisson-multiphase]
    #[arg(long, value_name = "SYSTEM", num_args = 1..)]
    pub systems: Vec<String>,
    /// answer, multilevel: preconditioners, or options such as "method=cg precond=amg"; auto asks for nothing [default: none; multilevel a list]
    #[arg(long, value_name = "WAY", num_args = 1..)]
    pub ways: Vec<String>,
    /// answer, multilevel, spmv: times that each way is taken; the median counts [default: 5, spmv 20]; ras: independent runs of one setting
    /// [default: 100]
    #[arg(long, value_name = "N", value_parser = options::restart)]
    pub rounds: Option<usize>,
    /// answer: from arrays in the GPU's memory too
    #[arg(long)]
    pub from_device: bool,
    /// links: a machine file whose network and GPUs a host are taken over as estimates [default: one host is all there is]
    #[arg(long, value_name = "FILE.toml")]
    pub network: Option<PathBuf>,
    /// links: few samples, to see whether it runs
    #[arg(long)]
    pub quick: bool,
    /// Folder for tables (.txt, of answer .md), raw data (.json) and a page with plots (.html), made if it is missing; of links
    /// the machine file (.toml)
    #[arg(long, value_name = "DIR|FILE.toml")]
    pub out: Option<PathBuf>,
}

/// The suites.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Suite {
    #[allow(missing_docs)] // a comment would become a second help text
    Okp,
    #[allow(missing_docs)]
    Ildu0,
    #[allow(missing_docs)]
    Answer,
    #[allow(missing_docs)]
    Cbcg,
    #[allow(missing_docs)]
    Multilevel,
    #[allow(missing_docs)]
    Ras,
    #[allow(missing_docs)]
    Spmv,
    #[allow(missing_docs)]
    Links,
}

/// `krylith model`.
#[derive(Debug, Args)]
#[cfg_attr(not(feature = "bench"), allow(dead_code))]
pub struct ModelArgs {
    /// A matrix file, a system.toml or a generated problem, as for `krylith solve`; at most 4 stages
    #[arg(value_name = "SYSTEM")]
    pub system: Option<PathBuf>,
    /// What kernels and links take: written by `krylith bench links`; several for --weak and --strong
    #[arg(long, value_name = "FILE.toml")]
    pub machine: Vec<PathBuf>,
    /// Numbers of GPUs of SYSTEM, --spmv or --poisson [default: 1,2,4; of --spmv 1 to 64; of --poisson what others have measured, else those]
    #[arg(long, value_name = "P,…", value_delimiter = ',', value_parser = options::ranks, conflicts_with_all = ["weak", "strong", "compare"])]
    pub gpus: Vec<usize>,
    /// Hosts that the GPUs are spread over evenly [default: as few as the machine's GPUs a host allow]
    #[arg(long, value_name = "H", value_parser = options::ranks, requires = "system")]
    pub hosts: Option<usize>,
    /// Who owns which block rows: rows, nonzeros, geometric, multilevel or graph [default: rows]
    #[arg(long, value_name = "NAME", value_parser = options::partitioner, requires = "system")]
    pub partition: Option<Partitioner>,
    /// Unknowns of one node, 1 to 8 [default: what the file says]
    #[arg(long, value_name = "B", value_parser = options::block_size, requires = "system")]
    pub block: Option<usize>,
    /// Basis vectors that GMRES keeps before it restarts [default: 30]
    #[arg(long, value_name = "M", value_parser = options::restart, requires = "system")]
    pub restart: Option<usize>,
    /// Coarse levels instead: what a set-up and a cycle of amg or coarse (with keys as for `krylith solve`) move for SYSTEM, the time of an
    /// iteration of CG on one GPU, and that of a cycle on this host, predicted and measured
    #[arg(long, value_name = "amg[:key=value,…]", requires = "system", conflicts_with_all = ["gpus", "hosts", "partition", "restart"])]
    pub precond: Option<PrecondSpec>,
    /// Weak scaling: NODES of the Stokes duct (b = 4, s = 2) on every GPU
    #[arg(long, value_name = "NODES", conflicts_with_all = ["system", "compare"])]
    pub weak: Option<f64>,
    /// Strong scaling: UNKNOWNS of the Stokes duct shared by all GPUs
    #[arg(long, value_name = "UNKNOWNS", conflicts_with_all = ["system", "compare"])]
    pub strong: Option<f64>,
    /// P-CG and P-CBCG of a 7-point Poisson equation on a grid NXxNYxNZ cut into boxes, with and without overlap, and the error
    /// against what others have published of this machine (bench/machines/summit.toml, abci.toml: 1280x1280x4608)
    #[arg(long, value_name = "NXxNYxNZ", conflicts_with_all = ["system", "weak", "strong", "compare", "to"])]
    pub poisson: Option<String>,
    /// Products of the matrices in a file of `krylith bench spmv`, by each way to share them over GPUs whose vectors are whole, and
    /// the error against what that file has measured
    #[arg(long, value_name = "SPMV.json", conflicts_with_all = ["system", "weak", "strong", "poisson", "compare", "to"])]
    pub spmv: Option<PathBuf>,
    /// Vectors of P-CBCG's basis, 1 to 64 [default: 12]
    #[arg(long = "s", value_name = "S", value_parser = clap::value_parser!(u8).range(1..=64), requires = "poisson")]
    pub steps: Option<u8>,
    /// Largest number of GPUs of --weak and --strong [default: 8192]
    #[arg(long, value_name = "P", value_parser = options::ranks)]
    pub to: Option<usize>,
    /// Compares a stored prediction with what `krylith bench okp --device cuda:0,1,…` measured
    #[arg(long, num_args = 2, value_names = ["PREDICTION.json", "BENCH.json"], conflicts_with = "system")]
    pub compare: Option<Vec<PathBuf>>,
    /// Largest error of a good prediction, in percent [default: 15]
    #[arg(long, value_name = "PERCENT", requires = "compare")]
    pub within: Option<f64>,
    /// Folder for prediction.json, or tables, JSON and SVG of a scaling study; it is made if it is missing
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
}

/// `krylith info`.
#[derive(Debug, Args)]
pub struct InfoArgs {
    /// A matrix file, a system.toml or a generated problem, as for `krylith solve` [default: the machine alone]
    #[arg(value_name = "SYSTEM")]
    pub system: Option<PathBuf>,
    /// Unknowns of one node, 1 to 8 [default: what the file says, else the largest that adds at most 20 % stored zeros, or 75 % if the rows of a node have the same neighbours]
    #[arg(long, value_name = "B", value_parser = options::block_size)]
    pub block: Option<usize>,
    /// Numbering of the matrix: interleaved or segregated (needs a block size) [default: interleaved]
    #[arg(long, value_name = "interleaved|segregated")]
    pub ordering: Option<Ordering>,
    /// Ways to share the system's block rows among P ranks, and the quality of each [default: none]
    #[arg(long, value_name = "P", value_parser = options::ranks, requires = "system")]
    pub ranks: Option<usize>,
}

fn command() -> clap::Command {
    let problems = |of| crate::problem::catalogue(of);
    Cli::command()
        .mut_subcommand("problem", |c| {
            c.after_help(problems(krylith_problems::catalogue()) + crate::problem::NEXT)
        })
        .mut_subcommand("newton", |c| {
            c.after_help(problems(krylith_problems::nonlinear::catalogue()) + "\n" + NEWTON_EXAMPLES)
        })
}

/// Reads the command line; help, version and usage errors are printed here and leave their exit code.
pub fn parse(words: impl IntoIterator<Item = OsString>) -> std::result::Result<Cli, u8> {
    let parsed = command().try_get_matches_from(words).and_then(|m| Cli::from_arg_matches(&m));
    parsed.map_err(|e| {
        crate::output::printed(e.print());
        e.exit_code() as u8
    })
}

/// A bare `krylith`.
pub fn print_help() -> Result<u8> {
    crate::output::print(&command().render_help().to_string());
    Ok(DONE)
}

//! Solvers for large sparse linear systems A x = b, on CPUs, on NVIDIA GPUs, and on many of either.
//!
//! Krylith combines Krylov methods, such as CG, BiCGSTAB and GMRES, with preconditioners, such as incomplete
//! factors and algebraic multigrid, and can solve directly. It is made for multiphysics simulation, in which
//! every node of a mesh carries several unknowns. You supply a matrix and a right-hand side; Krylith chooses
//! the device, the method and the preconditioner, and reports what it chose and why.
//!
//! # Where to begin
//!
//! - **Solve one system**: call [`solve`]. See [A first solve](#a-first-solve).
//! - **Solve many systems with the same pattern**: keep a [`Solver`]. See [Many solves](#many-solves).
//! - **Choose a tolerance, method, preconditioner or device**: pass [`Options`]. See [Options](#options).
//! - **Understand a result**, or a solve that did not converge: see
//!   [Reading a solution](#reading-a-solution).
//! - **Several unknowns per node**: use [`Bsr`](matrix::Bsr) and [`Problem`]. See
//!   [Block systems](#block-systems).
//! - **Several fields**, such as velocity and pressure: describe each [`Field`], and give each its
//!   preconditioner.
//! - **Implicit Runge–Kutta steps**: use [`KroneckerSum`](matrix::KroneckerSum). See
//!   [Time steps with stages](#time-steps-with-stages).
//! - **Nonlinear systems**: use [`Newton`](newton::Newton).
//! - **A matrix in a file**: call [`read_matrix`](io::read_matrix). See [Files](#files).
//! - **Several GPUs, or MPI**: see [GPUs and ranks](#gpus-and-ranks).
//! - **No stored matrix**: give A as a [`FunctionOperator`](operator::FunctionOperator).
//! - **Your own operator or preconditioner**: see [Components](#components).
//!
//! The rest of this page is a tutorial; [an overview of the modules](#modules) is at its end. Every function
//! that can fail returns a [`Result`] whose [`Error`] says what is wrong and what to do.
//!
//! # A first solve
//!
//! Build a matrix in compressed sparse rows, and pass it to [`solve`] with a right-hand side. The
//! [`Solution`](solver::Solution) holds x, and names the device, the method and the preconditioner used.
//!
//! ```
//! use krylith::matrix::Csr;
//!
//! // Heat conduction in a wall with a uniform source: −T″ = 1, and T = 0 at both faces.
//! let (n, h) = (99, 0.01);
//! let mut entries = Vec::new();
//! for i in 0..n {
//!     entries.push((i, i, 2.0));
//!     if i > 0 {
//!         entries.extend([(i, i - 1, -1.0), (i - 1, i, -1.0)]);
//!     }
//! }
//! let a = Csr::from_triplets(n as usize, n as usize, &entries)?;
//! let solution = krylith::solve(&a, &[h * h; 99])?;
//! assert!(solution.converged());
//! assert!((solution.x[49] - 0.125).abs() < 1e-4); // T = x (1 − x)/2 at x = 1/2
//! # Ok::<(), krylith::Error>(())
//! ```
//!
//! If your program already has CSR arrays, pass them to [`Csr::new`](matrix::Csr::new), or to
//! [`Csr::from_arrays`](matrix::Csr::from_arrays) with indices of any width. Matrices of the crates `faer`,
//! `nalgebra-sparse` and `sprs` can be converted (see [Features](#features)).
//!
//! # Options
//!
//! [`Options`] set tolerances, limits, the method, the preconditioner and the device. Parse them from text,
//! fill in the fields of the struct, or read them from the section `[solver]` of a file `system.toml`. The
//! page of [`Options`] lists them. An option that you leave out has a default, or is chosen automatically.
//!
//! ```
//! use krylith::Options;
//! let options: Options = "method=gmres:restart=50 precond=ildu:fill=1 rtol=1e-8".parse()?;
//! assert_eq!(options.restart, Some(50));
//! let slip = "precond=idlu".parse::<Options>().unwrap_err();
//! assert!(slip.to_string().contains("ildu")); // errors suggest the right name
//! # Ok::<(), krylith::Error>(())
//! ```
//!
//! # Many solves
//!
//! [`solve`] analyses the matrix anew in every call. A [`Solver`] keeps the analysis, the factors and the
//! workspace: pass it further right-hand sides, or new values of the same pattern. Such solves neither
//! allocate memory nor compile kernels, as long as the first attempt succeeds and matrices are stored in f64.
//!
//! ```
//! use krylith::{Solver, matrix::Csr};
//! // Two bodies exchange heat. Implicit Euler: (1/Δt + K) Tⁿ⁺¹ = 1/Δt Tⁿ.
//! let values = |dt: f64| [1.0 / dt + 1.0, -1.0, -1.0, 1.0 / dt + 1.0];
//! let a = Csr::new(2, 2, vec![0, 2, 4], vec![0, 1, 0, 1], values(0.5).to_vec())?;
//! let mut solver = Solver::new(&a, &"rtol=1e-10".parse()?)?;
//! let mut t = vec![90.0, 10.0];
//! for dt in [0.5, 0.5, 1.0] {
//!     solver.update_values(&values(dt))?; // in the order of the matrix
//!     let b: Vec<f64> = t.iter().map(|t| t / dt).collect();
//!     solver.solve(&b, &mut t)?; // t is the initial guess, and is overwritten
//! }
//! assert!((t[0] + t[1] - 100.0).abs() < 1e-6); // the total heat is conserved
//! // Each step divides the temperature difference by 1 + 2Δt.
//! assert!((t[0] - t[1] - 80.0 / 2.0 / 2.0 / 3.0).abs() < 1e-6);
//! # Ok::<(), krylith::Error>(())
//! ```
//!
//! # Reading a solution
//!
//! A solve that does not converge is not an [`Error`]: it returns a solution with an [`Outcome`] and its
//! residuals. Errors report invalid input, and failures of the machine. The outcome *converged* always refers
//! to ‖b − A x‖, recomputed from x at the end. The events list what was chosen and why, and each fallback.
//!
//! ```
//! use krylith::{Outcome, Solver, matrix::Csr};
//! # let all = (0..60).flat_map(|i| [(i, i, 2.0), (i, i + 1, -1.0), (i + 1, i, -1.0)]);
//! # let entries: Vec<_> = all.filter(|&(i, j, _)| i < 60 && j < 60).collect();
//! # let a = Csr::from_triplets(60, 60, &entries)?;
//! let mut solver = Solver::new(&a, &"method=cg precond=none max_iters=5".parse()?)?;
//! let solution = solver.solve(&[1.0; 60], &mut [0.0; 60])?;
//! let history = &solution.history;
//! match history.outcome {
//!     Outcome::Converged => println!("{:.1e}", history.true_relative_residual), // ‖b − A x‖/‖b‖
//!     Outcome::MaxIterations => println!("look at the curve: {:?}", history.residuals),
//!     other => println!("{other} after {} iterations", history.iterations),
//! }
//! for event in &solution.events {
//!     println!("{}: {}", event.kind.name(), event.detail); // what was chosen, and why
//! }
//! assert_eq!(history.outcome, Outcome::MaxIterations); // 5 iterations are too few for 60 rows
//! # Ok::<(), krylith::Error>(())
//! ```
//!
//! # Block systems
//!
//! If every node carries b unknowns, store the matrix as [`Bsr`](matrix::Bsr), in b×b blocks: products are
//! faster, and preconditioners invert whole blocks. A [`Problem`] adds what the matrix does not contain, such
//! as coordinates of nodes, null vectors, or the rigid modes of an elastic body.
//!
//! ```
//! use krylith::{Problem, Solver, matrix::Bsr};
//! // 20 nodes in a row between two walls, connected by springs of stiffness K in x and y.
//! let k = [1.0, 0.25, 0.25, 1.0];
//! let (twice, back) = (k.map(|k| 2.0 * k), k.map(|k| -k));
//! let rows = (0..20).flat_map(|i| [(i, i, twice), (i, i + 1, back), (i + 1, i, back)]);
//! let blocks: Vec<_> = rows.filter(|&(i, j, _)| i < 20 && j < 20).collect();
//! let a = Bsr::from_block_triplets(2, 20, 20, &blocks)?;
//! let nodes: Vec<_> = (0..20).map(|i| [i as f64, 0.0, 0.0]).collect();
//! let problem = Problem::bsr(&a)?.with_coordinates(nodes)?;
//! let mut solver = Solver::new(problem, &"rtol=1e-10".parse()?)?;
//! let mut u = vec![0.0; 40]; // x₁ y₁ x₂ y₂ …
//! solver.solve(&[1.0; 40], &mut u)?;
//! assert!((u[0] - 10.0 / 1.25).abs() < 1e-6); // K u₁ = 20/2 (1, 1): each wall carries half the load
//! # Ok::<(), krylith::Error>(())
//! ```
//!
//! [`Problem::csr_in_blocks`] groups a scalar matrix into blocks if the unknowns of each node are contiguous.
//!
//! # Time steps with stages
//!
//! An implicit Runge–Kutta step of M u′ + L u = 0 with s stages is one linear system for the stages k:
//!
//! (I⊗M + τB⊗L) k = −(L u, …, L u)
//!
//! B is the matrix of the Butcher tableau (`radau.a` below). [`KroneckerSum`](matrix::KroneckerSum) stores M
//! and L only. The sum, which would be s² times as large, is never formed.
//!
//! ```
//! use krylith::{Solver, matrix::{Bsr, Butcher, Dense, KroneckerSum}};
//! // u′ = −u by Radau IIA with two stages: M and L are 1×1 here, and matrices of a mesh in practice.
//! let (radau, tau) = (Butcher::by_name("radau-iia-2")?, 0.1);
//! let one = Bsr::new(1, 1, 1, vec![0, 1], vec![0], vec![1.0])?;
//! let (m, l) = (one.clone(), one);
//! let system = KroneckerSum::new(Dense::identity(2), radau.a.clone(), tau, m, l)?;
//! let mut solver = Solver::new(&system, &"rtol=1e-12".parse()?)?;
//! let (mut u, mut k) = (1.0, [0.0; 2]);
//! for _ in 0..10 {
//!     solver.solve(&[-u; 2], &mut k)?;
//!     u += tau * (radau.b[0] * k[0] + radau.b[1] * k[1]);
//! }
//! assert!((u - (-1.0f64).exp()).abs() < 1e-4); // u(1) = e⁻¹; the error is of third order in τ
//! # Ok::<(), krylith::Error>(())
//! ```
//!
//! Call [`Solver::set_tau`] to change the step size, and [`Solver::update_term`] for new values of M or L.
//!
//! # Files
//!
//! [`io`] reads Matrix Market, Harwell–Boeing, MATLAB, SciPy, PETSc and NumPy files, and writes some of these
//! formats. It recognises a format by the content of the file. Errors name the file and the line. Files are
//! written atomically: a file appears complete or not at all.
//!
//! ```
//! use krylith::io::parse_matrix;
//! let text = b"%%MatrixMarket matrix coordinate real symmetric
//! 2 2 3
//! 1 1 4
//! 2 1 -1
//! 2 2 4
//! ";
//! let a = parse_matrix("wall.mtx", text)?.matrix.into_csr(); // or read_matrix(path)
//! assert!(krylith::solve(&a, &[3.0, 3.0])?.converged());
//! let wrong = parse_matrix("wall.mtx", &text[..text.len() - 6]).err().unwrap();
//! assert!(wrong.to_string().starts_with("wall.mtx:"));
//! # Ok::<(), krylith::Error>(())
//! ```
//!
//! # GPUs and ranks
//!
//! By default a solve runs on a GPU if that is estimated to be faster, else on the CPU. The option
//! `device=cuda:0,1` distributes the rows to two GPUs of this process; the rest of the program stays the
//! same. Matrices and vectors may be in host memory or in the memory of a GPU: see [`memory`].
//!
//! In a program with several MPI ranks, each rank creates a problem from its own rows with
//! [`Problem::distributed_csr`] or [`Problem::distributed`], and gets its own part of x. The communicator is
//! [`Mpi`](comm::Mpi), or one of your own. Ranks may also be threads of one process, as in this example with
//! two of them:
//!
//! ```
//! use krylith::comm::{Communicator, Team};
//! use krylith::{Problem, Solver, matrix::Csr};
//! let converged = Team::run(2, |comm| {
//!     let own = match comm.rank() { // rows of tridiag(−1, 2, −1); columns are global
//!         0 => Csr::new(2, 3, vec![0, 2, 5], vec![0, 1, 0, 1, 2], vec![2., -1., -1., 2., -1.])?,
//!         _ => Csr::new(1, 3, vec![0, 2], vec![1, 2], vec![-1.0, 2.0])?,
//!     };
//!     let problem = Problem::distributed_csr(comm, &own, None)?;
//!     let (b, mut x) = (vec![1.0; own.rows()], vec![0.0; own.rows()]);
//!     Solver::new(problem, &"device=cpu".parse()?)?.solve(&b, &mut x)?;
//!     Ok((x[0] - 1.5).abs() < 1e-5) // x = (1.5, 2, 1.5)
//! })?;
//! assert_eq!(converged, [true, true]);
//! # Ok::<(), krylith::Error>(())
//! ```
//!
//! # Components
//!
//! A [`Solver`] is built from components, which you can also combine yourself. A [`Space`](operator::Space)
//! holds vectors on a device. [Operators](operator), [preconditioners](precond) and [methods](method) work on
//! these vectors. To use your own operator or preconditioner, implement
//! [`LinearOperator`](operator::LinearOperator): anything that computes A x.
//!
//! ```
//! use krylith::operator::{PointBlock, Terms};
//! use krylith::{Outcome, Stop, Precision, device::Cpu, matrix::Csr, precond::BlockJacobi};
//! use krylith::{method::{Cg, CgOptions}, operator::Space};
//! let a = Csr::from_triplets(2, 2, &[(0, 0, 4.0), (0, 1, -1.0), (1, 0, -1.0), (1, 1, 4.0)])?;
//! let space = Cpu::new(2, 0); // all cores; on a GPU: Cuda::new(&Device::open(0)?, 2)?
//! let operator = PointBlock::csr(&space, &a, Precision::F64)?;
//! let jacobi = BlockJacobi::new(&space, &Terms::csr(&a)?, Precision::F64)?;
//! let mut cg = Cg::new(&space, CgOptions::default())?;
//! let (mut b, mut x) = (space.vector()?, space.vector()?);
//! space.write(&[3.0, 3.0], &mut b)?;
//! let (p, stop) = (Some(&jacobi as _), Stop::default());
//! let history = cg.solve(&space, &operator, p, &b, &mut x, &stop, &mut ())?;
//! assert_eq!(history.outcome, Outcome::Converged); // x = (1, 1)
//! # Ok::<(), krylith::Error>(())
//! ```
//!
//! # Modules
//!
//! | module | contents | begin with |
//! |---|---|---|
//! | [`matrix`] | matrices on the host | [`Csr`](matrix::Csr), [`Bsr`](matrix::Bsr) |
//! | [`io`] | files | [`read_matrix`](io::read_matrix), [`read_system`](io::read_system) |
//! | [`options`] | types of the fields of [`Options`] | [`Options`] |
//! | [`solver`] | results of a solve, cancellation | [`Solver`], [`Solution`](solver::Solution) |
//! | [`newton`] | nonlinear systems, continuation | [`Newton`](newton::Newton) |
//! | [`memory`] | arrays on the host or on a GPU | [`Numbers`](memory::Numbers) |
//! | [`comm`] | ranks: one, threads, or MPI | [`Team`](comm::Team), [`Communicator`](comm::Communicator) |
//! | [`partition`] | distribution of rows | [`Partition`](partition::Partition), [`Rows`](partition::Rows) |
//! | [`device`] | CPUs and GPUs | [`Cpu`](device::Cpu) |
//! | [`operator`] | vectors on a device, products | [`LinearOperator`](operator::LinearOperator) |
//! | [`method`] | GMRES, FGMRES, BiCGSTAB, CG, CBCG, MINRES | [`Gmres`](method::Gmres) |
//! | [`precond`] | Jacobi, incomplete factors, composition | [`PrecondSpec`](precond::PrecondSpec) |
//!
//! The public names of this crate follow semantic versioning: an incompatible change needs a new major
//! version. The crates `krylith-base`, `krylith-matrix` and `krylith-core` contain the implementation. Names
//! that only those crates export may change in any release.
//!
//! # Features
//!
//! - `cuda` (default): NVIDIA GPUs. Nothing of CUDA is needed to build. To run on a GPU, Krylith needs an
//!   NVIDIA driver of release 525 or later, and NVRTC for kernels that are not in the binary.
//! - `lu` (default): sparse direct factors, by the crate `faer`.
//! - `metis`: graph partitions by METIS, in addition to Krylith's own. It needs a C compiler to build.
//! - `faer`, `nalgebra-sparse`, `sprs`: conversions from the sparse matrices of these crates.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub use krylith_core::options::{DeviceSpec, Options};
pub use krylith_core::space::{History, Observer, Outcome, Precision, Progress, Stop};
pub use krylith_core::{Error, Field, Problem, Remedy, Result, Solver, solve};

/// Sparse and dense matrices on the host, and sums of Kronecker products.
pub mod matrix {
    pub use krylith_core::matrix::{
        Bsr, Butcher, Csr, Dense, Dia, Grouping, KroneckerSum, Shape, StructuralRank,
    };
}

/// Input and output of matrices, vectors, systems and meshes.
///
/// [`read_matrix`](io::read_matrix), [`read_vector`](io::read_vector) and [`read_system`](io::read_system)
/// recognise the format of a file by its content.
pub mod io {
    pub use krylith_core::io::{
        Array, Matrix, ReadMatrix, System, SystemMatrix, VectorFormat, parse_matrix, parse_vector,
        read_matrix, read_system, read_vector, write_vector,
    };
    /// Writing of Matrix Market files.
    pub mod matrix_market {
        pub use krylith_core::io::matrix_market::{write, write_array};
    }
    /// Writing of VTK files (`.vtu`) for ParaView.
    pub mod vtu {
        pub use krylith_core::io::vtu::{Values, write};
    }
}

/// Types of the fields of [`Options`].
pub mod options {
    pub use krylith_core::matching::MatchingChoice;
    pub use krylith_core::matrix::ZerosChoice;
    pub use krylith_core::method::{CbcgBasis, CgForm, MethodName, Orthogonalization, Reductions};
    pub use krylith_core::operator::Format;
    pub use krylith_core::partition::PartitionSpec;
}

/// Results of a solve, cancellation, and diagnosis of a system.
pub mod solver {
    pub use krylith_core::solver::{
        Cancel, DeviceUsed, Diagnosis, Event, EventKind, Plan, Refresh, Request, SetupParts, Solution,
    };
}

/// Nonlinear systems F(u) = 0 by inexact Newton methods, with continuation.
pub mod newton {
    pub use krylith_core::newton::{
        Continuation, Forcing, Newton, NewtonEvent, NewtonObserver, NewtonOptions, NewtonOutcome,
        NewtonReport, NewtonStep, NonlinearSystem, Stage,
    };
}

/// Borrowed arrays, on the host or in the memory of a GPU.
pub mod memory {
    pub use krylith_core::memory::{Array, ArrayMut, Number, Numbers, NumbersMut};
}

/// Communicators: one rank, threads of this process, or MPI processes.
pub mod comm {
    pub use krylith_core::comm::{Channel, Communicator, Message, Mpi, Solo, Team};
}

/// Distribution of block rows to ranks.
pub mod partition {
    pub use krylith_core::partition::{Halo, Part, Partition, Partitioner, RowBlocks, Rows, distribute};
}

/// CPUs and GPUs, which hold vectors and run the solvers.
pub mod device {
    pub use krylith_core::device::cpu::Cpu;
    #[cfg(feature = "cuda")]
    pub use krylith_core::device::cuda::{Cuda, Device, FromDevice};
}

/// Vectors on a device, and operators that act on them.
pub mod operator {
    pub use krylith_core::operator::{Dots, FunctionOperator, LinearOperator, PointBlock, Terms};
    pub use krylith_core::space::{Clock, Schedule, Space};
}

/// Krylov methods.
pub mod method {
    pub use krylith_core::method::{
        Bicgstab, BicgstabOptions, Cbcg, CbcgOptions, Cg, CgOptions, Gmres, GmresOptions, Method, MethodSpec,
        Minres,
    };
}

/// Preconditioners.
pub mod precond {
    pub use krylith_core::precond::{
        Additive, BlockJacobi, Ildu, IlduOptions, Multiplicative, PrecondInfo, PrecondSpec, Preconditioner,
        Value,
    };
}

/// Compiles and runs the programs of the README, the guide and the tutorials as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../../../docs/guide.md")]
#[doc = include_str!("../../../docs/petsc-trilinos.md")]
#[doc = include_str!("../../../docs/first-solve.md")]
#[doc = include_str!("../../../docs/newton.md")]
#[doc = include_str!("../../../docs/many-gpus.md")]
mod documents {}

//! Krylov solvers for the large sparse systems of multiphysics simulation, in which every node of a mesh carries several unknowns.
//! Methods are written once and run on CPUs, on NVIDIA GPUs and on many of either.
//!
//! This page is a tutorial; [the parts](#the-parts) are at its end.
//!
//! # A first solve
//!
//! A matrix in compressed rows, a right-hand side, and [`solve`]. Device, method and preconditioner are picked, and named in the
//! [`Solution`](solver::Solution).
//!
//! ```
//! use krylith::matrix::Csr;
//!
//! // Heat in a wall with a source all through it: −T″ = 1, and both faces at 0.
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
//! assert!((solution.x[49] - 0.125).abs() < 1e-4); // T = x (1 − x)/2, in the middle
//! # Ok::<(), krylith::Error>(())
//! ```
//!
//! Arrays that are there already make a matrix without a copy by hand: [`Csr::new`](matrix::Csr::new), or
//! [`Csr::from_arrays`](matrix::Csr::from_arrays) with indices of any width. Matrices of `faer`, `nalgebra-sparse` and `sprs` convert (see
//! [features](#features)).
//!
//! # Options
//!
//! [`Options`] are a line of text, a struct with the same fields, or the section `[solver]` of a `system.toml`. What they leave open
//! is picked.
//!
//! ```
//! use krylith::Options;
//! let options: Options = "method=gmres:restart=50 precond=ildu:fill=1 rtol=1e-8".parse()?;
//! assert_eq!(options.restart, Some(50));
//! let slip = "precond=idlu".parse::<Options>().unwrap_err();
//! assert!(slip.to_string().contains("ildu")); // errors list what there is
//! # Ok::<(), krylith::Error>(())
//! ```
//!
//! # Many solves
//!
//! A [`Solver`] keeps what it found out: a second solve, or new values of the same pattern, neither allocate nor compile, as long as one
//! attempt is enough and matrices are stored in f64.
//!
//! ```
//! use krylith::{Solver, matrix::Csr};
//! // Two parts that touch exchange heat, by implicit Euler: (1/Δt + K) Tⁿ⁺¹ = 1/Δt Tⁿ.
//! let values = |dt: f64| [1.0 / dt + 1.0, -1.0, -1.0, 1.0 / dt + 1.0];
//! let a = Csr::new(2, 2, vec![0, 2, 4], vec![0, 1, 0, 1], values(0.5).to_vec())?;
//! let mut solver = Solver::new(&a, &"rtol=1e-10".parse()?)?;
//! let mut t = vec![90.0, 10.0];
//! for dt in [0.5, 0.5, 1.0] {
//!     solver.update_values(&values(dt))?; // in the order of the matrix
//!     let b: Vec<f64> = t.iter().map(|t| t / dt).collect();
//!     solver.solve(&b, &mut t)?; // starts from the last t
//! }
//! assert!((t[0] + t[1] - 100.0).abs() < 1e-6); // no heat is lost
//! // A step divides the difference by 1 + 2Δt.
//! assert!((t[0] - t[1] - 80.0 / 2.0 / 2.0 / 3.0).abs() < 1e-6);
//! # Ok::<(), krylith::Error>(())
//! ```
//!
//! # Reading a solution
//!
//! That a solve does not converge is an [`Outcome`], with its residuals, and no [`Error`]; errors are what the caller or the machine did
//! wrong. *Converged* is said of b − A x alone, recomputed at the end.
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
//!     println!("{}: {}", event.kind.name(), event.detail); // what was picked, and why
//! }
//! assert_eq!(history.outcome, Outcome::MaxIterations); // the ends are 60 points apart
//! # Ok::<(), krylith::Error>(())
//! ```
//!
//! # Block systems
//!
//! Where nodes carry b unknowns, say so: [`Bsr`](matrix::Bsr) stores b×b blocks, products are faster and preconditioners invert whole blocks. A
//! [`Problem`] holds what is known beside the numbers, such as coordinates, null vectors, or the rigid motions of an elastic body.
//!
//! ```
//! use krylith::{Problem, Solver, matrix::Bsr};
//! // 20 nodes in a row between two walls, joined by springs of stiffness K in x and y.
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
//! assert!((u[0] - 10.0 / 1.25).abs() < 1e-6); // K u₁ = 20/2 (1, 1): a wall has half the load
//! # Ok::<(), krylith::Error>(())
//! ```
//!
//! A scalar matrix whose unknowns stand node by node is put into blocks by [`Problem::csr_in_blocks`].
//!
//! # Time steps with stages
//!
//! An implicit Runge–Kutta step of M u′ + L u = 0 with s stages is one system (I⊗M + τB⊗L) k = −(L u, …, L u).
//! [`KroneckerSum`](matrix::KroneckerSum) keeps M and L, and the sum, s² times as large, is never formed.
//!
//! ```
//! use krylith::{Solver, matrix::{Bsr, Butcher, Dense, KroneckerSum}};
//! // u′ = −u by Radau IIA with two stages, in place of a mesh.
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
//! assert!((u - (-1.0f64).exp()).abs() < 1e-4); // third order: e⁻¹ but for τ³/72
//! # Ok::<(), krylith::Error>(())
//! ```
//!
//! A new step size is [`Solver::set_tau`]; values that change are [`Solver::update_term`].
//!
//! # Files
//!
//! [`io`] reads Matrix Market, Harwell–Boeing, MATLAB, SciPy, PETSc and NumPy files, told apart by content, and writes some of them. An
//! error names file and line; a file that is written appears whole or not at all.
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
//! `device=cuda:0,1` shares the rows among two GPUs of this process; nothing else changes, and without it a solve takes a GPU where that is
//! sooner. Matrices and vectors may be in a GPU's memory: see [`memory`]. In an MPI program each rank brings the rows that it
//! holds, and gets its part of x. Ranks may also be threads, here two of them:
//!
//! ```
//! use krylith::comm::{Communicator, Team};
//! use krylith::{Problem, Solver, matrix::Csr};
//! let converged = Team::run(2, |comm| {
//!     let own = match comm.rank() { // −1 2 −1: rows 0 and 1, or row 2; columns are global
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
//! # Parts by hand
//!
//! A [`Solver`] is made of a [`Space`](space::Space), which holds vectors on a device, [operators](operator) on it, a
//! [preconditioner](precond) and a [method]. All of them can be put together otherwise, and any can be your own: a
//! [`LinearOperator`](operator::LinearOperator) is whatever computes A x.
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
//! # The parts
//!
//! | module | contents | begin with |
//! |---|---|---|
//! | [`matrix`] | matrices on the host: rows, blocks, diagonals, Kronecker sums | [`Csr`](matrix::Csr), [`Bsr`](matrix::Bsr) |
//! | [`io`] | files | [`read_matrix`](io::read_matrix), [`read_system`](io::read_system) |
//! | [`options`] | the types of the fields of [`Options`] | [`Options`] |
//! | [`solver`] | the results of a solve, cancellation | [`Solver`], [`Solution`](solver::Solution) |
//! | [`newton`] | nonlinear systems, continuation | [`Newton`](newton::Newton) |
//! | [`memory`] | arrays on the host or on a GPU | [`Numbers`](memory::Numbers) |
//! | [`comm`] | ranks: one, threads, MPI | [`Team`](comm::Team), [`Communicator`](comm::Communicator) |
//! | [`partition`] | rows of ranks | [`Partition`](partition::Partition), [`Rows`](partition::Rows) |
//! | [`device`] | CPUs and GPUs | [`Cpu`](device::Cpu) |
//! | [`operator`] | vectors on a device, products | [`LinearOperator`](operator::LinearOperator) |
//! | [`method`] | GMRES, FGMRES, BiCGSTAB, CG, CBCG | [`Gmres`](method::Gmres) |
//! | [`precond`] | Jacobi, incomplete factors, composition | [`PrecondSpec`](precond::PrecondSpec) |
//!
//! The names on these pages are a promise: they change only with the first number of the version. The crates
//! `krylith-base`, `krylith-matrix` and `krylith-core` hold the implementation, and more names without a promise.
//!
//! # Features
//!
//! | feature | | requirements |
//! |---|---|---|
//! | `cuda` | default | to run: an NVIDIA driver of release 580 or later, and NVRTC for kernels that are not in the binary |
//! | `lu` | default | none; sparse direct factors by the crate `faer` |
//! | `metis` | | a C compiler; graph partitions by METIS, beside our own |
//! | `faer`, `nalgebra-sparse`, `sprs` | | none; conversions from the sparse matrices of these crates |

#![cfg_attr(docsrs, feature(doc_cfg))]

pub use krylith_core::options::{DeviceSpec, Options};
pub use krylith_core::space::{History, Observer, Outcome, Precision, Progress, Stop};
pub use krylith_core::{Error, Problem, Remedy, Result, Solver, solve};

/// Matrices on the host.
pub mod matrix {
    pub use krylith_core::matrix::{
        Bsr, Butcher, Csr, Dense, Dia, Grouping, KroneckerSum, Shape, StructuralRank,
    };
}

/// Files: matrices, vectors, whole systems, meshes.
///
/// [`read_matrix`], [`read_vector`] and [`read_system`] tell formats apart by content.
pub mod io {
    pub use krylith_core::io::{
        Array, Matrix, ReadMatrix, System, SystemMatrix, VectorFormat, parse_matrix, parse_vector,
        read_matrix, read_system, read_vector, write_vector,
    };
    /// Matrix Market.
    pub mod matrix_market {
        pub use krylith_core::io::matrix_market::{write, write_array};
    }
    /// ParaView's files.
    pub mod vtu {
        pub use krylith_core::io::vtu::{Values, write};
    }
}

/// Types of the fields of [`Options`](crate::Options).
pub mod options {
    pub use krylith_core::matching::MatchingChoice;
    pub use krylith_core::matrix::ZerosChoice;
    pub use krylith_core::method::{CbcgBasis, CgForm, MethodName, Orthogonalization, Reductions};
    pub use krylith_core::operator::Format;
    pub use krylith_core::partition::PartitionSpec;
}

/// The results of a solve, cancellation, and diagnosis.
pub mod solver {
    pub use krylith_core::solver::{
        Cancel, DeviceUsed, Diagnosis, Event, EventKind, Plan, Refresh, SetupParts, Solution, solve_functions,
    };
}

/// Nonlinear systems F(u) = 0 by inexact Newton methods, with continuation.
pub mod newton {
    pub use krylith_core::newton::{
        Continuation, Forcing, Newton, NewtonEvent, NewtonObserver, NewtonOptions, NewtonOutcome,
        NewtonReport, NewtonStep, NonlinearSystem, Stage,
    };
}

/// Arrays on the host or in the memory of a GPU.
pub mod memory {
    pub use krylith_core::memory::{Array, ArrayMut, Number, Numbers, NumbersMut};
}

/// Ranks: one, threads of this process, or processes under MPI.
pub mod comm {
    pub use krylith_core::comm::{Channel, Communicator, Message, Mpi, Solo, Team};
}

/// Block rows of ranks.
pub mod partition {
    pub use krylith_core::partition::{Halo, Part, Partition, Partitioner, RowBlocks, Rows, distribute};
}

/// CPUs and GPUs, on which vectors live.
pub mod device {
    pub use krylith_core::device::cpu::Cpu;
    #[cfg(feature = "cuda")]
    pub use krylith_core::device::cuda::{Cuda, Device, FromDevice};
}

/// Vectors on a device, and products with them.
pub mod operator {
    pub use krylith_core::operator::{Dots, LinearOperator, PointBlock, Terms};
    pub use krylith_core::space::{Clock, Schedule, Space};
}

/// Krylov methods.
pub mod method {
    pub use krylith_core::method::{
        Bicgstab, BicgstabOptions, Cbcg, CbcgOptions, Cg, CgOptions, Gmres, GmresOptions, Method, MethodSpec,
    };
}

/// Preconditioners.
pub mod precond {
    pub use krylith_core::precond::{
        Additive, BlockJacobi, Ildu, IlduOptions, Multiplicative, PrecondInfo, PrecondSpec, Preconditioner,
        Value,
    };
}

/// Programs in the README, the guide and the tutorials are compiled and run with the documentation's.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../../../docs/guide.md")]
#[doc = include_str!("../../../docs/petsc-trilinos.md")]
#[doc = include_str!("../../../docs/first-solve.md")]
#[doc = include_str!("../../../docs/newton.md")]
#[doc = include_str!("../../../docs/many-gpus.md")]
mod documents {}

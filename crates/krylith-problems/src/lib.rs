//! Test problems for solvers: linear systems, as in `krylith solve stokes:16x16x16`, and [`nonlinear`] ones,
//! as in `krylith newton cavity:65x65`.
//!
//! [`generate`] makes a system from its text; [`generate_rows`] makes the rows of one rank.
//!
//! ```
//! use krylith::Solver;
//! use krylith_problems::{SystemKind, generate};
//! let problem = generate("elasticity:9x4x4")?; // a clamped bar
//! let SystemKind::Bsr(a) = &problem.system else { unreachable!("it has three displacements a node") };
//! let mut u = vec![0.0; a.rows()];
//! let mut solver = Solver::new(a, &"rtol=1e-8".parse()?)?;
//! assert!(solver.solve(&problem.rhs, &mut u)?.converged());
//! # Ok::<(), krylith::Error>(())
//! ```
//!
//! Omitted keys take their defaults, and `spec` repeats the text with all keys:
//!
//! ```
//! let problem = krylith_problems::generate("stokes:4x4x4,scheme=radau-iia-2")?;
//! assert_eq!(problem.rhs.len(), 4 * 4 * 4 * 4 * 2);
//! assert!(problem.spec.contains("nu=0.01"));
//! # Ok::<(), krylith::Error>(())
//! ```
//!
//! [`catalogue`] lists every problem with its keys, defaults and units:
//!
//! - `stokes` is [`StokesDuct`], whose page gives weak form, stabilisation and treatment of Dirichlet rows,
//!   or [`StokesBody`] if a mesh file is named. It is one step from rest at t = 0, with the ramped inflow
//!   [`InletRamp`] or [`InletProfile`], no force and a stress-free outlet (defaults:
//!   `scheme=radau-iia-2,tau=0.125,nu=0.01,length=1,ramp=1,stab=1` and `scale` = 1 + 10ν/h).
//!   [`StokesProblem`] is the same flow for many steps;
//! - `laplace` is the 7-point Laplacian on a grid, scalar or in blocks of weakly coupled components;
//! - `elasticity` is a clamped bar of bricks, three displacements per node;
//! - `spe10` is the pressure of an oil reservoir with very uneven rock, generated or read, with five wells
//!   (five-spot);
//! - `radiation` is a time step of radiation diffusion, with one temperature or three coupled ones;
//! - `poisson-multiphase` is the pressure equation of a flow of gas, liquid and solid: [`multiphase`];
//! - `advection` is a quantity that a wind carries through the unit cube while it diffuses, upwind;
//! - `taylor-hood`, `oseen`, `rt0`, `nedelec`, `biot2`, `biot3`, `twophase` and `blackoil`
//!   are [coupled systems](mod@coupled) with fields, and with the matrices that their preconditioners name;
//! - `random` is a random point-block Kronecker system with diagonally dominant blocks;
//! - [`lookalike`] is a matrix like one of the 24 of Gao, Ji and Wang (2024).
//!
//! Generated systems do not depend on the number of threads.

mod advection;
pub mod artery;
mod bricks;
mod catalogue;
pub mod cavity;
pub mod coupled;
mod couplings;
mod data;
mod distributed;
mod elasticity;
pub mod flow;
#[doc(hidden)]
pub mod gpu;
mod grid;
pub mod hard;
mod laplace;
mod linear_steps;
pub mod lookalike;
mod memory;
mod mesh;
pub mod multiphase;
mod noise;
pub mod nonlinear;
mod outlets;
mod picture;
mod radiation;
mod random;
pub mod share;
pub mod solid;
mod spe10;
mod spec;
mod stencil;
mod steps;
pub mod stokes;
mod stokes_problem;
mod supg;
pub mod tets;
pub mod ventricle;

use krylith_core::fields::Field;
use krylith_core::matrix::{Bsr, Csr, KroneckerSum};
use krylith_core::{Error, Result};
use rayon::prelude::*;

pub use catalogue::{Key, Problem, catalogue};
pub use data::{DuctData, InletProfile, InletRamp};
pub(crate) use distributed::kronecker_terms;
pub use distributed::{GeneratedRows, generate_rows};
pub use linear_steps::LinearSteps;
pub use mesh::DuctMesh;
pub use picture::picture;
pub use steps::StokesSteps;
pub use stokes::{BodyOptions, Stokes, StokesBody, StokesDuct, StokesOptions};
pub use stokes_problem::{StokesDomain, StokesProblem};

/// The programs in the tutorials that need a generated system are compiled and run as documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/elasticity.md")]
#[doc = include_str!("../../../docs/stokes.md")]
mod documents {}

/// The operator of a generated system.
///
/// # Examples
/// ```
/// use krylith_problems::{SystemKind, generate};
/// let laplace = generate("laplace:3x3x3")?.system;
/// assert!(matches!(laplace, SystemKind::Csr(_)));
/// assert_eq!((laplace.rows(), laplace.block(), laplace.stages()), (27, 1, 1));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum SystemKind {
    /// A matrix with scalar rows.
    Csr(Csr),
    /// A matrix with point blocks.
    Bsr(Bsr),
    /// A sum of Kronecker products for the stages of a Runge-Kutta step: A⊗M + τB⊗L.
    Kronecker(KroneckerSum),
}

impl SystemKind {
    /// Returns the number of scalar rows of the whole system.
    pub fn rows(&self) -> usize {
        match self {
            SystemKind::Csr(a) => a.rows(),
            SystemKind::Bsr(a) => a.rows(),
            SystemKind::Kronecker(k) => k.rows(),
        }
    }
    /// Returns the number of components b of a node.
    pub fn block(&self) -> usize {
        match self {
            SystemKind::Csr(_) => 1,
            SystemKind::Bsr(a) => a.block(),
            SystemKind::Kronecker(k) => k.block(),
        }
    }
    /// Returns the number of stages s, 1 for a plain matrix.
    pub fn stages(&self) -> usize {
        match self {
            SystemKind::Kronecker(k) => k.stages(),
            _ => 1,
        }
    }
}

/// A generated system.
///
/// # Examples
/// ```
/// use krylith_problems::{SystemKind, generate};
/// let problem = generate("laplace:4x3x2")?;
/// let SystemKind::Csr(a) = &problem.system else { unreachable!("it is scalar") };
/// assert_eq!((a.rows(), problem.rhs.len(), problem.grid), (24, 24, Some([4, 3, 2])));
/// assert!(krylith::solve(a, &problem.rhs)?.converged());
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Generated {
    /// The operator.
    pub system: SystemKind,
    /// Right-hand side in Krylith's order: node i, component c, stage k at (i·b + c)·s + k.
    pub rhs: Vec<f64>,
    /// Coordinates of each node, for geometric partitions and pictures.
    pub coordinates: Option<Vec<[f64; 3]>>,
    /// Nodes in x, y, z if they form a grid, numbered with x fastest, then y; for partitions into boxes.
    pub grid: Option<[usize; 3]>,
    /// Corner nodes of the tetrahedra of the mesh, if the problem has one.
    pub tetrahedra: Vec<[u32; 4]>,
    /// Fields of a coupled system, for [`Problem::with_fields`](krylith_core::Problem::with_fields).
    pub fields: Vec<Field>,
    /// Matrices that preconditioners of a coupled system name.
    pub matrices: Vec<(String, Csr)>,
    /// The problem's text with every default filled in; it generates the same system.
    pub spec: String,
}

/// Returns true if a problem's text names a mesh file, so that every rank reads the whole mesh.
pub fn reads_mesh(spec: &str) -> bool {
    spec::Spec::parse(spec).is_ok_and(|spec| spec.problem.name == "stokes" && !spec.label.is_empty())
}

/// Generates the system that `NAME:SIZE[,key=value…]` names.
///
/// # Errors
/// Returns an error for an unknown name or key (the text lists the known ones), for a value or size out of
/// range, and if memory is not sufficient.
pub fn generate(spec: &str) -> Result<Generated> {
    let spec = spec::Spec::parse(spec)?;
    if let Some(made) = coupled::generate(&spec)? {
        return Ok(made);
    }
    match spec.problem.name {
        "stokes" => StokesProblem::of(spec)?.into_first_step(),
        "laplace" => grid::whole(&laplace::Laplacian::new(&spec, 0, 1)?, spec.full()),
        "elasticity" => bricks::whole(&elasticity::Bar::new(&spec, 0, 1)?, spec.full()),
        "spe10" => grid::whole(&spe10::Reservoir::new(&spec, 0, 1)?, spec.full()),
        "radiation" => grid::whole(&radiation::Radiation::new(&spec, 0, 1)?, spec.full()),
        "poisson-multiphase" => grid::whole(&multiphase::Multiphase::new(&spec, 0, 1)?, spec.full()),
        "advection" if supg::is_named(&spec)? => bricks::whole(&supg::Supg::new(&spec, 0, 1)?, spec.full()),
        "advection" => grid::whole(&advection::Advection::new(&spec, 0, 1)?, spec.full()),
        "lookalike" => lookalike::generate(&spec),
        _ => random::generate(&spec),
    }
}

/// Returns an error if parameters made the right-hand side overflow; `rhs` begins at scalar row `first`.
fn check_rhs(rhs: &[f64], stages: usize, first: usize) -> Result<()> {
    match rhs.par_iter().with_min_len(1 << 16).position_first(|v| !v.is_finite()) {
        None => Ok(()),
        Some(i) => Err(Error::NotFinite {
            what: "right-hand side".into(),
            row: first + i / stages,
            column: i % stages,
            value: rhs[i],
        }),
    }
}

//! Distributed generation: each rank generates its own rows, and no rank holds the whole system.

use std::sync::Arc;

use krylith_core::Result;
use krylith_core::fields::Field;
use krylith_core::matrix::{Csr, Dense};
use krylith_core::partition::{RowBlocks, Rows, contiguous};

use crate::advection::Advection;
use crate::couplings::Couplings;
use crate::laplace::Laplacian;
use crate::multiphase::Multiphase;
use crate::radiation::Radiation;
use crate::spe10::Reservoir;
use crate::spec::Spec;
use crate::stencil::POINTS;
use crate::stokes::{Discretisation, StokesOptions, pattern, values};
use crate::stokes_problem::{Step, of_duct, scale};
use crate::{InletRamp, StokesProblem, StokesSteps, check_rhs, coupled, elasticity, grid, lookalike};
use crate::{bricks, supg};
use crate::{memory, random};

/// One rank's rows of a generated system, with their right-hand side, coordinates and the system's sizes.
///
/// # Examples
/// ```
/// use krylith::{Problem, Solver, comm::{Communicator, Team}};
/// use krylith_problems::generate_rows;
/// let converged = Team::run(2, |comm| {
///     let own = generate_rows("laplace:4x4x4", comm.rank(), comm.size())?; // no rank has the whole
///     let problem = Problem::distributed(comm, own.rows)?;
///     let mut x = vec![0.0; own.rhs.len()];
///     Ok(Solver::new(&problem, &"device=cpu".parse()?)?.solve(&own.rhs, &mut x)?.converged())
/// })?;
/// assert_eq!(converged, [true, true]);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct GeneratedRows {
    /// The rows, a range of consecutive numbers, for [`distribute`](krylith_core::partition::distribute).
    pub rows: Rows,
    /// Their right-hand side in Krylith's order: own row i, component c, stage k at (i·b + c)·s + k.
    pub rhs: Vec<f64>,
    /// Coordinates of each own node, if known.
    pub coordinates: Option<Vec<[f64; 3]>>,
    /// Nodes in x, y, z of the whole system if they form a grid, numbered with x fastest, then y.
    pub grid: Option<[usize; 3]>,
    /// Number of block rows of the whole system.
    pub nodes: usize,
    /// Fields of the whole system, if it is coupled.
    pub fields: Vec<Field>,
    /// Matrices that preconditioners name, whole.
    pub matrices: Vec<(String, Csr)>,
    /// The problem's text with every default filled in.
    pub spec: String,
}

/// Generates the rows of `rank` among `ranks` of the system that [`generate`](crate::generate) makes from
/// `spec`, bit for bit.
///
/// Rows are distributed as by [`Partition::by_rows`](krylith_core::partition::Partition::by_rows). Memory and
/// time are proportional to the rank's rows; the duct also needs the plane of nodes on each side. Each rank
/// builds the whole of a [coupled](crate::coupled) system of finite elements, and of a system on a mesh from
/// a file. Ranks do not communicate.
///
/// # Errors
/// Returns the errors of [`generate`](crate::generate), except that only node numbers, not unknowns, must fit
/// 32 bits.
///
/// # Panics
/// If `rank` is not below `ranks`.
pub fn generate_rows(spec: &str, rank: usize, ranks: usize) -> Result<GeneratedRows> {
    let spec = Spec::parse(spec)?;
    if let Some(rows) = coupled::generate_rows(&spec, rank, ranks)? {
        return Ok(rows);
    }
    match spec.problem.name {
        "stokes" => stokes_step(spec, rank, ranks),
        "laplace" => grid::part(&Laplacian::new(&spec, rank, ranks)?, spec.full()),
        "elasticity" => bricks::part(&elasticity::Bar::new(&spec, rank, ranks)?, spec.full()),
        "spe10" => grid::part(&Reservoir::new(&spec, rank, ranks)?, spec.full()),
        "radiation" => grid::part(&Radiation::new(&spec, rank, ranks)?, spec.full()),
        "poisson-multiphase" => grid::part(&Multiphase::new(&spec, rank, ranks)?, spec.full()),
        "advection" if supg::is_named(&spec)? => {
            bricks::part(&supg::Supg::new(&spec, rank, ranks)?, spec.full())
        }
        "advection" => grid::part(&Advection::new(&spec, rank, ranks)?, spec.full()),
        "lookalike" => lookalike::generate_rows(&spec, rank, ranks),
        _ => random::generate_rows(&spec, rank, ranks),
    }
}

/// Generates one rank's rows of the first step of the default duct.
fn stokes_step(mut spec: Spec, rank: usize, ranks: usize) -> Result<GeneratedRows> {
    if !spec.label.is_empty() {
        return StokesProblem::of(spec)?.into_rows(rank, ranks);
    }
    let Step { butcher, tau, ramp } = Step::of(&spec)?;
    let options = StokesOptions {
        nodes: spec.grid(),
        length: spec.positive("length")?,
        nu: spec.positive("nu")?,
        stab: spec.positive("stab")?,
        scale: scale(&spec)?,
    };
    of_duct(&mut spec);
    let Discretisation { mesh, options, stencils } = Discretisation::new(options)?;
    if let Some(scale) = options.scale {
        spec.settle("scale", scale.to_string());
    }
    let (own, s) = (contiguous(mesh.nodes(), rank, ranks), butcher.stages());
    // Two matrices with 16 values and a column index per block.
    memory::check("a rank's part of the Stokes duct", (own.len() * POINTS) as u64 * 2 * (16 * 8 + 8))?;
    let couplings = Couplings::Duct(mesh, Arc::new(stencils));
    let (row_ptr, col) = pattern(&couplings, own.clone());
    let col: Vec<u64> = col.into_iter().map(u64::from).collect();
    let matrices = values(&couplings, own.clone(), &row_ptr).map(|values| RowBlocks {
        row_ptr: row_ptr.clone(),
        col: col.clone(),
        values,
    });

    let mut steps = StokesSteps::new(couplings, Arc::new(InletRamp { ramp }), &butcher, tau, own.clone())?;
    let mut rhs = vec![0.0; 4 * own.len() * s];
    steps.rhs_into(0.0, &vec![0.0; 4 * steps.window()], &mut rhs)?;
    check_rhs(&rhs, s, 4 * own.start)?;
    Ok(GeneratedRows {
        fields: Vec::new(),
        matrices: Vec::new(),
        rhs,
        nodes: mesh.nodes(),
        grid: Some(mesh.sizes()),
        coordinates: Some(own.clone().map(|i| mesh.coordinate(i)).collect()),
        rows: Rows {
            numbers: own.map(|i| i as u64).collect(),
            block: 4,
            terms: kronecker_terms(Dense::identity(s), &butcher.a, tau, matrices)?,
        },
        spec: spec.full(),
    })
}

/// Returns the terms of A⊗M + τB⊗L, rounded as in
/// [`Terms::kronecker`](krylith_core::operator::Terms::kronecker).
pub(crate) fn kronecker_terms(
    a: Dense,
    b: &Dense,
    tau: f64,
    [m, l]: [RowBlocks; 2],
) -> Result<Vec<(Dense, RowBlocks)>> {
    let scaled = Dense::new(b.rows(), b.columns(), b.values().iter().map(|v| tau * v).collect())?;
    Ok(vec![(a, m), (scaled, l)])
}

//! Coupled systems on the unit cube, with named fields and the matrices that their preconditioners need.
//!
//! The mesh is a grid of cells, each cut into six Kuhn tetrahedra. Only `twophase` and `blackoil` have finite
//! volumes on the cells themselves. Rows and columns of boundary values are eliminated and keep a diagonal
//! entry of 1. Unknowns stand field by field, and the components of a vector node by node.
//!
//! | problem | elements | fields | matrices |
//! |---|---|---|---|
//! | [`taylor-hood`](flow) | P2–P1 | `u` (blocks of 3), `p` | `Mp`, `P` |
//! | [`oseen`](flow) | P2–P1 | `u` (blocks of 3), `p` | `Mp`, `Lp`, `Fp`, `P` |
//! | [`rt0`](darcy) | RT0–P0 | `w`, `p` | |
//! | [`nedelec`](maxwell) | Nédélec, lowest order | | `G`, `Px`, `Py`, `Pz` |
//! | [`biot2`](poro) | P2–P1 | `u` (blocks of 3, rigid modes), `p` | `Sp`, `P` |
//! | [`biot3`](poro) | P2–RT0–P0 | `u` (blocks of 3, rigid modes), `w`, `p` | `Sp`, `P` |
//! | [`twophase`](reservoir) | two-point fluxes | `p`, `s` | |
//! | [`blackoil`] | two-point fluxes | `p`, `s`, `g`, `w` (wells) | `acc` |

mod assembly;
pub mod blackoil;
pub mod darcy;
mod elements;
pub mod flow;
pub mod maxwell;
pub mod poro;
pub mod reservoir;
mod simplices;

use krylith_core::Result;
use krylith_core::fields::Field;
use krylith_core::matrix::Csr;
use krylith_core::partition::{RowBlocks, Rows, contiguous};

use crate::random::Random;
use crate::spec::Spec;
use crate::{Generated, GeneratedRows, SystemKind, check_rhs, memory};
use simplices::{Place, Space};

/// Makes a system from its text.
type Make = fn(&Spec) -> Result<Generated>;

/// Name, entries per cell of the matrix, about, and function of each problem.
const PROBLEMS: [(&str, u64, Make); 8] = [
    ("taylor-hood", 2000, flow::taylor_hood),
    ("oseen", 950, flow::oseen),
    ("rt0", 130, darcy::rt0),
    ("nedelec", 110, maxwell::nedelec),
    ("biot2", 2700, poro::biot2),
    ("biot3", 2900, poro::biot3),
    ("twophase", 28, reservoir::twophase),
    ("blackoil", 150, blackoil::blackoil),
];

/// Generates a system by its text, `None` for problems of other modules.
///
/// # Errors
/// Returns an error for values out of range, and if memory is not sufficient.
pub(crate) fn generate(spec: &Spec) -> Result<Option<Generated>> {
    let Some((name, entries, make)) = PROBLEMS.iter().find(|(name, ..)| *name == spec.problem.name) else {
        return Ok(None);
    };
    let cells = spec.size.iter().fold(1u64, |all, &n| all.saturating_mul(n as u64));
    memory::check(name, cells.saturating_mul(12 * entries))?;
    make(spec).map(Some)
}

/// Generates one rank's rows. Each rank builds the whole system, but for `twophase`.
///
/// # Errors
/// Returns the errors of [`generate`].
pub(crate) fn generate_rows(spec: &Spec, rank: usize, ranks: usize) -> Result<Option<GeneratedRows>> {
    if spec.problem.name == "twophase" {
        return reservoir::rows(spec, rank, ranks).map(Some);
    }
    let Some(made) = generate(spec)? else { return Ok(None) };
    let SystemKind::Csr(a) = &made.system else { return Ok(None) };
    let own = match spec.problem.name {
        "blackoil" => blackoil::own(a.rows(), rank, ranks),
        _ => contiguous(a.rows(), rank, ranks),
    };
    let entries = a.row_ptr()[own.start]..a.row_ptr()[own.end];
    let rows = RowBlocks {
        row_ptr: a.row_ptr()[own.start..=own.end].iter().map(|p| p - entries.start).collect(),
        col: a.col()[entries.clone()].iter().map(|&j| u64::from(j)).collect(),
        values: a.values()[entries].to_vec(),
    };
    Ok(Some(GeneratedRows {
        fields: made.fields,
        matrices: made.matrices,
        rows: Rows {
            numbers: own.clone().map(|i| i as u64).collect(),
            block: 1,
            terms: vec![(krylith_core::matrix::Dense::identity(1), rows)],
        },
        rhs: made.rhs[own.clone()].to_vec(),
        coordinates: made.coordinates.map(|points| points[own].to_vec()),
        grid: None,
        nodes: a.rows(),
        spec: made.spec,
    }))
}

/// Puts a system of spaces together; the load of the last fields may be left out, and is then zero.
fn system(
    spec: &Spec,
    a: Csr,
    spaces: &[(&str, &Space)],
    loads: Vec<Vec<f64>>,
    matrices: Vec<(&str, Csr)>,
) -> Result<Generated> {
    let mut rhs: Vec<f64> = loads.into_iter().flatten().collect();
    rhs.resize(a.rows(), 0.0);
    check_rhs(&rhs, 1, 0)?;
    let (mut fields, mut coordinates) = (Vec::new(), Vec::with_capacity(a.rows()));
    for &(name, space) in spaces {
        let (first, points) = (coordinates.len(), space.points());
        coordinates.extend(points.iter().flat_map(|&x| std::iter::repeat_n(x, space.components)));
        let field = Field::range(name, first..coordinates.len()).in_blocks(space.components);
        fields.push(field.with_coordinates(points));
    }
    Ok(Generated {
        system: SystemKind::Csr(a),
        rhs,
        coordinates: Some(coordinates),
        grid: None,
        tetrahedra: Vec::new(),
        fields,
        matrices: matrices.into_iter().map(|(name, matrix)| (name.to_string(), matrix)).collect(),
        spec: spec.full(),
    })
}

/// Builds the interpolation of linear vectors to quadratic ones: that of an edge is the mean of its ends.
fn interpolation(quadratic: &Space, linear: &Space) -> Result<Csr> {
    assembly::from_vertices(quadratic, &linear.clone().vectors(), &|chain, _, r, c| {
        (r == c).then(|| 1.0 / chain.len() as f64)
    })
}

/// Returns the step from the base of a chain to its vertex, in cells.
fn steps(mask: u8) -> Place {
    [0, 1, 2].map(|d| usize::from(mask >> d & 1))
}

/// Equal balls in the unit cube, which may overlap.
struct Balls {
    centres: Vec<[f64; 3]>,
    radius: f64,
}

impl Balls {
    /// Places balls at random, a tenth of the cube in all.
    fn new(count: usize, seed: u64) -> Self {
        let radius = (0.3 / (4.0 * std::f64::consts::PI * count.max(1) as f64)).cbrt();
        let centre = |k: usize| {
            let mut random = Random::new(seed, 60, k as u64);
            std::array::from_fn(|_| radius + (1.0 - 2.0 * radius) * random.unit())
        };
        Self { centres: (0..count).map(centre).collect(), radius }
    }

    fn contain(&self, x: [f64; 3]) -> bool {
        let square = |c: &[f64; 3]| (0..3).map(|d| (x[d] - c[d]).powi(2)).sum::<f64>();
        self.centres.iter().any(|c| square(c) < self.radius * self.radius)
    }
}

//! The pressure equation of an incompressible flow of gas, liquid and solid: `poisson-multiphase`.
//!
//! A projection method advances a velocity u* without pressure and then removes the part that is not
//! divergence-free:
//!
//! ```text
//! ∇·(1/ρ ∇p) = ∇·u*/Δt,   u = u* − Δt/ρ ∇p.
//! ```
//!
//! [`Projection`] is that equation on a grid of cells: finite volumes, 7 points, symmetric positive
//! (semi)definite. [`Phases`] generates the distribution of gas, liquid and solid. The problem combines both,
//! with a smooth random u* and Δt = 1. JUPITER solves such systems for melting reactor cores (Ali et al.,
//! 2019).
//!
//! Gas has ρ = 1, liquid `contrast` and solid `solid`·`contrast`. Each pocket of gas enclosed by liquid or
//! solid gives the preconditioned matrix one eigenvalue near 0. More bubbles, gas layers in the columns
//! (`gap`), a larger contrast and an outlet on top alone therefore all make the system harder. Iterations of
//! CG with ILDU(0) subdomains, to 1e-8 from zero, on a CPU:
//!
//! ```text
//! cells                                        16×8×32   32×16×64   64×32×128   128×64×256
//! default                                        23         80         180         378
//! bubbles=4                                       –         56         363        1124
//! contrast=1e6,outlet=top,gap=1,bubbles=4        76        248       >2200
//! ```

mod phases;
mod projection;

use krylith_base::threads::collect;
use krylith_core::Result;
use krylith_core::partition::contiguous;
use std::ops::Range;

use crate::grid::{Grid, Link, SevenPoint, check_memory};
use crate::noise::smooth;
use crate::spec::Spec;
pub use phases::{PhaseOptions, Phases};
pub use projection::{CLOSED, Faces, Projection, Sides, TOP};

/// Open on all sides but the floor: a section of a wider domain.
pub const OPEN: Sides = [[true; 2], [true; 2], [false, true]];

/// Approximate number of waves of u* along the shortest edge.
const EDDIES: f64 = 8.0;

/// One rank's rows of the pressure equation.
pub(crate) struct Multiphase {
    projection: Projection,
    own: Range<usize>,
    /// ρ of the cells that own rows use, from cell `first` on.
    density: Vec<f64>,
    first: usize,
    seed: u64,
    /// Lattice cells of u* per unit of length.
    eddies: f64,
}

impl Multiphase {
    /// Builds the rows of `rank` among `ranks`.
    pub fn new(spec: &Spec, rank: usize, ranks: usize) -> Result<Self> {
        let (cells, dz) = (spec.grid(), spec.positive("dz")?);
        let open = [OPEN, TOP, CLOSED][spec.choice("outlet", &["open", "top", "none"])?];
        let options = PhaseOptions {
            contrast: spec.positive("contrast")?,
            solid: spec.positive("solid")?,
            bubbles: spec.whole("bubbles", 0..=100_000)? as u32,
            columns: spec.whole("columns", 0..=100_000)? as u32,
            gap: spec.nonnegative("gap")?,
            width: spec.nonnegative("width")?,
            seed: spec.whole("seed", 0..=u64::MAX)?,
        };
        let projection = Projection::new(cells, [1.0, 1.0, dz], open)?;
        let grid = projection.grid();
        let own = contiguous(grid.len(), rank, ranks);
        let window = grid.window(&own);
        check_memory("the pressure equation", own.len(), 1, 0)?;
        check_memory("the pressure equation", window.len(), 0, 8)?;
        let (first, seed) = (window.start, options.seed);
        let phases = Phases::new(cells, [1.0, 1.0, dz], options);
        let density = collect(window, 1024, &|i| phases.density(phases.fractions(grid.position(i))));
        let eddies = EDDIES / projection.shortest_edge();
        Ok(Self { projection, own, density, first, seed, eddies })
    }

    /// Returns u* through the face across `axis` that is `half` a cell from a centre.
    fn velocity(&self, mut at: [f64; 3], axis: usize, half: f64) -> f64 {
        at[axis] += half;
        let spacing = self.projection.spacing();
        smooth(self.seed, 40 + axis as u64, std::array::from_fn(|d| at[d] * spacing[d] * self.eddies))
    }
}

impl SevenPoint for Multiphase {
    const NAME: &'static str = "poisson-multiphase";

    fn grid(&self) -> Grid {
        self.projection.grid()
    }
    fn own(&self) -> Range<usize> {
        self.own.clone()
    }
    fn block(&self) -> usize {
        1
    }

    fn row(&self, i: usize, links: &[Link], values: &mut [f64]) {
        self.projection.row(i, links, values, |j| self.density[j - self.first]);
    }

    /// Writes −∇·u* times the cell's volume; walls are impermeable.
    fn rhs(&self, i: usize, out: &mut [f64]) {
        let (sizes, at) = (self.grid().sizes(), self.grid().position(i));
        let centre = at.map(|x| x as f64 + 0.5);
        out[0] = 0.0;
        for axis in 0..3 {
            let area = self.projection.area(axis);
            let open = self.projection.open()[axis];
            if at[axis] + 1 < sizes[axis] || open[1] {
                out[0] -= area * self.velocity(centre, axis, 0.5);
            }
            if at[axis] > 0 || open[0] {
                out[0] += area * self.velocity(centre, axis, -0.5);
            }
        }
    }

    /// Returns the centre of the cell, in units of its edge along x.
    fn coordinate(&self, i: usize) -> [f64; 3] {
        self.projection.centre(i)
    }
}

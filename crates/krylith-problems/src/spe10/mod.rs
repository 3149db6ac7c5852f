//! The pressure of an oil reservoir like model 2 of the tenth SPE comparative solution project (Christie &
//! Blunt, 2001).
//!
//! The matrix is hard because adjacent rocks differ in permeability by up to ten orders of magnitude. One
//! incompressible fluid flows through cells of 20×10×2 ft,
//!
//! ```text
//! −∇·(K/μ ∇p) = q,   no flow through the boundary,
//! ```
//!
//! by finite volumes with two-point fluxes. Cells i and j share a face of area A, their centres are d apart,
//! and K is diagonal (K_x = K_y), so with the harmonic mean of K across the face
//!
//! ```text
//! Σ_j T_ij (p_i − p_j) + Σ_w W_i (p_i − p_w) = 0,   T_ij = c A/(μ d) · 2 K_i K_j/(K_i + K_j).
//! ```
//!
//! Five vertical wells w go through every layer at given pressures p_w: an injector in the middle and a
//! producer in each corner (five-spot). Peaceman (1978): W_i = 2π c K_x h/(μ ln(r_o/r_w)), with h the
//! thickness of the cell and r_o = 0.14 √(dx² + dy²) for K_x = K_y. Without the wells the matrix would be
//! singular.
//!
//! Field units: pressure in psi, permeability in mD, viscosity μ in cP, lengths in ft, flow in barrels a day;
//! c = 1.127·10⁻³. The matrix is a symmetric positive definite M-matrix, so pressures lie between those of
//! the wells. The ratio of its largest to its smallest T_ij is 5.8·10¹⁰ for the real data at 60×220×85 (about
//! 10¹⁰ for generated ones).
//!
//! `field` reads or generates the permeabilities.

mod field;

use std::f64::consts::PI;
use std::ops::Range;
use std::path::Path;

use krylith_core::Result;
use krylith_core::partition::contiguous;

use crate::grid::{Grid, Link, SevenPoint, check_memory};
use crate::spec::Spec;
use field::Permeability;

/// Edges of a cell, ft.
const CELL: [f64; 3] = [20.0, 10.0, 2.0];

/// Unit conversion c: barrels a day from mD·ft·psi/cP.
const FLOW: f64 = 1.127e-3;

/// One rank's rows of the reservoir.
pub(crate) struct Reservoir {
    grid: Grid,
    own: Range<usize>,
    rock: Permeability,
    /// c A/(μ d) of the faces across x, y, z.
    face: [f64; 3],
    /// W divided by K_x.
    well: f64,
    /// Pressures of the injector and of the producers.
    pressure: [f64; 2],
}

impl Reservoir {
    /// Builds the rows of `rank` among `ranks`.
    pub fn new(spec: &Spec, rank: usize, ranks: usize) -> Result<Self> {
        let grid = Grid::new(spec.grid())?;
        let seed = spec.whole("seed", 0..=u64::MAX)?;
        let layer = spec.whole("layer", 0..=84)? as usize;
        let mobility = FLOW / spec.positive("viscosity")?;
        let radius = spec.positive("radius")?;
        let pressure = [spec.positive("injector")?, spec.positive("producer")?];
        let equivalent = 0.14 * CELL[0].hypot(CELL[1]);
        if radius >= equivalent {
            return Err(spec.bad("radius", &format!("less than {equivalent:.2}, for cells of 20×10 ft")));
        }

        let own = contiguous(grid.len(), rank, ranks);
        check_memory("the reservoir", own.len(), 1, 16)?;
        let window = grid.window(&own);
        let rock = match spec.text("permeability") {
            "generated" if layer > 0 => return Err(spec.bad("layer", "0 unless permeability=DIR is given")),
            "generated" => Permeability::generate(grid, window, seed),
            folder => Permeability::read(Path::new(folder), grid, window, layer)?,
        };
        let volume: f64 = CELL.iter().product();
        Ok(Self {
            grid,
            own,
            rock,
            face: CELL.map(|d| mobility * volume / (d * d)),
            well: 2.0 * PI * mobility * CELL[2] / (equivalent / radius).ln(),
            pressure,
        })
    }

    /// Returns the sums of W and of W·p over the wells of cell `i`.
    fn wells(&self, i: usize) -> [f64; 2] {
        let ([nx, ny, _], [x, y, _]) = (self.grid.sizes(), self.grid.position(i));
        let injector = x == nx / 2 && y == ny / 2;
        let producer = (x == 0 || x == nx - 1) && (y == 0 || y == ny - 1);
        let index = self.well * self.rock.along(i, 0);
        let (mut sum, mut flow) = (0.0, 0.0);
        for (here, p) in [injector, producer].into_iter().zip(self.pressure) {
            if here {
                sum += index;
                flow += index * p;
            }
        }
        [sum, flow]
    }
}

impl SevenPoint for Reservoir {
    const NAME: &'static str = "spe10";

    fn grid(&self) -> Grid {
        self.grid
    }
    fn own(&self) -> Range<usize> {
        self.own.clone()
    }
    fn block(&self) -> usize {
        1
    }

    fn row(&self, i: usize, links: &[Link], values: &mut [f64]) {
        let mut diagonal = self.wells(i)[0];
        for (link, value) in links.iter().zip(&mut *values) {
            if let Some(axis) = link.axis {
                let (a, b) = (self.rock.along(i, axis), self.rock.along(link.cell, axis));
                let t = self.face[axis] * (2.0 * (a * b) / (a + b));
                *value = -t;
                diagonal += t;
            }
        }
        for (link, value) in links.iter().zip(values) {
            if link.axis.is_none() {
                *value = diagonal;
            }
        }
    }

    fn rhs(&self, i: usize, out: &mut [f64]) {
        out[0] = self.wells(i)[1];
    }

    /// Returns the centre of the cell in ft; z is depth below the top.
    fn coordinate(&self, i: usize) -> [f64; 3] {
        let at = self.grid.position(i);
        std::array::from_fn(|d| CELL[d] * (at[d] as f64 + 0.5))
    }
}

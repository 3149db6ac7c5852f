//! The pressure equation on a marker-and-cell grid: pressures in cells, velocities at faces.

use krylith_core::matrix::Csr;
use krylith_core::{Error, Result};
use rayon::prelude::*;
use std::ops::Range;

use crate::grid::{self, Grid, Link, SevenPoint};

/// The pressure equation −∇·(1/ρ ∇p) = −∇·u*/Δt times the volume of a cell, and the velocity correction.
///
/// Pressure and density are located at the centres of equal cells, numbered with x fastest, then y. Cells i
/// and j whose centres are d apart share a face of area A, and
///
/// ```text
/// Σ_j T_ij (p_i − p_j) = −Σ_faces A u*·n/Δt,   T_ij = A/d · 2/(ρ_i + ρ_j),
/// ```
///
/// where 2/(ρ_i + ρ_j) is the harmonic mean of 1/ρ: two layers that meet at a face are solved exactly. Walls
/// are impermeable (∂p/∂n = 0). On an open side of the box p = 0, half a cell from the last centres:
/// T = A/d · 2/ρ_i. The matrix is then symmetric positive definite. With walls all around it is semidefinite,
/// with constant pressures as null space.
///
/// # Examples
/// ```
/// use krylith_problems::multiphase::{Faces, Projection, TOP};
/// let cells = [4, 4, 3];
/// let projection = Projection::new(cells, [1.0, 1.0, 2.0], TOP)?;
/// let density = vec![1000.0; 48];
/// let a = projection.matrix(&density)?;
/// let mut rhs = vec![0.0; 48];
/// projection.rhs_into(&Faces::new(cells), 0.1, &mut rhs)?;
/// assert_eq!((a.rows(), rhs[0]), (48, 0.0));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Projection {
    grid: Grid,
    spacing: [f64; 3],
    open: Sides,
}

/// Open sides of the box: for x, y and z the lower and the upper side.
pub type Sides = [[bool; 2]; 3];

/// Walls all around.
pub const CLOSED: Sides = [[false; 2]; 3];

/// An outlet on top, the upper side across z.
pub const TOP: Sides = [[false; 2], [false; 2], [false, true]];

/// Velocities normal to the faces of cells.
///
/// # Examples
/// ```
/// use krylith_problems::multiphase::Faces;
/// let mut u = Faces::new([4, 4, 4]);
/// let face = u.upper(2, [1, 1, 3]); // the top of a cell in the highest layer
/// u.across[2][face] = 0.5;
/// assert_eq!((u.across[2].len(), u.across[2].iter().sum::<f64>()), (4 * 4 * 5, 0.5));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Faces {
    /// Velocities through the faces across x, y and z. There are (nx + 1)·ny·nz faces across x, numbered like
    /// cells with x fastest; the face at x is the lower one of the cell at x. Faces across y and z are
    /// numbered alike.
    pub across: [Vec<f64>; 3],
    cells: [usize; 3],
}

impl Faces {
    /// Creates a fluid at rest on a grid of `cells` cells.
    pub fn new(cells: [usize; 3]) -> Self {
        Self { across: Self::count(cells).map(|faces| vec![0.0; faces]), cells }
    }

    /// Returns the number of faces across x, y and z.
    fn count(cells: [usize; 3]) -> [usize; 3] {
        std::array::from_fn(|axis| (0..3).map(|d| cells[d] + usize::from(d == axis)).product())
    }

    /// Returns the number of the lower face across `axis` of the cell at a grid position, in `across[axis]`.
    pub fn lower(&self, axis: usize, [x, y, z]: [usize; 3]) -> usize {
        let [nx, ny, _] = self.cells;
        let (nx, ny) = (nx + usize::from(axis == 0), ny + usize::from(axis == 1));
        (z * ny + y) * nx + x
    }

    /// Returns the number of the upper face.
    pub fn upper(&self, axis: usize, mut at: [usize; 3]) -> usize {
        at[axis] += 1;
        self.lower(axis, at)
    }
}

impl Projection {
    /// Creates the equation on `cells` cells along x, y, z with edges `spacing`; p = 0 on the sides that are
    /// `open`.
    ///
    /// # Errors
    /// Returns an error for no cells or more than 2³², or for an edge that is not positive and finite.
    pub fn new(cells: [usize; 3], spacing: [f64; 3], open: Sides) -> Result<Self> {
        if cells.contains(&0) {
            return Err(Error::invalid("a grid needs at least one cell along x, y and z"));
        }
        if let Some(d) = spacing.iter().position(|&h| !(h.is_finite() && h > 0.0)) {
            let (axis, h) = (["x", "y", "z"][d], spacing[d]);
            return Err(Error::invalid(format!(
                "the edge of a cell along {axis} is {h}; it must be positive"
            )));
        }
        Ok(Self { grid: Grid::new(cells)?, spacing, open })
    }

    /// Returns the number of cells along x, y, z.
    pub fn sizes(&self) -> [usize; 3] {
        self.grid.sizes()
    }

    /// Returns the number of all cells.
    pub fn cells(&self) -> usize {
        self.grid.len()
    }

    /// Returns the edges of a cell.
    pub fn spacing(&self) -> [f64; 3] {
        self.spacing
    }

    /// Returns the open sides.
    pub fn open(&self) -> Sides {
        self.open
    }

    /// Returns the centre of cell `i`.
    pub fn centre(&self, i: usize) -> [f64; 3] {
        let at = self.grid.position(i);
        std::array::from_fn(|d| self.spacing[d] * (at[d] as f64 + 0.5))
    }

    /// Returns the grid position (ix, iy, iz) of cell `i`.
    pub fn position(&self, i: usize) -> [usize; 3] {
        self.grid.position(i)
    }

    /// Returns the matrix for densities ρ of all cells; its pattern depends on the grid alone.
    ///
    /// # Errors
    /// Returns an error if there is not one density per cell, or if a density is not positive and finite.
    pub fn matrix(&self, density: &[f64]) -> Result<Csr> {
        self.check(density)?;
        grid::matrix(&Whole { projection: self, density })
    }

    /// Writes only the values of [`matrix`](Self::matrix), for
    /// [`Solver::update_values`](krylith_core::Solver::update_values).
    ///
    /// # Errors
    /// Returns the errors of `matrix`, and one if the number of values differs from the matrix's.
    pub fn values_into(&self, density: &[f64], values: &mut [f64]) -> Result<()> {
        self.check(density)?;
        grid::values_into(&Whole { projection: self, density }, values)
    }

    /// Writes the right-hand side −Σ A u*·n/Δt of each cell.
    ///
    /// # Errors
    /// Returns an error if velocities or right-hand side belong to another number of cells.
    pub fn rhs_into(&self, velocity: &Faces, dt: f64, rhs: &mut [f64]) -> Result<()> {
        self.check_faces(velocity)?;
        self.check_length("right-hand side", rhs.len())?;
        let volume: f64 = self.spacing.iter().product();
        rhs.par_iter_mut()
            .enumerate()
            .with_min_len(1024)
            .for_each(|(i, out)| *out = -volume / dt * self.divergence(velocity, i));
        Ok(())
    }

    /// Returns ∇·u in cell `i`, in 1/time.
    pub fn divergence(&self, velocity: &Faces, i: usize) -> f64 {
        let at = self.grid.position(i);
        (0..3)
            .map(|d| {
                let u = &velocity.across[d];
                (u[velocity.upper(d, at)] - u[velocity.lower(d, at)]) / self.spacing[d]
            })
            .sum()
    }

    /// Corrects the velocity: u = u* − Δt/ρ ∇p at every face but those of walls, with the same 1/ρ as in the
    /// matrix.
    ///
    /// # Errors
    /// Returns an error if an argument belongs to another number of cells.
    pub fn correct(&self, density: &[f64], pressure: &[f64], dt: f64, velocity: &mut Faces) -> Result<()> {
        self.check(density)?;
        self.check_length("pressure", pressure.len())?;
        self.check_faces(velocity)?;
        for i in 0..self.cells() {
            let at = self.grid.position(i);
            for d in 0..3 {
                let (lower, upper) = (velocity.lower(d, at), velocity.upper(d, at));
                let outside = dt * (2.0 / density[i]) * pressure[i] / self.spacing[d];
                if at[d] + 1 < self.sizes()[d] {
                    let j = i + [1, self.sizes()[0], self.sizes()[0] * self.sizes()[1]][d];
                    let rate = 2.0 / (density[i] + density[j]);
                    velocity.across[d][upper] -= dt * rate * (pressure[j] - pressure[i]) / self.spacing[d];
                } else if self.open[d][1] {
                    velocity.across[d][upper] += outside;
                }
                if at[d] == 0 && self.open[d][0] {
                    velocity.across[d][lower] -= outside;
                }
            }
        }
        Ok(())
    }

    /// Returns the area of a face across `axis`.
    pub(crate) fn area(&self, axis: usize) -> f64 {
        (0..3).filter(|&d| d != axis).map(|d| self.spacing[d]).product()
    }

    pub(crate) fn grid(&self) -> Grid {
        self.grid
    }

    /// Returns the length of the box's shortest edge.
    pub(crate) fn shortest_edge(&self) -> f64 {
        (0..3).map(|d| self.sizes()[d] as f64 * self.spacing[d]).fold(f64::INFINITY, f64::min)
    }

    /// Writes the row of cell `i`.
    #[inline]
    pub(crate) fn row(&self, i: usize, links: &[Link], values: &mut [f64], density: impl Fn(usize) -> f64) {
        let own = density(i);
        let mut diagonal = 0.0;
        for (link, value) in links.iter().zip(&mut *values) {
            if let Some(axis) = link.axis {
                let t = self.area(axis) / self.spacing[axis] * (2.0 / (own + density(link.cell)));
                *value = -t;
                diagonal += t;
            }
        }
        if links.len() < 7 {
            let (at, sizes) = (self.grid.position(i), self.sizes());
            for d in 0..3 {
                for (outer, open) in [at[d] == 0, at[d] + 1 == sizes[d]].into_iter().zip(self.open[d]) {
                    if outer && open {
                        diagonal += self.area(d) / self.spacing[d] * (2.0 / own);
                    }
                }
            }
        }
        for (link, value) in links.iter().zip(values) {
            if link.axis.is_none() {
                *value = diagonal;
            }
        }
    }

    fn check_length(&self, what: &str, found: usize) -> Result<()> {
        if found == self.cells() {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "{what}: {found} numbers for {} cells; expected one per cell",
            self.cells()
        )))
    }

    fn check(&self, density: &[f64]) -> Result<()> {
        self.check_length("density", density.len())?;
        match density.par_iter().with_min_len(1 << 16).position_first(|&v| !(v.is_finite() && v > 0.0)) {
            None => Ok(()),
            Some(i) => {
                Err(Error::invalid(format!("density of cell {i} is {}; it must be positive", density[i])))
            }
        }
    }

    fn check_faces(&self, velocity: &Faces) -> Result<()> {
        let right = Faces::count(self.sizes());
        if velocity.cells == self.sizes() && (0..3).all(|d| velocity.across[d].len() == right[d]) {
            return Ok(());
        }
        let ([nx, ny, nz], [mx, my, mz]) = (velocity.cells, self.sizes());
        Err(Error::invalid(format!(
            "velocities of {nx}x{ny}x{nz} cells do not fit this grid of {mx}x{my}x{mz} cells"
        )))
    }
}

/// The rows for densities of all cells.
struct Whole<'a> {
    projection: &'a Projection,
    density: &'a [f64],
}

impl SevenPoint for Whole<'_> {
    const NAME: &'static str = "pressure equation";

    fn grid(&self) -> Grid {
        self.projection.grid
    }
    fn own(&self) -> Range<usize> {
        0..self.projection.cells()
    }
    fn block(&self) -> usize {
        1
    }
    fn row(&self, i: usize, links: &[Link], values: &mut [f64]) {
        self.projection.row(i, links, values, |j| self.density[j]);
    }
    fn rhs(&self, _i: usize, out: &mut [f64]) {
        out.fill(0.0);
    }
    fn coordinate(&self, i: usize) -> [f64; 3] {
        self.projection.centre(i)
    }
}

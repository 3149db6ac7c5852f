//! A Newton step of two-phase flow, oil and water, through uneven rock: `twophase`.
//!
//! Finite volumes with two-point fluxes on the cells of the unit cube, fully implicit, one point upstream:
//!
//! ```text
//! φ ∂((1 − s)(1 + c p))/∂t − ∇·(k (1 − s)²/5 ∇p) = q_oil,   φ ∂(s (1 + c p))/∂t − ∇·(k s² ∇p) = q_water
//! ```
//!
//! s is the saturation of water, φ = 0.2 and c = 10⁻³. ln k is a smooth random field, and k spans about the
//! factor `contrast`. A well in one vertical edge of the cube injects water, and one in the opposite edge
//! produces; both have a given pressure. Unknowns are pressure and saturation of a cell, interleaved; rows
//! are the balances of oil and water. The matrix is the Jacobian of a time step of length `dt` at a state
//! with smooth random saturations, and the right-hand side is the negative residual there.

use krylith_base::threads::collect;
use krylith_core::Result;
use krylith_core::fields::Field;
use krylith_core::partition::contiguous;
use std::ops::Range;

use crate::grid::{self, Grid, Link, SevenPoint, check_memory};
use crate::noise::smooth;
use crate::spec::Spec;
use crate::{Generated, GeneratedRows};

/// Porosity and compressibility.
const POROSITY: f64 = 0.2;
const COMPRESSIBILITY: f64 = 1e-3;
/// Viscosity of oil over that of water.
const VISCOSITY: f64 = 5.0;
/// Pressures in the wells.
const INJECTOR: f64 = 1.0;
const PRODUCER: f64 = 0.0;

/// Permeability, pressure and saturation of a cell.
#[derive(Clone, Copy)]
struct Cell {
    k: f64,
    p: f64,
    s: f64,
}

impl Cell {
    /// Returns the mobilities of oil and water and their derivatives by saturation.
    fn mobility(&self) -> [(f64, f64); 2] {
        let oil = 1.0 - self.s;
        [(oil * oil / VISCOSITY, -2.0 * oil / VISCOSITY), (self.s * self.s, 2.0 * self.s)]
    }
}

/// One rank's rows.
struct TwoPhase {
    grid: Grid,
    own: Range<usize>,
    /// The cells that own rows use, from cell `first` on.
    cells: Vec<Cell>,
    first: usize,
    dt: f64,
}

impl TwoPhase {
    fn new(spec: &Spec, rank: usize, ranks: usize) -> Result<Self> {
        let (contrast, dt) = (spec.positive("contrast")?, spec.positive("dt")?);
        let seed = spec.whole("seed", 0..=u64::MAX)?;
        let grid = Grid::new(spec.grid())?;
        let own = contiguous(grid.len(), rank, ranks);
        let window = grid.window(&own);
        check_memory("the two-phase flow", own.len(), 2, 0)?;
        check_memory("the two-phase flow", window.len(), 0, 24)?;
        let sizes = grid.sizes();
        let first = window.start;
        let cells = collect(window, 1024, &|i| {
            let (at, field) = (grid.position(i), |stream, scale: f64, x: [f64; 3]| {
                smooth(seed, stream, x.map(|x| scale * x))
            });
            let x: [f64; 3] = std::array::from_fn(|d| (at[d] as f64 + 0.5) / sizes[d] as f64);
            Cell {
                k: contrast.powf(field(62, 6.0, x) / 5.0),
                p: 1.0 - 0.5 * (x[0] + x[1]) + 0.05 * field(63, 4.0, x),
                s: (0.5 + 0.2 * field(64, 4.0, x)).clamp(0.1, 0.9),
            }
        });
        Ok(Self { grid, own, cells, first, dt })
    }

    fn cell(&self, i: usize) -> Cell {
        self.cells[i - self.first]
    }

    /// Returns permeability times area over length of the face to cell `j` across `axis`.
    fn face(&self, i: usize, j: usize, axis: usize) -> f64 {
        let sizes = self.grid.sizes().map(|n| n as f64);
        let shape = sizes[axis] * sizes[axis] / sizes.iter().product::<f64>();
        shape * 2.0 / (1.0 / self.cell(i).k + 1.0 / self.cell(j).k)
    }

    /// Returns the pressure of the well in a cell, whether it injects, and its index.
    fn well(&self, i: usize) -> Option<(f64, bool, f64)> {
        let ([x, y, _], [nx, ny, nz]) = (self.grid.position(i), self.grid.sizes());
        let index = self.cell(i).k / nz as f64;
        match (x, y) {
            (0, 0) => Some((INJECTOR, true, index)),
            _ if x + 1 == nx && y + 1 == ny => Some((PRODUCER, false, index)),
            _ => None,
        }
    }

    /// Returns pore volume over step length.
    fn pores(&self) -> f64 {
        POROSITY / (self.grid.len() as f64 * self.dt)
    }
}

impl SevenPoint for TwoPhase {
    const NAME: &'static str = "twophase";

    fn grid(&self) -> Grid {
        self.grid
    }
    fn own(&self) -> Range<usize> {
        self.own.clone()
    }
    fn block(&self) -> usize {
        2
    }

    fn row(&self, i: usize, links: &[Link], blocks: &mut [f64]) {
        let own = self.cell(i);
        let middle = links.iter().position(|link| link.axis.is_none()).unwrap_or(0);
        let mut diagonal = [0.0; 4];
        for (phase, amount) in [1.0 - own.s, own.s].into_iter().enumerate() {
            let density = 1.0 + COMPRESSIBILITY * own.p;
            diagonal[2 * phase] += self.pores() * COMPRESSIBILITY * amount;
            diagonal[2 * phase + 1] += self.pores() * density * [-1.0, 1.0][phase];
        }
        for (link, block) in links.iter().zip(blocks.chunks_exact_mut(4)) {
            let Some(axis) = link.axis else { continue };
            let other = self.cell(link.cell);
            let (face, drop) = (self.face(i, link.cell, axis), own.p - other.p);
            let outward = drop > 0.0;
            let mobility = if outward { own } else { other }.mobility();
            for (phase, (value, slope)) in mobility.into_iter().enumerate() {
                diagonal[2 * phase] += face * value;
                block[2 * phase] -= face * value;
                let by_saturation = face * slope * drop;
                if outward {
                    diagonal[2 * phase + 1] += by_saturation;
                } else {
                    block[2 * phase + 1] += by_saturation;
                }
            }
        }
        match self.well(i) {
            // The injected fluid is water, with the mobility of both phases in the cell.
            Some((pressure, true, index)) => {
                let [oil, water] = own.mobility();
                diagonal[2] += index * (oil.0 + water.0);
                diagonal[3] += index * (oil.1 + water.1) * (own.p - pressure);
            }
            Some((pressure, false, index)) => {
                for (phase, (value, slope)) in own.mobility().into_iter().enumerate() {
                    diagonal[2 * phase] += index * value;
                    diagonal[2 * phase + 1] += index * slope * (own.p - pressure);
                }
            }
            None => {}
        }
        blocks[4 * middle..][..4].copy_from_slice(&diagonal);
    }

    /// Writes what flows into the cell in this state: the state before the step is the same.
    fn rhs(&self, i: usize, out: &mut [f64]) {
        let (own, at, sizes) = (self.cell(i), self.grid.position(i), self.grid.sizes());
        out.fill(0.0);
        for axis in 0..3 {
            let stride = sizes[..axis].iter().product::<usize>();
            let below = (at[axis] > 0).then(|| i - stride);
            let above = (at[axis] + 1 < sizes[axis]).then(|| i + stride);
            for j in below.into_iter().chain(above) {
                let other = self.cell(j);
                let (face, drop) = (self.face(i, j, axis), own.p - other.p);
                let mobility = if drop > 0.0 { own } else { other }.mobility();
                (0..2).for_each(|phase| out[phase] -= face * mobility[phase].0 * drop);
            }
        }
        let [oil, water] = own.mobility();
        match self.well(i) {
            Some((pressure, true, index)) => out[1] += index * (oil.0 + water.0) * (pressure - own.p),
            Some((pressure, false, index)) => {
                out[0] += index * oil.0 * (pressure - own.p);
                out[1] += index * water.0 * (pressure - own.p);
            }
            None => {}
        }
    }

    /// Returns the centre of the cell.
    fn coordinate(&self, i: usize) -> [f64; 3] {
        let (at, sizes) = (self.grid.position(i), self.grid.sizes());
        std::array::from_fn(|d| (at[d] as f64 + 0.5) / sizes[d] as f64)
    }
}

/// Generates `twophase`.
pub(super) fn twophase(spec: &Spec) -> Result<Generated> {
    let mut made = grid::whole(&TwoPhase::new(spec, 0, 1)?, spec.full())?;
    made.fields = fields(made.system.rows());
    Ok(made)
}

fn fields(n: usize) -> Vec<Field> {
    vec![Field::strided("p", 0..n, 2), Field::strided("s", 1..n, 2)]
}

/// Generates one rank's rows of it.
pub(super) fn rows(spec: &Spec, rank: usize, ranks: usize) -> Result<GeneratedRows> {
    let made = grid::part(&TwoPhase::new(spec, rank, ranks)?, spec.full())?;
    Ok(GeneratedRows { fields: fields(2 * made.nodes), ..made })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SystemKind;

    /// Differences of the flows at nearby states are the matrix without the pore volume.
    #[test]
    fn the_matrix_is_the_derivative_of_the_flows() {
        let spec = Spec::parse("twophase:4x3x3,contrast=100,dt=1e9").unwrap();
        let made = twophase(&spec).unwrap();
        let SystemKind::Bsr(a) = &made.system else { panic!("blocks expected") };
        let (a, step) = (a.to_csr(), 1e-6);
        let flows = |moved: usize, by: f64| {
            let mut state = TwoPhase::new(&spec, 0, 1).unwrap();
            let cell = &mut state.cells[moved / 2];
            *(if moved.is_multiple_of(2) { &mut cell.p } else { &mut cell.s }) += by;
            let mut out = vec![0.0; 2 * state.grid.len()];
            out.chunks_exact_mut(2).enumerate().for_each(|(i, out)| state.rhs(i, out));
            out
        };
        for j in 0..a.columns() {
            let (more, less) = (flows(j, step), flows(j, -step));
            for i in 0..a.rows() {
                let slope = (less[i] - more[i]) / (2.0 * step);
                assert!((slope - a.get(i, j)).abs() < 1e-7, "({i}, {j}): {slope} for {}", a.get(i, j));
            }
        }
        // Water and oil in the pores.
        let short = twophase(&Spec::parse("twophase:4x3x3,contrast=100,dt=1e-3").unwrap()).unwrap();
        let SystemKind::Bsr(short) = &short.system else { panic!("blocks expected") };
        let pores = POROSITY / 36.0 / 1e-3;
        for i in 0..36 {
            let added =
                |at: usize| short.diagonal_block(i).unwrap()[at] - a.get(2 * i + at / 2, 2 * i + at % 2);
            assert!((added(0) + added(2) - pores * COMPRESSIBILITY).abs() < 1e-9 * pores);
            assert!((added(1) + pores).abs() < 2e-3 * pores && (added(1) + added(3)).abs() < 1e-12 * pores);
        }
    }
}

//! A quantity that a wind carries through the unit cube while it diffuses, in upwind finite volumes.
//!
//! The equation is w·∇u − Δu/P = 1 with the Péclet number P, and u = 0 where the wind enters and on walls. A
//! face takes u from the cell upwind of it. Diffusion has two-point fluxes. Where the wind leaves, the
//! diffusive flux is zero. Rows are scaled by the shortest edge of a cell, so entries are near 1.
//!
//! Fluxes of the wind through the faces of a cell add up to zero, so row sums are zero away from the
//! boundary. Without diffusion and with an oblique wind the matrix is triangular in a suitable order.
//!
//! `supg.rs` has the same problem in finite elements.

use krylith_core::Result;
use krylith_core::partition::contiguous;
use std::f64::consts::PI;
use std::ops::Range;

use crate::grid::{Grid, Link, SevenPoint, check_memory};
use crate::spec::Spec;

/// A constant wind of speed 1, which crosses every face.
pub(crate) const OBLIQUE: [f64; 3] = [6.0 / 7.0, 3.0 / 7.0, 2.0 / 7.0];

/// The wind.
pub(crate) enum Wind {
    Oblique,
    /// Turns about x = y = 1/2, with the stream function sin(πx) sin(πy)/π. No wind crosses a wall.
    Recirculating,
}

impl Wind {
    /// Reads the wind, and the diffusion 1/P.
    pub fn of(spec: &Spec) -> Result<(Self, f64)> {
        let wind = match spec.choice("wind", &["oblique", "recirculating"])? {
            0 => Self::Oblique,
            _ => Self::Recirculating,
        };
        let none = spec.text("peclet").trim() == "inf";
        if none && matches!(wind, Self::Recirculating) {
            // Nothing enters the cube, so constants would be a null space.
            return Err(spec.bad("peclet", "a positive number with a recirculating wind"));
        }
        Ok((wind, if none { 0.0 } else { 1.0 / spec.positive("peclet")? }))
    }
}

/// See the [module](self).
pub(crate) struct Advection {
    grid: Grid,
    own: Range<usize>,
    /// 1/P.
    diffusion: f64,
    wind: Wind,
    /// Edges of a cell.
    h: [f64; 3],
}

impl Advection {
    /// Builds the rows of `rank` among `ranks`.
    pub fn new(spec: &Spec, rank: usize, ranks: usize) -> Result<Self> {
        let (wind, diffusion) = Wind::of(spec)?;
        let grid = Grid::new(spec.grid())?;
        let own = contiguous(grid.len(), rank, ranks);
        check_memory("the advection problem", own.len(), 1, 0)?;
        Ok(Self { grid, own, diffusion, wind, h: spec.grid().map(|n| 1.0 / n as f64) })
    }

    /// Returns the mean wind through the face of cell `at` that is normal to `axis`, on the side of the next
    /// cell or of the one before.
    fn wind(&self, at: [usize; 3], axis: usize, next: bool) -> f64 {
        match self.wind {
            Wind::Oblique => OBLIQUE[axis],
            // The mean over a face is the difference of the stream function at its ends.
            Wind::Recirculating if axis < 2 => {
                let [x, y] = [at[0], at[1]];
                let stream = |i: usize, j: usize| {
                    let sine = |k: usize, h: f64| (PI * k as f64 * h).sin();
                    sine(i, self.h[0]) * sine(j, self.h[1]) / PI
                };
                let next = usize::from(next);
                match axis {
                    0 => (stream(x + next, y + 1) - stream(x + next, y)) / self.h[1],
                    _ => (stream(x, y + next) - stream(x + 1, y + next)) / self.h[0],
                }
            }
            Wind::Recirculating => 0.0,
        }
    }

    fn shortest(&self) -> f64 {
        self.h.into_iter().fold(f64::INFINITY, f64::min)
    }
}

impl SevenPoint for Advection {
    const NAME: &'static str = "advection";

    fn grid(&self) -> Grid {
        self.grid
    }
    fn own(&self) -> Range<usize> {
        self.own.clone()
    }
    fn block(&self) -> usize {
        1
    }

    fn row(&self, i: usize, links: &[Link], blocks: &mut [f64]) {
        let (at, scale) = (self.grid.position(i), self.shortest());
        let mut diagonal = 0.0;
        for axis in 0..3 {
            let (h, length) = (self.h[axis], self.grid.sizes()[axis]);
            for next in [false, true] {
                let wall = if next { at[axis] + 1 == length } else { at[axis] == 0 };
                let wind = self.wind(at, axis, next);
                let out = scale / h * if next { wind } else { -wind };
                // The distance to a wall is half a cell.
                let flux = self.diffusion * scale / (h * h) * if wall { 2.0 } else { 1.0 };
                if wall {
                    // Beyond the wall u is 0. Where the wind leaves, there is no diffusive flux.
                    diagonal += if out > 0.0 { out } else { flux };
                    continue;
                }
                diagonal += out.max(0.0) + flux;
                let before = links.iter().position(|link| link.axis.is_none()).unwrap_or_default();
                let (low, high) = links.split_at(before);
                let side = if next { high } else { low };
                let place = side.iter().position(|link| link.axis == Some(axis)).unwrap_or_default();
                blocks[place + if next { before } else { 0 }] = out.min(0.0) - flux;
            }
        }
        let own = links.iter().position(|link| link.axis.is_none()).unwrap_or_default();
        blocks[own] = diagonal;
    }

    fn rhs(&self, _i: usize, out: &mut [f64]) {
        out[0] = self.shortest();
    }

    fn coordinate(&self, i: usize) -> [f64; 3] {
        let at = self.grid.position(i);
        std::array::from_fn(|d| (at[d] as f64 + 0.5) * self.h[d])
    }
}

//! A quantity that a wind carries through the unit cube while it diffuses, in trilinear elements with
//! streamline diffusion (SUPG, Brooks and Hughes 1982).
//!
//! The equation and the winds are those of `advection.rs`: w·∇u − Δu/P = 1, u = 0 where the wind enters and
//! on walls. The test functions are φ + τ w·∇φ with τ = h/(2|w|) (coth Q − 1/Q), where Q = |w| h P/2 is the
//! Péclet number of an element, and h its longest edge. Nodes with u = 0 have no unknown. Rows are scaled by
//! the shortest edge over the volume of an element, so entries are near 1.

use krylith_core::Result;
use krylith_core::partition::contiguous;
use std::f64::consts::PI;
use std::ops::Range;

use crate::advection::{OBLIQUE, Wind};
use crate::bricks::{Bricks, CORNERS, POINTS, at_gauss_points, common, position};
use crate::memory;
use crate::spec::Spec;

/// Integrals over a brick for each pair of corners a, b: ∂_i φ_a ∂_j φ_b at i·3 + j, and φ_a ∂_j φ_b at 9 +
/// j.
type Pairs = [[[f64; 12]; CORNERS]; CORNERS];

/// See the [module](self).
pub(crate) struct Supg {
    /// Numbers of nodes with unknowns, and of all nodes.
    unknowns: [usize; 3],
    all: [usize; 3],
    own: Range<usize>,
    /// 1/P.
    diffusion: f64,
    wind: Wind,
    /// Edges of a brick.
    h: [f64; 3],
    pairs: Box<Pairs>,
    /// ∫ ∂_j φ_a.
    slopes: [[f64; 3]; CORNERS],
}

/// Returns true if the problem asks for this scheme.
pub(crate) fn is_named(spec: &Spec) -> Result<bool> {
    Ok(spec.choice("scheme", &["upwind", "supg"])? == 1)
}

impl Supg {
    /// Builds the rows of `rank` among `ranks`.
    pub fn new(spec: &Spec, rank: usize, ranks: usize) -> Result<Self> {
        let (wind, diffusion) = Wind::of(spec)?;
        let unknowns = spec.grid();
        // u is known on the sides where the wind enters, or on all sides.
        let known = if matches!(wind, Wind::Oblique) { 1 } else { 2 };
        let all = unknowns.map(|n| n + known);
        let h = all.map(|n| 1.0 / (n - 1) as f64);
        let own = contiguous(unknowns.iter().product(), rank, ranks);
        memory::check("the advection problem", (own.len() * POINTS) as u64 * 16)?;
        let (mut pairs, mut slopes) = (Box::new([[[0.0; 12]; CORNERS]; CORNERS]), [[0.0; 3]; CORNERS]);
        at_gauss_points(h, |weight, function| {
            for a in 0..CORNERS {
                let (value, gradient) = function(a);
                (0..3).for_each(|j| slopes[a][j] += weight * gradient[j]);
                for (b, to) in pairs[a].iter_mut().enumerate() {
                    let (_, other) = function(b);
                    for (e, to) in to.iter_mut().enumerate() {
                        *to += weight
                            * if e < 9 { gradient[e / 3] * other[e % 3] } else { value * other[e - 9] };
                    }
                }
            }
        });
        Ok(Self { unknowns, all, own, diffusion, wind, h, pairs, slopes })
    }

    /// Returns the wind at the centre of a brick, and τ.
    fn wind(&self, lowest: [usize; 3]) -> ([f64; 3], f64) {
        let wind = match self.wind {
            Wind::Oblique => OBLIQUE,
            Wind::Recirculating => {
                let [x, y] = [0, 1].map(|axis| PI * (lowest[axis] as f64 + 0.5) * self.h[axis]);
                [x.sin() * y.cos(), -x.cos() * y.sin(), 0.0]
            }
        };
        let speed = wind.iter().map(|w| w * w).sum::<f64>().sqrt();
        let h = self.h.into_iter().fold(0.0, f64::max);
        let number = 0.5 * speed * h / self.diffusion;
        // coth Q − 1/Q is Q/3 for small Q.
        let upwind = if number < 1e-3 { number / 3.0 } else { 1.0 / number.tanh() - 1.0 / number };
        (wind, if speed == 0.0 { 0.0 } else { 0.5 * h / speed * upwind })
    }

    /// Returns the factor of all rows.
    fn scale(&self) -> f64 {
        self.h.into_iter().fold(f64::INFINITY, f64::min) / self.h.iter().product::<f64>()
    }

    /// Returns the position of an unknown among all nodes.
    fn position(&self, i: usize) -> [usize; 3] {
        position(i, self.unknowns).map(|at| at + 1)
    }

    fn entry(&self, from: [usize; 3], to: [usize; 3]) -> f64 {
        let mut sum = 0.0;
        common(from, to, self.all, |lowest, a, b| {
            let ((w, tau), of) = (self.wind(lowest), &self.pairs[a][b]);
            for i in 0..3 {
                sum += self.diffusion * of[4 * i] + w[i] * of[9 + i];
                (0..3).for_each(|j| sum += tau * w[i] * w[j] * of[3 * i + j]);
            }
        });
        self.scale() * sum
    }
}

impl Bricks for Supg {
    const B: usize = 1;

    fn nodes(&self) -> [usize; 3] {
        self.unknowns
    }
    fn own(&self) -> Range<usize> {
        self.own.clone()
    }
    fn row(&self, i: usize, mut f: impl FnMut(usize, &[f64])) {
        let (at, [nx, ny, _]) = (self.position(i), self.unknowns);
        let range = |axis: usize| (at[axis] - 1).max(1)..=(at[axis] + 1).min(self.unknowns[axis]);
        for z in range(2) {
            for y in range(1) {
                for x in range(0) {
                    f(((z - 1) * ny + y - 1) * nx + x - 1, &[self.entry(at, [x, y, z])]);
                }
            }
        }
    }
    fn load(&self, i: usize, to: &mut Vec<f64>) {
        let (at, share) = (self.position(i), self.h.iter().product::<f64>() / CORNERS as f64);
        let mut sum = 0.0;
        common(at, at, self.all, |lowest, a, _| {
            let (w, tau) = self.wind(lowest);
            sum += share + tau * (0..3).map(|j| w[j] * self.slopes[a][j]).sum::<f64>();
        });
        to.push(self.scale() * sum);
    }
    fn coordinate(&self, i: usize) -> [f64; 3] {
        let at = self.position(i);
        std::array::from_fn(|d| at[d] as f64 * self.h[d])
    }
}

#[cfg(test)]
mod tests {
    use crate::{SystemKind, generate};

    /// Rows whose nodes all have unknowns annihilate constants. Without diffusion, a wind along the gradient
    /// of u = x gives w·∇u for each test function.
    #[test]
    fn rows_are_the_weak_form() {
        for wind in ["oblique", "recirculating"] {
            let made = generate(&format!("advection:7x6x5,peclet=100,scheme=supg,wind={wind}")).unwrap();
            let (SystemKind::Csr(a), points) = (made.system, made.coordinates.unwrap()) else { panic!() };
            let full: Vec<usize> = (0..a.rows()).filter(|&i| a.row(i).0.len() == 27).collect();
            assert_eq!(full.len(), 5 * 4 * 3);
            for &i in &full {
                let (col, values) = a.row(i);
                assert!(values.iter().sum::<f64>().abs() < 1e-12, "row {i}");
                if wind == "oblique" {
                    // With f = w_x = 6/7 the solution is x, so A x is 6/7 times the right-hand side.
                    let ax: f64 = col.iter().zip(values).map(|(&j, v)| v * points[j as usize][0]).sum();
                    assert!((ax - 6.0 / 7.0 * made.rhs[i]).abs() < 1e-12, "row {i}");
                }
            }
        }
    }
}

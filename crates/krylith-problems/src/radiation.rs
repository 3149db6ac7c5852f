//! A time step of radiation diffusion through hot matter, with one temperature or three (radiation,
//! electrons, ions).
//!
//! Radiation (energy a T_r⁴), electrons and ions of a plasma each conduct heat and exchange it locally:
//!
//! ```text
//! 4aT_r³ ∂T_r/∂t = ∇·(λ_r ∇T_r) + X
//! ρc_e   ∂T_e/∂t = ∇·(λ_e ∇T_e) − X + ω(T_i − T_e)
//! ρc_i   ∂T_i/∂t = ∇·(λ_i ∇T_i)     + ω(T_e − T_i)
//!
//! X = cσa(T_e⁴ − T_r⁴)                                  emission less absorption
//! λ_r = 4aT³ c / (3σ + |∇E|/E), E = aT⁴                 grey flux-limited diffusion (Wilson's sum)
//! σ = σ₀ T⁻³                                            opacity
//! λ_e = 10⁻⁵ T^2.5/Z, λ_i = λ_e/25                      conduction by particles (Spitzer's power)
//! ω = 40 ρ² T_e^−1.5                                    collisions of electrons and ions (Spitzer's power)
//! ```
//!
//! These are the three-temperature equations of inertial confinement fusion (Mo, Shen & Wittum, 2004), with
//! the limiter and the coefficients at faces as in Knoll, Rider & Olson (1999). Units: cm, sh (10⁻⁸ s), keV,
//! jerk (10⁹ J), g; then c = 299.79 cm/sh and a = 0.01372 jerk/(cm³ keV⁴). Coefficients have realistic sizes
//! but are only models.
//!
//! **Step.** Implicit Euler of length `dt` with cells of h³ (7 points, finite volumes); coefficients are
//! those of the old state T*. A face uses T = (T_i + T_j)/2, evaluates each side's material at that T, and
//! takes the harmonic mean of both, so a front can advance into cold matter. X is linearised in the new
//! temperatures in one of two ways:
//!
//! ```text
//! newton   X* + 4cσa(T_e*³ (T_e − T_e*) − T_r*³ (T_r − T_r*))     not symmetric; overshoots in long steps
//! secant   cσa(T_e*² + T_r*²)(T_e* + T_r*)(T_e − T_r)             symmetric
//! ```
//!
//! Both conserve energy: column sums of the matrix are the heat capacities over dt (plus the flux through the
//! driven face). The matrix is an M-matrix, strictly column-dominant. With `secant` it is also row-dominant,
//! so temperatures stay within those of the old state and of the drive. Neighbours are coupled field by
//! field: a 3×3 block off the diagonal has three nonzeros, one on the diagonal seven. At 128³ the matrix has
//! 52,133,888 nonzeros.
//!
//! With one component all temperatures are equal, and the equation is the sum of the three: symmetric.
//!
//! **State.** A box of `length` along x, of cubic cells. Radiation of temperature `drive` enters through
//! x = 0; the other faces are insulated. A wave with an uneven front has travelled about two thirds of the
//! way into light matter (ρ = 0.1, like plastic foam). The light matter contains dense lumps (ρ = 10, like
//! gold), 8 along the shortest edge, with `contrast` times its opacity. Electrons and ions lag behind the
//! radiation. Temperatures fall from `drive` to `cold`.

use krylith_base::threads::collect;
use krylith_core::Result;
use krylith_core::partition::contiguous;
use std::ops::Range;

use crate::grid::{Grid, Link, SevenPoint, check_memory};
use crate::noise::{smooth, uniform};
use crate::spec::Spec;

/// Speed of light c, cm/sh.
const LIGHT: f64 = 299.79;
/// Radiation constant a, jerk/(cm³ keV⁴).
const RADIATION: f64 = 0.01372;
/// λ_e at 1 keV and Z = 1, jerk/(cm sh keV).
const CONDUCTION: f64 = 1e-5;
/// λ_e/λ_i.
const ION_CONDUCTION: f64 = 25.0;
/// ω at 1 keV and 1 g/cm³, jerk/(cm³ sh keV).
const COLLISIONS: f64 = 40.0;
/// σ₀ of the light matter, 1/cm at 1 keV.
const OPACITY: f64 = 0.1;
/// Lumps along the shortest edge of the box.
const LUMPS: usize = 8;

/// Material of a cell.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Matter {
    /// ρ, g/cm³.
    density: f64,
    /// c_e and c_i, jerk/(g keV): 0.1447 Z/A and 0.1447/A.
    heat: [f64; 2],
    /// σ₀, 1/cm at 1 keV.
    opacity: f64,
    /// Mean charge Z.
    charge: f64,
}

/// The old state T* of a cell: temperatures of radiation, electrons and ions, keV.
#[derive(Debug, Clone, Copy, PartialEq)]
struct State {
    t: [f64; 3],
    dense: bool,
}

/// One rank's rows of the step.
pub(crate) struct Radiation {
    grid: Grid,
    own: Range<usize>,
    /// State of the cells that own rows use, from cell `first` on.
    state: Vec<State>,
    first: usize,
    three: bool,
    newton: bool,
    /// The light and the dense matter.
    matter: [Matter; 2],
    /// Edge of a cell, cm.
    h: f64,
    dt: f64,
    drive: f64,
}

impl Radiation {
    /// Builds the rows of `rank` among `ranks`.
    pub fn new(spec: &Spec, rank: usize, ranks: usize) -> Result<Self> {
        let grid = Grid::new(spec.grid())?;
        let three = spec.choice("components", &["1", "3"])? == 1;
        let newton = spec.choice("linearization", &["newton", "secant"])? == 0;
        let (dt, contrast) = (spec.positive("dt")?, spec.positive("contrast")?);
        let (drive, cold) = (spec.positive("drive")?, spec.positive("cold")?);
        let h = spec.positive("length")? / spec.size[0] as f64;
        let seed = spec.whole("seed", 0..=u64::MAX)?;
        if cold > drive {
            return Err(spec.bad("cold", "at most drive"));
        }

        let own = contiguous(grid.len(), rank, ranks);
        let window = grid.window(&own);
        check_memory("radiation diffusion", own.len(), if three { 3 } else { 1 }, 0)?;
        check_memory("radiation diffusion", window.len(), 0, size_of::<State>())?;
        let first = window.start;
        let state = collect(window, 1024, &|i| state(seed, grid.position(i), grid.sizes(), [drive, cold]));
        let light = Matter { density: 0.1, heat: [0.078, 0.0223], opacity: OPACITY, charge: 3.5 };
        let dense =
            Matter { density: 10.0, heat: [0.0367, 7.35e-4], opacity: contrast * OPACITY, charge: 50.0 };
        Ok(Self { grid, own, state, first, three, newton, matter: [light, dense], h, dt, drive })
    }

    fn state(&self, i: usize) -> (State, Matter) {
        let state = self.state[i - self.first];
        (state, self.matter[usize::from(state.dense)])
    }

    /// Returns λ of `field` at a face between temperatures `t` and `s`, `distance` apart, with these
    /// materials on its sides.
    fn conductivity(&self, field: usize, [t, s]: [f64; 2], sides: [Matter; 2], distance: f64) -> f64 {
        let mid = 0.5 * (t + s);
        if field == 0 {
            let (hot, cool) = (t.powi(4), s.powi(4));
            let sigma = 0.5 * (sides[0].opacity + sides[1].opacity) / mid.powi(3);
            let slope = (hot - cool).abs() / (distance * (0.5 * (hot + cool)));
            return 4.0 * RADIATION * mid.powi(3) * LIGHT / (3.0 * sigma + slope);
        }
        // λ is c/Z with a common c, so the harmonic mean is c over the mean charge.
        let electrons = CONDUCTION * mid.powi(2) * mid.sqrt() / (0.5 * (sides[0].charge + sides[1].charge));
        if field == 1 { electrons } else { electrons / ION_CONDUCTION }
    }

    /// Returns λA/d of the face between cells `i` and `j`, for each component.
    fn face(&self, i: usize, j: usize) -> [f64; 3] {
        let ((u, m), (v, n)) = (self.state(i), self.state(j));
        let each = |field| self.h * self.conductivity(field, [u.t[field], v.t[field]], [m, n], self.h);
        if self.three {
            return std::array::from_fn(each);
        }
        let all = |field| self.h * self.conductivity(field, [u.t[0], v.t[0]], [m, n], self.h);
        [all(0) + all(1) + all(2), 0.0, 0.0]
    }

    /// Returns λA/d of radiation through the face x = 0 if the cell touches it, else 0; A is the area of the
    /// face, d the distance from the cell's centre to it.
    fn driven(&self, i: usize) -> f64 {
        if self.grid.position(i)[0] > 0 {
            return 0.0;
        }
        let (u, m) = self.state(i);
        2.0 * self.h * self.conductivity(0, [u.t[0], self.drive], [m, m], 0.5 * self.h)
    }

    /// Returns heat capacities times volume over dt, for each component.
    fn capacity(&self, i: usize) -> [f64; 3] {
        let (u, m) = self.state(i);
        let rate = self.h.powi(3) / self.dt;
        let heat = [4.0 * RADIATION * u.t[0].powi(3), m.density * m.heat[0], m.density * m.heat[1]];
        if self.three { heat.map(|c| rate * c) } else { [rate * (heat[0] + heat[1] + heat[2]), 0.0, 0.0] }
    }

    /// Returns h³ times the derivatives of X by T_e and by −T_r, ω, and X minus its linear part.
    fn exchange(&self, i: usize) -> [f64; 4] {
        let (u, m) = self.state(i);
        let [r, e, _] = u.t;
        let volume = self.h.powi(3);
        let emission = volume * LIGHT * m.opacity / e.powi(3) * RADIATION;
        let collisions = volume * COLLISIONS * m.density * m.density / (e * e.sqrt());
        if self.newton {
            // X* + 4c(e³ (T_e − e) − r³ (T_r − r)) = −3X* + …, for X* = c(e⁴ − r⁴).
            let rest = -3.0 * emission * (e.powi(4) - r.powi(4));
            [4.0 * emission * e.powi(3), 4.0 * emission * r.powi(3), collisions, rest]
        } else {
            let secant = emission * (e * e + r * r) * (e + r);
            [secant, secant, collisions, 0.0]
        }
    }
}

impl SevenPoint for Radiation {
    const NAME: &'static str = "radiation";

    fn grid(&self) -> Grid {
        self.grid
    }
    fn own(&self) -> Range<usize> {
        self.own.clone()
    }
    fn block(&self) -> usize {
        if self.three { 3 } else { 1 }
    }

    fn row(&self, i: usize, links: &[Link], blocks: &mut [f64]) {
        let b = self.block();
        let mut diagonal = self.capacity(i);
        diagonal[0] += self.driven(i);
        for (link, block) in links.iter().zip(blocks.chunks_exact_mut(b * b)) {
            if link.axis.is_some() {
                let face = self.face(i, link.cell);
                for c in 0..b {
                    block[c * (b + 1)] = -face[c];
                    diagonal[c] += face[c];
                }
            }
        }
        let Some(centre) = links.iter().position(|link| link.axis.is_none()) else { return };
        let block = &mut blocks[centre * b * b..][..b * b];
        for c in 0..b {
            block[c * (b + 1)] = diagonal[c];
        }
        if self.three {
            let [by_e, by_r, collisions, _] = self.exchange(i);
            block[0] += by_r;
            block[1] = -by_e;
            block[3] = -by_r;
            block[4] += by_e + collisions;
            block[5] = -collisions;
            block[7] = -collisions;
            block[8] += collisions;
        }
    }

    fn rhs(&self, i: usize, out: &mut [f64]) {
        let (u, _) = self.state(i);
        let capacity = self.capacity(i);
        for (c, out) in out.iter_mut().enumerate() {
            *out = capacity[c] * u.t[c];
        }
        out[0] += self.driven(i) * self.drive;
        if self.three {
            let rest = self.exchange(i)[3];
            out[0] += rest;
            out[1] -= rest;
        }
    }

    /// Returns the centre of the cell in cm.
    fn coordinate(&self, i: usize) -> [f64; 3] {
        self.grid.position(i).map(|x| self.h * (x as f64 + 0.5))
    }
}

/// Returns the old state of the cell at a grid position.
fn state(seed: u64, at: [usize; 3], sizes: [usize; 3], [drive, cold]: [f64; 2]) -> State {
    let shortest = sizes.into_iter().min().unwrap_or(1) as f64;
    // Each cube of this lattice contains a ball of dense matter.
    let place = at.map(|x| (x as f64 + 0.5) / shortest * LUMPS as f64);
    let cube = place.map(|x| x as u64);
    let radius = 0.25 + 0.2 * uniform(seed, 21, cube);
    let dense = (0..3)
        .map(|d| {
            let centre = radius + (1.0 - 2.0 * radius) * uniform(seed, 22 + d as u64, cube);
            (place[d] - cube[d] as f64 - centre).powi(2)
        })
        .sum::<f64>()
        < radius * radius;

    // A Marshak wave: flat behind its front, steep at it.
    let front = 0.65 + 0.08 * smooth(seed, 25, [0.0, 0.5 * place[1], 0.5 * place[2]]);
    let x = (at[0] as f64 + 0.5) / sizes[0] as f64;
    let radiation = cold + (drive - cold) * (1.0 - x / front).max(0.0).sqrt().sqrt();
    let lag = if dense { [1.0, 0.5, 0.4] } else { [1.0, 0.9, 0.8] };
    State { t: lag.map(|lag| cold + lag * (radiation - cold)), dense }
}

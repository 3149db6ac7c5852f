//! The distribution of gas, liquid and solid: a pool with bubbles under gas with droplets, and melting
//! columns.
//!
//! Each cell is computed from its position alone, with only additions, products and square roots. The fields
//! therefore have the same bits on every machine and on any number of ranks.

use crate::noise::{smooth, uniform};

/// Share of the lattice's cubes with a bubble or droplet.
const SHARE: f64 = 0.25;

/// Options of [`Phases`]. Lengths are in units of the cell's edge along x.
///
/// # Examples
/// ```
/// use krylith_problems::multiphase::PhaseOptions;
/// let hard = PhaseOptions { contrast: 1e6, bubbles: 4, gap: 1.0, ..PhaseOptions::default() };
/// assert_eq!(hard.seed, 1);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PhaseOptions {
    /// Density of the liquid; that of gas is 1.
    pub contrast: f64,
    /// Density of the solid over that of the liquid.
    pub solid: f64,
    /// Places for a bubble along the box's shortest edge, a quarter of them occupied; 0 for no bubbles.
    pub bubbles: u32,
    /// Columns along the shorter edge of x and y; 0 for no solid.
    pub columns: u32,
    /// Thickness of a closed layer of gas inside each column; 0 for none.
    pub gap: f64,
    /// Half the thickness over which one phase becomes the other.
    pub width: f64,
    /// Seed of every random number.
    pub seed: u64,
}

impl Default for PhaseOptions {
    /// Returns the defaults of the problem `poisson-multiphase`.
    fn default() -> Self {
        Self { contrast: 1000.0, solid: 8.0, bubbles: 1, columns: 3, gap: 0.0, width: 1.0, seed: 1 }
    }
}

/// Gas, liquid and solid in a box of cells.
///
/// - **Liquid** fills the lower two thirds, up to a wavy surface; gas is above.
/// - **Bubbles** of gas, of random size and position, occupy every fourth cube of a lattice in the liquid;
///   above the surface the same cubes hold droplets.
/// - **Columns** of solid stand on a square lattice and end at random heights. Their lower part has molten:
///   there they swell and narrow, and melt covers the floor. A `gap` is a layer of gas inside each column.
///
/// # Examples
/// ```
/// use krylith_problems::multiphase::{PhaseOptions, Phases};
/// let options = PhaseOptions { bubbles: 0, columns: 0, ..PhaseOptions::default() };
/// let phases = Phases::new([16, 8, 32], [1.0; 3], options);
/// let bottom = phases.fractions([8, 4, 0]);
/// assert!((bottom.iter().sum::<f64>() - 1.0).abs() < 1e-12); // shares of gas, liquid and solid
/// assert!(bottom[1] > 0.99 && phases.density(bottom) > 990.0); // liquid, a thousand times as dense as gas
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Phases {
    spacing: [f64; 3],
    /// Lengths of the box.
    length: [f64; 3],
    /// Edge of a cube that may hold a bubble, and of a square with one column.
    cube: Option<f64>,
    square: Option<f64>,
    options: PhaseOptions,
}

impl Phases {
    /// Creates the phases in a box of `cells` cells with edges `spacing`.
    pub fn new(cells: [usize; 3], spacing: [f64; 3], options: PhaseOptions) -> Self {
        let length: [f64; 3] = std::array::from_fn(|d| cells[d] as f64 * spacing[d]);
        let side = length[0].min(length[1]);
        let each = |edge: f64, count: u32| (count > 0).then(|| edge / f64::from(count));
        Self {
            spacing,
            length,
            cube: each(side.min(length[2]), options.bubbles),
            square: each(side, options.columns),
            options,
        }
    }

    /// Returns the shares of gas, liquid and solid in the cell at a grid position; they add up to 1.
    pub fn fractions(&self, at: [usize; 3]) -> [f64; 3] {
        let place: [f64; 3] = std::array::from_fn(|d| self.spacing[d] * (at[d] as f64 + 0.5));
        let surface = self.surface(place);
        let ball = self.ball(place);
        let [solid, gap] = self.column(place);
        let liquid = (surface * (1.0 - ball) + (1.0 - surface) * ball) * (1.0 - gap);
        [(1.0 - solid) * (1.0 - liquid), (1.0 - solid) * liquid, solid]
    }

    /// Returns the density for these shares.
    pub fn density(&self, [gas, liquid, solid]: [f64; 3]) -> f64 {
        gas + self.options.contrast * (liquid + self.options.solid * solid)
    }

    /// Returns 1 if `depth` below an interface exceeds the half thickness, 0 as far above it, and a smooth
    /// value in between.
    fn inside(&self, depth: f64) -> f64 {
        if depth.abs() >= self.options.width {
            return f64::from(u8::from(depth > 0.0));
        }
        let t = 0.5 + 0.5 * depth / self.options.width;
        t * t * (3.0 - 2.0 * t)
    }

    /// Returns 1 below the surface of the pool, 0 above.
    fn surface(&self, [x, y, z]: [f64; 3]) -> f64 {
        let wave = self.length[0].min(self.length[1]) / 3.0;
        let height =
            0.65 * self.length[2] + 0.15 * wave * smooth(self.options.seed, 51, [x / wave, y / wave, 0.0]);
        self.inside(height - z)
    }

    /// Returns 1 inside the ball of this position's cube, if the cube has one.
    fn ball(&self, place: [f64; 3]) -> f64 {
        let Some(edge) = self.cube else { return 0.0 };
        let (seed, cube) = (self.options.seed, place.map(|x| (x / edge) as u64));
        if uniform(seed, 56, cube) >= SHARE {
            return 0.0;
        }
        // Balls leave a film of the other phase between them and the sides of their cube.
        let radius = edge * (0.2 + 0.24 * uniform(seed, 52, cube));
        let room = 0.96 * edge - 2.0 * radius;
        let distance = (0..3)
            .map(|d| {
                let centre =
                    edge * (cube[d] as f64 + 0.5) + room * (uniform(seed, 53 + d as u64, cube) - 0.5);
                (place[d] - centre) * (place[d] - centre)
            })
            .sum::<f64>()
            .sqrt();
        self.inside(radius - distance)
    }

    /// Returns 1 in solid, and 1 in a column's layer of gas.
    fn column(&self, [x, y, z]: [f64; 3]) -> [f64; 2] {
        let Some(edge) = self.square else { return [0.0; 2] };
        let (seed, height) = (self.options.seed, self.length[2]);
        let square = [(x / edge) as u64, (y / edge) as u64, 0];
        let centre = |d: usize| edge * (square[d] as f64 + 0.45 + 0.1 * uniform(seed, 57 + d as u64, square));
        let (dx, dy) = (x - centre(0), y - centre(1));
        let distance = (dx * dx + dy * dy).sqrt();
        let top = height * (0.5 + 0.4 * uniform(seed, 59, square));
        let mut radius = 0.25 * edge;
        let mut depth = f64::NEG_INFINITY;
        if z < 0.4 * height {
            // Melting: strongest near the floor.
            let share = 1.0 - z / (0.4 * height);
            let swell = smooth(seed, 60, [x / edge * 2.0, y / edge * 2.0, z / edge * 2.0]);
            radius += 0.05 * edge * share * (1.0 + swell);
            let floor = 0.04 * height + 0.1 * edge * smooth(seed, 61, [x / edge * 2.0, y / edge * 2.0, 0.0]);
            depth = floor - z;
        }
        depth = depth.max((radius - distance).min(top - z));
        let solid = self.inside(depth);
        let half = 0.5 * self.options.gap;
        if half == 0.0 {
            return [solid, 0.0];
        }
        let layer = (half - (distance - 0.16 * edge).abs()).min(top - 0.1 * edge - z);
        let gap = self.inside(layer);
        [solid * (1.0 - gap), gap]
    }
}

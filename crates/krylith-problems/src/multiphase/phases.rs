//! Where gas, liquid and solid are: a pool with bubbles under gas with droplets, columns that melt.
//!
//! Each cell knows its place alone, and only additions, products and square roots are used: the fields have the same
//! bits on every machine and on any number of ranks.

use crate::noise::{smooth, uniform};

/// Cubes of the lattice that have a bubble or droplet.
const SHARE: f64 = 0.25;

/// What [`Phases`] are made of. Lengths count the cell's edge along x.
///
/// # Examples
/// ```
/// use krylith_problems::multiphase::PhaseOptions;
/// let hard = PhaseOptions { contrast: 1e6, bubbles: 4, gap: 1.0, ..PhaseOptions::default() };
/// assert_eq!(hard.seed, 1);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PhaseOptions {
    /// Density of the liquid; gas has 1.
    pub contrast: f64,
    /// Density of the solid over that of the liquid.
    pub solid: f64,
    /// Places for a bubble along the box's shortest edge, of which a quarter are taken; 0 for none.
    pub bubbles: u32,
    /// Columns along the shorter edge of x and y; 0 for no solid.
    pub columns: u32,
    /// Thickness of a closed layer of gas inside each column; 0 for none.
    pub gap: f64,
    /// Half the thickness over which one phase becomes the other.
    pub width: f64,
    /// Of every random number.
    pub seed: u64,
}

impl Default for PhaseOptions {
    /// Those of the problem `poisson-multiphase`.
    fn default() -> Self {
        Self { contrast: 1000.0, solid: 8.0, bubbles: 1, columns: 3, gap: 0.0, width: 1.0, seed: 1 }
    }
}

/// Gas, liquid and solid in a box of cells.
///
/// - **Liquid** fills the lower two thirds, up to a wavy surface; gas is above.
/// - **Bubbles** of gas stand in the liquid, one in every fourth cube of a lattice, of random size and place; above the
///   surface droplets do.
/// - **Columns** of solid stand on a square lattice and end at random heights. In their lower part they have molten: there
///   they swell and narrow, and what has run down covers the floor. A `gap` is a layer of gas inside each column.
///
/// # Examples
/// ```
/// use krylith_problems::multiphase::{PhaseOptions, Phases};
/// let phases = Phases::new([16, 8, 32], [1.0; 3], PhaseOptions { bubbles: 0, columns: 0, ..PhaseOptions::default() });
/// let bottom = phases.fractions([8, 4, 0]);
/// assert!((bottom.iter().sum::<f64>() - 1.0).abs() < 1e-12); // shares of gas, liquid and solid
/// assert!(bottom[1] > 0.99 && phases.density(bottom) > 990.0); // liquid, a thousand times as dense as gas
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Phases {
    spacing: [f64; 3],
    /// Lengths of the box.
    length: [f64; 3],
    /// Edge of a cube with one bubble, and of a square with one column.
    cube: Option<f64>,
    square: Option<f64>,
    options: PhaseOptions,
}

impl Phases {
    /// In a box of so many cells with these edges.
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

    /// Shares of gas, liquid and solid in the cell at a grid position; they add up to 1.
    pub fn fractions(&self, at: [usize; 3]) -> [f64; 3] {
        let place: [f64; 3] = std::array::from_fn(|d| self.spacing[d] * (at[d] as f64 + 0.5));
        let surface = self.surface(place);
        let ball = self.ball(place);
        let [solid, gap] = self.column(place);
        let liquid = (surface * (1.0 - ball) + (1.0 - surface) * ball) * (1.0 - gap);
        [(1.0 - solid) * (1.0 - liquid), (1.0 - solid) * liquid, solid]
    }

    /// The density of these shares.
    pub fn density(&self, [gas, liquid, solid]: [f64; 3]) -> f64 {
        gas + self.options.contrast * (liquid + self.options.solid * solid)
    }

    /// 1 where `depth` below a border is more than its half thickness, 0 where it is as far above, smooth between.
    fn inside(&self, depth: f64) -> f64 {
        if depth.abs() >= self.options.width {
            return f64::from(u8::from(depth > 0.0));
        }
        let t = 0.5 + 0.5 * depth / self.options.width;
        t * t * (3.0 - 2.0 * t)
    }

    /// 1 below the surface of the pool, 0 above.
    fn surface(&self, [x, y, z]: [f64; 3]) -> f64 {
        let wave = self.length[0].min(self.length[1]) / 3.0;
        let height =
            0.65 * self.length[2] + 0.15 * wave * smooth(self.options.seed, 51, [x / wave, y / wave, 0.0]);
        self.inside(height - z)
    }

    /// 1 in the ball of this place's cube, if it has one.
    fn ball(&self, place: [f64; 3]) -> f64 {
        let Some(edge) = self.cube else { return 0.0 };
        let (seed, cube) = (self.options.seed, place.map(|x| (x / edge) as u64));
        if uniform(seed, 56, cube) >= SHARE {
            return 0.0;
        }
        // Balls keep a film between them and the side of their cube.
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

    /// 1 in solid, and 1 in a column's layer of gas.
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
            // Molten: most near the floor.
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

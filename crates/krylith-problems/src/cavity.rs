//! Lid-driven cavity: flow in a square in velocity and vorticity.
//!
//! In the unit square, u = (u, v) is zero on all walls but the lid y = 1, where u = 1:
//!
//! ```text
//! −Δu − ∂ω/∂y = 0     −Δv + ∂ω/∂x = 0     −(1/Re) Δω + u ∂ω/∂x + v ∂ω/∂y = 0
//! ```
//!
//! The equations are discretised by central differences on a grid of nx × ny nodes, walls included, numbered
//! with x fastest; rows are multiplied by hₓ h_y. On a wall u and v are given, and ω follows from
//! ω = ∂v/∂x − ∂u/∂y half a cell away from it: (ω₀ + ω₁)/2 = −(u₁ − u₀)/h at y = 0 and likewise at the other
//! walls. This is of second order; such rows are multiplied by h. The ω of a corner is the mean of its two
//! neighbours and enters no other row. Every row couples a node to at most four neighbours: a 5-point pattern
//! with 3×3 blocks.

use krylith_base::threads::each_chunk;
use krylith_core::matrix::Bsr;
use krylith_core::newton::NonlinearSystem;
use krylith_core::{Error, Result};
use rayon::prelude::*;

use crate::memory;
use crate::nonlinear::{Cells, Field, NonlinearProblem, Picture};
use crate::spec::Spec;

/// Unknowns of a node: u, v, ω.
const B: usize = 3;
/// Numbers of a block.
const BB: usize = B * B;
/// Cells of a picture along the longer side, at most.
const PICTURE: usize = 200;

/// The lid-driven cavity on a grid.
///
/// # Examples
/// ```
/// use krylith::newton::{Newton, NewtonOptions};
/// use krylith_problems::{cavity::Cavity, nonlinear::NonlinearProblem};
/// let mut cavity = Cavity::new([17, 17], 10.0)?;
/// let mut x = cavity.initial();
/// let mut newton = Newton::new(NewtonOptions::default(), &"device=cpu".parse()?)?;
/// let report = newton.solve(&mut cavity, &mut x)?.clone();
/// assert!(report.converged());
/// let u = cavity.vertical(&x, 0); // along the centre line
/// // The lid moves with velocity 1; below it the fluid flows back.
/// assert!((u[u.len() - 1] - 1.0).abs() < 1e-6 && u.iter().any(|u| *u < 0.0));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Cavity {
    nodes: [usize; 2],
    re: f64,
    pattern: Bsr,
    coordinates: Vec<[f64; 3]>,
    spec: String,
}

/// The five points of a node's stencil, in the order of their numbers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Point {
    South,
    West,
    Centre,
    East,
    North,
}
use Point::{Centre, East, North, South, West};

/// A function that receives the coefficient of component `column` at a stencil point, in row `row` of this
/// node.
type Put<'a> = &'a mut dyn FnMut(Point, usize, usize, f64);

impl Cavity {
    /// Builds the cavity on a grid of `nodes` in x and y, walls included, at Reynolds number `re`.
    ///
    /// # Errors
    /// Returns an error for fewer than 4 nodes along a side, for more unknowns than 32-bit numbers can
    /// count, for a Reynolds number that is not positive, and if memory is not sufficient.
    pub fn new(nodes: [usize; 2], re: f64) -> Result<Self> {
        let [nx, ny] = nodes;
        if nx < 4 || ny < 4 {
            return Err(Error::invalid(format!(
                "a cavity of {nx}x{ny} nodes is too small; expected at least 4 in each direction"
            )));
        }
        let n = nx.checked_mul(ny).filter(|n| *n < u32::MAX as usize / B).ok_or_else(|| {
            Error::invalid(format!(
                "a cavity of {nx}x{ny} nodes has more unknowns than 32-bit numbers can count"
            ))
        })?;
        memory::check("the cavity's Jacobian", (n * 5 * (BB * 8 + 4) + n * (24 + 8)) as u64)?;
        let [hx, hy] = [1.0 / (nx - 1) as f64, 1.0 / (ny - 1) as f64];
        let (mut row_ptr, mut col) = (Vec::with_capacity(n + 1), Vec::with_capacity(5 * n));
        let mut coordinates = Vec::with_capacity(n);
        row_ptr.push(0);
        for i in 0..n {
            let (x, y) = (i % nx, i / nx);
            for (there, j) in [
                (y > 0, i.wrapping_sub(nx)),
                (x > 0, i.wrapping_sub(1)),
                (true, i),
                (x + 1 < nx, i + 1),
                (y + 1 < ny, i + nx),
            ] {
                if there {
                    col.push(j as u32);
                }
            }
            row_ptr.push(col.len());
            coordinates.push([x as f64 * hx, y as f64 * hy, 0.0]);
        }
        let values = vec![0.0; col.len() * BB];
        let pattern = Bsr::new(B, n, n, row_ptr, col, values)?;
        let mut cavity = Self { nodes, re: 1.0, pattern, coordinates, spec: String::new() };
        cavity.set_reynolds(re)?;
        Ok(cavity)
    }

    pub(crate) fn from_spec(spec: &Spec) -> Result<Self> {
        Self::new([spec.size[0], spec.size[1]], spec.positive("re")?)
    }

    /// Returns the Reynolds number.
    pub fn reynolds(&self) -> f64 {
        self.re
    }

    /// Sets the Reynolds number.
    ///
    /// # Errors
    /// Returns an error if the number is not positive and finite.
    pub fn set_reynolds(&mut self, re: f64) -> Result<()> {
        if !(re > 0.0 && re.is_finite()) {
            return Err(Error::invalid(format!("a Reynolds number of {re}: it must be positive")));
        }
        self.re = re;
        self.spec = format!("cavity:{}x{},re={re}", self.nodes[0], self.nodes[1]);
        Ok(())
    }

    /// Returns component c of x on the vertical line x = 1/2, from the floor to the lid. Between two columns
    /// of nodes it is their mean.
    pub fn vertical(&self, x: &[f64], c: usize) -> Vec<f64> {
        let [nx, ny] = self.nodes;
        let (left, right) = ((nx - 1) / 2, nx / 2);
        (0..ny).map(|j| 0.5 * (x[(j * nx + left) * B + c] + x[(j * nx + right) * B + c])).collect()
    }

    /// Returns component c of x on the horizontal line y = 1/2, from left to right. Between two rows of nodes
    /// it is their mean.
    pub fn horizontal(&self, x: &[f64], c: usize) -> Vec<f64> {
        let [nx, ny] = self.nodes;
        let (below, above) = ((ny - 1) / 2, ny / 2);
        (0..nx).map(|i| 0.5 * (x[(below * nx + i) * B + c] + x[(above * nx + i) * B + c])).collect()
    }

    fn spacing(&self) -> [f64; 2] {
        [1.0 / (self.nodes[0] - 1) as f64, 1.0 / (self.nodes[1] - 1) as f64]
    }

    /// Returns the prescribed u of a node in grid row `j`: 1 on the lid, 0 elsewhere.
    fn lid(&self, j: usize) -> f64 {
        if j + 1 == self.nodes[1] { 1.0 } else { 0.0 }
    }

    /// Passes the coefficients of a wall node's rows, whose equations are linear, to `put`.
    fn wall(&self, [i, j]: [usize; 2], put: Put) {
        let ([nx, ny], [hx, hy]) = (self.nodes, self.spacing());
        put(Centre, 0, 0, 1.0);
        put(Centre, 1, 1, 1.0);
        let (left, right, floor, lid) = (i == 0, i + 1 == nx, j == 0, j + 1 == ny);
        if (left || right) && (floor || lid) {
            put(Centre, 2, 2, 1.0);
            put(if left { East } else { West }, 2, 2, -0.5);
            put(if floor { North } else { South }, 2, 2, -0.5);
            return;
        }
        // (h/2)(ω₀ + ω₁) minus the difference of the tangential velocity, in the direction of its axis.
        let (inner, h, component, sign) = match () {
            () if floor => (North, hy, 0, 1.0),
            () if lid => (South, hy, 0, -1.0),
            () if left => (East, hx, 1, -1.0),
            () => (West, hx, 1, 1.0),
        };
        put(Centre, 2, 2, 0.5 * h);
        put(inner, 2, 2, 0.5 * h);
        put(inner, 2, component, sign);
        put(Centre, 2, component, -sign);
    }

    fn is_wall(&self, [i, j]: [usize; 2]) -> bool {
        i == 0 || j == 0 || i + 1 == self.nodes[0] || j + 1 == self.nodes[1]
    }

    /// Returns the number of a node's neighbour.
    fn neighbour(&self, node: usize, point: Point) -> usize {
        match point {
            South => node - self.nodes[0],
            West => node - 1,
            Centre => node,
            East => node + 1,
            North => node + self.nodes[0],
        }
    }

    fn check(&self, what: &str, found: usize, wanted: usize) -> Result<()> {
        if found == wanted {
            return Ok(());
        }
        Err(Error::invalid(format!("{what} has {found} numbers; `{}` needs {wanted}", self.spec)))
    }
}

impl NonlinearSystem for Cavity {
    fn pattern(&self) -> &Bsr {
        &self.pattern
    }

    fn residual(&mut self, x: &[f64], f: &mut [f64]) -> Result<()> {
        self.check("x", x.len(), self.pattern.rows())?;
        self.check("f", f.len(), self.pattern.rows())?;
        let (this, nx, [hx, hy]) = (&*self, self.nodes[0], self.spacing());
        let (along, across) = (hy / hx, hx / hy);
        each_chunk(f, nx * B, 1, &|j, line| {
            for (i, f) in line.chunks_exact_mut(B).enumerate() {
                let node = j * nx + i;
                let at = |point, c| x[this.neighbour(node, point) * B + c];
                if this.is_wall([i, j]) {
                    f.fill(0.0);
                    f[0] = -this.lid(j);
                    this.wall([i, j], &mut |point, row, column, a| f[row] += a * at(point, column));
                    continue;
                }
                // −Δ of a component, and the central differences of ω, all times hₓ h_y.
                let minus_laplacian = |c| {
                    along * (2.0 * at(Centre, c) - at(East, c) - at(West, c))
                        + across * (2.0 * at(Centre, c) - at(North, c) - at(South, c))
                };
                let omega_x = 0.5 * hy * (at(East, 2) - at(West, 2));
                let omega_y = 0.5 * hx * (at(North, 2) - at(South, 2));
                f[0] = minus_laplacian(0) - omega_y;
                f[1] = minus_laplacian(1) + omega_x;
                f[2] = minus_laplacian(2) / this.re + at(Centre, 0) * omega_x + at(Centre, 1) * omega_y;
            }
        });
        Ok(())
    }

    fn jacobian(&mut self, x: &[f64], values: &mut [f64]) -> Result<()> {
        self.check("x", x.len(), self.pattern.rows())?;
        self.check("the Jacobian's values", values.len(), self.pattern.stored())?;
        let (this, [nx, ny], [hx, hy]) = (&*self, self.nodes, self.spacing());
        let (along, across) = (hy / hx, hx / hy);
        // All grid lines but the first and the last have equally many blocks.
        let mut lines = Vec::with_capacity(ny);
        let (ptr, mut rest) = (self.pattern.row_ptr(), values);
        for j in 0..ny {
            let (line, others) = rest.split_at_mut((ptr[(j + 1) * nx] - ptr[j * nx]) * BB);
            lines.push(line);
            rest = others;
        }
        lines.into_par_iter().enumerate().for_each(|(j, line)| {
            line.fill(0.0);
            for i in 0..nx {
                let node = j * nx + i;
                let first = ptr[node] - ptr[j * nx];
                // Position of each neighbour among the blocks of this row.
                let south = usize::from(j > 0);
                let west = south + usize::from(i > 0);
                let place = |point| match point {
                    South => 0,
                    West => south,
                    Centre => west,
                    East => west + 1,
                    North => west + 1 + usize::from(i + 1 < nx),
                };
                let mut put = |point, row: usize, column: usize, a: f64| {
                    line[(first + place(point)) * BB + row * B + column] += a;
                };
                if this.is_wall([i, j]) {
                    this.wall([i, j], &mut put);
                    continue;
                }
                let at = |point, c| x[this.neighbour(node, point) * B + c];
                let (u, v) = (at(Centre, 0), at(Centre, 1));
                for (c, scale) in [(0, 1.0), (1, 1.0), (2, 1.0 / this.re)] {
                    put(Centre, c, c, 2.0 * (along + across) * scale);
                    put(East, c, c, -along * scale);
                    put(West, c, c, -along * scale);
                    put(North, c, c, -across * scale);
                    put(South, c, c, -across * scale);
                }
                put(North, 0, 2, -0.5 * hx);
                put(South, 0, 2, 0.5 * hx);
                put(East, 1, 2, 0.5 * hy);
                put(West, 1, 2, -0.5 * hy);
                put(East, 2, 2, 0.5 * hy * u);
                put(West, 2, 2, -0.5 * hy * u);
                put(North, 2, 2, 0.5 * hx * v);
                put(South, 2, 2, -0.5 * hx * v);
                put(Centre, 2, 0, 0.5 * hy * (at(East, 2) - at(West, 2)));
                put(Centre, 2, 1, 0.5 * hx * (at(North, 2) - at(South, 2)));
            }
        });
        Ok(())
    }

    fn coordinates(&self) -> Option<&[[f64; 3]]> {
        Some(&self.coordinates)
    }
}

impl NonlinearProblem for Cavity {
    fn spec(&self) -> &str {
        &self.spec
    }

    /// Returns the fluid at rest.
    fn initial(&self) -> Vec<f64> {
        vec![0.0; self.pattern.rows()]
    }

    fn components(&self) -> &'static [&'static str] {
        &["u", "v", "omega"]
    }

    fn parameter(&self) -> Option<(&'static str, f64)> {
        Some(("re", self.re))
    }

    fn set_parameter(&mut self, value: f64) -> Result<()> {
        self.set_reynolds(value)
    }

    fn points(&self) -> Vec<[f64; 3]> {
        self.coordinates.clone()
    }

    /// Returns the extremes on the centre lines, for comparison with Marchi, Suero and Araki (2009) at
    /// 1024 × 1024 cells.
    fn figures(&self, x: &[f64]) -> Vec<(&'static str, f64)> {
        let least = |line: Vec<f64>| line.into_iter().fold(f64::INFINITY, f64::min);
        let most = |line: Vec<f64>| line.into_iter().fold(f64::NEG_INFINITY, f64::max);
        vec![
            ("least u on x = 1/2", least(self.vertical(x, 0))),
            ("least v on y = 1/2", least(self.horizontal(x, 1))),
            ("largest v on y = 1/2", most(self.horizontal(x, 1))),
        ]
    }

    fn cells(&self) -> Cells {
        let [nx, ny] = self.nodes;
        let corner = |i: usize, j: usize| (j * nx + i) as u32;
        let squares = (0..ny - 1).flat_map(|j| (0..nx - 1).map(move |i| (i, j)));
        let halves = squares.flat_map(|(i, j)| {
            let [a, b, c, d] = [corner(i, j), corner(i + 1, j), corner(i + 1, j + 1), corner(i, j + 1)];
            [[a, b, c], [a, c, d]]
        });
        Cells::Triangles(halves.collect())
    }

    fn fields(&self, x: &[f64]) -> Vec<(&'static str, Field)> {
        let velocity = x.chunks_exact(B).map(|n| [n[0], n[1], 0.0]).collect();
        let vorticity = x.chunks_exact(B).map(|n| n[2]).collect();
        vec![("velocity", Field::Vector(velocity)), ("vorticity", Field::Scalar(vorticity))]
    }

    /// Returns a picture of the speed; each cell shows its nearest node.
    fn picture(&self, x: &[f64]) -> Option<Picture> {
        let [nx, ny] = self.nodes;
        let [columns, rows] = [nx.min(PICTURE), ny.min(PICTURE)];
        let nearest = |place: usize, cells: usize, nodes: usize| (2 * place + 1) * nodes / (2 * cells);
        let speed = |i: usize, j: usize| {
            let node = (nearest(j, rows, ny) * nx + nearest(i, columns, nx)) * B;
            x[node].hypot(x[node + 1])
        };
        let values = (0..rows).flat_map(|j| (0..columns).map(move |i| speed(i, j))).collect();
        // Cells are centred on nodes.
        let ends = |n: usize| [-0.5 / (n - 1) as f64, 1.0 + 0.5 / (n - 1) as f64];
        let axes = Some([("x", ends(nx)), ("y", ends(ny))]);
        let title = format!("Speed over that of the lid, Re {}", self.re);
        Some(Picture { title, unit: "", axes, columns, rows, values })
    }
}

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
use krylith_core::comm::agree;
use krylith_core::matrix::Bsr;
use krylith_core::memory::Numbers;
use krylith_core::newton::NonlinearSystem;
use krylith_core::partition::Numbering;
use krylith_core::{Error, Problem, Result};

use crate::gpu::{self, OnGpu, Place};
use crate::memory;
use crate::nonlinear::{Cells, Field, NonlinearProblem, Picture};
use crate::share::{self, Cut, Ranks, Share};
use crate::spec::Spec;
use crate::tets::for_rows;

/// Unknowns of a node: u, v, ω.
const B: usize = 3;
/// Numbers of a block.
const BB: usize = B * B;
/// Cells of a picture along the longer side, at most.
const PICTURE: usize = 200;
/// Nodes per task.
const CHUNK: usize = 512;

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
    /// The own rows.
    pattern: Bsr,
    /// For each own node and each point of its stencil, the position of that point's block in the row.
    places: Vec<[u8; 5]>,
    coordinates: Vec<[f64; 3]>,
    spec: String,
    share: Option<Share>,
    place: Place<Self>,
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

const POINTS: [Point; 5] = [South, West, Centre, East, North];

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
        Self::build(nodes, re, None)
    }

    /// Builds the own rows of a rank, if there are several ranks. Collective.
    fn build(nodes: [usize; 2], re: f64, ranks: Option<&Ranks>) -> Result<Self> {
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
        let mut share = None;
        let (pattern, places) = match ranks {
            None => {
                memory::check("the cavity's Jacobian", (n * 5 * (BB * 8 + 4) + n * (24 + 13)) as u64)?;
                own_rows(nodes, 0..n as u64, None).blocks(B, n)?
            }
            Some(ranks) => {
                let graph = agree(&*ranks.comm, own_rows(nodes, 0..n as u64, None).blocks(1, n))?.0;
                let points: Vec<_> = (0..n).map(|i| coordinate(nodes, i)).collect();
                let cut = Cut::new(&graph, &points, Some([nx, ny, 1]), ranks);
                let cut = agree(&*ranks.comm, cut)?;
                let own = (0..n).filter(|&i| cut.owns(&*ranks.comm, i));
                let columns: Vec<u64> = own
                    .flat_map(|i| graph.col()[graph.row_ptr()[i]..graph.row_ptr()[i + 1]].iter())
                    .map(|&j| u64::from(j))
                    .collect();
                let (own, numbering) = Share::new(&ranks.comm, cut, columns)?;
                let all = numbering.global().len();
                let rows = own_rows(nodes, own.numbers().iter().copied(), Some(&numbering)).blocks(B, all);
                share = Some(own);
                agree(&*ranks.comm, rows)?
            }
        };
        let number = |k| share.as_ref().map_or(k, |own| own.numbers()[k] as usize);
        let coordinates = (0..pattern.block_rows()).map(|k| coordinate(nodes, number(k))).collect();
        let spec = String::new();
        let mut cavity =
            Self { nodes, re: 1.0, pattern, places, coordinates, spec, share, place: Place::host() };
        cavity.set_reynolds(re)?;
        Ok(cavity)
    }

    pub(crate) fn from_spec(spec: &Spec, ranks: Option<&Ranks>) -> Result<Self> {
        Self::build([spec.size[0], spec.size[1]], spec.positive("re")?, ranks)
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
        self.place.changed();
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

    /// Returns the numbers of nodes in x and y.
    #[cfg(feature = "cuda")]
    pub(crate) fn nodes(&self) -> [usize; 2] {
        self.nodes
    }
    /// Returns the positions of the five points of each own node's stencil in its row.
    #[cfg(feature = "cuda")]
    pub(crate) fn places(&self) -> &[[u8; 5]] {
        &self.places
    }
    /// Returns the number of an own node in the whole grid.
    pub(crate) fn node(&self, k: usize) -> usize {
        self.share.as_ref().map_or(k, |own| own.numbers()[k] as usize)
    }
    /// Returns the position on the grid of an own node.
    fn position(&self, k: usize) -> [usize; 2] {
        let node = self.node(k);
        [node % self.nodes[0], node / self.nodes[0]]
    }

    /// Returns the local number of the node at a stencil point of an own node.
    #[inline]
    fn neighbour(&self, k: usize, point: Point) -> usize {
        self.pattern.col()[self.pattern.row_ptr()[k] + self.places[k][point as usize] as usize] as usize
    }

    fn check(&self, what: &str, found: usize, wanted: usize) -> Result<()> {
        if found == wanted {
            return Ok(());
        }
        Err(Error::invalid(format!("{what} has {found} numbers; `{}` needs {wanted}", self.spec)))
    }
}

/// Returns the coordinates of a node.
fn coordinate([nx, ny]: [usize; 2], node: usize) -> [f64; 3] {
    let [hx, hy] = [1.0 / (nx - 1) as f64, 1.0 / (ny - 1) as f64];
    [(node % nx) as f64 * hx, (node / nx) as f64 * hy, 0.0]
}

/// Rows of the 5-point pattern.
struct OwnRows {
    row_ptr: Vec<usize>,
    col: Vec<u32>,
    places: Vec<[u8; 5]>,
}

/// Returns the rows of these nodes, with the columns of `numbering` in ascending order.
fn own_rows(
    [nx, ny]: [usize; 2],
    numbers: impl Iterator<Item = u64>,
    numbering: Option<&Numbering>,
) -> OwnRows {
    let mut rows = OwnRows { row_ptr: vec![0], col: Vec::new(), places: Vec::new() };
    for node in numbers {
        let (x, y) = (node as usize % nx, node as usize / nx);
        let far = nx as u64;
        let there = |point| match point {
            South => (y > 0).then(|| node - far),
            West => (x > 0).then(|| node - 1),
            Centre => Some(node),
            East => (x + 1 < nx).then(|| node + 1),
            North => (y + 1 < ny).then(|| node + far),
        };
        let local = |node| numbering.map_or(node as u32, |numbering| numbering.local(node).unwrap_or(0));
        let mut row: Vec<(u32, Point)> =
            POINTS.into_iter().filter_map(|point| Some((local(there(point)?), point))).collect();
        row.sort_unstable_by_key(|(column, _)| *column);
        let mut places = [0; 5];
        for (place, (column, point)) in row.into_iter().enumerate() {
            places[point as usize] = place as u8;
            rows.col.push(column);
        }
        rows.places.push(places);
        rows.row_ptr.push(rows.col.len());
    }
    rows
}

impl OwnRows {
    /// Returns the rows with blocks of zeros and `columns` block columns, and the places of the stencil
    /// points.
    fn blocks(self, block: usize, columns: usize) -> Result<(Bsr, Vec<[u8; 5]>)> {
        let values = vec![0.0; self.col.len() * block * block];
        let pattern = Bsr::new(block, self.places.len(), columns, self.row_ptr, self.col, values)?;
        Ok((pattern, self.places))
    }
}

impl OnGpu for Cavity {
    fn place(&mut self) -> &mut Place<Self> {
        &mut self.place
    }
    fn share(&self) -> Option<&Share> {
        self.share.as_ref()
    }
    #[cfg(feature = "cuda")]
    fn assembly(&self, gpu: usize) -> Result<Option<Box<dyn gpu::Assembly<Self>>>> {
        gpu::cavity::assembly(self, gpu)
    }
}

impl NonlinearSystem for Cavity {
    fn pattern(&self) -> &Bsr {
        &self.pattern
    }

    fn residual(&mut self, x: &[f64], f: &mut [f64]) -> Result<()> {
        self.check("x", x.len(), self.pattern.rows())?;
        self.check("f", f.len(), self.pattern.rows())?;
        let x = share::local(self.share.as_ref(), B, x)?;
        let (this, x, [hx, hy]) = (&*self, &x[..], self.spacing());
        let (along, across) = (hy / hx, hx / hy);
        each_chunk(f, CHUNK * B, 1, &|chunk, part| {
            for (k, f) in part.chunks_exact_mut(B).enumerate() {
                let k = chunk * CHUNK + k;
                let [i, j] = this.position(k);
                let at = |point, c| x[this.neighbour(k, point) * B + c];
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
        let x = share::local(self.share.as_ref(), B, x)?;
        let (this, x, [hx, hy]) = (&*self, &x[..], self.spacing());
        let (along, across) = (hy / hx, hx / hy);
        for_rows(self.pattern.row_ptr(), BB, values, |k, row| {
            row.fill(0.0);
            let [i, j] = this.position(k);
            let mut put = |point: Point, r: usize, column: usize, a: f64| {
                row[this.places[k][point as usize] as usize * BB + r * B + column] += a;
            };
            if this.is_wall([i, j]) {
                this.wall([i, j], &mut put);
                return;
            }
            let at = |point, c| x[this.neighbour(k, point) * B + c];
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
        });
        Ok(())
    }

    fn solves_on(&mut self, gpu: Option<usize>) -> Result<bool> {
        gpu::select(self, gpu)
    }

    fn residual_in_own_memory(&mut self, x: Numbers<'_>) -> Result<Numbers<'_>> {
        gpu::residual(self, x)
    }

    fn jacobian_in_own_memory(&mut self, x: Numbers<'_>) -> Result<Numbers<'_>> {
        gpu::jacobian(self, x)
    }

    fn coordinates(&self) -> Option<&[[f64; 3]]> {
        Some(&self.coordinates)
    }

    fn problem(&self) -> Result<Problem<'_>> {
        share::problem(self, self.share.as_ref())
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

    fn share(&self) -> Option<&Share> {
        self.share.as_ref()
    }

    fn points(&self) -> Vec<[f64; 3]> {
        (0..self.nodes[0] * self.nodes[1]).map(|node| coordinate(self.nodes, node)).collect()
    }

    /// Returns the extremes on the centre lines, for comparison with Marchi, Suero and Araki (2009) at
    /// 1024 × 1024 cells.
    fn figures(&self, x: &[f64]) -> Vec<(String, f64)> {
        let least = |line: Vec<f64>| line.into_iter().fold(f64::INFINITY, f64::min);
        let most = |line: Vec<f64>| line.into_iter().fold(f64::NEG_INFINITY, f64::max);
        vec![
            ("least u on x = 1/2".into(), least(self.vertical(x, 0))),
            ("least v on y = 1/2".into(), least(self.horizontal(x, 1))),
            ("largest v on y = 1/2".into(), most(self.horizontal(x, 1))),
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

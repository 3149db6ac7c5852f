//! Bodies made of discs: a disc of triangles, repeated in layers, with each prism split into three
//! tetrahedra.
//!
//! The disc is a square grid of n×n cells, mapped so that squares around its centre become circles (Shirley
//! and Chiu 1997: all cells have the same area), with rings of 4n cells around it. Diagonals run outwards in
//! each quadrant. They thus halve the cells at the square's corners, where two sides of a cell form one arc.
//! A prism's faces are split from the lower node of the lower number to the upper node of the higher number
//! (Kuhn's rule). Tetrahedra therefore meet face to face, and an interior node has 14 neighbours.

use krylith_base::threads::{collect, each_chunk};
use krylith_core::{Error, Result};
use std::f64::consts::{FRAC_PI_2, FRAC_PI_4, PI};

use super::{Surface, TetMesh};

/// A unit disc of triangles.
///
/// # Examples
/// ```
/// use krylith_problems::tets::Disc;
/// let disc = Disc::new(2, 1)?; // a square of 2×2 cells and a ring
/// assert_eq!((disc.nodes(), disc.triangles()), (9 + 8, 8 + 16));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Disc {
    points: Vec<[f64; 2]>,
    /// Corners ascending.
    triangles: Vec<[u32; 3]>,
    /// Nodes of the rim in order.
    rim: Vec<u32>,
}

impl Disc {
    /// Creates a square of `cells` × `cells` (even) and `rings` rings around it, all equally wide.
    ///
    /// # Errors
    /// Returns an error if the number of cells is odd or zero, or if the disc is too large for 32-bit
    /// numbers.
    pub fn new(cells: usize, rings: usize) -> Result<Self> {
        if cells == 0 || cells % 2 == 1 || cells > 1 << 14 || rings > 1 << 14 {
            return Err(Error::invalid(format!(
                "a disc of {cells} cells and {rings} rings: expected an even number of cells from 2, and at most 16384 each"
            )));
        }
        let (n, half) = (cells, cells / 2);
        let radius = |q: usize| (half + q) as f64 / (half + rings) as f64;
        let mut points = Vec::with_capacity((n + 1) * (n + 1) + 4 * n * rings);
        for j in 0..=n {
            for i in 0..=n {
                let scaled = |k: usize| (k as f64 - half as f64) / half as f64;
                points.push(round(scaled(i), scaled(j)).map(|x| x * radius(0)));
            }
        }
        let at = |i: usize, j: usize| (j * (n + 1) + i) as u32;
        let mut triangles = Vec::with_capacity(2 * n * n + 8 * n * rings);
        for j in 0..n {
            for i in 0..n {
                let (a, b, c, d) = (at(i, j), at(i + 1, j), at(i, j + 1), at(i + 1, j + 1));
                if (i < half) == (j < half) {
                    triangles.extend([[a, b, d], [a, c, d]]);
                } else {
                    triangles.extend([[a, b, c], [b, c, d]]);
                }
            }
        }
        let mut rim: Vec<u32> = (0..n).map(|k| at(k, 0)).collect();
        rim.extend((0..n).map(|k| at(n, k)));
        rim.extend((0..n).map(|k| at(n - k, n)));
        rim.extend((0..n).map(|k| at(0, n - k)));
        for q in 1..=rings {
            let next: Vec<u32> = (0..4 * n).map(|k| (points.len() + k) as u32).collect();
            points.extend((0..4 * n).map(|k| {
                let angle = -0.75 * PI + k as f64 / (2 * n) as f64 * PI;
                [radius(q) * angle.cos(), radius(q) * angle.sin()]
            }));
            for k in 0..4 * n {
                let l = (k + 1) % (4 * n);
                for mut triangle in [[rim[k], rim[l], next[l]], [rim[k], next[k], next[l]]] {
                    triangle.sort_unstable();
                    triangles.push(triangle);
                }
            }
            rim = next;
        }
        Ok(Self { points, triangles, rim })
    }

    /// Returns the number of nodes.
    pub fn nodes(&self) -> usize {
        self.points.len()
    }
    /// Returns the number of triangles.
    pub fn triangles(&self) -> usize {
        self.triangles.len()
    }
}

/// Maps a point of the square [−1, 1]² to the unit disc.
fn round(a: f64, b: f64) -> [f64; 2] {
    if a == 0.0 && b == 0.0 {
        return [0.0, 0.0];
    }
    let (r, angle) =
        if a.abs() >= b.abs() { (a, FRAC_PI_4 * b / a) } else { (b, FRAC_PI_2 - FRAC_PI_4 * a / b) };
    [r * angle.cos(), r * angle.sin()]
}

/// Choice of the nodes of a body that get consecutive numbers.
///
/// # Examples
/// ```
/// use krylith_problems::tets::{Disc, Layers, Numbering, extrude};
/// let body = |numbering| {
///     let layers = Layers { count: 2, numbering, surfaces: ["bottom", "top", "side"] };
///     extrude(&Disc::new(2, 0)?, layers, |[x, y], s| [x, y, s])
/// };
/// let (discs, lines) = (body(Numbering::Discs)?, body(Numbering::Lines)?);
/// assert_eq!(discs.points()[0][2], discs.points()[1][2]); // neighbours in a disc
/// assert_ne!(lines.points()[0][2], lines.points()[1][2]); // neighbours across the discs
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbering {
    /// The nodes of a disc: for long bodies.
    Discs,
    /// The nodes of a line across the discs: for thin bodies.
    Lines,
}

/// Layers of a body made of discs.
///
/// # Examples
/// ```
/// use krylith_problems::tets::{Disc, Layers, Numbering, extrude};
/// let layers = Layers { count: 4, numbering: Numbering::Discs, surfaces: ["inlet", "outlet", "wall"] };
/// let pipe = extrude(&Disc::new(2, 1)?, layers, |[y, z], s| [3.0 * s, y, z])?; // three radii long
/// assert_eq!(pipe.points().len(), 5 * 17);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Layers<'a> {
    /// Number of layers of prisms: one less than discs.
    pub count: usize,
    /// Choice of consecutive numbers.
    pub numbering: Numbering,
    /// Names of the first disc, of the last disc, and of the surface formed by the rims.
    pub surfaces: [&'a str; 3],
}

/// Stacks discs from s = 0 to s = 1; `map(point of the disc, s)` gives the position of each node.
///
/// # Errors
/// Returns an error for zero layers, for more nodes or tetrahedra than a mesh may have, and if the map makes
/// a tetrahedron flat.
pub fn extrude(
    disc: &Disc,
    layers: Layers,
    map: impl Fn([f64; 2], f64) -> [f64; 3] + Sync,
) -> Result<TetMesh> {
    let (m, count) = (disc.nodes(), layers.count);
    let most = |per: usize| per.checked_mul(count + 1).is_none_or(|total| total > super::MOST);
    if count == 0 || most(m) || most(disc.triangles().saturating_mul(3)) {
        return Err(Error::invalid(format!(
            "{count} layers of {} triangles: expected at least one layer and at most 2^30 nodes and tetrahedra",
            disc.triangles()
        )));
    }
    let node = |p: u32, l: usize| match layers.numbering {
        Numbering::Discs => (l * m) as u32 + p,
        Numbering::Lines => p * (count + 1) as u32 + l as u32,
    };
    let points = collect(0..m * (count + 1), 256, &|i| {
        let (p, l) = match layers.numbering {
            Numbering::Discs => (i % m, i / m),
            Numbering::Lines => (i / (count + 1), i % (count + 1)),
        };
        map(disc.points[p], l as f64 / count as f64)
    });
    let prism = |[a, b, c]: [u32; 3], l: usize| {
        let low = [a, b, c].map(|p| node(p, l));
        let high = [a, b, c].map(|p| node(p, l + 1));
        [
            [low[0], low[1], low[2], high[2]],
            [low[0], low[1], high[1], high[2]],
            [low[0], high[0], high[1], high[2]],
        ]
    };
    let triangles = disc.triangles();
    let mut tetrahedra = vec![[0u32; 4]; triangles * count * 3];
    each_chunk(&mut tetrahedra, 3, 1024, &|k, own| {
        let (t, l) = match layers.numbering {
            Numbering::Discs => (k % triangles, k / triangles),
            Numbering::Lines => (k / count, k % count),
        };
        own.copy_from_slice(&prism(disc.triangles[t], l));
    });
    let end = |l: usize| disc.triangles.iter().map(|t| t.map(|p| node(p, l))).collect();
    let sides = (0..count * disc.rim.len()).map(|k| {
        let (l, k) = (k / disc.rim.len(), k % disc.rim.len());
        let (p, q) = (disc.rim[k], disc.rim[(k + 1) % disc.rim.len()]);
        let (a, b) = (p.min(q), p.max(q));
        let (low, high) = ([node(a, l), node(b, l)], [node(a, l + 1), node(b, l + 1)]);
        [[low[0], low[1], high[1]], [low[0], high[0], high[1]]]
    });
    let faces: [Vec<[u32; 3]>; 3] = [end(0), end(count), sides.flatten().collect()];
    let surfaces = layers.surfaces.iter().zip(faces);
    let surfaces = surfaces.map(|(name, faces)| Surface { name: name.to_string(), faces }).collect();
    TetMesh::new(points, tetrahedra, surfaces)
}

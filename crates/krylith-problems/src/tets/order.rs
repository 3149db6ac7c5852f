//! Numberings of the nodes of a mesh.

use krylith_core::names::same;
use krylith_core::partition::reverse_cuthill_mckee;
use krylith_core::{Error, Result};

use super::{Surface, TetMesh, rows};
use crate::random::Random;

/// The order in which the nodes of a mesh are numbered.
///
/// # Examples
/// ```
/// use krylith_problems::tets::NodeOrder;
/// assert_eq!("rcm".parse::<NodeOrder>()?, NodeOrder::Rcm);
/// assert_eq!("random:7".parse::<NodeOrder>()?, NodeOrder::Random(7));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeOrder {
    /// As in the file.
    File,
    /// By coordinates: x fastest, then y, then z. Coordinates that differ by less than 1e-9 of the mesh's
    /// extent are equal.
    Natural,
    /// Random, with this seed.
    Random(u64),
    /// Reverse Cuthill–McKee, which keeps neighbours close.
    Rcm,
}

impl std::str::FromStr for NodeOrder {
    type Err = Error;
    fn from_str(text: &str) -> Result<Self> {
        let (name, seed) = text.split_once(':').map_or((text, None), |(name, seed)| (name, Some(seed)));
        let known = [("file", Self::File), ("natural", Self::Natural), ("rcm", Self::Rcm)];
        let seed = seed.map_or(Ok(None), |seed| seed.trim().parse().map(Some));
        let found = match (same("random", name), seed) {
            (true, Ok(seed)) => Some(Self::Random(seed.unwrap_or(1))),
            (false, Ok(None)) => known.iter().find(|(known, _)| same(known, name)).map(|found| found.1),
            _ => None,
        };
        found.ok_or_else(|| Error::invalid(format!("`{text}`: expected file, natural, random[:SEED] or rcm")))
    }
}

impl TetMesh {
    /// Returns the mesh with its nodes in another order. Tetrahedra keep theirs.
    ///
    /// # Errors
    /// Returns an error if a node has more than 255 neighbours, or if memory is not sufficient.
    pub fn ordered(self, order: NodeOrder) -> Result<Self> {
        let old = match order {
            NodeOrder::File => return Ok(self),
            NodeOrder::Natural => by_coordinates(&self.points),
            NodeOrder::Random(seed) => shuffled(self.points.len(), seed),
            NodeOrder::Rcm => rcm(&self)?,
        };
        let mut new = vec![0u32; old.len()];
        old.iter().enumerate().for_each(|(i, &p)| new[p as usize] = i as u32);
        let points = old.iter().map(|&p| self.points[p as usize]).collect();
        let tetrahedra = self.tetrahedra.iter().map(|t| t.map(|p| new[p as usize])).collect();
        let surfaces = self.surfaces.into_iter().map(|surface| Surface {
            faces: surface.faces.iter().map(|f| f.map(|p| new[p as usize])).collect(),
            ..surface
        });
        Self::new(points, tetrahedra, surfaces.collect())
    }
}

fn by_coordinates(points: &[[f64; 3]]) -> Vec<u32> {
    let (mut low, mut high) = ([f64::INFINITY; 3], [f64::NEG_INFINITY; 3]);
    for x in points {
        for d in 0..3 {
            (low[d], high[d]) = (low[d].min(x[d]), high[d].max(x[d]));
        }
    }
    let extent = (0..3).map(|d| high[d] - low[d]).fold(0.0, f64::max);
    let step = |x: f64, d: usize| ((x - low[d]) / (1e-9 * extent)).round() as i64;
    let mut order: Vec<u32> = (0..points.len() as u32).collect();
    order.sort_by_cached_key(|&p| {
        let [x, y, z] = points[p as usize];
        [step(z, 2), step(y, 1), step(x, 0)]
    });
    order
}

fn shuffled(n: usize, seed: u64) -> Vec<u32> {
    let mut order: Vec<u32> = (0..n as u32).collect();
    order.sort_by_cached_key(|&p| (Random::new(seed, 0x6d65_7368, p.into()).next(), p));
    order
}

fn rcm(mesh: &TetMesh) -> Result<Vec<u32>> {
    let pattern = rows::graph(mesh, mesh.points.len(), 1)?;
    let mut ptr = vec![0];
    let mut neighbours = Vec::with_capacity(pattern.col().len());
    for i in 0..mesh.points.len() {
        let row = &pattern.col()[pattern.row_ptr()[i]..pattern.row_ptr()[i + 1]];
        neighbours.extend(row.iter().filter(|&&j| j as usize != i));
        ptr.push(neighbours.len());
    }
    Ok(reverse_cuthill_mckee(&ptr, &mut neighbours))
}

//! Simplices of a box of cells, each cut into six Kuhn tetrahedra, and their numbers.
//!
//! A Kuhn tetrahedron begins at the lowest corner of its cell and takes one step along each axis. Each of its
//! faces and edges is such a path too, from a base vertex over nested sets of axes: a chain of bit masks,
//! which begins with 0. So a simplex is a base and a chain. Every simplex is oriented from its lowest vertex
//! to its highest, the same in all tetrahedra that share it, and no signs are stored.
//!
//! Nothing is stored per simplex. Numbers follow bases, with x fastest, then y, then z, then chains.

use krylith_core::{Error, Result};

use crate::tets::Shape;

/// Steps along axes from the base to each vertex: bit d for axis d.
pub(crate) type Chain = &'static [u8];

const VERTICES: [Chain; 1] = [&[0]];
const EDGES: [Chain; 7] = [&[0, 1], &[0, 2], &[0, 3], &[0, 4], &[0, 5], &[0, 6], &[0, 7]];
#[rustfmt::skip]
const FACES: [Chain; 12] = [
    &[0, 1, 3], &[0, 1, 5], &[0, 1, 7], &[0, 2, 3], &[0, 2, 6], &[0, 2, 7],
    &[0, 3, 7], &[0, 4, 5], &[0, 4, 6], &[0, 4, 7], &[0, 5, 7], &[0, 6, 7],
];
/// The tetrahedra of a cell.
pub(crate) const TETS: [Chain; 6] =
    [&[0, 1, 3, 7], &[0, 1, 5, 7], &[0, 2, 3, 7], &[0, 2, 6, 7], &[0, 4, 5, 7], &[0, 4, 6, 7]];

/// Corners of a tetrahedron that form its vertices, edges, faces, and itself.
pub(crate) const PARTS: [&[&[usize]]; 4] = [
    &[&[0], &[1], &[2], &[3]],
    &[&[0, 1], &[0, 2], &[0, 3], &[1, 2], &[1, 3], &[2, 3]],
    &[&[0, 1, 2], &[0, 1, 3], &[0, 2, 3], &[1, 2, 3]],
    &[&[0, 1, 2, 3]],
];

/// Returns the mask of the last vertex: all axes along which the simplex extends.
#[inline]
fn last(chain: &Chain) -> u8 {
    chain[chain.len() - 1]
}

/// A position on the grid of vertices.
pub(crate) type Place = [usize; 3];

/// Sides of the box as bits: x = 0, y = 0, z = 0, x = 1, y = 1, z = 1.
pub(crate) const ALL_SIDES: u8 = 63;
/// The bit of the side where the coordinate of `axis` is `end`.
pub(crate) const fn side(axis: usize, end: usize) -> u8 {
    1 << (axis + 3 * end)
}

/// The unit cube in cells.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Mesh {
    cells: [usize; 3],
}

/// A tetrahedron: the lowest corner of its cell, and its place among the six.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Tet {
    pub at: Place,
    pub kind: usize,
}

impl Mesh {
    /// # Errors
    /// Returns an error for meshes whose simplices do not fit 32-bit numbers.
    pub fn new(cells: [usize; 3]) -> Result<Self> {
        // A cell has at most 27 unknowns of one field and 40 of all.
        let total = cells.iter().try_fold(40usize, |total, &n| total.checked_mul(n + 1));
        if total.is_none_or(|total| total > u32::MAX as usize) {
            let [x, y, z] = cells;
            return Err(Error::invalid(format!("a mesh of {x}x{y}x{z} cells does not fit 32-bit numbers")));
        }
        Ok(Self { cells })
    }

    /// Returns true if a cell is in the box.
    pub fn contains(&self, cell: Place) -> bool {
        (0..3).all(|d| cell[d] < self.cells[d])
    }

    /// Returns the number of tetrahedra.
    pub fn tets(&self) -> usize {
        TETS.len() * self.cells.iter().product::<usize>()
    }

    /// Returns the number of a tetrahedron.
    pub fn tet_number(&self, tet: Tet) -> usize {
        let [x, y, z] = tet.at;
        ((z * self.cells[1] + y) * self.cells[0] + x) * TETS.len() + tet.kind
    }

    /// Returns the tetrahedron of a number.
    pub fn tet(&self, number: usize) -> Tet {
        let (cell, [nx, ny, _]) = (number / TETS.len(), self.cells);
        Tet { at: [cell % nx, cell / nx % ny, cell / (nx * ny)], kind: number % TETS.len() }
    }

    /// Returns the coordinates of the vertex that a mask leads to.
    pub fn point(&self, at: Place, mask: u8) -> [f64; 3] {
        std::array::from_fn(|d| (at[d] + usize::from(mask >> d & 1)) as f64 / self.cells[d] as f64)
    }

    /// Returns the mean of the vertices of a simplex.
    pub fn centre(&self, at: Place, chain: Chain) -> [f64; 3] {
        let sum = |d: usize| chain.iter().map(|&mask| self.point(at, mask)[d]).sum::<f64>();
        std::array::from_fn(|d| sum(d) / chain.len() as f64)
    }

    /// Returns the volume and the gradients of the linear functions of one of the six tetrahedra; its
    /// corners stand in the order of its chain.
    pub fn shape(&self, kind: usize) -> Shape {
        let shape = Shape::of(std::array::from_fn(|k| self.point([0; 3], TETS[kind][k])));
        Shape { volume: shape.volume.abs(), ..shape }
    }

    /// Returns the sides of the box that contain a simplex, as bits.
    pub fn sides(&self, at: Place, chain: Chain) -> u8 {
        let flat = |d: usize| last(&chain) >> d & 1 == 0;
        let on = |d: usize, end: usize| flat(d) && at[d] == end * self.cells[d];
        (0..6).filter(|k| on(k % 3, k / 3)).map(|k| side(k % 3, k / 3)).sum()
    }

    /// Returns the values of `of` on all tetrahedra, by number.
    pub fn on_tets(&self, of: &(dyn Fn([f64; 3]) -> f64 + Sync)) -> Vec<f64> {
        krylith_base::threads::collect(0..self.tets(), 1024, &|t| {
            let tet = self.tet(t);
            of(self.centre(tet.at, TETS[tet.kind]))
        })
    }
}

/// A node of a tetrahedron: the mask that leads from the cell's lowest corner to its base, and its kind.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Local {
    pub mask: u8,
    pub kind: usize,
}

/// Unknowns on simplices of some dimensions, the same number on each: a finite element space.
#[derive(Debug, Clone)]
pub(crate) struct Space {
    pub mesh: Mesh,
    /// Kinds of simplices with unknowns.
    pub chains: Vec<Chain>,
    /// Unknowns on each.
    pub components: usize,
    /// Sides on which each component has a boundary value.
    pub fixed: [u8; 3],
    /// Diagonal entry in rows of boundary values.
    pub diagonal: f64,
    /// Nodes of each of the six tetrahedra.
    pub local: [Vec<Local>; 6],
    /// For each set of axes along which a base is last: the number of chains that stay in the box.
    counts: [usize; 8],
    /// For each chain and each such set: the number of chains before it that stay in the box.
    earlier: Vec<[usize; 8]>,
}

impl Space {
    fn new(mesh: Mesh, dimensions: &[usize]) -> Self {
        let all: [&[Chain]; 4] = [&VERTICES, &EDGES, &FACES, &TETS];
        let chains: Vec<Chain> = dimensions.iter().flat_map(|&d| all[d].iter().copied()).collect();
        let local = std::array::from_fn(|t| {
            let part = |corners: &[usize]| {
                let mask = TETS[t][corners[0]];
                let same = |chain: &Chain| {
                    chain.len() == corners.len()
                        && (0..chain.len()).all(|k| chain[k] == TETS[t][corners[k]] ^ mask)
                };
                let kind = chains.iter().position(same).expect("the faces of Kuhn tetrahedra are chains");
                Local { mask, kind }
            };
            dimensions.iter().flat_map(|&d| PARTS[d].iter().map(|corners| part(corners))).collect()
        });
        let inside = |chain: &Chain, blocked: usize| last(chain) & blocked as u8 == 0;
        let among = |chains: &[Chain]| -> [usize; 8] {
            std::array::from_fn(|blocked| chains.iter().filter(|chain| inside(chain, blocked)).count())
        };
        let earlier = (0..chains.len()).map(|kind| among(&chains[..kind])).collect();
        let counts = among(&chains);
        Self { mesh, chains, components: 1, fixed: [0; 3], diagonal: 1.0, local, counts, earlier }
    }

    /// Continuous linear functions: vertices.
    pub fn p1(mesh: Mesh) -> Self {
        Self::new(mesh, &[0])
    }
    /// Continuous quadratic functions: vertices and edges.
    pub fn p2(mesh: Mesh) -> Self {
        Self::new(mesh, &[0, 1])
    }
    /// Nédélec's edge elements of lowest order; an unknown is the integral along an edge.
    pub fn edges(mesh: Mesh) -> Self {
        Self::new(mesh, &[1])
    }
    /// Raviart–Thomas elements of lowest order; an unknown is the flux through a face.
    pub fn faces(mesh: Mesh) -> Self {
        Self::new(mesh, &[2])
    }
    /// Piecewise constants: tetrahedra.
    pub fn p0(mesh: Mesh) -> Self {
        Self::new(mesh, &[3])
    }

    /// Returns the space with three components on each node.
    pub fn vectors(self) -> Self {
        Self { components: 3, ..self }
    }

    /// Returns the space with boundary values of all components on these sides.
    pub fn fixed_on(self, sides: u8) -> Self {
        Self { fixed: [sides; 3], ..self }
    }

    /// Returns the space with this diagonal entry in rows of boundary values.
    pub fn with_diagonal(self, diagonal: f64) -> Self {
        Self { diagonal, ..self }
    }

    /// Returns the number of nodes at a base that is last along the axes of `blocked`.
    fn count(&self, blocked: u8) -> usize {
        self.counts[usize::from(blocked)]
    }

    /// Returns the bits of the axes along which `at` is last.
    fn blocked(&self, at: Place) -> u8 {
        (0..3).map(|d| u8::from(at[d] == self.mesh.cells[d]) << d).sum()
    }

    fn row(&self, blocked: u8) -> usize {
        self.mesh.cells[0] * self.count(blocked) + self.count(blocked | 1)
    }

    fn plane(&self, blocked: u8) -> usize {
        self.mesh.cells[1] * self.row(blocked) + self.row(blocked | 2)
    }

    /// Returns the number of nodes.
    pub fn nodes(&self) -> usize {
        self.mesh.cells[2] * self.plane(0) + self.plane(4)
    }

    /// Returns the number of unknowns.
    pub fn len(&self) -> usize {
        self.nodes() * self.components
    }

    /// Returns the number of the node of a kind at a base, `None` outside the box.
    pub fn number(&self, at: Place, kind: usize) -> Option<usize> {
        let blocked = self.blocked(at);
        let inside = (0..3).all(|d| at[d] <= self.mesh.cells[d]);
        if !inside || last(&self.chains[kind]) & blocked != 0 {
            return None;
        }
        let earlier = self.earlier[kind][usize::from(blocked)];
        let [x, y, z] = at;
        Some(z * self.plane(0) + y * self.row(blocked & 4) + x * self.count(blocked & 6) + earlier)
    }

    /// Returns base and kind of a node.
    pub fn place(&self, node: usize) -> (Place, usize) {
        let [nx, ny, nz] = self.mesh.cells;
        let z = (node / self.plane(0)).min(nz);
        let (rest, blocked) = (node - z * self.plane(0), u8::from(z == nz) << 2);
        let y = (rest / self.row(blocked)).min(ny);
        let (rest, blocked) = (rest - y * self.row(blocked), blocked | u8::from(y == ny) << 1);
        let x = (rest / self.count(blocked)).min(nx);
        let (rest, blocked) = (rest - x * self.count(blocked), blocked | u8::from(x == nx));
        let mut kinds = self.chains.iter().enumerate().filter(|(_, chain)| last(chain) & blocked == 0);
        let kind = kinds.nth(rest).map_or(0, |(kind, _)| kind);
        ([x, y, z], kind)
    }

    /// Returns the components with boundary values on a node, as bits.
    pub fn fixed(&self, at: Place, kind: usize) -> u8 {
        if self.fixed == [0; 3] {
            return 0;
        }
        let sides = self.mesh.sides(at, self.chains[kind]);
        (0..self.components).map(|c| u8::from(sides & self.fixed[c] != 0) << c).sum()
    }

    /// Returns the coordinates of a node: the mean of its vertices.
    pub fn point(&self, node: usize) -> [f64; 3] {
        let (at, kind) = self.place(node);
        self.mesh.centre(at, self.chains[kind])
    }

    /// Returns the coordinates of all nodes.
    pub fn points(&self) -> Vec<[f64; 3]> {
        krylith_base::threads::collect(0..self.nodes(), 4096, &|node| self.point(node))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_places_and_ascend() {
        for cells in [[1, 1, 1], [2, 1, 3], [3, 4, 2]] {
            let mesh = Mesh::new(cells).unwrap();
            let [x, y, z] = cells;
            let vertices = (x + 1) * (y + 1) * (z + 1);
            let spaces = [Space::p1(mesh), Space::edges(mesh), Space::faces(mesh), Space::p0(mesh)];
            let counts = spaces.each_ref().map(Space::nodes);
            assert_eq!((counts[0], counts[3]), (vertices, mesh.tets()));
            // Euler's formula.
            assert_eq!(counts[0] + counts[2], counts[1] + counts[3] + 1, "{cells:?}");
            assert_eq!(Space::p2(mesh).nodes(), (2 * x + 1) * (2 * y + 1) * (2 * z + 1));
            for space in spaces.iter().chain([&Space::p2(mesh)]) {
                let mut last = None;
                for node in 0..space.nodes() {
                    let (at, kind) = space.place(node);
                    assert_eq!(space.number(at, kind), Some(node), "{cells:?}");
                    let order = Some(([at[2], at[1], at[0]], kind));
                    assert!(last < order);
                    last = order;
                }
            }
            for t in 0..mesh.tets() {
                assert_eq!(mesh.tet_number(mesh.tet(t)), t);
            }
        }
    }

    #[test]
    fn sides_are_those_of_all_vertices() {
        let mesh = Mesh::new([2, 3, 1]).unwrap();
        for space in [Space::p2(mesh), Space::faces(mesh), Space::p0(mesh)] {
            for node in 0..space.nodes() {
                let (at, kind) = space.place(node);
                let on = |d: usize, end: f64| space.chains[kind].iter().all(|&m| mesh.point(at, m)[d] == end);
                for d in 0..3 {
                    for end in 0..2 {
                        let found = mesh.sides(at, space.chains[kind]) & side(d, end) != 0;
                        assert_eq!(found, on(d, end as f64));
                    }
                }
            }
        }
    }

    #[test]
    fn six_tetrahedra_fill_a_cell() {
        let mesh = Mesh::new([2, 1, 4]).unwrap();
        let volume: f64 = (0..6).map(|kind| mesh.shape(kind).volume).sum();
        assert!((volume - 0.125).abs() < 1e-15);
    }
}

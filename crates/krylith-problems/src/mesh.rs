//! The duct's mesh: a box of equal cells, each split into six Kuhn tetrahedra.
//!
//! All cells are split alike, along the diagonal from their lowest corner to their highest, so the mesh
//! conforms and an interior node has 14 neighbours. Nothing is stored: nodes, tetrahedra and node sets follow
//! from the sizes.

use krylith_core::{Error, Result};

/// Nodes and tetrahedra of [0, Lx]×[0, Ly]×[0, Lz]; nodes are numbered with x fastest, then y, then z.
///
/// # Examples
/// ```
/// use krylith_problems::DuctMesh;
/// let mesh = DuctMesh::new([3, 3, 3], [2.0, 1.0, 1.0])?;
/// assert_eq!((mesh.nodes(), mesh.spacing()), (27, [1.0, 0.5, 0.5]));
/// let middle = mesh.node([1, 1, 1]);
/// assert_eq!(mesh.coordinate(middle), [1.0, 0.5, 0.5]);
/// assert!(!mesh.is_dirichlet(middle) && mesh.is_wall(mesh.node([1, 0, 1])));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DuctMesh {
    nodes: [usize; 3],
    extent: [f64; 3],
}

/// Corners of the six Kuhn tetrahedra of the unit cell, positively oriented; each step moves along one axis.
const KUHN: [[[usize; 3]; 4]; 6] = [
    [[0, 0, 0], [1, 0, 0], [1, 1, 0], [1, 1, 1]],
    [[0, 0, 0], [0, 1, 0], [0, 1, 1], [1, 1, 1]],
    [[0, 0, 0], [0, 0, 1], [1, 0, 1], [1, 1, 1]],
    [[0, 0, 0], [1, 0, 1], [1, 0, 0], [1, 1, 1]],
    [[0, 0, 0], [1, 1, 0], [0, 1, 0], [1, 1, 1]],
    [[0, 0, 0], [0, 1, 1], [0, 0, 1], [1, 1, 1]],
];

impl DuctMesh {
    /// Creates a mesh of `nodes` nodes in x, y, z over a box with edges `extent`.
    ///
    /// # Errors
    /// Returns an error for fewer than 2 nodes in a direction, for more than 2³² in all, or for an edge that
    /// is not positive and finite.
    pub fn new(nodes: [usize; 3], extent: [f64; 3]) -> Result<Self> {
        if nodes.iter().any(|&n| n < 2) {
            return Err(Error::invalid(format!(
                "a mesh of {}x{}x{} nodes is too small; expected at least 2 in each direction",
                nodes[0], nodes[1], nodes[2]
            )));
        }
        let total = nodes.iter().try_fold(1usize, |total, &n| total.checked_mul(n));
        if total.is_none_or(|total| total > u32::MAX as usize) {
            return Err(Error::invalid(format!(
                "a mesh of {}x{}x{} nodes does not fit 32-bit node numbers",
                nodes[0], nodes[1], nodes[2]
            )));
        }
        if let Some(e) = extent.iter().find(|e| !(e.is_finite() && **e > 0.0)) {
            return Err(Error::invalid(format!(
                "an edge of the box is {e}; edges must be positive and finite"
            )));
        }
        Ok(Self { nodes, extent })
    }

    /// Returns the number of nodes in x, y, z.
    pub fn sizes(&self) -> [usize; 3] {
        self.nodes
    }
    /// Returns the edges Lx, Ly, Lz of the box.
    pub fn extent(&self) -> [f64; 3] {
        self.extent
    }
    /// Returns the edges hx, hy, hz of a cell.
    pub fn spacing(&self) -> [f64; 3] {
        std::array::from_fn(|d| self.extent[d] / (self.nodes[d] - 1) as f64)
    }
    /// Returns the number of all nodes, n.
    pub fn nodes(&self) -> usize {
        self.nodes.iter().product()
    }
    /// Returns the number of all tetrahedra, six per cell.
    pub fn cells(&self) -> usize {
        6 * self.nodes.iter().map(|n| n - 1).product::<usize>()
    }

    /// Returns the grid position (ix, iy, iz) of node `i`.
    pub fn position(&self, i: usize) -> [usize; 3] {
        let [nx, ny, _] = self.nodes;
        [i % nx, i / nx % ny, i / (nx * ny)]
    }

    /// Returns the number of the node at a grid position.
    pub fn node(&self, [x, y, z]: [usize; 3]) -> usize {
        (z * self.nodes[1] + y) * self.nodes[0] + x
    }

    /// Returns the coordinates of node `i`; the last node along an axis lies on the far face exactly.
    pub fn coordinate(&self, i: usize) -> [f64; 3] {
        let at = self.position(i);
        std::array::from_fn(|d| self.extent[d] * (at[d] as f64 / (self.nodes[d] - 1) as f64))
    }

    /// Returns the coordinates of every node, in the order of the nodes.
    pub fn coordinates(&self) -> Vec<[f64; 3]> {
        (0..self.nodes()).map(|i| self.coordinate(i)).collect()
    }

    /// Returns the corner nodes of every tetrahedron, positively oriented (VTK's order), six per cell in the
    /// order of the cells.
    pub fn tetrahedra(&self) -> Vec<[u32; 4]> {
        let [nx, ny, nz] = self.nodes;
        let mut all = Vec::with_capacity(self.cells());
        for z in 0..nz - 1 {
            for y in 0..ny - 1 {
                for x in 0..nx - 1 {
                    all.extend(KUHN.map(|corners| {
                        corners.map(|[dx, dy, dz]| self.node([x + dx, y + dy, z + dz]) as u32)
                    }));
                }
            }
        }
        all
    }

    /// Returns true on the inlet x = 0, its rim included.
    pub fn is_inlet(&self, i: usize) -> bool {
        self.position(i)[0] == 0
    }
    /// Returns true on the walls y = 0, y = Ly, z = 0, z = Lz, their rims included.
    pub fn is_wall(&self, i: usize) -> bool {
        let at = self.position(i);
        (1..3).any(|d| at[d] == 0 || at[d] == self.nodes[d] - 1)
    }
    /// Returns true on the outlet x = Lx, its rim included (which is also wall).
    pub fn is_outlet(&self, i: usize) -> bool {
        self.position(i)[0] == self.nodes[0] - 1
    }
    /// Returns true where the velocity is prescribed: on inlet and walls.
    pub fn is_dirichlet(&self, i: usize) -> bool {
        self.is_inlet(i) || self.is_wall(i)
    }

    /// Returns the nodes for which `belongs` holds, ascending, as in `mesh.select(DuctMesh::is_outlet)`.
    pub fn select(&self, belongs: impl Fn(&Self, usize) -> bool) -> Vec<u32> {
        (0..self.nodes()).filter(|&i| belongs(self, i)).map(|i| i as u32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tetrahedra_fill_the_box_and_point_the_right_way() {
        let mesh = DuctMesh::new([4, 3, 5], [2.0, 1.0, 0.5]).unwrap();
        let x = mesh.coordinates();
        let mut volume = 0.0;
        for t in mesh.tetrahedra() {
            let [a, b, c, d] = t.map(|i| x[i as usize]);
            let e = [b, c, d].map(|p| std::array::from_fn::<f64, 3, _>(|k| p[k] - a[k]));
            let det = e[0][0] * (e[1][1] * e[2][2] - e[1][2] * e[2][1])
                - e[0][1] * (e[1][0] * e[2][2] - e[1][2] * e[2][0])
                + e[0][2] * (e[1][0] * e[2][1] - e[1][1] * e[2][0]);
            assert!(det > 0.0);
            volume += det / 6.0;
        }
        assert_eq!(mesh.tetrahedra().len(), mesh.cells());
        assert!((volume - 1.0).abs() < 1e-14);
    }

    #[test]
    fn node_sets() {
        let mesh = DuctMesh::new([4, 3, 5], [1.0; 3]).unwrap();
        assert_eq!(mesh.select(DuctMesh::is_inlet).len(), 15);
        assert_eq!(mesh.select(DuctMesh::is_outlet).len(), 15);
        assert_eq!(mesh.select(DuctMesh::is_wall).len(), 4 * (15 - 3));
        let free = mesh.select(|mesh, i| !mesh.is_dirichlet(i));
        assert_eq!(free.len(), 3 * 3);
        for i in 0..mesh.nodes() {
            assert_eq!(mesh.node(mesh.position(i)), i);
        }
    }

    #[test]
    fn bad_meshes_are_refused() {
        for (nodes, extent) in [
            ([1, 3, 3], [1.0; 3]),
            ([usize::MAX, 3, 3], [1.0; 3]),
            ([1 << 20, 1 << 20, 2], [1.0; 3]),
            ([3, 3, 3], [0.0, 1.0, 1.0]),
            ([3, 3, 3], [1.0, f64::NAN, 1.0]),
        ] {
            assert!(DuctMesh::new(nodes, extent).is_err());
        }
    }
}

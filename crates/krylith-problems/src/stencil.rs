//! Rows of the P1 matrices on the duct's mesh, node by node.
//!
//! Cells are equal, so a row depends only on which of the eight cells around its node exist. Assembly reads
//! rows from a table and costs one pass of writes. The table sums tetrahedra in a fixed order, so the
//! matrices are the same, bit for bit, on any number of threads.

use crate::DuctMesh;

/// Neighbours of an interior node, itself included.
pub(crate) const POINTS: usize = 15;

/// Grid offsets to the neighbours, by ascending node number.
pub(crate) const OFFSETS: [[isize; 3]; POINTS] = [
    [-1, -1, -1],
    [0, -1, -1],
    [-1, 0, -1],
    [0, 0, -1],
    [-1, -1, 0],
    [0, -1, 0],
    [-1, 0, 0],
    [0, 0, 0],
    [1, 0, 0],
    [0, 1, 0],
    [1, 1, 0],
    [0, 0, 1],
    [1, 0, 1],
    [0, 1, 1],
    [1, 1, 1],
];

/// Orders in which a Kuhn tetrahedron follows the three axes from the lowest corner of its cell to the
/// highest.
const WALKS: [[usize; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];

/// Contribution of node j to row i, by components.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Coupling {
    /// ∫ φ_i φ_j.
    pub mass: f64,
    /// ν ∫ ∇φ_i·∇φ_j.
    pub stiffness: f64,
    /// σ ∫ φ_i ∂_c φ_j: the divergence, row p.
    pub divergence: [f64; 3],
    /// −∫ ∂_c φ_i φ_j: the gradient in its weak form, column p.
    pub gradient: [f64; 3],
    /// σγ ∫ (φ_i − Πφ_i)(φ_j − Πφ_j), Π the mean over a tetrahedron.
    pub stabilisation: f64,
}

/// A table with a row for every set of cells that may exist around a node.
#[derive(Debug, Clone)]
pub(crate) struct Stencils {
    rows: Vec<[Coupling; POINTS]>,
}

impl Stencils {
    /// Integrates over the tetrahedra of one cell of edges `h`, with viscosity `nu` and stabilisation
    /// `gamma`; continuity rows are multiplied by `sigma`.
    pub fn new(h: [f64; 3], nu: f64, gamma: f64, sigma: f64) -> Self {
        let volume = h[0] * h[1] * h[2] / 6.0;
        let rows = (0..64)
            .map(|class| {
                let mut row = [Coupling::default(); POINTS];
                for corner in 0..8usize {
                    let own: [usize; 3] = std::array::from_fn(|d| corner >> d & 1);
                    // At corner 1 of a direction the cell lies below the node, at corner 0 above it.
                    if (0..3).all(|d| class >> (2 * d + 1 - own[d]) & 1 == 1) {
                        add_cell(&mut row, own, h, volume, nu, gamma);
                    }
                }
                for entry in &mut row {
                    entry.divergence = entry.divergence.map(|d| sigma * d);
                    entry.stabilisation *= sigma;
                }
                row
            })
            .collect();
        Self { rows }
    }

    /// Returns the row of the node at grid position `at`; couplings to nodes outside the mesh are 0.
    pub fn row(&self, mesh: &DuctMesh, at: [usize; 3]) -> &[Coupling; POINTS] {
        let class = (0..3).fold(0, |class, d| {
            let below = usize::from(at[d] > 0);
            let above = usize::from(at[d] + 1 < mesh.sizes()[d]);
            class | (below | above << 1) << (2 * d)
        });
        &self.rows[class]
    }
}

/// Adds the contributions of one cell's tetrahedra to the row of its corner `own`.
fn add_cell(row: &mut [Coupling; POINTS], own: [usize; 3], h: [f64; 3], volume: f64, nu: f64, gamma: f64) {
    for [a, b, c] in WALKS {
        let mut corners = [[0usize; 3]; 4];
        corners[1][a] = 1;
        corners[2] = corners[1];
        corners[2][b] = 1;
        corners[3] = [1; 3];
        let Some(i) = corners.iter().position(|&v| v == own) else { continue };
        // λ0 = 1 − x_a/h_a, λ1 = x_a/h_a − x_b/h_b, λ2 = x_b/h_b − x_c/h_c, λ3 = x_c/h_c.
        let mut slope = [[0.0; 3]; 4];
        for (k, axis) in [a, b, c].into_iter().enumerate() {
            slope[k][axis] = -1.0 / h[axis];
            slope[k + 1][axis] = 1.0 / h[axis];
        }
        for j in 0..4 {
            let offset = std::array::from_fn(|d| corners[j][d] as isize - own[d] as isize);
            let at = OFFSETS.iter().position(|&o| o == offset).expect("edges of Kuhn tetrahedra are listed");
            let mass = if i == j { 0.1 } else { 0.05 };
            let entry = &mut row[at];
            entry.mass += volume * mass;
            entry.stabilisation += gamma * volume * (mass - 0.0625);
            for d in 0..3 {
                entry.stiffness += nu * volume * slope[i][d] * slope[j][d];
                entry.divergence[d] += 0.25 * volume * slope[j][d];
                entry.gradient[d] -= 0.25 * volume * slope[i][d];
            }
        }
    }
}

/// Returns the neighbour of `at` at `offset`, if the mesh has it.
pub(crate) fn neighbour(mesh: &DuctMesh, at: [usize; 3], offset: [isize; 3]) -> Option<usize> {
    let mut to = [0; 3];
    for d in 0..3 {
        to[d] = at[d].checked_add_signed(offset[d]).filter(|&x| x < mesh.sizes()[d])?;
    }
    Some(mesh.node(to))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of M sum to the node's share of the volume, K and S annihilate constants, B and K map x
    /// correctly.
    #[test]
    fn rows_reproduce_linear_functions() {
        let mesh = DuctMesh::new([3, 4, 3], [1.0, 0.9, 0.7]).unwrap();
        let h = mesh.spacing();
        let stencils = Stencils::new(h, 2.0, 3.0, 1.0);
        let mut volume = 0.0;
        for i in 0..mesh.nodes() {
            let at = mesh.position(i);
            let row = stencils.row(&mesh, at);
            let mass: f64 = row.iter().map(|c| c.mass).sum();
            volume += mass;
            assert!(row.iter().map(|c| c.stiffness).sum::<f64>().abs() < 1e-14);
            assert!(row.iter().map(|c| c.stabilisation).sum::<f64>().abs() < 1e-15);
            for d in 0..3 {
                // The divergence of the linear field x_d e_d is 1.
                let div: f64 =
                    row.iter().zip(OFFSETS).map(|(c, o)| c.divergence[d] * o[d] as f64 * h[d]).sum();
                assert!((div - mass).abs() < 1e-15);
            }
            for (c, o) in row.iter().zip(OFFSETS) {
                let known = neighbour(&mesh, at, o);
                assert!(known.is_some() || (c.mass == 0.0 && c.stiffness == 0.0 && c.stabilisation == 0.0));
                let Some(j) = known else { continue };
                let back = OFFSETS.iter().position(|p| (0..3).all(|d| p[d] == -o[d])).unwrap();
                let mirror = stencils.row(&mesh, mesh.position(j))[back];
                assert!(
                    (mirror.mass - c.mass).abs() < 1e-17 && (mirror.stiffness - c.stiffness).abs() < 1e-15
                );
                for d in 0..3 {
                    assert!((mirror.divergence[d] + c.gradient[d]).abs() < 1e-16);
                }
            }
        }
        assert!((volume - 0.63).abs() < 1e-14);
    }
}

//! A step of the heat equation on a rectangle of linear triangles: a matrix like `parabolic_fem` of the
//! SuiteSparse collection.
//!
//! Squares of edge h are cut by a diagonal. The matrix is M + τ K, with the mass matrix M, the stiffness
//! matrix K and the length τ of a step times the diffusivity. No heat crosses the boundary. With τ = 0.1 and
//! 513 nodes along the unit edge, the condition number is about 2·10⁵, and 1025 nodes along the other edge
//! give the rows and the nonzeros of the paper's matrix.

use krylith_core::matrix::Bsr;
use krylith_core::{Error, Result};

/// Length of the step times the diffusivity.
const STEP: f64 = 0.1;

/// The corners of the two triangles of a square, as steps from its first node; the right angle comes first.
const TRIANGLES: [[[usize; 2]; 3]; 2] = [[[1, 0], [0, 0], [1, 1]], [[0, 1], [0, 0], [1, 1]]];

/// Entries of an element's M over h²/24, and of its K times 2.
const MASS: [[f64; 3]; 3] = [[2.0, 1.0, 1.0], [1.0, 2.0, 1.0], [1.0, 1.0, 2.0]];
const STIFFNESS: [[f64; 3]; 3] = [[2.0, -1.0, -1.0], [-1.0, 1.0, 0.0], [-1.0, 0.0, 1.0]];

/// Returns the matrix for nodes in x and y, x fastest, with the unit edge along x, and the right-hand side
/// M u, where u is 1 in a disc and 0 elsewhere.
///
/// # Errors
/// Returns an error for fewer than two nodes along an edge, or for more than 2³² nodes.
pub(super) fn parabolic([nx, ny]: [usize; 2]) -> Result<(Bsr, Vec<f64>)> {
    let n = nx.checked_mul(ny).filter(|n| nx.min(ny) > 1 && *n < u32::MAX as usize);
    let n = n.ok_or_else(|| Error::invalid(format!("a mesh of {nx}×{ny} nodes; expected 2×2 to 2³²")))?;
    let h = 1.0 / (nx - 1) as f64;
    let middle = [0.5, 0.5 * h * (ny - 1) as f64];
    let hot = |x: usize, y: usize| (h * x as f64 - middle[0]).hypot(h * y as f64 - middle[1]) < 0.25;
    let (mut row_ptr, mut columns, mut values) = (vec![0], Vec::with_capacity(7 * n), Vec::new());
    let mut rhs = Vec::with_capacity(n);
    for (y, x) in (0..ny).flat_map(|y| (0..nx).map(move |x| (y, x))) {
        // M and K of the node and its eight neighbours, at (dx + 1) + 3 (dy + 1).
        let mut entries = [[0.0; 2]; 9];
        let squares = [[0, 0], [1, 0], [0, 1], [1, 1]]
            .map(|[i, j]| Some([(x + i).checked_sub(1)?, (y + j).checked_sub(1)?]));
        for [i, j] in squares.into_iter().flatten().filter(|[i, j]| i + 1 < nx && j + 1 < ny) {
            for corners in TRIANGLES.map(|t| t.map(|[dx, dy]| [i + dx, j + dy])) {
                let Some(own) = corners.iter().position(|c| *c == [x, y]) else { continue };
                for (other, [to_x, to_y]) in corners.into_iter().enumerate() {
                    let entry = &mut entries[(to_x + 1 - x) + 3 * (to_y + 1 - y)];
                    entry[0] += h * h / 24.0 * MASS[own][other];
                    entry[1] += 0.5 * STIFFNESS[own][other];
                }
            }
        }
        let mut heat = 0.0;
        // Every edge of the mesh has a positive entry of M.
        for (at, [mass, stiffness]) in entries.into_iter().enumerate().filter(|(_, entry)| entry[0] > 0.0) {
            let (to_x, to_y) = (x + at % 3 - 1, y + at / 3 - 1);
            columns.push((to_x + nx * to_y) as u32);
            values.push(mass + STEP * stiffness);
            heat += if hot(to_x, to_y) { mass } else { 0.0 };
        }
        row_ptr.push(columns.len());
        rhs.push(heat);
    }
    Ok((Bsr::new(1, n, n, row_ptr, columns, values)?, rhs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::answer::system::symmetric;

    /// uᵀ A u.
    fn energy(a: &Bsr, u: impl Fn(usize) -> f64) -> f64 {
        let row = |i: usize| (a.row_ptr()[i]..a.row_ptr()[i + 1]).map(move |p| (i, p));
        (0..a.rows()).flat_map(row).map(|(i, p)| u(i) * a.values()[p] * u(a.col()[p] as usize)).sum()
    }

    #[test]
    fn energies_of_linear_functions_are_their_integrals() {
        let (nx, ny) = (9, 17);
        let (a, rhs) = parabolic([nx, ny]).unwrap();
        let h = 1.0 / 8.0;
        // On the rectangle [0, 1]×[0, 2]: ∫1 = 2, and ∫u² + τ ∫|∇u|² of x, y and x + y.
        assert!((energy(&a, |_| 1.0) - 2.0).abs() < 1e-13);
        let (x, y) = (|i: usize| h * (i % nx) as f64, |i: usize| h * (i / nx) as f64);
        assert!((energy(&a, x) - (2.0 / 3.0 + STEP * 2.0)).abs() < 1e-13);
        assert!((energy(&a, y) - (8.0 / 3.0 + STEP * 2.0)).abs() < 1e-13);
        // ∫(x + y)² = 2/3 + 2·(1/2)·2 + 8/3.
        assert!((energy(&a, |i| x(i) + y(i)) - (16.0 / 3.0 + STEP * 4.0)).abs() < 1e-13);
        assert!(symmetric(&a));
        // The disc has an area of π/16, up to the width of a ring of squares.
        assert!(
            (rhs.iter().sum::<f64>() - std::f64::consts::PI / 16.0).abs() < 0.5 * std::f64::consts::PI * h
        );
    }

    #[test]
    fn nodes_and_entries_are_those_of_the_paper_s_mesh() {
        // Nodes and twice the edges: 7 x y − 4 (x + y) + 2, which gives 3,674,625 for 513×1025.
        for [x, y] in [[2, 2], [5, 9], [33, 17]] {
            assert_eq!(parabolic([x, y]).unwrap().0.blocks(), 7 * x * y - 4 * (x + y) + 2);
        }
        assert_eq!((513 * 1025, 7 * 513 * 1025 - 4 * (513 + 1025) + 2), (525_825, 3_674_625));
        assert!(parabolic([1, 5]).is_err());
    }
}

//! The storage of the P-CBCG paper: a 7-point matrix by diagonals (its sect. IV-A), with x or z contiguous
//! (sect. IV-B), and the incomplete factors of its tiles.
//!
//! In a tile of a 7-point matrix, incomplete factors without fill are (D + L) D⁻¹ (D + U), where L and U are
//! the halves of A in the tile. Only the pivots D differ from A, and they do not depend on which direction is
//! contiguous.

use super::Case;
use krylith_core::{Error, Result};

/// The direction that is contiguous in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Storage {
    /// x; the paper's time t1.
    Xyz,
    /// z, after a transposition of the data; the paper's time t2.
    Zyx,
}

impl Storage {
    pub const BOTH: [Storage; 2] = [Storage::Xyz, Storage::Zyx];

    pub fn name(self) -> &'static str {
        match self {
            Storage::Xyz => "xyz",
            Storage::Zyx => "zyx",
        }
    }

    /// Returns sizes along x, y and z in the order of the storage, contiguous direction first; the map is its
    /// own inverse.
    pub fn turn(self, [x, y, z]: [usize; 3]) -> [usize; 3] {
        match self {
            Storage::Xyz => [x, y, z],
            Storage::Zyx => [z, y, x],
        }
    }

    /// Returns a vector of the natural order in the order of the storage.
    pub fn sort(self, grid: [usize; 3], x: &[f64]) -> Vec<f64> {
        match self {
            Storage::Xyz => x.to_vec(),
            Storage::Zyx => transposed(grid, x),
        }
    }

    /// Returns a vector of this storage in the natural order.
    pub fn unsort(self, grid: [usize; 3], x: &[f64]) -> Vec<f64> {
        self.sort(self.turn(grid), x)
    }
}

/// Returns the numbers with the first and the last direction exchanged.
fn transposed([nx, ny, nz]: [usize; 3], from: &[f64]) -> Vec<f64> {
    let mut to = Vec::with_capacity(from.len());
    for x in 0..nx {
        for y in 0..ny {
            to.extend((0..nz).map(|z| from[x + nx * (y + ny * z)]));
        }
    }
    to
}

/// A 7-point matrix by diagonals.
pub(crate) struct Diagonals {
    /// Cells along the directions of the storage, contiguous direction first.
    pub sides: [usize; 3],
    /// Seven diagonals: the main one, then for each direction of the storage the lower and the upper one.
    pub values: Vec<f64>,
}

impl Diagonals {
    /// Converts the matrix of a case.
    ///
    /// # Errors
    /// Returns an error for an entry that couples cells that are not neighbours on the grid.
    pub fn new(case: &Case, storage: Storage) -> Result<Self> {
        let (n, [nx, ny, nz]) = (case.rows(), case.grid);
        let (sides, naturals) = (storage.turn(case.grid), [1, nx, nx * ny]);
        let mut values = vec![0.0; 7 * n];
        for row in 0..n {
            let at = [row % nx, row / nx % ny, row / nx / ny];
            let [a, b, c] = storage.turn(at);
            let to = a + sides[0] * (b + sides[1] * c);
            let (columns, entries) = case.a.row(row);
            for (&column, value) in columns.iter().zip(entries) {
                let column = column as usize;
                let down = |d: &usize| at[*d] > 0 && column + naturals[*d] == row;
                let up = |d: &usize| at[*d] + 1 < [nx, ny, nz][*d] && column == row + naturals[*d];
                // Storage directions are those of the grid, in the same or in reversed order.
                let place = |d: usize| if storage == Storage::Xyz { d } else { 2 - d };
                let diagonal = match ((0..3).find(down), (0..3).find(up)) {
                    _ if column == row => 0,
                    (Some(d), _) => 1 + 2 * place(d),
                    (_, Some(d)) => 2 + 2 * place(d),
                    _ => {
                        return Err(Error::invalid(format!(
                            "row {row} has an entry in column {column}, which is no neighbour on the grid; \
                             the paper's kernels accept only 7-point matrices"
                        )));
                    }
                };
                values[diagonal * n + to] = *value;
            }
        }
        Ok(Self { sides, values })
    }

    pub fn len(&self) -> usize {
        self.values.len() / 7
    }

    /// Returns the entry of a row in a diagonal.
    fn at(&self, diagonal: usize, row: usize) -> f64 {
        self.values[diagonal * self.len() + row]
    }

    /// Returns the strides of the directions.
    fn strides(&self) -> [usize; 3] {
        [1, self.sides[0], self.sides[0] * self.sides[1]]
    }

    /// Returns the coordinates of a row.
    fn cell(&self, row: usize) -> [usize; 3] {
        let [_, s1, s2] = self.strides();
        [row % s1, row / s1 % self.sides[1], row / s2]
    }

    /// Returns 1/d for the pivots of every tile; `tile` has the directions of the storage.
    ///
    /// # Errors
    /// Returns an error for a pivot that is zero or not finite, with its row in the order of the storage.
    pub fn inverse(&self, tile: [usize; 3]) -> Result<Vec<f64>> {
        let (n, strides) = (self.len(), self.strides());
        let mut inverse = vec![0.0; n];
        for row in 0..n {
            let cell = self.cell(row);
            let mut pivot = self.values[row];
            for d in (0..3).filter(|&d| cell[d] % tile[d] > 0) {
                let lower = row - strides[d];
                pivot -= self.at(1 + 2 * d, row) * self.at(2 + 2 * d, lower) * inverse[lower];
            }
            inverse[row] = 1.0 / pivot;
            if !(inverse[row].is_finite() && pivot.is_finite()) {
                return Err(Error::SingularBlock {
                    row,
                    kind: "singular",
                    remedy: "the paper's factors without shifts need a pivot in every row",
                });
            }
        }
        Ok(inverse)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tiles::reference;
    use super::*;
    use crate::systems::Random;

    impl Diagonals {
        /// Returns A x.
        fn product(&self, x: &[f64]) -> Vec<f64> {
            let strides = self.strides();
            let row = |row: usize| {
                let cell = self.cell(row);
                let mut sum = self.at(0, row) * x[row];
                for d in 0..3 {
                    if cell[d] > 0 {
                        sum += self.at(1 + 2 * d, row) * x[row - strides[d]];
                    }
                    if cell[d] + 1 < self.sides[d] {
                        sum += self.at(2 + 2 * d, row) * x[row + strides[d]];
                    }
                }
                sum
            };
            (0..x.len()).map(row).collect()
        }

        /// Returns M⁻¹ r as the kernel computes it.
        fn solve(&self, tile: [usize; 3], r: &[f64]) -> Vec<f64> {
            let (strides, inverse) = (self.strides(), self.inverse(tile).unwrap());
            let mut z = vec![f64::NAN; r.len()];
            for row in 0..r.len() {
                let below = (0..3).filter(|&d| self.cell(row)[d] % tile[d] > 0);
                let below: f64 = below.map(|d| self.at(1 + 2 * d, row) * z[row - strides[d]]).sum();
                z[row] = (r[row] - below) * inverse[row];
            }
            for row in (0..r.len()).rev() {
                let cell = self.cell(row);
                let above = (0..3).filter(|&d| (cell[d] + 1) % tile[d] > 0 && cell[d] + 1 < self.sides[d]);
                let above: f64 = above.map(|d| self.at(2 + 2 * d, row) * z[row + strides[d]]).sum();
                z[row] -= inverse[row] * above;
            }
            z
        }
    }

    fn close(name: &str, a: &[f64], b: &[f64]) {
        let size = b.iter().fold(0.0f64, |m, b| m.max(b.abs()));
        assert_eq!(a.len(), b.len(), "{name}");
        for (k, (a, b)) in a.iter().zip(b).enumerate() {
            assert!((a - b).abs() <= 1e-13 * size, "{name}: {k}: {a} {b}");
        }
    }

    #[test]
    fn both_storages_have_the_product_and_the_factors_of_the_matrix() {
        for grid in ["9x7x6", "2x5x4", "5x2x3", "3x3x2"] {
            let case = Case::new(&format!("poisson-multiphase:{grid},contrast=100")).unwrap();
            let x = Random(3).numbers(case.rows());
            let product: Vec<f64> = (0..case.rows())
                .map(|i| case.a.row(i).0.iter().zip(case.a.row(i).1).map(|(&j, v)| v * x[j as usize]).sum())
                .collect();
            for storage in Storage::BOTH {
                let name = format!("{grid}, {}", storage.name());
                let (a, sorted) = (Diagonals::new(&case, storage).unwrap(), storage.sort(case.grid, &x));
                close(&name, &storage.unsort(case.grid, &sorted), &x);
                close(&name, &storage.unsort(case.grid, &a.product(&sorted)), &product);
                for tile in [[1, 1, 1], [4, 3, 2], [2, 2, 5], [16, 16, 16]] {
                    let z = storage.unsort(case.grid, &a.solve(storage.turn(tile), &sorted));
                    close(&format!("{name}, {tile:?}"), &z, &reference(&case, tile, &x).unwrap());
                }
            }
        }
    }

    #[test]
    fn a_matrix_off_the_stencil_and_a_pivot_of_zero_are_refused() {
        let mut case = Case::new("poisson-multiphase:3x3x3").unwrap();
        case.grid = [9, 3, 1];
        let error = Diagonals::new(&case, Storage::Xyz).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains("7-point"), "{error}");
        let zero = Diagonals { sides: [1, 1, 1], values: vec![0.0; 7] };
        assert!(matches!(zero.inverse([1, 1, 1]), Err(Error::SingularBlock { row: 0, .. })));
    }
}

//! Rows of a structurally singular system that together have too few columns: k rows with entries in only c <
//! k columns. No x satisfies such rows for a general right-hand side. A small least-squares problem bounds
//! the residual from below.

use crate::operator::Terms;

/// Limit on the number of entries that the matching visits, as a multiple of the stored entries.
const LOOKS: usize = 20;
/// Largest number of rows of the least-squares problem.
const MOST: usize = 400;
/// A column that keeps less than this share of its norm after orthogonalisation is linearly dependent on the
/// others.
const DEPENDENT: f64 = 1e-12;

/// Rows with too few columns, and an orthonormal basis of the span of these columns.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Crowded {
    /// Numbers of the rows, ascending.
    pub rows: Vec<usize>,
    /// Number of columns in which these rows have entries.
    pub columns: usize,
    /// Orthonormal vectors with one entry per row in `rows`.
    basis: Vec<Vec<f64>>,
}

impl Crowded {
    /// Searches for such rows in a whole system; `None` if there are none, or if the search would take too
    /// long.
    pub fn of(terms: &Terms) -> Option<Self> {
        let stored: usize = terms.terms.iter().map(|(_, a)| a.stored()).sum();
        let found = terms.structural_rank(stored.saturating_mul(LOOKS))?;
        let rows = found.crowded_rows.clone();
        if rows.is_empty() || rows.len() > MOST {
            return None;
        }
        let columns = columns(terms, &rows);
        let mut basis: Vec<Vec<f64>> = Vec::new();
        for (_, mut v) in columns.clone() {
            let length = norm(&v);
            // Orthogonalise twice, because of rounding errors.
            for q in basis.iter().chain(&basis) {
                let share = dot(q, &v);
                v.iter_mut().zip(q).for_each(|(v, q)| *v -= share * q);
            }
            let left = norm(&v);
            if left > DEPENDENT * length {
                v.iter_mut().for_each(|v| *v /= left);
                basis.push(v);
            }
        }
        Some(Self { rows, columns: columns.len(), basis })
    }

    /// Returns a lower bound on ‖b − A x‖ in these rows for any x. The possible rounding error is already
    /// subtracted.
    pub fn floor(&self, b: &[f64]) -> f64 {
        let mut r: Vec<f64> = self.rows.iter().map(|&row| b[row]).collect();
        let whole = norm(&r);
        for q in self.basis.iter().chain(&self.basis) {
            let share = dot(q, &r);
            r.iter_mut().zip(q).for_each(|(r, q)| *r -= share * q);
        }
        (norm(&r) - 1e-10 * whole).max(0.0)
    }
}

/// Returns the columns with entries in `rows`, restricted to those rows.
fn columns(terms: &Terms, rows: &[usize]) -> Vec<(usize, Vec<f64>)> {
    let (b, s) = (terms.block(), terms.stages());
    let mut all = std::collections::BTreeMap::<usize, Vec<f64>>::new();
    for (at, &row) in rows.iter().enumerate() {
        let (i, component, stage) = (row / (b * s), row / s % b, row % s);
        for (c, a) in &terms.terms {
            for p in a.row_ptr()[i]..a.row_ptr()[i + 1] {
                let values = &a.block_values(p)[component * b..][..b];
                for (place, v) in values.iter().enumerate() {
                    for l in (0..s).filter(|&l| c[(stage, l)] * v != 0.0) {
                        let column = (a.col()[p] as usize * b + place) * s + l;
                        all.entry(column).or_insert_with(|| vec![0.0; rows.len()])[at] += c[(stage, l)] * v;
                    }
                }
            }
        }
    }
    all.into_iter().collect()
}

fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

fn norm(x: &[f64]) -> f64 {
    dot(x, x).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Csr;

    #[test]
    fn three_rows_with_two_columns_fit_a_plane() {
        // Rows 0, 1 and 3 have only columns 2 and 3.
        let entries = [(0, 2, 1.0), (1, 2, 1.0), (1, 3, 2.0), (3, 3, 1.0), (2, 0, 1.0), (2, 1, 1.0)];
        let a = Csr::from_triplets(4, 4, &entries).unwrap();
        let crowded = Crowded::of(&Terms::csr(&a).unwrap()).unwrap();
        assert_eq!((crowded.rows.as_slice(), crowded.columns), (&[0, 1, 3][..], 2));
        // (1, 1, 0) and (0, 2, 1) span x − y + 2 z = 0.
        assert!(crowded.floor(&[5.0, 9.0, 7.0, 2.0]) < 1e-8);
        let expected = (4.0f64 - 1.0 + 2.0).abs() / 6f64.sqrt();
        assert!((crowded.floor(&[4.0, 1.0, 7.0, 1.0]) / expected - 1.0).abs() < 1e-8);
    }
}

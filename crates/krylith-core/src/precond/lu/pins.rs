//! Pinned unknowns of singular systems with known null vectors: one unknown for each vector is fixed at 0,
//! and its row is left out.

use super::factors::Columns;
use crate::operator::Terms;
use crate::{Error, Result};

/// Relative size below which the rest of a vector after elimination means that it is linearly dependent on
/// earlier vectors.
pub(super) const DEPENDENT: f64 = 1e-10;
/// Candidates for pinning are the unknowns at which a vector has at least this share of its largest entry.
/// The candidate whose row has the largest entry is pinned. An unknown with only weak couplings would leave
/// the remaining matrix nearly singular.
pub(super) const LARGE: f64 = 0.5;

/// Returns one unknown for each vector. The vectors' entries at these unknowns form a well-conditioned square
/// matrix. The method is elimination with complete pivoting, except for the choice among large entries
/// ([`LARGE`]).
///
/// # Errors
/// Vectors of a wrong length, or linearly dependent ones.
pub(crate) fn pins(terms: &Terms, null: &[Vec<f64>]) -> Result<Vec<usize>> {
    if null.is_empty() {
        return Ok(Vec::new());
    }
    let n = terms.rows();
    if let Some(i) = null.iter().position(|v| v.len() != n || !v.iter().all(|v| v.is_finite())) {
        return Err(Error::invalid(format!("lu: null vector {i} must have {n} finite numbers")));
    }
    let sizes = sizes(terms);
    let largest = |v: &[f64]| v.iter().fold(0.0, |m: f64, v| m.max(v.abs()));
    let mut left: Vec<Vec<f64>> = null.to_vec();
    left.iter_mut().for_each(|v| {
        let all = largest(v);
        v.iter_mut().for_each(|v| *v /= all);
    });
    let mut pins = Vec::new();
    while let Some(at) = (0..left.len()).max_by(|&i, &j| largest(&left[i]).total_cmp(&largest(&left[j]))) {
        let pivot = left.swap_remove(at);
        let most = largest(&pivot);
        if !(most > DEPENDENT) {
            return Err(Error::invalid("lu: a null vector is zero or linearly dependent on the others"));
        }
        let large = (0..n).filter(|&u| pivot[u].abs() >= LARGE * most);
        let Some(u) = large.max_by(|&u, &v| sizes[u].total_cmp(&sizes[v])) else { break };
        for v in &mut left {
            let share = v[u] / pivot[u];
            v.iter_mut().zip(&pivot).for_each(|(v, p)| *v -= share * p);
        }
        pins.push(u);
    }
    pins.sort_unstable();
    Ok(pins)
}

/// Returns the largest entry in the row of each unknown.
pub(super) fn sizes(terms: &Terms) -> Vec<f64> {
    let (b, s) = (terms.block(), terms.stages());
    let mut sizes = vec![0.0f64; terms.rows()];
    for (c, a) in &terms.terms {
        let weights: Vec<f64> = (0..s).map(|k| (0..s).map(|l| c[(k, l)].abs()).fold(0.0, f64::max)).collect();
        for i in 0..a.block_rows() {
            for p in a.row_ptr()[i]..a.row_ptr()[i + 1] {
                for (e, v) in a.block_values(p).iter().enumerate() {
                    for (k, weight) in weights.iter().enumerate() {
                        let size = &mut sizes[(i * b + e / b) * s + k];
                        *size = size.max(weight * v.abs());
                    }
                }
            }
        }
    }
    sizes
}

impl Columns {
    /// Replaces the rows and columns of these unknowns by those of a diagonal matrix. Each diagonal entry is
    /// as large as the largest entry of its column was.
    pub(super) fn pin(&mut self, pinned: &[usize]) {
        if pinned.is_empty() {
            return;
        }
        let mut is_pinned = vec![false; self.order()];
        pinned.iter().for_each(|&u| is_pinned[u] = true);
        for j in 0..self.order() {
            let range = self.col_ptr[j]..self.col_ptr[j + 1];
            let size = self.values[range.clone()].iter().fold(0.0f64, |m, v| m.max(v.abs()));
            for p in range {
                let i = self.rows[p];
                if is_pinned[i] || is_pinned[j] {
                    let diagonal = if size > 0.0 { size } else { 1.0 };
                    self.values[p] = if i == j { diagonal } else { 0.0 };
                }
            }
        }
    }
}

//! Products of sparse matrices with a fixed pattern: D + C W B, for approximate Schur complements and for
//! decoupled blocks.

use crate::Result;
use crate::matrix::Csr;
use rayon::prelude::*;

/// Fewest rows that a thread takes at a time.
const FEW: usize = 1 << 9;
/// Marks a column that has not occurred in a row.
const NONE: usize = usize::MAX;

/// Rows of a piece of work. Each piece has a workspace of one number per column, so pieces are few.
fn piece(rows: usize) -> usize {
    rows.div_ceil(4 * rayon::current_num_threads()).max(FEW)
}

/// The inner diagonal W of a product, and the sign of the product.
#[derive(Clone, Copy)]
pub struct Weight<'w> {
    /// Diagonal of W; the identity without it.
    pub diagonal: Option<&'w [f64]>,
    /// +1 or −1.
    pub sign: f64,
}

impl Weight<'_> {
    /// Identity, and a product that is added.
    pub const ONE: Self = Self { diagonal: None, sign: 1.0 };

    /// Returns s c w_k.
    fn times(self, c: f64, k: u32) -> f64 {
        self.sign * c * self.diagonal.map_or(1.0, |w| w[k as usize])
    }
}

/// Returns D + s C W B, with the union of the patterns. Every diagonal entry is stored, unless the result has
/// fewer columns than rows.
///
/// # Errors
/// An internal error of Krylith.
pub(crate) fn product(d: Option<&Csr>, c: &Csr, w: Weight, b: &Csr) -> Result<Csr> {
    let (rows, columns) = (c.rows(), b.columns());
    // Columns, values and lengths of some rows.
    let multiply = |range: std::ops::Range<usize>| {
        let (mut seen, mut sums) = (vec![NONE; columns], vec![0.0; columns]);
        let (mut col, mut values, mut counts) = (Vec::new(), Vec::new(), Vec::with_capacity(range.len()));
        for i in range {
            let start = col.len();
            let mut add = |j: u32, v: f64| {
                let at = j as usize;
                if seen[at] != i {
                    (seen[at], sums[at]) = (i, 0.0);
                    col.push(j);
                }
                sums[at] += v;
            };
            if rows <= columns {
                add(i as u32, 0.0);
            }
            if let Some(d) = d {
                let (col, values) = d.row(i);
                col.iter().zip(values).for_each(|(&j, v)| add(j, *v));
            }
            let (inner, factors) = c.row(i);
            for (&k, c) in inner.iter().zip(factors) {
                let c = w.times(*c, k);
                let (col, values) = b.row(k as usize);
                col.iter().zip(values).for_each(|(&j, v)| add(j, c * v));
            }
            col[start..].sort_unstable();
            values.extend(col[start..].iter().map(|&j| sums[j as usize]));
            counts.push(col.len() - start);
        }
        (col, values, counts)
    };
    let few = piece(rows);
    let ranges: Vec<_> = (0..rows).step_by(few).map(|first| first..rows.min(first + few)).collect();
    let pieces: Vec<(Vec<u32>, Vec<f64>, Vec<usize>)> = ranges.into_par_iter().map(multiply).collect();
    let mut row_ptr = vec![0];
    for count in pieces.iter().flat_map(|piece| &piece.2) {
        row_ptr.push(row_ptr[row_ptr.len() - 1] + count);
    }
    let all = row_ptr[row_ptr.len() - 1];
    let (mut col, mut values) = (Vec::with_capacity(all), Vec::with_capacity(all));
    for (c, v, _) in pieces {
        col.extend(c);
        values.extend(v);
    }
    Csr::new(rows, columns, row_ptr, col, values)
}

/// Computes the values for new values of D, C, W and B, in the result of [`product`] for others of the same
/// patterns.
pub(crate) fn product_again(d: Option<&Csr>, c: &Csr, w: Weight, b: &Csr, result: &mut Csr) {
    let (row_ptr, col) = (result.row_ptr().to_vec(), result.col().to_vec());
    let (rows, columns) = (result.rows(), result.columns());
    let mut rest = result.values_mut();
    let few = piece(rows);
    let mut pieces = Vec::with_capacity(rows.div_ceil(few));
    for first in (0..rows).step_by(few) {
        let last = rows.min(first + few);
        let (own, others) = rest.split_at_mut(row_ptr[last] - row_ptr[first]);
        pieces.push((first..last, own));
        rest = others;
    }
    pieces.into_par_iter().for_each(|(range, values)| {
        let mut sums = vec![0.0; columns];
        let start = row_ptr[range.start];
        for i in range {
            let own = row_ptr[i]..row_ptr[i + 1];
            col[own.clone()].iter().for_each(|&j| sums[j as usize] = 0.0);
            if let Some(d) = d {
                let (col, values) = d.row(i);
                col.iter().zip(values).for_each(|(&j, v)| sums[j as usize] += v);
            }
            let (inner, factors) = c.row(i);
            for (&k, c) in inner.iter().zip(factors) {
                let c = w.times(*c, k);
                let (col, values) = b.row(k as usize);
                col.iter().zip(values).for_each(|(&j, v)| sums[j as usize] += c * v);
            }
            for (v, &j) in values[own.start - start..own.end - start].iter_mut().zip(&col[own]) {
                *v = sums[j as usize];
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::random;

    fn sparse(rows: usize, columns: usize, seed: u64) -> Csr {
        let all =
            (0..rows * columns).map(|k| ((k / columns) as u32, (k % columns) as u32, random(seed, k as u64)));
        Csr::from_triplets(rows, columns, &all.filter(|e| e.2 > 0.4).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn products_are_those_of_dense_matrices() {
        let (d, c, b) = (sparse(40, 40, 1), sparse(40, 60, 2), sparse(60, 40, 3));
        let w: Vec<f64> = (0..60).map(|k| random(4, k)).collect();
        let weight = Weight { diagonal: Some(&w), sign: -1.0 };
        let mut s = product(Some(&d), &c, weight, &b).unwrap();
        let same = |s: &Csr, factor: f64| {
            for i in 0..40 {
                for j in 0..40 {
                    let sum: f64 = (0..60).map(|k| c.get(i, k) * w[k] * b.get(k, j)).sum();
                    assert!((s.get(i, j) - factor * (d.get(i, j) - sum)).abs() < 1e-13, "({i}, {j})");
                }
            }
        };
        same(&s, 1.0);
        let twice = |a: &Csr| {
            let mut a = a.clone();
            a.values_mut().iter_mut().for_each(|v| *v *= 2.0);
            a
        };
        product_again(Some(&twice(&d)), &twice(&c), weight, &b, &mut s);
        same(&s, 2.0);
        assert!((0..40).all(|i| s.row(i).0.contains(&(i as u32))), "the diagonal is stored");
    }
}

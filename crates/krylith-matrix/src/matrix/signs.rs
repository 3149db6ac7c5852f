//! Signs of rows that make a matrix symmetric.

use super::Bsr;

/// Differences up to this share of the largest entry of a row are rounding errors.
const ROUNDING: f64 = 1e-12;

/// Returns the rows whose sign has to be changed so that a square matrix becomes symmetric, as for
/// [[A, −Bᵀ], [B, 0]]; `None` if that cannot be. Of each connected part the fewer rows are listed, in
/// ascending order.
///
/// # Examples
/// ```
/// use krylith_matrix::matrix::{Bsr, Csr, rows_to_negate};
/// let couplings = [(0, 2, -1.0), (2, 0, 1.0), (1, 2, 3.0), (2, 1, -3.0)];
/// let a = Csr::from_triplets(3, 3, &[&couplings[..], &[(0, 0, 2.0), (1, 1, 2.0)]].concat())?;
/// assert_eq!(rows_to_negate(&Bsr::from_csr(&a, 1)?), Some(vec![2]));
/// # Ok::<(), krylith::Error>(())
/// ```
pub fn rows_to_negate(a: &Bsr) -> Option<Vec<usize>> {
    let b = a.block();
    let n = a.block_rows() * b;
    let mut signs = Signs { parent: (0..n as u32).collect(), unlike: vec![false; n] };
    for i in 0..a.block_rows() {
        let own = a.row_ptr()[i]..a.row_ptr()[i + 1];
        let mut largest = vec![0.0f64; b];
        for row in own.clone().map(|p| a.block_values(p)) {
            let rows = row.chunks_exact(b).zip(&mut largest);
            rows.for_each(|(row, max)| *max = row.iter().fold(*max, |max, v| max.max(v.abs())));
        }
        for p in own {
            let j = a.col()[p] as usize;
            let other = if j < a.block_rows() { a.row_ptr()[j]..a.row_ptr()[j + 1] } else { return None };
            let q = a.col()[other.clone()].binary_search(&(i as u32)).ok().map(|q| other.start + q);
            for (e, v) in a.block_values(p).iter().enumerate() {
                let (r, c) = (e / b, e % b);
                let w = q.map_or(0.0, |q| a.block_values(q)[c * b + r]);
                let least = ROUNDING * largest[r];
                if (v.abs() - w.abs()).abs() > least {
                    return None;
                }
                if v.abs() > least && !signs.join(i * b + r, j * b + c, v * w < 0.0) {
                    return None;
                }
            }
        }
    }
    let mut sizes = vec![[0usize; 2]; n];
    let placed: Vec<(usize, bool)> = (0..n).map(|i| signs.root(i)).collect();
    placed.iter().for_each(|&(root, unlike)| sizes[root][usize::from(unlike)] += 1);
    let is_listed = |&(root, unlike): &(usize, bool)| unlike == (sizes[root][1] <= sizes[root][0]);
    Some((0..n).filter(|&i| is_listed(&placed[i])).collect())
}

/// Union-find over rows, with the sign of each relative to its root.
struct Signs {
    parent: Vec<u32>,
    unlike: Vec<bool>,
}

impl Signs {
    /// Returns the root, and true if the sign is opposite to that of the root.
    fn root(&mut self, mut i: usize) -> (usize, bool) {
        let mut unlike = false;
        while self.parent[i] as usize != i {
            let up = self.parent[i] as usize;
            self.unlike[i] ^= self.unlike[up];
            self.parent[i] = self.parent[up];
            unlike ^= self.unlike[i];
            i = self.parent[i] as usize;
        }
        (i, unlike)
    }

    /// Joins rows of equal or opposite signs. Returns false if that contradicts earlier pairs.
    fn join(&mut self, i: usize, j: usize, unlike: bool) -> bool {
        let ((i, own), (j, other)) = (self.root(i), self.root(j));
        if i == j {
            return own ^ other == unlike;
        }
        // The first row of a part is its root.
        let (first, last) = (i.min(j), i.max(j));
        (self.parent[last], self.unlike[last]) = (first as u32, own ^ other ^ unlike);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Csr;

    /// Random symmetric matrices, of which the rows of some unknowns change their sign, and one entry more.
    #[test]
    fn negated_rows_are_found() {
        let random = |seed: usize, k: usize| (seed * 7919 + k * 104_729) % 1009;
        for (round, b) in (0..60).flat_map(|round| [(round, 1), (round, 2), (round, 3)]) {
            let n = b * (4 + round % 9);
            let mut entries = Vec::new();
            for i in 0..n {
                entries.push((i, i, 1.0 + random(round, i) as f64));
                entries.extend((i > 0).then(|| [(i, i - 1, 1.5), (i - 1, i, 1.5)]).into_iter().flatten());
                let j = random(round, 3 * i) % n;
                let v = random(round + 5, i) as f64 - 500.3;
                entries.extend((j + 1 < i).then_some([(i, j, v), (j, i, v)]).into_iter().flatten());
            }
            // Fewer than half of the rows.
            let negated: Vec<usize> =
                (0..n).filter(|i| random(round + 9, *i) % 3 == 0).take((n - 1) / 2).collect();
            let sign = |i: usize| if negated.contains(&i) { -1.0 } else { 1.0 };
            let with = |change: f64| {
                let last = |(i, j)| if (i, j) == (n - 1, n - 2) { 1.0 + change } else { 1.0 };
                let all: Vec<_> = entries
                    .iter()
                    .map(|&(i, j, v)| (i as u32, j as u32, sign(i) * last((i, j)) * v))
                    .collect();
                rows_to_negate(&Bsr::from_csr(&Csr::from_triplets(n, n, &all).unwrap(), b).unwrap())
            };
            assert_eq!(with(0.0), Some(negated.clone()), "{round} {b}");
            assert_eq!(with(1e-6), None, "{round} {b}");
        }
        // Signs around a triangle that contradict each other.
        let ring = [(0, 1, 1.0), (1, 0, 1.0), (1, 2, 1.0), (2, 1, 1.0), (0, 2, 1.0), (2, 0, -1.0)];
        let a = Csr::from_triplets(3, 3, &ring).unwrap();
        assert_eq!(rows_to_negate(&Bsr::from_csr(&a, 1).unwrap()), None);
    }
}

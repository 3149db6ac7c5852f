//! Recognises symmetric matrices, and those that signs of columns make symmetric.

use super::factors::Columns;

/// Largest difference of a_ij and a_ji, relative to the largest entries of their rows, at which they count as
/// equal.
pub(super) const EQUAL: f64 = 1e-11;

/// The diagonal of a symmetric matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Diagonal {
    Positive,
    /// No zeros, and some negative entries.
    Signs,
    Zeros,
}

impl Columns {
    /// Returns the signs on the diagonal of a symmetric matrix; `None` if the matrix is not symmetric.
    ///
    /// a_ij and a_ji may differ by rounding errors, relative to the largest entries of their rows. If one of
    /// them is that small, the other may be missing. Assembly of a matrix causes both.
    pub fn symmetry(&self) -> Option<Diagonal> {
        let mut diagonal = Diagonal::Positive;
        let symmetric = self.mirrored(|i, j, v, other, size| {
            if i == j {
                diagonal = match diagonal {
                    _ if v == 0.0 => Diagonal::Zeros,
                    Diagonal::Positive if v < 0.0 => Diagonal::Signs,
                    old => old,
                };
            }
            (v - other).abs() <= EQUAL * size
        });
        symmetric.then_some(diagonal)
    }

    /// Returns signs of columns with which the matrix is symmetric, as it is for the real form [R −I; I R] of
    /// a complex symmetric matrix, and for a saddle point [A Bᵀ; −B 0]; `None` if there are none. The signs
    /// multiply along the edges of the graph, so a search finds them.
    pub fn signs(&self) -> Option<Vec<f64>> {
        let n = self.order();
        // Each unknown's parent in its set, and whether their signs differ.
        let mut sets: Vec<(u32, bool)> = (0..n as u32).map(|i| (i, false)).collect();
        fn root(sets: &mut [(u32, bool)], i: usize) -> (u32, bool) {
            let (mut at, mut differs) = (i as u32, false);
            while sets[at as usize].0 != at {
                let (up, change) = sets[at as usize];
                let (top, next) = sets[up as usize];
                sets[at as usize] = (top, change ^ (next && top != up));
                (at, differs) = (top, differs ^ sets[at as usize].1);
            }
            (at, differs)
        }
        let mirrored = self.mirrored(|i, j, v, other, size| {
            if i == j || v.abs().max(other.abs()) <= EQUAL * size {
                return true;
            }
            let opposite = (v < 0.0) != (other < 0.0);
            let ((a, at_i), (b, at_j)) = (root(&mut sets, i), root(&mut sets, j));
            if a == b {
                return (v.abs() - other.abs()).abs() <= EQUAL * size && at_i ^ at_j == opposite;
            }
            sets[b as usize] = (a, at_i ^ at_j ^ opposite);
            (v.abs() - other.abs()).abs() <= EQUAL * size
        });
        mirrored.then(|| (0..n).map(|i| if root(&mut sets, i).1 { -1.0 } else { 1.0 }).collect())
    }

    /// Visits each pair of entries i, j, a_ij, a_ji once, and each diagonal entry, with the smaller of the
    /// largest entries of their rows. Returns false as soon as `visit` does.
    fn mirrored(&self, mut visit: impl FnMut(usize, usize, f64, f64, f64) -> bool) -> bool {
        let largest = |j: usize| self.column(j).fold(0.0, |m: f64, (_, v)| m.max(v.abs()));
        let sizes: Vec<f64> = (0..self.order()).map(largest).collect();
        let size = |i: usize, j: usize| sizes[i].min(sizes[j]);
        // Columns are traversed in order. So if a_ij is the next entry in column j, a_ji is the next entry in
        // column i.
        let mut next = self.col_ptr.clone();
        let step = |next: &mut [usize], j: usize, i: usize| {
            let left = |next: &[usize]| next[j] < self.col_ptr[j + 1];
            while left(next)
                && self.rows[next[j]] < i
                && self.values[next[j]].abs() <= EQUAL * size(self.rows[next[j]], j)
            {
                next[j] += 1;
            }
            let (p, found) = (next[j], left(next) && self.rows[next[j]] == i);
            next[j] += usize::from(found);
            found.then(|| self.values[p])
        };
        for j in 0..self.order() {
            let own = step(&mut next, j, j).unwrap_or(0.0);
            if !visit(j, j, own, own, sizes[j]) {
                return false;
            }
            for p in next[j]..self.col_ptr[j + 1] {
                let (i, v) = (self.rows[p], self.values[p]);
                let other = step(&mut next, i, j).unwrap_or(0.0);
                if !visit(i, j, v, other, size(i, j)) {
                    return false;
                }
            }
        }
        true
    }
}

//! Borders: dense rows and columns, such as the row of a mean value, around factors of the rest.
//!
//! A dense row couples all columns. COLAMD and the bounds of George and Ng (1987) then treat the factors as
//! dense, and partial pivoting may fill them. So dense rows and columns are taken out of the factors:
//!
//! ```text
//! A = [A₁₁ A₁₂; A₂₁ A₂₂],         S = A₂₂ − A₂₁ A₁₁⁻¹ A₁₂,
//! x₂ = S⁻¹ (b₂ − A₂₁ A₁₁⁻¹ b₁),   x₁ = A₁₁⁻¹ b₁ − A₁₁⁻¹ A₁₂ x₂,
//! ```
//!
//! where A₂₂ has the dense rows and columns. A₁₁ alone may be singular although A is not. An example is a
//! Laplacian without boundary values, which becomes regular by a row for the mean value, or an enclosed flow
//! by a row for the mean pressure. So δ is added to one diagonal entry p of each connected part of A₁₁, where
//! the dense rows have entries, and to one for each dense row with a zero diagonal entry: an optimal control
//! of an enclosed flow has two pressures in one part. For each such entry the border gets an unknown y = x_p,
//! whose column −δ cancels the addition. So the whole system remains the given one.

use super::factors::{Columns, Factors, Work};
use crate::Result;
use crate::precond::invert::eliminate;

/// A row or column with more than this number times √n entries is dense, as in COLAMD.
const DENSE: f64 = 10.0;
/// Rows and columns with at most this many entries never count as dense.
const FEW: usize = 200;
/// Largest number of unknowns of a border.
const MOST: usize = 64;

/// The border around the factors of A₁₁ + δ, where δ stands for all additions to the diagonal.
pub(super) struct Border {
    /// Unknowns of the border. `inner` lists the other unknowns.
    outer: Vec<usize>,
    inner: Vec<usize>,
    /// A₂₁ and the rows of y, row by row: each entry's position among the inner unknowns, and its value.
    rows: Vec<Vec<(usize, f64)>>,
    /// (A₁₁ + δ)⁻¹ [A₁₂, −δ], column by column.
    columns: Vec<f64>,
    /// S⁻¹, by rows.
    inverse: Vec<f64>,
}

/// Returns the unknowns with a dense row or column; `None` if there are none or more than [`MOST`].
pub(super) fn dense(a: &Columns) -> Option<Vec<usize>> {
    let n = a.order();
    let many = ((DENSE * (n as f64).sqrt()) as usize).max(FEW);
    let mut rows = vec![0usize; n];
    a.rows.iter().for_each(|&i| rows[i] += 1);
    let outer: Vec<usize> =
        (0..n).filter(|&i| rows[i] > many || a.col_ptr[i + 1] - a.col_ptr[i] > many).collect();
    (!outer.is_empty() && outer.len() <= MOST && outer.len() < n).then_some(outer)
}

/// A₁₁ + δ, with the unknowns of the border and the positions of δ among the inner unknowns.
pub(super) struct Split {
    pub inner: Columns,
    outer: Vec<usize>,
    places: Vec<usize>,
    pins: Vec<(usize, f64)>,
}

impl Split {
    /// Separates the dense unknowns from the rest; `None` if the rest has too many connected parts.
    pub fn new(a: &Columns, outer: Vec<usize>) -> Option<Self> {
        let n = a.order();
        let mut place = vec![0usize; n];
        outer.iter().for_each(|&u| place[u] = usize::MAX);
        let places: Vec<usize> = (0..n).filter(|&u| place[u] == 0).collect();
        places.iter().enumerate().for_each(|(k, &u)| place[u] = k);
        let mut inner = Columns { col_ptr: vec![0], rows: Vec::new(), values: Vec::new() };
        for &j in &places {
            let mut has_diagonal = false;
            for (i, v) in a.column(j).filter(|(i, _)| place[*i] != usize::MAX) {
                // Every column gets a diagonal entry, because δ is added to one of each part.
                if !has_diagonal && i >= j {
                    has_diagonal = true;
                    if i > j {
                        inner.rows.push(place[j]);
                        inner.values.push(0.0);
                    }
                }
                inner.rows.push(place[i]);
                inner.values.push(v);
            }
            if !has_diagonal {
                inner.rows.push(place[j]);
                inner.values.push(0.0);
            }
            inner.col_ptr.push(inner.rows.len());
        }
        let mut is_met = vec![false; places.len()];
        let (mut met_by, mut is_multiplier) = (vec![Vec::new(); outer.len()], vec![true; outer.len()]);
        let mut at_border = vec![usize::MAX; n];
        outer.iter().enumerate().for_each(|(k, &u)| at_border[u] = k);
        for (j, j_at) in place.iter().enumerate() {
            for (i, _) in a.column(j).filter(|(_, v)| *v != 0.0) {
                if (place[i] == usize::MAX) != (*j_at == usize::MAX) {
                    let (k, own) = (place[i].min(*j_at), at_border[i].min(at_border[j]));
                    is_met[k] = true;
                    met_by[own].push(k);
                } else if i == j && at_border[i] != usize::MAX {
                    is_multiplier[at_border[i]] = false;
                }
            }
        }
        let multipliers = met_by.into_iter().zip(is_multiplier).filter_map(|(met, is)| is.then_some(met));
        let pins = pins(&inner, &is_met, &multipliers.collect::<Vec<_>>())?;
        for &(k, delta) in &pins {
            let entry = (inner.col_ptr[k]..inner.col_ptr[k + 1]).find(|&e| inner.rows[e] == k)?;
            inner.values[entry] += delta;
        }
        (outer.len() + pins.len() <= MOST).then_some(Self { inner, outer, places, pins })
    }

    /// Builds the border around factors of the inner part; `None` if the border is singular.
    ///
    /// # Errors
    /// Factors that cannot be applied.
    pub fn border(self, a: &Columns, factors: &Factors, work: &mut Work) -> Result<Option<Border>> {
        let Self { inner, outer, places, pins } = self;
        let (n, known) = (places.len(), outer.len());
        let all = known + pins.len();
        let mut place = vec![usize::MAX; a.order()];
        places.iter().enumerate().for_each(|(k, &u)| place[u] = k);
        let mut at_border = vec![usize::MAX; a.order()];
        outer.iter().enumerate().for_each(|(k, &u)| at_border[u] = k);
        let mut rows: Vec<Vec<(usize, f64)>> = vec![Vec::new(); all];
        for (k, &j) in places.iter().enumerate() {
            for (i, v) in a.column(j).filter(|(i, _)| at_border[*i] != usize::MAX) {
                rows[at_border[i]].push((k, v));
            }
        }
        let mut corner = vec![0.0; all * all];
        for (c, &j) in outer.iter().enumerate() {
            for (i, v) in a.column(j).filter(|(i, _)| at_border[*i] != usize::MAX) {
                corner[at_border[i] * all + c] += v;
            }
        }
        for (k, &(p, _)) in pins.iter().enumerate() {
            rows[known + k].push((p, 1.0));
            corner[(known + k) * all + known + k] = -1.0;
        }
        let mut columns = vec![0.0; n * all];
        for (c, column) in columns.chunks_exact_mut(n.max(1)).enumerate() {
            match outer.get(c) {
                Some(&j) => a
                    .column(j)
                    .filter(|(i, _)| place[*i] != usize::MAX)
                    .for_each(|(i, v)| column[place[i]] = v),
                None => column[pins[c - known].0] = -pins[c - known].1,
            }
            work.x.clear();
            work.x.extend_from_slice(column);
            factors.solve(false, work)?;
            column.copy_from_slice(&work.x);
            for (r, row) in rows.iter().enumerate() {
                corner[r * all + c] -= row.iter().map(|(k, v)| v * column[*k]).sum::<f64>();
            }
        }
        drop(inner);
        Ok(inverse(all, corner).map(|inverse| Border { outer, inner: places, rows, columns, inverse }))
    }
}

/// Returns the inverse of a small matrix, by rows, if it exists.
fn inverse(m: usize, mut a: Vec<f64>) -> Option<Vec<f64>> {
    let mut inverse = vec![0.0; m * m];
    for (i, row) in a.chunks_exact_mut(m).enumerate() {
        let scale = 1.0 / row.iter().fold(0.0f64, |most, v| most.max(v.abs()));
        row.iter_mut().for_each(|v| *v *= scale);
        inverse[i * m + i] = scale;
    }
    eliminate(m, &mut a, &mut inverse).is_ok().then_some(inverse)
}

/// Returns for each connected part the position of its largest diagonal entry and the δ to add there; `None`
/// if there are too many parts. Unknowns that dense rows or columns refer to come first, because they include
/// those that the rest of the matrix does not determine. Those of a saddle point have no diagonal entry; δ is
/// that of their Schur complement. Each of the `multipliers` gets a pin of its own among its unknowns.
fn pins(a: &Columns, is_met: &[bool], multipliers: &[Vec<usize>]) -> Option<Vec<(usize, f64)>> {
    let n = a.order();
    let mut part: Vec<usize> = (0..n).collect();
    fn root(part: &mut [usize], mut i: usize) -> usize {
        while part[i] != i {
            part[i] = part[part[i]];
            i = part[i];
        }
        i
    }
    for j in 0..n {
        for (i, _) in a.column(j) {
            let (one, other) = (root(&mut part, i), root(&mut part, j));
            part[one.max(other)] = one.min(other);
        }
    }
    let diagonal: Vec<f64> =
        (0..n).map(|j| a.column(j).find(|(i, _)| *i == j).map_or(0.0, |(_, v)| v)).collect();
    let mut best: std::collections::BTreeMap<usize, usize> = Default::default();
    for j in 0..n {
        let of = root(&mut part, j);
        let entry = best.entry(of).or_insert(j);
        let rank = |j: usize| (is_met[j], diagonal[j].abs());
        if rank(j).partial_cmp(&rank(*entry)).is_some_and(|order| order.is_gt()) {
            *entry = j;
        }
        if best.len() > MOST {
            return None;
        }
    }
    let complement = |j: usize| -> f64 {
        let of = |(i, v): (usize, f64)| if diagonal[i] == 0.0 { 0.0 } else { v * v / diagonal[i] };
        a.column(j).map(of).sum()
    };
    let delta = |j: usize| match (diagonal[j], complement(j)) {
        (0.0, 0.0) => 1.0,
        (0.0, size) => -size,
        (own, _) => own,
    };
    let mut pinned: Vec<usize> = best.into_values().collect();
    for met in multipliers {
        // A pin that is there already may be that of the part.
        let is_free = met.iter().all(|k| !pinned.contains(k));
        let largest =
            |&i: &usize, &j: &usize| diagonal[i].abs().total_cmp(&diagonal[j].abs()).then(j.cmp(&i));
        pinned.extend(met.iter().copied().filter(|_| is_free).max_by(largest));
    }
    pinned.sort_unstable();
    Some(pinned.into_iter().map(|j| (j, delta(j))).collect())
}

impl Border {
    /// Returns the number of numbers that the border stores in addition to the factors.
    pub fn numbers(&self) -> usize {
        self.columns.len() + self.rows.iter().map(Vec::len).sum::<usize>()
    }

    /// Computes x ← A⁻¹ x.
    ///
    /// # Errors
    /// Factors that cannot be applied.
    pub fn solve(&self, factors: &Factors, work: &mut Work) -> Result<()> {
        let (n, m) = (self.inner.len(), self.rows.len());
        let mut whole = std::mem::take(&mut work.whole);
        std::mem::swap(&mut work.x, &mut whole);
        work.x.clear();
        work.x.extend(self.inner.iter().map(|&u| whole[u]));
        let done = factors.solve(false, work);
        let [right, z] = &mut work.border;
        right.clear();
        right.extend(self.outer.iter().map(|&u| whole[u]));
        right.resize(m, 0.0);
        for (right, row) in right.iter_mut().zip(&self.rows) {
            *right -= row.iter().map(|(k, v)| v * work.x[*k]).sum::<f64>();
        }
        z.clear();
        z.extend(
            self.inverse.chunks_exact(m).map(|row| row.iter().zip(&*right).map(|(s, r)| s * r).sum::<f64>()),
        );
        for (z, column) in z.iter().zip(self.columns.chunks_exact(n)) {
            work.x.iter_mut().zip(column).for_each(|(x, c)| *x -= z * c);
        }
        self.inner.iter().zip(&work.x).for_each(|(&u, x)| whole[u] = *x);
        self.outer.iter().zip(&*z).for_each(|(&u, z)| whole[u] = *z);
        std::mem::swap(&mut work.x, &mut whole);
        work.whole = whole;
        done
    }

    /// Solves with the transposed matrix, the steps of [`solve`](Self::solve) in reverse order.
    ///
    /// # Errors
    /// As [`Factors::solve`].
    pub fn solve_transpose(&self, factors: &Factors, work: &mut Work) -> Result<()> {
        let (n, m) = (self.inner.len(), self.rows.len());
        let mut whole = std::mem::take(&mut work.whole);
        std::mem::swap(&mut work.x, &mut whole);
        work.x.clear();
        work.x.extend(self.inner.iter().map(|&u| whole[u]));
        let [right, z] = &mut work.border;
        right.clear();
        right.extend(self.outer.iter().map(|&u| whole[u]));
        right.resize(m, 0.0);
        for (right, column) in right.iter_mut().zip(self.columns.chunks_exact(n.max(1))) {
            *right -= work.x.iter().zip(column).map(|(x, c)| x * c).sum::<f64>();
        }
        z.clear();
        z.resize(m, 0.0);
        for (row, right) in self.inverse.chunks_exact(m).zip(&*right) {
            z.iter_mut().zip(row).for_each(|(z, s)| *z += s * right);
        }
        for (z, row) in z.iter().zip(&self.rows) {
            row.iter().for_each(|(k, v)| work.x[*k] -= v * z);
        }
        self.outer.iter().zip(&*z).for_each(|(&u, z)| whole[u] = *z);
        let done = factors.solve(true, work);
        self.inner.iter().zip(&work.x).for_each(|(&u, x)| whole[u] = *x);
        std::mem::swap(&mut work.x, &mut whole);
        work.whole = whole;
        done
    }
}

#[cfg(test)]
mod tests {
    use crate::matrix::Csr;
    use crate::operator::Terms;
    use crate::precond::SparseLu;
    use crate::precond::lu::tests::{hold, random_blocks};

    /// Returns a Laplacian without boundary values on a square, with `dense` rows and columns that make it
    /// regular.
    fn with_means(side: usize, dense: usize, mirrored: bool) -> Csr {
        let n = side * side;
        let mut entries: Vec<(u32, u32, f64)> = Vec::new();
        let mut couple = |i: usize, j: usize| {
            for (r, c, v) in [(i, j, -1.0), (j, i, -1.0), (i, i, 1.0), (j, j, 1.0)] {
                entries.push((r as u32, c as u32, v));
            }
        };
        for i in 0..n {
            if i % side + 1 < side {
                couple(i, i + 1);
            }
            if i + side < n {
                couple(i, i + side);
            }
        }
        for k in 0..dense {
            for i in 0..n {
                let v = if k == 0 { 1.0 } else { ((i * (k + 7)) % 11) as f64 - 4.5 };
                entries.push(((n + k) as u32, i as u32, v));
                if mirrored {
                    entries.push((i as u32, (n + k) as u32, v));
                }
            }
            if !mirrored {
                entries.push((k as u32, (n + k) as u32, 1.0));
            }
        }
        Csr::from_triplets(n + dense, n + dense, &entries).unwrap()
    }

    #[test]
    fn dense_rows_are_a_border_of_sparse_factors() {
        for (side, dense, mirrored) in [(20, 1, true), (20, 3, true), (21, 1, false), (22, 2, false)] {
            let a = with_means(side, dense, mirrored);
            let terms = Terms::csr(&a).unwrap();
            let mut lu = SparseLu::new(&terms, None).unwrap();
            let n = a.rows();
            assert!(lu.kind().starts_with("bordered"), "{}", lu.kind());
            assert!(lu.numbers() < n * 60, "{} numbers of {n} unknowns", lu.numbers());
            hold(&lu, &terms, &format!("{side}², {dense} dense"));
            // The same pattern with other values.
            let mut b = a.clone();
            b.values_mut().iter_mut().for_each(|v| *v *= 1.5);
            lu.update_values(crate::operator::TermValues::matrix(b.values())).unwrap();
            hold(&lu, &Terms::csr(&b).unwrap(), "new values");
        }
    }

    /// Without the row of the mean pressure, constants of p are in the null space of the flow.
    #[test]
    fn a_mean_pressure_is_a_border_of_an_enclosed_flow() {
        let m = 22usize;
        let (faces, n) = (m * (m - 1), 2 * m * (m - 1) + m * m);
        // Velocities on faces normal to x and to y between m² cells, with pressures in the cells.
        let x = |i: usize, j: usize| (i + (m - 1) * j) as u32;
        let y = |i: usize, j: usize| (faces + i + m * j) as u32;
        let p = |i: usize, j: usize| (2 * faces + i + m * j) as u32;
        for turned in [1.0, -1.0] {
            let mut entries: Vec<(u32, u32, f64)> = Vec::new();
            for u in 0..2 * faces as u32 {
                entries.push((u, u, 4.0));
            }
            for (i, j) in (0..m * (m - 1)).map(|k| (k % (m - 1), k / (m - 1))) {
                let faces = [(x(i, j), p(i, j), p(i + 1, j)), (y(j, i), p(j, i), p(j, i + 1))];
                for (u, low, high) in faces {
                    entries.extend([(u, low, -1.0), (u, high, 1.0)]);
                    entries.extend([(low, u, -turned), (high, u, turned)]);
                }
                if i + 2 < m {
                    for (u, v) in [(x(i, j), x(i + 1, j)), (y(j, i), y(j, i + 1))] {
                        entries.extend([(u, v, -1.0), (v, u, -1.0)]);
                    }
                }
            }
            for k in 0..(m * m) as u32 {
                let p = 2 * faces as u32 + k;
                entries.extend([(n as u32, p, 1.0), (p, n as u32, 1.0)]);
            }
            let a = Csr::from_triplets(n + 1, n + 1, &entries).unwrap();
            let terms = Terms::csr(&a).unwrap();
            let lu = SparseLu::new(&terms, None).unwrap();
            assert!(lu.kind().starts_with("bordered"), "{}", lu.kind());
            hold(&lu, &terms, &format!("signs {turned}"));
        }
    }

    /// Two Laplacians without boundary values that are coupled, as a state and its adjoint: each has
    /// constants in its null space, and a row for its mean.
    #[test]
    fn each_mean_of_a_connected_part_has_a_pin() {
        let side = 40usize;
        let n = side * side;
        let mut entries: Vec<(u32, u32, f64)> = Vec::new();
        let mut couple = |i: usize, j: usize, v: f64| {
            entries.extend([(i as u32, j as u32, v), (j as u32, i as u32, v)]);
        };
        for i in 0..n {
            for j in [(i % side + 1 < side).then_some(i + 1), (i + side < n).then_some(i + side)] {
                let Some(j) = j else { continue };
                // K couples the state with the adjoint, and a weak mass without constants couples each with
                // itself.
                for (a, b, v) in [(i, n + j, -1.0), (j, n + i, -1.0), (i, n + i, 1.0), (j, n + j, 1.0)] {
                    couple(a, b, v);
                }
                for (f, k) in [(0, 1e-2), (n, -1e-2)] {
                    couple(f + i, f + j, -k);
                    couple(f + i, f + i, 0.5 * k);
                    couple(f + j, f + j, 0.5 * k);
                }
            }
            couple(i, 2 * n, 1.0);
            couple(n + i, 2 * n + 1, 1.0);
        }
        let a = Csr::from_triplets(2 * n + 2, 2 * n + 2, &entries).unwrap();
        let terms = Terms::csr(&a).unwrap();
        let lu = SparseLu::new(&terms, None).unwrap();
        assert_eq!(lu.kind(), "bordered LBLᵀ");
        hold(&lu, &terms, "two means");
    }

    #[test]
    fn what_has_no_dense_rows_has_no_border() {
        let a = random_blocks(3, 2, 60, 0);
        let lu = SparseLu::new(&Terms::bsr(&a), None).unwrap();
        assert!(!lu.kind().starts_with("bordered"));
    }
}

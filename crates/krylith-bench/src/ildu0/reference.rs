//! Incomplete factorisation and triangular solves by plain loops on the host: the reference for every
//! variant.

use super::system::{SubdomainSystem, shares};
use krylith_core::{Error, Result};
use std::ops::Range;

/// ILU(0) of every subdomain as A ≈ (I + L) D (I + U), blocks row-major in the pattern of the system.
pub(crate) struct Factors {
    /// L and U strictly below and above the diagonal; D⁻¹ on it.
    pub values: Vec<f64>,
    /// D, one block per row.
    pub pivots: Vec<f64>,
    /// Index of the diagonal entry in each row.
    pub diagonal: Vec<usize>,
}

/// c −= a b for row-major blocks.
fn subtract_product(c: &mut [f64], a: &[f64], b: &[f64], n: usize) {
    for r in 0..n {
        for q in 0..n {
            c[r * n + q] -= (0..n).map(|k| a[r * n + k] * b[k * n + q]).sum::<f64>();
        }
    }
}

/// a b for row-major blocks.
pub(crate) fn product(a: &[f64], b: &[f64], n: usize) -> Vec<f64> {
    let mut c = vec![0.0; n * n];
    subtract_product(&mut c, a, b, n);
    c.iter_mut().for_each(|c| *c = -*c);
    c
}

/// Inverts by Gauss–Jordan with row exchanges; `None` for a singular block.
fn inverse(a: &[f64], n: usize) -> Option<Vec<f64>> {
    let (mut a, mut x) = (a.to_vec(), vec![0.0; n * n]);
    (0..n).for_each(|i| x[i * n + i] = 1.0);
    for k in 0..n {
        let pivot = (k..n).max_by(|&i, &j| a[i * n + k].abs().total_cmp(&a[j * n + k].abs()))?;
        if !(a[pivot * n + k].abs() > 0.0) || !a[pivot * n + k].is_finite() {
            return None;
        }
        for q in 0..n {
            a.swap(k * n + q, pivot * n + q);
            x.swap(k * n + q, pivot * n + q);
        }
        let scale = 1.0 / a[k * n + k];
        for q in 0..n {
            a[k * n + q] *= scale;
            x[k * n + q] *= scale;
        }
        for i in (0..n).filter(|&i| i != k) {
            let factor = a[i * n + k];
            for q in 0..n {
                a[i * n + q] -= factor * a[k * n + q];
                x[i * n + q] -= factor * x[k * n + q];
            }
        }
    }
    Some(x)
}

/// Factorises consecutive rows that depend on no others; the slices begin at `rows.start`.
fn factorize_rows(
    s: &SubdomainSystem,
    rows: Range<usize>,
    diagonal: &[usize],
    values: &mut [f64],
    pivots: &mut [f64],
) -> Result<()> {
    let (n, bb) = (s.a.block(), s.a.block() * s.a.block());
    let (first_row, first) = (rows.start, s.a.row_ptr()[rows.start]);
    // Position of each column in the current row.
    let mut place = vec![usize::MAX; rows.len()];
    for i in rows {
        let row = s.a.row_ptr()[i]..s.a.row_ptr()[i + 1];
        row.clone().for_each(|p| place[s.a.col()[p] as usize - first_row] = p);
        // Earlier rows hold D⁻¹ and unscaled U.
        let (earlier, current) = values.split_at_mut((row.start - first) * bb);
        let at = |p: usize| (p - first) * bb..(p - first + 1) * bb;
        let own = |p: usize| (p - row.start) * bb..(p - row.start + 1) * bb;
        for p in row.start..diagonal[i] {
            let k = s.a.col()[p] as usize;
            let l = product(&current[own(p)], &earlier[at(diagonal[k])], n);
            for q in diagonal[k] + 1..s.a.row_ptr()[k + 1] {
                let target = place[s.a.col()[q] as usize - first_row];
                if target != usize::MAX {
                    subtract_product(&mut current[own(target)], &l, &earlier[at(q)], n);
                }
            }
            current[own(p)].copy_from_slice(&l);
        }
        row.for_each(|p| place[s.a.col()[p] as usize - first_row] = usize::MAX);
        let d = &mut values[(diagonal[i] - first) * bb..][..bb];
        pivots[(i - first_row) * bb..][..bb].copy_from_slice(d);
        let inverted = inverse(d, n).ok_or(Error::SingularBlock {
            row: s.rows[i] as usize,
            kind: "singular",
            remedy: "ILU(0) without shifts needs a pivot in every row",
        })?;
        d.copy_from_slice(&inverted);
    }
    // U is divided by D at the end, because elimination needs D U.
    for i in first_row..first_row + pivots.len() / bb {
        let inverted = values[(diagonal[i] - first) * bb..][..bb].to_vec();
        for p in diagonal[i] + 1..s.a.row_ptr()[i + 1] {
            let u = &mut values[(p - first) * bb..][..bb];
            let scaled = product(&inverted, u, n);
            u.copy_from_slice(&scaled);
        }
    }
    Ok(())
}

impl Factors {
    /// Factorises each subdomain on one thread, row by row; subdomains are independent.
    ///
    /// # Errors
    /// Returns an error if a pivot cannot be inverted, with its row in the given matrix.
    pub fn new(s: &SubdomainSystem) -> Result<Self> {
        let bb = s.a.block() * s.a.block();
        let diagonal: Vec<usize> = (0..s.block_rows())
            .map(|i| {
                s.a.row_ptr()[i]
                    + s.a.col()[s.a.row_ptr()[i]..s.a.row_ptr()[i + 1]].partition_point(|&c| (c as usize) < i)
            })
            .collect();
        let (mut values, mut pivots) = (s.a.values().to_vec(), vec![0.0; s.block_rows() * bb]);
        let done: Vec<Result<()>> = std::thread::scope(|scope| {
            let (mut rest, mut rest_pivots) = (values.as_mut_slice(), pivots.as_mut_slice());
            let mut threads = Vec::new();
            for run in shares(s.count()) {
                let rows = s.ptr[run.start]..s.ptr[run.end];
                let (mine, others) =
                    rest.split_at_mut((s.a.row_ptr()[rows.end] - s.a.row_ptr()[rows.start]) * bb);
                let (my_pivots, other_pivots) = rest_pivots.split_at_mut(rows.len() * bb);
                (rest, rest_pivots) = (others, other_pivots);
                let diagonal = &diagonal;
                threads.push(scope.spawn(move || factorize_rows(s, rows, diagonal, mine, my_pivots)));
            }
            let failed = || Err(Error::invalid("a thread of the reference ended early"));
            threads.into_iter().map(|t| t.join().unwrap_or_else(|_| failed())).collect()
        });
        done.into_iter().collect::<Result<Vec<()>>>()?;
        Ok(Self { values, pivots, diagonal })
    }

    /// Returns (I + L)⁻¹ x.
    pub fn lower(&self, s: &SubdomainSystem, x: &[f64]) -> Vec<f64> {
        let mut y = x.to_vec();
        for i in 0..s.block_rows() {
            self.subtract(s, s.a.row_ptr()[i]..self.diagonal[i], i, &mut y);
        }
        y
    }
    /// Returns D⁻¹ x.
    pub fn scale(&self, s: &SubdomainSystem, x: &[f64]) -> Vec<f64> {
        let (n, mut y) = (s.a.block(), vec![0.0; x.len()]);
        for i in 0..s.block_rows() {
            let d = &self.values[self.diagonal[i] * n * n..][..n * n];
            for r in 0..n {
                y[i * n + r] = (0..n).map(|c| d[r * n + c] * x[i * n + c]).sum();
            }
        }
        y
    }
    /// Returns (I + U)⁻¹ x.
    pub fn upper(&self, s: &SubdomainSystem, x: &[f64]) -> Vec<f64> {
        let mut y = x.to_vec();
        for i in (0..s.block_rows()).rev() {
            self.subtract(s, self.diagonal[i] + 1..s.a.row_ptr()[i + 1], i, &mut y);
        }
        y
    }
    /// Returns Λ⁻¹ x, where Λ has the unit lower triangles of D = Λ V. Libraries that factor the diagonal
    /// blocks, too, include Λ in L.
    pub fn lower_in_blocks(&self, s: &SubdomainSystem, x: &[f64]) -> Vec<f64> {
        let (n, mut y) = (s.a.block(), x.to_vec());
        for i in 0..s.block_rows() {
            let mut d = self.pivots[i * n * n..][..n * n].to_vec();
            for k in 0..n {
                for r in k + 1..n {
                    let factor = d[r * n + k] / d[k * n + k];
                    (k..n).for_each(|c| d[r * n + c] -= factor * d[k * n + c]);
                    y[i * n + r] -= factor * y[i * n + k];
                }
            }
        }
        y
    }

    fn subtract(&self, s: &SubdomainSystem, entries: Range<usize>, i: usize, y: &mut [f64]) {
        let n = s.a.block();
        for p in entries {
            let (j, block) = (s.a.col()[p] as usize, &self.values[p * n * n..][..n * n]);
            for r in 0..n {
                y[i * n + r] -= (0..n).map(|c| block[r * n + c] * y[j * n + c]).sum::<f64>();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ildu0::{laplacian, system::boxes};
    use crate::systems::Random;
    use krylith_core::matrix::Bsr;

    /// Returns (I + L) D (I + U) of a system as a dense matrix.
    fn multiplied(s: &SubdomainSystem, f: &Factors) -> Vec<f64> {
        let (n, b) = (s.len(), s.a.block());
        let (mut l, mut u, mut d) = (vec![0.0; n * n], vec![0.0; n * n], vec![0.0; n * n]);
        for i in 0..s.block_rows() {
            for p in s.a.row_ptr()[i]..s.a.row_ptr()[i + 1] {
                let j = s.a.col()[p] as usize;
                for (at, v) in f.values[p * b * b..][..b * b].iter().enumerate() {
                    let to = (i * b + at / b) * n + j * b + at % b;
                    match j.cmp(&i) {
                        std::cmp::Ordering::Less => l[to] = *v,
                        std::cmp::Ordering::Greater => u[to] = *v,
                        std::cmp::Ordering::Equal => d[to] = f.pivots[i * b * b + at],
                    }
                }
            }
        }
        for i in 0..n {
            (l[i * n + i], u[i * n + i]) = (1.0, 1.0);
        }
        product(&product(&l, &d, n), &u, n)
    }

    /// Diagonally dominant blocks on a tridiagonal pattern, for which ILU(0) drops nothing.
    fn tridiagonal(n: usize, b: usize) -> Bsr {
        let mut random = Random(5);
        let (mut ptr, mut columns, mut values) = (vec![0], Vec::new(), Vec::new());
        for i in 0..n {
            for j in i.saturating_sub(1)..(i + 2).min(n) {
                columns.push(j as u32);
                let own = |at: usize| if i == j && at % (b + 1) == 0 { 4.0 } else { 0.0 };
                values.extend((0..b * b).map(|at| own(at) + random.next()));
            }
            ptr.push(columns.len());
        }
        Bsr::new(b, n, n, ptr, columns, values).unwrap()
    }

    #[test]
    fn without_fill_the_factors_are_those_of_the_matrix() {
        for b in 1..=4 {
            let a = tridiagonal(9, b);
            let s = SubdomainSystem::whole(&a).unwrap();
            let f = Factors::new(&s).unwrap();
            let (n, dense) = (9 * b, multiplied(&s, &f));
            let given = a.to_csr();
            for i in 0..n {
                for j in 0..n {
                    assert!((dense[i * n + j] - given.get(i, j)).abs() < 1e-12, "b={b} ({i},{j})");
                }
            }
            // All solves together therefore give A⁻¹.
            let x = Random(b as u64).numbers(n);
            let mut ax = vec![0.0; n];
            for (i, ax) in ax.iter_mut().enumerate() {
                *ax = (0..n).map(|j| given.get(i, j) * x[j]).sum();
            }
            let y = f.upper(&s, &f.scale(&s, &f.lower(&s, &ax)));
            assert!(x.iter().zip(&y).all(|(x, y)| (x - y).abs() < 1e-12), "b={b}");
        }
    }

    #[test]
    fn the_product_of_the_factors_agrees_on_the_pattern() {
        let a = laplacian([4, 4, 3], 2).unwrap();
        let (labels, count) = boxes([4, 4, 3], [4, 2, 2]);
        let s = SubdomainSystem::decompose(&a, &labels, count).unwrap();
        let f = Factors::new(&s).unwrap();
        let (n, dense) = (s.len(), multiplied(&s, &f));
        for i in 0..s.block_rows() {
            for p in s.a.row_ptr()[i]..s.a.row_ptr()[i + 1] {
                let j = s.a.col()[p] as usize;
                for at in 0..4 {
                    let found = dense[(i * 2 + at / 2) * n + j * 2 + at % 2];
                    assert!((found - s.a.values()[p * 4 + at]).abs() < 1e-13);
                }
            }
        }
    }

    #[test]
    fn factored_blocks_finish_what_the_vendor_s_lower_solve_does() {
        let a = tridiagonal(3, 3);
        let s = SubdomainSystem::whole(&a).unwrap();
        let f = Factors::new(&s).unwrap();
        let x = Random(8).numbers(9);
        let y = f.lower_in_blocks(&s, &x);
        // D = Λ V, so V (D⁻¹ x) = Λ⁻¹ x; the last row of V holds only the last pivot.
        let z = f.scale(&s, &x);
        for i in 0..3 {
            let d = &f.pivots[i * 9..][..9];
            assert_eq!(y[i * 3], x[i * 3]);
            let top = (0..3).map(|c| d[c] * z[i * 3 + c]).sum::<f64>();
            assert!((top - y[i * 3]).abs() < 1e-13);
            let minor = d[0] * d[4] - d[1] * d[3];
            let det = d[0] * (d[4] * d[8] - d[5] * d[7]) - d[1] * (d[3] * d[8] - d[5] * d[6])
                + d[2] * (d[3] * d[7] - d[4] * d[6]);
            assert!((det / minor * z[i * 3 + 2] - y[i * 3 + 2]).abs() < 1e-12);
        }
    }

    #[test]
    fn a_singular_pivot_names_its_row() {
        let a = Bsr::new(1, 2, 2, vec![0, 2, 4], vec![0, 1, 0, 1], vec![1.0, 1.0, 1.0, 1.0]).unwrap();
        let error = Factors::new(&SubdomainSystem::whole(&a).unwrap()).err().unwrap();
        assert!(matches!(error, Error::SingularBlock { row: 1, .. }), "{error}");
    }
}

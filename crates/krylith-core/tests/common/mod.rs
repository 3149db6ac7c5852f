//! Random systems and dense references shared by the integration tests.
#![allow(dead_code)]

mod algebra;
pub mod exact;
mod matrices;
pub mod systems;

#[allow(unused_imports)] // a test takes what it needs
pub use {algebra::*, matrices::*};

use krylith_core::Result;
use krylith_core::comm::Communicator;
use krylith_core::device::cpu::{Cpu, Pool};
use krylith_core::matrix::{Bsr, Dense, KroneckerSum};
use krylith_core::operator::LinearOperator;
use std::ops::{Index, IndexMut};
use std::sync::Arc;

/// Vectors on threads that share even the smallest regions.
pub fn eager(len: usize, threads: usize) -> Cpu {
    Cpu::with_pool(len, Arc::new(Pool::eager(threads)))
}

/// A rank's share of vectors, on one such thread.
pub fn eager_share(comm: &Arc<dyn Communicator>, len: usize) -> Result<Cpu> {
    Ok(Cpu::distributed(len, Arc::new(Pool::eager(1)), comm.clone()))
}

/// A small generator, so that tests depend on no crate for numbers: splitmix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
    /// In (−1, 1).
    pub fn number(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
    pub fn numbers(&mut self, n: usize) -> Vec<f64> {
        (0..n).map(|_| self.number()).collect()
    }
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
}

/// A dense matrix of references, row by row; it shares nothing with what is tested.
#[derive(Clone)]
pub struct Mat {
    columns: usize,
    values: Vec<f64>,
}

impl Mat {
    pub fn zeros(rows: usize, columns: usize) -> Self {
        Self { columns, values: vec![0.0; rows * columns] }
    }
    pub fn from_fn(rows: usize, columns: usize, entry: impl Fn(usize, usize) -> f64) -> Self {
        let mut mat = Self::zeros(rows, columns);
        (0..rows).for_each(|i| (0..columns).for_each(|j| mat[(i, j)] = entry(i, j)));
        mat
    }
    pub fn nrows(&self) -> usize {
        self.values.len() / self.columns.max(1)
    }
    pub fn ncols(&self) -> usize {
        self.columns
    }
}

impl Index<(usize, usize)> for Mat {
    type Output = f64;
    fn index(&self, (i, j): (usize, usize)) -> &f64 {
        &self.values[i * self.columns..][..self.columns][j]
    }
}

impl IndexMut<(usize, usize)> for Mat {
    fn index_mut(&mut self, (i, j): (usize, usize)) -> &mut f64 {
        &mut self.values[i * self.columns..][..self.columns][j]
    }
}

/// Creates about `per_row` random blocks per row; `diagonal` adds a dominant diagonal block, otherwise rows
/// may be empty.
pub fn random_bsr(rng: &mut Random, b: usize, n: usize, m: usize, per_row: usize, diagonal: bool) -> Bsr {
    let (mut row_ptr, mut col, mut values) = (vec![0], Vec::new(), Vec::new());
    for i in 0..n {
        let mut columns: Vec<u32> =
            (0..if m > 0 { rng.below(2 * per_row + 1) } else { 0 }).map(|_| rng.below(m) as u32).collect();
        if diagonal {
            columns.push(i as u32);
        }
        columns.sort_unstable();
        columns.dedup();
        for &j in &columns {
            let at = values.len();
            values.extend(rng.numbers(b * b));
            if diagonal && j as usize == i {
                (0..b).for_each(|r| values[at + r * b + r] += 3.0 * (per_row * b) as f64);
            }
        }
        col.extend(columns);
        row_ptr.push(col.len());
    }
    Bsr::new(b, n, m, row_ptr, col, values).unwrap()
}

/// A random Kronecker sum; `solvable` makes it diagonally dominant.
pub fn random_kronecker(
    rng: &mut Random,
    b: usize,
    s: usize,
    n: usize,
    per_row: usize,
    same: bool,
    solvable: bool,
) -> KroneckerSum {
    let m = random_bsr(rng, b, n, n, per_row, solvable);
    let mut l = if same { m.clone() } else { random_bsr(rng, b, n, n, per_row, solvable) };
    if same {
        l.values_mut().iter_mut().for_each(|v| *v *= 0.5 + 0.5 * rng.number());
    }
    let mut a = Dense::new(s, s, rng.numbers(s * s)).unwrap();
    let mut bb = Dense::new(s, s, rng.numbers(s * s)).unwrap();
    if solvable {
        for k in 0..s {
            a[(k, k)] += 3.0;
            bb[(k, k)] += 3.0;
        }
    }
    KroneckerSum::new(a, bb, 0.125, m, l).unwrap()
}

/// A⊗M + τB⊗L written out entry by entry from its definition, in the order node, component, stage.
pub fn dense(k: &KroneckerSum) -> Mat {
    let (s, rows, columns) = (k.stages(), k.m.rows(), k.m.columns());
    let mut out = Mat::zeros(rows * s, columns * s);
    for (coefficient, factor, matrix) in [(&k.a, 1.0, &k.m), (&k.b, k.tau, &k.l)] {
        let csr = matrix.to_csr();
        for i in 0..rows {
            let (col, values) = csr.row(i);
            for (&j, &v) in col.iter().zip(values) {
                for p in 0..s {
                    for q in 0..s {
                        out[(i * s + p, j as usize * s + q)] += factor * coefficient[(p, q)] * v;
                    }
                }
            }
        }
    }
    out
}

/// (A⊗M + τB⊗L) x row by row from the definition, for systems too large for [`dense`].
pub fn by_rows(k: &KroneckerSum, x: &[f64]) -> Vec<f64> {
    let s = k.stages();
    let mut y = vec![0.0; k.rows()];
    for (coefficient, factor, matrix) in [(&k.a, 1.0, &k.m), (&k.b, k.tau, &k.l)] {
        let csr = matrix.to_csr();
        for i in 0..csr.rows() {
            let (col, values) = csr.row(i);
            for q in 0..s {
                let z: f64 = col.iter().zip(values).map(|(&j, v)| v * x[j as usize * s + q]).sum();
                for p in 0..s {
                    y[i * s + p] += factor * coefficient[(p, q)] * z;
                }
            }
        }
    }
    y
}

/// Solves directly, by Gaussian elimination with partial pivoting (Golub & Van Loan 2013, Alg. 3.4.1). The
/// result is NaN if the matrix is singular.
pub fn solve(a: &Mat, b: &[f64]) -> Vec<f64> {
    let n = b.len();
    let (mut u, mut x) = (a.clone(), b.to_vec());
    for k in 0..n {
        let p = (k..n).max_by(|&i, &j| u[(i, k)].abs().total_cmp(&u[(j, k)].abs())).unwrap();
        (0..n).for_each(|j| u.values.swap(k * n + j, p * n + j));
        x.swap(k, p);
        for i in k + 1..n {
            let l = u[(i, k)] / u[(k, k)];
            (k..n).for_each(|j| u[(i, j)] -= l * u[(k, j)]);
            x[i] -= l * x[k];
        }
    }
    for i in (0..n).rev() {
        let known: f64 = (i + 1..n).map(|j| u[(i, j)] * x[j]).sum();
        x[i] = (x[i] - known) / u[(i, i)];
    }
    x
}

/// An operator made of a closure, linear or not.
pub struct Map<F>(pub F);

impl<F: Fn(&[f64], &mut [f64])> LinearOperator<Cpu> for Map<F> {
    fn apply(&self, _: &Cpu, x: &Vec<f64>, y: &mut Vec<f64>) -> Result<()> {
        self.0(x, y);
        Ok(())
    }
    fn key(&self) -> u64 {
        0
    }
    fn bytes(&self) -> u64 {
        0
    }
}

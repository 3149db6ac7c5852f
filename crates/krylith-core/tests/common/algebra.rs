//! Sums and products of plain arrays, each by its definition.

use super::{Mat, solve};
use krylith_core::matrix::{Bsr, Csr};

/// xᵀ y.
pub fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

pub fn plus(x: &[f64], y: &[f64]) -> Vec<f64> {
    x.iter().zip(y).map(|(x, y)| x + y).collect()
}

pub fn minus(x: &[f64], y: &[f64]) -> Vec<f64> {
    x.iter().zip(y).map(|(x, y)| x - y).collect()
}

pub fn norm(x: &[f64]) -> f64 {
    x.iter().map(|v| v * v).sum::<f64>().sqrt()
}

/// ‖x − y‖/‖y‖.
pub fn distance(x: &[f64], y: &[f64]) -> f64 {
    norm(&minus(x, y)) / norm(y).max(f64::MIN_POSITIVE)
}

/// A x.
pub fn times(a: &Csr, x: &[f64]) -> Vec<f64> {
    let row = |i: usize| a.row(i).0.iter().zip(a.row(i).1).map(|(&j, v)| v * x[j as usize]).sum();
    (0..a.rows()).map(row).collect()
}

/// A x, with scalar rows.
pub fn times_blocks(a: &Bsr, x: &[f64]) -> Vec<f64> {
    times(&a.to_csr(), x)
}

/// ‖b − A x‖/‖b‖, summed here.
pub fn relative_residual(a: &Csr, b: &[f64], x: &[f64]) -> f64 {
    norm(&minus(b, &times(a, x))) / norm(b)
}

/// A, zeros included.
pub fn written_out(a: &Csr) -> Mat {
    let mut out = Mat::zeros(a.rows(), a.columns());
    for i in 0..a.rows() {
        let (col, values) = a.row(i);
        col.iter().zip(values).for_each(|(&j, &v)| out[(i, j as usize)] = v);
    }
    out
}

/// A x.
pub fn multiply(a: &Mat, x: &[f64]) -> Vec<f64> {
    (0..a.nrows()).map(|i| (0..a.ncols()).map(|j| a[(i, j)] * x[j]).sum()).collect()
}

pub fn transpose(a: &Mat) -> Mat {
    Mat::from_fn(a.ncols(), a.nrows(), |i, j| a[(j, i)])
}

/// A B.
pub fn product(a: &Mat, b: &Mat) -> Mat {
    let mut out = Mat::zeros(a.nrows(), b.ncols());
    for i in 0..a.nrows() {
        for k in (0..a.ncols()).filter(|&k| a[(i, k)] != 0.0) {
            (0..b.ncols()).for_each(|j| out[(i, j)] += a[(i, k)] * b[(k, j)]);
        }
    }
    out
}

/// c ← c + factor · a b of blocks, row-major of order n.
pub fn add_product(c: &mut [f64], factor: f64, a: &[f64], b: &[f64], n: usize) {
    for r in 0..n {
        for q in 0..n {
            c[r * n + q] += factor * (0..n).map(|m| a[r * n + m] * b[m * n + q]).sum::<f64>();
        }
    }
}

/// a⁻¹ of a block, row-major of order n, column by column.
pub fn inverse(a: &[f64], n: usize) -> Vec<f64> {
    let mat = Mat::from_fn(n, n, |i, j| a[i * n + j]);
    let mut out = vec![0.0; n * n];
    for c in 0..n {
        let unit: Vec<f64> = (0..n).map(|i| f64::from(u8::from(i == c))).collect();
        solve(&mat, &unit).iter().enumerate().for_each(|(r, v)| out[r * n + c] = *v);
    }
    out
}

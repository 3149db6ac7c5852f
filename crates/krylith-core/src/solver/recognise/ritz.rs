//! Extreme Ritz values of a symmetric block of a matrix, scaled by its diagonal, and a test for symmetry.

use super::ScalarRows;
use crate::solver::symmetric::random;

/// Number of Lanczos steps. Each takes a product.
const STEPS: usize = 8;
/// Largest difference of uᵀAv and vᵀAu that rounding explains, as a share of ‖Av‖‖u‖.
const ROUNDING: f64 = 1e-12;

fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

/// Returns random numbers in the rows of a block, and zero in others.
fn vector(seed: u64, of: &[bool]) -> Vec<f64> {
    of.iter().enumerate().map(|(i, &of)| if of { random(seed, i as u64) } else { 0.0 }).collect()
}

/// Returns true if the block of these rows and columns is symmetric up to rounding.
pub(super) fn is_symmetric(a: &ScalarRows, of: &[bool]) -> bool {
    let (u, v) = (vector(1, of), vector(2, of));
    let (au, av) = (a.times(of, &u), a.times(of, &v));
    let scale = (dot(&au, &au) * dot(&v, &v)).sqrt().max((dot(&av, &av) * dot(&u, &u)).sqrt());
    (dot(&u, &av) - dot(&v, &au)).abs() <= ROUNDING * scale
}

/// The smallest Ritz value, and the largest.
pub(super) struct Extremes {
    pub smallest: f64,
    /// The share of the eigenvalues near the smallest Ritz value, by Gauss quadrature (Golub and Meurant
    /// 2010, Theorem 6.2).
    pub share: f64,
    pub largest: f64,
}

/// Returns the smallest Ritz value of D^-1/2 A D^-1/2 after some steps of Lanczos' method, for the symmetric
/// block A of these rows and columns. D has the magnitudes of the diagonal. `sign` multiplies A.
pub(super) fn smallest(a: &ScalarRows, of: &[bool], diagonal: &[f64], sign: f64) -> f64 {
    extremes(a, of, diagonal, sign).smallest
}

/// As [`smallest`], with the share of eigenvalues there and the largest Ritz value.
pub(super) fn extremes(a: &ScalarRows, of: &[bool], diagonal: &[f64], sign: f64) -> Extremes {
    let scale: Vec<f64> =
        diagonal.iter().map(|d| if *d == 0.0 { 0.0 } else { d.abs().sqrt().recip() }).collect();
    let mut q = vector(3, of);
    let norm = dot(&q, &q).sqrt();
    q.iter_mut().for_each(|q| *q /= norm);
    let (mut before, mut beta) = (vec![0.0; q.len()], 0.0);
    let (mut diagonals, mut others) = (Vec::new(), Vec::new());
    for _ in 0..STEPS {
        let x: Vec<f64> = q.iter().zip(&scale).map(|(q, s)| q * s).collect();
        let mut w = a.times(of, &x);
        for ((w, s), b) in w.iter_mut().zip(&scale).zip(&before) {
            *w = sign * *w * s - beta * b;
        }
        let alpha = dot(&w, &q);
        w.iter_mut().zip(&q).for_each(|(w, q)| *w -= alpha * q);
        diagonals.push(alpha);
        beta = dot(&w, &w).sqrt();
        if !(beta > 1e-12) {
            break;
        }
        others.push(beta * beta);
        w.iter_mut().for_each(|w| *w /= beta);
        before = std::mem::replace(&mut q, w);
    }
    let smallest = smallest_eigenvalue(&diagonals, &others);
    let negative: Vec<f64> = diagonals.iter().map(|d| -d).collect();
    let largest = -smallest_eigenvalue(&negative, &others);
    Extremes { smallest, share: share(&diagonals, &others, smallest), largest }
}

/// Returns the squared first component of the normed eigenvector of an eigenvalue of a tridiagonal matrix.
fn share(diagonal: &[f64], squares: &[f64], eigenvalue: f64) -> f64 {
    let (mut before, mut own, mut sum) = (0.0, 1.0, 1.0);
    for k in 0..diagonal.len() - 1 {
        let side = k.checked_sub(1).map_or(0.0, |k| squares[k].sqrt());
        let next = ((eigenvalue - diagonal[k]) * own - side * before) / squares[k].sqrt();
        (before, own) = (own, next);
        sum += own * own;
    }
    1.0 / sum
}

/// Returns the smallest eigenvalue of a symmetric tridiagonal matrix by bisection. `squares` are those of the
/// entries beside the diagonal.
fn smallest_eigenvalue(diagonal: &[f64], squares: &[f64]) -> f64 {
    let side = |k: usize| k.checked_sub(1).and_then(|k| squares.get(k)).map_or(0.0, |b| b.sqrt());
    let radius = |k: usize| side(k) + if k + 1 < diagonal.len() { side(k + 1) } else { 0.0 };
    let bounds = diagonal.iter().enumerate().map(|(k, d)| [d - radius(k), d + radius(k)]);
    let [mut low, mut high] =
        bounds.fold([f64::INFINITY, f64::NEG_INFINITY], |[l, h], [low, high]| [l.min(low), h.max(high)]);
    // By Sylvester's law, negative pivots count the eigenvalues below `x`.
    let has_below = |x: f64| {
        let mut pivot = 1.0;
        diagonal.iter().enumerate().any(|(k, d)| {
            pivot = d - x - if k > 0 { squares[k - 1] / pivot } else { 0.0 };
            pivot < 0.0
        })
    };
    for _ in 0..60 {
        let middle = 0.5 * (low + high);
        if has_below(middle) { high = middle } else { low = middle }
    }
    0.5 * (low + high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::{Bsr, Csr};

    #[test]
    fn bisection_finds_the_smallest_eigenvalue() {
        // Eigenvalues 2 − 2 cos(kπ/6) for k = 1 to 5.
        let found = smallest_eigenvalue(&[2.0; 5], &[1.0; 4]);
        assert!((found - (2.0 - 3f64.sqrt())).abs() < 1e-12, "{found}");
        assert!((smallest_eigenvalue(&[3.0], &[]) - 3.0).abs() < 1e-12);
        // Its eigenvector is sin(iπ/6)/√3 in its component i.
        assert!((share(&[2.0; 5], &[1.0; 4], found) - 1.0 / 12.0).abs() < 1e-12);
    }

    #[test]
    fn ritz_values_lie_within_the_spectrum_and_near_its_end() {
        let n = 2000u32;
        let path = (0..n).flat_map(|i| [(i, i, 8.0), (i, (i + 1) % n, -4.0), ((i + 1) % n, i, -4.0)]);
        let path = Csr::from_triplets(2000, 2000, &path.collect::<Vec<_>>()).unwrap();
        let a = Bsr::from_csr(&path, 1).unwrap();
        let (of, diagonal) = (vec![true; 2000], vec![8.0; 2000]);
        let found = smallest(&ScalarRows::of(&a), &of, &diagonal, 1.0);
        assert!((0.0..0.1).contains(&found), "{found}");
        assert!((-2.0..-1.9).contains(&smallest(&ScalarRows::of(&a), &of, &diagonal, -1.0)));
    }
}

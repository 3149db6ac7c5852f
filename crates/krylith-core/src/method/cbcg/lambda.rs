//! The estimate of the largest eigenvalue from the coefficients of Lanczos' method.

use super::LANCZOS;

/// Returns the eigenvalue of largest magnitude of the tridiagonal matrix T that the coefficients αⱼ and βⱼ of
/// CG define; 0 if there are no coefficients.
pub(super) fn largest_ritz_value(coefficients: &[f64; 2 * LANCZOS]) -> f64 {
    // T has 1/αⱼ + βⱼ₋₁/αⱼ₋₁ on its diagonal, all of one sign, and √βⱼ₋₁/αⱼ₋₁ next to it. An element of
    // `rows` has the diagonal entry and the square of the other entry.
    let (mut rows, mut n) = ([(0.0f64, 0.0f64); LANCZOS], 0);
    while n < LANCZOS && coefficients[2 * n] != 0.0 {
        let alpha = coefficients[2 * n].abs();
        rows[n] = (1.0 / alpha, 0.0);
        if n > 0 {
            let (before, beta) = (coefficients[2 * n - 2].abs(), coefficients[2 * n - 1]);
            rows[n] = (1.0 / alpha + beta / before, beta / (before * before));
        }
        n += 1;
    }
    let rows = &rows[..n];
    // x is above all eigenvalues if every pivot of T − x I is negative.
    let above = |x: f64| {
        let mut pivot = f64::NEG_INFINITY;
        rows.iter().all(|(diagonal, square)| {
            pivot = diagonal - x - square / pivot;
            pivot < 0.0
        })
    };
    let radius = |i: usize| rows[i].1.sqrt() + rows.get(i + 1).map_or(0.0, |next| next.1.sqrt());
    let mut high = (0..n).map(|i| rows[i].0 + radius(i)).fold(0.0, f64::max);
    let mut low = rows.iter().map(|row| row.0).fold(0.0, f64::max);
    for _ in 0..40 {
        let middle = 0.5 * (low + high);
        if above(middle) { high = middle } else { low = middle }
    }
    high * coefficients[0].signum()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CG on a diagonal matrix finds the largest eigenvalue if there are as many eigenvalues as steps.
    #[test]
    fn the_largest_ritz_value_is_the_largest_eigenvalue() {
        for sign in [1.0, -1.0] {
            let d: Vec<f64> = (0..8).map(|i| sign * (1.0 + i as f64)).collect();
            let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
            let mut r = vec![1.0; 8];
            let (mut p, mut rho, mut coefficients) = (r.clone(), 8.0, [0.0; 2 * LANCZOS]);
            for pair in coefficients.chunks_exact_mut(2).take(8) {
                let q: Vec<f64> = p.iter().zip(&d).map(|(p, d)| p * d).collect();
                pair[0] = rho / dot(&p, &q);
                r.iter_mut().zip(&q).for_each(|(r, q)| *r -= pair[0] * q);
                pair[1] = dot(&r, &r) / rho;
                rho = dot(&r, &r);
                p.iter_mut().zip(&r).for_each(|(p, r)| *p = r + pair[1] * *p);
            }
            assert!((largest_ritz_value(&coefficients) - sign * 8.0).abs() < 1e-9);
        }
        assert_eq!(largest_ritz_value(&[0.0; 2 * LANCZOS]), 0.0);
    }
}

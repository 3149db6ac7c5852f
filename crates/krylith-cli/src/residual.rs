//! r = b − A x on the host, from the values as given: the residual that counts where a device stores less, and the
//! residuals of single fields.

use krylith::operator::Terms;

/// b − Σ (Cₜ ⊗ Aₜ) x.
pub fn residual(terms: &Terms, b: &[f64], x: &[f64]) -> Vec<f64> {
    let (block, s) = (terms.block(), terms.stages());
    let order = block * s;
    let mut r = b.to_vec();
    let mut z = vec![0.0; order];
    for (c, a) in &terms.terms {
        for (i, r) in r.chunks_exact_mut(order).enumerate() {
            z.fill(0.0);
            for p in a.row_ptr()[i]..a.row_ptr()[i + 1] {
                let x = &x[a.col()[p] as usize * order..][..order];
                for (row, z) in a.block_values(p).chunks_exact(block).zip(z.chunks_exact_mut(s)) {
                    for (v, x) in row.iter().zip(x.chunks_exact(s)) {
                        for k in 0..s {
                            z[k] += v * x[k];
                        }
                    }
                }
            }
            for (z, r) in z.chunks_exact(s).zip(r.chunks_exact_mut(s)) {
                for k in 0..s {
                    r[k] -= (0..s).map(|l| c[(k, l)] * z[l]).sum::<f64>();
                }
            }
        }
    }
    r
}

/// ‖ Σ |Cₜ ⊗ Aₜ| |x| ‖₂: how large A x could be without cancellation.
pub fn magnitude(terms: &Terms, x: &[f64]) -> f64 {
    let (block, s) = (terms.block(), terms.stages());
    let order = block * s;
    let mut y = vec![0.0; x.len()];
    for (c, a) in &terms.terms {
        for (i, y) in y.chunks_exact_mut(order).enumerate() {
            for p in a.row_ptr()[i]..a.row_ptr()[i + 1] {
                let x = &x[a.col()[p] as usize * order..][..order];
                for (e, v) in a.block_values(p).iter().enumerate().filter(|(_, v)| **v != 0.0) {
                    for k in 0..s {
                        let sum: f64 = (0..s).map(|l| (c[(k, l)] * x[e % block * s + l]).abs()).sum();
                        y[e / block * s + k] += v.abs() * sum;
                    }
                }
            }
        }
    }
    norm(&y)
}

/// ‖x‖₂.
pub fn norm(x: &[f64]) -> f64 {
    x.iter().map(|v| v * v).sum::<f64>().sqrt()
}

/// ‖r_c‖₂ of each component c over all nodes and stages.
pub fn by_field(r: &[f64], block: usize, stages: usize) -> Vec<f64> {
    let mut squares = vec![0.0; block];
    for node in r.chunks_exact(block * stages) {
        for (square, stages) in squares.iter_mut().zip(node.chunks_exact(stages)) {
            *square += stages.iter().map(|v| v * v).sum::<f64>();
        }
    }
    squares.into_iter().map(f64::sqrt).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use krylith::matrix::{Bsr, Dense, KroneckerSum};

    #[test]
    fn a_hand_checked_kronecker_residual() {
        // M = [2], L = [1], A = I, B = [[0, 1], [1, 0]], tau = 0.5: the operator is [[2, .5], [.5, 2]].
        let one = |v: f64| Bsr::new(1, 1, 1, vec![0, 1], vec![0], vec![v]).unwrap();
        let b = Dense::new(2, 2, vec![0.0, 1.0, 1.0, 0.0]).unwrap();
        let k = KroneckerSum::new(Dense::identity(2), b, 0.5, one(2.0), one(1.0)).unwrap();
        assert_eq!(residual(&Terms::kronecker(&k), &[5.0, 7.0], &[1.0, 2.0]), [2.0, 2.5]);
        assert_eq!(by_field(&[3.0, 4.0, 0.0, 1.0], 2, 2), [5.0, 1.0]);
        assert_eq!(norm(&[3.0, 4.0]), 5.0);
    }
}

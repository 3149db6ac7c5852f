//! Systems to measure: the Stokes duct, and random blocks on the same stencil. Loops in f64 check the
//! products and solutions that the suites measure.

use krylith_core::matrix::{Bsr, Dense, KroneckerSum};
use krylith_core::{Error, Precision, Result};
use krylith_problems::SystemKind;

/// A mesh close to that of the OKP paper: 151,686 nodes instead of 151,090.
pub(crate) const PAPER: [usize; 3] = [53, 53, 54];

pub(crate) struct Case {
    pub kronecker: KroneckerSum,
    pub rhs: Vec<f64>,
    pub spec: String,
}

impl Case {
    /// ‖b‖.
    pub fn norm(&self) -> f64 {
        dot(&self.rhs, &self.rhs).sqrt()
    }
}

/// xᵀy by a plain loop.
pub(crate) fn dot(x: &[f64], y: &[f64]) -> f64 {
    x.iter().zip(y).map(|(x, y)| x * y).sum()
}

/// Unsteady Stokes flow, Radau IIA with two stages, τ = 0.125.
pub(crate) fn stokes([x, y, z]: [usize; 3]) -> Result<Case> {
    let made = krylith_problems::generate(&format!("stokes:{x}x{y}x{z}"))?;
    match made.system {
        SystemKind::Kronecker(kronecker) => Ok(Case { kronecker, rhs: made.rhs, spec: made.spec }),
        _ => Err(Error::invalid("the problem `stokes` was not generated as a Kronecker sum")),
    }
}

/// Offsets from a grid node to itself and its 14 neighbours, in ascending order of node numbers. Each cube of
/// the grid is split into six tetrahedra.
pub(crate) const OFFSETS: [[isize; 3]; 15] = [
    [-1, -1, -1],
    [0, -1, -1],
    [-1, 0, -1],
    [0, 0, -1],
    [-1, -1, 0],
    [0, -1, 0],
    [-1, 0, 0],
    [0, 0, 0],
    [1, 0, 0],
    [0, 1, 0],
    [1, 1, 0],
    [0, 0, 1],
    [1, 0, 1],
    [0, 1, 1],
    [1, 1, 1],
];

/// Numbers in [−½, ½) that depend on a seed alone (splitmix64).
pub(crate) struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64 - 0.5
    }
    pub fn numbers(&mut self, n: usize) -> Vec<f64> {
        (0..n).map(|_| self.next()).collect()
    }
}

/// Dense random blocks on the 15-point stencil: blocks without structure.
pub(crate) fn random(nodes: [usize; 3], b: usize, s: usize, seed: u64) -> Result<KroneckerSum> {
    let [nx, ny, nz] = nodes;
    let n = nx * ny * nz;
    let (mut row_ptr, mut col) = (vec![0], Vec::with_capacity(15 * n));
    for i in 0..n {
        let at = [i % nx, i / nx % ny, i / (nx * ny)];
        for o in OFFSETS {
            let to: [Option<usize>; 3] =
                std::array::from_fn(|d| at[d].checked_add_signed(o[d]).filter(|&x| x < nodes[d]));
            if let [Some(x), Some(y), Some(z)] = to {
                col.push((x + nx * (y + ny * z)) as u32);
            }
        }
        row_ptr.push(col.len());
    }
    let mut random = Random(seed);
    let count = col.len() * b * b;
    let m = Bsr::new(b, n, n, row_ptr.clone(), col.clone(), random.numbers(count))?;
    let l = Bsr::new(b, n, n, row_ptr, col, random.numbers(count))?;
    let (a, b) = coefficients(s, seed + 1)?;
    KroneckerSum::new(a, b, 0.125, m, l)
}

pub(crate) fn coefficients(s: usize, seed: u64) -> Result<(Dense, Dense)> {
    let mut random = Random(seed ^ 0xABCD);
    Ok((Dense::new(s, s, random.numbers(s * s))?, Dense::new(s, s, random.numbers(s * s))?))
}

/// Compares y with a plain loop in f64 on a sample of block rows. Returns the largest difference, relative to
/// Σ|coefficient·entry·x| of the same row.
///
/// # Errors
/// Returns an error, with the row, if a difference exceeds rounding: a wrong result is never timed.
pub(crate) fn check(name: &str, k: &KroneckerSum, precision: Precision, x: &[f64], y: &[f64]) -> Result<f64> {
    let (b, s, n) = (k.block(), k.stages(), k.m.block_rows());
    if y.len() != n * b * s {
        return Err(Error::invalid(format!("{name}: {} numbers for {} rows", y.len(), n * b * s)));
    }
    // f32 storage rounds the entries but not the arithmetic, so the reference rounds entries too.
    let entry = |v: f64| if precision == Precision::F32 { v as f32 as f64 } else { v };
    let mut worst = 0.0f64;
    let step = (n / 1500).max(1);
    let sample = (0..n).step_by(step).chain(n.saturating_sub(40)..n).chain(0..40.min(n));
    for i in sample {
        for r in 0..b {
            for q in 0..s {
                let (mut sum, mut scale) = (0.0, 0.0);
                for (matrix, coefficient, factor) in [(&k.m, &k.a, 1.0), (&k.l, &k.b, k.tau)] {
                    for p in matrix.row_ptr()[i]..matrix.row_ptr()[i + 1] {
                        let j = matrix.col()[p] as usize;
                        for c in 0..b {
                            let value = entry(matrix.values()[(p * b + r) * b + c]);
                            for t in 0..s {
                                let term = factor * coefficient[(q, t)] * value * x[(j * b + c) * s + t];
                                sum += term;
                                scale += term.abs();
                            }
                        }
                    }
                }
                let got = y[(i * b + r) * s + q];
                let error = (got - sum).abs() / scale.max(f64::MIN_POSITIVE);
                // Negated, so that a NaN left by poisoning fails too.
                if !(error <= 1e-13) {
                    return Err(Error::invalid(format!(
                        "{name}: block row {i}, component {r}, stage {q} is {got:e}; the reference is {sum:e}"
                    )));
                }
                worst = worst.max(error);
            }
        }
    }
    Ok(worst)
}

/// Returns the sum of `part(i)` over the rows i < `n`, computed on all cores.
pub(crate) fn over_rows(n: usize, part: &(dyn Fn(usize) -> f64 + Sync)) -> f64 {
    let threads = std::thread::available_parallelism().map_or(1, |p| p.get()).min(n.max(1));
    std::thread::scope(|scope| {
        let share = |t: usize| n * t / threads..n * (t + 1) / threads;
        let all: Vec<_> =
            (0..threads).map(|t| scope.spawn(move || share(t).map(part).sum::<f64>())).collect();
        all.into_iter().map(|t| t.join().unwrap_or(f64::NAN)).sum()
    })
}

/// Returns ‖b − A x‖/‖b‖ by an f64 loop on all cores: the reference for solutions.
pub(crate) fn relative_residual(a: &Bsr, rhs: &[f64], x: &[f64]) -> f64 {
    let b = a.block();
    let row = |i: usize| -> f64 {
        let mut sum = 0.0;
        for r in 0..b {
            let mut left = rhs[i * b + r];
            for p in a.row_ptr()[i]..a.row_ptr()[i + 1] {
                let xj = &x[a.col()[p] as usize * b..][..b];
                let values = &a.block_values(p)[r * b..][..b];
                left -= values.iter().zip(xj).map(|(a, x)| a * x).sum::<f64>();
            }
            sum += left * left;
        }
        sum
    };
    let norm = over_rows(rhs.len(), &|i| rhs[i] * rhs[i]).sqrt();
    over_rows(a.block_rows(), &row).sqrt() / norm
}

/// Returns ‖b − A x‖ of a Kronecker sum by an f64 loop on all cores.
pub(crate) fn residual(k: &KroneckerSum, rhs: &[f64], x: &[f64]) -> f64 {
    let (b, s) = (k.block(), k.stages());
    let bs = b * s;
    let row = |i: usize| -> f64 {
        let mut r = rhs[i * bs..][..bs].to_vec();
        for (matrix, coefficient, factor) in [(&k.m, &k.a, 1.0), (&k.l, &k.b, k.tau)] {
            let mut mx = vec![0.0; bs];
            for p in matrix.row_ptr()[i]..matrix.row_ptr()[i + 1] {
                let xj = &x[matrix.col()[p] as usize * bs..][..bs];
                for (at, a) in matrix.block_values(p).iter().enumerate() {
                    (0..s).for_each(|t| mx[at / b * s + t] += a * xj[at % b * s + t]);
                }
            }
            for (at, r) in r.iter_mut().enumerate() {
                *r -= (0..s).map(|t| factor * coefficient[(at % s, t)] * mx[at / s * s + t]).sum::<f64>();
            }
        }
        r.iter().map(|r| r * r).sum()
    };
    over_rows(k.m.block_rows(), &row).sqrt()
}

/// Scales the number of nodes by `factor`, and each direction by its cube root; at least 4 per side.
pub(crate) fn scaled(nodes: [usize; 3], factor: f64) -> [usize; 3] {
    nodes.map(|n| ((n as f64 * factor.cbrt()).round() as usize).max(4))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_finds_a_wrong_number_and_a_missing_one() {
        let k = random([4, 4, 4], 2, 2, 3).unwrap();
        let x = Random(9).numbers(k.rows());
        let bsr = k.assemble();
        let mut y = vec![0.0; k.rows()];
        for i in 0..bsr.block_rows() {
            for p in bsr.row_ptr()[i]..bsr.row_ptr()[i + 1] {
                for r in 0..4 {
                    for c in 0..4 {
                        y[i * 4 + r] += bsr.block_values(p)[r * 4 + c] * x[bsr.col()[p] as usize * 4 + c];
                    }
                }
            }
        }
        assert!(check("assembled", &k, Precision::F64, &x, &y).unwrap() < 1e-14);
        assert!(residual(&k, &y, &x) < 1e-13);
        let norm = y.iter().map(|y| y * y).sum::<f64>().sqrt();
        assert!((residual(&k, &y, &vec![0.0; x.len()]) / norm - 1.0).abs() < 1e-14);
        y[17] += 1e-9;
        assert!(check("bent", &k, Precision::F64, &x, &y).unwrap_err().to_string().contains("block row 4"));
        y[17] = f64::NAN;
        assert!(check("poisoned", &k, Precision::F64, &x, &y).is_err());
    }

    #[test]
    fn the_relative_residual_is_that_of_the_matrix() {
        let (a, rhs) = (crate::ildu0::laplacian([4, 3, 2], 2).unwrap(), Random(7).numbers(48));
        assert!((relative_residual(&a, &rhs, &vec![0.0; 48]) - 1.0).abs() < 1e-15);
        let mut x = vec![0.0; 48];
        x[5] = 1.0;
        let column: f64 = (0..48).map(|i| (rhs[i] - a.to_csr().get(i, 5)).powi(2)).sum();
        let norm: f64 = rhs.iter().map(|b| b * b).sum();
        assert!((relative_residual(&a, &rhs, &x) - (column / norm).sqrt()).abs() < 1e-14);
    }

    #[test]
    fn the_stencil_has_15_points_inside() {
        let k = random([5, 4, 4], 1, 1, 1).unwrap();
        assert_eq!((0..80).map(|i| k.m.row_ptr()[i + 1] - k.m.row_ptr()[i]).max(), Some(15));
        assert_eq!(scaled(PAPER, 8.0), [106, 106, 108]);
        assert_eq!(scaled(PAPER, 1.0), PAPER);
    }
}

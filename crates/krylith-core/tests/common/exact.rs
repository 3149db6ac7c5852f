//! Residuals in twice the digits, and a dense direct solve refined against them.

use super::Mat;
use krylith_core::matrix::Csr;

/// A number as an unevaluated sum of two.
pub(super) type Double = (f64, f64);

/// a + b, exactly (Knuth).
fn two_sum(a: f64, b: f64) -> Double {
    let s = a + b;
    let t = s - a;
    (s, (a - (s - t)) + (b - t))
}

/// a·b, exactly, where nothing underflows.
pub(super) fn two_product(a: f64, b: f64) -> Double {
    let p = a * b;
    (p, a.mul_add(b, -p))
}

fn add(a: Double, b: Double) -> Double {
    let (s, e) = two_sum(a.0, b.0);
    let low = e + a.1 + b.1;
    let sum = s + low;
    (sum, low - (sum - s))
}

/// A matrix by rows, in twice the digits.
pub struct Exact {
    pub(super) rows: Vec<Vec<(usize, Double)>>,
}

impl Exact {
    /// Of a matrix of scalars.
    pub fn of(a: &Csr) -> Self {
        let row = |i: usize| {
            let (col, values) = a.row(i);
            col.iter().zip(values).map(|(&j, &v)| (j as usize, (v, 0.0))).collect()
        };
        Self { rows: (0..a.rows()).map(row).collect() }
    }

    /// b − A x, each entry rounded once at the end.
    pub fn residual(&self, b: &[f64], x: &[f64]) -> Vec<f64> {
        let row = |(row, b): (&Vec<(usize, Double)>, &f64)| {
            let sum = row.iter().fold((*b, 0.0), |sum, &(j, (high, low))| {
                let (p, e) = two_product(-high, x[j]);
                add(sum, (p, e - low * x[j]))
            });
            sum.0 + sum.1
        };
        self.rows.iter().zip(b).map(row).collect()
    }

    /// ‖ |A| |x| ‖: rounding may make errors of ε times as much in a residual that is computed in f64.
    pub fn magnitude(&self, x: &[f64]) -> f64 {
        let row = |row: &Vec<(usize, Double)>| row.iter().map(|&(j, (high, _))| (high * x[j]).abs()).sum();
        safe_norm(&self.rows.iter().map(row).collect::<Vec<f64>>())
    }

    /// Rounded to a dense matrix.
    pub fn dense(&self) -> Mat {
        let n = self.rows.len();
        let mut out = Mat::zeros(n, n);
        for (i, row) in self.rows.iter().enumerate() {
            row.iter().for_each(|&(j, (high, low))| out[(i, j)] += high + low);
        }
        out
    }
}

/// ‖v‖ of numbers of any size.
pub fn safe_norm(v: &[f64]) -> f64 {
    let largest = v.iter().fold(0.0f64, |m, v| m.max(v.abs()));
    if largest == 0.0 || !largest.is_finite() {
        return largest;
    }
    largest * v.iter().map(|v| (v / largest) * (v / largest)).sum::<f64>().sqrt()
}

/// LU factors with partial pivoting, rows scaled beforehand (Golub & Van Loan 2013, Alg. 3.4.1).
pub struct Direct {
    n: usize,
    lu: Vec<f64>,
    /// Row of the matrix that stands in each row of the factors.
    order: Vec<usize>,
    scale: Vec<f64>,
    /// ‖A‖, in the Frobenius norm.
    norm: f64,
    /// False where a pivot vanished.
    regular: bool,
}

impl Direct {
    pub fn new(a: &Mat) -> Self {
        let n = a.nrows();
        let power = |v: f64| if v > 0.0 { (-v.log2().floor()).exp2() } else { 1.0 };
        let scale: Vec<f64> =
            (0..n).map(|i| power((0..n).fold(0.0, |m: f64, j| m.max(a[(i, j)].abs())))).collect();
        let mut lu: Vec<f64> = (0..n * n).map(|e| a[(e / n, e % n)] * scale[e / n]).collect();
        let (mut order, mut regular) = ((0..n).collect::<Vec<_>>(), true);
        for k in 0..n {
            let p = (k..n).max_by(|&i, &j| lu[i * n + k].abs().total_cmp(&lu[j * n + k].abs())).unwrap();
            (0..n).for_each(|j| lu.swap(k * n + j, p * n + j));
            order.swap(k, p);
            if lu[k * n + k] == 0.0 {
                regular = false;
                continue;
            }
            let (above, below) = lu.split_at_mut((k + 1) * n);
            let pivot = &above[k * n..];
            for row in below.chunks_exact_mut(n).filter(|row| row[k] != 0.0) {
                row[k] /= pivot[k];
                let l = row[k];
                row[k + 1..].iter_mut().zip(&pivot[k + 1..]).for_each(|(v, u)| *v -= l * u);
            }
        }
        Self { n, lu, order, scale, norm: safe_norm(&a.values), regular }
    }

    /// A⁻¹ b once.
    fn apply(&self, b: &[f64]) -> Vec<f64> {
        let n = self.n;
        let mut x: Vec<f64> = self.order.iter().map(|&i| b[i] * self.scale[i]).collect();
        for i in 0..n {
            x[i] -= dot(&self.lu[i * n..][..i], &x);
        }
        for i in (0..n).rev() {
            let known = dot(&self.lu[i * n + i + 1..][..n - i - 1], &x[i + 1..]);
            x[i] = (x[i] - known) / self.lu[i * n + i];
        }
        x
    }

    /// The solution, refined against residuals of twice the digits.
    pub fn solve(&self, exact: &Exact, b: &[f64]) -> Vec<f64> {
        let mut x = self.apply(b);
        for _ in 0..4 {
            let correction = self.apply(&exact.residual(b, &x));
            x.iter_mut().zip(correction).for_each(|(x, d)| *x += d);
        }
        x
    }

    /// ‖A‖ ‖A⁻¹‖ in the Frobenius norm; infinite where a pivot vanished.
    pub fn condition(&self) -> f64 {
        if !self.regular {
            return f64::INFINITY;
        }
        let mut unit = vec![0.0; self.n];
        let columns = (0..self.n).map(|j| {
            unit.fill(0.0);
            unit[j] = 1.0;
            safe_norm(&self.apply(&unit))
        });
        self.norm * safe_norm(&columns.collect::<Vec<_>>())
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).fold(0.0, |sum, (a, b)| sum + a * b)
}

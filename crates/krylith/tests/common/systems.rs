//! Random block and Kronecker systems of every kind, each from a number, with residuals in twice the digits and a direct solve.

use super::{Mat, Random, random_kronecker};
use krylith::matrix::{Bsr, Csr, Dense, KroneckerSum};

/// Kinds of systems: number `i` is of kind `i % KINDS.len()`.
pub const KINDS: [&str; 10] = [
    "dominant",
    "rows of unlike sizes",
    "columns of unlike sizes",
    "nearly singular",
    "not dominant",
    "zero diagonals",
    "symmetric",
    "skew",
    "singular",
    "tiny or huge",
];

/// Most unknowns: dense references stay cheap.
const MOST: usize = 150;

/// A system and its right-hand side.
pub struct RandomSystem {
    pub kind: &'static str,
    /// A⊗M + τB⊗L; of one stage and B = 0 a point-block matrix, M. τ is a power of two.
    pub k: KroneckerSum,
    /// True where it is to be given as the point-block matrix M.
    pub plain: bool,
    pub b: Vec<f64>,
}

impl RandomSystem {
    /// System `number` of the series that `seed` begins: 1 to 60 block rows, b from 1 to 5, s from 1 to 3.
    pub fn new(seed: u64, number: usize) -> Self {
        let rng = &mut Random(seed.wrapping_mul(0x9E37_79B9).wrapping_add(number as u64));
        let kind = KINDS[number % KINDS.len()];
        let (plain, b) = (rng.below(3) > 0, 1 + rng.below(5));
        let s = if plain { 1 } else { 1 + rng.below(3) };
        let n = 1 + rng.below((MOST / (b * s)).min(60));
        let is_dominant = kind != "not dominant";
        let (per_row, same) = (1 + rng.below(4), rng.below(2) == 0);
        let mut k = random_kronecker(rng, b, s, n, per_row, same, is_dominant);
        if plain {
            k.a = Dense::identity(1);
            k.b = Dense::new(1, 1, vec![0.0]).unwrap();
        } else if rng.below(2) == 0 {
            k.a = Dense::identity(s);
        }
        match kind {
            "rows of unlike sizes" => scale(rng, &mut k, true),
            "columns of unlike sizes" => scale(rng, &mut k, false),
            "nearly singular" => dampen(rng, &mut k, &[1e-4, 1e-7, 1e-10, 1e-13]),
            "not dominant" => raise_diagonal(rng, &mut k),
            "zero diagonals" => each(&mut k, &|a| clear_diagonal(a)),
            "symmetric" => each(&mut k, &|a| mirror(a, 1.0)),
            "skew" => each(&mut k, &|a| mirror(a, -1.0)),
            "singular" => dampen(rng, &mut k, &[0.0]),
            "tiny or huge" => {
                let factor = 10f64.powi(rng.below(200) as i32 - 100);
                each(&mut k, &|a| Bsr::values_mut(a).iter_mut().for_each(|v| *v *= factor));
            }
            _ => {}
        }
        let rhs = right_hand_side(rng, &k);
        Self { kind, k, plain, b: rhs }
    }

    /// Every entry, to twice the digits.
    pub fn exact(&self) -> Exact {
        let (s, n) = (self.k.stages(), self.k.rows());
        let mut rows = vec![Vec::new(); n];
        for (c, factor, a) in [(&self.k.a, 1.0, &self.k.m), (&self.k.b, self.k.tau, &self.k.l)] {
            let a = a.to_csr();
            for i in 0..a.rows() {
                let (col, values) = a.row(i);
                for (&j, &v) in col.iter().zip(values) {
                    for (p, q) in (0..s).flat_map(|p| (0..s).map(move |q| (p, q))) {
                        let entry = two_product(factor * c[(p, q)], v);
                        if entry.0 != 0.0 {
                            rows[i * s + p].push((j as usize * s + q, entry));
                        }
                    }
                }
            }
        }
        Exact { rows }
    }
}

/// A number as an unevaluated sum of two.
type Double = (f64, f64);

/// a + b, exactly (Knuth).
fn two_sum(a: f64, b: f64) -> Double {
    let s = a + b;
    let t = s - a;
    (s, (a - (s - t)) + (b - t))
}

/// a·b, exactly, where nothing underflows.
fn two_product(a: f64, b: f64) -> Double {
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
    rows: Vec<Vec<(usize, Double)>>,
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

fn each(k: &mut KroneckerSum, change: &dyn Fn(&mut Bsr)) {
    change(&mut k.m);
    change(&mut k.l);
}

/// Changes every entry of M and L alike, by its scalar row and column.
fn entries(k: &mut KroneckerSum, change: &dyn Fn(usize, usize, f64) -> f64) {
    each(k, &|a| {
        let (b, row_ptr, col) = (a.block(), a.row_ptr().to_vec(), a.col().to_vec());
        for i in 0..row_ptr.len() - 1 {
            for p in row_ptr[i]..row_ptr[i + 1] {
                for e in 0..b * b {
                    let v = &mut a.values_mut()[p * b * b + e];
                    *v = change(i * b + e / b, col[p] as usize * b + e % b, *v);
                }
            }
        }
    });
}

/// Powers of ten on rows or columns, up to 10^±8.
fn scale(rng: &mut Random, k: &mut KroneckerSum, rows: bool) {
    let most = 1.0 + rng.below(8) as f64;
    let factors: Vec<f64> = (0..k.m.rows()).map(|_| 10f64.powf(most * rng.number())).collect();
    entries(k, &|i, j, v| v * factors[if rows { i } else { j }]);
}

/// One scalar row of both matrices times a small factor, with the columns alike: nearly or wholly singular.
fn dampen(rng: &mut Random, k: &mut KroneckerSum, factors: &[f64]) {
    let (row, factor, alike) = (rng.below(k.m.rows()), factors[rng.below(factors.len())], rng.below(2));
    entries(k, &|i, j, v| if i == row || (alike == 1 && j == row) { v * factor } else { v });
}

/// Adds a diagonal that helps and does not dominate.
fn raise_diagonal(rng: &mut Random, k: &mut KroneckerSum) {
    let shift = 0.5 + rng.below(3) as f64;
    let with = |a: &mut Bsr| {
        let csr = a.to_csr();
        let mut triplets: Vec<_> = (0..csr.rows())
            .flat_map(|i| csr.row(i).0.iter().zip(csr.row(i).1).map(move |(&j, &v)| (i as u32, j, v)))
            .collect();
        triplets.extend((0..csr.rows() as u32).map(|i| (i, i, shift)));
        let csr = Csr::from_triplets(csr.rows(), csr.columns(), &triplets).unwrap();
        *a = Bsr::from_csr(&csr, a.block()).unwrap();
    };
    each(k, &with);
}

/// Zeros on the diagonal of every second scalar row; where there is a neighbour the two change places, and both diagonals
/// become small.
fn clear_diagonal(a: &mut Bsr) {
    let csr = a.to_csr();
    let n = csr.rows();
    let swap = |i: usize| if (i ^ 1) < n { i ^ 1 } else { i };
    let triplets: Vec<_> = (0..n)
        .flat_map(|i| csr.row(i).0.iter().zip(csr.row(i).1).map(move |(&j, &v)| (swap(i) as u32, j, v)))
        .map(|(i, j, v)| (i, j, if i == j && i % 2 == 0 && (i as usize) + 1 < n { 0.0 } else { v }))
        .collect();
    *a = Bsr::from_csr(&Csr::from_triplets(n, n, &triplets).unwrap(), a.block()).unwrap();
}

/// A + Aᵀ, or A − Aᵀ with a small diagonal.
fn mirror(a: &mut Bsr, sign: f64) {
    let csr = a.to_csr();
    let (n, t) = (csr.rows(), csr.transpose());
    let mut triplets = Vec::new();
    for i in 0..n {
        let both = [(&csr, 1.0), (&t, sign)];
        for (m, factor) in both {
            triplets.extend(m.row(i).0.iter().zip(m.row(i).1).map(|(&j, &v)| (i as u32, j, factor * v)));
        }
        if sign < 0.0 {
            triplets.push((i as u32, i as u32, 0.1));
        }
    }
    *a = Bsr::from_csr(&Csr::from_triplets(n, n, &triplets).unwrap(), a.block()).unwrap();
}

/// Random numbers, an answer of ones, one entry alone, numbers of unlike sizes, or of an unlikely unit.
fn right_hand_side(rng: &mut Random, k: &KroneckerSum) -> Vec<f64> {
    let n = k.rows();
    match rng.below(6) {
        0 => super::by_rows(k, &vec![1.0; n]),
        1 => {
            let place = rng.below(n);
            (0..n).map(|i| f64::from(u8::from(i == place))).collect()
        }
        2 => (0..n).map(|_| 10f64.powf(5.0 * rng.number()) * rng.number()).collect(),
        3 => {
            let unit = 10f64.powi(rng.below(240) as i32 - 120);
            rng.numbers(n).iter().map(|v| v * unit).collect()
        }
        _ => rng.numbers(n),
    }
}

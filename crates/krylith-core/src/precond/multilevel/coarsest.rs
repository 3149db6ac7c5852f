//! The solve on the last level. The host computes a dense inverse once per set-up, and the device applies it
//! as one product. The last level can be too large for that, because coarsening stalled or because of the
//! options `coarsest` and `levels`. Then sparse direct factors on the host solve it, if the factors are small
//! enough.
//!
//! The inverse comes from LU factors with partial pivoting (Golub and Van Loan 2013, §3.4), in panels of
//! columns, on all threads. Row i and column i are first scaled by the same power of two, so that diagonal
//! entries are near one. A pivot that then vanishes means that the system is singular, such as a pressure
//! without boundary values. The unknown of that pivot stays 0 and its equation is left out, which gives a
//! generalised inverse. For a symmetric matrix its symmetric part is used, which is a generalised inverse
//! too.

use super::Coarsen;
use super::side::together;
use crate::matrix::Bsr;
#[cfg(feature = "lu")]
use crate::operator::TermValues;
use crate::operator::{LinearOperator, PointBlock, Terms, not_prepared};
#[cfg(feature = "lu")]
use crate::precond::SparseLu;
use crate::space::Precision;
use crate::{Error, Result};
use rayon::prelude::*;

/// Largest number of unknowns for a dense inverse.
const MOST: usize = 2000;
/// Largest size of sparse factors, in numbers. The host reads all of them in each cycle.
#[cfg(feature = "lu")]
const MOST_NUMBERS: usize = 10_000_000;
/// Largest pivot that counts as zero, in a matrix with diagonals near 1.
const TINY: f64 = 1e-12;
/// Largest difference at which two mirrored entries count as equal.
const EQUAL: f64 = 1e-12;
/// Number of columns of a panel, and number of right-hand sides that are solved together.
const PANEL: usize = 32;

/// The inverse A⁻¹ of the last level, as an operator.
pub(crate) enum Inverse<S: Coarsen> {
    /// The dense inverse.
    Dense(Box<Dense<S>>),
    /// Sparse direct factors.
    #[cfg(feature = "lu")]
    Sparse(Box<SparseLu>),
}

/// The dense inverse of the last level.
pub(crate) struct Dense<S: Coarsen> {
    product: PointBlock<S>,
    /// Number of linearly dependent equations that were left out.
    dropped: usize,
    /// The inverse, row-major, unless it is symmetric.
    numbers: Option<Vec<f64>>,
    /// The product with its transpose, once it is laid out.
    turned: Option<PointBlock<S>>,
}

impl<S: Coarsen> Inverse<S> {
    /// Builds the inverse of Σ Cₜ ⊗ Aₜ. A large matrix needs sparse factors. Returns `None` for it if
    /// `sparse` is false, or if sparse factors are too large or cannot be computed.
    ///
    /// # Errors
    /// A matrix whose inverse overflows; out of device memory.
    pub fn new(on: &S, terms: &Terms, precision: Precision, sparse: bool) -> Result<Option<Self>> {
        if terms.rows() > MOST && !(sparse && cfg!(feature = "lu")) {
            return Ok(None);
        }
        #[cfg(feature = "lu")]
        if terms.rows() > MOST {
            return Ok(SparseLu::new(terms, Some(SparseLu::bytes_of(MOST_NUMBERS)))
                .ok()
                .map(Box::new)
                .map(Self::Sparse));
        }
        let Inverted { numbers, dropped, symmetric } = invert(terms)?;
        let product = dense_operator(on, terms.rows(), numbers.clone(), precision)?;
        let numbers = (!symmetric).then_some(numbers);
        Ok(Some(Self::Dense(Box::new(Dense { product, dropped, numbers, turned: None }))))
    }

    /// Lays out the product with the transposed inverse, or brings it up to date.
    ///
    /// # Errors
    /// Out of device memory.
    pub fn prepare_transpose(&mut self, on: &S, precision: Precision) -> Result<()> {
        let inverse = match self {
            Self::Dense(inverse) => inverse,
            #[cfg(feature = "lu")]
            Self::Sparse(_) => return Ok(()),
        };
        let Some(numbers) = &inverse.numbers else {
            inverse.turned = None;
            return Ok(());
        };
        let n = numbers.len().isqrt();
        let turned: Vec<f64> = (0..n * n).map(|e| numbers[e % n * n + e / n]).collect();
        match &mut inverse.turned {
            Some(product) => product.update_values(on, 0, &turned),
            none => {
                *none = Some(dense_operator(on, n, turned, precision)?);
                Ok(())
            }
        }
    }

    /// Recomputes the inverse for new values.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn update_values(&mut self, on: &S, terms: &Terms) -> Result<()> {
        match self {
            Self::Dense(inverse) => {
                let Inverted { numbers, dropped, symmetric } = invert(terms)?;
                inverse.dropped = dropped;
                inverse.product.update_values(on, 0, &numbers)?;
                inverse.numbers = (!symmetric).then_some(numbers);
                Ok(())
            }
            #[cfg(feature = "lu")]
            Self::Sparse(factors) => factors.update_values(TermValues::from(terms)),
        }
    }

    /// Wraps a product with the inverse.
    pub fn of_product(product: PointBlock<S>) -> Self {
        Self::Dense(Box::new(Dense { product, dropped: 0, numbers: None, turned: None }))
    }

    /// Returns the product with the inverse, if it is dense.
    pub fn product(&self) -> Option<&PointBlock<S>> {
        match self {
            Self::Dense(inverse) => Some(&inverse.product),
            #[cfg(feature = "lu")]
            Self::Sparse(_) => None,
        }
    }

    /// Returns the number of linearly dependent equations that were left out.
    pub fn dropped(&self) -> usize {
        match self {
            Self::Dense(inverse) => inverse.dropped,
            #[cfg(feature = "lu")]
            Self::Sparse(_) => 0,
        }
    }

    /// Returns how many numbers are stored.
    pub fn numbers(&self, rows: usize) -> usize {
        match self {
            Self::Dense(..) => rows * rows,
            #[cfg(feature = "lu")]
            Self::Sparse(factors) => factors.numbers(),
        }
    }

    fn operator(&self) -> &dyn LinearOperator<S> {
        match self {
            Self::Dense(inverse) => &inverse.product,
            #[cfg(feature = "lu")]
            Self::Sparse(factors) => &**factors,
        }
    }

    /// Computes x ← A⁻¹ b, or x ← A⁻ᵀ b.
    pub fn apply(&self, on: &S, turned: bool, b: &[&S::Vector], x: &mut [&mut S::Vector]) -> Result<()> {
        match self {
            #[cfg(feature = "lu")]
            Self::Sparse(factors) if turned => {
                b.iter().zip(x).try_for_each(|(b, x)| factors.apply_transpose(on, b, x))
            }
            Self::Dense(inverse) if turned && inverse.numbers.is_some() => {
                together(inverse.turned.as_ref().ok_or_else(not_prepared)?, on, b, x)
            }
            _ => together(self.operator(), on, b, x),
        }
    }

    pub fn key(&self) -> u64 {
        let turned = match self {
            Self::Dense(inverse) => inverse.turned.as_ref().map_or(0, |turned| turned.key()),
            #[cfg(feature = "lu")]
            Self::Sparse(_) => 0,
        };
        self.operator().key() ^ turned.rotate_left(8)
    }

    pub fn bytes(&self) -> u64 {
        self.operator().bytes()
    }

    pub fn recordable(&self) -> bool {
        self.operator().recordable()
    }
}

/// Builds the product with a dense matrix of order n, given by rows.
fn dense_operator<S: Coarsen>(
    on: &S,
    n: usize,
    numbers: Vec<f64>,
    precision: Precision,
) -> Result<PointBlock<S>> {
    let row_ptr = (0..=n).map(|i| i * n).collect();
    let col = (0..n * n).map(|e| (e % n) as u32).collect();
    let matrix = Bsr::new(1, n, n, row_ptr, col, numbers)?;
    on.level_operator(&Terms::bsr(&matrix), precision)
}

/// The inverse of a matrix.
struct Inverted {
    /// The inverse, row-major.
    numbers: Vec<f64>,
    /// Number of equations that were left out.
    dropped: usize,
    /// True if the matrix, and so the inverse, is symmetric.
    symmetric: bool,
}

/// Returns the inverse of a sum of terms.
fn invert(terms: &Terms) -> Result<Inverted> {
    let n = terms.rows();
    let lu = Lu::new(n, dense(terms));
    let (mut numbers, dropped) = lu.inverse();
    if numbers.par_iter().any(|v| !v.is_finite()) {
        return Err(Error::invalid(format!(
            "amg: numbers overflow in the inverse of the coarsest level ({n} unknowns); scale the system, \
             or use another preconditioner"
        )));
    }
    numbers.truncate(n * n);
    Ok(Inverted { numbers, dropped, symmetric: lu.symmetric })
}

/// Assembles Σ Cₜ ⊗ Aₜ, row-major.
pub(super) fn dense(terms: &Terms) -> Vec<f64> {
    let (b, s, n) = (terms.block(), terms.stages(), terms.rows());
    let mut out = vec![0.0; n * n];
    for (c, a) in &terms.terms {
        for i in 0..a.block_rows() {
            for p in a.row_ptr()[i]..a.row_ptr()[i + 1] {
                let j = a.col()[p] as usize;
                for (e, v) in a.block_values(p).iter().enumerate() {
                    let (row, column) = ((i * b + e / b) * s, (j * b + e % b) * s);
                    for k in 0..s {
                        (0..s).for_each(|l| out[(row + k) * n + column + l] += c[(k, l)] * v);
                    }
                }
            }
        }
    }
    out
}

/// Returns the inverse of a row-major matrix of order n, and the number of equations that were left out
/// because the matrix is singular.
pub(crate) fn inverse_of(n: usize, a: Vec<f64>) -> (Vec<f64>, usize) {
    Lu::new(n, a).inverse()
}

/// The factorisation P S A S = L U.
struct Lu {
    n: usize,
    /// L below the diagonal, without its unit diagonal, and U on and above it.
    lu: Vec<f64>,
    /// Reciprocals of the pivots; 0 for pivots that vanish.
    pivots: Vec<f64>,
    /// For each row of the factors, its row of A.
    order: Vec<usize>,
    scale: Vec<f64>,
    symmetric: bool,
}

impl Lu {
    fn new(n: usize, mut a: Vec<f64>) -> Self {
        let largest = |i: usize| a[i * n..][..n].iter().fold(0.0f64, |m, v| m.max(v.abs()));
        let size = |i: usize| if a[i * n + i] != 0.0 { a[i * n + i].abs() } else { largest(i) };
        let root = |v: f64| if v > 0.0 && v.is_finite() { (-v.log2() / 2.0).round().exp2() } else { 1.0 };
        let scale: Vec<f64> = (0..n).map(|i| root(size(i))).collect();
        let rows = a.par_chunks_mut(n.max(1)).enumerate();
        rows.for_each(|(i, row)| row.iter_mut().zip(&scale).for_each(|(v, s)| *v *= s * scale[i]));
        let mirrored = |i: usize| (0..i).all(|j| (a[i * n + j] - a[j * n + i]).abs() <= EQUAL);
        let symmetric = (0..n).into_par_iter().all(mirrored);
        let mut lu = Self { n, lu: a, pivots: vec![0.0; n], order: (0..n).collect(), scale, symmetric };
        for from in (0..n).step_by(PANEL) {
            lu.eliminate(from, (from + PANEL).min(n));
        }
        lu
    }

    /// Eliminates columns `from..to`, and updates the later columns.
    fn eliminate(&mut self, from: usize, to: usize) {
        let (n, lu) = (self.n, &mut self.lu);
        for k in from..to {
            let size = |i: usize| lu[i * n + k].abs();
            let pivot = (k + 1..n).fold(k, |p, i| if size(i) > size(p) { i } else { p });
            if !(size(pivot) > TINY) {
                (k + 1..n).for_each(|i| lu[i * n + k] = 0.0);
                continue;
            }
            if pivot != k {
                (0..n).for_each(|j| lu.swap(k * n + j, pivot * n + j));
                self.order.swap(k, pivot);
            }
            let inverse = 1.0 / lu[k * n + k];
            self.pivots[k] = inverse;
            let (above, below) = lu.split_at_mut((k + 1) * n);
            let u = &above[k * n + k + 1..k * n + to];
            for row in below.chunks_exact_mut(n) {
                row[k] *= inverse;
                let l = row[k];
                if l != 0.0 {
                    row[k + 1..to].iter_mut().zip(u).for_each(|(v, u)| *v -= l * u);
                }
            }
        }
        if to == n {
            return;
        }
        // Update the panel's rows of U from top to bottom, then all rows below.
        for k in from..to {
            let (above, below) = lu.split_at_mut(k * n);
            take(&mut below[..n], &above[from * n..], n, (from, to));
        }
        let (above, below) = lu.split_at_mut(to * n);
        let panel = &above[from * n..];
        below.par_chunks_mut(n).with_min_len(8).for_each(|row| take(row, panel, n, (from, to)));
    }

    /// Returns A⁻¹ = S U⁻¹ L⁻¹ P S, and the number of pivots that vanished.
    fn inverse(&self) -> (Vec<f64>, usize) {
        let n = self.n;
        let mut place = vec![0; n];
        self.order.iter().enumerate().for_each(|(row, &of)| place[of] = row);
        let columns: Vec<Vec<f64>> = (0..n.div_ceil(PANEL))
            .into_par_iter()
            .map(|panel| {
                let first = panel * PANEL;
                let units: Vec<usize> = (first..(first + PANEL).min(n)).map(|c| place[c]).collect();
                self.solve(&units)
            })
            .collect();
        let at = |i: usize, j: usize| columns[j / PANEL][i * PANEL + j % PANEL];
        let mut inverse = vec![0.0; n * n];
        inverse.par_chunks_mut(n.max(1)).enumerate().for_each(|(i, row)| {
            for (j, v) in row.iter_mut().enumerate() {
                let mean = if self.symmetric { 0.5 * (at(i, j) + at(j, i)) } else { at(i, j) };
                *v = mean * self.scale[i] * self.scale[j];
            }
        });
        (inverse, self.pivots.iter().filter(|p| **p == 0.0).count())
    }

    /// Computes U⁻¹ L⁻¹ for these unit vectors. The results stand side by side, with [`PANEL`] numbers a row.
    fn solve(&self, units: &[usize]) -> Vec<f64> {
        let (n, lu) = (self.n, &self.lu);
        let mut x = vec![0.0; n * PANEL];
        units.iter().enumerate().for_each(|(c, &row)| x[row * PANEL + c] = 1.0);
        let begin = units.iter().copied().min().unwrap_or(0);
        for i in begin + 1..n {
            let (known, rest) = x.split_at_mut(i * PANEL);
            subtract(&mut rest[..PANEL], &lu[i * n + begin..i * n + i], &known[begin * PANEL..]);
        }
        for i in (0..n).rev() {
            let (rest, known) = x.split_at_mut((i + 1) * PANEL);
            let row = &mut rest[i * PANEL..];
            subtract(row, &lu[i * n + i + 1..(i + 1) * n], known);
            row.iter_mut().for_each(|v| *v *= self.pivots[i]);
        }
        x
    }
}

/// Subtracts multiples of the panel's rows from a later row, in the columns after the panel. The later row's
/// numbers in the panel's columns are the multipliers.
fn take(row: &mut [f64], panel: &[f64], n: usize, (from, to): (usize, usize)) {
    let (factors, rest) = row.split_at_mut(to);
    for (l, u) in factors[from..].iter().zip(panel.chunks_exact(n)) {
        if *l != 0.0 {
            rest.iter_mut().zip(&u[to..]).for_each(|(v, u)| *v -= l * u);
        }
    }
}

/// Computes `row −= Σ factors[k] known[k]`, for rows of [`PANEL`] numbers.
fn subtract(row: &mut [f64], factors: &[f64], known: &[f64]) {
    for (f, known) in factors.iter().zip(known.chunks_exact(PANEL)) {
        if *f != 0.0 {
            row.iter_mut().zip(known).for_each(|(v, k)| *v -= f * k);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::random;

    /// Returns max|A G − I|, by plain loops.
    fn defect(n: usize, a: &[f64], g: &[f64]) -> f64 {
        let product = |i: usize, j: usize| (0..n).map(|k| a[i * n + k] * g[k * n + j]).sum::<f64>();
        let at = |e: usize| (product(e / n, e % n) - f64::from(u8::from(e / n == e % n))).abs();
        (0..n * n).map(at).fold(0.0, f64::max)
    }

    #[test]
    fn inverses_of_any_size_and_scale() {
        for n in [0, 1, 2, 31, 32, 33, 100] {
            // The matrix is not diagonally dominant, so that rows are exchanged. Its rows and columns are
            // scaled by 1e-6 to 1e6.
            let size = |i: usize| 10f64.powi((i * 7 % 13) as i32 - 6);
            let a: Vec<f64> = (0..n * n).map(|e| random(1, e as u64) * size(e / n) * size(e % n)).collect();
            let (g, dropped) = Lu::new(n, a.clone()).inverse();
            let scaled: Vec<f64> = (0..n * n).map(|e| a[e] / size(e / n) / size(e % n)).collect();
            let g: Vec<f64> = (0..n * n).map(|e| g[e] * size(e / n) * size(e % n)).collect();
            assert_eq!(dropped, 0, "{n}");
            assert!(defect(n, &scaled, &g) < 1e-8, "{n}: {:e}", defect(n, &scaled, &g));
        }
    }

    /// For a Laplacian without boundary values, A G A = A, G is symmetric, and one equation is left out.
    #[test]
    fn singular_systems_have_generalised_inverses() {
        let n = 60;
        let mut a = vec![0.0; n * n];
        for i in 0..n {
            for j in [i + 1, i + 7].into_iter().filter(|&j| j < n) {
                let v = 1.0 + random(2, (i * n + j) as u64).abs();
                (a[i * n + j], a[j * n + i]) = (-v, -v);
                a[i * n + i] += v;
                a[j * n + j] += v;
            }
        }
        let (g, dropped) = Lu::new(n, a.clone()).inverse();
        assert_eq!(dropped, 1);
        let product = |x: &[f64], y: &[f64]| -> Vec<f64> {
            (0..n * n).map(|e| (0..n).map(|k| x[e / n * n + k] * y[k * n + e % n]).sum()).collect()
        };
        let aga = product(&product(&a, &g), &a);
        assert!(aga.iter().zip(&a).all(|(x, y)| (x - y).abs() < 1e-9));
        assert!((0..n * n).all(|e| g[e] == g[e % n * n + e / n]));
    }
}

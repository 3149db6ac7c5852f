//! Communication-avoiding conjugate gradients with a Chebyshev basis (P-CBCG), for symmetric definite A and
//! P. Sources: Suda, Li, Watanabe, Kumagai and Hirota 2016; Mayumi, Idomura, Ina, Yamada and Imamura 2019,
//! Algs 2 and 3; Chronopoulos and Gear 1989.
//!
//! A step of s products builds S = (z̃₀ … z̃ₛ₋₁) and A S. Here z̃ⱼ = P⁻¹ zⱼ and zⱼ = Tⱼ(A P⁻¹) r, where Tⱼ
//! are the Chebyshev polynomials of [0, λ]: zⱼ = 2η A z̃ⱼ₋₁ − 2ζ zⱼ₋₁ − zⱼ₋₂ with η = 2/λ and ζ = 1. The step
//! makes S conjugate to the directions Q of the step before,
//!
//! ```text
//! B = (QᵀAQ)⁻¹ QᵀAS,  Q ← S − Q B,  AQ ← AS − AQ B,
//! ```
//!
//! and minimises the error over all s new directions at once: a = (QᵀAQ)⁻¹ Qᵀr, x += Q a, r −= AQ a. In exact
//! arithmetic this equals s more iterations of CG. Each product counts as an iteration, so that histories are
//! comparable. x changes only at the end of a step. Until then the history repeats the last known norm.
//!
//! # Reductions
//! Each step needs two reductions. The first is (AQ)ᵀS, s² numbers. The second is one message of s(s + 3) + 1
//! numbers: QᵀAQ and (AQ)ᵀ(AQ) (a triangle of each), Qᵀr, (AQ)ᵀr and (r, r). Mayumi and others do not sum
//! (AQ)ᵀ(AQ) and (AQ)ᵀr. With these sums ‖r − AQ a‖ is known together with a, and the solve does not need
//! another s products to detect convergence. That norm is a difference. If its error could hide that the
//! tolerance is met, the solve stops after this step, and the true residual decides.
//!
//! # Memory traffic of a step, vectors of N numbers
//! A step makes s products, s applications of P, and these passes:
//!
//! | pass | numbers |
//! |---|---|
//! | zⱼ | 3 read, 1 written, s − 1 times (one read less for z₁) |
//! | (AQ)ᵀS | 2s read, **reduction** |
//! | Q, AQ and all sums with the new ones | 4s + 1 read, 2s written, **reduction** |
//! | x += Q a, r −= AQ a | 2s + 2 read, 2 written |
//! | all | 14s N, 14 N an iteration |
//!
//! Without a preconditioner z̃ⱼ is zⱼ, and z₀ is a copy of r, which costs 2 N more per step.
//!
//! # λ
//! λ is an estimate of the largest eigenvalue of P⁻¹A. It comes from [`LANCZOS`] steps of Lanczos' method
//! (the coefficients of CG on a random vector) before the first solve with these operators. Kuczyński and
//! Woźniakowski (1992) bound its mean error over random vectors by 0.103 (ln N / 23)², which is 5 % for 10⁷
//! unknowns. For 100 power steps the bound is 0.87 ln N / 99, or 14 %. The estimate is never above the
//! eigenvalue, and is used without a correction. Measurements used s = 12 and Jacobi on a seven-point matrix
//! of contrast 1,000. A λ that is 8 % too small or 6 % too large changes nothing. A λ that is 17 % too large,
//! or 20 % too small, adds half to the products. The lower end of the interval is 0. λ is kept for later
//! solves with the same operators. It is estimated again if the last solve had to drop directions.
//!
//! # Linearly dependent directions
//! QᵀAQ is factorised by columns. The energy of a direction q is (q, A q). A pivot consists of rounding
//! errors if it is below `RANK` times the energy that its column had before it was made conjugate. Then that
//! direction and all later ones are dropped from this step, and counted ([`CbcgRecurrence::dropped`]). With
//! one direction left, a step is an iteration of CG. With none left the space cannot be extended, and the
//! step starts again without Q. A and P may be negative definite. A direction whose (q, A q) has the other
//! sign ends the solve.

mod lambda;

use super::krylov::{Krylov, Recurrence};
use super::work::Work;
use crate::space::{BATCH, FLAGS, Reason, Space};
use crate::{Error, Result, steps, sweeps};
use lambda::largest_ritz_value;

/// Share of a column's energy below which the remainder consists of rounding errors.
const RANK: f64 = 1e-12;
/// Share of a column's energy above which rounding cannot explain a wrong sign.
const SIGN: f64 = 1e-8;
/// Error of ‖r − AQ a‖², relative to the squares of which it is the difference.
const DIFFERENCE: f64 = 1e-14;
/// Number of steps of Lanczos' method.
pub const LANCZOS: usize = 24;
/// Relative size of a residual below which the space of Lanczos' method is exhausted.
const EXHAUSTED: f64 = 1e-10;
const _: () = assert!(2 * LANCZOS <= 48);
/// Largest number of directions of a step, s.
pub const MOST_STEPS: usize = crate::space::MOST_COLUMNS;

steps! {
    /// The scalars of P-CBCG.
    pub struct Scalars {
        /// Sums of Lanczos' method: (p, A p) and (r, z).
        pq, rz,
        /// Working values of Lanczos' method.
        rho, alpha, beta, rho_first, largest, live,
        /// Defect of A or P that Lanczos' method found: 0 for none, 1 for a sum that is not finite, 2 for an
        /// indefinite A, 3 for an indefinite P.
        unfit,
        /// Coefficients of z₁ and of later zⱼ: factors of A z̃ⱼ₋₁, zⱼ₋₁ and zⱼ₋₂.
        first_product, first_last, product, last, before,
        /// Number of directions that were dropped; the sign of A (±1, or 0 if it is not known yet); and 1 if
        /// the last norm may meet the tolerance, else 0.
        dropped, sign, reached
    }
    /// The arrays, for s = m directions: α and β of Lanczos' method; (AQ)ᵀS by rows; the sums of the second
    /// message; the Cholesky factor of ±QᵀAQ and B, both by columns; a; the energy that each column of S lost
    /// when it was made conjugate; and 1 for each direction that the last step used.
    arrays Arrays(m) {
        history: m + 1, lanczos: 48, h: m * m, g: m * (m + 1) / 2, c: m * (m + 1) / 2, w: m, u: m, square: 1,
        l: m * m, b: m * m, a: m, taken: m, used: m
    }
    constants [RANK, SIGN, DIFFERENCE, EXHAUSTED];
    functions {}
    /// Every step.
    pub const STEPS;
    /// Begins Lanczos' method.
    lanczos_begin(s, _) {
        s.rho = s.rz;
        s.rho_first = s.rz;
        s.largest = 0.0;
        s.unfit = 0.0;
        s.live = 1.0;
        if (!(abs(s.rho) < HUGE)) { s.unfit = 1.0; s.live = 0.0; }
        if (s.rho == 0.0) { s.live = 0.0; }
    }
    /// Computes α = ρ/(p, A p), or 0 if the space is exhausted or (p, A p) has the wrong sign.
    lanczos_alpha(s, j) {
        s.alpha = 0.0;
        if (s.live > 0.0) {
            let quotient = s.pq / s.rho;
            if (s.largest == 0.0) { s.largest = quotient; }
            let share = quotient / s.largest;
            if (!(abs(s.pq) < HUGE)) { s.unfit = 1.0; }
            else if (share < -EXHAUSTED) { s.unfit = 2.0; }
            if (s.unfit == 0.0 && share > EXHAUSTED) { s.alpha = s.rho / s.pq; } else { s.live = 0.0; }
            if (share > 1.0) { s.largest = quotient; }
        }
        lanczos[2 * j] = s.alpha;
    }
    /// Computes β = ρ/ρ₋₁.
    lanczos_beta(s, j) {
        s.beta = 0.0;
        if (s.live > 0.0) {
            let share = s.rz / s.rho_first;
            s.beta = s.rz / s.rho;
            s.rho = s.rz;
            if (!(abs(s.rz) < HUGE)) { s.unfit = 1.0; }
            if (share < -EXHAUSTED) { s.unfit = 3.0; }
            if (!(share > EXHAUSTED * EXHAUSTED)) { s.live = 0.0; s.beta = 0.0; }
        }
        lanczos[2 * j + 1] = s.beta;
    }
    /// Discards the directions of the step before.
    forget(s, _) {
        let mut i = 0;
        while (i < m) { used[i] = 0.0; i += 1; }
    }
    /// Begins a step, unless A or P is unfit.
    open(s, _) {
        if (s.unfit == 1.0) { s.reason = NOT_FINITE; }
        if (s.unfit == 2.0) { s.reason = INDEFINITE_MATRIX; }
        if (s.unfit == 3.0) { s.reason = INDEFINITE_PRECONDITIONER; }
        if (s.reason != NONE) { s.halt = 1; }
    }
    /// Counts one product. If the iteration limit cuts the last step short, the end of the batch finishes it.
    count(s, j) {
        s.completed += 1;
        s.columns += 1;
        history[j + 1] = s.norm_recurrence;
        if (s.completed >= s.limit && j + 1 < m) { s.halt = 1; }
    }
    /// Computes B = (QᵀAQ)⁻¹ QᵀAS with the factor of the step before, and the energy that Q B takes off each
    /// column of S.
    conjugate(s, _) in parallel {
        each!(j, m, {
            let mut k = 0;
            while (k < m && used[k] > 0.0) {
                let mut sum = s.sign * h[k * m + j];
                let mut p = 0;
                while (p < k) { sum -= l[p * m + k] * b[j * m + p]; p += 1; }
                b[j * m + k] = sum / l[k * m + k];
                k += 1;
            }
            let mut i = k;
            while (i < m) { b[j * m + i] = 0.0; i += 1; }
            let mut sum_taken = 0.0;
            i = k;
            while (i > 0) {
                i -= 1;
                let mut sum = b[j * m + i];
                let mut p = i + 1;
                while (p < k) { sum -= l[i * m + p] * b[j * m + p]; p += 1; }
                b[j * m + i] = sum / l[i * m + i];
                sum_taken += b[j * m + i] * h[i * m + j];
            }
            taken[j] = abs(sum_taken);
        });
    }
    /// Computes the Cholesky factor of ±QᵀAQ as far as its columns are linearly independent, a, and ‖r − AQ
    /// a‖.
    factor(s, _) in parallel {
        let n = at(s.columns);
        one!({
            let mut wrong = NONE;
            if (s.sign == 0.0 && g[0] != 0.0) { s.sign = g[0] / abs(g[0]); }
            if (!(square[0] < HUGE)) { wrong = NOT_FINITE; }
            let mut i = 0;
            let mut place = 0;
            while (i < n) {
                taken[i] += abs(g[place]);
                if (!(taken[i] + abs(w[i]) + abs(u[i]) < HUGE)) { wrong = NOT_FINITE; }
                else if (wrong == NONE && s.sign * g[place] < -SIGN * taken[i]) { wrong = INDEFINITE_MATRIX; }
                place += m - i;
                i += 1;
            }
            if (wrong != NONE) {
                s.halt = 1;
                if (s.reason == NONE) { s.reason = wrong; }
            }
        });
        each!(i, m, { used[i] = 0.0; a[i] = s.sign * w[i]; });
        let mut k = 0;
        let mut going = s.halt == 0 && n > 0;
        while (going) {
            each!(i, n, {
                if (i >= k) {
                    let mut sum = s.sign * g[k * (2 * m - k + 1) / 2 + i - k];
                    let mut p = 0;
                    while (p < k) { sum -= l[p * m + k] * l[p * m + i]; p += 1; }
                    l[k * m + i] = sum;
                }
            });
            one!({
                if (l[k * m + k] > RANK * taken[k]) { used[k] = 1.0; l[k * m + k] = sqrt(l[k * m + k]); }
            });
            going = used[k] > 0.0;
            if (going) {
                one!({ a[k] /= l[k * m + k]; });
                each!(i, n, {
                    if (i > k) { l[k * m + i] /= l[k * m + k]; a[i] -= l[k * m + i] * a[k]; }
                });
                k += 1;
                going = k < n;
            }
        }
        each!(i, m, { if (i >= k) { a[i] = 0.0; } });
        let mut q = k;
        while (q > 0) {
            q -= 1;
            one!({ a[q] /= l[q * m + q]; });
            each!(i, q, { a[i] -= l[i * m + q] * a[q]; });
        }
        each!(i, k, {
            let mut sum = 0.0;
            let mut p = 0;
            while (p < k) {
                let mut place = i * (2 * m - i + 1) / 2 + p - i;
                if (p < i) { place = p * (2 * m - p + 1) / 2 + i - p; }
                sum += c[place] * a[p];
                p += 1;
            }
            taken[i] = a[i] * sum;
        });
        one!({
            let mut rest = square[0];
            let mut parts = square[0];
            let mut i = 0;
            while (i < k) {
                rest += taken[i] - 2.0 * a[i] * u[i];
                parts += abs(taken[i]) + 2.0 * abs(a[i] * u[i]);
                i += 1;
            }
            s.reached = 0.0;
            if (rest - DIFFERENCE * parts <= s.target * s.target) { s.reached = 1.0; }
            if (!(rest > 0.0)) { rest = 0.0; }
            i = k;
            while (i < n) { s.dropped += 1.0; i += 1; }
            if (s.halt == 0) {
                s.norm_recurrence = sqrt(rest);
                if (!(s.norm_recurrence < HUGE)) { s.halt = 1; if (s.reason == NONE) { s.reason = NOT_FINITE; } }
                if (k == 0) { s.halt = 1; if (s.reason == NONE) { s.reason = INVARIANT; } }
            }
        });
    }
    /// Ends a step.
    end(s, _) {
        s.columns = 0;
        history[at(s.completed)] = s.norm_recurrence;
        if (s.reached > 0.0 && s.reason == NONE) { s.reason = ESTIMATE; }
        // A full batch does not halt at its end, because the next batch continues with Q.
        if (s.reason != NONE || s.completed >= s.remaining) { s.halt = 1; }
    }
    /// At the end of a batch: halts unless a short step still has to be finished.
    settle(s, _) { if (s.columns == 0) { s.halt = 1; } }
    /// Lets the true residual be computed.
    resume(s, _) { if (s.verified != 0) { s.halt = 0; } }
}

sweeps! {
    /// The vector passes of this method.
    pub const SWEEPS for Scalars;
    /// p = q = 0.
    clear: () [] [p, q] -> [] { p = 0.0; q = 0.0; }
    /// z₁ = η A z̃₀ − ζ z₀.
    second: (first_product, first_last) [az, z] [to] -> [] { to = first_product * az - first_last * z; }
    /// zⱼ = 2η A z̃ⱼ₋₁ − 2ζ zⱼ₋₁ − zⱼ₋₂.
    later: (product, last, before) [az, z, zz] [to] -> [] { to = product * az - last * z - before * zz; }
    /// `later`, written over zⱼ₋₂.
    later_in_place: (product, last, before) [az, z] [to] -> [] { to = product * az - last * z - before * to; }
    /// The sum (p, q).
    curvature: () [p, q] [] -> [pq] { pq += p * q; }
    /// r −= α q.
    reduce: (alpha) [q] [r] -> [] { r -= alpha * q; }
    /// The sum (r, z).
    dot: () [r, z] [] -> [rz] { rz += r * z; }
    /// p = z + β p.
    direction: (beta) [z] [p] -> [] { p = z + beta * p; }
}

/// Polynomials that span the directions of a step.
///
/// # Examples
/// ```
/// use krylith::options::CbcgBasis;
/// let options: krylith::Options = "method=cbcg:s=3,basis=monomial".parse()?;
/// assert_eq!((options.s, options.basis), (Some(3), Some(CbcgBasis::Monomial)));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CbcgBasis {
    /// Chebyshev polynomials of [0, λ], which are linearly independent to working precision for s up to 16
    /// and more.
    #[default]
    Chebyshev,
    /// Powers of A P⁻¹/λ, which are linearly independent to working precision for s up to 3 or 4. Use them
    /// for comparison only.
    Monomial,
}

krylith_base::names! { CbcgBasis, "basis of cbcg": Chebyshev => "chebyshev", Monomial => "monomial" }

/// Options of [`Cbcg`].
///
/// # Examples
/// ```
/// use krylith::{options::CbcgBasis, method::CbcgOptions};
/// let six = CbcgOptions { steps: 6, ..CbcgOptions::default() }; // two reductions in six products
/// assert_eq!(six.basis, CbcgBasis::Chebyshev);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct CbcgOptions {
    /// Number s of directions of a step, from 1 to [`MOST_STEPS`]. It is the number of products between two
    /// pairs of reductions.
    pub steps: usize,
    /// Polynomials that span the directions.
    pub basis: CbcgBasis,
}

impl Default for CbcgOptions {
    fn default() -> Self {
        Self { steps: 12, basis: CbcgBasis::Chebyshev }
    }
}

/// P-CBCG and its workspace of 4s + 7 vectors.
///
/// # Examples
/// ```
/// use krylith::device::Cpu;
/// use krylith::{Outcome, Stop, Precision, matrix::Csr, method::{Cbcg, CbcgOptions}, operator::PointBlock};
/// let row = |i: u32| [(i, i, 3.0), (i, (i + 1) % 40, -1.0), (i, (i + 39) % 40, -1.0)];
/// let entries: Vec<_> = (0..40).flat_map(row).collect();
/// let space = Cpu::new(40, 1);
/// let a = PointBlock::csr(&space, &Csr::from_triplets(40, 40, &entries)?, Precision::F64)?;
/// let mut cbcg = Cbcg::new(&space, CbcgOptions { steps: 4, ..CbcgOptions::default() })?;
/// let (b, mut x) = ((0..40).map(|i| (i % 7) as f64).collect(), vec![0.0; 40]);
/// let history = cbcg.solve(&space, &a, None, &b, &mut x, &Stop::default(), &mut ())?;
/// assert_eq!(history.outcome, Outcome::Converged);
/// assert!(history.reductions < history.iterations); // CG would need two an iteration
/// # Ok::<(), krylith::Error>(())
/// ```
pub type Cbcg<S> = Krylov<S, CbcgRecurrence<S>>;

/// The vectors of P-CBCG, and its estimate of λ.
#[doc(hidden)]
pub struct CbcgRecurrence<S: Space> {
    options: CbcgOptions,
    at: Arrays,
    r: S::Vector,
    /// zⱼ of odd and of even j, if z̃ⱼ differs from zⱼ.
    z: [S::Vector; 2],
    basis: Vec<S::Vector>,
    products: Vec<S::Vector>,
    q: Vec<S::Vector>,
    aq: Vec<S::Vector>,
    /// λ with its sign, once it is estimated, and the key of the operators.
    lambda: (f64, Option<u64>),
    /// Defect of the operators that the estimate found: `Scalars::unfit`.
    unfit: f64,
    /// Number of directions that the steps of the last solve dropped.
    dropped: usize,
}

impl<S: Space> CbcgRecurrence<S> {
    /// Returns the λ of the last solve: an estimate of the eigenvalue of P⁻¹A of largest magnitude. It is
    /// negative if either A or P is negative definite.
    #[cfg(any(test, feature = "testing"))]
    pub fn lambda(&self) -> f64 {
        self.lambda.0
    }

    /// Returns the number of directions that the last solve dropped because they were linearly dependent to
    /// working precision.
    #[cfg(any(test, feature = "testing"))]
    pub fn dropped(&self) -> usize {
        self.dropped
    }

    /// Runs Lanczos' method on a random vector. Returns the coefficients αⱼ and βⱼ of CG, until the space is
    /// exhausted.
    fn lanczos(&mut self, on: &mut Work<S>) -> Result<[f64; 2 * LANCZOS]> {
        let Self { r, z: [z, _], basis, products, .. } = self;
        let (p, q) = (&mut basis[0], &mut products[0]);
        on.space.fill_random(1 + on.space.comm().rank() as u64, r)?;
        let first = on.precondition(r, z)?;
        on.space.copy(first, p)?;
        on.sweep(dot, [r, first], [])?;
        on.step(lanczos_begin, 0)?;
        for j in 0..LANCZOS {
            on.multiply(p, q)?;
            on.sweep(curvature, [p, q], [])?;
            on.step(lanczos_alpha, j)?;
            on.sweep(reduce, [q], [r])?;
            let z = on.precondition(r, z)?;
            on.sweep(dot, [r, z], [])?;
            on.step(lanczos_beta, j)?;
            on.sweep(direction, [z], [p])?;
        }
        let (mut coefficients, mut flags) = ([0.0; 2 * LANCZOS], [0; FLAGS]);
        on.space.read_scalars(on.scalars, self.at.lanczos, &mut coefficients, &mut flags)?;
        let mut unfit = [0.0];
        on.space.read_scalars(on.scalars, Scalars::AT.unfit, &mut unfit, &mut flags)?;
        self.unfit = unfit[0];
        Ok(coefficients)
    }

    /// Finishes a step after its products: orthogonalises the directions and updates x and r.
    fn update(&mut self, on: &mut Work<S>, x: &mut S::Vector) -> Result<()> {
        let Self { at, r, basis, products, q, aq, .. } = self;
        let s = on.space;
        s.block_products(aq, basis, on.scalars, at.h)?;
        on.step(conjugate, 0)?;
        s.block_update(basis, products, r, q, aq, on.scalars, at.b, at.g)?;
        on.step(factor, 0)?;
        s.block_advance(q, aq, x, r, on.scalars, at.a)?;
        on.step(end, 0)
    }
}

impl<S: Space> Recurrence<S> for CbcgRecurrence<S> {
    type Options = CbcgOptions;
    const SCALARS: usize = Scalars::LEN;
    const SYMMETRIC: bool = true;
    const PATIENCE: usize = 3; // ‖r‖₂ is not monotone, as in CG

    fn new(space: &S, options: CbcgOptions) -> Result<Self> {
        let s = options.steps;
        if !(1..=MOST_STEPS).contains(&s) {
            return Err(Error::invalid(format!(
                "cbcg:s={s}: expected from 1 to {MOST_STEPS} directions a step"
            )));
        }
        let block = || space.block(s);
        Ok(Self {
            options,
            at: Arrays::at(s),
            r: space.vector()?,
            z: [space.vector()?, space.vector()?],
            basis: block()?,
            products: block()?,
            q: block()?,
            aq: block()?,
            lambda: (0.0, None),
            unfit: 0.0,
            dropped: 0,
        })
    }

    fn cycle(&self) -> Option<usize> {
        Some(self.options.steps)
    }

    fn scalars(m: usize) -> usize {
        Arrays::at(m).len
    }

    /// Estimates λ if it is not known.
    fn prepare(&mut self, on: &mut Work<S>, key: Option<u64>) -> Result<()> {
        if key.is_some() && key == self.lambda.1 && self.dropped == 0 {
            return Ok(());
        }
        let mut flags = [0; FLAGS];
        flags[BATCH] = self.options.steps as i32; // fixes the offsets of the arrays
        on.space.write_scalars(on.scalars, 0, &[0.0; Scalars::LEN], &flags)?;
        let coefficients = self.lanczos(on)?;
        let estimate = largest_ritz_value(&coefficients);
        // If there is no estimate, any interval will do.
        let lambda = if estimate != 0.0 && estimate.is_finite() { estimate } else { 1.0 };
        self.lambda = (lambda, key);
        Ok(())
    }

    fn write_scalars(&self, scalars: &mut [f64]) {
        let (at, eta) = (Scalars::AT, 2.0 / self.lambda.0);
        let (early, others) = match self.options.basis {
            // ζ = 1, because the interval begins at 0.
            CbcgBasis::Chebyshev => ([eta, 1.0], [2.0 * eta, 2.0, 1.0]),
            CbcgBasis::Monomial => ([0.5 * eta, 0.0], [0.5 * eta, 0.0, 0.0]),
        };
        [scalars[at.first_product], scalars[at.first_last]] = early;
        [scalars[at.product], scalars[at.last], scalars[at.before]] = others;
        scalars[at.unfit] = self.unfit;
    }

    fn read_scalars(&mut self, scalars: &[f64]) {
        self.dropped = scalars[Scalars::AT.dropped] as usize;
    }

    fn remark(&self) -> Option<String> {
        let (dropped, s) = (self.dropped, self.options.steps);
        (dropped > 0).then(|| {
            format!(
                "cbcg dropped {dropped} directions that were linearly dependent in working precision; an s \
                 below {s} saves their products"
            )
        })
    }

    fn reductions(&self, iterations: usize, _: Reason) -> usize {
        2 * iterations.div_ceil(self.options.steps)
    }

    fn residual(&mut self) -> &mut S::Vector {
        &mut self.r
    }

    /// Keeps the directions of the step before, so that later directions are made conjugate to them.
    fn restart(&mut self, on: &mut Work<S>) -> Result<()> {
        if !on.first {
            return Ok(());
        }
        for (q, aq) in self.q.iter_mut().zip(&mut self.aq) {
            on.sweep(clear, [], [q, aq])?;
        }
        on.step(forget, 0)
    }

    /// Computes z̃ⱼ and A z̃ⱼ. The last iteration of a step also updates x.
    fn iterate(&mut self, on: &mut Work<S>, x: &mut S::Vector, j: usize) -> Result<()> {
        let Self { r, z: [odd, even], basis, products, .. } = self;
        if j == 0 {
            on.step(open, 0)?;
        }
        if on.preconditioned() {
            match j {
                0 => {}
                1 => on.sweep(second, [&products[0], r], [odd])?,
                2 => on.sweep(later, [&products[1], odd, r], [even])?,
                _ if j % 2 == 1 => on.sweep(later_in_place, [&products[j - 1], even], [odd])?,
                _ => on.sweep(later_in_place, [&products[j - 1], odd], [even])?,
            }
            let z: &S::Vector = if j == 0 { r } else { [&*even, &*odd][j % 2] };
            on.precondition(z, &mut basis[j])?;
        } else {
            let (before, to) = basis.split_at_mut(j);
            match j {
                0 => on.space.copy(r, &mut to[0])?,
                1 => on.sweep(second, [&products[0], &before[0]], [&mut to[0]])?,
                _ => on.sweep(later, [&products[j - 1], &before[j - 1], &before[j - 2]], [&mut to[0]])?,
            }
        }
        on.multiply(&self.basis[j], &mut self.products[j])?;
        on.step(count, j)?;
        if j + 1 == self.options.steps { self.update(on, x) } else { Ok(()) }
    }

    /// Finishes a step that the iteration limit or the observer cut short.
    fn finish(&mut self, on: &mut Work<S>, x: &mut S::Vector) -> Result<()> {
        on.step(settle, 0)?;
        self.update(on, x)?;
        on.space.guard(None);
        on.step(resume, 0)?;
        on.space.guard(Some(on.scalars));
        Ok(())
    }
}

//! Inner solves with a fixed number of iterations, as preconditioners: y ≈ A⁻¹ x from y = 0.
//!
//! * [`InnerMethod::Cg`]: conjugate gradients with a preconditioner M, for symmetric definite A and M. The
//!   result is not a linear function of x, so the outer method must be flexible.
//! * [`InnerMethod::Chebyshev`]: the Chebyshev polynomial in M⁻¹A that is smallest on its spectrum (Saad
//!   2003, Alg. 12.1). It is linear, and symmetric if A and M are. Both ends of the spectrum are estimated at
//!   set-up by the Lanczos process that CG runs.
//!
//! All scalars stay on the device and the number of iterations is fixed, so the iteration of the outer method
//! that contains an inner solve can be recorded.
//!
//! Traffic of k iterations, with N numbers: k applications of M, k products (Chebyshev: k − 1), and 11 N (7
//! N) each.

use super::spec::InnerMethod;
use super::{Preconditioner, SharedOperator};
use crate::operator::{
    LinearOperator, PointBlockSum, TermValues, Terms, applied, fresh_key, joined_key, no_transpose,
};
use crate::space::{FLAGS, sweep_bound as sweep};
use crate::{Result, steps, sweeps};
use std::cell::RefCell;

steps! {
    /// The scalars of inner CG.
    pub struct Scalars {
        /// (r, z) and (p, q) of the current iteration, (r, z) of the previous one.
        rz, pq, rz_old,
        /// Step length, and factor of the previous direction.
        alpha, beta,
        /// Coefficients of a Chebyshev step: of the previous direction and of the residual.
        previous, fresh
    }
    /// No arrays.
    arrays Arrays(m) {}
    constants [];
    functions {}
    /// Every step.
    pub const STEPS;
    /// There is no previous direction.
    inner_begin(s, _) { s.rz_old = 0.0; }
    /// β = (r, z)/(r, z)₋₁; 0 after convergence and at the beginning.
    inner_turn(s, _) {
        s.beta = 0.0;
        if (s.rz_old != 0.0) { s.beta = s.rz / s.rz_old; }
        s.rz_old = s.rz;
    }
    /// α = (r, z)/(p, q); 0 after convergence.
    inner_length(s, _) {
        s.alpha = 0.0;
        if (s.pq != 0.0) { s.alpha = s.rz / s.pq; }
    }
}

sweeps! {
    /// The vector passes of inner solves.
    pub const SWEEPS for Scalars;
    /// x = 0, r = b.
    inner_start: () [b] [x, r] -> [] { x = 0.0; r = b; }
    /// (r, z).
    inner_energy: () [r, z] [] -> [rz] { rz += r * z; }
    /// p = z + β p.
    inner_direction: (beta) [z] [p] -> [] { if (beta == 0.0) { p = z; } else { p = z + beta * p; } }
    /// (p, q).
    inner_curvature: () [p, q] [] -> [pq] { pq += p * q; }
    /// x = x + α p, r = r − α q.
    inner_advance: (alpha) [p, q] [x, r] -> [] { x += alpha * p; r -= alpha * q; }
    /// p = c z, x = p.
    inner_first: (fresh) [z] [p, x] -> [] { p = fresh * z; x = p; }
    /// p = a p + c z, x = x + p.
    inner_next: (previous, fresh) [z] [p, x] -> [] { p = previous * p + fresh * z; x += p; }
    /// r = b − q.
    inner_residual: () [b, q] [r] -> [] { r = b - q; }
}

/// Number of named scalars.
const LEN: usize = Scalars::<usize, usize>::LEN;
/// Iterations of CG that estimate the spectrum.
const LANCZOS: usize = 10;
/// Factors that widen the estimated spectrum at its lower and upper end, because Ritz values lie inside.
const WIDER: [f64; 2] = [0.9, 1.1];

/// An inner solve with a fixed number of iterations.
pub(crate) struct Inner<S: PointBlockSum> {
    method: InnerMethod,
    iterations: usize,
    /// Lower end of the interval as a share of the upper; the whole spectrum by default.
    low: Option<f64>,
    operator: SharedOperator<S>,
    inverse: Box<dyn Preconditioner<S>>,
    /// r, z, p, q.
    work: RefCell<[S::Vector; 4]>,
    scalars: RefCell<S::Scalars>,
    /// Slots of the coefficients of each Chebyshev step, after the named scalars.
    coefficients: Vec<[usize; 2]>,
    /// Ends of the spectrum of M⁻¹A.
    spectrum: [f64; 2],
    len: u64,
    key: u64,
}

impl<S: PointBlockSum> Inner<S> {
    /// Makes `iterations` iterations of `method` for `operator`, with the preconditioner `inverse`. A
    /// Chebyshev polynomial is for the eigenvalues from the share `low` of the largest one on. Collective.
    ///
    /// # Errors
    /// Out of device memory; a rank that has ended or failed.
    pub fn new(
        space: &S,
        method: InnerMethod,
        (iterations, low): (usize, Option<f64>),
        operator: SharedOperator<S>,
        inverse: Box<dyn Preconditioner<S>>,
    ) -> Result<Self> {
        let named = LEN;
        let slots = |k: usize| [named + 2 * k, named + 2 * k + 1];
        let count = if method == InnerMethod::Chebyshev { iterations } else { 0 };
        let vector = || space.vector();
        let mut inner = Self {
            method,
            iterations,
            low,
            operator,
            inverse,
            work: RefCell::new([vector()?, vector()?, vector()?, vector()?]),
            scalars: RefCell::new(space.scalars(Arrays::at(0).len + 2 * count)?),
            coefficients: (0..count).map(slots).collect(),
            spectrum: [1.0; 2],
            len: space.len() as u64,
            key: fresh_key(),
        };
        inner.prepare(space)?;
        Ok(inner)
    }

    /// Returns the ends of the spectrum of M⁻¹A as estimated, for the Chebyshev polynomial.
    pub fn spectrum(&self) -> [f64; 2] {
        self.spectrum
    }

    /// Estimates the spectrum and writes the coefficients of the polynomial. Collective.
    fn prepare(&mut self, space: &S) -> Result<()> {
        if self.method != InnerMethod::Chebyshev {
            return Ok(());
        }
        self.spectrum = self.estimate(space)?;
        let [low, high] = self.spectrum;
        let (middle, half) = ((high + low) / 2.0, (high - low) / 2.0);
        let sigma = middle / half;
        let (mut rho, mut steps) = (1.0 / sigma, vec![0.0, 1.0 / middle]);
        for _ in 1..self.iterations {
            let next = 1.0 / (2.0 * sigma - rho);
            steps.extend([next * rho, 2.0 * next / half]);
            rho = next;
        }
        space.write_scalars(self.scalars.get_mut(), LEN, &steps, &[0; FLAGS])
    }

    /// Estimates both ends of the spectrum of M⁻¹A by the Lanczos process inside CG, on a random right-hand
    /// side.
    fn estimate(&self, space: &S) -> Result<[f64; 2]> {
        let (mut b, mut x) = (space.vector()?, space.vector()?);
        space.fill_random(2, &mut b)?;
        let work = &mut *self.work.borrow_mut();
        let scalars = &mut *self.scalars.borrow_mut();
        sweep(space, inner_start, scalars, [&b], [&mut x, &mut work[0]])?;
        space.step(inner_begin, scalars, 0)?;
        let (mut diagonal, mut beside, mut last) = (Vec::new(), Vec::new(), 0.0);
        for k in 0..LANCZOS {
            self.cg_step(space, &mut x, work, scalars)?;
            let (mut found, mut flags) = ([0.0; LEN], [0; FLAGS]);
            space.read_scalars(scalars, 0, &mut found, &mut flags)?;
            let [alpha, beta] = [Scalars::AT.alpha, Scalars::AT.beta].map(|slot| found[slot]);
            if !(alpha.is_normal() && beta.is_finite()) || (k > 0 && beta <= 0.0) {
                break;
            }
            diagonal.push(1.0 / alpha + if k > 0 { beta / last } else { 0.0 });
            if k > 0 {
                beside.push(f64::sqrt(beta) / f64::abs(last));
            }
            last = alpha;
        }
        let [low, high] = ends(&diagonal, &beside);
        let usable = low > 0.0 && high.is_finite();
        let [low, high] = if usable { [WIDER[0] * low, WIDER[1] * high] } else { [0.1, 1.1] };
        let low = self.low.map_or(low, |share| share * high);
        Ok([low.min(0.99 * high), high])
    }

    /// Computes x ← p(M⁻¹A) M⁻¹ b, or the transpose of that.
    fn polynomial(
        &self,
        space: &S,
        turned: bool,
        b: &S::Vector,
        x: &mut S::Vector,
        [r, z, p, q]: &mut [S::Vector; 4],
        scalars: &mut S::Scalars,
    ) -> Result<()> {
        for (k, [previous, fresh]) in self.coefficients.iter().copied().enumerate() {
            if k == 0 {
                applied(&*self.inverse, turned, space, b, z)?;
                space.sweep(inner_first, scalars, [fresh], [&*z], [&mut *p, &mut *x], [])?;
                continue;
            }
            applied(&self.operator, turned, space, x, q)?;
            space.sweep(inner_residual, scalars, [], [b, &*q], [&mut *r], [])?;
            applied(&*self.inverse, turned, space, r, z)?;
            space.sweep(inner_next, scalars, [previous, fresh], [&*z], [&mut *p, &mut *x], [])?;
        }
        Ok(())
    }

    /// One iteration of CG: x and r move along a new direction.
    fn cg_step(
        &self,
        space: &S,
        x: &mut S::Vector,
        [r, z, p, q]: &mut [S::Vector; 4],
        scalars: &mut S::Scalars,
    ) -> Result<()> {
        self.inverse.apply(space, r, z)?;
        sweep(space, inner_energy, scalars, [&*r, &*z], [])?;
        space.step(inner_turn, scalars, 0)?;
        sweep(space, inner_direction, scalars, [&*z], [&mut *p])?;
        self.operator.apply(space, p, q)?;
        sweep(space, inner_curvature, scalars, [&*p, &*q], [])?;
        space.step(inner_length, scalars, 0)?;
        sweep(space, inner_advance, scalars, [&*p, &*q], [x, r])
    }
}

/// Returns the smallest and the largest eigenvalue of a symmetric tridiagonal matrix, by bisection.
fn ends(diagonal: &[f64], beside: &[f64]) -> [f64; 2] {
    let radius = |i: usize| {
        let at = |i: Option<usize>| i.and_then(|i| beside.get(i)).map_or(0.0, |v| v.abs());
        at(i.checked_sub(1)) + at(Some(i))
    };
    let bound = |sign: f64| {
        let ends = diagonal.iter().enumerate().map(|(i, d)| sign * d + radius(i));
        sign * ends.fold(f64::NEG_INFINITY, f64::max)
    };
    // Number of eigenvalues below t: negative pivots of T − t I.
    let below = |t: f64| {
        let (mut count, mut pivot) = (0, 1.0);
        for (i, d) in diagonal.iter().enumerate() {
            let square = if i > 0 { beside[i - 1] * beside[i - 1] } else { 0.0 };
            pivot = d - t - square / pivot;
            if pivot == 0.0 {
                pivot = -f64::MIN_POSITIVE;
            }
            count += usize::from(pivot < 0.0);
        }
        count
    };
    let find = |number: usize| {
        let (mut low, mut high) = (bound(-1.0), bound(1.0));
        for _ in 0..80 {
            let middle = (low + high) / 2.0;
            if below(middle) >= number { high = middle } else { low = middle }
        }
        (low + high) / 2.0
    };
    if diagonal.is_empty() { [f64::NAN; 2] } else { [find(1), find(diagonal.len())] }
}

impl<S: PointBlockSum> LinearOperator<S> for Inner<S> {
    fn apply(&self, space: &S, b: &S::Vector, x: &mut S::Vector) -> Result<()> {
        let work = &mut *self.work.borrow_mut();
        let scalars = &mut *self.scalars.borrow_mut();
        if self.method == InnerMethod::Cg {
            sweep(space, inner_start, scalars, [b], [&mut *x, &mut work[0]])?;
            space.step(inner_begin, scalars, 0)?;
            for _ in 0..self.iterations {
                self.cg_step(space, x, work, scalars)?;
            }
            return Ok(());
        }
        self.polynomial(space, false, b, x, work, scalars)
    }
    fn has_transpose(&self) -> bool {
        self.method == InnerMethod::Chebyshev && self.inverse.has_transpose()
    }
    /// The same polynomial of the transposes.
    fn apply_transpose(&self, space: &S, b: &S::Vector, x: &mut S::Vector) -> Result<()> {
        if self.method != InnerMethod::Chebyshev {
            return Err(no_transpose("an inner solve by CG"));
        }
        let (work, scalars) = (&mut *self.work.borrow_mut(), &mut *self.scalars.borrow_mut());
        self.polynomial(space, true, b, x, work, scalars)
    }
    fn key(&self) -> u64 {
        joined_key([self.key, self.operator.key(), self.inverse.key()])
    }
    fn bytes(&self) -> u64 {
        let (k, each) = (self.iterations as u64, self.inverse.bytes() + self.operator.bytes());
        let numbers = if self.method == InnerMethod::Cg { 88 } else { 56 };
        k * (each + numbers * self.len)
    }
    fn recordable(&self) -> bool {
        self.operator.recordable() && self.inverse.recordable()
    }
}

/// The operator is shared with its owner, who updates it first.
impl<S: PointBlockSum> Preconditioner<S> for Inner<S> {
    fn update_values(&mut self, space: &S, terms: &Terms, values: TermValues) -> Result<()> {
        self.inverse.update_values(space, terms, values)?;
        self.prepare(space)
    }
    fn prepare_transpose(&mut self, space: &S, terms: &Terms) -> Result<()> {
        if !self.has_transpose() {
            return Err(no_transpose("an inner solve by CG"));
        }
        self.operator.borrow_mut().prepare_transpose(space, terms)?;
        self.inverse.prepare_transpose(space, terms)
    }
    fn take_events(&mut self) -> Vec<String> {
        self.inverse.take_events()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_of_the_spectrum() {
        // 2 −1: eigenvalues 2 − 2 cos(k π / (n + 1)).
        let n = 8;
        let [low, high] = ends(&vec![2.0; n], &vec![-1.0; n - 1]);
        let exact = |k: f64| 2.0 - 2.0 * (k * std::f64::consts::PI / (n as f64 + 1.0)).cos();
        assert!((low - exact(1.0)).abs() < 1e-12 && (high - exact(n as f64)).abs() < 1e-12, "{low} {high}");
        assert_eq!(ends(&[3.0], &[]), [3.0, 3.0]);
    }
}

//! Restarted GMRES and FGMRES with complex coefficients, right preconditioning and classical Gram–Schmidt
//! applied twice (CGS2).
//!
//! A pass of Gram–Schmidt needs (v, z) = vᵀz + i vᵀJ⁻¹z for every column v of the basis V, because Jᵀ = J⁻¹.
//! So one reduction multiplies V by z and by k = J⁻¹z. Then z − V (Vᵀz) − J V (Vᵀk) is
//! J (k − V (Vᵀk)) − V (Vᵀz). A pass reads V three times, where one with real coefficients reads it twice.
//! Iteration j moves (6 j + 30) N numbers, with two reductions and a norm.
//!
//! The preconditioner must commute with J too, unless the method is flexible, because x = P⁻¹ V y.

use crate::method::gmres::{BREAKDOWN, GmresOptions};
use crate::method::krylov::{Krylov, Recurrence};
use crate::method::work::Work;
use crate::space::{Phase, Precision, Reason, Space};
use crate::{Error, Result, steps, sweeps};

steps! {
    /// The scalars of GMRES.
    pub struct Scalars {
        /// A column adds nothing to the space if its diagonal entry of R is below this share of the largest
        /// one.
        rank,
        /// The norm of the new column.
        rho
    }
    /// The arrays, for a basis of m columns: the sums of two passes of Gram–Schmidt, 2 m + 3 each; H, which
    /// becomes its factor R, by columns; the rotations with real cosines and complex sines; the right-hand
    /// side γ of the least-squares problem and its solution y. Real parts come before imaginary ones.
    arrays Arrays(m) {
        history: m + 1, dots: 2 * (2 * m + 3), hr: (m + 1) * m, hi: (m + 1) * m, cs: m + 1, sr: m + 1, si: m + 1,
        gr: m + 1, gi: m + 1, yr: m + 1, yi: m + 1
    }
    constants [BREAKDOWN];
    functions {}
    /// Every step.
    pub const STEPS;
    /// Begins a cycle with γ = ‖r‖ e₁.
    open(s, _) {
        gr[0] = s.norm;
        gi[0] = 0.0;
    }
    /// Computes column j of H from both passes and rotates it. (w, w) is in rr.
    classical(s, j) {
        let ld = m + 1;
        let second = 2 * m + 3;
        let c = j * ld;
        let mut scale = s.rr;
        let mut k = 0;
        while (k <= j) {
            hr[c + k] = dots[k] + dots[second + k];
            hi[c + k] = dots[j + 1 + k] + dots[second + j + 1 + k];
            scale += hr[c + k] * hr[c + k] + hi[c + k] * hi[c + k];
            k += 1;
        }
        s.rho = sqrt(s.rr);
        if (!(scale < HUGE)) {
            s.reason = NOT_FINITE;
            s.halt = 1;
            return;
        }
        // Rotation k turns (a, b) into (c a + s b, c b − s̄ a).
        let mut ar = hr[c];
        let mut ai = hi[c];
        k = 0;
        while (k < j) {
            let br = hr[c + k + 1];
            let bi = hi[c + k + 1];
            hr[c + k] = cs[k] * ar + sr[k] * br - si[k] * bi;
            hi[c + k] = cs[k] * ai + sr[k] * bi + si[k] * br;
            let ur = cs[k] * br - (sr[k] * ar + si[k] * ai);
            ai = cs[k] * bi - (sr[k] * ai - si[k] * ar);
            ar = ur;
            k += 1;
        }
        // The new rotation annihilates ρ below a: c = |a|/l and s = (a/|a|) ρ/l.
        let size = sqrt(ar * ar + ai * ai);
        let length = sqrt(ar * ar + ai * ai + s.rr);
        cs[j] = 0.0; // a zero column does not reduce the residual
        sr[j] = 1.0;
        si[j] = 0.0;
        hr[c + j] = length;
        hi[c + j] = 0.0;
        if (size > 0.0) {
            cs[j] = size / length;
            sr[j] = ar / size * (s.rho / length);
            si[j] = ai / size * (s.rho / length);
            hr[c + j] = ar / size * length;
            hi[c + j] = ai / size * length;
        }
        let tr = gr[j];
        let ti = gi[j];
        gr[j] = cs[j] * tr;
        gi[j] = cs[j] * ti;
        gr[j + 1] = -(sr[j] * tr + si[j] * ti);
        gi[j + 1] = -(sr[j] * ti - si[j] * tr);
        s.norm_recurrence = sqrt(gr[j + 1] * gr[j + 1] + gi[j + 1] * gi[j + 1]);
        history[j + 1] = s.norm_recurrence;
        if (s.norm_recurrence <= s.target) { s.reason = ESTIMATE; }
        if (!(s.rr > BREAKDOWN * scale)) { s.reason = INVARIANT; }
        s.completed += 1;
        s.columns += 1;
        if (s.reason == NONE && s.completed >= s.limit) { s.reason = BASIS_FULL; }
        if (s.reason != NONE) { s.halt = 1; }
    }
    /// Computes y = R⁻¹γ. A column whose diagonal entry vanishes adds nothing to the space. It is dropped,
    /// with all later columns.
    solve(s, _) {
        let ld = m + 1;
        let mut n = 0;
        let mut largest = 0.0;
        let mut go = true;
        while (go && n < at(s.columns)) {
            let d = n * ld + n;
            let size = sqrt(hr[d] * hr[d] + hi[d] * hi[d]);
            go = size > s.rank * largest;
            if (size > largest) { largest = size; }
            if (go) {
                yr[n] = gr[n];
                yi[n] = gi[n];
                n += 1;
            }
        }
        s.columns = flag(n);
        let mut i = n;
        while (i > 0) {
            i -= 1;
            let d = i * ld + i;
            let square = hr[d] * hr[d] + hi[d] * hi[d];
            let zr = (yr[i] * hr[d] + yi[i] * hi[d]) / square;
            let zi = (yi[i] * hr[d] - yr[i] * hi[d]) / square;
            yr[i] = zr;
            yi[i] = zi;
            let mut k = 0;
            while (k < i) {
                let e = i * ld + k;
                yr[k] -= hr[e] * zr - hi[e] * zi;
                yi[k] -= hr[e] * zi + hi[e] * zr;
                k += 1;
            }
        }
    }
}

sweeps! {
    /// The vector passes of this method.
    pub const SWEEPS for Scalars;
    /// x += u.
    correct: () [u] [x] -> [] { x += u; }
}

/// GMRES(m) with complex coefficients and its workspace of m + 8 vectors; FGMRES(m) has 2 m + 8.
///
/// # Examples
/// A shift of three numbers in a ring, times i: GMRES(3) needs a full basis.
/// ```
/// use krylith::{Outcome, Precision, Stop, device::Cpu, matrix::Bsr, method::GmresOptions};
/// use krylith::operator::PointBlock;
/// use krylith_core::method::complex::gmres::Gmres;
/// let i = [0.0, -1.0, 1.0, 0.0];
/// let ring = Bsr::new(2, 3, 3, vec![0, 1, 2, 3], vec![2, 0, 1], [i, i, i].concat())?;
/// let space = Cpu::new(6, 1);
/// let a = PointBlock::bsr(&space, &ring, Precision::F64)?;
/// let mut gmres = Gmres::new(&space, GmresOptions::default())?;
/// let (b, mut x) = (vec![1.0, 0.0, 0.0, 0.0, 0.0, 0.0], vec![0.0; 6]);
/// let history = gmres.solve(&space, &a, None, &b, &mut x, &Stop::default(), &mut ())?;
/// assert_eq!((history.outcome, history.iterations), (Outcome::Converged, 3));
/// assert!((x[5] + 1.0).abs() < 1e-12); // i x₂ = 1
/// # Ok::<(), krylith::Error>(())
/// ```
pub type Gmres<S> = Krylov<S, GmresRecurrence<S>>;

/// The basis of GMRES and its other vectors.
#[doc(hidden)]
pub struct GmresRecurrence<S: Space> {
    options: GmresOptions,
    at: Arrays,
    v: S::Basis,
    /// The basis Z of FGMRES.
    directions: Option<S::Basis>,
    w: S::Vector,
    z: S::Vector,
    k: S::Vector,
    u: S::Vector,
}

impl<S: Space> Recurrence<S> for GmresRecurrence<S> {
    type Options = GmresOptions;
    const SCALARS: usize = Scalars::LEN;
    const PATIENCE: usize = 2; // the first cycle after a too small estimate may make no progress

    fn new(space: &S, options: GmresOptions) -> Result<Self> {
        let m = options.restart;
        if m == 0 {
            return Err(Error::invalid("the restart length of GMRES must be at least 1"));
        }
        let v = space.basis(m, options.basis)?;
        let directions = options.flexible.then(|| space.basis(m, Precision::F64)).transpose()?;
        let vector = || space.vector();
        let (w, z, k, u) = (vector()?, vector()?, vector()?, vector()?);
        Ok(Self { options, at: Arrays::at(m), v, directions, w, z, k, u })
    }

    fn cycle(&self) -> Option<usize> {
        Some(self.options.restart)
    }

    fn scalars(m: usize) -> usize {
        Arrays::at(m).len
    }

    fn write_scalars(&self, scalars: &mut [f64]) {
        // Eight rounding errors of the basis, as in the real method.
        scalars[Scalars::AT.rank] = match self.options.basis {
            Precision::F64 => 1e-15,
            Precision::F32 => 5e-7,
        };
    }

    fn reductions(&self, iterations: usize, reason: Reason) -> usize {
        3 * (iterations + usize::from(reason == Reason::NotFinite))
    }

    fn residual(&mut self) -> &mut S::Vector {
        &mut self.w
    }

    /// Does nothing: a cycle begins with w = r.
    fn restart(&mut self, _: &mut Work<S>) -> Result<()> {
        Ok(())
    }

    /// Extends V, which spans the Krylov space of A P⁻¹ and the residual.
    fn iterate(&mut self, on: &mut Work<S>, _: &mut S::Vector, j: usize) -> Result<()> {
        let (s, m) = (on.space, self.options.restart);
        let Self { at, v, directions, w, z, k, u, .. } = self;
        if j == 0 {
            on.step(open, 0)?;
            s.append(v, 0, w, on.scalars, Scalars::AT.norm)?; // v₀ = r/‖r‖
        }
        match directions {
            None => on.multiply_preconditioned(w, u, z)?, // z = A P⁻¹ w
            Some(all) => s.with_column(all, j, |column| {
                on.multiply_preconditioned(w, column, z)?;
                if on.preconditioned() { Ok(()) } else { s.copy(w, column) }
            })?,
        }
        for pass in 0..2 {
            let to = at.dots + pass * (2 * m + 3);
            s.turn(z, k, true)?;
            s.project_pair(v, j + 1, z, k, on.scalars, to)?;
            s.subtract(v, 0..j + 1, k, on.scalars, to + j + 1, None)?;
            s.turn(k, z, false)?;
            s.subtract(v, 0..j + 1, z, on.scalars, to, (pass == 1).then_some(Scalars::AT.rr))?;
        }
        s.copy(z, w)?;
        on.step(classical, j)?;
        if j + 1 < m { s.append(v, j + 1, w, on.scalars, Scalars::AT.rho) } else { Ok(()) }
    }

    /// Adds P⁻¹ V y, or Z y, to x, with the y that minimises the residual.
    fn finish(&mut self, on: &mut Work<S>, x: &mut S::Vector) -> Result<()> {
        on.step(solve, 0)?;
        let Self { at, v, directions, w, z, k, u, .. } = self;
        let basis = directions.as_ref().unwrap_or(v);
        on.space.expand(basis, z, on.scalars, at.yr)?;
        on.space.expand(basis, k, on.scalars, at.yi)?;
        on.space.turn(k, w, false)?;
        on.sweep(correct, [w], [z])?;
        let update = if directions.is_some() { &*z } else { on.precondition(z, u)? };
        on.space.mark(Phase::Other);
        on.sweep(correct, [update], [x])
    }
}

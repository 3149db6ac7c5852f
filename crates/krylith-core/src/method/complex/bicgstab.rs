//! BiCGSTAB with complex coefficients (van der Vorst 1992). The iteration and its tests are those of
//! [`bicgstab`](crate::method::bicgstab), which see, with merged reductions.
//!
//! Products by i take passes of their own: of v and t, for the inner products and multiples that they are in,
//! and of two sums of vectors, for the rest of x and p. An iteration moves 39 N numbers, with two reductions,
//! besides two products and two applications of P.

use crate::method::bicgstab::{BicgstabOptions, GROWTH, TRUSTED, VANISHES};
use crate::method::krylov::{Krylov, Recurrence};
use crate::method::work::Work;
use crate::space::{Reason, Space};
use crate::{Result, steps, sweeps};

steps! {
    /// The scalars of BiCGSTAB: real and imaginary parts.
    pub struct Scalars {
        /// The latest sum (r̂, r), and (r̂, r) of the current iteration.
        next_re, next_im, rho_re, rho_im, alpha_re, alpha_im, omega_re, omega_im, beta_re, beta_im,
        /// The sum (r̂, v), and other sums of an iteration.
        sigma_re, sigma_im, vv, ts_re, ts_im, tt, ss, rs_re, rs_im, rt_re, rt_im,
        /// Factor of v in r̂ at a restart.
        shift,
        /// α if the solve ends with s, else 0.
        half_re, half_im
    }
    /// The array of these scalars.
    arrays Arrays(m) { history: m + 1 }
    constants [VANISHES, GROWTH, TRUSTED];
    functions {
        fn form_shift(s;) {
            // After a breakdown r̂ = r might lead to the same breakdown. r + σ v is far from orthogonal to r.
            s.shift = 0.0;
            if ((s.reason >= ALPHA || s.reason == GREW) && s.vv > 0.0) {
                s.shift = 0.5 * s.norm_recurrence / sqrt(s.vv);
            }
        }
    }
    /// Every step.
    pub const STEPS;
    /// Sets ρ for the first iteration after a restart.
    adopt(s, _) {
        s.rho_re = s.next_re;
        s.rho_im = s.next_im;
    }
    /// Computes α = ρ/(r̂, v).
    find_alpha(s, _) {
        let square = s.sigma_re * s.sigma_re + s.sigma_im * s.sigma_im;
        if (!(s.vv < HUGE)) {
            s.reason = NOT_FINITE;
        } else if (!(sqrt(square) > VANISHES * s.norm * sqrt(s.vv))) {
            s.reason = ALPHA;
        }
        if (s.reason != NONE) {
            form_shift(s);
            s.halt = 1;
            return;
        }
        s.alpha_re = (s.rho_re * s.sigma_re + s.rho_im * s.sigma_im) / square;
        s.alpha_im = (s.rho_im * s.sigma_re - s.rho_re * s.sigma_im) / square;
    }
    /// Ends the solve with x += α p̂ if s meets the tolerance.
    find_half(s, _) {
        s.half_re = 0.0;
        s.half_im = 0.0;
        if (sqrt(s.ss) <= s.target) {
            s.half_re = s.alpha_re;
            s.half_im = s.alpha_im;
            s.norm_recurrence = sqrt(s.ss);
            s.completed += 1;
            history[at(s.completed)] = s.norm_recurrence;
            s.reason = ESTIMATE;
        }
    }
    /// Halts after `find_half` if the solve ends.
    end_half(s, _) { if (s.reason != NONE) { s.halt = 1; } }
    /// Computes ω = (t, s)/(t, t), and from the same sums (r̂, r), (r, r) and β for the new r.
    find_omega_beta(s, j) {
        if (!(s.tt + s.ss < HUGE)) {
            s.reason = NOT_FINITE;
            form_shift(s);
            s.halt = 1;
            return;
        }
        s.omega_re = 0.0;
        s.omega_im = 0.0;
        if (s.tt > 0.0) {
            s.omega_re = s.ts_re / s.tt;
            s.omega_im = s.ts_im / s.tt;
        }
        let old_re = s.rho_re;
        let old_im = s.rho_im;
        s.rho_re = s.rs_re - (s.omega_re * s.rt_re - s.omega_im * s.rt_im);
        s.rho_im = s.rs_im - (s.omega_re * s.rt_im + s.omega_im * s.rt_re);
        s.rr = s.ss - (s.omega_re * s.ts_re + s.omega_im * s.ts_im);
        let cancelled = !(s.rr > TRUSTED * s.ss);
        if (!(s.rr > 0.0)) { s.rr = 0.0; }
        let norm = sqrt(s.rr);
        s.completed += 1;
        history[at(s.completed)] = norm;
        s.norm_recurrence = norm;
        // β = ρ/ρ₋₁ · α/ω = (ρ α)/(ρ₋₁ ω).
        let above_re = s.rho_re * s.alpha_re - s.rho_im * s.alpha_im;
        let above_im = s.rho_re * s.alpha_im + s.rho_im * s.alpha_re;
        let below_re = old_re * s.omega_re - old_im * s.omega_im;
        let below_im = old_re * s.omega_im + old_im * s.omega_re;
        let below = below_re * below_re + below_im * below_im;
        s.beta_re = (above_re * below_re + above_im * below_im) / below;
        s.beta_im = (above_im * below_re - above_re * below_im) / below;
        let ts = sqrt(s.ts_re * s.ts_re + s.ts_im * s.ts_im);
        let rho = sqrt(s.rho_re * s.rho_re + s.rho_im * s.rho_im);
        if (!(norm < HUGE)) {
            s.reason = NOT_FINITE;
        } else if (norm <= s.target) {
            s.reason = ESTIMATE;
        } else if (!(ts > VANISHES * sqrt(s.tt) * sqrt(s.ss))) {
            s.reason = OMEGA;
        } else if (!(rho > VANISHES * s.norm * sqrt(s.ss))) {
            s.reason = RHO;
        } else if (norm > GROWTH * s.norm) {
            s.reason = GREW;
        }
        form_shift(s);
        if (cancelled && s.reason == NONE) { s.reason = ESTIMATE; }
    }
    /// Ends the iteration, whose x and r are complete. Halts if no iteration is left.
    end(s, _) { if (s.reason != NONE || s.completed >= s.limit) { s.halt = 1; } }
}

sweeps! {
    /// The vector passes of this method. A name that begins with i is the product of a vector by i.
    pub const SWEEPS for Scalars;
    /// r̂ = p = r.
    begin: () [r] [rhat, p] -> [] { rhat = r; p = r; }
    /// r̂ = r + σ v, p = r.
    begin_shifted: (shift) [r, v] [rhat, p] -> [] { rhat = r + shift * v; p = r; }
    /// The sum (r̂, r).
    begin_dots: () [rhat, irhat, r] [] -> [next_re, next_im] { next_re += rhat * r; next_im += irhat * r; }
    /// The sums (r̂, v) and (v, v).
    alpha_dots: () [rhat, irhat, v] [] -> [sigma_re, sigma_im, vv] {
        sigma_re += rhat * v; sigma_im += irhat * v; vv += v * v;
    }
    /// s = r − α v, in place of r.
    form_s: (alpha_re, alpha_im) [v, iv] [r] -> [] { r -= alpha_re * v + alpha_im * iv; }
    /// The sum (s, s).
    half_dots: () [s] [] -> [ss] { ss += s * s; }
    /// x += α p̂ if the solve ends with s.
    add_half: (half_re, half_im) [phat, iphat] [x] -> [] { x += half_re * phat + half_im * iphat; }
    /// The sums (t, s), (t, t), (s, s), (r̂, s) and (r̂, t).
    omega_dots: () [rhat, irhat, s, t, it] [] -> [ts_re, ts_im, tt, ss, rs_re, rs_im, rt_re, rt_im] {
        ts_re += t * s; ts_im += it * s; tt += t * t; ss += s * s;
        rs_re += rhat * s; rs_im += irhat * s; rt_re += rhat * t; rt_im += irhat * t;
    }
    /// p −= ω v, and iv becomes the sum of vectors whose product by i belongs to x.
    combine: (alpha_im, omega_re, omega_im) [phat, shat, v] [p, iv] -> [] {
        p -= omega_re * v + omega_im * iv; iv = alpha_im * phat + omega_im * shat;
    }
    /// x += α p̂ + ω ŝ, r = s − ω t, p = r + β p.
    advance: (alpha_re, omega_re, omega_im, beta_re, beta_im) [phat, shat, rest, t, it, ip] [x, r, p] -> [] {
        x += alpha_re * phat + omega_re * shat + rest;
        r -= omega_re * t + omega_im * it;
        p = r + beta_re * p + beta_im * ip;
    }
}

/// BiCGSTAB with complex coefficients and its workspace of sixteen vectors. An iteration computes two
/// products.
///
/// # Examples
/// (1 + i) x = 2i, in real form.
/// ```
/// use krylith::{Outcome, Precision, Stop, device::Cpu, matrix::Bsr, method::BicgstabOptions};
/// use krylith::operator::PointBlock;
/// use krylith_core::method::complex::bicgstab::Bicgstab;
/// let a = Bsr::new(2, 1, 1, vec![0, 1], vec![0], vec![1.0, -1.0, 1.0, 1.0])?;
/// let space = Cpu::new(2, 1);
/// let operator = PointBlock::bsr(&space, &a, Precision::F64)?;
/// let mut bicgstab = Bicgstab::new(&space, BicgstabOptions::default())?;
/// let (b, mut x) = (vec![0.0, 2.0], vec![0.0; 2]);
/// let history = bicgstab.solve(&space, &operator, None, &b, &mut x, &Stop::default(), &mut ())?;
/// assert_eq!((history.outcome, history.iterations), (Outcome::Converged, 1));
/// assert!((x[0] - 1.0).abs() < 1e-12 && (x[1] - 1.0).abs() < 1e-12);
/// # Ok::<(), krylith::Error>(())
/// ```
pub type Bicgstab<S> = Krylov<S, BicgstabRecurrence<S>>;

/// The vectors of BiCGSTAB. Between the halves of an iteration r holds s.
#[doc(hidden)]
pub struct BicgstabRecurrence<S: Space> {
    /// True if ‖s‖ is computed before P⁻¹ s.
    early: bool,
    r: S::Vector,
    rhat: S::Vector,
    irhat: S::Vector,
    p: S::Vector,
    v: S::Vector,
    iv: S::Vector,
    t: S::Vector,
    it: S::Vector,
    phat: S::Vector,
    shat: S::Vector,
    rest: S::Vector,
    ip: S::Vector,
}

impl<S: Space> Recurrence<S> for BicgstabRecurrence<S> {
    type Options = BicgstabOptions;
    const SCALARS: usize = Scalars::LEN;
    const PATIENCE: usize = 3; // the residual is not monotone: one restart without progress decides nothing

    fn new(space: &S, _: BicgstabOptions) -> Result<Self> {
        let vector = || space.vector();
        Ok(Self {
            early: false,
            r: vector()?,
            rhat: vector()?,
            irhat: vector()?,
            p: vector()?,
            v: vector()?,
            iv: vector()?,
            t: vector()?,
            it: vector()?,
            phat: vector()?,
            shat: vector()?,
            rest: vector()?,
            ip: vector()?,
        })
    }

    fn reductions(&self, iterations: usize, reason: Reason) -> usize {
        // An iteration that ends without α does not count, nor does one with a NaN.
        (2 + usize::from(self.early)) * iterations
            + match reason {
                Reason::AlphaVanishes => 1,
                Reason::NotFinite => 2,
                _ => 0,
            }
    }

    fn prepare(&mut self, on: &mut Work<S>, _: Option<u64>) -> Result<()> {
        self.early = on.costly;
        Ok(())
    }

    fn residual(&mut self) -> &mut S::Vector {
        &mut self.r
    }

    fn restart(&mut self, on: &mut Work<S>) -> Result<()> {
        let Self { r, rhat, irhat, p, v, .. } = self;
        match on.first {
            true => on.sweep(begin, [r], [rhat, p])?,
            false => on.sweep(begin_shifted, [r, v], [rhat, p])?,
        }
        on.space.turn(rhat, irhat, false)?;
        on.sweep(begin_dots, [rhat, irhat, r], [])?;
        on.step(adopt, 0)
    }

    fn iterate(&mut self, on: &mut Work<S>, x: &mut S::Vector, j: usize) -> Result<()> {
        let Self { early, r, rhat, irhat, p, v, iv, t, it, phat, shat, rest, ip } = self;
        multiply(on, p, phat, v)?; // p̂ = P⁻¹ p, v = A p̂
        on.sweep(alpha_dots, [rhat, irhat, v], [])?;
        on.step(find_alpha, j)?;
        on.space.turn(v, iv, false)?;
        on.sweep(form_s, [v, iv], [r])?;
        if *early {
            on.sweep(half_dots, [r], [])?;
            on.step(find_half, j)?;
            on.space.turn(phat, rest, false)?;
            on.sweep(add_half, [phat, rest], [x])?;
            on.step(end_half, j)?;
            if on.halted_before_p()? {
                return Ok(());
            }
        }
        multiply(on, r, shat, t)?; // ŝ = P⁻¹ s, t = A ŝ
        on.space.turn(t, it, false)?;
        on.sweep(omega_dots, [rhat, irhat, r, t, it], [])?;
        on.step(find_omega_beta, j)?;
        on.sweep(combine, [phat, shat, v], [p, iv])?;
        on.space.turn(iv, rest, false)?;
        on.space.turn(p, ip, false)?;
        on.sweep(advance, [phat, shat, rest, t, it, ip], [x, r, p])?;
        on.step(end, j)
    }
}

/// Computes `hat = P⁻¹ from` and `to = A hat`. Without P, `hat` is a copy.
fn multiply<S: Space>(
    on: &mut Work<S>,
    from: &S::Vector,
    hat: &mut S::Vector,
    to: &mut S::Vector,
) -> Result<()> {
    if !on.preconditioned() {
        on.space.copy(from, hat)?;
    }
    on.multiply_preconditioned(from, hat, to)
}

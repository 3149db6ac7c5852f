//! BiCGSTAB with right preconditioning (van der Vorst 1992; Alg. 2.1 of Gondhalekar, Haugen and others, paper
//! 3 in docs/papers.md).
//!
//! Memory traffic of an iteration, for vectors of N numbers. Each iteration computes two products and applies
//! P twice. The passes over vectors are:
//!
//! | pass | `merged` | `classical` |
//! |---|---|---|
//! | (r̂, v), (v, v) | 2 read, **reduction** | 2 read, **reduction** |
//! | s = r − α v | 2 read, 1 written | 2 read, 1 written |
//! | (t, s), (t, t), (s, s) | 3 read ¹, **reduction** | 2 read, **reduction** |
//! | x += α p̂ + ω ŝ, r = s − ω t | 7 read, 3 written ² | 6 read, 2 written ³, **reduction** |
//! | p = r + β (p − ω v) | in the pass above | 3 read, 1 written |
//! | all | 18 N, two reductions | 19 N, three reductions |
//!
//! ¹ with (r̂, s) and (r̂, t); ² with p = r + β (p − ω v); ³ with (r̂, r) and (r, r).
//!
//! Without a preconditioner p̂ is p and ŝ is s, and the totals are 16 N and 18 N.
//!
//! If P costs as much as several products, ‖s‖ is computed before P⁻¹ s, with one more reduction. The solve
//! ends there if s meets the tolerance. So direct factors are applied once and not twice.
//!
//! `merged` computes (r̂, r) and (r, r) of the new r from inner products of r̂, s and t, so that β is known
//! before the new r (Jacques, Nicolas and Vollaire 1999; Cools and Vanroose 2017, Alg. 5 without pipelining).
//! (r, r) is then a difference. If it loses too many digits by cancellation, the true residual is computed.
//!
//! Three denominators may vanish: (r̂, A p̂), ω and (r̂, r). An inner product counts as zero below `VANISHES`
//! times the norms of its vectors, because it then consists of rounding errors. In these tests ‖r‖ at the
//! restart replaces ‖r̂‖, and ‖s‖ replaces ‖r‖ in (r̂, r). The batch ends before such a number divides
//! anything on which x depends.
//!
//! With r̂ = r the first (r̂, v) after a restart is (r, A P⁻¹ r). It vanishes at once after a vanishing ω,
//! because r is then s, and if b is orthogonal to A P⁻¹ b. So after a breakdown r̂ is r + σ v with ‖σ v‖ =
//! ‖r‖/2.
//!
//! There is no split preconditioning K₁⁻¹ A K₂⁻¹, on purpose. It would change the residual of the iteration,
//! but the tolerance is for the residual of the system as given.

use super::krylov::{Krylov, Recurrence};
use super::work::Work;
use crate::space::{Reason, Space};
use crate::{Result, steps, sweeps};

/// Cosine of the angle between two vectors below which their inner product consists of rounding errors.
pub(super) const VANISHES: f64 = 1e-14;
/// Growth of ‖r‖ since the restart after which r has no accurate digit of b − A x.
pub(super) const GROWTH: f64 = 1e8;
/// Smallest share of (s, s) that the difference (r, r) must have to be accurate to eight digits.
pub(super) const TRUSTED: f64 = 1e-8;

steps! {
    /// The scalars of BiCGSTAB.
    pub struct Scalars {
        /// The latest sum (r̂, r), and (r̂, r) of the current and of the previous iteration.
        rho_next, rho, rho_old, alpha, omega, beta,
        /// The sum (r̂, v), and other sums of an iteration.
        sigma, vv, ts, tt, ss, rs, rt,
        /// Factor of v in r̂ at a restart.
        shift,
        /// α if the solve ends with s, else 0.
        half
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
        fn form_alpha_omega(s;) {
            if (!(s.vv < HUGE)) {
                s.reason = NOT_FINITE;
            } else if (!(abs(s.sigma) > VANISHES * s.norm * sqrt(s.vv))) {
                s.reason = ALPHA; // x does not change: s = r − α v is meaningless
            } else if (!(s.tt + s.ss < HUGE)) {
                s.reason = NOT_FINITE;
            }
            if (s.reason != NONE) {
                s.halt = 1;
            } else {
                s.alpha = s.rho / s.sigma;
                s.omega = 0.0;
                if (s.tt > 0.0) { s.omega = s.ts / s.tt; }
                s.rho_old = s.rho;
            }
            form_shift(s);
        }
        fn form_beta(s; history) {
            let norm = sqrt(s.rr);
            s.completed += 1;
            history[at(s.completed)] = norm;
            s.norm_recurrence = norm;
            s.rho = s.rho_next;
            s.beta = (s.rho / s.rho_old) * (s.alpha / s.omega);
            if (!(norm < HUGE)) {
                s.reason = NOT_FINITE;
            } else if (norm <= s.target) {
                s.reason = ESTIMATE;
            } else if (!(abs(s.ts) > VANISHES * sqrt(s.tt) * sqrt(s.ss))) {
                s.reason = OMEGA;
            } else if (!(abs(s.rho) > VANISHES * s.norm * sqrt(s.ss))) {
                s.reason = RHO;
            } else if (norm > GROWTH * s.norm) {
                s.reason = GREW;
            }
            form_shift(s);
        }
    }
    /// Every step.
    pub const STEPS;
    /// Sets ρ for the first iteration after a restart.
    adopt(s, _) { s.rho = s.rho_next; }
    /// Ends the solve with x += α p̂ if s meets the tolerance.
    find_half(s, _) {
        s.half = 0.0;
        if (!(s.vv < HUGE)) {
            s.reason = NOT_FINITE;
            s.halt = 1;
        } else if (!(abs(s.sigma) > VANISHES * s.norm * sqrt(s.vv))) {
            s.reason = ALPHA;
            s.halt = 1;
        } else if (sqrt(s.ss) <= s.target) {
            s.half = s.rho / s.sigma;
            s.norm_recurrence = sqrt(s.ss);
            s.completed += 1;
            history[at(s.completed)] = s.norm_recurrence;
            s.reason = ESTIMATE;
        }
        form_shift(s);
    }
    /// Halts after `find_half` if the solve ends.
    end_half(s, _) { if (s.reason != NONE) { s.halt = 1; } }
    /// Computes α = ρ/(r̂, v) and ω = (t, s)/(t, t).
    find_alpha_omega(s, _) { form_alpha_omega(s); }
    /// Computes α and ω, and from the same sums (r̂, r), (r, r) and β for the new r.
    find_alpha_omega_beta(s, _) {
        form_alpha_omega(s);
        if (s.halt != 0) { return; }
        s.rho_next = s.rs - s.omega * s.rt;
        s.rr = s.ss - s.omega * s.ts;
        let cancelled = !(s.rr > TRUSTED * s.ss);
        if (!(s.rr > 0.0)) { s.rr = 0.0; }
        form_beta(s, history);
        if (cancelled && s.reason == NONE) { s.reason = ESTIMATE; }
    }
    /// Computes β = ρ/ρ₋₁ · α/ω from sums over the new r.
    find_beta(s, _) { form_beta(s, history); }
    /// Ends the iteration, whose x and r are complete. Halts if no iteration is left.
    end(s, _) { if (s.reason != NONE || s.completed >= s.limit) { s.halt = 1; } }
}

sweeps! {
    /// The vector passes of this method.
    pub const SWEEPS for Scalars;
    /// r̂ = p = r, with the sum (r̂, r).
    begin: () [r] [rhat, p] -> [rho_next] { rhat = r; p = r; rho_next += r * r; }
    /// `begin` with r̂ = r + σ v.
    begin_shifted: (shift) [r, v] [rhat, p] -> [rho_next] { rhat = r + shift * v; p = r; rho_next += rhat * r; }
    /// The sums (r̂, v) and (v, v).
    alpha_dots: () [rhat, v] [] -> [sigma, vv] { sigma += rhat * v; vv += v * v; }
    /// s = r − α v, in place of r.
    form_s: (rho, sigma) [v] [r] -> [] { let alpha = rho / sigma; r -= alpha * v; }
    /// `form_s`, with the sum (s, s).
    form_s_summed: (rho, sigma) [v] [r] -> [ss] { let alpha = rho / sigma; r -= alpha * v; ss += r * r; }
    /// x += α p̂ if the solve ends with s.
    add_half: (half) [phat] [x] -> [] { x += half * phat; }
    /// The sums (t, s), (t, t) and (s, s).
    omega_dots: () [s, t] [] -> [ts, tt, ss] { ts += t * s; tt += t * t; ss += s * s; }
    /// `omega_dots`, with the sums (r̂, s) and (r̂, t), which give (r̂, r).
    omega_dots_merged: () [rhat, s, t] [] -> [ts, tt, ss, rs, rt] {
        ts += t * s; tt += t * t; ss += s * s; rs += rhat * s; rt += rhat * t;
    }
    /// x += α p̂ + ω ŝ and r = s − ω t, with the sums (r, r) and (r̂, r).
    update: (alpha, omega) [phat, shat, t, rhat] [x, r] -> [rr, rho_next] {
        x += alpha * phat + omega * shat; r -= omega * t; rr += r * r; rho_next += rhat * r;
    }
    /// `update` for p̂ = p and ŝ = s.
    update_plain: (alpha, omega) [p, t, rhat] [x, r] -> [rr, rho_next] {
        x += alpha * p + omega * r; r -= omega * t; rr += r * r; rho_next += rhat * r;
    }
    /// p = r + β (p − ω v).
    direction: (beta, omega) [r, v] [p] -> [] { p = r + beta * (p - omega * v); }
    /// x += α p̂ + ω ŝ, r = s − ω t, p = r + β (p − ω v).
    advance: (alpha, omega, beta) [phat, shat, t, v] [x, r, p] -> [] {
        x += alpha * phat + omega * shat; r -= omega * t; p = r + beta * (p - omega * v);
    }
    /// `advance` for p̂ = p and ŝ = s.
    advance_plain: (alpha, omega, beta) [t, v] [x, r, p] -> [] {
        x += alpha * p + omega * r; r -= omega * t; p = r + beta * (p - omega * v);
    }
}

/// Grouping of the inner products of an iteration into reductions over threads, GPUs and ranks.
///
/// # Examples
/// ```
/// use krylith::options::Reductions;
/// let options: krylith::Options = "method=bicgstab:reductions=classical".parse()?;
/// assert_eq!(options.reductions, Some(Reductions::Classical));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Reductions {
    /// Two reductions in an iteration: one for each product.
    #[default]
    Merged,
    /// Three reductions in an iteration, as in the original formulation.
    Classical,
}

/// Options of [`Bicgstab`].
///
/// # Examples
/// ```
/// use krylith::{method::BicgstabOptions, options::Reductions};
/// assert_eq!(BicgstabOptions::default().reductions, Reductions::Merged);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct BicgstabOptions {
    /// Grouping of the inner products.
    pub reductions: Reductions,
    /// True for complex coefficients: the matrix is the real form of a complex one
    /// ([`complex`](crate::method::complex)). Reductions are then `merged`.
    pub complex: bool,
}

/// BiCGSTAB and its workspace of eleven vectors. An iteration computes two products.
///
/// # Examples
/// ```
/// use krylith::device::Cpu;
/// use krylith::Outcome;
/// use krylith::Stop;
/// use krylith::Precision;
/// use krylith::matrix::Csr;
/// use krylith::method::{Bicgstab, BicgstabOptions};
/// use krylith::operator::PointBlock;
/// // Flow along a line carries heat: upwind differences.
/// let mut entries: Vec<_> = (0..20).map(|i| (i, i, 1.1)).collect();
/// entries.extend((1..20).map(|i| (i, i - 1, -1.0)));
/// let space = Cpu::new(20, 1);
/// let a = PointBlock::csr(&space, &Csr::from_triplets(20, 20, &entries)?, Precision::F64)?;
/// let mut bicgstab = Bicgstab::new(&space, BicgstabOptions::default())?;
/// let (b, mut x) = (vec![1.0; 20], vec![0.0; 20]);
/// let history = bicgstab.solve(&space, &a, None, &b, &mut x, &Stop::default(), &mut ())?;
/// assert_eq!(history.outcome, Outcome::Converged);
/// assert!((x[0] - 1.0 / 1.1).abs() < 1e-4);
/// # Ok::<(), krylith::Error>(())
/// ```
pub type Bicgstab<S> = Krylov<S, BicgstabRecurrence<S>>;

/// The vectors of BiCGSTAB. Between the halves of an iteration r holds s.
#[doc(hidden)]
pub struct BicgstabRecurrence<S: Space> {
    reductions: Reductions,
    /// True if ‖s‖ is computed before P⁻¹ s.
    early: bool,
    r: S::Vector,
    rhat: S::Vector,
    p: S::Vector,
    v: S::Vector,
    t: S::Vector,
    phat: S::Vector,
    shat: S::Vector,
}

impl<S: Space> Recurrence<S> for BicgstabRecurrence<S> {
    type Options = BicgstabOptions;
    const SCALARS: usize = Scalars::LEN;
    const PATIENCE: usize = 3; // the residual is not monotone: one restart without progress decides nothing

    fn new(space: &S, options: BicgstabOptions) -> Result<Self> {
        let vector = || space.vector();
        Ok(Self {
            reductions: options.reductions,
            early: false,
            r: vector()?,
            rhat: vector()?,
            p: vector()?,
            v: vector()?,
            t: vector()?,
            phat: vector()?,
            shat: vector()?,
        })
    }

    fn reductions(&self, iterations: usize, reason: Reason) -> usize {
        // The step detects a vanishing (r̂, v), or a NaN in α or ω, after two reductions of an iteration that
        // does not count.
        let lost = usize::from(matches!(reason, Reason::AlphaVanishes | Reason::NotFinite));
        let each = if self.reductions == Reductions::Merged { 2 } else { 3 };
        2 * lost + iterations * (each + usize::from(self.early))
    }

    fn prepare(&mut self, on: &mut Work<S>, _: Option<u64>) -> Result<()> {
        self.early = on.costly;
        Ok(())
    }

    fn residual(&mut self) -> &mut S::Vector {
        &mut self.r
    }

    fn restart(&mut self, on: &mut Work<S>) -> Result<()> {
        let Self { r, rhat, p, v, .. } = self;
        match on.first {
            true => on.sweep(begin, [r], [rhat, p])?,
            false => on.sweep(begin_shifted, [r, v], [rhat, p])?,
        }
        on.step(adopt, 0)
    }

    fn iterate(&mut self, on: &mut Work<S>, x: &mut S::Vector, j: usize) -> Result<()> {
        let Self { reductions, early, r, rhat, p, v, t, phat, shat } = self;
        on.multiply_preconditioned(p, phat, v)?; // p̂ = P⁻¹ p, v = A p̂
        on.sweep(alpha_dots, [rhat, v], [])?;
        if *early {
            on.sweep(form_s_summed, [v], [r])?;
            on.step(find_half, j)?;
            on.sweep(add_half, [phat], [x])?;
            on.step(end_half, j)?;
            if on.halted_before_p()? {
                return Ok(());
            }
        } else {
            on.sweep(form_s, [v], [r])?;
        }
        on.multiply_preconditioned(r, shat, t)?; // ŝ = P⁻¹ s, t = A ŝ
        let preconditioned = on.preconditioned();
        if *reductions == Reductions::Merged {
            on.sweep(omega_dots_merged, [rhat, r, t], [])?;
            on.step(find_alpha_omega_beta, j)?;
            match preconditioned {
                true => on.sweep(advance, [phat, shat, t, v], [x, r, p])?,
                false => on.sweep(advance_plain, [t, v], [x, r, p])?,
            }
        } else {
            on.sweep(omega_dots, [r, t], [])?;
            on.step(find_alpha_omega, j)?;
            match preconditioned {
                true => on.sweep(update, [phat, shat, t, rhat], [x, r])?,
                false => on.sweep(update_plain, [p, t, rhat], [x, r])?,
            }
            on.step(find_beta, j)?;
            on.sweep(direction, [r, v], [p])?;
        }
        on.step(end, j)
    }
}

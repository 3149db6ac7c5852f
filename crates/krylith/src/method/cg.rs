//! Preconditioned conjugate gradients, for symmetric definite A and P (Hestenes and Stiefel 1952; Saad 2003, Alg. 9.1).
//!
//! Memory traffic of an iteration, vectors of N numbers: one product, one preconditioner, and
//!
//! | pass | `textbook` | `flexible` | `one-reduction` |
//! |---|---|---|---|
//! | (p, q), q = A p | 2 read, **reduction** | the same | |
//! | x += α p, r −= α q | 4 read, 2 written | the same | with p = z + β p, s = q + β s: 6 read, 4 written |
//! | (r, r), (r, z), z = P⁻¹ r | 2 read, **reduction** | with (z, q): 3 read, **reduction** | with (z, q), q = A z: 3 read, **reduction** |
//! | p = z + β p | 2 read, 1 written | the same | |
//! | all | 13 N | 14 N | 13 N |
//!
//! `flexible` takes β = (z, r − r₋₁)/(z₋₁, r₋₁) (Golub and Ye 1999; Notay 2000), which keeps p conjugate to the last direction
//! where P varies too; r − r₋₁ is −α q, so nothing more is stored. For a fixed symmetric P this is (r, z − z₋₁)/ρ₋₁.
//! `one-reduction` (Chronopoulos and Gear 1989) has s = A p by recurrence: one vector more, and a residual that drifts sooner.
//!
//! A may be negative definite, and P too: (p, A p) and (r, P⁻¹ r) must keep the signs that they begin with. Where one
//! changes, the matrix or the preconditioner is not definite, and the solve ends in a breakdown that says which.

use super::krylov::{Krylov, Recurrence};
use super::work::Work;
use crate::space::{Reason, Space};
use crate::{Result, steps, sweeps};

steps! {
    /// The scalars of CG.
    pub struct Scalars {
        /// (r, z) and (z, q) as they were summed last, (p, A p).
        rho_next, zq, pq,
        /// (r, z) and (z, A z) that the iteration works with; (r, z) before it, 0 after a restart.
        rho, delta, rho_old, alpha, beta,
        /// ±1: the sign of (p, A p) and that of (r, z); 0 where it is not known yet.
        sign_a, sign_p
    }
    /// Its array.
    arrays Arrays(m) { history: m + 1 }
    constants [];
    functions {
        fn form_alpha(s;) {
            if (s.sign_a == 0.0) { s.sign_a = s.pq / abs(s.pq); s.sign_p = s.rho / abs(s.rho); }
            if (!(abs(s.pq) + abs(s.rho) < HUGE)) { s.reason = NOT_FINITE; }
            else if (!(s.pq * s.sign_a > 0.0)) { s.reason = INDEFINITE_MATRIX; }
            else if (!(s.rho * s.sign_p > 0.0)) { s.reason = INDEFINITE_PRECONDITIONER; }
            if (s.reason != NONE) { s.halt = 1; }
            s.alpha = s.rho / s.pq;
            s.rho_old = s.rho;
        }
        fn end_iteration(s; history) {
            s.rho = s.rho_next;
            s.delta = s.zq;
            s.norm_recurrence = sqrt(s.rr);
            s.completed += 1;
            history[at(s.completed)] = s.norm_recurrence;
            if (!(s.norm_recurrence < HUGE)) { s.reason = NOT_FINITE; }
            else if (s.norm_recurrence <= s.target) { s.reason = ESTIMATE; }
            // No halt at the end of a full batch: the next one needs the new p.
            if (s.reason != NONE || s.completed >= s.remaining) { s.halt = 1; }
        }
    }
    /// Every step.
    pub const STEPS;
    /// A restart: there is no last direction.
    adopt(s, _) { s.rho = s.rho_next; s.delta = s.zq; s.rho_old = 0.0; s.beta = 0.0; }
    /// α = ρ/(p, q).
    find_alpha(s, _) { form_alpha(s); }
    /// β = ρ/ρ₋₁ and α = ρ/(p, A p), where (p, A p) = (z, A z) − β ρ/α₋₁.
    find_alpha_beta(s, _) {
        s.pq = s.delta;
        if (s.rho_old != 0.0) { s.beta = s.rho / s.rho_old; s.pq = s.delta - s.beta * s.rho / s.alpha; }
        form_alpha(s);
    }
    /// β = ρ/ρ₋₁.
    find_beta(s, _) { s.beta = s.rho_next / s.rho; end_iteration(s, history); }
    /// β = (z, r − r₋₁)/ρ₋₁ with r − r₋₁ = −α q.
    find_beta_flexible(s, _) { s.beta = -s.alpha * s.zq / s.rho; end_iteration(s, history); }
    /// The end of an iteration whose β comes later.
    end(s, _) { end_iteration(s, history); }
}

sweeps! {
    /// The vector passes of this method.
    pub const SWEEPS for Scalars;
    /// p = 0.
    clear: () [] [p] -> [] { p = 0.0; }
    /// p = s = 0.
    clear_both: () [] [p, s] -> [] { p = 0.0; s = 0.0; }
    /// (p, q).
    curvature: () [p, q] [] -> [pq] { pq += p * q; }
    /// x += α p, r −= α q.
    advance: (alpha) [p, q] [x, r] -> [] { x += alpha * p; r -= alpha * q; }
    /// (r, r), (r, z).
    dots: () [r, z] [] -> [rr, rho_next] { rr += r * r; rho_next += r * z; }
    /// (r, r), (r, z), (z, q).
    dots_flexible: () [r, z, q] [] -> [rr, rho_next, zq] { rr += r * r; rho_next += r * z; zq += z * q; }
    /// p = z + β p.
    direction: (beta) [z] [p] -> [] { p = z + beta * p; }
    /// p = z + β p, s = q + β s, x += α p, r −= α s.
    advance_both: (alpha, beta) [z, q] [p, s, x, r] -> [] {
        p = z + beta * p; s = q + beta * s; x += alpha * p; r -= alpha * s;
    }
    /// The same where z = r.
    advance_both_plain: (alpha, beta) [q] [p, s, x, r] -> [] {
        p = r + beta * p; s = q + beta * s; x += alpha * p; r -= alpha * s;
    }
}

/// How β is formed, and how many reductions an iteration takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CgForm {
    /// β = ρ/ρ₋₁; two reductions.
    #[default]
    Textbook,
    /// The same in exact arithmetic with one reduction; for many ranks.
    OneReduction,
    /// For preconditioners that vary; two reductions.
    Flexible,
}

/// What [`Cg`] is built with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct CgOptions {
    /// Form of the recurrence.
    pub form: CgForm,
}

/// Conjugate gradients and their workspace of eight vectors, nine with one reduction.
pub type Cg<S> = Krylov<S, CgRecurrence<S>>;

/// The vectors of CG.
pub struct CgRecurrence<S: Space> {
    form: CgForm,
    r: S::Vector,
    z: S::Vector,
    p: S::Vector,
    q: S::Vector,
    /// A p, where it is a recurrence.
    s: Option<S::Vector>,
}

impl<S: Space> Recurrence<S> for CgRecurrence<S> {
    type Options = CgOptions;
    const SCALARS: usize = Scalars::LEN;
    const PATIENCE: usize = 3; // ‖r‖₂ is not monotone: one restart without progress is no verdict

    fn new(space: &S, CgOptions { form }: CgOptions) -> Result<Self> {
        let (r, z, p, q) = (space.vector()?, space.vector()?, space.vector()?, space.vector()?);
        let s = if form == CgForm::OneReduction { Some(space.vector()?) } else { None };
        Ok(Self { form, r, z, p, q, s })
    }

    fn reductions(&self, iterations: usize, reason: Reason) -> usize {
        let lost = reason.is_final() || reason == Reason::NotFinite;
        iterations * if self.s.is_some() { 1 } else { 2 } + usize::from(lost && self.s.is_none())
    }

    fn residual(&mut self) -> &mut S::Vector {
        &mut self.r
    }

    fn restart(&mut self, on: &mut Work<S>) -> Result<()> {
        let Self { r, z, p, q, s, .. } = self;
        let z = on.precondition(r, z)?;
        if let Some(s) = s {
            on.multiply(z, q)?;
            on.sweep(clear_both, [], [p, s])?;
            on.sweep(dots_flexible, [r, z, q], [])?;
            return on.step(adopt, 0);
        }
        on.sweep(clear, [], [p])?;
        on.sweep(dots, [r, z], [])?;
        on.step(adopt, 0)?;
        on.sweep(direction, [z], [p])
    }

    fn iterate(&mut self, on: &mut Work<S>, x: &mut S::Vector, j: usize) -> Result<()> {
        let Self { form, r, z, p, q, s } = self;
        if let Some(s) = s {
            on.step(find_alpha_beta, j)?;
            match on.preconditioned() {
                true => on.sweep(advance_both, [z, q], [p, s, x, r])?,
                false => on.sweep(advance_both_plain, [q], [p, s, x, r])?,
            }
            let z = on.precondition(r, z)?;
            on.multiply(z, q)?;
            on.sweep(dots_flexible, [r, z, q], [])?;
            return on.step(end, j);
        }
        on.multiply(p, q)?; // q = A p
        on.sweep(curvature, [p, q], [])?;
        on.step(find_alpha, j)?;
        on.sweep(advance, [p, q], [x, r])?;
        let z = on.precondition(r, z)?;
        if *form == CgForm::Flexible {
            on.sweep(dots_flexible, [r, z, q], [])?;
            on.step(find_beta_flexible, j)?;
        } else {
            on.sweep(dots, [r, z], [])?;
            on.step(find_beta, j)?;
        }
        on.sweep(direction, [z], [p])
    }
}

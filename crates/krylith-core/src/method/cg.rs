//! Preconditioned conjugate gradients, for symmetric definite A and P (Hestenes and Stiefel 1952; Saad 2003,
//! Alg. 9.1).
//!
//! Memory traffic of an iteration, for vectors of N numbers. Each iteration computes one product and applies
//! P once. The passes over vectors are as follows.
//!
//! `textbook`, 12 N, or 10 N if z = r:
//! - (p, q) with q = A p: 2 read, **reduction**;
//! - r −= α q: 2 read, 1 written;
//! - (r, r) and (r, z) with z = P⁻¹ r: 2 read, **reduction**;
//! - x += α p, p = z + β p: 3 read, 2 written.
//!
//! `flexible`, 13 N, or 10 N if z = r: the passes of `textbook`, but the third pass also sums (z, q): 3 read,
//! **reduction**.
//!
//! `one-reduction`, 13 N, or 11 N if z = r:
//! - r −= α s, x += α p, p = z + β p and s = q + β s: 6 read, 4 written;
//! - (r, r), (r, z) and (z, q) with q = A z: 3 read, **reduction**.
//!
//! `pipelined`, 18 N, or 13 N if z = r: all recurrences and sums in one pass: 10 read, 8 written,
//! **reduction**.
//!
//! If A sums (p, q) in the pass of its product, and P sums (r, r) and (r, z) in its own
//! ([`LinearOperator::apply_with_dots`](crate::operator::LinearOperator::apply_with_dots)), `textbook` moves
//! 8 N and `flexible` 11 N. These two forms update x together with the next p. So an iteration that ends a
//! batch leaves α in `pending`, and `finish` adds α p to x.
//!
//! If an application of P costs as much as many products, `textbook` sums (r, r) in the pass of r −= α q.
//! That costs one more reduction, but the last iteration ends without applying P.
//!
//! `flexible` uses β = (z, r − r₋₁)/(z₋₁, r₋₁) (Golub and Ye 1999; Notay 2000), which keeps p conjugate to
//! the last direction even if P varies. r − r₋₁ is −α q, so no further vector is stored. For a fixed
//! symmetric P this β is (r, z − z₋₁)/ρ₋₁. `one-reduction` (Chronopoulos and Gear 1989) computes s = A p by
//! recurrence. It stores one more vector, and its residual drifts sooner.
//!
//! `pipelined` (Ghysels and Vanroose 2014, Alg. 4) computes all of z = P⁻¹ r, w = A z, s = A p, q = P⁻¹ s and
//! v = A q by recurrence. So its single reduction overlaps with m = P⁻¹ w and n = A m of the next iteration.
//! This pays if a reduction takes about as long as a product and an application of P, as on many ranks. On a
//! GPU sums are in stream order, and nothing overlaps. The iteration that ends the solve wastes one product.
//!
//! Rounding errors grow with the number of recurrences. So the residuals of `one-reduction` and `pipelined`
//! drift away from b − A x, soonest in `pipelined` (Cools et al. 2018). When such a residual meets the
//! tolerance, the driver computes the true residual, and the recurrence restarts from it. Drift can also
//! change the sign of (p, A p), which is computed by a recurrence too. The first sign change counts as a
//! restart, not as a breakdown. So does each further sign change if the true residual has halved since the
//! last one.
//!
//! A and P may be negative definite: (p, A p) and (r, P⁻¹ r) must keep their initial signs. If one changes
//! its sign, the matrix or the preconditioner is not definite. The solve then ends in a breakdown that names
//! the indefinite one.

mod flexible;
mod one_reduction;
mod pipelined;
mod textbook;

use super::krylov::{Krylov, Recurrence};
use super::work::Work;
use crate::operator::Dots;
use crate::space::{Reason, Space};
use crate::{Result, steps, sweeps};
use flexible::Flexible;
use one_reduction::OneReduction;
use pipelined::Pipelined;
use textbook::Textbook;

steps! {
    /// The scalars of CG.
    pub struct Scalars {
        /// The latest sums (r, z) and (z, q), and (p, A p).
        rho_next, zq, pq,
        /// (r, z) and (z, A z) of the current iteration, and (r, z) of the previous iteration (0 after a
        /// restart).
        rho, delta, rho_old, alpha, beta,
        /// α if the batch ended before x += α p; else 0.
        pending,
        /// Norm of the true residual before the iterations in which the recurrence of (p, A p) last changed
        /// its sign; 0 if it never did.
        excused,
        /// The signs ±1 of (p, A p) and of (r, z); 0 if not known yet.
        sign_a, sign_p
    }
    /// The array of these scalars.
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
            s.pending = 0.0;
        }
        fn end_iteration(s; history) {
            s.rho = s.rho_next;
            s.delta = s.zq;
            s.norm_recurrence = sqrt(s.rr);
            s.completed += 1;
            history[at(s.completed)] = s.norm_recurrence;
            if (!(s.norm_recurrence < HUGE)) { s.reason = NOT_FINITE; }
            else if (s.norm_recurrence <= s.target) { s.reason = ESTIMATE; }
            // A full batch does not halt at its end, because the next batch needs the new p.
            if (s.reason != NONE || s.completed >= s.remaining) { s.halt = 1; s.pending = s.alpha; }
        }
    }
    /// Every step.
    pub const STEPS;
    /// After a restart there is no previous direction.
    adopt(s, _) { s.rho = s.rho_next; s.delta = s.zq; s.rho_old = 0.0; s.beta = 0.0; }
    /// Computes α = ρ/(p, q).
    find_alpha(s, _) { form_alpha(s); }
    /// Computes β = ρ/ρ₋₁ and α = ρ/(p, A p), where (p, A p) = (z, A z) − β ρ/α₋₁.
    find_alpha_beta(s, _) {
        s.pq = s.delta;
        let last = s.rho_old;
        if (last != 0.0) { s.beta = s.rho / last; s.pq = s.delta - s.beta * s.rho / s.alpha; }
        form_alpha(s);
        if (s.reason >= INDEFINITE_MATRIX && last != 0.0 && (s.excused == 0.0 || s.norm < 0.5 * s.excused)) {
            s.reason = DRIFTED;
            s.excused = s.norm;
        }
    }
    /// Ends an iteration before P is applied.
    end_early(s, _) {
        s.rho_next = s.rho;
        end_iteration(s, history);
    }
    /// Computes β = ρ/ρ₋₁ after `end_early`.
    find_beta_late(s, _) { s.beta = s.rho_next / s.rho; s.rho = s.rho_next; }
    /// β = ρ/ρ₋₁.
    find_beta(s, _) { s.beta = s.rho_next / s.rho; end_iteration(s, history); }
    /// Computes β = (z, r − r₋₁)/ρ₋₁ with r − r₋₁ = −α q.
    find_beta_flexible(s, _) { s.beta = -s.alpha * s.zq / s.rho; end_iteration(s, history); }
    /// Ends an iteration whose β is computed later.
    end(s, _) { end_iteration(s, history); }
}

sweeps! {
    /// The vector passes of this method.
    pub const SWEEPS for Scalars;
    /// p = z.
    begin_direction: () [z] [p] -> [] { p = z; }
    /// p = s = 0.
    clear_both: () [] [p, s] -> [] { p = 0.0; s = 0.0; }
    /// p = s = q = v = 0.
    clear_all: () [] [p, s, q, v] -> [] { p = 0.0; s = 0.0; q = 0.0; v = 0.0; }
    /// The sum (p, q).
    curvature: () [p, q] [] -> [pq] { pq += p * q; }
    /// r −= α q.
    reduce: (alpha) [q] [r] -> [] { r -= alpha * q; }
    /// r −= α q, with the sum (r, r).
    reduce_summed: (alpha) [q] [r] -> [rr] { r -= alpha * q; rr += r * r; }
    /// The sum (r, z).
    dot: () [r, z] [] -> [rho_next] { rho_next += r * z; }
    /// r −= α q, with the sums (r, r) and (r, z), for z = r.
    reduce_plain: (alpha) [q] [r] -> [rr, rho_next] { r -= alpha * q; rr += r * r; rho_next += r * r; }
    /// `reduce_plain`, also with the sum (z, q).
    reduce_flexible_plain: (alpha) [q] [r] -> [rr, rho_next, zq] {
        r -= alpha * q; rr += r * r; rho_next += r * r; zq += r * q;
    }
    /// The sums (r, r) and (r, z).
    dots: () [r, z] [] -> [rr, rho_next] { rr += r * r; rho_next += r * z; }
    /// The sums (r, r), (r, z) and (z, q).
    dots_flexible: () [r, z, q] [] -> [rr, rho_next, zq] { rr += r * r; rho_next += r * z; zq += z * q; }
    /// x += α p, p = z + β p.
    advance: (alpha, beta) [z] [x, p] -> [] { x += alpha * p; p = z + beta * p; }
    /// x += α p of the last iteration, if it ended the batch.
    settle: (pending) [p] [x] -> [] { x += pending * p; }
    /// p = z + β p, s = q + β s, x += α p, r −= α s.
    advance_both: (alpha, beta) [z, q] [p, s, x, r] -> [] {
        p = z + beta * p; s = q + beta * s; x += alpha * p; r -= alpha * s;
    }
    /// `advance_both` for z = r.
    advance_both_plain: (alpha, beta) [q] [p, s, x, r] -> [] {
        p = r + beta * p; s = q + beta * s; x += alpha * p; r -= alpha * s;
    }
    /// v = n + β v, q = m + β q, s = w + β s, p = z + β p, x += α p, r −= α s, z −= α q and w −= α v, with
    /// the sums (r, r), (r, z) and (z, w).
    advance_all: (alpha, beta) [m, n] [v, q, s, p, x, r, z, w] -> [rr, rho_next, zq] {
        v = n + beta * v; q = m + beta * q; s = w + beta * s; p = z + beta * p;
        x += alpha * p; r -= alpha * s; z -= alpha * q; w -= alpha * v;
        rr += r * r; rho_next += r * z; zq += z * w;
    }
    /// `advance_all` for z = r, m = w and q = s.
    advance_all_plain: (alpha, beta) [n] [v, s, p, x, r, w] -> [rr, rho_next, zq] {
        v = n + beta * v; s = w + beta * s; p = r + beta * p;
        x += alpha * p; r -= alpha * s; w -= alpha * v;
        rr += r * r; rho_next += r * r; zq += r * w;
    }
}

/// Form of the recurrence, which determines the formula of β and the number of reductions in an iteration.
///
/// # Examples
/// ```
/// use krylith::options::CgForm;
/// assert_eq!("one-reduction".parse::<CgForm>()?, CgForm::OneReduction);
/// let options: krylith::Options = "method=cg:form=pipelined".parse()?;
/// assert_eq!(options.form, Some(CgForm::Pipelined));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CgForm {
    /// β = ρ/ρ₋₁, with two reductions.
    #[default]
    Textbook,
    /// Equal to `Textbook` in exact arithmetic, with one reduction, for many ranks.
    OneReduction,
    /// For preconditioners that vary between iterations, with two reductions.
    Flexible,
    /// One reduction, which overlaps with the next application of P and the next product, for very many
    /// ranks.
    Pipelined,
}

/// Options of [`Cg`].
///
/// # Examples
/// ```
/// use krylith::{options::CgForm, method::CgOptions};
/// assert_eq!(CgOptions::default().form, CgForm::Textbook);
/// let for_many_ranks = CgOptions { form: CgForm::Pipelined };
/// # let _ = for_many_ranks;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct CgOptions {
    /// Form of the recurrence.
    pub form: CgForm,
}

/// Conjugate gradients and their workspace: eight vectors, nine for `OneReduction`, 13 for `Pipelined`.
///
/// # Examples
/// ```
/// use krylith::device::Cpu;
/// use krylith::{Stop, Precision, matrix::Csr, method::{Cg, CgOptions}, operator::PointBlock};
/// let a = Csr::from_triplets(3, 3, &[(0, 0, 1.0), (1, 1, 2.0), (2, 2, 2.0)])?;
/// let space = Cpu::new(3, 1);
/// let operator = PointBlock::csr(&space, &a, Precision::F64)?;
/// let mut cg = Cg::new(&space, CgOptions::default())?;
/// let mut x = vec![0.0; 3];
/// let history = cg.solve(&space, &operator, None, &vec![1.0, 2.0, 4.0], &mut x, &Stop::default(), &mut ())?;
/// assert_eq!(history.iterations, 2); // as many as there are different eigenvalues
/// # Ok::<(), krylith::Error>(())
/// ```
pub type Cg<S> = Krylov<S, CgRecurrence<S>>;

/// The vectors of CG in its chosen form.
#[doc(hidden)]
pub struct CgRecurrence<S: Space>(Form<S>);

enum Form<S: Space> {
    Textbook(Textbook<S>),
    Flexible(Flexible<S>),
    OneReduction(OneReduction<S>),
    Pipelined(Pipelined<S>),
}

/// Calls a method of the chosen form.
macro_rules! form {
    ($self:ident, $form:pat => $call:expr) => {
        match &mut $self.0 {
            Form::Textbook($form) => $call,
            Form::Flexible($form) => $call,
            Form::OneReduction($form) => $call,
            Form::Pipelined($form) => $call,
        }
    };
}

impl<S: Space> Recurrence<S> for CgRecurrence<S> {
    type Options = CgOptions;
    const SCALARS: usize = Scalars::LEN;
    const SYMMETRIC: bool = true;
    const PATIENCE: usize = 3; // ‖r‖₂ is not monotone: one restart without progress decides nothing

    fn new(space: &S, CgOptions { form }: CgOptions) -> Result<Self> {
        Ok(Self(match form {
            CgForm::Textbook => Form::Textbook(Textbook::new(space)?),
            CgForm::Flexible => Form::Flexible(Flexible::new(space)?),
            CgForm::OneReduction => Form::OneReduction(OneReduction::new(space)?),
            CgForm::Pipelined => Form::Pipelined(Pipelined::new(space)?),
        }))
    }

    fn reductions(&self, iterations: usize, reason: Reason) -> usize {
        let lost = reason.is_final() || reason == Reason::NotFinite;
        match &self.0 {
            Form::Textbook(form) if form.ends_early() => {
                3 * iterations + usize::from(lost) - usize::from(iterations > 0 && reason != Reason::None)
            }
            Form::Textbook(_) | Form::Flexible(_) => 2 * iterations + usize::from(lost),
            Form::OneReduction(_) | Form::Pipelined(_) => iterations,
        }
    }

    fn restarts_by_preconditioning(&self) -> bool {
        true
    }

    fn prepare(&mut self, on: &mut Work<S>, _: Option<u64>) -> Result<()> {
        if let Form::Textbook(form) = &mut self.0 {
            form.end_early(on.costly);
        }
        Ok(())
    }

    fn residual(&mut self) -> &mut S::Vector {
        form!(self, form => form.residual())
    }

    fn restart(&mut self, on: &mut Work<S>) -> Result<()> {
        form!(self, form => form.restart(on))
    }

    fn iterate(&mut self, on: &mut Work<S>, x: &mut S::Vector, j: usize) -> Result<()> {
        form!(self, form => form.iterate(on, x, j))
    }

    fn finish(&mut self, on: &mut Work<S>, x: &mut S::Vector) -> Result<()> {
        match &self.0 {
            Form::Textbook(form) => form.finish(on, x),
            Form::Flexible(form) => form.finish(on, x),
            Form::OneReduction(_) | Form::Pipelined(_) => Ok(()),
        }
    }
}

/// Computes z = P⁻¹ r, (r, r), (r, z) and p = z, which starts both forms with two reductions.
fn begin<S: Space>(on: &mut Work<S>, r: &S::Vector, z: &mut S::Vector, p: &mut S::Vector) -> Result<()> {
    let (z, summed) = on.precondition_with_dots(r, z, Dots::XxXy(Scalars::<usize, usize>::AT.rr))?;
    if !summed {
        on.sweep(dots, [r, z], [])?;
    }
    on.step(adopt, 0)?;
    on.sweep(begin_direction, [z], [p])
}

/// Computes q = A p and α = ρ/(p, q).
fn product_and_step<S: Space>(on: &mut Work<S>, p: &S::Vector, q: &mut S::Vector, j: usize) -> Result<()> {
    if !on.multiply_with_dots(p, q, Dots::Xy(Scalars::<usize, usize>::AT.pq))? {
        on.sweep(curvature, [p, q], [])?;
    }
    on.step(find_alpha, j)
}

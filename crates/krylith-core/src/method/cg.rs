//! Preconditioned conjugate gradients, for symmetric definite A and P (Hestenes and Stiefel 1952; Saad 2003, Alg. 9.1).
//!
//! Memory traffic of an iteration, vectors of N numbers: one product, one preconditioner, and
//!
//! | pass | `textbook` | `flexible` | `one-reduction` | `pipelined` |
//! |---|---|---|---|---|
//! | (p, q), q = A p | 2 read, **reduction** | the same | | |
//! | r −= α q | 2 read, 1 written | the same | in one pass with x, p = z + β p and s = q + β s: 6 read, 4 written | in one pass with all other recurrences and the sums: 10 read, 8 written, **reduction** |
//! | (r, r), (r, z), z = P⁻¹ r | 2 read, **reduction** | with (z, q): 3 read, **reduction** | with (z, q), q = A z: 3 read, **reduction** | |
//! | x += α p, p = z + β p | 3 read, 2 written | the same | | |
//! | all | 12 N | 13 N | 13 N | 18 N |
//! | where z = r | 10 N | 10 N | 11 N | 13 N |
//!
//! Where A sums (p, q) in the pass of its product and P sums (r, r) and (r, z) in its own
//! ([`LinearOperator::apply_with_dots`](crate::operator::LinearOperator::apply_with_dots)), `textbook` moves 8 N and `flexible` 11 N.
//! In these two x waits for the next p: an iteration that ends a batch leaves α p in `pending`, which `finish` adds.
//!
//! Where P is worth many products, `textbook` sums (r, r) in the pass of r −= α q, a reduction more, so that the last iteration ends without P.
//!
//! `flexible` takes β = (z, r − r₋₁)/(z₋₁, r₋₁) (Golub and Ye 1999; Notay 2000), which keeps p conjugate to the last direction
//! where P varies too; r − r₋₁ is −α q, so nothing more is stored. For a fixed symmetric P this is (r, z − z₋₁)/ρ₋₁.
//! `one-reduction` (Chronopoulos and Gear 1989) has s = A p by recurrence: one vector more, and a residual that drifts sooner.
//!
//! `pipelined` (Ghysels and Vanroose 2014, Alg. 4) has all of z = P⁻¹ r, w = A z, s = A p, q = P⁻¹ s and v = A q by recurrence, so its
//! one reduction travels while m = P⁻¹ w and n = A m of the next iteration are computed. That gains where a reduction takes about as
//! long as a product and a preconditioner: on many ranks. On a GPU sums are in stream order and nothing overlaps. An
//! iteration that ends the solve has multiplied once for nothing.
//!
//! Rounding in the recurrences grows with their number, so the residuals of the last two forms part from b − A x, of `pipelined` the
//! soonest (Cools et al. 2018). The driver replaces them by the true one whenever they claim to be done, and the recurrence begins
//! anew from there. Drift can also turn the sign of (p, A p), which is a recurrence too: the first time, and whenever the true
//! residual has halved since the last time, that is a restart rather than a breakdown.
//!
//! A may be negative definite, and P too: (p, A p) and (r, P⁻¹ r) must keep the signs that they begin with. Where one
//! changes, the matrix or the preconditioner is not definite, and the solve ends in a breakdown that says which.

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
        /// (r, z) and (z, q) as they were summed last, (p, A p).
        rho_next, zq, pq,
        /// (r, z) and (z, A z) that the iteration works with; (r, z) before it, 0 after a restart.
        rho, delta, rho_old, alpha, beta,
        /// Share of p that x still lacks, where the batch ended before x was brought up; else 0.
        pending,
        /// The true residual's norm before the iterations in which (p, A p) by recurrence last changed its sign; 0 where it never did.
        excused,
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
            // No halt at the end of a full batch: the next one needs the new p.
            if (s.reason != NONE || s.completed >= s.remaining) { s.halt = 1; s.pending = s.alpha; }
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
        let last = s.rho_old;
        if (last != 0.0) { s.beta = s.rho / last; s.pq = s.delta - s.beta * s.rho / s.alpha; }
        form_alpha(s);
        if (s.reason >= INDEFINITE_MATRIX && last != 0.0 && (s.excused == 0.0 || s.norm < 0.5 * s.excused)) {
            s.reason = DRIFTED;
            s.excused = s.norm;
        }
    }
    /// The end of an iteration before P is applied.
    end_early(s, _) {
        s.rho_next = s.rho;
        end_iteration(s, history);
    }
    /// β = ρ/ρ₋₁ behind it.
    find_beta_late(s, _) { s.beta = s.rho_next / s.rho; s.rho = s.rho_next; }
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
    /// p = z.
    begin_direction: () [z] [p] -> [] { p = z; }
    /// p = s = 0.
    clear_both: () [] [p, s] -> [] { p = 0.0; s = 0.0; }
    /// p = s = q = v = 0.
    clear_all: () [] [p, s, q, v] -> [] { p = 0.0; s = 0.0; q = 0.0; v = 0.0; }
    /// (p, q).
    curvature: () [p, q] [] -> [pq] { pq += p * q; }
    /// r −= α q.
    reduce: (alpha) [q] [r] -> [] { r -= alpha * q; }
    /// r −= α q, (r, r).
    reduce_summed: (alpha) [q] [r] -> [rr] { r -= alpha * q; rr += r * r; }
    /// (r, z).
    dot: () [r, z] [] -> [rho_next] { rho_next += r * z; }
    /// r −= α q, (r, r), (r, z) where z = r.
    reduce_plain: (alpha) [q] [r] -> [rr, rho_next] { r -= alpha * q; rr += r * r; rho_next += r * r; }
    /// The same with (z, q).
    reduce_flexible_plain: (alpha) [q] [r] -> [rr, rho_next, zq] {
        r -= alpha * q; rr += r * r; rho_next += r * r; zq += r * q;
    }
    /// (r, r), (r, z).
    dots: () [r, z] [] -> [rr, rho_next] { rr += r * r; rho_next += r * z; }
    /// (r, r), (r, z), (z, q).
    dots_flexible: () [r, z, q] [] -> [rr, rho_next, zq] { rr += r * r; rho_next += r * z; zq += z * q; }
    /// x += α p, p = z + β p.
    advance: (alpha, beta) [z] [x, p] -> [] { x += alpha * p; p = z + beta * p; }
    /// x += α p of the last iteration, if it ended the batch.
    settle: (pending) [p] [x] -> [] { x += pending * p; }
    /// p = z + β p, s = q + β s, x += α p, r −= α s.
    advance_both: (alpha, beta) [z, q] [p, s, x, r] -> [] {
        p = z + beta * p; s = q + beta * s; x += alpha * p; r -= alpha * s;
    }
    /// The same where z = r.
    advance_both_plain: (alpha, beta) [q] [p, s, x, r] -> [] {
        p = r + beta * p; s = q + beta * s; x += alpha * p; r -= alpha * s;
    }
    /// v = n + β v, q = m + β q, s = w + β s, p = z + β p, x += α p, r −= α s, z −= α q, w −= α v; (r, r), (r, z), (z, w).
    advance_all: (alpha, beta) [m, n] [v, q, s, p, x, r, z, w] -> [rr, rho_next, zq] {
        v = n + beta * v; q = m + beta * q; s = w + beta * s; p = z + beta * p;
        x += alpha * p; r -= alpha * s; z -= alpha * q; w -= alpha * v;
        rr += r * r; rho_next += r * z; zq += z * w;
    }
    /// The same where z = r, m = w and q = s.
    advance_all_plain: (alpha, beta) [n] [v, s, p, x, r, w] -> [rr, rho_next, zq] {
        v = n + beta * v; s = w + beta * s; p = r + beta * p;
        x += alpha * p; r -= alpha * s; w -= alpha * v;
        rr += r * r; rho_next += r * r; zq += r * w;
    }
}

/// How β is formed, and how many reductions an iteration takes.
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
    /// β = ρ/ρ₋₁; two reductions.
    #[default]
    Textbook,
    /// The same in exact arithmetic with one reduction; for many ranks.
    OneReduction,
    /// For preconditioners that vary; two reductions.
    Flexible,
    /// One reduction, on its way during the next preconditioner and product; for very many ranks.
    Pipelined,
}

/// What [`Cg`] is built with.
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

/// Conjugate gradients and their workspace of eight vectors, nine with one reduction and 13 pipelined.
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

/// The vectors of CG, and how they are worked on.
#[doc(hidden)]
pub struct CgRecurrence<S: Space>(Form<S>);

enum Form<S: Space> {
    Textbook(Textbook<S>),
    Flexible(Flexible<S>),
    OneReduction(OneReduction<S>),
    Pipelined(Pipelined<S>),
}

/// Calls a method of the form at hand.
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
    const PATIENCE: usize = 3; // ‖r‖₂ is not monotone: one restart without progress is no verdict

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

/// z = P⁻¹ r, (r, r), (r, z) and p = z: how the two forms with two reductions begin.
fn begin<S: Space>(on: &mut Work<S>, r: &S::Vector, z: &mut S::Vector, p: &mut S::Vector) -> Result<()> {
    let (z, summed) = on.precondition_with_dots(r, z, Dots::XxXy(Scalars::<usize, usize>::AT.rr))?;
    if !summed {
        on.sweep(dots, [r, z], [])?;
    }
    on.step(adopt, 0)?;
    on.sweep(begin_direction, [z], [p])
}

/// q = A p and α = ρ/(p, q).
fn product_and_step<S: Space>(on: &mut Work<S>, p: &S::Vector, q: &mut S::Vector, j: usize) -> Result<()> {
    if !on.multiply_with_dots(p, q, Dots::Xy(Scalars::<usize, usize>::AT.pq))? {
        on.sweep(curvature, [p, q], [])?;
    }
    on.step(find_alpha, j)
}

//! Preconditioned MINRES, for symmetric A, definite or not, and symmetric definite P (Paige and Saunders
//! 1975; Elman, Silvester and Wathen 2014, Alg. 4.1).
//!
//! The Lanczos process makes vectors vⱼ with A P⁻¹ V = V T, where T is tridiagonal. Rotations factorise T
//! while it grows. So x is updated along directions w with a recurrence of three terms, and no basis is
//! stored. Each x has the smallest ‖b − A x‖ in the norm of P⁻¹ over the Krylov space.
//!
//! Memory traffic of an iteration, for vectors of N numbers. Each iteration computes one product and applies
//! P once. The passes over vectors are:
//!
//! | pass | with P | z = v |
//! |---|---|---|
//! | (z, q) with q = A z | 2 read, **reduction** | 2 read, **reduction** |
//! | next v from q, v and v₋₁ | 4 read, 2 written ¹ | 3 read, 1 written, **reduction** |
//! | (r, r), (r, v), (v, v), (v, z) with z = P⁻¹ v | 3 read, **reduction** | in the pass above ² |
//! | next w from z, w and w₋₁; x += τ w | 4 read, 2 written | 4 read, 2 written |
//! | all | 17 N | 12 N |
//!
//! ¹ with r of the last iteration; ² (v, v) alone.
//!
//! If A sums (z, q) in the pass of its product
//! ([`LinearOperator::apply_with_dots`](crate::operator::LinearOperator::apply_with_dots)), 2 N less are
//! moved.
//!
//! The rotations give ‖r‖ in the norm of P⁻¹, but the tolerance is for the 2-norm. With P both may differ by
//! orders of magnitude. So r itself follows from its recurrence r = s² r₋₁ − (c η/α₁) v, which costs 5 N of
//! the 17 N and one vector. The new v enters r only in the next iteration, in a pass that reads v anyway.
//! Until then ‖r‖ comes from the inner products with r₋₁, so there are two reductions and not three. Without
//! P both norms are the same, and ‖r‖ is |η|.
//!
//! P may be negative definite: (v, P⁻¹ v) must keep its initial sign. If it changes its sign, P is not
//! definite, and the solve ends in a breakdown. If A is singular on the Krylov space, the last row of the
//! factor of T vanishes, and the iteration is not taken. This happens only if b is not in the range of A.
//!
//! Vectors of successive iterations swap their places instead of being copied. So a recorded batch has an
//! even number of iterations.

use super::krylov::{Krylov, Recurrence};
use super::work::Work;
use crate::operator::Dots;
use crate::space::{Reason, Space};
use crate::{Result, steps, sweeps};

/// Size, relative to the largest entries of T, below which an entry consists of rounding errors.
const VANISHES: f64 = 1e-14;

steps! {
    /// The scalars of MINRES.
    pub struct Scalars {
        /// The latest sums (r, v), (v, v) and (v, z), which follow (r, r).
        rv, vv, vz,
        /// The sum (z, A z).
        zq,
        /// (v, z) of the current v, its sign ±1 (0 if not known yet), γ = √|(v, z)|, and sign/γ.
        rho, sign, gamma, inverse,
        /// γ/γ₋₁; 0 after a restart.
        ratio,
        /// The last two rotations, and the norm of the residual in the norm of P⁻¹, with a sign.
        c, c_old, sn, sn_old, eta,
        /// Largest square of an entry of T.
        scale,
        /// Factors of z, w and w₋₁ in the next w, and of w in x.
        of_z, of_w, of_w_old, tau,
        /// Factors of r₋₁ and of v in r.
        keep, add
    }
    /// The array of these scalars.
    arrays Arrays(m) { history: m + 1 }
    constants [VANISHES];
    functions {
        fn rotate(s;) {
            let delta = s.zq / abs(s.rho);
            let mut next = s.sign * s.vz; // the square of the next γ
            let square = delta * delta + abs(next);
            if (square > s.scale) { s.scale = square; }
            if (abs(next) <= VANISHES * VANISHES * s.scale) { next = 0.0; }
            let alpha0 = s.c * delta - s.c_old * s.sn * s.gamma;
            let alpha1 = sqrt(alpha0 * alpha0 + next);
            let alpha2 = s.sn * delta + s.c_old * s.c * s.gamma;
            let alpha3 = s.sn_old * s.gamma;
            if (!(abs(s.rho) < HUGE)) {
                s.reason = NOT_FINITE;
            } else if (!(s.rho * s.sign > 0.0)) {
                s.reason = INDEFINITE_PRECONDITIONER;
            } else if (!(abs(s.zq) + abs(s.vz) < HUGE)) {
                s.reason = NOT_FINITE;
            } else if (next < 0.0) {
                s.reason = INDEFINITE_PRECONDITIONER;
            } else if (!(alpha1 > VANISHES * sqrt(s.scale))) {
                s.reason = INVARIANT; // x does not change: w is undefined
            }
            if (s.reason != NONE) {
                s.halt = 1;
            } else {
                s.c_old = s.c;
                s.sn_old = s.sn;
                s.c = alpha0 / alpha1;
                s.sn = sqrt(next) / alpha1;
                s.of_z = s.inverse / alpha1;
                s.of_w = alpha2 / alpha1;
                s.of_w_old = alpha3 / alpha1;
                s.tau = s.c * s.eta;
                s.keep = s.sn * s.sn;
                s.add = -s.tau / alpha1;
                s.eta *= -s.sn;
                s.ratio = sqrt(next) / s.gamma;
                s.gamma = sqrt(next);
                s.rho = s.sign * next;
                s.inverse = s.sign / s.gamma;
            }
        }
        fn count(s; history) {
            s.completed += 1;
            history[at(s.completed)] = s.norm_recurrence;
            if (!(s.norm_recurrence < HUGE)) { s.reason = NOT_FINITE; }
            else if (s.norm_recurrence <= s.target || s.gamma == 0.0) { s.reason = ESTIMATE; }
        }
    }
    /// Every step.
    pub const STEPS;
    /// Starts the Lanczos process: η = γ, and the rotations before the first are the identity.
    adopt(s, _) {
        s.rho = s.vz;
        if (s.sign == 0.0) { s.sign = s.rho / abs(s.rho); }
        s.gamma = sqrt(abs(s.rho));
        s.inverse = s.sign / s.gamma;
        s.ratio = 0.0;
        s.c = 1.0;
        s.c_old = 1.0;
        s.sn = 0.0;
        s.sn_old = 0.0;
        s.eta = s.gamma;
        s.keep = 1.0;
        s.add = 0.0;
    }
    /// Computes the next rotation and the factors of the next w and r. ‖r‖ is |η|.
    find_rotation_plain(s, _) {
        rotate(s);
        if (s.halt != 0) { return; }
        s.norm_recurrence = abs(s.eta);
        count(s, history);
    }
    /// Does the same, but computes ‖r‖ by (r, r), (r, v) and (v, v) of the last r and the new v.
    find_rotation(s, _) {
        rotate(s);
        if (s.halt != 0) { return; }
        let rr = s.keep * s.keep * s.rr + 2.0 * s.keep * s.add * s.rv + s.add * s.add * s.vv;
        s.norm_recurrence = 0.0;
        if (!(rr <= 0.0)) { s.norm_recurrence = sqrt(rr); }
        count(s, history);
    }
    /// Ends the iteration, whose x is complete. Halts if no iteration is left.
    end(s, _) { if (s.reason != NONE || s.completed >= s.limit) { s.halt = 1; } }
}

sweeps! {
    /// The vector passes of this method.
    pub const SWEEPS for Scalars;
    /// v = r, v₋₁ = w = w₋₁ = 0.
    begin: () [r] [v, v_old, w, w_old] -> [] { v = r; v_old = 0.0; w = 0.0; w_old = 0.0; }
    /// The sum (z, q).
    curvature: () [z, q] [] -> [zq] { zq += z * q; }
    /// The next v, in place of v₋₁, and r of the last iteration.
    extend: (inverse, zq, rho, ratio, keep, add) [q, v] [v_old, r] -> [] {
        let slope = zq / rho;
        v_old = inverse * (q - slope * v) - ratio * v_old; r = keep * r + add * v;
    }
    /// The next v, in place of v₋₁, with the sum (v, v), for z = v.
    extend_plain: (inverse, zq, rho, ratio) [q, v] [v_old] -> [vz] {
        let slope = zq / rho;
        v_old = inverse * (q - slope * v) - ratio * v_old; vz += v_old * v_old;
    }
    /// The sums (r, r), (r, v), (v, v) and (v, z).
    dots: () [r, v, z] [] -> [rr, rv, vv, vz] { rr += r * r; rv += r * v; vv += v * v; vz += v * z; }
    /// The sum (v, z).
    dot: () [v, z] [] -> [vz] { vz += v * z; }
    /// The next w, in place of w₋₁, and x += τ w.
    advance: (of_z, of_w, of_w_old, tau) [z, w] [w_old, x] -> [] {
        w_old = of_z * z - of_w * w - of_w_old * w_old; x += tau * w_old;
    }
}

/// MINRES and its workspace of eleven vectors. An iteration computes one product.
///
/// # Examples
/// ```
/// use krylith::device::Cpu;
/// use krylith::{Outcome, Precision, Stop, matrix::Csr, method::Minres, operator::PointBlock};
/// // A saddle point, whose eigenvalues have both signs.
/// let a = Csr::from_triplets(3, 3, &[(0, 0, 2.0), (1, 1, 2.0), (0, 2, 1.0), (2, 0, 1.0)])?;
/// let space = Cpu::new(3, 1);
/// let operator = PointBlock::csr(&space, &a, Precision::F64)?;
/// let mut minres = Minres::new(&space, ())?;
/// let mut x = vec![0.0; 3];
/// let b = vec![3.0, 2.0, 1.0];
/// let history = minres.solve(&space, &operator, None, &b, &mut x, &Stop::default(), &mut ())?;
/// assert_eq!(history.outcome, Outcome::Converged);
/// assert!(x.iter().all(|x| (x - 1.0).abs() < 1e-5));
/// # Ok::<(), krylith::Error>(())
/// ```
pub type Minres<S> = Krylov<S, MinresRecurrence<S>>;

/// The vectors of MINRES. Those of the current and of the last iteration swap their places; so do z and q = A
/// z.
#[doc(hidden)]
pub struct MinresRecurrence<S: Space> {
    r: S::Vector,
    v: [S::Vector; 2],
    z: [S::Vector; 2],
    w: [S::Vector; 2],
}

/// The two vectors in the order of iteration j.
fn in_turn<V>([one, other]: &mut [V; 2], j: usize) -> [&mut V; 2] {
    if j.is_multiple_of(2) { [one, other] } else { [other, one] }
}

impl<S: Space> Recurrence<S> for MinresRecurrence<S> {
    type Options = ();
    const SCALARS: usize = Scalars::LEN;
    const SYMMETRIC: bool = true;
    const PATIENCE: usize = 3; // ‖r‖₂ is not monotone: one restart without progress decides nothing
    const PERIOD: usize = 2;

    fn new(space: &S, (): ()) -> Result<Self> {
        let two = || -> Result<_> { Ok([space.vector()?, space.vector()?]) };
        Ok(Self { r: space.vector()?, v: two()?, z: two()?, w: two()? })
    }

    fn reductions(&self, iterations: usize, reason: Reason) -> usize {
        // The step detects these after both reductions of an iteration that does not count.
        let lost = reason.is_final() || matches!(reason, Reason::NotFinite | Reason::Invariant);
        2 * (iterations + usize::from(lost))
    }

    fn restarts_by_preconditioning(&self) -> bool {
        true
    }

    fn residual(&mut self) -> &mut S::Vector {
        &mut self.r
    }

    fn restart(&mut self, on: &mut Work<S>) -> Result<()> {
        let Self { r, v: [v, v_old], z: [z, _], w: [w, w_old] } = self;
        on.sweep(begin, [r], [v, v_old, w, w_old])?;
        let z = on.precondition(v, z)?;
        on.sweep(dot, [v, z], [])?;
        on.step(adopt, 0)
    }

    fn iterate(&mut self, on: &mut Work<S>, x: &mut S::Vector, j: usize) -> Result<()> {
        let Self { r, v, z, w } = self;
        let ([v, v_next], [z, q], [w, w_next]) = (in_turn(v, j), in_turn(z, j), in_turn(w, j));
        let preconditioned = on.preconditioned();
        let z = if preconditioned { z } else { &*v };
        if !on.multiply_with_dots(z, q, Dots::Xy(Scalars::<usize, usize>::AT.zq))? {
            on.sweep(curvature, [z, q], [])?; // q = A z, δ = (z, q)/γ²
        }
        if preconditioned {
            on.sweep(extend, [q, v], [v_next, r])?;
            let z_next = on.precondition(v_next, q)?; // q is free
            on.sweep(dots, [r, v_next, z_next], [])?;
            on.step(find_rotation, j)?;
        } else {
            on.sweep(extend_plain, [q, v], [v_next])?;
            on.step(find_rotation_plain, j)?;
        }
        on.sweep(advance, [z, w], [w_next, x])?;
        on.step(end, j)
    }
}

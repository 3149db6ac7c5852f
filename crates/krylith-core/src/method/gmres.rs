//! Restarted GMRES with right preconditioning (Saad and Schultz 1986; Alg. 1 of Ma, Zhao, Le and Yuan, paper
//! 1 in docs/papers.md), and FGMRES (Saad 1993).
//!
//! Memory traffic of iteration j, for vectors of N numbers: one product, one application of P, and
//! * `lowsync`: the basis is read twice, w and z are read twice, q and w are written: (2j + 6) N, **one**
//!   reduction;
//! * `cgs2`: the basis is read four times: (4j + 8) N, two reductions and a norm;
//! * `mgs`: z is read and written for every column: (4j + 5) N, j + 2 reductions.
//!
//! # Delayed Gram–Schmidt (`lowsync`, the default)
//! This is DCGS2 of Bielich, Langou, Thomas, Świrydowicz, Yamazaki and Boman (2022): classical Gram–Schmidt
//! in which the second pass over a vector runs together with the first pass over the next vector. Let V be
//! the j finished columns, w the tentative column (orthogonalised once, not normalised) and z = A w, where A
//! includes the preconditioner. One reduction gives r = Vᵀw, t = Vᵀz, wᵀw, wᵀz and zᵀz. Then ρ² = wᵀw − rᵀr,
//! and the finished column is q = (w − V r)/ρ. Its product is A q = (z − V g)/ρ with g = H r, because A V = V
//! H. The next tentative column is (z − V t − q t_j)/ρ with t_j = (wᵀz − rᵀt)/ρ.
//!
//! ρ² is a difference, but cancellation is harmless: r is at rounding level unless w itself consists of
//! rounding errors. In that case the space is invariant to working precision, and the cycle ends without a
//! second reduction.
//!
//! # FGMRES
//! If the preconditioner M_j varies, each z_j = M_j⁻¹ w_j is kept in f64 as a column of Z, and x += Z y
//! replaces x += P⁻¹ V y. This needs m more vectors, and saves one application per cycle. On a GPU the
//! preconditioner writes directly to the column of Z. On a CPU each z_j is copied to it, which moves 2 N
//! more.
//!
//! The delayed pass is still valid. By the definition of the next tentative column w⁺, A z_j = V t + q t_j +
//! ρ w⁺. The delayed pass over w⁺ gives w⁺ = V⁺ r⁺ + ρ⁺ q⁺. So column j of H for z_j/ρ is (t, t_j)/ρ + r⁺,
//! with ρ⁺ below it, for any M_j. H takes these coefficients unchanged, without the g that turns A M⁻¹ w into
//! A M⁻¹ q. In exact arithmetic and with a single M, GMRES and FGMRES span the same space and find the same
//! x.
//!
//! Every cycle starts from the true residual b − A x. So a basis stored in f32, or a wrong estimate of the
//! residual, costs iterations but no accuracy.
//!
//! # Time of an iteration on a GPU
//! An iteration is three or four nodes of a graph: product, preconditioner, projection, and the update of
//! vectors, with the Hessenberg step in parallel. With 1.2 million unknowns on an H200 (b = 4, s = 2, dense
//! blocks) the product takes 0.148 ms. Projection and update take 0.090 ms, and the whole iteration 0.246 ms.
//! So the GPU hardly waits for launches or for the host. MGS with scalars on the host takes 0.935 ms
//! (`bench/runs/2026-11-21-h200`).

use super::krylov::{Krylov, Recurrence};
use super::work::Work;
use crate::space::{Phase, Precision, Reason, Space};
use crate::{Error, Result, steps, sweeps};

/// Ratio (‖w‖/‖A q‖)² below which w consists of rounding errors.
pub(super) const BREAKDOWN: f64 = 1e-28;

steps! {
    /// The scalars of GMRES.
    pub struct Scalars {
        /// Squared error of a norm that is computed by Pythagoras' theorem, relative to zᵀz.
        pythagoras,
        /// A column adds nothing to the space if its diagonal entry of R is below this share of the largest
        /// one.
        rank,
        /// Squared norm of the last product, for the breakdown test.
        scale,
        rho, tj, tt,
        /// 1 if a delayed step begins a new column, else 0.
        begun,
        /// 1 for FGMRES, where H belongs to the vectors that were preconditioned; 0 if H belongs to the
        /// finished columns.
        flexible
    }
    /// The arrays, for a basis of m columns. First come dot products: r, t, wᵀw, wᵀz and zᵀz of a delayed
    /// step, or two groups of m + 1 of a classical step. Then the Hessenberg matrix H and its factor R, by
    /// columns, and the rotations. Then the right-hand side of the least-squares problem, before and after
    /// the last rotation of each entry, and its solution. Last comes the divisor of each column of Z.
    arrays Arrays(m) {
        history: m + 1, dots: 2 * (m + 1) + 3, h: (m + 1) * m, r: (m + 1) * m, cs: m + 1, sn: m + 1, start: m + 1,
        gamma: m + 1, y: m + 1, scales: m + 1
    }
    constants [BREAKDOWN];
    functions {
        fn rotate(s, c, ld; h, r, cs, sn, start, gamma, history) {
            // Turn column c of H into column c of R: apply the earlier Givens rotations, then a new one that
            // annihilates H[c+1, c].
            let mut above = h[c * ld];
            let mut k = 0;
            while (k < c) {
                let below = h[c * ld + k + 1];
                r[c * ld + k] = cs[k] * above + sn[k] * below;
                above = cs[k] * below - sn[k] * above;
                k += 1;
            }
            let below = h[c * ld + c + 1];
            let length = sqrt(above * above + below * below);
            cs[c] = 0.0; // a zero column does not reduce the residual
            sn[c] = 1.0;
            if (length > 0.0) {
                cs[c] = above / length;
                sn[c] = below / length;
            }
            r[c * ld + c] = length;
            // γ keeps its value before this rotation in start, so that a column can be rotated again.
            gamma[c] = cs[c] * start[c];
            gamma[c + 1] = -sn[c] * start[c];
            start[c + 1] = -sn[c] * start[c];
            s.norm_recurrence = abs(sn[c] * start[c]);
            history[c + 1] = s.norm_recurrence;
        }
        fn count(s;) {
            s.completed += 1;
            s.columns += 1;
            if (s.reason == NONE && s.completed >= s.limit) { s.reason = BASIS_FULL; }
        }
    }
    /// Every step.
    pub const STEPS;
    /// Begins a cycle with γ = ‖r‖ e₁.
    open(s, _) {
        s.scale = 0.0;
        start[0] = s.norm;
        gamma[0] = s.norm;
    }
    /// Computes column j of H from one or two full Gram–Schmidt passes. `dots` has the sums of the first
    /// pass, followed by those of the second. (w, w) is in rr.
    classical(s, j) {
        let ld = m + 1;
        let mut scale = s.rr;
        let mut k = 0;
        while (k <= j) {
            h[j * ld + k] = dots[k] + dots[ld + k];
            scale += h[j * ld + k] * h[j * ld + k];
            k += 1;
        }
        s.rho = sqrt(s.rr);
        h[j * ld + j + 1] = s.rho;
        scales[j] = 1.0;
        if (!(scale < HUGE)) {
            s.reason = NOT_FINITE;
            s.halt = 1;
            return;
        }
        rotate(s, j, ld, h, r, cs, sn, start, gamma, history);
        if (s.norm_recurrence <= s.target) { s.reason = ESTIMATE; }
        if (!(s.rr > BREAKDOWN * scale)) { s.reason = INVARIANT; }
        count(s);
        if (s.reason != NONE) { s.halt = 1; }
    }
    /// Finishes column j − 1 and begins column j from one delayed reduction, in parallel with the update of
    /// the vectors.
    delayed_step(s, j) in parallel {
        let ld = m + 1;
        one!({
            let ww = dots[2 * j];
            let wz = dots[2 * j + 1];
            let mut rr = 0.0;
            let mut rt = 0.0;
            let mut tt = 0.0;
            let mut k = 0;
            while (k < j) {
                rr += dots[k] * dots[k];
                rt += dots[k] * dots[j + k];
                tt += dots[j + k] * dots[j + k];
                k += 1;
            }
            let rho2 = ww - rr;
            s.begun = 0.0;
            if (!(ww + dots[2 * j + 2] < HUGE)) {
                s.reason = NOT_FINITE;
            } else if (!(rho2 > 0.25 * ww) || !(ww > BREAKDOWN * s.scale)) {
                // w consists of rounding errors: the space is invariant to working precision, and column j −
                // 1 was its last. The norm by Pythagoras' theorem has only eight digits, so use the true
                // norm, which is known here.
                if (j > 0) { h[(j - 1) * ld + j] = sqrt(ww); }
                s.reason = INVARIANT;
            } else {
                s.begun = 1.0;
                s.rho = sqrt(rho2);
                scales[j] = s.rho;
                s.tj = (wz - rt) / s.rho;
                s.tt = tt + s.tj * s.tj;
                // The delayed pass corrects column j − 1, which is then final.
                k = 0;
                while (k < j) {
                    h[(j - 1) * ld + k] += dots[k];
                    k += 1;
                }
                if (j > 0) { h[(j - 1) * ld + j] = s.rho; }
            }
        });
        each!(i, j + 1, {
            // A q = (z − V g)/ρ with g = H r, since A V = V H. Its coefficients are (t − g)/ρ. Entries i ≤ j
            // are independent. FGMRES uses the coefficients of z/ρ itself.
            if (s.begun > 0.0) {
                let mut g = 0.0;
                let mut k = 0;
                if (i > 1) { k = i - 1; }
                if (s.flexible > 0.0) { k = j; }
                while (k < j) {
                    g += h[k * ld + i] * dots[k];
                    k += 1;
                }
                let mut t = s.tj;
                if (i < j) { t = dots[j + i]; }
                h[j * ld + i] = (t - g) / s.rho;
            }
        });
        one!({
            let zz = dots[2 * j + 2];
            if (j > 0 && s.reason != NOT_FINITE) {
                rotate(s, j - 1, ld, h, r, cs, sn, start, gamma, history);
                // With the true norm of the column the residual may already be small enough.
                if (s.begun > 0.0 && s.norm_recurrence <= s.target) {
                    s.begun = 0.0;
                    s.reason = CONFIRMED;
                }
            }
            if (s.begun > 0.0) {
                // The next norm by Pythagoras' theorem, used until the next reduction gives the true norm.
                let mut next2 = (zz - s.tt) / (s.rho * s.rho);
                if (!(next2 > 0.0)) { next2 = 0.0; }
                h[j * ld + j + 1] = sqrt(next2);
                s.scale = zz / (s.rho * s.rho);
                rotate(s, j, ld, h, r, cs, sn, start, gamma, history);
                // The norm is a difference, and its error limits how much larger the residual can be.
                let below2 = next2 + s.pythagoras * s.scale;
                let above = cs[j] * r[j * ld + j];
                let most = abs(start[j]) * sqrt(below2 / (above * above + below2));
                if (most <= s.target) { s.reason = ESTIMATE; }
                count(s);
                if (s.reason != NONE) { s.halt = flag(j) + 2; } // the vectors are still updated in this iteration
            } else {
                s.halt = 1;
            }
        });
    }
    /// Computes y = R⁻¹γ. A column whose diagonal entry vanishes adds nothing to the space. It is dropped,
    /// with all later columns.
    solve(s, _) in parallel {
        let ld = m + 1;
        one!({
            let mut n = 0;
            let mut largest = 0.0;
            while (n < at(s.columns) && abs(r[n * ld + n]) > s.rank * largest) {
                if (abs(r[n * ld + n]) > largest) { largest = abs(r[n * ld + n]); }
                y[n] = gamma[n];
                n += 1;
            }
            s.columns = flag(n);
        });
        let mut i = at(s.columns);
        while (i > 0) {
            i -= 1;
            one!({ y[i] /= r[i * ld + i]; });
            each!(k, i, { y[k] -= r[i * ld + k] * y[i]; });
        }
        each!(k, at(s.columns), { if (s.flexible > 0.0) { y[k] /= scales[k]; } });
    }
}

sweeps! {
    /// The vector passes of this method.
    pub const SWEEPS for Scalars;
    /// x += u.
    correct: () [u] [x] -> [] { x += u; }
}

/// Scheme that orthogonalises a new basis vector.
///
/// # Examples
/// ```
/// use krylith::options::Orthogonalization;
/// assert_eq!("cgs2".parse::<Orthogonalization>()?, Orthogonalization::Cgs2);
/// let options: krylith::Options = "method=gmres:orthogonalization=mgs".parse()?;
/// assert_eq!(options.orthogonalization, Some(Orthogonalization::Mgs));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Orthogonalization {
    /// Delayed classical Gram–Schmidt with re-orthogonalisation, with one reduction in an iteration. It is as
    /// stable as CGS2.
    #[default]
    Lowsync,
    /// Classical Gram–Schmidt, applied twice.
    Cgs2,
    /// Modified Gram–Schmidt.
    Mgs,
}

/// Options of [`Gmres`].
///
/// # Examples
/// ```
/// use krylith::method::GmresOptions;
/// // FGMRES(50): a preconditioner may vary, and twice as many vectors are kept.
/// let fgmres = GmresOptions { restart: 50, flexible: true, ..GmresOptions::default() };
/// assert_eq!(fgmres.basis, krylith::Precision::F64);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GmresOptions {
    /// Number m of basis vectors before a restart.
    pub restart: usize,
    /// Orthogonalisation scheme.
    pub orthogonalization: Orthogonalization,
    /// Precision in which the basis is stored.
    pub basis: Precision,
    /// True for FGMRES, which keeps the preconditioned vectors in f64, so that the preconditioner may vary
    /// between iterations.
    pub flexible: bool,
    /// True for complex coefficients: the matrix is the real form of a complex one
    /// ([`complex`](crate::method::complex)). Orthogonalisation is then `cgs2`.
    pub complex: bool,
}

impl Default for GmresOptions {
    fn default() -> Self {
        Self {
            restart: 30,
            orthogonalization: Orthogonalization::Lowsync,
            basis: Precision::F64,
            flexible: false,
            complex: false,
        }
    }
}

/// GMRES(m) and its workspace of m + 7 vectors; FGMRES(m) has 2 m + 7.
///
/// # Examples
/// ```
/// use krylith::device::Cpu;
/// use krylith::Outcome;
/// use krylith::Stop;
/// use krylith::Precision;
/// use krylith::matrix::Csr;
/// use krylith::method::{Gmres, GmresOptions};
/// use krylith::operator::PointBlock;
/// // A shift of three numbers in a ring: GMRES(2) stagnates, GMRES(3) does not.
/// let ring = Csr::from_triplets(3, 3, &[(0, 2, 1.0), (1, 0, 1.0), (2, 1, 1.0)])?;
/// let space = Cpu::new(3, 1);
/// let a = PointBlock::csr(&space, &ring, Precision::F64)?;
/// for (restart, outcome) in [(2, Outcome::Stagnated), (3, Outcome::Converged)] {
///     let mut gmres = Gmres::new(&space, GmresOptions { restart, ..GmresOptions::default() })?;
///     let (b, mut x) = (vec![1.0, 0.0, 0.0], vec![0.0; 3]);
///     let history = gmres.solve(&space, &a, None, &b, &mut x, &Stop::default(), &mut ())?;
///     assert_eq!(history.outcome, outcome);
/// }
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
    u: S::Vector,
}

impl<S: Space> GmresRecurrence<S> {
    /// Returns the basis of the last cycle, for tests of its orthogonality.
    pub fn basis(&self) -> &S::Basis {
        &self.v
    }

    /// Sets v_j = w/‖w‖, with the norm in slot `norm`.
    fn normalize(&mut self, on: &mut Work<S>, j: usize, norm: usize) -> Result<()> {
        on.space.append(&mut self.v, j, &mut self.w, on.scalars, norm)
    }
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
        Ok(Self {
            options,
            at: Arrays::at(m),
            v,
            directions,
            w: space.vector()?,
            z: space.vector()?,
            u: space.vector()?,
        })
    }

    fn cycle(&self) -> Option<usize> {
        Some(self.options.restart)
    }

    fn scalars(m: usize) -> usize {
        Arrays::at(m).len
    }

    fn write_scalars(&self, scalars: &mut [f64]) {
        // Sums are accurate to a few rounding errors. The rank threshold is eight rounding errors of the
        // basis. A column that adds less to R is lost in V y and would only make x worse.
        (scalars[Scalars::AT.pythagoras], scalars[Scalars::AT.rank]) = match self.options.basis {
            Precision::F64 => (1e-14, 1e-15),
            Precision::F32 => (1e-6, 5e-7),
        };
        scalars[Scalars::AT.flexible] = f64::from(u8::from(self.options.flexible));
    }

    fn reductions(&self, iterations: usize, reason: Reason) -> usize {
        // A step that finds a NaN, or a delayed step that finds the cycle complete, makes a reduction but
        // does not count as an iteration.
        let delayed = self.options.orthogonalization == Orthogonalization::Lowsync;
        let found = matches!(reason, Reason::Invariant | Reason::Confirmed);
        let lost = reason == Reason::NotFinite || (delayed && found);
        let steps = iterations + usize::from(lost);
        match self.options.orthogonalization {
            Orthogonalization::Lowsync => steps,
            Orthogonalization::Cgs2 => 3 * steps,
            Orthogonalization::Mgs => steps * (steps + 3) / 2,
        }
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
        let delayed = self.options.orthogonalization == Orthogonalization::Lowsync;
        if j == 0 {
            on.step(open, 0)?;
            if !delayed {
                self.normalize(on, 0, Scalars::AT.norm)?; // v₀ = r/‖r‖
            }
        }
        let Self { at, v, directions, w, z, u, .. } = self;
        match directions {
            None => on.multiply_preconditioned(w, u, z)?, // z = A P⁻¹ w
            Some(all) => on.space.with_column(all, j, |column| {
                on.multiply_preconditioned(w, column, z)?;
                if on.preconditioned() { Ok(()) } else { on.space.copy(w, column) }
            })?,
        }
        let (s, first, second) = (on.space, at.dots, at.dots + self.options.restart + 1);
        match self.options.orthogonalization {
            Orthogonalization::Lowsync => {
                s.project_pair(v, j, w, z, on.scalars, first)?;
                return s.update_pair(v, j, w, z, on.scalars, first, delayed_step);
            }
            Orthogonalization::Cgs2 => {
                s.project(v, 0..j + 1, z, on.scalars, first)?;
                s.subtract(v, 0..j + 1, z, on.scalars, first, None)?;
                s.project(v, 0..j + 1, z, on.scalars, second)?;
                s.subtract(v, 0..j + 1, z, on.scalars, second, Some(Scalars::AT.rr))?;
            }
            Orthogonalization::Mgs => {
                for k in 0..=j {
                    s.project(v, k..k + 1, z, on.scalars, first + k)?;
                    s.subtract(v, k..k + 1, z, on.scalars, first + k, (k == j).then_some(Scalars::AT.rr))?;
                }
            }
        }
        s.copy(z, w)?;
        on.step(classical, j)?;
        if j + 1 < self.options.restart { self.normalize(on, j + 1, Scalars::AT.rho) } else { Ok(()) }
    }

    /// Adds P⁻¹ V y, or Z y, to x, with the y that minimises the residual.
    fn finish(&mut self, on: &mut Work<S>, x: &mut S::Vector) -> Result<()> {
        on.step(solve, 0)?;
        if let Some(directions) = &self.directions {
            on.space.expand(directions, &mut self.z, on.scalars, self.at.y)?;
            on.space.mark(Phase::Other);
            return on.sweep(correct, [&self.z], [x]);
        }
        on.space.expand(&self.v, &mut self.z, on.scalars, self.at.y)?;
        let update = on.precondition(&self.z, &mut self.u)?;
        on.space.mark(Phase::Other);
        on.sweep(correct, [update], [x])
    }
}

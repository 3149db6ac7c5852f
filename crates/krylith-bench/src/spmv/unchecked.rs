//! CG that runs to the last iteration whatever the numbers become. It gives the time of a fixed number of
//! iterations with any matrix, not a solution.

use krylith_core::method::krylov::Recurrence;
use krylith_core::method::{Krylov, Work};
use krylith_core::operator::Dots;
use krylith_core::space::{Reason, Space};
use krylith_core::{Result, steps, sweeps};

/// The recurrence of textbook CG without checks of signs and sizes, and without a preconditioner.
pub(super) type UncheckedCg<S> = Krylov<S, Unchecked<S>>;

steps! {
    /// The scalars of CG.
    pub(super) struct Scalars {
        /// (r, r) of the newest r, and (p, A p).
        rho_next, pq,
        /// (r, r) that the present iteration uses; α and β.
        rho, alpha, beta,
        /// The multiple of p that x still lacks after the last iteration; 0 before.
        pending
    }
    /// The array of these scalars.
    arrays Arrays(m) { history: m + 1 }
    constants [];
    functions {}
    /// All steps of the recurrence.
    pub(super) const STEPS;
    /// A restart: there is no last direction.
    adopt(s, _) { s.rho = s.rho_next; s.beta = 0.0; }
    /// α = ρ/(p, q).
    find_alpha(s, _) { s.alpha = s.rho / s.pq; s.pending = 0.0; }
    /// β = ρ/ρ₋₁; a batch ends only at the iteration limit.
    find_beta(s, _) {
        s.beta = s.rho_next / s.rho;
        s.rho = s.rho_next;
        s.norm_recurrence = sqrt(s.rr);
        s.completed += 1;
        history[at(s.completed)] = s.norm_recurrence;
        if (s.completed >= s.remaining) { s.halt = 1; s.pending = s.alpha; }
    }
}

sweeps! {
    /// The vector passes.
    pub(super) const SWEEPS for Scalars;
    /// p = r, (r, r).
    begin: () [r] [p] -> [rr, rho_next] { p = r; rr += r * r; rho_next += r * r; }
    /// (p, q).
    curvature: () [p, q] [] -> [pq] { pq += p * q; }
    /// r −= α q, (r, r).
    reduce: (alpha) [q] [r] -> [rr, rho_next] { r -= alpha * q; rr += r * r; rho_next += r * r; }
    /// x += α p, p = r + β p.
    advance: (alpha, beta) [r] [x, p] -> [] { x += alpha * p; p = r + beta * p; }
    /// x += α p of the last iteration.
    settle: (pending) [p] [x] -> [] { x += pending * p; }
}

/// The vectors of this CG.
pub(super) struct Unchecked<S: Space> {
    r: S::Vector,
    p: S::Vector,
    q: S::Vector,
}

impl<S: Space> Recurrence<S> for Unchecked<S> {
    type Options = ();
    const SCALARS: usize = Scalars::LEN;
    const PATIENCE: usize = usize::MAX;

    fn new(space: &S, (): ()) -> Result<Self> {
        Ok(Self { r: space.vector()?, p: space.vector()?, q: space.vector()? })
    }

    fn reductions(&self, iterations: usize, _: Reason) -> usize {
        2 * iterations
    }

    fn residual(&mut self) -> &mut S::Vector {
        &mut self.r
    }

    fn restart(&mut self, on: &mut Work<S>) -> Result<()> {
        on.sweep(begin, [&self.r], [&mut self.p])?;
        on.step(adopt, 0)
    }

    fn iterate(&mut self, on: &mut Work<S>, x: &mut S::Vector, j: usize) -> Result<()> {
        let Self { r, p, q } = self;
        if !on.multiply_with_dots(p, q, Dots::Xy(Scalars::<usize, usize>::AT.pq))? {
            on.sweep(curvature, [p, q], [])?;
        }
        on.step(find_alpha, j)?;
        on.sweep(reduce, [q], [r])?;
        on.step(find_beta, j)?;
        on.sweep(advance, [r], [x, p])
    }

    fn finish(&mut self, on: &mut Work<S>, x: &mut S::Vector) -> Result<()> {
        on.sweep(settle, [&self.p], [x])
    }
}

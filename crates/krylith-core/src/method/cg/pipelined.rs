//! CG with one reduction, which overlaps with the next application of P and the next product (Ghysels and
//! Vanroose 2014, Alg. 4).

use super::*;

pub(super) struct Pipelined<S: Space> {
    r: S::Vector,
    z: S::Vector,
    p: S::Vector,
    /// P⁻¹ s.
    q: S::Vector,
    /// A p.
    s: S::Vector,
    /// A z.
    w: S::Vector,
    /// P⁻¹ w.
    m: S::Vector,
    /// A m.
    n: S::Vector,
    /// A q.
    v: S::Vector,
}

impl<S: Space> Pipelined<S> {
    pub fn new(space: &S) -> Result<Self> {
        let vector = || space.vector();
        let (r, z, p, q, s) = (vector()?, vector()?, vector()?, vector()?, vector()?);
        Ok(Self { r, z, p, q, s, w: vector()?, m: vector()?, n: vector()?, v: vector()? })
    }

    pub fn residual(&mut self) -> &mut S::Vector {
        &mut self.r
    }

    pub fn restart(&mut self, on: &mut Work<S>) -> Result<()> {
        let Self { r, z, p, q, s, w, v, .. } = self;
        let z = on.precondition(r, z)?;
        on.multiply(z, w)?;
        on.sweep(clear_all, [], [p, s, q, v])?;
        on.sweep_ahead(dots_flexible, [r, z, w], [])?;
        self.ahead(on)?;
        on.step(adopt, 0)
    }

    pub fn iterate(&mut self, on: &mut Work<S>, x: &mut S::Vector, j: usize) -> Result<()> {
        let Self { r, z, p, q, s, w, m, n, v } = self;
        on.step(find_alpha_beta, j)?;
        match on.preconditioned() {
            true => on.sweep_ahead(advance_all, [m, n], [v, q, s, p, x, r, z, w])?,
            false => on.sweep_ahead(advance_all_plain, [n], [v, s, p, x, r, w])?,
        }
        self.ahead(on)?;
        on.step(end, j)
    }

    /// Computes m = P⁻¹ w and n = A m while the sums of the last pass are reduced.
    fn ahead(&mut self, on: &mut Work<S>) -> Result<()> {
        let m = on.precondition(&self.w, &mut self.m)?;
        on.multiply(m, &mut self.n)?;
        on.arrive()
    }
}

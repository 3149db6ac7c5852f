//! CG with one reduction (Chronopoulos and Gear 1989): s = A p comes from a recurrence, and (p, A p) from (z,
//! A z).

use super::*;

pub(super) struct OneReduction<S: Space> {
    r: S::Vector,
    z: S::Vector,
    p: S::Vector,
    /// A z.
    q: S::Vector,
    /// A p.
    s: S::Vector,
}

impl<S: Space> OneReduction<S> {
    pub fn new(space: &S) -> Result<Self> {
        let vector = || space.vector();
        Ok(Self { r: vector()?, z: vector()?, p: vector()?, q: vector()?, s: vector()? })
    }

    pub fn residual(&mut self) -> &mut S::Vector {
        &mut self.r
    }

    pub fn restart(&mut self, on: &mut Work<S>) -> Result<()> {
        let Self { r, z, p, q, s } = self;
        let z = on.precondition(r, z)?;
        on.multiply(z, q)?;
        on.sweep(clear_both, [], [p, s])?;
        on.sweep(dots_flexible, [r, z, q], [])?;
        on.step(adopt, 0)
    }

    pub fn iterate(&mut self, on: &mut Work<S>, x: &mut S::Vector, j: usize) -> Result<()> {
        let Self { r, z, p, q, s } = self;
        on.step(find_alpha_beta, j)?;
        match on.preconditioned() {
            true => on.sweep(advance_both, [z, q], [p, s, x, r])?,
            false => on.sweep(advance_both_plain, [q], [p, s, x, r])?,
        }
        let z = on.precondition(r, z)?;
        on.multiply(z, q)?;
        on.sweep(dots_flexible, [r, z, q], [])?;
        on.step(end, j)
    }
}

//! CG for preconditioners that vary, with β = (z, r − r₋₁)/ρ₋₁ and two reductions (Golub and Ye 1999; Notay
//! 2000).

use super::*;

pub(super) struct Flexible<S: Space> {
    r: S::Vector,
    z: S::Vector,
    p: S::Vector,
    q: S::Vector,
}

impl<S: Space> Flexible<S> {
    pub fn new(space: &S) -> Result<Self> {
        let vector = || space.vector();
        Ok(Self { r: vector()?, z: vector()?, p: vector()?, q: vector()? })
    }

    pub fn residual(&mut self) -> &mut S::Vector {
        &mut self.r
    }

    pub fn restart(&mut self, on: &mut Work<S>) -> Result<()> {
        begin(on, &self.r, &mut self.z, &mut self.p)
    }

    pub fn iterate(&mut self, on: &mut Work<S>, x: &mut S::Vector, j: usize) -> Result<()> {
        let Self { r, z, p, q } = self;
        product_and_step(on, p, q, j)?;
        if !on.preconditioned() {
            on.sweep(reduce_flexible_plain, [q], [r])?;
            on.step(find_beta_flexible, j)?;
            return on.sweep(advance, [r], [x, p]);
        }
        on.sweep(reduce, [q], [r])?;
        let z = on.precondition(r, z)?;
        on.sweep(dots_flexible, [r, z, q], [])?;
        on.step(find_beta_flexible, j)?;
        on.sweep(advance, [z], [x, p])
    }

    pub fn finish(&self, on: &mut Work<S>, x: &mut S::Vector) -> Result<()> {
        on.sweep(settle, [&self.p], [x])
    }
}

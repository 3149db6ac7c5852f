//! The textbook form of CG, with β = ρ/ρ₋₁ and two reductions (Hestenes and Stiefel 1952).

use super::*;

pub(super) struct Textbook<S: Space> {
    /// True if an iteration may end before P is applied.
    early: bool,
    r: S::Vector,
    z: S::Vector,
    p: S::Vector,
    q: S::Vector,
}

impl<S: Space> Textbook<S> {
    pub fn new(space: &S) -> Result<Self> {
        let vector = || space.vector();
        Ok(Self { early: false, r: vector()?, z: vector()?, p: vector()?, q: vector()? })
    }

    pub fn ends_early(&self) -> bool {
        self.early
    }

    pub fn end_early(&mut self, early: bool) {
        self.early = early;
    }

    pub fn residual(&mut self) -> &mut S::Vector {
        &mut self.r
    }

    pub fn restart(&mut self, on: &mut Work<S>) -> Result<()> {
        begin(on, &self.r, &mut self.z, &mut self.p)
    }

    pub fn iterate(&mut self, on: &mut Work<S>, x: &mut S::Vector, j: usize) -> Result<()> {
        let Self { early, r, z, p, q } = self;
        product_and_step(on, p, q, j)?;
        if !on.preconditioned() {
            on.sweep(reduce_plain, [q], [r])?;
            on.step(find_beta, j)?;
            return on.sweep(advance, [r], [x, p]);
        }
        if *early {
            on.sweep(reduce_summed, [q], [r])?;
            on.step(end_early, j)?;
            if !on.halted_before_p()? {
                let z = on.precondition(r, z)?;
                on.sweep(dot, [r, z], [])?;
                on.step(find_beta_late, j)?;
            }
            return on.sweep(advance, [z], [x, p]);
        }
        on.sweep(reduce, [q], [r])?;
        let (z, summed) = on.precondition_with_dots(r, z, Dots::XxXy(Scalars::<usize, usize>::AT.rr))?;
        if !summed {
            on.sweep(dots, [r, z], [])?;
        }
        on.step(find_beta, j)?;
        on.sweep(advance, [z], [x, p])
    }

    pub fn finish(&self, on: &mut Work<S>, x: &mut S::Vector) -> Result<()> {
        on.sweep(settle, [&self.p], [x])
    }
}

//! A V-cycle on all fields together, smoothed by local systems: monolithic multigrid (Vanka 1986; Adler,
//! Benson, Cyr, MacLachlan and Tuminaro 2016). Interpolation P has a block for each field, so a coarse level
//! has the same fields, and its matrix PᵀAP is a saddle point again. The coarsest level is solved exactly.
//!
//! Traffic of one application on a level, with ν sweeps before and after: 2ν smoothers, 2ν products with A,
//! P and R, and 48 bytes per unknown for each product.

use super::{PatchProducts, Vanka};
use crate::Result;
use crate::operator::{LinearOperator, PointBlock, joined_key};
use crate::precond::compose::{add, residual};
use crate::precond::multilevel::Inverse;
use crate::precond::{Coarsen, SharedOperator};
use std::cell::RefCell;

/// A level with a coarser one below it.
pub(crate) struct VankaLevel<S: Coarsen> {
    /// Vectors of the level.
    pub space: S,
    pub a: SharedOperator<S>,
    pub smoother: Vanka<S>,
    /// R and P.
    pub transfer: [PointBlock<S>; 2],
    work: RefCell<Work<S>>,
}

/// A residual and a correction of a level, the right-hand side and the correction of the next, and scalars.
struct Work<S: Coarsen> {
    r: S::Vector,
    q: S::Vector,
    rhs: S::Vector,
    correction: S::Vector,
    scalars: S::Scalars,
}

impl<S: Coarsen + PatchProducts + 'static> VankaLevel<S> {
    /// Creates a level above one with vectors in `below`.
    ///
    /// # Errors
    /// Out of device memory.
    pub fn new(
        space: S,
        below: &S,
        a: SharedOperator<S>,
        smoother: Vanka<S>,
        transfer: [PointBlock<S>; 2],
    ) -> Result<Self> {
        let work = Work {
            r: space.vector()?,
            q: space.vector()?,
            rhs: below.vector()?,
            correction: below.vector()?,
            scalars: space.scalars(3)?,
        };
        Ok(Self { space, a, smoother, transfer, work: RefCell::new(work) })
    }

    /// Computes r ← x − A y.
    fn residual(&self, x: &S::Vector, y: &S::Vector, work: &mut Work<S>) -> Result<()> {
        self.a.apply(&self.space, y, &mut work.r)?;
        self.space.sweep(residual, &mut work.scalars, [], [x], [&mut work.r], [])
    }

    /// Makes `count` steps y ← y + M (x − A y).
    fn smooth(&self, x: &S::Vector, y: &mut S::Vector, count: usize, work: &mut Work<S>) -> Result<()> {
        for _ in 0..count {
            self.residual(x, y, work)?;
            self.smoother.apply(&self.space, &work.r, &mut work.q)?;
            self.space.sweep(add, &mut work.scalars, [], [&work.q], [&mut *y], [])?;
        }
        Ok(())
    }
}

/// The V-cycle.
pub(crate) struct VankaCycle<S: Coarsen> {
    pub levels: Vec<VankaLevel<S>>,
    /// Vectors of the coarsest level, and its inverse.
    pub coarsest: (S, Inverse<S>),
    /// Smoothing steps before a coarse correction, and after it.
    pub sweeps: usize,
}

impl<S: Coarsen + PatchProducts + 'static> VankaCycle<S> {
    /// Computes y ← M x on a level.
    fn descend(&self, depth: usize, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        let Some(level) = self.levels.get(depth) else {
            return self.coarsest.1.apply(&self.coarsest.0, false, &[x], &mut [y]);
        };
        let (work, on) = (&mut *level.work.borrow_mut(), &level.space);
        let below = self.levels.get(depth + 1).map_or(&self.coarsest.0, |below| &below.space);
        level.smoother.apply(on, x, y)?;
        level.smooth(x, y, self.sweeps - 1, work)?;
        level.residual(x, y, work)?;
        level.transfer[0].apply(below, &work.r, &mut work.rhs)?;
        self.descend(depth + 1, &work.rhs, &mut work.correction)?;
        level.transfer[1].apply(on, &work.correction, &mut work.q)?;
        on.sweep(add, &mut work.scalars, [], [&work.q], [&mut *y], [])?;
        level.smooth(x, y, self.sweeps, work)
    }
}

impl<S: Coarsen + PatchProducts + 'static> LinearOperator<S> for VankaCycle<S> {
    fn apply(&self, _: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        self.descend(0, x, y)
    }
    fn key(&self) -> u64 {
        let of = |level: &VankaLevel<S>| {
            joined_key([
                level.a.key(),
                level.smoother.key(),
                level.transfer[0].key(),
                level.transfer[1].key(),
            ])
        };
        joined_key(self.levels.iter().map(of).chain([self.coarsest.1.key()]))
    }
    fn bytes(&self) -> u64 {
        let of = |level: &VankaLevel<S>| {
            let step = level.a.bytes() + level.smoother.bytes() + 48 * level.space.len() as u64;
            2 * self.sweeps as u64 * step + level.transfer.iter().map(|t| t.bytes()).sum::<u64>()
        };
        self.levels.iter().map(of).sum::<u64>() + self.coarsest.1.bytes()
    }
    fn recordable(&self) -> bool {
        let of = |level: &VankaLevel<S>| level.a.recordable() && level.smoother.recordable();
        self.levels.iter().all(of) && self.coarsest.1.recordable()
    }
}

//! The first stage of constrained pressure residual preconditioners (Wallis 1983): a correction of one field.
//!
//! y = E M (W x), where W combines the rows of each cell so that the field's row is decoupled from the other
//! unknowns of the cell, E puts the field's unknowns in their places and zeros elsewhere, and M approximates the
//! inverse of W A E. The second stage is a preconditioner of the whole system, applied to the residual: `cpr(p:
//! amg) then ildu`.
//!
//! Traffic of one application, with n numbers in x and m in the field: M, W (one entry per unknown of a cell), 8 n
//! and 40 m bytes.

use super::Preconditioner;
use super::split::split_clear;
use crate::Result;
use crate::operator::{LinearOperator, PointBlock, PointBlockSum, fresh_key, joined_key};
use crate::space::Gather;
use std::cell::RefCell;

/// A correction of one field.
pub(crate) struct Cpr<S: PointBlockSum + Gather> {
    /// Vectors of the field.
    pub space: S,
    /// Numbers of the field's unknowns.
    pub entries: S::Entries,
    /// W.
    pub weights: PointBlock<S>,
    /// M.
    pub inverse: Box<dyn Preconditioner<S>>,
    /// W x and M W x.
    work: RefCell<[S::Vector; 2]>,
    scalars: RefCell<S::Scalars>,
    len: u64,
    key: u64,
}

impl<S: PointBlockSum + Gather> Cpr<S> {
    /// Creates the stage for a system whose vectors are in `whole`.
    ///
    /// # Errors
    /// Out of device memory.
    pub fn new(
        whole: &S,
        space: S,
        unknowns: &[u32],
        weights: PointBlock<S>,
        inverse: Box<dyn Preconditioner<S>>,
    ) -> Result<Self> {
        let (entries, work) = (whole.entries(unknowns)?, RefCell::new([space.vector()?, space.vector()?]));
        let (scalars, len) = (RefCell::new(whole.scalars(1)?), whole.len() as u64);
        Ok(Self { space, entries, weights, inverse, work, scalars, len, key: fresh_key() })
    }
}

impl<S: PointBlockSum + Gather> LinearOperator<S> for Cpr<S> {
    fn apply(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        let [r, p] = &mut *self.work.borrow_mut();
        self.weights.apply(&self.space, x, r)?;
        self.inverse.apply(&self.space, r, p)?;
        space.sweep(split_clear, &mut self.scalars.borrow_mut(), [], [], [&mut *y], [])?;
        space.scatter(&self.entries, p, y)
    }
    fn key(&self) -> u64 {
        joined_key([self.key, self.weights.key(), self.inverse.key()])
    }
    fn bytes(&self) -> u64 {
        self.weights.bytes() + self.inverse.bytes() + 8 * self.len + 40 * self.space.len() as u64
    }
    fn recordable(&self) -> bool {
        self.inverse.recordable() && self.weights.recordable()
    }
}

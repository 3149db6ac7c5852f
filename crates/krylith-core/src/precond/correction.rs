//! Corrections in a subspace: y = P M (R x), where M approximates the inverse of R A P.
//!
//! * The first stage of constrained pressure residual preconditioners (Wallis 1983): R combines the rows of
//!   each cell so that one field is decoupled from the other unknowns of the cell, and P puts the field's
//!   unknowns in their places, with zeros elsewhere. `cpr(p: amg) then ildu` is the whole method.
//! * Auxiliary spaces: P is a matrix of the caller and R = Pᵀ. With a discrete gradient and an interpolation
//!   of nodal vectors this is the method of Hiptmair and Xu (2007) for curl-curl systems; with the
//!   interpolation from linear to quadratic elements it is p-multigrid.
//!
//! Traffic of one application, with n numbers in x and m in the subspace: M, R, P, and 16 m bytes; 8 n more
//! if P only puts numbers in their places.

use super::Preconditioner;
use super::split::split_clear;
use crate::Result;
use crate::operator::{LinearOperator, PointBlock, PointBlockSum, fresh_key, joined_key};
use crate::space::Gather;
use std::cell::RefCell;

/// The map P from the subspace to the whole space.
pub(crate) enum Prolongation<S: PointBlockSum + Gather> {
    /// Numbers of the entries that the subspace has.
    Entries(S::Entries),
    /// A matrix.
    Matrix(PointBlock<S>),
}

/// A correction in a subspace.
pub(crate) struct Correction<S: PointBlockSum + Gather> {
    /// Vectors of the subspace.
    pub space: S,
    /// R.
    pub restriction: PointBlock<S>,
    /// M.
    pub inverse: Box<dyn Preconditioner<S>>,
    pub prolongation: Prolongation<S>,
    /// R x and M R x.
    work: RefCell<[S::Vector; 2]>,
    scalars: RefCell<S::Scalars>,
    len: u64,
    key: u64,
}

impl<S: PointBlockSum + Gather> Correction<S> {
    /// Creates the correction for a system whose vectors are in `whole`.
    ///
    /// # Errors
    /// Out of device memory.
    pub fn new(
        whole: &S,
        space: S,
        restriction: PointBlock<S>,
        inverse: Box<dyn Preconditioner<S>>,
        prolongation: Prolongation<S>,
    ) -> Result<Self> {
        let work = RefCell::new([space.vector()?, space.vector()?]);
        let (scalars, len) = (RefCell::new(whole.scalars(1)?), whole.len() as u64);
        Ok(Self { space, restriction, inverse, prolongation, work, scalars, len, key: fresh_key() })
    }
}

impl<S: PointBlockSum + Gather> LinearOperator<S> for Correction<S> {
    fn apply(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        let [r, p] = &mut *self.work.borrow_mut();
        self.restriction.apply(&self.space, x, r)?;
        self.inverse.apply(&self.space, r, p)?;
        match &self.prolongation {
            Prolongation::Matrix(matrix) => matrix.apply(space, p, y),
            Prolongation::Entries(entries) => {
                space.sweep(split_clear, &mut self.scalars.borrow_mut(), [], [], [&mut *y], [])?;
                space.scatter(entries, p, y)
            }
        }
    }
    fn has_transpose(&self) -> bool {
        self.inverse.has_transpose()
    }
    fn apply_transpose(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        let [r, p] = &mut *self.work.borrow_mut();
        match &self.prolongation {
            Prolongation::Matrix(matrix) => matrix.apply_transpose(&self.space, x, r)?,
            Prolongation::Entries(entries) => space.gather(entries, x, r)?,
        }
        self.inverse.apply_transpose(&self.space, r, p)?;
        self.restriction.apply_transpose(space, p, y)
    }
    fn key(&self) -> u64 {
        let prolongation = match &self.prolongation {
            Prolongation::Matrix(matrix) => matrix.key(),
            Prolongation::Entries(_) => 0,
        };
        joined_key([self.key, self.restriction.key(), self.inverse.key(), prolongation])
    }
    fn bytes(&self) -> u64 {
        let prolongation = match &self.prolongation {
            Prolongation::Matrix(matrix) => matrix.bytes(),
            Prolongation::Entries(_) => 8 * self.len + 20 * self.space.len() as u64,
        };
        self.restriction.bytes() + self.inverse.bytes() + prolongation + 16 * self.space.len() as u64
    }
    fn recordable(&self) -> bool {
        self.inverse.recordable() && self.restriction.recordable()
    }
}

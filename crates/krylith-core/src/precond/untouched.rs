//! A mask that keeps unknowns at their initial guess if no row reads them.
//!
//! If column j of A is empty, every x_j solves the system, and A P⁻¹ does not depend on entry j of P⁻¹'s
//! result. Without a mask, iterations would add these entries to x_j, until x_j might no longer be finite. So
//! a mask is applied after P⁻¹, and x_j stays at the initial guess. One application moves P, and 3 N numbers
//! for vectors of N numbers.

use super::Preconditioner;
use crate::matching::MatchingFound;
use crate::operator::{LinearOperator, TermValues, Terms, fresh_key};
use crate::space::{FLAGS, Space};
use crate::{Result, sweeps};
use std::cell::RefCell;
use std::ops::Range;

sweeps! {
    /// The vector pass of this preconditioner.
    pub const SWEEPS;
    /// y = 0 where the mask is 0, even if y is not finite there.
    zero_where_masked: () [mask] [y] -> [] { if (mask == 0.0) { y = 0.0; } }
}

/// Facts about a system that earlier steps of the solver found.
#[derive(Clone, Copy)]
pub(crate) struct Known<'a> {
    /// The matching of rows and columns, once an attempt has computed it for these values.
    pub matching: &'a MatchingFound,
    /// Own unknowns whose column is empty; `None` if no rank has any.
    pub untouched: Option<&'a [Range<usize>]>,
    /// Own rows of the null vectors that were found, if none were given.
    pub null: &'a [Vec<f64>],
}

/// A preconditioner, or none, whose result is set to zero at some unknowns.
pub(crate) struct Untouched<S: Space, P: LinearOperator<S>> {
    /// 0 at these unknowns, 1 elsewhere.
    mask: S::Vector,
    scalars: RefCell<S::Scalars>,
    work: RefCell<S::Vector>,
    inner: Option<P>,
    bytes: u64,
    key: u64,
}

impl<S: Space, P: LinearOperator<S>> Untouched<S, P> {
    /// Wraps `inner`; `unknowns` lists the unknowns as ranges.
    pub fn new(space: &S, unknowns: &[Range<usize>], inner: Option<P>) -> Result<Self> {
        let (mut mask, mut host) = (space.vector()?, vec![1.0; space.len()]);
        unknowns.iter().for_each(|run| host[run.clone()].fill(0.0));
        space.write(&host, &mut mask)?;
        let mut scalars = space.scalars(1)?;
        space.write_scalars(&mut scalars, 0, &[0.0], &[0; FLAGS])?;
        let bytes = 24 * space.len() as u64;
        let (scalars, work) = (RefCell::new(scalars), RefCell::new(space.vector()?));
        Ok(Self { mask, scalars, work, inner, bytes, key: fresh_key() })
    }
}

impl<S: Space, P: LinearOperator<S>> LinearOperator<S> for Untouched<S, P> {
    fn apply(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        match &self.inner {
            None => space.copy(x, y)?,
            Some(p) => p.apply(space, x, y)?,
        }
        space.sweep(zero_where_masked, &mut self.scalars.borrow_mut(), [], [&self.mask], [y], [])
    }
    fn has_transpose(&self) -> bool {
        self.inner.as_ref().is_none_or(|p| p.has_transpose())
    }
    /// y = P⁻ᵀ applied to x with zeros at the masked unknowns.
    fn apply_transpose(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        let (scalars, mut work) = (&mut *self.scalars.borrow_mut(), self.work.borrow_mut());
        let to = if self.inner.is_some() { &mut *work } else { &mut *y };
        space.copy(x, to)?;
        space.sweep(zero_where_masked, scalars, [], [&self.mask], [&mut *to], [])?;
        self.inner.as_ref().map_or(Ok(()), |p| p.apply_transpose(space, &work, y))
    }
    fn key(&self) -> u64 {
        self.key ^ self.inner.as_ref().map_or(0, |p| p.key().rotate_left(24))
    }
    fn bytes(&self) -> u64 {
        self.bytes + self.inner.as_ref().map_or(0, |p| p.bytes())
    }
    fn recordable(&self) -> bool {
        self.inner.as_ref().is_none_or(|p| p.recordable())
    }
}

impl<S: Space> Preconditioner<S> for Untouched<S, Box<dyn Preconditioner<S>>> {
    fn update_values(&mut self, space: &S, terms: &Terms, values: TermValues) -> Result<()> {
        self.inner.as_mut().map_or(Ok(()), |p| p.update_values(space, terms, values))
    }
    fn prepare_transpose(&mut self, space: &S, terms: &Terms) -> Result<()> {
        self.inner.as_mut().map_or(Ok(()), |p| p.prepare_transpose(space, terms))
    }
    fn take_events(&mut self) -> Vec<String> {
        self.inner.as_mut().map_or_else(Vec::new, |p| p.take_events())
    }
}

//! The transpose of a hierarchy. A cycle with Aᵀ has the transposed operators of the levels, and P and R
//! change places. Smoothers and workspace are those of the cycle with A.
//!
//! A step of the transposed polynomial is x ← x + D⁻ᵀ (b − Aᵀ x), with the same coefficients. A level whose
//! operator is symmetric and whose R is Pᵀ needs nothing of its own.

use super::level::Level;
use super::parts::operator;
use super::smoother::{Ends, Lane};
use super::transfers::Transfers;
use super::{Coarsen, MultilevelOptions, Transfer};
use crate::Result;
use crate::operator::{LinearOperator, PointBlock, not_prepared};
use crate::precond::Ildu;
use crate::profile::{self, SetupPart};
use std::cell::{Ref, RefCell};
use std::rc::Rc;

/// The operator of a level or its transpose.
pub(super) struct Side<'a, S: Coarsen> {
    a: Ref<'a, PointBlock<S>>,
    /// True for the transpose.
    pub turned: bool,
}

/// What a level needs for the transposed cycle.
pub(super) struct TurnedLevel<S: Coarsen> {
    /// Aᵀ; `None` if A is symmetric, or is not applied.
    product: Option<Rc<RefCell<PointBlock<S>>>>,
    /// The transfer with Rᵀ in place of P and Pᵀ in place of R, if R is not Pᵀ.
    pub transfer: Option<Transfers<S>>,
}

/// Applies an operator to a single vector as such, and to several together.
pub(super) fn together<S: Coarsen>(
    a: &(impl LinearOperator<S> + ?Sized),
    on: &S,
    x: &[&S::Vector],
    y: &mut [&mut S::Vector],
) -> Result<()> {
    match (x, y) {
        ([x], [y]) => a.apply(on, x, y),
        (x, y) => a.apply_columns(on, x, y),
    }
}

impl<'a, S: Coarsen> Side<'a, S> {
    /// Wraps the operator of a level.
    pub fn forward(a: &'a RefCell<PointBlock<S>>) -> Self {
        Self { a: a.borrow(), turned: false }
    }

    /// Returns the product as the device stores it.
    pub fn product(&self) -> &S::Product {
        self.a.product()
    }

    /// Computes y ← A x, or y ← Aᵀ x, for two vectors of each lane.
    pub fn multiply<'l, 'r>(
        &self,
        on: &S,
        lanes: &'l mut [Lane<'r, S>],
        ends: impl FnMut(&'l mut Lane<'r, S>) -> (&'l S::Vector, &'l mut S::Vector),
    ) -> Result<()> {
        let (x, mut y): Ends<S::Vector> = lanes.iter_mut().map(ends).unzip();
        together(&*self.a, on, &x, &mut y)
    }

    /// Solves with the factors, or with their transposes, for two vectors of each lane.
    pub fn factors<'l, 'r>(
        &self,
        on: &S,
        factors: &Ildu<S>,
        lanes: &'l mut [Lane<'r, S>],
        ends: impl FnMut(&'l mut Lane<'r, S>) -> (&'l S::Vector, &'l mut S::Vector),
    ) -> Result<()> {
        let (x, mut y): Ends<S::Vector> = lanes.iter_mut().map(ends).unzip();
        match self.turned {
            true => x.iter().zip(&mut y).try_for_each(|(x, y)| factors.apply_transpose(on, x, y)),
            false => together(factors, on, &x, &mut y),
        }
    }
}

impl<S: Coarsen> Level<S> {
    /// Returns A or Aᵀ.
    ///
    /// # Errors
    /// A level where only the inverse is applied; a transpose that was not laid out.
    pub(super) fn side(&self, turned: bool) -> Result<Side<'_, S>> {
        let forward = self.operator()?;
        if !turned {
            return Ok(Side::forward(forward));
        }
        let side = self.turned.as_ref().ok_or_else(not_prepared)?;
        let a = side.product.as_deref().unwrap_or(forward);
        Ok(Side { a: a.borrow(), turned })
    }

    /// Returns the transfers of the cycle, or of the transposed cycle.
    pub(super) fn transfers(&self, turned: bool) -> Option<&Transfers<S>> {
        let other = self.turned.as_ref().filter(|_| turned).and_then(|side| side.transfer.as_ref());
        other.or(self.transfer.as_ref())
    }

    /// Lays out what the transposed cycle needs, or brings it up to date with the terms. Collective if ranks
    /// share the level.
    pub(super) fn turn(&mut self, options: &MultilevelOptions, depth: usize) -> Result<()> {
        let (on, terms) = (&self.space, &self.terms);
        if let Some(inverse) = &mut self.inverse {
            inverse.prepare_transpose(on, options.precision)?;
        }
        if let Some(smoother) = &mut self.smoother {
            smoother.prepare_transpose(on)?;
        }
        let product = match &self.operator {
            Some(a) if !self.is_symmetric()? => {
                let _product = profile::begin_inside(SetupPart::Product);
                let mut a = a.borrow_mut();
                a.prepare_transpose_by(on, terms, |terms| {
                    let turned = operator(on, terms, options.precision, depth)?;
                    on.prepare_fused(turned.product()).map(|()| turned)
                })?;
                a.transposed().map(|(_, turned)| turned.clone())
            }
            _ => None,
        };
        let transfer = match &self.transfer {
            Some(transfer) if options.coarsening.kind.is_air() => {
                let Transfer { prolongation, restriction, .. } = &transfer.matrices;
                let matrices = Transfer {
                    prolongation: on.transposed(restriction)?,
                    restriction: on.transposed(prolongation)?,
                    coarse: Vec::new(),
                };
                Some(Transfers::new(on, matrices, false, terms, options.precision)?)
            }
            _ => None,
        };
        self.turned = Some(TurnedLevel { product, transfer });
        Ok(())
    }

    /// Returns the key of what only the transposed cycle uses.
    pub(super) fn turned_key(&self) -> u64 {
        let side = self.turned.as_ref();
        let product = side.and_then(|side| side.product.as_ref()).map_or(0, |a| a.key());
        product ^ side.and_then(|side| side.transfer.as_ref()).map_or(0, |t| t.key().rotate_left(8))
    }
}

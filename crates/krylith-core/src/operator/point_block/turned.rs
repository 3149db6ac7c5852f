//! The transpose of a point-block operator, and new values of both.

use super::{PointBlock, PointBlockSum};
use crate::Result;
use crate::operator::{Terms, TransposedTerms, fresh_key};
use std::cell::RefCell;
use std::rc::Rc;

/// Aᵀ of a [`PointBlock`].
pub(super) struct Turned<S: PointBlockSum> {
    terms: TransposedTerms,
    pub operator: Rc<RefCell<PointBlock<S>>>,
    /// True if A has got other values since.
    pub stale: bool,
}

impl<S: PointBlockSum> PointBlock<S> {
    /// Lays out the product with Aᵀ. `terms` are those of the operator, with its current values. Call this
    /// function again after new values or coefficients: then they are only gathered. If nothing has changed,
    /// nothing happens. Collective if the terms have a halo.
    ///
    /// # Errors
    /// Out of device memory; a rank that has ended or failed.
    ///
    /// ```
    /// use krylith::device::Cpu;
    /// use krylith::{Precision, matrix::Csr, operator::{LinearOperator, PointBlock, Terms}};
    /// let matrix = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 1.0), (1, 1, 3.0)])?;
    /// let (space, terms) = (Cpu::new(2, 1), Terms::csr(&matrix)?);
    /// let mut a = PointBlock::new(&space, &terms, Precision::F64, false)?;
    /// a.prepare_transpose(&space, &terms)?;
    /// let mut y = vec![0.0; 2];
    /// a.apply_transpose(&space, &vec![1.0, 2.0], &mut y)?;
    /// assert_eq!(y, [2.0, 7.0]);
    /// # Ok::<(), krylith::Error>(())
    /// ```
    pub fn prepare_transpose(&mut self, space: &S, terms: &Terms) -> Result<()> {
        let precision = self.precision;
        self.prepare_transpose_by(space, terms, |terms| PointBlock::new(space, terms, precision, false))
    }

    /// Does the same as [`prepare_transpose`](Self::prepare_transpose); `build` makes the operator of Aᵀ.
    pub(crate) fn prepare_transpose_by(
        &mut self,
        space: &S,
        terms: &Terms,
        build: impl FnOnce(&Terms) -> Result<Self>,
    ) -> Result<()> {
        match &mut self.transpose {
            None => {
                let turned = space.transpose(terms)?;
                let operator = Rc::new(RefCell::new(build(turned.terms())?));
                self.transpose = Some(Turned { terms: turned, operator, stale: false });
            }
            Some(Turned { terms: turned, operator, stale }) if *stale => {
                space.transpose_again(terms, turned)?;
                operator.borrow_mut().renew(space, turned.terms())?;
                *stale = false;
            }
            Some(_) => {}
        }
        Ok(())
    }

    /// Frees the operator of Aᵀ.
    pub(crate) fn drop_transpose(&mut self) {
        self.transpose = None;
    }

    /// Returns Aᵀ and its terms, once they are laid out.
    pub(crate) fn transposed(&self) -> Option<(&TransposedTerms, &Rc<RefCell<PointBlock<S>>>)> {
        self.transpose.as_ref().map(|turned| (&turned.terms, &turned.operator))
    }

    /// Sets the values and coefficients of these terms, which have the operator's patterns. New values may
    /// break the structure that was found inside the blocks. Then the product is built anew, on all ranks
    /// that share it. Collective if the terms have a halo.
    ///
    /// # Errors
    /// Values of another shape; a value that is not finite; out of device memory.
    pub(crate) fn renew(&mut self, space: &S, terms: &Terms) -> Result<()> {
        self.forget_copies();
        for (to, (c, _)) in self.coefficients.iter_mut().zip(&terms.terms) {
            to.clone_from(c);
        }
        let mut update = || -> Result<()> {
            for (t, (_, a)) in terms.terms.iter().enumerate() {
                space.update_values(&mut self.product, t, a.numbers())?;
            }
            space.update_coefficients(&mut self.product, &self.coefficients)
        };
        let broken = update().is_err();
        let anew = if terms.halo.is_some() { space.any(broken)? } else { broken };
        if anew {
            self.product = space.prepare(terms, self.precision, false)?;
            self.key = fresh_key();
        }
        Ok(())
    }

    /// Marks the product with Aᵀ as made from other values, and drops the product for several vectors.
    pub(super) fn forget_copies(&mut self) {
        self.interleaved = None;
        if let Some(turned) = &mut self.transpose {
            turned.stale = true;
        }
    }
}

//! The product with several vectors whose numbers alternate.

use super::{PointBlock, PointBlockSum};
use crate::Result;
use crate::operator::fresh_key;
use crate::space::Precision;
use std::cell::RefCell;

/// I ⊗ A as a product of its own, with the vectors that it needs.
pub(crate) struct Interleaved<S: PointBlockSum> {
    product: S::Product,
    width: usize,
    /// The vectors and their products.
    vectors: RefCell<[S::Vector; 2]>,
    key: u64,
}

impl<S: PointBlockSum> Interleaved<S> {
    /// Wraps a product with `width` columns, and two vectors of as many.
    pub fn new(product: S::Product, width: usize, vectors: [S::Vector; 2]) -> Self {
        Self { product, width, vectors: RefCell::new(vectors), key: fresh_key() }
    }

    /// Returns the number of columns.
    pub fn width(&self) -> usize {
        self.width
    }

    pub fn key(&self) -> u64 {
        self.key
    }

    /// Computes `y[k] ← A x[k]`.
    pub fn apply(&self, space: &S, x: &[&S::Vector], y: &mut [&mut S::Vector]) -> Result<()> {
        let [from, to] = &mut *self.vectors.borrow_mut();
        space.interleave(x, self.width, from)?;
        space.multiply(&self.product, from, to)?;
        space.separate(to, self.width, y)
    }
}

impl<S: PointBlockSum> PointBlock<S> {
    /// Wraps a product with alternating columns as an operator on vectors of that many columns.
    pub(crate) fn of_columns(product: S::Product) -> Self {
        let (key, precision) = (fresh_key(), Precision::F64);
        Self {
            product,
            key,
            b: None,
            coefficients: Vec::new(),
            precision,
            transpose: None,
            interleaved: None,
        }
    }

    /// Makes products with several vectors use `interleaved`, until values change.
    pub(crate) fn multiply_columns_by(&mut self, interleaved: Interleaved<S>) {
        self.interleaved = Some(interleaved);
    }
}

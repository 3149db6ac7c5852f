//! Matrices that a set-up makes from others: blocks between fields, weighted products, point blocks, and the
//! vectors that go with them.
//!
//! The functions of `host` compute them on the host's threads. A device with kernels of its own overrides
//! the methods of [`Assemble`], and leaves the results in its memory. Sums are in the same order everywhere.

mod cells;
mod cut;
pub(crate) mod host;
mod product;

pub use cells::Cells;
pub(crate) use cells::MOST_FIELDS;
pub use cut::{Numbered, Positions};
pub use product::Weight;

use crate::Result;
use crate::matrix::{Bsr, Csr, Dense, Grouping};
use crate::memory::Numbers;
use crate::space::Space;

/// A device that makes matrices from others. New values keep the pattern, and nothing is analysed for them.
pub trait Assemble: Space {
    /// What new values of a [`cut`](Self::cut) need.
    type Cut;

    /// Returns the entries of `a` in these rows and columns, as a scalar matrix. Zeros that blocks of `a`
    /// store remain.
    ///
    /// # Errors
    /// Out of device memory.
    fn cut(&self, a: &Bsr, rows: &Numbered, columns: &Numbered) -> Result<(Csr, Self::Cut)>;
    /// Takes the values of a cut from new values of the whole matrix.
    ///
    /// # Errors
    /// Out of device memory.
    fn cut_again(&self, a: &Bsr, cut: &Self::Cut, to: &mut Csr) -> Result<()>;
    /// Returns `a` with new values.
    ///
    /// # Errors
    /// Another number of values; a value that is not finite.
    fn with_values(&self, a: &Bsr, values: Numbers) -> Result<Bsr> {
        let mut new = a.clone();
        new.update_values(values)?;
        Ok(new)
    }
    /// Groups the entries of a scalar matrix into blocks.
    ///
    /// # Errors
    /// A size that does not divide the rows; out of device memory.
    fn grouped(&self, a: &Csr, block: usize) -> Result<Grouped> {
        host::grouped(a, block)
    }
    /// Takes new values of the scalar matrix.
    ///
    /// # Errors
    /// A value that is not finite; out of device memory.
    fn group_again(&self, a: &Csr, to: &mut Grouped) -> Result<()> {
        host::group_again(a, to)
    }
    /// Returns D + s C W B, with the union of the patterns. Unless it has fewer columns than rows, the result
    /// stores every diagonal entry. So own rows of a square matrix with ghosts have theirs.
    ///
    /// # Errors
    /// Out of device memory.
    fn product(&self, d: Option<&Csr>, c: &Csr, w: Weight, b: &Csr) -> Result<Csr> {
        host::product(d, c, w, b)
    }
    /// Computes the values of a [`product`](Self::product) for new values of its factors.
    ///
    /// # Errors
    /// Out of device memory.
    fn product_again(&self, d: Option<&Csr>, c: &Csr, w: Weight, b: &Csr, to: &mut Csr) -> Result<()> {
        host::product_again(d, c, w, b, to);
        Ok(())
    }
    /// Returns the diagonal of a matrix, or with `rows` the sums of absolute values of its rows, with the
    /// sign of the diagonal.
    ///
    /// # Errors
    /// Out of device memory.
    fn diagonal(&self, a: &Csr, rows: bool) -> Result<Vec<f64>> {
        Ok(host::diagonal(a, rows))
    }
    /// Returns the diagonal of D − C W B.
    ///
    /// # Errors
    /// Out of device memory.
    fn schur_diagonal(&self, d: &Csr, c: &Csr, w: &[f64], b: &Csr) -> Result<Vec<f64>> {
        Ok(host::schur_diagonal(d, c, w, b))
    }
    /// Returns true for the rows in which `a` has no nonzero off its diagonal, and `beside` has none at all.
    ///
    /// # Errors
    /// Out of device memory.
    fn alone(&self, a: &Csr, beside: Option<&Csr>) -> Result<Vec<bool>> {
        Ok(host::alone(a, beside))
    }
    /// Makes rows that are zero, or that cancel to rounding, rows of the identity.
    ///
    /// # Errors
    /// Out of device memory.
    fn fill_empty(&self, a: &mut Csr) -> Result<()> {
        host::fill_empty(a);
        Ok(())
    }
    /// Computes the weights that decouple the first unknown of each cell, as the values of `to`.
    ///
    /// # Errors
    /// Weights that are not finite; out of device memory.
    fn weigh(&self, a: &Bsr, cells: &mut Cells, to: &mut Csr) -> Result<()> {
        cells.weigh(a, to)
    }
}

/// A scalar matrix in point blocks, whose values can be renewed.
pub struct Grouped {
    pub(crate) bsr: Bsr,
    /// The map of values to blocks on the host, once it is needed.
    grouping: Option<Grouping>,
}

impl Grouped {
    /// Wraps blocks that a device made.
    #[cfg(feature = "cuda")]
    pub(crate) fn of(bsr: Bsr) -> Self {
        Self { bsr, grouping: None }
    }

    /// Returns the blocks.
    pub fn bsr(&self) -> &Bsr {
        &self.bsr
    }
}

/// Returns the inverses of numbers; those of zeros are zero.
pub(crate) fn inverted(mut numbers: Vec<f64>) -> Vec<f64> {
    numbers.iter_mut().filter(|d| **d != 0.0).for_each(|d| *d = 1.0 / *d);
    numbers
}

/// Returns the values of a system of one term.
///
/// # Errors
/// An internal error of Krylith.
pub(crate) fn values_of<'v>(term: Option<(&'v Dense, Numbers<'v>)>) -> Result<Numbers<'v>> {
    term.map(|(_, values)| values).ok_or_else(|| crate::Error::Internal("a part without values".into()))
}

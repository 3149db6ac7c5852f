//! Everything that maps a vector to a vector.

mod dia;
mod mixed;
mod point_block;
mod structure;

pub use dia::{DiagonalFormat, Diagonals};
pub use mixed::Mixed;
pub use point_block::{PointBlock, PointBlockSum, Terms};
pub use structure::Structure;

use crate::Result;
use crate::space::Space;

/// A linear map on the vectors of a space: matrices, Kronecker sums, preconditioners.
pub trait LinearOperator<S: Space> {
    /// `y ← A x`. Asynchronous on a GPU; allocates nothing.
    fn apply(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()>;

    /// The product for true residuals; the same, unless the iteration works on a rounded copy (see [`Mixed`]).
    fn apply_exact(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        self.apply(space, x, y)
    }

    /// Changes when work recorded with this operator no longer holds (other buffers, other kernels).
    ///
    /// New values in the same buffers keep the key.
    fn key(&self) -> u64;

    /// Bytes that one application must move at least.
    fn bytes(&self) -> u64;
}

impl<S: Space, T: LinearOperator<S> + ?Sized> LinearOperator<S> for Box<T> {
    fn apply(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        (**self).apply(space, x, y)
    }
    fn key(&self) -> u64 {
        (**self).key()
    }
    fn bytes(&self) -> u64 {
        (**self).bytes()
    }
}

/// Refuses vectors that a rows×columns product cannot take: `x` numbers in, `y` out.
pub(crate) fn check_lengths(rows: usize, columns: usize, x: usize, y: usize) -> Result<()> {
    if x == columns && y == rows {
        return Ok(());
    }
    Err(crate::Error::invalid(format!(
        "the operator is {rows}×{columns}; it cannot multiply {x} numbers into {y}"
    )))
}

/// A number that no other operator has.
pub(crate) fn fresh_key() -> u64 {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

//! The transpose of an operator, as an operator.

use super::{LinearOperator, no_transpose};
use crate::Result;
use crate::space::Space;

/// Bits that distinguish the key of a transpose.
const TURNED: u64 = 0x5452_414e_5350_4f53;

/// Aᵀ of an operator A that has a transpose.
///
/// # Examples
/// ```
/// use krylith::device::Cpu;
/// use krylith::{Precision, matrix::Csr, operator::{LinearOperator, Terms}, precond::BlockJacobi};
/// use krylith_core::operator::Transposed;
/// use krylith::matrix::Bsr;
/// let a = Bsr::new(2, 1, 1, vec![0, 1], vec![0], vec![1.0, 1.0, 0.0, 1.0])?;
/// let space = Cpu::new(2, 1);
/// let jacobi = BlockJacobi::new(&space, &Terms::bsr(&a), Precision::F64)?;
/// let mut y = vec![0.0; 2];
/// Transposed::of(&jacobi)?.apply(&space, &vec![1.0, 1.0], &mut y)?;
/// assert_eq!(y, [1.0, 0.0]); // the inverse is 1 −1 0 1 by rows
/// # Ok::<(), krylith::Error>(())
/// ```
pub struct Transposed<T>(T);

impl<T> Transposed<T> {
    /// Wraps an operator.
    ///
    /// # Errors
    /// The operator has no transpose.
    pub fn of<S: Space>(operator: T) -> Result<Self>
    where
        T: LinearOperator<S>,
    {
        match operator.has_transpose() {
            true => Ok(Self(operator)),
            false => Err(no_transpose("the operator")),
        }
    }
}

impl<S: Space, T: LinearOperator<S>> LinearOperator<S> for Transposed<T> {
    fn apply(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        self.0.apply_transpose(space, x, y)
    }
    fn has_transpose(&self) -> bool {
        true
    }
    fn apply_transpose(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        self.0.apply(space, x, y)
    }
    fn key(&self) -> u64 {
        self.0.key() ^ TURNED
    }
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }
    fn recordable(&self) -> bool {
        self.0.recordable()
    }
    fn sum(&self, space: &S, numbers: &mut [f64]) -> Result<()> {
        self.0.sum(space, numbers)
    }
}

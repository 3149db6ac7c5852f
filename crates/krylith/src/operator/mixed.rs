//! An operator that iterations apply in a rounded copy, and residuals as given.

use super::{Dots, LinearOperator};
use crate::Result;
use crate::space::Space;

/// A matrix stored twice: `rounded` (say in f32) inside the iteration, `exact` for residuals.
///
/// A Krylov method restarts from the true residual, so the tolerance is reached for the exact matrix while most
/// products move half the bytes.
///
/// # Examples
/// ```
/// use krylith::device::cpu::Cpu;
/// use krylith::{Store, matrix::Csr, operator::{LinearOperator, Mixed, PointBlock}, space::Space};
/// let space = Cpu::new(1, 1);
/// let a = Csr::from_triplets(1, 1, &[(0, 0, 0.1)])?;
/// let (exact, rounded) = (PointBlock::csr(&space, &a, Store::F64)?, PointBlock::csr(&space, &a, Store::F32)?);
/// let mixed = Mixed { exact: &exact, rounded: &rounded };
/// let (x, mut y) = (vec![1.0], space.vector()?);
/// mixed.apply(&space, &x, &mut y)?;
/// assert_eq!(y, [f64::from(0.1f32)]); // in iterations
/// mixed.apply_exact(&space, &x, &mut y)?;
/// assert_eq!(y, [0.1]); // in residuals
/// # Ok::<(), krylith::Error>(())
/// ```
pub struct Mixed<'a, S: Space> {
    /// What residuals are computed with.
    pub exact: &'a dyn LinearOperator<S>,
    /// What the iteration multiplies by.
    pub rounded: &'a dyn LinearOperator<S>,
}

impl<S: Space> LinearOperator<S> for Mixed<'_, S> {
    fn apply(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        self.rounded.apply(space, x, y)
    }
    fn apply_with_dots(
        &self,
        space: &S,
        x: &S::Vector,
        y: &mut S::Vector,
        scalars: &mut S::Scalars,
        dots: Dots,
    ) -> Result<bool> {
        self.rounded.apply_with_dots(space, x, y, scalars, dots)
    }
    fn apply_exact(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        self.exact.apply_exact(space, x, y)
    }
    fn residual(
        &self,
        space: &S,
        b: &S::Vector,
        x: &S::Vector,
        r: &mut S::Vector,
        m: &mut S::Vector,
    ) -> Result<bool> {
        self.exact.residual(space, b, x, r, m)
    }
    fn key(&self) -> u64 {
        self.exact.key() ^ self.rounded.key().rotate_left(7)
    }
    fn bytes(&self) -> u64 {
        self.rounded.bytes()
    }
    fn recordable(&self) -> bool {
        self.exact.recordable() && self.rounded.recordable()
    }
    fn sum(&self, space: &S, numbers: &mut [f64]) -> Result<()> {
        self.exact.sum(space, numbers)
    }
}

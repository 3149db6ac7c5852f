//! Nonlinear systems F(x) = 0 whose Jacobian is a sparse point-block matrix.

use crate::Result;
use crate::matrix::Bsr;

/// A system of nonlinear equations F(x) = 0 with as many equations as unknowns.
pub trait NonlinearSystem {
    /// The pattern of the Jacobian, with blocks of order b; its values are not looked at. It must be the same for every x.
    fn pattern(&self) -> &Bsr;
    /// f ← F(x). Numbers are those of [`Bsr`] rows: component c of node i at i·b + c.
    ///
    /// # Errors
    /// What the system cannot evaluate.
    fn residual(&mut self, x: &[f64], f: &mut [f64]) -> Result<()>;
    /// values ← ∂F/∂x at x, in the natural order of [`Bsr::values`].
    ///
    /// # Errors
    /// What the system cannot evaluate.
    fn jacobian(&mut self, x: &[f64], values: &mut [f64]) -> Result<()>;
    /// Where nodes lie, which some partitions use.
    fn coordinates(&self) -> Option<&[[f64; 3]]> {
        None
    }
}

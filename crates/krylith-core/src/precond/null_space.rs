//! Projection for singular, consistent systems: enclosed flow, free bodies, pure Neumann problems.
//!
//! The preconditioner is y = (I − N Nᵀ) P⁻¹ x, where N is an orthonormal basis of the null space of A. The
//! projection does not change the product A y, because A N = 0. It keeps corrections of the solution
//! orthogonal to N, so that iterates do not drift along N. The solution gets no component in N beyond that of
//! the initial guess. The right-hand side must be in the range of A. Otherwise GMRES ends in a breakdown.
//!
//! One application moves P, reads the null vectors and y twice, writes y once, and sums the k dot products
//! over ranks.

use crate::operator::{LinearOperator, fresh_key};
use crate::space::{FLAGS, Precision, Space};
use crate::{Error, Result};
use std::cell::RefCell;

/// A preconditioner, or none, followed by the projection that removes null vectors.
///
/// # Examples
/// ```
/// use krylith::device::Cpu;
/// use krylith::precond::BlockJacobi;
/// use krylith_core::precond::NullSpace;
/// use krylith::{Precision, matrix::Csr, operator::{LinearOperator, Terms, Space}};
/// // The pressure of two cells in a closed box is known up to a constant.
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 1.0), (0, 1, -1.0), (1, 0, -1.0), (1, 1, 1.0)])?;
/// let space = Cpu::new(2, 1);
/// let jacobi = BlockJacobi::new(&space, &Terms::csr(&a)?, Precision::F64)?;
/// let p = NullSpace::new(&space, &[vec![1.0, 1.0]], Some(jacobi))?;
/// let mut y = space.vector()?;
/// p.apply(&space, &vec![3.0, 1.0], &mut y)?;
/// assert!((y[0] + y[1]).abs() < 1e-15); // y has no constant component
/// # Ok::<(), krylith::Error>(())
/// ```
pub struct NullSpace<S: Space, P: LinearOperator<S> = Box<dyn LinearOperator<S>>> {
    basis: S::Basis,
    count: usize,
    // Dot products stay on the device with the vectors, so that nothing is copied to the host.
    scalars: RefCell<S::Scalars>,
    work: RefCell<S::Vector>,
    inner: Option<P>,
    bytes: u64,
    key: u64,
}

impl<S: Space> NullSpace<S> {
    /// Builds the projection alone.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn alone(space: &S, vectors: &[Vec<f64>]) -> Result<Self> {
        Self::new(space, vectors, None)
    }
}

impl<S: Space, P: LinearOperator<S>> NullSpace<S, P> {
    /// Orthonormalises the vectors, each of which must be as long as vectors of the space.
    ///
    /// # Errors
    /// No vector; a vector of the wrong length, not finite, zero, or linearly dependent on earlier ones.
    pub fn new(space: &S, vectors: &[Vec<f64>], inner: Option<P>) -> Result<Self> {
        let k = vectors.len();
        if k == 0 {
            return Err(Error::invalid("a null space needs at least one vector"));
        }
        let mut basis = space.basis(k, Precision::F64)?;
        let mut scalars = space.scalars(k + 2)?;
        let (mut x, mut sums, mut flags) = (space.vector()?, [0.0; 2], [0; FLAGS]);
        for (j, vector) in vectors.iter().enumerate() {
            space.write(vector, &mut x)?;
            let mut norms = [0.0; 3];
            for (pass, norm) in norms.iter_mut().enumerate() {
                // The first pass only computes the norm. Two more passes make the vector orthogonal to
                // earlier vectors.
                let columns = 0..if pass == 0 { 0 } else { j };
                if !columns.is_empty() {
                    space.project(&basis, columns.clone(), &x, &mut scalars, 0)?;
                }
                space.subtract(&basis, columns, &mut x, &mut scalars, 0, Some(k))?;
                space.read_scalars(&scalars, k, &mut sums, &mut flags)?;
                *norm = sums[0].sqrt();
            }
            if !(norms[2] > 1e-10 * norms[0]) || !norms[0].is_finite() {
                return Err(Error::invalid(format!(
                    "null vector {j} is zero, not finite or linearly dependent on earlier ones"
                )));
            }
            space.write_scalars(&mut scalars, k, &[0.0, norms[2]], &[0; FLAGS])?;
            space.append(&mut basis, j, &mut x, &mut scalars, k + 1)?;
        }
        let bytes = 8 * (2 * k as u64 + 3) * space.len() as u64;
        let (scalars, work) = (RefCell::new(scalars), RefCell::new(x));
        Ok(Self { basis, count: k, scalars, work, inner, bytes, key: fresh_key() })
    }

    /// Returns the inner preconditioner, to refresh its values.
    pub fn inner_mut(&mut self) -> Option<&mut P> {
        self.inner.as_mut()
    }
}

impl<S: Space, P: LinearOperator<S>> LinearOperator<S> for NullSpace<S, P> {
    fn apply(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        match &self.inner {
            None => space.copy(x, y)?,
            Some(p) => p.apply(space, x, y)?,
        }
        let scalars = &mut *self.scalars.borrow_mut();
        space.project(&self.basis, 0..self.count, y, scalars, 0)?;
        space.subtract(&self.basis, 0..self.count, y, scalars, 0, None)
    }
    fn has_transpose(&self) -> bool {
        self.inner.as_ref().is_none_or(|p| p.has_transpose())
    }
    /// y = P⁻ᵀ (I − N Nᵀ) x.
    fn apply_transpose(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        let scalars = &mut *self.scalars.borrow_mut();
        let mut work = self.work.borrow_mut();
        let to = if self.inner.is_some() { &mut *work } else { &mut *y };
        space.copy(x, to)?;
        space.project(&self.basis, 0..self.count, to, scalars, 0)?;
        space.subtract(&self.basis, 0..self.count, to, scalars, 0, None)?;
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

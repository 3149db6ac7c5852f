//! Products with matrices stored by diagonals.
//!
//! Ledger: 8 bytes a stored place, x and y once; no indices at all, which is the format's point.

use super::{LinearOperator, fresh_key};
use crate::matrix::Dia;
use crate::memory::Numbers;
use crate::space::Space;
use crate::{Error, Result};

/// A device that can hold and multiply matrices stored by diagonals.
pub trait DiagonalFormat: Space {
    /// The matrix on the device.
    type Diagonals;
    /// Uploads.
    fn prepare_diagonals(&self, a: &Dia) -> Result<Self::Diagonals>;
    /// New values in the order of [`Dia::values`]; the length was checked.
    fn update_diagonals(&self, to: &mut Self::Diagonals, values: Numbers) -> Result<()>;
    /// `y ← A x`; the lengths were checked.
    fn multiply_diagonals(&self, a: &Self::Diagonals, x: &Self::Vector, y: &mut Self::Vector) -> Result<()>;
}

/// A matrix stored by diagonals as an operator.
pub struct Diagonals<S: DiagonalFormat> {
    matrix: S::Diagonals,
    rows: usize,
    stored: usize,
    key: u64,
}

impl<S: DiagonalFormat> Diagonals<S> {
    /// The matrix on the device of `space`.
    ///
    /// # Errors
    /// A matrix that is not square; a device without room.
    pub fn new(space: &S, a: &Dia) -> Result<Self> {
        if a.rows() != a.columns() {
            return Err(Error::invalid(format!(
                "a {}×{} matrix; an operator by diagonals must be square",
                a.rows(),
                a.columns()
            )));
        }
        let matrix = space.prepare_diagonals(a)?;
        Ok(Self { matrix, rows: a.rows(), stored: a.values().len(), key: fresh_key() })
    }

    /// New values on the same diagonals, in the order of [`Dia::values`]; zeros where outside the matrix.
    ///
    /// Values in device memory go to the operator as they are: one that is not finite ends the solve that meets it.
    ///
    /// # Errors
    /// A wrong length, or a value on the host that is not finite.
    pub fn update_values<'v>(&mut self, space: &S, values: impl Into<Numbers<'v>>) -> Result<()> {
        let values = values.into();
        if values.len() != self.stored {
            return Err(Error::invalid(format!("{} values; {} were expected", values.len(), self.stored)));
        }
        let host = values.as_host().unwrap_or_default();
        if let Some(p) = host.iter().position(|v| !v.is_finite()) {
            let (row, column) = (p % self.rows, p / self.rows);
            return Err(Error::NotFinite { what: "new diagonals".into(), row, column, value: host[p] });
        }
        space.update_diagonals(&mut self.matrix, values)
    }
}

impl<S: DiagonalFormat> LinearOperator<S> for Diagonals<S> {
    fn apply(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        if space.len() != self.rows {
            return Err(Error::invalid(format!(
                "the matrix has {} rows and vectors {}",
                self.rows,
                space.len()
            )));
        }
        space.multiply_diagonals(&self.matrix, x, y)
    }
    fn key(&self) -> u64 {
        self.key
    }
    fn bytes(&self) -> u64 {
        8 * (self.stored + 2 * self.rows) as u64
    }
}

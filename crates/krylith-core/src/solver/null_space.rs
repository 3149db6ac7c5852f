//! Null vectors of a system. The host finds and checks them, before every solve projects them out of its
//! solution.

mod constants;

use super::OriginalSystem;
use crate::{Error, Problem, Result};
pub use constants::Constants;
pub(super) use constants::Depth;

/// Largest ‖A n‖ / ‖|A| |n|‖ at which n counts as a null vector.
const NULL: f64 = 1e-8;

impl Problem<'_> {
    /// Finds constant null vectors of A. A constant is 1 in one field of one stage, or else in all fields of
    /// a stage, and 0 elsewhere. If one process has the whole matrix, with scalar rows, it also tries other
    /// constants: of each disconnected part, of named fields, of ranges of unknowns at either end or of equal
    /// length, of every k-th unknown, and of all unknowns without a diagonal entry, such as pressures.
    /// Collective.
    ///
    /// The vectors are checked, because projecting out a constant that is not a null vector would make the
    /// system unsolvable.
    ///
    /// # Errors
    /// No constant is a null vector; a rank has ended or failed.
    ///
    /// ```
    /// use krylith::{Problem, matrix::Csr};
    /// // A path with free ends: a pure Neumann problem.
    /// let a = Csr::from_triplets(2, 2, &[(0, 0, 1.0), (0, 1, -1.0), (1, 0, -1.0), (1, 1, 1.0)])?;
    /// let problem = Problem::csr(&a)?;
    /// let constants = problem.constant_null_vectors()?;
    /// assert_eq!(constants, [[1.0, 1.0]]);
    /// let problem = problem.with_null_vectors(constants)?;
    /// # Ok::<(), krylith::Error>(())
    /// ```
    pub fn constant_null_vectors(&self) -> Result<Vec<Vec<f64>>> {
        let (original, stages) = (self.original(), self.stages());
        let width = self.block() * stages;
        let ones = |belongs: &dyn Fn(usize) -> bool| -> Vec<f64> {
            (0..self.own_len()).map(|i| f64::from(u8::from(belongs(i % width)))).collect()
        };
        let single = (0..width).map(|place| ones(&|p| p == place));
        let mut found = nulls(original, single)?;
        if found.is_empty() {
            found = nulls(original, (0..stages).map(|k| ones(&|p| p % stages == k)))?;
        }
        // Disconnected parts have constants of their own, and fields may differ from the components of
        // blocks.
        let parts = Constants::find(&self.part_of_one(), Depth::Parts, false)?;
        if parts.named && parts.vectors.len() > found.len() {
            found = parts.vectors;
        }
        if found.is_empty() {
            return Err(Error::invalid(
                "A does not map constant vectors to zero, neither of one field nor of all fields; do not \
                 request them",
            ));
        }
        Ok(found)
    }

    /// Returns an error if n is not a null vector of A. Collective.
    ///
    /// # Errors
    /// n is not a null vector, with the size of A n; a rank has ended or failed.
    pub fn check_null_vector(&self, n: &[f64]) -> Result<()> {
        let share = self.original().null_share(n)?;
        if share <= OriginalSystem::NULL {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "not a null vector of the system: ‖A n‖ is {share:.1e} of ‖|A| |n|‖, but should be zero up to \
             rounding"
        )))
    }
}

/// Selects the vectors that A maps to zero.
fn nulls(original: OriginalSystem, vectors: impl Iterator<Item = Vec<f64>>) -> Result<Vec<Vec<f64>>> {
    let mut found = Vec::new();
    for v in vectors {
        if original.null_share(&v)? <= NULL {
            found.push(v);
        }
    }
    Ok(found)
}

//! The interface between a Krylov method and the driver.

use super::Work;
use crate::Result;
use crate::space::{Reason, Space};

/// The recurrence of a Krylov method, which the driver calls.
#[doc(hidden)]
pub trait Recurrence<S: Space>: Sized {
    /// Options of the method.
    type Options: Copy;
    /// Number of consecutive restarts without progress after which a solve ends.
    const PATIENCE: usize;
    /// True if A must be symmetric, so that its rows cannot be scaled.
    const SYMMETRIC: bool = false;

    /// Allocates the vectors of the method.
    ///
    /// # Errors
    /// Invalid options; out of device memory.
    fn new(space: &S, options: Self::Options) -> Result<Self>;
    /// Returns the number of iterations of a cycle, if a batch must be a complete cycle; `None` if a batch
    /// may have any length.
    fn cycle(&self) -> Option<usize> {
        None
    }
    /// If a batch may have any length, its length is a multiple of this divisor of 8. Methods need it whose
    /// vectors swap their places from iteration to iteration.
    const PERIOD: usize = 1;
    /// Number of scalars, including those of the header. The first array after them is `history: m + 1`, with
    /// ‖r‖ after each iteration.
    const SCALARS: usize;
    /// Returns the number of numbers in scalars and arrays, for batches of m iterations.
    fn scalars(m: usize) -> usize {
        Self::SCALARS + m + 1
    }
    /// Returns true if a restart applies P.
    fn restarts_by_preconditioning(&self) -> bool {
        false
    }
    /// Analyses the operators before a solve. Equal keys mean the same operators, possibly with new values.
    /// `None` means that the operators have no key.
    ///
    /// # Errors
    /// Errors of the device.
    fn prepare(&mut self, _: &mut Work<S>, _key: Option<u64>) -> Result<()> {
        Ok(())
    }
    /// Sets the values of the method's own scalars before a solve. Scalars that it does not set are zero.
    fn write_scalars(&self, _: &mut [f64]) {}
    /// Reads the values of the scalars after a solve.
    fn read_scalars(&mut self, _: &[f64]) {}
    /// Returns a note on the last solve for the user.
    fn remark(&self) -> Option<String> {
        None
    }
    /// Returns the number of reductions of a batch that made `iterations` iterations and ended for `reason`.
    fn reductions(&self, iterations: usize, reason: Reason) -> usize;
    /// Returns the vector to which the driver writes r = b − A x before a restart.
    fn residual(&mut self) -> &mut S::Vector;
    /// Starts from r: computes the values that the first iteration needs.
    ///
    /// # Errors
    /// Errors of the device, as in the functions below.
    fn restart(&mut self, on: &mut Work<S>) -> Result<()>;
    /// Makes iteration j of the batch, with j from 0. `x` is the correction since the last restart. A scalar
    /// step writes ‖r‖ to `history[j + 1]` and counts the iteration.
    fn iterate(&mut self, on: &mut Work<S>, x: &mut S::Vector, j: usize) -> Result<()>;
    /// Updates x before the true residual is computed, in methods whose iterations do not update x.
    fn finish(&mut self, _: &mut Work<S>, _: &mut S::Vector) -> Result<()> {
        Ok(())
    }
}

//! The interface between a method and the driver.

use super::Work;
use crate::Result;
use crate::space::{Reason, Space};

/// A Krylov method as the driver sees it.
#[doc(hidden)]
pub trait Recurrence<S: Space>: Sized {
    /// Options of the method.
    type Options: Copy;
    /// Number of consecutive restarts without progress after which a solve ends.
    const PATIENCE: usize;

    /// Allocates its vectors.
    ///
    /// # Errors
    /// Invalid options; out of device memory.
    fn new(space: &S, options: Self::Options) -> Result<Self>;
    /// Number of iterations of a cycle that must be complete; `None` if a batch may have any length.
    fn cycle(&self) -> Option<usize> {
        None
    }
    /// Number of its scalars, including those of the header. The first array behind them is `history: m + 1`:
    /// ‖r‖ after each iteration.
    const SCALARS: usize;
    /// Returns how many numbers the scalars and arrays take in batches of m iterations.
    fn scalars(m: usize) -> usize {
        Self::SCALARS + m + 1
    }
    /// Returns true if a restart applies P.
    fn restarts_by_preconditioning(&self) -> bool {
        false
    }
    /// Analyses the operators before a solve. Equal keys mean the same operators, possibly with new values;
    /// `None` means that the operators cannot tell.
    ///
    /// # Errors
    /// Errors of the device.
    fn prepare(&mut self, _: &mut Work<S>, _key: Option<u64>) -> Result<()> {
        Ok(())
    }
    /// Sets the values of its own scalars before a solve; those that it leaves alone are zero.
    fn write_scalars(&self, _: &mut [f64]) {}
    /// Reads the values of its scalars after a solve.
    fn read_scalars(&mut self, _: &[f64]) {}
    /// A note on the last solve for the user.
    fn remark(&self) -> Option<String> {
        None
    }
    /// Returns the number of reductions of a batch that took `iterations` and ended for `reason`.
    fn reductions(&self, iterations: usize, reason: Reason) -> usize;
    /// Returns the vector in which the driver puts r = b − A x before a restart.
    fn residual(&mut self) -> &mut S::Vector;
    /// Starts from r: computes whatever the first iteration needs.
    ///
    /// # Errors
    /// Errors of the device, here and below.
    fn restart(&mut self, on: &mut Work<S>) -> Result<()>;
    /// Takes iteration j of the batch, with j from 0; `x` is the correction since the last restart. A step
    /// writes ‖r‖ to `history[j + 1]` and counts the iteration.
    fn iterate(&mut self, on: &mut Work<S>, x: &mut S::Vector, j: usize) -> Result<()>;
    /// Updates x to the last iteration before the true residual is computed. For methods whose iterations do
    /// not update x.
    fn finish(&mut self, _: &mut Work<S>, _: &mut S::Vector) -> Result<()> {
        Ok(())
    }
}

//! What a method gives to the driver.

use super::Work;
use crate::Result;
use crate::space::{Reason, Space};

/// A Krylov method as the driver sees it.
#[doc(hidden)]
pub trait Recurrence<S: Space>: Sized {
    /// What it is built with.
    type Options: Copy;
    /// Restarts in a row that bring no progress before a solve ends.
    const PATIENCE: usize;

    /// Allocates its vectors.
    ///
    /// # Errors
    /// Options that make no sense; a device without room.
    fn new(space: &S, options: Self::Options) -> Result<Self>;
    /// Iterations of a cycle that must be whole; `None` where a batch may be of any length.
    fn cycle(&self) -> Option<usize> {
        None
    }
    /// Its scalars, those of the header included. The first array behind them is `history: m + 1`: ‖r‖ after each iteration.
    const SCALARS: usize;
    /// Numbers that scalars and arrays take in batches of m iterations.
    fn scalars(m: usize) -> usize {
        Self::SCALARS + m + 1
    }
    /// A restart takes an application of P.
    fn restarts_by_preconditioning(&self) -> bool {
        false
    }
    /// Finds out what it must know of the operators before a solve; `key` is the same where they are the same, but for new values, and
    /// there is none where they cannot tell.
    ///
    /// # Errors
    /// What the device says.
    fn prepare(&mut self, _: &mut Work<S>, _key: Option<u64>) -> Result<()> {
        Ok(())
    }
    /// What its own scalars are before a solve; zeros where it says nothing.
    fn write_scalars(&self, _: &mut [f64]) {}
    /// Takes what its scalars are after a solve.
    fn read_scalars(&mut self, _: &[f64]) {}
    /// What is worth saying of the last solve.
    fn remark(&self) -> Option<String> {
        None
    }
    /// Reductions of a batch that took so many iterations and ended for this reason.
    fn reductions(&self, iterations: usize, reason: Reason) -> usize;
    /// Where the driver leaves r = b − A x before a restart.
    fn residual(&mut self) -> &mut S::Vector;
    /// Begins from r: whatever the first iteration needs.
    ///
    /// # Errors
    /// What the device says, here and below.
    fn restart(&mut self, on: &mut Work<S>) -> Result<()>;
    /// Iteration j of the batch, j from 0; `x` is the correction since the last restart. A step leaves ‖r‖ in `history[j + 1]` and
    /// counts the iteration.
    fn iterate(&mut self, on: &mut Work<S>, x: &mut S::Vector, j: usize) -> Result<()>;
    /// Brings x up to the last iteration, before the true residual; for methods whose iterations leave it alone.
    fn finish(&mut self, _: &mut Work<S>, _: &mut S::Vector) -> Result<()> {
        Ok(())
    }
}

//! Work beside a solver that takes no more threads than the solver does.

use super::Options;
use crate::Result;
use crate::interrupt::{self, Limits};
use crate::threads;

impl Options {
    /// Runs work before or after a solve on at most [`threads`](Self::threads) threads, such as building a
    /// matrix, reading a file or partitioning a system. A solver limits its threads itself. Functions without
    /// options use rayon's current pool, which has one thread per core unless the program installed another.
    /// If `threads` is not set, the work uses that pool too.
    ///
    /// # Errors
    /// The system refuses threads; then nothing was done.
    ///
    /// ```
    /// use krylith::{Options, Solver, matrix::Csr};
    /// let options: Options = "threads=1 device=cpu".parse()?;
    /// let a = options.within(|| Csr::from_triplets(2, 2, &[(0, 0, 2.0), (1, 1, 3.0)]))??;
    /// let mut x = [0.0; 2];
    /// assert!(Solver::new(&a, &options)?.solve(&[2.0, 3.0], &mut x)?.converged());
    /// # Ok::<(), krylith::Error>(())
    /// ```
    pub fn within<R: Send>(&self, work: impl FnOnce() -> R + Send) -> Result<R> {
        let threads = self.threads.map(|asked| asked.min(threads::cores()));
        let limits = interrupt::limits();
        let work = || {
            let _entered = limits.as_ref().map(Limits::enter);
            work()
        };
        threads::within(threads, work)
    }
}

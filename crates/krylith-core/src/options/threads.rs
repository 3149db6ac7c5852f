//! Work beside a solver that takes no more threads than the solver does.

use super::Options;
use crate::Result;
use crate::interrupt::{self, Limits};
use crate::threads;

impl Options {
    /// Does what prepares or follows a solve on at most [`threads`](Self::threads) threads, such as to make a matrix, to read a file or to cut
    /// a system: a solver sees to that itself, and what is called without options takes rayon's current pool, which is one of all cores
    /// unless the program has set another. So it does here where no number is given.
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

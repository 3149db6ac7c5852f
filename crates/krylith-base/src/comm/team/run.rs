//! Runs one closure on every rank, and returns the error that came first.

use super::{Team, TeamRank};
use crate::{Error, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

impl Team {
    /// Runs `work` on every rank of a new team, with one thread each, and returns the results by rank.
    ///
    /// An error or a panic of one rank ends the waits of all others. This call returns once every rank has
    /// ended. It cannot interrupt a rank that hangs outside the calls of its communicator.
    ///
    /// # Errors
    /// The error of the rank that failed first; for a panic an [`Error::Rank`]. Also those of [`Team::new`].
    pub fn run<T: Send>(size: usize, work: impl Fn(Arc<TeamRank>) -> Result<T> + Sync) -> Result<Vec<T>> {
        Self::run_on(Self::new(size)?, work)
    }

    /// As [`Team::run`], on the ranks of an existing team.
    ///
    /// # Errors
    /// As [`Team::run`].
    pub fn run_on<T: Send>(
        ranks: Vec<TeamRank>,
        work: impl Fn(Arc<TeamRank>) -> Result<T> + Sync,
    ) -> Result<Vec<T>> {
        let Some(shared) = ranks.first().map(|r| r.member.shared.clone()) else { return Ok(Vec::new()) };
        let results: Vec<Result<T>> = std::thread::scope(|scope| {
            let (shared, work) = (&shared, &work);
            let one = |comm: TeamRank| {
                let rank = comm.member.rank;
                let end = catch_unwind(AssertUnwindSafe(|| work(Arc::new(comm))));
                let result = end.unwrap_or_else(|panic| {
                    let what = panic.downcast_ref::<&str>().map(|s| s.to_string());
                    let what = what.or_else(|| panic.downcast_ref::<String>().cloned());
                    let message = format!("panicked: {}", what.unwrap_or_default());
                    Err(Error::Rank { rank, message, exit_code: 3, memory: false })
                });
                if let Err(e) = &result {
                    shared.fail(rank, &e.to_string());
                }
                shared.leave(rank); // a channel in `result` would keep the rank a member
                result
            };
            let threads: Vec<_> = ranks
                .into_iter()
                .map(|comm| {
                    let rank = comm.member.rank;
                    let thread = std::thread::Builder::new().name(format!("rank-{rank}"));
                    thread.spawn_scoped(scope, move || one(comm)).map_err(|e| {
                        let message = format!("the operating system refused to start its thread: {e}");
                        shared.fail(rank, &message);
                        Error::Rank { rank, message, exit_code: 3, memory: false }
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|thread| thread?.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        });
        root_cause(results, shared.failure.get().map(|f| f.0))
    }
}

/// Returns all values, or the error that caused the others. The search begins with the error of rank `first`,
/// or else of the lowest rank with an error. It goes on to the rank that an error names, if that rank has an
/// error, too.
fn root_cause<T>(mut results: Vec<Result<T>>, first: Option<usize>) -> Result<Vec<T>> {
    let failed = results.iter().position(|r| r.is_err());
    let Some(mut root) = first.filter(|&q| results[q].is_err()).or(failed) else {
        return results.into_iter().collect();
    };
    for _ in 0..results.len() {
        match &results[root] {
            Err(Error::Rank { rank, .. }) if results.get(*rank).is_some_and(|r| r.is_err()) => root = *rank,
            _ => break,
        }
    }
    results.swap_remove(root).map(|_| Vec::new())
}

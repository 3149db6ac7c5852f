//! The threads that run a solver's rayon loops. Their number is the solver's thread limit. They end with the
//! solver, except for pools of one thread, which are kept for the next solver.
//!
//! rayon uses the pool of the calling thread, or a global pool of the whole machine if that thread is in
//! none. So a solver does all its work on the threads of a [`TaskPool`]. One of them owns the device, and
//! also runs the work before and after a solve. This way `threads` bounds every loop, also in the
//! code that it calls.
//!
//! A rayon pool does not join its threads when it is dropped; this one does.

use crate::{Error, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Mutex, MutexGuard};
use std::thread::JoinHandle;

/// A pool of rayon threads.
#[doc(hidden)]
pub struct TaskPool {
    /// `Some` until the drop.
    threads: Option<Threads>,
    /// True if the drop returns the thread to [`STANDBY`].
    stands_by: bool,
}

struct Threads {
    /// `Some` until the drop.
    pool: Option<rayon::ThreadPool>,
    handles: Vec<JoinHandle<()>>,
}

/// Largest number of standby threads, idle or in use.
const MOST: usize = 8;

/// Pools of one thread, kept for the next small system: starting a thread takes longer than such a solve.
struct Standby {
    made: usize,
    idle: Vec<Threads>,
}

static STANDBY: Mutex<Standby> = Mutex::new(Standby { made: 0, idle: Vec::new() });

fn standby() -> MutexGuard<'static, Standby> {
    STANDBY.lock().unwrap_or_else(|e| e.into_inner())
}

impl TaskPool {
    /// Starts `threads` threads, at least one.
    ///
    /// # Errors
    /// The system refuses to start a thread; then none remains.
    pub fn new(threads: usize) -> Result<Self> {
        Ok(Self { threads: Some(Threads::start(threads.max(1))?), stands_by: false })
    }

    /// Takes a pool of one thread from [`STANDBY`], to which the drop returns it; starts a new one if all
    /// [`MOST`] are in use.
    ///
    /// # Errors
    /// The system refuses to start a thread.
    pub fn of_one() -> Result<Self> {
        let mut all = standby();
        let threads = match all.idle.pop() {
            Some(threads) => threads,
            None if all.made == MOST => {
                drop(all);
                return Self::new(1);
            }
            None => {
                let threads = Threads::start(1)?;
                all.made += 1;
                threads
            }
        };
        Ok(Self { threads: Some(threads), stands_by: true })
    }

    /// Number of threads.
    pub fn threads(&self) -> usize {
        self.pool().map_or(1, rayon::ThreadPool::current_num_threads)
    }

    /// Runs `work` on one of the threads, with its rayon loops on all of them, and waits. A panic is raised
    /// again here.
    pub fn install<R: Send>(&self, work: impl FnOnce() -> R + Send) -> R {
        match self.pool() {
            Some(pool) => pool.install(work),
            None => work(),
        }
    }

    /// Starts `work` on one of the threads and returns at once. The receiver gets a message when the work
    /// ends, also after a panic.
    pub fn begin(&self, work: impl FnOnce() + Send + 'static) -> Receiver<()> {
        let (tell, end) = channel();
        let work = move || {
            let _ = catch_unwind(AssertUnwindSafe(work)); // the work reports its own panics
            let _ = tell.send(()); // no receiver is left if its owner was leaked
        };
        match self.pool() {
            Some(pool) => pool.spawn(work),
            None => work(),
        }
        end
    }

    fn pool(&self) -> Option<&rayon::ThreadPool> {
        self.threads.as_ref().and_then(|threads| threads.pool.as_ref())
    }
}

impl Drop for TaskPool {
    fn drop(&mut self) {
        if let Some(threads) = self.threads.take().filter(|_| self.stands_by) {
            standby().idle.push(threads);
        }
    }
}

impl Threads {
    fn start(count: usize) -> Result<Self> {
        let mut handles = Vec::with_capacity(count);
        let start = |thread: rayon::ThreadBuilder| {
            let name = format!("krylith-task-{}", thread.index());
            handles.push(std::thread::Builder::new().name(name).spawn(|| thread.run())?);
            Ok(())
        };
        let built = rayon::ThreadPoolBuilder::new().num_threads(count).spawn_handler(start).build();
        let refused = built.as_ref().err().map(|e| refused(count, e));
        let threads = Self { pool: built.ok(), handles }; // after a failure, its drop ends the others
        refused.map_or(Ok(threads), Err)
    }
}

/// The error of a system that refuses to start so many threads.
#[doc(hidden)]
pub fn refused(threads: usize, why: &dyn std::fmt::Display) -> Error {
    Error::Device {
        device: "the host".into(),
        call: format!("start {}", crate::text::plural(threads, "thread")),
        message: format!(
            "the operating system refused ({why}); use fewer threads, or raise the process limit (ulimit -u)"
        ),
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        drop(self.pool.take()); // makes the threads end
        let here = std::thread::current().id();
        if self.handles.iter().all(|thread| thread.thread().id() != here) {
            self.handles.drain(..).for_each(|thread| drop(thread.join())); // its panic was reported
        } // else they end after this thread's current work
    }
}

/// Runs `work` with its rayon loops on at most `threads` threads. It uses the pool of this thread if that is
/// not larger, else a temporary pool. Without a number it uses the program's own pool.
///
/// # Errors
/// The system refuses to start threads; `work` has not run then.
#[doc(hidden)]
pub fn within<R: Send>(threads: Option<usize>, work: impl FnOnce() -> R + Send) -> Result<R> {
    let Some(threads) = threads else { return Ok(work()) };
    if rayon::current_thread_index().is_some() && rayon::current_num_threads() <= threads {
        return Ok(work());
    }
    let tasks = if threads <= 1 { TaskPool::of_one()? } else { TaskPool::new(threads)? };
    Ok(tasks.install(work))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rayon::prelude::*;
    use std::collections::HashSet;
    use std::thread::{ThreadId, current};

    /// The threads that loops of this one run on.
    fn seen() -> HashSet<ThreadId> {
        let pause = |_| {
            std::thread::sleep(std::time::Duration::from_micros(100));
            current().id()
        };
        (0..300).into_par_iter().map(pause).collect()
    }

    #[test]
    fn loops_stay_in_the_pool() {
        for threads in [1, 2, 3] {
            let tasks = TaskPool::new(threads).unwrap();
            assert_eq!(tasks.threads(), threads);
            let seen = tasks.install(seen);
            assert!(seen.len() <= threads && !seen.contains(&current().id()), "{seen:?}");
        }
    }

    #[test]
    fn a_job_that_lasts_has_the_other_threads() {
        for threads in [1, 2, 3] {
            let tasks = TaskPool::new(threads).unwrap();
            let (tell, told) = channel();
            let end = tasks.begin(move || {
                let all = seen();
                let _ = tell.send((all.len(), all.contains(&current().id())));
                panic!("a test of ours");
            });
            let (count, own) = told.recv().unwrap();
            assert!(own && count <= threads, "{count} of {threads}");
            end.recv().unwrap();
        }
    }

    #[test]
    fn one_thread_serves_one_after_the_other() {
        let mut all = HashSet::new();
        for _ in 0..50 {
            let tasks = TaskPool::of_one().unwrap();
            assert_eq!(tasks.threads(), 1);
            all.insert(tasks.install(|| current().id()));
        }
        assert!(all.len() <= MOST, "{} threads", all.len());
        // More pools at once than are kept on standby.
        let many: Vec<TaskPool> = (0..2 * MOST).map(|_| TaskPool::of_one().unwrap()).collect();
        let all: HashSet<_> = many.iter().map(|tasks| tasks.install(|| current().id())).collect();
        assert_eq!(all.len(), 2 * MOST);
    }

    #[test]
    fn work_is_bounded_where_a_number_is_given() {
        for threads in [1, 2, 3] {
            let inner = || within(Some(4), rayon::current_num_threads).unwrap();
            let found = within(Some(threads), || (seen().len(), inner())).unwrap();
            assert!(found.0 <= threads && found.1 == threads, "{found:?}"); // a larger bound is met already
        }
        let smaller = || within(Some(2), rayon::current_num_threads).unwrap();
        assert_eq!(within(Some(3), smaller).unwrap(), 2);
        let here = current().id();
        assert!(within(None, || current().id() == here).unwrap());
    }

    #[test]
    fn a_panic_comes_back_and_the_thread_stays() {
        for _ in 0..2 * MOST {
            let raised = catch_unwind(|| within(Some(1), || panic!("a test of ours")));
            assert!(raised.is_err());
        }
        assert!(standby().made <= MOST);
    }

    #[test]
    fn a_pool_may_go_on_one_of_its_own_threads() {
        let tasks = TaskPool::new(2).unwrap();
        let (give, take) = channel::<TaskPool>();
        let end = tasks.begin(move || drop(take.recv()));
        give.send(tasks).unwrap();
        end.recv().unwrap();
    }
}

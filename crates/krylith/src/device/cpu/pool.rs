//! A fixed team of threads that runs one closure at a time: a parallel region costs about a microsecond and
//! allocates nothing, which a work-stealing pool cannot promise.

use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

type Job = *const (dyn Fn(usize) + Sync);

struct Shared {
    job: UnsafeCell<Option<Job>>,
    epoch: AtomicUsize,
    remaining: AtomicUsize,
    failed: AtomicBool,
    stop: AtomicBool,
    sleepers: Mutex<()>,
    wake: Condvar,
}

// SAFETY: `job` is written by the caller while no worker runs and read by workers after the epoch is released.
unsafe impl Sync for Shared {}
// SAFETY: as above; the pointer is only followed inside `Pool::run`, while the closure it points to is alive.
unsafe impl Send for Shared {}

/// The team. The calling thread is its member 0.
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    busy: Mutex<()>,
}

/// Rounds of polling before a worker sleeps: about 50 µs, longer than the host gaps inside a solve.
const SPINS: usize = 20_000;

impl Pool {
    /// A team of `threads` in all (at least 1).
    pub fn new(threads: usize) -> Self {
        let shared = Arc::new(Shared {
            job: UnsafeCell::new(None),
            epoch: AtomicUsize::new(0),
            remaining: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            sleepers: Mutex::new(()),
            wake: Condvar::new(),
        });
        let workers = (1..threads.max(1))
            .map(|rank| {
                let shared = shared.clone();
                std::thread::Builder::new()
                    .name(format!("krylith-{rank}"))
                    .spawn(move || work(&shared, rank))
                    .expect("the system refused a thread")
            })
            .collect();
        Self { shared, workers, busy: Mutex::new(()) }
    }

    /// Members of the team.
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// Runs `f(rank)` on every member and waits. A panic in one is raised again here.
    pub fn run(&self, f: impl Fn(usize) + Sync) {
        if self.workers.is_empty() {
            return f(0);
        }
        let _one_region = self.busy.lock().unwrap_or_else(|e| e.into_inner());
        let job: &(dyn Fn(usize) + Sync) = &f;
        // SAFETY: lifetime erased; every worker has finished with the closure before this function returns.
        let job: Job = unsafe { std::mem::transmute(job) };
        let shared = &*self.shared;
        // SAFETY: no worker reads the job before the epoch below moves on.
        unsafe { *shared.job.get() = Some(job) };
        shared.remaining.store(self.workers.len(), Ordering::Relaxed);
        shared.epoch.fetch_add(1, Ordering::SeqCst);
        drop(shared.sleepers.lock().unwrap_or_else(|e| e.into_inner()));
        shared.wake.notify_all();
        let own = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| f(0)));
        let mut spins = 0;
        while shared.remaining.load(Ordering::Acquire) > 0 {
            spins += 1;
            if spins < SPINS { std::hint::spin_loop() } else { std::thread::yield_now() }
        }
        if let Err(panic) = own {
            std::panic::resume_unwind(panic);
        }
        if shared.failed.swap(false, Ordering::Relaxed) {
            panic!("a worker thread panicked");
        }
    }
}

fn work(shared: &Shared, rank: usize) {
    let mut seen = 0;
    loop {
        let mut spins = 0;
        while shared.epoch.load(Ordering::Acquire) == seen {
            spins += 1;
            if spins < SPINS {
                std::hint::spin_loop();
                continue;
            }
            let mut guard = shared.sleepers.lock().unwrap_or_else(|e| e.into_inner());
            while shared.epoch.load(Ordering::SeqCst) == seen {
                guard = shared.wake.wait(guard).unwrap_or_else(|e| e.into_inner());
            }
        }
        seen = shared.epoch.load(Ordering::Acquire);
        if shared.stop.load(Ordering::Acquire) {
            return;
        }
        // SAFETY: the caller stored a live job before it moved the epoch and waits until we are done with it.
        let job = unsafe { &*(*shared.job.get()).expect("a job beside each epoch") };
        if std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| job(rank))).is_err() {
            shared.failed.store(true, Ordering::Relaxed);
        }
        shared.remaining.fetch_sub(1, Ordering::Release);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.epoch.fetch_add(1, Ordering::SeqCst);
        drop(self.shared.sleepers.lock().unwrap_or_else(|e| e.into_inner()));
        self.shared.wake.notify_all();
        for worker in self.workers.drain(..) {
            let _ = worker.join();
        }
    }
}

/// Part `rank` of `parts` nearly equal contiguous parts of `0..n`.
pub fn share(n: usize, rank: usize, parts: usize) -> Range<usize> {
    (n * rank / parts)..(n * (rank + 1) / parts)
}

/// A slice that several threads write at once, each its own range.
pub struct Disjoint<'a, T> {
    start: *mut T,
    len: usize,
    _slice: std::marker::PhantomData<&'a mut [T]>,
}

// SAFETY: ranges are handed out only through the unsafe `range`, whose callers keep them disjoint.
unsafe impl<T: Send> Sync for Disjoint<'_, T> {}

impl<'a, T> Disjoint<'a, T> {
    /// Takes the slice for the duration of a parallel region.
    pub fn new(slice: &'a mut [T]) -> Self {
        Self { start: slice.as_mut_ptr(), len: slice.len(), _slice: std::marker::PhantomData }
    }

    /// A part of the slice.
    ///
    /// # Safety
    /// No two threads may hold overlapping ranges at once.
    #[allow(clippy::mut_from_ref)]
    pub unsafe fn range(&self, range: Range<usize>) -> &mut [T] {
        assert!(range.start <= range.end && range.end <= self.len);
        // SAFETY: in bounds by the check above, unaliased by the caller's promise.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_member_runs_every_region() {
        for threads in [1, 2, 3, 5] {
            let pool = Pool::new(threads);
            let mut counts = vec![0usize; threads];
            for _ in 0..1000 {
                let counts = Disjoint::new(&mut counts);
                // SAFETY: each member has its own element.
                pool.run(|rank| unsafe { counts.range(rank..rank + 1)[0] += 1 });
            }
            assert_eq!(counts, vec![1000; threads]);
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_team_survives() {
        let pool = Pool::new(2);
        let raised = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            pool.run(|rank| assert!(rank == 0, "worker fails"));
        }));
        assert!(raised.is_err());
        let done = AtomicUsize::new(0);
        pool.run(|_| {
            done.fetch_add(1, Ordering::Relaxed);
        });
        assert_eq!(done.into_inner(), 2);
    }

    #[test]
    fn shares_cover_the_range() {
        for n in [0, 1, 7, 64] {
            let all: Vec<usize> = (0..5).flat_map(|r| share(n, r, 5)).collect();
            assert_eq!(all, (0..n).collect::<Vec<_>>());
        }
    }
}

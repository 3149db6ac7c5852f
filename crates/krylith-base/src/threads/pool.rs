//! A fixed team of threads that runs one closure at a time. A parallel region costs about a microsecond and
//! allocates nothing, which a work-stealing pool cannot promise.
//!
//! A region is cut into pieces, several per member. Each member first runs its own pieces, so that a piece is
//! computed where its data were last time. Then it helps the others: it takes pieces that their members have
//! not begun. So no member waits for one that the system does not run, unless the system took its core in the
//! middle of a piece. In that case the others wait, and the late member is left out for about twenty times as
//! long, longer if it happens again. A member joins or rejoins only when a core is free for it, if the system
//! reports that. So on cores shared with other programs a region costs little more than on one thread.
//!
//! The member that computes a piece may differ from run to run; the result does not.

use super::crowd;
use std::cell::UnsafeCell;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The closure that runs a piece.
type Job = *const (dyn Fn(usize) + Sync);

/// The team. The calling thread is its member 0.
///
/// # Examples
/// ```
/// use krylith::device::Cpu;
/// use krylith_base::threads::Pool;
/// use std::sync::atomic::{AtomicUsize, Ordering};
/// use std::sync::Arc;
/// let pool = Arc::new(Pool::new(2));
/// let done = AtomicUsize::new(0);
/// pool.run(10, |piece| { done.fetch_add(piece, Ordering::Relaxed); });
/// assert_eq!(done.into_inner(), 45); // each piece once
/// let (coarse, fine) = (Cpu::with_pool(100, pool.clone()), Cpu::with_pool(800, pool)); // one team for both
/// assert_eq!((coarse.threads(), fine.threads()), (2, 2));
/// ```
pub struct Pool {
    shared: Arc<Shared>,
    workers: Vec<JoinHandle<()>>,
    /// Locked by the caller of a region; for each worker, when it rejoins the team.
    absences: Mutex<Vec<Absence>>,
    /// Regions of fewer bytes run on one thread.
    cut_from: usize,
    /// Number of cores of the machine, if this process may use all of them.
    cores: Option<usize>,
}

/// Pieces of a region per member. More than one, so that other members can take over those that a late member
/// has not begun.
const PIECES: usize = 4;
/// Bytes that one thread moves in some 10 µs. Smaller regions run on one thread: a late member would cost
/// more than the team gains.
#[doc(hidden)]
pub const ALONE: usize = 256 << 10;
/// Time that a member polls before it sleeps: longer than the host's pauses within a solve.
const POLL: Duration = Duration::from_micros(50);
/// A wait is attributed to the system if it exceeds both this time and this many times the caller's time per
/// piece.
const LATE: (Duration, u32) = (Duration::from_micros(100), 3);
/// A late member is left out for this many times the wait that it caused, so waits cost some 5 %.
const ABSENCE: u32 = 20;
/// A wait within this many absences of the last one counts as a repetition.
const AGAIN: u64 = 4;
/// Longest wait that counts, and how often repetitions can double an absence.
const MOST: (Duration, u32) = (Duration::from_millis(10), 4);

/// Time between two checks for a free core, if there was none.
const ASK_AGAIN: Duration = Duration::from_millis(2);

struct Shared {
    job: UnsafeCell<Option<Job>>,
    /// One per member; 0 is the caller.
    members: Vec<Member>,
    /// Pieces of the region that are not done yet.
    remaining: AtomicUsize,
    failed: AtomicBool,
    stop: AtomicBool,
    /// True while the caller sleeps until all pieces are done.
    waiting: AtomicBool,
    sleeper: Mutex<()>,
    done: Condvar,
    start: Instant,
}

/// The state of a member, in cache lines of its own.
#[repr(align(128))]
#[derive(Default)]
struct Member {
    /// Range of its pieces that no member has taken: the first in the lower 32 bits, the end in the upper.
    pieces: AtomicU64,
    /// True if it must be woken.
    asleep: AtomicBool,
    /// Time at which it last finished its pieces, ns since `Shared::start`.
    finished: AtomicU64,
}

/// Absence of a worker that was late, or that has not joined yet.
#[derive(Clone, Copy, Default)]
struct Absence {
    /// True while it is left out.
    absent: bool,
    /// Time at which it may rejoin, and how long it was left out; ns since `Shared::start`.
    until: u64,
    length: u64,
    /// Number of repetitions in a row.
    times: u32,
}

// SAFETY: `job` is written by the caller while no piece is outstanding, and read only by threads that have
// taken a piece.
unsafe impl Sync for Shared {}
// SAFETY: as above; the pointer is only followed inside `Pool::run`, while the closure it points to is alive.
unsafe impl Send for Shared {}

impl Pool {
    /// Starts a team of `threads` members in all (at least 1), or fewer if the system refuses to start
    /// threads.
    pub fn new(threads: usize) -> Self {
        let threads = threads.max(1);
        let shared = Arc::new(Shared {
            job: UnsafeCell::new(None),
            members: (0..threads).map(|_| Member::default()).collect(),
            remaining: AtomicUsize::new(0),
            failed: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            waiting: AtomicBool::new(false),
            sleeper: Mutex::new(()),
            done: Condvar::new(),
            start: Instant::now(),
        });
        let start = |member: usize| {
            let shared = shared.clone();
            let thread = std::thread::Builder::new().name(format!("krylith-{member}"));
            thread.spawn(move || work(&shared, member)).ok()
        };
        let workers: Vec<_> = (1..threads).map_while(start).collect();
        let cores = crowd::whole_machine();
        let absences = Mutex::new(vec![Absence { absent: true, ..Absence::default() }; workers.len()]);
        Self { shared, workers, absences, cut_from: ALONE, cores }
    }

    /// Starts a team as large as the rayon pool of this thread.
    pub fn like_tasks() -> Self {
        Self::new(rayon::current_num_threads())
    }

    /// Starts a team for tests: it cuts even the smallest regions, needs no free core, and is complete when
    /// this returns.
    pub fn eager(threads: usize) -> Self {
        let mut team = Self::new(threads);
        (team.cut_from, team.cores) = (0, None);
        while team.shared.members[1..team.threads()].iter().any(|m| !m.asleep.load(Ordering::Relaxed)) {
            std::thread::sleep(POLL);
        }
        team
    }

    /// Number of members of the team.
    #[inline]
    pub fn threads(&self) -> usize {
        self.workers.len() + 1
    }

    /// The best number of pieces for a region of so many bytes: several per member, or one if a single thread
    /// finishes before others could begin.
    #[inline]
    pub fn pieces(&self, bytes: usize) -> usize {
        if self.workers.is_empty() || bytes < self.cut_from { 1 } else { PIECES * self.threads() }
    }

    /// Runs `f(piece)` once for each piece below `pieces`, and waits for all. A panic in a piece is raised
    /// again here.
    pub fn run(&self, pieces: usize, f: impl Fn(usize) + Sync) {
        self.region(pieces, &f);
    }

    /// [`Pool::run`], compiled only once instead of for every closure.
    fn region(&self, pieces: usize, job: &(dyn Fn(usize) + Sync)) {
        let alone = || (0..pieces).for_each(job);
        if self.workers.is_empty() {
            return alone();
        }
        let mut absences = self.absences.lock().unwrap_or_else(|e| e.into_inner());
        if pieces <= 1 {
            return alone();
        }
        let begun = self.shared.now();
        if absences.iter().any(|a| a.absent && a.until <= begun) {
            self.come_back(&mut absences, begun);
        }
        let present = 1 + absences.iter().filter(|a| !a.absent).count();
        if present == 1 {
            return alone();
        }
        // SAFETY: only the lifetime is erased. No piece is outstanding when this function returns, and only
        // threads that have a piece follow the pointer.
        let job: Job = unsafe { std::mem::transmute(job) };
        // SAFETY: no piece of the last region is outstanding, so no thread reads the job before pieces are
        // given out below.
        unsafe { *self.shared.job.get() = Some(job) };
        self.shared.remaining.store(pieces, Ordering::Relaxed);
        let workers = (1..).zip(absences.iter()).filter(|(_, a)| !a.absent);
        for (place, (member, _)) in workers.enumerate() {
            let given = share(pieces, place + 1, present);
            if !given.is_empty() {
                self.shared.members[member].give(given);
                if self.shared.members[member].asleep.swap(false, Ordering::SeqCst) {
                    self.workers[member - 1].thread().unpark();
                }
            }
        }
        self.shared.members[0].give(share(pieces, 0, present));
        let (own, panic) = self.shared.take_part(0);
        self.shared.remaining.fetch_sub(own, Ordering::SeqCst);
        let finished = self.shared.now();
        if self.shared.remaining.load(Ordering::Acquire) > 0 {
            self.shared.wait();
            let piece = (finished - begun) / own.max(1) as u64;
            self.shared.blame(&mut absences, finished, piece);
        }
        drop(absences);
        let failed = self.shared.failed.swap(false, Ordering::Relaxed);
        if let Some(panic) = panic {
            std::panic::resume_unwind(panic);
        }
        if failed {
            panic!("a worker thread panicked");
        }
    }
}

impl Pool {
    /// Lets members rejoin whose absence is over, as far as there are free cores. The others are checked
    /// again later.
    #[cold]
    fn come_back(&self, absences: &mut [Absence], now: u64) {
        let awake = self.shared.members[1..self.threads()]
            .iter()
            .filter(|m| !m.asleep.load(Ordering::Relaxed))
            .count();
        let present = absences.iter().filter(|a| !a.absent).count();
        let free = self.cores.and_then(|cores| crowd::free_cores(1 + awake, cores));
        let mut room = free.map_or(usize::MAX, |free| free.saturating_sub(1 + present));
        for absence in absences.iter_mut().filter(|a| a.absent && a.until <= now) {
            if room == 0 {
                absence.until = now + ASK_AGAIN.as_nanos() as u64;
            } else {
                (absence.absent, room) = (false, room - 1);
            }
        }
    }
}

impl Shared {
    /// Nanoseconds since the team was created.
    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    /// Runs pieces until none is left to take: first those of `member`, then others'. Returns how many it
    /// ran, and the first panic.
    fn take_part(&self, member: usize) -> (usize, Option<Box<dyn std::any::Any + Send>>) {
        let (mut count, mut panic) = (0, None);
        let (before, from) = self.members.split_at(member);
        for owner in from.iter().chain(before) {
            while let Some(piece) = owner.take() {
                // SAFETY: a piece is taken, so the caller waits. It stored a live job before it gave out
                // pieces.
                let job = unsafe { &*(*self.job.get()).expect("a job beside its pieces") };
                let run = std::panic::AssertUnwindSafe(|| job(piece));
                if let Err(raised) = std::panic::catch_unwind(run) {
                    panic.get_or_insert(raised);
                }
                count += 1;
            }
        }
        (count, panic)
    }

    /// Waits until every piece is done: polls for a while, then sleeps.
    fn wait(&self) {
        if poll(|| self.remaining.load(Ordering::Acquire) == 0) {
            return;
        }
        let mut guard = self.sleeper.lock().unwrap_or_else(|e| e.into_inner());
        self.waiting.store(true, Ordering::SeqCst);
        while self.remaining.load(Ordering::SeqCst) > 0 {
            guard = self.done.wait(guard).unwrap_or_else(|e| e.into_inner());
        }
        self.waiting.store(false, Ordering::SeqCst);
    }

    /// Leaves out, for a while, members that finished so long after the caller that the system must have
    /// taken their core.
    ///
    /// `piece` is the caller's time per piece in ns.
    fn blame(&self, absences: &mut MutexGuard<'_, Vec<Absence>>, finished: u64, piece: u64) {
        let late = (LATE.0.as_nanos() as u64).max(piece * LATE.1 as u64);
        for (absence, member) in absences.iter_mut().zip(&self.members[1..]) {
            let behind = member.finished.load(Ordering::Relaxed).saturating_sub(finished);
            if behind > late {
                let again = finished < absence.until + AGAIN * absence.length;
                absence.times = if again { (absence.times + 1).min(MOST.1) } else { 0 };
                let counted = behind.min(MOST.0.as_nanos() as u64);
                absence.length = (counted * ABSENCE as u64) << absence.times;
                absence.until = finished + behind + absence.length;
                absence.absent = true;
            }
        }
    }
}

impl Member {
    /// Makes these pieces available.
    fn give(&self, pieces: Range<usize>) {
        self.pieces.store((pieces.end as u64) << 32 | pieces.start as u64, Ordering::SeqCst);
    }

    /// True if there may be a piece to take.
    fn has_pieces(&self, order: Ordering) -> bool {
        let pieces = self.pieces.load(order);
        pieces as u32 as u64 != pieces >> 32
    }

    /// Takes a piece that no member has taken. The whole state is in one word, so a late member takes either
    /// a piece of the current region or none.
    fn take(&self) -> Option<usize> {
        let mut pieces = self.pieces.load(Ordering::Relaxed);
        while pieces as u32 as u64 != pieces >> 32 {
            let taken =
                self.pieces.compare_exchange_weak(pieces, pieces + 1, Ordering::AcqRel, Ordering::Relaxed);
            match taken {
                Ok(_) => return Some(pieces as u32 as usize),
                Err(now) => pieces = now,
            }
        }
        None
    }
}

/// Calls `so` repeatedly for at most [`POLL`]; true once it returns true.
fn poll(mut so: impl FnMut() -> bool) -> bool {
    let start = Instant::now();
    loop {
        for _ in 0..32 {
            if so() {
                return true;
            }
            std::hint::spin_loop();
        }
        if start.elapsed() > POLL {
            return false;
        }
    }
}

/// The loop of worker `member` during the life of the team.
fn work(shared: &Shared, member: usize) {
    let own = &shared.members[member];
    loop {
        let wanted = || own.has_pieces(Ordering::Relaxed) || shared.stop.load(Ordering::Relaxed);
        if !poll(wanted) {
            own.asleep.store(true, Ordering::SeqCst);
            while !own.has_pieces(Ordering::SeqCst) && !shared.stop.load(Ordering::SeqCst) {
                std::thread::park();
                own.asleep.store(true, Ordering::SeqCst); // the waking thread cleared it
            }
            own.asleep.store(false, Ordering::SeqCst);
        }
        if shared.stop.load(Ordering::Acquire) {
            return;
        }
        let (done, panic) = shared.take_part(member);
        if panic.is_some() {
            shared.failed.store(true, Ordering::Relaxed);
        }
        if done == 0 {
            continue; // others took all its pieces
        }
        own.finished.store(shared.now(), Ordering::Relaxed);
        if shared.remaining.fetch_sub(done, Ordering::SeqCst) == done && shared.waiting.load(Ordering::SeqCst)
        {
            drop(shared.sleeper.lock().unwrap_or_else(|e| e.into_inner()));
            shared.done.notify_all();
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        for worker in self.workers.drain(..) {
            worker.thread().unpark();
            let _ = worker.join();
        }
    }
}

/// Part `rank` of `parts` nearly equal contiguous parts of `0..n`.
#[inline]
pub fn share(n: usize, rank: usize, parts: usize) -> Range<usize> {
    (n * rank / parts)..(n * (rank + 1) / parts)
}

/// A slice to which several threads write at once, each in its own range.
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

    /// Returns a range of the slice.
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
    fn every_piece_runs_once_in_every_region() {
        for threads in [1, 2, 3, 5, 64] {
            let pool = Pool::eager(threads);
            for pieces in [0, 1, 2, threads, 4 * threads + 1] {
                let (mut counts, regions) = (vec![0usize; pieces], 300);
                for _ in 0..regions {
                    let counts = Disjoint::new(&mut counts);
                    // SAFETY: each piece has its own element.
                    pool.run(pieces, |piece| unsafe { counts.range(piece..piece + 1)[0] += 1 });
                }
                assert!(counts.iter().all(|&c| c == regions), "{threads} threads, {pieces} pieces");
            }
        }
    }

    /// A worker that sleeps in a piece simulates one whose core the system took. Other programs may take the
    /// caller's core too, so nothing here depends on the time of a region.
    #[test]
    fn who_was_late_is_left_out_for_a_while_and_comes_back() {
        let pool = Pool::eager(2);
        let absence = || pool.absences.lock().unwrap()[0];
        let caller = std::thread::current().id();
        let limit = Duration::from_secs(20);
        let begin = Instant::now();
        // A worker that has not been in a region yet is absent too, for no time.
        while absence().length == 0 {
            assert!(begin.elapsed() < limit, "a worker that sleeps is late");
            let sleeps = AtomicBool::new(false);
            pool.run(8, |_| {
                if std::thread::current().id() != caller {
                    sleeps.store(true, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(5));
                }
                // The caller is done once the worker has a piece.
                while !sleeps.load(Ordering::Relaxed) && begin.elapsed() < limit {
                    std::thread::yield_now();
                }
            });
        }
        let Absence { until, length, .. } = absence();
        assert!(length >= (LATE.0 * ABSENCE).as_nanos() as u64, "{length} ns");
        let joins = || {
            let joined = AtomicBool::new(false);
            pool.run(8, |_| {
                joined.fetch_or(std::thread::current().id() != caller, Ordering::Relaxed);
                std::thread::sleep(Duration::from_micros(100)); // so that the worker has the time to wake
            });
            joined.into_inner()
        };
        while pool.shared.now() < until {
            let joined = joins();
            assert!(!joined || pool.shared.now() >= until, "the worker is left out");
        }
        let begin = Instant::now();
        while !joins() {
            assert!(begin.elapsed() < limit, "the worker comes back");
        }
    }

    #[test]
    fn a_panic_reaches_the_caller_and_the_team_survives() {
        let pool = Pool::eager(2);
        for fails in 0..8 {
            let raised = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                pool.run(8, |piece| assert!(piece != fails, "a piece fails"));
            }));
            assert!(raised.is_err());
            let done = AtomicUsize::new(0);
            pool.run(8, |_| {
                done.fetch_add(1, Ordering::Relaxed);
            });
            assert_eq!(done.into_inner(), 8);
        }
    }

    #[test]
    fn small_regions_are_not_cut() {
        let pool = Pool::new(3);
        assert_eq!((pool.pieces(1000), pool.pieces(100 << 20)), (1, 12));
        assert_eq!(Pool::eager(3).pieces(1), 12);
        assert_eq!(Pool::new(1).pieces(100 << 20), 1);
    }

    #[test]
    fn shares_cover_the_range() {
        for n in [0, 1, 7, 64] {
            let all: Vec<usize> = (0..5).flat_map(|r| share(n, r, 5)).collect();
            assert_eq!(all, (0..n).collect::<Vec<_>>());
        }
    }
}

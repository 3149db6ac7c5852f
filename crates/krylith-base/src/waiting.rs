//! Bounded waits within a process, and a report of what they wait for.
//!
//! A wait for a GPU, for a kernel that another thread compiles, or for the end of a thread is bounded by
//! [`time_limit`], which `KRYLITH_TIMEOUT` sets; waits for threads last at least three minutes. Two kinds of
//! wait are unbounded, because they wait for work whose own waits are bounded: a caller waits for the threads
//! of its solver, and a solver waits for its turn on GPUs that another one uses.
//!
//! [`report`] lists the waits that last longer than a second, so that a watchdog can show what a program is
//! doing.
//!
//! Kernels that wait for warps or for other GPUs look at a clock, so they end too. After a GPU has not
//! answered, no memory on it is freed by a call that may wait. No lock is held while something is compiled or
//! waited for.

use crate::{Error, Result};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest wait if `KRYLITH_TIMEOUT` is absent or invalid; ranks refuse an invalid value themselves.
const USUAL: Duration = Duration::from_secs(600);
/// Shortest limit of waits for threads of this process, whatever the limit for ranks and GPUs: such threads
/// may wait a minute for another process that compiles, and compile on cores that others use.
const COMPILES: Duration = Duration::from_secs(180);
/// The time between two checks is at most this fraction of the wait so far, so a wait ends at most that much
/// late.
const SHARE: u32 = 128;
/// Longest time between two checks.
const NAP: Duration = Duration::from_millis(1);
/// Pauses shorter than this spin, because falling asleep and waking takes as long.
const AWAKE: Duration = Duration::from_micros(100);
/// A wait is listed after this time.
const LONG: Duration = Duration::from_secs(1);
/// Time that threads of a solver may take to end if its GPU does not respond.
const GIVEN_UP: Duration = Duration::from_secs(5);

/// True after a GPU did not respond in time.
static HANGS: AtomicBool = AtomicBool::new(false);

/// The time that a rank waits for another before it gives up: 600 s, or the value of `KRYLITH_TIMEOUT` in
/// seconds.
///
/// # Errors
/// `KRYLITH_TIMEOUT` is not a positive number of seconds.
pub fn time_limit() -> Result<Duration> {
    parse_limit(std::env::var_os("KRYLITH_TIMEOUT").map(|text| text.to_string_lossy().into_owned()))
}

fn parse_limit(text: Option<String>) -> Result<Duration> {
    let Some(text) = text else { return Ok(USUAL) };
    let seconds = text.trim().parse().ok().filter(|s: &f64| *s > 0.0);
    seconds.and_then(|s| Duration::try_from_secs_f64(s).ok()).ok_or_else(|| {
        Error::invalid(format!("KRYLITH_TIMEOUT={text}: expected a positive number of seconds, such as 600"))
    })
}

/// The time that this process waits for a GPU.
#[doc(hidden)]
pub fn limit() -> Duration {
    static LIMIT: OnceLock<Duration> = OnceLock::new();
    *LIMIT.get_or_init(|| time_limit().unwrap_or(USUAL))
}

/// The time that this process waits for its own threads.
fn limit_of_threads() -> Duration {
    limit().max(COMPILES)
}

/// The error after waiting in vain for `what`.
#[doc(hidden)]
pub fn late(what: &str, waited: Duration) -> Error {
    Error::NoAnswer(format!(
        "waited {} s for {what}; KRYLITH_TIMEOUT sets the limit in seconds",
        waited.as_secs_f64()
    ))
}

/// Marks GPUs as not responding: from now on no device memory is freed, because freeing may wait for the
/// device.
#[doc(hidden)]
pub fn give_up_gpus() {
    HANGS.store(true, Relaxed);
}

/// True if a GPU did not respond in time.
#[doc(hidden)]
pub fn gpus_are_given_up() -> bool {
    HANGS.load(Relaxed)
}

/// Calls `look` until it returns something; `None` after `limit`. Spins at first, then sleeps between calls.
#[doc(hidden)]
pub fn poll<T>(limit: Duration, what: &dyn Fn() -> String, mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let begin = Instant::now();
    let mut listed = None;
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        let passed = begin.elapsed();
        if passed > limit {
            return None;
        }
        if passed > LONG && listed.is_none() {
            listed = Some(list(what(), begin));
        }
        let pause = (passed / SHARE).min(NAP);
        if pause > AWAKE {
            std::thread::sleep(pause);
            continue;
        }
        while begin.elapsed() < passed + pause {
            match passed < NAP {
                true => std::hint::spin_loop(),
                false => std::thread::yield_now(),
            }
        }
    }
}

/// Waits for the end of a thread, which has already reported its errors; a thread that does not end in time
/// is left running.
#[doc(hidden)]
pub fn join(thread: JoinHandle<()>, what: &str) {
    let limit = if gpus_are_given_up() { GIVEN_UP } else { limit_of_threads() };
    if poll(limit, &|| what.into(), || thread.is_finished().then_some(())).is_some() {
        let _ = thread.join();
    }
}

/// Waits as long as [`join`] for the message that a thread sends when it ends; true if it arrived.
#[doc(hidden)]
pub fn hear(end: &std::sync::mpsc::Receiver<()>, what: &str) -> bool {
    let limit = if gpus_are_given_up() { GIVEN_UP } else { limit_of_threads() };
    let heard = || (end.try_recv() != Err(std::sync::mpsc::TryRecvError::Empty)).then_some(());
    poll(limit, &|| what.into(), heard).is_some()
}

/// A value that the first caller computes while other callers wait.
#[doc(hidden)]
pub struct Once<T> {
    state: Mutex<State<T>>,
    changed: Condvar,
}

struct State<T> {
    value: Option<T>,
    /// The thread that computes it now.
    maker: Option<String>,
}

impl<T> Default for Once<T> {
    fn default() -> Self {
        Self { state: Mutex::new(State { value: None, maker: None }), changed: Condvar::new() }
    }
}

impl<T> Once<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl<T: Clone> Once<T> {
    /// The value, computed by `make` if no thread has computed it. After an error the next caller tries
    /// again.
    ///
    /// # Errors
    /// An error of `make`; another thread computes the value and does not finish in time.
    #[doc(hidden)]
    pub fn get_or_make(&self, what: &dyn Fn() -> String, make: impl FnOnce() -> Result<T>) -> Result<T> {
        self.within(limit_of_threads(), what, make)
    }

    fn within(
        &self,
        limit: Duration,
        what: &dyn Fn() -> String,
        make: impl FnOnce() -> Result<T>,
    ) -> Result<T> {
        let (begin, mut listed) = (Instant::now(), None);
        let mut state = self.state();
        loop {
            if let Some(value) = &state.value {
                return Ok(value.clone());
            }
            let Some(maker) = &state.maker else { break };
            let Some(left) = limit.checked_sub(begin.elapsed()) else {
                return Err(late(&format!("{}, which thread `{maker}` is still making", what()), limit));
            };
            listed.get_or_insert_with(|| list(what(), begin));
            state = self.changed.wait_timeout(state, left).unwrap_or_else(|e| e.into_inner()).0;
        }
        state.maker = Some(own_name());
        drop(state);
        drop(listed);
        let _making = Making(self);
        let _listed = list(what(), Instant::now());
        let made = make()?;
        self.state().value = Some(made.clone());
        Ok(made)
    }
}

/// A guard for the thread that computes the value; its drop lets another thread try.
struct Making<'a, T>(&'a Once<T>);

impl<T> Drop for Making<'_, T> {
    fn drop(&mut self) {
        self.0.state().maker = None;
        self.0.changed.notify_all();
    }
}

/// Exclusive access for one thread at a time, with a time limit.
#[derive(Default)]
#[doc(hidden)]
pub struct Turn {
    taken: Mutex<bool>,
    free: Condvar,
}

/// A guard for the access; its drop ends it.
#[doc(hidden)]
pub struct Taken<'a>(&'a Turn);

impl Turn {
    /// Waits for access.
    ///
    /// # Errors
    /// Another thread keeps its access for too long.
    #[doc(hidden)]
    pub fn take(&self, what: &str) -> Result<Taken<'_>> {
        self.take_within(limit_of_threads(), what)
    }

    fn take_within(&self, limit: Duration, what: &str) -> Result<Taken<'_>> {
        let (begin, mut listed) = (Instant::now(), None);
        let mut taken = self.taken.lock().unwrap_or_else(|e| e.into_inner());
        while *taken {
            let left = limit.checked_sub(begin.elapsed()).ok_or_else(|| late(what, limit))?;
            listed.get_or_insert_with(|| list(what.into(), begin));
            taken = self.free.wait_timeout(taken, left).unwrap_or_else(|e| e.into_inner()).0;
        }
        *taken = true;
        Ok(Taken(self))
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        *self.0.taken.lock().unwrap_or_else(|e| e.into_inner()) = false;
        self.0.free.notify_one();
    }
}

/// A wait or a task of a thread.
struct Entry {
    number: u64,
    thread: String,
    what: String,
    since: Instant,
}

static LIST: Mutex<Vec<Entry>> = Mutex::new(Vec::new());

fn entries() -> MutexGuard<'static, Vec<Entry>> {
    LIST.lock().unwrap_or_else(|e| e.into_inner())
}

/// A guard for an entry of the list; its drop removes the entry.
#[doc(hidden)]
pub struct Listed(u64);

/// Adds this thread's wait or task to the list.
#[doc(hidden)]
pub fn list(what: String, since: Instant) -> Listed {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Relaxed);
    entries().push(Entry { number, thread: own_name(), what, since });
    Listed(number)
}

impl Drop for Listed {
    fn drop(&mut self) {
        entries().retain(|entry| entry.number != self.0);
    }
}

fn own_name() -> String {
    std::thread::current().name().unwrap_or("(unnamed)").into()
}

/// The waits and tasks of this process's threads that have lasted longer than a second, one line each.
///
/// # Examples
/// ```
/// for line in krylith_base::waiting::report() {
///     println!("{line}"); // krylith-0: stream work of GPU 0, 12 s; the last launch was sweep of sweep.cu
/// }
/// ```
pub fn report() -> Vec<String> {
    let line = |e: &Entry| format!("{}: {:.0} s: {}", e.thread, e.since.elapsed().as_secs_f64(), e.what);
    entries().iter().filter(|e| e.since.elapsed() > LONG).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;
    use std::sync::atomic::AtomicUsize;

    const SHORT: Duration = Duration::from_millis(20);

    #[test]
    fn a_time_limit_is_a_positive_number_of_seconds() {
        assert_eq!(parse_limit(None).unwrap(), Duration::from_secs(600));
        assert_eq!(parse_limit(Some(" 2.5".into())).unwrap(), Duration::from_millis(2500));
        for bad in ["", "0", "-1", "nan", "inf", "1e30", "ten"] {
            let e = parse_limit(Some(bad.into())).unwrap_err().to_string();
            assert!(e.starts_with(&format!("KRYLITH_TIMEOUT={bad}: expected")), "{e}");
        }
    }

    #[test]
    fn a_wait_ends_when_it_is_over_or_its_time_is() {
        let mut looks = 0;
        let third = poll(USUAL, &String::new, || {
            looks += 1;
            (looks == 3).then_some(looks)
        });
        assert_eq!(third, Some(3));
        let begin = Instant::now();
        assert_eq!(poll(SHORT, &String::new, || None::<()>), None);
        assert!(begin.elapsed() >= SHORT);
    }

    #[test]
    fn one_thread_makes_what_all_want() {
        let (once, made) = (Once::default(), AtomicUsize::new(0));
        let make = || {
            std::thread::sleep(SHORT);
            Ok(made.fetch_add(1, Relaxed))
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| assert_eq!(once.get_or_make(&String::new, make).unwrap(), 0));
            }
        });
        assert_eq!(made.into_inner(), 1);
    }

    #[test]
    fn after_an_error_or_a_panic_the_next_one_tries() {
        let once = Once::default();
        assert!(once.get_or_make(&String::new, || Err(Error::invalid("a test of ours"))).is_err());
        let panics =
            std::panic::AssertUnwindSafe(|| once.get_or_make(&String::new, || panic!("a test of ours")));
        assert!(std::panic::catch_unwind(panics).is_err());
        assert_eq!(once.get_or_make(&String::new, || Ok(7)).unwrap(), 7);
    }

    #[test]
    fn a_wait_in_vain_says_for_what_and_for_whom() {
        let (once, met, over) = (Once::<()>::default(), Barrier::new(2), Barrier::new(2));
        let what = || "the compilation of a.cu".to_string();
        let make = || {
            met.wait();
            over.wait();
            Ok(())
        };
        std::thread::scope(|scope| {
            let maker = std::thread::Builder::new().name("maker".into());
            maker.spawn_scoped(scope, || once.get_or_make(&what, make)).unwrap();
            met.wait();
            let late = once.within(SHORT, &what, || unreachable!("another thread makes it")).unwrap_err();
            assert_eq!(
                late.to_string(),
                "waited 0.02 s for the compilation of a.cu, which thread `maker` is still making; \
                 KRYLITH_TIMEOUT sets the limit in seconds"
            );
            assert_eq!(late.exit_code(), 3);
            over.wait();
        });
        assert!(once.get_or_make(&what, || unreachable!("it was made")).is_ok());
    }

    #[test]
    fn a_turn_is_one_threads_and_is_not_waited_for_for_ever() {
        let turn = Turn::default();
        let first = turn.take("a turn").unwrap();
        let late = turn.take_within(SHORT, "a turn").err().unwrap().to_string();
        assert!(late.starts_with("waited 0.02 s for a turn; "), "{late}");
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| turn.take("a turn").map(drop));
            std::thread::sleep(SHORT);
            drop(first);
            waits.join().unwrap().unwrap();
        });
    }

    #[test]
    fn what_takes_long_is_reported_while_it_lasts() {
        let what = "something that a test waits for";
        let listed = |what: &str| report().iter().any(|line| line.contains(what));
        let Some(since) = Instant::now().checked_sub(2 * LONG) else { return };
        let entry = list(what.into(), since);
        let fresh = list("something else".into(), Instant::now());
        assert!(listed(what) && !listed("something else"));
        drop((entry, fresh));
        assert!(!listed(what));
    }
}

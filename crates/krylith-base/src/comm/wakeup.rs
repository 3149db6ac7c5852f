//! Waits of a rank that is a thread: it polls for a microsecond or two, yields its core for a while, then
//! sleeps until another rank wakes it.

use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

/// Polls before the rank yields its core: a microsecond or two.
const SPINS: usize = 50;
/// Polls with a yield between them before the rank sleeps: some tens of microseconds on idle cores.
const YIELDS: usize = 100;
/// Longest sleep between two polls, in case a wake-up is missed.
const NAP: Duration = Duration::from_millis(100);

/// The place at which one rank sleeps.
#[derive(Default)]
pub(super) struct Wakeup {
    asleep: AtomicBool,
    lock: Mutex<()>,
    wake: Condvar,
}

impl Wakeup {
    /// Wakes the rank if it sleeps. The data that it waits for must be stored before the call.
    pub(super) fn wake(&self) {
        // Either the sleeper sees the data stored before this fence, or this thread sees that it is asleep.
        fence(Ordering::SeqCst);
        if self.asleep.load(Ordering::Relaxed) {
            drop(self.lock.lock().unwrap_or_else(|e| e.into_inner()));
            self.wake.notify_all();
        }
    }

    /// Waits until `poll` returns something; `None` after `limit`.
    pub(super) fn wait<T>(&self, limit: Duration, mut poll: impl FnMut() -> Option<T>) -> Option<T> {
        for _ in 0..SPINS {
            if let Some(found) = poll() {
                return Some(found);
            }
            std::hint::spin_loop();
        }
        let begin = Instant::now();
        for _ in 0..YIELDS {
            if let Some(found) = poll() {
                return Some(found);
            }
            std::thread::yield_now();
        }
        let mut guard = self.lock.lock().unwrap_or_else(|e| e.into_inner());
        self.asleep.store(true, Ordering::Relaxed);
        let found = loop {
            fence(Ordering::SeqCst);
            if let Some(found) = poll() {
                break Some(found);
            }
            let Some(left) = limit.checked_sub(begin.elapsed()) else { break None };
            let nap = left.min(NAP) + Duration::from_micros(1);
            guard = self.wake.wait_timeout(guard, nap).unwrap_or_else(|e| e.into_inner()).0;
        };
        self.asleep.store(false, Ordering::Relaxed);
        found
    }
}

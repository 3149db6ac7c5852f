//! Threads that live as long as a solver. Each has a state that never leaves its thread.
//!
//! Spaces, operators and recorded graphs belong to the thread that made them. [`Workers::run`] gives the same
//! borrowed closure to every thread, with the thread's number and state, and returns when all threads are
//! done. It therefore neither copies what the closure borrows nor allocates.
//!
//! Each worker is a thread of its own [`TaskPool`], whose threads run the worker's rayon loops.
//!
//! Callers' work besides commands, such as dropping stored zeros, taking new values or checking x, runs on
//! the first worker ([`Workers::first`]). So the option `threads` bounds that work too.

use crate::Result;
use crate::interrupt::{self, Limits};
use crate::profile;
use crate::threads::TaskPool;
use crate::waiting::{self, gpus_are_given_up};
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The closure that every thread runs. Its arguments are the thread's number and its state, if it has one.
pub(crate) type Command<'a, T> = dyn Fn(usize, &mut Option<T>) + Sync + 'a;

/// Called now and then by the caller's thread while it waits.
pub(crate) type Waiting = Box<dyn FnMut() + Send>;

/// Interval between two such calls: long compared with their cost, short for a user at a keyboard.
const EVERY: Duration = Duration::from_millis(50);

/// Time for which a thread for small systems and its caller spin before they sleep.
const PATIENCE: Duration = Duration::from_micros(50);

/// Threads with a `T` each, which starts as `None` and is dropped on its thread.
pub(crate) struct Workers<T: 'static> {
    shared: Arc<Shared<T>>,
    threads: Vec<Thread>,
    pub waiting: Option<Waiting>,
}

struct Thread {
    /// The worker's thread and the others that run its loops.
    tasks: TaskPool,
    /// Gets a message once the worker has dropped its state and ended.
    end: Receiver<()>,
}

struct Shared<T: 'static> {
    command: UnsafeCell<Option<*const Command<'static, T>>>,
    turn: Mutex<Turn>,
    /// Signals a new command, or the end of the worker.
    begin: Condvar,
    /// Signals that the last busy thread is done.
    done: Condvar,
    /// Time for which either side spins before it sleeps.
    budget: Duration,
    /// Copies of [`Turn::given`] and [`Turn::busy`] that are polled without the lock. The values under the
    /// lock decide.
    given: AtomicU64,
    busy: AtomicUsize,
}

#[derive(Default)]
struct Turn {
    /// Commands given so far.
    given: u64,
    /// Threads that are still busy with the last command.
    busy: usize,
    stop: bool,
}

// SAFETY: the command is written while no thread runs one, and threads read it after `given` was raised under
// the lock.
unsafe impl<T> Sync for Shared<T> {}
// SAFETY: as above; the pointer is followed only inside `Workers::run`, while its target is alive. A state is
// made, used and dropped on its own thread, so `T` need not be `Send`.
unsafe impl<T> Send for Shared<T> {}

impl<T> Shared<T> {
    /// Spins for a short time: waking a thread takes longer than a small solve.
    fn look_out(&self, is_there: impl Fn() -> bool) {
        if self.budget.is_zero() {
            return;
        }
        let begin = Instant::now();
        while !is_there() && begin.elapsed() < self.budget {
            std::thread::yield_now(); // on a single core, lets the other side run
        }
    }

    fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl<T: 'static> Workers<T> {
    /// Starts `count` threads. Each runs its loops on `tasks` threads, of which it is one.
    ///
    /// # Errors
    /// The operating system refuses a thread.
    pub(crate) fn new(count: usize, tasks: usize) -> Result<Self> {
        let mut workers = Self::none(count, Duration::ZERO);
        (0..count).try_for_each(|_| TaskPool::new(tasks).map(|tasks| workers.begin(tasks)))?;
        Ok(workers)
    }

    /// Starts one standby thread, which runs its loops alone. It serves systems so small that starting or
    /// waking other threads takes longer than the work.
    ///
    /// # Errors
    /// The operating system refuses a thread.
    pub(crate) fn standby() -> Result<Self> {
        let mut workers = Self::none(1, PATIENCE);
        workers.begin(TaskPool::of_one()?);
        Ok(workers)
    }

    fn none(room: usize, budget: Duration) -> Self {
        let shared = Arc::new(Shared {
            command: UnsafeCell::new(None),
            turn: Mutex::default(),
            begin: Condvar::new(),
            done: Condvar::new(),
            budget,
            given: AtomicU64::new(0),
            busy: AtomicUsize::new(0),
        });
        Self { shared, threads: Vec::with_capacity(room), waiting: None }
    }

    fn begin(&mut self, tasks: TaskPool) {
        let (shared, number) = (self.shared.clone(), self.threads.len());
        let end = tasks.begin(move || work(&shared, number));
        self.threads.push(Thread { tasks, end });
    }

    /// Number of workers.
    pub(crate) fn count(&self) -> usize {
        self.threads.len()
    }

    /// True for a single standby thread.
    pub(crate) fn is_standby(&self) -> bool {
        !self.shared.budget.is_zero()
    }

    /// Runs `work` on the first worker, with loops on that worker's threads, and waits. The caller's limits
    /// and clock apply. A panic of `work` is raised again in the caller.
    pub(crate) fn first<R: Send>(&mut self, work: impl FnOnce() -> R + Send) -> R {
        let (limits, done) = (interrupt::limits(), Mutex::new(None));
        let work = Mutex::new(Some(work));
        self.run(&|number, _| {
            let taken = if number == 0 { lock(&work).take() } else { None };
            let Some(work) = taken else { return };
            let _entered = limits.as_ref().map(Limits::enter);
            let before = profile::take();
            let made = catch_unwind(AssertUnwindSafe(work));
            *lock(&done) = Some((made, profile::take()));
            profile::put(before);
        });
        match done.into_inner().unwrap_or_else(|e| e.into_inner()) {
            Some((Ok(made), parts)) => {
                profile::put(parts);
                made
            }
            Some((Err(panic), _)) => resume_unwind(panic),
            None => panic!("a worker thread of the solver ended unexpectedly"),
        }
    }

    /// Runs `command` on every thread and waits for all of them. A command must not panic; a thread whose
    /// command panics loses its state.
    pub(crate) fn run(&mut self, command: &Command<'_, T>) {
        let command: *const Command<'_, T> = command;
        // SAFETY: the lifetime is erased; every thread finishes the command before this function returns.
        let command: *const Command<'static, T> = unsafe { std::mem::transmute(command) };
        // SAFETY: `&mut self`, and the last command is finished: no thread reads this now.
        unsafe { *self.shared.command.get() = Some(command) };
        let mut turn = self.shared.turn();
        turn.given += 1;
        turn.busy = self.threads.len();
        self.shared.busy.store(turn.busy, Relaxed);
        self.shared.given.store(turn.given, Relaxed);
        self.shared.begin.notify_all();
        if !self.shared.budget.is_zero() {
            drop(turn);
            self.shared.look_out(|| self.shared.busy.load(Relaxed) == 0);
            turn = self.shared.turn();
        }
        while turn.busy > 0 {
            let Some(waiting) = &mut self.waiting else {
                turn = self.shared.done.wait(turn).unwrap_or_else(|e| e.into_inner());
                continue;
            };
            let (guard, waited) =
                self.shared.done.wait_timeout(turn, EVERY).unwrap_or_else(|e| e.into_inner());
            turn = guard;
            if waited.timed_out() && turn.busy > 0 {
                drop(turn);
                // Other threads still use the command, so a panic must not leave this function yet.
                if catch_unwind(AssertUnwindSafe(&mut *waiting)).is_err() {
                    self.waiting = None;
                }
                turn = self.shared.turn();
            }
        }
    }

    /// Ends the threads, which drop their states. No worker is left afterwards.
    pub(crate) fn stop(&mut self) {
        self.shared.turn().stop = true;
        self.shared.given.store(u64::MAX, Relaxed); // threads that spin see the change
        self.shared.begin.notify_all();
        for Thread { tasks, end } in self.threads.drain(..) {
            // A state that panicked in its drop has already reported it. A state whose GPU does not answer
            // may block in its drop.
            let ended = match gpus_are_given_up() {
                true => waiting::hear(&end, "the threads of a solver"),
                false => end.recv().is_ok(),
            };
            if !ended {
                std::mem::forget(tasks); // dropping it would wait for the thread
            }
        }
    }
}

impl<T: 'static> Drop for Workers<T> {
    fn drop(&mut self) {
        self.stop();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

fn work<T>(shared: &Shared<T>, number: usize) {
    let (mut state, mut seen) = (None, 0);
    loop {
        shared.look_out(|| shared.given.load(Relaxed) != seen);
        let mut turn = shared.turn();
        while turn.given == seen && !turn.stop {
            turn = shared.begin.wait(turn).unwrap_or_else(|e| e.into_inner());
        }
        if turn.stop {
            return;
        }
        seen = turn.given;
        drop(turn);
        // SAFETY: the caller stored a live command before it raised `given`, and waits until every thread has
        // finished it.
        let command = unsafe { (*shared.command.get()).map(|command| &*command) };
        if catch_unwind(AssertUnwindSafe(|| command.map(|command| command(number, &mut state)))).is_err() {
            state = None;
        }
        let mut turn = shared.turn();
        turn.busy -= 1;
        shared.busy.store(turn.busy, Relaxed);
        if turn.busy == 0 {
            shared.done.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rayon::prelude::*;
    use std::rc::Rc;

    #[test]
    fn states_stay_on_their_threads() {
        for count in [1, 3] {
            // An Rc cannot be sent; it counts the commands that its thread has run.
            let mut workers: Workers<Rc<UnsafeCell<usize>>> = Workers::new(count, 2).unwrap();
            let total = Mutex::new(0);
            workers.run(&|number, state| *state = Some(Rc::new(UnsafeCell::new(number))));
            for _ in 0..1000 {
                workers.run(&|_, state| {
                    let state = Rc::get_mut(state.as_mut().unwrap()).unwrap();
                    *state.get_mut() += 1;
                    *total.lock().unwrap() += 1;
                });
            }
            assert_eq!(total.into_inner().unwrap(), 1000 * count);
            workers.run(&|number, state| {
                assert_eq!(*Rc::get_mut(state.as_mut().unwrap()).unwrap().get_mut(), 1000 + number);
            });
        }
    }

    #[test]
    fn a_thread_that_stood_by_serves_one_after_the_other() {
        let name = || std::thread::current().id();
        let mut seen = Vec::new();
        for round in 0..20 {
            let mut workers: Workers<Rc<()>> = Workers::standby().unwrap();
            let told = Mutex::new(None);
            workers.run(&|number, state| {
                assert!(number == 0 && state.is_none(), "round {round}");
                *state = Some(Rc::new(()));
                // No other thread is woken: everything runs on this one.
                let here = name();
                assert!((0..1000).into_par_iter().all(|_| name() == here));
                *told.lock().unwrap() = Some(here);
            });
            workers.run(&|_, state| assert!(state.is_some()));
            seen.push(told.into_inner().unwrap().unwrap());
        }
        seen.sort_by_key(|id| format!("{id:?}"));
        seen.dedup();
        assert!(seen.len() < 20, "threads are used again");
    }

    #[test]
    fn the_caller_is_called_while_it_waits() {
        let mut workers: Workers<()> = Workers::new(2, 1).unwrap();
        let called = Arc::new(Mutex::new(0));
        let count = called.clone();
        workers.waiting = Some(Box::new(move || *count.lock().unwrap() += 1));
        workers.run(&|_, _| {});
        assert_eq!(*called.lock().unwrap(), 0);
        // The command runs until the caller's thread was called back.
        workers.run(&|_, _| {
            while *called.lock().unwrap() < 2 {
                std::thread::yield_now();
            }
        });
        workers.waiting = Some(Box::new(|| panic!("a test of ours")));
        let done = Mutex::new(0);
        workers.run(&|_, _| {
            std::thread::sleep(3 * EVERY);
            *done.lock().unwrap() += 1;
        });
        assert!(workers.waiting.is_none() && *done.lock().unwrap() == 2);
    }

    #[test]
    fn the_first_thread_does_what_its_caller_would() {
        let cancel = interrupt::Cancel::default();
        for mut workers in [Workers::<Rc<()>>::new(2, 3).unwrap(), Workers::standby().unwrap()] {
            let threads = if workers.is_standby() { 1 } else { 3 };
            workers.run(&|_, state| *state = Some(Rc::new(())));
            let here = std::thread::current().id();
            let _ = profile::take();
            let limits = Limits { cancel: cancel.clone(), deadline: None };
            let _entered = limits.enter();
            let mut borrowed = 0;
            let found = workers.first(|| {
                assert!(std::thread::current().id() != here && rayon::current_num_threads() == threads);
                assert!(interrupt::limits().is_some());
                let _clock = profile::begin(profile::SetupPart::Device);
                std::thread::sleep(Duration::from_millis(1));
                borrowed += 1;
                "found"
            });
            assert!(found == "found" && borrowed == 1);
            assert!(profile::take().of(profile::SetupPart::Device) > 0.0);
            let raised = catch_unwind(AssertUnwindSafe(|| workers.first(|| panic!("a test of ours"))));
            assert_eq!(raised.unwrap_err().downcast_ref(), Some(&"a test of ours"));
            workers.run(&|_, state| assert!(state.is_some()));
        }
    }

    #[test]
    fn a_command_that_panics_loses_its_state_alone() {
        let mut workers: Workers<Rc<()>> = Workers::new(2, 1).unwrap();
        workers.run(&|_, state| *state = Some(Rc::new(())));
        workers.run(&|number, _| assert!(number == 0, "a test of ours"));
        workers.run(&|number, state| assert_eq!(state.is_some(), number == 0));
    }
}

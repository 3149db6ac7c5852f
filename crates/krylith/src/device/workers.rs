//! Threads that last as long as a solver, each with a state that never leaves it.
//!
//! Spaces, operators and recorded graphs belong to the thread that made them. [`Workers::run`] hands the same borrowed closure
//! to every thread, with its number and its state, and returns when all are done: what the closure borrows is not copied, and
//! nothing is allocated.

use super::standby;
use crate::waiting::{gpus_are_given_up, join};
use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// What every thread runs: its number, and its state if it has one.
pub(crate) type Command<'a, T> = dyn Fn(usize, &mut Option<T>) + Sync + 'a;

/// What the caller's thread does now and then while it waits.
pub(crate) type Waiting = Box<dyn FnMut() + Send>;

/// Between two such times: long beside what it costs, and short for who waits at a keyboard.
const EVERY: Duration = Duration::from_millis(50);

/// How long a thread for small systems and its caller look out for each other.
const PATIENCE: Duration = Duration::from_micros(50);

/// Threads with a `T` each, which starts as `None` and is dropped on its thread.
pub(crate) struct Workers<T: 'static> {
    shared: Arc<Shared<T>>,
    threads: Vec<Thread>,
    pub waiting: Option<Waiting>,
}

enum Thread {
    Own(JoinHandle<()>),
    /// One that stands by again when this says so.
    Lent(Receiver<()>),
}

struct Shared<T: 'static> {
    command: UnsafeCell<Option<*const Command<'static, T>>>,
    turn: Mutex<Turn>,
    /// A command is there, or none comes any more.
    begin: Condvar,
    /// The last thread is done.
    done: Condvar,
    /// How long either side looks out for the other before it sleeps.
    patience: Duration,
    /// [`Turn::given`] and [`Turn::busy`], to be looked at without the lock; what they say is looked up under it.
    given: AtomicU64,
    busy: AtomicUsize,
}

#[derive(Default)]
struct Turn {
    /// Commands given so far.
    given: u64,
    /// Threads that are not done with the last one.
    busy: usize,
    stop: bool,
}

// SAFETY: the command is written while no thread runs one, and read by threads after `given` was raised under the lock.
unsafe impl<T> Sync for Shared<T> {}
// SAFETY: as above; the pointer is only followed inside `Workers::run`, while what it points to is alive. A state is made, used
// and dropped on its own thread, so `T` need not be `Send`.
unsafe impl<T> Send for Shared<T> {}

impl<T> Shared<T> {
    /// Waits a little for what is seldom long in coming: to wake a thread takes longer than a small solve.
    fn look_out(&self, is_there: impl Fn() -> bool) {
        if self.patience.is_zero() {
            return;
        }
        let begin = Instant::now();
        while !is_there() && begin.elapsed() < self.patience {
            std::thread::yield_now(); // where there is but one core, it is the other's
        }
    }

    fn turn(&self) -> MutexGuard<'_, Turn> {
        self.turn.lock().unwrap_or_else(|e| e.into_inner())
    }
}

impl<T: 'static> Workers<T> {
    /// Starts `count` threads, named after what they serve.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(crate) fn new(count: usize, name: &str) -> std::io::Result<Self> {
        Self::patient(count, name, Duration::ZERO)
    }

    fn patient(count: usize, name: &str, patience: Duration) -> std::io::Result<Self> {
        let shared = Arc::new(Shared {
            command: UnsafeCell::new(None),
            turn: Mutex::default(),
            begin: Condvar::new(),
            done: Condvar::new(),
            patience,
            given: AtomicU64::new(0),
            busy: AtomicUsize::new(0),
        });
        let mut workers = Self { shared, threads: Vec::with_capacity(count), waiting: None };
        for number in 0..count {
            let shared = workers.shared.clone();
            let thread = std::thread::Builder::new().name(format!("{name}-{number}"));
            workers.threads.push(Thread::Own(thread.spawn(move || work(&shared, number))?));
        }
        Ok(workers)
    }

    /// One thread that stood by, whose parallel loops it does alone: for what is so small that a thread takes longer to start, and
    /// others longer to wake, than the work. Where none is left, a thread as any other.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(crate) fn standby(name: &str) -> std::io::Result<Self> {
        let mut workers = Self::patient(0, name, PATIENCE)?;
        let shared = workers.shared.clone();
        match standby::lend(Box::new(move || work(&shared, 0))) {
            Some(end) => workers.threads.push(Thread::Lent(end)),
            None => return Self::new(1, name),
        }
        Ok(workers)
    }

    /// Runs `command` on every thread and waits for all of them. A command must not panic; one that does has its state dropped.
    pub(crate) fn run(&mut self, command: &Command<'_, T>) {
        let command: *const Command<'_, T> = command;
        // SAFETY: the lifetime is erased; every thread is done with the command before this function returns.
        let command: *const Command<'static, T> = unsafe { std::mem::transmute(command) };
        // SAFETY: `&mut self`, and the last command has been waited for: no thread reads this now.
        unsafe { *self.shared.command.get() = Some(command) };
        let mut turn = self.shared.turn();
        turn.given += 1;
        turn.busy = self.threads.len();
        self.shared.busy.store(turn.busy, Relaxed);
        self.shared.given.store(turn.given, Relaxed);
        self.shared.begin.notify_all();
        if !self.shared.patience.is_zero() {
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
                // Threads still use the command: nothing may leave this function before them.
                if catch_unwind(AssertUnwindSafe(&mut *waiting)).is_err() {
                    self.waiting = None;
                }
                turn = self.shared.turn();
            }
        }
    }

    /// Ends the threads, which drop their states; then there are none.
    pub(crate) fn stop(&mut self) {
        self.shared.turn().stop = true;
        self.shared.given.store(u64::MAX, Relaxed); // whoever looks out sees that there is something
        self.shared.begin.notify_all();
        for thread in self.threads.drain(..) {
            match thread {
                // A state that panics when it is dropped has said so; one whose GPU does not answer may wait for it.
                Thread::Own(thread) if gpus_are_given_up() => join(thread, "the threads of a solver"),
                Thread::Own(thread) => drop(thread.join()),
                Thread::Lent(end) => drop(end.recv()),
            }
        }
    }
}

impl<T: 'static> Drop for Workers<T> {
    fn drop(&mut self) {
        self.stop();
    }
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
        // SAFETY: the caller stored a live command before it raised `given`, and waits until all are done with it.
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
            // An Rc cannot travel; it counts the commands that its thread has run.
            let mut workers: Workers<Rc<UnsafeCell<usize>>> = Workers::new(count, "test").unwrap();
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
            let mut workers: Workers<Rc<()>> = Workers::standby("test").unwrap();
            let told = Mutex::new(None);
            workers.run(&|number, state| {
                assert!(number == 0 && state.is_none(), "round {round}");
                *state = Some(Rc::new(()));
                // Nobody else is woken: all is done here.
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
        let mut workers: Workers<()> = Workers::new(2, "test").unwrap();
        let called = Arc::new(Mutex::new(0));
        let count = called.clone();
        workers.waiting = Some(Box::new(move || *count.lock().unwrap() += 1));
        workers.run(&|_, _| {});
        assert_eq!(*called.lock().unwrap(), 0);
        // The command goes on until the caller was called.
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
    fn a_command_that_panics_loses_its_state_alone() {
        let mut workers: Workers<Rc<()>> = Workers::new(2, "test").unwrap();
        workers.run(&|_, state| *state = Some(Rc::new(())));
        workers.run(&|number, _| assert!(number == 0, "a test of ours"));
        workers.run(&|number, state| assert_eq!(state.is_some(), number == 0));
    }
}

//! Threads that last as long as a solver, each with a state that never leaves it.
//!
//! Spaces, operators and recorded graphs belong to the thread that made them. [`Workers::run`] hands the same borrowed closure
//! to every thread, with its number and its state, and returns when all are done: what the closure borrows is not copied, and
//! nothing is allocated.

use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

/// What every thread runs: its number, and its state if it has one.
pub(crate) type Command<'a, T> = dyn Fn(usize, &mut Option<T>) + Sync + 'a;

/// What the caller's thread does now and then while it waits.
pub(crate) type Waiting = Box<dyn FnMut() + Send>;

/// Between two such times: long beside what it costs, and short for who waits at a keyboard.
const EVERY: Duration = Duration::from_millis(50);

/// Threads with a `T` each, which starts as `None` and is dropped on its thread.
pub(crate) struct Workers<T: 'static> {
    shared: Arc<Shared<T>>,
    threads: Vec<JoinHandle<()>>,
    pub waiting: Option<Waiting>,
}

struct Shared<T: 'static> {
    command: UnsafeCell<Option<*const Command<'static, T>>>,
    turn: Mutex<Turn>,
    /// A command is there, or none comes any more.
    begin: Condvar,
    /// The last thread is done.
    done: Condvar,
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
        let shared = Arc::new(Shared {
            command: UnsafeCell::new(None),
            turn: Mutex::default(),
            begin: Condvar::new(),
            done: Condvar::new(),
        });
        let mut workers = Self { shared, threads: Vec::with_capacity(count), waiting: None };
        for number in 0..count {
            let shared = workers.shared.clone();
            let thread = std::thread::Builder::new().name(format!("{name}-{number}"));
            workers.threads.push(thread.spawn(move || work(&shared, number))?);
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
        self.shared.begin.notify_all();
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
        self.shared.begin.notify_all();
        for thread in self.threads.drain(..) {
            let _ = thread.join(); // a state that panics when it is dropped has said so
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
        if turn.busy == 0 {
            shared.done.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
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

//! The threads of a solver: one for each device, with the problem's part on it; and the way a command goes to all of them.

use super::attempt::Engine;
use super::device::{self, Choice};
use super::parts::Parts;
use super::queue::{self, Hold, Queue};
use crate::comm::Communicator;
use crate::device::workers::{Waiting, Workers};
use crate::interrupt::{self, Limits};
use crate::options::Options;
use crate::problem::Problem;
use crate::profile::{self, SetupPart};
use crate::{Error, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// What one thread holds.
pub(super) struct Seat {
    pub engine: Box<dyn Engine>,
    /// Own rows of b and x, where this process drives several devices and a device's rows do not follow one another; made by the first
    /// solve.
    pub own: [Vec<f64>; 2],
}

/// A command to one thread: its number, and its seat once that was made.
pub(super) type Command<'a> = dyn Fn(usize, &mut Option<Seat>) -> Result<()> + Sync + 'a;

/// All threads of a solver.
pub(super) struct Crew {
    /// Each GPU's part, where this process drives several.
    pub parts: Option<Parts>,
    workers: Workers<Seat>,
    queues: Vec<Arc<Queue>>,
    /// The ranks of this process, to be told of a failure.
    team: Vec<Arc<dyn Communicator>>,
    /// How the last command failed, by thread.
    errors: Vec<Mutex<Option<Error>>>,
    /// A failure has left ranks out of step.
    pub lost: bool,
}

impl Crew {
    /// Starts the threads that a device of the host would have; they have no seats yet. Collective.
    pub fn new(problem: &Problem, options: &Options, waiting: Option<Waiting>) -> Result<Self> {
        let mut workers = device::first_workers(problem, options)?;
        workers.waiting = waiting;
        let (queues, team, errors) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { parts: None, workers, queues, team, errors, lost: false })
    }

    /// Opens the devices of a choice, each on a thread, in place of those that are open. Collective.
    pub fn open(&mut self, problem: &Problem, options: &Arc<Options>, choice: &Choice) -> Result<()> {
        let ordinals = choice.together(problem.comm.size());
        let parts = match ordinals {
            [] => None,
            _ => {
                let _cutting = profile::begin(SetupPart::Subdomains);
                Some(self.first(|| Parts::new(problem, options, ordinals))?)
            }
        };
        let choice = match (choice, &parts) {
            (Choice::Cuda { ordinals, reason }, Some(parts)) => {
                Choice::Cuda { ordinals: ordinals.clone(), reason: format!("{reason}; {}", parts.reason) }
            }
            (choice, _) => choice.clone(),
        };
        let count = ordinals.len().max(1);
        // GPUs share the threads of the host, and none is driven by a thread that stands by.
        let is_other = self.workers.count() != count;
        if is_other || matches!(choice, Choice::Cuda { .. }) && self.workers.is_standby() {
            let waiting = self.workers.waiting.take();
            self.workers.stop();
            self.workers = device::workers(problem, options, count)?;
            self.workers.waiting = waiting;
        }
        // Where a failure ends the whole job, it is the caller's to say so: it may want to print the reason before.
        let own = || if problem.comm.outlives_failure() { vec![problem.comm.clone()] } else { Vec::new() };
        self.team = parts.as_ref().map_or_else(own, |parts| parts.team());
        self.errors = (0..count).map(|_| Mutex::new(None)).collect();
        (self.queues, self.lost) = (queue::of(ordinals), false);
        let limits = interrupt::limits();
        self.command(&|number, seat| {
            let _entered = limits.as_ref().map(Limits::enter);
            let open = |own, local: &_, comm: &_| device::open(&choice, own, local, comm, options);
            let engine = match &parts {
                None => open(None, &problem.part_of_one(), &problem.comm)?,
                Some(parts) => {
                    open(Some(ordinals[number]), &parts.local(number, problem), parts.comm(number))?
                }
            };
            *seat = Some(Seat { engine, own: [Vec::new(), Vec::new()] });
            Ok(())
        })?;
        self.parts = parts;
        Ok(())
    }

    /// What the caller's thread does now and then while it waits for commands.
    pub fn while_waiting(&mut self, call: Option<Waiting>) {
        self.workers.waiting = call;
    }

    /// Runs `work` on the first worker, its loops on the solver's threads, and waits.
    pub fn first<R: Send>(&mut self, work: impl FnOnce() -> R + Send) -> R {
        self.workers.first(work)
    }

    /// Runs a command on every thread. A thread that fails ends the waits of the others; the error is that of the thread
    /// that failed by itself. Allocates nothing where none fails.
    pub fn command(&mut self, command: &Command<'_>) -> Result<()> {
        let _hold = Hold::take(&self.queues);
        let (errors, team, lost) = (&self.errors, &self.team, AtomicBool::new(false));
        self.workers.run(&|number, seat| {
            let done = catch_unwind(AssertUnwindSafe(|| command(number, seat)));
            let (error, broken) = match done {
                Ok(Ok(())) => return,
                Ok(Err(e)) => (e, seat.as_ref().is_none_or(|seat| seat.engine.is_lost())),
                Err(panic) => {
                    *seat = None;
                    (Error::of_panic(&*panic), true)
                }
            };
            if broken {
                lost.store(true, Relaxed);
                if let Some(comm) = team.get(number) {
                    comm.fail(&error.to_string());
                }
            }
            *errors[number].lock().unwrap_or_else(|e| e.into_inner()) = Some(error);
        });
        self.lost |= lost.into_inner();
        let mut root: Option<Error> = None;
        for error in &self.errors {
            let error = error.lock().unwrap_or_else(|e| e.into_inner()).take();
            // One that is about another rank follows from that rank's own.
            let follows = matches!(root, None | Some(Error::Rank { .. }));
            if error.is_some() && follows && (root.is_none() || !matches!(error, Some(Error::Rank { .. }))) {
                root = error;
            }
        }
        root.map_or(Ok(()), Err)
    }
}

impl Drop for Crew {
    /// What is on the devices goes while nobody else uses them.
    fn drop(&mut self) {
        let _hold = Hold::take(&self.queues);
        self.workers.stop();
    }
}

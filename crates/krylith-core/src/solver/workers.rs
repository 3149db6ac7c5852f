//! The worker threads of a solver, and commands to all of them. Each thread drives one device with its part
//! of the problem.

use super::attempt::Engine;
use super::device::{self, Choice};
use super::parts::Parts;
use super::queue::{self, Hold, Queue};
use crate::comm::{Communicator, free_released};
use crate::device::workers::{Waiting, Workers};
use crate::interrupt::{self, Limits};
use crate::options::Options;
use crate::problem::Problem;
use crate::profile::{self, SetupPart};
use crate::{Error, Result};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

/// State of one worker thread.
pub(super) struct Worker {
    pub engine: Box<dyn Engine>,
    /// Own rows of b and x, if this process drives several devices whose rows are not contiguous. The first
    /// solve allocates them.
    pub own: [Vec<f64>; 2],
}

/// A command to one thread. Arguments: the number of the thread, and its state once that exists.
pub(super) type Command<'a> = dyn Fn(usize, &mut Option<Worker>) -> Result<()> + Sync + 'a;

/// All threads of a solver.
pub(super) struct WorkerGroup {
    /// The part of each GPU, if this process drives several GPUs.
    pub parts: Option<Parts>,
    workers: Workers<Worker>,
    queues: Vec<Arc<Queue>>,
    /// Communicators of the ranks of this process, to notify of a failure.
    team: Vec<Arc<dyn Communicator>>,
    /// Errors of the last command, by thread.
    errors: Vec<Mutex<Option<Error>>>,
    /// True after a failure that left ranks at different steps.
    pub lost: bool,
}

impl WorkerGroup {
    /// Starts the threads that a host device would use. They have no state yet. Collective.
    pub fn new(problem: &Problem, options: &Options, waiting: Option<Waiting>) -> Result<Self> {
        free_released(&*problem.comm)?;
        let mut workers = device::first_workers(problem, options)?;
        workers.waiting = waiting;
        let (queues, team, errors) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { parts: None, workers, queues, team, errors, lost: false })
    }

    /// Starts one idle thread, for a rank that does not solve itself.
    pub fn standby(waiting: Option<Waiting>) -> Result<Self> {
        let mut workers = Workers::standby()?;
        workers.waiting = waiting;
        let (queues, team, errors) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { parts: None, workers, queues, team, errors, lost: false })
    }

    /// Opens the chosen devices, each on its own thread, and closes devices that were open before.
    /// Collective.
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
        // GPUs share the host threads, and a single idle thread cannot drive them.
        let is_other = self.workers.count() != count;
        if is_other || matches!(choice, Choice::Cuda { .. }) && self.workers.is_standby() {
            let waiting = self.workers.waiting.take();
            self.workers.stop();
            self.workers = device::workers(problem, options, count)?;
            self.workers.waiting = waiting;
        }
        // If a failure ends the whole job, the caller decides when. It may print the reason first.
        let own = || if problem.comm.outlives_failure() { vec![problem.comm.clone()] } else { Vec::new() };
        self.team = parts.as_ref().map_or_else(own, |parts| parts.team());
        self.errors = (0..count).map(|_| Mutex::new(None)).collect();
        (self.queues, self.lost) = (queue::of(ordinals), false);
        let limits = interrupt::limits();
        self.command(&|number, worker| {
            let _entered = limits.as_ref().map(Limits::enter);
            let open = |own, local: &_, comm: &_| device::open(&choice, own, local, comm, options);
            let engine = match &parts {
                None => open(None, &problem.part_of_one(), &problem.comm)?,
                Some(parts) => {
                    open(Some(ordinals[number]), &parts.local(number, problem), parts.comm(number))?
                }
            };
            *worker = Some(Worker { engine, own: [Vec::new(), Vec::new()] });
            Ok(())
        })?;
        self.parts = parts;
        Ok(())
    }

    /// Sets a function that the caller's thread calls periodically while it waits for commands.
    pub fn while_waiting(&mut self, call: Option<Waiting>) {
        self.workers.waiting = call;
    }

    /// Runs `work` on the first worker, and waits. Parallel loops in `work` use all of the solver's threads.
    pub fn first<R: Send>(&mut self, work: impl FnOnce() -> R + Send) -> R {
        self.workers.first(work)
    }

    /// Runs a command on every thread. A thread that fails ends the waits of the others. The error that is
    /// returned is the root cause. Allocates nothing unless a thread fails.
    pub fn command(&mut self, command: &Command<'_>) -> Result<()> {
        let _hold = Hold::take(&self.queues);
        let (errors, team, lost) = (&self.errors, &self.team, AtomicBool::new(false));
        self.workers.run(&|number, worker| {
            let done = catch_unwind(AssertUnwindSafe(|| command(number, worker)));
            let (error, broken) = match done {
                Ok(Ok(())) => return,
                Ok(Err(e)) => (e, worker.as_ref().is_none_or(|worker| worker.engine.is_lost())),
                Err(panic) => {
                    *worker = None;
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
            // An error about another rank follows from that rank's own error.
            let follows = matches!(root, None | Some(Error::Rank { .. }));
            if error.is_some() && follows && (root.is_none() || !matches!(error, Some(Error::Rank { .. }))) {
                root = error;
            }
        }
        root.map_or(Ok(()), Err)
    }
}

impl Drop for WorkerGroup {
    /// Frees device memory while no other solver uses the devices.
    fn drop(&mut self) {
        let _hold = Hold::take(&self.queues);
        self.workers.stop();
    }
}

//! A whole solve: what the command line and Rust programs call.
//!
//! The way is straight: options are settled, a device is picked, block rows are given to its GPUs, each on a thread of its
//! own ([`Solver`]), the ladder of attempts is made (`ladder`), and every solve climbs it as far as it must (`attempt`).
//!
//! [`solve`] is one call, [`Solver`] is for many; [`Solution`] says how a solve went. Before one, [`Diagnosis`] tells what is wrong with a
//! system, [`Plan`] what would be tried, and [`Memory`] what that takes. [`solve_functions`] solves with operators that are functions.
//!
//! A user waits for the set-up too. So no step before the first iteration passes over a matrix with one
//! thread, if many threads or the GPU can do it. Direct factors, METIS and the matching are exceptions.
//! [`SetupParts`] says where the seconds went.

#[cfg(feature = "cuda")]
mod ahead;
mod apply;
mod attempt;
mod bandwidth;
mod build;
mod crew;
mod crowded;
mod device;
mod diagnosis;
mod estimate;
mod experience;
mod functions;
pub mod host;
pub(crate) mod ladder;
mod null_space;
mod parts;
mod plan;
mod queue;
mod refine;
mod rows;
mod solution;
mod survey;
mod symmetric;
mod update;
mod watch;
mod zeros;

pub use crate::interrupt::Cancel;
pub use crate::operator::OriginalSystem;
pub use crate::profile::{SetupPart, SetupParts};
pub use device::{Opening, check as check_gpus, open_ahead};
pub use diagnosis::{Diagnosis, Floor, Indices};
pub use functions::{Function, solve_functions};
pub use ladder::Memory;
pub use null_space::Constants;
pub use plan::{Plan, PlannedAttempt};
pub use solution::{DeviceUsed, Event, EventKind, Solution};
pub use survey::{Extent, Survey};
pub use update::Refresh;

use crate::halo::RowNumbers;
use crate::interrupt::Limits;
use crate::memory::{Numbers, NumbersMut};
use crate::operator::{PointBlockSum, Terms};
use crate::options::{DeviceSpec, Options};
use crate::precond::{BlockDiagonal, Coarsen, Factors, SchwarzFactors, SubdomainFactors, TileFactors};
use crate::problem::Problem;
use crate::profile;
use crate::space::Transfer;
use crate::space::{Observer, Stop};
use crate::{Error, Result};
use apply::on_parts;
use crew::Crew;
use device::Choice;
use rayon::prelude::*;
use rows::Rows;
use std::sync::Arc;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};
use watch::Run;
use zeros::Dropped;

/// A device on which every method and preconditioner runs.
///
/// # Examples
/// What works on every device has it as its bound.
/// ```
/// use krylith::device::Cpu;
/// use krylith::operator::{LinearOperator, Terms};
/// use krylith::{Precision, matrix::Csr, precond::BlockJacobi};
/// use krylith_core::solver::SolverSpace;
/// /// One step of Jacobi's method, x ← D⁻¹ b, wherever `space` is.
/// fn jacobi<S: SolverSpace>(space: &S, a: &Csr, b: &[f64]) -> krylith::Result<Vec<f64>> {
///     let d = BlockJacobi::new(space, &Terms::csr(a)?, Precision::F64)?;
///     let (mut rhs, mut x, mut host) = (space.vector()?, space.vector()?, vec![0.0; b.len()]);
///     space.write(b, &mut rhs)?;
///     d.apply(space, &rhs, &mut x)?;
///     space.read(&x, &mut host)?;
///     Ok(host)
/// }
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 1.0), (1, 1, 4.0)])?;
/// assert_eq!(jacobi(&Cpu::new(2, 1), &a, &[2.0, 2.0])?, [1.0, 0.5]);
/// # Ok::<(), krylith::Error>(())
/// ```
pub trait SolverSpace:
    PointBlockSum
    + BlockDiagonal
    + SubdomainFactors
    + TileFactors
    + SchwarzFactors
    + Coarsen
    + Transfer
    + Sized
    + 'static
{
    /// Bytes a second that it reads, measured now.
    fn read_bandwidth(&self) -> Option<f64> {
        None
    }
    /// True where small systems wait for launches.
    fn is_gpu(&self) -> bool {
        false
    }
    /// Bytes that it holds, where it counts them.
    fn memory_held(&self) -> Option<u64> {
        None
    }
    /// One pass over the entries of this rank's rows. Collective.
    ///
    /// # Errors
    /// A rank that is gone or failed.
    fn survey(&self, terms: &Terms) -> Result<Survey> {
        survey::survey(terms, self.comm())
    }
    /// Scale factors of this rank's rows, and the scaled terms. Collective; an error is every rank's.
    ///
    /// # Errors
    /// An entry that overflows; a rank that is gone or failed.
    fn equilibrate(&self, terms: &Terms) -> Result<(Factors<Self>, Terms<'static>)> {
        Factors::on_host(self, terms)
    }
    /// Random numbers in (−1, 1): number i of node n is that of the index `numbers[n]·order + i`, or of its own place.
    ///
    /// # Errors
    /// A device without room.
    fn random(
        &self,
        seed: u64,
        numbers: Option<RowNumbers>,
        order: usize,
        to: &mut Self::Vector,
    ) -> Result<()> {
        let Some(numbers) = numbers else { return self.fill_random(seed, to) };
        let index = |i: usize| numbers.at(i / order) * order as u64 + (i % order) as u64;
        let all = (0..self.len()).into_par_iter().with_min_len(1 << 14);
        let host: Vec<f64> = all.map(|i| symmetric::random(seed, index(i))).collect();
        self.write(&host, to)
    }
}

/// Solves A x = b: device, method and preconditioner are picked, and named in the solution.
///
/// For many right-hand sides, or many matrices of one pattern, make a [`Solver`].
///
/// # Errors
/// A matrix that is not square, a b of another length, a device that fails. Non-convergence is an
/// [`Outcome`](crate::Outcome).
///
/// ```
/// use krylith::matrix::Csr;
/// let a = Csr::from_triplets(3, 3, &[(0, 0, 4.0), (0, 1, -1.0), (1, 1, 4.0), (1, 2, -1.0), (2, 2, 4.0)])?;
/// let solution = krylith::solve(&a, &[3.0, 3.0, 4.0])?;
/// assert!(solution.converged());
/// assert!(solution.x.iter().all(|x| (x - 1.0).abs() < 1e-5));
/// # Ok::<(), krylith::Error>(())
/// ```
pub fn solve<'a>(a: impl TryInto<Problem<'a>, Error: Into<Error>>, b: &[f64]) -> Result<Solution> {
    let mut solver = Solver::new(a, &Options::default())?;
    let mut x = vec![0.0; b.len()];
    solver.solve(b, &mut x)?;
    Ok(Solution { x, ..solver.solution.clone() })
}

/// A problem on its device, ready to be solved many times.
///
/// Everything that the pattern, the device and the options determine is found out once, in [`new`](Self::new). Solves and new
/// values ([`update_values`](Self::update_values), [`set_tau`](Self::set_tau)) then allocate nothing and compile nothing, as
/// long as matrices are stored in f64 and one attempt is enough.
///
/// It is a handle to threads, one for each device, that live as long as it does and own what is on the devices; so it can be
/// sent to another thread. Solvers that use the same several GPUs take turns.
///
/// # Examples
/// ```
/// use krylith::{Options, Solver, matrix::Csr};
/// let triplets = [(0, 0, 2.0), (0, 1, 1.0), (1, 0, 1.0), (1, 1, 3.0)];
/// let a = Csr::from_triplets(2, 2, &triplets)?;
/// let mut solver = Solver::new(&a, &"method=gmres:restart=50 precond=ildu:fill=1 rtol=1e-8".parse()?)?;
/// let mut x = vec![0.0; 2];
/// let solution = solver.solve(&[3.0, 4.0], &mut x)?;
/// assert!(solution.converged());
/// solver.update_values(&[4.0, 2.0, 2.0, 6.0])?; // in the order of the matrix
/// solver.solve(&[3.0, 4.0], &mut x)?;
/// assert!((x[0] - 0.5).abs() < 1e-6 && (x[1] - 0.5).abs() < 1e-6);
/// # Ok::<(), krylith::Error>(())
/// ```
pub struct Solver<'a> {
    problem: Problem<'a>,
    /// Its stored zeros, where they were dropped.
    dropped: Option<Dropped<'a>>,
    crew: Crew,
    options: Arc<Options>,
    /// What the next solve tells of an update.
    pending: Option<Event>,
    /// Of these values, once it was asked for.
    rows: Option<Rows>,
    /// Values are others than those of the set-up.
    is_renewed: bool,
    /// Its rows were scaled to norm 1 already.
    is_scaled: bool,
    stop: Stop,
    time_limit: Option<Duration>,
    cancel: Cancel,
    refresh: Refresh,
    solution: Solution,
    /// Of the set-up, what the caller's thread did.
    setup: SetupParts,
    /// New values of terms in blocks, where they come in the order of scalar matrices; made by the first.
    blocks: [Vec<f64>; 2],
    /// What the first solve will tell of its device, where that was left open.
    trial: Option<experience::Trial>,
    /// Why nothing can be solved any more.
    broken: Option<String>,
}

impl<'a> Solver<'a> {
    /// Picks a device, puts the problem there and sets up the first attempt. Collective where the problem is distributed.
    ///
    /// The problem may come by value, or by reference and be borrowed; a `&Csr`, `&Bsr` or `&KroneckerSum` is one.
    ///
    /// # Errors
    /// Options that do not fit each other or the problem; a preconditioner that is asked for by name and cannot be built; a
    /// device that is missing, has no room or fails.
    pub fn new(problem: impl TryInto<Problem<'a>, Error: Into<Error>>, options: &Options) -> Result<Self> {
        Self::new_watched(problem, options, &Cancel::default(), None)
    }

    /// As [`new`](Self::new), with a token that can end the set-up too, and something that the caller's thread does
    /// [meanwhile](Self::while_waiting). Both are the solver's from then on.
    ///
    /// # Errors
    /// As [`new`](Self::new); [`Error::Interrupted`] once the token is cancelled, on every rank alike.
    ///
    /// ```
    /// use krylith::{Options, Solver, matrix::Csr, solver::Cancel};
    /// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (1, 1, 3.0)])?;
    /// let cancel = Cancel::default();
    /// let stop = cancel.clone();
    /// let is_closed = || false; // whether the user has closed the window
    /// let waiting = Box::new(move || if is_closed() { stop.cancel() });
    /// let mut solver = Solver::new_watched(&a, &"device=cpu".parse()?, &cancel, Some(waiting))?;
    /// assert!(solver.solve(&[2.0, 3.0], &mut [0.0; 2])?.converged());
    /// # Ok::<(), krylith::Error>(())
    /// ```
    pub fn new_watched(
        problem: impl TryInto<Problem<'a>, Error: Into<Error>>,
        options: &Options,
        cancel: &Cancel,
        waiting: Option<Box<dyn FnMut() + Send>>,
    ) -> Result<Self> {
        let problem = problem.try_into().map_err(Into::into)?;
        let limits = Limits { cancel: cancel.clone(), deadline: None };
        let _entered = limits.enter();
        let options = Arc::new(options.settled()?);
        let stop = options.stop_of(problem.unknowns());
        let _ = profile::take(); // what an error has left
        let mut crew = Crew::new(&problem, &options, waiting)?;
        let (problem, dropped) = crew.first(|| zeros::without(problem, &options))?;
        let trial = device::trial(&problem, &options);
        let solution = engines(&problem, &options, &mut crew)?;
        tracing::info!(device = %solution.device.reason, names = ?solution.device.names, "device");
        Ok(Self {
            setup: profile::take(),
            blocks: Default::default(),
            problem,
            dropped,
            crew,
            options: options.clone(),
            pending: None,
            rows: None,
            is_renewed: false,
            is_scaled: false,
            stop,
            // More seconds than a duration holds are no limit.
            time_limit: options.time_limit.and_then(|limit| Duration::try_from_secs_f64(limit).ok()),
            cancel: cancel.clone(),
            refresh: Refresh::default(),
            trial: trial.map(|trial| experience::Trial { on_gpu: solution.device.kind == "cuda", ..trial }),
            solution,
            broken: None,
        })
    }

    /// Solves A x = b, starting from x, and overwrites x with the best solution found. Collective where the problem is distributed.
    ///
    /// Both may be on the host or in the memory of a GPU ([`memory`](crate::memory)); those in the memory of the GPU that
    /// solves never cross to the host, unless matrices are stored in f32 or several GPUs solve.
    ///
    /// # Errors
    /// Vectors of another length than [`Problem::own_len`], or with a number that is not finite, which is named; a device or a rank that
    /// fails. Non-convergence is an [`Outcome`](crate::Outcome).
    pub fn solve<'v>(
        &mut self,
        b: impl Into<Numbers<'v>>,
        x: impl Into<NumbersMut<'v>>,
    ) -> Result<&Solution> {
        self.solve_watched(b, x, &mut ())
    }

    /// As [`solve`](Self::solve), told of every iteration on a CPU, and of every cycle or batch of iterations on a GPU.
    ///
    /// # Errors
    /// As [`solve`](Self::solve).
    ///
    /// ```
    /// use krylith::{Options, Progress, Solver, matrix::Csr};
    /// use std::ops::ControlFlow;
    /// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 1.0), (1, 0, 1.0), (1, 1, 3.0)])?;
    /// let mut solver = Solver::new(&a, &"precond=none device=cpu".parse()?)?;
    /// let mut seen = Vec::new();
    /// solver.solve_watched(&[1.0, 1.0], &mut [0.0; 2], &mut |p: Progress| {
    ///     seen.push(p.relative_residual);
    ///     ControlFlow::Continue(())
    /// })?;
    /// assert_eq!(seen[0], 1.0);
    /// # Ok::<(), krylith::Error>(())
    /// ```
    pub fn solve_watched<'v>(
        &mut self,
        b: impl Into<Numbers<'v>>,
        x: impl Into<NumbersMut<'v>>,
        observer: &mut (dyn Observer + Send),
    ) -> Result<&Solution> {
        let (b, mut x) = (b.into(), x.into());
        self.check_whole()?;
        self.check_vectors([("b", b.len()), ("x", x.len())])?;
        self.check_finite([("b", b), ("x0", x.as_array())])?;
        let deadline = self.time_limit.and_then(|limit| Instant::now().checked_add(limit));
        let run = Run { stop: self.stop, limits: Limits { cancel: self.cancel.clone(), deadline } };
        let (watcher, answer) = (Mutex::new(Some(&mut *observer)), Mutex::new(&mut self.solution));
        let done =
            on_parts(&mut self.crew, &self.problem, b, x.reborrow(), &|number, engine, local, b, x| {
                // One thread watches; the others hear of an interrupt from it.
                let mut first = if number == 0 { lock(&watcher).take() } else { None };
                let observer: &mut dyn Observer = match &mut first {
                    Some(observer) => *observer,
                    None => &mut (),
                };
                engine.solve(local, &run, b, x, observer)?;
                if number == 0 {
                    lock(&answer).copy_from(engine.solution());
                }
                Ok(())
            });
        self.after(done)?;
        self.check_begun(b)?;
        let solution = &mut self.solution;
        solution.setup_parts.add(std::mem::take(&mut self.setup));
        solution.setup_seconds = solution.setup_parts.total();
        let dropped = self.dropped.as_ref().map(|d| Event::new(EventKind::Choice, None, d.note.clone()));
        let renamed = self.options.renamed.iter().map(|(old, new)| {
            let text = format!("option `{old}` is now called `{new}`; the next version refuses the old name");
            Event::new(EventKind::Warning, None, text)
        });
        solution.events.splice(0..0, renamed.chain(dropped).chain(self.pending.take()));
        let judged = self.judge_by_rows(b, &mut x, deadline, observer);
        self.after(judged)?;
        let solution = &mut self.solution;
        if let Some(trial) = self.trial.take().filter(|_| solution.converged()) {
            experience::note(&trial, solution.setup_seconds + solution.solve_seconds);
        }
        for event in &solution.events {
            tracing::debug!(kind = event.kind.name(), iteration = event.iteration, "{}", event.detail);
        }
        tracing::info!(
            outcome = solution.history.outcome.name(),
            iterations = solution.history.iterations,
            residual = solution.history.true_relative_residual,
            "solved"
        );
        Ok(solution)
    }

    /// Notes a failure after which ranks are out of step.
    fn after(&mut self, done: Result<()>) -> Result<()> {
        if let Err(e) = &done
            && self.crew.lost
        {
            self.broken = Some(e.to_string());
        }
        done
    }

    fn check_whole(&self) -> Result<()> {
        match &self.broken {
            None => Ok(()),
            Some(why) => Err(Error::invalid(format!("this solver failed before ({why}); make another"))),
        }
    }

    /// True once a solve has failed so that ranks are out of step: nothing can be solved any more, and where the caller
    /// brought a communicator, the other ranks may wait to be told ([`Communicator::fail`](crate::comm::Communicator::fail)).
    pub fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// How the last solve went.
    pub fn solution(&self) -> &Solution {
        &self.solution
    }

    /// The problem, with the values of the last update.
    pub fn problem(&self) -> &Problem<'a> {
        &self.problem
    }

    /// Tolerances and the limit of iterations of solves from now on.
    pub fn set_stop(&mut self, stop: Stop) {
        self.stop = stop;
    }

    /// The limit of time of each solve from now on; `None` lifts it.
    pub fn set_time_limit(&mut self, limit: Option<Duration>) {
        self.time_limit = limit;
    }

    /// What becomes of the preconditioner when values change, from now on.
    pub fn set_refresh(&mut self, refresh: Refresh) {
        self.refresh = refresh;
    }

    /// Something that the caller's thread does every 50 ms while it waits for a solve or an update, which run on threads of the
    /// solver's own: so a program that must look at its events, as an interpreter at its signals, needs no thread for that. It
    /// may [cancel](Self::cancel_token) the solve. `None` ends it, and so does a panic.
    ///
    /// ```
    /// use krylith::{Options, Solver, matrix::Csr};
    /// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (1, 1, 3.0)])?;
    /// let mut solver = Solver::new(&a, &"device=cpu".parse()?)?;
    /// let cancel = solver.cancel_token();
    /// let is_closed = || false; // whether the user has closed the window
    /// solver.while_waiting(Some(Box::new(move || if is_closed() { cancel.cancel() })));
    /// assert!(solver.solve(&[2.0, 3.0], &mut [0.0; 2])?.converged());
    /// # Ok::<(), krylith::Error>(())
    /// ```
    pub fn while_waiting(&mut self, call: Option<Box<dyn FnMut() + Send>>) {
        self.crew.while_waiting(call);
    }

    /// What stops a solve from another thread.
    pub fn cancel_token(&self) -> Cancel {
        self.cancel.clone()
    }

    /// ‖r_c‖/‖b‖ of r = b − A x for each component c, over all nodes, stages and ranks: on the host, from the values as
    /// given. Collective where the problem is distributed.
    ///
    /// # Errors
    /// A rank that is gone or failed.
    pub fn field_residuals(&mut self, b: &[f64], x: &[f64]) -> Result<Vec<f64>> {
        let original = self.problem.original();
        self.crew.first(|| {
            let norm = original.norm(b)?;
            let fields = original.by_field(&original.residual(b, x)?)?;
            Ok(fields.into_iter().map(|r| if norm > 0.0 { r / norm } else { r }).collect())
        })
    }

    /// Does something whose loops run on the threads of this solver, on one of them.
    pub(crate) fn first<R: Send>(&mut self, work: impl FnOnce() -> R + Send) -> R {
        self.crew.first(work)
    }

    /// Bytes a second that the devices read together, measured now, where that can be.
    pub fn read_bandwidth(&mut self) -> Option<f64> {
        let sum = Mutex::new(Some(0.0));
        let done = self.crew.command(&|_, seat| {
            let own = seat.as_ref().and_then(|seat| seat.engine.read_bandwidth());
            let mut sum = lock(&sum);
            *sum = sum.zip(own).map(|(sum, own)| sum + own);
            Ok(())
        });
        let size = self.problem.comm.size() as f64;
        done.ok().and_then(|()| sum.into_inner().ok().flatten()).map(|sum: f64| sum * size)
    }
}

/// Puts the problem on the devices of a solver's threads; how solutions begin. Collective.
fn engines(problem: &Problem, options: &Arc<Options>, crew: &mut Crew) -> Result<Solution> {
    let choice = device::choose(problem, options)?;
    let open = matches!(options.device, None | Some(DeviceSpec::Auto)) && problem.comm.size() == 1;
    match (&choice, crew.open(problem, options, &choice)) {
        (Choice::Cuda { .. }, Err(e)) if e.exit_code() == 3 && open => {
            let reason = format!("auto: the GPU failed, {e}");
            crew.open(problem, options, &Choice::Cpu { reason })?;
        }
        (_, opened) => opened?,
    }
    let told = Mutex::new(None);
    crew.command(&|number, seat| {
        if let (0, Some(seat)) = (number, seat) {
            *lock(&told) = Some(seat.engine.solution().clone());
        }
        Ok(())
    })?;
    let solution = told.into_inner().unwrap_or_else(|e| e.into_inner());
    solution.ok_or_else(|| Error::Internal("a solver without a thread".into()))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

fn lost_thread() -> Error {
    Error::Internal("a thread of this solver is gone".into())
}

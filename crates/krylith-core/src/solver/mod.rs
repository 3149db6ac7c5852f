//! Complete solves: the entry points for the command line and for Rust programs.
//!
//! A [`Solver`] settles the options, picks a device, and distributes block rows to its GPUs, each driven by
//! its own thread. It then lists the attempts to make (`fallbacks`), and each solve makes as many of them as
//! it needs (`attempt`).
//!
//! [`solve`] is for a single solve, and [`Solver`] for many. [`Solution`] describes the result of a solve.
//! Before a solve, [`Diagnosis`] reports defects of a system, [`Plan`] lists the attempts that would be made,
//! and [`Memory`] estimates the bytes that they need. [`solve_functions`] solves with operators given as
//! functions.
//!
//! Users wait for the set-up, too. So every step before the first iteration that passes over a matrix runs on
//! many threads or on the GPU. Direct factors, METIS and the matching are exceptions. [`SetupParts`] lists
//! the seconds of each part.

#[cfg(feature = "cuda")]
mod ahead;
mod analysis;
mod apply;
mod arrays;
mod attempt;
mod bandwidth;
mod build;
mod columns;
mod crowded;
mod device;
mod diagnosis;
mod estimate;
mod experience;
pub(crate) mod fallbacks;
mod fixed;
mod functions;
pub mod host;
mod host_criterion;
mod leaders;
mod null_space;
mod parts;
mod plan;
mod queue;
mod recognise;
mod refine;
mod request;
mod rows;
mod run;
mod solution;
mod symmetric;
mod transposed;
mod update;
mod watch;
mod workers;
mod zeros;

pub use crate::interrupt::Cancel;
pub use crate::operator::OriginalSystem;
pub use crate::profile::{SetupPart, SetupParts};
pub use analysis::{Extent, SystemAnalysis};
pub use device::{Opening, check as check_gpus, first_use, open_ahead};
pub(crate) use device::{gpu_for, vectors};
pub use diagnosis::{Diagnosis, Floor, Indices};
pub use fallbacks::Memory;
pub use functions::{Function, method_of_functions, solve_functions};
pub use null_space::Constants;
pub use plan::{Plan, PlannedAttempt};
pub use request::Request;
pub use solution::{DeviceUsed, Event, EventKind, Solution};
pub use update::Refresh;

use crate::halo::RowNumbers;
use crate::interrupt::Limits;
use crate::memory::{Numbers, NumbersMut};
use crate::operator::{FunctionOperator, PointBlockSum, SharedRows, Terms};
use crate::options::{DeviceSpec, Options};
use crate::precond::direct::DirectFactors;
use crate::precond::{
    BlockDiagonal, Coarsen, Factors, PatchProducts, SchwarzFactors, SubdomainFactors, TileFactors,
};
use crate::problem::Problem;
use crate::profile;
use crate::space::{Gather, Stop, Transfer};
use crate::{Error, Result};
use device::Choice;
use fixed::Fixed;
use leaders::Leaders;
use rayon::prelude::*;
use recognise::Prepared;
use rows::Rows;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use workers::WorkerGroup;
use zeros::Dropped;

/// A device on which every method and preconditioner runs.
///
/// # Examples
/// Code that works on every device uses it as a trait bound.
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
    + Gather
    + DirectFactors
    + PatchProducts
    + SharedRows
    + Sized
    + 'static
{
    /// Measures the read bandwidth in bytes per second; `None` if that is not possible.
    fn read_bandwidth(&self) -> Option<f64> {
        None
    }
    /// Returns true for a GPU, where kernel launches dominate the time of small systems.
    fn is_gpu(&self) -> bool {
        false
    }
    /// Calls a function of the caller, which is one for this device: `y ← f(x)`. Asynchronous on a GPU, where
    /// it may be recorded.
    ///
    /// # Errors
    /// Errors of the function.
    fn call(&self, _f: &FunctionOperator<'_>, _x: &Self::Vector, _y: &mut Self::Vector) -> Result<()> {
        Err(Error::Internal("a device without functions".into()))
    }
    /// Returns the bytes allocated on the device, if they are counted.
    fn memory_held(&self) -> Option<u64> {
        None
    }
    /// Analyses the entries of this rank's rows in one pass. Collective.
    ///
    /// # Errors
    /// A rank that has ended or failed.
    fn analyze(&self, terms: &Terms) -> Result<SystemAnalysis> {
        analysis::analyze(terms, self.comm())
    }
    /// Rules out constant null vectors by the row sums of this rank's rows, where the device has them: the
    /// bits of constants that are ruled out, and of those that have entries. Bit c is component c, and bit b
    /// all b > 1 components. `None` if the host has to look.
    ///
    /// # Errors
    /// Out of device memory.
    fn judge_constants(&self, _terms: &Terms) -> Result<Option<[u64; 2]>> {
        Ok(None)
    }
    /// Returns the share of couplings that convection dominates, as `symmetric::convective` does; `None` if
    /// the device does not count them.
    ///
    /// # Errors
    /// Out of device memory.
    fn convective(&self, _terms: &Terms) -> Result<Option<f64>> {
        Ok(None)
    }
    /// Counts the couplings between nodes in every `step`-th row of a single matrix that this device alone
    /// has, and those whose entries off the diagonal sum to more than `threshold` times those on it. `None`
    /// if the device does not count them.
    ///
    /// # Errors
    /// Out of device memory.
    fn mixed_couplings(&self, _terms: &Terms, _step: usize, _threshold: f64) -> Result<Option<[u64; 2]>> {
        Ok(None)
    }
    /// Computes scale factors of this rank's rows, and the scaled terms. Collective; every rank gets the same
    /// error.
    ///
    /// # Errors
    /// An entry that overflows; a rank that has ended or failed.
    fn equilibrate(&self, terms: &Terms) -> Result<(Factors<Self>, Terms<'static>)> {
        Factors::on_host(self, terms)
    }
    /// Fills `to` with random numbers in (−1, 1). Entry i of node n depends only on the seed and the index
    /// `numbers[n]·order + i`, or on its local index without `numbers`.
    ///
    /// # Errors
    /// Out of device memory.
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

/// Solves A x = b with automatic choice of device, method and preconditioner. The solution names the choices.
///
/// For many right-hand sides, or many matrices with the same pattern, create a [`Solver`].
///
/// # Errors
/// The matrix is not square, b has another length, or a device fails. Non-convergence is an
/// [`Outcome`](crate::Outcome), not an error.
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
/// [`new`](Self::new) does once all work that depends only on the pattern, the device and the options. Solves
/// and new values ([`update_values`](Self::update_values), [`set_tau`](Self::set_tau)) then neither allocate
/// nor compile, as long as matrices are stored in f64 and one attempt is enough.
///
/// A solver is a handle to worker threads, one per device, which own the device memory and live as long as
/// the solver. So a solver can be sent to another thread. Solvers of several GPUs each that have some GPUs in
/// common take turns.
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
    /// The problem with its stored zeros, if the solver dropped them.
    dropped: Option<Dropped<'a>>,
    /// The unknowns that rows with a diagonal alone fix, if the devices solve for the others.
    fixed: Option<Fixed<'a>>,
    /// A remark on what was recognised.
    recognised: Option<&'static str>,
    workers: WorkerGroup,
    options: Arc<Options>,
    /// Event of an update, to be reported by the next solve.
    pending: Option<Event>,
    /// Row norms of the current values, once they are computed.
    rows: Option<Rows>,
    /// True if values changed since the set-up.
    is_renewed: bool,
    /// True if the rows of the problem are already scaled to norm 1.
    is_scaled: bool,
    stop: Stop,
    time_limit: Option<Duration>,
    cancel: Cancel,
    refresh: Refresh,
    solution: Solution,
    /// Set-up times that the caller's thread measured.
    setup: SetupParts,
    /// Buffer for new values of terms in blocks if they are given in scalar order; allocated by the first
    /// update.
    blocks: [Vec<f64>; 2],
    /// Record of the first solve for `device=auto`.
    trial: Option<experience::Trial>,
    /// Number of the right-hand side that the next solve reports, if it was solved together with others.
    column: Option<usize>,
    /// A solver of the transposed system with a set-up of its own, where that of this solver does not do.
    adjoint: Option<Box<Solver<'static>>>,
    /// True if the solver has no matrix: it solves only with functions.
    is_without_matrix: bool,
    /// The ranks that solve for others, if rows gather on some ranks.
    leaders: Option<Box<Leaders>>,
    /// The failure after which this solver cannot be used any more.
    broken: Option<String>,
}

impl<'a> Solver<'a> {
    /// Picks a device, uploads the problem and sets up the first attempt. Collective where the problem is
    /// distributed.
    ///
    /// The problem may be given by value, or by reference, which borrows it. A `&Csr`, `&Bsr` or
    /// `&KroneckerSum` can be passed directly.
    ///
    /// # Errors
    /// Options that contradict each other or do not fit the problem; a preconditioner named in the options
    /// that cannot be built; a device that is missing, is out of memory or fails.
    pub fn new(problem: impl TryInto<Problem<'a>, Error: Into<Error>>, options: &Options) -> Result<Self> {
        Self::new_cancellable(problem, options, &Cancel::default(), None)
    }

    /// Creates a solver as [`new`](Self::new) does, with a token that can also cancel the set-up, and a
    /// callback for the [waiting caller](Self::while_waiting). The solver keeps both for later solves.
    ///
    /// # Errors
    /// As [`new`](Self::new); [`Error::Interrupted`] on every rank once the token is cancelled.
    ///
    /// ```
    /// use krylith::{Options, Solver, matrix::Csr, solver::Cancel};
    /// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (1, 1, 3.0)])?;
    /// let cancel = Cancel::default();
    /// let stop = cancel.clone();
    /// let is_closed = || false; // whether the user has closed the window
    /// let waiting = Box::new(move || if is_closed() { stop.cancel() });
    /// let mut solver = Solver::new_cancellable(&a, &"device=cpu".parse()?, &cancel, Some(waiting))?;
    /// assert!(solver.solve(&[2.0, 3.0], &mut [0.0; 2])?.converged());
    /// # Ok::<(), krylith::Error>(())
    /// ```
    pub fn new_cancellable(
        problem: impl TryInto<Problem<'a>, Error: Into<Error>>,
        options: &Options,
        cancel: &Cancel,
        mut waiting: Option<Box<dyn FnMut() + Send>>,
    ) -> Result<Self> {
        let mut problem = problem.try_into().map_err(Into::into)?;
        // New matrices of one solver do not reach another.
        problem.fields = Arc::new(problem.fields.apart());
        let limits = Limits { cancel: cancel.clone(), deadline: None };
        let _entered = limits.enter();
        let options = Arc::new(options.settled()?);
        let stop = options.stop_of(problem.unknowns());
        let _ = profile::take(); // discard the times of a failed set-up
        let problem = match Self::with_leaders(problem, &options, cancel, &mut waiting)? {
            Ok(solver) => return Ok(solver),
            Err(problem) => problem,
        };
        let mut workers = WorkerGroup::new(&problem, &options, waiting)?;
        let prepared = workers.first(|| recognise::prepared(problem, &options))?;
        let Prepared { problem, fixed, dropped, recognised } = prepared;
        let trial = device::trial(&problem, &options);
        let solution = engines(&problem, &options, &mut workers)?;
        tracing::info!(device = %solution.device.reason, names = ?solution.device.names, "device");
        Ok(Self {
            setup: profile::take(),
            blocks: Default::default(),
            problem,
            dropped,
            fixed,
            recognised,
            workers,
            options: options.clone(),
            pending: None,
            rows: None,
            is_renewed: false,
            is_scaled: false,
            stop,
            // A limit beyond the range of `Duration` is no limit.
            time_limit: options.time_limit.and_then(|limit| Duration::try_from_secs_f64(limit).ok()),
            cancel: cancel.clone(),
            refresh: Refresh::default(),
            trial: trial.map(|trial| experience::Trial { on_gpu: solution.device.kind == "cuda", ..trial }),
            solution,
            column: None,
            adjoint: None,
            leaders: None,
            is_without_matrix: false,
            broken: None,
        })
    }

    /// Solves A x = b, starting from x, and overwrites x with the best solution found. Collective where the
    /// problem is distributed.
    ///
    /// Both vectors may be on the host or in the memory of a GPU ([`memory`](crate::memory)). Vectors in the
    /// memory of the GPU that solves are not copied to the host, unless matrices are stored in f32, several
    /// GPUs solve, or rows with only a diagonal entry are solved first.
    ///
    /// # Errors
    /// A vector has another length than [`Problem::own_len`] or an entry that is not finite, which is named;
    /// a device or a rank fails. Non-convergence is an [`Outcome`](crate::Outcome), not an error.
    pub fn solve<'v>(
        &mut self,
        b: impl Into<Numbers<'v>>,
        x: impl Into<NumbersMut<'v>>,
    ) -> Result<&Solution> {
        self.run(false, b.into(), x.into(), &mut ())?;
        Ok(&self.solution)
    }

    /// Returns true after a failure that left ranks at different steps, so that this solver cannot be used
    /// any more. If the caller supplied the communicator, other ranks may still be waiting: notify them with
    /// [`Communicator::fail`](crate::comm::Communicator::fail).
    pub fn is_broken(&self) -> bool {
        self.broken.is_some()
    }

    /// Returns the result of the last solve.
    pub fn solution(&self) -> &Solution {
        &self.solution
    }

    /// Returns the problem, with the values of the last update.
    pub fn problem(&self) -> &Problem<'a> {
        self.fixed.as_ref().map_or(&self.problem, |fixed| &fixed.given)
    }

    /// Sets the tolerances and the iteration limit of later solves.
    pub fn set_stop(&mut self, stop: Stop) {
        self.stop = stop;
    }

    /// Sets the time limit of each later solve; `None` removes it.
    pub fn set_time_limit(&mut self, limit: Option<Duration>) {
        self.time_limit = limit;
    }

    /// Sets the treatment of the preconditioner in later updates of values.
    pub fn set_refresh(&mut self, refresh: Refresh) {
        self.refresh = refresh;
    }

    /// Sets a callback that the caller's thread runs every 50 ms while it waits for a solve or an update,
    /// which run on the solver's own threads. A program that must handle events, such as an interpreter that
    /// handles signals, then needs no extra thread. The callback may [cancel](Self::cancel_token) the solve.
    /// `None` removes the callback, and so does a panic in it.
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
        match self.inner() {
            Some(inner) => inner.while_waiting(call),
            None => self.workers.while_waiting(call),
        }
    }

    /// Returns a token that stops a solve from another thread.
    pub fn cancel_token(&self) -> Cancel {
        self.cancel.clone()
    }

    /// Returns the problem as it was given, with all that the solver has separated from it.
    pub(crate) fn whole(&self) -> &Problem<'a> {
        let stored = self.dropped.as_ref().map(|dropped| &dropped.whole);
        self.fixed.as_ref().map(|fixed| &fixed.given).or(stored).unwrap_or(&self.problem)
    }

    /// Runs `work` on one of the solver's threads. Parallel loops in `work` use all of them.
    pub(crate) fn first<R: Send>(&mut self, work: impl FnOnce() -> R + Send) -> R {
        self.workers.first(work)
    }

    /// Measures the total read bandwidth of the devices in bytes per second; `None` if that is not possible.
    pub fn read_bandwidth(&mut self) -> Option<f64> {
        let sum = Mutex::new(Some(0.0));
        let done = self.workers.command(&|_, worker| {
            let own = worker.as_ref().and_then(|worker| worker.engine.read_bandwidth());
            let mut sum = lock(&sum);
            *sum = sum.zip(own).map(|(sum, own)| sum + own);
            Ok(())
        });
        let size = self.problem.comm.size() as f64;
        done.ok().and_then(|()| sum.into_inner().ok().flatten()).map(|sum: f64| sum * size)
    }
}

/// Uploads the problem to the devices of a solver's threads, and returns the initial [`Solution`].
/// Collective.
fn engines(problem: &Problem, options: &Arc<Options>, workers: &mut WorkerGroup) -> Result<Solution> {
    let choice = device::choose(problem, options)?;
    let open = matches!(options.device, None | Some(DeviceSpec::Auto)) && problem.comm.size() == 1;
    match (&choice, workers.open(problem, options, &choice)) {
        (Choice::Cuda { .. }, Err(e)) if e.exit_code() == 3 && open => {
            let reason = format!("auto: the CPU, because the GPU failed: {e}");
            workers.open(problem, options, &Choice::Cpu { reason })?;
        }
        (_, opened) => opened?,
    }
    let told = Mutex::new(None);
    workers.command(&|number, worker| {
        if let (0, Some(worker)) = (number, worker) {
            *lock(&told) = Some(worker.engine.solution(false).clone());
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

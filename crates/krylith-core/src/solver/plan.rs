//! What a solve would try, and where, without trying it.

use super::diagnosis::Diagnosis;
use super::ladder::{self, Memory, Seen};
use super::{device, symmetric};
use crate::device::cpu::Cpu;
use crate::method::{MethodName, MethodSpec};
use crate::operator::PointBlock;
use crate::options::Options;
use crate::precond::PrecondSpec;
use crate::problem::Problem;
use crate::{Error, Result};

/// The device and the attempts of a solve with some options.
///
/// # Examples
/// ```
/// use krylith::{Options, Problem, matrix::Csr, solver::Plan};
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 1.0), (1, 0, 1.0), (1, 1, 3.0)])?;
/// let problem = Problem::csr(&a)?;
/// let plan = Plan::of(&problem, &problem.diagnosis()?, &"device=cpu".parse()?)?;
/// assert!(plan.symmetric && !plan.equilibrate);
/// assert_eq!(plan.attempts[0].name, "ildu with cg");
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// `cpu` or `cuda`.
    pub kind: &'static str,
    /// The device's name; of several the first.
    pub device: String,
    /// Why this one.
    pub reason: String,
    /// Bytes that a solve may take there, if that is known.
    pub free: Option<u64>,
    /// The system is symmetric, and may be definite: CG comes first where the preconditioner allows it. Not looked at where
    /// there is no room for a second copy of the matrix.
    pub symmetric: bool,
    /// Rows and columns are scaled for the preconditioner.
    pub equilibrate: bool,
    /// Rows are matched with columns for some attempt's preconditioner.
    pub matching: bool,
    /// What is said of stored zeros, where they are dropped.
    pub dropped: Option<String>,
    /// One after the other, as long as none has converged.
    pub attempts: Vec<PlannedAttempt>,
}

/// One of them.
///
/// # Examples
/// ```
/// use krylith::{Problem, matrix::Csr, solver::Plan};
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 1.0), (1, 1, 3.0)])?;
/// let problem = Problem::csr(&a)?;
/// let plan = Plan::of(&problem, &problem.diagnosis()?, &"method=gmres:restart=5 precond=jacobi device=cpu".parse()?)?;
/// for attempt in &plan.attempts {
///     println!("{}: {} bytes", attempt.name, attempt.memory.total());
/// }
/// assert_eq!(plan.attempts.len(), 1); // all is said
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedAttempt {
    /// Preconditioner and method, such as `ildu:cut=whole with gmres(100)`.
    pub name: String,
    /// The preconditioner.
    pub precond: PrecondSpec,
    /// The method.
    pub method: MethodSpec,
    /// What it wants beside what others have freed before it; of a level of fill it is a guess.
    pub memory: Memory,
}

impl Plan {
    /// What [`Solver::new`](super::Solver::new) would set up, on one rank. It takes a product or two on the host.
    ///
    /// # Errors
    /// Options that do not fit each other; a device that was asked for and is not there; a problem that is distributed.
    pub fn of(problem: &Problem, diagnosis: &Diagnosis, options: &Options) -> Result<Self> {
        alone(problem)?;
        let options = options.settled()?;
        let choice = device::choose(problem, &options)?;
        let place = device::look(&choice, problem.part_of_one().order(), &options)?;
        let (device::Choice::Cpu { reason } | device::Choice::Cuda { reason, .. }) = choice;
        options.within(|| Self::at(problem, diagnosis, &options, place, reason))?
    }

    /// The same on one NVIDIA GPU that need not be here: a GPU like an H100 or an H200, whatever device the options name.
    ///
    /// ```
    /// use krylith::{Options, solver::Plan};
    /// # use krylith::{Problem, matrix::Csr};
    /// # let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (1, 1, 3.0)])?;
    /// # let problem = Problem::csr(&a)?;
    /// let plan = Plan::on_gpu(&problem, &problem.diagnosis()?, &"precond=jacobi method=cg".parse()?)?;
    /// assert_eq!((plan.kind, plan.attempts[0].name.as_str()), ("cuda", "jacobi with cg"));
    /// # Ok::<(), krylith::Error>(())
    /// ```
    ///
    /// # Errors
    /// Options that do not fit each other; a problem that is distributed.
    #[cfg(feature = "cuda")]
    pub fn on_gpu(problem: &Problem, diagnosis: &Diagnosis, options: &Options) -> Result<Self> {
        alone(problem)?;
        let place = device::suppose(problem.part_of_one().order());
        let options = options.settled()?;
        options.within(|| Self::at(problem, diagnosis, &options, place, "supposed".into()))?
    }

    /// The attempts at one place.
    fn at(
        problem: &Problem,
        diagnosis: &Diagnosis,
        options: &Options,
        place: device::Place,
        reason: String,
    ) -> Result<Self> {
        // Of a pattern without stored zeros, which the solver drops.
        let (less, dropped) = super::zeros::without(Problem::from(problem), options)?;
        let own = dropped.is_some().then(|| less.diagnosis()).transpose()?;
        let diagnosis = own.as_ref().unwrap_or(diagnosis);
        let local = less.part_of_one();
        let open = matches!(options.method, None | Some(MethodName::Auto));
        // A second copy of a matrix that barely fits is not worth an answer.
        let bare = MethodSpec::of(MethodName::Bicgstab, options, 1);
        let copy = Memory::of(local.terms, &bare, &PrecondSpec::None, options).total();
        let fits = super::host::memory().is_none_or(|(_, free)| copy <= free);
        let mut tiles = false;
        let symmetric = open && fits && options.precond_or_auto().keeps_symmetry() && {
            let cores = super::host::cores();
            let space = Cpu::new(local.terms.rows(), options.threads.unwrap_or(cores).min(cores));
            let operator =
                PointBlock::new(&space, local.terms, options.precision.unwrap_or_default(), false)?;
            let found = symmetric::symmetry(&space, &operator, local.numbers, local.order())?;
            tiles = ladder::tiles_fit(&space, &local)?;
            found.symmetric && found.one_sign
        };
        let symmetric = symmetric && diagnosis.missing_diagonal.count == 0;
        tiles &= symmetric;
        let costs = ladder::costs(&local, options, symmetric, place.kind != "cpu");
        let seen = Seen::new(symmetric, tiles, diagnosis, costs);
        let attempts = ladder::ladder(&local, options, place.most_rows, seen);
        let equilibrate = attempts[0].equilibrate;
        let matching = attempts.iter().any(|a| a.matching);
        let planned = attempts.iter().map(|attempt| PlannedAttempt {
            name: attempt.name(),
            memory: attempt.memory(local.terms, options),
            precond: attempt.precond.clone(),
            method: attempt.method,
        });
        Ok(Self {
            kind: place.kind,
            device: place.name,
            reason,
            free: place.free,
            symmetric,
            equilibrate,
            matching,
            dropped: dropped.map(|dropped| dropped.note),
            attempts: planned.collect(),
        })
    }
}

/// Refuses a problem that ranks share.
fn alone(problem: &Problem) -> Result<()> {
    match problem.comm.size() {
        1 => Ok(()),
        _ => Err(Error::Unsupported("a plan is made on one rank".into())),
    }
}

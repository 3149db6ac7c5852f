//! The plan of a solve: its device and its attempts, determined without solving.

use super::diagnosis::Diagnosis;
use super::fallbacks::{self, Memory, Seen};
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
    /// The name of the device, or of the first of several.
    pub device: String,
    /// The reason for this device.
    pub reason: String,
    /// Number of bytes that a solve may use on the device, if known.
    pub free: Option<u64>,
    /// True if the system is symmetric and may be definite. CG then comes first if the preconditioner allows
    /// it. False without a check if there is not enough memory for a second copy of the matrix.
    pub symmetric: bool,
    /// True if the solver takes the system for symmetric, without what [`remarks`](Self::remarks) separate
    /// from it; `None` if there is not enough memory for the test.
    pub tested_symmetric: Option<bool>,
    /// True if rows and columns are scaled for the preconditioner.
    pub equilibrate: bool,
    /// True if rows are matched with columns for the preconditioner of some attempt.
    pub matching: bool,
    /// Remarks about what is separated from the system before a solve, such as stored zeros, and about what
    /// is recognised.
    pub remarks: Vec<String>,
    /// The coupled system that the matrix shows, in words; `None` if none is recognised or it is not used.
    pub recognised: Option<String>,
    /// The reason why no coupled system is recognised, in words; `None` if one is, or if fields are named.
    pub unrecognised: Option<String>,
    /// The order of named or recognised fields in the numbering of the system, in words.
    pub numbering: Option<String>,
    /// The attempts, made in this order until one converges.
    pub attempts: Vec<PlannedAttempt>,
}

/// One attempt of a [`Plan`].
///
/// # Examples
/// ```
/// use krylith::{Problem, matrix::Csr, solver::Plan};
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (0, 1, 1.0), (1, 1, 3.0)])?;
/// let problem = Problem::csr(&a)?;
/// let options = "method=gmres:restart=5 precond=jacobi device=cpu".parse::<krylith::Options>()?;
/// let plan = Plan::of(&problem, &problem.diagnosis()?, &options)?;
/// for attempt in &plan.attempts {
///     println!("{}: {} bytes", attempt.name, attempt.memory.total());
/// }
/// assert_eq!(plan.attempts.len(), 1); // method and preconditioner are given
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
    /// Memory that the attempt needs, after earlier attempts have freed theirs. With fill this is an
    /// estimate.
    pub memory: Memory,
}

impl Plan {
    /// Returns the plan of [`Solver::new`](super::Solver::new) on one rank. This takes the time of up to
    /// fifteen matrix-vector products on the host.
    ///
    /// # Errors
    /// Options that contradict each other; a device that was requested and is missing; a distributed problem.
    pub fn of(problem: &Problem, diagnosis: &Diagnosis, options: &Options) -> Result<Self> {
        alone(problem)?;
        let options = options.settled()?;
        let choice = device::choose(problem, &options)?;
        let place = device::look(&choice, problem.part_of_one().order(), &options)?;
        let (device::Choice::Cpu { reason } | device::Choice::Cuda { reason, .. }) = choice;
        options.within(|| Self::at(problem, diagnosis, &options, place, reason))?
    }

    /// Plans a solve on one NVIDIA GPU like an H100 or an H200, which need not be present. The device in the
    /// options is ignored.
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
    /// Options that contradict each other; a distributed problem.
    #[cfg(feature = "cuda")]
    pub fn on_gpu(problem: &Problem, diagnosis: &Diagnosis, options: &Options) -> Result<Self> {
        alone(problem)?;
        let place = device::suppose(problem.part_of_one().order());
        let options = options.settled()?;
        options.within(|| Self::at(problem, diagnosis, &options, place, "supposed".into()))?
    }

    /// Plans the attempts on one device.
    fn at(
        problem: &Problem,
        diagnosis: &Diagnosis,
        options: &Options,
        place: device::Place,
        reason: String,
    ) -> Result<Self> {
        // Plan for the system that the devices have.
        let prepared = super::recognise::prepared(Problem::from(problem), options)?;
        let (less, remarks) = (&prepared.problem, prepared.remarks());
        let other = prepared.fixed.is_some() || prepared.dropped.is_some();
        let own = other.then(|| less.diagnosis()).transpose()?;
        let diagnosis = own.as_ref().unwrap_or(diagnosis);
        let local = less.part_of_one();
        let open = matches!(options.method, None | Some(MethodName::Auto));
        // Skip the symmetry test if there is not enough memory for a second copy of the matrix.
        let bare = MethodSpec::of(MethodName::Bicgstab, options, 1);
        let copy = Memory::of(local.terms, &bare, &PrecondSpec::None, options).total();
        let fits = super::host::memory().is_none_or(|(_, free)| copy <= free);
        let cores = super::host::cores();
        let threads = options.threads.unwrap_or(cores).min(cores);
        let mut tiles = false;
        let mut tested = None;
        if fits {
            let space = Cpu::new(local.terms.rows(), threads);
            let operator =
                PointBlock::new(&space, local.terms, options.precision.unwrap_or_default(), false)?;
            tested = Some(symmetric::of_system(&space, &operator, &local)?);
            tiles = fallbacks::tiles_fit(&space, &local)?;
        }
        let symmetric = open
            && options.precond_or_auto().keeps_symmetry()
            && tested.is_some_and(|found| found.symmetric && found.one_sign)
            && diagnosis.missing_diagonal.count == 0;
        tiles &= symmetric;
        let costs = fallbacks::costs(&local, options, symmetric, place.kind != "cpu");
        let space = Cpu::new(local.terms.rows(), threads);
        let weak = if fits {
            fallbacks::weak_rows(&space, &local, options, diagnosis)?
        } else {
            diagnosis.weak_diagonal
        };
        let seen = Seen::new(symmetric, tiles, diagnosis, weak, costs);
        let attempts = fallbacks::attempts(&local, options, place.most_rows, seen);
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
            tested_symmetric: tested.map(|found| found.symmetric),
            equilibrate,
            matching,
            remarks,
            unrecognised: match local.fields.recognised() {
                Some(_) => None,
                None => super::recognise::reason(less, options),
            },
            recognised: local.fields.recognised().map(|found| found.text.clone()),
            numbering: local.fields.order(),
            attempts: planned.collect(),
        })
    }
}

/// Returns an error for a distributed problem.
fn alone(problem: &Problem) -> Result<()> {
    match problem.comm.size() {
        1 => Ok(()),
        _ => Err(Error::Unsupported("a plan needs one rank; this problem is distributed".into())),
    }
}

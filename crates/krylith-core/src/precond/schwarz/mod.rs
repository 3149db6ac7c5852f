//! Restricted additive Schwarz with overlap (Cai and Sarkis 1999): M⁻¹ = Σ_k (R_k⁰)ᵀ (A_k)⁻¹ R_k^δ with A_k =
//! R_k^δ A (R_k^δ)ᵀ. R_k^δ restricts a vector to subdomain k with δ layers of overlap, and R_k⁰ to the rows
//! that only subdomain k keeps. Each A_k is replaced by point-block ILU factors. Triangular solves are exact
//! substitution, Jacobi sweeps or randomized sweeps.
//!
//! Randomized factors are checked before they are used. If they are not finite, or their defect is above
//! [`MOST_DEFECT`], exact factors replace them, and an event reports it. The first factors of ILU(2) and
//! higher are exact, as in §6.1 of Ma, Le and Cai (paper 5 in docs/papers.md); later factorisations start
//! from the last factors.
//!
//! Sweeps on trial ([`Schwarz::try_sweeps`]) are compared with substitution on one random vector after every
//! factorisation. If their distance from it is above [`MOST_DISTANCE`], substitution replaces them.
//!
//! A subdomain can have all rows of a rank, too many for the on-chip shared memory of a GPU. All A_k of a
//! rank are diagonal blocks of one matrix, so a device need not know subdomains. It has one block matrix with
//! its ILU factors, a list of nodes to read and a list of rows to keep.
//!
//! The preconditioner needs two halos: one of nodes before every application, and one of stored blocks before
//! every factorisation. In the second one a block counts as a node of b² numbers, so both use the halo
//! exchange of matrix-vector products.

mod overlap;
mod pattern;
mod plan;
mod turned;

pub use plan::{FILL, Factorization, SchwarzOrder, SchwarzPattern, SchwarzPlan, TriangularSolve};
pub(crate) use turned::{Rows, Sums, Turned};

use super::incomplete::{FactorQuality, IncompleteFactors};
use crate::comm::agree;
use crate::memory::Numbers;
use crate::operator::{LinearOperator, TermValues, fresh_key, joined_key};
use crate::profile::{self, SetupPart};
use crate::space::{FLAGS, Precision, Space};
use crate::{Error, Result, sweeps};
use std::sync::Arc;

/// Randomized factors are used if their defect ‖(A − LU)_S‖_F / ‖A‖_F on the pattern S is at most this.
pub const MOST_DEFECT: f64 = 1e-2;

/// Sweeps on trial, with the result y, are used if ‖y − (LU)⁻¹x‖ / ‖(LU)⁻¹x‖ is at most this.
pub const MOST_DISTANCE: f64 = 0.25;

sweeps! {
    /// The vector pass of randomized Schwarz.
    pub const SWEEPS;
    /// ‖y − z‖² and ‖z‖².
    apart: () [y, z] [] -> [distance2, size2] { let d = y - z; distance2 += d * d; size2 += z * z; }
}

/// Options of the device for factorisations and solves.
///
/// # Examples
/// ```
/// use krylith_core::precond::SchwarzOptions;
/// use krylith::Precision;
/// let [precision, compute] = [Precision::F32, Precision::F64];
/// let options = SchwarzOptions { precision, compute, rows: 16, deterministic: true };
/// assert_eq!(options.precision.bytes(), 4); // factors take half the memory
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchwarzOptions {
    /// Precision in which factors are stored for solves.
    pub precision: Precision,
    /// Precision in which solves compute. With `F32` their vectors are in f32, and so are the stored factors.
    /// If the range of the numbers of a rank is too large for f32, its solves are in f64.
    pub compute: Precision,
    /// Number of consecutive rows that one warp processes in a sweep: `fdp` in options, f_dp in the paper. On
    /// a CPU, a thread takes this number of rows at a time.
    pub rows: usize,
    /// True for randomized sweeps in a fixed order, which are bitwise reproducible. Each run of `rows`
    /// consecutive rows then reads its own newest results, and from all other rows the results of the
    /// previous sweep.
    pub deterministic: bool,
}

impl SchwarzOptions {
    /// Returns true if solves are to compute in f32.
    pub(crate) fn is_narrow(&self) -> bool {
        self.compute == Precision::F32
    }

    /// Returns the precision of the stored factors.
    pub(crate) fn stored(&self) -> Precision {
        if self.is_narrow() { Precision::F32 } else { self.precision }
    }
}

/// A device that can factorise the subdomain matrices of a rank and solve with their factors.
///
/// # Examples
/// A bound for code that uses [`Schwarz`] on any device.
/// ```
/// use krylith_core::precond::{Schwarz, SchwarzFactors, SchwarzPlan, SchwarzSettings};
/// use krylith::{Result, operator::Terms};
/// fn factorized<S: SchwarzFactors>(
///     space: &S,
///     plan: SchwarzPlan,
///     terms: &Terms,
///     settings: SchwarzSettings,
/// ) -> Result<Schwarz<S>> {
///     let mut p = Schwarz::new(space, plan.into(), settings)?;
///     p.update_values(space, terms.terms()[0].1.values())?;
///     Ok(p)
/// }
/// ```
pub trait SchwarzFactors: Space {
    /// Factors of a plan. Before a factorisation, the values of the subdomain matrices are gathered: those of
    /// this rank's own rows, and the blocks of overlap rows from other ranks (`SchwarzPlan::blocks`). Bad
    /// pivots are counted by node ([`SchwarzPlan::node`]). The diagonal blocks of U are inverted once.
    ///
    /// A solve, y ← M⁻¹ x on own nodes, imports x (`SchwarzPlan::nodes`), solves in every subdomain, and
    /// keeps each own node's result. A transposed solve goes the opposite way; randomized sweeps have none.
    type Factors: IncompleteFactors<
            Self,
            Plan = SchwarzPlan,
            Options = SchwarzOptions,
            How = Factorization,
            Solve = TriangularSolve,
        >;
    /// Returns true if the whole iterative solve is expected to be faster with substitution than with these
    /// sweeps, which cost extra iterations.
    fn exact_is_faster(_factors: &Self::Factors, _sweeps: TriangularSolve) -> bool {
        true
    }
}

/// Method of computing the factors at each refresh.
///
/// # Examples
/// ```
/// use krylith::precond::PrecondSpec;
/// use krylith_core::precond::{RasSpec, SchwarzFactor};
/// let ras = RasSpec { factor: SchwarzFactor::Random { sweeps: 3 }, ..RasSpec::default() };
/// assert_eq!("ras:factor=random,eta=3".parse::<PrecondSpec>()?, PrecondSpec::Ras(ras));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchwarzFactor {
    /// Computes the factors exactly, row by row.
    Exact,
    /// Computes the factors by η randomized sweeps; exact factors replace them if they are not good enough.
    Random {
        /// η, at least 1.
        sweeps: usize,
    },
}

/// Settings of a [`Schwarz`] for computing and applying its factors.
///
/// # Examples
/// ```
/// use krylith_core::precond::{SchwarzFactor, SchwarzOptions, SchwarzSettings, TriangularSolve};
/// let f64 = krylith::Precision::F64;
/// let randomized = SchwarzSettings {
///     factor: SchwarzFactor::Random { sweeps: 5 },
///     solve: TriangularSolve::Random { sweeps: 5 },
///     options: SchwarzOptions { precision: f64, compute: f64, rows: 16, deterministic: false },
/// }; // the preconditioner differs in every iteration, and so needs FGMRES
/// assert_ne!(randomized.solve, TriangularSolve::Exact);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SchwarzSettings {
    /// Method of computing the factors.
    pub factor: SchwarzFactor,
    /// Method of the triangular solves.
    pub solve: TriangularSolve,
    /// Options of the device.
    pub options: SchwarzOptions,
}

/// The preconditioner y = Σ_k (R_k⁰)ᵀ (A_k)⁻¹ R_k^δ x, with incomplete factors in place of A_k.
///
/// # Examples
/// ```
/// use krylith::device::Cpu;
/// use krylith::operator::{LinearOperator, Terms};
/// use krylith_core::partition::Subdomains;
/// use krylith_core::precond::{Schwarz, SchwarzFactor, SchwarzOptions, SchwarzPattern, SchwarzPlan};
/// use krylith_core::precond::{SchwarzSettings, TriangularSolve};
/// use krylith::{Precision, operator::Space};
/// use krylith::{comm::Solo, matrix::Csr};
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 4.0), (0, 1, 2.0), (1, 0, 2.0), (1, 1, 3.0)])?;
/// let terms = Terms::csr(&a)?;
/// let plan = SchwarzPlan::new(&Solo, &terms, None, &Subdomains::whole(2), SchwarzPattern::default())?;
/// let settings = SchwarzSettings {
///     factor: SchwarzFactor::Exact,
///     solve: TriangularSolve::Exact,
///     options: SchwarzOptions {
///         precision: Precision::F64,
///         compute: Precision::F64,
///         rows: 8,
///         deterministic: false,
///     },
/// };
/// let space = Cpu::new(2, 1);
/// let mut p = Schwarz::new(&space, plan.into(), settings)?;
/// p.update_values(&space, a.values())?;
/// let mut y = space.vector()?;
/// p.apply(&space, &vec![8.0, 8.0], &mut y)?;
/// assert!((y[0] - 1.0).abs() < 1e-15 && (y[1] - 2.0).abs() < 1e-15);
/// # Ok::<(), krylith::Error>(())
/// ```
pub struct Schwarz<S: SchwarzFactors> {
    plan: Arc<SchwarzPlan>,
    factors: S::Factors,
    settings: SchwarzSettings,
    /// Sweeps on trial.
    trial: Option<Trial<S>>,
    /// Distance of the sweeps on trial from substitution.
    distance: Option<f64>,
    /// True if the last factors are good enough, so that sweeps may start from them.
    good: bool,
    last: Option<Factorization>,
    defect: f64,
    events: Vec<String>,
    key: u64,
}

/// Sweeps on trial, with a random right-hand side and the results of two solves.
struct Trial<S: Space> {
    x: S::Vector,
    y: S::Vector,
    z: S::Vector,
    scalars: S::Scalars,
    sweeps: TriangularSolve,
}

impl<S: SchwarzFactors> Schwarz<S> {
    /// Allocates the factors of a plan. They hold no values before [`update_values`](Self::update_values).
    /// Collective.
    ///
    /// # Errors
    /// A number of sweeps or of `rows` that is 0; a plan that does not fit the space, or is too large for the
    /// device; out of device memory.
    pub fn new(space: &S, plan: Arc<SchwarzPlan>, settings: SchwarzSettings) -> Result<Self> {
        let solves = match settings.solve {
            TriangularSolve::Exact => 1,
            TriangularSolve::Jacobi { sweeps } | TriangularSolve::Random { sweeps } => sweeps,
        };
        if solves == 0
            || settings.factor == (SchwarzFactor::Random { sweeps: 0 })
            || settings.options.rows == 0
        {
            return Err(Error::invalid(
                "ras: the numbers of sweeps (eta, gamma) and of rows per warp (fdp) must be at least 1",
            ));
        }
        if plan.nodes.own * plan.block != space.len() {
            return Err(Error::invalid(format!(
                "ras: the plan has {} block rows of order {}, but vectors have {} numbers",
                plan.nodes.own,
                plan.block,
                space.len()
            )));
        }
        let factors = agree(space.comm(), S::Factors::prepare(space, &plan, settings.options))?;
        Ok(Self {
            plan,
            factors,
            settings,
            trial: None,
            distance: None,
            good: false,
            last: None,
            defect: 0.0,
            events: Vec::new(),
            key: fresh_key(),
        })
    }

    /// Factorises these values of the own rows, in the natural order of
    /// [`Bsr::values`](crate::matrix::Bsr::values). Nothing is analysed. Collective. After an error the
    /// factors must not be applied.
    ///
    /// # Errors
    /// A wrong number of values; a pivot that cannot be inverted, with its row in the whole system; a rank
    /// that has ended or failed.
    pub fn update_values<'v>(&mut self, space: &S, values: impl Into<Numbers<'v>>) -> Result<()> {
        let values = values.into();
        let numbers = self.plan.blocks.own * self.plan.block * self.plan.block;
        let fits = match values.len() == numbers {
            true => Ok(()),
            false => {
                Err(Error::invalid(format!("ras: got {} values, but the plan needs {numbers}", values.len())))
            }
        };
        agree(space.comm(), fits)?;
        let _factors = profile::begin_inside(SetupPart::Factors);
        let (warm, narrow) = (std::mem::replace(&mut self.good, false), self.is_narrow());
        self.factorize(space, &TermValues::matrix(values), warm)?;
        if self.is_narrow() != narrow {
            self.key = fresh_key(); // the factors are in other memory
        }
        self.settle_solve(space)
    }

    /// Puts `sweeps` on trial: solves use them if they are close enough to substitution, which is checked
    /// after every factorisation. Call this function before [`update_values`](Self::update_values).
    /// Collective.
    ///
    /// # Errors
    /// Out of device memory.
    pub fn try_sweeps(&mut self, space: &S, sweeps: TriangularSolve) -> Result<()> {
        let vector = || space.vector();
        let (mut x, y, z, scalars) = (vector()?, vector()?, vector()?, space.scalars(2)?);
        space.fill_random(0, &mut x)?;
        self.trial = Some(Trial { x, y, z, scalars, sweeps });
        Ok(())
    }

    /// Chooses the sweeps on trial if they are close enough to substitution.
    fn settle_solve(&mut self, space: &S) -> Result<()> {
        let Some(Trial { x, y, z, scalars, sweeps }) = &mut self.trial else { return Ok(()) };
        self.factors.solve(space, *sweeps, false, x, y)?;
        self.factors.solve(space, TriangularSolve::Exact, false, x, z)?;
        space.sweep(apart, scalars, [], [y, z], [], [0, 1])?;
        let (mut sums, mut flags) = ([0.0; 2], [0; FLAGS]);
        space.read_scalars(scalars, 0, &mut sums, &mut flags)?;
        let distance = (sums[0] / sums[1].max(f64::MIN_POSITIVE)).sqrt();
        self.distance = Some(distance);
        self.settings.solve = match distance <= MOST_DISTANCE {
            true => *sweeps,
            false => {
                self.events.push(format!(
                    "ras uses exact solves, because randomized sweeps differ from them by {:.0} %",
                    100.0 * distance
                ));
                TriangularSolve::Exact
            }
        };
        Ok(())
    }

    /// Lays out the factors for [`apply_transpose`](LinearOperator::apply_transpose). Nothing is analysed or
    /// factorised. [`update_values`](Self::update_values) refreshes this layout too. Collective.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with randomized solves; out of device memory; a rank that has ended or failed.
    pub fn prepare_transpose(&mut self, space: &S) -> Result<()> {
        self.check_transpose()?;
        self.factors.prepare_transpose(space)
    }

    /// Refuses the transpose of a map that differs from call to call.
    fn check_transpose(&self) -> Result<()> {
        match self.settings.solve {
            TriangularSolve::Random { .. } => Err(Error::Unsupported(
                "ras with randomized solves has no transpose, because they differ from call to call; use \
                 ras:solve=exact"
                    .into(),
            )),
            _ => Ok(()),
        }
    }

    fn factorize(&mut self, space: &S, values: &TermValues, warm: bool) -> Result<()> {
        match self.settings.factor {
            SchwarzFactor::Random { sweeps } if warm || self.plan.fill < 2 => {
                let how = Factorization::Random { sweeps, warm };
                let quality = agree(space.comm(), self.factors.factorize(space, values, how))?;
                let infinite = space.any(!quality.finite)?;
                self.defect = self.total(space, quality)?;
                if !infinite && self.defect <= MOST_DEFECT {
                    self.take(how);
                    return Ok(());
                }
                let why = match infinite {
                    true => "are not finite".to_string(),
                    false => format!("have a defect of {:.1e}, above {MOST_DEFECT:e}", self.defect),
                };
                let start = if warm { "from the last factors" } else { "from A" };
                self.events.push(format!(
                    "ras uses exact factors, because randomized factors {why} after {sweeps} sweeps that \
                     start {start}"
                ));
            }
            _ => {}
        }
        agree(space.comm(), self.exact(space, values))?;
        self.defect = 0.0;
        self.take(Factorization::Exact);
        Ok(())
    }

    /// Computes exact factors of this rank's subdomains.
    fn exact(&mut self, space: &S, values: &TermValues) -> Result<()> {
        let quality = self.factors.factorize(space, values, Factorization::Exact)?;
        let row = |node: usize| self.plan.global.get(node).copied().unwrap_or_default() as usize;
        quality.pivots.check(row, "use another preconditioner, or another order or fill")?;
        if !quality.finite {
            return Err(Error::invalid(
                "ras: exact factors overflow; scale the system, or use another preconditioner",
            ));
        }
        Ok(())
    }

    fn take(&mut self, how: Factorization) {
        (self.good, self.last) = (true, Some(how));
    }

    /// Returns the defect of the factors of all ranks.
    fn total(&self, space: &S, quality: FactorQuality) -> Result<f64> {
        let mut sums = quality.defect2;
        space.comm().sum(&mut sums)?;
        Ok(if sums[1] > 0.0 { (sums[0] / sums[1]).sqrt() } else { 0.0 })
    }

    /// Returns the events of factorisations since the last call.
    pub fn take_events(&mut self) -> Vec<String> {
        std::mem::take(&mut self.events)
    }

    /// Returns the method by which the last factors were computed.
    pub fn factorization(&self) -> Option<Factorization> {
        self.last
    }

    /// Returns the method of the triangular solves.
    pub fn solve(&self) -> TriangularSolve {
        self.settings.solve
    }

    /// Returns the distance of the sweeps on trial from substitution; `None` without sweeps on trial.
    pub fn distance(&self) -> Option<f64> {
        self.distance
    }

    /// Returns the defect ‖(A − LU)_S‖_F / ‖A‖_F of the last factors over all ranks; 0 for exact ones.
    pub fn defect(&self) -> f64 {
        self.defect
    }

    /// Returns the plan: rows and patterns.
    pub fn plan(&self) -> &Arc<SchwarzPlan> {
        &self.plan
    }

    /// Returns the factors as the device stores them.
    pub fn factors(&self) -> &S::Factors {
        &self.factors
    }

    /// Returns true if the solves of this rank compute in f32.
    pub fn is_narrow(&self) -> bool {
        self.factors.is_narrow()
    }
}

impl<S: SchwarzFactors> LinearOperator<S> for Schwarz<S> {
    fn apply(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        self.factors.solve(space, self.settings.solve, false, x, y)
    }
    fn has_transpose(&self) -> bool {
        !matches!(self.settings.solve, TriangularSolve::Random { .. })
    }
    fn apply_transpose(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        self.check_transpose()?;
        self.factors.solve(space, self.settings.solve, true, x, y)
    }
    fn key(&self) -> u64 {
        joined_key([self.key, u64::from(self.settings.solve == TriangularSolve::Exact)])
    }
    fn bytes(&self) -> u64 {
        self.factors.bytes(self.settings.solve)
    }
}

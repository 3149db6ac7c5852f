//! Restricted additive Schwarz with overlap (Cai and Sarkis 1999): M⁻¹ = Σ_k (R_k⁰)ᵀ (A_k)⁻¹ R_k^δ with A_k = R_k^δ A (R_k^δ)ᵀ,
//! whose subdomain solves are point-block ILU(k) with exact, Jacobi or randomized sweeps.
//!
//! Randomized factors are checked before they are used: where they are not finite, or their defect is above [`MOST_DEFECT`], exact ones
//! take their place and an event says so. The first factors of ILU(2) and more are exact, as in the paper's §6.1; later factorisations
//! start from the last factors.
//!
//! Where sweeps are on trial ([`Schwarz::try_sweeps`]) they are compared with substitution on one random vector after every
//! factorisation: where they miss it by more than [`MOST_DISTANCE`], substitution takes their place.
//!
//! Subdomains are as large as a rank's share, which no shared memory holds. All A_k of a rank are diagonal
//! blocks of one matrix, so a device knows no subdomains. It has one block matrix with its ILU(k), a list of
//! nodes to read and a list of rows to keep.
//!
//! Two halos serve it: one of nodes before every application, one of stored blocks before every
//! factorization. A block counts as a node of b² numbers, so both use the exchange of products.

mod overlap;
mod pattern;
mod plan;

pub use plan::{
    FILL, FactorQuality, Factorization, SchwarzOrder, SchwarzPattern, SchwarzPlan, TriangularSolve,
};

use super::ildu::Pivots;
use crate::comm::agree;
use crate::memory::Numbers;
use crate::operator::{LinearOperator, fresh_key, joined_key};
use crate::profile::{self, SetupPart};
use crate::space::{FLAGS, Precision, Space};
use crate::{Error, Result, sweeps};
use std::sync::Arc;

/// Randomized factors with a larger defect ‖(A − LU)_S‖_F / ‖A‖_F are not taken.
pub const MOST_DEFECT: f64 = 1e-2;

/// Sweeps on trial whose result y has a larger distance ‖y − (LU)⁻¹x‖ / ‖(LU)⁻¹x‖ are not taken.
pub const MOST_DISTANCE: f64 = 0.25;

sweeps! {
    /// The vector pass of randomized Schwarz.
    pub const SWEEPS;
    /// How far y is from z.
    apart: () [y, z] [] -> [distance2, size2] { let d = y - z; distance2 += d * d; size2 += z * z; }
}

/// How a device runs factorisations and solves.
///
/// # Examples
/// ```
/// use krylith_core::precond::SchwarzOptions;
/// let options = SchwarzOptions { store: krylith::Precision::F32, rows: 16, deterministic: true };
/// assert_eq!(options.store.bytes(), 4); // factors take half the room
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SchwarzOptions {
    /// Precision in which factors are stored for solves; arithmetic is f64.
    pub precision: Precision,
    /// Consecutive rows that one warp (on a CPU: one turn of a thread) works through, f_dp.
    pub rows: usize,
    /// Randomized sweeps in a fixed order: bitwise the same every time. A sweep then reads what the sweep before left outside
    /// its own `rows` consecutive rows, and what it has just computed inside them.
    pub deterministic: bool,
}

/// A device that can factorise the subdomain matrices of a rank and solve with their factors.
///
/// # Examples
/// The bound of code that takes [`Schwarz`] on any device.
/// ```
/// use krylith_core::precond::{Schwarz, SchwarzFactors, SchwarzPlan, SchwarzSettings};
/// use krylith::{Result, operator::Terms};
/// fn made<S: SchwarzFactors>(space: &S, plan: SchwarzPlan, terms: &Terms, how: SchwarzSettings) -> Result<Schwarz<S>> {
///     let mut p = Schwarz::new(space, plan.into(), how)?;
///     p.update_values(space, terms.terms[0].1.values())?;
///     Ok(p)
/// }
/// ```
pub trait SchwarzFactors: Space {
    /// Plan, factors and all memory that computing and applying them takes, on the device.
    type Factors;
    /// Memory and layout for a plan; no values yet. Collective, where the plan's halos have neighbours.
    fn prepare_schwarz(&self, plan: &Arc<SchwarzPlan>, options: SchwarzOptions) -> Result<Self::Factors>;
    /// Gathers the values of the subdomain matrices from `values`, those of the own rows, after an exchange of blocks of
    /// the overlap (`SchwarzPlan::blocks`). Collective.
    fn gather_schwarz(&self, factors: &mut Self::Factors, values: Numbers) -> Result<()>;
    /// Factorises what was gathered; the defect of exact factors is not computed, and is 0. Exact pivots that cannot be inverted are counted by node
    /// ([`SchwarzPlan::node`], as [`SubdomainFactors::factorize`](super::SubdomainFactors::factorize) does by row); for random ones
    /// `finite` says it. The diagonal blocks of U are inverted once here.
    fn factorize_schwarz(
        &self,
        factors: &mut Self::Factors,
        how: Factorization,
    ) -> Result<(FactorQuality, Pivots)>;
    /// y ← M⁻¹ x on own nodes: imports x (`SchwarzPlan::nodes`), solves in every subdomain, keeps each own node's result.
    /// Collective. Allocates nothing.
    fn apply_schwarz(
        &self,
        factors: &Self::Factors,
        how: TriangularSolve,
        x: &Self::Vector,
        y: &mut Self::Vector,
    ) -> Result<()>;
    /// Bytes that one application must move at least.
    fn schwarz_bytes(factors: &Self::Factors, how: TriangularSolve) -> u64;
    /// Whether substitution is expected to take less time in a solve than these sweeps, which need more iterations.
    fn exact_is_faster(_factors: &Self::Factors, _sweeps: TriangularSolve) -> bool {
        true
    }
}

/// How factors are computed at each refresh.
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
    /// Row by row.
    Exact,
    /// So many randomized sweeps (η), where they are good enough.
    Random {
        /// η, at least 1.
        sweeps: usize,
    },
}

/// How a [`Schwarz`] computes and applies its factors.
///
/// # Examples
/// ```
/// use krylith_core::precond::{SchwarzFactor, SchwarzOptions, SchwarzSettings, TriangularSolve};
/// let randomized = SchwarzSettings {
///     factor: SchwarzFactor::Random { sweeps: 5 },
///     solve: TriangularSolve::Random { sweeps: 5 },
///     options: SchwarzOptions { store: krylith::Precision::F64, rows: 16, deterministic: false },
/// }; // another preconditioner in every iteration: it wants FGMRES
/// assert_ne!(randomized.solve, TriangularSolve::Exact);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SchwarzSettings {
    /// Factors.
    pub factor: SchwarzFactor,
    /// Solves.
    pub solve: TriangularSolve,
    /// Device.
    pub options: SchwarzOptions,
}

/// y = Σ_k (R_k⁰)ᵀ (A_k)⁻¹ R_k^δ x, with incomplete factors for A_k.
///
/// # Examples
/// ```
/// use krylith::device::Cpu;
/// use krylith::operator::{LinearOperator, Terms};
/// use krylith_core::partition::Subdomains;
/// use krylith_core::precond::{Schwarz, SchwarzFactor, SchwarzOptions, SchwarzPattern, SchwarzPlan, SchwarzSettings, TriangularSolve};
/// use krylith::{Precision, operator::Space};
/// use krylith::{comm::Solo, matrix::Csr};
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 4.0), (0, 1, 2.0), (1, 0, 2.0), (1, 1, 3.0)])?;
/// let terms = Terms::csr(&a)?;
/// let plan = SchwarzPlan::new(&Solo, &terms, None, &Subdomains::whole(2), SchwarzPattern::default())?;
/// let settings = SchwarzSettings {
///     factor: SchwarzFactor::Exact,
///     solve: TriangularSolve::Exact,
///     options: SchwarzOptions { store: Precision::F64, rows: 8, deterministic: false },
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
    /// How far they are from substitution.
    distance: Option<f64>,
    /// The last factors were taken, so that sweeps may start from them.
    good: bool,
    last: Option<Factorization>,
    defect: f64,
    events: Vec<String>,
    key: u64,
}

/// A random right-hand side, and two results.
struct Trial<S: Space> {
    x: S::Vector,
    y: S::Vector,
    z: S::Vector,
    scalars: S::Scalars,
    sweeps: TriangularSolve,
}

impl<S: SchwarzFactors> Schwarz<S> {
    /// Memory and layout for a plan. There are no factors before [`update_values`](Self::update_values). Collective.
    ///
    /// # Errors
    /// No sweeps, or no rows a run; a device without room.
    pub fn new(space: &S, plan: Arc<SchwarzPlan>, settings: SchwarzSettings) -> Result<Self> {
        let solves = match settings.solve {
            TriangularSolve::Exact => 1,
            TriangularSolve::Jacobi { sweeps } | TriangularSolve::Random { sweeps } => sweeps,
        };
        if solves == 0
            || settings.factor == (SchwarzFactor::Random { sweeps: 0 })
            || settings.options.rows == 0
        {
            return Err(Error::invalid("ras: sweeps, and the rows of a run, must be at least 1"));
        }
        if plan.nodes.own * plan.block != space.len() {
            return Err(Error::invalid(format!(
                "a plan of {} block rows of order {} for vectors of {} numbers",
                plan.nodes.own,
                plan.block,
                space.len()
            )));
        }
        let factors = agree(space.comm(), space.prepare_schwarz(&plan, settings.options))?;
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

    /// Factorises for these values of the own rows, in the natural order of [`Bsr::values`](crate::matrix::Bsr::values). Nothing
    /// is analysed. Collective. After an error the factors must not be applied.
    ///
    /// # Errors
    /// Another number of values; a pivot that cannot be inverted, with its row in the whole system; a rank that is gone or failed.
    pub fn update_values<'v>(&mut self, space: &S, values: impl Into<Numbers<'v>>) -> Result<()> {
        let values = values.into();
        let numbers = self.plan.blocks.own * self.plan.block * self.plan.block;
        let fits = match values.len() == numbers {
            true => Ok(()),
            false => Err(Error::invalid(format!("{} values; {numbers} were expected", values.len()))),
        };
        agree(space.comm(), fits)?;
        let _factors = profile::begin_inside(SetupPart::Factors);
        let warm = std::mem::replace(&mut self.good, false);
        self.factorize(space, values, warm)?;
        self.settle_solve(space)
    }

    /// Takes `sweeps` for solves as long as they are near enough to substitution, which is looked at after every factorisation. Collective;
    /// before values are given.
    ///
    /// # Errors
    /// A device without room for three vectors.
    pub fn try_sweeps(&mut self, space: &S, sweeps: TriangularSolve) -> Result<()> {
        let vector = || space.vector();
        let (mut x, y, z, scalars) = (vector()?, vector()?, vector()?, space.scalars(2)?);
        space.fill_random(0, &mut x)?;
        self.trial = Some(Trial { x, y, z, scalars, sweeps });
        Ok(())
    }

    /// Takes the sweeps on trial where they are near enough to substitution.
    fn settle_solve(&mut self, space: &S) -> Result<()> {
        let Some(Trial { x, y, z, scalars, sweeps }) = &mut self.trial else { return Ok(()) };
        space.apply_schwarz(&self.factors, *sweeps, x, y)?;
        space.apply_schwarz(&self.factors, TriangularSolve::Exact, x, z)?;
        space.sweep(apart, scalars, [], [y, z], [], [0, 1])?;
        let (mut sums, mut flags) = ([0.0; 2], [0; FLAGS]);
        space.read_scalars(scalars, 0, &mut sums, &mut flags)?;
        let distance = (sums[0] / sums[1].max(f64::MIN_POSITIVE)).sqrt();
        self.distance = Some(distance);
        self.settings.solve = match distance <= MOST_DISTANCE {
            true => *sweeps,
            false => {
                self.events.push(format!(
                    "ras: exact solves instead of randomized sweeps, which miss them by {:.0} %",
                    100.0 * distance
                ));
                TriangularSolve::Exact
            }
        };
        Ok(())
    }

    fn factorize(&mut self, space: &S, values: Numbers, warm: bool) -> Result<()> {
        agree(space.comm(), space.gather_schwarz(&mut self.factors, values))?;
        match self.settings.factor {
            SchwarzFactor::Random { sweeps } if warm || self.plan.fill < 2 => {
                let how = Factorization::Random { sweeps, warm };
                let (quality, _) = agree(space.comm(), space.factorize_schwarz(&mut self.factors, how))?;
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
                    "ras: exact factors instead of randomized ones, which {why} after {sweeps} sweeps {start}"
                ));
            }
            _ => {}
        }
        agree(space.comm(), self.exact(space))?;
        self.defect = 0.0;
        self.take(Factorization::Exact);
        Ok(())
    }

    /// Exact factors of this rank's subdomains.
    fn exact(&mut self, space: &S) -> Result<()> {
        let (quality, pivots) = space.factorize_schwarz(&mut self.factors, Factorization::Exact)?;
        if let Some((node, kind)) = pivots.first {
            let row = self.plan.global.get(node as usize).copied().unwrap_or_default() as usize;
            let remedy = "take another preconditioner, or another order or fill";
            return Err(Error::Pivot { row, kind: kind.name(), remedy });
        }
        if !quality.finite {
            return Err(Error::invalid(
                "ras: exact factors overflow; scale the system, or take another preconditioner",
            ));
        }
        Ok(())
    }

    fn take(&mut self, how: Factorization) {
        (self.good, self.last) = (true, Some(how));
    }

    /// The defect over all ranks.
    fn total(&self, space: &S, quality: FactorQuality) -> Result<f64> {
        let mut sums = quality.defect2;
        space.comm().sum(&mut sums)?;
        Ok(if sums[1] > 0.0 { (sums[0] / sums[1]).sqrt() } else { 0.0 })
    }

    /// What there is to tell of factorisations since this was last asked.
    pub fn take_events(&mut self) -> Vec<String> {
        std::mem::take(&mut self.events)
    }

    /// How the last factors were computed.
    pub fn factorization(&self) -> Option<Factorization> {
        self.last
    }

    /// How solves are done.
    pub fn solve(&self) -> TriangularSolve {
        self.settings.solve
    }

    /// How far the sweeps on trial are from substitution; `None` where there are none.
    pub fn distance(&self) -> Option<f64> {
        self.distance
    }

    /// ‖(A − LU)_S‖_F / ‖A‖_F of the last factors over all ranks; 0 for exact ones.
    pub fn defect(&self) -> f64 {
        self.defect
    }

    /// Rows and patterns.
    pub fn plan(&self) -> &Arc<SchwarzPlan> {
        &self.plan
    }

    /// What the device holds.
    pub fn factors(&self) -> &S::Factors {
        &self.factors
    }
}

impl<S: SchwarzFactors> LinearOperator<S> for Schwarz<S> {
    fn apply(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        space.apply_schwarz(&self.factors, self.settings.solve, x, y)
    }
    fn key(&self) -> u64 {
        joined_key([self.key, u64::from(self.settings.solve == TriangularSolve::Exact)])
    }
    fn bytes(&self) -> u64 {
        S::schwarz_bytes(&self.factors, self.settings.solve)
    }
}

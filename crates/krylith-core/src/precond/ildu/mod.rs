//! ILDU on subdomains: incomplete factors of each subdomain's diagonal part of the matrix, A ≈ (I + L) D (I + U).
//!
//! What couples subdomains is left out of the preconditioner, and only there, so each is factorised and solved alone:
//! by one thread, or by one thread block that keeps its vector in shared memory. The fused ILDU(0) of Gondhalekar,
//! Haugen and others (2025), with ILU(k) fill (Saad 2003, Alg. 10.5) and blocks of any order b·s.
//!
//! [`Subdomains`] says which rows stand together. A device that implements [`SubdomainFactors`] analyses their patterns (into
//! its own plan, or the host's [`Plan`]), computes factors and applies them. Results do not depend on how many threads
//! or ranks share the subdomains: each is computed alone and in one order.
//!
//! Ledger of one application: every factor and its column once, x and y once.
//!
//! The local number of a row is its place in level order. So a device needs no permutation inside a
//! subdomain, and a level is a range of rows. Both triangles have the same levels, because these come from
//! the symmetrized pattern with its fill.

mod analysis;
pub(super) mod fill;
pub(super) mod order;
mod outline;
mod plan;

pub use outline::Outline;
pub(crate) use plan::MAX_ORDER;
pub use plan::Plan;

use crate::operator::{LinearOperator, TermValues, Terms, fresh_key};
use crate::partition::Subdomains;
use crate::profile::{self, SetupPart};
use crate::space::{Precision, Space};
use crate::{Error, Result};
use std::sync::Arc;

/// A pivot smaller than this, relative to the largest entry of its row, is called tiny.
pub const TINY_PIVOT: f64 = 1e-14;

/// What is wrong with a pivot.
///
/// # Examples
/// ```
/// use krylith_core::precond::PivotKind;
/// assert_eq!(PivotKind::Zero.name(), "zero"); // as errors and events call it
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PivotKind {
    /// Zero, or a block that is exactly singular.
    Zero,
    /// Below [`TINY_PIVOT`] times the largest entry of its row of the subdomain's part of the matrix.
    Tiny,
    /// NaN or infinite, or its inverse is.
    NotFinite,
}

impl PivotKind {
    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            PivotKind::Zero => "zero",
            PivotKind::Tiny => "tiny",
            PivotKind::NotFinite => "non-finite",
        }
    }
}

/// How the pivots of a factorisation were.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[doc(hidden)]
pub struct Pivots {
    /// Pivots that could not be inverted and were not mended.
    pub bad: usize,
    /// The bad one of the lowest own block row.
    pub first: Option<(u32, PivotKind)>,
    /// Pivots mended by a shift.
    pub shifted: usize,
}

impl Pivots {
    /// Counts a bad pivot.
    pub fn found(&mut self, row: u32, kind: PivotKind) {
        self.bad += 1;
        self.first = Some(self.first.map_or((row, kind), |first| first.min((row, kind))));
    }

    /// Both together; the order does not matter.
    pub fn with(self, other: Self) -> Self {
        let first = match (self.first, other.first) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        Self { bad: self.bad + other.bad, first, shifted: self.shifted + other.shifted }
    }
}

/// Which numbers of a vector factors work on: component r of block row i of order m stands at
/// (i·m + r)·step + offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)]
pub struct Stride {
    /// Below `step`.
    pub offset: usize,
    /// At least 1.
    pub step: usize,
}

impl Stride {
    /// Every number: vectors of m numbers a block row.
    pub const ALL: Self = Self { offset: 0, step: 1 };

    /// Stage k of s, in vectors of b·s numbers a block row, stages fastest.
    pub fn stage(k: usize, s: usize) -> Self {
        assert!(k < s, "stage {k} of {s}");
        Self { offset: k, step: s }
    }
}

/// A device that can factorise subdomains and solve with their factors.
///
/// # Examples
/// The bound of code that takes [`Ildu`] on any device.
/// ```
/// use krylith::precond::{Ildu, IlduOptions};
/// use krylith_core::precond::SubdomainFactors;
/// use krylith::{Result, operator::Terms};
/// use krylith_core::partition::Subdomains;
/// fn whole<S: SubdomainFactors>(space: &S, terms: &Terms) -> Result<Ildu<S>> {
///     Ildu::new(space, terms, &Subdomains::whole(terms.block_rows()), IlduOptions::default())
/// }
/// ```
pub trait SubdomainFactors: Space {
    /// Everything about the factors of all subdomains that values do not change, where this device wants it.
    type Plan;
    /// Factors on the device, with the memory that computing them takes.
    type Factors;
    /// Subdomains of at most `rows` block rows by the graph of terms that are on this device, those of
    /// [`SubdomainCut::Multilevel`](crate::partition::SubdomainCut::Multilevel); `None` where the host must cut.
    fn cut_graph(&self, _terms: &Terms, _rows: usize) -> Result<Option<Subdomains>> {
        Ok(None)
    }
    /// Analyses every subdomain with ILU(`fill`): patterns, order of elimination, levels. The result depends on the patterns
    /// alone.
    ///
    /// # Errors
    /// As [`Plan::new`]; a device without room.
    fn analyse(&self, terms: &Terms, subdomains: &Subdomains, fill: usize) -> Result<Arc<Self::Plan>>;
    /// What there is to say of a plan.
    fn outline(plan: &Self::Plan) -> Outline;
    /// Most block rows of a subdomain that this device takes, with blocks of an order.
    fn most_rows(&self, order: usize) -> usize;
    /// Memory and layout for the factors of a plan; no values yet.
    fn prepare_factors(&self, plan: &Arc<Self::Plan>, precision: Precision) -> Result<Self::Factors>;
    /// Factorises every subdomain's part of Σ Cₜ ⊗ Aₜ on the plan's pattern: entry (r·s + k, q·s + l) of a block is
    /// Σ Cₜ\[k,l\]·Aₜ\[r,q\]. Arithmetic is f64 whatever the store. Analyses and allocates nothing.
    ///
    /// A pivot that cannot be inverted is counted, and its row and column take no part in what follows. With `shift`
    /// it first gets shift times the largest entry of its row added to its diagonal.
    ///
    /// The caller has checked the values with [`Outline::check`].
    fn factorize(
        &self,
        factors: &mut Self::Factors,
        values: &TermValues,
        shift: Option<f64>,
    ) -> Result<Pivots>;
    /// `y ← (I + U)⁻¹ D⁻¹ (I + L)⁻¹ x` in every subdomain, with what `at` says of both vectors; they have `at.step`
    /// numbers for each one of the factors, and y keeps all others.
    fn solve_factors(
        &self,
        factors: &Self::Factors,
        at: Stride,
        x: &Self::Vector,
        y: &mut Self::Vector,
    ) -> Result<()>;
    /// Bytes that one application must move at least.
    fn factors_bytes(factors: &Self::Factors) -> u64;
}

/// How factors are computed and stored.
///
/// # Examples
/// ```
/// use krylith::precond::IlduOptions;
/// let options = IlduOptions { fill: 1, shift: Some(1e-3), ..IlduOptions::default() }; // ILDU(1); bad pivots are mended
/// assert_eq!(options.store, krylith::Precision::F64);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct IlduOptions {
    /// Level of fill k of ILU(k).
    pub fill: usize,
    /// Precision of the stored factors.
    pub precision: Precision,
    /// What a pivot that cannot be inverted gets added, relative to the largest entry of its row; `None` makes it an
    /// error.
    pub shift: Option<f64>,
}

/// y = (I + U)⁻¹ D⁻¹ (I + L)⁻¹ x, subdomain by subdomain.
///
/// # Examples
/// ```
/// use krylith::device::Cpu;
/// use krylith::precond::{Ildu, IlduOptions};
/// use krylith::{matrix::Csr, operator::{LinearOperator, Terms, Space}};
/// use krylith_core::partition::Subdomains;
/// // Without fill-in, incomplete factors of one subdomain are exact.
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 4.0), (0, 1, 2.0), (1, 0, 2.0), (1, 1, 3.0)])?;
/// let space = Cpu::new(2, 1);
/// let mut ildu = Ildu::new(&space, &Terms::csr(&a)?, &Subdomains::whole(2), IlduOptions::default())?;
/// let mut y = space.vector()?;
/// ildu.apply(&space, &vec![8.0, 8.0], &mut y)?;
/// assert!((y[0] - 1.0).abs() < 1e-15 && (y[1] - 2.0).abs() < 1e-15);
/// # Ok::<(), krylith::Error>(())
/// ```
pub struct Ildu<S: SubdomainFactors> {
    plan: Arc<S::Plan>,
    outline: Outline,
    factors: S::Factors,
    options: IlduOptions,
    pivots: Pivots,
    key: u64,
}

impl<S: SubdomainFactors> Ildu<S> {
    /// Analyses and factorises.
    ///
    /// # Errors
    /// A matrix that is not square or subdomains that do not cover it; a pivot that cannot be inverted, with its row;
    /// a shift that is not a positive number; a device without room.
    pub fn new(space: &S, terms: &Terms, subdomains: &Subdomains, options: IlduOptions) -> Result<Self> {
        Self::with_plan(space, terms, space.analyse(terms, subdomains, options.fill)?, options)
    }

    /// Factorises on a plan that was made for terms of this pattern; `options.fill` is the plan's affair.
    ///
    /// # Errors
    /// As [`new`](Self::new); terms of another shape than the plan's.
    pub fn with_plan(space: &S, terms: &Terms, plan: Arc<S::Plan>, options: IlduOptions) -> Result<Self> {
        if let Some(shift) = options.shift.filter(|s| !(*s > 0.0) || !s.is_finite()) {
            return Err(Error::invalid(format!("a pivot shift of {shift}; it must be a positive number")));
        }
        let outline = S::outline(&plan);
        if terms.block_rows() != outline.block_rows {
            return Err(Error::invalid(format!(
                "terms of {} block rows on a plan that was made for {}",
                terms.block_rows(),
                outline.block_rows
            )));
        }
        let factors = space.prepare_factors(&plan, options.precision)?;
        let mut ildu = Self { plan, outline, factors, options, pivots: Pivots::default(), key: fresh_key() };
        ildu.update_values(space, terms)?;
        Ok(ildu)
    }

    /// Factorises again, for new values, τ or coefficients under the same patterns. Nothing is analysed and nothing
    /// allocated. After an error the factors must not be applied.
    ///
    /// Values in the memory of the GPU that holds the factors are read where they are. A CPU brings device memory to the
    /// host, and keeps room for it after the first time.
    ///
    /// # Errors
    /// Another shape than the plan's; a pivot that cannot be inverted, with its row.
    pub fn update_values<'v>(&mut self, space: &S, values: impl Into<TermValues<'v>>) -> Result<()> {
        let values = values.into();
        self.outline.check(&values)?;
        let _factors = profile::begin_inside(SetupPart::Factors);
        self.pivots = space.factorize(&mut self.factors, &values, self.options.shift)?;
        let Some((row, kind)) = self.pivots.first else { return Ok(()) };
        let remedy = match self.options.shift {
            None => "shift such pivots, or take another preconditioner",
            Some(_) => "take a larger shift, or another preconditioner",
        };
        Err(Error::Pivot { row: row as usize, kind: kind.name(), remedy })
    }

    /// The same as [`apply`](LinearOperator::apply), on a part of longer vectors; the rest of y stays.
    ///
    /// # Errors
    /// Vectors that do not have `at.step` times the rows of the factors.
    pub fn apply_at(&self, space: &S, at: Stride, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        space.solve_factors(&self.factors, at, x, y)
    }

    /// Patterns and order of the factors.
    pub fn plan(&self) -> &S::Plan {
        &self.plan
    }

    /// What there is to say of them.
    pub fn outline(&self) -> &Outline {
        &self.outline
    }

    /// How the pivots of the last factorisation were.
    pub fn pivots(&self) -> &Pivots {
        &self.pivots
    }

    /// What the device holds.
    pub fn factors(&self) -> &S::Factors {
        &self.factors
    }
}

impl<S: SubdomainFactors> LinearOperator<S> for Ildu<S> {
    fn apply(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        self.apply_at(space, Stride::ALL, x, y)
    }
    fn key(&self) -> u64 {
        self.key
    }
    fn bytes(&self) -> u64 {
        S::factors_bytes(&self.factors)
    }
}

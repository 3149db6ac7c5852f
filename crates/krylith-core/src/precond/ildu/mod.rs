//! ILDU on subdomains: incomplete factors of each subdomain's diagonal part of the matrix, A ≈ (I + L) D (I +
//! U).
//!
//! The preconditioner leaves out the entries that couple subdomains, so each subdomain is factorised and
//! solved alone: by one thread, or by one thread block that keeps its vector in shared memory. This is the
//! fused ILDU(0) of Gondhalekar, Haugen and others (2025), with ILU(k) fill (Saad 2003, Alg. 10.5) and blocks
//! of any order b·s.
//!
//! [`Subdomains`] lists the rows of each subdomain. A device that implements [`SubdomainFactors`] analyses
//! their patterns, computes factors and applies them. The analysis fills the host's [`Plan`], or a plan of
//! the device's own. Results do not depend on the number of threads or ranks, because each subdomain is
//! computed alone and in a fixed order.
//!
//! One application reads every entry of the factors and its column once, reads x once and writes y once.
//!
//! Rows of a subdomain are numbered by level. So a device needs no permutation inside a subdomain, and a
//! level is a range of rows. Both triangles have the same levels, because levels are computed from the
//! symmetrized pattern with its fill.

mod analysis;
mod outline;
mod plan;

pub use outline::Outline;
pub(crate) use plan::MAX_ORDER;
pub use plan::Plan;

use super::incomplete::IncompleteFactors;
use super::incomplete::pivots::Pivots;
use crate::operator::{LinearOperator, TermValues, Terms, fresh_key};
use crate::partition::Subdomains;
use crate::profile::{self, SetupPart};
use crate::space::{Precision, Space};
use crate::{Error, Result};
use std::ops::Deref;
use std::sync::Arc;

/// Positions in a vector that factors read and write. Component r of block row i, for blocks of order m, is
/// number (i·m + r)·step + offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)]
pub struct Stride {
    /// Offset, below `step`.
    pub offset: usize,
    /// Step, at least 1.
    pub step: usize,
}

impl Stride {
    /// All numbers of a vector, which has m numbers per block row.
    pub const ALL: Self = Self { offset: 0, step: 1 };

    /// Returns the positions of stage k of s, in vectors of b·s numbers per block row, with stages fastest.
    pub fn stage(k: usize, s: usize) -> Self {
        assert!(k < s, "stage {k} of {s}");
        Self { offset: k, step: s }
    }
}

/// A device that can factorise subdomains and solve with their factors.
///
/// # Examples
/// A bound for code that uses [`Ildu`] on any device.
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
    /// The data of the factors of all subdomains that do not depend on values, in this device's form.
    type Plan: Deref<Target = Outline>;
    /// Factors of subdomains. With a shift, a pivot that cannot be inverted gets shift times the largest
    /// entry of its row added to its diagonal.
    ///
    /// A solve, y ← (I + U)⁻¹ D⁻¹ (I + L)⁻¹ x in every subdomain, or its transpose, takes positions in
    /// vectors that are `step` times as long as the factors have rows. The other numbers of y do not change.
    type Factors: IncompleteFactors<Self, Plan = Self::Plan, Options = IlduOptions, How = Option<f64>, Solve = Stride>;
    /// Cuts the graph of terms on this device into subdomains of at most `rows` block rows, as
    /// [`SubdomainCut::Multilevel`](crate::partition::SubdomainCut::Multilevel); `None` if the host must cut.
    fn cut_graph(&self, _terms: &Terms, _rows: usize) -> Result<Option<Subdomains>> {
        Ok(None)
    }
    /// Analyses every subdomain with ILU(`fill`): patterns, order of elimination, levels. The result depends
    /// only on the patterns.
    ///
    /// # Errors
    /// As [`Plan::new`]; out of device memory.
    fn analyse(&self, terms: &Terms, subdomains: &Subdomains, fill: usize) -> Result<Arc<Self::Plan>>;
    /// Returns the largest number of block rows in a subdomain that this device supports, for blocks of this
    /// order.
    fn most_rows(&self, order: usize) -> usize;
}

/// Options of [`Ildu`].
///
/// # Examples
/// ```
/// use krylith::precond::IlduOptions;
/// // ILDU(1); pivots that cannot be inverted are shifted.
/// let options = IlduOptions { fill: 1, shift: Some(1e-3), ..IlduOptions::default() };
/// assert_eq!(options.precision, krylith::Precision::F64);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct IlduOptions {
    /// Level of fill k of ILU(k).
    pub fill: usize,
    /// Precision of the stored factors.
    pub precision: Precision,
    /// Precision in which solves compute. With `F32` the vector of a subdomain is in f32, and so are the
    /// stored factors. If the range of the numbers is too large for f32, factors and solves are in f64.
    pub compute: Precision,
    /// Shift of a pivot that cannot be inverted, relative to the largest entry of its row; `None` makes such
    /// a pivot an error.
    pub shift: Option<f64>,
}

impl IlduOptions {
    /// Returns true if solves are to compute in f32.
    pub(crate) fn is_narrow(&self) -> bool {
        self.compute == Precision::F32
    }

    /// Returns the precision of the stored factors.
    pub(crate) fn stored(&self) -> Precision {
        if self.is_narrow() { Precision::F32 } else { self.precision }
    }
}

/// The preconditioner y = (I + U)⁻¹ D⁻¹ (I + L)⁻¹ x, subdomain by subdomain.
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
    factors: S::Factors,
    options: IlduOptions,
    pivots: Pivots,
    key: u64,
}

impl<S: SubdomainFactors> Ildu<S> {
    /// Analyses and factorises the terms.
    ///
    /// # Errors
    /// A matrix that is not square; subdomains that do not cover it; a pivot that cannot be inverted, with
    /// its row; a shift that is not a positive number; out of device memory.
    pub fn new(space: &S, terms: &Terms, subdomains: &Subdomains, options: IlduOptions) -> Result<Self> {
        Self::with_plan(space, terms, space.analyse(terms, subdomains, options.fill)?, options)
    }

    /// Factorises with a plan that was made for terms of this pattern. The plan determines the fill, not
    /// `options.fill`.
    ///
    /// # Errors
    /// As [`new`](Self::new); terms of another shape than the plan's.
    pub fn with_plan(space: &S, terms: &Terms, plan: Arc<S::Plan>, options: IlduOptions) -> Result<Self> {
        if let Some(shift) = options.shift.filter(|s| !(*s > 0.0) || !s.is_finite()) {
            return Err(Error::invalid(format!("the pivot shift is {shift}; it must be a positive number")));
        }
        if terms.block_rows() != plan.block_rows {
            return Err(Error::invalid(format!(
                "the terms have {} block rows, but the plan was made for {}",
                terms.block_rows(),
                plan.block_rows
            )));
        }
        let factors = S::Factors::prepare(space, &plan, options)?;
        let mut ildu = Self { plan, factors, options, pivots: Pivots::default(), key: fresh_key() };
        ildu.update_values(space, terms)?;
        Ok(ildu)
    }

    /// Factorises again, for new values, τ or coefficients under the same patterns. Nothing is analysed.
    /// Nothing is allocated, unless factors in f32 must become factors in f64. After an error the factors
    /// must not be applied.
    ///
    /// Values in the memory of the GPU that holds the factors are read in place. A CPU copies device memory
    /// to the host, and keeps the workspace for that after the first time.
    ///
    /// # Errors
    /// Values of another shape than the plan's; a pivot that cannot be inverted, with its row.
    pub fn update_values<'v>(&mut self, space: &S, values: impl Into<TermValues<'v>>) -> Result<()> {
        let values = values.into();
        self.plan.check(&values)?;
        let _factors = profile::begin_inside(SetupPart::Factors);
        let narrow = self.is_narrow();
        self.pivots = self.factors.factorize(space, &values, self.options.shift)?.pivots;
        if self.is_narrow() != narrow {
            self.key = fresh_key(); // the factors are in other memory
        }
        let remedy = match self.options.shift {
            None => "shift such pivots (shift=1e-3), or use another preconditioner",
            Some(_) => "use a larger shift, or another preconditioner",
        };
        self.pivots.check(|row| row, remedy)
    }

    /// Does the same as [`apply`](LinearOperator::apply) on the positions `at` of longer vectors. The rest of
    /// y does not change.
    ///
    /// # Errors
    /// Vectors that are not `at.step` times as long as the factors have rows.
    pub fn apply_at(&self, space: &S, at: Stride, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        self.factors.solve(space, at, false, x, y)
    }

    /// Does the same as [`apply_transpose`](LinearOperator::apply_transpose) on the positions `at` of longer
    /// vectors. The rest of y does not change.
    ///
    /// # Errors
    /// As [`apply_at`](Self::apply_at); factors that were not prepared for it.
    pub fn apply_transpose_at(&self, space: &S, at: Stride, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        self.factors.solve(space, at, true, x, y)
    }

    /// Lays out the factors for [`apply_transpose`](LinearOperator::apply_transpose). Nothing is analysed or
    /// factorised. [`update_values`](Self::update_values) refreshes this layout too.
    ///
    /// # Errors
    /// Out of device memory.
    ///
    /// ```
    /// use krylith::device::Cpu;
    /// use krylith::precond::{Ildu, IlduOptions};
    /// use krylith::{matrix::Csr, operator::{LinearOperator, Terms}};
    /// use krylith_core::partition::Subdomains;
    /// let a = Csr::from_triplets(2, 2, &[(0, 0, 4.0), (0, 1, 1.0), (1, 0, 2.0), (1, 1, 3.0)])?;
    /// let space = Cpu::new(2, 1);
    /// let mut ildu = Ildu::new(&space, &Terms::csr(&a)?, &Subdomains::whole(2), IlduOptions::default())?;
    /// ildu.prepare_transpose(&space)?;
    /// let mut y = vec![0.0; 2];
    /// ildu.apply_transpose(&space, &vec![8.0, 7.0], &mut y)?;
    /// assert!((y[0] - 1.0).abs() < 1e-15 && (y[1] - 2.0).abs() < 1e-15); // Aᵀ y = x
    /// # Ok::<(), krylith::Error>(())
    /// ```
    pub fn prepare_transpose(&mut self, space: &S) -> Result<()> {
        self.factors.prepare_transpose(space)
    }

    /// Returns the plan: the patterns and the order of elimination.
    pub fn plan(&self) -> &S::Plan {
        &self.plan
    }

    /// Returns the outline of the factors.
    pub fn outline(&self) -> &Outline {
        &self.plan
    }

    /// Returns the statistics of the pivots of the last factorisation.
    pub fn pivots(&self) -> &Pivots {
        &self.pivots
    }

    /// Returns the factors as the device stores them.
    pub fn factors(&self) -> &S::Factors {
        &self.factors
    }

    /// Returns true if solves compute in f32.
    pub fn is_narrow(&self) -> bool {
        self.factors.is_narrow()
    }
}

impl<S: SubdomainFactors> LinearOperator<S> for Ildu<S> {
    fn apply(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        self.apply_at(space, Stride::ALL, x, y)
    }
    fn apply_columns(&self, space: &S, x: &[&S::Vector], y: &mut [&mut S::Vector]) -> Result<()> {
        self.factors.solve_columns(space, Stride::ALL, false, x, y)
    }
    fn has_transpose(&self) -> bool {
        true
    }
    fn apply_transpose(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        self.apply_transpose_at(space, Stride::ALL, x, y)
    }
    fn key(&self) -> u64 {
        self.key
    }
    fn bytes(&self) -> u64 {
        self.factors.bytes(Stride::ALL)
    }
}

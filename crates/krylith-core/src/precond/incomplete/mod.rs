//! What all incomplete factors share on the host: patterns with the fill of ILU(k), the order of elimination,
//! levels, and pivots. [`Ildu`](super::Ildu) and [`Schwarz`](super::Schwarz) build their plans with it, and a
//! device gives both the same interface, [`IncompleteFactors`].

pub(super) mod fill;
pub(crate) mod levels;
pub(crate) mod order;
pub(super) mod pivots;

use crate::operator::{TermValues, Terms, no_transpose};
use crate::partition::Subdomains;
use crate::space::Space;
use crate::{Error, Result};
use pivots::Pivots;
use std::sync::Arc;

/// Incomplete factors in the memory of a device, with all workspace for computing and applying them.
///
/// # Examples
/// Factors for any device and any plan:
/// ```
/// use krylith::{Result, operator::Space};
/// use krylith_core::operator::TermValues;
/// use krylith_core::precond::IncompleteFactors;
/// fn made<S: Space, F: IncompleteFactors<S>>(
///     space: &S,
///     plan: F::Plan,
///     options: F::Options,
///     values: &TermValues,
///     how: F::How,
/// ) -> Result<F> {
///     let mut factors = F::prepare(space, &plan.into(), options)?;
///     factors.factorize(space, values, how)?;
///     Ok(factors)
/// }
/// ```
pub trait IncompleteFactors<S: Space>: Sized {
    /// All that does not depend on values.
    type Plan;
    /// Options of the storage.
    type Options;
    /// Method of computing the factors.
    type How;
    /// Method of solving with the factors.
    type Solve;
    /// Allocates the factors of a plan, without computing values. Collective if the plan has halos with
    /// neighbours.
    ///
    /// # Errors
    /// A plan that is too large for the device; out of device memory.
    fn prepare(space: &S, plan: &Arc<Self::Plan>, options: Self::Options) -> Result<Self>;
    /// Factorises values on the plan's pattern. Entry (r·s + k, q·s + l) of a block is Σ
    /// Cₜ\[k,l\]·Aₜ\[r,q\]. Arithmetic is in f64 whatever the precision. Analyses nothing, and allocates
    /// nothing unless f32 has too small a range. Collective if the plan has halos with neighbours.
    ///
    /// A pivot that cannot be inverted is counted, and its row and column are left out of the rest of the
    /// factorisation. The caller has checked the shape of the values.
    ///
    /// # Errors
    /// Errors of the device; a rank that has ended or failed.
    fn factorize(&mut self, space: &S, values: &TermValues, how: Self::How) -> Result<FactorQuality>;
    /// Lays out the present factors for solves with their transposes. Later factorisations refresh them. If
    /// they are laid out already, nothing happens. Nothing is analysed or factorised. Collective if the plan
    /// has halos with neighbours.
    ///
    /// # Errors
    /// Factors that have no transpose; out of device memory; a rank that has ended or failed.
    fn prepare_transpose(&mut self, _space: &S) -> Result<()> {
        Err(no_transpose("this device's incomplete factors"))
    }
    /// Computes `y ← M⁻¹ x`, or `y ← M⁻ᵀ x` if `transposed` is true. Allocates nothing. Collective if the
    /// plan has halos with neighbours.
    ///
    /// # Errors
    /// Vectors of a wrong length; a transpose that was not prepared; a rank that has ended or failed.
    fn solve(
        &self,
        space: &S,
        how: Self::Solve,
        transposed: bool,
        x: &S::Vector,
        y: &mut S::Vector,
    ) -> Result<()>;
    /// Computes the same for several vectors, reading the factors once if the device can.
    ///
    /// # Errors
    /// As [`solve`](Self::solve).
    fn solve_columns(
        &self,
        space: &S,
        how: Self::Solve,
        transposed: bool,
        x: &[&S::Vector],
        y: &mut [&mut S::Vector],
    ) -> Result<()>
    where
        Self::Solve: Copy,
    {
        x.iter().zip(y).try_for_each(|(x, y)| self.solve(space, how, transposed, x, y))
    }
    /// Returns true if solves compute in f32. A factorisation whose numbers have too large a range for f32
    /// makes it false for good: it replaces the factors by factors in f64.
    fn is_narrow(&self) -> bool {
        false
    }
    /// Returns the bytes that one application must move at least.
    fn bytes(&self, how: Self::Solve) -> u64;
}

/// Quality of factors.
#[derive(Debug, Clone, Copy, PartialEq)]
#[doc(hidden)]
pub struct FactorQuality {
    /// Pivots of exact factors. Randomized factors have no counts: a bad pivot makes `finite` false.
    pub pivots: Pivots,
    /// The squares of numerator and denominator of ‖(A − L U)_S‖_F / ‖A‖_F, over the subdomains of this rank.
    /// Ranks add these numbers. The defect of exact factors is not computed, and is 0.
    pub defect2: [f64; 2],
    /// False if a number of randomized factors is not finite.
    pub finite: bool,
}

impl From<Pivots> for FactorQuality {
    fn from(pivots: Pivots) -> Self {
        Self { pivots, defect2: [0.0; 2], finite: true }
    }
}

/// Rejects a matrix that is not square, and subdomains of another number of rows.
pub(super) fn check_cut(terms: &Terms, subdomains: &Subdomains) -> Result<()> {
    let (rows, n) = (subdomains.block_rows(), terms.block_rows());
    if !terms.is_square() {
        return Err(Error::invalid("a preconditioner needs a square matrix"));
    }
    if rows != n {
        let what = format!("the subdomains have {rows} block rows, but the matrix has {n}");
        return Err(Error::invalid(what));
    }
    Ok(())
}

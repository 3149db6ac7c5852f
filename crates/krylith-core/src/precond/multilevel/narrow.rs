//! Cycles whose matrices and vectors are in f32, on a device that has kernels for them.
//!
//! They are V-cycles with polynomial smoothers for a single matrix on one rank. Such a cycle moves half of
//! the bytes, and is linear up to rounding in f32. So it is if matrices and transfers of scalar nodes are
//! stored in bf16: only they are rounded further (`precond/bf16.rs`), once.

use super::level::Level;
use super::smoother::{Diagonal, Smoother};
use super::{Coarsen, Cycle, MultilevelOptions, Transfer};
use crate::operator::{PointBlock, Terms};
use crate::space::{Precision, PrecondPrecision};
use crate::{Error, Result};
use std::cell::RefCell;

/// What a device needs of one level.
#[doc(hidden)]
pub struct NarrowLevel<'a, S: Coarsen> {
    /// The space of the level.
    pub space: &'a S,
    /// The matrix, with its coefficient.
    pub terms: &'a Terms<'static>,
    /// A; `None` if only the inverse is applied.
    pub operator: Option<&'a RefCell<PointBlock<S>>>,
    /// D⁻¹ of the smoother, and its coefficients `[a, c]` of each step; `None` if the inverse is applied.
    pub smoother: Option<(Diagonal<'a, S>, &'a [[f64; 2]])>,
    /// P and R; `None` on the last level.
    pub transfer: Option<&'a Transfer>,
    /// True if P and R act on single components, as matrices of blocks.
    pub nodal: bool,
    /// The product with the dense inverse of the last level.
    pub inverse: Option<&'a S::Product>,
}

/// A cycle in f32: the application of a hierarchy.
#[doc(hidden)]
pub trait NarrowCycle<S: Coarsen> {
    /// Computes x ← B b. Asynchronous on a GPU; allocates nothing.
    ///
    /// # Errors
    /// Errors of the device.
    fn apply(&self, on: &S, b: &S::Vector, x: &mut S::Vector) -> Result<()>;
    /// Takes new values of the same levels, in the same memory. Returns false if the cycle must be made
    /// again.
    ///
    /// # Errors
    /// Errors of the device.
    fn update(&mut self, levels: &[NarrowLevel<S>]) -> Result<bool>;
    /// Returns the fewest bytes that a cycle can move.
    fn bytes(&self) -> u64;
    /// Returns the number of levels whose matrix is stored in bf16, and of those with a matrix.
    fn in_bf16(&self) -> [usize; 2];
}

/// A cycle of a device.
pub(super) type BoxedCycle<S> = Box<dyn NarrowCycle<S>>;

/// Makes the cycle in f32 of these levels, or brings the known one up to date. Returns `None` if the options
/// ask for none, or if the device, its memory, the levels or the range of their numbers do not permit one.
/// Also returns true if the launches of a cycle are those of the known one.
///
/// # Errors
/// Errors of the device.
pub(super) fn cycle<S: Coarsen>(
    levels: &[Level<S>],
    options: &MultilevelOptions,
    known: Option<BoxedCycle<S>>,
) -> Result<(Option<BoxedCycle<S>>, bool)> {
    let unknown = known.is_none();
    if options.compute == PrecondPrecision::F64
        || options.precision != Precision::F64
        || options.cycle != Cycle::V
    {
        return Ok((None, unknown));
    }
    let parts: Option<Vec<NarrowLevel<S>>> = levels.iter().map(part).collect();
    let Some(parts) = parts else { return Ok((None, unknown)) };
    if let Some(mut known) = known
        && known.update(&parts)?
    {
        return Ok((Some(known), true));
    }
    match levels[0].space.narrow_cycle(&parts, options.compute) {
        Ok(Some(made)) => Ok((Some(made), false)),
        // Cycles in f64 need no more memory.
        Ok(None) | Err(Error::Memory { .. }) => Ok((None, unknown)),
        Err(e) => Err(e),
    }
}

/// Returns the parts of a level, if it has one matrix on one rank, with a polynomial smoother or a dense
/// inverse.
fn part<S: Coarsen>(level: &Level<S>) -> Option<NarrowLevel<'_, S>> {
    let terms = &level.terms;
    if terms.halo.is_some() || (terms.stages(), terms.terms.len()) != (1, 1) {
        return None;
    }
    let transfer = level.transfer.as_ref();
    if transfer.is_some_and(|t| t.joint.is_some()) {
        return None;
    }
    let inverse = match &level.inverse {
        Some(inverse) => Some(inverse.product()?.product()),
        None => None,
    };
    let smoother = match &level.smoother {
        Some(Smoother::Polynomial { scalar: Some(d), steps, .. }) => Some((Diagonal::Scalar(d), &steps[..])),
        Some(Smoother::Polynomial { blocks, scalar: None, steps }) => {
            Some((Diagonal::Blocks(&**blocks), &steps[..]))
        }
        Some(_) => return None,
        None => None,
    };
    if smoother.is_none() && inverse.is_none() {
        return None; // the finest level of `coarse`
    }
    Some(NarrowLevel {
        space: &level.space,
        terms,
        operator: level.operator.as_deref(),
        smoother,
        transfer: transfer.map(|t| &t.matrices),
        nodal: transfer.is_some_and(|t| t.nodal.is_some()),
        inverse,
    })
}

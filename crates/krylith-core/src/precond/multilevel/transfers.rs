//! P and R between two levels, as operators that cycles apply.

use super::ranks::{Joint, Route};
use super::side::together;
use super::smoother::{Fused, Lane};
use super::{Coarsen, Nodal, Transfer};
use crate::Result;
use crate::matrix::{Bsr, Dense};
use crate::operator::{Format, LinearOperator, PointBlock, Terms, joined_key};
use crate::precond::compose::add;
use crate::space::{MOST_COLUMNS, Precision};
use arrayvec::ArrayVec;
use rayon::prelude::*;
use std::borrow::Cow;

/// Number of rows below which a second thread costs more time than it saves.
const FEW: usize = 1 << 12;
/// Largest number of stages that a GPU's products support.
const STAGES: usize = 4;

/// P and R between two levels.
pub(super) struct Transfers<S: Coarsen> {
    pub matrices: Transfer,
    /// Number of unknowns of a node.
    pub(super) order: usize,
    /// P ⊗ I and R ⊗ I as products, if the device has no kernel for them.
    pub(super) products: Option<[PointBlock<S>; 2]>,
    /// True if the product with P adds to its result in the same pass.
    pub(super) adds: bool,
    /// The part of the transfer that several ranks share.
    pub joint: Option<Joint<S>>,
    /// P by nodes, if it was built from near-null vectors on one rank. P and R then act on components: they
    /// are applied as they are, not as P ⊗ I and R ⊗ I.
    pub nodal: Option<Box<dyn Nodal>>,
}

impl<S: Coarsen> Transfers<S> {
    /// Builds P and R for the components and stages of the terms. With `nodal`, P and R already act on
    /// components.
    ///
    /// # Errors
    /// Out of device memory.
    pub fn new(
        space: &S,
        matrices: Transfer,
        nodal: bool,
        terms: &Terms,
        precision: Precision,
    ) -> Result<Self> {
        let order = terms.block() * terms.stages();
        if !nodal && space.interpolates(order) {
            return Ok(Self { matrices, order, products: None, adds: false, joint: None, nodal: None });
        }
        let made = |p: &Bsr| -> Result<PointBlock<S>> {
            let wide = if nodal { Terms::bsr(p) } else { widened(p, order)? };
            match wide.block() * wide.stages() {
                1 => PointBlock::with_format(space, &wide, precision, Format::Csr),
                _ => PointBlock::new(space, &wide, precision, false),
            }
        };
        let products = Some([made(&matrices.prolongation)?, made(&matrices.restriction)?]);
        Ok(Self { matrices, order, products, adds: false, joint: None, nodal: None })
    }

    /// Builds own rows of P and R between a level that ranks share and the next level. Ranks share that level
    /// too, or each has all of its rows.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn joint(
        space: &S,
        matrices: Transfer,
        terms: &Terms,
        precision: Precision,
        joint: Joint<S>,
    ) -> Result<Self> {
        let order = terms.block() * terms.stages();
        let own = match joint.route() {
            Some(_) => Self { matrices, order, products: None, adds: false, joint: None, nodal: None },
            None => Self::new(space, matrices, joint.is_nodal(), terms, precision)?,
        };
        Ok(Self { joint: Some(joint), ..own })
    }

    /// Returns the transfer of vectors, if it needs other ranks.
    fn route(&self) -> Option<&Route<S>> {
        self.joint.as_ref().and_then(Joint::route)
    }

    /// Computes b_c ← R r for several vectors.
    pub fn restrict(&self, on: &S, r: &[&S::Vector], coarse: &mut [&mut S::Vector]) -> Result<()> {
        let mut each = r.iter().zip(&mut *coarse);
        match (&self.products, self.route()) {
            (_, Some(route)) => each.try_for_each(|(r, coarse)| route.restrict(on, r, coarse)),
            (Some([_, restriction]), None) => together(restriction, on, r, coarse),
            (None, None) => each.try_for_each(|(r, coarse)| {
                on.interpolate(&self.matrices.restriction, self.order, r, coarse, false)
            }),
        }
    }

    /// Computes x ← P x_c for several vectors.
    pub fn prolong(&self, on: &S, coarse: &[&S::Vector], x: &mut [&mut S::Vector]) -> Result<()> {
        let mut each = coarse.iter().zip(&mut *x);
        match (&self.products, self.route()) {
            (_, Some(route)) => each.try_for_each(|(coarse, x)| route.prolong(on, coarse, x)),
            (Some([prolongation, _]), None) => together(prolongation, on, coarse, x),
            (None, None) => each.try_for_each(|(coarse, x)| {
                on.interpolate(&self.matrices.prolongation, self.order, coarse, x, false)
            }),
        }
    }

    /// Computes x ← x + P x_c in each lane.
    pub fn correct(&self, on: &S, coarse: &[&S::Vector], lanes: &mut [Lane<S>]) -> Result<()> {
        match (&self.products, self.route()) {
            (Some([prolongation, _]), _) if self.adds => {
                let lanes = lanes.iter_mut().map(|lane| Fused::Added { y: &mut *lane.x });
                return on
                    .fused_together(prolongation.product(), coarse.iter().copied().zip(lanes).collect());
            }
            (Some([prolongation, _]), _) => {
                let mut to: ArrayVec<_, MOST_COLUMNS> =
                    lanes.iter_mut().map(|lane| &mut lane.room.q).collect();
                together(prolongation, on, coarse, &mut to)?;
            }
            (None, Some(route)) => {
                let mut added = false;
                for (coarse, lane) in coarse.iter().zip(&mut *lanes) {
                    added = route.correct(on, coarse, lane.x)?;
                    if !added {
                        route.prolong(on, coarse, &mut lane.room.q)?;
                    }
                }
                if added {
                    return Ok(());
                }
            }
            (None, None) => {
                return coarse.iter().zip(lanes).try_for_each(|(coarse, lane)| {
                    on.interpolate(&self.matrices.prolongation, self.order, coarse, lane.x, true)
                });
            }
        }
        lanes
            .iter_mut()
            .try_for_each(|Lane { x, room, .. }| on.sweep(add, &mut room.scalars, [], [&room.q], [x], []))
    }

    /// Returns the fewest bytes that one application of P and one of R can move.
    pub fn bytes(&self) -> u64 {
        if let Some(route) = self.route() {
            return route.bytes();
        }
        let Some(products) = &self.products else {
            let p = &self.matrices.prolongation;
            let (rows, columns) = (p.block_rows() as u64, p.block_columns() as u64);
            return 24 * p.stored() as u64
                + 8 * (rows + columns)
                + 8 * self.order as u64 * (3 * rows + 2 * columns);
        };
        products.iter().map(|product| product.bytes()).sum()
    }

    /// Returns a key that changes when the buffers of P and R change.
    pub fn key(&self) -> u64 {
        let products = self.products.iter().flatten().map(|product| product.key());
        joined_key(products.chain(self.route().map(Route::key)))
    }
}

/// Returns P ⊗ I, where I has this order, as terms that every device supports: I becomes as many stages as
/// possible, and the rest of the order becomes diagonal blocks.
pub(super) fn widened(p: &Bsr, order: usize) -> Result<Terms<'static>> {
    let stages = (1..=STAGES).rev().find(|s| order.is_multiple_of(*s)).unwrap_or(1);
    let b = order / stages;
    let matrix = if b == 1 {
        p.clone()
    } else {
        let mut values = vec![0.0; p.blocks() * b * b];
        let blocks = values.par_chunks_exact_mut(b * b).zip(p.values()).with_min_len(FEW);
        blocks.for_each(|(block, v)| (0..b).for_each(|k| block[k * b + k] = *v));
        let (rows, columns) = (p.block_rows(), p.block_columns());
        Bsr::new(b, rows, columns, p.row_ptr().to_vec(), p.col().to_vec(), values)?
    };
    Ok(Terms { terms: vec![(Dense::identity(stages), Cow::Owned(matrix))], halo: None })
}

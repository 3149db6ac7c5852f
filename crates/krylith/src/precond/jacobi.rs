//! Point-block Jacobi: the inverse of every diagonal block.
//!
//! For a Kronecker operator the block of a node couples all its components and stages: order b·s. Point Jacobi is
//! the same thing with 1×1 blocks. Ledger of one application: (b·s)² numbers a node, x and y once.

use crate::operator::{LinearOperator, Terms, fresh_key};
use crate::space::{Space, Store};
use crate::{Error, Result};

/// A device that can hold and apply a block-diagonal matrix.
pub trait BlockDiagonal: Space {
    /// Blocks on the device.
    type Blocks;
    /// Uploads row-major blocks of order `order`.
    fn prepare_blocks(&self, order: usize, blocks: &[f64], store: Store) -> Result<Self::Blocks>;
    /// New numbers in the same place.
    fn update_blocks(&self, to: &mut Self::Blocks, blocks: &[f64]) -> Result<()>;
    /// `y ← D x`.
    fn multiply_blocks(&self, blocks: &Self::Blocks, x: &Self::Vector, y: &mut Self::Vector) -> Result<()>;
    /// Bytes that one application must move.
    fn blocks_bytes(blocks: &Self::Blocks) -> u64;
}

/// y = D⁻¹x with D the diagonal blocks of an operator.
pub struct BlockJacobi<S: BlockDiagonal> {
    blocks: S::Blocks,
    inverse: Vec<f64>,
    work: Vec<f64>,
    order: usize,
    key: u64,
}

impl<S: BlockDiagonal> BlockJacobi<S> {
    /// Inverts the diagonal blocks of a sum of terms, each of order block × stages.
    ///
    /// # Errors
    /// A matrix that is not square; a missing, zero or singular diagonal block, with its row.
    pub fn new(space: &S, terms: &Terms, store: Store) -> Result<Self> {
        let order = terms.block() * terms.stages();
        let mut inverse = vec![0.0; terms.block_rows() * order * order];
        let mut work = vec![0.0; order * order];
        invert_diagonal(terms, &mut inverse, &mut work)?;
        let blocks = space.prepare_blocks(order, &inverse, store)?;
        Ok(Self { blocks, inverse, work, order, key: fresh_key() })
    }

    /// Inverts again, for new values, τ or coefficients of the same shape.
    ///
    /// # Errors
    /// As [`new`](Self::new); a different shape.
    pub fn update_values(&mut self, space: &S, terms: &Terms) -> Result<()> {
        let order = terms.block() * terms.stages();
        if order != self.order || terms.block_rows() * order * order != self.inverse.len() {
            return Err(Error::invalid(
                "the new values have another shape than the preconditioner was built for",
            ));
        }
        invert_diagonal(terms, &mut self.inverse, &mut self.work)?;
        space.update_blocks(&mut self.blocks, &self.inverse)
    }

    /// Order of a block.
    pub fn order(&self) -> usize {
        self.order
    }
}

impl<S: BlockDiagonal> LinearOperator<S> for BlockJacobi<S> {
    fn apply(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        space.multiply_blocks(&self.blocks, x, y)
    }
    fn key(&self) -> u64 {
        self.key
    }
    fn bytes(&self) -> u64 {
        S::blocks_bytes(&self.blocks)
    }
}

fn invert_diagonal(terms: &Terms, inverse: &mut [f64], work: &mut [f64]) -> Result<()> {
    let (b, s) = (terms.block(), terms.stages());
    let (order, remedy) = (b * s, "try --precond none, or another block size");
    if !terms.is_square() {
        return Err(Error::invalid("a preconditioner needs a square matrix"));
    }
    for (i, out) in inverse.chunks_exact_mut(order * order).enumerate() {
        work.fill(0.0);
        let mut present = false;
        for (c, a) in &terms.terms {
            let Some(block) = a.diagonal_block(i) else { continue };
            present = true;
            for r in 0..b {
                for q in 0..b {
                    for k in 0..s {
                        for l in 0..s {
                            work[(r * s + k) * order + q * s + l] += c[(k, l)] * block[r * b + q];
                        }
                    }
                }
            }
        }
        let kind = if !present {
            "missing"
        } else if work.iter().all(|&v| v == 0.0) {
            "zero"
        } else if !invert_block(order, work, out) {
            "singular"
        } else {
            continue;
        };
        return Err(Error::SingularBlock { row: i, kind, remedy });
    }
    Ok(())
}

/// Inverse of a row-major matrix by Gauss–Jordan elimination with row pivoting; false if it is singular.
///
/// Rows are first scaled by their largest entry, so that a block of small numbers is not called singular.
pub fn invert_block(n: usize, a: &mut [f64], inverse: &mut [f64]) -> bool {
    inverse.fill(0.0);
    for r in 0..n {
        let largest = a[r * n..(r + 1) * n].iter().fold(0.0f64, |m, v| m.max(v.abs()));
        if !(largest > 0.0) || !largest.is_finite() {
            return false;
        }
        a[r * n..(r + 1) * n].iter_mut().for_each(|v| *v /= largest);
        inverse[r * n + r] = 1.0 / largest;
    }
    for c in 0..n {
        let pivot = (c..n).fold(c, |p, r| if a[r * n + c].abs() > a[p * n + c].abs() { r } else { p });
        if !(a[pivot * n + c].abs() > 1e-14) {
            return false;
        }
        if pivot != c {
            for k in 0..n {
                a.swap(pivot * n + k, c * n + k);
                inverse.swap(pivot * n + k, c * n + k);
            }
        }
        let d = 1.0 / a[c * n + c];
        for k in 0..n {
            a[c * n + k] *= d;
            inverse[c * n + k] *= d;
        }
        for r in 0..n {
            let f = a[r * n + c];
            if r != c && f != 0.0 {
                for k in 0..n {
                    a[r * n + k] -= f * a[c * n + k];
                    inverse[r * n + k] -= f * inverse[c * n + k];
                }
            }
        }
    }
    inverse.iter().all(|v| v.is_finite())
}

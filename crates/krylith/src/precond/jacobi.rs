//! Point-block Jacobi: the inverse of every diagonal block.
//!
//! For a Kronecker operator the block of a node couples all its components and stages: order b·s. Point Jacobi is
//! the same thing with 1×1 blocks. Ledger of one application: (b·s)² numbers a node, x and y once.

use super::invert::eliminate;
use crate::matrix::Bsr;
use crate::memory::Numbers;
use crate::operator::{HostTerms, LinearOperator, TermValues, Terms, check_count, fresh_key};
use crate::space::{Space, Store};
use crate::{Error, Result};

/// A device that can hold and apply a block-diagonal matrix.
pub trait BlockDiagonal: Space {
    /// Blocks on the device.
    type Blocks;
    /// Uploads row-major blocks of order `order`.
    fn prepare_blocks(&self, order: usize, blocks: Numbers, store: Store) -> Result<Self::Blocks>;
    /// New numbers in the same place.
    fn update_blocks(&self, to: &mut Self::Blocks, blocks: Numbers) -> Result<()>;
    /// `y ← D x`.
    fn multiply_blocks(&self, blocks: &Self::Blocks, x: &Self::Vector, y: &mut Self::Vector) -> Result<()>;
    /// Bytes that one application must move.
    fn blocks_bytes(blocks: &Self::Blocks) -> u64;
}

/// y = D⁻¹x with D the diagonal blocks of an operator.
pub struct BlockJacobi<S: BlockDiagonal> {
    blocks: S::Blocks,
    diagonals: Vec<Diagonal>,
    /// Values that came from a GPU.
    scratch: [Vec<f64>; 2],
    inverse: Vec<f64>,
    work: Vec<f64>,
    order: usize,
    key: u64,
}

/// Where the diagonal blocks of one term stand.
struct Diagonal {
    /// Numbers that the term's matrix has.
    numbers: usize,
    /// Block row → number of its diagonal block, or [`NONE`].
    blocks: Vec<usize>,
}

/// "No diagonal block in this row."
const NONE: usize = usize::MAX;

impl<S: BlockDiagonal> BlockJacobi<S> {
    /// Inverts the diagonal blocks of a sum of terms, each of order block × stages.
    ///
    /// # Errors
    /// A matrix that is not square; a missing, zero or singular diagonal block, with its row.
    pub fn new(space: &S, terms: &Terms, store: Store) -> Result<Self> {
        let order = terms.block() * terms.stages();
        let mut inverse = vec![0.0; terms.block_rows() * order * order];
        let mut work = vec![0.0; order * order];
        check_count(terms.terms.len())?;
        if !terms.is_square() {
            return Err(Error::invalid("a preconditioner needs a square matrix"));
        }
        let diagonal = |a: &Bsr| {
            let at = |i: usize| a.diagonal_position(i).unwrap_or(NONE);
            Diagonal { numbers: a.values().len(), blocks: (0..a.block_rows()).map(at).collect() }
        };
        let diagonals: Vec<Diagonal> = terms.terms.iter().map(|t| diagonal(&t.1)).collect();
        let mut scratch = <[Vec<f64>; 2]>::default();
        let host = TermValues::from(terms).on_host(&mut scratch)?;
        invert_diagonal(&diagonals, &host, order, &mut inverse, &mut work)?;
        let blocks = space.prepare_blocks(order, Numbers::from(&inverse), store)?;
        Ok(Self { blocks, diagonals, scratch, inverse, work, order, key: fresh_key() })
    }

    /// Inverts again, for new values, τ or coefficients under the same patterns.
    ///
    /// Blocks are inverted on the host: values in device memory are brought there once, all of them.
    ///
    /// # Errors
    /// As [`new`](Self::new); a different shape.
    pub fn update_values<'v>(&mut self, space: &S, values: impl Into<TermValues<'v>>) -> Result<()> {
        let values = values.into();
        let stages = values.stages();
        if stages == 0 || self.order % stages != 0 {
            return Err(Error::invalid(format!(
                "new values for {stages} stages; the preconditioner has blocks of order {}",
                self.order
            )));
        }
        values.check(stages, self.diagonals.iter().map(|d| d.numbers))?;
        let host = values.on_host(&mut self.scratch)?;
        invert_diagonal(&self.diagonals, &host, self.order, &mut self.inverse, &mut self.work)?;
        space.update_blocks(&mut self.blocks, Numbers::from(&self.inverse))
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

fn invert_diagonal(
    diagonals: &[Diagonal],
    terms: &HostTerms,
    order: usize,
    inverse: &mut [f64],
    work: &mut [f64],
) -> Result<()> {
    let remedy = "try without a preconditioner, or another block size";
    for (i, out) in inverse.chunks_exact_mut(order * order).enumerate() {
        work.fill(0.0);
        let mut present = false;
        for ((c, values), diagonal) in terms.iter().flatten().zip(diagonals) {
            let (s, at) = (c.rows(), diagonal.blocks[i]);
            let b = order / s;
            if at == NONE {
                continue;
            }
            let block = &values[at * b * b..][..b * b];
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
    eliminate(n, a, inverse).is_ok()
}

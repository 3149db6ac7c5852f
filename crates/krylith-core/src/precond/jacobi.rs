//! Point-block Jacobi: the inverse of every diagonal block.
//!
//! For a Kronecker operator the block of a node couples all its components and stages: its order is b·s.
//! Point Jacobi is the case of 1×1 blocks. One application reads (b·s)² numbers per node, reads x once and
//! writes y once.

use super::invert::eliminate;
use crate::matrix::Bsr;
use crate::memory::Numbers;
use crate::operator::{HostTerms, LinearOperator, TermValues, Terms, check_count, fresh_key};
use crate::space::{Precision, Space};
use crate::{Error, Result};

/// A device that can store and apply a block-diagonal matrix.
///
/// # Examples
/// ```
/// use krylith::device::Cpu;
/// use krylith::{Precision, memory::Numbers};
/// use krylith_core::precond::BlockDiagonal;
/// /// y = D x with blocks of 2, wherever `space` is.
/// fn multiply<S: BlockDiagonal>(
///     space: &S,
///     blocks: &[f64],
///     x: &S::Vector,
///     y: &mut S::Vector,
/// ) -> krylith::Result<()> {
///     let d = space.prepare_blocks(2, Numbers::from(blocks), Precision::F64)?;
///     space.multiply_blocks(&d, false, x, y)
/// }
/// let mut y = vec![0.0; 2];
/// multiply(&Cpu::new(2, 1), &[1.0, 2.0, 3.0, 4.0], &vec![1.0, 1.0], &mut y)?;
/// assert_eq!(y, [3.0, 7.0]);
/// # Ok::<(), krylith::Error>(())
/// ```
pub trait BlockDiagonal: Space {
    /// The blocks on the device.
    type Blocks;
    /// Uploads row-major blocks of order `order`.
    fn prepare_blocks(&self, order: usize, blocks: Numbers, precision: Precision) -> Result<Self::Blocks>;
    /// Replaces the numbers of the blocks.
    fn update_blocks(&self, to: &mut Self::Blocks, blocks: Numbers) -> Result<()>;
    /// Computes `y ← D x`, or `y ← Dᵀ x` if `transposed` is true.
    fn multiply_blocks(
        &self,
        blocks: &Self::Blocks,
        transposed: bool,
        x: &Self::Vector,
        y: &mut Self::Vector,
    ) -> Result<()>;
    /// Returns the bytes that one application must move.
    fn blocks_bytes(blocks: &Self::Blocks) -> u64;
    /// Computes and inverts the diagonal blocks of a sum of terms on the device; `None` if the host must do
    /// it.
    ///
    /// # Errors
    /// A missing, zero or singular diagonal block, with its row.
    fn invert_diagonal(&self, terms: &Terms, precision: Precision) -> Result<Option<Self::Blocks>> {
        let _ = (terms, precision);
        Ok(None)
    }
    /// Computes and inverts the blocks again for new values, in blocks that
    /// [`invert_diagonal`](Self::invert_diagonal) returned. Returns false if the host must do it. After an
    /// error the blocks are unchanged.
    ///
    /// # Errors
    /// As [`invert_diagonal`](Self::invert_diagonal).
    fn invert_new_diagonal(&self, blocks: &mut Self::Blocks, values: &TermValues) -> Result<bool> {
        let _ = (blocks, values);
        Ok(false)
    }
}

/// The preconditioner y = D⁻¹x, where D consists of the diagonal blocks of an operator.
///
/// # Examples
/// ```
/// use krylith::device::Cpu;
/// use krylith::{Precision, matrix::Bsr, operator::{LinearOperator, Terms, Space}, precond::BlockJacobi};
/// // One node with two unknowns: the inverse of its block solves the system.
/// let a = Bsr::new(2, 1, 1, vec![0, 1], vec![0], vec![2.0, 1.0, 1.0, 3.0])?;
/// let space = Cpu::new(2, 1);
/// let jacobi = BlockJacobi::new(&space, &Terms::bsr(&a), Precision::F64)?;
/// let mut y = space.vector()?;
/// jacobi.apply(&space, &vec![3.0, 4.0], &mut y)?;
/// assert!(y.iter().all(|y| (y - 1.0).abs() < 1e-14));
/// # Ok::<(), krylith::Error>(())
/// ```
pub struct BlockJacobi<S: BlockDiagonal> {
    blocks: S::Blocks,
    diagonals: Vec<Diagonal>,
    /// Scratch for values copied from a GPU. Like `inverse` and `work`, it is used only if the host inverts.
    scratch: [Vec<f64>; 2],
    inverse: Vec<f64>,
    work: Vec<f64>,
    order: usize,
    key: u64,
}

/// Positions of the diagonal blocks of one term.
struct Diagonal {
    /// Number of stored numbers in the term's matrix.
    numbers: usize,
    /// For each block row the position of its diagonal block, or [`NONE`]. It is empty if the device inverts.
    blocks: Vec<usize>,
}

/// Marks a row without a diagonal block.
const NONE: usize = usize::MAX;

impl<S: BlockDiagonal> BlockJacobi<S> {
    /// Inverts the diagonal blocks of a sum of terms, each of order block × stages.
    ///
    /// # Errors
    /// A matrix that is not square; a missing, zero or singular diagonal block, with its row.
    pub fn new(space: &S, terms: &Terms, precision: Precision) -> Result<Self> {
        let order = terms.block() * terms.stages();
        check_count(terms.terms.len())?;
        if !terms.is_square() {
            return Err(Error::invalid("a preconditioner needs a square matrix"));
        }
        if let Some(blocks) = space.invert_diagonal(terms, precision)? {
            let numbers = |a: &Bsr| a.blocks() * a.block() * a.block();
            let diagonal = |a: &Bsr| Diagonal { numbers: numbers(a), blocks: Vec::new() };
            let diagonals = terms.terms.iter().map(|t| diagonal(&t.1)).collect();
            let (scratch, inverse, work) = Default::default();
            return Ok(Self { blocks, diagonals, scratch, inverse, work, order, key: fresh_key() });
        }
        let mut inverse = vec![0.0; terms.block_rows() * order * order];
        let mut work = vec![0.0; order * order];
        let diagonal = |a: &Bsr| {
            let at = |i: usize| a.diagonal_position(i).unwrap_or(NONE);
            Diagonal { numbers: a.stored(), blocks: (0..a.block_rows()).map(at).collect() }
        };
        let diagonals: Vec<Diagonal> = terms.terms.iter().map(|t| diagonal(&t.1)).collect();
        let mut scratch = <[Vec<f64>; 2]>::default();
        let host = TermValues::from(terms).on_host(&mut scratch)?;
        invert_diagonal(&diagonals, &host, order, &mut inverse, &mut work)?;
        let blocks = space.prepare_blocks(order, Numbers::from(&inverse), precision)?;
        Ok(Self { blocks, diagonals, scratch, inverse, work, order, key: fresh_key() })
    }

    /// Inverts again, for new values, τ or coefficients under the same patterns.
    ///
    /// A GPU inverts blocks of order 1 to 32, and reads values in place if they are in its own memory.
    ///
    /// # Errors
    /// As [`new`](Self::new); values of another shape.
    pub fn update_values<'v>(&mut self, space: &S, values: impl Into<TermValues<'v>>) -> Result<()> {
        let values = values.into();
        let stages = values.stages();
        if stages == 0 || self.order % stages != 0 {
            return Err(Error::invalid(format!(
                "the new values have {stages} stages, which do not fit the preconditioner's blocks of order \
                 {}; build a new one",
                self.order
            )));
        }
        values.check(stages, self.diagonals.iter().map(|d| d.numbers))?;
        if space.invert_new_diagonal(&mut self.blocks, &values)? {
            return Ok(());
        }
        let host = values.on_host(&mut self.scratch)?;
        invert_diagonal(&self.diagonals, &host, self.order, &mut self.inverse, &mut self.work)?;
        space.update_blocks(&mut self.blocks, Numbers::from(&self.inverse))
    }

    /// Returns the order of a block.
    pub fn order(&self) -> usize {
        self.order
    }
}

impl<S: BlockDiagonal> LinearOperator<S> for BlockJacobi<S> {
    fn apply(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        space.multiply_blocks(&self.blocks, false, x, y)
    }
    fn has_transpose(&self) -> bool {
        true
    }
    fn apply_transpose(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        space.multiply_blocks(&self.blocks, true, x, y)
    }
    fn key(&self) -> u64 {
        self.key
    }
    fn bytes(&self) -> u64 {
        S::blocks_bytes(&self.blocks)
    }
}

/// Defects of a diagonal block without an inverse.
pub(crate) const BAD_BLOCKS: [&str; 3] = ["missing", "zero", "singular"];

pub(crate) fn bad_block(row: usize, kind: &'static str) -> Error {
    Error::SingularBlock { row, kind, remedy: "try without a preconditioner, or another block size" }
}

fn invert_diagonal(
    diagonals: &[Diagonal],
    terms: &HostTerms,
    order: usize,
    inverse: &mut [f64],
    work: &mut [f64],
) -> Result<()> {
    if order == 1 {
        return invert_entries(diagonals, terms, inverse);
    }
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
            BAD_BLOCKS[0]
        } else if work.iter().all(|&v| v == 0.0) {
            BAD_BLOCKS[1]
        } else if !invert_block(order, work, out) {
            BAD_BLOCKS[2]
        } else {
            continue;
        };
        return Err(bad_block(i, kind));
    }
    Ok(())
}

/// Inverts blocks of order 1, without elimination.
fn invert_entries(diagonals: &[Diagonal], terms: &HostTerms, inverse: &mut [f64]) -> Result<()> {
    for (i, out) in inverse.iter_mut().enumerate() {
        let (mut entry, mut present) = (0.0, false);
        for ((c, values), diagonal) in terms.iter().flatten().zip(diagonals) {
            let at = diagonal.blocks[i];
            if at != NONE {
                entry += c[(0, 0)] * values[at];
                present = true;
            }
        }
        let kind = match entry {
            _ if !present => BAD_BLOCKS[0],
            0.0 => BAD_BLOCKS[1],
            _ if !f64::is_finite(entry) => BAD_BLOCKS[2],
            _ => {
                *out = 1.0 / entry;
                continue;
            }
        };
        return Err(bad_block(i, kind));
    }
    Ok(())
}

/// Inverts a row-major matrix by Gauss–Jordan elimination with row pivoting; returns false if it is singular.
///
/// Rows are first scaled by their largest entry, so that a block is not taken for singular because its
/// numbers are small.
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

//! Products with several vectors whose numbers alternate, on a GPU: the launches of `kernels/interleaved.cu`
//! and `kernels/interleave.cu`.
//!
//! These read the arrays of the format, which a hierarchy keeps for each of its levels, so they need no
//! layout and no memory of their own.

use super::Cuda;
use super::compiler::Kernel;
use super::driver::Buffer;
use super::launch::{At, Entry, Function, Of, Set, kernels};
use super::product::CudaProduct;
use super::smooth::Smooth;
use super::specialisations::define;
use crate::operator::{Terms, check_lengths};
use crate::space::MOST_COLUMNS;
use crate::{Error, Result};
use std::sync::Arc;

kernels! {
    INTERLEAVED in "interleaved.cu", all_kernels;
    fn interleaved_product(
        halt: At<i32>, rows: i64, columns_shift: i32, share_shift: i32, row_ptr: At<i64>, col: At<u32>,
        values: At<f64>, coefficient: f64, of: Smooth, y: At<f64>,
    );
}

kernels! {
    INTERLEAVE in "interleave.cu", |_| vec![interleave.plain().into()];
    fn interleave(halt: At<i32>, numbers: i64, count: i32, width: i32, from: Vectors, to: At<f64>);
    fn all_halted(count: i32, flags: Flags, out: At<i32>);
    fn separate(halt: At<i32>, numbers: i64, count: i32, width: i32, from: At<f64>, to: Vectors);
}

/// Addresses of vectors.
type Vectors = [u64; MOST_COLUMNS];
/// Addresses of the guards of several solves.
type Flags = [u64; MOST_COLUMNS];

/// Threads per thread block of all three kernels.
const THREADS: usize = 256;
/// Number of columns of a lane.
const COLUMNS: usize = 4;
/// Largest block size.
const MOST_BLOCK: usize = 8;
/// Fewest blocks of a row for each group of lanes that share it.
const EACH: usize = 2;
/// Number of lanes per multiprocessor from which on more lanes per row bring nothing.
const ENOUGH: usize = 2048;

impl interleaved_product {
    /// Returns the kernel for blocks of this size.
    pub(crate) fn of(block: usize) -> Of<Self> {
        Self.with(vec![define("BLOCK", block)])
    }
}

fn all_kernels(set: Set) -> Vec<Kernel> {
    let blocks = set.choose(1..=MOST_BLOCK, [1, 3]);
    blocks.into_iter().map(|block| interleaved_product::of(block).into()).collect()
}

/// A matrix whose product takes several vectors at once.
pub(super) struct InterleavedProduct {
    row_ptr: Arc<Buffer<i64>>,
    col: Arc<Buffer<u32>>,
    values: Arc<Buffer<f64>>,
    coefficient: f64,
    rows: usize,
    /// Binary logarithms of the lanes for the columns of a row, and of the groups of lanes that share it.
    shifts: [u32; 2],
    function: Function<interleaved_product>,
}

impl InterleavedProduct {
    /// Computes y ← A x, or what `of` makes of it. The lengths have been checked.
    pub fn multiply(&self, space: &Cuda, of: Smooth, y: u64) -> Result<()> {
        if self.rows == 0 {
            return Ok(());
        }
        let threads = self.rows << (self.shifts[0] + self.shifts[1]);
        self.function.on(space.device(), threads.div_ceil(THREADS), THREADS).run(
            space.halt(),
            self.rows as i64,
            self.shifts[0] as i32,
            self.shifts[1] as i32,
            &self.row_ptr,
            &self.col,
            &self.values,
            self.coefficient,
            of,
            y,
        )
    }

    /// Returns the number of block rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    pub fn bytes(&self) -> u64 {
        (8 * (self.values.len() + self.row_ptr.len()) + 4 * self.col.len()) as u64
    }
}

impl Cuda {
    /// Returns I ⊗ A for `width` columns, from the arrays of terms or of a product; see
    /// [`PointBlockSum::interleaved`](crate::operator::PointBlockSum::interleaved).
    pub(super) fn interleaved_product(
        &self,
        terms: Option<&Terms>,
        product: Option<&CudaProduct>,
        width: usize,
    ) -> Result<Option<CudaProduct>> {
        let lanes = width / COLUMNS;
        if !lanes.is_power_of_two() || width != lanes * COLUMNS || width > MOST_COLUMNS {
            return Ok(None);
        }
        let (block, columns, coefficient, (row_ptr, col, values)) = match (terms, product) {
            (Some(terms), _) => {
                let [(c, a)] = &terms.terms[..] else { return Ok(None) };
                if terms.halo.is_some() || terms.stages() != 1 || !(1..=MOST_BLOCK).contains(&a.block()) {
                    return Ok(None);
                }
                let at = self.resident(a)?;
                let arrays = (at.row_ptr.clone(), at.col.clone(), at.values.clone());
                (a.block(), a.block_columns(), c[(0, 0)], arrays)
            }
            (None, Some(CudaProduct { csr: Some(csr), block_columns, .. })) => {
                let Some((arrays, coefficient)) = csr.arrays() else { return Ok(None) };
                (1, *block_columns, coefficient, arrays)
            }
            _ => return Ok(None),
        };
        let rows = row_ptr.len() - 1;
        let (mut share, most) = (1, 32 / lanes);
        let enough = self.device().multiprocessors() * ENOUGH;
        while share < most && 2 * share * EACH * rows <= col.len() && rows * lanes * share < enough {
            share *= 2;
        }
        let function = self.device().function(&interleaved_product::of(block))?;
        let shifts = [lanes.ilog2(), share.ilog2()];
        let made = InterleavedProduct { row_ptr, col, values, coefficient, rows, shifts, function };
        Ok(Some(CudaProduct::with_interleaved(block, width, columns, made)))
    }

    /// Copies vectors into one in which their numbers alternate.
    pub(super) fn interleave_vectors(
        &self,
        from: &[&Buffer<f64>],
        width: usize,
        to: &Buffer<f64>,
    ) -> Result<()> {
        let (numbers, vectors) = vectors(from.iter().map(|from| &**from), width, to)?;
        let function = self.device().function(&interleave.plain())?;
        let count = from.len() as i32;
        let launch = function.on(self.device(), numbers.div_ceil(THREADS).max(1), THREADS);
        launch.run(self.halt(), numbers as i64, count, width as i32, vectors, to)
    }

    /// Copies alternating numbers back to vectors.
    pub(super) fn separate_vectors(
        &self,
        from: &Buffer<f64>,
        width: usize,
        to: &mut [&mut Buffer<f64>],
    ) -> Result<()> {
        let (numbers, vectors) = vectors(to.iter().map(|to| &**to), width, from)?;
        let function = self.device().function(&separate.plain())?;
        let count = to.len() as i32;
        let launch = function.on(self.device(), numbers.div_ceil(THREADS).max(1), THREADS);
        launch.run(self.halt(), numbers as i64, count, width as i32, from, vectors)
    }
}

/// Returns the length of the vectors and their addresses.
fn vectors<'a>(
    each: impl ExactSizeIterator<Item = &'a Buffer<f64>>,
    width: usize,
    whole: &Buffer<f64>,
) -> Result<(usize, Vectors)> {
    if each.len() > width.min(MOST_COLUMNS) {
        return Err(Error::Internal(format!("{} columns do not fit a width of {width}", each.len())));
    }
    let numbers = whole.len() / width;
    let mut addresses = [0; MOST_COLUMNS];
    for (to, vector) in addresses.iter_mut().zip(each) {
        check_lengths(vector.len(), vector.len(), numbers, numbers)?;
        *to = vector.pointer();
    }
    Ok((numbers, addresses))
}

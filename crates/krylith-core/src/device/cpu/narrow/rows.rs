//! Products of scalar rows with a matrix and vectors in f32.

use super::stored::{Number, Stored, add_diagonal};
use super::{Pass, narrowed};
use crate::device::cpu::CHUNK;
use crate::device::cpu::product::{Rows, available};
use crate::matrix::Bsr;
use crate::matrix::storage::SharedPattern;
use crate::memory::Pattern;
use crate::precond::bf16::{self, Bf16, RoundedRows};
use crate::threads::{Disjoint, Pool, prefetch};
use std::ops::Range;

/// Distance in entries by which values and columns are prefetched.
const AHEAD: usize = 1024;

/// A matrix of scalar rows in f32 or bf16, with the pattern of another one.
pub(super) struct NarrowRows {
    pattern: SharedPattern,
    columns: usize,
    values: Stored,
    /// The diagonal with its coefficient, if it is not among the values; otherwise empty.
    own: Vec<f32>,
    coefficient: f32,
    /// Runs of rows with about equally many entries.
    pieces: Vec<Range<usize>>,
}

impl NarrowRows {
    /// Copies a product, with its values multiplied by `scale`. Returns `None` for blocks, several terms, or
    /// values that are not in f64.
    pub fn of_product(pool: &Pool, from: &Rows, scale: f64) -> Option<Self> {
        let (pattern, columns, values, c) = from.scalars()?;
        Some(Self::with(pool, pattern, columns, Stored::F32(narrowed(values, scale)), c as f32))
    }

    /// Copies a product in bf16. Also returns D⁻¹ of its smoother. Returns `None` if bf16 does not suit it,
    /// and as [`of_product`](Self::of_product).
    pub fn of_product_in_bf16(pool: &Pool, from: &Rows, scale: f64) -> Option<(Self, Vec<f32>)> {
        let (pattern, columns, values, c) = from.scalars()?;
        let at = pattern.get()?;
        let RoundedRows { values, own, inverse } = bf16::matrix(&at.row_ptr, &at.col, values, scale, c)?;
        let made = Self::with(pool, pattern.clone(), columns, Stored::Bf16(values), c as f32);
        Some((Self { own, ..made }, inverse))
    }

    /// Stores weights with the pattern of `from`.
    pub fn of_weights(pool: &Pool, from: &Bsr, values: Vec<Bf16>) -> Self {
        Self::with(pool, from.storage().shared_pattern(), from.block_columns(), Stored::Bf16(values), 1.0)
    }

    /// Copies a matrix of weights. Returns `None` for blocks.
    pub fn new(pool: &Pool, from: &Bsr) -> Option<Self> {
        let (pattern, values) = (from.storage().shared_pattern(), Stored::F32(narrowed(from.values(), 1.0)));
        (from.block() == 1).then(|| Self::with(pool, pattern, from.block_columns(), values, 1.0))
    }

    fn with(pool: &Pool, pattern: SharedPattern, columns: usize, values: Stored, coefficient: f32) -> Self {
        let mut made = Self { pattern, columns, values, own: Vec::new(), coefficient, pieces: Vec::new() };
        let row_ptr = &made.pattern().row_ptr;
        let rows = row_ptr.len() - 1;
        let pieces = pool.pieces(made.bytes()).min(rows.max(1));
        // A row counts as much as four entries.
        let start = |piece: usize| {
            let wanted = (row_ptr[rows] + 4 * rows) * piece / pieces;
            let (mut low, mut high) = (0, rows);
            while low < high {
                let middle = (low + high) / 2;
                if row_ptr[middle] + 4 * middle < wanted { low = middle + 1 } else { high = middle }
            }
            low
        };
        made.pieces = (0..pieces).map(|piece| start(piece)..start(piece + 1)).collect();
        made
    }

    fn pattern(&self) -> &Pattern {
        self.pattern.get().expect("a pattern that was fetched")
    }

    pub fn is_in_bf16(&self) -> bool {
        self.values.is_in_bf16()
    }

    /// Returns the bytes of one product.
    pub fn bytes(&self) -> usize {
        let rows = self.pattern().row_ptr.len();
        (4 + self.values.width()) * self.values.len() + 16 * rows + 4 * self.own.len()
    }

    /// Computes y from A x.
    pub fn run(&self, pool: &Pool, x: &[f32], y: &mut [f32], pass: &Pass) {
        let pattern = self.pattern();
        assert!(x.len() == self.columns && y.len() + 1 == pattern.row_ptr.len() && available());
        assert!(self.values.len() == pattern.col.len());
        let y = Disjoint::new(y);
        pool.run(self.pieces.len(), |piece| {
            let rows = self.pieces[piece].clone();
            // SAFETY: pieces do not overlap. Columns are below the length of x and row pointers at most the
            // number of columns, because the matrix was checked. The processor has the features.
            unsafe {
                match &self.values {
                    Stored::F32(values) => self.rows(values, rows, x, &y, pass),
                    Stored::Bf16(values) => self.rows(values, rows, x, &y, pass),
                }
            };
        });
    }

    /// Computes rows in chunks.
    ///
    /// # Safety
    /// The processor must have the features. Row pointers must be within the columns, columns below the
    /// length of x, there must be as many values as columns, and no other thread may use these rows of y.
    #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma"))]
    unsafe fn rows<V: Number>(
        &self,
        values: &[V],
        range: Range<usize>,
        x: &[f32],
        y: &Disjoint<f32>,
        pass: &Pass,
    ) {
        let pattern = self.pattern();
        let (values, col) = (values.as_ptr(), pattern.col.as_ptr());
        let mut s = [0.0; CHUNK];
        let mut first = range.start;
        while first < range.end {
            let rows = first..(first + CHUNK).min(range.end);
            let mut e = pattern.row_ptr[rows.start];
            for (s, &end) in s.iter_mut().zip(&pattern.row_ptr[rows.start + 1..=rows.end]) {
                // SAFETY: the caller's promise.
                *s = self.coefficient * unsafe { sum(values, col, x.as_ptr(), e, end) };
                e = end;
            }
            add_diagonal(&self.own, rows.clone(), x, &mut s[..rows.len()]);
            // SAFETY: the caller's promise.
            unsafe { pass.finish(rows.clone(), &s[..rows.len()], x, y.range(rows.clone())) };
            first = rows.end;
        }
    }
}

/// Sums the entries from `e` to `end`, in four partial sums.
///
/// # Safety
/// `e..end` must be entries, and their columns indices of x.
#[inline(always)]
unsafe fn sum<V: Number>(values: *const V, col: *const u32, x: *const f32, mut e: usize, end: usize) -> f32 {
    let mut sums = [0.0f32; 4];
    // SAFETY: the caller's promise.
    let add = |e: usize, sum: &mut f32| unsafe {
        *sum = (*values.add(e)).wide().mul_add(*x.add(*col.add(e) as usize), *sum);
    };
    let ask = |e: usize| {
        prefetch(values.wrapping_add(e + AHEAD));
        prefetch(col.wrapping_add(e + AHEAD));
    };
    while e + 8 <= end {
        ask(e);
        (0..8).for_each(|k| add(e + k, &mut sums[k % 4]));
        e += 8;
    }
    ask(e);
    if e + 4 <= end {
        (0..4).for_each(|k| add(e + k, &mut sums[k]));
        e += 4;
    }
    if e < end {
        add(e, &mut sums[0]);
    }
    if e + 1 < end {
        add(e + 1, &mut sums[1]);
    }
    if e + 2 < end {
        add(e + 2, &mut sums[2]);
    }
    (sums[0] + sums[1]) + (sums[2] + sums[3])
}

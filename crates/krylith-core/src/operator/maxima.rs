//! Passes over the entries of terms on all threads of the host.
//!
//! Each row belongs to one thread, but columns do not. Threads share the maxima of columns, which are stored
//! as the bits of nonnegative numbers. These bits sort as the numbers do. For most entries, which are smaller
//! than the current maximum, a thread only reads the maximum. A maximum does not depend on the order of its
//! entries, so results are the same for any number of threads.

use crate::matrix::{Arrays, Bsr};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Number of block rows below which a second thread costs more time than it saves.
const ROWS: usize = 2048;

/// The largest magnitude in every column, which several threads compute together.
pub(crate) struct ColumnMaxima(Vec<AtomicU64>);

impl ColumnMaxima {
    /// Creates maxima of 0 for this number of columns.
    pub fn new(columns: usize) -> Self {
        Self(std::iter::repeat_with(AtomicU64::default).take(columns).collect())
    }

    /// Raises the maximum of column `j` to a magnitude.
    #[inline(always)]
    pub fn raise(&self, j: usize, magnitude: f64) {
        self.raise_bits(j, magnitude.to_bits());
    }

    /// Raises the maximum of column `j` to a magnitude given by its bits.
    #[inline(always)]
    pub fn raise_bits(&self, j: usize, bits: u64) {
        if self.0[j].load(Relaxed) < bits {
            self.0[j].fetch_max(bits, Relaxed);
        }
    }

    /// Returns all maxima and resets them to zero.
    pub fn take(&self) -> Vec<f64> {
        let take = |bits: &AtomicU64| {
            let all = bits.load(Relaxed);
            bits.store(0, Relaxed); // no thread raises maxima now, and `swap` takes five times as long
            f64::from_bits(all)
        };
        match is_little(self.0.len()) {
            true => self.0.iter().map(take).collect(),
            false => self.0.par_iter().with_min_len(ROWS).map(take).collect(),
        }
    }
}

/// Folds over `rows` rows. `add` accumulates rows one by one, and `join` combines the results of threads in
/// the order of the rows.
pub(crate) fn fold_rows<T: Send>(
    rows: usize,
    none: impl Fn() -> T + Sync + Send,
    add: impl Fn(&mut T, usize) + Sync + Send,
    join: impl Fn(T, T) -> T + Sync + Send,
) -> T {
    let told_by = |rows: Range<usize>| {
        let mut told = none();
        rows.for_each(|i| add(&mut told, i));
        told
    };
    if is_little(rows) {
        return told_by(0..rows);
    }
    let pieces = (0..rows.div_ceil(ROWS)).into_par_iter();
    pieces.map(|k| told_by(k * ROWS..rows.min((k + 1) * ROWS))).reduce(&none, join)
}

/// Returns true if waking other threads costs more than it saves, or if there are none.
fn is_little(rows: usize) -> bool {
    rows <= ROWS || rayon::current_num_threads() == 1
}

/// Computes the largest magnitude in every scalar row. `magnitude(i, numbers)` computes the magnitudes of the
/// b rows of block row i.
pub(crate) fn row_maxima(maxima: &mut [f64], block: usize, magnitude: impl Fn(usize, &mut [f64]) + Sync) {
    let of_row = |(i, maxima): (usize, &mut [f64])| {
        maxima.fill(0.0);
        magnitude(i, maxima);
    };
    match is_little(maxima.len() / block) {
        true => maxima.chunks_mut(block).enumerate().for_each(of_row),
        false => maxima.par_chunks_mut(block).with_min_len(ROWS).enumerate().for_each(of_row),
    }
}

/// Calls `$f(b, …)` with block sizes up to [`MAX_BLOCK`](crate::matrix::MAX_BLOCK) as constants, so that the
/// compiler unrolls loops over blocks and removes divisions.
macro_rules! with_block {
    ($b:expr, $f:expr $(, $x:expr)*) => {
        match $b {
            1 => $f(1 $(, $x)*),
            2 => $f(2 $(, $x)*),
            3 => $f(3 $(, $x)*),
            4 => $f(4 $(, $x)*),
            5 => $f(5 $(, $x)*),
            6 => $f(6 $(, $x)*),
            7 => $f(7 $(, $x)*),
            8 => $f(8 $(, $x)*),
            other => $f(other $(, $x)*),
        }
    };
}
pub(crate) use with_block;

/// Calls `f(row, block column, block)` for every block of `values`, whose order is that of the values of `a`.
pub(crate) fn for_blocks_mut(a: &Bsr, values: &mut [f64], f: &(impl Fn(usize, usize, &mut [f64]) + Sync)) {
    halves(Arrays::of(a), a.block() * a.block(), 0..a.block_rows(), values, f);
}

fn halves(
    a: Arrays,
    square: usize,
    rows: Range<usize>,
    values: &mut [f64],
    f: &(impl Fn(usize, usize, &mut [f64]) + Sync),
) {
    let begin = a.row_ptr[rows.start];
    if is_little(rows.len()) {
        let mut blocks = values.chunks_exact_mut(square);
        for i in rows {
            a.col[a.row(i)].iter().zip(&mut blocks).for_each(|(&j, block)| f(i, j as usize, block));
        }
        return;
    }
    let middle = rows.start + rows.len() / 2;
    let (low, high) = values.split_at_mut((a.row_ptr[middle] - begin) * square);
    rayon::join(
        || halves(a, square, rows.start..middle, low, f),
        || halves(a, square, middle..rows.end, high, f),
    );
}

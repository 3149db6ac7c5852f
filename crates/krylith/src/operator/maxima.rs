//! Passes over the entries of terms by all threads of the host.
//!
//! Rows belong to one thread each. Columns do not: their maxima are shared, as the bits of numbers that are not negative,
//! which are ordered as the numbers are. Most entries are smaller than what stands there already and only read it. A maximum
//! does not depend on the order in which it is found, so results are the same for any number of threads.

use crate::matrix::Bsr;
use rayon::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Block rows below which a second thread costs more than it brings.
const ROWS: usize = 2048;

/// The largest magnitude of every column, found by several threads together.
pub(crate) struct ColumnMaxima(Vec<AtomicU64>);

impl ColumnMaxima {
    /// Zeros, one a column.
    pub fn new(columns: usize) -> Self {
        Self(std::iter::repeat_with(AtomicU64::default).take(columns).collect())
    }

    /// Takes note of a magnitude in column `j`.
    pub fn raise(&self, j: usize, magnitude: f64) {
        let bits = magnitude.to_bits();
        if self.0[j].load(Relaxed) < bits {
            self.0[j].fetch_max(bits, Relaxed);
        }
    }

    /// All maxima; zeros stand in their place.
    pub fn take(&self) -> Vec<f64> {
        let all = self.0.par_iter().with_min_len(ROWS);
        all.map(|bits| f64::from_bits(bits.swap(0, Relaxed))).collect()
    }
}

/// What `rows` numbers tell, taken up one by one by `add` and put together by `join`, in the order of the rows.
pub(crate) fn fold_rows<T: Send>(
    rows: usize,
    none: impl Fn() -> T + Sync + Send,
    add: impl Fn(T, usize) -> T + Sync + Send,
    join: impl Fn(T, T) -> T + Sync + Send,
) -> T {
    (0..rows).into_par_iter().with_min_len(ROWS).fold(&none, add).reduce(&none, join)
}

/// The largest magnitude of every scalar row, `magnitude(i, numbers)` being that of the b rows of block row i.
pub(crate) fn row_maxima(maxima: &mut [f64], block: usize, magnitude: impl Fn(usize, &mut [f64]) + Sync) {
    let rows = maxima.par_chunks_mut(block).with_min_len(ROWS).enumerate();
    rows.for_each(|(i, maxima)| {
        maxima.fill(0.0);
        magnitude(i, maxima);
    });
}

/// Calls `f(row, block column, block)` for every block of `values`, which are stored as those of `a` are.
pub(crate) fn for_blocks_mut(a: &Bsr, values: &mut [f64], f: &(impl Fn(usize, usize, &mut [f64]) + Sync)) {
    halves(a, 0..a.block_rows(), values, f);
}

fn halves(
    a: &Bsr,
    rows: std::ops::Range<usize>,
    values: &mut [f64],
    f: &(impl Fn(usize, usize, &mut [f64]) + Sync),
) {
    let (square, begin) = (a.block() * a.block(), a.row_ptr()[rows.start]);
    if rows.len() <= ROWS {
        let mut blocks = values.chunks_exact_mut(square);
        for i in rows {
            let columns = &a.col()[a.row_ptr()[i]..a.row_ptr()[i + 1]];
            columns.iter().zip(&mut blocks).for_each(|(&j, block)| f(i, j as usize, block));
        }
        return;
    }
    let middle = rows.start + rows.len() / 2;
    let (low, high) = values.split_at_mut((a.row_ptr()[middle] - begin) * square);
    rayon::join(|| halves(a, rows.start..middle, low, f), || halves(a, middle..rows.end, high, f));
}

//! Rows of one scalar matrix, with long rows cut into segments: the product of every system without blocks.
//!
//! The speed of a core depends on how far ahead it prefetches values and columns. 100³ nodes with 7 points
//! take 5.8 ms without prefetching, 2.6 ms with 512 entries and 2.3 ms with 1024 entries (Zen 5, one core, 46
//! GB/s of a triad's 49 GB/s). There 8-wide gathers take 3.9 ms, and 15 ms with 3 entries per row.
//!
//! A row of more than [`LONG`] entries is cut into segments, whose sums are added in order. The cuts depend
//! only on the matrix, so results do not depend on the number of threads.

use super::kernels::{Kernel, Number};
use super::{Rows, Values};
use crate::threads::prefetch;
use crate::threads::{Disjoint, Pool};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::Mutex;

/// Least length of a row that is cut, and length of a segment, in entries.
const LONG: usize = 1 << 15;
/// Distance in entries by which values and columns are prefetched.
const AHEAD: usize = 1024;

/// Chunks of a product with long rows; empty where there are none.
#[derive(Default)]
pub(super) struct LongRows {
    rows: Vec<LongRow>,
    tasks: Vec<Task>,
    /// Sum of each segment.
    sums: Mutex<Vec<f64>>,
}

struct LongRow {
    row: usize,
    /// Indices of its segments among the sums.
    segments: Range<usize>,
}

enum Task {
    Rows(Range<usize>),
    Segment { entries: Range<usize>, place: usize },
}

/// True if this processor has the features that [`rows`] needs.
pub(in super::super) fn available() -> bool {
    #[cfg(target_arch = "x86_64")]
    return is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
    #[cfg(not(target_arch = "x86_64"))]
    true
}

/// The kernel of scalar rows.
pub(super) const KERNEL: Kernel = rows;

impl LongRows {
    /// Finds the long rows of a matrix whose rows are divided into `pieces`.
    pub(super) fn new(row_ptr: &[usize], pieces: &[Range<usize>]) -> Self {
        let count = row_ptr.len() - 1;
        let long: Vec<usize> =
            (0..count).into_par_iter().filter(|&i| row_ptr[i + 1] - row_ptr[i] > LONG).collect();
        let mut made = Self::default();
        if long.is_empty() {
            return made;
        }
        let mut place = 0;
        for piece in pieces {
            let mut first = piece.start;
            let here = &long[long.partition_point(|&i| i < piece.start)..];
            for &row in here.iter().take_while(|&&i| i < piece.end) {
                if first < row {
                    made.tasks.push(Task::Rows(first..row));
                }
                let (entries, before) = (row_ptr[row]..row_ptr[row + 1], place);
                for begin in entries.clone().step_by(LONG) {
                    let entries = begin..(begin + LONG).min(entries.end);
                    made.tasks.push(Task::Segment { entries, place });
                    place += 1;
                }
                made.rows.push(LongRow { row, segments: before..place });
                first = row + 1;
            }
            if first < piece.end {
                made.tasks.push(Task::Rows(first..piece.end));
            }
        }
        made.sums = Mutex::new(vec![0.0; place]);
        made
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Computes y = A x.
    pub(super) fn multiply(&self, p: &Rows, pool: &Pool, x: &[f64], y: &mut [f64]) {
        let mut sums = self.sums.lock().unwrap_or_else(|e| e.into_inner());
        {
            let (sums, y) = (Disjoint::new(&mut sums), Disjoint::new(y));
            pool.run(self.tasks.len(), |task| match &self.tasks[task] {
                // SAFETY: no row is in two tasks.
                Task::Rows(range) => rows(p, range.clone(), x, unsafe { y.range(range.clone()) }),
                Task::Segment { entries, place } => {
                    // SAFETY: every segment has its own place.
                    let sum = unsafe { sums.range(*place..place + 1) };
                    sum[0] = segment(p, entries.clone(), x);
                }
            });
        }
        let c = p.coefficients[0][0];
        for long in &self.rows {
            y[long.row] = c * sums[long.segments.clone()].iter().sum::<f64>();
        }
    }
}

/// Computes y = c A x for a range of rows; b = s = 1 and one term.
fn rows(p: &Rows, range: Range<usize>, x: &[f64], y: &mut [f64]) {
    let g = &p.groups[0];
    assert!(x.len() == p.block_columns && g.terms.len() == 1 && (p.block, p.stages) == (1, 1) && available());
    let (c, row_ptr) = (p.coefficients[0][0], &g.row_ptr[range.start..=range.end]);
    // SAFETY: columns are below the length of x and row pointers at most the number of columns, because the
    // matrix was checked when it was made; there are at least as many values. The processor has the features.
    unsafe {
        match &g.values {
            Values::F64(v) => rows_wide(row_ptr, &g.col, v, c, x, y),
            Values::F32(v) => rows_wide(row_ptr, &g.col, v, c, x, y),
        }
    }
}

/// Returns the sum of some entries of one row, without the coefficient.
fn segment(p: &Rows, entries: Range<usize>, x: &[f64]) -> f64 {
    let g = &p.groups[0];
    assert!(x.len() == p.block_columns && entries.end <= g.col.len() && available());
    let mut sum = [0.0];
    let row_ptr = [entries.start, entries.end];
    // SAFETY: as above.
    unsafe {
        match &g.values {
            Values::F64(v) => rows_wide(&row_ptr, &g.col, v, 1.0, x, &mut sum),
            Values::F32(v) => rows_wide(&row_ptr, &g.col, v, 1.0, x, &mut sum),
        }
    }
    sum[0]
}

/// Computes rows one after another.
///
/// # Safety
/// The processor must have the features. Row pointers must be within the columns, columns below the length of
/// x, and there must be as many values as columns.
#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma"))]
unsafe fn rows_wide<V: Number>(
    row_ptr: &[usize],
    col: &[u32],
    values: &[V],
    c: f64,
    x: &[f64],
    y: &mut [f64],
) {
    let (values, col, x) = (values.as_ptr(), col.as_ptr(), x.as_ptr());
    let mut e = row_ptr[0];
    for (&end, y) in row_ptr[1..].iter().zip(y) {
        // SAFETY: the caller's promise.
        *y = c * unsafe { sum(values, col, x, e, end) };
        e = end;
    }
}

/// Sums the entries from `e` to `end`, in four partial sums.
///
/// # Safety
/// `e..end` must be entries, and their columns indices of x.
#[inline(always)]
unsafe fn sum<V: Number>(values: *const V, col: *const u32, x: *const f64, mut e: usize, end: usize) -> f64 {
    let mut sums = [0.0f64; 4];
    // SAFETY: the caller's promise.
    let add = |e: usize, sum: &mut f64| unsafe {
        *sum = (*values.add(e)).widen().mul_add(*x.add(*col.add(e) as usize), *sum);
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

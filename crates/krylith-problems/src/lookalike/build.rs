//! Builds the rows of a pattern on all threads.

use super::hash::{Permutation, mix};
use krylith_base::threads::each_task;
use rayon::prelude::*;
use std::ops::Range;

/// Rows per task.
const CHUNK: usize = 4096;

/// The pattern of a matrix, row by row.
pub(super) trait Pattern: Sync {
    /// Scratch memory that a thread reuses from row to row.
    type Scratch: Default;
    /// True if (i, j) is stored exactly when (j, i) is.
    const SYMMETRIC: bool;

    /// Returns the number of entries of row `i`.
    fn length(&self, i: usize) -> usize;
    /// Appends the columns of row `i` to the empty `out`: sorted, distinct, [`length`](Self::length) of them.
    fn columns(&self, i: usize, scratch: &mut Self::Scratch, out: &mut Vec<u32>);
}

/// The values of a matrix: A = S (D + w E) S.
///
/// D, on the diagonal, is random in (0.5, 1.5]; E, off the diagonal, is random in ±(0.5, 1.5]. The power of
/// two w keeps ‖wE‖ well below 1/2, so repeated products stay bounded. If every row is empty or has a
/// diagonal entry, A is positive definite on the rows that are not empty. Conjugate gradients then converge
/// even where A is not quite symmetric. S, with entries 1, 1/2, 1/4 and 1/8, spreads the eigenvalues, so that
/// a thousand iterations do not reach zero.
#[derive(Debug, Clone, Copy)]
pub(super) struct Values {
    seed: u64,
    weight: f64,
    symmetric: bool,
}

impl Values {
    /// Chooses w for a pattern with at most about `longest` entries per row and column.
    pub fn new(seed: u64, longest: u32, symmetric: bool) -> Self {
        let mut weight = 1.0;
        while weight * 4.0 * f64::from(longest).sqrt() > 1.0 {
            weight *= 0.5;
        }
        Self { seed, weight, symmetric }
    }

    #[inline]
    fn of(&self, i: usize, j: usize) -> f64 {
        let (p, q) = if self.symmetric && j < i { (j, i) } else { (i, j) };
        let word = mix((((p as u64) << 32) | q as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.seed);
        let size = 0.5 + ((word >> 12) + 1) as f64 / (1u64 << 52) as f64;
        let scale = scale(i) * scale(j);
        match (i == j, word & 1 == 0) {
            (true, _) => size * scale,
            (_, true) => size * scale * self.weight,
            (_, false) => -size * scale * self.weight,
        }
    }
}

/// Returns entry `i` of S.
#[inline]
fn scale(i: usize) -> f64 {
    const SCALES: [f64; 4] = [1.0, 0.5, 0.25, 0.125];
    SCALES[((i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 62) as usize]
}

/// Rows in compressed form; row pointers begin at 0.
pub(super) struct Arrays<C> {
    pub row_ptr: Vec<usize>,
    pub col: Vec<C>,
    pub values: Vec<f64>,
}

/// Builds the rows `own` of the matrix, after `order` has renumbered rows and columns.
pub(super) fn build<P: Pattern, C: From<u32> + Clone + Default + Send>(
    pattern: &P,
    values: &Values,
    order: Option<&Permutation>,
    own: Range<usize>,
) -> Arrays<C> {
    let before = |row: usize| order.map_or(row, |order| order.inverse(row));
    let row_ptr = offsets(own.len(), &|p| pattern.length(before(own.start + p)));
    let total = row_ptr[own.len()];
    let (mut col, mut numbers) = (vec![C::default(); total], vec![0.0; total]);

    let mut tasks = Vec::with_capacity(own.len().div_ceil(CHUNK));
    let (mut more_col, mut more_numbers) = (&mut col[..], &mut numbers[..]);
    for first in (0..own.len()).step_by(CHUNK) {
        let last = (first + CHUNK).min(own.len());
        let count = row_ptr[last] - row_ptr[first];
        let (columns, rest) = more_col.split_at_mut(count);
        let (entries, others) = more_numbers.split_at_mut(count);
        (more_col, more_numbers) = (rest, others);
        tasks.push((first..last, columns, entries));
    }
    let make = |(rows, columns, entries): (Range<usize>, &mut [C], &mut [f64])| {
        let (mut scratch, mut list, mut renumbered) = (P::Scratch::default(), Vec::new(), Vec::new());
        let (begin, end) = (row_ptr[rows.start], |p: usize| row_ptr[p + 1]);
        for p in rows {
            let i = before(own.start + p);
            list.clear();
            pattern.columns(i, &mut scratch, &mut list);
            let range = row_ptr[p] - begin..end(p) - begin;
            let (columns, entries) = (&mut columns[range.clone()], &mut entries[range]);
            let Some(order) = order else {
                for ((column, entry), &j) in columns.iter_mut().zip(entries).zip(&list) {
                    (*column, *entry) = (j.into(), values.of(i, j as usize));
                }
                continue;
            };
            // Sort the old number along with the new one: values are computed from old numbers.
            renumbered.clear();
            renumbered.extend(list.iter().map(|&j| (order.of(j as usize) as u64) << 32 | u64::from(j)));
            renumbered.sort_unstable();
            for ((column, entry), &pair) in columns.iter_mut().zip(entries).zip(&renumbered) {
                (*column, *entry) = (((pair >> 32) as u32).into(), values.of(i, pair as u32 as usize));
            }
        }
    };
    each_task(tasks, &make);
    Arrays { row_ptr, col, values: numbers }
}

/// Returns the start of each of `n` runs, and the end of the last.
pub(super) fn offsets(n: usize, length: &(dyn Fn(usize) -> usize + Sync)) -> Vec<usize> {
    let mut ends = vec![0usize; n + 1];
    let lengths: Vec<usize> = ends[1..]
        .par_chunks_mut(CHUNK)
        .enumerate()
        .map(|(chunk, ends)| {
            let mut sum = 0;
            for (k, end) in ends.iter_mut().enumerate() {
                sum += length(chunk * CHUNK + k);
                *end = sum;
            }
            sum
        })
        .collect();
    ends[1..].par_chunks_mut(CHUNK).zip(sums_before(&lengths)).for_each(|(ends, before)| {
        ends.iter_mut().for_each(|end| *end += before);
    });
    ends
}

/// Returns the exclusive prefix sums of the counts.
pub(super) fn sums_before(counts: &[usize]) -> Vec<usize> {
    let sums = counts.iter().scan(0, |sum, count| {
        *sum += count;
        Some(*sum - count)
    });
    sums.collect()
}

/// Extends `out` to `want` distinct, sorted columns below `n`, by drawing from `draw`.
///
/// If draws repeat too often, columns from the middle of the row on fill the rest. `want` is at most n, and
/// not less than the length of `out`.
pub(super) fn distinct(out: &mut Vec<u32>, want: usize, n: usize, mut draw: impl FnMut() -> usize) {
    const ROUNDS: usize = 6;
    // Up to this many are inserted one by one.
    const FEW: usize = 16;
    while out.len() < want {
        out.push(draw() as u32);
    }
    out.sort_unstable();
    out.dedup();
    for _ in 0..ROUNDS {
        let sorted = out.len();
        if want - sorted <= FEW {
            for _ in sorted..want {
                let column = draw() as u32;
                if let Err(at) = out.binary_search(&column) {
                    out.insert(at, column);
                }
            }
        } else {
            while out.len() < want {
                out.push(draw() as u32);
            }
            out[sorted..].sort_unstable();
            out.sort(); // a stable sort, which merges two sorted runs
            out.dedup();
        }
        if out.len() == want {
            return;
        }
    }
    let (held, middle) = (out.len(), out.len() / 2);
    let (mut column, mut next) = (out.get(middle).map_or(0, |&j| j as usize), middle);
    while out.len() < want {
        if column == n {
            (column, next) = (0, 0);
        }
        if next < held && out[next] as usize == column {
            next += 1;
        } else {
            out.push(column as u32);
        }
        column += 1;
    }
    out.sort_unstable();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_filled_whatever_is_drawn() {
        for (held, want, n) in
            [(vec![], 0, 3), (vec![2], 1, 3), (vec![2], 3, 3), (vec![99], 100, 100), (vec![4, 0], 5, 9)]
        {
            let mut row = held.clone();
            distinct(&mut row, want, n, || n - 1);
            assert_eq!(row.len(), want, "{held:?}, {want} of {n}");
            assert!(row.windows(2).all(|w| w[0] < w[1]) && row.iter().all(|&j| (j as usize) < n), "{row:?}");
            assert!(held.iter().all(|j| row.contains(j)), "{held:?} in {row:?}");
        }
    }

    #[test]
    fn offsets_are_running_sums() {
        for n in [0, 1, CHUNK, 3 * CHUNK + 7] {
            let ends = offsets(n, &|i| i % 5);
            let mut sum = 0;
            for i in 0..n {
                assert_eq!(ends[i], sum, "run {i} of {n}");
                sum += i % 5;
            }
            assert_eq!(ends[n], sum);
        }
    }
}

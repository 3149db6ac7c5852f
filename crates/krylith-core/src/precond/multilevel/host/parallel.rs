//! Computes rows of sparse matrices in pieces, on all threads of a pool, without `unsafe`. Each piece owns
//! its results, which are then joined in order.

use crate::matrix::Bsr;
use crate::matrix::storage::Storage;
use crate::threads::Pool;
use std::ops::Range;
use std::sync::{Mutex, OnceLock};

/// Returns the results of `f` for each piece, in order.
pub fn map<T: Send + Sync>(pool: &Pool, pieces: usize, f: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let made: Vec<OnceLock<T>> = (0..pieces).map(|_| OnceLock::new()).collect();
    pool.run(pieces, |piece| {
        let _ = made[piece].set(f(piece)); // each piece runs once
    });
    made.into_iter().filter_map(OnceLock::into_inner).collect()
}

/// Splits `to` into parts of these lengths and runs `f(piece, part)` for each.
pub fn fill<T: Send>(
    pool: &Pool,
    lengths: impl IntoIterator<Item = usize>,
    to: &mut [T],
    f: impl Fn(usize, &mut [T]) + Sync,
) {
    let mut rest = to;
    let cut = |length: usize| {
        let (part, after) = std::mem::take(&mut rest).split_at_mut(length);
        rest = after;
        Mutex::new(part)
    };
    let parts: Vec<_> = lengths.into_iter().map(cut).collect();
    pool.run(parts.len(), |piece| f(piece, &mut parts[piece].lock().unwrap_or_else(|e| e.into_inner())));
}

/// Returns `f(i)` for each i below `n`. `bytes` is the memory traffic of all calls together.
pub fn each<T: Send + Copy + Default>(
    pool: &Pool,
    n: usize,
    bytes: usize,
    f: impl Fn(usize) -> T + Sync,
) -> Vec<T> {
    let mut to = vec![T::default(); n];
    let length = n.div_ceil(pool.pieces(bytes)).max(1);
    fill(pool, lengths(n, length), &mut to, |piece, part| {
        part.iter_mut().enumerate().for_each(|(k, to)| *to = f(piece * length + k));
    });
    to
}

/// Returns the lengths of pieces of `n`, each `length` long except that the last may be shorter.
pub fn lengths(n: usize, length: usize) -> impl Iterator<Item = usize> {
    (0..n.div_ceil(length)).map(move |k| length.min(n - k * length))
}

/// Splits `rows` into at most `pieces` ranges of about equal numbers of entries.
pub fn runs(row_ptr: &[usize], rows: Range<usize>, pieces: usize) -> Vec<Range<usize>> {
    let (first, last) = (row_ptr[rows.start], row_ptr[rows.end]);
    // Every row counts as one entry more than it has, so that rows without entries count too.
    let weight = |i: usize| row_ptr[i] - first + (i - rows.start);
    let all = last - first + rows.len();
    let mut cuts = vec![rows.start];
    for k in 1..pieces {
        let (mut low, mut high) = (*cuts.last().unwrap_or(&rows.start), rows.end);
        while low < high {
            let middle = low + (high - low) / 2;
            match weight(middle) < all / pieces * k {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        cuts.push(low);
    }
    cuts.push(rows.end);
    cuts.windows(2).map(|w| w[0]..w[1]).filter(|run| !run.is_empty()).collect()
}

/// Returns the beginnings of `pieces` nearly equal ranges of `0..n`, and `n` at the end.
pub fn bounds(n: usize, pieces: usize) -> Vec<usize> {
    (0..=pieces).map(|piece| n * piece / pieces).collect()
}

/// Memory that pieces use one after the other. At most one item per thread is created.
pub struct Scratch<T>(Mutex<Vec<T>>);

impl<T> Scratch<T> {
    /// Starts without any item.
    pub fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Calls `f` with an item that no other piece uses. `make` creates one if all are in use.
    pub fn with<R>(&self, make: impl FnOnce() -> T, f: impl FnOnce(&mut T) -> R) -> R {
        let free = self.0.lock().unwrap_or_else(|e| e.into_inner()).pop();
        let mut item = free.unwrap_or_else(make);
        let result = f(&mut item);
        self.0.lock().unwrap_or_else(|e| e.into_inner()).push(item);
        result
    }
}

/// Rows of a sparse matrix, in the order in which they are computed.
#[derive(Debug)]
pub struct Rows {
    /// Beginning of each row, and the end of the last.
    pub row_ptr: Vec<usize>,
    /// Block columns.
    pub col: Vec<u32>,
    /// b² numbers per block; empty if the rows are only a pattern.
    pub values: Vec<f64>,
}

impl Default for Rows {
    fn default() -> Self {
        Self { row_ptr: vec![0], col: Vec::new(), values: Vec::new() }
    }
}

impl Rows {
    /// Adds a scalar entry to the row that is not ended.
    pub fn push_entry(&mut self, column: u32, value: f64) {
        self.col.push(column);
        self.values.push(value);
    }

    /// Adds a row of scalar entries.
    pub fn push(&mut self, row: &[(u32, f64)]) {
        row.iter().for_each(|&(j, v)| self.push_entry(j, v));
        self.end_row();
    }

    /// Ends the row whose entries were pushed.
    pub fn end_row(&mut self) {
        self.row_ptr.push(self.col.len());
    }

    /// Removes all rows and keeps the memory.
    pub fn clear(&mut self) {
        self.row_ptr.truncate(1);
        self.col.clear();
        self.values.clear();
    }
}

/// Returns the matrix whose rows are those of all parts, one part after the other. Columns must ascend in
/// each row and be below `columns`.
pub fn assemble(pool: &Pool, block: usize, columns: usize, parts: Vec<Rows>) -> Bsr {
    let Rows { row_ptr, col, values } = join(pool, block, parts);
    debug_assert!(
        row_ptr.windows(2).all(|row| {
            let row = &col[row[0]..row[1]];
            row.windows(2).all(|w| w[0] < w[1]) && row.last().is_none_or(|&j| (j as usize) < columns)
        }),
        "columns of a row ascend"
    );
    Bsr::from_storage(block, Storage::host(row_ptr.len() - 1, columns, row_ptr, col, values))
}

/// Joins the rows of all parts, one part after the other. `block` is 0 for patterns.
pub fn join(pool: &Pool, block: usize, mut parts: Vec<Rows>) -> Rows {
    if parts.len() <= 1 {
        return parts.pop().unwrap_or_default();
    }
    let entries = parts.iter().map(|part| part.col.len());
    let rows = parts.iter().map(|part| part.row_ptr.len() - 1);
    let before: Vec<usize> = entries
        .clone()
        .scan(0, |sum, n| {
            *sum += n;
            Some(*sum - n)
        })
        .collect();
    let all: usize = entries.clone().sum();
    let mut row_ptr = vec![0; rows.clone().sum::<usize>() + 1];
    fill(pool, rows, &mut row_ptr[1..], |k, to| {
        to.iter_mut().zip(&parts[k].row_ptr[1..]).for_each(|(to, end)| *to = before[k] + end);
    });
    let mut col = vec![0; all];
    fill(pool, entries.clone(), &mut col, |k, to| to.copy_from_slice(&parts[k].col));
    let mut values = vec![0.0; all * block * block];
    fill(pool, entries.map(|n| n * block * block), &mut values, |k, to| to.copy_from_slice(&parts[k].values));
    Rows { row_ptr, col, values }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_all_rows_once() {
        let row_ptr = [0, 5, 5, 5, 9, 10, 40];
        for pieces in 1..9 {
            for rows in [0..6, 2..5, 3..3] {
                let runs = runs(&row_ptr, rows.clone(), pieces);
                assert!(runs.len() <= pieces);
                let all: Vec<usize> = runs.into_iter().flatten().collect();
                assert_eq!(all, rows.collect::<Vec<_>>(), "{pieces} pieces");
            }
        }
    }

    #[test]
    fn parts_are_joined_in_order() {
        for threads in [1, 3] {
            let pool = Pool::eager(threads);
            let part = |k: usize| {
                let mut rows = Rows::default();
                for i in 0..k {
                    rows.col.extend(0..i as u32);
                    rows.values.extend((0..4 * i).map(|v| (100 * k + v) as f64));
                    rows.end_row();
                }
                rows
            };
            let a = assemble(&pool, 2, 5, map(&pool, 5, part));
            assert_eq!((a.block_rows(), a.block_columns(), a.blocks()), (10, 5, 10));
            let expected = Bsr::new(2, 10, 5, a.row_ptr().to_vec(), a.col().to_vec(), a.values().to_vec());
            assert!(expected.is_ok(), "{expected:?}");
            assert_eq!(a.row_ptr(), [0, 0, 0, 1, 1, 2, 4, 4, 5, 7, 10]);
            assert_eq!(a.col(), [0, 0, 0, 1, 0, 0, 1, 0, 1, 2]);
            assert_eq!(a.block_values(7), [404.0, 405.0, 406.0, 407.0].map(|v| v + 0.0 - 4.0));
        }
    }

    #[test]
    fn each_index_has_its_value() {
        for n in [0, 1, 7, 1000] {
            let found = each(&Pool::eager(3), n, 1 << 20, |i| i * i);
            assert!(found.iter().enumerate().all(|(i, &v)| v == i * i) && found.len() == n);
        }
    }
}

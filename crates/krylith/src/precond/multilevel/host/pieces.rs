//! Regions of a pool whose pieces return something, or write each its own part of a slice.

use crate::device::cpu::Pool;
use std::sync::{Mutex, PoisonError};

/// Where `pieces` nearly equal runs of `0..n` begin, and `n` behind them.
pub fn bounds(n: usize, pieces: usize) -> Vec<usize> {
    (0..=pieces).map(|piece| n * piece / pieces).collect()
}

/// What `f` returns for each piece below `pieces`, in their order.
pub fn map<T: Send>(pool: &Pool, pieces: usize, f: impl Fn(usize) -> T + Sync) -> Vec<T> {
    let mut out: Vec<Option<T>> = (0..pieces).map(|_| None).collect();
    each(pool, &mut out, |piece, out| *out = Some(f(piece)));
    out.into_iter().flatten().collect()
}

/// Calls `f` with each piece and its item.
pub fn each<T: Send>(pool: &Pool, items: &mut [T], f: impl Fn(usize, &mut T) + Sync) {
    // Each lock is taken once.
    let items: Vec<Mutex<&mut T>> = items.iter_mut().map(Mutex::new).collect();
    pool.run(items.len(), |piece| f(piece, &mut items[piece].lock().unwrap_or_else(PoisonError::into_inner)));
}

/// Calls `f` with each piece and its part of `slice`, from `bounds[piece]` to `bounds[piece + 1]`.
pub fn write<T: Send>(pool: &Pool, slice: &mut [T], bounds: &[usize], f: impl Fn(usize, &mut [T]) + Sync) {
    let (mut rest, mut parts) = (slice, Vec::with_capacity(bounds.len()));
    for pair in bounds.windows(2) {
        let (part, behind) = rest.split_at_mut(pair[1] - pair[0]);
        parts.push(part);
        rest = behind;
    }
    each(pool, &mut parts, |piece, part| f(piece, part));
}

/// Memory that pieces use one after the other; as many as threads are made.
pub struct Scratch<T>(Mutex<Vec<T>>);

impl<T> Scratch<T> {
    pub fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// Calls `f` with memory that no other piece has, made by `make` where all is in use.
    pub fn with<R>(&self, make: impl FnOnce() -> T, f: impl FnOnce(&mut T) -> R) -> R {
        let free = self.0.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let mut item = free.unwrap_or_else(make);
        let result = f(&mut item);
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(item);
        result
    }
}

/// A matrix's arrays, or those of a run of its rows.
#[derive(Default)]
pub struct Rows {
    /// Where each row ends.
    pub ends: Vec<usize>,
    /// Columns, ascending in each row.
    pub col: Vec<u32>,
    /// Their values.
    pub values: Vec<f64>,
}

/// Row pointers, columns and values of runs of rows, one behind the other.
pub fn join(pool: &Pool, mut runs: Vec<Rows>) -> (Vec<usize>, Vec<u32>, Vec<f64>) {
    let at = |len: &dyn Fn(&Rows) -> usize| {
        let mut sum = 0;
        let ends = runs.iter().map(|run| {
            sum += len(run);
            sum
        });
        std::iter::once(0).chain(ends).collect::<Vec<usize>>()
    };
    let (rows, entries) = (at(&|run| run.ends.len()), at(&|run| run.col.len()));
    let mut row_ptr = vec![0; rows[runs.len()] + 1];
    write(pool, &mut row_ptr[1..], &rows, |run, part| {
        part.iter_mut().zip(&runs[run].ends).for_each(|(to, end)| *to = entries[run] + end);
    });
    if runs.len() == 1 {
        let run = runs.swap_remove(0);
        return (row_ptr, run.col, run.values);
    }
    let (mut col, mut values) = (vec![0; entries[runs.len()]], vec![0.0; entries[runs.len()]]);
    write(pool, &mut col, &entries, |run, part| part.copy_from_slice(&runs[run].col));
    write(pool, &mut values, &entries, |run, part| part.copy_from_slice(&runs[run].values));
    (row_ptr, col, values)
}

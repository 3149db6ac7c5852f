//! The graph of A + Aᵀ: couplings between own block rows, by any term, in either direction.

use crate::operator::Terms;
use crate::threads::{collect, each};
use rayon::prelude::*;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};

/// Number of rows per task.
const CHUNK: usize = 4096;

/// Neighbours of each node in compressed rows: ascending, each once, without the node itself.
#[derive(Clone)]
pub(super) struct Adjacency {
    pub row_ptr: Vec<usize>,
    pub col: Vec<u32>,
}

impl Adjacency {
    /// Builds the pattern of A + Aᵀ over all terms, without ghost columns.
    pub fn of(terms: &Terms) -> Self {
        let n = terms.block_rows();
        let all = if terms.shared_pattern() { &terms.terms[..1] } else { &terms.terms[..] };
        let patterns: Vec<_> = all.iter().map(|(_, a)| (a.row_ptr(), a.col())).collect();
        let forward = Self::by_rows(n, |i, row| {
            for (row_ptr, col) in &patterns {
                let own = col[row_ptr[i]..row_ptr[i + 1]].iter();
                row.extend(own.copied().filter(|&j| j as usize != i && (j as usize) < n));
            }
        });
        let both_ways = |i: usize| forward.neighbours(i as u32).iter().all(|&j| forward.has(j, i as u32));
        if (0..n).into_par_iter().with_min_len(CHUNK).all(both_ways) {
            return forward;
        }
        let backward = forward.transposed();
        Self::by_rows(n, |i, row| {
            row.extend_from_slice(forward.neighbours(i as u32));
            row.extend_from_slice(backward.neighbours(i as u32));
        })
    }

    /// Builds the graph from the neighbours that `neighbours` appends for each of `n` nodes, in any order and
    /// with repetitions.
    fn by_rows(n: usize, neighbours: impl Fn(usize, &mut Vec<u32>) + Sync) -> Self {
        let piece = |chunk: usize| {
            let (mut degree, mut col, mut row) = (Vec::new(), Vec::new(), Vec::new());
            for i in chunk * CHUNK..n.min((chunk + 1) * CHUNK) {
                row.clear();
                neighbours(i, &mut row);
                if !row.windows(2).all(|w| w[0] < w[1]) {
                    row.sort_unstable();
                    row.dedup();
                }
                degree.push(row.len());
                col.extend_from_slice(&row);
            }
            (degree, col)
        };
        let (degree, col): (Vec<_>, Vec<_>) = (0..n.div_ceil(CHUNK)).into_par_iter().map(piece).unzip();
        Self { row_ptr: offsets(degree.iter().flatten()), col: joined(&col) }
    }

    /// Returns the transposed graph; neighbours are in any order.
    fn transposed(&self) -> Self {
        let n = self.row_ptr.len() - 1;
        let degree = collect(0..n, LEAST, &|_| AtomicUsize::new(0));
        each(self.col.len(), LEAST, &|p| {
            degree[self.col[p] as usize].fetch_add(1, Relaxed);
        });
        let degree: Vec<usize> = degree.into_iter().map(AtomicUsize::into_inner).collect();
        let row_ptr = offsets(degree.iter());
        let next = collect(0..n, LEAST, &|i| AtomicUsize::new(row_ptr[i]));
        let col = atomics(self.col.len(), &|_| 0);
        each(n, LEAST, &|i| {
            for &j in self.neighbours(i as u32) {
                col[next[j as usize].fetch_add(1, Relaxed)].store(i as u32, Relaxed);
            }
        });
        Self { row_ptr, col: plain(col) }
    }

    /// Returns the neighbours of node `i`.
    pub fn neighbours(&self, i: u32) -> &[u32] {
        &self.col[self.row_ptr[i as usize]..self.row_ptr[i as usize + 1]]
    }

    /// Returns true if `j` is a neighbour of `i`.
    fn has(&self, i: u32, j: u32) -> bool {
        self.neighbours(i).binary_search(&j).is_ok()
    }
}

/// Minimum chunk of numbers per thread.
pub(super) const LEAST: usize = 1024;

/// Creates numbers that several threads can change.
pub(super) fn atomics(n: usize, first: &(dyn Fn(usize) -> u32 + Sync)) -> Vec<AtomicU32> {
    collect(0..n, LEAST, &|i| AtomicU32::new(first(i)))
}

/// Converts atomics to plain numbers in the same memory.
pub(super) fn plain(numbers: Vec<AtomicU32>) -> Vec<u32> {
    numbers.into_iter().map(AtomicU32::into_inner).collect()
}

/// Returns the start of each row, and the end of the last.
pub(super) fn offsets<'a>(lengths: impl Iterator<Item = &'a usize>) -> Vec<usize> {
    let mut end = 0;
    let ends = lengths.map(|length| {
        end += length;
        end
    });
    std::iter::once(0).chain(ends).collect()
}

/// Concatenates lists on all threads.
pub(super) fn joined(pieces: &[Vec<u32>]) -> Vec<u32> {
    let mut all = vec![0; pieces.iter().map(Vec::len).sum()];
    let (mut rest, mut targets) = (&mut all[..], Vec::with_capacity(pieces.len()));
    for piece in pieces {
        let (own, others) = rest.split_at_mut(piece.len());
        targets.push((own, piece));
        rest = others;
    }
    targets.into_par_iter().for_each(|(own, piece)| own.copy_from_slice(piece));
    all
}

//! Rows of A P and R (A P) for a scalar matrix A.
//!
//! Accesses to rows of P and A P are effectively random, and a window of A P does not fit the cache of a
//! core. Without prefetching, cache misses take half of the time. So this code prefetches rows: first their
//! offsets, then their entries.

use super::super::parallel::Rows;
use super::super::sums::Sums;
use super::{CHUNK, Window};
use crate::matrix::{Arrays, Bsr};
use crate::threads::prefetch;
use std::ops::Range;

/// Number of entries of A or R by which prefetching is ahead of the sums.
const AHEAD: usize = 12;
/// Numbers in a cache line.
const LINE: usize = 8;

/// Appends rows of A P to `to`, with unordered columns.
pub(super) fn rows_of_ap(a: &Bsr, p: &Bsr, rows: Range<usize>, sums: &mut Sums, to: &mut Rows) {
    let (a, p) = (Arrays::of(a), Arrays::of(p));
    for i in rows {
        sums.begin();
        for q in a.row(i) {
            if let Some(&k) = a.col.get(q + 2 * AHEAD) {
                prefetch(p.row_ptr.as_ptr().wrapping_add(k as usize));
            }
            if let Some(&k) = a.col.get(q + AHEAD) {
                let begin = p.row_ptr[k as usize];
                prefetch(p.col.as_ptr().wrapping_add(begin));
                prefetch(p.values.as_ptr().wrapping_add(begin));
            }
            let of = p.row(a.col[q] as usize);
            sums.add(a.values[q], &p.col[of.clone()], &p.values[of]);
        }
        to.col.extend_from_slice(&sums.nodes[..sums.len]);
        to.values.extend_from_slice(&sums.weights[..sums.len]);
        to.end_row();
    }
}

/// Appends rows of R (A P) to `to`, with ascending columns.
pub(super) fn rows_of_rap(r: &Bsr, ap: &Window, rows: Range<usize>, sums: &mut Sums, to: &mut Rows) {
    let (r, mut order) = (Arrays::of(r), Vec::new());
    for i in rows {
        sums.begin();
        sums.add(0.0, &[i as u32], &[0.0]);
        for q in r.row(i) {
            if let Some(&k) = r.col.get(q + 2 * AHEAD) {
                ap.ask_where(k as usize);
            }
            if let Some(&k) = r.col.get(q + AHEAD) {
                ap.ask(k as usize);
            }
            let (col, values) = ap.row(1, r.col[q] as usize);
            sums.add(r.values[q], col, values);
        }
        order.clear();
        order.extend((0..).zip(&sums.nodes[..sums.len]).map(|(k, &j): (u64, _)| u64::from(j) << 32 | k));
        order.sort_unstable();
        to.col.extend(order.iter().map(|key| (key >> 32) as u32));
        to.values.extend(order.iter().map(|&key| sums.weights[key as u32 as usize]));
        to.end_row();
    }
}

impl Window {
    /// Prefetches the offset of row `i`, if its chunk exists.
    #[inline(always)]
    fn ask_where(&self, i: usize) {
        if let Some(chunk) = &self.chunks[i >> CHUNK] {
            prefetch(chunk.row_ptr.as_ptr().wrapping_add(i & ((1 << CHUNK) - 1)));
        }
    }

    /// Prefetches the first entries of row `i`, if its chunk exists.
    #[inline(always)]
    fn ask(&self, i: usize) {
        if let Some(chunk) = &self.chunks[i >> CHUNK] {
            let begin = chunk.row_ptr[i & ((1 << CHUNK) - 1)];
            prefetch(chunk.col.as_ptr().wrapping_add(begin));
            (0..2).for_each(|line| prefetch(chunk.values.as_ptr().wrapping_add(begin + line * LINE)));
        }
    }
}

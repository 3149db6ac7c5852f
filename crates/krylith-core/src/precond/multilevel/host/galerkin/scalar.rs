//! Rows of A P and R (A P) where A has no blocks.
//!
//! Rows of P and of A P are as good as anywhere, and no cache of a core holds a window of A P: what waits for them takes half of the time, so they are
//! asked for in advance, first where they begin and then what they are.

use super::super::parallel::Rows;
use super::super::sums::Sums;
use super::{CHUNK, Window};
use crate::matrix::{Arrays, Bsr};
use crate::threads::prefetch;
use std::ops::Range;

/// Entries of A or R that rows are asked for in advance.
const AHEAD: usize = 12;
/// Numbers of a cache line.
const LINE: usize = 8;

/// Rows of A P behind those of `to`, their columns in no order.
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

/// Rows of R (A P) behind those of `to`, their columns ascending.
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
    /// Asks for the place where row `i` begins, if it is there.
    #[inline(always)]
    fn ask_where(&self, i: usize) {
        if let Some(chunk) = &self.chunks[i >> CHUNK] {
            prefetch(chunk.row_ptr.as_ptr().wrapping_add(i & ((1 << CHUNK) - 1)));
        }
    }

    /// Asks for the first entries of row `i`, if it is there.
    #[inline(always)]
    fn ask(&self, i: usize) {
        if let Some(chunk) = &self.chunks[i >> CHUNK] {
            let begin = chunk.row_ptr[i & ((1 << CHUNK) - 1)];
            prefetch(chunk.col.as_ptr().wrapping_add(begin));
            (0..2).for_each(|line| prefetch(chunk.values.as_ptr().wrapping_add(begin + line * LINE)));
        }
    }
}

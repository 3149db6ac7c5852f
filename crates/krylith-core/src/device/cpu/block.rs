//! Blocks of a few vectors on a CPU: all dot products of two blocks, combinations, and both in one pass.
//!
//! The work is done in runs of [`RUN`] rows, so that the columns of all blocks stay in the first-level cache
//! while they are used. Every operation thus takes one pass over memory. Products are computed in tiles of
//! two by two columns, whose sums stay in registers.

use super::Cpu;
use crate::space::{MOST_COLUMNS, block_sums, check_columns};
use crate::threads::Disjoint;
use crate::{Error, Result};
use std::ops::Range;

/// Rows that are processed at a time.
const RUN: usize = 128;
/// Rows whose products are summed in parallel lanes.
const LANES: usize = 8;

/// One run of a block's columns.
type Run = [[f64; RUN]; MOST_COLUMNS];

/// Iterates over the runs of a range.
#[inline(always)]
fn runs(range: Range<usize>) -> impl Iterator<Item = Range<usize>> {
    let end = range.end;
    range.step_by(RUN).map(move |at| at..(at + RUN).min(end))
}

/// Returns the dot products of I columns with J others.
#[inline(always)]
fn tile<const I: usize, const J: usize>(x: [&[f64]; I], y: [&[f64]; J]) -> [[f64; J]; I] {
    let n = y[0].len();
    let (x, y) = (x.map(|x| &x[..n]), y.map(|y| &y[..n]));
    let mut lanes = [[[0.0; LANES]; J]; I];
    let mut at = 0;
    while at + LANES <= n {
        for i in 0..I {
            for j in 0..J {
                for k in 0..LANES {
                    lanes[i][j][k] += x[i][at + k] * y[j][at + k];
                }
            }
        }
        at += LANES;
    }
    let mut sums = lanes.map(|row| row.map(|lanes| lanes.iter().sum::<f64>()));
    while at < n {
        for i in 0..I {
            for j in 0..J {
                sums[i][j] += x[i][at] * y[j][at];
            }
        }
        at += 1;
    }
    sums
}

/// Calls `add(i, j, xᵢᵀyⱼ)` for all i and j, or for those with i ≤ j.
#[inline(always)]
fn products<'a>(
    s: usize,
    x: impl Fn(usize) -> &'a [f64],
    y: impl Fn(usize) -> &'a [f64],
    upper: bool,
    mut add: impl FnMut(usize, usize, f64),
) {
    let mut i = 0;
    while i < s {
        let mut j = if upper { i } else { 0 };
        while j < s {
            if i + 1 < s && j + 1 < s {
                let sums = tile([x(i), x(i + 1)], [y(j), y(j + 1)]);
                add(i, j, sums[0][0]);
                add(i, j + 1, sums[0][1]);
                if !upper || i < j {
                    add(i + 1, j, sums[1][0]);
                }
                add(i + 1, j + 1, sums[1][1]);
            } else if i + 1 < s {
                let sums = tile([x(i), x(i + 1)], [y(j)]);
                add(i, j, sums[0][0]);
                add(i + 1, j, sums[1][0]);
            } else if j + 1 < s {
                let sums = tile([x(i)], [y(j), y(j + 1)]);
                add(i, j, sums[0][0]);
                add(i, j + 1, sums[0][1]);
            } else {
                add(i, j, tile([x(i)], [y(j)])[0][0]);
            }
            j += 2;
        }
        i += 2;
    }
}

/// Computes `to −= Σ c[i] from[i]`, four columns at a time.
#[inline(always)]
fn subtract<'a>(to: &mut [f64], c: &[f64], from: impl Fn(usize) -> &'a [f64]) {
    let (n, s) = (to.len(), c.len());
    let mut i = 0;
    while i + 4 <= s {
        let v: [&[f64]; 4] = std::array::from_fn(|k| &from(i + k)[..n]);
        let c: [f64; 4] = std::array::from_fn(|k| c[i + k]);
        for e in 0..n {
            to[e] -= (c[0] * v[0][e] + c[1] * v[1][e]) + (c[2] * v[2][e] + c[3] * v[3][e]);
        }
        i += 4;
    }
    while i < s {
        let (v, c) = (&from(i)[..n], c[i]);
        for e in 0..n {
            to[e] -= c * v[e];
        }
        i += 1;
    }
}

/// Columns that several threads write.
struct Writers<'a> {
    columns: [Option<Disjoint<'a, f64>>; MOST_COLUMNS],
}

impl<'a> Writers<'a> {
    fn new(block: &'a mut [Vec<f64>]) -> Self {
        let mut columns = [const { None }; MOST_COLUMNS];
        columns.iter_mut().zip(block).for_each(|(to, column)| *to = Some(Disjoint::new(column)));
        Self { columns }
    }

    /// Returns rows of column i.
    ///
    /// # Safety
    /// No two threads may hold overlapping ranges at once.
    #[inline(always)]
    #[allow(clippy::mut_from_ref)]
    unsafe fn range(&self, i: usize, range: Range<usize>) -> &mut [f64] {
        let column = self.columns[i].as_ref().expect("a column of the block");
        // SAFETY: the caller's promise.
        unsafe { column.range(range) }
    }
}

impl Cpu {
    /// Allocates a block of zeros and the scratch for its sums.
    pub(super) fn make_block(&self, columns: usize) -> Result<Vec<Vec<f64>>> {
        check_columns(columns)?;
        self.widen(block_sums(columns));
        (0..columns).map(|_| crate::threads::zeros(self.len, "a vector of a block")).collect()
    }

    fn check_blocks(&self, blocks: &[&[Vec<f64>]]) -> Result<usize> {
        let s = blocks[0].len();
        if s > MOST_COLUMNS || blocks.iter().any(|b| b.len() != s || b.iter().any(|v| v.len() != self.len)) {
            return Err(Error::invalid(format!(
                "two blocks do not match; expected the same number of vectors in both, at most \
                 {MOST_COLUMNS}, with {} numbers each",
                self.len
            )));
        }
        Ok(s)
    }

    /// Computes all dot products of two blocks of vectors.
    pub(super) fn products_of_blocks(&self, x: &[Vec<f64>], y: &[Vec<f64>], out: &mut [f64]) -> Result<()> {
        let s = self.check_blocks(&[x, y])?;
        self.sum_strips(
            2 * s,
            s * s,
            out,
            #[inline(always)]
            |range, out| {
                for run in runs(range) {
                    let (x, y) = (|i: usize| &x[i][run.clone()], |j: usize| &y[j][run.clone()]);
                    products(s, x, y, false, |i, j, sum| out[i * s + j] += sum);
                }
            },
        );
        self.total(&mut out[..s * s])
    }

    /// Computes Q ← S − Q B and AQ ← AS − AQ B with their sums: `from` is (S, A S), `to` is (Q, A Q), B is
    /// stored by columns.
    pub(super) fn update_by_blocks(
        &self,
        from: [&[Vec<f64>]; 2],
        r: &[f64],
        to: [&mut [Vec<f64>]; 2],
        b: &[f64],
        out: &mut [f64],
    ) -> Result<()> {
        let s = self.check_blocks(&[from[0], from[1], to[0], to[1]])?;
        let to = to.map(Writers::new);
        let (half, sums) = (s * (s + 1) / 2, block_sums(s));
        self.sum_strips(
            6 * s + 1,
            sums,
            out,
            #[inline(always)]
            |range, out| {
                let mut new: [Run; 2] = [[[0.0; RUN]; MOST_COLUMNS]; 2];
                for run in runs(range) {
                    let n = run.len();
                    for (k, new) in new.iter_mut().enumerate() {
                        for (j, new) in new.iter_mut().enumerate().take(s) {
                            let new = &mut new[..n];
                            new.copy_from_slice(&from[k][j][run.clone()]);
                            // SAFETY: strips do not overlap.
                            subtract(new, &b[j * s..][..s], |i| unsafe { &*to[k].range(i, run.clone()) });
                        }
                        for (j, new) in new.iter().enumerate().take(s) {
                            // SAFETY: strips do not overlap.
                            unsafe { to[k].range(j, run.clone()) }.copy_from_slice(&new[..n]);
                        }
                    }
                    let (q, aq) = (|i: usize| &new[0][i][..n], |i: usize| &new[1][i][..n]);
                    let place = |i: usize, j: usize| i * (2 * s - i + 1) / 2 + j - i;
                    products(s, q, aq, true, |i, j, sum| out[place(i, j)] += sum);
                    products(s, aq, aq, true, |i, j, sum| out[half + place(i, j)] += sum);
                    let r = &r[run];
                    for i in 0..s {
                        let sums = tile([q(i), aq(i)], [r]);
                        out[2 * half + i] += sums[0][0];
                        out[2 * half + s + i] += sums[1][0];
                    }
                    out[sums - 1] += tile([r], [r])[0][0];
                }
            },
        );
        self.total(&mut out[..sums])
    }

    /// Computes x += Q a and r −= AQ a: `by` is (Q, A Q), `to` is (x, r).
    pub(super) fn advance_by_blocks(&self, by: [&[Vec<f64>]; 2], to: [&mut Vec<f64>; 2], a: &[f64]) {
        let mut minus = [0.0; MOST_COLUMNS];
        minus.iter_mut().zip(a).for_each(|(minus, a)| *minus = -a);
        let (to, minus) = (to.map(|to| Disjoint::new(to)), &minus[..a.len()]);
        self.for_strips(
            2 * a.len() + 4,
            #[inline(always)]
            |_, range| {
                for run in runs(range) {
                    for ((to, by), c) in to.iter().zip(by).zip([minus, a]) {
                        // SAFETY: strips do not overlap.
                        subtract(unsafe { to.range(run.clone()) }, c, |i| &by[i][run.clone()]);
                    }
                }
            },
        );
    }
}

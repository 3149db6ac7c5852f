//! Products by diagonals with a matrix and vectors in f32.

use super::{Diagonals, PASS, Run, Term, WIDTH};
use crate::device::cpu::CHUNK;
use crate::device::cpu::narrow::narrowed;
use crate::device::cpu::product::Values;
use std::ops::Range;

/// The values of a product in f32.
pub(in crate::device::cpu) struct NarrowDiagonals {
    rows: usize,
    values: Vec<f32>,
    runs: Vec<Run>,
    coefficient: f32,
}

impl NarrowDiagonals {
    /// Copies a product, with its values multiplied by `scale`. Returns `None` if they are not in f64, or if
    /// the processor has no fused multiply–add instruction.
    pub fn of(from: &Diagonals, scale: f64) -> Option<Self> {
        let Values::F64(values) = &from.values else { return None };
        if matches!(pulp::Arch::new(), pulp::Arch::Scalar) && cfg!(target_arch = "x86_64") {
            return None;
        }
        Some(Self {
            rows: from.rows,
            values: narrowed(values, scale),
            runs: from.runs.clone(),
            coefficient: from.coefficient as f32,
        })
    }

    /// Returns the bytes of one product.
    pub fn bytes(&self) -> usize {
        4 * self.values.len() + 8 * self.rows
    }

    /// Computes rows of c A x.
    #[inline(always)]
    pub fn multiply_rows(&self, rows: Range<usize>, x: &[f32], y: &mut [f32]) {
        assert!(x.len() == self.rows && rows.end <= self.rows && y.len() == rows.len());
        let first_run = self.runs.partition_point(|run| run.rows.end <= rows.start);
        for run in &self.runs[first_run..] {
            let (mut at, end) = (run.rows.start.max(rows.start), run.rows.end.min(rows.end));
            if at >= rows.end {
                break;
            }
            while at < end {
                let next = (at + CHUNK).min(end);
                let y = &mut y[at - rows.start..next - rows.start];
                let mut terms = &run.terms[..];
                if terms.is_empty() {
                    y.fill(0.0);
                }
                let mut first = true;
                while !terms.is_empty() {
                    let (now, later) = terms.split_at(terms.len().min(PASS));
                    let c = if later.is_empty() { self.coefficient } else { 1.0 };
                    // SAFETY: these rows have values on each of these diagonals, and columns in x.
                    unsafe {
                        match now.len() {
                            1 => pass::<1>(&self.values, now, at, x, y, first, c),
                            2 => pass::<2>(&self.values, now, at, x, y, first, c),
                            3 => pass::<3>(&self.values, now, at, x, y, first, c),
                            4 => pass::<4>(&self.values, now, at, x, y, first, c),
                            5 => pass::<5>(&self.values, now, at, x, y, first, c),
                            6 => pass::<6>(&self.values, now, at, x, y, first, c),
                            7 => pass::<7>(&self.values, now, at, x, y, first, c),
                            8 => pass::<8>(&self.values, now, at, x, y, first, c),
                            _ => pass::<PASS>(&self.values, now, at, x, y, first, c),
                        }
                    }
                    (terms, first) = (later, false);
                }
                at = next;
            }
        }
    }
}

/// Computes y[i] = c (y[i] + Σ v[base + row + i] x[row + i + offset]) over `T` terms, without the old y if
/// `first`.
///
/// # Safety
/// For each of these rows and terms, both indices must be inside `values` and x.
#[inline(always)]
unsafe fn pass<const T: usize>(
    values: &[f32],
    terms: &[Term],
    row: usize,
    x: &[f32],
    y: &mut [f32],
    first: bool,
    c: f32,
) {
    let row = row as isize;
    let v: [*const f32; T] = std::array::from_fn(|t| values.as_ptr().wrapping_offset(terms[t].base + row));
    let x: [*const f32; T] = std::array::from_fn(|t| x.as_ptr().wrapping_offset(terms[t].offset + row));
    let (blocks, rest) = y.as_chunks_mut::<WIDTH>();
    let done = blocks.len() * WIDTH;
    for (block, y) in blocks.iter_mut().enumerate() {
        let mut sums = if first { [0.0; WIDTH] } else { *y };
        for t in 0..T {
            // SAFETY: the caller's promise.
            let (v, x) = unsafe {
                (
                    v[t].add(block * WIDTH).cast::<[f32; WIDTH]>().read_unaligned(),
                    x[t].add(block * WIDTH).cast::<[f32; WIDTH]>().read_unaligned(),
                )
            };
            for l in 0..WIDTH {
                sums[l] = v[l].mul_add(x[l], sums[l]);
            }
        }
        for l in 0..WIDTH {
            y[l] = c * sums[l];
        }
    }
    for (i, y) in rest.iter_mut().enumerate() {
        let mut sum = if first { 0.0 } else { *y };
        for t in 0..T {
            // SAFETY: the caller's promise.
            let (v, x) = unsafe { (*v[t].add(done + i), *x[t].add(done + i)) };
            sum = v.mul_add(x, sum);
        }
        *y = c * sum;
    }
}

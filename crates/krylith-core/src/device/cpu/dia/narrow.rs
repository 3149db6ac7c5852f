//! Products by diagonals with a matrix in f32 or bf16, and vectors in f32.

use super::{Diagonals, PASS, Run, Term, WIDTH};
use crate::device::cpu::CHUNK;
use crate::device::cpu::narrow::{Number, Stored, narrowed};
use crate::device::cpu::product::Values;
use crate::precond::bf16::{Bf16, RoundedRow, Unfit};
use rayon::prelude::*;
use std::ops::Range;

/// Rows that a thread rounds at once.
const ROUNDED: usize = 1 << 13;

/// The values of a product in f32 or bf16.
pub(in crate::device::cpu) struct NarrowDiagonals {
    rows: usize,
    values: Stored,
    /// The diagonal with its coefficient, if no run has a term for it; otherwise empty.
    own: Vec<f32>,
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
            values: Stored::F32(narrowed(values, scale)),
            own: Vec::new(),
            runs: from.runs.clone(),
            coefficient: from.coefficient as f32,
        })
    }

    /// Copies a product in bf16. Also returns D⁻¹ of its smoother. Returns `None` if bf16 does not suit it,
    /// and as [`of`](Self::of).
    pub fn in_bf16(from: &Diagonals, scale: f64) -> Option<(Self, Vec<f32>)> {
        let made = Self::of(from, scale)?;
        let Values::F64(values) = &from.values else { return None };
        let (mut own, mut inverse) = (vec![0.0; from.rows], vec![0.0; from.rows]);
        let both = own.par_chunks_mut(ROUNDED).zip(inverse.par_chunks_mut(ROUNDED)).enumerate();
        let unfit = both.map(|(chunk, (own, inverse))| {
            let (mut unfit, first) = (Unfit::default(), chunk * ROUNDED);
            for (place, (own, inverse)) in own.iter_mut().zip(inverse).enumerate() {
                let (i, mut row) = (first + place, RoundedRow::default());
                let run = &from.runs[from.runs.partition_point(|run| run.rows.end <= i)];
                for term in &run.terms {
                    row.take(term.offset == 0, values[(term.base + i as isize) as usize] * scale);
                }
                [*own, *inverse] = row.finish(from.coefficient, &mut unfit);
            }
            unfit
        });
        if !unfit.reduce(Unfit::default, Unfit::with).fits(from.rows) {
            return None;
        }
        let rounded = values.par_iter().with_min_len(ROUNDED).map(|v| Bf16::round(v * scale)).collect();
        let mut runs = made.runs;
        runs.iter_mut().for_each(|run| run.terms.retain(|term| term.offset != 0));
        Some((Self { values: Stored::Bf16(rounded), own, runs, ..made }, inverse))
    }

    /// Returns the diagonal if it is apart from the other diagonals; otherwise nothing.
    pub fn own(&self) -> &[f32] {
        &self.own
    }

    pub fn is_in_bf16(&self) -> bool {
        self.values.is_in_bf16()
    }

    /// Returns the bytes of one product.
    pub fn bytes(&self) -> usize {
        // One of the stored diagonals is not read.
        let unread = self.own.len();
        self.values.width() * (self.values.len() - unread) + 4 * unread + 8 * self.rows
    }

    /// Computes rows of c A x, without a diagonal that is apart.
    #[inline(always)]
    pub fn multiply_rows(&self, rows: Range<usize>, x: &[f32], y: &mut [f32]) {
        match &self.values {
            Stored::F32(values) => self.rows_of(values, rows, x, y),
            Stored::Bf16(values) => self.rows_of(values, rows, x, y),
        }
    }

    #[inline(always)]
    fn rows_of<V: Number>(&self, values: &[V], rows: Range<usize>, x: &[f32], y: &mut [f32]) {
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
                            1 => pass::<1, V>(values, now, at, x, y, first, c),
                            2 => pass::<2, V>(values, now, at, x, y, first, c),
                            3 => pass::<3, V>(values, now, at, x, y, first, c),
                            4 => pass::<4, V>(values, now, at, x, y, first, c),
                            5 => pass::<5, V>(values, now, at, x, y, first, c),
                            6 => pass::<6, V>(values, now, at, x, y, first, c),
                            7 => pass::<7, V>(values, now, at, x, y, first, c),
                            8 => pass::<8, V>(values, now, at, x, y, first, c),
                            _ => pass::<PASS, V>(values, now, at, x, y, first, c),
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
unsafe fn pass<const T: usize, V: Number>(
    values: &[V],
    terms: &[Term],
    row: usize,
    x: &[f32],
    y: &mut [f32],
    first: bool,
    c: f32,
) {
    let row = row as isize;
    let v: [*const V; T] = std::array::from_fn(|t| values.as_ptr().wrapping_offset(terms[t].base + row));
    let x: [*const f32; T] = std::array::from_fn(|t| x.as_ptr().wrapping_offset(terms[t].offset + row));
    let (blocks, rest) = y.as_chunks_mut::<WIDTH>();
    let done = blocks.len() * WIDTH;
    for (block, y) in blocks.iter_mut().enumerate() {
        let mut sums = if first { [0.0; WIDTH] } else { *y };
        for t in 0..T {
            // SAFETY: the caller's promise.
            let (v, x) = unsafe {
                (
                    v[t].add(block * WIDTH).cast::<[V; WIDTH]>().read_unaligned(),
                    x[t].add(block * WIDTH).cast::<[f32; WIDTH]>().read_unaligned(),
                )
            };
            for l in 0..WIDTH {
                sums[l] = v[l].wide().mul_add(x[l], sums[l]);
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
            sum = v.wide().mul_add(x, sum);
        }
        *y = c * sum;
    }
}

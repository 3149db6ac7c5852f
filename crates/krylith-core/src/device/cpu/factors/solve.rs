//! The fused L·D·U solve of subdomains, specialised on order, slice width, column type, and the precisions of
//! stored numbers and of the vector.
//!
//! A vector in f32 is scaled by the power of two that brings its largest number near 1. The stored D⁻¹ is
//! scaled, too (`precond/range.rs`). The result is scaled back as it is written in f64.

use super::super::elimination::{Real, Usable};
use super::layout::{Piece, Slice};
use super::{Columns, Triangles, Values, Vector};
use crate::device::cpu::Wide;
use crate::precond::range::{exponent_or_zero, powers};
use crate::precond::{Plan, Stride};
use crate::threads::Disjoint;
use std::cell::RefCell;
use std::ops::Range;

/// A stored local column.
trait Column: Copy {
    fn at(self) -> usize;
}
impl Column for u16 {
    #[inline(always)]
    fn at(self) -> usize {
        self as usize
    }
}
impl Column for u32 {
    #[inline(always)]
    fn at(self) -> usize {
        self as usize
    }
}

/// One thread's part of a solve: y = (I + U)⁻¹ D⁻¹ (I + L)⁻¹ x in these subdomains, with these triangles.
pub(super) struct Share<'a> {
    pub plan: &'a Plan,
    pub of: &'a Triangles,
    pub subdomains: Range<usize>,
    /// For each subdomain the exponent of its scale, if vectors are in f32.
    pub shifts: &'a [i32],
    pub at: Stride,
    pub x: &'a [f64],
    pub y: &'a Disjoint<'a, f64>,
}

impl Share<'_> {
    /// Solves; `vector` has space for the largest subdomain and a slice more.
    pub fn solve(&self, vector: &mut Vector) {
        match (&self.of.values, &*self.of.columns, vector) {
            (Values::F64(v), Columns::U16(c), Vector::F64(vector)) => self.by_order(v, c, vector),
            (Values::F64(v), Columns::U32(c), Vector::F64(vector)) => self.by_order(v, c, vector),
            (Values::F32(v), Columns::U16(c), Vector::F64(vector)) => self.by_order(v, c, vector),
            (Values::F32(v), Columns::U32(c), Vector::F64(vector)) => self.by_order(v, c, vector),
            (Values::F32(v), Columns::U16(c), Vector::F32(vector)) => self.by_order(v, c, vector),
            (Values::F32(v), Columns::U32(c), Vector::F32(vector)) => self.by_order(v, c, vector),
            (Values::F64(_), _, Vector::F32(_)) => unreachable!("factors in f64 for vectors in f32"),
        }
    }

    fn by_order<R: Real, T: Usable<R>, C: Column>(&self, values: &[T], columns: &[C], vector: &mut [R]) {
        match self.plan.order {
            1 => self.each::<R, T, C, 1, 8, 4>(values, columns, vector),
            2 => self.each::<R, T, C, 2, 4, 4>(values, columns, vector),
            3 => self.each::<R, T, C, 3, 4, 4>(values, columns, vector),
            4 => self.each::<R, T, C, 4, 1, 1>(values, columns, vector),
            5 => self.each::<R, T, C, 5, 1, 1>(values, columns, vector),
            6 => self.each::<R, T, C, 6, 1, 1>(values, columns, vector),
            7 => self.each::<R, T, C, 7, 1, 1>(values, columns, vector),
            8 => self.each::<R, T, C, 8, 1, 1>(values, columns, vector),
            _ => self.each::<R, T, C, 0, 1, 1>(values, columns, vector),
        }
    }

    /// Solves with slices that are WIDE, NARROW or 1 rows wide; M = 0 stands for any order.
    fn each<R: Real, T: Usable<R>, C: Column, const M: usize, const WIDE: usize, const NARROW: usize>(
        &self,
        values: &[T],
        columns: &[C],
        vector: &mut [R],
    ) {
        let Self { plan, of, subdomains, shifts, at, x, y } = self;
        let vector = RefCell::new(vector);
        pulp::Arch::new().dispatch(Wide(
            #[inline(always)]
            || {
                let vector = &mut *vector.borrow_mut();
                let m = if M == 0 { plan.order } else { M };
                for p in subdomains.clone() {
                    let rows = &plan.rows[plan.ptr[p]..plan.ptr[p + 1]];
                    let [scale, back] = match R::SCALED {
                        true => {
                            let e = exponent_or_zero(largest(*at, m, rows, x));
                            [powers(-e), powers(e + shifts[p])]
                        }
                        false => [[1.0; 2]; 2],
                    };
                    for (to, &i) in vector.chunks_exact_mut(m).zip(rows) {
                        gather(*at, i as usize * m, x, scale, to);
                    }
                    let piece = &of.layout.pieces[p];
                    let (values, columns) = (&values[piece.values..], &columns[piece.columns..]);
                    let slices = &of.layout.slices;
                    if M == 0 {
                        any_order(m, slices, piece, values, columns, vector);
                    } else if piece.lanes == 1 {
                        solve::<R, T, C, M, 1>(slices, piece, values, columns, vector);
                    } else if piece.lanes == WIDE {
                        solve::<R, T, C, M, WIDE>(slices, piece, values, columns, vector);
                    } else {
                        solve::<R, T, C, M, NARROW>(slices, piece, values, columns, vector);
                    }
                    for (from, &i) in vector.chunks_exact(m).zip(rows) {
                        // SAFETY: a row is in one subdomain, and a subdomain in one thread's share.
                        unsafe { scatter(*at, i as usize * m, from, back, y) };
                    }
                }
            },
        ));
    }
}

/// Returns the largest size of the numbers of these rows.
#[inline(always)]
fn largest(at: Stride, m: usize, rows: &[u32], x: &[f64]) -> f64 {
    let mut most = 0;
    for &i in rows {
        for r in 0..m {
            // The bits of positive numbers order as the numbers do, and NaN comes last.
            most = most.max(x[(i as usize * m + r) * at.step + at.offset].abs().to_bits());
        }
    }
    f64::from_bits(most)
}

/// Copies the numbers from `first` on, in the stride of `at`, to `to`.
#[inline(always)]
fn gather<R: Real>(at: Stride, first: usize, x: &[f64], scale: [f64; 2], to: &mut [R]) {
    if at == Stride::ALL {
        for (to, &x) in to.iter_mut().zip(&x[first..]) {
            *to = R::of(x, scale);
        }
        return;
    }
    for (r, to) in to.iter_mut().enumerate() {
        *to = R::of(x[(first + r) * at.step + at.offset], scale);
    }
}

/// Reverses [`gather`].
///
/// # Safety
/// No other thread may access these numbers of y.
#[inline(always)]
unsafe fn scatter<R: Real>(at: Stride, first: usize, from: &[R], scale: [f64; 2], y: &Disjoint<f64>) {
    if at == Stride::ALL {
        // SAFETY: as the caller promises.
        let y = unsafe { y.range(first..first + from.len()) };
        for (y, from) in y.iter_mut().zip(from) {
            *y = from.back(scale);
        }
        return;
    }
    for (r, &from) in from.iter().enumerate() {
        let k = (first + r) * at.step + at.offset;
        // SAFETY: as the caller promises.
        unsafe { y.range(k..k + 1)[0] = from.back(scale) };
    }
}

/// Does both solves of one subdomain, W rows at a time.
#[inline(always)]
fn solve<R: Real, T: Usable<R>, C: Column, const M: usize, const W: usize>(
    slices: &[Slice],
    piece: &Piece,
    mut values: &[T],
    mut columns: &[C],
    x: &mut [R],
) {
    for slice in &slices[piece.lower.clone()] {
        let at = slice.start as usize * M;
        let mut sum = load::<R, M, W>(x, at);
        for _ in 0..slice.slots {
            subtract::<R, T, C, M, W>(&mut sum, &mut values, &mut columns, x);
        }
        store::<R, M, W>(x, at, &sum);
    }
    for slice in &slices[piece.upper.clone()] {
        let at = slice.start as usize * M;
        let z = load::<R, M, W>(x, at);
        let (d, rest) = values.split_at(M * M * W);
        values = rest;
        let mut sum = [[R::default(); W]; M];
        for c in 0..M {
            for r in 0..M {
                for l in 0..W {
                    sum[r][l] += d[(c * M + r) * W + l].get() * z[c][l];
                }
            }
        }
        for _ in 0..slice.slots {
            subtract::<R, T, C, M, W>(&mut sum, &mut values, &mut columns, x);
        }
        store::<R, M, W>(x, at, &sum);
    }
}

/// Subtracts one block of each of W rows times its part of x from the sums.
#[inline(always)]
fn subtract<R: Real, T: Usable<R>, C: Column, const M: usize, const W: usize>(
    sum: &mut [[R; W]; M],
    values: &mut &[T],
    columns: &mut &[C],
    x: &[R],
) {
    let (v, rest) = values.split_at(M * M * W);
    *values = rest;
    let (j, rest) = columns.split_at(W);
    *columns = rest;
    for c in 0..M {
        // SAFETY: columns are below the number of rows of the subdomain, with M numbers each, and x is at
        // least as long.
        let x: [R; W] = std::array::from_fn(|l| unsafe { *x.get_unchecked(j[l].at() * M + c) });
        for r in 0..M {
            for l in 0..W {
                sum[r][l] -= v[(c * M + r) * W + l].get() * x[l];
            }
        }
    }
}

/// Loads W rows of x, component by component.
#[inline(always)]
fn load<R: Real, const M: usize, const W: usize>(x: &[R], at: usize) -> [[R; W]; M] {
    let x = &x[at..at + M * W];
    std::array::from_fn(|r| std::array::from_fn(|l| x[l * M + r]))
}

/// Reverses [`load`].
#[inline(always)]
fn store<R: Real, const M: usize, const W: usize>(x: &mut [R], at: usize, sum: &[[R; W]; M]) {
    let x = &mut x[at..at + M * W];
    for r in 0..M {
        for l in 0..W {
            x[l * M + r] = sum[r][l];
        }
    }
}

/// Does both solves of one subdomain with blocks of any order, row by row.
#[inline(always)]
fn any_order<R: Real, T: Usable<R>, C: Column>(
    m: usize,
    slices: &[Slice],
    piece: &Piece,
    values: &[T],
    columns: &[C],
    x: &mut [R],
) {
    let mut sum = [R::default(); crate::precond::MAX_ORDER];
    let sum = &mut sum[..m];
    let mut blocks = values.chunks_exact(m * m);
    let mut columns = columns.iter();
    let all = piece.lower.clone().chain(piece.upper.clone());
    for s in all {
        let at = slices[s].start as usize * m;
        if s < piece.upper.start {
            sum.copy_from_slice(&x[at..at + m]);
        } else {
            sum.fill(R::default());
            multiply_add(m, R::ONE, blocks.next().unwrap_or_default(), &x[at..at + m], sum);
        }
        for _ in 0..slices[s].slots {
            let (Some(block), Some(j)) = (blocks.next(), columns.next()) else { break };
            let at = j.at() * m;
            multiply_add(m, -R::ONE, block, &x[at..at + m], sum);
        }
        x[at..at + m].copy_from_slice(sum);
    }
}

/// Computes sum += factor · (block stored by columns) x.
#[inline(always)]
fn multiply_add<R: Real, T: Usable<R>>(m: usize, factor: R, block: &[T], x: &[R], sum: &mut [R]) {
    for (column, &x) in block.chunks_exact(m).zip(x) {
        let x = factor * x;
        for (sum, v) in sum.iter_mut().zip(column) {
            *sum += v.get() * x;
        }
    }
}

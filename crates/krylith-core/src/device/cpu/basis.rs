//! Krylov bases in host memory: dot products and combinations of many columns, chunk by chunk.

use super::CHUNK;
use crate::space::Precision;
use crate::threads::Disjoint;
use crate::threads::prefetch;
use crate::{Error, Result};
use std::ops::Range;

/// Numbers that are summed in parallel lanes.
const LANES: usize = 16;
/// Numbers that are updated between prefetches.
const RUN: usize = 64;

/// Columns of equal length, one after the other.
#[doc(hidden)]
pub struct CpuBasis {
    len: usize,
    data: Data,
    /// A column that is being written as a vector.
    vector: Vec<f64>,
}

enum Data {
    F64(Vec<f64>),
    F32(Vec<f32>),
}

impl CpuBasis {
    pub(super) fn new(len: usize, columns: usize, precision: Precision) -> Result<Self> {
        let data = match precision {
            Precision::F64 => Data::F64(crate::threads::zeros(len * columns, "a Krylov basis")?),
            Precision::F32 => Data::F32(crate::threads::zeros(len * columns, "a Krylov basis")?),
        };
        Ok(Self { len, data, vector: Vec::new() })
    }

    /// Returns column `k`, widened to f64.
    pub fn column(&self, k: usize) -> Vec<f64> {
        let range = k * self.len..(k + 1) * self.len;
        match &self.data {
            Data::F64(v) => v[range].to_vec(),
            Data::F32(v) => v[range].iter().map(|&v| v as f64).collect(),
        }
    }

    /// Lets `write` fill a vector, and stores it as column `k`.
    pub(super) fn with_column(
        &mut self,
        k: usize,
        write: impl FnOnce(&mut Vec<f64>) -> Result<()>,
    ) -> Result<()> {
        let Data::F64(data) = &mut self.data else { return Err(Error::narrow_column()) };
        if self.vector.len() != self.len {
            self.vector = crate::threads::zeros(self.len, "a vector")?;
        }
        write(&mut self.vector)?;
        data[k * self.len..][..self.len].copy_from_slice(&self.vector);
        Ok(())
    }

    /// Returns all columns for reading.
    pub(super) fn columns(&self) -> Columns<'_> {
        let data = match &self.data {
            Data::F64(v) => Slice::F64(v),
            Data::F32(v) => Slice::F32(v),
        };
        Columns { len: self.len, data }
    }

    /// Returns the columns before `k` for reading, and column `k` for writing.
    pub(super) fn split(&mut self, k: usize) -> (Columns<'_>, Writer<'_>) {
        let (len, at) = (self.len, k * self.len);
        match &mut self.data {
            Data::F64(v) => {
                let (before, column) = v.split_at_mut(at);
                (Columns { len, data: Slice::F64(before) }, Writer::F64(Disjoint::new(column)))
            }
            Data::F32(v) => {
                let (before, column) = v.split_at_mut(at);
                (Columns { len, data: Slice::F32(before) }, Writer::F32(Disjoint::new(column)))
            }
        }
    }
}

/// Columns for reading.
#[derive(Clone, Copy)]
pub(super) struct Columns<'a> {
    len: usize,
    data: Slice<'a>,
}

#[derive(Clone, Copy)]
enum Slice<'a> {
    F64(&'a [f64]),
    F32(&'a [f32]),
}

/// A column that several threads write.
pub(super) enum Writer<'a> {
    F64(Disjoint<'a, f64>),
    F32(Disjoint<'a, f32>),
}

impl Writer<'_> {
    /// Stores numbers, rounded to the precision of the basis.
    ///
    /// # Safety
    /// No two threads may store to overlapping ranges.
    #[inline(always)]
    pub(super) unsafe fn store(&self, range: Range<usize>, x: &[f64]) {
        match self {
            // SAFETY: the caller's promise.
            Writer::F64(v) => unsafe { v.range(range) }.copy_from_slice(x),
            // SAFETY: the caller's promise.
            Writer::F32(v) => unsafe { v.range(range) }.iter_mut().zip(x).for_each(|(v, &x)| *v = x as f32),
        }
    }
}

impl Columns<'_> {
    /// Computes `out[r][i] += v[columns.start + i]ᵀ x[r]` over one chunk of the rows.
    #[inline(always)]
    pub(super) fn dots<const R: usize>(
        &self,
        columns: Range<usize>,
        chunk: Range<usize>,
        x: [&[f64]; R],
        out: [&mut [f64]; R],
    ) {
        match self.data {
            Slice::F64(v) => dots(v, self.len, columns, chunk, x, out),
            Slice::F32(v) => dots(v, self.len, columns, chunk, x, out),
        }
    }

    /// Computes `x[r] −= Σ c[r][i] v[columns.start + i]` over one chunk of the rows.
    #[inline(always)]
    pub(super) fn subtract<const R: usize>(
        &self,
        columns: Range<usize>,
        chunk: Range<usize>,
        c: [&[f64]; R],
        x: [&mut [f64]; R],
    ) {
        match self.data {
            Slice::F64(v) => subtract(v, self.len, columns, chunk, c, x),
            Slice::F32(v) => subtract(v, self.len, columns, chunk, c, x),
        }
    }
}

trait Number: Copy {
    fn widen(self) -> f64;
    /// Returns the numbers of one chunk in f64, through `buffer` if necessary: conversions among the sums
    /// would not be vectorised.
    fn widened<'a>(v: &'a [Self], buffer: &'a mut [f64; CHUNK]) -> &'a [f64];
}
impl Number for f64 {
    #[inline(always)]
    fn widen(self) -> f64 {
        self
    }
    #[inline(always)]
    fn widened<'a>(v: &'a [f64], _: &'a mut [f64; CHUNK]) -> &'a [f64] {
        v
    }
}
impl Number for f32 {
    #[inline(always)]
    fn widen(self) -> f64 {
        self as f64
    }
    #[inline(always)]
    fn widened<'a>(v: &'a [f32], buffer: &'a mut [f64; CHUNK]) -> &'a [f64] {
        let buffer = &mut buffer[..v.len()];
        buffer.iter_mut().zip(v).for_each(|(to, &from)| *to = from as f64);
        buffer
    }
}

/// Returns xᵀy of one chunk.
#[inline(always)]
pub(super) fn dot(x: &[f64], y: &[f64]) -> f64 {
    dot_each(x, [y], None::<*const f64>)[0]
}

/// Returns vᵀx for each x; meanwhile prefetches as many numbers at `next`.
#[inline(always)]
fn dot_each<T, const R: usize>(v: &[f64], x: [&[f64]; R], next: Option<*const T>) -> [f64; R] {
    let n = v.len();
    let x = x.map(|x| &x[..n]);
    let mut lanes = [[0.0; LANES]; R];
    let mut i = 0;
    while i + LANES <= n {
        if let Some(next) = next {
            ask::<T, LANES>(next.wrapping_add(i));
        }
        for r in 0..R {
            for k in 0..LANES {
                lanes[r][k] += v[i + k] * x[r][i + k];
            }
        }
        i += LANES;
    }
    let mut sums = lanes.map(|lanes| lanes.iter().sum::<f64>());
    while i < n {
        for r in 0..R {
            sums[r] += v[i] * x[r][i];
        }
        i += 1;
    }
    sums
}

/// Prefetches `N` numbers. A chunk of a column is too short for the hardware prefetcher to get far ahead.
#[inline(always)]
fn ask<T, const N: usize>(at: *const T) {
    let mut line = 0;
    while line < N * size_of::<T>() {
        prefetch(at.wrapping_byte_add(line));
        line += 64;
    }
}

/// Returns the distance from column k to the numbers that are read next: those of the chunk `pass` columns
/// further, or after the last columns those of the first ones, one chunk further. Wraps around.
#[inline(always)]
fn following(columns: Range<usize>, k: usize, pass: usize, len: usize) -> usize {
    if k + pass < columns.end { pass * len } else { CHUNK.wrapping_sub((k - columns.start) * len) }
}

#[inline(always)]
fn dots<T: Number, const R: usize>(
    v: &[T],
    len: usize,
    columns: Range<usize>,
    chunk: Range<usize>,
    x: [&[f64]; R],
    out: [&mut [f64]; R],
) {
    let mut buffer = [0.0; CHUNK];
    for (i, k) in columns.clone().enumerate() {
        let column = &v[k * len + chunk.start..k * len + chunk.end];
        let next = column.as_ptr().wrapping_add(following(columns.clone(), k, 1, len));
        let sums = dot_each(T::widened(column, &mut buffer), x, Some(next));
        for r in 0..R {
            out[r][i] += sums[r];
        }
    }
}

/// Subtracts four columns per pass: x is loaded and stored a quarter as often.
#[inline(always)]
fn subtract<T: Number, const R: usize>(
    v: &[T],
    len: usize,
    columns: Range<usize>,
    chunk: Range<usize>,
    c: [&[f64]; R],
    x: [&mut [f64]; R],
) {
    let n = chunk.len();
    let column = |k: usize| &v[k * len + chunk.start..k * len + chunk.end];
    let (mut i, mut k) = (0, columns.start);
    while k + 4 <= columns.end {
        let v = [column(k), column(k + 1), column(k + 2), column(k + 3)];
        let next = following(columns.clone(), k, 4, len);
        for r in 0..R {
            let c: [f64; 4] = std::array::from_fn(|q| c[r][i + q]);
            let mut begin = 0;
            while begin < n {
                let end = (begin + RUN).min(n);
                if r == 0 {
                    v.iter().for_each(|v| ask::<T, RUN>(v.as_ptr().wrapping_add(next.wrapping_add(begin))));
                }
                let (x, v) = (&mut x[r][begin..end], v.map(|v| &v[begin..end]));
                for e in 0..x.len() {
                    let near = c[0] * v[0][e].widen() + c[1] * v[1][e].widen();
                    let far = c[2] * v[2][e].widen() + c[3] * v[3][e].widen();
                    x[e] -= near + far;
                }
                begin = end;
            }
        }
        (i, k) = (i + 4, k + 4);
    }
    while k < columns.end {
        let v = column(k);
        for r in 0..R {
            let c = c[r][i];
            let x = &mut x[r][..n];
            for e in 0..n {
                x[e] -= c * v[e].widen();
            }
        }
        (i, k) = (i + 1, k + 1);
    }
}

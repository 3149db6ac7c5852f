//! Products with matrices stored by diagonals on the CPU.
//!
//! Memory traffic of one product: every stored value once, x and y once. Of a symmetric matrix the main
//! diagonal and those above it are stored, and v₋ₖ[i] = vₖ[i − k] is read again from the cache. Seven
//! diagonals in f64 take 72 bytes per row, or 48 if symmetric.
//!
//! A row is the sum of v[base + i] x[i + offset] over diagonals, in the order of offsets, whichever diagonals
//! are stored. The set of diagonals changes only at a few rows, and all rows between two changes are alike.
//! Up to nine diagonals take one pass over runs of rows without branches. More diagonals take several passes
//! while y is in the first-level cache.

mod narrow;

pub(super) use narrow::NarrowDiagonals;

use super::product::{Number, Values};
use super::{CHUNK, Cpu, Wide, basis};
use crate::matrix::Bsr;
use crate::matrix::storage::SharedPattern;
use crate::operator::{Dots, Format, diagonals_of, mirrored, not_by_diagonals};
use crate::space::Precision;
use crate::threads::{Disjoint, share};
use crate::twofold::Twofold;
use crate::{Error, Result};
use rayon::prelude::*;
use std::cell::Cell;
use std::ops::Range;

/// Rows that a pass sums in parallel lanes.
const WIDTH: usize = 16;
/// Largest number of diagonals of one pass.
const PASS: usize = 9;
/// Rows whose residuals are summed in parallel lanes.
const LANES: usize = 8;
/// Numbers between diagonals besides the rows. Without them, diagonals with a power of two of rows would
/// share the same cache sets.
const SKEW: usize = 72;

/// One matrix of scalar rows by diagonals, with its coefficient.
pub(super) struct Diagonals {
    rows: usize,
    pattern: SharedPattern,
    /// Offsets of all diagonals, ascending.
    offsets: Vec<i32>,
    symmetric: bool,
    values: Values,
    stride: usize,
    /// Runs of rows with the same diagonals, in order.
    runs: Vec<Run>,
    coefficient: f64,
}

/// Rows whose sums have the same terms.
#[derive(Clone)]
struct Run {
    rows: Range<usize>,
    terms: Vec<Term>,
}

/// One term of a row: v[base + i] x[i + offset] is part of row i.
#[derive(Clone, Copy)]
struct Term {
    base: isize,
    offset: isize,
}

impl Diagonals {
    /// Stores a matrix by diagonals, if its entries lie on few diagonals.
    ///
    /// # Errors
    /// Diagonals requested by name that do not suit the matrix; out of memory.
    pub(super) fn new(
        a: &Bsr,
        precision: Precision,
        coefficient: f64,
        format: Format,
    ) -> Result<Option<Self>> {
        // Without a fused multiply–add instruction the passes would call a library function for each.
        let slow = matches!(pulp::Arch::new(), pulp::Arch::Scalar) && cfg!(target_arch = "x86_64");
        if format == Format::Csr || (slow && format == Format::Auto) {
            return Ok(None);
        }
        let offsets = match diagonals_of(a, a.block_columns()) {
            Ok(offsets) => offsets,
            Err(why) if format.wants_diagonals() => return Err(not_by_diagonals(why)),
            Err(_) => return Ok(None),
        };
        let symmetric = format != Format::DiaFull && mirrored(&offsets);
        let mut diagonals = Self {
            rows: a.block_rows(),
            pattern: a.storage().shared_pattern(),
            offsets,
            symmetric,
            values: match precision {
                Precision::F64 => Values::F64(Vec::new()),
                Precision::F32 => Values::F32(Vec::new()),
            },
            stride: (a.block_rows() + SKEW).next_multiple_of(8),
            runs: Vec::new(),
            coefficient,
        };
        diagonals.widen()?;
        diagonals.store(a.values())?;
        Ok(Some(diagonals))
    }

    /// Returns the format: `dia` or `dia-full`.
    pub(super) fn format(&self) -> Format {
        if self.symmetric { Format::Dia } else { Format::DiaFull }
    }

    /// Returns the first entry of each row.
    pub(super) fn row_ptr(&self) -> &[usize] {
        &self.pattern.get().expect("a pattern that was fetched").row_ptr
    }

    /// Number of rows, and of columns.
    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    pub(super) fn set_coefficient(&mut self, coefficient: f64) {
        self.coefficient = coefficient;
    }

    /// Returns the offsets whose diagonals are stored.
    fn kept(&self) -> &[i32] {
        if self.symmetric { &self.offsets[self.offsets.len() / 2..] } else { &self.offsets }
    }

    /// Allocates the stored diagonals, and computes the runs of rows for them.
    fn widen(&mut self) -> Result<()> {
        let numbers = self.stride * self.kept().len();
        match &mut self.values {
            Values::F64(v) => *v = crate::threads::zeros(numbers, "a matrix")?,
            Values::F32(v) => *v = crate::threads::zeros(numbers, "a matrix")?,
        }
        let (n, stride, count) = (self.rows as isize, self.stride as isize, self.offsets.len());
        let term = |k: usize| {
            let offset = self.offsets[k] as isize;
            let base = match self.symmetric {
                true if offset < 0 => (count / 2 - k) as isize * stride + offset,
                true => (k - count / 2) as isize * stride,
                false => k as isize * stride,
            };
            Term { base, offset }
        };
        let mut cuts: Vec<isize> = self
            .offsets
            .iter()
            .map(|&o| if o < 0 { -(o as isize) } else { n - o as isize })
            .chain([0, n])
            .collect();
        cuts.retain(|c| (0..=n).contains(c));
        cuts.sort_unstable();
        cuts.dedup();
        let run = |pair: &[isize]| {
            let has = |t: &Term| pair[0] + t.offset >= 0 && pair[1] - 1 + t.offset < n;
            Run {
                rows: pair[0] as usize..pair[1] as usize,
                terms: (0..count).map(term).filter(has).collect(),
            }
        };
        self.runs = cuts.windows(2).map(run).collect();
        Ok(())
    }

    /// Sets new values in the order of the entries. If the old values were symmetric and the new ones are
    /// not, all diagonals are stored from then on.
    ///
    /// # Errors
    /// A different number of values; a value that is not finite, with its row and column. Then nothing has
    /// changed.
    pub(super) fn update_values(&mut self, t: usize, values: &[f64]) -> Result<()> {
        let pattern = self.pattern.get().expect("a pattern that was fetched");
        if values.len() != pattern.col.len() {
            return Err(Error::invalid(format!(
                "{} values for {} blocks of 1×1; {1} were expected",
                values.len(),
                pattern.col.len()
            )));
        }
        if let Some(e) = crate::matrix::first_not_finite(values) {
            return Err(Error::NotFinite {
                what: format!("new values of term {t}"),
                row: pattern.row_ptr.partition_point(|&q| q <= e) - 1,
                column: pattern.col[e] as usize,
                value: values[e],
            });
        }
        self.store(values)
    }

    /// Copies values to their diagonals.
    fn store(&mut self, natural: &[f64]) -> Result<()> {
        loop {
            let pattern = self.pattern.get().expect("a pattern that was fetched");
            let (offsets, stride) = (&self.offsets, self.stride);
            let (row_ptr, col) = (&pattern.row_ptr[..], &pattern.col[..]);
            let stored = match &mut self.values {
                Values::F64(to) => pack(to, offsets, self.symmetric, stride, row_ptr, col, natural, |v| v),
                Values::F32(to) => {
                    pack(to, offsets, self.symmetric, stride, row_ptr, col, natural, |v| v as f32)
                }
            };
            if stored {
                return Ok(());
            }
            self.symmetric = false;
            self.widen()?;
        }
    }

    /// Computes y = c A x.
    pub(super) fn multiply(&self, space: &Cpu, x: &[f64], y: &mut [f64]) {
        let (n, y) = (self.rows, Disjoint::new(y));
        let chunks = n.div_ceil(CHUNK);
        let pieces = space.pool().pieces(self.bytes() as usize).min(chunks.max(1));
        space.pool().run(pieces, |piece| {
            let chunks = share(chunks, piece, pieces);
            let rows = chunks.start * CHUNK..(chunks.end * CHUNK).min(n);
            // SAFETY: pieces do not overlap.
            let y = unsafe { y.range(rows.clone()) };
            pulp_rows(self, rows, x, y);
        });
    }

    /// Calls `work` for strips of rows with about `bytes` of values, on all threads.
    pub(super) fn in_strips(&self, space: &Cpu, bytes: usize, work: impl Fn(Range<usize>) + Sync) {
        let per_row = (self.bytes() as usize / self.rows.max(1)).max(1);
        let strip = (bytes / per_row).max(64);
        let strips = self.rows.div_ceil(strip);
        let pieces = space.pool().pieces(self.bytes() as usize).min(strips.max(1));
        space.pool().run(pieces, |piece| {
            share(strips, piece, pieces).for_each(|i| work(i * strip..((i + 1) * strip).min(self.rows)));
        });
    }

    /// Computes the rows of a strip of c A x.
    pub(super) fn multiply_strip(&self, rows: Range<usize>, x: &[f64], y: &mut [f64]) {
        pulp_rows(self, rows, x, y);
    }

    /// Computes y = c A x with this rank's part of the sums, in a space of vectors of this length.
    pub(super) fn multiply_with_dots(
        &self,
        space: &Cpu,
        x: &[f64],
        y: &mut [f64],
        dots: Dots,
        sums: &mut [f64],
    ) {
        let (y, both) = (Disjoint::new(y), dots.count() == 2);
        space.sum_strips(
            2 + self.kept().len(),
            dots.count(),
            sums,
            #[inline(always)]
            |range, out| {
                let mut at = range.start;
                while at < range.end {
                    let rows = at..(at + CHUNK).min(range.end);
                    // SAFETY: strips do not overlap.
                    let y = unsafe { y.range(rows.clone()) };
                    self.multiply_rows(rows.clone(), x, y);
                    let x = &x[rows.clone()];
                    if both {
                        out[0] += basis::dot(x, x);
                    }
                    out[both as usize] += basis::dot(x, y);
                    at = rows.end;
                }
            },
        );
    }

    /// Computes rows of c A x.
    #[inline(always)]
    fn multiply_rows(&self, rows: Range<usize>, x: &[f64], y: &mut [f64]) {
        match &self.values {
            Values::F64(v) => self.rows_of(v, rows, x, y),
            Values::F32(v) => self.rows_of(v, rows, x, y),
        }
    }

    #[inline(always)]
    fn rows_of<V: Number>(&self, values: &[V], rows: Range<usize>, x: &[f64], y: &mut [f64]) {
        assert!(x.len() == self.rows && values.len() >= self.stride * self.kept().len());
        for run in &self.runs {
            let (mut at, end) = (run.rows.start.max(rows.start), run.rows.end.min(rows.end));
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

    /// Computes r = b − c A x and m = |b| + |c A| |x| in twice the working precision; the rounding error of r
    /// goes to `low`.
    pub(super) fn residual(
        &self,
        space: &Cpu,
        b: &[f64],
        x: &[f64],
        r: &mut [f64],
        m: &mut [f64],
        low: Option<&mut [f64]>,
    ) {
        let (r, m, low) = (Disjoint::new(r), Disjoint::new(m), low.map(Disjoint::new));
        let chunks = self.rows.div_ceil(CHUNK);
        let pieces = space.pool().pieces(self.bytes() as usize).min(chunks.max(1));
        space.pool().run(pieces, |piece| {
            let chunks = share(chunks, piece, pieces);
            let rows = chunks.start * CHUNK..(chunks.end * CHUNK).min(self.rows);
            // SAFETY: pieces do not overlap.
            let (r, m) = unsafe { (r.range(rows.clone()), m.range(rows.clone())) };
            // SAFETY: as above.
            let low = low.as_ref().map(|low| unsafe { low.range(rows.clone()) });
            let to = Cell::new(Some((r, m, low)));
            pulp::Arch::new().dispatch(Wide(
                #[inline(always)]
                || {
                    let Some((r, m, low)) = to.take() else { return };
                    self.residual_rows(rows.clone(), b, x, r, m, low);
                },
            ));
        });
    }

    /// Computes [`residual`](Self::residual) for a range of rows, whose first row is the first of r, m and
    /// `low`. Takes [`LANES`] rows at once where a run has enough.
    #[inline(always)]
    fn residual_rows(
        &self,
        rows: Range<usize>,
        b: &[f64],
        x: &[f64],
        r: &mut [f64],
        m: &mut [f64],
        mut low: Option<&mut [f64]>,
    ) {
        for run in &self.runs {
            let (mut i, end) = (run.rows.start.max(rows.start), run.rows.end.min(rows.end));
            while i < end {
                let at = i - rows.start;
                let low = low.as_mut().map(|low| &mut low[at..]);
                i += match i + LANES <= end {
                    true => self.residual_of::<LANES>(run, i, b, x, &mut r[at..], &mut m[at..], low),
                    false => self.residual_of::<1>(run, i, b, x, &mut r[at..], &mut m[at..], low),
                };
            }
        }
    }

    /// Computes [`residual`](Self::residual) for `L` rows of a run from `i` on, where r, m and `low` start
    /// with row i. Returns L.
    #[inline(always)]
    #[allow(clippy::too_many_arguments)]
    fn residual_of<const L: usize>(
        &self,
        run: &Run,
        i: usize,
        b: &[f64],
        x: &[f64],
        r: &mut [f64],
        m: &mut [f64],
        mut low: Option<&mut [f64]>,
    ) -> usize {
        // Plain loops, because a closure would be compiled without the caller's instruction set.
        let (mut sums, mut sizes, mut v) = ([Twofold::default(); L], [0.0; L], [0.0; L]);
        for t in &run.terms {
            let (first, x) = ((i as isize + t.base) as usize, &x[(i as isize + t.offset) as usize..][..L]);
            match &self.values {
                Values::F64(all) => v.copy_from_slice(&all[first..][..L]),
                Values::F32(all) => {
                    let all = &all[first..][..L];
                    for l in 0..L {
                        v[l] = f64::from(all[l]);
                    }
                }
            }
            for l in 0..L {
                sums[l].add_product(v[l], x[l]);
                sizes[l] += (v[l] * x[l]).abs();
            }
        }
        let (c, b) = (self.coefficient, &b[i..][..L]);
        for l in 0..L {
            let mut all = Twofold::from(b[l]);
            all.add_multiple(-c, sums[l]);
            (r[l], m[l]) = (all.value(), b[l].abs() + c.abs() * sizes[l]);
            if let Some(low) = &mut low {
                low[l] = all.rest();
            }
        }
        L
    }

    /// Least number of bytes that one product moves.
    pub(super) fn bytes(&self) -> u64 {
        let value = match &self.values {
            Values::F64(_) => 8,
            Values::F32(_) => 4,
        };
        (self.rows * (value * self.kept().len() + 16)) as u64
    }
}

/// Computes rows with the widest SIMD instructions available.
fn pulp_rows(a: &Diagonals, rows: Range<usize>, x: &[f64], y: &mut [f64]) {
    let (len, y) = (y.len(), Disjoint::new(y));
    pulp::Arch::new().dispatch(Wide(
        #[inline(always)]
        // SAFETY: the closure runs once, and y is not used beside it.
        || a.multiply_rows(rows.clone(), x, unsafe { y.range(0..len) }),
    ));
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
    x: &[f64],
    y: &mut [f64],
    first: bool,
    c: f64,
) {
    let row = row as isize;
    let v: [*const V; T] = std::array::from_fn(|t| values.as_ptr().wrapping_offset(terms[t].base + row));
    let x: [*const f64; T] = std::array::from_fn(|t| x.as_ptr().wrapping_offset(terms[t].offset + row));
    let (blocks, rest) = y.as_chunks_mut::<WIDTH>();
    let done = blocks.len() * WIDTH;
    for (block, y) in blocks.iter_mut().enumerate() {
        let mut sums = if first { [0.0; WIDTH] } else { *y };
        for t in 0..T {
            // SAFETY: the caller's promise.
            let (v, x) = unsafe {
                (
                    v[t].add(block * WIDTH).cast::<[V; WIDTH]>().read_unaligned(),
                    x[t].add(block * WIDTH).cast::<[f64; WIDTH]>().read_unaligned(),
                )
            };
            for l in 0..WIDTH {
                sums[l] = v[l].widen().mul_add(x[l], sums[l]);
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
            sum = v.widen().mul_add(x, sum);
        }
        *y = c * sum;
    }
}

/// Copies values from the order of the entries to the stored diagonals, with 0 where there is no entry, on
/// all threads. Returns false where half of the diagonals are stored and are not the mirror image of the
/// others.
fn pack<V: Number + Send + Sync + PartialEq + Default>(
    to: &mut [V],
    offsets: &[i32],
    symmetric: bool,
    stride: usize,
    row_ptr: &[usize],
    col: &[u32],
    natural: &[f64],
    narrow: impl Fn(f64) -> V + Sync,
) -> bool {
    const ROWS: usize = 1 << 13;
    let rows = row_ptr.len() - 1;
    let skipped = if symmetric { offsets.len() / 2 } else { 0 };
    // A single piece does not wake other threads.
    let pieces = rows.div_ceil(ROWS);
    {
        let to = Disjoint::new(to);
        let fill = |p: usize| {
            let range = p * ROWS..((p + 1) * ROWS).min(rows);
            for i in range {
                walk(offsets, row_ptr[i]..row_ptr[i + 1], i, col, natural, &narrow, |k, value| {
                    if k >= skipped {
                        let at = (k - skipped) * stride + i;
                        // SAFETY: every place belongs to one row, and every row to one task.
                        let place = unsafe { to.range(at..at + 1) };
                        place[0] = value;
                    }
                });
            }
        };
        match pieces {
            0 | 1 => (0..pieces).for_each(fill),
            _ => (0..pieces).into_par_iter().for_each(fill),
        }
    }
    if !symmetric {
        return true;
    }
    let to = &*to;
    let mirrored = |p: usize| {
        let mut same = true;
        for i in p * ROWS..((p + 1) * ROWS).min(rows) {
            walk(offsets, row_ptr[i]..row_ptr[i + 1], i, col, natural, &narrow, |k, value| {
                let below = -(offsets[k] as i64);
                if below > 0 && i as i64 >= below {
                    same &= value == to[(skipped - k) * stride + i - below as usize];
                }
            });
        }
        same
    };
    match pieces {
        0 | 1 => (0..pieces).all(mirrored),
        _ => (0..pieces).into_par_iter().all(mirrored),
    }
}

/// Calls `place(k, value)` for every diagonal k of row i, in order.
#[inline(always)]
fn walk<V: Default>(
    offsets: &[i32],
    mut entries: Range<usize>,
    i: usize,
    col: &[u32],
    natural: &[f64],
    narrow: &impl Fn(f64) -> V,
    mut place: impl FnMut(usize, V),
) {
    for (k, &offset) in offsets.iter().enumerate() {
        let p = entries.start;
        if p < entries.end && col[p] as i64 - i as i64 == offset as i64 {
            place(k, narrow(natural[p]));
            entries.start += 1;
        } else {
            place(k, V::default());
        }
    }
}

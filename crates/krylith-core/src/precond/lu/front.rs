//! Partial factors of dense fronts without exchanges across fronts: L Lᵀ, the steps that all kinds share, and
//! L U with threshold pivots.
//!
//! A front is a square matrix, column by column; its first `pivots` rows and columns may be eliminated. A
//! pivot is taken from these rows, and is at least [`THRESHOLD`] times the largest entry of its column. What
//! has no such pivot is left to the parent front.
//!
//! Work: panels of [`PANEL`] columns are brought up to date column by column, which reads the panel from the
//! cache of the core. The other columns are updated by matrix products, in chunks of [`CHUNK`] columns, which
//! are the same on any number of threads.

use faer::linalg::matmul::triangular::{self, BlockStructure};
use faer::linalg::{matmul::matmul, triangular_solve};
use faer::{Accum, MatMut, MatRef, Par};
use rayon::prelude::*;

/// Smallest pivot, as a share of the largest entry of its column.
pub(super) const THRESHOLD: f64 = 0.01;
/// Columns of a panel.
pub(super) const PANEL: usize = 32;
/// Columns of a panel of L Lᵀ, which needs no search for pivots.
const PANEL_CHOLESKY: usize = 128;
/// Columns of a chunk of an update.
const CHUNK: usize = 192;
/// Operations of an update above which its chunks are tasks.
const LARGE: usize = 1 << 24;

/// A body that is compiled for the widest SIMD instructions available. It and everything that it calls must
/// be `#[inline(always)]`.
pub(super) struct Wide<F>(pub F);

impl<F: FnOnce() -> R, R> pulp::NullaryFnOnce for Wide<F> {
    type Output = R;
    #[inline(always)]
    fn call(self) -> R {
        (self.0)()
    }
}

/// Returns the part of a matrix with leading dimension `ld` that begins at (`row`, `column`).
pub(super) fn part(a: &[f64], ld: usize, row: usize, column: usize, size: [usize; 2]) -> MatRef<'_, f64> {
    let begin = (column * ld + row).min(a.len());
    MatRef::from_column_major_slice_with_stride(&a[begin..], size[0], size[1], ld)
}

pub(super) fn part_mut(
    a: &mut [f64],
    ld: usize,
    row: usize,
    column: usize,
    size: [usize; 2],
) -> MatMut<'_, f64> {
    let begin = (column * ld + row).min(a.len());
    MatMut::from_column_major_slice_with_stride_mut(&mut a[begin..], size[0], size[1], ld)
}

/// Calls `work` with the first column of each chunk of columns and the chunk.
pub(super) fn by_chunks(
    a: &mut [f64],
    ld: usize,
    operations: usize,
    work: impl Fn(usize, &mut [f64]) + Sync + Send,
) {
    if operations >= LARGE && a.len() > CHUNK * ld {
        a.par_chunks_mut(CHUNK * ld).enumerate().for_each(|(k, chunk)| work(k * CHUNK, chunk));
    } else {
        a.chunks_mut(CHUNK * ld).enumerate().for_each(|(k, chunk)| work(k * CHUNK, chunk));
    }
}

/// Computes C ← C − L Wᵀ in the lower triangle of columns `column..to`, where L is `left` in its columns
/// `pivots`, and W has the rows of L and leading dimension `wide.1`, beginning at row `wide.2`.
pub(super) fn update_lower(
    left: &[f64],
    right: &mut [f64],
    ld: usize,
    column: usize,
    pivots: std::ops::Range<usize>,
    wide: (&[f64], usize, usize),
) {
    let (count, width) = (pivots.len(), right.len() / ld);
    if count == 0 || width == 0 {
        return;
    }
    let (w, wld, wrow) = wide;
    by_chunks(right, ld, (ld - column) * width * count, |first, chunk| {
        let (j, m) = (column + first, chunk.len() / ld);
        let (upper, lower) = ([m, count], [ld - j - m, count]);
        triangular::matmul(
            part_mut(chunk, ld, j, 0, [m, m]),
            BlockStructure::TriangularLower,
            Accum::Add,
            part(left, ld, j, pivots.start, upper),
            BlockStructure::Rectangular,
            part(w, wld, j - wrow, 0, upper).transpose(),
            BlockStructure::Rectangular,
            -1.0,
            Par::Seq,
        );
        if lower[0] > 0 {
            matmul(
                part_mut(chunk, ld, j + m, 0, [lower[0], m]),
                Accum::Add,
                part(left, ld, j + m, pivots.start, lower),
                part(w, wld, j - wrow, 0, upper).transpose(),
                -1.0,
                Par::Seq,
            );
        }
    });
}

/// Computes L of the pivots of a symmetric positive definite front, in its lower triangle, and subtracts
/// their part from the rest. Returns false if a pivot is not positive.
pub(super) fn cholesky(a: &mut [f64], order: usize, pivots: usize, corner: &mut Vec<f64>) -> bool {
    let mut k = 0;
    while k < pivots {
        let width = PANEL_CHOLESKY.min(pivots - k);
        let next = k + width;
        let (left, right) = a.split_at_mut(next * order);
        let panel = &mut left[k * order..];
        if !lower_root(panel, order, k, width) {
            return false;
        }
        if order > next {
            // Rows below: L₂₁ = A₂₁ L₁₁⁻ᵀ, with a copy of L₁₁ because both are in the same columns.
            corner.clear();
            panel.chunks_exact(order).for_each(|from| corner.extend_from_slice(&from[k..next]));
            let below = part_mut(panel, order, next, 0, [order - next, width]);
            triangular_solve::solve_lower_triangular_in_place(
                part(corner, width, 0, 0, [width, width]),
                below.transpose_mut(),
                Par::Seq,
            );
        }
        let own = (pivots - next) * order;
        update_lower(left, &mut right[..own], order, next, k..next, (&left[k * order..], order, 0));
        k = next;
    }
    let (left, right) = a.split_at_mut(pivots * order);
    update_lower(left, right, order, pivots, 0..pivots, (left, order, 0));
    true
}

/// Computes L of the diagonal block at row `row` of a panel.
fn lower_root(panel: &mut [f64], ld: usize, row: usize, width: usize) -> bool {
    use faer::dyn_stack::{MemBuffer, MemStack};
    use faer::linalg::cholesky::llt::factor;
    if width <= 24 {
        return pulp::Arch::new().dispatch(Wide(
            #[inline(always)]
            || small_root(panel, ld, row, width),
        ));
    }
    let mut memory = MemBuffer::new(factor::cholesky_in_place_scratch::<f64>(
        width,
        Par::Seq,
        faer::Spec::new(faer::Auto::<f64>::auto()),
    ));
    let block = part_mut(panel, ld, row, 0, [width, width]);
    factor::cholesky_in_place(
        block,
        Default::default(),
        Par::Seq,
        MemStack::new(&mut memory),
        faer::Spec::new(faer::Auto::<f64>::auto()),
    )
    .is_ok()
}

/// [`lower_root`] of few columns, one after the other.
#[inline(always)]
fn small_root(panel: &mut [f64], ld: usize, row: usize, width: usize) -> bool {
    for k in 0..width {
        let (done, rest) = panel.split_at_mut(k * ld);
        let own = &mut rest[row + k..row + width];
        for m in 0..k {
            let l = &done[m * ld + row + k..m * ld + row + width];
            subtract(own, l[0], l);
        }
        if !(own[0] > 0.0) {
            return false;
        }
        let root = own[0].sqrt();
        own[0] = root;
        own[1..].iter_mut().for_each(|v| *v /= root);
    }
    true
}

/// Computes y ← y − s x.
#[inline(always)]
pub(super) fn subtract(y: &mut [f64], s: f64, x: &[f64]) {
    y.iter_mut().zip(x).for_each(|(y, x)| *y -= s * x);
}

/// Subtracts the products of a column with the pivots `from..to`: t ← t − Σ x_m l_m, where t and the columns
/// l of `a` begin at row `row`, and x_m is `of(t, m)`.
#[inline(always)]
pub(super) fn subtract_columns(
    t: &mut [f64],
    a: &[f64],
    ld: usize,
    row: usize,
    range: std::ops::Range<usize>,
    x: &[f64],
) {
    let mut m = range.start;
    let rows = row..row + t.len();
    while m + 4 <= range.end {
        let l = |k: usize| &a[(m + k) * ld + rows.start..(m + k) * ld + rows.end];
        let (l0, l1, l2, l3) = (l(0), l(1), l(2), l(3));
        let x = &x[m - range.start..m - range.start + 4];
        let len = t.len();
        for i in 0..len {
            t[i] -= (x[0] * l0[i] + x[1] * l1[i]) + (x[2] * l2[i] + x[3] * l3[i]);
        }
        m += 4;
    }
    while m < range.end {
        subtract(t, x[m - range.start], &a[m * ld + rows.start..m * ld + rows.end]);
        m += 1;
    }
}

/// What the elimination of a front needs beside the front.
#[derive(Default)]
pub(super) struct Scratch {
    pub column: Vec<f64>,
    pub other: Vec<f64>,
    pub wide: Vec<f64>,
}

/// What is known of the pivots of a front.
pub(super) struct Pivoting {
    /// Entries of at most this size count as zero.
    pub tiny: f64,
    /// True if what is not eliminated here never will be: columns without pivots get this one.
    pub last: Option<f64>,
}

/// Eliminates as many pivots of a front as may be; returns their number. `rows` and `columns` follow the
/// exchanges. Columns that got a pivot of [`Pivoting::last`] are added to `given`.
pub(super) fn lu(
    a: &mut [f64],
    order: usize,
    pivots: usize,
    [rows, columns]: [&mut [u32]; 2],
    rule: &Pivoting,
    scratch: &mut Scratch,
    given: &mut Vec<u32>,
) -> usize {
    let (mut k, mut end) = (0, pivots);
    let mut since = 0; // pivots when the last columns were put aside
    while k < pivots {
        let begin = k;
        pulp::Arch::new().dispatch(Wide(
            #[inline(always)]
            || panel(a, order, pivots, [&mut *rows, &mut *columns], rule, scratch, given, &mut k, &mut end),
        ));
        let (left, right) = a.split_at_mut(k * order);
        update(left, &mut right[..(pivots - k) * order], order, begin..k);
        if k >= end && end < pivots {
            if k == since && begin == k {
                break; // none of the columns has a pivot
            }
            (since, end) = (k, pivots);
        }
    }
    let (left, right) = a.split_at_mut(pivots * order);
    update(left, right, order, 0..k);
    k
}

/// Computes U = L₁₁⁻¹ C₁ and C₂ ← C₂ − L₂₁ U for columns to the right of the pivots.
fn update(left: &[f64], right: &mut [f64], ld: usize, pivots: std::ops::Range<usize>) {
    let (k, count, width) = (pivots.start, pivots.len(), right.len() / ld);
    if count == 0 || width == 0 {
        return;
    }
    let below = ld - pivots.end;
    by_chunks(right, ld, ld * width * count, |_, chunk| {
        let m = chunk.len() / ld;
        triangular_solve::solve_unit_lower_triangular_in_place(
            part(left, ld, k, k, [count, count]),
            part_mut(chunk, ld, k, 0, [count, m]),
            Par::Seq,
        );
        if below > 0 {
            let (upper, lower) = part_mut(chunk, ld, k, 0, [count + below, m]).split_at_row_mut(count);
            let l = part(left, ld, pivots.end, k, [below, count]);
            matmul(lower, Accum::Add, l, upper.as_ref(), -1.0, Par::Seq);
        }
    });
}

/// Eliminates one panel of columns, those before `end` that have pivots.
#[inline(always)]
fn panel(
    a: &mut [f64],
    ld: usize,
    pivots: usize,
    [rows, columns]: [&mut [u32]; 2],
    rule: &Pivoting,
    scratch: &mut Scratch,
    given: &mut Vec<u32>,
    next: &mut usize,
    end: &mut usize,
) {
    let begin = *next;
    let t = &mut scratch.column;
    t.resize(ld, 0.0);
    let mut k = begin;
    while k < begin + PANEL && k < *end {
        let (done, rest) = a.split_at_mut(k * ld);
        let t = &mut t[begin..ld];
        t.copy_from_slice(&rest[begin..ld]);
        bring_up(t, done, ld, begin, k);
        // The largest entry, the largest of a row that may be eliminated, and the one on the diagonal.
        let free = &t[k - begin..];
        let own = pivots - k;
        let largest = |part: &[f64]| part.iter().fold(0.0f64, |m, v| if v.abs() > m { v.abs() } else { m });
        let (inner, all) = (largest(&free[..own]), largest(free));
        let enough = THRESHOLD * all;
        let accepted = inner > rule.tiny && inner >= enough;
        if !accepted && rule.last.is_none() {
            // Put the column aside, as it is, for the time after other pivots.
            *end -= 1;
            if *end > k {
                let (one, other) = rest.split_at_mut((*end - k) * ld);
                one[..ld].swap_with_slice(&mut other[..ld]);
                columns.swap(k, *end);
            }
            continue;
        }
        let mut pivot = rows[k..pivots].iter().position(|r| *r == columns[k]).unwrap_or(0);
        if !(free[pivot].abs() >= enough.max(0.1 * inner)) {
            pivot = free[..own].iter().position(|v| v.abs() == inner).unwrap_or(0);
        }
        let at = k + pivot;
        if at != k {
            t.swap(k - begin, at - begin);
            rows.swap(k, at);
            a.chunks_exact_mut(ld).enumerate().filter(|(j, _)| *j != k).for_each(|(_, c)| c.swap(k, at));
        }
        if !accepted {
            let value = rule.last.unwrap_or(1.0);
            given.push(rows[k]);
            t[k - begin] = if t[k - begin] < 0.0 { -value } else { value };
        }
        let inverse = 1.0 / t[k - begin];
        t[k + 1 - begin..].iter_mut().for_each(|v| *v *= inverse);
        a[k * ld + begin..(k + 1) * ld].copy_from_slice(t);
        k += 1;
    }
    *next = k;
}

/// Subtracts from a column, which begins at row `begin`, the products with the pivots `begin..k`.
#[inline(always)]
fn bring_up(t: &mut [f64], done: &[f64], ld: usize, begin: usize, k: usize) {
    let mut m = begin;
    while m < k {
        let to = (m + 4).min(k);
        // The rows of these pivots one by one, then all rows below at once.
        for j in m..to {
            let x = t[j - begin];
            for i in j + 1..to {
                t[i - begin] -= x * done[j * ld + i];
            }
        }
        let (x, below) = t[m - begin..].split_at_mut(to - m);
        subtract_columns(below, done, ld, to, m..to, x);
        m = to;
    }
}

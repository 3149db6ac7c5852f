//! Partial factors L B Lᵀ of dense symmetric fronts, with pivots of order 1 and 2.
//!
//! A pivot of order 1 is at least [`THRESHOLD`] times the largest other entry of its column. A pivot of order
//! 2 has an inverse for which |B⁻¹| times the largest other entries of its columns is at most 1 / threshold
//! (Duff and Reid 1983). What has no such pivot is left to the parent front. Only the lower triangle is used.

use super::front::{PANEL, Pivoting, Scratch, THRESHOLD, Wide, subtract_columns, update_lower};

/// A pivot that was found for the next column or columns.
enum Found {
    One,
    /// Order 1, with the row of the largest entry.
    Other(usize),
    /// Order 2, with the row of the largest entry.
    Two(usize),
    None,
}

/// Eliminates as many pivots of a front as may be; returns their number. `rows` follows the exchanges, and
/// `off` gets the entry below the diagonal of B for each pivot. Columns that got a pivot of
/// [`Pivoting::last`] are added to `given`.
pub(super) fn factors(
    a: &mut [f64],
    order: usize,
    pivots: usize,
    rows: &mut [u32],
    rule: &Pivoting,
    scratch: &mut Scratch,
    given: &mut Vec<u32>,
    off: &mut Vec<f64>,
) -> usize {
    off.clear();
    off.resize(pivots, 0.0);
    let (mut k, mut end) = (0, pivots);
    let mut since = 0;
    while k < pivots {
        let begin = k;
        scratch.wide.resize(order * (PANEL + 1), 0.0);
        pulp::Arch::new().dispatch(Wide(
            #[inline(always)]
            || panel(a, order, pivots, rows, rule, scratch, given, off, &mut k, &mut end),
        ));
        let (left, right) = a.split_at_mut(k * order);
        let own = (pivots - k) * order;
        update_lower(left, &mut right[..own], order, k, begin..k, (&scratch.wide, order, 0));
        if k >= end && end < pivots {
            if k == since && begin == k {
                break;
            }
            (since, end) = (k, pivots);
        }
    }
    // The rows below, by pivots of a few panels: C ← C − L (L B)ᵀ.
    let (left, right) = a.split_at_mut(pivots * order);
    let height = order - pivots;
    let mut first = 0;
    while first < k && height > 0 {
        let mut to = (first + 8 * PANEL).min(k);
        to -= usize::from(to < k && off[to - 1] != 0.0);
        scratch.wide.resize((height * (to - first)).max(scratch.wide.len()), 0.0);
        times_b(left, order, pivots, first..to, off, &mut scratch.wide);
        update_lower(left, right, order, pivots, first..to, (&scratch.wide, height, pivots));
        first = to;
    }
    k
}

/// Computes L B for rows from `row` on.
fn times_b(a: &[f64], ld: usize, row: usize, pivots: std::ops::Range<usize>, off: &[f64], out: &mut [f64]) {
    let height = ld - row;
    let l = |k: usize| &a[k * ld + row..(k + 1) * ld];
    let mut k = pivots.start;
    while k < pivots.end {
        let out = &mut out[(k - pivots.start) * height..];
        if off[k] == 0.0 {
            let d = a[k * ld + k];
            out.iter_mut().zip(l(k)).for_each(|(o, l)| *o = d * l);
            k += 1;
            continue;
        }
        let (d, e, o) = (a[k * ld + k], a[(k + 1) * ld + k + 1], off[k]);
        let (one, two) = out.split_at_mut(height);
        for (((one, two), l), m) in one.iter_mut().zip(two).zip(l(k)).zip(l(k + 1)) {
            (*one, *two) = (d * l + o * m, o * l + e * m);
        }
        k += 2;
    }
}

/// Brings the column at position `j ≥ k` up to date, from position `k` on: t.
#[inline(always)]
fn bring_up(t: &mut [f64], a: &[f64], wide: &[f64], ld: usize, begin: usize, k: usize, j: usize) {
    for i in k..j {
        t[i - k] = a[i * ld + j];
    }
    t[j - k..].copy_from_slice(&a[j * ld + j..(j + 1) * ld]);
    let mut x = [0.0; PANEL + 1];
    for m in begin..k {
        x[m - begin] = wide[(m - begin) * ld + j];
    }
    subtract_columns(t, a, ld, k, begin..k, &x);
}

/// Returns the largest entry of a column but for two, and its largest entry among the first `own`.
#[inline(always)]
fn largest(t: &[f64], skip: [usize; 2], own: usize) -> (f64, f64, usize) {
    let (mut all, mut inner, mut at) = (0.0f64, 0.0f64, skip[0]);
    for (i, v) in t[..own].iter().enumerate() {
        if v.abs() > inner && i != skip[0] && i != skip[1] {
            (inner, at) = (v.abs(), i);
        }
    }
    t[own..].iter().for_each(|v| all = if v.abs() > all { v.abs() } else { all });
    (all.max(inner), inner, at)
}

/// Eliminates one panel of columns, those before `end` that have pivots.
#[inline(always)]
fn panel(
    a: &mut [f64],
    ld: usize,
    pivots: usize,
    rows: &mut [u32],
    rule: &Pivoting,
    scratch: &mut Scratch,
    given: &mut Vec<u32>,
    off: &mut [f64],
    next: &mut usize,
    end: &mut usize,
) {
    let begin = *next;
    let Scratch { column, other, wide } = scratch;
    column.resize(ld, 0.0);
    other.resize(ld, 0.0);
    let mut k = begin;
    while k < begin + PANEL && k < *end {
        let (t, s) = (&mut column[k..ld], &mut other[k..ld]);
        bring_up(t, a, wide, ld, begin, k, k);
        let own = pivots - k;
        let (all, inner, r) = largest(t, [0, 0], own);
        let mut found = Found::None;
        if t[0].abs() > rule.tiny && t[0].abs() >= THRESHOLD * all {
            found = Found::One;
        } else if inner > rule.tiny {
            bring_up(s, a, wide, ld, begin, k, k + r);
            let (beside, _, _) = largest(s, [r, 0], own);
            let all_s = beside.max(s[0].abs());
            if s[r].abs() > rule.tiny && s[r].abs() >= THRESHOLD * all_s {
                found = Found::Other(r);
            } else {
                let (rest_t, _, _) = largest(t, [0, r], own);
                let (rest_s, _, _) = largest(s, [0, r], own);
                let (d, o, e) = (t[0], t[r], s[r]);
                let det = (d * e - o * o).abs();
                let bound = det / THRESHOLD;
                let small = e.abs() * rest_t + o.abs() * rest_s <= bound
                    && o.abs() * rest_t + d.abs() * rest_s <= bound;
                if small && det > rule.tiny * o.abs() {
                    found = Found::Two(r);
                }
            }
        }
        if let (Found::None, Some(value)) = (&found, rule.last)
            && t[0].abs().max(all) <= rule.tiny
        {
            given.push(rows[k]);
            t[0] = if t[0] < 0.0 { -value } else { value };
            found = Found::One;
        }
        match found {
            Found::None => {
                *end -= 1;
                if *end > k {
                    exchange(a, wide, ld, begin, k, k, *end);
                    rows.swap(k, *end);
                }
            }
            Found::One => {
                take_one(a, wide, ld, begin, k, t);
                k += 1;
            }
            Found::Other(r) => {
                s.swap(0, r);
                exchange(a, wide, ld, begin, k, k, k + r);
                rows.swap(k, k + r);
                take_one(a, wide, ld, begin, k, s);
                k += 1;
            }
            Found::Two(r) => {
                t.swap(1, r);
                s.swap(1, r);
                if r != 1 {
                    exchange(a, wide, ld, begin, k, k + 1, k + r);
                    rows.swap(k + 1, k + r);
                }
                let (d, o, e) = (t[0], t[1], s[1]);
                let det = d * e - o * o;
                off[k] = o;
                let (w, v) = wide[(k - begin) * ld..(k - begin + 2) * ld].split_at_mut(ld);
                w[k..].copy_from_slice(t);
                v[k..].copy_from_slice(s);
                let (one, two) = a[k * ld..(k + 2) * ld].split_at_mut(ld);
                let (f, g, h) = (e / det, -o / det, d / det);
                for i in 2..ld - k {
                    one[k + i] = f * t[i] + g * s[i];
                    two[k + i] = g * t[i] + h * s[i];
                }
                (one[k], one[k + 1], two[k + 1]) = (d, 0.0, e);
                k += 2;
            }
        }
    }
    *next = k;
}

/// Stores a pivot of order 1 with its column of L, and the column times the pivot.
#[inline(always)]
fn take_one(a: &mut [f64], wide: &mut [f64], ld: usize, begin: usize, k: usize, t: &[f64]) {
    wide[(k - begin) * ld + k..(k - begin + 1) * ld].copy_from_slice(t);
    let inverse = 1.0 / t[0];
    let own = &mut a[k * ld + k..(k + 1) * ld];
    own[0] = t[0];
    own[1..].iter_mut().zip(&t[1..]).for_each(|(l, t)| *l = t * inverse);
}

/// Exchanges two positions `i < j` of the lower triangle, and the rows of the panel's products.
#[inline(always)]
fn exchange(a: &mut [f64], wide: &mut [f64], ld: usize, begin: usize, k: usize, i: usize, j: usize) {
    if i == j {
        return;
    }
    (0..i).for_each(|m| a.swap(m * ld + i, m * ld + j));
    a.swap(i * ld + i, j * ld + j);
    (i + 1..j).for_each(|m| a.swap(i * ld + m, m * ld + j));
    let (left, right) = a.split_at_mut(j * ld);
    left[i * ld + j + 1..(i + 1) * ld].swap_with_slice(&mut right[j + 1..ld]);
    (0..k - begin).for_each(|m| wide.swap(m * ld + i, m * ld + j));
}

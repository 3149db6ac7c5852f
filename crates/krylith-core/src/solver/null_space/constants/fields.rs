//! Constants of fields of a matrix with scalar rows: of named fields, of a range of unknowns such as one of
//! several fields that follow one another, and of every k-th unknown.
//!
//! Ranges at either end may have any length. For all of them together the search takes the time of a few
//! products, because a sum over the columns from j on serves every range that begins behind the last column
//! before j.

use super::{MOST, ROWS, is_zero};
use crate::fields::Field;
use crate::matrix::{Arrays, MAX_BLOCK};
use crate::text::count;
use rayon::prelude::*;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering::Relaxed};

/// The class of unknowns that belong to none.
const NONE: u8 = u8::MAX;

/// Null vectors that are 1 in one class of unknowns each, and a description.
type Found = (Vec<Vec<f64>>, String);

/// Returns the constants of fields that A maps to zero; `None` if there are none. `least` is the smallest
/// number of them that is worth an answer.
pub(super) fn find(a: Arrays, fields: &[Field], least: usize) -> Option<(Vec<Vec<f64>>, String)> {
    let n = a.row_ptr.len() - 1;
    let sizes = || (2..=MAX_BLOCK).filter(|k| n.is_multiple_of(*k));
    of_names(a, fields)
        .or_else(|| of_ranges(a, &ends(a)?))
        .or_else(|| sizes().skip_while(|k| *k == 2).find_map(|k| of_ranges(a, &equal_parts(n, k))))
        .or_else(|| sizes().find_map(|k| of_steps(a, k)))
        .filter(|(vectors, _)| vectors.len() >= least)
}

fn of_names(a: Arrays, fields: &[Field]) -> Option<Found> {
    if fields.len() < 2 || fields.len() > MOST {
        return None;
    }
    let mut class = vec![NONE; a.row_ptr.len() - 1];
    for (k, field) in fields.iter().enumerate() {
        field.unknowns().iter().for_each(|&i| class[i as usize] = k as u8);
    }
    let alive = nulls(a, fields.len(), |j| class[j]);
    let names: Vec<&str> = alive.iter().map(|&k| fields[k].name()).collect();
    let words = match &names[..] {
        [one] => format!("constants of field {one}"),
        some => format!("constants of fields {}", some.join(", ")),
    };
    vectors(class.len(), &alive, |j| class[j], words)
}

/// Returns the constants of the ranges between these cuts, which start with 0 and end with n.
fn of_ranges(a: Arrays, cuts: &[usize]) -> Option<Found> {
    let (n, classes) = (a.row_ptr.len() - 1, cuts.len() - 1);
    let range_of = |j: usize| cuts.partition_point(|cut| *cut <= j) - 1;
    let class = |j: usize| range_of(j) as u8;
    let alive = nulls(a, classes, class);
    let words = words_of_ranges(&alive, cuts);
    // The components of one field may be interleaved, and constant one by one.
    for k in (2..=MAX_BLOCK).rev() {
        let splits = |r: &usize| (cuts[r + 1] - cuts[*r]).is_multiple_of(k);
        if alive.is_empty() || !alive.iter().all(splits) {
            continue;
        }
        let number: Vec<Option<usize>> =
            (0..classes).map(|r| alive.iter().position(|alive| *alive == r)).collect();
        let class = |j: usize| {
            let r = range_of(j);
            number[r].map_or(NONE, |at| (at * k + (j - cuts[r]) % k) as u8)
        };
        let finer = nulls(a, alive.len() * k, class);
        if finer.len() > alive.len() {
            let words =
                format!("{words}, in each of {} of {k} interleaved components", finer.len() / alive.len());
            return vectors(n, &finer, class, words);
        }
    }
    vectors(n, &alive, class, words)
}

/// Describes the ranges between cuts whose constants are null vectors.
fn words_of_ranges(alive: &[usize], cuts: &[usize]) -> String {
    let (n, classes) = (cuts[cuts.len() - 1], cuts.len() - 1);
    match alive[..] {
        [0] => format!("constants of the first {} of {} unknowns", count(cuts[1]), count(n)),
        [k] if k + 1 == classes => {
            format!("constants of the last {} of {} unknowns", count(n - cuts[k]), count(n))
        }
        _ => {
            let range = |k: &usize| format!("{} to {}", count(cuts[*k]), count(cuts[k + 1] - 1));
            let ranges: Vec<String> = alive.iter().map(range).collect();
            format!("constants of each of the unknowns {} (counted from 0)", ranges.join(", "))
        }
    }
}

/// Returns the constants of every `k`-th unknown.
fn of_steps(a: Arrays, k: usize) -> Option<Found> {
    let class = |j: usize| (j % k) as u8;
    let alive = nulls(a, k, class);
    let list: Vec<String> = alive.iter().map(usize::to_string).collect();
    let words = format!("constants of component {} of {k} in interleaved order", list.join(", "));
    vectors(a.row_ptr.len() - 1, &alive, class, words)
}

fn equal_parts(n: usize, k: usize) -> Vec<usize> {
    (0..=k).map(|part| part * (n / k)).collect()
}

fn vectors(n: usize, alive: &[usize], class: impl Fn(usize) -> u8, words: String) -> Option<Found> {
    let vector = |k: &usize| (0..n).map(|j| f64::from(u8::from(usize::from(class(j)) == *k))).collect();
    (!alive.is_empty()).then(|| (alive.iter().map(vector).collect(), words))
}

/// Returns the classes whose constants A maps to zero. Most passes end after a few rows.
fn nulls(a: Arrays, classes: usize, class: impl Fn(usize) -> u8 + Sync) -> Vec<usize> {
    let flags = || (0..classes).map(|_| AtomicBool::new(false)).collect::<Vec<_>>();
    let (dead, met) = (flags(), flags());
    let n = a.row_ptr.len() - 1;
    (0..n.div_ceil(ROWS)).into_par_iter().for_each(|chunk| {
        let mut sums = vec![[0.0f64; 2]; classes];
        for i in chunk * ROWS..n.min((chunk + 1) * ROWS) {
            if dead.iter().all(|dead| dead.load(Relaxed)) {
                return;
            }
            sums.fill([0.0; 2]);
            let mut whole = 0.0;
            for p in a.row(i) {
                let v = a.values[p];
                whole += v.abs();
                if let Some([sum, size]) = sums.get_mut(usize::from(class(a.col[p] as usize))) {
                    (*sum, *size) = (*sum + v, *size + v.abs());
                }
            }
            for (k, [sum, size]) in sums.iter().enumerate().filter(|(_, sums)| sums[1] != 0.0) {
                met[k].store(true, Relaxed);
                if !is_zero(*sum, *size, whole) {
                    dead[k].store(true, Relaxed);
                }
            }
        }
    });
    (0..classes).filter(|&k| met[k].load(Relaxed) && !dead[k].load(Relaxed)).collect()
}

/// Returns 0, the ends of ranges at the start whose row sums are zero, the starts of such ranges at the end,
/// and n. `None` if there are no such ranges, or if there are too many.
fn ends(a: Arrays) -> Option<Vec<usize>> {
    let n = a.row_ptr.len() - 1;
    // Sums up to j count the rows that rule out a cut before column j.
    let counters = || (0..n + 2).map(|_| AtomicI32::new(0)).collect::<Vec<_>>();
    let (before, behind) = (counters(), counters());
    (0..n).into_par_iter().with_min_len(ROWS).for_each(|i| {
        let row = a.row(i);
        let whole: f64 = row.clone().map(|p| a.values[p].abs()).sum();
        let next = |p: usize| if p + 1 < row.end { a.col[p + 1] as usize + 1 } else { n + 1 };
        let last = |p: usize| if p > row.start { a.col[p - 1] as usize + 1 } else { 0 };
        let behind_each = row.clone().map(|p| (p, a.col[p] as usize + 1..next(p)));
        rule_out(&before, behind_each, a.values, whole);
        let before_each = row.clone().rev().map(|p| (p, last(p)..a.col[p] as usize + 1));
        rule_out(&behind, before_each, a.values, whole);
    });
    let mut cuts = vec![0];
    let mut ruled_out = [0; 2];
    for j in 0..n {
        ruled_out[0] += before[j].load(Relaxed);
        ruled_out[1] += behind[j].load(Relaxed);
        if j > 0 && ruled_out.contains(&0) {
            cuts.push(j);
        }
        if cuts.len() > MOST {
            return None;
        }
    }
    cuts.push(n);
    (cuts.len() > 2).then_some(cuts)
}

/// Counts the cuts at which the sum of the entries so far is not zero. Each entry comes with the cuts for
/// which it is the last one of the sum.
fn rule_out(
    counters: &[AtomicI32],
    entries: impl Iterator<Item = (usize, Range<usize>)>,
    values: &[f64],
    whole: f64,
) {
    let add = |run: &Range<usize>| {
        counters[run.start].fetch_add(1, Relaxed);
        counters[run.end].fetch_sub(1, Relaxed);
    };
    let (mut sum, mut size, mut run) = (0.0, 0.0, 0..0);
    for (p, cuts) in entries {
        (sum, size) = (sum + values[p], size + values[p].abs());
        if is_zero(sum, size, whole) {
            continue;
        }
        run = if run.end == cuts.start {
            run.start..cuts.end
        } else if run.start == cuts.end {
            cuts.start..run.end
        } else {
            add(&run);
            cuts
        };
    }
    add(&run);
}

//! Block ILU of one subdomain on the plan's pattern, row by row (IKJ; Saad 2003, Alg. 10.1), in f64.

use super::super::elimination::{self, Table, Upper, invert, multiply};
use crate::Result;
use crate::device::cpu::Wide;
use crate::interrupt::Lookout;
use crate::operator::HostTerms;
use crate::precond::{MAX_ORDER, PivotKind, Pivots, Plan};
use crate::threads::zeros;

/// One thread's scratch, for the largest of its subdomains.
pub(super) struct Scratch {
    /// Row-major blocks in the plan's order, starting with the subdomain's first entry.
    pub values: Vec<f64>,
    /// For each column, its entry in the last row so far that has an entry there. The present row has the
    /// column if that entry is at or after the row's first entry.
    entry: Vec<u32>,
    /// The largest entry of each scalar row.
    scale: Vec<f64>,
}

impl Scratch {
    /// Allocates scratch for any of these subdomains.
    pub fn new(plan: &Plan) -> Result<Self> {
        let (m, what, rows) = (plan.order, "the work space of incomplete factors", plan.largest);
        let entries = plan.ptr.windows(2).map(|w| plan.row_ptr[w[1]] - plan.row_ptr[w[0]]).max().unwrap_or(0);
        Ok(Self {
            values: zeros(entries * m * m, what)?,
            entry: zeros(rows, what)?,
            scale: zeros(rows * m, what)?,
        })
    }
}

/// Rows between two checks of limits.
const LOOK: usize = 256;

/// True at some rows, once the work has to end. The caller checks as well, and discards the result.
#[inline(always)]
fn ends(lookout: &Lookout, i: usize) -> bool {
    i % LOOK == 0 && lookout.ends()
}

/// Factorises subdomain `p` into `scratch.values`: L, D⁻¹ and U of (I + L) D (I + U).
pub(super) fn subdomain(
    plan: &Plan,
    terms: &HostTerms,
    p: usize,
    shift: Option<f64>,
    scratch: &mut Scratch,
    lookout: &Lookout,
) -> Pivots {
    let one = numbers(plan, terms);
    if one.is_none() {
        gather(plan, terms, p, scratch);
    }
    let cell = std::cell::RefCell::new((scratch, Pivots::default()));
    pulp::Arch::new().dispatch(Wide(
        #[inline(always)]
        || {
            let (scratch, pivots) = &mut *cell.borrow_mut();
            macro_rules! eliminate {
                ($m:expr) => {
                    eliminate($m, plan, terms, one, p, shift, scratch, lookout)
                };
            }
            *pivots = match plan.order {
                1 => eliminate!(1),
                2 => eliminate!(2),
                3 => eliminate!(3),
                4 => eliminate!(4),
                5 => eliminate!(5),
                6 => eliminate!(6),
                7 => eliminate!(7),
                8 => eliminate!(8),
                m => eliminate!(m),
            };
        },
    ));
    cell.into_inner().1
}

/// One matrix of scalars, which the elimination gathers itself: its coefficient, its values, and the value of
/// each entry.
type Numbers<'a> = (f64, &'a [f64], &'a [u32]);

/// Returns the matrix of scalars, where there is a single term.
fn numbers<'a>(plan: &'a Plan, terms: &'a HostTerms) -> Option<Numbers<'a>> {
    let mut all = terms.iter().flatten();
    match (all.next(), all.next()) {
        (Some((c, a)), None) if plan.order == 1 => Some((c[(0, 0)], &a[..], &plan.sources[0])),
        _ => None,
    }
}

/// Gathers the subdomain's part of Σ Cₜ ⊗ Aₜ, and the largest entry of each of its scalar rows.
fn gather(plan: &Plan, terms: &HostTerms, p: usize, scratch: &mut Scratch) {
    let m = plan.order;
    let rows = plan.ptr[p]..plan.ptr[p + 1];
    let entries = plan.row_ptr[rows.start]..plan.row_ptr[rows.end];
    let values = &mut scratch.values[..entries.len() * m * m];
    values.fill(0.0);
    for ((c, a), sources) in terms.iter().flatten().zip(&plan.sources) {
        let s = c.rows();
        let b = m / s;
        let alone = s == 1 && c[(0, 0)] == 1.0;
        for (to, &source) in values.chunks_exact_mut(m * m).zip(&sources[entries.clone()]) {
            if source == u32::MAX {
                continue;
            }
            let from = &a[source as usize * b * b..][..b * b];
            if alone {
                to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
                continue;
            }
            for r in 0..b {
                for k in 0..s {
                    for q in 0..b {
                        let at = (r * s + k) * m + q * s;
                        for l in 0..s {
                            to[at + l] += c[(k, l)] * from[r * b + q];
                        }
                    }
                }
            }
        }
    }
    for (i, scale) in rows.zip(scratch.scale.chunks_exact_mut(m)) {
        let row = plan.row_ptr[i] - entries.start..plan.row_ptr[i + 1] - entries.start;
        elimination::largest(m, &values[row.start * m * m..row.end * m * m], scale);
    }
}

/// Factorises a subdomain with blocks of order m; gathers the values of a single matrix of scalars on the
/// way.
#[inline(always)]
fn eliminate(
    m: usize,
    plan: &Plan,
    terms: &HostTerms,
    one: Option<Numbers>,
    p: usize,
    shift: Option<f64>,
    scratch: &mut Scratch,
    lookout: &Lookout,
) -> Pivots {
    let mm = m * m;
    let rows = plan.ptr[p]..plan.ptr[p + 1];
    let (first, last) = (plan.row_ptr[rows.start], plan.row_ptr[rows.end]);
    let Scratch { values, entry, scale } = scratch;
    let (values, entry) = (&mut values[..(last - first) * mm], &mut entry[..rows.len()]);
    let columns = &plan.columns[first..last];
    let (row_ptr, diagonals) = (&plan.row_ptr[rows.start..=rows.end], &plan.diagonal[rows.clone()]);
    let mut pivots = Pivots::default();
    let (mut work, mut inverse) = ([0.0; MAX_ORDER * MAX_ORDER], [0.0; MAX_ORDER * MAX_ORDER]);
    let (work, inverse) = (&mut work[..mm], &mut inverse[..mm]);
    entry.fill(0);
    for i in 0..rows.len() {
        if ends(lookout, i) {
            break;
        }
        let (begin, diagonal, end) = (row_ptr[i] - first, diagonals[i] - first, row_ptr[i + 1] - first);
        let (done, row) = values[..end * mm].split_at_mut(begin * mm);
        for (e, &j) in columns[begin..end].iter().enumerate() {
            entry[j as usize] = (begin + e) as u32;
        }
        if let Some((c, a, sources)) = one.filter(|_| m == 1) {
            let mut largest = 0.0f64;
            for (to, &source) in row.iter_mut().zip(&sources[first + begin..first + end]) {
                *to = if source == u32::MAX { 0.0 } else { c * a[source as usize] };
                largest = to.abs().max(largest);
            }
            scale[i] = largest;
        }
        elimination::row(m, &columns[begin..diagonal], row, work, Table { entry, begin }, |k| {
            let (pivot, behind) = (diagonals[k] - first, row_ptr[k + 1] - first);
            Upper {
                columns: &columns[pivot + 1..behind],
                blocks: &done[(pivot + 1) * mm..behind * mm],
                inverse: &done[pivot * mm..][..mm],
            }
        });
        let (number, scale) = (plan.rows[rows.start + i], &scale[i * m..][..m]);
        let at = diagonal - begin;
        let pivot = at * mm..(at + 1) * mm;
        work.copy_from_slice(&row[pivot.clone()]);
        match invert(m, work, scale, inverse) {
            Ok(()) => row[pivot].copy_from_slice(inverse),
            Err(kind) => {
                mend(m, plan, number, terms, shift, scale, row, at, kind, work, inverse, &mut pivots)
            }
        }
    }
    // U = D⁻¹ times the part right of the diagonal, which no later row reads in its old form.
    for (bounds, &diagonal) in row_ptr.windows(2).zip(diagonals) {
        let (d, u) = values[(diagonal - first) * mm..(bounds[1] - first) * mm].split_at_mut(mm);
        for u in u.chunks_exact_mut(mm) {
            work.copy_from_slice(u);
            multiply(m, d, work, u);
        }
    }
    pivots
}

/// Replaces a bad pivot of a row, block `at` of `row`, by its inverse: shifted if that was requested.
///
/// If the pivot has no inverse, with or without the shift, it is counted, and the inverse is set to 0. The
/// row then does not affect other rows, which are computed as if it did not exist.
#[cold]
#[inline(never)]
fn mend(
    m: usize,
    plan: &Plan,
    number: u32,
    terms: &HostTerms,
    shift: Option<f64>,
    scale: &[f64],
    row: &mut [f64],
    at: usize,
    kind: PivotKind,
    work: &mut [f64],
    inverse: &mut [f64],
    pivots: &mut Pivots,
) {
    // An overflow must not spread to other rows.
    row.iter_mut().filter(|v| !v.is_finite()).for_each(|v| *v = 0.0);
    let pivot = &mut row[at * m * m..(at + 1) * m * m];
    let mut kind = Err(kind);
    if let Some(shift) = shift {
        for r in 0..m {
            let largest = if scale[r] > 0.0 { scale[r] } else { largest_of_row(plan, terms, number, r) };
            pivot[r * m + r] += shift * largest;
        }
        work.copy_from_slice(pivot);
        kind = invert(m, work, scale, inverse);
    }
    match kind {
        Ok(()) => {
            pivot.copy_from_slice(inverse);
            pivots.shifted += 1;
        }
        Err(kind) => {
            pivot.fill(0.0);
            pivots.found(number, kind);
        }
    }
}

/// Returns the largest |C| |A| in scalar row `r` of block row `number`, over all its columns; 1 if there is
/// none.
fn largest_of_row(plan: &Plan, terms: &HostTerms, number: u32, r: usize) -> f64 {
    let i = number as usize;
    let mut largest = 0.0f64;
    for (t, (c, a)) in terms.iter().flatten().enumerate() {
        let s = c.rows();
        let b = plan.order / s;
        let weight = (0..s).map(|l| c[(r % s, l)].abs()).fold(0.0, f64::max);
        let row_ptr = &plan.pattern(t).row_ptr;
        for p in row_ptr[i]..row_ptr[i + 1] {
            let row = &a[p * b * b + r / s * b..][..b];
            largest = row.iter().fold(largest, |most, v| most.max(weight * v.abs()));
        }
    }
    if largest > 0.0 { largest } else { 1.0 }
}

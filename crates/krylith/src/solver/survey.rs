//! One pass over a rank's entries before its first solve, on all threads of the host: how large they are, and which rows,
//! columns and diagonal entries are zero.
//!
//! A Kronecker sum Σ Cₜ⊗Aₜ is looked at through its terms: entries of Aₜ weigh max|Cₜ|, and row i of stage k is empty where each
//! term has a zero row i of Aₜ or a zero row k of Cₜ. Only diagonal entries are added up.

use crate::Result;
use crate::comm::Communicator;
use crate::matrix::{Bsr, Dense};
use crate::operator::{ColumnMaxima, Terms, fold_rows};
use crate::partition::to_owners;
use std::ops::Range;

/// Indices that are named one by one.
pub(super) const NAMED: usize = 5;

/// The smallest and the largest of some magnitudes that are not zero.
///
/// # Examples
/// ```
/// use krylith::solver::Extent;
/// let extent = Extent { smallest: 0.5, largest: 8.0 };
/// assert_eq!(extent.ratio(), 16.0);
/// assert_eq!(Extent::default().ratio(), 1.0); // of nothing
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Extent {
    /// Infinite where there are none.
    pub smallest: f64,
    /// Zero where there are none.
    pub largest: f64,
}

impl Default for Extent {
    /// That of nothing.
    fn default() -> Self {
        Self { smallest: f64::INFINITY, largest: 0.0 }
    }
}

impl Extent {
    /// The largest over the smallest; 1 where there are none.
    pub fn ratio(&self) -> f64 {
        if self.largest > 0.0 { self.largest / self.smallest } else { 1.0 }
    }

    /// The extent of both.
    pub(super) fn and(self, other: Extent) -> Extent {
        let (smallest, largest) = (self.smallest.min(other.smallest), self.largest.max(other.largest));
        Extent { smallest, largest }
    }

    fn add(&mut self, magnitude: f64) {
        if magnitude > 0.0 {
            *self = self.and(Extent { smallest: magnitude, largest: magnitude });
        }
    }
}

/// What the pass finds, in numbers of this rank's own unknowns.
#[derive(Debug, Default, PartialEq)]
#[doc(hidden)]
pub struct Survey {
    /// Of all entries.
    pub entries: Extent,
    /// Of the largest entries of rows.
    pub rows: Extent,
    /// Of the largest entries of columns.
    pub columns: Extent,
    /// Unknowns without an entry in their row, as ascending runs.
    pub empty_rows: Vec<Range<usize>>,
    /// Unknowns without an entry in their column, as ascending runs.
    pub empty_columns: Vec<Range<usize>>,
    /// Unknowns whose diagonal entry is missing or zero.
    pub missing_diagonal: usize,
    /// The first of them.
    pub first_missing: Vec<usize>,
    /// Of one matrix of scalar rows: unknowns whose diagonal entry is missing, or below 10⁻³ of the largest of its row.
    pub weak_diagonal: usize,
    /// Blocks of the longest block row where that has more than 256; else 0.
    pub longest_row: usize,
}

/// A diagonal entry below this share of its row's largest is weak.
pub(crate) const WEAK: f64 = 1e-3;

/// True for a weak diagonal entry; empty rows have one.
fn is_weak(diagonal: f64, largest: f64) -> bool {
    diagonal == 0.0 || diagonal.abs() < WEAK * largest
}

/// One matrix of scalar rows.
fn is_scalar(terms: &Terms) -> bool {
    (terms.terms.len(), terms.block(), terms.stages()) == (1, 1, 1)
}

/// Blocks up to which no row is long.
const LONG: usize = 256;

/// Looks at this rank's rows, and at the columns that it owns in the rows of all. Collective.
///
/// # Errors
/// A rank that is gone or failed.
pub(super) fn survey(terms: &Terms, comm: &dyn Communicator) -> Result<Survey> {
    let (b, s, n) = (terms.block(), terms.stages(), terms.block_rows());
    let parts: Vec<Part> = terms.terms.iter().map(|(c, a)| Part::new(c, a)).collect();
    let none = || Found { largest: vec![0.0; parts.len() * b], ..Found::default() };
    let rows = fold_rows(n, none, |found, i| found.with_row(&parts, b, i), Found::and);

    let mut maxima = Vec::with_capacity(parts.len());
    for mut part in parts.iter().map(|part| part.columns.take()) {
        if let Some(halo) = &terms.halo {
            to_owners(comm, halo, b, &mut part, f64::max)?;
        }
        maxima.push(part);
    }
    let column = |mut found: Found, j: usize| {
        let both = || parts.iter().zip(&maxima).map(|(part, maxima)| (part, maxima[j]));
        found.extent.add(both().map(|(part, max)| part.weight * max).fold(0.0, f64::max));
        for k in 0..s {
            if !both().any(|(part, max)| part.has_column[k] && max > 0.0) {
                found.push_empty(j * s + k);
            }
        }
        found
    };
    let columns = fold_rows(n * b, Found::default, column, Found::and);
    Ok(Survey {
        entries: rows.entries,
        rows: rows.extent,
        columns: columns.extent,
        empty_rows: rows.empty,
        empty_columns: columns.empty,
        missing_diagonal: rows.missing,
        first_missing: rows.first_missing,
        weak_diagonal: if is_scalar(terms) { rows.weak } else { 0 },
        longest_row: rows.longest_row,
    })
}

#[cfg(feature = "cuda")]
impl Survey {
    /// From what a GPU has found. Where an unknown is missing, its number is found here.
    pub(super) fn of_magnitudes(terms: &Terms, found: &crate::device::cuda::Magnitudes) -> Result<Self> {
        let extent = |[smallest, largest]: [f64; 2]| Extent { smallest, largest };
        let mut survey = Self {
            entries: extent(found.entries),
            rows: extent(found.rows),
            columns: extent(found.columns),
            missing_diagonal: found.counts[2],
            weak_diagonal: if is_scalar(terms) { found.weak } else { 0 },
            longest_row: found.longest_row,
            ..Self::default()
        };
        if found.counts == [0; 3] {
            return Ok(survey);
        }
        let (s, maxima) = (terms.stages(), found.maxima()?);
        let of = || terms.terms.iter().map(|(c, _)| c).zip(&maxima);
        for unknown in 0..terms.rows() {
            let (e, k) = (unknown / s, unknown % s);
            let has = |c: &Dense, row: bool| (0..s).any(|l| c[if row { (k, l) } else { (l, k) }] != 0.0);
            if !of().any(|(c, term)| term.rows[e] > 0.0 && has(c, true)) {
                push(&mut survey.empty_rows, unknown..unknown + 1);
            }
            if !of().any(|(c, term)| term.columns[e] > 0.0 && has(c, false)) {
                push(&mut survey.empty_columns, unknown..unknown + 1);
            }
            if survey.first_missing.len() < NAMED
                && of().map(|(c, term)| c[(k, k)] * term.diagonal[e]).sum::<f64>() == 0.0
            {
                survey.first_missing.push(unknown);
            }
        }
        Ok(survey)
    }
}

/// One term, and what its coefficient does to it.
struct Part<'a> {
    c: &'a Dense,
    a: &'a Bsr,
    /// max|C|.
    weight: f64,
    /// Stages k with an entry in row k of C.
    has_row: Vec<bool>,
    /// Stages k with an entry in column k of C.
    has_column: Vec<bool>,
    /// Largest magnitudes of the columns of A.
    columns: ColumnMaxima,
}

impl<'a> Part<'a> {
    fn new(c: &'a Dense, a: &'a Bsr) -> Self {
        let s = c.rows();
        Self {
            weight: c.largest(),
            has_row: (0..s).map(|k| (0..s).any(|l| c[(k, l)] != 0.0)).collect(),
            has_column: (0..s).map(|k| (0..s).any(|l| c[(l, k)] != 0.0)).collect(),
            columns: ColumnMaxima::new(a.columns()),
            c,
            a,
        }
    }
}

/// What some rows, or some columns, tell.
#[derive(Default)]
struct Found {
    entries: Extent,
    /// Of largest entries.
    extent: Extent,
    empty: Vec<Range<usize>>,
    missing: usize,
    weak: usize,
    first_missing: Vec<usize>,
    longest_row: usize,
    /// Of the block row at hand: the largest entry of each scalar row, term by term.
    largest: Vec<f64>,
}

impl Found {
    /// The same and block row `i`, of blocks of order `b`.
    fn with_row(mut self, parts: &[Part], b: usize, i: usize) -> Self {
        let s = parts[0].c.rows();
        let mut maxima = std::mem::take(&mut self.largest);
        for (part, largest) in parts.iter().zip(maxima.chunks_exact_mut(b)) {
            largest.fill(0.0);
            let range = part.a.row_ptr()[i]..part.a.row_ptr()[i + 1];
            if range.len() > LONG {
                self.longest_row = self.longest_row.max(range.len());
            }
            let blocks = part.a.values()[range.start * b * b..range.end * b * b].chunks_exact(b * b);
            for (&j, block) in part.a.col()[range].iter().zip(blocks) {
                let j = j as usize * b;
                for (values, largest) in block.chunks_exact(b).zip(&mut *largest) {
                    for (c, v) in values.iter().enumerate().filter(|(_, v)| **v != 0.0) {
                        *largest = largest.max(v.abs());
                        part.columns.raise(j + c, v.abs());
                        self.entries.add(part.weight * v.abs());
                    }
                }
            }
        }
        for r in 0..b {
            let both = || parts.iter().zip(maxima.chunks_exact(b)).map(|(part, max)| (part, max[r]));
            self.extent.add(both().map(|(part, max)| part.weight * max).fold(0.0, f64::max));
            let place = (i * b + r) * s;
            for k in 0..s {
                let entry =
                    |part: &Part| part.a.diagonal_block(i).map_or(0.0, |d| part.c[(k, k)] * d[r * b + r]);
                if parts.iter().map(entry).sum::<f64>() == 0.0 {
                    self.missing += 1;
                    if self.first_missing.len() < NAMED {
                        self.first_missing.push(place + k);
                    }
                }
                self.weak += usize::from(is_weak(entry(&parts[0]), parts[0].weight * maxima[r]));
                if !both().any(|(part, max)| part.has_row[k] && max > 0.0) {
                    self.push_empty(place + k);
                }
            }
        }
        self.largest = maxima;
        self
    }

    fn push_empty(&mut self, index: usize) {
        push(&mut self.empty, index..index + 1);
    }

    /// These rows, and those behind them.
    fn and(mut self, behind: Self) -> Self {
        self.entries = self.entries.and(behind.entries);
        self.extent = self.extent.and(behind.extent);
        self.missing += behind.missing;
        self.weak += behind.weak;
        self.longest_row = self.longest_row.max(behind.longest_row);
        behind.empty.into_iter().for_each(|run| push(&mut self.empty, run));
        self.first_missing.extend(behind.first_missing);
        self.first_missing.truncate(NAMED);
        self
    }
}

/// Appends a run of indices that come behind all others.
fn push(runs: &mut Vec<Range<usize>>, run: Range<usize>) {
    match runs.last_mut() {
        Some(last) if last.end == run.start => last.end = run.end,
        _ => runs.push(run),
    }
}

//! Analysis of a rank's entries before its first solve, in one pass on all host threads. It finds the
//! magnitudes of entries, and zero rows, columns and diagonal entries.
//!
//! A Kronecker sum Σ Cₜ⊗Aₜ is analysed term by term: entries of Aₜ are weighted by max|Cₜ|. Row i of stage k
//! is empty if each term has a zero row i of Aₜ or a zero row k of Cₜ. Sums over terms are computed only for
//! diagonal entries.

use crate::Result;
use crate::comm::Communicator;
use crate::halo::to_owners;
use crate::matrix::{Arrays, Bsr, Dense, WEAK_DIAGONAL as WEAK};
use crate::operator::{ColumnMaxima, Terms, fold_rows, with_block};
use rayon::prelude::*;
use std::ops::Range;

/// Number of indices that are listed individually.
pub(super) const NAMED: usize = 5;

/// The smallest and the largest of some nonzero magnitudes.
///
/// # Examples
/// ```
/// use krylith_core::solver::Extent;
/// let extent = Extent { smallest: 0.5, largest: 8.0 };
/// assert_eq!(extent.ratio(), 16.0);
/// assert_eq!(Extent::default().ratio(), 1.0); // of nothing
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Extent {
    /// The smallest magnitude; infinite if there are none.
    pub smallest: f64,
    /// The largest magnitude; zero if there are none.
    pub largest: f64,
}

impl Default for Extent {
    /// Returns the extent of no magnitudes.
    fn default() -> Self {
        Self { smallest: f64::INFINITY, largest: 0.0 }
    }
}

impl Extent {
    /// Returns the ratio of the largest to the smallest magnitude; 1 if there are none.
    pub fn ratio(&self) -> f64 {
        if self.largest > 0.0 { self.largest / self.smallest } else { 1.0 }
    }

    /// Returns the combined extent.
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

/// Findings of the analysis. Unknowns have the local numbers of this rank's own unknowns.
#[derive(Debug, Default, PartialEq)]
#[doc(hidden)]
pub struct SystemAnalysis {
    /// Magnitudes of all entries.
    pub entries: Extent,
    /// Magnitudes of the largest entries of rows.
    pub rows: Extent,
    /// Magnitudes of the largest entries of columns.
    pub columns: Extent,
    /// Unknowns without an entry in their row, as ascending runs.
    pub empty_rows: Vec<Range<usize>>,
    /// Unknowns without an entry in their column, as ascending runs.
    pub empty_columns: Vec<Range<usize>>,
    /// Number of unknowns whose diagonal entry is missing or zero.
    pub missing_diagonal: usize,
    /// The first unknowns whose diagonal entry is missing or zero.
    pub first_missing: Vec<usize>,
    /// Number of unknowns whose diagonal entry is missing, or below 10⁻³ of the largest of its row; only for
    /// a single matrix with scalar rows.
    pub weak_diagonal: usize,
    /// Number of blocks of the longest block row if it has more than 256; else 0.
    pub longest_row: usize,
}

/// Returns true for a weak diagonal entry. The diagonal entry of an empty row is weak.
fn is_weak(diagonal: f64, largest: f64) -> bool {
    diagonal == 0.0 || diagonal.abs() < WEAK * largest
}

/// Returns true for a single matrix with scalar rows.
fn is_scalar(terms: &Terms) -> bool {
    (terms.terms.len(), terms.block(), terms.stages()) == (1, 1, 1)
}

/// Returns true if no diagonal entry is weak once rows and columns are divided by the square roots of their
/// diagonal magnitudes, none of which is zero. Then units alone made diagonal entries weak. It takes the time
/// of two products. Returns false if some rank has its matrix in GPU memory alone. Collective.
///
/// # Errors
/// A rank that has ended or failed.
pub(super) fn is_strong_when_scaled(terms: &Terms, comm: &dyn Communicator) -> Result<bool> {
    let [(_, a)] = &terms.terms[..] else { return Ok(false) };
    let mut count = [usize::from(a.storage().is_on_device_alone()) as f64];
    comm.sum(&mut count)?;
    if count[0] > 0.0 || !is_scalar(terms) {
        return Ok(false);
    }
    let a = Arrays::of(a);
    let of_row = |i: usize| a.col[a.row(i)].iter().zip(&a.values[a.row(i)]);
    let diagonal = |i: usize| of_row(i).map(|(&j, v)| if j as usize == i { *v } else { 0.0 }).sum::<f64>();
    let rows = || (0..a.row_ptr.len() - 1).into_par_iter().with_min_len(LEAST);
    let mut scale: Vec<f64> = rows().map(|i| diagonal(i).abs().sqrt().recip()).collect();
    if let Some(halo) = &terms.halo {
        scale = halo.with_ghosts(comm, 1, &scale)?;
    }
    let is_strong = |i: usize| {
        let largest = of_row(i).map(|(&j, v)| v.abs() * scale[j as usize]).fold(0.0, f64::max);
        WEAK * largest * scale[i] <= 1.0
    };
    count[0] = rows().filter(|&i| !is_strong(i)).count() as f64;
    comm.sum(&mut count)?;
    Ok(count[0] == 0.0)
}

/// Rows of a task.
const LEAST: usize = 2048;

/// Largest number of blocks of a row that does not count as long.
const LONG: usize = 256;

/// Analyses this rank's rows, and its own columns in the rows of all ranks. Collective.
///
/// # Errors
/// A rank that has ended or failed.
pub(super) fn analyze(terms: &Terms, comm: &dyn Communicator) -> Result<SystemAnalysis> {
    let (b, s, n) = (terms.block(), terms.stages(), terms.block_rows());
    let parts: Vec<Part> = terms.terms.iter().map(|(c, a)| Part::new(c, a)).collect();
    let none = || Found {
        largest: vec![0; parts.len() * b],
        diagonals: vec![None; parts.len()],
        ..Found::default()
    };
    let add = |found: &mut Found, i: usize| with_block!(b, Found::add_row, found, &parts, i);
    let rows = fold_rows(n, none, add, Found::and);

    let mut maxima = Vec::with_capacity(parts.len());
    for mut part in parts.iter().map(|part| part.columns.take()) {
        if let Some(halo) = &terms.halo {
            to_owners(comm, halo, b, &mut part, f64::max)?;
        }
        maxima.push(part);
    }
    let column = |found: &mut Found, j: usize| {
        let both = || parts.iter().zip(&maxima).map(|(part, maxima)| (part, maxima[j]));
        found.extent.add(both().map(|(part, max)| part.weight * max).fold(0.0, f64::max));
        for k in 0..s {
            if !both().any(|(part, max)| part.has_column[k] && max > 0.0) {
                found.push_empty(j * s + k);
            }
        }
    };
    let columns = fold_rows(n * b, Found::default, column, Found::and);
    Ok(SystemAnalysis {
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
impl SystemAnalysis {
    /// Creates the analysis from the result of a GPU. The GPU only counts zero rows, columns and diagonal
    /// entries. This function finds their numbers.
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

/// One term and the properties of its coefficient.
struct Part<'a> {
    c: &'a Dense,
    a: Arrays<'a>,
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
            a: Arrays::of(a),
        }
    }
}

/// Findings about a range of rows, or of columns.
#[derive(Default)]
struct Found {
    entries: Extent,
    /// Magnitudes of the largest entries.
    extent: Extent,
    empty: Vec<Range<usize>>,
    missing: usize,
    weak: usize,
    first_missing: Vec<usize>,
    longest_row: usize,
    /// For the current block row: the bits of the largest magnitude of each scalar row, term by term.
    largest: Vec<u64>,
    /// For the current block row: the index of its diagonal block in each term.
    diagonals: Vec<Option<usize>>,
}

impl Found {
    /// Adds block row `i`, of blocks of order `b`. Magnitudes are compared by their bits, which have the same
    /// order.
    #[inline(always)]
    fn add_row(b: usize, found: &mut Self, parts: &[Part], i: usize) {
        let s = parts[0].c.rows();
        let rows = found.largest.chunks_exact_mut(b).zip(&mut found.diagonals);
        for (part, (largest, diagonal)) in parts.iter().zip(rows) {
            largest.fill(0);
            *diagonal = None;
            let mut smallest = u64::MAX; // bits minus one: those of 0 wrap to the largest value
            let row = part.a.row(i);
            if row.len() > LONG {
                found.longest_row = found.longest_row.max(row.len());
            }
            let blocks = part.a.values[row.start * b * b..row.end * b * b].chunks_exact(b * b);
            for (p, (&j, block)) in row.clone().zip(part.a.col[row].iter().zip(blocks)) {
                if j as usize == i {
                    *diagonal = Some(p);
                }
                for (values, largest) in block.chunks_exact(b).zip(&mut *largest) {
                    for (c, v) in values.iter().enumerate() {
                        let bits = v.abs().to_bits();
                        *largest = bits.max(*largest);
                        smallest = bits.wrapping_sub(1).min(smallest);
                        part.columns.raise_bits(j as usize * b + c, bits);
                    }
                }
            }
            if smallest < u64::MAX {
                let largest = largest.iter().copied().max().unwrap_or(0);
                for bits in [smallest + 1, largest] {
                    found.entries.add(part.weight * f64::from_bits(bits));
                }
            }
        }
        for r in 0..b {
            let both = || parts.iter().zip(found.largest.chunks_exact(b).map(|max| f64::from_bits(max[r])));
            let largest = both().map(|(part, max)| part.weight * max).fold(0.0, f64::max);
            let empty = |k: usize| !both().any(|(part, max)| part.has_row[k] && max > 0.0);
            let first = both().next().map_or(0.0, |(part, max)| part.weight * max);
            found.extent.add(largest);
            let place = (i * b + r) * s;
            for k in 0..s {
                let diagonal = |(part, at): (&Part, &Option<usize>)| {
                    at.map_or(0.0, |p| part.c[(k, k)] * part.a.values[p * b * b + r * b + r])
                };
                let mut entries = parts.iter().zip(&found.diagonals).map(diagonal);
                let (of_first, others) = (entries.next().unwrap_or(0.0), entries.sum::<f64>());
                if of_first + others == 0.0 {
                    found.missing += 1;
                    if found.first_missing.len() < NAMED {
                        found.first_missing.push(place + k);
                    }
                }
                found.weak += usize::from(is_weak(of_first, first));
                if empty(k) {
                    push(&mut found.empty, place + k..place + k + 1);
                }
            }
        }
    }

    fn push_empty(&mut self, index: usize) {
        push(&mut self.empty, index..index + 1);
    }

    /// Merges these findings with findings about the following rows.
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

/// Appends a run of indices larger than all earlier ones.
fn push(runs: &mut Vec<Range<usize>>, run: Range<usize>) {
    match runs.last_mut() {
        Some(last) if last.end == run.start => last.end = run.end,
        _ => runs.push(run),
    }
}

//! Diagnosis of a system before a solve: zero rows, columns and diagonal entries, null vectors, and a lower
//! bound on the residual of any x.

mod range;

use super::analysis::{Extent, NAMED, SystemAnalysis, analyze};
use super::null_space::{Constants, Depth};
use crate::comm::{self, Communicator, gather};
use crate::matching::MatchingFound;
use crate::operator::Terms;
use crate::precond::{Known, LeftNull};
use crate::problem::{LocalProblem, Problem};
use crate::text::count;
use crate::{Error, Result};
pub(super) use range::OutOfRange;
use std::ops::Range;

/// Result of one pass over the entries of a system: their magnitudes, and the rows, columns and diagonal
/// entries that are zero.
///
/// Unknowns are numbered from 0 in the order of vectors, over all ranks: component c and stage k of block row
/// i have number (i·b + c)·s + k. Stored zeros count as absent. The diagnosis is the same on every rank.
///
/// # Examples
/// ```
/// use krylith::{Problem, matrix::Csr};
/// // The second row is empty, and so is the third column.
/// let a = Csr::from_triplets(3, 3, &[(0, 0, 4.0), (0, 1, 1.0), (1, 1, 0.0), (2, 0, 1e-3)])?;
/// let problem = Problem::csr(&a)?;
/// let diagnosis = problem.diagnosis()?;
/// assert_eq!((diagnosis.empty_rows.count, &diagnosis.empty_rows.first[..]), (1, &[1][..]));
/// assert_eq!(diagnosis.empty_columns.to_string(), "2");
/// assert_eq!(diagnosis.missing_diagonal.to_string(), "1, 2");
/// assert_eq!((diagnosis.entries.largest, diagnosis.entries.smallest), (4.0, 1e-3));
/// // Row 1 of A x is zero for every x.
/// let floor = diagnosis.floor(&problem, &[0.0, 3.0, 4.0])?.unwrap();
/// assert_eq!((floor.residual, floor.relative), (3.0, 0.6));
/// let why = "row 1 has no nonzero entry, and b is not zero there: no x brings ‖b − A x‖/‖b‖ below 6.0e-1";
/// assert_eq!(floor.reason, why);
/// assert!(diagnosis.floor(&problem, &[1.0, 0.0, 4.0])?.is_none());
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Diagnosis {
    /// Rows without an entry.
    pub empty_rows: Indices,
    /// Columns without an entry.
    pub empty_columns: Indices,
    /// Unknowns whose diagonal entry is missing or zero.
    pub missing_diagonal: Indices,
    /// Number of unknowns whose diagonal entry is missing, or below 10⁻³ of the largest of its row. Always 0
    /// unless the system is a single matrix with scalar rows.
    pub weak_diagonal: usize,
    /// Magnitudes of all entries. In a Kronecker sum Σ Cₜ⊗Aₜ, entries of Aₜ are multiplied by max|Cₜ|, here
    /// and in the next two fields.
    pub entries: Extent,
    /// Range of the largest magnitudes of rows, without empty rows.
    pub rows: Extent,
    /// Range of the largest magnitudes of columns, without empty columns.
    pub columns: Extent,
    /// Number of blocks of the longest block row if it has more than 256; else 0.
    pub longest_row: usize,
    /// Constant null vectors of A. The search takes place only if no null vectors were given.
    pub constants: Constants,
    /// Own unknowns whose column is empty.
    pub(super) own_empty_columns: Vec<Range<usize>>,
    /// The orthogonal complement of the range of A, as far as it is known.
    pub(super) range: OutOfRange,
}

/// A number of indices, and the first few of them.
///
/// # Examples
/// ```
/// use krylith_core::solver::Indices;
/// let rows = Indices { count: 6, first: vec![3, 17] };
/// assert_eq!(rows.to_string(), "3, 17 and 4 more");
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Indices {
    /// Number of indices.
    pub count: usize,
    /// The smallest indices, ascending: at most five.
    pub first: Vec<u64>,
}

/// A lower bound on the residual for any x, with its reason.
///
/// # Examples
/// ```
/// use krylith::{Problem, matrix::Csr};
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 1.0)])?; // row 1 is empty
/// let problem = Problem::csr(&a)?;
/// let floor = problem.diagnosis()?.floor(&problem, &[3.0, 4.0])?.unwrap();
/// assert_eq!((floor.residual, floor.relative), (4.0, 0.8)); // whatever x is
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Floor {
    /// Lower bound on ‖b − A x‖, in the units of b.
    pub residual: f64,
    /// Lower bound on ‖b − A x‖/‖b‖.
    pub relative: f64,
    /// The reason, as text.
    pub reason: String,
}

impl Problem<'_> {
    /// Diagnoses this system in one pass over its entries. Collective where the problem is distributed.
    ///
    /// # Errors
    /// A rank that has ended or failed.
    pub fn diagnosis(&self) -> Result<Diagnosis> {
        Diagnosis::of(&self.part_of_one())
    }
}

impl Diagnosis {
    /// Diagnoses the rows of all ranks. Collective.
    ///
    /// # Errors
    /// A rank that has ended or failed.
    pub(crate) fn of(local: &LocalProblem) -> Result<Self> {
        Self::of_analysis(local, analyze(local.terms, local.comm)?, Depth::Parts)
    }

    /// Builds the diagnosis from the analysis of this rank's rows on a device. Collective.
    ///
    /// # Errors
    /// A rank that has ended or failed.
    pub(super) fn of_analysis(local: &LocalProblem, own: SystemAnalysis, depth: Depth) -> Result<Self> {
        let unknown = |&u: &usize| global(local, u);
        let few = |runs: &[Range<usize>]| -> Vec<u64> {
            runs.iter().cloned().flatten().take(NAMED).map(|u| unknown(&u)).collect()
        };
        let total = |runs: &[Range<usize>]| runs.iter().map(Range::len).sum::<usize>();
        let empty_rows = (total(&own.empty_rows), few(&own.empty_rows));
        let empty_columns = (total(&own.empty_columns), few(&own.empty_columns));
        let missing = (own.missing_diagonal, own.first_missing.iter().map(unknown).collect());
        let [entries, rows, columns] = gather_extents(local.comm, [own.entries, own.rows, own.columns])?;
        let mut weak = [own.weak_diagonal as f64];
        local.comm.sum(&mut weak)?;
        let longest_row = comm::largest(local.comm, own.longest_row as f64)? as usize;
        let empty_rows = Indices::gather(local.comm, empty_rows)?;
        let constants = match local.null {
            [] => Constants::find(local, depth, own.missing_diagonal == 0)?,
            _ => Constants::default(),
        };
        let range = OutOfRange::new(local, &constants, own.empty_rows, empty_rows.count)?;
        Ok(Self {
            longest_row,
            weak_diagonal: weak[0] as usize,
            empty_rows,
            empty_columns: Indices::gather(local.comm, empty_columns)?,
            missing_diagonal: Indices::gather(local.comm, missing)?,
            entries,
            rows,
            columns,
            constants,
            own_empty_columns: own.empty_columns,
            range,
        })
    }

    /// Returns max/min of the largest entries of rows, or of columns if that ratio is larger.
    pub fn spread(&self) -> f64 {
        self.rows.ratio().max(self.columns.ratio())
    }

    /// Returns true if A is known to be singular, but the complement of its range is not fully known. This
    /// happens if a null vector that was given or found ([`constants`](Self::constants)) is not a null vector
    /// of Aᵀ.
    pub fn is_singular(&self) -> bool {
        self.range.is_partly_unknown()
    }

    /// Returns true if neither a lower bound on the residual nor a component of x that a solve must not
    /// change is known.
    pub(crate) fn is_clean(&self) -> bool {
        self.range.is_whole() && self.constants.is_none() && self.empty_columns.count == 0
    }

    /// Returns the findings that preconditioners use.
    pub(super) fn known<'a>(&'a self, matching: &'a MatchingFound) -> Known<'a> {
        Known { matching, untouched: self.untouched(), null: &self.constants.vectors }
    }

    /// Returns own unknowns whose column is empty; `None` if no rank has any.
    pub(super) fn untouched(&self) -> Option<&[Range<usize>]> {
        (self.empty_columns.count > 0).then_some(&self.own_empty_columns[..])
    }

    /// Adds null vectors of Aᵀ that factors have shown, if no others are known. Returns false if they belong
    /// to older values. Collective.
    ///
    /// # Errors
    /// A rank that has ended or failed.
    pub(super) fn add(&mut self, local: &LocalProblem, shown: LeftNull) -> Result<bool> {
        self.range.add(local, shown)
    }

    /// Returns the orthogonal complement of the range of A, as far as it is known.
    pub(super) fn out_of_range(&self) -> &OutOfRange {
        &self.range
    }

    /// Returns a lower bound on the residual for this right-hand side. It comes from the entries of b in
    /// empty rows, and from the component of b along vectors n with nᵀA = 0. Returns `None` if no bound is
    /// known. The result is the same on every rank. Collective where the problem is distributed.
    ///
    /// # Errors
    /// A b of another length; a rank that has ended or failed.
    pub fn floor(&self, problem: &Problem, b: &[f64]) -> Result<Option<Floor>> {
        let n = problem.own_len();
        if b.len() != n {
            return Err(Error::invalid(format!("b has {} numbers; the system has {n} unknowns", b.len())));
        }
        self.range.floor(&problem.part_of_one(), b, None)
    }
}

impl std::fmt::Display for Indices {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(&self.text(&|index| index.to_string()))
    }
}

impl Indices {
    /// Creates the indices from a list in ascending order.
    pub fn of(all: &[usize]) -> Self {
        Self { count: all.len(), first: all.iter().take(NAMED).map(|&u| u as u64).collect() }
    }

    /// Formats the indices as scalar rows if there is one stage, else as rows of a stage.
    pub(crate) fn named(&self, terms: &Terms) -> String {
        let s = terms.stages() as u64;
        self.text(&|u| if s == 1 { u.to_string() } else { format!("{} of stage {}", u / s, u % s) })
    }

    /// Formats each listed index with `name`, and adds the number of the indices that are not listed.
    pub fn text(&self, name: &dyn Fn(u64) -> String) -> String {
        let named = self.first.iter().map(|&index| name(index)).collect::<Vec<_>>().join(", ");
        match self.count - self.first.len() {
            0 => named,
            more => format!("{named} and {} more", count(more)),
        }
    }

    /// Gathers the own unknowns `own` of all ranks, as global numbers. Collective.
    ///
    /// # Errors
    /// A rank that has ended or failed.
    pub(super) fn of_own(local: &LocalProblem, own: &[usize]) -> Result<Self> {
        let first = own.iter().take(NAMED).map(|&u| global(local, u)).collect();
        Self::gather(local.comm, (own.len(), first))
    }

    /// Gathers the indices of all ranks from each rank's count and first indices. Collective.
    pub(super) fn gather(comm: &dyn Communicator, (count, first): (usize, Vec<u64>)) -> Result<Self> {
        let words = std::iter::once(count as u64).chain(first);
        let all = gather(comm, &words.flat_map(u64::to_le_bytes).collect::<Vec<u8>>())?;
        let mut found = Self::default();
        for bytes in &all {
            let mut words = bytes.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
            found.count += words.next().unwrap_or(0) as usize;
            found.first.extend(words);
        }
        found.first.sort_unstable();
        found.first.truncate(NAMED);
        Ok(found)
    }
}

/// Returns the global number of an own unknown.
fn global(local: &LocalProblem, unknown: usize) -> u64 {
    let order = local.order();
    let node = local.numbers.map_or((unknown / order) as u64, |numbers| numbers.at(unknown / order));
    node * order as u64 + (unknown % order) as u64
}

/// Combines the extents of all ranks. Collective.
fn gather_extents<const N: usize>(comm: &dyn Communicator, own: [Extent; N]) -> Result<[Extent; N]> {
    let bytes: Vec<u8> =
        own.iter().flat_map(|e| [e.smallest, e.largest]).flat_map(f64::to_le_bytes).collect();
    let mut all = [Extent::default(); N];
    for bytes in gather(comm, &bytes)? {
        let numbers = bytes.as_chunks::<8>().0.iter().map(|n| f64::from_le_bytes(*n)).collect::<Vec<_>>();
        for (all, pair) in all.iter_mut().zip(numbers.chunks_exact(2)) {
            *all = all.and(Extent { smallest: pair[0], largest: pair[1] });
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Csr;

    #[test]
    fn what_new_values_mend_is_no_longer_told() {
        // A row with only a stored zero, and a row without entries.
        let entries = [(0, 0, 1.0), (1, 1, 0.0), (3, 3, 1.0)];
        let mut problem = Problem::csr(&Csr::from_triplets(4, 4, &entries).unwrap()).unwrap();
        let diagnosis = problem.diagnosis().unwrap();
        let b = [0.0, 3.0, 4.0, 0.0];
        let floor = |d: &Diagnosis, problem: &Problem| d.floor(problem, &b).unwrap().unwrap();
        let both = floor(&diagnosis, &problem);
        assert_eq!(both.residual, 5.0);
        assert!(both.reason.starts_with("rows 1, 2 have no nonzero entry"), "{}", both.reason);
        problem.terms.update_values(0, &[1.0, 2.0, 1.0]).unwrap();
        let diagnosis = problem.diagnosis().unwrap();
        assert_eq!(floor(&diagnosis, &problem).residual, 4.0);
        assert!(diagnosis.floor(&problem, &b[1..]).is_err());
    }
}

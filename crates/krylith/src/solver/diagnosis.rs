//! What is wrong with a system that can be told before it is solved, and what no solve can then mend.

use super::survey::{Extent, NAMED, Survey, survey};
use super::symmetric::random;
use crate::comm::{self, Communicator, gather};
use crate::operator::Terms;
use crate::partition::with_ghosts;
use crate::problem::{LocalProblem, Problem};
use crate::text::count;
use crate::{Error, Result};
use rayon::prelude::*;
use std::ops::Range;

/// nᵀA is zero if it is no larger than this beside what the entries of A could make of it.
const ROUNDING: f64 = 64.0 * f64::EPSILON;

/// Block rows whose sums are added one after the other.
const STRIP: usize = 4096;

/// What one pass over the entries tells of a system: how large they are, which rows, columns and diagonal entries are zero.
///
/// Unknowns are numbered from 0 in the order of vectors, over all ranks: component c and stage k of block row i are number
/// (i·b + c)·s + k. Stored zeros count as absent. The same on every rank.
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
/// // No x makes row 1 of A x anything but zero.
/// let floor = diagnosis.floor(&problem, &[0.0, 3.0, 4.0])?.unwrap();
/// assert_eq!((floor.residual, floor.relative), (3.0, 0.6));
/// assert_eq!(floor.reason, "row 1 has no nonzero entry, and b is not zero there: no x brings ‖b − A x‖/‖b‖ below 6.0e-1");
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
    /// Of one matrix of scalar rows: unknowns whose diagonal entry is missing, or below 10⁻³ of the largest of its row; else 0.
    pub weak_diagonal: usize,
    /// Magnitudes of all entries. Of a Kronecker sum those of Aₜ weigh max|Cₜ|, here and below.
    pub entries: Extent,
    /// The largest magnitude of each row, empty ones left out.
    pub rows: Extent,
    /// The largest magnitude of each column, empty ones left out.
    pub columns: Extent,
    /// Blocks of the longest block row where that has more than 256; else 0.
    pub longest_row: usize,
    /// Own unknowns whose row is empty.
    own_empty: Vec<Range<usize>>,
    /// The null vectors n with nᵀA = 0, by their place in the problem.
    left_null: Vec<usize>,
}

/// How many indices there are, and the first of them.
///
/// # Examples
/// ```
/// use krylith::solver::Indices;
/// let rows = Indices { count: 6, first: vec![3, 17] };
/// assert_eq!(rows.to_string(), "3, 17 and 4 more");
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Indices {
    /// How many.
    pub count: usize,
    /// The smallest of them, ascending: at most five.
    pub first: Vec<u64>,
}

/// What no x can better.
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
    /// ‖b − A x‖ is no smaller, in the unit of b.
    pub residual: f64,
    /// The same over ‖b‖.
    pub relative: f64,
    /// Why, in words.
    pub reason: String,
}

impl Problem<'_> {
    /// What one pass over the entries tells of this system. Collective where the problem is distributed.
    ///
    /// # Errors
    /// A rank that is gone or failed.
    pub fn diagnosis(&self) -> Result<Diagnosis> {
        Diagnosis::of(&self.part_of_one())
    }
}

impl Diagnosis {
    /// Of this rank's rows and those of all others. Collective.
    ///
    /// # Errors
    /// A rank that is gone or failed.
    pub(crate) fn of(local: &LocalProblem) -> Result<Self> {
        Self::of_survey(local, survey(local.terms, local.comm)?)
    }

    /// The same from what a device has found in this rank's rows. Collective.
    ///
    /// # Errors
    /// A rank that is gone or failed.
    pub(super) fn of_survey(local: &LocalProblem, own: Survey) -> Result<Self> {
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
        Ok(Self {
            longest_row,
            weak_diagonal: weak[0] as usize,
            empty_rows: Indices::gather(local.comm, empty_rows)?,
            empty_columns: Indices::gather(local.comm, empty_columns)?,
            missing_diagonal: Indices::gather(local.comm, missing)?,
            entries,
            rows,
            columns,
            own_empty: own.empty_rows,
            left_null: left_null(local)?,
        })
    }

    /// The largest over the smallest of the rows' largest entries, or of the columns' if that is more.
    pub fn spread(&self) -> f64 {
        self.rows.ratio().max(self.columns.ratio())
    }

    /// Nothing bounds a residual from below.
    pub(crate) fn is_clean(&self) -> bool {
        self.empty_rows.count == 0 && self.left_null.is_empty()
    }

    /// What no x can better for this right-hand side: b where rows are empty, or its component along a vector n with
    /// nᵀA = 0. `None` where nothing is known to be in the way. The same on every rank. Collective where the problem is
    /// distributed.
    ///
    /// # Errors
    /// A b of another length; a rank that is gone or failed.
    pub fn floor(&self, problem: &Problem, b: &[f64]) -> Result<Option<Floor>> {
        let n = problem.own_len();
        if b.len() != n {
            return Err(Error::invalid(format!("b has {} numbers; the system has {n}", b.len())));
        }
        self.floor_of(&problem.part_of_one(), b)
    }

    /// Takes b off empty rows; false where there are none anywhere.
    pub(crate) fn zero_empty_rows(&self, b: &mut [f64]) -> bool {
        self.own_empty.iter().for_each(|run| b[run.clone()].fill(0.0));
        self.empty_rows.count > 0
    }

    /// Takes the components along vectors n with nᵀA = 0 off b; false where there are none, or rows are empty: then the rest of
    /// the system is no smaller system. Collective.
    ///
    /// # Errors
    /// A rank that is gone or failed.
    pub(crate) fn project(&self, local: &LocalProblem, b: &mut [f64]) -> Result<bool> {
        if self.empty_rows.count > 0 || self.left_null.is_empty() {
            return Ok(false);
        }
        // Given vectors need not be orthogonal to each other; a second pass takes off what the first left.
        for _ in 0..2 {
            for &place in &self.left_null {
                let n = &local.null[place];
                let mut sums = [n.iter().zip(&*b).map(|(n, b)| n * b).sum(), n.iter().map(|n| n * n).sum()];
                local.comm.sum(&mut sums)?;
                let share = sums[0] / sums[1];
                b.iter_mut().zip(n).for_each(|(b, n)| *b -= share * n);
            }
        }
        Ok(true)
    }

    /// As [`floor`](Self::floor), for one rank's rows. Allocates nothing where no row is empty and no null vector is given.
    ///
    /// # Errors
    /// A rank that is gone or failed.
    pub(crate) fn floor_of(&self, local: &LocalProblem, b: &[f64]) -> Result<Option<Floor>> {
        if self.is_clean() {
            return Ok(None);
        }
        // Squares of numbers far from 1 overflow or vanish.
        let largest = comm::largest(local.comm, b.iter().fold(0.0, |m, v| m.max(v.abs())))?;
        if largest == 0.0 || !largest.is_finite() {
            return Ok(None);
        }
        let unit = largest.log2().floor().clamp(-1000.0, 1000.0).exp2();
        let square = |v: &f64| (v / unit) * (v / unit);
        let empty = || self.own_empty.iter().cloned().flatten();
        let mut sums = vec![b.iter().map(square).sum(), empty().map(|u| square(&b[u])).sum()];
        for &place in &self.left_null {
            let products = || local.null[place].iter().zip(b).map(|(n, b)| n * (b / unit));
            let squares: f64 = local.null[place].iter().map(|n| n * n).sum();
            sums.extend([products().sum(), products().map(f64::abs).sum(), squares]);
        }
        local.comm.sum(&mut sums)?;
        let norm = unit * sums[0].sqrt();
        let (mut residual, mut along) = (unit * sums[1].sqrt(), None);
        for (&place, sums) in self.left_null.iter().zip(sums[2..].chunks_exact(3)) {
            let [product, magnitude, square] = [sums[0], sums[1], sums[2]];
            // Less what rounding may have made of the sum.
            let component = unit * (product.abs() - ROUNDING * magnitude) / square.sqrt();
            if component.is_finite() && component > residual {
                (residual, along) = (component, Some(place));
            }
        }
        if residual <= 0.0 {
            return Ok(None);
        }
        let relative = residual / norm;
        let why = match along {
            Some(place) => format!("b has a component along null vector {place}, which no A x has"),
            None => {
                let own: Vec<usize> = empty().filter(|&u| b[u] != 0.0).collect();
                let rows = Indices::of_own(local, &own)?;
                let (row, have) = if rows.count == 1 { ("row", "has") } else { ("rows", "have") };
                format!("{row} {} {have} no nonzero entry, and b is not zero there", rows.named(local.terms))
            }
        };
        let reason = format!("{why}: no x brings ‖b − A x‖/‖b‖ below {relative:.1e}");
        Ok(Some(Floor { residual, relative, reason }))
    }
}

impl std::fmt::Display for Indices {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(&self.text(&|index| index.to_string()))
    }
}

impl Indices {
    /// Of ascending numbers.
    pub fn of(all: &[usize]) -> Self {
        Self { count: all.len(), first: all.iter().take(NAMED).map(|&u| u as u64).collect() }
    }

    /// In words: scalar rows where there is one stage, else rows of a stage.
    pub(crate) fn named(&self, terms: &Terms) -> String {
        let s = terms.stages() as u64;
        self.text(&|u| if s == 1 { u.to_string() } else { format!("{} of stage {}", u / s, u % s) })
    }

    /// Each index as `name` says, and how many are not named.
    pub fn text(&self, name: &dyn Fn(u64) -> String) -> String {
        let named = self.first.iter().map(|&index| name(index)).collect::<Vec<_>>().join(", ");
        match self.count - self.first.len() {
            0 => named,
            more => format!("{named} and {} more", count(more)),
        }
    }

    /// Those of own unknowns on all ranks, by their global numbers. Collective.
    ///
    /// # Errors
    /// A rank that is gone or failed.
    pub(super) fn of_own(local: &LocalProblem, own: &[usize]) -> Result<Self> {
        let first = own.iter().take(NAMED).map(|&u| global(local, u)).collect();
        Self::gather(local.comm, (own.len(), first))
    }

    /// Those of all ranks, from this rank's count and first ones. Collective.
    fn gather(comm: &dyn Communicator, (count, first): (usize, Vec<u64>)) -> Result<Self> {
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

/// The number of an own unknown in the whole system.
fn global(local: &LocalProblem, unknown: usize) -> u64 {
    let order = local.order();
    let node = local.numbers.map_or((unknown / order) as u64, |numbers| numbers.at(unknown / order));
    node * order as u64 + (unknown % order) as u64
}

/// The extents over all ranks. Collective.
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

/// The given null vectors n with nᵀA = 0 too: all of a symmetric A, some of others. A random u tells: nᵀ(A u) is zero up to
/// rounding if nᵀA is, and for no other n but by a chance of measure zero. Collective.
fn left_null(local: &LocalProblem) -> Result<Vec<usize>> {
    let (terms, null) = (local.terms, local.null);
    if null.is_empty() {
        return Ok(Vec::new());
    }
    let order = local.order();
    let mut u: Vec<f64> = (0..terms.rows()).map(|i| random(0, global(local, i))).collect();
    if let Some(halo) = &terms.halo {
        u = with_ghosts(local.comm, halo, order, &u)?;
    }
    // Strips do not depend on the number of threads.
    let rows = terms.block_rows();
    let strip = |first: usize| {
        let mut sums = vec![[0.0; 2]; null.len()];
        let (mut product, mut magnitude) = (vec![0.0; order], vec![0.0; order]);
        for i in first..rows.min(first + STRIP) {
            multiply_row(terms, i, &u, &mut product, &mut magnitude);
            for (n, [sum, squares]) in null.iter().zip(&mut sums) {
                for ((n, p), m) in n[i * order..].iter().zip(&product).zip(&magnitude) {
                    *sum += n * p;
                    // Errors of rows are independent: their squares add up.
                    *squares += (n * m) * (n * m);
                }
            }
        }
        sums
    };
    let strips: Vec<_> = (0..rows.div_ceil(STRIP)).into_par_iter().map(|k| strip(k * STRIP)).collect();
    let mut sums = vec![0.0; 2 * null.len()];
    for strip in &strips {
        sums.iter_mut().zip(strip.as_flattened()).for_each(|(sum, v)| *sum += v);
    }
    local.comm.sum(&mut sums)?;
    let is_zero = |j: &usize| {
        let [sum, squares] = [sums[2 * j], sums[2 * j + 1]];
        squares.is_finite() && sum.abs() <= ROUNDING * squares.sqrt()
    };
    Ok((0..null.len()).filter(is_zero).collect())
}

/// Block row `i` of Σ (Cₜ ⊗ Aₜ) u and of Σ |Cₜ ⊗ Aₜ| |u|.
fn multiply_row(terms: &Terms, i: usize, u: &[f64], product: &mut [f64], magnitude: &mut [f64]) {
    let (b, s) = (terms.block(), terms.stages());
    product.fill(0.0);
    magnitude.fill(0.0);
    for (c, a) in &terms.terms {
        for p in a.row_ptr()[i]..a.row_ptr()[i + 1] {
            let u = &u[a.col()[p] as usize * b * s..][..b * s];
            for (e, v) in a.block_values(p).iter().enumerate() {
                for (k, l) in (0..s).flat_map(|k| (0..s).map(move |l| (k, l))) {
                    let term = c[(k, l)] * v * u[e % b * s + l];
                    product[e / b * s + k] += term;
                    magnitude[e / b * s + k] += term.abs();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Csr;

    #[test]
    fn what_new_values_mend_is_no_longer_told() {
        // A stored zero alone in its row, and a row that stores nothing.
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

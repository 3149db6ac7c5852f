//! The plan of subdomain factors, which does not depend on values: patterns, order and levels of every
//! subdomain.

use super::super::incomplete::check_cut;
use super::Outline;
use super::analysis::{Analysis, Count, Found, Places, Scratch};
use crate::matrix::storage::SharedPattern;
use crate::memory::Pattern;
use crate::operator::{Terms, check_count};
use crate::partition::Subdomains;
use crate::threads::zeros;
use crate::{Error, Result};
use rayon::prelude::*;
use std::ops::{Deref, Range};

/// The data of the factors of all subdomains that do not depend on values.
///
/// Inside a subdomain rows are numbered by level. These local numbers, called positions here, are consecutive
/// in each level. Levels are computed from the symmetrised pattern with its fill, so L and U have the same
/// levels. Elimination by position gives the same factors as elimination in the chosen order, because coupled
/// rows keep that order.
///
/// # Examples
/// One plan for many matrices of the same pattern:
/// ```
/// use krylith::device::Cpu;
/// use krylith::precond::{Ildu, IlduOptions};
/// use krylith_core::precond::Plan;
/// use krylith::{matrix::Csr, operator::Terms};
/// use krylith_core::partition::Subdomains;
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 4.0), (0, 1, 2.0), (1, 0, 2.0), (1, 1, 3.0)])?;
/// let terms = Terms::csr(&a)?;
/// let plan = Plan::new(&terms, &Subdomains::whole(2), 0)?;
/// assert_eq!((plan.count(), plan.entries()), (1, 4));
/// // The plan makes another analysis unnecessary.
/// let ildu = Ildu::with_plan(&Cpu::new(2, 1), &terms, plan.into(), IlduOptions::default())?;
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Counts of the plan, which are also fields of the plan itself.
    pub outline: Outline,
    /// Subdomain p holds positions `ptr[p]..ptr[p + 1]`.
    pub ptr: Vec<usize>,
    /// Own block row at each position.
    pub rows: Vec<u32>,
    /// Subdomain p has levels `level_ptr[p]..level_ptr[p + 1]`.
    pub level_ptr: Vec<usize>,
    /// First position of each level, relative to the subdomain's first position. A level ends where the next
    /// begins, and the last one with its subdomain.
    pub levels: Vec<u32>,
    /// First entry of the row at each position, and the number of entries at the end: `block_rows + 1`
    /// numbers.
    pub row_ptr: Vec<usize>,
    /// Column of each entry, as a position relative to the subdomain's first. Columns ascend in a row, and
    /// the diagonal is always present.
    pub columns: Vec<u32>,
    /// Diagonal entry of the row at each position.
    pub diagonal: Vec<usize>,
    /// For each term and each entry, the number of the block in that term's matrix, or `u32::MAX` if the
    /// matrix has none there.
    pub sources: Vec<Vec<u32>>,
    /// Pattern of each term's matrix; only the first if all are the same.
    pub(crate) patterns: Vec<SharedPattern>,
}

/// Number of block rows that one task analyses, unless a single subdomain is larger.
const TASK: usize = 16384;

/// One task's part of a plan: the counts, and the fill, because fill can be counted only by computing it.
struct Task {
    subdomains: Range<usize>,
    counts: Vec<Count>,
    found: Vec<Found>,
}

impl Plan {
    /// Analyses every subdomain with ILU(`fill`), in parallel. The result does not depend on the number of
    /// threads.
    ///
    /// # Errors
    /// A matrix that is not square; blocks of order above 32; more than 2³² − 2 stored blocks; subdomains of
    /// another number of block rows; an interrupt during the fill computation.
    pub fn new(terms: &Terms, subdomains: &Subdomains, fill: usize) -> Result<Self> {
        Self::check(terms, subdomains)?;
        let n = terms.block_rows();
        let shared = terms.shared_pattern();
        let matrices = if shared { &terms.terms[..1] } else { &terms.terms[..] };
        let analysis = Analysis::new(matrices.iter().map(|(_, a)| &**a).collect(), subdomains, fill)?;
        let tasks: Vec<Task> = tasks(subdomains)
            .into_par_iter()
            .map_init(Scratch::default, |scratch, subdomains| count(&analysis, subdomains, scratch))
            .collect::<Result<_>>()?;

        let all = || tasks.iter().flat_map(|task| &task.counts);
        let entries = all().map(|count| count.entries).sum();
        let what = "the plan of incomplete factors";
        let outline = Outline {
            entries,
            dropped: all().map(|count| count.dropped).sum(),
            stored: all().map(|count| count.stored).sum(),
            ..Outline::of(terms, subdomains)
        };
        let mut plan = Self {
            outline,
            ptr: subdomains.starts().to_vec(),
            rows: zeros(n, what)?,
            level_ptr: Vec::with_capacity(subdomains.count() + 1),
            levels: Vec::new(),
            row_ptr: zeros(n + 1, what)?,
            columns: zeros(entries, what)?,
            diagonal: zeros(n, what)?,
            sources: terms.terms.iter().map(|_| zeros(entries, what)).collect::<Result<_>>()?,
            patterns: matrices.iter().map(|(_, a)| a.storage().shared_pattern()).collect(),
        };
        plan.write(&analysis, tasks)?;
        plan.outline.deepest = plan.level_ptr.windows(2).map(|w| w[1] - w[0]).max().unwrap_or(0);
        Ok(plan)
    }

    /// Rejects terms and subdomains for which there is no plan; see [`new`](Self::new).
    pub(crate) fn check(terms: &Terms, subdomains: &Subdomains) -> Result<()> {
        let order = terms.block() * terms.stages();
        check_count(terms.terms.len())?;
        check_cut(terms, subdomains)?;
        if order > MAX_ORDER {
            return Err(Error::Unsupported(format!(
                "blocks of order {order} are too large for incomplete factors; the largest is {MAX_ORDER}: use a smaller block size \
                 or fewer stages"
            )));
        }
        let mut blocks = terms.terms.iter().map(|t| t.1.blocks());
        if let Some(most) = blocks.find(|&b| b >= u32::MAX as usize) {
            return Err(Error::Unsupported(format!(
                "a matrix with {most} stored blocks is too large for incomplete factors; the most is 2³² − 2: use more ranks"
            )));
        }
        Ok(())
    }

    /// Analyses the subdomains that were only counted so far, and writes all parts into the plan.
    fn write(&mut self, analysis: &Analysis, tasks: Vec<Task>) -> Result<()> {
        let mut rest = Places {
            rows: &mut self.rows,
            row_ptr: &mut self.row_ptr[1..],
            diagonal: &mut self.diagonal,
            columns: &mut self.columns,
            sources: self.sources.iter_mut().map(|s| &mut s[..]).collect(),
        };
        let (ptr, mut first) = (&self.ptr, 0);
        let mut shares = Vec::with_capacity(tasks.len());
        for task in tasks {
            let rows = ptr[task.subdomains.end] - ptr[task.subdomains.start];
            let entries = task.counts.iter().map(|count| count.entries).sum();
            shares.push((first, rest.split_off(rows, entries), task));
            first += entries;
        }
        // Levels are few, so they are collected per task and joined afterwards.
        let levels: Vec<(Vec<u32>, Vec<u32>)> = shares
            .into_par_iter()
            .map_init(Scratch::default, |scratch, (mut first, mut places, task)| {
                let (mut levels, mut counts) = (Vec::new(), Vec::with_capacity(task.counts.len()));
                let mut kept = task.found.into_iter();
                for (p, count) in task.subdomains.zip(&task.counts) {
                    match kept.next() {
                        Some(found) => scratch.found = found,
                        None => analysis.find(p, scratch)?,
                    }
                    let to = places.split_off(ptr[p + 1] - ptr[p], count.entries);
                    analysis.write(p, &scratch.found, first, to, &mut scratch.place);
                    first += count.entries;
                    levels.extend_from_slice(&scratch.found.levels);
                    counts.push(scratch.found.levels.len() as u32);
                }
                Ok((levels, counts))
            })
            .collect::<Result<_>>()?;
        self.level_ptr.push(0);
        self.levels.reserve_exact(levels.iter().map(|(levels, _)| levels.len()).sum());
        for (levels, counts) in levels {
            for count in counts {
                self.level_ptr.push(self.level_ptr[self.level_ptr.len() - 1] + count as usize);
            }
            self.levels.extend_from_slice(&levels);
        }
        Ok(())
    }

    /// Returns the pattern of term `t`.
    pub(crate) fn pattern(&self, t: usize) -> &Pattern {
        let shared = &self.patterns[t.min(self.patterns.len() - 1)];
        shared.get().expect("the pattern was fetched at set-up")
    }

    /// Returns the number of subdomains.
    pub fn count(&self) -> usize {
        self.ptr.len() - 1
    }

    /// Returns the number of blocks in the factors: L, D and U.
    pub fn entries(&self) -> usize {
        self.columns.len()
    }
}

impl Deref for Plan {
    type Target = Outline;
    fn deref(&self) -> &Outline {
        &self.outline
    }
}

/// The largest order of a block.
pub(crate) const MAX_ORDER: usize = 32;

/// Returns ranges of subdomains with about [`TASK`] block rows each.
fn tasks(subdomains: &Subdomains) -> Vec<Range<usize>> {
    let ptr = subdomains.starts();
    let (mut tasks, mut start) = (Vec::new(), 0);
    while start < subdomains.count() {
        let end = ptr.partition_point(|&row| row <= ptr[start] + TASK) - 1;
        let end = end.max(start + 1);
        tasks.push(start..end);
        start = end;
    }
    tasks
}

/// Counts the entries of each subdomain.
fn count(analysis: &Analysis, subdomains: Range<usize>, scratch: &mut Scratch) -> Result<Task> {
    let mut counts: Vec<Count> = subdomains.clone().map(|p| analysis.count(p, scratch)).collect();
    let mut found = Vec::new();
    if analysis.fills() {
        for (p, count) in subdomains.clone().zip(&mut counts) {
            analysis.find(p, scratch)?;
            count.entries = scratch.found.entries();
            found.push(std::mem::take(&mut scratch.found));
        }
    }
    Ok(Task { subdomains, counts, found })
}

#[cfg(test)]
mod tests;

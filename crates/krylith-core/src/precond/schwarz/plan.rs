//! The plan of restricted additive Schwarz, which does not depend on values: rows and pattern of the
//! subdomain matrices, the sources of their values, and the halos.

use super::super::incomplete::check_cut;
use super::super::incomplete::fill::Pattern;
use super::super::incomplete::order::reverse_cuthill_mckee;
use super::overlap::{self, Overlap};
use super::{Rows, pattern};
use crate::comm::{Communicator, agree};
use crate::interrupt::Allowance;
use crate::operator::Terms;
use crate::partition::{Halo, RowNumbers, Subdomains};
use crate::text::plural;
use crate::{Error, Result};
use rayon::prelude::*;
use std::ops::Range;
use std::sync::Arc;

/// In [`SchwarzPlan::source`]: marks an entry of S that the matrix does not store. It is zero before the
/// factorisation.
pub const FILL: u32 = u32::MAX;

/// All subdomain matrices A_k = R_k^δ A (R_k^δ)ᵀ of one rank, as diagonal blocks of one block matrix, and the
/// pattern S of its ILU(k). The rows of a subdomain are consecutive, and no entry couples two subdomains.
///
/// # Examples
/// ```
/// use krylith_core::precond::{SchwarzPattern, SchwarzPlan};
/// use krylith::{comm::Solo, matrix::Csr, operator::Terms};
/// use krylith_core::partition::Subdomains;
/// let chain = [(0, 0, 2.0), (0, 1, -1.0), (1, 0, -1.0), (1, 1, 2.0)];
/// let terms = Terms::csr(&Csr::from_triplets(2, 2, &chain)?)?;
/// let halves = Subdomains::from_labels(&[0, 1], 2)?;
/// let pattern = SchwarzPattern { overlap: 1, ..SchwarzPattern::default() };
/// let plan = SchwarzPlan::new(&Solo, &terms, None, &halves, pattern)?;
/// assert_eq!((plan.count(), plan.rows()), (2, 4)); // each half has both rows
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct SchwarzPlan {
    /// Order b of a block, 1 to 8.
    pub block: usize,
    /// Level k of the ILU(k) with pattern S.
    pub fill: usize,
    /// Halo of vectors: the nodes that this rank owns, followed by those that its overlap imports. Empty
    /// without neighbours.
    pub nodes: Arc<Halo>,
    /// Global number of each node, own or imported.
    pub global: Vec<u64>,
    /// Halo of values: the blocks that this rank stores, in the natural order of
    /// [`Bsr::values`](crate::matrix::Bsr::values), followed by blocks of rows of other ranks. A "node" of
    /// this halo is a stored block of b² numbers.
    pub blocks: Arc<Halo>,
    /// First row of each subdomain, and the total number of rows at the end.
    pub subdomains: Vec<u32>,
    /// R_k^δ: the node of each row, own or imported.
    pub node: Vec<u32>,
    /// (R_k⁰)ᵀ: for each own node the row that gives its result.
    pub result: Vec<u32>,
    /// Pattern S by rows: the beginning of each row in `column`, and the end.
    pub row_ptr: Vec<i64>,
    /// Columns, as numbers of rows, ascending within a row; the diagonal is always there.
    pub column: Vec<u32>,
    /// Position of each row's diagonal in `column`.
    pub diagonal: Vec<i64>,
    /// For each entry of S its block in `blocks`, own or imported, or [`FILL`].
    pub source: Vec<u32>,
}

/// Order of rows within a subdomain, which is the order of elimination.
///
/// # Examples
/// ```
/// use krylith::precond::PrecondSpec;
/// use krylith_core::precond::{RasSpec, SchwarzOrder};
/// let ras = RasSpec { order: SchwarzOrder::Rcm, ..RasSpec::default() };
/// assert_eq!("ras:order=rcm".parse::<PrecondSpec>()?, PrecondSpec::Ras(ras));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SchwarzOrder {
    /// By global number.
    #[default]
    Natural,
    /// Reverse Cuthill–McKee of the subdomain's pattern.
    Rcm,
}

impl SchwarzOrder {
    /// Both orders.
    pub const ALL: [Self; 2] = [Self::Natural, Self::Rcm];

    /// Returns its name in options.
    pub fn name(self) -> &'static str {
        match self {
            Self::Natural => "natural",
            Self::Rcm => "rcm",
        }
    }
}

/// Settings of a plan.
///
/// # Examples
/// ```
/// use krylith_core::precond::{SchwarzOrder, SchwarzPattern};
/// let pattern = SchwarzPattern { overlap: 2, fill: 1, order: SchwarzOrder::Rcm }; // two layers, ILU(1)
/// # let _ = pattern;
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SchwarzPattern {
    /// Number δ of layers of overlap in the graph of A; 0 is block Jacobi.
    pub overlap: usize,
    /// Level k of ILU(k).
    pub fill: usize,
    /// Order of rows within a subdomain.
    pub order: SchwarzOrder,
}

impl SchwarzPlan {
    /// Builds the plan of one rank, for its subdomains with δ layers of overlap. A subdomain belongs to one
    /// rank as a whole. Ranks exchange rows, so the subdomains are the same on any number of ranks. `numbers`
    /// are the global numbers of the own rows, or `None` if this rank has all rows. Collective; an error
    /// occurs on every rank.
    ///
    /// ```
    /// use krylith::comm::Solo;
    /// use krylith::matrix::Csr;
    /// use krylith::operator::Terms;
    /// use krylith_core::partition::Subdomains;
    /// use krylith_core::precond::{SchwarzPattern, SchwarzPlan};
    /// // A path of four rows in two subdomains: with one layer of overlap each has three rows.
    /// let path = [(0, 0, 2.0), (0, 1, -1.0), (1, 0, -1.0), (1, 1, 2.0), (1, 2, -1.0),
    ///     (2, 1, -1.0), (2, 2, 2.0), (2, 3, -1.0), (3, 2, -1.0), (3, 3, 2.0)];
    /// let terms = Terms::csr(&Csr::from_triplets(4, 4, &path)?)?;
    /// let halves = Subdomains::from_labels(&[0, 0, 1, 1], 2)?;
    /// let pattern = SchwarzPattern { overlap: 1, ..SchwarzPattern::default() };
    /// let plan = SchwarzPlan::new(&Solo, &terms, None, &halves, pattern)?;
    /// assert_eq!(plan.node, [0, 1, 2, 1, 2, 3]);
    /// # Ok::<(), krylith::Error>(())
    /// ```
    ///
    /// # Errors
    /// Several terms or stages; a matrix that is not square; subdomains or numbers that do not match the
    /// rows; more rows or blocks than fit in 32-bit numbers; a rank that has ended or failed.
    pub fn new(
        comm: &dyn Communicator,
        terms: &Terms,
        numbers: Option<RowNumbers>,
        subdomains: &Subdomains,
        pattern: SchwarzPattern,
    ) -> Result<Self> {
        agree(comm, check(comm, terms, numbers, subdomains))?;
        let overlap = overlap::find(comm, terms, numbers, subdomains, pattern.overlap)?;
        agree(comm, Self::of_overlap(terms, subdomains, overlap, pattern))
    }

    /// Builds the patterns of all subdomains, one after the other.
    fn of_overlap(
        terms: &Terms,
        subdomains: &Subdomains,
        found: Overlap,
        pattern: SchwarzPattern,
    ) -> Result<Self> {
        let (a, n) = (&*terms.terms[0].1, terms.block_rows());
        let nodes = found.global.len();
        let allowance = Allowance::of_fill();
        let parts: Vec<(Vec<u32>, Pattern)> = found
            .rows
            .par_iter()
            .map_init(
                || vec![u32::MAX; nodes],
                |place, rows| {
                    let mut order = rows.clone();
                    let mut own = pattern::inside(a, &found, rows, place);
                    if pattern.order == SchwarzOrder::Rcm {
                        let by = reverse_cuthill_mckee(&own);
                        own = own.permuted(&by);
                        order = by.iter().map(|&k| rows[k as usize]).collect();
                    }
                    Ok((order, own.filled(pattern.fill, &allowance)?))
                },
            )
            .collect::<Result<_>>()?;
        let rows: usize = parts.iter().map(|(rows, _)| rows.len()).sum();
        let entries: usize = parts.iter().map(|(_, pattern)| pattern.col.len()).sum();
        if rows >= u32::MAX as usize {
            return Err(Error::Unsupported(format!(
                "subdomains with overlap have {rows} rows; the most per rank is 2³² − 2: use more ranks"
            )));
        }
        let mut plan = Self {
            block: terms.block(),
            fill: pattern.fill,
            nodes: Arc::new(found.nodes),
            global: found.global,
            blocks: Arc::new(found.blocks),
            subdomains: vec![0],
            node: Vec::with_capacity(rows),
            result: vec![0; n],
            row_ptr: Vec::with_capacity(rows + 1),
            column: Vec::with_capacity(entries),
            diagonal: Vec::with_capacity(rows),
            source: Vec::with_capacity(entries),
        };
        let mut own = vec![false; nodes];
        plan.row_ptr.push(0);
        for (p, (order, part)) in parts.into_iter().enumerate() {
            let (first, entry) = (plan.node.len() as u32, plan.column.len());
            subdomains.rows(p).iter().for_each(|&i| own[i as usize] = true);
            for (k, &node) in order.iter().enumerate() {
                if own[node as usize] {
                    plan.result[node as usize] = first + k as u32;
                }
                plan.diagonal.push((entry + part.diagonal(k)) as i64);
                plan.row_ptr.push((entry + part.row_ptr[k + 1]) as i64);
            }
            subdomains.rows(p).iter().for_each(|&i| own[i as usize] = false);
            plan.node.extend_from_slice(&order);
            plan.column.par_extend(part.col.par_iter().map(|&j| first + j));
            plan.source.par_extend(part.from.par_iter());
            plan.subdomains.push(plan.node.len() as u32);
        }
        Ok(plan)
    }

    /// Returns the number of subdomains of this rank.
    pub fn count(&self) -> usize {
        self.subdomains.len() - 1
    }

    /// Returns the total number of rows of all subdomains, with overlap.
    pub fn rows(&self) -> usize {
        self.node.len()
    }

    /// Returns the rows of S.
    pub(crate) fn pattern(&self) -> Rows<'_> {
        Rows { row_ptr: &self.row_ptr, column: &self.column, diagonal: &self.diagonal }
    }

    /// Returns the entries of L in a row.
    pub(crate) fn lower(&self, row: usize) -> Range<usize> {
        self.pattern().lower(row)
    }

    /// Returns the entries of U in a row, without the diagonal.
    pub(crate) fn upper(&self, row: usize) -> Range<usize> {
        self.pattern().upper(row)
    }

    /// Returns the entries of L in row k or, with `upper`, those of U in row k from the end.
    pub(crate) fn triangle(&self, upper: bool, k: usize) -> Range<usize> {
        if upper { self.upper(self.rows() - 1 - k) } else { self.lower(k) }
    }

    /// Returns true if a row gives the result of its node.
    pub(crate) fn keeps(&self, row: usize) -> bool {
        self.result.get(self.node[row] as usize).is_some_and(|&kept| kept as usize == row)
    }

    /// Returns true if each column of S is at most 2¹⁶ rows from its row. Solves then keep columns as
    /// distances of 16 bits: |i − j| − 1 for column j of row i. So have those of Sᵀ.
    pub(crate) fn is_near(&self) -> bool {
        const MOST: usize = 1 << 16;
        let reach = |i: usize| {
            let [begin, end] = [self.row_ptr[i], self.row_ptr[i + 1]].map(|at| at as usize);
            // Columns ascend, and the diagonal is one of them.
            let [first, last] = [begin, end - 1].map(|at| self.column[at] as usize);
            (i - first).max(last - i)
        };
        (0..self.rows()).into_par_iter().all(|i| reach(i) <= MOST)
    }

    /// Returns the number of blocks in S: L below the diagonal, and U on and above it.
    pub fn entries(&self) -> usize {
        self.column.len()
    }
}

/// Rejects terms and subdomains for which there is no plan.
fn check(
    comm: &dyn Communicator,
    terms: &Terms,
    numbers: Option<RowNumbers>,
    subdomains: &Subdomains,
) -> Result<()> {
    let (n, stages) = (terms.block_rows(), terms.stages());
    if terms.terms.len() != 1 || stages != 1 || terms.terms[0].0[(0, 0)] != 1.0 {
        return Err(Error::Unsupported(format!(
            "ras takes one matrix, not {} and {}; use ildu, stage or stage(ras)",
            plural(terms.terms.len(), "term"),
            plural(stages, "stage")
        )));
    }
    check_cut(terms, subdomains)?;
    if let Some(numbers) = numbers.filter(|numbers| numbers.len() != n) {
        return Err(Error::invalid(format!(
            "ras: got {} row numbers for {n} block rows; expected one per block row",
            numbers.len()
        )));
    }
    if comm.size() > 1 && (numbers.is_none() || terms.halo.is_none()) {
        return Err(Error::invalid("ras: a rank's share of the rows needs global row numbers and a halo"));
    }
    Ok(())
}

/// Method of computing factors on the pattern S.
///
/// # Examples
/// ```
/// use krylith_core::precond::Factorization;
/// let first = Factorization::Random { sweeps: 5, warm: false }; // from the matrix
/// let next = Factorization::Random { sweeps: 5, warm: true }; // from the last factors
/// assert_ne!(first, next);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Factorization {
    /// Exact factorisation, row by row in the order of elimination.
    Exact,
    /// Alg. 1 of Ma, Le and Cai (paper 5 in docs/papers.md): η sweeps over consecutive rows, which use the
    /// values that are in memory at that moment. With `warm`, sweeps start from the current factors.
    /// Otherwise they start from U = A on and above the diagonal, and L_ij = A_ij inv(A_jj) below it.
    Random {
        /// η, at least 1.
        sweeps: usize,
        /// True to start from the last factors.
        warm: bool,
    },
}

/// Method of solving L y = r and U z = y, where L has a unit diagonal.
///
/// # Examples
/// ```
/// use krylith::precond::PrecondSpec;
/// use krylith_core::precond::{RasSpec, TriangularSolve};
/// let ras = RasSpec { solve: Some(TriangularSolve::Random { sweeps: 8 }), ..RasSpec::default() };
/// assert_eq!("ras:solve=random,gamma=8".parse::<PrecondSpec>()?, PrecondSpec::Ras(ras));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum TriangularSolve {
    /// Exact substitution.
    Exact,
    /// Alg. 2 of Ma, Le and Cai: γ Jacobi sweeps for y from y = r, then γ Jacobi sweeps for z from z = inv(D)
    /// y. D has the diagonal blocks of U.
    Jacobi {
        /// γ, at least 1.
        sweeps: usize,
    },
    /// Alg. 3 of Ma, Le and Cai: γ sweeps in place over consecutive rows, which use the values that are in
    /// memory at that moment. All sweeps for y come before those for z. The starting values are those of
    /// [`Jacobi`](Self::Jacobi).
    Random {
        /// γ, at least 1.
        sweeps: usize,
    },
}

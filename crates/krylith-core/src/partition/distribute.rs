//! Rows that a simulation code has already distributed, for systems that no rank ever holds as a whole.

use super::{Halo, Numbering, Part};
use crate::comm::{Communicator, agree, gather};
use crate::matrix::{Bsr, Csr, Dense, Grouping};
use crate::operator::Terms;
use crate::threads::each_task;
use crate::{Error, Result};
use rayon::prelude::*;
use std::borrow::Cow;
use std::sync::{Arc, Mutex};

/// Rows of a task.
const ROWS: usize = 4096;

/// One rank's own block rows, with 64-bit global columns.
///
/// # Examples
/// The rows of a finite-volume code, in its own numbering, for
/// [`Problem::distributed`](crate::Problem::distributed).
/// ```
/// use krylith::comm::{Communicator, Team};
/// use krylith::{Problem, Solver, matrix::Dense, partition::{RowBlocks, Rows}};
/// let x = Team::run(2, |comm| {
///     // Cells 10 and 11 exchange heat; each rank has one: 2 x₁₀ − x₁₁ = 1 and 2 x₁₁ − x₁₀ = 1.
///     let (own, other) = if comm.rank() == 0 { (10, 11) } else { (11, 10) };
///     let blocks = RowBlocks { row_ptr: vec![0, 2], col: vec![own, other], values: vec![2.0, -1.0] };
///     let rows = Rows { numbers: vec![own], block: 1, terms: vec![(Dense::identity(1), blocks)] };
///     let mut x = [0.0];
///     Solver::new(Problem::distributed(comm, rows)?, &"device=cpu".parse()?)?.solve(&[1.0], &mut x)?;
///     Ok(x[0])
/// })?;
/// assert!(x.iter().all(|x| (x - 1.0).abs() < 1e-5));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Rows {
    /// Global number of each own row, in any order. Ranks own disjoint sets, which may be empty.
    pub numbers: Vec<u64>,
    /// Block size b, the same on every rank.
    pub block: usize,
    /// One or two terms: a coefficient (s×s, the same on every rank) and the rows of its matrix.
    pub terms: Vec<(Dense, RowBlocks)>,
}

/// Block rows of one matrix, in the order of [`Rows::numbers`].
///
/// # Examples
/// ```
/// use krylith::{matrix::Csr, partition::RowBlocks};
/// let a = Csr::from_triplets(3, 3, &[(0, 0, 2.0), (1, 0, -1.0), (1, 1, 2.0), (2, 2, 2.0)])?;
/// let rows = RowBlocks::of_rows(&a, &[1, 2]); // the rows of one rank; columns stay global
/// assert_eq!((rows.row_ptr, rows.col, rows.values), (vec![0, 2, 3], vec![0, 1, 2], vec![-1.0, 2.0, 2.0]));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct RowBlocks {
    /// Start of each row in blocks, and the end of the last: one more than there are rows.
    pub row_ptr: Vec<usize>,
    /// Global block column of each block, in any order within a row, without duplicates.
    pub col: Vec<u64>,
    /// Values: b² per block, row by row.
    pub values: Vec<f64>,
}

/// Builds this rank's part of a system from the rows of all ranks. Collective.
///
/// Local rows stay in the order given, so vectors keep the caller's distribution.
///
/// # Errors
/// The same on every rank: arrays of inconsistent length, a column that is repeated in its row, a value that
/// is not finite, ranks with different block sizes or coefficients, and errors of [`Halo::build`].
pub fn distribute(comm: &dyn Communicator, rows: Rows) -> Result<Part> {
    agree(comm, rows.check())?;
    rows.same_everywhere(comm)?;
    let columns = rows.terms.iter().flat_map(|(_, a)| a.col.iter().copied());
    let (halo, numbering) = Halo::build(comm, &rows.numbers, columns)?;
    let nodes = halo.own + halo.ghosts;
    let Rows { numbers, block, terms } = rows;
    let mut given = Vec::with_capacity(terms.len());
    let terms = terms.into_iter().map(|(c, a)| {
        let (a, order) = a.localise(&numbers, block, nodes, &numbering)?;
        given.push(Grouping::of_order(block * block, order));
        Ok((c, Cow::Owned(a)))
    });
    let terms = agree(comm, terms.collect::<Result<_>>())?;
    let halo = Arc::new(halo);
    Ok(Part { rows: numbers, terms: Terms { terms, halo: Some(halo.clone()) }, halo, given })
}

impl Rows {
    /// Creates `count` own block rows of one matrix of which ranks hold contiguous runs of rows, in the order
    /// of ranks. Collective.
    ///
    /// # Errors
    /// A rank that is gone or failed.
    ///
    /// ```
    /// use krylith::{Problem, comm::Solo, partition::{RowBlocks, Rows}};
    /// let blocks = RowBlocks { row_ptr: vec![0, 1, 3], col: vec![0, 0, 1], values: vec![2.0, 1.0, 4.0] };
    /// let rows = Rows::in_runs(&Solo, 1, 2, blocks)?;
    /// assert_eq!(rows.numbers, [0, 1]); // on the next rank they would start at 2
    /// assert_eq!(Problem::distributed(std::sync::Arc::new(Solo), rows)?.unknowns(), 2);
    /// # Ok::<(), krylith::Error>(())
    /// ```
    pub fn in_runs(comm: &dyn Communicator, block: usize, count: usize, rows: RowBlocks) -> Result<Self> {
        let counts = gather(comm, &(count as u64).to_le_bytes())?;
        let counts =
            counts.iter().filter_map(|bytes| bytes.as_slice().try_into().ok()).map(u64::from_le_bytes);
        let first: u64 = counts.take(comm.rank()).sum();
        Ok(Self::run(first as usize, block, count, rows))
    }

    /// Creates `count` block rows of one matrix from block row `first` on.
    pub(crate) fn run(first: usize, block: usize, count: usize, rows: RowBlocks) -> Self {
        let numbers = (first as u64..(first + count) as u64).collect();
        Self { numbers, block, terms: vec![(Dense::identity(1), rows)] }
    }

    /// Returns an error for arrays that do not fit together.
    fn check(&self) -> Result<()> {
        let (n, b) = (self.numbers.len(), self.block);
        if b == 0 {
            return Err(Error::invalid("distributed rows: the block size must be at least 1"));
        }
        if !(1..=2).contains(&self.terms.len()) {
            return Err(Error::invalid(format!(
                "distributed rows: got {} terms; a system has one or two",
                self.terms.len()
            )));
        }
        let s = self.terms[0].0.rows();
        for (t, (c, a)) in self.terms.iter().enumerate() {
            let wrong = |what: String| Err(Error::invalid(format!("distributed rows, term {t}: {what}")));
            if s == 0 || c.rows() != s || c.columns() != s {
                return wrong(format!(
                    "the coefficient is {}×{}; coefficients must be square of the same order",
                    c.rows(),
                    c.columns()
                ));
            }
            if a.row_ptr.len() != n + 1 || a.row_ptr[0] != 0 || a.row_ptr[n] != a.col.len() {
                return wrong(format!(
                    "the row pointers do not match {n} rows and the column indices; expected {} pointers, \
                     from 0 to {}",
                    n + 1,
                    a.col.len()
                ));
            }
            if let Some(i) = (0..n).find(|&i| a.row_ptr[i] > a.row_ptr[i + 1]) {
                return wrong(format!(
                    "the pointer after block row {} is smaller than that of the row; row pointers must not \
                     decrease",
                    self.numbers[i]
                ));
            }
            if a.values.len() != a.col.len() * b * b {
                return wrong(format!(
                    "got {} values for {} blocks of {b}×{b}; expected {}",
                    a.values.len(),
                    a.col.len(),
                    a.col.len() * b * b
                ));
            }
            if let Some(e) = a.values.par_iter().with_min_len(1 << 16).position_first(|v| !v.is_finite()) {
                let i = a.row_ptr.partition_point(|&p| p <= e / (b * b)) - 1;
                return wrong(format!(
                    "block row {}, block column {}: entry ({}, {}) of the block is {}; every value must be \
                     finite",
                    self.numbers[i],
                    a.col[e / (b * b)],
                    e % (b * b) / b,
                    e % b,
                    a.values[e]
                ));
            }
        }
        Ok(())
    }

    /// Returns an error if ranks pass different systems.
    fn same_everywhere(&self, comm: &dyn Communicator) -> Result<()> {
        let s = self.terms[0].0.rows();
        let head = [self.block, s, self.terms.len()].map(|n| (n as u64).to_le_bytes());
        let coefficients = self.terms.iter().flat_map(|(c, _)| c.values()).map(|v| v.to_le_bytes());
        let mine: Vec<u8> = head.into_iter().chain(coefficients).flatten().collect();
        let all = gather(comm, &mine)?;
        let Some(rank) = all.iter().position(|other| other[..] != all[0][..]) else { return Ok(()) };
        let shape = |bytes: &[u8]| {
            let words: Vec<u64> =
                bytes.as_chunks().0.iter().map(|w| u64::from_le_bytes(*w)).take(3).collect();
            format!("blocks of {0}×{0}, {1} stages, {2} terms", words[0], words[1], words[2])
        };
        let (first, other) = (shape(&all[0]), shape(&all[rank]));
        let why = if first == other {
            "other coefficients than rank 0".into()
        } else {
            format!("{other}; rank 0 has {first}")
        };
        Err(Error::invalid(format!(
            "the ranks pass different systems: rank {rank} has {why}; pass the same system on every rank"
        )))
    }
}

impl RowBlocks {
    /// Extracts these rows of a scalar matrix, in the order given; its columns are global numbers.
    ///
    /// ```
    /// use krylith::{matrix::Csr, partition::RowBlocks};
    /// let a = Csr::from_triplets(2, 2, &[(0, 0, 4.0), (1, 0, 1.0), (1, 1, 3.0)])?;
    /// let second = RowBlocks::of_rows(&a, &[1]);
    /// assert_eq!((second.row_ptr, second.col, second.values), (vec![0, 2], vec![0, 1], vec![1.0, 3.0]));
    /// # Ok::<(), krylith::Error>(())
    /// ```
    ///
    /// # Panics
    /// A number that is not a row of the matrix.
    pub fn of_rows(a: &Csr, rows: &[u64]) -> Self {
        let mut own = Self { row_ptr: vec![0], ..Self::default() };
        for &i in rows {
            let (col, values) = a.row(i as usize);
            own.col.extend(col.iter().map(|&j| u64::from(j)));
            own.values.extend_from_slice(values);
            own.row_ptr.push(own.col.len());
        }
        own
    }

    /// Converts the rows to ascending local columns. Also returns, for each block, its index among the blocks
    /// as given.
    fn localise(
        self,
        numbers: &[u64],
        block: usize,
        nodes: usize,
        numbering: &Numbering,
    ) -> Result<(Bsr, Vec<usize>)> {
        let (bb, n) = (block * block, numbers.len());
        let (mut col, mut values) = (vec![0u32; self.col.len()], vec![0.0; self.values.len()]);
        let mut from = vec![0usize; self.col.len()];
        let (mut cols, mut numbers_left, mut places) = (&mut col[..], &mut values[..], &mut from[..]);
        let mut tasks = Vec::with_capacity(n.div_ceil(ROWS));
        for first in (0..n).step_by(ROWS) {
            let last = (first + ROWS).min(n);
            let count = self.row_ptr[last] - self.row_ptr[first];
            let (col, values, from);
            (col, cols) = std::mem::take(&mut cols).split_at_mut(count);
            (values, numbers_left) = std::mem::take(&mut numbers_left).split_at_mut(count * bb);
            (from, places) = std::mem::take(&mut places).split_at_mut(count);
            tasks.push((first..last, col, values, from));
        }
        let twice = Mutex::new(None);
        each_task(tasks, &|(rows, col, values, from)| {
            let (start, mut order) = (self.row_ptr[rows.start], Vec::new());
            for i in rows {
                let given = self.row_ptr[i]..self.row_ptr[i + 1];
                let local = |&g: &u64| numbering.local(g).expect("the halo has every column");
                order.clear();
                order.extend(self.col[given.clone()].iter().map(local).zip(given.clone()));
                order.sort_unstable();
                for (at, &(j, p)) in (given.start - start..).zip(&order) {
                    (col[at], from[at]) = (j, p);
                    values[at * bb..(at + 1) * bb].copy_from_slice(&self.values[p * bb..(p + 1) * bb]);
                }
                if let Some(pair) = order.windows(2).find(|pair| pair[0].0 == pair[1].0) {
                    let mut twice = twice.lock().unwrap_or_else(|e| e.into_inner());
                    if twice.is_none_or(|(row, _)| i < row) {
                        *twice = Some((i, pair[0].0));
                    }
                }
            }
        });
        if let Some((i, j)) = twice.into_inner().unwrap_or_else(|e| e.into_inner()) {
            return Err(Error::invalid(format!(
                "block column {} appears twice in block row {}; add these blocks into one",
                numbering.global()[j as usize],
                numbers[i]
            )));
        }
        Ok((Bsr::new(block, n, nodes, self.row_ptr, col, values)?, from))
    }
}

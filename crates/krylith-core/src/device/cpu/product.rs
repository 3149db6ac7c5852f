//! Products of point-block terms on the CPU, specialised on block size, stages and stored precision.
//!
//! Memory traffic of one product: every stored value and column once, x and y once. A piece is a run of block
//! rows; all pieces have about the same number of entries. Within a row the values are streamed, and x comes
//! from the cache.
//!
//! Blocks are stored by columns, with the terms of one pattern next to each other. Column c of a block is T·b
//! numbers, a whole vector or two, which are multiplied with one number x[c, k] per stage. No shuffles and no
//! sums across a vector are needed.

mod kernels;
mod scalar;

pub(super) use kernels::Number;
pub(super) use scalar::available;

use super::dia::Diagonals;
use super::outer::Outer;
use super::{Cpu, CpuScalars};
use crate::comm::agree;
use crate::matrix::Dense;
use crate::matrix::storage::SharedPattern;
use crate::memory::Numbers;
use crate::memory::Pattern;
use crate::operator::{Dots, Format, PointBlockSum, Terms, check_lengths};
use crate::space::{Precision, Space};
use crate::threads::{Disjoint, Pool};
use crate::{Error, Result};
use kernels::{Kernel, kernel};
use rayon::prelude::*;
use scalar::LongRows;
use std::ops::Range;

/// Terms in host memory, including the part of the ghosts if they are one rank's rows of a distributed sum.
#[doc(hidden)]
pub struct CpuProduct {
    pub(super) own: Own,
    pub(super) outer: Option<Outer>,
    /// True if every rank computes sums in the pass of the product.
    dots: bool,
    /// New values that came from a GPU.
    scratch: Vec<f64>,
}

/// The product with own columns.
pub(super) enum Own {
    Rows(Rows),
    Diagonals(Diagonals),
}

/// Block rows of terms. Terms of one pattern share its pointers and columns.
pub(super) struct Rows {
    block: usize,
    stages: usize,
    block_rows: usize,
    block_columns: usize,
    pub(super) groups: Vec<Group>,
    pub(super) coefficients: Vec<Vec<f64>>,
    /// Runs of block rows with about equal work.
    pub(super) pieces: Vec<Range<usize>>,
    /// Scalar rows that several threads share.
    long: LongRows,
}

/// Terms of one pattern.
pub(super) struct Group {
    pattern: SharedPattern,
    pub values: Values,
    /// Terms whose values are stored here: number (r, c) of term t of block p is at ((p b + c) T + t) b + r.
    pub terms: Range<usize>,
}

impl std::ops::Deref for Group {
    type Target = Pattern;
    fn deref(&self) -> &Pattern {
        self.pattern.get().expect("a pattern that was fetched")
    }
}

/// Numbers after the last block, which a whole vector may load but nothing uses.
pub(super) const PADDING: usize = 16;

/// Stored numbers.
pub(super) enum Values {
    F64(Vec<f64>),
    F32(Vec<f32>),
}

impl PointBlockSum for Cpu {
    type Product = CpuProduct;

    fn prepare_as(
        &self,
        terms: &Terms,
        precision: Precision,
        _dense: bool,
        format: Format,
    ) -> Result<CpuProduct> {
        let (b, s, count) = (terms.block(), terms.stages(), terms.terms.len());
        let scalar = (b, s, count) == (1, 1, 1);
        if !scalar && format != Format::Auto {
            return Err(Error::Unsupported(format!(
                "format={format} does not support {count} terms of {b}×{b} blocks with {s} stages; it needs one matrix of \
                 scalar rows. Use format=auto, which supports every operator"
            )));
        }
        let Some(halo) = &terms.halo else {
            let own = Own::new(self, terms, precision, format)?;
            let dots = own.by_diagonals() && self.comm.size() == 1;
            return Ok(CpuProduct { own, outer: None, dots, scratch: Vec::new() });
        };
        let (inner, outer) = Outer::cut(self, terms, halo, precision)?;
        let own = Own::new(self, &inner, precision, format);
        if !scalar || self.comm.size() == 1 {
            let own = own?;
            return Ok(CpuProduct { dots: own.by_diagonals(), own, outer: Some(outer), scratch: Vec::new() });
        }
        // All ranks must agree: a rank that sums in its product and one that sums afterwards would deadlock.
        let own = agree(self.comm(), own)?;
        let mut ranks = [own.by_diagonals() as u32 as f64];
        self.comm.sum(&mut ranks)?;
        let dots = ranks[0] == self.comm.size() as f64;
        Ok(CpuProduct { own, outer: Some(outer), dots, scratch: Vec::new() })
    }

    fn format(p: &CpuProduct) -> Format {
        match &p.own {
            Own::Diagonals(d) => d.format(),
            Own::Rows(rows) if (rows.block, rows.stages, rows.coefficients.len()) == (1, 1, 1) => Format::Csr,
            Own::Rows(_) => Format::Auto,
        }
    }

    fn multiply(&self, p: &CpuProduct, x: &Vec<f64>, y: &mut Vec<f64>) -> Result<()> {
        p.own.check(x, y)?;
        let Some(outer) = &p.outer else {
            p.own.multiply(self, x, y);
            return Ok(());
        };
        outer.start(self, x)?;
        p.own.multiply(self, x, y);
        outer.finish(self, y, None).map(drop)
    }

    fn multiply_columns(&self, p: &CpuProduct, x: &[&Vec<f64>], y: &mut [&mut Vec<f64>]) -> Result<()> {
        match &p.outer {
            None => self.multiply_together(p, x, y),
            Some(_) => x.iter().zip(y).try_for_each(|(x, y)| self.multiply(p, x, y)),
        }
    }

    fn multiply_with_dots(
        &self,
        p: &CpuProduct,
        x: &Vec<f64>,
        y: &mut Vec<f64>,
        scalars: &mut CpuScalars,
        dots: Dots,
    ) -> Result<bool> {
        let diagonals = match &p.own {
            Own::Diagonals(d) if p.dots && (p.outer.is_some() || d.rows() == self.len()) => d,
            _ => {
                self.multiply(p, x, y)?;
                return Ok(false);
            }
        };
        p.own.check(x, y)?;
        if self.stops(scalars) {
            return Ok(true);
        }
        let (mut sums, count) = ([0.0; 2], dots.count());
        let sums = &mut sums[..count];
        match &p.outer {
            None => diagonals.multiply_with_dots(self, x, y, dots, sums),
            Some(outer) => {
                outer.start(self, x)?;
                diagonals.multiply_with_dots(self, x, y, dots, sums);
                sums[count - 1] += outer.finish(self, y, Some(x))?;
            }
        }
        self.total(sums)?;
        scalars.values[dots.slot()..dots.slot() + count].copy_from_slice(sums);
        Ok(true)
    }

    fn residual(
        &self,
        p: &CpuProduct,
        b: &Vec<f64>,
        x: &Vec<f64>,
        r: &mut Vec<f64>,
        m: &mut Vec<f64>,
    ) -> Result<()> {
        p.residual(self, b, x, r, m)
    }

    fn update_values(&self, p: &mut CpuProduct, t: usize, values: Numbers) -> Result<()> {
        let values = values.on_host(&mut p.scratch)?;
        match &mut p.outer {
            None => p.own.update_values(t, values),
            Some(outer) => outer.update_values(&mut p.own, t, values),
        }
    }

    fn update_coefficients(&self, p: &mut CpuProduct, coefficients: &[Dense]) -> Result<()> {
        match &mut p.own {
            Own::Rows(rows) => rows.update_coefficients(coefficients)?,
            Own::Diagonals(_) if coefficients.len() != 1 || coefficients[0].rows() != 1 => {
                let what = "this operator was built for one matrix of scalar rows; build a new operator for \
                            several terms or stages";
                return Err(Error::Unsupported(what.into()));
            }
            Own::Diagonals(d) => d.set_coefficient(coefficients[0][(0, 0)]),
        }
        p.outer.as_mut().map_or(Ok(()), |outer| outer.update_coefficients(self, coefficients))
    }

    fn product_bytes(p: &CpuProduct) -> u64 {
        p.own.bytes() + p.outer.as_ref().map_or(0, Outer::bytes)
    }

    fn product_key(_: &CpuProduct) -> u64 {
        0 // nothing is recorded on a CPU
    }
}

impl Own {
    fn new(space: &Cpu, terms: &Terms, precision: Precision, format: Format) -> Result<Self> {
        if let [(c, a)] = &terms.terms[..]
            && (a.block(), c.rows()) == (1, 1)
            && let Some(diagonals) = Diagonals::new(a, precision, c[(0, 0)], format)?
        {
            return Ok(Own::Diagonals(diagonals));
        }
        Rows::new(space, terms, precision).map(Own::Rows)
    }

    fn by_diagonals(&self) -> bool {
        matches!(self, Own::Diagonals(_))
    }

    /// Refuses vectors of wrong lengths.
    pub(super) fn check(&self, x: &[f64], y: &[f64]) -> Result<()> {
        match self {
            Own::Rows(rows) => {
                let run = rows.run();
                check_lengths(rows.block_rows * run, rows.block_columns * run, x.len(), y.len())
            }
            Own::Diagonals(d) => check_lengths(d.rows(), d.rows(), x.len(), y.len()),
        }
    }

    fn multiply(&self, space: &Cpu, x: &[f64], y: &mut [f64]) {
        match self {
            Own::Rows(rows) => rows.multiply(space.pool(), x, y),
            Own::Diagonals(d) => d.multiply(space, x, y),
        }
    }

    /// Sets new values of term `t`.
    pub(super) fn update_values(&mut self, t: usize, values: &[f64]) -> Result<()> {
        match self {
            Own::Rows(rows) => rows.update_values(t, values),
            Own::Diagonals(d) => d.update_values(t, values),
        }
    }

    /// Returns the first block of each row of term `t`, and the numbers per block.
    pub(super) fn row_ptr(&self, t: usize) -> (&[usize], usize) {
        match self {
            Own::Rows(rows) => (rows.row_ptr(t), rows.block * rows.block),
            Own::Diagonals(d) => (d.row_ptr(), 1),
        }
    }

    fn bytes(&self) -> u64 {
        match self {
            Own::Rows(rows) => rows.bytes(),
            Own::Diagonals(d) => d.bytes(),
        }
    }
}

impl Rows {
    /// Returns pattern, number of columns, values and coefficient of a single matrix of scalar rows in f64.
    pub(super) fn scalars(&self) -> Option<(SharedPattern, usize, &[f64], f64)> {
        let ([group], [c]) = (&self.groups[..], &self.coefficients[..]) else { return None };
        let Values::F64(values) = &group.values else { return None };
        let entries = group.col.len();
        ((self.block, self.stages) == (1, 1))
            .then(|| (group.pattern.clone(), self.block_columns, &values[..entries], c[0]))
    }

    /// Stores the terms for the threads of a space.
    pub(super) fn new(space: &Cpu, terms: &Terms, precision: Precision) -> Result<Self> {
        let (b, count) = (terms.block(), terms.terms.len());
        if !(1..=2).contains(&count) {
            return Err(Error::Unsupported(format!(
                "a sum of {count} terms is not supported; use one or two terms"
            )));
        }
        let groups: Vec<Range<usize>> = match (count, terms.shared_pattern()) {
            (2, false) => vec![0..1, 1..2],
            _ => std::iter::once(0..count).collect(),
        };
        let groups: Vec<Group> = groups
            .into_iter()
            .map(|range| {
                let first = &terms.terms[range.start].1;
                let total = first.blocks() * b * b * range.len();
                let values = match precision {
                    Precision::F64 => Values::F64(crate::threads::zeros(total + PADDING, "a matrix")?),
                    Precision::F32 => Values::F32(crate::threads::zeros(total + PADDING, "a matrix")?),
                };
                let pattern = first.storage().shared_pattern();
                let mut group = Group { pattern, values, terms: range.clone() };
                for t in range {
                    group.store(t, b, terms.terms[t].1.values());
                }
                Ok(group)
            })
            .collect::<Result<_>>()?;
        let mut rows = Self {
            block: b,
            stages: terms.stages(),
            block_rows: terms.block_rows(),
            block_columns: terms.terms[0].1.block_columns(),
            groups,
            coefficients: terms.terms.iter().map(|t| t.0.values().to_vec()).collect(),
            pieces: Vec::new(),
            long: LongRows::default(),
        };
        rows.pieces = balance(&rows.groups, rows.block_rows, space.pool().pieces(rows.bytes() as usize));
        if rows.is_scalar() {
            rows.long = LongRows::new(&rows.groups[0].row_ptr, &rows.pieces);
        }
        Ok(rows)
    }

    /// Sets new values of term `t`, in the natural order of [`Bsr::values`](crate::matrix::Bsr::values).
    pub(super) fn update_values(&mut self, t: usize, values: &[f64]) -> Result<()> {
        let p = self;
        let bb = p.block * p.block;
        let group = p.groups.iter_mut().find(|g| g.terms.contains(&t)).expect("the term was checked");
        if values.len() != group.col.len() * bb {
            return Err(Error::invalid(format!(
                "{} values for {} blocks of {1}×{1}; {2} were expected",
                values.len(),
                p.block,
                group.col.len() * bb
            )));
        }
        if let Some(e) = crate::matrix::first_not_finite(values) {
            let block = e / bb;
            return Err(Error::NotFinite {
                what: format!("new values of term {t}"),
                row: (group.row_ptr.partition_point(|&q| q <= block) - 1) * p.block + e % bb / p.block,
                column: group.col[block] as usize * p.block + e % p.block,
                value: values[e],
            });
        }
        group.store(t, p.block, values);
        Ok(())
    }

    /// Sets new coefficients, of any order.
    pub(super) fn update_coefficients(&mut self, coefficients: &[Dense]) -> Result<()> {
        let p = self;
        if coefficients.len() != p.coefficients.len() {
            return Err(Error::invalid(format!(
                "{} coefficients for {} terms; expected one per term",
                coefficients.len(),
                p.coefficients.len()
            )));
        }
        p.stages = coefficients[0].rows();
        for (to, from) in p.coefficients.iter_mut().zip(coefficients) {
            to.clear();
            to.extend_from_slice(from.values());
        }
        Ok(())
    }

    /// Least number of bytes that one product moves.
    pub(super) fn bytes(&self) -> u64 {
        let p = self;
        let groups = p.groups.iter().map(|g| {
            let values = match &g.values {
                Values::F64(v) => 8 * (v.len() - PADDING),
                Values::F32(v) => 4 * (v.len() - PADDING),
            };
            values + 4 * g.col.len() + 8 * g.row_ptr.len()
        });
        (groups.sum::<usize>() + 8 * p.block * p.stages * (p.block_rows + p.block_columns)) as u64
    }

    /// Computes y = A x.
    pub(super) fn multiply(&self, pool: &Pool, x: &[f64], y: &mut [f64]) {
        if self.has_long_rows() {
            return self.long.multiply(self, pool, x, y);
        }
        let run = self.kernel();
        let bs = self.block * self.stages;
        let y = Disjoint::new(y);
        pool.run(self.pieces.len(), |piece| {
            let rows = self.pieces[piece].clone();
            // SAFETY: pieces do not overlap.
            let y = unsafe { y.range(rows.start * bs..rows.end * bs) };
            run(self, rows, x, y);
        });
    }

    /// Returns the kernel for rows.
    pub(super) fn kernel(&self) -> Kernel {
        if self.is_scalar() { scalar::KERNEL } else { kernel(self.block, self.stages) }
    }

    /// True if rows are cut into segments, which the kernel does not know.
    pub(super) fn has_long_rows(&self) -> bool {
        self.is_scalar() && !self.long.is_empty()
    }

    /// True for one term of scalars without stages, on a processor that has a kernel for it.
    fn is_scalar(&self) -> bool {
        (self.block, self.stages, self.coefficients.len()) == (1, 1, 1) && scalar::available()
    }

    /// Returns the first block of each row of the group that holds term `t`.
    pub(super) fn row_ptr(&self, t: usize) -> &[usize] {
        let group = self.groups.iter().find(|g| g.terms.contains(&t)).expect("the term was checked");
        &group.row_ptr
    }

    /// Block size b.
    pub(super) fn block(&self) -> usize {
        self.block
    }

    /// Number of stages s.
    pub(super) fn stages(&self) -> usize {
        self.stages
    }

    /// Numbers per node: b·s.
    pub(super) fn run(&self) -> usize {
        self.block * self.stages
    }
}

impl Group {
    /// Writes the row-major blocks of term `t` into place.
    fn store(&mut self, t: usize, b: usize, values: &[f64]) {
        let (t, count) = (t - self.terms.start, self.terms.len());
        match &mut self.values {
            Values::F64(to) => store(to, t, count, b, values, |v| v),
            Values::F32(to) => store(to, t, count, b, values, |v| v as f32),
        }
    }
}

/// Writes the row-major blocks of the `t`-th of `count` terms into place, on all threads.
fn store<V: Send>(
    to: &mut [V],
    t: usize,
    count: usize,
    b: usize,
    values: &[f64],
    narrow: impl Fn(f64) -> V + Sync,
) {
    const BLOCKS: usize = 1 << 14;
    let tasks = to.par_chunks_mut(BLOCKS * count * b * b).zip(values.par_chunks(BLOCKS * b * b));
    tasks.for_each(|(to, values)| {
        if b == 1 {
            to[t..].iter_mut().step_by(count).zip(values).for_each(|(to, &v)| *to = narrow(v));
            return;
        }
        for (to, block) in to.chunks_exact_mut(count * b * b).zip(values.chunks_exact(b * b)) {
            for (c, column) in to.chunks_exact_mut(count * b).enumerate() {
                let from = block[c..].iter().step_by(b);
                column[t * b..(t + 1) * b].iter_mut().zip(from).for_each(|(to, &v)| *to = narrow(v));
            }
        }
    });
}

/// Returns runs of block rows with about equal work, where the overhead of a row counts as one block.
fn balance(groups: &[Group], rows: usize, pieces: usize) -> Vec<Range<usize>> {
    let work = |i: usize| groups.iter().map(|g| g.row_ptr[i] * g.terms.len()).sum::<usize>() + i;
    let total = work(rows);
    let cut = |piece: usize| {
        let goal = total * piece / pieces;
        let (mut low, mut high) = (0, rows);
        while low < high {
            let middle = (low + high) / 2;
            if work(middle) < goal { low = middle + 1 } else { high = middle }
        }
        low
    };
    (0..pieces).map(|p| cut(p)..if p + 1 == pieces { rows } else { cut(p + 1) }).collect()
}

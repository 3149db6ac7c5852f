//! Smoothed aggregation from near-null vectors (Vaněk, Mandel and Brezina 1996).
//!
//! Let B be the rows of the k near-null vectors in an aggregate, and B = Q R. Q gives the aggregate's rows of
//! the tentative interpolation T, whose range contains the vectors. R gives the aggregate's rows of the
//! vectors on the coarser level. P = (I − ω D⁻¹A) T, where D consists of the diagonal blocks of A, and ω is
//! 4/3 divided by the largest eigenvalue of D⁻¹A. A coarse node has k unknowns.
//!
//! The vectors may be linearly dependent on an aggregate, as the six rigid modes are on a single node. Then
//! some columns of Q are zero, and so are the rows and columns of Pᵀ A P for these unknowns. Their diagonal
//! entries are filled, so that these unknowns stay 0.
//!
//! All sums have a fixed order, so results are the same on any number of threads.

use super::super::{CoarsenKind, Coarsening, NearNull, NearNullTransfer, Nodal, Transfer};
use super::around::Around;
use super::galerkin::Row;
use super::parallel::{Rows, Scratch, assemble, fill, lengths, map, runs};
use super::{FINE, aggregate};
use crate::matrix::Bsr;
use crate::precond::invert_block;
use crate::precond::spec::kind_name;
use crate::space::random;
use crate::threads::Pool;
use crate::{Error, Result};
use std::sync::Arc;

/// A matrix of blocks that need not be square.
#[derive(Debug, Clone)]
pub struct Blocks {
    row_ptr: Vec<usize>,
    col: Vec<u32>,
    values: Vec<f64>,
    /// Number of rows and of columns of a block.
    shape: [usize; 2],
    /// Number of block columns.
    columns: usize,
    /// Number of rows of this rank, which come first.
    own: usize,
    /// Number of block columns that these rows use.
    used: usize,
}

/// Relative size below which the rest of a column of B counts as linearly dependent on earlier columns.
pub(crate) const DEPENDENT: f64 = 1e-10;
/// Product of ω and the largest eigenvalue.
pub(crate) const OMEGA: f64 = 4.0 / 3.0;
/// Number of power iterations for this eigenvalue.
pub(crate) const ITERATIONS: usize = 12;
/// Bytes that a chunk of work reads for each number of its result.
const TRAFFIC: usize = 16;

impl Blocks {
    /// Joins rows that were computed in chunks.
    fn joined(parts: Vec<Rows>, shape: [usize; 2], columns: usize) -> Self {
        let (mut row_ptr, mut col, mut values) = (vec![0], Vec::new(), Vec::new());
        for part in parts {
            let before = col.len();
            row_ptr.extend(part.row_ptr[1..].iter().map(|end| before + end));
            col.extend(part.col);
            values.extend(part.values);
        }
        let own = row_ptr.len() - 1;
        Self { row_ptr, col, values, shape, columns, own, used: columns }
    }

    fn block(&self, p: usize) -> &[f64] {
        let size = self.shape[0] * self.shape[1];
        &self.values[p * size..][..size]
    }

    /// Returns the beginning of each block column in a list of the blocks of own rows, and this list. It is
    /// sorted by block column and then by row. Each item has the row and the position of a block.
    fn by_columns(&self) -> (Vec<usize>, Vec<(u32, usize)>) {
        let blocks = self.row_ptr[self.own];
        let mut begin = vec![0usize; self.used + 1];
        self.col[..blocks].iter().for_each(|&j| begin[j as usize + 1] += 1);
        (0..self.used).for_each(|j| begin[j + 1] += begin[j]);
        let (mut next, mut list) = (begin.clone(), vec![(0, 0); blocks]);
        for i in 0..self.own {
            for p in self.row_ptr[i]..self.row_ptr[i + 1] {
                let at = &mut next[self.col[p] as usize];
                list[*at] = (i as u32, p);
                *at += 1;
            }
        }
        (begin, list)
    }

    /// Returns P and R of own rows as matrices of square blocks. The block size is the largest that divides
    /// both sides of the blocks.
    pub fn transfer(&self) -> Transfer {
        let [b, k] = self.shape;
        let g = (1..=b.min(k)).rev().find(|g| b % g == 0 && k % g == 0).unwrap_or(1);
        let (rows, columns) = (b / g, k / g);
        let mut p = Rows::default();
        for i in 0..self.own {
            for r in 0..rows {
                for e in self.row_ptr[i]..self.row_ptr[i + 1] {
                    for c in 0..columns {
                        p.col.push((self.col[e] as usize * columns + c) as u32);
                        let square = |at: usize| self.block(e)[(r * g + at / g) * k + c * g + at % g];
                        p.values.extend((0..g * g).map(square));
                    }
                }
                p.end_row();
            }
        }
        let (begin, list) = self.by_columns();
        let mut r = Rows::default();
        for j in 0..self.used {
            for c in 0..columns {
                for &(i, e) in &list[begin[j]..begin[j + 1]] {
                    for row in 0..rows {
                        r.col.push((i as usize * rows + row) as u32);
                        let square = |at: usize| self.block(e)[(row * g + at % g) * k + c * g + at / g];
                        r.values.extend((0..g * g).map(square));
                    }
                }
                r.end_row();
            }
        }
        let (fine, coarse) = (self.own * rows, self.used * columns);
        let one = &Pool::new(1);
        Transfer {
            prolongation: assemble(one, g, coarse, vec![p]),
            restriction: assemble(one, g, fine, vec![r]),
            coarse: Vec::new(),
        }
    }
}

/// See [`Coarsen::near_null_transfer`](super::super::Coarsen::near_null_transfer).
pub fn transfer(
    pool: &Arc<Pool>,
    a: &Bsr,
    couplings: &Bsr,
    near: &NearNull,
    how: &Coarsening,
    level: usize,
    most: usize,
) -> Result<Option<NearNullTransfer>> {
    let (aggregates, smooth) = aggregates(pool, couplings, how, level)?;
    let columns = count(&aggregates);
    if columns == 0 || columns >= aggregates.len() || columns > most {
        return Ok(None);
    }
    let (p, near) = tentative(pool, &aggregates, columns, a.block(), near);
    Ok(Some(NearNullTransfer { nodal: Box::new(OnHost { pool: pool.clone(), p }), smooth, near }))
}

/// Returns the transfer for which every node is an aggregate, on a rank that has none to form.
pub fn unchanged(pool: &Arc<Pool>, a: &Bsr, near: &NearNull, smooth: bool) -> NearNullTransfer {
    let aggregates: Vec<u32> = (0..a.block_rows() as u32).collect();
    let (p, near) = tentative(pool, &aggregates, aggregates.len(), a.block(), near);
    NearNullTransfer { nodal: Box::new(OnHost { pool: pool.clone(), p }), smooth, near }
}

/// P by nodes on the host, with the threads that multiply it.
struct OnHost {
    pool: Arc<Pool>,
    p: Blocks,
}

impl Nodal for OnHost {
    fn damping(&self, a: &Bsr) -> Result<f64> {
        Ok(damping(&self.pool, a, &inverse_diagonal(&self.pool, a)))
    }
    fn smooth(&mut self, a: &Bsr, _: &Bsr, omega: f64) -> Result<()> {
        self.p = smoothed(&self.pool, a, &self.p, omega);
        Ok(())
    }
    fn rows_of(&self, nodes: &[u32]) -> Result<Rows> {
        let mut rows = Rows::default();
        for p in nodes.iter().map(|&i| self.p.row_ptr[i as usize]..self.p.row_ptr[i as usize + 1]) {
            rows.col.extend_from_slice(&self.p.col[p.clone()]);
            p.for_each(|p| rows.values.extend_from_slice(self.p.block(p)));
            rows.end_row();
        }
        Ok(rows)
    }
    fn join(&mut self, numbers: &[u32], below: &Rows, columns: usize, used: usize) -> Result<()> {
        let p = &mut self.p;
        let before = p.col.len();
        p.col.iter_mut().for_each(|j| *j = numbers[*j as usize]);
        p.row_ptr.extend(below.row_ptr[1..].iter().map(|end| before + end));
        p.col.extend_from_slice(&below.col);
        p.values.extend_from_slice(&below.values);
        (p.columns, p.used) = (columns, used);
        Ok(())
    }
    fn transfer(&self) -> Result<Transfer> {
        Ok(self.p.transfer())
    }
    fn product(&self, a: &Bsr) -> Result<Bsr> {
        Ok(product(&self.pool, a, &self.p))
    }
    fn fill_diagonal(&self, coarse: &mut Bsr) -> Result<()> {
        fill_diagonals(coarse);
        Ok(())
    }
    fn update(&self, a: &Bsr, coarse: &mut Bsr) -> Result<()> {
        coarse.values_mut().copy_from_slice(product(&self.pool, a, &self.p).values());
        self.fill_diagonal(coarse)
    }
}

/// Returns the number of aggregates.
pub(crate) fn count(aggregates: &[u32]) -> usize {
    aggregates.iter().filter(|&&number| number != FINE).max().map_or(0, |&n| n as usize + 1)
}

/// Returns the aggregate of each node, or [`FINE`], and whether P is smoothed.
///
/// # Errors
/// Classical coarsening or approximate ideal restriction, which do not use vectors; errors of matching nodes
/// in pairs.
pub(crate) fn aggregates(
    pool: &Pool,
    couplings: &Bsr,
    how: &Coarsening,
    level: usize,
) -> Result<(Vec<u32>, bool)> {
    let theta = aggregate::threshold(how.strength, level);
    match how.kind {
        kind @ (CoarsenKind::Classical | CoarsenKind::Air { .. }) => Err(Error::invalid(format!(
            "amg: coarsen={} does not accept near-null vectors; use coarsen=smoothed, or omit them",
            kind_name(kind)
        ))),
        CoarsenKind::Aggregation { smoothed: true } => {
            let alone = Around::of(None);
            let strong = aggregate::strong(pool, couplings, theta, aggregate::Couplings::All, alone)?;
            Ok((aggregate::by_independent_set(pool, couplings, &strong, level, alone)?.of, true))
        }
        CoarsenKind::Aggregation { smoothed: false } => {
            Ok((aggregate::by_matching(pool, couplings, theta, aggregate::passes(how, level), level)?, false))
        }
    }
}

/// Computes T, and the near-null vectors of the coarser level.
fn tentative(
    pool: &Pool,
    aggregates: &[u32],
    columns: usize,
    b: usize,
    near: &NearNull,
) -> (Blocks, NearNull) {
    let (k, n) = (near.count(), aggregates.len());
    let numbers = &*near.numbers(pool);
    // List the nodes of each aggregate in ascending order.
    let mut begin = vec![0usize; columns + 1];
    let nodes = || (0..n).filter(|&i| aggregates[i] != FINE);
    nodes().for_each(|i| begin[aggregates[i] as usize + 1] += 1);
    (0..columns).for_each(|j| begin[j + 1] += begin[j]);
    let (mut next, mut list) = (begin.clone(), vec![0u32; begin[columns]]);
    for i in nodes() {
        let at = &mut next[aggregates[i] as usize];
        list[*at] = i as u32;
        *at += 1;
    }
    let runs = runs(&begin, 0..columns, pool.pieces(list.len() * b * k * TRAFFIC));
    let parts = map(pool, runs.len(), |piece| {
        let (mut q, mut all_q, mut all_r) = (Vec::new(), Vec::new(), Vec::new());
        for j in runs[piece].clone() {
            let own = &list[begin[j]..begin[j + 1]];
            let rows = own.len() * b;
            q.clear();
            for mode in 0..k {
                let of_node = |&i: &u32| (0..b).map(move |c| numbers[(i as usize * b + c) * k + mode]);
                q.extend(own.iter().flat_map(of_node));
            }
            all_r.extend(orthogonalise(&mut q, rows, k));
            all_q.extend((0..rows * k).map(|e| q[e % k * rows + e / k]));
        }
        (all_q, all_r)
    });
    let mut row_ptr = vec![0; n + 1];
    (0..n).for_each(|i| row_ptr[i + 1] = row_ptr[i] + usize::from(aggregates[i] != FINE));
    let col = nodes().map(|i| aggregates[i]).collect();
    let mut values = vec![0.0; list.len() * b * k];
    let blocks = parts.iter().flat_map(|(q, _)| q.chunks_exact(b * k));
    for (&i, block) in list.iter().zip(blocks) {
        values[row_ptr[i as usize] * b * k..][..b * k].copy_from_slice(block);
    }
    let numbers = parts.into_iter().flat_map(|(_, r)| r).collect();
    (
        Blocks { row_ptr, col, values, shape: [b, k], columns, own: n, used: columns },
        NearNull::of_numbers(k, numbers),
    )
}

/// Factorises `k` columns of `rows` numbers as Q R by Gram–Schmidt with reorthogonalisation. Q replaces the
/// columns. Returns R, row-major. A column that is linearly dependent on earlier columns is 0 in Q, and so is
/// its row of R.
fn orthogonalise(q: &mut [f64], rows: usize, k: usize) -> Vec<f64> {
    let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
    let mut r = vec![0.0; k * k];
    for j in 0..k {
        let (known, rest) = q.split_at_mut(j * rows);
        let own = &mut rest[..rows];
        let before = dot(own, own).sqrt();
        for _ in 0..2 {
            for (l, other) in known.chunks_exact(rows.max(1)).enumerate() {
                let share = dot(other, own);
                r[l * k + j] += share;
                own.iter_mut().zip(other).for_each(|(v, o)| *v -= share * o);
            }
        }
        let norm = dot(own, own).sqrt();
        if norm > DEPENDENT * before {
            r[j * k + j] = norm;
            own.iter_mut().for_each(|v| *v /= norm);
        } else {
            own.fill(0.0);
        }
    }
    r
}

/// Computes `to` += `scale` x y, where x is an m×l block and y an l×k block.
#[inline(always)]
fn multiply(to: &mut [f64], x: &[f64], y: &[f64], l: usize, k: usize, scale: f64) {
    for (to, x) in to.chunks_exact_mut(k).zip(x.chunks_exact(l)) {
        for (x, y) in x.iter().zip(y.chunks_exact(k)) {
            to.iter_mut().zip(y).for_each(|(to, y)| *to += scale * x * y);
        }
    }
}

/// Returns the blocks of D⁻¹, row-major. A diagonal block that cannot be inverted gives 0, so that its rows
/// of P equal those of T.
fn inverse_diagonal(pool: &Pool, a: &Bsr) -> Vec<f64> {
    let (n, b) = (a.block_rows(), a.block());
    let mut inverse = vec![0.0; n * b * b];
    let length = n.div_ceil(pool.pieces(inverse.len() * TRAFFIC)).max(1);
    fill(pool, lengths(n, length).map(|rows| rows * b * b), &mut inverse, |piece, to| {
        let mut block = vec![0.0; b * b];
        for (i, to) in (piece * length..).zip(to.chunks_exact_mut(b * b)) {
            let Some(own) = a.diagonal_block(i) else { continue };
            block.copy_from_slice(own);
            if !invert_block(b, &mut block, to) {
                to.fill(0.0);
            }
        }
    });
    inverse
}

/// Returns ω. The eigenvalue comes from power iterations and a Rayleigh quotient of D⁻¹A in the inner product
/// of A, where ghosts are 0. Returns 0 if that is not a positive number.
fn damping(pool: &Pool, a: &Bsr, inverse: &[f64]) -> f64 {
    let (n, b) = (a.block_rows(), a.block());
    let mut v: Vec<f64> = (0..n * b).map(|i| random(1, i as u64)).collect();
    v.resize(a.block_columns() * b, 0.0);
    let (mut w, mut z) = (vec![0.0; n * b], vec![0.0; n * b]);
    let length = n.div_ceil(pool.pieces(a.stored() * TRAFFIC)).max(1);
    for step in 0..ITERATIONS {
        if step > 0 {
            v[..n * b].copy_from_slice(&z);
        }
        let pieces = || lengths(n, length).map(|rows| rows * b);
        fill(pool, pieces(), &mut w, |piece, w| {
            for (i, w) in (piece * length..).zip(w.chunks_exact_mut(b)) {
                w.fill(0.0);
                for p in a.row_ptr()[i]..a.row_ptr()[i + 1] {
                    let from = a.col()[p] as usize * b;
                    multiply(w, a.block_values(p), &v[from..from + b], b, 1, 1.0);
                }
            }
        });
        fill(pool, pieces(), &mut z, |piece, z| {
            for (i, z) in (piece * length..).zip(z.chunks_exact_mut(b)) {
                z.fill(0.0);
                multiply(z, &inverse[i * b * b..][..b * b], &w[i * b..][..b], b, 1, 1.0);
            }
        });
    }
    let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
    let largest = dot(&w, &z) / dot(&w, &v);
    if largest > 0.0 && largest.is_finite() { OMEGA / largest } else { 0.0 }
}

/// Returns own rows of (I − ω D⁻¹A) T.
fn smoothed(pool: &Pool, a: &Bsr, t: &Blocks, omega: f64) -> Blocks {
    let inverse = inverse_diagonal(pool, a);
    let ([b, k], n) = (t.shape, a.block_rows());
    let size = b * k;
    let runs = runs(a.row_ptr(), 0..n, pool.pieces(a.stored() * TRAFFIC));
    let slots = Scratch::new();
    let parts = map(pool, runs.len(), |piece| {
        let mut rows = Rows::default();
        slots.with(
            || (vec![0; t.columns], vec![0.0; size], (Vec::new(), Vec::new())),
            |(slot, block, work)| {
                for i in runs[piece].clone() {
                    let begin = rows.col.len();
                    let mut row = Row::new(slot, &mut rows);
                    // Start with row i of T, then add the contributions of A T, diagonal block included.
                    for p in t.row_ptr[i]..t.row_ptr[i + 1] {
                        block.fill(0.0);
                        row.add(size, t.col[p], 0.0, block);
                    }
                    for e in a.row_ptr()[i]..a.row_ptr()[i + 1] {
                        let j = a.col()[e] as usize;
                        for p in t.row_ptr[j]..t.row_ptr[j + 1] {
                            block.fill(0.0);
                            multiply(block, a.block_values(e), t.block(p), b, k, 1.0);
                            row.add(size, t.col[p], 1.0, block);
                        }
                    }
                    row.sort(size, work);
                    let own = (t.row_ptr[i] < t.row_ptr[i + 1]).then(|| t.row_ptr[i]);
                    for at in begin..rows.col.len() {
                        let to = &mut rows.values[at * size..(at + 1) * size];
                        block.fill(0.0);
                        if let Some(p) = own.filter(|&p| t.col[p] == rows.col[at]) {
                            block.copy_from_slice(t.block(p));
                        }
                        multiply(block, &inverse[i * b * b..][..b * b], to, b, k, -omega);
                        to.copy_from_slice(block);
                    }
                    rows.end_row();
                }
            },
        );
        rows
    });
    Blocks::joined(parts, t.shape, t.columns)
}

/// Returns P₀ᵀ A P with every diagonal entry stored, where P₀ has the own rows of P.
fn product(pool: &Pool, a: &Bsr, p: &Blocks) -> Bsr {
    let ([b, k], n) = (p.shape, a.block_rows());
    let slots = Scratch::new();
    let of_a = runs(a.row_ptr(), 0..n, pool.pieces(a.stored() * k * TRAFFIC));
    let ap = map(pool, of_a.len(), |piece| {
        let mut rows = Rows::default();
        slots.with(
            || (vec![0; p.columns], Vec::new(), (Vec::new(), Vec::new())),
            |(slot, block, _)| {
                block.resize(b * k, 0.0);
                for i in of_a[piece].clone() {
                    let mut row = Row::new(slot, &mut rows);
                    for e in a.row_ptr()[i]..a.row_ptr()[i + 1] {
                        let j = a.col()[e] as usize;
                        for q in p.row_ptr[j]..p.row_ptr[j + 1] {
                            block.fill(0.0);
                            multiply(block, a.block_values(e), p.block(q), b, k, 1.0);
                            row.add(b * k, p.col[q], 1.0, block);
                        }
                    }
                    rows.end_row();
                }
            },
        );
        rows
    });
    let ap = Blocks::joined(ap, [b, k], p.columns);
    let (begin, list) = p.by_columns();
    let of_p = runs(&begin, 0..p.used, pool.pieces(list.len() * k * k * TRAFFIC));
    let parts = map(pool, of_p.len(), |piece| {
        let mut rows = Rows::default();
        slots.with(
            || (vec![0; p.columns], Vec::new(), (Vec::new(), Vec::new())),
            |(slot, block, work)| {
                block.resize(k * k, 0.0);
                for j in of_p[piece].clone() {
                    let mut row = Row::new(slot, &mut rows);
                    block.fill(0.0);
                    row.add(k * k, j as u32, 0.0, block);
                    for &(i, q) in &list[begin[j]..begin[j + 1]] {
                        let r = p.block(q);
                        for e in ap.row_ptr[i as usize]..ap.row_ptr[i as usize + 1] {
                            block.fill(0.0);
                            for (r, ap) in r.chunks_exact(k).zip(ap.block(e).chunks_exact(k)) {
                                multiply(block, r, ap, 1, k, 1.0);
                            }
                            row.add(k * k, ap.col[e], 1.0, block);
                        }
                    }
                    row.sort(k * k, work);
                    rows.end_row();
                }
            },
        );
        rows
    });
    assemble(pool, k, p.columns, parts)
}

/// See [`Nodal::fill_diagonal`].
fn fill_diagonals(coarse: &mut Bsr) {
    let k = coarse.block();
    let at: Vec<usize> = (0..coarse.block_rows()).filter_map(|i| coarse.diagonal_position(i)).collect();
    let values = coarse.values_mut();
    at.into_iter().for_each(|p| fill_diagonal(&mut values[p * k * k..(p + 1) * k * k], k));
}

/// Sets diagonal entries of 0 to the largest diagonal entry of the block, or to 1.
fn fill_diagonal(block: &mut [f64], k: usize) {
    let entry = |c: usize| block[c * (k + 1)];
    let largest = (0..k).map(entry).fold(0.0f64, |most, v| if v.abs() > most.abs() { v } else { most });
    let filled = if largest == 0.0 { 1.0 } else { largest };
    for v in block.iter_mut().step_by(k + 1).filter(|v| **v == 0.0) {
        *v = filled;
    }
}

#[cfg(test)]
mod tests;

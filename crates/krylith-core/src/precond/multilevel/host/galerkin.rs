//! Sparse matrices of an AMG set-up: couplings of nodes, transposes, R A P and ℓ1 diagonals.
//!
//! R A P is computed row by row (Gustavson 1978), first rows of A P, then rows of R (A P). Each entry is
//! summed in ascending order of the inner index. So the results are the same on any number of threads, and an
//! update gives the same bits as a new product. A chunk of rows of A P is computed when the first coarse row
//! needs it, and freed after the last. If nearby rows have nearby numbers, only a small window of A P exists
//! at a time, and it stays in the caches.

mod scalar;

use super::super::Transfer;
use super::parallel::{Rows, Scratch, assemble, fill, lengths, map, runs};
use super::sums::Sums;
use crate::matrix::storage::Storage;
use crate::matrix::{Arrays, Bsr, Dense};
use crate::memory::Pattern;
use crate::operator::{Terms, turned, with_block};
use crate::precond::invert_block;
use crate::precond::jacobi::{BAD_BLOCKS, bad_block};
use crate::threads::Pool;
use crate::{Error, Result};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// A term as [`Terms`] stores it.
type Term<'a> = (Dense, Cow<'a, Bsr>);

/// Calls `f(j, at)` for each column j in row `i` of any term, in ascending order. `at` has the position of
/// the entry in each term.
#[inline(always)]
fn union_row(terms: &[Term], i: usize, mut f: impl FnMut(u32, [Option<usize>; 2])) {
    let row = |t: usize| {
        terms.get(t).map_or((0..0, &[][..]), |(_, a)| (a.row_ptr()[i]..a.row_ptr()[i + 1], a.col()))
    };
    let ([mut p, mut q], [pc, qc]) = {
        let ((p, pc), (q, qc)) = (row(0), row(1));
        ([p, q], [pc, qc])
    };
    loop {
        let next = |at: &Range<usize>, col: &[u32]| if at.is_empty() { None } else { Some(col[at.start]) };
        let (a, b) = (next(&p, pc), next(&q, qc));
        let Some(j) = a.into_iter().chain(b).min() else { return };
        let take = |at: &mut Range<usize>, has: Option<u32>| if has == Some(j) { at.next() } else { None };
        f(j, [take(&mut p, a), take(&mut q, b)]);
    }
}

fn frobenius(values: &[f64]) -> f64 {
    values.iter().map(|v| v * v).sum::<f64>().sqrt()
}

/// See [`Coarsen::couplings`](super::super::Coarsen::couplings).
pub fn couplings(pool: &Pool, terms: &Terms) -> Result<Bsr> {
    if let ([(c, a)], 1, 1) = (&terms.terms[..], terms.block(), terms.stages()) {
        let mut a = Bsr::clone(a);
        if c[(0, 0)] != 1.0 {
            let (n, length) = (a.stored(), a.stored().div_ceil(pool.pieces(a.stored() * 8)).max(1));
            fill(pool, lengths(n, length), a.values_mut(), |_, v| v.iter_mut().for_each(|v| *v *= c[(0, 0)]));
        }
        return Ok(a);
    }
    let (n, first) = (terms.block_rows(), &terms.terms[0].1);
    let norms: Vec<f64> = terms.terms.iter().map(|(c, _)| frobenius(c.values())).collect();
    let bytes: usize = terms.terms.iter().map(|t| t.1.stored() * 8).sum();
    let runs = runs(first.row_ptr(), 0..n, pool.pieces(bytes));
    let parts = map(pool, runs.len(), |k| {
        let mut rows = Rows::default();
        for i in runs[k].clone() {
            let (mut diagonal, mut sum) = (None, 0.0);
            union_row(&terms.terms, i, |j, at| {
                if j as usize >= i && diagonal.is_none() {
                    diagonal = Some(rows.col.len());
                    rows.col.push(i as u32);
                    rows.values.push(0.0);
                }
                if j as usize == i {
                    return;
                }
                let mut size = 0.0;
                for ((at, (_, a)), norm) in at.iter().zip(&terms.terms).zip(&norms) {
                    if let Some(p) = *at {
                        size += norm * frobenius(a.block_values(p));
                    }
                }
                rows.col.push(j);
                rows.values.push(-size);
                sum += size;
            });
            let at = diagonal.unwrap_or_else(|| {
                rows.col.push(i as u32);
                rows.values.push(0.0);
                rows.col.len() - 1
            });
            rows.values[at] = sum;
            rows.end_row();
        }
        rows
    });
    // If there are ghosts, their columns follow those of own nodes.
    Ok(assemble(pool, 1, first.block_columns(), parts))
}

/// Returns the transpose of a matrix of 1×1 blocks.
pub fn transpose(pool: &Pool, a: &Bsr) -> Result<Bsr> {
    let (n, m, values) = (a.block_rows(), a.block_columns(), a.values());
    // Each piece counts its entries in every column, so there are no more pieces than threads.
    let pieces = pool.pieces(a.blocks() * 12).min(pool.threads());
    let run = |pieces: usize, f: &(dyn Fn(usize) + Sync)| pool.run(pieces, f);
    let turned = turned(a.row_ptr(), a.col(), m, pieces, run, |p| values[p].to_bits());
    let values = turned.numbers.into_iter().map(f64::from_bits).collect();
    Ok(Bsr::from_storage(1, Storage::host(m, n, turned.row_ptr, turned.col, values)))
}

/// Base-2 logarithm of the number of rows in a chunk of A P.
const CHUNK: u32 = 11;
/// Entries of R that a thread processes between two updates of the window of A P.
const SLAB: usize = 1 << 16;

/// One row of a sparse sum. It lists each column once, in the order of arrival. `slot` has the position of
/// each column in the row.
pub(super) struct Row<'a> {
    slot: &'a mut [u32],
    begin: usize,
    rows: &'a mut Rows,
}

impl<'a> Row<'a> {
    /// Starts a row after the existing ones. `slot` may hold anything.
    pub fn new(slot: &'a mut [u32], rows: &'a mut Rows) -> Self {
        Self { slot, begin: rows.col.len(), rows }
    }

    /// Adds `weight · block` in column `j`.
    #[inline(always)]
    pub fn add(&mut self, bb: usize, j: u32, weight: f64, block: &[f64]) {
        let at = self.begin + self.slot[j as usize] as usize;
        if self.rows.col.get(at) == Some(&j) {
            let to = &mut self.rows.values[at * bb..(at + 1) * bb];
            to.iter_mut().zip(&block[..bb]).for_each(|(to, v)| *to += weight * v);
        } else {
            self.slot[j as usize] = (self.rows.col.len() - self.begin) as u32;
            self.rows.col.push(j);
            // The first product is added to 0, as in updates of values, so that both agree to the last bit.
            self.rows.values.extend(block[..bb].iter().map(|v| 0.0 + weight * v));
        }
    }

    /// Sorts the row by column.
    #[inline(always)]
    pub fn sort(self, bb: usize, work: &mut (Vec<u64>, Vec<f64>)) {
        let (order, values) = work;
        order.clear();
        let col = &mut self.rows.col[self.begin..];
        order.extend(col.iter().enumerate().map(|(k, &j)| u64::from(j) << 32 | k as u64));
        order.sort_unstable();
        values.clear();
        values.extend_from_slice(&self.rows.values[self.begin * bb..]);
        let to = self.rows.values[self.begin * bb..].chunks_exact_mut(bb);
        for ((key, col), to) in order.iter().zip(col).zip(to) {
            *col = (key >> 32) as u32;
            let from = *key as u32 as usize;
            to.copy_from_slice(&values[from * bb..(from + 1) * bb]);
        }
    }
}

/// Appends these rows of A P to `to`, with unordered columns.
#[inline(always)]
fn rows_of_ap(b: usize, a: &Bsr, p: &Bsr, rows: Range<usize>, slot: &mut [u32], to: &mut Rows) {
    let bb = b * b;
    let (row_ptr, col, values) = (a.row_ptr(), a.col(), a.values());
    let (to_coarse, coarse, weights) = (p.row_ptr(), p.col(), p.values());
    for i in rows {
        let mut row = Row::new(slot, to);
        let entries = row_ptr[i]..row_ptr[i + 1];
        let blocks = values[entries.start * bb..entries.end * bb].chunks_exact(bb);
        for (&k, block) in col[entries].iter().zip(blocks) {
            let of = to_coarse[k as usize]..to_coarse[k as usize + 1];
            for (&j, &weight) in coarse[of.clone()].iter().zip(&weights[of]) {
                row.add(bb, j, weight, block);
            }
        }
        to.end_row();
    }
}

/// Appends these rows of R (A P) to `to`, with ascending columns.
#[inline(always)]
fn rows_of_rap(b: usize, r: &Bsr, ap: &Window, rows: Range<usize>, slot: &mut [u32], to: &mut Rows) {
    let bb = b * b;
    let mut work = (Vec::new(), Vec::new());
    let zero = vec![0.0; bb];
    for i in rows {
        let mut row = Row::new(slot, to);
        row.add(bb, i as u32, 0.0, &zero);
        for q in r.row_ptr()[i]..r.row_ptr()[i + 1] {
            let weight = r.values()[q];
            let (col, values) = ap.row(bb, r.col()[q] as usize);
            for (&j, block) in col.iter().zip(values.chunks_exact(bb)) {
                row.add(bb, j, weight, block);
            }
        }
        row.sort(bb, &mut work);
        to.end_row();
    }
}

/// Computes these rows of R (A P) in an existing pattern; returns false if the pattern lacks an entry.
#[inline(always)]
fn values_of_rap(
    b: usize,
    r: &Bsr,
    ap: &Window,
    rows: Range<usize>,
    slot: &mut [u32],
    coarse: &Pattern,
    to: &mut [f64],
) -> bool {
    let bb = b * b;
    to.fill(0.0);
    let first = coarse.row_ptr[rows.start];
    let mut known = true;
    for i in rows {
        let (begin, end) = (coarse.row_ptr[i], coarse.row_ptr[i + 1]);
        let own = &coarse.col[begin..end];
        own.iter().enumerate().for_each(|(k, &j)| slot[j as usize] = k as u32);
        let to = &mut to[(begin - first) * bb..(end - first) * bb];
        for q in r.row_ptr()[i]..r.row_ptr()[i + 1] {
            let weight = r.values()[q];
            let (col, values) = ap.row(bb, r.col()[q] as usize);
            for (&j, block) in col.iter().zip(values.chunks_exact(bb)) {
                let k = slot[j as usize] as usize;
                if own.get(k) == Some(&j) {
                    to[k * bb..(k + 1) * bb].iter_mut().zip(block).for_each(|(to, v)| *to += weight * v);
                } else {
                    known = false;
                }
            }
        }
    }
    known
}

/// The rows of A P that currently exist.
struct Window {
    chunks: Vec<Option<Rows>>,
}

impl Window {
    /// Returns the columns and blocks of row `i`.
    #[inline(always)]
    fn row(&self, bb: usize, i: usize) -> (&[u32], &[f64]) {
        let chunk =
            self.chunks[i >> CHUNK].as_ref().expect("the window holds all rows of A P that R refers to");
        let k = i & ((1 << CHUNK) - 1);
        let entries = chunk.row_ptr[k]..chunk.row_ptr[k + 1];
        (&chunk.col[entries.clone()], &chunk.values[entries.start * bb..entries.end * bb])
    }
}

/// Memory that successive pieces of work reuse.
struct Spare {
    columns: usize,
    slots: Scratch<Vec<u32>>,
    sums: Scratch<Sums>,
    rows: Mutex<Vec<Rows>>,
}

impl Spare {
    fn with_slot<T>(&self, f: impl FnOnce(&mut [u32]) -> T) -> T {
        self.slots.with(|| vec![0; self.columns], |slot| f(slot))
    }

    fn with_sums(&self, f: impl FnOnce(&mut Sums)) {
        self.sums.with(|| Sums::new(self.columns), f);
    }

    fn rows(&self) -> Rows {
        let mut rows = self.rows.lock().unwrap_or_else(|e| e.into_inner()).pop().unwrap_or_default();
        rows.clear();
        rows
    }
}

/// Returns the first and the last coarse row that need each chunk of A P.
fn uses(
    pool: &Pool,
    t: &Transfer,
    chunks: usize,
    rows_of: &(impl Fn(usize) -> Range<usize> + Sync),
) -> Vec<Option<(u32, u32)>> {
    type Uses = Option<(u32, u32)>;
    let joined = |all: Uses, (first, last): (u32, u32)| {
        Some(all.map_or((first, last), |(low, high)| (low.min(first), high.max(last))))
    };
    if t.coarse.is_empty() {
        // With R = Pᵀ, these are the columns of P, of which only the first and the last in each row matter.
        let p = &t.prolongation;
        return map(pool, chunks, |chunk| {
            let rows = rows_of(chunk).map(|i| &p.col()[p.row_ptr()[i]..p.row_ptr()[i + 1]]);
            rows.filter_map(|row| Some((*row.first()?, *row.last()?))).fold(None, joined)
        });
    }
    let r = &t.restriction;
    let pieces = runs(r.row_ptr(), 0..r.block_rows(), pool.pieces(12 * r.blocks()).min(pool.threads()));
    let found = map(pool, pieces.len(), |piece| {
        let mut uses: Vec<Uses> = vec![None; chunks];
        for i in pieces[piece].clone() {
            for &k in &r.col()[r.row_ptr()[i]..r.row_ptr()[i + 1]] {
                let of = &mut uses[k as usize >> CHUNK];
                *of = joined(*of, (i as u32, i as u32));
            }
        }
        uses
    });
    let all = |chunk: usize| found.iter().filter_map(|uses| uses[chunk]).fold(None, joined);
    (0..chunks).map(all).collect()
}

/// Calls `each(runs, window, spare)` for successive groups of coarse rows. `runs` are the ranges of rows for
/// the threads, and `window` has the part of A P that they need.
fn by_slabs(pool: &Pool, a: &Bsr, t: &Transfer, mut each: impl FnMut(&[Range<usize>], &Window, &Spare)) {
    let (p, r, bb) = (&t.prolongation, &t.restriction, a.block() * a.block());
    let (n, coarse) = (a.block_rows(), r.block_rows());
    let chunks = n.div_ceil(1 << CHUNK);
    let rows_of = |chunk: usize| chunk << CHUNK..n.min((chunk + 1) << CHUNK);
    let used = uses(pool, t, chunks, &rows_of);
    let spare = Spare {
        columns: p.block_columns(),
        slots: Scratch::new(),
        sums: Scratch::new(),
        rows: Mutex::default(),
    };
    let mut window = Window { chunks: (0..chunks).map(|_| None).collect() };
    let slabs = runs(r.row_ptr(), 0..coarse, r.blocks().div_ceil(SLAB * pool.threads()).max(1));
    for slab in slabs {
        let wanted = |chunk: &usize| {
            let in_use =
                |(first, last): (u32, u32)| (first as usize) < slab.end && last as usize >= slab.start;
            window.chunks[*chunk].is_none() && used[*chunk].is_some_and(in_use)
        };
        let missing: Vec<usize> = (0..chunks).filter(wanted).collect();
        let made = map(pool, missing.len(), |k| {
            let mut rows = spare.rows();
            let own = rows_of(missing[k]);
            match bb {
                1 => spare.with_sums(|sums| scalar::rows_of_ap(a, p, own, sums, &mut rows)),
                _ => spare.with_slot(|slot| with_block!(a.block(), rows_of_ap, a, p, own, slot, &mut rows)),
            }
            rows
        });
        missing.iter().zip(made).for_each(|(&chunk, rows)| window.chunks[chunk] = Some(rows));
        let entries = r.row_ptr()[slab.end] - r.row_ptr()[slab.start];
        let pieces = pool.pieces(entries * (12 + 8 * bb) * 8);
        each(&runs(r.row_ptr(), slab.clone(), pieces), &window, &spare);
        for (chunk, used) in window.chunks.iter_mut().zip(&used) {
            if used.is_some_and(|(_, last)| (last as usize) < slab.end) {
                spare.rows.lock().unwrap_or_else(|e| e.into_inner()).extend(chunk.take());
            }
        }
    }
}

/// Returns R A P with every diagonal entry stored. A may have blocks; R and P are scalar.
pub fn galerkin(pool: &Pool, a: &Bsr, transfer: &Transfer) -> Result<Bsr> {
    let (r, bb) = (&transfer.restriction, a.block() * a.block());
    let mut parts: Vec<Rows> = Vec::new();
    by_slabs(pool, a, transfer, |runs, window, spare| {
        let make = |run: &Range<usize>, rows: &mut Rows| {
            let run = run.clone();
            match bb {
                1 => spare.with_sums(|sums| scalar::rows_of_rap(r, window, run, sums, rows)),
                _ => spare.with_slot(|slot| with_block!(a.block(), rows_of_rap, r, window, run, slot, rows)),
            }
        };
        match (runs, parts.last_mut()) {
            ([run], Some(rows)) => make(run, rows), // with one thread, no parts need joining
            _ => parts.extend(map(pool, runs.len(), |k| {
                let mut rows = Rows::default();
                make(&runs[k], &mut rows);
                rows
            })),
        }
    });
    Ok(assemble(pool, a.block(), transfer.prolongation.block_columns(), parts))
}

/// Computes R A P for new values of A, in the matrix `coarse` that [`galerkin`] returned for the same
/// pattern.
///
/// # Errors
/// A coarse pattern that differs from that of R A P.
pub fn galerkin_values(pool: &Pool, a: &Bsr, transfer: &Transfer, coarse: &mut Bsr) -> Result<()> {
    let (r, bb) = (&transfer.restriction, a.block() * a.block());
    let fits = coarse.block_rows() == r.block_rows() && coarse.block() == a.block();
    let differs = AtomicBool::new(!fits);
    let shared = coarse.storage().shared_pattern(); // so that new values copy nothing
    if let (true, Some(pattern)) = (fits, shared.get()) {
        let mut rest = coarse.values_mut();
        by_slabs(pool, a, transfer, |runs, window, spare| {
            let length = |run: &Range<usize>| (pattern.row_ptr[run.end] - pattern.row_ptr[run.start]) * bb;
            let (own, after) = std::mem::take(&mut rest).split_at_mut(runs.iter().map(length).sum());
            rest = after;
            fill(pool, runs.iter().map(length), own, |k, to| {
                let run = runs[k].clone();
                let known = spare.with_slot(|slot| {
                    with_block!(a.block(), values_of_rap, r, window, run, slot, pattern, to)
                });
                differs.fetch_or(!known, Relaxed);
            });
        });
    }
    match differs.into_inner() {
        false => Ok(()),
        true => Err(Error::invalid(format!(
            "amg: the pattern of a coarse level with {} rows does not match R A P; set up again after the \
             pattern of A changes",
            coarse.block_rows()
        ))),
    }
}

/// See [`Coarsen::galerkin`](super::super::Coarsen::galerkin).
pub fn terms(pool: &Pool, terms: &Terms, transfer: &Transfer) -> Result<Terms<'static>> {
    let mut coarse: Vec<(Dense, Cow<'static, Bsr>)> = Vec::new();
    for (t, (c, a)) in terms.terms.iter().enumerate() {
        let same = (0..t).find(|&other| terms.terms[other].1.same_pattern(a));
        let product = match same {
            // Terms of one pattern must share it here too, because products test for shared patterns.
            Some(other) => {
                let mut product = Bsr::clone(&coarse[other].1);
                galerkin_values(pool, a, transfer, &mut product)?;
                product
            }
            None => galerkin(pool, a, transfer)?,
        };
        coarse.push((c.clone(), Cow::Owned(product)));
    }
    Ok(Terms { terms: coarse, halo: None })
}

/// See [`Coarsen::update_galerkin`](super::super::Coarsen::update_galerkin).
pub fn update_terms(
    pool: &Pool,
    terms: &Terms,
    transfer: &Transfer,
    coarse: &mut Terms<'static>,
) -> Result<()> {
    if terms.terms.len() != coarse.terms.len() {
        return Err(Error::invalid(format!(
            "amg: the new values have {} terms, but the coarse level was built with {}; set up again",
            terms.terms.len(),
            coarse.terms.len()
        )));
    }
    for ((new, a), (c, product)) in terms.terms.iter().zip(&mut coarse.terms) {
        c.clone_from(new);
        galerkin_values(pool, a, transfer, product.to_mut())?;
    }
    Ok(())
}

/// Computes `to` ← Σ Cₜ⊗Aₜ for the blocks at these positions, of order b·s.
#[inline(always)]
fn kronecker_block(terms: &[Term], at: [Option<usize>; 2], b: usize, s: usize, to: &mut [f64]) {
    let order = b * s;
    to.fill(0.0);
    for (at, (c, a)) in at.iter().zip(terms) {
        let Some(p) = *at else { continue };
        let block = a.block_values(p);
        for r in 0..b {
            for q in 0..b {
                for k in 0..s {
                    for l in 0..s {
                        to[(r * s + k) * order + q * s + l] += c[(k, l)] * block[r * b + q];
                    }
                }
            }
        }
    }
}

/// See [`Coarsen::l1_blocks`](super::super::Coarsen::l1_blocks): the inverses, row-major.
pub fn inverse_l1_blocks(pool: &Pool, terms: &Terms) -> Result<Vec<f64>> {
    let (n, b, s) = (terms.block_rows(), terms.block(), terms.stages());
    let order = b * s;
    let mut inverse = vec![0.0; n * order * order];
    let bytes: usize = terms.terms.iter().map(|t| t.1.stored() * 8).sum::<usize>() + inverse.len() * 8;
    let length = n.div_ceil(pool.pieces(bytes)).max(1);
    let first: Mutex<Option<(usize, &'static str)>> = Mutex::new(None);
    let parts = lengths(n, length).map(|rows| rows * order * order);
    fill(pool, parts, &mut inverse, |piece, to| {
        let (mut block, mut entry) = (vec![0.0; order * order], vec![0.0; order * order]);
        let mut norm = vec![0.0; order];
        for (i, out) in (piece * length..).zip(to.chunks_exact_mut(order * order)) {
            let kind = match l1_block(&terms.terms, i, (b, s), [&mut block, &mut entry, &mut norm]) {
                false if block.iter().all(|&v| v == 0.0) => BAD_BLOCKS[0],
                true if block.iter().all(|&v| v == 0.0) => BAD_BLOCKS[1],
                _ if order == 1 && (1.0 / block[0]).is_finite() => {
                    out[0] = 1.0 / block[0];
                    continue;
                }
                _ if order > 1 && invert_block(order, &mut block, out) => continue,
                _ => BAD_BLOCKS[2],
            };
            let mut first = first.lock().unwrap_or_else(|e| e.into_inner());
            *first = Some(first.map_or((i, kind), |known| known.min((i, kind))));
            return;
        }
    });
    match first.into_inner().unwrap_or_else(|e| e.into_inner()) {
        Some((row, kind)) => Err(bad_block(row, kind)),
        None => Ok(inverse),
    }
}

/// Computes the diagonal block of node `i`, and adds to its diagonal the ℓ1 norm of each row outside the
/// block. Returns true if a term stores the block.
#[inline(always)]
fn l1_block(terms: &[Term], i: usize, (b, s): (usize, usize), work: [&mut [f64]; 3]) -> bool {
    let order = b * s;
    let [block, entry, norm] = work;
    let mut stored = false;
    block.fill(0.0);
    norm.fill(0.0);
    if let ([(c, a)], 1) = (terms, order) {
        let (c, a) = (c[(0, 0)], Arrays::of(a));
        for (&j, &v) in a.col[a.row(i)].iter().zip(&a.values[a.row(i)]) {
            match j as usize == i {
                true => (stored, block[0]) = (true, c * v),
                false => norm[0] += (c * v).abs(),
            }
        }
    } else {
        union_row(terms, i, |j, at| {
            if j as usize == i {
                stored = true;
                return kronecker_block(terms, at, b, s, block);
            }
            kronecker_block(terms, at, b, s, entry);
            for (norm, row) in norm.iter_mut().zip(entry.chunks_exact(order)) {
                row.iter().for_each(|v| *norm += v.abs());
            }
        });
    }
    for (r, norm) in norm.iter().enumerate() {
        let d = &mut block[r * order + r];
        *d += if *d < 0.0 { -norm } else { *norm };
    }
    stored
}

#[cfg(test)]
mod tests;

//! Weights by which nodes that do not stay interpolate from those that do.
//!
//! Extended+i (De Sterck, Falgout, Nolting and Yang 2008): node i interpolates from its strong coarse neighbours and from those of its
//! strong fine neighbours. What couples it to fine neighbour k is distributed over all of these and i itself, in
//! the proportions of row k; weak couplings are added to the diagonal.
//!
//! Multipass (Stüben 1999), where aggressive coarsening leaves nodes without such neighbours: nodes with strong coarse neighbours interpolate from
//! them; then those with strong neighbours of the first kind, through the weights of these; and so on.

use super::FINE;
use super::parallel::{Rows, Scratch, assemble, bounds, fill, join, map};
use super::split::{pieces_of, runs, sign};
use crate::device::cpu::Pool;
use crate::matrix::Bsr;

/// The entry's row depends strongly on its column.
const STRONG: u8 = 1;
/// The entry's column stays.
const COARSE: u8 = 2;
/// The entry's sign differs from its diagonal entry's.
const OPPOSITE: u8 = 4;

/// Extended+i interpolation, truncated to the `most` largest weights of a row (0: all), which keep the row's sum.
pub fn extended_i(pool: &Pool, a: &Bsr, strong: &[u8], coarse: &[u32], most: usize) -> Bsr {
    let (n, rows) = (a.block_rows(), pieces_of(pool, a));
    let kinds = kinds(pool, a, strong, coarse, &rows);
    let scratch = Scratch::new();
    let runs = map(pool, rows.len() - 1, |piece| {
        scratch.with(
            || Search::new(n),
            |search| {
                let mut out = Rows::default();
                for i in rows[piece]..rows[piece + 1] {
                    match coarse[i] {
                        FINE => search.extended_i(a, &kinds, coarse, i, most, &mut out),
                        number => out.push(&[(number, 1.0)]),
                    }
                }
                out
            },
        )
    });
    assemble(pool, 1, columns(coarse), runs)
}

/// Multipass interpolation, truncated at the end to the `most` largest weights of a row (0: all), which keep the row's sum.
///
/// Node i takes w_ik = −α/ã Σ_j a_ij w_jk over its strong neighbours j of the pass before; α lets these stand for all couplings of the
/// opposite sign, ã is a_ii with those of its own sign added. A node that no pass reaches has an empty row.
pub fn multipass(pool: &Pool, a: &Bsr, strong: &[u8], coarse: &[u32], most: usize) -> Bsr {
    let n = a.block_rows();
    let (scratch, mut passes) = (Scratch::new(), Passes::new(coarse));
    loop {
        let nodes = passes.next(pool, a, strong);
        if nodes.is_empty() {
            break;
        }
        let cut = bounds(nodes.len(), pool.pieces(512 * nodes.len()));
        let runs = map(pool, cut.len() - 1, |piece| {
            let mut out = Rows::default();
            let nodes = nodes[cut[piece]..cut[piece + 1]].iter();
            scratch.with(
                || Search::new(n),
                |search| nodes.for_each(|&i| search.multipass(a, strong, &passes, i as usize, &mut out)),
            );
            out
        });
        passes.push(nodes, join(pool, 1, &runs));
    }
    let rows = pieces_of(pool, a);
    let runs = map(pool, rows.len() - 1, |piece| {
        let (mut out, mut row) = (Rows::default(), Vec::new());
        for i in rows[piece]..rows[piece + 1] {
            row.clear();
            row.extend(passes.row(i));
            truncate(&mut row, most);
            out.push(&row);
        }
        out
    });
    assemble(pool, 1, columns(coarse), runs)
}

/// Nodes that stay.
fn columns(coarse: &[u32]) -> usize {
    coarse.iter().rev().find(|&&number| number != FINE).map_or(0, |&last| last as usize + 1)
}

/// What each entry is, in bits.
fn kinds(pool: &Pool, a: &Bsr, strong: &[u8], coarse: &[u32], rows: &[usize]) -> Vec<u8> {
    let (row_ptr, col, values) = (a.row_ptr(), a.col(), a.values());
    let entries: Vec<usize> = rows.iter().map(|&i| row_ptr[i]).collect();
    let mut kinds = vec![0; a.blocks()];
    fill(pool, runs(&entries), &mut kinds, |piece, out| {
        for i in rows[piece]..rows[piece + 1] {
            let g = sign(a, i);
            for p in row_ptr[i]..row_ptr[i + 1] {
                let stays = coarse[col[p] as usize] != FINE;
                out[p - entries[piece]] = u8::from(strong[p] != 0) * STRONG
                    | u8::from(stays) * COARSE
                    | u8::from(g * values[p] < 0.0) * OPPOSITE;
            }
        }
    });
    kinds
}

/// A thread's memory: what a row interpolates from.
struct Search {
    /// Of each node `base` plus its place in `nodes`, or less than `base`.
    at: Vec<u32>,
    base: u32,
    /// The row itself, then the nodes it interpolates from.
    nodes: Vec<u32>,
    /// Sums of their couplings; of the row itself those that are added to the diagonal.
    weights: Vec<f64>,
    row: Vec<(u32, f64)>,
}

impl Search {
    fn new(n: usize) -> Self {
        Self { at: vec![0; n], base: 1, nodes: Vec::new(), weights: Vec::new(), row: Vec::new() }
    }

    /// Forgets the nodes of the last row.
    fn begin(&mut self) {
        self.base += self.nodes.len() as u32;
        self.nodes.clear();
        if self.base > u32::MAX / 2 {
            self.at.fill(0);
            self.base = 1;
        }
    }

    fn add(&mut self, node: u32) {
        let at = &mut self.at[node as usize];
        if *at < self.base {
            *at = self.base + self.nodes.len() as u32;
            self.nodes.push(node);
        }
    }

    /// Row `i` of extended+i.
    fn extended_i(&mut self, a: &Bsr, kinds: &[u8], coarse: &[u32], i: usize, most: usize, out: &mut Rows) {
        let (row_ptr, col, values) = (a.row_ptr(), a.col(), a.values());
        let row = |i: usize| row_ptr[i]..row_ptr[i + 1];
        self.begin();
        self.add(i as u32);
        for p in row(i) {
            if kinds[p] & (STRONG | COARSE) == STRONG | COARSE {
                self.add(col[p]);
            } else if kinds[p] & STRONG != 0 {
                for q in row(col[p] as usize).filter(|&q| kinds[q] & (STRONG | COARSE) == STRONG | COARSE) {
                    self.add(col[q]);
                }
            }
        }
        let Self { at, base, nodes, weights, .. } = self;
        let place = |p: usize| {
            let at = at[col[p] as usize];
            (at >= *base).then(|| (at - *base) as usize)
        };
        weights.clear();
        weights.resize(nodes.len(), 0.0);
        for p in row(i) {
            if let Some(at) = place(p) {
                weights[at] = values[p];
            }
        }
        for p in row(i).filter(|&p| place(p).is_none()) {
            if kinds[p] & STRONG == 0 {
                weights[0] += values[p];
                continue;
            }
            let others = || row(col[p] as usize).filter(|&q| kinds[q] & OPPOSITE != 0);
            let b: f64 = others().filter(|&q| place(q).is_some()).map(|q| values[q]).sum();
            if b == 0.0 {
                weights[0] += values[p];
                continue;
            }
            let part = values[p] / b;
            for q in others() {
                if let Some(at) = place(q) {
                    weights[at] += part * values[q];
                }
            }
        }
        let diagonal = weights[0];
        (0..nodes.len()).skip(1).for_each(|at| nodes[at] = coarse[nodes[at] as usize]);
        self.finish(-1.0, diagonal, 1);
        truncate(&mut self.row, most);
        out.push(&self.row);
    }

    /// Row `i` of the next pass.
    fn multipass(&mut self, a: &Bsr, strong: &[u8], passes: &Passes, i: usize, out: &mut Rows) {
        let row = a.row_ptr()[i]..a.row_ptr()[i + 1];
        let entries = || row.clone().zip(&a.col()[row.clone()]).zip(&a.values()[row.clone()]);
        self.begin();
        self.weights.clear();
        let g = sign(a, i);
        let (mut diagonal, mut all, mut those) = (0.0, 0.0, 0.0);
        for ((p, &j), &v) in entries() {
            if g * v < 0.0 && j as usize != i {
                all += v;
            } else {
                diagonal += v;
            }
            if strong[p] == 0 || passes.of[j as usize] == NEVER {
                continue;
            }
            those += v;
            for (k, w) in passes.row(j as usize) {
                self.add(k);
                self.weights.resize(self.nodes.len(), 0.0);
                self.weights[(self.at[k as usize] - self.base) as usize] += v * w;
            }
        }
        self.finish(-(all / those), diagonal, 0);
        out.push(&self.row);
    }

    /// The row's weights, `scale` times the sums from place `first` on over `diagonal`, by ascending column; none where one is not finite.
    fn finish(&mut self, scale: f64, diagonal: f64, first: usize) {
        let Self { nodes, weights, row, .. } = self;
        row.clear();
        let pairs = nodes[first..].iter().zip(&weights[first..]);
        row.extend(pairs.map(|(&j, &w)| (j, scale * (w / diagonal))).filter(|&(_, w)| w != 0.0));
        if diagonal == 0.0 || row.iter().any(|&(_, w)| !w.is_finite()) {
            row.clear();
        }
        row.sort_unstable_by_key(|&(j, _)| j);
    }
}

/// A node that no pass has reached.
const NEVER: u32 = u32::MAX;

/// Rows of multipass interpolation, untruncated, pass by pass.
struct Passes<'a> {
    coarse: &'a [u32],
    /// Which pass a node belongs to: 0 where it stays.
    of: Vec<u32>,
    /// Its place in that pass.
    place: Vec<u32>,
    rows: Vec<Rows>,
}

impl<'a> Passes<'a> {
    fn new(coarse: &'a [u32]) -> Self {
        let of = coarse.iter().map(|&number| if number == FINE { NEVER } else { 0 }).collect();
        Self { coarse, of, place: vec![0; coarse.len()], rows: Vec::new() }
    }

    /// Nodes with a strong neighbour in the last pass that no pass has reached.
    fn next(&self, pool: &Pool, a: &Bsr, strong: &[u8]) -> Vec<u32> {
        let last = self.rows.len() as u32;
        let rows = pieces_of(pool, a);
        let lists = map(pool, rows.len() - 1, |piece| {
            let reached = |&i: &usize| {
                let mut row = a.row_ptr()[i]..a.row_ptr()[i + 1];
                self.of[i] == NEVER && row.any(|p| strong[p] != 0 && self.of[a.col()[p] as usize] == last)
            };
            (rows[piece]..rows[piece + 1]).filter(reached).map(|i| i as u32).collect::<Vec<_>>()
        });
        lists.concat()
    }

    fn push(&mut self, nodes: Vec<u32>, rows: Rows) {
        self.rows.push(rows);
        for (i, place) in nodes.into_iter().zip(0..) {
            self.of[i as usize] = self.rows.len() as u32;
            self.place[i as usize] = place;
        }
    }

    /// Columns and weights of node `i`: of a node that stays itself, of one that was not reached nothing.
    fn row(&self, i: usize) -> impl Iterator<Item = (u32, f64)> {
        let (own, entries, rows) = match self.of[i] {
            NEVER => (None, 0..0, None),
            0 => (Some((self.coarse[i], 1.0)), 0..0, None),
            pass => {
                let rows = &self.rows[pass as usize - 1];
                let at = self.place[i] as usize;
                (None, rows.row_ptr[at]..rows.row_ptr[at + 1], Some(rows))
            }
        };
        own.into_iter().chain(entries.filter_map(move |p| rows.map(|rows| (rows.col[p], rows.values[p]))))
    }
}

impl Rows {
    fn push(&mut self, row: &[(u32, f64)]) {
        self.col.extend(row.iter().map(|&(j, _)| j));
        self.values.extend(row.iter().map(|&(_, w)| w));
        self.end_row();
    }
}

/// Keeps the `most` largest weights of a row (0: all) by ascending column, and the row's sum. Magnitudes are compared in single precision: another order of
/// summation decides nothing. Of equals the lower columns stay.
fn truncate(row: &mut Vec<(u32, f64)>, most: usize) {
    if most == 0 || row.len() <= most {
        return;
    }
    let sum = |row: &[(u32, f64)]| row.iter().fold(0.0, |sum, &(_, w)| sum + w);
    let total = sum(row);
    let size = |w: f64| (w as f32).abs();
    row.sort_unstable_by(|a, b| size(b.1).total_cmp(&size(a.1)).then(a.0.cmp(&b.0)));
    row.truncate(most);
    row.sort_unstable_by_key(|&(j, _)| j);
    let scale = total / sum(row);
    if row.iter().all(|&(_, w)| (w * scale).is_finite()) {
        row.iter_mut().for_each(|(_, w)| *w *= scale);
    }
}

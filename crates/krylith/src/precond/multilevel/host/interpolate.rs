//! Weights by which nodes that do not stay interpolate from those that do.
//!
//! Extended+i (De Sterck, Falgout, Nolting and Yang 2008): node i interpolates from its strong coarse neighbours and from those of its
//! strong fine neighbours. What couples it to fine neighbour k is distributed over all of these and i itself, in
//! the proportions of row k; weak couplings are added to the diagonal.

use super::FINE;
use super::parallel::{Rows, Scratch, assemble, fill, map};
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

/// How many nodes stay.
pub(super) fn columns(coarse: &[u32]) -> usize {
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
pub(super) struct Search {
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
    pub(super) fn new(n: usize) -> Self {
        Self { at: vec![0; n], base: 1, nodes: Vec::new(), weights: Vec::new(), row: Vec::new() }
    }

    /// Forgets the last row.
    pub(super) fn begin(&mut self) {
        self.base += self.nodes.len() as u32;
        self.nodes.clear();
        self.weights.clear();
        if self.base > u32::MAX / 2 {
            self.at.fill(0);
            self.base = 1;
        }
    }

    /// Adds `weight` to what comes from `node`.
    pub(super) fn add_weight(&mut self, node: u32, weight: f64) {
        self.add(node);
        self.weights.resize(self.nodes.len(), 0.0);
        self.weights[(self.at[node as usize] - self.base) as usize] += weight;
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
        out.push(self.finish(-1.0, diagonal, 1, most));
    }

    /// The row: `scale` times the sums from place `first` on over `diagonal`, by ascending column, the `most` largest; nothing where one is
    /// not finite.
    pub(super) fn finish(&mut self, scale: f64, diagonal: f64, first: usize, most: usize) -> &[(u32, f64)] {
        let Self { nodes, weights, row, .. } = self;
        row.clear();
        let pairs = nodes[first..].iter().zip(&weights[first..]);
        row.extend(pairs.map(|(&j, &w)| (j, scale * (w / diagonal))).filter(|&(_, w)| w != 0.0));
        if diagonal == 0.0 || row.iter().any(|&(_, w)| !w.is_finite()) {
            row.clear();
        }
        row.sort_unstable_by_key(|&(j, _)| j);
        truncate(row, most);
        row
    }
}

impl Rows {
    pub(super) fn push(&mut self, row: &[(u32, f64)]) {
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

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

/// Extended+i interpolation, truncated to the `most` largest weights of a row (0: all), which keep the row's sum; of equal ones the lower by `names` of coarse nodes
/// stay, or by their numbers.
pub fn extended_i(
    pool: &Pool,
    a: &Bsr,
    strong: &[u8],
    coarse: &[u32],
    most: usize,
    names: Option<&[u64]>,
) -> Bsr {
    let (n, rows) = (a.block_rows(), pieces_of(pool, a));
    let kinds = kinds(pool, a, strong, coarse, &rows);
    let scratch = Scratch::new();
    let runs = map(pool, rows.len() - 1, |piece| {
        scratch.with(
            || Search::new(n, names),
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

/// So many nodes are sorted by counting for each those below it.
const FEW: usize = 32;

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
                let bit = |is: bool, bit: u8| if is { bit } else { 0 };
                out[p - entries[piece]] =
                    bit(strong[p] != 0, STRONG) | bit(stays, COARSE) | bit(g * values[p] < 0.0, OPPOSITE);
            }
        }
    });
    kinds
}

/// A thread's memory: what a row interpolates from.
///
/// Whether a node is among these is as good as random, so nothing branches on it: that costs a tenth more time.
pub(super) struct Search<'a> {
    /// Names of coarse nodes, by which equal weights are ordered.
    names: Option<&'a [u64]>,
    /// Of each node `base` plus its place in `nodes`, or less than `base`.
    at: Vec<u32>,
    base: u32,
    /// The nodes, and how many they are; behind them is room.
    nodes: Vec<u32>,
    len: usize,
    /// Sums of their couplings, and room.
    weights: Vec<f64>,
    /// Places and values of a fine neighbour's entries.
    shared: Vec<(usize, f64)>,
    row: Vec<(u32, f64)>,
    largest: Vec<u32>,
}

impl<'a> Search<'a> {
    pub(super) fn new(n: usize, names: Option<&'a [u64]>) -> Self {
        Self {
            names,
            at: vec![0; n],
            base: 1,
            nodes: Vec::new(),
            len: 0,
            weights: Vec::new(),
            shared: Vec::new(),
            row: Vec::new(),
            largest: Vec::new(),
        }
    }

    /// Forgets the last row.
    pub(super) fn begin(&mut self) {
        self.base += self.len as u32;
        self.len = 0;
        if self.base > u32::MAX / 2 {
            self.at.fill(0);
            self.base = 1;
        }
    }

    /// Makes room for `more` nodes.
    fn reserve(&mut self, more: usize) {
        if self.nodes.len() < self.len + more + 1 {
            self.nodes.resize(2 * (self.len + more + 1), 0);
            self.weights.resize(self.nodes.len(), 0.0);
        }
    }

    /// Adds these nodes, each with its weight, to the row.
    pub(super) fn add_weights(&mut self, nodes: &[u32], weights: impl Iterator<Item = f64>) {
        self.reserve(nodes.len());
        for (&node, weight) in nodes.iter().zip(weights) {
            let at = &mut self.at[node as usize];
            let new = *at < self.base;
            let place = if new { self.len } else { (*at - self.base) as usize };
            *at = self.base + place as u32;
            self.nodes[place] = node;
            let before = self.weights[place];
            self.weights[place] = if new { 0.0 } else { before } + weight;
            self.len += usize::from(new);
        }
    }

    /// Adds those of these nodes to the row whose entries are strong and stay; their weights are yet to be written.
    fn add_coarse(&mut self, nodes: &[u32], kinds: &[u8]) {
        self.reserve(nodes.len());
        for (&node, kind) in nodes.iter().zip(kinds) {
            let at = &mut self.at[node as usize];
            let new = (kind & (STRONG | COARSE) == STRONG | COARSE) & (*at < self.base);
            self.nodes[self.len] = node;
            *at = if new { self.base + self.len as u32 } else { *at };
            self.len += usize::from(new);
        }
    }

    /// The place of a node, or the number of nodes where it is not among them.
    fn place(&self, node: u32) -> usize {
        (self.at[node as usize].wrapping_sub(self.base) as usize).min(self.len)
    }

    /// Row `i` of extended+i.
    fn extended_i(&mut self, a: &Bsr, kinds: &[u8], coarse: &[u32], i: usize, most: usize, out: &mut Rows) {
        let range = |i: usize| a.row_ptr()[i]..a.row_ptr()[i + 1];
        let arrays = |i: usize| (&a.col()[range(i)], &a.values()[range(i)], &kinds[range(i)]);
        let (own_col, own_values, own_kinds) = arrays(i);
        self.begin();
        self.add_weights(&[i as u32], [0.0].into_iter());
        self.add_coarse(own_col, own_kinds);
        for (&k, kind) in own_col.iter().zip(own_kinds) {
            if kind & (STRONG | COARSE) == STRONG {
                let (col, _, kinds) = arrays(k as usize);
                self.add_coarse(col, kinds);
            }
        }
        let len = self.len;
        self.weights[..=len].fill(0.0);
        for (&j, &v) in own_col.iter().zip(own_values) {
            let place = self.place(j);
            self.weights[place] = v;
        }
        for ((&k, &v), kind) in own_col.iter().zip(own_values).zip(own_kinds) {
            if kind & STRONG == 0 {
                self.weights[0] += if self.place(k) == len { v } else { 0.0 };
                continue;
            } else if kind & COARSE != 0 {
                continue;
            }
            let (col, values, kinds) = arrays(k as usize);
            self.shared.resize(self.shared.len().max(col.len()), (0, 0.0));
            let (mut b, mut count) = (0.0, 0);
            for ((&l, &v), kind) in col.iter().zip(values).zip(kinds) {
                let place = self.place(l);
                let takes = (kind & OPPOSITE != 0) & (place < len);
                b += if takes { v } else { 0.0 };
                self.shared[count] = (place, v);
                count += usize::from(takes);
            }
            if b == 0.0 {
                self.weights[0] += v;
                continue;
            }
            let part = v / b;
            for &(place, v) in &self.shared[..count] {
                self.weights[place] += part * v;
            }
        }
        let diagonal = self.weights[0];
        self.nodes[1..len].iter_mut().for_each(|node| *node = coarse[*node as usize]);
        out.push(self.finish(-1.0, diagonal, 1, most));
    }

    /// The row: `scale` times the sums from place `first` on over `diagonal`, by ascending column, the `most` largest; nothing where one is
    /// not finite.
    pub(super) fn finish(&mut self, scale: f64, diagonal: f64, first: usize, most: usize) -> &[(u32, f64)] {
        let (nodes, weights) = (&self.nodes[first..self.len], &self.weights[first..self.len]);
        let row = &mut self.row;
        let name = |j: u32| self.names.map_or(u64::from(j), |names| names[j as usize]);
        row.clear();
        let weight = |w: f64| scale * (w / diagonal);
        let fits = diagonal != 0.0 && weights.iter().fold(true, |fits, &w| fits & weight(w).is_finite());
        if fits && nodes.len() <= FEW {
            row.resize(nodes.len(), (0, 0.0));
            for (&j, &w) in nodes.iter().zip(weights) {
                let place: u32 = nodes.iter().map(|&other| u32::from(name(other) < name(j))).sum();
                row[place as usize] = (j, weight(w));
            }
        } else if fits {
            row.extend(nodes.iter().zip(weights).map(|(&j, &w)| (j, weight(w))));
            row.sort_unstable_by_key(|&(j, _)| name(j));
        }
        keep(row, |w| w != 0.0);
        truncate(row, most, &mut self.largest);
        if self.names.is_some() {
            row.sort_unstable_by_key(|&(j, _)| j);
        }
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

/// Keeps the `most` largest weights of a row (0: all), and the row's sum. Magnitudes are compared in single precision: another order of
/// summation decides nothing. Of equals the first stay. `largest` is memory.
fn truncate(row: &mut Vec<(u32, f64)>, most: usize, largest: &mut Vec<u32>) {
    if most == 0 || row.len() <= most {
        return;
    }
    let sum = |row: &[(u32, f64)]| row.iter().fold(0.0, |sum, &(_, w)| sum + w);
    let size = |w: f64| (w as f32).abs().to_bits(); // bits of positive numbers are ordered as they are
    let total = sum(row);
    largest.clear();
    largest.resize(most, 0);
    for &(_, w) in &*row {
        // Descends through the list as far as there are smaller ones.
        largest.iter_mut().fold(size(w), |new, old| {
            let less = new.min(*old);
            *old = new.max(*old);
            less
        });
    }
    let limit = largest[most - 1];
    let mut equals = most - largest.iter().filter(|&&size| size > limit).count();
    keep(row, |w| {
        let equal = (size(w) == limit) & (equals > 0);
        equals -= usize::from(equal);
        (size(w) > limit) | equal
    });
    let scale = total / sum(row);
    if row.iter().all(|&(_, w)| (w * scale).is_finite()) {
        row.iter_mut().for_each(|(_, w)| *w *= scale);
    }
}

/// Keeps the entries whose weights `wanted` is true of. Unlike `retain` it doesn't branch.
fn keep(row: &mut Vec<(u32, f64)>, mut wanted: impl FnMut(f64) -> bool) {
    let mut count = 0;
    for k in 0..row.len() {
        let entry = row[k];
        row[count] = entry;
        count += usize::from(wanted(entry.1));
    }
    row.truncate(count);
}

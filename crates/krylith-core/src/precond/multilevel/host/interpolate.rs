//! Extended+i interpolation: the weights by which fine points interpolate from coarse points.
//!
//! Extended+i is by De Sterck, Falgout, Nolting and Yang (2008). Node i interpolates from its strong coarse
//! neighbours and from those of its strong fine neighbours. Its coupling to a strong fine neighbour k is
//! distributed over these coarse points and i itself, in the proportions of row k. Weak couplings are added
//! to the diagonal.

use super::FINE;
use super::parallel::{Rows, Scratch, assemble, fill, join, map};
use super::split::{pieces_of, runs};
use super::sums::Sums;
use crate::matrix::{Arrays, Bsr};
use crate::threads::Pool;

/// Bit: the entry's row depends strongly on its column.
const STRONG: u8 = 1;
/// Bit: the entry's column is a coarse point.
const COARSE: u8 = 2;
/// Bit: the entry's sign differs from that of its diagonal entry.
const OPPOSITE: u8 = 4;

/// Computes extended+i interpolation. Each row keeps its `most` largest weights (0: all), scaled to keep the
/// row's sum. Ties between equal weights go to the coarse node with the lower entry of `names`, or without
/// `names` to the lower number.
pub fn extended_i(
    pool: &Pool,
    a: &Bsr,
    strong: &[u8],
    coarse: &[u32],
    most: usize,
    names: Option<&[u64]>,
) -> Bsr {
    let (n, rows) = (a.block_rows(), pieces_of(pool, a));
    let arrays = Arrays::of(a);
    let kinds = kinds(pool, arrays, strong, coarse, &rows);
    let stays = Stays::new(pool, arrays, &kinds, coarse, &rows);
    let scratch = Scratch::new();
    let runs = map(pool, rows.len() - 1, |piece| {
        scratch.with(
            || Search::new(n, names),
            |search| {
                let mut out = Rows::default();
                for i in rows[piece]..rows[piece + 1] {
                    match coarse[i] {
                        FINE => search.extended_i(arrays, &kinds, &stays, coarse, i, most, &mut out),
                        number => out.push(&[(number, 1.0)]),
                    }
                }
                out
            },
        )
    });
    assemble(pool, 1, columns(coarse), runs)
}

/// Number of nodes up to which a row is sorted by counting, for each node, the nodes with lower numbers.
const FEW: usize = 32;

/// Returns the number of coarse points.
pub(super) fn columns(coarse: &[u32]) -> usize {
    coarse.iter().rev().find(|&&number| number != FINE).map_or(0, |&last| last as usize + 1)
}

/// Returns the bits of each entry: [`STRONG`], [`COARSE`] and [`OPPOSITE`].
fn kinds(pool: &Pool, a: Arrays, strong: &[u8], coarse: &[u32], rows: &[usize]) -> Vec<u8> {
    let Arrays { row_ptr, col, values } = a;
    let entries: Vec<usize> = rows.iter().map(|&i| row_ptr[i]).collect();
    let mut kinds = vec![0; col.len()];
    fill(pool, runs(&entries), &mut kinds, |piece, out| {
        for i in rows[piece]..rows[piece + 1] {
            let g = a.sign(i);
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

/// For rows of fine points, the positions of the entries in columns of coarse points whose sign differs from
/// the diagonal entry's, ascending.
struct Stays {
    rows: Rows,
    kinds: Vec<u8>,
}

impl Stays {
    fn new(pool: &Pool, a: Arrays, kinds: &[u8], coarse: &[u32], rows: &[usize]) -> Self {
        let parts = map(pool, rows.len() - 1, |piece| {
            let (mut own, mut flags) = (Rows::default(), Vec::new());
            for i in rows[piece]..rows[piece + 1] {
                let row = if coarse[i] == FINE { a.row(i) } else { 0..0 };
                for p in row.filter(|&p| kinds[p] & (COARSE | OPPOSITE) == COARSE | OPPOSITE) {
                    own.col.push(a.col[p]);
                    own.values.push(a.values[p]);
                    flags.push(kinds[p]);
                }
                own.end_row();
            }
            (own, flags)
        });
        let (parts, kinds): (Vec<Rows>, Vec<Vec<u8>>) = parts.into_iter().unzip();
        Self { rows: join(pool, 1, parts), kinds: kinds.concat() }
    }

    #[inline]
    fn row(&self, i: usize) -> (&[u32], &[f64], &[u8]) {
        let row = self.rows.row_ptr[i]..self.rows.row_ptr[i + 1];
        (&self.rows.col[row.clone()], &self.rows.values[row.clone()], &self.kinds[row])
    }
}

/// Reusable memory of a thread: the coarse points from which a row interpolates.
pub(super) struct Search<'a> {
    /// Names of coarse nodes, which order equal weights.
    names: Option<&'a [u64]>,
    /// The nodes and their weights.
    pub sums: Sums,
    /// Positions and values of a fine neighbour's entries.
    shared: Vec<(usize, f64)>,
    row: Vec<(u32, f64)>,
    largest: Vec<u32>,
}

impl<'a> Search<'a> {
    pub(super) fn new(n: usize, names: Option<&'a [u64]>) -> Self {
        Self { names, sums: Sums::new(n), shared: Vec::new(), row: Vec::new(), largest: Vec::new() }
    }

    /// Computes row `i` of extended+i.
    fn extended_i(
        &mut self,
        a: Arrays,
        kinds: &[u8],
        stays: &Stays,
        coarse: &[u32],
        i: usize,
        most: usize,
        out: &mut Rows,
    ) {
        let row = a.row(i);
        let (own_col, own_values, own_kinds) = (&a.col[row.clone()], &a.values[row.clone()], &kinds[row]);
        let Self { sums, shared, .. } = self;
        sums.begin();
        sums.add(0.0, &[i as u32], &[0.0]);
        sums.name(own_col, own_kinds, STRONG | COARSE);
        for (&k, kind) in own_col.iter().zip(own_kinds) {
            if kind & (STRONG | COARSE) == STRONG {
                let (col, _, kinds) = stays.row(k as usize);
                sums.name(col, kinds, STRONG | COARSE);
            }
        }
        let len = sums.len;
        sums.weights[..=len].fill(0.0);
        for (&j, &v) in own_col.iter().zip(own_values) {
            let place = sums.place(j);
            sums.weights[place] = v;
        }
        for ((&k, &v), kind) in own_col.iter().zip(own_values).zip(own_kinds) {
            if kind & STRONG == 0 {
                sums.weights[0] += if sums.place(k) == len { v } else { 0.0 };
                continue;
            } else if kind & COARSE != 0 {
                continue;
            }
            let (col, values, _) = stays.row(k as usize);
            shared.resize(shared.len().max(col.len() + 1), (0, 0.0));
            let (mut b, mut count) = (0.0, 0);
            let mut take = |takes: bool, place: usize, v: f64| {
                b += if takes { v } else { 0.0 };
                shared[count] = (place, v);
                count += usize::from(takes);
            };
            // Node i takes its place between the coarse points, so that sums follow ascending columns.
            let middle = col.partition_point(|&l| (l as usize) < i);
            for (&l, &v) in col[..middle].iter().zip(values) {
                let place = sums.place(l);
                take(place < len, place, v);
            }
            let row = a.row(k as usize);
            if let Ok(at) = a.col[row.clone()].binary_search(&(i as u32)) {
                let p = row.start + at;
                take(kinds[p] & OPPOSITE != 0, 0, a.values[p]);
            }
            for (&l, &v) in col[middle..].iter().zip(&values[middle..]) {
                let place = sums.place(l);
                take(place < len, place, v);
            }
            if b == 0.0 {
                sums.weights[0] += v;
                continue;
            }
            let part = v / b;
            for &(place, v) in &shared[..count] {
                sums.weights[place] += part * v;
            }
        }
        let diagonal = sums.weights[0];
        sums.nodes[1..len].iter_mut().for_each(|node| *node = coarse[*node as usize]);
        out.push(self.finish(-1.0, diagonal, 1, most));
    }

    /// Returns the row, by ascending column. Its weights are the sums from position `first` on, times `scale`
    /// and divided by `diagonal`, truncated to the `most` largest. If a weight is not finite, the row is
    /// empty.
    pub(super) fn finish(&mut self, scale: f64, diagonal: f64, first: usize, most: usize) -> &[(u32, f64)] {
        let Self { names, sums, row, largest, .. } = self;
        let (nodes, weights) = (&sums.nodes[first..sums.len], &sums.weights[first..sums.len]);
        let name = |j: u32| names.map_or(u64::from(j), |names| names[j as usize]);
        row.clear();
        let weight = |w: f64| scale * (w / diagonal);
        let fits = diagonal != 0.0 && weights.iter().fold(true, |fits, &w| fits & weight(w).is_finite());
        if fits && nodes.len() <= FEW {
            row.resize(nodes.len(), (0, 0.0));
            for (&j, &w) in nodes.iter().zip(weights) {
                let place: u32 = match names {
                    None => nodes.iter().map(|&other| u32::from(other < j)).sum(),
                    Some(_) => nodes.iter().map(|&other| u32::from(name(other) < name(j))).sum(),
                };
                row[place as usize] = (j, weight(w));
            }
        } else if fits {
            row.extend(nodes.iter().zip(weights).map(|(&j, &w)| (j, weight(w))));
            row.sort_unstable_by_key(|&(j, _)| name(j));
        }
        keep(row, |w| w != 0.0);
        truncate(row, most, largest);
        if names.is_some() {
            row.sort_unstable_by_key(|&(j, _)| j);
        }
        row
    }
}

/// Keeps the `most` largest weights of a row (0: all), and scales them to keep the row's sum. Magnitudes are
/// compared in single precision, so that the choice does not depend on rounding errors of the sums. Among
/// equal magnitudes the first are kept. `largest` is scratch.
fn truncate(row: &mut Vec<(u32, f64)>, most: usize, largest: &mut Vec<u32>) {
    if most == 0 || row.len() <= most {
        return;
    }
    let sum = |row: &[(u32, f64)]| row.iter().fold(0.0, |sum, &(_, w)| sum + w);
    let size = |w: f64| (w as f32).abs().to_bits(); // bits of positive numbers sort as the numbers do
    let total = sum(row);
    largest.clear();
    largest.resize(most, 0);
    for &(_, w) in &*row {
        // Insert the size into the descending list and drop the smallest.
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

/// Keeps the entries whose weights satisfy `wanted`. Unlike `retain` it does not branch.
fn keep(row: &mut Vec<(u32, f64)>, mut wanted: impl FnMut(f64) -> bool) {
    let mut count = 0;
    for k in 0..row.len() {
        let entry = row[k];
        row[count] = entry;
        count += usize::from(wanted(entry.1));
    }
    row.truncate(count);
}

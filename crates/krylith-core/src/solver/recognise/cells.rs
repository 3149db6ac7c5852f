//! Finds the pressure of cells whose other unknowns are transported.
//!
//! A transported unknown couples to the cells downstream only. A pressure couples in both directions, and
//! after the other unknowns of its cell are eliminated, its neighbours weigh as much as itself.

use super::ScalarRows;
use super::nodes::{self, Nodes};
use crate::fields::{Coupled, Field, Recognised};
use crate::text::{count, plural};

/// Smallest share of couplings in both directions of a pressure, and the largest of a transported unknown.
const BOTH: [f64; 2] = [0.95, 0.5];
/// Smallest mean ratio of the sum of entries off the diagonal to that on it, for an elliptic pressure. It is
/// 0.65 for a step of a black-oil reservoir of 140,000 unknowns, which CPR solves in 1.2 s on one core.
/// Direct factors take 18 s.
const ELLIPTIC: f64 = 0.5;
/// Number of cells that are looked at.
const SAMPLE: usize = 500;
/// Numbers of unknowns of a cell.
const SIZES: [usize; 3] = [4, 3, 2];
/// Smallest share of nonzero entries in the blocks of cells. Transported unknowns couple in one direction.
const FULL: f64 = 0.6;
/// Smallest share of cells whose own block is as full. In a flow with velocities and pressures, pairs of
/// velocities do not couple.
const ALL: f64 = 0.95;

/// The cells of a matrix.
struct Cells<'a> {
    a: &'a ScalarRows<'a>,
    /// Unknowns, cell by cell.
    unknowns: Vec<u32>,
    /// For each unknown its place in `unknowns`.
    place: Vec<u32>,
    block: usize,
}

/// Returns the field `p` of pressures and a field for each other unknown of a cell.
pub(super) fn find(a: &ScalarRows) -> Option<(Vec<Field>, Recognised)> {
    if looks_symmetric(a) {
        return None;
    }
    let cells = Cells::of(a)?;
    let (b, count_of) = (cells.block, cells.unknowns.len() / cells.block);
    let sample = || super::sample(count_of, SAMPLE);
    let (mut all, mut both, mut full) = (vec![0usize; b], vec![0usize; b], 0);
    for i in sample() {
        let blocks = cells.blocks(i);
        let own = blocks.iter().filter(|(j, _)| *j == i).flat_map(|(_, block)| block);
        full += usize::from(own.filter(|v| **v != 0.0).count() as f64 >= FULL * (b * b) as f64);
        for (j, block) in blocks.iter().filter(|(j, _)| *j != i) {
            let back = cells.columns(*j, i);
            for c in 0..b {
                let pair = [(0..b).any(|r| block[r * b + c] != 0.0), back & 1 << c != 0];
                all[c] += usize::from(pair[0] || pair[1]);
                both[c] += usize::from(pair[0] && pair[1]);
            }
        }
    }
    if (full as f64) < ALL * sample().count() as f64 {
        return None;
    }
    let share = |c: usize| both[c] as f64 / all[c].max(1) as f64;
    let pressure = (0..b).find(|&c| share(c) >= BOTH[0])?;
    if (0..b).any(|c| c != pressure && share(c) > BOTH[1]) {
        return None;
    }
    let mut sum = 0.0;
    for i in sample() {
        sum += elliptic(&cells.blocks(i), b, i, pressure)?.min(1.0);
    }
    if sum < ELLIPTIC * sample().count() as f64 {
        return None;
    }
    let field = |name: &str, c: usize| {
        Field::new(name, cells.unknowns.iter().skip(c).step_by(b).copied().collect::<Vec<_>>())
    };
    let others = (0..b).filter(|c| *c != pressure).zip(1..);
    let mut fields = vec![field("p", pressure)];
    fields.extend(others.map(|(c, k)| field(&format!("s{k}"), c)));
    let mut text = format!(
        "{} cells of {b} unknowns: unknown {pressure} of each is a pressure, which couples in both directions, and \
         the others are transported",
        count(count_of)
    );
    let wells: Vec<u32> = (cells.unknowns.len() as u32..a.rows as u32).collect();
    if !wells.is_empty() {
        text += &format!(
            "; {} at the end {} in no cell",
            plural(wells.len(), "unknown"),
            if wells.len() == 1 { "is" } else { "are" }
        );
        fields.push(Field::new("w", wells));
    }
    Some((fields, Recognised { kind: Coupled::Cells, text }))
}

/// Returns true if mirrored entries are equal in a sample of rows.
fn looks_symmetric(a: &ScalarRows) -> bool {
    let entry = |i: usize, j: usize| a.row(i).find(|(k, _)| *k == j).map_or(0.0, |(_, v)| v);
    super::sample(a.rows, SAMPLE).all(|i| a.row(i).all(|(j, v)| entry(j, i) == v))
}

impl<'a> Cells<'a> {
    /// Takes the point blocks of the matrix as cells, or finds cells by their pattern. The last unknowns may
    /// be in no cell, such as those of wells.
    fn of(a: &'a ScalarRows<'a>) -> Option<Self> {
        let (unknowns, block) = match a.block {
            1 => {
                let alone = a.alone();
                // The largest cells come first: blocks of four are also pairs.
                let mut tried = SIZES.into_iter().map(|size| {
                    let inside = a.rows - a.rows % size;
                    let of: Vec<bool> = (0..a.rows).map(|i| i < inside).collect();
                    let Nodes { unknowns, block, .. } = nodes::find(a, &of, &alone, &[size], FULL);
                    (unknowns, block, inside)
                });
                let found =
                    tried.find(|(unknowns, block, inside)| *block > 1 && unknowns.len() == *inside)?;
                (found.0, found.1)
            }
            block => ((0..a.rows as u32).collect(), block),
        };
        let suits = SIZES.contains(&block);
        let mut place = vec![u32::MAX; a.rows];
        unknowns.iter().zip(0..).for_each(|(&i, k)| place[i as usize] = k);
        suits.then_some(Self { a, unknowns, place, block })
    }

    /// Returns the columns of a block that are not zero, as bits.
    fn columns(&self, cell: usize, other: usize) -> u32 {
        let b = self.block;
        let rows = &self.unknowns[cell * b..(cell + 1) * b];
        let entries = rows.iter().flat_map(|&i| self.a.row(i as usize));
        let places = entries.map(|(j, _)| self.place[j]).filter(|&place| place != u32::MAX);
        let inside = places.map(|place| place as usize).filter(|place| place / b == other);
        inside.fold(0, |bits, place| bits | 1 << (place % b))
    }

    /// Returns the blocks of a cell's rows, each with its cell.
    fn blocks(&self, cell: usize) -> Vec<(usize, Vec<f64>)> {
        let b = self.block;
        let mut blocks: Vec<(usize, Vec<f64>)> = Vec::with_capacity(8);
        for (r, &i) in self.unknowns[cell * b..(cell + 1) * b].iter().enumerate() {
            for (j, v) in self.a.row(i as usize).filter(|(j, _)| self.place[*j] != u32::MAX) {
                let (k, c) = (self.place[j] as usize / b, self.place[j] as usize % b);
                let at = blocks.iter().position(|(other, _)| *other == k).unwrap_or_else(|| {
                    blocks.push((k, vec![0.0; b * b]));
                    blocks.len() - 1
                });
                blocks[at].1[r * b + c] += v;
            }
        }
        blocks
    }
}

/// Returns the sum of entries off the diagonal over that on it, for the pressure of a cell, after the other
/// unknowns of the cell are eliminated. `None` if they cannot be.
fn elliptic(blocks: &[(usize, Vec<f64>)], b: usize, cell: usize, pressure: usize) -> Option<f64> {
    let (_, own) = blocks.iter().find(|(k, _)| *k == cell)?;
    // Weights w of the rows with wᵀ D = eₚᵀ, by elimination with pivots of Dᵀ w = eₚ.
    let row = |c: usize| (0..b).map(|r| own[r * b + c]).chain([f64::from(u8::from(c == pressure))]).collect();
    let mut rows: Vec<Vec<f64>> = (0..b).map(row).collect();
    for k in 0..b {
        let pivot = (k..b).max_by(|&i, &j| rows[i][k].abs().total_cmp(&rows[j][k].abs()))?;
        rows.swap(k, pivot);
        if rows[k][k] == 0.0 {
            return None;
        }
        let (head, tail) = rows.split_at_mut(k + 1);
        for row in tail {
            let factor = row[k] / head[k][k];
            row.iter_mut().zip(&head[k]).for_each(|(v, u)| *v -= factor * u);
        }
    }
    let mut w = vec![0.0; b];
    for k in (0..b).rev() {
        let known: f64 = (k + 1..b).map(|c| rows[k][c] * w[c]).sum();
        w[k] = (rows[k][b] - known) / rows[k][k];
    }
    let others = blocks.iter().filter(|(k, _)| *k != cell);
    let coupling = |block: &[f64]| (0..b).map(|r| w[r] * block[r * b + pressure]).sum::<f64>().abs();
    let sum: f64 = others.map(|(_, block)| coupling(block)).sum();
    sum.is_finite().then_some(sum)
}

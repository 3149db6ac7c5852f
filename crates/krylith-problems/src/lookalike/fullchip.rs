//! `FullChip`: a circuit with a few nets that reach most of the chip.
//!
//! Six rows and columns are long: the longest has the original's length, the other five from a tenth to a
//! two-hundredth of the rows. A row holds its diagonal, the columns of the long nets that reach it, and
//! nearby columns; the density of row lengths falls as the length to the power −3. The long rows and columns
//! have the same positions, except in the shortest row; the rest of the pattern is not symmetric.

use super::Shape;
use super::build::{Pattern, distinct};
use super::hash::{below, mix};
use super::lengths::{Tail, beside, distance, draw, settle};
use crate::random::Random;

/// Number of rows over number of entries, for all long nets but the longest.
const NETS: [usize; 5] = [10, 25, 50, 100, 200];

#[derive(Debug)]
pub(super) struct FullChip {
    lengths: Vec<u32>,
    nets: Vec<Net>,
    shortest: usize,
    seed: u64,
}

/// A row and a column with `entries` entries each, one at a random position in each of as many equal runs of
/// the n rows.
#[derive(Debug)]
struct Net {
    row: usize,
    entries: usize,
    n: usize,
    seed: u64,
}

impl Net {
    /// Returns the position in run `k`; it is the diagonal in the run that contains it.
    fn place(&self, k: usize) -> usize {
        let begin = |k: usize| (k as u128 * self.n as u128 / self.entries as u128) as usize;
        let run = begin(k)..begin(k + 1);
        if run.contains(&self.row) {
            self.row
        } else {
            run.start + below(mix(self.seed ^ k as u64), run.len())
        }
    }

    fn reaches(&self, i: usize) -> bool {
        let run = (((i + 1) as u128 * self.entries as u128 - 1) / self.n as u128) as usize;
        self.place(run) == i
    }
}

impl FullChip {
    pub fn new(shape: &Shape, seed: u64) -> Self {
        let (n, min, max) = (shape.rows as usize, shape.min, shape.max);
        let sizes = [max as usize].into_iter().chain(NETS.map(|part| n / part));
        let nets: Vec<Net> = sizes
            .enumerate()
            .map(|(k, entries)| {
                let seed = mix(seed ^ mix(k as u64 + 1));
                // Each net lies in its own sixth of the rows, so all are different.
                Net { row: (k * n + below(seed, n)) / 6, entries, n, seed }
            })
            .collect();
        let shortest = (nets[0].row + 1) % n;
        let shortest = if nets.iter().any(|net| net.row == shortest) { (shortest + 1) % n } else { shortest };
        let mut chip = Self { lengths: Vec::new(), nets, shortest, seed };

        let long: usize = chip.nets.iter().map(|net| net.entries).sum();
        // Each net is one row and one column, and each row has its diagonal.
        let near = shape.nonzeros.saturating_sub((2 * long + n) as u64) as f64 / n as f64;
        let tail = Tail::new(near, 1, (max / 4).min(200), false);
        let fixed = |i: usize| {
            let net = chip.nets.iter().find(|net| net.row == i).map(|net| net.entries as u32);
            net.or((i == shortest).then_some(min))
        };
        let reached = |i: usize| 1 + chip.nets.iter().filter(|net| net.reaches(i)).count() as u32;
        let mut lengths = draw(n, &|i| {
            fixed(i).unwrap_or_else(|| reached(i) + tail.length(1.0 - Random::new(seed, 1, i as u64).unit()))
        });
        settle(&mut lengths, shape.nonzeros, &|i, length, longer| {
            fixed(i).is_none() && if longer { length + 1 < max } else { length > reached(i) + 1 }
        });
        chip.lengths = lengths;
        chip
    }
}

impl Pattern for FullChip {
    type Scratch = ();
    const SYMMETRIC: bool = false;

    fn length(&self, i: usize) -> usize {
        self.lengths[i] as usize
    }

    fn columns(&self, i: usize, (): &mut (), out: &mut Vec<u32>) {
        if let Some(net) = self.nets.iter().find(|net| net.row == i) {
            out.extend((0..net.entries).map(|k| net.place(k) as u32));
            return;
        }
        let (n, want) = (self.lengths.len(), self.lengths[i] as usize);
        out.push(i as u32);
        if i != self.shortest {
            out.extend(self.nets.iter().filter(|net| net.reaches(i)).map(|net| net.row as u32));
        }
        let mut random = Random::new(self.seed, 2, i as u64);
        distinct(out, want, n, || {
            let before = random.next() & 1 == 0;
            beside(i, distance(&mut random, 4.0 + want as f64), before, n)
        });
    }
}

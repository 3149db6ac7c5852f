//! `stokes`: finite elements with several unknowns per node, in three dimensions.
//!
//! One row in thirty belongs to a boundary value and holds only its diagonal. One in five hundred is long, by
//! a power law; the others have lengths around 31. Two of five entries lie in runs around the diagonal. The
//! rest lie in runs around four bands, n^(1/3) and n^(2/3) on either side of it: the next lines and planes of
//! a mesh numbered line by line. The pattern is not symmetric.

use super::Shape;
use super::build::{Pattern, distinct};
use super::hash::{below, mix};
use super::lengths::{Tail, draw, settle};
use crate::random::Random;

#[derive(Debug)]
pub(super) struct Stokes {
    lengths: Vec<u32>,
    /// Distances in numbering from one line of the mesh to the next, and from plane to plane.
    strides: [usize; 2],
    seed: u64,
}

impl Stokes {
    pub fn new(shape: &Shape, seed: u64) -> Self {
        let (n, min, max) = (shape.rows as usize, shape.min, shape.max);
        let longest = below(mix(seed), n);
        let shortest = (longest + n / 2) % n;
        let tail = Tail::new(120.0, 60, max / 2, false);
        let usual = shape.mean * 1.03 - 10.0;
        let mut lengths = draw(n, &|i| {
            let mut random = Random::new(seed, 1, i as u64);
            let u = random.unit();
            match i {
                _ if i == longest => max,
                _ if i == shortest || u < 1.0 / 30.0 => min,
                _ if u > 1.0 - 1.0 / 500.0 => tail.length(1.0 - random.unit()),
                _ => (usual + 10.0 * (random.unit() + random.unit())).max(2.0) as u32,
            }
        });
        settle(&mut lengths, shape.nonzeros, &|_, length, longer| match longer {
            true => length > min && length + 1 < max,
            false => length > min + 1 && length < max,
        });
        let line = (1..).find(|k: &usize| k.pow(3) >= n).unwrap_or(1);
        Self { lengths, strides: [line, line * line], seed }
    }
}

impl Pattern for Stokes {
    type Scratch = ();
    const SYMMETRIC: bool = false;

    fn length(&self, i: usize) -> usize {
        self.lengths[i] as usize
    }

    fn columns(&self, i: usize, (): &mut (), out: &mut Vec<u32>) {
        let (n, want) = (self.lengths.len(), self.lengths[i] as usize);
        let mut random = Random::new(self.seed, 2, i as u64);
        let (width, [line, plane]) = (want.min(n), self.strides);
        let (mut run, mut last) = (0, 0);
        out.push(i as u32);
        distinct(out, want, n, || {
            if run > 0 && last + 1 < n {
                (run, last) = (run - 1, last + 1);
                return last;
            }
            let word = random.next();
            let centre = match word % 20 {
                0..8 => Some(i),
                8..11 => i.checked_sub(line),
                11..14 => Some(i + line),
                14..17 => i.checked_sub(plane),
                _ => Some(i + plane),
            };
            run = 2;
            // Bands that lie outside are folded back to the diagonal.
            let centre = centre.filter(|&c| c < n).unwrap_or(i);
            last = (centre + below(random.next(), width + 1)).saturating_sub(width / 2).min(n - 1);
            last
        });
    }
}

//! `social`: social networks. Row and column lengths follow power laws, with little locality.
//!
//! The density of row lengths falls as the length to the power −7/3. A row with entries has its diagonal. A
//! share of its other entries, specific to each graph, lies nearby, and the rest anywhere. A column of rank r
//! is chosen in proportion to r^(−0.6), so a popular one of GAP-twitter is in a million rows. `GAP-twitter`
//! is `twitter7` with unused numbers, so a third of its rows are empty. The pattern is not symmetric, even if
//! the original's is (com-LiveJournal).

use super::Shape;
use super::build::{Pattern, distinct};
use super::hash::{below, mix};
use super::lengths::{beside, distance, power_law};
use crate::random::Random;

#[derive(Debug)]
pub(super) struct Social {
    lengths: Vec<u32>,
    near: f64,
    seed: u64,
}

impl Social {
    pub fn new(shape: &Shape, empty: f64, near: f64, seed: u64) -> Self {
        Self { lengths: power_law(shape, empty, true, seed), near, seed }
    }
}

impl Pattern for Social {
    type Scratch = ();
    const SYMMETRIC: bool = false;

    fn length(&self, i: usize) -> usize {
        self.lengths[i] as usize
    }

    fn columns(&self, i: usize, (): &mut (), out: &mut Vec<u32>) {
        let (n, want) = (self.lengths.len(), self.lengths[i] as usize);
        if want == 0 {
            return;
        }
        let mut random = Random::new(self.seed, 2, i as u64);
        out.push(i as u32);
        distinct(out, want, n, || {
            let u = random.unit();
            if u < self.near {
                let before = random.next() & 1 == 0;
                return beside(i, distance(&mut random, 64.0 + 2.0 * want as f64), before, n);
            }
            let u = random.unit();
            below(mix((n as f64 * u * u * u.sqrt()) as u64 ^ self.seed), n)
        });
    }
}

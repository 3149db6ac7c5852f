//! `web`: crawls of the web, with pages numbered by address.
//!
//! The density of row lengths falls as the length to the power −3. One row in ten is empty: a page that was
//! not read. A page links to itself. Of its other links, three of five go to nearby pages, in runs; one of
//! five to the first pages of its host, which has 512 pages; one of seven to popular pages anywhere, the page
//! of rank r in proportion to r^(−1/2); and one of thirty to any page. The pattern is not symmetric.

use super::Shape;
use super::build::{Pattern, distinct};
use super::hash::{below, mix};
use super::lengths::{beside, distance, power_law};
use crate::random::Random;

const HOST: usize = 512;

#[derive(Debug)]
pub(super) struct Web {
    lengths: Vec<u32>,
    seed: u64,
}

impl Web {
    pub fn new(shape: &Shape, seed: u64) -> Self {
        Self { lengths: power_law(shape, 0.1, false, seed), seed }
    }
}

impl Pattern for Web {
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
        let scale = 16.0 + 2.0 * want as f64;
        let (mut run, mut last) = (0u32, 0);
        out.push(i as u32);
        distinct(out, want, n, || {
            if run > 0 && last + 1 < n {
                (run, last) = (run - 1, last + 1);
                return last;
            }
            let word = random.next();
            match word % 20 {
                // A run has two pages on average.
                0..9 => {
                    run = (word >> 32).trailing_zeros().min(8);
                    last = beside(i, distance(&mut random, scale), word & (1 << 24) == 0, n);
                    last
                }
                9..15 => (i / HOST * HOST + distance(&mut random, 4.0) - 1).min(n - 1),
                15..19 => {
                    let u = random.unit();
                    below(mix((n as f64 * u * u) as u64 ^ self.seed), n)
                }
                _ => below(random.next(), n),
            }
        });
    }
}

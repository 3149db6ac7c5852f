//! `kmer`: de Bruijn graphs of genomes, chains that rarely branch.
//!
//! All vertices stand on one line in a random order, joined to those before and behind, so neighbours lie anywhere: the originals have
//! little locality, and none is assumed. One joint in sixteen vertices is missing, which leaves tips of one neighbour. As
//! many further edges as the original's number of entries asks for join a vertex each to a hub, most of one further edge,
//! one of as many as the longest row has. The pattern is symmetric and has no diagonal.
//!
//! Places on the line repeat with a period s ≥ 6: 1 is the end of a further edge, 3 a hub, and the joint of 4 and 5 may be missing. So
//! nobody has two of these parts, and both ends of an edge find each other by arithmetic.

use super::Shape;
use super::build::Pattern;
use super::hash::Permutation;

/// How many hubs of how many further edges stand in a run; the last only where rows may be that long.
const HUBS: [(usize, usize); 5] = [(96, 1), (24, 2), (6, 4), (2, 6), (1, 12)];

#[derive(Debug)]
pub(super) struct Kmer {
    n: usize,
    period: usize,
    /// Missing joints, further edges, and those of the largest hub.
    missing: usize,
    edges: usize,
    largest: usize,
    /// Where the edges of each hub of a run begin, and their number.
    begin: Vec<usize>,
    /// The hub of each edge of a run.
    hub: Vec<usize>,
    line: Permutation,
}

impl Kmer {
    pub fn new(shape: &Shape, seed: u64) -> Self {
        let n = shape.rows as usize;
        let missing = n / 16;
        // (n − 1) − missing + edges joints make half of the entries.
        let edges = shape.nonzeros as usize / 2 + missing + 1 - n;
        let largest = shape.max as usize - 2;
        let (mut begin, mut hub) = (vec![0], Vec::new());
        for (count, slots) in HUBS {
            for _ in 0..if slots <= largest { count } else { 0 } {
                hub.extend(std::iter::repeat_n(begin.len() - 1, slots));
                begin.push(hub.len());
            }
        }
        let period = (n - 8) / edges;
        Self { n, period, missing, edges, largest, begin, hub, line: Permutation::new(n, seed) }
    }

    /// The hub of a further edge.
    fn hub_of(&self, edge: usize) -> usize {
        match edge.checked_sub(self.largest) {
            None => 0,
            Some(e) => 1 + e / self.hub.len() * (self.begin.len() - 1) + self.hub[e % self.hub.len()],
        }
    }

    /// The further edges of a hub.
    fn edges_of(&self, hub: usize) -> std::ops::Range<usize> {
        let range = match hub.checked_sub(1) {
            None => 0..self.largest,
            Some(h) => {
                let (run, h) = (h / (self.begin.len() - 1), h % (self.begin.len() - 1));
                let first = self.largest + run * self.hub.len();
                first + self.begin[h]..first + self.begin[h + 1]
            }
        };
        range.start.min(self.edges)..range.end.min(self.edges)
    }

    /// Whether places `q` and `q + 1` are joined.
    fn joined(&self, q: usize) -> bool {
        q + 1 < self.n && !(q % self.period == 4 && q / self.period < self.missing)
    }

    /// Calls `each` with the places of the neighbours of place `q`.
    fn neighbours(&self, q: usize, mut each: impl FnMut(usize)) {
        if q > 0 && self.joined(q - 1) {
            each(q - 1);
        }
        if self.joined(q) {
            each(q + 1);
        }
        let (k, part) = (q / self.period, q % self.period);
        if part == 1 && k < self.edges {
            each(self.hub_of(k) * self.period + 3);
        } else if part == 3 {
            self.edges_of(k).for_each(|edge| each(edge * self.period + 1));
        }
    }
}

impl Pattern for Kmer {
    type Scratch = ();
    const SYMMETRIC: bool = true;

    fn length(&self, i: usize) -> usize {
        let mut count = 0;
        self.neighbours(self.line.of(i), |_| count += 1);
        count
    }

    fn columns(&self, i: usize, (): &mut (), out: &mut Vec<u32>) {
        self.neighbours(self.line.of(i), |q| out.push(self.line.inverse(q) as u32));
        out.sort_unstable();
    }
}

//! `kmer`: de Bruijn graphs of genomes, chains that rarely branch.
//!
//! All vertices lie on one line in a random order. Each is joined to the vertices before and after it, so
//! neighbours lie anywhere: the originals have little locality, and none is assumed. One joint per sixteen
//! vertices is missing, which leaves tips with one neighbour. Further edges, each from a vertex to a hub,
//! make up the original's number of entries. Most hubs have one further edge; one hub has as many as the
//! longest row. The pattern is symmetric and has no diagonal.
//!
//! Positions on the line repeat with a period s ≥ 6: position 1 is the end of a further edge, 3 is a hub, and
//! the joint of 4 and 5 may be missing. No vertex has two of these roles, and arithmetic gives each end of an
//! edge from the other.

use super::Shape;
use super::build::Pattern;
use super::hash::Permutation;

/// Numbers of hubs in a run and of further edges per hub; the last is used only if rows may be that long.
const HUBS: [(usize, usize); 5] = [(96, 1), (24, 2), (6, 4), (2, 6), (1, 12)];

#[derive(Debug)]
pub(super) struct Kmer {
    n: usize,
    period: usize,
    /// Numbers of missing joints, of further edges, and of further edges of the largest hub.
    missing: usize,
    edges: usize,
    largest: usize,
    /// Start of the edges of each hub of a run, and their total.
    begin: Vec<usize>,
    /// The hub of each edge of a run.
    hub: Vec<usize>,
    line: Permutation,
}

impl Kmer {
    pub fn new(shape: &Shape, seed: u64) -> Self {
        let n = shape.rows as usize;
        let missing = n / 16;
        // (n − 1) − missing + edges joints give half of the entries.
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

    /// Returns the hub of a further edge.
    fn hub_of(&self, edge: usize) -> usize {
        match edge.checked_sub(self.largest) {
            None => 0,
            Some(e) => 1 + e / self.hub.len() * (self.begin.len() - 1) + self.hub[e % self.hub.len()],
        }
    }

    /// Returns the further edges of a hub.
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

    /// Returns true if positions `q` and `q + 1` are joined.
    fn joined(&self, q: usize) -> bool {
        q + 1 < self.n && !(q % self.period == 4 && q / self.period < self.missing)
    }

    /// Calls `each` with the positions of the neighbours of position `q`.
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

//! Undirected graphs of unknowns, and what their dissection shares.

/// Sides with at least this many vertices are dissected concurrently.
pub(super) const APART: usize = 4000;
/// No vertex.
pub(super) const NONE: u32 = u32::MAX;

/// An undirected graph: every edge is stored in both directions, and there are no loops.
#[derive(Default, Clone)]
pub(super) struct Graph {
    pub ptr: Vec<u32>,
    pub adj: Vec<u32>,
    /// Weights of edges; empty if all are 1.
    pub weight: Vec<u32>,
    /// Unknowns of each vertex.
    pub size: Vec<u32>,
}

impl Graph {
    pub fn len(&self) -> usize {
        self.size.len()
    }

    pub fn neighbours(&self, v: u32) -> &[u32] {
        &self.adj[self.ptr[v as usize] as usize..self.ptr[v as usize + 1] as usize]
    }

    pub fn edges(&self, v: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        let range = self.ptr[v as usize] as usize..self.ptr[v as usize + 1] as usize;
        range.map(|e| (self.adj[e], self.weight.get(e).copied().unwrap_or(1)))
    }

    pub fn unknowns(&self) -> u64 {
        self.size.iter().map(|&s| u64::from(s)).sum()
    }

    /// Returns the part with the vertices `own`, whose positions in that list are `place`.
    pub fn part(&self, own: &[u32], place: &[u32]) -> Self {
        let most = own.iter().map(|&v| self.neighbours(v).len()).sum();
        let mut part = Self { ptr: Vec::with_capacity(own.len() + 1), ..Default::default() };
        part.adj.reserve_exact(most);
        part.ptr.push(0);
        let weighted = !self.weight.is_empty();
        for &v in own {
            for (u, weight) in self.edges(v) {
                if place[u as usize] != NONE {
                    part.adj.push(place[u as usize]);
                    if weighted {
                        part.weight.push(weight);
                    }
                }
            }
            part.ptr.push(part.adj.len() as u32);
        }
        part.size = own.iter().map(|&v| self.size[v as usize]).collect();
        part
    }
}

/// A generator of pseudo-random numbers (Marsaglia's xorshift).
pub(super) struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(0x9e37_79b9_7f4a_7c15 ^ seed.wrapping_mul(0xd6e8_feb8_6659_fd93).max(1))
    }

    /// Returns a number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (((self.0 >> 32) * n as u64) >> 32) as usize
    }
}

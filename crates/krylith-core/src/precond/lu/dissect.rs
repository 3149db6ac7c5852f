//! Nested dissection of a graph: an elimination order that numbers a vertex separator after both sides of it.
//!
//! George (1973), with separators by the multilevel scheme of Karypis and Kumar (1998): pairs of vertices are
//! merged until few are left, the smallest graph gets a separator by growing a region, and each finer level
//! refines it ([`super::separator`]). Graphs of at most [`LEAF`] vertices are ordered by approximate minimum
//! degree. Both sides are dissected concurrently; the order does not depend on the number of threads.

use super::separator::{Side, refine, separate};
use crate::interrupt::Limits;
use crate::{Error, Result};

/// Graphs of at most this many vertices are ordered by minimum degree.
const LEAF: usize = 400;
/// Coarsening ends with at most this many vertices.
const COARSEST: usize = 30;
/// Coarsening ends at a level with more than this share of the vertices of the finer one.
const STALLED: f64 = 0.92;
/// Sides with at least this many vertices are dissected concurrently.
const APART: usize = 4000;
/// Largest share of the unknowns on one side of a separator.
pub(super) const BALANCE: f64 = 0.65;

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

    fn edges(&self, v: u32) -> impl Iterator<Item = (u32, u32)> + '_ {
        let range = self.ptr[v as usize] as usize..self.ptr[v as usize + 1] as usize;
        range.map(|e| (self.adj[e], self.weight.get(e).copied().unwrap_or(1)))
    }

    pub fn unknowns(&self) -> u64 {
        self.size.iter().map(|&s| u64::from(s)).sum()
    }

    /// Returns the subgraphs of the two sides, each with the numbers of its vertices in this graph.
    fn halves(&self, side: &[Side]) -> [(Self, Vec<u32>); 2] {
        let mut place = vec![0u32; self.len()];
        let mut own: [Vec<u32>; 2] = Default::default();
        for (v, &s) in side.iter().enumerate() {
            if let Some(own) = own.get_mut(s as usize) {
                place[v] = own.len() as u32;
                own.push(v as u32);
            }
        }
        let mut which = 0;
        own.map(|own| {
            let mut half = Self { ptr: Vec::with_capacity(own.len() + 1), ..Default::default() };
            half.ptr.push(0);
            let most = own.iter().map(|&v| self.neighbours(v).len()).sum();
            half.adj.reserve_exact(most);
            for &v in &own {
                let inside = self.neighbours(v).iter().filter(|&&u| side[u as usize] as usize == which);
                half.adj.extend(inside.map(|&u| place[u as usize]));
                half.ptr.push(half.adj.len() as u32);
                half.size.push(self.size[v as usize]);
            }
            which += 1;
            (half, own)
        })
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

/// Returns the size of a separator of A + Aᵀ for the square matrix with this pattern, by one bisection.
/// Columns of a row may come in any order, and twice.
pub(crate) fn separator(row_ptr: &[usize], col: &[u32]) -> usize {
    let n = row_ptr.len() - 1;
    let mut ptr = vec![0u32; n + 1];
    let pairs = |visit: &mut dyn FnMut(usize, u32)| {
        for i in 0..n {
            for &j in col[row_ptr[i]..row_ptr[i + 1]].iter().filter(|j| **j as usize != i) {
                visit(i, j);
                visit(j as usize, i as u32);
            }
        }
    };
    pairs(&mut |i, _| ptr[i + 1] += 1);
    (0..n).for_each(|i| ptr[i + 1] += ptr[i]);
    let (mut next, mut all) = (ptr.clone(), vec![0u32; ptr[n] as usize]);
    pairs(&mut |i, j| {
        all[next[i] as usize] = j;
        next[i] += 1;
    });
    let mut graph = Graph { ptr: vec![0], size: vec![1; n], ..Default::default() };
    for i in 0..n {
        let row = &mut all[ptr[i] as usize..ptr[i + 1] as usize];
        row.sort_unstable();
        let mut before = None;
        graph.adj.extend(row.iter().copied().filter(|j| before.replace(*j) != Some(*j)));
        graph.ptr.push(graph.adj.len() as u32);
    }
    bisect(&graph).iter().filter(|side| **side == Side::Separator).count()
}

/// Returns the vertices in an order of elimination with little fill.
///
/// # Errors
/// The limits of the caller's work are reached.
pub(super) fn order(graph: Graph, limits: Option<&Limits>) -> Result<Vec<u32>> {
    let mut out = vec![0; graph.len()];
    dissect(graph, limits, &mut out)?;
    Ok(out)
}

fn dissect(graph: Graph, limits: Option<&Limits>, out: &mut [u32]) -> Result<()> {
    if let Some(limits) = limits {
        limits.check()?;
    }
    if graph.len() <= LEAF {
        return leaf(&graph, out);
    }
    let side = bisect(&graph);
    let halves = graph.halves(&side);
    let count = halves[0].1.len() + halves[1].1.len();
    if halves.iter().any(|(_, own)| own.len() == graph.len()) || count == 0 {
        return leaf(&graph, out);
    }
    // The separator is eliminated last.
    let separator = (0..graph.len() as u32).filter(|&v| side[v as usize] == Side::Separator);
    out[count..].iter_mut().zip(separator).for_each(|(out, v)| *out = v);
    drop(graph);
    let large = count >= APART;
    let (first, second) = out[..count].split_at_mut(halves[0].1.len());
    let one = |(half, own): (Graph, Vec<u32>), out: &mut [u32]| {
        dissect(half, limits, out)?;
        out.iter_mut().for_each(|v| *v = own[*v as usize]);
        Ok(())
    };
    let [left, right] = halves;
    let (left, right) = match large {
        true => rayon::join(|| one(left, first), || one(right, second)),
        false => (one(left, first), one(right, second)),
    };
    left.and(right)
}

/// Orders a small graph by approximate minimum degree (Amestoy, Davis and Duff 1996).
fn leaf(graph: &Graph, out: &mut [u32]) -> Result<()> {
    let order = minimum_degree(graph)?;
    out.copy_from_slice(&order);
    Ok(())
}

/// Returns an order by approximate minimum degree.
///
/// # Errors
/// Out of memory.
pub(super) fn minimum_degree(graph: &Graph) -> Result<Vec<u32>> {
    use faer::dyn_stack::{MemBuffer, MemStack};
    use faer::sparse::SymbolicSparseColMatRef;
    use faer::sparse::linalg::amd;
    let n = graph.len();
    let failed = |e: String| Error::invalid(format!("lu: out of memory for an order ({e}); use ildu"));
    // Only the upper triangle is read, with its diagonal.
    let (mut ptr, mut rows) = (vec![0u32], Vec::with_capacity(graph.adj.len() / 2));
    for v in 0..n as u32 {
        let begin = rows.len();
        rows.extend(graph.neighbours(v).iter().copied().filter(|&u| u < v));
        rows[begin..].sort_unstable();
        ptr.push(rows.len() as u32);
    }
    let pattern = SymbolicSparseColMatRef::new_checked(n, n, &ptr, None, &rows);
    let (mut forward, mut inverse) = (vec![0u32; n], vec![0u32; n]);
    let mut memory =
        MemBuffer::try_new(amd::order_scratch::<u32>(n, rows.len())).map_err(|e| failed(format!("{e:?}")))?;
    let stack = MemStack::new(&mut memory);
    amd::order(&mut forward, &mut inverse, pattern, Default::default(), stack)
        .map_err(|e| failed(format!("{e:?}")))?;
    Ok(forward)
}

/// Returns the side of each vertex, with a small separator.
pub(super) fn bisect(graph: &Graph) -> Vec<Side> {
    let mut random = Random::new(graph.len() as u64);
    let mut levels: Vec<(Graph, Vec<u32>)> = Vec::new();
    loop {
        let fine = levels.last().map_or(graph, |l| &l.0);
        if fine.len() <= COARSEST {
            break;
        }
        let (coarse, map) = coarsen(fine, &mut random, graph.unknowns());
        if coarse.len() as f64 > STALLED * fine.len() as f64 {
            break;
        }
        levels.push((coarse, map));
    }
    let mut side = separate(levels.last().map_or(graph, |l| &l.0), &mut random);
    while let Some((_, map)) = levels.pop() {
        let fine = levels.last().map_or(graph, |l| &l.0);
        side = map.iter().map(|&c| side[c as usize]).collect();
        refine(fine, &mut side);
    }
    side
}

/// Merges pairs of vertices along heavy edges; returns the coarse graph and the coarse vertex of each vertex.
fn coarsen(graph: &Graph, random: &mut Random, unknowns: u64) -> (Graph, Vec<u32>) {
    const NONE: u32 = u32::MAX;
    let n = graph.len();
    let most = (3 * unknowns / (2 * COARSEST as u64)).max(2) as u32;
    // Vertices with few neighbours have few partners, so they choose first.
    let mut order: Vec<u32> = (0..n as u32).collect();
    for k in (1..n).rev() {
        order.swap(k, random.below(k + 1));
    }
    let mean = 1 + (graph.adj.len() as f64 / n as f64 * 0.7) as usize;
    let degree = |v: u32| graph.neighbours(v).len().min(mean);
    let mut begin = vec![0usize; mean + 2];
    order.iter().for_each(|&v| begin[degree(v) + 1] += 1);
    (0..=mean).for_each(|d| begin[d + 1] += begin[d]);
    let mut sorted = vec![0u32; n];
    for &v in &order {
        let at = &mut begin[degree(v)];
        sorted[*at] = v;
        *at += 1;
    }
    let mut mate = vec![NONE; n];
    for &v in &sorted {
        if mate[v as usize] != NONE {
            continue;
        }
        let room = most.saturating_sub(graph.size[v as usize]);
        let (mut best, mut heaviest) = (v, 0);
        for (u, w) in graph.edges(v) {
            if w > heaviest && mate[u as usize] == NONE && graph.size[u as usize] <= room {
                (best, heaviest) = (u, w);
            }
        }
        mate[v as usize] = best;
        mate[best as usize] = v;
    }
    // Vertices without a partner that share a neighbour, such as the leaves of a star.
    let mut waiting = vec![NONE; n];
    for v in 0..n as u32 {
        if mate[v as usize] != v {
            continue;
        }
        let hub = graph.neighbours(v).iter().max_by_key(|&&u| (graph.neighbours(u).len(), u));
        let Some(&hub) = hub else { continue };
        let other = std::mem::replace(&mut waiting[hub as usize], v);
        if other != NONE && graph.size[v as usize] + graph.size[other as usize] <= most {
            mate[v as usize] = other;
            mate[other as usize] = v;
            waiting[hub as usize] = NONE;
        }
    }
    let mut map = vec![0u32; n];
    let mut pairs = Vec::with_capacity(n / 2 + 1);
    for v in 0..n as u32 {
        let u = mate[v as usize];
        if v <= u {
            map[v as usize] = pairs.len() as u32;
            map[u as usize] = pairs.len() as u32;
            pairs.push((v, u));
        }
    }
    let mut coarse = Graph { ptr: Vec::with_capacity(pairs.len() + 1), ..Default::default() };
    coarse.adj.reserve(graph.adj.len() * 3 / 4);
    coarse.weight.reserve(graph.adj.len() * 3 / 4);
    coarse.ptr.push(0);
    let mut at = vec![NONE; pairs.len()];
    for (c, &(v, u)) in pairs.iter().enumerate() {
        let begin = coarse.adj.len();
        let mut add = |v: u32| {
            for (w, weight) in graph.edges(v) {
                let d = map[w as usize];
                if d as usize == c {
                    continue;
                }
                let place = at[d as usize] as usize;
                if place >= begin && place < coarse.adj.len() && coarse.adj[place] == d {
                    coarse.weight[place] += weight;
                } else {
                    at[d as usize] = coarse.adj.len() as u32;
                    coarse.adj.push(d);
                    coarse.weight.push(weight);
                }
            }
        };
        add(v);
        if u != v {
            add(u);
        }
        coarse.ptr.push(coarse.adj.len() as u32);
        coarse.size.push(graph.size[v as usize] + if u == v { 0 } else { graph.size[u as usize] });
    }
    (coarse, map)
}

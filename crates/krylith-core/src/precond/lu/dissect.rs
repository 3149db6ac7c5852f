//! Nested dissection of a graph: an elimination order that numbers a vertex separator after both sides of it.
//!
//! George (1973), with separators by the multilevel scheme of Karypis and Kumar (1998): pairs of vertices are
//! merged until few are left, the smallest graph gets a separator by growing a region, and each finer level
//! refines it ([`super::separator`]). Graphs of at most [`LEAF`] vertices are ordered by approximate minimum
//! degree. Both sides are dissected concurrently; the order does not depend on the number of threads.

use super::separator::{Side, refine, separate};
use crate::interrupt::Limits;
use crate::{Error, Result};
use rayon::prelude::*;

/// Graphs of at most this many vertices are ordered by minimum degree.
const LEAF: usize = 400;
/// Graphs of at most this many vertices are not bisected where the caller asks for more parts.
const FEWEST: usize = 16;
/// Coarsening ends with at most this many vertices.
const COARSEST: usize = 30;
/// Coarsening ends at a level with more than this share of the vertices of the finer one.
const STALLED: f64 = 0.92;
/// Sides with at least this many vertices are dissected concurrently.
const APART: usize = 4000;
/// Rounds in which vertices of a large graph choose partners.
const ROUNDS: usize = 5;
/// Largest number of tasks that merge pairs, and smallest number of vertices of a task that chooses partners.
const SHARES: usize = 32;
const SHARE: usize = 1024;
/// No vertex.
const NONE: u32 = u32::MAX;
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

/// Returns the vertices in an order of elimination with little fill.
///
/// # Errors
/// The limits of the caller's work are reached.
pub(super) fn order(graph: Graph, limits: Option<&Limits>) -> Result<Vec<u32>> {
    let mut out = vec![0; graph.len()];
    dissect(graph, 0, limits, &mut out)?;
    Ok(out)
}

/// Returns such an order, and the sizes of the parts that the first bisections make, in unknowns. With
/// `levels` levels, the first 2^(levels − 1) parts are the sides of the last bisections, from left to right.
/// The separators between pairs of sides follow, then those between pairs of pairs, up to the separator of
/// the whole graph. The order lists the parts in this order. The parts of a graph that was too small for a
/// bisection have size 0, except the first.
///
/// # Errors
/// The limits of the caller's work are reached.
pub(super) fn order_with_parts(
    graph: Graph,
    levels: usize,
    limits: Option<&Limits>,
) -> Result<(Vec<u32>, Vec<u32>)> {
    let (mut nested, weight) = (vec![0; graph.len()], graph.size.clone());
    let mut sizes = dissect(graph, levels, limits, &mut nested)?;
    // Here each separator follows its two sides.
    let mut rest = nested.into_iter();
    let mut parts: Vec<Vec<Vec<u32>>> = sizes.iter().map(|level| vec![Vec::new(); level.len()]).collect();
    nested_parts(levels, 0, 0, &mut |level, at| {
        let mut left = sizes[level][at];
        while left > 0
            && let Some(v) = rest.next()
        {
            left -= weight[v as usize];
            parts[level][at].push(v);
        }
    });
    parts.reverse();
    sizes.reverse();
    Ok((parts.concat().concat(), sizes.concat()))
}

/// Visits parts with each separator after its two sides.
fn nested_parts(levels: usize, level: usize, at: usize, visit: &mut impl FnMut(usize, usize)) {
    if level + 1 < levels {
        nested_parts(levels, level + 1, 2 * at, visit);
        nested_parts(levels, level + 1, 2 * at + 1, visit);
    }
    visit(level, at);
}

/// Orders a graph; returns the sizes of its parts for each of `levels` levels, of which the whole graph's
/// separator is the first.
fn dissect(graph: Graph, levels: usize, limits: Option<&Limits>, out: &mut [u32]) -> Result<Vec<Vec<u32>>> {
    if let Some(limits) = limits {
        limits.check()?;
    }
    let undivided = |unknowns: u64| {
        let mut sizes: Vec<Vec<u32>> = (0..levels).map(|level| vec![0; 1 << level]).collect();
        sizes.last_mut().into_iter().for_each(|last| last[0] = unknowns as u32);
        sizes
    };
    let unknowns = graph.unknowns();
    if levels == 1 {
        dissect(graph, 0, limits, out)?;
        return Ok(undivided(unknowns));
    }
    if graph.len() <= if levels == 0 { LEAF } else { FEWEST } {
        return leaf(&graph, out).map(|()| undivided(unknowns));
    }
    let side = bisect(&graph);
    let halves = graph.halves(&side);
    let count = halves[0].1.len() + halves[1].1.len();
    if halves.iter().any(|(_, own)| own.len() == graph.len()) || count == 0 {
        return leaf(&graph, out).map(|()| undivided(unknowns));
    }
    // The separator is eliminated last.
    let separator = (0..graph.len() as u32).filter(|&v| side[v as usize] == Side::Separator);
    out[count..].iter_mut().zip(separator).for_each(|(out, v)| *out = v);
    let separator = unknowns - halves.iter().map(|(half, _)| half.unknowns()).sum::<u64>();
    drop(graph);
    let large = count >= APART;
    let (first, second) = out[..count].split_at_mut(halves[0].1.len());
    let one = |(half, own): (Graph, Vec<u32>), out: &mut [u32]| -> Result<Vec<Vec<u32>>> {
        let sizes = dissect(half, levels.saturating_sub(1), limits, out)?;
        out.iter_mut().for_each(|v| *v = own[*v as usize]);
        Ok(sizes)
    };
    let [left, right] = halves;
    let (left, right) = match large {
        true => rayon::join(|| one(left, first), || one(right, second)),
        false => (one(left, first), one(right, second)),
    };
    let mut sizes = if levels > 0 { vec![vec![separator as u32]] } else { Vec::new() };
    sizes.extend(left?.into_iter().zip(right?).map(|(left, right)| [left, right].concat()));
    Ok(sizes)
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
    let n = graph.len();
    let most = (3 * unknowns / (2 * COARSEST as u64)).max(2) as u32;
    let mut mate = if n < APART { in_turn(graph, most, random) } else { at_once(graph, most, random) };
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
    (merged(graph, &map, &pairs), map)
}

/// Returns partners that vertices choose one after the other.
fn in_turn(graph: &Graph, most: u32, random: &mut Random) -> Vec<u32> {
    let n = graph.len();
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
    mate
}

/// Returns partners that vertices choose all at once, in rounds: two vertices that choose each other. A heavy
/// edge between small vertices is best. Edges that are equally good have a random order that both ends share,
/// so that many vertices choose each other.
fn at_once(graph: &Graph, most: u32, random: &mut Random) -> Vec<u32> {
    let seed = random.below(1 << 30) as u64;
    let mut mate = vec![NONE; graph.len()];
    let mut choice = vec![NONE; graph.len()];
    let mut left: Vec<u32> = (0..graph.len() as u32).collect();
    for _ in 0..ROUNDS {
        let chosen = |v: u32| {
            let (size, mut best, mut partner) = (graph.size[v as usize], (0, 0), NONE);
            for (u, weight) in graph.edges(v) {
                let other = graph.size[u as usize];
                let edge = (u64::from(u.min(v)) << 32 | u64::from(u.max(v))) ^ seed;
                let worth = (u64::from(weight) << 24) / (u64::from(size) * u64::from(other)).max(1);
                let worth = (worth, edge.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32);
                if worth > best && mate[u as usize] == NONE && size + other <= most {
                    (best, partner) = (worth, u);
                }
            }
            partner
        };
        let all: Vec<u32> = left.par_iter().with_min_len(SHARE).map(|&v| chosen(v)).collect();
        left.iter().zip(all).for_each(|(&v, u)| choice[v as usize] = u);
        left.retain(|&v| {
            let u = choice[v as usize];
            let chose = u != NONE && choice[u as usize] == v;
            mate[v as usize] = if chose { u } else { NONE };
            !chose && u != NONE
        });
    }
    (0..).zip(&mut mate).filter(|(_, mate)| **mate == NONE).for_each(|(v, mate)| *mate = v);
    mate
}

/// Returns the graph whose vertices are these pairs.
fn merged(graph: &Graph, map: &[u32], pairs: &[(u32, u32)]) -> Graph {
    let share = pairs.len().div_ceil(SHARES).max(APART);
    let shares = pairs.par_chunks(share).enumerate();
    let parts: Vec<Graph> =
        shares.map(|(k, own)| merged_share(graph, map, pairs.len(), k * share, own)).collect();
    let mut parts = parts.into_iter();
    let mut all = parts.next().unwrap_or_default();
    for part in parts {
        let before = all.adj.len() as u32;
        all.ptr.extend(part.ptr[1..].iter().map(|p| p + before));
        all.adj.extend(part.adj);
        all.weight.extend(part.weight);
        all.size.extend(part.size);
    }
    all
}

/// Returns the rows of these pairs, of which the first has the number `first` of `count`.
fn merged_share(graph: &Graph, map: &[u32], count: usize, first: usize, pairs: &[(u32, u32)]) -> Graph {
    let mut coarse = Graph { ptr: Vec::with_capacity(pairs.len() + 1), ..Default::default() };
    let about = graph.adj.len() / 4 * 3 / (count / pairs.len().max(1)).max(1);
    coarse.adj.reserve(about);
    coarse.weight.reserve(about);
    coarse.ptr.push(0);
    let mut at = vec![NONE; count];
    for (c, &(v, u)) in (first..).zip(pairs) {
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
    coarse
}

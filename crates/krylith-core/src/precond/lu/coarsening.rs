//! Coarser versions of a graph: pairs of vertices are merged until few are left.
//!
//! The halves of a dissected graph keep the pairs that lie inside them, so that most bisections need no new
//! pairs. A pair with a vertex in the separator leaves a vertex of its own in a coarse graph. A coarse graph
//! of a half may have edges without a fine edge, which never makes a separator wrong.

use super::graph::{APART, Graph, NONE, Random};
use super::separator::{Side, refine, separate};
use rayon::prelude::*;

/// Coarsening ends with at most this many vertices.
const COARSEST: usize = 30;
/// Coarsening ends at a level with more than this share of the vertices of the finer one.
const STALLED: f64 = 0.92;
/// A part with fewer than one vertex in this many of the graph that was coarsened is coarsened anew.
const PARTS: usize = 8;
/// Rounds in which vertices of a large graph choose partners.
const ROUNDS: usize = 5;
/// Largest number of tasks that merge pairs, and smallest number of vertices of a task that chooses partners.
const SHARES: usize = 32;
const SHARE: usize = 1024;

/// A graph and coarser versions of it.
pub(super) struct Hierarchy {
    /// The graph, then each coarser one.
    graphs: Vec<Graph>,
    /// For each graph except the last, the coarse vertex of each vertex.
    maps: Vec<Vec<u32>>,
    /// Vertices of the graph whose pairs these are.
    origin: usize,
}

impl Hierarchy {
    pub fn new(graph: Graph) -> Self {
        let (origin, unknowns) = (graph.len(), graph.unknowns());
        let mut random = Random::new(origin as u64);
        let (mut graphs, mut maps) = (vec![graph], Vec::new());
        while let Some(fine) = graphs.last().filter(|fine| fine.len() > COARSEST) {
            let (coarse, map) = coarsen(fine, &mut random, unknowns);
            if coarse.len() as f64 > STALLED * fine.len() as f64 {
                break;
            }
            graphs.push(coarse);
            maps.push(map);
        }
        Self { graphs, maps, origin }
    }

    pub fn graph(&self) -> &Graph {
        &self.graphs[0]
    }

    /// Returns the side of each vertex, with a small separator.
    pub fn bisect(&self) -> Vec<Side> {
        let mut random = Random::new(self.graph().len() as u64);
        let mut side = self.graphs.last().map_or(Vec::new(), |coarsest| separate(coarsest, &mut random));
        for (fine, map) in self.graphs.iter().zip(&self.maps).rev() {
            side = map.par_iter().with_min_len(APART).map(|&c| side[c as usize]).collect();
            refine(fine, &mut side);
        }
        side
    }

    /// Returns the two sides of the graph, each with the numbers of its vertices in this graph.
    pub fn halves(&self, side: &[Side]) -> [(Self, Vec<u32>); 2] {
        let half =
            |which: Side| self.part((0..side.len() as u32).filter(|&v| side[v as usize] == which).collect());
        let (first, second) = match self.graph().len() >= APART {
            true => rayon::join(|| half(Side::First), || half(Side::Second)),
            false => (half(Side::First), half(Side::Second)),
        };
        [first, second]
    }

    /// Returns the part with these vertices, and their numbers.
    fn part(&self, own: Vec<u32>) -> (Self, Vec<u32>) {
        let mut place = places(self.graph().len(), &own);
        let mut graphs = vec![self.graph().part(&own, &place)];
        let (mut maps, mut fine) = (Vec::new(), own.clone());
        for (coarse, map) in self.graphs[1..].iter().zip(&self.maps) {
            if fine.len() <= COARSEST || own.len() * PARTS <= self.origin {
                break;
            }
            let mut size = vec![0; coarse.len()];
            let sizes = graphs.last().map_or(&[][..], |finer| &finer.size);
            fine.iter().zip(sizes).for_each(|(&v, s)| size[map[v as usize] as usize] += s);
            let kept: Vec<u32> = (0..coarse.len() as u32).filter(|&c| size[c as usize] > 0).collect();
            place = places(coarse.len(), &kept);
            let mut graph = coarse.part(&kept, &place);
            graph.size = kept.iter().map(|&c| size[c as usize]).collect();
            graphs.push(graph);
            maps.push(fine.iter().map(|&v| place[map[v as usize] as usize]).collect());
            fine = kept;
        }
        (Self { graphs, maps, origin: self.origin }, own)
    }

    /// Returns coarse graphs of the graph alone, unless those that it has are good enough.
    pub fn renewed(mut self) -> Self {
        let coarsest = self.graphs.last().map_or(0, Graph::len);
        if self.graph().len() * PARTS > self.origin && coarsest <= 2 * COARSEST {
            return self;
        }
        Self::new(self.graphs.swap_remove(0))
    }
}

/// Returns the position of each of `n` vertices in a list; `NONE` if it is not there.
fn places(n: usize, list: &[u32]) -> Vec<u32> {
    let mut place = vec![NONE; n];
    (0..).zip(list).for_each(|(k, &v)| place[v as usize] = k);
    place
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

//! Multilevel partition of a graph into parts of bounded size. It uses all threads, and their number does not
//! change the result.
//!
//! The scheme of Karypis and Kumar (1998), in steps that are each a map, a sort or a scan over nodes, so that
//! results do not depend on the order of execution:
//!
//! 1. *Coarsen*: heavy-edge matching by handshakes. Every node proposes to its highest-rated neighbour;
//!    mutual proposals form a pair. Each level has about half the nodes of the previous one, until few are
//!    left.
//! 2. *Split*: at each level on the way back, every group that has enough nodes is bisected independently,
//!    usually from two starts. From level to level the number of groups doubles with the number of nodes. So
//!    groups stay small, and their bisections cost about the same.
//! 3. *Refine*: nodes at group boundaries move to the group that they are coupled to most, if its size
//!    allows.
//!
//! All arithmetic is in integers; ties are broken by a hash of node numbers.

mod bisect;
mod coarsen;
mod refine;

use super::adjacency::Adjacency;
#[cfg(feature = "cuda")]
pub(crate) use coarsen::{LONELY, ROUNDS as MATCHING_ROUNDS, most};
use rayon::prelude::*;
pub(crate) use refine::Limits;

/// Minimum number of coarse nodes on each side of a bisection.
const SIDE: usize = 16;
/// Rounds of refinement at a coarse level, and at the finest, where a round costs most and improves least.
const ROUNDS: usize = 4;
const FINE_ROUNDS: usize = 3;
/// Stands for a missing node, a missing group or an empty slot.
const NONE: u32 = u32::MAX;

/// The graph of one level: an edge weight is the number of fine edges it represents, a node size the number
/// of its rows.
pub(crate) struct Graph {
    pub ptr: Vec<usize>,
    pub col: Vec<u32>,
    /// Weights of edges; empty if all are 1.
    pub weight: Vec<u32>,
    pub size: Vec<u32>,
}

impl Graph {
    fn len(&self) -> usize {
        self.size.len()
    }

    /// Iterates over the neighbours of node `i` and the weights of the edges to them.
    fn edges(&self, i: usize) -> impl Iterator<Item = (u32, u32)> + '_ {
        (self.ptr[i]..self.ptr[i + 1]).map(|e| (self.col[e], self.weight.get(e).copied().unwrap_or(1)))
    }

    fn degree(&self, i: usize) -> usize {
        self.ptr[i + 1] - self.ptr[i]
    }
}

/// Hashes a number by the finaliser of MurmurHash3, so that consecutive numbers are scattered.
fn mix(x: u32) -> u32 {
    let x = (x ^ (x >> 16)).wrapping_mul(0x85eb_ca6b);
    let x = (x ^ (x >> 13)).wrapping_mul(0xc2b2_ae35);
    x ^ (x >> 16)
}

/// Hashes two numbers.
fn hash(a: u32, b: u32) -> u32 {
    mix(a ^ mix(b))
}

/// Cuts the nodes of a graph into groups of about equal size, at most `rows` nodes each. Returns the group of
/// each node, and the number of groups.
pub(super) fn cut(graph: Adjacency, rows: usize) -> (Vec<u32>, usize) {
    let n = graph.row_ptr.len() - 1;
    let mut room = Limits::new(n, rows);
    let graph = Graph { ptr: graph.row_ptr, col: graph.col, weight: Vec::new(), size: vec![1; n] };
    let (mut label, levels) = labels(graph, 0, &mut room);
    while let Some(mut over) = room.overfull(&label) {
        // Split groups whose excess no neighbouring group could take.
        split(&levels, &mut label, &mut over, 1);
        room.parts.resize(over.parts.len(), 1);
    }
    (label, room.parts.len())
}

/// Cuts the nodes of a graph into about `parts` groups of about equal size. Returns the group of each node,
/// and the number of groups.
pub(super) fn cut_into(graph: Adjacency, parts: usize) -> (Vec<u32>, usize) {
    let n = graph.row_ptr.len() - 1;
    cut(graph, Limits::rows_of(n, parts))
}

/// Returns true if a graph of this many nodes is not coarsened further.
pub(crate) fn is_coarse(nodes: usize) -> bool {
    nodes <= 2 * SIDE
}

/// Groups the nodes of `graph`, which is the graph of level `level`; the nodes of level 0 are the rows. It
/// coarsens the graph and groups the coarsest nodes. On the way back it splits and refines the groups on each
/// level. Returns the group of each node, and `graph`.
pub(crate) fn labels(graph: Graph, level: usize, room: &mut Limits) -> (Vec<u32>, Graph) {
    let (mut levels, mut maps) = (vec![graph], Vec::new());
    while !is_coarse(levels[levels.len() - 1].len()) {
        let next = level + levels.len();
        let Some((map, coarser)) = coarsen::coarsen(&levels[levels.len() - 1], next as u32) else { break };
        maps.push(map);
        levels.push(coarser);
    }
    let mut label = vec![0u32; levels[levels.len() - 1].len()];
    settle(&levels[levels.len() - 1], level + levels.len() - 1, &mut label, room);
    while levels.len() > 1 {
        levels.pop();
        label = spread(&maps[levels.len() - 1], &label);
        settle(&levels[levels.len() - 1], level + levels.len() - 1, &mut label, room);
    }
    (label, levels.remove(0))
}

/// Transfers labels to a finer level.
pub(crate) fn spread(map: &[u32], label: &[u32]) -> Vec<u32> {
    map.par_iter().map(|&c| label[c as usize]).collect()
}

/// Splits the groups that can be split at this level, and refines all groups.
pub(crate) fn settle(graph: &Graph, level: usize, label: &mut [u32], room: &mut Limits) {
    while split(graph, label, room, if level == 0 { 1 } else { 2 * SIDE }) {}
    refine::refine(graph, label, room, rounds(level));
}

/// Returns the number of refinement rounds at a level.
pub(crate) fn rounds(level: usize) -> usize {
    if level == 0 { FINE_ROUNDS } else { ROUNDS }
}

/// Bisects each group of at least `least` nodes that is to become several parts; returns false if there is
/// none.
fn split(graph: &Graph, label: &mut [u32], room: &mut Limits, least: usize) -> bool {
    if room.parts.iter().all(|&p| p == 1) {
        return false;
    }
    let mut begin = vec![0usize; room.parts.len() + 1];
    label.iter().for_each(|&g| begin[g as usize + 1] += 1);
    let eligible: Vec<u32> = (0..room.parts.len())
        .filter(|&g| room.parts[g] > 1 && begin[g + 1] >= least)
        .map(|g| g as u32)
        .collect();
    if eligible.is_empty() {
        return false;
    }
    (0..room.parts.len()).for_each(|g| begin[g + 1] += begin[g]);
    // Nodes by group in ascending order, and the position of each in its group.
    let (mut next, mut nodes) = (begin.clone(), vec![0u32; label.len()]);
    let mut place = vec![0u32; label.len()];
    for (i, &g) in label.iter().enumerate() {
        let at = &mut next[g as usize];
        place[i] = (*at - begin[g as usize]) as u32;
        nodes[*at] = i as u32;
        *at += 1;
    }
    let sides: Vec<Vec<bool>> = eligible
        .par_iter()
        .map(|&g| {
            let own = &nodes[begin[g as usize]..begin[g as usize + 1]];
            let local = bisect::Local::new(graph, own, label, &place);
            let parts = room.parts[g as usize];
            let caps = [parts / 2, parts - parts / 2].map(|p| room.cap(p));
            bisect::bisect(&local, caps, parts)
        })
        .collect();
    for (&g, sides) in eligible.iter().zip(&sides) {
        let parts = room.parts[g as usize];
        let new = room.parts.len() as u32;
        room.parts[g as usize] = parts / 2;
        room.parts.push(parts - parts / 2);
        let own = &nodes[begin[g as usize]..begin[g as usize + 1]];
        own.iter().zip(sides).filter(|(_, side)| **side).for_each(|(&i, _)| label[i as usize] = new);
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds the graph of a grid in random numbering. Each cube is split into tetrahedra, and their edges
    /// are the edges of the graph.
    fn mesh(edge: usize) -> Adjacency {
        let n = edge.pow(3);
        let mut name: Vec<u32> = (0..n as u32).collect();
        name.sort_by_key(|&i| mix(i));
        let ways = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [0, 1, 1], [1, 0, 1], [1, 1, 1]];
        let mut rows = vec![Vec::new(); n];
        for i in 0..n {
            let at = [i % edge, i / edge % edge, i / (edge * edge)];
            for way in ways {
                let to: [usize; 3] = std::array::from_fn(|d| at[d] + way[d]);
                if to.iter().all(|&x| x < edge) {
                    let (a, b) = (name[i], name[to[0] + edge * (to[1] + edge * to[2])]);
                    rows[a as usize].push(b);
                    rows[b as usize].push(a);
                }
            }
        }
        rows.iter_mut().for_each(|row| row.sort_unstable());
        let lengths: Vec<usize> = rows.iter().map(Vec::len).collect();
        Adjacency { row_ptr: super::super::adjacency::offsets(lengths.iter()), col: rows.concat() }
    }

    fn cut(graph: &Adjacency, rows: usize) -> Vec<Vec<u32>> {
        let (label, count) = super::cut(graph.clone(), rows);
        let mut groups = vec![Vec::new(); count];
        label.iter().enumerate().for_each(|(i, &p)| groups[p as usize].push(i as u32));
        groups
    }

    /// The share of edges between groups.
    fn crossing(graph: &Adjacency, groups: &[Vec<u32>]) -> f64 {
        let n = graph.row_ptr.len() - 1;
        let mut home = vec![NONE; n];
        for (p, group) in groups.iter().enumerate() {
            group.iter().for_each(|&i| assert_eq!(std::mem::replace(&mut home[i as usize], p as u32), NONE));
        }
        assert!(!home.contains(&NONE), "a node is in no group");
        let cut =
            |i: u32| graph.neighbours(i).iter().filter(|&&j| home[i as usize] != home[j as usize]).count();
        (0..n as u32).map(cut).sum::<usize>() as f64 / graph.col.len().max(1) as f64
    }

    /// Compares the share of cut edges with fixed limits. In a build with METIS, it also must be less than
    /// 1.1 times the share of METIS.
    #[test]
    fn a_shuffled_mesh_is_cut_as_by_metis() {
        let graph = mesh(24);
        for rows in [64, 512] {
            let groups = cut(&graph, rows);
            let used: Vec<usize> = groups.iter().map(Vec::len).filter(|&l| l > 0).collect();
            assert!(used.iter().all(|&l| l <= rows), "{:?} rows", used.iter().max());
            let fill = 24f64.powi(3) / (used.len() * rows) as f64;
            assert!(fill > 0.9, "{fill} full at {rows} rows");
            let ours = crossing(&graph, &groups);
            assert!(ours < if rows == 64 { 0.4 } else { 0.2 }, "{rows} rows: {ours} of the edges cut");
            #[cfg(feature = "metis")]
            {
                let parts = (24f64.powi(3) / (0.97 * rows as f64)).ceil() as usize;
                let labels = super::super::graph::k_way(graph.clone(), &vec![1; 13824], parts).unwrap();
                let mut other = vec![Vec::new(); parts];
                labels.iter().enumerate().for_each(|(i, &p)| other[p as usize].push(i as u32));
                let metis = crossing(&graph, &other);
                assert!(ours < 1.1 * metis, "{rows} rows: {ours} of the edges cut, {metis} by METIS");
            }
        }
    }

    #[test]
    fn threads_do_not_matter() {
        let graph = mesh(20);
        let on = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| cut(&graph, 100))
        };
        let one = on(1);
        assert!(crossing(&graph, &one) < 0.5);
        for threads in [2, 5] {
            assert!(on(threads) == one, "{threads} threads cut otherwise");
        }
    }

    /// Cuts graphs that are hard to match. Handshakes match at most one pair of a star, and none of isolated
    /// nodes. In a clique all edges are alike, and on a path a node has at most two neighbours.
    #[test]
    fn graphs_that_are_no_meshes_are_cut() {
        let star = |n: u32| {
            let mut rows: Vec<Vec<u32>> = (0..n).map(|_| vec![0]).collect();
            rows[0] = (1..n).collect();
            rows
        };
        let path = |n: u32| {
            (0..n).map(|i| [i.wrapping_sub(1), i + 1].into_iter().filter(|&j| j < n).collect()).collect()
        };
        let clique = |n: u32| (0..n).map(|i| (0..n).filter(|&j| j != i).collect()).collect();
        let graphs: [(&str, Vec<Vec<u32>>); 4] = [
            ("a star", star(3000)),
            ("no edges", vec![Vec::new(); 3000]),
            ("a clique", clique(300)),
            ("a path", path(3000)),
        ];
        for (what, rows) in graphs {
            let lengths: Vec<usize> = rows.iter().map(Vec::len).collect();
            let graph =
                Adjacency { row_ptr: super::super::adjacency::offsets(lengths.iter()), col: rows.concat() };
            for size in [1, 3, 32, 200, 5000] {
                let groups = cut(&graph, size);
                let used: Vec<usize> = groups.iter().map(Vec::len).filter(|&l| l > 0).collect();
                assert!(used.iter().all(|&l| l <= size), "{what}: {:?} rows of {size}", used.iter().max());
                let least = rows.len().div_ceil(size);
                assert!(used.len() <= least + least / 8 + 1, "{what}: {} groups of {size}", used.len());
                let cut = crossing(&graph, &groups);
                let most = if what == "a path" { 1.2 * used.len() as f64 / 3000.0 } else { 1.0 };
                assert!(cut <= most, "{what}: {cut} of the edges cut at {size} rows");
            }
        }
    }
}

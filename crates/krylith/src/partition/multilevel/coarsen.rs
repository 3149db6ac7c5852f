//! The next coarser level: pairs of nodes matched by handshakes, and the graph of the pairs.

use super::super::adjacency::{joined, offsets};
use super::{Graph, NONE, mix};
use rayon::prelude::*;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

/// Rounds of proposals. On a mesh the first joins about half of the nodes, and the fourth leaves 5 to 9 in a hundred.
pub(crate) const ROUNDS: usize = 4;
/// Where more than one node in this many found nobody, those with the same favourite are joined.
pub(crate) const LONELY: usize = 8;
/// A level with more than this share of the nodes of the one before it ends the coarsening.
const STALLED: f64 = 0.95;
/// Coarse nodes that one task contracts.
const CHUNK: usize = 1024;

/// The coarse node of each node, and the coarse graph; `None` where next to nothing could be joined. `level` counts from 1.
pub(super) fn coarsen(graph: &Graph, level: u32) -> Option<(Vec<u32>, Graph)> {
    let n = graph.len();
    let mate = matching(graph, level);
    let leads = |v: usize| mate[v] as usize >= v;
    let pairs: Vec<[u32; 2]> =
        (0..n).into_par_iter().filter(|&v| leads(v)).map(|v| [v as u32, mate[v]]).collect();
    if pairs.len() as f64 > STALLED * n as f64 {
        return None;
    }
    let map: Vec<AtomicU32> = (0..n).into_par_iter().map(|_| AtomicU32::new(0)).collect();
    pairs.par_iter().enumerate().for_each(|(c, pair)| {
        pair.iter().for_each(|&v| map[v as usize].store(c as u32, Relaxed));
    });
    let map: Vec<u32> = map.into_par_iter().map(AtomicU32::into_inner).collect();
    let coarse = contract(graph, &pairs, &map);
    Some((map, coarse))
}

/// What an edge is worth: its weight against the sizes that it joins; ties by a hash that both ends share.
fn rating(graph: &Graph, v: u32, u: u32, weight: u32, level: u32) -> u64 {
    let tie = u64::from(mix((v ^ u).wrapping_mul(0x9e37_79b9) ^ v.wrapping_add(u).wrapping_add(level)));
    if graph.weight.is_empty() {
        return tie;
    }
    let weight = weight as f32;
    let rating = weight * weight / (graph.size[v as usize] as f32 * graph.size[u as usize] as f32);
    // Bits of non-negative numbers order as they do.
    u64::from(rating.to_bits()) << 32 | tie
}

/// The best neighbour of `v` among those that are `open`.
fn favourite(graph: &Graph, v: u32, level: u32, open: impl Fn(u32) -> bool) -> u32 {
    let mut best = (0, NONE);
    for (u, w) in graph.edges(v as usize) {
        if open(u) {
            let rating = rating(graph, v, u, w, level);
            // No two edges of a node tie, unless their ratings and hashes do.
            if best.1 == NONE || (rating, u) > best {
                best = (rating, u);
            }
        }
    }
    best.1
}

/// Rows that a pair has at most, where `n` nodes have `rows` together: twice those of two average nodes, else few nodes
/// would take all.
pub(crate) fn most(rows: u64, n: usize) -> u64 {
    (4 * rows).div_ceil(n as u64).max(2)
}

/// The partner of each node, itself where it has none.
fn matching(graph: &Graph, level: u32) -> Vec<u32> {
    let n = graph.len();
    let limit = most(graph.size.par_iter().map(|&s| u64::from(s)).sum(), n);
    let fits =
        |v: u32, u: u32| u64::from(graph.size[v as usize]) + u64::from(graph.size[u as usize]) <= limit;
    let mate: Vec<AtomicU32> = (0..n as u32).into_par_iter().map(AtomicU32::new).collect();
    let want: Vec<AtomicU32> = (0..n).into_par_iter().map(|_| AtomicU32::new(NONE)).collect();
    let mut free: Vec<u32> = (0..n as u32).collect();
    for _ in 0..ROUNDS {
        free.par_iter().for_each(|&v| {
            let open = |u: u32| mate[u as usize].load(Relaxed) == u && fits(v, u);
            want[v as usize].store(favourite(graph, v, level, open), Relaxed);
        });
        free.par_iter().for_each(|&v| {
            let u = want[v as usize].load(Relaxed);
            if u != NONE && want[u as usize].load(Relaxed) == v {
                mate[v as usize].store(u, Relaxed);
            }
        });
        free = free.into_par_iter().filter(|&v| mate[v as usize].load(Relaxed) == v).collect();
    }
    if free.len() > n / LONELY {
        // Leaves of one hub, and nodes without neighbours.
        let mut wanting: Vec<(u32, u32)> =
            free.par_iter().map(|&v| (favourite(graph, v, level, |_| true), v)).collect();
        wanting.par_sort_unstable();
        wanting.par_chunk_by(|a, b| a.0 == b.0).for_each(|same| {
            for pair in same.chunks_exact(2) {
                let [v, u] = [pair[0].1, pair[1].1];
                if fits(v, u) {
                    mate[v as usize].store(u, Relaxed);
                    mate[u as usize].store(v, Relaxed);
                }
            }
        });
    }
    mate.into_par_iter().map(AtomicU32::into_inner).collect()
}

/// The graph of pairs: edges between the same two are one, with the sum of their weights.
fn contract(graph: &Graph, pairs: &[[u32; 2]], map: &[u32]) -> Graph {
    struct Piece {
        degree: Vec<usize>,
        col: Vec<u32>,
        weight: Vec<u32>,
    }
    let piece = |(chunk, pairs): (usize, &[[u32; 2]])| {
        let mut piece =
            Piece { degree: Vec::with_capacity(pairs.len()), col: Vec::new(), weight: Vec::new() };
        // Open addressing: where each coarse neighbour stands in the piece.
        let (mut slots, mut used) = (vec![NONE; 64], Vec::new());
        for (k, &[v, u]) in pairs.iter().enumerate() {
            let own = (chunk * CHUNK + k) as u32;
            let members = &[v, u][..if v == u { 1 } else { 2 }];
            let most = members.iter().map(|&v| graph.degree(v as usize)).sum::<usize>();
            if slots.len() < 2 * most {
                slots = vec![NONE; (2 * most).next_power_of_two()];
            }
            let mask = slots.len() - 1;
            let begin = piece.col.len();
            for &v in members {
                for (j, w) in graph.edges(v as usize) {
                    let c = map[j as usize];
                    if c == own {
                        continue;
                    }
                    let mut slot = (c.wrapping_mul(0x9e37_79b9) >> 7) as usize & mask;
                    loop {
                        match slots[slot] {
                            NONE => {
                                slots[slot] = (piece.col.len() - begin) as u32;
                                used.push(slot);
                                piece.col.push(c);
                                piece.weight.push(w);
                                break;
                            }
                            at if piece.col[begin + at as usize] == c => {
                                let sum = &mut piece.weight[begin + at as usize];
                                *sum = sum.saturating_add(w);
                                break;
                            }
                            _ => slot = (slot + 1) & mask,
                        }
                    }
                }
            }
            used.drain(..).for_each(|slot| slots[slot] = NONE);
            piece.degree.push(piece.col.len() - begin);
        }
        piece
    };
    let pieces: Vec<Piece> = pairs.par_chunks(CHUNK).enumerate().map(piece).collect();
    let (mut degree, mut col, mut weight) = (Vec::new(), Vec::new(), Vec::new());
    for piece in pieces {
        degree.push(piece.degree);
        col.push(piece.col);
        weight.push(piece.weight);
    }
    let size = |&[v, u]: &[u32; 2]| graph.size[v as usize] + if v == u { 0 } else { graph.size[u as usize] };
    Graph {
        ptr: offsets(degree.iter().flatten()),
        col: joined(&col),
        weight: joined(&weight),
        size: pairs.par_iter().map(size).collect(),
    }
}

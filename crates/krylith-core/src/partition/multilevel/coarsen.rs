//! Coarsening: pairs of nodes matched by handshakes, and the graph of the pairs.

use super::super::adjacency::{LEAST, atomics, joined, offsets, plain};
use super::{Graph, NONE, mix};
use crate::threads::{collect, each};
use rayon::prelude::*;
use std::sync::atomic::Ordering::Relaxed;

/// Rounds of proposals. On a mesh, the first round matches about half of the nodes; after the fourth, 5 to 9
/// % are unmatched.
pub(crate) const ROUNDS: usize = 4;
/// If more than one node in this many is unmatched, nodes with the same preferred neighbour are paired.
pub(crate) const LONELY: usize = 8;
/// Coarsening ends at a level with more than this share of the nodes of the previous one.
const STALLED: f64 = 0.95;
/// Number of coarse nodes per task.
const CHUNK: usize = 1024;

/// Returns the coarse node of each node, and the coarse graph; `None` if almost no nodes could be paired.
/// `level` counts from 1.
pub(super) fn coarsen(graph: &Graph, level: u32) -> Option<(Vec<u32>, Graph)> {
    let n = graph.len();
    let mate = matching(graph, level);
    let leads = |v: usize| mate[v] as usize >= v;
    let pairs: Vec<[u32; 2]> =
        (0..n).into_par_iter().filter(|&v| leads(v)).map(|v| [v as u32, mate[v]]).collect();
    if pairs.len() as f64 > STALLED * n as f64 {
        return None;
    }
    let map = atomics(n, &|_| 0);
    each(pairs.len(), LEAST, &|c| pairs[c].iter().for_each(|&v| map[v as usize].store(c as u32, Relaxed)));
    let map = plain(map);
    let coarse = contract(graph, &pairs, &map);
    Some((map, coarse))
}

/// Rates an edge by its weight relative to the sizes of its nodes; ties are broken by a hash that both ends
/// share.
fn rating(v: u32, u: u32, weight: u32, sizes: [u32; 2], level: u32) -> u64 {
    // The bits of non-negative numbers have the order of the numbers.
    let weight = weight as f32;
    let rating = weight * weight / (sizes[0] as f32 * sizes[1] as f32);
    u64::from(rating.to_bits()) << 32 | tie(v, u, level)
}

fn tie(v: u32, u: u32, level: u32) -> u64 {
    u64::from(mix((v ^ u).wrapping_mul(0x9e37_79b9) ^ v.wrapping_add(u).wrapping_add(level)))
}

/// Returns the neighbour of `v` with the highest `rating`; a rating of 0 excludes a neighbour.
fn favourite(graph: &Graph, v: u32, rating: impl Fn(u32, u32) -> u64) -> u32 {
    let best = graph.edges(v as usize).map(|(u, w)| (rating(u, w), u)).max();
    best.filter(|best| best.0 > 0).map_or(NONE, |best| best.1)
}

/// Returns the largest number of rows of a pair if `n` nodes have `rows` in total: twice those of two average
/// nodes, so that no few nodes absorb all others.
pub(crate) fn most(rows: u64, n: usize) -> u64 {
    (4 * rows).div_ceil(n as u64).max(2)
}

/// Returns the partner of each node; the node itself if it has none.
fn matching(graph: &Graph, level: u32) -> Vec<u32> {
    let n = graph.len();
    let limit = most(graph.size.par_iter().map(|&s| u64::from(s)).sum(), n);
    let fits =
        |v: u32, u: u32| u64::from(graph.size[v as usize]) + u64::from(graph.size[u as usize]) <= limit;
    let (mate, want) = (atomics(n, &|v| v as u32), atomics(n, &|_| NONE));
    // The size of an unmatched node, 0 for a matched one: one load gives the state and the size.
    let open = atomics(n, &|v| graph.size[v]);
    let rows_alone = graph.weight.is_empty();
    let mut free: Vec<u32> = (0..n as u32).collect();
    for round in 0..ROUNDS {
        each(free.len(), LEAST, &|k| {
            let v = free[k];
            let own = graph.size[v as usize];
            let rate = |u: u32, w: u32| {
                let other = open[u as usize].load(Relaxed);
                match other > 0 && u64::from(own) + u64::from(other) <= limit {
                    true if rows_alone => 1 << 32 | tie(v, u, level),
                    true => 1 << 63 | rating(v, u, w, [own, other], level),
                    false => 0,
                }
            };
            let best = match rows_alone && round == 0 {
                true => favourite(graph, v, |u, _| 1 << 32 | tie(v, u, level)), // all are free, all fit
                false => favourite(graph, v, rate),
            };
            want[v as usize].store(best, Relaxed);
        });
        each(free.len(), LEAST, &|k| {
            let v = free[k];
            let u = want[v as usize].load(Relaxed);
            if u != NONE && want[u as usize].load(Relaxed) == v {
                mate[v as usize].store(u, Relaxed);
                open[v as usize].store(0, Relaxed);
            }
        });
        free = free.into_par_iter().filter(|&v| open[v as usize].load(Relaxed) > 0).collect();
    }
    if free.len() > n / LONELY {
        // Pair leaves of the same hub, and nodes without neighbours.
        let any = |v: u32| {
            let sizes = |u: u32| [graph.size[v as usize], graph.size[u as usize]];
            favourite(graph, v, |u, w| 1 << 63 | rating(v, u, w, sizes(u), level))
        };
        let mut wanting = collect(0..free.len(), LEAST, &|k| (any(free[k]), free[k]));
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
    plain(mate)
}

/// Builds the graph of pairs: parallel edges are merged, and their weights summed.
fn contract(graph: &Graph, pairs: &[[u32; 2]], map: &[u32]) -> Graph {
    struct Piece {
        degree: Vec<usize>,
        col: Vec<u32>,
        weight: Vec<u32>,
    }
    let piece = |(chunk, pairs): (usize, &[[u32; 2]])| {
        let mut piece =
            Piece { degree: Vec::with_capacity(pairs.len()), col: Vec::new(), weight: Vec::new() };
        // Hash table with open addressing: the position of each coarse neighbour in the chunk.
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
    let size = |c: usize| {
        let [v, u] = pairs[c];
        graph.size[v as usize] + if v == u { 0 } else { graph.size[u as usize] }
    };
    Graph {
        ptr: offsets(degree.iter().flatten()),
        col: joined(&col),
        weight: joined(&weight),
        size: collect(0..pairs.len(), LEAST, &size),
    }
}

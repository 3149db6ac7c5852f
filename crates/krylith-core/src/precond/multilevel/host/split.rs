//! The choice of coarse points: strength of connection, and independent sets by PMIS.
//!
//! De Sterck, Yang and Heys (2006): the weight of a node is the number of nodes that depend on it strongly,
//! plus a random number below one. In each round the nodes that outweigh all their undecided neighbours
//! become coarse points, and the nodes that depend on them become fine points. Aggressive coarsening repeats
//! this with the coarse points, connected by paths of two strong couplings.

use super::FINE;
use super::parallel::{Rows, Scratch, bounds, fill, join, map};
use crate::matrix::{Arrays, Bsr};
use crate::space::splitmix64;
use crate::threads::Pool;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Seed of the hash that gives random numbers; the level's number is added.
pub(crate) const SEED: u64 = 0x61_6d67;
/// Added to the seed for the second selection of aggressive coarsening.
pub(crate) const TWICE: u64 = 1 << 16;

/// States of a node.
const UNDECIDED: u8 = 0;
const COARSE: u8 = 1;
const NOT_COARSE: u8 = 2;

/// Returns the bounds of pieces for a pass over the entries of `a`.
pub(crate) fn pieces_of(pool: &Pool, a: &Bsr) -> Vec<usize> {
    bounds(a.block_rows(), pool.pieces(16 * a.blocks()))
}

/// Returns the lengths of the pieces between these bounds.
pub(super) fn runs(bounds: &[usize]) -> impl Iterator<Item = usize> {
    bounds.windows(2).map(|w| w[1] - w[0])
}

/// Returns for each entry of `a` whether its row depends strongly on its column: −a_ij ≥ θ max_k(−a_ik) > 0
/// with the sign of a_ii divided out. Diagonal entries never do.
pub fn strong(pool: &Pool, a: &Bsr, theta: f64) -> Vec<u8> {
    let arrays = Arrays::of(a);
    let Arrays { row_ptr, col, values } = arrays;
    let rows = pieces_of(pool, a);
    let entries: Vec<usize> = rows.iter().map(|&i| row_ptr[i]).collect();
    let mut out = vec![0; col.len()];
    fill(pool, runs(&entries), &mut out, |piece, out| {
        for i in rows[piece]..rows[piece + 1] {
            let g = arrays.sign(i);
            let row = row_ptr[i]..row_ptr[i + 1];
            let (columns, values) = (&col[row.clone()], &values[row.clone()]);
            let others =
                || columns.iter().zip(values).map(|(&j, &v)| if j as usize == i { 0.0 } else { -g * v });
            let limit = theta * others().fold(0.0, f64::max);
            let out = &mut out[row.start - entries[piece]..row.end - entries[piece]];
            out.iter_mut().zip(others()).for_each(|(out, v)| *out = u8::from(v > 0.0 && v >= limit));
        }
    });
    out
}

/// Returns the number of each node in the coarser level, ascending with nodes; [`FINE`] for fine points.
///
/// A node on which no other depends becomes a fine point.
pub fn pmis(pool: &Pool, a: &Bsr, strong: &[u8], level: usize) -> Vec<u32> {
    let seed = SEED + level as u64;
    let arrays = Arrays::of(a);
    select(
        pool,
        &pieces_of(pool, a),
        |i| neighbours(arrays, strong, i),
        |i| splitmix64(seed, i as u64),
        false,
    )
}

/// Runs PMIS twice: the second run selects among the coarse points of the first, connected if a path of at
/// most two strong couplings leads from one to the other.
///
/// A node without such a path to or from another remains a coarse point.
pub fn aggressive_pmis(pool: &Pool, a: &Bsr, strong: &[u8], level: usize) -> Vec<u32> {
    let mut numbers = pmis(pool, a, strong, level);
    let nodes: Vec<u32> = (0..a.block_rows() as u32).filter(|&i| numbers[i as usize] != FINE).collect();
    let rows = bounds(nodes.len(), pool.pieces(64 * nodes.len()));
    let scratch = Scratch::new();
    let paths = map(pool, rows.len() - 1, |piece| {
        scratch.with(
            || vec![FINE; a.block_rows()],
            |seen: &mut Vec<u32>| paths(a, strong, &numbers, &nodes[rows[piece]..rows[piece + 1]], seen),
        )
    });
    let Rows { row_ptr, col, .. } = join(pool, 0, paths);
    let seed = SEED + TWICE + level as u64;
    let again = select(
        pool,
        &rows,
        |k| col[row_ptr[k]..row_ptr[k + 1]].iter().map(|&j| j as usize),
        |k| splitmix64(seed, nodes[k] as u64),
        true,
    );
    nodes.iter().zip(&again).for_each(|(&i, &number)| numbers[i as usize] = number);
    numbers
}

/// Returns the strong neighbours of node `i`.
#[inline]
fn neighbours<'a>(a: Arrays<'a>, strong: &'a [u8], i: usize) -> impl Iterator<Item = usize> + 'a {
    let entries = a.col[a.row(i)].iter().zip(&strong[a.row(i)]);
    entries.filter(|&(_, &strong)| strong != 0).map(|(&j, _)| j as usize)
}

/// Returns for each of these nodes the other nodes of `numbers` that at most two strong couplings lead to, by
/// their numbers. `seen` must not contain any of these nodes' numbers, but may hold [`FINE`].
pub(crate) fn paths(a: &Bsr, strong: &[u8], numbers: &[u32], nodes: &[u32], seen: &mut [u32]) -> Rows {
    let (mut out, a) = (Rows::default(), Arrays::of(a));
    for &i in nodes {
        seen[i as usize] = i;
        let mut add = |j: usize| {
            if numbers[j] != FINE && std::mem::replace(&mut seen[j], i) != i {
                out.col.push(numbers[j]);
            }
        };
        for k in neighbours(a, strong, i as usize) {
            add(k);
            neighbours(a, strong, k).for_each(&mut add);
        }
        out.end_row();
    }
    out
}

/// Runs PMIS on the graph given by `neighbours`, whose pieces begin at `rows`. `random` orders nodes on which
/// equally many depend.
///
/// With `lonely`, nodes that no other depends on and that depend on none become coarse points.
fn select<N: Iterator<Item = usize>>(
    pool: &Pool,
    rows: &[usize],
    neighbours: impl Fn(usize) -> N + Sync,
    random: impl Fn(usize) -> u64 + Sync,
    lonely: bool,
) -> Vec<u32> {
    let n = rows[rows.len() - 1];
    let counts: Vec<AtomicU32> = (0..n).map(|_| AtomicU32::new(0)).collect();
    let alone = rows.len() == 2;
    pool.run(rows.len() - 1, |piece| {
        for j in (rows[piece]..rows[piece + 1]).flat_map(&neighbours) {
            if alone {
                counts[j].store(counts[j].load(Relaxed) + 1, Relaxed); // a third of the time of an atomic sum
            } else {
                counts[j].fetch_add(1, Relaxed);
            }
        }
    });
    // Decided nodes get key 0 and never win; their state is not read.
    let mut keys: Vec<AtomicU64> = (0..n).map(|_| AtomicU64::new(0)).collect();
    fill(pool, runs(rows), &mut keys, |piece, keys| {
        for (i, key) in (rows[piece]..).zip(keys) {
            let weight = (counts[i].load(Relaxed) as u64) << 40 | random(i) >> 24;
            *key.get_mut() = weight.saturating_add(1);
        }
    });
    let state: Vec<AtomicU8> = (0..n).map(|_| AtomicU8::new(UNDECIDED)).collect();
    // The last round in which a node had a neighbour of larger weight.
    let lost: Vec<AtomicU32> = counts;
    let mut undecided: Vec<Vec<u32>> = map(pool, rows.len() - 1, |piece| {
        let mut list = Vec::with_capacity(rows[piece + 1] - rows[piece]);
        for i in rows[piece]..rows[piece + 1] {
            let count = lost[i].load(Relaxed);
            lost[i].store(0, Relaxed);
            if count == 0 && !lonely {
                state[i].store(NOT_COARSE, Relaxed);
                keys[i].store(0, Relaxed);
            } else {
                list.push(i as u32);
            }
        }
        list
    });
    let is = |i: usize, wanted: u8| state[i].load(Relaxed) == wanted;
    let each = |lists: &mut [Vec<u32>], f: &(dyn Fn(&mut Vec<u32>) + Sync)| {
        fill(pool, std::iter::repeat_n(1, lists.len()), lists, |_, list| list.iter_mut().for_each(f));
    };
    for round in 1.. {
        if undecided.iter().all(Vec::is_empty) {
            break;
        }
        each(&mut undecided, &|list| {
            for i in list.iter().map(|&i| i as usize) {
                let weight = keys[i].load(Relaxed);
                for j in neighbours(i) {
                    let other = keys[j].load(Relaxed);
                    let more = (weight > other) | ((weight == other) & (i > j));
                    lost[if more { j } else { i }].store(round, Relaxed);
                }
            }
        });
        each(&mut undecided, &|list| {
            let winners = list.iter().filter(|&&i| lost[i as usize].load(Relaxed) != round);
            winners.for_each(|&i| state[i as usize].store(COARSE, Relaxed));
        });
        each(&mut undecided, &|list| {
            list.retain(|&i| {
                let i = i as usize;
                if is(i, COARSE) {
                    keys[i].store(0, Relaxed);
                    return false;
                }
                let depends = neighbours(i).any(|j| is(j, COARSE));
                if depends {
                    state[i].store(NOT_COARSE, Relaxed);
                    keys[i].store(0, Relaxed);
                }
                !depends
            });
        });
    }
    numbers(pool, rows, |i| is(i, COARSE))
}

/// Returns ascending numbers of the nodes for which `is` is true; [`FINE`] for the others.
pub(crate) fn numbers(pool: &Pool, rows: &[usize], is: impl Fn(usize) -> bool + Sync) -> Vec<u32> {
    let counts = map(pool, rows.len() - 1, |piece| (rows[piece]..rows[piece + 1]).filter(|&i| is(i)).count());
    let mut out = vec![FINE; rows[rows.len() - 1]];
    fill(pool, runs(rows), &mut out, |piece, out| {
        let mut next = counts[..piece].iter().sum::<usize>() as u32;
        for (i, out) in (rows[piece]..).zip(out) {
            if is(i) {
                *out = next;
                next += 1;
            }
        }
    });
    out
}

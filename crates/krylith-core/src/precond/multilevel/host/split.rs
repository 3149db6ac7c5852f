//! The choice of coarse points: strength of connection, and independent sets by PMIS.
//!
//! PMIS is by De Sterck, Yang and Heys (2006). The weight of a node is the number of nodes that depend on it
//! strongly, plus a random number below one. In each round the nodes that outweigh all their undecided
//! neighbours become coarse points. Nodes that depend on these become fine points. Aggressive coarsening
//! repeats this with the coarse points, which count as neighbours if a path of at most two strong couplings
//! connects them.
//!
//! On a level that ranks share, each rank runs this for its own nodes, with the rows of surrounding nodes of
//! other ranks ([`Around`]). It announces once per round which of its boundary nodes have become coarse
//! points. The state of a node depends only on heavier nodes. So a rank may know the states of other ranks'
//! nodes late, but a state that it knows is final.

use super::FINE;
use super::around::Around;
use super::parallel::{Rows, Scratch, bounds, fill, join, map};
use crate::Result;
use crate::matrix::{Arrays, Bsr};
use crate::space::splitmix64;
use crate::threads::Pool;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Seed of the hash that gives random numbers. The number of the level is added to it.
pub(crate) const SEED: u64 = 0x61_6d67;
/// Number that is added to the seed for the second selection of aggressive coarsening.
pub(crate) const TWICE: u64 = 1 << 16;

/// States of a node.
const UNDECIDED: u8 = 0;
const COARSE: u8 = 1;
const NOT_COARSE: u8 = 2;

/// Returns the bounds of pieces for a pass over the entries of `a`.
pub(super) fn pieces_of(pool: &Pool, a: &Bsr) -> Vec<usize> {
    bounds(a.block_rows(), pool.pieces(16 * a.blocks()))
}

/// Returns the lengths of the pieces between these bounds.
pub(super) fn runs(bounds: &[usize]) -> impl Iterator<Item = usize> {
    bounds.windows(2).map(|w| w[1] - w[0])
}

/// Size of a coupling a_ij.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Size {
    /// −a_ij, after row i is multiplied by the sign of a_ii.
    Negative,
    /// |a_ij|.
    Absolute,
}

/// Returns 1 for each entry of `a` whose row depends strongly on its column, else 0: the size of a_ij is
/// positive and at least θ times that of the largest coupling in row i. Diagonal entries give 0.
pub fn strong(pool: &Pool, a: &Bsr, theta: f64, size: Size) -> Vec<u8> {
    let arrays = Arrays::of(a);
    let Arrays { row_ptr, col, values } = arrays;
    let rows = pieces_of(pool, a);
    let entries: Vec<usize> = rows.iter().map(|&i| row_ptr[i]).collect();
    let mut out = vec![0; col.len()];
    fill(pool, runs(&entries), &mut out, |piece, out| {
        for i in rows[piece]..rows[piece + 1] {
            let row = row_ptr[i]..row_ptr[i + 1];
            let (columns, values) = (&col[row.clone()], &values[row.clone()]);
            let out = &mut out[row.start - entries[piece]..row.end - entries[piece]];
            let g = arrays.sign(i);
            match size {
                Size::Negative => strong_of(i, columns, values, theta, |v| -g * v, out),
                Size::Absolute => strong_of(i, columns, values, theta, f64::abs, out),
            }
        }
    });
    out
}

#[inline(always)]
fn strong_of(
    i: usize,
    col: &[u32],
    values: &[f64],
    theta: f64,
    size: impl Fn(f64) -> f64 + Copy,
    out: &mut [u8],
) {
    let others = || col.iter().zip(values).map(|(&j, &v)| if j as usize == i { 0.0 } else { size(v) });
    let limit = theta * others().fold(0.0, f64::max);
    out.iter_mut().zip(others()).for_each(|(out, v)| *out = u8::from(v > 0.0 && v >= limit));
}

/// Returns the number of each node on the coarser level, in the order of nodes; [`FINE`] for fine points.
/// Collective among the ranks of `around`.
///
/// A node on which no other depends becomes a fine point.
///
/// # Errors
/// A rank that has ended or failed.
pub fn pmis(pool: &Pool, a: &Bsr, strong: &[u8], level: usize, around: Around) -> Result<Vec<u32>> {
    let arrays = Arrays::of(a);
    let name = |i: usize| around.number(i);
    let graph = |i: usize| neighbours(arrays, strong, i);
    select(pool, &pieces_of(pool, a), graph, name, SEED + level as u64, false, around)
}

/// Runs PMIS twice. The second run selects among the coarse points of the first. In that run a coarse point
/// depends on another if a path of at most two strong couplings leads to it. Collective among the ranks of
/// `around`.
///
/// A node without such a path to or from another remains a coarse point.
///
/// # Errors
/// A rank that has ended or failed.
pub fn aggressive_pmis(
    pool: &Pool,
    a: &Bsr,
    strong: &[u8],
    level: usize,
    around: Around,
) -> Result<Vec<u32>> {
    let mut numbers = pmis(pool, a, strong, level, around)?;
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
    let graph = |k: usize| col[row_ptr[k]..row_ptr[k + 1]].iter().map(|&j| j as usize);
    let name = |k: usize| around.number(nodes[k] as usize);
    let seed = SEED + TWICE + level as u64;
    let again = select(pool, &rows, graph, name, seed, true, around.within(&numbers))?;
    nodes.iter().zip(&again).for_each(|(&i, &number)| numbers[i as usize] = number);
    Ok(numbers)
}

/// Returns the strong neighbours of node `i`.
#[inline]
fn neighbours<'a>(a: Arrays<'a>, strong: &'a [u8], i: usize) -> impl Iterator<Item = usize> + 'a {
    let entries = a.col[a.row(i)].iter().zip(&strong[a.row(i)]);
    entries.filter(|&(_, &strong)| strong != 0).map(|(&j, _)| j as usize)
}

/// Returns for each of `nodes` the other numbered nodes to which a path of at most two strong couplings
/// leads, as their `numbers`. `seen` must not contain the number of any of `nodes`, but may contain [`FINE`].
fn paths(a: &Bsr, strong: &[u8], numbers: &[u32], nodes: &[u32], seen: &mut [u32]) -> Rows {
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

/// Runs PMIS on the graph given by `neighbours`, some of whose nodes may belong to other ranks. `rows` has
/// the bounds of the pieces into which its nodes are cut. Nodes on which equally many others depend are
/// ordered by a hash of `name`, their global number.
///
/// With `lonely`, nodes become coarse points if they depend on no other node and no other depends on them.
fn select<N: Iterator<Item = usize>>(
    pool: &Pool,
    rows: &[usize],
    neighbours: impl Fn(usize) -> N + Sync,
    name: impl Fn(usize) -> u64 + Sync,
    seed: u64,
    lonely: bool,
    around: Around,
) -> Result<Vec<u32>> {
    let n = rows[rows.len() - 1];
    let own = around.own(n);
    let counts: Vec<AtomicU32> = (0..n).map(|_| AtomicU32::new(0)).collect();
    let alone = rows.len() == 2;
    pool.run(rows.len() - 1, |piece| {
        for j in (rows[piece]..rows[piece + 1]).flat_map(&neighbours) {
            if alone {
                counts[j].store(counts[j].load(Relaxed) + 1, Relaxed); // a third of the time of `fetch_add`
            } else {
                counts[j].fetch_add(1, Relaxed);
            }
        }
    });
    around.exchange(|i| counts[i].load(Relaxed), |i, count: u32| counts[i].store(count, Relaxed))?;
    // Decided nodes get key 0 and never win; their state is not read.
    let mut keys: Vec<AtomicU64> = (0..n).map(|_| AtomicU64::new(0)).collect();
    fill(pool, runs(rows), &mut keys, |piece, keys| {
        for (i, key) in (rows[piece]..).zip(keys) {
            let weight = (counts[i].load(Relaxed) as u64) << 40 | splitmix64(seed, name(i)) >> 24;
            *key.get_mut() = weight.saturating_add(1);
        }
    });
    let state: Vec<AtomicU8> = (0..n).map(|_| AtomicU8::new(UNDECIDED)).collect();
    // For each node the last round in which it had a neighbour of larger weight.
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
        // Own nodes come first, and lists are ascending.
        let left = undecided.iter().any(|list| list.first().is_some_and(|&i| (i as usize) < own));
        each(&mut undecided, &|list| {
            for i in list.iter().map(|&i| i as usize) {
                let weight = keys[i].load(Relaxed);
                for j in neighbours(i) {
                    let other = keys[j].load(Relaxed);
                    let more = if weight == other { name(i) > name(j) } else { weight > other };
                    lost[if more { j } else { i }].store(round, Relaxed);
                }
            }
        });
        let wins = |i: usize| lost[i].load(Relaxed) != round;
        let left = around.any(left)?;
        around.exchange(
            |i| if is(i, UNDECIDED) && wins(i) { COARSE } else { state[i].load(Relaxed) },
            |i, now: u8| {
                lost[i].store(round, Relaxed);
                if now != UNDECIDED {
                    state[i].store(now, Relaxed);
                }
            },
        )?;
        if !left {
            break;
        }
        each(&mut undecided, &|list| {
            let winners = list.iter().filter(|&&i| wins(i as usize));
            winners.for_each(|&i| state[i as usize].store(COARSE, Relaxed));
        });
        each(&mut undecided, &|list| {
            list.retain(|&i| {
                let i = i as usize;
                if !is(i, UNDECIDED) {
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
    Ok(numbers(pool, rows, |i| is(i, COARSE)))
}

/// Numbers the nodes for which `is` returns true, in ascending order. The others get [`FINE`].
pub(super) fn numbers(pool: &Pool, rows: &[usize], is: impl Fn(usize) -> bool + Sync) -> Vec<u32> {
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

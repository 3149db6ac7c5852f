//! Aggregation: groups of nodes, each of which becomes one coarse node.
//!
//! Smoothed aggregation begins with roots: an independent set of distance two in the graph of strong
//! couplings (as in Bell, Dalton and Olson 2012). Each root and its neighbours form an aggregate. Each
//! remaining node joins the aggregate of the neighbour to which it is coupled most strongly. A P that is
//! constant on each aggregate is smoothed by one Jacobi step with the strong part of A (Vaněk, Mandel and
//! Brezina 1996).
//!
//! Unsmoothed aggregation forms pairs along the strongest couplings, then pairs of pairs, and so on (Notay
//! 2010). A node and its strongest free neighbour become a pair if each is the other's choice. A hash of both
//! nodes orders equal couplings.
//!
//! All decisions are made in rounds and depend only on comparisons and counts, so the order of execution does
//! not matter. On a level that ranks share, aggregates are those that a single rank would form.

use super::super::{Coarsening, Transfer};
use super::FINE;
use super::around::Around;
use super::galerkin::{Row, galerkin, transpose};
use super::near_null::count;
use super::parallel::{Rows, Scratch, assemble, bounds, each, fill, map};
use super::split::{SEED, numbers, pieces_of, runs};
use crate::Result;
use crate::matrix::storage::Storage;
use crate::matrix::{Arrays, Bsr};
use crate::space::splitmix64;
use crate::threads::Pool;
use std::borrow::Cow;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};

/// The entries that may count as strong couplings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Couplings {
    /// Entries of any sign.
    All,
    /// Entries whose sign differs from that of the row's diagonal entry. They pull the values of both nodes
    /// together.
    Attracting,
}

/// Returns the threshold of a level. Coarser levels have more and weaker couplings, because stencils grow.
pub fn threshold(strength: f64, level: usize) -> f64 {
    strength * 0.5f64.powi(level.min(64) as i32)
}

/// Returns the number of passes of pairwise matching on a level.
pub fn passes(how: &Coarsening, level: usize) -> usize {
    if level < how.aggressive { 3 } else { 2 }
}

/// Returns 1 for each entry of `a` that couples its nodes strongly, else 0. An entry does if a_ij² ≥ θ² |a_ii
/// a_jj| > 0, or if a_ij ≠ 0 and one of the two diagonal entries is 0. Diagonal entries never do. Collective
/// among the ranks of `around`.
///
/// # Errors
/// A rank that has ended or failed.
pub fn strong(pool: &Pool, a: &Bsr, theta: f64, which: Couplings, around: Around) -> Result<Vec<u8>> {
    // √|a_ii| of each node. The outermost nodes have no rows on this rank, so owners send theirs.
    let mut diagonal = each(pool, a.block_rows(), 16 * a.blocks(), |i| {
        a.diagonal_position(i).map_or(0.0, |p| a.values()[p].abs().sqrt())
    });
    let sizes = diagonal.clone();
    around.exchange(|i| sizes[i], |i, size| diagonal[i] = size)?;
    let arrays = Arrays::of(a);
    let Arrays { row_ptr, col, values } = arrays;
    let rows = pieces_of(pool, a);
    let entries: Vec<usize> = rows.iter().map(|&i| row_ptr[i]).collect();
    let mut out = vec![0; a.blocks()];
    fill(pool, runs(&entries), &mut out, |piece, out| {
        for i in rows[piece]..rows[piece + 1] {
            let row = row_ptr[i]..row_ptr[i + 1];
            let limit = theta * diagonal[i];
            let g = if which == Couplings::Attracting { arrays.sign(i) } else { 0.0 };
            let to = &mut out[row.start - entries[piece]..row.end - entries[piece]];
            for ((&j, &v), to) in col[row.clone()].iter().zip(&values[row]).zip(to) {
                let large = v != 0.0 && v.abs() >= limit * diagonal[j as usize];
                *to = u8::from(j as usize != i && large && g * v <= 0.0);
            }
        }
    });
    Ok(out)
}

/// A graph of strong couplings, with the entries that give their strength.
#[derive(Clone, Copy)]
struct Graph<'a> {
    a: &'a Bsr,
    strong: &'a [u8],
}

impl<'a> Graph<'a> {
    /// Returns the strong neighbours of node `i` with their entries, ascending.
    #[inline(always)]
    fn neighbours(self, i: usize) -> impl Iterator<Item = (usize, f64)> + 'a {
        let row = self.a.row_ptr()[i]..self.a.row_ptr()[i + 1];
        let entries = self.a.col()[row.clone()].iter().zip(&self.a.values()[row.clone()]);
        let strong = entries.zip(&self.strong[row]).filter(|&(_, &strong)| strong != 0);
        strong.map(|((&j, &v), _)| (j as usize, v))
    }

    /// Returns a_ij, or 0 if it is not stored.
    #[inline(always)]
    fn entry(self, i: usize, j: usize) -> f64 {
        let row = self.a.row_ptr()[i]..self.a.row_ptr()[i + 1];
        let found = self.a.col()[row.clone()].binary_search(&(j as u32));
        found.map_or(0.0, |at| self.a.values()[row.start + at])
    }

    /// Returns the neighbour with the strongest coupling to `i` among those for which `is` returns true.
    /// Among equal couplings the one with the smallest global number wins.
    fn strongest(self, i: usize, around: Around, is: impl Fn(usize) -> bool) -> Option<usize> {
        let mut best: Option<(usize, f64)> = None;
        for (j, v) in self.neighbours(i).filter(|&(j, _)| is(j)) {
            let first = |k: usize| around.number(j) < around.number(k);
            if best.is_none_or(|(k, most)| v.abs() > most || (v.abs() == most && first(k))) {
                best = Some((j, v.abs()));
            }
        }
        best.map(|(j, _)| j)
    }
}

/// Runs `f` on each list, in parallel.
fn of_each<T: Send>(pool: &Pool, lists: &mut [Vec<T>], f: impl Fn(&mut Vec<T>) + Sync) {
    fill(pool, lists.iter().map(|_| 1).collect::<Vec<_>>(), lists, |_, list| list.iter_mut().for_each(&f));
}

/// States of a node.
const UNDECIDED: u8 = 0;
const ROOT: u8 = 1;
const NO_ROOT: u8 = 2;

/// Aggregates around roots.
#[derive(Debug, PartialEq, Eq)]
pub struct Aggregates {
    /// The aggregate of each node, or [`FINE`] for nodes without strong couplings. On one rank, aggregates
    /// are numbered in the order of their first nodes, else in the order of their roots.
    pub of: Vec<u32>,
    /// Number of aggregates whose roots are own nodes.
    pub own: usize,
    /// With several ranks, the number of each root, and [`FINE`] for other nodes; empty on one rank.
    pub roots: Vec<u32>,
}

/// Forms aggregates around the nodes of an independent set of distance two. Collective among the ranks of
/// `around`.
///
/// # Errors
/// A rank that has ended or failed.
pub fn by_independent_set(
    pool: &Pool,
    a: &Bsr,
    strong: &[u8],
    level: usize,
    around: Around,
) -> Result<Aggregates> {
    let (graph, rows, n) = (Graph { a, strong }, pieces_of(pool, a), a.block_rows());
    let own = around.own(n);
    let state = roots(pool, graph, &rows, level, around)?;
    let is_root = |i: usize| state[i].load(Relaxed) == ROOT;
    // For each node, the root of its aggregate.
    let member: Vec<AtomicU32> = (0..n).map(|_| AtomicU32::new(FINE)).collect();
    let mut left: Vec<Vec<(u32, u32)>> = map(pool, rows.len() - 1, |piece| {
        let mut left = Vec::new();
        for i in rows[piece]..rows[piece + 1] {
            let strongest = || graph.strongest(i, around, is_root).filter(|_| i < own);
            match is_root(i).then_some(i).or_else(strongest) {
                Some(root) => member[i].store(root as u32, Relaxed),
                None if i < own && graph.neighbours(i).next().is_some() => left.push((i as u32, FINE)),
                None => {}
            }
        }
        left
    });
    loop {
        around.exchange_nodes(&member)?;
        if !around.any(left.iter().any(|list| !list.is_empty()))? {
            break;
        }
        // All nodes choose first, and join afterwards, so no node chooses an aggregate that was joined in the
        // same round.
        let has = |j: usize| member[j].load(Relaxed) != FINE;
        of_each(pool, &mut left, |list| {
            for (i, to) in list.iter_mut() {
                let strongest = graph.strongest(*i as usize, around, has);
                *to = strongest.map_or(FINE, |j| member[j].load(Relaxed));
            }
        });
        let stuck = !around.any(left.iter().flatten().any(|&(_, to)| to != FINE))?;
        of_each(pool, &mut left, |list| {
            list.retain(|&(i, to)| {
                // Couplings in one direction may lead to no root. Such a node becomes an aggregate by itself.
                member[i as usize].store(if stuck { i } else { to }, Relaxed);
                to == FINE && !stuck
            });
        });
    }
    if around.is_alone() {
        let of = numbered(pool, &rows, &member);
        return Ok(Aggregates { own: count(&of), of, roots: Vec::new() });
    }
    let roots = numbers(pool, &rows, |i| member[i].load(Relaxed) as usize == i);
    let own = roots[..own].iter().filter(|&&number| number != FINE).count();
    let of = |i: usize| roots.get(member[i].load(Relaxed) as usize).copied().unwrap_or(FINE);
    Ok(Aggregates { of: each(pool, n, 16 * n, of), own, roots })
}

/// Returns the weight of a node on which `count` others depend. It grows with the count; a hash of the node's
/// number orders equal counts.
fn key(count: u32, level: usize, number: u64) -> u64 {
    (u64::from(count) << 40 | splitmix64(SEED + level as u64, number) >> 24) + 1
}

/// Returns the state of each node: whether it is a root. In each round a node becomes a root if it is the
/// greatest undecided node within two strong couplings. Nodes are ordered by the number of nodes coupled to
/// them, and by a hash of their global numbers if these counts are equal.
///
/// Only the owner of a node makes it a root. Owners announce decisions twice in a round: which nodes became
/// roots, and which nodes these exclude. Collective among the ranks of `around`.
fn roots(pool: &Pool, graph: Graph, rows: &[usize], level: usize, around: Around) -> Result<Vec<AtomicU8>> {
    let n = graph.a.block_rows();
    let own = around.own(n);
    let count: Vec<AtomicU32> = (0..n).map(|_| AtomicU32::new(0)).collect();
    pool.run(rows.len() - 1, |piece| {
        for (j, _) in (rows[piece]..rows[piece + 1]).flat_map(|i| graph.neighbours(i)) {
            count[j].fetch_add(1, Relaxed);
        }
    });
    around.exchange(|i| count[i].load(Relaxed), |i, there: u32| count[i].store(there, Relaxed))?;
    // Among nodes with equal keys the one with the greatest number is the greatest.
    let weight = |i: usize| (key(count[i].load(Relaxed), level, around.number(i)), around.number(i));
    let keys = each(pool, n, 16 * n, weight);
    let state: Vec<AtomicU8> = (0..n).map(|_| AtomicU8::new(UNDECIDED)).collect();
    let is = |i: usize, wanted: u8| state[i].load(Relaxed) == wanted;
    let announce = || around.exchange(|i| state[i].load(Relaxed), |i, now: u8| state[i].store(now, Relaxed));
    // For each node the greatest undecided node among itself and its neighbours; FINE if there is none.
    let greatest: Vec<AtomicU32> = (0..n).map(|_| AtomicU32::new(FINE)).collect();
    let mut undecided: Vec<Vec<u32>> = map(pool, rows.len() - 1, |piece| {
        let alone = |i: usize| i < own && count[i].load(Relaxed) == 0 && graph.neighbours(i).next().is_none();
        let (lonely, others): (Vec<u32>, Vec<u32>) =
            (rows[piece] as u32..rows[piece + 1] as u32).partition(|&i| alone(i as usize));
        lonely.iter().for_each(|&i| state[i as usize].store(NO_ROOT, Relaxed));
        others
    });
    announce()?;
    let mut near = undecided.clone();
    // Own nodes come first, and lists are ascending.
    while around.any(undecided.iter().any(|list| list.first().is_some_and(|&i| (i as usize) < own)))? {
        of_each(pool, &mut near, |list| {
            list.retain(|&i| {
                let i = i as usize;
                let key = |j: usize| if is(j, UNDECIDED) { (keys[j], j as u32) } else { ((0, 0), FINE) };
                let (_, best) = graph.neighbours(i).fold(key(i), |best, (j, _)| best.max(key(j)));
                greatest[i].store(best, Relaxed);
                best != FINE
            });
        });
        of_each(pool, &mut undecided, |list| {
            for i in list.iter().map(|&i| i as usize).take_while(|&i| i < own) {
                let seen =
                    |j: usize| keys.get(greatest[j].load(Relaxed) as usize).copied().unwrap_or_default();
                if graph.neighbours(i).fold(seen(i), |best, (j, _)| best.max(seen(j))) == keys[i] {
                    state[i].store(ROOT, Relaxed);
                }
            }
        });
        announce()?;
        of_each(pool, &mut undecided, |list| {
            let lose = |j: usize| {
                let _ = state[j].compare_exchange(UNDECIDED, NO_ROOT, Relaxed, Relaxed);
            };
            for (j, _) in
                list.iter().filter(|&&i| is(i as usize, ROOT)).flat_map(|&i| graph.neighbours(i as usize))
            {
                lose(j);
                graph.neighbours(j).for_each(|(k, _)| lose(k));
            }
        });
        announce()?;
        of_each(pool, &mut undecided, |list| list.retain(|&i| is(i as usize, UNDECIDED)));
    }
    Ok(state)
}

/// Numbers aggregates in the order of their first nodes. `member` has for each node one node of its
/// aggregate, the same for all nodes of an aggregate.
fn numbered(pool: &Pool, rows: &[usize], member: &[AtomicU32]) -> Vec<u32> {
    let first: Vec<AtomicU32> = (0..member.len()).map(|_| AtomicU32::new(FINE)).collect();
    pool.run(rows.len() - 1, |piece| {
        for i in rows[piece]..rows[piece + 1] {
            if let Some(first) = first.get(member[i].load(Relaxed) as usize) {
                first.fetch_min(i as u32, Relaxed);
            }
        }
    });
    let first =
        |i: usize| first.get(member[i].load(Relaxed) as usize).map(|first| first.load(Relaxed) as usize);
    let number = numbers(pool, rows, |i| first(i) == Some(i));
    each(pool, member.len(), member.len() * 16, |i| first(i).map_or(FINE, |first| number[first]))
}

/// Returns the aggregate of each node, or [`FINE`] for nodes without strong couplings. Pairwise matching
/// builds aggregates of at most 2^`passes` nodes. They are numbered in the order of their first nodes.
///
/// # Errors
/// Errors of the Galerkin products over pairs.
pub fn by_matching(pool: &Pool, a: &Bsr, theta: f64, passes: usize, level: usize) -> Result<Vec<u32>> {
    let mut graph = Cow::Borrowed(a);
    let mut whole: Option<Vec<u32>> = None;
    for pass in 0..passes {
        let strong = strong(pool, &graph, theta, Couplings::Attracting, Around::of(None))?;
        let seed = SEED + level as u64 + ((pass as u64 + 1) << 8);
        let pairs = pairs(pool, Graph { a: &graph, strong: &strong }, seed, pass == 0);
        let all = match whole {
            None => pairs.clone(),
            Some(whole) => each(pool, whole.len(), whole.len() * 12, |i| {
                pairs.get(whole[i] as usize).copied().unwrap_or(FINE)
            }),
        };
        whole = Some(all);
        if pass + 1 < passes {
            let prolongation = constant(pool, &pairs);
            if prolongation.block_columns() == graph.block_rows() {
                break; // nothing was matched
            }
            let restriction = transpose(pool, &prolongation)?;
            let next = galerkin(pool, &graph, &Transfer { prolongation, restriction, coarse: Vec::new() })?;
            graph = Cow::Owned(next);
        }
    }
    Ok(whole.unwrap_or_default())
}

/// Returns for each node the number of its pair, formed along the strongest couplings. A single node counts
/// as a pair too. If `leave` is set, a node without strong couplings gets [`FINE`] instead.
fn pairs(pool: &Pool, graph: Graph, seed: u64, leave: bool) -> Vec<u32> {
    let (n, rows) = (graph.a.block_rows(), pieces_of(pool, graph.a));
    let member: Vec<AtomicU32> = (0..n as u32).map(AtomicU32::new).collect();
    // For each free node, the free neighbour that it chooses.
    let choice: Vec<AtomicU32> = (0..n).map(|_| AtomicU32::new(FINE)).collect();
    let taken: Vec<AtomicU8> = (0..n).map(|_| AtomicU8::new(0)).collect();
    let is_free = |j: usize| taken[j].load(Relaxed) == 0;
    let mut free: Vec<Vec<u32>> = map(pool, rows.len() - 1, |piece| {
        let (some, none): (Vec<u32>, Vec<u32>) = (rows[piece] as u32..rows[piece + 1] as u32)
            .partition(|&i| graph.neighbours(i as usize).next().is_some());
        none.iter().filter(|_| leave).for_each(|&i| member[i as usize].store(FINE, Relaxed));
        some
    });
    loop {
        of_each(pool, &mut free, |list| {
            list.retain(|&i| {
                let best = best_match(graph, seed, i as usize, is_free);
                choice[i as usize].store(best.map_or(FINE, |j| j as u32), Relaxed);
                best.is_some()
            });
        });
        let chosen = |i: u32| choice[i as usize].load(Relaxed);
        let matched = map(pool, free.len(), |piece| {
            let mut matched = 0usize;
            for &i in &free[piece] {
                let j = chosen(i);
                if chosen(j) == i {
                    member[i as usize].store(i.min(j), Relaxed);
                    taken[i as usize].store(1, Relaxed);
                    matched += 1;
                }
            }
            matched
        });
        // If couplings depend on direction, choices may form a ring. Then no pair is found, and these nodes
        // stay single.
        if matched.iter().all(|&matched| matched == 0) {
            return numbered(pool, &rows, &member);
        }
        of_each(pool, &mut free, |list| list.retain(|&i| is_free(i as usize)));
    }
}

/// Returns the free neighbour with the strongest coupling |a_ij| + |a_ji|, which is the same for both nodes.
/// With a different value for each direction, choices of most nodes would form rings. Sums are rounded to f32
/// so that nearly equal couplings count as equal. A hash of both nodes orders these.
#[inline(always)]
fn best_match(graph: Graph, seed: u64, i: usize, is_free: impl Fn(usize) -> bool) -> Option<usize> {
    let mut best: Option<(f32, u64, usize)> = None;
    for (j, v) in graph.neighbours(i).filter(|&(j, _)| is_free(j)) {
        let size = (v.abs() + graph.entry(j, i).abs()) as f32;
        if best.is_some_and(|(most, ..)| size < most) {
            continue;
        }
        let edge = (i.min(j) as u64) << 32 | i.max(j) as u64;
        let found = (size, splitmix64(seed, edge), j);
        if best.is_none_or(|best| found > best) {
            best = Some(found);
        }
    }
    best.map(|(.., j)| j)
}

/// Returns the tentative interpolation: a 1 in the row of each node, in the column of its aggregate. A node
/// without an aggregate has an empty row.
pub fn constant(pool: &Pool, aggregates: &[u32]) -> Bsr {
    let rows = bounds(aggregates.len(), pool.pieces(aggregates.len() * 16));
    let counts = map(pool, rows.len() - 1, |piece| {
        let own = aggregates[rows[piece]..rows[piece + 1]].iter().filter(|&&number| number != FINE);
        own.fold((0, 0), |(entries, columns), &number| (entries + 1, columns.max(number as usize + 1)))
    });
    let columns = counts.iter().map(|count| count.1).max().unwrap_or(0);
    let entries: usize = counts.iter().map(|count| count.0).sum();
    let mut row_ptr = vec![0; aggregates.len() + 1];
    fill(pool, runs(&rows), &mut row_ptr[1..], |piece, to| {
        let mut end: usize = counts[..piece].iter().map(|count| count.0).sum();
        for (number, to) in aggregates[rows[piece]..].iter().zip(to) {
            end += usize::from(*number != FINE);
            *to = end;
        }
    });
    let mut col = vec![0; entries];
    fill(pool, counts.iter().map(|count| count.0), &mut col, |piece, to| {
        let own = aggregates[rows[piece]..rows[piece + 1]].iter().filter(|&&number| number != FINE);
        to.iter_mut().zip(own).for_each(|(to, number)| *to = *number);
    });
    Bsr::from_storage(1, Storage::host(aggregates.len(), columns, row_ptr, col, vec![1.0; entries]))
}

/// Damping ω of the step that smooths P. The matrix of that step has eigenvalues of at most 1.
const OMEGA: f64 = 4.0 / 3.0;

/// Returns P = (I − ω L⁻¹ A_F) T, where T is [`constant`]. A_F has the strong entries of A, and adds the weak
/// entries of each row to the diagonal. L is diagonal with the ℓ1 norms of the rows of A_F, so the
/// eigenvalues of L⁻¹ A_F are at most 1. If the weak entries of a row outweigh its diagonal entry, the row of
/// P is that of T.
pub fn smoothed(pool: &Pool, a: &Bsr, strong: &[u8], aggregates: &[u32]) -> Bsr {
    let (row_ptr, col, values) = (a.row_ptr(), a.col(), a.values());
    let rows = pieces_of(pool, a);
    let most = map(pool, rows.len() - 1, |piece| {
        let own = aggregates[rows[piece]..rows[piece + 1]].iter().filter(|&&number| number != FINE);
        own.fold(0, |most, &number| most.max(number as usize + 1))
    });
    let columns = most.into_iter().max().unwrap_or(0);
    let slots = Scratch::new();
    let parts = map(pool, rows.len() - 1, |piece| {
        let mut work = (Vec::new(), Vec::new());
        let mut to = Rows::default();
        let make = |slot: &mut Vec<u32>| {
            for i in rows[piece]..rows[piece + 1] {
                let (mut own, mut lumped, mut norm) = (0.0, 0.0, 0.0);
                for p in row_ptr[i]..row_ptr[i + 1] {
                    if col[p] as usize == i {
                        own = values[p];
                        lumped += own;
                    } else if strong[p] == 0 {
                        lumped += values[p];
                    } else {
                        norm += values[p].abs();
                    }
                }
                let mut row = Row::new(slot, &mut to);
                if aggregates[i] != FINE {
                    row.add(1, aggregates[i], 1.0, &[1.0]);
                }
                let step = OMEGA / (norm + lumped.abs());
                if lumped * own > 0.0 && step.is_finite() {
                    let step = if own < 0.0 { step } else { -step };
                    for p in row_ptr[i]..row_ptr[i + 1] {
                        let k = col[p] as usize;
                        let entry = if k == i { lumped } else { values[p] };
                        if (k == i || strong[p] != 0) && aggregates[k] != FINE {
                            row.add(1, aggregates[k], step, &[entry]);
                        }
                    }
                }
                row.sort(1, &mut work);
                to.end_row();
            }
        };
        slots.with(|| vec![0; columns], make);
        to
    });
    assemble(pool, 1, columns, parts)
}

#[cfg(test)]
mod tests;

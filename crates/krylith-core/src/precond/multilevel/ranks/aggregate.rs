//! Smoothed aggregation on the host, on a level that ranks share. The aggregates are those that a single rank
//! would form. Each belongs to the owner of its root, and is numbered by that root.
//!
//! Only the owner of a node decides its state. Owners announce decisions after each step of a round: which
//! nodes became roots, which nodes these exclude, and which aggregate a node has joined.

use super::super::Coarsening;
use super::super::host::FINE;
use super::super::host::aggregate::{Couplings, Graph, key, sizes, smoothed, strong_by, threshold};
use super::super::host::split::{numbers, pieces_of};
use super::{NearTransfer, Neighbourhood};
use crate::Result;
use crate::matrix::Bsr;
use crate::threads::{Pool, collect, each};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};

/// States of a node.
const UNDECIDED: u8 = 0;
const ROOT: u8 = 1;
const NO_ROOT: u8 = 2;
/// Smallest number of nodes for a thread.
const FEW: usize = 1 << 10;

/// Computes P for own nodes; `None` if no rank has an aggregate, or every aggregate has only one node.
/// Collective.
pub fn transfer(
    pool: &Pool,
    a: &Bsr,
    how: &Coarsening,
    level: usize,
    near: &Neighbourhood,
) -> Result<Option<NearTransfer>> {
    let mut sizes = sizes(pool, a);
    // The outermost nodes have no rows on this rank. Their owners send the sizes of their diagonal entries.
    let sent: Vec<f64> = near.send.iter().map(|&i| sizes[i as usize]).collect();
    sizes[near.own..].copy_from_slice(&near.exchange(&sent)?);
    let strong = strong_by(pool, a, threshold(how.strength, level), Couplings::All, &sizes);
    let graph = Graph { a, strong: &strong };
    let state = roots(graph, level, near)?;
    let member = members(graph, &state, near)?;
    let number = numbers(pool, &pieces_of(pool, a), |i| member[i] as usize == i);
    let own = number[..near.own].iter().filter(|&&k| k != FINE).count();
    if !near.coarsens(own)? {
        return Ok(None);
    }
    let of = |i: usize| number.get(member[i] as usize).copied().unwrap_or(FINE);
    let aggregates = collect(0..member.len(), FEW, &of);
    let prolongation = smoothed(pool, a, &strong, &aggregates);
    Ok(Some(NearTransfer::new(prolongation, own, near.coarse_ghosts(&number)?)))
}

/// Computes the state of each node. Collective.
fn roots(graph: Graph, level: usize, near: &Neighbourhood) -> Result<Vec<u8>> {
    let (n, own) = (near.nodes(), near.own);
    let counts: Vec<AtomicU32> = (0..n).map(|_| AtomicU32::new(0)).collect();
    each(n, FEW, &|i| {
        for (j, _) in graph.neighbours(i) {
            counts[j].fetch_add(1, Relaxed);
        }
    });
    let sent: Vec<u32> = near.send.iter().map(|&i| counts[i as usize].load(Relaxed)).collect();
    let far = counts[own..].iter().zip(near.exchange(&sent)?);
    far.for_each(|(count, there)| count.store(there, Relaxed));
    let count = |i: usize| counts[i].load(Relaxed);
    let weight = |i: usize| (key(count(i), level, near.number(i)), near.number(i));
    let weights = collect(0..n, FEW, &weight);
    let lonely = |i: usize| i < own && count(i) == 0 && graph.neighbours(i).next().is_none();
    let begin = |i: usize| AtomicU8::new(if lonely(i) { NO_ROOT } else { UNDECIDED });
    let state: Vec<AtomicU8> = (0..n).map(begin).collect();
    let is = |i: usize, wanted: u8| state[i].load(Relaxed) == wanted;
    let tell = || -> Result<()> {
        let sent: Vec<u8> = near.send.iter().map(|&i| state[i as usize].load(Relaxed)).collect();
        let far = state[own..].iter().zip(near.exchange(&sent)?);
        far.for_each(|(state, there)| state.store(there, Relaxed));
        Ok(())
    };
    tell()?;
    // For each node, the heaviest undecided node among itself and its neighbours.
    let heaviest: Vec<AtomicU32> = (0..n).map(|_| AtomicU32::new(FINE)).collect();
    let mut undecided: Vec<usize> = (0..n).filter(|&i| is(i, UNDECIDED)).collect();
    let mut around: Vec<usize> = (0..n).collect();
    loop {
        let mut left = [undecided.iter().filter(|&&i| i < own).count() as f64];
        near.comm().sum(&mut left)?;
        if left == [0.0] {
            return Ok(state.into_iter().map(AtomicU8::into_inner).collect());
        }
        each(around.len(), FEW, &|k| {
            let i = around[k];
            let all = std::iter::once(i).chain(graph.neighbours(i).map(|(j, _)| j));
            let most = all.filter(|&j| is(j, UNDECIDED)).max_by_key(|&j| weights[j]);
            heaviest[i].store(most.map_or(FINE, |j| j as u32), Relaxed);
        });
        around.retain(|&i| heaviest[i].load(Relaxed) != FINE);
        each(undecided.len(), FEW, &|k| {
            let i = undecided[k];
            if i >= own {
                return;
            }
            let mut all = std::iter::once(i).chain(graph.neighbours(i).map(|(j, _)| j));
            let lighter = |j: usize| {
                weights.get(heaviest[j].load(Relaxed) as usize).is_none_or(|&other| other <= weights[i])
            };
            if all.all(lighter) {
                state[i].store(ROOT, Relaxed);
            }
        });
        tell()?;
        let lose = |j: usize| {
            let _ = state[j].compare_exchange(UNDECIDED, NO_ROOT, Relaxed, Relaxed);
        };
        each(undecided.len(), FEW, &|k| {
            let i = undecided[k];
            if !is(i, ROOT) {
                return;
            }
            for (j, _) in graph.neighbours(i) {
                lose(j);
                graph.neighbours(j).for_each(|(k, _)| lose(k));
            }
        });
        tell()?;
        undecided.retain(|&i| is(i, UNDECIDED));
    }
}

/// Returns the root of each node's aggregate, as a node of this neighbourhood; [`FINE`] if the node has no
/// aggregate or the root is outside the neighbourhood. Collective.
fn members(graph: Graph, state: &[u8], near: &Neighbourhood) -> Result<Vec<u32>> {
    let own = near.own;
    let here = near.comm().rank() as u32;
    let places: HashMap<(u32, u32), u32> = near.far.iter().copied().zip(own as u32..).collect();
    let mut member: Vec<u32> =
        (0u32..).zip(state).map(|(i, &state)| if state == ROOT { i } else { FINE }).collect();
    let coupled = |i: usize| graph.neighbours(i).next().is_some();
    let mut left: Vec<usize> = (0..own).filter(|&i| member[i] == FINE && coupled(i)).collect();
    // Among equal couplings the node with the smallest global number wins.
    let strongest = |member: &[u32], i: usize| {
        let mut best: Option<(f64, u64, usize)> = None;
        for (j, v) in graph.neighbours(i).filter(|&(j, _)| member[j] != FINE) {
            let (size, name) = (v.abs(), near.number(j));
            if best.is_none_or(|(most, first, _)| size > most || (size == most && name < first)) {
                best = Some((size, name, j));
            }
        }
        best.map_or(FINE, |(.., j)| member[j])
    };
    for round in 0.. {
        let chosen = collect(0..left.len(), FEW, &|k| strongest(&member, left[k]));
        let found = chosen.iter().filter(|&&root| root != FINE).count();
        let mut sums = [found as f64, (left.len() - found) as f64];
        near.comm().sum(&mut sums)?;
        // Couplings in one direction may lead to no root. Such nodes become aggregates by themselves.
        let stuck = round > 0 && sums[0] == 0.0;
        left.iter().zip(chosen).for_each(|(&i, root)| member[i] = if stuck { i as u32 } else { root });
        left.retain(|&i| member[i] == FINE);
        // A root is sent as its owner and its number on that rank.
        let name = |&i: &u32| match member[i as usize] {
            FINE => u64::MAX,
            root => match (root as usize).checked_sub(own) {
                None => u64::from(here) << 32 | u64::from(root),
                Some(far) => u64::from(near.far[far].0) << 32 | u64::from(near.far[far].1),
            },
        };
        let sent: Vec<u64> = near.send.iter().map(name).collect();
        for (member, root) in member[own..].iter_mut().zip(near.exchange(&sent)?) {
            let (owner, node) = ((root >> 32) as u32, root as u32);
            *member = match owner == here {
                true => node,
                false => places.get(&(owner, node)).copied().unwrap_or(FINE),
            };
        }
        if stuck || sums[1] == 0.0 {
            break;
        }
    }
    Ok(member)
}

//! Classical coarsening and approximate ideal restriction on the host, on a level that ranks share. Each rank
//! runs the algorithm of a single rank for its own nodes, with the rows of surrounding nodes of other ranks.
//!
//! In PMIS each rank announces once per round which of its boundary nodes have become coarse points. The
//! state of a node depends only on heavier nodes. So a rank may know the states of other ranks' nodes late,
//! but a state that it knows is final. Global numbers break ties between nodes of equal weight, and between
//! equal weights in a row of P.

use super::super::host::parallel::Scratch;
use super::super::host::split::{SEED, Size, TWICE, numbers, paths, pieces_of, strong};
use super::super::host::{FINE, air, interpolate, multipass};
use super::super::{CoarsenKind, Coarsening};
use super::air::with_restriction;
use super::{NearTransfer, Neighbourhood};
use crate::Result;
use crate::matrix::Bsr;
use crate::space::splitmix64;
use crate::threads::{Pool, collect, each};
use rayon::prelude::*;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering::Relaxed};

/// States of a node.
const UNDECIDED: u8 = 0;
const STAYS: u8 = 1;
const GOES: u8 = 2;
/// Smallest number of nodes for a thread.
const FEW: usize = 1 << 10;

/// Computes P for own nodes; `None` if all nodes of all ranks are coarse points, or none. Collective.
pub fn transfer(
    pool: &Pool,
    couplings: &Bsr,
    how: &Coarsening,
    level: usize,
    near: &Neighbourhood,
) -> Result<Option<NearTransfer>> {
    let a = couplings;
    let size = if how.kind.is_air() { Size::Absolute } else { Size::Negative };
    let strong = strong(pool, a, how.strength, size);
    let n = a.block_rows();
    let neighbours = |i: usize| {
        let row = a.row_ptr()[i]..a.row_ptr()[i + 1];
        let entries = a.col()[row.clone()].iter().zip(&strong[row]);
        entries.filter(|&(_, &strong)| strong != 0).map(|(&j, _)| j as usize)
    };
    let all = Among { near, number: None };
    let state = select(n, neighbours, |i| near.number(i), SEED + level as u64, false, all)?;
    let rows = pieces_of(pool, a);
    let mut coarse = numbers(pool, &rows, |i| state[i] == STAYS);
    let aggressive = level < how.aggressive;
    if aggressive {
        let nodes: Vec<u32> = (0..n as u32).filter(|&i| coarse[i as usize] != FINE).collect();
        let scratch = Scratch::new();
        let found: Vec<_> = nodes
            .par_chunks(FEW)
            .map(|nodes| {
                let seen = || vec![FINE; n];
                scratch.with(seen, |seen: &mut Vec<u32>| paths(a, &strong, &coarse, nodes, seen))
            })
            .collect();
        let row = |k: usize| {
            let (rows, k) = (&found[k / FEW], k % FEW);
            rows.col[rows.row_ptr[k]..rows.row_ptr[k + 1]].iter().map(|&j| j as usize)
        };
        let name = |k: usize| near.number(nodes[k] as usize);
        let among = Among { near, number: Some(&coarse) };
        let again = select(nodes.len(), row, name, SEED + TWICE + level as u64, true, among)?;
        let stays: Vec<bool> = coarse.iter().map(|&k| k != FINE && again[k as usize] == STAYS).collect();
        coarse = numbers(pool, &rows, |i| stays[i]);
    }
    let own = coarse[..near.own].iter().filter(|&&k| k != FINE).count();
    if !near.coarsens(own)? {
        return Ok(None);
    }
    if let CoarsenKind::Air { distance } = how.kind {
        let prolongation = air::one_point(pool, a, &coarse, |i| near.number(i));
        let r = air::restriction(pool, a, &strong, &coarse, distance, near.own);
        let transfer = NearTransfer {
            coarse: air::marks(pool, &coarse[..near.own]),
            ..NearTransfer::new(prolongation, own, near.coarse_ghosts(&coarse)?)
        };
        return Ok(Some(with_restriction(pool, near, &r, transfer)?));
    }
    let names: Vec<u64> = (0..n).filter(|&i| coarse[i] != FINE).map(|i| near.number(i)).collect();
    let prolongation = match aggressive {
        true => multipass::multipass(pool, a, &strong, &coarse, how.truncate, Some(&names)),
        false => interpolate::extended_i(pool, a, &strong, &coarse, how.truncate, Some(&names)),
    };
    Ok(Some(NearTransfer::new(prolongation, own, near.coarse_ghosts(&coarse)?)))
}

/// Positions of a neighbourhood's nodes in a graph. Without `number` the graph has all nodes, in the same
/// order. `number` gives the position of each node, or [`FINE`] for nodes outside the graph.
#[derive(Clone, Copy)]
struct Among<'a> {
    near: &'a Neighbourhood<'a>,
    number: Option<&'a [u32]>,
}

impl Among<'_> {
    fn place(self, node: usize) -> Option<usize> {
        match self.number {
            None => Some(node),
            Some(number) => (number[node] != FINE).then(|| number[node] as usize),
        }
    }

    /// Returns the number of own nodes in the graph, whose positions come first.
    fn own(self) -> usize {
        let own = self.near.own;
        self.number.map_or(own, |number| number[..own].iter().filter(|&&k| k != FINE).count())
    }

    /// Exchanges values of nodes. `of` returns the value of an own node, and `f` receives the position of
    /// each node of another rank and its owner's value.
    fn exchange<T: crate::comm::wire::Wire + Default>(
        self,
        of: impl Fn(usize) -> T,
        mut f: impl FnMut(usize, T),
    ) -> Result<()> {
        let sent: Vec<T> =
            self.near.send.iter().map(|&i| self.place(i as usize).map_or(T::default(), &of)).collect();
        for (k, value) in self.near.exchange(&sent)?.into_iter().enumerate() {
            if let Some(place) = self.place(self.near.own + k) {
                f(place, value);
            }
        }
        Ok(())
    }
}

/// Runs PMIS on `n` nodes, some of which belong to other ranks. `name` returns the global number of a node,
/// which orders nodes of equal weight. With `lonely`, nodes without neighbours become coarse points.
/// Collective.
fn select<N: Iterator<Item = usize>>(
    n: usize,
    neighbours: impl Fn(usize) -> N + Sync,
    name: impl Fn(usize) -> u64 + Sync,
    seed: u64,
    lonely: bool,
    among: Among,
) -> Result<Vec<u8>> {
    let counts: Vec<AtomicU32> = (0..n).map(|_| AtomicU32::new(0)).collect();
    each(n, FEW, &|i| {
        for j in neighbours(i) {
            counts[j].fetch_add(1, Relaxed);
        }
    });
    among.exchange(|k| counts[k].load(Relaxed), |k, count: u32| counts[k].store(count, Relaxed))?;
    let key = |i: usize| u64::from(counts[i].load(Relaxed)) << 40 | splitmix64(seed, name(i)) >> 24;
    let weights = collect(0..n, FEW, &|i| (key(i), name(i)));
    let goes = |i: usize| counts[i].load(Relaxed) == 0 && !lonely;
    let state: Vec<AtomicU8> =
        (0..n).map(|i| AtomicU8::new(if goes(i) { GOES } else { UNDECIDED })).collect();
    let is = |i: usize, wanted: u8| state[i].load(Relaxed) == wanted;
    let lost: Vec<AtomicU32> = (0..n).map(|_| AtomicU32::new(0)).collect();
    let own = among.own();
    let mut undecided: Vec<usize> = (0..n).filter(|&i| is(i, UNDECIDED)).collect();
    for round in 1.. {
        each(undecided.len(), FEW, &|k| {
            let i = undecided[k];
            for j in neighbours(i).filter(|&j| is(j, UNDECIDED)) {
                lost[if weights[i] > weights[j] { j } else { i }].store(round, Relaxed);
            }
        });
        let mut left = [undecided.iter().filter(|&&i| i < own).count() as f64];
        among.near.comm().sum(&mut left)?;
        let wins = |i: usize| is(i, UNDECIDED) && lost[i].load(Relaxed) != round;
        let said = |i: usize| if wins(i) { STAYS } else { state[i].load(Relaxed) };
        among.exchange(said, |i, now: u8| match now {
            UNDECIDED => lost[i].store(round, Relaxed),
            now => state[i].store(now, Relaxed),
        })?;
        if left == [0.0] {
            break;
        }
        each(undecided.len(), FEW, &|k| {
            if wins(undecided[k]) {
                state[undecided[k]].store(STAYS, Relaxed);
            }
        });
        each(undecided.len(), FEW, &|k| {
            let i = undecided[k];
            if is(i, UNDECIDED) && neighbours(i).any(|j| is(j, STAYS)) {
                state[i].store(GOES, Relaxed);
            }
        });
        undecided.retain(|&i| is(i, UNDECIDED));
    }
    Ok(state.into_iter().map(AtomicU8::into_inner).collect())
}

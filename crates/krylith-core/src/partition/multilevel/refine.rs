//! Concurrent refinement of many groups: nodes at group boundaries move to the group that they are coupled to
//! most, if its size allows.
//!
//! All nodes choose a group by the same labels. Each choice is then evaluated again as if better choices of
//! its neighbours had already been made (the second filter of Jet, Gilbert et al. 2023). Groups admit the
//! best remaining choices in sorted order. The result of a round thus does not depend on the order of
//! execution.

use super::super::adjacency::{LEAST, atomics};
use super::{Graph, NONE, hash};
use crate::threads::{collect, each, each_chunk};
use rayon::prelude::*;
use std::cmp::Reverse;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};

/// Nodes with more neighbours than this sort their groups instead of searching a list.
const MANY: usize = 96;

/// Average fill of a part; the rest leaves room for nodes to move.
const FILL: f64 = 0.96;

/// Number of parts that each group is to become, and the resulting limits on its rows.
pub(crate) struct Limits {
    pub parts: Vec<usize>,
    rows: u64,
    mean: f64,
}

impl Limits {
    /// Creates the limits for one group of `n` rows that is to become parts of at most `rows` rows.
    pub fn new(n: usize, rows: usize) -> Self {
        let rows = rows.clamp(1, n.max(1));
        let parts = ((n as f64 / (FILL * rows as f64)).ceil() as usize).clamp(1, n.max(1));
        Self { parts: vec![parts], rows: rows as u64, mean: n as f64 / parts as f64 }
    }

    /// Returns the largest number of rows of a part with which `n` rows become `parts` parts.
    pub fn rows_of(n: usize, parts: usize) -> usize {
        ((n as f64 / (FILL * parts as f64)).ceil() as usize).max(1)
    }

    /// Returns the rows of each part, if every group is a single part and none exceeds its limit.
    #[cfg(feature = "cuda")]
    pub fn settled(&self, graph: &Graph, label: &[u32]) -> Option<Vec<u32>> {
        let weight = weigh(graph, label, self.parts.len());
        let fits = self.parts.iter().all(|&p| p == 1) && weight.iter().all(|&w| w <= self.rows);
        fits.then(|| weight.into_iter().map(|w| w as u32).collect())
    }

    /// Returns the number of parts that groups above the limit must become; `None` if no group is above it.
    pub fn overfull(&self, label: &[u32]) -> Option<Self> {
        let mut rows = vec![0usize; self.parts.len()];
        label.iter().for_each(|&g| rows[g as usize] += 1);
        let parts: Vec<usize> = rows.iter().map(|&r| r.div_ceil(self.rows as usize).max(1)).collect();
        let any = parts.iter().any(|&p| p > 1);
        any.then_some(Self { parts, rows: self.rows, mean: self.rows as f64 })
    }

    /// Returns the largest number of rows of a group of `parts` parts. With more parts it is nearer to the
    /// mean, so that each part keeps some slack.
    pub fn cap(&self, parts: usize) -> u64 {
        if parts == 1 {
            return self.rows;
        }
        let rows = self.rows as f64;
        let slack = (rows - self.mean).max(0.0) / (1.0 + (parts as f64).log2());
        ((self.mean + slack) * parts as f64).floor() as u64
    }
}

/// A proposed move of a node to another group.
#[derive(Clone, Copy)]
struct Move {
    node: u32,
    to: u32,
    gain: i64,
}

/// Groups that a node is coupled to, with the total weight of the edges.
type Links = Vec<(u32, i64)>;

fn links(graph: &Graph, label: &[u32], v: usize, links: &mut Links) {
    links.clear();
    if graph.degree(v) > MANY {
        links.extend(graph.edges(v).map(|(u, w)| (label[u as usize], i64::from(w))));
        links.sort_unstable();
        links.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            kept.1 += if same { next.1 } else { 0 };
            same
        });
        return;
    }
    for (u, w) in graph.edges(v) {
        let group = label[u as usize];
        match links.iter_mut().find(|l| l.0 == group) {
            Some(link) => link.1 += i64::from(w),
            None => links.push((group, i64::from(w))),
        }
    }
}

/// Counts the rows of each group.
fn weigh(graph: &Graph, label: &[u32], groups: usize) -> Vec<u64> {
    let weight: Vec<AtomicU64> = (0..groups).map(|_| AtomicU64::new(0)).collect();
    each(label.len(), LEAST, &|v| {
        weight[label[v] as usize].fetch_add(u64::from(graph.size[v]), Relaxed); // integers: any order
    });
    weight.into_iter().map(AtomicU64::into_inner).collect()
}

/// Runs `rounds` rounds of refinement; each first moves excess nodes out of groups above their limit.
pub(super) fn refine(graph: &Graph, label: &mut [u32], room: &Limits, rounds: usize) {
    let groups = room.parts.len();
    if groups == 1 {
        return;
    }
    let cap: Vec<u64> = room.parts.iter().map(|&p| room.cap(p)).collect();
    let mut weight = weigh(graph, label, groups);
    let n = graph.len();
    let (to, gain) = (atomics(n, &|_| NONE), collect(0..n, LEAST, &|_| AtomicI64::new(0)));
    let mut resting = vec![false; n];
    for round in 0..rounds as u32 {
        relieve(graph, label, &cap, &mut weight);
        let wishes = wishes(graph, label, &cap, &weight, &resting, round);
        each(wishes.len(), LEAST, &|k| {
            let m = &wishes[k];
            to[m.node as usize].store(m.to, Relaxed);
            gain[m.node as usize].store(m.gain, Relaxed);
        });
        let kept: Vec<Move> = wishes
            .par_iter()
            .filter_map(|m| {
                let rank = |v: u32, gain: i64| (gain, hash(v, round));
                let own = (label[m.node as usize], rank(m.node, m.gain));
                let mut sum = 0;
                for (u, w) in graph.edges(m.node as usize) {
                    let mut group = label[u as usize];
                    let wish = to[u as usize].load(Relaxed);
                    if wish != NONE && rank(u, gain[u as usize].load(Relaxed)) > own.1 {
                        group = wish;
                    }
                    sum += if group == m.to { i64::from(w) } else { 0 };
                    sum -= if group == own.0 { i64::from(w) } else { 0 };
                }
                (sum > 0).then_some(Move { gain: sum, ..*m })
            })
            .collect();
        each(wishes.len(), LEAST, &|k| to[wishes[k].node as usize].store(NONE, Relaxed));
        let admitted = admit(graph, kept, &cap, &weight, round);
        apply(graph, label, &mut weight, &admitted, &to);
        resting = collect(0..n, LEAST, &|v| to[v].swap(NONE, Relaxed) != NONE);
    }
    for _ in 0..8 {
        if !relieve(graph, label, &cap, &mut weight) {
            break;
        }
    }
}

/// Proposes, for each node, the best other group in which it fits. A small loss relative to the edges inside
/// the node's own group is allowed, because neighbours may follow.
fn wishes(
    graph: &Graph,
    label: &[u32],
    cap: &[u64],
    weight: &[u64],
    resting: &[bool],
    round: u32,
) -> Vec<Move> {
    let wish = |list: &mut Links, v: usize| {
        if resting[v] {
            return None;
        }
        links(graph, label, v, list);
        let own = label[v];
        if list.iter().all(|l| l.0 == own) {
            return None;
        }
        let size = u64::from(graph.size[v]);
        let inside = list.iter().find(|l| l.0 == own).map_or(0, |l| l.1);
        let fits = |g: u32| weight[g as usize] + size <= cap[g as usize];
        let best =
            list.iter().filter(|l| l.0 != own && fits(l.0)).max_by_key(|l| (l.1, hash(l.0, round), l.0))?;
        let gain = best.1 - inside;
        (gain >= 0 || -gain * 4 < inside).then_some(Move { node: v as u32, to: best.0, gain })
    };
    (0..graph.len()).into_par_iter().map_init(Vec::new, wish).flatten_iter().collect()
}

/// Selects the moves that fit in their target group, best first.
fn admit(graph: &Graph, mut moves: Vec<Move>, cap: &[u64], weight: &[u64], round: u32) -> Vec<Move> {
    moves.par_sort_unstable_by_key(|m| (m.to, Reverse(m.gain), hash(m.node, round), m.node));
    let by_group: Vec<&[Move]> = moves.chunk_by(|a, b| a.to == b.to).collect();
    let admitted = |moves: &&[Move]| {
        let group = moves[0].to as usize;
        let mut left = cap[group].saturating_sub(weight[group]);
        let mut kept = Vec::new();
        for m in moves.iter() {
            let size = u64::from(graph.size[m.node as usize]);
            if size > left {
                break;
            }
            left -= size;
            kept.push(*m);
        }
        kept
    };
    by_group.par_iter().flat_map_iter(admitted).collect()
}

/// Applies moves, and records the new groups of nodes in `to`.
fn apply(graph: &Graph, label: &mut [u32], weight: &mut [u64], moves: &[Move], to: &[AtomicU32]) {
    let (came, went): (Vec<_>, Vec<_>) =
        weight.iter().map(|_| (AtomicU64::new(0), AtomicU64::new(0))).unzip();
    each(moves.len(), LEAST, &|k| {
        let m = &moves[k];
        let size = u64::from(graph.size[m.node as usize]);
        came[m.to as usize].fetch_add(size, Relaxed);
        went[label[m.node as usize] as usize].fetch_add(size, Relaxed);
        to[m.node as usize].store(m.to, Relaxed);
    });
    each_chunk(label, LEAST, 1, &|chunk, label| {
        for (label, to) in label.iter_mut().zip(&to[chunk * LEAST..]) {
            let to = to.load(Relaxed);
            *label = if to == NONE { *label } else { to };
        }
    });
    for (weight, (came, went)) in weight.iter_mut().zip(came.into_iter().zip(went)) {
        *weight = *weight + came.into_inner() - went.into_inner();
    }
}

/// Moves nodes from groups above their limit to less loaded neighbouring groups, at the least loss. Returns
/// false if there are no such groups, or no node can move.
fn relieve(graph: &Graph, label: &mut [u32], cap: &[u64], weight: &mut [u64]) -> bool {
    let over = |g: usize| weight[g] > cap[g];
    if !(0..cap.len()).any(over) {
        return false;
    }
    // Rows of a group minus its limit.
    let load = |g: u32| weight[g as usize] as i64 - cap[g as usize] as i64;
    let wish = |list: &mut Links, v: usize| {
        let own = label[v];
        if !over(own as usize) {
            return None;
        }
        links(graph, label, v, list);
        let size = i64::from(graph.size[v]);
        let inside = list.iter().find(|l| l.0 == own).map_or(0, |l| l.1);
        let better = |g: u32| load(g) + size <= 0 || load(g) + 2 * size < load(own);
        let best = list
            .iter()
            .filter(|l| l.0 != own && better(l.0))
            .max_by_key(|l| (l.1, Reverse(load(l.0)), l.0))?;
        Some(Move { node: v as u32, to: best.0, gain: best.1 - inside })
    };
    let mut moves: Vec<Move> =
        (0..graph.len()).into_par_iter().map_init(Vec::new, wish).flatten_iter().collect();
    // Each group releases only its excess.
    moves.par_sort_unstable_by_key(|m| (label[m.node as usize], Reverse(m.gain), m.node));
    let by_group: Vec<&[Move]> =
        moves.chunk_by(|a, b| label[a.node as usize] == label[b.node as usize]).collect();
    let released = |moves: &&[Move]| {
        let mut excess = load(label[moves[0].node as usize]);
        let mut kept = Vec::new();
        for m in moves.iter() {
            if excess <= 0 {
                break;
            }
            excess -= i64::from(graph.size[m.node as usize]);
            kept.push(*m);
        }
        kept
    };
    let mut moves: Vec<Move> = by_group.par_iter().flat_map_iter(released).collect();
    moves.par_sort_unstable_by_key(|m| (m.to, Reverse(m.gain), m.node));
    // A full group accepts nodes only while it stays below the releasing group.
    let mut received = vec![0i64; cap.len()];
    moves.retain(|m| {
        let size = i64::from(graph.size[m.node as usize]);
        let own = label[m.node as usize];
        let after = load(m.to) + received[m.to as usize] + size;
        let take = after <= 0 || after + size < load(own);
        received[m.to as usize] += if take { size } else { 0 };
        take
    });
    if moves.is_empty() {
        return false;
    }
    for m in &moves {
        let size = u64::from(graph.size[m.node as usize]);
        weight[label[m.node as usize] as usize] -= size;
        weight[m.to as usize] += size;
        label[m.node as usize] = m.to;
    }
    true
}

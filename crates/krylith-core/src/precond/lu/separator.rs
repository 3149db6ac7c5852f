//! Vertex separators of one graph: grown regions, and refinement of a separator by moves of single vertices.
//!
//! A move takes a vertex out of the separator to one side, and its neighbours on the other side into the
//! separator. A pass moves each vertex at most once, best first, and keeps the best state on the way
//! (Fiduccia and Mattheyses 1982; for vertex separators Ashcraft and Liu 1997).

use super::graph::{Graph, Random};
use std::collections::BinaryHeap;

/// Largest share of the unknowns on one side of a separator.
pub(super) const BALANCE: f64 = 0.65;

/// The side of a vertex.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    First = 0,
    Second = 1,
    Separator = 2,
}

/// Number of regions grown on the smallest graph.
const TRIALS: usize = 7;
/// Largest number of passes of a refinement.
const PASSES: usize = 3;

/// The state of a refinement.
struct Cut<'g> {
    graph: &'g Graph,
    side: &'g mut [Side],
    /// Unknowns of the sides and of the separator.
    unknowns: [i64; 3],
    /// Unknowns among the neighbours of a separator vertex, on both sides.
    beside: Vec<[i32; 2]>,
    most: i64,
}

/// Returns the best of several separators of a small graph.
pub(super) fn separate(graph: &Graph, random: &mut Random) -> Vec<Side> {
    let n = graph.len();
    let mut best: Option<((i64, i64), Vec<Side>)> = None;
    // A graph that could not be coarsened may be large.
    for _ in 0..if n > 2000 { 2 } else { TRIALS } {
        let mut side = grow(graph, random.below(n.max(1)) as u32);
        let worth = refine(graph, &mut side);
        if best.as_ref().is_none_or(|(least, _)| worth < *least) {
            best = Some((worth, side));
        }
    }
    best.map(|(_, side)| side).unwrap_or_default()
}

/// Grows a region around a vertex to half of the unknowns. Its border is the separator.
fn grow(graph: &Graph, seed: u32) -> Vec<Side> {
    let n = graph.len();
    let mut side = vec![Side::Second; n];
    let mut seen = vec![false; n];
    let mut queue = Vec::with_capacity(n);
    let (half, mut unknowns) = (graph.unknowns() / 2, 0);
    let mut next = 0;
    'growth: for root in std::iter::once(seed).chain(0..n as u32) {
        if std::mem::replace(&mut seen[root as usize], true) {
            continue;
        }
        queue.push(root);
        while let Some(&v) = queue.get(next) {
            next += 1;
            unknowns += u64::from(graph.size[v as usize]);
            if unknowns > half && next > 1 {
                break 'growth;
            }
            side[v as usize] = Side::First;
            for &u in graph.neighbours(v) {
                if !std::mem::replace(&mut seen[u as usize], true) {
                    queue.push(u);
                }
            }
        }
    }
    for &v in &queue[..next.saturating_sub(1).min(n)] {
        if graph.neighbours(v).iter().any(|&u| side[u as usize] == Side::Second) {
            side[v as usize] = Side::Separator;
        }
    }
    side
}

/// Refines a separator; returns its unknowns and the difference of the sides, which are worse if larger. A
/// state out of balance is worse than any in balance.
pub(super) fn refine(graph: &Graph, side: &mut [Side]) -> (i64, i64) {
    let mut unknowns = [0i64; 3];
    side.iter().zip(&graph.size).for_each(|(&s, &size)| unknowns[s as usize] += i64::from(size));
    let total: i64 = unknowns.iter().sum();
    let largest = graph.size.iter().copied().max().unwrap_or(0);
    let most = ((BALANCE * total as f64) as i64).max(total / 2 + i64::from(largest));
    let mut cut = Cut { graph, side, unknowns, beside: vec![[0; 2]; graph.len()], most };
    let mut separator: Vec<u32> =
        (0..graph.len() as u32).filter(|&v| cut.side[v as usize] == Side::Separator).collect();
    separator.iter().for_each(|&v| cut.count(v));
    let mut touched = vec![false; graph.len()];
    for _ in 0..PASSES {
        if !cut.pass(&mut separator, &mut touched) {
            break;
        }
    }
    cut.worth()
}

impl Cut<'_> {
    fn worth(&self) -> (i64, i64) {
        let [first, second, separator] = self.unknowns;
        let over = (first.max(second) - self.most).max(0);
        (separator + if over > 0 { over + self.most } else { 0 }, (first - second).abs())
    }

    /// Counts the unknowns beside a separator vertex.
    fn count(&mut self, v: u32) {
        let mut beside = [0; 2];
        for &u in self.graph.neighbours(v) {
            if let Some(beside) = beside.get_mut(self.side[u as usize] as usize) {
                *beside += self.graph.size[u as usize] as i32;
            }
        }
        self.beside[v as usize] = beside;
    }

    /// Returns how many unknowns the separator loses if `v` moves to a side.
    fn gain(&self, v: u32, to: usize) -> i32 {
        self.graph.size[v as usize] as i32 - self.beside[v as usize][1 - to]
    }

    /// Moves each vertex of the separator at most once. Returns true if the separator became better.
    fn pass(&mut self, separator: &mut Vec<u32>, moved: &mut [bool]) -> bool {
        let before = self.worth();
        let mut heaps: [BinaryHeap<(i32, u32)>; 2] = [0, 1].map(|to| {
            let entries: Vec<(i32, u32)> = separator.iter().map(|&v| (self.gain(v, to), v)).collect();
            entries.into()
        });
        let patience = (2 * separator.len()).clamp(25, 300);
        let (mut best, mut kept) = (before, 0);
        // Moved vertices with their new sides, and for each the vertices that it took into the separator.
        let mut moves: Vec<(u32, usize, usize)> = Vec::new();
        let mut pulled: Vec<u32> = Vec::new();
        while moves.len() < kept + patience {
            let Some((v, to)) = self.choose(&mut heaps, moved) else { break };
            moves.push((v, to, pulled.len()));
            self.apply(v, to, &mut pulled, |cut, u, s| {
                if !moved[u as usize] {
                    heaps[s].push((cut.gain(u, s), u));
                }
            });
            moved[v as usize] = true;
            if self.worth() < best {
                best = self.worth();
                kept = moves.len();
            }
        }
        moves.iter().for_each(|m| moved[m.0 as usize] = false);
        separator.extend_from_slice(&pulled);
        while moves.len() > kept {
            if let Some((v, to, begin)) = moves.pop() {
                self.undo(v, to, &pulled[begin..]);
                pulled.truncate(begin);
            }
        }
        separator.sort_unstable();
        separator.dedup();
        separator.retain(|&v| self.side[v as usize] == Side::Separator);
        best < before
    }

    /// Takes the best move that leaves the sides in balance from the heaps.
    fn choose(&self, heaps: &mut [BinaryHeap<(i32, u32)>; 2], moved: &[bool]) -> Option<(u32, usize)> {
        let mut tops = [None; 2];
        for to in 0..2 {
            while let Some(&(gain, v)) = heaps[to].peek() {
                let valid = self.side[v as usize] == Side::Separator && !moved[v as usize];
                if valid && gain == self.gain(v, to) {
                    let after = self.unknowns[to] + i64::from(self.graph.size[v as usize]);
                    // A side above the limit takes a vertex only if the other is larger still.
                    if after <= self.most || after <= self.unknowns[1 - to] {
                        tops[to] = Some((gain, v));
                    }
                    break;
                }
                heaps[to].pop();
            }
        }
        let lighter = usize::from(self.unknowns[1] < self.unknowns[0]);
        let to = match tops {
            [None, None] => return None,
            [Some(_), None] => 0,
            [None, Some(_)] => 1,
            [Some((a, _)), Some((b, _))] if a == b => lighter,
            [Some((a, _)), Some((b, _))] => usize::from(b > a),
        };
        // The smaller side first, while the sides are out of balance.
        let to = if self.unknowns[1 - lighter] > self.most && tops[lighter].is_some() { lighter } else { to };
        let (_, v) = heaps[to].pop()?;
        Some((v, to))
    }

    /// Moves `v` from the separator to a side, and lists the vertices that enter the separator.
    fn apply(
        &mut self,
        v: u32,
        to: usize,
        pulled: &mut Vec<u32>,
        mut changed: impl FnMut(&Self, u32, usize),
    ) {
        let graph = self.graph;
        let (size, from) = (graph.size[v as usize] as i32, 1 - to);
        self.side[v as usize] = [Side::First, Side::Second][to];
        self.unknowns[2] -= i64::from(size);
        self.unknowns[to] += i64::from(size);
        for &u in graph.neighbours(v) {
            match self.side[u as usize] {
                Side::Separator => {
                    self.beside[u as usize][to] += size;
                    changed(self, u, from);
                }
                s if s as usize == from => {
                    let other = graph.size[u as usize] as i32;
                    self.side[u as usize] = Side::Separator;
                    self.unknowns[from] -= i64::from(other);
                    self.unknowns[2] += i64::from(other);
                    self.count(u);
                    pulled.push(u);
                    changed(self, u, 0);
                    changed(self, u, 1);
                    for &w in graph.neighbours(u) {
                        if self.side[w as usize] == Side::Separator {
                            self.beside[w as usize][from] -= other;
                            changed(self, w, to);
                        }
                    }
                }
                _ => {}
            }
        }
    }

    /// Reverses a move.
    fn undo(&mut self, v: u32, to: usize, pulled: &[u32]) {
        let graph = self.graph;
        let from = 1 - to;
        for &u in pulled.iter().rev() {
            let other = graph.size[u as usize] as i32;
            self.side[u as usize] = [Side::First, Side::Second][from];
            self.unknowns[from] += i64::from(other);
            self.unknowns[2] -= i64::from(other);
            for &w in graph.neighbours(u) {
                self.beside[w as usize][from] += other;
            }
        }
        let size = graph.size[v as usize] as i32;
        self.side[v as usize] = Side::Separator;
        self.unknowns[2] += i64::from(size);
        self.unknowns[to] -= i64::from(size);
        for &u in graph.neighbours(v) {
            self.beside[u as usize][to] -= size;
        }
        self.count(v);
    }
}

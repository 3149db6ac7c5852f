//! Bisection of one small group: a region is grown from each end and refined, and the better result is used.

use super::Graph;

/// Maximum number of refinement passes.
const PASSES: usize = 3;
/// A pass ends after this many moves without a better cut.
const PATIENCE: usize = 16;
/// Larger groups are cut only by distance from one end, because the other steps take time quadratic in the
/// number of nodes.
const LARGE: usize = 2048;

/// The subgraph induced by a group's nodes, in local numbers.
pub(super) struct Local {
    ptr: Vec<u32>,
    col: Vec<u32>,
    weight: Vec<u32>,
    size: Vec<u32>,
}

impl Local {
    /// Builds the subgraph of the nodes `own`, which share one label; `place` are their local numbers.
    pub fn new(graph: &Graph, own: &[u32], label: &[u32], place: &[u32]) -> Self {
        let group = label[own[0] as usize];
        let mut local = Self { ptr: vec![0], col: Vec::new(), weight: Vec::new(), size: Vec::new() };
        for &v in own {
            for (u, w) in graph.edges(v as usize).filter(|&(u, _)| label[u as usize] == group) {
                local.col.push(place[u as usize]);
                local.weight.push(w);
            }
            local.ptr.push(local.col.len() as u32);
            local.size.push(graph.size[v as usize]);
        }
        local
    }

    fn len(&self) -> usize {
        self.size.len()
    }

    fn edges(&self, v: usize) -> impl Iterator<Item = (usize, i64)> + '_ {
        (self.ptr[v] as usize..self.ptr[v + 1] as usize)
            .map(|e| (self.col[e] as usize, i64::from(self.weight[e])))
    }

    /// Orders nodes by distance from `start`, then those of other components; each level is in ascending
    /// order.
    fn breadth_first(&self, start: usize) -> Vec<usize> {
        let mut seen = vec![false; self.len()];
        let mut order = Vec::with_capacity(self.len());
        let mut begin = 0;
        for root in std::iter::once(start).chain(0..self.len()) {
            if std::mem::replace(&mut seen[root], true) {
                continue;
            }
            order.push(root);
            while begin < order.len() {
                let end = order.len();
                for k in begin..end {
                    for (u, _) in self.edges(order[k]) {
                        if !std::mem::replace(&mut seen[u], true) {
                            order.push(u);
                        }
                    }
                }
                order[end..].sort_unstable(); // neighbours may come in any order
                begin = end;
            }
        }
        order
    }
}

/// A bisection and its quality.
struct Halves {
    /// True for nodes of the second side.
    side: Vec<bool>,
    weight: [u64; 2],
    cut: i64,
}

impl Halves {
    fn new(local: &Local, side: Vec<bool>) -> Self {
        let mut weight = [0; 2];
        let mut cut = 0;
        for (v, &s) in side.iter().enumerate() {
            weight[usize::from(s)] += u64::from(local.size[v]);
            cut += local.edges(v).filter(|&(u, _)| side[u] != s).map(|(_, w)| w).sum::<i64>();
        }
        Self { side, weight, cut: cut / 2 }
    }

    /// Returns the rows above the limits of the sides, then the weight of cut edges: less is better.
    fn worth(&self, caps: [u64; 2]) -> (u64, i64) {
        (excess(self.weight, caps), self.cut)
    }
}

fn excess(weight: [u64; 2], caps: [u64; 2]) -> u64 {
    weight[0].saturating_sub(caps[0]) + weight[1].saturating_sub(caps[1])
}

/// Bisects a group that is to become `parts` parts, half of them (rounded down) on the first side. Returns
/// true for nodes of the second side. Sides stay within `caps` rows if possible.
pub(super) fn bisect(local: &Local, caps: [u64; 2], parts: usize) -> Vec<bool> {
    let total: u64 = local.size.iter().map(|&s| u64::from(s)).sum();
    let goal = total * (parts / 2) as u64 / parts as u64;
    let one = *local.breadth_first(0).last().expect("a group has nodes");
    let order = local.breadth_first(one);
    if local.len() > LARGE {
        let mut side = vec![true; local.len()];
        let mut weight = 0;
        for &v in &order {
            if weight >= goal {
                break;
            }
            weight += u64::from(local.size[v]);
            side[v] = false;
        }
        return side;
    }
    let other = order[order.len() - 1];
    let halves = [one, other].map(|seed| {
        let mut halves = Halves::new(local, grow(local, seed, goal));
        refine(local, &mut halves, caps);
        halves
    });
    let [first, second] = halves;
    if second.worth(caps) < first.worth(caps) { second.side } else { first.side }
}

/// Grows a region of about `goal` rows around a node; the next node is the one that adds least to the cut.
fn grow(local: &Local, seed: usize, goal: u64) -> Vec<bool> {
    let n = local.len();
    let mut side = vec![true; n];
    // Weight of edges into the region minus those out of it.
    let mut gain: Vec<i64> = (0..n).map(|v| -local.edges(v).map(|(_, w)| w).sum::<i64>()).collect();
    let mut touched = vec![false; n];
    touched[seed] = true;
    let mut weight = 0;
    loop {
        let next = (0..n).filter(|&v| side[v]).max_by_key(|&v| (touched[v], gain[v], std::cmp::Reverse(v)));
        let Some(v) = next else { break };
        let size = u64::from(local.size[v]);
        // Stop if the region is nearer to the goal without this node.
        if weight + size / 2 > goal || weight >= goal {
            break;
        }
        weight += size;
        side[v] = false;
        for (u, w) in local.edges(v) {
            gain[u] += 2 * w;
            touched[u] = true;
        }
    }
    side
}

/// Refines by Fiduccia and Mattheyses (1982): each pass moves every node at most once, best first, and keeps
/// the best intermediate state.
fn refine(local: &Local, halves: &mut Halves, caps: [u64; 2]) {
    let n = local.len();
    for _ in 0..PASSES {
        let before = halves.worth(caps);
        let mut gain: Vec<i64> = (0..n)
            .map(|v| local.edges(v).map(|(u, w)| if halves.side[u] == halves.side[v] { -w } else { w }).sum())
            .collect();
        let mut locked = vec![false; n];
        let (mut best, mut moves, mut kept) = (before, Vec::new(), 0);
        while moves.len() < kept + PATIENCE {
            let may = |v: usize| {
                let (from, to) = (usize::from(halves.side[v]), usize::from(!halves.side[v]));
                halves.weight[from] > caps[from] || halves.weight[to] + u64::from(local.size[v]) <= caps[to]
            };
            let next = (0..n)
                .filter(|&v| !locked[v] && may(v))
                .max_by_key(|&v| (gain[v], halves.weight[usize::from(halves.side[v])], std::cmp::Reverse(v)));
            let Some(v) = next else { break };
            flip(local, halves, &mut gain, v);
            locked[v] = true;
            moves.push(v);
            if halves.worth(caps) < best {
                best = halves.worth(caps);
                kept = moves.len();
            }
        }
        for &v in moves[kept..].iter().rev() {
            flip(local, halves, &mut gain, v);
        }
        if best >= before {
            return;
        }
    }
}

/// Moves a node to the other side.
fn flip(local: &Local, halves: &mut Halves, gain: &mut [i64], v: usize) {
    let size = u64::from(local.size[v]);
    let side = halves.side[v];
    halves.weight[usize::from(side)] -= size;
    halves.weight[usize::from(!side)] += size;
    halves.cut -= gain[v];
    halves.side[v] = !side;
    gain[v] = -gain[v];
    for (u, w) in local.edges(v) {
        gain[u] += if halves.side[u] == side { 2 * w } else { -2 * w };
    }
}

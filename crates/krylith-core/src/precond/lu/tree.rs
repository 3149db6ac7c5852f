//! The tree of fronts: elimination tree, column counts, supernodes and the rows of each front.
//!
//! The elimination tree is that of Liu (1986), the counts are those of Gilbert, Ng and Peyton (1994). Columns
//! with the same rows below them form a supernode. A supernode is merged with its parent if that adds few
//! zeros ([`worth_merging`]), because small fronts spend their time on indices. Children are ordered so that
//! the stack of contributions stays small (Liu 1986).

use super::order::Pattern;

/// No parent.
pub(super) const NONE: u32 = u32::MAX;

/// The fronts of a factorisation, children before parents. Front `s` eliminates the positions
/// `start[s]..start[s + 1]`.
pub(super) struct Tree {
    /// The unknown at each position of the elimination.
    pub order: Vec<u32>,
    /// The position of each unknown.
    pub place: Vec<u32>,
    pub start: Vec<u32>,
    pub parent: Vec<u32>,
    row_ptr: Vec<usize>,
    rows: Vec<u32>,
}

/// Predicted cost of factors.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct Cost {
    /// Entries of L.
    pub entries: f64,
    /// Multiplications and additions of L Lᵀ; L U takes twice as many.
    pub operations: f64,
}

/// An elimination order with its elimination tree and the entries of each column of L. Each column comes
/// before its parent, and the columns of a subtree are contiguous.
pub(super) struct Columns {
    order: Vec<u32>,
    parent: Vec<u32>,
    count: Vec<u32>,
}

impl Columns {
    /// Computes the elimination tree of an order, and sorts the order along the tree.
    pub fn new(pattern: &Pattern, order: Vec<u32>) -> Self {
        let n = order.len();
        let place = inverse(&order);
        let (mut parent, mut ancestor) = (vec![NONE; n], vec![NONE; n]);
        for k in 0..n as u32 {
            for &u in pattern.row(order[k as usize]) {
                let mut i = place[u as usize];
                while i < k {
                    let next = std::mem::replace(&mut ancestor[i as usize], k);
                    if next == NONE {
                        parent[i as usize] = k;
                        break;
                    }
                    i = next;
                }
            }
        }
        let post = postorder(&parent);
        let new = inverse(&post);
        let order = post.iter().map(|&k| order[k as usize]).collect();
        let of = |k: u32| if k == NONE { NONE } else { new[k as usize] };
        let parent = post.iter().map(|&k| of(parent[k as usize])).collect();
        let mut columns = Self { order, parent, count: Vec::new() };
        columns.count = columns.counts(pattern);
        columns
    }

    /// Returns the entries of each column of L.
    fn counts(&self, pattern: &Pattern) -> Vec<u32> {
        let n = self.order.len();
        let place = inverse(&self.order);
        // The first column of each subtree.
        let mut first: Vec<u32> = (0..n as u32).collect();
        for j in 0..n {
            let p = self.parent[j] as usize;
            if self.parent[j] != NONE {
                first[p] = first[p].min(first[j]);
            }
        }
        let mut delta: Vec<i64> = (0..n).map(|j| i64::from(first[j] as usize == j)).collect();
        let (mut max_first, mut previous) = (vec![NONE; n], vec![NONE; n]);
        let mut ancestor: Vec<u32> = (0..n as u32).collect();
        for j in 0..n as u32 {
            let p = self.parent[j as usize];
            if p != NONE {
                delta[p as usize] -= 1;
            }
            for &u in pattern.row(self.order[j as usize]) {
                let i = place[u as usize];
                let own = first[j as usize];
                if i <= j || (max_first[i as usize] != NONE && own <= max_first[i as usize]) {
                    continue; // j is no leaf of the subtree of row i
                }
                max_first[i as usize] = own;
                delta[j as usize] += 1;
                let last = std::mem::replace(&mut previous[i as usize], j);
                if last != NONE {
                    let mut q = last;
                    while q != ancestor[q as usize] {
                        q = ancestor[q as usize];
                    }
                    let mut s = last;
                    while s != q {
                        s = std::mem::replace(&mut ancestor[s as usize], q);
                    }
                    delta[q as usize] -= 1;
                }
            }
            if p != NONE {
                ancestor[j as usize] = p;
            }
        }
        for j in 0..n {
            if self.parent[j] != NONE {
                delta[self.parent[j] as usize] += delta[j];
            }
        }
        delta.into_iter().map(|d| d as u32).collect()
    }

    pub fn cost(&self) -> Cost {
        let mut cost = Cost::default();
        for &c in &self.count {
            cost.entries += f64::from(c);
            cost.operations += f64::from(c) * f64::from(c);
        }
        cost
    }

    /// Returns the fronts.
    pub fn tree(self, pattern: &Pattern) -> Tree {
        let mut nodes = Nodes::new(&self);
        nodes.merge();
        nodes.tree(&self.order, pattern)
    }
}

/// Returns the inverse of a permutation.
fn inverse(order: &[u32]) -> Vec<u32> {
    let mut place = vec![0; order.len()];
    order.iter().enumerate().for_each(|(k, &u)| place[u as usize] = k as u32);
    place
}

/// Returns the nodes of a forest so that subtrees are contiguous and children come before parents.
fn postorder(parent: &[u32]) -> Vec<u32> {
    let n = parent.len();
    let (mut head, mut next) = (vec![NONE; n], vec![NONE; n]);
    for j in (0..n).rev().filter(|&j| parent[j] != NONE) {
        let head = &mut head[parent[j] as usize];
        next[j] = std::mem::replace(head, j as u32);
    }
    let (mut order, mut stack) = (Vec::with_capacity(n), Vec::new());
    for root in (0..n as u32).filter(|&j| parent[j as usize] == NONE) {
        stack.push(root);
        while let Some(&j) = stack.last() {
            let child = head[j as usize];
            if child == NONE {
                order.push(j);
                stack.pop();
            } else {
                head[j as usize] = next[child as usize];
                stack.push(child);
            }
        }
    }
    order
}

/// Supernodes while they are merged.
struct Nodes {
    parent: Vec<u32>,
    /// Columns that each supernode eliminates, and the order of its front.
    pivots: Vec<u32>,
    front: Vec<u32>,
    /// Zeros that were added to L by merging.
    zeros: Vec<f64>,
    /// First column of each original supernode.
    begin: Vec<u32>,
    /// Original supernodes of a merged one, as a list.
    head: Vec<u32>,
    tail: Vec<u32>,
    next: Vec<u32>,
    gone: Vec<bool>,
}

/// Returns the numbers that the factors of a front store.
pub(super) fn numbers(pivots: usize, order: usize, symmetric: bool) -> usize {
    let below = pivots * (order - pivots);
    if symmetric { pivots * (pivots + 1) / 2 + below } else { pivots * pivots + 2 * below }
}

/// Returns the entries of the columns of L in a front.
fn entries(pivots: u32, front: u32) -> f64 {
    let (p, f) = (f64::from(pivots), f64::from(front));
    p * f - p * (p - 1.0) / 2.0
}

/// Returns true if supernodes of `columns` together are worth merging at this share of zeros (Chen, Davis,
/// Hager and Rajamanickam 2008).
fn worth_merging(columns: u32, zeros: f64, entries: f64) -> bool {
    zeros <= 0.0
        || match columns {
            0..=4 => true,
            5..=16 => zeros < 0.4 * entries,
            17..=48 => zeros < 0.1 * entries,
            _ => zeros < 0.03 * entries,
        }
}

impl Nodes {
    /// Finds columns with the same rows below them.
    fn new(columns: &Columns) -> Self {
        let n = columns.order.len();
        let (mut begin, mut node) = (Vec::new(), vec![0u32; n]);
        for j in 0..n {
            let joins =
                j > 0 && columns.parent[j - 1] == j as u32 && columns.count[j - 1] == columns.count[j] + 1;
            if !joins {
                begin.push(j as u32);
            }
            node[j] = begin.len() as u32 - 1;
        }
        let count = begin.len();
        let end = |s: usize| begin.get(s + 1).copied().unwrap_or(n as u32);
        let up = |s: usize| match columns.parent[end(s) as usize - 1] {
            NONE => NONE,
            p => node[p as usize],
        };
        let own: Vec<u32> = (0..count as u32).collect();
        Self {
            parent: (0..count).map(up).collect(),
            pivots: (0..count).map(|s| end(s) - begin[s]).collect(),
            front: begin.iter().map(|&j| columns.count[j as usize]).collect(),
            zeros: vec![0.0; count],
            head: own.clone(),
            tail: own,
            next: vec![NONE; count],
            gone: vec![false; count],
            begin,
        }
    }

    /// Merges supernodes with their parents.
    fn merge(&mut self) {
        let count = self.parent.len();
        let mut children: Vec<Vec<u32>> = vec![Vec::new(); count];
        for p in 0..count {
            let mut own = std::mem::take(&mut children[p]);
            // The child with the largest front adds the fewest zeros.
            own.sort_by_key(|&c| (std::cmp::Reverse(self.front[c as usize]), c));
            let mut kept = Vec::with_capacity(own.len());
            for c in own {
                let c = c as usize;
                let (pivots, front) = (self.pivots[c] + self.pivots[p], self.pivots[c] + self.front[p]);
                let all = entries(pivots, front);
                let before = entries(self.pivots[c], self.front[c]) + entries(self.pivots[p], self.front[p]);
                let zeros = self.zeros[c] + self.zeros[p] + all - before;
                if all <= before || worth_merging(pivots, zeros, all) {
                    (self.pivots[p], self.front[p], self.zeros[p]) = (pivots, front, zeros);
                    self.next[self.tail[c] as usize] = self.head[p];
                    self.head[p] = self.head[c];
                    self.gone[c] = true;
                    kept.append(&mut children[c]);
                } else {
                    kept.push(c as u32);
                }
            }
            for &c in &kept {
                self.parent[c as usize] = p as u32;
            }
            children[p] = kept;
            if self.parent[p] != NONE {
                children[self.parent[p] as usize].push(p as u32);
            }
        }
    }

    /// Numbers the fronts and finds their rows.
    fn tree(self, order: &[u32], pattern: &Pattern) -> Tree {
        let (count, n) = (self.parent.len(), order.len());
        let mut children: Vec<Vec<u32>> = vec![Vec::new(); count];
        let mut roots = Vec::new();
        // Largest memory of each subtree while its fronts are factorised, in numbers.
        let mut peak = vec![0.0f64; count];
        let square = |m: u32| f64::from(m) * f64::from(m);
        let left = |c: u32| square(self.front[c as usize] - self.pivots[c as usize]);
        for s in (0..count).filter(|&s| !self.gone[s]) {
            let own = &mut children[s];
            own.sort_by(|&a, &b| {
                let rest = |c: u32| peak[c as usize] - left(c);
                rest(b).total_cmp(&rest(a)).then(a.cmp(&b))
            });
            let (mut most, mut held) = (0.0f64, 0.0);
            for &c in own.iter() {
                most = most.max(held + peak[c as usize]);
                held += left(c);
            }
            peak[s] = most.max(held + square(self.front[s]));
            match self.parent[s] {
                NONE => roots.push(s as u32),
                p => children[p as usize].push(s as u32),
            }
        }
        let mut tree = Tree {
            order: Vec::with_capacity(n),
            place: Vec::new(),
            start: vec![0],
            parent: Vec::new(),
            row_ptr: vec![0],
            rows: Vec::new(),
        };
        let mut number = vec![NONE; count];
        let (mut stack, mut visited) = (Vec::new(), vec![0usize; count]);
        let mut sequence = Vec::new();
        for root in roots {
            stack.push(root);
            while let Some(&s) = stack.last() {
                match children[s as usize].get(visited[s as usize]) {
                    Some(&c) => {
                        visited[s as usize] += 1;
                        stack.push(c);
                    }
                    None => {
                        stack.pop();
                        number[s as usize] = sequence.len() as u32;
                        sequence.push(s);
                    }
                }
            }
        }
        for &s in &sequence {
            let mut part = self.head[s as usize];
            loop {
                let end = self.begin.get(part as usize + 1).copied().unwrap_or(n as u32);
                tree.order.extend_from_slice(&order[self.begin[part as usize] as usize..end as usize]);
                if part == self.tail[s as usize] {
                    break;
                }
                part = self.next[part as usize];
            }
            tree.start.push(tree.order.len() as u32);
            let up = self.parent[s as usize];
            tree.parent.push(if up == NONE { NONE } else { number[up as usize] });
        }
        tree.place = inverse(&tree.order);
        let all = sequence.iter().map(|&s| (self.front[s as usize] - self.pivots[s as usize]) as usize).sum();
        tree.rows.reserve_exact(all);
        let mut seen = vec![NONE; n];
        for (k, &s) in sequence.iter().enumerate() {
            let (begin, end) = (tree.start[k], tree.start[k + 1]);
            let from = tree.rows.len();
            for j in begin..end {
                for &u in pattern.row(tree.order[j as usize]) {
                    let i = tree.place[u as usize];
                    if i >= end && seen[i as usize] != k as u32 {
                        seen[i as usize] = k as u32;
                        tree.rows.push(i);
                    }
                }
            }
            for &c in &children[s as usize] {
                let c = number[c as usize] as usize;
                for e in tree.row_ptr[c]..tree.row_ptr[c + 1] {
                    let i = tree.rows[e];
                    if i >= end && seen[i as usize] != k as u32 {
                        seen[i as usize] = k as u32;
                        tree.rows.push(i);
                    }
                }
            }
            tree.rows[from..].sort_unstable();
            tree.row_ptr.push(tree.rows.len());
        }
        tree
    }
}

impl Tree {
    pub fn fronts(&self) -> usize {
        self.parent.len()
    }

    /// Returns the positions that a front eliminates.
    pub fn pivots(&self, s: usize) -> std::ops::Range<u32> {
        self.start[s]..self.start[s + 1]
    }

    /// Returns the positions of a front that it does not eliminate, ascending.
    pub fn rows(&self, s: usize) -> &[u32] {
        &self.rows[self.row_ptr[s]..self.row_ptr[s + 1]]
    }

    /// Returns the pivots and the order of a front.
    pub fn size(&self, s: usize) -> (usize, usize) {
        let pivots = self.pivots(s).len();
        (pivots, pivots + self.rows(s).len())
    }

    /// Returns the numbers that the factors store, and the operations of L Lᵀ.
    pub fn cost(&self, symmetric: bool) -> Cost {
        let mut cost = Cost::default();
        for s in 0..self.fronts() {
            let (p, f) = self.size(s);
            cost.entries += numbers(p, f, symmetric) as f64;
            let (p, f) = (p as f64, f as f64);
            cost.operations += p * f * f - p * p * f + p * p * p / 3.0;
        }
        cost
    }

    /// Returns the front that eliminates each position.
    pub fn front_of(&self) -> Vec<u32> {
        let mut front = Vec::with_capacity(self.order.len());
        for s in 0..self.fronts() {
            front.resize(self.start[s + 1] as usize, s as u32);
        }
        front
    }
}

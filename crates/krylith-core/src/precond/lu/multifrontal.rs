//! Multifrontal factors (Duff and Reid 1983): the fronts of a tree, each assembled from entries of the matrix
//! and the contributions of its children.
//!
//! Columns that find no pivot in their front are delayed: they join the parent front. Fronts of different
//! subtrees are tasks, and the columns of large fronts are updated in chunks, also as tasks. Contributions
//! are added in the order of the children, so the factors are the same on any number of threads.
//!
//! Memory: the factors, one front for each thread, and the contributions that wait for their parent.

use super::front::{self, Pivoting, Scratch};
use super::indefinite;
use super::plan::Plan;
use super::tree::NONE;
use crate::interrupt::Lookout;
use crate::{Error, Result};
use krylith_base::alloc::reserve;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};

/// The form of the factors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// L Lᵀ.
    Cholesky,
    /// L B Lᵀ, where B has diagonal blocks of order 1 and 2.
    Indefinite,
    /// L U.
    Lu,
}

/// Subtrees with at most this share of the operations are one task.
const SUBTREE: f64 = 1.0 / 64.0;
/// Subtrees of at most this many operations are one task.
const SMALL: f64 = 2e6;
/// Factors may take this many times the predicted memory, for delayed pivots: those of a symmetric matrix,
/// and L U with rows matched and in place. L U is slower than symmetric factors of several times the memory.
/// In place it mostly takes at most 1.2 times the predicted memory.
const DELAYED: [f64; 3] = [5.0, 2.5, 1.6];
/// Pivot instead of zero, relative to the largest entry.
const GIVEN: f64 = 1e-8;
/// Pivots of at most this size, relative to the largest entry, count as zero.
const TINY: f64 = 1e-14;
/// Pivots of at most this size, relative to the largest entry, may be rounding errors of zero.
const DOUBTFUL: f64 = 1e-10;

/// The factors of one front.
pub(super) struct Node {
    pub order: u32,
    pub pivots: u32,
    /// The rows of pivots, then the rows of L below them, both by columns. Of L Lᵀ and L B Lᵀ, the first part
    /// is the lower triangle of L, with the diagonal of B. Of L U it is a square, and the rows of U to the
    /// right of it follow at the end.
    pub values: Vec<f64>,
    /// Entries of B below the diagonal; empty if all are zero.
    pub off: Vec<f64>,
    /// Positions of rows and columns, unless they are those of the tree.
    pub lists: Option<Box<[Vec<u32>; 2]>>,
}

/// A pivot of L B Lᵀ.
struct Pivot {
    /// Its position in the order of elimination.
    place: u32,
    /// Where its front has the diagonal entry of B and the rest of this column of L.
    at: usize,
    end: usize,
    kind: Order,
}

/// The order of a pivot.
#[derive(PartialEq)]
enum Order {
    One,
    /// The first of two positions, with the entry of B beside the diagonal, and where the other diagonal
    /// entry is.
    Two {
        off: f64,
        second: usize,
    },
    /// The second of two positions.
    Second,
}

/// Factors of a matrix.
pub(super) struct Multifrontal {
    pub plan: Box<Plan>,
    pub kind: Kind,
    pub nodes: Vec<Node>,
    /// Positions of rows that found no pivot anywhere, and got one.
    given: Vec<u32>,
}

/// What a front leaves to its parent.
struct Contribution {
    /// Positions of rows and of columns that were not eliminated.
    delayed: [Vec<u32>; 2],
    /// All columns of a matrix, or the lower triangle of a symmetric one, column by column.
    values: Vec<f64>,
}

/// Workspace of a thread.
#[derive(Default)]
struct Workspace {
    front: Vec<f64>,
    /// Local number of each position.
    at: [Vec<u32>; 2],
    lists: [Vec<u32>; 2],
    scratch: Scratch,
    off: Vec<f64>,
    local: [Vec<u32>; 2],
    given: Vec<u32>,
}

/// The work on all fronts.
struct Run<'p> {
    plan: &'p Plan,
    kind: Kind,
    values: &'p [f64],
    /// Largest entry after scaling.
    size: f64,
    contributions: Vec<Mutex<Option<Contribution>>>,
    nodes: Vec<OnceLock<Node>>,
    spaces: Mutex<Vec<Workspace>>,
    /// Numbers in factors so far, and the most that there may be.
    numbers: AtomicUsize,
    most: usize,
    /// The first failure.
    failed: OnceLock<Result<(), Error>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

impl Multifrontal {
    /// Factorises the values of the matrix that the plan was made for. Returns the plan if the matrix has no
    /// factors of this kind within the predicted memory.
    ///
    /// # Errors
    /// Out of memory; the limits of the caller's work are reached.
    pub fn new(plan: Box<Plan>, kind: Kind, values: &[f64]) -> Result<std::result::Result<Self, Box<Plan>>> {
        let fronts = plan.tree.fronts();
        let predicted = plan.tree.cost(kind != Kind::Lu).entries;
        let delays = match kind {
            Kind::Lu if plan.is_matched() => 1,
            Kind::Lu => 2,
            _ => 0,
        };
        let run = Run {
            plan: &plan,
            kind,
            values,
            size: plan.largest(values),
            contributions: (0..fronts).map(|_| Mutex::new(None)).collect(),
            nodes: (0..fronts).map(|_| OnceLock::new()).collect(),
            spaces: Mutex::default(),
            numbers: AtomicUsize::new(0),
            most: (DELAYED[delays] * predicted) as usize + (1 << 20),
            failed: OnceLock::new(),
        };
        let lookout = Lookout::here();
        if rayon::current_thread_index().is_some() && rayon::current_num_threads() > 1 {
            run.on_threads(&lookout);
        } else {
            run.range(0..fronts, &lookout);
        }
        lookout.finish()?;
        let Run { nodes, spaces, failed, .. } = run;
        match failed.into_inner() {
            Some(Err(e)) => return Err(e),
            Some(Ok(())) => return Ok(Err(plan)),
            None => {}
        }
        let spaces = spaces.into_inner().unwrap_or_else(|e| e.into_inner());
        let mut given: Vec<u32> = spaces.iter().flat_map(|s| s.given.iter().copied()).collect();
        given.sort_unstable();
        let nodes: Vec<Node> = nodes.into_iter().filter_map(OnceLock::into_inner).collect();
        if nodes.len() != fronts {
            return Err(Error::Internal("lu: a front was left out".into()));
        }
        Ok(Ok(Self { plan, kind, nodes, given }))
    }

    /// Returns the numbers in the factors.
    pub fn numbers(&self) -> usize {
        self.nodes.iter().map(|n| n.values.len() + n.off.len()).sum()
    }

    /// Returns the rows of the matrix that found no pivot anywhere, and got one.
    pub fn given_rows(&self) -> Vec<usize> {
        self.rows_at(self.given.clone())
    }

    /// Returns these rows, and those of the last fronts of L B Lᵀ whose pivots may be rounding errors of
    /// zero.
    pub fn doubtful_rows(&self, values: &[f64]) -> Vec<usize> {
        let least = DOUBTFUL * self.plan.largest(values);
        let mut found = self.given.clone();
        self.last_pivots(|_, node, pivot| {
            let d = node.values[pivot.at];
            let is_small = match pivot.kind {
                Order::One => d.abs() <= least,
                Order::Two { off, second } => {
                    let e = node.values[second];
                    (d * e - off * off).abs() <= least * d.abs().max(e.abs()).max(off.abs())
                }
                Order::Second => false,
            };
            found.extend(is_small.then_some(pivot.place));
        });
        self.rows_at(found)
    }

    /// Turns factors L B Lᵀ into those of the matrix without these [doubtful](Self::doubtful_rows) rows, in
    /// which a solve gives 0; `None` if one is part of a pivot of order 2. Their columns had only rounding
    /// errors when they were eliminated, so they have changed later pivots by no more.
    pub fn without(mut self, rows: &[usize]) -> Option<Self> {
        let places: Vec<u32> = rows.iter().map(|&i| self.plan.row_place[i]).collect();
        let mut found = Vec::new();
        self.last_pivots(|s, _, pivot| {
            if pivot.kind == Order::One && places.contains(&pivot.place) {
                found.push((s, pivot.at..pivot.end));
            }
        });
        if found.len() != rows.len() {
            return None;
        }
        for (s, column) in found {
            let column = &mut self.nodes[s].values[column];
            column.fill(0.0);
            column[0] = f64::INFINITY;
        }
        self.given.clear();
        Some(self)
    }

    /// Visits the pivots of the fronts without a parent, in the order of their elimination.
    fn last_pivots(&self, mut visit: impl FnMut(usize, &Node, Pivot)) {
        let tree = &self.plan.tree;
        for (s, node) in self.nodes.iter().enumerate().filter(|(s, _)| tree.parent[*s] == NONE) {
            let (pivots, own) = (node.pivots as usize, tree.pivots(s));
            let off = |k: usize| node.off.get(k).copied().unwrap_or(0.0);
            let mut at = 0;
            for k in 0..pivots {
                let next = at + pivots - k;
                let place = node.lists.as_ref().map_or(own.start + k as u32, |lists| lists[0][k]);
                let kind = match off(k) {
                    0.0 if k > 0 && off(k - 1) != 0.0 => Order::Second,
                    0.0 => Order::One,
                    off => Order::Two { off, second: next },
                };
                visit(s, node, Pivot { place, at, end: next, kind });
                at = next;
            }
        }
    }

    /// Returns the rows of the matrix at these positions, ascending and each once.
    fn rows_at(&self, at: Vec<u32>) -> Vec<usize> {
        let mut row = vec![0; if at.is_empty() { 0 } else { self.plan.row_place.len() }];
        if row.is_empty() {
            return row;
        }
        self.plan.row_place.iter().enumerate().for_each(|(i, &at)| row[at as usize] = i);
        let mut rows: Vec<usize> = at.iter().map(|&at| row[at as usize]).collect();
        rows.sort_unstable();
        rows.dedup();
        rows
    }

    /// Returns how many numbers a solve reads.
    pub fn moved(&self) -> usize {
        self.numbers() * if self.kind == Kind::Lu { 1 } else { 2 }
    }
}

impl Run<'_> {
    /// Factorises consecutive fronts.
    fn range(&self, fronts: std::ops::Range<usize>, lookout: &Lookout) {
        let mut space = locked(&self.spaces).pop().unwrap_or_default();
        for s in fronts {
            if self.failed.get().is_some() || lookout.ends() {
                break;
            }
            match self.front(s, &mut space) {
                Ok(Some((node, rest))) => {
                    _ = self.nodes[s].set(node);
                    *locked(&self.contributions[s]) = rest;
                }
                Ok(None) => _ = self.failed.set(Ok(())),
                Err(e) => _ = self.failed.set(Err(e)),
            }
        }
        locked(&self.spaces).push(space);
    }

    /// Factorises all fronts on the threads of this pool.
    fn on_threads(&self, lookout: &Lookout) {
        let tree = &self.plan.tree;
        let fronts = tree.fronts();
        let mut work: Vec<f64> = (0..fronts)
            .map(|s| {
                let (p, f) = tree.size(s);
                p as f64 * f as f64 * f as f64
            })
            .collect();
        for s in 0..fronts {
            if tree.parent[s] != NONE {
                work[tree.parent[s] as usize] += work[s];
            }
        }
        let all: f64 = (0..fronts).filter(|&s| tree.parent[s] == NONE).map(|s| work[s]).sum();
        let small = (SUBTREE * all).max(SMALL);
        // Tasks: whole subtrees, and single fronts above them, which wait for the tasks of their children.
        let mut first: Vec<u32> = (0..fronts as u32).collect();
        let mut waits = vec![0u32; fronts];
        let mut leaves = Vec::new();
        for s in 0..fronts {
            let up = tree.parent[s];
            if up != NONE {
                first[up as usize] = first[up as usize].min(first[s]);
            }
            let is_small = work[s] <= small;
            let begins = is_small && (up == NONE || work[up as usize] > small);
            if begins {
                leaves.push(s);
            }
            if (begins || !is_small) && up != NONE {
                waits[up as usize] += 1;
            }
            if !is_small && first[s] == s as u32 {
                leaves.push(s); // without children
            }
        }
        let waits: Vec<AtomicU32> = waits.into_iter().map(AtomicU32::new).collect();
        rayon::scope(|scope| {
            for &leaf in leaves.iter().rev() {
                let (waits, first, work) = (&waits, &first, &work);
                scope.spawn(move |_| {
                    let begin = if work[leaf] <= small { first[leaf] as usize } else { leaf };
                    self.range(begin..leaf + 1, lookout);
                    let mut up = tree.parent[leaf];
                    while up != NONE && waits[up as usize].fetch_sub(1, Ordering::AcqRel) == 1 {
                        self.range(up as usize..up as usize + 1, lookout);
                        up = tree.parent[up as usize];
                    }
                });
            }
        });
    }

    /// Assembles and factorises one front; `None` if it has no factors of this kind.
    fn front(&self, s: usize, space: &mut Workspace) -> Result<Option<(Node, Option<Contribution>)>> {
        let (tree, symmetric) = (&self.plan.tree, self.kind != Kind::Lu);
        let children: Vec<(usize, Contribution)> = self
            .plan
            .children(s)
            .filter_map(|c| locked(&self.contributions[c]).take().map(|rest| (c, rest)))
            .collect();
        let rows = tree.rows(s);
        let own = tree.pivots(s);
        let n = tree.order.len();
        for (side, list) in space.lists.iter_mut().enumerate() {
            list.clear();
            list.extend(own.clone());
            children.iter().for_each(|(_, rest)| list.extend_from_slice(&rest.delayed[side]));
            list.extend_from_slice(rows);
            let at = &mut space.at[side];
            at.resize(n, 0);
            list.iter().enumerate().for_each(|(k, &i)| at[i as usize] = k as u32);
        }
        let order = space.lists[0].len();
        let pivots = order - rows.len();
        let delayed = pivots > own.len();
        clear(&mut space.front, order, symmetric)?;
        for entry in self.plan.entries_of(s) {
            let value = self.plan.value(entry, self.values);
            let (i, j) = (space.at[0][entry.row as usize], space.at[1][entry.column as usize]);
            space.front[j as usize * order + i as usize] += value;
        }
        for (c, rest) in children {
            extend_add(rest, tree.rows(c), space, order, symmetric);
        }
        let last = (tree.parent[s] == NONE).then_some(GIVEN * self.size);
        let rule = Pivoting { tiny: TINY * self.size, last };
        let a = &mut space.front[..order * order];
        let [row_list, column_list] = &mut space.lists;
        let done = match self.kind {
            Kind::Cholesky => {
                if !front::cholesky(a, order, pivots, &mut space.scratch.wide) {
                    return Ok(None);
                }
                pivots
            }
            Kind::Lu => {
                let lists = [&mut row_list[..], &mut column_list[..]];
                front::lu(a, order, pivots, lists, &rule, &mut space.scratch, &mut space.given)
            }
            Kind::Indefinite => {
                let (scratch, given, off) = (&mut space.scratch, &mut space.given, &mut space.off);
                let done = indefinite::factors(a, order, pivots, row_list, &rule, scratch, given, off);
                column_list.copy_from_slice(row_list);
                done
            }
        };
        let mut values = Vec::new();
        let rest = order - done;
        let count = super::tree::numbers(done, order, symmetric);
        if self.numbers.fetch_add(count, Ordering::Relaxed) + count > self.most {
            return Ok(None);
        }
        reserved(&mut values, count)?;
        for (k, column) in a[..order * done].chunks_exact(order).enumerate() {
            values.extend_from_slice(&column[if symmetric { k } else { 0 }..done]);
        }
        if rest > 0 {
            a[..order * done]
                .chunks_exact(order)
                .for_each(|column| values.extend_from_slice(&column[done..]));
        }
        if !symmetric {
            // The rows of U, in blocks that stay in the cache.
            values.resize(count, 0.0);
            let u = &mut values[order * done..];
            for block in (0..rest).step_by(16) {
                let to = (block + 16).min(rest);
                for k in 0..done {
                    for j in block..to {
                        u[k * rest + j] = a[(done + j) * order + k];
                    }
                }
            }
        }
        let mut off = Vec::new();
        if self.kind == Kind::Indefinite && space.off.iter().any(|v| *v != 0.0) {
            off.extend_from_slice(&space.off[..done]);
        }
        let in_order = |list: &[u32]| list[..pivots].iter().copied().eq(own.clone());
        let lists = (delayed || !in_order(row_list) || !in_order(column_list))
            .then(|| Box::new([row_list.clone(), if symmetric { Vec::new() } else { column_list.clone() }]));
        let node = Node { order: order as u32, pivots: done as u32, values, off, lists };
        if rest == 0 {
            return Ok(Some((node, None)));
        }
        if tree.parent[s] == NONE {
            return Ok(None); // a root without rows below has eliminated all columns, or there is no inverse
        }
        let delayed = [&*row_list, &*column_list].map(|list| list[done..pivots].to_vec());
        let mut values = Vec::new();
        if symmetric {
            reserved(&mut values, rest * (rest + 1) / 2)?;
            (done..order).for_each(|j| values.extend_from_slice(&a[j * order + j..(j + 1) * order]));
        } else {
            reserved(&mut values, rest * rest)?;
            (done..order).for_each(|j| values.extend_from_slice(&a[j * order + done..(j + 1) * order]));
        }
        Ok(Some((node, Some(Contribution { delayed, values }))))
    }
}

/// Sets a front to zero.
fn clear(front: &mut Vec<f64>, order: usize, symmetric: bool) -> Result<()> {
    if front.len() < order * order {
        let more = order * order - front.len();
        reserved(front, more)?;
        front.resize(order * order, 0.0);
    }
    if symmetric {
        (0..order).for_each(|j| front[j * order + j..(j + 1) * order].fill(0.0));
    } else {
        front[..order * order].fill(0.0);
    }
    Ok(())
}

fn reserved(values: &mut Vec<f64>, more: usize) -> Result<()> {
    reserve(values, more).map_err(|_| {
        let bytes = crate::text::bytes(8 * more as u64);
        Error::invalid(format!(
            "lu: out of memory for factors ({bytes}); use incomplete factors, such as ildu"
        ))
    })
}

/// Adds the contribution of a child to a front.
fn extend_add(rest: Contribution, below: &[u32], space: &mut Workspace, order: usize, symmetric: bool) {
    let Workspace { front, at, local, .. } = space;
    for side in 0..2 {
        local[side].clear();
        let positions = rest.delayed[side].iter().chain(below);
        local[side].extend(positions.map(|&i| at[side][i as usize]));
    }
    let [rows, columns] = &*local;
    let m = rows.len();
    if symmetric {
        let mut values = &rest.values[..];
        for j in 0..m {
            let (column, next) = values.split_at(m - j);
            values = next;
            let c = rows[j] as usize;
            let own = &mut front[c * order..(c + 1) * order];
            let mut above = false;
            for (v, &r) in column.iter().zip(&rows[j..]) {
                above |= (r as usize) < c;
                own[r as usize] += v;
            }
            if above {
                // Entries above the diagonal belong to the columns of their rows.
                for (v, &r) in column.iter().zip(&rows[j..]).filter(|(_, r)| (**r as usize) < c) {
                    front[c * order + r as usize] = 0.0;
                    front[r as usize * order + c] += v;
                }
            }
        }
    } else {
        for (column, &c) in rest.values.chunks_exact(m).zip(columns) {
            let own = &mut front[c as usize * order..(c as usize + 1) * order];
            for (v, &r) in column.iter().zip(rows) {
                own[r as usize] += v;
            }
        }
    }
}

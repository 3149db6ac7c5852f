//! Layout of the blocks of factors in memory.
//!
//! Rows of a level do not depend on each other, so W of them, a slice, are solved in parallel lanes. Number
//! (r, c) of one block of each of W rows is stored contiguously: W numbers that are multiplied with W numbers
//! of x. A slice has as many slots as its longest row has blocks; missing blocks are zeros. Missing rows in a
//! level's last slice are rows with D = 1 and without L and U, which change nothing. Where levels are narrow
//! or blocks are large, W is 1.
//!
//! The values of a subdomain are the slices of L in forward order, then those of D⁻¹ and U, level by level in
//! backward order. A slice consists of its slots one after another (D⁻¹ first), and a slot of m columns of m
//! rows of W numbers. There is one column number for each block of L and U, in the same order.
//!
//! The transpose has the factors Uᵀ, Dᵀ and Lᵀ in the places of L, D and U. Its levels are the same. An entry
//! of row i goes to the next free slot of its column's row, so entries need no sorting and no map. If all
//! patterns are symmetric, both have the same positions and columns.

use super::super::elimination::Stored;
use crate::Result;
use crate::precond::Plan;
use crate::space::Precision;
use crate::threads::zeros;
use rayon::prelude::*;
use std::ops::Range;

/// Largest number of rows in parallel lanes.
pub(super) const LANES: usize = 8;

/// Rows of a level that are solved in parallel lanes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Slice {
    /// First row, relative to the subdomain's first.
    pub start: u32,
    /// Blocks per row, without the diagonal one.
    pub slots: u32,
}

/// Positions of one subdomain.
#[derive(Debug, Clone)]
pub(super) struct Piece {
    /// W: rows per slice.
    pub lanes: usize,
    /// Slices of L.
    pub lower: Range<usize>,
    /// Slices of U.
    pub upper: Range<usize>,
    /// First column of the subdomain.
    pub columns: usize,
    /// First value of the subdomain.
    pub values: usize,
}

/// Positions of all subdomains.
#[derive(Clone)]
pub(super) struct Layout {
    pub pieces: Vec<Piece>,
    pub slices: Vec<Slice>,
    /// Number of columns of all subdomains.
    pub all_columns: usize,
    /// Number of values of all subdomains.
    pub values: usize,
    order: usize,
    transposed: bool,
}

/// For each row of a subdomain, the next place left and right of the diagonal.
pub(super) type Next = Vec<[usize; 2]>;

/// Returns the widths for blocks of order `m`, the widest first.
fn widths(m: usize) -> &'static [usize] {
    match m {
        1 => &[8, 4, 1],
        2 | 3 => &[4, 1],
        _ => &[1],
    }
}

/// Number of subdomains that one task lays out.
const TASK: usize = 16;

impl Layout {
    /// Chooses the width of each subdomain's slices: the one that reads the fewest bytes, where each slice
    /// counts 64 bytes more than its contents, for its loop. With `transposed`, it lays out the transpose.
    pub fn new(plan: &Plan, precision: Precision, transposed: bool) -> Self {
        let m = plan.order;
        let block = m * m * precision.bytes() + 2;
        // Width of each subdomain and number of its slices; then their positions.
        type Widths = Vec<(usize, usize)>;
        let tasks: Vec<(Widths, Vec<Slice>)> = (0..plan.count().div_ceil(TASK))
            .into_par_iter()
            .map_init(Lengths::default, |lengths, task| {
                let (mut widths, mut slices) = (Vec::with_capacity(TASK), Vec::new());
                for p in task * TASK..((task + 1) * TASK).min(plan.count()) {
                    lengths.read(plan, p, transposed);
                    let lanes = lengths.best(plan, p, m, block);
                    let from = slices.len();
                    lengths.slices(plan, p, lanes, &mut slices);
                    widths.push((lanes, slices.len() - from));
                }
                (widths, slices)
            })
            .collect();
        let mut slices = Vec::with_capacity(tasks.iter().map(|task| task.1.len()).sum());
        let mut pieces = Vec::with_capacity(plan.count());
        let (mut columns, mut values) = (0, 0);
        for (widths, of_task) in tasks {
            let mut of_task = &of_task[..];
            for (lanes, count) in widths {
                let (own, rest) = of_task.split_at(count);
                of_task = rest;
                // L and U have the same number of slices.
                let (from, middle) = (slices.len(), slices.len() + count / 2);
                slices.extend_from_slice(own);
                let (lower, upper) = (from..middle, middle..slices.len());
                pieces.push(Piece { lanes, lower, upper, columns, values });
                let slots: usize = own.iter().map(|s| s.slots as usize).sum();
                columns += slots * lanes;
                values += (slots + count / 2) * lanes * m * m;
            }
        }
        Self { pieces, slices, all_columns: columns, values, order: m, transposed }
    }

    /// Returns the layout of the transpose of a symmetric pattern, which has the same positions.
    pub fn of_mirror(&self) -> Self {
        Self { transposed: true, ..self.clone() }
    }

    /// Returns the range of the values of subdomain `p`.
    pub fn range(&self, p: usize) -> Range<usize> {
        self.pieces[p].values..self.pieces.get(p + 1).map_or(self.values, |next| next.values)
    }

    /// Returns columns and values in order of application. A missing block has the column of its slice's
    /// first row, and value zero. All values are zeros, except for ones on the diagonals of the rows that are
    /// missing in slices.
    pub fn arrays<C, T>(&self, plan: &Plan, narrow: impl Fn(u32) -> C + Sync) -> Result<(Vec<C>, Vec<T>)>
    where
        C: Copy + Default + Send,
        T: Stored,
    {
        let what = "incomplete factors";
        let (mut columns, mut values) = (zeros(self.all_columns, what)?, zeros(self.values, what)?);
        let mut tasks = Vec::with_capacity(self.pieces.len().div_ceil(TASK));
        let (mut more_columns, mut more_values) = (&mut columns[..], &mut values[..]);
        for first in (0..self.pieces.len()).step_by(TASK) {
            let end = (first + TASK).min(self.pieces.len());
            let (columns_end, values_end) = self
                .pieces
                .get(end)
                .map_or((self.all_columns, self.values), |next| (next.columns, next.values));
            let (columns, rest) = more_columns.split_at_mut(columns_end - self.pieces[first].columns);
            let (values, others) = more_values.split_at_mut(values_end - self.pieces[first].values);
            (more_columns, more_values) = (rest, others);
            tasks.push((first..end, columns, values));
        }
        tasks.into_par_iter().for_each_init(Next::new, |next, (subdomains, columns, values)| {
            let first = subdomains.start;
            for p in subdomains {
                let columns = &mut columns[self.pieces[p].columns - self.pieces[first].columns..];
                let values = &mut values[self.pieces[p].values - self.pieces[first].values..];
                self.columns_of(plan, p, columns, &narrow, next);
                self.pad(plan, p, values);
            }
        });
        Ok((columns, values))
    }

    /// Writes the columns of subdomain `p`.
    fn columns_of<C: Copy>(
        &self,
        plan: &Plan,
        p: usize,
        columns: &mut [C],
        narrow: impl Fn(u32) -> C,
        next: &mut Next,
    ) {
        let (lanes, first) = (self.pieces[p].lanes, plan.ptr[p]);
        let mut at = 0;
        self.each_slice(plan, p, |side, slice, rows| {
            let own = &mut columns[at..at + slice.slots as usize * lanes];
            own.fill(narrow(slice.start));
            for (lane, row) in rows.enumerate().filter(|_| slice.slots > 0 && !self.transposed) {
                let of_row = &plan.columns[entries(plan, first + row, side)];
                own[lane..].iter_mut().step_by(lanes).zip(of_row).for_each(|(to, &j)| *to = narrow(j));
            }
            at += own.len();
        });
        if self.transposed {
            self.turned(plan, p, lanes, 0, next, |_, i, at| columns[at] = narrow(i as u32));
        }
    }

    /// Writes ones on the diagonals of the rows that are missing in slices of subdomain `p`, into its values.
    fn pad<T: Stored>(&self, plan: &Plan, p: usize, values: &mut [T]) {
        let (m, lanes) = (self.order, self.pieces[p].lanes);
        let mut at = 0;
        self.each_slice(plan, p, |side, slice, rows| {
            let upper = usize::from(side == Side::Upper);
            for lane in (rows.len()..lanes).filter(|_| upper == 1) {
                for r in 0..m {
                    values[at + (r * m + r) * lanes + lane] = T::narrow(1.0);
                }
            }
            at += (upper + slice.slots as usize) * lanes * m * m;
        });
    }

    /// Calls `f` for every slice of subdomain `p` in order of application, with the rows of the slice.
    #[inline(always)]
    fn each_slice(&self, plan: &Plan, p: usize, mut f: impl FnMut(Side, Slice, Range<usize>)) {
        let piece = &self.pieces[p];
        let levels = plan.level_ptr[p]..plan.level_ptr[p + 1];
        let mut slices = self.slices[piece.lower.start..piece.upper.end].iter();
        let mut of_level = |l: usize, side: Side| {
            let rows = level(plan, p, l);
            for (start, &slice) in rows.clone().step_by(piece.lanes).zip(&mut slices) {
                f(side, slice, start..(start + piece.lanes).min(rows.end));
            }
        };
        levels.clone().for_each(|l| of_level(l, Side::Lower));
        levels.rev().for_each(|l| of_level(l, Side::Upper));
    }

    /// Calls `f(entry, row, at)` for every block of subdomain `p` in the plan's order, with the place of its
    /// transpose. A block takes `block` places. Each row has `diagonals` blocks before U.
    #[inline(always)]
    fn turned(
        &self,
        plan: &Plan,
        p: usize,
        block: usize,
        diagonals: usize,
        next: &mut Next,
        mut f: impl FnMut(usize, usize, usize),
    ) {
        let rows = plan.ptr[p]..plan.ptr[p + 1];
        next.clear();
        next.resize(rows.len(), [0; 2]);
        let mut at = 0;
        self.each_slice(plan, p, |side, slice, rows| {
            let before = if side == Side::Upper { diagonals } else { 0 };
            rows.enumerate().for_each(|(lane, row)| next[row][side as usize] = at + before * block + lane);
            at += (before + slice.slots as usize) * block;
        });
        for (i, position) in rows.enumerate() {
            // A column's row gets its entries from rows in ascending order.
            let mut take = |e: usize, side: Side| {
                let at = &mut next[plan.columns[e] as usize][side as usize];
                f(e, i, *at);
                *at += block;
            };
            entries(plan, position, Side::Lower).for_each(|e| take(e, Side::Upper));
            entries(plan, position, Side::Upper).for_each(|e| take(e, Side::Lower));
            if diagonals > 0 {
                // No later row has added to U of this row yet.
                f(plan.diagonal[position], i, next[i][Side::Upper as usize] - block);
            }
        }
    }

    /// Calls `f(entry, at)` for every block of subdomain `p`, with its number in the plan and the index of
    /// its first number among the subdomain's values.
    #[inline(always)]
    fn blocks(&self, plan: &Plan, p: usize, next: &mut Next, mut f: impl FnMut(usize, usize)) {
        let (lanes, first) = (self.pieces[p].lanes, plan.ptr[p]);
        let block = lanes * self.order * self.order;
        if self.transposed {
            return self.turned(plan, p, block, 1, next, |e, _, at| f(e, at));
        }
        let mut at = 0;
        self.each_slice(plan, p, |side, slice, rows| {
            for (lane, row) in rows.enumerate() {
                // D⁻¹ precedes U.
                let entries = match side {
                    Side::Lower => entries(plan, first + row, side),
                    Side::Upper => plan.diagonal[first + row]..plan.row_ptr[first + row + 1],
                };
                for (slot, e) in entries.enumerate() {
                    f(e, at + slot * block + lane);
                }
            }
            at += (usize::from(side == Side::Upper) + slice.slots as usize) * block;
        });
    }

    /// Stores the factors of subdomain `p`, given as row-major blocks in the plan's order from the
    /// subdomain's first entry on.
    pub fn store<T: Stored>(&self, plan: &Plan, p: usize, from: &[f64], to: &mut [T], next: &mut Next) {
        match self.order {
            1 => self.store_order(1, plan, p, from, to, next),
            2 => self.store_order(2, plan, p, from, to, next),
            3 => self.store_order(3, plan, p, from, to, next),
            4 => self.store_order(4, plan, p, from, to, next),
            m => self.store_order(m, plan, p, from, to, next),
        }
    }

    #[inline(always)]
    fn store_order<T: Stored>(
        &self,
        m: usize,
        plan: &Plan,
        p: usize,
        from: &[f64],
        to: &mut [T],
        next: &mut Next,
    ) {
        let (first, lanes) = (plan.row_ptr[plan.ptr[p]], self.pieces[p].lanes);
        // Steps from a number to those in the next row and in the next column.
        let [down, right] = if self.transposed { [m * lanes, lanes] } else { [lanes, m * lanes] };
        self.blocks(plan, p, next, |e, at| {
            let block = &from[(e - first) * m * m..][..m * m];
            for c in 0..m {
                for r in 0..m {
                    to[at + r * down + c * right] = T::narrow(block[r * m + c]);
                }
            }
        });
    }

    /// Reverses [`store`](Self::store) of a layout that is not transposed.
    pub fn load<T: Stored>(&self, plan: &Plan, p: usize, from: &[T], to: &mut [f64]) {
        let (m, lanes, first) = (self.order, self.pieces[p].lanes, plan.row_ptr[plan.ptr[p]]);
        self.blocks(plan, p, &mut Next::new(), |e, at| {
            for c in 0..m {
                for r in 0..m {
                    to[(e - first) * m * m + r * m + c] = from[at + (c * m + r) * lanes].widen();
                }
            }
        });
    }
}

/// Blocks left and right of the diagonal in each row of a subdomain.
#[derive(Default)]
struct Lengths {
    lower: Vec<u32>,
    upper: Vec<u32>,
}

impl Lengths {
    /// Reads the lengths of subdomain `p`, or those of its transpose.
    fn read(&mut self, plan: &Plan, p: usize, transposed: bool) {
        let rows = plan.ptr[p]..plan.ptr[p + 1];
        if transposed {
            for lengths in [&mut self.lower, &mut self.upper] {
                lengths.clear();
                lengths.resize(rows.len(), 0);
            }
            for i in rows {
                entries(plan, i, Side::Upper).for_each(|e| self.lower[plan.columns[e] as usize] += 1);
                entries(plan, i, Side::Lower).for_each(|e| self.upper[plan.columns[e] as usize] += 1);
            }
            return;
        }
        let length = |side| move |i| entries(plan, i, side).len() as u32;
        self.lower.clear();
        self.lower.extend(rows.clone().map(length(Side::Lower)));
        self.upper.clear();
        self.upper.extend(rows.map(length(Side::Upper)));
    }

    /// Returns the best width.
    fn best(&self, plan: &Plan, p: usize, m: usize, block: usize) -> usize {
        let cost = |&lanes: &usize| {
            let (mut slots, mut count) = (0, 0);
            if lanes == 1 {
                let sum = |lengths: &[u32]| lengths.iter().map(|&l| l as usize).sum::<usize>();
                (slots, count) = (sum(&self.lower) + sum(&self.upper), 2 * self.lower.len());
            } else {
                for l in plan.level_ptr[p]..plan.level_ptr[p + 1] {
                    let rows = level(plan, p, l);
                    let longest = |lengths: &[u32]| -> usize {
                        lengths[rows.clone()].chunks(lanes).map(|c| longest(c) as usize).sum()
                    };
                    slots += longest(&self.lower) + longest(&self.upper);
                    count += 2 * rows.len().div_ceil(lanes);
                }
            }
            (slots * lanes + count * lanes / 2) * block + count * 64
        };
        *widths(m).iter().min_by_key(|lanes| cost(lanes)).expect("there is a width")
    }

    /// Appends the slices of L in forward order, and of U in backward order.
    fn slices(&self, plan: &Plan, p: usize, lanes: usize, out: &mut Vec<Slice>) {
        let mut of_level = |l: usize, lengths: &[u32]| {
            let rows = level(plan, p, l);
            let starts = rows.clone().step_by(lanes);
            out.extend(
                starts
                    .zip(lengths[rows].chunks(lanes))
                    .map(|(start, c)| Slice { start: start as u32, slots: longest(c) }),
            );
        };
        let levels = plan.level_ptr[p]..plan.level_ptr[p + 1];
        levels.clone().for_each(|l| of_level(l, &self.lower));
        levels.rev().for_each(|l| of_level(l, &self.upper));
    }
}

/// Returns true if the pattern of subdomain `p` is symmetric.
pub(super) fn is_symmetric(plan: &Plan, p: usize, next: &mut Next) -> bool {
    let (first, rows) = (plan.ptr[p], plan.ptr[p]..plan.ptr[p + 1]);
    let upper = |i: usize| entries(plan, i, Side::Upper);
    next.clear();
    next.extend(rows.clone().map(|i| [upper(i).start, upper(i).end]));
    // Rows above get their columns in ascending order.
    let mirrored = rows.clone().all(|i| {
        entries(plan, i, Side::Lower).all(|e| {
            let [at, end] = &mut next[plan.columns[e] as usize];
            let found = *at < *end && plan.columns[*at] as usize == i - first;
            *at += 1;
            found
        })
    });
    mirrored && next.iter().all(|[at, end]| at == end)
}

/// Returns the largest of some lengths.
fn longest(lengths: &[u32]) -> u32 {
    lengths.iter().fold(0, |most, &l| most.max(l))
}

#[derive(Clone, Copy, PartialEq)]
enum Side {
    Lower,
    Upper,
}

/// Returns the entries left or right of the diagonal at a position.
#[inline(always)]
fn entries(plan: &Plan, position: usize, side: Side) -> Range<usize> {
    match side {
        Side::Lower => plan.row_ptr[position]..plan.diagonal[position],
        Side::Upper => plan.diagonal[position] + 1..plan.row_ptr[position + 1],
    }
}

/// Returns level `level` (of all) as rows of its subdomain `p`.
fn level(plan: &Plan, p: usize, level: usize) -> Range<usize> {
    let end = if level + 1 < plan.level_ptr[p + 1] {
        plan.levels[level + 1] as usize
    } else {
        plan.ptr[p + 1] - plan.ptr[p]
    };
    plan.levels[level] as usize..end
}

//! Where the blocks of factors stand in memory.
//!
//! Rows of a level do not depend on each other, so W of them, a slice, are solved side by side: number (r, c) of one
//! block of each of W rows stands together, W numbers that meet W numbers of x. A slice has as many slots as its
//! longest row has blocks; missing ones are zeros, and rows missing in a level's last slice are rows of D = 1 without
//! L and U, which leave what they touch as it is. Where levels are narrow or blocks large, W is 1.
//!
//! A subdomain's values: the slices of L, forward; then those of D⁻¹ and U, level by level backward. A slice is its
//! slots one after the other (D⁻¹ first), a slot m columns of m rows of W numbers. Columns: one a block of L and U,
//! in the same order.

use crate::precond::Plan;
use crate::space::Store;
use std::ops::Range;

/// Rows side by side at most.
pub(super) const LANES: usize = 8;

/// Rows of a level that are solved side by side.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Slice {
    /// First row, relative to the subdomain's first.
    pub start: u32,
    /// Blocks a row, without the diagonal one.
    pub slots: u32,
}

/// One subdomain's place.
#[derive(Debug, Clone)]
pub(super) struct Piece {
    /// W: rows of a slice.
    pub lanes: usize,
    /// Slices of L.
    pub lower: Range<usize>,
    /// Slices of U.
    pub upper: Range<usize>,
    /// Its first column.
    pub columns: usize,
    /// Its first value.
    pub values: usize,
}

/// Places of all subdomains.
pub(super) struct Layout {
    pub pieces: Vec<Piece>,
    pub slices: Vec<Slice>,
    /// Columns of all.
    pub all_columns: usize,
    /// Values of all.
    pub values: usize,
    order: usize,
}

/// Widths for blocks of order `m`, the widest first.
fn widths(m: usize) -> &'static [usize] {
    match m {
        1 => &[8, 4, 1],
        2 | 3 => &[4, 1],
        _ => &[1],
    }
}

impl Layout {
    /// Chooses the width of each subdomain's slices: the one that reads fewest bytes, a slice counted as 64 beside
    /// what it holds, for its loop.
    pub fn new(plan: &Plan, store: Store) -> Self {
        let m = plan.order;
        let block = m * m * store.bytes() + 2;
        let mut out = Self { pieces: Vec::new(), slices: Vec::new(), all_columns: 0, values: 0, order: m };
        let mut candidate = Vec::new();
        for p in 0..plan.count() {
            let mut best: Option<(usize, usize)> = None;
            for &lanes in widths(m) {
                candidate.clear();
                slices(plan, p, lanes, Side::Lower, &mut candidate);
                slices(plan, p, lanes, Side::Upper, &mut candidate);
                let slots: usize = candidate.iter().map(|s| s.slots as usize * lanes).sum();
                let cost = (slots + candidate.len() * lanes / 2) * block + candidate.len() * 64;
                if best.is_none_or(|best| cost < best.0) {
                    best = Some((cost, lanes));
                }
            }
            let lanes = best.expect("there is a width").1;
            let from = out.slices.len();
            slices(plan, p, lanes, Side::Lower, &mut out.slices);
            let middle = out.slices.len();
            slices(plan, p, lanes, Side::Upper, &mut out.slices);
            let to = out.slices.len();
            let piece = Piece {
                lanes,
                lower: from..middle,
                upper: middle..to,
                columns: out.all_columns,
                values: out.values,
            };
            let slots: usize = out.slices[from..].iter().map(|s| s.slots as usize).sum();
            out.all_columns += slots * lanes;
            out.values += (slots + (to - middle)) * lanes * m * m;
            out.pieces.push(piece);
        }
        out
    }

    /// The values of subdomain `p`.
    pub fn range(&self, p: usize) -> Range<usize> {
        self.pieces[p].values..self.pieces.get(p + 1).map_or(self.values, |next| next.values)
    }

    /// Columns in order of application; a missing block has that of its slice's first row, times zero.
    pub fn columns<C: Copy>(&self, plan: &Plan, narrow: impl Fn(u32) -> C) -> Vec<C> {
        let mut columns = Vec::with_capacity(self.all_columns);
        for (p, piece) in self.pieces.iter().enumerate() {
            for (side, slices) in [(Side::Lower, piece.lower.clone()), (Side::Upper, piece.upper.clone())] {
                for slice in &self.slices[slices] {
                    for slot in 0..slice.slots as usize {
                        for lane in 0..piece.lanes {
                            let entry = entries(plan, p, slice.start as usize + lane, side)
                                .filter(|_| in_level(plan, p, slice.start, lane))
                                .and_then(|entries| (slot < entries.len()).then(|| entries.start + slot));
                            columns.push(narrow(entry.map_or(slice.start, |e| plan.columns[e])));
                        }
                    }
                }
            }
        }
        columns
    }

    /// Zeros with `one` on the diagonals of the rows that are missing in slices.
    pub fn padding<T>(&self, plan: &Plan, mut zeros: Vec<T>, one: f32) -> Vec<T>
    where
        T: Copy + From<f32>,
    {
        let m = self.order;
        for (p, piece) in self.pieces.iter().enumerate() {
            let block = piece.lanes * m * m;
            let lower: usize = self.slices[piece.lower.clone()].iter().map(|s| s.slots as usize).sum();
            let mut at = piece.values + lower * block;
            for slice in &self.slices[piece.upper.clone()] {
                for lane in (0..piece.lanes).filter(|&lane| !in_level(plan, p, slice.start, lane)) {
                    for r in 0..m {
                        zeros[at + (r * m + r) * piece.lanes + lane] = T::from(one);
                    }
                }
                at += (1 + slice.slots as usize) * block;
            }
        }
        zeros
    }

    /// Calls `f(entry, at, lanes)` for every block of subdomain `p`: its number in the plan and where its first number
    /// stands among the subdomain's values.
    fn blocks(&self, plan: &Plan, p: usize, mut f: impl FnMut(usize, usize, usize)) {
        let piece = &self.pieces[p];
        let (lanes, block) = (piece.lanes, piece.lanes * self.order * self.order);
        let mut at = 0;
        for (side, slices) in [(Side::Lower, piece.lower.clone()), (Side::Upper, piece.upper.clone())] {
            let diagonal = usize::from(side == Side::Upper);
            for slice in &self.slices[slices] {
                for lane in (0..lanes).take_while(|&lane| in_level(plan, p, slice.start, lane)) {
                    let row = slice.start as usize + lane;
                    if diagonal == 1 {
                        f(plan.diagonal[plan.ptr[p] + row], at + lane, lanes);
                    }
                    for (slot, e) in entries(plan, p, row, side).into_iter().flatten().enumerate() {
                        f(e, at + (diagonal + slot) * block + lane, lanes);
                    }
                }
                at += (diagonal + slice.slots as usize) * block;
            }
        }
    }

    /// Puts the factors of subdomain `p`, row-major blocks in the plan's order from the subdomain's first entry on,
    /// where they belong.
    pub fn store<T: Stored>(&self, plan: &Plan, p: usize, from: &[f64], to: &mut [T]) {
        let (m, first) = (self.order, plan.row_ptr[plan.ptr[p]]);
        self.blocks(plan, p, |e, at, lanes| {
            let block = &from[(e - first) * m * m..][..m * m];
            for c in 0..m {
                for r in 0..m {
                    to[at + (c * m + r) * lanes] = T::narrow(block[r * m + c]);
                }
            }
        });
    }

    /// The reverse of [`store`](Self::store), to the plan's order of all entries.
    pub fn load<T: Stored>(&self, plan: &Plan, p: usize, from: &[T], to: &mut [f64]) {
        let m = self.order;
        self.blocks(plan, p, |e, at, lanes| {
            for c in 0..m {
                for r in 0..m {
                    to[e * m * m + r * m + c] = from[at + (c * m + r) * lanes].widen();
                }
            }
        });
    }
}

/// A stored number.
pub(super) trait Stored: Copy {
    fn narrow(v: f64) -> Self;
    fn widen(self) -> f64;
}

impl Stored for f64 {
    #[inline(always)]
    fn narrow(v: f64) -> f64 {
        v
    }
    #[inline(always)]
    fn widen(self) -> f64 {
        self
    }
}

impl Stored for f32 {
    #[inline(always)]
    fn narrow(v: f64) -> f32 {
        v as f32
    }
    #[inline(always)]
    fn widen(self) -> f64 {
        self as f64
    }
}

#[derive(Clone, Copy, PartialEq)]
enum Side {
    Lower,
    Upper,
}

/// Entries left or right of the diagonal of a row of subdomain `p`, if it has such a row.
fn entries(plan: &Plan, p: usize, row: usize, side: Side) -> Option<Range<usize>> {
    let i = plan.ptr[p] + row;
    (i < plan.ptr[p + 1]).then(|| match side {
        Side::Lower => plan.row_ptr[i]..plan.diagonal[i],
        Side::Upper => plan.diagonal[i] + 1..plan.row_ptr[i + 1],
    })
}

/// Level `level` (of all) as rows of its subdomain `p`.
fn level(plan: &Plan, p: usize, level: usize) -> Range<usize> {
    let end = if level + 1 < plan.level_ptr[p + 1] {
        plan.levels[level + 1] as usize
    } else {
        plan.ptr[p + 1] - plan.ptr[p]
    };
    plan.levels[level] as usize..end
}

/// True when the row `lane` behind `start` is of the same level.
fn in_level(plan: &Plan, p: usize, start: u32, lane: usize) -> bool {
    if lane == 0 {
        return true;
    }
    let levels = plan.level_ptr[p]..plan.level_ptr[p + 1];
    let next = levels.start + plan.levels[levels.clone()].partition_point(|&first| first <= start);
    start as usize + lane < level(plan, p, next - 1).end
}

/// The slices of L, forward, or of U, backward.
fn slices(plan: &Plan, p: usize, lanes: usize, side: Side, out: &mut Vec<Slice>) {
    let levels = plan.level_ptr[p]..plan.level_ptr[p + 1];
    let mut of_level = |l: usize| {
        let rows = level(plan, p, l);
        for start in rows.clone().step_by(lanes) {
            let lane = start..(start + lanes).min(rows.end);
            let slots = lane.filter_map(|row| entries(plan, p, row, side)).map(|e| e.len()).max();
            out.push(Slice { start: start as u32, slots: slots.unwrap_or(0) as u32 });
        }
    };
    match side {
        Side::Lower => levels.for_each(&mut of_level),
        Side::Upper => levels.rev().for_each(&mut of_level),
    }
}

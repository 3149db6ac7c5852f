//! Factors as one stream: the host's twin of `kernels/ildu.cuh`, which says how chunks, groups and slices stand in memory.
//!
//! What is laid out here is the pattern: where each block will stand and which numbers of the vector it meets. Values are
//! put in on the device. Rows of a level are sorted by how many blocks they have where that saves more than their
//! list of positions costs, so that the rows of a slice need little padding.

use crate::precond::Plan;
use crate::{Error, Result};
use rayon::prelude::*;

const DIAGONAL: u8 = 1;
const LISTED: u8 = 2;
const UPPER: u8 = 4;

/// Bytes of a header, and of a slice's description.
const HEADER: usize = 16;
const SLICE: usize = 16;
/// Most steps of a chunk: a bit each says whether all wait after it.
const STEPS: usize = 64;

/// Where the values of all subdomains go, and what places them.
pub(super) struct Stream {
    /// Where each chunk's place and values begin, in units of 16 bytes; one more than there are chunks.
    pub chunks: Vec<[u32; 2]>,
    /// First chunk of each subdomain; one more than there are subdomains.
    pub runs: Vec<i64>,
    /// Places of all chunks.
    pub places: Vec<u8>,
    /// Bytes of values.
    pub values: u64,
}

/// Lays out the factors of a plan, `width` bytes a value, in chunks of at most `stage` bytes, for `warps` warps.
///
/// # Errors
/// Factors that 32-bit offsets cannot count.
pub(super) fn lay_out(plan: &Plan, width: usize, stage: usize, warps: usize) -> Result<Stream> {
    let count = plan.ptr.len() - 1;
    let parts: Vec<Part> =
        (0..count).into_par_iter().map(|p| subdomain(plan, p, width, stage, warps)).collect();
    let mut out = Stream { chunks: Vec::new(), runs: vec![0], places: Vec::new(), values: 0 };
    out.places.reserve_exact(parts.iter().map(|p| p.places.len()).sum());
    for part in parts {
        for [place, values] in part.chunks {
            out.chunks.push([units(out.places.len() as u64 + place)?, units(out.values + values)?]);
        }
        out.places.extend_from_slice(&part.places);
        out.values += part.values;
        out.runs.push(out.chunks.len() as i64);
    }
    out.chunks.push([units(out.places.len() as u64)?, units(out.values)?]);
    Ok(out)
}

fn units(bytes: u64) -> Result<u32> {
    u32::try_from(bytes / 16).map_err(|_| {
        Error::Unsupported(format!(
            "factors of more than {} GB on one GPU; take more GPUs or f32 storage",
            64
        ))
    })
}

/// One subdomain's share of the stream, counted from its own beginning.
#[derive(Default)]
struct Part {
    chunks: Vec<[u64; 2]>,
    places: Vec<u8>,
    values: u64,
}

/// A slice before its chunk is closed.
struct Slice {
    values: usize,
    columns: usize,
    positions: usize,
    blocks: usize,
    skipped: usize,
    rows: usize,
    flags: u8,
}

/// The chunk that is being filled: groups of slices between which all threads wait for each other.
#[derive(Default)]
struct Chunk {
    // Slices of the groups that are closed, group by group, and of the last one.
    groups: Vec<Vec<Slice>>,
    open: Vec<Slice>,
    steps: usize,
    indices: Vec<u16>,
    values: usize,
}

impl Chunk {
    fn place(&self, warps: usize, steps: usize, indices: usize) -> usize {
        HEADER + SLICE * warps * steps + (2 * (self.indices.len() + indices)).next_multiple_of(16)
    }
    /// True where a further slice fits.
    fn takes(&self, values: usize, indices: usize, warps: usize, stage: usize) -> bool {
        let steps = self.steps + (self.open.len() + 1).div_ceil(warps);
        steps <= STEPS && self.place(warps, steps, indices) + self.values + values <= stage
    }
    fn end_group(&mut self, warps: usize) {
        if !self.open.is_empty() {
            self.steps += self.open.len().div_ceil(warps);
            self.groups.push(std::mem::take(&mut self.open));
        }
    }
    fn close(&mut self, warps: usize, to: &mut Part) {
        self.end_group(warps);
        if self.groups.is_empty() {
            return;
        }
        let begin = to.places.len();
        let before = HEADER + SLICE * warps * self.steps;
        let place = self.place(warps, self.steps, 0);
        to.chunks.push([begin as u64, to.values]);
        let (mut sync, mut step) = (0u64, 0);
        for group in &self.groups {
            step += group.len().div_ceil(warps);
            sync |= 1 << (step - 1);
        }
        sync &= !(1 << (step - 1)); // after a chunk all wait in any case
        let mut put = |value: usize| to.places.extend_from_slice(&(value as u16).to_le_bytes());
        put(self.steps);
        put(place / 16);
        (2..4).for_each(|_| put(0));
        (0..4).for_each(|part| put((sync >> (16 * part) & 0xffff) as usize));
        for group in &self.groups {
            for s in group {
                put(s.values);
                put(before / 2 + s.columns);
                put(if s.flags & LISTED != 0 { before / 2 + s.positions } else { s.positions });
                put(s.blocks);
                put(s.rows | (s.flags as usize) << 8);
                put(s.skipped);
                (0..2).for_each(|_| put(0));
            }
            // Warps without a slice in the last step of a group.
            (0..(group.len().next_multiple_of(warps) - group.len()) * SLICE / 2).for_each(|_| put(0));
        }
        self.indices.iter().for_each(|&i| put(i as usize));
        to.places.resize(begin + place, 0);
        to.values += self.values as u64;
        *self = Self::default();
    }
}

fn subdomain(plan: &Plan, p: usize, width: usize, stage: usize, warps: usize) -> Part {
    let (first, end) = (plan.ptr[p], plan.ptr[p + 1]);
    let levels = &plan.levels[plan.level_ptr[p]..plan.level_ptr[p + 1]];
    let level = |l: usize| {
        let to = levels.get(l + 1).map_or(end - first, |&e| e as usize);
        (levels[l] as usize..to).collect::<Vec<_>>()
    };
    let lower = |i: usize| plan.row_ptr[first + i]..plan.diagonal[first + i];
    let upper = |i: usize| plan.diagonal[first + i] + 1..plan.row_ptr[first + i + 1];
    let filler = Filler { columns: &plan.columns, order: plan.order, width, stage, warps };
    let (mut part, mut chunk) = (Part::default(), Chunk::default());
    for l in 0..levels.len() {
        filler.level(level(l), &lower, DIAGONAL, &mut chunk, &mut part);
    }
    for l in (0..levels.len()).rev() {
        let mut rows = level(l);
        rows.retain(|&i| !upper(i).is_empty()); // the others are done
        filler.level(rows, &upper, UPPER, &mut chunk, &mut part);
    }
    chunk.close(warps, &mut part);
    part
}

/// Puts levels into chunks.
struct Filler<'a> {
    columns: &'a [u32],
    order: usize,
    width: usize,
    stage: usize,
    warps: usize,
}

impl Filler<'_> {
    /// Bytes of the values of a slice.
    fn values(&self, rows: usize, blocks: usize) -> usize {
        (blocks * rows * self.order * self.order * self.width).next_multiple_of(16)
    }

    fn level(
        &self,
        mut rows: Vec<usize>,
        entries: &impl Fn(usize) -> std::ops::Range<usize>,
        flags: u8,
        chunk: &mut Chunk,
        part: &mut Part,
    ) {
        let lanes = 32 / self.order;
        let padded = |rows: &[usize]| -> usize {
            let most = |rows: &[usize]| rows.iter().map(|&i| entries(i).len()).max().unwrap_or(0);
            rows.chunks(lanes).map(|rows| most(rows) * rows.len()).sum()
        };
        let before = padded(&rows);
        let mut sorted = rows.clone();
        sorted.sort_by_key(|&i| std::cmp::Reverse(entries(i).len()));
        if before.saturating_sub(padded(&sorted)) * (self.order * self.order * self.width + 2)
            > 2 * rows.len()
        {
            rows = sorted;
        }
        let diagonal = (flags & DIAGONAL) as usize;
        let mut rest = &rows[..];
        while !rest.is_empty() {
            // As many rows as one warp takes and a chunk holds.
            let mut count = rest.len().min(lanes);
            let blocks = |count: usize| rest[..count].iter().map(|&i| entries(i).len()).max().unwrap_or(0);
            let fits = |count: usize, blocks: usize, last: usize, chunk: &Chunk| {
                chunk.takes(self.values(count, blocks + last), (blocks + 1) * count, self.warps, self.stage)
            };
            let empty = Chunk::default();
            while count > 1 && !fits(count, blocks(count), diagonal, &empty) {
                count -= 1;
            }
            let (now, later) = rest.split_at(count);
            let (all, mut skipped) = (blocks(count), 0);
            loop {
                // Of a row that no chunk holds, a part at a time; the parts wait for each other.
                let (mut take, mut last) = (all - skipped, diagonal);
                while take > 0 && !fits(count, take, last, &empty) {
                    (take, last) = if last == 1 && take > 1 { (take, 0) } else { (take - 1, 0) };
                }
                let whole = skipped + take == all && last == diagonal;
                if !fits(count, take, last, chunk) {
                    chunk.close(self.warps, part);
                }
                let flags = if last == 1 { flags } else { flags & !DIAGONAL };
                self.slice(now, entries, skipped, take, flags, chunk);
                skipped += take;
                if whole {
                    break;
                }
                chunk.end_group(self.warps);
            }
            rest = later;
        }
        chunk.end_group(self.warps);
    }

    /// One slice: blocks `skipped..skipped + take` of each of the rows.
    fn slice(
        &self,
        rows: &[usize],
        entries: &impl Fn(usize) -> std::ops::Range<usize>,
        skipped: usize,
        take: usize,
        flags: u8,
        chunk: &mut Chunk,
    ) {
        let columns = chunk.indices.len();
        for k in skipped..skipped + take {
            for &i in rows {
                let at = entries(i).start + k;
                // Padding multiplies the row's own number by zero.
                chunk.indices.push(if at < entries(i).end { self.columns[at] as u16 } else { i as u16 });
            }
        }
        let listed = rows.windows(2).any(|w| w[1] != w[0] + 1);
        let positions = if listed { chunk.indices.len() } else { rows[0] };
        if listed {
            chunk.indices.extend(rows.iter().map(|&i| i as u16));
        }
        chunk.open.push(Slice {
            values: chunk.values / 16,
            columns,
            positions,
            blocks: take,
            skipped,
            rows: rows.len(),
            flags: flags | if listed { LISTED } else { 0 },
        });
        chunk.values += self.values(rows.len(), take + (flags & DIAGONAL) as usize);
    }
}

#[cfg(test)]
mod tests;

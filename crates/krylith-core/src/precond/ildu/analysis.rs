//! The analysis of one subdomain: the union of the terms' patterns inside it, the order of elimination, the
//! fill and the levels.
//!
//! The analysis makes three passes over a subdomain's rows. The first pass counts the entries inside the
//! subdomain. The second gathers them and computes the levels. The third writes them by level into the plan.
//! A thread reuses the same scratch memory for all its subdomains.

use super::super::incomplete::fill::{NONE, Pattern, keyed, unkeyed};
use super::super::incomplete::order;
use crate::Result;
use crate::interrupt::Allowance;
use crate::matrix::Bsr;
use crate::partition::Subdomains;
use crate::threads::allocate;
use rayon::prelude::*;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Input of the analysis of all subdomains.
pub(super) struct Analysis<'a> {
    /// The different patterns of the terms.
    matrices: Vec<&'a Bsr>,
    subdomains: &'a Subdomains,
    /// For each own row its subdomain in the upper 32 bits, and its position in that subdomain in the lower
    /// 32 bits.
    home: Vec<AtomicU64>,
    fill: usize,
    allowance: Allowance,
}

/// Counts for the union of a subdomain's patterns, without fill.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Count {
    /// Number of entries inside the subdomain; every diagonal entry counts, stored or not.
    pub entries: usize,
    /// Number of stored blocks that couple to other subdomains.
    pub dropped: usize,
    /// Number of stored blocks in the subdomain's rows.
    pub stored: usize,
}

/// The slices of the plan into which the part of one subdomain is written.
pub(super) struct Places<'a> {
    pub rows: &'a mut [u32],
    /// The end of each row.
    pub row_ptr: &'a mut [usize],
    pub diagonal: &'a mut [usize],
    pub columns: &'a mut [u32],
    /// One slice for each term.
    pub sources: Vec<&'a mut [u32]>,
}

impl<'a> Places<'a> {
    /// Splits off the front of every slice: the parts for this many rows and entries.
    pub fn split_off(&mut self, rows: usize, entries: usize) -> Places<'a> {
        fn take<'a, T>(from: &mut &'a mut [T], count: usize) -> &'a mut [T] {
            from.split_off_mut(..count).expect("the slices hold all counted entries")
        }
        Places {
            rows: take(&mut self.rows, rows),
            row_ptr: take(&mut self.row_ptr, rows),
            diagonal: take(&mut self.diagonal, rows),
            columns: take(&mut self.columns, entries),
            sources: self.sources.iter_mut().map(|s| take(s, entries)).collect(),
        }
    }
}

/// A subdomain's rows in the order of elimination, with fill and levels.
#[derive(Default)]
pub(super) struct Found {
    pattern: Pattern,
    /// For each pattern, the number of the block at each entry of the union. It is empty if there is only one
    /// pattern, because `pattern.from` then lists the blocks.
    sources: Vec<Vec<u32>>,
    /// The order of elimination; empty for the natural order.
    order: Vec<u32>,
    /// Positions in the order of elimination, sorted by level.
    by_level: Vec<u32>,
    /// The beginning of each level.
    pub levels: Vec<u32>,
}

/// Reusable memory of a thread.
#[derive(Default)]
pub(super) struct Scratch {
    pub found: Found,
    level: Vec<u32>,
    diagonal: Vec<usize>,
    /// For each position in the order of elimination, the position in the plan.
    pub place: Vec<u32>,
}

impl Found {
    /// Returns the number of entries with fill.
    pub fn entries(&self) -> usize {
        self.pattern.col.len()
    }
}

impl<'a> Analysis<'a> {
    /// Returns true if there is fill beyond the entries of the matrices.
    pub fn fills(&self) -> bool {
        self.fill > 0
    }

    /// Records the subdomain and position of every row.
    pub fn new(matrices: Vec<&'a Bsr>, subdomains: &'a Subdomains, fill: usize) -> Result<Self> {
        let n = subdomains.block_rows();
        let mut home = allocate(n, "the subdomains of rows")?;
        (0..n).into_par_iter().map(|_| AtomicU64::new(0)).collect_into_vec(&mut home);
        (0..subdomains.count()).into_par_iter().for_each(|p| {
            for (k, &i) in subdomains.rows(p).iter().enumerate() {
                home[i as usize].store((p as u64) << 32 | k as u64, Relaxed);
            }
        });
        Ok(Self { matrices, subdomains, home, fill, allowance: Allowance::of_fill() })
    }

    /// Returns the position of column `j` in subdomain `p`, if it is inside.
    #[inline(always)]
    fn local(&self, p: usize, j: u32) -> Option<u32> {
        let home = self.home.get(j as usize).map_or(u64::MAX, |home| home.load(Relaxed));
        ((home >> 32) as usize == p).then_some(home as u32)
    }

    /// Counts the entries of subdomain `p`.
    pub fn count(&self, p: usize, scratch: &mut Scratch) -> Count {
        let [a] = self.matrices[..] else { return self.union(p, scratch) };
        let mut count = Count::default();
        let (row_ptr, col) = (a.row_ptr(), a.col());
        for (k, &i) in self.subdomains.rows(p).iter().enumerate() {
            let row = &col[row_ptr[i as usize]..row_ptr[i as usize + 1]];
            let (mut inside, mut diagonal) = (0, false);
            for &j in row {
                let local = self.local(p, j);
                inside += usize::from(local.is_some());
                diagonal |= local == Some(k as u32);
            }
            count.stored += row.len();
            count.dropped += row.len() - inside;
            count.entries += inside + usize::from(!diagonal);
        }
        count
    }

    /// Analyses subdomain `p` and leaves the result in `scratch.found`.
    ///
    /// # Errors
    /// The limits and bounds of the thread that created this analysis.
    pub fn find(&self, p: usize, scratch: &mut Scratch) -> Result<()> {
        let n = self.subdomains.rows(p).len();
        match self.matrices[..] {
            [a] => self.inside(a, p, scratch),
            _ => _ = self.union(p, scratch),
        }
        let Scratch { found, level, diagonal, .. } = scratch;
        let width = found.pattern.levels_into(diagonal, level);
        found.order.clear();
        if let Some((order, pattern)) = order::choose(&found.pattern, level, width) {
            (found.order, found.pattern) = (order, pattern);
        }
        if self.fill > 0 {
            found.pattern = std::mem::take(&mut found.pattern).filled(self.fill, &self.allowance)?;
        }
        if self.fill > 0 || !found.order.is_empty() {
            diagonal.clear();
            diagonal.extend((0..n).map(|i| found.pattern.diagonal(i)));
            found.pattern.levels_into(diagonal, level);
        }
        order::by_level(level, &mut found.by_level, &mut found.levels);
        Ok(())
    }

    /// Gathers the entries of one matrix inside subdomain `p`, and adds missing diagonal entries.
    fn inside(&self, a: &Bsr, p: usize, scratch: &mut Scratch) {
        let (pattern, diagonal) = (&mut scratch.found.pattern, &mut scratch.diagonal);
        let (row_ptr, col) = (a.row_ptr(), a.col());
        let rows = self.subdomains.rows(p);
        let most = rows.iter().map(|&i| row_ptr[i as usize + 1] - row_ptr[i as usize] + 1).sum::<usize>() + 1;
        pattern.row_ptr.clear();
        pattern.row_ptr.push(0);
        diagonal.clear();
        pattern.col.resize(most, 0);
        pattern.from.resize(most, 0);
        let mut at = 0;
        for (k, &i) in rows.iter().enumerate() {
            let begin = at;
            let (k, mut lower) = (k as u32, 0);
            let range = row_ptr[i as usize]..row_ptr[i as usize + 1];
            for (e, &j) in (range.start as u32..).zip(&col[range]) {
                let local = self.local(p, j);
                // The entry is always written, without a branch. It is kept only if `at` is incremented.
                pattern.col[at] = local.unwrap_or(0);
                pattern.from[at] = e;
                at += usize::from(local.is_some());
                lower += usize::from(local.is_some_and(|local| local < k));
            }
            let place = begin + lower;
            if place == at || pattern.col[place] != k {
                pattern.col.copy_within(place..at, place + 1);
                pattern.from.copy_within(place..at, place + 1);
                (pattern.col[place], pattern.from[place]) = (k, NONE);
                at += 1;
            }
            diagonal.push(place);
            pattern.row_ptr.push(at);
        }
        pattern.col.truncate(at);
        pattern.from.truncate(at);
    }

    /// Does the same as [`inside`](Self::inside) for the union of several patterns.
    fn union(&self, p: usize, scratch: &mut Scratch) -> Count {
        let Scratch { found: Found { pattern, sources, .. }, diagonal, .. } = scratch;
        sources.resize(self.matrices.len(), Vec::new());
        sources.iter_mut().for_each(Vec::clear);
        pattern.row_ptr.clear();
        pattern.row_ptr.push(0);
        pattern.col.clear();
        diagonal.clear();
        let mut count = Count::default();
        let mut next = vec![0usize; self.matrices.len()];
        for (k, &i) in self.subdomains.rows(p).iter().enumerate() {
            let i = i as usize;
            next.iter_mut().zip(&self.matrices).for_each(|(next, a)| *next = a.row_ptr()[i]);
            let left = |(next, a): (&usize, &&Bsr)| (*next < a.row_ptr()[i + 1]).then(|| a.col()[*next]);
            let mut passed = false;
            let add_diagonal = |pattern: &mut Pattern, sources: &mut [Vec<u32>]| {
                pattern.col.push(k as u32);
                sources.iter_mut().for_each(|s| s.push(NONE));
            };
            // j is the lowest remaining column of any term.
            while let Some(j) = next.iter().zip(&self.matrices).filter_map(left).min() {
                count.stored += 1;
                let local = self.local(p, j);
                match local {
                    None => count.dropped += 1,
                    Some(local) => {
                        if !passed && local as usize >= k {
                            passed = true;
                            diagonal.push(pattern.col.len());
                            if local as usize > k {
                                add_diagonal(pattern, sources);
                            }
                        }
                        pattern.col.push(local);
                    }
                }
                for ((next, a), sources) in next.iter_mut().zip(&self.matrices).zip(&mut *sources) {
                    let here = left((next, a)) == Some(j);
                    if local.is_some() {
                        sources.push(if here { *next as u32 } else { NONE });
                    }
                    *next += usize::from(here);
                }
            }
            if !passed {
                diagonal.push(pattern.col.len());
                add_diagonal(pattern, sources);
            }
            pattern.row_ptr.push(pattern.col.len());
        }
        pattern.from.clear();
        pattern.from.extend(0..pattern.col.len() as u32);
        count.entries = pattern.col.len();
        count
    }

    /// Writes the result for subdomain `p` to its slices; `first` is the number of its first entry.
    pub fn write(&self, p: usize, found: &Found, first: usize, to: Places, place: &mut Vec<u32>) {
        let rows = self.subdomains.rows(p);
        let Found { pattern, sources, order, by_level, .. } = found;
        let Places { rows: to_rows, row_ptr, diagonal, columns, sources: mut to_sources } = to;
        let several = self.matrices.len() > 1;
        place.resize(rows.len(), 0);
        by_level.iter().enumerate().for_each(|(position, &k)| place[k as usize] = position as u32);
        let mut at = 0;
        let mut sorted: Vec<u64> = Vec::new();
        for (position, &k) in by_level.iter().enumerate() {
            let natural = if order.is_empty() { k } else { order[k as usize] };
            to_rows[position] = rows[natural as usize];
            let range = pattern.row_ptr[k as usize]..pattern.row_ptr[k as usize + 1];
            let (col, from) = (&pattern.col[range.clone()], &pattern.from[range]);
            let end = at + col.len();
            let columns = &mut columns[at..end];
            let (mut before, mut last, mut ascending) = (0, None, true);
            for (to, &j) in columns.iter_mut().zip(col) {
                let j = place[j as usize];
                *to = j;
                before += usize::from((j as usize) < position);
                ascending &= last < Some(j);
                last = Some(j);
            }
            if ascending {
                to_sources[0][at..end].copy_from_slice(from);
            } else {
                sorted.clear();
                sorted.extend(columns.iter().zip(from).map(|(&j, &from)| keyed(j, from)));
                sorted.sort_unstable();
                for (e, &key) in sorted.iter().enumerate() {
                    (columns[e], to_sources[0][at + e]) = unkeyed(key);
                }
            }
            diagonal[position] = first + at + before;
            row_ptr[position] = first + end;
            at = end;
        }
        // Converts numbers of entries of the union to numbers of blocks of each matrix. Terms that share a
        // pattern share these numbers.
        let (one, others) = to_sources.split_at_mut(1);
        for (t, other) in others.iter_mut().enumerate() {
            if several {
                let source = |&e: &u32| if e == NONE { NONE } else { sources[t + 1][e as usize] };
                other.iter_mut().zip(&*one[0]).for_each(|(to, e)| *to = source(e));
            } else {
                other.copy_from_slice(one[0]);
            }
        }
        if several {
            one[0].iter_mut().filter(|e| **e != NONE).for_each(|e| *e = sources[0][*e as usize]);
        }
    }
}

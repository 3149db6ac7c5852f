//! What factors need that values do not change: patterns, order and levels of every subdomain.

use super::fill::{NONE, Pattern};
use super::order;
use crate::operator::{TermValues, Terms, check_count};
use crate::partition::Subdomains;
use crate::{Error, Result};
use rayon::prelude::*;

/// Everything about the factors of all subdomains that values do not change.
///
/// Inside a subdomain rows are numbered by level: its local numbers, called positions here, are consecutive in each
/// level. Levels come from the symmetrised pattern with its fill, so the same ones serve L and U, and elimination by
/// position is elimination in the order chosen: coupled rows keep it.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Order of a block, b·s.
    pub order: usize,
    /// Own block rows.
    pub block_rows: usize,
    /// Subdomain p holds positions `ptr[p]..ptr[p + 1]`.
    pub ptr: Vec<usize>,
    /// Own block row at each position.
    pub rows: Vec<u32>,
    /// Subdomain p has levels `level_ptr[p]..level_ptr[p + 1]`.
    pub level_ptr: Vec<usize>,
    /// First position of each level, relative to the subdomain's first; a level ends where the next begins, the last
    /// with its subdomain.
    pub levels: Vec<u32>,
    /// Position → entries; `block_rows + 1` long.
    pub row_ptr: Vec<usize>,
    /// Column of each entry as a position relative to its subdomain's first; ascending in a row, the diagonal included.
    pub columns: Vec<u32>,
    /// Position → its diagonal entry.
    pub diagonal: Vec<usize>,
    /// For each term: entry → number of its block in that matrix's values, or `u32::MAX` where it has none.
    pub sources: Vec<Vec<u32>>,
    /// Stored blocks of the union of the patterns that couple subdomains, ghost columns included.
    pub dropped: usize,
    /// Stored blocks of the union of the patterns, ghost columns included.
    pub stored: usize,
    /// Stored blocks of each term's matrix.
    pub blocks: Vec<usize>,
    /// Row pointers of each term's matrix; of the first alone where all patterns are the same.
    pub matrix_rows: Vec<Vec<usize>>,
}

/// One subdomain's share of a plan; positions and entries are relative to its first.
struct Local {
    order: Vec<u32>,
    levels: Vec<u32>,
    row_ptr: Vec<usize>,
    columns: Vec<u32>,
    sources: Vec<Vec<u32>>,
    dropped: usize,
    stored: usize,
}

/// Subdomains analysed before their results are put behind each other.
const BATCH: usize = 4096;

impl Plan {
    /// Analyses every subdomain with ILU(`fill`), in parallel; the result does not depend on threads.
    ///
    /// # Errors
    /// A matrix that is not square, blocks of order above 32, more than 2³² − 2 stored blocks, or subdomains of
    /// another number of block rows.
    pub fn new(terms: &Terms, subdomains: &Subdomains, fill: usize) -> Result<Self> {
        let (n, order) = (terms.block_rows(), terms.block() * terms.stages());
        check_count(terms.terms.len())?;
        if !terms.is_square() {
            return Err(Error::invalid("a preconditioner needs a square matrix"));
        }
        if subdomains.block_rows() != n {
            return Err(Error::invalid(format!(
                "subdomains of {} block rows for a matrix of {n}",
                subdomains.block_rows()
            )));
        }
        if order > MAX_ORDER {
            return Err(Error::Unsupported(format!(
                "incomplete factors with blocks of order {order}; the largest is {MAX_ORDER}: use a smaller block size \
                 or fewer stages"
            )));
        }
        let blocks: Vec<usize> = terms.terms.iter().map(|t| t.1.blocks()).collect();
        if let Some(most) = blocks.iter().find(|&&b| b >= u32::MAX as usize) {
            return Err(Error::Unsupported(format!(
                "incomplete factors of a matrix with {most} stored blocks; the most is 2³² − 2: use more ranks"
            )));
        }
        // Subdomain of each own row, and its place there.
        let mut home = vec![(0u32, 0u32); n];
        for p in 0..subdomains.count() {
            for (k, &i) in subdomains.rows(p).iter().enumerate() {
                home[i as usize] = (p as u32, k as u32);
            }
        }
        let mut plan = Self {
            order,
            block_rows: n,
            ptr: vec![0],
            rows: Vec::with_capacity(n),
            level_ptr: vec![0],
            levels: Vec::new(),
            row_ptr: vec![0],
            columns: Vec::new(),
            diagonal: Vec::with_capacity(n),
            sources: vec![Vec::new(); terms.terms.len()],
            dropped: 0,
            stored: 0,
            blocks,
            matrix_rows: Vec::new(),
        };
        let shared = terms.shared_pattern();
        let patterns = if shared { 1 } else { terms.terms.len() };
        plan.matrix_rows = terms.terms[..patterns].iter().map(|t| t.1.row_ptr().to_vec()).collect();
        let all: Vec<usize> = (0..subdomains.count()).collect();
        for batch in all.chunks(BATCH) {
            let analysed: Vec<Local> = batch
                .par_iter()
                .map(|&p| analyse(terms, shared, &home, p as u32, subdomains.rows(p), fill))
                .collect();
            for (local, &p) in analysed.iter().zip(batch) {
                plan.append(local, subdomains.rows(p));
            }
        }
        Ok(plan)
    }

    /// Puts one subdomain behind the others.
    fn append(&mut self, local: &Local, rows: &[u32]) {
        let first = self.columns.len();
        self.rows.extend(local.order.iter().map(|&k| rows[k as usize]));
        self.ptr.push(self.rows.len());
        self.levels.extend_from_slice(&local.levels);
        self.level_ptr.push(self.levels.len());
        self.row_ptr.extend(local.row_ptr[1..].iter().map(|&e| first + e));
        self.columns.extend_from_slice(&local.columns);
        for (i, w) in local.row_ptr.windows(2).enumerate() {
            let row = &local.columns[w[0]..w[1]];
            self.diagonal.push(first + w[0] + row.partition_point(|&j| (j as usize) < i));
        }
        for (to, from) in self.sources.iter_mut().zip(&local.sources) {
            to.extend_from_slice(from);
        }
        self.dropped += local.dropped;
        self.stored += local.stored;
    }

    /// Subdomains.
    pub fn count(&self) -> usize {
        self.ptr.len() - 1
    }

    /// Blocks of the factors: L, D and U.
    pub fn entries(&self) -> usize {
        self.columns.len()
    }

    /// Blocks of the factors over stored blocks of the matrix.
    pub fn fill(&self) -> f64 {
        if self.stored > 0 { self.columns.len() as f64 / self.stored as f64 } else { 1.0 }
    }

    /// Block rows of the largest subdomain.
    pub fn largest(&self) -> usize {
        self.ptr.windows(2).map(|w| w[1] - w[0]).max().unwrap_or(0)
    }

    /// Refuses values of another shape than those of the terms that the plan was made for.
    ///
    /// # Errors
    /// Another order of blocks, number of terms, or of stored blocks.
    pub fn check(&self, values: &TermValues) -> Result<()> {
        let (stages, block) = (values.stages(), self.block(values));
        // An order that the stages do not divide leaves no block size, and no number of values fits.
        let size = if block * stages == self.order { block * block } else { usize::MAX };
        values.check(stages, self.blocks.iter().map(|&blocks| blocks.saturating_mul(size)))
    }

    /// Block size b of values that belong to the plan.
    pub(crate) fn block(&self, values: &TermValues) -> usize {
        self.order / values.stages().max(1)
    }
}

/// The largest order of a block.
pub(crate) const MAX_ORDER: usize = 32;

/// Pattern, order and levels of subdomain `p`.
fn analyse(terms: &Terms, shared: bool, home: &[(u32, u32)], p: u32, rows: &[u32], fill: usize) -> Local {
    let (union, mut sources, dropped, stored) = union(terms, shared, home, p, rows);
    let ordered = order::choose(&union);
    let mut pattern = match &ordered {
        Some(order) => union.permuted(order),
        None => union,
    };
    if fill > 0 {
        pattern = pattern.filled(fill);
    }
    let (by_level, levels) = order::by_level(&pattern.levels());
    let pattern = pattern.permuted(&by_level);
    let order = match ordered {
        Some(order) => by_level.iter().map(|&k| order[k as usize]).collect(),
        None => by_level,
    };
    for sources in &mut sources {
        *sources = pattern.from.iter().map(|&e| if e == NONE { NONE } else { sources[e as usize] }).collect();
    }
    if shared {
        sources.push(sources[0].clone());
    }
    Local { order, levels, row_ptr: pattern.row_ptr, columns: pattern.col, sources, dropped, stored }
}

/// The union of the terms' patterns within a subdomain, rows by ascending own number; for each term which block each
/// entry is (of the first alone where all patterns are the same); blocks dropped, and stored.
fn union(
    terms: &Terms,
    shared: bool,
    home: &[(u32, u32)],
    p: u32,
    rows: &[u32],
) -> (Pattern, Vec<Vec<u32>>, usize, usize) {
    let all = if shared { &terms.terms[..1] } else { &terms.terms[..] };
    let mut pattern = Pattern { row_ptr: vec![0], col: Vec::new(), from: Vec::new() };
    let mut sources = vec![Vec::new(); all.len()];
    let (mut dropped, mut stored) = (0, 0);
    let mut next = vec![0usize; all.len()];
    for (k, &i) in rows.iter().enumerate() {
        let i = i as usize;
        next.iter_mut().zip(all).for_each(|(next, (_, a))| *next = a.row_ptr()[i]);
        let mut diagonal = false;
        let push = |pattern: &mut Pattern, j: u32| {
            pattern.from.push(pattern.col.len() as u32);
            pattern.col.push(j);
        };
        loop {
            // The lowest column that is left in any term.
            let column = |(next, (_, a)): (&usize, &(_, std::borrow::Cow<crate::matrix::Bsr>))| {
                (*next < a.row_ptr()[i + 1]).then(|| a.col()[*next])
            };
            let Some(j) = next.iter().zip(all).filter_map(column).min() else { break };
            stored += 1;
            let local = home.get(j as usize).filter(|home| home.0 == p).map(|home| home.1);
            match local {
                None => dropped += 1,
                Some(local) => {
                    if !diagonal && local as usize >= k {
                        if local as usize > k {
                            push(&mut pattern, k as u32);
                            sources.iter_mut().for_each(|s| s.push(NONE));
                        }
                        diagonal = true;
                    }
                    push(&mut pattern, local);
                }
            }
            for ((next, (_, a)), sources) in next.iter_mut().zip(all).zip(&mut sources) {
                let here = *next < a.row_ptr()[i + 1] && a.col()[*next] == j;
                if local.is_some() {
                    sources.push(if here { *next as u32 } else { NONE });
                }
                *next += usize::from(here);
            }
        }
        if !diagonal {
            push(&mut pattern, k as u32);
            sources.iter_mut().for_each(|s| s.push(NONE));
        }
        pattern.row_ptr.push(pattern.col.len());
    }
    (pattern, sources, dropped, stored)
}

//! The transpose Mᵀ = Σ_k (R_k^δ)ᵀ (A_k)⁻ᵀ R_k⁰: the pattern of the transposed factors, and the way of results
//! to the owners of their nodes.
//!
//! A row gets its node's number if it gives the node's result in M, and zero otherwise. The results of all
//! rows are added on their nodes. Sums for nodes of other ranks travel back along the halo. Every sum has a
//! fixed order.

use super::SchwarzPlan;
use crate::halo::Halo;
use crate::{Error, Result};
use rayon::prelude::*;
use std::ops::Range;

/// Pattern of factors by rows, in the form of [`SchwarzPlan`].
#[derive(Clone, Copy)]
pub(crate) struct Rows<'a> {
    /// First entry of each row, and the end.
    pub row_ptr: &'a [i64],
    /// Columns, ascending within a row.
    pub column: &'a [u32],
    /// Position of each row's diagonal in `column`.
    pub diagonal: &'a [i64],
}

impl Rows<'_> {
    /// Returns the number of rows.
    pub fn len(&self) -> usize {
        self.diagonal.len()
    }

    /// Returns the entries left of the diagonal.
    #[inline(always)]
    pub fn lower(&self, row: usize) -> Range<usize> {
        self.row_ptr[row] as usize..self.diagonal[row] as usize
    }

    /// Returns the entries right of the diagonal.
    #[inline(always)]
    pub fn upper(&self, row: usize) -> Range<usize> {
        self.diagonal[row] as usize + 1..self.row_ptr[row + 1] as usize
    }
}

/// The pattern Sᵀ.
pub(crate) struct Turned {
    row_ptr: Vec<i64>,
    column: Vec<u32>,
    diagonal: Vec<i64>,
    /// For each entry of Sᵀ, its entry of S.
    pub from: Vec<u32>,
}

impl Turned {
    /// Transposes the pattern of a plan, each subdomain alone.
    ///
    /// # Errors
    /// More entries than 32-bit numbers can count.
    pub fn of(plan: &SchwarzPlan) -> Result<Self> {
        let (rows, entries) = (plan.rows(), plan.entries());
        if entries > u32::MAX as usize {
            return Err(Error::Unsupported(format!(
                "the factors of ras have {entries} blocks on one rank; a transpose supports 2³² − 1: use more ranks"
            )));
        }
        let mut turned = Self {
            row_ptr: vec![0; rows + 1],
            column: vec![0; entries],
            diagonal: vec![0; rows],
            from: vec![0; entries],
        };
        let mut rest = (
            &mut turned.row_ptr[1..],
            &mut turned.diagonal[..],
            &mut turned.column[..],
            &mut turned.from[..],
        );
        let mut parts = Vec::with_capacity(plan.count());
        for own in plan.subdomains.windows(2).map(|w| w[0] as usize..w[1] as usize) {
            // A subdomain has the same entries in S and in Sᵀ.
            let first = plan.row_ptr[own.start] as usize;
            let count = plan.row_ptr[own.end] as usize - first;
            let (ends, more_ends) = rest.0.split_at_mut(own.len());
            let (diagonal, more_diagonal) = rest.1.split_at_mut(own.len());
            let (column, more_columns) = rest.2.split_at_mut(count);
            let (from, more_from) = rest.3.split_at_mut(count);
            rest = (more_ends, more_diagonal, more_columns, more_from);
            parts.push((own, first, ends, diagonal, column, from));
        }
        parts.into_par_iter().for_each(|(own, first, ends, diagonal, column, from)| {
            let entries = |i: usize| plan.row_ptr[i] as usize..plan.row_ptr[i + 1] as usize;
            ends.fill(0);
            for &j in &plan.column[first..first + column.len()] {
                ends[j as usize - own.start] += 1;
            }
            // Each number becomes the place of its row's next entry, and in the end the end of its row.
            let mut sum = 0;
            ends.iter_mut().for_each(|end| sum += std::mem::replace(end, sum));
            for i in own.clone() {
                for e in entries(i) {
                    let j = plan.column[e] as usize - own.start;
                    let at = ends[j] as usize;
                    (column[at], from[at]) = (i as u32, e as u32);
                    if j == i - own.start {
                        diagonal[j] = (first + at) as i64;
                    }
                    ends[j] += 1;
                }
            }
            ends.iter_mut().for_each(|end| *end += first as i64);
        });
        Ok(turned)
    }

    /// Returns its rows.
    pub fn rows(&self) -> Rows<'_> {
        Rows { row_ptr: &self.row_ptr, column: &self.column, diagonal: &self.diagonal }
    }
}

/// The numbers that are added for each node, own nodes before imported ones. Number k is the result of row k
/// or, behind all rows, one that arrived from another rank.
pub(crate) struct Sums {
    /// First number of each node in `number`, and the end.
    pub ptr: Vec<u32>,
    /// Ascending for each node.
    pub number: Vec<u32>,
}

impl Sums {
    /// Lists the numbers of each node of a plan. Those that arrive are in the order of the halo's nodes to
    /// send.
    ///
    /// # Errors
    /// More numbers than 32 bits can count.
    pub fn of(plan: &SchwarzPlan) -> Result<Self> {
        let (rows, halo) = (plan.rows(), &plan.nodes);
        if rows + halo.send.len() > u32::MAX as usize {
            return Err(Error::Unsupported("ras has too many rows on one rank; use more ranks".into()));
        }
        let all = || plan.node.iter().chain(&halo.send).zip(0u32..);
        let mut ptr = vec![0u32; halo.own + halo.ghosts + 1];
        all().for_each(|(&node, _)| ptr[node as usize + 1] += 1);
        for node in 1..ptr.len() {
            ptr[node] += ptr[node - 1];
        }
        let (mut next, mut number) = (ptr.clone(), vec![0; rows + halo.send.len()]);
        for (&node, k) in all() {
            number[next[node as usize] as usize] = k;
            next[node as usize] += 1;
        }
        Ok(Self { ptr, number })
    }
}

/// Returns the halo of the way back: ghosts return to their owners.
pub(crate) fn way_back(halo: &Halo) -> Halo {
    let mut back = Halo { own: halo.ghosts, ghosts: halo.send.len(), ..Halo::default() };
    back.send = (0..halo.ghosts as u32).collect();
    back.neighbours.clone_from(&halo.neighbours);
    back.neighbours.iter_mut().for_each(|n| std::mem::swap(&mut n.send, &mut n.receive));
    back
}

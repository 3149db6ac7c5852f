//! The transpose Mᵀ = Σ_k (R_k^δ)ᵀ (A_k)⁻ᵀ R_k⁰: the pattern of the transposed factors, and the way of
//! results to the owners of their nodes.
//!
//! A row gets its node's number if it gives the node's result in M, and zero otherwise. The results of all
//! rows are added on their nodes. Sums for nodes of other ranks travel back along the halo. Every sum has a
//! fixed order.

use super::SchwarzPlan;
use crate::operator::turned_here;
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
    /// Transposes the pattern of a plan.
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
        let starts: Vec<usize> = plan.row_ptr.par_iter().map(|&start| start as usize).collect();
        let found = turned_here(&starts, &plan.column, rows);
        let diagonal = |i: usize| {
            let own = found.row_ptr[i]..found.row_ptr[i + 1];
            (own.start + found.col[own].partition_point(|&j| (j as usize) < i)) as i64
        };
        Ok(Self {
            diagonal: (0..rows).into_par_iter().map(diagonal).collect(),
            row_ptr: found.row_ptr.par_iter().map(|&start| start as i64).collect(),
            from: found.numbers.par_iter().map(|&entry| entry as u32).collect(),
            column: found.col,
        })
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

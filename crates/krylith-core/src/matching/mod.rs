//! Maximum-product matching: a row permutation that maximises the product of the magnitudes of the diagonal,
//! and scales with which no entry exceeds that diagonal. Source: Duff and Koster 2001, On algorithms for
//! permuting large entries to the diagonal of a sparse matrix, SIAM J. Matrix Anal. Appl. 22(4); job 5 of
//! MC64.
//!
//! With costs c_ij = ln max_j|a_ij| − ln|a_ij| ≥ 0, a matching of largest product is one of least cost. Dual
//! variables with uᵢ + vⱼ ≤ c_ij, and equality on the matching, prove optimality. They also give the scales:
//! |rᵢ a_ij cⱼ| = exp(uᵢ + vⱼ − c_ij) ≤ 1. First, a row is matched with its diagonal entry, or another entry,
//! if the reduced cost is zero. Unmatched rows then try to move one matched row. The remaining rows are
//! matched by shortest augmenting paths in the reduced costs c_ij − uᵢ − vⱼ ≥ 0, with a heap. If the diagonal
//! is nearly optimal, this takes a few passes over the entries. One thread computes the matching, and it is
//! the same on every run.
//!
//! [`Matching`] is the result; the option `matching=on` makes a solver use it ([`MatchingChoice`]).
//!
//! Memory: one cost per entry during the computation, freed before the scaled copy is created, and about ten
//! numbers per row.

pub(crate) mod gathered;
mod paths;
#[cfg(test)]
mod tests;

use crate::matrix::Csr;
use crate::{Error, Result};
use rayon::prelude::*;
use std::cell::RefCell;
use std::sync::Arc;

/// No row, or no column.
const NONE: u32 = u32::MAX;

/// Use of a row matching before the preconditioner is built.
///
/// # Examples
/// ```
/// use krylith::options::MatchingChoice;
/// assert_eq!("auto".parse::<MatchingChoice>()?, MatchingChoice::Auto);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MatchingChoice {
    /// Matches rows if `auto` chooses the preconditioner and diagonal entries are zero or small.
    #[default]
    Auto,
    /// Matches rows, or returns an error if that is not possible.
    On,
    /// Never matches rows.
    Off,
}

krylith_base::names! { MatchingChoice, "matching": Auto => "auto", On => "on", Off => "off" }

/// A row permutation, and the scales of rows and columns.
///
/// # Examples
/// ```
/// use krylith::matrix::Csr;
/// use krylith_core::matching::Matching;
/// // The rows are swapped: the diagonal has a zero.
/// let a = Csr::from_triplets(2, 2, &[(0, 1, 4.0), (1, 0, 5.0), (1, 1, 1.0)])?;
/// let matching = Matching::of(&a)?;
/// assert_eq!(matching.rows(), [1, 0]);
/// let b = matching.scaled(&a)?;
/// assert!((b.get(0, 0) - 1.0).abs() < 1e-12 && (b.get(1, 1) - 1.0).abs() < 1e-12);
/// assert!(matching.unmatched().is_empty());
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Matching {
    /// The row at each position of the diagonal.
    rows: Vec<u32>,
    /// Unmatched rows, ascending.
    unmatched: Vec<u32>,
    /// Logarithms of row scales, ln r.
    log_rows: Vec<f64>,
    /// Logarithms of column scales, ln c.
    log_columns: Vec<f64>,
}

/// Cache of the matching for the current values, shared by all attempts; it also keeps a failure.
#[derive(Default)]
pub(crate) struct MatchingFound(RefCell<Option<Result<Arc<Matching>, TooLong>>>);

/// The fields of [`Error::TooLong`], to create it repeatedly.
type TooLong = (&'static str, f64, &'static str);

impl MatchingFound {
    /// Returns the matching of `a`, which must be the matrix of the last call unless [`forget`](Self::forget)
    /// was called in between.
    ///
    /// # Errors
    /// As [`Matching::of`].
    pub fn or_find(&self, a: &Csr) -> Result<Arc<Matching>> {
        let known = self.0.borrow().clone();
        let found = match known {
            Some(found) => found,
            None => match Matching::of(a) {
                Ok(matching) => Ok(Arc::new(matching)),
                Err(Error::TooLong { what, operations, remedy }) => Err((what, operations, remedy)),
                Err(e) => return Err(e),
            },
        };
        *self.0.borrow_mut() = Some(found.clone());
        found.map_err(|(what, operations, remedy)| Error::TooLong { what, operations, remedy })
    }

    /// Clears the cache, because values changed.
    pub fn forget(&self) {
        *self.0.borrow_mut() = None;
    }
}

impl Matching {
    /// Computes the matching of a square matrix. Stored zeros count as absent. If the matrix is structurally
    /// singular, as many rows as possible are matched, and the others fill the remaining positions in
    /// ascending order.
    ///
    /// # Errors
    /// A matrix that is not square, or an entry that is not finite; within a solver's set-up, a computation
    /// that takes too long.
    pub fn of(a: &Csr) -> Result<Self> {
        let n = a.rows();
        if a.columns() != n {
            return Err(Error::invalid(format!(
                "a matching needs a square matrix; this one has {n} rows and {} columns",
                a.columns()
            )));
        }
        a.check_finite()?;
        let (costs, maxima) = costs(a);
        let found = paths::least_cost(a.row_ptr(), a.col(), &costs, n)?;
        let unmatched: Vec<u32> = (0..n as u32).filter(|&i| found.column_of[i as usize] == NONE).collect();
        let mut rows = found.row_of;
        let mut left = unmatched.iter();
        for row in rows.iter_mut().filter(|row| **row == NONE) {
            *row = *left.next().expect("as many positions as unmatched rows");
        }
        // c_ij is relative to the row's largest entry.
        let mut log_rows: Vec<f64> = found.u.iter().zip(&maxima).map(|(u, max)| u - max).collect();
        let mut log_columns = found.v;
        centre(&mut log_rows, &mut log_columns);
        Ok(Self { rows, unmatched, log_rows, log_columns })
    }

    /// Returns the row of A at each position of the diagonal: a permutation.
    pub fn rows(&self) -> &[u32] {
        &self.rows
    }

    /// Returns the unmatched rows in ascending order; none unless A is structurally singular.
    pub fn unmatched(&self) -> &[u32] {
        &self.unmatched
    }

    /// Returns the scales of the rows, by their numbers in A, clamped to [e^−700, e^700].
    pub fn row_scales(&self) -> Vec<f64> {
        self.log_rows.iter().map(|v| held(*v)).collect()
    }

    /// Returns the scales of the columns, clamped to [e^−700, e^700].
    pub fn column_scales(&self) -> Vec<f64> {
        self.log_columns.iter().map(|v| held(*v)).collect()
    }

    /// Returns P D_r A D_c, whose magnitudes are at most 1, and 1 on the diagonal, up to rounding. Unmatched
    /// rows get a one on the diagonal, where they have no entry, so that the result can be factorised.
    ///
    /// # Errors
    /// A matrix of another order.
    pub fn scaled(&self, a: &Csr) -> Result<Csr> {
        let n = self.rows.len();
        if (a.rows(), a.columns()) != (n, n) {
            let (rows, columns) = (a.rows(), a.columns());
            return Err(Error::invalid(format!(
                "the matrix is {rows}×{columns}, but the matching was computed for a {n}×{n} matrix"
            )));
        }
        let mut row_ptr = Vec::with_capacity(n + 1);
        row_ptr.push(0);
        let mut col = Vec::with_capacity(a.nonzeros());
        for (place, &i) in self.rows.iter().enumerate() {
            let (own, place) = (a.row(i as usize).0, place as u32);
            match own.binary_search(&place) {
                Err(at) if self.is_unmatched(i) => {
                    col.extend_from_slice(&own[..at]);
                    col.push(place);
                    col.extend_from_slice(&own[at..]);
                }
                _ => col.extend_from_slice(own),
            }
            row_ptr.push(col.len());
        }
        let mut values = vec![0.0; col.len()];
        let strips = strips(&row_ptr, &mut values);
        strips
            .into_par_iter()
            .for_each(|(place, strip)| self.scale_row(a, &col[row_ptr[place]..], place, strip));
        Csr::new(n, n, row_ptr, col, values)
    }

    /// Computes the scaled values of the row at position `place`.
    fn scale_row(&self, a: &Csr, col: &[u32], place: usize, to: &mut [f64]) {
        let row = self.rows[place];
        let (i, unmatched) = (row as usize, self.is_unmatched(row));
        let own = a.row(i).1;
        for (k, (to, &j)) in to.iter_mut().zip(col).enumerate() {
            let v = if unmatched { a.get(i, j as usize) } else { own[k] };
            // Use logarithms, because the product of three factors could overflow.
            let scaled = (self.log_rows[i] + v.abs().ln() + self.log_columns[j as usize]).exp();
            *to = match v == 0.0 {
                true => f64::from(unmatched && j as usize == place),
                false => scaled.min(f64::MAX).copysign(v),
            };
        }
    }

    fn is_unmatched(&self, row: u32) -> bool {
        self.unmatched.binary_search(&row).is_ok()
    }
}

/// Splits values into the rows of a pattern.
fn strips<'a>(row_ptr: &[usize], mut values: &'a mut [f64]) -> Vec<(usize, &'a mut [f64])> {
    let mut strips = Vec::with_capacity(row_ptr.len());
    for (i, ends) in row_ptr.windows(2).enumerate() {
        let (row, rest) = values.split_at_mut(ends[1] - ends[0]);
        values = rest;
        strips.push((i, row));
    }
    strips
}

/// Returns e^v, with v clamped to avoid overflow and underflow.
fn held(v: f64) -> f64 {
    v.clamp(-700.0, 700.0).exp()
}

/// Computes ln max_j|a_ij| − ln|a_ij| of every entry (infinite for zeros), and ln max_j|a_ij| of every row (0
/// for empty rows).
fn costs(a: &Csr) -> (Vec<f64>, Vec<f64>) {
    let n = a.rows();
    let largest = |i: usize| a.row(i).1.iter().fold(0.0f64, |max, v| max.max(v.abs()));
    let log = |max: f64| if max > 0.0 { max.ln() } else { 0.0 };
    let maxima: Vec<f64> = (0..n).into_par_iter().map(|i| log(largest(i))).collect();
    let mut costs = vec![0.0; a.nonzeros()];
    strips(a.row_ptr(), &mut costs).into_par_iter().for_each(|(i, costs)| {
        for (cost, v) in costs.iter_mut().zip(a.row(i).1) {
            // ln 0 is −∞.
            *cost = (maxima[i] - v.abs().ln()).max(0.0);
        }
    });
    (costs, maxima)
}

/// Balances row scales against column scales, so that both are about equally far from 1.
fn centre(rows: &mut [f64], columns: &mut [f64]) {
    let middle = |all: &[f64]| {
        let extent = all.iter().fold([f64::INFINITY, f64::NEG_INFINITY], |[a, b], v| [a.min(*v), b.max(*v)]);
        if all.is_empty() { 0.0 } else { 0.5 * (extent[0] + extent[1]) }
    };
    let shift = 0.5 * (middle(columns) - middle(rows));
    rows.iter_mut().for_each(|v| *v += shift);
    columns.iter_mut().for_each(|v| *v -= shift);
}

//! Matrices as host data: formats, conversions, checks. Nothing here solves or multiplies.
//!
//! Row pointers are `usize` (64-bit), columns `u32`, values `f64`. Every constructor checks its arguments and
//! names the first entry that is wrong, so products need no checks.
//!
//! | type | what it stores |
//! |---|---|
//! | [`Csr`] | scalar rows |
//! | [`Bsr`] | rows of square blocks, one for each node and neighbour |
//! | [`Dia`] | diagonals |
//! | [`KroneckerSum`] | the parts of A⊗M + τB⊗L: a time step with stages and coefficients of [`Butcher`] |
//! | [`Dense`] | a small matrix |
//!
//! [`Shape`] and [`StructuralRank`] describe a pattern before a solve.

mod arrays;
mod bsr;
mod butcher;
#[cfg(any(feature = "faer", feature = "nalgebra-sparse", feature = "sprs"))]
mod convert;
mod csr;
mod dense;
mod dia;
mod grouping;
mod kronecker;
mod matching;
mod numbering;
mod shape;
mod signs;
#[doc(hidden)]
pub mod storage;
#[doc(hidden)]
pub mod zeros;

#[doc(hidden)]
pub use bsr::Arrays;
pub use bsr::Bsr;
pub use butcher::Butcher;
pub use csr::Csr;
pub use dense::Dense;
pub use dia::Dia;
pub use grouping::Grouping;
pub use kronecker::KroneckerSum;
pub use matching::StructuralRank;
pub use numbering::Numbering;
pub use shape::{Shape, WEAK_DIAGONAL};
pub use signs::rows_to_negate;
pub use zeros::ZerosChoice;

use crate::{Error, Result};
use rayon::prelude::*;

/// Largest block size for which every product and preconditioner has specialised code.
pub const MAX_BLOCK: usize = 8;

/// Checks the pattern of a compressed format: row pointers that never decrease, sorted and distinct columns
/// in range.
fn check_pattern(what: &str, rows: usize, columns: usize, row_ptr: &[usize], col: &[u32]) -> Result<()> {
    if row_ptr.len() != rows + 1 {
        return Err(Error::invalid(format!(
            "{what}: {} row pointers for {rows} rows; expected {}",
            row_ptr.len(),
            rows + 1
        )));
    }
    if row_ptr[0] != 0 || row_ptr[rows] != col.len() {
        return Err(Error::invalid(format!(
            "{what}: row pointers run from {} to {}; expected 0 to {}",
            row_ptr[0],
            row_ptr[rows],
            col.len()
        )));
    }
    // Both passes read the whole pattern, so all threads share them in runs of rows; the first wrong row is
    // reported.
    const ROWS: usize = 8192;
    let first = |wrong: &(dyn Fn(usize) -> bool + Sync)| {
        if rows <= ROWS {
            return (0..rows).find(|&i| wrong(i)); // too little work to wake other threads
        }
        let runs = (0..rows.div_ceil(ROWS)).into_par_iter();
        runs.find_map_first(|run| (run * ROWS..rows.min((run + 1) * ROWS)).find(|&i| wrong(i)))
    };
    if let Some(i) = first(&|i| row_ptr[i] > row_ptr[i + 1]) {
        return Err(Error::invalid(format!(
            "{what}: the pointer after row {i} is smaller than the pointer of the row; row pointers must \
             not decrease"
        )));
    }
    let wrong = |i: usize| {
        let row = &col[row_ptr[i]..row_ptr[i + 1]];
        row.last().is_some_and(|&j| j as usize >= columns) || row.windows(2).any(|w| w[0] >= w[1])
    };
    let Some(i) = first(&wrong) else { return Ok(()) };
    match col[row_ptr[i]..row_ptr[i + 1]].iter().find(|&&j| j as usize >= columns) {
        Some(j) => Err(Error::invalid(format!(
            "{what}: column {j} in row {i} is out of range; the matrix has {columns} columns, counted from 0"
        ))),
        None => Err(Error::invalid(format!(
            "{what}: the columns of row {i} are not sorted or repeat; sort them and add duplicates"
        ))),
    }
}

/// Length up to which one thread alone checks that numbers are finite.
#[doc(hidden)]
pub const FEW: usize = 1 << 16;

/// Position of the first value that is not finite.
#[doc(hidden)]
pub fn first_not_finite(values: &[f64]) -> Option<usize> {
    let look = |(c, chunk): (usize, &[f64])| {
        // A fold of flags instead of an early exit, so that the compiler can vectorise.
        let wrong = chunk.iter().fold(false, |wrong, v| wrong | !v.is_finite());
        if wrong { chunk.iter().position(|v| !v.is_finite()).map(|i| c * FEW + i) } else { None }
    };
    match values.len() <= FEW {
        true => look((0, values)), // too little work to wake threads, which may allocate
        false => values.par_chunks(FEW).enumerate().find_map_first(look),
    }
}

/// Fails if a vector holds a number that is not finite.
#[doc(hidden)]
pub fn check_finite(name: &str, vector: &[f64]) -> Result<()> {
    match first_not_finite(vector) {
        Some(i) => {
            Err(Error::invalid(format!("{name}: entry {i} is {}; every value must be finite", vector[i])))
        }
        None => Ok(()),
    }
}

/// Fails if the number of columns does not fit 32-bit indices.
fn check_columns(what: &str, columns: usize) -> Result<()> {
    if columns > u32::MAX as usize {
        return Err(Error::invalid(format!("{what}: {columns} columns do not fit 32-bit indices")));
    }
    Ok(())
}

//! Matrices as host data: formats, conversions, checks. Nothing here solves or multiplies.
//!
//! Row pointers are `usize` (64-bit), columns `u32`, values `f64`. Every constructor checks what it is given
//! and names the first entry that is wrong, so that products never need to.
//!
//! | type | what it stores |
//! |---|---|
//! | [`Csr`] | scalar rows |
//! | [`Bsr`] | rows of square blocks, one for each node and neighbour |
//! | [`Dia`] | diagonals |
//! | [`KroneckerSum`] | A⊗M + τB⊗L by its parts: a time step with stages, whose coefficients [`Butcher`] has |
//! | [`Dense`] | a small matrix |
//!
//! [`Shape`] and [`StructuralRank`] tell what a pattern is like before anything is solved.

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
mod shape;
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
pub use shape::Shape;
pub use zeros::ZerosChoice;

use crate::{Error, Result};
use rayon::prelude::*;

/// Largest block size that every product and preconditioner is specialised for.
pub const MAX_BLOCK: usize = 8;

/// Checks row pointers and columns of a compressed format: monotone pointers, sorted distinct columns in range.
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
    // Both passes read the whole pattern: on all threads, a run of rows each, and the first wrong row is named.
    const ROWS: usize = 8192;
    let first = |wrong: &(dyn Fn(usize) -> bool + Sync)| {
        if rows <= ROWS {
            return (0..rows).find(|&i| wrong(i)); // other threads are not woken for so little
        }
        let runs = (0..rows.div_ceil(ROWS)).into_par_iter();
        runs.find_map_first(|run| (run * ROWS..rows.min((run + 1) * ROWS)).find(|&i| wrong(i)))
    };
    if let Some(i) = first(&|i| row_ptr[i] > row_ptr[i + 1]) {
        return Err(Error::invalid(format!("{what}: the pointers of row {i} decrease")));
    }
    let wrong = |i: usize| {
        let row = &col[row_ptr[i]..row_ptr[i + 1]];
        row.last().is_some_and(|&j| j as usize >= columns) || row.windows(2).any(|w| w[0] >= w[1])
    };
    let Some(i) = first(&wrong) else { return Ok(()) };
    match col[row_ptr[i]..row_ptr[i + 1]].iter().find(|&&j| j as usize >= columns) {
        Some(j) => {
            Err(Error::invalid(format!("{what}: column {j} in row {i} is out of range; there are {columns}")))
        }
        None => Err(Error::invalid(format!("{what}: the columns of row {i} are not sorted or repeat"))),
    }
}

/// Numbers up to which no other thread is asked whether they are finite.
#[doc(hidden)]
pub const FEW: usize = 1 << 16;

/// Where the first value that is not finite stands.
#[doc(hidden)]
pub fn first_not_finite(values: &[f64]) -> Option<usize> {
    let look = |(c, chunk): (usize, &[f64])| {
        // A fold of flags and no early end, so that the compiler takes several at once.
        let wrong = chunk.iter().fold(false, |wrong, v| wrong | !v.is_finite());
        if wrong { chunk.iter().position(|v| !v.is_finite()).map(|i| c * FEW + i) } else { None }
    };
    match values.len() <= FEW {
        true => look((0, values)), // other threads are not woken for so little, which may allocate
        false => values.par_chunks(FEW).enumerate().find_map_first(look),
    }
}

/// Refuses a vector with a number that is not finite.
#[doc(hidden)]
pub fn check_finite(name: &str, vector: &[f64]) -> Result<()> {
    match first_not_finite(vector) {
        Some(i) => {
            Err(Error::invalid(format!("{name}: entry {i} is {}; every value must be finite", vector[i])))
        }
        None => Ok(()),
    }
}

/// Refuses dimensions that do not fit 32-bit columns.
fn check_columns(what: &str, columns: usize) -> Result<()> {
    if columns > u32::MAX as usize {
        return Err(Error::invalid(format!("{what}: {columns} columns do not fit 32-bit indices")));
    }
    Ok(())
}

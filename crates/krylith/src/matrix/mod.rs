//! Matrices as host data: formats, conversions, checks. Nothing here solves or multiplies.
//!
//! Row pointers are `usize` (64-bit), columns `u32`, values `f64`. Every constructor checks what it is given
//! and names the first entry that is wrong, so that products never need to.

mod bsr;
mod butcher;
mod csr;
mod dense;
mod dia;
mod kronecker;

pub use bsr::Bsr;
pub use butcher::Butcher;
pub use csr::Csr;
pub use dense::Dense;
pub use dia::Dia;
pub use kronecker::KroneckerSum;

use crate::{Error, Result};

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
    for i in 0..rows {
        if row_ptr[i] > row_ptr[i + 1] {
            return Err(Error::invalid(format!("{what}: the pointers of row {i} decrease")));
        }
    }
    for i in 0..rows {
        let row = &col[row_ptr[i]..row_ptr[i + 1]];
        for (p, &j) in row.iter().enumerate() {
            if j as usize >= columns {
                return Err(Error::invalid(format!(
                    "{what}: column {j} in row {i} is out of range; there are {columns}"
                )));
            }
            if p > 0 && row[p - 1] >= j {
                return Err(Error::invalid(format!(
                    "{what}: the columns of row {i} are not sorted or repeat"
                )));
            }
        }
    }
    Ok(())
}

/// Refuses dimensions that do not fit 32-bit columns.
fn check_columns(what: &str, columns: usize) -> Result<()> {
    if columns > u32::MAX as usize {
        return Err(Error::invalid(format!("{what}: {columns} columns do not fit 32-bit indices")));
    }
    Ok(())
}

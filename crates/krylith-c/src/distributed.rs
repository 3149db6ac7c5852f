//! Problems whose rows are distributed over the ranks of an MPI program.

use crate::arrays::{length, slice};
use crate::problem::Problem;
use crate::status::Result;
use krylith_core::comm::{Communicator, Mpi, agree};
use krylith_core::matrix::{Csr, Dense};
use krylith_core::partition::{RowBlocks, Rows};
use krylith_core::{Error, Problem as System};
use std::sync::Arc;

fn ranks(comm: i32) -> krylith_core::Result<Arc<dyn Communicator>> {
    // SAFETY: the caller promises the handle of a communicator that is not freed.
    Ok(unsafe { Mpi::from_handle(comm, None) }?)
}

pub fn csr(
    comm: i32,
    [rows, columns, entries]: [i64; 3],
    row_ptr: *const i64,
    col: *const i64,
    values: *const f64,
    block: i32,
) -> Result<Problem> {
    let comm = ranks(comm)?;
    let read = || {
        let [n, columns, entries] =
            [length(rows, "rows")?, length(columns, "columns")?, length(entries, "entries")?];
        let (row_ptr, col) = (slice(row_ptr, n + 1, "row_ptr")?, slice(col, entries, "col")?);
        let a = Csr::from_arrays(n, columns, row_ptr, col, slice(values, entries, "values")?)?;
        let block = if block == 0 { None } else { Some(length(block.into(), "block")?) };
        Ok((a, block))
    };
    let (a, block) = agree(&*comm, read())?;
    Ok(Problem::of(System::distributed_csr(comm, &a, block)?, a.nonzeros(), "rows of this rank"))
}

pub fn bsr(
    comm: i32,
    [block, block_rows, blocks]: [i64; 3],
    numbers: *const i64,
    row_ptr: *const i64,
    col: *const i64,
    values: *const f64,
) -> Result<Problem> {
    let comm = ranks(comm)?;
    let read = || {
        let [b, n, blocks] =
            [length(block, "block")?, length(block_rows, "block_rows")?, length(blocks, "blocks")?];
        let entries = blocks.checked_mul(b * b).ok_or_else(|| {
            Error::invalid(format!(
                "the number of entries in {blocks} blocks of order {b} does not fit into 64 bits"
            ))
        })?;
        let row_ptr = slice(row_ptr, n + 1, "row_ptr")?;
        // The first row pointer gives the base of all indices: 0, or 1 in Fortran.
        let base = i64::from(row_ptr[0] == 1);
        let whole = |from: &[i64], what: &str| -> krylith_core::Result<Vec<u64>> {
            from.iter().map(|&i| length(i - base, what).map(|i| i as u64)).collect()
        };
        let numbers = match numbers.is_null() {
            true => None,
            false => Some(whole(slice(numbers, n, "numbers")?, "the number of a row")?),
        };
        let rows = RowBlocks {
            row_ptr: whole(row_ptr, "a row pointer")?.into_iter().map(|p| p as usize).collect(),
            col: whole(slice(col, blocks, "col")?, "a column")?,
            values: slice(values, entries, "values")?.to_vec(),
        };
        Ok((b, n, numbers, rows))
    };
    let (block, n, numbers, rows) = agree(&*comm, read())?;
    let entries = rows.values.len();
    let rows = match numbers {
        Some(numbers) => Rows { numbers, block, terms: vec![(Dense::identity(1), rows)] },
        None => Rows::in_runs(&*comm, block, n, rows)?,
    };
    Ok(Problem::of(System::distributed(comm, rows)?, entries, "rows of this rank"))
}

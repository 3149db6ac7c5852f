//! Reading of a PETSc Mat by parts: every rank reads the header, the lengths of its rows, and its own rows by
//! offset.

use super::errors::same;
use super::{ScalarRows, whole_numbers};
use crate::Result;
use crate::comm::Communicator;
use crate::io::petsc::{Cursor, MAT, VEC, integer, long_row, mat_header, reals};
use crate::io::source::{name_file, no_such_column, tidy_rows};
use crate::matrix::Csr;
use std::ops::Range;
use std::path::Path;

/// A Vec in a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct VecAt {
    /// Number of values.
    pub len: usize,
    /// Offset of the values in bytes.
    pub at: usize,
}

/// Reads the rows that `bounds`, a function of the number of rows, assigns to this rank, and the Vec after
/// the matrix. Collective.
///
/// Returns `None` for a file that is not one Mat, optionally followed by one Vec: the whole-file reader then
/// reports the error.
pub(super) fn read(
    comm: &dyn Communicator,
    path: &Path,
    bytes: &[u8],
    bounds: impl Fn(usize) -> Vec<usize>,
) -> Result<Option<(ScalarRows, Option<VecAt>)>> {
    let mut cursor = Cursor::new(bytes);
    if cursor.integer() != Some(MAT) {
        return Ok(None);
    }
    let header = mat_header(path, &mut cursor)?;
    let width = cursor.width();
    let Some(lengths) = cursor.take(header.rows, width) else { return Ok(None) };
    let bounds = bounds(header.rows);
    let own = bounds[comm.rank()]..bounds[comm.rank() + 1];

    // A sum of lengths that the file cannot hold saturates, and is refused below.
    let lengths = &lengths[own.start * width..own.end * width];
    let sum = lengths.chunks_exact(width).fold(0usize, |sum, n| sum.saturating_add(length(n, bytes.len())));
    let sums: Vec<usize> = whole_numbers(comm, &[sum])?.into_iter().map(|n| n[0]).collect();
    let before = sums[..comm.rank()].iter().fold(0usize, |a, &b| a.saturating_add(b));
    let total = sums.iter().fold(0usize, |a, &b| a.saturating_add(b));
    let mut row_ptr = Vec::with_capacity(own.len() + 1);
    row_ptr.push(0usize);
    let long = (own.clone()).zip(lengths.chunks_exact(width)).find_map(|(i, n)| {
        let end = row_ptr[row_ptr.len() - 1].saturating_add(length(n, bytes.len()));
        row_ptr.push(end);
        (before.saturating_add(end) > bytes.len()).then(|| long_row(path, i, integer(n)))
    });
    same(comm, long.map_or(Ok(()), Err))?;
    header.check_total(path, total)?;

    let (Some(indices), Some(values)) = (cursor.take(total, width), cursor.take(total, 8)) else {
        return Ok(None);
    };
    let vector = match vector(&mut cursor) {
        None if cursor.at < bytes.len() => return Ok(None),
        vector => vector,
    };
    let entries = before..before + sum;
    let indices = &indices[entries.start * width..entries.end * width];
    let row_of = |p: usize| own.start + row_ptr.partition_point(|&q| q <= p) - 1;
    let columns = |refused: &dyn Fn(i64) -> bool| {
        let mut all = indices.chunks_exact(width).map(integer).enumerate();
        match all.find(|(_, j)| refused(*j)) {
            Some((p, j)) => Err(no_such_column(path, j, row_of(p), header.columns)),
            None => Ok(()),
        }
    };
    // Check in the order of the whole-file reader: first values that are not an index.
    same(comm, columns(&|j| u32::try_from(j).is_err()))?;
    same(comm, columns(&|j| j >= header.columns as i64))?;
    let col = indices.chunks_exact(width).map(|j| integer(j) as u32).collect();
    let values = reals(&values[entries.start * 8..entries.end * 8]);
    let matrix = tidy_rows(path, header.columns, 1, (row_ptr, col, values))
        .and_then(|(row_ptr, col, values)| Csr::new(own.len(), header.columns, row_ptr, col, values))
        .map_err(|e| super::from_row(own.start, name_file(path, e)));
    let matrix = same(comm, matrix)?;
    Ok(Some((ScalarRows { rows: header.rows, first: own.start, matrix }, vector)))
}

/// Returns a row's length; a negative length counts as longer than the file.
fn length(bytes: &[u8], most: usize) -> usize {
    usize::try_from(integer(bytes)).unwrap_or(most.saturating_add(1))
}

/// Returns the Vec at the cursor, if there is a complete one.
pub(super) fn vector(cursor: &mut Cursor) -> Option<VecAt> {
    let mut ahead = cursor.clone();
    if ahead.integer()? != VEC {
        return None;
    }
    let len = usize::try_from(ahead.integer()?).ok()?;
    let at = ahead.at;
    ahead.take(len, 8)?;
    *cursor = ahead;
    Some(VecAt { len, at })
}

impl VecAt {
    /// Reads a range of its values.
    pub fn window(&self, bytes: &[u8], numbers: Range<usize>) -> Vec<f64> {
        reals(&bytes[self.at + 8 * numbers.start..self.at + 8 * numbers.end])
    }
}

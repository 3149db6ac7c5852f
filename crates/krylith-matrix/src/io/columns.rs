//! Converts matrices that files store by columns to rows.

use std::path::Path;

use super::matrix_market::Symmetry;
use super::source::{Rows, believable, name_file, tidy_rows};
use crate::matrix::Csr;
use crate::{Error, Result};

/// Converts compressed columns (pointers, rows, values) to a matrix by rows. The row indices were checked
/// before. Unsorted columns are sorted and duplicates summed. A symmetric matrix is given by one triangle,
/// with or without the diagonal.
///
/// `len` is the file's length; it limits the number of rows that is accepted.
pub(super) fn into_rows(
    path: &Path,
    [rows, columns]: [usize; 2],
    stored: Rows,
    symmetry: Symmetry,
    len: usize,
) -> Result<Csr> {
    believable(path, "rows", Some(rows), len)?;
    let (col_ptr, row, values) = tidy_rows(path, rows, 1, stored)?;
    // The compressed columns are the compressed rows of the transposed matrix.
    let turned = Csr::new(columns, rows, col_ptr, row, values).map_err(|e| match name_file(path, e) {
        Error::NotFinite { what, row, column, value } => {
            Error::NotFinite { what, row: column, column: row, value }
        }
        other => other,
    })?;
    let a = turned.transpose();
    if symmetry == Symmetry::General {
        return Ok(a);
    }
    // Row i of the full matrix is row i of the lower triangle, followed by row i of the upper one. The file
    // holds one of the two, and its transpose is the other; both are sorted.
    let lower = (0..a.rows()).all(|i| a.row(i).0.last().is_none_or(|&j| j as usize <= i));
    let sign = if symmetry == Symmetry::SkewSymmetric { -1.0 } else { 1.0 };
    let (left, left_sign, right, right_sign) =
        if lower { (&a, 1.0, &turned, sign) } else { (&turned, sign, &a, 1.0) };
    let mut row_ptr = Vec::with_capacity(rows + 1);
    let (mut col, mut values) = (Vec::with_capacity(2 * a.nonzeros()), Vec::with_capacity(2 * a.nonzeros()));
    row_ptr.push(0);
    for i in 0..rows {
        let mut take = |(c, v): (&[u32], &[f64]), sign: f64, diagonal: bool| {
            for (&j, &v) in c.iter().zip(v).filter(|(j, _)| diagonal || **j as usize != i) {
                col.push(j);
                values.push(sign * v);
            }
        };
        take(left.row(i), left_sign, true);
        take(right.row(i), right_sign, false);
        row_ptr.push(col.len());
    }
    Csr::new(rows, columns, row_ptr, col, values).map_err(|e| name_file(path, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn full(stored: Rows, symmetry: Symmetry) -> Result<Csr> {
        into_rows(Path::new("x"), [3, 3], stored, symmetry, 100)
    }

    #[test]
    fn either_triangle_makes_the_whole() {
        // Columns of the lower triangle [2; 1 0; 0 3 4] and of its transpose, the first unsorted.
        let lower = (vec![0, 2, 3, 4], vec![1, 0, 2, 2], vec![1.0, 2.0, 3.0, 4.0]);
        let upper = (vec![0, 1, 2, 4], vec![0, 0, 1, 2], vec![2.0, 1.0, 3.0, 4.0]);
        let whole = [(0, 0, 2.0), (0, 1, 1.0), (1, 0, 1.0), (1, 2, 3.0), (2, 1, 3.0), (2, 2, 4.0)];
        let whole = Csr::from_triplets(3, 3, &whole).unwrap();
        assert_eq!(full(lower, Symmetry::Symmetric).unwrap(), whole);
        assert_eq!(full(upper.clone(), Symmetry::General).unwrap().get(0, 1), 1.0);
        // The fourth given entry of `upper` is in column 2: (2, 2).
        assert_eq!(full(upper, Symmetry::Symmetric).unwrap(), whole);
        let skew = (vec![0, 1, 1, 1], vec![2], vec![5.0]);
        let whole = Csr::from_triplets(3, 3, &[(0, 2, -5.0), (2, 0, 5.0)]).unwrap();
        assert_eq!(full(skew, Symmetry::SkewSymmetric).unwrap(), whole);
    }

    #[test]
    fn a_value_that_is_not_finite_is_named_by_its_own_row() {
        let stored = (vec![0, 1, 1, 1], vec![2], vec![f64::NAN]);
        let error = full(stored, Symmetry::General).unwrap_err();
        assert!(matches!(error, Error::NotFinite { row: 2, column: 0, .. }), "{error}");
    }
}

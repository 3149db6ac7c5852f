//! Conversions from the sparse matrices of other crates, each behind the feature that has the crate's name.
//!
//! Stored zeros remain stored, unsorted columns are sorted, and a value that is not finite is an error.

#[cfg(feature = "faer")]
mod faer;
#[cfg(feature = "nalgebra-sparse")]
mod nalgebra_sparse;
#[cfg(feature = "sprs")]
mod sprs;

use super::{Csr, check_columns};
use crate::Result;
use std::ops::Range;

/// Creates a matrix of `rows` rows from the positions of their entries and the columns of positions.
fn by_rows(
    rows: usize,
    columns: usize,
    places: impl Fn(usize) -> Range<usize>,
    column: impl Fn(usize) -> usize,
    values: &[f64],
) -> Result<Csr> {
    check_columns("CSR matrix", columns)?;
    let (mut row_ptr, mut col) = (Vec::with_capacity(rows + 1), Vec::with_capacity(values.len()));
    let (mut numbers, mut row) = (Vec::with_capacity(values.len()), Vec::new());
    row_ptr.push(0);
    for i in 0..rows {
        row.clear();
        row.extend(places(i).map(|p| (column(p) as u32, values[p])));
        if !row.is_sorted_by_key(|e| e.0) {
            row.sort_by_key(|e| e.0);
        }
        col.extend(row.iter().map(|e| e.0));
        numbers.extend(row.iter().map(|e| e.1));
        row_ptr.push(col.len());
    }
    Csr::new(rows, columns, row_ptr, col, numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows of no, one and several entries, more columns than rows, a stored zero.
    const ENTRIES: [(usize, usize, f64); 6] =
        [(0, 4, 1.5), (0, 0, 4.0), (2, 1, -2.0), (2, 2, 0.0), (2, 3, 7.0), (3, 3, 1.0)];

    fn wanted() -> Csr {
        let entries = ENTRIES.map(|(i, j, v)| (i as u32, j as u32, v));
        Csr::from_triplets(4, 5, &entries).unwrap()
    }

    #[cfg(feature = "sprs")]
    #[test]
    fn from_sprs() {
        let mut entries = ::sprs::TriMatI::<f64, i32>::new((4, 5));
        ENTRIES.iter().for_each(|&(i, j, v)| entries.add_triplet(i, j, v));
        let rows: ::sprs::CsMatI<f64, i32> = entries.to_csr();
        let columns: ::sprs::CsMatI<f64, i32> = entries.to_csc();
        assert_eq!(Csr::try_from(&rows).unwrap(), wanted());
        assert_eq!(Csr::try_from(&columns).unwrap(), wanted());
        assert_eq!(Csr::try_from(&rows.transpose_view()).unwrap(), wanted().transpose());
        // Part of a matrix: pointers that do not begin at 0.
        let part = Csr::try_from(&rows.slice_outer(2..4)).unwrap();
        assert_eq!((part.rows(), part.row(0)), (2, wanted().row(2)));
        let bad = rows.map(|v| v / 0.0);
        assert!(Csr::try_from(&bad).unwrap_err().to_string().contains("must be finite"));
    }

    #[cfg(feature = "nalgebra-sparse")]
    #[test]
    fn from_nalgebra_sparse() {
        let mut entries = ::nalgebra_sparse::CooMatrix::new(4, 5);
        ENTRIES.iter().for_each(|&(i, j, v)| entries.push(i, j, v));
        let mut rows = ::nalgebra_sparse::CsrMatrix::from(&entries);
        assert_eq!(Csr::try_from(&rows).unwrap(), wanted());
        assert_eq!(Csr::try_from(&::nalgebra_sparse::CscMatrix::from(&entries)).unwrap(), wanted());
        rows.values_mut()[1] = f64::NAN;
        assert!(Csr::try_from(&rows).unwrap_err().to_string().contains("(0, 4) is NaN"));
    }

    #[cfg(feature = "faer")]
    #[test]
    fn from_faer() {
        use ::faer::sparse::{SparseColMat, SparseRowMat, SymbolicSparseRowMat, Triplet};
        let entries = ENTRIES.map(|(i, j, v)| Triplet::new(i as u32, j as u32, v));
        let rows = SparseRowMat::try_new_from_triplets(4, 5, &entries).unwrap();
        assert_eq!(Csr::try_from(&rows).unwrap(), wanted());
        let columns = SparseColMat::try_new_from_triplets(4, 5, &entries).unwrap();
        assert_eq!(Csr::try_from(&columns).unwrap(), wanted());
        // Unsorted columns, and spare memory after each row.
        let pattern = SymbolicSparseRowMat::new_unsorted_checked(
            2,
            3,
            vec![0u32, 3, 5],
            Some(vec![2, 1]),
            vec![2u32, 0, 1, 1, 0],
        );
        let loose = SparseRowMat::new(pattern, vec![5.0, 6.0, f64::NAN, 7.0, f64::NAN]);
        let want = Csr::from_triplets(2, 3, &[(0, 2, 5.0), (0, 0, 6.0), (1, 1, 7.0)]).unwrap();
        assert_eq!(Csr::try_from(&loose).unwrap(), want);
    }
}

//! Matrices from the arrays of applications: indices of any width, on the host or on a GPU, and lists of
//! blocks.

use super::{Bsr, Csr, check_columns};
use crate::memory::{Array, Number, Numbers};
use crate::{Error, Result};
use rayon::prelude::*;
use std::fmt::Display;

impl Csr {
    /// Creates a matrix from the three arrays of the format: slices of `i32`, `i64`, `u32`, `u64` or `usize`,
    /// or the memory of a GPU. Arrays on a GPU are copied and checked there, and stay there. Columns ascend
    /// in each row. If the first row pointer is 1, rows and columns count from 1, as in Fortran.
    ///
    /// # Errors
    /// An index that is negative or too large, with its position; those of [`Csr::new`].
    ///
    /// ```
    /// use krylith::matrix::Csr;
    ///
    /// // [4 1; 0 2], as a code in C would hold it.
    /// let (row_ptr, col, values) = (vec![0i64, 2, 3], vec![0i32, 1, 1], vec![4.0, 1.0, 2.0]);
    /// let a = Csr::from_arrays(2, 2, &row_ptr, &col, &values)?;
    /// assert_eq!(a.get(0, 1), 1.0);
    /// # Ok::<(), krylith::Error>(())
    /// ```
    pub fn from_arrays<'a, I, J>(
        rows: usize,
        columns: usize,
        row_ptr: impl Into<Array<'a, I>>,
        col: impl Into<Array<'a, J>>,
        values: impl Into<Numbers<'a>>,
    ) -> Result<Self>
    where
        I: Number + TryInto<usize> + Display,
        J: Number + TryInto<u32> + Display,
    {
        let (row_ptr, col, values) = (row_ptr.into(), col.into(), values.into());
        if let Some(storage) = on_device(1, rows, columns, row_ptr, col, values)? {
            return Ok(Self::from_storage(storage));
        }
        let (row_ptr, col) = indices("CSR matrix", row_ptr, col)?;
        Self::new(rows, columns, row_ptr, col, copied(values)?)
    }
}

impl Csr {
    /// Replaces the values under the same pattern. Values in device memory stay there until the host needs
    /// them.
    ///
    /// # Errors
    /// A wrong length; a value that is not finite. In the second case the matrix already holds the new
    /// values.
    pub fn update_values<'a>(&mut self, values: impl Into<Numbers<'a>>) -> Result<()> {
        let (values, stored) = (values.into(), self.nonzeros());
        if self.storage_mut().replace_values(values, stored)? {
            return Ok(()); // checked on the device
        }
        self.check_finite()
    }
}

impl Bsr {
    /// Replaces the values under the same pattern. Values in device memory stay there until the host needs
    /// them.
    ///
    /// # Errors
    /// A wrong length; a value that is not finite. In the second case the matrix already holds the new
    /// values.
    pub fn update_values<'a>(&mut self, values: impl Into<Numbers<'a>>) -> Result<()> {
        let (values, stored) = (values.into(), self.stored());
        if self.storage_mut().replace_values(values, stored)? {
            return Ok(()); // checked on the device
        }
        self.check_finite()
    }

    /// Replaces the values by those of a scalar matrix whose entries lie in the stored blocks, as they do for
    /// the matrix given to [`from_csr`](Self::from_csr). Allocates nothing.
    ///
    /// # Errors
    /// Another shape, or an entry outside the stored blocks, with its position. After the latter some values
    /// are already replaced.
    pub fn update_from_csr(&mut self, a: &Csr) -> Result<()> {
        if (a.rows(), a.columns()) != (self.rows(), self.columns()) {
            return Err(Error::invalid(format!(
                "the new values come from a {}×{} matrix, but this matrix is {}×{}",
                a.rows(),
                a.columns(),
                self.rows(),
                self.columns()
            )));
        }
        let b = self.block();
        self.values_mut().fill(0.0);
        for i in 0..a.rows() {
            let places = self.row_ptr()[i / b]..self.row_ptr()[i / b + 1];
            let mut p = places.start;
            let (columns, values) = a.row(i);
            for (&j, &v) in columns.iter().zip(values) {
                // Columns ascend in `a` and in `self`.
                while p < places.end && self.col()[p] < j / b as u32 {
                    p += 1;
                }
                if p == places.end || self.col()[p] != j / b as u32 {
                    return Err(Error::invalid(format!(
                        "the new values have an entry ({i}, {j}) that lies in no stored block; use the \
                         pattern with which this matrix was built"
                    )));
                }
                self.values_mut()[p * b * b + i % b * b + j as usize % b] = v;
            }
        }
        Ok(())
    }

    /// Creates a matrix from the three arrays of the format, as [`Csr::from_arrays`] does; `values` holds b²
    /// numbers per block, row by row.
    ///
    /// # Errors
    /// An index that is negative or too large, with its position; those of [`Bsr::new`].
    ///
    /// ```
    /// use krylith::matrix::Bsr;
    ///
    /// let identity = [1.0, 0.0, 0.0, 1.0];
    /// let a = Bsr::from_arrays(2, 1, 1, &[0i32, 1], &[0i32], &identity)?;
    /// assert_eq!(a.rows(), 2);
    /// # Ok::<(), krylith::Error>(())
    /// ```
    pub fn from_arrays<'a, I, J>(
        block: usize,
        block_rows: usize,
        block_columns: usize,
        row_ptr: impl Into<Array<'a, I>>,
        col: impl Into<Array<'a, J>>,
        values: impl Into<Numbers<'a>>,
    ) -> Result<Self>
    where
        I: Number + TryInto<usize> + Display,
        J: Number + TryInto<u32> + Display,
    {
        let (row_ptr, col, values) = (row_ptr.into(), col.into(), values.into());
        if let Some(storage) = on_device(block, block_rows, block_columns, row_ptr, col, values)? {
            return Ok(Self::from_storage(block, storage));
        }
        let (row_ptr, col) = indices("BSR matrix", row_ptr, col)?;
        Self::new(block, block_rows, block_columns, row_ptr, col, copied(values)?)
    }

    /// Builds a matrix from blocks in any order, as element loops make them: block row, block column and b²
    /// numbers, row by row. Duplicates are summed in the order given.
    ///
    /// # Errors
    /// An index out of range, a block of another length, or a sum that is not finite.
    ///
    /// ```
    /// use krylith::matrix::Bsr;
    ///
    /// let one = [1.0, 0.0, 0.0, 1.0];
    /// let a = Bsr::from_block_triplets(2, 2, 2, &[(1, 1, one), (0, 0, one), (1, 1, one)])?;
    /// assert_eq!(a.diagonal_block(1), Some(&[2.0, 0.0, 0.0, 2.0][..]));
    /// # Ok::<(), krylith::Error>(())
    /// ```
    pub fn from_block_triplets(
        block: usize,
        block_rows: usize,
        block_columns: usize,
        blocks: &[(u32, u32, impl AsRef<[f64]>)],
    ) -> Result<Self> {
        check_columns("BSR matrix", block_columns)?;
        let bb = block * block;
        let mut row_ptr = vec![0usize; block_rows + 1];
        for (i, j, values) in blocks {
            if *i as usize >= block_rows || *j as usize >= block_columns {
                return Err(Error::invalid(format!(
                    "block ({i}, {j}) is outside a matrix of {block_rows}×{block_columns} blocks"
                )));
            }
            if values.as_ref().len() != bb {
                return Err(Error::invalid(format!(
                    "block ({i}, {j}) has {} numbers; expected {bb}",
                    values.as_ref().len()
                )));
            }
            row_ptr[*i as usize + 1] += 1;
        }
        for i in 0..block_rows {
            row_ptr[i + 1] += row_ptr[i];
        }
        // The blocks of each row, in the order given.
        let (mut next, mut order) = (row_ptr.clone(), vec![0usize; blocks.len()]);
        for (t, (i, ..)) in blocks.iter().enumerate() {
            order[next[*i as usize]] = t;
            next[*i as usize] += 1;
        }
        let (mut starts, mut col) = (Vec::with_capacity(block_rows + 1), Vec::new());
        let mut sums: Vec<f64> = Vec::new();
        starts.push(0);
        for i in 0..block_rows {
            let row = &mut order[row_ptr[i]..row_ptr[i + 1]];
            row.sort_by_key(|&t| blocks[t].1); // stable
            let begin = col.len();
            for &t in row.iter() {
                let (_, j, values) = &blocks[t];
                if col.len() > begin && col.last() == Some(j) {
                    let at = sums.len() - bb;
                    sums[at..].iter_mut().zip(values.as_ref()).for_each(|(sum, v)| *sum += v);
                } else {
                    col.push(*j);
                    sums.extend_from_slice(values.as_ref());
                }
            }
            starts.push(col.len());
        }
        Self::new(block, block_rows, block_columns, starts, col, sums)
    }
}

/// Copies and checks arrays on their GPU, if all lie on the same one. Returns `None` if they do not, or if
/// they are invalid: the host then finds the error and names it.
fn on_device<I: Number, J: Number>(
    block: usize,
    rows: usize,
    columns: usize,
    row_ptr: Array<I>,
    col: Array<J>,
    values: Numbers,
) -> Result<Option<super::storage::Storage>> {
    let Some(gpu) = row_ptr.gpu() else { return Ok(None) };
    let places = [row_ptr.gpu(), col.gpu(), values.gpu()];
    let fits = block > 0 && rows + 1 == row_ptr.len() && values.len() == col.len() * block * block;
    // An empty array has no address.
    if !fits
        || col.is_empty()
        || places.iter().any(|place| *place != Some(gpu))
        || columns > u32::MAX as usize
    {
        return Ok(None);
    }
    let (Some(row_ptr), Some(of_columns), Some(of_values)) = (row_ptr.lent(), col.lent(), values.lent())
    else {
        return Ok(None);
    };
    let taken = row_ptr.remote.reach.matrix(columns, row_ptr, of_columns, of_values.remote)?;
    Ok(taken.map(|device| super::storage::Storage::device(rows, columns, col.len(), device)))
}

/// Converts row pointers and columns to the widths that matrices use.
fn indices<I, J>(what: &str, row_ptr: Array<I>, col: Array<J>) -> Result<(Vec<usize>, Vec<u32>)>
where
    I: Number + TryInto<usize> + Display,
    J: Number + TryInto<u32> + Display,
{
    let mut scratch = Vec::new();
    let pointers = row_ptr.on_host(&mut scratch)?;
    // Row pointers begin at 0 or, in Fortran, at 1.
    let base = usize::from(pointers.first().is_some_and(|&first| first.try_into().ok() == Some(1)));
    let row_ptr: Vec<usize> = converted(pointers, |i| i.try_into().ok().and_then(|i| i.checked_sub(base)))
        .map_err(|i| Error::invalid(format!("{what}: row pointer {i} is {}", pointers[i])))?;
    let mut scratch = Vec::new();
    let columns = col.on_host(&mut scratch)?;
    let of_zero = |j: J| j.try_into().ok().and_then(|j: u32| j.checked_sub(base as u32));
    let col = converted(columns, of_zero).map_err(|p| {
        let row = row_ptr.partition_point(|&q| q <= p).saturating_sub(1);
        Error::invalid(format!(
            "{what}: entry {p}, in row {row}, has column {}; columns are {base} to {}",
            columns[p],
            u32::MAX
        ))
    })?;
    Ok((row_ptr, col))
}

/// Length of the chunks in which threads convert numbers.
const RUN: usize = 1 << 16;

/// Converts integers to another type on all threads; fails with the position of the first that does not fit.
fn converted<I: Number, T: Number>(
    from: &[I],
    other: impl Fn(I) -> Option<T> + Sync,
) -> std::result::Result<Vec<T>, usize> {
    let mut to = vec![T::default(); from.len()];
    let convert = |(run, (to, from)): (usize, (&mut [T], &[I]))| {
        // A flag instead of an early exit, so that the compiler can vectorise.
        let wrong = to.iter_mut().zip(from).fold(false, |wrong, (to, from)| {
            let number = other(*from);
            *to = number.unwrap_or_default();
            wrong | number.is_none()
        });
        let first = || from.iter().position(|from| other(*from).is_none()).map(|i| run * RUN + i);
        if wrong { first() } else { None }
    };
    let wrong = match from.len() <= RUN {
        true => convert((0, (&mut to, from))), // too little work to wake other threads
        false => to.par_chunks_mut(RUN).zip(from.par_chunks(RUN)).enumerate().find_map_first(convert),
    };
    wrong.map_or(Ok(to), Err)
}

/// Copies the values to the host on all threads, which share the first touch of the pages.
fn copied(values: Numbers) -> Result<Vec<f64>> {
    match values.as_host() {
        Some(host) if host.len() > RUN => {
            let mut to = vec![0.0; host.len()];
            to.par_chunks_mut(RUN).zip(host.par_chunks(RUN)).for_each(|(to, from)| to.copy_from_slice(from));
            Ok(to)
        }
        _ => values.to_vec(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// [4 1 0; 0 2 0; 0 0 3]
    fn wanted() -> Csr {
        Csr::from_triplets(3, 3, &[(0, 0, 4.0), (0, 1, 1.0), (1, 1, 2.0), (2, 2, 3.0)]).unwrap()
    }

    #[test]
    fn indices_of_every_width() {
        let values = [4.0, 1.0, 2.0, 3.0];
        macro_rules! check {
            ($($i:ty, $j:ty);*) => {$(
                let (row_ptr, col): (Vec<$i>, Vec<$j>) = (vec![0, 2, 3, 4], vec![0, 1, 1, 2]);
                let a = Csr::from_arrays(3, 3, &row_ptr, &col, &values).unwrap();
                assert_eq!(a, wanted(), "{} and {}", stringify!($i), stringify!($j));
                let b = Bsr::from_arrays(1, 3, 3, &row_ptr, &col, &values).unwrap();
                assert_eq!(b.to_csr(), wanted(), "{} and {}", stringify!($i), stringify!($j));
            )*};
        }
        check!(i32, i32; i64, i32; u32, u32; i64, i64; u64, u64; usize, usize; usize, u32);
    }

    #[test]
    fn indices_that_count_from_one() {
        let values = [4.0, 1.0, 2.0, 3.0];
        let (row_ptr, col) = ([1i32, 3, 4, 5], [1i32, 2, 2, 3]);
        assert_eq!(Csr::from_arrays(3, 3, &row_ptr, &col, &values).unwrap(), wanted());
        assert_eq!(Bsr::from_arrays(1, 3, 3, &row_ptr, &col, &values).unwrap().to_csr(), wanted());
    }

    #[test]
    fn wrong_indices_are_named() {
        let refused = |row_ptr: &[i64], col: &[i64], text: &str| {
            let values = vec![1.0; col.len()];
            let done = Csr::from_arrays(3, 3, row_ptr, col, &values);
            let message = done.expect_err(text).to_string();
            assert!(message.contains(text), "{message}");
        };
        refused(&[0, 2, -3, 4], &[0, 1, 1, 2], "row pointer 2 is -3");
        refused(&[0, 2, 3, 4], &[0, 1, -1, 2], "entry 2, in row 1, has column -1");
        refused(&[0, 2, 3, 4], &[0, 1 << 40, 1, 2], "entry 1, in row 0, has column 1099511627776");
        refused(&[1, 3, 4, 5], &[0, 1, 1, 2], "entry 0, in row 0, has column 0; columns are 1 to");
        refused(&[1, 3, 4, 5], &[1, 2, 2, 4], "column 3 in row 2 is out of range");
        refused(&[0, 2, 3, 4], &[0, 1, 1, 3], "column 3 in row 2 is out of range");
        refused(&[0, 2, 3, 4], &[1, 0, 1, 2], "row 0 are not sorted");
        refused(&[0, 2, 3], &[0, 1, 1], "3 row pointers for 3 rows");
        refused(&[], &[], "0 row pointers");
    }

    /// Many values are copied by several tasks, into own memory or, if it is shared, into new memory.
    #[test]
    fn many_new_values_leave_those_of_a_copy() {
        let n = 600_000;
        let ptr = (0..=n).collect();
        let mut a = Csr::new(n, n, ptr, (0..n as u32).collect(), vec![1.0; n]).unwrap();
        let new = |factor: f64| (0..n).map(|i| factor * i as f64).collect::<Vec<f64>>();
        a.update_values(&new(2.0)).unwrap();
        assert!(a.values() == new(2.0));
        let copy = a.clone();
        a.update_values(&new(3.0)).unwrap();
        assert!(a.values() == new(3.0) && copy.values() == new(2.0));
        drop(copy);
        let place = a.values().as_ptr();
        a.update_values(&new(4.0)).unwrap();
        assert!(a.values() == new(4.0) && a.values().as_ptr() == place);
        assert!(a.update_values(&new(1.0)[1..]).is_err());
    }

    #[test]
    fn new_values_in_place() {
        let mut a = wanted();
        let (twice, nan) = ([8.0, 2.0, 4.0, 6.0], [8.0, 2.0, f64::NAN, 6.0]);
        a.update_values(&twice).unwrap();
        assert_eq!((a.get(0, 0), a.get(2, 2)), (8.0, 6.0));
        assert!(a.update_values(&twice[..3]).is_err());
        assert!(a.update_values(&nan).unwrap_err().to_string().contains("entry (1, 1) is NaN"));

        // 2×2 blocks with entries missing inside.
        let entries = [(0, 0, 1.0), (0, 3, 2.0), (1, 1, 3.0), (2, 2, 4.0), (3, 0, 5.0), (3, 3, 6.0)];
        let mut csr = Csr::from_triplets(4, 4, &entries).unwrap();
        let mut bsr = Bsr::from_csr(&csr, 2).unwrap();
        csr.values_mut().iter_mut().for_each(|v| *v *= -0.5);
        bsr.update_from_csr(&csr).unwrap();
        assert_eq!(bsr, Bsr::from_csr(&csr, 2).unwrap());
        let upper = Csr::from_triplets(4, 4, &entries[..4]).unwrap();
        let mut upper = Bsr::from_csr(&upper, 2).unwrap();
        let message = upper.update_from_csr(&csr).unwrap_err().to_string();
        assert!(message.contains("entry (3, 0)"), "{message}");
        assert!(bsr.update_from_csr(&wanted()).is_err());
        let (values, same) = (bsr.values().to_vec(), bsr.clone());
        bsr.values_mut().fill(0.0);
        bsr.update_values(&values).unwrap();
        assert_eq!(bsr, same);
    }

    #[test]
    fn blocks_in_any_order() {
        let block = |v: f64| vec![v, 2.0 * v, 3.0 * v, 4.0 * v];
        let blocks = [
            (2, 1, block(1.0)),
            (0, 3, block(2.0)),
            (2, 0, block(5.0)),
            (0, 0, block(3.0)),
            (2, 1, block(10.0)),
        ];
        let a = Bsr::from_block_triplets(2, 3, 4, &blocks).unwrap();
        assert_eq!((a.row_ptr(), a.col()), (&[0, 2, 2, 4][..], &[0, 3, 0, 1][..]));
        assert_eq!((a.rows(), a.columns()), (6, 8));
        assert_eq!(a.values(), [block(3.0), block(2.0), block(5.0), block(11.0)].concat());
        // The same matrix, entry by entry.
        let entries: Vec<(u32, u32, f64)> = blocks
            .iter()
            .flat_map(|(i, j, v)| {
                v.iter().enumerate().map(move |(e, &v)| (2 * i + e as u32 / 2, 2 * j + e as u32 % 2, v))
            })
            .collect();
        assert_eq!(a.to_csr(), Csr::from_triplets(6, 8, &entries).unwrap());
        let none: [(u32, u32, [f64; 4]); 0] = [];
        assert_eq!(Bsr::from_block_triplets(2, 0, 0, &none).unwrap().blocks(), 0);

        let refused = |done: Result<Bsr>, text: &str| {
            let message = done.expect_err(text).to_string();
            assert!(message.contains(text), "{message}");
        };
        refused(Bsr::from_block_triplets(2, 3, 4, &[(3, 0, block(1.0))]), "block (3, 0) is outside");
        refused(Bsr::from_block_triplets(2, 3, 4, &[(0, 4, block(1.0))]), "block (0, 4) is outside");
        refused(Bsr::from_block_triplets(2, 3, 4, &[(0, 0, [1.0])]), "has 1 numbers; expected 4");
        refused(Bsr::from_block_triplets(2, 3, 4, &[(0, 0, block(f64::NAN))]), "NaN");
        refused(Bsr::from_block_triplets(0, 3, 4, &none), "block size must be at least 1");
    }
}

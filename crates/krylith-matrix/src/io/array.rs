//! Dense arrays from files, and the orders of a Kronecker system's unknowns.

use std::path::Path;

use crate::{Error, Result};

/// A dense array of one or two dimensions in C order: the last index runs fastest.
///
/// # Examples
/// ```
/// use krylith::io::Array;
/// // Two nodes, two stages; column k is stage k, as NumPy writes it.
/// let array = Array::new(vec![2, 2], vec![1.0, 10.0, 2.0, 20.0])?;
/// assert_eq!(array.rows_columns(), (2, 2));
/// assert_eq!(array.into_unknowns("b", 2, 2)?, [1.0, 10.0, 2.0, 20.0]);
/// // A flat one is stage after stage.
/// assert_eq!(Array::vector(vec![1.0, 2.0, 10.0, 20.0]).into_unknowns("b", 2, 2)?, [1.0, 10.0, 2.0, 20.0]);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Array {
    shape: Vec<usize>,
    values: Vec<f64>,
    /// True if the values are pairs of a real and an imaginary part.
    complex: bool,
}

impl Array {
    /// Creates an array from one or two sizes and their product of numbers.
    ///
    /// # Errors
    /// More than two dimensions or none, or a length that disagrees with the shape.
    pub fn new(shape: Vec<usize>, values: Vec<f64>) -> Result<Self> {
        let size = shape.iter().try_fold(1usize, |n, &m| n.checked_mul(m));
        if !(1..=2).contains(&shape.len()) || size != Some(values.len()) {
            return Err(Error::invalid(format!(
                "got {} numbers for shape {shape:?}; expected one or two dimensions whose product is the count",
                values.len()
            )));
        }
        Ok(Self { shape, values, complex: false })
    }

    /// Creates an array of complex numbers. `values` has the real and the imaginary part of each.
    ///
    /// # Errors
    /// As [`new`](Self::new), with two values for each number.
    ///
    /// ```
    /// use krylith::io::Array;
    /// let b = Array::complex(vec![2], vec![1.0, 2.0, 3.0, -4.0])?; // 1 + 2i and 3 − 4i
    /// assert!(b.is_complex() && b.shape() == [2]);
    /// assert_eq!(b.into_unknowns("b", 4, 1)?, [1.0, 2.0, 3.0, -4.0]); // of a real form with 4 rows
    /// # Ok::<(), krylith::Error>(())
    /// ```
    pub fn complex(shape: Vec<usize>, values: Vec<f64>) -> Result<Self> {
        let size = shape.iter().try_fold(1usize, |n, &m| n.checked_mul(m));
        if !(1..=2).contains(&shape.len()) || size.and_then(|n| n.checked_mul(2)) != Some(values.len()) {
            return Err(Error::invalid(format!(
                "got {} real numbers for complex numbers of shape {shape:?}; expected one or two dimensions \
                 whose product is half the count",
                values.len()
            )));
        }
        Ok(Self { shape, values, complex: true })
    }

    /// The same numbers as complex ones.
    #[must_use]
    pub fn into_complex(self) -> Self {
        match self.complex {
            true => self,
            false => {
                Self { values: self.values.iter().flat_map(|&v| [v, 0.0]).collect(), complex: true, ..self }
            }
        }
    }

    /// True for complex numbers.
    pub fn is_complex(&self) -> bool {
        self.complex
    }

    /// Number k in C order: its value, or its real and imaginary part.
    pub(super) fn number(&self, k: usize) -> &[f64] {
        let parts = if self.complex { 2 } else { 1 };
        &self.values[parts * k..][..parts]
    }

    /// Creates an array of one dimension.
    pub fn vector(values: Vec<f64>) -> Self {
        Self { shape: vec![values.len()], values, complex: false }
    }

    /// The one or two sizes, in numbers of the array.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }
    /// All numbers in C order; pairs for complex numbers.
    pub fn values(&self) -> &[f64] {
        &self.values
    }
    /// All numbers in C order, by value; pairs for complex numbers.
    pub fn into_values(self) -> Vec<f64> {
        self.values
    }
    /// Rows and columns; one dimension is one column.
    pub fn rows_columns(&self) -> (usize, usize) {
        (self.shape[0], self.shape.get(1).copied().unwrap_or(1))
    }

    /// Converts a file's array to the unknowns of a system with `rows` unknowns per stage, in the solver's
    /// order `row · stages + k`.
    ///
    /// Shape (rows, stages) is already in that order. A flat array, one column or one row is read as stage
    /// after stage and reordered. A complex array belongs to a real form with twice as many rows.
    ///
    /// # Errors
    /// Any other shape. The error lists the accepted shapes and calls the array `what`.
    pub fn into_unknowns(self, what: &str, rows: usize, stages: usize) -> Result<Vec<f64>> {
        let total = rows.checked_mul(stages);
        if self.complex {
            return match self.shape[..] {
                [n] | [n, 1] | [1, n] if stages == 1 && 2 * n == rows => Ok(self.values),
                _ => Err(unexpected_complex(what, &self.shape, rows, stages)),
            };
        }
        match self.shape[..] {
            [n, s] if n == rows && s == stages => Ok(self.values),
            [n] if Some(n) == total => Ok(from_stage_by_stage(&self.values, stages)),
            [n, 1] | [1, n] if Some(n) == total => Ok(from_stage_by_stage(&self.values, stages)),
            _ => Err(unexpected_shape(what, &self.shape, rows, stages)),
        }
    }

    /// As [`into_unknowns`](Self::into_unknowns), for several vectors in columns. For one stage, shape (rows,
    /// k) gives k vectors, each in the solver's order. All other shapes give one vector.
    ///
    /// # Errors
    /// The errors of `into_unknowns`.
    ///
    /// ```
    /// use krylith::io::Array;
    /// let b = Array::new(vec![2, 3], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0])?;
    /// assert_eq!(b.clone().into_columns("b", 2, 1)?, [[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]);
    /// assert_eq!(b.into_columns("b", 2, 3)?.len(), 1); // three stages of one vector
    /// # Ok::<(), krylith::Error>(())
    /// ```
    pub fn into_columns(self, what: &str, rows: usize, stages: usize) -> Result<Vec<Vec<f64>>> {
        match self.shape[..] {
            [n, k] if self.complex && stages == 1 && 2 * n == rows && k > 1 => {
                let (pairs, _) = self.values.as_chunks::<2>();
                Ok((0..k).map(|c| pairs.iter().skip(c).step_by(k).flatten().copied().collect()).collect())
            }
            [n, k] if !self.complex && stages == 1 && n == rows && k > 1 => {
                Ok((0..k).map(|c| self.values.iter().skip(c).step_by(k).copied().collect()).collect())
            }
            _ => Ok(vec![self.into_unknowns(what, rows, stages)?]),
        }
    }

    /// Creates an array for a file from the solver's unknowns: shape (rows, stages) with stage k in column k,
    /// or flat for one stage.
    ///
    /// # Errors
    /// A length that `stages` does not divide.
    pub fn from_unknowns(values: Vec<f64>, stages: usize) -> Result<Self> {
        match stages {
            1 => Ok(Self::vector(values)),
            s if s > 0 && values.len().is_multiple_of(s) => Self::new(vec![values.len() / s, s], values),
            _ => Err(Error::invalid(format!(
                "{} unknowns cannot be cut into {stages} stages; the number of unknowns must be a multiple \
                 of the stages",
                values.len()
            ))),
        }
    }

    /// Converts an array of shape (n, 1), (n, 2) or (n, 3) to points in space; missing coordinates are 0.
    ///
    /// # Errors
    /// More than three columns, or none.
    pub fn into_points(self) -> Result<Vec<[f64; 3]>> {
        if self.complex {
            return Err(Error::invalid("coordinates are complex; give real numbers"));
        }
        let d = points_columns(&self.shape)?;
        let point = |row: &[f64]| std::array::from_fn(|c| row.get(c).copied().unwrap_or(0.0));
        Ok(self.values.chunks_exact(d).map(point).collect())
    }

    /// Fails on the first value that is NaN or infinite, and names it.
    pub(super) fn check_finite(&self, path: &Path) -> Result<()> {
        let (_, columns) = self.rows_columns();
        match self.values.iter().position(|v| !v.is_finite()) {
            None => Ok(()),
            Some(p) => {
                let at = if self.complex { p / 2 } else { p };
                Err(Error::NotFinite {
                    what: crate::text::name(path),
                    row: at / columns,
                    column: at % columns,
                    value: self.values[p],
                })
            }
        }
    }
}

/// Number of columns of an array of points: one to three.
#[doc(hidden)]
pub fn points_columns(shape: &[usize]) -> Result<usize> {
    match shape.get(1).copied().unwrap_or(1) {
        d @ 1..=3 => Ok(d),
        _ => Err(Error::invalid(format!(
            "coordinates have shape {shape:?}; expected one row per point, and one to three columns"
        ))),
    }
}

/// The error for an array whose shape does not fit a system's unknowns.
#[doc(hidden)]
pub fn unexpected_shape(what: &str, shape: &[usize], rows: usize, stages: usize) -> Error {
    let expected = if stages == 1 {
        format!("{rows} numbers, or shape ({rows}, k) for k vectors where several are accepted")
    } else {
        let total = rows.saturating_mul(stages);
        format!("shape ({rows}, {stages}), or one dimension with {total} numbers, stage after stage")
    };
    Error::invalid(format!("{what} has shape {shape:?}; expected {expected}"))
}

/// The error for a complex array whose shape does not fit a system's real form.
fn unexpected_complex(what: &str, shape: &[usize], rows: usize, stages: usize) -> Error {
    let n = rows / 2;
    let expected = match (stages, rows % 2) {
        (1, 0) => format!("{n} complex numbers, or shape ({n}, k) for k vectors where several are accepted"),
        _ => "real numbers".into(),
    };
    Error::invalid(format!("{what} is complex and has shape {shape:?}; expected {expected}"))
}

/// Reorders stage after stage (`k · N + row`) to Krylith's order (`row · s + k`).
///
/// # Panics
/// If `stages` does not divide the length.
pub fn from_stage_by_stage(values: &[f64], stages: usize) -> Vec<f64> {
    transpose(values, stages)
}

/// Reorders Krylith's order (`row · s + k`) to stage after stage (`k · N + row`).
///
/// # Panics
/// If `stages` does not divide the length.
pub fn to_stage_by_stage(values: &[f64], stages: usize) -> Vec<f64> {
    assert!(stages > 0 && values.len().is_multiple_of(stages), "{} over {stages} stages", values.len());
    transpose(values, values.len() / stages)
}

/// The transpose of a row-major `rows` × (len / rows) array.
pub(super) fn transpose<T: Copy>(values: &[T], rows: usize) -> Vec<T> {
    if values.is_empty() {
        return Vec::new();
    }
    assert!(rows > 0 && values.len().is_multiple_of(rows), "{} numbers in {rows} rows", values.len());
    let columns = values.len() / rows;
    let mut out = Vec::with_capacity(values.len());
    for j in 0..columns {
        out.extend((0..rows).map(|i| values[i * columns + j]));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// N = 3, s = 2; the number at (row, stage) is 10·row + stage.
    #[test]
    fn orders_of_unknowns() {
        let internal = vec![0.0, 1.0, 10.0, 11.0, 20.0, 21.0];
        let staged = vec![0.0, 10.0, 20.0, 1.0, 11.0, 21.0];
        assert_eq!(from_stage_by_stage(&staged, 2), internal);
        assert_eq!(to_stage_by_stage(&internal, 2), staged);
        let square = Array::new(vec![3, 2], internal.clone()).unwrap();
        assert_eq!(square.clone().into_unknowns("b", 3, 2).unwrap(), internal);
        assert_eq!(Array::vector(staged.clone()).into_unknowns("b", 3, 2).unwrap(), internal);
        for shape in [vec![6, 1], vec![1, 6]] {
            let line = Array::new(shape, staged.clone()).unwrap();
            assert_eq!(line.into_unknowns("b", 3, 2).unwrap(), internal);
        }
        // One unknown with six stages: the row is (rows, stages), and nothing moves.
        let row = Array::new(vec![1, 6], staged.clone()).unwrap();
        assert_eq!(row.into_unknowns("b", 1, 6).unwrap(), staged);
        assert_eq!(Array::from_unknowns(internal, 2).unwrap(), square);
        let message = square.into_unknowns("b", 6, 2).unwrap_err().to_string();
        assert!(message.contains("(6, 2)") && message.contains("12"), "{message}");
    }

    #[test]
    fn one_stage_is_flat() {
        let x = vec![1.0, 2.0, 3.0];
        assert_eq!(Array::vector(x.clone()).into_unknowns("b", 3, 1).unwrap(), x);
        assert_eq!(Array::new(vec![3, 1], x.clone()).unwrap().into_unknowns("b", 3, 1).unwrap(), x);
        assert_eq!(Array::from_unknowns(x, 1).unwrap().shape(), [3]);
        assert!(Array::from_unknowns(vec![1.0; 3], 2).is_err() && Array::from_unknowns(vec![], 0).is_err());
        assert!(Array::vector(vec![1.0; 4]).into_unknowns("b", 3, 1).is_err());
        assert!(Array::vector(vec![]).into_unknowns("b", usize::MAX, 2).is_err());
    }

    #[test]
    fn points_are_padded() {
        let plane = Array::new(vec![2, 2], vec![1.0, 2.0, 3.0, 4.0]).unwrap();
        assert_eq!(plane.into_points().unwrap(), [[1.0, 2.0, 0.0], [3.0, 4.0, 0.0]]);
        assert!(Array::new(vec![1, 4], vec![0.0; 4]).unwrap().into_points().is_err());
        assert!(Array::new(vec![3, 0], vec![]).unwrap().into_points().is_err());
        assert!(Array::new(vec![], vec![1.0]).is_err() && Array::new(vec![usize::MAX, 2], vec![]).is_err());
    }
}

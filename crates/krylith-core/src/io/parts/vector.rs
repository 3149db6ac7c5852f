//! Reading of vectors by parts: values of own rows are read by offset from `.npy` and PETSc files.

use std::ops::Range;
use std::path::{Path, PathBuf};

use super::errors::same;
use super::petsc::{self, VecAt};
use crate::comm::Communicator;
use crate::io::petsc::Cursor;
use crate::io::source::{Bytes, is_gzip, map, name_file};
use crate::io::{Array, Kind, kind, numpy, read_vector_of, unexpected_shape};
use crate::{Error, Result};

/// Reads a rank's unknowns from a vector file, in the order of the solver `row · stages + k`: those of the
/// scalar rows `own` out of `rows`. Collective.
///
/// `.npy` files and PETSc Vecs are read by offset; other files are read whole by each rank, which keeps its
/// own values.
///
/// # Errors
/// The same on every rank: those of [`read_vector`](crate::io::read_vector); a shape that is neither (rows,
/// stages) nor flat, stage after stage. `what` names the array in the error.
pub fn read_unknowns(
    comm: &dyn Communicator,
    path: impl AsRef<Path>,
    what: &str,
    rows: usize,
    stages: usize,
    own: Range<usize>,
) -> Result<Vec<f64>> {
    same(comm, own_unknowns(path, what, rows, stages, own))
}

/// Reads a rank's unknowns as [`read_unknowns`] does, but not collectively: errors in the rows of other ranks
/// are not seen.
///
/// # Errors
/// The errors of [`read_unknowns`], for this rank only.
pub fn own_unknowns(
    path: impl AsRef<Path>,
    what: &str,
    rows: usize,
    stages: usize,
    own: Range<usize>,
) -> Result<Vec<f64>> {
    let path = path.as_ref();
    let file = VectorFile::open(path, rows.saturating_mul(stages))?;
    file.unknowns(what, rows, stages, own).map_err(|e| name_file(path, e))
}

/// A vector file from which ranges can be read.
pub(super) struct VectorFile {
    path: PathBuf,
    content: Content,
    /// The shape, with one or two dimensions.
    pub shape: Vec<usize>,
}

enum Content {
    /// Read by offset; the header is parsed again for each range.
    Npy(Bytes),
    Petsc(Bytes, VecAt),
    Whole(Array),
}

impl VectorFile {
    /// Opens a file of about this many numbers.
    pub fn open(path: &Path, numbers: usize) -> Result<Self> {
        let bytes = map(path)?;
        let file = |content, shape| Ok(Self { path: path.into(), content, shape });
        match kind(path, &bytes) {
            _ if is_gzip(&bytes) => {}
            Kind::Npy => {
                let shape = numpy::open(path, &bytes)?.shape;
                return file(Content::Npy(bytes), shape);
            }
            Kind::Petsc => {
                let mut cursor = Cursor::new(&bytes);
                if let Some(vector) = petsc::vector(&mut cursor).filter(|_| cursor.at == bytes.len()) {
                    return file(Content::Petsc(bytes, vector.clone()), vec![vector.len]);
                }
            }
            _ => {}
        }
        let array = read_vector_of(path, numbers)?;
        let shape = array.shape().to_vec();
        file(Content::Whole(array), shape)
    }

    /// Creates a file from the Vec after a matrix.
    pub fn behind(path: &Path, vector: VecAt) -> Result<Self> {
        Ok(Self { path: path.into(), shape: vec![vector.len], content: Content::Petsc(map(path)?, vector) })
    }

    /// Creates a file from an array already in memory.
    pub fn whole(path: &Path, array: Array) -> Self {
        Self { path: path.into(), shape: array.shape().to_vec(), content: Content::Whole(array) }
    }

    /// Returns rows and columns; one dimension counts as one column.
    pub fn rows_columns(&self) -> (usize, usize) {
        (self.shape[0], self.shape.get(1).copied().unwrap_or(1))
    }

    /// Reads a range of numbers in the order of the file.
    fn window(&self, numbers: Range<usize>) -> Result<Vec<f64>> {
        match &self.content {
            Content::Npy(bytes) => numpy::open(&self.path, bytes)?.window(numbers).reals(&self.path),
            Content::Petsc(bytes, vector) => Ok(vector.window(bytes, numbers)),
            Content::Whole(array) => Ok(array.values()[numbers].to_vec()),
        }
    }

    /// Returns true if the file is stored by columns.
    fn by_columns(&self) -> Result<bool> {
        match &self.content {
            Content::Npy(bytes) => Ok(numpy::open(&self.path, bytes)?.fortran && self.shape.len() == 2),
            _ => Ok(false),
        }
    }

    /// Reads a range of rows in C order.
    pub fn rows(&self, own: Range<usize>) -> Result<Vec<f64>> {
        let (n, m) = self.rows_columns();
        let values = if self.by_columns()? {
            self.strided(n, m, own.clone())?
        } else {
            self.window(own.start * m..own.end * m)?
        };
        self.check_finite(&values, |p| (own.start + p / m, p % m))?;
        Ok(values)
    }

    /// Reads unknowns as described at [`read_unknowns`].
    pub fn unknowns(&self, what: &str, rows: usize, stages: usize, own: Range<usize>) -> Result<Vec<f64>> {
        let total = rows.checked_mul(stages);
        match self.shape[..] {
            [n, s] if n == rows && s == stages => self.rows(own),
            [n] | [n, 1] | [1, n] if Some(n) == total => {
                let values = self.strided(rows, stages, own.clone())?;
                let columns = self.rows_columns().1;
                self.check_finite(&values, |p| {
                    let at = p % stages * rows + own.start + p / stages;
                    (at / columns, at % columns)
                })?;
                Ok(values)
            }
            _ => Err(unexpected_shape(what, &self.shape, rows, stages)),
        }
    }

    /// Reads the rows `own` of `columns` columns of `n` numbers each, stored one column after the other.
    fn strided(&self, n: usize, columns: usize, own: Range<usize>) -> Result<Vec<f64>> {
        let mut out = vec![0.0; own.len() * columns];
        for k in 0..columns {
            let column = self.window(k * n + own.start..k * n + own.end)?;
            out.iter_mut().skip(k).step_by(columns).zip(column).for_each(|(x, v)| *x = v);
        }
        Ok(out)
    }

    /// Returns an error for the first value of the array that is NaN or infinite; `place` gives its row and
    /// column.
    fn check_finite(&self, values: &[f64], place: impl Fn(usize) -> (usize, usize)) -> Result<()> {
        let bad = values.iter().enumerate().filter(|(_, v)| !v.is_finite());
        match bad.map(|(p, v)| (place(p), *v)).min_by_key(|(place, _)| *place) {
            None => Ok(()),
            Some(((row, column), value)) => {
                Err(Error::NotFinite { what: crate::text::name(&self.path), row, column, value })
            }
        }
    }
}

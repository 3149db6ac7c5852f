//! Reads and writes files with a matrix or a vector; the format is recognised by content.
//!
//! `krylith::io` re-exports this module, and adds readers of whole systems and of one rank's rows.
//!
//! To add a format, add a `Kind`, recognised by content, and its match arms here. Bound the length of its
//! streams in `bound.rs`. State in `io/parts/matrix.rs` of krylith-core whether ranks can share the file, and
//! extend the table of formats in `io/mod.rs` there.

mod array;
pub mod atomic;
mod bound;
mod columns;
#[doc(hidden)]
pub mod coordinate;
pub mod harwell_boeing;
pub mod matlab;
pub mod matrix_market;
pub mod npz;
mod number;
pub mod numpy;
pub mod petsc;
#[cfg(test)]
mod samples;
#[doc(hidden)]
pub mod source;
mod text;
mod vector;
pub mod vtu;

use std::path::Path;

pub use array::{Array, from_stage_by_stage, to_stage_by_stage};
#[doc(hidden)]
pub use array::{points_columns, unexpected_shape};
pub use vector::{VectorFormat, is_own, write_vector};

use crate::matrix::{Bsr, Csr, Dia};
use crate::{Error, Result};

/// A matrix in the format of its file.
///
/// # Examples
/// ```
/// use krylith::io::{Matrix, parse_matrix};
/// let text = b"%%MatrixMarket matrix coordinate real general\n2 2 3\n1 1 4\n2 1 -1\n2 2 4\n";
/// let a = parse_matrix("A.mtx", text)?.matrix;
/// assert!(matches!(a, Matrix::Csr(_)));
/// assert_eq!((a.rows(), a.stored(), a.format()), (2, 3, "csr"));
/// let blocks = a.into_bsr(2)?; // one node with two unknowns; what was missing is zero
/// assert_eq!(blocks.values(), [4.0, 0.0, -1.0, 4.0]);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum Matrix {
    /// By scalar rows.
    Csr(Csr),
    /// By rows of square blocks.
    Bsr(Bsr),
    /// By diagonals.
    Dia(Dia),
}

impl Matrix {
    /// Scalar rows.
    pub fn rows(&self) -> usize {
        match self {
            Matrix::Csr(a) => a.rows(),
            Matrix::Bsr(a) => a.rows(),
            Matrix::Dia(a) => a.rows(),
        }
    }

    /// Scalar columns.
    pub fn columns(&self) -> usize {
        match self {
            Matrix::Csr(a) => a.columns(),
            Matrix::Bsr(a) => a.columns(),
            Matrix::Dia(a) => a.columns(),
        }
    }

    /// Number of stored numbers, including zeros inside blocks and on diagonals.
    pub fn stored(&self) -> usize {
        match self {
            Matrix::Csr(a) => a.nonzeros(),
            Matrix::Bsr(a) => a.values().len(),
            Matrix::Dia(a) => a.values().len(),
        }
    }

    /// `csr`, `bsr` or `dia`.
    pub fn format(&self) -> &'static str {
        match self {
            Matrix::Csr(_) => "csr",
            Matrix::Bsr(_) => "bsr",
            Matrix::Dia(_) => "dia",
        }
    }

    /// The same matrix by scalar rows.
    pub fn into_csr(self) -> Csr {
        match self {
            Matrix::Csr(a) => a,
            Matrix::Bsr(a) => a.to_csr(),
            Matrix::Dia(a) => a.to_csr(),
        }
    }

    /// The same matrix in b×b blocks.
    ///
    /// # Errors
    /// Rows or columns that `block` does not divide.
    pub fn into_bsr(self, block: usize) -> Result<Bsr> {
        match self {
            Matrix::Bsr(a) if a.block() == block => Ok(a),
            other => Bsr::from_csr(&other.into_csr(), block),
        }
    }
}

/// The contents of a matrix file.
///
/// # Examples
/// ```
/// use krylith::io::parse_matrix;
/// use krylith_matrix::io::petsc;
/// use krylith::matrix::Csr;
/// // PETSc's MatView followed by VecView.
/// let path = std::env::temp_dir().join(format!("krylith-doc-read-{}.bin", std::process::id()));
/// let a = Csr::from_triplets(2, 2, &[(0, 0, 2.0), (1, 1, 4.0)])?;
/// petsc::write(&path, &[petsc::Item::Matrix(&a), petsc::Item::Vector(&[2.0, 8.0])])?;
/// let read = krylith::io::read_matrix(&path)?;
/// assert_eq!(read.matrix.into_csr(), a);
/// assert_eq!(read.vector, Some(vec![2.0, 8.0])); // the right-hand side
/// # std::fs::remove_file(&path).ok();
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct ReadMatrix {
    /// The matrix, or the real form of a complex one: a + ib is the block [[a, −b], [b, a]].
    pub matrix: Matrix,
    /// True if the matrix in the file is complex. [`Array::into_complex`] then widens real vectors.
    pub complex: bool,
    /// The block size that the file, or PETSc's `.info` file beside it, gives.
    pub block_hint: Option<usize>,
    /// The vector that follows the matrix (PETSc, Harwell–Boeing, AmgX) or is called `b` beside it (MATLAB).
    /// By convention it is the right-hand side.
    pub vector: Option<Vec<f64>>,
}

/// The format of a file, recognised by its first bytes.
#[doc(hidden)]
pub enum Kind {
    MatrixMarket,
    Npy,
    Npz,
    Petsc,
    HarwellBoeing,
    Matlab,
    Unknown,
}

/// The format of a file, by its content, or else by its name.
#[doc(hidden)]
pub fn kind(path: &Path, bytes: &[u8]) -> Kind {
    let ends = |list: &[&str]| {
        let name = path.file_name().map(|n| n.to_string_lossy().to_ascii_lowercase()).unwrap_or_default();
        let name = name.strip_suffix(".gz").unwrap_or(&name);
        list.iter().any(|e| name.ends_with(e))
    };
    let text = &bytes[source::mark(bytes)..];
    if text.get(..14).is_some_and(|b| b.eq_ignore_ascii_case(b"%%MatrixMarket")) {
        Kind::MatrixMarket
    } else if bytes.starts_with(numpy::MAGIC) {
        Kind::Npy
    } else if bytes.starts_with(b"PK") {
        Kind::Npz
    } else if petsc::is_petsc(bytes) {
        Kind::Petsc
    } else if matlab::is_matlab(bytes) {
        Kind::Matlab
    } else if harwell_boeing::is_harwell_boeing(bytes) {
        Kind::HarwellBoeing
    // The content is not recognised, perhaps because it is damaged: the reader chosen by the name reports
    // what is wrong.
    } else if ends(&[".mtx"]) {
        Kind::MatrixMarket
    } else if ends(&[".npy"]) {
        Kind::Npy
    } else if ends(&[".npz"]) {
        Kind::Npz
    } else if ends(&[".mat"]) {
        Kind::Matlab
    } else if ends(&[
        ".rb", ".hb", ".rua", ".rsa", ".rza", ".rra", ".pua", ".psa", ".pra", ".cua", ".csa", ".rse",
    ]) {
        Kind::HarwellBoeing
    } else if ends(&[".petsc", ".bin"]) {
        Kind::Petsc
    } else {
        Kind::Unknown
    }
}

/// Reads a matrix: Matrix Market, Harwell–Boeing or Rutherford–Boeing (plain or gzip), SciPy `.npz`, PETSc
/// binary, or MATLAB `.mat`.
///
/// # Errors
/// A file that cannot be read, has none of these formats, is malformed or damaged, or holds values that are
/// not finite.
pub fn read_matrix(path: impl AsRef<Path>) -> Result<ReadMatrix> {
    let path = path.as_ref();
    let bytes = source::load(path, None)?;
    let mut read = matrix_of(path, &bytes)?;
    if petsc::is_petsc(&bytes) {
        read.block_hint = petsc::block_hint(path);
    }
    Ok(read)
}

/// As [`read_matrix`], from a file's content in memory; files beside it are not read. Errors use `name`, and
/// its ending selects the format if the content does not.
///
/// ```
/// use krylith::io::parse_matrix;
/// let text = "%%MatrixMarket matrix coordinate real general\n2 2 2\n1 1 3.5\n2 2 1\n";
/// assert_eq!(parse_matrix("A.mtx", text.as_bytes())?.matrix.rows(), 2);
/// # Ok::<(), krylith::Error>(())
/// ```
///
/// # Errors
/// As [`read_matrix`].
pub fn parse_matrix(name: impl AsRef<Path>, bytes: &[u8]) -> Result<ReadMatrix> {
    let path = name.as_ref();
    matrix_of(path, &source::unpacked(path, bytes)?)
}

fn matrix_of(path: &Path, bytes: &[u8]) -> Result<ReadMatrix> {
    match kind(path, bytes) {
        Kind::MatrixMarket => {
            let matrix_market::Parsed { matrix, complex, block, rhs } =
                matrix_market::parse_all(path, bytes)?;
            Ok(ReadMatrix { matrix: Matrix::Csr(matrix), complex, block_hint: block, vector: rhs })
        }
        Kind::Npz => {
            let matrix = npz::parse(path, bytes)?;
            let block_hint = if let Matrix::Bsr(a) = &matrix { Some(a.block()) } else { None };
            Ok(ReadMatrix { matrix, complex: false, block_hint, vector: None })
        }
        Kind::Petsc => {
            let mut objects = petsc::parse(path, bytes)?.into_iter();
            let Some(petsc::Object::Matrix(a)) = objects.next() else {
                return Err(Error::format(
                    path,
                    "expected a matrix, but the file begins with a PETSc vector; write the Mat first",
                ));
            };
            let vector = objects.find_map(|o| if let petsc::Object::Vector(x) = o { Some(x) } else { None });
            Ok(ReadMatrix { matrix: Matrix::Csr(a), complex: false, block_hint: None, vector })
        }
        Kind::HarwellBoeing => {
            let (a, vector) = harwell_boeing::parse(path, bytes)?;
            Ok(ReadMatrix { matrix: Matrix::Csr(a), complex: false, block_hint: None, vector })
        }
        Kind::Matlab => {
            let (a, vector) = matlab::parse(path, bytes)?;
            Ok(ReadMatrix { matrix: Matrix::Csr(a), complex: false, block_hint: None, vector })
        }
        Kind::Npy => {
            let message = "expected a sparse matrix, found a dense array; save it with scipy.sparse.save_npz";
            Err(Error::format(path, message))
        }
        Kind::Unknown => Err(Error::format(
            path,
            "the format of this matrix is not recognised; give Matrix Market (.mtx, .mtx.gz), SciPy (.npz), \
             PETSc binary, Harwell–Boeing (.rua, .rb) or MATLAB (.mat, saved with -v7)",
        )),
    }
}

/// Reads a vector or a two-dimensional dense array. Formats: Matrix Market (array, or coordinate filled with
/// zeros), `.npy`, the first PETSc Vec of a file, the dense array of a MATLAB file, the right-hand side of a
/// Harwell–Boeing file, or text with the same count of numbers in each line.
///
/// # Errors
/// A file that cannot be read, has none of these formats, is malformed or damaged, or holds values that are
/// not finite.
pub fn read_vector(path: impl AsRef<Path>) -> Result<Array> {
    let path = path.as_ref();
    vector_of(path, &source::load(path, None)?)
}

/// As [`read_vector`], for callers that want about `numbers` numbers. A pipe or a compressed text that is far
/// longer is refused before it fills the memory. Any other count of numbers is not an error.
///
/// # Errors
/// As [`read_vector`]; far more text than `numbers` can need.
///
/// ```
/// # let path = std::env::temp_dir().join(format!("krylith-doc-vector-{}.txt", std::process::id()));
/// std::fs::write(&path, "1 10\n2 20\n").unwrap();
/// // Two right-hand sides of two unknowns.
/// assert_eq!(krylith_matrix::io::read_vector_of(&path, 2)?.shape(), [2, 2]);
/// # std::fs::remove_file(&path).ok();
/// # Ok::<(), krylith::Error>(())
/// ```
pub fn read_vector_of(path: impl AsRef<Path>, numbers: usize) -> Result<Array> {
    let path = path.as_ref();
    vector_of(path, &source::load(path, Some(numbers))?)
}

/// As [`read_vector`], from a file's content in memory; `name` as for [`parse_matrix`].
///
/// # Errors
/// As [`read_vector`].
pub fn parse_vector(name: impl AsRef<Path>, bytes: &[u8]) -> Result<Array> {
    let path = name.as_ref();
    vector_of(path, &source::unpacked(path, bytes)?)
}

fn vector_of(path: &Path, bytes: &[u8]) -> Result<Array> {
    match kind(path, bytes) {
        Kind::MatrixMarket => matrix_market::parse_array(path, bytes),
        Kind::Npy => numpy::parse(path, bytes),
        Kind::Petsc => {
            let mut objects = petsc::parse(path, bytes)?.into_iter();
            let found = objects.find_map(|o| if let petsc::Object::Vector(x) = o { Some(x) } else { None });
            found.map(Array::vector).ok_or_else(|| Error::format(path, "no Vec in this PETSc file"))
        }
        Kind::Matlab => matlab::parse_array(path, bytes),
        Kind::HarwellBoeing => harwell_boeing::parse(path, bytes)?
            .1
            .map(Array::vector)
            .ok_or_else(|| Error::format(path, "no right-hand side in this Harwell–Boeing file")),
        Kind::Npz => Err(Error::format(
            path,
            "expected a vector, found a sparse matrix or an archive; save it with numpy.save",
        )),
        Kind::Unknown => text::parse(path, bytes),
    }
}

#[cfg(test)]
mod tests;

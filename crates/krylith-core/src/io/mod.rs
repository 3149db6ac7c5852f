//! Input and output of matrices, vectors, systems and meshes.
//!
//! [`read_matrix`], [`read_vector`] and [`read_system`] recognise formats by content, and by the file
//! extension only if the content is ambiguous. Errors name the file, and the line in text files. Sizes in
//! headers are checked against the file's length before memory is allocated for them. Writers replace files
//! atomically ([`atomic`]). [`parts`] reads the same files on many ranks, each its own rows.
//!
//! Formats that can be read:
//!
//! - Matrix Market, plain or gzip, also in AmgX's variant with a right-hand side after the entries: matrices
//!   and vectors; written by [`matrix_market`].
//! - PETSc binary: matrices (AIJ) and vectors (Vec); written by [`petsc`].
//! - NumPy `.npy`: vectors; written by [`numpy`].
//! - SciPy `.npz`: matrices.
//! - Harwell–Boeing and Rutherford–Boeing, plain or gzip: assembled real matrices and patterns, with their
//!   right-hand side.
//! - MATLAB `.mat` of level 5 (`-v6`, `-v7`): sparse matrices and dense vectors.
//! - Text files of numbers: vectors; written by [`write_vector`].
//! - `system.toml`: a system; written by [`system`].
//!
//! VTK files (`.vtu`) are only written, by [`vtu`].

mod defaults;
pub mod parts;
pub mod system;

pub use defaults::Defaults;
#[doc(inline)]
pub use krylith_matrix::io::*;
pub use system::{System, SystemMatrix, read_system};

//! Files in and out: matrices, vectors, whole systems, meshes.
//!
//! [`read_matrix`], [`read_vector`] and [`read_system`] tell formats apart by content, and by the name's ending
//! only where the content cannot say. Errors name the file, and the line where there are lines. Sizes in headers
//! are checked against the file's length before memory is taken for them. Writers replace files whole ([`atomic`]).
//! [`parts`] reads the same files with many ranks, each its own rows.
//!
//! | format | matrix | vector | written |
//! |---|---|---|---|
//! | Matrix Market, plain or gzip, and AmgX's with a right-hand side behind the entries | yes | yes | [`matrix_market`] |
//! | PETSc binary | AIJ | Vec | [`petsc`] |
//! | NumPy `.npy` | | yes | [`numpy`] |
//! | SciPy `.npz` | yes | | |
//! | Harwell–Boeing and Rutherford–Boeing, plain or gzip | assembled and real, or a pattern | its right-hand side | |
//! | MATLAB `.mat` of level 5 (`-v6`, `-v7`) | sparse | dense | |
//! | numbers in a text file | | yes | [`write_vector`] |
//! | `system.toml` | a system | | [`system`] |
//! | VTK `.vtu` | | | [`vtu`] |

mod defaults;
pub mod parts;
pub mod system;

pub use defaults::Defaults;
#[doc(inline)]
pub use krylith_matrix::io::*;
pub use system::{System, SystemMatrix, read_system};

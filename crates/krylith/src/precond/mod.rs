//! Preconditioners: linear operators that approximate an inverse and can be refreshed with new values.

mod jacobi;

pub use jacobi::{BlockDiagonal, BlockJacobi, invert_block};

//! Preconditioners: linear operators that approximate an inverse and can be refreshed with new values.

mod equilibrated;
mod jacobi;
mod null_space;

pub use equilibrated::{Equilibrated, SWEEPS as EQUILIBRATED_SWEEPS, Scaling};
pub use jacobi::{BlockDiagonal, BlockJacobi, invert_block};
pub use null_space::NullSpace;

//! Preconditioners: linear operators that approximate an inverse and can be refreshed with new values.

mod equilibrated;
mod ildu;
mod jacobi;
mod null_space;

pub use equilibrated::{Equilibrated, SWEEPS as EQUILIBRATED_SWEEPS, Scaling};
pub(crate) use ildu::MAX_ORDER;
pub use ildu::{Ildu, IlduOptions, PivotKind, Pivots, Plan, SubdomainFactors, TINY_PIVOT};
pub use jacobi::{BlockDiagonal, BlockJacobi, invert_block};
pub use null_space::NullSpace;

//! The implementation of Krylith: devices, operators, methods, preconditioners and solvers.
//!
//! Programs depend on the crate `krylith`, which re-exports the names of the stable interface. Everything
//! else in this crate may change in any version. ARCHITECTURE.md in the repository describes the modules and
//! their order.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod device;
pub mod fields;
pub mod io;
pub mod matching;
pub mod method;
pub mod newton;
pub mod operator;
pub mod partition;
pub mod precond;
pub mod solver;
pub mod space;

pub mod options;
mod problem;

pub use fields::Field;
#[doc(inline)]
pub use krylith_base::{Error, Remedy, Result, comm, names, text, waiting};
pub(crate) use krylith_base::{halo, interrupt, profile, threads, twofold};
#[doc(inline)]
pub use krylith_matrix::{matrix, memory};
pub use options::{DeviceSpec, Options};
pub use problem::{FieldBlock, Problem};
pub use solver::{Solver, solve};
pub use space::{History, Observer, Outcome, Precision, PrecondPrecision, Progress, Stop};

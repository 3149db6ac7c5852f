//! Krylov solvers for the large sparse point-block systems of multiphysics simulation, on CPUs and GPUs.

pub mod comm;
pub mod device;
pub mod io;
pub mod matching;
pub mod matrix;
pub mod memory;
pub mod method;
pub mod newton;
pub mod operator;
pub mod partition;
pub mod precond;
pub mod solver;
pub mod space;
pub mod text;

mod error;
pub mod options;
mod problem;
mod twofold;

pub use error::{Error, Remedy, Result};
pub use options::{DeviceSpec, Options};
pub use problem::Problem;
pub use solver::{Solver, solve};
pub use space::{History, Observer, Outcome, Progress, Stop, Store};

/// Programs in the README and the guide are compiled and run with the documentation's.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../../../docs/guide.md")]
#[doc = include_str!("../../../docs/petsc-trilinos.md")]
mod documents {}

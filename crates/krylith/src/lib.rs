//! Krylov solvers for the large sparse point-block systems of multiphysics simulation, on CPUs and GPUs.

pub mod comm;
pub mod device;
pub mod io;
pub mod matrix;
pub mod memory;
pub mod method;
pub mod operator;
pub mod partition;
pub mod precond;
pub mod space;

mod error;

pub use error::{Error, Result};
pub use space::{History, Observer, Outcome, Progress, Stop, Store};

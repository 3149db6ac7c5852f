//! Krylov solvers for the large sparse point-block systems of multiphysics simulation, on CPUs and GPUs.

pub mod io;
pub mod matrix;

mod error;

pub use error::{Error, Result};

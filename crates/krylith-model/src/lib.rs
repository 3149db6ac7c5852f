//! Predicts the time of a GMRES iteration on many GPUs from a partition's statistics and a machine file.
//!
//! * [`Machine`]: the machine file, filled by `krylith bench links` or from data sheets; [`machines`]: those that are part of Krylith;
//! * [`Load`], [`loads`], [`Machine::predict`]: the model, pure functions of both; [`Machine::iteration`]: any method with most preconditioners;
//! * [`poisson`]: the same of P-CG and P-CBCG for a 7-point Poisson equation, beside what others have published;
//! * [`multilevel`]: cycles over coarse levels, beside what this host takes for them;
//! * [`spmv`]: products whose vectors every GPU holds whole;
//! * [`scaling`]: weak and strong scaling over boxes, where no partition can be built;
//! * [`report`]: tables, pictures, predictions as JSON, and their comparison with what was measured.

mod iteration;
mod machine;
pub mod machines;
pub mod multilevel;
pub mod poisson;
mod predict;
pub mod report;
mod samples;
pub mod scaling;
pub mod spmv;
mod words;

pub use iteration::{Applied, Iteration};
pub use machine::{Curve, Host, Kernels, Machine, Network};
pub use predict::{Load, Shape, Times, loads};
pub use samples::{Samples, means};
pub use words::fold;

#[cfg(test)]
pub(crate) use machine::tests;

/// Mean bytes of an orthogonalisation of GMRES(m), vectors of `unknowns` f64: (2j + 6) N numbers at step j.
pub fn orthogonalization_bytes(unknowns: f64, m: usize) -> f64 {
    8.0 * unknowns * (m as f64 + 5.0)
}

/// Bytes that the end of a cycle moves besides a product: V y (m + 3 vectors), x += V y (3), r = b − A x (3).
pub fn cycle_bytes(unknowns: f64, m: usize) -> f64 {
    8.0 * unknowns * (m as f64 + 9.0)
}

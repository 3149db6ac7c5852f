//! Predicts the time of a GMRES iteration on many GPUs from a partition's statistics and a machine file.

mod machine;

pub use machine::{Curve, Host, Kernels, Machine, Network};

/// Mean bytes of an orthogonalisation of GMRES(m), vectors of `unknowns` f64: (2j + 6) N numbers at step j.
pub fn orthogonalization_bytes(unknowns: f64, m: usize) -> f64 {
    8.0 * unknowns * (m as f64 + 5.0)
}

/// Bytes that the end of a cycle moves besides a product: V y (m + 3 vectors), x += V y (3), r = b − A x (3).
pub fn cycle_bytes(unknowns: f64, m: usize) -> f64 {
    8.0 * unknowns * (m as f64 + 9.0)
}

//! Krylov methods: one a file, written once for every device.

mod gmres;

pub use gmres::{Gmres, GmresOptions, Orthogonalization, SWEEPS as GMRES_SWEEPS};

//! Bytes and time of solves with the factors of Schwarz's subdomains.

use super::{Solves, Triangles};
use crate::precond::TriangularSolve;

/// Seconds per level (H200, measured).
const LEVEL: f64 = 1.7e-6;
/// Bytes of triangles read per second.
const BANDWIDTH: f64 = 2e12;
/// Warps per multiprocessor.
const RESIDENT: f64 = 24.0;
/// Bytes of the cache of a multiprocessor.
const CACHE: f64 = 200e3;
/// Ratio of iterations with five sweeps to those with substitution.
const MORE_ITERATIONS: f64 = 1.4;

impl Solves {
    /// True if substitution is expected to be faster than randomized sweeps. A level costs the time in which
    /// a number goes from one multiprocessor to another. If the rows of all warps do not fit the first-level
    /// cache, every sweep reads the factors again. Measured on an H200: substitution takes 4.4 ms and sweeps
    /// 0.34 ms on a plane of 600² nodes, and 8 ms and 17 ms on 1.5 million nodes in space.
    pub fn exact_is_faster(&self, sweeps: usize) -> bool {
        let rows = self.target.len().max(1);
        let Triangles { lower, upper, .. } = &self.forward;
        let bytes = (lower.values.len() + upper.values.len()) as f64;
        let of_warps = RESIDENT * bytes / (2 * rows) as f64 * self.most as f64;
        let reads = if of_warps > CACHE { sweeps as f64 } else { 1.0 };
        let exact = LEVEL * (lower.depth + upper.depth) as f64 + bytes / BANDWIDTH;
        exact < MORE_ITERATIONS * reads * bytes / BANDWIDTH
    }

    /// Least number of bytes that one application moves, for vectors of `own` nodes.
    pub fn bytes(&self, how: TriangularSolve, deterministic: bool, b: usize) -> u64 {
        let rows = self.target.len();
        let Triangles { lower, upper, inverse } = &self.forward;
        let triangles = lower.values.len() + upper.values.len();
        let columns = lower.columns().1 + upper.columns().1;
        let number = self.computed().bytes();
        let once = triangles + columns + 16 * rows + 4 * number * b * rows;
        let sweeps = match how {
            TriangularSolve::Jacobi { sweeps } => sweeps,
            TriangularSolve::Random { sweeps } if deterministic => sweeps,
            _ => 1,
        };
        (sweeps * once + inverse.len() + rows * (8 + (16 + 4 * number) * b)) as u64
    }
}

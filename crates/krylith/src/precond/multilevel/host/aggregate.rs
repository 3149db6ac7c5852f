//! Nodes that become one.

use crate::Result;
use crate::device::cpu::Pool;
use crate::matrix::Bsr;

/// The aggregate of each node, numbered by their first nodes.
pub fn by_matching(pool: &Pool, a: &Bsr, theta: f64) -> Vec<u32> {
    let _ = (pool, a, theta);
    todo!("helper b")
}

/// 1 from each node to its aggregate; smoothed by I − ω D⁻¹A.
pub fn prolongation(pool: &Pool, a: &Bsr, aggregates: &[u32], smoothed: bool) -> Result<Bsr> {
    let _ = (pool, a, aggregates, smoothed);
    todo!("helper b")
}

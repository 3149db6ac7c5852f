//! Which nodes stay: strength of couplings, and independent sets by PMIS.

use crate::device::cpu::Pool;
use crate::matrix::Bsr;

/// Of each entry of `a` whether its row depends strongly on its column; the diagonal never is.
pub fn strong(pool: &Pool, a: &Bsr, theta: f64) -> Vec<u8> {
    let _ = (pool, a, theta);
    todo!("helper a")
}

/// The number of each node in the coarser level, ascending with nodes; [`FINE`](super::FINE) of those that do not stay.
pub fn pmis(pool: &Pool, a: &Bsr, strong: &[u8], level: usize) -> Vec<u32> {
    let _ = (pool, a, strong, level);
    todo!("helper a")
}

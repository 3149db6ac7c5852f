//! Weights by which nodes that do not stay interpolate from those that do.

use crate::Result;
use crate::device::cpu::Pool;
use crate::matrix::Bsr;

/// Extended+i interpolation, truncated to the `most` largest weights of a row, which keep the row's sum.
pub fn extended_i(pool: &Pool, a: &Bsr, strong: &[u8], coarse: &[u32], most: usize) -> Result<Bsr> {
    let _ = (pool, a, strong, coarse, most);
    todo!("helper a")
}

//! The unit in which a solve works.
//!
//! Norms are sums of squares: of numbers far from 1 they overflow, or vanish and make any x look right. A power of two costs
//! no digit.

use crate::Result;
use crate::comm::{self, Communicator};

/// Entries whose squares are safe.
const SAFE: std::ops::RangeInclusive<f64> = 1e-120..=1e120;

/// A power of two that brings the largest entry near 1, or 1 where squares are safe anyway. Collective; allocates nothing where
/// they are.
///
/// A rank whose numbers are not on the host takes them to be safe.
///
/// # Errors
/// A rank that is gone or failed.
pub(super) fn unit(comm: &dyn Communicator, b: Option<&[f64]>) -> Result<f64> {
    let own = b.map_or(1.0, |b| b.iter().fold(0.0f64, |m, v| m.max(v.abs())));
    let mut count = [own > *SAFE.end(), SAFE.contains(&own), own > 0.0].map(|is| f64::from(u8::from(is)));
    comm.sum(&mut count)?;
    let [huge, safe, some] = count.map(|n| n > 0.0);
    if !some || (safe && !huge) {
        return Ok(1.0);
    }
    let largest = comm::largest(comm, own)?;
    Ok((-largest.log2().floor()).clamp(-1000.0, 1000.0).exp2())
}

/// True for the norm of a vector that needs no other unit.
pub(super) fn is_safe(norm: f64) -> bool {
    SAFE.contains(&norm)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comm::{Communicator, Solo, Team};

    #[test]
    fn only_what_is_far_from_one_is_scaled() {
        for (b, expected) in [([0.0, 0.0], 1.0), ([1e-120, 3.0], 1.0), ([1e-200, 1e119], 1.0)] {
            assert_eq!(unit(&Solo, Some(&b)).unwrap(), expected, "{b:?}");
        }
        assert_eq!(unit(&Solo, Some(&[2f64.powi(500), 1.0])).unwrap(), 2f64.powi(-500));
        assert_eq!(unit(&Solo, Some(&[-2f64.powi(-900)])).unwrap(), 2f64.powi(900));
        // One rank's small numbers do not matter beside another's.
        let of = |rank: usize| if rank == 0 { 1e-300 } else { 1.0 };
        let units = Team::run(2, |comm| unit(&*comm, Some(&[of(comm.rank())]))).unwrap();
        assert_eq!(units, [1.0, 1.0]);
        let units = Team::run(2, |comm| unit(&*comm, Some(&[1e300 * of(comm.rank())]))).unwrap();
        assert_eq!(units, [2f64.powi(-996); 2]);
    }
}

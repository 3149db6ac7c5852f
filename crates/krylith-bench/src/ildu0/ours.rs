//! Krylith's own entries of the suite: `precond::Ildu` on the case's boxes, and BiCGSTAB with it.
//!
//! The one place where the suite meets them. What is added here is checked, timed and reported like every baseline.

use super::{Candidates, Case, Ground};
use krylith::Result;

/// Adds Krylith's applications and solvers on this device; none are in the library yet.
pub(super) fn add<'a, P: Ground>(_: &'a P, _: &'a Case, _: &mut Candidates<'a>) -> Result<()> {
    Ok(())
}

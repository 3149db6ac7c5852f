//! Units in which the squares of a vector's entries neither overflow nor underflow.

/// Norms whose squares are safe.
const SAFE: std::ops::RangeInclusive<f64> = 1e-120..=1e120;

/// Returns the exponent of a unit, a power of two, in which a norm of this size must be computed again;
/// `None` if its squares are safe or it is NaN.
pub(crate) fn other_unit(norm: f64) -> Option<f64> {
    let trial = if norm > 1.0 { -600.0 } else { 600.0 };
    (!SAFE.contains(&norm) && !norm.is_nan()).then_some(trial)
}

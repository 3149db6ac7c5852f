//! Units in which the squares of a vector's numbers neither overflow nor vanish.

/// Norms whose squares are safe.
const SAFE: std::ops::RangeInclusive<f64> = 1e-120..=1e120;

/// The exponent of a unit, a power of two, in which a norm that came out like this has to be taken again; none where its squares are
/// safe, or it is no number.
pub(crate) fn other_unit(norm: f64) -> Option<f64> {
    let trial = if norm > 1.0 { -600.0 } else { 600.0 };
    (!SAFE.contains(&norm) && !norm.is_nan()).then_some(trial)
}

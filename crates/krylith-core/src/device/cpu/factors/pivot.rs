//! Inverses of pivots, and the criteria of a bad pivot.

use crate::precond::{PivotKind, TINY_PIVOT, eliminate};

/// Inverts a row-major pivot by Gauss–Jordan elimination with row pivoting, and overwrites `a`; `scale` has
/// the largest entry of each scalar row of the matrix.
#[inline(always)]
pub(in crate::device::cpu) fn invert(
    m: usize,
    a: &mut [f64],
    scale: &[f64],
    inverse: &mut [f64],
) -> Result<(), PivotKind> {
    if a.iter().any(|v| !v.is_finite()) {
        return Err(PivotKind::NotFinite);
    }
    if m == 1 {
        inverse[0] = 1.0 / a[0];
        return match a[0] {
            0.0 => Err(PivotKind::Zero),
            v if v.abs() < TINY_PIVOT * scale[0] => Err(PivotKind::Tiny),
            _ if !inverse[0].is_finite() => Err(PivotKind::NotFinite),
            _ => Ok(()),
        };
    }
    inverse.fill(0.0);
    for r in 0..m {
        // Rows with different units are compared relative to the entries of the matrix.
        let largest = if scale[r] > 0.0 { scale[r] } else { 1.0 };
        a[r * m..(r + 1) * m].iter_mut().for_each(|v| *v /= largest);
        inverse[r * m + r] = 1.0 / largest;
    }
    eliminate(m, a, inverse)
}

//! Inverses of small dense blocks.

use super::{PivotKind, TINY_PIVOT};

/// Inverts a row-major matrix `a` of order `m` by Gauss–Jordan elimination with row pivoting. The caller has
/// scaled the rows of `a` to entries of at most 1. `inverse` holds the identity with the same row scaling
/// before, and the inverse after. Overwrites `a`.
#[inline(always)]
pub(crate) fn eliminate(m: usize, a: &mut [f64], inverse: &mut [f64]) -> Result<(), PivotKind> {
    for c in 0..m {
        let pivot = (c..m).fold(c, |p, r| if a[r * m + c].abs() > a[p * m + c].abs() { r } else { p });
        let size = a[pivot * m + c].abs();
        if size == 0.0 {
            return Err(PivotKind::Zero);
        }
        if size < TINY_PIVOT {
            return Err(PivotKind::Tiny);
        }
        if pivot != c {
            for k in 0..m {
                a.swap(pivot * m + k, c * m + k);
                inverse.swap(pivot * m + k, c * m + k);
            }
        }
        let d = 1.0 / a[c * m + c];
        for k in 0..m {
            a[c * m + k] *= d;
            inverse[c * m + k] *= d;
        }
        for r in 0..m {
            let f = a[r * m + c];
            if r != c && f != 0.0 {
                for k in 0..m {
                    a[r * m + k] -= f * a[c * m + k];
                    inverse[r * m + k] -= f * inverse[c * m + k];
                }
            }
        }
    }
    if inverse.iter().all(|v| v.is_finite()) { Ok(()) } else { Err(PivotKind::NotFinite) }
}

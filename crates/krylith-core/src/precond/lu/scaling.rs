//! Scales of rows and columns. All are powers of 2, so scaling rounds nothing.

use super::multifrontal::Kind;
use super::plan::Plan;

/// Number of sweeps that scale a symmetric matrix.
const SWEEPS: usize = 4;
/// A diagonal entry is weak if a coupling to an unknown with a diagonal entry is more than this multiple of
/// the geometric mean of both diagonal entries. A pivot may be 100 times smaller than the largest entry of
/// its column.
const WEAK: f64 = 10.0;
/// Entries among unknowns with weak diagonals may lose this share of their digits to pivots of strong ones:
/// scaled, they are at least as large, or zero up to [`ZERO`].
const LOST: f64 = 1e-4;
const ZERO: f64 = 1e-14;

impl Plan {
    /// Scales rows and columns for factors of a kind.
    pub fn scale(&mut self, kind: Kind, values: &[f64]) {
        match kind {
            Kind::Cholesky => (self.row_scale, self.column_scale) = Default::default(),
            Kind::Indefinite => {
                let scale = self.symmetric_scale(values);
                (self.row_scale, self.column_scale) = (scale.clone(), scale);
            }
            Kind::Lu if self.is_matched() => {}
            Kind::Lu => (self.row_scale, self.column_scale) = self.scales_by_largest(values),
        }
    }

    /// Returns a scale for rows and columns of a symmetric matrix: [`by_diagonal`](Self::by_diagonal), or
    /// else one that makes the largest entry of each row about 1.
    fn symmetric_scale(&self, values: &[f64]) -> Vec<f64> {
        let n = self.row_place.len();
        let by_diagonal = self.by_diagonal(values);
        // Sweeps after scales by the diagonal only reduce what they left too large.
        let least = if by_diagonal.is_some() { 2.0 } else { 0.0 };
        let mut scale = by_diagonal.unwrap_or_else(|| vec![1.0; n]);
        for _ in 0..SWEEPS {
            let mut most = vec![0.0f64; n];
            self.visit(values, |i, j, v| {
                let v = v * scale[i] * scale[j];
                (most[i], most[j]) = (most[i].max(v), most[j].max(v));
            });
            most.iter_mut().for_each(|m| *m = if *m > least { root(*m) } else { 1.0 });
            if most.iter().all(|m| *m == 1.0) {
                break;
            }
            scale.iter_mut().zip(most).for_each(|(s, m)| *s *= m);
        }
        scale
    }

    /// Returns scales with which strong diagonal entries are about 1. So is the largest coupling to them of
    /// each unknown with a weak or no diagonal entry, such as a pressure. Returns `None` if entries among the
    /// weak ones would get lost. Pivots of order 1 then suffice for the strong ones, and the weak ones
    /// have such a pivot as soon as a neighbour is eliminated. If instead the largest entry of each row is 1,
    /// couplings to the weak ones hide the diagonal. Factors of Stokes flow with slip were 1.6 times larger.
    fn by_diagonal(&self, values: &[f64]) -> Option<Vec<f64>> {
        let n = self.row_place.len();
        let (mut own, mut most) = (vec![0.0f64; n], vec![0.0f64; n]);
        self.visit(values, |i, j, v| {
            if i == j {
                own[i] = v;
            }
            (most[i], most[j]) = (most[i].max(v), most[j].max(v));
        });
        let mut scale: Vec<f64> = own.iter().map(|v| root(*v)).collect();
        let mut is_weak: Vec<bool> = own.iter().map(|v| *v == 0.0).collect();
        self.visit(values, |i, j, v| {
            if i != j && own[i] > 0.0 && own[j] > 0.0 && v * scale[i] * scale[j] > WEAK {
                let weak = if own[i] / most[i] < own[j] / most[j] { i } else { j };
                is_weak[weak] = true;
            }
        });
        let mut coupling = vec![0.0f64; n];
        self.visit(values, |i, j, v| match (is_weak[i], is_weak[j]) {
            (true, false) => coupling[i] = coupling[i].max(v * scale[j]),
            (false, true) => coupling[j] = coupling[j].max(v * scale[i]),
            _ => {}
        });
        for i in (0..n).filter(|&i| is_weak[i]) {
            scale[i] = if coupling[i] > 0.0 { inverse(coupling[i]) } else { root(most[i]) };
        }
        let mut among_weak = vec![0.0f64; n];
        self.visit(values, |i, j, v| {
            if is_weak[i] && is_weak[j] {
                let v = v * scale[i] * scale[j];
                (among_weak[i], among_weak[j]) = (among_weak[i].max(v), among_weak[j].max(v));
            }
        });
        let gets_lost = among_weak.iter().any(|v| (ZERO..LOST).contains(v));
        (!gets_lost).then_some(scale)
    }

    /// Visits the magnitudes of entries by their positions.
    fn visit(&self, values: &[f64], mut f: impl FnMut(usize, usize, f64)) {
        self.entries.iter().for_each(|e| f(e.row as usize, e.column as usize, values[e.from as usize].abs()));
    }

    /// Returns scales that make the largest entry of each row about 1, and then that of each column.
    fn scales_by_largest(&self, values: &[f64]) -> (Vec<f64>, Vec<f64>) {
        let n = self.row_place.len();
        let (mut rows, mut columns) = (vec![0.0f64; n], vec![0.0f64; n]);
        self.visit(values, |i, _, v| rows[i] = rows[i].max(v));
        rows.iter_mut().for_each(|v| *v = inverse(*v));
        self.visit(values, |i, j, v| columns[j] = columns[j].max(v * rows[i]));
        columns.iter_mut().for_each(|v| *v = inverse(*v));
        (rows, columns)
    }
}

/// Returns the power of 2 nearest to 1 / v; 1 for zero.
fn inverse(v: f64) -> f64 {
    const ROOT_OF_2: u64 = std::f64::consts::SQRT_2.to_bits() & MANTISSA;
    power(v, |exponent| exponent + i64::from(v.to_bits() & MANTISSA >= ROOT_OF_2))
}

/// Returns the power of 2 nearest to 1 / √v; 1 for zero.
fn root(v: f64) -> f64 {
    power(v, |exponent| (exponent + 1) >> 1)
}

const MANTISSA: u64 = (1 << 52) - 1;

/// Returns 2^−k, where k follows from the binary exponent of v; 1 for zero.
fn power(v: f64, k: impl Fn(i64) -> i64) -> f64 {
    if !(v >= f64::MIN_POSITIVE && v.is_finite()) {
        return 1.0;
    }
    let exponent = (v.to_bits() >> 52) as i64 - 1023;
    f64::from_bits(((1023 - k(exponent)).clamp(1, 2046) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_are_powers_of_2() {
        for (v, one, half) in
            [(0.0, 1.0, 1.0), (1.0, 1.0, 1.0), (1.5, 0.5, 1.0), (3.9, 0.25, 0.5), (2.1, 0.5, 0.5)]
        {
            assert_eq!((inverse(v), root(v)), (one, half), "{v}");
        }
        for v in [f64::MIN_POSITIVE, 1e-200, 1e200] {
            assert!((0.7..=1.5).contains(&(v * inverse(v))), "{v}");
            assert!((0.5..=2.0).contains(&(v * root(v) * root(v))), "{v}");
        }
    }
}

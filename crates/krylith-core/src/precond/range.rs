//! The range of numbers that preconditioners may compute with in f32. Multigrid cycles and incomplete factors
//! follow the same rule.
//!
//! Powers of two scale the matrix and each right-hand side, so that only differences of size count. Exponents
//! of D⁻¹ may differ by [`RANGE`]. Products of numbers of this range, and sums of them, stay far from the
//! limits of f32, which are 2^±126.

/// Largest difference of the exponents of D⁻¹.
pub(crate) const RANGE: i32 = 40;
/// Largest exponent of a number for which a common scale is possible.
const MOST: i32 = 1000;

/// Returns the exponent of a finite number that is not 0.
pub(crate) fn exponent(v: f64) -> i32 {
    let bits = (v.to_bits() >> 52 & 0x7ff) as i32;
    bits.max(1) - 1023
}

/// Returns the exponent of a number; that of 0, infinity and NaN is 0.
pub(crate) fn exponent_or_zero(v: f64) -> i32 {
    if v != 0.0 && v.is_finite() { exponent(v) } else { 0 }
}

/// Returns 2^e as a product, because one power may overflow.
pub(crate) fn powers(e: i32) -> [f64; 2] {
    [2f64.powi(e / 2), 2f64.powi(e - e / 2)]
}

/// Returns the exponent around which exponents from `low` to `high` lie, or 0 if they are near 0; `None` if
/// they differ too much.
pub(crate) fn middle(low: i32, high: i32) -> Option<i32> {
    if high - low > RANGE {
        return None;
    }
    let middle = low + (high - low) / 2;
    Some(if middle.abs() <= RANGE / 2 { 0 } else { middle }).filter(|shift| shift.abs() < MOST)
}

/// Sizes of the numbers of incomplete factors.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Exponents {
    /// Smallest and largest size of a row of D⁻¹.
    low: f64,
    high: f64,
    /// Largest size of another number.
    other: f64,
    /// Largest size of a number of U, if its diagonal is D.
    upper: f64,
}

impl Default for Exponents {
    fn default() -> Self {
        Self { low: f64::INFINITY, high: 0.0, other: 0.0, upper: 0.0 }
    }
}

/// Returns the largest size; NaN if there is one.
fn largest(numbers: &[f64]) -> f64 {
    // The bits of positive numbers order as the numbers do.
    f64::from_bits(numbers.iter().fold(0, |most, v| most.max(v.abs().to_bits())))
}

impl Exponents {
    /// Takes a row of a block of D⁻¹. A row of zeros has no pivot.
    pub fn pivot(&mut self, row: &[f64]) {
        let size = largest(row);
        if size != 0.0 {
            (self.low, self.high) = (self.low.min(size), largest(&[self.high, size]));
        }
    }

    /// Takes numbers of L and U, whose diagonals are 1.
    pub fn others(&mut self, numbers: &[f64]) {
        self.other = largest(&[self.other, largest(numbers)]);
    }

    /// Takes numbers of U, whose diagonal is D.
    pub fn upper(&mut self, numbers: &[f64]) {
        self.upper = largest(&[self.upper, largest(numbers)]);
    }

    /// Joins the numbers of two parts.
    pub fn with(self, other: Self) -> Self {
        let most = |a, b| largest(&[a, b]);
        Self {
            low: self.low.min(other.low),
            high: most(self.high, other.high),
            other: most(self.other, other.other),
            upper: most(self.upper, other.upper),
        }
    }

    /// Returns the exponent of the power of two that divides D⁻¹ and multiplies D and U; `None` if the range
    /// is too large.
    pub fn common(self) -> Option<i32> {
        let fits = |size: f64, shift: i32| size == 0.0 || size.is_finite() && exponent(size) + shift <= RANGE;
        let shift = match self.low > self.high {
            true => Some(0),
            false => middle(exponent_or_zero(self.low), exponent_or_zero(self.high)),
        };
        shift.filter(|&shift| self.high.is_finite() && fits(self.other, 0) && fits(self.upper, shift))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exponents_are_those_of_powers_of_two() {
        for e in [-1022, -300, -1, 0, 1, 52, 1023] {
            assert_eq!((exponent(2f64.powi(e)), exponent(-1.5 * 2f64.powi(e))), (e, e));
        }
        assert_eq!([0.0, f64::NAN, f64::INFINITY].map(exponent_or_zero), [0; 3]);
        for e in [-2000, -1074, -1, 0, 7, 1100, 2000] {
            let [f, g] = powers(e);
            assert!(f > 0.0 && g > 0.0 && f.is_finite() && g.is_finite());
            assert_eq!(f.log2() + g.log2(), f64::from(e));
        }
    }

    #[test]
    fn a_range_has_a_middle_unless_it_is_too_wide() {
        assert_eq!(middle(-3, 9), Some(0));
        assert_eq!(middle(600, 620), Some(610));
        assert_eq!(middle(-700, -660), Some(-680));
        assert_eq!(middle(0, 41), None);
        assert_eq!(middle(1010, 1020), None);
        let of = |pivots: &[f64], others: &[f64]| {
            let mut found = Exponents::default();
            pivots.iter().for_each(|v| found.pivot(&[*v, 0.0]));
            found.others(others);
            found.common()
        };
        assert_eq!(of(&[], &[]), Some(0));
        assert_eq!(of(&[1.0, 0.0, -3.0], &[0.5, 1e9]), Some(0));
        assert_eq!(of(&[1e200, 2e200], &[0.5]), Some(664));
        assert_eq!(of(&[1.0, 1e15], &[]), None);
        assert_eq!(of(&[1.0], &[1e15]), None);
        let mut found = Exponents::default();
        found.pivot(&[1e200]);
        found.upper(&[1e-195]);
        assert_eq!((found.common(), found.with(Exponents::default()).common()), (Some(664), Some(664)));
        found.upper(&[1.0]);
        assert_eq!(found.common(), None);
        assert_eq!(of(&[f64::NAN], &[]), None);
        assert_eq!(of(&[1.0], &[f64::INFINITY]), None);
    }
}

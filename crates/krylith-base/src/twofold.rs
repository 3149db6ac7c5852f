//! Sums of products as accurate as if computed in twice the working precision and rounded once: Dot2 of
//! Ogita, Rump and Oishi (SIAM J. Sci. Comput. 26, 2005). The residuals that decide convergence use it.
//!
//! For n products the result s has an error of at most u|s| + n²u² Σ|aᵢbᵢ|, u = 2⁻⁵³.

/// An unevaluated sum hi + lo.
#[derive(Debug, Clone, Copy, Default)]
#[doc(hidden)]
pub struct Twofold {
    pub hi: f64,
    pub lo: f64,
}

impl Twofold {
    #[inline]
    pub fn from(hi: f64) -> Self {
        Self { hi, lo: 0.0 }
    }

    /// Adds v.
    #[inline(always)]
    pub fn add(&mut self, v: f64) {
        let sum = self.hi + v;
        let z = sum - self.hi;
        self.lo += (self.hi - (sum - z)) + (v - z);
        self.hi = sum;
    }

    /// Adds a b.
    #[inline(always)]
    pub fn add_product(&mut self, a: f64, b: f64) {
        let product = a * b;
        self.lo += a.mul_add(b, -product);
        self.add(product);
    }

    /// Adds a s.
    #[inline(always)]
    pub fn add_multiple(&mut self, a: f64, s: Twofold) {
        self.add_product(a, s.hi);
        self.lo += a * s.lo;
    }

    /// The sum rounded to f64.
    #[inline(always)]
    pub fn value(self) -> f64 {
        self.hi + self.lo
    }

    /// The difference between the sum and [`Twofold::value`].
    #[inline(always)]
    pub fn rest(self) -> f64 {
        (self.hi - self.value()) + self.lo
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cancels_is_kept() {
        // 1e16 + 1 − 1e16 and a product whose rounding error is all that is left.
        let mut s = Twofold::from(1e16);
        s.add(1.0);
        s.add(-1e16);
        assert_eq!(s.value(), 1.0);
        let a = 1.0 + f64::EPSILON;
        let mut s = Twofold::default();
        s.add_product(a, a);
        s.add_product(-1.0, 1.0 + 2.0 * f64::EPSILON);
        assert_eq!(s.value(), f64::EPSILON * f64::EPSILON);
    }
}

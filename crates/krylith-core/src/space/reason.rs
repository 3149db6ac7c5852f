//! Reasons why a batch of iterations ended before its last one: the codes that scalar steps set, and their
//! meaning.
//!
//! A new reason needs a case in `tests/conformance/method.rs` that reaches it.

/// Sums above this value count as infinite.
pub const HUGE: f64 = 1e300;

macro_rules! reasons {
    ($($(#[$doc:meta])* $variant:ident = $code:ident: $number:literal, $text:expr;)*) => {
        /// Reason why a batch of iterations ended.
        ///
        /// # Examples
        /// ```
        /// use krylith_core::space::Reason;
        /// assert!(Reason::IndefiniteMatrix.is_breakdown() && Reason::IndefiniteMatrix.is_final());
        /// assert!(!Reason::BasisFull.is_breakdown()); // a restart goes on
        /// ```
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Reason { $($(#[$doc])* $variant),* }
        $($(#[$doc])* pub const $code: i32 = $number;)*
        /// The codes by name, for devices that compile kernels.
        pub const REASONS: &[(&str, i32)] = &[$((stringify!($code), $number)),*];
        impl Reason {
            /// Returns the reason with this code.
            pub fn from_code(code: i32) -> Self {
                match code {
                    $($number => Reason::$variant,)*
                    _ => Reason::None,
                }
            }
            /// Returns the reason in words.
            pub fn text(self) -> &'static str {
                match self { $(Reason::$variant => $text),* }
            }
        }
    };
}

reasons! {
    /// The batch ran to its end.
    None = NONE: 0, "";
    /// The residual by recurrence meets the tolerance.
    Estimate = ESTIMATE: 1, "the residual by recurrence was smaller than the true one";
    /// The basis of a cycle is full.
    BasisFull = BASIS_FULL: 2, "the basis was full";
    /// A sum is NaN or infinite.
    NotFinite = NOT_FINITE: 3, "a sum is NaN or infinite";
    /// The residual grew until its recurrence lost all digits.
    Grew = GREW: 4, "the residual grew until its recurrence lost all digits";
    /// CG: the sign of a value by recurrence changed, as rounding in the recurrence may cause.
    Drifted = DRIFTED: 5, "the residual by recurrence drifted from the true one";
    /// The observer asked to stop.
    Stopped = STOPPED: 6, "the observer asked to stop";
    /// GMRES: the residual by recurrence meets the tolerance, according to the norm of its last column, which
    /// is computed with the next column.
    Confirmed = CONFIRMED: 7, "the residual by recurrence was smaller than the true one";
    /// GMRES and MINRES: the Krylov space is invariant to working precision.
    Invariant = INVARIANT: 8, "the Krylov space cannot be extended: A maps it to itself";
    /// BiCGSTAB: (r̂, A p̂) vanishes, so that α is undefined; the iteration was not taken.
    AlphaVanishes = ALPHA: 9, "pivot breakdown: (r̂, A p) vanishes";
    /// BiCGSTAB: ω vanishes because A ŝ is orthogonal to s.
    OmegaVanishes = OMEGA: 10, "stabilisation breakdown: ω vanishes";
    /// BiCGSTAB: (r̂, r) vanishes.
    RhoVanishes = RHO: 11, "Lanczos breakdown: (r̂, r) vanishes";
    /// CG: (p, A p) changes its sign or vanishes.
    IndefiniteMatrix = INDEFINITE_MATRIX: 12, "the matrix is not definite: (p, A p) changes its sign";
    /// CG and MINRES: (r, P⁻¹ r) changes its sign or vanishes.
    IndefinitePreconditioner = INDEFINITE_PRECONDITIONER: 13,
        "the preconditioner is not definite: (r, P⁻¹ r) changes its sign";
}

/// The reason of a breakdown that incomplete factors of the preconditioner have caused, in words.
pub const UNSTABLE: &str = "the incomplete factors are unstable";

impl Reason {
    /// Returns true if the recurrence cannot go on, and rounding is not the cause.
    pub fn is_breakdown(self) -> bool {
        self as i32 >= Reason::Invariant as i32
    }

    /// Returns true if no restart can help.
    pub fn is_final(self) -> bool {
        matches!(self, Reason::IndefiniteMatrix | Reason::IndefinitePreconditioner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_and_reasons_agree() {
        for (name, code) in REASONS {
            let reason = Reason::from_code(*code);
            assert_eq!(reason as i32, *code, "{name}");
            assert_eq!(reason.is_breakdown(), *code >= INVARIANT, "{name}");
            assert_eq!(reason.text().is_empty(), *code == NONE, "{name}");
        }
    }
}

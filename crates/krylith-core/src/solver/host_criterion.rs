//! The criterion of a solve, computed on the host from the values that the caller gave.

use super::OriginalSystem;
use super::rows::inverse_norms;
use crate::Result;
use crate::comm::largest;
use crate::space::{Criterion, RelativeTo, Stop};

/// The criterion of a solve, for residuals on the host.
pub(super) struct HostCriterion<'a> {
    original: OriginalSystem<'a>,
    stop: Stop,
    /// 1/dᵢ of own rows, for the criterion `rows`.
    inverses: Vec<f64>,
}

/// The quantity of a criterion, and the effect of rounding x on it.
#[derive(Clone, Copy)]
pub(super) struct Value {
    pub value: f64,
    pub rounding: f64,
    /// ‖r‖₂.
    pub plain: f64,
}

impl<'a> HostCriterion<'a> {
    pub fn new(original: OriginalSystem<'a>, stop: Stop) -> Self {
        let by_rows = stop.criterion == Criterion::Rows;
        let inverses = if by_rows { inverse_norms(original.terms) } else { Vec::new() };
        Self { original, stop, inverses }
    }

    /// Returns the norm that divides residuals, with ‖b‖₂ and the quantity of the initial guess. Collective.
    pub fn reference(&self, b: &[f64], norm_b: f64, first: f64) -> Result<f64> {
        match (self.stop.criterion, self.stop.reference, self.stop.relative_to) {
            (Criterion::Backward, ..) => return Ok(1.0),
            (_, Some(reference), _) => return Ok(reference),
            (_, None, RelativeTo::R0) if first > 0.0 && first.is_finite() => return Ok(first),
            (Criterion::Residual, ..) => return Ok(self.stop.given_norm.unwrap_or(norm_b)),
            (Criterion::Rows, ..) => {}
        }
        Ok(self.original.pair_of_norms(Some(&self.inverses), b, b)?[0])
    }

    /// Computes the quantity of x, whose residual is r. Collective.
    pub fn of(&self, b: &[f64], x: &[f64], r: &[f64]) -> Result<Value> {
        let (original, half) = (&self.original, f64::EPSILON / 2.0);
        let plain = original.norm(r)?;
        let [value, rounding] = match self.stop.criterion {
            Criterion::Residual => [plain, original.rounding(b, x)?],
            Criterion::Rows => {
                let sizes = original.sizes(b, x)?;
                let [value, size] = original.pair_of_norms(Some(&self.inverses), r, &sizes)?;
                [value, half * size]
            }
            Criterion::Backward => {
                let sizes = original.sizes(b, x)?;
                let quotient = |(r, m): (&f64, &f64)| if *r == 0.0 { 0.0 } else { (r / m).abs() };
                let own = r.iter().zip(&sizes).map(quotient).fold(0.0, f64::max);
                let most = largest(original.comm, own)?;
                [if plain.is_finite() { most } else { plain }, half]
            }
        };
        Ok(Value { value, rounding, plain })
    }

    /// Returns the stopping criteria of a pass that corrects x, whose residual is the right-hand side of the
    /// pass and has this value. The pass shall reach `target`.
    pub fn of_pass(&self, target: f64, value: f64, max_iters: usize) -> Stop {
        let usual = Stop { rtol: 0.0, atol: target, max_iters, ..Stop::default() };
        match self.stop.criterion {
            Criterion::Residual => usual,
            // |A||x| + |b| is that of the given system, so the pass gains the same factor in all rows.
            Criterion::Rows | Criterion::Backward => {
                Stop { rtol: target / value, atol: 0.0, criterion: Criterion::Rows, ..usual }
            }
        }
    }
}

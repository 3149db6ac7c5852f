//! The unit of a solve: a power of two by which b and x are multiplied.
//!
//! Norms are sums of squares. Squares of very large numbers overflow. Squares of very small numbers
//! underflow, and then any x seems to solve the system. Multiplying by a power of two rounds nothing.

use super::{Header, Krylov, Recurrence, clear, norm_squared, norm_squared_in_unit, scale};
use crate::Result;
use crate::space::{FLAGS, Space, other_unit};

impl<S: Space, R: Recurrence<S>> Krylov<S, R> {
    /// Returns ‖b‖ in a unit in which squares neither overflow nor underflow, and that unit. The unit is
    /// almost always 1.
    pub(super) fn norm_of_b(&mut self, s: &S, b: &S::Vector) -> Result<(f64, f64)> {
        s.guard(None);
        s.sweep(norm_squared, &mut self.scalars, [], [b], [], [Header::AT.rr])?;
        let norm = self.read_sum(s)?;
        let Some(trial) = other_unit(norm) else { return Ok((norm, 1.0)) };
        self.write_unit(s, trial.exp2())?;
        s.sweep(norm_squared_in_unit, &mut self.scalars, [Header::AT.unit], [b], [], [Header::AT.rr])?;
        let scaled = self.read_sum(s)?;
        if scaled == 0.0 || !scaled.is_finite() {
            return Ok((scaled, 1.0));
        }
        let exponent = (trial - scaled.log2().floor()).clamp(-1000.0, 1000.0);
        Ok((scaled * (exponent - trial).exp2(), exponent.exp2()))
    }

    /// Returns the square root of the sum in `rr`.
    pub(super) fn read_sum(&mut self, s: &S) -> Result<f64> {
        let (mut square, mut flags) = ([0.0], [0; FLAGS]);
        s.read_scalars(&self.scalars, Header::AT.rr, &mut square, &mut flags)?;
        Ok(square[0].sqrt())
    }

    pub(super) fn write_unit(&mut self, s: &S, unit: f64) -> Result<()> {
        s.write_scalars(&mut self.scalars, Header::AT.unit, &[unit], &[0; FLAGS])
    }

    /// Copies b and x, multiplied by the unit.
    pub(super) fn take(&mut self, s: &S, b: &S::Vector, x: &S::Vector, unit: f64) -> Result<()> {
        s.sweep(clear, &mut self.scalars, [], [], [&mut self.correction], [])?;
        if unit == 1.0 {
            s.copy(b, &mut self.b)?;
            return s.copy(x, &mut self.x);
        }
        self.write_unit(s, unit)?;
        s.sweep(scale, &mut self.scalars, [Header::AT.unit], [b], [&mut self.b], [])?;
        s.sweep(scale, &mut self.scalars, [Header::AT.unit], [x], [&mut self.x], [])
    }
}

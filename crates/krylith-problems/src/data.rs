//! Boundary velocities, forces and tractions of the Stokes duct.

use std::f64::consts::PI;

/// Data that drive the flow, as functions of position and time.
///
/// Boundary velocities are given by their time derivative, because the unknowns are stage derivatives; they
/// must be smooth in time for the schemes to keep their order.
///
/// # Examples
/// A duct that is driven by a force, at rest on its walls:
/// ```
/// use krylith_problems::{DuctData, StokesDuct, StokesOptions};
/// use std::sync::Arc;
/// struct Pushed;
/// impl DuctData for Pushed {
///     fn velocity_rate(&self, _: [f64; 3], _: f64) -> [f64; 3] { [0.0; 3] }
///     fn has_sources(&self) -> bool { true }
///     fn force(&self, _: [f64; 3], _: f64) -> [f64; 3] { [1.0, 0.0, 0.0] }
/// }
/// let options = StokesOptions { nodes: [4; 3], ..StokesOptions::default() };
/// let duct = StokesDuct::with_data(options, Arc::new(Pushed))?;
/// assert_eq!(duct.mass.rows(), 64 * 4);
/// # Ok::<(), krylith::Error>(())
/// ```
pub trait DuctData: Send + Sync {
    /// Returns g'(x, t), the time derivative of the velocity on inlet and walls.
    fn velocity_rate(&self, x: [f64; 3], t: f64) -> [f64; 3];

    /// Returns true if [`force`](Self::force) or [`traction`](Self::traction) may differ from 0.
    fn has_sources(&self) -> bool {
        false
    }

    /// Returns the force f(x, t) per unit of mass.
    fn force(&self, _x: [f64; 3], _t: f64) -> [f64; 3] {
        [0.0; 3]
    }

    /// Returns the traction h(x, t) = (ν∇u − pI)n on the outlet.
    fn traction(&self, _x: [f64; 3], _t: f64) -> [f64; 3] {
        [0.0; 3]
    }
}

/// The default data: g = 16·y(1 − y)z(1 − z)·sin²(πt/2T) along x at the inlet, 0 on the walls.
///
/// Flow starts from rest with pressure 0 and without a jump in the acceleration, so U = 0 at t = 0 is
/// consistent.
///
/// # Examples
/// ```
/// use krylith_problems::{DuctData, InletRamp};
/// let ramp = InletRamp { ramp: 2.0 };
/// assert_eq!(ramp.velocity_rate([0.0, 0.5, 0.5], 0.0), [0.0; 3]); // from rest
/// let halfway = ramp.velocity_rate([0.0, 0.5, 0.5], 1.0)[0]; // π/2T in the middle of the inlet
/// assert!((halfway - std::f64::consts::PI / 4.0).abs() < 1e-15);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct InletRamp {
    /// The time T at which the inflow peaks.
    pub ramp: f64,
}

impl Default for InletRamp {
    fn default() -> Self {
        Self { ramp: 1.0 }
    }
}

impl DuctData for InletRamp {
    fn velocity_rate(&self, [x, y, z]: [f64; 3], t: f64) -> [f64; 3] {
        if x > 0.0 {
            return [0.0; 3];
        }
        let profile = 16.0 * y * (1.0 - y) * z * (1.0 - z);
        [profile * PI / (2.0 * self.ramp) * (PI * t / self.ramp).sin(), 0.0, 0.0]
    }
}

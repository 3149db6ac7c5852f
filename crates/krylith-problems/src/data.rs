//! Boundary velocities, forces and tractions of a Stokes flow.

use krylith_core::{Error, Result};
use std::collections::HashMap;
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

/// The default data of a duct: g = 16·y(1 − y)z(1 − z)·sin²(πt/2T) along x at the inlet, 0 on the walls.
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

/// The default data of a body: a parabola at the inlet, 1 at its centre, times sin²(πt/2T), and 0 on the
/// walls. It starts from rest, like [`InletRamp`].
///
/// # Examples
/// ```
/// use krylith_problems::{DuctData, InletProfile};
/// let centre = ([0.0, 0.5, 0.5], [1.0, 0.0, 0.0]); // a node, and its velocity at the peak
/// let data = InletProfile::new(2.0, vec![centre])?;
/// let halfway = data.velocity_rate([0.0, 0.5, 0.5], 1.0)[0]; // π/2T
/// assert!((halfway - std::f64::consts::PI / 4.0).abs() < 1e-15);
/// assert_eq!(data.velocity_rate([0.0, 0.5, 1.0], 1.0), [0.0; 3]); // any other node
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct InletProfile {
    ramp: f64,
    /// Velocities at the peak, by the bits of the coordinates of the nodes.
    nodes: HashMap<[u64; 3], [f64; 3]>,
}

impl InletProfile {
    /// Creates the data from the coordinates of nodes of the inlet with their velocities at the time `ramp`.
    ///
    /// # Errors
    /// Returns an error if the time is not positive and finite.
    pub fn new(ramp: f64, nodes: Vec<([f64; 3], [f64; 3])>) -> Result<Self> {
        if !(ramp > 0.0 && ramp.is_finite()) {
            return Err(Error::invalid(format!("the ramp is {ramp}; it must be positive and finite")));
        }
        let nodes = nodes.into_iter().map(|(x, u)| (x.map(f64::to_bits), u));
        Ok(Self { ramp, nodes: nodes.collect() })
    }
}

impl DuctData for InletProfile {
    fn velocity_rate(&self, x: [f64; 3], t: f64) -> [f64; 3] {
        let rate = PI / (2.0 * self.ramp) * (PI * t / self.ramp).sin();
        self.nodes.get(&x.map(f64::to_bits)).map_or([0.0; 3], |u| u.map(|u| rate * u))
    }
}

//! Time steps of a Stokes flow: right-hand sides and updates, in place.

use std::sync::Arc;

use krylith_base::threads::each_chunk;
use krylith_core::matrix::Butcher;
use krylith_core::{Error, Result};
use std::ops::Range;

use crate::DuctData;
use crate::couplings::Couplings;

/// Right-hand sides and updates of the steps U_{n+1} = U_n + τ Σ b_k K_k, where K solves (I⊗M + τB⊗L) K = F
/// (OKP paper, Eq. 2, in stage-derivative form).
///
/// A state `u` holds 4 numbers per node, at 4i + c; `rhs` and `k` hold 4s per node, at (4i + c)s + stage.
/// Products with L, eliminated columns included, use the couplings of the mesh, so no matrix is needed here.
///
/// # Examples
/// ```
/// use krylith::{Solver, matrix::Butcher};
/// use krylith_problems::{StokesDuct, StokesOptions};
/// let duct = StokesDuct::new(StokesOptions { nodes: [4; 3], ..StokesOptions::default() })?;
/// let (radau, tau) = (Butcher::by_name("radau-iia-2")?, 0.125);
/// let mut steps = duct.steps(&radau, tau)?;
/// let system = duct.kronecker(&radau, tau)?;
/// let mut solver = Solver::new(&system, &"device=cpu".parse()?)?; // once for all steps
/// let mut u = vec![0.0; duct.mass.rows()];
/// let (mut k, mut rhs) = (vec![0.0; system.rows()], vec![0.0; system.rows()]);
/// for n in 0..3 {
///     steps.rhs_into(n as f64 * tau, &u, &mut rhs)?;
///     assert!(solver.solve(&rhs, &mut k)?.converged());
///     steps.advance(&k, &mut u)?;
/// }
/// // At the inlet the velocity follows the ramp 16 y (1 − y) z (1 − z) (1 − cos πt)/2,
/// // here at y = z = 1/3 and t = 3τ.
/// let (inlet, pi) = (duct.mesh.node([0, 1, 1]), std::f64::consts::PI);
/// let ramp = 16.0 * (2.0f64 / 9.0).powi(2) * (1.0 - (pi * 0.375).cos()) / 2.0;
/// assert!((u[4 * inlet] - ramp).abs() < 1e-3);
/// # Ok::<(), krylith::Error>(())
/// ```
pub struct StokesSteps {
    couplings: Couplings,
    data: Arc<dyn DuctData>,
    butcher: Butcher,
    tau: f64,
    /// Nodes whose rows are computed: all, or one rank's.
    own: Range<usize>,
    /// Nodes that those rows use; states and data begin with the first of them.
    window: Range<usize>,
    /// g'(t + c_k τ) at Dirichlet nodes, (3i + c)s + k; stays 0 elsewhere.
    rate: Vec<f64>,
    /// f(t + c_k τ) in the same layout, followed by h; empty if the data have neither.
    force: Vec<f64>,
    traction: Vec<f64>,
}

impl StokesSteps {
    pub(crate) fn new(
        couplings: Couplings,
        data: Arc<dyn DuctData>,
        butcher: &Butcher,
        tau: f64,
        own: Range<usize>,
    ) -> Result<Self> {
        if !(tau.is_finite() && tau > 0.0) {
            return Err(Error::invalid(format!("tau is {tau}; it must be positive and finite")));
        }
        let window = couplings.window(own.clone());
        let size = 3 * window.len() * butcher.stages();
        let sources = if data.has_sources() { size } else { 0 };
        Ok(Self {
            couplings,
            data,
            butcher: butcher.clone(),
            tau,
            own,
            window,
            rate: vec![0.0; size],
            force: vec![0.0; sources],
            traction: vec![0.0; sources],
        })
    }

    /// Returns the step length τ.
    pub fn tau(&self) -> f64 {
        self.tau
    }

    /// Returns the scheme.
    pub fn butcher(&self) -> &Butcher {
        &self.butcher
    }

    /// Writes the right-hand side F of the step from `t`, with state `u`: 4n·s numbers into `rhs`.
    ///
    /// Momentum rows hold f(t_k) + h(t_k) − L u minus the contribution of the eliminated columns, with t_k =
    /// t + c_k τ; continuity rows hold −(B u + S p) minus their eliminated columns. The method allocates no
    /// vector and runs on rayon's threads; the result does not depend on their number.
    ///
    /// # Errors
    /// Returns an error if `u` or `rhs` has the wrong length.
    pub fn rhs_into(&mut self, t: f64, u: &[f64], rhs: &mut [f64]) -> Result<()> {
        let s = self.butcher.stages();
        check_length("the state", u.len(), 4 * self.window.len())?;
        check_length("the right-hand side", rhs.len(), 4 * self.own.len() * s)?;
        self.sample(t);
        let this = &*self;
        let line = this.couplings.line();
        each_chunk(rhs, 4 * s * line, 1, &|l, rows| {
            for (o, row) in rows.chunks_exact_mut(4 * s).enumerate() {
                this.row(this.own.start + l * line + o, u, row);
            }
        });
        Ok(())
    }

    /// Computes U_{n+1} = U_n + τ Σ b_k K_k in place in `u`, for velocity and pressure.
    ///
    /// For stiffly accurate schemes (implicit Euler, Radau IIA, Lobatto IIIC) this is the last stage. Gauss
    /// schemes multiply the pressure's error by (−1)^s in every step: their pressure converges, at order s
    /// (s + 1 for odd s), but is not damped. Start them from a consistent pressure.
    ///
    /// # Errors
    /// Returns an error if `k` or `u` has the wrong length.
    pub fn advance(&self, k: &[f64], u: &mut [f64]) -> Result<()> {
        check_length("the state", u.len(), 4 * self.couplings.nodes())?;
        advance(&self.butcher, self.tau, k, u)
    }

    /// Evaluates the data at the stages of the step from `t`.
    fn sample(&mut self, t: f64) {
        let Self { couplings, data, butcher, tau, window, rate, force, traction, .. } = self;
        let first = window.start;
        let s = butcher.stages();
        let put = |out: &mut [f64], value: &dyn Fn(f64) -> [f64; 3]| {
            for (k, c) in butcher.c.iter().enumerate() {
                let v = value(t + c * *tau);
                (0..3).for_each(|d| out[d * s + k] = v[d]);
            }
        };
        each_chunk(rate, 3 * s, 1024, &|p, out| {
            let i = first + p;
            if couplings.is_fixed(i) {
                let x = couplings.coordinate(i);
                put(out, &|t| data.velocity_rate(x, t));
            }
        });
        each_chunk(force, 3 * s, 1024, &|p, out| {
            let x = couplings.coordinate(first + p);
            put(out, &|t| data.force(x, t));
        });
        each_chunk(traction, 3 * s, 1024, &|p, out| {
            let i = first + p;
            if couplings.is_outlet(i) {
                let x = couplings.coordinate(i);
                put(out, &|t| data.traction(x, t));
            }
        });
    }

    /// Returns the index of node `j` in states and data.
    fn at(&self, j: usize) -> usize {
        j - self.window.start
    }

    /// Returns the number of nodes in the state of [`rhs_into`](Self::rhs_into).
    pub(crate) fn window(&self) -> usize {
        self.window.len()
    }

    /// Writes the 4s numbers of node `i`, at c·s + stage.
    fn row(&self, i: usize, u: &[f64], out: &mut [f64]) {
        let (couplings, s, a) = (&self.couplings, self.butcher.stages(), &self.butcher.a);
        let free = !couplings.is_fixed(i);
        // τ Σ_l a_kl g'_j(t_l): the change of a prescribed velocity up to stage k.
        let lift = |j: usize, c: usize, k: usize| {
            let rate = &self.rate[(3 * self.at(j) + c) * s..][..s];
            self.tau * (0..s).map(|l| a[(k, l)] * rate[l]).sum::<f64>()
        };
        out.fill(0.0);
        let mut same = [0.0; 4]; // −L u, the same in every stage
        let mut own = [0.0; 2]; // m_ii and νk_ii
        couplings.each(i, |j, entry| {
            if i == j {
                own = [entry.mass, entry.stiffness];
            }
            let v = &u[4 * self.at(j)..][..4];
            for c in 0..3 {
                same[c] -= entry.stiffness * v[c] + entry.gradient[c] * v[3];
                same[3] -= entry.divergence[c] * v[c];
            }
            same[3] -= entry.stabilisation * v[3];
            if couplings.is_fixed(j) {
                for k in 0..s {
                    for c in 0..3 {
                        let step = lift(j, c, k);
                        out[3 * s + k] -= entry.divergence[c] * step;
                        if free {
                            out[c * s + k] -=
                                entry.mass * self.rate[(3 * self.at(j) + c) * s + k] + entry.stiffness * step;
                        }
                    }
                }
            }
            if free && !self.force.is_empty() {
                let force = &self.force[3 * self.at(j) * s..][..3 * s];
                for (out, f) in out.iter_mut().zip(force) {
                    *out += entry.mass * f;
                }
            }
        });
        for k in 0..s {
            out[3 * s + k] += same[3];
            for c in 0..3 {
                if free {
                    out[c * s + k] += same[c];
                } else {
                    let [mass, stiffness] = own;
                    out[c * s + k] =
                        mass * self.rate[(3 * self.at(i) + c) * s + k] + stiffness * lift(i, c, k);
                }
            }
        }
        if free && !self.traction.is_empty() && couplings.is_outlet(i) {
            couplings.outlet(i, |j, weight| {
                for (out, h) in out.iter_mut().zip(&self.traction[3 * self.at(j) * s..][..3 * s]) {
                    *out += weight * h;
                }
            });
        }
    }
}

/// Computes u + τ Σ b_k k_k in place.
pub(crate) fn advance(butcher: &Butcher, tau: f64, k: &[f64], u: &mut [f64]) -> Result<()> {
    let s = butcher.stages();
    check_length("the stage derivatives", k.len(), u.len() * s)?;
    for (u, k) in u.iter_mut().zip(k.chunks_exact(s)) {
        let sum: f64 = butcher.b.iter().zip(k).map(|(b, k)| b * k).sum();
        *u += tau * sum;
    }
    Ok(())
}

pub(crate) fn check_length(what: &str, got: usize, expected: usize) -> Result<()> {
    if got != expected {
        return Err(Error::invalid(format!("{what} has {got} numbers; expected {expected}")));
    }
    Ok(())
}

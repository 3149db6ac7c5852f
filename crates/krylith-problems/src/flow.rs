//! Stabilised finite elements for an incompressible viscous flow: linear tetrahedra for velocity and
//! pressure, b = 4.
//!
//! The unknowns of a node are u, v, w and p. Let r = ρ(u̇ + u·∇u) + ∇p be the residual of the momentum
//! equation inside an element, where the viscous terms of linear functions vanish. The rows are
//!
//! ```text
//! ∫ Nᵢ ρ(u̇ + u·∇u) + μ ∇Nᵢ·∇u − p ∇Nᵢ + τ (u·∇Nᵢ) r + τ_c ∇Nᵢ ∇·u = 0    (SUPG; the last term weighs ∇·u)
//! ∫ Nᵢ ∇·u + τ/ρ ∇Nᵢ·r = 0                                                 (PSPG)
//! ```
//!
//! u̇ = c₀u − q, where the time stepping gives c₀ and q: 1/Δt and uₙ/Δt for backward Euler, 3/2Δt and
//! (2uₙ − uₙ₋₁/2)/Δt for BDF2. Where the boundary has no prescribed values, μ ∂u/∂n − p n = 0. Integrals of
//! Nᵢ u·∇u are exact; the stabilising terms are evaluated at the centroid.
//!
//! τ = ((2/Δt)² + (2|u|/h)² + 9(4ν/h²)²)^(−1/2) (Shakib, Hughes and Johan 1991), and
//! τ_c = ρ|u|h/2 · min(1, |u|h/6ν), with h the edge of a regular tetrahedron of the same volume. Both use the
//! velocity at the end of the last time step, so the Jacobian is the exact derivative. The sum of all
//! continuity rows is ∫ ∇·u, so inflow and outflow balance.
//!
//! An outlet may have a pressure P = R Q + P₀, where Q is the flow through it. P is then an unknown of an
//! added node, whose other unknowns are zero. The outlet's rows get P ∫ Nᵢ n, and the added row is
//! (P − P₀)/R − Q = 0. So J stays sparse and exact, although all nodes of the outlet depend on each other.
//!
//! Rows of prescribed unknowns are σ (x − x̄), with σ the mean diagonal of the velocity rows, from mass and
//! viscous terms.

use krylith_core::matrix::Bsr;
use krylith_core::memory::Numbers;
use krylith_core::newton::NonlinearSystem;
use krylith_core::{Error, Problem, Result};
use rayon::prelude::*;
use std::borrow::Cow;

use crate::gpu::{self, OnGpu, Place};
use crate::outlets::Outlet;
use crate::share::{self, Share};
use crate::tets::{Rows, Shape, TetMesh, dot};

/// Unknowns of a node: three velocities and the pressure.
const B: usize = 4;
/// Numbers of a block.
const BB: usize = B * B;
/// Tetrahedra per task.
const CHUNK: usize = 1024;

/// Density ρ and viscosity μ of a fluid.
///
/// # Examples
/// ```
/// use krylith_problems::flow::Fluid;
/// let blood = Fluid { density: 1.06, viscosity: 0.035 }; // in cm, g and s
/// assert!(blood.viscosity / blood.density < 0.034); // ν, cm²/s
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Fluid {
    /// Density ρ.
    pub density: f64,
    /// Dynamic viscosity μ.
    pub viscosity: f64,
}

/// A flow on a mesh, at one time step.
///
/// # Examples
/// ```
/// use krylith::newton::NonlinearSystem;
/// use krylith_problems::{artery::mesh, flow::{Flow, Fluid}};
/// let mesh = mesh(300)?;
/// let n = mesh.points().len();
/// let fluid = Fluid { density: 1.0, viscosity: 0.04 };
/// let flow = Flow::new(mesh, fluid, vec![[false; 4]; n])?; // no unknown is prescribed
/// assert_eq!((flow.pattern().block(), flow.pattern().block_rows()), (4, n));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Flow {
    mesh: TetMesh,
    rows: Rows,
    fluid: Fluid,
    /// For each unknown, true if it is prescribed; `given` holds its value.
    fixed: Vec<[bool; B]>,
    given: Vec<f64>,
    scale: f64,
    /// c₀ and q.
    rate: f64,
    history: Vec<[f64; 3]>,
    /// τ and τ_c of each tetrahedron.
    weights: Vec<[f64; 2]>,
    /// Outlets with a pressure; outlet k is node n + k. `places` are the coordinates of all nodes then.
    outlets: Vec<Outlet>,
    places: Vec<[f64; 3]>,
    share: Option<Share>,
    place: Place<Self>,
}

/// What a time step changes: given values, c₀, q, τ and τ_c, and σ.
#[cfg(feature = "cuda")]
pub(crate) struct FlowStep<'a> {
    pub given: &'a [f64],
    pub history: &'a [[f64; 3]],
    pub weights: &'a [[f64; 2]],
    pub rate: f64,
    pub scale: f64,
}

/// Quantities that the four rows of an element share.
struct Element {
    shape: Shape,
    velocity: [[f64; 3]; 4],
    /// ∂uᵢ/∂x_d.
    gradient: [[f64; 3]; 3],
    /// u̇ at the corners, and the velocity and r at the centroid.
    rates: [[f64; 3]; 4],
    mean: [f64; 3],
    left: [f64; 3],
    pressure: f64,
}

impl Flow {
    /// Creates the flow with the fluid at rest.
    ///
    /// # Errors
    /// Returns an error if a list does not have one item per node, if density or viscosity is not positive,
    /// or if memory is not sufficient.
    pub fn new(mesh: TetMesh, fluid: Fluid, fixed: Vec<[bool; B]>) -> Result<Self> {
        Self::build(mesh, fluid, fixed, None)
    }

    /// Creates the flow on one rank's part of a mesh.
    pub(crate) fn build(
        mesh: TetMesh,
        fluid: Fluid,
        fixed: Vec<[bool; B]>,
        share: Option<Share>,
    ) -> Result<Self> {
        let n = mesh.points().len();
        if fixed.len() != n {
            return Err(Error::invalid(format!(
                "got {} boundary conditions for {n} nodes; expected one per node",
                fixed.len()
            )));
        }
        if let Some(x) = [fluid.density, fluid.viscosity].iter().find(|x| !(**x > 0.0 && x.is_finite())) {
            return Err(Error::invalid(format!(
                "the density or viscosity of the fluid is {x}; it must be positive and finite"
            )));
        }
        let own = share.as_ref().map_or(n, |share| share.numbers().len());
        let rows = share::agreed(share.as_ref(), Rows::new(&mesh, own, B))?;
        let weights = vec![[0.0; 2]; mesh.tetrahedra().len()];
        let (history, given) = (vec![[0.0; 3]; n], vec![0.0; B * n]);
        let place = Place::host();
        let (outlets, places) = (Vec::new(), Vec::new());
        Ok(Self {
            mesh,
            rows,
            fluid,
            fixed,
            given,
            scale: 1.0,
            rate: 0.0,
            history,
            weights,
            outlets,
            places,
            share,
            place,
        })
    }

    /// Gives outlets a pressure that depends on the flow, with the faces of each.
    ///
    /// # Errors
    /// Returns an error if ranks share the flow.
    pub(crate) fn with_outlets(mut self, faces: &[&[[u32; 3]]]) -> Result<Self> {
        if faces.is_empty() {
            return Ok(self);
        }
        if self.share.is_some() {
            return Err(Error::invalid(
                "outlets with a resistance need one process; omit mpirun, or leave resistance and distal at 0",
            ));
        }
        self.outlets = faces.iter().map(|faces| Outlet::new(&self.mesh, faces)).collect();
        let lists: Vec<Vec<u32>> =
            self.outlets.iter().map(|o| o.nodes.iter().map(|&(p, _)| p).collect()).collect();
        self.rows = self.rows.with_nodes(&lists)?;
        self.places = self.mesh.points().to_vec();
        self.places.extend(self.outlets.iter().map(|o| o.centre));
        Ok(self)
    }

    /// Sets R and P₀ of outlet k; R > 0.
    pub(crate) fn set_outlet(&mut self, k: usize, law: [f64; 2]) {
        self.outlets[k].law = law;
    }

    /// Returns the outlets with a pressure.
    pub(crate) fn outlets(&self) -> &[Outlet] {
        &self.outlets
    }

    /// Returns c₀ of the time stepping.
    pub(crate) fn rate(&self) -> f64 {
        self.rate
    }

    /// Returns the numbers of this rank's nodes and ghosts.
    fn local<'x>(&self, x: &'x [f64]) -> Result<Cow<'x, [f64]>> {
        share::local(self.share.as_ref(), B, x)
    }

    /// Returns the share of this rank, if several ranks solve the problem together.
    pub fn share(&self) -> Option<&Share> {
        self.share.as_ref()
    }
    /// Returns the mesh, or this rank's part of it.
    pub fn mesh(&self) -> &TetMesh {
        &self.mesh
    }
    /// Returns the fluid.
    pub fn fluid(&self) -> Fluid {
        self.fluid
    }
    /// Returns, for each unknown of each node, true if it is prescribed.
    pub fn fixed(&self) -> &[[bool; B]] {
        &self.fixed
    }
    /// Returns the prescribed values for changing; values of other unknowns are ignored.
    pub fn given_mut(&mut self) -> &mut [f64] {
        self.place.changed();
        &mut self.given
    }
    /// Returns the rows of the matrix.
    #[cfg(feature = "cuda")]
    pub(crate) fn rows(&self) -> &Rows {
        &self.rows
    }
    /// Returns what a time step changes.
    #[cfg(feature = "cuda")]
    pub(crate) fn step(&self) -> FlowStep<'_> {
        let Self { given, history, weights, rate, scale, .. } = self;
        FlowStep { given, history, weights, rate: *rate, scale: *scale }
    }
    /// Writes the prescribed values into x.
    pub fn put_given(&self, x: &mut [f64]) {
        let given = self.given.par_chunks(B).zip(&self.fixed);
        x.par_chunks_mut(B).with_min_len(CHUNK).zip(given).for_each(|(x, (given, fixed))| {
            (0..B).filter(|&c| fixed[c]).for_each(|c| x[c] = given[c]);
        });
    }

    /// Begins a time step of length `dt` from the unknowns `last`: by BDF2 if the unknowns one step earlier
    /// are given in `before`, by backward Euler otherwise.
    ///
    /// # Errors
    /// Returns an error if a vector has another length than the unknowns, or if the step is not positive.
    pub fn begin(&mut self, dt: f64, last: &[f64], before: Option<&[f64]>) -> Result<()> {
        self.rows.check("unknowns", last.len())?;
        self.rows.check("unknowns", before.unwrap_or(last).len())?;
        if !(dt > 0.0 && (1.0 / dt).is_finite()) {
            return Err(Error::invalid(format!("a time step of {dt}; expected a positive number")));
        }
        self.place.changed();
        let (last, before) = (self.local(last)?, before.map(|x| self.local(x)).transpose()?);
        let (last, before) = (&last[..], before.as_deref());
        self.rate = if before.is_some() { 1.5 / dt } else { 1.0 / dt };
        self.history.par_iter_mut().with_min_len(CHUNK).enumerate().for_each(|(i, q)| {
            *q = std::array::from_fn(|c| match before {
                Some(before) => (2.0 * last[B * i + c] - 0.5 * before[B * i + c]) / dt,
                None => last[B * i + c] / dt,
            });
        });
        let (mesh, Fluid { density, viscosity }) = (&self.mesh, self.fluid);
        let nu = viscosity / density;
        let own = self.weights.par_iter_mut().with_min_len(CHUNK).zip(mesh.tetrahedra());
        own.for_each(|(weights, t)| {
            let volume = crate::tets::signed_volume(t.map(|p| mesh.points()[p as usize]));
            let h = (6.0 * 2f64.sqrt() * volume).cbrt();
            let u: [f64; 3] =
                std::array::from_fn(|c| 0.25 * t.iter().map(|&p| last[B * p as usize + c]).sum::<f64>());
            let speed = dot(u, u).sqrt();
            let squares = (2.0 / dt).powi(2) + (2.0 * speed / h).powi(2) + 9.0 * (4.0 * nu / (h * h)).powi(2);
            let grid = 0.5 * density * speed * h * (speed * h / (6.0 * nu)).min(1.0);
            *weights = [1.0 / squares.sqrt(), grid];
        });
        self.scale = self.mean_diagonal()?;
        Ok(())
    }

    /// Returns the flow out of the body through a surface, as volume per unit of time. Collective over the
    /// ranks that share the flow.
    ///
    /// # Errors
    /// Returns an error if the mesh does not have the surface, or if x has another length than the unknowns.
    pub fn outflow(&self, surface: &str, x: &[f64]) -> Result<f64> {
        self.rows.check("unknowns", x.len())?;
        let x = &self.local(x)?[..];
        let own = self.rows.pattern().block_rows();
        // The owner of the first corner adds the face.
        let faces = self.mesh.surface(surface)?.iter().filter(|face| (face[0] as usize) < own);
        let faces: Vec<[u32; 3]> = faces.copied().collect();
        let sum = outflow(&self.mesh, &faces, x);
        Ok(share::summed(self.share.as_ref(), [sum])?[0])
    }

    /// Returns the mean over all nodes of c₀ρV/10 + μV|∇N|², summed over the tetrahedra of a node.
    fn mean_diagonal(&self) -> Result<f64> {
        let own = self.rows.pattern().block_rows();
        // The owner of the first corner adds the tetrahedron.
        let of = |t: &[u32; 4]| {
            if t[0] as usize >= own {
                return 0.0;
            }
            let shape = Shape::of(t.map(|p| self.mesh.points()[p as usize]));
            let squares: f64 = shape.gradients.iter().map(|g| dot(*g, *g)).sum();
            shape.volume * (0.4 * self.rate * self.fluid.density + self.fluid.viscosity * squares)
        };
        let chunks = self.mesh.tetrahedra().par_chunks(CHUNK);
        let sums: Vec<f64> = chunks.map(|c| c.iter().map(of).sum()).collect();
        let [sum] = share::summed(self.share.as_ref(), [sums.iter().sum()])?;
        Ok(sum / self.share.as_ref().map_or(own, Share::nodes) as f64)
    }

    /// Returns the rows of added node k.
    fn outlet_row(&self, x: &[f64], k: usize, row: &mut [f64]) {
        let (outlet, at) = (&self.outlets[k], B * (self.mesh.points().len() + k));
        let [resistance, offset] = outlet.law;
        let flow = outlet.flow(x);
        (0..3).for_each(|c| row[c] = self.scale * x[at + c]);
        row[3] = (x[at + 3] - offset) / resistance - flow;
    }

    /// Adds the pressures of outlets to the rows of their nodes.
    fn add_outlets(&self, x: &[f64], f: &mut [f64]) {
        for (k, outlet) in self.outlets.iter().enumerate() {
            let pressure = x[B * (self.mesh.points().len() + k) + 3];
            for &(p, n) in &outlet.nodes {
                for c in (0..3).filter(|&c| !self.fixed[p as usize][c]) {
                    f[B * p as usize + c] += pressure * n[c];
                }
            }
        }
    }

    /// Adds the derivatives of both.
    fn add_outlet_derivatives(&self, values: &mut [f64]) {
        for (k, outlet) in self.outlets.iter().enumerate() {
            let own = self.mesh.points().len() + k;
            let begin = |i: usize| self.rows.pattern().row_ptr()[i];
            for (column, &(p, n)) in outlet.nodes.iter().enumerate() {
                let at = begin(p as usize) + self.rows.place(p as usize, own as u32);
                let there = BB * (begin(own) + column);
                for c in 0..3 {
                    if !self.fixed[p as usize][c] {
                        values[BB * at + B * c + 3] = n[c];
                    }
                    values[there + 12 + c] = -n[c];
                }
            }
            let diagonal = BB * (begin(own) + outlet.nodes.len());
            (0..3).for_each(|c| values[diagonal + c * (B + 1)] = self.scale);
            values[diagonal + 15] = 1.0 / outlet.law[0];
        }
    }

    #[inline]
    fn element(&self, x: &[f64], t: usize) -> Element {
        let corners = self.mesh.tetrahedra()[t];
        let shape = Shape::of(corners.map(|p| self.mesh.points()[p as usize]));
        let velocity = corners.map(|p| velocity(x, p));
        let pressures = corners.map(|p| x[B * p as usize + 3]);
        let rates = std::array::from_fn(|a| {
            let q = self.history[corners[a] as usize];
            std::array::from_fn(|c| self.rate * velocity[a][c] - q[c])
        });
        let gradient = shape.gradient(&velocity);
        let centre = |v: &[[f64; 3]; 4]| -> [f64; 3] {
            std::array::from_fn(|c| 0.25 * (v[0][c] + v[1][c] + v[2][c] + v[3][c]))
        };
        let (mean, rate) = (centre(&velocity), centre(&rates));
        let left = std::array::from_fn(|c| {
            let slope: f64 = (0..4).map(|a| pressures[a] * shape.gradients[a][c]).sum();
            self.fluid.density * (rate[c] + dot(mean, gradient[c])) + slope
        });
        let pressure = 0.25 * pressures.iter().sum::<f64>();
        Element { shape, velocity, gradient, rates, mean, left, pressure }
    }

    fn residual_row(&self, x: &[f64], i: usize, row: &mut [f64]) {
        let Fluid { density, viscosity } = self.fluid;
        let mut sum = [0.0; B];
        for &corner in self.mesh.around(i) {
            let (t, a) = (corner as usize / 4, corner as usize % 4);
            let e = self.element(x, t);
            let ([tau, grid], volume, g) = (self.weights[t], e.shape.volume, e.shape.gradients[a]);
            // ∫ Nᵢ v of a linear v: V/20 times the sum of its corner values plus the value at corner i.
            let weighted = |v: &[[f64; 3]; 4], c: usize| {
                volume / 20.0 * (v[0][c] + v[1][c] + v[2][c] + v[3][c] + v[a][c])
            };
            let carried = std::array::from_fn(|c| weighted(&e.velocity, c));
            let (along, divergence) =
                (dot(e.mean, g), e.gradient[0][0] + e.gradient[1][1] + e.gradient[2][2]);
            for c in 0..3 {
                let moved = density * (weighted(&e.rates, c) + dot(carried, e.gradient[c]));
                let spread = viscosity * dot(g, e.gradient[c]) + (grid * divergence - e.pressure) * g[c];
                sum[c] += moved + volume * (spread + tau * along * e.left[c]);
            }
            sum[3] += volume * (0.25 * divergence + tau / density * dot(g, e.left));
        }
        for c in 0..B {
            let k = B * i + c;
            row[c] = if self.fixed[i][c] { self.scale * (x[k] - self.given[k]) } else { sum[c] };
        }
    }

    fn jacobian_row(&self, x: &[f64], i: usize, row: &mut [f64]) {
        let Fluid { density, viscosity } = self.fluid;
        for (&corner, places) in self.mesh.around(i).iter().zip(self.rows.places(i)) {
            let (t, a) = (corner as usize / 4, corner as usize % 4);
            let e = self.element(x, t);
            let ([tau, grid], volume, g) = (self.weights[t], e.shape.volume, e.shape.gradients[a]);
            let carried: [f64; 3] = std::array::from_fn(|c| {
                let v = &e.velocity;
                volume / 20.0 * (v[0][c] + v[1][c] + v[2][c] + v[3][c] + v[a][c])
            });
            let along = dot(e.mean, g);
            let stream = tau * volume * along;
            let press = tau / density * volume;
            for b in 0..4 {
                let h = e.shape.gradients[b];
                let block = &mut row[BB * places[b] as usize..][..BB];
                let mass = if a == b { 0.1 * volume } else { 0.05 * volume };
                let change = density * (0.25 * self.rate + dot(e.mean, h)); // ∂rᵢ/∂uᵢ, without the term in ∇u
                let same = density * (mass * self.rate + dot(carried, h))
                    + viscosity * volume * dot(g, h)
                    + stream * change;
                for c in 0..3 {
                    for k in 0..3 {
                        let bent = density * (mass + 0.25 * stream) * e.gradient[c][k];
                        let turned = 0.25 * tau * volume * g[k] * e.left[c];
                        block[B * c + k] += bent + turned + grid * volume * g[c] * h[k];
                    }
                    block[B * c + c] += same;
                    block[B * c + 3] += stream * h[c] - 0.25 * volume * g[c];
                    let slopes = g[0] * e.gradient[0][c] + g[1] * e.gradient[1][c] + g[2] * e.gradient[2][c];
                    block[12 + c] += 0.25 * volume * h[c] + press * (g[c] * change + 0.25 * density * slopes);
                }
                block[15] += press * dot(g, h);
            }
        }
        for c in (0..B).filter(|&c| self.fixed[i][c]) {
            row.chunks_mut(BB).for_each(|block| block[B * c..B * (c + 1)].fill(0.0));
            row[self.rows.place(i, i as u32) * BB + c * (B + 1)] = self.scale;
        }
    }
}

/// Returns the flow out of the body through faces.
pub(crate) fn outflow(mesh: &TetMesh, faces: &[[u32; 3]], x: &[f64]) -> f64 {
    let through = |face: &[u32; 3]| {
        let normal = crate::tets::area(face.map(|p| mesh.points()[p as usize]));
        face.iter().map(|&p| dot(velocity(x, p), normal) / 3.0).sum::<f64>()
    };
    let sums: Vec<f64> = faces.par_chunks(CHUNK).map(|c| c.iter().map(through).sum()).collect();
    sums.iter().sum()
}

/// Returns the velocity of node `p`.
#[inline]
fn velocity(x: &[f64], p: u32) -> [f64; 3] {
    let at = B * p as usize;
    [x[at], x[at + 1], x[at + 2]]
}

impl OnGpu for Flow {
    fn place(&mut self) -> &mut Place<Self> {
        &mut self.place
    }
    fn share(&self) -> Option<&Share> {
        self.share.as_ref()
    }
    #[cfg(feature = "cuda")]
    fn assembly(&self, gpu: usize) -> Result<Option<Box<dyn gpu::Assembly<Self>>>> {
        gpu::flow::assembly(self, gpu)
    }
}

impl NonlinearSystem for Flow {
    fn pattern(&self) -> &Bsr {
        self.rows.pattern()
    }

    fn residual(&mut self, x: &[f64], f: &mut [f64]) -> Result<()> {
        self.rows.check("unknowns", x.len())?;
        self.rows.check("a residual", f.len())?;
        let x = self.local(x)?;
        let n = self.mesh.points().len();
        self.rows.residual(f, |i, row| match i.checked_sub(n) {
            None => self.residual_row(&x, i, row),
            Some(k) => self.outlet_row(&x, k, row),
        });
        self.add_outlets(&x, f);
        Ok(())
    }

    fn jacobian(&mut self, x: &[f64], values: &mut [f64]) -> Result<()> {
        self.rows.check("unknowns", x.len())?;
        self.rows.check_values(values.len())?;
        let x = self.local(x)?;
        let n = self.mesh.points().len();
        self.rows.jacobian(values, |i, row| {
            if i < n {
                self.jacobian_row(&x, i, row);
            }
        });
        self.add_outlet_derivatives(values);
        Ok(())
    }

    fn solves_on(&mut self, gpu: Option<usize>) -> Result<bool> {
        // The kernels know no outlets with a pressure.
        gpu::select(self, gpu.filter(|_| self.outlets.is_empty()))
    }

    fn residual_in_own_memory(&mut self, x: Numbers<'_>) -> Result<Numbers<'_>> {
        gpu::residual(self, x)
    }

    fn jacobian_in_own_memory(&mut self, x: Numbers<'_>) -> Result<Numbers<'_>> {
        gpu::jacobian(self, x)
    }

    fn coordinates(&self) -> Option<&[[f64; 3]]> {
        match self.places.is_empty() {
            true => Some(&self.mesh.points()[..self.rows.pattern().block_rows()]),
            false => Some(&self.places),
        }
    }

    fn problem(&self) -> Result<Problem<'_>> {
        share::problem(self, self.share.as_ref())
    }
}

//! A beating left ventricle: elastodynamics of a truncated ellipsoid of fibre-reinforced muscle, b = 3.
//!
//! Units are mm, g and s, so stresses are in Pa. The wall lies between two half ellipsoids, cut off at z = 5
//! mm (Land et al. 2015): half axes of 7 and 17 mm inside, 10 and 20 mm outside, with the apex at the bottom.
//! Discs of triangles are stacked from the inner surface to the outer one ([`crate::tets::extrude`]), so
//! there is no hole or singular line at the apex. Cells are about as long as the wall's layers are thick.
//! Fibres run at +60° to the circumference inside and at −60° outside, and turn evenly in between.
//!
//! Blood presses on the inner surface, always along its deformed normal: p(t) = p_max sin²(π t/2T), and p_max
//! from t = T on. The base is fixed. [`Material`] describes the muscle and [`crate::solid`] the equations;
//! the density is ρ = 1.06e-3 g/mm³. Time stepping is Newmark's method with β = 1/4 and γ = 1/2 (average
//! acceleration, no damping) from rest. The unknown is the displacement at the end of the step; Newton's
//! method starts from that at its beginning.

use krylith_core::matrix::Bsr;
use krylith_core::memory::Numbers;
use krylith_core::newton::NonlinearSystem;
use krylith_core::{Error, Problem, Result};
use rayon::prelude::*;
use std::f64::consts::PI;

use crate::nonlinear::{Cells, Field, NonlinearProblem, Picture};
use crate::share::{self, Ranks, Share};
use crate::solid::{Material, Solid};
use crate::spec::Spec;
use crate::tets::{Disc, Layers, Numbering, TetMesh, extrude, slice};

/// Half axes of the inner surface in mm, across and along; those of the outer one are `WALL` longer.
const AXES: [f64; 2] = [7.0, 17.0];
/// Thickness of the wall in mm.
const WALL: f64 = 3.0;
/// Height of the cut through the ellipsoid, in mm above its centre.
const CUT: f64 = 5.0;
/// Angle of the fibres on the inner surface.
const ANGLE: f64 = PI / 3.0;
/// Density of muscle in g/mm³.
const DENSITY: f64 = 1.06e-3;
/// β and γ of Newmark's method.
const BETA: f64 = 0.25;
const GAMMA: f64 = 0.5;

/// Options of a [`Ventricle`].
///
/// # Examples
/// ```
/// use krylith_problems::ventricle::{Ventricle, VentricleOptions};
/// let options = VentricleOptions {
///     cells: 500,
///     pressure: 2000.0,
///     ramp: 0.01,
///     ..VentricleOptions::default()
/// };
/// let body = Ventricle::new(options)?;
/// assert_eq!(body.pressure(0.0), 0.0); // it grows from nothing
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct VentricleOptions {
    /// Approximate number of tetrahedra.
    pub cells: usize,
    /// Length Δt of a time step in s.
    pub dt: f64,
    /// Number of time steps.
    pub steps: usize,
    /// p_max in Pa.
    pub pressure: f64,
    /// Time T at which the pressure reaches p_max, in s.
    pub ramp: f64,
    /// Constants of the muscle.
    pub material: Material,
}

impl Default for VentricleOptions {
    fn default() -> Self {
        Self { cells: 6000, dt: 0.001, steps: 3, pressure: 1000.0, ramp: 0.02, material: Material::default() }
    }
}

/// A ventricle at the current time step, the one to solve next.
///
/// # Examples
/// ```
/// use krylith_problems::{nonlinear::NonlinearProblem, ventricle::{Ventricle, VentricleOptions}};
/// let body = Ventricle::new(VentricleOptions { cells: 500, ..VentricleOptions::default() })?;
/// assert_eq!(body.components().len(), 3); // displacements
/// assert!(body.initial().iter().all(|u| *u == 0.0)); // at rest
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Ventricle {
    solid: Solid,
    options: VentricleOptions,
    /// Number of the current step, from 1.
    step: usize,
    /// u, v and a at the beginning of the step.
    displacement: Vec<f64>,
    velocity: Vec<f64>,
    acceleration: Vec<f64>,
    spec: String,
    /// The whole mesh on rank 0, for pictures, if several ranks share it.
    whole: Option<TetMesh>,
}

impl Ventricle {
    /// Builds the problem of the first time step, from rest.
    ///
    /// # Errors
    /// Returns an error if steps, times or constants are not positive, for more cells than a mesh may have,
    /// and if memory is not sufficient.
    pub fn new(options: VentricleOptions) -> Result<Self> {
        Self::build(options, None)
    }

    /// Builds the problem on this rank's part of the mesh, if there are several ranks. Collective.
    fn build(options: VentricleOptions, ranks: Option<&Ranks>) -> Result<Self> {
        let VentricleOptions { dt, ramp, pressure, steps, .. } = options;
        let positive = |x: f64| x > 0.0 && x.is_finite();
        let m = DENSITY / (BETA * dt * dt);
        if !(positive(dt) && positive(ramp) && positive(m) && pressure >= 0.0 && pressure.is_finite()) {
            return Err(Error::invalid(format!(
                "a ventricle with dt={dt}, ramp={ramp}, pressure={pressure}: expected positive finite numbers, and a density over dt² that is finite"
            )));
        }
        if steps == 0 {
            return Err(Error::invalid("a ventricle of 0 time steps; expected at least 1"));
        }
        let mesh = share::made(ranks, mesh(options.cells))?;
        let n = mesh.points().len();
        let mut given = vec![None; n];
        TetMesh::nodes_of(mesh.surface("base")?).iter().for_each(|&p| given[p as usize] = Some([0.0; 3]));
        let (mut whole, mut share) = (None, None);
        let mesh = match ranks {
            None => mesh,
            Some(ranks) => {
                let (part, own, numbering) = mesh.part(ranks)?;
                given = numbering.global().iter().map(|&p| given[p as usize]).collect();
                whole = Some(mesh).filter(|_| ranks.comm.rank() == 0);
                share = Some(own);
                part
            }
        };
        let corners = mesh.tetrahedra().par_iter().with_min_len(1024);
        let fibres = corners
            .map(|t| {
                let x = t.map(|p| mesh.points()[p as usize]);
                fibre(std::array::from_fn(|d| 0.25 * (x[0][d] + x[1][d] + x[2][d] + x[3][d])))
            })
            .collect();
        let mut solid = Solid::build(mesh, options.material, fibres, given, share)?;
        solid.press("endocardium", 0.0)?;
        solid.set_inertia(m)?;
        let zero = vec![0.0; solid.pattern().rows()];
        let Material { a, b, a_f, b_f, kappa } = options.material;
        let spec = format!(
            "ventricle:{},dt={dt},steps={steps},pressure={pressure},ramp={ramp},a={a},b={b},af={a_f},bf={b_f},kappa={kappa}",
            options.cells
        );
        let mut ventricle = Self {
            solid,
            options,
            step: 1,
            displacement: zero.clone(),
            velocity: zero.clone(),
            acceleration: zero,
            spec,
            whole,
        };
        ventricle.begin()?;
        Ok(ventricle)
    }

    pub(crate) fn from_spec(spec: &Spec, ranks: Option<&Ranks>) -> Result<Self> {
        let options = VentricleOptions {
            cells: spec.size[0],
            dt: spec.positive("dt")?,
            steps: spec.whole("steps", 1..=1_000_000_000)? as usize,
            pressure: spec.nonnegative("pressure")?,
            ramp: spec.positive("ramp")?,
            material: Material {
                a: spec.positive("a")?,
                b: spec.positive("b")?,
                a_f: spec.positive("af")?,
                b_f: spec.positive("bf")?,
                kappa: spec.positive("kappa")?,
            },
        };
        Self::build(options, ranks)
    }

    /// Returns the body.
    pub fn solid(&self) -> &Solid {
        &self.solid
    }
    /// Returns the pressure in Pa at a time in s.
    pub fn pressure(&self, t: f64) -> f64 {
        let share = (t / self.options.ramp).min(1.0);
        self.options.pressure * (0.5 * PI * share).sin().powi(2)
    }

    /// Returns the kinetic and the elastic energy in 1e-9 J (g mm²/s²) at the beginning of the current step.
    pub fn energies(&self) -> [f64; 2] {
        let (mesh, v) = (self.solid.mesh(), &self.velocity);
        let motion = |t: &[u32; 4]| {
            let v = t.map(|p| <[f64; 3]>::try_from(&v[3 * p as usize..][..3]).unwrap_or_default());
            let sum: [f64; 3] = std::array::from_fn(|d| v.iter().map(|v| v[d]).sum());
            let squares: f64 = v.as_flattened().iter().chain(&sum).map(|x| x * x).sum();
            crate::tets::signed_volume(t.map(|p| mesh.points()[p as usize])) / 20.0 * squares
        };
        let moving: f64 = mesh.tetrahedra().iter().map(motion).sum();
        [0.5 * DENSITY * moving, self.solid.energy(&self.displacement)]
    }

    /// Prepares the current step.
    fn begin(&mut self) -> Result<()> {
        let dt = self.options.dt;
        let known = self.displacement.par_iter().zip(&self.velocity).zip(&self.acceleration);
        let predicted = known.map(|((u, v), a)| u + dt * v + dt * dt * (0.5 - BETA) * a);
        let predicted: Vec<f64> = predicted.collect();
        self.solid.set_predicted(&predicted)?;
        let pressure = self.pressure(self.step as f64 * dt);
        self.solid.set_pressure(pressure);
        Ok(())
    }

    /// Returns the whole mesh on rank 0, or this rank's part.
    fn mesh(&self) -> &TetMesh {
        self.whole.as_ref().unwrap_or_else(|| self.solid.mesh())
    }
}

impl NonlinearSystem for Ventricle {
    fn pattern(&self) -> &Bsr {
        self.solid.pattern()
    }
    fn residual(&mut self, x: &[f64], f: &mut [f64]) -> Result<()> {
        self.solid.residual(x, f)
    }
    fn jacobian(&mut self, x: &[f64], values: &mut [f64]) -> Result<()> {
        self.solid.jacobian(x, values)
    }
    fn solves_on(&mut self, gpu: Option<usize>) -> Result<bool> {
        self.solid.solves_on(gpu)
    }
    fn residual_in_own_memory(&mut self, x: Numbers<'_>) -> Result<Numbers<'_>> {
        self.solid.residual_in_own_memory(x)
    }
    fn jacobian_in_own_memory(&mut self, x: Numbers<'_>) -> Result<Numbers<'_>> {
        self.solid.jacobian_in_own_memory(x)
    }
    fn coordinates(&self) -> Option<&[[f64; 3]]> {
        self.solid.coordinates()
    }
    fn problem(&self) -> Result<Problem<'_>> {
        self.solid.problem()
    }
}

impl NonlinearProblem for Ventricle {
    fn spec(&self) -> &str {
        &self.spec
    }
    fn initial(&self) -> Vec<f64> {
        self.displacement.clone()
    }
    fn components(&self) -> &'static [&'static str] {
        &["ux", "uy", "uz"]
    }

    fn next_step(&mut self, x: &mut [f64]) -> Result<bool> {
        if x.len() != self.displacement.len() {
            return Err(Error::invalid(format!(
                "x has {} numbers; expected {}",
                x.len(),
                self.displacement.len()
            )));
        }
        if self.step == self.options.steps {
            return Ok(false);
        }
        let dt = self.options.dt;
        let state = self.velocity.par_iter_mut().zip(&mut self.acceleration);
        state.zip(x.par_iter().zip(self.solid.predicted())).for_each(|((v, a), (u, p))| {
            let new = (u - p) / (BETA * dt * dt);
            *v += dt * ((1.0 - GAMMA) * *a + GAMMA * new);
            *a = new;
        });
        self.displacement.copy_from_slice(x);
        self.step += 1;
        self.begin()?;
        Ok(true)
    }
    fn time(&self) -> Option<f64> {
        Some(self.step as f64 * self.options.dt)
    }

    fn share(&self) -> Option<&Share> {
        self.solid.share()
    }
    fn points(&self) -> Vec<[f64; 3]> {
        self.mesh().points().to_vec()
    }
    fn cells(&self) -> Cells {
        Cells::Tetrahedra(self.mesh().tetrahedra().to_vec())
    }
    fn fields(&self, x: &[f64]) -> Vec<(&'static str, Field)> {
        vec![("displacement", Field::Vector(x.as_chunks::<3>().0.to_vec()))]
    }
    /// Returns a picture of the displacement in the section y = 0.
    fn picture(&self, x: &[f64]) -> Option<Picture> {
        let moved = |i: usize| x[3 * i..3 * i + 3].iter().map(|u| u * u).sum::<f64>().sqrt();
        Some(slice(self.mesh(), (1, 0.0), ("Displacement, section y = 0", "mm"), ["x, mm", "z, mm"], moved))
    }
}

/// Builds the mesh of the wall, with about `cells` tetrahedra and the surfaces `endocardium`, `epicardium`
/// and `base`.
///
/// # Errors
/// Returns an error for more cells than a mesh may have.
pub fn mesh(cells: usize) -> Result<TetMesh> {
    // With L layers and cells as long as a layer is thick, there are 4.4 L cells around a quarter of the base
    // and 8.6 L from apex to base.
    let layers = (cells as f64 / 823.0).cbrt().round().max(1.0);
    let square = (2.0 * (2.2 * layers).round()).max(2.0);
    let disc = Disc::new(square as usize, (8.6 * layers - 0.5 * square).round() as usize)?;
    let layers = Layers {
        count: layers as usize,
        numbering: Numbering::Lines,
        surfaces: ["endocardium", "epicardium", "base"],
    };
    extrude(&disc, layers, |[x, y], s| {
        let [across, along] = AXES.map(|axis| axis + WALL * s);
        let r = x.hypot(y);
        // The polar angle from the apex.
        let mu = r * (-CUT / along).acos();
        let (c, s) = if r > 0.0 { (x / r, y / r) } else { (1.0, 0.0) };
        [across * mu.sin() * c, across * mu.sin() * s, -along * mu.cos()]
    })
}

/// Returns the direction of the fibres at a point of the wall.
fn fibre([x, y, z]: [f64; 3]) -> [f64; 3] {
    let rho = x.hypot(y);
    // Depth in the wall: the single root of (ρ/across)² + (z/along)² = 1.
    let [mut low, mut high] = [-0.5, 1.5];
    for _ in 0..50 {
        let middle = 0.5 * (low + high);
        let [across, along] = AXES.map(|axis| axis + WALL * middle);
        if (rho / across).powi(2) + (z / along).powi(2) > 1.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    let depth = 0.5 * (low + high);
    let [across, along] = AXES.map(|axis| axis + WALL * depth);
    let (c, s) = if rho > 0.0 { (x / rho, y / rho) } else { (1.0, 0.0) };
    let mu = (rho / across).atan2(-z / along);
    let up = [across * mu.cos() * c, across * mu.cos() * s, along * mu.sin()];
    let length = (across * mu.cos()).hypot(along * mu.sin());
    let (sin, cos) = (ANGLE * (1.0 - 2.0 * depth)).sin_cos();
    let around = [-s, c, 0.0];
    std::array::from_fn(|d| cos * around[d] + sin * up[d] / length)
}

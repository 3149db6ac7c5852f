//! A beating left ventricle: elastodynamics of fibre-reinforced muscle, b = 3, on a truncated ellipsoid or on
//! a mesh from a file.
//!
//! Units are mm, g and s, so stresses are in Pa. The wall lies between two half ellipsoids, cut off at z = 5
//! mm (Land et al. 2015): half axes of 7 and 17 mm inside, 10 and 20 mm outside, with the apex at the bottom.
//! Discs of triangles are stacked from the inner surface to the outer one ([`crate::tets::extrude`]), so
//! there is no hole or singular line at the apex. Cells are about as long as the wall's layers are thick.
//! Fibres run at +60° to the circumference inside and at −60° outside, and turn evenly in between. Sheets lie
//! across the wall.
//!
//! A mesh from a file has named surfaces for base, endocardium (inside) and epicardium (outside). Fibres and
//! sheets are the fields `fibre` (or `fiber`, `f0`) and `sheet` (or `s0`) of the file. Without them the rule
//! of Bayer et al. (2012) gives the same angles as on the ellipsoid: the depth in the wall and the way from
//! apex to base are solutions of Laplace's equation.
//!
//! Blood presses on the inner surface, always along its deformed normal: p(t) = p_max sin²(π t/2T), and p_max
//! from t = T on. The tension of the fibres grows alike. The base is fixed. [`Material`] describes the muscle
//! and [`crate::solid`] the equations; the density is ρ = 1.06e-3 g/mm³. Time stepping is Newmark's method
//! with β = 1/4 and γ = 1/2 (average acceleration, no damping) from rest. The unknown is the displacement at
//! the end of the step; Newton's method starts from that at its beginning.

mod ellipsoid;
mod rule;

use krylith_core::matrix::Bsr;
use krylith_core::memory::Numbers;
use krylith_core::newton::NonlinearSystem;
use krylith_core::{Error, Problem, Result};
use rayon::prelude::*;
use std::f64::consts::{FRAC_PI_2, FRAC_PI_3};

use crate::nonlinear::{Cells, Field, NonlinearProblem, Picture};
use crate::picture::short;
use crate::share::{self, Ranks, Share};
use crate::solid::{Axes, Material, Solid};
use crate::spec::Spec;
use crate::tets::{TetMesh, dot, file, slice};
pub use ellipsoid::mesh;

/// Angle of the fibres on the inner surface.
const ANGLE: f64 = FRAC_PI_3;
/// Density of muscle in g/mm³.
const DENSITY: f64 = 1.06e-3;
/// β and γ of Newmark's method.
const BETA: f64 = 0.25;
const GAMMA: f64 = 0.5;
/// Length of the part of a unit vector that is orthogonal to another, below which they are parallel.
const PARALLEL: f64 = 1e-6;
/// Names of the fields of a mesh file with directions of fibres, and of sheets.
const FIELDS: [&[&str]; 2] = [&["fibre", "fiber", "fibres", "fibers", "f0"], &["sheet", "sheets", "s0"]];

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
    /// Approximate number of tetrahedra of the generated mesh.
    pub cells: usize,
    /// Length Δt of a time step in s.
    pub dt: f64,
    /// Number of time steps.
    pub steps: usize,
    /// p_max in Pa.
    pub pressure: f64,
    /// Time T at which pressure and tension reach their final values, in s.
    pub ramp: f64,
    /// Constants of the muscle, with its final tension.
    pub material: Material,
    /// Names of the surfaces of base, endocardium and epicardium, joined by `+`. Each may end in `*`.
    pub surfaces: [String; 3],
}

impl Default for VentricleOptions {
    fn default() -> Self {
        let surfaces = ["base*", "endo*", "epi*"].map(String::from);
        let material = Material::default();
        Self { cells: 6000, dt: 0.001, steps: 3, pressure: 1000.0, ramp: 0.02, material, surfaces }
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
    /// The plane y = const of the picture.
    section: f64,
}

impl Ventricle {
    /// Builds the problem of the first time step, from rest, on the generated mesh.
    ///
    /// # Errors
    /// Returns an error if steps, times or constants are out of range, for more cells than a mesh may have,
    /// and if memory is not sufficient.
    pub fn new(options: VentricleOptions) -> Result<Self> {
        let mesh = mesh(options.cells)?;
        let axes = ellipsoid::axes(&mesh);
        Self::build(mesh, axes, options, None)
    }

    /// Builds the problem of the first time step on a mesh, with directions of fibres and sheets in each
    /// tetrahedron, or those of the rule.
    ///
    /// # Errors
    /// Returns an error if the mesh lacks a surface, if directions are not as many as tetrahedra, and the
    /// errors of [`new`](Self::new). The rule needs the epicardium; it fails if its Laplace problems do.
    pub fn on_mesh(mesh: TetMesh, axes: Option<Vec<Axes>>, options: VentricleOptions) -> Result<Self> {
        let axes = axes.map_or_else(|| rule::axes(&mesh, &options), Ok)?;
        Self::build(mesh, axes, options, None)
    }

    /// Builds the problem on this rank's part of the mesh, if there are several ranks. Collective.
    fn build(
        mesh: TetMesh,
        mut axes: Vec<Axes>,
        options: VentricleOptions,
        ranks: Option<&Ranks>,
    ) -> Result<Self> {
        let VentricleOptions { dt, ramp, pressure, steps, material, .. } = options;
        let positive = |x: f64| x > 0.0 && x.is_finite();
        let m = DENSITY / (BETA * dt * dt);
        if !(positive(dt) && positive(ramp) && positive(m) && pressure >= 0.0 && pressure.is_finite()) {
            return Err(Error::invalid(format!(
                "a ventricle with dt={dt}, ramp={ramp}, pressure={pressure}: expected positive finite numbers, and a density over dt² that is finite"
            )));
        }
        material.check()?;
        if steps == 0 {
            return Err(Error::invalid("a ventricle of 0 time steps; expected at least 1"));
        }
        let n = mesh.points().len();
        let mut given = vec![None; n];
        let base = share::made(ranks, faces(&mesh, &options, Part::Base))?;
        TetMesh::nodes_of(&base).iter().for_each(|&p| given[p as usize] = Some([0.0; 3]));
        let cells = mesh.tetrahedra().len();
        let (mut whole, mut share) = (None, None);
        let mesh = match ranks {
            None => mesh,
            Some(ranks) => {
                let (part, own, numbering) = mesh.part(ranks)?;
                given = numbering.global().iter().map(|&p| given[p as usize]).collect();
                // The tetrahedra of the part, in their order.
                let mine = |p: &u32| {
                    numbering.local(u64::from(*p)).is_some_and(|p| (p as usize) < own.numbers().len())
                };
                let kept = mesh.tetrahedra().iter().zip(&axes).filter(|(t, _)| t.iter().any(mine));
                axes = kept.map(|(_, axes)| *axes).collect();
                whole = Some(mesh).filter(|_| ranks.comm.rank() == 0);
                share = Some(own);
                part
            }
        };
        let rest = Material { tension: 0.0, ..material };
        let mut solid = Solid::build(mesh, rest, axes, given, share)?;
        let [_, inside, _] = &options.surfaces;
        solid.press(inside, 0.0).map_err(|e| Part::Endocardium.missing(&e))?;
        solid.set_inertia(m)?;
        let zero = vec![0.0; solid.pattern().rows()];
        let Material { a, b, a_f, b_f, a_s, b_s, a_fs, b_fs, kappa, tension, cross } = material;
        let tension = 1e-3 * tension;
        let spec = format!(
            "ventricle:{cells},dt={dt},steps={steps},pressure={pressure},ramp={ramp},tension={tension},\
             cross={cross},a={a},b={b},af={a_f},bf={b_f},as={a_s},bs={b_s},afs={a_fs},bfs={b_fs},kappa={kappa}"
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
            section: 0.0,
        };
        ventricle.begin()?;
        Ok(ventricle)
    }

    pub(crate) fn from_spec(spec: &Spec, ranks: Option<&Ranks>) -> Result<Self> {
        let mut options = VentricleOptions {
            cells: 0,
            dt: spec.positive("dt")?,
            steps: spec.whole("steps", 1..=1_000_000_000)? as usize,
            pressure: spec.nonnegative("pressure")?,
            ramp: spec.positive("ramp")?,
            material: Material {
                a: spec.positive("a")?,
                b: spec.positive("b")?,
                a_f: spec.positive("af")?,
                b_f: spec.positive("bf")?,
                a_s: spec.nonnegative("as")?,
                b_s: spec.positive("bs")?,
                a_fs: spec.nonnegative("afs")?,
                b_fs: spec.positive("bfs")?,
                kappa: spec.positive("kappa")?,
                tension: 1e3 * spec.nonnegative("tension")?,
                cross: spec.nonnegative("cross")?,
            },
            surfaces: ["base", "endocardium", "epicardium"].map(|key| spec.text(key).to_string()),
        };
        let order = spec.text("numbering").parse().map_err(|e| spec.wrong("numbering", &e))?;
        let within = |e: Error| match e {
            Error::Invalid(message) => Error::invalid(format!("problem ventricle:{}: {message}", spec.label)),
            other => other,
        };
        // Tetrahedra keep their order, so directions are those of any numbering.
        let made = match spec.label.parse::<usize>() {
            Ok(cells) => {
                options.cells = cells;
                mesh(cells).and_then(|mesh| Ok((ellipsoid::axes(&mesh), mesh.ordered(order)?)))
            }
            Err(_) if file::is_named(&spec.label) => of_file(&spec.label, &options)
                .and_then(|(axes, mesh)| Ok((axes, mesh.ordered(order)?)))
                .map_err(within),
            Err(_) => Err(Error::invalid(format!(
                "problem ventricle: `{}`: expected a number of tetrahedra or a mesh file that ends in .msh or .vtu",
                spec.label
            ))),
        };
        let (axes, mesh) = share::made(ranks, made)?;
        let section = if file::is_named(&spec.label) { middle(&mesh) } else { 0.0 };
        let ventricle = Self::build(mesh, axes, options, ranks).map_err(within)?;
        Ok(Self { spec: spec.full(), section, ..ventricle })
    }

    /// Returns the body.
    pub fn solid(&self) -> &Solid {
        &self.solid
    }
    /// Returns the pressure in Pa at a time in s.
    pub fn pressure(&self, t: f64) -> f64 {
        self.options.pressure * self.risen(t)
    }
    /// Returns the tension of the fibres in Pa at a time in s.
    pub fn tension(&self, t: f64) -> f64 {
        self.options.material.tension * self.risen(t)
    }
    /// Returns the share of pressure and tension that acts at a time.
    fn risen(&self, t: f64) -> f64 {
        (FRAC_PI_2 * (t / self.options.ramp).min(1.0)).sin().powi(2)
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
        let t = self.step as f64 * dt;
        let (pressure, tension) = (self.pressure(t), self.tension(t));
        self.solid.set_pressure(pressure);
        self.solid.set_tension(tension);
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
    /// Returns a picture of the displacement in the section y = 0, or in the middle of a mesh from a file.
    fn picture(&self, x: &[f64]) -> Option<Picture> {
        let moved = |i: usize| x[3 * i..3 * i + 3].iter().map(|u| u * u).sum::<f64>().sqrt();
        let title = format!("Displacement, section y = {}", short(self.section));
        Some(slice(self.mesh(), (1, self.section), (&title, "mm"), ["x, mm", "z, mm"], moved))
    }
}

/// A part of the surface, by its place in [`VentricleOptions::surfaces`].
#[derive(Debug, Clone, Copy)]
enum Part {
    Base,
    Endocardium,
    Epicardium,
}

impl Part {
    /// Adds the remedy to the error about a missing surface.
    fn missing(self, why: &Error) -> Error {
        let key = ["base", "endocardium", "epicardium"][self as usize];
        Error::invalid(format!("{why}; name the surfaces of the {key} by {key}=NAME"))
    }
}

/// Returns the faces of a part of the surface.
fn faces(mesh: &TetMesh, options: &VentricleOptions, part: Part) -> Result<Vec<[u32; 3]>> {
    let found = mesh.select(&options.surfaces[part as usize]).map_err(|e| part.missing(&e))?;
    Ok(found.into_iter().flat_map(|surface| surface.faces.iter().copied()).collect())
}

/// Reads a mesh with its directions, or those of the rule.
fn of_file(path: &str, options: &VentricleOptions) -> Result<(Vec<Axes>, TetMesh)> {
    let (mesh, fields) = file::read_with_directions(path, &FIELDS.concat())?;
    let find = |names: &[&str]| fields.iter().find(|field| names.contains(&&*field.name)).map(|f| &f.vectors);
    let [fibres, sheets] = FIELDS.map(find);
    let axes = match (fibres, sheets) {
        (Some(fibres), Some(sheets)) => fibres.iter().zip(sheets).map(|(f, s)| orthogonal(*f, *s)).collect(),
        (Some(fibres), None) => {
            let across = rule::axes(&mesh, options)?;
            fibres.iter().zip(across).map(|(f, [_, s])| orthogonal(*f, s)).collect()
        }
        (None, Some(_)) => {
            return Err(Error::format(
                path,
                "a field of sheets without one of fibres; add the field `fibre`",
            ));
        }
        (None, None) => rule::axes(&mesh, options)?,
    };
    Ok((axes, mesh))
}

/// Returns a unit vector along the fibre, and one along the part of the sheet that is orthogonal to it.
fn orthogonal(fibre: [f64; 3], sheet: [f64; 3]) -> Axes {
    let along = dot(fibre, sheet);
    let rest = [0, 1, 2].map(|d| sheet[d] - along * fibre[d]);
    [fibre, unit(rest, PARALLEL).unwrap_or_else(|| beside(fibre))]
}

/// Returns v over its length, if that is larger than `least`.
fn unit(v: [f64; 3], least: f64) -> Option<[f64; 3]> {
    let length = dot(v, v).sqrt();
    (length > least && length.is_finite()).then(|| v.map(|x| x / length))
}

/// Returns a unit vector that is orthogonal to a unit vector.
fn beside(v: [f64; 3]) -> [f64; 3] {
    let least = (0..3).min_by(|&i, &j| v[i].abs().total_cmp(&v[j].abs())).unwrap_or(0);
    let rest = [0, 1, 2].map(|d| if d == least { 1.0 } else { 0.0 } - v[least] * v[d]);
    unit(rest, 0.0).unwrap_or([1.0, 0.0, 0.0])
}

/// Returns fibre and sheet at a depth from 0, inside, to 1, outside, where orthogonal unit vectors point
/// around the ventricle and up to its base.
fn turned(around: [f64; 3], up: [f64; 3], depth: f64) -> Axes {
    let (sin, cos) = (ANGLE * (1.0 - 2.0 * depth)).sin_cos();
    [[0, 1, 2].map(|d| cos * around[d] + sin * up[d]), crate::tets::cross(around, up)]
}

/// Returns the middle of a mesh along y.
fn middle(mesh: &TetMesh) -> f64 {
    let of = |(low, high): (f64, f64), x: &[f64; 3]| (low.min(x[1]), high.max(x[1]));
    let (low, high) = mesh.points().iter().fold((f64::INFINITY, f64::NEG_INFINITY), of);
    0.5 * (low + high)
}

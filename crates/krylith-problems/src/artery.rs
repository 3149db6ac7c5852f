//! Blood in an artery: unsteady incompressible flow, b = 4, through a bent pipe with a stenosis or through a
//! mesh from a file.
//!
//! Units are cm, g and s: ρ = 1.06 g/cm³, μ = 0.035 g/(cm s), pressure in dyn/cm². The pipe has a radius of
//! R = 0.2 cm. It runs straight for 3R, turns by 90° about a radius of 5R, and is straight again for 6R. In
//! the middle of the bend it narrows smoothly to 0.7 R over a length of 4R. Its sections are discs of equal
//! cells ([`crate::tets::extrude`]), about as far apart as cells are long.
//!
//! Blood enters with a parabolic profile whose mean speed is U(t) = U s(t) (1 + ½ sin 2πt/T), T = 1 s, with
//! s = sin²(πt/2T₀) until T₀ = 0.1 s and 1 from then on. U = Re ν/2R, so `re` is the Reynolds number of the
//! mean flow. Walls do not slip, and μ ∂u/∂n − p n = 0 at the outlet. [`crate::flow`] gives the equations.
//! The first step, from rest, uses backward Euler, the others BDF2.
//!
//! A mesh from a file is in cm and has named surfaces for inlet, wall and outlets. The inflow profile is that
//! of a round inlet with the same centre, normal and area. The inflow may instead follow an [`InflowCurve`]
//! from a file.
//!
//! Each outlet may have a resistance or a [`Windkessel`] model. Its pressure P is then an unknown of a node
//! that follows those of the mesh, with the components 0, 0, 0 and P.

use krylith_core::matrix::Bsr;
use krylith_core::memory::Numbers;
use krylith_core::newton::NonlinearSystem;
use krylith_core::{Error, Problem, Result};
use std::f64::consts::{FRAC_PI_2, PI};

use crate::flow::{Flow, Fluid, outflow};
use crate::nonlinear::{Cells, Field, NonlinearProblem, Picture};
pub use crate::outlets::{InflowCurve, Windkessel};
use crate::share::{self, Ranks, Share};
use crate::spec::Spec;
use crate::tets::{
    Boundary, Disc, Layers, Numbering, Profile, Surface, TetMesh, area, dot, extrude, file, profile, slice,
};

/// Blood, in g/cm³ and g/(cm s).
const BLOOD: Fluid = Fluid { density: 1.06, viscosity: 0.035 };
/// Radius of the pipe in cm. The lengths that follow are in radii: straight parts, bend radius, stenosis.
const RADIUS: f64 = 0.2;
const BEFORE: f64 = 3.0;
const BEND: f64 = 5.0;
const AFTER: f64 = 6.0;
const STENOSIS: f64 = 4.0;
/// Largest reduction of the radius by the stenosis, as a share of the radius.
const DEPTH: f64 = 0.3;
/// Duration of the ramp to the mean flow and period of a pulse, in s.
const RAMP: f64 = 0.1;
const PULSE: f64 = 1.0;

/// Options of an [`Artery`].
///
/// # Examples
/// ```
/// use krylith_problems::artery::{Artery, ArteryOptions, mesh};
/// let artery = Artery::new(mesh(500)?, ArteryOptions { re: 100.0, ..ArteryOptions::default() })?;
/// assert!(artery.speed(0.05) > 0.0);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct ArteryOptions {
    /// Reynolds number of the mean flow, based on the diameter of the inlet.
    pub re: f64,
    /// Length Δt of a time step in s.
    pub dt: f64,
    /// Number of time steps.
    pub steps: usize,
    /// The flow through the inlet; `None` is a pulse with the Reynolds number `re`.
    pub inflow: Option<InflowCurve>,
    /// Names of the surfaces of inlet, wall and outlets, joined by `+`. Each may end in `*`.
    pub surfaces: [String; 3],
    /// The model of each outlet, in the order of the surfaces, or one for all; empty for no traction.
    pub outlets: Vec<Windkessel>,
}

impl Default for ArteryOptions {
    fn default() -> Self {
        let surfaces = ["inlet*", "wall*", "outlet*"].map(String::from);
        Self { re: 300.0, dt: 0.005, steps: 3, inflow: None, surfaces, outlets: Vec::new() }
    }
}

/// An artery at the current time step, the one to solve next.
///
/// # Examples
/// ```
/// use krylith::newton::{Newton, NewtonOptions};
/// use krylith_problems::{artery::{Artery, ArteryOptions, mesh}, nonlinear::NonlinearProblem};
/// let mut artery = Artery::new(mesh(300)?, ArteryOptions { re: 50.0, ..ArteryOptions::default() })?;
/// let mut x = artery.initial();
/// let mut newton = Newton::new(NewtonOptions::default(), &"device=cpu".parse()?)?;
/// let report = newton.solve(&mut artery, &mut x)?.clone();
/// assert!(report.converged());
/// // What flows in flows out.
/// let [inlet, outlet] = ["inlet", "outlet"].map(|name| artery.flow().outflow(name, &x));
/// assert!((inlet? + outlet?).abs() < 0.1 * artery.flow().outflow("outlet", &x)?);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Artery {
    flow: Flow,
    options: ArteryOptions,
    /// Inflow profile without the nodes of the wall, its radius, and the flow of mean speed 1.
    inlet: Profile,
    radius: f64,
    flux: f64,
    /// Faces of the inlet and of the outlets of the whole mesh, with their names.
    parts: Vec<Surface>,
    /// Models of the outlets that have a pressure, and π at the last two times.
    models: Vec<Windkessel>,
    stored: Vec<[f64; 2]>,
    /// Number of the current step, from 1. `last` holds the unknowns at its beginning, `before` those one
    /// step earlier (from the second step on).
    step: usize,
    last: Vec<f64>,
    before: Option<Vec<f64>>,
    spec: String,
    /// The whole mesh on rank 0, for pictures, if several ranks share it.
    whole: Option<TetMesh>,
}

impl Artery {
    /// Builds the problem of the first time step, from rest, on a mesh with the surfaces `inlet`, `wall` and
    /// `outlet`.
    ///
    /// # Errors
    /// Returns an error if the mesh lacks a surface, if a number is not positive, or if memory is not
    /// sufficient.
    pub fn new(mesh: TetMesh, options: ArteryOptions) -> Result<Self> {
        Self::build(mesh, options, None)
    }

    /// Builds this rank's share of the problem; every rank gives the whole mesh. Collective.
    ///
    /// # Errors
    /// Returns the errors of [`new`](Self::new), and an error for more ranks than nodes.
    pub fn on(ranks: &Ranks, mesh: TetMesh, options: ArteryOptions) -> Result<Self> {
        Self::build(mesh, options, Some(ranks))
    }

    fn build(mesh: TetMesh, options: ArteryOptions, ranks: Option<&Ranks>) -> Result<Self> {
        let ArteryOptions { re, dt, steps, .. } = options;
        let positive = |x: f64| x > 0.0 && x.is_finite();
        if !(positive(re) && positive(dt) && positive(1.0 / dt)) || steps == 0 {
            return Err(Error::invalid(format!(
                "an artery with re={re}, dt={dt}, steps={steps}: expected positive finite numbers"
            )));
        }
        let names = options.surfaces.each_ref().map(|name| &**name);
        let boundary = share::made(ranks, Boundary::of(&mesh, names))?;
        let outlets = models(&options.outlets, boundary.outlets.len())?;
        let (profile, radius) = share::made(ranks, profile(&mesh, &boundary.inlet))?;
        let n = mesh.points().len();
        let mut fixed = vec![[false; 4]; n];
        let walls = TetMesh::nodes_of(&boundary.wall);
        for &p in walls.iter().chain(profile.iter().map(|(p, _)| p)) {
            fixed[p as usize] = [true, true, true, false];
        }
        let mut inlet: Profile =
            profile.into_iter().filter(|(p, _)| walls.binary_search(p).is_err()).collect();
        let mut unit = vec![0.0; 4 * n];
        for (p, u) in &inlet {
            unit[4 * *p as usize..][..3].copy_from_slice(u);
        }
        let flux = -outflow(&mesh, &boundary.inlet, &unit);
        let mut parts = vec![Surface { name: "inlet".into(), faces: boundary.inlet }];
        parts.extend(boundary.outlets);
        let acting: Vec<usize> = (0..outlets.len()).filter(|&k| outlets[k].acts()).collect();
        let models: Vec<Windkessel> = acting.iter().map(|&k| outlets[k]).collect();
        let mut whole = None;
        let flow = match ranks {
            None => Flow::new(mesh, BLOOD, fixed)?,
            Some(ranks) => {
                let (part, share, numbering) = mesh.part(ranks)?;
                inlet = inlet
                    .into_iter()
                    .filter_map(|(p, u)| Some((numbering.local(u64::from(p))?, u)))
                    .collect();
                let fixed = numbering.global().iter().map(|&p| fixed[p as usize]).collect();
                whole = Some(mesh).filter(|_| ranks.comm.rank() == 0);
                Flow::build(part, BLOOD, fixed, Some(share))?
            }
        };
        let faces: Vec<&[[u32; 3]]> = acting.iter().map(|&k| &parts[k + 1].faces[..]).collect();
        let flow = flow.with_outlets(&faces)?;
        let last = vec![0.0; flow.pattern().rows()];
        let spec = format!("artery:{n},re={re},dt={dt},steps={steps}");
        let stored = vec![[0.0; 2]; models.len()];
        let mut artery = Self {
            flow,
            options,
            inlet,
            radius,
            flux,
            parts,
            models,
            stored,
            step: 1,
            last,
            before: None,
            spec,
            whole,
        };
        artery.begin()?;
        Ok(artery)
    }

    pub(crate) fn from_spec(spec: &Spec, ranks: Option<&Ranks>) -> Result<Self> {
        let options = ArteryOptions {
            re: spec.positive("re")?,
            dt: spec.positive("dt")?,
            steps: spec.whole("steps", 1..=1_000_000_000)? as usize,
            inflow: match spec.text("inflow") {
                "pulse" => None,
                path => Some(share::made(ranks, InflowCurve::read(path))?),
            },
            surfaces: ["inlet", "wall", "outlet"].map(|key| spec.text(key).to_string()),
            outlets: windkessels(spec)?,
        };
        let mesh = match spec.label.parse::<usize>() {
            Ok(nodes) => mesh(nodes),
            Err(_) if file::is_named(&spec.label) => file::read(&spec.label),
            Err(_) => Err(Error::invalid(format!(
                "problem artery: `{}`: expected a number of nodes or a mesh file that ends in .msh or .vtu",
                spec.label
            ))),
        };
        let order = spec.text("numbering").parse().map_err(|e| spec.wrong("numbering", &e))?;
        let mesh = share::made(ranks, mesh.and_then(|mesh| mesh.ordered(order)))?;
        let within = |e: Error| match e {
            Error::Invalid(message) => Error::invalid(format!("problem artery:{}: {message}", spec.label)),
            other => other,
        };
        let artery = Self::build(mesh, options, ranks).map_err(within)?;
        Ok(Self { spec: spec.full(), ..artery })
    }

    /// Returns the discretised flow.
    pub fn flow(&self) -> &Flow {
        &self.flow
    }

    /// Returns the mean speed at the inlet in cm/s at a time in s.
    pub fn speed(&self, t: f64) -> f64 {
        if let Some(curve) = &self.options.inflow {
            return curve.at(t) / self.flux;
        }
        let mean = self.options.re * BLOOD.viscosity / BLOOD.density / (2.0 * self.radius);
        let ramp = (FRAC_PI_2 * (t / RAMP).min(1.0)).sin().powi(2);
        mean * ramp * (1.0 + 0.5 * (2.0 * PI * t / PULSE).sin())
    }

    /// Returns the whole mesh on rank 0, or this rank's part.
    fn mesh(&self) -> &TetMesh {
        self.whole.as_ref().unwrap_or_else(|| self.flow.mesh())
    }

    /// Prepares the current step: boundary values and time stepping.
    fn begin(&mut self) -> Result<()> {
        self.flow.begin(self.options.dt, &self.last, self.before.as_deref())?;
        let (rate, dt) = (self.flow.rate(), self.options.dt);
        for (k, (model, [last, before])) in self.models.iter().zip(&self.stored).enumerate() {
            let history = match self.before {
                Some(_) => (2.0 * last - 0.5 * before) / dt,
                None => last / dt,
            };
            self.flow.set_outlet(k, model.linear(rate, history));
        }
        let speed = self.speed(self.step as f64 * self.options.dt);
        let given = self.flow.given_mut();
        for (p, profile) in &self.inlet {
            (0..3).for_each(|c| given[4 * *p as usize + c] = speed * profile[c]);
        }
        Ok(())
    }
}

impl NonlinearSystem for Artery {
    fn pattern(&self) -> &Bsr {
        self.flow.pattern()
    }
    fn residual(&mut self, x: &[f64], f: &mut [f64]) -> Result<()> {
        self.flow.residual(x, f)
    }
    fn jacobian(&mut self, x: &[f64], values: &mut [f64]) -> Result<()> {
        self.flow.jacobian(x, values)
    }
    fn solves_on(&mut self, gpu: Option<usize>) -> Result<bool> {
        self.flow.solves_on(gpu)
    }
    fn residual_in_own_memory(&mut self, x: Numbers<'_>) -> Result<Numbers<'_>> {
        self.flow.residual_in_own_memory(x)
    }
    fn jacobian_in_own_memory(&mut self, x: Numbers<'_>) -> Result<Numbers<'_>> {
        self.flow.jacobian_in_own_memory(x)
    }
    fn coordinates(&self) -> Option<&[[f64; 3]]> {
        self.flow.coordinates()
    }
    fn problem(&self) -> Result<Problem<'_>> {
        self.flow.problem()
    }
}

impl NonlinearProblem for Artery {
    fn spec(&self) -> &str {
        &self.spec
    }
    /// Returns the unknowns at the beginning of the step, with the prescribed values of its end.
    fn initial(&self) -> Vec<f64> {
        let mut x = self.last.clone();
        self.flow.put_given(&mut x);
        x
    }
    fn components(&self) -> &'static [&'static str] {
        &["u", "v", "w", "p"]
    }

    fn next_step(&mut self, x: &mut [f64]) -> Result<bool> {
        if x.len() != self.last.len() {
            return Err(Error::invalid(format!("x has {} numbers; expected {}", x.len(), self.last.len())));
        }
        if self.step == self.options.steps {
            return Ok(false);
        }
        // π is what the proximal resistance leaves of the pressure.
        let n = self.flow.mesh().points().len();
        let acting = self.flow.outlets().iter().zip(&self.models).zip(&mut self.stored);
        for (k, ((outlet, model), stored)) in acting.enumerate() {
            let flow: f64 = outlet.flow(x);
            *stored = [x[4 * (n + k) + 3] - model.resistance * flow, stored[0]];
        }
        let mut oldest = self.before.take().unwrap_or_else(|| vec![0.0; x.len()]);
        oldest.copy_from_slice(x);
        self.before = Some(std::mem::replace(&mut self.last, oldest));
        self.step += 1;
        self.begin()?;
        self.flow.put_given(x);
        Ok(true)
    }
    fn time(&self) -> Option<f64> {
        Some(self.step as f64 * self.options.dt)
    }

    fn share(&self) -> Option<&Share> {
        self.flow.share()
    }
    fn points(&self) -> Vec<[f64; 3]> {
        self.mesh().points().to_vec()
    }
    fn cells(&self) -> Cells {
        Cells::Tetrahedra(self.mesh().tetrahedra().to_vec())
    }
    fn fields(&self, x: &[f64]) -> Vec<(&'static str, Field)> {
        // The pressures of outlets follow the nodes.
        let nodes = &x.as_chunks::<4>().0[..self.mesh().points().len()];
        vec![
            ("velocity", Field::Vector(nodes.iter().map(|x| [x[0], x[1], x[2]]).collect())),
            ("pressure", Field::Scalar(nodes.iter().map(|x| x[3]).collect())),
        ]
    }
    /// Returns the flow in through the inlet, the flow out through each outlet in cm³/s, and the mean
    /// pressure of each outlet in dyn/cm².
    fn figures(&self, x: &[f64]) -> Vec<(String, f64)> {
        let (mesh, mut figures) = (self.mesh(), Vec::new());
        for (k, part) in self.parts.iter().enumerate() {
            let flow = outflow(mesh, &part.faces, x);
            let (what, sign) = if k == 0 { ("flow in", -1.0) } else { ("flow out", 1.0) };
            figures.push((format!("{what} through {}", part.name), sign * flow));
        }
        for part in &self.parts[1..] {
            let (mut sum, mut size) = (0.0, 0.0);
            for face in &part.faces {
                let a = area(face.map(|p| mesh.points()[p as usize]));
                let own = dot(a, a).sqrt();
                size += own;
                sum += own * face.iter().map(|&p| x[4 * p as usize + 3] / 3.0).sum::<f64>();
            }
            figures.push((format!("mean pressure of {}", part.name), sum / size));
        }
        figures
    }
    /// Returns a picture of the speed in the section z = 0.
    fn picture(&self, x: &[f64]) -> Option<Picture> {
        let speed = |i: usize| x[4 * i..4 * i + 3].iter().map(|u| u * u).sum::<f64>().sqrt();
        Some(slice(self.mesh(), (2, 0.0), ("Speed, section z = 0", "cm/s"), ["x, cm", "y, cm"], speed))
    }
}

/// Returns a model for each of `count` outlets.
fn models(given: &[Windkessel], count: usize) -> Result<Vec<Windkessel>> {
    given.iter().try_for_each(Windkessel::check)?;
    match *given {
        [] => Ok(vec![Windkessel::default(); count]),
        [one] => Ok(vec![one; count]),
        _ if given.len() == count => Ok(given.to_vec()),
        _ => Err(Error::invalid(format!(
            "{} models for {count} outlets; give one for each, or one for all",
            given.len()
        ))),
    }
}

/// Reads the models of outlets: lists of numbers joined by `+`.
fn windkessels(spec: &Spec) -> Result<Vec<Windkessel>> {
    let list = |key: &str| -> Result<Vec<f64>> {
        let numbers = spec.text(key).split('+').map(|word| word.trim().parse().ok());
        let numbers: Option<Vec<f64>> = numbers.collect();
        let sound = |all: &Vec<f64>| all.iter().all(|x| x.is_finite() && *x >= 0.0);
        numbers.filter(sound).ok_or_else(|| spec.bad(key, "numbers of at least 0, joined by +"))
    };
    let [resistance, compliance, distal] = [list("resistance")?, list("compliance")?, list("distal")?];
    let count = resistance.len().max(compliance.len()).max(distal.len());
    for (key, list) in [("resistance", &resistance), ("compliance", &compliance), ("distal", &distal)] {
        if list.len() != 1 && list.len() != count {
            return Err(spec.bad(key, &format!("one number, or {count} as for other keys of outlets")));
        }
    }
    let of = |list: &[f64], k: usize| list[if list.len() == 1 { 0 } else { k }];
    Ok((0..count)
        .map(|k| Windkessel {
            resistance: of(&resistance, k),
            compliance: of(&compliance, k),
            distal: of(&distal, k),
        })
        .collect())
}

/// Builds the mesh of the pipe with about `nodes` nodes and the surfaces `inlet`, `wall` and `outlet`.
///
/// # Errors
/// Returns an error for fewer than 18 nodes, or for more than a mesh may have.
pub fn mesh(nodes: usize) -> Result<TetMesh> {
    let length = BEFORE + BEND * FRAC_PI_2 + AFTER; // in radii
    // n×n equal cells of a disc of area π are √π/n long.
    let cells = (nodes as f64 * PI.sqrt() / length).cbrt();
    let cells = ((2.0 * (0.5 * cells).round()) as usize).max(2);
    let layers = (nodes as f64 / ((cells + 1) * (cells + 1)) as f64).round() as usize;
    if layers < 2 {
        return Err(Error::invalid(format!("an artery of {nodes} nodes; expected at least 18")));
    }
    let layers =
        Layers { count: layers - 1, numbering: Numbering::Discs, surfaces: ["inlet", "outlet", "wall"] };
    extrude(&Disc::new(cells, 0)?, layers, |[x, y], s| {
        let s = s * length;
        let (centre, outwards) = centre_line(s);
        let from = (s - (BEFORE + 0.5 * BEND * FRAC_PI_2)) / (0.5 * STENOSIS);
        let narrow = if from.abs() < 1.0 { 0.5 * DEPTH * (1.0 + (PI * from).cos()) } else { 0.0 };
        let r = 1.0 - narrow;
        [
            RADIUS * (centre[0] + r * x * outwards[0]),
            RADIUS * (centre[1] + r * x * outwards[1]),
            RADIUS * r * y,
        ]
    })
}

/// Returns the point of the centre line at arc length s and the direction away from the bend's axis, in
/// radii.
fn centre_line(s: f64) -> ([f64; 2], [f64; 2]) {
    let angle = ((s - BEFORE) / BEND).clamp(0.0, FRAC_PI_2);
    let (sin, cos) = angle.sin_cos();
    // Straight along x, then the bend about (BEFORE, BEND), then straight along y.
    let on_bend = [BEFORE + BEND * sin, BEND * (1.0 - cos)];
    let rest = s - BEFORE - BEND * angle;
    ([on_bend[0] + rest * cos, on_bend[1] + rest * sin], [sin, -cos])
}

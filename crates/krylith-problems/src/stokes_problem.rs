//! The problem `stokes:…`: a flow in a duct or in a body from a mesh file, with its scheme and step length.

use krylith_core::matrix::{Bsr, Butcher, Dense, KroneckerSum};
use krylith_core::partition::{RowBlocks, Rows, contiguous};
use krylith_core::{Error, Result};
use std::ops::Range;
use std::sync::Arc;

use crate::nonlinear::Picture;
use crate::spec::Spec;
use crate::stokes::{BodyOptions, Stokes, StokesBody, StokesDuct, StokesOptions};
use crate::tets::{TetMesh, file, slice};
use crate::{DuctMesh, Generated, GeneratedRows, InletRamp, StokesSteps, SystemKind};
use crate::{check_rhs, kronecker_terms, picture};

/// Keys that apply to a mesh file only, and to a duct only.
const OF_MESH: [&str; 4] = ["inlet", "wall", "outlet", "numbering"];
const OF_DUCT: [&str; 1] = ["length"];

/// The flow that a text such as `stokes:8x8x8,tau=0.1` or `stokes:pipe.msh` names: the system of a step, and
/// what steps need.
///
/// # Examples
/// ```
/// use krylith::Solver;
/// use krylith_problems::StokesProblem;
/// let mut flow = StokesProblem::by_text("stokes:4x4x4,tau=0.25")?;
/// let (system, steps, domain) = flow.parts();
/// let mut solver = Solver::new(system, &"device=cpu".parse()?)?;
/// let mut u = vec![0.0; 4 * domain.nodes()]; // at rest
/// let (mut rhs, mut k) = (vec![0.0; 2 * u.len()], vec![0.0; 2 * u.len()]);
/// for n in 0..4 {
///     steps.rhs_into(n as f64 * 0.25, &u, &mut rhs)?;
///     assert!(solver.solve(&rhs, &mut k)?.converged());
///     steps.advance(&k, &mut u)?;
/// }
/// // At t = ramp = 1 the inflow peaks: 16 y (1 − y) z (1 − z), here at y = z = 1/3.
/// assert!((u[4 * 20] - 16.0 * (2.0f64 / 9.0).powi(2)).abs() < 1e-3);
/// # Ok::<(), krylith::Error>(())
/// ```
pub struct StokesProblem {
    spec: String,
    butcher: Butcher,
    tau: f64,
    domain: StokesDomain,
    system: KroneckerSum,
    steps: StokesSteps,
}

/// The domain of a [`StokesProblem`], for outputs.
///
/// # Examples
/// ```
/// let flow = krylith_problems::StokesProblem::by_text("stokes:4x3x3")?;
/// assert_eq!((flow.domain().nodes(), flow.domain().grid()), (36, Some([4, 3, 3])));
/// assert_eq!(flow.domain().tetrahedra().len(), 6 * 3 * 2 * 2);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct StokesDomain(Domain);

#[derive(Debug, Clone)]
enum Domain {
    Duct(DuctMesh),
    Body(TetMesh),
}

impl StokesDomain {
    /// Returns the domain of a problem without its matrices.
    pub(crate) fn of(spec: &Spec) -> Result<Self> {
        match spec.label.is_empty() {
            true => {
                let mesh = DuctMesh::new(spec.grid(), [spec.positive("length")?, 1.0, 1.0])?;
                Ok(Self(Domain::Duct(mesh)))
            }
            false => {
                let order = spec.text("numbering").parse().map_err(|e| spec.wrong("numbering", &e))?;
                Ok(Self(Domain::Body(file::read(&spec.label)?.ordered(order)?)))
            }
        }
    }

    /// Returns the number of nodes.
    pub fn nodes(&self) -> usize {
        match &self.0 {
            Domain::Duct(mesh) => mesh.nodes(),
            Domain::Body(mesh) => mesh.points().len(),
        }
    }
    /// Returns the nodes in x, y, z if they form a grid, numbered with x fastest, then y.
    pub fn grid(&self) -> Option<[usize; 3]> {
        match &self.0 {
            Domain::Duct(mesh) => Some(mesh.sizes()),
            Domain::Body(_) => None,
        }
    }
    /// Returns the coordinates of the nodes.
    pub fn coordinates(&self) -> Vec<[f64; 3]> {
        match &self.0 {
            Domain::Duct(mesh) => mesh.coordinates(),
            Domain::Body(mesh) => mesh.points().to_vec(),
        }
    }
    /// Returns the corner nodes of the tetrahedra.
    pub fn tetrahedra(&self) -> Vec<[u32; 4]> {
        match &self.0 {
            Domain::Duct(mesh) => mesh.tetrahedra(),
            Domain::Body(mesh) => mesh.tetrahedra().to_vec(),
        }
    }

    /// Returns a picture of the speed in a section, for the state `u` at time `t`.
    ///
    /// # Errors
    /// Returns an error if `u` does not have four numbers per node.
    pub fn picture(&self, t: f64, u: &[f64]) -> Result<Picture> {
        let rows = 4 * self.nodes();
        if u.len() != rows {
            return Err(Error::invalid(format!("the state has {} numbers; expected {rows}", u.len())));
        }
        let speed = |i: usize| u[4 * i..4 * i + 3].iter().map(|u| u * u).sum::<f64>().sqrt();
        Ok(self.pictured(t, speed))
    }
    /// Returns a picture of the speed at time t, which is `speed` at each node.
    pub(crate) fn pictured(&self, t: f64, speed: impl Fn(usize) -> f64 + Sync) -> Picture {
        match &self.0 {
            Domain::Duct(mesh) => picture::of_duct(mesh, t, speed),
            Domain::Body(mesh) => {
                // The section across the shortest edge of the extent, in its middle.
                let (mut low, mut high) = ([f64::INFINITY; 3], [f64::NEG_INFINITY; 3]);
                for x in mesh.points() {
                    for d in 0..3 {
                        (low[d], high[d]) = (low[d].min(x[d]), high[d].max(x[d]));
                    }
                }
                let size = |d: &usize| high[*d] - low[*d];
                let normal = (0..3).rev().min_by(|a, b| size(a).total_cmp(&size(b))).unwrap_or(2);
                let level = 0.5 * (low[normal] + high[normal]);
                let name = ["x", "y", "z"];
                let title = format!("Speed at t = {t}, section {} = {}", name[normal], picture::short(level));
                let [across, up] = [[1, 2], [0, 2], [0, 1]][normal];
                slice(mesh, (normal, level), (&title, ""), [name[across], name[up]], speed)
            }
        }
    }
}

impl StokesProblem {
    /// Creates the flow that `stokes:NXxNYxNZ[,key=value…]` or `stokes:FILE[,key=value…]` names.
    ///
    /// # Errors
    /// Returns an error for another problem, for an unknown key, for a value or size out of range, for a mesh
    /// file that is malformed or lacks a surface, and if memory is not sufficient.
    pub fn by_text(text: &str) -> Result<Self> {
        let spec = Spec::parse(text)?;
        if spec.problem.name != "stokes" {
            return Err(Error::invalid(format!(
                "problem `{}` has no steps in time; stokes has",
                spec.problem.name
            )));
        }
        Self::of(spec)
    }

    pub(crate) fn of(mut spec: Spec) -> Result<Self> {
        let Step { butcher, tau, ramp } = Step::of(&spec)?;
        let scale = scale(&spec)?;
        let (nu, stab) = (spec.positive("nu")?, spec.positive("stab")?);
        if spec.label.is_empty() {
            spec.omit(&OF_MESH);
            let options =
                StokesOptions { nodes: spec.grid(), length: spec.positive("length")?, nu, stab, scale };
            let duct = StokesDuct::with_data(options, Arc::new(InletRamp { ramp }))?;
            let (sigma, domain) = (duct.options().scale, StokesDomain(Domain::Duct(duct.mesh)));
            return Self::build(spec, sigma, domain, duct, butcher, tau);
        }
        let Domain::Body(mesh) = StokesDomain::of(&spec)?.0 else {
            return Err(spec.bad("numbering", "a mesh"));
        };
        let [inlet, wall, outlet] = ["inlet", "wall", "outlet"].map(|key| spec.text(key).to_string());
        let options = BodyOptions { nu, stab, scale, inlet, wall, outlet };
        let within = |e: Error| match e {
            Error::Invalid(message) => Error::format(&spec.label, message),
            other => other,
        };
        let body = StokesBody::new(mesh, options, ramp).map_err(within)?;
        let (sigma, domain) = (body.options().scale, StokesDomain(Domain::Body(body.mesh.clone())));
        spec.omit(&OF_DUCT);
        Self::build(spec, sigma, domain, body, butcher, tau)
    }

    fn build<M, O>(
        mut spec: Spec,
        sigma: Option<f64>,
        domain: StokesDomain,
        flow: Stokes<M, O>,
        butcher: Butcher,
        tau: f64,
    ) -> Result<Self> {
        if let Some(sigma) = sigma {
            spec.settle("scale", sigma.to_string());
        }
        let steps = flow.steps(&butcher, tau)?;
        let system = flow.into_kronecker(&butcher, tau)?;
        Ok(Self { spec: spec.full(), butcher, tau, domain, system, steps })
    }

    /// Returns I⊗M + τB⊗L, the steps and the domain at once.
    pub fn parts(&mut self) -> (&KroneckerSum, &mut StokesSteps, &StokesDomain) {
        (&self.system, &mut self.steps, &self.domain)
    }

    /// Returns the problem's text with every default filled in; it makes the same problem.
    pub fn spec(&self) -> &str {
        &self.spec
    }
    /// Returns the scheme.
    pub fn butcher(&self) -> &Butcher {
        &self.butcher
    }
    /// Returns the step length τ.
    pub fn tau(&self) -> f64 {
        self.tau
    }
    /// Returns I⊗M + τB⊗L, the operator of each step.
    pub fn system(&self) -> &KroneckerSum {
        &self.system
    }
    /// Returns right-hand sides and updates of steps.
    pub fn steps(&mut self) -> &mut StokesSteps {
        &mut self.steps
    }
    /// Returns the domain.
    pub fn domain(&self) -> &StokesDomain {
        &self.domain
    }

    /// Converts the first step, from rest, to a system.
    pub(crate) fn into_first_step(mut self) -> Result<Generated> {
        let (n, stages) = (self.system.m.rows(), self.butcher.stages());
        let mut rhs = vec![0.0; n * stages];
        self.steps.rhs_into(0.0, &vec![0.0; n], &mut rhs)?;
        check_rhs(&rhs, stages, 0)?;
        Ok(Generated {
            rhs,
            coordinates: Some(self.domain.coordinates()),
            grid: self.domain.grid(),
            tetrahedra: self.domain.tetrahedra(),
            system: SystemKind::Kronecker(self.system),
            fields: Vec::new(),
            matrices: Vec::new(),
            spec: self.spec,
        })
    }

    /// Converts one rank's rows of the first step; every rank makes the whole.
    pub(crate) fn into_rows(self, rank: usize, ranks: usize) -> Result<GeneratedRows> {
        let (butcher, tau) = (self.butcher.clone(), self.tau);
        let made = self.into_first_step()?;
        let SystemKind::Kronecker(k) = &made.system else { return Err(Error::invalid("no Kronecker sum")) };
        let nodes = k.m.block_rows();
        let (own, s) = (contiguous(nodes, rank, ranks), butcher.stages());
        let terms = kronecker_terms(
            Dense::identity(s),
            &butcher.a,
            tau,
            [&k.m, &k.l].map(|matrix| rows_of(matrix, own.clone())),
        )?;
        Ok(GeneratedRows {
            rows: Rows { numbers: own.clone().map(|i| i as u64).collect(), block: 4, terms },
            rhs: made.rhs[4 * s * own.start..4 * s * own.end].to_vec(),
            coordinates: made.coordinates.map(|points| points[own].to_vec()),
            grid: None,
            nodes,
            fields: Vec::new(),
            matrices: Vec::new(),
            spec: made.spec,
        })
    }
}

fn rows_of(a: &Bsr, own: Range<usize>) -> RowBlocks {
    let entries = a.row_ptr()[own.start]..a.row_ptr()[own.end];
    let bb = a.block() * a.block();
    RowBlocks {
        row_ptr: a.row_ptr()[own.start..=own.end].iter().map(|p| p - entries.start).collect(),
        col: a.col()[entries.clone()].iter().map(|&j| u64::from(j)).collect(),
        values: a.values()[entries.start * bb..entries.end * bb].to_vec(),
    }
}

/// The scheme, the step length and the ramp of a problem.
pub(crate) struct Step {
    pub butcher: Butcher,
    pub tau: f64,
    pub ramp: f64,
}

impl Step {
    pub fn of(spec: &Spec) -> Result<Self> {
        let butcher = Butcher::by_name(spec.text("scheme"))?;
        Ok(Self { butcher, tau: spec.positive("tau")?, ramp: spec.positive("ramp")? })
    }
}

/// Returns σ if it is given.
pub(crate) fn scale(spec: &Spec) -> Result<Option<f64>> {
    match spec.text("scale") {
        "auto" => Ok(None),
        _ => spec.positive("scale").map(Some),
    }
}

/// Removes the keys of mesh files from the text of a duct.
pub(crate) fn of_duct(spec: &mut Spec) {
    spec.omit(&OF_MESH);
}

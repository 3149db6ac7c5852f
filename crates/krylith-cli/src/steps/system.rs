//! The system of `krylith steps`: a problem that steps in time, or matrices from files.

use crate::args::StepsArgs;
use crate::failure::{Failure, Result};
use crate::output::Target;
use crate::system::is_problem;
use krylith_core::io::vtu::{self, Values};
use krylith_core::io::{self, Matrix};
use krylith_core::matrix::{Butcher, Dense, KroneckerSum};
use krylith_core::text::name;
use krylith_core::{Problem, io::parts::suited_block};
use krylith_problems::{LinearSteps, StokesDomain, StokesProblem};
use std::path::Path;

/// A system M u′ + L u = f with its scheme and step length.
pub enum System {
    /// A flow.
    Flow(Box<StokesProblem>),
    /// Matrices, f, scheme and step length.
    Files(Box<Files>),
}

/// A system from files.
pub struct Files {
    label: String,
    system: KroneckerSum,
    f: Vec<f64>,
    butcher: Butcher,
    tau: f64,
}

impl System {
    /// Generates or reads the system.
    ///
    /// # Errors
    /// The problem has no steps, a file cannot be read, or the parts do not fit.
    pub fn load(args: &StepsArgs) -> Result<Self> {
        let text = args.system.to_string_lossy();
        if is_problem(&args.system) {
            let given = [
                ("L", args.stiffness.is_some()),
                ("--tau", args.tau.is_some()),
                ("--scheme", args.scheme.is_some()),
                ("--rhs", args.rhs.is_some()),
                ("--block", args.block.is_some()),
            ];
            if let Some((what, _)) = given.iter().find(|(_, given)| *given) {
                let message = "is for files; a problem has keys, as in stokes:8x8x8,scheme=gauss-2,tau=0.1";
                return Err(Failure::usage(format!("{what} {message}")));
            }
            return Ok(Self::Flow(Box::new(StokesProblem::by_text(&text)?)));
        }
        let Some(stiffness) = &args.stiffness else {
            let message = format!("{text}: a file holds only M; give the file of L after it");
            return Err(Failure::usage(message));
        };
        let Some(tau) = args.tau.filter(|tau| tau.is_finite() && *tau > 0.0) else {
            let given = args.tau.map_or("is missing".into(), |tau| format!("{tau}"));
            return Err(Failure::usage(format!("--tau {given}: files need a positive step length")));
        };
        let butcher = Butcher::by_name(args.scheme.as_deref().unwrap_or("radau-iia-2"))
            .map_err(|e| Failure::from(e).within("--scheme"))?;
        let read = |path: &Path| -> Result<Matrix> {
            Ok(io::read_matrix(path).map_err(|e| crate::system::missing(path, e))?.matrix)
        };
        let (m, l) = (read(&args.system)?, read(stiffness)?);
        let shape = |a: &Matrix| (a.rows(), a.columns());
        if shape(&m) != shape(&l) || m.rows() != m.columns() || m.rows() == 0 {
            let ((a, b), (c, d)) = (shape(&m), shape(&l));
            let message = format!("{text} is {a}×{b} and {} is {c}×{d}", name(stiffness));
            return Err(Failure::usage(message + "; M and L must be square and of the same size"));
        }
        let l = l.into_csr();
        let block = args.block.unwrap_or_else(|| suited_block(&l).block);
        let blocks = |a: Matrix| a.into_bsr(block).map_err(|e| Failure::from(e).within("--block"));
        let (m, l) = (blocks(m)?, blocks(Matrix::Csr(l))?);
        let identity = Dense::identity(butcher.stages());
        let system = KroneckerSum::new(identity, butcher.a.clone(), tau, m, l)?;
        let f = match &args.rhs {
            None => vec![0.0; system.m.rows()],
            Some(path) => vector("f", path, system.m.rows())?,
        };
        LinearSteps::new(&system.l, f.clone(), &butcher, tau)?;
        let label = format!("{text} {}", name(stiffness));
        Ok(Self::Files(Box::new(Files { label, system, f, butcher, tau })))
    }

    /// Returns the text of the system, with scheme and step length.
    pub fn label(&self) -> String {
        match self {
            Self::Flow(flow) => flow.spec().into(),
            Self::Files(files) => files.label.clone(),
        }
    }
    /// Returns what a checkpoint must agree with: the system without scheme and step length. Names of files
    /// may change.
    pub fn kept(&self) -> String {
        match self {
            Self::Flow(flow) => {
                let keys = flow.spec().split(',');
                let kept = keys.filter(|key| !key.starts_with("scheme=") && !key.starts_with("tau="));
                kept.collect::<Vec<_>>().join(",")
            }
            Self::Files(_) => "files".into(),
        }
    }
    /// Returns the operator of each step.
    pub fn operator(&self) -> &KroneckerSum {
        match self {
            Self::Flow(flow) => flow.system(),
            Self::Files(files) => &files.system,
        }
    }
    /// Returns the scheme and the step length.
    pub fn scheme(&self) -> (&Butcher, f64) {
        match self {
            Self::Flow(flow) => (flow.butcher(), flow.tau()),
            Self::Files(files) => (&files.butcher, files.tau),
        }
    }

    /// Returns the problem that each step solves, right-hand sides and updates, and the domain if it is
    /// known.
    ///
    /// # Errors
    /// Never for a system that was loaded.
    pub fn parts(&mut self) -> Result<(Problem<'_>, Box<dyn Stepping + '_>, Option<&StokesDomain>)> {
        Ok(match self {
            Self::Flow(flow) => {
                let (system, steps, domain) = flow.parts();
                let problem = Problem::kronecker(system)?.with_coordinates(domain.coordinates())?;
                let problem = match domain.grid() {
                    Some(grid) => problem.with_grid(grid)?,
                    None => problem,
                };
                (problem, Box::new(steps), Some(domain))
            }
            Self::Files(files) => {
                let steps = LinearSteps::new(&files.system.l, files.f.clone(), &files.butcher, files.tau)?;
                (Problem::kronecker(&files.system)?, Box::new(steps), None)
            }
        })
    }

    /// Returns the domain, if it is known.
    pub fn domain(&self) -> Option<&StokesDomain> {
        match self {
            Self::Flow(flow) => Some(flow.domain()),
            Self::Files(_) => None,
        }
    }

    /// Rejects an output that only a problem has.
    ///
    /// # Errors
    /// The system is of files.
    pub fn check_drawn(&self, option: &str, path: &Path) -> Result<()> {
        match self {
            Self::Flow(_) => Ok(()),
            Self::Files(_) => {
                let message = "files have no mesh; this output works only for problems, such as stokes";
                Err(Failure::usage(format!("{option} {}: {message}", name(path))))
            }
        }
    }
}

/// Writes the state for ParaView.
///
/// # Errors
/// The file system reports an error.
pub fn write_vtu(domain: &StokesDomain, u: &[f64], target: Target) -> krylith_core::Result<()> {
    let nodes = u.as_chunks::<4>().0;
    let velocity: Vec<[f64; 3]> = nodes.iter().map(|u| [u[0], u[1], u[2]]).collect();
    let pressure: Vec<f64> = nodes.iter().map(|u| u[3]).collect();
    let fields = [("velocity", Values::Vector(&velocity)), ("pressure", Values::Scalar(&pressure))];
    let (points, cells) = (domain.coordinates(), domain.tetrahedra());
    target.write(|out| vtu::write_to(out, &points, &cells, &fields))
}

/// Right-hand sides and updates of steps.
pub trait Stepping {
    /// Writes the right-hand side of the step from time `t` and state `u`.
    fn rhs(&mut self, t: f64, u: &[f64], rhs: &mut [f64]) -> krylith_core::Result<()>;
    /// Advances the state by the stage derivatives.
    fn advance(&self, k: &[f64], u: &mut [f64]) -> krylith_core::Result<()>;
}

impl Stepping for &mut krylith_problems::StokesSteps {
    fn rhs(&mut self, t: f64, u: &[f64], rhs: &mut [f64]) -> krylith_core::Result<()> {
        self.rhs_into(t, u, rhs)
    }
    fn advance(&self, k: &[f64], u: &mut [f64]) -> krylith_core::Result<()> {
        krylith_problems::StokesSteps::advance(self, k, u)
    }
}

impl Stepping for LinearSteps<'_> {
    fn rhs(&mut self, _: f64, u: &[f64], rhs: &mut [f64]) -> krylith_core::Result<()> {
        self.rhs_into(u, rhs)
    }
    fn advance(&self, k: &[f64], u: &mut [f64]) -> krylith_core::Result<()> {
        LinearSteps::advance(self, k, u)
    }
}

/// Reads a vector of finite numbers with one per row of M.
///
/// # Errors
/// The file cannot be read, or has another length.
pub fn vector(what: &str, path: &Path, rows: usize) -> Result<Vec<f64>> {
    let within = |e| Failure::from(e).within(&name(path));
    let values = io::read_vector_of(path, rows)?.into_unknowns(what, rows, 1).map_err(within)?;
    match values.iter().position(|v| !v.is_finite()) {
        None => Ok(values),
        Some(row) => {
            let message = format!("{}: number {row} of {what} is {}", name(path), values[row]);
            Err(Failure::usage(message + "; it must be finite"))
        }
    }
}

//! Nonlinear problems: what `krylith newton cavity:64x64` solves.
//!
//! ```
//! let mut cavity = krylith_problems::nonlinear::by_text("cavity:9x9,re=10")?;
//! let x = cavity.initial();
//! let mut f = vec![0.0; x.len()];
//! cavity.residual(&x, &mut f)?;
//! assert_eq!(cavity.components(), ["u", "v", "omega"]);
//! # Ok::<(), krylith::Error>(())
//! ```

use krylith_core::newton::NonlinearSystem;
use krylith_core::{Error, Result};

use crate::artery::Artery;
use crate::catalogue::{Problem, find_in, key};
use crate::cavity::Cavity;
use crate::spec::Spec;
use crate::ventricle::Ventricle;

/// A nonlinear system with what a command needs beside it: a first guess, time steps, names and a mesh.
///
/// # Examples
/// ```
/// use krylith::newton::{Newton, NewtonOptions};
/// let mut problem = krylith_problems::nonlinear::by_text("cavity:9x9,re=10")?;
/// let mut x = problem.initial();
/// let report = Newton::new(NewtonOptions::default(), &"device=cpu".parse()?)?.solve(&mut *problem, &mut x)?.clone();
/// assert!(report.converged());
/// assert_eq!(x.len(), problem.points().len() * problem.components().len());
/// # Ok::<(), krylith::Error>(())
/// ```
pub trait NonlinearProblem: NonlinearSystem {
    /// The problem's text with every default filled in; it makes the same problem again.
    fn spec(&self) -> &str;
    /// Where Newton's method begins: for the first time step, if there are several.
    fn initial(&self) -> Vec<f64>;
    /// The names of the components of a node, b of them.
    fn components(&self) -> &'static [&'static str];

    /// Accepts x as the solution of this time step and makes the system that of the next one, whose first guess it leaves in x. False,
    /// with nothing done, where this step was the last, as it is in a steady problem.
    ///
    /// # Errors
    /// What the problem cannot evaluate.
    fn next_step(&mut self, _x: &mut [f64]) -> Result<bool> {
        Ok(false)
    }
    /// The time at the end of this step, where the problem has a time.
    fn time(&self) -> Option<f64> {
        None
    }

    /// The key of the parameter that continuation may change.
    fn parameter(&self) -> Option<(&'static str, f64)> {
        None
    }
    /// Gives that parameter another value.
    ///
    /// # Errors
    /// A problem without such a parameter; a value that does not do.
    fn set_parameter(&mut self, _value: f64) -> Result<()> {
        Err(Error::invalid(format!("`{}` has no parameter for continuation", self.spec())))
    }

    /// Where the nodes lie, in the order of the unknowns.
    fn points(&self) -> Vec<[f64; 3]>;
    /// What joins the nodes.
    fn cells(&self) -> Cells;
    /// What a `.vtu` file shows of x: by default each component on its own.
    fn fields(&self, x: &[f64]) -> Vec<(&'static str, Field)> {
        let names = self.components();
        let of = |c: usize| x.iter().skip(c).step_by(names.len()).copied().collect();
        names.iter().enumerate().map(|(c, name)| (*name, Field::Scalar(of(c)))).collect()
    }
    /// Numbers of x by which it is compared with published solutions, with their names; none by default.
    fn figures(&self, _x: &[f64]) -> Vec<(&'static str, f64)> {
        Vec::new()
    }
    /// A picture of x, where the problem has one.
    fn picture(&self, _x: &[f64]) -> Option<Picture> {
        None
    }
}

/// Cells of a mesh, by their nodes.
///
/// # Examples
/// ```
/// use krylith_problems::{cavity::Cavity, nonlinear::{Cells, NonlinearProblem}};
/// let Cells::Triangles(triangles) = Cavity::new([5, 5], 10.0)?.cells() else { unreachable!("it is plane") };
/// assert_eq!(triangles.len(), 2 * 4 * 4);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum Cells {
    /// Of a plane.
    Triangles(Vec<[u32; 3]>),
    /// Of a body.
    Tetrahedra(Vec<[u32; 4]>),
}

/// Values at the nodes.
///
/// # Examples
/// ```
/// use krylith_problems::{nonlinear::{Field, NonlinearProblem}, ventricle::{Ventricle, VentricleOptions}};
/// let body = Ventricle::new(VentricleOptions { cells: 500, ..VentricleOptions::default() })?;
/// for (name, field) in body.fields(&body.initial()) {
///     match field {
///         Field::Scalar(values) => assert_eq!(values.len(), body.points().len(), "{name}"),
///         Field::Vector(values) => assert_eq!(values.len(), body.points().len(), "{name}"),
///     }
/// }
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum Field {
    /// One number a node.
    Scalar(Vec<f64>),
    /// Three numbers a node.
    Vector(Vec<[f64; 3]>),
}

/// Values on a raster of equal cells, to be drawn in colours.
///
/// # Examples
/// ```
/// use krylith_problems::{cavity::Cavity, nonlinear::NonlinearProblem};
/// let cavity = Cavity::new([9, 9], 10.0)?;
/// if let Some(picture) = cavity.picture(&cavity.initial()) {
///     assert_eq!(picture.values.len(), picture.columns * picture.rows);
/// }
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Picture {
    /// What is shown.
    pub title: String,
    /// Unit of the values; empty where they have none.
    pub unit: &'static str,
    /// Names and ends of the axes, across and up.
    pub axes: Option<[(&'static str, [f64; 2]); 2]>,
    /// Cells from left to right.
    pub columns: usize,
    /// Cells from bottom to top.
    pub rows: usize,
    /// Row by row from the bottom, each from left to right; NaN where there is nothing.
    pub values: Vec<f64>,
}

static CATALOGUE: [Problem; 3] = [
    Problem {
        name: "cavity",
        size: "NXxNY",
        help: "flow in a unit square whose lid moves, velocity and vorticity, 5-point differences: 3 unknowns a node",
        example: "cavity:64x64,re=100",
        keys: &[key("re", "1", "", "Reynolds number: the parameter of continuation")],
    },
    Problem {
        name: "ventricle",
        size: "N",
        help: "elastodynamics of a left ventricle under pressure, fibre-reinforced, P1 tetrahedra, Newmark steps: 3 \
               unknowns a node; about N tetrahedra",
        example: "ventricle:6000,dt=0.001,steps=3",
        keys: &[
            key("dt", "0.001", "s", "step length"),
            key("steps", "3", "", "time steps"),
            key("pressure", "1000", "Pa", "pressure on the inner surface once it is reached"),
            key("ramp", "0.02", "s", "when it is reached"),
            key("a", "59", "Pa", "stiffness between the fibres"),
            key("b", "8.023", "", "how fast that stiffens"),
            key("af", "18472", "Pa", "stiffness of the fibres"),
            key("bf", "16.026", "", "how fast they stiffen"),
            key("kappa", "2e4", "Pa", "penalty of a change of volume"),
        ],
    },
    Problem {
        name: "artery",
        size: "NAME",
        help: "blood in a bent artery with a stenosis, stabilised P1-P1 tetrahedra, BDF2 steps, pulsatile inflow: 4 unknowns a \
               node; NAME is a number of nodes, met to within a few per cent, or a Gmsh file (.msh as text, in cm, with the physical \
               surfaces inlet, wall and outlet)",
        example: "artery:5000,re=300,steps=3",
        keys: &[
            key("re", "300", "", "Reynolds number of the mean flow, by the diameter"),
            key("dt", "0.005", "s", "step length"),
            key("steps", "3", "", "time steps"),
        ],
    },
];

/// Every problem that [`by_text`] knows.
pub fn catalogue() -> &'static [Problem] {
    &CATALOGUE
}

/// The nonlinear problem that `NAME:SIZE[,key=value…]` names.
///
/// # Errors
/// An unknown name or key (the known ones are listed), a value or size that does not fit.
pub fn by_text(text: &str) -> Result<Box<dyn NonlinearProblem>> {
    let spec = Spec::parse_in(text, |name| find_in(&CATALOGUE, name))?;
    Ok(match spec.problem.name {
        "ventricle" => Box::new(Ventricle::from_spec(&spec)?),
        "artery" => Box::new(Artery::from_spec(&spec)?),
        _ => Box::new(Cavity::from_spec(&spec)?),
    })
}

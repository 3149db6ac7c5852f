//! Nonlinear problems, as in `krylith newton cavity:64x64`.
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
use crate::catalogue::{NUMBERING, Problem, find_in, key};
use crate::cavity::Cavity;
use crate::share::{Ranks, Share};
use crate::spec::Spec;
use crate::ventricle::Ventricle;

/// A nonlinear system with the data that a command needs: an initial guess, time steps, names and a mesh.
///
/// # Examples
/// ```
/// use krylith::newton::{Newton, NewtonOptions};
/// let mut problem = krylith_problems::nonlinear::by_text("cavity:9x9,re=10")?;
/// let mut x = problem.initial();
/// let mut newton = Newton::new(NewtonOptions::default(), &"device=cpu".parse()?)?;
/// let report = newton.solve(&mut *problem, &mut x)?.clone();
/// assert!(report.converged());
/// assert_eq!(x.len(), problem.points().len() * problem.components().len());
/// # Ok::<(), krylith::Error>(())
/// ```
pub trait NonlinearProblem: NonlinearSystem {
    /// Returns the problem's text with every default filled in; it makes the same problem.
    fn spec(&self) -> &str;
    /// Returns the share of this rank, if several ranks solve the problem together. Points, cells, fields,
    /// figures and pictures are then those of the whole problem on rank 0 only.
    fn share(&self) -> Option<&Share> {
        None
    }
    /// Returns the initial guess of Newton's method on own nodes, for the first time step if there are
    /// several.
    fn initial(&self) -> Vec<f64>;
    /// Returns the names of the b components of a node.
    fn components(&self) -> &'static [&'static str];

    /// Accepts x as the solution of this time step, advances the system to the next step and writes its
    /// initial guess to x. Returns false, and does nothing, if this step was the last; a steady problem has
    /// one step.
    ///
    /// # Errors
    /// Returns an error if the problem cannot evaluate the next step.
    fn next_step(&mut self, _x: &mut [f64]) -> Result<bool> {
        Ok(false)
    }
    /// Returns the time at the end of this step, if the problem depends on time.
    fn time(&self) -> Option<f64> {
        None
    }

    /// Returns the key and value of the parameter that continuation may change.
    fn parameter(&self) -> Option<(&'static str, f64)> {
        None
    }
    /// Sets that parameter.
    ///
    /// # Errors
    /// Returns an error if the problem has no such parameter, or if the value is out of range.
    fn set_parameter(&mut self, _value: f64) -> Result<()> {
        Err(Error::invalid(format!("`{}` has no parameter for continuation", self.spec())))
    }

    /// Returns the coordinates of the nodes, in the order of the unknowns.
    fn points(&self) -> Vec<[f64; 3]>;
    /// Returns the cells that connect the nodes.
    fn cells(&self) -> Cells;
    /// Returns the fields of x for a `.vtu` file: by default each component on its own.
    fn fields(&self, x: &[f64]) -> Vec<(&'static str, Field)> {
        let names = self.components();
        let of = |c: usize| x.iter().skip(c).step_by(names.len()).copied().collect();
        names.iter().enumerate().map(|(c, name)| (*name, Field::Scalar(of(c)))).collect()
    }
    /// Returns named scalars computed from x, for comparison with published solutions; none by default.
    fn figures(&self, _x: &[f64]) -> Vec<(String, f64)> {
        Vec::new()
    }
    /// Returns a picture of x, if the problem has one.
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
    /// Triangles of a plane problem.
    Triangles(Vec<[u32; 3]>),
    /// Tetrahedra of a body.
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
    /// One number per node.
    Scalar(Vec<f64>),
    /// Three numbers per node.
    Vector(Vec<[f64; 3]>),
}

/// Values on a raster of equal cells, to be drawn as a colour map.
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
    /// Title of the picture.
    pub title: String,
    /// Unit of the values; empty if they have none.
    pub unit: &'static str,
    /// Names and ranges of the horizontal and the vertical axis.
    pub axes: Option<[(&'static str, [f64; 2]); 2]>,
    /// Number of cells from left to right.
    pub columns: usize,
    /// Number of cells from bottom to top.
    pub rows: usize,
    /// Values row by row from the bottom, each from left to right; NaN outside the domain.
    pub values: Vec<f64>,
}

static CATALOGUE: [Problem; 3] = [
    Problem {
        name: "cavity",
        size: "NXxNY",
        help: "flow in a unit square whose lid moves, velocity and vorticity, 5-point differences: 3 unknowns a node",
        example: "cavity:64x64,re=100",
        keys: &[key("re", "1", "", "Reynolds number, which continuation can change")],
    },
    Problem {
        name: "ventricle",
        size: "N|FILE",
        help: "elastodynamics of a left ventricle under pressure, with fibres, sheets and active tension, P1 \
               tetrahedra, Newmark steps: 3 unknowns a node; the mesh has about N tetrahedra, or is a FILE of Gmsh \
               (.msh, 2.x or 4.1) or VTK (.vtu), in mm, with named surfaces, and fibre and sheet if it has them",
        example: "ventricle:6000,dt=0.001,steps=3",
        keys: &[
            key("dt", "0.001", "s", "step length"),
            key("steps", "3", "", "time steps"),
            key("pressure", "1000", "Pa", "final pressure on the inner surface"),
            key("ramp", "0.02", "s", "time at which pressure and tension reach their final values"),
            key("tension", "0", "kPa", "final active tension along the fibres"),
            key("cross", "0", "", "share of the tension that acts in all directions, 0 to 1"),
            key("a", "59", "Pa", "stiffness of the material between the fibres"),
            key("b", "8.023", "", "exponent of stiffness a"),
            key("af", "18472", "Pa", "stiffness of the fibres"),
            key("bf", "16.026", "", "exponent of stiffness af"),
            key("as", "2481", "Pa", "stiffness of the sheets, 0 for none"),
            key("bs", "11.12", "", "exponent of stiffness as"),
            key("afs", "216", "Pa", "stiffness against shear between fibres and sheets, 0 for none"),
            key("bfs", "11.436", "", "exponent of stiffness afs"),
            key("kappa", "2e4", "Pa", "penalty on changes of volume"),
            key("base", "base*", "names", "surfaces that are held; names joined by +, which may end in *"),
            key("endocardium", "endo*", "names", "surfaces inside, under pressure"),
            key("epicardium", "epi*", "names", "surfaces outside, for fibres that the file does not have"),
            key("numbering", "file", "name", NUMBERING),
        ],
    },
    Problem {
        name: "artery",
        size: "N|FILE",
        help: "blood in a bent artery with a stenosis, stabilised P1-P1 tetrahedra, BDF2 steps, pulsatile \
               inflow: 4 unknowns a node; the mesh has N nodes within a few per cent, or is a FILE of Gmsh (.msh, \
               2.x or 4.1) or VTK (.vtu), in cm, with named surfaces",
        example: "artery:5000,re=300,steps=3",
        keys: &[
            key("re", "300", "", "Reynolds number based on mean velocity and diameter"),
            key("dt", "0.005", "s", "step length"),
            key("steps", "3", "", "time steps"),
            key(
                "inflow",
                "pulse",
                "file",
                "lines of a time in s and a flow in cm^3/s, which repeat, instead of a pulse of Reynolds number re",
            ),
            key("inlet", "inlet*", "names", "surfaces of the inflow; names joined by +, which may end in *"),
            key("wall", "wall*", "names", "surfaces where the fluid is at rest"),
            key("outlet", "outlet*", "names", "surfaces of the outflow, each an outlet of its own"),
            key(
                "resistance",
                "0",
                "dyn s/cm^5",
                "R of each outlet, joined by +, or one for all: pressure p = R Q, with the flow Q",
            ),
            key("compliance", "0", "cm^5/dyn", "C of each outlet, of a Windkessel model with distal"),
            key("distal", "0", "dyn s/cm^5", "D of each outlet: p = R Q + w and C dw/dt = Q - w/D"),
            key("numbering", "file", "name", NUMBERING),
        ],
    },
];

/// Returns every problem that [`by_text`] knows.
pub fn catalogue() -> &'static [Problem] {
    &CATALOGUE
}

/// Creates the nonlinear problem that `NAME:SIZE[,key=value…]` names.
///
/// # Errors
/// Returns an error for an unknown name or key (the text lists the known ones), or for a value or size out of
/// range.
pub fn by_text(text: &str) -> Result<Box<dyn NonlinearProblem>> {
    build(text, None)
}

/// Creates this rank's share of the problem that [`by_text`] creates. Every rank makes the whole mesh and
/// keeps its part of it. Collective.
///
/// # Errors
/// Returns the errors of [`by_text`], and an error for more ranks than nodes.
pub fn by_text_on(text: &str, ranks: &Ranks) -> Result<Box<dyn NonlinearProblem>> {
    build(text, Some(ranks))
}

fn build(text: &str, ranks: Option<&Ranks>) -> Result<Box<dyn NonlinearProblem>> {
    let spec = Spec::parse_in(text, |name| find_in(&CATALOGUE, name))?;
    Ok(match spec.problem.name {
        "ventricle" => Box::new(Ventricle::from_spec(&spec, ranks)?),
        "artery" => Box::new(Artery::from_spec(&spec, ranks)?),
        _ => Box::new(Cavity::from_spec(&spec, ranks)?),
    })
}

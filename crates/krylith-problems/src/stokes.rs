//! Unsteady Stokes flow in a duct, or in a body given by a mesh: the system of the OKP paper (Eqs. 2 and 5–7,
//! Table 1).
//!
//! # Equations and weak form
//! u_t − νΔu + ∇p = f, ∇·u = 0; u = g at the inlet and on the walls (where g = 0 by default). (ν∇u − pI)n = h
//! at the outlet (h = 0, stress-free, by default), which fixes the pressure's level. The duct is
//! [0, Lx]×[0, 1]×[0, 1], with the inlet at x = 0 and the outlet at x = Lx. With linear tetrahedra for both
//! velocity and pressure, for all test functions v (0 on inlet and walls) and q:
//!
//! ```text
//! (u_t, v) + ν(∇u, ∇v) − (p, ∇·v) = (f, v) + ⟨h, v⟩_outlet
//! (∇·u, q) + γ Σ_T (p − Πp, q − Πq)_T = 0,      Π: the mean over the tetrahedron T;  γ = stab/ν
//! ```
//!
//! Equal orders need the second term, the polynomial pressure projection of Dohrmann & Bochev (2004). It is
//! local to a tetrahedron and acts on the pressure as a Laplacian with coefficient about 0.04·γ·h². The
//! velocity stays of second order and the pressure of first order at least (2 and 1.8 are measured).
//! `stab` = 1 is the authors' choice and the easiest to solve; the error it adds to the divergence grows like
//! h²/ν. At ν = 0.01 it is most of the error: `stab` = 0.1 makes velocities 6 times more accurate there, for
//! up to twice the iterations. Below ν = 0.001 choose a fine mesh or a small `stab`.
//!
//! # Matrices
//! M U' + L U = F(t), four unknowns (u, v, w, p) a node, U node by node. With m, k, s the P1 mass, stiffness
//! and stabilisation matrices, d^c_ij = σ ∫ φ_i ∂_c φ_j and g^c_ij = −∫ ∂_c φ_i φ_j, block (i, j) is
//!
//! ```text
//! M: m_ij · diag(1, 1, 1, 0)        L: | νk_ij               g^x_ij |
//!    1 distinct number of 16           |        νk_ij        g^y_ij |
//!                                      |               νk_ij g^z_ij |
//!                                      | d^x_ij d^y_ij d^z_ij  s_ij |     8 distinct of 16
//! ```
//!
//! The equal numbers are bitwise equal in every block, so kernels may rely on it. M and L share one pattern
//! (15 blocks per interior row of a duct).
//!
//! The continuity rows (d and s, on the left and the right) are multiplied by `scale`, σ. This changes only
//! the weight of their residual, not the solution. Point-block Jacobi scales the columns; gradient entries
//! then have size 50ν/(σh) and divergence entries σh/ν, or στ/h if ντ < h². With σ = 1, restarted GMRES
//! stalls at ν = 1 on 16³ nodes. The default, 1 + 10ν/h with h³ the volume of a cell (six mean tetrahedra),
//! balances both.
//!
//! # Dirichlet nodes
//! Rows and columns of prescribed velocities are eliminated: off the diagonal they hold stored zeros, and the
//! columns' contributions move to the right-hand side. On the diagonal they keep m_ii in M and νk_ii in L, so
//! such a row of A⊗M + τB⊗L is scaled like its neighbours for any ν and τ. The right-hand side is that same
//! row applied to g'(t_n + c_k τ), so the stage derivative *is* g' there. The state then carries g as the
//! quadrature Σ b_k g', with the scheme's full order and no order reduction from the boundary. The continuity
//! rows of such nodes stay. Because boundary velocities enter the constraint through the same stage
//! derivatives, the hidden constraint B u' + S p' = 0 holds exactly at every stage.

use std::sync::Arc;

use krylith_base::threads::each_task;
use krylith_core::matrix::{Bsr, Butcher, Dense, KroneckerSum};
use krylith_core::{Error, Result};
use rayon::prelude::*;
use std::ops::Range;

use crate::couplings::{Body, Couplings};
use crate::stencil::{Coupling, POINTS, Stencils};
use crate::tets::{Boundary, TetMesh, profile};
use crate::{DuctData, DuctMesh, InletProfile, InletRamp, StokesSteps, memory};

/// Options of a [`StokesDuct`]; [`Default`] gives the catalogue's defaults.
///
/// # Examples
/// ```
/// use krylith_problems::StokesOptions;
/// let long = StokesOptions { nodes: [32, 9, 9], length: 4.0, nu: 1e-3, ..StokesOptions::default() };
/// assert_eq!((long.stab, long.scale), (1.0, None));
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct StokesOptions {
    /// Nodes in x, y, z: at least 2 along the duct and 3 across.
    pub nodes: [usize; 3],
    /// Length Lx of the duct; its cross-section is the unit square.
    pub length: f64,
    /// Kinematic viscosity ν > 0.
    pub nu: f64,
    /// Stabilisation: γ = `stab`/ν, > 0.
    pub stab: f64,
    /// Factor σ > 0 of the continuity rows; `None` is 1 + 10ν/h.
    pub scale: Option<f64>,
}

impl Default for StokesOptions {
    fn default() -> Self {
        Self { nodes: [16; 3], length: 1.0, nu: 0.01, stab: 1.0, scale: None }
    }
}

/// Options of a [`StokesBody`]; [`Default`] gives the catalogue's defaults.
///
/// # Examples
/// ```
/// use krylith_problems::BodyOptions;
/// let forked = BodyOptions { outlet: "left+right".into(), ..BodyOptions::default() };
/// assert_eq!((&*forked.inlet, forked.nu), ("inlet*", 0.01));
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct BodyOptions {
    /// Kinematic viscosity ν > 0.
    pub nu: f64,
    /// Stabilisation: γ = `stab`/ν, > 0.
    pub stab: f64,
    /// Factor σ > 0 of the continuity rows; `None` is 1 + 10ν/h.
    pub scale: Option<f64>,
    /// Surfaces of the inlet: names joined by `+`, each of which may end in `*`. A number N is `surface N`.
    pub inlet: String,
    /// Surfaces of the wall.
    pub wall: String,
    /// Surfaces of the outlet.
    pub outlet: String,
}

impl Default for BodyOptions {
    fn default() -> Self {
        let (inlet, wall, outlet) = ("inlet*".into(), "wall*".into(), "outlet*".into());
        Self { nu: 0.01, stab: 1.0, scale: None, inlet, wall, outlet }
    }
}

/// The semi-discrete problem M U' + L U = F(t) on a mesh M, with options O: a [`StokesDuct`] or a
/// [`StokesBody`].
///
/// # Examples
/// ```
/// use krylith::{Solver, matrix::Butcher};
/// use krylith_problems::{StokesDuct, StokesOptions};
/// let duct = StokesDuct::new(StokesOptions { nodes: [4; 3], ..StokesOptions::default() })?;
/// let radau = Butcher::by_name("radau-iia-2")?;
/// let u = vec![0.0; duct.mass.rows()]; // at rest
/// let (system, rhs) = duct.system(0.0, &u, &radau, 0.125)?; // of the first step
/// let mut k = vec![0.0; rhs.len()];
/// assert!(Solver::new(&system, &"device=cpu".parse()?)?.solve(&rhs, &mut k)?.converged());
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Clone)]
pub struct Stokes<M, O> {
    /// The mesh: nodes, tetrahedra, node sets or surfaces.
    pub mesh: M,
    /// The mass matrix M, in 4×4 blocks.
    pub mass: Bsr,
    /// The matrix L, in 4×4 blocks, with the pattern of M.
    pub stiffness: Bsr,
    options: O,
    couplings: Couplings,
    data: Arc<dyn DuctData>,
}

/// A Stokes flow in a duct.
pub type StokesDuct = Stokes<DuctMesh, StokesOptions>;

/// A Stokes flow in a body given by a mesh of tetrahedra.
pub type StokesBody = Stokes<TetMesh, BodyOptions>;

impl<M, O: std::fmt::Debug> std::fmt::Debug for Stokes<M, O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stokes").field("options", &self.options).finish_non_exhaustive()
    }
}

impl StokesDuct {
    /// Creates the duct with the default inlet, [`InletRamp`], and no force.
    ///
    /// # Errors
    /// Returns the errors of [`with_data`](Self::with_data).
    pub fn new(options: StokesOptions) -> Result<Self> {
        Self::with_data(options, Arc::new(InletRamp::default()))
    }

    /// Creates the duct with the caller's boundary velocities, force and outlet traction.
    ///
    /// Assembly runs on rayon's threads; the result does not depend on their number.
    ///
    /// # Errors
    /// Returns an error for fewer than 2×3×3 nodes (without a free node on the outlet nothing fixes the
    /// pressure), for too many nodes for 32-bit columns, for a parameter that is not positive and finite, and
    /// if memory is not sufficient.
    pub fn with_data(options: StokesOptions, data: Arc<dyn DuctData>) -> Result<Self> {
        let Discretisation { mesh, options, stencils } = Discretisation::new(options)?;
        let n = mesh.nodes();
        check_nodes(n)?;
        // Two matrices with 16 values and a column index per block.
        memory::check("the Stokes duct", (n * POINTS) as u64 * 2 * (16 * 8 + 4))?;
        Self::assemble(mesh, options, Couplings::Duct(mesh, Arc::new(stencils)), data)
    }
}

impl StokesBody {
    /// Creates the flow with the default inflow, [`InletProfile`], which peaks at time `ramp`, and no force.
    ///
    /// # Errors
    /// Returns the errors of [`with_data`](Self::with_data).
    pub fn new(mesh: TetMesh, options: BodyOptions, ramp: f64) -> Result<Self> {
        let boundary = Self::boundary(&mesh, &options)?;
        let walls = TetMesh::nodes_of(&boundary.wall);
        let nodes = profile(&mesh, &boundary.inlet)?.0.into_iter();
        let nodes = nodes.filter(|(p, _)| walls.binary_search(p).is_err());
        // The profile's mean is 1 and its peak 2.
        let nodes = nodes.map(|(p, u)| (mesh.points()[p as usize], u.map(|u| 0.5 * u)));
        let data = InletProfile::new(ramp, nodes.collect())?;
        Self::build(mesh, options, &boundary, Arc::new(data))
    }

    /// Creates the flow with the caller's boundary velocities, force and outlet traction.
    ///
    /// # Errors
    /// Returns an error if the mesh lacks a surface or has boundary faces in none of them, if a parameter is
    /// not positive and finite, if no node of the outlet is free, and if memory is not sufficient.
    pub fn with_data(mesh: TetMesh, options: BodyOptions, data: Arc<dyn DuctData>) -> Result<Self> {
        let boundary = Self::boundary(&mesh, &options)?;
        Self::build(mesh, options, &boundary, data)
    }

    fn boundary(mesh: &TetMesh, BodyOptions { inlet, wall, outlet, .. }: &BodyOptions) -> Result<Boundary> {
        Boundary::of(mesh, [inlet, wall, outlet])
    }

    fn build(
        mesh: TetMesh,
        options: BodyOptions,
        boundary: &Boundary,
        data: Arc<dyn DuctData>,
    ) -> Result<Self> {
        let BodyOptions { nu, stab, scale, .. } = options;
        check_parameters("Stokes flow", &[("nu", nu), ("stab", stab), ("scale", scale.unwrap_or(1.0))])?;
        let cell = 6.0 * mesh.volume() / mesh.tetrahedra().len() as f64;
        let sigma = scale.unwrap_or_else(|| usual_scale(nu, cell));
        let options = BodyOptions { scale: Some(sigma), ..options };
        let body = Body::new(&mesh, boundary, [nu, stab / nu, sigma])?;
        Self::assemble(mesh, options, Couplings::Body(Arc::new(body)), data)
    }
}

impl<M, O> Stokes<M, O> {
    fn assemble(mesh: M, options: O, couplings: Couplings, data: Arc<dyn DuctData>) -> Result<Self> {
        let n = couplings.nodes();
        check_nodes(n)?;
        let (row_ptr, col) = pattern(&couplings, 0..n);
        // Two matrices with 16 values and a column index per block.
        memory::check("the Stokes flow", col.len() as u64 * 2 * (16 * 8 + 4))?;
        let [mass, stiffness] = values(&couplings, 0..n, &row_ptr);
        let mass = Bsr::new(4, n, n, row_ptr.clone(), col.clone(), mass)?;
        let stiffness = Bsr::new(4, n, n, row_ptr, col, stiffness)?;
        Ok(Self { mesh, mass, stiffness, options, couplings, data })
    }

    /// Returns the options, with `scale` filled in.
    pub fn options(&self) -> &O {
        &self.options
    }

    /// Creates right-hand sides and updates for steps of length `tau` by `butcher`, with their own buffers.
    ///
    /// # Errors
    /// Returns an error if `tau` is not positive and finite.
    pub fn steps(&self, butcher: &Butcher, tau: f64) -> Result<StokesSteps> {
        let all = 0..self.couplings.nodes();
        StokesSteps::new(self.couplings.clone(), self.data.clone(), butcher, tau, all)
    }

    /// Returns A⊗M + τB⊗L with A = I and B the Butcher matrix; unknowns are the stage derivatives. Copies M
    /// and L.
    ///
    /// # Errors
    /// Returns an error if `tau` is not finite.
    pub fn kronecker(&self, butcher: &Butcher, tau: f64) -> Result<KroneckerSum> {
        let a = Dense::identity(butcher.stages());
        KroneckerSum::new(a, butcher.a.clone(), tau, self.mass.clone(), self.stiffness.clone())
    }

    /// Like [`kronecker`](Self::kronecker), but moves M and L instead of copying them.
    ///
    /// # Errors
    /// Returns an error if `tau` is not finite.
    pub fn into_kronecker(self, butcher: &Butcher, tau: f64) -> Result<KroneckerSum> {
        KroneckerSum::new(
            Dense::identity(butcher.stages()),
            butcher.a.clone(),
            tau,
            self.mass,
            self.stiffness,
        )
    }

    /// Returns operator and right-hand side of the step from `t`, with state `u` (4 numbers per node).
    ///
    /// This serves one system; for several steps, keep the results of [`kronecker`](Self::kronecker) and
    /// [`steps`](Self::steps).
    ///
    /// # Errors
    /// Returns an error if `tau` is not positive and finite, or if `u` has the wrong length.
    pub fn system(&self, t: f64, u: &[f64], butcher: &Butcher, tau: f64) -> Result<(KroneckerSum, Vec<f64>)> {
        let mut rhs = vec![0.0; self.mass.rows() * butcher.stages()];
        self.steps(butcher, tau)?.rhs_into(t, u, &mut rhs)?;
        Ok((self.kronecker(butcher, tau)?, rhs))
    }
}

/// Mesh, parameters and stencils of a duct: the data that define a row.
pub(crate) struct Discretisation {
    pub mesh: DuctMesh,
    /// The options, with `scale` filled in.
    pub options: StokesOptions,
    pub stencils: Stencils,
}

impl Discretisation {
    pub fn new(options: StokesOptions) -> Result<Self> {
        let StokesOptions { nodes, length, nu, stab, scale } = options;
        if nodes[0] < 2 || nodes[1] < 3 || nodes[2] < 3 {
            return Err(Error::invalid(format!(
                "a Stokes duct of {}x{}x{} nodes is too small; expected at least 2 along x and 3 \
                 along y and z",
                nodes[0], nodes[1], nodes[2]
            )));
        }
        let scale_or_one = scale.unwrap_or(1.0);
        let given = [("length", length), ("nu", nu), ("stab", stab), ("scale", scale_or_one)];
        check_parameters("Stokes duct", &given)?;
        let mesh = DuctMesh::new(nodes, [length, 1.0, 1.0])?;
        let h = mesh.spacing();
        let sigma = scale.unwrap_or_else(|| usual_scale(nu, h[0] * h[1] * h[2]));
        let options = StokesOptions { scale: Some(sigma), ..options };
        Ok(Self { mesh, options, stencils: Stencils::new(h, nu, stab / nu, sigma) })
    }
}

fn check_nodes(n: usize) -> Result<()> {
    if n > u32::MAX as usize / 4 {
        let message = format!("a Stokes flow of {n} nodes has too many unknowns for 32-bit columns");
        return Err(Error::invalid(message));
    }
    Ok(())
}

fn check_parameters(what: &str, given: &[(&str, f64)]) -> Result<()> {
    match given.iter().find(|(_, value)| !(value.is_finite() && *value > 0.0)) {
        None => Ok(()),
        Some((name, value)) => {
            Err(Error::invalid(format!("{what}: {name} is {value}; it must be positive and finite")))
        }
    }
}

/// Returns 1 + 10ν/h for cells of volume h³. It is rounded to thirteen digits, so that the spec stays short.
/// Formatting and parsing cannot overflow, unlike scaling.
fn usual_scale(nu: f64, cell: f64) -> f64 {
    let usual = 1.0 + 10.0 * nu / cell.cbrt();
    format!("{usual:.12e}").parse().unwrap_or(usual)
}

/// Kind of a block: are the velocities of its row and of its column unknown, and is it on the diagonal?
struct Role {
    row_free: bool,
    column_free: bool,
    diagonal: bool,
}

impl Role {
    /// Returns true if momentum entries are kept; Dirichlet rows and columns keep only their diagonal.
    fn momentum(&self) -> bool {
        self.diagonal || (self.row_free && self.column_free)
    }
}

/// Smallest number of rows per task.
const LEAST: usize = 4096;

/// Returns row pointers and columns of the rows `own`: every node with its neighbours along the edges of the
/// tetrahedra.
pub(crate) fn pattern(couplings: &Couplings, own: Range<usize>) -> (Vec<usize>, Vec<u32>) {
    let mut row_ptr = vec![0; own.len() + 1];
    let counts = row_ptr[1..].par_iter_mut().with_min_len(LEAST).zip(own.clone());
    counts.for_each(|(count, i)| couplings.each(i, |_, _| *count += 1));
    (0..own.len()).for_each(|p| row_ptr[p + 1] += row_ptr[p]);
    let mut col = vec![0; row_ptr[own.len()]];
    let mut rest = &mut col[..];
    let mut tasks = Vec::with_capacity(own.len().div_ceil(LEAST));
    for first in own.clone().step_by(LEAST) {
        let last = (first + LEAST).min(own.end);
        let (rows, tail) = rest.split_at_mut(row_ptr[last - own.start] - row_ptr[first - own.start]);
        tasks.push((first..last, rows));
        rest = tail;
    }
    each_task(tasks, &|(nodes, col)| {
        let mut to = col.iter_mut();
        for i in nodes {
            couplings.each(i, |j, _| *to.next().expect("the rows were counted") = j as u32);
        }
    });
    (row_ptr, col)
}

/// Returns the values of M and L in the rows `own`, which have the pattern `row_ptr`.
pub(crate) fn values(couplings: &Couplings, own: Range<usize>, row_ptr: &[usize]) -> [Vec<f64>; 2] {
    let mass = fill(couplings, own.clone(), row_ptr, |block, entry, role| {
        let m = if role.momentum() { entry.mass } else { 0.0 };
        (block[0], block[5], block[10]) = (m, m, m);
    });
    let stiffness = fill(couplings, own, row_ptr, |block, entry, role| {
        let k = if role.momentum() { entry.stiffness } else { 0.0 };
        (block[0], block[5], block[10]) = (k, k, k);
        for c in 0..3 {
            block[4 * c + 3] = if role.row_free { entry.gradient[c] } else { 0.0 };
            block[12 + c] = if role.column_free { entry.divergence[c] } else { 0.0 };
        }
        block[15] = entry.stabilisation;
    });
    [mass, stiffness]
}

/// Computes the values of a matrix in parallel, by grid lines: `write` gets a zeroed block, its role and its
/// coupling.
fn fill(
    couplings: &Couplings,
    own: Range<usize>,
    row_ptr: &[usize],
    write: impl Fn(&mut [f64], &Coupling, Role) + Sync,
) -> Vec<f64> {
    let mut values = vec![0.0; row_ptr[own.len()] * 16];
    let nodes = couplings.line();
    let mut rest = values.as_mut_slice();
    let mut tasks = Vec::with_capacity(own.len().div_ceil(nodes));
    for first in own.clone().step_by(nodes) {
        let last = (first + nodes).min(own.end);
        let (line, tail) = rest.split_at_mut((row_ptr[last - own.start] - row_ptr[first - own.start]) * 16);
        tasks.push((first..last, line));
        rest = tail;
    }
    each_task(tasks, &|(nodes, line)| {
        let mut blocks = line.chunks_exact_mut(16);
        for i in nodes {
            let row_free = !couplings.is_fixed(i);
            couplings.each(i, |j, entry| {
                let role = Role { row_free, column_free: !couplings.is_fixed(j), diagonal: i == j };
                let block = blocks.next().expect("the pattern counts the same neighbours");
                write(block, entry, role);
            });
        }
    });
    values
}

//! Unsteady Stokes flow in a duct: the system of the OKP paper (Eqs. 2 and 5–7, Table 1).
//!
//! # Equations and weak form
//! u_t − νΔu + ∇p = f, ∇·u = 0 in [0, Lx]×[0, 1]×[0, 1]; u = g at the inlet x = 0 and on the walls (where
//! g = 0 by default). (ν∇u − pI)n = h at the outlet x = Lx (h = 0, stress-free, by default), which fixes the
//! pressure's level. With linear tetrahedra for both velocity and pressure, for all test functions v (0 on
//! inlet and walls) and q:
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
//! (15 blocks per interior row).
//!
//! The continuity rows (d and s, on the left and the right) are multiplied by `scale`, σ. This changes only
//! the weight of their residual, not the solution. Point-block Jacobi scales the columns; gradient entries
//! then have size 50ν/(σh) and divergence entries σh/ν, or στ/h if ντ < h². With σ = 1, restarted GMRES
//! stalls at ν = 1 on 16³ nodes. The default, 1 + 10ν/h with h³ the volume of a cell, balances both.
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

use crate::stencil::{CENTRE, Coupling, OFFSETS, POINTS, Stencils, neighbour};
use crate::{DuctData, DuctMesh, InletRamp, StokesSteps, memory};

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

/// The semi-discrete problem M U' + L U = F(t).
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
pub struct StokesDuct {
    /// The mesh: nodes, tetrahedra, node sets.
    pub mesh: DuctMesh,
    /// The mass matrix M, in 4×4 blocks.
    pub mass: Bsr,
    /// The matrix L, in 4×4 blocks, with the pattern of M.
    pub stiffness: Bsr,
    options: StokesOptions,
    stencils: Arc<Stencils>,
    data: Arc<dyn DuctData>,
}

impl std::fmt::Debug for StokesDuct {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StokesDuct").field("options", &self.options).finish_non_exhaustive()
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
        if n > u32::MAX as usize / 4 {
            return Err(Error::invalid(format!(
                "a Stokes duct of {n} nodes has too many unknowns for 32-bit columns"
            )));
        }
        // Two matrices with 16 values and a column index per block.
        memory::check("the Stokes duct", (n * POINTS) as u64 * 2 * (16 * 8 + 4))?;
        let (row_ptr, col) = pattern(&mesh, 0..n);
        let [mass, stiffness] = values(&mesh, &stencils, 0..n, &row_ptr);
        Ok(Self {
            mesh,
            mass: Bsr::new(4, n, n, row_ptr.clone(), col.clone(), mass)?,
            stiffness: Bsr::new(4, n, n, row_ptr, col, stiffness)?,
            options,
            stencils: Arc::new(stencils),
            data,
        })
    }

    /// Returns the options, with `scale` filled in.
    pub fn options(&self) -> &StokesOptions {
        &self.options
    }

    /// Creates right-hand sides and updates for steps of length `tau` by `butcher`, with their own buffers.
    ///
    /// # Errors
    /// Returns an error if `tau` is not positive and finite.
    pub fn steps(&self, butcher: &Butcher, tau: f64) -> Result<StokesSteps> {
        let all = 0..self.mesh.nodes();
        StokesSteps::new(self.mesh, self.stencils.clone(), self.data.clone(), butcher, tau, all)
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
        for (name, value) in [("length", length), ("nu", nu), ("stab", stab), ("scale", scale.unwrap_or(1.0))]
        {
            if !(value.is_finite() && value > 0.0) {
                return Err(Error::invalid(format!(
                    "Stokes duct: {name} is {value}; it must be positive and finite"
                )));
            }
        }
        let mesh = DuctMesh::new(nodes, [length, 1.0, 1.0])?;
        let h = mesh.spacing();
        let usual = 1.0 + 10.0 * nu / (h[0] * h[1] * h[2]).cbrt();
        // Rounded to thirteen digits, so that the spec stays short. Formatting and parsing cannot overflow,
        // unlike scaling.
        let sigma = scale.unwrap_or_else(|| format!("{usual:.12e}").parse().unwrap_or(usual));
        let options = StokesOptions { scale: Some(sigma), ..options };
        Ok(Self { mesh, options, stencils: Stencils::new(h, nu, stab / nu, sigma) })
    }
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
pub(crate) fn pattern(mesh: &DuctMesh, own: Range<usize>) -> (Vec<usize>, Vec<u32>) {
    let neighbours = |i: usize| {
        let at = mesh.position(i);
        OFFSETS.iter().filter_map(move |&o| neighbour(mesh, at, o))
    };
    let mut row_ptr = vec![0; own.len() + 1];
    let counts = row_ptr[1..].par_iter_mut().with_min_len(LEAST).zip(own.clone());
    counts.for_each(|(count, i)| *count = neighbours(i).count());
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
        col.iter_mut().zip(nodes.flat_map(neighbours)).for_each(|(to, j)| *to = j as u32);
    });
    (row_ptr, col)
}

/// Returns the values of M and L in the rows `own`, which have the pattern `row_ptr`.
pub(crate) fn values(
    mesh: &DuctMesh,
    stencils: &Stencils,
    own: Range<usize>,
    row_ptr: &[usize],
) -> [Vec<f64>; 2] {
    let mass = fill(mesh, stencils, own.clone(), row_ptr, |block, entry, role| {
        let m = if role.momentum() { entry.mass } else { 0.0 };
        (block[0], block[5], block[10]) = (m, m, m);
    });
    let stiffness = fill(mesh, stencils, own, row_ptr, |block, entry, role| {
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
    mesh: &DuctMesh,
    stencils: &Stencils,
    own: Range<usize>,
    row_ptr: &[usize],
    write: impl Fn(&mut [f64], &Coupling, Role) + Sync,
) -> Vec<f64> {
    let mut values = vec![0.0; row_ptr[own.len()] * 16];
    let nodes = mesh.sizes()[0]; // as many as a grid line has
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
            let at = mesh.position(i);
            let row_free = !mesh.is_dirichlet(i);
            for (p, (entry, &offset)) in stencils.row(mesh, at).iter().zip(&OFFSETS).enumerate() {
                let Some(j) = neighbour(mesh, at, offset) else { continue };
                let role = Role { row_free, column_free: !mesh.is_dirichlet(j), diagonal: p == CENTRE };
                let block = blocks.next().expect("the pattern counts the same neighbours");
                write(block, entry, role);
            }
        }
    });
    values
}

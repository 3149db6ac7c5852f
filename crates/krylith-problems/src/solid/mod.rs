//! Finite elements of a hyperelastic body: linear tetrahedra, total Lagrangian, b = 3.
//!
//! The unknown is the displacement u. Row i of F(u) is
//!
//! ```text
//! ∫ P(∇u) ∇Nᵢ + m ∫ Nᵢ (u − û) + ∫ p Nᵢ n da − lᵢ = 0,   P = ∂ψ/∂F
//! ```
//!
//! over the undeformed body, except that the pressure p follows the deformed surface (its normal n points out
//! of the body, so p pushes inwards). m = ρ/(β Δt²) and û are those of a time step by Newmark's method, with
//! the consistent mass; both are 0 in a static problem. The stress is constant in an element, so one point
//! integrates it exactly. Rows of nodes with a prescribed displacement are σ (u − ū), with σ the mean
//! diagonal of the other rows at rest, without fibres and sheets: rounding decides whether these count as
//! stretched at rest. The Jacobian is the exact derivative.
//!
//! If an element is inverted, F(u) is NaN, and a line search shortens the step.

mod material;

use krylith_core::matrix::Bsr;
use krylith_core::memory::Numbers;
use krylith_core::newton::NonlinearSystem;
use krylith_core::{Error, Problem, Result};
use rayon::prelude::*;
use std::borrow::Cow;

use crate::gpu::{self, OnGpu, Place};
use crate::share::{self, Share};
use crate::tets::{Rows, Shape, TetMesh, area};
pub use material::{Axes, Material};

/// Unknowns per node.
const B: usize = 3;
/// Numbers of a block.
const BB: usize = B * B;
/// Nodes whose diagonals are added up in one task.
const CHUNK: usize = 1024;

/// A hyperelastic body on a mesh.
///
/// # Examples
/// ```
/// use krylith_problems::{solid::{Material, Solid}, ventricle::mesh};
/// let mesh = mesh(500)?;
/// let (n, volume) = (mesh.points().len(), mesh.volume());
/// let axes = vec![[[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]; mesh.tetrahedra().len()]; // fibres and sheets
/// let free = Solid::new(mesh, Material::default(), axes, vec![None; n])?; // nothing is held
/// let moved = [1.0, 2.0, 3.0].repeat(n); // as a whole
/// assert!((free.deformed_volume(&moved) / volume - 1.0).abs() < 1e-9);
/// // A rigid motion needs no energy.
/// assert!(free.energy(&moved).abs() < 1e-9 * Material::default().kappa * volume);
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Solid {
    mesh: TetMesh,
    rows: Rows,
    material: Material,
    /// Directions of fibres and sheets in each tetrahedron.
    axes: Vec<Axes>,
    /// Displacement of each node where it is prescribed.
    given: Vec<Option<[f64; 3]>>,
    scale: f64,
    /// m and û.
    inertia: f64,
    predicted: Vec<f64>,
    load: Vec<f64>,
    pressed: Pressed,
    share: Option<Share>,
    place: Place<Self>,
}

/// What a time step changes beside û and σ.
#[cfg(feature = "cuda")]
pub(crate) struct SolidStep<'a> {
    pub material: Material,
    pub inertia: f64,
    pub load: &'a [f64],
    pub pressed: &'a Pressed,
}

/// A surface under pressure.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pressed {
    pub pressure: f64,
    pub faces: Vec<[u32; 3]>,
    /// Node i is a corner of the faces `around[begin[i]..begin[i + 1]]`: the value is 3 f + k if i is corner
    /// k of face f, ascending. Empty without a surface.
    pub begin: Vec<usize>,
    pub around: Vec<u32>,
}

impl Pressed {
    fn new(faces: &[[u32; 3]], nodes: usize) -> Self {
        let corners = faces.as_flattened();
        let mut around: Vec<u32> = (0..corners.len() as u32).collect();
        around.par_sort_unstable_by_key(|&c| (corners[c as usize], c));
        let first = |i: usize| around.partition_point(|&c| (corners[c as usize] as usize) < i);
        let begin = (0..nodes + 1).into_par_iter().with_min_len(CHUNK).map(first).collect();
        Self { pressure: 0.0, faces: faces.to_vec(), begin, around }
    }

    fn around(&self, i: usize) -> &[u32] {
        if self.pressure == 0.0 || self.begin.is_empty() {
            return &[];
        }
        &self.around[self.begin[i]..self.begin[i + 1]]
    }
}

impl Solid {
    /// Creates a body at rest, with fibres and sheets along `axes` (one pair per tetrahedron) and prescribed
    /// displacements `given` (one option per node).
    ///
    /// # Errors
    /// Returns an error if a list has another length than the mesh, if a constant of the material is out of
    /// range, or if memory is not sufficient.
    pub fn new(
        mesh: TetMesh,
        material: Material,
        axes: Vec<Axes>,
        given: Vec<Option<[f64; 3]>>,
    ) -> Result<Self> {
        Self::build(mesh, material, axes, given, None)
    }

    /// Creates a body on one rank's part of a mesh.
    pub(crate) fn build(
        mesh: TetMesh,
        material: Material,
        axes: Vec<Axes>,
        given: Vec<Option<[f64; 3]>>,
        share: Option<Share>,
    ) -> Result<Self> {
        let n = mesh.points().len();
        if axes.len() != mesh.tetrahedra().len() || given.len() != n {
            return Err(Error::invalid(format!(
                "got {} fibres and {} displacements for {} tetrahedra and {n} nodes; expected a fibre per \
                 tetrahedron and a displacement per node",
                axes.len(),
                given.len(),
                mesh.tetrahedra().len()
            )));
        }
        material.check()?;
        let own = share.as_ref().map_or(n, |share| share.numbers().len());
        let rows = share::agreed(share.as_ref(), Rows::new(&mesh, own, B))?;
        let mut solid = Self {
            mesh,
            rows,
            material,
            axes,
            given,
            scale: 1.0,
            inertia: 0.0,
            predicted: vec![0.0; B * n],
            load: vec![0.0; B * n],
            pressed: Pressed::default(),
            share,
            place: Place::host(),
        };
        solid.scale = solid.mean_diagonal()?;
        Ok(solid)
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
    /// Returns the prescribed displacements.
    pub fn given(&self) -> &[Option<[f64; 3]>] {
        &self.given
    }
    /// Returns the factor σ of the rows with prescribed displacements.
    pub fn scale(&self) -> f64 {
        self.scale
    }

    /// Returns the rows of the matrix.
    #[cfg(feature = "cuda")]
    pub(crate) fn rows(&self) -> &Rows {
        &self.rows
    }
    /// Returns the directions of fibres and sheets in each tetrahedron.
    pub fn axes(&self) -> &[Axes] {
        &self.axes
    }
    /// Returns what a time step changes.
    #[cfg(feature = "cuda")]
    pub(crate) fn step(&self) -> SolidStep<'_> {
        SolidStep { material: self.material, inertia: self.inertia, load: &self.load, pressed: &self.pressed }
    }

    /// Sets m = ρ/(β Δt²). Collective over the ranks that share the body.
    ///
    /// # Errors
    /// Returns an error if a rank is gone.
    pub fn set_inertia(&mut self, m: f64) -> Result<()> {
        self.place.changed();
        self.inertia = m;
        self.scale = self.mean_diagonal()?;
        Ok(())
    }
    /// Returns û, of ghosts too.
    pub(crate) fn predicted(&self) -> &[f64] {
        &self.predicted
    }
    /// Sets û of own nodes. Collective.
    pub(crate) fn set_predicted(&mut self, own: &[f64]) -> Result<()> {
        self.place.changed();
        self.predicted = self.local(own)?.into_owned();
        Ok(())
    }
    /// Returns the forces l on the nodes for changing.
    pub fn load_mut(&mut self) -> &mut [f64] {
        self.place.changed();
        &mut self.load
    }

    /// Selects the surfaces under pressure, by names joined by `+` that may end in `*`, and their pressure.
    ///
    /// # Errors
    /// Returns an error if the mesh does not have a surface.
    pub fn press(&mut self, surfaces: &str, pressure: f64) -> Result<()> {
        self.place.changed();
        let found = self.mesh.select(surfaces)?.into_iter();
        let faces: Vec<[u32; 3]> = found.flat_map(|surface| surface.faces.iter().copied()).collect();
        let pressed = Pressed::new(&faces, self.mesh.points().len());
        self.pressed = Pressed { pressure, ..pressed };
        Ok(())
    }
    /// Changes the pressure of the surface that [`press`](Self::press) named.
    pub fn set_pressure(&mut self, pressure: f64) {
        self.place.changed();
        self.pressed.pressure = pressure;
    }
    /// Changes the active tension T in Pa.
    pub fn set_tension(&mut self, tension: f64) {
        self.place.changed();
        self.material.tension = tension;
    }

    /// Returns the elastic energy stored at displacement u.
    pub fn energy(&self, u: &[f64]) -> f64 {
        let energy = |t: usize| {
            let (shape, f) = self.element(u, t);
            shape.volume * self.material.energy(&f, self.axes[t])
        };
        let count = self.axes.len();
        let chunks = (0..count.div_ceil(CHUNK)).into_par_iter();
        let sums: Vec<f64> =
            chunks.map(|c| (c * CHUNK..count.min((c + 1) * CHUNK)).map(energy).sum()).collect();
        sums.iter().sum()
    }

    /// Returns the volume of the body at displacement u.
    pub fn deformed_volume(&self, u: &[f64]) -> f64 {
        let points = self.mesh.points().iter().zip(u.as_chunks::<3>().0);
        let moved: Vec<_> = points.map(|(x, u)| [x[0] + u[0], x[1] + u[1], x[2] + u[2]]).collect();
        self.mesh.tetrahedra().iter().map(|t| crate::tets::signed_volume(t.map(|p| moved[p as usize]))).sum()
    }

    /// Returns shape functions and deformation gradient of tetrahedron `t`.
    #[inline]
    fn element(&self, u: &[f64], t: usize) -> (Shape, [[f64; 3]; 3]) {
        let corners = self.mesh.tetrahedra()[t];
        let shape = Shape::of(corners.map(|p| self.mesh.points()[p as usize]));
        let mut f = shape.gradient(&corners.map(|p| node(u, p)));
        (0..3).for_each(|d| f[d][d] += 1.0);
        (shape, f)
    }

    fn residual_row(&self, u: &[f64], i: usize, row: &mut [f64]) {
        if let Some(given) = self.given[i] {
            (0..B).for_each(|c| row[c] = self.scale * (u[B * i + c] - given[c]));
            return;
        }
        let mut sum = std::array::from_fn::<f64, B, _>(|c| -self.load[B * i + c]);
        for &corner in self.mesh.around(i) {
            let (t, a) = (corner as usize / 4, corner as usize % 4);
            let (shape, f) = self.element(u, t);
            let state = self.material.at(&f, self.axes[t]);
            let force = state.traction(&state.along(shape.gradients[a]));
            (0..B).for_each(|c| sum[c] += shape.volume * force[c]);
            if self.inertia != 0.0 {
                let mass = self.inertia * shape.volume / 20.0;
                for (b, &p) in self.mesh.tetrahedra()[t].iter().enumerate() {
                    let weight = if a == b { 2.0 * mass } else { mass };
                    let at = B * p as usize;
                    (0..B).for_each(|c| sum[c] += weight * (u[at + c] - self.predicted[at + c]));
                }
            }
        }
        for &corner in self.pressed.around(i) {
            let face = self.pressed.faces[corner as usize / 3];
            let normal = area(face.map(|p| self.moved(u, p)));
            (0..B).for_each(|c| sum[c] += self.pressed.pressure / 3.0 * normal[c]);
        }
        row.copy_from_slice(&sum);
    }

    /// Returns the deformed position of node `p`.
    fn moved(&self, u: &[f64], p: u32) -> [f64; 3] {
        let (x, u) = (self.mesh.points()[p as usize], node(u, p));
        [x[0] + u[0], x[1] + u[1], x[2] + u[2]]
    }

    fn jacobian_row(&self, u: &[f64], i: usize, row: &mut [f64], material: &Material) {
        if self.given[i].is_some() {
            let at = self.rows.place(i, i as u32) * BB;
            (0..B).for_each(|c| row[at + c * (B + 1)] = self.scale);
            return;
        }
        for (&corner, places) in self.mesh.around(i).iter().zip(self.rows.places(i)) {
            let (t, a) = (corner as usize / 4, corner as usize % 4);
            let (shape, f) = self.element(u, t);
            let state = material.at(&f, self.axes[t]);
            let own = state.along(shape.gradients[a]);
            let mass = self.inertia * shape.volume / 20.0;
            for b in 0..4 {
                let block = &mut row[BB * places[b] as usize..][..BB];
                let stiffness = state.stiffness(&own, &state.along(shape.gradients[b]));
                block.iter_mut().zip(stiffness).for_each(|(x, k)| *x += shape.volume * k);
                let weight = if a == b { 2.0 * mass } else { mass };
                (0..B).for_each(|c| block[c * (B + 1)] += weight);
            }
        }
        // A = ½ (x₀×x₁ + x₁×x₂ + x₂×x₀), so ∂A/∂x₀ maps w to ½ w × (x₁ − x₂); cyclic for the other corners.
        for &corner in self.pressed.around(i) {
            let face = self.pressed.faces[corner as usize / 3];
            let x = face.map(|p| self.moved(u, p));
            for b in 0..3 {
                let (y, z) = (x[(b + 1) % 3], x[(b + 2) % 3]);
                let v: [f64; 3] = std::array::from_fn(|d| self.pressed.pressure / 6.0 * (y[d] - z[d]));
                let block = &mut row[BB * self.rows.place(i, face[b])..][..BB];
                for (at, value) in [(1, v[2]), (2, -v[1]), (3, -v[2]), (5, v[0]), (6, v[1]), (7, -v[0])] {
                    block[at] += value;
                }
            }
        }
    }

    /// Returns the mean diagonal of free rows at rest, without fibres and sheets.
    fn mean_diagonal(&self) -> Result<f64> {
        let n = self.rows.pattern().block_rows();
        let rest = vec![0.0; B * self.given.len()];
        let material = Material { a_f: 0.0, a_s: 0.0, ..self.material };
        let diagonal = |i: usize, row: &mut Vec<f64>| {
            let ptr = self.rows.pattern().row_ptr();
            row.clear();
            row.resize((ptr[i + 1] - ptr[i]) * BB, 0.0);
            self.jacobian_row(&rest, i, row, &material);
            let at = self.rows.place(i, i as u32) * BB;
            (0..B).map(|c| row[at + c * (B + 1)]).sum::<f64>() / B as f64
        };
        let chunks = (0..n.div_ceil(CHUNK)).into_par_iter().map(|chunk| {
            let (mut row, mut sum, mut free) = (Vec::new(), 0.0, 0usize);
            for i in (chunk * CHUNK..n.min((chunk + 1) * CHUNK)).filter(|&i| self.given[i].is_none()) {
                (sum, free) = (sum + diagonal(i, &mut row), free + 1);
            }
            (sum, free)
        });
        let sums: Vec<(f64, usize)> = chunks.collect();
        let (sum, free) = sums.iter().fold((0.0, 0), |(s, f), (sum, free)| (s + sum, f + free));
        let [sum, free] = share::summed(self.share.as_ref(), [sum, free as f64])?;
        Ok(if free == 0.0 { 1.0 } else { sum / free })
    }
}

/// Returns the three numbers of node `p`.
#[inline]
fn node(u: &[f64], p: u32) -> [f64; 3] {
    let at = B * p as usize;
    [u[at], u[at + 1], u[at + 2]]
}

impl OnGpu for Solid {
    fn place(&mut self) -> &mut Place<Self> {
        &mut self.place
    }
    fn share(&self) -> Option<&Share> {
        self.share.as_ref()
    }
    #[cfg(feature = "cuda")]
    fn assembly(&self, gpu: usize) -> Result<Option<Box<dyn gpu::Assembly<Self>>>> {
        gpu::solid::assembly(self, gpu)
    }
}

impl NonlinearSystem for Solid {
    fn pattern(&self) -> &Bsr {
        self.rows.pattern()
    }

    fn residual(&mut self, x: &[f64], f: &mut [f64]) -> Result<()> {
        self.rows.check("displacements", x.len())?;
        self.rows.check("a residual", f.len())?;
        let x = self.local(x)?;
        self.rows.residual(f, |i, row| self.residual_row(&x, i, row));
        Ok(())
    }

    fn jacobian(&mut self, x: &[f64], values: &mut [f64]) -> Result<()> {
        self.rows.check("displacements", x.len())?;
        self.rows.check_values(values.len())?;
        let x = self.local(x)?;
        self.rows.jacobian(values, |i, row| self.jacobian_row(&x, i, row, &self.material));
        Ok(())
    }

    fn solves_on(&mut self, gpu: Option<usize>) -> Result<bool> {
        gpu::select(self, gpu)
    }

    fn residual_in_own_memory(&mut self, x: Numbers<'_>) -> Result<Numbers<'_>> {
        gpu::residual(self, x)
    }

    fn jacobian_in_own_memory(&mut self, x: Numbers<'_>) -> Result<Numbers<'_>> {
        gpu::jacobian(self, x)
    }

    fn coordinates(&self) -> Option<&[[f64; 3]]> {
        Some(&self.mesh.points()[..self.rows.pattern().block_rows()])
    }

    fn problem(&self) -> Result<Problem<'_>> {
        share::problem(self, self.share.as_ref())
    }
}

//! Nodes of the discretised Stokes equations and the couplings between them: those of a box grid, from a
//! table, or those of a mesh of tetrahedra.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use krylith_core::{Error, Result};

use crate::mesh::DuctMesh;
use crate::stencil::{Coupling, OFFSETS, Stencils, neighbour};
use crate::tets::{Boundary, Rows, Shape, TetMesh, area, dot, for_rows};

/// Nodes and their couplings. Copies share the data.
#[derive(Clone)]
pub(crate) enum Couplings {
    Duct(DuctMesh, Arc<Stencils>),
    Body(Arc<Body>),
}

/// Couplings on a mesh of tetrahedra.
pub(crate) struct Body {
    points: Vec<[f64; 3]>,
    row_ptr: Vec<usize>,
    col: Vec<u32>,
    entries: Vec<Coupling>,
    /// For each node, true where the velocity is prescribed.
    fixed: Vec<bool>,
    /// For nodes of the outlets that are not fixed: ∫ φ_i φ_j over the outlets, by ascending j.
    outlet: HashMap<u32, Vec<(u32, f64)>>,
}

impl Body {
    /// Integrates over the tetrahedra, with viscosity `nu` and stabilisation `gamma`; continuity rows are
    /// multiplied by `sigma`.
    ///
    /// # Errors
    /// Returns an error if no node of an outlet is free, so that nothing fixes the pressure, if a node has
    /// more than 255 neighbours, or if memory is not sufficient.
    pub fn new(mesh: &TetMesh, boundary: &Boundary, [nu, gamma, sigma]: [f64; 3]) -> Result<Self> {
        let n = mesh.points().len();
        let rows = Rows::new(mesh, n, 1)?;
        let pattern = rows.pattern();
        let mut entries = vec![Coupling::default(); pattern.blocks()];
        for_rows(pattern.row_ptr(), 1, &mut entries, |i, own| {
            for (&corner, places) in mesh.around(i).iter().zip(rows.places(i)) {
                let (t, a) = (corner as usize / 4, corner as usize % 4);
                let shape = Shape::of(mesh.tetrahedra()[t].map(|p| mesh.points()[p as usize]));
                let (volume, g) = (shape.volume, shape.gradients);
                for b in 0..4 {
                    let entry = &mut own[places[b] as usize];
                    let mass = if a == b { 0.1 } else { 0.05 };
                    entry.mass += volume * mass;
                    entry.stabilisation += sigma * gamma * volume * (mass - 0.0625);
                    entry.stiffness += nu * volume * dot(g[a], g[b]);
                    for d in 0..3 {
                        entry.divergence[d] += sigma * 0.25 * volume * g[b][d];
                        entry.gradient[d] -= 0.25 * volume * g[a][d];
                    }
                }
            }
        });
        let mut fixed = vec![false; n];
        for &p in boundary.inlet.iter().chain(&boundary.wall).flatten() {
            fixed[p as usize] = true;
        }
        let mut outlet: HashMap<u32, Vec<(u32, f64)>> = HashMap::new();
        for face in boundary.outlets.iter().flat_map(|s| &s.faces) {
            let a = area(face.map(|p| mesh.points()[p as usize]));
            let weight = dot(a, a).sqrt() / 12.0;
            for &i in face.iter().filter(|&&i| !fixed[i as usize]) {
                let own = outlet.entry(i).or_default();
                for &j in face {
                    let weight = if i == j { 2.0 * weight } else { weight };
                    match own.binary_search_by_key(&j, |&(j, _)| j) {
                        Ok(at) => own[at].1 += weight,
                        Err(at) => own.insert(at, (j, weight)),
                    }
                }
            }
        }
        if outlet.is_empty() {
            return Err(Error::invalid(
                "every node of the outlet is also one of inlet or wall, so nothing fixes the pressure; \
                 refine the mesh at the outlet",
            ));
        }
        let points = mesh.points().to_vec();
        let (row_ptr, col) = (pattern.row_ptr().to_vec(), pattern.col().to_vec());
        Ok(Self { points, row_ptr, col, entries, fixed, outlet })
    }
}

impl Couplings {
    /// Returns the number of nodes.
    pub fn nodes(&self) -> usize {
        match self {
            Self::Duct(mesh, _) => mesh.nodes(),
            Self::Body(body) => body.points.len(),
        }
    }
    /// Returns the coordinates of node `i`.
    pub fn coordinate(&self, i: usize) -> [f64; 3] {
        match self {
            Self::Duct(mesh, _) => mesh.coordinate(i),
            Self::Body(body) => body.points[i],
        }
    }
    /// Returns true where the velocity is prescribed.
    pub fn is_fixed(&self, i: usize) -> bool {
        match self {
            Self::Duct(mesh, _) => mesh.is_dirichlet(i),
            Self::Body(body) => body.fixed[i],
        }
    }
    /// Returns true on an outlet. On a mesh only free nodes and their neighbours there need the traction.
    pub fn is_outlet(&self, i: usize) -> bool {
        match self {
            Self::Duct(mesh, _) => mesh.is_outlet(i),
            Self::Body(_) => true,
        }
    }
    /// Returns the number of rows of a task: those of a grid line, or some.
    pub fn line(&self) -> usize {
        match self {
            Self::Duct(mesh, _) => mesh.sizes()[0],
            Self::Body(_) => 64,
        }
    }
    /// Returns the nodes that the rows `own` use.
    pub fn window(&self, own: Range<usize>) -> Range<usize> {
        match self {
            Self::Duct(mesh, _) => {
                // The farthest neighbour is a plane, a line and a node away.
                let [nx, ny, _] = mesh.sizes();
                let reach = nx * ny + nx + 1;
                own.start.saturating_sub(reach)..(own.end + reach).min(mesh.nodes())
            }
            Self::Body(body) => 0..body.points.len(),
        }
    }

    /// Calls `f` with the number and the coupling of every neighbour of node `i`, itself included, ascending.
    #[inline]
    pub fn each(&self, i: usize, mut f: impl FnMut(usize, &Coupling)) {
        match self {
            Self::Duct(mesh, stencils) => {
                let at = mesh.position(i);
                for (entry, &offset) in stencils.row(mesh, at).iter().zip(&OFFSETS) {
                    if let Some(j) = neighbour(mesh, at, offset) {
                        f(j, entry);
                    }
                }
            }
            Self::Body(body) => {
                for p in body.row_ptr[i]..body.row_ptr[i + 1] {
                    f(body.col[p] as usize, &body.entries[p]);
                }
            }
        }
    }

    /// Calls `add(j, ∫ φ_i φ_j)` for the nodes of the outlet's faces around node `i`, which is free and on an
    /// outlet of a duct, or anywhere on a mesh. A node may come several times.
    pub fn outlet(&self, i: usize, mut add: impl FnMut(usize, f64)) {
        // Offsets (y, z) of the six triangles around a node inside the outlet, whose diagonals run from low
        // (y, z) to high; nodes on the rim are fixed and need none.
        const TRIANGLES: [[[isize; 2]; 2]; 6] = [
            [[1, 0], [1, 1]],
            [[1, 1], [0, 1]],
            [[0, 1], [-1, 0]],
            [[-1, 0], [-1, -1]],
            [[-1, -1], [0, -1]],
            [[0, -1], [1, 0]],
        ];
        match self {
            Self::Duct(mesh, _) => {
                let (at, [_, hy, hz]) = (mesh.position(i), mesh.spacing());
                let weight = 0.5 * hy * hz / 12.0;
                for triangle in TRIANGLES {
                    add(i, 2.0 * weight);
                    for [y, z] in triangle {
                        if let Some(j) = neighbour(mesh, at, [0, y, z]) {
                            add(j, weight);
                        }
                    }
                }
            }
            Self::Body(body) => {
                for &(j, weight) in body.outlet.get(&(i as u32)).map_or(&[][..], |own| own) {
                    add(j as usize, weight);
                }
            }
        }
    }
}

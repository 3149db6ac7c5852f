//! The generated ventricle: a truncated ellipsoid, with its fibres and sheets.

use krylith_core::Result;
use rayon::prelude::*;

use super::turned;
use crate::solid::Axes;
use crate::tets::{Disc, Layers, Numbering, TetMesh, extrude};

/// Half axes of the inner surface in mm, across and along; those of the outer one are `WALL` longer.
const AXES: [f64; 2] = [7.0, 17.0];
/// Thickness of the wall in mm.
const WALL: f64 = 3.0;
/// Height of the cut through the ellipsoid, in mm above its centre.
const CUT: f64 = 5.0;

/// Builds the mesh of the wall, with about `cells` tetrahedra and the surfaces `endocardium`, `epicardium`
/// and `base`.
///
/// # Errors
/// Returns an error for more cells than a mesh may have.
pub fn mesh(cells: usize) -> Result<TetMesh> {
    // With L layers and cells as long as a layer is thick, there are 4.4 L cells around a quarter of the base
    // and 8.6 L from apex to base.
    let layers = (cells as f64 / 823.0).cbrt().round().max(1.0);
    let square = (2.0 * (2.2 * layers).round()).max(2.0);
    let disc = Disc::new(square as usize, (8.6 * layers - 0.5 * square).round() as usize)?;
    let layers = Layers {
        count: layers as usize,
        numbering: Numbering::Lines,
        surfaces: ["endocardium", "epicardium", "base"],
    };
    extrude(&disc, layers, |[x, y], s| {
        let [across, along] = AXES.map(|axis| axis + WALL * s);
        let r = x.hypot(y);
        // The polar angle from the apex.
        let mu = r * (-CUT / along).acos();
        let (c, s) = if r > 0.0 { (x / r, y / r) } else { (1.0, 0.0) };
        [across * mu.sin() * c, across * mu.sin() * s, -along * mu.cos()]
    })
}

/// Returns the directions of fibres and sheets in each tetrahedron of the generated mesh.
pub(super) fn axes(mesh: &TetMesh) -> Vec<Axes> {
    let corners = mesh.tetrahedra().par_iter().with_min_len(1024);
    corners
        .map(|t| {
            let x = t.map(|p| mesh.points()[p as usize]);
            at(std::array::from_fn(|d| 0.25 * (x[0][d] + x[1][d] + x[2][d] + x[3][d])))
        })
        .collect()
}

/// Returns the directions of fibre and sheet at a point of the wall.
fn at([x, y, z]: [f64; 3]) -> Axes {
    let rho = x.hypot(y);
    // Depth in the wall: the single root of (ρ/across)² + (z/along)² = 1.
    let [mut low, mut high] = [-0.5, 1.5];
    for _ in 0..50 {
        let middle = 0.5 * (low + high);
        let [across, along] = AXES.map(|axis| axis + WALL * middle);
        if (rho / across).powi(2) + (z / along).powi(2) > 1.0 {
            low = middle;
        } else {
            high = middle;
        }
    }
    let depth = 0.5 * (low + high);
    let [across, along] = AXES.map(|axis| axis + WALL * depth);
    let (c, s) = if rho > 0.0 { (x / rho, y / rho) } else { (1.0, 0.0) };
    let mu = (rho / across).atan2(-z / along);
    let up = [across * mu.cos() * c, across * mu.cos() * s, along * mu.sin()];
    let length = (across * mu.cos()).hypot(along * mu.sin());
    turned([-s, c, 0.0], up.map(|u| u / length), depth)
}

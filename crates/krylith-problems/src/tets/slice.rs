//! A section through a mesh, for pictures.

use rayon::prelude::*;

use super::{CHUNK, Shape, TetMesh, dot};
use crate::nonlinear::Picture;

/// Cells of a picture along its longer side.
const CELLS: usize = 360;

/// Returns the values of a piecewise linear function in the plane where coordinate `normal` is `level`, on a
/// raster over the mesh's extent.
pub(crate) fn slice(
    mesh: &TetMesh,
    (normal, level): (usize, f64),
    (title, unit): (&str, &'static str),
    names: [&'static str; 2],
    value: impl Fn(usize) -> f64 + Sync,
) -> Picture {
    let [across, up] = [[1, 2], [0, 2], [0, 1]][normal];
    let extent = |d: usize| {
        let of = |(low, high): (f64, f64), x: f64| (low.min(x), high.max(x));
        mesh.points().iter().map(|x| x[d]).fold((f64::INFINITY, f64::NEG_INFINITY), of)
    };
    let (x, y) = (extent(across), extent(up));
    let size = (x.1 - x.0).max(y.1 - y.0) / CELLS as f64;
    let count = |(low, high): (f64, f64)| (((high - low) / size).ceil() as usize).clamp(1, CELLS);
    let (columns, rows) = (count(x), count(y));
    let in_cell = |t: &[u32; 4]| {
        let corners = t.map(|p| mesh.points()[p as usize]);
        let side = corners.map(|c| c[normal] - level);
        let mut found = Vec::new();
        if side.iter().all(|s| *s > 0.0) || side.iter().all(|s| *s < 0.0) {
            return found;
        }
        let shape = Shape::of(corners);
        let range = |d: usize, low: f64, most: usize| {
            let of = |f: fn(f64, f64) -> f64| corners.iter().map(|c| c[d]).reduce(f).unwrap_or(low);
            let cell = |x: f64| ((x - low) / size - 0.5).max(0.0);
            cell(of(f64::min)).floor() as usize..(cell(of(f64::max)).ceil() as usize + 1).min(most)
        };
        for j in range(up, y.0, rows) {
            for i in range(across, x.0, columns) {
                let mut at = [level; 3];
                at[across] = x.0 + (i as f64 + 0.5) * size;
                at[up] = y.0 + (j as f64 + 0.5) * size;
                let weights: [f64; 4] = std::array::from_fn(|a| {
                    let from = std::array::from_fn(|d| at[d] - corners[a][d]);
                    1.0 + dot(shape.gradients[a], from)
                });
                if weights.iter().all(|w| *w >= -1e-9) {
                    let sum = t.iter().zip(weights).map(|(&p, w)| w * value(p as usize)).sum::<f64>();
                    found.push((j * columns + i, sum));
                }
            }
        }
        found
    };
    let chunks = mesh.tetrahedra().par_chunks(CHUNK);
    let found: Vec<Vec<(usize, f64)>> = chunks.map(|c| c.iter().flat_map(in_cell).collect()).collect();
    let mut values = vec![f64::NAN; columns * rows];
    found.iter().flatten().for_each(|&(k, value)| values[k] = value);
    let end = |(low, _): (f64, f64), cells: usize| [low, low + size * cells as f64];
    let axes = Some([(names[0], end(x, columns)), (names[1], end(y, rows))]);
    Picture { title: title.to_string(), unit, axes, columns, rows, values }
}

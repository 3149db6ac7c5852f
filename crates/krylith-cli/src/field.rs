//! `--vtu`: a solution on the mesh of a generated problem, or at the coordinates that a `system.toml` names.

use crate::failure::{Failure, Result};
use crate::output::Target;
use crate::share;
use crate::system::System;
use krylith_core::io::vtu::{self, Values};
use krylith_core::text::plural;
use krylith_problems::DuctMesh;
use std::ops::Range;
use std::path::Path;

/// Rejects a system without coordinates of its nodes, before it is solved.
///
/// # Errors
/// The coordinates are missing, or their number differs from that of the nodes.
pub fn check(system: &System, path: &Path) -> Result<()> {
    let option = format!("--vtu {}", krylith_core::text::name(path));
    let Some(points) = &system.coordinates else {
        let message =
            "the coordinates of the nodes are not known; name their file as `coordinates` in a system.toml";
        return Err(Failure::usage(format!("{option}: {message}")));
    };
    let nodes = [system.order.nodes, system.own_nodes()];
    if !nodes.contains(&points.len()) {
        let (there, b) = (points.len(), system.order.block);
        let message = format!(
            "{there} points for {} nodes of {}; expected one point a node (--block sets the size of a node)",
            nodes[0],
            plural(b, "unknown")
        );
        return Err(Failure::usage(format!("{option}: {message}")));
    }
    Ok(())
}

/// Returns the coordinates of all nodes, on the rank that prints. Collective.
///
/// # Errors
/// Another rank failed or ended.
pub fn points(system: &System) -> Result<Vec<[f64; 3]>> {
    let points = system.coordinates.clone().unwrap_or_default();
    if points.len() == system.order.nodes {
        return Ok(points);
    }
    Ok(share::gather(system, points.into_flattened(), 3)?.as_chunks::<3>().0.to_vec())
}

/// The values of a field at the points.
enum Column {
    Scalar(Vec<f64>),
    Vector(Vec<[f64; 3]>),
}

/// Writes each x, in the solver's order, as fields at `points`. Each stage and each right-hand side has
/// separate fields.
///
/// # Errors
/// The file system reports an error.
pub fn write(
    system: &System,
    points: &[[f64; 3]],
    x: &[Vec<f64>],
    target: Target,
) -> krylith_core::Result<()> {
    let (b, s) = (system.order.block, system.order.stages);
    let mut fields: Vec<(String, Column)> = Vec::new();
    for (which, x) in x.iter().enumerate() {
        let of = if which == 0 { String::new() } else { format!(", right-hand side {}", which + 1) };
        for k in 0..s {
            let stage = if s == 1 { String::new() } else { format!(", stage {}", k + 1) };
            let part = |component: usize| -> Vec<f64> {
                x.iter().skip(component * s + k).step_by(b * s).copied().collect()
            };
            for (name, components) in names(&system.name, b) {
                let column = if components.len() == 3 {
                    let parts: Vec<Vec<f64>> = components.map(part).collect();
                    let at = |i: usize| std::array::from_fn(|d| parts[d][i]);
                    Column::Vector((0..points.len()).map(at).collect())
                } else {
                    Column::Scalar(part(components.start))
                };
                fields.push((format!("{name}{stage}{of}"), column));
            }
        }
    }
    let fields: Vec<(&str, Values)> = fields
        .iter()
        .map(|(name, column)| match column {
            Column::Scalar(values) => (name.as_str(), Values::Scalar(values)),
            Column::Vector(values) => (name.as_str(), Values::Vector(values)),
        })
        .collect();
    // The nodes of a grid are the corners of its cells.
    let grid = system
        .grid
        .filter(|grid| grid.iter().all(|n| *n > 1) && grid.iter().product::<usize>() == points.len());
    match grid {
        _ if !system.tetrahedra.is_empty() => {
            target.write(|out| vtu::write_to(out, points, &system.tetrahedra, &fields))
        }
        Some(grid) => {
            let cells = DuctMesh::new(grid, [1.0; 3])?.tetrahedra();
            target.write(|out| vtu::write_to(out, points, &cells, &fields))
        }
        None => {
            let bare: Vec<[u32; 1]> = (0..points.len() as u32).map(|i| [i]).collect();
            target.write(|out| vtu::write_to(out, points, &bare, &fields))
        }
    }
}

/// Returns the names of the fields and their components of a node; a file's fields are numbered.
fn names(system: &str, b: usize) -> Vec<(String, Range<usize>)> {
    let name = |text: &str, from: usize, to: usize| (text.to_string(), from..to);
    match (system.split(':').next().unwrap_or_default(), b) {
        ("stokes", 4) => vec![name("velocity", 0, 3), name("pressure", 3, 4)],
        ("elasticity", 3) => vec![name("displacement", 0, 3)],
        ("radiation", 3) => vec![name("radiation", 0, 1), name("electrons", 1, 2), name("ions", 2, 3)],
        ("radiation", 1) => vec![name("temperature", 0, 1)],
        ("spe10" | "poisson-multiphase", 1) => vec![name("pressure", 0, 1)],
        ("twophase", 2) => vec![name("pressure", 0, 1), name("saturation", 1, 2)],
        (_, 1) => vec![name("x", 0, 1)],
        _ => (0..b).map(|c| (format!("x{c}"), c..c + 1)).collect(),
    }
}

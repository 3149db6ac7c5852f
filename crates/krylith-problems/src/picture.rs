//! Sections through the solutions of generated systems, to be drawn as colour maps.

use krylith_core::{Error, Result};

use crate::DuctMesh;
use crate::nonlinear::Picture;
use crate::spec::Spec;
use crate::stokes_problem::{Step, StokesDomain};

/// Smallest number of cells along the longer side of a picture of a continuous function.
const CELLS: usize = 240;

/// A plane of a grid: its nodes across and up, the names of the axes, and the node spacing.
struct Section {
    nodes: [usize; 2],
    names: [&'static str; 2],
    spacing: [f64; 2],
    /// True if values belong to a function that is continuous between nodes, false if each belongs to a whole
    /// cell.
    continuous: bool,
}

impl Section {
    fn draw(&self, title: String, unit: &'static str, value: impl Fn(usize, usize) -> f64) -> Picture {
        let [nx, ny] = self.nodes;
        let cells = |n: usize| if self.continuous { n - 1 } else { n };
        let [width, height] = [0, 1].map(|d| self.spacing[d] * cells(self.nodes[d]) as f64);
        let axes = Some([(self.names[0], [0.0, width]), (self.names[1], [0.0, height])]);
        if !self.continuous {
            let values =
                (0..ny).flat_map(|j| (0..nx).map(move |i| (i, j))).map(|(i, j)| value(i, j)).collect();
            return Picture { title, unit, axes, columns: nx, rows: ny, values };
        }
        let size = width.max(height) / CELLS as f64;
        let [columns, rows] = [width, height].map(|length| ((length / size).round() as usize).max(1));
        // Bilinear interpolation between four nodes.
        let place = |k: usize, of: usize, n: usize| {
            let at = (k as f64 + 0.5) / of as f64 * (n - 1) as f64;
            let first = (at as usize).min(n - 2);
            (first, at - first as f64)
        };
        let at = |column: usize, row: usize| {
            let ((i, a), (j, b)) = (place(column, columns, nx), place(row, rows, ny));
            let low = (1.0 - a) * value(i, j) + a * value(i + 1, j);
            let high = (1.0 - a) * value(i, j + 1) + a * value(i + 1, j + 1);
            (1.0 - b) * low + b * high
        };
        let values =
            (0..rows).flat_map(|j| (0..columns).map(move |i| (i, j))).map(|(i, j)| at(i, j)).collect();
        Picture { title, unit, axes, columns, rows, values }
    }
}

/// Returns a picture of the solution x, in Krylith's order, of the system that `spec` generates; `None` if
/// the problem has no grid.
///
/// # Errors
/// Returns an error if the text names no problem, or if the length of x differs from the system's.
///
/// ```
/// let picture = krylith_problems::picture("laplace:9x8x7", &vec![1.0; 9 * 8 * 7])?.expect("it has a grid");
/// assert_eq!((picture.columns, picture.rows, picture.values[0]), (9, 8, 1.0));
/// # Ok::<(), krylith::Error>(())
/// ```
pub fn picture(spec: &str, x: &[f64]) -> Result<Option<Picture>> {
    let spec = Spec::parse(spec)?;
    if spec.problem.name == "stokes" {
        return of_stokes(&spec, x).map(Some);
    }
    let &[nx, ny, nz] = &*spec.size else { return Ok(None) };
    let node = |[i, j, k]: [usize; 3]| (k * ny + j) * nx + i;
    let numbers = match spec.problem.name {
        "elasticity" => 3,
        "laplace" => spec.whole("block", 1..=8)? as usize,
        "radiation" => spec.whole("components", 1..=3)? as usize,
        "spe10" | "poisson-multiphase" | "advection" => 1,
        _ => return Ok(None),
    };
    let all = nx * ny * nz * numbers;
    check_length(&spec, x.len(), all)?;
    // Section at the middle of the axis that is not shown.
    let [j, k] = [ny, nz].map(|n| (n - 1) / 2);
    let upright = |names, spacing, continuous| Section { nodes: [nx, nz], names, spacing, continuous };
    let flat = |names, spacing, continuous| Section { nodes: [nx, ny], names, spacing, continuous };
    let step = |length: f64, n: usize| length / (n - 1) as f64;
    Ok(Some(match spec.problem.name {
        "elasticity" => {
            let moved =
                |i: usize, k: usize| x[3 * node([i, j, k])..][..3].iter().map(|u| u * u).sum::<f64>().sqrt();
            let spacing = [step(spec.positive("length")?, nx), step(1.0, nz)];
            let title = format!("Displacement, section y = {}", short(j as f64 * step(1.0, ny)));
            upright(["x", "z"], spacing, true).draw(title, "", moved)
        }
        "spe10" => {
            let layer = k + spec.whole("layer", 0..=84)? as usize;
            let title = format!("Pressure in layer {} from the top", layer + 1);
            let pressure = |i: usize, j: usize| x[node([i, j, k])];
            flat(["x, ft", "y, ft"], [20.0, 10.0], false).draw(title, "psi", pressure)
        }
        "radiation" => {
            let h = spec.positive("length")? / nx as f64;
            let what = if numbers == 1 { "Temperature" } else { "Temperature of the radiation" };
            let title = format!("{what}, section z = {} cm", short((k as f64 + 0.5) * h));
            let temperature = |i: usize, j: usize| x[numbers * node([i, j, k])];
            flat(["x, cm", "y, cm"], [h; 2], false).draw(title, "keV", temperature)
        }
        "advection" => {
            let title = format!("Solution, section z = {}", short((k as f64 + 0.5) / nz as f64));
            let spacing = [nx, ny].map(|n| 1.0 / n as f64);
            flat(["x", "y"], spacing, false).draw(title, "", |i, j| x[node([i, j, k])])
        }
        "laplace" => {
            let title = format!("Solution, nodes with z number {k}");
            flat(["x", "y"], [1.0; 2], false).draw(title, "", |i, j| x[numbers * node([i, j, k])])
        }
        _ => {
            let title = format!("Pressure, section y = {}", j as f64 + 0.5);
            let spacing = [1.0, spec.positive("dz")?];
            upright(["x", "z"], spacing, false).draw(title, "", |i, k| x[node([i, j, k])])
        }
    }))
}

fn check_length(spec: &Spec, found: usize, all: usize) -> Result<()> {
    if found != all {
        return Err(Error::invalid(format!(
            "a solution of {found} numbers does not fit; {} has {all} unknowns",
            spec.full()
        )));
    }
    Ok(())
}

/// Returns a picture of the speed after the first step from rest, u = τ Σ b_k K_k.
fn of_stokes(spec: &Spec, x: &[f64]) -> Result<Picture> {
    let (domain, Step { butcher, tau, .. }) = (StokesDomain::of(spec)?, Step::of(spec)?);
    let (nodes, s) = (domain.nodes(), butcher.stages());
    check_length(spec, x.len(), 4 * nodes * s)?;
    let speed = |i: usize| {
        let of = |c: usize| {
            let stages = &x[(4 * i + c) * s..][..s];
            tau * butcher.b.iter().zip(stages).map(|(b, k)| b * k).sum::<f64>()
        };
        (0..3).map(|c| of(c).powi(2)).sum::<f64>().sqrt()
    };
    Ok(domain.pictured(tau, speed))
}

/// Returns a picture of the speed in a duct at time t, in the section at the middle of y.
pub(crate) fn of_duct(mesh: &DuctMesh, t: f64, speed: impl Fn(usize) -> f64) -> Picture {
    let ([nx, ny, nz], [hx, hy, hz]) = (mesh.sizes(), mesh.spacing());
    let j = (ny - 1) / 2;
    let section = Section { nodes: [nx, nz], names: ["x", "z"], spacing: [hx, hz], continuous: true };
    let title = format!("Speed at t = {t}, section y = {}", short(j as f64 * hy));
    section.draw(title, "", |i, k| speed(mesh.node([i, j, k])))
}

/// Rounds to three digits.
pub(crate) fn short(v: f64) -> f64 {
    (1000.0 * v).round() / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_problem_with_a_grid_has_a_picture() {
        let specs = [
            ("stokes:5x4x6,length=2", 4 * 2, [2.0, 1.0]),
            ("elasticity:5x4x6,length=2", 3, [2.0, 1.0]),
            ("laplace:5x4x6,block=2", 2, [5.0, 4.0]),
            ("spe10:5x4x6", 1, [100.0, 40.0]),
            ("radiation:5x4x6,components=3", 3, [0.5, 0.4]),
            ("poisson-multiphase:5x4x6", 1, [5.0, 12.0]),
            ("advection:5x4x6", 1, [1.0, 1.0]),
        ];
        for (spec, numbers, ends) in specs {
            let x: Vec<f64> = (0..5 * 4 * 6 * numbers).map(|i| i as f64).collect();
            let picture = picture(spec, &x).unwrap().unwrap();
            let axes = picture.axes.unwrap();
            assert_eq!(picture.values.len(), picture.columns * picture.rows, "{spec}");
            for d in 0..2 {
                assert!(axes[d].1[0] == 0.0 && (axes[d].1[1] - ends[d]).abs() < 1e-12, "{spec}: {axes:?}");
            }
            assert!(super::picture(spec, &x[1..]).is_err(), "{spec}");
        }
        assert!(super::picture("random:10", &[]).unwrap().is_none());
        assert!(super::picture("nothing:10", &[]).is_err());
    }

    #[test]
    fn a_section_shows_what_stands_there() {
        // The middle layer's cells, bottom row first.
        let x: Vec<f64> = (0..3 * 2 * 5).map(|i| i as f64).collect();
        let layer = picture("spe10:3x2x5", &x).unwrap().unwrap();
        assert_eq!((layer.values, layer.unit), (vec![12.0, 13.0, 14.0, 15.0, 16.0, 17.0], "psi"));
        // u = τ Σ b_k K_k: with K = 1/τ for u and 0 otherwise the speed is 1 everywhere.
        let x: Vec<f64> = (0..4 * 4 * 4 * 8).map(|i| if i % 8 < 2 { 4.0 } else { 0.0 }).collect();
        let duct = picture("stokes:4x4x4,tau=0.25", &x).unwrap().unwrap();
        assert!(duct.values.iter().all(|v| (v - 1.0).abs() < 1e-12));
        // A linear function is reproduced exactly between nodes.
        let x: Vec<f64> = (0..3 * 3 * 3).flat_map(|i| [f64::from(i % 3), 0.0, 0.0]).collect();
        let bar = picture("elasticity:3x3x3", &x).unwrap().unwrap();
        let exact = |i: usize| 2.0 * (i as f64 + 0.5) / bar.columns as f64;
        assert!(bar.values.iter().enumerate().all(|(k, v)| (v - exact(k % bar.columns)).abs() < 1e-12));
    }
}

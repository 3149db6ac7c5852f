//! Directions of fibres and sheets by a rule, from the mesh alone.
//!
//! The rule is that of Bayer, Blake, Plank and Trayanova (2012), a Laplace–Dirichlet rule for one ventricle.
//! The depth φ in the wall is harmonic, 0 on the endocardium and 1 on the epicardium. ψ is harmonic, 0 at the
//! apex and 1 on the base. In each tetrahedron the sheet lies along ∇φ and `up` along the part of ∇ψ that is
//! orthogonal to it. The apex is the node of the epicardium that lies deepest below the base.

use krylith_core::{Error, Options, Result, Solver};
use rayon::prelude::*;

use super::{PARALLEL, Part, VentricleOptions, beside, faces, turned, unit};
use crate::solid::Axes;
use crate::tets::{Rows, Shape, TetMesh, area, cross, dot};

/// Differences of a function within a tetrahedron, below which it has no direction there.
const FLAT: f64 = 1e-7;

/// Returns the directions in each tetrahedron.
///
/// # Errors
/// Returns an error if the mesh lacks a surface, and if a Laplace problem cannot be solved.
pub(super) fn axes(mesh: &TetMesh, options: &VentricleOptions) -> Result<Vec<Axes>> {
    let find = |part| faces(mesh, options, part);
    let [base, inside, outside] = [find(Part::Base)?, find(Part::Endocardium)?, find(Part::Epicardium)?];
    let nodes = TetMesh::nodes_of(&outside);
    let apex = apex(mesh, &base, &nodes)?;
    let depth = harmonic(mesh, &[(&nodes, 1.0), (&TetMesh::nodes_of(&inside), 0.0)])?;
    let way = harmonic(mesh, &[(&TetMesh::nodes_of(&base), 1.0), (&[apex], 0.0)])?;
    let [across, along] = [&depth, &way].map(|values| gradients(mesh, values));
    let directions = (0..mesh.tetrahedra().len()).into_par_iter().with_min_len(1024).map(|t| {
        let out = unit(across[t], 0.0).unwrap_or([0.0, 0.0, 1.0]);
        let way = unit(along[t], 0.0).unwrap_or(out);
        let share = dot(way, out);
        let up = [0, 1, 2].map(|d| way[d] - share * out[d]);
        let up = unit(up, PARALLEL).unwrap_or_else(|| beside(out));
        let depth = mesh.tetrahedra()[t].iter().map(|&p| 0.25 * depth[p as usize]).sum();
        turned(cross(up, out), up, depth)
    });
    Ok(directions.collect())
}

/// Returns the node of `among` that lies deepest below the base.
fn apex(mesh: &TetMesh, base: &[[u32; 3]], among: &[u32]) -> Result<u32> {
    let mut normal = [0.0; 3];
    for face in base {
        let own = area(face.map(|p| mesh.points()[p as usize]));
        (0..3).for_each(|d| normal[d] += own[d]);
    }
    let height = |&p: &u32| dot(normal, mesh.points()[p as usize]);
    let lowest = among.iter().copied().min_by(|p, q| height(p).total_cmp(&height(q)));
    lowest.ok_or_else(|| Error::invalid("the epicardium has no faces, so the mesh has no apex"))
}

/// Returns the harmonic function with these values on sets of nodes; the last set decides on common nodes.
fn harmonic(mesh: &TetMesh, given: &[(&[u32], f64)]) -> Result<Vec<f64>> {
    let n = mesh.points().len();
    let mut fixed = vec![None; n];
    for (nodes, value) in given {
        nodes.iter().for_each(|&p| fixed[p as usize] = Some(*value));
    }
    let rows = Rows::new(mesh, n, 1)?;
    let mut matrix = rows.pattern().clone();
    // Known values leave the rows of others, so the matrix stays symmetric.
    let entries = |i: usize, mut add: &mut dyn FnMut(usize, u32, f64)| {
        let add = &mut add;
        for (&corner, places) in mesh.around(i).iter().zip(rows.places(i)) {
            let (t, a) = (mesh.tetrahedra()[corner as usize / 4], corner as usize % 4);
            let shape = Shape::of(t.map(|p| mesh.points()[p as usize]));
            for b in 0..4 {
                add(places[b] as usize, t[b], shape.volume * dot(shape.gradients[a], shape.gradients[b]));
            }
        }
    };
    rows.jacobian(matrix.values_mut(), |i, row| {
        entries(i, &mut |at, j, value| {
            if j as usize == i || (fixed[i].is_none() && fixed[j as usize].is_none()) {
                row[at] += value;
            }
        });
    });
    let mut rhs = vec![0.0; n];
    rows.residual(&mut rhs, |i, sum| {
        entries(i, &mut |_, j, value| match (fixed[i], fixed[j as usize]) {
            (Some(own), _) if j as usize == i => sum[0] += value * own,
            (None, Some(other)) => sum[0] -= value * other,
            _ => {}
        });
    });
    let mut options: Options = "device=cpu rtol=1e-11".parse()?;
    options.threads = Some(rayon::current_num_threads());
    let mut values: Vec<f64> = fixed.iter().map(|value| value.unwrap_or(0.5)).collect();
    let mut solver = Solver::new(&matrix, &options)?;
    let solution = solver.solve(&rhs, &mut values[..])?;
    if !solution.converged() {
        return Err(Error::invalid(format!(
            "the Laplace problem of the fibres ended with {:?}; give the fields `fibre` and `sheet` in the file",
            solution.outcome()
        )));
    }
    Ok(values)
}

/// Returns the gradient of a function in each tetrahedron. Where it is constant, as with all corners on one
/// surface, it is the sum over the tetrahedra that share a corner.
fn gradients(mesh: &TetMesh, values: &[f64]) -> Vec<[f64; 3]> {
    let gradient = |t: &[u32; 4]| {
        let shape = Shape::of(t.map(|p| mesh.points()[p as usize]));
        let of = |d: usize| (0..4).map(|a| values[t[a] as usize] * shape.gradients[a][d]).sum();
        [of(0), of(1), of(2)]
    };
    let own = |t: &[u32; 4]| {
        let corners = t.map(|p| values[p as usize]);
        let spread = corners.iter().fold(0.0f64, |most, x| most.max((x - corners[0]).abs()));
        if spread > FLAT {
            return gradient(t);
        }
        let around = t.iter().flat_map(|&p| mesh.around(p as usize));
        around.fold([0.0; 3], |sum, &corner| {
            let near = gradient(&mesh.tetrahedra()[corner as usize / 4]);
            [0, 1, 2].map(|d| sum[d] + near[d])
        })
    };
    mesh.tetrahedra().par_iter().with_min_len(1024).map(own).collect()
}

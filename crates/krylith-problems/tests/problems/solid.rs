//! The elastic body compared with results of mechanics.

use crate::common::newton::{cube, each_point, jacobian_error, l2_error, newton, noise, norm};
use krylith_core::newton::NonlinearSystem;
use krylith_problems::solid::{Axes, Material, Solid};
use krylith_problems::tets::TetMesh;

const SOFT: Material = Material {
    a: 2.0,
    b: 1.5,
    a_f: 1.0,
    b_f: 1.2,
    a_s: 0.7,
    b_s: 0.9,
    a_fs: 0.5,
    b_fs: 1.1,
    kappa: 5.0,
    tension: 0.0,
    cross: 0.0,
};
const AXES: Axes = [[0.6, 0.0, 0.8], [-0.8, 0.0, 0.6]];
/// Fibres along x and sheets along y.
const STRAIGHT: Axes = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]];

fn residual(solid: &mut Solid, u: &[f64]) -> Vec<f64> {
    let mut f = vec![f64::NAN; u.len()];
    solid.residual(u, &mut f).unwrap();
    f
}

/// Returns the displacement that multiplies the position of every node by a matrix.
fn affine(mesh: &TetMesh, a: [[f64; 3]; 3]) -> Vec<f64> {
    mesh.points().iter().flat_map(|x| a.map(|row| row[0] * x[0] + row[1] * x[1] + row[2] * x[2])).collect()
}

#[test]
fn an_affine_displacement_is_in_equilibrium() {
    let (mesh, outside) = cube(5);
    let u = affine(&mesh, [[0.1, 0.05, -0.1], [0.02, -0.05, 0.1], [0.03, 0.07, 0.2]]);
    let fibres = vec![AXES; mesh.tetrahedra().len()];
    let nodes = outside.len();
    let mut solid = Solid::new(mesh, SOFT, fibres, vec![None; nodes]).unwrap();
    let f = residual(&mut solid, &u);
    let inner = (0..nodes).filter(|&i| !outside[i]).flat_map(|i| 3 * i..3 * i + 3);
    let worst = inner.fold(0.0f64, |m, k| m.max(f[k].abs()));
    let outer = f.iter().fold(0.0f64, |m, x| m.max(x.abs()));
    assert!(worst < 1e-14 * SOFT.kappa && outer > 1e-3, "{worst} inside, {outer} outside");
    // The stress is uniform, so the energy is its density at a point times the volume of 1.
    let gradient = [[1.1, 0.05, -0.1], [0.02, 0.95, 0.1], [0.03, 0.07, 1.2]];
    let energy = SOFT.energy(&gradient, AXES);
    assert!((solid.energy(&u) - energy).abs() < 1e-13 * energy);
}

#[test]
fn a_rotation_moves_nothing_else() {
    let (mesh, _) = cube(4);
    let (c, s) = (28f64.to_radians().cos(), 28f64.to_radians().sin());
    let u = affine(&mesh, [[c - 1.0, -s, 0.0], [s, c - 1.0, 0.0], [0.0, 0.0, 0.0]]);
    let (nodes, fibres) = (mesh.points().len(), vec![AXES; mesh.tetrahedra().len()]);
    let mut solid = Solid::new(mesh, SOFT, fibres, vec![None; nodes]).unwrap();
    let worst = residual(&mut solid, &u).iter().fold(0.0f64, |m, x| m.max(x.abs()));
    assert!(worst < 1e-14 && solid.energy(&u).abs() < 1e-14, "{worst}");
}

#[test]
fn an_element_turned_inside_out_is_not_a_number() {
    let (mesh, _) = cube(3);
    let u: Vec<f64> = mesh.points().iter().flat_map(|x| [-2.0 * x[0], 0.0, 0.0]).collect();
    let (nodes, fibres) = (mesh.points().len(), vec![AXES; mesh.tetrahedra().len()]);
    let mut solid = Solid::new(mesh, SOFT, fibres, vec![None; nodes]).unwrap();
    assert!(norm(&residual(&mut solid, &u)).is_nan());
}

/// u = (x/10, 0, 0) + 0.03 sin πx sin πy sin πz (1, −1/2, 4/5), which keeps fibres along x stretched.
fn exact(x: [f64; 3]) -> [f64; 3] {
    let wave = 0.03 * x.iter().map(|x| (std::f64::consts::PI * x).sin()).product::<f64>();
    [0.1 * x[0] + wave, -0.5 * wave, 0.8 * wave]
}

/// Computes −Div P of the displacement [`exact`], by differences of fourth order.
fn force(x: [f64; 3]) -> [f64; 3] {
    const S: f64 = 2e-3;
    let derivative = |f: &dyn Fn([f64; 3]) -> [f64; 3], x: [f64; 3], d: usize| {
        let at = |k: f64| {
            let mut y = x;
            y[d] += k * S;
            f(y)
        };
        let values = [at(-2.0), at(-1.0), at(1.0), at(2.0)];
        std::array::from_fn::<f64, 3, _>(|i| {
            (values[0][i] - 8.0 * values[1][i] + 8.0 * values[2][i] - values[3][i]) / (12.0 * S)
        })
    };
    let stress = |x: [f64; 3], d: usize| {
        let columns = [0, 1, 2].map(|d| derivative(&exact, x, d));
        let f = [0, 1, 2].map(|i| [0, 1, 2].map(|d| f64::from(u8::from(i == d)) + columns[d][i]));
        let p = SOFT.stress(&f, STRAIGHT);
        [p[0][d], p[1][d], p[2][d]]
    };
    let all = [0, 1, 2].map(|d| derivative(&|y| stress(y, d), x, d));
    std::array::from_fn(|i| -(all[0][i] + all[1][i] + all[2][i]))
}

#[test]
fn the_error_is_of_second_order() {
    let error = |n: usize| {
        let (mesh, outside) = cube(n);
        let mut load = vec![0.0; 3 * outside.len()];
        each_point(&mesh, |t, weights, x, weight| {
            let force = force(x);
            for (&p, w) in t.iter().zip(weights) {
                (0..3).for_each(|c| load[3 * p as usize + c] += weight * w * force[c]);
            }
        });
        let given = mesh.points().iter().zip(&outside).map(|(x, out)| out.then(|| exact(*x))).collect();
        let axes = vec![STRAIGHT; mesh.tetrahedra().len()];
        let mut solid = Solid::new(mesh, SOFT, axes, given).unwrap();
        solid.load_mut().copy_from_slice(&load);
        let mut u = affine(solid.mesh(), [[0.1, 0.0, 0.0], [0.0; 3], [0.0; 3]]);
        let norms = newton(&mut solid, &mut u, 1e-9, 20);
        assert!(norms[norms.len() - 1] <= 1e-9 * norms[0], "{norms:?}");
        l2_error(solid.mesh(), |p, c| u[3 * p + c], exact)
    };
    let errors = [error(5), error(9), error(13)];
    let orders = [(errors[0] / errors[1]).log2(), (errors[1] / errors[2]).ln() / 1.5f64.ln()];
    assert!(orders[0] > 1.7 && orders[1] > 1.85, "errors {errors:?}, orders {orders:?}");
}

#[test]
fn the_jacobian_is_the_derivative() {
    let (mesh, outside) = cube(4);
    let (nodes, fibres) = (outside.len(), vec![AXES; mesh.tetrahedra().len()]);
    let given = outside.iter().enumerate().map(|(i, out)| (*out && i % 3 == 0).then_some([0.0; 3])).collect();
    let mut solid = Solid::new(mesh, SOFT, fibres, given).unwrap();
    solid.set_inertia(0.7).unwrap();
    solid.set_tension(0.8);
    let u: Vec<f64> = noise(3 * nodes, 1).iter().map(|x| 0.04 * x).collect();
    for seed in 2..5 {
        let error = jacobian_error(&mut solid, &u, &noise(3 * nodes, seed), 1e-6);
        assert!(error < 1e-7, "direction {seed}: {error}");
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let (mesh, _) = cube(3);
    let nodes = mesh.points().len();
    let fibres = vec![AXES; mesh.tetrahedra().len()];
    let error = Solid::new(mesh.clone(), SOFT, vec![AXES; 2], vec![None; nodes]).unwrap_err().to_string();
    assert!(error.contains("2 fibres and 27 displacements for 48 tetrahedra and 27 nodes"), "{error}");
    let bad = Material { kappa: -1.0, ..SOFT };
    let error = Solid::new(mesh.clone(), bad, fibres.clone(), vec![None; nodes]).unwrap_err().to_string();
    assert!(error.contains("material is -1"), "{error}");
    for (bad, named) in [
        (Material { a_s: -1.0, ..SOFT }, "a_s of the material is -1"),
        (Material { b_fs: 0.0, ..SOFT }, "a constant of the material is 0"),
        (Material { tension: f64::NAN, ..SOFT }, "the tension of the material is NaN"),
        (Material { cross: 1.5, ..SOFT }, "is 1.5; it must be at most 1"),
    ] {
        let made = Solid::new(mesh.clone(), bad, fibres.clone(), vec![None; nodes]);
        let error = made.unwrap_err().to_string();
        assert!(error.contains(named), "{error}");
    }
    let mut solid = Solid::new(mesh, SOFT, fibres, vec![None; nodes]).unwrap();
    let error = solid.press("inside", 1.0).unwrap_err().to_string();
    assert!(error.contains("no surface `inside`"), "{error}");
    let error = solid.residual(&[0.0; 4], &mut [0.0; 81]).unwrap_err().to_string();
    assert!(error.contains("displacements with 4 numbers for 81 unknowns"), "{error}");
}

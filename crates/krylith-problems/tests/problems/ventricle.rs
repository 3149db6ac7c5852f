//! The ventricle: its tangent, Newton's method, and the balance of energy over time.

use crate::common::newton::{jacobian_error, newton, noise};
use krylith_problems::nonlinear::NonlinearProblem;
use krylith_problems::solid::Material;
use krylith_problems::ventricle::{Ventricle, VentricleOptions};

/// Returns the volume inside the inner surface, up to a constant.
fn cavity(ventricle: &Ventricle, u: &[f64]) -> f64 {
    let mesh = ventricle.solid().mesh();
    let at = |p: u32| {
        let x = mesh.points()[p as usize];
        [0, 1, 2].map(|d| x[d] + u[3 * p as usize + d])
    };
    let volume = |face: &[u32; 3]| {
        let [a, b, c] = face.map(at);
        a[0] * (b[1] * c[2] - b[2] * c[1])
            + a[1] * (b[2] * c[0] - b[0] * c[2])
            + a[2] * (b[0] * c[1] - b[1] * c[0])
    };
    -mesh.surface("endocardium").unwrap().iter().map(volume).sum::<f64>() / 6.0
}

fn solve(ventricle: &mut Ventricle, x: &mut [f64]) -> Vec<f64> {
    let norms = newton(ventricle, x, 1e-9, 12);
    assert!(norms[norms.len() - 1] <= 1e-9 * norms[0], "{norms:?}");
    norms
}

#[test]
fn the_jacobian_is_the_derivative() {
    let active = Material { tension: 6e4, cross: 0.2, ..Material::default() };
    for material in [Material::default(), active] {
        let options =
            VentricleOptions { cells: 823, ramp: 1e-3, pressure: 5000.0, material, ..Default::default() };
        let mut ventricle = Ventricle::new(options).unwrap();
        let n = ventricle.initial().len();
        let u: Vec<f64> = noise(n, 7).iter().map(|x| 0.05 * x).collect();
        for seed in 2..5 {
            let error = jacobian_error(&mut ventricle, &u, &noise(n, seed), 1e-6);
            assert!(error < 1e-6, "{} Pa, direction {seed}: {error}", material.tension);
        }
    }
}

/// Without pressure, tension shortens the fibres and presses the blood out.
#[test]
fn tension_contracts_the_ventricle() {
    let material = Material { tension: 5e3, ..Material::default() };
    let options = VentricleOptions {
        cells: 823,
        dt: 0.01,
        ramp: 0.02,
        pressure: 0.0,
        steps: 3,
        material,
        ..Default::default()
    };
    let mut ventricle = Ventricle::new(options).unwrap();
    let mut x = ventricle.initial();
    let mut volumes = vec![cavity(&ventricle, &x)];
    for step in 1..=3 {
        solve(&mut ventricle, &mut x);
        volumes.push(cavity(&ventricle, &x));
        ventricle.next_step(&mut x).unwrap();
        let (found, wanted) =
            (ventricle.tension(0.01 * f64::from(step)), [0.0, 2.5e3, 5e3, 5e3][step as usize]);
        assert!((found - wanted).abs() < 1e-6, "step {step}: {found} Pa");
    }
    assert!(volumes[1..].iter().all(|v| *v < 0.8 * volumes[0]), "{volumes:?}");
    let (solid, mut stretch) = (ventricle.solid(), 0.0);
    for (t, [fibre, _]) in solid.mesh().tetrahedra().iter().zip(solid.axes()) {
        // The stretch of a fibre, by differences of the linear displacement.
        let [at, moved] = [0.0, 1.0].map(|s| {
            t.map(|p| [0, 1, 2].map(|d| solid.mesh().points()[p as usize][d] + s * x[3 * p as usize + d]))
        });
        let edges = |x: [[f64; 3]; 4]| [1, 2, 3].map(|k| [0, 1, 2].map(|d| x[k][d] - x[0][d]));
        let (before, after) = (edges(at), edges(moved));
        let weights = solve_three(before, *fibre);
        let length = |d: usize| (0..3).map(|k| weights[k] * after[k][d]).sum::<f64>();
        stretch += (0..3).map(|d| length(d).powi(2)).sum::<f64>().sqrt() / solid.axes().len() as f64;
    }
    assert!((0.8..0.99).contains(&stretch), "{stretch}");
}

/// Returns w with Σ w_k a_k = b.
fn solve_three(a: [[f64; 3]; 3], b: [f64; 3]) -> [f64; 3] {
    let det = |m: [[f64; 3]; 3]| {
        m[0][0] * (m[1][1] * m[2][2] - m[1][2] * m[2][1]) - m[0][1] * (m[1][0] * m[2][2] - m[1][2] * m[2][0])
            + m[0][2] * (m[1][0] * m[2][1] - m[1][1] * m[2][0])
    };
    [0, 1, 2].map(|k| {
        let mut replaced = a;
        replaced[k] = b;
        det(replaced) / det(a)
    })
}

#[test]
fn newton_converges_over_time_steps() {
    let options = VentricleOptions { cells: 823, dt: 0.005, ramp: 0.05, ..Default::default() };
    let mut ventricle = Ventricle::new(options).unwrap();
    let mut x = ventricle.initial();
    for step in 1..=3 {
        let norms = solve(&mut ventricle, &mut x);
        let tail: Vec<f64> = norms.iter().map(|n| n / norms[0]).collect();
        let squared = tail.windows(2).filter(|w| w[0] < 1e-3 && w[1] > 1e-11);
        squared.for_each(|w| assert!(w[1] < 10.0 * w[0] * w[0], "step {step}: {tail:?}"));
        assert!(norms.len() <= 9, "step {step}: {tail:?}");
        assert_eq!(ventricle.next_step(&mut x).unwrap(), step < 3);
    }
}

/// The work of the pressure becomes kinetic and elastic energy.
#[test]
fn energy_is_balanced() {
    let options = VentricleOptions { cells: 823, dt: 0.001, ramp: 0.02, steps: 30, ..Default::default() };
    let mut ventricle = Ventricle::new(options).unwrap();
    let mut x = ventricle.initial();
    let (mut work, mut volume, mut pressure) = (0.0, cavity(&ventricle, &x), 0.0);
    loop {
        solve(&mut ventricle, &mut x);
        let (after, next) = (cavity(&ventricle, &x), ventricle.pressure(ventricle.time().unwrap()));
        work += 0.5 * (pressure + next) * (after - volume);
        (volume, pressure) = (after, next);
        if !ventricle.next_step(&mut x).unwrap() {
            break;
        }
        let [motion, elastic] = ventricle.energies();
        let lost = work - motion - elastic;
        assert!(lost.abs() < 0.01 * work, "{:?} s: {work} = {motion} + {elastic} + {lost}", ventricle.time());
    }
}

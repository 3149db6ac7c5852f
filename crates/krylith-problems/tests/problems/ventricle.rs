//! The ventricle: its tangent, Newton's method, and the balance of energy over time.

use crate::common::newton::{jacobian_error, newton, noise};
use krylith_problems::nonlinear::NonlinearProblem;
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
    let options = VentricleOptions { cells: 823, ramp: 1e-3, pressure: 5000.0, ..Default::default() };
    let mut ventricle = Ventricle::new(options).unwrap();
    let n = ventricle.initial().len();
    let u: Vec<f64> = noise(n, 7).iter().map(|x| 0.05 * x).collect();
    for seed in 2..5 {
        let error = jacobian_error(&mut ventricle, &u, &noise(n, seed), 1e-6);
        assert!(error < 1e-6, "direction {seed}: {error}");
    }
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

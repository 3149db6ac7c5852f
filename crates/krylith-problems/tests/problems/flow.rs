//! The flow against exact solutions of the Navier–Stokes equations.

use crate::common::newton::{cube, jacobian_error, l2_error, newton, noise};
use krylith_problems::flow::{Flow, Fluid};
use std::f64::consts::{FRAC_PI_2, FRAC_PI_4};

const FLUID: Fluid = Fluid { density: 1.0, viscosity: 0.1 };

/// Velocity and pressure of Ethier and Steinman (1994): every term of the equations takes part.
fn swirl([x, y, z]: [f64; 3], t: f64) -> [f64; 4] {
    let (a, d) = (FRAC_PI_4, FRAC_PI_2);
    let decay = (-FLUID.viscosity * d * d * t).exp();
    let wave = |p: f64, q: f64, r: f64| {
        -a * ((a * p).exp() * (a * q + d * r).sin() + (a * r).exp() * (a * p + d * q).cos()) * decay
    };
    let product =
        |p: f64, q: f64, r: f64| 2.0 * (a * p + d * q).sin() * (a * r + d * p).cos() * (a * (q + r)).exp();
    let squares: f64 = [x, y, z].iter().map(|x| (2.0 * a * x).exp()).sum();
    let p = squares + product(x, y, z) + product(y, z, x) + product(z, x, y);
    [wave(x, y, z), wave(y, z, x), wave(z, x, y), -0.5 * a * a * p * decay * decay]
}

fn at(flow: &Flow, t: f64) -> Vec<f64> {
    flow.mesh().points().iter().flat_map(|x| swirl(*x, t)).collect()
}

#[test]
fn an_unsteady_flow_is_met() {
    let error = |n: usize, steps: usize| {
        let (mesh, outside) = cube(n);
        // The pressure is prescribed on one side; in a single node it would balance the error of the inflow
        // through the others.
        let points = mesh.points().iter().zip(&outside);
        let fixed = points.map(|(x, &out)| [out, out, out, x[0] == 1.0]).collect();
        let mut flow = Flow::new(mesh, FLUID, fixed).unwrap();
        let dt = 0.08 / steps as f64;
        let (mut before, mut x) = (at(&flow, -dt), at(&flow, 0.0));
        for step in 1..=steps {
            let last = x.clone();
            flow.begin(dt, &last, Some(&before)).unwrap();
            let exact = at(&flow, step as f64 * dt);
            flow.given_mut().copy_from_slice(&exact);
            flow.put_given(&mut x);
            let norms = newton(&mut flow, &mut x, 1e-8, 8);
            assert!(norms[norms.len() - 1] <= 1e-8 * norms[0], "{n} nodes, step {step}: {norms:?}");
            before = last;
        }
        l2_error(
            flow.mesh(),
            |p, c| x[4 * p + c],
            |x| {
                let [u, v, w, _] = swirl(x, 0.08);
                [u, v, w]
            },
        )
    };
    let errors = [error(5, 2), error(9, 4)];
    let order = (errors[0] / errors[1]).log2();
    assert!(order > 1.75, "errors {errors:?}, order {order}");
}

#[test]
fn a_channel_has_its_parabola() {
    let error = |n: usize| {
        let (mesh, _) = cube(n);
        let profile = |x: [f64; 3]| [4.0 * x[1] * (1.0 - x[1]), 0.0, 0.0];
        // Given on all sides but the outlet x = 1.
        let given = |x: &[f64; 3]| x[0] == 0.0 || x[1] % 1.0 == 0.0 || x[2] % 1.0 == 0.0;
        let fixed = mesh.points().iter().map(|x| [given(x), given(x), given(x), false]).collect();
        let mut flow = Flow::new(mesh, FLUID, fixed).unwrap();
        let exact: Vec<f64> = flow
            .mesh()
            .points()
            .iter()
            .flat_map(|x| [profile(*x)[0], 0.0, 0.0, 8.0 * FLUID.viscosity * (1.0 - x[0])])
            .collect();
        flow.begin(1e9, &exact, None).unwrap();
        flow.given_mut().copy_from_slice(&exact);
        let mut x = vec![0.0; exact.len()];
        flow.put_given(&mut x);
        let norms = newton(&mut flow, &mut x, 1e-9, 12);
        assert!(norms[norms.len() - 1] <= 1e-9 * norms[0], "{norms:?}");
        let velocity = l2_error(flow.mesh(), |p, c| x[4 * p + c], profile);
        let pressure = |x: [f64; 3]| [8.0 * FLUID.viscosity * (1.0 - x[0])];
        [velocity, l2_error(flow.mesh(), |p, _| x[4 * p + 3], pressure)]
    };
    let errors = [error(5), error(9), error(13)];
    let orders = [0, 1].map(|k| (errors[1][k] / errors[2][k]).ln() / 1.5f64.ln());
    assert!(orders[0] > 1.8 && orders[1] > 1.5, "errors {errors:?}, orders {orders:?}");
}

#[test]
fn the_jacobian_is_the_derivative() {
    let (mesh, outside) = cube(4);
    let fixed = outside.iter().enumerate().map(|(i, out)| [*out && i % 2 == 0; 4]).collect();
    let mut flow = Flow::new(mesh, Fluid { density: 1.3, viscosity: 0.01 }, fixed).unwrap();
    let n = 4 * outside.len();
    for (seed, before) in [(1, false), (2, true)] {
        let last = noise(n, 10 + seed);
        let other = noise(n, 20 + seed);
        flow.begin(0.05, &last, before.then_some(&other)).unwrap();
        let error = jacobian_error(&mut flow, &noise(n, 30 + seed), &noise(n, 40 + seed), 1e-5);
        assert!(error < 1e-8, "BDF2 {before}: {error}");
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let (mesh, outside) = cube(3);
    let n = outside.len();
    let error = Flow::new(mesh.clone(), FLUID, vec![[false; 4]; 2]).unwrap_err().to_string();
    assert!(error.contains("2 boundary conditions for 27 nodes"), "{error}");
    let thin = Fluid { density: 1.0, viscosity: 0.0 };
    let error = Flow::new(mesh.clone(), thin, vec![[false; 4]; n]).unwrap_err().to_string();
    assert!(error.contains("the fluid is 0"), "{error}");
    let mut flow = Flow::new(mesh, FLUID, vec![[false; 4]; n]).unwrap();
    assert!(flow.begin(0.0, &vec![0.0; 4 * n], None).unwrap_err().to_string().contains("time step of 0"));
    assert!(flow.begin(1.0, &[0.0; 3], None).unwrap_err().to_string().contains("3 numbers for 108"));
    assert!(flow.outflow("wall", &vec![0.0; 4 * n]).unwrap_err().to_string().contains("no surface `wall`"));
}

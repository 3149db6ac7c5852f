//! Orders in τ on a fixed mesh, against a reference of the same semi-discrete problem.
//!
//! M U' + L U = F is a linear differential-algebraic system. The stabilisation S makes it of index 1, except
//! for the constant pressure, which S annihilates: there it is of index 2 (the flux through the duct is
//! prescribed). General index-2 theory (Hairer, Lubich & Roche, 1989) gives, for velocity y and pressure z of
//! s-stage schemes,
//!
//! ```text
//!                 y                      z
//! Radau IIA       2s − 1                 s
//! Lobatto IIIC    2s − 2                 s − 1
//! Gauss           s + 1 odd, s even      s − 1 odd, s − 2 even
//! ```
//!
//! These tests assert higher orders. The constraint is linear with constant coefficients, and boundary
//! velocities enter it through their stage derivatives. So every stage meets the differentiated constraint
//! exactly, and the scheme behaves as on the equivalent ordinary differential equation. Velocity has the
//! classical order, and so has the pressure of stiffly accurate schemes. Gauss schemes multiply the pressure
//! error by R(∞) = (−1)^s, with stage errors of O(τ^{s+1}): order s for even s, where errors add up, and
//! s + 1 for odd s, where they cancel in pairs.

use crate::common;
use krylith_core::matrix::Butcher;
use krylith_problems::{DuctData, InletRamp, StokesDuct, StokesOptions};

/// Orders of (velocity, pressure) that index-2 theory guarantees.
fn promised(name: &str, s: i32) -> [i32; 2] {
    match name {
        "implicit-euler" => [1, 1],
        _ if name.starts_with("radau") => [2 * s - 1, s],
        _ if name.starts_with("lobatto") => [2 * s - 2, s - 1],
        _ => [s + s % 2, s - 2 + s % 2],
    }
}

/// Orders of (velocity, pressure) that this problem reaches.
fn expected(name: &str, s: i32) -> [i32; 2] {
    match name {
        "implicit-euler" => [1, 1],
        _ if name.starts_with("radau") => [2 * s - 1; 2],
        _ if name.starts_with("lobatto") => [2 * s - 2; 2],
        _ => [2 * s, s + s % 2],
    }
}

fn stages(name: &str) -> i32 {
    Butcher::by_name(name).unwrap().stages() as i32
}

fn check_orders(nodes: [usize; 3], nu: f64, counts: &[usize]) {
    // Errors below this are rounding: the error of the reference itself is about 1e-14.
    const FLOOR: f64 = 3e-13;
    let end = 1.5;
    let duct = StokesDuct::new(StokesOptions { nodes, nu, ..Default::default() }).unwrap();
    let reference = common::march(&duct, "radau-iia-4", end, 128);
    println!("nodes {nodes:?}, nu {nu}: error and observed order at t = {end}; (index-2 theory)");
    // With more than four stages a few steps reach rounding, so no order shows.
    for &name in Butcher::names().iter().filter(|name| stages(name) <= 4) {
        let s = stages(name);
        let errors: Vec<[f64; 2]> = counts
            .iter()
            .map(|&count| common::difference(&common::march(&duct, name, end, count), &reference))
            .collect();
        let mut line = format!("{name:15}");
        for (kind, what) in ["velocity", "pressure"].into_iter().enumerate() {
            let last = errors.iter().rposition(|e| e[kind] > FLOOR).unwrap();
            assert!(last >= 1, "{name}: {what} shows no order");
            let ratio = counts[last] as f64 / counts[last - 1] as f64;
            let order = (errors[last - 1][kind] / errors[last][kind]).ln() / ratio.ln();
            let (want, theory) = (expected(name, s)[kind], promised(name, s)[kind]);
            line += &format!(
                " | {what} {:.1e} at {:2} steps: {order:5.2} of {want} ({theory})",
                errors[last][kind], counts[last]
            );
            assert!(want >= theory);
            assert!(order >= f64::from(want) - 0.25, "{line}");
        }
        println!("{line}");
    }
}

#[test]
fn every_scheme_has_its_order() {
    check_orders([4, 4, 4], 0.01, &[4, 8, 16, 32, 64]);
}

/// `cargo test -p krylith-problems -- --ignored` (tests are built with optimisation; `--release` gains
/// little).
#[test]
#[ignore = "long"]
fn every_scheme_has_its_order_on_a_finer_mesh() {
    check_orders([6, 5, 5], 0.02, &[6, 12, 24, 48, 96]);
}

/// One step of schemes of order 9 and more is about as accurate as 16 steps of order 7.
#[test]
fn five_to_eight_stages_are_accurate() {
    let duct = StokesDuct::new(StokesOptions { nodes: [3, 3, 4], ..Default::default() }).unwrap();
    let (end, reference) = (0.5, common::march(&duct, "radau-iia-4", 0.5, 16));
    for &name in Butcher::names().iter().filter(|name| stages(name) > 4) {
        let [velocity, pressure] = common::difference(&common::march(&duct, name, end, 1), &reference);
        // The pressure of Gauss schemes has half the order.
        let bound = if name.starts_with("gauss") { 1e-3 } else { 1e-7 };
        assert!(velocity < 1e-7 && pressure < bound, "{name}: {velocity:e}, {pressure:e}");
    }
}

/// The stage derivative of a prescribed velocity is g'(t + c_k τ), and the state carries Σ b_k g'.
#[test]
fn dirichlet_rows_give_the_rates() {
    let (data, tau, t) = (InletRamp::default(), 0.1, 0.3);
    let duct = StokesDuct::new(StokesOptions { nodes: [3, 4, 5], nu: 0.3, ..Default::default() }).unwrap();
    for &name in Butcher::names() {
        let butcher = Butcher::by_name(name).unwrap();
        let s = butcher.stages();
        let mut solver = common::Solver::new(&duct, name, tau);
        // The state does not matter, because these rows are decoupled from it.
        let mut u: Vec<f64> = (0..duct.mass.rows()).map(|i| (i as f64).sin()).collect();
        solver.step(t, &mut u);
        for i in (0..duct.mesh.nodes()).filter(|&i| duct.mesh.is_dirichlet(i)) {
            for (k, c) in butcher.c.iter().enumerate() {
                let rate = data.velocity_rate(duct.mesh.coordinate(i), t + c * tau);
                for d in 0..3 {
                    let got = solver.stages()[(4 * i + d) * s + k];
                    assert!((got - rate[d]).abs() < 1e-12, "{name}, node {i}: {got} is not {}", rate[d]);
                }
            }
        }
    }
}

/// The inflow equals the outflow: B u + S p = 0 holds after the steps as well as before them.
#[test]
fn steps_keep_the_constraint() {
    let duct = StokesDuct::new(StokesOptions { nodes: [5, 4, 4], ..Default::default() }).unwrap();
    for name in ["implicit-euler", "gauss-2", "gauss-3", "radau-iia-2", "lobatto-iiic-3"] {
        let u = common::march(&duct, name, 0.9, 6);
        // At t = 1 the inflow peaks and its rate is 0, so prescribed velocities add nothing to this
        // right-hand side.
        let mut steps = duct.steps(&Butcher::by_name("implicit-euler").unwrap(), 0.1).unwrap();
        let mut rhs = vec![0.0; u.len()];
        steps.rhs_into(0.9, &u, &mut rhs).unwrap();
        for i in 0..duct.mesh.nodes() {
            assert!(rhs[4 * i + 3].abs() < 1e-13, "{name}: {:e} at node {i}", rhs[4 * i + 3]);
        }
    }
}

//! Orders in h for manufactured solutions, with sources and traction; errors are integrals over tetrahedra.

use crate::common;
use std::f64::consts::PI;
use std::sync::Arc;

use krylith_problems::{DuctData, DuctMesh, StokesDuct, StokesOptions};

/// A smooth divergence-free flow, times θ(t).
#[derive(Clone, Copy)]
struct Exact {
    nu: f64,
    /// θ = sin²(πt/2) if true, else 1.
    unsteady: bool,
}

const K: f64 = 2.0;

impl Exact {
    fn theta(&self, t: f64) -> (f64, f64) {
        if self.unsteady { ((PI * t / 2.0).sin().powi(2), PI / 2.0 * (PI * t).sin()) } else { (1.0, 0.0) }
    }
    fn shape([x, y, z]: [f64; 3]) -> [f64; 3] {
        let [sx, sy, sz] = [x, y, z].map(|v| (K * v).sin());
        let [cx, cy, cz] = [x, y, z].map(|v| (K * v).cos());
        [2.0 * sx * cy * cz, -cx * sy * cz, -cx * cy * sz]
    }
    fn pressure_shape([x, y, z]: [f64; 3]) -> f64 {
        (K * x).cos() * (K * y + 0.3).sin() * (1.0 + z)
    }
    /// Velocity and pressure.
    fn solution(&self, x: [f64; 3], t: f64) -> [f64; 4] {
        let (theta, u) = (self.theta(t).0, Self::shape(x));
        [theta * u[0], theta * u[1], theta * u[2], theta * Self::pressure_shape(x)]
    }
}

impl DuctData for Exact {
    fn velocity_rate(&self, x: [f64; 3], t: f64) -> [f64; 3] {
        Self::shape(x).map(|u| self.theta(t).1 * u)
    }
    fn has_sources(&self) -> bool {
        true
    }
    fn force(&self, x: [f64; 3], t: f64) -> [f64; 3] {
        let (theta, rate) = self.theta(t);
        let u = Self::shape(x);
        let slope = [
            -K * (K * x[0]).sin() * (K * x[1] + 0.3).sin() * (1.0 + x[2]),
            K * (K * x[0]).cos() * (K * x[1] + 0.3).cos() * (1.0 + x[2]),
            (K * x[0]).cos() * (K * x[1] + 0.3).sin(),
        ];
        std::array::from_fn(|d| rate * u[d] + theta * (3.0 * K * K * self.nu * u[d] + slope[d]))
    }
    fn traction(&self, x: [f64; 3], t: f64) -> [f64; 3] {
        let (theta, p) = (self.theta(t).0, Self::pressure_shape(x));
        let [sx, sy, sz] = x.map(|v| (K * v).sin());
        let [cx, cy, cz] = x.map(|v| (K * v).cos());
        let slope = [2.0 * K * cx * cy * cz, K * sx * sy * cz, K * sx * cy * sz];
        [theta * (self.nu * slope[0] - p), theta * self.nu * slope[1], theta * self.nu * slope[2]]
    }
}

/// ‖u_h − u‖ and ‖p_h − p‖ in L2, by the four-point rule on each tetrahedron.
fn errors(mesh: &DuctMesh, u: &[f64], exact: impl Fn([f64; 3]) -> [f64; 4]) -> [f64; 2] {
    let near = (5.0 + 3.0 * 5f64.sqrt()) / 20.0;
    let volume = mesh.extent().iter().product::<f64>() / mesh.cells() as f64;
    let coordinates = mesh.coordinates();
    let mut sum = [0.0; 2];
    for t in mesh.tetrahedra() {
        for q in 0..4 {
            let weight = |v: usize| if v == q { near } else { (1.0 - near) / 3.0 };
            let mix = |value: &dyn Fn(usize) -> f64| -> f64 {
                (0..4).map(|v| weight(v) * value(t[v] as usize)).sum()
            };
            let x = std::array::from_fn(|d| mix(&|i| coordinates[i][d]));
            let want = exact(x);
            for c in 0..4 {
                let e = mix(&|i| u[4 * i + c]) - want[c];
                sum[c / 3] += volume / 4.0 * e * e;
            }
        }
    }
    sum.map(f64::sqrt)
}

/// Solves on a sequence of meshes, and checks the order between the last two: at least 1.8 for u, at least 1
/// for p.
fn check_orders(title: &str, sizes: &[usize], exact: Exact, solve: impl Fn(&StokesDuct) -> (Vec<f64>, f64)) {
    let mut last: Option<(f64, [f64; 2])> = None;
    let mut order = [0.0; 2];
    println!("{title}, nu {}", exact.nu);
    for &n in sizes {
        let options = StokesOptions { nodes: [n; 3], nu: exact.nu, ..Default::default() };
        let duct = StokesDuct::with_data(options, Arc::new(exact)).unwrap();
        let (u, t) = solve(&duct);
        let (h, e) = (1.0 / (n - 1) as f64, errors(&duct.mesh, &u, |x| exact.solution(x, t)));
        if let Some((coarse, before)) = last {
            order = std::array::from_fn(|d| (before[d] / e[d]).ln() / (coarse / h).ln());
        }
        println!("{n:3}³: u {:.3e} {:5.2}, p {:.3e} {:5.2}", e[0], order[0], e[1], order[1]);
        last = Some((h, e));
    }
    assert!(order[0] >= 1.8 && order[1] >= 1.0, "{title}: orders {order:?}");
}

/// Makes one step of implicit Euler so long that only L matters, from the interpolated solution.
fn steady(exact: Exact) -> impl Fn(&StokesDuct) -> (Vec<f64>, f64) {
    move |duct| {
        let mut u: Vec<f64> =
            duct.mesh.coordinates().into_iter().flat_map(|x| exact.solution(x, 0.0)).collect();
        common::Solver::new(duct, "implicit-euler", 1e6).step(0.0, &mut u);
        (u, 0.0)
    }
}

fn unsteady(scheme: &'static str, count: usize) -> impl Fn(&StokesDuct) -> (Vec<f64>, f64) {
    move |duct| (common::march(duct, scheme, 0.75, count), 0.75)
}

#[test]
fn steady_flow() {
    for nu in [1.0, 0.1] {
        let exact = Exact { nu, unsteady: false };
        check_orders("steady", &[4, 7, 10], exact, steady(exact));
    }
}

#[test]
fn unsteady_flow() {
    check_orders(
        "radau-iia-2, 12 steps",
        &[5, 7, 9],
        Exact { nu: 0.1, unsteady: true },
        unsteady("radau-iia-2", 12),
    );
}

/// `cargo test -p krylith-problems -- --ignored` (tests are built with optimisation; `--release` gains
/// little).
#[test]
#[ignore = "long"]
fn orders_on_finer_meshes() {
    for nu in [1.0, 0.1, 0.01] {
        let exact = Exact { nu, unsteady: false };
        check_orders("steady", &[5, 9, 17], exact, steady(exact));
        // At small ν the error of the stabilisation, h²/ν, is the larger part and reaches its order only on
        // fine meshes.
        let exact = Exact { nu, unsteady: true };
        let sizes = if nu < 0.1 { [9, 13, 17] } else { [5, 9, 13] };
        check_orders("gauss-1, 30 steps", &sizes, exact, unsteady("gauss-1", 30));
    }
}

/// The space contains a linear flow with constant pressure, so it is a discrete solution, to rounding.
#[test]
fn linear_flow_is_exact() {
    struct Linear;
    impl DuctData for Linear {
        fn velocity_rate(&self, _: [f64; 3], _: f64) -> [f64; 3] {
            [0.0; 3]
        }
        fn has_sources(&self) -> bool {
            true
        }
        fn traction(&self, _: [f64; 3], _: f64) -> [f64; 3] {
            [0.5 * 0.3 - 2.0, 0.5 * 1.1, 0.5 * -0.4]
        }
    }
    let options = StokesOptions { nodes: [4, 5, 6], length: 1.7, nu: 0.5, ..Default::default() };
    let duct = StokesDuct::with_data(options, Arc::new(Linear)).unwrap();
    let flow =
        |[x, y, z]: [f64; 3]| [0.3 * x + y - z, 1.1 * x + 0.4 * y + 0.2 * z, -0.4 * x + y - 0.7 * z, 2.0];
    let u: Vec<f64> = duct.mesh.coordinates().into_iter().flat_map(flow).collect();
    let butcher = krylith_core::matrix::Butcher::by_name("radau-iia-2").unwrap();
    let mut rhs = vec![0.0; 2 * u.len()];
    duct.steps(&butcher, 0.1).unwrap().rhs_into(0.0, &u, &mut rhs).unwrap();
    assert!(rhs.iter().all(|r| r.abs() < 1e-14), "{:?}", rhs.iter().fold(0.0f64, |m, r| m.max(r.abs())));
}

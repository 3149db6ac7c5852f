//! The artery: its mesh, conservation of mass, Newton's method over time steps, and texts of nonlinear
//! problems.

use crate::common::newton::{jacobian_error, newton, noise};
use krylith_core::newton::NonlinearSystem;
use krylith_problems::artery::{Artery, ArteryOptions, mesh};
use krylith_problems::nonlinear::{NonlinearProblem, by_text, catalogue};

#[test]
fn what_flows_in_flows_out() {
    let options = ArteryOptions { dt: 0.01, ..ArteryOptions::default() };
    let mut artery = Artery::new(mesh(700).unwrap(), options).unwrap();
    let mut x = artery.initial();
    for step in 1..=3 {
        let norms = newton(&mut artery, &mut x, 1e-10, 10);
        assert!(norms[norms.len() - 1] <= 1e-10 * norms[0], "step {step}: {norms:?}");
        // Convergence is quadratic: the last steps square the relative residual.
        let tail: Vec<f64> = norms.iter().map(|n| n / norms[0]).collect();
        let squared = tail.windows(2).filter(|w| w[0] < 1e-1 && w[1] > 1e-12);
        squared.for_each(|w| assert!(w[1] < 10.0 * w[0] * w[0], "step {step}: {tail:?}"));
        let [inlet, outlet, wall] =
            ["inlet", "outlet", "wall"].map(|name| artery.flow().outflow(name, &x).unwrap());
        assert!(inlet < 0.0 && wall.abs() < 0.02 * outlet, "step {step}: {inlet}, {outlet}, {wall}");
        assert!((inlet + outlet + wall).abs() < 1e-8 * outlet, "step {step}: {inlet} + {outlet} + {wall}");
        // The polygons of the wall have a smaller area than its circle, and the parabola is piecewise linear.
        let mean = artery.speed(artery.time().unwrap()) * std::f64::consts::PI * 0.2 * 0.2;
        assert!((-inlet / mean - 1.0).abs() < 0.15, "step {step}: {inlet} of {mean}");
        assert_eq!(artery.next_step(&mut x).unwrap(), step < 3);
    }
}

#[test]
fn the_jacobian_is_the_derivative() {
    let options = ArteryOptions { dt: 0.01, steps: 2, ..ArteryOptions::default() };
    let mut artery = Artery::new(mesh(400).unwrap(), options).unwrap();
    let n = artery.initial().len();
    let mut last: Vec<f64> = noise(n, 3).iter().map(|x| 20.0 * x).collect();
    assert!(artery.next_step(&mut last).unwrap());
    for seed in 5..8 {
        let x: Vec<f64> = noise(n, seed).iter().map(|x| 20.0 * x).collect();
        let error = jacobian_error(&mut artery, &x, &noise(n, seed + 10), 1e-3);
        assert!(error < 1e-8, "direction {seed}: {error}");
    }
}

#[test]
fn meshes_have_about_the_nodes_that_are_asked_for() {
    for nodes in [18, 400, 5000, 60_000] {
        let mesh = mesh(nodes).unwrap();
        let found = mesh.points().len();
        assert!((found as f64 / nodes as f64 - 1.0).abs() < 0.15, "{found} for {nodes}");
        let radius = |x: [f64; 3]| x[1].hypot(x[2]) / 0.2;
        let rim = mesh.surface("inlet").unwrap().as_flattened().iter();
        let widest = rim.map(|&p| radius(mesh.points()[p as usize])).fold(0.0, f64::max);
        assert!((widest - 1.0).abs() < 1e-12, "{widest}");
    }
    assert!(mesh(5).unwrap_err().to_string().contains("at least 18"));
}

#[test]
fn texts_make_the_same_problem_again() {
    for problem in catalogue() {
        let made = by_text(problem.example).unwrap();
        let again = by_text(made.spec()).unwrap();
        assert_eq!(made.spec(), again.spec());
        assert!(
            problem.keys.iter().all(|key| made.spec().contains(&format!("{}=", key.name))),
            "{}",
            made.spec()
        );
        assert_eq!(made.pattern().block(), made.components().len(), "{}", problem.name);
        assert_eq!(made.points(), again.points(), "{}", problem.name);
        assert_eq!(made.initial(), again.initial(), "{}", problem.name);
    }
}

#[test]
fn pictures_show_what_x_says() {
    for (text, share) in [("ventricle:6000", 0.1..0.4), ("artery:2000", 0.1..0.5)] {
        let problem = by_text(text).unwrap();
        let b = problem.components().len();
        // The speed is (3, 4, 0), so its magnitude is 5 everywhere.
        let x: Vec<f64> = (0..problem.initial().len()).map(|k| [3.0, 4.0, 0.0, 9.0][k % b]).collect();
        let picture = problem.picture(&x).unwrap();
        assert_eq!(picture.values.len(), picture.columns * picture.rows);
        let filled =
            picture.values.iter().filter(|v| !v.is_nan()).count() as f64 / picture.values.len() as f64;
        assert!(share.contains(&filled), "{text}: {filled} of {}x{}", picture.columns, picture.rows);
        assert!(picture.values.iter().all(|v| v.is_nan() || (v - 5.0).abs() < 1e-12), "{text}");
    }
}

#[test]
fn what_is_wrong_is_named() {
    for (text, named) in [
        ("ventricle:100,dt=0", "dt=0: expected a positive number"),
        ("ventricle:100,steps=0", "steps=0: expected a whole number"),
        ("ventricle:100,af=-1", "af=-1"),
        ("ventricle:1x1", "`1x1`: expected a number of tetrahedra or a mesh file"),
        ("ventricle:no/such.vtu", "no/such.vtu"),
        ("ventricle:100,tension=-1", "tension=-1: expected a number of at least 0"),
        ("ventricle:100,cross=2", "across the fibres is 2; it must be at most 1"),
        ("ventricle:100,numbering=odd", "numbering: `odd`: expected file, natural"),
        ("ventricle:100,nu=1", "unknown key `nu`; ventricle knows dt, steps, pressure"),
        ("artery:3", "an artery of 3 nodes; expected at least 18"),
        ("artery:many", "`many`: expected a number of nodes or a mesh file"),
        ("artery:no/such.msh", "no/such.msh"),
        ("artery:500,re=0", "re=0: expected a positive number"),
        ("artery:500,dt=1e-320", "expected positive finite numbers"),
        ("ventricle:100,dt=1e-300", "finite"),
    ] {
        let message = by_text(text).err().expect(text).to_string();
        assert!(message.contains(named), "`{text}`: {message}");
    }
}

/// Rows, residuals and Jacobians do not depend on the number of threads.
#[test]
fn threads_change_nothing() {
    let results = [1, 3].map(|threads| {
        let pool = pool_of(threads);
        pool.install(|| {
            let options = ArteryOptions { dt: 0.01, steps: 2, ..ArteryOptions::default() };
            let mut artery = Artery::new(mesh(3000).unwrap(), options).unwrap();
            let x: Vec<f64> = noise(artery.initial().len(), 1);
            let (mut f, mut values) = (vec![f64::NAN; x.len()], vec![f64::NAN; artery.pattern().stored()]);
            artery.residual(&x, &mut f).unwrap();
            artery.jacobian(&x, &mut values).unwrap();
            (artery.pattern().col().to_vec(), f, values)
        })
    });
    assert!(results[0] == results[1]);
}

fn pool_of(threads: usize) -> rayon::ThreadPool {
    rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap()
}

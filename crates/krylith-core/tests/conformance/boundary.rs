//! Boundary values that stand as rows of the identity.

use crate::common::*;
use krylith_core::matrix::Csr;
use krylith_core::{Options, Problem, Solver};

/// The Laplacian of a square of m² points with these rows of its border: rows of the identity, to which other
/// rows refer. `scale` is the size of the entries of the other rows.
fn square(m: usize, scale: f64) -> Csr {
    let mut entries = Vec::new();
    for i in 0..m * m {
        let (x, y) = (i % m, i / m);
        if x % (m - 1) == 0 || y % (m - 1) == 0 {
            entries.push((i as u32, i as u32, 1.0));
            continue;
        }
        entries.push((i as u32, i as u32, 4.0 * scale));
        for j in [i - 1, i + 1, i - m, i + m] {
            entries.push((i as u32, j as u32, -scale));
        }
    }
    Csr::from_triplets(m * m, m * m, &entries).unwrap()
}

/// Multigrid converges as after an elimination of the boundary values, also with new values, and `auto` takes
/// CG.
pub fn rows_of_the_identity_do_not_stop_multigrid(device: &str) {
    let mut rng = Random(41);
    for scale in [1e4, 1.0] {
        let mut a = square(65, scale);
        for (method, precond) in
            [("gmres", "amg"), ("gmres", "amg:coarsen=smoothed"), ("cg", "amg"), ("auto", "auto")]
        {
            let text = format!("device={device} method={method} precond={precond} rtol=1e-8");
            let options: Options = text.parse().unwrap();
            let problem = Problem::try_from(&a).unwrap().into_owned();
            let mut solver = Solver::new(problem, &options).unwrap();
            for step in 0..2 {
                let (b, mut x) = (rng.numbers(a.rows()), vec![0.0; a.rows()]);
                let solution = solver.solve(&b, &mut x).unwrap();
                let (left, count) = (relative_residual(&a, &b, &x), solution.history.iterations);
                assert!(solution.converged() && left <= 1.1e-8, "{precond}, scale {scale}: {left:e}");
                assert!(precond == "auto" || count <= 25, "{text}, scale {scale}, step {step}: {count}");
                assert!(method != "auto" || step > 0 || solution.symmetric == Some(true), "{text}");
                let said =
                    solution.events.iter().any(|e| e.detail.contains("256 rows have only a diagonal entry"));
                assert!(said, "{:?}", solution.events);
                a.values_mut().iter_mut().for_each(|v| *v *= 1.5);
                solver.update_values(a.values()).unwrap();
            }
        }
    }
}

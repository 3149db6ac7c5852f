//! Systems whose rows stand in each other's places.

use crate::common::times;
use krylith_core::Solver;
use krylith_core::matrix::Csr;

/// A tridiagonal matrix of order `n` that is not symmetric, times `scale`, with its rows moved down by seven
/// positions.
pub fn moved(n: usize, scale: f64) -> Csr {
    let mut entries = Vec::new();
    for i in 0..n {
        let row = ((i + 7) % n) as u32;
        for (j, v) in [(i.wrapping_sub(1), -1.0), (i, 3.0), (i + 1, -1.5)] {
            if j < n {
                entries.push((row, j as u32, scale * v));
            }
        }
    }
    Csr::from_triplets(n, n, &entries).unwrap()
}

/// The solution of [`rhs`].
pub fn known(i: usize) -> f64 {
    1.0 + (i % 5) as f64
}

pub fn rhs(a: &Csr) -> Vec<f64> {
    times(a, &(0..a.rows()).map(known).collect::<Vec<_>>())
}

pub fn error(x: &[f64]) -> f64 {
    x.iter().enumerate().map(|(i, x)| (x - known(i)).abs()).fold(0.0, f64::max)
}

/// Rows go where they belong, and new values with them, on each of these devices.
pub fn rows_are_matched(devices: &[String]) {
    let (a, twice) = (moved(5000, 1.0), moved(5000, 2.0));
    for device in devices {
        for precond in ["jacobi", "ildu"] {
            let text = format!("device={device} method=bicgstab precond={precond} matching=on rtol=1e-10");
            let mut solver = Solver::new(&a, &text.parse().unwrap()).unwrap();
            for (step, matrix) in [&a, &twice].into_iter().enumerate() {
                if step > 0 {
                    solver.update_values(matrix.values()).unwrap();
                }
                let mut x = vec![0.0; a.rows()];
                let solution = solver.solve(&rhs(matrix), &mut x).unwrap();
                let outcome = solution.outcome();
                assert!(solution.converged() && solution.matched, "{text}, step {step}: {outcome:?}");
                assert!(error(&x) < 1e-7, "{text}, step {step}: {:e}", error(&x));
            }
        }
    }
}

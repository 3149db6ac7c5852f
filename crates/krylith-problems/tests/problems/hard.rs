//! Hard matrices, solved with the default options.

use krylith_core::matrix::Csr;
use krylith_core::{Options, Solver};
use krylith_problems::hard;

/// Computes ‖b − A x‖/‖b‖ from its definition.
fn residual(a: &Csr, b: &[f64], x: &[f64]) -> f64 {
    let row = |i: usize| a.row(i).0.iter().zip(a.row(i).1).map(|(&j, v)| v * x[j as usize]).sum::<f64>();
    let norm = |x: &mut dyn Iterator<Item = f64>| x.map(|x| x * x).sum::<f64>().sqrt();
    norm(&mut (0..a.rows()).map(|i| b[i] - row(i))) / norm(&mut b.iter().copied())
}

#[test]
fn every_one_gets_an_answer() {
    for (name, a) in hard::matrices() {
        let (b, mut x) = (vec![1.0; a.rows()], vec![0.0; a.rows()]);
        let options: Options = "device=cpu threads=1 rtol=1e-8".parse().unwrap();
        let mut solver = Solver::new(&a, &options).unwrap();
        let solution = solver.solve(&b, &mut x).unwrap();
        let (outcome, iterations) = (solution.outcome(), solution.history.iterations);
        assert!(solution.converged(), "{name}: {outcome:?} after {iterations} iterations");
        let residual = residual(&a, &b, &x);
        assert!(residual <= 1.0001e-8, "{name}: {residual:e}");
    }
}

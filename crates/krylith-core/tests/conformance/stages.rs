//! Stages of Kronecker sums, solved one after the other by any preconditioner.

use super::fields::{csr_of, diagonal, options, staggered_stokes};
use crate::common::*;
use krylith_core::matrix::{Bsr, Butcher, Csr, Dense, KroneckerSum};
use krylith_core::precond::lower_factor;
use krylith_core::{Field, Options, Problem, Solver};

/// A⊗M + τB⊗L for blocks of 1 to 3, Radau IIA and its inverse, an explicit first stage, new values and a new
/// τ.
pub fn stages_match_dense_algebra(device: &str) {
    let mut rng = Random(77);
    let radau = |s: &str| Butcher::by_name(s).unwrap().a;
    let inverse = |c: &Dense| Dense::new(c.rows(), c.rows(), inverse(c.values(), c.rows())).unwrap();
    let explicit = Dense::new(2, 2, vec![0.0, 0.0, 0.5, 0.5]).unwrap();
    let identity = |s: usize| Dense::identity(s);
    for b in 1..=3 {
        let n = 12 / b;
        let [m, l] = [(); 2].map(|()| random_bsr(&mut rng, b, n, n, 3, true));
        for (a_of, b_of) in [
            (identity(2), radau("radau-iia-2")),
            (identity(3), radau("radau-iia-3")),
            (inverse(&radau("radau-iia-2")), identity(2)),
            (identity(2), explicit.clone()),
        ] {
            let (s, tau) = (a_of.rows(), 0.25);
            let sum = KroneckerSum::new(a_of.clone(), b_of.clone(), tau, m.clone(), l.clone()).unwrap();
            let problem = Problem::kronecker(&sum).unwrap().into_owned();
            let mut solver = Solver::new(problem, &options(device, "stage(lu)")).unwrap();
            let expected = |m: &Bsr, l: &Bsr, tau: f64, x: &[f64]| {
                let (m, l) = (written_out(&m.to_csr()), written_out(&l.to_csr()));
                let (a, b) = (lower_factor(&a_of).unwrap(), lower_factor(&b_of).unwrap());
                let size = m.nrows();
                let of = |i: usize, j: usize| {
                    let entry = |r, c| a[(i, j)] * m[(r, c)] + tau * b[(i, j)] * l[(r, c)];
                    Mat::from_fn(size, size, entry)
                };
                let mut y = vec![0.0; x.len()];
                for k in 0..s {
                    let mut r: Vec<f64> = (0..size).map(|i| x[i * s + k]).collect();
                    for j in 0..k {
                        let before: Vec<f64> = (0..size).map(|i| y[i * s + j]).collect();
                        r = minus(&r, &multiply(&of(k, j), &before));
                    }
                    solve(&of(k, k), &r).into_iter().enumerate().for_each(|(i, v)| y[i * s + k] = v);
                }
                y
            };
            let mut test = |solver: &mut Solver, m: &Bsr, l: &Bsr, tau: f64, what: &str| {
                let (x, mut y) = (rng.numbers(s * m.rows()), vec![f64::NAN; s * m.rows()]);
                solver.precondition(&x, &mut y).unwrap();
                let d = distance(&y, &expected(m, l, tau, &x));
                assert!(d <= 1e-9, "b={b}, {s} stages, {what}: {d:e}");
            };
            test(&mut solver, &m, &l, tau, "first");
            solver.set_tau(0.5).unwrap();
            test(&mut solver, &m, &l, 0.5, "new τ");
            let (mut m, mut l) = (m.clone(), l.clone());
            m.values_mut().iter_mut().for_each(|v| *v *= 1.5);
            l.values_mut().iter_mut().for_each(|v| *v *= 0.75);
            solver.update_term(0, m.values()).unwrap();
            solver.update_term(1, l.values()).unwrap();
            test(&mut solver, &m, &l, 0.5, "new values");
        }
    }
}

/// Stokes flow in time: each stage is solved with the accuracy of one application, so the iterations grow
/// with the number of stages, but no faster than it.
pub fn stages_of_stokes_are_solved(device: &str) {
    let m = 24;
    let (one, f) = staggered_stokes(m);
    let l = one.terms().terms()[0].1.to_csr();
    let (n, pressures) = (l.rows(), m * m);
    let nu = n - pressures;
    let mass: Vec<_> = (0..nu as u32).map(|i| (i, i, 1.0 / (m * m) as f64)).collect();
    let [mass, l] = [Csr::from_triplets(n, n, &mass).unwrap(), l].map(|a| Bsr::from_csr(&a, 1).unwrap());
    let mut counts = Vec::new();
    for (scheme, s) in [("implicit-euler", 1), ("radau-iia-2", 2), ("radau-iia-3", 3)] {
        let b = Butcher::by_name(scheme).unwrap().a;
        let sum = KroneckerSum::new(Dense::identity(s), b, 1e3, mass.clone(), l.clone()).unwrap();
        let fields = vec![Field::range("u", 0..nu), Field::range("p", nu..n)];
        let identity = csr_of(&diagonal(pressures, |_| 1.0));
        let problem = Problem::kronecker(&sum).unwrap().with_fields(fields).unwrap();
        let problem = problem.with_matrix("Mp", identity).unwrap();
        let precond = "stage(split(u: amg, p: jacobi; schur=full, S=Mp))";
        let text = format!("device={device} method=gmres restart=100 precond={precond} rtol=1e-8");
        let options: Options = text.parse().unwrap();
        let mut solver = Solver::new(problem, &options).unwrap();
        let mut x = vec![0.0; s * n];
        let right: Vec<f64> = f.iter().flat_map(|v| vec![*v; s]).collect();
        let solution = solver.solve(&right, &mut x).unwrap();
        assert!(solution.converged(), "{scheme}: {:?}", solution.history.outcome);
        counts.push(solution.history.iterations);
    }
    assert!(counts[0] <= 30 && (1..3).all(|k| counts[k] <= (k + 1) * counts[0] + 10), "{counts:?}");
}

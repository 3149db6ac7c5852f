//! Whole solves on any device: the same answers again and again, after new values, and from several threads.

use super::memory::Lend;
use crate::common::*;
use krylith::matrix::{Csr, Dense};
use krylith::method::MethodName;
use krylith::solver::EventKind;
use krylith::{Options, Problem, Solver};

fn options(device: &str, text: &str) -> Options {
    format!("device={device} {text}").parse().unwrap()
}

/// Seven-point Laplacian of n³ nodes.
pub fn laplace(n: usize) -> Csr {
    let at = |x: usize, y: usize, z: usize| (x + n * (y + n * z)) as u32;
    let mut triplets = Vec::new();
    for (x, y, z) in (0..n * n * n).map(|i| (i % n, i / n % n, i / n / n)) {
        let i = at(x, y, z);
        triplets.push((i, i, 6.0));
        for (j, there) in
            [(at(x + 1, y, z), x + 1 < n), (at(x, y + 1, z), y + 1 < n), (at(x, y, z + 1), z + 1 < n)]
        {
            if there {
                triplets.extend([(i, j, -1.0), (j, i, -1.0)]);
            }
        }
    }
    Csr::from_triplets(n * n * n, n * n * n, &triplets).unwrap()
}

/// ‖b − A x‖/‖b‖, by the system as given.
pub fn residual(problem: &Problem, b: &[f64], x: &[f64]) -> f64 {
    let original = problem.original();
    original.norm(&original.residual(b, x).unwrap()).unwrap() / original.norm(b).unwrap()
}

/// Two solvers on the same devices, each on a thread of its own.
pub fn a_thousand_solves_of_two_solvers_at_once(device: &str) {
    fn sent(_: impl Send) {}
    let mut rng = Random(11);
    let k = random_kronecker(&mut rng, 3, 2, 30, 4, true, true);
    let a = laplace(5);
    let rhs: Vec<Vec<f64>> = (0..1000).map(|_| rng.numbers(k.rows())).collect();
    std::thread::scope(|scope| {
        // A solver is made here and used there.
        let mut first = Solver::new(&k, &options(device, "precond=jacobi rtol=1e-9")).unwrap();
        let second = Solver::new(&a, &options(device, "precond=ildu:rows=30 rtol=1e-9")).unwrap();
        let rhs = &rhs;
        scope.spawn(move || {
            let (n, mut x) = (first.problem().own_len(), vec![0.0; first.problem().own_len()]);
            let mut before = None;
            for (step, b) in rhs.iter().enumerate() {
                x.fill(0.0);
                assert!(first.solve(b, &mut x).unwrap().converged(), "{step}");
                assert!(residual(first.problem(), b, &x) <= 1.001e-9, "{step}");
                if step % 100 == 0 {
                    // The same right-hand side has the same answer, to the bit, whatever was solved in between.
                    let mut again = vec![0.0; n];
                    first.solve(&rhs[0], &mut again).unwrap();
                    assert_eq!(before.get_or_insert(again.clone()), &again, "{step}");
                }
            }
        });
        scope.spawn(move || {
            let mut second = second;
            let mut x = vec![0.0; 125];
            for (step, b) in rhs.iter().enumerate() {
                let solution = second.solve(&b[..125], &mut x).unwrap();
                assert!(solution.converged() && solution.method.name() == MethodName::Cg, "{step}");
            }
        });
    });
    sent(Solver::new(&laplace(2), &options(device, "")).unwrap());
}

pub fn new_values_are_those_of_a_new_solver(device: &str) {
    let mut rng = Random(12);
    for precond in
        ["jacobi", "jacobi:block=1", "ildu:rows=10", "stage", "jacobi+ildu", "jacobi then ildu", "none"]
    {
        for more in ["", " equilibrate=true", " store=f32"] {
            let mut k = random_kronecker(&mut rng, 2, 3, 40, 4, true, true);
            k.a = Dense::identity(3);
            let text = format!("method=gmres precond={precond} rtol=1e-10{more}");
            let problem = Problem::kronecker(&k).unwrap().into_owned();
            let mut solver = Solver::new(problem, &options(device, &text)).unwrap();
            let b = rng.numbers(k.rows());
            for step in 0..3 {
                k.m.values_mut().iter_mut().for_each(|v| *v *= 1.1);
                k.l.values_mut().iter_mut().for_each(|v| *v *= 0.9);
                k.tau *= 0.8;
                solver.update_term(0, k.m.values()).unwrap();
                solver.update_term(1, k.l.values()).unwrap();
                solver.set_tau(k.tau).unwrap();
                let (mut x, mut y) = (vec![0.0; k.rows()], vec![0.0; k.rows()]);
                let iterations = solver.solve(&b, &mut x).unwrap().history.iterations;
                let mut fresh = Solver::new(&k, &options(device, &text)).unwrap();
                let expected = fresh.solve(&b, &mut y).unwrap();
                assert!(expected.converged() && expected.history.iterations == iterations, "{text} {step}");
                assert!(distance(&x, &y) < 1e-12, "{text} {step}: {:e}", distance(&x, &y));
            }
        }
    }
}

pub fn auto_takes_cg_where_it_can_and_says_so(device: &str) {
    let (b, mut x) = (vec![1.0; 512], vec![0.0; 512]);
    let mut solver = Solver::new(&laplace(8), &options(device, "rtol=1e-8")).unwrap();
    let solution = solver.solve(&b, &mut x).unwrap();
    assert!(
        solution.converged() && solution.method.name() == MethodName::Cg,
        "{:?} {:?}",
        solution.events,
        solution.history
    );
    assert!(solution.events.iter().any(|e| e.kind == EventKind::Choice && e.detail.contains("symmetric")));
    // Symmetric and indefinite: CG breaks down, is named, and BiCGSTAB or GMRES goes on.
    let shifted = |shift: f64| {
        let mut a = laplace(8);
        let (row_ptr, col) = (a.row_ptr().to_vec(), a.col().to_vec());
        for i in 0..512 {
            for p in row_ptr[i]..row_ptr[i + 1] {
                if col[p] as usize == i {
                    a.values_mut()[p] -= shift;
                }
            }
        }
        a
    };
    let mut solver = Solver::new(&shifted(1.0), &options(device, "rtol=1e-8 precond=jacobi")).unwrap();
    x.fill(0.0);
    let solution = solver.solve(&b, &mut x).unwrap();
    assert!(solution.converged() && solution.method.name() != MethodName::Cg, "{:?}", solution.events);
    let fallback = solution.events.iter().find(|e| e.kind == EventKind::Fallback).unwrap();
    assert!(fallback.detail.starts_with("jacobi with cg: breakdown"), "{}", fallback.detail);
    let iterations = solution.history.iterations;
    assert_eq!(solution.history.residuals.len(), iterations + 1);
    // The next solve begins with the method that ended this one.
    x.fill(0.0);
    let again = solver.solve(&b, &mut x).unwrap();
    assert!(again.converged() && again.history.iterations < iterations);
    assert!(again.events.iter().all(|e| e.kind != EventKind::Fallback));
}

/// Right-hand sides, answers and values in a caller's memory: the results of slices, to the bit.
pub fn lent_memory_solves_as_slices_do(device: &str, lend: Lend) {
    let mut rng = Random(13);
    for text in
        ["method=gmres precond=jacobi", "method=bicgstab precond=ildu:rows=10", "store=f32 precond=jacobi"]
    {
        let mut k = random_kronecker(&mut rng, 3, 2, 30, 4, true, true);
        let options = options(device, &format!("rtol=1e-9 {text}"));
        let problem = || Problem::kronecker(&k).unwrap().into_owned();
        let (mut one, mut other) =
            (Solver::new(problem(), &options).unwrap(), Solver::new(problem(), &options).unwrap());
        let (mut b, mut x) = (lend(k.rows()), lend(k.rows()));
        let mut m = lend(k.m.values().len());
        // Numbers whose squares vanish are found in device memory too.
        for (step, size) in [1.0, 1.0, 1e-200, 0.0, 1e180].into_iter().enumerate() {
            let rhs: Vec<f64> = rng.numbers(k.rows()).iter().map(|v| v * size).collect();
            let mut y = vec![0.0; k.rows()];
            one.solve(&rhs, &mut y).unwrap();
            b.fill(&rhs);
            x.fill(&vec![0.0; k.rows()]);
            let solution = other.solve(b.lend(), x.lend_mut()).unwrap();
            b.poison();
            assert!(solution.converged(), "{text} {step}: {}", solution.outcome());
            assert_eq!(x.take(), y, "{text} {step}");
            k.m.values_mut().iter_mut().for_each(|v| *v *= 1.01);
            one.update_term(0, k.m.values()).unwrap();
            m.fill(k.m.values());
            other.update_term(0, m.lend()).unwrap();
            m.poison();
        }
    }
}

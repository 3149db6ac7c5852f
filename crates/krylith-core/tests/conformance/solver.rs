//! Whole solves on any device: the same answers again and again, after new values, and from several threads.

use super::memory::Lend;
use crate::common::*;
use krylith_core::matrix::{Csr, Dense};
use krylith_core::method::MethodName;
use krylith_core::solver::{EventKind, Refresh};
use krylith_core::{Options, Outcome, Problem, Solver};

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
                    // The same right-hand side gives the same solution bit by bit, whatever was solved in
                    // between.
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
    let all = [
        "jacobi",
        "jacobi:block=1",
        "ildu:rows=10",
        "stage",
        "jacobi+ildu",
        "jacobi then ildu",
        "lu",
        "none",
    ];
    // Direct factors want the whole system on one GPU.
    let alone = !device.contains(',');
    for precond in all.into_iter().filter(|precond| alone || *precond != "lu") {
        for more in ["", " equilibrate=true", " precision=f32"] {
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
                if step < 2 {
                    solver.update_term(0, k.m.values()).unwrap();
                    solver.update_term(1, k.l.values()).unwrap();
                    solver.set_tau(k.tau).unwrap();
                } else {
                    // Another scheme, and all of it at once.
                    k.b[(0, 1)] *= 0.5;
                    k.b[(2, 2)] *= 1.25;
                    solver.update_kronecker(&k.a, &k.b, k.tau, k.m.values(), k.l.values()).unwrap();
                }
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

/// Each scalar matrix of a sum, stored in blocks, keeps the order of its own entries; refused values change
/// nothing.
pub fn new_values_of_a_sum_come_as_it_was_given(device: &str) {
    let mut rng = Random(14);
    let blocks = random_kronecker(&mut rng, 2, 2, 20, 3, false, true);
    // Without their zeros: fewer entries than the blocks have numbers.
    let sparse =
        |a: &Csr| {
            let mut triplets = Vec::new();
            for i in 0..a.rows() {
                let row = a.row_ptr()[i]..a.row_ptr()[i + 1];
                triplets.extend(row.filter(|p| (p + i) % 3 > 0 || a.col()[*p] as usize == i).map(|p| {
                    (i as u32, a.col()[p], if a.col()[p] as usize == i { 9.0 } else { a.values()[p] })
                }));
            }
            Csr::from_triplets(a.rows(), a.columns(), &triplets).unwrap()
        };
    let (m, l) = (sparse(&blocks.m.to_csr()), sparse(&blocks.l.to_csr()));
    let scaled = |a: &Csr, by: f64| a.values().iter().map(|v| by * v).collect::<Vec<f64>>();
    let of = |a: &Csr| Problem::csr_in_blocks(a, Some(2)).unwrap();
    let sum = |a: &Dense, b: &Dense, tau, m: &Csr, l: &Csr| {
        Problem::kronecker_of(a.clone(), b.clone(), tau, &of(m), &of(l)).unwrap()
    };
    let (a, b) = (Dense::identity(2), blocks.b.clone());
    let mut solver = Solver::new(sum(&a, &b, 0.1, &m, &l), &options(device, "rtol=1e-10")).unwrap();
    let rhs = rng.numbers(m.rows() * 2);
    let answer = |solver: &mut Solver, expected: &Problem| {
        let mut x = vec![0.0; rhs.len()];
        assert!(solver.solve(&rhs, &mut x).unwrap().converged());
        let r = residual(expected, &rhs, &x);
        assert!(r <= 1e-9, "{r:e}");
    };
    let with = |a: &Csr, values: &[f64]| {
        Csr::new(a.rows(), a.columns(), a.row_ptr().to_vec(), a.col().to_vec(), values.to_vec()).unwrap()
    };
    answer(&mut solver, &sum(&a, &b, 0.1, &m, &l));
    // The same values, then others, term by term.
    solver.update_term(0, m.values()).unwrap();
    solver.update_term(1, l.values()).unwrap();
    answer(&mut solver, &sum(&a, &b, 0.1, &m, &l));
    let (m3, l2) = (scaled(&m, 3.0), scaled(&l, 2.0));
    solver.update_term(0, &m3).unwrap();
    solver.update_term(1, &l2).unwrap();
    answer(&mut solver, &sum(&a, &b, 0.1, &with(&m, &m3), &with(&l, &l2)));
    // All of it.
    let new_a = Dense::new(2, 2, vec![1.0, 0.2, 0.0, 1.5]).unwrap();
    let new_b = Dense::new(2, 2, vec![0.5, 0.0, 0.25, 0.75]).unwrap();
    solver.update_kronecker(&new_a, &new_b, 0.2, m.values(), &l2).unwrap();
    let now = sum(&new_a, &new_b, 0.2, &m, &with(&l, &l2));
    answer(&mut solver, &now);
    // Refused as a whole, whichever part is wrong.
    let nan = scaled(&l, f64::NAN);
    let three = Dense::identity(3);
    for (a, b, tau, m, l, text) in [
        (&a, &b, 0.1, &m3[..], &nan[..], "new value 0 is NaN"),
        (&a, &b, 0.1, &m3[..], &l2[1..], "new values for a matrix that stores"),
        (&three, &three, 0.1, &m3[..], &l2[..], "create a new solver for another"),
        (&a, &b, f64::INFINITY, &m3[..], &l2[..], "tau is inf"),
    ] {
        let e = solver.update_kronecker(a, b, tau, m, l).unwrap_err().to_string();
        assert!(e.contains(text), "{e}");
        answer(&mut solver, &now);
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

/// A path of n nodes with free ends: constants are its null space.
fn free_path(n: usize) -> Csr {
    let mut triplets = Vec::new();
    for i in 0..n as u32 - 1 {
        triplets.extend([(i, i, 1.0), (i + 1, i + 1, 1.0), (i, i + 1, -1.0), (i + 1, i, -1.0)]);
    }
    Csr::from_triplets(n, n, &triplets).unwrap()
}

/// A system without a solution is detected and reported before the first iteration; null vectors give a
/// least-squares solution.
pub fn systems_without_a_solution_are_named_first(device: &str) {
    let mut a = laplace(6);
    for row in [17, 40] {
        let range = a.row_ptr()[row]..a.row_ptr()[row + 1];
        a.values_mut()[range].fill(0.0);
    }
    let mut solver = Solver::new(&a, &options(device, "rtol=1e-8")).unwrap();
    let mut x = vec![0.25; 216];
    let solution = solver.solve(&[1.0; 216], &mut x).unwrap();
    assert_eq!(solution.outcome(), Outcome::Inconsistent);
    let event = solution.events.iter().find(|e| e.kind == EventKind::Inconsistent).unwrap();
    assert!(event.detail.starts_with("rows 17, 40 have no nonzero entry"), "{}", event.detail);
    let found = solution.history.true_relative_residual;
    assert!((found - residual(solver.problem(), &[1.0; 216], &x)).abs() < 1e-12);
    // The other rows are met.
    assert!((found / (2.0f64 / 216.0).sqrt() - 1.0).abs() < 1e-6, "{found:e}");

    // Looked for by one rank alone.
    if !device.contains(',') {
        rows_with_too_few_columns_are_named(device);
    }

    // Values that mend the rows are looked at.
    solver.update_values(laplace(6).values()).unwrap();
    assert!(solver.solve(&[1.0; 216], &mut x).unwrap().converged());

    let n = 50;
    let a = free_path(n);
    let problem = || Problem::csr(&a).unwrap().with_null_vectors(vec![vec![1.0; n]]).unwrap().into_owned();
    for precision in ["f64", "f32"] {
        let mut solver =
            Solver::new(problem(), &options(device, &format!("rtol=1e-8 precision={precision}"))).unwrap();
        let b: Vec<f64> = (0..n).map(|i| 0.01 + (i as f64).sin()).collect();
        let mean = b.iter().sum::<f64>() / n as f64;
        let mut x = vec![0.0; n];
        let solution = solver.solve(&b, &mut x).unwrap();
        assert_eq!(solution.outcome(), Outcome::Inconsistent, "{precision}: {:?}", solution.events);
        let least = mean.abs() * (n as f64).sqrt() / norm(&b);
        let found = solution.history.true_relative_residual;
        assert!((found / least - 1.0).abs() < 1e-6, "{precision}: {found:e}, the least is {least:e}");
        assert!((residual(solver.problem(), &b, &x) / least - 1.0).abs() < 1e-6, "{precision}");
        // What is left after the mean is taken off has an answer.
        let b: Vec<f64> = b.iter().map(|b| b - mean).collect();
        let solution = solver.solve(&b, &mut x).unwrap();
        assert!(solution.converged(), "{precision}: {}", solution.outcome());
    }
}

/// Three rows with entries in two columns, and no diagonal there.
fn rows_with_too_few_columns_are_named(device: &str) {
    let mut triplets: Vec<_> = (6..60).map(|i| (i, i, 2.0)).collect();
    triplets.extend([(0, 6, 1.0), (1, 7, 1.0), (2, 6, 1.0), (2, 7, 3.0)]);
    triplets.extend([(3, 0, 1.0), (4, 1, 1.0), (5, 2, 1.0), (5, 3, 1.0), (6, 4, 1.0), (7, 5, 1.0)]);
    let crowded = Csr::from_triplets(60, 60, &triplets).unwrap();
    let mut alone = Solver::new(&crowded, &options(device, "rtol=1e-8")).unwrap();
    let solution = alone.solve(&[1.0; 60], &mut [0.0; 60]).unwrap();
    assert_eq!(solution.outcome(), Outcome::Inconsistent, "{:?}", solution.events);
    let event = solution.events.iter().find(|e| e.kind == EventKind::Inconsistent).unwrap();
    assert!(event.detail.starts_with("rows 0, 1, 2 have entries in only 2 columns"), "{}", event.detail);
}

/// A zero diagonal: no attempt may make things worse than the first guess.
pub fn no_attempt_makes_things_worse(device: &str) {
    let n = 2000;
    let mut triplets = Vec::new();
    for i in 0..n as u32 {
        triplets.push((i, i, 1.0));
        if i > 0 {
            triplets.extend([(i, i - 1, -1.0), (i - 1, i, -1.0)]);
        }
    }
    let a = Csr::from_triplets(n, n, &triplets).unwrap();
    for text in ["", "precond=ildu:rows=100,shift=1e-3", "precond=none max_iters=300"] {
        let mut solver = Solver::new(&a, &options(device, &format!("rtol=1e-8 {text}"))).unwrap();
        let (b, mut x) = (vec![1.0; n], vec![0.0; n]);
        let solution = solver.solve(&b, &mut x).unwrap();
        let (outcome, claimed) = (solution.outcome(), solution.history.true_relative_residual);
        let found = residual(solver.problem(), &b, &x);
        assert!(
            found <= 1.0 + 1e-12 && (found - claimed).abs() <= 1e-6 * found,
            "{text}: {outcome}, {found:e}"
        );
        assert!((outcome == Outcome::Converged) == (found <= 1e-8), "{text}: {outcome}, {found:e}");
    }
}

/// A limit that is not reached changes nothing.
pub fn the_limit_of_iterations_decides_nothing(device: &str) {
    let mut a = laplace(12);
    let (row_ptr, col) = (a.row_ptr().to_vec(), a.col().to_vec());
    for i in 0..1728 {
        let own = (row_ptr[i]..row_ptr[i + 1]).find(|&p| col[p] as usize == i).unwrap();
        a.values_mut()[own] -= 2.0;
    }
    let solve = |limit: usize| {
        let mut solver = Solver::new(&a, &options(device, &format!("rtol=1e-8 max_iters={limit}"))).unwrap();
        let solution = solver.solve(&[1.0; 1728], &mut [0.0; 1728]).unwrap();
        (solution.outcome(), solution.history.iterations)
    };
    let (outcome, iterations) = solve(100_000);
    assert_eq!(outcome, Outcome::Converged);
    assert_eq!(solve(iterations + 1), (outcome, iterations));
}

/// New values that break the structure found inside the blocks: the operator is set up again, this is
/// reported, and the solution is correct.
pub fn values_may_break_a_structure(device: &str) {
    let mut rng = Random(14);
    let mut k = random_kronecker(&mut rng, 3, 1, 40, 4, true, true);
    for a in [&mut k.m, &mut k.l] {
        for block in a.values_mut().chunks_exact_mut(9) {
            (0..9).filter(|e| e % 4 != 0).for_each(|e| block[e] = 0.0);
        }
    }
    let text = "rtol=1e-10 precond=jacobi method=gmres";
    let mut solver =
        Solver::new(Problem::kronecker(&k).unwrap().into_owned(), &options(device, text)).unwrap();
    let (b, mut x) = (rng.numbers(k.rows()), vec![0.0; k.rows()]);
    assert!(solver.solve(&b, &mut x).unwrap().converged());
    k.l.values_mut().iter_mut().for_each(|v| *v += 0.01 * rng.number());
    solver.update_term(1, k.l.values()).unwrap();
    let solution = solver.solve(&b, &mut x).unwrap();
    assert!(solution.converged());
    let said = solution.events.iter().any(|e| e.detail.contains("where the first values were zero or equal"));
    assert_eq!(said, device.starts_with("cuda"), "{:?}", solution.events);
    let direct = solve(&dense(&k), &b);
    assert!(distance(&x, &direct) < 1e-8, "{:e}", distance(&x, &direct));
}

/// Right-hand sides, answers and values in a caller's memory: the results of slices, to the bit.
pub fn lent_memory_solves_as_slices_do(device: &str, lend: Lend) {
    let mut rng = Random(13);
    for text in [
        "method=gmres precond=jacobi",
        "method=bicgstab precond=ildu:rows=10",
        "precision=f32 precond=jacobi",
    ] {
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

/// Products and applications of the preconditioner by themselves, between solves and after new values.
pub fn products_and_preconditioners_stand_by_themselves(device: &str) {
    let mut rng = Random(17);
    for (b, s, n) in [(1, 1, 65), (2, 1, 40), (3, 2, 33)] {
        let mut k = random_kronecker(&mut rng, b, s, n, 4, true, true);
        let options = options(device, "method=gmres precond=jacobi rtol=1e-10");
        let mut solver = Solver::new(Problem::kronecker(&k).unwrap().into_owned(), &options).unwrap();
        for round in 0..2 {
            let (x, mut y) = (rng.numbers(k.rows()), vec![f64::NAN; k.rows()]);
            let whole = dense(&k);
            solver.multiply(&x, &mut y).unwrap();
            let expected = multiply(&whole, &x);
            assert!(distance(&y, &expected) <= 1e-13, "{b}, {s}, {n}: product {round}");
            y.fill(f64::NAN);
            solver.precondition(&x, &mut y).unwrap();
            // The blocks of the diagonal, and nothing else.
            let w = b * s;
            let diagonal =
                Mat::from_fn(k.rows(), k.rows(), |i, j| if i / w == j / w { whole[(i, j)] } else { 0.0 });
            let expected = solve(&diagonal, &x);
            assert!(distance(&y, &expected) <= 1e-10, "{b}, {s}, {n}: P⁻¹ {round}");
            let mut z = vec![0.0; k.rows()];
            assert!(solver.solve(&x, &mut z).unwrap().converged());
            assert!(distance(&multiply(&whole, &z), &x) <= 1e-9, "{b}, {s}, {n}: solve {round}");
            k.m.values_mut().iter_mut().for_each(|v| *v *= 1.5);
            solver.update_term(0, k.m.values()).unwrap();
        }
        let (short, mut y) = (vec![1.0; k.rows() - 1], vec![0.0; k.rows()]);
        assert!(
            solver.multiply(&short, &mut y).is_err() && solver.precondition(&y.clone(), &mut y[1..]).is_err()
        );
    }
    let (a, b) = (laplace(4), rng.numbers(3 * 64));
    let mut solver = Solver::new(&a, &options(device, "method=cg rtol=1e-10")).unwrap();
    let mut x = vec![0.0; 3 * 64];
    let solutions = solver.request(&b, &mut x).columns().unwrap();
    assert!(solutions.len() == 3 && solutions.iter().all(|s| s.converged()));
    for (b, x) in b.chunks(64).zip(x.chunks(64)) {
        assert!(residual(solver.problem(), b, x) <= 1.001e-10);
    }
    assert!(solver.request(&b[1..], &mut x[1..]).columns().is_err());
    let mut plain = Solver::new(&laplace(4), &options(device, "precond=none")).unwrap();
    let mut y = vec![0.0; 64];
    plain.precondition(&[3.0; 64], &mut y).unwrap();
    assert_eq!(y, [3.0; 64]);
}

/// −div k grad on a cube of cells whose k differ by up to `contrast`, with the 7-point stencil and u = 0
/// around it.
fn rock(side: usize, contrast: f64) -> Csr {
    let k = |i: usize| contrast.powf(((i * 7919) % 1009) as f64 / 1009.0);
    let face = |i: usize, j: usize| 2.0 / (1.0 / k(i) + 1.0 / k(j));
    let n = side * side * side;
    let mut entries = Vec::new();
    for i in 0..n {
        let at = [i % side, i / side % side, i / (side * side)];
        let mut sum = 0.0;
        for (axis, step) in [1, side, side * side].into_iter().enumerate() {
            for (inside, j) in [(at[axis] > 0, i.wrapping_sub(step)), (at[axis] + 1 < side, i + step)] {
                let f = if inside { face(i, j) } else { 2.0 * k(i) };
                sum += f;
                entries.extend(inside.then_some((i as u32, j as u32, -f)));
            }
        }
        entries.push((i as u32, i as u32, sum));
    }
    Csr::from_triplets(n, n, &entries).unwrap()
}

/// Solves one right-hand side after another until the solver reports a change to a stronger preconditioner.
/// Returns the number of earlier solves, with the iterations of the last earlier one and of that one.
fn climbs(device: &str, a: &Csr, mut between: impl FnMut(&mut Solver)) -> Option<(usize, usize, usize)> {
    let mut solver = Solver::new(a, &options(device, "rtol=1e-8")).unwrap();
    let mut before = 0;
    for k in 0..12 {
        let b: Vec<f64> = (0..a.rows()).map(|i| ((i * (k + 1)) as f64).sin()).collect();
        let mut x = vec![0.0; a.rows()];
        let solution = solver.solve(&b, &mut x).unwrap();
        assert!(solution.converged() && residual(&Problem::csr(a).unwrap(), &b, &x) <= 1e-8);
        let iterations = solution.history.iterations;
        if solution.events.iter().any(|e| e.detail.contains("switched to")) {
            return Some((k, before, iterations));
        }
        before = iterations;
        between(&mut solver);
    }
    None
}

/// By coarse levels. Each device counts iterations of what comes first there.
pub fn many_solves_repay_a_stronger_preconditioner(device: &str) {
    // A GPU begins with Jacobi, whose iterations cost less: more of them make up for a set-up.
    let a = rock(if device.starts_with("cpu") { 24 } else { 32 }, 1e3);
    let (solves, before, after) = climbs(device, &a, |_| ()).expect("a stronger preconditioner pays");
    assert!(solves > 0 && after < before / 2, "{before} iterations, then {after}, after {solves} solves");
    assert_eq!(climbs(device, &a, |_| ()), Some((solves, before, after)));
    // New values before every solve require a set-up each, so a stronger one would have to pay off within one
    // solve.
    assert_eq!(climbs(device, &a, |solver| solver.update_values(a.values()).unwrap()), None);
    let keep = |solver: &mut Solver| {
        solver.set_refresh(Refresh::Keep);
        solver.update_values(a.values()).unwrap();
    };
    assert_eq!(climbs(device, &a, keep), Some((solves, before, after)));
}

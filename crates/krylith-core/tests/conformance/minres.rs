//! MINRES on symmetric systems with eigenvalues of both signs, against minimisation by dense algebra.

use super::method::{OnHost, brief, line};
use super::{Make, applied};
use crate::common::*;
use krylith_core::matrix::{Bsr, Csr};
use krylith_core::method::Minres;
use krylith_core::operator::{LinearOperator, PointBlock, PointBlockSum, Terms};
use krylith_core::precond::{BlockDiagonal, BlockJacobi};
use krylith_core::{Field, History, Options, Outcome, Precision, Problem, Solver, Stop};

/// A symmetric matrix with eigenvalues from about −3.5 to 5.5 times `sign`, none near zero, and a definite
/// diagonal: pairs of nodes have the block [[1, 3], [3, 1]], and other entries are small.
pub fn indefinite(rng: &mut Random, b: usize, n: usize, sign: f64) -> Bsr {
    let rows = n * b;
    let mut entries = Vec::new();
    for i in 0..rows {
        let partner = (i / b) ^ 1;
        entries.push((i as u32, i as u32, sign * (1.0 + (i % 3) as f64 * 0.1)));
        if partner < n {
            entries.push((i as u32, (partner * b + i % b) as u32, 3.0 * sign));
        }
    }
    for _ in 0..2 {
        for i in 0..rows {
            let (j, v) = (rng.below(rows), sign * 0.15 * rng.number());
            if i != j {
                entries.extend([(i as u32, j as u32, v), (j as u32, i as u32, v)]);
            }
        }
    }
    Bsr::from_csr(&Csr::from_triplets(rows, rows, &entries).unwrap(), b).unwrap()
}

/// ‖r‖/‖b‖ for the x of every Krylov space of P⁻¹A and P⁻¹b, up to `steps`, with the smallest rᵀP⁻¹r. A basis
/// of the images A x is orthogonalised in full, twice.
fn smallest(
    a: &dyn Fn(&[f64]) -> Vec<f64>,
    p: &dyn Fn(&[f64]) -> Vec<f64>,
    b: &[f64],
    steps: usize,
) -> Vec<f64> {
    let (mut r, mut images, mut history) = (b.to_vec(), Vec::<[Vec<f64>; 2]>::new(), vec![1.0]);
    for _ in 0..steps {
        let mut image = a(&p(images.last().map_or(b, |last| &last[0])));
        for _ in 0..2 {
            for [known, inverse] in &images {
                let share = dot(inverse, &image);
                image.iter_mut().zip(known).for_each(|(x, y)| *x -= share * y);
            }
        }
        let scale = 1.0 / dot(&p(&image), &image).abs().sqrt();
        image.iter_mut().for_each(|x| *x *= scale);
        let inverse = p(&image);
        let share = dot(&inverse, &r) / dot(&inverse, &image);
        r.iter_mut().zip(&image).for_each(|(x, y)| *x -= share * y);
        let sign = dot(&inverse, &image).signum();
        images.push([image, inverse.iter().map(|x| sign * x).collect()]);
        history.push(norm(&r) / norm(b));
    }
    history
}

/// Each iteration gives the smallest residual over the Krylov space in the norm of P⁻¹, wherever batches end,
/// and the history has its 2-norm.
pub fn minres_minimises_over_the_krylov_space<S: PointBlockSum + BlockDiagonal>(make: Make<S>) {
    const STEPS: usize = 15;
    for (b, n, sign) in [(1, 200, 1.0), (3, 70, 1.0), (2, 90, -1.0)] {
        let (matrix, rhs) = (indefinite(&mut Random(81), b, n, sign), Random(82).numbers(n * b));
        let space = make(n * b);
        let a = PointBlock::bsr(&space, &matrix, Precision::F64).unwrap();
        let jacobi = BlockJacobi::new(&space, &Terms::bsr(&matrix), Precision::F64).unwrap();
        let uneven = OnHost(|x: &[f64], y: &mut [f64]| {
            y.iter_mut().zip(x).enumerate().for_each(|(i, (y, x))| *y = sign * (0.1 + (i % 9) as f64) * x)
        });
        let (mut db, mut dx) = (space.vector().unwrap(), space.vector().unwrap());
        space.write(&rhs, &mut db).unwrap();
        let preconditioners: [Option<&dyn LinearOperator<S>>; 3] = [None, Some(&jacobi), Some(&uneven)];
        for (which, p) in preconditioners.into_iter().enumerate() {
            let inverse = |x: &[f64]| p.map_or(x.to_vec(), |p| applied(&space, p, x));
            let expected = smallest(&|x| times_blocks(&matrix, x), &inverse, &rhs, STEPS);
            assert!(expected[STEPS] < 0.9 && expected[STEPS] > 1e-9, "{:e}", expected[STEPS]);
            let mut minres = Minres::new(&space, ()).unwrap();
            for max_iters in [1, 2, 7, 8, 9, STEPS] {
                let what = format!("b={b} n={n} sign={sign} preconditioner {which}, {max_iters} iterations");
                space.write(&vec![0.0; n * b], &mut dx).unwrap();
                let stop = Stop { rtol: 1e-12, max_iters, atol: 0.0, ..Stop::DEFAULT };
                let history = minres.solve(&space, &a, p, &db, &mut dx, &stop, &mut ()).unwrap();
                assert_eq!(history.outcome, Outcome::MaxIterations, "{what}: {}", brief(history));
                assert_eq!((history.iterations, history.restarts), (max_iters, 0), "{what}");
                for (j, (got, want)) in history.residuals.iter().zip(&expected).enumerate() {
                    assert!((got - want).abs() <= 1e-9 * want, "{what}, {j}: {got:e} and {want:e}");
                }
                let mut x = vec![0.0; n * b];
                space.read(&dx, &mut x).unwrap();
                let residual = distance(&times_blocks(&matrix, &x), &rhs);
                assert!((residual - expected[max_iters]).abs() <= 1e-9, "{what}: {residual:e}");
            }
        }
    }
}

/// Indefinite systems of awkward sizes, also with a negative definite P. A second solve is the same, and an
/// iteration has two reductions.
pub fn minres_matches_a_direct_solve<S: PointBlockSum + BlockDiagonal>(make: Make<S>) {
    let mut rng = Random(83);
    for (b, n) in [(1, 1), (1, 2), (1, 33), (3, 31), (4, 40), (8, 7)] {
        for sign in [1.0, -1.0] {
            let matrix = indefinite(&mut rng, b, n, sign);
            let (rhs, space) = (rng.numbers(n * b), make(n * b));
            let exact = solve(&written_out(&matrix.to_csr()), &rhs);
            let a = PointBlock::bsr(&space, &matrix, Precision::F64).unwrap();
            let jacobi = BlockJacobi::new(&space, &Terms::bsr(&matrix), Precision::F64).unwrap();
            let (mut db, mut dx) = (space.vector().unwrap(), space.vector().unwrap());
            space.write(&rhs, &mut db).unwrap();
            for p in [None, Some(&jacobi as &dyn LinearOperator<S>)] {
                let mut minres = Minres::new(&space, ()).unwrap();
                let what = format!("b={b} n={n} sign={sign} preconditioned={}", p.is_some());
                let mut all: Vec<History> = Vec::new();
                for _ in 0..3 {
                    space.write(&vec![0.0; n * b], &mut dx).unwrap();
                    let stop = Stop { rtol: 1e-11, ..Stop::default() };
                    all.push(minres.solve(&space, &a, p, &db, &mut dx, &stop, &mut ()).unwrap().clone());
                    assert_eq!(all[0], all[all.len() - 1], "{what}: a second solve differs");
                }
                let history = &all[0];
                assert_eq!(history.outcome, Outcome::Converged, "{what}: {}", brief(history));
                assert_eq!(history.reductions, 2 * history.iterations, "{what}");
                assert!(history.iterations <= 100, "{what}: {}", brief(history));
                let mut x = vec![0.0; n * b];
                space.read(&dx, &mut x).unwrap();
                assert!(distance(&x, &exact) <= 1e-9, "{what}: {:e}", distance(&x, &exact));
            }
        }
    }
}

/// Singular systems with b in the range of A converge. If b is not in the range, or P is not definite, the
/// reason says so.
pub fn minres_copes_with_singular_systems<S: PointBlockSum + BlockDiagonal>(make: Make<S>) {
    const N: usize = 60;
    let space = make(N);
    let (mut db, mut dx) = (space.vector().unwrap(), space.vector().unwrap());
    let stop = Stop { rtol: 1e-10, ..Stop::default() };
    let mut run = |a: &dyn LinearOperator<S>, p: Option<&dyn LinearOperator<S>>, rhs: &[f64]| {
        space.write(rhs, &mut db).unwrap();
        space.write(&[0.0; N], &mut dx).unwrap();
        let mut minres = Minres::new(&space, ()).unwrap();
        minres.solve(&space, a, p, &db, &mut dx, &stop, &mut ()).unwrap().clone()
    };
    // A free line maps constants to zero. The other diagonal has both signs and zeros.
    let mut free: Vec<_> =
        (0..N as u32).map(|i| (i, i, if i % (N as u32 - 1) == 0 { 1.0 } else { 2.0 })).collect();
    free.extend((1..N as u32).flat_map(|i| [(i, i - 1, -1.0), (i - 1, i, -1.0)]));
    let free = Csr::from_triplets(N, N, &free).unwrap();
    let signs: Vec<_> = (0..N as u32).map(|i| (i, i, f64::from(i % 7) - 3.0)).collect();
    let signs = Csr::from_triplets(N, N, &signs).unwrap();
    let scaled = OnHost(|x: &[f64], y: &mut [f64]| (0..N).for_each(|i| y[i] = (1.0 + (i % 4) as f64) * x[i]));
    let alternating =
        OnHost(|x: &[f64], y: &mut [f64]| (0..N).for_each(|i| y[i] = if i % 2 == 0 { x[i] } else { -x[i] }));
    for (name, matrix) in [("free", &free), ("signs", &signs)] {
        let a = PointBlock::csr(&space, matrix, Precision::F64).unwrap();
        let rhs = times(matrix, &Random(84).numbers(N));
        for p in [None, Some(&scaled as &dyn LinearOperator<S>)] {
            let history = run(&a, p, &rhs);
            let what = format!("{name}, preconditioned={}: {}", p.is_some(), brief(&history));
            assert_eq!(history.outcome, Outcome::Converged, "{what}");
            assert!(history.true_relative_residual <= 1e-10 && history.iterations <= 2 * N, "{what}");
        }
        if name == "signs" {
            // Six eigenvalues and zero: the space is invariant after seven products.
            let history = run(&a, None, &[1.0; N]);
            assert_eq!(history.outcome, Outcome::Breakdown, "{}", brief(&history));
            let reason = history.reason.unwrap();
            assert!(reason.starts_with("the Krylov space cannot be extended"), "{reason}");
            assert!(history.iterations <= 8, "{}", brief(&history));
            let zeros = (0..N).filter(|i| i % 7 == 3).count() as f64;
            let least = (zeros / N as f64).sqrt();
            assert!((history.true_relative_residual - least).abs() <= 1e-12, "{}", brief(&history));
        }
    }
    let a = PointBlock::csr(&space, &line(N), Precision::F64).unwrap();
    let history = run(&a, Some(&alternating), &Random(85).numbers(N));
    assert_eq!(history.outcome, Outcome::Breakdown, "{}", brief(&history));
    let reason = history.reason.unwrap();
    assert!(reason.starts_with("the preconditioner is not definite"), "{reason}");
}

/// A saddle point with a split of its fields in the diagonal form: few iterations, with exact parts and with
/// others.
pub fn minres_takes_diagonal_splits(device: &str) {
    const N: usize = 120;
    const M: usize = 40;
    let mut rng = Random(86);
    let (mut entries, mut schur) = (Vec::new(), Mat::from_fn(M, M, |i, j| if i == j { 0.1 } else { 0.0 }));
    entries.extend((0..N as u32).map(|i| (i, i, 4.0)));
    entries.extend((1..N as u32).flat_map(|i| [(i, i - 1, -1.0), (i - 1, i, -1.0)]));
    let mut couplings = Mat::zeros(N, M);
    for j in 0..M {
        for i in [3 * j, 3 * j + 1, rng.below(N)] {
            let v = 1.0 + 0.5 * rng.number();
            couplings[(i, j)] += v;
            entries.extend([(i as u32, (N + j) as u32, v), ((N + j) as u32, i as u32, v)]);
        }
        entries.push(((N + j) as u32, (N + j) as u32, -0.1));
    }
    let a = Csr::from_triplets(N + M, N + M, &entries).unwrap();
    for i in 0..M {
        for j in 0..M {
            schur[(i, j)] += (0..N).map(|k| couplings[(k, i)] * couplings[(k, j)] / 4.0).sum::<f64>();
        }
    }
    let all = (0..M * M).map(|k| ((k / M) as u32, (k % M) as u32, schur[(k / M, k % M)]));
    let mass = Csr::from_triplets(M, M, &all.filter(|e| e.2 != 0.0).collect::<Vec<_>>()).unwrap();
    let rhs = rng.numbers(N + M);
    let exact = solve(&written_out(&a), &rhs);
    for (precond, most) in [
        ("split(u: amg, p: chebyshev(jacobi); schur=diagonal, S=Mp)", 60),
        ("split(u: ildu, p: ildu; schur=diagonal, S=selfp)", 60),
        ("split(u: jacobi, p: jacobi; schur=diagonal, S=Mp)", 120),
        ("none", 400),
    ] {
        let fields = vec![
            Field::new("u", (0..N as u32).collect::<Vec<_>>()),
            Field::new("p", (N as u32..(N + M) as u32).collect::<Vec<_>>()),
        ];
        let problem = Problem::csr(&a).unwrap().with_fields(fields).unwrap();
        let problem = problem.with_matrix("Mp", mass.clone()).unwrap();
        let text = format!("device={device} method=minres rtol=1e-10 precond={precond}");
        let mut solver = Solver::new(problem, &text.parse::<Options>().unwrap()).unwrap();
        for round in 0..2 {
            let mut x = vec![0.0; N + M];
            let solution = solver.solve(&rhs, &mut x).unwrap();
            let what = format!("{precond}, round {round}: {}", brief(&solution.history));
            assert_eq!(solution.outcome(), Outcome::Converged, "{what}");
            assert_eq!(solution.method.to_string(), "minres", "{what}");
            assert!(solution.history.iterations <= most, "{what}");
            assert!(distance(&x, &exact) <= 1e-8, "{what}: {:e}", distance(&x, &exact));
        }
    }
}

/// With no preconditioner named, MINRES takes Jacobi, or none if the diagonal is not definite. A matrix that
/// is not symmetric is named.
pub fn minres_chooses_a_definite_preconditioner(device: &str) {
    const N: usize = 80;
    let mut entries: Vec<_> = (0..N as u32).map(|i| (i, i, if i % 2 == 0 { 3.0 } else { -2.0 })).collect();
    entries.extend((1..N as u32).flat_map(|i| [(i, i - 1, 1.0), (i - 1, i, 1.0)]));
    let signs = Csr::from_triplets(N, N, &entries).unwrap();
    let definite = indefinite(&mut Random(87), 1, N, 1.0).to_csr();
    entries.extend((1..N as u32).map(|i| (i, i - 1, 0.9)));
    let uneven = Csr::from_triplets(N, N, &entries).unwrap();
    let options: Options = format!("device={device} method=minres rtol=1e-10").parse().unwrap();
    let rhs = Random(88).numbers(N);
    for (matrix, precond) in [(&definite, "jacobi"), (&signs, "none")] {
        let mut x = vec![0.0; N];
        let mut solver = Solver::new(matrix, &options).unwrap();
        let solution = solver.solve(&rhs, &mut x).unwrap();
        assert_eq!(solution.outcome(), Outcome::Converged, "{precond}: {:?}", solution.events);
        assert_eq!(solution.precond.name, precond, "{:?}", solution.events);
        let exact = solve(&written_out(matrix), &rhs);
        assert!(distance(&x, &exact) <= 1e-8, "{precond}: {:e}", distance(&x, &exact));
    }
    let mut solver = Solver::new(&uneven, &options.max_iters(200)).unwrap();
    let solution = solver.solve(&rhs, &mut [0.0; N]).unwrap();
    let words = "minres needs a symmetric matrix, and this one is not symmetric";
    assert!(solution.events.iter().any(|e| e.detail.contains(words)), "{:?}", solution.events);
}

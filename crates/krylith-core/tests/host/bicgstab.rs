//! BiCGSTAB on the CPU: the textbook's numbers, every outcome for its own reason, breakdowns, threads.

use crate::common::*;
use krylith_core::device::cpu::Cpu;
use krylith_core::matrix::Csr;
use krylith_core::method::{Bicgstab, BicgstabOptions, Reductions};
use krylith_core::operator::{LinearOperator, PointBlock, Terms};
use krylith_core::precond::BlockJacobi;
use krylith_core::{History, Observer, Outcome, Precision, Progress, Stop};
use std::cell::Cell;
use std::ops::ControlFlow;

const BOTH: [BicgstabOptions; 2] = [
    BicgstabOptions { reductions: Reductions::Merged, complex: false },
    BicgstabOptions { reductions: Reductions::Classical, complex: false },
];
const TIGHT: Stop = Stop { rtol: 1e-12, atol: 0.0, max_iters: 10_000, ..Stop::DEFAULT };

fn matrix(rows: &[&[f64]]) -> Csr {
    let n = rows.len();
    let entries: Vec<_> = (0..n * n)
        .map(|e| ((e / n) as u32, (e % n) as u32, rows[e / n][e % n]))
        .filter(|e| e.2 != 0.0)
        .collect();
    Csr::from_triplets(n, n, &entries).unwrap()
}

struct Run {
    x: Vec<f64>,
    history: History,
    restarts: Vec<(usize, &'static str)>,
}

/// Hears of restarts, and breaks at an iteration if told to.
#[derive(Default)]
struct Ear {
    stop_at: Option<usize>,
    restarts: Vec<(usize, &'static str)>,
}

impl Observer for Ear {
    fn progress(&mut self, p: Progress) -> ControlFlow<()> {
        if self.stop_at == Some(p.iteration) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
    fn restarted(&mut self, iteration: usize, why: &'static str) {
        self.restarts.push((iteration, why));
    }
}

fn run_from(
    a: &dyn LinearOperator<Cpu>,
    p: Option<&dyn LinearOperator<Cpu>>,
    b: &[f64],
    x0: &[f64],
    options: BicgstabOptions,
    stop: Stop,
    mut ear: Ear,
) -> Run {
    let space = Cpu::new(b.len(), 1);
    let mut x = x0.to_vec();
    let mut method = Bicgstab::new(&space, options).unwrap();
    let history = method.solve(&space, a, p, &b.to_vec(), &mut x, &stop, &mut ear).unwrap().clone();
    assert_eq!(history.residuals.len(), history.iterations + 1, "{options:?} {history:?}");
    assert!(x.iter().all(|x| x.is_finite()), "{options:?} {history:?}");
    Run { x, history, restarts: ear.restarts }
}

fn run(a: &Csr, b: &[f64], options: BicgstabOptions, stop: Stop) -> Run {
    let space = Cpu::new(b.len(), 1);
    let a = PointBlock::csr(&space, a, Precision::F64).unwrap();
    run_from(&a, None, b, &vec![0.0; b.len()], options, stop, Ear::default())
}

/// van der Vorst's algorithm on dense arrays, line by line: ‖r‖/‖b‖ before and after `steps` iterations.
fn textbook(a: &Mat, inverse: Option<&Mat>, b: &[f64], steps: usize) -> Vec<f64> {
    let n = b.len();
    let k = |x: &[f64]| inverse.map_or(x.to_vec(), |p| multiply(p, x));
    let (mut x, mut r) = (vec![0.0; n], b.to_vec());
    let rhat = r.clone();
    let (mut rho, mut alpha, mut omega) = (1.0, 1.0, 1.0);
    let (mut v, mut p) = (vec![0.0; n], vec![0.0; n]);
    let mut history = vec![1.0];
    for _ in 0..steps {
        let before = rho;
        rho = dot(&rhat, &r);
        let beta = rho / before * (alpha / omega);
        p = (0..n).map(|i| r[i] + beta * (p[i] - omega * v[i])).collect();
        let phat = k(&p);
        v = multiply(a, &phat);
        alpha = rho / dot(&rhat, &v);
        let s: Vec<f64> = (0..n).map(|i| r[i] - alpha * v[i]).collect();
        let shat = k(&s);
        let t = multiply(a, &shat);
        omega = dot(&t, &s) / dot(&t, &t);
        x = (0..n).map(|i| x[i] + alpha * phat[i] + omega * shat[i]).collect();
        r = (0..n).map(|i| s[i] - omega * t[i]).collect();
        history.push(norm(&r) / norm(b));
    }
    history
}

/// The inverses of the diagonal blocks of a matrix, as a matrix.
fn block_diagonal_inverse(a: &Mat, order: usize) -> Mat {
    let n = a.nrows();
    let mut inverse = Mat::zeros(n, n);
    for at in (0..n).step_by(order) {
        let block = Mat::from_fn(order, order, |i, j| a[(at + i, at + j)]);
        for j in 0..order {
            let unit: Vec<f64> = (0..order).map(|i| (i == j) as usize as f64).collect();
            solve(&block, &unit).iter().enumerate().for_each(|(i, v)| inverse[(at + i, at + j)] = *v);
        }
    }
    inverse
}

#[test]
fn the_first_iterations_are_the_textbooks_and_the_answer_is_right() {
    let mut rng = Random(1);
    for (b, s, n, same) in
        [(1, 1, 40, true), (4, 2, 33, true), (3, 3, 31, false), (8, 1, 17, true), (5, 4, 12, true)]
    {
        let k = random_kronecker(&mut rng, b, s, n, 3, same, true);
        let rhs = rng.numbers(k.rows());
        let (a, terms, space) = (dense(&k), Terms::kronecker(&k), Cpu::new(k.rows(), 1));
        let (direct, inverse) = (solve(&a, &rhs), block_diagonal_inverse(&a, b * s));
        let operator = PointBlock::new(&space, &terms, Precision::F64, false).unwrap();
        let jacobi = BlockJacobi::new(&space, &terms, Precision::F64).unwrap();
        for options in BOTH {
            for p in [None, Some(&jacobi as &dyn LinearOperator<Cpu>)] {
                let run = run_from(&operator, p, &rhs, &vec![0.0; rhs.len()], options, TIGHT, Ear::default());
                let what = format!("b={b} s={s} {options:?} jacobi={} {:?}", p.is_some(), run.history);
                let reference = textbook(&a, p.map(|_| &inverse), &rhs, 5);
                for (k, (own, book)) in run.history.residuals.iter().zip(&reference).enumerate() {
                    assert!((own - book).abs() <= 1e-10, "iteration {k}: {own:e} {book:e} {what}");
                }
                assert!(run.history.iterations >= 5, "{what}");
                assert_eq!(run.history.outcome, Outcome::Converged, "{what}");
                assert!(run.history.true_relative_residual <= 1e-12, "{what}");
                assert!(distance(&run.x, &direct) < 1e-10, "{what}");
            }
        }
    }
}

#[test]
fn converged_means_the_true_residual_at_the_first_iteration_that_has_it() {
    let a = convection_diffusion(15);
    let b = Random(1).numbers(225);
    for options in BOTH {
        for rtol in [1e-3, 1e-8, 1e-12] {
            let run = run(&a, &b, options, Stop { rtol, ..TIGHT });
            assert_eq!(run.history.outcome, Outcome::Converged, "{options:?} {:?}", run.history);
            let true_residual = relative_residual(&a, &b, &run.x);
            assert!(true_residual <= rtol, "{options:?}: {true_residual:e}");
            assert!((true_residual - run.history.true_relative_residual).abs() <= 1e-14);
            let first = run.history.residuals.iter().position(|&r| r <= rtol);
            assert_eq!(first, Some(run.history.iterations), "{options:?} {rtol:e}");
        }
    }
}

#[test]
fn max_iterations_are_taken_exactly() {
    let a = convection_diffusion(15);
    let b = Random(2).numbers(225);
    for options in BOTH {
        for limit in [0, 1, 7, 8, 9, 16, 19] {
            let run = run(&a, &b, options, Stop { rtol: 1e-15, max_iters: limit, ..TIGHT });
            assert_eq!(run.history.outcome, Outcome::MaxIterations, "{options:?} {limit}");
            assert_eq!((run.history.iterations, run.history.restarts), (limit, 0));
            let each = if options.reductions == Reductions::Merged { 2 } else { 3 };
            assert_eq!(run.history.reductions, each * limit, "{options:?} {limit}");
            let reached = relative_residual(&a, &b, &run.x);
            assert!((reached - run.history.true_relative_residual).abs() < 1e-14, "{options:?} {limit}");
        }
    }
}

#[test]
fn breakdowns_are_named_and_gone_round() {
    // From r = e₁ in exact numbers: (r, A r) = 0, then ω = 0, then (r̂, r) = 0 after the first iteration.
    let pivot = matrix(&[&[0.0, 1.0, 0.0], &[1.0, 1.0, 1.0], &[2.0, 0.0, 3.0]]);
    let stabilization = matrix(&[&[1.0, 1.0, 2.0], &[1.0, 2.0, 0.0], &[-1.0, 0.0, -2.0]]);
    let lanczos = matrix(&[&[1.0, 1.0, 1.0], &[1.0, 2.0, 0.0], &[-1.0, 0.0, 3.0]]);
    let cases = [("pivot", pivot, 0), ("stabilisation", stabilization, 1), ("Lanczos", lanczos, 1)];
    for (name, a, at) in cases {
        for options in BOTH {
            let run = run(&a, &[1.0, 0.0, 0.0], options, TIGHT);
            let what = format!("{name} {options:?} {:?} {:?}", run.history, run.restarts);
            assert_eq!(run.history.outcome, Outcome::Converged, "{what}");
            assert!(relative_residual(&a, &[1.0, 0.0, 0.0], &run.x) <= 1e-12, "{what}");
            assert_eq!(run.restarts[0].0, at, "{what}");
            assert!(run.restarts[0].1.starts_with(name), "{what}");
            // A restart before the first iteration begins nothing anew.
            let before_any = run.restarts.iter().filter(|r| r.0 == 0).count();
            assert!(run.history.restarts + before_any >= 1 && run.history.restarts <= run.restarts.len());
        }
    }
}

#[test]
fn indefinite_diagonals_do_not_end_at_once() {
    // (r, A r) = 0 for r = b: a restart with r̂ = r alone would come to the same breakdown for ever.
    let entries: Vec<_> = (0..40u32).map(|i| (i, i, if i % 2 == 0 { 1.0 } else { -1.0 })).collect();
    let a = Csr::from_triplets(40, 40, &entries).unwrap();
    for options in BOTH {
        let run = run(&a, &[1.0; 40], options, TIGHT);
        assert_eq!(run.history.outcome, Outcome::Converged, "{options:?} {:?}", run.history);
    }
}

#[test]
fn matrices_without_an_answer_break_down_by_name() {
    let skew = matrix(&[
        &[0.0, 1.0, 0.0, 2.0],
        &[-1.0, 0.0, 3.0, 0.0],
        &[0.0, -3.0, 0.0, 1.0],
        &[-2.0, 0.0, -1.0, 0.0],
    ]);
    let nilpotent = matrix(&[&[0.0, 0.0, 0.0], &[1.0, 0.0, 0.0], &[0.0, 1.0, 0.0]]);
    let zero = matrix(&[&[0.0, 1.0], &[0.0, 0.0]]);
    let singular = matrix(&[&[1.0, 0.0, 0.0], &[0.0, 2.0, 0.0], &[0.0, 0.0, 0.0]]);
    for (name, a, b) in [
        ("skew", &skew, vec![1.0, 0.5, -0.25, 2.0]),
        ("nilpotent", &nilpotent, vec![1.0, 0.0, 0.0]),
        ("zero column", &zero, vec![1.0, 0.0]),
        ("singular", &singular, vec![1.0; 3]),
    ] {
        for options in BOTH {
            let run = run(a, &b, options, Stop { max_iters: 500, ..TIGHT });
            let what = format!("{name} {options:?} {:?} {:?}", run.history, run.restarts);
            assert!(
                matches!(run.history.outcome, Outcome::Breakdown | Outcome::Stagnated | Outcome::Diverged),
                "{what}"
            );
            assert!(run.history.residuals.iter().all(|r| r.is_finite()), "{what}");
            // What comes back is never worse than the guess.
            assert!(run.history.true_relative_residual <= 1.0, "{what}");
            assert!(
                (relative_residual(a, &b, &run.x) - run.history.true_relative_residual).abs() < 1e-14,
                "{what}"
            );
        }
    }
    for (a, b, outcome) in [
        (&skew, vec![1.0, 0.5, -0.25, 2.0], Outcome::Breakdown),
        // The unknown that no row reads overflows first.
        (&nilpotent, vec![1.0, 0.0, 0.0], Outcome::Diverged),
        (&zero, vec![1.0, 0.0], Outcome::Breakdown),
    ] {
        for options in BOTH {
            let run = run(a, &b, options, TIGHT);
            assert_eq!(run.history.outcome, outcome, "{options:?}");
            assert!(run.x.iter().all(|x| x.is_finite()), "{options:?} {:?}", run.x);
        }
    }
}

#[test]
fn a_tolerance_below_rounding_is_named() {
    let (a, b) = (convection_diffusion(12), Random(3).numbers(144));
    for options in BOTH {
        let run = run(&a, &b, options, Stop { rtol: 1e-17, ..TIGHT });
        assert_eq!(run.history.outcome, Outcome::RoundingLimit, "{options:?} {:?}", run.history);
        assert!(run.history.true_relative_residual < 1e-14, "{options:?}");
        assert!((1..12).contains(&run.history.restarts), "{options:?}: {}", run.history.restarts);
    }
}

#[test]
fn an_operator_that_is_not_linear_does_not_converge() {
    let cube = Map(|x: &[f64], y: &mut [f64]| y.iter_mut().zip(x).for_each(|(y, x)| *y = 1e-3 * x * x * x));
    for options in BOTH {
        let run = run_from(&cube, None, &[1.0; 16], &[0.0; 16], options, TIGHT, Ear::default());
        assert_eq!(run.history.outcome, Outcome::Diverged, "{options:?} {:?}", run.history);
        assert_eq!(run.history.true_relative_residual, 1.0, "the guess was the best");
        assert_eq!(run.x, [0.0; 16]);
    }
}

#[test]
fn not_a_number_is_named_and_x_stays_finite() {
    let n = 50;
    for options in BOTH {
        for bad in [1usize, 2, 3, 4, 5, 16, 17, 18, 19] {
            let products = Cell::new(0usize);
            let a = Map(|x: &[f64], y: &mut [f64]| {
                products.set(products.get() + 1);
                for i in 0..n {
                    y[i] = (2.0 + (i as f64).sin()) * x[i] - 0.5 * x[(i + 1) % n];
                }
                if products.get() == bad {
                    y[n / 2] = f64::NAN;
                }
            });
            let run = run_from(&a, None, &vec![1.0; n], &vec![0.0; n], options, TIGHT, Ear::default());
            assert_eq!(run.history.outcome, Outcome::NotFinite, "{options:?} product {bad}");
            // Product 1 is the residual; two follow for each iteration.
            assert_eq!(run.history.iterations, bad.saturating_sub(2) / 2, "{options:?} product {bad}");
        }
    }
}

#[test]
fn an_observer_interrupts_and_keeps_x() {
    let a = convection_diffusion(15);
    let b = Random(4).numbers(225);
    let space = Cpu::new(225, 1);
    let operator = PointBlock::csr(&space, &a, Precision::F64).unwrap();
    for options in BOTH {
        for k in [0, 1, 5, 8, 13] {
            let ear = Ear { stop_at: Some(k), ..Ear::default() };
            let run = run_from(&operator, None, &b, &[0.0; 225], options, TIGHT, ear);
            assert_eq!(
                (run.history.outcome, run.history.iterations),
                (Outcome::Interrupted, k),
                "{options:?}"
            );
            let reached = relative_residual(&a, &b, &run.x);
            assert!((reached - run.history.true_relative_residual).abs() < 1e-14, "{options:?} {k}");
            assert!(k == 0 || reached < 0.99);
        }
    }
}

#[test]
fn trivial_solves_take_no_iteration() {
    let a = convection_diffusion(6);
    let space = Cpu::new(36, 1);
    let operator = PointBlock::csr(&space, &a, Precision::F64).unwrap();
    let x = Random(6).numbers(36);
    let mut b = vec![0.0; 36];
    operator.apply(&space, &x, &mut b).unwrap();
    for options in BOTH {
        let from = |b: &[f64], x0: &[f64]| run_from(&operator, None, b, x0, options, TIGHT, Ear::default());
        let exact = from(&b, &x);
        assert_eq!((exact.history.outcome, exact.history.iterations), (Outcome::Converged, 0));
        assert!(exact.history.true_relative_residual <= 1e-16 && exact.x == x); // b was rounded
        let zero = from(&[0.0; 36], &x);
        assert_eq!((zero.history.outcome, zero.history.iterations), (Outcome::Converged, 0));
        assert_eq!((zero.history.residuals, zero.x), (vec![0.0], vec![0.0; 36]));
        let guess: Vec<f64> = x.iter().map(|x| x * 1.001).collect();
        let near = from(&b, &guess);
        assert!(near.history.residuals[0] < 0.01 && near.history.outcome == Outcome::Converged);
        // One eigenvalue: the first half of the first iteration is the answer.
        let entries: Vec<_> = (0..36).map(|i| (i, i, 4.0)).collect();
        let scaled = run(&Csr::from_triplets(36, 36, &entries).unwrap(), &b, options, TIGHT);
        assert_eq!((scaled.history.outcome, scaled.history.iterations), (Outcome::Converged, 1));
    }
}

#[test]
fn an_absolute_tolerance_counts() {
    let (a, b) = (convection_diffusion(10), Random(8).numbers(100));
    let run = run(&a, &b, BOTH[0], Stop { rtol: 0.0, atol: 1e-3, max_iters: 1000, ..Stop::DEFAULT });
    let reached = run.history.true_relative_residual * norm(&b);
    assert!(run.history.outcome == Outcome::Converged && reached <= 1e-3 && reached > 1e-6);
}

/// A second solve by the same object, and one on other threads, have the same bits.
#[test]
fn results_are_bitwise_repeatable() {
    let mut rng = Random(9);
    let k = random_kronecker(&mut rng, 4, 2, 700, 6, true, true);
    let rhs = rng.numbers(k.rows());
    for options in BOTH {
        let solve = |threads: usize| {
            let space = eager(k.rows(), threads);
            let terms = Terms::kronecker(&k);
            let a = PointBlock::new(&space, &terms, Precision::F64, false).unwrap();
            let p = BlockJacobi::new(&space, &terms, Precision::F64).unwrap();
            let mut method = Bicgstab::new(&space, options).unwrap();
            let mut once = |p: Option<&dyn LinearOperator<Cpu>>| {
                let mut x = vec![0.0; k.rows()];
                let history = method.solve(&space, &a, p, &rhs, &mut x, &TIGHT, &mut ()).unwrap();
                (x, history.residuals.clone())
            };
            let first = [once(Some(&p)), once(None)];
            assert_eq!(first, [once(Some(&p)), once(None)], "{options:?}");
            first
        };
        let one = solve(1);
        assert_eq!(one, solve(2), "{options:?}");
        assert_eq!(one, solve(3), "{options:?}");
    }
}

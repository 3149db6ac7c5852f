//! GMRES on the CPU: every outcome for its own reason, breakdowns, orthogonality, agreement of its variants.

use crate::common::*;
use krylith_core::device::cpu::Cpu;
use krylith_core::matrix::Csr;
use krylith_core::method::{Gmres, GmresOptions, Orthogonalization};
use krylith_core::operator::{LinearOperator, PointBlock, Terms};
use krylith_core::precond::BlockJacobi;
use krylith_core::space::Space;
use krylith_core::{History, Outcome, Precision, Progress, Stop};
use std::cell::Cell;
use std::ops::ControlFlow;

const VARIANTS: [Orthogonalization; 3] =
    [Orthogonalization::Lowsync, Orthogonalization::Cgs2, Orthogonalization::Mgs];

/// Every orthogonalisation with both basis precisions.
fn all_options(restart: usize) -> impl Iterator<Item = GmresOptions> {
    VARIANTS.into_iter().flat_map(move |orthogonalization| {
        [Precision::F64, Precision::F32].map(|basis| GmresOptions {
            restart,
            orthogonalization,
            basis,
            ..GmresOptions::default()
        })
    })
}

fn matrix(n: usize, entry: impl Fn(usize, usize) -> f64) -> Csr {
    let all = (0..n * n).map(|e| (e / n, e % n));
    let entries: Vec<_> =
        all.map(|(i, j)| (i as u32, j as u32, entry(i, j))).filter(|e| e.2 != 0.0).collect();
    Csr::from_triplets(n, n, &entries).unwrap()
}

fn diagonal(d: &[f64]) -> Csr {
    matrix(d.len(), |i, j| if i == j { d[i] } else { 0.0 })
}

/// A e_j = e_{j+1}, the last to the first.
fn cyclic_shift(n: usize) -> Csr {
    matrix(n, |i, j| ((j + 1) % n == i) as usize as f64)
}

fn unit(n: usize) -> Vec<f64> {
    (0..n).map(|i| (i == 0) as usize as f64).collect()
}

/// Eigenvalues from 1 to 1e-12 on a bidiagonal matrix.
fn ill_conditioned(n: usize) -> Csr {
    let d = |i: usize| 10f64.powf(-12.0 * i as f64 / (n - 1) as f64);
    matrix(n, |i, j| {
        if i == j {
            d(i)
        } else if j == i + 1 {
            0.5 * d(j)
        } else {
            0.0
        }
    })
}

struct Run {
    x: Vec<f64>,
    history: History,
}

fn run(
    a: &dyn LinearOperator<Cpu>,
    b: &[f64],
    x0: &[f64],
    options: GmresOptions,
    stop: Stop,
    observer: &mut dyn krylith_core::Observer,
) -> Run {
    let space = Cpu::new(b.len(), 1);
    let mut x = x0.to_vec();
    let mut gmres = Gmres::new(&space, options).unwrap();
    let history = gmres.solve(&space, a, None, &b.to_vec(), &mut x, &stop, observer).unwrap().clone();
    assert_eq!(history.residuals.len(), history.iterations + 1, "{options:?} {history:?}");
    Run { x, history }
}

fn solve(a: &Csr, b: &[f64], options: GmresOptions, stop: Stop) -> Run {
    let space = Cpu::new(b.len(), 1);
    let a = PointBlock::csr(&space, a, Precision::F64).unwrap();
    run(&a, b, &vec![0.0; b.len()], options, stop, &mut ())
}

const TIGHT: Stop = Stop { rtol: 1e-12, atol: 0.0, max_iters: 10_000, ..Stop::DEFAULT };

#[test]
fn converged_means_the_true_residual() {
    let a = convection_diffusion(15);
    let b = Random(1).numbers(225);
    for options in all_options(20) {
        let run = solve(&a, &b, options, TIGHT);
        assert_eq!(run.history.outcome, Outcome::Converged, "{options:?} {:?}", run.history);
        let true_residual = relative_residual(&a, &b, &run.x);
        assert!(true_residual <= 1e-12, "{options:?}: {true_residual:e}");
        assert!((true_residual - run.history.true_relative_residual).abs() <= 1e-14);
        assert!(run.history.restarts > 0);
    }
}

#[test]
fn max_iterations_are_taken_exactly() {
    let a = convection_diffusion(15);
    let b = Random(2).numbers(225);
    for options in all_options(10) {
        for limit in [0, 1, 9, 10, 11, 25] {
            let run = solve(&a, &b, options, Stop { max_iters: limit, ..TIGHT });
            assert_eq!(run.history.outcome, Outcome::MaxIterations, "{options:?}");
            assert_eq!(run.history.iterations, limit);
            let reductions = match options.orthogonalization {
                Orthogonalization::Lowsync => limit,
                Orthogonalization::Cgs2 => 3 * limit,
                // j + 2 at step j of a cycle.
                Orthogonalization::Mgs => (0..limit).map(|j| j % 10 + 2).sum(),
            };
            assert_eq!(run.history.reductions, reductions, "{options:?} {limit}");
        }
    }
}

#[test]
fn a_singular_inconsistent_system_breaks_down() {
    for options in all_options(30) {
        // The component along the null space cannot be reached; the others are.
        let run = solve(&diagonal(&[1.0, 2.0, 0.0]), &[1.0; 3], options, TIGHT);
        assert_eq!(run.history.outcome, Outcome::Breakdown, "{options:?} {:?}", run.history);
        let error = run.history.true_relative_residual - (1.0 / 3f64).sqrt();
        assert!(error.abs() < 1e-6, "{options:?} {:?} {:?}", run.x, run.history);

        for seed in 0..20 {
            let mut rng = Random(100 + seed);
            let n = 12;
            let (numbers, b) = (rng.numbers(n * n), rng.numbers(n));
            let a = matrix(n, |i, j| if i + 1 == n { 0.0 } else { numbers[i * n + j] });
            let run = solve(&a, &b, options, TIGHT);
            let outcome = run.history.outcome;
            assert!(outcome == Outcome::Breakdown || outcome == Outcome::Stagnated, "{options:?} {outcome}");
            let least = b[n - 1].abs() / norm(&b);
            let reached = run.history.true_relative_residual;
            assert!(
                reached >= least * (1.0 - 1e-12) && reached <= 1.0 + 1e-12,
                "{options:?} {seed}: {reached:e}"
            );
        }
    }
}

#[test]
fn a_nilpotent_matrix_breaks_down() {
    let n = 6;
    let a = matrix(n, |i, j| (j + 1 == i) as usize as f64);
    for options in all_options(30) {
        let run = solve(&a, &unit(n), options, TIGHT);
        assert_eq!(run.history.outcome, Outcome::Breakdown, "{options:?} {:?}", run.history);
        assert_eq!(run.history.iterations, n);
        assert_eq!(run.history.residuals, vec![1.0; n + 1]);
        assert_eq!(run.x, vec![0.0; n]);
        // A zero matrix: the first product already vanishes.
        let run = solve(&matrix(3, |i, j| (i == 0 && j == 1) as usize as f64), &unit(3), options, TIGHT);
        assert_eq!((run.history.outcome, run.history.iterations), (Outcome::Breakdown, 1), "{options:?}");
    }
}

#[test]
fn short_restarts_stagnate_on_the_cyclic_shift() {
    for options in all_options(5) {
        let run = solve(&cyclic_shift(10), &unit(10), options, TIGHT);
        assert_eq!(run.history.outcome, Outcome::Stagnated, "{options:?}");
        assert!(run.history.residuals.iter().all(|r| (r - 1.0).abs() < 1e-14));
    }
    for options in all_options(10) {
        let run = solve(&cyclic_shift(10), &unit(10), options, TIGHT);
        assert_eq!((run.history.outcome, run.history.iterations), (Outcome::Converged, 10), "{options:?}");
    }
}

#[test]
fn a_tolerance_below_rounding_is_named() {
    for (a, b) in
        [(convection_diffusion(12), Random(3).numbers(144)), (diagonal(&[3.0, 0.7, 1.1]), vec![0.1; 3])]
    {
        for options in all_options(20) {
            let run = solve(&a, &b, options, Stop { rtol: 1e-17, ..TIGHT });
            let reached = run.history.true_relative_residual;
            // A tiny system may hit b − A x = 0 exactly.
            let outcome = if reached == 0.0 { Outcome::Converged } else { Outcome::RoundingLimit };
            assert_eq!(run.history.outcome, outcome, "{options:?} {:?}", run.history);
            assert!(reached < 1e-14, "{options:?}: {reached:e}");
            assert!(run.history.restarts < 12, "{options:?}: {}", run.history.restarts);
        }
    }
}

#[test]
fn an_operator_that_is_not_linear_diverges() {
    let n = 16;
    let cube = Map(|x: &[f64], y: &mut [f64]| y.iter_mut().zip(x).for_each(|(y, x)| *y = 1e-3 * x * x * x));
    for options in all_options(10) {
        let run = run(&cube, &vec![1.0; n], &vec![0.0; n], options, TIGHT, &mut ());
        assert_eq!(run.history.outcome, Outcome::Diverged, "{options:?} {:?}", run.history);
        assert!(*run.history.residuals.last().unwrap() > 1e4);
        assert_eq!(run.history.true_relative_residual, 1.0, "the best x, the first guess, is given back");
    }
}

#[test]
fn not_a_number_is_named_and_x_stays_finite() {
    let n = 50;
    for options in all_options(8) {
        for bad in [1usize, 2, 3, 7, 9, 10, 11, 15] {
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
            let run = run(&a, &vec![1.0; n], &vec![0.0; n], options, TIGHT, &mut ());
            assert_eq!(run.history.outcome, Outcome::NotFinite, "{options:?} product {bad}");
            // Products 1 and 10 are residuals, and 2 to 9 the iterations of the first cycle.
            let iterations = if bad <= 9 { bad.saturating_sub(2) } else { 8 + bad.saturating_sub(11) };
            assert_eq!(run.history.iterations, iterations, "{options:?} product {bad}");
            assert!(run.x.iter().all(|x| x.is_finite()), "{options:?} product {bad}");
        }
    }
}

#[test]
fn an_observer_interrupts_and_keeps_x() {
    let a = convection_diffusion(15);
    let b = Random(4).numbers(225);
    let space = Cpu::new(225, 1);
    let operator = PointBlock::csr(&space, &a, Precision::F64).unwrap();
    for options in all_options(8) {
        for k in [0, 1, 5, 8, 13] {
            let mut observer = |p: Progress| {
                if p.iteration == k { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            let run = run(&operator, &b, &vec![0.0; 225], options, TIGHT, &mut observer);
            assert_eq!(
                (run.history.outcome, run.history.iterations),
                (Outcome::Interrupted, k),
                "{options:?}"
            );
            let reached = relative_residual(&a, &b, &run.x);
            assert!((reached - run.history.residuals[k]).abs() < 1e-12, "{options:?} {k}");
            assert!(k == 0 || reached < 0.99);
        }
    }
}

#[test]
fn an_invariant_space_ends_with_the_answer() {
    let mut rng = Random(5);
    for n in [1, 2, 7, 300] {
        for degree in [1usize, 2, 3, 5] {
            // `degree` distinct eigenvalues: the minimal polynomial of b has that degree at most.
            let d: Vec<f64> = (0..n).map(|i| 1.0 + (i % degree) as f64).collect();
            let (a, b) = (diagonal(&d), rng.numbers(n));
            for options in all_options(30) {
                let run = solve(&a, &b, options, TIGHT);
                let what = format!("{options:?} n={n} degree={degree} {:?}", run.history);
                assert_eq!(run.history.outcome, Outcome::Converged, "{what}");
                assert!(relative_residual(&a, &b, &run.x) <= 1e-12, "{what}");
                if options.basis == Precision::F64 {
                    assert_eq!(run.history.iterations, degree.min(n), "{what}");
                }
            }
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
    for options in all_options(30) {
        let exact = run(&operator, &b, &x, options, TIGHT, &mut ());
        assert_eq!((exact.history.outcome, exact.history.iterations), (Outcome::Converged, 0));
        assert!(exact.history.true_relative_residual <= 1e-16 && exact.x == x); // b was rounded
        let zero = run(&operator, &[0.0; 36], &x, options, TIGHT, &mut ());
        assert_eq!((zero.history.outcome, zero.history.iterations), (Outcome::Converged, 0));
        assert_eq!((zero.history.residuals, zero.x), (vec![0.0], vec![0.0; 36]));
        // From a guess the answer is as good as from zero, and never worse than the guess.
        let guess: Vec<f64> = x.iter().map(|x| x * 1.001).collect();
        let near = run(&operator, &b, &guess, options, TIGHT, &mut ());
        assert!(near.history.residuals[0] < 0.01 && near.history.outcome == Outcome::Converged);
    }
}

#[test]
fn a_restart_longer_than_the_system_is_harmless() {
    let mut rng = Random(7);
    for n in [1, 2, 3, 10, 31] {
        let (numbers, b) = (rng.numbers(n * n), rng.numbers(n));
        let a = matrix(n, |i, j| numbers[i * n + j] + if i == j { 2.0 } else { 0.0 });
        for options in all_options(3 * n) {
            let run = solve(&a, &b, options, TIGHT);
            assert_eq!(run.history.outcome, Outcome::Converged, "{options:?} n={n} {:?}", run.history);
            if options.basis == Precision::F64 {
                assert!(run.history.iterations <= n, "{options:?} n={n}: {}", run.history.iterations);
            }
        }
    }
}

#[test]
fn an_absolute_tolerance_counts() {
    let (a, b) = (convection_diffusion(10), Random(8).numbers(100));
    let stop = Stop { rtol: 0.0, atol: 1e-3, max_iters: 1000, ..Stop::DEFAULT };
    let run = solve(&a, &b, GmresOptions::default(), stop);
    let reached = run.history.true_relative_residual * norm(&b);
    assert!(run.history.outcome == Outcome::Converged && reached <= 1e-3 && reached > 1e-5);
}

/// ‖I − VᵀV‖_F over the first `m` columns.
fn orthogonality(a: &Csr, b: &[f64], options: GmresOptions) -> f64 {
    let (space, m) = (Cpu::new(b.len(), 1), options.restart);
    let a = PointBlock::csr(&space, a, Precision::F64).unwrap();
    let mut gmres = Gmres::new(&space, options).unwrap();
    let stop = Stop { rtol: 0.0, atol: 0.0, max_iters: m, ..Stop::DEFAULT };
    let mut x = space.vector().unwrap();
    let history = gmres.solve(&space, &a, None, &b.to_vec(), &mut x, &stop, &mut ()).unwrap();
    assert_eq!((history.iterations, history.restarts), (m, 0), "{options:?}: the basis must be whole");
    departure(&gmres, m)
}

/// ‖I − VᵀV‖_F of the last cycle.
fn departure(gmres: &Gmres<Cpu>, m: usize) -> f64 {
    let v: Vec<Vec<f64>> = (0..m).map(|k| gmres.recurrence().basis().column(k)).collect();
    // Summed by chunks: the rounding of one long sum would drown what is measured.
    let by_chunks =
        |p: usize, q: usize| -> f64 { v[p].chunks(32).zip(v[q].chunks(32)).map(|(x, y)| dot(x, y)).sum() };
    let error = |p, q| (by_chunks(p, q) - (p == q) as usize as f64).powi(2);
    (0..m * m).map(|e| error(e / m, e % m)).sum::<f64>().sqrt()
}

#[test]
fn bases_are_orthogonal() {
    let ill = (ill_conditioned(1000), vec![1.0; 1000]);
    let rough = (ill_conditioned(1000), Random(9).numbers(1000));
    let stencil = (convection_diffusion(40), vec![1.0; 1600]);
    // Products that differ from their vector in the last digits only: each step cancels all but 1e-6 or 1e-9.
    let near_identity = |spread: f64| {
        let mut rng = Random(11);
        (diagonal(&(0..1000).map(|_| 1.0 + spread * rng.number()).collect::<Vec<_>>()), rng.numbers(1000))
    };
    let cases = [
        ("ill", ill),
        ("rough", rough),
        ("stencil", stencil),
        ("cancelling", near_identity(1e-6)),
        ("cancelling more", near_identity(1e-9)),
    ];
    for (name, (a, b)) in cases {
        for orthogonalization in [Orthogonalization::Lowsync, Orthogonalization::Cgs2] {
            for (basis, bound) in [(Precision::F64, 1e-13), (Precision::F32, 1e-6)] {
                if basis == Precision::F32 && name.starts_with("cancelling") {
                    continue; // the space ends where f32 cannot tell its vectors apart
                }
                let options =
                    GmresOptions { restart: 30, orthogonalization, basis, ..GmresOptions::default() };
                let error = orthogonality(&a, &b, options);
                println!("{name} {orthogonalization:?} {basis:?}: {error:.2e}");
                assert!(error <= bound, "{name} {orthogonalization:?} {basis:?}: {error:e}");
            }
        }
    }
}

#[test]
fn bases_are_orthogonal_whatever_the_preconditioner() {
    let (a, b) = (ill_conditioned(1000), Random(12).numbers(1000));
    let space = Cpu::new(b.len(), 1);
    let a = PointBlock::csr(&space, &a, Precision::F64).unwrap();
    for orthogonalization in [Orthogonalization::Lowsync, Orthogonalization::Cgs2] {
        let calls = Cell::new(0.0f64);
        let varying = Map(|x: &[f64], y: &mut [f64]| {
            calls.set(calls.get() + 1.0);
            // Sizes differ from call to call by up to 1e6 too.
            let size = 10f64.powf(3.0 * (2.3 * calls.get()).sin());
            (0..x.len()).for_each(|i| y[i] = size * x[i] * (1.5 + (1.7 * calls.get() + i as f64).sin()));
        });
        let m = 60;
        let options =
            GmresOptions { restart: m, orthogonalization, flexible: true, ..GmresOptions::default() };
        let mut gmres = Gmres::new(&space, options).unwrap();
        let stop = Stop { rtol: 0.0, atol: 0.0, max_iters: m, ..Stop::DEFAULT };
        let mut x = space.vector().unwrap();
        let history = gmres.solve(&space, &a, Some(&varying), &b, &mut x, &stop, &mut ()).unwrap();
        assert_eq!((history.iterations, history.restarts), (m, 0), "the basis must be whole");
        // H describes the operators that were applied: the recurrence's last residual, replaced by the true
        // one, would be that small.
        let (last, before) = (history.true_relative_residual, history.residuals[m - 1]);
        assert!(last <= before * (1.0 + 1e-9), "{orthogonalization:?}: {last:e} after {before:e}");
        let error = departure(&gmres, m);
        assert!(error <= 1e-13, "{orthogonalization:?}: {error:e}");
    }
}

#[test]
fn variants_agree_in_the_first_cycle() {
    let (a, b) = (convection_diffusion(30), Random(10).numbers(900));
    let histories = VARIANTS.map(|orthogonalization| {
        let options = GmresOptions { restart: 40, orthogonalization, ..GmresOptions::default() };
        solve(&a, &b, options, Stop { max_iters: 40, ..TIGHT }).history.residuals
    });
    for k in 0..=40 {
        let (low, cgs2, mgs) = (histories[0][k], histories[1][k], histories[2][k]);
        assert!((low - cgs2).abs() <= 1e-10 && (low - mgs).abs() <= 1e-10, "{k}: {low:e} {cgs2:e} {mgs:e}");
    }
}

/// GMRES(100), right-preconditioned by point Jacobi, b = ones: returns the first iteration with a residual
/// below `bound`.
fn first_below(path: &std::path::Path, bound: f64, orthogonalization: Orthogonalization) -> (usize, String) {
    let a = krylith_core::io::read_matrix(path).unwrap().matrix.into_csr();
    let space = Cpu::new(a.rows(), 1);
    let operator = PointBlock::csr(&space, &a, Precision::F64).unwrap();
    let jacobi = BlockJacobi::new(&space, &Terms::csr(&a).unwrap(), Precision::F64).unwrap();
    let options = GmresOptions { restart: 100, orthogonalization, ..GmresOptions::default() };
    let mut gmres = Gmres::new(&space, options).unwrap();
    let (b, mut x) = (vec![1.0; a.rows()], vec![0.0; a.rows()]);
    let stop = Stop { rtol: bound, ..Stop::default() };
    let history = gmres.solve(&space, &operator, Some(&jacobi), &b, &mut x, &stop, &mut ()).unwrap();
    assert_eq!(history.outcome, Outcome::Converged);
    let reached = relative_residual(&a, &b, &x);
    // Two evaluations of b − A x differ by the rounding of its longest sums, |A| |x| of 50 terms at most.
    let size =
        |i: usize| a.row(i).0.iter().zip(a.row(i).1).map(|(&j, v)| (v * x[j as usize]).abs()).sum::<f64>();
    let rounding = 50.0 * f64::EPSILON * norm(&(0..b.len()).map(size).collect::<Vec<_>>()) / norm(&b);
    let apart = (reached - history.true_relative_residual).abs();
    assert!(apart <= rounding, "{apart:e}, rounding {rounding:e}");
    let first = history.residuals.iter().position(|&r| r <= bound).unwrap();
    (first, format!("{reached:.6e}"))
}

#[test]
fn the_small_beam_has_its_known_answer() {
    let path =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/beam_tet_dof459_np1.A.mtx.gz");
    for variant in VARIANTS {
        assert_eq!(first_below(&path, 1e-2, variant), (79, "7.176706e-3".into()), "{variant:?}");
    }
}

/// The matrix (same origin and licence, five times larger) is not committed; KRYLITH_DATA names its folder.
#[test]
#[ignore = "needs a matrix, in the folder that KRYLITH_DATA names"]
fn the_larger_beam_has_its_known_answer() {
    let folder = std::env::var("KRYLITH_DATA").expect("KRYLITH_DATA names a folder");
    let path = std::path::Path::new(&folder).join("matrices/beam_tet_dof2475_np4.A.mtx.gz");
    for variant in VARIANTS {
        assert_eq!(first_below(&path, 0.9, variant), (35, "8.909955e-1".into()), "{variant:?}");
    }
}

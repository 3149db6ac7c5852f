//! Solves with operators that are functions of host vectors.

use crate::common::*;
use krylith_core::solver::solve_functions;
use krylith_core::{Error, Observer, Options, Outcome, Progress};
use std::ops::ControlFlow;

fn options(text: &str) -> Options {
    text.parse().unwrap()
}

/// Diagonally dominant and not symmetric.
fn matrix(n: usize) -> Mat {
    let mut rng = Random(3);
    let numbers = rng.numbers(n * n);
    Mat::from_fn(n, n, |i, j| if i == j { n as f64 } else { numbers[i * n + j] })
}

#[test]
fn every_method_solves_with_functions() {
    for n in [1, 2, 31, 33, 60] {
        let a = matrix(n);
        let symmetric = Mat::from_fn(n, n, |i, j| a[(i, j)] + a[(j, i)]);
        let b = Random(4).numbers(n);
        for method in ["gmres", "fgmres", "gmres:restart=7", "bicgstab", "cg", "cbcg", "minres", "auto"] {
            let a = if method.starts_with(['c', 'm']) { &symmetric } else { &a };
            let exact = solve(a, &b);
            for jacobi in [false, true] {
                let mut product = |x: &[f64], y: &mut [f64]| {
                    y.copy_from_slice(&multiply(a, x));
                    Ok(())
                };
                let mut inverse = |x: &[f64], y: &mut [f64]| {
                    (0..n).for_each(|i| y[i] = x[i] / a[(i, i)]);
                    Ok(())
                };
                let p: Option<&mut krylith_core::solver::Function<'_>> =
                    if jacobi { Some(&mut inverse) } else { None };
                let mut x = vec![0.0; n];
                let options = options(&format!("method={method} rtol=1e-10"));
                let history = solve_functions(&mut product, p, &b, &mut x, &options, &mut ()).unwrap();
                assert_eq!(history.outcome, Outcome::Converged, "{method} {n} {jacobi}");
                assert!(distance(&x, &exact) <= 1e-8, "{method} {n} {jacobi}");
            }
        }
    }
}

#[test]
fn what_functions_say_ends_the_solve() {
    let b = vec![1.0; 20];
    let mut calls = 0;
    let mut fails = |x: &[f64], y: &mut [f64]| {
        calls += 1;
        y.iter_mut().zip(x).enumerate().for_each(|(i, (y, x))| *y = (i + 2) as f64 * x);
        if calls > 4 { Err(Error::invalid("of the function")) } else { Ok(()) }
    };
    let error =
        solve_functions(&mut fails, None, &b, &mut [0.0; 20], &options("rtol=1e-14"), &mut ()).unwrap_err();
    assert_eq!(error.to_string(), "of the function");

    let mut good = |x: &[f64], y: &mut [f64]| {
        y.iter_mut().zip(x).enumerate().for_each(|(i, (y, x))| *y = (i + 2) as f64 * x);
        Ok(())
    };
    let mut stops =
        |p: Progress| if p.iteration == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    let history =
        solve_functions(&mut good, None, &b, &mut [0.0; 20], &options("method=cg"), &mut stops).unwrap();
    assert_eq!((history.outcome, history.iterations), (Outcome::Interrupted, 2));
    for (text, said) in [
        ("device=cuda", "run only on the CPU"),
        ("precond=ildu", "`precond` needs a matrix"),
        ("method=cg restart=5", "`restart` applies only to method gmres"),
    ] {
        let error =
            solve_functions(&mut good, None, &b, &mut [0.0; 20], &options(text), &mut ()).unwrap_err();
        assert!(error.to_string().contains(said), "{text}: {error}");
    }
    let error = solve_functions(&mut good, None, &b, &mut [0.0; 19], &options(""), &mut ()).unwrap_err();
    assert_eq!(error.to_string(), "b has 20 numbers and x has 19; both need the same length, at least 1");
    let mut x = [5.0; 20];
    let history = solve_functions(&mut good, None, &[0.0; 20], &mut x, &options(""), &mut ()).unwrap();
    assert_eq!((history.outcome, x), (Outcome::Converged, [0.0; 20]));
}

/// Keeps what it is shown.
struct Viewer(Vec<(usize, Vec<f64>)>);

impl Observer for Viewer {
    fn sees_x(&self) -> bool {
        true
    }
    fn shown(&mut self, iteration: usize, x: &[f64]) -> ControlFlow<()> {
        self.0.push((iteration, x.to_vec()));
        ControlFlow::Continue(())
    }
}

#[test]
fn an_observer_sees_the_x_of_each_iteration_or_cycle() {
    let n = 60;
    let a = matrix(n);
    let symmetric = Mat::from_fn(n, n, |i, j| a[(i, j)] + a[(j, i)]);
    // The unit of a solve is not 1 for numbers as large as these.
    for scale in [1.0, 1e160] {
        let b: Vec<f64> = Random(4).numbers(n).iter().map(|b| scale * b).collect();
        for (method, every) in
            [("cg", 1), ("bicgstab", 1), ("minres", 1), ("gmres:restart=4", 4), ("cbcg s=2", 2)]
        {
            let a = if method.starts_with(['c', 'm']) { &symmetric } else { &a };
            let mut product = |x: &[f64], y: &mut [f64]| {
                y.copy_from_slice(&multiply(a, x));
                Ok(())
            };
            let mut run = |limit: usize, viewer: &mut dyn Observer| {
                let mut x = vec![0.0; n];
                let options = options(&format!("method={method} rtol=1e-9 max_iters={limit}"));
                let history = solve_functions(&mut product, None, &b, &mut x, &options, viewer).unwrap();
                (history, x)
            };
            let mut viewer = Viewer(Vec::new());
            let (history, exact) = run(1000, &mut viewer);
            assert!(history.iterations >= 4 && !viewer.0.is_empty(), "{method}");
            let shown: Vec<usize> = viewer.0.iter().map(|(k, _)| *k).collect();
            assert!(shown.iter().all(|k| (1..history.iterations).contains(k)), "{method}: {shown:?}");
            if every > 0 {
                let expected: Vec<usize> = (every..history.iterations).step_by(every).collect();
                assert_eq!(shown, expected, "{method}");
            }
            let size = exact.iter().fold(0.0f64, |m, x| m.max(x.abs()));
            for (k, x) in &viewer.0 {
                let (_, limited) = run(*k, &mut ());
                let error = x.iter().zip(&limited).map(|(x, y)| (x - y).abs()).fold(0.0, f64::max);
                assert!(error <= 1e-9 * size, "{method} {k}: {error:e}");
            }
        }
    }
}

#[test]
fn an_observer_that_sees_x_ends_a_solve() {
    struct Second(usize);
    impl Observer for Second {
        fn sees_x(&self) -> bool {
            true
        }
        fn shown(&mut self, _: usize, _: &[f64]) -> ControlFlow<()> {
            self.0 += 1;
            if self.0 == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
    }
    let mut product = |x: &[f64], y: &mut [f64]| {
        y.iter_mut().zip(x).enumerate().for_each(|(i, (y, x))| *y = (i + 2) as f64 * x);
        Ok(())
    };
    for (method, after) in [("cg", 2), ("gmres:restart=3", 6)] {
        let options = options(&format!("method={method} rtol=1e-14"));
        let history =
            solve_functions(&mut product, None, &[1.0; 20], &mut [0.0; 20], &options, &mut Second(0))
                .unwrap();
        assert_eq!((history.outcome, history.iterations), (Outcome::Interrupted, after), "{method}");
    }
}

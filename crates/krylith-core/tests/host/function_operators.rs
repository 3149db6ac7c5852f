//! Requests in which A or P⁻¹ is a function, with a matrix beside them or without one.

use crate::common::*;
use krylith_core::matrix::{Bsr, Csr};
use krylith_core::memory::Numbers;
use krylith_core::newton::{Newton, NewtonOptions, NonlinearSystem};
use krylith_core::operator::FunctionOperator;
use krylith_core::{Error, Options, Outcome, Progress, Result, Solver};
use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

fn options(text: &str) -> Options {
    text.parse().unwrap()
}

/// Diagonally dominant and not symmetric.
fn matrix(n: usize) -> Mat {
    let mut rng = Random(7);
    let numbers = rng.numbers(n * n);
    Mat::from_fn(n, n, |i, j| if i == j { n as f64 } else { numbers[i * n + j] })
}

/// The entries of a dense matrix near the diagonal.
fn band(a: &Mat, width: usize) -> Csr {
    let n = a.nrows();
    let near = |i: usize, j: usize| i.abs_diff(j) <= width;
    let all = (0..n).flat_map(|i| (0..n).map(move |j| (i, j)));
    let triplets: Vec<_> =
        all.filter(|(i, j)| near(*i, *j)).map(|(i, j)| (i as u32, j as u32, a[(i, j)])).collect();
    Csr::from_triplets(n, n, &triplets).unwrap()
}

fn product(a: &Mat) -> FunctionOperator<'_> {
    FunctionOperator::on_host(move |x, y| {
        y.copy_from_slice(&multiply(a, x));
        Ok(())
    })
}

fn transposed(a: &Mat) -> Mat {
    Mat::from_fn(a.ncols(), a.nrows(), |i, j| a[(j, i)])
}

#[test]
fn a_matrix_preconditions_a_function() {
    for n in [1, 2, 31, 33, 60] {
        let a = matrix(n);
        let (beside, turned) = (band(&a, 1), transposed(&a));
        let b = Random(4).numbers(n);
        for method in ["auto", "gmres", "fgmres", "bicgstab"] {
            for precond in ["none", "jacobi", "ildu", "ildu:fill=1", "ras", "amg", "lu"] {
                let text = format!("method={method} precond={precond} rtol=1e-10 device=cpu");
                let mut solver = Solver::new(&beside, &options(&text)).unwrap();
                let function = product(&a).with_transpose(product(&turned));
                for is_turned in [false, true] {
                    let exact = solve(if is_turned { &turned } else { &a }, &b);
                    let mut x = vec![f64::NAN; n];
                    x.fill(0.0);
                    let request = solver.request(&b, &mut x).operator(&function).transposed(is_turned);
                    let solution = request.run().unwrap_or_else(|e| panic!("{text} {n} {is_turned}: {e}"));
                    assert_eq!(solution.outcome(), Outcome::Converged, "{text} {n} {is_turned}");
                    assert!(solution.history.true_relative_residual <= 1e-10, "{text} {n}");
                    assert!(distance(&x, &exact) <= 1e-8, "{text} {n} {is_turned}");
                }
                // The solver still solves with its own matrix.
                let mut x = vec![0.0; n];
                assert!(solver.solve(&b, &mut x).unwrap().converged(), "{text} {n}");
            }
        }
    }
}

#[test]
fn functions_replace_the_preconditioner_or_everything() {
    let n = 40;
    let a = matrix(n);
    let (whole, b) = (band(&a, n), Random(5).numbers(n));
    let exact = solve(&a, &b);
    let calls = AtomicUsize::new(0);
    let jacobi = FunctionOperator::on_host(|x, y| {
        calls.fetch_add(1, Relaxed);
        (0..n).for_each(|i| y[i] = x[i] / a[(i, i)]);
        Ok(())
    });
    let mut solver =
        Solver::new(&whole, &options("precond=none rtol=1e-10 device=cpu method=gmres")).unwrap();
    let mut x = vec![0.0; n];
    let solution = solver.request(&b, &mut x).preconditioner(&jacobi).run().unwrap();
    assert!(solution.converged() && distance(&x, &exact) <= 1e-8);
    assert_eq!(solution.precond.name, "function");
    assert!(calls.swap(0, Relaxed) >= solution.history.iterations);
    let by_matrix = solution.history.iterations;

    // A solver without a matrix makes the same iterations.
    let mut solver = Solver::without_matrix(n, &options("rtol=1e-10")).unwrap();
    let (mut x, function) = (vec![0.0; n], product(&a));
    let solution = solver.request(&b, &mut x).operator(&function).preconditioner(&jacobi).run().unwrap();
    assert!(solution.converged() && distance(&x, &exact) <= 1e-8);
    assert!(solution.history.iterations.abs_diff(by_matrix) <= 1);
    assert!(calls.load(Relaxed) > 0 && solution.precond.name == "function");
    let solution = solver.request(&b, &mut x).operator(&function).run().unwrap();
    assert_eq!((solution.history.iterations, &solution.precond.name[..]), (0, "none"));
}

#[test]
fn a_function_that_fails_ends_its_solve_alone() {
    let n = 20;
    let a = matrix(n);
    let (whole, b) = (band(&a, 1), Random(5).numbers(n));
    let left = AtomicUsize::new(3);
    let fails = FunctionOperator::on_host(|x, y| {
        y.copy_from_slice(&multiply(&a, x));
        match left.fetch_sub(1, Relaxed) {
            0 => Err(Error::invalid("of the function")),
            _ => Ok(()),
        }
    });
    let mut solver = Solver::new(&whole, &options("precond=ildu rtol=1e-12 device=cpu")).unwrap();
    let error = solver.request(&b, &mut vec![0.0; n]).operator(&fails).run().unwrap_err();
    assert_eq!(error.to_string(), "of the function");
    assert!(!solver.is_broken());
    let (mut x, good) = (vec![0.0; n], product(&a));
    assert!(solver.request(&b, &mut x).operator(&good).run().unwrap().converged());
    assert!(distance(&x, &solve(&a, &b)) <= 1e-9);

    let mut stops =
        |p: Progress| if p.iteration == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    x.fill(0.0);
    let solution = solver.request(&b, &mut x).operator(&good).observer(&mut stops).run().unwrap();
    assert_eq!((solution.outcome(), solution.history.iterations), (Outcome::Interrupted, 2));
}

#[test]
fn functions_that_cannot_be_called_are_refused() {
    let n = 10;
    let a = matrix(n);
    let b = vec![1.0; n];
    let on_gpu = FunctionOperator::on_device(|_| Ok(())).capturable(true);
    let mut solver = Solver::new(&band(&a, 1), &options("device=cpu precond=ildu")).unwrap();
    let mut refused = |request: &dyn Fn(&mut Solver) -> Result<()>, said: &str| {
        let error = request(&mut solver).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    };
    let x = || vec![0.0; n];
    refused(&|s| s.request(&b, &mut x()).operator(&on_gpu).run().map(drop), "use device=cuda");
    refused(&|s| s.request(&b, &mut x()).preconditioner(&on_gpu).run().map(drop), "cannot run on the CPU");
    let half = product(&a).with_transpose(FunctionOperator::on_device(|_| Ok(())));
    refused(&|s| s.request(&b, &mut x()).operator(&half).run().map(drop), "cannot run on the CPU");
    let good = product(&a);
    let turned = |s: &mut Solver| s.request(&b, &mut x()).operator(&good).transposed(true).run().map(drop);
    refused(&turned, "no transpose");
    let turned =
        |s: &mut Solver| s.request(&b, &mut x()).preconditioner(&good).transposed(true).run().map(drop);
    refused(&turned, "is not supported");
    refused(&|s| s.request(&b[1..], &mut x()).operator(&good).run().map(drop), "b has 9 numbers");

    let error = Solver::without_matrix(n, &options("precond=ildu")).err().unwrap().to_string();
    assert!(error.contains("needs a matrix"), "{error}");
    let mut without = Solver::without_matrix(n, &options("method=cg")).unwrap();
    for error in [
        without.solve(&b, &mut x()).map(drop).unwrap_err(),
        without.multiply(&b, &mut x()[..]).unwrap_err(),
        without.request(&b, &mut x()).preconditioner(&good).run().map(drop).unwrap_err(),
    ] {
        assert!(error.to_string().contains("has no matrix"), "{error}");
    }
}

/// −u″ + u³ plus a coupling of distant unknowns, whose Jacobian has more entries than the pattern.
struct Coupled {
    pattern: Bsr,
    far: f64,
    is_free: bool,
}

impl Coupled {
    fn new(n: usize, is_free: bool) -> Self {
        let wide = |i: usize, j: usize| i.abs_diff(j) <= 1 || !is_free && i.abs_diff(j) == n / 2;
        let (mut row_ptr, mut col) = (vec![0], Vec::new());
        for i in 0..n {
            col.extend((0..n).filter(|&j| wide(i, j)).map(|j| j as u32));
            row_ptr.push(col.len());
        }
        let values = vec![0.0; col.len()];
        Self { pattern: Bsr::new(1, n, n, row_ptr, col, values).unwrap(), far: 0.3, is_free }
    }

    fn linear(far: f64, v: &[f64], y: &mut [f64]) {
        let n = v.len();
        let at = |i: usize| v.get(i).unwrap_or(&0.0);
        let apart = |i: usize| at(i + n / 2) + if i >= n / 2 { v[i - n / 2] } else { 0.0 };
        (0..n).for_each(|i| y[i] = 2.5 * v[i] - at(i.wrapping_sub(1)) - at(i + 1) + far * apart(i));
    }
}

impl NonlinearSystem for Coupled {
    fn pattern(&self) -> &Bsr {
        &self.pattern
    }
    fn residual(&mut self, x: &[f64], f: &mut [f64]) -> Result<()> {
        Self::linear(self.far, x, f);
        f.iter_mut().zip(x).for_each(|(f, x)| *f += x.powi(3) - 1.0);
        Ok(())
    }
    fn jacobian(&mut self, x: &[f64], values: &mut [f64]) -> Result<()> {
        for i in 0..x.len() {
            for p in self.pattern.row_ptr()[i]..self.pattern.row_ptr()[i + 1] {
                values[p] = match i.abs_diff(self.pattern.col()[p] as usize) {
                    0 => 2.5 + 3.0 * x[i] * x[i],
                    1 => -1.0,
                    _ => self.far,
                };
            }
        }
        Ok(())
    }
    fn jacobian_operator(&mut self, x: Numbers<'_>) -> Result<Option<FunctionOperator<'_>>> {
        if !self.is_free {
            return Ok(None);
        }
        let (x, far) = (x.to_vec()?, self.far);
        Ok(Some(FunctionOperator::on_host(move |v, y| {
            Self::linear(far, v, y);
            (0..x.len()).for_each(|i| y[i] += 3.0 * x[i] * x[i] * v[i]);
            Ok(())
        })))
    }
}

#[test]
fn newton_without_a_jacobian_takes_the_steps_of_newton_with_one() {
    for n in [6, 31, 60] {
        let mut answers = Vec::new();
        for is_free in [false, true] {
            let newton =
                NewtonOptions { rtol: 1e-10, forcing: "1e-8".parse().unwrap(), ..Default::default() };
            let linear = options("device=cpu method=gmres precond=ildu");
            let mut newton = Newton::new(newton, &linear).unwrap();
            let mut x = vec![0.0; n];
            let report = newton.solve(&mut Coupled::new(n, is_free), &mut x).unwrap();
            assert!(report.converged(), "{n} {is_free}: {report:?}");
            answers.push((report.steps.len(), x));
        }
        assert_eq!(answers[0].0, answers[1].0, "{n}");
        assert!(distance(&answers[0].1, &answers[1].1) <= 1e-8, "{n}");
    }
}

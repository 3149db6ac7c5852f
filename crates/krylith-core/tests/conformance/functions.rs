//! Functions of device vectors as A and as P⁻¹, called in each iteration or recorded with it.

use crate::common::*;
use krylith_core::device::cuda::{Argument, Device, Kernel, Program};
use krylith_core::matrix::Csr;
use krylith_core::operator::{DeviceVectors, FunctionOperator};
use krylith_core::{Error, Options, Outcome, Result, Solver};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// A stencil of three points, and a multiple of x.
const TEXT: &str = r#"
extern "C" __global__ void stencil(const double* x, double* y, long long n, double middle, double skew) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i >= n) return;
    double left = i > 0 ? x[i - 1] : 0.0, right = i < n - 1 ? x[i + 1] : 0.0;
    y[i] = middle * x[i] - (1.0 + skew) * left - (1.0 - skew) * right;
}
extern "C" __global__ void scale(const double* x, double* y, long long n, double factor) {
    long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (i < n) y[i] = factor * x[i];
}
"#;

const MIDDLE: f64 = 2.1;

fn program(device: &Arc<Device>, entry: &'static str) -> Program {
    let kernel = Kernel { file: "functions.cu", text: Some(TEXT), entry, defines: Vec::new() };
    Program::load(device, &kernel).unwrap()
}

fn launch(program: &Program, v: &DeviceVectors, numbers: &[f64]) -> Result<()> {
    let mut with = vec![Argument::Address(v.x), Argument::Address(v.y), Argument::Long(v.len as i64)];
    with.extend(numbers.iter().map(|number| Argument::Real(*number)));
    program.launch_in(v.stream, v.len.div_ceil(128), 128, 0, &with)
}

/// The matrix of the stencil.
fn matrix(n: usize, skew: f64) -> Csr {
    let mut triplets = Vec::new();
    for i in 0..n as u32 {
        triplets.push((i, i, MIDDLE));
        if i > 0 {
            triplets.push((i, i - 1, -1.0 - skew));
        }
        if i + 1 < n as u32 {
            triplets.push((i, i + 1, -1.0 + skew));
        }
    }
    Csr::from_triplets(n, n, &triplets).unwrap()
}

fn options(text: &str) -> Options {
    format!("device=cuda:0 rtol=1e-10 {text}").parse().unwrap()
}

/// Solves with a function, whether recorded or not and with a matrix beside it or not, make the iterations of
/// solves with the matrix.
pub fn functions_give_what_matrices_give(device: &Arc<Device>) {
    let stencil = program(device, "stencil");
    for n in [1, 2, 31, 33, 5000] {
        let b = Random(81).numbers(n);
        for (method, precond, skew) in [
            ("cg", "none", 0.0),
            ("cg", "jacobi", 0.0),
            ("gmres:restart=10", "none", 0.3),
            ("gmres:restart=10", "ildu", 0.3),
            ("bicgstab", "ildu:rows=100", 0.3),
            ("fgmres", "amg", 0.0),
            ("cbcg:s=4", "jacobi", 0.0),
            ("minres", "none", 0.0),
        ] {
            let a = matrix(n, skew);
            let options = options(&format!("method={method} precond={precond}"));
            let mut solver = Solver::new(&a, &options).unwrap();
            for capturable in [false, true] {
                let what = format!("{method} {precond} {n}, capturable {capturable}");
                let calls = AtomicUsize::new(0);
                let of = |skew: f64| {
                    let (stencil, calls) = (&stencil, &calls);
                    let call = move |v: &DeviceVectors| {
                        calls.fetch_add(1, Relaxed);
                        assert!(v.stream != 0 && v.gpu == 0 && v.x % 16 == 0 && v.y % 16 == 0);
                        launch(stencil, v, &[MIDDLE, skew])
                    };
                    FunctionOperator::on_device(call).capturable(capturable)
                };
                let function = of(skew).with_transpose(of(-skew));
                for turned in [false, true] {
                    if turned && precond == "amg" {
                        continue;
                    }
                    let mut exact = vec![0.0; n];
                    let request = solver.request(&b, &mut exact).transposed(turned);
                    let expected = request.run().unwrap().history.iterations;
                    for solves in 0..2 {
                        calls.store(0, Relaxed);
                        let mut x = vec![0.0; n];
                        let request = solver.request(&b, &mut x).operator(&function).transposed(turned);
                        let solution = request.run().unwrap_or_else(|e| panic!("{what} {turned}: {e}"));
                        assert_eq!(solution.outcome(), Outcome::Converged, "{what} {turned}");
                        assert!(solution.history.true_relative_residual <= 1e-10, "{what} {turned}");
                        let found = solution.history.iterations;
                        assert!(
                            found.abs_diff(expected) <= 2 + expected / 8,
                            "{what} {turned}: {found}, {expected}"
                        );
                        let d = distance(&x, &exact);
                        assert!(d <= 1e-7, "{what} {turned}: {d:e}");
                        let count = calls.load(Relaxed);
                        let estimates = method.starts_with("cbcg"); // it may estimate eigenvalues again
                        match capturable {
                            // All of it is recorded.
                            true => {
                                assert!(solves == 0 || turned || estimates || count == 0, "{what}: {count}")
                            }
                            false => assert!(count >= found, "{what}: {count} calls"),
                        }
                    }
                }
            }
        }
    }
}

/// Functions as P⁻¹: of a matrix, and of a function without a matrix.
pub fn functions_replace_preconditioners(device: &Arc<Device>) {
    let (stencil, scale) = (program(device, "stencil"), program(device, "scale"));
    let n = 3000;
    let b = Random(82).numbers(n);
    for method in ["cg", "gmres:restart=20", "bicgstab"] {
        let mut by_matrix =
            Solver::new(&matrix(n, 0.0), &options(&format!("method={method} precond=jacobi"))).unwrap();
        let mut exact = vec![0.0; n];
        let expected = by_matrix.solve(&b, &mut exact).unwrap().history.iterations;
        for capturable in [false, true] {
            let what = format!("{method}, capturable {capturable}");
            let a =
                FunctionOperator::on_device(|v| launch(&stencil, v, &[MIDDLE, 0.0])).capturable(capturable);
            let p =
                FunctionOperator::on_device(|v| launch(&scale, v, &[1.0 / MIDDLE])).capturable(capturable);
            let options = options(&format!("method={method} precond=none"));
            let mut without = Solver::without_matrix(n, &options).unwrap();
            let mut beside = Solver::new(&matrix(n, 0.0), &options).unwrap();
            for has_matrix in [true, false] {
                let mut x = vec![0.0; n];
                let solution = match has_matrix {
                    true => beside.request(&b, &mut x).preconditioner(&p).run().unwrap(),
                    false => without.request(&b, &mut x).operator(&a).preconditioner(&p).run().unwrap(),
                };
                assert!(solution.converged() && solution.device.kind == "cuda", "{what} {has_matrix}");
                assert_eq!(solution.precond.name, "function", "{what} {has_matrix}");
                let found = solution.history.iterations;
                assert!(
                    found.abs_diff(expected) <= 2 + expected / 8,
                    "{what} {has_matrix}: {found}, {expected}"
                );
                let d = distance(&x, &exact);
                assert!(d <= 1e-7, "{what} {has_matrix}: {d:e}");
            }
        }
    }
}

/// Errors of functions end their solves, and not later ones. Functions that cannot be recorded or called are
/// refused.
pub fn functions_that_fail_are_told(device: &Arc<Device>) {
    let stencil = program(device, "stencil");
    let (n, a) = (500, matrix(500, 0.2));
    let b = Random(83).numbers(n);
    let good = FunctionOperator::on_device(|v| launch(&stencil, v, &[MIDDLE, 0.2])).capturable(true);
    let mut solver = Solver::new(&a, &options("precond=ildu method=gmres:restart=10")).unwrap();
    for capturable in [false, true] {
        for after in [0, 1, 3] {
            let left = AtomicUsize::new(after);
            let fails = FunctionOperator::on_device(|v| {
                launch(&stencil, v, &[MIDDLE, 0.2])?;
                match left.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)) {
                    Ok(_) => Ok(()),
                    Err(_) => Err(Error::invalid("of the function")),
                }
            });
            let error = solver.request(&b, &mut vec![0.0; n]).operator(&fails.capturable(capturable)).run();
            assert_eq!(error.unwrap_err().to_string(), "of the function", "{capturable} {after}");
            let mut x = vec![0.0; n];
            let solution = solver.request(&b, &mut x).operator(&good).run().unwrap();
            assert!(solution.converged(), "{capturable} {after}");
            assert!(solver.solve(&b, &mut x).unwrap().converged(), "{capturable} {after}");
        }
    }
    let idle = FunctionOperator::on_device(|_| Ok(())).capturable(true);
    let error = solver.request(&b, &mut vec![0.0; n]).operator(&idle).run().unwrap_err();
    assert!(error.to_string().contains("put no work in the stream"), "{error}");
    let of_host = FunctionOperator::on_host(|_, _| Ok(()));
    let error = solver.request(&b, &mut vec![0.0; n]).operator(&of_host).run().unwrap_err();
    assert!(error.to_string().contains("use device=cpu"), "{error}");
    assert!(solver.request(&b, &mut vec![0.0; n]).operator(&good).run().unwrap().converged());
}

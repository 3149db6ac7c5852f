//! Methods with complex coefficients on the real form of complex systems.
//!
//! The reference is dense elimination in complex numbers, written here.

use crate::common::Random;
use krylith_core::comm::{Communicator, Team};
use krylith_core::device::cpu::{Cpu, Pool};
use krylith_core::matrix::Bsr;
use krylith_core::method::{BicgstabOptions, GmresOptions, Method, MethodSpec};
use krylith_core::operator::{PointBlock, Terms};
use krylith_core::partition::{Partition, split};
use krylith_core::space::Space;
use krylith_core::{Options, Outcome, Precision, Solver, Stop};
use std::sync::Arc;

type Complex = (f64, f64);

fn times(a: Complex, b: Complex) -> Complex {
    (a.0 * b.0 - a.1 * b.1, a.0 * b.1 + a.1 * b.0)
}

fn over(a: Complex, b: Complex) -> Complex {
    let square = b.0 * b.0 + b.1 * b.1;
    let (re, im) = times(a, (b.0, -b.1));
    (re / square, im / square)
}

/// A complex matrix by rows: columns and numbers.
type Rows = Vec<Vec<(usize, Complex)>>;

/// −Δ − k²(1 + iη) on a grid of n² nodes.
fn helmholtz(n: usize, k: f64) -> Rows {
    let row = |i: usize| {
        let (x, y) = (i / n, i % n);
        let mut row = vec![(i, (4.0 - k * k, -0.1 * k * k))];
        let next = [(x > 0, -(n as isize)), (x + 1 < n, n as isize), (y > 0, -1), (y + 1 < n, 1)];
        row.extend(
            next.into_iter().filter(|next| next.0).map(|next| (i.wrapping_add_signed(next.1), (-1.0, 0.0))),
        );
        row.sort_by_key(|entry| entry.0);
        row
    };
    (0..n * n).map(row).collect()
}

/// The real form: blocks [[a, −b], [b, a]].
fn real_form(rows: &Rows) -> Bsr {
    let (mut pointers, mut columns, mut values) = (vec![0], Vec::new(), Vec::new());
    for row in rows {
        for &(j, (a, b)) in row {
            columns.push(j as u32);
            values.extend([a, -b, b, a]);
        }
        pointers.push(columns.len());
    }
    Bsr::new(2, rows.len(), rows.len(), pointers, columns, values).unwrap()
}

/// Solves by Gaussian elimination with partial pivoting.
fn eliminate(rows: &Rows, b: &[Complex]) -> Vec<Complex> {
    let n = rows.len();
    let mut a = vec![vec![(0.0, 0.0); n + 1]; n];
    for (i, row) in rows.iter().enumerate() {
        row.iter().for_each(|&(j, value)| a[i][j] = value);
        a[i][n] = b[i];
    }
    for k in 0..n {
        let size = |z: Complex| z.0.hypot(z.1);
        let pivot = (k..n).max_by(|&i, &j| size(a[i][k]).total_cmp(&size(a[j][k]))).unwrap();
        a.swap(k, pivot);
        let (above, below) = a.split_at_mut(k + 1);
        for row in below {
            let factor = over(row[k], above[k][k]);
            for j in k..=n {
                let product = times(factor, above[k][j]);
                row[j] = (row[j].0 - product.0, row[j].1 - product.1);
            }
        }
    }
    let mut x = vec![(0.0, 0.0); n];
    for i in (0..n).rev() {
        let mut sum = a[i][n];
        for j in i + 1..n {
            let product = times(a[i][j], x[j]);
            sum = (sum.0 - product.0, sum.1 - product.1);
        }
        x[i] = over(sum, a[i][i]);
    }
    x
}

fn numbers(n: usize, seed: u64) -> Vec<Complex> {
    let mut random = Random(seed);
    (0..n).map(|_| (random.number(), random.number())).collect()
}

fn flat(x: &[Complex]) -> Vec<f64> {
    x.iter().flat_map(|z| [z.0, z.1]).collect()
}

fn distance(x: &[f64], y: &[f64]) -> f64 {
    let sum = |it: &mut dyn Iterator<Item = f64>| it.map(|d| d * d).sum::<f64>().sqrt();
    sum(&mut x.iter().zip(y).map(|(x, y)| x - y)) / sum(&mut y.iter().copied())
}

fn specs(complex: bool) -> Vec<MethodSpec> {
    let gmres = GmresOptions { restart: 60, complex, ..Default::default() };
    vec![
        MethodSpec::Bicgstab(BicgstabOptions { complex, ..Default::default() }),
        MethodSpec::Gmres(gmres),
        MethodSpec::Gmres(GmresOptions { flexible: true, ..gmres }),
        MethodSpec::Gmres(GmresOptions { restart: 7, ..gmres }),
    ]
}

#[test]
fn answers_are_those_of_elimination_in_complex_numbers() {
    let rows = helmholtz(9, 0.9);
    let b = numbers(rows.len(), 3);
    let x = flat(&eliminate(&rows, &b));
    let a = real_form(&rows);
    for threads in [1, 3] {
        let space = Cpu::new(x.len(), threads);
        let operator = PointBlock::bsr(&space, &a, Precision::F64).unwrap();
        for spec in specs(true) {
            let mut method: Box<dyn Method<Cpu>> = spec.build(&space).unwrap();
            let (b, mut found) = (flat(&b), vec![0.0; x.len()]);
            let stop = Stop { rtol: 1e-11, max_iters: 2000, ..Stop::default() };
            let history = method.solve(&space, &operator, None, &b, &mut found, &stop, &mut ()).unwrap();
            assert_eq!(history.outcome, Outcome::Converged, "{spec}");
            assert!(distance(&found, &x) < 1e-9, "{spec}: {:e}", distance(&found, &x));
        }
    }
}

#[test]
fn ranks_find_the_same_answer() {
    let rows = helmholtz(9, 0.9);
    let b = numbers(rows.len(), 3);
    let (a, x) = (real_form(&rows), flat(&eliminate(&rows, &b)));
    let parts = split(&Terms::bsr(&a), &Partition::by_rows(rows.len(), 3).unwrap()).unwrap();
    let b = flat(&b);
    for spec in specs(true) {
        let errors = Team::run(3, |comm| {
            let part = &parts[comm.rank()];
            let own = |all: &[f64]| -> Vec<f64> {
                part.rows.iter().flat_map(|&i| all[2 * i as usize..][..2].to_vec()).collect()
            };
            let space = Cpu::distributed(2 * part.rows.len(), Arc::new(Pool::new(1)), comm);
            let operator = PointBlock::new(&space, &part.terms, Precision::F64, false)?;
            let mut found = vec![0.0; space.len()];
            let stop = Stop { rtol: 1e-11, max_iters: 2000, ..Stop::default() };
            let mut method = spec.build(&space)?;
            let history = method.solve(&space, &operator, None, &own(&b), &mut found, &stop, &mut ())?;
            assert_eq!(history.outcome, Outcome::Converged, "{spec}");
            Ok(distance(&found, &own(&x)))
        });
        assert!(errors.unwrap().iter().all(|error| *error < 1e-9), "{spec}");
    }
}

#[test]
fn columns_and_transposes_and_new_values() {
    let rows = helmholtz(12, 0.7);
    let a = real_form(&rows);
    let n = a.rows();
    let b: Vec<Vec<f64>> = (0..3).map(|k| flat(&numbers(n / 2, 20 + k))).collect();
    for text in [
        "precond=ildu:fill=1,cut=whole method=bicgstab",
        "precond=ildu method=gmres:restart=50",
        "precond=lu method=bicgstab",
    ] {
        let options: Options = format!("device=cpu threads=1 rtol=1e-11 {text}").parse().unwrap();
        let mut solver = Solver::new(&a, &options).unwrap();
        let (flat_b, mut x) = (b.concat(), vec![0.0; 3 * n]);
        let solutions = solver.request(&flat_b, &mut x).columns().unwrap();
        for (k, solution) in solutions.iter().enumerate() {
            assert!(solution.converged() && solution.method.is_complex(), "{text}, column {k}");
            assert!(distance(&product(&a, &x[k * n..][..n]), &b[k]) < 1e-9, "{text}, column {k}");
        }
        // The transpose of the real form is that of the adjoint.
        let adjoint: Rows =
            rows.iter().map(|row| row.iter().map(|&(j, (p, q))| (j, (p, -q))).collect()).collect();
        let mut y = vec![0.0; n];
        let solution = solver.solve_transposed(&b[0], &mut y).unwrap();
        assert!(solution.converged() && solution.method.is_complex(), "{text}");
        assert!(distance(&product(&real_form(&adjoint), &y), &b[0]) < 1e-9, "{text}");
        // Values that are no longer those of complex numbers need real coefficients.
        let mut values = a.values().to_vec();
        values.chunks_exact_mut(4).for_each(|block| block[3] *= 1.5);
        solver.update_values(&values).unwrap();
        let mut y = vec![0.0; n];
        let solution = solver.solve(&b[0], &mut y).unwrap();
        assert!(solution.converged() && !solution.method.is_complex(), "{text}");
        let other = Bsr::new(2, n / 2, n / 2, a.row_ptr().to_vec(), a.col().to_vec(), values).unwrap();
        assert!(distance(&product(&other, &y), &b[0]) < 1e-9, "{text}");
    }
}

#[test]
fn an_iteration_minimises_over_the_complex_krylov_space() {
    // The identity times 1 + i: one complex coefficient solves it. Three eigenvalues take three iterations.
    for (eigenvalues, iterations) in [(vec![(1.0, 1.0)], 1), (vec![(1.0, 1.0), (1.0, -2.0), (-3.0, 1.0)], 3)]
    {
        let rows: Rows = (0..12).map(|i| vec![(i, eigenvalues[i % eigenvalues.len()])]).collect();
        let (a, b) = (real_form(&rows), flat(&numbers(12, 5)));
        let space = Cpu::new(24, 1);
        let operator = PointBlock::bsr(&space, &a, Precision::F64).unwrap();
        let count = |spec: MethodSpec| {
            let mut method = spec.build(&space).unwrap();
            let mut x = vec![0.0; 24];
            let stop = Stop { rtol: 1e-10, ..Stop::default() };
            let history = method.solve(&space, &operator, None, &b, &mut x, &stop, &mut ()).unwrap();
            assert_eq!(history.outcome, Outcome::Converged, "{spec}");
            history.iterations
        };
        for spec in &specs(true)[1..3] {
            assert_eq!(count(*spec), iterations, "{spec}");
        }
        // Real coefficients see each eigenvalue and its conjugate.
        assert_eq!(count(specs(false)[1]), 2 * iterations);
    }
}

#[test]
fn pairs_turn_by_a_quarter_and_back() {
    let space = Cpu::new(6, 1);
    let (x, mut y, mut z) = (vec![1.0, 2.0, -3.0, 4.0, 0.5, 0.0], vec![0.0; 6], vec![0.0; 6]);
    space.turn(&x, &mut y, false).unwrap();
    assert_eq!(y, [-2.0, 1.0, -4.0, -3.0, 0.0, 0.5]);
    space.turn(&y, &mut z, true).unwrap();
    assert_eq!(z, x);
    let odd = Cpu::new(3, 1);
    let error = odd.turn(&vec![0.0; 3], &mut vec![0.0; 3], false).unwrap_err();
    assert!(error.to_string().contains("a vector has 3 numbers"), "{error}");
}

#[test]
fn the_solver_recognises_complex_systems() {
    let rows = helmholtz(30, 0.7);
    let (a, b) = (real_form(&rows), flat(&numbers(rows.len(), 7)));
    let run = |text: &str, a: &Bsr| {
        let mut x = vec![0.0; b.len()];
        let options: Options = text.parse().unwrap();
        let options = options.rtol(1e-10).max_iters(1000).threads(1);
        let solution = Solver::new(a, &options).unwrap().solve(&b, &mut x).unwrap().clone();
        assert!(solution.converged(), "{text}: {:?}", solution.history.outcome);
        assert!(distance(&product(a, &x), &b) <= 1e-9, "{text}");
        solution
    };
    for precond in ["ildu", "ildu:fill=1,cut=whole", "ras", "jacobi", "amg", "none"] {
        for method in ["bicgstab", "gmres:restart=100", "fgmres:restart=100"] {
            let text = format!("device=cpu precond={precond} method={method}");
            let complex = run(&text, &a);
            assert!(complex.method.is_complex(), "{text}");
        }
    }
    // A variant that exists for real coefficients alone selects those.
    let real = run("device=cpu precond=ildu:cut=whole method=gmres:restart=200,orthogonalization=mgs", &a);
    assert!(!real.method.is_complex());
    let complex = run("device=cpu precond=ildu:cut=whole method=gmres:restart=200", &a);
    assert!(3 * complex.history.iterations < 2 * real.history.iterations);
    // One entry that is not complex changes the choice.
    let mut values = a.values().to_vec();
    values[0] += 1e-3;
    let (rows, pointers, columns) = (a.block_rows(), a.row_ptr().to_vec(), a.col().to_vec());
    let other = Bsr::new(2, rows, rows, pointers, columns, values).unwrap();
    assert!(!run("device=cpu precond=ildu method=gmres:restart=300", &other).method.is_complex());
}

/// A x, block by block.
fn product(a: &Bsr, x: &[f64]) -> Vec<f64> {
    let mut y = vec![0.0; a.rows()];
    for i in 0..a.block_rows() {
        for p in a.row_ptr()[i]..a.row_ptr()[i + 1] {
            let (block, x) = (a.block_values(p), &x[2 * a.col()[p] as usize..][..2]);
            y[2 * i] += block[0] * x[0] + block[1] * x[1];
            y[2 * i + 1] += block[2] * x[0] + block[3] * x[1];
        }
    }
    y
}

//! Direct factors on a device: those of its library if there is one, else those of the host.

use crate::common::*;
use krylith_core::matrix::{Bsr, Csr};
use krylith_core::solver::Solution;
use krylith_core::{Options, Problem, Solver};

fn options(device: &str, precond: &str) -> Options {
    format!("device={device} precond={precond} rtol=1e-10").parse().unwrap()
}

/// All of these checks.
pub fn all(device: &str) {
    all_forms_solve(device);
    all_systems_are_assembled(device);
    choices_and_failures_are_said(device);
    factors_are_spread(device);
    subdomains_have_direct_factors(device);
}

/// Direct factors of the device, if it has a library for them.
fn factors(device: &str) -> &'static str {
    if has_library(device) { "lu:on=device" } else { "lu" }
}

fn has_library(device: &str) -> bool {
    device.starts_with("cuda") && std::env::var_os("KRYLITH_CUDSS").is_some()
}

/// Checks the answer and who computed the factors. A GPU with cuDSS must use it: the variable that names the
/// library is set where these tests run.
fn by_the_device(device: &str, solution: &Solution, what: &str) {
    let details = solution.precond.details.join("; ");
    let has_library = has_library(device);
    assert_eq!(details.starts_with("cuDSS"), has_library, "{what}: {details}");
    assert!(!details.contains("on the host"), "{what}: {details}");
    if device.starts_with("cuda") && !has_library {
        println!("{what}: without cuDSS");
    }
}

fn owned(a: &Csr) -> Problem<'static> {
    Problem::try_from(a).unwrap().into_owned()
}

/// A grid of m³ points with these weights of the three neighbours after a point and of those before it, and
/// this diagonal.
fn grid(m: usize, after: f64, before: f64, diagonal: impl Fn(usize) -> f64) -> Csr {
    let mut entries = Vec::new();
    for i in 0..m * m * m {
        entries.push((i as u32, i as u32, diagonal(i)));
        for (stride, place) in [(1, i % m), (m, i / m % m), (m * m, i / m / m)] {
            if place + 1 < m {
                entries.push((i as u32, (i + stride) as u32, after));
            }
            if place > 0 {
                entries.push((i as u32, (i - stride) as u32, before));
            }
        }
    }
    Csr::from_triplets(m * m * m, m * m * m, &entries).unwrap()
}

/// A saddle point: a chain of values of which pairs are tied by a multiplier, whose diagonal is not stored.
fn saddle(n: usize) -> Csr {
    let mut entries = Vec::new();
    for i in 0..2 * n {
        entries.push((i as u32, i as u32, 2.5));
        if i + 1 < 2 * n {
            entries.extend([(i as u32, i as u32 + 1, -1.0), (i as u32 + 1, i as u32, -1.0)]);
        }
    }
    for k in 0..n {
        let row = (2 * n + k) as u32;
        for (j, v) in [(2 * k as u32, 1.0), (2 * k as u32 + 1, -1.0)] {
            entries.extend([(row, j, v), (j, row, v)]);
        }
    }
    Csr::from_triplets(3 * n, 3 * n, &entries).unwrap()
}

/// Rows in another order, so that the diagonal is zero.
fn shifted(a: &Csr) -> Csr {
    let n = a.rows() as u32;
    let mut entries = Vec::new();
    for i in 0..n {
        let (col, values) = a.row(i as usize);
        entries.extend(col.iter().zip(values).map(|(&j, &v)| ((i + n / 3) % n, j, v)));
    }
    Csr::from_triplets(a.rows(), a.rows(), &entries).unwrap()
}

/// Every form of factors, small and large: the answer, new values, the transpose, and several right-hand
/// sides.
fn all_forms_solve(device: &str) {
    let mut rng = Random(31);
    let cases = [
        ("Cholesky", "small and definite", grid(6, -1.0, -1.0, |_| 6.1)),
        ("Cholesky", "definite", grid(18, -1.0, -1.0, |_| 6.0)),
        ("LBLᵀ", "indefinite", grid(18, -1.0, -1.0, |i| if i % 5 == 0 { -7.0 } else { 7.0 })),
        ("LBLᵀ", "a saddle point", saddle(2500)),
        ("LU", "transport", grid(18, -0.2, -1.8, |_| 6.2)),
        ("LU", "shifted rows", shifted(&grid(12, -0.2, -1.8, |_| 6.2))),
    ];
    for (form, what, mut a) in cases {
        let mut solver = Solver::new(owned(&a), &options(device, factors(device))).unwrap();
        for step in 0..3 {
            if step > 0 {
                a.values_mut().iter_mut().for_each(|v| *v *= 1.5);
                solver.update_values(a.values()).unwrap();
            }
            let (b, mut x) = (rng.numbers(a.rows()), vec![0.0; a.rows()]);
            let solution = solver.solve(&b, &mut x).unwrap();
            let left = relative_residual(&a, &b, &x);
            assert!(solution.converged() && left <= 1e-10, "{what} {step}: {left:e}");
            assert!(solution.history.iterations <= 3, "{what} {step}: {}", solution.history.iterations);
            assert!(solution.precond.text.contains(form), "{what}: {}", solution.precond.text);
            if form != "LU" || device.starts_with("cuda") {
                by_the_device(device, solution, what);
            }
            solver.solve_transposed(&b, &mut x).unwrap();
            let left = relative_residual(&a.transpose(), &b, &x);
            assert!(left <= 1e-10, "{what} {step}, transposed: {left:e}");
        }
        let (b, mut x) = (rng.numbers(4 * a.rows()), vec![0.0; 4 * a.rows()]);
        solver.request(&b, &mut x).columns().unwrap();
        for (b, x) in b.chunks(a.rows()).zip(x.chunks(a.rows())) {
            let left = relative_residual(&a, b, x);
            assert!(left <= 1e-10, "{what}, columns: {left:e}");
        }
    }
}

/// Point blocks, sums, values that lose their symmetry, and systems with null vectors.
fn all_systems_are_assembled(device: &str) {
    let mut rng = Random(32);
    let scalar = grid(18, -1.0, -1.0, |_| 7.0);
    let blocks = Bsr::from_csr(&scalar, 2).unwrap();
    let (b, mut x) = (rng.numbers(blocks.rows()), vec![0.0; blocks.rows()]);
    let mut solver =
        Solver::new(Problem::try_from(&blocks).unwrap().into_owned(), &options(device, factors(device)))
            .unwrap();
    by_the_device(device, solver.solve(&b, &mut x).unwrap(), "blocks");
    assert!(relative_residual(&blocks.to_csr(), &b, &x) <= 1e-10);

    // One half of the couplings becomes twice as strong.
    let mut lopsided = blocks.clone();
    let (row_ptr, col) = (lopsided.row_ptr().to_vec(), lopsided.col().to_vec());
    for i in 0..lopsided.block_rows() {
        for p in (row_ptr[i]..row_ptr[i + 1]).filter(|&p| (col[p] as usize) < i) {
            lopsided.values_mut()[4 * p..4 * p + 4].iter_mut().for_each(|v| *v *= 2.0);
        }
    }
    solver.update_values(lopsided.values()).unwrap();
    let solution = solver.solve(&b, &mut x).unwrap();
    assert!(solution.converged() && solution.history.iterations <= 3, "{}", solution.history.iterations);
    assert!(relative_residual(&lopsided.to_csr(), &b, &x) <= 1e-10);

    let k = random_kronecker(&mut rng, 2, 3, 900, 4, true, true);
    let (b, mut x) = (rng.numbers(k.rows()), vec![0.0; k.rows()]);
    let mut solver = Solver::new(&k, &options(device, factors(device))).unwrap();
    by_the_device(device, solver.solve(&b, &mut x).unwrap(), "a sum");
    let rows = by_rows(&k, &x);
    assert!(distance(&rows, &b) <= 1e-10, "a sum: {:e}", distance(&rows, &b));

    // A closed box: only differences of the pressure are known.
    let m = 18usize;
    let neighbours = |i: usize| {
        let at = [i % m, i / m % m, i / m / m];
        at.iter().map(|&place| u8::from(place > 0) + u8::from(place + 1 < m)).sum::<u8>()
    };
    let closed = grid(m, -1.0, -1.0, |i| f64::from(neighbours(i)));
    let null = vec![vec![1.0; closed.rows()]];
    let problem = Problem::try_from(&closed).unwrap().with_null_vectors(null).unwrap();
    let (mut b, mut x) = (rng.numbers(closed.rows()), vec![0.0; closed.rows()]);
    let mean = b.iter().sum::<f64>() / b.len() as f64;
    b.iter_mut().for_each(|v| *v -= mean);
    let mut solver = Solver::new(problem, &options(device, factors(device))).unwrap();
    let solution = solver.solve(&b, &mut x).unwrap();
    assert!(solution.converged() && solution.history.iterations <= 3, "{}", solution.history.iterations);
    by_the_device(device, solution, "null vectors");
    assert!(relative_residual(&closed, &b, &x) <= 1e-10);
}

/// A singular matrix is refused, and the processor of the factors can be chosen.
fn choices_and_failures_are_said(device: &str) {
    let mut entries: Vec<_> = (0..9000u32).map(|i| (i, i, 2.0)).collect();
    entries.extend((1..9000u32).map(|i| (i, i - 1, -1.0)));
    let regular = Csr::from_triplets(9000, 9000, &entries).unwrap();
    entries.retain(|e| e.0 != 70); // row 70 becomes a copy of row 71
    entries.extend([(70, 71, 2.0), (70, 70, -1.0)]);
    let singular = Csr::from_triplets(9000, 9000, &entries).unwrap();
    let Err(e) = Solver::new(&singular, &options(device, "lu")) else {
        panic!("factors of a singular matrix")
    };
    assert!(e.to_string().contains("singular"), "{e}");

    let (b, mut x) = (vec![1.0; 9000], vec![0.0; 9000]);
    let mut solver = Solver::new(&regular, &options(device, "lu:on=host")).unwrap();
    let solution = solver.solve(&b, &mut x).unwrap();
    assert!(solution.converged() && !solution.precond.details.join("").contains("cuDSS"));
    let chosen = Solver::new(&regular, &options(device, "lu:on=device"));
    let expected = match (device.starts_with("cuda"), std::env::var_os("KRYLITH_CUDSS")) {
        (true, Some(_)) => {
            assert!(chosen.unwrap().solve(&b, &mut x).unwrap().converged());
            let few = Solver::new(&regular, &options(device, "lu:on=device,most=9000"));
            let Err(e) = few else { panic!("factors above the limit") };
            assert!(e.to_string().contains("most=9000"), "{e}");
            return;
        }
        (true, None) => "pip install nvidia-cudss",
        (false, _) => "needs a GPU",
    };
    let Err(e) = chosen else { panic!("factors on a device without a library") };
    assert!(e.to_string().contains(expected), "{e}");
}

/// Factors over all GPUs of the process solve as those of one do. Without cuDSS they are refused.
fn factors_are_spread(device: &str) {
    let mut rng = Random(33);
    let gpus = device.matches(',').count() + 1;
    let transport = |diagonal: f64| grid(24, -0.2, -1.8, |_| diagonal);
    for (name, a, new) in [
        ("LU", transport(6.2), transport(6.5)),
        ("Cholesky", grid(24, -1.0, -1.0, |_| 6.0), grid(24, -1.0, -1.0, |_| 7.0)),
    ] {
        let made = Solver::new(owned(&a), &options(device, "lu:over=gpus"));
        if !has_library(device) {
            // One processor has nothing to choose from.
            let refused = made.is_err_and(|e| e.to_string().contains("pip install nvidia-cudss"));
            assert!(refused || gpus == 1, "{name}");
            continue;
        }
        let mut solver = made.unwrap();
        for a in [a, new] {
            solver.update_values(a.values()).unwrap();
            let (b, mut x) = (rng.numbers(a.rows()), vec![0.0; a.rows()]);
            let solution = solver.solve(&b, &mut x).unwrap();
            let details = solution.precond.details.join("; ");
            assert_eq!(details.contains(&format!("over {gpus} GPUs")), gpus > 1, "{name}: {details}");
            assert!(solution.precond.text.contains(name), "{name}: {}", solution.precond.text);
            let left = relative_residual(&a, &b, &x);
            assert!(solution.converged() && left <= 1e-10, "{name}: {left:e}");
            solver.solve_transposed(&b, &mut x).unwrap();
            let left = relative_residual(&a.transpose(), &b, &x);
            assert!(left <= 1e-10, "{name}, transposed: {left:e}");
        }
    }
}

/// Restricted Schwarz with direct factors: in one subdomain it is A⁻¹, in several it beats incomplete
/// factors, and without overlap it is symmetric, so that CG takes it.
fn subdomains_have_direct_factors(device: &str) {
    let mut rng = Random(34);
    let convection = grid(22, -0.2, -1.8, |_| 6.2);
    let diffusion = grid(22, -1.0, -1.0, |_| 6.0);
    for (what, a, blocks) in
        [("convection", &convection, 1), ("diffusion", &diffusion, 1), ("blocks", &diffusion, 2)]
    {
        let mut blocks = Bsr::from_csr(a, blocks).unwrap();
        let n = blocks.rows();
        let mut iterations = Vec::new();
        for precond in
            ["ras:parts=4", "ras:parts=4,sub=lu", "ras:parts=4,overlap=0,sub=lu", "ras:parts=1,sub=lu"]
        {
            if device.contains(',') && precond.contains("parts=1,") {
                continue; // fewer parts than ranks
            }
            let problem = Problem::try_from(&blocks).unwrap().into_owned();
            let mut solver = Solver::new(problem, &options(device, precond)).unwrap();
            let (b, mut x) = (rng.numbers(n), vec![0.0; n]);
            let solution = solver.solve(&b, &mut x).unwrap();
            assert!(solution.converged(), "{what} {precond}: {:?}", solution.history.outcome);
            let left = relative_residual(&blocks.to_csr(), &b, &x);
            assert!(left <= 1.1e-10, "{what} {precond}: {left:e}");
            iterations.push(solution.history.iterations);
            let (text, details) = (&solution.precond.text, solution.precond.details.join("; "));
            assert_eq!(precond.contains("sub=lu"), text.contains("direct factors"), "{text}");
            // A part alone has too few rows for a GPU, all of a rank together have enough.
            let by = precond.contains("sub=lu") && has_library(device) && !device.contains(',');
            assert_eq!(details.contains("cuDSS"), by, "{what} {precond}: {details}");
            if precond.contains("overlap=0") && what != "convection" {
                assert!(
                    solution.method.to_string().starts_with("cg"),
                    "{what} {precond}: {}",
                    solution.method
                );
            }
            if precond.contains("sub=lu") {
                blocks.values_mut().iter_mut().for_each(|v| *v *= 1.5);
                solver.update_values(blocks.values()).unwrap();
                let solution = solver.solve(&b, &mut x).unwrap();
                let left = relative_residual(&blocks.to_csr(), &b, &x);
                assert!(solution.converged() && left <= 1.1e-10, "{what} {precond}, new values: {left:e}");
            }
        }
        assert!(iterations[1] < iterations[0], "{what}: {iterations:?}");
        assert!(iterations.get(3).is_none_or(|one| *one <= 2), "{what}: {iterations:?}");
    }
}

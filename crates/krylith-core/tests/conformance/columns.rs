//! Several right-hand sides on any device: each ends as if it were solved alone.

use super::near_null::truss;
use crate::common::*;
use krylith_core::comm::{Communicator, Team};
use krylith_core::matrix::{Bsr, Butcher, Csr, Dense, KroneckerSum};
use krylith_core::operator::Terms;
use krylith_core::partition::split;
use krylith_core::{Options, Outcome, Problem, Solver};

/// All of these checks on one device, or those for several devices of one process.
#[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "the host runs them one by one"))]
pub fn all(device: &str) {
    methods_solve_columns(device);
    if !device.contains(',') {
        preconditioners_solve_columns(device);
        columns_of_blocks(device);
        columns_with_rigid_modes(device);
        columns_end_on_their_own(device);
    }
}

/// Options of a preconditioner and more on a device.
fn options(device: &str, precond: &str) -> Options {
    format!("device={device} precond={precond}").parse().unwrap()
}

/// The five-point Laplacian on m×m points.
fn five_points(m: usize) -> Csr {
    let at = |i: usize, j: usize| (i * m + j) as u32;
    let mut entries = Vec::new();
    for (i, j) in (0..m * m).map(|n| (n / m, n % m)) {
        entries.push((at(i, j), at(i, j), 4.0));
        let mut couple = |to| entries.push((at(i, j), to, -1.0));
        if i > 0 {
            couple(at(i - 1, j));
        }
        if i + 1 < m {
            couple(at(i + 1, j));
        }
        if j > 0 {
            couple(at(i, j - 1));
        }
        if j + 1 < m {
            couple(at(i, j + 1));
        }
    }
    Csr::from_triplets(m * m, m * m, &entries).unwrap()
}

/// Right-hand sides that need different numbers of iterations: one is zero, one is tiny, one has a good
/// initial guess.
fn right_hand_sides(rng: &mut Random, a: &Bsr, count: usize) -> (Vec<f64>, Vec<f64>) {
    let n = a.rows();
    let (mut b, mut x) = (Vec::new(), Vec::new());
    for k in 0..count {
        let solution = rng.numbers(n);
        let rhs = times_blocks(a, &solution);
        match k % 5 {
            1 => b.extend(vec![0.0; n]),
            2 => b.extend(rhs.iter().map(|v| v * 1e-180)),
            4 => b.extend((0..n).map(|i| if i == k % n { 1.0 } else { 0.0 })),
            _ => b.extend(&rhs),
        }
        x.extend(solution.iter().map(|v| if k % 5 == 3 { v * (1.0 + 1e-4) } else { 0.0 }));
    }
    (b, x)
}

/// The largest magnitude, which does not underflow as a norm does.
fn largest(v: &[f64]) -> f64 {
    v.iter().fold(0.0, |most, v| most.max(v.abs()))
}

/// Solves for columns together and one by one, and compares.
fn assert_as_alone(solver: &mut Solver, transposed: bool, b: &[f64], x0: &[f64], what: &str) {
    let n = solver.problem().own_len();
    let mut x = x0.to_vec();
    let together = solver.request(b, &mut x).transposed(transposed).columns().unwrap();
    assert_eq!(together.len(), b.len() / n, "{what}");
    for (k, solution) in together.iter().enumerate() {
        let range = k * n..(k + 1) * n;
        let (b, mut alone) = (&b[range.clone()], x0[range.clone()].to_vec());
        let own = solver.request(b, &mut alone).transposed(transposed).run().unwrap();
        let what = format!("{what}, column {k} of {}", together.len());
        assert_eq!(solution.history.outcome, own.history.outcome, "{what}");
        let (one, other) = (solution.history.iterations, own.history.iterations);
        assert!(one.abs_diff(other) <= 1 + other / 20, "{what}: {one} and {other} iterations");
        assert!(solution.history.true_relative_residual <= solution.target, "{what}");
        let difference = largest(&minus(&x[range], &alone));
        assert!(difference <= 1e-6 * largest(&alone), "{what}: x differs by {difference:e}");
        assert_eq!(solution.precond.name, own.precond.name, "{what}");
        assert!(solution.history.residuals.len() == one + 1, "{what}");
    }
}

/// Every method, with preconditioners that cost as much as a product.
pub fn methods_solve_columns(device: &str) {
    let mut rng = Random(71);
    let symmetric = Bsr::from_csr(&five_points(14), 1).unwrap();
    let general = Bsr::from_csr(&convection_diffusion(13), 1).unwrap();
    let of_both = [
        "bicgstab",
        "bicgstab:reductions=classical",
        "gmres:restart=20",
        "gmres:restart=25,orthogonalization=cgs2",
        "gmres:restart=25,orthogonalization=mgs",
        "fgmres:restart=25",
    ];
    let of_symmetric =
        ["cg", "cg:form=flexible", "cg:form=one-reduction", "cg:form=pipelined", "cbcg:s=4", "minres"];
    for (a, methods) in [(&symmetric, &of_symmetric[..]), (&general, &of_both[..])] {
        for method in methods {
            for precond in ["ildu:rows=32", "amg:coarsest=20"] {
                for count in [2, 5, 17] {
                    let what = format!("{device}, {method}, {precond}");
                    let text = format!("{precond} method={method} rtol=1e-9");
                    let problem = Problem::bsr(a).unwrap().into_owned();
                    let mut solver = Solver::new(problem, &options(device, &text)).unwrap();
                    let (b, x) = right_hand_sides(&mut rng, a, count);
                    assert_as_alone(&mut solver, false, &b, &x, &what);
                }
            }
        }
    }
}

/// Every preconditioner, with new values and transposed.
pub fn preconditioners_solve_columns(device: &str) {
    let mut rng = Random(72);
    let a = Bsr::from_csr(&convection_diffusion(16), 1).unwrap();
    let preconds = [
        "jacobi",
        "ildu:rows=32",
        "ildu:rows=64,fill=1",
        "ras:overlap=1,solve=exact",
        "amg:coarsest=20",
        "amg:coarsest=20,coarsen=smoothed",
        "amg:coarsest=20,coarsen=aggregation,cycle=w",
        "amg:coarsest=20,smoother=jacobi,sweeps=2",
        "amg:coarsest=20,smoother=ildu",
        "amg:coarsest=20,coarsen=air",
        "chebyshev(jacobi; degree=3)",
        "jacobi then ildu",
        "lu",
    ];
    for precond in preconds {
        let text = format!("{precond} method=gmres:restart=40 rtol=1e-9");
        let problem = Problem::bsr(&a).unwrap().into_owned();
        let mut solver = Solver::new(problem, &options(device, &text)).unwrap();
        let (b, x) = right_hand_sides(&mut rng, &a, 6);
        assert_as_alone(&mut solver, false, &b, &x, &format!("{device}, {precond}"));
        let zero = vec![0.0; b.len()];
        assert_as_alone(&mut solver, true, &b, &zero, &format!("{device}, {precond}, transposed"));
        let mut new = a.clone();
        new.values_mut().iter_mut().for_each(|v| *v *= 1.0 + 0.01 * rng.number());
        solver.update_values(new.values()).unwrap();
        let (b, x) = right_hand_sides(&mut rng, &new, 3);
        assert_as_alone(&mut solver, false, &b, &x, &format!("{device}, {precond}, new values"));
    }
}

/// Blocks of 1 to 8, matrices of scattered columns, and a Kronecker sum.
pub fn columns_of_blocks(device: &str) {
    let mut rng = Random(73);
    for b in 1..=8 {
        let n = 300 / b;
        let a = random_bsr(&mut rng, b, n, n, 4, true);
        for precond in ["jacobi", "ildu:rows=32", "amg:coarsest=10"] {
            let text = format!("{precond} method=gmres:restart=30 rtol=1e-9");
            let problem = Problem::bsr(&a).unwrap().into_owned();
            let mut solver = Solver::new(problem, &options(device, &text)).unwrap();
            let (b_, x) = right_hand_sides(&mut rng, &a, 9);
            assert_as_alone(&mut solver, false, &b_, &x, &format!("{device}, b={b}, {precond}"));
        }
    }
    let space = Bsr::from_csr(&five_points(8), 1).unwrap();
    let mass = Bsr::from_csr(
        &Csr::from_triplets(64, 64, &(0..64).map(|i| (i, i, 1.0)).collect::<Vec<_>>()).unwrap(),
        1,
    )
    .unwrap();
    let time = Butcher::by_name("radau-iia-2").unwrap().a;
    let k = KroneckerSum::new(Dense::identity(2), time, 0.3, mass, space).unwrap();
    let mut solver =
        Solver::new(Problem::kronecker(&k).unwrap(), &options(device, "jacobi rtol=1e-9")).unwrap();
    let b = rng.numbers(3 * 128);
    assert_as_alone(&mut solver, false, &b, &vec![0.0; b.len()], &format!("{device}, stages"));
}

/// Elasticity with its rigid modes, whose coarse levels have larger blocks; new values; other numbers of
/// columns with the same solver.
pub fn columns_with_rigid_modes(device: &str) {
    let mut rng = Random(76);
    let (mut a, points) = truss([13, 7, 6], 1.0);
    for precond in
        ["amg:coarsest=60", "amg:coarsest=60,cycle=w", "amg:coarsest=60,smoother=chebyshev,degree=3"]
    {
        let problem = Problem::bsr(&a).unwrap().with_coordinates(&points[..]).unwrap();
        let problem = problem.with_rigid_modes().unwrap().into_owned();
        let mut solver = Solver::new(problem, &options(device, &format!("{precond} rtol=1e-9"))).unwrap();
        for count in [16, 3, 7] {
            let (b, x) = right_hand_sides(&mut rng, &a, count);
            assert_as_alone(&mut solver, false, &b, &x, &format!("{device}, {count} columns, {precond}"));
        }
        a.values_mut().iter_mut().for_each(|v| *v *= 1.5);
        solver.update_values(a.values()).unwrap();
        let (b, x) = right_hand_sides(&mut rng, &a, 5);
        assert_as_alone(&mut solver, false, &b, &x, &format!("{device}, new values, {precond}"));
    }
}

/// Limits, failures and fallbacks of single columns.
pub fn columns_end_on_their_own(device: &str) {
    let mut rng = Random(74);
    let a = Bsr::from_csr(&five_points(20), 1).unwrap();
    let problem = || Problem::bsr(&a).unwrap().into_owned();
    let (b, x) = right_hand_sides(&mut rng, &a, 5);
    // One column has its solution already; the others reach the limit.
    let mut solver =
        Solver::new(problem(), &options(device, "none method=cg rtol=1e-9 max_iters=3")).unwrap();
    let n = a.rows();
    let mut exact = x.clone();
    let mut one = Solver::new(problem(), &options(device, "lu rtol=1e-12")).unwrap();
    one.solve(&b[..n], &mut exact[..n]).unwrap();
    let mut start = exact.clone();
    let ends: Vec<Outcome> = {
        let solutions = solver.request(&b, &mut start).columns().unwrap();
        solutions.iter().map(|solution| solution.history.outcome).collect()
    };
    assert_eq!(ends[..3], [Outcome::Converged, Outcome::Converged, Outcome::MaxIterations], "{device}");
    assert_eq!(start[..n], exact[..n], "{device}: a column that had converged has changed");
    // A matrix that is not definite: CG fails, and another attempt follows for each column.
    let shifted: Vec<f64> = {
        let mut shifted = a.clone();
        for i in 0..n {
            for p in a.row_ptr()[i]..a.row_ptr()[i + 1] {
                shifted.values_mut()[p] -= if a.col()[p] as usize == i { 1.3 } else { 0.0 };
            }
        }
        shifted.values().to_vec()
    };
    let mut solver = Solver::new(problem(), &options(device, "auto rtol=1e-9")).unwrap();
    solver.update_values(&shifted).unwrap();
    let mut found = vec![0.0; b.len()];
    let solutions = solver.request(&b, &mut found).columns().unwrap();
    let ends: Vec<_> = solutions.iter().map(|solution| solution.history.outcome).collect();
    assert_eq!(ends, [Outcome::Converged; 5], "{device}");
    assert!(solver.request(&[0.0; 0], &mut [0.0; 0]).columns().unwrap().is_empty());
    // A number that is not finite in one column.
    let mut bad = b.clone();
    bad[2 * n + 7] = f64::NAN;
    let e = solver.request(&bad, &mut found).columns().unwrap_err().to_string();
    assert!(e.starts_with("column 2: b: entry 7 is NaN"), "{device}: {e}");
}

/// Ranks solve columns together, and every rank sees the same histories.
pub fn ranks_solve_columns(device: &str, ranks: usize) {
    let mut rng = Random(75);
    let a = convection_diffusion(12);
    let n = a.rows();
    let blocks = Bsr::from_csr(&a, 1).unwrap();
    let (b, _) = right_hand_sides(&mut rng, &blocks, 5);
    let partition =
        krylith_core::partition::Partition::new((0..n).map(|i| (i * ranks / n) as u32).collect(), ranks)
            .unwrap();
    let parts = split(&Terms::csr(&a).unwrap(), &partition).unwrap();
    for precond in ["jacobi", "ildu:rows=16", "amg:coarsest=20"] {
        let text = format!("{precond} method=bicgstab rtol=1e-9");
        let mut solver = Solver::new(&a, &options(device, &text)).unwrap();
        let mut whole = vec![0.0; b.len()];
        let alone = solver.request(&b, &mut whole).columns().unwrap();
        Team::run(ranks, |comm| {
            let part = &parts[comm.rank()];
            let problem = Problem::local(comm.clone(), part.rows.clone(), part.terms.clone())?;
            let mut solver = Solver::new(&problem, &options(device, &text))?;
            let own: Vec<f64> = b.chunks(n).flat_map(|b| part.rows.iter().map(|&i| b[i as usize])).collect();
            let mut x = vec![0.0; own.len()];
            let solutions = solver.request(&own, &mut x).columns()?;
            for (k, (solution, alone)) in solutions.iter().zip(&alone).enumerate() {
                assert!(solution.converged(), "{precond}, column {k}");
                let (one, other) = (solution.history.iterations, alone.history.iterations);
                assert!(precond != "jacobi" || one.abs_diff(other) <= 2, "{one} and {other} iterations");
                for (i, x) in part.rows.iter().zip(x.chunks(part.rows.len()).nth(k).unwrap()) {
                    let exact = whole[k * n + *i as usize];
                    let scale = largest(&whole[k * n..(k + 1) * n]);
                    assert!((x - exact).abs() <= 1e-5 * scale, "{precond}, column {k}, row {i}");
                }
            }
            Ok(())
        })
        .unwrap();
    }
}

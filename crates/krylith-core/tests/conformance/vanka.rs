//! Local systems around constraints on any device, against Σ Rᵀ D (R A Rᵀ)⁻¹ R written out.

use super::fields::{check, csr_of, options, part, pick, problem, scattered, staggered_stokes};
use crate::common::*;
use krylith_core::comm::{Communicator, Team};
use krylith_core::matrix::{Bsr, Csr};
use krylith_core::operator::Terms;
use krylith_core::partition::{Partition, split};
use krylith_core::{Field, Options, Problem, Solver};

/// Computes ω Σ Rᵀ D (R A Rᵀ)⁻¹ R x with dense local systems. Unknowns in no patch are divided by their
/// diagonal entry.
fn expected(a: &Mat, constraints: &[u32], full: bool, damping: f64, x: &[f64]) -> Vec<f64> {
    let n = x.len();
    let (mut y, mut count) = (vec![0.0; n], vec![0.0; n]);
    for &p in constraints {
        let coupled = |i: &u32| a[(p as usize, *i as usize)] != 0.0 || a[(*i as usize, p as usize)] != 0.0;
        let others = (0..n as u32).filter(|i| !constraints.contains(i) && coupled(i));
        let members: Vec<u32> = others.chain([p]).collect();
        let mut local = part(a, &members, &members);
        let m = members.len();
        for (r, c) in (0..m * m).map(|e| (e / m, e % m)) {
            if !full && r != c && r < m - 1 && c < m - 1 {
                local[(r, c)] = 0.0;
            }
        }
        for (z, &i) in solve(&local, &pick(x, &members)).iter().zip(&members) {
            y[i as usize] += z;
            count[i as usize] += 1.0;
        }
    }
    let scaled = |i: usize| if count[i] > 0.0 { y[i] / count[i] } else { x[i] / a[(i, i)] };
    (0..n).map(|i| damping * scaled(i)).collect()
}

/// A random saddle point of two scattered fields, the second with these diagonal entries. Some unknowns of
/// the first are coupled to no constraint, and some couplings are in one direction only.
fn saddle(rng: &mut Random, b: usize, nodes: usize, diagonal: f64) -> (Bsr, Vec<Vec<u32>>) {
    let n = nodes * b;
    let sets = scattered(rng, &[n - n / 4, n / 4]);
    let mut a = Mat::zeros(n, n);
    for &i in &sets[0] {
        for _ in 0..4 {
            a[(i as usize, sets[0][rng.below(sets[0].len())] as usize)] = 0.5 * rng.number();
        }
        a[(i as usize, i as usize)] = 3.0 + rng.number();
    }
    for (k, &p) in sets[1].iter().enumerate() {
        for c in 0..1 + rng.below(5) {
            let u = sets[0][if c == 0 { k } else { rng.below(sets[0].len() / 2) }] as usize;
            if c > 0 && a[(p as usize, u)] != 0.0 {
                continue;
            }
            let both = c == 0 || rng.below(3) > 0;
            a[(p as usize, u)] = 1.0 + 0.3 * rng.number();
            a[(u, p as usize)] = if both { 1.0 + 0.3 * rng.number() } else { 0.0 };
        }
        a[(p as usize, p as usize)] = diagonal;
    }
    (Bsr::from_csr(&csr_of(&a), b).unwrap(), sets)
}

/// Both kinds apply what their definition says, also after new values: for every block size, with and without
/// fields, with damping and with rounded inverses.
pub fn local_systems_match_dense_algebra(device: &str) {
    let mut rng = Random(67);
    for b in 1..=8 {
        for (full, diagonal) in [(false, 0.0), (true, 0.0), (false, -0.2), (true, -0.2)] {
            let (a, sets) = saddle(&mut rng, b, 56usize.div_ceil(b), diagonal);
            let kind = if full { "full" } else { "diagonal" };
            for (keys, damping, tolerance) in [
                ("", if full { 0.8 } else { 0.6 }, 1e-10),
                (",damping=0.7,field=p", 0.7, 1e-10),
                (",damping=1,precision=f32", 1.0, 1e-4),
            ] {
                let precond = format!("vanka:kind={kind}{keys}");
                let of = |a: &Mat, x: &[f64]| expected(a, &sets[1], full, damping, x);
                let with_fields = problem(&a, &[("u", &sets[0]), ("p", &sets[1])], &[]);
                let what = format!("{b}×{b}, diagonal {diagonal}");
                check(device, &what, &a, with_fields, &precond, tolerance, &of);
                if diagonal == 0.0 && !keys.contains("field") {
                    let without = Problem::bsr(&a).unwrap().into_owned();
                    check(device, &format!("{what}, no fields"), &a, without, &precond, tolerance, &of);
                }
            }
        }
    }
}

/// Over ranks, local systems leave out the couplings between ranks: here two equal systems that are weakly
/// coupled.
pub fn ranks_have_local_systems_of_their_own(device: &str) {
    let mut rng = Random(71);
    let (one, sets) = saddle(&mut rng, 2, 20, 0.0);
    let (n, one) = (one.rows(), written_out(&one.to_csr()));
    let mut whole = Mat::from_fn(2 * n, 2 * n, |i, j| if i / n == j / n { one[(i % n, j % n)] } else { 0.0 });
    for (&u, &p) in sets[0].iter().zip(&sets[1]) {
        whole[(p as usize, n + u as usize)] = 0.1;
        whole[(n + u as usize, p as usize)] = 0.1;
    }
    let a = Bsr::from_csr(&csr_of(&whole), 2).unwrap();
    let twice =
        |set: &Vec<u32>| set.iter().copied().chain(set.iter().map(|i| i + n as u32)).collect::<Vec<_>>();
    let fields = [Field::new("u", twice(&sets[0])), Field::new("p", twice(&sets[1]))];
    let owner = (0..n).map(|node| u32::from(node >= n / 2)).collect();
    let parts = split(&Terms::bsr(&a), &Partition::new(owner, 2).unwrap()).unwrap();
    for (kind, full, damping) in [("diagonal", false, 0.6), ("full", true, 0.8)] {
        let x = rng.numbers(n);
        let wanted = expected(&one, &sets[1], full, damping, &x);
        let got = Team::run(2, |comm| {
            let part = parts[comm.rank()].clone();
            let local = Problem::part(comm.clone(), part)?.with_fields(fields.to_vec())?;
            let mut solver = Solver::new(local, &options(device, &format!("vanka:kind={kind}")))?;
            let mut y = vec![f64::NAN; n];
            solver.precondition(&x, &mut y)?;
            Ok(distance(&y, &wanted))
        });
        let worst = got.unwrap_or_else(|e| panic!("{kind}: {e}")).into_iter().fold(0.0, f64::max);
        assert!(worst <= 1e-10, "{kind}: {worst:e}");
    }
}

/// Flexible GMRES converges on a staggered Stokes flow, with patches alone and after a split.
pub fn patches_solve_saddle_points(device: &str) {
    for (m, precond, most) in [
        (12, "vanka", 120),
        (12, "vanka:kind=full", 80),
        (12, "vanka:kind=full,precision=f32", 80),
        (24, "split(u: amg, p: jacobi; schur=upper, S=Mp) then vanka", 40),
    ] {
        let (problem, b) = staggered_stokes(m);
        let text = format!("device={device} method=fgmres restart=200 precond={precond} rtol=1e-8");
        let mut solver = Solver::new(&problem, &text.parse::<Options>().unwrap()).unwrap();
        let mut x = vec![0.0; b.len()];
        let solution = solver.solve(&b, &mut x).unwrap();
        let iterations = solution.history.iterations;
        assert!(solution.converged() && iterations <= most, "{precond}: {iterations}");
        assert!(!solution.precond.keeps_symmetry, "{precond}");
        let product = times(&problem.terms().terms()[0].1.to_csr(), &x);
        assert!(distance(&product, &b) <= 1.01e-8, "{precond}");
    }
}

/// The V-cycle of all fields solves a staggered Stokes flow in few iterations, with and without names of
/// fields. New values give what a new solver gives.
pub fn levels_solve_saddle_points(device: &str) {
    let (problem, b) = staggered_stokes(40);
    let a = problem.terms().terms()[0].1.clone().into_owned();
    let bare = Problem::bsr(&a).unwrap().into_owned();
    let options: Options =
        format!("device={device} method=fgmres precond=vanka:levels=20 rtol=1e-8").parse().unwrap();
    for problem in [problem.clone(), bare.clone()] {
        let mut x = vec![0.0; b.len()];
        let mut solver = Solver::new(&problem, &options).unwrap();
        let solution = solver.solve(&b, &mut x).unwrap();
        let iterations = solution.history.iterations;
        assert!(solution.converged() && iterations <= 60, "{iterations} iterations");
        assert!(solution.precond.details[1].starts_with("levels of 4 760, "), "{:?}", solution.precond);
    }
    let mut other = a.clone();
    let mut rng = Random(5);
    other.values_mut().iter_mut().for_each(|v| *v *= 1.0 + 0.01 * rng.number());
    let (x, mut y, mut z) = (rng.numbers(b.len()), vec![f64::NAN; b.len()], vec![f64::NAN; b.len()]);
    let mut solver = Solver::new(&bare, &options).unwrap();
    solver.update_values(other.values()).unwrap();
    solver.precondition(&x, &mut y).unwrap();
    solver.update_values(a.values()).unwrap();
    solver.precondition(&x, &mut z).unwrap();
    assert!(distance(&y, &z) > 1e-4);
    solver.update_values(other.values()).unwrap();
    solver.precondition(&x, &mut z).unwrap();
    assert_eq!(y, z, "two updates with the same values");
    solver.update_values(a.values()).unwrap();
    solver.precondition(&x, &mut y).unwrap();
    Solver::new(&bare, &options).unwrap().precondition(&x, &mut z).unwrap();
    let d = distance(&y, &z);
    assert!(d <= 1e-10, "an update with the first values: {d:e}");
}

/// Results have the same bits on any number of threads. The system is large enough for several threads.
pub fn threads_do_not_matter() {
    let (problem, b) = staggered_stokes(150);
    for precond in ["vanka", "vanka:kind=full", "vanka:kind=full,precision=f32"] {
        let apply = |threads: usize| {
            let text = format!("device=cpu threads={threads} method=fgmres precond={precond}");
            let mut solver = Solver::new(&problem, &text.parse::<Options>().unwrap()).unwrap();
            let mut y = vec![f64::NAN; b.len()];
            let x = Random(3).numbers(b.len());
            solver.precondition(&x, &mut y).unwrap();
            y
        };
        let one = apply(1);
        assert!([2, 3].into_iter().all(|threads| apply(threads) == one), "{precond}");
    }
}

/// Errors name the row or the key, and a remedy.
pub fn wrong_constraints_are_named(device: &str) {
    let refused = |a: &Csr, p: Option<u32>, precond: &str| {
        let mut problem = Problem::csr(a).unwrap().into_owned();
        if let Some(p) = p {
            let u = (0..a.rows() as u32).filter(|i| *i != p).collect::<Vec<_>>();
            problem = problem.with_fields(vec![Field::new("u", u), Field::new("p", vec![p])]).unwrap();
        }
        Solver::new(problem, &options(device, precond)).err().unwrap().to_string()
    };
    let csr = |entries: &[(u32, u32, f64)]| Csr::from_triplets(3, 3, entries).unwrap();
    let diagonal = [(0, 0, 2.0), (1, 1, 2.0), (2, 2, 2.0)];
    let all = csr(&[&diagonal[..], &[(0, 2, 1.0), (2, 0, 1.0)]].concat());
    let none = refused(&all, None, "vanka");
    assert!(none.contains("there are no constraints") && none.contains("vanka:field=p"), "{none}");
    let alone = refused(&csr(&diagonal), Some(2), "vanka:field=p");
    assert!(alone.contains("block row 2") && alone.contains("no unknown that is coupled"), "{alone}");
    // The local system [[2, 2], [2, 2]] is singular.
    let singular = csr(&[&diagonal[..], &[(0, 2, 2.0), (2, 0, 2.0)]].concat());
    for kind in ["full", "diagonal"] {
        let error = refused(&singular, Some(2), &format!("vanka:kind={kind},field=p"));
        assert!(error.contains("block row 2") && error.contains("is singular; try"), "{error}");
    }
    let hole = csr(&[(0, 0, 2.0), (0, 2, 1.0), (2, 0, 1.0), (0, 1, 1.0), (1, 0, 1.0)]);
    let error = refused(&hole, Some(2), "vanka:field=p");
    assert!(error.contains("block row 1") && error.contains("vanka:field=p"), "{error}");
    let unknown = refused(&all, Some(2), "vanka:field=q");
    assert!(unknown.contains("no field has the name `q`; the fields are u, p"), "{unknown}");
}

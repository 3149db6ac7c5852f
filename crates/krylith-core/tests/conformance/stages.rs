//! Stages of Kronecker sums, solved one after the other by any preconditioner.

use super::fields::{csr_of, diagonal, options, part, pick, scattered, staggered_stokes};
use crate::common::*;
use krylith_core::matrix::{Bsr, Butcher, Csr, Dense, KroneckerSum};
use krylith_core::precond::lower_factor;
use krylith_core::{Field, Options, Problem, Solver};

/// A⊗M + τB⊗L for blocks of 1 to 3, Radau IIA and its inverse, an explicit first stage, new values and a new
/// τ.
pub fn stages_match_dense_algebra(device: &str) {
    let mut rng = Random(77);
    let radau = |s: &str| Butcher::by_name(s).unwrap().a;
    let inverse = |c: &Dense| Dense::new(c.rows(), c.rows(), inverse(c.values(), c.rows())).unwrap();
    let explicit = Dense::new(2, 2, vec![0.0, 0.0, 0.5, 0.5]).unwrap();
    let identity = |s: usize| Dense::identity(s);
    for b in 1..=3 {
        let n = 12 / b;
        let [m, l] = [(); 2].map(|()| random_bsr(&mut rng, b, n, n, 3, true));
        for (a_of, b_of) in [
            (identity(2), radau("radau-iia-2")),
            (identity(3), radau("radau-iia-3")),
            (inverse(&radau("radau-iia-2")), identity(2)),
            (identity(2), explicit.clone()),
        ] {
            let (s, tau) = (a_of.rows(), 0.25);
            let sum = KroneckerSum::new(a_of.clone(), b_of.clone(), tau, m.clone(), l.clone()).unwrap();
            let problem = Problem::kronecker(&sum).unwrap().into_owned();
            let mut solver = Solver::new(problem, &options(device, "stage(lu)")).unwrap();
            let expected = |m: &Bsr, l: &Bsr, tau: f64, x: &[f64]| {
                let (m, l) = (written_out(&m.to_csr()), written_out(&l.to_csr()));
                let (a, b) = (lower_factor(&a_of).unwrap(), lower_factor(&b_of).unwrap());
                let size = m.nrows();
                let of = |i: usize, j: usize| {
                    let entry = |r, c| a[(i, j)] * m[(r, c)] + tau * b[(i, j)] * l[(r, c)];
                    Mat::from_fn(size, size, entry)
                };
                let mut y = vec![0.0; x.len()];
                for k in 0..s {
                    let mut r: Vec<f64> = (0..size).map(|i| x[i * s + k]).collect();
                    for j in 0..k {
                        let before: Vec<f64> = (0..size).map(|i| y[i * s + j]).collect();
                        r = minus(&r, &multiply(&of(k, j), &before));
                    }
                    solve(&of(k, k), &r).into_iter().enumerate().for_each(|(i, v)| y[i * s + k] = v);
                }
                y
            };
            let mut test = |solver: &mut Solver, m: &Bsr, l: &Bsr, tau: f64, what: &str| {
                let (x, mut y) = (rng.numbers(s * m.rows()), vec![f64::NAN; s * m.rows()]);
                solver.precondition(&x, &mut y).unwrap();
                let d = distance(&y, &expected(m, l, tau, &x));
                assert!(d <= 1e-9, "b={b}, {s} stages, {what}: {d:e}");
            };
            test(&mut solver, &m, &l, tau, "first");
            solver.set_tau(0.5).unwrap();
            test(&mut solver, &m, &l, 0.5, "new τ");
            let (mut m, mut l) = (m.clone(), l.clone());
            m.values_mut().iter_mut().for_each(|v| *v *= 1.5);
            l.values_mut().iter_mut().for_each(|v| *v *= 0.75);
            solver.update_term(0, m.values()).unwrap();
            solver.update_term(1, l.values()).unwrap();
            test(&mut solver, &m, &l, 0.5, "new values");
        }
    }
}

/// Stokes flow in time. With a split inside the stages, each stage is solved with the accuracy of one
/// application, so the iterations grow with the number of stages, but no faster than it. With the stages
/// inside the split, they at most double.
pub fn stages_of_stokes_are_solved(device: &str) {
    let m = 24;
    let (one, f) = staggered_stokes(m);
    let l = one.terms().terms()[0].1.to_csr();
    let (n, pressures) = (l.rows(), m * m);
    let nu = n - pressures;
    let mass: Vec<_> = (0..nu as u32).map(|i| (i, i, 1.0 / (m * m) as f64)).collect();
    let [mass, l] = [Csr::from_triplets(n, n, &mass).unwrap(), l].map(|a| Bsr::from_csr(&a, 1).unwrap());
    for (precond, tau) in [
        ("stage(split(u: amg, p: jacobi; schur=full, S=Mp))", 1e3),
        ("split(u: stage(cg(amg; iterations=3)), p: stage(jacobi); schur=full, S=Mp)", 1e3),
        ("split(u: stage(cg(amg; iterations=3)), p: stage(jacobi); schur=full, S=Mp)", 1.0),
        ("split(u: stage(amg) then stage(amg), p: stage(jacobi); schur=full, S=Mp)", 1.0),
    ] {
        let mut counts = Vec::new();
        for (scheme, s) in [("implicit-euler", 1), ("radau-iia-2", 2), ("radau-iia-3", 3)] {
            let b = Butcher::by_name(scheme).unwrap().a;
            let sum = KroneckerSum::new(Dense::identity(s), b, tau, mass.clone(), l.clone()).unwrap();
            let fields = vec![Field::range("u", 0..nu), Field::range("p", nu..n)];
            let identity = csr_of(&diagonal(pressures, |_| 1.0));
            let problem = Problem::kronecker(&sum).unwrap().with_fields(fields).unwrap();
            let problem = problem.with_matrix("Mp", identity).unwrap();
            let text = format!("device={device} restart=100 precond={precond} rtol=1e-8");
            let options: Options = text.parse().unwrap();
            let mut solver = Solver::new(problem, &options).unwrap_or_else(|e| panic!("{precond}: {e}"));
            let mut x = vec![0.0; s * n];
            let right: Vec<f64> = f.iter().flat_map(|v| vec![*v; s]).collect();
            let solution = solver.solve(&right, &mut x).unwrap();
            assert!(solution.converged(), "{precond}, {scheme}: {:?}", solution.history.outcome);
            counts.push(solution.history.iterations);
        }
        let most =
            |k: usize| if precond.starts_with("stage") { (k + 1) * counts[0] + 10 } else { 2 * counts[0] };
        assert!(counts[0] <= 30 && (1..3).all(|k| counts[k] <= most(k)), "{precond}, {tau}: {counts:?}");
    }
}

/// Splits of A⊗M + τB⊗L in every form, with exact parts of all stages; also after a new τ and new values. A
/// matrix of the caller is the Schur complement of L, so that of all stages is τB⊗S.
pub fn splits_of_stages_match_dense_algebra(device: &str) {
    let mut rng = Random(79);
    for (b, s) in [(1, 2), (1, 3), (2, 2), (3, 2)] {
        let n = 24 / b;
        let [mut m, l] = [(); 2].map(|()| random_bsr(&mut rng, b, n, n, 3, true));
        let b_of = Butcher::by_name(&format!("radau-iia-{s}")).unwrap().a;
        let (order, few) = (n * b, 6);
        let sets = scattered(&mut rng, &[order - few, few]);
        // Couplings in each row of the second field, so that none is a row of a boundary value.
        let mut l = written_out(&l.to_csr());
        sets[1].iter().zip(&sets[0]).for_each(|(&p, &u)| l[(p as usize, u as usize)] += 2.0);
        let mut l = Bsr::from_csr(&csr_of(&l), b).unwrap();
        let given = Mat::from_fn(few, few, |i, j| match i.abs_diff(j) {
            0 => 3.0,
            1 => -1.0 + 0.1 * i as f64,
            _ => 0.0,
        });
        for (form, schur) in
            [("diagonal", ""), ("lower", ""), ("upper", ""), ("full", ""), ("upper", "S"), ("full", "S")]
        {
            let mut tau = 0.25;
            let sum = KroneckerSum::new(Dense::identity(s), b_of.clone(), tau, m.clone(), l.clone()).unwrap();
            let fields =
                [("u", &sets[0]), ("p", &sets[1])].map(|(name, list)| Field::new(name, list.clone()));
            let problem =
                Problem::kronecker(&sum).unwrap().into_owned().with_fields(fields.to_vec()).unwrap();
            let problem = problem.with_matrix("S", csr_of(&given)).unwrap();
            let precond = match schur {
                "" => format!("split(u: lu, p: lu; form={form})"),
                _ => format!("split(u: lu, p: stage(lu); schur={form}, S=S)"),
            };
            let mut solver =
                Solver::new(problem, &options(device, &precond)).unwrap_or_else(|e| panic!("{precond}: {e}"));
            // Every unknown of a field in all stages.
            let all = |f: usize| -> Vec<u32> {
                sets[f].iter().flat_map(|&i| (0..s as u32).map(move |k| i * s as u32 + k)).collect()
            };
            for round in 0..3 {
                let [dm, dl] = [&m, &l].map(|a| written_out(&a.to_csr()));
                let of = |i: usize, j: usize| if i == j { 1.0 } else { 0.0 };
                let k = Mat::from_fn(order * s, order * s, |r, c| {
                    let ((i, k), (j, q)) = ((r / s, r % s), (c / s, c % s));
                    of(k, q) * dm[(i, j)] + tau * b_of[(k, q)] * dl[(i, j)]
                });
                let block = |f: usize, g: usize| part(&k, &all(f), &all(g));
                // The sign of the Schur complement of these matrices is that of their own block: positive.
                let last = match schur {
                    "" => block(1, 1),
                    _ => Mat::from_fn(few * s, few * s, |r, c| {
                        tau * b_of[(r % s, c % s)] * given[(r / s, c / s)]
                    }),
                };
                let (x, mut y) = (rng.numbers(order * s), vec![f64::NAN; order * s]);
                solver.precondition(&x, &mut y).unwrap();
                let (xu, xp) = (pick(&x, &all(0)), pick(&x, &all(1)));
                let (u, p) = (|r: &[f64]| solve(&block(0, 0), r), |r: &[f64]| solve(&last, r));
                let (yu, yp) = match form {
                    "diagonal" => (u(&xu), p(&xp)),
                    "lower" => {
                        let yu = u(&xu);
                        let yp = p(&minus(&xp, &multiply(&block(1, 0), &yu)));
                        (yu, yp)
                    }
                    "upper" => {
                        let yp = p(&xp);
                        (u(&minus(&xu, &multiply(&block(0, 1), &yp))), yp)
                    }
                    _ => {
                        let yp = p(&minus(&xp, &multiply(&block(1, 0), &u(&xu))));
                        (u(&minus(&xu, &multiply(&block(0, 1), &yp))), yp)
                    }
                };
                let got = (pick(&y, &all(0)), pick(&y, &all(1)));
                let d = distance(&got.0, &yu).max(distance(&got.1, &yp));
                assert!(d <= 1e-9, "b={b}, {s} stages, {precond}, round {round}: {d:e}");
                match round {
                    0 => {
                        tau = 0.5;
                        solver.set_tau(tau).unwrap();
                    }
                    _ => {
                        m.values_mut().iter_mut().for_each(|v| *v *= 1.0 + 0.1 * rng.number());
                        l.values_mut().iter_mut().for_each(|v| *v *= 1.0 + 0.1 * rng.number());
                        solver.update_term(0, m.values()).unwrap();
                        solver.update_term(1, l.values()).unwrap();
                    }
                }
            }
        }
    }
}

/// The Laplacian of a grid with m² nodes of two components, and a diagonal mass matrix with couplings inside
/// the nodes.
fn mass_and_laplacian(m: usize) -> [Bsr; 2] {
    let mut entries = [Vec::new(), Vec::new()];
    for (x, y) in (0..m).flat_map(|x| (0..m).map(move |y| (x, y))) {
        let i = x * m + y;
        let mut add = |to: usize, j: usize, of: [[f64; 2]; 2]| {
            for (r, c) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                entries[to].push(((2 * i + r) as u32, (2 * j + c) as u32, of[r][c]));
            }
        };
        add(0, i, [[1.0 + 0.1 * (i as f64).sin(), 0.1], [0.1, 2.0]]);
        add(1, i, [[4.2, 0.4], [0.3, 6.5]]);
        let near =
            [(x > 0, i.wrapping_sub(m)), (x + 1 < m, i + m), (y > 0, i.wrapping_sub(1)), (y + 1 < m, i + 1)];
        near.into_iter().filter(|of| of.0).for_each(|(_, j)| add(1, j, [[-1.0, 0.0], [0.1, -1.5]]));
    }
    entries.map(|of| Bsr::from_csr(&Csr::from_triplets(2 * m * m, 2 * m * m, &of).unwrap(), 2).unwrap())
}

/// `stage(P)` applies P to one stage after the other, as a solver of the matrix αM + L of a stage applies it;
/// also after a new τ and new values.
pub fn stages_take_any_preconditioner(device: &str) {
    let mut rng = Random(81);
    let [m, l] = mass_and_laplacian(7);
    let (size, b_of) = (m.rows(), Butcher::by_name("radau-iia-2").unwrap().a);
    let (s, lower) = (2, lower_factor(&b_of).unwrap());
    let field = |k: u32| (0..size as u32).filter(|i| i % 2 == k).collect::<Vec<u32>>();
    let known = |problem: Problem<'static>| {
        let fields = vec![Field::new("u", field(0)), Field::new("p", field(1))];
        let given = csr_of(&diagonal(size / 2, |i| 5.0 + 0.1 * i as f64));
        problem.with_fields(fields).unwrap().with_matrix("Mp", given).unwrap()
    };
    // αM + L, in the pattern of L.
    let sum_of = |m: &Bsr, l: &Bsr, alpha: f64| {
        let (m, l) = (m.to_csr(), l.to_csr());
        let entry = |i: usize, j: u32, v: f64| (i as u32, j, v + alpha * m.get(i, j as usize));
        let row = |i: usize| l.row(i).0.iter().zip(l.row(i).1).map(move |(&j, &v)| (i, j, v));
        let entries: Vec<_> = (0..size).flat_map(row).map(|(i, j, v)| entry(i, j, v)).collect();
        Bsr::from_csr(&Csr::from_triplets(size, size, &entries).unwrap(), 2).unwrap()
    };
    for precond in [
        "jacobi",
        "ildu:fill=1",
        "ras:solve=exact",
        "ras:parts=3,overlap=2,fill=1,solve=exact",
        "ras:parts=2,sub=lu",
        "amg:coarsest=8",
        "coarse:coarsest=8+jacobi",
        "amg:coarsest=8 then ildu",
        "chebyshev(jacobi; degree=2)",
        "cpr(p: amg) then ildu",
        "aux(Mass: amg:coarsest=8)",
        "split(u: amg:coarsest=8, p: ras:solve=exact; form=upper)",
        "split(u: ras:parts=2,solve=exact, p: jacobi; schur=full, S=Mp)",
        "split(u: lu, p: lu; schur=simple)",
    ] {
        let known = |problem: Problem<'static>| known(problem).with_matrix("Mass", l.to_csr()).unwrap();
        let mut tau = 0.25;
        let sum = KroneckerSum::new(Dense::identity(s), b_of.clone(), tau, m.clone(), l.clone()).unwrap();
        let problem = known(Problem::kronecker(&sum).unwrap().into_owned());
        let mut solver = Solver::new(problem, &options(device, &format!("stage({precond})")))
            .unwrap_or_else(|e| panic!("stage({precond}): {e}"));
        let alpha = |tau: f64, k: usize| 1.0 / (tau * lower[(k, k)]);
        let mut of_stage: Vec<Solver> = (0..s)
            .map(|k| {
                let matrix = sum_of(&m, &l, alpha(tau, k));
                let problem = known(Problem::bsr(&matrix).unwrap().into_owned());
                Solver::new(problem, &options(device, precond)).unwrap_or_else(|e| panic!("{precond}: {e}"))
            })
            .collect();
        let (mut new_m, mut new_l) = (m.clone(), l.clone());
        for round in 0..3 {
            match round {
                0 => {}
                1 => {
                    tau = 0.5;
                    solver.set_tau(tau).unwrap();
                }
                _ => {
                    new_m.values_mut().iter_mut().for_each(|v| *v *= 1.0 + 0.1 * rng.number());
                    new_l.values_mut().iter_mut().for_each(|v| *v *= 1.0 + 0.05 * rng.number());
                    let sum = [Dense::identity(s), b_of.clone()];
                    let [m, l] = [&new_m, &new_l].map(|a| a.values());
                    solver.update_kronecker(&sum[0], &sum[1], tau, m, l).unwrap();
                }
            }
            if round > 0 {
                for (k, of_stage) in of_stage.iter_mut().enumerate() {
                    let matrix = sum_of(&new_m, &new_l, alpha(tau, k));
                    of_stage.update_values(matrix.values()).unwrap();
                }
            }
            let (x, mut y) = (rng.numbers(s * size), vec![f64::NAN; s * size]);
            solver.precondition(&x, &mut y).unwrap();
            let stage = |v: &[f64], k: usize| v.iter().skip(k).step_by(s).copied().collect::<Vec<f64>>();
            let mut before: Vec<Vec<f64>> = Vec::new();
            for (k, of_stage) in of_stage.iter_mut().enumerate() {
                let mut r = stage(&x, k);
                for (j, y) in before.iter().enumerate() {
                    // A is the identity, so only L couples the stages.
                    let product = times_blocks(&new_l, y);
                    r.iter_mut().zip(&product).for_each(|(r, p)| *r -= tau * lower[(k, j)] * p);
                }
                let mut expected = vec![f64::NAN; size];
                of_stage.precondition(&r, &mut expected).unwrap();
                expected.iter_mut().for_each(|v| *v /= tau * lower[(k, k)]);
                let d = distance(&stage(&y, k), &expected);
                assert!(d <= 1e-10, "stage({precond}), stage {k}, round {round}: {d:e}");
                before.push(expected);
            }
        }
        let (x, mut y) = (rng.numbers(s * size), vec![0.0; s * size]);
        assert!(solver.solve(&x, &mut y).unwrap().converged(), "stage({precond})");
    }
}

//! Preconditioners of coupled systems over ranks and on several devices, against one rank on the CPU.

use super::distributed::partitions;
use super::fields::{csr_of, diagonal, options, scattered};
use crate::common::*;
use krylith_core::comm::{Communicator, Team};
use krylith_core::matrix::Bsr;
use krylith_core::operator::Terms;
use krylith_core::partition::split;
use krylith_core::{Field, Problem, Solver};

/// Preconditioners whose parts do not depend on the ranks. Inner CG multiplies by the whole matrix of a part.
const PRECONDS: [&str; 16] = [
    "split(u: jacobi, p: jacobi; form=diagonal)",
    "split(u: jacobi, p: jacobi; form=lower)",
    "split(u: jacobi, p: cg(jacobi; iterations=3); form=full)",
    "split(u: jacobi, p: jacobi; schur=upper, S=M)",
    "split(u: jacobi, p: cg(jacobi; iterations=3); schur=upper, S=selfp)",
    "split(u: jacobi, p: cg(jacobi; iterations=3); schur=full, S=selfp-rows)",
    "split(u: jacobi, p: cg(jacobi; iterations=3); schur=lower, S=lsc)",
    "split(u: jacobi, p: cg(jacobi; iterations=3); schur=upper, S=lsc(Q))",
    "split(u: jacobi, p: cg(jacobi; iterations=3); schur=upper, S=pcd(F, L, M))",
    "split(u: jacobi, p: amg; schur=full, S=explicit)",
    "split(u: jacobi, p: cg(jacobi; iterations=3); schur=simple, S=selfp)",
    "split(u: lu, p: lu; form=lower)",
    "split(u: jacobi, p: lu; schur=full, S=explicit)",
    "cpr(p: jacobi; decouple=none) then jacobi:block=1",
    "aux(P: cg(jacobi; iterations=3))",
    "split(u: aux(R: cg(jacobi; iterations=2); block=2), p: jacobi; form=lower)",
];

/// A random system of two scattered fields with matrices for all of these preconditioners.
struct System {
    a: Bsr,
    sets: Vec<Vec<u32>>,
    /// Unknowns of a block of each field.
    size: usize,
    matrices: Vec<(&'static str, Mat)>,
}

impl System {
    /// With `together`, each node belongs to one field, whose blocks it forms.
    fn new(rng: &mut Random, b: usize, nodes: usize, together: bool) -> Self {
        let size = if together { b } else { 1 };
        let (order, m) = (nodes * b, nodes * b / size / 3 * size);
        let of_nodes = scattered(rng, &[(order - m) / size, m / size]);
        let parts = |i: &u32| (0..size as u32).map(move |part| part + i * size as u32).collect::<Vec<_>>();
        let sets: Vec<Vec<u32>> = of_nodes.iter().map(|set| set.iter().flat_map(parts).collect()).collect();
        // Couplings in both directions, so that C W B has a diagonal.
        let mut dense = written_out(&random_bsr(rng, b, nodes, nodes, 4, true).to_csr());
        for (&p, &u) in sets[1].iter().zip(&sets[0]) {
            dense[(u as usize, p as usize)] += 3.0;
            dense[(p as usize, u as usize)] += 2.0;
        }
        let a = Bsr::from_csr(&csr_of(&dense), b).unwrap();
        let beside = rng.numbers(2 * order);
        let tri = |d: f64| {
            Mat::from_fn(m, m, |i, j| match i.abs_diff(j) {
                0 => d,
                1 => -1.0 + 0.2 * beside[i + j],
                _ => 0.0,
            })
        };
        let sparse = |rng: &mut Random, rows: usize, columns: usize| {
            let mut p = Mat::zeros(rows, columns);
            for i in 0..rows {
                (0..2).for_each(|_| p[(i, rng.below(columns))] = rng.number());
            }
            p
        };
        let matrices = vec![
            ("M", diagonal(m, |i| 3.0 + i as f64)),
            ("F", tri(3.0)),
            ("L", tri(4.0)),
            ("Q", diagonal(order - m, |i| 2.0 + i as f64)),
            ("P", sparse(rng, order, 10)),
            ("R", sparse(rng, order - m, 8)),
        ];
        Self { a, sets, size, matrices }
    }

    /// Describes the fields and matrices of a problem.
    fn describe<'p>(&self, problem: Problem<'p>) -> krylith_core::Result<Problem<'p>> {
        let field = |(name, set): (&str, &Vec<u32>)| Field::new(name, set.clone()).in_blocks(self.size);
        let fields = ["u", "p"].into_iter().zip(&self.sets).map(field).collect();
        let named = self.matrices.iter();
        named.fold(problem.with_fields(fields), |all, (name, m)| all?.with_matrix(name, csr_of(m)))
    }

    fn whole(&self) -> Problem<'static> {
        self.describe(Problem::bsr(&self.a).unwrap().into_owned()).unwrap()
    }

    fn change(&mut self, rng: &mut Random) {
        self.a.values_mut().iter_mut().for_each(|v| *v *= 1.0 + 0.1 * rng.number());
    }
}

/// The polynomial that inverts a mass matrix has an interval that is estimated from a random vector, which
/// depends on the ranks.
fn tolerance(precond: &str) -> f64 {
    if precond.contains("pcd") { 0.05 } else { 1e-9 }
}

/// Over ranks, splits, CPR and corrections apply what they do on one rank, also after new values.
pub fn ranks_split_as_one(device: &str) {
    let mut rng = Random(47);
    for (b, n, ranks, together) in
        [(1, 36, 2, false), (1, 36, 3, false), (2, 18, 2, false), (2, 18, 3, true), (4, 9, 4, false)]
    {
        let mut system = System::new(&mut rng, b, n, together);
        let x = rng.numbers(n * b);
        // The system with its first and with new values.
        let first = system.a.clone();
        system.change(&mut rng);
        let second = std::mem::replace(&mut system.a, first);
        for precond in PRECONDS {
            let mut one = Solver::new(system.whole(), &options(device, precond)).unwrap();
            let mut wanted = [vec![0.0; n * b], vec![0.0; n * b]];
            one.precondition(&x, &mut wanted[0]).unwrap();
            one.update_values(second.values()).unwrap();
            one.precondition(&x, &mut wanted[1]).unwrap();
            for (what, partition) in partitions(n, ranks) {
                let parts = |a: &Bsr| split(&Terms::bsr(a), &partition).unwrap();
                let parts = [parts(&system.a), parts(&second)];
                let got = Team::run(ranks, |comm| {
                    let [part, new] = [0, 1].map(|k| parts[k][comm.rank()].clone());
                    let own: Vec<u64> = part.rows.clone();
                    let local = system.describe(Problem::part(comm.clone(), part)?)?;
                    let mut solver = Solver::new(local, &options(device, precond))?;
                    let pick = |v: &[f64]| {
                        own.iter().flat_map(|&i| v[i as usize * b..][..b].to_vec()).collect::<Vec<_>>()
                    };
                    let (mine, mut y) = (pick(&x), vec![f64::NAN; own.len() * b]);
                    let mut worst = 0.0f64;
                    for (round, wanted) in wanted.iter().enumerate() {
                        if round == 1 {
                            solver.update_values(new.terms.terms()[0].1.values())?;
                        }
                        solver.precondition(&mine, &mut y)?;
                        let bad = distance(&y, &pick(wanted));
                        worst = worst.max(if own.is_empty() { 0.0 } else { bad });
                    }
                    Ok(worst)
                });
                let worst = got.unwrap_or_else(|e| panic!("{precond}, {what}, {ranks}: {e}"));
                let worst = worst.into_iter().fold(0.0, f64::max);
                let most = tolerance(precond);
                assert!(worst <= most, "{precond}, {what}, {ranks} ranks, b={b}: {worst:e}");
            }
        }
    }
}

/// Preconditioners whose parts have several fields.
const GROUPS: [&str; 3] = [
    "split(u+w: split(u: jacobi, w: cg(jacobi; iterations=3); form=lower), p: jacobi; form=lower)",
    "split(u: jacobi, w+p: split(w: jacobi, p: cg(jacobi; iterations=3); form=diagonal); form=upper)",
    "split(u+w: split(w: jacobi, u: jacobi; schur=upper, S=selfp), p: cg(jacobi; iterations=3); schur=upper, S=selfp)",
];

/// Ranks may list only their own unknowns of three fields, also where parts have several of them.
pub fn ranks_list_own_unknowns(device: &str) {
    let mut rng = Random(59);
    let n = 60;
    let sets = scattered(&mut rng, &[24, 20, 16]);
    let mut dense = written_out(&random_bsr(&mut rng, 1, n, n, 4, true).to_csr());
    for (f, g) in [(0, 1), (1, 2), (0, 2)] {
        for (&i, &j) in sets[f].iter().zip(&sets[g]) {
            dense[(i as usize, j as usize)] += 1.0;
            dense[(j as usize, i as usize)] += 2.0;
        }
    }
    let a = Bsr::from_csr(&csr_of(&dense), 1).unwrap();
    let x = rng.numbers(n);
    let describe = |problem: Problem<'static>, keep: &dyn Fn(u32) -> bool| {
        let lists = ["u", "w", "p"].into_iter().zip(&sets);
        let own =
            lists.map(|(name, set)| (name, set.iter().copied().filter(|&i| keep(i)).collect::<Vec<_>>()));
        problem.with_fields(own.map(|(name, own)| Field::new(name, own)).collect())
    };
    for precond in GROUPS {
        let whole = describe(Problem::bsr(&a).unwrap().into_owned(), &|_| true).unwrap();
        let (mut wanted, mut one) = (vec![0.0; n], Solver::new(whole, &options(device, precond)).unwrap());
        one.precondition(&x, &mut wanted).unwrap();
        for ranks in [2, 3] {
            for (what, partition) in partitions(n, ranks).into_iter().take(2) {
                let parts = split(&Terms::bsr(&a), &partition).unwrap();
                let got = Team::run(ranks, |comm| {
                    let part = parts[comm.rank()].clone();
                    let own: Vec<u64> = part.rows.clone();
                    let local = Problem::part(comm.clone(), part)?;
                    let local = describe(local, &|i| own.contains(&u64::from(i)))?;
                    let pick = |v: &[f64]| own.iter().map(|&i| v[i as usize]).collect::<Vec<_>>();
                    let mut y = vec![f64::NAN; own.len()];
                    Solver::new(local, &options(device, precond))?.precondition(&pick(&x), &mut y)?;
                    Ok(distance(&y, &pick(&wanted)))
                });
                let worst = got.unwrap_or_else(|e| panic!("{precond}, {what}, {ranks}: {e}"));
                assert!(worst.iter().all(|d| *d <= 1e-9), "{precond}, {what}, {ranks} ranks: {worst:?}");
            }
        }
    }
}

/// On several devices of one process they apply what they do on one CPU, also after new values.
pub fn devices_split_as_one(device: &str) {
    let mut rng = Random(53);
    for (b, n) in [(1, 40), (2, 20), (4, 12)] {
        let mut system = System::new(&mut rng, b, n, false);
        for precond in PRECONDS {
            let make = |system: &System, device: &str| {
                Solver::new(system.whole(), &options(device, precond))
                    .unwrap_or_else(|e| panic!("{precond}: {e}"))
            };
            let (mut here, mut there) = (make(&system, "cpu"), make(&system, device));
            for round in 0..2 {
                let (x, mut want, mut y) = (rng.numbers(n * b), vec![0.0; n * b], vec![f64::NAN; n * b]);
                here.precondition(&x, &mut want).unwrap();
                there.precondition(&x, &mut y).unwrap();
                let d = distance(&y, &want);
                assert!(d <= tolerance(precond), "{precond}, b={b}, round {round}: {d:e}");
                system.change(&mut rng);
                here.update_values(system.a.values()).unwrap();
                there.update_values(system.a.values()).unwrap();
            }
        }
    }
}

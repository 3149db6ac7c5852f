//! Restricted additive Schwarz: the required results on every device. References are plain loops over dense
//! matrices or over the plan.

use super::distributed::MakeShare;
use super::{Make, applied};
use crate::common::*;
use krylith_core::comm::{Communicator, Solo, Team};
use krylith_core::matrix::{Bsr, Csr};
use krylith_core::operator::{LinearOperator, TermValues, Terms, Transposed};
use krylith_core::partition::{Partition, RowNumbers, Subdomains, split};
use krylith_core::precond::testing::ReadSchwarz;
use krylith_core::precond::{
    FILL, Factorization, IncompleteFactors, MOST_DISTANCE, Schwarz, SchwarzFactor, SchwarzFactors,
    SchwarzOptions, SchwarzOrder, SchwarzPattern, SchwarzPlan, SchwarzSettings, TriangularSolve,
};
use krylith_core::{Error, Precision};
use std::collections::BTreeSet;
use std::sync::Arc;

const OPTIONS: SchwarzOptions =
    SchwarzOptions { precision: Precision::F64, compute: Precision::F64, rows: 3, deterministic: true };

const EXACT: SchwarzSettings =
    SchwarzSettings { factor: SchwarzFactor::Exact, solve: TriangularSolve::Exact, options: OPTIONS };

/// More levels than any test matrix has.
const FULL: usize = 1000;

/// `n` rows given to `parts` subdomains without order.
pub fn scattered(rng: &mut Random, n: usize, parts: usize) -> Subdomains {
    let labels: Vec<u32> =
        (0..n).map(|i| if i < parts { i as u32 } else { rng.below(parts) as u32 }).collect();
    Subdomains::from_labels(&labels, parts).unwrap()
}

fn plan(a: &Bsr, subdomains: &Subdomains, overlap: usize, fill: usize) -> Arc<SchwarzPlan> {
    let pattern = SchwarzPattern { overlap, fill, order: SchwarzOrder::Natural };
    SchwarzPlan::new(&Solo, &Terms::bsr(a), None, subdomains, pattern).unwrap().into()
}

fn made<S: SchwarzFactors>(space: &S, plan: &Arc<SchwarzPlan>, a: &Bsr, how: SchwarzSettings) -> Schwarz<S> {
    let mut p = Schwarz::new(space, plan.clone(), how).unwrap();
    p.update_values(space, a.values()).unwrap();
    p
}

/// Σ_k (R_k⁰)ᵀ (A_k)⁻¹ R_k^δ x by dense direct solves.
pub fn dense_schwarz(a: &Bsr, subdomains: &Subdomains, overlap: usize, x: &[f64]) -> Vec<f64> {
    let (b, dense) = (a.block(), written_out(&a.to_csr()));
    let mut y = vec![0.0; x.len()];
    for p in 0..subdomains.count() {
        let mut nodes: BTreeSet<u32> = subdomains.rows(p).iter().copied().collect();
        for _ in 0..overlap {
            for i in nodes.clone() {
                nodes.extend(&a.col()[a.row_ptr()[i as usize]..a.row_ptr()[i as usize + 1]]);
            }
        }
        let nodes: Vec<usize> = nodes.into_iter().map(|i| i as usize).collect();
        let place = |k: usize| nodes[k / b] * b + k % b;
        let (n, part) = (nodes.len() * b, |i, j| dense[(place(i), place(j))]);
        let rhs: Vec<f64> = (0..n).map(|k| x[place(k)]).collect();
        let z = solve(&Mat::from_fn(n, n, part), &rhs);
        for (k, &node) in nodes.iter().enumerate() {
            if subdomains.rows(p).contains(&(node as u32)) {
                y[node * b..][..b].copy_from_slice(&z[k * b..][..b]);
            }
        }
    }
    y
}

/// The plan's matrices and patterns in plain loops.
struct Plain<'a> {
    plan: &'a SchwarzPlan,
    b: usize,
    /// A on S.
    a: Vec<f64>,
}

impl<'a> Plain<'a> {
    fn new(plan: &'a SchwarzPlan, a: &Bsr) -> Self {
        let b = plan.block;
        let block = |&source: &u32| match source {
            FILL => vec![0.0; b * b],
            source => a.block_values(source as usize).to_vec(),
        };
        Self { plan, b, a: plan.source.iter().flat_map(block).collect() }
    }
    fn block<'v>(&self, values: &'v [f64], e: usize) -> &'v [f64] {
        &values[e * self.b * self.b..][..self.b * self.b]
    }
    /// Entries of a row.
    fn row(&self, i: usize) -> std::ops::Range<usize> {
        self.plan.row_ptr[i] as usize..self.plan.row_ptr[i + 1] as usize
    }
    fn column(&self, e: usize) -> usize {
        self.plan.column[e] as usize
    }
    /// The entry (i, j), if S has it.
    fn at(&self, i: usize, j: usize) -> Option<usize> {
        let row = self.row(i);
        let found = self.plan.column[row.clone()].binary_search(&(j as u32));
        found.ok().map(|at| row.start + at)
    }
    fn diagonal(&self, i: usize) -> usize {
        self.at(i, i).expect("every row has its diagonal")
    }
    /// The first row of the run of `rows` rows in which row i is; runs begin anew at every subdomain.
    fn run(&self, i: usize, rows: usize) -> usize {
        let p = self.plan.subdomains.partition_point(|&first| first as usize <= i) - 1;
        let first = self.plan.subdomains[p] as usize;
        first + (i - first) / rows * rows
    }

    /// The end of that run.
    fn end(&self, i: usize, rows: usize) -> usize {
        let p = self.plan.subdomains.partition_point(|&first| first as usize <= i);
        (self.run(i, rows) + rows).min(self.plan.subdomains[p] as usize)
    }

    /// One sweep of Alg. 1, where rows outside of a run are those of `old`; a run of all rows is exact.
    fn factor_sweep(&self, old: &[f64], rows: usize) -> Vec<f64> {
        let (b, mut new) = (self.b, self.a.clone());
        for i in 0..self.plan.rows() {
            for e in self.row(i) {
                let j = self.column(e);
                let mut t = self.block(&self.a, e).to_vec();
                for l in self.row(i).filter(|&l| self.column(l) < i.min(j)) {
                    let k = self.column(l);
                    let from = if k >= self.run(i, rows) { &new } else { old };
                    if let Some(u) = self.at(k, j) {
                        add_product(&mut t, -1.0, self.block(&new, l), self.block(from, u), b);
                    }
                }
                if j < i {
                    let from = if j >= self.run(i, rows) { &new } else { old };
                    let d = inverse(self.block(from, self.diagonal(j)), b);
                    let mut l = vec![0.0; b * b];
                    add_product(&mut l, -1.0, &t, &d, b);
                    t = l.iter().map(|v| -v).collect();
                }
                new[e * b * b..][..b * b].copy_from_slice(&t);
            }
        }
        new
    }

    fn exact(&self) -> Vec<f64> {
        self.factor_sweep(&self.a, usize::MAX / 2)
    }

    fn sweeps(&self, count: usize, rows: usize) -> Vec<f64> {
        (0..count).fold(self.a.clone(), |old, _| self.factor_sweep(&old, rows))
    }

    /// ‖(A − LU)_S‖ / ‖A‖
    fn defect(&self, lu: &[f64]) -> f64 {
        let b = self.b;
        let mut left = self.a.clone();
        for i in 0..self.plan.rows() {
            for e in self.row(i) {
                let (j, mut t) = (self.column(e), self.block(&self.a, e).to_vec());
                for l in self.row(i).filter(|&l| self.column(l) < i && self.column(l) <= j) {
                    if let Some(u) = self.at(self.column(l), j) {
                        add_product(&mut t, -1.0, self.block(lu, l), self.block(lu, u), b);
                    }
                }
                if j >= i {
                    t.iter_mut().zip(self.block(lu, e)).for_each(|(t, u)| *t -= u);
                }
                left[e * b * b..][..b * b].copy_from_slice(&t);
            }
        }
        norm(&left) / norm(&self.a)
    }

    /// Returns the result of an application by γ sweeps; rows outside a run of `rows` rows use the previous
    /// sweep; 0 rows mean Jacobi.
    fn apply(&self, lu: &[f64], x: &[f64], sweeps: usize, rows: usize) -> Vec<f64> {
        let (b, n) = (self.b, self.plan.rows());
        let r: Vec<f64> =
            self.plan.node.iter().flat_map(|&node| &x[node as usize * b..][..b]).copied().collect();
        let times = |a: &[f64], x: &[f64], r: usize| (0..b).map(|c| a[r * b + c] * x[c]).sum::<f64>();
        let mut y = r.clone();
        for _ in 0..sweeps {
            let old = y.clone();
            for i in 0..n {
                for q in 0..b {
                    let sum: f64 = self
                        .row(i)
                        .filter(|&e| self.column(e) < i)
                        .map(|e| {
                            let j = self.column(e);
                            let from = if rows > 0 && j >= self.run(i, rows) { &y } else { &old };
                            times(self.block(lu, e), &from[j * b..][..b], q)
                        })
                        .sum();
                    y[i * b + q] = r[i * b + q] - sum;
                }
            }
        }
        let inverses: Vec<Vec<f64>> = (0..n).map(|i| inverse(self.block(lu, self.diagonal(i)), b)).collect();
        let mut z: Vec<f64> =
            (0..n * b).map(|k| times(&inverses[k / b], &y[k / b * b..][..b], k % b)).collect();
        for _ in 0..sweeps {
            let old = z.clone();
            for i in (0..n).rev() {
                let mut left = y[i * b..][..b].to_vec();
                for e in self.row(i).filter(|&e| self.column(e) > i) {
                    let j = self.column(e);
                    let from = if rows > 0 && j < self.end(i, rows) { &z } else { &old };
                    for q in 0..b {
                        left[q] -= times(self.block(lu, e), &from[j * b..][..b], q);
                    }
                }
                for q in 0..b {
                    z[i * b + q] = times(&inverses[i], &left, q);
                }
            }
        }
        self.plan.result.iter().flat_map(|&row| &z[row as usize * b..][..b]).copied().collect()
    }

    /// Substitution.
    fn solve(&self, lu: &[f64], x: &[f64]) -> Vec<f64> {
        self.apply(lu, x, 1, usize::MAX / 2)
    }
}

/// Full fill, exact ways and any overlap: dense direct solves.
pub fn schwarz_is_the_sum_of_subdomain_solves<S: SchwarzFactors>(make: Make<S>) {
    let mut rng = Random(61);
    for b in 1..=8 {
        for (n, parts) in [(1, 1), (2, 2), (23, 1), (23, 2), (29, 3), (31, 4)] {
            let a = random_bsr(&mut rng, b, n, n, 2, true);
            let x = rng.numbers(n * b);
            let space = make(n * b);
            let subdomains = scattered(&mut rng, n, parts);
            for overlap in 0..=2 {
                let plan = plan(&a, &subdomains, overlap, FULL);
                let p = made(&space, &plan, &a, EXACT);
                let expected = dense_schwarz(&a, &subdomains, overlap, &x);
                let d = distance(&applied(&space, &p, &x), &expected);
                assert!(d <= 1e-12, "b={b} n={n} parts={parts} overlap={overlap}: {d:e}");
            }
        }
    }
}

/// Exact factors of ILU(k) and their solves, in both precisions and both orders of rows.
pub fn schwarz_factors_match_the_textbook<S: ReadSchwarz>(make: Make<S>) {
    let mut rng = Random(62);
    for b in 1..=8 {
        for (n, parts, fill) in [(1, 1, 0), (40, 1, 0), (40, 2, 1), (37, 3, 2), (60, 9, 1)] {
            let a = random_bsr(&mut rng, b, n, n, 2, true);
            let x = rng.numbers(n * b);
            let (space, subdomains) = (make(n * b), scattered(&mut rng, n, parts));
            for order in SchwarzOrder::ALL {
                let pattern = SchwarzPattern { overlap: 1, fill, order };
                let plan = SchwarzPlan::new(&Solo, &Terms::bsr(&a), None, &subdomains, pattern).unwrap();
                let plan = Arc::new(plan);
                let plain = Plain::new(&plan, &a);
                let lu = plain.exact();
                let what = format!("b={b} n={n} parts={parts} fill={fill} {order:?}");
                for (precision, tolerance) in [(Precision::F64, 1e-12), (Precision::F32, 1e-5)] {
                    let options = SchwarzOptions { precision, ..OPTIONS };
                    let p = made(&space, &plan, &a, SchwarzSettings { options, ..EXACT });
                    assert_eq!(p.factorization(), Some(Factorization::Exact), "{what}");
                    let found = space.read_schwarz(p.factors()).unwrap();
                    let d = distance(&found, &lu);
                    assert!(d <= tolerance, "{what} {precision:?}: factors differ by {d:e}");
                    let d = distance(&applied(&space, &p, &x), &plain.solve(&lu, &x));
                    assert!(d <= tolerance, "{what} {precision:?}: {d:e}");
                }
            }
        }
    }
}

/// Sweeps of Alg. 2, and of Alg. 3 in a fixed order, equal those of plain loops; many sweeps of either
/// converge to substitution.
pub fn sweeps_of_solves_match_plain_loops<S: SchwarzFactors>(make: Make<S>) {
    let mut rng = Random(63);
    for b in 1..=8 {
        for (n, parts) in [(1, 1), (50, 1), (43, 3)] {
            let a = random_bsr(&mut rng, b, n, n, 2, true);
            let x = rng.numbers(n * b);
            let (space, subdomains) = (make(n * b), scattered(&mut rng, n, parts));
            let plan = plan(&a, &subdomains, 1, 1);
            let plain = Plain::new(&plan, &a);
            let lu = plain.exact();
            let exact = plain.solve(&lu, &x);
            for sweeps in [1, 2, 5] {
                for rows in [1, 3, 8, 500] {
                    let options = SchwarzOptions { rows, ..OPTIONS };
                    let solve = TriangularSolve::Random { sweeps };
                    let p = made(&space, &plan, &a, SchwarzSettings { solve, options, ..EXACT });
                    let d = distance(&applied(&space, &p, &x), &plain.apply(&lu, &x, sweeps, rows));
                    assert!(d <= 1e-12, "b={b} n={n} parts={parts}, {sweeps} sweeps of {rows} rows: {d:e}");
                }
                let solve = TriangularSolve::Jacobi { sweeps };
                let p = made(&space, &plan, &a, SchwarzSettings { solve, ..EXACT });
                let d = distance(&applied(&space, &p, &x), &plain.apply(&lu, &x, sweeps, 0));
                assert!(d <= 1e-12, "b={b} n={n} parts={parts}, {sweeps} Jacobi sweeps: {d:e}");
            }
            let sweeps = 2 * n;
            for solve in [TriangularSolve::Jacobi { sweeps }, TriangularSolve::Random { sweeps }] {
                for deterministic in [true, false] {
                    let options = SchwarzOptions { deterministic, ..OPTIONS };
                    let p = made(&space, &plan, &a, SchwarzSettings { solve, options, ..EXACT });
                    let d = distance(&applied(&space, &p, &x), &exact);
                    assert!(d <= 1e-12, "b={b} n={n} parts={parts} {solve:?} {deterministic}: {d:e}");
                }
            }
        }
    }
}

/// Sweeps of Alg. 1 in a fixed order equal those of plain loops, and many sweeps in any order are exact; a
/// warm start continues from the last factors.
pub fn sweeps_of_factors_match_plain_loops<S: ReadSchwarz>(make: Make<S>) {
    let mut rng = Random(64);
    for b in 1..=8 {
        for (n, parts) in [(1, 1), (50, 1), (43, 3)] {
            let a = random_bsr(&mut rng, b, n, n, 2, true);
            let (space, subdomains) = (make(n * b), scattered(&mut rng, n, parts));
            let plan = plan(&a, &subdomains, 1, 1);
            let plain = Plain::new(&plan, &a);
            let exact = plain.exact();
            for (sweeps, rows) in [(1, 1), (1, 4), (2, 1), (3, 3), (5, 8), (1, 500)] {
                let options = SchwarzOptions { rows, ..OPTIONS };
                let mut factors = S::Factors::prepare(&space, &plan, options).unwrap();
                let mut run = |warm| {
                    let how = Factorization::Random { sweeps, warm };
                    let values = TermValues::matrix(a.values());
                    let quality = factors.factorize(&space, &values, how).unwrap();
                    assert!(quality.finite);
                    let [left, all] = quality.defect2;
                    ((left / all).sqrt(), space.read_schwarz(&factors).unwrap())
                };
                for (warm, total) in [(false, sweeps), (true, 2 * sweeps), (false, sweeps)] {
                    let (defect, found) = run(warm);
                    let expected = plain.sweeps(total, rows);
                    let what = format!("b={b} n={n} parts={parts}, {total} sweeps of {rows} rows");
                    let d = distance(&found, &expected);
                    assert!(d <= 1e-12, "{what}: {d:e}");
                    let other = plain.defect(&expected);
                    assert!(
                        (defect - other).abs() <= 1e-10 * other + 1e-13,
                        "{what}: {defect:e} for {other:e}"
                    );
                }
            }
            for deterministic in [true, false] {
                let factor = SchwarzFactor::Random { sweeps: n + 2 };
                let options = SchwarzOptions { deterministic, ..OPTIONS };
                let p = made(&space, &plan, &a, SchwarzSettings { factor, options, ..EXACT });
                assert!(matches!(p.factorization(), Some(Factorization::Random { .. })));
                assert!(p.defect() <= 1e-14, "{:e}", p.defect());
                let d = distance(&space.read_schwarz(p.factors()).unwrap(), &exact);
                assert!(d <= 1e-12, "b={b} n={n} parts={parts} {deterministic}: {d:e}");
            }
        }
    }
}

/// The deterministic mode has the same bits every time.
pub fn deterministic_sweeps_repeat_themselves<S: ReadSchwarz>(make: Make<S>) {
    let mut rng = Random(65);
    let n = 3000;
    let a = random_bsr(&mut rng, 3, n, n, 4, true);
    let x = rng.numbers(3 * n);
    let (space, subdomains) = (make(3 * n), scattered(&mut rng, n, 2));
    let plan = plan(&a, &subdomains, 1, 1);
    let (factor, solve) = (SchwarzFactor::Random { sweeps: 3 }, TriangularSolve::Random { sweeps: 3 });
    let run = || {
        let p = made(&space, &plan, &a, SchwarzSettings { factor, solve, options: OPTIONS });
        (space.read_schwarz(p.factors()).unwrap(), applied(&space, &p, &x), applied(&space, &p, &x))
    };
    let (first, second) = (run(), run());
    assert!(first.1 == first.2, "two applications of the same factors differ");
    assert!(first.0 == second.0, "factors differ");
    assert!(first.1 == second.1, "solves differ");
}

/// Randomized factors that are not good enough give way to exact ones, and it is said; pivots are named.
pub fn schwarz_checks_its_factors<S: SchwarzFactors>(make: Make<S>) {
    let mut rng = Random(66);
    // Couplings as large as the diagonal: one sweep from A is far away.
    let n = 200u32;
    let path: Vec<_> = (0..n)
        .flat_map(|i| [(i, i, 2.1), (i, (i + 1).min(n - 1), -1.0), (i, i.saturating_sub(1), -1.0)])
        .filter(|&(i, j, v)| i != j || v > 0.0)
        .collect();
    let a = Bsr::from_csr(&Csr::from_triplets(200, 200, &path).unwrap(), 1).unwrap();
    let (space, whole) = (make(200), Subdomains::whole(200));
    let x = rng.numbers(200);
    let options = SchwarzOptions { rows: 1, ..OPTIONS };
    let random = |sweeps| SchwarzSettings { factor: SchwarzFactor::Random { sweeps }, options, ..EXACT };
    for fill in 0..=2 {
        let plan = plan(&a, &whole, 0, fill);
        let mut p = made(&space, &plan, &a, random(1));
        assert_eq!(p.factorization(), Some(Factorization::Exact));
        let events = p.take_events();
        match fill {
            // The first of ILU(2) are exact without a trial.
            2 => assert!(events.is_empty(), "{events:?}"),
            _ => assert!(events.len() == 1 && events[0].contains("uses exact factors"), "{events:?}"),
        }
        let exact = applied(&space, &made(&space, &plan, &a, EXACT), &x);
        assert!(applied(&space, &p, &x) == exact, "other than exact factors");
        // From exact factors of nearly these values one sweep is enough.
        let near: Vec<f64> = a.values().iter().map(|v| v * (1.0 + 1e-4 * rng.number())).collect();
        p.update_values(&space, &near[..]).unwrap();
        assert_eq!(p.factorization(), Some(Factorization::Random { sweeps: 1, warm: true }));
        assert!(p.take_events().is_empty() && p.defect() > 0.0 && p.defect() < 1e-3, "{:e}", p.defect());
        // Enough sweeps from A are taken where fill does not forbid it.
        let p = made(&space, &plan, &a, random(40));
        let cold = Factorization::Random { sweeps: 40, warm: false };
        assert_eq!(p.factorization(), Some(if fill < 2 { cold } else { Factorization::Exact }));
    }
    // A pivot that is exactly zero: A's own, and one that elimination makes.
    for (values, row) in [([0.0, 1.0, 1.0, 1.0], 0), ([1.0, 1.0, 1.0, 1.0], 1)] {
        let entries: Vec<_> = (0..4u32).map(|e| (e / 2, e % 2, values[e as usize])).collect();
        let a = Bsr::from_csr(&Csr::from_triplets(2, 2, &entries).unwrap(), 1).unwrap();
        let (space, plan) = (make(2), plan(&a, &Subdomains::whole(2), 0, 0));
        for settings in [EXACT, random(2)] {
            let mut p = Schwarz::new(&space, plan.clone(), settings).unwrap();
            let error = p.update_values(&space, a.values()).unwrap_err();
            assert!(
                matches!(error, Error::Pivot { row: found, kind: "zero", .. } if found == row),
                "row {row}: {error}"
            );
            // Other values mend it.
            p.update_values(&space, &[2.0, 1.0, 1.0, 2.0][..]).unwrap();
            let d = distance(&applied(&space, &p, &[3.0, 3.0]), &[1.0, 1.0]);
            assert!(d <= 1e-15, "{d:e}");
        }
    }
    let p = Schwarz::new(&space, plan(&a, &whole, 0, 0), random(2))
        .map(|mut p| p.update_values(&space, &[1.0][..]));
    let error = p.unwrap().unwrap_err().to_string();
    assert!(error.contains("but the plan needs"), "{error}");
}

/// Sweeps on trial are taken where they come near substitution, and not where they miss it; an event says so.
pub fn sweeps_on_trial_give_way<S: SchwarzFactors>(make: Make<S>) {
    let n = 200;
    let chain = |diagonal: f64| {
        let m = n as u32;
        let couplings = (0..m - 1).flat_map(|i| [(i, i + 1, -1.0), (i + 1, i, -1.0)]);
        let triplets: Vec<_> = (0..m).map(|i| (i, i, diagonal)).chain(couplings).collect();
        Bsr::from_csr(&Csr::from_triplets(n, n, &triplets).unwrap(), 1).unwrap()
    };
    let (stiff, dominant) = (chain(2.0), chain(40.0));
    let plan = plan(&stiff, &Subdomains::whole(n), 0, 0);
    let space = make(n);
    let mut p = Schwarz::new(&space, plan, EXACT).unwrap();
    let sweeps = TriangularSolve::Jacobi { sweeps: 3 };
    p.try_sweeps(&space, sweeps).unwrap();
    let mut keys = Vec::new();
    for (a, taken) in
        [(&stiff, TriangularSolve::Exact), (&dominant, sweeps), (&stiff, TriangularSolve::Exact)]
    {
        p.update_values(&space, a.values()).unwrap();
        let distance = p.distance().unwrap();
        assert_eq!(p.solve(), taken, "{distance}");
        assert_eq!(distance <= MOST_DISTANCE, taken == sweeps, "{distance}");
        let events = p.take_events();
        assert_eq!(events.len(), usize::from(taken != sweeps), "{events:?}");
        assert!(events.iter().all(|e| e.contains("uses exact solves")), "{events:?}");
        keys.push(p.key());
        let x: Vec<f64> = (0..n).map(|i| (i as f64).sin()).collect();
        let y = applied(&space, &p, &x);
        // Of a chain ILU(0) is exact, so what is left over tells how good the solve is.
        let entry = |y: &[f64], i: usize| if i < n { y[i] } else { 0.0 };
        let far = (0..n)
            .map(|i| (a.values()[0] * y[i] - entry(&y, i.wrapping_sub(1)) - entry(&y, i + 1) - x[i]).abs())
            .fold(0.0, f64::max);
        assert!(far < if taken == sweeps { 1e-3 } else { 1e-11 }, "{far}");
    }
    assert_eq!(keys[0], keys[2]);
    assert_ne!(keys[0], keys[1], "recorded work no longer holds");
}

fn turnable(settings: &SchwarzSettings) -> bool {
    !matches!(settings.solve, TriangularSolve::Random { .. })
}

/// Mᵀ x, or x where M has no transpose.
fn turned<S: SchwarzFactors>(space: &S, p: &Schwarz<S>, x: &[f64]) -> Vec<f64> {
    Transposed::of(p).map_or_else(|_| x.to_vec(), |p| applied(space, &p, x))
}

/// Results over ranks equal those of one rank, also those of the transpose, for any owner of the parts: an
/// empty rank, several parts per rank, and unordered rows.
pub fn schwarz_of_ranks<S: SchwarzFactors>(sizes: &[usize], make: Make<S>, share: MakeShare<S>) {
    let mut rng = Random(67);
    let (b, n, parts) = (2, 150, 4);
    let a = random_bsr(&mut rng, b, n, n, 2, true);
    let near: Vec<f64> = a.values().iter().map(|v| v * (1.0 + 0.01 * rng.number())).collect();
    let x = rng.numbers(n * b);
    // Bands, so that overlap stays small beside the subdomains.
    let labels: Vec<u32> = (0..n).map(|i| (i * parts / n) as u32).collect();
    let all = Subdomains::from_labels(&labels, parts).unwrap();
    let random = SchwarzSettings {
        factor: SchwarzFactor::Random { sweeps: 6 },
        solve: TriangularSolve::Random { sweeps: 4 },
        options: OPTIONS,
    };
    let jacobi = SchwarzSettings { solve: TriangularSolve::Jacobi { sweeps: 3 }, ..EXACT };
    for (overlap, fill, settings) in
        [(0, 1, EXACT), (1, 1, EXACT), (2, 0, EXACT), (1, 1, random), (1, 0, jacobi)]
    {
        let pattern = SchwarzPattern { overlap, fill, order: SchwarzOrder::Rcm };
        let expected = {
            let space = make(n * b);
            let plan = SchwarzPlan::new(&Solo, &Terms::bsr(&a), None, &all, pattern).unwrap();
            let mut p = made(&space, &plan.into(), &a, settings);
            let first = applied(&space, &p, &x);
            turnable(&settings).then(|| p.prepare_transpose(&space).unwrap());
            p.update_values(&space, &near[..]).unwrap();
            [first, applied(&space, &p, &x), turned(&space, &p, &x)]
        };
        for &ranks in sizes {
            for shift in 0..2 {
                // With three ranks and a shift the last is empty.
                let owner = |i: usize| (labels[i] as usize * ranks / (parts + shift)) as u32;
                let partition = Partition::new((0..n).map(owner).collect(), ranks).unwrap();
                let terms = Terms::bsr(&a);
                let refreshed =
                    Bsr::new(b, n, n, a.row_ptr().to_vec(), a.col().to_vec(), near.clone()).unwrap();
                let both = [&terms, &Terms::bsr(&refreshed)].map(|terms| split(terms, &partition).unwrap());
                let found = Team::run(ranks, |comm| {
                    let rank = comm.rank();
                    let comm: Arc<dyn Communicator> = comm;
                    let [part, next] = [&both[0][rank], &both[1][rank]];
                    let own: Vec<u32> = part.rows.iter().map(|&i| labels[i as usize]).collect();
                    let mut named = own.clone();
                    named.sort_unstable();
                    named.dedup();
                    let own: Vec<u32> =
                        own.iter().map(|p| named.iter().position(|q| q == p).unwrap() as u32).collect();
                    let own = Subdomains::from_labels(&own, named.len())?;
                    let space = share(&comm, part.rows.len() * b)?;
                    let numbers = Some(RowNumbers::List(&part.rows));
                    let plan = SchwarzPlan::new(&*comm, &part.terms, numbers, &own, pattern)?;
                    let mut p = Schwarz::new(&space, plan.into(), settings)?;
                    let mine: Vec<f64> =
                        part.rows.iter().flat_map(|&i| &x[i as usize * b..][..b]).copied().collect();
                    p.update_values(&space, part.terms.terms()[0].1.values())?;
                    let first = applied(&space, &p, &mine);
                    if turnable(&settings) {
                        p.prepare_transpose(&space)?;
                    }
                    p.update_values(&space, next.terms.terms()[0].1.values())?;
                    let results = [first, applied(&space, &p, &mine), turned(&space, &p, &mine)];
                    Ok((part.rows.clone(), results))
                });
                let mut whole = [(); 3].map(|()| vec![0.0; n * b]);
                for (rows, results) in found.unwrap() {
                    for (whole, own) in whole.iter_mut().zip(results) {
                        for (k, &i) in rows.iter().enumerate() {
                            whole[i as usize * b..][..b].copy_from_slice(&own[k * b..][..b]);
                        }
                    }
                }
                let d: Vec<f64> = whole.iter().zip(&expected).map(|(x, y)| distance(x, y)).collect();
                let what = format!("overlap {overlap}, {ranks} ranks, shift {shift}");
                assert!(d[0] <= 1e-14 && d[1] <= 1e-14, "{what}: {d:?}");
                // Sums over subdomains of several ranks have another order.
                assert!(d[2] <= 1e-13, "{what}, transposed: {d:?}");
            }
        }
    }
}

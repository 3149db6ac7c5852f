//! Criteria of convergence on every device: each quantity against its definition.

use super::Make;
use crate::common::exact::{Exact, safe_norm};
use crate::common::*;
use krylith_core::matrix::{Csr, Dense, KroneckerSum};
use krylith_core::method::MethodSpec;
use krylith_core::operator::{LinearOperator, PointBlock, PointBlockSum, Terms};
use krylith_core::precond::{BlockDiagonal, BlockJacobi};
use krylith_core::space::{Columns, Criterion, RelativeTo, Space};
use krylith_core::{History, Outcome, Precision, Stop};

/// Computes the quantity of x, relative to b or to the residual of a guess. No entries of terms cancel.
pub fn quantity(criterion: Criterion, a: &Csr, b: &[f64], x: &[f64], guess: Option<&[f64]>) -> f64 {
    let exact = Exact::of(a);
    let r = exact.residual(b, x);
    let to = guess.map_or(b.to_vec(), |guess| exact.residual(b, guess));
    let row = |i: usize| {
        let (col, values) = a.row(i);
        col.iter().zip(values).map(|(&j, &v)| (j as usize, v.abs()))
    };
    let d = |i: usize| {
        let norm: f64 = row(i).map(|(_, v)| v).sum();
        if norm == 0.0 { 1.0 } else { norm }
    };
    let scaled = |v: &[f64]| safe_norm(&(0..v.len()).map(|i| v[i] / d(i)).collect::<Vec<_>>());
    let size = |i: usize| row(i).map(|(j, v)| v * x[j].abs()).sum::<f64>() + b[i].abs();
    let quotient = |i: usize| if r[i] == 0.0 { 0.0 } else { r[i].abs() / size(i) };
    match criterion {
        Criterion::Residual => safe_norm(&r) / safe_norm(&to),
        Criterion::Rows => scaled(&r) / scaled(&to),
        Criterion::Backward => (0..b.len()).map(quotient).fold(0.0, f64::max),
    }
}

/// A Kronecker sum of positive entries whose rows differ in scale by 10^decades.
fn uneven(rng: &mut Random, b: usize, s: usize, n: usize, decades: f64) -> KroneckerSum {
    let k = random_kronecker(rng, b, s, n, 3, false, true);
    let positive =
        |d: &Dense| Dense::new(s, s, (0..s * s).map(|e| d[(e / s, e % s)].abs()).collect()).unwrap();
    let (mut m, mut l) = (k.m.clone(), k.l.clone());
    let row_ptr = [m.row_ptr().to_vec(), l.row_ptr().to_vec()];
    for i in 0..n * b {
        let scale = 10f64.powf(decades * rng.number() / 2.0);
        for (a, row_ptr) in [&mut m, &mut l].into_iter().zip(&row_ptr) {
            for p in row_ptr[i / b]..row_ptr[i / b + 1] {
                let row = &mut a.values_mut()[p * b * b + i % b * b..][..b];
                row.iter_mut().for_each(|v| *v = v.abs() * scale);
            }
        }
    }
    KroneckerSum::new(positive(&k.a), positive(&k.b), k.tau, m, l).unwrap()
}

fn rows_of(k: &KroneckerSum) -> Csr {
    let dense = dense(k);
    let mut entries = Vec::new();
    for i in 0..dense.nrows() {
        let row = (0..dense.ncols()).filter(|&j| dense[(i, j)] != 0.0);
        entries.extend(row.map(|j| (i as u32, j as u32, dense[(i, j)])));
    }
    Csr::from_triplets(dense.nrows(), dense.ncols(), &entries).unwrap()
}

/// −1 2.1 −1, scaled from both sides.
fn symmetric(n: usize, decades: f64) -> KroneckerSum {
    let scale = |i: usize| 10f64.powf(decades * ((i * 7 % n) as f64 / n as f64 - 0.5) / 2.0);
    let mut entries = Vec::new();
    for i in 0..n {
        for j in i.saturating_sub(1)..(i + 2).min(n) {
            let v = if i == j { 2.1 } else { -1.0 };
            entries.push((i as u32, j as u32, v * scale(i) * scale(j)));
        }
    }
    let m = krylith_core::matrix::Bsr::from_csr(&Csr::from_triplets(n, n, &entries).unwrap(), 1).unwrap();
    let (one, zero) = (Dense::identity(1), Dense::new(1, 1, vec![0.0]).unwrap());
    KroneckerSum::new(one, zero, 1.0, m.clone(), m).unwrap()
}

/// Every criterion, for one right-hand side and for several at once, and twice with the same workspace.
pub fn every_criterion_is_certified<S: PointBlockSum + BlockDiagonal + 'static>(make: Make<S>) {
    let mut rng = Random(91);
    let general = ["gmres:restart=40", "fgmres:restart=40", "bicgstab"];
    let own = ["cg", "cg:form=pipelined", "cbcg:s=3", "minres"];
    let mut cases: Vec<(KroneckerSum, &[&str])> = vec![(symmetric(33, 4.0), &own)];
    for (b, s, n) in [(1, 1, 33), (3, 1, 12), (2, 2, 9), (1, 4, 8), (1, 1, 1)] {
        cases.push((uneven(&mut rng, b, s, n, 2.0), &general));
    }
    for (k, methods) in &cases {
        let (a, n) = (rows_of(k), k.rows());
        let terms = Terms::kronecker(k);
        let mut b = rng.numbers(3 * n);
        b[n..2 * n].fill(0.0);
        let guess = rng.numbers(3 * n);
        for method in *methods {
            for jacobi in [false, true] {
                let space = make(n);
                let operator = PointBlock::new(&space, &terms, Precision::F64, false).unwrap();
                let p = jacobi.then(|| BlockJacobi::new(&space, &terms, Precision::F64).unwrap());
                let p = p.as_ref().map(|p| p as &dyn LinearOperator<S>);
                let spec: MethodSpec = method.parse().unwrap();
                let mut solver = spec.build(&space).unwrap();
                let columns = Columns::new(make(n), 3).unwrap();
                let mut together = spec.build_columns(&columns).unwrap();
                for (criterion, relative_to) in [
                    (Criterion::Backward, RelativeTo::B),
                    (Criterion::Rows, RelativeTo::R0),
                    (Criterion::Residual, RelativeTo::R0),
                    (Criterion::Rows, RelativeTo::B),
                    (Criterion::Residual, RelativeTo::B),
                    (Criterion::Backward, RelativeTo::B),
                ] {
                    let stop = Stop { rtol: 1e-7, criterion, relative_to, max_iters: 2000, ..Stop::DEFAULT };
                    let judge = |k: usize, x: &[f64], history: &History, how: &str| {
                        let range = k * n..(k + 1) * n;
                        let what =
                            format!("{method} {n} jacobi={jacobi} {criterion} {relative_to} {how} {k}");
                        assert_eq!(
                            history.outcome,
                            Outcome::Converged,
                            "{what}: {} iterations",
                            history.iterations
                        );
                        assert_eq!(
                            (history.criterion, history.relative_to),
                            (criterion, relative_to),
                            "{what}"
                        );
                        if b[range.clone()].iter().all(|b| *b == 0.0) {
                            assert!(x.iter().all(|x| *x == 0.0), "{what}");
                            return;
                        }
                        let to = (relative_to == RelativeTo::R0).then_some(&guess[range.clone()]);
                        let value = quantity(criterion, &a, &b[range], x, to);
                        assert!(value <= 1.001e-7 + 4.0 * history.rounding, "{what}: {value:e}");
                        // The matrix written out is rounded.
                        let close = |v: f64| (v - value).abs() <= 1e-6 * value + 4.0 * history.rounding;
                        let last = history.residuals[history.iterations];
                        assert!(close(history.criterion_value) && close(last), "{what}: {value:e} {last:e}");
                    };
                    let (mut db, mut dx) = (space.vector().unwrap(), space.vector().unwrap());
                    for k in 0..3 {
                        space.write(&b[k * n..][..n], &mut db).unwrap();
                        space.write(&guess[k * n..][..n], &mut dx).unwrap();
                        let history =
                            solver.solve(&space, &operator, p, &db, &mut dx, &stop, &mut ()).unwrap();
                        let (history, mut x) = (history.clone(), vec![f64::NAN; n]);
                        space.read(&dx, &mut x).unwrap();
                        judge(k, &x, &history, "alone");
                    }
                    let (mut db, mut dx) = (columns.vector().unwrap(), columns.vector().unwrap());
                    for k in 0..3 {
                        columns.select([k]);
                        columns.write(&b[k * n..][..n], &mut db).unwrap();
                        columns.write(&guess[k * n..][..n], &mut dx).unwrap();
                    }
                    let mut nobody = [(), (), ()];
                    let mut observers: Vec<&mut dyn krylith_core::Observer> =
                        nobody.iter_mut().map(|nobody| nobody as &mut dyn krylith_core::Observer).collect();
                    let found = together.solve(&columns, &operator, p, &db, &mut dx, &stop, &mut observers);
                    for (k, history) in found.unwrap().iter().enumerate() {
                        let mut x = vec![f64::NAN; n];
                        columns.select([k]);
                        columns.read(&dx, &mut x).unwrap();
                        judge(k, &x, history, "together");
                    }
                }
            }
        }
    }
}

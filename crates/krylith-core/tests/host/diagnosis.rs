//! Diagnosis of a system before it is solved, on one rank and on three, compared with dense matrices; and
//! scaling by it.

use crate::common::*;
use krylith_core::comm::{Communicator, Solo, Team};
use krylith_core::matrix::{Bsr, Csr, Dense, KroneckerSum};
use krylith_core::operator::Terms;
use krylith_core::partition::{Part, Partition, split};
use krylith_core::precond::Scaling;
use krylith_core::solver::{Diagnosis, Floor};
use krylith_core::{Options, Problem, Solver};
use std::sync::Arc;

/// Owners in no order, each with a row or none.
fn shuffled(rng: &mut Random, terms: &Terms, ranks: usize) -> Vec<Part> {
    let owner = (0..terms.block_rows()).map(|_| rng.below(ranks) as u32).collect();
    split(terms, &Partition::new(owner, ranks).unwrap()).unwrap()
}

/// This rank's part of a vector of the whole.
fn own(part: &Part, run: usize, whole: &[f64]) -> Vec<f64> {
    part.rows.iter().flat_map(|&i| &whole[i as usize * run..][..run]).copied().collect()
}

fn on_ranks<T: Send>(
    parts: &[Part],
    work: impl Fn(Problem<'static>, &Part) -> krylith_core::Result<T> + Sync,
) -> Vec<T> {
    let ranks = Team::run(parts.len(), |comm| {
        let part = &parts[comm.rank()];
        work(Problem::part(comm as Arc<dyn Communicator>, part.clone())?, part)
    });
    ranks.unwrap()
}

/// Puts zeros into a random matrix: stored ones in some rows and columns, and on the diagonal.
fn with_zeros(rng: &mut Random, a: &mut Bsr) {
    let (n, b) = (a.rows(), a.block());
    let [row, column, diagonal] = [0; 3].map(|_| rng.below(2 * n));
    let (row_ptr, col) = (a.row_ptr().to_vec(), a.col().to_vec());
    for i in 0..a.block_rows() {
        for p in row_ptr[i]..row_ptr[i + 1] {
            for e in 0..b * b {
                let (r, c) = (i * b + e / b, col[p] as usize * b + e % b);
                if r == row || c == column || (r == diagonal && c == diagonal) {
                    a.values_mut()[p * b * b + e] = 0.0;
                }
            }
        }
    }
}

/// The same by looking at every entry.
fn check(diagnosis: &Diagnosis, a: &Mat, case: &str) {
    let n = a.nrows();
    let empty = |of: &dyn Fn(usize, usize) -> f64| -> Vec<u64> {
        (0..n).filter(|&i| (0..n).all(|j| of(i, j) == 0.0)).map(|i| i as u64).collect()
    };
    for (found, expected) in [
        (&diagnosis.empty_rows, empty(&|i, j| a[(i, j)])),
        (&diagnosis.empty_columns, empty(&|i, j| a[(j, i)])),
        (&diagnosis.missing_diagonal, (0..n).filter(|&i| a[(i, i)] == 0.0).map(|i| i as u64).collect()),
    ] {
        assert_eq!(found.count, expected.len(), "{case}");
        assert_eq!(found.first, expected[..expected.len().min(5)], "{case}");
    }
}

#[test]
fn what_is_empty_is_found_wherever_it_stands() {
    let mut rng = Random(41);
    for round in 0..200 {
        let (b, s, n) = (1 + rng.below(3), 1 + rng.below(3), 1 + rng.below(12));
        let mut k = random_kronecker(&mut rng, b, s, n, 2, round % 2 == 0, false);
        with_zeros(&mut rng, &mut k.m);
        with_zeros(&mut rng, &mut k.l);
        if round % 5 == 0 {
            // Stages that a coefficient leaves out.
            let stage = rng.below(s);
            (0..s).for_each(|l| (k.a[(stage, l)], k.b[(l, stage)]) = (0.0, 0.0));
        }
        let (terms, matrix) = (Terms::kronecker(&k), dense(&k));
        let one = Problem::kronecker(&k).unwrap().diagnosis().unwrap();
        check(&one, &matrix, &format!("{round}: b = {b}, s = {s}, n = {n}"));
        let parts = shuffled(&mut rng, &terms, 3);
        for found in on_ranks(&parts, |problem, _| problem.diagnosis()) {
            check(&found, &matrix, &format!("{round} on ranks: b = {b}, s = {s}, n = {n}"));
            assert_eq!(
                (found.entries, found.rows, found.columns),
                (one.entries, one.rows, one.columns),
                "{round}"
            );
        }
        if s == 1 && round % 2 == 0 {
            let alone = Problem::bsr(&k.m).unwrap().diagnosis().unwrap();
            let entries = || k.m.values().iter().map(|v| v.abs()).filter(|v| *v > 0.0);
            assert_eq!(alone.entries.largest, entries().fold(0.0, f64::max), "{round}");
            assert_eq!(alone.entries.smallest, entries().fold(f64::INFINITY, f64::min), "{round}");
            let maxima = k.m.to_csr();
            let maxima =
                (0..maxima.rows()).map(|i| maxima.row(i).1.iter().fold(0.0f64, |m, v| m.max(v.abs())));
            assert_eq!(alone.rows.largest, maxima.clone().fold(0.0, f64::max), "{round}");
            let smallest = maxima.filter(|v| *v > 0.0).fold(f64::INFINITY, f64::min);
            assert_eq!(alone.rows.smallest, smallest, "{round}");
        }
    }
}

#[test]
fn large_systems_are_looked_at_by_all_threads_alike() {
    // More rows than one thread takes; empty ones at both ends of a share.
    let n = 20_000u32;
    let empty = [0, 2047, 2048, 2049, 9_999, 19_999];
    let entries: Vec<_> = (0..n)
        .filter(|i| !empty.contains(i))
        .flat_map(|i| [(i, i, 1.0 + f64::from(i)), (i, (i * 7) % (n - 1), 0.5)])
        .collect();
    let a = Csr::from_triplets(n as usize, n as usize, &entries).unwrap();
    let found = Problem::csr(&a).unwrap().diagnosis().unwrap();
    assert_eq!(found.empty_rows.to_string(), "0, 2047, 2048, 2049, 9999 and 1 more");
    assert_eq!(found.missing_diagonal.count, 6);
    assert_eq!(found.empty_columns.first.last(), Some(&19_999));
    assert_eq!(found.rows.largest, f64::from(n) - 1.0);
}

#[test]
fn no_x_comes_below_the_floor_of_empty_rows() {
    let mut rng = Random(42);
    let mut some = 0;
    for round in 0..100 {
        let (b, s, n) = (1 + rng.below(2), 1 + rng.below(2), 2 + rng.below(8));
        let mut k = random_kronecker(&mut rng, b, s, n, 1, true, false);
        with_zeros(&mut rng, &mut k.m);
        k.l = k.m.clone();
        let (terms, matrix) = (Terms::kronecker(&k), dense(&k));
        // Sums of squares that would vanish or overflow, too.
        let unit = [1.0, 1e-200, 1e200][round % 3];
        let rhs: Vec<f64> = rng.numbers(k.rows()).iter().map(|v| v * unit).collect();
        let problem = Problem::kronecker(&k).unwrap();
        let floor = problem.diagnosis().unwrap().floor(&problem, &rhs).unwrap();
        let empty = |i: &usize| (0..k.rows()).all(|j| matrix[(*i, j)] == 0.0);
        let of_empty: Vec<f64> = (0..k.rows()).filter(empty).map(|i| rhs[i] / unit).collect();
        assert_eq!(floor.is_none(), of_empty.is_empty(), "{round}");
        let parts = shuffled(&mut rng, &terms, 3);
        let ranks =
            on_ranks(&parts, |problem, part| problem.diagnosis()?.floor(&problem, &own(part, b * s, &rhs)));
        let Some(floor) = floor else {
            assert!(ranks.iter().all(Option::is_none), "{round}");
            continue;
        };
        some += 1;
        let small: Vec<f64> = rhs.iter().map(|v| v / unit).collect();
        assert!((floor.residual / unit - norm(&of_empty)).abs() <= 1e-14 * norm(&of_empty), "{round}");
        assert!((floor.relative - norm(&of_empty) / norm(&small)).abs() <= 1e-14, "{round}");
        let x = rng.numbers(k.rows());
        assert!(
            norm(&minus(&small, &multiply(&matrix, &x))) >= floor.residual / unit * (1.0 - 1e-14),
            "{round}"
        );
        for other in ranks.into_iter().flatten() {
            assert_eq!(other.reason, floor.reason, "{round}");
            assert!((other.relative - floor.relative).abs() < 1e-14, "{round}");
        }
    }
    assert!(some > 30, "{some} systems had empty rows");
}

/// A path with free ends, with the rows of its second half scaled by `factor`: constants are null vectors of
/// A, and of Aᵀ if the factor is 1.
fn path(n: usize, factor: f64) -> Csr {
    let mut entries = Vec::new();
    for i in 0..n as u32 - 1 {
        for (p, q) in [(i, i + 1), (i + 1, i)] {
            let weight = if p as usize > n / 2 { factor } else { 1.0 };
            entries.extend([(p, p, weight * 1.1), (p, q, weight * -1.1)]);
        }
    }
    Csr::from_triplets(n, n, &entries).unwrap()
}

#[test]
fn null_vectors_bound_the_residual_where_they_are_those_of_the_transpose() {
    let n = 3000;
    let b: Vec<f64> = (0..n).map(|i| (i as f64).sin() + 0.25).collect();
    let floor_of = |a: &Csr, n_vectors: Vec<Vec<f64>>, b: &[f64]| -> Option<Floor> {
        let problem = Problem::csr(a).unwrap().with_null_vectors(n_vectors).unwrap();
        problem.diagnosis().unwrap().floor(&problem, b).unwrap()
    };
    let constant = vec![vec![3.0; n]];
    let floor = floor_of(&path(n, 1.0), constant.clone(), &b).unwrap();
    let expected = b.iter().sum::<f64>().abs() / (n as f64).sqrt();
    assert!((floor.residual - expected).abs() < 1e-12 * expected, "{floor:?}");
    assert!(floor.reason.starts_with("b has a component along null vector 0"), "{floor:?}");
    // Nothing is claimed where A n = 0 and nᵀA ≠ 0, however little it differs.
    for factor in [2.0, 1.0 + 1e-9] {
        assert_eq!(floor_of(&path(n, factor), constant.clone(), &b), None, "{factor}");
    }
    // A right-hand side of differences has no component but for rounding.
    let differences: Vec<f64> = (0..n).map(|i| b[i] - b[(i + 1) % n]).collect();
    let floor = floor_of(&path(n, 1.0), constant, &differences);
    assert!(floor.is_none_or(|f| f.relative < 1e-14));
    // On ranks too.
    let a = Bsr::from_csr(&path(n, 1.0), 1).unwrap();
    let parts = shuffled(&mut Random(7), &Terms::bsr(&a), 3);
    for floor in on_ranks(&parts, |problem, part| {
        let problem = problem.with_null_vectors(vec![vec![3.0; part.rows.len()]])?;
        problem.diagnosis()?.floor(&problem, &own(part, 1, &b))
    }) {
        assert!((floor.unwrap().residual - expected).abs() < 1e-12 * expected);
    }
}

/// Rows and columns of very unlike sizes.
fn uneven(rng: &mut Random, s: usize) -> KroneckerSum {
    let mut k = random_kronecker(rng, 2, s, 40, 3, false, true);
    let rows: Vec<f64> = (0..80).map(|_| 10f64.powf(4.0 * rng.number())).collect();
    let columns: Vec<f64> = (0..80).map(|_| 10f64.powf(4.0 * rng.number())).collect();
    let scaled = Scaling { rows, columns }.scaled(&Terms::kronecker(&k)).unwrap();
    let mut matrices = scaled.terms().iter().map(|t| t.1.clone().into_owned());
    (k.m, k.l) = (matrices.next().unwrap(), matrices.next().unwrap());
    k
}

#[test]
fn ranks_scale_as_one_does_to_the_bit() {
    let mut rng = Random(43);
    for round in 0..20 {
        let s = 1 + round % 2;
        let k = uneven(&mut rng, s);
        let terms = Terms::kronecker(&k);
        let one = Scaling::find(&terms, &Solo).unwrap();
        let parts = shuffled(&mut rng, &terms, 3);
        let found = Team::run(3, |comm| Scaling::find(&parts[comm.rank()].terms, &*comm)).unwrap();
        for (part, found) in parts.iter().zip(found) {
            assert_eq!(found.rows, own(part, 2, &one.rows), "{round}");
            assert_eq!(found.columns[..2 * part.rows.len()], own(part, 2, &one.columns), "{round}");
            // Ghosts have their owners' factors.
            let scaled = found.scaled(&part.terms).unwrap();
            let whole = one.scaled(&terms).unwrap();
            let whole = split(&whole, &Partition::new(owners(&parts, 40), 3).unwrap()).unwrap();
            let expected = whole.iter().find(|p| p.rows == part.rows).unwrap();
            for (t, (_, a)) in scaled.terms().iter().enumerate() {
                assert_eq!(a.values(), expected.terms.terms()[t].1.values(), "{round}");
            }
        }
    }
}

fn owners(parts: &[Part], n: usize) -> Vec<u32> {
    let mut owner = vec![0; n];
    for (rank, part) in parts.iter().enumerate() {
        part.rows.iter().for_each(|&i| owner[i as usize] = rank as u32);
    }
    owner
}

#[test]
fn equilibration_works_on_ranks_asked_for_or_found() {
    let mut rng = Random(44);
    for s in [1, 2] {
        let mut k = uneven(&mut rng, s);
        k.a = Dense::identity(s);
        let run = 2 * s;
        let b: Vec<f64> = multiply(&dense(&k), &vec![1.0; k.rows()]);
        for text in ["equilibrate=true precond=jacobi", "equilibrate=true precond=none", ""] {
            let options: Options =
                format!("device=cpu threads=1 method=gmres rtol=1e-9 {text}").parse().unwrap();
            let mut x = vec![0.0; k.rows()];
            let mut solver = Solver::new(&k, &options).unwrap();
            let alone = solver.solve(&b, &mut x).unwrap().clone();
            assert!(alone.converged() && alone.equilibrated, "{text:?} {}", alone.outcome());
            let parts = shuffled(&mut rng, &Terms::kronecker(&k), 3);
            let ranks = on_ranks(&parts, |problem, part| {
                let mut solver = Solver::new(problem, &options)?;
                let mut x = vec![0.0; run * part.rows.len()];
                let solution = solver.solve(&own(part, run, &b), &mut x)?.clone();
                // New values are scaled anew.
                let values: Vec<f64> = part.terms.terms()[0].1.values().iter().map(|v| 2.0 * v).collect();
                solver.update_term(0, &values)?;
                let again = solver.solve(&own(part, run, &b), &mut x)?.converged();
                Ok((solution, again))
            });
            for (solution, again) in ranks {
                assert!(solution.converged() && solution.equilibrated && again, "{text:?}");
                if text.contains("precond") {
                    let off = solution.history.iterations.abs_diff(alone.history.iterations);
                    assert!(off <= 1, "{text:?}: {off} iterations apart");
                }
            }
        }
    }
}

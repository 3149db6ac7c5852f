//! The first stage of CPR on any device, against dense constructions.

use super::fields::{check, csr_of, diagonal, options, part, problem};
use crate::common::*;
use krylith_core::comm::{Communicator, Team};
use krylith_core::matrix::{Bsr, Csr};
use krylith_core::partition::split;
use krylith_core::{Field, Problem, Result, Solver};

/// A matrix of the caller: full blocks, and entries between cells that must be ignored.
fn given(rng: &mut Random, n: usize) -> Mat {
    let numbers = rng.numbers(n * n);
    Mat::from_fn(n, n, |i, j| numbers[n * i + j] + if i == j { 4.0 } else { 0.0 })
}

/// The first stage of CPR for cells of one to four unknowns, interleaved and by field, with unknowns outside
/// cells. Weights from a matrix of the caller stay when the values of the system change.
pub fn cpr_matches_dense_algebra(device: &str) {
    let mut rng = Random(43);
    for m in 1..=4 {
        for interleaved in [true, false] {
            let (cells, wells) = (12, if interleaved { 0 } else { 3 });
            let n = cells * m + wells;
            let a = match interleaved {
                true => random_bsr(&mut rng, m, cells, cells, 4, true),
                false => random_bsr(&mut rng, 1, n, n, 8, true),
            };
            let unknown =
                |c: usize, cell: usize| (if interleaved { cell * m + c } else { c * cells + cell }) as u32;
            let mut sets: Vec<Vec<u32>> =
                (0..m).map(|c| (0..cells).map(|cell| unknown(c, cell)).collect()).collect();
            sets.extend((wells > 0).then(|| ((cells * m) as u32..n as u32).collect()));
            let names = ["p", "s", "t", "v", "w"];
            let fields: Vec<(&str, &[u32])> = names.into_iter().zip(sets.iter().map(Vec::as_slice)).collect();
            let acc = given(&mut rng, n);
            for decouple in ["quasi-impes", "row-sums", "none", "impes(acc)"] {
                let expected = |a: &Mat, x: &[f64]| {
                    let mut w = Mat::zeros(cells, n);
                    for cell in 0..cells {
                        let own: Vec<u32> = (0..m).map(|c| unknown(c, cell)).collect();
                        w[(cell, own[0] as usize)] = 1.0;
                        let weights = match decouple {
                            "row-sums" => vec![1.0; m - 1],
                            "quasi-impes" | "impes(acc)" if m > 1 => {
                                let d = part(if decouple == "quasi-impes" { a } else { &acc }, &own, &own);
                                let others = Mat::from_fn(m - 1, m - 1, |i, j| d[(j + 1, i + 1)]);
                                let rhs: Vec<f64> = (1..m).map(|j| -d[(0, j)]).collect();
                                solve(&others, &rhs)
                            }
                            _ => vec![0.0; m - 1],
                        };
                        (1..m).for_each(|c| w[(cell, own[c] as usize)] = weights[c - 1]);
                    }
                    let all: Vec<u32> = (0..n as u32).collect();
                    let pressure = product(&w, &part(a, &all, &sets[0]));
                    let y = solve(&pressure, &multiply(&w, x));
                    let mut whole = vec![0.0; n];
                    sets[0].iter().zip(&y).for_each(|(&i, y)| whole[i as usize] = *y);
                    whole
                };
                let precond = format!("cpr(p: lu; decouple={decouple})");
                let what = format!("{m} unknowns a cell, interleaved: {interleaved}");
                check(device, &what, &a, problem(&a, &fields, &[("ACC", &acc)]), &precond, 1e-8, &expected);
            }
        }
    }
}

/// The fields of cells of `m` interleaved unknowns.
fn interleaved(m: usize, cells: usize) -> Vec<Field> {
    let names = ["p", "s", "t", "v"];
    names[..m].iter().zip(0..).map(|(name, c)| Field::strided(name, c..m * cells, m)).collect()
}

/// Ranks combine the rows of their cells as one rank does, with a matrix that every rank gave as a whole and
/// with own rows of it.
pub fn ranks_decouple_as_one(device: &str) {
    let mut rng = Random(59);
    for (m, cells, ranks) in [(2, 18, 2), (3, 12, 3), (4, 9, 4)] {
        let (a, n) = (random_bsr(&mut rng, m, cells, cells, 4, true), m * cells);
        let (acc, x) = (csr_of(&given(&mut rng, n)), rng.numbers(n));
        let with = |problem: Problem<'static>, acc: Csr| {
            problem.with_fields(interleaved(m, cells))?.with_matrix("acc", acc)
        };
        let solver = |problem: Problem<'static>| {
            Solver::new(problem, &options(device, "cpr(p: jacobi; decouple=impes(acc)) then jacobi:block=1"))
        };
        let one = with(Problem::bsr(&a).unwrap().into_owned(), acc.clone()).unwrap();
        let mut want = vec![0.0; n];
        solver(one).unwrap().precondition(&x, &mut want).unwrap();
        for (what, partition) in super::distributed::partitions(cells, ranks) {
            let parts = split(&krylith_core::operator::Terms::bsr(&a), &partition).unwrap();
            for whole in [true, false] {
                let got = Team::run(ranks, |comm| {
                    let part = parts[comm.rank()].clone();
                    let own: Vec<usize> =
                        part.rows.iter().flat_map(|&i| i as usize * m..(i as usize + 1) * m).collect();
                    let acc = if whole { acc.clone() } else { rows_of(&acc, &own) };
                    let mut solver = solver(with(Problem::part(comm.clone(), part)?, acc)?)?;
                    let pick = |v: &[f64]| own.iter().map(|&i| v[i]).collect::<Vec<_>>();
                    let (mine, mut y) = (pick(&x), vec![f64::NAN; own.len()]);
                    solver.precondition(&mine, &mut y)?;
                    Ok(if own.is_empty() { 0.0 } else { distance(&y, &pick(&want)) })
                });
                let worst = got.unwrap_or_else(|e| panic!("{what}, {ranks}, whole: {whole}: {e}"));
                let worst = worst.into_iter().fold(0.0, f64::max);
                assert!(worst <= 1e-12, "{what}, {ranks} ranks, m={m}, whole: {whole}: {worst:e}");
            }
        }
    }
}

/// Returns these rows of a matrix.
fn rows_of(a: &Csr, rows: &[usize]) -> Csr {
    let entries = rows.iter().zip(0..).flat_map(|(&i, k)| {
        let (col, values) = a.row(i);
        col.iter().zip(values).map(move |(&j, &v)| (k, j, v)).collect::<Vec<_>>()
    });
    Csr::from_triplets(rows.len(), a.columns(), &entries.collect::<Vec<_>>()).unwrap()
}

/// Wrong fields, and matrices that cannot decouple.
pub fn wrong_names_are_told(device: &str) {
    super::fields::wrong_fields_are_named(device);
    wrong_matrices_are_named(device);
}

/// A matrix of the caller that cannot decouple is refused, with the cell and a remedy.
pub fn wrong_matrices_are_named(device: &str) {
    let a = Bsr::from_csr(&csr_of(&diagonal(12, |i| 1.0 + i as f64)), 3).unwrap();
    let refused = |acc: Option<&Mat>, precond: &str| {
        let given: Vec<(&str, &Mat)> = acc.into_iter().map(|acc| ("acc", acc)).collect();
        let matrices = given.into_iter().map(|(name, acc)| (name, csr_of(acc)));
        let problem = Problem::bsr(&a).unwrap().into_owned().with_fields(interleaved(3, 4));
        let problem = matrices.fold(problem, |problem, (name, acc)| problem?.with_matrix(name, acc));
        let made: Result<Solver> =
            problem.and_then(|problem| Solver::new(problem, &options(device, precond)));
        made.err().map(|e| e.to_string()).unwrap_or_default()
    };
    let precond = "cpr(p: jacobi; decouple=impes(acc))";
    let says = |text: String, words: &str| assert!(text.contains(words), "{text}");
    says(refused(None, precond), "no matrix has the name `acc`");
    says(
        refused(Some(&diagonal(11, |_| 1.0)), precond),
        "`acc` is 11×11; impes needs the size of the system, 12×12",
    );
    // Cell 2 has the unknowns 6, 7 and 8; only 7 and 8 must be decoupled.
    let without = |rows: &[usize]| diagonal(12, |i| if rows.contains(&i) { 0.0 } else { 1.0 });
    assert_eq!(refused(Some(&without(&[6])), precond), "");
    says(refused(Some(&without(&[7])), precond), "a singular block of the unknowns 7, 8 in cell 2; give");
    says(refused(Some(&without(&[7, 8])), precond), "no block of the unknowns 7, 8 in cell 2; give");
    says(refused(Some(&without(&[7, 8])), precond), "take decouple=quasi-impes");
}

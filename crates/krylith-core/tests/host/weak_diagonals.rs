//! Systems whose diagonal entries are zero: rows matched with columns, and direct factors.

use crate::common::times;
use crate::conformance::matched::{error, known, moved, rhs, rows_are_matched};
use krylith_core::comm::{Communicator, Team};
use krylith_core::matrix::{Csr, Dense, KroneckerSum};
use krylith_core::partition::{RowBlocks, Rows};
use krylith_core::solver::EventKind;
use krylith_core::{Error, Options, Outcome, Problem, Solver};

const UNKNOWNS: usize = 500;

fn options(text: &str) -> Options {
    format!("device=cpu threads=1 rtol=1e-10 {text}").parse().unwrap()
}

#[test]
fn matched_rows_have_factors() {
    let (a, twice) = (moved(UNKNOWNS, 1.0), moved(UNKNOWNS, 2.0));
    for (precision, most) in [("f64", 2), ("f32", 20)] {
        let wanted =
            options(&format!("method=bicgstab precond=ildu:cut=whole matching=on precision={precision}"));
        let mut solver = Solver::new(&a, &wanted).unwrap();
        let mut x = vec![0.0; UNKNOWNS];
        let solution = solver.solve(&rhs(&a), &mut x).unwrap();
        assert!(solution.converged() && solution.matched, "{precision}: {:?}", solution.outcome());
        // With matched rows the factors are those of a tridiagonal matrix: nothing is dropped.
        assert!(
            solution.history.iterations <= most,
            "{precision}: {} iterations",
            solution.history.iterations
        );
        assert!(error(&x) < 1e-7, "{precision}: {:e}", error(&x));
        solver.update_values(twice.values()).unwrap();
        x.fill(0.0);
        assert!(solver.solve(&rhs(&twice), &mut x).unwrap().converged(), "{precision}: new values");
        assert!(error(&x) < 1e-7, "{precision}, new values: {:e}", error(&x));
    }
    // The same without: nothing to divide by.
    let wanted = options("method=bicgstab precond=ildu:cut=whole matching=off max_iters=200");
    let mut x = vec![0.0; UNKNOWNS];
    let outcome = Solver::new(&a, &wanted).and_then(|mut s| Ok(s.solve(&rhs(&a), &mut x)?.outcome()));
    assert!(!matches!(outcome, Ok(Outcome::Converged)), "{outcome:?}");
}

#[test]
fn matched_rows_solve_on_this_machine() {
    rows_are_matched(&["cpu".into()]);
}

#[test]
fn auto_matches_rows_and_says_so() {
    // Direct factors do not begin with so few.
    let a = moved(90, 1.0);
    let mut x = vec![0.0; 90];
    let mut solver = Solver::new(&a, &options("")).unwrap();
    let solution = solver.solve(&rhs(&a), &mut x).unwrap();
    let said = |e: &krylith_core::solver::Event| {
        e.kind == EventKind::Choice && e.detail.contains("rows are matched")
    };
    assert!(solution.converged() && solution.matched && solution.events.iter().any(said));
    assert!(error(&x) < 1e-7, "{:e}", error(&x));
}

#[test]
fn matching_is_refused_where_it_is_not_done() {
    let diagonal = krylith_core::matrix::Bsr::from_csr(&moved(UNKNOWNS, 1.0), 1).unwrap();
    let k =
        KroneckerSum::new(Dense::identity(2), Dense::identity(2), 0.1, diagonal.clone(), diagonal).unwrap();
    let refused = Solver::new(&k, &options("precond=ildu matching=on")).map(|_| ());
    assert!(matches!(&refused, Err(Error::Unsupported(why)) if why.contains("matching=on")), "{refused:?}");
}

#[cfg(feature = "lu")]
#[test]
fn direct_factors_solve_at_once() {
    let a = moved(UNKNOWNS, 1.0);
    let mut x = vec![0.0; UNKNOWNS];
    let mut solver = Solver::new(&a, &options("precond=lu")).unwrap();
    let solution = solver.solve(&rhs(&a), &mut x).unwrap();
    assert!(solution.converged() && solution.history.iterations <= 2 && error(&x) < 1e-10);
    let refused = Solver::new(&a, &options("precond=lu:most=100")).map(|_| ());
    assert!(matches!(&refused, Err(Error::Memory { .. })), "{refused:?}");
}

/// Two fields on a line, one after the other, that couple in both directions. The unknowns of the second one
/// are `unit` times as large: its diagonal entries are tiny beside its couplings.
fn with_units(unit: f64) -> Csr {
    let n = UNKNOWNS / 2;
    let mut entries = Vec::new();
    for i in 0..n {
        let (u, t) = (i as u32, (n + i) as u32);
        for (j, v) in [(i.wrapping_sub(1), -1.0), (i, 3.0), (i + 1, -0.5)] {
            if j < n {
                entries.extend([(u, j as u32, v), (t, (n + j) as u32, v / unit)]);
            }
        }
        entries.extend([(u, t, 0.3 / unit), (t, u, 0.2)]);
    }
    Csr::from_triplets(UNKNOWNS, UNKNOWNS, &entries).unwrap()
}

#[test]
fn units_of_unknowns_make_no_weak_diagonals() {
    let precond = |unit: f64, ranks: usize| {
        let a = with_units(unit);
        let b = times(&a, &vec![1.0; UNKNOWNS]);
        let found = Team::run(ranks, |comm| {
            let own = dealt(&a, comm.rank(), ranks);
            let rhs: Vec<f64> = own.numbers.iter().map(|&i| b[i as usize]).collect();
            let mut x = vec![0.0; rhs.len()];
            let mut solver = Solver::new(Problem::distributed(comm, own)?, &options(""))?;
            let solution = solver.solve(&rhs, &mut x)?;
            assert!(solution.converged(), "{unit}: {:?}", solution.outcome());
            Ok((solution.diagnosis.weak_diagonal, solution.matched, solution.precond.name.clone()))
        });
        found.unwrap().swap_remove(0)
    };
    for ranks in [1, 3] {
        let ((weak, _, name), (many, matched, with)) = (precond(1.0, ranks), precond(1e6, ranks));
        assert_eq!((weak, many, matched), (0, UNKNOWNS / 2, false), "{ranks} ranks");
        assert_eq!(name, with, "{ranks} ranks");
    }
}

/// The rows of a matrix that are this rank's, dealt out one by one.
fn dealt(a: &Csr, rank: usize, ranks: usize) -> Rows {
    let numbers: Vec<u64> = (0..a.rows()).filter(|i| i * 7 % ranks == rank).map(|i| i as u64).collect();
    let own = RowBlocks::of_rows(a, &numbers);
    Rows { numbers, block: 1, terms: vec![(Dense::identity(1), own)] }
}

#[test]
fn ranks_find_the_matching_of_one() {
    let (a, twice) = (moved(UNKNOWNS, 1.0), moved(UNKNOWNS, 2.0));
    for (precond, same) in [("jacobi", true), ("ildu", false)] {
        let options = options(&format!("method=bicgstab precond={precond} matching=on"));
        let mut counts = Vec::new();
        for ranks in [1, 2, 3, 8] {
            let found = Team::run(ranks, |comm| {
                let own = dealt(&a, comm.rank(), ranks);
                let numbers = own.numbers.clone();
                let new = dealt(&twice, comm.rank(), ranks);
                let mut solver = Solver::new(Problem::distributed(comm, own)?, &options)?;
                let of_own =
                    |whole: &[f64]| -> Vec<f64> { numbers.iter().map(|&i| whole[i as usize]).collect() };
                let mut x = vec![0.0; numbers.len()];
                let solution = solver.solve(&of_own(&rhs(&a)), &mut x)?;
                let mut seen =
                    (solution.history.iterations, solution.converged() && solution.matched, x.clone());
                solver.update_values(&new.terms[0].1.values)?;
                x.fill(0.0);
                seen.1 &= solver.solve(&of_own(&rhs(&twice)), &mut x)?.converged();
                let worst = |x: &[f64]| {
                    x.iter().zip(&numbers).map(|(x, &i)| (x - known(i as usize)).abs()).fold(0.0, f64::max)
                };
                Ok((seen.0, seen.1, worst(&seen.2).max(worst(&x))))
            });
            for (rank, (iterations, converged, error)) in found.unwrap().into_iter().enumerate() {
                assert!(
                    converged && error < 1e-7,
                    "{precond}, rank {rank} of {ranks}: {iterations} iterations, {error:e}"
                );
                counts.push(iterations);
            }
        }
        // Jacobi is the same on any number of ranks; sums round differently.
        let [least, most] = [counts.iter().min(), counts.iter().max()].map(|n| *n.unwrap());
        assert!(!same || most - least <= 2, "{precond}: {counts:?} iterations");
    }
}

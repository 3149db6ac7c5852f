//! Stored zeros are dropped, and new values come at every place all the same.

use crate::common::{self, Mat, Random, written_out};
use krylith_core::comm::{Communicator, Team};
use krylith_core::matrix::{Bsr, Csr, Dense, KroneckerSum};
use krylith_core::operator::Terms;
use krylith_core::partition::{Partition, split};
use krylith_core::solver::EventKind;
use krylith_core::{Options, Problem, Solver};

/// Numbers in (−1, 1) from a seed.
fn random(seed: u64, i: usize) -> f64 {
    Random(seed.wrapping_mul(1 << 32).wrapping_add(i as u64)).number()
}

/// Diagonally dominant, with some twelve entries a row, of which about `share` off the diagonal are zero.
fn with_zeros(n: usize, share: f64, seed: u64) -> Csr {
    let mut entries = Vec::new();
    for i in 0..n {
        entries.push((i as u32, i as u32, 14.0 + random(seed, i)));
        for k in 0..12 {
            let at = 12 * i + k;
            let j = ((random(seed + 1, at) + 1.0) / 2.0 * n as f64) as usize;
            let zero = (random(seed + 2, at) + 1.0) / 2.0 < share;
            if j != i && !entries.iter().any(|e| (e.0, e.1) == (i as u32, j as u32)) {
                entries.push((i as u32, j as u32, if zero { 0.0 } else { random(seed + 3, at) }));
            }
        }
    }
    Csr::from_triplets(n, n, &entries).unwrap()
}

fn hold(solver: &mut Solver, a: &Mat, n: usize, what: &str) {
    let b: Vec<f64> = (0..n).map(|i| random(77, i)).collect();
    let mut x = vec![0.0; n];
    let solution = solver.solve(&b, &mut x).unwrap();
    assert!(solution.converged(), "{what}: {}", solution.outcome());
    let exact = common::solve(a, &b);
    let worst = x.iter().zip(&exact).map(|(x, e)| (x - e).abs()).fold(0.0, f64::max);
    assert!(worst < 1e-7, "{what}: off by {worst:e}");
}

fn said(solver: &Solver, words: &str) -> bool {
    solver.solution().events.iter().any(|e| e.kind == EventKind::Choice && e.detail.contains(words))
}

fn options(zeros: &str) -> Options {
    format!("device=cpu rtol=1e-11 zeros={zeros}").parse().unwrap()
}

#[test]
fn many_zeros_are_dropped_and_few_are_kept() {
    for (n, share) in [(33, 0.5), (200, 0.4), (200, 0.03), (1, 0.0)] {
        let a = with_zeros(n, share, 5);
        for zeros in ["auto", "keep", "drop"] {
            let mut solver = Solver::new(&a, &options(zeros)).unwrap();
            hold(&mut solver, &written_out(&a), n, &format!("{n} unknowns, {share} zeros, {zeros}"));
            let dropped = said(&solver, "stored zeros dropped");
            let expected = match zeros {
                "auto" => share > 0.1,
                "drop" => share > 0.0,
                _ => false,
            };
            assert_eq!(dropped, expected, "{n} unknowns, {share} zeros, {zeros}");
            let stored = solver.problem().terms().terms()[0].1.stored();
            assert_eq!(stored < a.nonzeros(), expected);
        }
    }
}

#[test]
fn new_values_come_at_all_places_and_mend_the_pattern_where_they_must() {
    let (n, share) = (120, 0.5);
    let mut a = with_zeros(n, share, 9);
    let mut solver = Solver::new(&a, &options("auto")).unwrap();
    hold(&mut solver, &written_out(&a), n, "first values");
    for round in 0..3 {
        a.values_mut().iter_mut().for_each(|v| *v *= 1.0 + 0.1 * round as f64);
        solver.update_values(a.values()).unwrap();
        hold(&mut solver, &written_out(&a), n, "the same zeros");
        assert!(said(&solver, "stored zeros dropped"));
    }
    // A number where a zero was dropped.
    let place = (0..a.nonzeros()).find(|&p| a.values()[p] == 0.0).unwrap();
    a.values_mut()[place] = 0.7;
    solver.update_values(a.values()).unwrap();
    hold(&mut solver, &written_out(&a), n, "a zero is none any more");
    assert!(said(&solver, "set up again") && !said(&solver, "stored zeros dropped"));
    a.values_mut()[place] = 0.0;
    solver.update_values(a.values()).unwrap();
    hold(&mut solver, &written_out(&a), n, "zero again");
    assert!(!said(&solver, "set up again"), "it is said once");
    let wrong = solver.update_values(&a.values()[1..]).unwrap_err().to_string();
    assert!(wrong.contains("new values for a matrix that stores"), "{wrong}");
}

#[test]
fn blocks_go_as_a_whole_and_scalars_of_blocks_find_their_places() {
    let (nodes, b) = (40, 3);
    let scalar = with_zeros(nodes, 0.5, 3);
    let mut entries = Vec::new();
    for i in 0..nodes {
        for p in scalar.row_ptr()[i]..scalar.row_ptr()[i + 1] {
            let (j, v) = (scalar.col()[p] as usize, scalar.values()[p]);
            for (r, c) in (0..b * b).map(|e| (e / b, e % b)) {
                let v = if r == c { v } else { 0.02 * v };
                entries.push(((i * b + r) as u32, (j * b + c) as u32, v));
            }
        }
    }
    let mut a = Csr::from_triplets(nodes * b, nodes * b, &entries).unwrap();
    let problem = Problem::csr_in_blocks(&a, Some(b)).unwrap();
    let mut solver = Solver::new(&problem, &options("auto")).unwrap();
    hold(&mut solver, &written_out(&a), nodes * b, "blocks");
    assert!(said(&solver, "blocks"));
    a.values_mut().iter_mut().for_each(|v| *v *= 0.5);
    solver.update_values(a.values()).unwrap();
    hold(&mut solver, &written_out(&a), nodes * b, "half of it");
    let place = (0..a.nonzeros()).find(|&p| a.values()[p] == 0.0).unwrap();
    a.values_mut()[place] = -0.3;
    solver.update_values(a.values()).unwrap();
    hold(&mut solver, &written_out(&a), nodes * b, "an entry of a block that was dropped");
}

#[test]
fn terms_of_one_pattern_keep_one() {
    let n = 60;
    let (m, l) = (with_zeros(n, 0.5, 21), with_zeros(n, 0.5, 21));
    let m = Bsr::from_csr(&m, 1).unwrap();
    let mut l = Bsr::from_csr(&l, 1).unwrap();
    // One of the places that are zero in M alone.
    let place = (0..l.blocks()).find(|&p| l.values()[p] == 0.0).unwrap();
    l.values_mut()[place] = 0.9;
    let stages = Dense::new(2, 2, vec![5.0 / 12.0, -1.0 / 12.0, 0.75, 0.25]).unwrap();
    let sum = KroneckerSum::new(Dense::identity(2), stages.clone(), 0.1, m.clone(), l.clone()).unwrap();
    let whole = |m: &Bsr, l: &Bsr, tau: f64| {
        let (m, l) = (written_out(&m.to_csr()), written_out(&l.to_csr()));
        let mut out = Mat::zeros(2 * n, 2 * n);
        for (i, j) in (0..n * n).map(|e| (e / n, e % n)) {
            for (k, q) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                let own = if k == q { m[(i, j)] } else { 0.0 };
                out[(2 * i + k, 2 * j + q)] = own + tau * stages[(k, q)] * l[(i, j)];
            }
        }
        out
    };
    let mut solver = Solver::new(&sum, &options("auto")).unwrap();
    hold(&mut solver, &whole(&m, &l, 0.1), 2 * n, "both terms");
    let terms = solver.problem().terms();
    assert!(said(&solver, "stored zeros dropped") && terms.shared_pattern());
    assert!(terms.terms()[0].1.stored() < m.stored());
    solver.set_tau(0.4).unwrap();
    hold(&mut solver, &whole(&m, &l, 0.4), 2 * n, "another τ");
    // M where both were zero: the whole comes back with the new τ.
    let mut changed = m.clone();
    let both = (0..m.blocks()).find(|&p| m.values()[p] == 0.0 && l.values()[p] == 0.0).unwrap();
    changed.values_mut()[both] = 0.8;
    solver.update_term(0, changed.values()).unwrap();
    hold(&mut solver, &whole(&changed, &l, 0.4), 2 * n, "the whole with the last τ");
}

/// M and L of one pattern on one rank, and of two on another: all of them drop the same zeros.
#[test]
fn ranks_agree_where_only_some_have_terms_of_one_pattern() {
    let (n, stages) = (90, Dense::new(2, 2, vec![5.0 / 12.0, -1.0 / 12.0, 0.75, 0.25]).unwrap());
    let m = with_zeros(n, 0.5, 61);
    let rows = |i: usize| m.row(i).0.iter().zip(m.row(i).1).map(move |(j, v)| (i as u32, *j, *v));
    let mut entries: Vec<_> = (0..n).flat_map(rows).collect();
    entries.extend([(80, 2, 0.0), (85, 3, 0.4)].iter().filter(|e| m.get(e.0 as usize, e.1 as usize) == 0.0));
    let l = Csr::from_triplets(n, n, &entries).unwrap();
    let [m, l] = [m, l].map(|a| Bsr::from_csr(&a, 1).unwrap());
    let sum = KroneckerSum::new(Dense::identity(2), stages, 0.1, m, l).unwrap();
    let b: Vec<f64> = (0..2 * n).map(|i| random(78, i)).collect();
    let mut alone = vec![0.0; 2 * n];
    assert!(Solver::new(&sum, &options("auto")).unwrap().solve(&b, &mut alone).unwrap().converged());
    let terms = Terms::kronecker(&sum);
    let parts = split(&terms, &Partition::by_rows(n, 3).unwrap()).unwrap();
    assert!(parts[0].terms.shared_pattern() && !parts[2].terms.shared_pattern());
    let solved = Team::run(3, |comm| {
        let part = parts[comm.rank()].clone();
        let rows = part.rows.clone();
        let own: Vec<f64> = rows.iter().flat_map(|&i| &b[2 * i as usize..][..2]).copied().collect();
        let mut x = vec![0.0; own.len()];
        let mut solver = Solver::new(Problem::part(comm, part)?, &options("auto"))?;
        assert!(solver.solve(&own, &mut x)?.converged());
        assert!(said(&solver, "stored zeros dropped"));
        Ok((rows, x))
    });
    for (rows, x) in solved.unwrap() {
        for (i, x) in rows.iter().zip(x.chunks_exact(2)) {
            let exact = &alone[2 * *i as usize..][..2];
            assert!(x.iter().zip(exact).all(|(x, e)| (x - e).abs() < 1e-8), "row {i}");
        }
    }
}

#[test]
fn ranks_drop_what_one_process_drops() {
    let n = 90;
    let a = with_zeros(n, 0.5, 41);
    let mut alone = Solver::new(&a, &options("auto")).unwrap();
    hold(&mut alone, &written_out(&a), n, "alone");
    let kept = alone.problem().terms().terms()[0].1.stored();
    for ranks in [2, 3, 5] {
        let counts = Team::run(ranks, |comm| {
            let rows = comm.rank() * n / ranks..(comm.rank() + 1) * n / ranks;
            let ptr: Vec<usize> =
                (rows.start..=rows.end).map(|i| a.row_ptr()[i] - a.row_ptr()[rows.start]).collect();
            let entries = a.row_ptr()[rows.start]..a.row_ptr()[rows.end];
            let (col, values) = (a.col()[entries.clone()].to_vec(), a.values()[entries].to_vec());
            let own = Csr::new(rows.len(), n, ptr, col, values)?;
            let problem = Problem::distributed_csr(comm.clone(), &own, Some(1))?;
            let mut solver = Solver::new(&problem, &options("auto"))?;
            let b: Vec<f64> = rows.clone().map(|i| random(77, i)).collect();
            let mut x = vec![0.0; rows.len()];
            assert!(solver.solve(&b, &mut x)?.converged());
            let stored = solver.problem().terms().terms()[0].1.stored();
            // All values are told again, and one that was dropped comes back on one rank alone.
            let mut values = own.values().to_vec();
            solver.update_values(&values)?;
            assert!(said(&solver, "stored zeros dropped"));
            if comm.rank() == 0 {
                let place = values.iter().position(|v| *v == 0.0).unwrap();
                values[place] = 0.6;
            }
            solver.update_values(&values)?;
            assert!(solver.solve(&b, &mut x)?.converged());
            assert!(said(&solver, "set up again"));
            Ok(stored)
        })
        .unwrap();
        assert_eq!(counts.iter().sum::<usize>(), kept, "{ranks} ranks");
    }
}

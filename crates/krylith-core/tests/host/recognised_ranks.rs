//! Coupled systems that `auto` recognises over ranks: each rank's fields against the generator's, and the
//! answer against the whole system.

use crate::recognised::{Coupled, darcy, elements, options, porous, residual, times, two_phases};
use krylith_core::comm::{Communicator, Team};
use krylith_core::matrix::Csr;
use krylith_core::operator::Terms;
use krylith_core::partition::{Partition, split};
use krylith_core::{Problem, Solver};

/// Shares the rows among ranks by breadth-first search, as a mesh is cut. Runs of `size` rows before `end`
/// stay together.
fn cut(a: &Csr, (size, end): (usize, usize), ranks: usize) -> Partition {
    let n = a.rows();
    let (mut order, mut met, mut next) = (Vec::with_capacity(n), vec![false; n], 0);
    for start in 0..n {
        if !std::mem::replace(&mut met[start], true) {
            order.push(start);
        }
        while next < order.len() {
            for &j in a.row(order[next]).0 {
                if !std::mem::replace(&mut met[j as usize], true) {
                    order.push(j as usize);
                }
            }
            next += 1;
        }
    }
    let mut owner = vec![0u32; n];
    order.iter().enumerate().for_each(|(k, &i)| owner[i] = (k * ranks / n) as u32);
    (0..end).for_each(|i| owner[i] = owner[i / size * size]);
    Partition::new(owner, ranks).unwrap()
}

/// Solves over ranks with the fields that the ranks find, which have to be those of the generator.
fn over_ranks(what: &str, system: &Coupled, runs: (usize, usize), names: &[&str], sizes: &[usize]) {
    let Coupled { a, pressures } = system;
    let wanted: Vec<f64> = (0..a.rows()).map(|i| (i as f64 * 0.31).sin()).collect();
    let b = times(a, &wanted);
    for &ranks in sizes {
        let parts = split(&Terms::csr(a).unwrap(), &cut(a, runs, ranks)).unwrap();
        let got = Team::run(ranks, |comm| {
            let part = parts[comm.rank()].clone();
            let own: Vec<usize> = part.rows.iter().map(|&i| i as usize).collect();
            let mut solver = Solver::new(Problem::part(comm.clone(), part)?, &options(""))?;
            let (mine, mut x): (Vec<f64>, _) = (own.iter().map(|&i| b[i]).collect(), vec![0.0; own.len()]);
            let solution = solver.solve(&mine, &mut x)?;
            let (done, iterations) = (solution.converged(), solution.history.iterations);
            let fields = solver.problem().fields();
            let found: Vec<String> = fields.iter().map(|field| field.name().into()).collect();
            let is_own = |p: &&u32| own.contains(&(**p as usize));
            let mut p: Vec<u32> = pressures.iter().filter(is_own).copied().collect();
            p.sort_unstable();
            let same = fields.iter().any(|field| field.name() == "p" && field.unknowns() == p);
            Ok((own, x, done, iterations, found, same))
        });
        let mut x = vec![f64::NAN; a.rows()];
        for (rank, (own, part, done, iterations, found, same)) in got.unwrap().into_iter().enumerate() {
            assert_eq!(found, names, "{what}, rank {rank} of {ranks}");
            assert!(
                same && done && iterations <= 200,
                "{what}, {rank} of {ranks}: {same}, {done}, {iterations}"
            );
            own.iter().zip(part).for_each(|(&i, v)| x[i] = v);
        }
        assert!(residual(a, &b, &x) <= 1.01e-8, "{what}, {ranks} ranks");
    }
}

#[test]
fn ranks_find_the_same_fields() {
    over_ranks("darcy", &darcy(12), (1, 0), &["u", "p"], &[2, 4]);
    let flow = elements(24, 1.0, true);
    let nodes = flow.pressures[0] as usize;
    over_ranks("elements", &flow, (2, nodes), &["u", "p"], &[2, 4]);
    let phases = two_phases(14);
    over_ranks("two phases", &phases, (2, phases.a.rows()), &["p", "s1"], &[2, 4]);
    let (porous, fluxes) = porous(12);
    over_ranks("porous", &porous, (3, fluxes[0] as usize), &["u", "w", "p"], &[2]);
}

#[test]
fn ranks_that_find_different_systems_use_no_fields() {
    // The second half of the rows is a diffusion.
    let Coupled { a, .. } = darcy(9);
    let n = a.rows() as u32;
    let row = |i: u32| a.row(i as usize).0.iter().zip(a.row(i as usize).1).map(move |(&j, &v)| (i, j, v));
    let path = (n..2 * n)
        .flat_map(|i| [(i, i, 2.5), (i, i.max(n + 1) - 1, -1.0), (i, (i + 1).min(2 * n - 1), -1.0)]);
    let entries: Vec<(u32, u32, f64)> = (0..n).flat_map(row).chain(path).collect();
    let a = Csr::from_triplets(2 * n as usize, 2 * n as usize, &entries).unwrap();
    let owner = (0..2 * n).map(|i| i / n).collect();
    let parts = split(&Terms::csr(&a).unwrap(), &Partition::new(owner, 2).unwrap()).unwrap();
    let fields = Team::run(2, |comm| {
        let part = parts[comm.rank()].clone();
        let solver = Solver::new(Problem::part(comm.clone(), part)?, &options(""))?;
        Ok(solver.problem().fields().len())
    });
    assert_eq!(fields.unwrap(), [0, 0]);
}

//! Coarse levels of several ranks where systems are less tame: blocks, stages, no symmetry, and a rank that fails.

use super::Make;
use super::distributed::{MakeShare, grid, partitions};
use super::multilevel::{diffusion, solved};
use crate::common::*;
use krylith::comm::{Communicator, Team};
use krylith::matrix::Csr;
use krylith::method::{Gmres, GmresOptions};
use krylith::operator::{PointBlock, TermValues, Terms};
use krylith::partition::split;
use krylith::precond::{Coarsen, CoarsenKind, Coarsening, Cycle, Multilevel, MultilevelOptions};
use krylith::{Outcome, Stop, Store};
use std::sync::Arc;

/// Two terms with blocks and stages, which are not symmetric: GMRES takes about as many iterations as on one rank, in every cycle.
pub fn ranks_share_levels_of_blocks<S: Coarsen>(sizes: &[usize], make: Make<S>, share: MakeShare<S>) {
    let ways = [
        (CoarsenKind::Classical, Cycle::V, 1),
        (CoarsenKind::Aggregation { smoothed: true }, Cycle::W, 2),
        (CoarsenKind::Aggregation { smoothed: false }, Cycle::K, 5),
    ];
    let mut rng = Random(81);
    for (b, s) in [(1, 2), (3, 1)] {
        let k = grid(b, s, 6);
        let (terms, rhs) = (Terms::kronecker(&k), rng.numbers(k.rows()));
        let (n, order) = (k.rows() / (b * s), b * s);
        for (kind, cycle, more) in ways {
            let how = MultilevelOptions {
                cycle,
                coarsening: Coarsening::of(kind),
                coarsest: 20 * order,
                gather: 60 * order,
                ..MultilevelOptions::default()
            };
            let options = GmresOptions { flexible: cycle == Cycle::K, ..GmresOptions::default() };
            let stop = Stop { rtol: 1e-8, max_iterations: 100, ..Stop::default() };
            let alone = {
                let space = make(k.rows());
                let a = PointBlock::new(&space, &terms, Store::F64, false).unwrap();
                let p = Multilevel::new(&space, &terms, how).unwrap();
                let mut gmres = Gmres::new(&space, options).unwrap();
                solved(&space, &a, &p, &mut gmres, stop.rtol, &rhs).1.iterations
            };
            for &ranks in sizes.iter().filter(|&&ranks| ranks > 1) {
                // Pairs are matched on each rank alone: scattered nodes find none.
                let matched = kind == CoarsenKind::Aggregation { smoothed: false };
                let taken = if matched { 1 } else { usize::MAX };
                for (what, partition) in partitions(n, ranks).into_iter().take(taken) {
                    let parts = split(&terms, &partition).unwrap();
                    let found = Team::run(ranks, |comm| {
                        let part = &parts[comm.rank()];
                        let comm: Arc<dyn Communicator> = comm;
                        let space = share(&comm, part.rows.len() * order)?;
                        let a = PointBlock::new(&space, &part.terms, Store::F64, false)?;
                        let p = Multilevel::new(&space, &part.terms, how)?;
                        let own = part.rows.iter().flat_map(|&i| &rhs[i as usize * order..][..order]);
                        let own: Vec<f64> = own.copied().collect();
                        let (mut b, mut x) = (space.vector()?, space.vector()?);
                        space.write(&own, &mut b)?;
                        let mut gmres = Gmres::new(&space, options)?;
                        let history = gmres.solve(&space, &a, Some(&p), &b, &mut x, &stop, &mut ())?.clone();
                        Ok((history, p.levels().len()))
                    });
                    let what = format!("b={b} s={s}, {kind:?}, {cycle:?}, {ranks} ranks, {what}");
                    for (history, levels) in found.unwrap() {
                        assert_eq!(history.outcome, Outcome::Converged, "{what}");
                        assert!(levels > 1, "{what}: {levels} levels");
                        let taken = history.iterations;
                        assert!(taken <= alone + more, "{what}: {taken} iterations, {alone} on one rank");
                    }
                }
            }
        }
    }
}

/// A row of zeros on one rank ends the set-up, or the refresh, on all ranks.
pub fn a_rank_that_fails_ends_all<S: Coarsen>(sizes: &[usize], share: MakeShare<S>) {
    let a = diffusion(9, 10.0);
    let row = a.rows() - 5;
    let mut values = a.values().to_vec();
    values[a.row_ptr()[row]..a.row_ptr()[row + 1]].fill(0.0);
    let broken = Csr::new(a.rows(), a.rows(), a.row_ptr().to_vec(), a.col().to_vec(), values).unwrap();
    let how = MultilevelOptions { coarsest: 60, gather: 150, ..MultilevelOptions::default() };
    for &ranks in sizes.iter().filter(|&&ranks| ranks > 1) {
        for (what, partition) in partitions(a.rows(), ranks) {
            let [good, bad] = [&a, &broken].map(|a| split(&Terms::csr(a).unwrap(), &partition).unwrap());
            let failed = Team::run(ranks, |comm| {
                let [good, bad] = [&good[comm.rank()], &bad[comm.rank()]];
                let comm: Arc<dyn Communicator> = comm;
                let space = share(&comm, good.rows.len())?;
                let made = Multilevel::new(&space, &bad.terms, how).is_err();
                let mut p = Multilevel::new(&space, &good.terms, how)?;
                let refreshed = p.update_values(&bad.terms, TermValues::from(&bad.terms)).is_err();
                Ok([made, refreshed])
            });
            for (rank, failed) in failed.unwrap().into_iter().enumerate() {
                assert_eq!(failed, [true; 2], "{ranks} ranks, {what}: rank {rank}");
            }
        }
    }
}

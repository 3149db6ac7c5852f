//! Algebraic multigrid over several ranks for harder systems: blocks, stages, no symmetry, and a rank that
//! fails.

use super::Make;
use super::applied;
use super::distributed::{MakeShare, grid, partitions};
use super::multilevel::{diffusion, solved};
use crate::common::*;
use krylith_core::comm::{Communicator, Team};
use krylith_core::matrix::{Bsr, Csr};
use krylith_core::method::{Cg, CgOptions, Gmres, GmresOptions};
use krylith_core::operator::{PointBlock, TermValues, Terms};
use krylith_core::partition::split;
use krylith_core::precond::{Border, Coarsen, CoarsenKind, Coarsening, Cycle, Multilevel, MultilevelOptions};
use krylith_core::{Outcome, Precision, Stop};
use std::sync::Arc;

/// The hierarchy of several ranks acts on the whole system, also if each rank coarsens its own nodes. Its
/// coarse systems are Pᵀ A P, it is symmetric and can be refreshed, and CG takes about as many iterations as
/// on one rank.
pub fn ranks_share_levels<S: Coarsen>(sizes: &[usize], make: Make<S>, share: MakeShare<S>) {
    let scalar = diffusion(11, 100.0);
    let blocks = {
        let small = diffusion(7, 100.0);
        let block = |v: f64| [2.0 * v, 0.1 * v, 0.0, 0.1 * v, v, 0.2 * v, 0.0, 0.2 * v, 3.0 * v];
        let values = small.values().iter().flat_map(|&v| block(v)).collect();
        let (n, row_ptr, col) = (small.rows(), small.row_ptr().to_vec(), small.col().to_vec());
        Bsr::new(3, n, n, row_ptr, col, values).unwrap()
    };
    let ways = [
        (CoarsenKind::Classical, Cycle::V, Border::Global),
        (CoarsenKind::Classical, Cycle::V, Border::Local),
        (CoarsenKind::Aggregation { smoothed: true }, Cycle::W, Border::Global),
        (CoarsenKind::Aggregation { smoothed: true }, Cycle::W, Border::Local),
        (CoarsenKind::Aggregation { smoothed: false }, Cycle::V, Border::Auto),
    ];
    for (name, whole) in [("scalars", Bsr::from_csr(&scalar, 1).unwrap()), ("blocks", blocks)] {
        let (n, b) = (whole.block_rows(), whole.block());
        let mut twice = whole.clone();
        twice.values_mut().iter_mut().for_each(|v| *v *= 2.0);
        let mut rng = Random(76);
        let [x, y] = [rng.numbers(n * b), rng.numbers(n * b)];
        for (kind, cycle, border) in ways {
            // Several levels are shared before one is gathered.
            let coarsening = Coarsening { border, ..Coarsening::of(kind) };
            let how = MultilevelOptions {
                coarsest: 60,
                gather: 150,
                cycle,
                coarsening,
                ..MultilevelOptions::default()
            };
            let coarse = MultilevelOptions { levels: 2, smooth_finest: false, gather: usize::MAX, ..how };
            let stop = Stop { rtol: 1e-8, max_iters: 300, ..Stop::default() };
            let (alone, nodes) = {
                let (space, terms) = (make(n * b), Terms::bsr(&whole));
                let a = PointBlock::new(&space, &terms, Precision::F64, false).unwrap();
                let p = Multilevel::new(&space, &terms, how).unwrap();
                let mut cg = Cg::new(&space, CgOptions::default()).unwrap();
                let history = solved(&space, &a, &p, &mut cg, stop.rtol, &x).1;
                (history.iterations, p.levels()[1].nodes())
            };
            for &ranks in sizes.iter().filter(|&&ranks| ranks > 1) {
                for (what, partition) in partitions(n, ranks) {
                    let both = [&whole, &twice].map(|a| split(&Terms::bsr(a), &partition).unwrap());
                    let found = Team::run(ranks, |comm| {
                        let rank = comm.rank();
                        let comm: Arc<dyn Communicator> = comm;
                        let [part, next] = [&both[0][rank], &both[1][rank]];
                        let space = share(&comm, part.rows.len() * b)?;
                        let a = PointBlock::new(&space, &part.terms, Precision::F64, false)?;
                        let own = |x: &[f64]| -> Vec<f64> {
                            part.rows.iter().flat_map(|&i| &x[i as usize * b..][..b]).copied().collect()
                        };
                        let [x, y] = [own(&x), own(&y)];
                        let mut p = Multilevel::new(&space, &part.terms, how)?;
                        let [px, py] = [applied(&space, &p, &x), applied(&space, &p, &y)];
                        let (mut rhs, mut solution) = (space.vector()?, space.vector()?);
                        space.write(&x, &mut rhs)?;
                        let mut cg = Cg::new(&space, CgOptions::default())?;
                        let history =
                            cg.solve(&space, &a, Some(&p), &rhs, &mut solution, &stop, &mut ())?.clone();
                        p.update_values(&next.terms, TermValues::from(&next.terms))?;
                        let again = applied(&space, &p, &x);
                        // Where A_c = R A P is solved exactly, P A_c⁻¹ R A is a projection.
                        let mut c = Multilevel::new(&space, &part.terms, coarse)?;
                        let projected = applied(&space, &c, &x);
                        let same = applied(&space, &c, &applied(&space, &a, &projected));
                        c.update_values(&next.terms, TermValues::from(&next.terms))?;
                        let half = applied(&space, &c, &x);
                        let dots = |pairs: &[(&[f64], &[f64])]| -> krylith_core::Result<Vec<f64>> {
                            let mut sums: Vec<f64> = pairs.iter().map(|(x, y)| dot(x, y)).collect();
                            comm.sum(&mut sums)?;
                            Ok(sums)
                        };
                        let off = |x: &[f64], y: &[f64], factor: f64| -> Vec<f64> {
                            x.iter().zip(y).map(|(x, y)| x - factor * y).collect()
                        };
                        let sums = dots(&[(&x, &py), (&y, &px), (&px, &px), (&projected, &projected)])?;
                        let errors =
                            [off(&again, &px, 0.5), off(&same, &projected, 1.0), off(&half, &projected, 0.5)];
                        let errors = dots(&errors.each_ref().map(|e| (&e[..], &e[..])))?;
                        Ok((sums, errors, history, c.levels().get(1).map(|level| level.nodes())))
                    });
                    // Node numbers equal those of one rank if ranks have contiguous rows in order.
                    let rows: Vec<u64> = both[0].iter().flat_map(|part| part.rows.iter().copied()).collect();
                    let in_order = rows.is_sorted();
                    let as_one = kind == CoarsenKind::Classical && border == Border::Global;
                    let what =
                        format!("{name}, {kind:?}, {cycle:?}, {border:?} border, {ranks} ranks, {what}");
                    for (sums, errors, history, found) in found.unwrap() {
                        let [one, two, px, projected] = sums[..] else { unreachable!() };
                        assert!((one - two).abs() <= 1e-10 * one.abs(), "{what}: {one} and {two}");
                        assert!(found.is_some() || !as_one, "{what}: there is no coarser level");
                        let by_rank = border != Border::Global; // as pairs always are
                        let alike = found == Some(nodes) || by_rank || !in_order;
                        assert!(alike, "{what}: {found:?} nodes, not {nodes}");
                        assert!(errors[0].sqrt() <= 1e-10 * px.sqrt(), "{what}, new values: {errors:?}");
                        let exact = errors[1].sqrt() <= 1e-8 * projected.sqrt() || found.is_none();
                        assert!(exact, "{what}, projection: {errors:?}");
                        assert!(
                            errors[2].sqrt() <= 1e-10 * projected.sqrt(),
                            "{what}, refreshed: {errors:?}"
                        );
                        assert_eq!(history.outcome, Outcome::Converged, "{what}");
                        let (taken, more) = (history.iterations, if as_one { 1 } else { 5 });
                        let same = taken <= alone + more || !(as_one || in_order);
                        assert!(same, "{what}: {taken} iterations, {alone} on one rank");
                    }
                }
            }
        }
    }
}

/// Two terms with blocks and stages, not symmetric: GMRES takes about as many iterations as on one rank, in
/// every cycle.
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
            let stop = Stop { rtol: 1e-8, max_iters: 100, ..Stop::default() };
            let alone = {
                let space = make(k.rows());
                let a = PointBlock::new(&space, &terms, Precision::F64, false).unwrap();
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
                        let a = PointBlock::new(&space, &part.terms, Precision::F64, false)?;
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

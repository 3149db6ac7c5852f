//! Coarse levels from near-null vectors over several ranks: elasticity with its rigid modes.

use super::distributed::{MakeShare, partitions};
use super::near_null::{options, truss};
use super::{Make, applied};
use crate::common::*;
use krylith_core::comm::{Communicator, Team};
use krylith_core::method::{Cg, CgOptions};
use krylith_core::operator::{PointBlock, TermValues, Terms};
use krylith_core::partition::split;
use krylith_core::precond::{Coarsen, Multilevel, MultilevelOptions, NearNull};
use krylith_core::{Outcome, Precision, Problem, Stop};
use std::sync::Arc;

/// All ranks share one hierarchy: the range of P contains the rigid modes on every rank, coarse systems are
/// Pᵀ A P, cycles are symmetric and can be refreshed, and CG takes about as many iterations as on one rank.
pub fn ranks_share_near_null_levels<S: Coarsen>(sizes: &[usize], make: Make<S>, share: MakeShare<S>) {
    let mut rng = Random(98);
    let (a, points) = truss([14, 6, 6], 1.0);
    let n = a.block_rows();
    let modes = Problem::bsr(&a).unwrap().with_coordinates(&points).unwrap().rigid_modes().unwrap();
    let near = NearNull::new(&modes).unwrap();
    let mut twice = a.clone();
    twice.values_mut().iter_mut().for_each(|v| *v *= 2.0);
    let [x, y] = [rng.numbers(3 * n), rng.numbers(3 * n)];
    let mode = &modes[4]; // a rotation
    for (smoothed, more) in [(true, 4), (false, 8)] {
        // Several levels are shared before one is gathered.
        let how = MultilevelOptions { coarsest: 60, gather: 200, ..options(smoothed) };
        let coarse = MultilevelOptions { levels: 2, smooth_finest: false, gather: usize::MAX, ..how };
        let stop = Stop { rtol: 1e-8, max_iters: 300, ..Stop::default() };
        let (alone, lost) = {
            let (space, terms) = (make(3 * n), Terms::bsr(&a));
            let operator = PointBlock::new(&space, &terms, Precision::F64, false).unwrap();
            let p = Multilevel::with_near_null(&space, &terms, how, near.clone()).unwrap();
            let mut cg = Cg::new(&space, CgOptions::default()).unwrap();
            let history = super::multilevel::solved(&space, &operator, &p, &mut cg, stop.rtol, &x).1;
            let c = Multilevel::with_near_null(&space, &terms, coarse, near.clone()).unwrap();
            let kept = applied(&space, &c, &applied(&space, &operator, mode));
            (history.iterations, distance(&kept, mode))
        };
        for &ranks in sizes.iter().filter(|&&ranks| ranks > 1) {
            for (what, partition) in partitions(n, ranks) {
                let both = [&a, &twice].map(|a| split(&Terms::bsr(a), &partition).unwrap());
                let found = Team::run(ranks, |comm| {
                    let rank = comm.rank();
                    let comm: Arc<dyn Communicator> = comm;
                    let [part, next] = [&both[0][rank], &both[1][rank]];
                    let space = share(&comm, part.rows.len() * 3)?;
                    let operator = PointBlock::new(&space, &part.terms, Precision::F64, false)?;
                    let own = |x: &[f64]| -> Vec<f64> {
                        part.rows.iter().flat_map(|&i| &x[i as usize * 3..][..3]).copied().collect()
                    };
                    let near = NearNull::new(&modes.iter().map(|mode| own(mode)).collect::<Vec<_>>())?;
                    let [x, y, mode] = [own(&x), own(&y), own(mode)];
                    let mut p = Multilevel::with_near_null(&space, &part.terms, how, near.clone())?;
                    let [px, py] = [applied(&space, &p, &x), applied(&space, &p, &y)];
                    let (mut rhs, mut solution) = (space.vector()?, space.vector()?);
                    space.write(&x, &mut rhs)?;
                    let mut cg = Cg::new(&space, CgOptions::default())?;
                    let history =
                        cg.solve(&space, &operator, Some(&p), &rhs, &mut solution, &stop, &mut ())?.clone();
                    p.update_values(&next.terms, TermValues::from(&next.terms))?;
                    let again = applied(&space, &p, &x);
                    // Where A_c = R A P is solved exactly, P A_c⁻¹ R A keeps everything in the range of P.
                    let mut c = Multilevel::with_near_null(&space, &part.terms, coarse, near)?;
                    let kept = applied(&space, &c, &applied(&space, &operator, &mode));
                    let projected = applied(&space, &c, &x);
                    let same = applied(&space, &c, &applied(&space, &operator, &projected));
                    c.update_values(&next.terms, TermValues::from(&next.terms))?;
                    let half = applied(&space, &c, &x);
                    let off = |x: &[f64], y: &[f64], factor: f64| -> Vec<f64> {
                        x.iter().zip(y).map(|(x, y)| x - factor * y).collect()
                    };
                    let square = |x: Vec<f64>| dot(&x, &x);
                    let mut sums = [
                        dot(&x, &py),
                        dot(&y, &px),
                        square(off(&again, &px, 0.5)) / square(px.clone()).max(1e-300),
                        square(off(&kept, &mode, 1.0)),
                        square(mode.clone()),
                        square(off(&same, &projected, 1.0)),
                        square(off(&half, &projected, 0.5)),
                        square(projected.clone()),
                    ];
                    comm.sum(&mut sums)?;
                    let levels = p.levels().iter().filter(|level| level.terms().halo().is_some()).count();
                    Ok((sums, history, levels, p.levels().len()))
                });
                let what = format!("smoothed {smoothed}, {ranks} ranks, {what}");
                for (sums, history, shared, levels) in found.unwrap() {
                    let [one, two, again, kept, mode, same, half, projected] = sums;
                    assert!((one - two).abs() <= 1e-10 * one.abs(), "{what}: {one} and {two}");
                    assert!(levels > 1 && shared >= 1, "{what}: {shared} of {levels} levels are shared");
                    assert!(again <= 1e-20, "{what}, new values: {again:e}");
                    // Clamped nodes are not part of the rotation, so a smoothed P loses some of it there.
                    let kept = (kept / mode).sqrt();
                    assert!(kept <= 1.1 * lost + 1e-8, "{what}, a rotation: {kept:e}, {lost:e} on one rank");
                    assert!(same <= 1e-16 * projected, "{what}, projection: {same:e}");
                    assert!(half <= 1e-16 * projected, "{what}, refreshed: {half:e}");
                    assert_eq!(history.outcome, Outcome::Converged, "{what}");
                    let taken = history.iterations;
                    let few = taken <= alone + more || !what.ends_with("contiguous");
                    assert!(few, "{what}: {taken} iterations, {alone} on one rank");
                }
            }
        }
    }
}

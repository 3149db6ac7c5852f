//! Approximate ideal restriction: cycles against dense algebra, iterations for upwinded flow, and several
//! ranks.

use super::distributed::MakeShare;
use super::multilevel::{options, solved};
use super::{Make, applied};
use crate::common::*;
use krylith_core::comm::{Communicator, Team};
use krylith_core::matrix::{Bsr, Csr};
use krylith_core::method::{Gmres, GmresOptions};
use krylith_core::operator::{PointBlock, TermValues, Terms};
use krylith_core::partition::{Partition, split};
use krylith_core::precond::{
    Border, Coarsen, CoarsenKind, Coarsening, Multilevel, MultilevelOptions, Smoothing,
};
use krylith_core::{Outcome, Precision};
use std::sync::Arc;

/// Upwind finite volumes on `side`³ cells, with an oblique wind and diffusion `nu` per cell. Nothing is
/// stored against the wind if `nu` is 0.
pub fn upwind(side: usize, nu: f64) -> Csr {
    let wind = [6.0 / 7.0, 3.0 / 7.0, 2.0 / 7.0];
    let n = side * side * side;
    let mut triplets = Vec::new();
    for i in 0..n {
        let at = [i % side, i / side % side, i / side / side];
        let mut diagonal = 0.0;
        for (axis, step) in [(0, 1), (1, side), (2, side * side)] {
            if at[axis] > 0 {
                triplets.push((i as u32, (i - step) as u32, -wind[axis] - nu));
            }
            if at[axis] + 1 < side && nu > 0.0 {
                triplets.push((i as u32, (i + step) as u32, -nu));
            }
            diagonal += wind[axis] + 2.0 * nu;
        }
        triplets.push((i as u32, i as u32, diagonal));
    }
    Csr::from_triplets(n, n, &triplets).unwrap()
}

/// Default options for this way to coarsen, with small levels.
fn small(distance: usize) -> MultilevelOptions {
    let smoothing = Smoothing::Ffc { sweeps: 1 };
    MultilevelOptions { smoothing, coarsest: 20, ..options(CoarsenKind::Air { distance }) }
}

/// A scalar matrix in dense form.
fn whole(a: &Bsr) -> Mat {
    let mut out = Mat::zeros(a.rows(), a.columns());
    for i in 0..a.rows() {
        (a.row_ptr()[i]..a.row_ptr()[i + 1]).for_each(|e| out[(i, a.col()[e] as usize)] = a.values()[e]);
    }
    out
}

/// The cycle from the definition, with P, R and the coarse operators of the hierarchy.
fn cycle<S: Coarsen>(p: &Multilevel<S>, k: usize, b: &[f64]) -> Vec<f64> {
    let level = &p.levels()[k];
    let a = whole(&level.terms().terms()[0].1);
    let Some(t) = level.transfer() else { return solve(&a, b) };
    let coarse = cycle(p, k + 1, &multiply(&whole(&t.restriction), b));
    let mut x = multiply(&whole(&t.prolongation), &coarse);
    for relaxed in [false, false, true] {
        let r = minus(b, &multiply(&a, &x));
        for i in (0..b.len()).filter(|&i| t.coarse[i] == relaxed) {
            x[i] += r[i] / a[(i, i)];
        }
    }
    x
}

/// Cycles against dense algebra, coarse operators R A P without filter, and a hierarchy with new values,
/// which equals a new one.
pub fn air_cycles_match_dense_algebra<S: Coarsen>(make: Make<S>) {
    let mut rng = Random(81);
    for (nu, reach) in [(0.0, 1), (0.0, 2), (0.03, 2), (2.0, 1)] {
        let what = format!("diffusion {nu}, distance {reach}");
        let mut a = Bsr::from_csr(&upwind(6, nu), 1).unwrap();
        let (space, how) = (make(a.rows()), small(reach));
        let x = rng.numbers(a.rows());
        let plain = MultilevelOptions { coarsening: Coarsening { filter: 0.0, ..how.coarsening }, ..how };
        let p = Multilevel::new(&space, &Terms::bsr(&a), plain).unwrap();
        assert!(p.levels().len() > 2, "{what}: {} levels", p.levels().len());
        for pair in p.levels().windows(2) {
            let [fine, coarse] = [&pair[0], &pair[1]].map(|level| whole(&level.terms().terms()[0].1));
            let t = pair[0].transfer().unwrap();
            let rap = product(&whole(&t.restriction), &product(&fine, &whole(&t.prolongation)));
            let off = |e: usize| {
                let (i, j) = (e / rap.ncols(), e % rap.ncols());
                (rap[(i, j)] - coarse[(i, j)]).abs()
            };
            assert!((0..rap.nrows() * rap.ncols()).all(|e| off(e) < 1e-12), "{what}");
        }
        let mut p = Multilevel::new(&space, &Terms::bsr(&a), how).unwrap();
        for round in 0..3 {
            let d = distance(&applied(&space, &p, &x), &cycle(&p, 0, &x));
            assert!(d <= 1e-10, "{what}, round {round}: {d:e}");
            a.values_mut().iter_mut().for_each(|v| *v *= 1.0 + 0.2 * rng.number());
            let terms = Terms::bsr(&a);
            p.update_values(&terms, TermValues::from(&terms)).unwrap();
            let fresh = Multilevel::new(&space, &terms, how).unwrap();
            assert_eq!(applied(&space, &p, &x), applied(&space, &fresh, &x), "{what}, round {round}");
        }
    }
}

/// Iterations of GMRES to 1e-8 for upwinded flow, which hardly depend on grid and diffusion.
pub fn air_solves_upwinded_flow<S: Coarsen>(make: Make<S>) {
    for nu in [0.0, 1e-4, 1e-2, 0.3] {
        let found = [16, 28].map(|side| {
            let a = upwind(side, nu);
            let (terms, space) = (Terms::csr(&a).unwrap(), make(a.rows()));
            let operator = PointBlock::new(&space, &terms, Precision::F64, false).unwrap();
            let how = MultilevelOptions { coarsest: MultilevelOptions::COARSEST, ..small(2) };
            let p = Multilevel::new(&space, &terms, how).unwrap();
            assert!(p.operator_complexity() < 3.0, "diffusion {nu}: {}", p.operator_complexity());
            assert!(!p.is_symmetric());
            let mut gmres = Gmres::new(&space, GmresOptions::default()).unwrap();
            let b = vec![1.0; a.rows()];
            let (x, history) = solved(&space, &operator, &p, &mut gmres, 1e-8, &b);
            assert_eq!(history.outcome, Outcome::Converged, "diffusion {nu}");
            assert!(distance(&times(&a, &x), &b) <= 1.01e-8, "diffusion {nu}");
            history.iterations
        });
        assert!(found[0] <= 15 && found[1] <= 17, "diffusion {nu}: {found:?} iterations");
    }
}

/// Several ranks have the hierarchy of one rank, also where a pattern has one direction only.
pub fn ranks_share_air<S: Coarsen>(sizes: &[usize], make: Make<S>, share: MakeShare<S>) {
    for nu in [0.0, 0.02] {
        let a = Bsr::from_csr(&upwind(9, nu), 1).unwrap();
        let (n, mut rng) = (a.rows(), Random(82));
        let x = rng.numbers(n);
        // Several levels are shared before one is gathered.
        let how = MultilevelOptions { gather: 100, ..small(2) };
        let (alone, nodes) = {
            let space = make(n);
            let p = Multilevel::new(&space, &Terms::bsr(&a), how).unwrap();
            let nodes: Vec<usize> = p.levels().iter().map(|level| level.nodes()).collect();
            (applied(&space, &p, &x), nodes)
        };
        for &ranks in sizes.iter().filter(|&&ranks| ranks > 1) {
            let owner = |i: usize| (i * ranks / n) as u32;
            let partition = Partition::new((0..n).map(owner).collect(), ranks).unwrap();
            let parts = split(&Terms::bsr(&a), &partition).unwrap();
            let found = Team::run(ranks, |comm| {
                let rank = comm.rank();
                let comm: Arc<dyn Communicator> = comm;
                let part = &parts[rank];
                let space = share(&comm, part.rows.len())?;
                let own: Vec<f64> = part.rows.iter().map(|&i| x[i as usize]).collect();
                let mut p = Multilevel::new(&space, &part.terms, how)?;
                let first = applied(&space, &p, &own);
                p.update_values(&part.terms, TermValues::from(&part.terms))?;
                assert_eq!(applied(&space, &p, &own), first, "diffusion {nu}, {ranks} ranks: refreshed");
                let mut counts: Vec<f64> = p
                    .levels()
                    .iter()
                    .map(|level| match level.terms().halo() {
                        None if rank > 0 => 0.0,
                        _ => level.nodes() as f64,
                    })
                    .collect();
                comm.sum(&mut counts)?;
                let border = Border::Local;
                let local = MultilevelOptions { coarsening: Coarsening { border, ..how.coarsening }, ..how };
                let said = Multilevel::new(&space, &part.terms, local).err().unwrap().to_string();
                assert!(said.contains("leave out border=local"), "{said}");
                Ok((first, counts))
            });
            let what = format!("diffusion {nu}, {ranks} ranks");
            let found = found.unwrap();
            let counts: Vec<usize> = found[0].1.iter().map(|&n| n as usize).collect();
            assert_eq!(counts, nodes, "{what}");
            let all: Vec<f64> = found.into_iter().flat_map(|(own, _)| own).collect();
            let d = distance(&all, &alone);
            assert!(d <= 1e-10, "{what}: {d:e}");
        }
    }
}

//! Coarse levels from near-null vectors: elasticity with its rigid modes.

use super::{Make, applied};
use crate::common::*;
use krylith_core::device::cpu::Cpu;
use krylith_core::matrix::{Bsr, Csr};
use krylith_core::method::{Cg, CgForm, CgOptions};
use krylith_core::operator::{PointBlock, TermValues, Terms};
use krylith_core::precond::{
    Coarsen, CoarsenKind, Coarsening, Cycle, Multilevel, MultilevelOptions, NearNull, Smoothing,
};
use krylith_core::{Outcome, Precision, Stop};
use krylith_core::{Problem, Solver};

/// A truss of `nodes`, clamped at x = 0: nodes joined by springs along the edges and the face diagonals, so
/// that rigid motions need no energy. Springs along x are `stiff` times as stiff.
pub fn truss(nodes: [usize; 3], stiff: f64) -> (Bsr, Vec<[f64; 3]>) {
    let [nx, ny, nz] = nodes;
    let n = nx * ny * nz;
    let at = |i: usize| [i % nx, i / nx % ny, i / nx / ny];
    let mut rows: Vec<Vec<(usize, [f64; 9])>> = vec![Vec::new(); n];
    for (i, row) in rows.iter_mut().enumerate() {
        let p = at(i);
        let mut own = [0.0; 9];
        for step in 0..27usize {
            let d = [step % 3, step / 3 % 3, step / 9].map(|d| d as isize - 1);
            let length: isize = d.iter().map(|d| d * d).sum();
            let q = [0, 1, 2].map(|c| p[c] as isize + d[c]);
            if !(1..=2).contains(&length) || (0..3).any(|c| q[c] < 0 || q[c] >= nodes[c] as isize) {
                continue;
            }
            let j = q[0] as usize + nx * (q[1] as usize + ny * q[2] as usize);
            let k = if d[0] != 0 { stiff } else { 1.0 } / length as f64;
            let block = |e: usize| k * (d[e / 3] * d[e % 3]) as f64;
            (0..9).for_each(|e| own[e] += block(e));
            if p[0] > 0 && q[0] > 0 {
                row.push((j, std::array::from_fn(|e| -block(e))));
            }
        }
        row.push((i, own));
        row.sort_by_key(|entry| entry.0);
    }
    let mut row_ptr = vec![0];
    rows.iter().for_each(|row| row_ptr.push(row_ptr[row_ptr.len() - 1] + row.len()));
    let col = rows.iter().flatten().map(|(j, _)| *j as u32).collect();
    let values = rows.iter().flatten().flat_map(|(_, block)| *block).collect();
    let points = (0..n).map(|i| at(i).map(|c| c as f64)).collect();
    (Bsr::new(3, n, n, row_ptr, col, values).unwrap(), points)
}

pub fn modes(a: &Bsr, points: &[[f64; 3]]) -> NearNull {
    let problem = Problem::bsr(a).unwrap().with_coordinates(points).unwrap();
    NearNull::new(&problem.rigid_modes().unwrap()).unwrap()
}

/// A solver with rigid modes made from coordinates takes the iterations of one that is given their numbers,
/// to the same x up to rounding.
pub fn rigid_modes_from_coordinates(device: &str) {
    let (a, points) = truss([12, 6, 5], 1.0);
    let problem = Problem::bsr(&a).unwrap().with_coordinates(&points[..]).unwrap();
    let given = problem.clone().with_near_null_vectors(problem.rigid_modes().unwrap()).unwrap();
    let [one, two] = [problem.with_rigid_modes().unwrap(), given].map(|problem| {
        let options = format!("precond=amg:coarsest=60 device={device} rtol=1e-9").parse().unwrap();
        let mut x = vec![0.0; a.rows()];
        let mut solver = Solver::new(&problem, &options).unwrap();
        let solution = solver.solve(&vec![1.0; a.rows()], &mut x).unwrap();
        assert!(solution.converged());
        (solution.history.iterations, x)
    });
    assert_eq!(one.0, two.0);
    assert!(distance(&one.1, &two.1) <= 1e-11);
    assert!(one.0 <= 30, "{} iterations", one.0);
}

pub fn options(smoothed: bool) -> MultilevelOptions {
    let coarsening = Coarsening { strength: 0.02, ..Coarsening::of(CoarsenKind::Aggregation { smoothed }) };
    MultilevelOptions { cycle: Cycle::W, coarsening, ..MultilevelOptions::default() }
}

/// Level blocks have the size of the number of vectors; A_c = R A P, checked by products with unit vectors;
/// two levels correct what R restricts; cycles are symmetric and definite.
pub fn near_null_vectors_make_blocks<S: Coarsen>(make: Make<S>) {
    let mut rng = Random(95);
    let (a, points) = truss([9, 5, 4], 1.0);
    let (terms, space) = (Terms::bsr(&a), make(a.rows()));
    let rigid = modes(&a, &points);
    let two = NearNull::new(&[rng.numbers(a.rows()), rng.numbers(a.rows())]).unwrap();
    for (near, smoothed) in [(&rigid, true), (&rigid, false), (&two, true)] {
        let how = MultilevelOptions { coarsest: 60, ..options(smoothed) };
        let p = Multilevel::with_near_null(&space, &terms, how, near.clone()).unwrap();
        let (k, levels) = (near.count(), p.levels());
        assert!(levels.len() >= 2 && levels[1..].iter().all(|level| level.terms().block() == k));
        let (fine, coarse) = (&levels[0].terms().terms()[0].1, &levels[1].terms().terms()[0].1);
        let transfer = levels[0].transfer().unwrap();
        let filled = (0..coarse.rows()).filter(|i| {
            let (i, at) = (i / k, i % k);
            let block = coarse.diagonal_block(i).unwrap();
            (0..k).all(|c| (block[at * k + c] != 0.0) == (c == at))
        });
        let filled: Vec<usize> = filled.collect();
        for column in (0..coarse.rows()).step_by(7).filter(|column| !filled.contains(column)) {
            let mut unit = vec![0.0; coarse.rows()];
            unit[column] = 1.0;
            let wanted = times_blocks(
                &transfer.restriction,
                &times_blocks(fine, &times_blocks(&transfer.prolongation, &unit)),
            );
            let found = times_blocks(coarse, &unit);
            assert!(distance(&found, &wanted) <= 1e-12, "{k}, column {column}");
        }
        let (u, v) = (rng.numbers(a.rows()), rng.numbers(a.rows()));
        let (mu, mv) = (applied(&space, &p, &u), applied(&space, &p, &v));
        let difference = (dot(&u, &mv) - dot(&v, &mu)).abs() / (norm(&u) * norm(&mv));
        assert!(difference <= 1e-11 && dot(&u, &mu) > 0.0, "{k}: {difference:e}");
        // Two levels alone: what is corrected is seen no more.
        let part = MultilevelOptions { smooth_finest: false, levels: 2, ..how };
        let p = Multilevel::with_near_null(&space, &terms, part, near.clone()).unwrap();
        assert!(p.levels()[1].is_direct());
        let ax = times_blocks(&a, &applied(&space, &p, &u));
        let restriction = &p.levels()[0].transfer().unwrap().restriction;
        let d = distance(&times_blocks(restriction, &ax), &times_blocks(restriction, &u));
        assert!(d <= 1e-9, "{k}: {d:e}");
    }
    let refused = |near: NearNull, how| Multilevel::with_near_null(&space, &terms, how, near).err().unwrap();
    let short = NearNull::new(&[vec![1.0; 5]]).unwrap();
    assert!(
        refused(short, options(true))
            .to_string()
            .contains("near-null vectors have 5 numbers, but the system has 540 rows")
    );
    let classical = MultilevelOptions::default();
    assert!(
        refused(two, classical).to_string().contains("coarsen=classical does not accept near-null vectors")
    );
}

/// P, R and A_c of every level have the patterns of the host's, and their numbers up to rounding: for rigid
/// modes, for blocks that squares of 1 divide, for one vector and for as many vectors as components.
pub fn near_null_levels_are_those_of_the_host<S: Coarsen>(make: Make<S>) {
    let mut rng = Random(97);
    let (a, points) = truss([11, 7, 6], 1.0);
    let scalar: Csr = super::multilevel::diffusion(12, 10.0);
    let scalar = Bsr::from_csr(&scalar, 1).unwrap();
    let blocks = scalar.values().iter().flat_map(|v| [2.0, 0.5, 0.5, 1.0].map(|c| c * v)).collect();
    let n = scalar.block_rows();
    let pairs = Bsr::new(2, n, n, scalar.row_ptr().to_vec(), scalar.col().to_vec(), blocks).unwrap();
    let mut vectors = |a: &Bsr, k: usize| {
        NearNull::new(&(0..k).map(|_| rng.numbers(a.rows())).collect::<Vec<_>>()).unwrap()
    };
    let systems = [
        (&a, modes(&a, &points)),
        (&a, vectors(&a, 3)),
        (&a, vectors(&a, 8)),
        (&pairs, vectors(&pairs, 3)),
        (&scalar, vectors(&scalar, 1)),
        (&scalar, vectors(&scalar, 2)),
    ];
    for (a, near) in systems {
        let terms = Terms::bsr(a);
        for smoothed in [true, false] {
            let how = MultilevelOptions { coarsest: 60, ..options(smoothed) };
            let p = Multilevel::with_near_null(&make(a.rows()), &terms, how, near.clone()).unwrap();
            let host = Cpu::new(a.rows(), 2);
            let host = Multilevel::with_near_null(&host, &terms, how, near.clone()).unwrap();
            assert_eq!(p.levels().len(), host.levels().len());
            for (depth, (one, two)) in p.levels().iter().zip(host.levels()).enumerate() {
                let level = format!("{} by {}, level {depth}", a.block(), near.count());
                let same = |one: &Bsr, two: &Bsr| {
                    assert_eq!((one.row_ptr(), one.col()), (two.row_ptr(), two.col()), "{level}");
                    let far = distance(one.values(), two.values());
                    assert!(far <= 1e-11, "{level}: {far:e}");
                };
                same(&one.terms().terms()[0].1, &two.terms().terms()[0].1);
                assert_eq!(one.transfer().is_some(), two.transfer().is_some());
                if let (Some(one), Some(two)) = (one.transfer(), two.transfer()) {
                    same(&one.prolongation, &two.prolongation);
                    same(&one.restriction, &two.restriction);
                }
            }
        }
    }
}

/// New values give a new hierarchy except for P; if all values change by the same factor, P is the same, too.
pub fn near_null_hierarchies_are_refreshed<S: Coarsen>(make: Make<S>) {
    let mut rng = Random(96);
    let (a, points) = truss([8, 5, 5], 1.0);
    let (terms, space) = (Terms::bsr(&a), make(a.rows()));
    let how = MultilevelOptions { coarsest: 60, ..options(true) };
    let mut p = Multilevel::with_near_null(&space, &terms, how, modes(&a, &points)).unwrap();
    let twice: Vec<f64> = a.values().iter().map(|v| 2.0 * v).collect();
    let other = Bsr::new(3, a.block_rows(), a.block_rows(), a.row_ptr().to_vec(), a.col().to_vec(), twice);
    let other = other.unwrap();
    let x = rng.numbers(a.rows());
    let before = applied(&space, &p, &x);
    let new = Terms::bsr(&other);
    p.update_values(&new, TermValues::from(&new)).unwrap();
    let after: Vec<f64> = applied(&space, &p, &x).iter().map(|v| 2.0 * v).collect();
    assert!(distance(&after, &before) <= 1e-13, "{:e}", distance(&after, &before));
    p.update_values(&terms, TermValues::from(&terms)).unwrap();
    assert_eq!(applied(&space, &p, &x), before);
}

/// CG on the truss, and on one with stiffer springs along it: iterations stay constant with the rigid modes
/// and grow without them.
pub fn rigid_modes_keep_iterations<S: Coarsen>(make: Make<S>) {
    for stiff in [1.0, 10.0] {
        let of = |nodes: usize, rigid: bool| {
            let (a, points) = truss([2 * nodes, nodes, nodes], stiff);
            let (terms, space) = (Terms::bsr(&a), make(a.rows()));
            let operator = PointBlock::new(&space, &terms, Precision::F64, false).unwrap();
            let p = match rigid {
                true => Multilevel::with_near_null(&space, &terms, options(true), modes(&a, &points)),
                false => Multilevel::new(&space, &terms, options(true)),
            };
            let p = p.unwrap();
            let mut b = vec![0.0; a.rows()];
            b.iter_mut().skip(2).step_by(3).for_each(|v| *v = -1.0);
            let (mut db, mut dx) = (space.vector().unwrap(), space.vector().unwrap());
            space.write(&b, &mut db).unwrap();
            let mut cg = Cg::new(&space, CgOptions { form: CgForm::Textbook }).unwrap();
            let stop = Stop { rtol: 1e-8, max_iters: 500, ..Stop::default() };
            let history = cg.solve(&space, &operator, Some(&p), &db, &mut dx, &stop, &mut ()).unwrap();
            assert_eq!(history.outcome, Outcome::Converged, "{nodes} nodes, {rigid}");
            let mut x = vec![0.0; b.len()];
            space.read(&dx, &mut x).unwrap();
            assert!(distance(&times_blocks(&a, &x), &b) <= 1.01e-8);
            history.iterations
        };
        let [small, large] = [6, 10].map(|nodes| of(nodes, true));
        let without = of(10, false);
        let kept = large <= 2 * small && 3 * large <= 2 * without;
        assert!(kept, "stiffness {stiff}: {small}, {large}; {without} without");
    }
}

/// A scalar system with its near-null vector: as many iterations as with constants for the system whose
/// near-null vector they are.
pub fn one_vector_of_a_scalar_system<S: Coarsen>(make: Make<S>) {
    let a: Csr = super::multilevel::diffusion(14, 100.0);
    // D A D with D of numbers from 1 to 1000: its near-null vector is 1 / D.
    let scale: Vec<f64> = (0..a.rows()).map(|i| 10f64.powi((i * 7 % 4) as i32)).collect();
    let mut values = a.values().to_vec();
    for i in 0..a.rows() {
        for e in a.row_ptr()[i]..a.row_ptr()[i + 1] {
            values[e] *= scale[i] * scale[a.col()[e] as usize];
        }
    }
    let n = a.rows();
    let scaled = Bsr::new(1, n, n, a.row_ptr().to_vec(), a.col().to_vec(), values).unwrap();
    let (terms, space) = (Terms::bsr(&scaled), make(n));
    let operator = PointBlock::new(&space, &terms, Precision::F64, false).unwrap();
    let iterations = |near: Vec<f64>, relax: usize| {
        let near = NearNull::new(&[near]).unwrap();
        let how = Coarsening::of(CoarsenKind::Aggregation { smoothed: true });
        // Incomplete factors do not see the scale of rows; ℓ1 norms do.
        let smoothing = Smoothing::Ildu { sweeps: 1 };
        let how = MultilevelOptions { coarsening: how, smoothing, relax, ..MultilevelOptions::default() };
        let p = Multilevel::with_near_null(&space, &terms, how, near).unwrap();
        let (mut db, mut dx) = (space.vector().unwrap(), space.vector().unwrap());
        space.write(&scale, &mut db).unwrap();
        let mut cg = Cg::new(&space, CgOptions { form: CgForm::Textbook }).unwrap();
        let stop = Stop { rtol: 1e-8, max_iters: 500, ..Stop::default() };
        let history = cg.solve(&space, &operator, Some(&p), &db, &mut dx, &stop, &mut ()).unwrap();
        assert_eq!(history.outcome, Outcome::Converged);
        history.iterations
    };
    let own: Vec<f64> = scale.iter().map(|v| 1.0 / v).collect();
    let (right, wrong) = (iterations(own, 0), iterations(vec![1.0; n], 0));
    assert!(3 * right <= 2 * wrong, "{right} with its vector, {wrong} with constants");
    let relaxed = iterations(vec![1.0; n], 32);
    assert!(3 * relaxed <= 2 * wrong, "{relaxed} with relaxed constants, {wrong} with constants");
}

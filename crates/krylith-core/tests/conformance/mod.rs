//! What every device must do, written once; `cpu.rs` and `cuda.rs` run it.
#![allow(dead_code)]

pub mod air;
#[cfg(feature = "cuda")]
pub mod arrangement;
pub mod arrays;
pub mod assemble;
#[cfg(all(feature = "cuda", feature = "lu"))]
pub mod batch_gpu;
pub mod bf16;
pub mod block_tiles;
pub mod boundary;
pub mod cbcg;
pub mod coarse;
pub mod coarsening;
pub mod columns;
pub mod compose;
pub mod costly;
pub mod cpr;
pub mod criterion;
pub mod csr;
#[cfg(feature = "cuda")]
pub mod cut;
pub mod dia;
#[cfg(feature = "lu")]
pub mod direct;
pub mod distributed;
pub mod factors_f32;
pub mod factors_transposed;
pub mod fields;
pub mod fields_ranks;
#[cfg(feature = "cuda")]
pub mod functions;
pub mod gathered;
pub mod ildu;
#[cfg(feature = "cuda")]
pub mod lender;
pub mod matched;
pub mod memory;
pub mod method;
pub mod minres;
pub mod multilevel;
pub mod narrow;
#[cfg(feature = "cuda")]
pub mod narrow_gpu;
pub mod near_null;
pub mod near_null_ranks;
pub mod passes;
pub mod precond_precision;
pub mod programs;
pub mod ranks_levels;
pub mod replicated;
pub mod residual;
pub mod schwarz;
#[cfg(feature = "cuda")]
pub mod schwarz_gpu;
pub mod singular;
pub mod solver;
pub mod stages;
#[cfg(feature = "cuda")]
pub mod sweeps;
#[cfg(feature = "cuda")]
pub mod transfers;
pub mod transposed;
pub mod vanka;

use crate::common::*;
use krylith_core::matrix::{Bsr, Dense, KroneckerSum};
use krylith_core::method::{Bicgstab, BicgstabOptions, Gmres, GmresOptions, Orthogonalization, Reductions};
use krylith_core::operator::{LinearOperator, PointBlock, PointBlockSum, Terms};
use krylith_core::precond::{BlockDiagonal, BlockJacobi};
use krylith_core::space::Space;
use krylith_core::{Outcome, Precision, Stop};

/// Makes a space of vectors of a given length.
pub type Make<'a, S> = &'a dyn Fn(usize) -> S;

/// y of a square operator, every entry of which it must write.
pub fn applied<S: Space>(space: &S, p: &(impl LinearOperator<S> + ?Sized), x: &[f64]) -> Vec<f64> {
    let (mut dx, mut dy) = (space.vector().unwrap(), space.vector().unwrap());
    space.write(x, &mut dx).unwrap();
    space.write(&vec![f64::NAN; x.len()], &mut dy).unwrap(); // poison: every entry must be written
    p.apply(space, &dx, &mut dy).unwrap();
    let mut y = vec![0.0; x.len()];
    space.read(&dy, &mut y).unwrap();
    y
}

pub fn apply<S: PointBlockSum>(space: &S, operator: &PointBlock<S>, x: &[f64], rows: usize) -> Vec<f64> {
    let (mut dx, mut dy) = (space.vector().unwrap(), space.vector().unwrap());
    space.write(x, &mut dx).unwrap();
    space.write(&vec![f64::NAN; rows], &mut dy).unwrap(); // poison: every entry must be written
    operator.apply(space, &dx, &mut dy).unwrap();
    let mut y = vec![0.0; rows];
    space.read(&dy, &mut y).unwrap();
    y
}

pub fn products_match_the_dense_kronecker_sum<S: PointBlockSum>(make: Make<S>) {
    let mut rng = Random(1);
    for b in 1..=8 {
        for s in 1..=4 {
            for same in [true, false] {
                for n in [1, 2, 31, 33] {
                    let k = random_kronecker(&mut rng, b, s, n, 3, same, false);
                    let x = rng.numbers(n * b * s);
                    let reference = multiply(&dense(&k), &x);
                    let space = make(n * b * s);
                    for dense in [false, true] {
                        let operator =
                            PointBlock::new(&space, &Terms::kronecker(&k), Precision::F64, dense).unwrap();
                        let d = distance(&apply(&space, &operator, &x, n * b * s), &reference);
                        assert!(d <= 1e-13, "b={b} s={s} same={same} n={n} dense={dense}: {d:e}");
                    }
                }
            }
        }
    }
}

pub fn solve_with<S: PointBlockSum + BlockDiagonal>(
    make: Make<S>,
    k: &KroneckerSum,
    b: &[f64],
    options: GmresOptions,
    stop: Stop,
    jacobi: bool,
) -> (Vec<f64>, krylith_core::History) {
    let space = make(k.rows());
    let terms = Terms::kronecker(k);
    let a = PointBlock::new(&space, &terms, Precision::F64, false).unwrap();
    let p = jacobi.then(|| BlockJacobi::new(&space, &terms, Precision::F64).unwrap());
    let p = p.as_ref().map(|p| p as &dyn LinearOperator<S>);
    let (mut db, mut dx) = (space.vector().unwrap(), space.vector().unwrap());
    space.write(b, &mut db).unwrap();
    let mut gmres = Gmres::new(&space, options).unwrap();
    let history = gmres.solve(&space, &a, p, &db, &mut dx, &stop, &mut ()).unwrap().clone();
    let mut x = vec![0.0; k.rows()];
    space.read(&dx, &mut x).unwrap();
    (x, history)
}

pub fn gmres_matches_a_direct_solve<S: PointBlockSum + BlockDiagonal>(make: Make<S>) {
    let mut rng = Random(2);
    for (b, s, n) in [(1, 1, 40), (4, 2, 33), (3, 3, 31), (8, 1, 17), (5, 4, 12)] {
        let k = random_kronecker(&mut rng, b, s, n, 3, true, true);
        let rhs = rng.numbers(k.rows());
        let direct = solve(&dense(&k), &rhs);
        for orthogonalization in [Orthogonalization::Lowsync, Orthogonalization::Cgs2, Orthogonalization::Mgs]
        {
            for basis in [Precision::F64, Precision::F32] {
                for jacobi in [false, true] {
                    let options =
                        GmresOptions { restart: 12, orthogonalization, basis, ..GmresOptions::default() };
                    let stop = Stop { rtol: 1e-12, ..Stop::default() };
                    let (x, history) = solve_with(make, &k, &rhs, options, stop, jacobi);
                    let what =
                        format!("b={b} s={s} {orthogonalization:?} {basis:?} jacobi={jacobi}: {history:?}");
                    assert_eq!(history.outcome, Outcome::Converged, "{what}");
                    assert!(history.true_relative_residual <= 1e-12, "{what}");
                    assert_eq!(history.residuals.len(), history.iterations + 1, "{what}");
                    assert!(distance(&x, &direct) < 1e-10, "{what}");
                }
            }
        }
    }
}

/// BiCGSTAB from zero; the solve is made twice, so that a device that records replays, and has the same bits.
pub fn bicgstab_with<S: PointBlockSum + BlockDiagonal>(
    make: Make<S>,
    k: &KroneckerSum,
    b: &[f64],
    options: BicgstabOptions,
    stop: Stop,
    jacobi: bool,
) -> (Vec<f64>, krylith_core::History) {
    let space = make(k.rows());
    let terms = Terms::kronecker(k);
    let a = PointBlock::new(&space, &terms, Precision::F64, false).unwrap();
    let p = jacobi.then(|| BlockJacobi::new(&space, &terms, Precision::F64).unwrap());
    let p = p.as_ref().map(|p| p as &dyn LinearOperator<S>);
    let (mut db, mut dx) = (space.vector().unwrap(), space.vector().unwrap());
    space.write(b, &mut db).unwrap();
    let mut method = Bicgstab::new(&space, options).unwrap();
    let mut all = Vec::new();
    for _ in 0..3 {
        space.write(&vec![0.0; b.len()], &mut dx).unwrap();
        all.push(method.solve(&space, &a, p, &db, &mut dx, &stop, &mut ()).unwrap().clone());
        assert_eq!(all[0], all[all.len() - 1], "a second solve differs");
    }
    let mut x = vec![0.0; k.rows()];
    space.read(&dx, &mut x).unwrap();
    (x, all.remove(0))
}

pub const BICGSTABS: [BicgstabOptions; 2] = [
    BicgstabOptions { reductions: Reductions::Merged, complex: false },
    BicgstabOptions { reductions: Reductions::Classical, complex: false },
];

pub fn bicgstab_matches_a_direct_solve<S: PointBlockSum + BlockDiagonal>(make: Make<S>) {
    let mut rng = Random(5);
    for (b, s, n) in [(1, 1, 40), (4, 2, 33), (3, 3, 31), (8, 1, 17), (5, 4, 12)] {
        let k = random_kronecker(&mut rng, b, s, n, 3, n != 31, true);
        let rhs = rng.numbers(k.rows());
        let direct = solve(&dense(&k), &rhs);
        for options in BICGSTABS {
            for jacobi in [false, true] {
                let stop = Stop { rtol: 1e-12, ..Stop::default() };
                let (x, history) = bicgstab_with(make, &k, &rhs, options, stop, jacobi);
                let what = format!("b={b} s={s} {options:?} jacobi={jacobi}: {history:?}");
                assert_eq!(history.outcome, Outcome::Converged, "{what}");
                assert!(history.true_relative_residual <= 1e-12, "{what}");
                assert_eq!(history.residuals.len(), history.iterations + 1, "{what}");
                assert!(distance(&x, &direct) < 1e-10, "{what}");
            }
        }
    }
}

/// (r, A r) = 0 at the start: the restart is found and taken on the device, and said.
pub fn bicgstab_restarts_itself<S: PointBlockSum + BlockDiagonal>(make: Make<S>) {
    struct Ear(Vec<(usize, &'static str)>);
    impl krylith_core::Observer for Ear {
        fn restarted(&mut self, iteration: usize, why: &'static str) {
            self.0.push((iteration, why));
        }
    }
    let entries: Vec<_> = (0..60u32).map(|i| (i, i, if i % 2 == 0 { 1.0 } else { -1.0 })).collect();
    let a = krylith_core::matrix::Csr::from_triplets(60, 60, &entries).unwrap();
    let space = make(60);
    let a = PointBlock::csr(&space, &a, Precision::F64).unwrap();
    let (mut b, mut x) = (space.vector().unwrap(), space.vector().unwrap());
    space.write(&[1.0; 60], &mut b).unwrap();
    for options in BICGSTABS {
        let mut method = Bicgstab::new(&space, options).unwrap();
        for _ in 0..3 {
            space.write(&[0.0; 60], &mut x).unwrap();
            let mut ear = Ear(Vec::new());
            let history = method.solve(&space, &a, None, &b, &mut x, &Stop::default(), &mut ear).unwrap();
            assert_eq!(history.outcome, Outcome::Converged, "{options:?} {history:?}");
            assert!(ear.0[0].0 == 0 && ear.0[0].1.starts_with("pivot breakdown"), "{options:?} {:?}", ear.0);
        }
        let stop = Stop { max_iters: 0, ..Stop::default() };
        space.write(&[0.0; 60], &mut x).unwrap();
        let history = method.solve(&space, &a, None, &b, &mut x, &stop, &mut ()).unwrap();
        assert_eq!((history.outcome, history.iterations), (Outcome::MaxIterations, 0), "{options:?}");
    }
}

/// A basis in f32: the f64 tolerance is reached by restarts.
pub fn rounded_bases_reach_the_tolerance<S: PointBlockSum>(make: Make<S>) {
    let mut rng = Random(4);
    let k = random_kronecker(&mut rng, 4, 2, 60, 3, true, true);
    let rhs = rng.numbers(k.rows());
    let space = make(k.rows());
    let a = PointBlock::kronecker(&space, &k, Precision::F64).unwrap();
    let (mut b, mut x) = (space.vector().unwrap(), space.vector().unwrap());
    space.write(&rhs, &mut b).unwrap();
    let mut gmres =
        Gmres::new(&space, GmresOptions { basis: Precision::F32, ..GmresOptions::default() }).unwrap();
    let stop = Stop { rtol: 1e-13, ..Stop::default() };
    let history = gmres.solve(&space, &a, None, &b, &mut x, &stop, &mut ()).unwrap().clone();
    assert_eq!(history.outcome, Outcome::Converged, "{history:?}");
    assert!(history.restarts > 0, "f32 alone cannot reach 1e-13");
    let mut answer = vec![0.0; k.rows()];
    space.read(&x, &mut answer).unwrap();
    let residual: Vec<f64> = by_rows(&k, &answer).iter().zip(&rhs).map(|(ax, b)| b - ax).collect();
    assert!(norm(&residual) <= 1.1e-13 * norm(&rhs), "{:e}", norm(&residual) / norm(&rhs));
}

/// Residual history of a solve of several cycles, for comparisons between devices and thread counts.
pub fn history<S: PointBlockSum + BlockDiagonal>(make: Make<S>) -> Vec<f64> {
    let mut rng = Random(3);
    let k = random_kronecker(&mut rng, 4, 2, 700, 6, true, true);
    let rhs = rng.numbers(k.rows());
    let options = GmresOptions { restart: 5, ..GmresOptions::default() };
    solve_with(make, &k, &rhs, options, Stop { rtol: 1e-11, ..Stop::default() }, false).1.residuals
}

/// Empty rows, a dense row far longer than a tile, one row, rectangular matrices, f32 storage.
pub fn products_of_awkward_patterns<S: PointBlockSum>(make: Make<S>) {
    let mut rng = Random(11);
    for (b, s) in [(1, 1), (1, 3), (2, 4), (3, 1), (4, 2), (5, 2), (7, 4), (8, 1)] {
        for (n, m) in [(1, 1), (33, 33), (900, 900)] {
            let sparse = random_bsr(&mut rng, b, n, m, 4, false);
            let (mut row_ptr, mut col) = (vec![0], Vec::new());
            for i in 0..n {
                match i % 7 {
                    0 if n > 1 => {}
                    _ if i == n / 2 => col.extend(0..m as u32),
                    _ => col.extend(&sparse.col()[sparse.row_ptr()[i]..sparse.row_ptr()[i + 1]]),
                }
                row_ptr.push(col.len());
            }
            let values = rng.numbers(col.len() * b * b);
            let m_matrix = Bsr::new(b, n, m, row_ptr.clone(), col.clone(), values).unwrap();
            let l_matrix = Bsr::new(b, n, m, row_ptr, col.clone(), rng.numbers(col.len() * b * b)).unwrap();
            let (a, c) = (rng.numbers(s * s), rng.numbers(s * s));
            let k = KroneckerSum::new(
                Dense::new(s, s, a).unwrap(),
                Dense::new(s, s, c).unwrap(),
                0.3,
                m_matrix,
                l_matrix,
            );
            let k = k.unwrap();
            let x = rng.numbers(m * b * s);
            let reference = by_rows(&k, &x);
            let space = make(n * b * s);
            for (precision, tolerance) in [(Precision::F64, 1e-13), (Precision::F32, 1e-6)] {
                let operator = PointBlock::new(&space, &Terms::kronecker(&k), precision, false).unwrap();
                let d = distance(&apply(&space, &operator, &x, n * b * s), &reference);
                assert!(d <= tolerance, "b={b} s={s} n={n} {precision:?}: {d:e}");
            }
        }
    }
}

/// New values, a new τ and another number of stages give what a fresh operator gives.
pub fn updates_equal_a_fresh_operator<S: PointBlockSum>(make: Make<S>) {
    let mut rng = Random(12);
    for same in [true, false] {
        let mut k = random_kronecker(&mut rng, 3, 2, 200, 5, same, true);
        let space = make(k.rows());
        let mut operator = PointBlock::kronecker(&space, &k, Precision::F64).unwrap();
        for (term, matrix) in [&mut k.m, &mut k.l].into_iter().enumerate() {
            let n = matrix.values().len();
            matrix.values_mut().copy_from_slice(&rng.numbers(n));
            operator.update_values(&space, term, matrix.values()).unwrap();
        }
        k.tau = 0.7;
        operator.set_tau(&space, &k.a, k.tau).unwrap();
        let x = rng.numbers(k.rows());
        let d = distance(&apply(&space, &operator, &x, k.rows()), &by_rows(&k, &x));
        assert!(d <= 1e-13, "same={same}: {d:e}");
        for s in [3, 1, 4] {
            k.a = Dense::new(s, s, rng.numbers(s * s)).unwrap();
            k.b = Dense::new(s, s, rng.numbers(s * s)).unwrap();
            operator.set_stages(&space, &k.a, &k.b, k.tau).unwrap();
            let wider = make(k.rows());
            let x = rng.numbers(k.rows());
            let d = distance(&apply(&wider, &operator, &x, k.rows()), &by_rows(&k, &x));
            assert!(d <= 1e-13, "same={same} s={s}: {d:e}");
        }
        let wrong = operator.update_values(&space, 0, &[1.0]).unwrap_err().to_string();
        assert!(wrong.contains("were expected"), "{wrong}");
        assert!(operator.update_values(&space, 0, &vec![f64::NAN; k.m.values().len()]).is_err());
    }
}

/// Operators with one pattern and the same coefficients, which change one after the other: each multiplies
/// with its own.
pub fn operators_keep_their_coefficients<S: PointBlockSum>(make: Make<S>) {
    let mut rng = Random(81);
    for s in [1, 2] {
        let k = random_kronecker(&mut rng, 3, s, 60, 5, true, true);
        let (space, x) = (make(k.rows()), rng.numbers(k.rows()));
        let mut operators: Vec<_> =
            (0..3).map(|_| PointBlock::kronecker(&space, &k, Precision::F64).unwrap()).collect();
        let mut all = [k.clone(), k.clone(), k.clone()];
        for (change, tau) in [(1, 0.3), (0, 0.7), (1, 0.9), (2, 0.3), (1, 0.3)] {
            all[change].tau = tau;
            operators[change].set_tau(&space, &k.a, tau).unwrap();
            for (i, (operator, k)) in operators.iter().zip(&all).enumerate() {
                let d = distance(&apply(&space, operator, &x, k.rows()), &by_rows(k, &x));
                assert!(d <= 1e-13, "{s} stages, operator {i} after a change of {change}: {d:e}");
            }
        }
        // One more that finds coefficients as they are now.
        let fresh = PointBlock::kronecker(&space, &all[2], Precision::F64).unwrap();
        operators[2].set_tau(&space, &k.a, 0.1).unwrap();
        let d = distance(&apply(&space, &fresh, &x, k.rows()), &by_rows(&all[2], &x));
        assert!(d <= 1e-13, "{s} stages, a fresh operator: {d:e}");
    }
}

/// The product of a structured operator (Stokes: 9 numbers of 32) is that of the dense blocks.
pub fn structure_changes_nothing<S: PointBlockSum>(make: Make<S>) {
    let mut rng = Random(13);
    for s in 1..=4 {
        let mut k = random_kronecker(&mut rng, 4, s, 500, 7, true, false);
        for (matrix, zero) in [(&mut k.m, true), (&mut k.l, false)] {
            for block in matrix.values_mut().chunks_exact_mut(16) {
                for e in 0..16 {
                    let (r, c) = (e / 4, e % 4);
                    block[e] = match (r == c && r < 3, r == 3 || c == 3) {
                        (true, _) => block[0],
                        (_, true) if !zero => block[e],
                        _ => 0.0,
                    };
                }
            }
        }
        let x = rng.numbers(k.rows());
        let space = make(k.rows());
        let terms = Terms::kronecker(&k);
        let [structured, dense] = [false, true].map(|dense| {
            let operator = PointBlock::new(&space, &terms, Precision::F64, dense).unwrap();
            apply(&space, &operator, &x, k.rows())
        });
        assert!(distance(&structured, &dense) <= 1e-15, "s={s}: {:e}", distance(&structured, &dense));
        assert!(distance(&structured, &by_rows(&k, &x)) <= 1e-13);
    }
}

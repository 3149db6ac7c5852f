//! What every device must do, written once; `cpu.rs` and `cuda.rs` run it.
#![allow(dead_code)]

use crate::common::*;
use krylith::device::cpu::Cpu;
use krylith::matrix::KroneckerSum;
use krylith::method::{Gmres, GmresOptions, Orthogonalization};
use krylith::operator::{LinearOperator, PointBlock, PointBlockSum, Terms};
use krylith::precond::{BlockDiagonal, BlockJacobi};
use krylith::{Outcome, Stop, Store};

/// Makes a space of vectors of a given length.
pub type Make<'a, S> = &'a dyn Fn(usize) -> S;

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
                            PointBlock::new(&space, &Terms::kronecker(&k), Store::F64, dense).unwrap();
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
) -> (Vec<f64>, krylith::History) {
    let space = make(k.rows());
    let terms = Terms::kronecker(k);
    let a = PointBlock::new(&space, &terms, Store::F64, false).unwrap();
    let p = jacobi.then(|| BlockJacobi::new(&space, &terms, Store::F64).unwrap());
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
            for basis in [Store::F64, Store::F32] {
                for jacobi in [false, true] {
                    let options = GmresOptions { restart: 12, orthogonalization, basis };
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

/// Residual history of a solve of several cycles, for comparisons between devices and thread counts.
pub fn history<S: PointBlockSum + BlockDiagonal>(make: Make<S>) -> Vec<f64> {
    let mut rng = Random(3);
    let k = random_kronecker(&mut rng, 4, 2, 700, 6, true, true);
    let rhs = rng.numbers(k.rows());
    let options = GmresOptions { restart: 5, ..GmresOptions::default() };
    solve_with(make, &k, &rhs, options, Stop { rtol: 1e-11, ..Stop::default() }, false).1.residuals
}

#[allow(unused)]
fn cpu(n: usize) -> Cpu {
    Cpu::new(n, 1)
}

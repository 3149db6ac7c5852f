//! Compositions of preconditioners, and those that solve stage by stage: the required results on every
//! device.

use super::{Make, applied};
use crate::common::*;
use krylith_core::matrix::{Dense, KroneckerSum};
use krylith_core::method::{Gmres, GmresOptions};
use krylith_core::operator::{LinearOperator, PointBlock, PointBlockSum, Terms};
use krylith_core::partition::Subdomains;
use krylith_core::precond::{
    Additive, BlockDiagonal, BlockJacobi, Ildu, IlduOptions, Multiplicative, Stage, StageOptions, Stride,
    SubdomainFactors, lower_factor,
};
use krylith_core::{Outcome, Precision, Stop};

fn runs(n: usize, rows: usize) -> Subdomains {
    let labels: Vec<u32> = (0..n).map(|i| (i / rows) as u32).collect();
    Subdomains::from_labels(&labels, n.div_ceil(rows)).unwrap()
}

/// Sums, products and what is nested of both, against the formulas with a dense A.
pub fn compositions_match_dense_algebra<S: PointBlockSum + BlockDiagonal + SubdomainFactors>(make: Make<S>) {
    let mut rng = Random(61);
    for (b, s, n) in [(1, 1, 1), (1, 1, 33), (3, 2, 40), (4, 3, 25)] {
        let k = random_kronecker(&mut rng, b, s, n, 3, false, true);
        let (terms, a, space) = (Terms::kronecker(&k), dense(&k), make(k.rows()));
        let operator = PointBlock::new(&space, &terms, Precision::F64, false).unwrap();
        let jacobi = || BlockJacobi::new(&space, &terms, Precision::F64).unwrap();
        let ildu = || Ildu::new(&space, &terms, &runs(n, 9), IlduOptions::default()).unwrap();
        let (x, one, two) = (rng.numbers(k.rows()), jacobi(), ildu());
        let apply_sum =
            |x: &[f64]| -> Vec<f64> { plus(&applied(&space, &one, x), &applied(&space, &two, x)) };
        let apply_then = |x: &[f64]| -> Vec<f64> {
            let y = applied(&space, &one, x);
            let rest = minus(x, &multiply(&a, &y));
            plus(&y, &applied(&space, &two, &rest))
        };
        let close = |what: &str, p: &dyn LinearOperator<S>, want: Vec<f64>| {
            let d = distance(&applied(&space, p, &x), &want);
            assert!(d <= 1e-13, "{what}, b={b} s={s} n={n}: {d:e}");
        };
        let sum = Additive::new(&space, jacobi(), ildu()).unwrap();
        close("sum", &sum, apply_sum(&x));
        let then = Multiplicative::new(&space, jacobi(), ildu(), &operator).unwrap();
        close("then", &then, apply_then(&x));
        // Nested both ways, behind boxes as a command line makes them.
        let boxed = |p: Additive<S, BlockJacobi<S>, Ildu<S>>| -> Box<dyn LinearOperator<S>> { Box::new(p) };
        let inner = boxed(Additive::new(&space, jacobi(), ildu()).unwrap());
        let outer = Multiplicative::new(&space, inner, jacobi(), &operator).unwrap();
        let y = apply_sum(&x);
        let rest = minus(&x, &multiply(&a, &y));
        close("sum then jacobi", &outer, plus(&y, &applied(&space, &one, &rest)));
        let outer = Additive::new(&space, then, jacobi()).unwrap();
        close("then, plus jacobi", &outer, plus(&apply_then(&x), &applied(&space, &one, &x)));
        assert!(outer.bytes() > sum.bytes() && outer.key() != sum.key());
    }
}

/// A combination with a converging part converges, in fewer iterations one after the other, on its device.
pub fn compositions_precondition<S: PointBlockSum + BlockDiagonal + SubdomainFactors>(make: Make<S>) {
    let mut rng = Random(62);
    let k = random_kronecker(&mut rng, 2, 2, 400, 4, true, true);
    let (terms, space) = (Terms::kronecker(&k), make(k.rows()));
    let operator = PointBlock::new(&space, &terms, Precision::F64, false).unwrap();
    let jacobi = || BlockJacobi::new(&space, &terms, Precision::F64).unwrap();
    let ildu = Ildu::new(&space, &terms, &runs(400, 64), IlduOptions::default()).unwrap();
    let both = Multiplicative::new(&space, jacobi(), ildu, &operator).unwrap();
    let stage = Stage::new(&space, &terms, &runs(400, 64), StageOptions::default());
    assert!(stage.is_err(), "A and B are both full");
    let rhs = rng.numbers(k.rows());
    let iterations = |p: &dyn LinearOperator<S>| {
        let (mut b, mut x) = (space.vector().unwrap(), space.vector().unwrap());
        space.write(&rhs, &mut b).unwrap();
        let mut gmres = Gmres::new(&space, GmresOptions::default()).unwrap();
        let stop = Stop { rtol: 1e-10, ..Stop::default() };
        let history = gmres.solve(&space, &operator, Some(p), &b, &mut x, &stop, &mut ()).unwrap();
        assert_eq!(history.outcome, Outcome::Converged);
        history.iterations
    };
    let (one, both) = (iterations(&jacobi()), iterations(&both));
    assert!(both < one, "{both} with both, {one} with Jacobi alone");
}

/// Factors of order b work on stage k of s where it stands, and leave the other stages of y as they were.
pub fn factors_work_on_one_stage<S: SubdomainFactors>(make: Make<S>) {
    let mut rng = Random(63);
    for b in 1..=8 {
        for precision in [Precision::F64, Precision::F32] {
            let n = 83;
            let a = random_bsr(&mut rng, b, n, n, 4, true);
            let labels: Vec<u32> = (0..n).map(|_| rng.below(3) as u32).collect();
            for cut in [runs(n, 20), Subdomains::from_labels(&labels, 3).unwrap()] {
                let plain = make(n * b);
                let options = IlduOptions { precision, ..IlduOptions::default() };
                let ildu = Ildu::new(&plain, &Terms::bsr(&a), &cut, options).unwrap();
                for s in [1, 2, 5] {
                    let space = make(n * b * s);
                    let ildu_of_s = Ildu::new(&space, &Terms::bsr(&a), &cut, options).unwrap();
                    let (x, before) = (rng.numbers(n * b * s), rng.numbers(n * b * s));
                    for k in 0..s {
                        let (mut dx, mut dy) = (space.vector().unwrap(), space.vector().unwrap());
                        space.write(&x, &mut dx).unwrap();
                        space.write(&before, &mut dy).unwrap();
                        ildu_of_s.apply_at(&space, Stride::stage(k, s), &dx, &mut dy).unwrap();
                        let (mut y, mut want) = (vec![0.0; n * b * s], before.clone());
                        space.read(&dy, &mut y).unwrap();
                        let own: Vec<f64> = x.iter().skip(k).step_by(s).copied().collect();
                        let solved = applied(&plain, &ildu, &own);
                        want.iter_mut().skip(k).step_by(s).zip(solved).for_each(|(w, v)| *w = v);
                        assert_eq!(y, want, "b={b} {precision:?}, stage {k} of {s}");
                    }
                }
            }
        }
    }
}

/// A = I or lower triangular, B full (or the other way round): a system that `Stage` takes.
fn system(rng: &mut Random, b: usize, s: usize, n: usize, which: usize) -> KroneckerSum {
    let mut k = random_kronecker(rng, b, s, n, 3, which % 2 == 0, true);
    let lower = |c: &mut Dense| (0..s).for_each(|i| (i + 1..s).for_each(|j| c[(i, j)] = 0.0));
    match which {
        0 | 1 => k.a = Dense::identity(s),
        2 => lower(&mut k.a),
        _ => lower(&mut k.b),
    }
    k
}

/// P itself, from the definition. `lower_factor` has a test of its own.
fn p_of(k: &KroneckerSum, coupled: bool) -> KroneckerSum {
    let lower = |c: &Dense| {
        let mut c = lower_factor(c).unwrap();
        let s = c.rows();
        (0..s * s).filter(|e| e / s != e % s && !coupled).for_each(|e| c[(e / s, e % s)] = 0.0);
        c
    };
    KroneckerSum::new(lower(&k.a), lower(&k.b), k.tau, k.m.clone(), k.l.clone()).unwrap()
}

/// With exact factors an application solves with P.
pub fn exact_stages_solve_with_p<S: PointBlockSum + SubdomainFactors>(make: Make<S>) {
    let mut rng = Random(64);
    for (b, s, n) in [(1, 1, 5), (1, 2, 30), (3, 2, 20), (4, 2, 1), (4, 3, 17), (2, 4, 21)] {
        for which in 0..4 {
            let k = system(&mut rng, b, s, n, which);
            let (x, space) = (rng.numbers(k.rows()), make(k.rows()));
            for coupled in [true, false] {
                let ildu = IlduOptions { fill: n, ..IlduOptions::default() };
                let options = StageOptions { ildu, coupled };
                let p = Stage::new(&space, &Terms::kronecker(&k), &Subdomains::whole(n), options).unwrap();
                let d = distance(&applied(&space, &p, &x), &solve(&dense(&p_of(&k, coupled)), &x));
                assert!(d <= 1e-10, "b={b} s={s} n={n}, system {which}, coupled: {coupled}: {d:e}");
            }
        }
    }
}

/// New M, L, τ and B give what a fresh object gives, to the bit; and what an application is made of.
pub fn stages_are_refreshed<S: PointBlockSum + SubdomainFactors>(make: Make<S>) {
    let mut rng = Random(65);
    for which in 0..4 {
        let mut k = system(&mut rng, 3, 3, 150, which);
        let (space, cut) = (make(k.rows()), runs(150, 40));
        let fresh = |k: &KroneckerSum| {
            Stage::new(&space, &Terms::kronecker(k), &cut, StageOptions::default()).unwrap()
        };
        let mut kept = fresh(&k);
        let key = LinearOperator::<S>::key(&kept);
        for round in 0..5 {
            k.m.values_mut().iter_mut().for_each(|v| *v *= 1.0 + 0.1 * rng.number());
            k.l.values_mut().iter_mut().for_each(|v| *v *= 1.0 + 0.1 * rng.number());
            k.tau *= 0.9;
            k.b[(0, 0)] += 0.1;
            k.b[(2, 0)] -= 0.2;
            kept.update_values(&space, &Terms::kronecker(&k)).unwrap();
            let x = rng.numbers(k.rows());
            assert_eq!(applied(&space, &kept, &x), applied(&space, &fresh(&k), &x), "{which}, {round}");
        }
        assert_eq!(LinearOperator::<S>::key(&kept), key);
    }
}

/// GMRES with incomplete factors of each stage converges, and coupling saves iterations.
pub fn stages_precondition<S: PointBlockSum + SubdomainFactors>(make: Make<S>) {
    let mut rng = Random(66);
    let k = system(&mut rng, 4, 3, 300, 0);
    let (terms, space, rhs) = (Terms::kronecker(&k), make(k.rows()), rng.numbers(k.rows()));
    let operator = PointBlock::new(&space, &terms, Precision::F64, false).unwrap();
    let mut iterations = Vec::new();
    for coupled in [true, false] {
        let options = StageOptions { coupled, ..StageOptions::default() };
        let p = Stage::new(&space, &terms, &Subdomains::whole(300), options).unwrap();
        let (mut b, mut x) = (space.vector().unwrap(), space.vector().unwrap());
        space.write(&rhs, &mut b).unwrap();
        let mut gmres = Gmres::new(&space, GmresOptions::default()).unwrap();
        let stop = Stop { rtol: 1e-10, ..Stop::default() };
        let history = gmres.solve(&space, &operator, Some(&p), &b, &mut x, &stop, &mut ()).unwrap();
        assert_eq!(history.outcome, Outcome::Converged);
        iterations.push(history.iterations);
        let mut got = vec![0.0; k.rows()];
        space.read(&x, &mut got).unwrap();
        assert!(distance(&by_rows(&k, &got), &rhs) < 2e-10);
    }
    assert!(iterations[0] <= iterations[1], "{iterations:?} with coupling and without");
}

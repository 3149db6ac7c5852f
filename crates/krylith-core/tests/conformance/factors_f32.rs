//! Incomplete factors that compute in f32: they equal those in f64 up to rounding, at any scale, and become
//! f64 where f32 has too small a range. References are plain loops and dense algebra.

use super::ildu::{grid, runs, whole};
use super::schwarz::{dense_schwarz, scattered};
use super::{Make, applied};
use crate::common::*;
use krylith_core::Precision;
use krylith_core::comm::Solo;
use krylith_core::matrix::{Bsr, Csr};
use krylith_core::operator::{LinearOperator, Terms, Transposed};
use krylith_core::partition::Subdomains;
use krylith_core::precond::{
    Ildu, IlduOptions, Plan, Schwarz, SchwarzFactor, SchwarzFactors, SchwarzOptions, SchwarzPattern,
    SchwarzPlan, SchwarzSettings, Stride, SubdomainFactors, TriangularSolve,
};
use krylith_core::space::Space;
use std::sync::Arc;

/// Exponents of the powers of two that scale a matrix and x.
const SCALES: [(i32, i32); 6] = [(0, 0), (664, 0), (-664, 0), (0, 500), (0, -500), (300, -500)];

/// Largest distance from f64. Rounding to f32 is 6e-8, and rows are dominant.
const ROUNDING: f64 = 3e-6;

pub fn scaled(a: &Bsr, factor: f64) -> Bsr {
    let mut a = a.clone();
    a.values_mut().iter_mut().for_each(|v| *v *= factor);
    a
}

/// Rows and columns of the nodes multiplied by these numbers.
pub fn graded(a: &Bsr, row: impl Fn(usize) -> f64, column: impl Fn(usize) -> f64) -> Bsr {
    let (mut a, square) = (a.clone(), a.block() * a.block());
    for i in 0..a.row_ptr().len() - 1 {
        for p in a.row_ptr()[i]..a.row_ptr()[i + 1] {
            let factor = row(i) * column(a.col()[p] as usize);
            a.values_mut()[p * square..(p + 1) * square].iter_mut().for_each(|v| *v *= factor);
        }
    }
    a
}

/// y, as it is for a matrix and an x near 1. Norms of other numbers would overflow.
pub fn near_one(y: &[f64], of_a: f64, of_x: f64) -> Vec<f64> {
    y.iter().map(|v| v * of_a / of_x).collect()
}

/// Mᵀ agrees with M: (M x, z) = (x, Mᵀ z).
pub fn transposes_agree<S: Space>(space: &S, p: &impl LinearOperator<S>, n: usize, what: &str) {
    let mut rng = Random(95);
    let (x, z) = (rng.numbers(n), rng.numbers(n));
    let (mx, tz) = (applied(space, p, &x), applied(space, &Transposed::of(p).unwrap(), &z));
    let (one, other) = (dot(&mx, &z), dot(&x, &tz));
    let size = (dot(&mx, &mx) * dot(&z, &z)).sqrt();
    assert!((one - other).abs() <= 1e-5 * size, "{what}: {one:e} and {other:e}");
}

/// Both preconditioners and their transposes give the same bits.
fn same_both_ways<S: Space, P: LinearOperator<S>>(space: &S, both: [&P; 2], x: &[f64], what: &str) {
    let [one, other] = both.map(|p| applied(space, p, x));
    assert_eq!(one, other, "{what}");
    let [one, other] = both.map(|p| applied(space, &Transposed::of(p).unwrap(), x));
    assert_eq!(one, other, "{what}, transposed");
}

/// Subdomains of odd sizes, boxes and all rows at once, blocks of several orders, all scales.
pub fn ildu_in_f32<S: SubdomainFactors>(make: Make<S>) {
    let mut rng = Random(91);
    for b in [1, 2, 3, 5, 12] {
        let a = if b < 9 { grid(&mut rng, [9, 7, 6], b) } else { random_bsr(&mut rng, b, 61, 61, 3, true) };
        let nodes = a.row_ptr().len() - 1;
        let mut cuts = vec![runs(nodes, 1), runs(nodes, 7), runs(nodes, 33), Subdomains::whole(nodes)];
        if b < 9 {
            cuts.push(Subdomains::boxes([9, 7, 6], [4, 3, 5]));
        }
        for (k, cut) in cuts.iter().enumerate() {
            let (n, x) = (nodes * b, rng.numbers(nodes * b));
            let plan = Plan::new(&Terms::bsr(&a), cut, 0).unwrap();
            let textbook = whole(&Terms::bsr(&a), &plan, &x);
            for (of_a, of_x) in SCALES.map(|(a, x)| (2f64.powi(a), 2f64.powi(x))) {
                let (space, a) = (make(n), scaled(&a, of_a));
                let x: Vec<f64> = x.iter().map(|v| v * of_x).collect();
                let what = format!("b={b}, cut {k}, {of_a:e}, {of_x:e}");
                let [wide, mut narrow] = [Precision::F64, Precision::F32].map(|compute| {
                    let options = IlduOptions { compute, ..IlduOptions::default() };
                    Ildu::new(&space, &Terms::bsr(&a), cut, options).unwrap()
                });
                assert_eq!((wide.is_narrow(), narrow.is_narrow()), (false, true), "{what}");
                let [of_f64, once, again] =
                    [&wide, &narrow, &narrow].map(|p| near_one(&applied(&space, p, &x), of_a, of_x));
                assert_eq!(once, again, "{what}");
                let d = distance(&once, &of_f64);
                assert!((1e-12..ROUNDING).contains(&d), "{what}: {d:e} from f64");
                let d = distance(&once, &textbook);
                assert!(d <= ROUNDING, "{what}: {d:e} from the textbook");
                let d = distance(&of_f64, &textbook);
                assert!(d <= 1e-12, "{what}: f64 is {d:e} from the textbook");
                assert!(applied(&space, &narrow, &vec![0.0; n]).iter().all(|v| *v == 0.0), "{what}");
                narrow.prepare_transpose(&space).unwrap();
                if (of_a, of_x) == (1.0, 1.0) {
                    transposes_agree(&space, &narrow, n, &what);
                    on_stages(make, &a, cut, &narrow, &space, &x);
                }
            }
        }
    }
    ildu_is_promoted(make);
}

/// One stage of three has what a whole vector has, and so have several columns.
fn on_stages<S: SubdomainFactors>(
    make: Make<S>,
    a: &Bsr,
    cut: &Subdomains,
    p: &Ildu<S>,
    space: &S,
    x: &[f64],
) {
    let (own, long) = (applied(space, p, x), make(3 * x.len()));
    let options = IlduOptions { compute: Precision::F32, ..IlduOptions::default() };
    let strided = Ildu::new(&long, &Terms::bsr(a), cut, options).unwrap();
    let mut all = vec![7.5; 3 * x.len()];
    all.iter_mut().skip(1).step_by(3).zip(x).for_each(|(to, v)| *to = *v);
    let (mut dx, mut dy) = (long.vector().unwrap(), long.vector().unwrap());
    long.write(&all, &mut dx).unwrap();
    long.write(&all, &mut dy).unwrap();
    strided.apply_at(&long, Stride::stage(1, 3), &dx, &mut dy).unwrap();
    let mut found = vec![0.0; all.len()];
    long.read(&dy, &mut found).unwrap();
    all.iter_mut().skip(1).step_by(3).zip(&own).for_each(|(to, v)| *to = *v);
    assert_eq!(found, all);
    let double: Vec<f64> = x.iter().map(|v| 2.0 * v).collect();
    let made = |x: &[f64]| {
        let mut vector = space.vector().unwrap();
        space.write(x, &mut vector).unwrap();
        vector
    };
    let (first, second) = (made(x), made(&double));
    let (mut y, mut z) = (space.vector().unwrap(), space.vector().unwrap());
    p.apply_columns(space, &[&first, &second], &mut [&mut y, &mut z]).unwrap();
    for (column, factor) in [(&y, 1.0), (&z, 2.0)] {
        let mut found = vec![0.0; x.len()];
        space.read(column, &mut found).unwrap();
        assert_eq!(found, own.iter().map(|v| factor * v).collect::<Vec<_>>());
    }
}

/// Graded rows and columns make f64 of f32, in a set-up and with new values, with and without transposes.
fn ildu_is_promoted<S: SubdomainFactors>(make: Make<S>) {
    let mut rng = Random(92);
    for b in [1, 2, 3, 5] {
        let a = grid(&mut rng, [5, 6, 4], b);
        let (nodes, n) = (120, 120 * b);
        let (space, cut, x) = (make(n), runs(nodes, 50), rng.numbers(n));
        let up = |i: usize| 10f64.powi((i * 7 % 61) as i32 - 30);
        // Within a row, a larger range would make pivots tiny.
        let some = |i: usize| 10f64.powf((i * 5 % 14) as f64 - 6.5);
        // Only one subdomain is graded: all factors become f64.
        let last = |i: usize| if i > 100 { up(i) } else { 1.0 };
        let one = |_: usize| 1.0;
        let cases = [graded(&a, up, one), graded(&a, one, some), graded(&a, up, some), graded(&a, last, one)];
        for (k, case) in cases.iter().enumerate() {
            let of = |compute, a: &Bsr| {
                let options = IlduOptions { compute, ..IlduOptions::default() };
                Ildu::new(&space, &Terms::bsr(a), &cut, options).unwrap()
            };
            let mut wide = of(Precision::F64, case);
            let fresh = of(Precision::F32, case);
            let what = format!("b={b}, case {k}");
            assert!(!fresh.is_narrow(), "{what}");
            assert_eq!(applied(&space, &fresh, &x), applied(&space, &wide, &x), "{what}");
            // New values, after which everything stays f64.
            let mut kept = of(Precision::F32, &a);
            kept.prepare_transpose(&space).unwrap();
            wide.prepare_transpose(&space).unwrap();
            let key = kept.key();
            kept.update_values(&space, &Terms::bsr(&a)).unwrap();
            assert!(kept.is_narrow() && kept.key() == key, "{what}");
            kept.update_values(&space, &Terms::bsr(case)).unwrap();
            assert!(!kept.is_narrow() && kept.key() != key, "{what}");
            same_both_ways(&space, [&kept, &wide], &x, &what);
            kept.update_values(&space, &Terms::bsr(&a)).unwrap();
            assert_eq!(applied(&space, &kept, &x), applied(&space, &of(Precision::F64, &a), &x), "{what}");
        }
        // Powers of two that differ from subdomain to subdomain need no promotion.
        let steps = |i: usize| 2f64.powi(100 * (i / 50) as i32);
        let options = IlduOptions { compute: Precision::F32, ..IlduOptions::default() };
        let p = Ildu::new(&space, &Terms::bsr(&graded(&a, steps, one)), &cut, options).unwrap();
        assert!(p.is_narrow(), "b={b}");
        let plain = Ildu::new(&space, &Terms::bsr(&a), &cut, options).unwrap();
        let found = applied(&space, &p, &x);
        let want = applied(&space, &plain, &x);
        let same = found.iter().zip(&want).enumerate();
        assert!(same.clone().all(|(k, (v, w))| v * steps(k / b) == *w), "b={b}");
    }
}

const ALL: [TriangularSolve; 3] =
    [TriangularSolve::Exact, TriangularSolve::Jacobi { sweeps: 3 }, TriangularSolve::Random { sweeps: 4 }];

fn overlapping(a: &Bsr, cut: &Subdomains, overlap: usize, fill: usize) -> Arc<SchwarzPlan> {
    let pattern = SchwarzPattern { overlap, fill, ..SchwarzPattern::default() };
    SchwarzPlan::new(&Solo, &Terms::bsr(a), None, cut, pattern).unwrap().into()
}

fn schwarz<S: SchwarzFactors>(
    space: &S,
    plan: &Arc<SchwarzPlan>,
    a: &Bsr,
    solve: TriangularSolve,
    compute: Precision,
) -> Schwarz<S> {
    let options = SchwarzOptions { precision: Precision::F64, compute, rows: 3, deterministic: true };
    let settings = SchwarzSettings { factor: SchwarzFactor::Exact, solve, options };
    let mut p = Schwarz::new(space, plan.clone(), settings).unwrap();
    p.update_values(space, a.values()).unwrap();
    p
}

/// Overlapping subdomains of odd sizes, all ways to solve, all scales; full fill is a direct solve.
pub fn schwarz_in_f32<S: SchwarzFactors>(make: Make<S>) {
    let mut rng = Random(93);
    for b in [1, 2, 3, 5, 8] {
        for (nodes, parts, overlap, fill) in [(1, 1, 0, 0), (31, 1, 1, 0), (43, 3, 1, 1), (33, 5, 2, 1000)] {
            let a = random_bsr(&mut rng, b, nodes, nodes, 2, true);
            let (n, x) = (nodes * b, rng.numbers(nodes * b));
            let cut = scattered(&mut rng, nodes, parts);
            let plan = overlapping(&a, &cut, overlap, fill);
            for solve in ALL {
                for (of_a, of_x) in SCALES.map(|(a, x)| (2f64.powi(a), 2f64.powi(x))) {
                    let (space, scaled) = (make(n), scaled(&a, of_a));
                    let x: Vec<f64> = x.iter().map(|v| v * of_x).collect();
                    let what = format!("b={b}, {nodes} nodes, {solve:?}, {of_a:e}, {of_x:e}");
                    let of = |compute| schwarz(&space, &plan, &scaled, solve, compute);
                    let (wide, mut narrow) = (of(Precision::F64), of(Precision::F32));
                    assert_eq!((wide.is_narrow(), narrow.is_narrow()), (false, true), "{what}");
                    let [of_f64, once, again] =
                        [&wide, &narrow, &narrow].map(|p| near_one(&applied(&space, p, &x), of_a, of_x));
                    assert_eq!(once, again, "{what}");
                    let d = distance(&once, &of_f64);
                    assert!((1e-12..ROUNDING).contains(&d), "{what}: {d:e} from f64");
                    if solve == TriangularSolve::Exact && fill == 1000 {
                        let want = dense_schwarz(&a, &cut, overlap, &near_one(&x, 1.0, of_x));
                        let d = distance(&once, &want);
                        assert!(d <= ROUNDING, "{what}: {d:e} from dense solves");
                    }
                    assert!(applied(&space, &narrow, &vec![0.0; n]).iter().all(|v| *v == 0.0), "{what}");
                    if (of_a, of_x) == (1.0, 1.0) && !matches!(solve, TriangularSolve::Random { .. }) {
                        narrow.prepare_transpose(&space).unwrap();
                        transposes_agree(&space, &narrow, n, &what);
                    }
                }
            }
        }
    }
    schwarz_is_promoted(make);
}

/// Graded rows make f64 of f32, in a set-up and with new values, with and without transposes.
fn schwarz_is_promoted<S: SchwarzFactors>(make: Make<S>) {
    let mut rng = Random(94);
    let exact = TriangularSolve::Exact;
    for b in [1, 2, 3, 5] {
        let (nodes, n) = (60, 60 * b);
        let a = random_bsr(&mut rng, b, nodes, nodes, 2, true);
        let (space, x, plan) = (make(n), rng.numbers(n), overlapping(&a, &runs(nodes, 21), 1, 1));
        let up = |i: usize| 10f64.powi((i * 7 % 61) as i32 - 30);
        let some = |i: usize| 10f64.powf((i * 5 % 14) as f64 - 6.5);
        let one = |_: usize| 1.0;
        for (k, case) in [graded(&a, up, one), graded(&a, one, some)].iter().enumerate() {
            let what = format!("b={b}, case {k}");
            let of = |compute, a: &Bsr| schwarz(&space, &plan, a, exact, compute);
            let mut wide = of(Precision::F64, case);
            let fresh = of(Precision::F32, case);
            assert!(!fresh.is_narrow(), "{what}");
            assert_eq!(applied(&space, &fresh, &x), applied(&space, &wide, &x), "{what}");
            let mut kept = of(Precision::F32, &a);
            kept.prepare_transpose(&space).unwrap();
            wide.prepare_transpose(&space).unwrap();
            let key = kept.key();
            kept.update_values(&space, a.values()).unwrap();
            assert!(kept.is_narrow() && kept.key() == key, "{what}");
            kept.update_values(&space, case.values()).unwrap();
            assert!(!kept.is_narrow() && kept.key() != key, "{what}");
            same_both_ways(&space, [&kept, &wide], &x, &what);
            kept.update_values(&space, a.values()).unwrap();
            assert_eq!(applied(&space, &kept, &x), applied(&space, &of(Precision::F64, &a), &x), "{what}");
        }
    }
}

/// Columns at the greatest distance that 16 bits hold, and one row farther. The matrix is a triangle, so
/// incomplete factors are exact.
pub fn schwarz_near_and_far<S: SchwarzFactors>(make: Make<S>) {
    const MOST: usize = 1 << 16;
    for far in [MOST, MOST + 1] {
        let n = far + 3;
        for upper in [false, true] {
            let mut entries: Vec<(u32, u32, f64)> = (0..n as u32).map(|i| (i, i, 4.0)).collect();
            let below = (1..n).map(|i| (i, i - 1, -1.0)).chain([(far, 0, 0.75), (far + 1, 1, 0.5)]);
            entries.extend(below.map(|(i, j, v)| {
                let (i, j) = if upper { (j, i) } else { (i, j) };
                (i as u32, j as u32, v)
            }));
            let a = Csr::from_triplets(n, n, &entries).unwrap();
            let (ptr, col) = (a.row_ptr().to_vec(), a.col().to_vec());
            let a = Bsr::new(1, n, n, ptr, col, a.values().to_vec()).unwrap();
            let (space, x) = (make(n), Random(97).numbers(n));
            let plan = overlapping(&a, &Subdomains::whole(n), 0, 0);
            for solve in [TriangularSolve::Exact, TriangularSolve::Jacobi { sweeps: 40 }] {
                for (compute, tolerance) in [(Precision::F64, 1e-13), (Precision::F32, 1e-6)] {
                    let p = schwarz(&space, &plan, &a, solve, compute);
                    let d = distance(&times_blocks(&a, &applied(&space, &p, &x)), &x);
                    assert!(d <= tolerance, "{far}, upper={upper}, {solve:?}, {compute:?}: {d:e}");
                }
            }
            let mut p = schwarz(&space, &plan, &a, TriangularSolve::Exact, Precision::F64);
            p.prepare_transpose(&space).unwrap();
            transposes_agree(&space, &p, n, &format!("{far}, upper={upper}"));
        }
    }
}

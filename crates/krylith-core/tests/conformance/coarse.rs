//! Coarse levels as a part of compositions, and compositions that go back.

use super::multilevel::diffusion;
use super::{Make, applied};
use crate::common::*;
use krylith_core::matrix::{Bsr, Csr};
use krylith_core::method::{Cg, CgForm, CgOptions};
use krylith_core::operator::{LinearOperator, PointBlock, TermValues, Terms};
use krylith_core::partition::Subdomains;
use krylith_core::precond::{
    Additive, BlockJacobi, Coarsen, CoarsenKind, Coarsening, Cycle, Ildu, IlduOptions, Multilevel,
    MultilevelOptions, Multiplicative,
};
use krylith_core::{Outcome, Precision, Stop};
use std::borrow::Cow;

const KINDS: [CoarsenKind; 3] = [
    CoarsenKind::Classical,
    CoarsenKind::Aggregation { smoothed: true },
    CoarsenKind::Aggregation { smoothed: false },
];

/// A coarse part.
fn part(kind: CoarsenKind) -> MultilevelOptions {
    let coarsening = Coarsening::of(kind);
    MultilevelOptions { coarsening, smooth_finest: false, ..MultilevelOptions::default() }
}

/// A matrix of 1×1 blocks times `x`, each number of which stands for `order` components.
fn by_node(p: &Bsr, order: usize, x: &[f64]) -> Vec<f64> {
    let mut y = vec![0.0; p.block_rows() * order];
    for i in 0..p.block_rows() {
        for e in p.row_ptr()[i]..p.row_ptr()[i + 1] {
            let j = p.col()[e] as usize;
            (0..order).for_each(|c| y[i * order + c] += p.values()[e] * x[j * order + c]);
        }
    }
    y
}

/// With two levels, the second solved directly, x = P A_c⁻¹ R b: A x has the restricted sums of b, and x has
/// the form P x_c.
pub fn a_coarse_part_corrects_what_it_sees<S: Coarsen>(make: Make<S>) {
    let mut rng = Random(91);
    // Of the largest the second level is too large for a dense inverse.
    let mut sparse = 0;
    for (order, side) in [(1, 10), (3, 7), (1, 30), (3, 16)] {
        let a = diffusion(side, 1e3);
        // The same matrix for each of a node's components.
        let mut values = vec![0.0; a.values().len() * order * order];
        for (block, v) in values.chunks_exact_mut(order * order).zip(a.values()) {
            (0..order).for_each(|c| block[c * order + c] = *v);
        }
        let n = a.rows();
        let matrix = Bsr::new(order, n, n, a.row_ptr().to_vec(), a.col().to_vec(), values).unwrap();
        let (terms, space) = (Terms::bsr(&matrix), make(n * order));
        let operator = PointBlock::new(&space, &terms, Precision::F64, false).unwrap();
        for kind in KINDS {
            let how = MultilevelOptions { levels: 2, coarsest: 1, ..part(kind) };
            let mut p = Multilevel::new(&space, &terms, how).unwrap();
            assert!(p.levels().len() == 2 && p.levels()[1].is_direct(), "{kind:?}");
            sparse += usize::from(p.levels()[1].terms().rows() > 2000);
            let transfer = p.levels()[0].transfer().unwrap();
            let b = rng.numbers(n * order);
            let x = applied(&space, &p, &b);
            let ax = applied(&space, &operator, &x);
            let [seen, want] = [&ax, &b].map(|v| by_node(&transfer.restriction, order, v));
            assert!(distance(&seen, &want) <= 1e-10, "{kind:?}, {order}: {:e}", distance(&seen, &want));
            // A second application to what is left finds nothing more, as of any projection.
            let again = applied(&space, &p, &minus(&b, &ax));
            let share = norm(&again) / norm(&x);
            assert!(share <= 1e-10, "{kind:?}, {order}: {share:e}");
            assert!(p.bytes() > 0 && p.numbers() > 0.0);
            let twice = doubled(&terms);
            p.update_values(&twice, TermValues::from(&twice)).unwrap();
            let halved: Vec<f64> = applied(&space, &p, &b).iter().map(|v| 2.0 * v).collect();
            assert!(distance(&halved, &x) <= 1e-10, "{kind:?}, {order}: {:e}", distance(&halved, &x));
        }
    }
    assert!(sparse >= 3 || !cfg!(feature = "lu"), "{sparse} large levels");
}

/// Twice the matrix.
fn doubled(terms: &Terms) -> Terms<'static> {
    let twice = |a: &Bsr| {
        let mut a = a.clone();
        a.values_mut().iter_mut().for_each(|v| *v *= 2.0);
        Cow::Owned(a)
    };
    Terms::new(terms.terms().iter().map(|(c, a)| (c.clone(), twice(a))).collect()).unwrap()
}

/// The symmetric form by its formula; (u, M v) = (v, M u) and (u, M u) > 0, which two plain steps violate
/// clearly.
pub fn symmetric_compositions_are_symmetric<S: Coarsen>(make: Make<S>) {
    let mut rng = Random(92);
    let a = diffusion(11, 1e4);
    let (terms, space) = (Terms::csr(&a).unwrap(), make(a.rows()));
    let operator = PointBlock::new(&space, &terms, Precision::F64, false).unwrap();
    let labels: Vec<u32> = (0..a.rows()).map(|i| (i / 100) as u32).collect();
    let cut = Subdomains::from_labels(&labels, a.rows().div_ceil(100)).unwrap();
    let ildu = || Ildu::new(&space, &terms, &cut, IlduOptions::default()).unwrap();
    let jacobi = || BlockJacobi::new(&space, &terms, Precision::F64).unwrap();
    let (u, v) = (rng.numbers(a.rows()), rng.numbers(a.rows()));
    let skew = |p: &dyn LinearOperator<S>| {
        let (mu, mv) = (applied(&space, p, &u), applied(&space, p, &v));
        assert!(dot(&u, &mu) > 0.0 && dot(&v, &mv) > 0.0);
        (dot(&u, &mv) - dot(&v, &mu)).abs() / (norm(&u) * norm(&mv))
    };
    for kind in KINDS {
        for cycle in [Cycle::V, Cycle::W] {
            let how = MultilevelOptions { cycle, coarsest: 30, ..part(kind) };
            let coarse = || Multilevel::new(&space, &terms, how).unwrap();
            let there_and_back = Multiplicative::symmetric(&space, ildu(), coarse(), &operator).unwrap();
            let found = skew(&there_and_back);
            assert!(found <= 1e-12, "{kind:?} {cycle:?}: {found:e}");
            // y after ωM₁, M₂ and ωM₁, each on what is left over.
            let (one, two, omega) = (ildu(), coarse(), there_and_back.damping().unwrap());
            let step = |y: Vec<f64>, p: &dyn LinearOperator<S>, factor: f64| {
                let found = applied(&space, p, &minus(&u, &times(&a, &y)));
                plus(&y, &found.iter().map(|v| factor * v).collect::<Vec<_>>())
            };
            let want = step(step(step(vec![0.0; u.len()], &one, omega), &two, 1.0), &one, omega);
            let d = distance(&applied(&space, &there_and_back, &u), &want);
            assert!(d <= 1e-12, "{kind:?} {cycle:?}: {d:e}");
            let sum = Additive::new(&space, jacobi(), coarse()).unwrap();
            assert!(skew(&sum) <= 1e-12, "{kind:?} {cycle:?}");
            let one_way = Multiplicative::new(&space, ildu(), coarse(), &operator).unwrap();
            assert!(skew(&one_way) >= 1e-6, "{kind:?} {cycle:?}");
            assert!(there_and_back.bytes() > one_way.bytes() + ildu().bytes());
        }
    }
    // Of point Jacobi the spectrum reaches nearly to 2.
    let point = Multiplicative::symmetric(&space, jacobi(), jacobi(), &operator).unwrap();
    let omega = point.damping().unwrap();
    assert!((0.64..0.8).contains(&omega) && skew(&point) <= 1e-12, "{omega}");
    // Nested: jacobi, ildu, jacobi on both sides of the coarse part.
    let inner = Multiplicative::symmetric(&space, jacobi(), ildu(), &operator).unwrap();
    let coarse = Multilevel::new(&space, &terms, part(KINDS[0])).unwrap();
    let nested = Multiplicative::symmetric(&space, inner, coarse, &operator).unwrap();
    assert!(skew(&nested) <= 1e-12);
}

/// CG accepts a coarse correction added to factors, in fewer iterations than the factors alone, and between
/// them, in fewer still.
pub fn coarse_parts_precondition<S: Coarsen>(make: Make<S>) {
    for contrast in [1.0, 1e6] {
        let a: Csr = diffusion(24, contrast);
        let (terms, space) = (Terms::csr(&a).unwrap(), make(a.rows()));
        let operator = PointBlock::new(&space, &terms, Precision::F64, false).unwrap();
        // Cubes of 8³.
        let cube = |i: usize| (i % 24 / 8 + 3 * (i / 24 % 24 / 8) + 9 * (i / 576 / 8)) as u32;
        let labels: Vec<u32> = (0..a.rows()).map(cube).collect();
        let cut = Subdomains::from_labels(&labels, 27).unwrap();
        let ildu = || Ildu::new(&space, &terms, &cut, IlduOptions::default()).unwrap();
        let b = vec![1.0; a.rows()];
        let iterations = |p: &dyn LinearOperator<S>| {
            let (mut db, mut dx) = (space.vector().unwrap(), space.vector().unwrap());
            space.write(&b, &mut db).unwrap();
            let mut cg = Cg::new(&space, CgOptions { form: CgForm::Textbook }).unwrap();
            let stop = Stop { rtol: 1e-8, max_iters: 500, ..Stop::default() };
            let history = cg.solve(&space, &operator, Some(p), &db, &mut dx, &stop, &mut ()).unwrap();
            assert_eq!(history.outcome, Outcome::Converged, "contrast {contrast:e}");
            let mut x = vec![0.0; b.len()];
            space.read(&dx, &mut x).unwrap();
            assert!(distance(&times(&a, &x), &b) <= 1.01e-8);
            history.iterations
        };
        let coarse = || Multilevel::new(&space, &terms, part(CoarsenKind::Classical)).unwrap();
        let alone = iterations(&ildu());
        let sum = iterations(&Additive::new(&space, ildu(), coarse()).unwrap());
        let both = iterations(&Multiplicative::symmetric(&space, ildu(), coarse(), &operator).unwrap());
        assert!(both < sum && sum < alone, "contrast {contrast:e}: {alone}, {sum} added, {both} and back");
    }
}

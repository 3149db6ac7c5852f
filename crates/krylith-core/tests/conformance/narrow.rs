//! Cycles in f32: they equal those in f64 up to rounding, at any scale, and are not made where f32 has too
//! small a range.

use super::multilevel::{diffusion, options};
use super::near_null::{modes, truss};
use super::{Make, applied};
use crate::common::*;
use krylith_core::matrix::{Bsr, Csr};
use krylith_core::method::{Cg, CgOptions};
use krylith_core::operator::{PointBlock, TermValues, Terms};
use krylith_core::precond::{Coarsen, CoarsenKind, Multilevel, MultilevelOptions, NearNull, Smoothing};
use krylith_core::{Outcome, Precision, PrecondPrecision, Stop};

const SMOOTHERS: [Smoothing; 5] = [
    Smoothing::Jacobi { sweeps: 1 },
    Smoothing::Jacobi { sweeps: 3 },
    Smoothing::Chebyshev { degree: 1 },
    Smoothing::Chebyshev { degree: 2 },
    Smoothing::Chebyshev { degree: 4 },
];

/// A graph Laplacian of random edges, with a small shift.
fn network(n: usize) -> Csr {
    let mut rng = Random(77);
    let mut triplets = Vec::new();
    let mut diagonal = vec![1e-2; n];
    for i in 0..n {
        for j in [(i + 1) % n, (i * 7 + 3) % n, (i * 13 + 5) % n] {
            if i != j {
                let v = 0.5 + rng.number().abs();
                triplets.extend([(i as u32, j as u32, -v), (j as u32, i as u32, -v)]);
                diagonal[i] += v;
                diagonal[j] += v;
            }
        }
    }
    triplets.extend(diagonal.iter().enumerate().map(|(i, d)| (i as u32, i as u32, *d)));
    Csr::from_triplets(n, n, &triplets).unwrap()
}

fn scaled(a: &Csr, factor: f64) -> Csr {
    let values = a.values().iter().map(|v| v * factor).collect();
    Csr::new(a.rows(), a.columns(), a.row_ptr().to_vec(), a.col().to_vec(), values).unwrap()
}

/// Compares cycles in f32 and in f64. On a CPU those of blocks are in f64.
pub fn cycles_in_f32<S: Coarsen + 'static>(make: Make<S>) {
    let has = make(1).computes_in_f32();
    let matrices = [diffusion(16, 1e3), diffusion(7, 10.0), network(3000)];
    for (m, a) in matrices.iter().enumerate() {
        let n = a.rows();
        let space = make(n);
        let x = Random(78).numbers(n);
        for kind in [CoarsenKind::Classical, CoarsenKind::Aggregation { smoothed: true }] {
            for smoothing in SMOOTHERS {
                for (of_a, of_x) in [(0, 0), (600, 0), (-600, 0), (0, 500), (0, -500), (300, -500)] {
                    let [of_a, of_x] = [of_a, of_x].map(|e: i32| 2f64.powi(e));
                    let terms = Terms::csr(&scaled(a, of_a)).unwrap();
                    let x: Vec<f64> = x.iter().map(|v| v * of_x).collect();
                    let wide = MultilevelOptions { smoothing, coarsest: 40, ..options(kind) };
                    let narrow = MultilevelOptions { compute: PrecondPrecision::F32, ..wide };
                    let [wide, narrow] =
                        [wide, narrow].map(|how| Multilevel::new(&space, &terms, how).unwrap());
                    assert_eq!((wide.is_narrow(), narrow.is_narrow()), (false, has));
                    let [wide, once, again] = [&wide, &narrow, &narrow].map(|p| applied(&space, p, &x));
                    // Norms of such numbers would overflow.
                    let near_one = |y: &[f64]| y.iter().map(|v| v * of_a / of_x).collect::<Vec<_>>();
                    let d = distance(&near_one(&once), &near_one(&wide));
                    assert!(d <= 3e-6, "matrix {m}, {kind:?}, {smoothing:?}, {of_a:e}, {of_x:e}: {d:e}");
                    assert_eq!(has, d > 1e-12, "matrix {m}, {smoothing:?}: {d:e}");
                    assert_eq!(once, again);
                }
            }
        }
    }
    blocks(make, has && make(1).pipeline_depth() > 0);
    refresh(make, has);
    range(make);
}

/// A ⊗ T, where T has 1.2 on the diagonal and 0.2 elsewhere.
fn of_blocks(a: &Csr, b: usize) -> Bsr {
    let block = |v: f64| (0..b * b).map(move |e| v * if e / b == e % b { 1.2 } else { 0.2 });
    let values = a.values().iter().flat_map(|v| block(*v)).collect();
    Bsr::new(b, a.rows(), a.columns(), a.row_ptr().to_vec(), a.col().to_vec(), values).unwrap()
}

/// Nodes of several unknowns, with weights for nodes and from near-null vectors.
fn blocks<S: Coarsen + 'static>(make: Make<S>, has: bool) {
    let check = |a: &Bsr, near: Option<NearNull>, how: MultilevelOptions| {
        let (space, terms, x) = (make(a.rows()), Terms::bsr(a), Random(81).numbers(a.rows()));
        let [wide, narrow] = [PrecondPrecision::F64, PrecondPrecision::F32].map(|compute| {
            let how = MultilevelOptions { compute, ..how };
            match &near {
                Some(near) => Multilevel::with_near_null(&space, &terms, how, near.clone()).unwrap(),
                None => Multilevel::new(&space, &terms, how).unwrap(),
            }
        });
        let text = format!("b={}, {how:?}, {} levels", a.block(), narrow.levels().len());
        assert!(narrow.levels().len() > 1 && narrow.is_narrow() == has && !wide.is_narrow(), "{text}");
        let d = distance(&applied(&space, &narrow, &x), &applied(&space, &wide, &x));
        assert!(d <= 3e-5 && has == (d > 1e-12), "{text}: {d:e}");
    };
    for smoothing in [Smoothing::Jacobi { sweeps: 2 }, Smoothing::Chebyshev { degree: 3 }] {
        let how = |kind| MultilevelOptions { smoothing, coarsest: 60, ..options(kind) };
        for b in 2..=8 {
            check(
                &of_blocks(&diffusion(10, 10.0), b),
                None,
                how(CoarsenKind::Aggregation { smoothed: true }),
            );
        }
        let (a, points) = truss([13, 7, 6], 3.0);
        check(&a, None, how(CoarsenKind::Classical));
        check(&a, Some(modes(&a, &points)), how(CoarsenKind::Aggregation { smoothed: true }));
        check(&a, Some(modes(&a, &points)), how(CoarsenKind::Aggregation { smoothed: false }));
    }
}

/// New values give the cycle of a new hierarchy with the same P, and CG takes as many iterations as with f64.
fn refresh<S: Coarsen + 'static>(make: Make<S>, has: bool) {
    let (a, other) = (diffusion(14, 10.0), scaled(&diffusion(14, 10.0), 3.0));
    let (n, how) =
        (a.rows(), MultilevelOptions { compute: PrecondPrecision::F32, ..MultilevelOptions::default() });
    let space = make(n);
    let mut p = Multilevel::new(&space, &Terms::csr(&a).unwrap(), how).unwrap();
    let terms = Terms::csr(&other).unwrap();
    p.update_values(&terms, TermValues::from(&terms)).unwrap();
    assert_eq!(p.is_narrow(), has);
    let fresh = Multilevel::new(&space, &terms, how).unwrap();
    let x = Random(79).numbers(n);
    let d = distance(&applied(&space, &p, &x), &applied(&space, &fresh, &x));
    assert!(d <= 1e-6, "{d:e}");

    let operator = PointBlock::csr(&space, &other, Precision::F64).unwrap();
    let wide = Multilevel::new(&space, &terms, MultilevelOptions::default()).unwrap();
    let iterations = [&wide, &p].map(|p| {
        let mut cg = Cg::new(&space, CgOptions::default()).unwrap();
        let (mut b, mut to) = (space.vector().unwrap(), space.vector().unwrap());
        space.write(&x, &mut b).unwrap();
        let stop = Stop { rtol: 1e-11, ..Stop::DEFAULT };
        let history = cg.solve(&space, &operator, Some(p), &b, &mut to, &stop, &mut ()).unwrap();
        assert_eq!(history.outcome, Outcome::Converged);
        history.iterations
    });
    assert!(iterations[1] <= iterations[0] + 1, "{iterations:?}");
}

/// Diagonals from 1e-30 to 1e30 exceed the range of a cycle in f32.
fn range<S: Coarsen + 'static>(make: Make<S>) {
    let a = diffusion(12, 1.0);
    let n = a.rows();
    let size = |i: usize| 10f64.powf(30.0 - 60.0 * i as f64 / n as f64);
    let mut values = a.values().to_vec();
    for i in 0..n {
        for e in a.row_ptr()[i]..a.row_ptr()[i + 1] {
            values[e] *= (size(i) * size(a.col()[e] as usize)).sqrt();
        }
    }
    let a = Csr::new(n, n, a.row_ptr().to_vec(), a.col().to_vec(), values).unwrap();
    let (space, terms) = (make(n), Terms::csr(&a).unwrap());
    let how = MultilevelOptions { compute: PrecondPrecision::F32, ..MultilevelOptions::default() };
    let narrow = Multilevel::new(&space, &terms, how).unwrap();
    let wide = Multilevel::new(&space, &terms, MultilevelOptions::default()).unwrap();
    assert!(!narrow.is_narrow());
    let x = Random(80).numbers(n);
    assert_eq!(applied(&space, &narrow, &x), applied(&space, &wide, &x));
}

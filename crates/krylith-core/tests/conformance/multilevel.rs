//! Coarse levels: cycles against dense algebra, and what methods make of them.

use super::solver::laplace;
use super::{Make, applied};
use crate::common::*;
use krylith_core::matrix::{Bsr, Csr, Dense, KroneckerSum};
use krylith_core::method::{Cg, CgForm, CgOptions, Gmres, GmresOptions, Method};
use krylith_core::operator::{LinearOperator, PointBlock, TermValues, Terms};
use krylith_core::precond::{
    Coarsen, CoarsenKind, Coarsening, Cycle, Multilevel, MultilevelOptions, Smoothing,
};
use krylith_core::{History, Outcome, Precision, Stop};

/// Every way to coarsen.
pub const KINDS: [CoarsenKind; 3] = [
    CoarsenKind::Classical,
    CoarsenKind::Aggregation { smoothed: true },
    CoarsenKind::Aggregation { smoothed: false },
];

const SMOOTHERS: [Smoothing; 6] = [
    Smoothing::Jacobi { sweeps: 1 },
    Smoothing::Jacobi { sweeps: 3 },
    Smoothing::Chebyshev { degree: 1 },
    Smoothing::Chebyshev { degree: 2 },
    Smoothing::Chebyshev { degree: 4 },
    Smoothing::Ildu { sweeps: 2 },
];

/// What is taken where nothing more is said.
pub fn options(kind: CoarsenKind) -> MultilevelOptions {
    MultilevelOptions { coarsening: Coarsening::of(kind), ..MultilevelOptions::default() }
}

/// Diffusion on a grid of `side`³ nodes, coefficients of cells up to a factor `contrast` apart.
pub fn diffusion(side: usize, contrast: f64) -> Csr {
    let n = side * side * side;
    let mut rng = Random(9);
    let k: Vec<f64> = (0..n).map(|_| contrast.powf(0.5 * rng.number())).collect();
    let mut triplets = Vec::new();
    for i in 0..n {
        let at = [i % side, i / side % side, i / side / side];
        let mut diagonal = 0.0;
        for (axis, step) in [(0, 1), (1, side), (2, side * side)] {
            for up in [false, true] {
                let inside = if up { at[axis] + 1 < side } else { at[axis] > 0 };
                let j = if up { i + step } else { i.wrapping_sub(step) };
                let v = if inside { 2.0 / (1.0 / k[i] + 1.0 / k[j]) } else { 2.0 * k[i] };
                // Dirichlet at both ends of x, nothing passes elsewhere.
                if inside {
                    triplets.push((i as u32, j as u32, -v));
                }
                if inside || axis == 0 {
                    diagonal += v;
                }
            }
        }
        triplets.push((i as u32, i as u32, diagonal));
    }
    Csr::from_triplets(n, n, &triplets).unwrap()
}

/// A cycle in dense algebra: everything but P is made here from the definition.
struct Plain {
    levels: Vec<PlainLevel>,
    options: MultilevelOptions,
}

struct PlainLevel {
    a: Mat,
    /// (D + ℓ1)⁻¹ by blocks.
    d: Mat,
    p: Option<Mat>,
}

impl Plain {
    /// `a` is the system, P those of the hierarchy.
    fn new<S: Coarsen>(hierarchy: &Multilevel<S>, a: Mat, order: usize) -> Self {
        let mut a = Some(a);
        let levels = hierarchy.levels().iter().map(|level| {
            let own = a.take().unwrap();
            let p = level.transfer().map(|t| wide(&t.prolongation, order));
            a = p.as_ref().map(|p| product(&transpose(p), &product(&own, p)));
            PlainLevel { d: l1_inverse(&own, order), a: own, p }
        });
        Self { levels: levels.collect(), options: *hierarchy.options() }
    }

    /// The smoother to a given x; Chebyshev's polynomial by its roots.
    fn smooth(&self, level: &PlainLevel, b: &[f64], x: &mut [f64]) {
        let left = Smoothing::LEFT;
        let steps: Vec<f64> = match self.options.smoothing {
            Smoothing::Jacobi { sweeps } => vec![1.0; sweeps],
            Smoothing::Chebyshev { degree } => {
                let root = |k: usize| (std::f64::consts::PI * (k as f64 + 0.5) / degree as f64).cos();
                (0..degree).map(|k| 2.0 / (1.0 + left + (1.0 - left) * root(k))).collect()
            }
            Smoothing::Ildu { .. } | Smoothing::Ffc { .. } => unreachable!("it has no dense twin here"),
        };
        for step in steps {
            let ax = multiply(&level.a, x);
            let r: Vec<f64> = b.iter().zip(ax).map(|(b, ax)| b - ax).collect();
            x.iter_mut().zip(multiply(&level.d, &r)).for_each(|(x, z)| *x += step * z);
        }
    }

    fn rest(&self, k: usize, b: &[f64], x: &[f64]) -> Vec<f64> {
        b.iter().zip(multiply(&self.levels[k].a, x)).map(|(b, ax)| b - ax).collect()
    }

    fn cycle(&self, k: usize, b: &[f64]) -> Vec<f64> {
        let level = &self.levels[k];
        let Some(p) = &level.p else { return solve(&level.a, b) };
        let mut x = vec![0.0; b.len()];
        self.smooth(level, b, &mut x);
        let coarse = multiply(&transpose(p), &self.rest(k, b, &x));
        let correction = multiply(p, &self.below(k + 1, &coarse));
        x.iter_mut().zip(correction).for_each(|(x, c)| *x += c);
        self.smooth(level, b, &mut x);
        x
    }

    /// What the cycle above takes for the solution on level k.
    fn below(&self, k: usize, b: &[f64]) -> Vec<f64> {
        let c = self.cycle(k, b);
        // The last level is solved; twice or once is the same.
        if self.options.cycle == Cycle::V || self.levels[k].p.is_none() {
            return c;
        }
        if self.options.cycle == Cycle::W {
            let d = self.cycle(k, &self.rest(k, b, &c));
            return c.iter().zip(d).map(|(c, d)| c + d).collect();
        }
        // The best of span{c, d} in the norm of A, by its 2×2 system.
        let v = multiply(&self.levels[k].a, &c);
        let alpha = dot(&c, b) / dot(&c, &v);
        let r: Vec<f64> = b.iter().zip(&v).map(|(b, v)| b - alpha * v).collect();
        let d = self.cycle(k, &r);
        let w = multiply(&self.levels[k].a, &d);
        let gram = Mat::from_fn(2, 2, |i, j| dot([&c, &d][i], [&v, &w][j]));
        let shares = solve(&gram, &[dot(&c, b), dot(&d, b)]);
        c.iter().zip(d).map(|(c, d)| shares[0] * c + shares[1] * d).collect()
    }
}

/// P ⊗ I.
fn wide(p: &Bsr, order: usize) -> Mat {
    let mut out = Mat::zeros(p.rows() * order, p.columns() * order);
    for i in 0..p.rows() {
        for e in p.row_ptr()[i]..p.row_ptr()[i + 1] {
            for k in 0..order {
                out[(i * order + k, p.col()[e] as usize * order + k)] = p.values()[e];
            }
        }
    }
    out
}

/// Inverses of the diagonal blocks, each row's ℓ1 norm outside of them added to its diagonal.
fn l1_inverse(a: &Mat, order: usize) -> Mat {
    let n = a.nrows();
    let mut out = Mat::zeros(n, n);
    for node in 0..n / order {
        let place = |k: usize| node * order + k;
        let block = Mat::from_fn(order, order, |r, c| {
            let outside = (0..n).filter(|j| j / order != node).map(|j| a[(place(r), j)].abs()).sum::<f64>();
            let own = a[(place(r), place(c))];
            if r == c { own + outside.copysign(own) } else { own }
        });
        for c in 0..order {
            let unit: Vec<f64> = (0..order).map(|k| f64::from(u8::from(k == c))).collect();
            solve(&block, &unit).iter().enumerate().for_each(|(r, v)| out[(place(r), place(c))] = *v);
        }
    }
    out
}

/// Systems in dense blocks, with stages, with other numbers, symmetric and not.
fn systems(rng: &mut Random) -> Vec<(&'static str, KroneckerSum)> {
    let one = |a: Bsr| {
        let zero = Dense::new(1, 1, vec![0.0]).unwrap();
        KroneckerSum::new(Dense::identity(1), zero, 1.0, a.clone(), a).unwrap()
    };
    let scalar = Bsr::from_csr(&laplace(5), 1).unwrap();
    let jumps = Bsr::from_csr(&diffusion(5, 1e4), 1).unwrap();
    let mut all = vec![("laplace", one(scalar)), ("jumps", one(jumps))];
    for (what, b, s) in [("blocks of 3", 3, 1), ("blocks of 5", 5, 1), ("stages", 1, 3), ("both", 2, 2)] {
        let mut k = super::distributed::grid(b, s, 4);
        k.l.values_mut().iter_mut().for_each(|v| *v *= 1.0 + 0.1 * rng.number());
        all.push((what, k));
    }
    all
}

/// Every cycle, coarsening and smoother compared with dense algebra with the same P; then with other values
/// and the same P.
pub fn cycles_match_dense_algebra<S: Coarsen>(make: Make<S>) {
    let mut rng = Random(71);
    for (what, mut k) in systems(&mut rng) {
        let order = k.m.block() * k.stages();
        let space = make(k.rows());
        for kind in KINDS {
            for (i, smoothing) in SMOOTHERS[..5].iter().enumerate() {
                let cycle = [Cycle::V, Cycle::W, Cycle::K][i % 3];
                // K-cycles of the reference are those of symmetric systems.
                if cycle == Cycle::K && order > 1 {
                    continue;
                }
                let coarsest = if what == "laplace" { 60 } else { 12 * order };
                let how = MultilevelOptions { cycle, smoothing: *smoothing, coarsest, ..options(kind) };
                let mut p = Multilevel::new(&space, &Terms::kronecker(&k), how).unwrap();
                assert!(p.levels().len() > 1, "{what}, {kind:?}");
                let x = rng.numbers(k.rows());
                for round in 0..2 {
                    let expected = Plain::new(&p, dense(&k), order).cycle(0, &x);
                    let d = distance(&applied(&space, &p, &x), &expected);
                    assert!(d <= 1e-10, "{what}, {how:?}, round {round}: {d:e}");
                    let key = LinearOperator::<S>::key(&p);
                    for m in [&mut k.m, &mut k.l] {
                        m.values_mut().iter_mut().for_each(|v| *v *= 2.0);
                    }
                    let terms = Terms::kronecker(&k);
                    p.update_values(&terms, TermValues::from(&terms)).unwrap();
                    let again = Plain::new(&p, dense(&k), order).cycle(0, &x);
                    let d = distance(&applied(&space, &p, &x), &again);
                    assert!(d <= 1e-10, "{what}, {how:?}, new values, round {round}: {d:e}");
                    assert!(round == 0 || key == LinearOperator::<S>::key(&p), "{what}, {how:?}");
                }
            }
        }
    }
}

/// Values that differ by more than a factor, with the P of the first values; and a fresh hierarchy for values
/// that differ by a factor.
pub fn hierarchies_are_refreshed<S: Coarsen>(make: Make<S>) {
    let mut rng = Random(72);
    for (what, mut k) in systems(&mut rng) {
        let (order, space, x) = (k.m.block() * k.stages(), make(k.rows()), rng.numbers(k.rows()));
        for kind in KINDS {
            let smoothing = Smoothing::Chebyshev { degree: 2 };
            let how = MultilevelOptions { smoothing, coarsest: 12 * order, ..options(kind) };
            let mut p = Multilevel::new(&space, &Terms::kronecker(&k), how).unwrap();
            for round in 0..3 {
                k.tau *= 0.9;
                for m in [&mut k.m, &mut k.l] {
                    m.values_mut().iter_mut().for_each(|v| *v *= 1.0 + 0.05 * rng.number());
                }
                let terms = Terms::kronecker(&k);
                p.update_values(&terms, TermValues::from(&terms)).unwrap();
                let expected = Plain::new(&p, dense(&k), order).cycle(0, &x);
                let d = distance(&applied(&space, &p, &x), &expected);
                assert!(d <= 1e-10, "{what}, {kind:?}, round {round}: {d:e}");
            }
            // Powers of two change no weight.
            let fresh = Multilevel::new(&space, &Terms::kronecker(&k), how).unwrap();
            let first = applied(&space, &fresh, &x);
            let mut kept = fresh;
            for m in [&mut k.m, &mut k.l] {
                m.values_mut().iter_mut().for_each(|v| *v *= 4.0);
            }
            let terms = Terms::kronecker(&k);
            kept.update_values(&terms, TermValues::from(&terms)).unwrap();
            let fresh = Multilevel::new(&space, &terms, how).unwrap();
            let (again, fresh) = (applied(&space, &kept, &x), applied(&space, &fresh, &x));
            assert_eq!(again, fresh, "{what}, {kind:?}");
            assert!(distance(&again.iter().map(|v| 4.0 * v).collect::<Vec<_>>(), &first) < 1e-12, "{what}");
            let wrong = Terms::new(terms.terms()[..1].to_vec()).unwrap();
            assert!(kept.update_values(&wrong, TermValues::from(&wrong)).is_err(), "{what}");
        }
    }
}

/// uᵀ M v = vᵀ M u of every smoother, and uᵀ M u > 0.
pub fn cycles_are_symmetric<S: Coarsen>(make: Make<S>) {
    let mut rng = Random(73);
    let a = diffusion(12, 1e4);
    let (terms, space) = (Terms::csr(&a).unwrap(), make(a.rows()));
    let (u, v) = (rng.numbers(a.rows()), rng.numbers(a.rows()));
    for kind in KINDS {
        for smoothing in SMOOTHERS {
            for cycle in [Cycle::V, Cycle::W] {
                let how = MultilevelOptions { cycle, smoothing, coarsest: 30, ..options(kind) };
                let p = Multilevel::new(&space, &terms, how).unwrap();
                let (mu, mv) = (applied(&space, &p, &u), applied(&space, &p, &v));
                let difference = (dot(&u, &mv) - dot(&v, &mu)).abs();
                assert!(difference <= 1e-10 * norm(&u) * norm(&mv), "{how:?}: {difference:e}");
                assert!(dot(&u, &mu) > 0.0 && dot(&v, &mv) > 0.0, "{how:?}");
            }
        }
    }
}

/// Solves, small systems twice, the second time from what was recorded.
pub fn solved<S: Coarsen>(
    space: &S,
    a: &PointBlock<S>,
    p: &Multilevel<S>,
    method: &mut dyn Method<S>,
    rtol: f64,
    b: &[f64],
) -> (Vec<f64>, History) {
    let (mut db, mut dx) = (space.vector().unwrap(), space.vector().unwrap());
    space.write(b, &mut db).unwrap();
    let mut first: Option<History> = None;
    let stop = Stop { rtol, max_iters: 200, ..Stop::default() };
    for _ in 0..if b.len() > 10_000 { 1 } else { 2 } {
        space.write(&vec![0.0; b.len()], &mut dx).unwrap();
        let history = method.solve(space, a, Some(p), &db, &mut dx, &stop, &mut ()).unwrap();
        assert_eq!(history, first.get_or_insert(history.clone()), "a second solve differs");
    }
    let mut x = vec![0.0; b.len()];
    space.read(&dx, &mut x).unwrap();
    (x, first.unwrap())
}

/// Iterations of CG with a right-hand side of ones, to 1e-8.
fn iterations<S: Coarsen>(make: Make<S>, a: &Csr, how: MultilevelOptions, form: CgForm) -> usize {
    let (terms, space) = (Terms::csr(a).unwrap(), make(a.rows()));
    let operator = PointBlock::new(&space, &terms, Precision::F64, false).unwrap();
    let p = Multilevel::new(&space, &terms, how).unwrap();
    let mut cg = Cg::new(&space, CgOptions { form }).unwrap();
    let b = vec![1.0; a.rows()];
    let (x, history) = solved(&space, &operator, &p, &mut cg, 1e-8, &b);
    assert_eq!(history.outcome, Outcome::Converged, "{how:?}");
    let ax = times(a, &x);
    assert!(distance(&ax, &b) <= 1.01e-8, "{how:?}: {:e}", distance(&ax, &b));
    history.iterations
}

/// Iterations that do not grow with the system, whatever its coefficients.
pub fn iterations_do_not_grow<S: Coarsen>(make: Make<S>) {
    for contrast in [1.0, 1e6] {
        for (kind, most) in [
            (CoarsenKind::Classical, 25),
            (CoarsenKind::Aggregation { smoothed: true }, 40),
            (CoarsenKind::Aggregation { smoothed: false }, 40),
        ] {
            let smoothed = !matches!(kind, CoarsenKind::Aggregation { smoothed: false });
            let (cycle, form) =
                if smoothed { (Cycle::V, CgForm::Textbook) } else { (Cycle::K, CgForm::Flexible) };
            let how = MultilevelOptions { cycle, ..options(kind) };
            let found = [16, 26].map(|side| iterations(make, &diffusion(side, contrast), how, form));
            assert!(found[1] <= most, "{kind:?}, contrast {contrast:e}: {found:?} iterations");
            // Aggregates of jumping coefficients are the exception.
            let grows = contrast > 1.0 && kind != KINDS[0];
            assert!(grows || found[1] <= found[0] + 3, "{kind:?}, contrast {contrast:e}: {found:?}");
        }
    }
}

/// Every smoother solves, ILDU in fewer iterations than one sweep of Jacobi, and levels in f32 reach the same
/// tolerance.
pub fn smoothers_precondition<S: Coarsen>(make: Make<S>) {
    let a = diffusion(20, 1e3);
    let of = |smoothing, precision| {
        let how = MultilevelOptions { smoothing, precision, ..options(CoarsenKind::Classical) };
        iterations(make, &a, how, CgForm::Textbook)
    };
    let found = SMOOTHERS.map(|smoothing| of(smoothing, Precision::F64));
    assert!(found[5] < found[0] && found[4] < found[2] && found[1] < found[0], "{found:?}");
    let rounded = of(Smoothing::Chebyshev { degree: 2 }, Precision::F32);
    assert!(rounded.abs_diff(found[3]) <= 1, "{rounded} with levels in f32, {}", found[3]);
}

/// Blocks and stages, not symmetric, with GMRES: every way of coarsening and every cycle.
pub fn systems_of_blocks<S: Coarsen>(make: Make<S>) {
    let mut rng = Random(74);
    for (b, s) in [(3, 1), (4, 2), (1, 2), (5, 1), (2, 3)] {
        let k = super::distributed::grid(b, s, 9);
        let (terms, space, rhs) = (Terms::kronecker(&k), make(k.rows()), rng.numbers(k.rows()));
        let a = PointBlock::new(&space, &terms, Precision::F64, false).unwrap();
        for (kind, cycle) in
            [(KINDS[0], Cycle::V), (KINDS[1], Cycle::V), (KINDS[1], Cycle::W), (KINDS[2], Cycle::K)]
        {
            let how = MultilevelOptions { cycle, coarsest: 50 * b * s, ..options(kind) };
            let p = Multilevel::new(&space, &terms, how).unwrap();
            let nodes: Vec<usize> = p.levels().iter().map(|level| level.nodes()).collect();
            assert!(nodes.len() > 1, "b={b} s={s} {how:?}: {nodes:?}");
            assert!(!(cycle == Cycle::K && p.is_symmetric()), "b={b} s={s} {how:?}: {nodes:?}");
            let options = GmresOptions { flexible: cycle == Cycle::K, ..GmresOptions::default() };
            let mut gmres = Gmres::new(&space, options).unwrap();
            let (x, history) = solved(&space, &a, &p, &mut gmres, 1e-8, &rhs);
            assert_eq!(history.outcome, Outcome::Converged, "b={b} s={s} {how:?}");
            assert!(distance(&by_rows(&k, &x), &rhs) <= 1.01e-8, "b={b} s={s} {how:?}");
            assert!(history.iterations <= 40, "b={b} s={s} {how:?}: {}", history.iterations);
        }
    }
}

/// One unknown, fewer than the last level has, nothing coupled, empty, singular, and levels that are limited.
pub fn small_and_odd_systems<S: Coarsen>(make: Make<S>) {
    let mut rng = Random(75);
    let diagonal = |n: usize| {
        let entries: Vec<_> = (0..n).map(|i| (i as u32, i as u32, 1.0 + i as f64)).collect();
        Csr::from_triplets(n, n, &entries).unwrap()
    };
    for a in [diagonal(1), diagonal(0), laplace(3), diagonal(300), laplace(7)] {
        let (space, x) = (make(a.rows()), rng.numbers(a.rows()));
        for kind in KINDS {
            let p = Multilevel::new(&space, &Terms::csr(&a).unwrap(), options(kind)).unwrap();
            assert!(p.levels().len() == 1 && p.levels()[0].is_direct());
            let y = applied(&space, &p, &x);
            assert!(distance(&times(&a, &y), &x) <= 1e-10 || a.rows() == 0, "{} rows, {kind:?}", a.rows());
        }
    }
    // Nothing is coupled: no level below, and too large to be inverted.
    let a = diagonal(3000);
    let (space, x) = (make(3000), rng.numbers(3000));
    for kind in KINDS {
        for smoothing in SMOOTHERS {
            let how = MultilevelOptions { smoothing, ..options(kind) };
            let p = Multilevel::new(&space, &Terms::csr(&a).unwrap(), how).unwrap();
            assert!(p.levels().len() == 1 && !p.levels()[0].is_direct(), "{how:?}");
            let d = distance(&times(&a, &applied(&space, &p, &x)), &x);
            // Ten times Chebyshev's polynomial at the end of its interval; the others are exact here.
            let most = match smoothing {
                Smoothing::Chebyshev { degree } => {
                    let sigma: f64 = (1.0 + Smoothing::LEFT) / (1.0 - Smoothing::LEFT);
                    (degree as f64 * sigma.acosh()).cosh().powi(-10) * (1.0 + 1e-6)
                }
                _ => 1e-12,
            };
            assert!(d <= most, "{how:?}: {d:e}");
        }
    }
    // No boundary: the last level is singular, and CG converges on what can be solved.
    let mut triplets = Vec::new();
    let side = 30;
    for i in 0..side * side {
        for (there, j) in [(i % side + 1 < side, i + 1), (i + side < side * side, i + side)] {
            if there {
                let (i, j) = (i as u32, j as u32);
                triplets.extend([(i, j, -1.0), (j, i, -1.0), (i, i, 1.0), (j, j, 1.0)]);
            }
        }
    }
    let a = Csr::from_triplets(side * side, side * side, &triplets).unwrap();
    let (terms, space) = (Terms::csr(&a).unwrap(), make(a.rows()));
    let operator = PointBlock::new(&space, &terms, Precision::F64, false).unwrap();
    let b: Vec<f64> = (0..a.rows()).map(|i| if i % 2 == 0 { 1.0 } else { -1.0 }).collect();
    for kind in KINDS {
        let p = Multilevel::new(&space, &terms, options(kind)).unwrap();
        assert_eq!(p.levels().iter().map(|level| level.dropped()).sum::<usize>(), 1, "{kind:?}");
        let mut cg = Cg::new(&space, CgOptions { form: CgForm::Flexible }).unwrap();
        let (_, history) = solved(&space, &operator, &p, &mut cg, 1e-8, &b);
        assert!(history.outcome == Outcome::Converged && history.iterations < 40, "{kind:?}: {history:?}");
    }
    let limited = MultilevelOptions { levels: 2, coarsest: 1, ..options(KINDS[0]) };
    assert_eq!(Multilevel::new(&space, &terms, limited).unwrap().levels().len(), 2);
    let wide = Csr::from_triplets(2, 3, &[(0, 0, 1.0), (1, 1, 1.0)]).unwrap();
    assert!(Multilevel::new(&make(2), &Terms::csr(&wide).unwrap(), limited).is_err());
}

//! What every method must do: one table of outcomes, and CG against a direct solve and the textbook.

use super::{Make, apply};
use crate::common::*;
use krylith_core::matrix::{Bsr, Csr};
use krylith_core::method::cg;
use krylith_core::method::{
    Bicgstab, BicgstabOptions, Cbcg, CbcgBasis, CbcgOptions, Cg, CgForm, CgOptions, Gmres, GmresOptions,
    Method, Minres, Orthogonalization, Reductions,
};
use krylith_core::operator::{Dots, LinearOperator, PointBlock, PointBlockSum, Terms};
use krylith_core::precond::{BlockDiagonal, BlockJacobi};
use krylith_core::space::{FLAGS, Space};
use krylith_core::{History, Observer, Outcome, Precision, Progress, Result, Stop};
use std::cell::{Cell, RefCell};
use std::ops::ControlFlow;

pub const CG_FORMS: [CgForm; 4] =
    [CgForm::Textbook, CgForm::OneReduction, CgForm::Flexible, CgForm::Pipelined];

/// An operator that works on the host: the caller's closure, on any device.
pub struct OnHost<F>(pub F);

impl<S: Space, F: Fn(&[f64], &mut [f64])> LinearOperator<S> for OnHost<F> {
    fn apply(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        let (mut from, mut to) = (vec![0.0; space.len()], vec![0.0; space.len()]);
        space.read(x, &mut from)?;
        self.0(&from, &mut to);
        space.write(&to, y)
    }
    fn key(&self) -> u64 {
        0
    }
    fn bytes(&self) -> u64 {
        0
    }
    fn recordable(&self) -> bool {
        false
    }
}

/// Every method in every form, by name.
pub fn methods<S: Space + 'static>(space: &S) -> Vec<(String, Box<dyn Method<S>>)> {
    let mut all: Vec<(String, Box<dyn Method<S>>)> = Vec::new();
    for orthogonalization in [Orthogonalization::Lowsync, Orthogonalization::Cgs2, Orthogonalization::Mgs] {
        let options = GmresOptions { restart: 12, orthogonalization, ..GmresOptions::default() };
        all.push((format!("gmres {orthogonalization:?}"), Box::new(Gmres::new(space, options).unwrap())));
        let options = GmresOptions { flexible: true, ..options };
        all.push((format!("fgmres {orthogonalization:?}"), Box::new(Gmres::new(space, options).unwrap())));
    }
    for reductions in [Reductions::Merged, Reductions::Classical] {
        let method = Bicgstab::new(space, BicgstabOptions { reductions, complex: false }).unwrap();
        all.push((format!("bicgstab {reductions:?}"), Box::new(method)));
    }
    for form in CG_FORMS {
        all.push((format!("cg {form:?}"), Box::new(Cg::new(space, CgOptions { form }).unwrap())));
    }
    for (steps, basis) in [(1, CbcgBasis::Chebyshev), (12, CbcgBasis::Chebyshev), (5, CbcgBasis::Monomial)] {
        let method = Cbcg::new(space, CbcgOptions { steps, basis }).unwrap();
        all.push((format!("cbcg {steps} {basis}"), Box::new(method)));
    }
    all.push(("minres".into(), Box::new(Minres::new(space, ()).unwrap())));
    all
}

/// −u″ on n points.
pub fn line(n: usize) -> Csr {
    let entry = |i: usize, j: usize, v: f64| (i as u32, j as u32, v);
    let mut entries = Vec::new();
    for i in 0..n {
        entries.push(entry(i, i, 2.0));
        if i > 0 {
            entries.extend([entry(i, i - 1, -1.0), entry(i - 1, i, -1.0)]);
        }
    }
    Csr::from_triplets(n, n, &entries).unwrap()
}

/// Breaks at the first chance from an iteration on.
struct Impatient(usize);
impl Observer for Impatient {
    fn progress(&mut self, p: Progress) -> ControlFlow<()> {
        if p.iteration >= self.0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

/// A history without its curve.
pub fn brief(h: &History) -> String {
    let (outcome, last) = (h.outcome, h.residuals.last());
    format!("{outcome} after {} iterations at {last:?}, {:?}", h.iterations, h.reason)
}

const N: usize = 40;

/// A solve from zero, checked for what holds of every solve.
fn solve_from_zero<S: Space>(
    space: &S,
    method: &mut dyn Method<S>,
    a: &dyn LinearOperator<S>,
    p: Option<&dyn LinearOperator<S>>,
    rhs: &[f64],
    stop: Stop,
    observer: &mut dyn Observer,
    what: &str,
) -> History {
    let (mut b, mut x) = (space.vector().unwrap(), space.vector().unwrap());
    space.write(rhs, &mut b).unwrap();
    let history = method.solve(space, a, p, &b, &mut x, &stop, observer).unwrap().clone();
    assert_eq!(history.residuals.len(), history.iterations + 1, "{what}: {}", brief(&history));
    assert_eq!(
        history.reason.is_some(),
        history.outcome == Outcome::Breakdown,
        "{what}: {}",
        brief(&history)
    );
    let mut answer = vec![f64::NAN; N];
    space.read(&x, &mut answer).unwrap();
    assert!(answer.iter().all(|x| x.is_finite()), "{what}: x is not finite");
    history
}

/// Every method reaches each of its possible outcomes, also on a second solve, and gives its reason for a
/// breakdown.
pub fn every_method_reaches_every_outcome<S: PointBlockSum + BlockDiagonal + 'static>(make: Make<S>) {
    let space = make(N);
    let a = PointBlock::csr(&space, &line(N), Precision::F64).unwrap();
    let jacobi = BlockJacobi::new(&space, &Terms::csr(&line(N)).unwrap(), Precision::F64).unwrap();
    let cube =
        OnHost(|x: &[f64], y: &mut [f64]| y.iter_mut().zip(x).for_each(|(y, x)| *y = 1e-3 * x * x * x));
    // All that methods compute of this one and a b of ones is exact, in whatever order a device sums.
    let singular = OnHost(|x: &[f64], y: &mut [f64]| {
        y.copy_from_slice(x);
        y[N / 2..].fill(0.0);
    });
    let alternating = OnHost(|x: &[f64], y: &mut [f64]| {
        (0..N).for_each(|i| y[i] = if i % 2 == 0 { 1.0 + i as f64 } else { -1.0 } * x[i])
    });
    let calls = Cell::new(0);
    let spoilt = OnHost(|x: &[f64], y: &mut [f64]| {
        calls.set(calls.get() + 1);
        (0..N).for_each(|i| y[i] = (2.0 + (i as f64).sin()) * x[i]);
        if calls.get() == 4 {
            y[N / 2] = f64::NAN;
        }
    });
    let tight = Stop { rtol: 1e-12, ..Stop::default() };
    for (name, mut method) in methods(&space) {
        for round in 0..2 {
            calls.set(0);
            let mut case = |a: &dyn LinearOperator<S>, p, stop, observer: &mut dyn Observer, outcome| {
                let what = format!("{name}, {outcome}, round {round}");
                // No number that the linear systems meet is exact; the others are of few digits on purpose.
                let waves: Vec<f64> = (0..N).map(|i| 1.0 + 0.3 * (i as f64).sin()).collect();
                let rhs = if matches!(outcome, Outcome::Diverged | Outcome::Breakdown) {
                    &[1.0; N][..]
                } else {
                    &waves
                };
                let history = solve_from_zero(&space, &mut *method, a, p, rhs, stop, observer, &what);
                assert_eq!(history.outcome, outcome, "{what}: {}", brief(&history));
                history
            };
            let is_cg = name.starts_with("cg") || name.starts_with("cbcg");
            for p in [None, Some(&jacobi as &dyn LinearOperator<S>)] {
                let history = case(&a, p, tight, &mut (), Outcome::Converged);
                assert!(history.true_relative_residual <= 1e-12, "{name}: {}", brief(&history));
                let short = Stop { max_iters: 3, ..tight };
                assert_eq!(case(&a, p, short, &mut (), Outcome::MaxIterations).iterations, 3, "{name}");
                let none = Stop { max_iters: 0, ..tight };
                assert_eq!(case(&a, p, none, &mut (), Outcome::MaxIterations).iterations, 0, "{name}");
                let below = Stop { rtol: 1e-19, ..tight };
                case(&a, p, below, &mut (), Outcome::RoundingLimit);
                case(&a, p, tight, &mut Impatient(2), Outcome::Interrupted);
            }
            // A step of several products with a map that is not linear has no sums that mean anything.
            if !name.starts_with("cbcg") || name.starts_with("cbcg 1 ") {
                case(&cube, None, tight, &mut (), Outcome::Diverged);
            }
            case(&spoilt, None, tight, &mut (), Outcome::NotFinite);
            let why = case(&singular, None, tight, &mut (), Outcome::Breakdown).reason.unwrap();
            let expected = match name.split(' ').next() {
                Some("gmres" | "fgmres" | "cbcg" | "minres") => "the Krylov space cannot be extended",
                Some("bicgstab") => "pivot breakdown",
                _ => "the matrix is not definite",
            };
            assert!(why.starts_with(expected), "{name}: {why}");
            if is_cg {
                let why = case(&alternating, None, tight, &mut (), Outcome::Breakdown).reason.unwrap();
                assert!(why.starts_with("the matrix is not definite"), "{name}: {why}");
            }
            if is_cg || name == "minres" {
                let p: &dyn LinearOperator<S> = &alternating;
                let why = case(&a, Some(p), tight, &mut (), Outcome::Breakdown).reason.unwrap();
                assert!(why.contains("is not definite"), "{name}: {why}");
            }
        }
    }
}

/// What an operator writes to a column of a basis stands there, and nowhere else.
pub fn operators_write_to_columns<S: PointBlockSum>(make: Make<S>) {
    for n in [1, 33, 1000] {
        let space = make(n);
        let a = PointBlock::csr(&space, &line(n), Precision::F64).unwrap();
        let (numbers, mut x) = (Random(64).numbers(n), space.vector().unwrap());
        space.write(&numbers, &mut x).unwrap();
        let (mut basis, mut scalars) = (space.basis(3, Precision::F64).unwrap(), space.scalars(3).unwrap());
        space.with_column(&mut basis, 1, |column| a.apply(&space, &x, column)).unwrap();
        let mut product = space.vector().unwrap();
        a.apply(&space, &x, &mut product).unwrap();
        space.project(&basis, 0..3, &product, &mut scalars, 0).unwrap();
        let (mut dots, mut flags) = ([f64::NAN; 3], [0; FLAGS]);
        space.read_scalars(&scalars, 0, &mut dots, &mut flags).unwrap();
        let mut y = vec![0.0; n];
        space.read(&product, &mut y).unwrap();
        let square = dot(&y, &y);
        assert!((dots[1] - square).abs() <= 1e-13 * square, "n={n}: {dots:?} and {square}");
        assert_eq!((dots[0], dots[2]), (0.0, 0.0), "n={n}");
        let mut narrow = space.basis(2, Precision::F32).unwrap();
        assert!(space.with_column(&mut narrow, 0, |_| Ok(())).is_err(), "n={n}");
    }
}

/// A symmetric matrix with dominant diagonal, in blocks; the sign is that of its eigenvalues.
pub fn symmetric(rng: &mut Random, b: usize, n: usize, sign: f64) -> Bsr {
    let rows = n * b;
    let mut sums = vec![0.0; rows];
    let mut entries = Vec::new();
    for k in 0..6 * rows {
        let (i, j) = (k % rows, ((rng.number() + 1.0) * 0.5 * (rows - 1) as f64) as usize);
        let v = rng.number();
        if i != j {
            entries.extend([(i as u32, j as u32, sign * v), (j as u32, i as u32, sign * v)]);
            (sums[i], sums[j]) = (sums[i] + v.abs(), sums[j] + v.abs());
        }
    }
    entries.extend((0..rows).map(|i| (i as u32, i as u32, sign * (1.01 * sums[i] + 0.1))));
    Bsr::from_csr(&Csr::from_triplets(rows, rows, &entries).unwrap(), b).unwrap()
}

/// Positive and negative definite systems, all forms, with and without a preconditioner.
pub fn cg_matches_a_direct_solve<S: PointBlockSum + BlockDiagonal>(make: Make<S>) {
    let mut rng = Random(61);
    for (b, n) in [(1, 1), (1, 33), (3, 31), (4, 40), (8, 7)] {
        for sign in [1.0, -1.0] {
            let matrix = symmetric(&mut rng, b, n, sign);
            let rhs = rng.numbers(n * b);
            let space = make(n * b);
            let a = PointBlock::bsr(&space, &matrix, Precision::F64).unwrap();
            let jacobi = BlockJacobi::new(&space, &Terms::bsr(&matrix), Precision::F64).unwrap();
            let (mut db, mut dx) = (space.vector().unwrap(), space.vector().unwrap());
            space.write(&rhs, &mut db).unwrap();
            for form in CG_FORMS {
                for p in [None, Some(&jacobi as &dyn LinearOperator<S>)] {
                    let mut cg = Cg::new(&space, CgOptions { form }).unwrap();
                    let what = format!("b={b} n={n} sign={sign} {form:?} preconditioned={}", p.is_some());
                    let mut all: Vec<History> = Vec::new();
                    for _ in 0..3 {
                        space.write(&vec![0.0; n * b], &mut dx).unwrap();
                        let stop = Stop { rtol: 1e-11, ..Stop::default() };
                        all.push(cg.solve(&space, &a, p, &db, &mut dx, &stop, &mut ()).unwrap().clone());
                        assert_eq!(all[0], all[all.len() - 1], "{what}: a second solve differs");
                    }
                    let history = &all[0];
                    assert_eq!(history.outcome, Outcome::Converged, "{what}: {}", brief(history));
                    let one = matches!(form, CgForm::OneReduction | CgForm::Pipelined);
                    let each = if one { 1 } else { 2 };
                    assert_eq!(history.reductions, each * history.iterations, "{what}");
                    // The product with the answer, by the operator that was checked elsewhere.
                    let mut x = vec![0.0; n * b];
                    space.read(&dx, &mut x).unwrap();
                    let product = apply(&space, &a, &x, n * b);
                    assert!(distance(&product, &rhs) <= 1e-10, "{what}");
                }
            }
        }
    }
}

/// Hestenes and Stiefel's algorithm on arrays, line by line: ‖r‖/‖b‖ before and after `steps` iterations.
fn textbook(a: &Csr, inverse: &[f64], b: &[f64], steps: usize) -> Vec<f64> {
    let precondition = |r: &[f64]| -> Vec<f64> { r.iter().zip(inverse).map(|(r, d)| r * d).collect() };
    let mut r = b.to_vec();
    let mut z = precondition(&r);
    let mut p = z.clone();
    let mut rho = dot(&r, &z);
    let mut history = vec![1.0];
    for _ in 0..steps {
        let q = times(a, &p);
        let alpha = rho / dot(&p, &q);
        r.iter_mut().zip(&q).for_each(|(r, q)| *r -= alpha * q);
        z = precondition(&r);
        let next = dot(&r, &z);
        p.iter_mut().zip(&z).for_each(|(p, z)| *p = z + next / rho * *p);
        rho = next;
        history.push(norm(&r) / norm(b));
    }
    history
}

/// The first iterations of every form are the textbook's.
pub fn cg_follows_the_textbook<S: PointBlockSum>(make: Make<S>) {
    let n = 200;
    let (a, b) = (line(n), Random(62).numbers(n));
    let space = make(n);
    let operator = PointBlock::csr(&space, &a, Precision::F64).unwrap();
    let inverse: Vec<f64> = (0..n).map(|i| 1.0 / (1.0 + (i % 7) as f64)).collect();
    let p = OnHost(|x: &[f64], y: &mut [f64]| (0..n).for_each(|i| y[i] = inverse[i] * x[i]));
    let steps = 20;
    let expected = [textbook(&a, &vec![1.0; n], &b, steps), textbook(&a, &inverse, &b, steps)];
    let (mut db, mut dx) = (space.vector().unwrap(), space.vector().unwrap());
    space.write(&b, &mut db).unwrap();
    for form in CG_FORMS {
        for (p, expected) in [None, Some(&p as &dyn LinearOperator<S>)].into_iter().zip(&expected) {
            space.write(&vec![0.0; n], &mut dx).unwrap();
            let mut cg = Cg::new(&space, CgOptions { form }).unwrap();
            let stop = Stop { rtol: 1e-14, max_iters: steps, atol: 0.0, ..Stop::DEFAULT };
            let history = cg.solve(&space, &operator, p, &db, &mut dx, &stop, &mut ()).unwrap();
            assert_eq!(history.iterations, steps, "{form:?}");
            for (j, (got, want)) in history.residuals.iter().zip(expected).enumerate() {
                assert!((got - want).abs() <= 1e-9 * want, "{form:?} iteration {j}: {got:e} and {want:e}");
            }
        }
    }
}

/// An operator that sums in the pass of its application, as far as the method can tell.
struct Summing<'a, S: Space>(&'a dyn LinearOperator<S>, Cell<usize>);

impl<S: Space> LinearOperator<S> for Summing<'_, S> {
    fn apply(&self, space: &S, x: &S::Vector, y: &mut S::Vector) -> Result<()> {
        self.0.apply(space, x, y)
    }
    fn apply_with_dots(
        &self,
        space: &S,
        x: &S::Vector,
        y: &mut S::Vector,
        scalars: &mut S::Scalars,
        sums: Dots,
    ) -> Result<bool> {
        self.0.apply(space, x, y)?;
        match sums {
            Dots::Xy(slot) => space.sweep(cg::curvature, scalars, [], [x, y], [], [slot])?,
            Dots::XxXy(slot) => space.sweep(cg::dots, scalars, [], [x, y], [], [slot, slot + 1])?,
        }
        self.1.set(self.1.get() + 1);
        Ok(true)
    }
    fn residual(
        &self,
        space: &S,
        b: &S::Vector,
        x: &S::Vector,
        r: &mut S::Vector,
        m: &mut S::Vector,
    ) -> Result<bool> {
        self.0.residual(space, b, x, r, m)
    }
    fn key(&self) -> u64 {
        self.0.key().rotate_left(7)
    }
    fn bytes(&self) -> u64 {
        self.0.bytes()
    }
}

/// Sums that an operator makes in its own pass take the place of the method's, and change no bit.
pub fn cg_takes_the_sums_of_operators<S: PointBlockSum + BlockDiagonal>(make: Make<S>) {
    let n = 3000;
    let (matrix, rhs) = (symmetric(&mut Random(65), 1, n, 1.0), Random(66).numbers(n));
    let space = make(n);
    let a = PointBlock::bsr(&space, &matrix, Precision::F64).unwrap();
    let jacobi = BlockJacobi::new(&space, &Terms::bsr(&matrix), Precision::F64).unwrap();
    let (summing_a, summing_p) = (Summing(&a, Cell::new(0)), Summing(&jacobi, Cell::new(0)));
    let (mut b, mut x) = (space.vector().unwrap(), space.vector().unwrap());
    space.write(&rhs, &mut b).unwrap();
    for form in CG_FORMS {
        let mut answers = Vec::new();
        for (a, p) in
            [(&a as &dyn LinearOperator<S>, &jacobi as &dyn LinearOperator<S>), (&summing_a, &summing_p)]
        {
            for max_iters in [1, 7, 8, 9, 1000] {
                let mut cg = Cg::new(&space, CgOptions { form }).unwrap();
                space.write(&vec![0.0; n], &mut x).unwrap();
                let stop = Stop { rtol: 1e-10, max_iters, atol: 0.0, ..Stop::DEFAULT };
                let history = cg.solve(&space, a, Some(p), &b, &mut x, &stop, &mut ()).unwrap();
                let mut answer = vec![0.0; n];
                space.read(&x, &mut answer).unwrap();
                answers.push((history.clone(), answer));
            }
        }
        assert_eq!(answers[4].0.outcome, Outcome::Converged, "{form}: {}", brief(&answers[4].0));
        assert!(answers[..5] == answers[5..], "{form}: sums of operators change the answer");
        let served = (summing_a.1.take() > 0, summing_p.1.take() > 0);
        let expected = match form {
            CgForm::Textbook | CgForm::Flexible => (true, true), // P of the second where it begins
            CgForm::OneReduction | CgForm::Pipelined => (false, false),
        };
        assert_eq!(served, expected, "{form}");
    }
}

/// With a preconditioner that changes between applications, each direction of the flexible form is conjugate
/// to the previous one, (A pₖ, pₖ₊₁) = 0; those of the textbook form are not.
pub fn flexible_cg_keeps_directions_conjugate<S: PointBlockSum>(make: Make<S>) {
    let (n, steps) = (120, 7); // of one batch: its end multiplies too
    let (matrix, rhs) = (line(n), Random(63).numbers(n));
    let space = make(n);
    let (factors, calls) = (RefCell::new(Vec::new()), Cell::new(0));
    let a = OnHost(|x: &[f64], y: &mut [f64]| {
        y.copy_from_slice(&times(&matrix, x));
        factors.borrow_mut().push(x.to_vec());
    });
    let p = OnHost(|x: &[f64], y: &mut [f64]| {
        calls.set(calls.get() + 1);
        (0..n).for_each(|i| y[i] = (1.0 + 0.5 * ((i * calls.get()) as f64).sin()) * x[i]);
    });
    let (mut b, mut x) = (space.vector().unwrap(), space.vector().unwrap());
    space.write(&rhs, &mut b).unwrap();
    let mut largest_cosine = |form| -> f64 {
        calls.set(0);
        factors.borrow_mut().clear();
        space.write(&vec![0.0; n], &mut x).unwrap();
        let mut cg = Cg::new(&space, CgOptions { form }).unwrap();
        let stop = Stop { rtol: 1e-12, max_iters: steps, atol: 0.0, ..Stop::DEFAULT };
        cg.solve(&space, &a, Some(&p), &b, &mut x, &stop, &mut ()).unwrap();
        let factors = factors.borrow();
        let directions = &factors[1..=steps]; // the first product was the residual's
        let cosine = |pair: &[Vec<f64>]| {
            let q = times(&matrix, &pair[0]);
            dot(&q, &pair[1]).abs() / (norm(&q) * norm(&pair[1]))
        };
        directions.windows(2).map(cosine).fold(0.0, f64::max)
    };
    let (flexible, textbook) = (largest_cosine(CgForm::Flexible), largest_cosine(CgForm::Textbook));
    assert!(flexible <= 1e-12, "flexible: {flexible:e}");
    assert!(textbook > 1e-3, "textbook: {textbook:e}");
}

/// Convection and diffusion on a line, whose diagonal varies.
fn uneven(n: usize) -> Csr {
    let entry = |i: usize, j: usize, v: f64| (i as u32, j as u32, v);
    let mut entries = Vec::new();
    for i in 0..n {
        entries.push(entry(i, i, 2.2 + 1.5 * (i as f64).sin().abs()));
        if i > 0 {
            entries.extend([entry(i, i - 1, -1.4), entry(i - 1, i, -0.8)]);
        }
        if i >= 20 {
            entries.push(entry(i, i - 20, 0.3));
        }
    }
    Csr::from_triplets(n, n, &entries).unwrap()
}

/// FGMRES reaches the true residual with a preconditioner that changes at every call, in as many iterations
/// with one reduction as with three. GMRES assumes a fixed preconditioner and fails in its first cycle.
pub fn fgmres_takes_preconditioners_that_vary<S: PointBlockSum>(make: Make<S>) {
    let n = 500;
    let (space, rhs) = (make(n), Random(70).numbers(n));
    let a = PointBlock::csr(&space, &uneven(n), Precision::F64).unwrap();
    let calls = Cell::new(0);
    let varying = OnHost(|x: &[f64], y: &mut [f64]| {
        calls.set(calls.get() + 1);
        let call = calls.get() as f64;
        (0..n).for_each(|i| y[i] = x[i] * (1.0 + 0.6 * (1.7 * call + 0.9 * i as f64).sin()));
    });
    let stop = Stop { rtol: 1e-10, max_iters: 120, ..Stop::default() };
    let solve = |options: GmresOptions| {
        calls.set(0);
        let (mut b, mut x) = (space.vector().unwrap(), space.vector().unwrap());
        space.write(&rhs, &mut b).unwrap();
        let mut method = Gmres::new(&space, options).unwrap();
        method.solve(&space, &a, Some(&varying), &b, &mut x, &stop, &mut ()).unwrap().clone()
    };
    let options = GmresOptions { restart: 120, flexible: true, ..GmresOptions::default() };
    let low = solve(options);
    assert!(low.outcome == Outcome::Converged && low.true_relative_residual <= 1e-10, "{}", brief(&low));
    for orthogonalization in [Orthogonalization::Cgs2, Orthogonalization::Mgs] {
        let other = solve(GmresOptions { orthogonalization, ..options });
        let (brief, what) = (brief(&other), format!("{orthogonalization:?}"));
        assert!(
            other.outcome == Outcome::Converged && other.true_relative_residual <= 1e-10,
            "{what}: {brief}"
        );
        assert!(
            low.iterations.abs_diff(other.iterations) <= 1,
            "{what}: {brief}; {} delayed",
            low.iterations
        );
    }
    let fixed = solve(GmresOptions { flexible: false, ..options });
    assert!(
        fixed.iterations > low.iterations + 1 || fixed.outcome != Outcome::Converged,
        "{}",
        brief(&fixed)
    );
    // Short cycles, and a basis in f32: the estimate of a cycle is worth less, and the true residual as much.
    for (restart, basis) in [(12, Precision::F64), (40, Precision::F32)] {
        let short = solve(GmresOptions { restart, basis, ..options });
        let what = format!("restart {restart}, {basis:?}: {}", brief(&short));
        assert!(short.true_relative_residual <= 1e-10 || short.iterations == 120, "{what}");
        assert!(short.true_relative_residual <= 1e-3, "{what}");
    }
}

/// With a preconditioner that stays the same FGMRES is GMRES.
pub fn fgmres_is_gmres_where_the_preconditioner_stays<S: PointBlockSum + BlockDiagonal>(make: Make<S>) {
    let n = 500;
    let (space, rhs) = (make(n), Random(71).numbers(n));
    let a = PointBlock::csr(&space, &uneven(n), Precision::F64).unwrap();
    let jacobi = BlockJacobi::new(&space, &Terms::csr(&uneven(n)).unwrap(), Precision::F64).unwrap();
    let stop = Stop { rtol: 1e-11, ..Stop::default() };
    for p in [None, Some(&jacobi as &dyn LinearOperator<S>)] {
        for restart in [10, 100] {
            for orthogonalization in
                [Orthogonalization::Lowsync, Orthogonalization::Cgs2, Orthogonalization::Mgs]
            {
                let solve = |flexible| {
                    let options =
                        GmresOptions { restart, orthogonalization, flexible, ..GmresOptions::default() };
                    let (mut b, mut x) = (space.vector().unwrap(), space.vector().unwrap());
                    space.write(&rhs, &mut b).unwrap();
                    let mut method = Gmres::new(&space, options).unwrap();
                    // The second solve replays what the first recorded.
                    method.solve(&space, &a, p, &b, &mut x, &stop, &mut ()).unwrap();
                    space.write(&vec![0.0; n], &mut x).unwrap();
                    let history = method.solve(&space, &a, p, &b, &mut x, &stop, &mut ()).unwrap().clone();
                    let mut answer = vec![0.0; n];
                    space.read(&x, &mut answer).unwrap();
                    (history, answer)
                };
                let ((fixed, x), (flexible, y)) = (solve(false), solve(true));
                let what =
                    format!("{restart} {orthogonalization:?}: {}, {}", brief(&fixed), brief(&flexible));
                assert!(flexible.outcome == Outcome::Converged, "{what}");
                assert!(fixed.iterations.abs_diff(flexible.iterations) <= 1, "{what}");
                assert!(distance(&x, &y) <= 1e-9, "{what}");
            }
        }
    }
}

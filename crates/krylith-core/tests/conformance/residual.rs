//! Requirements on the residual that certifies a solution, and the reports of a solve at the limits of double
//! precision.

use super::Make;
use super::distributed::{MakeShare, partitions};
use super::method::{OnHost, line, methods};
use crate::common::{Random, random_kronecker};
use krylith_core::comm::{Communicator, Team};
use krylith_core::matrix::{Bsr, Csr, KroneckerSum};
use krylith_core::method::{Gmres, GmresOptions, Orthogonalization};
use krylith_core::operator::{LinearOperator, PointBlock, PointBlockSum, Terms};
use krylith_core::partition::split;
use krylith_core::{Outcome, Precision, Stop};
use std::sync::Arc;

/// A system of whole numbers, and a right-hand side that is A x as far as it can be rounded.
struct Whole {
    k: KroneckerSum,
    b: Vec<f64>,
    x: Vec<f64>,
    /// b − A x, exactly.
    r: Vec<i128>,
    /// |b| + |A| |x|.
    m: Vec<f64>,
}

impl Whole {
    fn new(mut k: KroneckerSum, rng: &mut Random) -> Self {
        let mut whole = |size: f64| (size * rng.number()).round();
        for a in [&mut k.m, &mut k.l] {
            a.values_mut().iter_mut().filter(|v| **v != 0.0).for_each(|v| *v = whole(1e6) + 0.0);
        }
        for c in [&mut k.a, &mut k.b] {
            for i in 0..c.rows() {
                (0..c.rows()).for_each(|j| c[(i, j)] = whole(9.0));
            }
        }
        k.tau = 1.0;
        let x: Vec<f64> = (0..k.rows()).map(|_| whole(4e7)).collect();
        let (mut sums, mut sizes) = (vec![0i128; x.len()], vec![0i128; x.len()]);
        for (c, a) in Terms::kronecker(&k).terms() {
            let (b, s) = (a.block(), c.rows());
            for i in 0..a.block_rows() {
                for p in a.row_ptr()[i]..a.row_ptr()[i + 1] {
                    for (e, v) in a.block_values(p).iter().enumerate() {
                        for (row, column) in (0..s * s).map(|e| (e / s, e % s)) {
                            let x = x[(a.col()[p] as usize * b + e % b) * s + column];
                            let product = c[(row, column)] as i128 * *v as i128 * x as i128;
                            sums[(i * b + e / b) * s + row] += product;
                            sizes[(i * b + e / b) * s + row] += product.abs();
                        }
                    }
                }
            }
        }
        let b: Vec<f64> = sums.iter().map(|&sum| sum as f64).collect();
        let r = b.iter().zip(&sums).map(|(b, sum)| *b as i128 - sum).collect();
        let m = b.iter().zip(&sizes).map(|(b, size)| b.abs() + *size as f64).collect();
        Self { k, b, x, r, m }
    }

    /// What a device makes of the numbers that stand at `own` places of the whole.
    fn check<S: PointBlockSum>(&self, space: &S, terms: &Terms, own: &[usize], what: &str) {
        let pick = |v: &[f64]| own.iter().map(|&i| v[i]).collect::<Vec<f64>>();
        let a = PointBlock::new(space, terms, Precision::F64, false).unwrap();
        let [mut b, mut x, mut r, mut m] = [(); 4].map(|()| space.vector().unwrap());
        space.write(&pick(&self.b), &mut b).unwrap();
        space.write(&pick(&self.x), &mut x).unwrap();
        for poison in [&mut r, &mut m] {
            space.write(&vec![f64::NAN; own.len()], poison).unwrap();
        }
        // Twice: what is exchanged in between must not be mixed up.
        for _ in 0..2 {
            assert!(a.residual(space, &b, &x, &mut r, &mut m).unwrap(), "{what}");
        }
        let mut host = [vec![0.0; own.len()], vec![0.0; own.len()]];
        space.read(&r, &mut host[0]).unwrap();
        space.read(&m, &mut host[1]).unwrap();
        for (&i, (r, m)) in own.iter().zip(host[0].iter().zip(&host[1])) {
            let (expected, size) = (self.r[i] as f64, self.m[i]);
            let bound = f64::EPSILON * expected.abs() + 1e-27 * size;
            assert!((r - expected).abs() <= bound, "{what}, number {i}: {r:e}, not {expected:e}");
            assert!((m - size).abs() <= 1e-13 * size, "{what}, number {i}: magnitude {m:e}, not {size:e}");
        }
    }
}

/// Systems of whole numbers: every block size and number of stages, one pattern and two, structure inside the
/// blocks, and rows longer than a tile.
fn systems() -> Vec<(String, Whole)> {
    let mut rng = Random(81);
    let mut all = Vec::new();
    for b in 1..=8 {
        for s in 1..=4 {
            for same in [true, false] {
                let k = random_kronecker(&mut rng, b, s, 33, 4, same, false);
                all.push((format!("b={b} s={s} same={same}"), Whole::new(k, &mut rng)));
            }
        }
    }
    let mut k = random_kronecker(&mut rng, 3, 2, 40, 4, true, false);
    for a in [&mut k.m, &mut k.l] {
        for block in a.values_mut().chunks_exact_mut(9) {
            (0..9).filter(|e| e % 4 != 0).for_each(|e| block[e] = 0.0);
        }
    }
    all.push(("structure".into(), Whole::new(k, &mut rng)));
    for b in [1, 4] {
        let n = 2500;
        let (mut row_ptr, mut col) = (vec![0], Vec::new());
        for i in 0..n as u32 {
            if i == 7 {
                col.extend(0..n as u32)
            } else {
                col.extend([i])
            }
            row_ptr.push(col.len());
        }
        let values = vec![1.0; col.len() * b * b];
        let a = Bsr::new(b, n, n, row_ptr, col, values).unwrap();
        let mut k = random_kronecker(&mut rng, b, 1, 2, 1, true, false);
        (k.m, k.l) = (a.clone(), a);
        all.push((format!("a long row, b={b}"), Whole::new(k, &mut rng)));
    }
    all
}

/// A residual is rounded once, however much cancels, and its magnitudes are those of |b| + |A| |x|.
pub fn residuals_are_rounded_once<S: PointBlockSum>(make: Make<S>) {
    for (what, whole) in systems() {
        let own: Vec<usize> = (0..whole.b.len()).collect();
        whole.check(&make(own.len()), &Terms::kronecker(&whole.k), &own, &what);
    }
}

/// The same over ranks.
pub fn residuals_of_ranks_are_rounded_once<S: PointBlockSum>(sizes: &[usize], make: MakeShare<S>) {
    for (what, whole) in systems().iter().rev().step_by(7) {
        let (terms, run) = (Terms::kronecker(&whole.k), whole.k.m.block() * whole.k.a.rows());
        for &ranks in sizes {
            for (shape, partition) in partitions(terms.block_rows(), ranks) {
                let parts = split(&terms, &partition).unwrap();
                let work = |comm: Arc<dyn Communicator>| {
                    let part = &parts[comm.rank()];
                    let places = part.rows.iter().flat_map(|&i| i as usize * run..(i as usize + 1) * run);
                    let own: Vec<usize> = places.collect();
                    let space = make(&comm, own.len())?;
                    whole.check(&space, &part.terms, &own, &format!("{what}, {ranks} ranks, {shape}"));
                    Ok(())
                };
                Team::run(ranks, |comm| work(comm)).unwrap();
            }
        }
    }
}

/// Right-hand sides whose squares overflow or underflow are solved; an x that overflows double precision is
/// no solution.
pub fn numbers_far_from_one_are_solved<S: PointBlockSum + 'static>(make: Make<S>) {
    const N: usize = 20;
    let space = make(N);
    let diagonal = |v: f64| {
        let entries: Vec<_> = (0..N as u32).map(|i| (i, i, v)).collect();
        PointBlock::csr(&space, &Csr::from_triplets(N, N, &entries).unwrap(), Precision::F64).unwrap()
    };
    let laplacian = PointBlock::csr(&space, &line(N), Precision::F64).unwrap();
    let (five, tenth, seven) = (diagonal(5.0), diagonal(0.1), diagonal(7.0));
    let stop = Stop { rtol: 1e-10, ..Stop::default() };
    for (name, mut method) in methods(&space) {
        let mut run = |a: &PointBlock<S>, b: f64| {
            let (mut db, mut dx) = (space.vector().unwrap(), space.vector().unwrap());
            space.write(&[b; N], &mut db).unwrap();
            let history = method.solve(&space, a, None, &db, &mut dx, &stop, &mut ()).unwrap();
            let mut x = vec![f64::NAN; N];
            let (outcome, residual, reason) =
                (history.outcome, history.true_relative_residual, history.reason);
            space.read(&dx, &mut x).unwrap();
            (outcome, residual, reason, x)
        };
        for b in [1e-170, 1e-290, 1e-162, 1e160, 1e300, 3.0] {
            let (outcome, residual, _, x) = run(&five, b);
            assert_eq!(outcome, Outcome::Converged, "{name}, b = {b:e}");
            assert!(residual <= 1e-10, "{name}, b = {b:e}: {residual:e}");
            assert!(x.iter().all(|x| (x / b - 0.2).abs() <= 1e-10), "{name}, b = {b:e}: {:e}", x[0]);
            let (outcome, _, _, x) = run(&laplacian, b);
            assert_eq!(outcome, Outcome::Converged, "{name}, laplacian, b = {b:e}");
            // u(t) = t (N + 1 − t)/2 at the middle.
            assert!((x[9] / b - 55.0).abs() <= 1e-6, "{name}, laplacian, b = {b:e}: {:e}", x[9] / b);
        }
        // 1e309 is no number, and a seventh of 1e-322 has no digits.
        let (outcome, _, reason, _) = run(&tenth, 1e308);
        assert_eq!((outcome, reason), (Outcome::NotFinite, Some("x overflows double precision")), "{name}");
        let (outcome, residual, reason, x) = run(&seven, 1e-322);
        let small = "x is below the smallest normal number";
        assert_eq!((outcome, reason), (Outcome::RoundingLimit, Some(small)), "{name}");
        let true_residual = (1e-322 - 7.0 * x[0]).abs() / 1e-322;
        assert!((residual - true_residual).abs() < 1e-3 && residual > 1e-3, "{name}: {residual:e}");
        let (outcome, _, _, x) = run(&five, 0.0);
        assert_eq!((outcome, x), (Outcome::Converged, vec![0.0; N]), "{name}");
    }
}

/// Tolerances below what rounding of x allows are reported, with the x of a backward stable solve and the
/// bound.
pub fn the_limit_of_double_precision_is_named<S: PointBlockSum + 'static>(make: Make<S>) {
    // Columns of very different scales: |A||x| is far larger than b.
    let n = 40;
    let mut entries = Vec::new();
    for i in 0..n as u32 {
        entries.push((i, i, 1.0));
        if i + 1 < n as u32 {
            entries.push((i, i + 1, -1.7));
        }
    }
    let csr = Csr::from_triplets(n, n, &entries).unwrap();
    let space = make(n);
    let a = PointBlock::csr(&space, &csr, Precision::F64).unwrap();
    for (name, mut method) in methods(&space).into_iter().filter(|(name, _)| name.starts_with("gmres")) {
        let b: Vec<f64> = (0..n).map(|i| 1.0 + 0.3 * (i as f64).sin()).collect();
        let (mut db, mut dx) = (space.vector().unwrap(), space.vector().unwrap());
        space.write(&b, &mut db).unwrap();
        // Its inverse by back substitution on the host: the limit is met at once.
        let p = OnHost(|r: &[f64], z: &mut [f64]| {
            for i in (0..n).rev() {
                z[i] = r[i] + if i + 1 < n { 1.7 * z[i + 1] } else { 0.0 };
            }
        });
        let p: Option<&dyn LinearOperator<S>> = Some(&p);
        let stop = Stop { rtol: 1e-14, max_iters: 300, atol: 0.0, ..Stop::DEFAULT };
        let history = method.solve(&space, &a, p, &db, &mut dx, &stop, &mut ()).unwrap().clone();
        let (residual, rounding) = (history.true_relative_residual, history.rounding);
        assert_eq!(history.outcome, Outcome::RoundingLimit, "{name}: {residual:e}, rounding {rounding:e}");
        assert!(
            rounding > 1e-13 && residual <= 4.0 * rounding,
            "{name}: {residual:e}, rounding {rounding:e}"
        );
        assert!(history.iterations <= 40, "{name}: {} iterations", history.iterations);
        let mut x = vec![0.0; n];
        space.read(&dx, &mut x).unwrap();
        let row = |i: usize| x[i].abs() + if i + 1 < n { 1.7 * x[i + 1].abs() } else { 0.0 };
        let squares = |f: &dyn Fn(usize) -> f64| (0..n).map(|i| f(i).powi(2)).sum::<f64>().sqrt();
        let expected = f64::EPSILON / 2.0 * squares(&|i| b[i].abs() + row(i)) / squares(&|i| b[i]);
        assert!((rounding / expected - 1.0).abs() < 1e-3, "{name}: {rounding:e}, not {expected:e}");
    }
}

/// A cycle whose preconditioner is the inverse stops when it is done, and not when its basis is full.
pub fn a_cycle_stops_when_it_is_done<S: PointBlockSum + 'static>(make: Make<S>) {
    let n = 40;
    let space = make(n);
    let a = PointBlock::csr(&space, &line(n), Precision::F64).unwrap();
    // The Thomas algorithm, spoilt by a little: A P⁻¹ is the identity and a small matrix.
    for spoilt in [0.0, 1e-13, 1e-9, 1e-5] {
        let p = OnHost(|r: &[f64], z: &mut [f64]| {
            let (mut c, mut d) = (vec![0.0; n], vec![0.0; n]);
            for i in 0..n {
                let below = if i > 0 { c[i - 1] } else { 0.0 };
                let pivot = 2.0 + below;
                c[i] = -1.0 / pivot;
                d[i] = (r[i] + if i > 0 { d[i - 1] } else { 0.0 }) / pivot;
            }
            for i in (0..n).rev() {
                z[i] = d[i] - if i + 1 < n { c[i] * z[i + 1] } else { 0.0 };
            }
            (0..n).for_each(|i| z[i] *= 1.0 + spoilt * (i as f64 * 7.0).sin());
        });
        let p: &dyn LinearOperator<S> = &p;
        for basis in [Precision::F64, Precision::F32] {
            let mut iterations = Vec::new();
            for orthogonalization in [Orthogonalization::Lowsync, Orthogonalization::Cgs2] {
                let options =
                    GmresOptions { restart: 30, orthogonalization, basis, ..GmresOptions::default() };
                let mut gmres = Gmres::new(&space, options).unwrap();
                let (mut b, mut x) = (space.vector().unwrap(), space.vector().unwrap());
                space.write(&Random(82).numbers(n), &mut b).unwrap();
                let stop = Stop { rtol: 1e-8, ..Stop::default() };
                let history = gmres.solve(&space, &a, Some(p), &b, &mut x, &stop, &mut ()).unwrap();
                assert_eq!(history.outcome, Outcome::Converged, "{spoilt:e} {orthogonalization:?}");
                iterations.push(history.iterations);
            }
            let [delayed, classical] = iterations[..] else { unreachable!() };
            assert!(delayed <= classical + 1, "{spoilt:e}, {basis:?}: {delayed} and {classical} iterations");
        }
    }
}

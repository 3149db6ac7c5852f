//! Transposes of preconditioners with incomplete factors: what every device must make of them. References are
//! dot products with forward applications.

use super::ildu::grid;
use super::{Make, applied};
use crate::common::*;
use krylith_core::comm::Solo;
use krylith_core::matrix::{Bsr, Dense, KroneckerSum};
use krylith_core::method::{Gmres, GmresOptions};
use krylith_core::operator::{LinearOperator, PointBlock, PointBlockSum, Terms, Transposed};
use krylith_core::partition::Subdomains;
use krylith_core::precond::{
    BlockTiles, BlockTilesOptions, Ildu, IlduOptions, Schwarz, SchwarzFactor, SchwarzFactors, SchwarzOptions,
    SchwarzOrder, SchwarzPattern, SchwarzPlan, SchwarzSettings, Stage, StageOptions, Stride,
    SubdomainFactors, TileFactor, TileFactors, TileShape, TriangularSolve,
};
use krylith_core::space::Space;
use krylith_core::{Outcome, Precision, Stop};
use std::sync::Arc;
use std::time::Instant;

/// Forward applications that one check may need.
const MOST: usize = 60;

/// Mᵀ x for a random x, whose entries j must be (M e_j, x): all of them, or a sample.
pub fn check<S: Space>(space: &S, p: &impl LinearOperator<S>, n: usize, what: &str) {
    let mut rng = Random(n as u64 + 1);
    let x = rng.numbers(n);
    let turned = applied(space, &Transposed::of(p).unwrap(), &x);
    let (mut found, mut expected) = (Vec::new(), Vec::new());
    for k in 0..n.min(MOST) {
        let j = if n <= MOST { k } else { rng.below(n) };
        let mut unit = vec![0.0; n];
        unit[j] = 1.0;
        found.push(turned[j]);
        expected.push(dot(&applied(space, p, &unit), &x));
    }
    let d = distance(&found, &expected);
    assert!(d <= 1e-12, "{what}: {d:e}");
    // Two applications are equal to the bit.
    assert!(turned == applied(space, &Transposed::of(p).unwrap(), &x), "{what}: another result");
}

/// The message of a transposed application.
fn refused<S: Space>(space: &S, p: &impl LinearOperator<S>) -> String {
    let (x, mut y) = (space.vector().unwrap(), space.vector().unwrap());
    p.apply_transpose(space, &x, &mut y).unwrap_err().to_string()
}

fn runs(n: usize, rows: usize) -> Subdomains {
    let labels: Vec<u32> = (0..n).map(|i| (i / rows) as u32).collect();
    Subdomains::from_labels(&labels, n.div_ceil(rows)).unwrap()
}

fn scattered(rng: &mut Random, n: usize, parts: usize) -> Subdomains {
    let labels: Vec<u32> =
        (0..n).map(|i| if i < parts { i as u32 } else { rng.below(parts) as u32 }).collect();
    Subdomains::from_labels(&labels, parts).unwrap()
}

/// A matrix whose rows 0, n/2 and n − 1 meet every column, and the other rows these three.
fn hubs(rng: &mut Random, n: usize, b: usize) -> Bsr {
    let hub = |i: usize| [0, n / 2, n - 1].contains(&i);
    let (mut row_ptr, mut col, mut values) = (vec![0], Vec::new(), Vec::new());
    for i in 0..n {
        for j in (0..n).filter(|&j| j == i || hub(i) || (hub(j) && (i + j) % 3 > 0)) {
            col.push(j as u32);
            values.extend((0..b * b).map(|e| {
                let dominant = if i == j && e / b == e % b { 300.0 * b as f64 } else { 0.0 };
                dominant + rng.number()
            }));
        }
        row_ptr.push(col.len());
    }
    Bsr::new(b, n, n, row_ptr, col, values).unwrap()
}

/// Incomplete factors of subdomains, with and without fill, of symmetric and other patterns.
pub fn ildu_is_transposed<S: SubdomainFactors>(make: Make<S>) {
    let mut rng = Random(81);
    let run = |what: &str, terms: &Terms, cut: &Subdomains, fills: &[usize]| {
        for &fill in fills {
            for precision in [Precision::F64, Precision::F32] {
                let (n, space) = (terms.rows(), make(terms.rows()));
                let options = IlduOptions { fill, precision, ..IlduOptions::default() };
                let mut p = Ildu::new(&space, terms, cut, options).unwrap();
                assert!(refused(&space, &p).contains("not prepared"));
                p.prepare_transpose(&space).unwrap();
                check(&space, &p, n, &format!("{what}, ILU({fill}), {precision:?}"));
            }
        }
    };
    for b in 1..=8 {
        let a = grid(&mut rng, [7, 5, 4], b);
        run(&format!("boxes, b={b}"), &Terms::bsr(&a), &Subdomains::boxes([7, 5, 4], [4, 4, 4]), &[0, 1]);
        let a = random_bsr(&mut rng, b, 61, 61, 3, true);
        run(&format!("runs, b={b}"), &Terms::bsr(&a), &runs(61, 20), &[0, 1]);
        run(&format!("scattered, b={b}"), &Terms::bsr(&a), &scattered(&mut rng, 61, 4), &[0, 1]);
        run(&format!("whole, b={b}"), &Terms::bsr(&a), &Subdomains::whole(61), &[0, 1]);
    }
    for b in [1, 4, 8] {
        let a = hubs(&mut rng, 220, b);
        run(&format!("hubs, b={b}"), &Terms::bsr(&a), &Subdomains::whole(220), &[0]);
    }
    for n in [1, 2, 31, 33, 700] {
        let a = random_bsr(&mut rng, 1, n, n, 3, true);
        run(&format!("{n} rows"), &Terms::bsr(&a), &runs(n, 300), &[0]);
    }
    for (b, s) in [(4, 2), (3, 3), (8, 4)] {
        for same in [true, false] {
            let k = random_kronecker(&mut rng, b, s, 40, 3, same, true);
            run(&format!("b={b}, s={s}, same={same}"), &Terms::kronecker(&k), &runs(40, 17), &[0]);
        }
    }
}

/// New values refresh a transpose, also where pivots are shifted; the numbers are those of fresh factors.
/// Factors work on one stage, and leave the others as they were.
pub fn transposed_ildu_is_refreshed<S: SubdomainFactors>(make: Make<S>) {
    let mut rng = Random(82);
    for b in [1, 3] {
        for shift in [None, Some(0.5)] {
            let (n, s) = (90, 3);
            let mut a = random_bsr(&mut rng, b, n, n, 3, true);
            let (space, stages, cut) = (make(n * b), make(n * b * s), runs(n, 40));
            let options = IlduOptions { fill: 1, shift, ..IlduOptions::default() };
            let mut p = Ildu::new(&space, &Terms::bsr(&a), &cut, options).unwrap();
            p.prepare_transpose(&space).unwrap();
            for round in 0..3 {
                a.values_mut().iter_mut().for_each(|v| *v *= 1.0 + 0.1 * rng.number());
                if shift.is_some() {
                    // Row 41 is the second of its subdomain; its pivots vanish.
                    for at in a.row_ptr()[41]..a.row_ptr()[42] {
                        a.values_mut()[at * b * b..(at + 1) * b * b].fill(0.0);
                    }
                }
                p.update_values(&space, &Terms::bsr(&a)).unwrap();
                assert_eq!(p.pivots().shifted > 0, shift.is_some());
                check(&space, &p, n * b, &format!("b={b}, {shift:?}, round {round}"));
                let mut fresh = Ildu::new(&stages, &Terms::bsr(&a), &cut, options).unwrap();
                fresh.prepare_transpose(&stages).unwrap();
                let (x, before) = (rng.numbers(n * b * s), rng.numbers(n * b * s));
                let (mut dx, mut dy) = (stages.vector().unwrap(), stages.vector().unwrap());
                stages.write(&x, &mut dx).unwrap();
                stages.write(&before, &mut dy).unwrap();
                fresh.apply_transpose_at(&stages, Stride::stage(round, s), &dx, &mut dy).unwrap();
                let (mut y, mut want) = (vec![0.0; x.len()], before);
                stages.read(&dy, &mut y).unwrap();
                let own: Vec<f64> = x.iter().skip(round).step_by(s).copied().collect();
                let solved = applied(&space, &Transposed::of(&p).unwrap(), &own);
                want.iter_mut().skip(round).step_by(s).zip(solved).for_each(|(w, v)| *w = v);
                assert!(y == want, "b={b}, {shift:?}, stage {round}");
            }
        }
    }
}

const OPTIONS: SchwarzOptions =
    SchwarzOptions { precision: Precision::F64, compute: Precision::F64, rows: 3, deterministic: true };

/// Overlapping subdomains: rows without a result get zeros, and every row gives its node a part.
pub fn schwarz_is_transposed<S: SchwarzFactors>(make: Make<S>) {
    let mut rng = Random(83);
    let jacobi = |sweeps| TriangularSolve::Jacobi { sweeps };
    for b in 1..=8 {
        for (n, parts, overlap, fill) in [(1, 1, 0, 0), (41, 1, 1, 0), (42, 2, 1, 1), (59, 5, 2, 0)] {
            let mut a = random_bsr(&mut rng, b, n, n, 2, true);
            let (space, cut) = (make(n * b), scattered(&mut rng, n, parts));
            let order = SchwarzOrder::ALL[n % 2];
            let pattern = SchwarzPattern { overlap, fill, order };
            let plan = SchwarzPlan::new(&Solo, &Terms::bsr(&a), None, &cut, pattern).unwrap();
            let plan = Arc::new(plan);
            for solve in [TriangularSolve::Exact, jacobi(1), jacobi(4)] {
                for precision in [Precision::F64, Precision::F32] {
                    let what = format!("b={b} n={n} parts={parts} overlap={overlap} {solve:?} {precision:?}");
                    let options = SchwarzOptions { precision, ..OPTIONS };
                    let settings = SchwarzSettings { factor: SchwarzFactor::Exact, solve, options };
                    let mut p = Schwarz::new(&space, plan.clone(), settings).unwrap();
                    p.update_values(&space, a.values()).unwrap();
                    assert!(refused(&space, &p).contains("not prepared"));
                    p.prepare_transpose(&space).unwrap();
                    check(&space, &p, n * b, &what);
                    a.values_mut().iter_mut().for_each(|v| *v *= 1.0 + 0.1 * rng.number());
                    p.update_values(&space, a.values()).unwrap();
                    check(&space, &p, n * b, &format!("{what}, new values"));
                }
            }
        }
    }
    // Many rows: runs of rows whose number does not divide that of rows, and several thread blocks.
    for (b, cells, parts, fill) in [(1, [17, 13, 9], 1, 0), (2, [11, 10, 7], 3, 1), (3, [9, 8, 7], 40, 0)] {
        let a = grid(&mut rng, cells, b);
        let n = a.block_rows();
        let (space, cut) = (make(n * b), runs(n, n.div_ceil(parts)));
        let pattern = SchwarzPattern { overlap: 1, fill, order: SchwarzOrder::Natural };
        let plan = SchwarzPlan::new(&Solo, &Terms::bsr(&a), None, &cut, pattern).unwrap();
        let settings = |solve| SchwarzSettings { factor: SchwarzFactor::Exact, solve, options: OPTIONS };
        let mut p = Schwarz::new(&space, plan.into(), settings(TriangularSolve::Exact)).unwrap();
        p.update_values(&space, a.values()).unwrap();
        p.prepare_transpose(&space).unwrap();
        check(&space, &p, n * b, &format!("{cells:?}, b={b}, {parts} parts"));
        let solve = TriangularSolve::Random { sweeps: 3 };
        let mut p = Schwarz::new(&space, p.plan().clone(), settings(solve)).unwrap();
        p.update_values(&space, a.values()).unwrap();
        assert!(!p.has_transpose() && Transposed::of(&p).is_err());
        let message = p.prepare_transpose(&space).unwrap_err().to_string();
        assert!(message.contains("ras:solve=exact"), "{message}");
        assert_eq!(refused(&space, &p), message);
    }
}

/// The triangles of tiles change places, also where pivots are negative.
pub fn tiles_are_transposed<S: TileFactors>(make: Make<S>) {
    use super::block_tiles::{stencil, system};
    let cells = [35, 10, 6];
    let n: usize = cells.iter().product();
    let (space, bad) = (make(n), [5, 6, 700, 1200]);
    let signs = stencil(cells, &|i, j| match (i == j, bad.contains(&i)) {
        (true, true) => -2.0,
        (true, false) => 6.5,
        _ => 0.3 - ((i * 7 + j) % 11) as f64 / 10.0,
    });
    for (a, factor) in [
        (system(cells, true), TileFactor::Ic0),
        (system(cells, false), TileFactor::Ilu0),
        (signs, TileFactor::Ilu0),
    ] {
        for tile in [[32, 8, 4], [16, 8, 4], [5, 2, 1], [7, 4, 8]] {
            for precision in [Precision::F64, Precision::F32] {
                let options =
                    BlockTilesOptions { tile: TileShape::Box(tile), factor: Some(factor), precision };
                let p = BlockTiles::new(&space, &Terms::bsr(&a), cells, options).unwrap();
                check(&space, &p, n, &format!("{factor:?}, {tile:?}, {precision:?}"));
            }
        }
    }
}

/// A system that `Stage` takes: B is full.
fn stages(rng: &mut Random, b: usize, s: usize, n: usize) -> KroneckerSum {
    let mut k = random_kronecker(rng, b, s, n, 3, b % 2 == 0, true);
    k.a = Dense::identity(s);
    k
}

/// Stages in reverse order, with and without coupling, also after new values.
pub fn stages_are_transposed<S: SubdomainFactors + PointBlockSum>(make: Make<S>) {
    let mut rng = Random(84);
    for (b, s) in [(1, 2), (2, 3), (3, 1), (4, 4)] {
        for coupled in [true, false] {
            let mut k = stages(&mut rng, b, s, 45);
            let space = make(k.rows());
            let options = StageOptions { coupled, ..StageOptions::default() };
            let mut p = Stage::new(&space, &Terms::kronecker(&k), &runs(45, 20), options).unwrap();
            p.prepare_transpose(&space, &Terms::kronecker(&k)).unwrap();
            check(&space, &p, k.rows(), &format!("b={b} s={s} coupled={coupled}"));
            k.l.values_mut().iter_mut().for_each(|v| *v *= 1.0 + 0.1 * rng.number());
            k.tau *= 0.8;
            p.update_values(&space, &Terms::kronecker(&k)).unwrap();
            p.prepare_transpose(&space, &Terms::kronecker(&k)).unwrap();
            check(&space, &p, k.rows(), &format!("b={b} s={s} coupled={coupled}, new values"));
        }
    }
}

/// A method that records its iterations solves Aᵀ x = b with the transposed product and preconditioner.
pub fn adjoints_are_solved<S: SubdomainFactors + PointBlockSum + SchwarzFactors>(make: Make<S>) {
    let mut rng = Random(85);
    let (b, n) = (2, 150);
    let a = random_bsr(&mut rng, b, n, n, 3, true);
    let (terms, space) = (Terms::bsr(&a), make(n * b));
    let mut product = PointBlock::new(&space, &terms, Precision::F64, false).unwrap();
    product.prepare_transpose(&space, &terms).unwrap();
    let mut ildu = Ildu::new(&space, &terms, &runs(n, 40), IlduOptions::default()).unwrap();
    ildu.prepare_transpose(&space).unwrap();
    let pattern = SchwarzPattern { overlap: 1, ..SchwarzPattern::default() };
    let plan = SchwarzPlan::new(&Solo, &terms, None, &runs(n, 40), pattern).unwrap();
    let settings = SchwarzSettings {
        factor: SchwarzFactor::Exact,
        solve: TriangularSolve::Exact,
        options: SchwarzOptions { deterministic: false, ..OPTIONS },
    };
    let mut ras = Schwarz::new(&space, plan.into(), settings).unwrap();
    ras.update_values(&space, a.values()).unwrap();
    ras.prepare_transpose(&space).unwrap();
    let rhs = rng.numbers(n * b);
    let direct = solve(&transpose(&written_out(&a.to_csr())), &rhs);
    let product = Transposed::of(&product).unwrap();
    let (ildu, ras) = (Transposed::of(&ildu).unwrap(), Transposed::of(&ras).unwrap());
    for (name, p) in [("ildu", &ildu as &dyn LinearOperator<S>), ("ras", &ras)] {
        let mut gmres = Gmres::new(&space, GmresOptions::default()).unwrap();
        for round in 0..2 {
            let (mut db, mut dx) = (space.vector().unwrap(), space.vector().unwrap());
            space.write(&rhs, &mut db).unwrap();
            let stop = Stop { rtol: 1e-12, ..Stop::default() };
            let history = gmres.solve(&space, &product, Some(p), &db, &mut dx, &stop, &mut ()).unwrap();
            assert_eq!(history.outcome, Outcome::Converged, "{name}, {round}");
            let mut x = vec![f64::NAN; n * b];
            space.read(&dx, &mut x).unwrap();
            let d = distance(&x, &direct);
            assert!(d <= 1e-10, "{name}, {round}: {d:e}");
        }
    }
}

/// Prints the seconds of a set-up and of the preparation of its transpose, and those of both applications.
pub fn transposed_speed<S: SubdomainFactors + SchwarzFactors>(make: Make<S>, side: usize) {
    let small = side * 5 / 8;
    for (name, b, side) in [("7 points", 1, side), ("7 points", 3, small)] {
        let a = grid(&mut Random(86), [side; 3], b);
        let (n, terms) = (a.block_rows(), Terms::bsr(&a));
        let space = make(n * b);
        let (mut x, mut y) = (space.vector().unwrap(), space.vector().unwrap());
        space.write(&Random(87).numbers(n * b), &mut x).unwrap();
        let idle = (0..5).map(|_| since(&space, Instant::now())).fold(f64::INFINITY, f64::min);
        let mut report = |what: &str, setup: f64, first: f64, p: &dyn LinearOperator<S>| {
            let mut run = |turned: bool, count: usize| {
                let begin = Instant::now();
                for _ in 0..count {
                    match turned {
                        false => p.apply(&space, &x, &mut y).unwrap(),
                        true => p.apply_transpose(&space, &x, &mut y).unwrap(),
                    }
                }
                since(&space, begin)
            };
            // The difference leaves out the wait for the device.
            let mut best = |turned: bool| {
                let mut least = |count| (0..5).map(|_| run(turned, count)).fold(f64::INFINITY, f64::min);
                (least(25) - least(5)) / 20.0
            };
            let best = [best(false), best(true)];
            println!(
                "{what}, {name}, {side}^3, b={b}: set-up {:.4} s, preparation {:.4} s ({:.2}); application {:.3} ms, \
                 transposed {:.3} ms ({:.2})",
                setup,
                first,
                first / setup,
                1e3 * best[0],
                1e3 * best[1],
                best[1] / best[0]
            );
        };
        for (cut, boxes) in [("boxes of 16x16x8", true), ("runs of 512", false)] {
            for warm in [false, true] {
                let begin = Instant::now();
                let cut_of = if boxes { Subdomains::boxes([side; 3], [16, 16, 8]) } else { runs(n, 512) };
                let mut p = Ildu::new(&space, &terms, &cut_of, IlduOptions::default()).unwrap();
                let setup = since(&space, begin) - idle;
                let begin = Instant::now();
                p.prepare_transpose(&space).unwrap();
                let first = since(&space, begin) - idle;
                if warm {
                    report(&format!("ildu, {cut}"), setup, first, &p);
                }
            }
        }
        for warm in [false, true] {
            let begin = Instant::now();
            let pattern = SchwarzPattern { overlap: 1, ..SchwarzPattern::default() };
            let plan = SchwarzPlan::new(&Solo, &terms, None, &Subdomains::whole(n), pattern).unwrap();
            let settings = SchwarzSettings {
                factor: SchwarzFactor::Exact,
                solve: TriangularSolve::Exact,
                options: SchwarzOptions { rows: 16, deterministic: false, ..OPTIONS },
            };
            let mut p = Schwarz::new(&space, plan.into(), settings).unwrap();
            p.update_values(&space, a.values()).unwrap();
            let setup = since(&space, begin) - idle;
            let begin = Instant::now();
            p.prepare_transpose(&space).unwrap();
            let first = since(&space, begin) - idle;
            if warm {
                report("ras, whole", setup, first, &p);
            }
        }
    }
}

/// Seconds since `begin`, once the device has finished.
fn since<S: Space>(space: &S, begin: Instant) -> f64 {
    let vector = space.vector().unwrap();
    space.read(&vector, &mut vec![0.0; space.len()]).unwrap();
    begin.elapsed().as_secs_f64()
}

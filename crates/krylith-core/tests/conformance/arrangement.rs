//! Properties of a matrix that a GPU finds before it multiplies: tiles, structure inside the blocks, inverses
//! of diagonal blocks. The host's own analysis is the reference.

use super::{Make, applied, apply};
use crate::common::*;
use krylith_core::device::cpu::Cpu;
use krylith_core::device::cuda::Cuda;
use krylith_core::matrix::{Bsr, Dense, KroneckerSum};
use krylith_core::operator::{LinearOperator, PointBlock, PointBlockSum, Structure, TermValues, Terms};
use krylith_core::precond::BlockJacobi;
use krylith_core::space::Space;
use krylith_core::{Precision, Result};
use std::borrow::Cow;

/// n³ nodes, each coupled to those at `offsets` and their opposites; `number` names them.
fn mesh(n: usize, offsets: &[[usize; 3]], number: impl Fn(usize) -> usize) -> Bsr {
    let mut rows: Vec<Vec<u32>> = (0..n * n * n).map(|i| vec![i as u32]).collect();
    for i in 0..n * n * n {
        let p = [i % n, i / n % n, i / (n * n)];
        for o in offsets {
            let q: [usize; 3] = std::array::from_fn(|k| p[k] + o[k]);
            if q.iter().all(|&x| x < n) {
                let (i, j) = (number(i), number((q[2] * n + q[1]) * n + q[0]));
                rows[i].push(j as u32);
                rows[j].push(i as u32);
            }
        }
    }
    pattern(rows, n * n * n)
}

/// Rows of up to 40 random columns, each 7th empty, and one dense row in the middle.
fn awkward(rng: &mut Random, rows: usize, columns: usize) -> Bsr {
    let row = |i: usize| match i {
        _ if i == rows / 2 => (0..columns as u32).collect(),
        _ if i % 7 == 0 => Vec::new(),
        _ => (0..rng.below(40)).map(|_| rng.below(columns) as u32).collect(),
    };
    pattern((0..rows).map(row).collect(), columns)
}

/// Every byte of the tiles equals the host's: with and without clusters, with ghosts, with rows longer than a
/// tile.
pub fn tiles_are_those_of_the_host(make: Make<Cuda>) {
    let mut rng = Random(71);
    let sizes = [(0, 0), (1, 1), (1, 900), (31, 31), (33, 40), (1024, 1024), (2049, 2100), (7000, 7000)];
    let mut all: Vec<(String, Bsr)> =
        sizes.map(|(n, m)| (format!("{n} random rows"), awkward(&mut rng, n, m))).into();
    let axes = [[1, 0, 0], [0, 1, 0], [0, 0, 1]];
    let tetrahedra = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [1, 0, 1], [0, 1, 1], [1, 1, 1]];
    all.push(("a grid".into(), mesh(25, &axes, |i| i)));
    all.push(("tetrahedra".into(), mesh(25, &tetrahedra, |i| i)));
    all.push(("mixed tetrahedra".into(), mesh(24, &tetrahedra, |i| i / 128 * 128 + i * 75 % 128)));
    all.push(("empty rows".into(), pattern(vec![Vec::new(); 5000], 5000)));
    let space = make(1);
    for (name, a) in &all {
        let m = a.block_columns();
        for tile in [15, 60, 240, 255, 1020] {
            for cluster in [false, true] {
                for own in [m, m - m / 10, m / 2, 0] {
                    let what = format!("{name}, tile {tile}, cluster {cluster}, {own} own columns of {m}");
                    space.check_tiles(a, tile, cluster, own).unwrap_or_else(|e| panic!("{what}: {e}"));
                }
            }
        }
    }
}

/// Products on meshes large enough for windows of several pieces, for all block sizes and stages, for dense
/// blocks and others, also after an update of values.
pub fn products_on_meshes(make: Make<Cuda>) {
    let mut rng = Random(72);
    let sparse = mesh(24, &[[1, 0, 0], [0, 1, 0], [0, 0, 1]], |i| i);
    let n = sparse.block_rows();
    for b in 1..=8 {
        let numbers = sparse.blocks() * b * b;
        let (row_ptr, col) = (sparse.row_ptr().to_vec(), sparse.col().to_vec());
        let m = Bsr::new(b, n, n, row_ptr, col, rng.numbers(numbers)).unwrap();
        let mut l = m.clone();
        l.values_mut().iter_mut().for_each(|v| *v *= 0.75);
        for s in 1..=4 {
            let square = |rng: &mut Random| Dense::new(s, s, rng.numbers(s * s)).unwrap();
            let mut k =
                KroneckerSum::new(square(&mut rng), square(&mut rng), 0.5, m.clone(), l.clone()).unwrap();
            let x = rng.numbers(k.rows());
            let space = make(k.rows());
            for diagonal in [false, true] {
                if diagonal {
                    // Multiples of the identity.
                    for block in k.m.values_mut().chunks_exact_mut(b * b) {
                        let first = block[0];
                        (0..b * b).for_each(|e| block[e] = if e % (b + 1) == 0 { first } else { 0.0 });
                    }
                }
                let mut operator = PointBlock::kronecker(&space, &k, Precision::F64).unwrap();
                let d = distance(&apply(&space, &operator, &x, k.rows()), &by_rows(&k, &x));
                assert!(d <= 1e-13, "b={b} s={s} diagonal {diagonal}: {d:e}");
                k.m.values_mut().iter_mut().for_each(|v| *v *= 3.0);
                operator.update_values(&space, 0, k.m.values()).unwrap();
                let d = distance(&apply(&space, &operator, &x, k.rows()), &by_rows(&k, &x));
                assert!(d <= 1e-13, "b={b} s={s} diagonal {diagonal}, updated: {d:e}");
            }
        }
    }
}

/// Blocks with random equalities and zeros, some broken by one block far behind.
pub fn structure_is_that_of_the_host(make: Make<Cuda>) {
    let mut rng = Random(73);
    let space = make(1);
    for b in 1..=8 {
        for n in [0, 1, 31, 33, 5000] {
            for distinct in [0, 1, 2, b, b * b] {
                let matrix = |rng: &mut Random| {
                    // Entry e takes number class[e]; number 0 is zero, of either sign.
                    let class: Vec<usize> = (0..b * b).map(|_| rng.below(distinct + 1)).collect();
                    let mut values = Vec::new();
                    for _ in 0..n {
                        let mut numbers = rng.numbers(distinct + 1);
                        numbers[0] = 0.0;
                        let negative = rng.below(2) == 0;
                        let number = |&c: &usize| if c == 0 && negative { -0.0 } else { numbers[c] };
                        values.extend(class.iter().map(number));
                    }
                    for _ in 0..if n > 0 { rng.below(3) } else { 0 } {
                        let at = rng.below(values.len());
                        values[at] = 0.5;
                    }
                    let col = (0..n as u32).collect();
                    Bsr::new(b, n, n, (0..=n).collect(), col, values).unwrap()
                };
                let terms = [matrix(&mut rng), matrix(&mut rng)];
                for count in 1..=2 {
                    let sum = terms[..count].iter().map(|a| (Dense::identity(1), Cow::Borrowed(a))).collect();
                    let terms = Terms::new(sum).unwrap();
                    let found = space.structure(&terms).unwrap();
                    assert_eq!(found, Structure::find(&terms), "b={b}, {n} blocks, {distinct} numbers");
                }
            }
        }
    }
}

/// The inverted blocks of every order are the host's, and stay so with new values.
pub fn diagonal_blocks_are_those_of_the_host(make: Make<Cuda>) {
    let mut rng = Random(74);
    for b in 1..=8 {
        for s in 1..=4 {
            for (n, same) in [(0, true), (1, true), (31, false), (33, true), (700, false)] {
                let mut k = random_kronecker(&mut rng, b, s, n, 3, same, true);
                let x = rng.numbers(k.rows());
                let (gpu, cpu) = (make(k.rows()), Cpu::new(k.rows(), 1));
                for (precision, tolerance) in [(Precision::F64, 1e-14), (Precision::F32, 1e-6)] {
                    let terms = Terms::kronecker(&k);
                    let mut p = BlockJacobi::new(&gpu, &terms, precision).unwrap();
                    let mut q = BlockJacobi::new(&cpu, &terms, precision).unwrap();
                    let d = distance(&applied(&gpu, &p, &x), &applied(&cpu, &q, &x));
                    assert!(d <= tolerance, "b={b} s={s} n={n} {precision:?}: {d:e}");
                    k.tau *= 2.0;
                    k.m.values_mut().iter_mut().for_each(|v| *v *= 1.5);
                    let terms = Terms::kronecker(&k);
                    p.update_values(&gpu, TermValues::from(&terms)).unwrap();
                    q.update_values(&cpu, TermValues::from(&terms)).unwrap();
                    let d = distance(&applied(&gpu, &p, &x), &applied(&cpu, &q, &x));
                    assert!(d <= tolerance, "b={b} s={s} n={n} {precision:?}, updated: {d:e}");
                }
            }
        }
    }
}

/// Blocks without an inverse are reported as on the host, the lowest row first; after an error the old
/// inverses remain.
pub fn bad_diagonal_blocks_are_named(make: Make<Cuda>) {
    let mut rng = Random(75);
    let text = |e: Result<()>| e.map_err(|e| e.to_string());
    for b in [1, 2, 3, 4, 8] {
        let n = 100;
        let good = random_bsr(&mut rng, b, n, n, 3, true);
        let x = rng.numbers(n * b);
        let (gpu, cpu) = (make(n * b), Cpu::new(n * b, 1));
        for fault in 0..5 {
            let mut bad = good.clone();
            for row in [70, 30, 99] {
                let at = bad.diagonal_position(row).unwrap() * b * b;
                let block = &mut bad.values_mut()[at..at + b * b];
                match fault {
                    0 => block.fill(0.0),
                    1 => block[..b].fill(0.0),
                    2 => (0..b * b).for_each(|e| block[e] = 1.0 + (e % b) as f64),
                    3 => block.iter_mut().for_each(|v| *v *= 1e-200),
                    _ => block.fill(1e308),
                }
            }
            let new = |terms: &Terms| text(BlockJacobi::new(&gpu, terms, Precision::F64).map(drop));
            let reference = |terms: &Terms| text(BlockJacobi::new(&cpu, terms, Precision::F64).map(drop));
            let expected = reference(&Terms::bsr(&bad));
            assert_eq!(new(&Terms::bsr(&bad)), expected, "b={b} fault {fault}");
            let mut p = BlockJacobi::new(&gpu, &Terms::bsr(&good), Precision::F64).unwrap();
            let before = applied(&gpu, &p, &x);
            assert_eq!(text(p.update_values(&gpu, TermValues::matrix(bad.values()))), expected);
            if expected.is_err() {
                assert!(applied(&gpu, &p, &x) == before, "b={b} fault {fault}: blocks changed");
            }
        }
        let rows = (0..n).map(|i| if i == 40 { Vec::new() } else { vec![i as u32] }).collect();
        let missing = pattern(rows, n);
        let (gpu, cpu) = (make(n), Cpu::new(n, 1));
        let here = text(BlockJacobi::new(&gpu, &Terms::bsr(&missing), Precision::F64).map(drop));
        assert_eq!(here, text(BlockJacobi::new(&cpu, &Terms::bsr(&missing), Precision::F64).map(drop)));
        assert!(here.is_err_and(|e| e.contains("missing")));
    }
}

/// Prints the set-up times of a product and of point-block Jacobi from arrays on the GPU, and the time of a
/// product.
pub fn arrangement_speed(make: Make<Cuda>) {
    let axes = [[1, 0, 0], [0, 1, 0], [0, 0, 1]];
    let tetrahedra = [[1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0], [1, 0, 1], [0, 1, 1], [1, 1, 1]];
    // Numbers of a pattern's blocks, made by f(block, entry).
    let fill = |sparse: &Bsr, b: usize, f: &dyn Fn(usize, usize) -> f64| {
        let values = (0..sparse.blocks()).flat_map(|p| (0..b * b).map(move |e| (p, e)));
        let values = values.map(|(p, e)| f(p, e)).collect();
        let (n, row_ptr, col) = (sparse.block_rows(), sparse.row_ptr().to_vec(), sparse.col().to_vec());
        Bsr::new(b, n, n, row_ptr, col, values).unwrap()
    };
    let any = |p: usize, e: usize| (p as f64 * 0.37 + (e * e) as f64 * 1.91).sin() + 2.0;
    let mass = |p: usize, e: usize| if e % 5 == 0 && e < 15 { any(p, 0) } else { 0.0 };
    let stiffness = |p: usize, e: usize| match (e / 4, e % 4) {
        (r, c) if r == 3 || c == 3 => any(p, e),
        (r, c) if r == c => any(p, 0),
        _ => 0.0,
    };
    let (tet, grid) = (mesh(53, &tetrahedra, |i| i), mesh(64, &axes, |i| i));
    let large = mesh(126, &axes, |i| i);
    let (m, l) = (fill(&tet, 4, &mass), fill(&tet, 4, &stiffness));
    let two = |s: usize| vec![(Dense::identity(s), m.clone()), (Dense::identity(s), l.clone())];
    let one = |a: Bsr| vec![(Dense::identity(1), a)];
    let cases = [
        ("Stokes 53^3, b = 4, s = 2", two(2), false),
        ("the same, dense", two(2), true),
        ("64^3, b = 3", one(fill(&grid, 3, &any)), false),
        ("64^3, b = 4", one(fill(&grid, 4, &any)), false),
        ("126^3, b = 4", one(fill(&large, 4, &any)), false),
    ];
    for (name, terms, dense) in cases {
        let sum = terms.iter().map(|(c, a)| (c.clone(), Cow::Borrowed(a))).collect();
        let terms = Terms::new(sum).unwrap();
        let space = make(terms.rows());
        let placed = space.place(&terms).unwrap();
        let time = |rounds: usize, work: &mut dyn FnMut()| {
            let mut best = f64::INFINITY;
            for _ in 0..10 {
                space.wait().unwrap();
                let start = std::time::Instant::now();
                (0..rounds).for_each(|_| work());
                space.wait().unwrap();
                best = best.min(start.elapsed().as_secs_f64() / rounds as f64);
            }
            1e3 * best
        };
        let structure = time(1, &mut || drop(space.structure(&placed).unwrap()));
        let product = time(1, &mut || drop(PointBlock::new(&space, &placed, Precision::F64, dense).unwrap()));
        let (tile, cluster) = if dense || terms.stages() == 1 { (120, false) } else { (240, true) };
        let tiles = time(1, &mut || space.make_tiles(&placed.terms()[0].1, tile, cluster).unwrap());
        let apart = time(1, &mut || space.make_tiles(&placed.terms()[0].1, tile, !cluster).unwrap());
        let jacobi = time(1, &mut || drop(BlockJacobi::new(&space, &placed, Precision::F64).unwrap()));
        let operator = PointBlock::new(&space, &placed, Precision::F64, dense).unwrap();
        let (x, mut y) = (space.vector().unwrap(), space.vector().unwrap());
        let once = time(50, &mut || operator.apply(&space, &x, &mut y).unwrap());
        println!(
            "{name}: structure {structure:.3} ms, tiles {tiles:.3} ms (clustered {cluster}; the other way {apart:.3}), product \
             {product:.3} ms in all, Jacobi {jacobi:.3} ms; one product {once:.4} ms"
        );
    }
}

//! The steps of coarse levels on a device: the host's, bit by bit.

use super::Make;
use crate::common::{Random, distance, norm, random_bsr};
use krylith_core::device::cpu::Cpu;
use krylith_core::matrix::{Bsr, Dense};
use krylith_core::operator::Terms;
use krylith_core::precond::{Coarsen, Coarsening, Transfer};
use krylith_core::space::Precision;
use std::borrow::Cow;

/// The space of the reference.
pub fn host() -> Cpu {
    Cpu::new(1, 2)
}

/// A matrix of 1×1 blocks from its rows, each with ascending columns.
pub fn from_rows(columns: usize, rows: &[Vec<(u32, f64)>]) -> Bsr {
    let mut row_ptr = vec![0];
    for row in rows {
        row_ptr.push(row_ptr[row_ptr.len() - 1] + row.len());
    }
    let (col, values) = rows.iter().flatten().copied().unzip();
    Bsr::new(1, rows.len(), columns, row_ptr, col, values).unwrap()
}

/// Seven points on a grid of edge³ nodes; couplings along an axis differ by `jumps` from cell to cell, at
/// random.
pub fn grid(edge: usize, jumps: f64) -> Bsr {
    let mut rng = Random(3);
    let weights: Vec<f64> = (0..3 * edge.pow(3)).map(|_| jumps.powf(rng.number())).collect();
    let mut rows: Vec<Vec<(u32, f64)>> = vec![Vec::new(); edge.pow(3)];
    let steps = [1, edge, edge * edge];
    for i in 0..edge.pow(3) {
        for (d, &step) in steps.iter().enumerate() {
            if i / step % edge + 1 < edge {
                let w = weights[3 * i + d];
                rows[i].push(((i + step) as u32, -w));
                rows[i + step].push((i as u32, -w));
            }
        }
    }
    for (i, row) in rows.iter_mut().enumerate() {
        let sum: f64 = row.iter().map(|e| e.1).sum();
        row.push((i as u32, 0.1 - sum));
        row.sort_by_key(|e| e.0);
    }
    from_rows(edge.pow(3), &rows)
}

/// Panics where two matrices differ in shape, pattern or one bit of a value.
pub fn assert_same(found: &Bsr, expected: &Bsr, what: &str) {
    let shape = |a: &Bsr| (a.block(), a.block_rows(), a.block_columns(), a.blocks());
    assert_eq!(shape(found), shape(expected), "{what}: block, rows, columns, blocks");
    for i in 0..found.block_rows() {
        let row = |a: &Bsr| a.col()[a.row_ptr()[i]..a.row_ptr()[i + 1]].to_vec();
        assert!(row(found) == row(expected), "{what}: columns of row {i} differ");
    }
    let differs = |(a, b): (&f64, &f64)| a.to_bits() != b.to_bits();
    let at = found.values().iter().zip(expected.values()).position(differs);
    let pair = at.map(|at| (at, found.values()[at], expected.values()[at]));
    assert_eq!(pair, None, "{what}: first value that differs");
}

/// Rows of very different lengths, some without entries, one with `longest`.
fn uneven(rng: &mut Random, b: usize, n: usize, longest: usize) -> Bsr {
    let (mut row_ptr, mut col) = (vec![0], Vec::new());
    for i in 0..n {
        let length = match i % 97 {
            0 => 20 + rng.below(60),
            1 if i % 5 == 0 => 100 + rng.below(150),
            2 if i % 11 == 0 => 300 + rng.below(700),
            3..=10 => 0,
            _ => 1 + rng.below(8),
        };
        let length = if i == n / 3 { longest } else { length };
        let mut columns: Vec<u32> = (0..length).map(|_| rng.below(n) as u32).collect();
        columns.sort_unstable();
        columns.dedup();
        col.extend(columns);
        row_ptr.push(col.len());
    }
    let values = rng.numbers(col.len() * b * b);
    Bsr::new(b, n, n, row_ptr, col, values).unwrap()
}

/// P with up to four weights a row, some rows without any, and R by plain loops.
fn random_transfer(rng: &mut Random, n: usize, coarse: usize) -> Transfer {
    let mut rows: Vec<Vec<(u32, f64)>> = Vec::new();
    let mut turned = vec![Vec::new(); coarse];
    for i in 0..n {
        let count = if coarse == 0 { 0 } else { rng.below(5) };
        // Near each other as a rule.
        let near = |rng: &mut Random| {
            let at = if rng.below(8) == 0 { rng.below(coarse) } else { i * coarse / n + rng.below(4) };
            at.min(coarse - 1) as u32
        };
        let mut columns: Vec<u32> = (0..count).map(|_| near(rng)).collect();
        columns.sort_unstable();
        columns.dedup();
        rows.push(columns.into_iter().map(|j| (j, rng.number())).collect());
        rows[i].iter().for_each(|&(j, w)| turned[j as usize].push((i as u32, w)));
    }
    Transfer {
        prolongation: from_rows(coarse, &rows),
        restriction: from_rows(n, &turned),
        coarse: Vec::new(),
    }
}

fn with_other_values(rng: &mut Random, terms: &Terms) -> Terms<'static> {
    let change = |(c, a): &(Dense, Cow<Bsr>)| {
        let mut a = Bsr::clone(a);
        a.values_mut().iter_mut().for_each(|v| *v += rng.number());
        (c.clone(), Cow::Owned(a))
    };
    Terms::new(terms.terms().iter().map(change).collect()).unwrap()
}

/// Sums of one and two terms, of one pattern and of two, with blocks and stages; long rows, no rows and one.
fn sums(rng: &mut Random) -> Vec<(String, Terms<'static>)> {
    let mut all = Vec::new();
    let one = |a: Bsr| Terms::new(vec![(Dense::identity(1), Cow::Owned(a))]).unwrap();
    for (n, what) in [(0, "no rows"), (1, "one row"), (40, "40 rows"), (3000, "3000 rows")] {
        for b in 1..=8 {
            all.push((format!("{what} of {b}×{b}"), one(random_bsr(rng, b, n, n, 6, n < 100))));
        }
    }
    all.push(("a grid".into(), one(grid(20, 1000.0))));
    for (b, n) in [(1, 20_000), (2, 6000), (3, 2000)] {
        all.push((format!("uneven rows of {b}×{b}"), one(uneven(rng, b, n, n / 2))));
    }
    for (b, s, same) in
        [(1, 1, true), (1, 2, false), (2, 2, true), (4, 2, true), (3, 3, false), (2, 1, false)]
    {
        let m = random_bsr(rng, b, 500, 500, 5, false);
        let l = if same { m.clone() } else { random_bsr(rng, b, 500, 500, 5, false) };
        let coefficient = |rng: &mut Random| Dense::new(s, s, rng.numbers(s * s)).unwrap();
        let (c, d) = (coefficient(rng), coefficient(rng));
        let terms = vec![(c, Cow::Owned(m)), (d, Cow::Owned(l))];
        let terms = with_other_values(rng, &Terms::new(terms).unwrap());
        all.push((format!("two terms, b = {b}, s = {s}, same pattern: {same}"), terms));
    }
    all
}

/// The matrix by which nodes are coarsened.
pub fn couplings_are_those_of_the_host<S: Coarsen>(make: Make<S>) {
    let mut rng = Random(61);
    let mut all = sums(&mut rng);
    let scaled = (Dense::new(1, 1, vec![-0.3]).unwrap(), Cow::Owned(grid(8, 10.0)));
    all.push(("a scaled term".into(), Terms::new(vec![scaled]).unwrap()));
    for (what, terms) in all {
        let found = make(1).couplings(&terms).unwrap();
        assert_same(&found, &host().couplings(&terms).unwrap(), &format!("couplings of {what}"));
    }
}

/// R A P of every term.
pub fn galerkin_products_are_those_of_the_host<S: Coarsen>(make: Make<S>) {
    let mut rng = Random(62);
    for (what, terms) in sums(&mut rng) {
        let n = terms.block_rows();
        for coarse in [n / 2, n / 9, n.min(1)] {
            let what = format!("{what} to {coarse}");
            let transfer = random_transfer(&mut rng, n, coarse);
            let space = make(1);
            let mut found = space.galerkin(&space.place(&terms).unwrap(), &transfer).unwrap();
            let compare = |found: &Terms, expected: &Terms, what: &str| {
                assert_eq!(found.terms().len(), expected.terms().len(), "{what}");
                for (t, (f, e)) in found.terms().iter().zip(expected.terms()).enumerate() {
                    assert_eq!(f.0.values(), e.0.values(), "{what}: coefficient of term {t}");
                    assert_same(&f.1, &e.1, &format!("{what}, term {t}"));
                }
                assert_eq!(found.shared_pattern(), expected.shared_pattern(), "{what}: one pattern");
            };
            compare(&found, &host().galerkin(&terms, &transfer).unwrap(), &what);
            let again = with_other_values(&mut rng, &terms);
            space.update_galerkin(&again, &transfer, &mut found).unwrap();
            compare(&found, &host().galerkin(&again, &transfer).unwrap(), &format!("new values of {what}"));
        }
    }
}

/// New values under another pattern are an error and no wrong numbers.
pub fn other_patterns_are_refused<S: Coarsen>(make: Make<S>) {
    let mut rng = Random(63);
    for b in [1, 2] {
        let transfer = random_transfer(&mut rng, 300, 100);
        let (one, two) =
            (random_bsr(&mut rng, b, 300, 300, 1, false), random_bsr(&mut rng, b, 300, 300, 9, false));
        let space = make(1);
        let mut coarse = space.galerkin(&Terms::bsr(&one), &transfer).unwrap();
        let e = space.update_galerkin(&Terms::bsr(&two), &transfer, &mut coarse).unwrap_err().to_string();
        assert!(e.contains("set up again"), "{e}");
    }
}

/// R of what a device interpolates with is the transpose of its P, also where a row is long.
pub fn restrictions_are_transposes<S: Coarsen>(make: Make<S>) {
    // A star: one node stays, and all the others take from it.
    let n = 5000;
    let star: Vec<Vec<(u32, f64)>> = (0..n)
        .map(|i| match i {
            0 => (0..n as u32).map(|j| (j, if j == 0 { n as f64 } else { -1.0 })).collect(),
            _ => vec![(0, -1.0), (i as u32, 1.5)],
        })
        .collect();
    for (what, a) in [("a grid", grid(16, 100.0)), ("a star", from_rows(n, &star))] {
        let transfer = make(1).transfer(&a, &Coarsening::default(), 0).unwrap();
        let Transfer { prolongation: p, restriction: r, .. } =
            transfer.unwrap_or_else(|| panic!("{what}: no level"));
        let mut turned = vec![Vec::new(); p.block_columns()];
        for i in 0..p.block_rows() {
            for e in p.row_ptr()[i]..p.row_ptr()[i + 1] {
                turned[p.col()[e] as usize].push((i as u32, p.values()[e]));
            }
        }
        assert_same(&r, &from_rows(p.block_rows(), &turned), what);
    }
}

/// ℓ1 blocks, applied.
pub fn l1_blocks_are_those_of_the_host<S: Coarsen>(make: Make<S>) {
    let mut rng = Random(64);
    for (what, terms) in sums(&mut rng) {
        let (n, order) = (terms.block_rows(), terms.block() * terms.stages());
        // A diagonal that can be inverted: of both signs, and not where no term has an entry.
        let diagonal: Vec<f64> = (0..n * order * order)
            .map(|e| {
                let (i, r, c) = (e / (order * order), e / order % order, e % order);
                let sign = if (i + r) % 3 == 0 { -2.0 } else { 2.0 };
                if r == c { sign } else { 0.1 * rng.number() }
            })
            .collect();
        let b = terms.block();
        let terms = with_diagonal(&terms, &diagonal, b);
        let (space, reference) = (make(n * order), Cpu::new(n * order, 2));
        let mut found = space.l1_blocks(&terms, Precision::F64).unwrap();
        let mut expected = reference.l1_blocks(&terms, Precision::F64).unwrap();
        let x = rng.numbers(n * order);
        let compare = |found: &S::Blocks,
                       expected: &<Cpu as krylith_core::precond::BlockDiagonal>::Blocks,
                       what: &str| {
            let (f, e) = (blocks_times(&space, found, &x), blocks_times(&reference, expected, &x));
            assert!(norm(&e) > 0.0 || n == 0, "{what}: nothing was compared");
            assert!(distance(&f, &e) <= 1e-13, "{what}: {:e}", distance(&f, &e));
        };
        compare(&found, &expected, &what);
        let mut again = terms.clone();
        for t in 0..again.terms().len() {
            let values: Vec<f64> = again.terms()[t].1.values().iter().map(|v| 1.5 * v).collect();
            again.update_values(t, &values).unwrap();
        }
        space.update_l1_blocks(&again, &mut found).unwrap();
        reference.update_l1_blocks(&again, &mut expected).unwrap();
        compare(&found, &expected, &format!("new values of {what}"));
    }
}

/// Terms whose first matrix has a diagonal block in every row, with these numbers in its first b×b.
fn with_diagonal(terms: &Terms, diagonal: &[f64], b: usize) -> Terms<'static> {
    let order = b * terms.stages();
    let add = |(t, (c, a)): (usize, &(Dense, Cow<Bsr>))| {
        let (mut row_ptr, mut col, mut values) = (vec![0], Vec::new(), Vec::new());
        for i in 0..a.block_rows() {
            let mut row: Vec<(u32, Vec<f64>)> = (a.row_ptr()[i]..a.row_ptr()[i + 1])
                .map(|p| (a.col()[p], a.block_values(p).to_vec()))
                .collect();
            if t == 0 && !row.iter().any(|e| e.0 as usize == i) {
                row.push((i as u32, vec![0.0; b * b]));
                row.sort_by_key(|e| e.0);
            }
            for (j, block) in &mut row {
                if t == 0 && *j as usize == i {
                    for (e, v) in block.iter_mut().enumerate() {
                        *v += diagonal[(i * order + e / b) * order + e % b];
                    }
                }
                col.push(*j);
                values.extend_from_slice(block);
            }
            row_ptr.push(col.len());
        }
        let n = a.block_rows();
        let mut c = c.clone();
        (0..c.rows()).filter(|_| t == 0).for_each(|k| c[(k, k)] += 3.0);
        (c, Cow::Owned(Bsr::new(b, n, n, row_ptr, col, values).unwrap()))
    };
    Terms::new(terms.terms().iter().enumerate().map(add).collect()).unwrap()
}

fn blocks_times<S: Coarsen>(space: &S, blocks: &S::Blocks, x: &[f64]) -> Vec<f64> {
    let (mut dx, mut dy) = (space.vector().unwrap(), space.vector().unwrap());
    space.write(x, &mut dx).unwrap();
    space.multiply_blocks(blocks, false, &dx, &mut dy).unwrap();
    let mut y = vec![f64::NAN; x.len()];
    space.read(&dy, &mut y).unwrap();
    y
}

/// Milliseconds of the steps, on a Laplacian and on blocks.
#[cfg(feature = "cuda")]
pub fn galerkin_speed(device: &std::sync::Arc<krylith_core::device::cuda::Device>) {
    use krylith_core::device::cuda::Cuda;
    use krylith_core::operator::PointBlockSum;
    let blocks = |edge: usize, b: usize| {
        let a = grid(edge, 1.0);
        let values = a
            .values()
            .iter()
            .flat_map(|v| (0..b * b).map(move |e| if e % (b + 1) == 0 { *v } else { 0.01 * v }));
        Bsr::new(b, a.block_rows(), a.block_rows(), a.row_ptr().to_vec(), a.col().to_vec(), values.collect())
            .unwrap()
    };
    for (what, a) in [("128³", grid(128, 1.0)), ("64³, b = 3", blocks(64, 3)), ("64³, b = 4", blocks(64, 4))]
    {
        let space = Cuda::new(device, 1).unwrap();
        let mut terms = space.place(&Terms::bsr(&a)).unwrap();
        for level in 0.. {
            let time = |step: &str, f: &mut dyn FnMut()| {
                f();
                let mut best = f64::INFINITY;
                for _ in 0..3 {
                    device.wait().unwrap();
                    let start = std::time::Instant::now();
                    f();
                    device.wait().unwrap();
                    best = best.min(start.elapsed().as_secs_f64());
                }
                eprint!(" {step} {:.3}", best * 1e3);
            };
            eprint!(
                "{what} level {level}: {} rows, {} blocks; ms:",
                terms.block_rows(),
                terms.terms()[0].1.blocks()
            );
            time("couplings", &mut || drop(space.couplings(&terms).unwrap()));
            time("l1", &mut || drop(space.l1_blocks(&terms, Precision::F64).unwrap()));
            let couplings = space.couplings(&terms).unwrap();
            let Some(transfer) = space.transfer(&couplings, &Coarsening::default(), level).unwrap() else {
                break;
            };
            let mut coarse = space.galerkin(&terms, &transfer).unwrap();
            time("galerkin", &mut || coarse = space.galerkin(&terms, &transfer).unwrap());
            time("again", &mut || space.update_galerkin(&terms, &transfer, &mut coarse).unwrap());
            eprintln!("; {} weights", transfer.prolongation.blocks());
            terms = coarse;
            if terms.block_rows() < 100 {
                break;
            }
        }
        eprintln!();
    }
}

//! Incomplete factors on subdomains against a plain sequential reference, their errors and their effect.

use crate::common::{Random, dense, distance, eager, random_bsr, random_kronecker, solve};
use krylith_core::device::cpu::Cpu;
use krylith_core::matrix::{Bsr, Csr};
use krylith_core::method::{Gmres, GmresOptions};
use krylith_core::operator::{LinearOperator, PointBlock, Terms};
use krylith_core::partition::{Partition, Subdomains, split};
use krylith_core::precond::testing::ReadFactors;
use krylith_core::precond::{BlockJacobi, Ildu, IlduOptions, Plan, invert_block};
use krylith_core::{Error, Outcome, Precision, Stop};
use std::collections::BTreeMap;

/// Row-major blocks by row and column.
type Blocks = BTreeMap<(usize, usize), Vec<f64>>;

/// c = a b.
fn times(m: usize, a: &[f64], b: &[f64]) -> Vec<f64> {
    let mut c = vec![0.0; m * m];
    for r in 0..m {
        for q in 0..m {
            c[r * m + q] = (0..m).map(|k| a[r * m + k] * b[k * m + q]).sum();
        }
    }
    c
}

/// Every subdomain's rows, ascending.
fn natural(subdomains: &Subdomains) -> Vec<Vec<u32>> {
    (0..subdomains.count()).map(|p| subdomains.rows(p).to_vec()).collect()
}

/// Every subdomain's rows by position.
fn positions(plan: &Plan) -> Vec<Vec<u32>> {
    plan.ptr.windows(2).map(|w| plan.rows[w[0]..w[1]].to_vec()).collect()
}

/// Block ILU(k) of each list of rows, eliminated in its order, from the textbook: levels of fill of all
/// pairs, then IKJ elimination on the kept pairs. L and U are those of (I + L) D (I + U), with D⁻¹ on the
/// diagonal.
fn reference(a: &Bsr, subdomains: &[Vec<u32>], fill: usize) -> Blocks {
    let m = a.block();
    let mut all = Blocks::new();
    for rows in subdomains {
        let n = rows.len();
        let mut level = vec![vec![usize::MAX; n]; n];
        let mut block = vec![vec![vec![0.0; m * m]; n]; n];
        for (i, &row) in rows.iter().enumerate() {
            level[i][i] = 0;
            for e in a.row_ptr()[row as usize]..a.row_ptr()[row as usize + 1] {
                if let Some(j) = rows.iter().position(|&row| row == a.col()[e]) {
                    level[i][j] = 0;
                    block[i][j] = a.block_values(e).to_vec();
                }
            }
        }
        for i in 0..n {
            for k in 0..i {
                if level[i][k] > fill {
                    continue;
                }
                for j in k + 1..n {
                    let new = level[i][k].saturating_add(level[k][j]).saturating_add(1);
                    level[i][j] = level[i][j].min(new);
                }
            }
        }
        let mut inverse = vec![Vec::new(); n];
        for i in 0..n {
            for k in 0..i {
                if level[i][k] > fill {
                    continue;
                }
                block[i][k] = times(m, &block[i][k], &inverse[k]);
                for j in k + 1..n {
                    if level[i][j] <= fill && level[k][j] <= fill {
                        let update = times(m, &block[i][k], &block[k][j]);
                        block[i][j].iter_mut().zip(update).for_each(|(b, u)| *b -= u);
                    }
                }
            }
            inverse[i] = vec![0.0; m * m];
            assert!(invert_block(m, &mut block[i][i].clone(), &mut inverse[i]), "reference pivot");
        }
        for i in 0..n {
            for j in (0..n).filter(|&j| level[i][j] <= fill) {
                let value = match j.cmp(&i) {
                    std::cmp::Ordering::Less => block[i][j].clone(),
                    std::cmp::Ordering::Equal => inverse[i].clone(),
                    std::cmp::Ordering::Greater => times(m, &inverse[i], &block[i][j]),
                };
                all.insert((rows[i] as usize, rows[j] as usize), value);
            }
        }
    }
    all
}

/// (I + U)⁻¹ D⁻¹ (I + L)⁻¹ x, in the order of each list of rows.
fn apply(m: usize, subdomains: &[Vec<u32>], factors: &Blocks, x: &[f64]) -> Vec<f64> {
    let mut y = x.to_vec();
    let mut place = vec![0; x.len() / m];
    subdomains.iter().flatten().enumerate().for_each(|(k, &i)| place[i as usize] = k);
    let order: Vec<usize> = subdomains.iter().flatten().map(|&i| i as usize).collect();
    let multiply = |block: &[f64], x: &[f64]| -> Vec<f64> {
        (0..m).map(|r| (0..m).map(|c| block[r * m + c] * x[c]).sum()).collect()
    };
    for &i in &order {
        for (&(_, j), block) in factors.range((i, 0)..(i + 1, 0)).filter(|f| place[f.0.1] < place[i]) {
            let update = multiply(block, &y[j * m..(j + 1) * m]);
            (0..m).for_each(|r| y[i * m + r] -= update[r]);
        }
    }
    for &i in order.iter().rev() {
        let mut z = multiply(&factors[&(i, i)], &y[i * m..(i + 1) * m]);
        for (&(_, j), block) in factors.range((i, 0)..(i + 1, 0)).filter(|f| place[f.0.1] > place[i]) {
            let update = multiply(block, &y[j * m..(j + 1) * m]);
            (0..m).for_each(|r| z[r] -= update[r]);
        }
        y[i * m..(i + 1) * m].copy_from_slice(&z);
    }
    y
}

/// What a device holds, by block row and column.
fn read(space: &Cpu, ildu: &Ildu<Cpu>) -> Blocks {
    let (plan, values) = (ildu.plan(), space.read_factors(ildu.factors()).unwrap());
    let mm = plan.order * plan.order;
    let mut all = Blocks::new();
    for p in 0..plan.count() {
        for i in plan.ptr[p]..plan.ptr[p + 1] {
            for e in plan.row_ptr[i]..plan.row_ptr[i + 1] {
                let j = plan.rows[plan.ptr[p] + plan.columns[e] as usize];
                all.insert((plan.rows[i] as usize, j as usize), values[e * mm..(e + 1) * mm].to_vec());
            }
        }
    }
    all
}

fn check_factors(got: &Blocks, expected: &Blocks, what: &str) {
    assert!(got.keys().eq(expected.keys()), "{what}: another pattern");
    let scale = expected.values().flatten().fold(0.0f64, |m, v| m.max(v.abs()));
    for (at, block) in expected {
        let error = block.iter().zip(&got[at]).fold(0.0f64, |m, (a, b)| m.max((a - b).abs()));
        assert!(error <= 1e-12 * scale, "{what}: block {at:?} is off by {error} of {scale}");
    }
}

/// Labels at random, some never used.
fn random_subdomains(rng: &mut Random, n: usize, count: usize) -> Subdomains {
    let labels: Vec<u32> = (0..n).map(|_| rng.below(count) as u32).collect();
    Subdomains::from_labels(&labels, count + 2).unwrap()
}

fn options(fill: usize) -> IlduOptions {
    IlduOptions { fill, ..IlduOptions::default() }
}

/// Compares factors and application with the reference, eliminated in the natural order of each subdomain or,
/// if the plan chose another order, by position.
fn check(
    terms: &Terms,
    assembled: &Bsr,
    subdomains: &Subdomains,
    fill: usize,
    kept: bool,
    rng: &mut Random,
    what: &str,
) {
    let space = Cpu::new(terms.rows(), 2);
    let ildu = Ildu::new(&space, terms, subdomains, options(fill)).unwrap();
    let order = if kept { natural(subdomains) } else { positions(ildu.plan()) };
    let expected = reference(assembled, &order, fill);
    check_factors(&read(&space, &ildu), &expected, what);
    let x = rng.numbers(terms.rows());
    let mut y = vec![f64::NAN; terms.rows()];
    ildu.apply(&space, &x, &mut y).unwrap();
    let z = apply(assembled.block(), &order, &expected, &x);
    assert!(distance(&y, &z) < 1e-12, "{what}: application off by {}", distance(&y, &z));
}

/// Every row coupled to the one before it, and to some that are near: a numbering that is kept.
fn banded(rng: &mut Random, b: usize, n: usize) -> Bsr {
    let (mut row_ptr, mut col, mut values) = (vec![0], Vec::new(), Vec::new());
    for i in 0..n {
        for j in i.saturating_sub(4)..(i + 5).min(n) {
            if i == j || j + 1 == i || rng.below(3) == 0 {
                col.push(j as u32);
                values
                    .extend((0..b * b).map(|e| {
                        rng.number() + if i == j && e / b == e % b { 12.0 * b as f64 } else { 0.0 }
                    }));
            }
        }
        row_ptr.push(col.len());
    }
    Bsr::new(b, n, n, row_ptr, col, values).unwrap()
}

#[test]
fn factors_and_application_match_a_sequential_reference() {
    let mut rng = Random(1);
    for order in [1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 32] {
        for (n, count) in [(1, 1), (2, 1), (33, 1), (57, 3), (64, 9)] {
            for fill in [0, 1, 3] {
                let what = format!("order {order}, {n} rows, {count} subdomains, ILU({fill})");
                let a = random_bsr(&mut rng, order, n, n, 3, true);
                let subdomains = random_subdomains(&mut rng, n, count);
                check(&Terms::bsr(&a), &a, &subdomains, fill, false, &mut rng, &what);
                let a = banded(&mut rng, order, n);
                let labels: Vec<u32> = (0..n).map(|i| (i * count / n) as u32).collect();
                let runs = Subdomains::from_labels(&labels, count).unwrap();
                check(&Terms::bsr(&a), &a, &runs, fill, true, &mut rng, &format!("banded, {what}"));
            }
        }
    }
}

#[test]
fn sums_of_terms_match_the_assembled_matrix() {
    let mut rng = Random(2);
    for (b, s) in [(1, 1), (1, 2), (2, 2), (4, 2), (3, 3), (4, 3), (4, 4)] {
        for same in [true, false] {
            for fill in [0, 1] {
                let k = random_kronecker(&mut rng, b, s, 40, 3, same, true);
                let subdomains = random_subdomains(&mut rng, 40, 4);
                let what = format!("b={b} s={s} same={same} ILU({fill})");
                check(&Terms::kronecker(&k), &k.assemble(), &subdomains, fill, false, &mut rng, &what);
            }
        }
    }
}

/// 7-point Laplacian of a grid, by blocks whose components are coupled.
fn laplacian(grid: [usize; 3], b: usize) -> Bsr {
    let [nx, ny, nz] = grid;
    let n = nx * ny * nz;
    let (mut row_ptr, mut col, mut values) = (vec![0], Vec::new(), Vec::new());
    for i in 0..n {
        let at = [i % nx, i / nx % ny, i / (nx * ny)];
        let mut row = vec![(i, 6.0)];
        for (d, step) in [1, nx, nx * ny].into_iter().enumerate() {
            row.extend((at[d] > 0).then(|| (i - step, -1.0)));
            row.extend((at[d] + 1 < grid[d]).then_some((i + step, -1.0)));
        }
        row.sort_by_key(|r| r.0);
        for (j, v) in row {
            col.push(j as u32);
            values.extend((0..b * b).map(|e| if e / b == e % b { v } else { 0.05 * v }));
        }
        row_ptr.push(col.len());
    }
    Bsr::new(b, n, n, row_ptr, col, values).unwrap()
}

fn applied(space: &Cpu, ildu: &Ildu<Cpu>, x: &[f64]) -> Vec<f64> {
    let mut y = vec![f64::NAN; x.len()];
    ildu.apply(space, &x.to_vec(), &mut y).unwrap();
    y
}

#[test]
fn one_subdomain_is_global_ilu() {
    let mut rng = Random(3);
    let a = laplacian([7, 6, 5], 2);
    check(&Terms::bsr(&a), &a, &Subdomains::whole(210), 0, true, &mut rng, "natural order");
    // On a grid in natural order levels are the planes x + y + z.
    let plan = Plan::new(&Terms::bsr(&a), &Subdomains::whole(210), 0).unwrap();
    assert_eq!((plan.levels.len(), plan.dropped, plan.stored), (7 + 6 + 5 - 2, 0, a.blocks()));
    assert_eq!(plan.fill(), 1.0);
}

/// Boxes of a grid, ragged at the far sides, and every block accounted for.
#[test]
fn boxes_of_a_grid() {
    let mut rng = Random(4);
    let a = laplacian([9, 5, 4], 1);
    let boxes = Subdomains::boxes([9, 5, 4], [4, 2, 3]);
    assert_eq!((boxes.count(), boxes.block_rows(), boxes.largest()), (3 * 3 * 2, 180, 24));
    assert_eq!(boxes.rows(2), [8, 17, 53, 62, 98, 107]);
    check(&Terms::bsr(&a), &a, &boxes, 0, true, &mut rng, "boxes");
    let plan = Plan::new(&Terms::bsr(&a), &boxes, 0).unwrap();
    assert_eq!(plan.entries() + plan.dropped, plan.stored);
    // Two cuts across x of 20 couplings each, two across y of 36, one across z of 45, both ways.
    assert_eq!(plan.dropped, 2 * (2 * 20 + 2 * 36 + 45));
}

#[test]
fn full_fill_is_a_direct_solve() {
    let mut rng = Random(5);
    for (b, s, n) in [(1, 1, 40), (2, 2, 15)] {
        let k = random_kronecker(&mut rng, b, s, n, 2, false, true);
        let space = Cpu::new(k.rows(), 2);
        let ildu = Ildu::new(&space, &Terms::kronecker(&k), &Subdomains::whole(n), options(n)).unwrap();
        let x = rng.numbers(k.rows());
        let d = distance(&applied(&space, &ildu, &x), &solve(&dense(&k), &x));
        assert!(d < 1e-11, "b={b} s={s}: {d}");
    }
}

/// A shuffled numbering is repaired inside a subdomain: the factors are those of a good order, not of the
/// shuffled one.
#[test]
fn a_numbering_without_neighbourhood_is_replaced() {
    let mut rng = Random(6);
    let grid = laplacian([8, 8, 8], 1);
    let mut name: Vec<u32> = (0..512).collect();
    (1..512).rev().for_each(|i| name.swap(i, rng.below(i + 1)));
    let entries: Vec<(u32, u32, f64)> = (0..512)
        .flat_map(|i| (grid.row_ptr()[i]..grid.row_ptr()[i + 1]).map(move |e| (i, e)))
        .map(|(i, e)| (name[i], name[grid.col()[e] as usize], grid.values()[e]))
        .collect();
    let a = Bsr::from_csr(&Csr::from_triplets(512, 512, &entries).unwrap(), 1).unwrap();
    let plan = Plan::new(&Terms::bsr(&a), &Subdomains::whole(512), 0).unwrap();
    assert_eq!(plan.levels.len(), 22, "the wavefronts of the grid, whatever its numbering");
}

#[test]
fn new_values_a_hundred_times_equal_a_fresh_object() {
    let mut rng = Random(7);
    for (b, s) in [(1, 1), (2, 2), (3, 4)] {
        let mut k = random_kronecker(&mut rng, b, s, 60, 3, false, true);
        let subdomains = random_subdomains(&mut rng, 60, 5);
        let space = Cpu::new(k.rows(), 2);
        let mut ildu = Ildu::new(&space, &Terms::kronecker(&k), &subdomains, options(1)).unwrap();
        let x = rng.numbers(k.rows());
        for step in 0..100 {
            k.m.values_mut().iter_mut().for_each(|v| *v *= 1.0 + 0.01 * rng.number());
            k.tau *= 1.0 + 0.01 * rng.number();
            let terms = Terms::kronecker(&k);
            ildu.update_values(&space, &terms).unwrap();
            let fresh = Ildu::new(&space, &terms, &subdomains, options(1)).unwrap();
            assert_eq!(applied(&space, &ildu, &x), applied(&space, &fresh, &x), "b={b} s={s} step {step}");
        }
    }
}

#[test]
fn any_number_of_threads_gives_the_same_bits() {
    let mut rng = Random(8);
    for (b, precision) in [(1, Precision::F64), (3, Precision::F64), (1, Precision::F32), (5, Precision::F32)]
    {
        let a = laplacian([11, 9, 8], b);
        let subdomains = random_subdomains(&mut rng, 792, 7);
        let x = rng.numbers(792 * b);
        let mut first: Option<(Vec<f64>, Vec<f64>)> = None;
        for threads in 1..=4 {
            let space = eager(792 * b, threads);
            let options = IlduOptions { precision, ..options(1) };
            let ildu = Ildu::new(&space, &Terms::bsr(&a), &subdomains, options).unwrap();
            let got = (space.read_factors(ildu.factors()).unwrap(), applied(&space, &ildu, &x));
            assert!(
                *first.get_or_insert_with(|| got.clone()) == got,
                "b={b} {precision:?}, {threads} threads"
            );
        }
    }
}

#[test]
fn factors_in_f32_are_rounded_and_no_more() {
    let mut rng = Random(9);
    for b in [1, 3, 4, 12] {
        let a = laplacian([6, 5, 4], b);
        let (terms, boxes) = (Terms::bsr(&a), Subdomains::boxes([6, 5, 4], [3, 3, 4]));
        let space = Cpu::new(120 * b, 2);
        let exact = Ildu::new(&space, &terms, &boxes, options(0)).unwrap();
        let rounded =
            Ildu::new(&space, &terms, &boxes, IlduOptions { precision: Precision::F32, ..options(0) })
                .unwrap();
        let f = |ildu: &Ildu<Cpu>| space.read_factors(ildu.factors()).unwrap();
        let expected: Vec<f64> = f(&exact).iter().map(|&v| f64::from(v as f32)).collect();
        assert_eq!(f(&rounded), expected, "b={b}");
        let x = rng.numbers(120 * b);
        let d = distance(&applied(&space, &rounded, &x), &applied(&space, &exact, &x));
        assert!(d > 0.0 && d < 1e-6, "b={b}: {d}");
        assert!(rounded.bytes() < exact.bytes());
    }
}

/// Subdomains of as many rows as 16 bits can number, and of one more. A tridiagonal matrix has exact factors.
#[test]
fn columns_of_16_and_32_bits() {
    for n in [1 << 16, (1 << 16) + 1] {
        let a = laplacian([n, 1, 1], 1);
        let space = Cpu::new(n, 2);
        let ildu = Ildu::new(&space, &Terms::bsr(&a), &Subdomains::whole(n), options(0)).unwrap();
        let x = Random(n as u64).numbers(n);
        let y = applied(&space, &ildu, &x);
        let mut back = vec![0.0; n];
        PointBlock::bsr(&space, &a, Precision::F64).unwrap().apply(&space, &y, &mut back).unwrap();
        assert!(distance(&back, &x) < 1e-13, "{n} rows");
    }
}

/// What a rank makes of its part is what stands in the preconditioner of the whole.
#[test]
fn a_rank_has_the_factors_of_its_subdomains() {
    let mut rng = Random(10);
    let k = random_kronecker(&mut rng, 2, 2, 50, 4, false, true);
    let terms = Terms::kronecker(&k);
    let partition = Partition::new((0..50).map(|_| rng.below(3) as u32).collect(), 3).unwrap();
    let space = Cpu::new(k.rows(), 2);
    let subdomains = Subdomains::from_labels(&partition.owner, 3).unwrap();
    let whole = Ildu::new(&space, &terms, &subdomains, options(1)).unwrap();
    let (mut all, mut dropped, mut stored) = (Blocks::new(), 0, 0);
    for part in split(&terms, &partition).unwrap() {
        let n = part.rows.len();
        let space = Cpu::new(n * 4, 1);
        let ildu = Ildu::new(&space, &part.terms, &Subdomains::whole(n), options(1)).unwrap();
        let named = |(i, j): (usize, usize)| (part.rows[i] as usize, part.rows[j] as usize);
        all.extend(read(&space, &ildu).into_iter().map(|(at, block)| (named(at), block)));
        dropped += ildu.plan().dropped;
        stored += ildu.plan().stored;
    }
    assert!(all == read(&space, &whole));
    assert_eq!((dropped, stored), (whole.plan().dropped, whole.plan().stored));
}

#[test]
fn fewer_iterations_than_jacobi() {
    let grid = [24, 20, 16];
    let a = laplacian(grid, 2);
    let n = a.rows();
    let space = Cpu::new(n, 2);
    let (terms, operator) = (Terms::bsr(&a), PointBlock::bsr(&space, &a, Precision::F64).unwrap());
    let rhs = vec![1.0; n];
    let iterations = |p: &dyn LinearOperator<Cpu>| {
        let (mut gmres, mut x) = (Gmres::new(&space, GmresOptions::default()).unwrap(), vec![0.0; n]);
        let stop = Stop { rtol: 1e-8, ..Stop::default() };
        let history = gmres.solve(&space, &operator, Some(p), &rhs, &mut x, &stop, &mut ()).unwrap();
        assert_eq!(history.outcome, Outcome::Converged);
        history.residuals.len() - 1
    };
    let ildu = |subdomains: &Subdomains, fill| {
        iterations(&Ildu::new(&space, &terms, subdomains, options(fill)).unwrap())
    };
    let boxes = Subdomains::boxes(grid, [8, 8, 8]);
    let jacobi = iterations(&BlockJacobi::new(&space, &terms, Precision::F64).unwrap());
    let (small, whole) = (ildu(&boxes, 0), ildu(&Subdomains::whole(grid.iter().product()), 0));
    let filled = ildu(&boxes, 2);
    assert!(2 * small < jacobi, "{small} with ILDU(0), {jacobi} with Jacobi");
    assert!(whole < small && filled < small, "{whole} whole, {filled} with ILU(2), {small} in boxes");
}

/// A scalar matrix by triplets, as blocks of order b.
fn triplets(n: u32, b: usize, entries: &[(u32, u32, f64)]) -> Bsr {
    Bsr::from_csr(&Csr::from_triplets(n as usize, n as usize, entries).unwrap(), b).unwrap()
}

/// Rows 0 to 4 are fine, row 5 is in question, and a later subdomain has the same fault once more.
fn faulty(diagonal: f64, beside: f64) -> Bsr {
    let mut entries: Vec<(u32, u32, f64)> = (0..12).map(|i| (i, i, 4.0)).collect();
    for i in [5, 10] {
        entries[i as usize].2 = diagonal;
        entries.extend([(i, i + 1, beside), (i + 1, i, 1.0)]);
    }
    triplets(12, 1, &entries)
}

#[test]
fn bad_pivots_are_reported_with_their_row_and_shifted_on_request() {
    let space = Cpu::new(12, 2);
    let two = Subdomains::from_labels(&[0, 0, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0], 2).unwrap();
    // Row 6 overflows: L(6, 5) = 1e305/1e-5.
    let overflow = {
        let mut entries: Vec<(u32, u32, f64)> = (0..12).map(|i| (i, i, 4.0)).collect();
        entries[5].2 = 1e-5;
        entries.extend([(5, 6, 1e5), (6, 5, 1e305)]);
        triplets(12, 1, &entries)
    };
    // The inverse of a subnormal number is infinite.
    let cases = [
        (faulty(0.0, 1.0), 5, "zero", 2),
        (faulty(1e-15, 1.0), 5, "tiny", 2),
        (faulty(1e-310, 1e-310), 5, "non-finite", 2),
        (overflow, 6, "non-finite", 1),
    ];
    for (a, row, kind, count) in &cases {
        let terms = Terms::bsr(a);
        let error = Ildu::new(&space, &terms, &two, options(0)).err().expect("a bad pivot");
        let Error::Pivot { row: found, kind: what, .. } = &error else { panic!("{error}") };
        assert_eq!((found, what), (row, kind));
        assert!(error.to_string().contains(&format!("{kind} pivot in block row {row}")), "{error}");
        assert_eq!(error.exit_code(), 2);
        if a.values().contains(&1e-310) {
            continue; // a row of subnormal numbers cannot be mended relative to itself
        }
        let shifted = IlduOptions { shift: Some(0.1), ..options(0) };
        let ildu = Ildu::new(&space, &terms, &two, shifted).unwrap();
        assert_eq!((ildu.pivots().bad, ildu.pivots().shifted), (0, *count), "{kind}");
        assert!(applied(&space, &ildu, &[1.0; 12]).iter().all(|v| v.is_finite()), "{kind}");
    }
    // The shifted factors are those of the matrix with a shifted diagonal.
    let shifted = IlduOptions { shift: Some(0.1), ..options(0) };
    let ildu = Ildu::new(&space, &Terms::bsr(&cases[0].0), &two, shifted).unwrap();
    let expected = reference(&faulty(0.1, 1.0), &natural(&two), 0);
    check_factors(&read(&space, &ildu), &expected, "shifted");
}

#[test]
fn bad_blocks_are_reported_and_shifted() {
    let mut entries = vec![(0, 0, 2.0), (1, 1, 2.0), (4, 4, 2.0), (5, 5, 2.0), (2, 4, 3.0), (5, 3, 1.0)];
    let space = Cpu::new(6, 1);
    let one = Subdomains::whole(3);
    let fails = |entries: &[(u32, u32, f64)], kind: &str| {
        let a = triplets(6, 2, entries);
        let error = Ildu::new(&space, &Terms::bsr(&a), &one, options(0)).err().expect("a bad block");
        assert!(matches!(&error, Error::Pivot { row: 1, kind: k, .. } if *k == kind), "{error}");
        let shifted = IlduOptions { shift: Some(0.5), ..options(0) };
        assert_eq!(Ildu::new(&space, &Terms::bsr(&a), &one, shifted).unwrap().pivots().shifted, 1);
    };
    fails(&entries, "zero"); // missing
    entries.extend([(2, 2, 1.0), (2, 3, 2.0), (3, 2, 2.0), (3, 3, 4.0)]);
    fails(&entries, "zero"); // of rank one
    entries.last_mut().unwrap().2 = 4.0 + 1e-14;
    fails(&entries, "tiny");
}

#[test]
fn what_does_not_fit_is_refused() {
    let a = laplacian([3, 3, 1], 1);
    let space = Cpu::new(9, 1);
    let refused = |error: Option<Error>, words: &str| {
        let error = error.expect("an error");
        assert!(error.to_string().contains(words), "{error}");
    };
    let terms = Terms::bsr(&a);
    refused(Plan::new(&terms, &Subdomains::whole(8), 0).err(), "8 block rows, but the matrix has 9");
    let wide = Bsr::new(1, 1, 2, vec![0, 1], vec![0], vec![1.0]).unwrap();
    refused(Plan::new(&Terms::bsr(&wide), &Subdomains::whole(1), 0).err(), "square");
    let large = Bsr::new(33, 1, 1, vec![0, 1], vec![0], vec![1.0; 33 * 33]).unwrap();
    refused(Plan::new(&Terms::bsr(&large), &Subdomains::whole(1), 0).err(), "order 33");
    for shift in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        let options = IlduOptions { shift: Some(shift), ..options(0) };
        refused(Ildu::new(&space, &terms, &Subdomains::whole(9), options).err(), "positive");
    }
    let mut ildu = Ildu::new(&space, &terms, &Subdomains::whole(9), options(0)).unwrap();
    refused(
        ildu.update_values(&space, &Terms::bsr(&laplacian([9, 1, 1], 1))).err(),
        "do not match the terms",
    );
    refused(ildu.apply(&space, &vec![0.0; 9], &mut vec![0.0; 8]).err(), "9×9");
    let nothing = Bsr::new(1, 0, 0, vec![0], vec![], vec![]).unwrap();
    let empty = Cpu::new(0, 2);
    let ildu = Ildu::new(&empty, &Terms::bsr(&nothing), &Subdomains::whole(0), options(0)).unwrap();
    assert_eq!(applied(&empty, &ildu, &[]), []);
}

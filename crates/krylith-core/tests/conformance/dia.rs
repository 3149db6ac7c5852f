//! Products by diagonals: against products by rows, in both ways of storage, alone and among ranks.

use super::distributed::MakeShare;
use super::{Make, apply};
use crate::common::{Random, scaled};
use krylith_core::Precision;
use krylith_core::comm::{Communicator, Team};
use krylith_core::matrix::{Bsr, Dia};
use krylith_core::operator::{Dots, Format, LinearOperator, PointBlock, PointBlockSum};
use krylith_core::partition::{Part, Partition, split};
use krylith_core::space::FLAGS;
#[cfg(feature = "cuda")]
use krylith_core::space::{Schedule, Space};
use std::sync::Arc;

/// What a stencil couples: steps in x, y, z.
type Near<'a> = &'a dyn Fn([i64; 3]) -> bool;

const SEVEN: Near = &|o| o.iter().map(|v| v.abs()).sum::<i64>() <= 1;
const ALL: Near = &|_| true;

/// A matrix of a box of nodes, x fastest, whose entry (i, j) is `value(i, j)`.
fn stencil(box_: [usize; 3], near: Near, value: &mut dyn FnMut(usize, usize) -> f64) -> Bsr {
    let [nx, ny, nz] = box_.map(|n| n as i64);
    let n = (nx * ny * nz) as usize;
    let (mut row_ptr, mut col, mut values) = (vec![0], Vec::new(), Vec::new());
    for i in 0..n {
        let k = i as i64;
        let (x, y, z) = (k % nx, k / nx % ny, k / (nx * ny));
        for o in (0..27).map(|o| [o % 3 - 1, o / 3 % 3 - 1, o / 9 - 1]).filter(|o| near(*o)) {
            let at = [x + o[0], y + o[1], z + o[2]];
            if at.iter().zip([nx, ny, nz]).all(|(v, n)| (0..n).contains(v)) {
                let j = ((at[2] * ny + at[1]) * nx + at[0]) as usize;
                col.push(j as u32);
                values.push(value(i, j));
            }
        }
        row_ptr.push(col.len());
    }
    Bsr::new(1, n, n, row_ptr, col, values).unwrap()
}

/// A matrix that comes by diagonals is multiplied by them.
fn from_diagonals() -> Bsr {
    let offsets = vec![-70, -33, -1, 0, 1, 2, 64, 2000];
    let n = 5000i64;
    let mut rng = Random(140);
    let inside = offsets.iter().flat_map(|&o: &i64| (0..n).map(move |i| (0..n).contains(&(i + o))));
    let values = inside.map(|inside| if inside { rng.number() } else { 0.0 }).collect();
    Bsr::from_csr(&Dia::new(n as usize, n as usize, offsets, values).unwrap().to_csr(), 1).unwrap()
}

/// A number for a pair of nodes, the same both ways.
fn mutual(i: usize, j: usize) -> f64 {
    let (low, high) = (i.min(j), i.max(j));
    let mixed =
        (low as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (high as u64).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let sign = if i == j { 7.0 } else { -1.0 };
    sign * (0.5 + (mixed >> 12) as f64 / (1u64 << 52) as f64)
}

/// A matrix on given diagonals, without the entries that `drop` names.
fn banded(n: usize, offsets: &[i64], drop: impl Fn(usize, usize) -> bool, rng: &mut Random) -> Bsr {
    let (mut row_ptr, mut col, mut values) = (vec![0], Vec::new(), Vec::new());
    for i in 0..n {
        for j in offsets.iter().map(|o| i as i64 + o).filter(|j| (0..n as i64).contains(j)) {
            if !drop(i, j as usize) {
                col.push(j as u32);
                values.push(rng.number());
            }
        }
        row_ptr.push(col.len());
    }
    Bsr::new(1, n, n, row_ptr, col, values).unwrap()
}

/// Matrices, and the format that `auto` takes for each.
fn matrices() -> Vec<(String, Bsr, Format)> {
    let mut rng = Random(131);
    let mut all = vec![("a matrix by diagonals".into(), from_diagonals(), Format::DiaFull)];
    for n in [1, 5, 31, 33, 255, 257, 1000] {
        all.push((
            format!("{n} rows, three diagonals"),
            banded(n, &[-1, 0, 1], |_, _| false, &mut rng),
            Format::DiaFull,
        ));
    }
    all[1].2 = Format::Dia; // one number is symmetric
    for sides in [[7, 6, 5], [13, 1, 9], [33, 17, 9], [1, 1, 70], [65, 64, 6]] {
        all.push((format!("7 points, {sides:?}"), stencil(sides, SEVEN, &mut mutual), Format::Dia));
        let mut skew = |i, j| mutual(i, j) + if i > j { 0.25 } else { 0.0 };
        all.push((
            format!("7 points, {sides:?}, not symmetric"),
            stencil(sides, SEVEN, &mut skew),
            Format::DiaFull,
        ));
    }
    let mut weak = |i: usize, j: usize| mutual(i, j) * if i.abs_diff(j) >= 35 { 1e-9 } else { 1.0 };
    all.push(("7 points, weak in z".into(), stencil([7, 5, 40], SEVEN, &mut weak), Format::Dia));
    all.push(("27 points".into(), stencil([12, 11, 10], ALL, &mut mutual), Format::Dia));
    let mut skew = |i, j| mutual(i, j) + 0.1 * (i as f64 - j as f64);
    all.push(("27 points, not symmetric".into(), stencil([12, 11, 10], ALL, &mut skew), Format::DiaFull));
    // Planes of more rows than one pass of the caches.
    let sides = [70, 61, 9];
    all.push(("large planes".into(), stencil(sides, SEVEN, &mut mutual), Format::Dia));
    let mut skew = |i, j| mutual(i, j) + if i > j { 0.25 } else { 0.0 };
    all.push(("large planes, not symmetric".into(), stencil(sides, SEVEN, &mut skew), Format::DiaFull));
    all.push(("27 points, large planes".into(), stencil([67, 66, 5], ALL, &mut mutual), Format::Dia));
    let far = [-900, -40, -3, 0, 2, 64, 65, 700];
    all.push(("uneven diagonals".into(), banded(4000, &far, |_, _| false, &mut rng), Format::DiaFull));
    let holes = |i: usize, j: usize| (i + 3 * j).is_multiple_of(5);
    all.push((
        "places without entries".into(),
        banded(3000, &[-50, -1, 0, 1, 50], holes, &mut rng),
        Format::DiaFull,
    ));
    let wide: Vec<i64> = (-15..=16).collect();
    all.push(("32 diagonals".into(), banded(2000, &wide, |_, _| false, &mut rng), Format::DiaFull));
    let wide: Vec<i64> = (-16..=16).collect();
    all.push(("33 diagonals".into(), banded(2000, &wide, |_, _| false, &mut rng), Format::Csr));
    let half = |i: usize, j: usize| i % 2 == 1 && i != j;
    all.push((
        "diagonals that are half empty".into(),
        banded(3000, &[-50, -1, 0, 1, 50], half, &mut rng),
        Format::Csr,
    ));
    // A diagonal for one entry: with one such the matrix is still worth its places, with two it is not.
    let one = |i: usize, j: usize| j == i + 900 && i != 17;
    all.push(("a far entry".into(), banded(1000, &[-1, 0, 1, 900], one, &mut rng), Format::DiaFull));
    let one = |i: usize, j: usize| (j == i + 900 && i != 17) || (j + 900 == i && j != 4);
    all.push(("two far entries".into(), banded(1000, &[-900, -1, 0, 1, 900], one, &mut rng), Format::Csr));
    all
}

/// A x with numbers as stored, and |A| |x|.
fn reference(c: f64, a: &Bsr, precision: Precision, x: &[f64]) -> Vec<(f64, f64)> {
    let stored = |v: f64| if precision == Precision::F64 { v } else { v as f32 as f64 };
    let row = |i: usize| {
        let products =
            (a.row_ptr()[i]..a.row_ptr()[i + 1]).map(|p| c * stored(a.values()[p]) * x[a.col()[p] as usize]);
        products.fold((0.0, 0.0), |(sum, size): (f64, f64), v| (sum + v, size + v.abs()))
    };
    (0..a.block_rows()).map(row).collect()
}

fn check(y: &[f64], expected: &[(f64, f64)], what: &str) {
    assert_eq!(y.len(), expected.len(), "{what}");
    for (i, (y, (sum, size))) in y.iter().zip(expected).enumerate() {
        assert!((y - sum).abs() <= 40.0 * f64::EPSILON * size, "{what}, row {i}: {y:e}, not {sum:e}");
    }
}

/// Every matrix in every format that can hold it; the format is reported, and an unsuitable one is refused
/// with the reason.
pub fn products_by_diagonals<S: PointBlockSum>(make: Make<S>) {
    for (what, a, taken) in matrices() {
        let (space, n) = (make(a.rows()), a.rows());
        let x = Random(132).numbers(n);
        for (c, precision) in [(1.0, Precision::F64), (-2.5, Precision::F64), (1.0, Precision::F32)] {
            let expected = reference(c, &a, precision, &x);
            let mut bits: Option<Vec<f64>> = None;
            for format in [Format::Auto, Format::Csr, Format::Dia, Format::DiaFull] {
                let what = format!("{what}, {c} times, {precision:?}, {format}");
                let made = PointBlock::with_format(&space, &scaled(c, &a), precision, format);
                if taken == Format::Csr && !matches!(format, Format::Auto | Format::Csr) {
                    let error = made.err().expect(&what).to_string();
                    assert!(error.contains("format=dia") && error.contains("format=auto"), "{what}: {error}");
                    continue;
                }
                let operator = made.unwrap();
                let wanted = match format {
                    Format::Auto | Format::Dia => taken,
                    other => other,
                };
                // Numbers that differ in the last bits may be equal in f32.
                assert!(
                    operator.format() == wanted || precision == Precision::F32,
                    "{what}: {}",
                    operator.format()
                );
                let y = apply(&space, &operator, &x, n);
                check(&y, &expected, &what);
                assert!(y == apply(&space, &operator, &x, n), "{what}: other bits the second time");
                if operator.format() != Format::Csr {
                    assert!(bits.is_none_or(|bits| bits == y), "{what}: other bits than by other diagonals");
                    bits = Some(y);
                }
            }
        }
    }
}

/// Residuals of whole numbers, which integers give exactly, and magnitudes.
pub fn residuals_by_diagonals<S: PointBlockSum>(make: Make<S>) {
    for (what, mut a, taken) in matrices() {
        a.values_mut().iter_mut().for_each(|v| *v = (1e6 * *v).round() + 0.0);
        let (n, c) = (a.rows(), 3i128);
        let mut rng = Random(133);
        let x: Vec<f64> = (0..n).map(|_| (4e7 * rng.number()).round()).collect();
        let exact = |i: usize| -> (i128, i128) {
            (a.row_ptr()[i]..a.row_ptr()[i + 1])
                .map(|p| c * a.values()[p] as i128 * x[a.col()[p] as usize] as i128)
                .fold((0, 0), |(sum, size), v| (sum + v, size + v.abs()))
        };
        let sums: Vec<(i128, i128)> = (0..n).map(exact).collect();
        let rhs: Vec<f64> = sums.iter().map(|s| s.0 as f64).collect();
        let space = make(n);
        let formats =
            if taken == Format::Csr { vec![Format::Auto] } else { vec![Format::Dia, Format::DiaFull] };
        for format in formats {
            let operator =
                PointBlock::with_format(&space, &scaled(c as f64, &a), Precision::F64, format).unwrap();
            let [mut b, mut dx, mut r, mut m] = [(); 4].map(|()| space.vector().unwrap());
            space.write(&rhs, &mut b).unwrap();
            space.write(&x, &mut dx).unwrap();
            for poison in [&mut r, &mut m] {
                space.write(&vec![f64::NAN; n], poison).unwrap();
            }
            assert!(operator.residual(&space, &b, &dx, &mut r, &mut m).unwrap(), "{what}");
            let mut host = [vec![0.0; n], vec![0.0; n]];
            space.read(&r, &mut host[0]).unwrap();
            space.read(&m, &mut host[1]).unwrap();
            for (i, (sum, size)) in sums.iter().enumerate() {
                let (expected, size) = ((rhs[i] as i128 - sum) as f64, rhs[i].abs() + *size as f64);
                let (r, m) = (host[0][i], host[1][i]);
                let bound = f64::EPSILON * expected.abs() + 1e-27 * size;
                assert!((r - expected).abs() <= bound, "{what}, {format}, row {i}: {r:e}, not {expected:e}");
                assert!(
                    (m - size).abs() <= 1e-13 * size,
                    "{what}, {format}, row {i}: magnitude {m:e}, not {size:e}"
                );
            }
        }
    }
}

/// New values equal those of a fresh operator; values that break the symmetry are stored in full, and values
/// that are not finite are refused.
pub fn diagonals_are_updated<S: PointBlockSum>(make: Make<S>) {
    let sides = [17, 13, 11];
    let mut a = stencil(sides, SEVEN, &mut mutual);
    let (space, n) = (make(a.rows()), a.rows());
    let x = Random(134).numbers(n);
    for precision in [Precision::F64, Precision::F32] {
        let mut operator = PointBlock::new(&space, &scaled(1.0, &a), precision, false).unwrap();
        assert_eq!(operator.format(), Format::Dia);
        let mut key = operator.key();
        for (symmetric, changed) in [(true, false), (false, true), (true, false), (false, false)] {
            let mut rng = Random(135);
            let mut value = |i, j| mutual(i, j) * if symmetric { 3.0 } else { rng.number() };
            a = stencil(sides, SEVEN, &mut value);
            operator.update_values(&space, 0, a.values()).unwrap();
            let y = apply(&space, &operator, &x, n);
            check(&y, &reference(1.0, &a, precision, &x), &format!("{precision:?}, symmetric {symmetric}"));
            // Where launches are recorded, only other buffers make them invalid.
            let recorded = space.pipeline_depth() > 0;
            assert_eq!(
                operator.key() != key,
                changed && recorded,
                "{precision:?}, symmetric {symmetric}: the key"
            );
            key = operator.key();
        }
        assert_eq!(operator.format(), Format::DiaFull);
        let y = apply(&space, &operator, &x, n);
        let mut wrong = a.values().to_vec();
        assert!(operator.update_values(&space, 0, &wrong[1..]).is_err());
        wrong[77] = f64::INFINITY;
        let e = operator.update_values(&space, 0, &wrong[..]).unwrap_err().to_string();
        assert!(e.contains("finite"), "{e}");
        assert!(y == apply(&space, &operator, &x, n), "{precision:?}: refused values were taken");
        a = stencil(sides, SEVEN, &mut mutual);
    }
}

/// y, (x, x) and (x, y) of a product with sums in its pass.
fn with_dots<S: PointBlockSum>(
    space: &S,
    operator: &PointBlock<S>,
    x: &[f64],
    both: bool,
) -> Option<(Vec<f64>, [f64; 2])> {
    let (mut dx, mut dy) = (space.vector().unwrap(), space.vector().unwrap());
    let mut scalars = space.scalars(8).unwrap();
    space.write(x, &mut dx).unwrap();
    space.write(&vec![f64::NAN; x.len()], &mut dy).unwrap();
    space.write_scalars(&mut scalars, 0, &[f64::NAN; 8], &[0; FLAGS]).unwrap();
    let dots = if both { Dots::XxXy(3) } else { Dots::Xy(4) };
    let summed = operator.apply_with_dots(space, &dx, &mut dy, &mut scalars, dots).unwrap();
    let (mut y, mut sums) = (vec![0.0; x.len()], [0.0; 8]);
    space.read(&dy, &mut y).unwrap();
    space.read_scalars(&scalars, 0, &mut sums, &mut [0; FLAGS]).unwrap();
    let others = sums.iter().enumerate().filter(|(k, _)| *k != 4 && !(both && *k == 3));
    assert!(others.into_iter().all(|(_, v)| v.is_nan()), "other slots were written");
    summed.then_some((y, [if both { sums[3] } else { 0.0 }, sums[4]]))
}

/// Sums in the pass of a product: y has the same bits as a plain product, and the sums are correct and
/// reproducible.
pub fn products_by_diagonals_sum<S: PointBlockSum>(make: Make<S>) {
    for (what, a, taken) in matrices() {
        let (space, x) = (make(a.rows()), Random(136).numbers(a.rows()));
        for (precision, format) in [
            (Precision::F64, Format::Auto),
            (Precision::F32, Format::Auto),
            (Precision::F64, Format::DiaFull),
        ] {
            let Ok(operator) = PointBlock::with_format(&space, &scaled(1.5, &a), precision, format) else {
                assert_eq!(taken, Format::Csr, "{what}");
                continue;
            };
            let y = apply(&space, &operator, &x, a.rows());
            check(&y, &reference(1.5, &a, precision, &x), &what);
            for both in [false, true] {
                let found = with_dots(&space, &operator, &x, both);
                assert_eq!(found.is_some(), taken != Format::Csr, "{what}");
                let Some((summed, sums)) = found else { continue };
                assert!(summed == y, "{what}: other bits with sums");
                let dot = |y: &[f64]| -> (f64, f64) {
                    x.iter().zip(y).map(|(x, y)| x * y).fold((0.0, 0.0), |(s, m), v| (s + v, m + v.abs()))
                };
                for (sum, (expected, size)) in
                    [(sums[1], dot(&y)), (sums[0], dot(&x))].into_iter().take(1 + both as usize)
                {
                    assert!((sum - expected).abs() <= 1e-13 * size, "{what}: {sum:e}, not {expected:e}");
                }
                let again = with_dots(&space, &operator, &x, both).unwrap().1;
                assert!(again == sums, "{what}: other sums the second time");
            }
        }
    }
}

/// Boxes of a grid for this number of ranks, and contiguous rows; true if the entries of every rank lie on
/// few diagonals.
fn partitions(sides: [usize; 3], ranks: usize) -> Vec<(&'static str, Partition, bool)> {
    let n: usize = sides.iter().product();
    let make = |owner: &dyn Fn(usize) -> usize| {
        Partition::new((0..n).map(|i| owner(i) as u32).collect(), ranks).unwrap()
    };
    let [nx, ny, _] = sides;
    // Two halves in x, and the rest in y: edges are odd.
    let boxes = |i: usize| {
        let (x, y) = (i % nx, i / nx % ny);
        let half = ranks.min(2);
        (x * half / nx) + half * (y * ranks.div_ceil(half) / ny)
    };
    let dust = |i: usize| (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
    let some = |i: usize| if i < n / 2 && ranks > 2 { 0 } else { dust(i) as usize % ranks };
    vec![
        ("boxes", make(&|i| boxes(i).min(ranks - 1)), true),
        ("runs", make(&|i| i * ranks / n), true),
        ("one rank has nothing", make(&|i| if ranks > 1 { i * (ranks - 1) / n } else { 0 }), true),
        ("dust", make(&some), ranks == 1),
    ]
}

/// Products, sums, residuals and new values of ranks are those of one.
pub fn ranks_share_diagonals<S: PointBlockSum>(counts: &[usize], make: MakeShare<S>) {
    let sides = [15, 11, 20];
    let mut skew = |i, j| mutual(i, j) + if i > j { 0.25 } else { 0.0 };
    let all = [
        ("symmetric", stencil(sides, SEVEN, &mut mutual)),
        ("not symmetric", stencil(sides, SEVEN, &mut skew)),
    ];
    for (kind, a) in &all {
        let mut doubled = a.clone();
        doubled.values_mut().iter_mut().for_each(|v| *v *= 2.0);
        let x = Random(137).numbers(a.rows());
        let b = Random(138).numbers(a.rows());
        for &ranks in counts {
            for (how, partition, everywhere) in partitions(sides, ranks) {
                let what = format!("{kind}, {ranks} ranks, {how}");
                let parts = split(&scaled(1.5, a), &partition).unwrap();
                let again = split(&scaled(1.5, &doubled), &partition).unwrap();
                let work = |comm: Arc<dyn Communicator>| -> krylith_core::Result<()> {
                    let comm = &comm;
                    let (part, next): (&Part, &Part) = (&parts[comm.rank()], &again[comm.rank()]);
                    let space = make(comm, part.rows.len())?;
                    let own =
                        |of: &[f64]| -> Vec<f64> { part.rows.iter().map(|&i| of[i as usize]).collect() };
                    let mut operator = PointBlock::new(&space, &part.terms, Precision::F64, false)?;
                    let mut product = a;
                    for round in 0..2 {
                        let whole = reference(1.5, product, Precision::F64, &x);
                        let expected: Vec<(f64, f64)> =
                            part.rows.iter().map(|&i| whole[i as usize]).collect();
                        let y = apply(&space, &operator, &own(&x), part.rows.len());
                        check(&y, &expected, &what);
                        for both in [false, true] {
                            let found = with_dots(&space, &operator, &own(&x), both);
                            assert_eq!(found.is_some(), everywhere, "{what}");
                            let Some((summed, sums)) = found else { continue };
                            assert!(summed == y, "{what}: other bits with sums");
                            let xy: f64 = whole.iter().zip(&x).map(|(y, x)| y.0 * x).sum();
                            let size: f64 = whole.iter().zip(&x).map(|(y, x)| y.1 * x.abs()).sum();
                            assert!(
                                (sums[1] - xy).abs() <= 1e-13 * size,
                                "{what}: {:e}, not {xy:e}",
                                sums[1]
                            );
                            let xx: f64 = x.iter().map(|x| x * x).sum();
                            assert!(
                                !both || (sums[0] - xx).abs() <= 1e-13 * xx,
                                "{what}: {:e}, not {xx:e}",
                                sums[0]
                            );
                            assert!(
                                with_dots(&space, &operator, &own(&x), both).unwrap().1 == sums,
                                "{what}: other sums"
                            );
                        }
                        let [mut db, mut dx, mut r, mut m] = [(); 4].map(|()| space.vector().unwrap());
                        space.write(&own(&b), &mut db)?;
                        space.write(&own(&x), &mut dx)?;
                        operator.residual(&space, &db, &dx, &mut r, &mut m)?;
                        let mut host = [vec![0.0; part.rows.len()], vec![0.0; part.rows.len()]];
                        space.read(&r, &mut host[0])?;
                        space.read(&m, &mut host[1])?;
                        for (i, b) in own(&b).into_iter().enumerate() {
                            let (r, size) = (b - expected[i].0, b.abs() + expected[i].1);
                            assert!((host[0][i] - r).abs() <= 1e-14 * size, "{what}, row {i}: residual");
                            assert!((host[1][i] - size).abs() <= 1e-14 * size, "{what}, row {i}: magnitude");
                        }
                        if round == 0 {
                            operator.update_values(&space, 0, next.terms.terms()[0].1.values())?;
                            product = &doubled;
                        }
                    }
                    Ok(())
                };
                Team::run(ranks, |comm| work(comm)).unwrap();
            }
        }
    }
}

/// What only a GPU has.
#[cfg(feature = "cuda")]
pub mod gpu {
    use super::*;
    use krylith_core::device::cuda::{Cuda, Device};
    use std::time::Instant;

    /// New values that are on the device already.
    pub fn diagonals_are_updated_from_device_memory(device: &Arc<Device>) {
        let a = stencil([17, 13, 11], SEVEN, &mut mutual);
        let (space, x) = (Cuda::new(device, a.rows()).unwrap(), Random(139).numbers(a.rows()));
        let mut operator = PointBlock::new(&space, &scaled(1.0, &a), Precision::F64, false).unwrap();
        let mut b = a.clone();
        b.values_mut().iter_mut().for_each(|v| *v *= -3.0);
        let values = device.upload(b.values(), "new values").unwrap();
        operator.update_values(&space, 0, &values).unwrap();
        check(&apply(&space, &operator, &x, a.rows()), &reference(1.0, &b, Precision::F64, &x), "new values");
        let mut wrong = b.values().to_vec();
        wrong[77] = f64::NAN;
        let values = device.upload(&wrong, "new values").unwrap();
        let e = operator.update_values(&space, 0, &values).unwrap_err().to_string();
        assert!(e.contains("must be finite"), "{e}");
    }

    /// Prints the milliseconds of a product and its share of the bandwidth, by format, with sums and without,
    /// and of a set-up from arrays on the device.
    pub fn dia_speed(device: &Arc<Device>) {
        let bandwidth = device.read_bandwidth().unwrap();
        println!("bandwidth {:.0} GB/s", bandwidth / 1e9);
        let cases: [(&str, [usize; 3], Near); 5] = [
            ("7 points, 128^3", [128; 3], SEVEN),
            ("7 points, 256^3", [256; 3], SEVEN),
            ("7 points, 256x128x512", [256, 128, 512], SEVEN),
            ("5 points, 2048^2", [2048, 2048, 1], SEVEN),
            ("27 points, 128^3", [128; 3], ALL),
        ];
        for (name, sides, near) in cases {
            let a = stencil(sides, near, &mut mutual);
            let space = Cuda::new(device, a.rows()).unwrap();
            let placed = space.place(&scaled(1.0, &a)).unwrap();
            let mut scalars = space.scalars(8).unwrap();
            let (mut x, mut y) = (space.vector().unwrap(), space.vector().unwrap());
            space.write(&vec![1.0; a.rows()], &mut x).unwrap();
            for (format, precision) in [
                (Format::Csr, Precision::F64),
                (Format::DiaFull, Precision::F64),
                (Format::Dia, Precision::F64),
                (Format::Dia, Precision::F32),
            ] {
                let mut operator = PointBlock::with_format(&space, &placed, precision, format).unwrap();
                space.wait().unwrap();
                let begin = Instant::now();
                operator = {
                    drop(operator);
                    PointBlock::with_format(&space, &placed, precision, format).unwrap()
                };
                space.wait().unwrap();
                let set_up = begin.elapsed().as_secs_f64();
                let mut seconds = |dots: Option<Dots>| {
                    let mut best = f64::INFINITY;
                    for _ in 0..12 {
                        space.wait().unwrap();
                        let start = Instant::now();
                        for _ in 0..40 {
                            match dots {
                                None => operator.apply(&space, &x, &mut y).unwrap(),
                                Some(dots) => {
                                    operator.apply_with_dots(&space, &x, &mut y, &mut scalars, dots).unwrap();
                                }
                            }
                        }
                        space.wait().unwrap();
                        best = best.min(start.elapsed().as_secs_f64() / 40.0);
                    }
                    best
                };
                let (plain, one, two) =
                    (seconds(None), seconds(Some(Dots::Xy(0))), seconds(Some(Dots::XxXy(0))));
                let bytes = operator.bytes() as f64;
                let share = |seconds: f64| 100.0 * bytes / seconds / bandwidth;
                println!(
                    "{name}: {format} {precision:?}, {:.1} bytes a row: {:.4} ms ({:.1} %), with a sum {:.4} ms ({:.1} %), with two {:.4} ms \
                     ({:.1} %); set-up {:.3} ms",
                    bytes / a.rows() as f64,
                    plain * 1e3,
                    share(plain),
                    one * 1e3,
                    share(one),
                    two * 1e3,
                    share(two),
                    set_up * 1e3
                );
            }
        }
    }
}

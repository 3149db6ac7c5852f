//! Scalar rows of every length: products, residuals and new values against sums computed independently of any
//! device.

use super::distributed::{MakeShare, partitions};
use super::{Make, apply};
use crate::common::{Random, scaled};
use krylith_core::comm::{Communicator, Team};
use krylith_core::matrix::Bsr;
use krylith_core::operator::{Format, LinearOperator, PointBlock, PointBlockSum};
use krylith_core::partition::{Part, Partition, split};
use krylith_core::{Precision, Result};
use std::sync::Arc;

/// Creates a square matrix whose first rows have these lengths, with distinct columns that begin anywhere;
/// values come from `number`.
fn rows_of(lengths: &[usize], rng: &mut Random, number: &mut dyn FnMut(&mut Random) -> f64) -> Bsr {
    let n = lengths.len().max(lengths.iter().copied().max().unwrap_or(0));
    let (mut row_ptr, mut col) = (vec![0], Vec::new());
    for i in 0..n {
        let len = lengths.get(i).copied().unwrap_or(0);
        let (first, step) = (rng.below(n), n.checked_div(len).unwrap_or(1));
        let mut row: Vec<u32> = (0..len).map(|k| ((first + k * step) % n) as u32).collect();
        row.sort_unstable();
        col.extend(row);
        row_ptr.push(col.len());
    }
    let values = (0..col.len()).map(|_| number(rng)).collect();
    Bsr::new(1, n, n, row_ptr, col, values).unwrap()
}

/// Row lengths that cover every way in which a device sums rows. They are 0 and 1, around a warp, around the
/// length up to which no row is split, longer than one tile and several, a few long rows among short ones,
/// and power laws.
fn lengths(rng: &mut Random) -> Vec<(String, Vec<usize>)> {
    let mut all: Vec<(String, Vec<usize>)> = vec![
        ("one empty row".into(), vec![0]),
        ("one entry".into(), vec![1]),
        ("no entries".into(), vec![0; 5000]),
        ("an entry at the end".into(), [vec![0; 4000], vec![1]].concat()),
        ("a dense row".into(), vec![2500]),
        ("three dense rows".into(), [vec![6000; 2], vec![0; 3000], vec![6000]].concat()),
        ("one long row of a window".into(), [vec![1; 100], vec![900], vec![1; 3000]].concat()),
        ("a row of ten tiles".into(), [vec![2; 1234], vec![20_000], vec![3; 2000]].concat()),
        ("long rows side by side".into(), [vec![5000, 3, 0, 7000, 1], vec![130; 40], vec![4001; 3]].concat()),
        ("a row that ends with a window".into(), vec![1919, 1919, 1, 3838, 0, 1920, 1921, 1918]),
    ];
    for n in [1, 2, 31, 33] {
        all.push((format!("{n} rows"), (0..n).map(|_| rng.below(6)).collect()));
    }
    for len in [1, 2, 5, 7, 8, 16, 27, 32, 33, 64, 100] {
        all.push((format!("{len} in every row"), vec![len; 3000]));
    }
    for len in [119, 120, 121, 300, 1900, 2100] {
        all.push((
            format!("{len} in some rows"),
            (0..200).map(|_| len * rng.below(2) + rng.below(2)).collect(),
        ));
    }
    for (power, longest) in [(0.6, 3000.0), (0.9, 9000.0)] {
        let law = |_| (1.0 / rng.number().abs().max(1e-6)).powf(power).min(longest) as usize;
        all.push((format!("a law of powers, {power}"), (0..9000).map(law).collect()));
    }
    all
}

/// c A x and what rounding may make of each number.
fn reference(c: f64, a: &Bsr, stored: impl Fn(f64) -> f64, x: &[f64]) -> Vec<(f64, f64)> {
    let row = |i: usize| {
        let (mut sum, mut size, range) = (0.0, 0.0, a.row_ptr()[i]..a.row_ptr()[i + 1]);
        let len = range.len() as f64;
        for p in range {
            let v = c * stored(a.values()[p]) * x[a.col()[p] as usize];
            (sum, size) = (sum + v, size + v.abs());
        }
        (sum, f64::EPSILON * (len + 4.0) * size)
    };
    (0..a.block_rows()).map(row).collect()
}

fn check(y: &[f64], expected: &[(f64, f64)], what: &str) {
    assert_eq!(y.len(), expected.len(), "{what}");
    for (i, (y, (sum, bound))) in y.iter().zip(expected).enumerate() {
        assert!((y - sum).abs() <= *bound, "{what}, row {i}: {y:e}, not {sum:e} within {bound:e}");
    }
}

/// c A x row by row, in both precisions of storage, and the same bits every time.
pub fn scalar_rows_of_every_length<S: PointBlockSum>(make: Make<S>) {
    let mut rng = Random(121);
    for (what, lengths) in lengths(&mut rng) {
        let a = rows_of(&lengths, &mut rng, &mut |rng| rng.number());
        let (space, x) = (make(a.rows()), rng.numbers(a.rows()));
        for c in [1.0, -2.5] {
            for precision in [Precision::F64, Precision::F32] {
                let stored = |v: f64| if precision == Precision::F64 { v } else { v as f32 as f64 };
                let operator = PointBlock::new(&space, &scaled(c, &a), precision, false).unwrap();
                let y = apply(&space, &operator, &x, a.rows());
                check(&y, &reference(c, &a, stored, &x), &format!("{what}, {c} times, {precision:?}"));
                assert!(y == apply(&space, &operator, &x, a.rows()), "{what}: other bits the second time");
            }
        }
    }
}

/// Products with rows that several threads share, first, last and adjacent: checked, and returned for a
/// bitwise comparison.
pub fn rows_shared_by_threads<S: PointBlockSum>(make: Make<S>) -> Vec<f64> {
    let n = 70_000;
    let mut lengths = vec![1; n];
    for (row, len) in [(0, n), (100, 32_769), (101, 32_768), (102, 65_536), (40_000, 66_000), (n - 1, 50_000)]
    {
        lengths[row] = len;
    }
    let mut rng = Random(126);
    let mut a = rows_of(&lengths, &mut rng, &mut |rng| rng.number());
    let (space, x) = (make(n), rng.numbers(n));
    let mut all = Vec::new();
    for precision in [Precision::F64, Precision::F32] {
        let stored = |v: f64| if precision == Precision::F64 { v } else { v as f32 as f64 };
        let mut operator = PointBlock::new(&space, &scaled(-2.5, &a), precision, false).unwrap();
        for _ in 0..2 {
            let y = apply(&space, &operator, &x, n);
            check(&y, &reference(-2.5, &a, stored, &x), &format!("{precision:?}"));
            all.extend(y);
            a.values_mut().iter_mut().for_each(|v| *v = rng.number());
            operator.update_values(&space, 0, a.values()).unwrap();
        }
    }
    all
}

/// A matrix of whole numbers with an x, for which integers give 3 A x, a nearby right-hand side, and the
/// residual exactly.
struct Exact {
    a: Bsr,
    x: Vec<f64>,
    b: Vec<f64>,
    r: Vec<f64>,
    m: Vec<f64>,
}

const THREE: i128 = 3;

impl Exact {
    fn new(mut a: Bsr, rng: &mut Random) -> Self {
        a.values_mut().iter_mut().for_each(|v| *v = (1e6 * rng.number()).round() + 0.0);
        let x: Vec<f64> = (0..a.rows()).map(|_| (4e7 * rng.number()).round()).collect();
        let exact = |i: usize| -> (i128, i128) {
            let products = (a.row_ptr()[i]..a.row_ptr()[i + 1])
                .map(|p| THREE * a.values()[p] as i128 * x[a.col()[p] as usize] as i128);
            products.fold((0, 0), |(sum, size), v| (sum + v, size + v.abs()))
        };
        let sums: Vec<(i128, i128)> = (0..a.rows()).map(exact).collect();
        let b: Vec<f64> = sums.iter().map(|s| s.0 as f64).collect();
        let r = sums.iter().zip(&b).map(|(s, b)| (*b as i128 - s.0) as f64).collect();
        let m = sums.iter().zip(&b).map(|(s, b)| b.abs() + s.1 as f64).collect();
        Self { a, x, b, r, m }
    }

    /// The residual that a device makes of the rows `own`.
    fn check<S: PointBlockSum>(&self, space: &S, operator: &PointBlock<S>, own: &[usize], what: &str) {
        let pick = |v: &[f64]| own.iter().map(|&i| v[i]).collect::<Vec<f64>>();
        let [mut b, mut x, mut r, mut m] = [(); 4].map(|()| space.vector().unwrap());
        space.write(&pick(&self.b), &mut b).unwrap();
        space.write(&pick(&self.x), &mut x).unwrap();
        for poison in [&mut r, &mut m] {
            space.write(&vec![f64::NAN; own.len()], poison).unwrap();
        }
        assert!(operator.residual(space, &b, &x, &mut r, &mut m).unwrap(), "{what}");
        let mut host = [vec![0.0; own.len()], vec![0.0; own.len()]];
        space.read(&r, &mut host[0]).unwrap();
        space.read(&m, &mut host[1]).unwrap();
        for (k, &i) in own.iter().enumerate() {
            let (expected, size, r, m) = (self.r[i], self.m[i], host[0][k], host[1][k]);
            let bound = f64::EPSILON * expected.abs() + 1e-27 * size;
            assert!((r - expected).abs() <= bound, "{what}, row {i}: {r:e}, not {expected:e}");
            assert!((m - size).abs() <= 1e-13 * size, "{what}, row {i}: magnitude {m:e}, not {size:e}");
        }
    }
}

/// Residuals of whole numbers, which integers give exactly, and magnitudes.
pub fn residuals_of_scalar_rows<S: PointBlockSum>(make: Make<S>) {
    let mut rng = Random(122);
    for (what, lengths) in lengths(&mut rng) {
        let exact = Exact::new(rows_of(&lengths, &mut rng, &mut |_| 1.0), &mut rng);
        let space = make(exact.a.rows());
        let operator =
            PointBlock::new(&space, &scaled(THREE as f64, &exact.a), Precision::F64, false).unwrap();
        exact.check(&space, &operator, &(0..exact.a.rows()).collect::<Vec<_>>(), &what);
    }
}

/// A matrix from the columns of its rows, which need not be sorted.
fn of_columns(rows: Vec<Vec<u32>>) -> Bsr {
    let (n, mut row_ptr, mut col) = (rows.len(), vec![0], Vec::new());
    for mut row in rows {
        row.sort_unstable();
        row.dedup();
        col.extend(row);
        row_ptr.push(col.len());
    }
    let values = vec![1.0; col.len()];
    Bsr::new(1, n, n, row_ptr, col, values).unwrap()
}

/// Matrices whose shares have few ghosts a row, many, more than one block of threads sums at once, and none.
fn matrices_of_ranks(rng: &mut Random) -> Vec<(&'static str, Bsr)> {
    let n = 3000u32;
    let line = |i: u32| vec![i, (i + n - 1) % n, (i + 7) % n, (i * 13 + 5) % n];
    let arrow = |i: u32| match i {
        1700 => (0..n).collect(),
        _ if i % 5 == 3 => Vec::new(), // an empty row, which the dense column leaves empty too
        _ => vec![i, (i + 1) % n, 900],
    };
    let apart = |i: u32| vec![i, i / 60 * 60, i / 60 * 60 + (7 * i) % 60];
    let mut all = vec![
        ("few ghosts", of_columns((0..n).map(line).collect())),
        ("a dense row and a dense column", of_columns((0..n).map(arrow).collect())),
        ("blocks that nothing couples", of_columns((0..n).map(apart).collect())),
        ("no entries", of_columns(vec![Vec::new(); 50])),
    ];
    let law: Vec<usize> =
        (0..4000).map(|_| (1.0 / rng.number().abs()).powf(0.8).min(3000.0) as usize).collect();
    all.push(("a law of powers", rows_of(&law, rng, &mut |_| 1.0)));
    let even: Vec<usize> = (0..2000).map(|i| 40 + i % 3).collect();
    all.push(("40 in every row", rows_of(&even, rng, &mut |_| 1.0)));
    all
}

/// Products, residuals and new values of scalar rows over ranks, some without rows and some without ghosts,
/// directly from CSR arrays.
pub fn scalar_rows_of_ranks<S: PointBlockSum>(counts: &[usize], make: MakeShare<S>) {
    let mut rng = Random(125);
    for (name, a) in matrices_of_ranks(&mut rng) {
        let exact = Exact::new(a, &mut rng);
        let (n, mut new) = (exact.a.rows(), exact.a.clone());
        new.values_mut().iter_mut().for_each(|v| *v = rng.number());
        let x = rng.numbers(n);
        for &ranks in counts {
            let mut ways = partitions(n, ranks);
            ways.push(("all on the first rank", Partition::new(vec![0; n], ranks).unwrap()));
            for (shape, partition) in ways {
                let what = format!("{name}, {ranks} ranks, {shape}");
                let whole = split(&scaled(THREE as f64, &exact.a), &partition).unwrap();
                let again = split(&scaled(THREE as f64, &new), &partition).unwrap();
                let work = |comm: Arc<dyn Communicator>| -> Result<()> {
                    let (part, next): (&Part, &Part) = (&whole[comm.rank()], &again[comm.rank()]);
                    let own: Vec<usize> = part.rows.iter().map(|&i| i as usize).collect();
                    let share: Vec<f64> = own.iter().map(|&i| x[i]).collect();
                    let space = make(&comm, own.len())?;
                    for precision in [Precision::F64, Precision::F32] {
                        let stored = |v: f64| if precision == Precision::F64 { v } else { v as f32 as f64 };
                        let expected = |a: &Bsr| -> Vec<(f64, f64)> {
                            let all = reference(THREE as f64, a, stored, &x);
                            own.iter().map(|&i| all[i]).collect()
                        };
                        let mut operator =
                            PointBlock::with_format(&space, &part.terms, precision, Format::Csr)?;
                        assert_eq!(operator.format(), Format::Csr, "{what}");
                        let y = apply(&space, &operator, &share, own.len());
                        check(&y, &expected(&exact.a), &format!("{what}, {precision:?}"));
                        if precision == Precision::F64 {
                            exact.check(&space, &operator, &own, &what);
                        }
                        let same = y == apply(&space, &operator, &share, own.len());
                        assert!(same, "{what}, {precision:?}: other bits after a residual");
                        operator.update_values(&space, 0, next.terms.terms()[0].1.values())?;
                        let y = apply(&space, &operator, &share, own.len());
                        check(&y, &expected(&new), &format!("{what}, {precision:?}, new values"));
                        let fresh = PointBlock::with_format(&space, &next.terms, precision, Format::Csr)?;
                        let same = y == apply(&space, &fresh, &share, own.len());
                        assert!(same, "{what}, {precision:?}: new values are not those of a new operator");
                        if own.len() > 10 && next.terms.terms()[0].1.stored() > 0 {
                            let mut wrong = next.terms.terms()[0].1.values().to_vec();
                            *wrong.last_mut().expect("an entry") = f64::NAN;
                            let e = operator.update_values(&space, 0, &wrong[..]).unwrap_err().to_string();
                            assert!(e.contains("finite"), "{what}: {e}");
                            assert!(operator.update_values(&space, 0, &wrong[1..]).is_err(), "{what}");
                        }
                        let same = y == apply(&space, &operator, &share, own.len());
                        assert!(same, "{what}, {precision:?}: refused values were taken");
                    }
                    Ok(())
                };
                Team::run(ranks, |comm| work(comm)).unwrap();
            }
        }
    }
}

/// New values are those of a fresh operator; a wrong length and numbers that are not finite are refused.
pub fn scalar_rows_are_updated<S: PointBlockSum>(make: Make<S>) {
    let mut rng = Random(123);
    let mut a = rows_of(&[vec![3; 2000], vec![2500]].concat(), &mut rng, &mut |rng| rng.number());
    let (space, x) = (make(a.rows()), rng.numbers(a.rows()));
    for precision in [Precision::F64, Precision::F32] {
        let mut operator = PointBlock::new(&space, &scaled(1.0, &a), precision, false).unwrap();
        for _ in 0..2 {
            a.values_mut().iter_mut().for_each(|v| *v = rng.number());
            operator.update_values(&space, 0, a.values()).unwrap();
            let fresh = PointBlock::new(&space, &scaled(1.0, &a), precision, false).unwrap();
            let y = apply(&space, &operator, &x, a.rows());
            assert!(y == apply(&space, &fresh, &x, a.rows()), "{precision:?}: new values are not those");
        }
        let y = apply(&space, &operator, &x, a.rows());
        let mut wrong = a.values().to_vec();
        assert!(operator.update_values(&space, 0, &wrong[1..]).is_err());
        wrong[77] = f64::INFINITY;
        let e = operator.update_values(&space, 0, &wrong[..]).unwrap_err().to_string();
        assert!(e.contains("must be finite"), "{e}");
        assert!(y == apply(&space, &operator, &x, a.rows()), "{precision:?}: refused values were taken");
    }
}

/// What only a GPU has.
#[cfg(feature = "cuda")]
pub mod gpu {
    use super::*;
    use krylith_core::device::cuda::{Cuda, CudaProduct, Device};
    use krylith_core::space::Space;
    use std::sync::Arc;
    use std::time::Instant;

    /// New values that are on the device already.
    pub fn scalar_rows_are_updated_from_device_memory(device: &Arc<Device>) {
        let mut rng = Random(124);
        let mut a = rows_of(&[vec![3; 2000], vec![2500]].concat(), &mut rng, &mut |rng| rng.number());
        let (space, x) = (Cuda::new(device, a.rows()).unwrap(), rng.numbers(a.rows()));
        for precision in [Precision::F64, Precision::F32] {
            let mut operator = PointBlock::new(&space, &scaled(1.0, &a), precision, false).unwrap();
            a.values_mut().iter_mut().for_each(|v| *v = rng.number());
            let values = device.upload(a.values(), "new values").unwrap();
            operator.update_values(&space, 0, &values).unwrap();
            let fresh = PointBlock::new(&space, &scaled(1.0, &a), precision, false).unwrap();
            let y = apply(&space, &operator, &x, a.rows());
            assert!(y == apply(&space, &fresh, &x, a.rows()), "{precision:?}: new values are not those");
            let mut wrong = a.values().to_vec();
            wrong[77] = f64::NAN;
            let values = device.upload(&wrong, "new values").unwrap();
            let e = operator.update_values(&space, 0, &values).unwrap_err().to_string();
            assert!(e.contains("must be finite"), "{e}");
        }
    }

    /// A matrix of a grid, each node coupled to those whose offsets `near` allows.
    fn grid(n: usize, near: impl Fn([i64; 3]) -> bool) -> Bsr {
        let offsets: Vec<[i64; 3]> = (0..27).map(|k| [k / 9 - 1, k / 3 % 3 - 1, k % 3 - 1]).collect();
        let offsets: Vec<[i64; 3]> = offsets.into_iter().filter(|o| near(*o)).collect();
        let size = n as i64;
        let (mut row_ptr, mut col) = (vec![0], Vec::with_capacity(n * n * n * offsets.len()));
        for i in 0..size * size * size {
            let at = [i / (size * size), i / size % size, i % size];
            for o in &offsets {
                let [x, y, z] = [at[0] + o[0], at[1] + o[1], at[2] + o[2]];
                if [x, y, z].iter().all(|v| (0..size).contains(v)) {
                    col.push(((x * size + y) * size + z) as u32);
                }
            }
            row_ptr.push(col.len());
        }
        let values = (0..col.len()).map(|p| 1.0 + (p % 7) as f64).collect();
        Bsr::new(1, n * n * n, n * n * n, row_ptr, col, values).unwrap()
    }

    /// Prints the milliseconds of a product by rows on all GPUs, compared with tiles and with one GPU, and of
    /// its set-up from arrays on the GPUs.
    pub fn csr_halo_speed(ranks: usize, make: MakeShare<Cuda>) {
        let seven = |o: [i64; 3]| o.iter().map(|v| v.abs()).sum::<i64>() <= 1;
        let mut rng = Random(7);
        let n = 1_000_000;
        let lengths: Vec<usize> =
            (0..n).map(|_| (1.0 / rng.number().abs().max(1e-7)).powf(0.75) as usize * 2).collect();
        let mut arrow = vec![3; n];
        arrow[n / 2] = n;
        let mut of = |lengths: &[usize]| rows_of(lengths, &mut rng, &mut |_| 1.0);
        let all = [
            ("7 points, 256^3", grid(256, seven)),
            ("27 points, 100^3", grid(100, |_| true)),
            ("a law of powers", of(&lengths)),
            ("3 a row and a row of 1 million", of(&arrow)),
        ];
        for (name, a) in &all {
            for ranks in [1, ranks] {
                let partition = Partition::by_nonzeros(&scaled(1.0, a), ranks).unwrap();
                let parts = split(&scaled(1.0, a), &partition).unwrap();
                let work = |comm: Arc<dyn Communicator>| -> Result<[f64; 4]> {
                    let part = &parts[comm.rank()];
                    let space = make(&comm, part.rows.len())?;
                    let placed = space.place(&part.terms)?;
                    let seconds = |work: &mut dyn FnMut() -> Result<()>| -> Result<f64> {
                        work()?;
                        let mut best = f64::INFINITY;
                        for _ in 0..10 {
                            space.wait()?;
                            comm.sum(&mut [0.0])?;
                            let start = Instant::now();
                            (0..20).try_for_each(|_| work())?;
                            space.wait()?;
                            best = best.min(start.elapsed().as_secs_f64() / 20.0);
                        }
                        Ok(best)
                    };
                    let make = || PointBlock::with_format(&space, &placed, Precision::F64, Format::Csr);
                    let mut operator = make()?;
                    space.wait()?;
                    let mut set_up = f64::INFINITY;
                    for _ in 0..5 {
                        let begin = Instant::now();
                        operator = make()?;
                        space.wait()?;
                        set_up = set_up.min(begin.elapsed().as_secs_f64());
                    }
                    let (mut x, mut y) = (space.vector()?, space.vector()?);
                    space.write(&vec![1.0; part.rows.len()], &mut x)?;
                    let rows = seconds(&mut || operator.apply(&space, &x, &mut y))?;
                    let (mut r, mut m) = (space.vector()?, space.vector()?);
                    let residual =
                        seconds(&mut || operator.residual(&space, &y, &x, &mut r, &mut m).map(drop))?;
                    *operator.product_mut() = CudaProduct::tiled(&space, &placed, Precision::F64, false)?;
                    let tiled = seconds(&mut || operator.apply(&space, &x, &mut y))?;
                    Ok([rows, tiled, residual, set_up].map(|s| 1e3 * s))
                };
                let [rows, tiled, residual, set_up] = Team::run(ranks, |comm| work(comm)).unwrap()[0];
                let ghosts = parts.iter().map(|p| p.terms.halo().as_ref().map_or(0, |h| h.ghosts)).max();
                println!(
                    "{name}, {ranks} GPUs, at most {} ghosts: {rows:.4} ms, tiles {tiled:.4} ms, residual {residual:.4} ms, set-up {set_up:.3} ms",
                    ghosts.unwrap_or(0)
                );
            }
        }
    }

    /// Prints the milliseconds of a product and its share of the bandwidth, compared with the product by
    /// tiles, and of a set-up with all copies.
    pub fn csr_speed(device: &Arc<Device>) {
        let bandwidth = device.read_bandwidth().unwrap();
        println!("bandwidth {:.0} GB/s", bandwidth / 1e9);
        let seven = |o: [i64; 3]| o.iter().map(|v| v.abs()).sum::<i64>() <= 1;
        let mut rng = Random(7);
        let n = 2_000_000;
        let mut power = |_| (1.0 / rng.number().abs().max(1e-7)).powf(0.75) as usize * 2;
        let lengths: Vec<usize> = (0..n).map(&mut power).collect();
        let mut arrow = vec![3; n];
        arrow[n / 2] = n;
        let mut rng = Random(8);
        let mut of = |lengths: &[usize]| rows_of(lengths, &mut rng, &mut |_| 1.0);
        let all: [(&str, &dyn Fn() -> Bsr); 3] = [
            ("7 points, 128^3", &|| grid(128, seven)),
            ("27 points, 100^3", &|| grid(100, |_| true)),
            ("7 points, 256^3", &|| grid(256, seven)),
        ];
        let mut all: Vec<(&str, Bsr)> = all.iter().map(|(name, make)| (*name, make())).collect();
        all.push(("a law of powers", of(&lengths)));
        all.push(("3 a row and a row of 2 million", of(&arrow)));
        for (name, a) in all {
            let space = Cuda::new(device, a.rows()).unwrap();
            let terms = scaled(1.0, &a);
            let seconds = |work: &mut dyn FnMut()| {
                work();
                space.wait().unwrap();
                let mut best = f64::INFINITY;
                for _ in 0..10 {
                    let start = Instant::now();
                    (0..20).for_each(|_| work());
                    space.wait().unwrap();
                    best = best.min(start.elapsed().as_secs_f64() / 20.0);
                }
                best
            };
            let begin = Instant::now();
            let mut operator = PointBlock::new(&space, &terms, Precision::F64, false).unwrap();
            space.wait().unwrap();
            let set_up = begin.elapsed().as_secs_f64();
            let (mut x, mut y) = (space.vector().unwrap(), space.vector().unwrap());
            space.write(&vec![1.0; a.rows()], &mut x).unwrap();
            let rows = seconds(&mut || operator.apply(&space, &x, &mut y).unwrap());
            let bytes = operator.bytes() as f64;
            let narrow = PointBlock::new(&space, &terms, Precision::F32, false).unwrap();
            let half = seconds(&mut || narrow.apply(&space, &x, &mut y).unwrap());
            *operator.product_mut() = CudaProduct::tiled(&space, &terms, Precision::F64, false).unwrap();
            let tiled = seconds(&mut || operator.apply(&space, &x, &mut y).unwrap());
            let share = |bytes: f64, seconds: f64| 100.0 * bytes / seconds / bandwidth;
            println!(
                "{name}: {} rows, {} entries, {:.0} MB: {:.4} ms ({:.1} %), f32 {:.4} ms ({:.1} %), tiles {:.4} ms ({:.1} %); \
                 set-up {:.1} ms",
                a.rows(),
                a.blocks(),
                bytes / 1e6,
                rows * 1e3,
                share(bytes, rows),
                half * 1e3,
                share(narrow.bytes() as f64, half),
                tiled * 1e3,
                share(bytes, tiled),
                set_up * 1e3
            );
        }
    }
}

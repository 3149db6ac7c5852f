//! Block-Jacobi with tiles: what every device must make of the incomplete factors of a box's tiles.

use super::distributed::MakeShare;
use super::{Make, applied};
use crate::common::*;
use krylith_core::comm::{Communicator, Team};
use krylith_core::matrix::Bsr;
use krylith_core::operator::{Dots, LinearOperator, TermValues, Terms};
use krylith_core::partition::{Partition, split};
use krylith_core::precond::{BlockTiles, BlockTilesOptions, TileFactor, TileFactors, TileShape};
use krylith_core::{Error, Precision};
use std::sync::Arc;

/// The matrix of a 7-point stencil on a box, x fastest.
pub fn stencil([nx, ny, nz]: [usize; 3], entry: &dyn Fn(usize, usize) -> f64) -> Bsr {
    let n = nx * ny * nz;
    let (mut row_ptr, mut col, mut values) = (vec![0], Vec::with_capacity(7 * n), Vec::with_capacity(7 * n));
    for i in 0..n {
        let (x, y, z) = (i % nx, i / nx % ny, i / (nx * ny));
        let below = [(z > 0, nx * ny), (y > 0, nx), (x > 0, 1)];
        let above = [(x + 1 < nx, 1), (y + 1 < ny, nx), (z + 1 < nz, nx * ny)];
        let below = below.into_iter().filter(|n| n.0).map(|n| i - n.1);
        let above = above.into_iter().filter(|n| n.0).map(|n| i + n.1);
        for j in below.chain([i]).chain(above) {
            col.push(j as u32);
            values.push(entry(i, j));
        }
        row_ptr.push(col.len());
    }
    Bsr::new(1, n, n, row_ptr, col, values).unwrap()
}

/// A number in (0, 1) that two numbers stand for.
fn any(i: usize, j: usize) -> f64 {
    Random((i * 1_000_003 + j + 1) as u64).number().abs()
}

/// A symmetric positive definite matrix, or one that is neither, diagonally dominant by little.
pub fn system(cells: [usize; 3], symmetric: bool) -> Bsr {
    stencil(cells, &|i, j| match i == j {
        true => 6.1 + any(i, i),
        false if symmetric => -any(i.min(j), i.max(j)),
        false => 2.0 * any(i, j) - 1.0,
    })
}

/// The entry of a row in a column, zero where there is none.
fn entry(a: &Bsr, i: usize, j: usize) -> f64 {
    let row = a.row_ptr()[i]..a.row_ptr()[i + 1];
    a.col()[row.clone()].iter().position(|&c| c as usize == j).map_or(0.0, |p| a.values()[row.start + p])
}

/// Pivots of every tile, by the plain recurrence, how many of them were mended, and M⁻¹ x.
struct Reference<'a> {
    a: &'a Bsr,
    below: Vec<Vec<usize>>,
    d: Vec<f64>,
    shifted: usize,
}

impl<'a> Reference<'a> {
    fn new(a: &'a Bsr, cells: [usize; 3], tile: [usize; 3], factor: TileFactor) -> Self {
        let n = a.block_rows();
        let place = |i: usize| [i % cells[0], i / cells[0] % cells[1], i / cells[0] / cells[1]];
        let tile_of = |i: usize| std::array::from_fn::<_, 3, _>(|k| place(i)[k] / tile[k]);
        let near = |i: usize| {
            let row = &a.col()[a.row_ptr()[i]..a.row_ptr()[i + 1]];
            row.iter().map(|&j| j as usize).filter(|&j| tile_of(j) == tile_of(i)).collect::<Vec<_>>()
        };
        let (mut d, mut shifted) = (vec![0.0; n], 0);
        let mut below = Vec::new();
        for i in 0..n {
            let near = near(i);
            let lower: Vec<usize> = near.iter().copied().filter(|&j| j < i).collect();
            d[i] =
                entry(a, i, i) - lower.iter().map(|&j| entry(a, i, j) * entry(a, j, i) / d[j]).sum::<f64>();
            let largest = near.iter().map(|&j| entry(a, i, j).abs()).fold(0.0, f64::max);
            let size = if factor == TileFactor::Ic0 { d[i] } else { d[i].abs() };
            if !(size > 0.0 && size >= 1e-14 * largest) {
                (d[i], shifted) = (largest, shifted + 1);
            }
            below.push(lower);
        }
        Self { a, below, d, shifted }
    }

    /// (D + U)⁻¹ D (D + L)⁻¹ x.
    fn solve(&self, x: &[f64]) -> Vec<f64> {
        let mut y = x.to_vec();
        for i in 0..y.len() {
            let sum: f64 = self.below[i].iter().map(|&j| entry(self.a, i, j) * y[j]).sum();
            y[i] = (y[i] - sum) / self.d[i];
        }
        for i in (0..y.len()).rev() {
            for &j in &self.below[i] {
                y[j] -= entry(self.a, j, i) * y[i] / self.d[j];
            }
        }
        y
    }

    /// The same M as a dense matrix.
    fn dense(&self) -> Mat {
        let n = self.d.len();
        let below = |i: usize, j: usize| self.below[i].contains(&j);
        let lower = |i: usize, j: usize| match i == j {
            true => self.d[i],
            false => f64::from(u8::from(below(i, j))) * entry(self.a, i, j),
        };
        let upper = |i: usize, j: usize| match i == j {
            true => 1.0,
            false => f64::from(u8::from(below(j, i))) * entry(self.a, i, j) / self.d[i],
        };
        Mat::from_fn(n, n, |i, j| (0..n).map(|k| lower(i, k) * upper(k, j)).sum())
    }
}

/// The same with sums: y, and what stands in slots 1 to 3 of four that held −1.
fn with_sums<S: TileFactors>(space: &S, p: &BlockTiles<S>, x: &[f64], dots: Dots) -> (Vec<f64>, [f64; 4]) {
    let (mut dx, mut dy) = (space.vector().unwrap(), space.vector().unwrap());
    let mut scalars = space.scalars(4).unwrap();
    space.write_scalars(&mut scalars, 0, &[-1.0; 4], &Default::default()).unwrap();
    space.write(x, &mut dx).unwrap();
    assert!(p.apply_with_dots(space, &dx, &mut dy, &mut scalars, dots).unwrap());
    let (mut y, mut sums) = (vec![0.0; x.len()], [0.0; 4]);
    space.read(&dy, &mut y).unwrap();
    space.read_scalars(&scalars, 0, &mut sums, &mut Default::default()).unwrap();
    (y, sums)
}

const BOXES: [[usize; 3]; 7] =
    [[1, 1, 1], [5, 3, 2], [33, 9, 5], [40, 17, 11], [70, 1, 1], [1, 9, 7], [37, 20, 1]];

fn shapes() -> Vec<TileShape> {
    let boxes =
        [[32, 8, 4], [7, 4, 8], [16, 2, 16], [3, 32, 1], [5, 1, 32], [40, 16, 2], [4, 2, 2], [1, 1, 1]];
    boxes.into_iter().map(TileShape::Box).chain([TileShape::Auto]).collect()
}

/// Boxes with odd sides, tiles of many shapes, both factorisations and precisions.
pub fn tiles_match_the_textbook<S: TileFactors>(make: Make<S>) {
    for cells in BOXES {
        let n: usize = cells.iter().product();
        let (space, x) = (make(n), Random(n as u64).numbers(n));
        for (symmetric, factor) in [(true, None), (true, Some(TileFactor::Ilu0)), (false, None)] {
            let a = system(cells, symmetric);
            for tile in shapes() {
                for (precision, tolerance) in [(Precision::F64, 1e-13), (Precision::F32, 1e-5)] {
                    let options = BlockTilesOptions { tile, factor, precision };
                    let p = BlockTiles::new(&space, &Terms::bsr(&a), cells, options).unwrap();
                    // Where no two cells share a tile there is nothing that is not symmetric.
                    let apart = n == 1 || tile == TileShape::Box([1, 1, 1]);
                    let other = if symmetric || apart { TileFactor::Ic0 } else { TileFactor::Ilu0 };
                    let expected = factor.unwrap_or(other);
                    assert_eq!((p.factor(), p.shifted()), (expected, 0));
                    let reference = Reference::new(&a, cells, p.tiling().tile, expected);
                    let (y, z) = (applied(&space, &p, &x), reference.solve(&x));
                    let d = distance(&y, &z);
                    assert!(d <= tolerance, "{cells:?} {tile:?} {expected:?} {precision:?}: {d:e}");
                    if n <= 70 && precision == Precision::F64 {
                        let d = distance(&z, &solve(&reference.dense(), &x));
                        assert!(d <= 1e-12, "{cells:?} {tile:?} {expected:?}: the reference is {d:e} off");
                    }
                }
            }
        }
    }
}

/// Sums made in the pass are those of its vectors; nothing else is written; twice gives the same bits.
pub fn tiles_sum_what_they_pass<S: TileFactors>(make: Make<S>) {
    for cells in BOXES {
        let n: usize = cells.iter().product();
        let (space, x) = (make(n), Random(3 * n as u64).numbers(n));
        for symmetric in [true, false] {
            let a = system(cells, symmetric);
            for tile in [TileShape::Auto, TileShape::Box([3, 4, 2])] {
                let options = BlockTilesOptions { tile, ..BlockTilesOptions::default() };
                let p = BlockTiles::new(&space, &Terms::bsr(&a), cells, options).unwrap();
                let alone = applied(&space, &p, &x);
                let [xx, xy] = [dot(&x, &x), dot(&x, &alone)];
                for (dots, expected) in
                    [(Dots::Xy(2), [-1.0, -1.0, xy, -1.0]), (Dots::XxXy(1), [-1.0, xx, xy, -1.0])]
                {
                    let (y, sums) = with_sums(&space, &p, &x, dots);
                    assert!(y == alone, "{cells:?} {tile:?} {dots:?}: another result with sums");
                    for (sum, expected) in sums.iter().zip(expected) {
                        // Without symmetry terms of (x, y) may cancel.
                        let room = 1e-13 * (norm(&x) * norm(&alone)).max(expected.abs());
                        assert!(
                            (sum - expected).abs() <= room,
                            "{cells:?} {tile:?} {dots:?}: {sum} for {expected}"
                        );
                    }
                    assert_eq!(
                        with_sums(&space, &p, &x, dots).1,
                        sums,
                        "{cells:?}: other sums the second time"
                    );
                }
            }
        }
    }
}

/// New values give the result of a new preconditioner, bit by bit; if they are not symmetric, IC(0) reports
/// it.
pub fn tiles_are_refreshed<S: TileFactors>(make: Make<S>) {
    let cells = [35, 10, 6];
    let n: usize = cells.iter().product();
    let (space, x) = (make(n), Random(7).numbers(n));
    for (symmetric, precision) in [(true, Precision::F64), (false, Precision::F32)] {
        let old = system(cells, symmetric);
        let mut new = old.clone();
        new.values_mut().iter_mut().for_each(|v| *v *= 3.0);
        let options = BlockTilesOptions { precision, ..BlockTilesOptions::default() };
        let mut p = BlockTiles::new(&space, &Terms::bsr(&old), cells, options).unwrap();
        let before = applied(&space, &p, &x);
        p.update_values(&space, &Terms::bsr(&old), TermValues::matrix(new.values())).unwrap();
        let fresh = BlockTiles::new(&space, &Terms::bsr(&new), cells, options).unwrap();
        let y = applied(&space, &p, &x);
        assert!(y == applied(&space, &fresh, &x) && y != before);
        p.update_values(&space, &Terms::bsr(&old), &Terms::bsr(&old)).unwrap();
        assert!(applied(&space, &p, &x) == before);
        assert!(p.update_values(&space, &Terms::bsr(&old), TermValues::matrix(&old.values()[1..])).is_err());
        if symmetric {
            let other = system(cells, false);
            let e =
                p.update_values(&space, &Terms::bsr(&old), TermValues::matrix(other.values())).unwrap_err();
            assert!(e.to_string().contains("factor=ilu0"), "{e}");
        }
    }
}

/// Pivots that are not positive are mended and counted; those that cannot be are named, the first row first.
pub fn pivots_of_tiles_are_mended<S: TileFactors>(make: Make<S>) {
    let cells = [33, 9, 5];
    let n: usize = cells.iter().product();
    let (space, x) = (make(n), Random(11).numbers(n));
    let bad = [5, 6, 700, 1200];
    let a = stencil(cells, &|i, j| match (i == j, bad.contains(&i)) {
        (true, true) => [-2.0, 0.01, 0.0][i % 3],
        (true, false) => 6.5,
        _ => -1.0,
    });
    for factor in [TileFactor::Ic0, TileFactor::Ilu0] {
        for tile in [[32, 8, 4], [5, 2, 1]] {
            let options = BlockTilesOptions {
                tile: TileShape::Box(tile),
                factor: Some(factor),
                ..BlockTilesOptions::default()
            };
            let p = BlockTiles::new(&space, &Terms::bsr(&a), cells, options).unwrap();
            let reference = Reference::new(&a, cells, tile, factor);
            assert_eq!(p.shifted(), reference.shifted, "{factor:?} {tile:?}");
            assert!(factor == TileFactor::Ilu0 || reference.shifted > 2);
            let d = distance(&applied(&space, &p, &x), &reference.solve(&x));
            assert!(d <= 1e-11, "{factor:?} {tile:?}: {d:e}");
        }
        let empty =
            stencil(cells, &|i, j| if i == 700 || j == 700 || i == 900 { 0.0 } else { entry(&a, i, j) });
        let options = BlockTilesOptions { factor: Some(TileFactor::Ilu0), ..BlockTilesOptions::default() };
        let refused = BlockTiles::new(&space, &Terms::bsr(&empty), cells, options).err();
        assert!(matches!(refused, Some(Error::Pivot { row: 700, kind: "zero", .. })), "{refused:?}");
    }
}

/// What block-jacobi does not take is refused, with the reason and what to take instead.
pub fn other_matrices_are_refused_by_tiles<S: TileFactors>(make: Make<S>) {
    let cells = [6, 5, 4];
    let n: usize = cells.iter().product();
    let space = make(n);
    let refused = |a: &Bsr, cells, factor, words: &str| {
        let options = BlockTilesOptions { factor, ..BlockTilesOptions::default() };
        let e =
            BlockTiles::new(&space, &Terms::bsr(a), cells, options).err().expect("it was taken").to_string();
        assert!(e.contains(words), "{e}");
    };
    let a = system(cells, true);
    refused(&a, [6, 4, 5], None, "row 0 couples cells that are not neighbours");
    refused(&a, [6, 5, 3], None, "120 rows do not match a grid of 6×5×3 cells");
    refused(&system(cells, false), cells, Some(TileFactor::Ic0), "factor=ilu0");
    let mut rng = Random(5);
    refused(&random_bsr(&mut rng, 1, n, n, 5, true), cells, None, "use ildu, which takes any matrix");
    let blocks = super::ildu::grid(&mut rng, [3, 5, 4], 2);
    refused(&blocks, [3, 5, 4], None, "one scalar matrix");
}

/// Ranks that hold boxes of whole tiles get the numbers of one rank.
pub fn tiles_of_ranks<S: TileFactors>(sizes: &[usize], alone: Make<S>, make: MakeShare<S>) {
    let cells = [19, 6, 16];
    let n: usize = cells.iter().product();
    let (a, x) = (system(cells, true), Random(13).numbers(n));
    let options = BlockTilesOptions { tile: TileShape::Box([8, 4, 2]), ..BlockTilesOptions::default() };
    let one = alone(n);
    let p = BlockTiles::new(&one, &Terms::bsr(&a), cells, options).unwrap();
    let (whole, sums) = with_sums(&one, &p, &x, Dots::XxXy(0));
    let at = |i: usize| [i % cells[0], i / cells[0] % cells[1], i / (cells[0] * cells[1])];
    let slabs = sizes.iter().map(|&ranks| {
        let planes = 2 * (8usize.div_ceil(ranks));
        (ranks, (0..n).map(|i| (at(i)[2] / planes) as u32).collect::<Vec<u32>>())
    });
    // Boxes that end between tiles: for four ranks along x and y.
    let boxes = sizes.iter().filter(|&&ranks| ranks == 4).map(|&ranks| {
        let owner = |i: usize| u32::from(at(i)[0] >= 8) + 2 * u32::from(at(i)[1] >= 4);
        (ranks, (0..n).map(owner).collect::<Vec<u32>>())
    });
    for (ranks, owner) in slabs.chain(boxes) {
        let partition = Partition::new(owner, ranks).unwrap();
        let parts = split(&Terms::bsr(&a), &partition).unwrap();
        let work = |comm: Arc<dyn Communicator>| {
            let part = &parts[comm.rank()];
            let own: [usize; 3] = match (part.rows.first(), part.rows.last()) {
                (Some(&first), Some(&last)) => {
                    let (from, to) = (at(first as usize), at(last as usize));
                    std::array::from_fn(|axis| to[axis] + 1 - from[axis])
                }
                _ => [cells[0], cells[1], 0],
            };
            let space = make(&comm, part.rows.len())?;
            let p = BlockTiles::new(&space, &part.terms, own, options)?;
            let of = |from: &[f64]| part.rows.iter().map(|&i| from[i as usize]).collect::<Vec<_>>();
            let (y, all) = with_sums(&space, &p, &of(&x), Dots::XxXy(0));
            assert!(y == of(&whole), "{ranks} ranks: other numbers");
            for (all, one) in all.iter().zip(sums) {
                assert!((all - one).abs() <= 1e-13 * one.abs(), "{ranks} ranks: {all} for {one}");
            }
            Ok(())
        };
        Team::run(ranks, |comm| work(comm)).unwrap();
    }
}

/// Tiles of a rank's box are those of a grid of its own, whatever tiles the box cuts.
pub fn tiles_of_boxes_are_those_by_hand<S: TileFactors>(make: MakeShare<S>) {
    let cells = [13, 7, 9];
    let n: usize = cells.iter().product();
    let (a, x) = (system(cells, true), Random(17).numbers(n));
    let tile = [8, 4, 2];
    let options = BlockTilesOptions { tile: TileShape::Box(tile), ..BlockTilesOptions::default() };
    let boxes = krylith_core::partition::GridBoxes::new(cells, 4, Some([2, 2, 1])).unwrap();
    let parts = split(&Terms::bsr(&a), &Partition::boxes(cells, 4, Some([2, 2, 1])).unwrap()).unwrap();
    let work = |comm: Arc<dyn Communicator>| {
        let (part, edges) = (&parts[comm.rank()], boxes.edges(comm.rank()));
        let own = edges.map(|edge| edge.len());
        let space = make(&comm, part.rows.len())?;
        let p = BlockTiles::new(&space, &part.terms, own, options)?;
        let alone = stencil(own, &|i, j| entry(&a, part.rows[i] as usize, part.rows[j] as usize));
        let reference = Reference::new(&alone, own, tile, TileFactor::Ic0);
        let x: Vec<f64> = part.rows.iter().map(|&i| x[i as usize]).collect();
        let d = distance(&applied(&space, &p, &x), &reference.solve(&x));
        assert!(d <= 1e-12, "rank {}: {d:e}", comm.rank());
        Ok(())
    };
    Team::run(4, |comm| work(comm)).unwrap();
}

/// Prints an application's time on a GPU, its bytes and their share of the bandwidth, compared with ILDU(0)
/// of subdomains.
#[cfg(feature = "cuda")]
pub fn tile_speed(device: &Arc<krylith_core::device::cuda::Device>) {
    use krylith_core::device::cuda::Cuda;
    use krylith_core::partition::Subdomains;
    use krylith_core::precond::{Ildu, IlduOptions};
    use krylith_core::solver::SolverSpace;
    use krylith_core::space::{Schedule, Space};
    let bandwidth = device.read_bandwidth().unwrap();
    println!("{}: reads {:.0} GB/s", device.info().name, bandwidth / 1e9);
    let laplace = |i: usize, j: usize| if i == j { 6.5 } else { -1.0 };
    for cells in [[128, 128, 128], [256, 128, 512]] {
        let n: usize = cells.iter().product();
        let a = stencil(cells, &laplace);
        let space = Cuda::new(device, n).unwrap();
        let terms = Terms::bsr(&a);
        let placed = krylith_core::operator::PointBlockSum::place(&space, &terms).unwrap();
        let (mut x, mut y) = (space.vector().unwrap(), space.vector().unwrap());
        space.random(1, None, 1, &mut x).unwrap();
        let mut scalars = space.scalars(2).unwrap();
        let time = |rounds: usize, work: &mut dyn FnMut()| {
            work();
            let mut best = f64::INFINITY;
            for _ in 0..8 {
                space.wait().unwrap();
                let start = std::time::Instant::now();
                (0..rounds).for_each(|_| work());
                space.wait().unwrap();
                best = best.min(start.elapsed().as_secs_f64() / rounds as f64);
            }
            best
        };
        let line = |name: &str, seconds: f64, bytes: u64| {
            let rate = bytes as f64 / seconds;
            println!(
                "{cells:?} {name}: {:.4} ms, {:.1} bytes a cell, {:.0} GB/s, {:.1} % of reading",
                1e3 * seconds,
                bytes as f64 / n as f64,
                rate / 1e9,
                100.0 * rate / bandwidth
            );
        };
        for (tile, factor, precision) in [
            ([32, 8, 4], TileFactor::Ic0, Precision::F64),
            ([16, 8, 4], TileFactor::Ic0, Precision::F64),
            ([32, 8, 4], TileFactor::Ic0, Precision::F32),
            ([16, 8, 4], TileFactor::Ic0, Precision::F32),
            ([32, 8, 4], TileFactor::Ilu0, Precision::F64),
            ([16, 8, 4], TileFactor::Ilu0, Precision::F64),
            ([32, 4, 8], TileFactor::Ic0, Precision::F64),
            ([16, 16, 2], TileFactor::Ic0, Precision::F64),
        ] {
            let options = BlockTilesOptions { tile: TileShape::Box(tile), factor: Some(factor), precision };
            let mut p = BlockTiles::new(&space, &placed, cells, options).unwrap();
            let new = time(1, &mut || drop(BlockTiles::new(&space, &placed, cells, options).unwrap()));
            let again = time(1, &mut || p.update_values(&space, &placed, &placed).unwrap());
            println!(
                "{cells:?} {tile:?} {factor:?} {precision:?}: set up in {:.3} ms, new values {:.3} ms",
                1e3 * new,
                1e3 * again
            );
            let bytes = LinearOperator::<Cuda>::bytes(&p);
            let plain = time(20, &mut || p.apply(&space, &x, &mut y).unwrap());
            line(&format!("{tile:?} {factor:?} {precision:?}"), plain, bytes);
            let summed = time(20, &mut || {
                assert!(p.apply_with_dots(&space, &x, &mut y, &mut scalars, Dots::XxXy(0)).unwrap())
            });
            line(&format!("{tile:?} {factor:?} {precision:?} with sums"), summed, bytes);
        }
        let cut = Subdomains::boxes(cells, [16, 16, 8]);
        let ildu = Ildu::new(&space, &placed, &cut, IlduOptions::default()).unwrap();
        let seconds = time(20, &mut || ildu.apply(&space, &x, &mut y).unwrap());
        line("ILDU(0) of boxes of 16x16x8", seconds, LinearOperator::<Cuda>::bytes(&ildu));
    }
}

//! Block-Jacobi with tiles on a GPU: launches of `kernels/tile_factor.cu` and `kernels/tile_solve.cu`.

use super::Cuda;
use super::compiler::{Defines, Kernel};
use super::driver::{Buffer, Device};
use super::launch::{Address, At, Entry, Function, Of, Reals, Set, kernels};
use super::scalars::CudaScalars;
use super::specialisations::{STORES, define, value};
use crate::operator::{Dots, LinearOperator, TermValues, Terms, check_lengths, fresh_key};
use crate::precond::{PivotKind, TINY_PIVOT, TileFactor, TileFactors, TileReport, TileShape, Tiling};
use crate::space::Precision;
use crate::{Error, Result};
use std::cell::OnceCell;
use std::sync::Arc;

kernels! {
    TILE_FACTOR in "tile_factor.cu",
        |set| kinds(set).map(|(factor, precision)| tile_factor::of(factor, precision).into()).collect();
    fn tile_factor(
        b: Boxes, row_ptr: At<i64>, col: At<u32>, values: At<f64>, coefficient: f64, tiny: f64,
        lower: Reals, upper: Reals, report: At<u64>,
    );
}

kernels! {
    TILE_SOLVE in "tile_solve.cu", solve_kernels;
    fn tile_solve(
        halt: At<i32>, b: Boxes, lower: Reals, upper: Reals, r: At<f64>, z: At<f64>, scratch: At<f64>,
        counter: At<u32>, peers: Address, first_sum: At<f64>, second_sum: At<f64>,
    );
}

/// Lanes of a warp; each processes one line of a tile.
const LANES: usize = 32;
/// Largest number of warps per thread block; the kernel has the same constant.
const MOST_WARPS: usize = 20;
/// Tile shapes with kernels of their own, and their most warps, which the registers limit.
const SHAPES: [([usize; 3], usize); 2] = [([16, 8, 4], 10), ([32, 8, 4], 8)];
/// Shared memory of a thread block that does not belong to tiles.
const ASIDE: usize = 1024;

/// Factors of the tiles of a box (see `kernels/tile.cuh` for their order).
#[doc(hidden)]
pub struct CudaTiles {
    boxes: Boxes,
    len: usize,
    factor: TileFactor,
    precision: Precision,
    row_ptr: Arc<Buffer<i64>>,
    col: Arc<Buffer<u32>>,
    /// Lower coefficients with the scale factors, and upper coefficients, in bytes.
    lower: Buffer<u8>,
    upper: Buffer<u8>,
    report: Buffer<u64>,
    /// Copies of values that are not in the memory of this GPU.
    natural: Buffer<f64>,
    scratch: Buffer<f64>,
    counter: Buffer<u32>,
    warps: usize,
    /// Functions by number of sums, and that of the transpose.
    functions: [OnceCell<Function<tile_solve>>; 4],
    key: u64,
}

/// Mirrors `struct Boxes` in `kernels/tile.cuh`.
#[repr(C)]
#[derive(Debug, Clone, Copy, PartialEq)]
pub(in crate::device::cuda) struct Boxes {
    cells: [i32; 3],
    lx: i32,
    log_y: i32,
    log_z: i32,
    across: [i32; 2],
    tiles: i32,
    pitch: i32,
}

impl Boxes {
    fn new(tiling: &Tiling) -> Self {
        let [lx, ty, tz] = tiling.tile;
        let groups = LANES / (ty * tz);
        let warp = [lx * groups, ty, tz];
        let counts: [i32; 3] = std::array::from_fn(|k| tiling.cells[k].div_ceil(warp[k]) as i32);
        Self {
            cells: tiling.cells.map(|n| n as i32),
            lx: lx as i32,
            log_y: ty.ilog2() as i32,
            log_z: tz.ilog2() as i32,
            across: [counts[0].max(1), counts[1].max(1)],
            tiles: counts.iter().product(),
            pitch: pitch(tiling.tile) as i32,
        }
    }
}

/// Numbers between two lines in shared memory: at least the length of a line, with the fewest bank conflicts.
/// Half a warp reads 16 numbers at once, one per line: from line k, at (y, z) in its tile, the number at
/// k·pitch − y − z.
fn pitch([lx, ty, tz]: [usize; 3]) -> usize {
    let conflicts = |pitch: usize| {
        let half = |first: usize| {
            let mut banks = [0usize; 16];
            for line in first..first + 16 {
                let lag = line % ty + line / ty % tz;
                banks[(line * pitch + 16 * LANES - lag) % 16] += 1;
            }
            banks.into_iter().max().unwrap_or(0)
        };
        half(0) + half(16)
    };
    (lx..lx + 16).min_by_key(|&pitch| (conflicts(pitch), pitch)).unwrap_or(lx)
}

/// Largest number of warps per thread block.
fn most_warps(tile: [usize; 3]) -> usize {
    SHAPES.iter().find(|shape| shape.0 == tile).map_or(MOST_WARPS, |shape| shape.1)
}

/// Numbers per cell: lower coefficients with the scale factor, and upper ones.
fn numbers(factor: TileFactor) -> [usize; 2] {
    if factor == TileFactor::Ic0 { [4, 0] } else { [4, 3] }
}

/// Shared memory of one warp in bytes.
fn shared(tile: [usize; 3], factor: TileFactor, precision: Precision) -> usize {
    tile[0] * LANES * numbers(factor).iter().sum::<usize>() * precision.bytes() + 8 * LANES * pitch(tile)
}

/// Returns powers of two for the lines of a tile in a box of ny by nz lines.
fn lines(ny: usize, nz: usize) -> [usize; 2] {
    let most = |n: usize| n.max(1).next_power_of_two();
    let z = most(nz).min(4.max(LANES / most(ny)));
    let y = most(ny).min(LANES / z);
    [y, z]
}

impl TileFactors for Cuda {
    type Tiles = CudaTiles;

    fn tile(
        &self,
        shape: TileShape,
        cells: [usize; 3],
        factor: TileFactor,
        precision: Precision,
    ) -> Result<[usize; 3]> {
        let [_, ny, nz] = cells;
        let auto = [LANES, lines(ny, nz)[0], lines(ny, nz)[1]];
        let refuse = |tile: &str, why: String| {
            Err(Error::Unsupported(format!(
                "block-jacobi:tile={tile} is not supported on a GPU: {why}; use tile={}x{}x{} or device=cpu",
                auto[0], auto[1], auto[2]
            )))
        };
        match shape {
            TileShape::Auto => Ok(auto),
            TileShape::Whole => refuse("whole", "a tile must fit into the shared memory of one warp".into()),
            TileShape::Slab => refuse("slab", "a tile must fit into the shared memory of one warp".into()),
            TileShape::Box([x, y, z]) => {
                let (name, room) = (format!("{x}x{y}x{z}"), self.device().shared_memory() - ASIDE);
                if !y.is_power_of_two() || !z.is_power_of_two() || y * z > LANES {
                    return refuse(
                        &name,
                        "its sizes in y and z must be powers of two with a product of at most 32".into(),
                    );
                }
                let wanted = shared([x, y, z], factor, precision);
                if wanted > room {
                    return refuse(
                        &name,
                        format!("it needs {wanted} bytes of shared memory, and {room} are available"),
                    );
                }
                Ok([x, y, z])
            }
        }
    }

    fn prepare_tiles(
        &self,
        terms: &Terms,
        tiling: &Tiling,
        factor: TileFactor,
        precision: Precision,
    ) -> Result<CudaTiles> {
        let (device, what) = (self.device(), "block-Jacobi factors");
        let terms = &self.placed(terms)?;
        let a = self.resident(&terms.terms[0].1)?;
        let (boxes, len) = (Boxes::new(tiling), tiling.len());
        let [lower, upper] = numbers(factor).map(|n| boxes.tiles as usize * tiling.tile[0] * LANES * n);
        let own = shared(tiling.tile, factor, precision);
        Ok(CudaTiles {
            boxes,
            len,
            factor,
            precision,
            row_ptr: a.row_ptr.clone(),
            col: a.col.clone(),
            // Cells of a tile outside the box stay zero.
            lower: device.zeros(lower * precision.bytes(), what)?,
            upper: device.zeros(upper * precision.bytes(), what)?,
            report: device.allocate(4, what)?,
            natural: device.allocate(0, what)?,
            scratch: device.allocate(2 * device.multiprocessors(), what)?,
            counter: device.zeros(1, what)?,
            warps: ((device.shared_memory() - ASIDE) / own).clamp(1, most_warps(tiling.tile)),
            functions: Default::default(),
            key: fresh_key(),
        })
    }

    fn factorize_tiles(&self, tiles: &mut CudaTiles, _: &Terms, values: &TermValues) -> Result<TileReport> {
        tiles.factorize(self.device(), values)
    }
}

impl LinearOperator<Cuda> for CudaTiles {
    fn apply(&self, space: &Cuda, x: &Buffer<f64>, y: &mut Buffer<f64>) -> Result<()> {
        self.solve(space, false, x, y, None)
    }
    fn apply_with_dots(
        &self,
        space: &Cuda,
        x: &Buffer<f64>,
        y: &mut Buffer<f64>,
        scalars: &mut CudaScalars,
        dots: Dots,
    ) -> Result<bool> {
        self.solve(space, false, x, y, Some((scalars, dots))).map(|()| true)
    }
    fn has_transpose(&self) -> bool {
        true
    }
    fn apply_transpose(&self, space: &Cuda, x: &Buffer<f64>, y: &mut Buffer<f64>) -> Result<()> {
        // IC(0) is its own transpose.
        self.solve(space, self.factor == TileFactor::Ilu0, x, y, None)
    }
    fn key(&self) -> u64 {
        self.key
    }
    fn bytes(&self) -> u64 {
        (self.lower.len() + self.upper.len() + 16 * self.len) as u64
    }
}

impl CudaTiles {
    /// Computes `y ← M⁻¹ x` with the requested sums over x and y, or `y ← M⁻ᵀ x` if `transposed`.
    fn solve(
        &self,
        space: &Cuda,
        transposed: bool,
        x: &Buffer<f64>,
        y: &mut Buffer<f64>,
        sums: Option<(&mut CudaScalars, Dots)>,
    ) -> Result<()> {
        check_lengths(self.len, self.len, x.len(), y.len())?;
        let (tiles, device) = (self, space.device());
        let (count, first, second) = match &sums {
            None if tiles.len == 0 => return Ok(()),
            None => (0, 0, 0),
            Some((scalars, Dots::Xy(slot))) => (1, scalars.value(*slot), 0),
            Some((scalars, Dots::XxXy(slot))) => (2, scalars.value(*slot), scalars.value(slot + 1)),
        };
        let function = tiles.function(device, count, transposed)?;
        let tile = [tiles.boxes.lx as usize, 1 << tiles.boxes.log_y, 1 << tiles.boxes.log_z];
        let shared = tiles.warps * shared(tile, tiles.factor, tiles.precision);
        // The grid depends only on the box, so that sums are reproducible.
        let blocks = (tiles.boxes.tiles as usize).div_ceil(tiles.warps).clamp(1, device.multiprocessors());
        function.on(device, blocks, LANES * tiles.warps).shared(shared).run(
            space.halt(),
            tiles.boxes,
            tiles.lower.pointer(),
            tiles.upper.pointer(),
            x,
            y,
            &tiles.scratch,
            &tiles.counter,
            space.fabric().group(),
            first,
            second,
        )?;
        if count > 0 { space.fabric().total(first, count) } else { Ok(()) }
    }

    fn factorize(&mut self, device: &Arc<Device>, values: &TermValues) -> Result<TileReport> {
        let none = u64::MAX;
        device.write(&[none, none, none, 0], &mut self.report, 0)?;
        let Some((c, numbers)) = values.term(0).filter(|_| self.len > 0) else {
            return Ok(TileReport::default());
        };
        let function = device.function(&tile_factor::of(self.factor, self.precision))?;
        let boxes = self.boxes;
        device.reading(numbers, &mut self.natural, |numbers| {
            function.on(device, (boxes.tiles as usize).div_ceil(4), 4 * LANES).run(
                boxes,
                &self.row_ptr,
                &self.col,
                numbers,
                c[(0, 0)],
                TINY_PIVOT,
                self.lower.pointer(),
                self.upper.pointer(),
                &self.report,
            )
        })?;
        let mut found = [0; 4];
        device.read(&self.report, 0, &mut found)?;
        let row = |k: usize| (found[k] != none).then_some(found[k] as usize);
        Ok(TileReport {
            off_stencil: row(0),
            unsymmetric: row(1),
            bad: row(2).map(|code| (code / 4, PivotKind::of_code(code as u64))),
            shifted: found[3] as usize,
        })
    }

    /// Returns the kernel with this number of sums, or that of the transpose, loaded at its first use.
    fn function(&self, device: &Arc<Device>, sums: usize, transposed: bool) -> Result<&Function<tile_solve>> {
        let place = &self.functions[if transposed { 3 } else { sums }];
        if let Some(function) = place.get() {
            return Ok(function);
        }
        let tile = [self.boxes.lx as usize, 1 << self.boxes.log_y, 1 << self.boxes.log_z];
        let function =
            device.function(&tile_solve::of(tile, self.factor, self.precision, sums, transposed))?;
        let shared = self.warps * shared(tile, self.factor, self.precision);
        device.allow_shared(&function, LANES * self.warps, shared)?;
        Ok(place.get_or_init(|| function))
    }
}

/// Returns the constants of both files.
fn common(factor: TileFactor, precision: Precision) -> Defines {
    vec![value(precision), define("SYMMETRIC", (factor == TileFactor::Ic0) as u32)]
}

impl tile_factor {
    /// Returns the kernel for incomplete factors of the tiles of block-Jacobi.
    pub(crate) fn of(factor: TileFactor, precision: Precision) -> Of<Self> {
        Self.with(common(factor, precision))
    }
}

impl tile_solve {
    /// Returns the kernel that solves with the factors, or with their transposes, and makes this many sums
    /// over the result. Tiles of other shapes than [`SHAPES`] share a kernel.
    pub(crate) fn of(
        tile: [usize; 3],
        factor: TileFactor,
        precision: Precision,
        sums: usize,
        transposed: bool,
    ) -> Of<Self> {
        let known = SHAPES.iter().any(|shape| shape.0 == tile);
        let [lx, log_y, log_z, pitch] = match known {
            true => [tile[0], tile[1].ilog2() as usize, tile[2].ilog2() as usize, pitch(tile)],
            false => [0; 4],
        };
        let numbers = [
            ("DOTS", sums),
            ("TRANSPOSED", transposed as usize),
            ("WARPS", most_warps(tile)),
            ("LX", lx),
            ("LOG_Y", log_y),
            ("LOG_Z", log_z),
            ("PITCH", pitch),
        ];
        let mut defines = common(factor, precision);
        defines.extend(numbers.map(|(name, value)| define(name, value)));
        Self.with(defines)
    }
}

/// Returns both kinds of factors, in the precisions that are compiled ahead.
fn kinds(set: Set) -> impl Iterator<Item = (TileFactor, Precision)> {
    let stores = set.choose(STORES.to_vec(), [Precision::F64]);
    stores.into_iter().flat_map(|precision| [(TileFactor::Ic0, precision), (TileFactor::Ilu0, precision)])
}

fn solve_kernels(set: Set) -> Vec<Kernel> {
    let tiles = || SHAPES.map(|shape| shape.0).into_iter().chain([[0; 3]]);
    let of = |(factor, precision)| {
        tiles().flat_map(move |tile| {
            let turned = (factor == TileFactor::Ilu0).then_some((0, true));
            let all = (0..=2).map(|sums| (sums, false)).chain(turned);
            all.map(move |(sums, turned)| tile_solve::of(tile, factor, precision, sums, turned).into())
        })
    };
    kinds(set).flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fill_a_warp_and_meet_no_banks() {
        assert_eq!((lines(128, 512), lines(1, 1), lines(100, 1)), ([8, 4], [1, 1], [32, 1]));
        assert_eq!((lines(1, 100), lines(2, 100), lines(5, 2)), ([1, 32], [2, 16], [8, 2]));
        for tile in [[32, 8, 4], [32, 4, 8], [32, 16, 2], [32, 32, 1], [7, 8, 4]] {
            let pitch = pitch(tile);
            assert!((tile[0]..tile[0] + 16).contains(&pitch));
            let [_, ty, tz] = tile;
            let mut banks: Vec<_> =
                (0..16).map(|line| (line * pitch + 512 - line % ty - line / ty % tz) % 16).collect();
            banks.sort_unstable();
            banks.dedup();
            assert_eq!(banks.len(), 16, "{tile:?}: conflicts with a pitch of {pitch}");
        }
    }

    #[test]
    fn tiles_of_a_warp_cover_the_box() {
        let boxes = Boxes::new(&Tiling { cells: [256, 128, 512], tile: [32, 8, 4] });
        assert_eq!((boxes.across, boxes.tiles, boxes.pitch), ([8, 16], 8 * 16 * 128, 35));
        let boxes = Boxes::new(&Tiling { cells: [33, 1, 1], tile: [8, 1, 1] });
        assert_eq!((boxes.across, boxes.tiles), ([1, 1], 1));
        let boxes = Boxes::new(&Tiling { cells: [0; 3], tile: [8, 8, 4] });
        assert_eq!(boxes.tiles, 0);
    }
}

//! Terms that share a pattern: their tiles, packed values and kernels, and the launches over them.

use super::super::Cuda;
use super::super::driver::{Buffer, Constant, Device};
use super::super::launch::{Function, Of};
use super::super::modules::Held;
use super::super::tiling::{DevicePattern, DeviceTiling};
use super::shape::{Shape, kron_long_rows, kron_pack, kron_product, kron_residual, kron_residual_long};
use crate::matrix::{Bsr, Dense};
use crate::operator::{Structure, Terms};
use crate::space::Precision;
use crate::{Error, Result};
use std::ops::Range;
use std::sync::Arc;

/// The constant of `kernels/kron_product.cu`.
const COEFFICIENTS: &str = "coefficients";
/// Bytes of x that stay in the L2 cache while other data stream through it.
const CACHED: usize = 24 << 20;
/// Rows that are longer than this on average are clustered only in matrices with [`MANY`] rows: each new
/// column of a tile is looked up in all rows that have it.
const LONG: usize = 20;
/// Rows of a large matrix.
const MANY: usize = 1 << 16;

/// Location of the ghosts of a launch; the last arguments of `kernels/kron_product.cu` with HALO.
#[derive(Clone, Copy, Default)]
pub(super) struct Ghosts {
    /// Number of own nodes.
    pub own: i32,
    /// Address of ghosts that have already arrived.
    pub at: u64,
    /// The exchange that the launch makes itself, or null.
    pub exchange: u64,
    /// Set if the launch starts an exchange.
    pub send: i32,
}

/// Terms that share a pattern.
pub(in crate::device::cuda) struct Group {
    /// The first term, and the number of terms.
    pub(super) terms: (usize, usize),
    pub(super) structure: Structure,
    pub(super) precision: Precision,
    pub(super) blocks: usize,
    pub tiles: Tiles,
    values: Values,
    pub kernels: Kernels,
    /// Three numbers for each part of a row that is longer than a tile.
    pub parts: Buffer<f64>,
    /// Values in natural order on their way to the packed order, kept after the first update.
    pub(super) staging: Option<Buffer<f64>>,
    /// Set by `kernels/kron_pack.cuh`: the structure is broken; a value is not finite.
    broken: Buffer<i32>,
    pub(super) add: bool,
    pub(super) halo: bool,
}

enum Values {
    F64(Buffer<f64>),
    F32(Buffer<f32>),
}

/// Grouping of rows into tiles.
pub(in crate::device::cuda) struct Tiles {
    made: DeviceTiling,
    row_starts: Arc<Buffer<i64>>,
    sources: Buffer<i32>,
    shape: Shape,
}

impl std::ops::Deref for Tiles {
    type Target = DeviceTiling;

    fn deref(&self) -> &DeviceTiling {
        &self.made
    }
}

/// The kernels of one group, and their launch parameters.
pub(in crate::device::cuda) struct Kernels {
    pub residual: Function<kron_residual>,
    pub residual_long: Function<kron_residual_long>,
    product: Function<kron_product>,
    long_rows: Function<kron_long_rows>,
    pack: Function<kron_pack>,
    /// The module, which all operators with these coefficients share, and the contents of its constant
    /// memory.
    held: Arc<Held>,
    numbers: Vec<f64>,
    grid: usize,
    shared: usize,
}

impl Group {
    pub(super) fn new(
        space: &Cuda,
        terms: &Terms,
        (first, count): (usize, usize),
        structure: Structure,
        precision: Precision,
        halo: bool,
    ) -> Result<Self> {
        let (b, s, device) = (terms.block(), terms.stages(), space.device());
        let a: &Bsr = &terms.terms[first].1;
        let ghosts = terms.halo.as_ref().filter(|_| halo).map_or(0, |halo| halo.ghosts);
        let own = a.block_columns() - ghosts;
        let tiles = Tiles::new(space, a, s, &structure, precision, own)?;
        let numbers = tiles.positions * structure.slots;
        let values = match precision {
            Precision::F64 => Values::F64(device.zeros(numbers, "matrix values")?),
            Precision::F32 => Values::F32(device.zeros(numbers, "matrix values")?),
        };
        let coefficients: Vec<Dense> = terms.terms.iter().map(|t| t.0.clone()).collect();
        let of = kron_product::of(&tiles.shape, b, s, &structure, precision, first > 0, halo);
        let shared = tiles.shared(b, s, &structure, precision);
        let kernels = Kernels::new(device, &tiles, &of, shared, &coefficients[first..first + count], false)?;
        let parts = device.zeros(3 * tiles.part_starts.len() * b * s, "partial sums")?;
        let broken = device.zeros(2, "two flags")?;
        let mut group = Self {
            terms: (first, count),
            structure,
            precision,
            blocks: a.blocks(),
            tiles,
            values,
            kernels,
            parts,
            staging: None,
            broken,
            add: first > 0,
            halo,
        };
        for t in first..first + count {
            let natural = space.resident(&terms.terms[t].1)?;
            group.pack(device, t, natural.values.pointer())?;
        }
        device.wait()?;
        Ok(group)
    }

    /// Address of the packed values.
    pub fn values(&self) -> u64 {
        match &self.values {
            Values::F64(v) => v.pointer(),
            Values::F32(v) => v.pointer(),
        }
    }

    pub(super) fn has(&self, t: usize) -> bool {
        (self.terms.0..self.terms.0 + self.terms.1).contains(&t)
    }

    /// Multiplies some tiles; long rows follow the last one.
    pub(super) fn multiply(
        &self,
        space: &Cuda,
        run: usize,
        x: u64,
        y: u64,
        tiles: Range<usize>,
        ghosts: Option<Ghosts>,
    ) -> Result<()> {
        let (k, t, device) = (&self.kernels, &self.tiles, space.device());
        // A launch that starts an exchange is made even with no tile to multiply.
        if tiles.is_empty() && ghosts.is_none_or(|g| g.send == 0) {
            return Ok(());
        }
        let values = self.values();
        let grid = k.grid.min(tiles.len()).max(1);
        // Without ghosts the kernel does not read the last arguments.
        let g = ghosts.unwrap_or_default();
        k.product.on(device, grid, t.shape.threads).shared(k.shared).run(
            space.halt(),
            tiles.end as i32,
            &t.starts,
            &t.records,
            values,
            x,
            y,
            &self.parts,
            t.nodes as i32,
            t.record as i32,
            tiles.start as i32,
            t.first_boundary as i32,
            g.own,
            g.at,
            g.exchange,
            g.send,
        )?;
        let rows = t.long_rows.len() / 3;
        if rows > 0 && tiles.end == t.count {
            let launch = k.long_rows.on(device, (rows * run).div_ceil(128), 128);
            launch.run(space.halt(), rows as i32, &t.long_rows, &self.parts, y)?;
        }
        Ok(())
    }

    /// Packs new values of term `t`, and checks that they still have the structure.
    pub(super) fn update(&mut self, space: &Cuda, t: usize, natural: u64) -> Result<()> {
        let device = space.device();
        device.clear(&mut self.broken)?;
        self.pack(device, t, natural)?;
        let mut broken = [0; 2];
        device.read(&self.broken, 0, &mut broken)?;
        match broken {
            [0, 0] => Ok(()),
            [_, 0] => Err(breaks_structure(t)),
            _ => Err(Error::invalid(format!(
                "new values of term {t}: at least one is NaN or infinite; every value must be finite"
            ))),
        }
    }

    fn pack(&mut self, device: &Device, t: usize, natural: u64) -> Result<()> {
        let tiles = &self.tiles;
        if tiles.count == 0 {
            return Ok(());
        }
        let values = self.values();
        self.kernels.pack.on(device, tiles.count, 256).run(
            &tiles.starts,
            &tiles.records,
            &tiles.row_starts,
            &tiles.part_starts,
            &tiles.sources,
            natural,
            (t - self.terms.0) as i32,
            values,
            &self.broken,
        )
    }

    /// Sets other coefficients, of s stages instead of `before`. Returns true where recorded launches have to
    /// use other kernels. A module that other operators hold is left unchanged.
    pub(super) fn set_coefficients(
        &mut self,
        device: &Arc<Device>,
        all: &[Dense],
        b: usize,
        before: usize,
    ) -> Result<bool> {
        let (first, count) = self.terms;
        let (own, s) = (&all[first..first + count], all[0].rows());
        let numbers = own.iter().flat_map(|c| c.values()).copied();
        if s == before {
            let held = &self.kernels.held;
            if self.kernels.numbers.iter().copied().eq(numbers.clone()) {
                return Ok(false);
            }
            if device.is_own(held) {
                self.kernels.numbers.clear();
                self.kernels.numbers.extend(numbers);
                Constant::find(device, &held.module, COEFFICIENTS)?.write(device, &self.kernels.numbers)?;
                return Ok(false);
            }
        }
        // Another number of stages needs another kernel; tiles and values stay.
        let of =
            kron_product::of(&self.tiles.shape, b, s, &self.structure, self.precision, self.add, self.halo);
        let shared = self.tiles.shared(b, s, &self.structure, self.precision);
        self.kernels = Kernels::new(device, &self.tiles, &of, shared, own, s == before)?;
        let parts = 3 * self.tiles.part_starts.len() * b * s;
        if self.parts.len() < parts {
            self.parts = device.zeros(parts, "partial sums")?;
        }
        Ok(true)
    }
}

pub(super) fn breaks_structure(t: usize) -> Error {
    Error::invalid(format!(
        "the new values of term {t} are nonzero or unequal where the first values were zero or equal in \
         every block; build the operator with PointBlock::new(…, dense = true)"
    ))
}

impl Tiles {
    /// Makes tiles as large as the shared memory of the device allows.
    fn new(
        space: &Cuda,
        a: &Bsr,
        s: usize,
        structure: &Structure,
        precision: Precision,
        own: usize,
    ) -> Result<Self> {
        let (device, resident) = (space.device(), space.resident(a)?);
        let pattern = DevicePattern::of(a, &resident);
        let mut shape = Shape::choose(a.block(), s, structure, precision);
        // Clustering takes milliseconds. It saves little where x is cached and blocks have structure, and it
        // is expensive for the long rows of coarse levels.
        let cached = 8 * a.block() * s * a.block_columns() <= CACHED;
        let coarse = a.block_rows() < MANY && a.blocks() > LONG * a.block_rows();
        shape.cluster &= !(coarse || s == 1 && cached && !structure.is_dense());
        let tiling = loop {
            let tiling = DeviceTiling::new(device, pattern, shape.tile, shape.cluster, own)?;
            let needed = shape.shared(a.block(), s, structure.slots, precision, tiling.nodes, tiling.record);
            if needed <= device.shared_memory() || shape.tile <= 16 {
                break tiling;
            }
            shape.tile /= 2;
        };
        Ok(Self {
            row_starts: resident.row_ptr.clone(),
            sources: device.upload(&shape.sources(structure), "indices of the tiles")?,
            made: tiling,
            shape,
        })
    }
}

impl Tiles {
    /// Dynamic shared memory of a product in bytes.
    fn shared(&self, b: usize, s: usize, structure: &Structure, precision: Precision) -> usize {
        self.shape.shared(b, s, structure.slots, precision, self.nodes, self.record)
    }
}

impl Kernels {
    /// Returns the functions of a kernel with these coefficients; with `alone`, in a module that only this
    /// operator holds.
    fn new(
        device: &Arc<Device>,
        tiles: &Tiles,
        kernel: &Of<kron_product>,
        shared: usize,
        coefficients: &[Dense],
        alone: bool,
    ) -> Result<Self> {
        let numbers: Vec<f64> = coefficients.iter().flat_map(|c| c.values()).copied().collect();
        let held = device.module_with(kernel, COEFFICIENTS, &numbers, alone)?;
        let module = &held.module;
        let product = device.function_in(module, kron_product)?;
        let resident = device.allow_shared(&product, tiles.shape.threads, shared)?;
        Ok(Self {
            product,
            residual: device.function_in(module, kron_residual)?,
            residual_long: device.function_in(module, kron_residual_long)?,
            long_rows: device.function_in(module, kron_long_rows)?,
            pack: device.function_in(module, kron_pack)?,
            numbers,
            grid: tiles.count.min(device.multiprocessors() * resident).max(1),
            shared,
            held,
        })
    }
}

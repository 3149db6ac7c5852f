//! Products with matrices stored by diagonals on a GPU: launches of `kernels/dia.cu`.
//!
//! The set-up finds the diagonals in one pass over the columns, records in one word per row which diagonals
//! the row has, and packs the values. Afterwards only the row pointers of the CSR arrays are kept. New values
//! are placed with those words alone.

mod columns;
mod detect;
mod narrow;
mod shape;

pub(super) use narrow::NarrowDia;
pub(super) use shape::{DIA, DIA_DETECT, DIA_PAIRS};
pub(crate) use shape::{likely, likely_in_bf16, likely_in_f32, likely_to_smooth};

use super::Cuda;
use super::csr::{check_new_values, not_finite};
use super::driver::{Buffer, Device};
use super::exchange::Exchange;
use super::launch::{Function, Of};
use super::scalars::CudaScalars;
use super::smooth::Smooth;
use crate::Result;
use crate::matrix::Bsr;
use crate::memory::Numbers;
use crate::operator::{Dots, Format, MOST_DIAGONALS, diagonals_of, mirrored, not_by_diagonals};
use crate::space::Precision;
use columns::Columns;
use detect::{GhostRows, Values, blocks, diagonals_on_device};
use shape::{
    DiaShape, dia, dia_columns, dia_ghosts, dia_mirror, dia_named, dia_pack, dia_pack_ghosts, dia_product,
    dia_residual, dia_smooth, dia_that_smooths,
};
use std::cell::OnceCell;
use std::sync::Arc;

/// Rows of a plane from which on marching from plane to plane is faster: the first-level caches hold about as
/// many.
const PLANE: usize = 4096;
/// Numbers between diagonals besides the rows. Without them, diagonals with a power of two of rows would all
/// start in the same cache set.
const SKEW: usize = 272;

/// One matrix by diagonals in device memory, its coefficient, and its entries in columns of other ranks.
pub(super) struct DiaProduct {
    rows: usize,
    /// Number of entries in CSR, including those in columns of other ranks.
    entries: usize,
    /// Offsets of all diagonals, ascending.
    offsets: Vec<i32>,
    row_ptr: Arc<Buffer<i64>>,
    /// For each row a mask of its diagonals.
    masks: Buffer<u32>,
    stored: Stored,
    precision: Precision,
    coefficient: Buffer<f64>,
    ghosts: GhostRows,
    /// Partial sums of thread blocks.
    parts: Buffer<f64>,
    /// Number of thread blocks that have ended.
    counter: Buffer<u32>,
    /// Values on their way to the device, kept after the first update.
    staging: Option<Buffer<f64>>,
    /// Set by the packing kernels: half-stored values are not symmetric; a value is not finite.
    broken: Buffer<i32>,
    /// Increases when values move to another address.
    version: u64,
}

/// Values by diagonals, with their kernels.
struct Stored {
    symmetric: bool,
    count: usize,
    offsets: [i32; MOST_DIAGONALS],
    values: Values,
    stride: usize,
    kernels: Kernels,
}

/// Order in which a product visits the rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Walk {
    march: bool,
    /// A product without sums runs the kernel that makes one, and its sum is ignored: this kernel is the
    /// faster of the two (0.198 ms, against 0.215 ms without a sum, at 256×128×512 on an H200).
    with_sum: bool,
    /// Runs of rows, or of rows of several planes.
    items: usize,
    /// Planes per item.
    steps: usize,
    /// Number of thread blocks.
    grid: usize,
}

/// Kernels by number of sums.
struct Kernels {
    shape: DiaShape,
    walk: Walk,
    product: [Function<dia_product>; 3],
    /// Kernels of [`DiaProduct::smooth`], loaded at their first use: for any vector, and for steps that start
    /// from zero. They have fewer resident thread blocks.
    smoothing: [OnceCell<(Function<dia_smooth>, Walk)>; 2],
    /// Kernels of several vectors, loaded at their first use: of products, of residuals and smoother steps,
    /// and of steps that start from zero.
    columns: [OnceCell<Function<dia_columns>>; 3],
    ghosts: [Function<dia_ghosts>; 3],
    residual: Function<dia_residual>,
    pack: Function<dia_pack>,
    mirror: Function<dia_mirror>,
    pack_ghosts: Function<dia_pack_ghosts>,
}

/// Mirrors `struct Sums` in `kernels/dia.cu`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(in crate::device::cuda) struct Sums {
    parts: u64,
    counter: u64,
    places: [u64; 2],
    peers: u64,
    first: i32,
    total: i32,
    last: i32,
    unused: i32,
}

const _: () = assert!(size_of::<Sums>() == 56);

/// Addresses of b, x and the results of a residual.
pub(super) struct ResidualOf {
    pub b: u64,
    pub x: u64,
    pub r: u64,
    pub m: u64,
}

impl DiaProduct {
    /// Makes a product by diagonals, if the entries lie on few diagonals. `own` columns are local, the others
    /// are ghosts.
    ///
    /// # Errors
    /// Diagonals requested by name that do not suit the matrix; out of device memory.
    pub fn new(
        space: &Cuda,
        a: &Bsr,
        own: usize,
        precision: Precision,
        coefficient: f64,
        format: Format,
    ) -> Result<Option<Self>> {
        let (device, rows) = (space.device(), a.block_rows());
        let found = match format {
            Format::Csr => None,
            _ if rows != own => None,
            _ => diagonals_on_device(space, a)?,
        };
        let Some(offsets) = found else {
            // The device only counts; the host finds the reason for the error.
            return match format.wants_diagonals() {
                true => Err(not_by_diagonals(match diagonals_of(a, own) {
                    Err(why) => why,
                    Ok(_) => "the diagonals were not found".into(),
                })),
                false => Ok(None),
            };
        };
        let resident = space.resident(a)?;
        let masks = device.allocate::<u32>(rows, "diagonals of rows")?;
        let ghosts = GhostRows::find(space, a, own, &offsets, &masks, precision)?;
        let symmetric = format != Format::DiaFull && mirrored(&offsets);
        let stored = Stored::new(space, rows, &offsets, symmetric, precision)?;
        let parts = device.zeros(2 * stored.parts(device, &ghosts), "partial sums")?;
        let mut product = Self {
            rows,
            entries: a.blocks(),
            offsets,
            row_ptr: resident.row_ptr.clone(),
            masks,
            stored,
            precision,
            coefficient: device.upload(&[coefficient], "a coefficient")?,
            ghosts,
            parts,
            counter: device.zeros(1, "a reduction counter")?,
            staging: None,
            broken: device.zeros(2, "two flags")?,
            version: 0,
        };
        product.pack(space, resident.values.pointer())?;
        Ok(Some(product))
    }

    /// Returns the format: `dia` or `dia-full`.
    pub fn format(&self) -> Format {
        if self.stored.symmetric { Format::Dia } else { Format::DiaFull }
    }

    /// Computes `y ← c A x`, with sums in the same pass; the lengths have been checked.
    pub fn multiply(
        &self,
        space: &Cuda,
        x: u64,
        y: u64,
        exchange: Option<&Exchange>,
        dots: Option<(Dots, &CudaScalars)>,
    ) -> Result<()> {
        let (device, stored) = (space.device(), &self.stored);
        let (sums, walk) = (dots.map_or(0, |(dots, _)| dots.count()), &stored.kernels.walk);
        // The kernel that adds ghosts also sums over the GPUs of other ranks.
        let second = exchange.is_some() || (sums > 0 && space.fabric().group() != 0);
        let beyond = if second { self.ghosts.grid(device) } else { 0 };
        let mut to = Sums {
            parts: self.parts.pointer(),
            counter: self.counter.pointer(),
            peers: space.fabric().group(),
            total: (walk.grid + beyond) as i32,
            last: (!second && sums > 0) as i32,
            ..Sums::default()
        };
        if let Some((dots, scalars)) = dots {
            to.places = [scalars.value(dots.slot()), scalars.value(dots.slot() + sums - 1)];
        }
        let inside = exchange.and_then(|e| e.inside()).unwrap_or(0);
        if let Some(e) = exchange.filter(|e| e.inside().is_none()) {
            e.start(space, x)?;
        }
        stored.kernels.product[sums.max(walk.with_sum as usize)]
            .on(device, walk.grid, DiaShape::THREADS)
            .run(
                space.halt(),
                self.rows as u32,
                stored.count as i32,
                stored.offsets,
                stored.values.pointer(),
                stored.stride as i64,
                x,
                y,
                &self.coefficient,
                walk.items as i32,
                walk.steps as i32,
                to,
                inside,
            )?;
        if let Some(e) = exchange.filter(|_| inside == 0) {
            e.finish(device)?;
        }
        if second {
            (to.first, to.last) = (walk.grid as i32, 1);
            stored.kernels.ghosts[sums].on(device, beyond, DiaShape::THREADS).run(
                space.halt(),
                self.ghosts.twin(),
                exchange.map_or(0, |e| e.ghosts()),
                x,
                y,
                &self.coefficient,
                to,
                inside,
                0,
                Smooth::default(),
            )?;
        }
        match dots {
            Some((dots, scalars)) => space.fabric().total(scalars.value(dots.slot()), sums),
            None => Ok(()),
        }
    }

    /// True if [`smooth`](Self::smooth) is supported.
    pub fn smooths(&self) -> bool {
        self.stored.kernels.shape.smooths()
    }

    /// Computes a residual or a smoother step in the pass of the product, and writes it to `to`, which must
    /// not be x. The lengths have been checked. With an exchange, products with ghosts are added afterwards.
    pub fn smooth(&self, space: &Cuda, of: Smooth, to: u64, exchange: Option<&Exchange>) -> Result<()> {
        let (device, stored) = (space.device(), &self.stored);
        if self.rows == 0 && exchange.is_none() {
            return Ok(());
        }
        let inside = exchange.and_then(|e| e.inside()).unwrap_or(0);
        if let Some(e) = exchange.filter(|_| inside == 0) {
            e.start(space, of.x)?;
        }
        let (function, walk) = self.smoothing(device, of.first != 0)?;
        function.on(device, walk.grid, DiaShape::THREADS).run(
            space.halt(),
            self.rows as u32,
            stored.count as i32,
            stored.offsets,
            stored.values.pointer(),
            stored.stride as i64,
            of.x,
            to,
            &self.coefficient,
            walk.items as i32,
            walk.steps as i32,
            Sums::default(),
            inside,
            of,
        )?;
        let Some(e) = exchange else { return Ok(()) };
        if inside == 0 {
            e.finish(device)?;
        }
        stored.kernels.ghosts[0].on(device, self.ghosts.grid(device), DiaShape::THREADS).run(
            space.halt(),
            self.ghosts.twin(),
            e.ghosts(),
            of.x,
            to,
            &self.coefficient,
            Sums::default(),
            inside,
            1,
            of,
        )
    }

    /// Loads the kernels of [`smooth`](Self::smooth). A launch that loads its kernel may wait for other
    /// kernels, which may wait for another rank.
    pub fn prepare_to_smooth(&self, device: &Arc<Device>) -> Result<()> {
        self.smoothing(device, false)?;
        self.smoothing(device, true).map(drop)
    }

    fn smoothing(&self, device: &Arc<Device>, from_zero: bool) -> Result<&(Function<dia_smooth>, Walk)> {
        let cell = &self.stored.kernels.smoothing[usize::from(from_zero)];
        if let Some(made) = cell.get() {
            return Ok(made);
        }
        let made = self.stored.smoothing(device, self.rows, from_zero)?;
        Ok(cell.get_or_init(|| made))
    }

    /// Computes `r ← b − c A x` and `m ← |b| + |c A| |x|` from addresses whose lengths have been checked.
    /// With an exchange, it uses the ghosts of the last product with this x.
    pub fn residual(&self, space: &Cuda, on: &ResidualOf, exchange: Option<&Exchange>) -> Result<()> {
        let (device, stored) = (space.device(), &self.stored);
        if self.rows == 0 {
            return Ok(());
        }
        let inside = exchange.and_then(|e| e.inside()).unwrap_or(0);
        let ghosts = exchange.map_or(0, |e| e.ghosts());
        stored
            .kernels
            .residual
            .on(device, blocks(self.rows).min(8 * device.multiprocessors()), DiaShape::THREADS)
            .run(
                space.halt(),
                self.rows as u32,
                stored.count as i32,
                stored.offsets,
                stored.values.pointer(),
                stored.stride as i64,
                on.x,
                on.b,
                on.r,
                on.m,
                &self.coefficient,
                self.ghosts.twin(),
                ghosts,
                inside,
            )
    }

    /// Sets new values in the order of the entries, from the host or from device memory. If the old values
    /// were symmetric and the new ones are not, all diagonals are stored from then on.
    ///
    /// # Errors
    /// A different number of values; a value that is NaN or infinite. Values on the host are checked before
    /// anything changes.
    pub fn update_values(&mut self, space: &Cuda, values: Numbers) -> Result<()> {
        let (device, entries) = (space.device(), self.entries);
        check_new_values(&values, entries)?;
        let mut staging = match self.staging.take() {
            Some(buffer) => buffer,
            None => device.zeros(0, "new values")?,
        };
        let done = device.reading(values, &mut staging, |natural| self.pack(space, natural));
        self.staging = Some(staging);
        done
    }

    /// Packs the values. It switches to all diagonals where one half is not the mirror image of the other.
    fn pack(&mut self, space: &Cuda, natural: u64) -> Result<()> {
        let device = space.device();
        for attempt in 0..2 {
            device.clear(&mut self.broken)?;
            self.launch_pack(device, natural)?;
            let mut broken = [0; 2];
            device.read(&self.broken, 0, &mut broken)?;
            match broken {
                [_, 1] => {
                    return Err(not_finite());
                }
                [1, _] if attempt == 0 => {
                    self.stored = Stored::new(space, self.rows, &self.offsets, false, self.precision)?;
                    let parts = 2 * self.stored.parts(device, &self.ghosts);
                    if self.parts.len() < parts {
                        self.parts = device.zeros(parts, "partial sums")?;
                    }
                    self.version += 1;
                }
                _ => return Ok(()),
            }
        }
        Ok(())
    }

    fn launch_pack(&mut self, device: &Device, natural: u64) -> Result<()> {
        let (stored, kernels) = (&self.stored, &self.stored.kernels);
        let (rows, count) = (self.rows as u32, stored.count as i32);
        let stride = stored.stride as i64;
        let threads = DiaShape::THREADS;
        if self.rows > 0 {
            kernels.pack.on(device, blocks(self.rows), threads).run(
                rows,
                count,
                &self.row_ptr,
                &self.masks,
                natural,
                stored.values.pointer(),
                stride,
                &self.broken,
            )?;
        }
        if self.rows > 0 && stored.symmetric && stored.count > 1 {
            kernels.mirror.on(device, blocks(self.rows), threads).run(
                rows,
                count,
                stored.offsets,
                &self.row_ptr,
                &self.masks,
                natural,
                stored.values.pointer(),
                stride,
                &self.broken,
            )?;
        }
        let ghosts = self.ghosts.twin();
        if ghosts.count > 0 {
            kernels.pack_ghosts.on(device, blocks(ghosts.count as usize), threads).run(
                ghosts.count,
                ghosts.rows,
                ghosts.starts,
                &self.row_ptr,
                natural,
                ghosts.values,
                &self.broken,
            )?;
        }
        Ok(())
    }

    /// Sets another coefficient. Recorded launches read it from the same address.
    pub fn update_coefficient(&mut self, device: &Device, coefficient: f64) -> Result<()> {
        device.write(&[coefficient], &mut self.coefficient, 0)
    }

    /// Least number of bytes that one product moves.
    pub fn bytes(&self) -> u64 {
        let (value, ghosts) = (self.precision.bytes(), &self.ghosts);
        let own = self.rows * (value * self.stored.count + 16);
        (own + ghosts.columns.len() * (value + 12) + 24 * ghosts.rows.len()) as u64
    }

    /// Returns a version that changes with the addresses and kernels in recorded launches.
    pub fn version(&self) -> u64 {
        self.version
    }
}

impl Stored {
    /// Allocates all diagonals, or those from the main diagonal on.
    fn new(space: &Cuda, rows: usize, all: &[i32], symmetric: bool, precision: Precision) -> Result<Self> {
        let device = space.device();
        let kept = if symmetric { &all[all.len() / 2..] } else { all };
        let mut offsets = [0; MOST_DIAGONALS];
        offsets[..kept.len()].copy_from_slice(kept);
        let stride = (rows + SKEW).next_multiple_of(16);
        let shape = DiaShape::choose(kept.len(), symmetric, precision);
        let kernels = Kernels::new(device, &shape, rows, kept, mirrored(all))?;
        let values = Values::new(device, precision, stride * kept.len())?;
        Ok(Self { symmetric, count: kept.len(), offsets, values, stride, kernels })
    }

    /// Returns the kernel of [`DiaProduct::smooth`] and its order of rows.
    fn smoothing(
        &self,
        device: &Arc<Device>,
        rows: usize,
        from_zero: bool,
    ) -> Result<(Function<dia_smooth>, Walk)> {
        self.smoothing_by(device, rows, |shape, entry| dia_that_smooths(shape, entry, from_zero))
    }

    /// The same with another kernel.
    fn smoothing_by(
        &self,
        device: &Arc<Device>,
        rows: usize,
        kernel: impl FnOnce(&DiaShape, &'static str) -> Of<dia_smooth>,
    ) -> Result<(Function<dia_smooth>, Walk)> {
        let Kernels { shape, walk, .. } = &self.kernels;
        let entry = if walk.march { "dia_march" } else { "dia_product" };
        let function = device.function(&kernel(shape, entry))?;
        let grid = device.multiprocessors() * device.allow_shared(&function, DiaShape::THREADS, 0)?;
        let walk = match walk.march {
            true => Walk::planes(rows, self.offsets[self.count - 1] as usize, grid),
            false => Walk::rows(rows, grid),
        };
        Ok((function, walk))
    }

    /// Number of thread blocks that leave partial sums.
    fn parts(&self, device: &Device, ghosts: &GhostRows) -> usize {
        self.kernels.walk.grid + ghosts.grid(device)
    }
}

impl Kernels {
    fn new(
        device: &Arc<Device>,
        shape: &DiaShape,
        rows: usize,
        offsets: &[i32],
        mirrored: bool,
    ) -> Result<Self> {
        let outermost = offsets[offsets.len() - 1] as usize;
        let march = shape.exact() && mirrored && outermost >= PLANE && rows >= 4 * outermost;
        let ghosts = |name| device.function(&dia_named(shape, dia_ghosts, name));
        let product = |name| device.function(&dia_named(shape, dia_product, name));
        let names = match march {
            false => ["dia_product", "dia_product_xy", "dia_product_xxxy"],
            true => ["dia_march", "dia_march_xy", "dia_march_xxxy"],
        };
        let product = [product(names[0])?, product(names[1])?, product(names[2])?];
        let resident = device.allow_shared(&product[2], DiaShape::THREADS, 0)?;
        let grid = device.multiprocessors() * resident;
        Ok(Self {
            shape: *shape,
            smoothing: Default::default(),
            columns: Default::default(),
            walk: match march {
                true => Walk { with_sum: shape.ahead(), ..Walk::planes(rows, outermost, grid) },
                false => Walk::rows(rows, grid),
            },
            product,
            ghosts: [ghosts("dia_ghosts")?, ghosts("dia_ghosts_xy")?, ghosts("dia_ghosts_xxxy")?],
            residual: device.function(&dia(shape, dia_residual))?,
            pack: device.function(&dia(shape, dia_pack))?,
            mirror: device.function(&dia(shape, dia_mirror))?,
            pack_ghosts: device.function(&dia(shape, dia_pack_ghosts))?,
        })
    }
}

impl Walk {
    /// Visits row by row.
    fn rows(rows: usize, grid: usize) -> Self {
        let items = rows.div_ceil(DiaShape::THREADS);
        Self { march: false, with_sum: false, items, steps: 1, grid: items.clamp(1, grid) }
    }

    /// Visits plane by plane. The number of planes at a time minimises the work of the busiest thread block,
    /// where the start of an item costs half a plane. On long marches neighbouring thread blocks drift apart
    /// and share less of the caches (128³ and 256×128×512 on an H200: best at 4 to 16).
    fn planes(rows: usize, plane: usize, grid: usize) -> Self {
        let (tiles, planes) = (plane.div_ceil(DiaShape::THREADS), rows.div_ceil(plane));
        let items = |steps: usize| tiles * planes.div_ceil(steps);
        let work = |steps: &usize| items(*steps).div_ceil(grid) * (2 * steps + 1) * (64 + steps);
        let steps = (1..=planes.min(64)).min_by_key(work).unwrap_or(1);
        Self { march: true, with_sum: false, items: items(steps), steps, grid: items(steps).clamp(1, grid) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_are_shared_evenly() {
        // A grid of 128³ on 132 multiprocessors: every plane is visited, and no thread block has much more
        // than its share.
        for (side, grid) in [(128, 660), (256, 660), (128, 1), (64, 1056)] {
            let walk = Walk::planes(side * side * side, side * side, grid);
            let tiles = (side * side).div_ceil(DiaShape::THREADS);
            assert!(walk.march && walk.items >= tiles * side.div_ceil(walk.steps), "{walk:?}");
            let most = walk.items.div_ceil(walk.grid) * walk.steps * walk.grid;
            assert!(most <= tiles * side * 3 / 2 + tiles * walk.steps, "{side}: {walk:?} walks {most}");
        }
    }
}

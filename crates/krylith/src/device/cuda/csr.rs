//! Products of scalar rows on a GPU, straight from the arrays of the format: launches of `kernels/csr.cu`.
//!
//! A set-up finds which rows go together, by two kernels that read `row_ptr`; columns and values are not looked at.

use super::Cuda;
use super::dia::ResidualOf;
use super::driver::{Buffer, Device, launch};
use super::specialisations::{CsrShape, csr_lanes};
use crate::memory::Numbers;
use crate::space::Store;
use crate::{Error, Result};
use cudarc::driver::CudaFunction;
use std::cell::OnceCell;
use std::sync::Arc;

/// One matrix of scalar rows in device memory, and its coefficient.
pub(super) struct CsrProduct {
    rows: usize,
    columns: usize,
    pattern: CsrPattern,
    values: Values,
    coefficient: Buffer<f64>,
    tiles: Tiles,
    kernels: Kernels,
    /// Of a small matrix that no residual is asked of: lanes share rows, and there are no tiles.
    lanes: Option<Lanes>,
    /// The kernels of [`multiply_to`](Self::multiply_to).
    to_others: Option<(CudaFunction, CudaFunction)>,
    /// The kernels of [`smooth`](Self::smooth), once they were asked for.
    smoothing: OnceCell<[CudaFunction; 2]>,
    /// Values on their way to the device or to another precision, kept after the first update.
    staging: Option<Buffer<f64>>,
    /// Set by `csr_values`: a value is not finite.
    broken: Buffer<i32>,
    /// Grows when values move to another address.
    version: u64,
}

/// Where the entries of rows are; rows + 1 offsets, and one column an entry.
pub(super) struct CsrPattern {
    pub row_ptr: Arc<Buffer<i64>>,
    pub col: Arc<Buffer<u32>>,
}

enum Values {
    F64(Arc<Buffer<f64>>),
    F32(Buffer<f32>),
}

/// The kernel of `kernels/csr_lanes.cu`, and the binary logarithm of the lanes of a row.
struct Lanes {
    function: CudaFunction,
    shift: u32,
}

/// Entries of a matrix up to which a product is bound by its launches.
const FEW: usize = 3 << 20;
/// Entries of a row that a lane takes, about.
const EACH: usize = 2;

/// The twin of `struct Smooth` in `kernels/smooth.cuh`: addresses, 0 for what is not needed.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(super) struct Smooth {
    pub x: u64,
    pub b: u64,
    pub d: u64,
    pub p: u64,
    pub a: u64,
    pub c: u64,
    pub first: u64,
    pub last: i32,
    pub keeps: i32,
}

const _: () = assert!(size_of::<Smooth>() == 64);

/// Which rows go together: a record of 16 bytes for each tile, and one for where the last ends.
struct Tiles {
    records: Buffer<[i64; 2]>,
    count: usize,
    /// Row, first and last tile of each row that several tiles share.
    cuts: Buffer<i32>,
    cut_rows: usize,
    /// Up to three numbers for each of the two rows that a tile may share.
    parts: Buffer<f64>,
}

struct Kernels {
    shape: CsrShape,
    product: CudaFunction,
    cut_rows: CudaFunction,
    residual: CudaFunction,
    residual_cut: CudaFunction,
    values: CudaFunction,
}

impl CsrProduct {
    /// A product from arrays that are on the device.
    ///
    /// # Errors
    /// A device without room.
    pub fn new(
        device: &Arc<Device>,
        columns: usize,
        pattern: CsrPattern,
        values: Arc<Buffer<f64>>,
        store: Store,
        coefficient: f64,
    ) -> Result<Self> {
        Self::made(device, columns, pattern, values, store, coefficient, false)
    }

    /// The same for a level of a hierarchy, of which no residual is asked: a small one needs no tiles.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn of_level(
        device: &Arc<Device>,
        columns: usize,
        pattern: CsrPattern,
        values: Arc<Buffer<f64>>,
        store: Store,
        coefficient: f64,
    ) -> Result<Self> {
        let small = pattern.col.len() <= FEW;
        Self::made(device, columns, pattern, values, store, coefficient, small)
    }

    fn made(
        device: &Arc<Device>,
        columns: usize,
        pattern: CsrPattern,
        values: Arc<Buffer<f64>>,
        store: Store,
        coefficient: f64,
        small: bool,
    ) -> Result<Self> {
        let rows = pattern.row_ptr.len() - 1;
        let shape = CsrShape::choose(store);
        let kernel = |entry: &'static str| device.function(&shape.kernel(entry));
        let kernels = Kernels {
            shape,
            product: kernel("csr_product")?,
            cut_rows: kernel("csr_cut_rows")?,
            residual: kernel("csr_residual")?,
            residual_cut: kernel("csr_residual_cut")?,
            values: kernel("csr_values")?,
        };
        let lanes = match small {
            true => {
                let mean = pattern.col.len() / rows.max(1);
                let shift = (mean / EACH).clamp(1, 32).next_power_of_two().ilog2();
                Some(Lanes { function: device.function(&csr_lanes(store))?, shift })
            }
            false => None,
        };
        let tiles = if small { Tiles::none(device)? } else { Tiles::new(device, &pattern, &shape)? };
        let mut broken = device.zeros(1, "a flag")?;
        let values = match store {
            Store::F64 => Values::F64(values),
            Store::F32 => {
                let narrow = device.zeros(values.len(), "matrix values")?;
                convert(device, &kernels, values.pointer(), narrow.pointer(), narrow.len(), &mut broken)?;
                Values::F32(narrow)
            }
        };
        let coefficient = device.upload(&[coefficient], "a coefficient")?;
        Ok(Self {
            rows,
            columns,
            pattern,
            values,
            coefficient,
            tiles,
            kernels,
            lanes,
            to_others: None,
            smoothing: OnceCell::new(),
            staging: None,
            broken,
            version: 0,
        })
    }

    /// Address of the stored values.
    pub fn values(&self) -> u64 {
        match &self.values {
            Values::F64(v) => v.pointer(),
            Values::F32(v) => v.pointer(),
        }
    }

    /// Stored entries.
    pub fn entries(&self) -> usize {
        self.pattern.col.len()
    }

    /// Where they are.
    pub fn pattern(&self) -> &CsrPattern {
        &self.pattern
    }

    /// Address of the coefficient.
    pub fn coefficient(&self) -> u64 {
        self.coefficient.pointer()
    }

    /// Loads every kernel that is only loaded when it is launched: a driver may wait for what runs on the device then, and that may wait
    /// for another rank.
    pub fn load(&self, device: &Device) -> Result<()> {
        let Kernels { shape, product, cut_rows, residual, residual_cut, .. } = &self.kernels;
        let others = self.to_others.iter().flat_map(|(product, cut_rows)| [product, cut_rows]);
        let all = [product, cut_rows, residual, residual_cut].into_iter().chain(others);
        // What is asked about a function is known when it is loaded.
        all.map(|function| device.allow_shared(function, shape.threads, 0))
            .try_for_each(|asked| asked.map(drop))
    }

    /// Loads what [`multiply_to`](Self::multiply_to) needs.
    pub fn prepare_for_others(&mut self, device: &Device) -> Result<()> {
        let shape = &self.kernels.shape;
        let kernel = |entry| device.function(&shape.kernel_for_others(entry));
        self.to_others = Some((kernel("csr_product")?, kernel("csr_cut_rows")?));
        Ok(())
    }

    /// `y ← c A x`; lengths were checked.
    pub fn multiply(&self, space: &Cuda, x: u64, y: u64) -> Result<()> {
        if let Some(lanes) = &self.lanes {
            return self.launch_lanes(space, lanes, Smooth { x, ..Smooth::default() }, y, false);
        }
        let Kernels { product, cut_rows, .. } = &self.kernels;
        self.launch_product(space, product, cut_rows, x, y, [0; 16])
    }

    /// The same, each number stored into the vectors of other GPUs as well: their addresses, and in the last place how many.
    pub fn multiply_to(&self, space: &Cuda, x: u64, y: u64, others: [u64; 16]) -> Result<()> {
        let lacking = || Error::Internal("a product that was not prepared for other GPUs".into());
        let (product, cut_rows) = self.to_others.as_ref().ok_or_else(lacking)?;
        self.launch_product(space, product, cut_rows, x, y, others)
    }

    /// A residual, or a step of a smoother, in the pass of the product: to `to`, which is not x; lengths were checked.
    pub fn smooth(&self, space: &Cuda, of: Smooth, to: u64) -> Result<()> {
        if let Some(lanes) = &self.lanes {
            return self.launch_lanes(space, lanes, of, to, true);
        }
        let [product, cut_rows] = match self.smoothing.get() {
            Some(kernels) => kernels,
            None => {
                let kernel = |entry| space.device().function(&self.kernels.shape.kernel_that_smooths(entry));
                let made = [kernel("csr_product")?, kernel("csr_cut_rows")?];
                self.smoothing.get_or_init(|| made)
            }
        };
        self.launch_product(space, product, cut_rows, of.x, to, of)
    }

    fn launch_lanes(&self, space: &Cuda, lanes: &Lanes, of: Smooth, y: u64, smooths: bool) -> Result<()> {
        let device = space.device();
        if self.rows == 0 {
            return Ok(());
        }
        let grid = (self.rows << lanes.shift).div_ceil(256).min(64 * device.multiprocessors());
        let (ptr, col) = (self.pattern.row_ptr.pointer(), self.pattern.col.pointer());
        // SAFETY: the parameter types are the kernel's; lengths were checked.
        unsafe {
            launch!(
                device,
                &lanes.function,
                grid,
                256,
                0,
                space.halt(),
                self.rows as i64,
                lanes.shift as i32,
                ptr,
                col,
                self.values(),
                of.x,
                y,
                self.coefficient.pointer(),
                i32::from(smooths),
                of
            )
        }
    }

    /// `more` is one argument more than kernels take that store into y alone; they do not see it.
    fn launch_product<T: Copy>(
        &self,
        space: &Cuda,
        product: &CudaFunction,
        cut_rows: &CudaFunction,
        x: u64,
        y: u64,
        more: T,
    ) -> Result<()> {
        let (device, t) = (space.device(), &self.tiles);
        if t.count == 0 {
            return Ok(());
        }
        // SAFETY: the parameter types are the kernels'; lengths were checked, tiles belong to these arrays.
        unsafe {
            launch!(
                device,
                product,
                t.count,
                self.kernels.shape.threads,
                0,
                space.halt(),
                t.records.pointer(),
                self.pattern.row_ptr.pointer(),
                self.pattern.col.pointer(),
                self.values(),
                self.entries() as i64,
                x,
                y,
                t.parts.pointer(),
                self.coefficient.pointer(),
                more
            )?;
            if t.cut_rows > 0 {
                launch!(
                    device,
                    cut_rows,
                    t.cut_rows.div_ceil(4),
                    128,
                    0,
                    space.halt(),
                    t.cut_rows as i32,
                    t.cuts.pointer(),
                    t.parts.pointer(),
                    y,
                    more
                )?;
            }
        }
        Ok(())
    }

    /// `r ← b − c A x`, `m ← |b| + |c A| |x|` from addresses whose lengths were checked; of `b` 0 stands for zeros. What r lacks goes to `low`,
    /// where that is not 0.
    pub fn residual(&self, space: &Cuda, on: &ResidualOf, low: u64) -> Result<()> {
        let (device, t) = (space.device(), &self.tiles);
        let ResidualOf { b, x, r, m } = *on;
        if self.lanes.is_some() {
            return Err(Error::Internal("the residual of a level of a hierarchy".into()));
        }
        if t.count == 0 {
            return Ok(());
        }
        // SAFETY: the parameter types are the kernels'; lengths were checked, tiles belong to these arrays.
        unsafe {
            launch!(
                device,
                &self.kernels.residual,
                t.count,
                self.kernels.shape.threads,
                0,
                space.halt(),
                t.records.pointer(),
                self.pattern.row_ptr.pointer(),
                self.pattern.col.pointer(),
                self.values(),
                x,
                b,
                r,
                m,
                t.parts.pointer(),
                self.coefficient.pointer(),
                low
            )?;
            if t.cut_rows > 0 {
                launch!(
                    device,
                    &self.kernels.residual_cut,
                    t.cut_rows.div_ceil(4),
                    128,
                    0,
                    space.halt(),
                    t.cut_rows as i32,
                    t.cuts.pointer(),
                    t.parts.pointer(),
                    b,
                    r,
                    m,
                    low
                )?;
            }
        }
        Ok(())
    }

    /// New values in the order of the entries, from the host or from device memory. An array that others read too is left to
    /// them.
    ///
    /// # Errors
    /// Another number of values; one that is NaN or infinite. Values on the host are checked before anything changes.
    pub fn update_values(&mut self, device: &Arc<Device>, values: Numbers) -> Result<()> {
        let entries = self.entries();
        check_new_values(&values, entries)?;
        if let Values::F64(own) = &mut self.values {
            if Arc::get_mut(own).is_none() {
                *own = Arc::new(device.zeros(entries, "matrix values")?);
                self.version += 1;
            }
            if let (Some(host), Some(own)) = (values.as_host(), Arc::get_mut(own)) {
                device.write(host, own, 0)?;
                return device.wait();
            }
        }
        let mut staging = match self.staging.take() {
            Some(buffer) => buffer,
            None => device.zeros(0, "new values")?,
        };
        let done = device.reading(values, &mut staging, |natural| self.convert(device, natural));
        self.staging = Some(staging);
        done
    }

    fn convert(&mut self, device: &Device, from: u64) -> Result<()> {
        device.clear(&mut self.broken)?;
        convert(device, &self.kernels, from, self.values(), self.entries(), &mut self.broken)?;
        let mut broken = [0];
        device.read(&self.broken, 0, &mut broken)?;
        match broken {
            [0] => Ok(()),
            _ => Err(not_finite()),
        }
    }

    /// Another coefficient; recorded launches read it where it stands.
    pub fn update_coefficient(&mut self, device: &Device, coefficient: f64) -> Result<()> {
        device.write(&[coefficient], &mut self.coefficient, 0)
    }

    /// Bytes that one product must move.
    pub fn bytes(&self) -> u64 {
        let value = match self.values {
            Values::F64(_) => 8,
            Values::F32(_) => 4,
        };
        (self.entries() * (value + 4) + 8 * (2 * self.rows + self.columns)) as u64
    }

    /// Changes with the addresses that recorded launches refer to.
    pub fn version(&self) -> u64 {
        self.version
    }
}

/// Refuses another number of values than entries, and values on the host that are not finite.
pub(super) fn check_new_values(values: &Numbers, entries: usize) -> Result<()> {
    if values.len() != entries {
        return Err(Error::invalid(format!(
            "{} values for {entries} entries; one each was expected",
            values.len()
        )));
    }
    match values.as_host().and_then(|host| Some((host, crate::matrix::first_not_finite(host)?))) {
        None => Ok(()),
        Some((host, e)) => Err(Error::invalid(format!(
            "new values of term 0: number {e} is {}; every value must be finite",
            host[e]
        ))),
    }
}

/// What a device found among new values.
pub(super) fn not_finite() -> Error {
    Error::invalid("new values of term 0: at least one is NaN or infinite; every value must be finite")
}

/// Values to the precision of the product; `broken` becomes 1 where one is not finite.
fn convert(
    device: &Device,
    kernels: &Kernels,
    from: u64,
    to: u64,
    count: usize,
    broken: &mut Buffer<i32>,
) -> Result<()> {
    let grid = count.div_ceil(256).clamp(1, 16 * device.multiprocessors());
    // SAFETY: the parameter types are the kernel's; both arrays have that many numbers.
    unsafe { launch!(device, &kernels.values, grid, 256, 0, from, to, count as i64, broken.pointer()) }
}

impl Tiles {
    /// Nothing.
    fn none(device: &Arc<Device>) -> Result<Self> {
        let what = "no tiles of rows";
        let (records, cuts) = (device.room(0, what)?, device.room(0, what)?);
        Ok(Self { records, count: 0, cuts, cut_rows: 0, parts: device.room(0, what)? })
    }

    fn new(device: &Arc<Device>, pattern: &CsrPattern, shape: &CsrShape) -> Result<Self> {
        let rows = pattern.row_ptr.len() - 1;
        let count = shape.tiles(rows, pattern.col.len());
        if i32::try_from(count).is_err() {
            return Err(Error::Unsupported(format!(
                "a matrix of {} entries on one GPU; share it among several",
                pattern.col.len()
            )));
        }
        let what = "tiles of rows";
        let records = device.zeros(count + 1, what)?;
        // Their number stands behind them.
        let cuts = device.zeros(3 * count + 1, what)?;
        let mut cut_rows = [0i32];
        if count > 0 {
            let function = device.function(&shape.kernel("csr_tiles"))?;
            // SAFETY: the parameter types are the kernel's; a row that is cut has a tile in which it begins.
            unsafe {
                launch!(
                    device,
                    &function,
                    (count + 1).div_ceil(4),
                    128,
                    0,
                    pattern.row_ptr.pointer(),
                    rows as i32,
                    count as i32,
                    records.pointer(),
                    cuts.pointer(),
                    cuts.at(3 * count)
                )?;
            }
            device.read(&cuts, 3 * count, &mut cut_rows)?;
        }
        let cut_rows = cut_rows[0] as usize;
        let parts = device.zeros(if cut_rows > 0 { 6 * count } else { 0 }, "partial sums")?;
        Ok(Self { records, count, cuts, cut_rows, parts })
    }
}

//! Products of scalar rows on a GPU, directly from the arrays of the format: launches of `kernels/csr.cu`.
//!
//! The set-up groups rows into tiles with two kernels that read `row_ptr`; columns and values are not read.

mod narrow;
mod tiles;

pub(super) use narrow::{NarrowCsr, narrow_kernels, short_kernels};

use super::Cuda;
use super::compiler::{Defines, Kernel};
use super::dia::ResidualOf;
use super::driver::{Buffer, Device};
use super::launch::{Address, At, Entry, Function, Of, Reals, Set, kernels};
use super::smooth::Smooth;
use super::specialisations::{STORES, apart, define, result, value, vectors};
use crate::memory::Numbers;
use crate::space::Precision;
use crate::{Error, Result};
use std::cell::OnceCell;
use std::sync::Arc;
use tiles::Tiles;

kernels! {
    CSR in "csr.cu", all_kernels;
    fn csr_product(
        halt: At<i32>, tiles: Address, row_ptr: At<i64>, col: At<u32>, values: Reals, entries: i64,
        x: At<f64>, y: At<f64>, parts: At<f64>, coefficient: At<f64>,
    );
    fn csr_product_to = "csr_product"(
        halt: At<i32>, tiles: Address, row_ptr: At<i64>, col: At<u32>, values: Reals, entries: i64,
        x: At<f64>, y: At<f64>, parts: At<f64>, coefficient: At<f64>, others: Others,
    );
    fn csr_smooth_product = "csr_product"(
        halt: At<i32>, tiles: Address, row_ptr: At<i64>, col: At<u32>, values: Reals, entries: i64,
        x: At<f64>, y: At<f64>, parts: At<f64>, coefficient: At<f64>, of: Smooth,
    );
    fn csr_cut_rows(halt: At<i32>, count: i32, cuts: At<i32>, parts: At<f64>, y: At<f64>);
    fn csr_cut_rows_to = "csr_cut_rows"(
        halt: At<i32>, count: i32, cuts: At<i32>, parts: At<f64>, y: At<f64>, others: Others,
    );
    fn csr_smooth_cut_rows = "csr_cut_rows"(
        halt: At<i32>, count: i32, cuts: At<i32>, parts: At<f64>, y: At<f64>, of: Smooth,
    );
    fn csr_residual(
        halt: At<i32>, tiles: Address, row_ptr: At<i64>, col: At<u32>, values: Reals, x: At<f64>,
        b: At<f64>, r: At<f64>, m: At<f64>, parts: At<f64>, coefficient: At<f64>, low: At<f64>,
    );
    fn csr_residual_cut(
        halt: At<i32>, count: i32, cuts: At<i32>, parts: At<f64>, b: At<f64>, r: At<f64>, m: At<f64>,
        low: At<f64>,
    );
    fn csr_tiles(row_ptr: At<i64>, rows: i32, count: i32, tiles: Address, cuts: At<i32>, cut_rows: At<i32>);
    fn csr_values(from: At<f64>, to: Reals, count: i64, broken: At<i32>);
}

kernels! {
    CSR_LANES in "csr_lanes.cu", |set| {
        let to_f64 = csr_lanes::to_f64().into();
        let short = set.choose([false, true].map(|wide| csr_lanes::in_bf16(wide).into()), []);
        let all = PAIRS.map(|(matrix, vectors)| csr_lanes::of(matrix, vectors).into());
        all.into_iter().chain([to_f64]).chain(short).collect()
    };
    fn csr_lanes(
        halt: At<i32>, rows: i64, shift: i32, row_ptr: At<i64>, col: At<u32>, values: Reals, x: At<f64>,
        y: At<f64>, coefficient: At<f64>, smooths: i32, of: Smooth,
    );
}

/// Mapping of products of scalar rows to threads: constants of `kernels/csr.cu`, tuned on an H200.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CsrShape {
    /// Threads per thread block.
    pub threads: usize,
    /// Largest number of entries of a tile.
    capacity: usize,
    /// Thread blocks per multiprocessor, as far as the registers suffice.
    resident: usize,
    precision: Precision,
    /// Precision of vectors: f32 for products that only smooth.
    vectors: Precision,
    /// True if values are in bf16, and the diagonal apart.
    short: bool,
}

/// The precisions of a matrix and of the vectors that it multiplies.
const PAIRS: [(Precision, Precision); 3] =
    [(Precision::F64, Precision::F64), (Precision::F32, Precision::F64), (Precision::F32, Precision::F32)];

impl CsrShape {
    /// Rows up to this length are not split between tiles.
    const LONG: usize = 64;

    /// Returns the mapping for a precision: of 4 to 16 entries per thread and 64 to 512 threads, the one that
    /// was fastest in the mean of ten kinds of matrices.
    pub fn choose(precision: Precision) -> Self {
        Self { threads: 128, capacity: 1280, resident: 8, precision, vectors: Precision::F64, short: false }
    }

    /// Returns the mapping for a matrix and vectors in f32.
    fn narrow() -> Self {
        Self { vectors: Precision::F32, ..Self::choose(Precision::F32) }
    }

    /// Returns the mapping for a matrix in bf16 and vectors in f32.
    fn short() -> Self {
        Self { short: true, ..Self::narrow() }
    }

    /// Number of tiles of a matrix. Tiles are windows of equal work, where a row counts as much as an eighth
    /// of an entry.
    pub fn tiles(&self, rows: usize, entries: usize) -> usize {
        match rows {
            0 => 0,
            _ => (entries + (rows - 1) / 8 + 1).div_ceil(self.capacity - Self::LONG - 2),
        }
    }

    /// Returns a kernel of `csr.cu`.
    pub(super) fn kernel<K: Entry>(&self, entry: K) -> Of<K> {
        entry.with(self.defines())
    }

    fn defines(&self) -> Defines {
        let stored = if self.short { apart(1).to_vec() } else { vec![value(self.precision)] };
        let mapping = [
            define("THREADS", self.threads),
            define("CTAS", self.resident),
            define("CAPACITY", self.capacity),
            define("LONG", Self::LONG),
        ];
        stored.into_iter().chain(mapping).collect()
    }

    /// Returns the kernel that turns each number of y into a residual or a smoother step.
    fn kernel_that_smooths<K: Entry>(&self, entry: K) -> Of<K> {
        let smooth = [define("SMOOTH", 1)].into_iter().chain(vectors(self.vectors));
        entry.with(self.defines().into_iter().chain(smooth).collect())
    }

    /// The same with results in f64.
    fn kernel_to_f64<K: Entry>(&self, entry: K) -> Of<K> {
        let smooth = [define("SMOOTH", 1)].into_iter().chain(vectors(self.vectors)).chain(result(true));
        entry.with(self.defines().into_iter().chain(smooth).collect())
    }

    /// Returns the kernel that also stores each number of y into the vectors of other GPUs.
    fn kernel_for_others<K: Entry>(&self, entry: K) -> Of<K> {
        entry.with([self.defines(), vec![define("PEERS", 1)]].concat())
    }

    /// Returns the kernels of products and of products that smooth: one kernel per file, which is compiled as
    /// a whole.
    pub(crate) fn both(&self) -> [Kernel; 2] {
        [self.kernel(csr_product).into(), self.kernel_that_smooths(csr_smooth_product).into()]
    }
}

impl csr_lanes {
    /// Returns the kernel for products of small matrices of scalar rows.
    pub(crate) fn of(matrix: Precision, of: Precision) -> Of<Self> {
        Self.with([value(matrix)].into_iter().chain(vectors(of)).collect())
    }

    /// Returns the kernel for a matrix and vectors in f32 with results in f64.
    fn to_f64() -> Of<Self> {
        let narrow = vectors(Precision::F32).into_iter().chain(result(true));
        Self.with([value(Precision::F32)].into_iter().chain(narrow).collect())
    }

    /// Returns the kernel for a matrix in bf16 and vectors in f32, with results in f64 if `wide`.
    fn in_bf16(wide: bool) -> Of<Self> {
        let narrow = vectors(Precision::F32).into_iter().chain(result(wide));
        Self.with(apart(1).into_iter().chain(narrow).collect())
    }
}

fn all_kernels(set: Set) -> Vec<Kernel> {
    let to_others = set.choose(STORES.to_vec(), [Precision::F64]);
    let to_others = to_others
        .into_iter()
        .map(|precision| CsrShape::choose(precision).kernel_for_others(csr_product_to).into());
    let shapes = set.choose([CsrShape::narrow(), CsrShape::short()], [CsrShape::narrow()]);
    let narrow = shapes.into_iter().flat_map(|shape| {
        [shape.kernel_that_smooths(csr_smooth_product), shape.kernel_to_f64(csr_smooth_product)]
    });
    let both = STORES.iter().flat_map(|&precision| CsrShape::choose(precision).both());
    both.chain(to_others).chain(narrow.map(Into::into)).collect()
}

/// Addresses of vectors on other GPUs; the last element is their number.
type Others = [u64; 16];

/// Launches a product, with one more argument where the kernels do more than store y.
macro_rules! launch_product {
    ($of:expr, $space:expr, $product:expr, $cut_rows:expr, $x:expr, $y:expr $(, $more:expr)?) => {{
        let (of, space, t) = ($of, $space, &$of.tiles);
        let (device, pattern, values) = (space.device(), &of.pattern, of.values());
        if t.count > 0 {
            let launch = $product.on(device, t.count, of.kernels.shape.threads);
            let (entries, c) = (of.entries() as i64, &of.coefficient);
            launch.run(
                space.halt(), &t.records, &pattern.row_ptr, &pattern.col, values, entries, $x, $y, &t.parts, c $(, $more)?
            )?;
        }
        if t.cut_rows > 0 {
            let launch = $cut_rows.on(device, t.cut_rows.div_ceil(4), 128);
            launch.run(space.halt(), t.cut_rows as i32, &t.cuts, &t.parts, $y $(, $more)?)?;
        }
        Ok(())
    }};
}

/// One matrix of scalar rows in device memory, and its coefficient.
pub(super) struct CsrProduct {
    rows: usize,
    columns: usize,
    pattern: CsrPattern,
    values: Values,
    coefficient: Buffer<f64>,
    factor: f64,
    tiles: Arc<Tiles>,
    kernels: Kernels,
    /// For a small matrix that needs no residual: lanes share rows, and there are no tiles.
    lanes: Option<Lanes>,
    /// The kernels of [`multiply_to`](Self::multiply_to).
    to_others: Option<(Function<csr_product_to>, Function<csr_cut_rows_to>)>,
    /// The kernels of [`smooth`](Self::smooth), loaded at their first use.
    smoothing: OnceCell<(Function<csr_smooth_product>, Function<csr_smooth_cut_rows>)>,
    /// Values on their way to the device or to another precision, kept after the first update.
    staging: Option<Buffer<f64>>,
    /// Set by `csr_values` if a value is not finite.
    broken: Buffer<i32>,
    /// Increases when values move to another address.
    version: u64,
}

/// Positions of the entries: rows + 1 offsets, and one column per entry.
#[derive(Clone)]
pub(super) struct CsrPattern {
    pub row_ptr: Arc<Buffer<i64>>,
    pub col: Arc<Buffer<u32>>,
}

/// Row pointers, columns and values.
pub(super) type Arrays = (Arc<Buffer<i64>>, Arc<Buffer<u32>>, Arc<Buffer<f64>>);

enum Values {
    F64(Arc<Buffer<f64>>),
    F32(Buffer<f32>),
}

/// The kernel of `kernels/csr_lanes.cu`, and the binary logarithm of the number of lanes per row.
struct Lanes {
    function: Function<csr_lanes>,
    shift: u32,
}

/// Largest number of entries of a matrix whose product is bound by launch latency.
const FEW: usize = 3 << 20;
/// Approximate number of entries of a row per lane.
const EACH: usize = 2;

struct Kernels {
    shape: CsrShape,
    product: Function<csr_product>,
    cut_rows: Function<csr_cut_rows>,
    residual: Function<csr_residual>,
    residual_cut: Function<csr_residual_cut>,
    values: Function<csr_values>,
}

impl CsrProduct {
    /// Makes a product from arrays that are on the device. On a level of a hierarchy it needs no residual.
    /// There a small one needs no tiles.
    ///
    /// # Errors
    /// Out of device memory.
    pub fn new(
        device: &Arc<Device>,
        columns: usize,
        pattern: CsrPattern,
        values: Arc<Buffer<f64>>,
        precision: Precision,
        coefficient: f64,
        on_level: bool,
    ) -> Result<Self> {
        let small = on_level && pattern.col.len() <= FEW;
        let rows = pattern.row_ptr.len() - 1;
        let shape = CsrShape::choose(precision);
        let kernels = Kernels {
            shape,
            product: device.function(&shape.kernel(csr_product))?,
            cut_rows: device.function(&shape.kernel(csr_cut_rows))?,
            residual: device.function(&shape.kernel(csr_residual))?,
            residual_cut: device.function(&shape.kernel(csr_residual_cut))?,
            values: device.function(&shape.kernel(csr_values))?,
        };
        let lanes = match small {
            true => {
                let mean = pattern.col.len() / rows.max(1);
                let shift = (mean / EACH).clamp(1, 32).next_power_of_two().ilog2();
                Some(Lanes { function: device.function(&csr_lanes::of(precision, Precision::F64))?, shift })
            }
            false => None,
        };
        let tiles =
            Arc::new(if small { Tiles::none(device)? } else { Tiles::new(device, &pattern, &shape)? });
        let mut broken = device.zeros(1, "a flag")?;
        let values = match precision {
            Precision::F64 => Values::F64(values),
            Precision::F32 => {
                let narrow = device.zeros(values.len(), "matrix values")?;
                convert(device, &kernels, values.pointer(), narrow.pointer(), narrow.len(), &mut broken)?;
                Values::F32(narrow)
            }
        };
        let (factor, coefficient) = (coefficient, device.upload(&[coefficient], "a coefficient")?);
        Ok(Self {
            rows,
            columns,
            pattern,
            values,
            coefficient,
            factor,
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

    /// Number of stored entries.
    pub fn entries(&self) -> usize {
        self.pattern.col.len()
    }

    /// Returns the pattern.
    pub fn pattern(&self) -> &CsrPattern {
        &self.pattern
    }

    /// Returns row pointers, columns and values, and the coefficient; `None` if the values are not stored in
    /// f64.
    pub fn arrays(&self) -> Option<(Arrays, f64)> {
        let Values::F64(values) = &self.values else { return None };
        Some(((self.pattern.row_ptr.clone(), self.pattern.col.clone(), values.clone()), self.factor))
    }

    /// Returns the values of a dense matrix with this many rows; `None` if they are not in f64.
    pub fn dense_values(&self, rows: usize) -> Option<&Buffer<f64>> {
        let Values::F64(values) = &self.values else { return None };
        (values.len() == rows * rows).then_some(&**values)
    }

    /// Address of the coefficient.
    pub fn coefficient(&self) -> u64 {
        self.coefficient.pointer()
    }

    /// Loads every kernel that would otherwise be loaded at its launch. At a launch the driver may wait for
    /// running kernels before it loads, and those may wait for another rank.
    pub fn load(&self, device: &Device) -> Result<()> {
        let Kernels { shape, product, cut_rows, residual, residual_cut, .. } = &self.kernels;
        let others = self.to_others.iter().flat_map(|(product, cut_rows)| [&**product, cut_rows]);
        let all = [&**product, cut_rows, residual, residual_cut].into_iter().chain(others);
        // Querying the attributes of a function loads it.
        all.map(|function| device.allow_shared(function, shape.threads, 0))
            .try_for_each(|asked| asked.map(drop))
    }

    /// Loads the kernels of [`multiply_to`](Self::multiply_to).
    pub fn prepare_for_others(&mut self, device: &Device) -> Result<()> {
        let shape = &self.kernels.shape;
        let product = device.function(&shape.kernel_for_others(csr_product_to))?;
        self.to_others = Some((product, device.function(&shape.kernel_for_others(csr_cut_rows_to))?));
        Ok(())
    }

    /// Computes `y ← c A x`; the lengths have been checked.
    pub fn multiply(&self, space: &Cuda, x: u64, y: u64) -> Result<()> {
        if let Some(lanes) = &self.lanes {
            return self.launch_lanes(space, lanes, Smooth { x, ..Smooth::default() }, y, false);
        }
        let Kernels { product, cut_rows, .. } = &self.kernels;
        launch_product!(self, space, product, cut_rows, x, y)
    }

    /// Computes `y ← c A x` and stores each number also into the vectors of other GPUs, given by [`Others`].
    pub fn multiply_to(&self, space: &Cuda, x: u64, y: u64, others: Others) -> Result<()> {
        let lacking = || Error::Internal("the product was not prepared to store into other GPUs".into());
        let (product, cut_rows) = self.to_others.as_ref().ok_or_else(lacking)?;
        launch_product!(self, space, product, cut_rows, x, y, others)
    }

    /// Computes a residual or a smoother step in the pass of the product, and writes it to `to`, which must
    /// not be x. The lengths have been checked.
    pub fn smooth(&self, space: &Cuda, of: Smooth, to: u64) -> Result<()> {
        if let Some(lanes) = &self.lanes {
            return self.launch_lanes(space, lanes, of, to, true);
        }
        let (product, cut_rows) = self.smoothing(space.device())?;
        launch_product!(self, space, product, cut_rows, of.x, to, of)
    }

    /// Loads the kernels of [`smooth`](Self::smooth), as [`load`](Self::load) does.
    pub fn prepare_to_smooth(&self, device: &Arc<Device>) -> Result<()> {
        if self.lanes.is_some() {
            return Ok(());
        }
        let (threads, (product, cut_rows)) = (self.kernels.shape.threads, self.smoothing(device)?);
        device.allow_shared(product, threads, 0)?;
        device.allow_shared(cut_rows, threads, 0).map(drop)
    }

    fn smoothing(
        &self,
        device: &Arc<Device>,
    ) -> Result<&(Function<csr_smooth_product>, Function<csr_smooth_cut_rows>)> {
        if let Some(kernels) = self.smoothing.get() {
            return Ok(kernels);
        }
        let shape = &self.kernels.shape;
        let product = device.function(&shape.kernel_that_smooths(csr_smooth_product))?;
        let cut_rows = device.function(&shape.kernel_that_smooths(csr_smooth_cut_rows))?;
        Ok(self.smoothing.get_or_init(|| (product, cut_rows)))
    }

    fn launch_lanes(&self, space: &Cuda, lanes: &Lanes, of: Smooth, y: u64, smooths: bool) -> Result<()> {
        let device = space.device();
        if self.rows == 0 {
            return Ok(());
        }
        let grid = (self.rows << lanes.shift).div_ceil(256).min(64 * device.multiprocessors());
        lanes.function.on(device, grid, 256).run(
            space.halt(),
            self.rows as i64,
            lanes.shift as i32,
            &self.pattern.row_ptr,
            &self.pattern.col,
            self.values(),
            of.x,
            y,
            &self.coefficient,
            i32::from(smooths),
            of,
        )
    }

    /// Computes `r ← b − c A x` and `m ← |b| + |c A| |x|` from addresses whose lengths have been checked. A
    /// null `b` stands for zeros. The rounding error of r goes to `low`, unless that is null.
    pub fn residual(&self, space: &Cuda, on: &ResidualOf, low: u64) -> Result<()> {
        let (device, t) = (space.device(), &self.tiles);
        let ResidualOf { b, x, r, m } = *on;
        if self.lanes.is_some() {
            return Err(Error::Internal("a product of a coarse level cannot compute a residual".into()));
        }
        if t.count == 0 {
            return Ok(());
        }
        self.kernels.residual.on(device, t.count, self.kernels.shape.threads).run(
            space.halt(),
            &t.records,
            &self.pattern.row_ptr,
            &self.pattern.col,
            self.values(),
            x,
            b,
            r,
            m,
            &t.parts,
            &self.coefficient,
            low,
        )?;
        if t.cut_rows > 0 {
            self.kernels.residual_cut.on(device, t.cut_rows.div_ceil(4), 128).run(
                space.halt(),
                t.cut_rows as i32,
                &t.cuts,
                &t.parts,
                b,
                r,
                m,
                low,
            )?;
        }
        Ok(())
    }

    /// Sets new values in the order of the entries, from the host or from device memory. An array shared with
    /// other readers is left unchanged.
    ///
    /// # Errors
    /// A different number of values; a value that is NaN or infinite. Values on the host are checked before
    /// anything changes.
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

    /// Sets another coefficient. Recorded launches read it from the same address.
    pub fn update_coefficient(&mut self, device: &Device, coefficient: f64) -> Result<()> {
        self.factor = coefficient;
        device.write(&[coefficient], &mut self.coefficient, 0)
    }

    /// Least number of bytes that one product moves.
    pub fn bytes(&self) -> u64 {
        let value = match self.values {
            Values::F64(_) => 8,
            Values::F32(_) => 4,
        };
        (self.entries() * (value + 4) + 8 * (2 * self.rows + self.columns)) as u64
    }

    /// Returns a version that changes with the addresses in recorded launches.
    pub fn version(&self) -> u64 {
        self.version
    }
}

/// Refuses a wrong number of values, and values on the host that are not finite.
pub(super) fn check_new_values(values: &Numbers, entries: usize) -> Result<()> {
    if values.len() != entries {
        return Err(Error::invalid(format!(
            "{} values were given for {entries} entries; one value per entry was expected",
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

/// Returns the error for values that the device found not to be finite.
pub(super) fn not_finite() -> Error {
    Error::invalid("new values of term 0: at least one is NaN or infinite; every value must be finite")
}

/// Converts values to the precision of the product; `broken` becomes 1 where one is not finite.
fn convert(
    device: &Device,
    kernels: &Kernels,
    from: u64,
    to: u64,
    count: usize,
    broken: &mut Buffer<i32>,
) -> Result<()> {
    let grid = count.div_ceil(256).clamp(1, 16 * device.multiprocessors());
    kernels.values.on(device, grid, 256).run(from, to, count as i64, &*broken)
}

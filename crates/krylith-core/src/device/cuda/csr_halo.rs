//! Products of scalar rows distributed over several GPUs, directly from the arrays of the format: y = c A_own
//! x + c A_ghost g.
//!
//! The set-up splits the rows of this rank on the GPU (`kernels/csr_split.cu`): A_own has the local columns,
//! A_ghost the columns of ghosts, for the rows that have any. Both are products of `csr.rs`, so rows of any
//! length are balanced. A product starts the exchange, computes A_own x meanwhile, waits for the ghosts and
//! adds A_ghost g (`kernels/csr_ghosts.cu`). A rank without entries in columns of ghosts shares the arrays of
//! its matrix.

use super::Cuda;
use super::compiler::Kernel;
use super::csr::{CsrPattern, CsrProduct, check_new_values, not_finite};
use super::dia::ResidualOf;
use super::driver::{Buffer, Device};
use super::exchange::Exchange;
use super::launch::Function;
use super::launch::{Address, At, Entry, Of, Reals, kernels};
use super::scan::scan_columns;
use super::smooth::Smooth;
use super::specialisations::{STORES, define, value};
use crate::Result;
use crate::matrix::Bsr;
use crate::memory::Numbers;
use crate::space::Precision;
use std::sync::Arc;

kernels! {
    CSR_GHOSTS in "csr_ghosts.cu", |_| STORES.map(|precision| ghosts_kernel(csr_ghosts, precision).into()).into();
    fn csr_send(halt: At<i32>, x: At<f64>, exchange: Address);
    fn csr_ghosts(
        halt: At<i32>, count: i32, rows: At<u32>, starts: At<i64>, columns: At<u32>, values: Reals,
        log: i32, ghosts: At<f64>, y: At<f64>, coefficient: At<f64>, exchange: Address, smooths: i32,
        of: Smooth,
    );
    fn csr_await(halt: At<i32>, count: i32, to: At<f64>, exchange: Address);
    fn csr_add_rows(
        halt: At<i32>, count: i32, rows: At<u32>, sums: At<f64>, y: At<f64>, smooths: i32, of: Smooth,
    );
    fn csr_add_residuals(
        halt: At<i32>, count: i32, rows: At<u32>, more_r: At<f64>, more_low: At<f64>, more_m: At<f64>,
        low: At<f64>, r: At<f64>, m: At<f64>,
    );
}

kernels! {
    CSR_SPLIT in "csr_split.cu", |_| STORES.map(|precision| split_kernel(split_entries, precision).into()).into();
    fn split_mark(entries: i64, own: u32, col: At<u32>, words: Address, sums: At<i64>);
    fn split_rows(
        rows: i32, pass: i32, row_ptr: At<i64>, words: Address, sums: At<i64>, own_ptr: At<i64>,
        blocks: At<i64>, longest: At<i64>, ghost_rows: At<u32>, ghost_ptr: At<i64>,
    );
    fn split_entries(
        entries: i64, own: u32, words: Address, sums: At<i64>, col: At<u32>, values: At<f64>,
        own_col: At<u32>, own_values: Reals, ghost_col: At<u32>, ghost_values: Reals, broken: At<i32>,
    );
}

/// Threads per thread block.
const THREADS: usize = 256;
/// Entries that a thread block of `split_mark` marks; `WINDOW` in `kernels/csr_split.cu`.
const WINDOW: usize = 32 * THREADS;
/// Rows per thread of `split_rows`; `ROWS` in the same file.
const ROWS: usize = 8;
/// Rows with at most this many ghosts are summed by the kernel that waits for the ghosts. With longer rows
/// A_ghost is a product of its own.
const SHORT: i64 = 512;

/// The rows of one rank, with the columns of ghosts stored apart.
pub(super) struct CsrHalo {
    own: CsrProduct,
    ghosts: Option<GhostPart>,
    /// Ghosts after the wait, where products and residuals read them.
    here: Buffer<f64>,
    /// Rounding error of the local columns' part of a residual.
    low: Buffer<f64>,
    kernels: Kernels,
}

/// Columns of ghosts, in the rows that have any.
struct GhostPart {
    product: CsrProduct,
    rows: Buffer<u32>,
    /// Largest number of entries of a row.
    longest: i64,
    /// A_ghost g, or for a residual: the part that the ghosts subtract, its rounding error, and its
    /// magnitude.
    sums: [Buffer<f64>; 3],
    split: Split,
}

/// Marks of the entries that are in columns of ghosts.
struct Split {
    entries: usize,
    precision: Precision,
    words: Buffer<[u32; 2]>,
    /// Number of ghosts before each window.
    sums: Buffer<i64>,
    /// Set if a value is not finite.
    broken: Buffer<i32>,
    place: Function<split_entries>,
    /// Values on their way to the device, kept after the first update.
    staging: Option<Buffer<f64>>,
}

struct Kernels {
    send: Function<csr_send>,
    ghosts: Function<csr_ghosts>,
    wait: Function<csr_await>,
    add_rows: Function<csr_add_rows>,
    add_residuals: Function<csr_add_residuals>,
}

/// Returns a kernel of `csr_split.cu`.
fn split_kernel<K: Entry>(entry: K, precision: Precision) -> Of<K> {
    entry.with(vec![value(precision), define("THREADS", THREADS)])
}

/// Returns a kernel of `csr_ghosts.cu`.
fn ghosts_kernel<K: Entry>(entry: K, precision: Precision) -> Of<K> {
    entry.with(vec![value(precision), define("THREADS", THREADS)])
}

/// Returns the kernels that ranks need besides those of one GPU: one kernel per file, which is compiled as a
/// whole.
pub(crate) fn kernels(precision: Precision) -> [Kernel; 2] {
    [split_kernel(split_entries, precision).into(), ghosts_kernel(csr_ghosts, precision).into()]
}

/// Number of thread blocks for `items` items, one per thread, limited to those that are resident at once.
fn blocks(device: &Device, items: usize) -> usize {
    items.div_ceil(THREADS).clamp(1, 8 * device.multiprocessors())
}

impl CsrHalo {
    /// Splits the rows of a rank, whose columns from `own` on are ghosts.
    ///
    /// # Errors
    /// Out of device memory.
    pub fn new(space: &Cuda, a: &Bsr, own: usize, precision: Precision, coefficient: f64) -> Result<Self> {
        let (device, rows, ghosts) = (space.device(), a.block_rows(), a.block_columns() - own);
        let resident = space.resident(a)?;
        let whole = CsrPattern { row_ptr: resident.row_ptr.clone(), col: resident.col.clone() };
        let found = match ghosts {
            0 => None,
            _ => Split::new(device, &whole, own, precision)?,
        };
        let (own, ghosts_part) = match found {
            None => (
                CsrProduct::new(device, own, whole, resident.values.clone(), precision, coefficient, false)?,
                None,
            ),
            Some((split, beyond)) => {
                let values = resident.values.pointer();
                let (own, part) =
                    GhostPart::cut(device, &whole, values, [own, ghosts], split, beyond, coefficient)?;
                (own, Some(part))
            }
        };
        Ok(Self {
            own,
            here: device.zeros(ghosts, "ghosts")?,
            low: device.zeros(if ghosts_part.is_some() { rows } else { 0 }, "a residual")?,
            ghosts: ghosts_part,
            kernels: Kernels {
                send: device.function(&ghosts_kernel(csr_send, precision))?,
                ghosts: device.function(&ghosts_kernel(csr_ghosts, precision))?,
                wait: device.function(&ghosts_kernel(csr_await, precision))?,
                add_rows: device.function(&ghosts_kernel(csr_add_rows, precision))?,
                add_residuals: device.function(&ghosts_kernel(csr_add_residuals, precision))?,
            },
        })
    }

    /// Computes `y ← c A x` from addresses whose lengths have been checked.
    pub fn multiply(&self, space: &Cuda, x: u64, y: u64, exchange: &Exchange) -> Result<()> {
        self.send(space, x, exchange)?;
        self.own.multiply(space, x, y)?;
        self.add_ghosts(space, y, exchange, None)
    }

    /// Computes a residual or a smoother step in the pass of the product, as [`CsrProduct::smooth`].
    pub fn smooth(&self, space: &Cuda, of: Smooth, to: u64, exchange: &Exchange) -> Result<()> {
        self.send(space, of.x, exchange)?;
        self.own.smooth(space, of, to)?;
        self.add_ghosts(space, to, exchange, Some(of))
    }

    /// Loads the kernels of [`smooth`](Self::smooth).
    pub fn prepare_to_smooth(&self, device: &Arc<Device>) -> Result<()> {
        self.own.prepare_to_smooth(device)
    }

    /// Waits for the ghosts and adds their products.
    fn add_ghosts(&self, space: &Cuda, y: u64, exchange: &Exchange, of: Option<Smooth>) -> Result<()> {
        let device = space.device();
        let (smooths, of) = (i32::from(of.is_some()), of.unwrap_or_default());
        let Some(part) = &self.ghosts else { return self.wait(space, exchange).map(drop) };
        if part.longest > SHORT {
            let ghosts = self.wait(space, exchange)?;
            part.product.multiply(space, ghosts, part.sums[0].pointer())?;
            let count = part.rows.len();
            return self.kernels.add_rows.on(device, count.div_ceil(THREADS), THREADS).run(
                space.halt(),
                count as i32,
                &part.rows,
                &part.sums[0],
                y,
                smooths,
                of,
            );
        }
        exchange.finish(device)?;
        let lanes = part.product.entries().div_ceil(part.rows.len()).clamp(1, 32).next_power_of_two();
        let pattern = part.product.pattern();
        self.kernels.ghosts.on(device, blocks(device, part.rows.len() * lanes), THREADS).run(
            space.halt(),
            part.rows.len() as i32,
            &part.rows,
            &pattern.row_ptr,
            &pattern.col,
            part.product.values(),
            lanes.ilog2() as i32,
            exchange.ghosts(),
            y,
            part.product.coefficient(),
            exchange.inside().unwrap_or(0),
            smooths,
            of,
        )
    }

    /// Starts the exchange of x.
    fn send(&self, space: &Cuda, x: u64, exchange: &Exchange) -> Result<()> {
        let Some(inside) = exchange.inside() else { return exchange.start(space, x) };
        let device = space.device();
        let grid = exchange.halo().send.len().div_ceil(THREADS).clamp(1, 2 * device.multiprocessors());
        self.kernels.send.on(device, grid, THREADS).run(space.halt(), x, inside)
    }

    /// Waits for the ghosts and returns their address.
    fn wait(&self, space: &Cuda, exchange: &Exchange) -> Result<u64> {
        let device = space.device();
        let Some(inside) = exchange.inside() else {
            exchange.finish(device)?;
            return Ok(exchange.ghosts());
        };
        let (count, grid) = (self.here.len(), blocks(device, self.here.len().div_ceil(4)));
        self.kernels.wait.on(device, grid, THREADS).run(space.halt(), count as i32, &self.here, inside)?;
        Ok(self.here.pointer())
    }

    /// Computes `r ← b − c A x` and `m ← |b| + |c A| |x|` from addresses whose lengths have been checked.
    pub fn residual(&self, space: &Cuda, on: &ResidualOf, exchange: &Exchange) -> Result<()> {
        let device = space.device();
        self.send(space, on.x, exchange)?;
        self.own.residual(space, on, self.ghosts.as_ref().map_or(0, |_| self.low.pointer()))?;
        let ghosts = self.wait(space, exchange)?;
        let Some(part) = &self.ghosts else { return Ok(()) };
        let [r, low, m] = [0, 1, 2].map(|k| part.sums[k].pointer());
        part.product.residual(space, &ResidualOf { b: 0, x: ghosts, r, m }, low)?;
        let count = part.rows.len();
        self.kernels.add_residuals.on(device, count.div_ceil(THREADS), THREADS).run(
            space.halt(),
            count as i32,
            &part.rows,
            r,
            low,
            m,
            &self.low,
            on.r,
            on.m,
        )
    }

    /// Sets new values in the order of the entries, from the host or from device memory.
    ///
    /// # Errors
    /// A different number of values; a value that is NaN or infinite. Values on the host are checked before
    /// anything changes.
    pub fn update_values(&mut self, device: &Arc<Device>, values: Numbers) -> Result<()> {
        let Some(part) = &mut self.ghosts else { return self.own.update_values(device, values) };
        let (own, ghosts) = (self.own.values(), part.product.values());
        part.split.update(device, values, own, ghosts)
    }

    /// Sets another coefficient. Recorded launches read it from the same address.
    pub fn update_coefficient(&mut self, device: &Device, coefficient: f64) -> Result<()> {
        if let Some(part) = &mut self.ghosts {
            part.product.update_coefficient(device, coefficient)?;
        }
        self.own.update_coefficient(device, coefficient)
    }

    /// Least number of bytes that one product moves, without messages.
    pub fn bytes(&self) -> u64 {
        let beyond = |part: &GhostPart| part.product.bytes() + 12 * part.rows.len() as u64;
        self.own.bytes() + self.ghosts.as_ref().map_or(0, beyond)
    }

    /// Returns a version that changes with the addresses in recorded launches.
    pub fn version(&self) -> u64 {
        self.own.version()
    }
}

impl Split {
    /// Finds and counts the entries in columns from `own` on; returns `None` if there are none.
    fn new(
        device: &Arc<Device>,
        whole: &CsrPattern,
        own: usize,
        precision: Precision,
    ) -> Result<Option<(Self, usize)>> {
        let (entries, what) = (whole.col.len(), "ghosts of rows");
        // The position behind the last entry is looked up, too.
        let windows = entries / WINDOW + 1;
        let words = device.allocate::<[u32; 2]>(windows * THREADS, what)?;
        let sums = device.zeros::<i64>(windows + 1, what)?;
        let (mark, scan) =
            (device.function(&split_kernel(split_mark, precision))?, device.function(&scan_columns::of(1))?);
        mark.on(device, windows, THREADS).run(entries as i64, own as u32, &whole.col, &words, &sums)?;
        scan.on(device, 1, 1024).run(windows as i64, &sums)?;
        let mut total = [0i64];
        device.read(&sums, windows, &mut total)?;
        if total == [0] {
            return Ok(None);
        }
        let split = Self {
            entries,
            precision,
            words,
            sums,
            broken: device.zeros(1, "a flag")?,
            place: device.function(&split_kernel(split_entries, precision))?,
            staging: None,
        };
        Ok(Some((split, total[0] as usize)))
    }

    /// Copies values to their places with the kernel `place`. It copies columns as well, where `columns` has
    /// the addresses of those of the whole matrix, of A_own and of A_ghost.
    fn place(
        &self,
        device: &Device,
        place: &Function<split_entries>,
        own: usize,
        columns: [u64; 3],
        values: [u64; 3],
    ) -> Result<()> {
        let grid = self.entries.div_ceil(THREADS).clamp(1, 32 * device.multiprocessors());
        place.on(device, grid, THREADS).run(
            self.entries as i64,
            own as u32,
            &self.words,
            &self.sums,
            columns[0],
            values[0],
            columns[1],
            values[1],
            columns[2],
            values[2],
            &self.broken,
        )
    }

    /// Copies new values from the order of the whole matrix to those of A_own and A_ghost.
    fn update(&mut self, device: &Arc<Device>, values: Numbers, own: u64, ghosts: u64) -> Result<()> {
        let entries = self.entries;
        check_new_values(&values, entries)?;
        let mut staging = match self.staging.take() {
            Some(buffer) => buffer,
            None => device.zeros(0, "new values")?,
        };
        device.clear(&mut self.broken)?;
        let done = device.reading(values, &mut staging, |natural| {
            self.place(device, &self.place, 0, [0; 3], [natural, own, ghosts])
        });
        self.staging = Some(staging);
        done?;
        let mut broken = [0];
        device.read(&self.broken, 0, &mut broken)?;
        match broken {
            [0] => Ok(()),
            _ => Err(not_finite()),
        }
    }
}

impl GhostPart {
    /// Returns both parts of a matrix that has `beyond` entries in columns of ghosts. `columns` are the
    /// numbers of local columns and of ghosts.
    fn cut(
        device: &Arc<Device>,
        whole: &CsrPattern,
        values: u64,
        [own, ghosts]: [usize; 2],
        split: Split,
        beyond: usize,
        coefficient: f64,
    ) -> Result<(CsrProduct, Self)> {
        let (rows, precision, what) = (whole.row_ptr.len() - 1, split.precision, "rows with ghosts");
        let count_of = rows.div_ceil(ROWS * THREADS);
        let own_ptr = device.allocate::<i64>(rows + 1, what)?;
        // Rows of each thread block, their sum, and the most entries of a row.
        let counts = device.zeros::<i64>(count_of + 2, what)?;
        let (function, scan) =
            (device.function(&split_kernel(split_rows, precision))?, device.function(&scan_columns::of(1))?);
        let pass = |number: i32, ghost_rows: u64, ghost_ptr: u64| {
            function.on(device, count_of, THREADS).run(
                rows as i32,
                number,
                &whole.row_ptr,
                &split.words,
                &split.sums,
                &own_ptr,
                &counts,
                counts.at(count_of + 1),
                ghost_rows,
                ghost_ptr,
            )
        };
        pass(0, 0, 0)?;
        scan.on(device, 1, 1024).run(count_of as i64, &counts)?;
        let mut found = [0i64; 2];
        device.read(&counts, count_of, &mut found)?;
        let (count, longest) = (found[0] as usize, found[1]);
        let (ghost_rows, ghost_ptr) =
            (device.allocate::<u32>(count, what)?, device.allocate::<i64>(count + 1, what)?);
        pass(1, ghost_rows.pointer(), ghost_ptr.pointer())?;
        let entries = split.entries - beyond;
        let (own_col, ghost_col) =
            (device.allocate::<u32>(entries, what)?, device.allocate::<u32>(beyond, what)?);
        let own_values = device.allocate::<f64>(entries, "matrix values")?;
        let ghost_values = device.allocate::<f64>(beyond, "matrix values")?;
        // In f64, as given: a product converts them itself.
        let place = device.function(&split_kernel(split_entries, Precision::F64))?;
        let columns = [whole.col.pointer(), own_col.pointer(), ghost_col.pointer()];
        split.place(device, &place, own, columns, [values, own_values.pointer(), ghost_values.pointer()])?;
        let product = |columns: usize, row_ptr: Buffer<i64>, col: Buffer<u32>, values: Buffer<f64>| {
            let pattern = CsrPattern { row_ptr: Arc::new(row_ptr), col: Arc::new(col) };
            CsrProduct::new(device, columns, pattern, Arc::new(values), precision, coefficient, false)
        };
        let own = product(own, own_ptr, own_col, own_values)?;
        let product = product(ghosts, ghost_ptr, ghost_col, ghost_values)?;
        let sum = || device.zeros::<f64>(count, "sums of ghosts");
        let sums = [sum()?, sum()?, sum()?];
        Ok((own, Self { product, rows: ghost_rows, longest, sums, split }))
    }
}

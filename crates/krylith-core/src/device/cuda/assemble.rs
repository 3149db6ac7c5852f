//! Matrices that a set-up makes from others, on a GPU (`kernels/assemble.cu`); products are computed by the
//! kernels of Galerkin products. Results stay in the memory of the GPU.

use super::Cuda;
use super::compiler::Kernel;
use super::driver::{Buffer, Device};
use super::launch::{At, Entry, Of, Set, kernels};
use super::multilevel::{Matrix, product, products, sorted};
use super::resident::Resident;
use super::scan::{last, scan};
use super::specialisations::define;
use crate::matrix::storage::Storage;
use crate::matrix::{Bsr, Csr};
use crate::memory::Numbers;
use crate::precond::assemble::{Assemble, Cells, Grouped, Numbered, Weight, host};
use crate::precond::{Decouple, TINY_PIVOT};
use crate::{Error, Result};
use std::any::Any;
use std::sync::{Arc, OnceLock};

kernels! {
    ASSEMBLE in "assemble.cu", |_| LANES.map(|lanes| with_lanes(cut_rows, lanes).into()).into();
    fn number_places(count: i64, numbers: At<u32>, places: At<u32>);
    fn ghost_places(count: i64, pairs: At<u32>, places: At<u32>);
    fn cut_rows(
        rows: i64, block: i64, numbers: At<u32>, places: At<u32>, a: Matrix, counts: At<u32>, to: At<i64>,
        to_col: At<u32>, to_val: At<f64>,
    );
    fn group_columns(rows: i64, block: i32, a: Matrix, counts: At<u32>, to: At<i64>, to_col: At<u32>);
    fn group_values(rows: i64, block: i32, a: Matrix, to: At<i64>, to_col: At<u32>, to_val: At<f64>);
    fn weight_columns(
        rows: i64, inner: i64, c: Matrix, w: At<f64>, sign: f64, to_ptr: At<i64>, to_col: At<u32>,
        to_val: At<f64>,
    );
    fn append_rows(
        rows: i64, entries: i64, begin: i64, a: Matrix, to_ptr: At<i64>, to_col: At<u32>, to_val: At<f64>,
    );
    fn diagonal_entries(rows: i64, sums: i32, a: Matrix, to: At<f64>);
    fn schur_entries(rows: i64, inner: i64, d: Matrix, c: Matrix, w: At<f64>, b: Matrix, to: At<f64>);
    fn rows_alone(rows: i64, a: Matrix, beside: Matrix, to: At<u8>);
    fn largest_entries(rows: i64, a: Matrix, to: At<f64>);
    fn identity_rows(rows: i64, ptr: At<i64>, col: At<u32>, largest: At<f64>, least: f64, val: At<f64>);
    fn cell_weights(
        cells: i64, m: i32, block: i32, impes: i32, others: f64, tiny: f64, unknowns: At<u32>,
        order: At<u8>, a: Matrix, to: At<f64>, wrong: At<i32>,
    );
}

/// Lanes that share a row of a cut: of short rows, and of others.
const LANES: [usize; 2] = [8, 32];
/// Mean length of short rows.
const SHORT: usize = 24;
/// Largest block that a thread merges.
const MOST_BLOCK: usize = 8;
/// Largest number of unknowns of a cell whose weights a thread computes.
const MOST_IN_CELL: usize = 8;
const WHAT: &str = "a block of a matrix";

fn with_lanes<K: Entry>(entry: K, lanes: usize) -> Of<K> {
    entry.with(vec![define("LANES", lanes)])
}

/// Returns a kernel that does not depend on the lanes of a cut.
fn common<K: Entry>(entry: K) -> Of<K> {
    with_lanes(entry, LANES[0])
}

/// Returns the kernels that the set-up of a preconditioner for fields will use.
pub(crate) fn likely() -> Vec<Kernel> {
    let mut kernels = (ASSEMBLE.specialisations)(Set::Common);
    kernels.extend(products());
    kernels
}

/// Launches a kernel with `per` threads for each of `n` items, and `n` as its first argument.
macro_rules! on_each {
    ($device:expr, $kernel:expr, $n:expr, $per:expr, $($argument:expr),* $(,)?) => {{
        let (device, n): (&Arc<Device>, usize) = ($device, $n);
        if n > 0 {
            let function = device.function(&$kernel)?;
            let grid = (n * $per).div_ceil(THREADS).clamp(1, 32 * device.multiprocessors());
            function.on(device, grid, THREADS).run(n as i64, $($argument), *)?
        }
    }};
}

/// Threads per thread block.
const THREADS: usize = 128;

/// Returns the number of blocks of a matrix of scalar rows; `None` for blocks that are too large.
///
/// # Errors
/// Out of device memory.
pub(super) fn count_blocks(device: &Arc<Device>, scalar: &Resident, block: usize) -> Result<Option<usize>> {
    if block > MOST_BLOCK {
        return Ok(None);
    }
    Ok(Some(last(device, &block_pointers(device, scalar, block)?)? as usize))
}

/// Returns the row pointers of the blocks.
fn block_pointers(device: &Arc<Device>, scalar: &Resident, block: usize) -> Result<Buffer<i64>> {
    let (matrix, rows) = (Matrix::from(scalar), (scalar.row_ptr.len() - 1) / block);
    let counts = device.zeros::<u32>(rows, WHAT)?;
    on_each!(device, common(group_columns), rows, 1, block as i32, matrix, &counts, 0u64, 0u64);
    scan(device, &counts)
}

/// Returns a matrix of scalar rows in square blocks of an order that divides rows and columns; `None` for
/// blocks that are too large. Three passes: the number of blocks in each block row, their columns, and
/// their values.
///
/// # Errors
/// Out of device memory.
pub(super) fn in_blocks(device: &Arc<Device>, scalar: &Resident, block: usize) -> Result<Option<Resident>> {
    if block > MOST_BLOCK {
        return Ok(None);
    }
    let (matrix, rows) = (Matrix::from(scalar), (scalar.row_ptr.len() - 1) / block);
    let row_ptr = block_pointers(device, scalar, block)?;
    let blocks = last(device, &row_ptr)? as usize;
    let col = device.allocate::<u32>(blocks, WHAT)?;
    let values = device.allocate::<f64>(blocks * block * block, WHAT)?;
    on_each!(device, common(group_columns), rows, 1, block as i32, matrix, 0u64, &row_ptr, &col);
    on_each!(device, common(group_values), rows, 32, block as i32, matrix, &row_ptr, &col, &values);
    Ok(Some(Resident::new(row_ptr, col, values)))
}

/// A set of unknowns in the memory of a GPU.
#[doc(hidden)]
pub struct Unknowns {
    numbers: Buffer<u32>,
    /// Place of each unknown of the system, from 1 on; 0 for those that are not in the set.
    places: Buffer<u32>,
}

impl Unknowns {
    /// Returns the copy of a set on this GPU, which is uploaded once.
    fn of(device: &Arc<Device>, set: &Numbered) -> Result<Arc<Self>> {
        held(&set.copy, || {
            let numbers = device.upload(&set.numbers, WHAT)?;
            let places = device.zeros::<u32>(set.all, WHAT)?;
            on_each!(device, common(number_places), numbers.len(), 1, &numbers, &places);
            if !set.ghosts.is_empty() {
                let pairs: Vec<u32> =
                    set.ghosts.iter().flat_map(|&(column, place)| [column, place]).collect();
                let pairs = device.upload(&pairs, WHAT)?;
                on_each!(device, common(ghost_places), set.ghosts.len(), 1, &pairs, &places);
            }
            Ok(Self { numbers, places })
        })
    }
}

/// What new values of a cut need on a GPU.
#[doc(hidden)]
pub struct CudaCut {
    rows: Arc<Unknowns>,
    columns: Arc<Unknowns>,
    /// True if columns of a row are in the order of the whole matrix.
    ascends: bool,
}

/// Cells in the memory of a GPU.
struct CellArrays {
    unknowns: Buffer<u32>,
    order: Buffer<u8>,
}

/// Returns what a cell keeps, made at the first call.
fn held<T: Any + Send + Sync>(
    cell: &OnceLock<Arc<dyn Any + Send + Sync>>,
    make: impl FnOnce() -> Result<T>,
) -> Result<Arc<T>> {
    let lost = || Error::Internal("arrays of another kind of device".into());
    let kept = match cell.get() {
        Some(kept) => kept.clone(),
        None => {
            let made: Arc<dyn Any + Send + Sync> = Arc::new(make()?);
            cell.get_or_init(|| made).clone()
        }
    };
    kept.downcast().map_err(|_| lost())
}

/// Wraps arrays on the device as a matrix.
fn csr(rows: usize, columns: usize, arrays: Resident) -> Csr {
    let entries = arrays.col.len();
    Csr::from_storage(Storage::device(rows, columns, entries, Arc::new(arrays)))
}

/// Replaces the values of a matrix by others on the device.
fn set_values(to: &mut Csr, arrays: Resident) {
    *to = Csr::from_storage(to.storage().with_device_values(Arc::new(arrays)));
}

impl Cuda {
    /// Returns a scalar matrix in the memory of this GPU: in place, or uploaded.
    pub(super) fn scalar(&self, a: &Csr) -> Result<Arc<Resident>> {
        self.resident(&Bsr::from_csr(a, 1)?)
    }

    /// Returns a scalar matrix that is already in the memory of this GPU.
    pub(super) fn at_hand_scalar(&self, a: &Csr) -> Result<Option<Arc<Resident>>> {
        Ok(self.at_hand(&Bsr::from_csr(a, 1)?))
    }

    /// Writes the entries of a cut to arrays, or counts them.
    fn cut_to(
        &self,
        a: &Bsr,
        cut: &CudaCut,
        counts: Option<&Buffer<u32>>,
        to: Option<&Resident>,
        values_only: bool,
    ) -> Result<()> {
        let (device, whole, rows) = (self.device(), self.resident(a)?, cut.rows.numbers.len());
        let lanes = LANES[usize::from(a.stored() > SHORT * a.rows())];
        let (ptr, col, val) = match to {
            Some(to) => {
                (to.row_ptr.pointer(), if values_only { 0 } else { to.col.pointer() }, to.values.pointer())
            }
            None => (0, 0, 0),
        };
        let (numbers, places, matrix) = (&cut.rows.numbers, &cut.columns.places, Matrix::from(&*whole));
        let kernel = with_lanes(cut_rows, lanes);
        on_each!(
            device,
            kernel,
            rows,
            lanes,
            a.block() as i64,
            numbers,
            places,
            matrix,
            counts,
            ptr,
            col,
            val
        );
        Ok(())
    }

    /// Returns the left and right factors of D + s C W B as one product.
    fn factors(&self, d: Option<&Csr>, c: &Csr, w: Weight, b: &Csr) -> Result<[Arc<Resident>; 2]> {
        let (device, left, right) = (self.device(), self.scalar(c)?, self.scalar(b)?);
        if d.is_none() && w.diagonal.is_none() && w.sign == 1.0 {
            return Ok([left, right]);
        }
        let what = "a factor of a product";
        let weights = w.diagonal.map(|w| device.upload(w, what)).transpose()?;
        let (rows, inner, entries) = (c.rows(), b.rows(), left.col.len());
        let matrix = Matrix::from(&*left);
        let Some(d) = d else {
            let values = device.allocate::<f64>(entries, what)?;
            on_each!(
                device,
                common(weight_columns),
                rows,
                8,
                inner as i64,
                matrix,
                weights.as_ref(),
                w.sign,
                0u64,
                0u64,
                &values
            );
            return Ok([Arc::new(left.with_values(values)), right]);
        };
        let weighted = Resident::allocate(device, rows, entries + rows, 1)?;
        on_each!(
            device,
            common(weight_columns),
            rows,
            8,
            inner as i64,
            matrix,
            weights.as_ref(),
            w.sign,
            &weighted.row_ptr,
            &weighted.col,
            &weighted.values,
        );
        let below = self.scalar(d)?;
        let (upper, lower) = (right.col.len(), below.col.len());
        let both = Resident::allocate(device, inner + d.rows(), upper + lower, 1)?;
        for (a, rows, at, begin) in [(&right, inner, 0, 0), (&below, d.rows(), inner, upper)] {
            let function = device.function(&common(append_rows))?;
            let count = a.col.len();
            let grid = (rows + 1).max(count).div_ceil(THREADS).clamp(1, 32 * device.multiprocessors());
            let (n, entries, begin) = (rows as i64, count as i64, begin as i64);
            let launch = function.on(device, grid, THREADS);
            launch.run(
                n,
                entries,
                begin,
                Matrix::from(&**a),
                both.row_ptr.at(at),
                &both.col,
                &both.values,
            )?;
        }
        Ok([Arc::new(weighted), Arc::new(both)])
    }

    fn numbers_of(&self, numbers: &Buffer<f64>) -> Result<Vec<f64>> {
        let mut host = vec![0.0; numbers.len()];
        self.device().read(numbers, 0, &mut host)?;
        Ok(host)
    }
}

impl Assemble for Cuda {
    type Cut = CudaCut;

    fn cut(&self, a: &Bsr, rows: &Numbered, columns: &Numbered) -> Result<(Csr, CudaCut)> {
        let device = self.device();
        let cut = CudaCut {
            rows: Unknowns::of(device, rows)?,
            columns: Unknowns::of(device, columns)?,
            ascends: columns.ascends,
        };
        let counts = device.zeros::<u32>(rows.numbers.len(), WHAT)?;
        self.cut_to(a, &cut, Some(&counts), None, false)?;
        let row_ptr = scan(device, &counts)?;
        let entries = last(device, &row_ptr)? as usize;
        let (col, values) = (device.allocate::<u32>(entries, WHAT)?, device.allocate::<f64>(entries, WHAT)?);
        let mut made = Resident::new(row_ptr, col, values);
        self.cut_to(a, &cut, None, Some(&made), false)?;
        if !cut.ascends {
            made = sorted(device, &made)?;
        }
        Ok((csr(rows.numbers.len(), columns.width, made), cut))
    }

    fn cut_again(&self, a: &Bsr, cut: &CudaCut, to: &mut Csr) -> Result<()> {
        let (device, known) = (self.device(), self.scalar(to)?);
        let values = device.allocate::<f64>(known.col.len(), WHAT)?;
        let new = match cut.ascends {
            true => known.with_values(values),
            false => known.with_pattern(device.allocate::<u32>(known.col.len(), WHAT)?, values),
        };
        self.cut_to(a, cut, None, Some(&new), cut.ascends)?;
        let new = if cut.ascends { new } else { sorted(device, &new)? };
        set_values(to, new);
        Ok(())
    }

    fn with_values(&self, a: &Bsr, values: Numbers) -> Result<Bsr> {
        let known = self.at_hand(a).filter(|_| values.gpu().is_none());
        let Some(known) = known else {
            let mut new = a.clone();
            new.update_values(values)?;
            return Ok(new);
        };
        let mut scratch = Vec::new();
        let values = self.device().upload(values.on_host(&mut scratch)?, WHAT)?;
        let arrays = Arc::new(known.with_values(values));
        Ok(a.with_storage(a.storage().with_device_values(arrays)))
    }

    fn grouped(&self, a: &Csr, block: usize) -> Result<Grouped> {
        Bsr::check_divides(a.rows(), a.columns(), block)?;
        if block == 1 {
            return Ok(Grouped::of(Bsr::from_csr(a, 1)?));
        }
        let Some(arrays) = in_blocks(self.device(), &*self.scalar(a)?, block)? else {
            return host::grouped(a, block);
        };
        let (rows, columns, blocks) = (a.rows() / block, a.columns() / block, arrays.col.len());
        let storage = Storage::device(rows, columns, blocks, Arc::new(arrays));
        Ok(Grouped::of(Bsr::from_storage(block, storage)))
    }

    fn group_again(&self, a: &Csr, to: &mut Grouped) -> Result<()> {
        let block = to.bsr.block();
        if block > MOST_BLOCK {
            return host::group_again(a, to);
        }
        let (device, scalar, known) = (self.device(), self.scalar(a)?, self.resident(&to.bsr)?);
        let arrays = match block {
            1 => known.with_values_of(&scalar),
            _ => {
                let values = device.allocate::<f64>(known.values.len(), WHAT)?;
                let (rows, matrix) = (to.bsr.block_rows(), Matrix::from(&*scalar));
                on_each!(
                    device,
                    common(group_values),
                    rows,
                    32,
                    block as i32,
                    matrix,
                    &known.row_ptr,
                    &known.col,
                    &values
                );
                known.with_values(values)
            }
        };
        to.bsr = to.bsr.with_storage(to.bsr.storage().with_device_values(Arc::new(arrays)));
        Ok(())
    }

    fn product(&self, d: Option<&Csr>, c: &Csr, w: Weight, b: &Csr) -> Result<Csr> {
        let [left, right] = self.factors(d, c, w, b)?;
        let (rows, columns) = (c.rows(), b.columns());
        let made = product(self.device(), [&left, &right], columns, rows <= columns, None)?;
        Ok(csr(rows, columns, made))
    }

    fn product_again(&self, d: Option<&Csr>, c: &Csr, w: Weight, b: &Csr, to: &mut Csr) -> Result<()> {
        let [left, right] = self.factors(d, c, w, b)?;
        let (rows, columns, known) = (c.rows(), b.columns(), self.scalar(to)?);
        let new = product(self.device(), [&left, &right], columns, rows <= columns, Some(&known))?;
        set_values(to, new);
        Ok(())
    }

    fn diagonal(&self, a: &Csr, rows: bool) -> Result<Vec<f64>> {
        let (device, matrix) = (self.device(), self.scalar(a)?);
        let to = device.allocate::<f64>(a.rows(), WHAT)?;
        on_each!(device, common(diagonal_entries), a.rows(), 1, i32::from(rows), Matrix::from(&*matrix), &to);
        self.numbers_of(&to)
    }

    fn schur_diagonal(&self, d: &Csr, c: &Csr, w: &[f64], b: &Csr) -> Result<Vec<f64>> {
        let (device, own, left, right) = (self.device(), self.scalar(d)?, self.scalar(c)?, self.scalar(b)?);
        let (weights, to) = (device.upload(w, WHAT)?, device.allocate::<f64>(d.rows(), WHAT)?);
        let [d_of, c_of, b_of] = [&own, &left, &right].map(|a| Matrix::from(&**a));
        on_each!(device, common(schur_entries), d.rows(), 1, w.len() as i64, d_of, c_of, &weights, b_of, &to);
        self.numbers_of(&to)
    }

    fn alone(&self, a: &Csr, beside: Option<&Csr>) -> Result<Vec<bool>> {
        let (device, own) = (self.device(), self.scalar(a)?);
        let other = beside.map(|a| self.scalar(a)).transpose()?;
        let other = other.as_ref().map_or(Matrix::ABSENT, |a| Matrix::from(&**a));
        let to = device.allocate::<u8>(a.rows(), WHAT)?;
        on_each!(device, common(rows_alone), a.rows(), 1, Matrix::from(&*own), other, &to);
        let mut flags = vec![0u8; a.rows()];
        device.read(&to, 0, &mut flags)?;
        Ok(flags.into_iter().map(|flag| flag != 0).collect())
    }

    fn fill_empty(&self, a: &mut Csr) -> Result<()> {
        let (device, own) = (self.device(), self.scalar(a)?);
        let largest = device.allocate::<f64>(a.rows(), WHAT)?;
        on_each!(device, common(largest_entries), a.rows(), 1, Matrix::from(&*own), &largest);
        let found = self.numbers_of(&largest)?;
        let least = host::CANCELLED * found.iter().copied().fold(0.0, f64::max);
        if found.iter().all(|largest| *largest > least) {
            return Ok(());
        }
        let mut values = device.allocate::<f64>(own.values.len(), WHAT)?;
        device.copy(&own.values, &mut values, own.values.len())?;
        on_each!(
            device,
            common(identity_rows),
            a.rows(),
            1,
            &own.row_ptr,
            &own.col,
            &largest,
            least,
            &values
        );
        set_values(a, own.with_values(values));
        Ok(())
    }

    fn weigh(&self, a: &Bsr, cells: &mut Cells, to: &mut Csr) -> Result<()> {
        let m = cells.unknowns.len();
        if m > MOST_IN_CELL {
            return cells.weigh(a, to);
        }
        let (device, matrix, known) = (self.device(), self.resident(a)?, self.scalar(to)?);
        let arrays = held(&cells.copy, || {
            let unknowns = device.upload(&cells.unknowns.concat(), WHAT)?;
            Ok(CellArrays { unknowns, order: device.upload(&cells.order, WHAT)? })
        })?;
        let (values, wrong) = (device.allocate::<f64>(known.col.len(), WHAT)?, device.zeros::<i32>(1, WHAT)?);
        let impes = i32::from(cells.decouple == Decouple::QuasiImpes && m > 1);
        let others = if cells.decouple == Decouple::RowSums { 1.0 } else { 0.0 };
        on_each!(
            device,
            common(cell_weights),
            to.rows(),
            1,
            m as i32,
            a.block() as i32,
            impes,
            others,
            TINY_PIVOT,
            &arrays.unknowns,
            &arrays.order,
            Matrix::from(&*matrix),
            &values,
            &wrong,
        );
        if last(device, &wrong)? != 0 {
            return Err(Cells::not_finite());
        }
        set_values(to, known.with_values(values));
        Ok(())
    }
}

//! Matrices in the memory of a GPU, as they were given: the start of every set-up on the device.
//!
//! A matrix is copied here once. A solver places its terms before any analysis. Arrays that the caller has on
//! the GPU are copied as well, so that the caller may reuse them.

use super::Cuda;
use super::assemble::{count_blocks, in_blocks};
use super::caller::of_buffer;
use super::compiler::Kernel;
use super::driver::{Buffer, Device};
use super::launch::Set;
use super::launch::{Address, At, Entry, Of, kernels};
use super::specialisations::define;
use crate::matrix::Bsr;
use crate::memory::{Lent, Numbers, OnDevice, Pattern, Remote};
use crate::operator::Terms;
use crate::{Error, Result};
use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;

kernels! {
    ARRAYS in "arrays.cu", all_arrays;
    fn take_row_pointers(
        rows: i64, entries: i64, from: Address, to: At<i64>, base: At<i32>, wrong: At<i32>,
    );
    fn take_columns(entries: i64, columns: i64, from: Address, to: At<u32>, base: At<i32>, wrong: At<i32>);
    fn check_columns(rows: i64, entries: i64, row_ptr: At<i64>, col: At<u32>, wrong: At<i32>);
    fn take_values(count: i64, from: At<f64>, to: At<f64>, wrong: At<i32>);
    fn compare_patterns(
        pointers: i64, entries: i64, one: At<i64>, two: At<i64>, col: At<u32>, other: At<u32>,
        differ: At<i32>,
    );
    fn zero_blocks(blocks: i64, square: i32, values: At<f64>, count: At<u64>);
    fn fixed_rows(
        rows: i64, block: i32, row_ptr: At<i64>, col: At<u32>, values: At<f64>, flags: At<u8>, any: At<i32>,
    );
    fn diagonal_signs(
        rows: i64, block: i32, row_ptr: At<i64>, col: At<u32>, values: At<f64>, counts: At<u64>,
    );
    fn refers_to_fixed(
        rows: i64, block: i32, row_ptr: At<i64>, col: At<u32>, values: At<f64>, flags: At<u8>, found: At<i32>,
    );
}

kernels! {
    ROW_SCALED in "row_scaled.cu", |set| set.choose(1..=8, [1, 2, 3, 4, 5]).into_iter().map(|b| row_scaled::of(b).into()).collect();
    fn row_scaled(
        row_ptr: At<i64>, col: At<u32>, values: At<f64>, rows: i32, b: At<f64>, x: At<f64>, sums: At<f64>,
    );
}

impl row_scaled {
    fn of(block: usize) -> Of<Self> {
        Self.with(vec![define("BLOCK", block)])
    }
}

/// Returns a kernel that copies a caller's matrix, for the C types of its row pointers and columns.
fn arrays<K: Entry>(entry: K, row: &str, column: &str) -> Of<K> {
    entry.with(vec![define("ROW", row), define("COLUMN", column)])
}

/// Returns the kernels for all widths of row pointers and columns.
fn all_arrays(set: Set) -> Vec<Kernel> {
    let common = [("int", "int"), ("long long", "int")];
    let all = ["int", "long long", "unsigned", "unsigned long long"].map(|width| (width, width));
    let all = all.into_iter().chain([common[1]]).collect::<Vec<_>>();
    let widths = set.choose(all, common);
    widths.into_iter().map(|(row, column)| arrays(take_columns, row, column).into()).collect()
}

/// Row pointers, columns and values of a matrix. The pattern may be shared with other matrices.
#[derive(Clone)]
pub(crate) struct Resident {
    device: Arc<Device>,
    pub row_ptr: Arc<Buffer<i64>>,
    pub col: Arc<Buffer<u32>>,
    pub values: Arc<Buffer<f64>>,
}

impl Resident {
    /// Wraps arrays that kernels made, all on one GPU.
    pub fn new(row_ptr: Buffer<i64>, col: Buffer<u32>, values: Buffer<f64>) -> Self {
        let device = row_ptr.device().clone();
        Self { device, row_ptr: Arc::new(row_ptr), col: Arc::new(col), values: Arc::new(values) }
    }

    /// Returns the same pattern with other values.
    pub fn with_values(&self, values: Buffer<f64>) -> Self {
        let (device, row_ptr, col) = (self.device.clone(), self.row_ptr.clone(), self.col.clone());
        Self { device, row_ptr, col, values: Arc::new(values) }
    }

    /// Returns the same pattern with the values of another matrix.
    pub fn with_values_of(&self, other: &Self) -> Self {
        Self { values: other.values.clone(), ..self.clone() }
    }

    /// Returns the same rows with other columns.
    pub fn with_columns(&self, col: Buffer<u32>) -> Self {
        let (device, row_ptr, values) = (self.device.clone(), self.row_ptr.clone(), self.values.clone());
        Self { device, row_ptr, col: Arc::new(col), values }
    }

    /// Returns rows of the same lengths with other columns and values.
    pub fn with_pattern(&self, col: Buffer<u32>, values: Buffer<f64>) -> Self {
        Self { values: Arc::new(values), ..self.with_columns(col) }
    }

    /// Allocates a matrix of `rows` block rows and `blocks` blocks of `square` numbers.
    pub fn allocate(device: &Arc<Device>, rows: usize, blocks: usize, square: usize) -> Result<Self> {
        let what = "a matrix";
        Ok(Self {
            device: device.clone(),
            row_ptr: Arc::new(device.allocate(rows + 1, what)?),
            col: Arc::new(device.allocate(blocks, what)?),
            values: Arc::new(device.allocate(blocks * square, what)?),
        })
    }

    /// Returns the number of the GPU that holds the arrays.
    pub fn ordinal(&self) -> usize {
        self.device.info().ordinal
    }

    /// Waits until the GPU that holds the arrays has finished its work.
    pub fn settled(&self) -> Result<()> {
        self.device.wait()
    }

    /// Returns the first entry of block row `i`.
    pub fn pointer(&self, i: usize) -> Result<usize> {
        let mut pointer = [0];
        self.device.read(&self.row_ptr, i, &mut pointer)?;
        Ok(pointer[0] as usize)
    }

    /// True if the row pointers and columns of both are equal; they must have the same lengths.
    fn compare(&self, other: &Self) -> Result<bool> {
        let pointers = [self.row_ptr.pointer(), other.row_ptr.pointer()];
        let columns = [self.col.pointer(), other.col.pointer()];
        self.compare_arrays((self.row_ptr.len(), pointers), (self.col.len(), columns))
    }

    /// True if two arrays of 8 bytes and two of 4 bytes are equal. Each pair has a length and addresses.
    fn compare_arrays(
        &self,
        (wide, [one, two]): (usize, [u64; 2]),
        (narrow, [col, other]): (usize, [u64; 2]),
    ) -> Result<bool> {
        let device = &self.device;
        let function = device.function(&arrays(compare_patterns, "int", "int"))?;
        let differ = device.zeros::<i32>(1, "a flag")?;
        let grid = wide.max(narrow).div_ceil(256).clamp(1, 32 * device.multiprocessors());
        let (wide, narrow) = (wide as i64, narrow as i64);
        function.on(device, grid, 256).run(wide, narrow, one, two, col, other, &differ)?;
        let mut found = [0];
        device.read(&differ, 0, &mut found)?;
        Ok(found[0] == 0)
    }

    /// Uploads the arrays of a matrix that is on the host.
    fn upload(device: &Arc<Device>, a: &Bsr, pattern: Option<&Resident>) -> Result<Self> {
        let (row_ptr, col) = match pattern {
            Some(other) => (other.row_ptr.clone(), other.col.clone()),
            None => upload_pattern(device, a.row_ptr(), a.col())?,
        };
        let values = Arc::new(device.upload(a.values(), "a matrix")?);
        Ok(Self { device: device.clone(), row_ptr, col, values })
    }
}

impl OnDevice for Resident {
    fn pattern(&self) -> Result<Pattern> {
        let mut row_ptr = vec![0usize; self.row_ptr.len()];
        let mut col = vec![0u32; self.col.len()];
        // SAFETY: as many numbers of the same size, none negative; and all columns.
        unsafe {
            self.device.fetch_apart(self.row_ptr.pointer(), &mut row_ptr)?;
            self.device.fetch_apart(self.col.pointer(), &mut col)?;
        }
        Ok(Pattern { row_ptr, col })
    }

    fn values(&self) -> Result<Vec<f64>> {
        let mut values = vec![0.0; self.values.len()];
        // SAFETY: all values.
        unsafe { self.device.fetch_apart(self.values.pointer(), &mut values)? };
        Ok(values)
    }

    fn numbers(&self) -> Numbers<'_> {
        Numbers::from(&*self.values)
    }

    fn same_pattern(&self, other: &Arc<dyn OnDevice>) -> Option<bool> {
        let other = other.clone().as_any().downcast::<Self>().ok()?;
        if other.device.info().ordinal != self.device.info().ordinal {
            return None;
        }
        if Arc::ptr_eq(&self.row_ptr, &other.row_ptr) && Arc::ptr_eq(&self.col, &other.col) {
            return Some(true);
        }
        // A device that fails here fails again where the error can be reported.
        self.compare(&other).ok()
    }

    fn same_values(&self, other: &Arc<dyn OnDevice>) -> Option<bool> {
        let other = other.clone().as_any().downcast::<Self>().ok()?;
        if other.device.info().ordinal != self.device.info().ordinal {
            return None;
        }
        let values = [self.values.pointer(), other.values.pointer()];
        self.compare_arrays((self.values.len(), values), (0, [0; 2])).ok()
    }

    fn grouped(&self, block: usize) -> Result<Option<(usize, Arc<dyn OnDevice>)>> {
        let made = in_blocks(&self.device, self, block)?;
        // Solvers read the blocks in streams of their own.
        self.settled()?;
        Ok(made.map(|made| (made.col.len(), Arc::new(made) as _)))
    }

    fn count_blocks(&self, block: usize) -> Result<Option<usize>> {
        count_blocks(&self.device, self, block)
    }

    fn count_zero_blocks(&self, square: usize) -> Result<Option<usize>> {
        let (device, blocks) = (&self.device, self.values.len() / square);
        let count = device.zeros::<u64>(1, "a counter")?;
        let function = device.function(&arrays(zero_blocks, "int", "int"))?;
        let grid = blocks.div_ceil(256).clamp(1, 32 * device.multiprocessors());
        function.on(device, grid, 256).run(blocks as i64, square as i32, &self.values, &count)?;
        let mut found = [0];
        device.read(&count, 0, &mut found)?;
        Ok(Some(found[0] as usize))
    }

    fn refers_to_fixed_rows(&self, block: usize) -> Result<Option<bool>> {
        let (device, rows) = (&self.device, self.row_ptr.len() - 1);
        let flags = match device.allocate::<u8>(rows * block, "flags") {
            Err(e) if e.is_memory() => return Ok(Some(false)),
            flags => flags?,
        };
        let found = device.zeros::<i32>(2, "flags")?;
        let (flagged, referred) = (found.at(0), found.at(1));
        let mut answer = [0; 2];
        let run = |lanes: usize| (rows * lanes).div_ceil(256).clamp(1, 32 * device.multiprocessors());
        let a = (&self.row_ptr, &self.col, &self.values);
        let function = device.function(&arrays(fixed_rows, "int", "int"))?;
        let of = function.on(device, run(block), 256);
        of.run(rows as i64, block as i32, a.0, a.1, a.2, &flags, flagged)?;
        device.read(&found, 0, &mut answer)?;
        if answer[0] == 0 {
            return Ok(Some(false));
        }
        let function = device.function(&arrays(refers_to_fixed, "int", "int"))?;
        let of = function.on(device, run(8), 256);
        of.run(rows as i64, block as i32, a.0, a.1, a.2, &flags, referred)?;
        device.read(&found, 0, &mut answer)?;
        Ok(Some(answer[1] != 0))
    }

    fn diagonal_signs(&self, block: usize) -> Result<Option<[u64; 3]>> {
        let (device, rows) = (&self.device, self.row_ptr.len() - 1);
        let counts = device.zeros::<u64>(3, "counters")?;
        let function = device.function(&arrays(diagonal_signs, "int", "int"))?;
        let grid = (rows * block).div_ceil(256).clamp(1, 32 * device.multiprocessors());
        let of = function.on(device, grid, 256);
        of.run(rows as i64, block as i32, &self.row_ptr, &self.col, &self.values, &counts)?;
        let mut found = [0; 3];
        device.read(&counts, 0, &mut found)?;
        Ok(Some(found))
    }

    fn row_scaled_norms(&self, block: usize, b: Numbers, x: Numbers) -> Result<Option<[f64; 4]>> {
        let (device, rows) = (&self.device, self.row_ptr.len() - 1);
        if !(1..=8).contains(&block) || b.len() != rows * block || x.len() < rows * block {
            return Ok(None);
        }
        let grid = (rows * block).div_ceil(32).clamp(1, 8 * device.multiprocessors());
        let sums = device.zeros::<f64>(4 * grid, "row-scaled residuals")?;
        let function = device.function(&row_scaled::of(block))?;
        let staging = || device.zeros::<f64>(0, "a staging buffer");
        let (mut b_here, mut x_here) = (staging()?, staging()?);
        device.reading(b, &mut b_here, |b| {
            device.reading(x, &mut x_here, |x| {
                let (rows, of) = (rows as i32, function.on(device, grid, 256));
                of.run(&self.row_ptr, &self.col, &self.values, rows, b, x, &sums)
            })
        })?;
        let mut parts = vec![0.0; sums.len()];
        device.read(&sums, 0, &mut parts)?;
        let mut all = [0.0; 4];
        parts.chunks_exact(4).for_each(|part| all.iter_mut().zip(part).for_each(|(sum, v)| *sum += v));
        let in_range = |v: f64| v == 0.0 || v.is_finite() && v > f64::MIN_POSITIVE / f64::EPSILON;
        Ok((all.iter().all(|v| in_range(*v)) && all[3] > 0.0).then(|| all.map(f64::sqrt)))
    }

    fn with_values(&self, values: &[f64]) -> Result<Option<Arc<dyn OnDevice>>> {
        let (device, mut wrong) = (&self.device, self.device.zeros::<i32>(1, "a flag")?);
        let new = device.upload(values, "a matrix")?;
        let copied = copy_finite(device, of_buffer(&new), &mut wrong)?;
        let mut found = [0];
        device.read(&wrong, 0, &mut found)?;
        match found[0] {
            0 => Ok(Some(Arc::new(Self::with_values(self, copied)))),
            _ => Err(not_finite()),
        }
    }

    fn first_rows(&self, rows: usize, most: usize) -> Result<Pattern> {
        let mut row_ptr = vec![0i64; rows + 1];
        self.device.read(&self.row_ptr, 0, &mut row_ptr)?;
        row_ptr.truncate(row_ptr.partition_point(|&p| p as usize <= most).max(1));
        let mut col = vec![0u32; row_ptr[row_ptr.len() - 1] as usize];
        self.device.read(&self.col, 0, &mut col)?;
        Ok(Pattern { row_ptr: row_ptr.into_iter().map(|p| p as usize).collect(), col })
    }

    fn as_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

impl Cuda {
    /// Returns a matrix in the memory of this GPU: in place, or uploaded.
    pub(crate) fn resident(&self, a: &Bsr) -> Result<Arc<Resident>> {
        match self.at_hand(a) {
            Some(resident) => Ok(resident),
            None => Resident::upload(self.device(), a, None).map(Arc::new),
        }
    }

    /// Returns a matrix that is already in the memory of this GPU.
    pub(crate) fn at_hand(&self, a: &Bsr) -> Option<Arc<Resident>> {
        let here = |resident: &Arc<Resident>| resident.device.info().ordinal == self.device().info().ordinal;
        a.storage().on::<Resident>().filter(here)
    }

    /// Returns the terms with their matrices also in the memory of this GPU. Equal patterns are stored once.
    pub(crate) fn placed<'a>(&self, terms: &Terms<'a>) -> Result<Terms<'a>> {
        let mut placed: Vec<(_, Cow<'a, Bsr>)> = Vec::with_capacity(terms.terms.len());
        let shared = terms.shared_pattern();
        let mut first: Option<Arc<Resident>> = None;
        for (c, a) in &terms.terms {
            let resident = match self.at_hand(a) {
                Some(resident) => resident,
                None => {
                    let pattern = first.as_deref().filter(|_| shared);
                    Arc::new(Resident::upload(self.device(), a, pattern)?)
                }
            };
            let mut storage = a.storage().with_device(resident.clone());
            if let (true, Some((_, first))) = (shared, placed.first()) {
                storage = storage.sharing_pattern(first.storage());
            }
            first = Some(resident);
            placed.push((c.clone(), Cow::Owned(a.with_storage(storage))));
        }
        Ok(Terms { terms: placed, halo: terms.halo.clone() })
    }
}

/// Copies a caller's arrays, all on one GPU, and checks them there. Returns `None` if they are invalid.
pub(crate) fn take(
    columns: usize,
    row_ptr: Lent,
    col: Lent,
    values: Remote,
) -> Result<Option<Arc<dyn OnDevice>>> {
    let device = Device::open(row_ptr.remote.ordinal)?;
    let (rows, entries, what) = (row_ptr.remote.len - 1, col.remote.len, "a matrix");
    let mut wrong = device.zeros::<i32>(1, what)?;
    let base = device.allocate::<i32>(1, what)?;
    let (pointers, columns_of) =
        (device.allocate::<i64>(rows + 1, what)?, device.allocate::<u32>(entries, what)?);
    let grid = |n: usize| n.div_ceil(256).clamp(1, 32 * device.multiprocessors());
    let take = device.function(&arrays(take_row_pointers, row_ptr.name, col.name))?;
    device.lent(row_ptr.remote, row_ptr.size, |from| {
        take.on(&device, grid(rows + 1), 256).run(rows as i64, entries as i64, from, &pointers, &base, &wrong)
    })?;
    let take = device.function(&arrays(take_columns, row_ptr.name, col.name))?;
    device.lent(col.remote, col.size, |from| {
        take.on(&device, grid(col.remote.len), 256).run(
            entries as i64,
            columns as i64,
            from,
            &columns_of,
            &base,
            &wrong,
        )
    })?;
    let copied = copy_finite(&device, values, &mut wrong)?;
    let mut found = [0];
    device.read(&wrong, 0, &mut found)?;
    if found[0] == 0 {
        // The row pointers are known to be within the columns here.
        let check = device.function(&arrays(check_columns, row_ptr.name, col.name))?;
        let (rows, entries) = (rows as i64, entries as i64);
        check.on(&device, grid(col.remote.len), 256).run(rows, entries, &pointers, &columns_of, &wrong)?;
        device.read(&wrong, 0, &mut found)?;
    }
    if found[0] != 0 {
        return Ok(None);
    }
    let (row_ptr, col) = (Arc::new(pointers), Arc::new(columns_of));
    Ok(Some(Arc::new(Resident { device, row_ptr, col, values: Arc::new(copied) })))
}

/// Returns a pattern with new values that are on a GPU, where they stay. The pattern is uploaded to that GPU
/// if needed.
///
/// # Errors
/// A value that is not finite; out of device memory.
pub(crate) fn updated<'p>(
    values: Remote,
    here: Option<Arc<dyn OnDevice>>,
    pattern: &dyn Fn() -> &'p Pattern,
) -> Result<Arc<dyn OnDevice>> {
    let here = here.and_then(|here| here.as_any().downcast::<Resident>().ok());
    let here = here.filter(|resident| resident.device.info().ordinal == values.ordinal);
    let device =
        here.as_ref().map_or_else(|| Device::open(values.ordinal), |here| Ok(here.device.clone()))?;
    let (row_ptr, col) = match here {
        Some(here) => (here.row_ptr.clone(), here.col.clone()),
        None => {
            let pattern = pattern();
            upload_pattern(&device, &pattern.row_ptr, &pattern.col)?
        }
    };
    let mut wrong = device.zeros::<i32>(1, "a flag")?;
    let copied = copy_finite(&device, values, &mut wrong)?;
    let mut found = [0];
    device.read(&wrong, 0, &mut found)?;
    if found[0] != 0 {
        return Err(not_finite());
    }
    Ok(Arc::new(Resident { device, row_ptr, col, values: Arc::new(copied) }))
}

fn not_finite() -> Error {
    Error::invalid("new values: at least one is NaN or infinite; every value must be finite")
}

/// Row pointers and columns.
type PatternArrays = (Arc<Buffer<i64>>, Arc<Buffer<u32>>);

/// Uploads the pattern of a matrix that is on the host.
fn upload_pattern(device: &Arc<Device>, pointers: &[usize], col: &[u32]) -> Result<PatternArrays> {
    let row_ptr = device.allocate::<i64>(pointers.len(), "a matrix")?;
    // SAFETY: allocated for as many numbers of the same size; offsets are below 2⁶³.
    unsafe { device.send(pointers, row_ptr.pointer())? };
    Ok((Arc::new(row_ptr), Arc::new(device.upload(col, "a matrix")?)))
}

/// Copies a caller's values, and raises `wrong` where one is not finite.
fn copy_finite(device: &Arc<Device>, values: Remote, wrong: &mut Buffer<i32>) -> Result<Buffer<f64>> {
    let to = device.allocate::<f64>(values.len, "a matrix")?;
    let function = device.function(&arrays(take_values, "int", "int"))?;
    let count = values.len as i64;
    let grid = values.len.div_ceil(256).clamp(1, 32 * device.multiprocessors());
    device.lent(values, size_of::<f64>(), |from| {
        function.on(device, grid, 256).run(count, from, &to, &*wrong)
    })?;
    Ok(to)
}

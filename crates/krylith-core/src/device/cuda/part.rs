//! Cuts consecutive block rows (a run) out of a matrix on the GPU that will hold them, and renumbers their
//! columns locally (`kernels/part.cu`). This is how several GPUs of one process get their rows.
//!
//! Only the run itself is copied, from the host, from this GPU or from another. Its columns are renumbered on
//! this GPU, and only the numbers of its ghosts come back to the host.

use super::bounce::Spot;
use super::driver::{Buffer, Device};
use super::launch::{At, Entry, kernels};
use super::resident::Resident;
use super::scan::scan_columns;
use crate::halo::Halo;
use crate::matrix::Bsr;
use crate::matrix::storage::Storage;
use crate::operator::Terms;
use crate::{Error, Result};
use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

kernels! {
    PART in "part.cu", |_| vec![part_mark.plain().into()];
    fn part_mark(entries: i64, run: Run, col: At<u32>, bits: At<u32>);
    fn part_words(words: i64, pass: i32, bits: At<u32>, sums: At<i64>, before: At<u32>);
    fn part_ghosts(words: i64, bits: At<u32>, before: At<u32>, ghosts: At<u32>);
    fn part_rows(
        rows: i64, run: Run, square: i32, row_ptr: At<i64>, col: At<u32>, values: At<f64>, bits: At<u32>,
        before: At<u32>, to_ptr: At<i64>, to_col: At<u32>, to_values: At<f64>,
    );
    fn part_values(
        rows: i64, run: Run, square: i32, row_ptr: At<i64>, col: At<u32>, values: At<f64>,
        to_values: At<f64>,
    );
}

/// First row and end of a run, number of entries before it in the whole matrix, number of ghosts before it.
type Run = [i64; 4];

/// Purpose of this module's buffers, for error messages.
const WHAT: &str = "one GPU's rows of a matrix";
/// Words of 32 bits that a thread block counts at a time.
const WORDS: usize = 1024;

/// A run of rows of undistributed terms, on the GPU that holds it.
pub(crate) struct RunOnDevice {
    device: Arc<Device>,
    run: Range<usize>,
    /// Number of ghosts whose global number is below the run.
    ghosts_before: usize,
    /// Global numbers of the ghosts, ascending.
    pub ghosts: Vec<u32>,
    /// Range of the run's entries in each term.
    entries: Vec<Range<usize>>,
}

/// Addresses of the run's arrays, in global numbering, and the owners of that memory.
struct Raw {
    row_ptr: u64,
    col: u64,
    values: u64,
    owners: (Option<Arc<Resident>>, Vec<Buffer<u8>>),
}

impl RunOnDevice {
    /// Cuts rows `run` of the terms and returns them in local numbering, without a halo.
    ///
    /// # Errors
    /// Out of device memory; a failure of the GPU.
    pub fn cut(ordinal: usize, terms: &Terms, run: Range<usize>) -> Result<(Self, Terms<'static>)> {
        let device = Device::open(ordinal)?;
        let patterns = if terms.shared_pattern() { 1 } else { terms.terms.len() };
        let entries = terms
            .terms
            .iter()
            .map(|(_, a)| Ok(pointer(a, run.start)?..pointer(a, run.end)?))
            .collect::<Result<Vec<_>>>()?;
        let mut raw = Vec::with_capacity(terms.terms.len());
        for (t, (_, a)) in terms.terms.iter().enumerate() {
            raw.push(bring(&device, a, &run, &entries[t], t < patterns)?);
        }
        let columns = terms.block_rows();
        let words = columns.div_ceil(32).max(1);
        let bits = device.zeros::<u32>(words, WHAT)?;
        let before = device.allocate::<u32>(words, WHAT)?;
        let blocks = words.div_ceil(WORDS);
        let sums = device.zeros::<i64>(blocks + 1, WHAT)?;
        let grid = |n: usize| n.div_ceil(256).clamp(1, 32 * device.multiprocessors());
        let mark = device.function(&part_mark.plain())?;
        for t in 0..patterns {
            let (count, kernel_run) = (entries[t].len(), [run.start as i64, run.end as i64, 0, 0]);
            mark.on(&device, grid(count), 256).run(count as i64, kernel_run, raw[t].col, &bits)?;
        }
        let (count, scan) = (device.function(&part_words.plain())?, device.function(&scan_columns::of(1))?);
        for pass in 0..2i32 {
            count.on(&device, blocks, WORDS).run(words as i64, pass, &bits, &sums, &before)?;
            if pass == 0 {
                scan.on(&device, 1, 1024).run(blocks as i64, &sums)?;
            }
        }
        let mut total = [0i64];
        device.read(&sums, blocks, &mut total)?;
        let mut ghosts = vec![0u32; total[0] as usize];
        let list = device.allocate::<u32>(ghosts.len(), WHAT)?;
        device.function(&part_ghosts.plain())?.on(&device, grid(words), 256).run(
            words as i64,
            &bits,
            &before,
            &list,
        )?;
        if !ghosts.is_empty() {
            device.read(&list, 0, &mut ghosts)?;
        }
        let ghosts_before = ghosts.partition_point(|&j| (j as usize) < run.start);
        let square = terms.block() * terms.block();
        let mut own: Vec<(_, Cow<'static, Bsr>)> = Vec::with_capacity(terms.terms.len());
        let nodes = run.len() + ghosts.len();
        let rows = run.len();
        let mut first: Option<Arc<Resident>> = None;
        let made = Self { device: device.clone(), run, ghosts_before, ghosts, entries };
        for (t, (c, a)) in terms.terms.iter().enumerate() {
            let count = made.entries[t].len();
            if t >= patterns {
                let pattern = first.clone().ok_or_else(|| Error::Internal("a term has no pattern".into()))?;
                let values = made.reorder(&pattern, raw[t].values, square)?;
                let resident = Arc::new(pattern.with_values(values));
                let storage = Storage::device(rows, nodes, count, resident);
                let storage = storage.sharing_pattern(own[0].1.storage());
                own.push((c.clone(), Cow::Owned(Bsr::from_storage(a.block(), storage))));
                continue;
            }
            let to = Resident::allocate(&device, rows, count, square)?;
            let kernel_run = made.kernel_run(made.entries[t].start);
            device
                .function(&part_rows.plain())?
                .on(&device, (8 * rows).div_ceil(256).clamp(1, 32 * device.multiprocessors()), 256)
                .run(
                    rows as i64,
                    kernel_run,
                    square as i32,
                    raw[t].row_ptr,
                    raw[t].col,
                    raw[t].values,
                    &bits,
                    &before,
                    &to.row_ptr,
                    &to.col,
                    &to.values,
                )?;
            let to = Arc::new(to);
            first = Some(to.clone());
            let storage = Storage::device(rows, nodes, count, to);
            own.push((c.clone(), Cow::Owned(Bsr::from_storage(a.block(), storage))));
        }
        // Free copies in global numbering here and return their memory to the driver: later users of the new
        // arrays have other streams and memory pools, and could not reuse it.
        drop(raw);
        device.wait()?;
        device.trim_pool();
        Ok((made, Terms { terms: own, halo: None }))
    }

    /// Cuts a run of rows on each of several GPUs at the same time.
    ///
    /// # Errors
    /// The errors of [`cut`](Self::cut) on the first GPU that fails.
    pub fn cut_all(
        ordinals: &[usize],
        terms: &Terms,
        runs: &[Range<usize>],
    ) -> Result<Vec<(Self, Terms<'static>)>> {
        let made: Vec<Result<_>> = std::thread::scope(|scope| {
            let threads = ordinals.iter().zip(runs);
            let threads: Vec<_> = threads
                .map(|(&ordinal, run)| scope.spawn(move || Self::cut(ordinal, terms, run.clone())))
                .collect();
            let lost = || Err(Error::Internal("a thread that cuts rows ended without a result".into()));
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| lost())).collect()
        });
        made.into_iter().collect()
    }

    /// Returns the run's rows of term `t` with the present values of the whole matrix.
    ///
    /// # Errors
    /// Out of device memory; a failure of the GPU.
    pub fn update(&self, t: usize, whole: &Bsr, own: &Bsr) -> Result<Bsr> {
        let (device, square) = (&self.device, whole.block() * whole.block());
        let old = own.storage().on::<Resident>();
        let old = old.ok_or_else(|| Error::Internal("a run of rows is not on its GPU".into()))?;
        let raw = bring(device, whole, &self.run, &self.entries[t], false)?;
        let values = self.reorder(&old, raw.values, square)?;
        device.wait()?;
        drop(raw);
        Ok(own.with_storage(own.storage().with_device_values(Arc::new(old.with_values(values)))))
    }

    /// Returns the kernels' `Run`; `base` entries precede the run in the whole matrix.
    fn kernel_run(&self, base: usize) -> [i64; 4] {
        [self.run.start as i64, self.run.end as i64, base as i64, self.ghosts_before as i64]
    }

    /// Reorders values of the run from global order to the local order of a pattern.
    fn reorder(&self, pattern: &Resident, values: u64, square: usize) -> Result<Buffer<f64>> {
        let (device, rows) = (&self.device, self.run.len());
        let to = device.allocate::<f64>(pattern.col.len() * square, WHAT)?;
        let run = self.kernel_run(0);
        let grid = (8 * rows).div_ceil(256).clamp(1, 32 * device.multiprocessors());
        let function = device.function(&part_values.plain())?;
        let square = square as i32;
        function.on(device, grid, 256).run(
            rows as i64,
            run,
            square,
            &pattern.row_ptr,
            &pattern.col,
            values,
            &to,
        )?;
        Ok(to)
    }
}

/// Returns the first entry of block row `i`.
pub(crate) fn pointer(a: &Bsr, i: usize) -> Result<usize> {
    match a.storage().on::<Resident>().filter(|_| !a.storage().has_host_pattern()) {
        Some(resident) => resident.pointer(i),
        None => Ok(a.row_ptr()[i]),
    }
}

/// Returns the arrays of a run of rows, where this GPU can read them: in their place, or as copies.
fn bring(
    device: &Arc<Device>,
    a: &Bsr,
    run: &Range<usize>,
    entries: &Range<usize>,
    pattern: bool,
) -> Result<Raw> {
    let square = a.block() * a.block();
    let (first, numbers) = (entries.start, entries.start * square..entries.end * square);
    let on_gpu = a.storage().on::<Resident>();
    if let Some(resident) = on_gpu.filter(|_| a.storage().is_on_device_alone()) {
        if resident.ordinal() == device.info().ordinal {
            return Ok(Raw {
                row_ptr: resident.row_ptr.at(run.start),
                col: resident.col.at(first),
                values: resident.values.at(numbers.start),
                owners: (Some(resident), Vec::new()),
            });
        }
        let copy = |from: u64, bytes: usize| -> Result<Buffer<u8>> {
            let to = device.allocate::<u8>(bytes, WHAT)?;
            let own = Spot { ordinal: device.info().ordinal, pointer: to.pointer() };
            // SAFETY: as many bytes of a live array, whose device has finished with it.
            unsafe { device.copy_between(own, Spot { ordinal: resident.ordinal(), pointer: from }, bytes)? };
            Ok(to)
        };
        resident.settled()?;
        // GPUs that cannot reach each other exchange data through the host.
        if let Ok(values) = copy(resident.values.at(numbers.start), 8 * numbers.len()) {
            let (mut raw, mut buffers) = (
                Raw { row_ptr: 0, col: 0, values: values.pointer(), owners: (None, Vec::new()) },
                vec![values],
            );
            if pattern {
                let pointers = copy(resident.row_ptr.at(run.start), 8 * (run.len() + 1))?;
                let col = copy(resident.col.at(first), 4 * entries.len())?;
                (raw.row_ptr, raw.col) = (pointers.pointer(), col.pointer());
                buffers.extend([pointers, col]);
            }
            raw.owners = (Some(resident), buffers);
            return Ok(raw);
        }
    }
    let send = |bytes: usize| device.allocate::<u8>(bytes, WHAT);
    let values = send(8 * numbers.len())?;
    // SAFETY: allocated for as many numbers, here and below; offsets fit i64, the kernels' type.
    unsafe { device.send(&a.values()[numbers], values.pointer())? };
    let (mut raw, mut buffers) =
        (Raw { row_ptr: 0, col: 0, values: values.pointer(), owners: (None, Vec::new()) }, vec![values]);
    if pattern {
        let (pointers, col) = (send(8 * (run.len() + 1))?, send(4 * entries.len())?);
        // SAFETY: as above.
        unsafe {
            device.send(&a.row_ptr()[run.start..=run.end], pointers.pointer())?;
            device.send(&a.col()[entries.clone()], col.pointer())?;
        }
        (raw.row_ptr, raw.col) = (pointers.pointer(), col.pointer());
        buffers.extend([pointers, col]);
    }
    raw.owners = (None, buffers);
    Ok(raw)
}

impl Drop for Raw {
    /// Waits for copies from another GPU's memory before that memory can be freed.
    fn drop(&mut self) {
        if let (Some(_), Some(copy)) = (&self.owners.0, self.owners.1.first()) {
            let _ = copy.device().wait(); // a failed device reports its error at its next use
        }
    }
}

/// Returns the halo of each run, from the ghosts of all runs.
pub(crate) fn halos(runs: &[Range<usize>], ghosts: &[&[u32]]) -> Vec<Halo> {
    let of = |rank: usize, owner: usize| {
        let (ghosts, run) = (ghosts[rank], &runs[owner]);
        let at = |row: usize| ghosts.partition_point(|&j| (j as usize) < row);
        &ghosts[at(run.start)..at(run.end)]
    };
    let ranks = 0..runs.len();
    ranks
        .clone()
        .map(|rank| {
            let receive: Vec<usize> = ranks.clone().map(|owner| of(rank, owner).len()).collect();
            let own = |&j: &u32| j - runs[rank].start as u32;
            let send = ranks.clone().map(|other| of(other, rank).iter().map(own).collect()).collect();
            Halo::new(runs[rank].len(), &receive, send)
        })
        .collect()
}

/// Cuts runs of rows of a matrix, each on the GPU that will multiply it, with its halo. It does for
/// consecutive rows what [`split`](crate::partition::split) does on the host. `runs` must contain every row
/// once, in order, and have one run for each GPU.
///
/// # Errors
/// Out of device memory; a failure of a GPU; runs that leave rows out; a number of runs other than that of
/// the GPUs.
pub fn split_runs(terms: &Terms, runs: &[Range<usize>], ordinals: &[usize]) -> Result<Vec<Terms<'static>>> {
    let mut next = 0;
    let follow =
        runs.iter().all(|run| run.start == std::mem::replace(&mut next, run.end) && run.end >= run.start);
    if !follow || next != terms.block_rows() || runs.len() != ordinals.len() {
        return Err(Error::invalid(format!(
            "{} runs of rows were given for {} GPUs; expected one run per GPU, consecutive from row 0 to row {}",
            runs.len(),
            ordinals.len(),
            terms.block_rows()
        )));
    }
    let made = RunOnDevice::cut_all(ordinals, terms, runs)?;
    let halos = halos(runs, &made.iter().map(|(cut, _)| &cut.ghosts[..]).collect::<Vec<_>>());
    let with =
        |((_, terms), halo): ((_, Terms<'static>), Halo)| Terms { halo: Some(Arc::new(halo)), ..terms };
    Ok(made.into_iter().zip(halos).map(with).collect())
}

//! Many small systems with one pattern on a GPU, by the uniform batches of cuDSS.
//!
//! The pattern is analysed once for each number of systems that are solved together. Pivots come from within
//! blocks, so a system may get poor factors. Each solution is therefore tested and refined, and the caller
//! gets its residual.

use super::calls::{Calls, NO_MATCHING, WHAT, check, config, data, device_idle, phase};
use super::library::{Handle, Library};
use crate::device::cuda::launch::{At, Entry, Function, kernels};
use crate::device::cuda::{Buffer, Device};
use crate::matrix::Csr;
use crate::memory::{Numbers, NumbersMut, Place};
use crate::{Error, Result, interrupt};
use std::ptr::null_mut;
use std::sync::Arc;

kernels! {
    BATCH in "batch.cu", |_| vec![batch_residual.plain().into(), batch_add.plain().into()];
    fn batch_residual(
        first: i32, n: i32, stored: i64, row_ptr: At<i64>, col: At<u32>, place: At<u32>, values: At<f64>, b: At<f64>,
        now: At<f64>, r: At<f64>, x: At<f64>, ratio: At<f64>,
    );
    fn batch_add(count: i64, x: At<f64>, d: At<f64>, sum: At<f64>);
}

/// Threads of a block of `batch_residual`, which has one system.
const THREADS: usize = 128;
/// Largest number of steps of iterative refinement.
const STEPS: usize = 2;
/// Share of the free memory that one piece of a batch may take.
const ROOM: f64 = 0.5;
/// Number of systems with which the size of the factors is found.
const SAMPLE: usize = 16;

/// Systems with one pattern, in the memory of one GPU.
///
/// # Examples
/// ```no_run
/// use krylith::device::FromDevice;
/// use krylith::{Result, matrix::Csr};
/// use krylith_core::device::cuda::CudaBatch;
/// use krylith_core::memory::{Numbers, NumbersMut};
/// /// Solves `count` systems whose numbers are at these addresses of GPU 0.
/// fn solve(pattern: &Csr, count: usize, [values, b, x]: [u64; 3]) -> Result<Vec<f64>> {
///     let n = pattern.rows();
///     // SAFETY: the caller's arrays have these lengths.
///     let numbers = |at, len| unsafe { Numbers::from_device(at, len, 0, None) };
///     let x = unsafe { NumbersMut::from_device(x, count * n, 0, None) };
///     let values = numbers(values, count * pattern.nonzeros());
///     CudaBatch::new(0, pattern)?.solve(values, numbers(b, count * n), x, 1e-10, false)
/// }
/// ```
pub struct CudaBatch {
    device: Arc<Device>,
    n: usize,
    pattern: [Pattern; 2],
    residual: Function<batch_residual>,
    add: Function<batch_add>,
}

/// A pattern, or its transpose, and the place of each entry among the values.
struct Pattern {
    row_ptr: Buffer<i64>,
    col: Buffer<u32>,
    place: Buffer<u32>,
}

impl Pattern {
    fn new(device: &Arc<Device>, row_ptr: &[usize], col: &[u32], place: &[u32]) -> Result<Self> {
        let row_ptr: Vec<i64> = row_ptr.iter().map(|&p| p as i64).collect();
        Ok(Self {
            row_ptr: device.upload(&row_ptr, WHAT)?,
            col: device.upload(col, WHAT)?,
            place: device.upload(place, WHAT)?,
        })
    }
}

impl CudaBatch {
    /// Takes a pattern, whose values have no meaning, for GPU `ordinal`.
    ///
    /// # Errors
    /// A matrix that is not square; no such GPU; cuDSS is missing.
    pub fn new(ordinal: usize, pattern: &Csr) -> Result<Self> {
        let (n, stored) = (pattern.rows(), pattern.nonzeros());
        if pattern.columns() != n {
            return Err(Error::invalid(format!(
                "a batch needs square matrices; these have {n} rows and {} columns",
                pattern.columns()
            )));
        }
        if n > i32::MAX as usize || stored > u32::MAX as usize {
            return Err(Error::Unsupported(format!("a batch of systems with {n} unknowns is not supported")));
        }
        let device = Device::open(ordinal)?;
        // The values of the transpose are the places of its entries.
        let mut numbered = pattern.clone();
        numbered.values_mut().iter_mut().zip(0..stored as u32).for_each(|(v, p)| *v = f64::from(p));
        let turned = numbered.transpose();
        let turned_places: Vec<u32> = turned.values().iter().map(|&p| p as u32).collect();
        let places: Vec<u32> = (0..stored as u32).collect();
        let pattern = [
            Pattern::new(&device, pattern.row_ptr(), pattern.col(), &places)?,
            Pattern::new(&device, turned.row_ptr(), turned.col(), &turned_places)?,
        ];
        let (residual, add) =
            (device.function(&batch_residual.plain())?, device.function(&batch_add.plain())?);
        Ok(Self { device, n, pattern, residual, add })
    }

    /// Solves Aₖ xₖ = bₖ, or Aₖᵀ xₖ = bₖ, for every k. `values` has the values of all matrices in the order
    /// of the pattern, one matrix after the other; `b` and `x` have one vector after the other. All are in
    /// the memory of this GPU. Solutions are refined until ‖bₖ − Aₖ xₖ‖ ≤ rtol ‖bₖ‖ for all k, at most twice.
    ///
    /// Returns ‖bₖ − Aₖ xₖ‖/‖bₖ‖ of the returned xₖ. It may be above `rtol` or NaN: pivots come only from
    /// within blocks, so such a system needs factors of its own.
    ///
    /// # Errors
    /// Lengths that do not agree; arrays elsewhere; out of device memory; a device that failed.
    pub fn solve(
        &mut self,
        values: Numbers,
        b: Numbers,
        x: NumbersMut,
        rtol: f64,
        transposed: bool,
    ) -> Result<Vec<f64>> {
        let (n, stored) = (self.n, self.pattern[0].col.len());
        let count = b.len().checked_div(n).unwrap_or(0);
        if b.len() != x.len() || b.len() != count * n || values.len() != count * stored {
            return Err(Error::invalid(format!(
                "a batch of systems with {n} unknowns and {stored} stored numbers got {} values, {} numbers of b \
                 and {} of x",
                values.len(),
                b.len(),
                x.len()
            )));
        }
        if count == 0 {
            return Ok(Vec::new());
        }
        let device = self.device.clone();
        let mut staging = [device.allocate::<f64>(0, WHAT)?, device.allocate::<f64>(0, WHAT)?];
        let [first, second] = &mut staging;
        let all = device.allocate::<f64>(count * n, WHAT)?;
        let ratios = device.reading(values, first, |values| {
            device.reading(b, second, |b| self.pieces([values, b], &all, count, rtol, transposed))
        })?;
        match x.into_place() {
            Place::Host(host) => device.read(&all, 0, host)?,
            Place::Device(remote) => device.copy_out(&all, &remote)?,
        }
        Ok(ratios)
    }

    /// Solves as many systems at a time as fit into memory. `values` and `b` are addresses.
    fn pieces(
        &self,
        [values, b]: [u64; 2],
        x: &Buffer<f64>,
        count: usize,
        rtol: f64,
        transposed: bool,
    ) -> Result<Vec<f64>> {
        let (n, stored) = (self.n, self.pattern[0].col.len());
        let mut piece = if count <= SAMPLE { count } else { SAMPLE };
        let mut together = Together::new(self, piece, values)?;
        if count > SAMPLE {
            let each = 8.0 * (together.numbers() + stored + 4 * n) as f64;
            let fits = (self.device.free_memory()? as f64 * ROOM / each) as usize;
            piece = fits.clamp(1, count);
            drop(together);
            together = Together::new(self, piece, values)?;
        }
        let mut ratios = Vec::with_capacity(count);
        let mut done = 0;
        while done < count {
            interrupt::check()?;
            let own = piece.min(count - done);
            if own < piece {
                together = Together::new(self, own, values)?;
                piece = own;
            }
            let at = |base: u64, each: usize| base + (8 * done * each) as u64;
            let ends = together.solve(at(values, stored), at(b, n), x.at(done * n), rtol, transposed)?;
            ratios.extend(ends);
            done += own;
        }
        Ok(ratios)
    }
}

/// A number of systems that are factorised and solved together.
struct Together<'a> {
    of: &'a CudaBatch,
    calls: Calls,
    count: usize,
    a: Handle,
    vectors: [Handle; 2],
    /// The solution of a solve, its sum with the best one, residuals, and the best solutions.
    now: Buffer<f64>,
    next: Buffer<f64>,
    r: Buffer<f64>,
    best: Buffer<f64>,
    ratio: Buffer<f64>,
    factorized: bool,
}

impl<'a> Together<'a> {
    fn new(of: &'a CudaBatch, count: usize, values: u64) -> Result<Self> {
        let (device, n) = (&of.device, of.n);
        let calls = Calls::new(Library::get()?, device, &[])?;
        let vector = || device.allocate::<f64>(count * n, WHAT);
        let mut made = Self {
            of,
            calls,
            count,
            a: null_mut(),
            vectors: [null_mut(); 2],
            now: vector()?,
            next: vector()?,
            r: vector()?,
            best: vector()?,
            ratio: device.allocate(count, WHAT)?,
            factorized: false,
        };
        let pattern = &of.pattern[0];
        let arrays = [pattern.row_ptr.pointer(), pattern.col.pointer(), values];
        made.a = made.calls.csr(device, n, pattern.col.len(), arrays, (0, 0))?;
        made.vectors = [
            made.calls.dense(device, n, 1, made.r.pointer())?,
            made.calls.dense(device, n, 1, made.now.pointer())?,
        ];
        made.calls.set(config::BATCH, count as i32);
        device_idle(device)?;
        let mut code = made.calls.execute(phase::ANALYSIS, made.a, made.vectors)?;
        if code != 0 {
            // Some versions match no rows of batches.
            made.calls.set(config::MATCHING, NO_MATCHING);
            code = made.calls.execute(phase::ANALYSIS, made.a, made.vectors)?;
        }
        check(device, "cudssExecute (analysis of a batch)", code)?;
        Ok(made)
    }

    /// Numbers of the factors of one system.
    fn numbers(&self) -> usize {
        self.calls.get::<i64>(data::NUMBERS).unwrap_or(0) as usize
    }

    fn solve(&mut self, values: u64, b: u64, x: u64, rtol: f64, transposed: bool) -> Result<Vec<f64>> {
        let device = &self.of.device;
        device.bind()?;
        self.calls.set_values(device, self.a, values)?;
        let phase = if self.factorized { phase::NEW_FACTORS } else { phase::FACTORS };
        let code = self.calls.execute(phase, self.a, self.vectors)?;
        check(device, "cudssExecute (factors of a batch)", code)?;
        self.factorized = true;
        self.calls.set(config::SOLVE_MODE, i32::from(transposed));
        let mut ratios = vec![0.0; self.count];
        self.by_factors(b, self.now.pointer())?;
        self.test(true, transposed, values, b, &self.now)?;
        device.read(&self.ratio, 0, &mut ratios)?;
        for _ in 0..STEPS {
            if ratios.iter().all(|ratio| *ratio <= rtol) {
                break;
            }
            self.by_factors(self.r.pointer(), self.now.pointer())?;
            let numbers = self.count * self.of.n;
            let grid = numbers.div_ceil(256).clamp(1, 32 * device.multiprocessors());
            self.of.add.on(device, grid, 256).run(numbers as i64, &self.best, &self.now, &self.next)?;
            self.test(false, transposed, values, b, &self.next)?;
            device.read(&self.ratio, 0, &mut ratios)?;
        }
        device.copy_part(self.best.pointer(), x, self.count * self.of.n * size_of::<f64>())?;
        Ok(ratios)
    }

    fn by_factors(&self, from: u64, to: u64) -> Result<()> {
        let device = &self.of.device;
        let [b, x] = self.vectors;
        self.calls.set_values(device, b, from)?;
        self.calls.set_values(device, x, to)?;
        check(device, "cudssExecute (solve of a batch)", self.calls.run(phase::SOLVE, self.a, self.vectors))
    }

    /// Computes residuals of new solutions, and keeps the better ones.
    fn test(&self, first: bool, transposed: bool, values: u64, b: u64, now: &Buffer<f64>) -> Result<()> {
        let (of, pattern) = (self.of, &self.of.pattern[usize::from(transposed)]);
        let (n, stored) = (of.n as i32, pattern.col.len() as i64);
        of.residual.on(&of.device, self.count, THREADS).run(
            i32::from(first),
            n,
            stored,
            &pattern.row_ptr,
            &pattern.col,
            &pattern.place,
            values,
            b,
            now,
            &self.r,
            &self.best,
            &self.ratio,
        )
    }
}

impl Drop for Together<'_> {
    fn drop(&mut self) {
        for handle in [self.a].into_iter().chain(self.vectors) {
            self.calls.destroy_matrix(handle);
        }
    }
}

//! Factors of Schwarz's subdomains on a GPU: launches of `kernels/schwarz_factor.cu`.

use super::super::Cuda;
use super::super::compiler::Kernel;
use super::super::driver::{Buffer, Device, launch};
use super::super::specialisations::define;
use super::order::{self, Order};
use crate::comm::time_limit;
use crate::precond::{FactorQuality, PivotKind, Pivots, SchwarzPlan};
use crate::{Error, Result};
use cudarc::driver::CudaFunction;
use std::sync::Arc;

/// Most warps of a block of threads.
const MOST_WARPS: usize = 8;
/// Shared memory of a block of threads, where rows allow it: four fit a multiprocessor.
const SHARED: usize = 56 << 10;

/// The pattern S, values of the matrix, and L and U as they are computed.
pub(super) struct Factorizer {
    pub row_ptr: Buffer<i64>,
    pub column: Buffer<u32>,
    pub diagonal: Buffer<i64>,
    pub node: Buffer<u32>,
    source: Buffer<u32>,
    /// Stored blocks, own and behind them imported.
    pub a: Buffer<f64>,
    pub factors: Buffer<f64>,
    pub inverses: Buffer<f64>,
    /// The sweep before, where sweeps are deterministic.
    before: Option<[Buffer<f64>; 2]>,
    longest: usize,
    warps: usize,
    runs: Buffer<u32>,
    order: Buffer<u32>,
    /// Shared memory of a block of threads that eliminates.
    shared: usize,
    ready: Buffer<u32>,
    ticket: Buffer<u32>,
    epoch: u32,
    limit: u64,
    /// `Pivots` of the kernel.
    pivots: Buffer<u64>,
    partial: Buffer<f64>,
    total: Buffer<f64>,
    functions: Functions,
}

struct Functions {
    diagonal: CudaFunction,
    guess: CudaFunction,
    eliminate: CudaFunction,
    sweep: CudaFunction,
    defect: CudaFunction,
    total: CudaFunction,
}

/// The twin of `struct Rows` in `kernels/schwarz_factor.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Rows {
    rows: i32,
    longest: i32,
    row_ptr: u64,
    column: u64,
    diagonal: u64,
    source: u64,
    node: u64,
    a: u64,
    factors: u64,
    inverses: u64,
}

/// A kernel of `schwarz_factor.cu`.
pub(super) fn kernel(entry: &'static str, block: usize) -> Kernel {
    Kernel { file: "schwarz_factor.cu", entry, defines: vec![define("ORDER", block)] }
}

/// Shared memory of a warp whose rows have up to `longest` blocks.
fn warp_bytes(longest: usize, b: usize) -> usize {
    let numbers = (longest + 2) * b * b + 2 * b;
    (8 * numbers + 32 * 8 + 4 * longest).next_multiple_of(16)
}

impl Factorizer {
    pub fn new(
        device: &Arc<Device>,
        plan: &SchwarzPlan,
        order: &Order,
        per: usize,
        deterministic: bool,
    ) -> Result<Self> {
        let (b, rows, what) = (plan.block, plan.rows(), "factors of subdomains with overlap");
        let size = b * b;
        let longest = plan.row_ptr.windows(2).map(|p| (p[1] - p[0]) as usize).max().unwrap_or(0);
        let (bytes, room) = (warp_bytes(longest, b), device.shared_memory() - 1024);
        if bytes > room {
            return Err(Error::Unsupported(format!(
                "a row of {longest} blocks of order {b} in the factors of a subdomain on a GPU, whose blocks of threads have \
                 {room} bytes of their own memory: take less fill, or device=cpu"
            )));
        }
        let warps = (1..=MOST_WARPS).rev().find(|w| w.is_power_of_two() && w * bytes <= SHARED).unwrap_or(1);
        let function = |entry| -> Result<CudaFunction> {
            let function = device.function(&kernel(entry, b))?;
            device.allow_shared(&function, 32 * warps, warps * bytes)?;
            Ok(function)
        };
        let runs = order::runs(plan, per);
        let shared = order.shared(device, warps, warps * bytes);
        let functions = Functions {
            diagonal: function("schwarz_diagonal")?,
            guess: function("schwarz_guess")?,
            eliminate: function("schwarz_eliminate")?,
            sweep: function("schwarz_sweep")?,
            defect: function("schwarz_defect")?,
            total: device.function(&kernel("schwarz_total", b))?,
        };
        device.allow_shared(&functions.eliminate, 32 * warps, shared)?;
        let numbers = plan.entries() * size;
        let pair = || -> Result<[Buffer<f64>; 2]> {
            Ok([device.room(numbers, what)?, device.room(rows * size, what)?])
        };
        let [factors, inverses] = pair()?;
        Ok(Self {
            row_ptr: device.upload(&plan.row_ptr, what)?,
            column: device.upload(&plan.column, what)?,
            diagonal: device.upload(&plan.diagonal, what)?,
            node: device.upload(&plan.node, what)?,
            source: device.upload(&plan.source, what)?,
            a: device.zeros((plan.blocks.own + plan.blocks.ghosts) * size, what)?,
            factors,
            inverses,
            before: if deterministic { Some(pair()?) } else { None },
            longest,
            warps,
            runs: device.upload(&runs, what)?,
            order: device.upload(&order.items, what)?,
            shared,
            ready: device.zeros(rows, what)?,
            ticket: device.zeros(1, what)?,
            epoch: 0,
            limit: time_limit()?.as_nanos() as u64,
            pivots: device.zeros(2, what)?,
            partial: device.zeros(2 * Self::grid_of(device, rows, warps), what)?,
            total: device.zeros(2, what)?,
            functions,
        })
    }

    /// Blocks of threads that go through all rows.
    fn grid_of(device: &Device, rows: usize, warps: usize) -> usize {
        rows.div_ceil(warps).clamp(1, 16 * device.multiprocessors())
    }

    fn rows(&self) -> usize {
        self.ready.len()
    }

    fn shared(&self, b: usize) -> usize {
        self.warps * warp_bytes(self.longest, b)
    }

    fn twin(&self) -> Rows {
        Rows {
            rows: self.rows() as i32,
            longest: self.longest as i32,
            row_ptr: self.row_ptr.pointer(),
            column: self.column.pointer(),
            diagonal: self.diagonal.pointer(),
            source: self.source.pointer(),
            node: self.node.pointer(),
            a: self.a.pointer(),
            factors: self.factors.pointer(),
            inverses: self.inverses.pointer(),
        }
    }

    /// Exact factors.
    pub fn eliminate(&mut self, space: &Cuda) -> Result<()> {
        let device = space.device();
        self.epoch = self.epoch.wrapping_add(1).max(1);
        device.clear(&mut self.ticket)?;
        device.write(&[u64::MAX, 0], &mut self.pivots, 0)?;
        // SAFETY: the parameter types are the kernel's; arrays are the plan's.
        unsafe {
            launch!(
                device,
                &self.functions.eliminate,
                self.rows().div_ceil(self.warps),
                32 * self.warps,
                self.shared,
                self.twin(),
                self.order.pointer(),
                self.ticket.pointer(),
                self.ready.pointer(),
                self.epoch,
                self.limit,
                self.pivots.pointer()
            )
        }
    }

    /// Randomized sweeps, from A or from the factors at hand.
    pub fn sweep(&mut self, space: &Cuda, b: usize, sweeps: usize, warm: bool) -> Result<()> {
        let (device, warps, shared) = (space.device(), self.warps, self.shared(b));
        let (grid, threads) = (Self::grid_of(device, self.rows(), warps), 32 * warps);
        if !warm {
            // SAFETY: the parameter types are the kernels'; arrays are the plan's.
            unsafe {
                launch!(device, &self.functions.diagonal, grid, threads, shared, self.twin())?;
                launch!(device, &self.functions.guess, grid, threads, 0, self.twin())?;
            }
        }
        let count = self.runs.len() - 1;
        let rounds = if self.before.is_some() { sweeps } else { 1 };
        for _ in 0..rounds {
            let from = match &mut self.before {
                Some([factors, inverses]) => {
                    std::mem::swap(factors, &mut self.factors);
                    std::mem::swap(inverses, &mut self.inverses);
                    [factors.pointer(), inverses.pointer()]
                }
                None => [0; 2],
            };
            // SAFETY: as above.
            unsafe {
                launch!(
                    device,
                    &self.functions.sweep,
                    count.div_ceil(warps),
                    threads,
                    shared,
                    self.twin(),
                    count as i32,
                    self.runs.pointer(),
                    (sweeps / rounds) as i32,
                    from[0],
                    from[1]
                )?;
            }
        }
        Ok(())
    }

    /// Sets out the sums of squares of (A − LU)_S, where `compare`, and of A.
    pub fn measure(&mut self, space: &Cuda, b: usize, compare: bool) -> Result<()> {
        let (device, grid) = (space.device(), self.partial.len() / 2);
        // SAFETY: the parameter types are the kernels'; there are two sums for each block of threads.
        unsafe {
            launch!(
                device,
                &self.functions.defect,
                grid,
                32 * self.warps,
                self.shared(b),
                self.twin(),
                compare as i32,
                self.partial.pointer()
            )?;
            let (partial, total) = (self.partial.pointer(), self.total.pointer());
            launch!(device, &self.functions.total, 1, 1024, 0, grid as i32, partial, total)
        }
    }

    /// What was measured, and how exact pivots were; waits.
    pub fn quality(&self, device: &Device, exact: bool, faulty: bool) -> Result<(FactorQuality, Pivots)> {
        let mut defect2 = [0.0; 2];
        device.read(&self.total, 0, &mut defect2)?;
        let quality = FactorQuality { defect2, finite: !faulty };
        if !exact {
            return Ok((quality, Pivots::default()));
        }
        let mut found = [0u64; 2];
        device.read(&self.pivots, 0, &mut found)?;
        let kind = match found[0] & 3 {
            0 => PivotKind::Zero,
            1 => PivotKind::Tiny,
            _ => PivotKind::NotFinite,
        };
        let first = (found[0] != u64::MAX).then_some(((found[0] >> 2) as u32, kind));
        Ok((quality, Pivots { bad: found[1] as u32 as usize, first, shifted: 0 }))
    }
}

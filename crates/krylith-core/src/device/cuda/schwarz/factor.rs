//! Factors of Schwarz's subdomains on a GPU: launches of `kernels/schwarz_factor.cu`.

use super::super::Cuda;
use super::super::driver::{Buffer, Device};
use super::super::launch::{Address, At, Entry, Function, Of, kernels};
use super::super::specialisations::define;
use super::order::{self, Order};
use crate::comm::time_limit;
use crate::precond::{FactorQuality, Pivots, SchwarzPlan};
use crate::{Error, Result};
use std::sync::Arc;

kernels! {
    SCHWARZ_FACTOR in "schwarz_factor.cu", |set| super::blocks(set).map(|b| kernel(schwarz_sweep, b).into()).collect();
    fn schwarz_diagonal(s: Rows);
    fn schwarz_guess(s: Rows);
    fn schwarz_eliminate(
        s: Rows, order: At<u32>, ticket: At<u32>, ready: At<u32>, epoch: u32, limit: u64, pivots: Address,
    );
    fn schwarz_sweep(
        s: Rows, count: i32, runs: At<u32>, sweeps: i32, from: At<f64>, from_inverses: At<f64>,
    );
    fn schwarz_defect(s: Rows, compare: i32, partial: At<f64>);
    fn schwarz_total(count: i32, partial: At<f64>, total: At<f64>);
}

/// Largest number of warps per thread block.
const MOST_WARPS: usize = 8;
/// Shared memory of a thread block, where rows allow it: four blocks fit on a multiprocessor.
const SHARED: usize = 56 << 10;

/// The pattern S, the values of the matrix, and L and U while they are computed.
pub(super) struct Factorizer {
    pub row_ptr: Buffer<i64>,
    pub column: Buffer<u32>,
    pub diagonal: Buffer<i64>,
    pub node: Buffer<u32>,
    source: Buffer<u32>,
    /// Stored blocks: own ones, followed by imported ones.
    pub a: Buffer<f64>,
    pub factors: Buffer<f64>,
    pub inverses: Buffer<f64>,
    /// Result of the sweep before, where sweeps are deterministic.
    before: Option<[Buffer<f64>; 2]>,
    longest: usize,
    warps: usize,
    runs: Buffer<u32>,
    order: Buffer<u32>,
    /// Shared memory of a thread block that eliminates.
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
    diagonal: Function<schwarz_diagonal>,
    guess: Function<schwarz_guess>,
    eliminate: Function<schwarz_eliminate>,
    sweep: Function<schwarz_sweep>,
    defect: Function<schwarz_defect>,
    total: Function<schwarz_total>,
}

/// Mirrors `struct Rows` in `kernels/schwarz_factor.cu`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(in crate::device::cuda) struct Rows {
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

/// Returns a kernel of `schwarz_factor.cu`.
pub(super) fn kernel<K: Entry>(entry: K, block: usize) -> Of<K> {
    entry.with(vec![define("ORDER", block)])
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
                "a row of the factors has {longest} blocks of order {b}, too many for a GPU with {room} bytes of shared memory \
                 per thread block; use less fill or device=cpu"
            )));
        }
        let warps = (1..=MOST_WARPS).rev().find(|w| w.is_power_of_two() && w * bytes <= SHARED).unwrap_or(1);
        fn load<K: Entry>(
            device: &Device,
            entry: K,
            b: usize,
            warps: usize,
            bytes: usize,
        ) -> Result<Function<K>> {
            let function = device.function(&kernel(entry, b))?;
            device.allow_shared(&function, 32 * warps, warps * bytes)?;
            Ok(function)
        }
        let runs = order::runs(plan, per);
        let shared = order.shared(device, warps, warps * bytes);
        let functions = Functions {
            diagonal: load(device, schwarz_diagonal, b, warps, bytes)?,
            guess: load(device, schwarz_guess, b, warps, bytes)?,
            eliminate: load(device, schwarz_eliminate, b, warps, bytes)?,
            sweep: load(device, schwarz_sweep, b, warps, bytes)?,
            defect: load(device, schwarz_defect, b, warps, bytes)?,
            total: device.function(&kernel(schwarz_total, b))?,
        };
        device.allow_shared(&functions.eliminate, 32 * warps, shared)?;
        let numbers = plan.entries() * size;
        let pair = || -> Result<[Buffer<f64>; 2]> {
            Ok([device.allocate(numbers, what)?, device.allocate(rows * size, what)?])
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

    /// Number of thread blocks that loop over all rows.
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

    /// Computes exact factors.
    pub fn eliminate(&mut self, space: &Cuda) -> Result<()> {
        let device = space.device();
        self.epoch = self.epoch.wrapping_add(1).max(1);
        device.clear(&mut self.ticket)?;
        device.write(&[u64::MAX, 0], &mut self.pivots, 0)?;
        self.functions
            .eliminate
            .on(device, self.rows().div_ceil(self.warps), 32 * self.warps)
            .shared(self.shared)
            .run(self.twin(), &self.order, &self.ticket, &self.ready, self.epoch, self.limit, &self.pivots)
    }

    /// Runs randomized sweeps, from A or from the present factors.
    pub fn sweep(&mut self, space: &Cuda, b: usize, sweeps: usize, warm: bool) -> Result<()> {
        let (device, warps, shared) = (space.device(), self.warps, self.shared(b));
        let (grid, threads) = (Self::grid_of(device, self.rows(), warps), 32 * warps);
        if !warm {
            self.functions.diagonal.on(device, grid, threads).shared(shared).run(self.twin())?;
            self.functions.guess.on(device, grid, threads).run(self.twin())?;
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
            self.functions.sweep.on(device, count.div_ceil(warps), threads).shared(shared).run(
                self.twin(),
                count as i32,
                &self.runs,
                (sweeps / rounds) as i32,
                from[0],
                from[1],
            )?;
        }
        Ok(())
    }

    /// Launches the sums of squares of A and, with `compare`, of (A − LU)_S.
    pub fn measure(&mut self, space: &Cuda, b: usize, compare: bool) -> Result<()> {
        let (device, grid) = (space.device(), self.partial.len() / 2);
        self.functions.defect.on(device, grid, 32 * self.warps).shared(self.shared(b)).run(
            self.twin(),
            compare as i32,
            &self.partial,
        )?;
        self.functions.total.on(device, 1, 1024).run(grid as i32, &self.partial, &self.total)
    }

    /// Returns the measured sums and the accuracy of the pivots; waits.
    pub fn quality(&self, device: &Device, exact: bool, faulty: bool) -> Result<FactorQuality> {
        let (mut defect2, mut found) = ([0.0; 2], [u64::MAX, 0]);
        device.read(&self.total, 0, &mut defect2)?;
        if exact {
            device.read(&self.pivots, 0, &mut found)?;
        }
        Ok(FactorQuality { pivots: Pivots::of_kernel(found), defect2, finite: !faulty })
    }
}

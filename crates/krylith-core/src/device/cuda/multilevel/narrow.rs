//! Cycles in f32 on a GPU (`precond/multilevel/narrow.rs`): the products and smoother steps of `csr.cu`,
//! `dia.cu` and `amg_narrow_block.cu`, the transfers of `amg_transfer.cu`, and `amg_narrow.cu`.

mod parts;
mod short;

pub(crate) use short::likely_in_bf16;
pub(in crate::device::cuda) use short::{BF16, Diagonals, round_diagonals, round_rows};

use super::super::Cuda;
use super::super::compiler::Kernel;
use super::super::dia;
use super::super::driver::{Buffer, Device};
use super::super::launch::{Address, At, Entry, Function, Of, Set, kernels};
use super::super::smooth::Smooth;
use super::super::specialisations::define;
use crate::operator::check_lengths;
use crate::precond::{NarrowCycle, NarrowLevel};
use crate::space::PrecondPrecision;
use crate::{Error, Result};
use parts::{Level, Smoother, Two, common_exponent};
use std::sync::Arc;

kernels! {
    NARROW in "amg_narrow.cu", |_| vec![narrow_in.plain().into()];
    fn narrow_in(
        halt: At<i32>, n: i64, from: At<f64>, scale: Address, shift: i32, again: i32, b: At<f32>, d: At<f32>, c: At<f64>, x: At<f32>,
    );
    fn narrow_out(halt: At<i32>, n: i64, from: At<f32>, scale: Address, x: At<f64>);
    fn narrow_first(halt: At<i32>, n: i64, d: At<f32>, b: At<f32>, c: At<f64>, x: At<f32>);
    fn narrow_dense(halt: At<i32>, n: i32, a: At<f32>, x: At<f32>, y: At<f32>);
    fn narrow_values(n: i64, from: At<f64>, shift: i32, to: At<f32>);
    fn narrow_range(n: i64, stride: i32, v: At<f64>, range: At<u32>);
}

kernels! {
    NARROW_BLOCK in "amg_narrow_block.cu", all_blocks;
    fn narrow_block(
        halt: At<i32>, rows: i64, lanes: i32, row_ptr: At<i64>, col: At<u32>, values: At<f32>,
        coefficient: At<f64>, of: Step, y: At<f32>,
    );
    fn narrow_block_first(halt: At<i32>, n: i64, d: At<f32>, b: At<f32>, c: At<f64>, x: At<f32>);
    fn narrow_block_unit(n: i64, column: i32, x: At<f64>);
    fn narrow_block_column(n: i64, from: At<f64>, column: i32, shift: i32, to: At<f32>);
}

/// Mirrors `struct Step` in `kernels/amg_narrow_block.cu`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(in crate::device::cuda) struct Step {
    x: u64,
    b: u64,
    d: u64,
    p: u64,
    a: u64,
    c: u64,
    last: i32,
    keeps: i32,
}

const _: () = assert!(size_of::<Step>() == 56);

impl From<Smooth> for Step {
    fn from(of: Smooth) -> Self {
        let Smooth { x, b, d, p, a, c, last, keeps, .. } = of;
        Self { x, b, d, p, a, c, last, keeps }
    }
}

/// Largest order of blocks.
const MOST_BLOCK: usize = 8;

/// Returns a kernel for blocks of this order.
fn of_blocks<K: Entry>(entry: K, block: usize) -> Of<K> {
    entry.with(vec![define("BLOCK", block)])
}

fn all_blocks(set: Set) -> Vec<Kernel> {
    set.choose(2..=MOST_BLOCK, [3]).into_iter().map(|block| of_blocks(narrow_block, block).into()).collect()
}

/// Returns the kernels of cycles in f32 for blocks of this order, and for scalar rows with this many entries.
pub(crate) fn likely(block: usize, entries: usize) -> Vec<Kernel> {
    let mut all: Vec<Kernel> = vec![narrow_in.plain().into()];
    all.push(super::apply::amg_transfer::of(crate::space::Precision::F32).into());
    match block {
        1 => all.extend(super::super::csr::narrow_kernels().into_iter().chain(dia::likely_in_f32(entries))),
        _ => all.push(of_blocks(narrow_block, block).into()),
    }
    all
}

const WHAT: &str = "a multigrid cycle in f32";
/// Smoothing sweeps on the last level if it has no inverse.
const SMOOTHED: usize = 10;

/// Rounds numbers times 2^shift to f32.
pub(in crate::device::cuda) fn narrowed(
    device: &Arc<Device>,
    from: &Buffer<f64>,
    shift: i32,
) -> Result<Buffer<f32>> {
    let to = device.allocate::<f32>(from.len(), WHAT)?;
    narrow_again(device, from, shift, &to)?;
    Ok(to)
}

/// Rounds numbers times 2^shift to f32 in existing memory. Returns false if that has another length.
pub(in crate::device::cuda) fn narrow_again(
    device: &Arc<Device>,
    from: &Buffer<f64>,
    shift: i32,
    to: &Buffer<f32>,
) -> Result<bool> {
    if from.len() != to.len() {
        return Ok(false);
    }
    let function = device.function(&narrow_values.plain())?;
    function.on(device, grid(device, from.len()), 256).run(from.len() as i64, from, shift, to)?;
    Ok(true)
}

fn grid(device: &Device, n: usize) -> usize {
    n.div_ceil(256).clamp(1, 16 * device.multiprocessors())
}

/// A V-cycle in f32.
pub(in crate::device::cuda) struct Narrow {
    levels: Vec<Level>,
    /// The matrices are multiplied by 2^shift.
    shift: i32,
    /// True if a level that bf16 does not suit is in f32. Other values may suit it.
    promoted: bool,
    /// Mirrors `struct Scale` in `kernels/amg_narrow.cu`.
    scale: Buffer<u64>,
    kernels: Kernels,
}

/// Numbers of 8 bytes in `struct Scale`, and the position of its member `result` in bytes.
const SCALE: usize = 3;
const RESULT: u64 = 4;

struct Kernels {
    to_f32: Function<narrow_in>,
    to_f64: Function<narrow_out>,
    first: Function<narrow_first>,
    dense: Function<narrow_dense>,
}

impl Narrow {
    /// Makes the cycle of these levels. Returns `None` if a product has no kernels in f32, or if the range of
    /// the numbers is too large.
    ///
    /// # Errors
    /// Out of device memory.
    pub fn new(on: &Cuda, levels: &[NarrowLevel<Cuda>], stored: PrecondPrecision) -> Result<Option<Self>> {
        let device = on.device();
        let Some(shift) = common_exponent(device, levels)? else { return Ok(None) };
        let mut made = Vec::new();
        for (depth, level) in levels.iter().enumerate() {
            let Some(level) = Level::new(level, shift, depth == 0, stored)? else { return Ok(None) };
            made.push(level);
        }
        let kernels = Kernels {
            to_f32: device.function(&narrow_in.plain())?,
            to_f64: device.function(&narrow_out.plain())?,
            first: device.function(&narrow_first.plain())?,
            dense: device.function(&narrow_dense.plain())?,
        };
        let asked = stored == PrecondPrecision::Bf16 && levels.iter().all(|level| level.terms.block() == 1);
        let promoted = asked && made.iter().any(|level| level.smoother.is_some() && !level.is_in_bf16());
        Ok(Some(Self { levels: made, shift, promoted, scale: device.zeros(SCALE, WHAT)?, kernels }))
    }

    /// Computes x ← B b on a level, and returns x. With `begun` the first step is already in u. If the last
    /// step of the finest level can write to `result` in f64, it does, and nothing is returned.
    fn cycle<'a>(
        &'a self,
        on: &Cuda,
        depth: usize,
        begun: bool,
        result: Option<u64>,
    ) -> Result<Option<&'a Buffer<f32>>> {
        let (level, device) = (&self.levels[depth], on.device());
        if let Some(inverse) = &level.inverse {
            let launch = self.kernels.dense.on(device, (32 * level.rows).div_ceil(256).max(1), 256);
            launch.run(on.halt(), level.rows as i32, inverse, &level.b, &level.u)?;
            return Ok(Some(&level.u));
        }
        let lost = || Error::Internal("a level of a cycle in f32 has neither smoother nor inverse".into());
        let smoother = level.smoother.as_ref().ok_or_else(lost)?;
        let result = result.filter(|_| smoother.writes_f64()).map(|to| (to, self.scale.pointer() + RESULT));
        let mut at = self.begin(on, level, smoother, begun)?;
        let Some([p, r]) = &level.transfer else {
            for k in 1..SMOOTHED {
                at = level.steps(on, smoother, at, (0, false), result.filter(|_| k + 1 == SMOOTHED))?;
            }
            return Ok(result.is_none().then_some(at.0));
        };
        let coarse = self.levels.get(depth + 1).ok_or_else(lost)?;
        let left_over = Smooth { x: at.0.pointer(), b: level.b.pointer(), ..Smooth::default() };
        smoother.product(on, left_over, at.1.pointer())?;
        r.apply(on, at.1, &coarse.b, false)?;
        let correction = self.cycle(on, depth + 1, false, None)?.ok_or_else(lost)?;
        p.apply(on, correction, at.0, true)?;
        let at = level.steps(on, smoother, at, (0, false), result)?;
        Ok(result.is_none().then_some(at.0))
    }

    /// Makes the steps from x = 0. Returns x and the other vector.
    fn begin<'a>(&self, on: &Cuda, level: &'a Level, of: &Smoother, begun: bool) -> Result<Two<'a>> {
        let two = (&level.u, &level.v);
        if of.starts_in_product() {
            return level.steps(on, of, two, (1, true), None);
        }
        if !begun {
            let (device, n, c) = (on.device(), level.rows, of.coefficients.at(1));
            let (grid, halt) = (grid(device, n), on.halt());
            match of.first_of_blocks() {
                Some(first) => {
                    first.on(device, grid, 256).run(halt, n as i64, &of.d, &level.b, c, &level.u)?
                }
                None => self
                    .kernels
                    .first
                    .on(device, grid, 256)
                    .run(halt, n as i64, &of.d, &level.b, c, &level.u)?,
            }
        }
        level.steps(on, of, two, (1, false), None)
    }
}

impl NarrowCycle<Cuda> for Narrow {
    fn apply(&self, on: &Cuda, b: &Buffer<f64>, x: &mut Buffer<f64>) -> Result<()> {
        let (device, level) = (on.device(), &self.levels[0]);
        let n = level.rows;
        check_lengths(n, n, b.len(), x.len())?;
        if n == 0 {
            return Ok(());
        }
        let (grid, halt) = (grid(device, n), on.halt());
        // Without a pass for it, the first step is made together with the conversion.
        let starts = |of: &&Smoother| !of.starts_in_product() && of.first_of_blocks().is_none();
        let first = level.smoother.as_ref().filter(starts);
        let (d, c) = first.map_or((0, 0), |of| (of.d.pointer(), of.coefficients.at(1)));
        for again in [0, 1] {
            let (launch, shift) = (self.kernels.to_f32.on(device, grid, 256), self.shift);
            launch.run(halt, n as i64, b, &self.scale, shift, again, &level.b, d, c, &level.u)?;
        }
        match self.cycle(on, 0, first.is_some(), Some(x.pointer()))? {
            None => Ok(()),
            Some(found) => {
                self.kernels.to_f64.on(device, grid, 256).run(halt, n as i64, found, &self.scale, &*x)
            }
        }
    }

    fn update(&mut self, levels: &[NarrowLevel<Cuda>]) -> Result<bool> {
        let same = levels.len() == self.levels.len() && !self.promoted;
        let Some(first) = levels.first().filter(|_| same) else {
            return Ok(false);
        };
        if common_exponent(first.space.device(), levels)? != Some(self.shift) {
            return Ok(false);
        }
        for (own, from) in self.levels.iter_mut().zip(levels) {
            if !own.update(from, self.shift)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn in_bf16(&self) -> [usize; 2] {
        let with = |wanted: &dyn Fn(&Level) -> bool| self.levels.iter().filter(|level| wanted(level)).count();
        [with(&|level| level.is_in_bf16()), with(&|level| level.smoother.is_some())]
    }

    fn bytes(&self) -> u64 {
        self.levels.iter().map(Level::bytes).sum::<u64>() + 32 * self.levels[0].rows as u64
    }
}

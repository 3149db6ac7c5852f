//! The OKP paper's own kernels, compiled at run time for a block size and a number of stages.

use super::kernels::{self, Arg, Kernel, Module, Source};
use super::products::{Blocks, Layout, Pairs};
use super::vendor::Vendor;
use cudarc::nvrtc::Ptx;
use krylith_core::matrix::KroneckerSum;
use krylith_core::{Error, Result};
use std::rc::Rc;

const SOURCE: Source = ("paper.cu", include_str!("paper.cu"));

fn macros(block: usize, stages: usize, threads: usize) -> [(&'static str, usize); 4] {
    let alpha = 32usize.div_ceil(2 * block).next_power_of_two();
    [("B", block), ("S", stages), ("THREADS", threads), ("ALPHA", alpha)]
}

/// Returns the PTX of the paper's kernels for an architecture such as (9, 0).
///
/// # Errors
/// Returns an error if NVRTC is missing, or with the compiler's messages.
pub fn compile_for(block: usize, stages: usize, threads: usize, arch: (i32, i32)) -> Result<Ptx> {
    kernels::compile(SOURCE, &macros(block, stages, threads), arch)
}

/// The two kernels, loaded.
pub(super) struct Kernels {
    combine: Kernel,
    rows: Kernel,
}

impl Kernels {
    /// Loads the kernels with `threads` threads per block; the paper gives no number.
    ///
    /// # Errors
    /// Returns an error for a block size over 5, which Alg. 3 does not cover, and for failures of NVRTC.
    pub fn load(vendor: &Rc<Vendor>, block: usize, stages: usize, threads: usize) -> Result<Self> {
        if block > 5 {
            return Err(Error::Unsupported(format!(
                "Alg. 3 maps whole blocks to a warp; b = {block} does not fit"
            )));
        }
        let module = Module::load(vendor, SOURCE, &macros(block, stages, threads))?;
        let kernel = |name| module.kernel(name, threads, 0);
        Ok(Self { combine: kernel("stage_combination")?, rows: kernel("warp_per_block_row")? })
    }

    /// Computes x̃ = X Cᵀ with q numbers per stage (Alg. 2).
    pub fn combine(&self, q: usize, coefficients: u64, x: u64, out: u64) -> Result<()> {
        let [coefficients, x, out] = [coefficients, x, out].map(Arg::Pointer);
        self.combine.launch_for(q, &[Arg::Int(q as i32), coefficients, x, out])
    }

    /// Computes o = M x̃, or o += M x̃, with p numbers per stage of x̃ (Alg. 3).
    pub fn rows(&self, blocks: &Blocks, middle: u64, p: usize, add: bool, y: u64) -> Result<()> {
        let [n, p, q] = [blocks.rows, p, blocks.rows * blocks.block].map(|size| Arg::Int(size as i32));
        let [rows, columns, values] = blocks.addresses();
        let [rows, columns, values, middle, y] = [rows, columns, values, middle, y].map(Arg::Pointer);
        let add = Arg::Int(add.into());
        self.rows.launch_for(32 * blocks.rows, &[n, rows, columns, values, middle, p, q, add, y])
    }
}

/// The product as the paper composes it: Alg. 2, Alg. 3 with M, Alg. 2, Alg. 3 with L added.
pub(super) struct Paper {
    kernels: Kernels,
    pub pairs: Pairs,
}

impl Paper {
    /// # Errors
    /// Returns the errors of [`Kernels::load`], and one if memory is not sufficient.
    pub fn new(vendor: &Rc<Vendor>, k: &KroneckerSum, sets: usize, threads: usize) -> Result<Self> {
        let kernels = Kernels::load(vendor, k.block(), k.stages(), threads)?;
        Ok(Self { kernels, pairs: Pairs::new(vendor, k, Layout::Columns, sets)? })
    }

    pub fn threads(&self) -> usize {
        self.kernels.rows.threads
    }

    pub fn multiply(&self, set: usize, x: u64, y: u64) -> Result<()> {
        let (blocks, middle) = (&self.pairs.sets[set], self.pairs.middle.pointer());
        let q = blocks[0].rows * blocks[0].block;
        for t in 0..2 {
            self.kernels.combine(q, self.pairs.coefficients[t].pointer(), x, middle)?;
            self.kernels.rows(&blocks[t], middle, q, t == 1, y)?;
        }
        Ok(())
    }
}

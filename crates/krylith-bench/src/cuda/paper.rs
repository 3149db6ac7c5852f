//! The OKP paper's own kernels, compiled at run time for a block size and a number of stages.

use super::products::{Blocks, Layout, Sets};
use super::vendor::{Vendor, loading, missing};
use crate::platform::Product;
use cudarc::driver::{CudaFunction, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::{CompileOptions, Ptx, compile_ptx_with_opts, sys};
use krylith::device::cuda::Buffer;
use krylith::matrix::KroneckerSum;
use krylith::{Error, Result};
use std::rc::Rc;

const LIBRARY: &str = "libnvrtc.so.13";

/// PTX of the paper's kernels for an architecture, such as (9, 0).
///
/// # Errors
/// A missing NVRTC, or the compiler's messages.
pub fn compile_for(block: usize, stages: usize, threads: usize, arch: (i32, i32)) -> Result<Ptx> {
    // SAFETY: only looks for the library.
    if !unsafe { sys::is_culib_present() } {
        return Err(missing(LIBRARY, "the CUDA runtime compiler was not found"));
    }
    let alpha = 32usize.div_ceil(2 * block).next_power_of_two();
    let define = |name: &str, value: usize| format!("-D{name}={value}");
    let options = CompileOptions {
        options: vec![
            format!("--gpu-architecture=compute_{}{}", arch.0, arch.1),
            define("B", block),
            define("S", stages),
            define("THREADS", threads),
            define("ALPHA", alpha),
        ],
        name: Some("paper.cu".into()),
        ..Default::default()
    };
    loading(LIBRARY, || {
        compile_ptx_with_opts(include_str!("paper.cu"), options).map_err(|e| {
            Error::Unsupported(format!("NVRTC refused paper.cu (b = {block}, s = {stages}): {e:?}"))
        })
    })
}

/// The two kernels, loaded.
pub(super) struct Kernels {
    vendor: Rc<Vendor>,
    combine: CudaFunction,
    rows: CudaFunction,
    pub threads: usize,
}

impl Kernels {
    /// `threads` threads a block; the paper gives no number.
    ///
    /// # Errors
    /// A block size over 5, which Alg. 3 does not cover; NVRTC.
    pub fn load(vendor: &Rc<Vendor>, block: usize, stages: usize, threads: usize) -> Result<Self> {
        if block > 5 {
            return Err(Error::Unsupported(format!(
                "Alg. 3 maps whole blocks to a warp; b = {block} does not fit"
            )));
        }
        let ptx = compile_for(block, stages, threads, vendor.device.info().arch)?;
        let fail = |call: &str, e| vendor.failure(call, e);
        let context = vendor.device.stream().context();
        let module = context.load_module(ptx).map_err(|e| fail("cuModuleLoadData", e))?;
        let function = |name: &str| module.load_function(name).map_err(|e| fail("cuModuleGetFunction", e));
        let (combine, rows) = (function("stage_combination")?, function("warp_per_block_row")?);
        Ok(Self { vendor: vendor.clone(), combine, rows, threads })
    }

    fn config(&self, threads: usize) -> LaunchConfig {
        LaunchConfig {
            grid_dim: (threads.div_ceil(self.threads) as u32, 1, 1),
            block_dim: (self.threads as u32, 1, 1),
            shared_mem_bytes: 0,
        }
    }

    /// x̃ = X Cᵀ with q numbers a stage (Alg. 2).
    pub fn combine(&self, q: usize, coefficients: u64, x: u64, out: u64) -> Result<()> {
        let (config, q) = (self.config(q), q as i32);
        let mut launch = self.vendor.device.stream().launch_builder(&self.combine);
        // SAFETY: arguments have the kernel's types; the caller's buffers hold q numbers a stage.
        let done = unsafe { launch.arg(&q).arg(&coefficients).arg(&x).arg(&out).launch(config) };
        done.map(|_| ()).map_err(|e| self.vendor.failure("cuLaunchKernel", e))
    }

    /// o = M x̃, or o += M x̃, with p numbers a stage of x̃ (Alg. 3).
    pub fn rows(&self, blocks: &Blocks, middle: u64, p: usize, add: bool, y: u64) -> Result<()> {
        let (n, p, q) = (blocks.rows as i32, p as i32, (blocks.rows * blocks.block) as i32);
        let ((rows, columns), values, add) = (blocks.pattern(), blocks.values.pointer(), i32::from(add));
        let mut launch = self.vendor.device.stream().launch_builder(&self.rows);
        launch.arg(&n).arg(&rows).arg(&columns).arg(&values).arg(&middle).arg(&p).arg(&q).arg(&add).arg(&y);
        // SAFETY: as above; buffers were sized for this matrix.
        let done = unsafe { launch.launch(self.config(32 * blocks.rows)) };
        done.map(|_| ()).map_err(|e| self.vendor.failure("cuLaunchKernel", e))
    }
}

/// The product as the paper composes it: Alg. 2, Alg. 3 with M, Alg. 2, Alg. 3 with L added.
pub(super) struct Paper {
    kernels: Kernels,
    coefficients: [Buffer<f64>; 2],
    sets: Sets,
}

impl Paper {
    /// # Errors
    /// As [`Kernels::load`]; no room.
    pub fn new(vendor: &Rc<Vendor>, k: &KroneckerSum, sets: usize, threads: usize) -> Result<Self> {
        let kernels = Kernels::load(vendor, k.block(), k.stages(), threads)?;
        let scaled: Vec<f64> = k.b.values().iter().map(|v| k.tau * v).collect();
        let device = &vendor.device;
        Ok(Self {
            kernels,
            coefficients: [device.upload(k.a.values(), "A")?, device.upload(&scaled, "B")?],
            sets: Sets::new(vendor, k, Layout::Columns, sets)?,
        })
    }
}

impl Product for Paper {
    fn name(&self) -> String {
        "the paper's kernels (Alg. 2 + 3)".into()
    }
    fn notes(&self) -> String {
        format!("{} threads a block", self.kernels.threads)
    }
    fn write(&mut self, x: &[f64]) -> Result<()> {
        self.sets.write(x)
    }
    fn poison(&mut self, set: usize) -> Result<()> {
        self.sets.poison(set)
    }
    fn run(&mut self, set: usize) -> Result<()> {
        let (one, middle) = (&self.sets.sets[set], self.sets.middle.pointer());
        let q = one.blocks[0].rows * one.blocks[0].block;
        for t in 0..2 {
            self.kernels.combine(q, self.coefficients[t].pointer(), one.x.pointer(), middle)?;
            self.kernels.rows(&one.blocks[t], middle, q, t == 1, one.y.pointer())?;
        }
        Ok(())
    }
    fn read(&mut self, set: usize) -> Result<Vec<f64>> {
        self.sets.read(set)
    }
}

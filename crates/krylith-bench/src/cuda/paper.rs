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

/// The product as the paper composes it: Alg. 2, Alg. 3 with M, Alg. 2, Alg. 3 with L added.
pub(super) struct Paper {
    vendor: Rc<Vendor>,
    combine: CudaFunction,
    rows: CudaFunction,
    threads: usize,
    coefficients: [Buffer<f64>; 2],
    sets: Sets,
}

impl Paper {
    /// `threads` threads a block; the paper gives no number.
    ///
    /// # Errors
    /// A block size over 5, which Alg. 3 does not cover; NVRTC; no room.
    pub fn new(vendor: &Rc<Vendor>, k: &KroneckerSum, sets: usize, threads: usize) -> Result<Self> {
        let (b, s) = (k.block(), k.stages());
        if b > 5 {
            return Err(Error::Unsupported(format!(
                "Alg. 3 maps whole blocks to a warp; b = {b} does not fit"
            )));
        }
        let device = &vendor.device;
        let ptx = compile_for(b, s, threads, device.info().arch)?;
        let fail = |call: &str, e| vendor.failure(call, e);
        let module = device.stream().context().load_module(ptx).map_err(|e| fail("cuModuleLoadData", e))?;
        let function = |name: &str| module.load_function(name).map_err(|e| fail("cuModuleGetFunction", e));
        let scaled: Vec<f64> = k.b.values().iter().map(|v| k.tau * v).collect();
        Ok(Self {
            vendor: vendor.clone(),
            combine: function("stage_combination")?,
            rows: function("warp_per_block_row")?,
            threads,
            coefficients: [device.upload(k.a.values(), "A")?, device.upload(&scaled, "B")?],
            sets: Sets::new(vendor, k, Layout::Columns, sets)?,
        })
    }

    fn launch(&self, x: u64, blocks: &Blocks, coefficients: u64, add: i32, y: u64) -> Result<()> {
        let (q, middle) = ((blocks.rows * blocks.block) as i32, self.sets.middle.pointer());
        let config = |threads: usize| LaunchConfig {
            grid_dim: (threads.div_ceil(self.threads) as u32, 1, 1),
            block_dim: (self.threads as u32, 1, 1),
            shared_mem_bytes: 0,
        };
        let stream = self.vendor.device.stream();
        let (n, (rows, columns), values) = (blocks.rows as i32, blocks.pattern(), blocks.values.pointer());
        // SAFETY: arguments have the kernels' types; buffers were sized for this matrix.
        unsafe {
            stream
                .launch_builder(&self.combine)
                .arg(&q)
                .arg(&coefficients)
                .arg(&x)
                .arg(&middle)
                .launch(config(q as usize))
                .map_err(|e| self.vendor.failure("cuLaunchKernel", e))?;
            stream
                .launch_builder(&self.rows)
                .arg(&n)
                .arg(&rows)
                .arg(&columns)
                .arg(&values)
                .arg(&middle)
                .arg(&q)
                .arg(&add)
                .arg(&y)
                .launch(config(32 * blocks.rows))
                .map_err(|e| self.vendor.failure("cuLaunchKernel", e))?;
        }
        Ok(())
    }
}

impl Product for Paper {
    fn name(&self) -> String {
        "the paper's kernels (Alg. 2 + 3)".into()
    }
    fn notes(&self) -> String {
        format!("{} threads a block", self.threads)
    }
    fn write(&mut self, x: &[f64]) -> Result<()> {
        self.sets.write(x)
    }
    fn poison(&mut self, set: usize) -> Result<()> {
        self.sets.poison(set)
    }
    fn run(&mut self, set: usize) -> Result<()> {
        let one = &self.sets.sets[set];
        for t in 0..2 {
            let coefficients = self.coefficients[t].pointer();
            self.launch(one.x.pointer(), &one.blocks[t], coefficients, t as i32, one.y.pointer())?;
        }
        Ok(())
    }
    fn read(&mut self, set: usize) -> Result<Vec<f64>> {
        self.sets.read(set)
    }
}

//! The published products of `products.cu`: compiled at run time, loaded, launched.

use crate::cuda::vendor::{Vendor, loading, missing};
use cudarc::driver::{CudaFunction, CudaModule, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::{CompileOptions, Ptx, compile_ptx_with_opts, sys};
use krylith::{Error, Result};
use std::rc::Rc;
use std::sync::Arc;

const LIBRARY: &str = "libnvrtc.so.13";

/// PTX for a number of threads a row and of items a thread, and an architecture such as (9, 0).
///
/// # Errors
/// A missing NVRTC, or the compiler's messages.
pub fn compile(threads: usize, items: usize, arch: (i32, i32)) -> Result<Ptx> {
    // SAFETY: only looks for the library.
    if !unsafe { sys::is_culib_present() } {
        return Err(missing(LIBRARY, "the CUDA runtime compiler was not found"));
    }
    let options = CompileOptions {
        options: vec![
            format!("--gpu-architecture=compute_{}{}", arch.0, arch.1),
            format!("-DWIDTH={threads}"),
            format!("-DITEMS={items}"),
        ],
        name: Some("products.cu".into()),
        ..Default::default()
    };
    loading(LIBRARY, || {
        compile_ptx_with_opts(include_str!("products.cu"), options).map_err(|e| {
            Error::Unsupported(format!("NVRTC refused products.cu ({threads} threads a row): {e:?}"))
        })
    })
}

/// An argument of a kernel.
#[derive(Debug, Clone, Copy)]
pub(super) enum Arg {
    Pointer(u64),
    Long(i64),
}

/// The file for some numbers.
pub(super) struct Module {
    vendor: Rc<Vendor>,
    module: Arc<CudaModule>,
}

impl Module {
    pub fn load(vendor: &Rc<Vendor>, threads: usize, items: usize) -> Result<Self> {
        let ptx = compile(threads, items, vendor.device.info().arch)?;
        let loaded = vendor.device.stream().context().load_module(ptx);
        Ok(Self {
            vendor: vendor.clone(),
            module: loaded.map_err(|e| vendor.failure("cuModuleLoadData", e))?,
        })
    }

    pub fn kernel(&self, name: &str, threads: usize) -> Result<Kernel> {
        let found = self.module.load_function(name);
        let function = found.map_err(|e| self.vendor.failure("cuModuleGetFunction", e))?;
        Ok(Kernel { vendor: self.vendor.clone(), function, threads })
    }
}

/// A kernel with its number of threads.
pub(super) struct Kernel {
    vendor: Rc<Vendor>,
    function: CudaFunction,
    threads: usize,
}

impl Kernel {
    /// The caller's arguments are those of the kernel, in number, order and type, and its buffers are large enough: all callers are
    /// in this folder. No blocks are no launch.
    pub fn launch(&self, blocks: usize, args: &[Arg]) -> Result<()> {
        if blocks == 0 {
            return Ok(());
        }
        let config = LaunchConfig {
            grid_dim: (blocks as u32, 1, 1),
            block_dim: (self.threads as u32, 1, 1),
            shared_mem_bytes: 0,
        };
        let mut launch = self.vendor.device.stream().launch_builder(&self.function);
        for arg in args {
            match arg {
                Arg::Pointer(p) => launch.arg(p),
                Arg::Long(i) => launch.arg(i),
            };
        }
        // SAFETY: see above.
        let done = unsafe { launch.launch(config) };
        done.map(|_| ()).map_err(|e| self.vendor.failure("cuLaunchKernel", e))
    }
}

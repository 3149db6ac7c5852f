//! The `.cu` files of this folder and of the suite ras: compiled at run time for a block size, loaded, launched.

use crate::cuda::vendor::{Vendor, loading, missing};
use cudarc::driver::sys::CUfunction_attribute;
use cudarc::driver::{CudaFunction, CudaModule, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::{CompileOptions, Ptx, compile_ptx_with_opts, sys};
use krylith::{Error, Result};
use std::rc::Rc;
use std::sync::Arc;

const LIBRARY: &str = "libnvrtc.so.13";

/// One of the files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::cuda) enum File {
    Spin,
    Dag,
    LowerLevels,
    UpperLevels,
    BiCgStab,
    Jacobi,
    Schwarz,
}

impl File {
    pub const ALL: [File; 7] = [
        File::Spin,
        File::Dag,
        File::LowerLevels,
        File::UpperLevels,
        File::BiCgStab,
        File::Jacobi,
        File::Schwarz,
    ];

    fn source(self) -> (&'static str, &'static str) {
        match self {
            File::Spin => ("spin.cu", include_str!("spin.cu")),
            File::Dag => ("dag.cu", include_str!("dag.cu")),
            File::LowerLevels | File::UpperLevels => ("levels.cu", include_str!("levels.cu")),
            File::BiCgStab => ("bicgstab.cu", include_str!("bicgstab.cu")),
            File::Jacobi => ("jacobi.cu", include_str!("jacobi.cu")),
            File::Schwarz => ("schwarz.cu", include_str!("../ras/schwarz.cu")),
        }
    }
}

fn compile(file: File, block: usize, threads: usize, arch: (i32, i32)) -> Result<Ptx> {
    // SAFETY: only looks for the library.
    if !unsafe { sys::is_culib_present() } {
        return Err(missing(LIBRARY, "the CUDA runtime compiler was not found"));
    }
    let (name, source) = file.source();
    let options = CompileOptions {
        options: vec![
            format!("--gpu-architecture=compute_{}{}", arch.0, arch.1),
            format!("-DB={block}"),
            format!("-DTHREADS={threads}"),
            format!("-DUPPER={}", u8::from(file == File::UpperLevels)),
        ],
        name: Some(name.into()),
        ..Default::default()
    };
    loading(LIBRARY, || {
        compile_ptx_with_opts(source, options).map_err(|e| {
            Error::Unsupported(format!("NVRTC refused {name} (b = {block}, {threads} threads): {e:?}"))
        })
    })
}

/// PTX of every file of the suites ildu0 and ras for a block size, a number of threads and an architecture such as (9, 0).
///
/// # Errors
/// A missing NVRTC, or the compiler's messages.
pub fn compile_all(block: usize, threads: usize, arch: (i32, i32)) -> Result<Vec<String>> {
    File::ALL.iter().map(|&file| Ok(compile(file, block, threads, arch)?.to_src())).collect()
}

/// An argument of a kernel.
#[derive(Debug, Clone, Copy)]
pub(in crate::cuda) enum Arg {
    Pointer(u64),
    Int(i32),
    Unsigned(u32),
}

/// A loaded file.
pub(in crate::cuda) struct Module {
    vendor: Rc<Vendor>,
    module: Arc<CudaModule>,
    threads: usize,
}

impl Module {
    pub fn load(vendor: &Rc<Vendor>, file: File, block: usize, threads: usize) -> Result<Self> {
        let ptx = compile(file, block, threads, vendor.device.info().arch)?;
        let loaded = vendor.device.stream().context().load_module(ptx);
        let module = loaded.map_err(|e| vendor.failure("cuModuleLoadData", e))?;
        Ok(Self { vendor: vendor.clone(), module, threads })
    }

    /// A kernel that may take `shared` bytes of dynamic shared memory.
    ///
    /// # Errors
    /// No such kernel, or more shared memory than a block may have.
    pub fn kernel(&self, name: &str, shared: usize) -> Result<Kernel> {
        let fail = |call: &str, e| self.vendor.failure(call, e);
        let function = self.module.load_function(name).map_err(|e| fail("cuModuleGetFunction", e))?;
        if shared > 48 << 10 {
            let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            let done = function.set_attribute(attribute, shared as i32);
            done.map_err(|e| fail("cuFuncSetAttribute", e))?;
        }
        Ok(Kernel { vendor: self.vendor.clone(), function, threads: self.threads, shared })
    }
}

/// A kernel with its launch shape.
pub(in crate::cuda) struct Kernel {
    vendor: Rc<Vendor>,
    function: CudaFunction,
    threads: usize,
    shared: usize,
}

impl Kernel {
    /// The caller's arguments are those of the kernel, in number, order and type, and its buffers are large enough:
    /// each file's header says what they hold.
    pub fn launch(&self, blocks: usize, args: &[Arg]) -> Result<()> {
        let config = LaunchConfig {
            grid_dim: (blocks as u32, 1, 1),
            block_dim: (self.threads as u32, 1, 1),
            shared_mem_bytes: self.shared as u32,
        };
        let mut launch = self.vendor.device.stream().launch_builder(&self.function);
        for arg in args {
            match arg {
                Arg::Pointer(p) => launch.arg(p),
                Arg::Int(i) => launch.arg(i),
                Arg::Unsigned(u) => launch.arg(u),
            };
        }
        // SAFETY: see above; the callers, all in this folder, hold buffers of the sizes that the headers name.
        let done = unsafe { launch.launch(config) };
        done.map(|_| ()).map_err(|e| self.vendor.failure("cuLaunchKernel", e))
    }
}

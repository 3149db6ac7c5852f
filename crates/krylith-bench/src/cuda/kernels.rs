//! The `.cu` files of the baselines, compiled at run time, loaded and launched.

use super::vendor::{Vendor, loading, missing};
use cudarc::driver::sys::CUfunction_attribute;
use cudarc::driver::{CudaFunction, CudaModule, CudaStream, LaunchConfig, PushKernelArg};
use cudarc::nvrtc::{CompileOptions, Ptx, compile_ptx_with_opts, sys};
use krylith_core::{Error, Result};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

pub(super) const LIBRARY: &str = "libnvrtc.so.13";

/// A file's name and text.
pub(super) type Source = (&'static str, &'static str);

/// The PTX of each file, macros and architecture so far: a suite compiles the same ones for many systems.
static COMPILED: Mutex<BTreeMap<String, String>> = Mutex::new(BTreeMap::new());

/// Returns the PTX of a file with its macros, for an architecture such as (9, 0). Each is compiled once.
///
/// # Errors
/// Returns an error if NVRTC is missing, or with the compiler's messages.
pub(super) fn compile((name, text): Source, macros: &[(&str, usize)], arch: (i32, i32)) -> Result<Ptx> {
    // SAFETY: only looks for the library.
    if !unsafe { sys::is_culib_present() } {
        return Err(missing(LIBRARY, "the CUDA runtime compiler was not found"));
    }
    let macros: Vec<String> = macros.iter().map(|(name, value)| format!("-D{name}={value}")).collect();
    let refused = format!("NVRTC refused {name} ({})", macros.join(" "));
    let key = format!("{name} {macros:?} {arch:?}");
    if let Some(known) = COMPILED.lock().unwrap_or_else(|e| e.into_inner()).get(&key) {
        return Ok(Ptx::from_src(known));
    }
    let mut options = vec![format!("--gpu-architecture=compute_{}{}", arch.0, arch.1)];
    options.extend(macros);
    let options = CompileOptions { options, name: Some(name.into()), ..Default::default() };
    let ptx = loading(LIBRARY, || {
        compile_ptx_with_opts(text, options).map_err(|e| Error::Unsupported(format!("{refused}: {e:?}")))
    })?;
    COMPILED.lock().unwrap_or_else(|e| e.into_inner()).insert(key, ptx.to_src());
    Ok(ptx)
}

#[derive(Debug, Clone, Copy)]
pub(super) enum Arg {
    Pointer(u64),
    Int(i32),
    Unsigned(u32),
    Long(i64),
}

pub(super) struct Module {
    vendor: Rc<Vendor>,
    module: Arc<CudaModule>,
}

impl Module {
    pub fn load(vendor: &Rc<Vendor>, source: Source, macros: &[(&str, usize)]) -> Result<Self> {
        let ptx = compile(source, macros, vendor.device.info().arch)?;
        let loaded = vendor.device.stream().context().load_module(ptx);
        let module = loaded.map_err(|e| vendor.failure("cuModuleLoadData", e))?;
        Ok(Self { vendor: vendor.clone(), module })
    }

    /// Returns a kernel with blocks of `threads` threads, which may use `shared` bytes of dynamic shared
    /// memory.
    ///
    /// # Errors
    /// Returns an error if there is no such kernel, or if a block cannot have as much shared memory.
    pub fn kernel(&self, name: &str, threads: usize, shared: usize) -> Result<Kernel> {
        let fail = |call: &str, e| self.vendor.failure(call, e);
        let function = self.module.load_function(name).map_err(|e| fail("cuModuleGetFunction", e))?;
        if shared > 48 << 10 {
            let attribute = CUfunction_attribute::CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES;
            let done = function.set_attribute(attribute, shared as i32);
            done.map_err(|e| fail("cuFuncSetAttribute", e))?;
        }
        Ok(Kernel { vendor: self.vendor.clone(), function, threads, shared })
    }
}

pub(super) struct Kernel {
    vendor: Rc<Vendor>,
    function: CudaFunction,
    pub threads: usize,
    shared: usize,
}

impl Kernel {
    /// Launches the kernel. The caller's arguments must match the kernel's in number, order and type, and its
    /// buffers must be large enough: the comment at the top of each file states their contents. With zero
    /// blocks nothing is launched.
    pub fn launch(&self, blocks: usize, args: &[Arg]) -> Result<()> {
        self.launch_on(self.vendor.device.stream(), blocks, args)
    }

    /// Launches the kernel with `n` threads, at least.
    pub fn launch_for(&self, n: usize, args: &[Arg]) -> Result<()> {
        self.launch(n.div_ceil(self.threads), args)
    }

    /// Launches the kernel on another stream.
    pub fn launch_on(&self, stream: &Arc<CudaStream>, blocks: usize, args: &[Arg]) -> Result<()> {
        if blocks == 0 {
            return Ok(());
        }
        let config = LaunchConfig {
            grid_dim: (blocks as u32, 1, 1),
            block_dim: (self.threads as u32, 1, 1),
            shared_mem_bytes: self.shared as u32,
        };
        let mut launch = stream.launch_builder(&self.function);
        for arg in args {
            match arg {
                Arg::Pointer(p) => launch.arg(p),
                Arg::Int(i) => launch.arg(i),
                Arg::Unsigned(u) => launch.arg(u),
                Arg::Long(l) => launch.arg(l),
            };
        }
        // SAFETY: see above; the callers, all below this folder, hold buffers of the sizes given in the
        // headers.
        let done = unsafe { launch.launch(config) };
        done.map(|_| ()).map_err(|e| self.vendor.failure("cuLaunchKernel", e))
    }
}

//! The `.cu` files of this folder and of the suite ras, for a block size and a number of threads.

use crate::cuda::kernels::{self, Module, Source, compile};
use crate::cuda::vendor::Vendor;
use krylith_core::Result;
use std::rc::Rc;

pub(in crate::cuda) use kernels::{Arg, Kernel};

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

use File::*;

impl File {
    const ALL: [File; 7] = [Spin, Dag, LowerLevels, UpperLevels, BiCgStab, Jacobi, Schwarz];

    fn source(self) -> Source {
        match self {
            Spin => ("spin.cu", include_str!("spin.cu")),
            Dag => ("dag.cu", include_str!("dag.cu")),
            LowerLevels | UpperLevels => ("levels.cu", include_str!("levels.cu")),
            BiCgStab => ("bicgstab.cu", include_str!("bicgstab.cu")),
            Jacobi => ("jacobi.cu", include_str!("jacobi.cu")),
            Schwarz => ("schwarz.cu", include_str!("../ras/schwarz.cu")),
        }
    }

    fn macros(self, block: usize, threads: usize) -> [(&'static str, usize); 3] {
        [("B", block), ("THREADS", threads), ("UPPER", usize::from(self == UpperLevels))]
    }

    /// Compiles and loads a file; its kernels have blocks of `threads` threads.
    pub fn load(self, vendor: &Rc<Vendor>, block: usize, threads: usize) -> Result<Loaded> {
        let module = Module::load(vendor, self.source(), &self.macros(block, threads))?;
        Ok(Loaded { module, threads })
    }
}

/// Returns the PTX of every file of the suites ildu0 and ras for a block size, a number of threads and an
/// architecture such as (9, 0).
///
/// # Errors
/// Returns an error if NVRTC is missing, or with the compiler's messages.
pub fn compile_all(block: usize, threads: usize, arch: (i32, i32)) -> Result<Vec<String>> {
    let one = |file: &File| Ok(compile(file.source(), &file.macros(block, threads), arch)?.to_src());
    File::ALL.iter().map(one).collect()
}

pub(in crate::cuda) struct Loaded {
    module: Module,
    threads: usize,
}

impl Loaded {
    /// Returns a kernel, as [`Module::kernel`].
    pub fn kernel(&self, name: &str, shared: usize) -> Result<Kernel> {
        self.module.kernel(name, self.threads, shared)
    }

    /// Returns several kernels without dynamic shared memory.
    pub fn kernels<const N: usize>(&self, names: [&str; N]) -> Result<[Kernel; N]> {
        let all: Vec<Kernel> = names.iter().map(|name| self.kernel(name, 0)).collect::<Result<_>>()?;
        all.try_into().map_err(|_| krylith_core::Error::invalid("as many kernels as names"))
    }
}

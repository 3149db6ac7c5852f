//! The suite cbcg on a GPU: the P-CBCG paper's own kernels, as its text describes them.

mod pcg;
mod skinny;

use super::CudaPlatform;
use super::kernels::{Arg, Kernel as Launch, Source, compile};
use super::vendor::Vendor;
use crate::cbcg::{Case, Kernel, Role, Solve, Storage};
use crate::systems::{Random, dot};
use krylith_core::Result;
use krylith_core::device::cuda::Buffer;
use std::rc::Rc;

const PCG: Source = ("pcg.cu", concat!(include_str!("sum.cu"), include_str!("pcg.cu")));
const SKINNY: Source = ("skinny.cu", concat!(include_str!("sum.cu"), include_str!("skinny.cu")));

/// Returns the PTX of the paper's kernels for a tile and an architecture such as (9, 0).
///
/// # Errors
/// Returns an error if NVRTC is missing, or with the compiler's messages.
pub fn compile_all(tile: [usize; 3], threads: usize, arch: (i32, i32)) -> Result<[String; 2]> {
    let pcg = compile(PCG, &pcg::macros(tile, threads), arch)?;
    Ok([pcg.to_src(), compile(SKINNY, &skinny::macros(), arch)?.to_src()])
}

/// Returns the arguments of buffers.
fn pointers<const N: usize>(buffers: [&Buffer<f64>; N]) -> [Arg; N] {
    buffers.map(|buffer| Arg::Pointer(buffer.pointer()))
}

/// Returns the number of blocks of a kernel that strides over `n` items.
fn blocks(vendor: &Vendor, n: usize, threads: usize) -> usize {
    n.div_ceil(threads).min(8 * vendor.device.multiprocessors())
}

impl CudaPlatform {
    /// Returns the paper's kernels on a case; the tile's shape is the paper's best one.
    pub(super) fn paper_kernels<'k>(&self, case: &'k Case, check: bool) -> Result<Vec<Kernel<'k>>> {
        let v = &self.vendor;
        let mut all = pcg::kernels(v, case)?;
        all.extend(skinny::kernels(v, case.rows(), check)?);
        Ok(all)
    }

    /// Returns the paper's P-CG with tiles of a shape, for both storages.
    pub(super) fn paper_solvers<'k>(
        &self,
        case: &'k Case,
        tile: [usize; 3],
    ) -> Vec<(Storage, Result<Solve<'k>>)> {
        let one = |storage| (storage, pcg::solver(&self.vendor, case, storage, tile));
        Storage::BOTH.map(one).into()
    }
}

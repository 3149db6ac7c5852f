//! One NVIDIA GPU: found at run time, with kernels that NVRTC compiles and a disk cache keeps.
//!
//! There are three layers: `driver` (memory, streams, graphs, launches: all the unsafe calls), `compiler`
//! (sources to cubins) and the [`Cuda`] space with its products. A process holds one [`Device`] per GPU;
//! spaces of different lengths share it.
//!
//! # Kernels
//! NVRTC compiles a kernel on the user's machine, for the GPU that is there, so a build needs no CUDA. A
//! release carries the common sizes (`embedded.rs`). Sizes of a problem are arguments and never constants, so
//! a new mesh compiles nothing. A file with its constants is one module, loaded once for a process and GPU
//! (`modules.rs`).
//!
//! While the system is uploaded, up to eight threads compile and load the kernels that options and sizes call
//! for (`solver/ahead.rs`). A kernel that a first solve needs should be listed in that file. A thread that
//! asks for a kernel in compilation waits for this kernel alone.

pub(crate) mod assemble;
mod block;
pub(crate) mod block_tiles;
mod bounce;
mod buffer;
pub(crate) mod caller;
mod compiler;
pub(crate) mod csr;
pub(crate) mod csr_halo;
mod cudss;
pub(crate) mod cut;
pub(crate) mod dia;
pub(crate) mod diagonal;
mod driver;
mod embedded;
mod exchange;
mod fabric;
pub(crate) mod factors;
mod functions;
mod gather;
mod ghosts;
mod graph;
mod held;
mod interleaved;
mod kept;
pub(crate) mod launch;
mod mail;
pub(crate) mod modules;
pub(crate) mod multilevel;
mod nccl;
mod nvrtc;
pub(crate) mod part;
pub(crate) mod passes;
mod peers;
mod pinned;
mod product;
mod program;
mod replicated;
pub(crate) mod resident;
mod residual;
mod scalars;
pub(crate) mod scan;
mod schedule;
pub(crate) mod schwarz;
mod smooth;
mod space;
#[doc(hidden)] // for the test that compiles all kernels, and the program that embeds them
pub mod specialisations;
mod staging;
pub(crate) mod structure;
mod tiles;
pub(crate) mod tiling;
pub(crate) mod vanka;
pub(crate) mod vectors;
mod versions;
mod waiting;

pub use block_tiles::CudaTiles;
pub use caller::FromDevice;
pub use compiler::{CacheState, Kernel, Warmed, cache_state, compile_for, compiling, draft_for, warm};
pub use cudss::{CudaBatch, cudss_version};
pub use diagonal::CudaBlocks;
pub use driver::{Buffer, Device, DeviceInfo, devices, uuids};
pub(crate) use driver::{is_open, seems_there};
pub use embedded::{archive, embedded_kernels};
pub use fabric::{Fabric, Transport};
pub use factors::CudaPlan;
#[doc(hidden)] // for krylith-py
pub use functions::{copy_in_stream, order_streams};
pub(crate) use held::CudaVectors;
pub use kept::KeptContext;
pub use nccl::{Nccl, nccl_version};
pub use nvrtc::add_folders as add_compiler_folders;
pub use part::split_runs;
pub(crate) use passes::Magnitudes;
pub use product::CudaProduct;
#[doc(hidden)] // for krylith-problems
pub use program::{Argument, Program};
pub use replicated::{CudaGathered, CudaLinks, CudaShared};
pub use scalars::CudaScalars;
pub use schedule::CudaRecording;
pub use schwarz::CudaSchwarz;
pub use space::{Cuda, CudaBasis};
pub use versions::Versions;

/// The oldest supported driver, as `cuDriverGetVersion` counts (CUDA 12.0; release 525).
pub const DRIVER_NEEDED: i32 = 12000;

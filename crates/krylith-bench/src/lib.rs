//! The papers' experiments on this machine, compared with the vendor's libraries and each paper's own
//! algorithm.
//!
//! Every figure is measured as follows. After a warm-up, baseline and Krylith take turns for at least 20
//! repetitions, in one process and on one stream. Times come from CUDA events (or the clock on a CPU);
//! reports give the median with minimum and maximum. Before a time is kept, the result is checked against an
//! f64 double loop on the host. Bytes and flops are counted by formula ([`count`]); shares of bandwidth
//! relate to a read measured in the same run.
//!
//! Baselines run at their best settings: if a library offers a choice (block layout, algorithm), all are
//! timed and the fastest is used. Read-back memory is pinned, and no wait is unnecessary.
//!
//! To add a suite, read its options from [`Asked`], make its tables and pages with `publish`, and list it in
//! `SUITES` of `xtask/src/bench.rs`. Baselines of a GPU's libraries are in `cuda/`: matrices and vectors in
//! `products.rs`, calls of cuSPARSE in `calls.rs`, kernels in `kernels.rs`. `platform.rs` lists what a suite
//! needs from a device. Ranks run by [`Launch`], as threads of this process or as processes of a launcher.

pub mod answer;
pub mod cbcg;
pub mod count;
pub mod ildu0;
pub mod multilevel;
pub mod okp;
pub mod ras;
pub mod spmv;

mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
mod launch;
#[cfg_attr(not(feature = "cuda"), allow(dead_code))] // its tests run without CUDA
mod links;
#[cfg_attr(not(feature = "cuda"), allow(dead_code))] // its tests run without CUDA
mod multi;
mod options;
mod platform;
mod publish;
mod samples;
mod systems;
mod textbook;
mod triad;

pub use answer::{answer, answer_systems};
pub use cbcg::cbcg;
#[cfg(feature = "cuda")]
pub use cuda::cbcg::compile_all as compile_cbcg_kernels;
#[cfg(feature = "cuda")]
pub use cuda::gram_schmidt::compile_for as compile_gram_schmidt_kernels;
#[cfg(feature = "cuda")]
pub use cuda::ildu0::compile_all as compile_ildu0_kernels;
#[cfg(feature = "cuda")]
pub use cuda::spmv::compile_products as compile_spmv_kernels;
#[cfg(feature = "cuda")]
pub use cuda::{multi::compile_exchange_kernels, paper::compile_for as compile_paper_kernels};
pub use ildu0::ildu0;
pub use launch::Launch;
pub use links::links;
pub use multilevel::multilevel;
pub use okp::okp;
pub use options::{Asked, DeviceChoice};
pub use publish::Report;
pub use ras::ras;
pub use samples::Samples;
pub use spmv::spmv;

/// A suite: gets its options and a function that receives a line before each part, and returns a report.
pub type Suite = fn(&Asked, &mut dyn FnMut(&str)) -> krylith_core::Result<Report>;

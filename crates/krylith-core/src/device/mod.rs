//! Devices: they hold the vectors and do the work. Each implements [`Space`](crate::space::Space).
//!
//! [`cpu::Cpu`] is a team of threads, `cuda::Cuda` (feature `cuda`) is one GPU. A [`Solver`](crate::Solver)
//! picks a device. Operators and preconditioners that are built by hand take one as an argument. The types
//! that a device stores (products, factors, scalars) are private. They are named through the traits that the
//! device implements, such as [`PointBlockSum::Product`](crate::operator::PointBlockSum::Product).
//!
//! Each step of a set-up on a GPU also exists on the host: tiles, structure inside blocks, the survey of
//! entries, scale factors, plans of incomplete factors, graph cuts and coarsening. The host's version is the
//! reference, and tests compare both number by number. Work that a GPU does not support (ILU with fill, cuts
//! by coordinates, METIS) is done on all threads of the host, and its result is uploaded.
//!
//! To add a device, start from a copy of `tests/host/plain.rs`. Add a variant of `DeviceSpec`. In
//! `solver/device.rs` add a `Choice`, an opening function and `impl SolverSpace`. Then run the tests of
//! `tests/conformance` on the device.

pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
pub(crate) mod workers;

//! Devices: they hold the vectors and do the work. Each implements [`Space`](crate::space::Space).
//!
//! [`cpu::Cpu`] is a team of threads, `cuda::Cuda` (feature `cuda`) is one GPU. A [`Solver`](crate::Solver)
//! picks a device. Operators and preconditioners that are built by hand take one as an argument. The types
//! that a device stores (products, factors, scalars) are private. They are named through the traits that the
//! device implements, such as [`PointBlockSum::Product`](crate::operator::PointBlockSum::Product).
//!
//! Each step of a set-up on a GPU has a twin on the host. Such steps are tiles, structure inside blocks, the
//! survey, scale factors, plans of incomplete factors, graph cuts and coarsening. The twin is the CPU's own
//! way and the reference: tests compare both number by number. What a GPU does not take is analyzed on all
//! threads of the host and uploaded: ILU with fill, cuts by coordinates, METIS.
//!
//! A new device begins as a copy of `tests/host/plain.rs`. It gets a variant of `DeviceSpec`, and a `Choice`,
//! an opening function and `impl SolverSpace` in `solver/device.rs`. It runs the tests of
//! `tests/conformance`.

pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
pub(crate) mod workers;

//! Devices: where vectors live and work is done. Each implements [`Space`](crate::space::Space).
//!
//! [`cpu::Cpu`] is a team of threads, `cuda::Cuda` (feature `cuda`) one GPU. A [`Solver`](crate::Solver) picks one; parts that are put
//! together by hand are given one. The types of what they hold (products, factors, scalars) are named through the traits that a device
//! implements, such as [`PointBlockSum::Product`](crate::operator::PointBlockSum::Product), and are not shown.
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

//! Devices: where vectors live and work is done. Each implements [`Space`](crate::space::Space).
//!
//! [`cpu::Cpu`] is a team of threads, `cuda::Cuda` (feature `cuda`) one GPU. A [`Solver`](crate::Solver) picks one; parts that are put
//! together by hand are given one. The types of what they hold (products, factors, scalars) are named through the traits that a device
//! implements, such as [`PointBlockSum::Product`](crate::operator::PointBlockSum::Product), and are not shown.

pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
pub(crate) mod workers;

//! Devices: where vectors live and work is done. Each implements [`Space`](crate::space::Space).

pub mod cpu;
#[cfg(feature = "cuda")]
pub mod cuda;
mod standby;
pub(crate) mod workers;

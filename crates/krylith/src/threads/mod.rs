//! The threads of a solver on the host, and the memory that they work on.

mod crowd;
mod pages;
mod pool;

pub(crate) use pages::{prefetch, room, zeros};
pub use pool::Pool;
pub(crate) use pool::{ALONE, Disjoint, share};

//! The threads of a solver on the host, and the memory that they work on.

mod crowd;
mod pages;
mod pool;

#[doc(hidden)]
pub use pages::{prefetch, room, zeros};
pub use pool::Pool;
#[doc(hidden)]
pub use pool::{ALONE, Disjoint, share};

//! The threads of a solver on the host, and the memory on which they work.
//!
//! There are two kinds of thread pool, with one bound on both. A [`Pool`] runs the parallel regions of a
//! solve, each of which may take only some microseconds. A [`TaskPool`] runs the loops of set-ups and
//! readers, which are written with rayon. The thread that begins a region also runs such loops, and does one
//! thing at a time, so one pool sleeps while the other works.
//!
//! No other code starts a rayon pool.
//!
//! With T threads, at most T are busy and 2T − 1 exist: each team has T, and the leader is in both. Workers
//! of several GPUs share T. A solver of scaled rows (`solver/rows.rs` of krylith-core) has as many threads
//! again, which work while the others sleep.
//!
//! A system below [`ALONE`] bytes takes a pool of one thread that stays with the process, because starting a
//! thread takes longer than such a solve. Work outside a solver runs in rayon's current pool, or in
//! `Options::within`. In addition, up to eight threads compile kernels, and one waits while another library
//! computes direct factors.

mod crowd;
mod loops;
mod pages;
mod pool;
mod tasks;

use std::sync::OnceLock;

#[doc(hidden)]
pub use loops::{collect, each, each_chunk, each_task};
#[doc(hidden)]
pub use pages::{allocate, prefetch, zeros};
pub use pool::Pool;
#[doc(hidden)]
pub use pool::{ALONE, Disjoint, share};
#[doc(hidden)]
pub use tasks::{TaskPool, refused, within};

/// Number of cores that this process may use, read at the first call.
#[doc(hidden)]
pub fn cores() -> usize {
    static CORES: OnceLock<usize> = OnceLock::new();
    *CORES.get_or_init(|| std::thread::available_parallelism().map_or(1, |n| n.get()))
}

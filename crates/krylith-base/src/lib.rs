//! The base of all parts of Krylith: errors, names, timings, threads, bounded waits, and communicators.
//!
//! This is a part of [krylith](https://crates.io/crates/krylith), which re-exports what is meant for users:
//! use that crate. Nothing here is a stable interface.

#[doc(hidden)]
pub mod alloc;
pub mod comm;
mod error;
#[doc(hidden)]
pub mod halo;
#[doc(hidden)]
pub mod interrupt;
pub mod names;
#[doc(hidden)]
pub mod profile;
pub mod text;
#[doc(hidden)]
pub mod threads;
#[doc(hidden)]
pub mod twofold;
pub mod waiting;

pub use error::{Error, Remedy, Result};

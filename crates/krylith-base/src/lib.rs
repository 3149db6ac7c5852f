//! What every part of Krylith stands on: errors, words, clocks, threads, waits that end, and ranks that speak with each other.
//!
//! A part of [krylith](https://crates.io/crates/krylith), which passes on what is meant for users: use that. Nothing here is promised.

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

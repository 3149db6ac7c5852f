//! Code that the `krylith` command, the Python package and the C library share: summaries and plots of
//! solutions, checks of callbacks, and the memory of a process.
//!
//! This is an internal part of [krylith](https://crates.io/crates/krylith); its interface may change at any
//! time.

pub mod callers;
pub mod plot;
pub mod process;
pub mod words;

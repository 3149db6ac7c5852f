//! What the `krylith` command, the Python package and the C library share: how a solution is told in words and pictures, whose callback
//! runs, and the memory of a process.
//!
//! A part of [krylith](https://crates.io/crates/krylith). Nothing here is promised.

pub mod callers;
pub mod plot;
pub mod process;
pub mod words;

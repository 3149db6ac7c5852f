//! Matrices as data, arrays on the host or in the memory of a device, and files of both.
//!
//! This is a part of [krylith](https://crates.io/crates/krylith), which re-exports what is meant for users:
//! use that crate. Nothing here is a stable interface.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod io;
pub mod matrix;
pub mod memory;

use krylith_base::{Error, Result, names, text};

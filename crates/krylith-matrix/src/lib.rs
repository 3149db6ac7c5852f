//! Matrices as data, arrays on the host or in the memory of a device, and files of both.
//!
//! A part of [krylith](https://crates.io/crates/krylith), which passes on what is meant for users: use that. Nothing here is promised.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod io;
pub mod matrix;
pub mod memory;

use krylith_base::{Error, Result, names, text};

//! The C library: what `krylith.h` declares.
//!
//! Every function that can fail gives a `Status` and leaves its words for `krylith_last_error`; nothing
//! panics into C. Handles own what they were made of, so arrays of the caller are read during the call alone.
//! The header is made of these files by cbindgen, and its comments are theirs.
//!
//! A new function goes into the file of its handle, and `guard` turns its errors and panics into a `Status`.
//! `include/krylith.hpp` and `fortran/` get it by hand, and `tests/programs/api*` calls it.

// C has no `unsafe`: pointers are what the header says of them, and what can be checked of them is.
#![allow(clippy::not_unsafe_ptr_arg_deref)]
#![allow(clippy::enum_variant_names)] // enumerators of C share one space of names

// In the order in which the header has them.
mod status;

mod arrays;

mod distributed;

mod problem;

mod solution;

mod solver;

mod functions;

use krylith_report::process::Memory;

#[global_allocator]
static MEMORY: Memory = Memory;

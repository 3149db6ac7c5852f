//! The C library: the functions that `krylith.h` declares.
//!
//! Every function that can fail returns a `Status` and stores its error text for `krylith_last_error`. No
//! panic crosses into C. Handles own copies of their data, so the library reads arrays of the caller only
//! during a call. cbindgen generates the header and its comments from these files.
//!
//! A new function goes into the file of its handle, and `guard` turns its errors and panics into a `Status`.
//! `include/krylith.hpp` and `fortran/` get it by hand, and `tests/programs/api*` calls it.

// C has no `unsafe`: the header states what callers must guarantee of pointers; what can be checked is
// checked.
#![allow(clippy::not_unsafe_ptr_arg_deref)]
#![allow(clippy::enum_variant_names)] // enumerators in C share one namespace

// In the order of the header.
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

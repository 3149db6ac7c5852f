//! The C library: the functions that `krylith.h` declares.
//!
//! Every function that can fail returns a `Status` and stores its error text for `krylith_last_error`. No
//! panic crosses into C. Handles own copies of their data, so the library reads arrays of the caller only
//! during a call. cbindgen generates the header and its comments from these files.
//!
//! To add a function, put it into the file of its handle, and let `guard` turn its errors and panics into a
//! `Status`. Declare it by hand in `include/krylith.hpp` and `fortran/`, and call it in
//! `tests/programs/api*`, or in a program of its topic there.

// C has no `unsafe`: the header states what callers must guarantee about pointers, and the library checks
// what it can.
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

mod newton;

use krylith_report::process::Memory;

#[global_allocator]
static MEMORY: Memory = Memory;

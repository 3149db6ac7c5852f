//! The command as its users start it. One binary, as in crate krylith; `mpi` is one of its own, for its feature.

#[path = "../common/mod.rs"]
mod common;

mod bad_input;
mod bench;
mod documents;
mod files;
mod front;
mod info;
mod matrices;
mod model;
mod newton;
mod outputs;
mod pictures;
mod places;
mod process;
mod readers;
mod solve;
mod threads;

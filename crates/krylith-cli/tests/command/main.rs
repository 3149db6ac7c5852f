//! Tests of the command as users start it. They form one binary, as in crate krylith; `mpi` is separate
//! because of its feature.

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
mod null_space;
mod outputs;
mod pictures;
mod places;
mod process;
mod readers;
mod solve;
mod steps;
mod threads;

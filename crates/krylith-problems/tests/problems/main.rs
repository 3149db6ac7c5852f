//! Generated systems against what mathematics and physics promise of them. One binary, as in crate krylith.

mod cavity;
mod common;
mod distributed;
mod grids;
mod iterations;
mod lookalike;
mod multiphase;
mod multiphase_steps;
mod orthogonality;
mod space_order;
mod spec;
mod stage;
mod structure;
mod time_order;

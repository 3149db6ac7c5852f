//! Compares generated systems with mathematical and physical laws. All tests form one binary, as in crate
//! krylith.

mod artery;
mod cavity;
mod common;
mod coupled;
mod distributed;
mod flow;
mod grids;
mod hard;
mod iterations;
mod lookalike;
mod mesh_files;
mod multiphase;
mod multiphase_steps;
mod orthogonality;
mod outlets;
mod shares;
mod solid;
mod space_order;
mod spec;
mod stage;
mod stokes_body;
mod structure;
mod tets;
mod time_order;
mod ventricle;

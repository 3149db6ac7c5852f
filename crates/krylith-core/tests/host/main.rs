//! What the host runs by itself: methods, preconditioners and partitions on the CPU, ranks that are threads.
//!
//! One binary, because each one links the whole library. A test has its own only if it needs its own harness
//! or allocator.

#[path = "../common/mod.rs"]
mod common;
#[path = "../conformance/mod.rs"]
mod conformance;
#[path = "../ranks/mod.rs"]
mod ranks;

mod bicgstab;
mod block_tiles;
mod columns;
mod comm;
mod complex;
mod cpu;
mod criterion;
mod diagnosis;
#[cfg(feature = "lu")]
mod direct;
mod distributed;
mod fields;
mod fixed;
mod function_operators;
mod functions;
mod gmres;
mod ildu;
mod kronecker_ranks;
mod leaders;
mod matching;
mod multilevel;
mod newton;
mod partition;
mod partitioner;
mod plain;
mod random_systems;
mod recognised;
mod recognised_corners;
mod recognised_ranks;
mod rows;
mod schwarz;
mod share;
mod singular;
mod solver;
mod subdomains;
mod transposed;
mod weak_diagonals;
mod wrappers;
mod zeros;

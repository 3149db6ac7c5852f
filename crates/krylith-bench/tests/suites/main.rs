//! The suites of `krylith bench`, small. One binary, as in crate krylith.

mod answer;
mod cbcg;
mod command;
mod ildu0;
mod multilevel;
mod okp;
mod ras;
mod spmv;

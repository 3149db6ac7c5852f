//! The suites of `krylith bench`, small. One binary, as in crate krylith.

mod ildu0;
mod okp;

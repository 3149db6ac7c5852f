//! The `krylith` command.
fn main() {}

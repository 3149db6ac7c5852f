//! The `krylith` command.

use krylith_report::process::Memory;
use std::process::ExitCode;

#[global_allocator]
static MEMORY: Memory = Memory;

fn main() -> ExitCode {
    ExitCode::from(krylith_cli::run(std::env::args_os()))
}

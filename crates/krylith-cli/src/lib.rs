//! The `krylith` command, which solves linear and nonlinear systems, writes generated systems, measures, and
//! shows the machine.
//!
//! It is a library so that the Python package can offer the command too.

mod args;
mod bench;
mod blocks;
mod complete;
mod defaults;
pub mod failure;
mod field;
pub mod files;
mod info;
mod interrupt;
mod model;
mod newton;
mod null_space;
pub mod options;
mod order;
pub mod output;
mod partitions;
pub mod picture;
mod portrait;
mod problem;
mod process;
mod progress;
pub mod ranks;
mod report;
mod share;
mod solve;
mod spy;
mod steps;
mod summary;
mod system;
pub mod term;
mod warm;
#[cfg(test)]
mod written;

use std::ffi::OsString;

/// Runs a command line, whose first word is the program, and returns the exit code. Call it only once in a
/// process.
pub fn run(words: impl IntoIterator<Item = OsString>) -> u8 {
    let words: Vec<OsString> = words.into_iter().collect();
    report::provenance::begin(&words);
    let code = failure::guard(|| {
        let args = match args::parse(words) {
            Ok(args) => args,
            Err(code) => return Ok(code),
        };
        // `krylith bench` replaces this process by another program.
        if !matches!(args.command, Some(args::Command::Bench(_))) {
            ranks::start()?;
        }
        match args.command {
            None => args::print_help(),
            Some(args::Command::Solve(args)) => solve::solve(*args),
            Some(args::Command::Newton(args)) => newton::newton(*args),
            Some(args::Command::Steps(args)) => steps::steps(*args),
            // The other commands run on one rank.
            _ if !output::speaks() => Ok(failure::DONE),
            Some(args::Command::Problem(args)) => {
                process::start_threads(None)?;
                problem::problem(args)
            }
            Some(args::Command::Bench(args)) => bench::bench(&args),
            Some(args::Command::Model(args)) => model::model(*args),
            Some(args::Command::Info(args)) => info::info(args),
            Some(args::Command::Warm(args)) => {
                process::start_threads(args.threads)?;
                warm::warm(&args)
            }
            Some(args::Command::Spy(args)) => {
                process::start_threads(None)?;
                spy::spy(args)
            }
            Some(args::Command::Completions(args)) => complete::completions(&args),
            Some(args::Command::Man(args)) => complete::man(&args),
        }
    });
    output::close(code)
}

//! Suggestions for unknown flags and subcommands.

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};
use krylith_core::names::{meant, same};
use std::ffi::OsString;
use std::path::Path;

/// Names that other programs use for flags of this command, and our names. The library has those of solver
/// options.
const ELSEWHERE: [(&[&str], &str); 10] = [
    (&["b", "right-hand-side", "f", "load"], "rhs"),
    (&["guess", "initial-guess", "first-guess", "x"], "x0"),
    (&["o", "output", "solution", "save", "outfile"], "out"),
    (&["json", "log", "r"], "report"),
    (&["svg", "png", "figure", "fig", "convergence"], "plot"),
    (&["vtk", "paraview", "mesh"], "vtu"),
    (&["bs", "block-size", "blocksize", "mat-block-size", "dofs", "components"], "block"),
    (&["kernel", "null", "null-space"], "nullspace"),
    (&["rbm", "rigid-body-modes", "near-null-space", "nearnullspace"], "near-nullspace"),
    (&["monitor", "ksp-monitor", "info", "debug"], "verbose"),
];

/// Accepts subcommands in any letter case, such as `krylith Solve`.
pub fn any_case(words: &mut [OsString], of: &Command) {
    let Some(word) = words.get(1).and_then(|word| word.to_str()) else { return };
    if let Some(known) = of.get_subcommands().map(Command::get_name).find(|name| same(name, word)) {
        words[1] = known.into();
    }
}

/// Adds the flag or subcommand that was probably meant to an error of the command line.
pub fn with_hint(mut error: Error, words: &[OsString], of: &Command) -> Error {
    let text = |error: &Error, kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.clone()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::UnknownArgument => {
            let Some(flag) = text(&error, ContextKind::InvalidArg) else { return error };
            let called = |name: &str| words.iter().skip(1).any(|word| word == name);
            let command = of.get_subcommands().find(|sub| called(sub.get_name())).unwrap_or(of);
            let known: Vec<&str> = command.get_arguments().filter_map(|arg| arg.get_long()).collect();
            if let Some(name) = flag_meant(flag.trim_start_matches('-'), &known) {
                error.remove(ContextKind::Usage); // clap built the usage from its own guess
                error.insert(ContextKind::SuggestedArg, ContextValue::String(format!("--{name}")));
            }
        }
        ErrorKind::InvalidSubcommand => {
            let Some(word) = text(&error, ContextKind::InvalidSubcommand) else { return error };
            if Path::new(&word).exists() || crate::system::is_problem(&word) {
                error.remove(ContextKind::SuggestedSubcommand);
                let tip = format!("krylith solve {word}");
                error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(vec![tip]));
            }
        }
        _ => {}
    }
    error
}

/// Returns the flag among `known` that `flag` probably means.
fn flag_meant<'k>(flag: &str, known: &[&'k str]) -> Option<&'k str> {
    let ours = ELSEWHERE.iter().find(|(theirs, _)| theirs.iter().any(|name| same(name, flag)));
    let ours = ours.and_then(|(_, ours)| known.iter().copied().find(|name| name == ours));
    ours.or_else(|| meant("option", flag, known))
}

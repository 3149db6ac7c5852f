//! `krylith bench`: runs the separate program `krylith-bench`, which most users do not need.

use crate::args::BenchArgs;
use crate::failure::{Failure, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Replaces this process by `krylith-bench`, or starts it and waits where the system cannot replace a
/// process.
///
/// # Errors
/// The program is not found, or cannot be started.
pub fn bench(args: &BenchArgs) -> Result<u8> {
    let Some(program) = find() else {
        return Err(Failure::usage(
            "the program `krylith-bench` is neither in the folder of this program nor on the PATH; \
             install it with `cargo install --path crates/krylith-bench`, \
             or build it with `cargo build --release -p krylith-bench`",
        ));
    };
    become_it(Command::new(&program).args(&args.words))
        .map_err(|e| Failure::machine(format!("{}: {e}", krylith_core::text::name(program))))
}

/// Finds the program in the folder of this program, or else on the PATH.
fn find() -> Option<PathBuf> {
    let name = format!("krylith-bench{}", std::env::consts::EXE_SUFFIX);
    let own = std::env::current_exe().ok();
    let beside = own.as_deref().and_then(Path::parent).map(Path::to_path_buf);
    let path = std::env::var_os("PATH").unwrap_or_default();
    beside
        .into_iter()
        .chain(std::env::split_paths(&path))
        .map(|folder| folder.join(&name))
        .find(|p| p.is_file())
}

/// Replaces this process, so that signals and the exit code are those of the program.
#[cfg(unix)]
fn become_it(command: &mut Command) -> std::io::Result<u8> {
    Err(std::os::unix::process::CommandExt::exec(command))
}

#[cfg(not(unix))]
fn become_it(command: &mut Command) -> std::io::Result<u8> {
    let code = command.status()?.code();
    Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(crate::failure::MACHINE))
}

//! `krylith bench`: the suites are a program of their own, `krylith-bench`, which most users never need.

use crate::args::BenchArgs;
use crate::failure::{Failure, Result};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Becomes that program, or waits for it where a process cannot become another.
///
/// # Errors
/// There is none, with what installs it; one that cannot be started.
pub fn bench(args: &BenchArgs) -> Result<u8> {
    let Some(program) = find() else {
        return Err(Failure::usage(
            "the suites are a program of their own, `krylith-bench`, which lies neither beside this one nor on the PATH: \
             `cargo install --path crates/krylith-bench` installs it, `cargo build --release -p krylith-bench` builds it",
        ));
    };
    become_it(Command::new(&program).args(&args.words))
        .map_err(|e| Failure::machine(format!("{}: {e}", krylith_core::text::name(program))))
}

/// Beside this program, else on the PATH.
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

/// In its place: signals and the exit code are the program's own.
#[cfg(unix)]
fn become_it(command: &mut Command) -> std::io::Result<u8> {
    Err(std::os::unix::process::CommandExt::exec(command))
}

#[cfg(not(unix))]
fn become_it(command: &mut Command) -> std::io::Result<u8> {
    let code = command.status()?.code();
    Ok(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(crate::failure::MACHINE))
}

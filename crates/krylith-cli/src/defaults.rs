//! Defaults in `[solver]` of a `system.toml` that are options of the command, such as outputs. The command
//! line overrides them.
//!
//! The file may come from someone else. Outputs that it names must be below its own folder, and may replace
//! only outputs of Krylith. The command line has no such limits.

use crate::args::SolveArgs;
use crate::failure::{Failure, Result};
use crate::options::{NearNull, Null};
use crate::{output, system};
use krylith_core::io::atomic::destination;
use krylith_core::io::{Defaults, is_own};
use krylith_core::text::name;
use std::io::Read;
use std::path::{Component, Path, PathBuf};

/// An output that a file names, and the option that it stands for.
pub type Named = (&'static str, PathBuf);

/// Sets the options that the command line does not give, and returns the outputs among them.
///
/// # Errors
/// The file cannot be read, or names an output outside its folder.
pub fn take(args: &mut SolveArgs) -> Result<Vec<Named>> {
    let Defaults { nullspace, near_nullspace, out, report, plot, vtu, threads, .. } =
        Defaults::read(&args.system)?;
    args.flags.0.threads = args.flags.0.threads.or(threads);
    args.ordering = system::ordering(&args.system, args.ordering)?;
    args.nullspace = args.nullspace.take().or(nullspace.map(|path| match path.to_str() {
        Some("constant") => Null::Constant,
        _ => Null::File(path),
    }));
    args.near_nullspace = args.near_nullspace.take().or(near_nullspace.map(|path| match path.to_str() {
        Some("rigid") => NearNull::Rigid,
        _ => NearNull::File(path),
    }));
    let mut named = Vec::new();
    for (option, given, default) in [
        ("--out", &mut args.out, out),
        ("--report", &mut args.report, report),
        ("--plot", &mut args.plot, plot),
        ("--vtu", &mut args.vtu, vtu),
    ] {
        if let (None, Some(path)) = (&given, default) {
            check_below(&args.system, option, &path)?;
            named.push((option, path.clone()));
            *given = Some(path);
        }
    }
    Ok(named)
}

/// Rejects a path that is not below the folder of `system`; follows links.
fn check_below(system: &Path, option: &str, path: &Path) -> Result<()> {
    if output::is_stdout(path) {
        return Ok(());
    }
    let folder = system.parent().unwrap_or(Path::new(""));
    let spelt = path.strip_prefix(folder).is_ok_and(|rest| {
        rest.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir))
    });
    let real =
        |folder: &Path| if folder.as_os_str().is_empty() { Path::new(".") } else { folder }.canonicalize();
    // A missing folder is reported with the other outputs.
    let linked = || match destination(path).map(|place| place.parent().map(real)) {
        Ok(Some(Ok(place))) => real(folder).is_ok_and(|folder| place.starts_with(folder)),
        Ok(_) => true,
        Err(_) => false,
    };
    if spelt && linked() {
        return Ok(());
    }
    let key = option.trim_start_matches('-');
    Err(Failure::usage(format!(
        "{}: `solver.{key}` is {path}, outside the folder of the file; to write there, give {option} \
         {path} on the command line",
        name(system),
        path = name(path)
    )))
}

/// Rejects an output named by a file that would replace a file which Krylith did not write.
///
/// # Errors
/// The first such output.
pub fn check_own(system: &Path, named: &[Named]) -> Result<()> {
    for (option, path) in named.iter().filter(|(_, path)| !output::is_stdout(path) && path.exists()) {
        let mut head = Vec::new();
        // Opening a pipe would wait for its other end, so only files are read.
        let read = match path.is_file() {
            true => std::fs::File::open(path),
            false => Err(std::io::ErrorKind::InvalidInput.into()),
        };
        let read = read.and_then(|file| file.take(4096).read_to_end(&mut head));
        if read.is_ok() && (head.is_empty() || is_own(&head)) {
            continue;
        }
        let key = option.trim_start_matches('-');
        return Err(Failure::usage(format!(
            "{}: `solver.{key}` is {path}, an existing file that was not written by Krylith; to replace it, \
             give {option} {path} on the command line",
            name(system),
            path = name(path)
        )));
    }
    Ok(())
}

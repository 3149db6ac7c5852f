//! What `[solver]` of a `system.toml` says of a solve beside options of a solver, where the command line says nothing.
//!
//! The file may be a stranger's: outputs that it names stay below its own folder, and take no other file's place than that of an output
//! of ours. Whoever wants more says so on the command line.

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

/// Takes what the command line leaves open; the outputs among it.
///
/// # Errors
/// A file that cannot be read, or that names an output outside its folder.
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

/// Refuses a place that is not below the folder of `system`, links followed.
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
    // A folder that is missing is told with the other outputs.
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
        "{}: `solver.{key}` leads out of its folder, to {path}; outputs that a file names stay below it: say {option} {path} on \
         the command line to write there",
        name(system),
        path = name(path)
    )))
}

/// Refuses to put what a file names in the place of something that is no output of ours.
///
/// # Errors
/// The first such place.
pub fn check_own(system: &Path, named: &[Named]) -> Result<()> {
    for (option, path) in named.iter().filter(|(_, path)| !output::is_stdout(path) && path.exists()) {
        let mut head = Vec::new();
        // Opening a pipe would wait for its other end.
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
            "{}: `solver.{key}` names {path}, which is there and was not written by Krylith; say {option} {path} on the command \
             line to replace it",
            name(system),
            path = name(path)
        )));
    }
    Ok(())
}

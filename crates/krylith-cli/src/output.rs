//! Text on stdout and stderr, and places for files, checked before hours are spent on what goes there.

use crate::failure::{Failure, Result};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// False on ranks that leave the talking to another.
static SPEAKS: AtomicBool = AtomicBool::new(true);

/// Whether this process prints results and remarks. Errors are printed anyway.
pub fn speak(speaks: bool) {
    SPEAKS.store(speaks, Relaxed);
}

/// True on the rank that prints, and writes files.
pub fn speaks() -> bool {
    SPEAKS.load(Relaxed)
}

/// Prints to stdout. A reader that has gone (`krylith … | head`) is no error of ours.
pub fn print(text: &str) {
    if !speaks() {
        return;
    }
    let mut out = std::io::stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Prints one error to stderr.
pub fn error(message: &str) {
    let _ = writeln!(std::io::stderr(), "error: {message}");
}

/// Prints one remark to stderr.
pub fn note(message: &str) {
    if speaks() {
        let _ = writeln!(std::io::stderr(), "krylith: {message}");
    }
}

/// Refuses an output file whose folder is missing or that is a folder itself, before anything is computed.
pub fn check_target(option: &str, path: &Path) -> Result<()> {
    let wrong = |what: &str| Err(Failure::usage(format!("{option} {}: {what}", path.display())));
    if path.as_os_str().is_empty() || path.file_name().is_none() {
        return wrong("this names no file");
    }
    if path.is_dir() {
        return wrong("this is a folder; give a file name");
    }
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    match std::fs::metadata(folder) {
        Ok(meta) if meta.is_dir() => Ok(()),
        Ok(_) => wrong(&format!("{} is not a folder", folder.display())),
        Err(e) => wrong(&format!("the folder {} cannot be used ({e})", folder.display())),
    }
}

//! Text on stdout and stderr, and places for files, checked before hours are spent on what goes there.

use crate::failure::{DONE, Failure, NOT_CONVERGED, Result, USAGE};
use std::io::Write;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Why standard output could not be written, the first time.
static LOST: Mutex<Option<String>> = Mutex::new(None);

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

/// Prints to stdout; what cannot be written is told by [`close`].
pub fn print(text: &str) {
    if !speaks() {
        return;
    }
    let mut out = std::io::stdout().lock();
    printed(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}

/// Remembers that something could not be printed. A reader that has gone (`krylith … | head`) is no error of ours.
pub fn printed(result: std::io::Result<()>) {
    if let Err(e) = result
        && e.kind() != std::io::ErrorKind::BrokenPipe
    {
        LOST.lock().unwrap_or_else(|e| e.into_inner()).get_or_insert(e.to_string());
    }
}

/// The exit code of a command that would end with `code`: results that nobody can read outrank the outcome, as a lost
/// output file does.
pub fn close(code: u8) -> u8 {
    match LOST.lock().unwrap_or_else(|e| e.into_inner()).take() {
        None => code,
        Some(why) => {
            error(&format!("standard output cannot be written: {why}"));
            if matches!(code, DONE | NOT_CONVERGED) { USAGE } else { code }
        }
    }
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

//! Text on stdout and stderr, and places for files, checked before hours are spent on what goes there.

use crate::failure::{DONE, Failure, NOT_CONVERGED, Result, USAGE};
use crate::term;
use anstream::AutoStream;
use std::io::{IsTerminal, Write};
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// Why standard output could not be written, the first time.
static LOST: Mutex<Option<String>> = Mutex::new(None);

/// False on ranks that leave the talking to another.
static SPEAKS: AtomicBool = AtomicBool::new(true);

/// True where standard output carries a file.
static ON_STDERR: AtomicBool = AtomicBool::new(false);

/// The name of standard output where a file is asked for.
pub const STDOUT: &str = "-";

/// Whether this process prints results and remarks. Errors are printed anyway.
pub fn speak(speaks: bool) {
    SPEAKS.store(speaks, Relaxed);
}

/// True on the rank that prints, and writes files.
pub fn speaks() -> bool {
    SPEAKS.load(Relaxed)
}

/// Sends results to stderr from here on: stdout carries a file.
pub fn leave_stdout() {
    ON_STDERR.store(true, Relaxed);
}

/// True where results go to stderr.
pub fn on_stderr() -> bool {
    ON_STDERR.load(Relaxed)
}

/// Prints results, with the colours that there are where they go; what cannot be written to stdout is told by [`close`].
pub fn print(text: &str) {
    if !speaks() {
        return;
    }
    if on_stderr() {
        let _ = AutoStream::auto(std::io::stderr().lock()).write_all(text.as_bytes());
        return;
    }
    let mut out = AutoStream::auto(std::io::stdout().lock());
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
    say(term::BAD, "error:", message);
}

/// Prints one remark to stderr.
pub fn note(message: &str) {
    if speaks() {
        say(term::PLAIN, "krylith:", message);
    }
}

/// Prints what clap has to say of a command line: help, the version, or what is wrong. The exit code.
pub fn of_clap(e: &clap::Error) -> u8 {
    match e.use_stderr() {
        // Help and version were set for the terminal by clap; errors were not.
        true => {
            let text = term::fit(&e.render().ansi().to_string(), term::columns_of_errors());
            let _ = AutoStream::auto(std::io::stderr()).write_all(text.as_bytes());
        }
        false => printed(e.print()),
    }
    e.exit_code() as u8
}

/// A line of stderr, wrapped where that is a terminal.
fn say(style: anstyle::Style, who: &str, message: &str) {
    let text = term::fit(&format!("{who} {message}\n"), term::columns_of_errors());
    let text = text.replacen(who, &term::styled(style, who), 1);
    let _ = AutoStream::auto(std::io::stderr()).write_all(text.as_bytes());
}

/// Writes a file, whole or not at all; `-` is standard output.
///
/// # Errors
/// What the file system says.
pub fn write(
    path: &Path,
    content: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
) -> krylith::Result<()> {
    if !is_stdout(path) {
        return krylith::io::atomic::write(path, content);
    }
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    printed(content(&mut out).and_then(|()| out.flush()));
    Ok(())
}

/// True for `-`; a file of that name is `./-`.
pub fn is_stdout(path: &Path) -> bool {
    path == Path::new(STDOUT)
}

/// Refuses an output file whose folder is missing or that is a folder itself, before anything is computed.
pub fn check_target(option: &str, path: &Path) -> Result<()> {
    let wrong = |what: &str| Err(Failure::usage(format!("{option} {}: {what}", path.display())));
    if is_stdout(path) {
        return match option {
            "--report" => Ok(()),
            "--out" if std::io::stdout().is_terminal() => {
                wrong("x is binary, and standard output is a terminal; send it to a file or another program")
            }
            "--out" => Ok(()),
            _ => wrong("only --out and --report can go to standard output; give a file name"),
        };
    }
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

/// Refuses a picture of another kind than those that are drawn.
pub fn check_picture(option: &str, path: &Path) -> Result<()> {
    check_ending(option, path, &["svg", "png"], "a picture is drawn")
}

/// Refuses a file for ParaView that it would not open.
pub fn check_vtu(option: &str, path: &Path) -> Result<()> {
    check_ending(option, path, &["vtu"], "ParaView's file is written")
}

fn check_ending(option: &str, path: &Path, known: &[&str], done: &str) -> Result<()> {
    let ending = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
    if known.iter().any(|known| known.eq_ignore_ascii_case(ending)) {
        return Ok(());
    }
    let stem = path.with_extension(known[0]);
    let names = known.iter().map(|known| format!(".{known}")).collect::<Vec<_>>().join(" or ");
    Err(Failure::usage(format!(
        "{option} {}: {done} as {names}, by the name's ending; say {option} {}",
        path.display(),
        stem.display()
    )))
}

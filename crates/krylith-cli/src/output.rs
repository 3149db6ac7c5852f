//! Text on stdout and stderr, and places for files, checked before hours are spent on what goes there.

use crate::failure::{DONE, Failure, NOT_CONVERGED, Result, USAGE};
use crate::{process, term};
use anstream::AutoStream;
use krylith_core::io::VectorFormat;
use krylith_core::io::atomic::Pending;
use krylith_core::text::name;
use krylith_plot::scene::Scene;
use krylith_report::plot::encode;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
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
    let text = &term::plain(text);
    if on_stderr() {
        let _ = AutoStream::auto(std::io::stderr().lock()).write_all(text.as_bytes());
        return;
    }
    printed(is_open().and_then(|()| {
        let mut out = AutoStream::auto(std::io::stdout().lock());
        out.write_all(text.as_bytes()).and_then(|()| out.flush())
    }));
}

/// Refuses a standard output that was closed before the command began: Rust takes /dev/null in its place, without a word.
fn is_open() -> std::io::Result<()> {
    match process::stdout_is_closed() {
        true => Err(std::io::Error::other("it is closed")),
        false => Ok(()),
    }
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
            let text = term::fit(&term::plain(&e.render().ansi().to_string()), term::columns_of_errors());
            let _ = AutoStream::auto(std::io::stderr()).write_all(text.as_bytes());
        }
        false => printed(is_open().and_then(|()| e.print())),
    }
    e.exit_code() as u8
}

/// A line of stderr, wrapped where that is a terminal.
fn say(style: anstyle::Style, who: &str, message: &str) {
    let text = term::fit(&format!("{who} {}\n", term::plain(message)), term::columns_of_errors());
    let text = text.replacen(who, &term::styled(style, who), 1);
    let _ = AutoStream::auto(std::io::stderr()).write_all(text.as_bytes());
}

/// Writes a file, whole or not at all.
///
/// # Errors
/// What the file system says.
pub fn write(
    path: &Path,
    content: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
) -> krylith_core::Result<()> {
    krylith_core::io::atomic::write(path, content)
}

/// Where a file goes that is written later: standard output, or a place that was found writable.
pub struct Target {
    path: PathBuf,
    /// None of standard output, and on ranks that write nothing.
    pending: Option<Pending>,
}

/// Where files go, made ready before the solve: what cannot be written is found then.
pub struct Targets {
    /// x.
    pub out: Option<Target>,
    /// The report.
    pub report: Option<Target>,
    /// The curve of residuals.
    pub plot: Option<Target>,
    /// A section of the solution.
    pub picture: Option<Target>,
    /// The solution on its mesh.
    pub vtu: Option<Target>,
}

impl Targets {
    /// In the order of the fields.
    ///
    /// # Errors
    /// A place that cannot be written.
    pub fn new([out, report, plot, picture, vtu]: [&Option<PathBuf>; 5]) -> Result<Self> {
        Ok(Self {
            out: Target::of("--out", out)?,
            report: Target::of("--report", report)?,
            plot: Target::of("--plot", plot)?,
            picture: Target::of("--picture", picture)?,
            vtu: Target::of("--vtu", vtu)?,
        })
    }
}

impl Target {
    /// Makes the place ready: its temporary file is there, on the rank that writes.
    ///
    /// # Errors
    /// A place that cannot be written to.
    pub fn new(option: &str, path: &Path) -> Result<Self> {
        let pending = match speaks() && !is_stdout(path) {
            false => None,
            true => Some(Pending::new(path).map_err(|e| {
                let why = if let krylith_core::Error::Io { source, .. } = &e {
                    source.to_string()
                } else {
                    e.to_string()
                };
                Failure::usage(format!("{option} {}: it cannot be written ({why})", name(path)))
            })?),
        };
        Ok(Self { path: path.into(), pending })
    }

    /// The same of an option that may not be given.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn of(option: &str, path: &Option<PathBuf>) -> Result<Option<Self>> {
        path.as_ref().map(|path| Self::new(option, path)).transpose()
    }

    /// The file's name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the file, whole or not at all, or to standard output.
    ///
    /// # Errors
    /// What the file system says; what cannot be written to standard output is told by [`close`].
    pub fn write(
        self,
        content: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
    ) -> krylith_core::Result<()> {
        if let Some(pending) = self.pending {
            return pending.write(content);
        }
        printed(is_open().and_then(|()| {
            let mut out = std::io::BufWriter::new(std::io::stdout().lock());
            content(&mut out).and_then(|()| out.flush())
        }));
        Ok(())
    }

    /// Writes a picture, as SVG or PNG by the file's name.
    ///
    /// # Errors
    /// As [`write`](Self::write); a name that ends neither in .png nor in .svg.
    pub fn write_picture(self, scene: &Scene) -> krylith_core::Result<()> {
        let data = encode(scene, &self.path)?;
        self.write(|out| out.write_all(&data))
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        if is_stdout(&self.path) { f.write_str("stdout") } else { f.write_str(&name(&self.path)) }
    }
}

/// True for `-`; a file of that name is `./-`.
pub fn is_stdout(path: &Path) -> bool {
    path == Path::new(STDOUT)
}

/// Refuses an output file whose folder is missing or that is a folder itself, before anything is computed.
pub fn check_target(option: &str, path: &Path) -> Result<()> {
    let wrong = |what: &str| Err(Failure::usage(format!("{option} {}: {what}", name(path))));
    if is_stdout(path) {
        return match option {
            "--out" | "--report" if process::stdout_is_closed() => {
                wrong("standard output is closed; open it, or give a file name")
            }
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
        Ok(_) => wrong(&format!("{} is not a folder", name(folder))),
        Err(e) => wrong(&format!("the folder {} cannot be used ({e})", name(folder))),
    }
}

/// Refuses a vector's file of another kind than those that are written.
pub fn check_vector(option: &str, path: &Path) -> Result<()> {
    check_ending(option, path, &VectorFormat::ENDINGS, "x is written")
}

/// The format of a vector's file: NumPy's where the name, such as that of a device, says nothing.
pub fn vector_format(path: &Path) -> VectorFormat {
    VectorFormat::of(path).unwrap_or(VectorFormat::Npy)
}

/// Refuses a report under the name of something else.
pub fn check_report(option: &str, path: &Path) -> Result<()> {
    check_ending(option, path, &["json"], "a report is written")
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
    // Devices and pipes have the names that they have.
    let is_file = || std::fs::metadata(path).map_or(true, |meta| meta.is_file());
    if known.iter().any(|known| known.eq_ignore_ascii_case(ending)) || is_stdout(path) || !is_file() {
        return Ok(());
    }
    let stem = path.with_extension(known[0]);
    let names = known.iter().map(|known| format!(".{known}")).collect::<Vec<_>>().join(" or ");
    Err(Failure::usage(format!(
        "{option} {}: {done} as {names}, by the name's ending; say {option} {}",
        name(path),
        name(&stem)
    )))
}

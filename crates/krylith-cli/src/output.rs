//! Text on stdout and stderr, and output files, which are checked before a long solve starts.

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

/// The first error of writing to standard output.
static LOST: Mutex<Option<String>> = Mutex::new(None);

/// True on the rank that prints.
static SPEAKS: AtomicBool = AtomicBool::new(true);

/// True if standard output carries a file, so that text goes to stderr.
static ON_STDERR: AtomicBool = AtomicBool::new(false);

/// The file name that means standard output.
pub const STDOUT: &str = "-";

/// Sets whether this process prints results and notes. Errors are always printed.
pub fn speak(speaks: bool) {
    SPEAKS.store(speaks, Relaxed);
}

/// Returns true on the rank that prints and writes files.
pub fn speaks() -> bool {
    SPEAKS.load(Relaxed)
}

/// Sends results to stderr from now on, as stdout carries a file.
pub fn leave_stdout() {
    ON_STDERR.store(true, Relaxed);
}

/// Returns true if results go to stderr.
pub fn on_stderr() -> bool {
    ON_STDERR.load(Relaxed)
}

/// Prints results, with colours if the output supports them. [`close`] reports a failed write to stdout.
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

/// Returns an error if standard output was closed before the command started; Rust silently replaces it by
/// /dev/null.
fn is_open() -> std::io::Result<()> {
    match process::stdout_is_closed() {
        true => Err(std::io::Error::other("it is closed")),
        false => Ok(()),
    }
}

/// Records a failed write. A reader that closes the pipe (`krylith … | head`) is not an error.
pub fn printed(result: std::io::Result<()>) {
    if let Err(e) = result
        && e.kind() != std::io::ErrorKind::BrokenPipe
    {
        LOST.lock().unwrap_or_else(|e| e.into_inner()).get_or_insert(e.to_string());
    }
}

/// Returns the exit code of a command that would end with `code`. Like a lost output file, a failed write to
/// standard output has priority over the outcome.
pub fn close(code: u8) -> u8 {
    match LOST.lock().unwrap_or_else(|e| e.into_inner()).take() {
        None => code,
        Some(why) => {
            error(&format!("standard output cannot be written: {why}"));
            if matches!(code, DONE | NOT_CONVERGED) { USAGE } else { code }
        }
    }
}

/// Prints an error to stderr.
pub fn error(message: &str) {
    say(term::BAD, "error:", message);
}

/// Prints a note to stderr.
pub fn note(message: &str) {
    if speaks() {
        say(term::PLAIN, "krylith:", message);
    }
}

/// Prints the help, the version or the error that clap returns, and returns the exit code.
pub fn of_clap(e: &clap::Error) -> u8 {
    match e.use_stderr() {
        // clap wraps help and version for the terminal, but not errors.
        true => {
            let text = term::fit(&term::plain(&e.render().ansi().to_string()), term::columns_of_errors());
            let _ = AutoStream::auto(std::io::stderr()).write_all(text.as_bytes());
        }
        false => printed(is_open().and_then(|()| e.print())),
    }
    e.exit_code() as u8
}

/// Prints a line to stderr, wrapped if stderr is a terminal.
fn say(style: anstyle::Style, who: &str, message: &str) {
    let text = term::fit(&format!("{who} {}\n", term::plain(message)), term::columns_of_errors());
    let text = text.replacen(who, &term::styled(style, who), 1);
    let _ = AutoStream::auto(std::io::stderr()).write_all(text.as_bytes());
}

/// Writes a file atomically.
///
/// # Errors
/// The file system reports an error.
pub fn write(
    path: &Path,
    content: impl FnOnce(&mut dyn Write) -> std::io::Result<()>,
) -> krylith_core::Result<()> {
    krylith_core::io::atomic::write(path, content)
}

/// The target of a later write: standard output, or a file that was found to be writable.
pub struct Target {
    path: PathBuf,
    /// `None` for standard output, and on ranks that do not write.
    pending: Option<Pending>,
}

/// The targets of all output files, opened before the solve to find errors early.
pub struct Targets {
    /// The solution x.
    pub out: Option<Target>,
    /// The report.
    pub report: Option<Target>,
    /// The plot of the residuals.
    pub plot: Option<Target>,
    /// The image of a section of the solution.
    pub picture: Option<Target>,
    /// The solution on the mesh.
    pub vtu: Option<Target>,
}

impl Targets {
    /// Opens the targets, in the order of the fields.
    ///
    /// # Errors
    /// A target is not writable.
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
    /// Opens a target, which creates its temporary file on the rank that writes.
    ///
    /// # Errors
    /// The target is not writable.
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

    /// Opens the target of an option, if it is given.
    ///
    /// # Errors
    /// The same as for [`new`](Self::new).
    pub fn of(option: &str, path: &Option<PathBuf>) -> Result<Option<Self>> {
        path.as_ref().map(|path| Self::new(option, path)).transpose()
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes the file atomically, or writes to standard output.
    ///
    /// # Errors
    /// The file system reports an error. [`close`] reports a failed write to standard output.
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

    /// Writes a plot, as SVG or PNG by the extension of the file name.
    ///
    /// # Errors
    /// The same as for [`write`](Self::write), or the name ends neither in .png nor in .svg.
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

/// Returns true for `-`; a file of that name is written `./-`.
pub fn is_stdout(path: &Path) -> bool {
    path == Path::new(STDOUT)
}

/// Rejects an output file whose folder is missing, or that is a folder itself, before anything is computed.
pub fn check_target(option: &str, path: &Path) -> Result<()> {
    let wrong = |what: &str| Err(Failure::usage(format!("{option} {}: {what}", name(path))));
    if is_stdout(path) {
        return match option {
            "--out" | "--report" if process::stdout_is_closed() => {
                wrong("standard output is closed; open it, or give a file name")
            }
            "--report" => Ok(()),
            "--out" if std::io::stdout().is_terminal() => wrong(
                "x is binary, but standard output is a terminal; redirect it to a file or another program",
            ),
            "--out" => Ok(()),
            _ => wrong("only --out and --report can go to standard output; give a file name"),
        };
    }
    if path.as_os_str().is_empty() || path.file_name().is_none() {
        return wrong("this is not a file name; give a file name");
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

/// Rejects a file name for a vector whose extension is not of a supported format.
pub fn check_vector(option: &str, path: &Path) -> Result<()> {
    check_ending(option, path, &VectorFormat::ENDINGS, "x is written")
}

/// Rejects a file name for a state u whose extension is not of a supported format.
pub fn check_state(option: &str, path: &Path) -> Result<()> {
    check_ending(option, path, &VectorFormat::ENDINGS, "u is written")
}

/// Returns the format of a vector's file; it is NumPy's if the name, such as that of a device, has no known
/// extension.
pub fn vector_format(path: &Path) -> VectorFormat {
    VectorFormat::of(path).unwrap_or(VectorFormat::Npy)
}

/// Rejects a file name for a report that does not end in .json.
pub fn check_report(option: &str, path: &Path) -> Result<()> {
    check_ending(option, path, &["json"], "a report is written")
}

/// Rejects a file name for a plot that ends neither in .svg nor in .png.
pub fn check_picture(option: &str, path: &Path) -> Result<()> {
    check_ending(option, path, &["svg", "png"], "a plot is written")
}

/// Rejects a file name for ParaView that does not end in .vtu.
pub fn check_vtu(option: &str, path: &Path) -> Result<()> {
    check_ending(option, path, &["vtu"], "a file for ParaView is written")
}

fn check_ending(option: &str, path: &Path, known: &[&str], done: &str) -> Result<()> {
    let ending = path.extension().and_then(|e| e.to_str()).unwrap_or_default();
    // The user cannot choose the names of devices and pipes.
    let is_file = || std::fs::metadata(path).map_or(true, |meta| meta.is_file());
    if known.iter().any(|known| known.eq_ignore_ascii_case(ending)) || is_stdout(path) || !is_file() {
        return Ok(());
    }
    let stem = path.with_extension(known[0]);
    let names = known.iter().map(|known| format!(".{known}")).collect::<Vec<_>>().join(" or ");
    Err(Failure::usage(format!(
        "{option} {}: {done} as {names}, by the extension of the name; use {option} {}",
        name(path),
        name(&stem)
    )))
}

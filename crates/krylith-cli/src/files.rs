//! The files that a command reads and writes. No output may replace an input or another output.

use crate::failure::{Failure, Result};
use crate::output::is_stdout;
use crate::system::is_problem;
use krylith_core::text::name;
use std::path::{Path, PathBuf};

/// A file of a command, and the option that names it; the option is empty for SYSTEM and the files that it
/// names.
pub type Named<'a> = (&'a str, PathBuf);

/// Returns the files of SYSTEM; a generated problem has none.
pub fn of_system<'a>(system: &Path) -> Vec<Named<'a>> {
    if is_problem(system) {
        return Vec::new();
    }
    krylith_core::io::system::files(system).into_iter().map(|path| ("", path)).collect()
}

/// Rejects outputs that are also inputs, or that are the same file as another output.
///
/// The check compares files, not names: it follows links, and recognizes different names of one file.
///
/// # Errors
/// The first such output, with both names.
pub fn check_apart(inputs: &[Named], outputs: &[Named]) -> Result<()> {
    let shown = |(option, path): &Named| format!("{option} {}", name(path)).trim_start().to_string();
    for (i, output) in outputs.iter().enumerate() {
        if let Some(input) = inputs.iter().find(|input| same(&input.1, &output.1)) {
            let message = format!("{} would replace the input {}", shown(output), shown(input));
            return Err(Failure::usage(message + "; give it another name"));
        }
        if let Some(other) = outputs[..i].iter().find(|other| same(&other.1, &output.1)) {
            let what = if is_stdout(&output.1) { "both go to standard output" } else { "name the same file" };
            let message = format!("{} and {} {what}", shown(other), shown(output));
            return Err(Failure::usage(message + "; give each a file of its own"));
        }
    }
    Ok(())
}

/// Returns the file name of a time step, such as `out-3.vtu` for `out.vtu`.
pub fn numbered(path: &Path, step: usize) -> PathBuf {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let ending = path.extension().map(|e| format!(".{}", e.to_string_lossy())).unwrap_or_default();
    path.with_file_name(format!("{stem}-{step}{ending}"))
}

/// Returns true if two paths lead to the same file, which may not exist yet. Devices and pipes do not count,
/// as nothing in them can be lost.
fn same(a: &Path, b: &Path) -> bool {
    if is_stdout(a) || is_stdout(b) {
        return is_stdout(a) && is_stdout(b);
    }
    let lost = |path: &Path| std::fs::metadata(path).map_or(true, |meta| meta.is_file());
    lost(a) && lost(b) && (one_inode(a, b) || place(a).is_some_and(|p| Some(p) == place(b)))
}

/// Returns true for hard links, which are two names of one file.
#[cfg(unix)]
fn one_inode(a: &Path, b: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let inode = |path: &Path| std::fs::metadata(path).ok().map(|meta| (meta.dev(), meta.ino()));
    inode(a).is_some_and(|i| Some(i) == inode(b))
}

#[cfg(not(unix))]
fn one_inode(_: &Path, _: &Path) -> bool {
    false
}

/// Returns the path without links and dots; for a file that does not exist yet, resolves its folder.
fn place(path: &Path) -> Option<PathBuf> {
    let path = &krylith_core::io::atomic::destination(path).ok()?;
    if let Ok(there) = path.canonicalize() {
        return Some(there);
    }
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Some(folder.canonicalize().ok()?.join(path.file_name()?))
}

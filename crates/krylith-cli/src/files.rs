//! Which files a command reads and writes: no output takes the place of an input or of another output.

use crate::failure::{Failure, Result};
use crate::output::is_stdout;
use crate::system::is_problem;
use krylith_core::text::name;
use std::path::{Path, PathBuf};

/// A file of a command, and the option that names it; none for SYSTEM and what it names.
pub type Named<'a> = (&'a str, PathBuf);

/// The files that SYSTEM is read from; a generated problem has none.
pub fn of_system<'a>(system: &Path) -> Vec<Named<'a>> {
    if is_problem(system) {
        return Vec::new();
    }
    krylith_core::io::system::files(system).into_iter().map(|path| ("", path)).collect()
}

/// Refuses outputs that are inputs, or one another.
///
/// Files are told apart by what they are and not by how they are spelt: links are followed, and names of one file are one.
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
            return Err(Failure::usage(message + "; give each its own"));
        }
    }
    Ok(())
}

/// Whether two paths lead to one file, which may not exist yet. Devices and pipes hold nothing that could be lost.
fn same(a: &Path, b: &Path) -> bool {
    if is_stdout(a) || is_stdout(b) {
        return is_stdout(a) && is_stdout(b);
    }
    let lost = |path: &Path| std::fs::metadata(path).map_or(true, |meta| meta.is_file());
    lost(a) && lost(b) && (one_inode(a, b) || place(a).is_some_and(|p| Some(p) == place(b)))
}

/// Hard links are one file by two names.
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

/// The path without links and dots; of a file that is not there yet, that of its folder and its name.
fn place(path: &Path) -> Option<PathBuf> {
    let path = &krylith_core::io::atomic::destination(path).ok()?;
    if let Ok(there) = path.canonicalize() {
        return Some(there);
    }
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    Some(folder.canonicalize().ok()?.join(path.file_name()?))
}

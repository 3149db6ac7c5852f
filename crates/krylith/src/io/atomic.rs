//! Output files that appear whole or not at all.
//!
//! The content goes to a temporary file in the same folder, is flushed and synced, and then takes the name in one
//! rename. The cost is one fsync a file and room for both files at once; the gain is that a full disk, a crash or
//! Ctrl-C leaves the old file as it was.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Error, Result};

/// Writes a file through `content`; on any error the file that was there stays and no other is left.
///
/// Links are followed. Devices and pipes, which cannot be renamed over, are written to directly.
///
/// # Errors
/// [`Error::Io`] with the path: what `content` returns, or a folder that is missing, read-only or full.
pub fn write(path: impl AsRef<Path>, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    let path = path.as_ref();
    write_whole(path, content).map_err(|e| Error::io(path, e))
}

/// Removes the temporary file unless it was renamed: on errors and on unwinding alike.
struct Temporary(Option<PathBuf>);

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Some(path) = self.0.take() {
            let _ = fs::remove_file(path); // nothing more can be done about it here
        }
    }
}

fn write_whole(path: &Path, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let old = match fs::metadata(path) {
        Ok(meta) => Some(meta),
        Err(e) if e.kind() == io::ErrorKind::NotFound => None,
        Err(e) => return Err(e),
    };
    if old.as_ref().is_some_and(|meta| meta.is_dir()) {
        return Err(io::Error::new(io::ErrorKind::IsADirectory, "this is a folder; give a file name"));
    }
    if old.as_ref().is_some_and(|meta| !meta.is_file()) {
        let mut out = BufWriter::with_capacity(1 << 18, OpenOptions::new().write(true).open(path)?);
        content(&mut out)?;
        return out.flush();
    }
    let target = if old.is_some() { fs::canonicalize(path)? } else { path.to_path_buf() };
    let (file, name) = create_beside(&target)?;
    let mut temporary = Temporary(Some(name));
    let mut out = BufWriter::with_capacity(1 << 18, file);
    content(&mut out)?;
    let file = out.into_inner().map_err(|e| e.into_error())?;
    if let Some(meta) = old {
        file.set_permissions(meta.permissions())?;
    }
    file.sync_all()?;
    drop(file);
    if let Some(name) = &temporary.0 {
        fs::rename(name, &target)?;
    }
    temporary.0 = None;
    if let Some(Ok(folder)) = target.parent().map(File::open) {
        let _ = folder.sync_all(); // some file systems do not sync folders; the content is safe without
    }
    Ok(())
}

/// A new file in the folder of `target`, named after it, the process and a counter.
fn create_beside(target: &Path) -> io::Result<(File, PathBuf)> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let Some(name) = target.file_name() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "this names no file"));
    };
    loop {
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}-{}.part", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed)));
        let path = target.with_file_name(hidden);
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(file) => return Ok((file, path)),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue, // left by a killed run with this id
            Err(e) => return Err(e),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(dir).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn new_and_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.txt");
        write(&path, |w| w.write_all(b"one")).unwrap();
        write(&path, |w| w.write_all(b"two")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"two");
        assert_eq!(names(dir.path()), ["x.txt"]);
    }

    #[test]
    fn a_full_disk_leaves_the_old_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.txt");
        fs::write(&path, b"old").unwrap();
        let error = write(&path, |w| {
            w.write_all(&[7; 1 << 20])?; // more than the buffer: the temporary file has content by now
            Err(io::Error::from(io::ErrorKind::StorageFull))
        })
        .unwrap_err();
        assert!(error.to_string().contains("x.txt"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(names(dir.path()), ["x.txt"]);
        assert!(write(dir.path().join("new"), |_| Err(io::Error::other("no"))).is_err());
        assert_eq!(names(dir.path()), ["x.txt"]);
    }

    #[test]
    fn a_panic_leaves_the_old_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.txt");
        fs::write(&path, b"old").unwrap();
        let caught = std::panic::catch_unwind(|| write(&path, |_| panic!("in the middle")));
        assert!(caught.is_err());
        assert_eq!(
            (fs::read(&path).unwrap(), names(dir.path())),
            (b"old".to_vec(), vec!["x.txt".to_string()])
        );
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn devices_are_written_to_directly() {
        write("/dev/null", |w| w.write_all(b"gone")).unwrap();
        let error = write("/dev/full", |w| w.write_all(b"no room")).unwrap_err().to_string();
        assert!(error.contains("/dev/full"), "{error}");
    }

    #[cfg(unix)]
    #[test]
    fn links_are_followed_and_modes_kept() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let dir = tempfile::tempdir().unwrap();
        let (real, link) = (dir.path().join("real"), dir.path().join("link"));
        fs::write(&real, b"old").unwrap();
        fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
        symlink(&real, &link).unwrap();
        write(&link, |w| w.write_all(b"new")).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read(&real).unwrap(), b"new");
        assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o640);
    }

    #[test]
    fn places_that_cannot_be_written() {
        let dir = tempfile::tempdir().unwrap();
        assert!(write(dir.path(), |_| Ok(())).is_err());
        assert!(write(dir.path().join("none/x"), |_| Ok(())).is_err());
        assert!(write("", |_| Ok(())).is_err());
    }
}

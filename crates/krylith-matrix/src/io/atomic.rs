//! Output files that appear whole or not at all.
//!
//! The content goes to a temporary file in the same folder, is flushed and synced, and then takes the final
//! name in one rename. This costs one fsync per file and disk space for both files at once. In return, a full
//! disk, a crash or Ctrl-C leaves the old file unchanged. [`Pending`] creates the temporary file before there
//! is anything to write, so a folder without write access is found before the work.

use std::any::Any;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Error, Result};

/// Longest file name that file systems accept, in bytes.
const LONGEST_NAME: usize = 255;
/// Number of links followed one after the other; the system has the same limit.
const MOST_LINKS: usize = 40;

/// Writes a file through `content`. After an error the old file is unchanged and no other file remains.
///
/// Symbolic links are followed, even to files that do not exist yet. Devices and pipes, which a rename cannot
/// replace, are written to directly.
///
/// # Errors
/// [`Error::Io`] with the path: an error that `content` returns, or a folder that is missing, read-only or
/// full.
pub fn write(path: impl AsRef<Path>, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
    Pending::new(path)?.write(content)
}

/// A file to be written: its temporary file exists, and dropping this removes it.
///
/// # Examples
/// ```
/// use krylith_matrix::io::atomic::Pending;
/// # let path = std::env::temp_dir().join(format!("krylith-doc-pending-{}.txt", std::process::id()));
/// let pending = Pending::new(&path)?; // fails where the folder cannot be written to
/// assert!(!path.exists());
/// let answer = 6 * 7; // hours later
/// pending.write(|out| write!(out, "{answer}"))?;
/// assert_eq!(std::fs::read(&path).unwrap(), b"42");
/// # std::fs::remove_file(&path).ok();
/// # Ok::<(), krylith::Error>(())
/// ```
pub struct Pending {
    /// The path as the caller gave it.
    path: PathBuf,
    place: Place,
}

enum Place {
    /// Written to a temporary file beside the target, then renamed.
    Beside { file: File, temporary: Temporary, target: PathBuf, old: Option<fs::Permissions> },
    /// A device or a pipe.
    Direct,
}

/// Removes the temporary file unless it was renamed, also after errors and panics.
struct Temporary {
    path: Option<PathBuf>,
    _told: Option<Told>,
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if let Some(path) = self.path.take() {
            let _ = fs::remove_file(path); // nothing more can be done about it here
        }
    }
}

/// A value that a hook keeps alive while a temporary file exists.
pub type Told = Box<dyn Any + Send>;

static HOOK: OnceLock<fn(&Path) -> Told> = OnceLock::new();

/// Calls `hook` with the path of each temporary file created from now on. The value that it returns is
/// dropped once the file has been renamed or removed. A program can use it to remove temporary files when a
/// signal ends it. Only the first hook counts.
pub fn on_temporary(hook: fn(&Path) -> Told) {
    let _ = HOOK.set(hook);
}

/// The path at which a file of this name exists or would be created: symbolic links are followed to their
/// end, whether or not that exists.
///
/// # Errors
/// Links that form a cycle.
pub fn destination(path: impl AsRef<Path>) -> io::Result<PathBuf> {
    let mut place = path.as_ref().to_path_buf();
    for _ in 0..MOST_LINKS {
        match fs::read_link(&place) {
            Ok(next) => place = place.parent().unwrap_or(Path::new("")).join(next),
            Err(_) => return Ok(place),
        }
    }
    Err(io::Error::other("this symbolic link leads back to itself; give a file name"))
}

impl Pending {
    /// Creates the temporary file.
    ///
    /// # Errors
    /// [`Error::Io`] with the path: a folder that is missing or cannot be written to, or a path that is a
    /// folder.
    pub fn new(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let place = Place::of(path).map_err(|e| Error::io(path, e))?;
        Ok(Self { path: path.into(), place })
    }

    /// Writes the file.
    ///
    /// # Errors
    /// As [`write()`].
    pub fn write(self, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<()> {
        let Self { path, place } = self;
        place.write(&path, content).map_err(|e| Error::io(&path, e))
    }
}

impl Place {
    fn of(path: &Path) -> io::Result<Self> {
        let old = match fs::metadata(path) {
            Ok(meta) => Some(meta),
            Err(e) if e.kind() == io::ErrorKind::NotFound => None,
            Err(e) => return Err(e),
        };
        if old.as_ref().is_some_and(|meta| meta.is_dir()) {
            return Err(io::Error::new(io::ErrorKind::IsADirectory, "this is a folder; give a file name"));
        }
        if old.as_ref().is_some_and(|meta| !meta.is_file()) {
            return Ok(Place::Direct);
        }
        let target = destination(path)?;
        let (file, temporary) = create_beside(&target)?;
        Ok(Place::Beside { file, temporary, target, old: old.map(|meta| plain(meta.permissions())) })
    }

    fn write(self, path: &Path, content: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
        let Place::Beside { file, mut temporary, target, old } = self else {
            let mut out = BufWriter::with_capacity(1 << 18, OpenOptions::new().write(true).open(path)?);
            content(&mut out)?;
            return out.flush();
        };
        let mut out = BufWriter::with_capacity(1 << 18, file);
        content(&mut out)?;
        let file = out.into_inner().map_err(|e| e.into_error())?;
        if let Some(permissions) = old {
            file.set_permissions(permissions)?;
        }
        file.sync_all()?;
        drop(file);
        if let Some(name) = &temporary.path {
            fs::rename(name, &target)?;
        }
        temporary.path = None;
        if let Some(Ok(folder)) = target.parent().map(File::open) {
            let _ = folder.sync_all(); // some file systems do not sync folders; the content is safe without
        }
        Ok(())
    }
}

/// Read, write and execute permissions only: setuid, setgid and sticky bits do not pass to the new file.
#[cfg(unix)]
fn plain(old: fs::Permissions) -> fs::Permissions {
    use std::os::unix::fs::PermissionsExt;
    fs::Permissions::from_mode(old.mode() & 0o777)
}

#[cfg(not(unix))]
fn plain(old: fs::Permissions) -> fs::Permissions {
    old
}

/// Creates a file in the folder of `target`, named after the process and a counter. The name is short because
/// `target` may have the longest allowed name.
fn create_beside(target: &Path) -> io::Result<(File, Temporary)> {
    static COUNTER: AtomicU64 = AtomicU64::new(0);
    let Some(name) = target.file_name() else {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "this path names no file"));
    };
    if name.len() > LONGEST_NAME {
        return Err(io::Error::new(
            io::ErrorKind::InvalidFilename,
            "the file name is too long; at most 255 bytes are allowed",
        ));
    }
    loop {
        let hidden =
            format!(".krylith-{}-{}.part", std::process::id(), COUNTER.fetch_add(1, Ordering::Relaxed));
        let path = target.with_file_name(hidden);
        // The hook is called before the file exists, so a signal between the two finds nothing to remove.
        let told = HOOK.get().map(|hook| hook(&path));
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Ok(file) => return Ok((file, Temporary { path: Some(path), _told: told })),
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => continue, // left by a killed run
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

    /// A link to a file that does not exist yet is followed too; setuid and setgid bits are not kept.
    #[cfg(unix)]
    #[test]
    fn dangling_links_are_followed_and_special_bits_dropped() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        fs::create_dir(at("d")).unwrap();
        symlink("d/there", at("one")).unwrap();
        symlink("one", at("two")).unwrap();
        symlink("none/x", at("lost")).unwrap();
        symlink("ring", at("ring")).unwrap();
        write(at("two"), |w| w.write_all(b"new")).unwrap();
        assert_eq!(fs::read(at("d/there")).unwrap(), b"new");
        assert!(["one", "two"].iter().all(|link| fs::symlink_metadata(at(link)).unwrap().is_symlink()));
        assert!(write(at("lost"), |_| Ok(())).is_err() && write(at("ring"), |_| Ok(())).is_err());
        fs::set_permissions(at("d/there"), fs::Permissions::from_mode(0o6755)).unwrap();
        write(at("two"), |w| w.write_all(b"newer")).unwrap();
        assert_eq!(fs::metadata(at("d/there")).unwrap().permissions().mode() & 0o7777, 0o755);
        assert_eq!(
            (names(&at("d")), names(dir.path())),
            (vec!["there".into()], ["d", "lost", "one", "ring", "two"].map(String::from).to_vec())
        );
    }

    #[test]
    fn the_longest_name_that_a_file_system_takes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("a".repeat(255));
        write(&path, |w| w.write_all(b"new")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert!(Pending::new(dir.path().join("a".repeat(256))).is_err());
    }

    #[test]
    fn what_is_pending_and_never_written_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.txt");
        let pending = Pending::new(&path).unwrap();
        assert!(names(dir.path())[0].ends_with(".part"));
        drop(pending);
        assert!(names(dir.path()).is_empty());
    }

    #[test]
    fn places_that_cannot_be_written() {
        let dir = tempfile::tempdir().unwrap();
        assert!(write(dir.path(), |_| Ok(())).is_err());
        assert!(write(dir.path().join("none/x"), |_| Ok(())).is_err());
        assert!(write("", |_| Ok(())).is_err());
    }
}

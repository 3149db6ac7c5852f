//! Compiles kernel sources to cubins with NVRTC, and caches them on disk.
//!
//! The name of a cubin is a hash of everything it depends on: source, constants, architecture, compiler,
//! Krylith's version. It also carries a hash of its content. It is written as a whole and checked before it
//! is loaded, so a corrupt or foreign file is compiled again. The folder is private to the user. One rank per
//! host compiles, under a lock. If the folder is missing or read-only, cubins are not kept.

use super::nvrtc::{Failure, Form, Nvrtc, missing};
use crate::space::PrecondPrecision;
use crate::waiting::{self, Once};
use crate::{Error, Result};
use rayon::prelude::*;
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A kernel file, the constants it is specialised on, and the function in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[doc(hidden)]
pub struct Kernel {
    /// Name of the file in `kernels/`, or of the caller's file.
    pub file: &'static str,
    /// Text of the caller's file, for a [`Program`](super::Program).
    pub text: Option<&'static str>,
    /// Name of the function.
    pub entry: &'static str,
    /// Macros, in order.
    pub defines: Defines,
}

/// A compiled kernel file.
struct Module {
    image: Vec<u8>,
}

/// Constants of a kernel file: macros and their values, in order.
pub type Defines = Vec<(String, String)>;

/// Returns a source with the files of its `#include "…"` lines inserted, and the constants in front.
pub(super) fn source(kernel: &Kernel) -> String {
    fn expand(text: &str, out: &mut String) {
        for line in text.lines() {
            match line.trim().strip_prefix("#include \"").and_then(|l| l.strip_suffix('"')) {
                Some(included) => expand(super::specialisations::text(included), out),
                None => {
                    out.push_str(line);
                    out.push('\n');
                }
            }
        }
    }
    let mut out = String::new();
    for (name, value) in &kernel.defines {
        out.push_str(&format!("#define {name} {value}\n"));
    }
    expand(kernel.text.unwrap_or_else(|| super::specialisations::text(kernel.file)), &mut out);
    out
}

/// A target of the compilation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Target {
    /// Machine code of one architecture.
    Cubin(i32, i32),
    /// Text that the driver translates for this architecture and every later one.
    Ptx(i32, i32),
    /// Machine code of one architecture, compiled quickly without optimisation.
    Draft(i32, i32),
}

/// The targets of each kernel that a release embeds. Other architectures translate the PTX; their drivers are
/// newer than the compiler that makes it.
pub(super) const EMBEDDED_TARGETS: [Target; 4] =
    [Target::Cubin(8, 0), Target::Cubin(9, 0), Target::Cubin(10, 0), Target::Ptx(8, 0)];

/// Where an image is kept.
#[derive(Debug, Clone, Copy)]
enum Kept {
    /// In the library, for any driver.
    Embedded,
    /// In the cache, for drivers of this major version of CUDA, whose loaders refuse code of newer compilers.
    Cached(i32),
}

fn hash(kernel: &Kernel, source: &str, target: Target, kept: Kept) -> [u8; 32] {
    let (kind, major, minor) = match target {
        Target::Cubin(major, minor) => (0, major, minor),
        Target::Ptx(major, minor) => (1, major, minor),
        Target::Draft(major, minor) => (2, major, minor),
    };
    digest(&[
        env!("CARGO_PKG_VERSION").as_bytes(),
        b"c++20",
        &[kind, major as u8, minor as u8, if let Kept::Cached(cuda) = kept { cuda as u8 } else { 0 }],
        kernel.file.as_bytes(),
        source.as_bytes(),
    ])
}

/// The place of an image, which is found or compiled once.
type Place = Arc<Once<Arc<[u8]>>>;
/// Images by file, constants and architecture.
type Images = HashMap<(&'static str, Defines, (i32, i32)), Place>;

/// Returns the compiled kernel, which is kept until the process ends. Threads that need different kernels do
/// not wait for each other.
///
/// # Errors
/// A kernel that is not found and cannot be compiled. The next caller tries again.
pub(super) fn image(kernel: &Kernel, arch: (i32, i32)) -> Result<Arc<[u8]>> {
    static IMAGES: Mutex<Option<Images>> = Mutex::new(None);
    let key = (kernel.file, kernel.defines.clone(), arch);
    let place = {
        let mut images = IMAGES.lock().unwrap_or_else(|e| e.into_inner());
        images.get_or_insert_default().entry(key).or_default().clone()
    };
    let what = || format!("the compilation of {}", kernel.file);
    place.get_or_make(&what, || Ok(module(kernel, arch)?.image.into()))
}

/// Returns a kernel that is in the library or in the cache, and its place in the cache.
fn known_image(
    kernel: &Kernel,
    arch: (i32, i32),
    folder: Option<&PathBuf>,
) -> (Option<Vec<u8>>, Option<PathBuf>) {
    let (source, target) = (source(kernel), Target::Cubin(arch.0, arch.1));
    if let Some(image) = super::embedded::find(&hash(kernel, &source, target, Kept::Embedded)) {
        return (Some(image), None);
    }
    let name = hash(kernel, &source, target, Kept::Cached(super::driver::cuda_major().unwrap_or(0)));
    let path = folder.map(|folder| folder.join(format!("{}.cubin", hex(&name))));
    (path.as_ref().and_then(load), path)
}

/// Returns the compiled kernel: embedded, else from the cache, else compiled and cached, else embedded PTX.
fn module(kernel: &Kernel, arch: (i32, i32)) -> Result<Module> {
    let folder = cache_folder();
    let (known, path) = known_image(kernel, arch, folder.as_ref());
    if let Some(image) = known {
        return Ok(Module { image });
    }
    let source = source(kernel);
    let compiled = || match compile(kernel, &source, Target::Cubin(arch.0, arch.1)) {
        Err(missing @ Error::Library { .. }) => {
            let ptx = super::embedded::find(&hash(kernel, &source, Target::Ptx(8, 0), Kept::Embedded));
            ptx.map(|image| Module { image }).ok_or(missing)
        }
        other => other,
    };
    let (Some(folder), Some(path)) = (folder, path) else {
        return compiled();
    };
    // One process compiles, on all of its threads; the others wait and then find the file.
    let _lock = LOCK.take(&folder);
    if let Some(image) = load(&path) {
        return Ok(Module { image });
    }
    let module = compiled()?;
    let _ = store(&path, &module.image); // on a full or read-only disk, only the next process compiles again
    Ok(module)
}

/// Compiles a kernel for the archive of a release, and returns it with the hash that names it.
pub(super) fn image_for(kernel: &Kernel, target: Target) -> Result<([u8; 32], Vec<u8>)> {
    let source = source(kernel);
    Ok((hash(kernel, &source, target, Kept::Embedded), compile(kernel, &source, target)?.image))
}

/// Compiles a kernel for an architecture and discards the result. CI does so without a GPU.
///
/// # Errors
/// A missing NVRTC, or the compiler's messages.
pub fn compile_for(kernel: &Kernel, arch: (i32, i32)) -> Result<usize> {
    compile(kernel, &source(kernel), Target::Cubin(arch.0, arch.1)).map(|m| m.image.len())
}

/// Compiles as [`compile_for`] does, but without optimisation, in a third of the time. Serves to find what an
/// architecture cannot compile.
///
/// # Errors
/// A missing NVRTC, or the compiler's messages.
pub fn draft_for(kernel: &Kernel, arch: (i32, i32)) -> Result<usize> {
    compile(kernel, &source(kernel), Target::Draft(arch.0, arch.1)).map(|m| m.image.len())
}

/// Compilations that run now, and since when at least one of them has run.
static RUNNING: Mutex<(usize, Option<Instant>)> = Mutex::new((0, None));

/// A compilation that runs.
struct Running;

impl Running {
    fn begin() -> Self {
        let mut running = RUNNING.lock().unwrap_or_else(|e| e.into_inner());
        running.0 += 1;
        running.1.get_or_insert_with(Instant::now);
        Self
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let mut running = RUNNING.lock().unwrap_or_else(|e| e.into_inner());
        running.0 -= 1;
        if running.0 == 0 {
            running.1 = None;
        }
    }
}

/// Returns for how long this process has been compiling kernels; `None` if it does not.
pub fn compiling() -> Option<Duration> {
    RUNNING.lock().unwrap_or_else(|e| e.into_inner()).1.map(|since| since.elapsed())
}

/// Kernels of common sizes for one architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)]
pub struct Warmed {
    /// Number of kernels.
    pub kernels: usize,
    /// Number of those that were compiled; the others were in the library or in the cache.
    pub compiled: usize,
}

/// Puts the kernels of common sizes for an architecture into the cache, on all threads of the calling pool.
/// With `precond` f32 or bf16, so are the kernels of preconditioners that compute in it. `tell` gets the
/// number of kernels that are there, and the number of all, after each of them.
///
/// # Errors
/// No folder for the cache; a missing NVRTC; a full disk.
pub fn warm(
    arch: (i32, i32),
    precond: PrecondPrecision,
    tell: &(dyn Fn(usize, usize) + Sync),
) -> Result<Warmed> {
    let folder = cache_folder().ok_or_else(|| {
        Error::invalid(
            "there is no folder for compiled kernels that only you can write to; set KRYLITH_CACHE to one",
        )
    })?;
    let mut kernels = super::specialisations::embedded();
    if precond != PrecondPrecision::F64 {
        kernels.extend(super::specialisations::narrow());
    }
    if precond == PrecondPrecision::Bf16 {
        kernels.extend(super::specialisations::short());
    }
    let (there, compiled) = (AtomicUsize::new(0), AtomicUsize::new(0));
    kernels.par_iter().try_for_each(|kernel| {
        let (found, path) = known_image(kernel, arch, Some(&folder));
        if found.is_none() {
            let made = compile(kernel, &source(kernel), Target::Cubin(arch.0, arch.1))?;
            let path = path.unwrap_or_default();
            store(&path, &made.image).map_err(|e| Error::io(&path, e))?;
            compiled.fetch_add(1, Relaxed);
        }
        tell(there.fetch_add(1, Relaxed) + 1, kernels.len());
        Ok::<(), Error>(())
    })?;
    Ok(Warmed { kernels: kernels.len(), compiled: compiled.into_inner() })
}

const MAGIC: &[u8; 8] = b"KRYLCUB1";

fn compile(kernel: &Kernel, source: &str, target: Target) -> Result<Module> {
    let (arch, form) = match target {
        Target::Cubin(major, minor) | Target::Draft(major, minor) => {
            (format!("sm_{major}{minor}"), Form::Cubin)
        }
        Target::Ptx(major, minor) => (format!("compute_{major}{minor}"), Form::Ptx),
    };
    let mut options =
        vec![format!("--gpu-architecture={arch}"), "--std=c++20".into(), "-default-device".into()];
    if matches!(target, Target::Draft(..)) {
        options.push("--Ofast-compile=max".into());
    }
    let _running = Running::begin();
    match Nvrtc::get()?.compile(source, kernel.file, &options, form) {
        Ok(image) => Ok(Module { image }),
        Err(Failure::Compiler(why)) => Err(missing(format!("{}: {why}", kernel.file))),
        Err(Failure::Program(log)) => Err(Error::Unsupported(format!(
            "NVRTC could not compile {} with {:?}:\n{log}",
            kernel.file, kernel.defines,
        ))),
    }
}

/// The folder of cached cubins and its state.
#[derive(Debug, Clone)]
#[doc(hidden)]
pub struct CacheState {
    /// The folder, if it exists or could be made.
    pub folder: Option<PathBuf>,
    /// Number of cubins in the folder.
    pub files: usize,
}

/// Returns the state of the cache, as `krylith info` prints it.
pub fn cache_state() -> CacheState {
    let folder = cache_folder();
    let files = folder.as_ref().and_then(|f| std::fs::read_dir(f).ok()).map_or(0, |d| {
        d.filter(|e| e.as_ref().is_ok_and(|e| e.path().extension().is_some_and(|x| x == "cubin"))).count()
    });
    CacheState { folder, files }
}

/// Returns `$KRYLITH_CACHE`, else `$XDG_CACHE_HOME/krylith`, else `~/.cache/krylith`, if the folder is
/// private to the user.
fn cache_folder() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let folder = set("KRYLITH_CACHE")
        .or_else(|| set("XDG_CACHE_HOME").map(|p| p.join("krylith")))
        .or_else(|| set("HOME").map(|p| p.join(".cache/krylith")))?;
    let _ = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    is_private(&folder).then_some(folder)
}

/// True if no other user can put files into a folder, or replace the folder by another: such files could
/// contain foreign code.
fn is_private(folder: &Path) -> bool {
    let Ok(folder) = folder.canonicalize() else { return false };
    // SAFETY: no arguments, no memory.
    let (user, group) = unsafe { (libc::geteuid(), libc::getegid()) };
    folder.ancestors().enumerate().all(|(above, folder)| {
        let Ok(meta) = std::fs::metadata(folder) else { return false };
        let mode = meta.mode();
        if above == 0 {
            return meta.is_dir() && meta.uid() == user && mode & 0o022 == 0;
        }
        // With the sticky bit others can add files of their own, but cannot move anybody else's. A user's own
        // group often has no other member.
        let others_write = mode & 0o002 != 0 || (mode & 0o020 != 0 && meta.gid() != group && meta.gid() != 0);
        let owned = meta.uid() == user || meta.uid() == 0 || folder.parent().is_none();
        owned && (!others_write || mode & 0o1000 != 0)
    })
}

fn load(path: &PathBuf) -> Option<Vec<u8>> {
    let file = std::fs::read(path).ok()?;
    let body = file.strip_prefix(MAGIC)?;
    let (hash, image) = body.split_at_checked(32)?;
    (digest(&[image])[..] == *hash).then(|| image.to_vec())
}

fn store(path: &PathBuf, image: &[u8]) -> std::io::Result<()> {
    let temporary = path.with_extension(format!("tmp{}", std::process::id()));
    let write = || -> std::io::Result<()> {
        let mut file = std::fs::OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&temporary)?;
        file.write_all(MAGIC)?;
        file.write_all(&digest(&[image]))?;
        file.write_all(image)?;
        // The write does not wait for the disk: if a crash leaves part of the file, its check fails and it is
        // compiled again.
        std::fs::rename(&temporary, path)
    };
    write().inspect_err(|_| {
        let _ = std::fs::remove_file(&temporary);
    })
}

/// An exclusive lock of this process on the cache folder, shared by all of its threads that compile. There is
/// no lock where the file system has none, or where another process holds it for too long.
struct FolderLock(Mutex<(usize, Option<std::fs::File>)>);

static LOCK: FolderLock = FolderLock(Mutex::new((0, None)));

/// The longest wait for another process that compiles; after that both compile.
const LOCKED: Duration = Duration::from_secs(60);

/// The lock, held while this lives.
struct Held<'a>(&'a FolderLock);

impl FolderLock {
    fn take(&self, folder: &std::path::Path) -> Held<'_> {
        /// Set when another process held the lock for too long: this process does not wait for it again.
        static IN_VAIN: AtomicBool = AtomicBool::new(false);
        let mut held = self.0.lock().unwrap_or_else(|e| e.into_inner());
        if held.0 == 0 && !IN_VAIN.load(Relaxed) {
            held.1 = wait_for(folder, LOCKED);
            IN_VAIN.store(held.1.is_none(), Relaxed);
        }
        held.0 += 1;
        Held(self)
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        let mut held = self.0.0.lock().unwrap_or_else(|e| e.into_inner());
        held.0 -= 1;
        if held.0 == 0
            && let Some(file) = held.1.take()
        {
            // Unlocks explicitly, not by closing the file: a child that was forked meanwhile has it open too,
            // and would keep the lock.
            // SAFETY: a valid descriptor.
            unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_UN) };
        }
    }
}

/// Returns the locked lock file of a folder; `None` if it cannot be locked within `limit`.
fn wait_for(folder: &std::path::Path, limit: Duration) -> Option<std::fs::File> {
    let path = folder.join("lock");
    let file =
        std::fs::OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path).ok()?;
    let what = || "another process that compiles kernels".to_string();
    // The wait is bounded: a process that died released the lock, but one that hangs must not make us hang.
    let locked = waiting::poll(limit, &what, || {
        // SAFETY: a valid descriptor.
        let locked = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } == 0;
        let error = std::io::Error::last_os_error().raw_os_error();
        match locked {
            true => Some(true),
            false if error == Some(libc::EWOULDBLOCK) || error == Some(libc::EINTR) => None,
            false => Some(false), // the file system has no locks
        }
    });
    locked.filter(|locked| *locked).map(|_| file)
}

fn digest(parts: &[&[u8]]) -> [u8; 32] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part);
    }
    hash.finalize().into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cubin_is_loaded_only_if_it_is_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("k.cubin");
        store(&path, b"image").unwrap();
        assert_eq!(load(&path).as_deref(), Some(&b"image"[..]));
        let whole = std::fs::read(&path).unwrap();
        for n in 0..whole.len() {
            std::fs::write(&path, &whole[..n]).unwrap();
            assert_eq!(load(&path), None, "cut to {n} bytes");
            let mut bent = whole.clone();
            bent[n] ^= 1;
            std::fs::write(&path, &bent).unwrap();
            assert_eq!(load(&path), None, "byte {n} changed");
        }
    }

    #[test]
    fn a_folder_that_others_can_change_is_no_cache() {
        use std::os::unix::fs::PermissionsExt;
        let top = tempfile::tempdir().unwrap();
        let (parent, folder) = (top.path().join("p"), top.path().join("p/k"));
        std::fs::create_dir_all(&folder).unwrap();
        let set = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap()
        };
        for (of_parent, of_folder, private) in [
            (0o755, 0o700, true),
            (0o700, 0o755, true),
            (0o755, 0o777, false),
            (0o755, 0o770, false),
            (0o777, 0o700, false),
            (0o1777, 0o700, true), // like /tmp
        ] {
            set(&parent, of_parent);
            set(&folder, of_folder);
            assert_eq!(is_private(&folder), private, "{of_parent:o} {of_folder:o}");
        }
        std::os::unix::fs::symlink(&folder, top.path().join("link")).unwrap();
        set(&parent, 0o777);
        assert!(!is_private(&top.path().join("link")), "what a link leads to counts");
        assert!(!is_private(&top.path().join("none")));
    }

    #[test]
    fn threads_of_a_process_share_its_lock_and_others_wait() {
        let folder = tempfile::tempdir().unwrap();
        let free = || {
            let file = std::fs::File::open(folder.path().join("lock")).unwrap();
            // SAFETY: a valid descriptor, closed with the file.
            unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) == 0 }
        };
        let lock = FolderLock(Mutex::new((0, None)));
        let first = lock.take(folder.path());
        let second = std::thread::scope(|scope| scope.spawn(|| lock.take(folder.path())).join().unwrap());
        assert!(!free(), "both hold it");
        drop(first);
        assert!(!free(), "one holds it");
        // The same open file, as a child has it that was forked meanwhile.
        let forked = lock.0.lock().unwrap().1.as_ref().unwrap().try_clone().unwrap();
        drop(second);
        assert!(free(), "nobody holds it");
        drop(forked);
    }

    #[test]
    fn a_lock_that_another_process_keeps_is_waited_for_once() {
        let folder = tempfile::tempdir().unwrap();
        let other = wait_for(folder.path(), LOCKED).unwrap(); // a second open file, as in another process
        let limit = Duration::from_millis(20);
        assert!(wait_for(folder.path(), limit).is_none());
        drop(other);
        assert!(wait_for(folder.path(), limit).is_some());
    }

    #[test]
    fn constants_and_includes_become_one_source() {
        use crate::space::SmallStep;
        let step = crate::method::gmres::delayed_step::SOURCE;
        let text = source(&super::super::vectors::step::of(&step));
        assert!(text.starts_with("#define NONE 0\n"));
        assert!(!text.contains("#include"));
        assert!(text.contains("double* const dots = history + (m + 1);"), "{text}");
        assert!(text.contains("rotate(s, j - 1, ld, h, r, cs, sn, start, gamma, history)"), "{text}");
    }
}

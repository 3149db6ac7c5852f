//! Compiles kernel sources to cubins with NVRTC, and caches them on disk.
//!
//! The name of a cubin is a hash of everything it depends on: source, constants, architecture, compiler,
//! Krylith's version. It also carries a hash of its content. It is written as a whole and checked before it
//! is loaded, so a corrupt or foreign file is compiled again. The folder is private to the user. One rank per
//! host compiles, under a lock. If the folder is missing or read-only, cubins are not kept.

use crate::waiting::{self, Once};
use crate::{Error, Result};
use cudarc::nvrtc::{result as nvrtc, sys};
use sha2::{Digest, Sha256};
use std::collections::HashMap;
use std::ffi::{CStr, CString};
use std::io::Write;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A kernel file, the constants it is specialised on, and the function in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[doc(hidden)]
pub struct Kernel {
    /// Name of the file in `kernels/`.
    pub file: &'static str,
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
    fn expand(name: &str, out: &mut String) {
        for line in super::specialisations::text(name).lines() {
            match line.trim().strip_prefix("#include \"").and_then(|l| l.strip_suffix('"')) {
                Some(included) => expand(included, out),
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
    expand(kernel.file, &mut out);
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

/// The targets of each kernel that a release embeds.
pub(super) const EMBEDDED_TARGETS: [Target; 3] =
    [Target::Cubin(8, 0), Target::Cubin(9, 0), Target::Ptx(8, 0)];

fn hash(kernel: &Kernel, source: &str, target: Target) -> [u8; 32] {
    let (kind, major, minor) = match target {
        Target::Cubin(major, minor) => (0, major, minor),
        Target::Ptx(major, minor) => (1, major, minor),
        Target::Draft(major, minor) => (2, major, minor),
    };
    digest(&[
        env!("CARGO_PKG_VERSION").as_bytes(),
        COMPILER.as_bytes(),
        &[kind, major as u8, minor as u8],
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

/// Returns the compiled kernel: embedded, else from the cache, else compiled and cached, else embedded PTX.
fn module(kernel: &Kernel, arch: (i32, i32)) -> Result<Module> {
    let source = source(kernel);
    let target = Target::Cubin(arch.0, arch.1);
    let name = hash(kernel, &source, target);
    if let Some(image) = super::embedded::find(&name) {
        return Ok(Module { image });
    }
    let compiled = || match compile(kernel, &source, target) {
        Err(missing @ Error::Library { .. }) => {
            let ptx = super::embedded::find(&hash(kernel, &source, Target::Ptx(8, 0)));
            ptx.map(|image| Module { image }).ok_or(missing)
        }
        other => other,
    };
    let Some(folder) = cache_folder() else {
        return compiled();
    };
    let path = folder.join(format!("{}.cubin", hex(&name)));
    if let Some(image) = load(&path) {
        return Ok(Module { image });
    }
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
    Ok((hash(kernel, &source, target), compile(kernel, &source, target)?.image))
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

/// Part of a cubin's hash besides its source.
const COMPILER: &str = "nvrtc-13 c++20";
const MAGIC: &[u8; 8] = b"KRYLCUB1";

fn missing(message: impl Into<String>) -> Error {
    Error::Library {
        library: "libnvrtc.so.13".into(),
        message: message.into(),
        remedy: "install the CUDA 13 runtime compiler (pip install nvidia-cuda-nvrtc==13.0.88) and add its folder \
                 to LD_LIBRARY_PATH"
            .into(),
    }
}

fn compile(kernel: &Kernel, source: &str, target: Target) -> Result<Module> {
    /// Set once the library was found: another search would open and close it, under the lock of the system's
    /// loader.
    static FOUND: AtomicBool = AtomicBool::new(false);
    // SAFETY: only looks for the library.
    if !FOUND.load(Relaxed) && !unsafe { sys::is_culib_present() } {
        return Err(missing("the CUDA runtime compiler was not found"));
    }
    FOUND.store(true, Relaxed);
    let work = || -> Result<Module> {
        let text = CString::new(source)
            .map_err(|_| Error::invalid("the source of a kernel contains a zero byte"))?;
        let name = CString::new(kernel.file).expect("a file name");
        let program = nvrtc::create_program(&text, Some(&name)).map_err(|e| missing(format!("{e:?}")))?;
        let arch = match target {
            Target::Cubin(major, minor) | Target::Draft(major, minor) => {
                format!("--gpu-architecture=sm_{major}{minor}")
            }
            Target::Ptx(major, minor) => format!("--gpu-architecture=compute_{major}{minor}"),
        };
        let mut options = vec![arch, "--std=c++20".into(), "-default-device".into()];
        if matches!(target, Target::Draft(..)) {
            options.push("--Ofast-compile=max".into());
        }
        // SAFETY: `program` was created above and is destroyed once, below.
        let done = unsafe { nvrtc::compile_program(program, &options) };
        let result = match done {
            // SAFETY: the program lives; the log is a C string.
            Err(_) => Err(Error::Unsupported(format!(
                "NVRTC could not compile {} with {:?}:\n{}",
                kernel.file,
                kernel.defines,
                unsafe { log(program) }
            ))),
            Ok(()) => {
                // SAFETY: the size is asked for, then a buffer of that size is filled.
                let image = unsafe {
                    match target {
                        Target::Cubin(..) | Target::Draft(..) => {
                            take(program, sys::nvrtcGetCUBINSize, sys::nvrtcGetCUBIN)
                        }
                        Target::Ptx(..) => take(program, sys::nvrtcGetPTXSize, sys::nvrtcGetPTX),
                    }
                };
                image
                    .map(|image| Module { image })
                    .ok_or_else(|| missing(format!("NVRTC returned no code for {}", kernel.file)))
            }
        };
        // SAFETY: created above, not used again.
        let _ = unsafe { nvrtc::destroy_program(program) };
        result
    };
    super::driver::quietly(work).unwrap_or_else(|panic| Err(missing(panic)))
}

/// # Safety
/// `program` must be alive and compiled; `size` and `fill` must be a matching pair of NVRTC's functions.
unsafe fn take(
    program: sys::nvrtcProgram,
    size: unsafe fn(sys::nvrtcProgram, *mut usize) -> sys::nvrtcResult,
    fill: unsafe fn(sys::nvrtcProgram, *mut std::ffi::c_char) -> sys::nvrtcResult,
) -> Option<Vec<u8>> {
    let mut bytes = 0;
    // SAFETY: the caller's promise; the buffer has the size that was asked for.
    unsafe {
        (size(program, &mut bytes) == sys::nvrtcResult::NVRTC_SUCCESS).then_some(())?;
        let mut image = vec![0u8; bytes];
        (fill(program, image.as_mut_ptr().cast()) == sys::nvrtcResult::NVRTC_SUCCESS).then_some(image)
    }
}

/// # Safety
/// `program` must be alive.
unsafe fn log(program: sys::nvrtcProgram) -> String {
    // SAFETY: the caller's promise; NVRTC ends the text with a zero.
    unsafe { nvrtc::get_program_log(program) }
        .map(|log| {
            let bytes: Vec<u8> = log.iter().map(|&c| c as u8).collect();
            CStr::from_bytes_until_nul(&bytes).map(|s| s.to_string_lossy().into_owned()).unwrap_or_default()
        })
        .unwrap_or_default()
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

//! System services of a process that need `unsafe`: memory, removal of temporary files, and an exit with one
//! line of text.

use krylith_core::io::atomic::Told;
use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::SeqCst};

/// The exit code for errors of the machine, such as missing memory, drivers or devices.
pub const MACHINE: u8 = 3;

/// The system's allocator, for a program's `#[global_allocator]`. Out of memory, it ends the process with one
/// line of text, where the standard library would abort with many.
pub struct Memory;

/// Size in bytes from which an array gets large pages: two of them.
#[cfg(target_os = "linux")]
const LARGE: usize = 4 << 20;

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller guarantees the contract of the trait.
        found(large(unsafe { System.alloc(layout) }, layout.size()), layout.size())
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller guarantees the contract of the trait.
        found(large(unsafe { System.alloc_zeroed(layout) }, layout.size()), layout.size())
    }
    unsafe fn realloc(&self, p: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller guarantees the contract of the trait.
        found(large(unsafe { System.realloc(p, layout, size) }, size), size)
    }
    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        // SAFETY: the caller guarantees the contract of the trait.
        unsafe { System.dealloc(p, layout) }
    }
}

/// Requests large pages for arrays of many megabytes. The first access to memory in small pages costs several
/// times as much as filling it.
fn large(memory: *mut u8, bytes: usize) -> *mut u8 {
    #[cfg(target_os = "linux")]
    if bytes >= LARGE && !memory.is_null() {
        let (start, page) = (memory as usize, 1usize << 21);
        let (from, to) = (start.next_multiple_of(page), (start + bytes) / page * page);
        // SAFETY: whole pages of one allocation; the advice changes no content, and its failure changes
        // nothing.
        unsafe { libc::madvise(from as *mut libc::c_void, to - from, libc::MADV_HUGEPAGE) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = bytes;
    memory
}

/// Returns the memory. If the allocation failed, ends the process, unless the caller handles failed
/// allocations itself.
fn found(memory: *mut u8, bytes: usize) -> *mut u8 {
    if memory.is_null() && !krylith_core::memory::may_fail() {
        out_of_memory(bytes);
    }
    memory
}

/// Writes an error once and ends the process. Allocates nothing.
#[cold]
fn out_of_memory(bytes: usize) -> ! {
    static SAID: AtomicBool = AtomicBool::new(false);
    while SAID.swap(true, SeqCst) {
        std::thread::yield_now(); // another thread is ending the process
    }
    let mut line = [0; 256];
    let mut rest = &mut line[..];
    let _ = writeln!(
        rest,
        "error: out of memory: an allocation of {} {} failed; use f32 storage (--precision f32), a smaller \
         --restart or a machine with more memory",
        if bytes >> 20 > 0 { bytes >> 20 } else { bytes.div_ceil(1024) },
        if bytes >> 20 > 0 { "MiB" } else { "KiB" }
    );
    let free = rest.len();
    end(&line[..line.len() - free], MACHINE)
}

/// Names of existing temporary files, as C strings.
#[cfg(unix)]
static TEMPORARIES: [AtomicPtr<libc::c_char>; 16] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 16];

/// The slot of a temporary file; dropping it frees the slot.
#[cfg(unix)]
struct Slot(usize);

#[cfg(unix)]
impl Drop for Slot {
    fn drop(&mut self) {
        // The name stays in memory: a handler may be reading it.
        TEMPORARIES[self.0].store(std::ptr::null_mut(), SeqCst);
    }
}

/// Registers a temporary file, which [`end`] removes, until the returned guard is dropped. More than sixteen
/// files at a time are not removed.
#[cfg(unix)]
pub fn remove_at_end(path: &Path) -> Told {
    use std::os::unix::ffi::OsStrExt;
    let Ok(name) = std::ffi::CString::new(path.as_os_str().as_bytes()) else { return Box::new(()) };
    let name = name.into_raw();
    let free =
        |slot: &AtomicPtr<_>| slot.compare_exchange(std::ptr::null_mut(), name, SeqCst, SeqCst).is_ok();
    match TEMPORARIES.iter().position(free) {
        Some(slot) => Box::new(Slot(slot)),
        None => Box::new(()),
    }
}

/// Does nothing: [`end`] removes no files on this system.
#[cfg(not(unix))]
pub fn remove_at_end(_: &Path) -> Told {
    Box::new(())
}

/// Writes a line to stderr, removes temporary files and ends the process. Safe in a signal handler.
pub fn end(line: &[u8], code: u8) -> ! {
    write(line);
    #[cfg(unix)]
    for slot in &TEMPORARIES {
        let name = slot.load(SeqCst);
        if !name.is_null() {
            // SAFETY: a C string that is never freed.
            unsafe { libc::unlink(name) };
        }
    }
    #[cfg(unix)]
    // SAFETY: ends the process without exit handlers.
    unsafe {
        libc::_exit(code.into())
    }
    #[cfg(not(unix))]
    std::process::exit(code.into())
}

/// Writes a line to stderr. Safe in a signal handler.
pub fn write(line: &[u8]) {
    #[cfg(unix)]
    // SAFETY: a buffer and its length. A failed write is ignored, as with a closed stderr elsewhere.
    unsafe {
        libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len());
    }
    #[cfg(not(unix))]
    let _ = std::io::stderr().write_all(line);
}

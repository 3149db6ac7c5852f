//! What any of our processes has from its system, and needs `unsafe` for: memory, temporary files, and an end in one line.

use krylith_core::io::atomic::Told;
use std::alloc::{GlobalAlloc, Layout, System};
use std::io::Write;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::SeqCst};

/// The exit code where the machine lacks something.
pub const MACHINE: u8 = 3;

/// Memory of the system, and an end in one line where it has none: the standard library's end is an abort with many. For a
/// program's `#[global_allocator]`.
pub struct Memory;

/// From so many bytes on, two large pages, an array gets them.
#[cfg(target_os = "linux")]
const LARGE: usize = 4 << 20;

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Memory {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        found(large(unsafe { System.alloc(layout) }, layout.size()), layout.size())
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        found(large(unsafe { System.alloc_zeroed(layout) }, layout.size()), layout.size())
    }
    unsafe fn realloc(&self, p: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        found(large(unsafe { System.realloc(p, layout, size) }, size), size)
    }
    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(p, layout) }
    }
}

/// Asks for large pages in arrays of many megabytes: at the first touch, memory in small ones costs the system several times
/// what it costs to fill it.
fn large(memory: *mut u8, bytes: usize) -> *mut u8 {
    #[cfg(target_os = "linux")]
    if bytes >= LARGE && !memory.is_null() {
        let (start, page) = (memory as usize, 1usize << 21);
        let (from, to) = (start.next_multiple_of(page), (start + bytes) / page * page);
        // SAFETY: whole pages of one allocation; the advice changes no content, and its failure changes nothing.
        unsafe { libc::madvise(from as *mut libc::c_void, to - from, libc::MADV_HUGEPAGE) };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = bytes;
    memory
}

/// Gives memory on; without any the command ends here, unless who asked has words of its own for that.
fn found(memory: *mut u8, bytes: usize) -> *mut u8 {
    if memory.is_null() && !krylith_core::memory::may_fail() {
        out_of_memory(bytes);
    }
    memory
}

/// Says so, once, and ends the process. Allocates nothing.
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
        "error: out of memory, {} {} more are not to be had; use f32 storage, a smaller restart or a machine with \
         more memory (--precision f32, --restart)",
        if bytes >> 20 > 0 { bytes >> 20 } else { bytes.div_ceil(1024) },
        if bytes >> 20 > 0 { "MiB" } else { "KiB" }
    );
    let free = rest.len();
    end(&line[..line.len() - free], MACHINE)
}

/// Temporary files that are there, as the system takes names.
#[cfg(unix)]
static TEMPORARIES: [AtomicPtr<libc::c_char>; 16] = [const { AtomicPtr::new(std::ptr::null_mut()) }; 16];

/// The place of one of them; it is free again when this is dropped.
#[cfg(unix)]
struct Slot(usize);

#[cfg(unix)]
impl Drop for Slot {
    fn drop(&mut self) {
        // The name stays in memory: a handler may be reading it.
        TEMPORARIES[self.0].store(std::ptr::null_mut(), SeqCst);
    }
}

/// Has [`end`] remove a temporary file, until what is returned is dropped. Beyond sixteen at a time they stay.
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

/// Nothing is removed on this system.
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
            // SAFETY: a string with its end, which is never given back.
            unsafe { libc::unlink(name) };
        }
    }
    #[cfg(unix)]
    // SAFETY: ends the process, without what else is done at exits.
    unsafe {
        libc::_exit(code.into())
    }
    #[cfg(not(unix))]
    std::process::exit(code.into())
}

/// Writes a line to stderr. Safe in a signal handler.
pub fn write(line: &[u8]) {
    #[cfg(unix)]
    // SAFETY: a buffer and its length. What cannot be written is lost, as on a closed stderr elsewhere.
    unsafe {
        libc::write(libc::STDERR_FILENO, line.as_ptr().cast(), line.len());
    }
    #[cfg(not(unix))]
    let _ = std::io::stderr().write_all(line);
}

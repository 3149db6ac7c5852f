//! An allocator that records the largest number of bytes held at once.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

struct Counting;

static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);
static BEFORE: AtomicUsize = AtomicUsize::new(0);

fn grown(size: usize) {
    MOST.fetch_max(HELD.fetch_add(size, Relaxed) + size, Relaxed);
}

// SAFETY: every call goes to the system allocator; the counters do not affect it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        unsafe { System.alloc(layout) }
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        unsafe { System.alloc_zeroed(layout) }
    }
    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Relaxed);
        unsafe { System.dealloc(p, layout) }
    }
    unsafe fn realloc(&self, p: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        HELD.fetch_sub(layout.size(), Relaxed);
        grown(size);
        unsafe { System.realloc(p, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Starts a new measurement.
pub fn reset() {
    let held = HELD.load(Relaxed);
    BEFORE.store(held, Relaxed);
    MOST.store(held, Relaxed);
}

/// Returns the most bytes held at once since [`reset`], in addition to those held then.
pub fn most() -> usize {
    MOST.load(Relaxed).saturating_sub(BEFORE.load(Relaxed))
}

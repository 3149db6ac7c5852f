//! What reading by parts holds: no rank ever allocates anything near the size of the file.

use krylith_core::comm::{Communicator, Team};
use krylith_core::io::parts::read_rows;
use krylith_core::partition::Partitioner;
use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt::Write as _;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Remembers the largest single allocation, and how much all together held at most.
struct Watching;

static LARGEST: AtomicUsize = AtomicUsize::new(0);
static HELD: AtomicUsize = AtomicUsize::new(0);
static MOST: AtomicUsize = AtomicUsize::new(0);

fn grown(size: usize) {
    LARGEST.fetch_max(size, Ordering::Relaxed);
    MOST.fetch_max(HELD.fetch_add(size, Ordering::Relaxed) + size, Ordering::Relaxed);
}

// SAFETY: every call is the system allocator's; the counters are only beside it.
unsafe impl GlobalAlloc for Watching {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        grown(layout.size());
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, p: *mut u8, layout: Layout) {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        unsafe { System.dealloc(p, layout) }
    }
    unsafe fn realloc(&self, p: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        HELD.fetch_sub(layout.size(), Ordering::Relaxed);
        grown(size);
        unsafe { System.realloc(p, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Watching = Watching;

/// 40 MB on 8 ranks: 5 MB of text a rank, and as much in 16-byte entries. Rounds of 2 MiB of text make at
/// most as much in messages and parsed entries.
#[test]
fn the_largest_buffer_is_a_share_of_the_file() {
    const RANKS: usize = 8;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.mtx");
    let (n, per_row) = (320_000usize, 8);
    let mut text = format!("%%MatrixMarket matrix coordinate integer general\n{n} {n} {}\n", n * per_row);
    for p in 0..n * per_row {
        // A stride through the rows: every range has entries for all ranks.
        let (i, k) = (p * 7 % n, p / n);
        let _ = writeln!(text, "{} {} {k}", i + 1, (i + k * 1000) % n + 1); // strings never fail
    }
    std::fs::write(&path, &text).unwrap();
    let file = text.len();
    drop(text);
    LARGEST.store(0, Ordering::Relaxed);
    let before = HELD.load(Ordering::Relaxed);
    MOST.store(before, Ordering::Relaxed);

    let read = |comm: std::sync::Arc<krylith_core::comm::TeamRank>| {
        let rows = read_rows(&*comm, &path, None, Partitioner::Rows)?;
        assert_eq!(rows.rows.numbers.len(), n / comm.size());
        Ok(rows.rows.terms[0].1.col.len())
    };
    let stored: usize = Team::run(RANKS, read).unwrap().into_iter().sum();
    assert_eq!(stored, n * per_row);
    let (largest, most) = (LARGEST.load(Ordering::Relaxed), MOST.load(Ordering::Relaxed) - before);
    let (share, batch) = (file / RANKS, 2 << 20);
    assert!(largest <= 2 * share + 2 * batch, "one buffer of {largest} bytes; the file has {file}");
    // All ranks are in this process: together they hold each entry a few times, and a few rounds each.
    assert!(most <= 6 * file + RANKS * 12 * batch, "{most} bytes at once; the file has {file}");
}

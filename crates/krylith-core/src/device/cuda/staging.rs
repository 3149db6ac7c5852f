//! Copies between pageable host memory and a GPU at the speed of the link: several threads copy chunks
//! through pinned memory.
//!
//! The driver copies pageable memory with one thread, which reaches a sixth of the link's bandwidth (8.7 of
//! 55 GB/s measured). Allocating the pinned chunks takes 8 ms, once per process, when the first large array
//! is copied.

use super::driver::Device;
use super::pinned::Pinned;
use crate::Result;
use cudarc::driver::result::DriverError;
use cudarc::driver::{CudaContext, sys};
use rayon::prelude::*;
use std::ffi::c_void;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard};

/// Bytes of a chunk. Below one megabyte the driver's cost per copy matters: 20 GB/s with 256 KiB, 43 with
/// this size, 47 with twice this size, and 55 from pinned memory (measured with 8 threads on a host of an
/// H200).
const PIECE: usize = 1 << 20;
/// Shorter copies are left to the driver.
const SHORT: usize = 2 << 20;
/// Copies of at most this size reach the host through pinned memory, so that no thread blocks in the driver.
const LANDING: usize = 64 << 10;
/// Largest number of threads; more do not increase the speed.
const THREADS: usize = 8;
/// Chunks per thread: one is filled while the other is copied.
const OWN: usize = 2;

/// Pinned chunks, and for each an event that marks the end of its last copy.
pub(super) struct Staging {
    memory: *mut u8,
    lanes: Vec<Mutex<[sys::CUevent; OWN]>>,
}

// SAFETY: lane i owns the chunks OWN·i.. of the memory, and is used under its lock; events may be used by any
// thread.
unsafe impl Send for Staging {}
// SAFETY: as above.
unsafe impl Sync for Staging {}

impl Staging {
    /// Returns the staging memory of a GPU. It is allocated at its first use and kept until the process ends,
    /// like the context that it belongs to.
    pub(super) fn of(
        context: &Arc<CudaContext>,
        ordinal: usize,
    ) -> std::result::Result<Arc<Self>, DriverError> {
        static KEPT: Mutex<Vec<(usize, Arc<Staging>)>> = Mutex::new(Vec::new());
        let mut kept = KEPT.lock().unwrap_or_else(|e| e.into_inner());
        if let Some((_, staging)) = kept.iter().find(|(kept, _)| *kept == ordinal) {
            return Ok(staging.clone());
        }
        let staging = Arc::new(Self::new(context)?);
        kept.push((ordinal, staging.clone()));
        Ok(staging)
    }

    fn new(context: &Arc<CudaContext>) -> std::result::Result<Self, DriverError> {
        context.bind_to_thread()?;
        // Sized for any solver: the memory is kept, and a solver with fewer threads leaves lanes unused.
        let threads = crate::threads::cores().clamp(1, THREADS);
        let mut memory = std::ptr::null_mut();
        let (bytes, flags) = (threads * OWN * PIECE, sys::CU_MEMHOSTALLOC_PORTABLE);
        // SAFETY: writes one pointer.
        unsafe { sys::cuMemHostAlloc(&mut memory, bytes, flags) }.result()?;
        let mut staging = Self { memory: memory.cast(), lanes: Vec::new() };
        for _ in 0..threads {
            let mut events = [std::ptr::null_mut(); OWN];
            for event in &mut events {
                let flags = sys::CUevent_flags::CU_EVENT_DISABLE_TIMING as u32;
                // SAFETY: writes one handle.
                unsafe { sys::cuEventCreate(event, flags) }.result()?;
            }
            staging.lanes.push(Mutex::new(events));
        }
        Ok(staging)
    }

    fn lane(&self, i: usize) -> (MutexGuard<'_, [sys::CUevent; OWN]>, *mut u8) {
        let events = self.lanes[i].lock().unwrap_or_else(|e| e.into_inner());
        // SAFETY: within the allocation: there are OWN chunks per lane.
        (events, unsafe { self.memory.add(i * OWN * PIECE) })
    }
}

/// Memory that several threads use. No two use the same chunk.
#[derive(Clone, Copy)]
struct Shared(*mut u8);
// SAFETY: chunks do not overlap, and each is taken by one thread.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// # Safety
    /// `at` must be within the memory.
    unsafe fn at(self, at: usize) -> *mut u8 {
        // SAFETY: the caller's promise.
        unsafe { self.0.add(at) }
    }
}

impl Device {
    fn staging(&self) -> Result<Arc<Staging>> {
        self.check("cuMemHostAlloc", Staging::of(&self.context, self.info.ordinal))
    }

    /// Starts a copy from the host in stream order. The caller may change `host` once this returns.
    ///
    /// # Safety
    /// `to` must be valid for the bytes of `host` until the stream has done the copy.
    pub(super) unsafe fn send<T: Copy>(&self, host: &[T], to: u64) -> Result<()> {
        let bytes = size_of_val(host);
        if bytes == 0 {
            return Ok(());
        }
        self.bind()?;
        let from = Shared(host.as_ptr().cast_mut().cast());
        let copy = |to: u64, from: *const u8, bytes: usize| {
            // SAFETY: the caller's promise, and bytes of `host` or of a chunk.
            let code =
                unsafe { sys::cuMemcpyHtoDAsync_v2(to, from.cast(), bytes, self.stream().cu_stream()) };
            self.driver("cuMemcpyHtoDAsync", code)
        };
        if bytes <= SHORT {
            return copy(to, from.0, bytes);
        }
        if is_pinned(from.0) {
            copy(to, from.0, bytes)?;
            return self.wait();
        }
        self.pieces(bytes, &|lane: Lane, at, bytes| {
            lane.finish()?;
            // SAFETY: a chunk of the host's memory, and of the pinned memory, which no copy uses.
            unsafe { std::ptr::copy_nonoverlapping(from.at(at), lane.piece, bytes) };
            copy(to + at as u64, lane.piece, bytes)?;
            lane.record()
        })
    }

    /// Copies numbers to the host after the present work of the stream, and waits.
    ///
    /// # Safety
    /// `from` must be the address of as many bytes as `host` has.
    pub(super) unsafe fn fetch<T: Copy>(&self, from: u64, host: &mut [T]) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.fetch_by(from, host, Self::pieces) }
    }

    /// Copies as [`fetch`](Self::fetch) does, but with threads outside rayon, for arrays fetched within a
    /// [`OnceLock`](std::sync::OnceLock). A rayon thread that waits for a loop may start other work that
    /// needs the same array, and deadlock.
    ///
    /// # Safety
    /// As [`fetch`](Self::fetch).
    pub(super) unsafe fn fetch_apart<T: Copy>(&self, from: u64, host: &mut [T]) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.fetch_by(from, host, Self::pieces_apart) }
    }

    /// # Safety
    /// As [`fetch`](Self::fetch).
    unsafe fn fetch_by<T: Copy>(
        &self,
        from: u64,
        host: &mut [T],
        by_pieces: fn(&Self, usize, &EachPiece) -> Result<()>,
    ) -> Result<()> {
        let bytes = size_of_val(host);
        if bytes == 0 {
            return self.wait();
        }
        self.bind()?;
        let to = Shared(host.as_mut_ptr().cast());
        let copy = |to: *mut u8, from: u64, bytes: usize| {
            // SAFETY: the caller's promise, and bytes of `host` or of a chunk.
            let code = unsafe {
                sys::cuMemcpyDtoHAsync_v2(to.cast::<c_void>(), from, bytes, self.stream().cu_stream())
            };
            self.driver("cuMemcpyDtoHAsync", code)
        };
        if bytes <= LANDING
            && let Ok(mut landing) = self.landing()?.try_lock()
        {
            let at = landing.numbers().as_mut_ptr().cast::<u8>();
            copy(at, from, bytes)?;
            self.wait()?;
            // SAFETY: as many bytes of both, and the copy is done.
            unsafe { std::ptr::copy_nonoverlapping(at, to.0, bytes) };
            return Ok(());
        }
        if bytes <= SHORT || is_pinned(to.0) {
            // A copy to pageable memory waits in the driver without a time limit. So wait first, with a
            // limit, for the earlier work.
            self.wait()?;
            copy(to.0, from, bytes)?;
            return self.wait();
        }
        by_pieces(self, bytes, &|lane: Lane, at, bytes| {
            lane.finish()?;
            copy(lane.piece, from + at as u64, bytes)?;
            lane.record()?;
            lane.finish()?;
            // SAFETY: a chunk of the host's memory, taken by this thread alone, and of the pinned memory,
            // whose copy is done.
            unsafe { std::ptr::copy_nonoverlapping(lane.piece, to.at(at), bytes) };
            Ok(())
        })
    }

    /// Returns pinned memory for short copies from this GPU, one at a time. It is allocated once per process.
    fn landing(&self) -> Result<Arc<Mutex<Pinned>>> {
        static KEPT: Mutex<Vec<(usize, Arc<Mutex<Pinned>>)>> = Mutex::new(Vec::new());
        let (mut kept, ordinal) = (KEPT.lock().unwrap_or_else(|e| e.into_inner()), self.info.ordinal);
        if let Some((_, landing)) = kept.iter().find(|(kept, _)| *kept == ordinal) {
            return Ok(landing.clone());
        }
        let landing = Arc::new(Mutex::new(Pinned::new(self, LANDING / size_of::<f64>())?));
        kept.push((ordinal, landing.clone()));
        Ok(landing)
    }

    /// Calls `work` for every chunk of `bytes` bytes, on several threads.
    fn pieces(&self, bytes: usize, work: &EachPiece) -> Result<()> {
        let (staging, next) = (self.staging()?, AtomicUsize::new(0));
        let lanes = staging.lanes.len().min(bytes.div_ceil(PIECE));
        let lanes = (0..lanes).into_par_iter().with_max_len(1);
        lanes.try_for_each(|i| self.pieces_of_lane(&staging, i, &next, bytes, work))
    }

    /// Calls `work` for every chunk as [`pieces`](Self::pieces) does, but outside rayon, on the calling
    /// thread and new threads.
    fn pieces_apart(&self, bytes: usize, work: &EachPiece) -> Result<()> {
        let (staging, next) = (self.staging()?, AtomicUsize::new(0));
        let lanes = staging.lanes.len().min(bytes.div_ceil(PIECE)).min(rayon::current_num_threads());
        let of_lane = |i: usize| self.pieces_of_lane(&staging, i, &next, bytes, work);
        std::thread::scope(|scope| {
            let start = |i: usize| std::thread::Builder::new().spawn_scoped(scope, move || of_lane(i)).ok();
            let others: Vec<_> = (1..lanes).map_while(start).collect();
            let first = of_lane(0);
            let all =
                others.into_iter().map(|lane| lane.join().unwrap_or_else(|e| std::panic::resume_unwind(e)));
            all.fold(first, Result::and)
        })
    }

    /// Calls `work` for the chunks from `next` on, one after another, until none is left.
    fn pieces_of_lane(
        &self,
        staging: &Staging,
        i: usize,
        next: &AtomicUsize,
        bytes: usize,
        work: &EachPiece,
    ) -> Result<()> {
        self.bind()?;
        let (events, memory) = staging.lane(i);
        for turn in 0.. {
            let at = next.fetch_add(PIECE, Relaxed);
            if at >= bytes {
                break;
            }
            let own = turn % OWN;
            // SAFETY: one of the lane's chunks.
            let piece = unsafe { memory.add(own * PIECE) };
            let lane = Lane { device: self, piece, event: events[own] };
            work(lane, at, PIECE.min(bytes - at))?;
        }
        Ok(())
    }
}

/// Work on a chunk: the arguments are its lane, its offset, and its length in bytes.
type EachPiece<'a> = dyn Fn(Lane, usize, usize) -> Result<()> + Sync + 'a;

/// A chunk of pinned memory and its event.
struct Lane<'a> {
    device: &'a Device,
    piece: *mut u8,
    event: sys::CUevent,
}

impl Lane<'_> {
    /// Waits until the last copy of this chunk is done.
    fn finish(&self) -> Result<()> {
        self.device.wait_for_event(self.event)
    }

    fn record(&self) -> Result<()> {
        // SAFETY: a live event and the device's stream.
        let code = unsafe { sys::cuEventRecord(self.event, self.device.stream().cu_stream()) };
        self.device.driver("cuEventRecord", code)
    }
}

/// True if the memory is pinned, so that the driver copies it directly.
fn is_pinned(host: *const u8) -> bool {
    let mut kind = 0u32;
    let attribute = sys::CUpointer_attribute::CU_POINTER_ATTRIBUTE_MEMORY_TYPE;
    // SAFETY: writes one number of the attribute's type; any address may be queried.
    let code = unsafe { sys::cuPointerGetAttribute((&raw mut kind).cast(), attribute, host as u64) };
    code.result().is_ok() && kind == sys::CUmemorytype::CU_MEMORYTYPE_HOST as u32
}

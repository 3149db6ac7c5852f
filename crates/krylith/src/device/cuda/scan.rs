//! Exclusive prefix sums of counts: where the entries of each row begin, or which number a chosen node gets.

use super::compiler::Kernel;
use super::driver::{Buffer, Device, launch};
use super::specialisations::define;
use crate::Result;
use std::sync::Arc;

/// Threads of a block that scans, and numbers of a thread.
const THREADS: usize = 256;
const ITEMS: usize = 8;

fn kernel(entry: &'static str) -> Kernel {
    let defines = vec![define("THREADS", THREADS), define("ITEMS", ITEMS)];
    Kernel { file: "scan_counts.cu", entry, defines }
}

/// The kernels of [`scan`].
pub(super) fn kernels() -> [Kernel; 3] {
    ["scan_blocks", "scan_sums", "scan_places"].map(kernel)
}

/// Exclusive prefix sums of counts, and the total behind them: one number more than there are counts.
pub(super) fn scan(device: &Arc<Device>, counts: &Buffer<u32>) -> Result<Buffer<i64>> {
    let (n, what) = (counts.len(), "prefix sums");
    let places = device.room::<i64>(n + 1, what)?;
    let blocks = n.div_ceil(THREADS * ITEMS).max(1);
    let sums = device.room::<i64>(blocks, what)?;
    let function = |entry| device.function(&kernel(entry));
    let (length, counts, sums_at) = (n as i64, counts.pointer(), sums.pointer());
    // SAFETY: the parameter types are the kernels'; `sums` has a number for each block, `places` one more than `counts`.
    unsafe {
        let scan = function("scan_blocks")?;
        launch!(device, &scan, blocks, THREADS, 0, length, counts, sums_at)?;
        let scan = function("scan_sums")?;
        launch!(device, &scan, 1, THREADS, 0, blocks as i64, sums_at, places.at(n))?;
        let scan = function("scan_places")?;
        launch!(device, &scan, blocks, THREADS, 0, length, counts, sums_at, places.pointer())?;
    }
    Ok(places)
}

/// The last number of a buffer, such as the total behind prefix sums; waits for the device.
pub(super) fn last<T: Copy + Default>(device: &Device, from: &Buffer<T>) -> Result<T> {
    let mut found = [T::default()];
    device.read(from, from.len() - 1, &mut found)?;
    Ok(found[0])
}

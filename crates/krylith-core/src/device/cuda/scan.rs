//! Exclusive prefix sums of counts, for example the first entry of each row, or the new number of a selected
//! node.

use super::driver::{Buffer, Device};
use super::launch::{At, Entry, Of, kernels};
use super::specialisations::define;
use crate::Result;
use std::sync::Arc;

kernels! {
    SCAN_COLUMNS in "scan.cu", |_| [1, 3].map(|columns| scan_columns::of(columns).into()).into();
    fn scan_columns(count: i64, values: At<i64>);
}

kernels! {
    SCAN in "scan_counts.cu", |_| vec![kernel(scan_blocks).into()];
    fn scan_blocks(n: i64, counts: At<u32>, sums: At<i64>);
    fn scan_sums(blocks: i64, sums: At<i64>, end: At<i64>);
    fn scan_places(n: i64, counts: At<u32>, sums: At<i64>, places: At<i64>);
}

/// Threads per thread block of a scan.
const THREADS: usize = 256;
/// Numbers per thread of a scan.
const ITEMS: usize = 8;

impl scan_columns {
    /// Returns the kernel for exclusive sums of interleaved columns.
    pub(crate) fn of(columns: usize) -> Of<Self> {
        Self.with(vec![define("COLUMNS", columns)])
    }
}

fn kernel<K: Entry>(entry: K) -> Of<K> {
    let defines = vec![define("THREADS", THREADS), define("ITEMS", ITEMS)];
    entry.with(defines)
}

/// Returns exclusive prefix sums of counts, followed by the total: one number more than there are counts.
pub(super) fn scan(device: &Arc<Device>, counts: &Buffer<u32>) -> Result<Buffer<i64>> {
    let (n, what) = (counts.len(), "prefix sums");
    let places = device.allocate::<i64>(n + 1, what)?;
    let blocks = n.div_ceil(THREADS * ITEMS).max(1);
    let sums = device.allocate::<i64>(blocks, what)?;
    let length = n as i64;
    device.function(&kernel(scan_blocks))?.on(device, blocks, THREADS).run(length, counts, &sums)?;
    device.function(&kernel(scan_sums))?.on(device, 1, THREADS).run(blocks as i64, &sums, places.at(n))?;
    device.function(&kernel(scan_places))?.on(device, blocks, THREADS).run(length, counts, &sums, &places)?;
    Ok(places)
}

/// Returns the last number of a buffer, such as the total of prefix sums; waits for the device.
pub(super) fn last<T: Copy + Default>(device: &Device, from: &Buffer<T>) -> Result<T> {
    let mut found = [T::default()];
    device.read(from, from.len() - 1, &mut found)?;
    Ok(found[0])
}

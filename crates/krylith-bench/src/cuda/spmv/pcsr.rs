//! pCSR-SpMV of MSREP (Chen et al. 2022): every GPU has equally many nonzeros, so rows may be split. Each
//! GPU's sums are copied to the host, which adds up those of split rows. Kernel, copy and merge count, as in
//! the paper.

use super::Held;
use super::published::{CsrVector, threads_a_row};
use crate::cuda::vendor::{Pinned, Vendor};
use cudarc::driver::result as driver;
use krylith_core::Result;
use krylith_core::comm::{Communicator, Team, largest};
use krylith_core::device::cuda::Device;
use krylith_core::matrix::Csr;
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// A GPU's share: entries, their rows, and whether another GPU has the beginning of the first row.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Share {
    entries: Range<usize>,
    rows: Range<usize>,
    broken: bool,
}

/// Returns every GPU's share.
fn shares(ends: &[usize], ranks: usize) -> Vec<Share> {
    let (rows, entries) = (ends.len() - 1, ends[ends.len() - 1]);
    let (mut all, mut first, mut broken) = (Vec::new(), 0, false);
    for p in 0..ranks {
        let (from, to) = (entries * p / ranks, entries * (p + 1) / ranks);
        // Rows that begin before the end; the last share also has the empty rows after it.
        let last = if p + 1 == ranks { rows } else { ends[..rows].partition_point(|&e| e < to).max(first) };
        all.push(Share { entries: from..to, rows: first..last, broken });
        broken = last > first && last <= rows && to < ends[last] && to > ends[last - 1];
        first = if broken { last - 1 } else { last };
    }
    all
}

/// Returns the seconds of the set-up (ranges and pointers, on the host) and of every product, and y.
pub(super) fn measure(
    devices: &[Arc<Device>],
    a: &Csr,
    x: &[f64],
    samples: usize,
) -> Result<(f64, Vec<f64>, Vec<f64>)> {
    let (ranks, n) = (devices.len(), a.rows());
    let begin = Instant::now();
    let shares = shares(a.row_ptr(), ranks);
    let pointers: Vec<Vec<i64>> = shares
        .iter()
        .map(|s| {
            let clamp = |e: usize| (e.clamp(s.entries.start, s.entries.end) - s.entries.start) as i64;
            a.row_ptr()[s.rows.start..=s.rows.end].iter().map(|&e| clamp(e)).collect()
        })
        .collect();
    let setup = begin.elapsed().as_secs_f64();
    // y, followed by each GPU's part of a row that begins on another GPU.
    let host = Pinned::new(&*Vendor::open(&devices[0])?, n + ranks)?;
    let answer = Mutex::new(Vec::new());
    let all = Team::run(ranks, |comm| {
        let rank = comm.rank();
        let (share, device) = (&shares[rank], &devices[rank]);
        let vendor = Vendor::open(device)?;
        let held = Held {
            rows: share.rows.len(),
            entries: share.entries.len(),
            ptr: device.upload(&pointers[rank], "row pointers")?,
            col: device.upload(&a.col()[share.entries.clone()], "columns")?,
            values: device.upload(&a.values()[share.entries.clone()], "values")?,
        };
        let (x, y) = (device.upload(x, "x")?, device.zeros::<f64>(held.rows.max(1), "y")?);
        let threads = threads_a_row(held.rows, held.entries);
        let kernel = CsrVector::new(&vendor, &held, threads, [x.pointer(), y.pointer()])?;
        let own = usize::from(share.broken);
        // Copies numbers of y, starting at `from`, to `to` in the host's memory.
        let copy = |from: usize, to: usize, count: usize| -> Result<()> {
            if count == 0 {
                return Ok(());
            }
            assert!(from + count <= held.rows.max(1));
            // SAFETY: in bounds of both; no other rank writes these numbers, and none reads before all have
            // synchronised.
            let done = unsafe {
                driver::memcpy_dtoh_async(host.write(to, count), y.at(from), device.stream().cu_stream())
            };
            done.map_err(|e| vendor.failure("cuMemcpyDtoHAsync", e))
        };
        let product = || -> Result<f64> {
            device.wait()?;
            comm.sum(&mut [0.0])?;
            let begin = Instant::now();
            kernel.run(&held, x.pointer(), y.pointer())?;
            copy(own, share.rows.start + own, held.rows - own)?;
            copy(0, n + rank, own)?;
            device.wait()?;
            comm.sum(&mut [0.0])?;
            if rank == 0 {
                for (p, share) in shares.iter().enumerate().filter(|(_, s)| s.broken) {
                    // SAFETY: in bounds; all ranks have synchronised, and none continues before the next
                    // synchronisation.
                    unsafe { host.write(share.rows.start, 1)[0] += host.read(n + p, 1)[0] };
                }
            }
            comm.sum(&mut [0.0])?;
            largest(&*comm, begin.elapsed().as_secs_f64())
        };
        (0..3).try_for_each(|_| product().map(|_| ()))?;
        let taken = (0..samples).map(|_| product()).collect::<Result<Vec<f64>>>()?;
        if rank == 0 {
            // SAFETY: n numbers, which no rank writes any more.
            let y = unsafe { host.read(0, n) }.to_vec();
            *answer.lock().unwrap_or_else(|e| e.into_inner()) = y;
        }
        Ok(taken)
    })?;
    let y = answer.into_inner().unwrap_or_else(|e| e.into_inner());
    Ok((setup, all.into_iter().next().unwrap_or_default(), y))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_hold_every_entry_once_and_every_row_at_least_once() {
        for lengths in
            [vec![2, 0, 3, 0, 0, 40, 1, 0], vec![4, 4, 4, 4], vec![0, 0, 9], vec![1], vec![5, 0, 0, 5, 0]]
        {
            let mut ends = vec![0];
            lengths.iter().for_each(|l| ends.push(ends[ends.len() - 1] + l));
            for ranks in 1..=8 {
                let all = shares(&ends, ranks);
                let mut sums = vec![0usize; lengths.len()];
                let mut written = vec![0; lengths.len()];
                for s in &all {
                    for i in s.rows.clone() {
                        let clamp = |e: usize| e.clamp(s.entries.start, s.entries.end);
                        sums[i] += clamp(ends[i + 1]) - clamp(ends[i]);
                        written[i] += usize::from(!(s.broken && i == s.rows.start));
                    }
                }
                assert_eq!(sums, lengths, "{ranks} ranks");
                assert!(written.iter().all(|&w| w == 1), "{ranks} ranks: {written:?}, {all:?}");
            }
        }
    }
}

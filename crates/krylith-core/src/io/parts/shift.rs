//! Moves runs of block rows to their final owners: the final cut is known only after the rows have been read.

use super::whole_numbers;
use crate::comm::Communicator;
use crate::partition::{RowBlocks, nearest, runs};
use crate::{Error, Result};
use std::ops::Range;

/// Computes the cut of [`Partition::by_nonzeros`](crate::partition::Partition::by_nonzeros) from the weights
/// of own rows, the first of which has number `first`. Collective.
pub(super) fn by_nonzeros(
    comm: &dyn Communicator,
    first: usize,
    weights: impl Iterator<Item = u64>,
    nodes: usize,
) -> Result<Vec<usize>> {
    let ranks = comm.size();
    let mut sums = vec![0u64];
    sums.extend(weights.scan(0, |sum, w| {
        *sum += w;
        Some(*sum)
    }));
    let told = whole_numbers(comm, &[sums[sums.len() - 1] as usize])?;
    let before: u64 = told[..comm.rank()].iter().map(|n| n[0] as u64).sum();
    let total: u64 = told.iter().map(|n| n[0] as u64).sum();
    sums.iter_mut().for_each(|sum| *sum += before);

    // Each boundary is where the running sum passes its share of the total; the rank that holds this row
    // finds it.
    let share = |sum: u64| u128::from(sum) * ranks as u128;
    let wanted: Vec<usize> = (1..ranks)
        .map(|part| {
            let target = u128::from(total) * part as u128;
            let here = share(sums[0]) < target && target <= share(sums[sums.len() - 1]);
            if here { first + nearest(&sums, total, part, ranks) } else { 0 }
        })
        .collect();
    let told = whole_numbers(comm, &wanted)?;
    let wanted: Vec<usize> =
        (0..wanted.len()).map(|p| told.iter().map(|w| w[p]).max().unwrap_or(0)).collect();
    Ok(runs(nodes, ranks, |part| wanted[part - 1]))
}

/// Sends rows `first..` to their owners according to `bounds`, and receives own rows. Collective.
pub(super) fn shift(
    comm: &dyn Communicator,
    first: usize,
    rows: RowBlocks,
    block: usize,
    bounds: &[usize],
) -> Result<RowBlocks> {
    let (rank, n) = (comm.rank(), rows.row_ptr.len() - 1);
    let local = |q: usize| -> Range<usize> {
        let at = |bound: usize| bound.clamp(first, first + n) - first;
        at(bounds[q])..at(bounds[q + 1])
    };
    if whole_numbers(comm, &[usize::from(local(rank).len() < n)])?.iter().all(|moved| moved[0] == 0) {
        return Ok(rows);
    }
    let out = (0..comm.size()).map(|q| if q == rank { Vec::new() } else { pack(&rows, block, local(q)) });
    let came = comm.all_to_all(out.collect())?;

    let mut mine = RowBlocks { row_ptr: vec![0], ..Default::default() };
    for (q, bytes) in came.iter().enumerate() {
        let appended = if q == rank {
            let own = local(rank);
            let (p, e) = (rows.row_ptr[own.start], rows.row_ptr[own.end]);
            let end = mine.col.len();
            mine.row_ptr.extend(rows.row_ptr[own.start + 1..=own.end].iter().map(|&q| q - p + end));
            mine.col.extend(&rows.col[p..e]);
            mine.values.extend(&rows.values[p * block * block..e * block * block]);
            Some(())
        } else {
            unpack(&mut mine, block, bytes)
        };
        appended
            .ok_or_else(|| Error::invalid(format!("the message with rows from rank {q} is incomplete")))?;
    }
    Ok(mine)
}

/// Packs the number of rows, their lengths, columns and values.
fn pack(rows: &RowBlocks, block: usize, range: Range<usize>) -> Vec<u8> {
    if range.is_empty() {
        return Vec::new();
    }
    let (p, e) = (rows.row_ptr[range.start], rows.row_ptr[range.end]);
    let mut out = Vec::with_capacity(8 * (1 + range.len() + (e - p) * (1 + block * block)));
    out.extend((range.len() as u64).to_le_bytes());
    for w in rows.row_ptr[range.start..=range.end].windows(2) {
        out.extend(((w[1] - w[0]) as u64).to_le_bytes());
    }
    rows.col[p..e].iter().for_each(|j| out.extend(j.to_le_bytes()));
    rows.values[p * block * block..e * block * block].iter().for_each(|v| out.extend(v.to_le_bytes()));
    out
}

/// Appends rows packed by [`pack`]; returns `None` if they are incomplete.
fn unpack(rows: &mut RowBlocks, block: usize, bytes: &[u8]) -> Option<()> {
    let Some((n, words)) = bytes.as_chunks::<8>().0.split_first() else { return Some(()) };
    let (lengths, words) = words.split_at_checked(u64::from_le_bytes(*n) as usize)?;
    let before = rows.col.len();
    for length in lengths {
        rows.row_ptr.push(rows.row_ptr[rows.row_ptr.len() - 1] + u64::from_le_bytes(*length) as usize);
    }
    let count = rows.row_ptr[rows.row_ptr.len() - 1] - before;
    let (col, values) = words.split_at_checked(count)?;
    rows.col.extend(col.iter().map(|j| u64::from_le_bytes(*j)));
    rows.values.extend(values.iter().map(|v| f64::from_le_bytes(*v)));
    (values.len() == count * block * block).then_some(())
}

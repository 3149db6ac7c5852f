//! Operations on the rows that ranks exchange, on the host. A GPU has its own versions with the same results.

use super::super::host::parallel::Rows;
use crate::matrix::Bsr;
use crate::matrix::storage::Storage;
use rayon::prelude::*;

/// Smallest number of rows for a thread.
const FEW: usize = 1 << 12;
/// Number of received rows that a thread takes at a time.
const CHUNK: usize = 1 << 9;

/// Returns the rows of these nodes, in the given order.
pub fn rows_of(a: &Bsr, nodes: &[u32]) -> Rows {
    let (row_ptr, square) = (a.row_ptr(), a.block() * a.block());
    let mut rows = Rows::default();
    for entries in nodes.iter().map(|&i| row_ptr[i as usize]..row_ptr[i as usize + 1]) {
        rows.col.extend_from_slice(&a.col()[entries.clone()]);
        rows.values.extend_from_slice(&a.values()[entries.start * square..entries.end * square]);
        rows.end_row();
    }
    rows
}

/// Returns the matrix with rows appended below, and with this many columns.
pub fn with_rows(a: &Bsr, below: &Rows, columns: usize) -> Bsr {
    let ends = below.row_ptr[1..].iter().map(|end| a.blocks() + end);
    let row_ptr: Vec<usize> = a.row_ptr().iter().copied().chain(ends).collect();
    let col = [a.col(), &below.col].concat();
    let values = [a.values(), &below.values].concat();
    Bsr::from_storage(a.block(), Storage::host(row_ptr.len() - 1, columns, row_ptr, col, values))
}

/// Returns the matrix with the rows of others appended below, and further rows that are empty.
pub fn stack(a: &Bsr, below: &[Bsr], rows: usize, columns: usize) -> Bsr {
    let all = || std::iter::once(a).chain(below);
    let mut row_ptr = Vec::with_capacity(rows + 1);
    row_ptr.push(0);
    for part in all() {
        let before = row_ptr[row_ptr.len() - 1];
        row_ptr.extend(part.row_ptr()[1..].iter().map(|end| before + end));
    }
    row_ptr.resize(rows + 1, row_ptr[row_ptr.len() - 1]);
    let (col, values): (Vec<_>, Vec<_>) = all().map(|part| (part.col(), part.values())).unzip();
    Bsr::from_storage(a.block(), Storage::host(rows, columns, row_ptr, col.concat(), values.concat()))
}

/// Appends rows of these lengths, and sorts each row by column. Entry p of the input is in column
/// `column(p)`, and number k of its values is `value(k)`.
pub fn append_ascending(
    to: &mut Rows,
    lengths: &[u32],
    square: usize,
    column: impl Fn(usize) -> u32 + Sync,
    value: impl Fn(usize) -> f64 + Sync,
) {
    let before = to.col.len();
    let mut end = before;
    to.row_ptr.reserve(lengths.len());
    for &length in lengths {
        end += length as usize;
        to.row_ptr.push(end);
    }
    to.col.resize(end, 0);
    to.values.resize(end * square, 0.0);
    let (col, values) = (&mut to.col[before..], &mut to.values[before * square..]);
    fill_ascending(lengths, square, column, value, col, values);
}

/// Does the same as [`append_ascending`], into arrays that have the right size.
pub fn fill_ascending(
    lengths: &[u32],
    square: usize,
    column: impl Fn(usize) -> u32 + Sync,
    value: impl Fn(usize) -> f64 + Sync,
    mut col: &mut [u32],
    mut values: &mut [f64],
) {
    let mut begin = 0;
    let chunk = |lengths| {
        let entries = <[u32]>::iter(lengths).map(|&length| length as usize).sum();
        let (own_col, rest) = std::mem::take(&mut col).split_at_mut(entries);
        col = rest;
        let (own_values, rest) = std::mem::take(&mut values).split_at_mut(entries * square);
        values = rest;
        begin += entries;
        (begin - entries, lengths, own_col, own_values)
    };
    let mut chunks: Vec<_> = lengths.chunks(CHUNK).map(chunk).collect();
    chunks.par_iter_mut().for_each(|(begin, lengths, col, values)| {
        let (mut row, mut at) = (Vec::new(), 0);
        for &length in *lengths {
            let end = at + length as usize;
            row.clear();
            row.extend((at..end).map(|p| (column(*begin + p), *begin + p)));
            row.sort_unstable();
            for (k, &(j, p)) in (at..end).zip(&row) {
                col[k] = j;
                (0..square).for_each(|e| values[k * square + e] = value(p * square + e));
            }
            at = end;
        }
    });
}

/// Splits the entries by rows.
fn cut<'a, T>(entries: &'a mut [T], row_ptr: &[usize]) -> Vec<&'a mut [T]> {
    let mut rest = entries;
    let row = |w: &[usize]| {
        let (row, after) = std::mem::take(&mut rest).split_at_mut(w[1] - w[0]);
        rest = after;
        row
    };
    row_ptr.windows(2).map(row).collect()
}

/// Returns the first `rows` rows as a matrix with `columns` columns, which must include all of their entries.
pub fn first_rows(a: &Bsr, rows: usize, columns: usize) -> Bsr {
    let (entries, square) = (a.row_ptr()[rows], a.block() * a.block());
    let (row_ptr, col) = (a.row_ptr()[..=rows].to_vec(), a.col()[..entries].to_vec());
    let values = a.values()[..entries * square].to_vec();
    Bsr::from_storage(a.block(), Storage::host(rows, columns, row_ptr, col, values))
}

/// Returns the matrix with column j renumbered to `numbers[j]` of `columns`, ascending in each row. For
/// blocks, the numbers must ascend too.
pub fn renumbered(a: &Bsr, numbers: &[u32], columns: usize) -> Bsr {
    if a.block() > 1 {
        let (row_ptr, col) =
            (a.row_ptr().to_vec(), a.col().par_iter().map(|&j| numbers[j as usize]).collect());
        let storage = Storage::host(a.block_rows(), columns, row_ptr, col, a.values().to_vec());
        return Bsr::from_storage(a.block(), storage);
    }
    let mut entries: Vec<(u32, f64)> =
        a.col().par_iter().map(|&j| numbers[j as usize]).zip(a.values().par_iter().copied()).collect();
    let sort = |row: &mut &mut [(u32, f64)]| {
        if !row.is_sorted_by_key(|entry| entry.0) {
            row.sort_unstable_by_key(|entry| entry.0);
        }
    };
    cut(&mut entries, a.row_ptr()).par_iter_mut().with_min_len(FEW).for_each(sort);
    let (col, values) = entries.into_par_iter().unzip();
    Bsr::from_storage(1, Storage::host(a.block_rows(), columns, a.row_ptr().to_vec(), col, values))
}

/// Returns S A for a matrix S of zeros and ones: sums of rows of A, with every diagonal entry stored.
pub fn sums_of_rows(s: &Bsr, a: &Bsr) -> Bsr {
    let (row_ptr, square) = (a.row_ptr(), a.block() * a.block());
    const DIAGONAL: usize = usize::MAX;
    // Columns with their entries, in the order in which a sum adds them.
    let sum = |i: usize, entries: &mut Vec<(u32, usize)>, rows: &mut Rows| {
        entries.clear();
        for &k in &s.col()[s.row_ptr()[i]..s.row_ptr()[i + 1]] {
            let row = row_ptr[k as usize]..row_ptr[k as usize + 1];
            entries.extend(row.map(|p| (a.col()[p], p)));
        }
        entries.push((i as u32, DIAGONAL));
        entries.sort_by_key(|entry| entry.0);
        for same in entries.chunk_by(|one, two| one.0 == two.0) {
            rows.col.push(same[0].0);
            let at = rows.values.len();
            rows.values.resize(at + square, 0.0);
            for (_, p) in same.iter().filter(|entry| entry.1 != DIAGONAL) {
                let block = &a.values()[p * square..(p + 1) * square];
                rows.values[at..].iter_mut().zip(block).for_each(|(sum, v)| *sum += v);
            }
        }
        rows.end_row();
    };
    let chunks: Vec<usize> = (0..s.block_rows()).step_by(FEW).collect();
    let made: Vec<Bsr> = chunks
        .par_iter()
        .map(|&first| {
            let (mut rows, mut entries) = (Rows::default(), Vec::new());
            (first..s.block_rows().min(first + FEW)).for_each(|i| sum(i, &mut entries, &mut rows));
            let n = rows.row_ptr.len() - 1;
            let storage = Storage::host(n, a.block_columns(), rows.row_ptr, rows.col, rows.values);
            Bsr::from_storage(a.block(), storage)
        })
        .collect();
    match made.split_first() {
        Some((first, others)) => stack(first, others, s.block_rows(), a.block_columns()),
        None => {
            Bsr::from_storage(a.block(), Storage::host(0, a.block_columns(), vec![0], Vec::new(), Vec::new()))
        }
    }
}

/// Returns the couplings among the first `n` nodes of a scalar matrix. Couplings to other nodes are added to
/// the diagonal.
pub fn own_couplings(a: &Bsr, n: usize) -> Bsr {
    let row = |i: usize| a.row_ptr()[i]..a.row_ptr()[i + 1];
    let pieces: Vec<Rows> = (0..n.div_ceil(FEW))
        .into_par_iter()
        .map(|piece| {
            let mut rows = Rows::default();
            for i in piece * FEW..n.min((piece + 1) * FEW) {
                let (col, values) = (&a.col()[row(i)], &a.values()[row(i)]);
                let length = col.partition_point(|&j| (j as usize) < n);
                let begin = rows.values.len();
                rows.col.extend_from_slice(&col[..length]);
                rows.values.extend_from_slice(&values[..length]);
                if let Ok(diagonal) = col[..length].binary_search(&(i as u32)) {
                    rows.values[begin + diagonal] += values[length..].iter().sum::<f64>();
                }
                rows.end_row();
            }
            rows
        })
        .collect();
    let mut row_ptr = vec![0];
    for rows in &pieces {
        let before = row_ptr[row_ptr.len() - 1];
        row_ptr.extend(rows.row_ptr[1..].iter().map(|end| before + end));
    }
    let (col, values): (Vec<_>, Vec<_>) = pieces.into_iter().map(|rows| (rows.col, rows.values)).unzip();
    Bsr::from_storage(1, Storage::host(n, n, row_ptr, col.concat(), values.concat()))
}

/// Returns the identity matrix.
pub fn identity(n: usize) -> Bsr {
    Bsr::from_storage(1, Storage::host(n, n, (0..=n).collect(), (0..n as u32).collect(), vec![1.0; n]))
}

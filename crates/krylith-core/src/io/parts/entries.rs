//! Reading of Matrix Market coordinates by parts: each rank parses a range of lines and sends entries to the
//! owners of their rows.
//!
//! Ranges of equal bytes are cut at line ends and read in rounds of a few megabytes. After each round the
//! entries, including mirrored ones, are sent to the owners of their rows. An owner stores them by sender and
//! round, so that assembly follows the order of the file, and duplicates sum to the same bits as in the
//! whole-file reader. Besides the matrix, a rank holds 16 bytes per entry of its rows, and one round.

use std::ops::Range;

use rayon::prelude::*;

use super::errors::same;
use super::{ScalarRows, whole_numbers};
use crate::comm::{Communicator, gather};
use crate::io::coordinate::{
    self, Buckets, CHUNK_BYTES, Chunk, Coordinates, Entry, Lines, cut, next_line, next_line_start,
};
use crate::io::matrix_market::Symmetry;
use crate::{Error, Result};

/// Bytes of text that a rank parses between two exchanges.
pub(super) const BATCH_BYTES: usize = 1 << 21;
/// Largest number of entries up to which rounds are merged into one chunk.
const CHUNK_ENTRIES: usize = 1 << 16;
/// Bytes of a row, column and value in a message.
const ENTRY_BYTES: usize = 16;

/// Findings of one rank in its lines.
#[derive(Default)]
struct Found {
    /// Lines with an entry.
    count: usize,
    /// Offset and message of the first invalid line.
    fault: Option<(usize, String)>,
    /// Offset of the first line with an entry below the diagonal, and of the first above it.
    below: Option<usize>,
    above: Option<usize>,
}

/// Reads this rank's rows `bounds[rank]..bounds[rank + 1]`, parsing `batch` bytes of text per round.
/// Collective.
pub(super) fn read(
    comm: &dyn Communicator,
    body: &Coordinates,
    bounds: &[usize],
    batch: usize,
) -> Result<ScalarRows> {
    let (rank, ranks) = (comm.rank(), comm.size());
    let own = line_start(body, rank, ranks)..line_start(body, rank + 1, ranks);
    let pieces = cut(body.text, own.clone(), batch);
    let rounds = whole_numbers(comm, &[pieces.len()])?.into_iter().map(|n| n[0]).max().unwrap_or(0);

    let mut found = Found::default();
    let mut stores: Vec<Vec<Vec<Entry>>> = vec![Vec::new(); ranks];
    for round in 0..rounds {
        let mut out = vec![Vec::new(); ranks];
        // A rank that found an error continues to take part in exchanges; the others learn of it at the end.
        if let (None, Some(piece)) = (&found.fault, pieces.get(round)) {
            send(body, piece.clone(), bounds, &mut found, &mut out);
        }
        for (store, bytes) in stores.iter_mut().zip(comm.all_to_all(out)?) {
            keep(store, &bytes, bounds[rank]);
        }
    }
    verdict(comm, body, own, &found)?;
    same(comm, assemble(body, bounds[rank]..bounds[rank + 1], stores))
}

/// Returns the start of a rank's lines: after the first line end at or after its share of the bytes.
fn line_start(body: &Coordinates, rank: usize, ranks: usize) -> usize {
    let bytes = (body.text.len() - body.body) as u128;
    match body.body + (bytes * rank as u128 / ranks as u128) as usize {
        at if at == body.body => at,
        at => next_line_start(body.text, at - 1),
    }
}

/// Parses a range of text and packs its entries by owner.
fn send(body: &Coordinates, piece: Range<usize>, bounds: &[usize], found: &mut Found, out: &mut [Vec<u8>]) {
    let ranges = cut(body.text, piece, CHUNK_BYTES);
    let parsed: Vec<_> = ranges.into_par_iter().map(|range| coordinate::parse(body, range)).collect();
    let mut owner = 0;
    for lines in parsed {
        let lines = match lines {
            Ok(lines) => lines,
            Err(fault) => {
                found.fault = Some((fault.at, fault.quoted(body.text)));
                return;
            }
        };
        found.count += lines.count;
        found.below = found.below.or(lines.below);
        found.above = found.above.or(lines.above);
        for e in &lines.entries {
            let row = e.row as usize;
            if !(bounds[owner]..bounds[owner + 1]).contains(&row) {
                owner = bounds.partition_point(|&b| b <= row) - 1;
            }
            out[owner].extend(e.row.to_le_bytes());
            out[owner].extend(e.column.to_le_bytes());
            out[owner].extend(e.value.to_le_bytes());
        }
    }
}

/// Appends what one rank sent to what it sent before, with rows counted from `first`.
fn keep(store: &mut Vec<Vec<Entry>>, bytes: &[u8], first: usize) {
    if bytes.is_empty() {
        return;
    }
    let entries = bytes.as_chunks::<ENTRY_BYTES>().0.iter().map(|e| {
        let (head, value) = e.split_at(8);
        let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|i| head[at + i]));
        let value = f64::from_le_bytes(std::array::from_fn(|i| value[i]));
        Entry { row: word(0) - first as u32, column: word(4), value }
    });
    match store.last_mut() {
        Some(last) if last.len() + entries.len() <= CHUNK_ENTRIES => last.extend(entries),
        _ => store.push(entries.collect()),
    }
}

/// Assembles the received entries in the order of the file.
fn assemble(body: &Coordinates, own: Range<usize>, stores: Vec<Vec<Vec<Entry>>>) -> Result<ScalarRows> {
    let count = stores.iter().flatten().map(Vec::len).sum();
    let part = Coordinates { rows: own.len(), entries: count, ..*body };
    let buckets = Buckets::new(&part);
    let stores: Vec<Vec<Entry>> = stores.into_iter().flatten().collect();
    let chunk = |entries| Chunk::new(Lines { entries, count: 0, below: None, above: None }, &buckets);
    let chunks: Vec<Chunk> = stores.into_par_iter().map(chunk).collect();
    let matrix = coordinate::assemble(&part, &buckets, &chunks).map_err(|e| super::from_row(own.start, e))?;
    Ok(ScalarRows { rows: body.rows, first: own.start, matrix })
}

/// Returns the error of the whole-file reader, with its line, on every rank; or success. Collective.
fn verdict(comm: &dyn Communicator, body: &Coordinates, own: Range<usize>, found: &Found) -> Result<()> {
    let place = |at: Option<usize>| at.unwrap_or(usize::MAX);
    let fault = place(found.fault.as_ref().map(|f| f.0));
    let told = whole_numbers(comm, &[found.count, fault, place(found.below), place(found.above)])?;
    let count = |q: usize| told[q][0];
    let first = |of: usize| told.iter().map(|t| t[of]).min().filter(|&at| at < usize::MAX);
    let (seen, before): (usize, usize) =
        ((0..told.len()).map(count).sum(), (0..comm.rank()).map(count).sum());

    // The invalid line and the message, on the rank that has it.
    let mine: Option<(usize, String)> = if let Some(at) = first(1) {
        found.fault.clone().filter(|f| f.0 == at)
    } else if seen > body.entries {
        let excess = before <= body.entries && body.entries < before + found.count;
        excess.then(|| {
            let mut at = own.start;
            (before..body.entries).for_each(|_| _ = next_line(body.text, &mut at));
            let line = next_line(body.text, &mut at).unwrap_or(own.start);
            (line, coordinate::too_many(body.entries))
        })
    } else if seen < body.entries {
        let last = comm.rank() + 1 == comm.size();
        last.then(|| (body.text.len(), coordinate::too_few(seen, body.entries)))
    } else {
        match (first(2), first(3)) {
            (Some(below), Some(above)) if body.symmetry != Symmetry::General => {
                let at = below.max(above);
                own.contains(&at).then(|| (at, coordinate::two_triangles(body.text, at)))
            }
            _ => return Ok(()),
        }
    };
    // Lines are counted only to report an error: each rank counts its own, up to the invalid one.
    let lines = |range: Range<usize>| body.text[range].iter().filter(|&&c| c == b'\n').count();
    let counted = lines(own.start..mine.as_ref().map_or(own.end, |m| m.0)) as u64;
    let message = mine.map(|m| m.1).unwrap_or_default();
    let told = gather(comm, &[&counted.to_le_bytes(), message.as_bytes()].concat())?;
    let mut line = 1 + lines(0..body.body);
    for bytes in &told {
        let (counted, message) = bytes.split_at_checked(8).unwrap_or_default();
        line += counted.try_into().map_or(0, u64::from_le_bytes) as usize;
        if !message.is_empty() {
            return Err(Error::parse(body.path, line, String::from_utf8_lossy(message)));
        }
    }
    Err(Error::format(
        body.path,
        "the ranks disagree on the content of the file: give every rank the same file",
    ))
}

//! The sparse body of Matrix Market files, parsed and assembled in parallel.
//!
//! Chunks of about a megabyte, cut at line ends, are parsed into entries. While a chunk is in cache, its
//! entries are sorted by bucket, a run of rows. Then one task per bucket counts and scatters its entries by
//! row, into its own part of the matrix. Every order is that of the file, whatever the number of threads:
//! duplicates sum to the same bits. The cost is 16 bytes per entry beside the matrix.

use std::ops::Range;
use std::path::Path;

use rayon::prelude::*;

use super::matrix_market::{Field, Symmetry};
use super::number;
use super::source::{excerpt, line_of, name_file};
use crate::matrix::Csr;
use crate::{Error, Result};

pub const CHUNK_BYTES: usize = 1 << 20;
/// Entries that a bucket should hold: half a megabyte, which fits a second-level cache.
const BUCKET_ENTRIES: usize = 1 << 15;
const MOST_BUCKETS: usize = 1024;

/// Refusal of an entry on the diagonal.
pub(super) const NOT_REAL: &str = "the diagonal of a hermitian matrix must be real";

/// A body with the contents of its header.
pub struct Coordinates<'a> {
    pub path: &'a Path,
    pub text: &'a [u8],
    /// Offset of the first line after the sizes.
    pub body: usize,
    /// At most 2³² − 1, like `columns`.
    pub rows: usize,
    pub columns: usize,
    pub entries: usize,
    pub field: Field,
    pub symmetry: Symmetry,
}

impl Coordinates<'_> {
    /// Rows of the real matrix: two for each row of a complex one.
    fn real_rows(&self) -> usize {
        self.field.parts() * self.rows
    }
}

/// One stored number with its zero-based indices.
#[derive(Clone, Copy, Default)]
pub struct Entry {
    pub row: u32,
    pub column: u32,
    pub value: f64,
}

/// The contents of a run of lines.
pub struct Lines {
    /// In the file's order, each followed by its mirror image.
    pub entries: Vec<Entry>,
    /// Number of lines with an entry.
    pub count: usize,
    /// Offsets of the first line with an entry below the diagonal, and of the first above it.
    pub below: Option<usize>,
    pub above: Option<usize>,
}

/// The entries of one chunk, mirror images included, sorted by bucket.
pub struct Chunk {
    entries: Vec<Entry>,
    /// Start of each bucket in `entries`, and the end of the last.
    starts: Vec<u32>,
    /// Number of lines with an entry.
    lines: usize,
    /// Offsets of the first line with an entry below the diagonal, and of the first above it.
    below: Option<usize>,
    above: Option<usize>,
}

impl Chunk {
    /// Sorts entries in the file's order by bucket.
    pub fn new(lines: Lines, buckets: &Buckets) -> Self {
        let Lines { entries, count, below, above } = lines;
        let (entries, starts) = by_bucket(entries, buckets);
        Self { entries, starts, lines: count, below, above }
    }
}

/// An error in the line at an offset.
pub struct Fault {
    pub at: usize,
    pub message: String,
}

impl Fault {
    /// The message with the line in question.
    pub fn quoted(&self, text: &[u8]) -> String {
        format!("{} in {}", self.message, excerpt(text, self.at))
    }
}

/// Parses and assembles the matrix; errors name file and line.
pub(super) fn read(body: &Coordinates) -> Result<Csr> {
    let ranges = cut(body.text, body.body..body.text.len(), CHUNK_BYTES);
    let buckets = Buckets::new(body);
    let parsed: Vec<Result<Chunk, Fault>> =
        ranges.par_iter().map(|range| Ok(Chunk::new(parse(body, range.clone())?, &buckets))).collect();
    let located = |at: usize, message: String| Error::parse(body.path, line_of(body.text, at), message);
    let mut chunks = Vec::with_capacity(parsed.len());
    for chunk in parsed {
        chunks.push(chunk.map_err(|fault| located(fault.at, fault.quoted(body.text)))?);
    }
    check_count(body, &ranges, &chunks)?;
    if body.symmetry != Symmetry::General {
        let below = chunks.iter().find_map(|c| c.below);
        let above = chunks.iter().find_map(|c| c.above);
        if let (Some(below), Some(above)) = (below, above) {
            return Err(located(below.max(above), two_triangles(body.text, below.max(above))));
        }
    }
    assemble(body, &buckets, &chunks)
}

pub fn two_triangles(text: &[u8], at: usize) -> String {
    format!(
        "the header declares symmetry, but the file has entries on both sides of the diagonal, here {}; \
         store one triangle only, or declare the matrix `general`",
        excerpt(text, at)
    )
}

/// Cuts a range that ends at a line end into chunks of about `bytes`, each ending at a line end.
pub fn cut(text: &[u8], range: Range<usize>, bytes: usize) -> Vec<Range<usize>> {
    let mut ranges = Vec::with_capacity(range.len() / bytes + 1);
    let mut begin = range.start;
    while begin < range.end {
        let end = next_line_start(&text[..range.end], range.end.min(begin + bytes));
        ranges.push(begin..end);
        begin = end;
    }
    ranges
}

/// Runs of 2^shift rows.
pub struct Buckets {
    shift: u32,
    count: usize,
}

impl Buckets {
    pub fn new(body: &Coordinates) -> Self {
        let wanted = (body.entries / BUCKET_ENTRIES).clamp(1, MOST_BUCKETS);
        let shift = body.real_rows().div_ceil(wanted).max(1).next_power_of_two().trailing_zeros();
        Self { shift, count: body.real_rows().div_ceil(1 << shift) }
    }
}

fn check_count(body: &Coordinates, ranges: &[Range<usize>], chunks: &[Chunk]) -> Result<()> {
    let mut seen = 0;
    for (chunk, range) in chunks.iter().zip(ranges) {
        if seen + chunk.lines > body.entries {
            let mut at = range.start;
            let skipped = (seen..body.entries).map_while(|_| next_line(body.text, &mut at)).count();
            if let (true, Some(line)) = (skipped == body.entries - seen, next_line(body.text, &mut at)) {
                return Err(Error::parse(body.path, line_of(body.text, line), too_many(body.entries)));
            }
        }
        seen += chunk.lines;
    }
    if seen < body.entries {
        let line = line_of(body.text, body.text.len());
        return Err(Error::parse(body.path, line, too_few(seen, body.entries)));
    }
    Ok(())
}

pub fn too_many(entries: usize) -> String {
    format!("the file has more than the {entries} entries that the header announces")
}

pub fn too_few(seen: usize, entries: usize) -> String {
    format!("the file ends after {seen} of {entries} entries: it is cut short")
}

/// Moves `at` past blank lines, comments and one line of content; returns the offset of that content.
#[inline]
pub fn next_line(text: &[u8], at: &mut usize) -> Option<usize> {
    loop {
        let begin = skip_blanks(text, *at);
        *at = next_line_start(text, begin);
        match text.get(begin)? {
            b'\n' | b'%' => continue,
            _ => return Some(begin),
        }
    }
}

#[inline]
pub fn next_line_start(text: &[u8], at: usize) -> usize {
    text[at..].iter().position(|&c| c == b'\n').map_or(text.len(), |p| at + p + 1)
}

#[inline]
fn skip_blanks(text: &[u8], mut at: usize) -> usize {
    while matches!(text.get(at), Some(b' ' | b'\t' | b'\r')) {
        at += 1;
    }
    at
}

/// Parses a range of whole lines.
pub fn parse(body: &Coordinates, range: Range<usize>) -> Result<Lines, Fault> {
    let text = &body.text[..range.end];
    let mirrored = body.symmetry != Symmetry::General;
    // Room for the file's average line length plus a sixteenth, but no more lines than the chunk can hold.
    let average = body.entries as f64 * range.len() as f64 / (body.text.len() - body.body) as f64;
    let most = (range.len().div_ceil(4)).min((average * 1.0625) as usize + 16);
    let complex = body.field == Field::Complex;
    let each = if mirrored { 2 } else { 1 } * if complex { 4 } else { 1 };
    let mut entries: Vec<Entry> = Vec::with_capacity(most * each);
    let mut keep = |row: u32, column: u32, [re, im]: [f64; 2]| match complex {
        false => entries.push(Entry { row, column, value: re }),
        true => {
            entries.extend([(0, 0, re), (0, 1, -im), (1, 0, im), (1, 1, re)].map(|(i, j, value)| Entry {
                row: 2 * row + i,
                column: 2 * column + j,
                value,
            }))
        }
    };
    let (mut count, mut below, mut above) = (0, None, None);
    let mut at = range.start;
    loop {
        at = skip_blanks(text, at);
        let begin = at;
        match text.get(at) {
            None => break,
            Some(b'\n') => {
                at += 1;
                continue;
            }
            Some(b'%') => {
                at = next_line_start(text, at);
                continue;
            }
            Some(_) => {}
        }
        let fault = |message: &str| Fault { at: begin, message: message.into() };
        let row = index(text, &mut at, "row", body.rows).map_err(|m| fault(&m))?;
        let column = index(text, &mut at, "column", body.columns).map_err(|m| fault(&m))?;
        let value = if body.field == Field::Pattern {
            [1.0, 0.0]
        } else {
            parts(text, &mut at, body.field).map_err(|m| fault(&m))?
        };
        at = skip_blanks(text, at);
        match text.get(at) {
            None => {}
            Some(b'\n') => at += 1,
            Some(_) => return Err(fault("unexpected text after the entry")),
        }
        count += 1;
        keep(row, column, value);
        if mirrored {
            if row == column {
                match body.symmetry {
                    Symmetry::SkewSymmetric if value != [0.0; 2] => {
                        return Err(fault("a skew-symmetric matrix must have a zero diagonal"));
                    }
                    Symmetry::Hermitian if value[1] != 0.0 => return Err(fault(NOT_REAL)),
                    _ => {}
                }
                continue;
            }
            let first = if row > column { &mut below } else { &mut above };
            first.get_or_insert(begin);
            keep(column, row, body.symmetry.mirrored(value));
        }
    }
    Ok(Lines { entries, count, below, above })
}

/// Sorts by bucket, stably; entries that are already in order are not moved.
fn by_bucket(entries: Vec<Entry>, buckets: &Buckets) -> (Vec<Entry>, Vec<u32>) {
    let bucket = |e: &Entry| (e.row >> buckets.shift) as usize;
    let mut starts = vec![0u32; buckets.count + 1];
    let (mut sorted, mut last) = (true, 0);
    for e in &entries {
        let b = bucket(e);
        starts[b + 1] += 1;
        sorted &= b >= last;
        last = b;
    }
    for b in 0..buckets.count {
        starts[b + 1] += starts[b];
    }
    if sorted {
        return (entries, starts);
    }
    let mut next = starts.clone();
    let mut out = vec![Entry::default(); entries.len()];
    for e in &entries {
        let slot = &mut next[bucket(e)];
        out[*slot as usize] = *e;
        *slot += 1;
    }
    (out, starts)
}

/// Parses a one-based index and returns it zero-based.
#[inline(always)]
fn index(text: &[u8], at: &mut usize, what: &str, limit: usize) -> Result<u32, String> {
    let begin = skip_blanks(text, *at);
    let (mut n, mut end) = (0u64, begin);
    if let Some(eight) = text.get(begin..).and_then(|rest| rest.first_chunk()) {
        let (value, length) = eight_digits(u64::from_le_bytes(*eight));
        (n, end) = (value, begin + length);
    }
    if end == begin || end == begin + 8 {
        // More than eight digits, or fewer than eight bytes left.
        while let Some(digit) = text.get(end).map(|c| c.wrapping_sub(b'0')).filter(|&d| d < 10) {
            n = n.wrapping_mul(10).wrapping_add(digit as u64); // lengths that could wrap are refused below
            end += 1;
        }
    }
    *at = end;
    let separated = matches!(text.get(end), None | Some(b' ' | b'\t' | b'\n' | b'\r'));
    if end == begin || !separated {
        return Err(format!("the {what} index is missing or not a whole number"));
    }
    if end - begin > 19 || n > limit as u64 {
        return Err(format!("the {what} index is out of range (expected 1 to {limit})"));
    }
    if n == 0 {
        return Err(format!("the {what} index is 0; Matrix Market counts from 1"));
    }
    Ok((n - 1) as u32)
}

/// The value of the leading digits of eight characters, and how many digits they are, without a branch.
#[inline]
fn eight_digits(characters: u64) -> (u64, usize) {
    let digits = characters ^ 0x3030_3030_3030_3030; // digits become 0..9, all other bytes larger
    // The lowest byte above 9 gets its top bit; carries only reach higher bytes, which do not matter.
    let others = (digits.wrapping_add(0x7676_7676_7676_7676) | digits) & 0x8080_8080_8080_8080;
    let length = others.trailing_zeros() as usize / 8;
    // Shifted to the top, the digits have zeros before them, and the other characters are shifted out.
    let n = digits.checked_shl(64 - 8 * length as u32).unwrap_or(0);
    let n = n.wrapping_mul(10).wrapping_add(n >> 8) & 0x00ff_00ff_00ff_00ff;
    let n = n.wrapping_mul(100).wrapping_add(n >> 16) & 0x0000_ffff_0000_ffff;
    (n.wrapping_mul(10_000).wrapping_add(n >> 32) & 0xffff_ffff, length)
}

/// Parses the real part at `at`, and the imaginary part of a complex number; moves `at` past them.
#[inline]
fn parts(text: &[u8], at: &mut usize, field: Field) -> Result<[f64; 2], String> {
    *at = skip_blanks(text, *at);
    let re = value(text, at, field)?;
    if field != Field::Complex {
        return Ok([re, 0.0]);
    }
    *at = skip_blanks(text, *at);
    if matches!(text.get(*at), None | Some(b'\n')) {
        return Err("the imaginary part is missing".into());
    }
    Ok([re, value(text, at, field)?])
}

/// Parses the number at `at` and moves `at` past it.
#[inline]
fn value(text: &[u8], at: &mut usize, field: Field) -> Result<f64, String> {
    if matches!(text.get(*at), None | Some(b'\n')) {
        return Err("the value is missing".into());
    }
    let (v, length) = number::first(&text[*at..]).map_err(|why| format!("the value {why}"))?;
    *at += length;
    if field == Field::Integer && !is_whole(v) {
        return Err("the value is not an integer (the header declares `integer`)".into());
    }
    Ok(v)
}

#[cold]
fn is_whole(v: f64) -> bool {
    v.fract() == 0.0
}

/// The only number of a line: its real part, and its imaginary part or 0.
pub(super) fn number(line: &[u8], field: Field) -> Result<[f64; 2], String> {
    let mut at = 0;
    let v = parts(line, &mut at, field)?;
    if skip_blanks(line, at) < line.len() {
        return Err("unexpected text after the number".into());
    }
    Ok(v)
}

/// One bucket's part of the matrix.
struct Part<'a> {
    bucket: usize,
    ends: &'a mut [usize],
    col: &'a mut [u32],
    values: &'a mut [f64],
}

/// Assembles the matrix of all entries; duplicates are summed in the order of the chunks.
pub fn assemble(body: &Coordinates, buckets: &Buckets, chunks: &[Chunk]) -> Result<Csr> {
    let sizes: Vec<usize> = (0..buckets.count)
        .into_par_iter()
        .map(|b| chunks.iter().map(|c| (c.starts[b + 1] - c.starts[b]) as usize).sum())
        .collect();
    let total = sizes.iter().sum();
    let (mut row_ptr, mut col, mut values) =
        (vec![0usize; body.real_rows() + 1], vec![0u32; total], vec![0.0; total]);

    let mut parts = Vec::with_capacity(buckets.count);
    let (mut ends_left, mut col_left, mut values_left) = (&mut row_ptr[1..], &mut col[..], &mut values[..]);
    for (bucket, &size) in sizes.iter().enumerate() {
        let rows = ends_left.len().min(1 << buckets.shift);
        let (ends, a) = ends_left.split_at_mut(rows);
        let (col, b) = col_left.split_at_mut(size);
        let (values, c) = values_left.split_at_mut(size);
        (ends_left, col_left, values_left) = (a, b, c);
        parts.push(Part { bucket, ends, col, values });
    }
    let kept: Vec<usize> = parts.into_par_iter().map(|part| fill(part, buckets, chunks)).collect();

    // Row ends count from the start of their bucket so far; buckets with duplicates left gaps.
    let (mut from, mut to) = (0, 0);
    for (b, (&size, &kept)) in sizes.iter().zip(&kept).enumerate() {
        if from != to {
            col.copy_within(from..from + kept, to);
            values.copy_within(from..from + kept, to);
        }
        let rows = b << buckets.shift..body.real_rows().min((b + 1) << buckets.shift);
        for end in &mut row_ptr[1..][rows] {
            *end += to;
        }
        (from, to) = (from + size, to + kept);
    }
    col.truncate(to);
    values.truncate(to);
    Csr::new(body.real_rows(), body.field.parts() * body.columns, row_ptr, col, values)
        .map_err(|e| name_file(body.path, e))
}

/// Counts and scatters a bucket's entries by row, sorts and sums them; returns how many remain.
fn fill(part: Part, buckets: &Buckets, chunks: &[Chunk]) -> usize {
    let Part { bucket, ends, col, values } = part;
    let first = bucket << buckets.shift;
    let own = |c: &'_ Chunk| c.starts[bucket] as usize..c.starts[bucket + 1] as usize;
    for chunk in chunks {
        for e in &chunk.entries[own(chunk)] {
            ends[e.row as usize - first] += 1;
        }
    }
    let mut sum = 0;
    for end in ends.iter_mut() {
        sum += std::mem::replace(end, sum);
    }
    for chunk in chunks {
        for e in &chunk.entries[own(chunk)] {
            let at = &mut ends[e.row as usize - first];
            col[*at] = e.column;
            values[*at] = e.value;
            *at += 1;
        }
    }
    let (mut begin, mut out) = (0, 0);
    let mut row: Vec<(u32, f64)> = Vec::new();
    for end_at in ends.iter_mut() {
        let end = *end_at;
        if col[begin..end].windows(2).all(|w| w[0] < w[1]) {
            if out != begin {
                col.copy_within(begin..end, out);
                values.copy_within(begin..end, out);
            }
            out += end - begin;
        } else {
            row.clear();
            row.extend(col[begin..end].iter().copied().zip(values[begin..end].iter().copied()));
            row.sort_by_key(|e| e.0); // stable: duplicates are summed in the file's order
            let start = out;
            for &(j, v) in &row {
                if out > start && col[out - 1] == j {
                    values[out - 1] += v;
                } else {
                    (col[out], values[out]) = (j, v);
                    out += 1;
                }
            }
        }
        (*end_at, begin) = (out, end);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_eight_at_a_time() {
        for (text, value, length) in [
            (b"12345678", 12345678, 8),
            (b"1234567 ", 1234567, 7),
            (b"99999999", 99999999, 8),
            (b"7 123456", 7, 1),
            (b"00420\t99", 420, 5),
            (b" 1234567", 0, 0),
            (b"1/:\xff\xd0\x80 9", 1, 1),
            (b"12\xff\xff\xff\xff99", 12, 2),
            (b"42:99999", 42, 2),
        ] {
            assert_eq!(eight_digits(u64::from_le_bytes(*text)), (value, length), "{text:?}");
        }
        for n in (0..99_999_999u64).step_by(9973) {
            let text = format!("{n:<8}");
            let eight = text.as_bytes().try_into().unwrap();
            assert_eq!(eight_digits(u64::from_le_bytes(eight)), (n, n.to_string().len()));
        }
    }

    #[test]
    fn long_indices() {
        for (text, expected) in [
            ("123456789 ", Some(123_456_788)),
            ("000000000001", Some(0)),
            ("4294967295", Some(4_294_967_294)),
            ("4294967296 ", None),
        ] {
            assert_eq!(index(text.as_bytes(), &mut 0, "row", u32::MAX as usize).ok(), expected, "{text}");
        }
    }
}

//! The bytes of an input file, and what every reader needs: line numbers, size checks, row assembly.

use std::borrow::Cow;
use std::io::{BufRead, Read};
use std::ops::Deref;
use std::path::Path;

use super::bound;
use crate::{Error, Result};
use flate2::bufread::{GzDecoder, MultiGzDecoder};

/// The mark that some editors put before UTF-8 text; it carries no information.
const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// The error text for files with complex numbers.
pub(super) const COMPLEX: &str = "complex numbers are read from Matrix Market files, and vectors also from .npy: save the matrix \
                                  with scipy.io.mmwrite; if the imaginary part is zero, give the real part \
                                  (`.real`)";

/// Sizes up to this are accepted whatever the file's length.
const BELIEVED: usize = 1 << 24;

/// A file's content: memory-mapped if possible, else read.
pub enum Bytes {
    Map(memmap2::Mmap),
    Heap(Vec<u8>),
}

impl Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        match self {
            Bytes::Map(map) => map,
            Bytes::Heap(bytes) => bytes,
        }
    }
}

/// Opens a file; gzip is recognised by content and unpacked. `wanted` numbers bound a text without a header
/// that comes from a stream without a length.
pub(super) fn load(path: &Path, wanted: Option<usize>) -> Result<Bytes> {
    let raw = open(path, wanted)?;
    if !is_gzip(&raw) {
        return Ok(raw);
    }
    Ok(Bytes::Heap(gunzip(path, &raw, wanted)?))
}

/// A file's content, unpacked if it is gzip.
pub(super) fn unpacked<'a>(path: &Path, bytes: &'a [u8]) -> Result<Cow<'a, [u8]>> {
    if is_gzip(bytes) { gunzip(path, bytes, None).map(Cow::Owned) } else { Ok(Cow::Borrowed(bytes)) }
}

/// The error for a gzip stream that cannot be unpacked.
fn damaged(path: &Path) -> impl Fn(std::io::Error) -> Error {
    move |e| Error::format(path, format!("the gzip stream is damaged or cut short ({e})"))
}

/// Unpacks gzip members one after the other; tapes and some disks leave zeros after the last.
fn gunzip(path: &Path, rest: &[u8], wanted: Option<usize>) -> Result<Vec<u8>> {
    bound::read(path, &mut Members(Some(GzDecoder::new(rest))), wanted, damaged(path))
}

/// The members of a gzip file as one stream; `None` after the last.
struct Members<'a>(Option<GzDecoder<&'a [u8]>>);

impl Read for Members<'_> {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        loop {
            let Some(member) = &mut self.0 else { return Ok(0) };
            let read = member.read(to)?;
            if read > 0 || to.is_empty() {
                return Ok(read);
            }
            let rest = *member.get_ref();
            self.0 = rest.iter().any(|&b| b != 0).then(|| GzDecoder::new(rest));
        }
    }
}

/// Length in bytes of a byte-order mark at the beginning: 0 or 3.
pub fn mark(text: &[u8]) -> usize {
    if text.starts_with(BYTE_ORDER_MARK) { BYTE_ORDER_MARK.len() } else { 0 }
}

/// True if these bytes begin a gzip stream.
pub fn is_gzip(bytes: &[u8]) -> bool {
    bytes.starts_with(&[0x1f, 0x8b])
}

/// A file's content as it is, without unpacking gzip.
pub fn map(path: &Path) -> Result<Bytes> {
    open(path, None)
}

/// The text of a small file, such as a `system.toml`.
pub fn text(path: &Path) -> Result<String> {
    const MOST: usize = 1 << 24;
    let bytes = open(path, Some(0))?;
    if bytes.len() > MOST {
        return Err(Error::format(
            path,
            format!("the file has {} bytes; expected a few lines of text", bytes.len()),
        ));
    }
    std::str::from_utf8(&bytes).map(String::from).map_err(|e| {
        let line = line_of(&bytes, e.valid_up_to());
        Error::parse(path, line, "this is not Unicode text; save the file as UTF-8")
    })
}

fn open(path: &Path, wanted: Option<usize>) -> Result<Bytes> {
    let io = |e| Error::io(path, e);
    let mut file = std::fs::File::open(path).map_err(io)?;
    let meta = file.metadata().map_err(io)?;
    if is_device(&meta) {
        return Err(Error::format(path, "this is a device, which may never end; give a file or a pipe"));
    }
    if meta.is_dir() {
        return Err(io(std::io::ErrorKind::IsADirectory.into()));
    }
    if !meta.is_file() || meta.len() == 0 {
        // Pipes cannot be mapped, nor can empty files.
        let mut stream = std::io::BufReader::new(&mut file);
        let packed = is_gzip(stream.fill_buf().map_err(io)?);
        let content = match packed {
            true => bound::read(path, &mut MultiGzDecoder::new(stream), wanted, damaged(path)),
            false => bound::read(path, &mut stream, wanted, io),
        };
        return content.map(Bytes::Heap);
    }
    // SAFETY: the map is private to this reader and only ever read. As for every mapped file, if another
    // process shortens it meanwhile, this process ends by SIGBUS. Krylith itself replaces files by renaming
    // (`atomic`), which leaves a map of the old file intact.
    let map = unsafe { memmap2::Mmap::map(&file) }.map_err(io)?;
    Ok(Bytes::Map(map))
}

#[cfg(unix)]
fn is_device(meta: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::FileTypeExt;
    meta.file_type().is_char_device() || meta.file_type().is_block_device()
}

#[cfg(not(unix))]
fn is_device(_: &std::fs::Metadata) -> bool {
    false
}

/// One-based line of the byte at `at`.
pub fn line_of(text: &[u8], at: usize) -> usize {
    1 + text[..at.min(text.len())].iter().filter(|&&c| c == b'\n').count()
}

/// The line around `at`, shortened, for an error message.
pub(super) fn excerpt(text: &[u8], at: usize) -> String {
    let at = at.min(text.len());
    let begin = text[..at].iter().rposition(|&c| c == b'\n').map_or(0, |p| p + 1);
    let line = text[begin..].split(|&c| c == b'\n').next().unwrap_or_default();
    let shown = &line[..line.len().min(60)];
    let dots = if shown.len() < line.len() { "…" } else { "" };
    format!("`{}{dots}`", String::from_utf8_lossy(shown).trim_end().escape_debug())
}

/// Refuses a size from a header that `len` bytes of file cannot hold, before anything is allocated for it.
///
/// Empty rows take no bytes in a file, so sizes somewhat above the number of entries are accepted: 16 rows
/// per byte, or 2²⁴.
pub(super) fn believable(path: &Path, what: &str, count: Option<usize>, len: usize) -> Result<usize> {
    match count {
        Some(n) if n <= BELIEVED.max(len.saturating_mul(16)) => Ok(n),
        _ => Err(Error::format(
            path,
            format!(
                "the header announces {} {what}, but {len} bytes of data cannot hold so many: the file is \
                 damaged or cut short",
                count.map_or("more than 2⁶⁴".into(), |n| n.to_string())
            ),
        )),
    }
}

/// Adds the file name to an error about matrix data.
pub fn name_file(path: &Path, error: Error) -> Error {
    match error {
        Error::Invalid(message) => Error::format(path, message),
        Error::NotFinite { row, column, value, .. } => {
            Error::NotFinite { what: crate::text::name(path), row, column, value }
        }
        other => other,
    }
}

/// The error for a column beyond the matrix.
pub fn no_such_column(path: &Path, column: impl std::fmt::Display, row: usize, columns: usize) -> Error {
    Error::format(
        path,
        format!(
            "column {column} in row {row} is out of range; the matrix has {columns} columns, counted from 0"
        ),
    )
}

/// Compressed rows with `width` values per entry: pointers, columns, values.
pub type Rows = (Vec<usize>, Vec<u32>, Vec<f64>);

/// Checks compressed rows as files hold them, sorts each row's columns and sums duplicates.
///
/// Rows that are already sorted, as in nearly all files, are left unchanged.
pub fn tidy_rows(path: &Path, columns: usize, width: usize, rows: Rows) -> Result<Rows> {
    let (mut row_ptr, mut col, mut values) = rows;
    let bad = |message: String| Err(Error::format(path, message));
    if row_ptr.first() != Some(&0) || row_ptr.last() != Some(&col.len()) {
        return bad(format!("the row pointers do not run from 0 to the {} stored entries", col.len()));
    }
    if let Some(i) = row_ptr.windows(2).position(|w| w[0] > w[1]) {
        return bad(format!(
            "row pointer {} is smaller than the pointer before it; row pointers must not decrease",
            i + 1
        ));
    }
    if Some(values.len()) != col.len().checked_mul(width) {
        return bad(format!(
            "{} values for {} entries; expected {width} values per entry",
            values.len(),
            col.len()
        ));
    }
    if let Some(p) = col.iter().position(|&j| j as usize >= columns) {
        let i = row_ptr.partition_point(|&q| q <= p) - 1;
        return Err(no_such_column(path, col[p], i, columns));
    }
    let sorted = row_ptr.windows(2).all(|w| col[w[0]..w[1]].windows(2).all(|c| c[0] < c[1]));
    if sorted {
        return Ok((row_ptr, col, values));
    }
    let (old_col, old_values) = (col.clone(), values.clone());
    let mut order: Vec<usize> = Vec::new();
    let (mut out, mut begin) = (0, 0);
    for end_at in row_ptr.iter_mut().skip(1) {
        let (end, first) = (*end_at, out);
        order.clear();
        order.extend(begin..end);
        order.sort_by_key(|&p| old_col[p]); // stable: duplicates are summed in the file's order
        for &p in &order {
            let from = &old_values[p * width..(p + 1) * width];
            if out > first && col[out - 1] == old_col[p] {
                for (v, &x) in values[(out - 1) * width..out * width].iter_mut().zip(from) {
                    *v += x;
                }
            } else {
                col[out] = old_col[p];
                values[out * width..(out + 1) * width].copy_from_slice(from);
                out += 1;
            }
        }
        (*end_at, begin) = (out, end);
    }
    col.truncate(out);
    values.truncate(out * width);
    Ok((row_ptr, col, values))
}

/// Cuts `bytes` short at every length and changes every byte in several ways; `read` must return each time.
#[cfg(test)]
pub(super) fn torture<T>(bytes: &[u8], read: impl Fn(&Path, &[u8]) -> Result<T>) {
    let path = Path::new("tortured");
    for end in 0..=bytes.len() {
        let _ = read(path, &bytes[..end]);
    }
    let mut copy = bytes.to_vec();
    for at in 0..bytes.len() {
        for change in [0, 0xff, 0x7f, 0x80, b'0', b'9', b'-', b' ', b'\n', bytes[at] ^ 1, bytes[at] ^ 0x40] {
            copy[at] = change;
            let _ = read(path, &copy);
        }
        copy[at] = bytes[at];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_and_summed() {
        let rows = (vec![0, 3, 3, 5], vec![2, 0, 2, 1, 0], vec![1.0, 2.0, 3.0, 4.0, 5.0]);
        let tidy = tidy_rows(Path::new("x"), 3, 1, rows).unwrap();
        assert_eq!(tidy, (vec![0, 2, 2, 4], vec![0, 2, 0, 1], vec![2.0, 4.0, 5.0, 4.0]));
        let wide = (vec![0, 2], vec![1, 0], vec![1.0, 2.0, 3.0, 4.0]);
        let tidy = tidy_rows(Path::new("x"), 2, 2, wide).unwrap();
        assert_eq!(tidy, (vec![0, 2], vec![0, 1], vec![3.0, 4.0, 1.0, 2.0]));
    }

    #[test]
    fn bad_rows_are_refused() {
        let p = Path::new("x");
        assert!(tidy_rows(p, 3, 1, (vec![], vec![], vec![])).is_err());
        assert!(tidy_rows(p, 3, 1, (vec![0, 2, 1], vec![0], vec![1.0])).is_err());
        assert!(tidy_rows(p, 3, 1, (vec![0, 1], vec![3], vec![1.0])).is_err());
        assert!(tidy_rows(p, 3, 2, (vec![0, 1], vec![0], vec![1.0])).is_err());
    }

    #[test]
    fn sizes_need_bytes() {
        let p = Path::new("x");
        assert!(believable(p, "rows", Some(1 << 24), 10).is_ok());
        assert!(believable(p, "rows", Some(1 << 40), 1000).is_err());
        assert!(believable(p, "rows", None, usize::MAX).is_err());
    }

    #[test]
    fn gzip_members_and_what_follows_them() {
        use std::io::Write;
        let member = |text: &[u8]| {
            let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            gz.write_all(text).unwrap();
            gz.finish().unwrap()
        };
        let (one, two) = (member(b"one"), member(b"two"));
        let unpacked = |parts: &[&[u8]]| gunzip(Path::new("x.gz"), &parts.concat(), None);
        assert_eq!(unpacked(&[&one]).unwrap(), b"one");
        assert_eq!(unpacked(&[&one, &two]).unwrap(), b"onetwo");
        assert_eq!(unpacked(&[&one, &[0; 512]]).unwrap(), b"one");
        assert_eq!(unpacked(&[&member(b""), &[0; 3]]).unwrap(), b"");
        for damaged in
            [&[&one[..], b"junk"][..], &[&one, &[0; 9], &two], &[&one[..one.len() - 1]], &[&[0; 9]]]
        {
            assert!(unpacked(damaged).unwrap_err().to_string().contains("x.gz: the gzip stream"));
        }
    }

    #[test]
    fn empty_files_and_folders() {
        let dir = tempfile::tempdir().unwrap();
        let empty = dir.path().join("empty");
        std::fs::write(&empty, b"").unwrap();
        assert!(load(&empty, None).unwrap().is_empty());
        assert!(matches!(load(dir.path(), None), Err(Error::Io { .. })));
        assert!(matches!(load(&dir.path().join("none"), None), Err(Error::Io { .. })));
        #[cfg(target_os = "linux")]
        for device in ["/dev/zero", "/dev/null"] {
            let error = load(Path::new(device), None).map(drop).unwrap_err().to_string();
            assert!(error.contains("a device, which may never end"), "{error}");
        }
        let latin = dir.path().join("latin.toml");
        std::fs::write(&latin, b"a\nb\xe4\n").unwrap();
        assert!(text(&latin).unwrap_err().to_string().contains("latin.toml:2: this is not Unicode text"));
        let cut = dir.path().join("cut.gz");
        std::fs::write(&cut, [0x1f, 0x8b, 8, 0]).unwrap();
        assert!(matches!(load(&cut, None), Err(Error::Format { .. })));
    }
}

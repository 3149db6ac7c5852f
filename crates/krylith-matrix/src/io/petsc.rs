//! PETSc's binary files: big-endian matrices (AIJ) and vectors, one after the other.
//!
//! Supports the output of `MatView` and `VecView` of a real, double-precision PETSc. Indices are 32-bit, or
//! 64-bit if PETSc was configured so; the first eight bytes tell which. PETSc stores a BAIJ matrix as AIJ,
//! and its block size in a text file beside it (`A.petsc.info`). That file is only a hint, and never causes
//! an error.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::source::{load, name_file, no_such_column, tidy_rows};
use crate::matrix::Csr;
use crate::{Error, Result};

#[doc(hidden)]
pub const MAT: i64 = 1_211_216;
#[doc(hidden)]
pub const VEC: i64 = 1_211_214;
/// PETSc's names for other objects in its files.
const OTHERS: [(i64, &str); 4] =
    [(1_211_218, "index set (IS)"), (1_211_219, "bag"), (1_211_221, "DM"), (1_211_223, "solver (KSP)")];

/// One object of a file.
///
/// # Examples
/// ```
/// use krylith_matrix::io::petsc::{Item, Object, read, write};
/// # let path = std::env::temp_dir().join(format!("krylith-doc-object-{}.bin", std::process::id()));
/// write(&path, &[Item::Vector(&[1.0, 2.0])])?;
/// assert_eq!(read(&path)?, [Object::Vector(vec![1.0, 2.0])]);
/// # std::fs::remove_file(&path).ok();
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub enum Object {
    /// A sparse matrix.
    Matrix(Csr),
    /// A vector.
    Vector(Vec<f64>),
}

/// An object to write.
///
/// # Examples
/// ```
/// use krylith_matrix::io::petsc::{Item, read, write};
/// use krylith::matrix::Csr;
/// # let path = std::env::temp_dir().join(format!("krylith-doc-item-{}.bin", std::process::id()));
/// let a = Csr::from_triplets(1, 1, &[(0, 0, 2.0)])?;
/// write(&path, &[Item::Matrix(&a), Item::Vector(&[4.0])])?; // for MatLoad, and VecLoad from the same viewer
/// assert_eq!(read(&path)?.len(), 2);
/// # std::fs::remove_file(&path).ok();
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub enum Item<'a> {
    /// A sparse matrix.
    Matrix(&'a Csr),
    /// A vector.
    Vector(&'a [f64]),
}

/// Reads every object of a file, in order.
///
/// # Errors
/// Content that is cut short or malformed, a dense matrix, an object of another kind, values that are not
/// finite.
pub fn read(path: impl AsRef<Path>) -> Result<Vec<Object>> {
    let path = path.as_ref();
    parse(path, &load(path, None)?)
}

/// True if these bytes begin a PETSc file.
pub(super) fn is_petsc(bytes: &[u8]) -> bool {
    let known = |id: i64| id == MAT || id == VEC || OTHERS.iter().any(|o| o.0 == id);
    let mut cursor = Cursor { bytes, at: 0, wide: false };
    let narrow = cursor.integer();
    cursor = Cursor { bytes, at: 0, wide: true };
    narrow.is_some_and(known) || cursor.integer().is_some_and(known)
}

/// The name of the file in which PETSc writes the options that its binary file cannot hold.
#[doc(hidden)]
pub fn info_name(path: impl AsRef<Path>) -> PathBuf {
    let mut name = path.as_ref().as_os_str().to_owned();
    name.push(".info");
    PathBuf::from(name)
}

/// The block size in `FILE.info` (`-matload_block_size 4`), if that file exists and gives one.
pub fn block_hint(path: impl AsRef<Path>) -> Option<usize> {
    let name = info_name(path);
    // An options file has a few lines.
    std::fs::metadata(&name).ok().filter(|meta| meta.is_file() && meta.len() <= 1 << 16)?;
    let text = std::fs::read_to_string(name).ok()?;
    let mut words = text.split_ascii_whitespace();
    words.by_ref().find(|w| w.ends_with("matload_block_size"))?;
    words.next()?.parse().ok().filter(|&b| b > 0)
}

/// A position in a file.
#[derive(Clone)]
#[doc(hidden)]
pub struct Cursor<'a> {
    pub bytes: &'a [u8],
    pub at: usize,
    /// True if integers have 64 bits.
    pub wide: bool,
}

impl<'a> Cursor<'a> {
    /// The start of a file.
    pub fn new(bytes: &'a [u8]) -> Self {
        // Class identifiers fit 32 bits, so a file with 64-bit integers begins with four zero bytes.
        Self { bytes, at: 0, wide: bytes.starts_with(&[0; 4]) }
    }

    /// Number of bytes of an integer.
    pub fn width(&self) -> usize {
        if self.wide { 8 } else { 4 }
    }

    /// The next `count` items of `size` bytes, if the file has them all.
    pub fn take(&mut self, count: usize, size: usize) -> Option<&'a [u8]> {
        let end = self.at.checked_add(count.checked_mul(size)?)?;
        let taken = self.bytes.get(self.at..end)?;
        self.at = end;
        Some(taken)
    }

    #[inline]
    pub fn integer(&mut self) -> Option<i64> {
        let width = self.width();
        self.take(1, width).map(integer)
    }
}

#[doc(hidden)]
#[inline]
pub fn integer(bytes: &[u8]) -> i64 {
    match *bytes {
        [a, b, c, d] => i32::from_be_bytes([a, b, c, d]).into(),
        [a, b, c, d, e, f, g, h] => i64::from_be_bytes([a, b, c, d, e, f, g, h]),
        _ => unreachable!("integers have four or eight bytes"),
    }
}

#[doc(hidden)]
pub fn reals(bytes: &[u8]) -> Vec<f64> {
    bytes.as_chunks().0.iter().map(|&c| f64::from_be_bytes(c)).collect()
}

pub(super) fn parse(path: &Path, bytes: &[u8]) -> Result<Vec<Object>> {
    let mut cursor = Cursor::new(bytes);
    let mut objects = Vec::new();
    while cursor.at < bytes.len() || objects.is_empty() {
        let at = cursor.at;
        let object = match cursor.integer() {
            Some(MAT) => Object::Matrix(matrix(path, &mut cursor)?),
            Some(VEC) => Object::Vector(vector(path, &mut cursor)?),
            None => return Err(short(path, "a class identifier", at)),
            Some(id) => {
                let message = match OTHERS.iter().find(|o| o.0 == id) {
                    Some((_, name)) => {
                        format!("found a PETSc {name} at byte {at}; only Mat and Vec are supported")
                    }
                    None if objects.is_empty() => {
                        format!(
                            "not a PETSc binary file: it begins with {id}, but a Mat begins with {MAT} and a Vec with {VEC}"
                        )
                    }
                    None => format!(
                        "{id} at byte {at} is not a PETSc class identifier: the object before it may have complex or \
                         single-precision values; only real double precision is supported"
                    ),
                };
                return Err(Error::format(path, message));
            }
        };
        objects.push(object);
    }
    Ok(objects)
}

pub(super) fn short(path: &Path, what: &str, at: usize) -> Error {
    Error::format(path, format!("the file is cut short: {what} should follow at byte {at}"))
}

/// Number of bytes of the object that begins like this and of a vector after it; `None` if its header is
/// incomplete.
pub(super) fn announced(head: &[u8]) -> Option<usize> {
    let mut cursor = Cursor::new(head);
    let (id, rows) = (cursor.integer()?, usize::try_from(cursor.integer()?).ok()?);
    let entries = match id {
        MAT => {
            let _columns = cursor.integer()?;
            usize::try_from(cursor.integer()?).ok()?
        }
        _ => 0,
    };
    // A row has its length and a number of the vector; an entry has its column and value.
    rows.checked_add(entries)?.checked_mul(16)
}

fn size(path: &Path, what: &str, n: i64) -> Result<usize> {
    usize::try_from(n)
        .map_err(|_| Error::format(path, format!("the header announces {n} {what}; expected 0 or more")))
}

/// The header of a Mat.
#[doc(hidden)]
pub struct MatHeader {
    pub rows: usize,
    pub columns: usize,
    nonzeros: i64,
}

/// Reads the header after a Mat's class identifier.
#[doc(hidden)]
pub fn mat_header(path: &Path, cursor: &mut Cursor) -> Result<MatHeader> {
    let at = cursor.at;
    let mut next = || cursor.integer().ok_or_else(|| short(path, "the header of a Mat", at));
    let (rows, columns, nonzeros) = (next()?, next()?, next()?);
    let (rows, columns) = (size(path, "rows", rows)?, size(path, "columns", columns)?);
    if columns > u32::MAX as usize {
        return Err(Error::format(path, format!("{columns} columns do not fit 32-bit indices")));
    }
    if nonzeros == -1 {
        return Err(Error::format(
            path,
            "this is a dense PETSc matrix; convert it to AIJ (MatConvert) before MatView, or save it without the native dense format",
        ));
    }
    Ok(MatHeader { rows, columns, nonzeros })
}

impl MatHeader {
    /// Refuses a header whose number of entries is not the sum of the row lengths.
    pub fn check_total(&self, path: &Path, total: usize) -> Result<()> {
        let nonzeros = self.nonzeros;
        // PETSc writes the largest integer if the count does not fit.
        let overflowed = nonzeros == i32::MAX as i64 && total > i32::MAX as usize;
        if nonzeros == total as i64 || overflowed {
            return Ok(());
        }
        let message = format!("the header announces {nonzeros} entries, but the row lengths sum to {total}");
        Err(Error::format(path, message))
    }
}

/// The error for a row that ends beyond the file.
#[doc(hidden)]
pub fn long_row(path: &Path, row: usize, length: i64) -> Error {
    Error::format(path, format!("row {row} announces {length} entries, more than the file can hold"))
}

fn matrix(path: &Path, cursor: &mut Cursor) -> Result<Csr> {
    let header = mat_header(path, cursor)?;
    let MatHeader { rows, columns, .. } = header;
    let width = cursor.width();
    let (at, bytes) = (cursor.at, cursor.bytes.len());
    let lengths = cursor.take(rows, width).ok_or_else(|| short(path, &format!("{rows} row lengths"), at))?;
    let mut row_ptr = Vec::with_capacity(rows + 1);
    row_ptr.push(0usize);
    for (i, length) in lengths.chunks_exact(width).enumerate() {
        let end = usize::try_from(integer(length)).ok().and_then(|n| row_ptr[i].checked_add(n));
        let end = end.filter(|&end| end <= bytes).ok_or_else(|| long_row(path, i, integer(length)))?;
        row_ptr.push(end);
    }
    let total = row_ptr[rows];
    header.check_total(path, total)?;
    let at = cursor.at;
    let indices =
        cursor.take(total, width).ok_or_else(|| short(path, &format!("{total} column indices"), at))?;
    let at = cursor.at;
    let values = cursor.take(total, 8).ok_or_else(|| short(path, &format!("{total} values"), at))?;
    let mut col = Vec::with_capacity(total);
    for (p, index) in indices.chunks_exact(width).enumerate() {
        let j = u32::try_from(integer(index)).map_err(|_| {
            let row = row_ptr.partition_point(|&q| q <= p) - 1;
            no_such_column(path, integer(index), row, columns)
        })?;
        col.push(j);
    }
    let (row_ptr, col, values) = tidy_rows(path, columns, 1, (row_ptr, col, reals(values)))?;
    Csr::new(rows, columns, row_ptr, col, values).map_err(|e| name_file(path, e))
}

fn vector(path: &Path, cursor: &mut Cursor) -> Result<Vec<f64>> {
    let at = cursor.at;
    let n = cursor.integer().ok_or_else(|| short(path, "the length of a Vec", at))?;
    let n = size(path, "numbers", n)?;
    let at = cursor.at;
    let values = reals(cursor.take(n, 8).ok_or_else(|| short(path, &format!("{n} numbers"), at))?);
    match values.iter().position(|v| !v.is_finite()) {
        None => Ok(values),
        Some(row) => {
            Err(Error::NotFinite { what: crate::text::name(path), row, column: 0, value: values[row] })
        }
    }
}

/// Writes objects one after the other with 32-bit indices; the file appears whole or not at all.
///
/// # Errors
/// [`Error::Io`] with the path, or sizes that 32-bit indices cannot hold.
pub fn write(path: impl AsRef<Path>, items: &[Item]) -> Result<()> {
    let path = path.as_ref();
    for item in items {
        let sizes = match item {
            Item::Matrix(a) => [a.rows(), a.columns(), a.nonzeros()],
            Item::Vector(x) => [x.len(), 0, 0],
        };
        if let Some(n) = sizes.iter().find(|&&n| i32::try_from(n).is_err()) {
            return Err(Error::format(path, format!("{n} does not fit the 32-bit integers of a PETSc file")));
        }
    }
    super::atomic::write(path, |out| items.iter().try_for_each(|item| write_item(out, item)))
}

fn write_item(out: &mut dyn Write, item: &Item) -> std::io::Result<()> {
    let mut integer = |n: usize| out.write_all(&(n as i32).to_be_bytes());
    let values = match item {
        Item::Matrix(a) => {
            integer(MAT as usize)?;
            integer(a.rows())?;
            integer(a.columns())?;
            integer(a.nonzeros())?;
            for w in a.row_ptr().windows(2) {
                integer(w[1] - w[0])?;
            }
            for &j in a.col() {
                integer(j as usize)?;
            }
            a.values()
        }
        Item::Vector(x) => {
            integer(VEC as usize)?;
            integer(x.len())?;
            x
        }
    };
    values.iter().try_for_each(|v| out.write_all(&v.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use super::super::source::torture;
    use super::*;

    fn sample() -> Csr {
        Csr::from_triplets(3, 4, &[(0, 1, 1.5), (0, 3, -2.0), (2, 0, 0.25)]).unwrap()
    }

    /// The bytes of `sample()` then a Vec, with integers of either width.
    fn bytes(wide: bool) -> Vec<u8> {
        let mut out = Vec::new();
        let integers = |out: &mut Vec<u8>, list: &[i64]| {
            for &n in list {
                if wide { out.extend(n.to_be_bytes()) } else { out.extend((n as i32).to_be_bytes()) }
            }
        };
        integers(&mut out, &[1211216, 3, 4, 3, 2, 0, 1, 3, 1, 0]); // row 0 unsorted
        out.extend([-2.0f64, 1.5, 0.25].iter().flat_map(|v| v.to_be_bytes()));
        integers(&mut out, &[1211214, 2]);
        out.extend([7.0f64, -8.0].iter().flat_map(|v| v.to_be_bytes()));
        out
    }

    #[test]
    fn both_index_widths() {
        for wide in [false, true] {
            let bytes = bytes(wide);
            assert!(is_petsc(&bytes));
            let objects = parse(Path::new("a.petsc"), &bytes).unwrap();
            assert_eq!(objects, [Object::Matrix(sample()), Object::Vector(vec![7.0, -8.0])]);
        }
        assert!(!is_petsc(b"%%MatrixMarket") && !is_petsc(b"") && !is_petsc(&[0; 16]));
    }

    #[test]
    fn written_and_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("A.petsc");
        let (a, x) = (sample(), [1.0, 2.0, 3.0]);
        write(&path, &[Item::Matrix(&a), Item::Vector(&x)]).unwrap();
        assert_eq!(read(&path).unwrap(), [Object::Matrix(a), Object::Vector(x.to_vec())]);
        assert_eq!(block_hint(&path), None);
        std::fs::write(dir.path().join("A.petsc.info"), "-mat_foo 1\n-matload_block_size 4\n").unwrap();
        assert_eq!(block_hint(&path), Some(4));
        std::fs::write(dir.path().join("A.petsc.info"), "-matload_block_size zero").unwrap();
        assert_eq!(block_hint(&path), None);
    }

    #[test]
    fn errors_say_what() {
        let message = |list: &[i32]| {
            let bytes: Vec<u8> = list.iter().flat_map(|n| n.to_be_bytes()).collect();
            parse(Path::new("a.petsc"), &bytes).unwrap_err().to_string()
        };
        for (list, word) in [
            (&[][..], "cut short"),
            (&[5, 6], "not a PETSc"),
            (&[1211218, 1, 1], "IS"),
            (&[1211216, 2], "header of a Mat"),
            (&[1211216, 2, 2, -1], "dense"),
            (&[1211216, -2, 2, 1], "-2 rows"),
            (&[1211216, i32::MAX, 2, 1, 1], "row lengths"),
            (&[1211216, 1, 2, 1, -1], "row 0"),
            (&[1211216, 1, 2, 2, 1, 0], "sum to 1"),
            (&[1211216, 1, 2, 1, 1], "column indices"),
            (&[1211216, 1, 2, 1, 1, 0, 0], "values"),
            (&[1211216, 1, 2, 1, 1, 2, 0, 0], "column 2 in row 0"),
            (&[1211216, 1, 2, 1, 1, -1, 0, 0], "column -1 in row 0"),
            (&[1211216, 1, 2, 1, 1, 1, 0x7ff00000, 0], "entry (0, 1) is inf"),
            (&[1211216, 1, 2, 1, 1, 1, 0, 0, 99], "complex"),
            (&[1211214, i32::MAX, 0], "2147483647 numbers"),
            (&[1211214, 1, 0x7ff80000, 0], "NaN"),
        ] {
            assert!(message(list).contains(word), "{list:?}: {}", message(list));
        }
    }

    #[test]
    fn damaged_files_never_panic() {
        torture(&bytes(false), parse);
        torture(&bytes(true), parse);
    }
}

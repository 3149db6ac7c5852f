//! Matrix Market: the header, dense arrays and writing; `coordinate` reads the sparse body.
//!
//! Boisvert, Pozo & Remington, *The Matrix Market Exchange Formats*, NISTIR 5935. The reader also accepts any
//! letter case in the header, blank lines and comments anywhere below it, and symmetric files that hold the
//! upper triangle instead of the lower. It reads `unsigned-integer`, which SciPy writes, as `integer`. Module
//! `amgx` reads AmgX's additions. A complex matrix becomes a real one of blocks ([`read`]).

mod amgx;

use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;

use rayon::prelude::*;

use super::array::{Array, transpose};
use super::coordinate::{self, Coordinates};
use super::source::{believable, excerpt, line_of, load, mark, name_file};
use super::vector::WRITTEN;
use crate::matrix::{Bsr, Csr};
use crate::{Error, Result};
use amgx::AmgX;

/// The type of a file's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)]
pub enum Field {
    Real,
    Integer,
    Pattern,
    Complex,
}

impl Field {
    /// The real numbers of a value.
    pub fn parts(self) -> usize {
        if self == Field::Complex { 2 } else { 1 }
    }
}

/// The entries that also represent their mirror image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)]
pub enum Symmetry {
    General,
    Symmetric,
    SkewSymmetric,
    Hermitian,
}

impl Symmetry {
    /// The mirror image of a value, which has its real part, or also its imaginary part.
    pub fn mirrored(self, [re, im]: [f64; 2]) -> [f64; 2] {
        match self {
            Symmetry::General | Symmetry::Symmetric => [re, im],
            Symmetry::SkewSymmetric => [-re, -im],
            Symmetry::Hermitian => [re, -im],
        }
    }
}

/// The contents of the first line and the line of sizes.
#[doc(hidden)]
pub struct Header {
    pub coordinate: bool,
    field: Field,
    symmetry: Symmetry,
    pub rows: usize,
    pub columns: usize,
    /// Number of announced entries; for an array, of the numbers that it has.
    pub entries: usize,
    /// Offset of the line after the sizes.
    body: usize,
    /// The contents of AmgX's line.
    amgx: AmgX,
}

impl Header {
    /// Largest number of lines after the header: one per entry and per number of AmgX's vectors. Counts a
    /// complex entry twice. `None` on overflow.
    pub fn numbers(&self) -> Option<usize> {
        let entries = self.entries.checked_mul(self.field.parts())?;
        self.rows.checked_mul(self.amgx.vectors())?.checked_add(entries)
    }

    /// The block size that AmgX's line gives.
    pub fn block(&self) -> Option<usize> {
        self.amgx.block
    }

    /// True if the values are complex.
    pub fn is_complex(&self) -> bool {
        self.field == Field::Complex
    }

    /// True if vectors follow the entries.
    pub fn has_vectors(&self) -> bool {
        self.amgx.has_vectors()
    }
}

/// The contents of a file.
pub(super) struct Parsed {
    pub matrix: Csr,
    /// True if it is the real form of a complex matrix.
    pub complex: bool,
    /// The block size that AmgX's line gives.
    pub block: Option<usize>,
    /// The right-hand side after the entries of an AmgX file.
    pub rhs: Option<Vec<f64>>,
}

/// Reads a sparse matrix: `coordinate` or `array`; real, integer, complex or pattern (ones); general,
/// symmetric, skew-symmetric or hermitian; plain or gzip.
///
/// The entry a + ib of a complex matrix becomes the block [[a, −b], [b, a]] of a real matrix of twice the
/// size.
///
/// Duplicates are summed in the file's order. Zeros of an `array` file are not stored, those of a
/// `coordinate` file are.
///
/// # Errors
/// With file and line: a malformed header, fewer or more entries than announced, an index of 0 or out of
/// range, text that is not a number, NaN and infinities, text after a line's last number.
pub fn read(path: impl AsRef<Path>) -> Result<Csr> {
    let path = path.as_ref();
    parse(path, &load(path, None)?)
}

/// Reads a dense array, real or complex: shape `[n]` for one column, else `[rows, columns]`. A `coordinate`
/// file is filled with 0.
///
/// # Errors
/// As [`read`].
pub fn read_array(path: impl AsRef<Path>) -> Result<Array> {
    let path = path.as_ref();
    parse_array(path, &load(path, None)?)
}

pub(super) fn parse(path: &Path, text: &[u8]) -> Result<Csr> {
    parse_all(path, text).map(|parsed| parsed.matrix)
}

pub(super) fn parse_all(path: &Path, text: &[u8]) -> Result<Parsed> {
    let header = header(path, text)?;
    let complex = header.is_complex();
    let block = header.block().map(|b| b * header.field.parts());
    let block = block.or(complex.then_some(2));
    let plain = |matrix| Parsed { matrix, complex, block, rhs: None };
    if header.coordinate {
        let (end, rhs) = header.amgx.behind(path, text, &header)?;
        let matrix = coordinate::read(&coordinates(path, &text[..end], &header)?)?;
        return Ok(Parsed { matrix, complex, block, rhs });
    }
    let values = dense(path, text, &header)?;
    let (mut row_ptr, mut col, mut kept) = (Vec::with_capacity(header.rows + 1), Vec::new(), Vec::new());
    row_ptr.push(0);
    let parts = header.field.parts();
    for (i, part) in (0..header.rows).flat_map(|i| (0..parts).map(move |part| (i, part))) {
        for j in 0..header.columns {
            let entry = &values[(j * header.rows + i) * parts..][..parts];
            let row: [f64; 2] = match (entry, part) {
                (&[re, im], 0) => [re, -im],
                (&[re, im], _) => [im, re],
                _ => [entry[0], 0.0],
            };
            if entry.iter().any(|&v| v != 0.0) {
                col.extend((0..parts).map(|part| (parts * j + part) as u32));
                kept.extend(&row[..parts]);
            }
        }
        row_ptr.push(col.len());
    }
    Csr::new(parts * header.rows, parts * header.columns, row_ptr, col, kept)
        .map(plain)
        .map_err(|e| name_file(path, e))
}

pub(super) fn parse_array(path: &Path, text: &[u8]) -> Result<Array> {
    let header = header(path, text)?;
    let (rows, columns) = (header.rows, header.columns);
    if let (_, Some(rhs)) = header.amgx.behind(path, text, &header)? {
        return Ok(Array::vector(rhs));
    }
    let values = if header.coordinate {
        let size = believable(path, "numbers", rows.checked_mul(columns), text.len())?;
        let sparse = coordinate::read(&coordinates(path, text, &header)?)?;
        let parts = header.field.parts();
        let mut values = vec![0.0; parts * size];
        for i in 0..sparse.rows() {
            let (col, v) = sparse.row(i);
            // The first column of a block has both parts of a complex number.
            for (&j, &v) in col.iter().zip(v).filter(|(j, _)| **j as usize % parts == 0) {
                values[parts * (i / parts * columns + j as usize / parts) + i % parts] = v;
            }
        }
        values
    } else {
        let by_columns = dense(path, text, &header)?;
        match (columns, header.is_complex()) {
            (1, _) => by_columns,
            (_, false) => transpose(&by_columns, columns),
            (_, true) => {
                let (pairs, _) = by_columns.as_chunks::<2>();
                transpose(pairs, columns).into_flattened()
            }
        }
    };
    let shape = if columns == 1 { vec![rows] } else { vec![rows, columns] };
    match header.is_complex() {
        true => Array::complex(shape, values),
        false => Array::new(shape, values),
    }
    .map_err(|e| name_file(path, e))
}

#[doc(hidden)]
pub fn coordinates<'a>(path: &'a Path, text: &'a [u8], header: &Header) -> Result<Coordinates<'a>> {
    Ok(Coordinates {
        path,
        text,
        body: header.body,
        rows: believable(path, "rows", Some(header.rows), text.len())?,
        columns: header.columns,
        entries: header.entries,
        field: header.field,
        symmetry: header.symmetry,
    })
}

#[doc(hidden)]
pub fn header(path: &Path, text: &[u8]) -> Result<Header> {
    let header = announced(path, text)?;
    // The shortest line of an entry is "1 1", of an array "1"; each but the last ends in a newline. Complex
    // values have four bytes more in an entry, and two in an array.
    let complex = header.is_complex();
    let shortest =
        if header.coordinate { 4 + 4 * usize::from(complex) } else { 2 + 2 * usize::from(complex) };
    let rest = text.len() - header.body;
    if header.entries > rest.div_ceil(shortest) {
        let message = format!(
            "the header announces {} entries, but only {rest} bytes follow: the file is cut short",
            header.entries
        );
        return Err(Error::parse(path, line_of(text, header.body.saturating_sub(1)), message));
    }
    Ok(header)
}

/// The header of a file that begins with `text`, which may be incomplete.
pub(super) fn announced(path: &Path, text: &[u8]) -> Result<Header> {
    let mut lines = Lines { text, at: mark(text) };
    let first = lines.next().unwrap_or((0, b""));
    let bad = |at: usize, message: String| Error::parse(path, line_of(text, at), message);
    let words = words(first.1);
    let banner = "expected `%%MatrixMarket matrix coordinate real general` or the like as the first line";
    let [mark, object, format, field, symmetry] = &words[..] else {
        return Err(bad(0, format!("{banner}, found {}", excerpt(text, 0))));
    };
    if mark != "%%matrixmarket" {
        return Err(bad(0, format!("{banner}, found {}", excerpt(text, 0))));
    }
    if object != "matrix" {
        return Err(bad(0, format!("the object is `{object}`; only `matrix` can be read")));
    }
    let coordinate = match &format[..] {
        "coordinate" => true,
        "array" => false,
        _ => return Err(bad(0, format!("the format is `{format}`; expected `coordinate` or `array`"))),
    };
    let field = match &field[..] {
        "real" | "double" => Field::Real,
        "integer" | "unsigned-integer" => Field::Integer,
        "pattern" if coordinate => Field::Pattern,
        "pattern" => {
            return Err(bad(0, "an `array` file cannot be `pattern`: give real or integer values".into()));
        }
        "complex" => Field::Complex,
        _ => {
            let known = "expected `real`, `integer`, `complex` or `pattern`";
            return Err(bad(0, format!("the field is `{field}`; {known}")));
        }
    };
    let symmetry = match &symmetry[..] {
        "general" => Symmetry::General,
        "symmetric" => Symmetry::Symmetric,
        "skew-symmetric" => Symmetry::SkewSymmetric,
        "hermitian" if field == Field::Complex => Symmetry::Hermitian,
        "hermitian" => {
            return Err(bad(0, "a `hermitian` matrix is `complex`: declare a real one `symmetric`".into()));
        }
        _ => {
            let known = "expected `general`, `symmetric`, `skew-symmetric` or `hermitian`";
            return Err(bad(0, format!("the symmetry is `{symmetry}`; {known}")));
        }
    };

    let expected = if coordinate { "rows, columns and entries" } else { "rows and columns" };
    let mut amgx = None;
    let (at, line) = loop {
        match lines.next() {
            None => {
                return Err(bad(text.len(), format!("the file ends before the line of sizes ({expected})")));
            }
            Some((at, line)) if line.starts_with(b"%") => {
                if let Some(said) = AmgX::of(line) {
                    amgx = Some(said.map_err(|why| bad(at, why))?);
                }
            }
            Some((_, line)) if line.trim_ascii().is_empty() || line.trim_ascii_start().starts_with(b"%") => {}
            Some(found) => break found,
        }
    };
    let sizes: Option<Vec<usize>> = words_of(line).map(|w| w.parse().ok()).collect();
    let (rows, columns, entries) = match sizes.as_deref() {
        Some(&[rows, columns, entries]) if coordinate => (rows, columns, entries),
        Some(&[rows, columns]) if !coordinate => (rows, columns, 0),
        _ => {
            let found = excerpt(text, at);
            return Err(bad(at, format!("expected the sizes ({expected}) as whole numbers, found {found}")));
        }
    };
    if rows > u32::MAX as usize || columns > u32::MAX as usize {
        return Err(bad(at, format!("a {rows}×{columns} matrix does not fit 32-bit indices")));
    }
    if symmetry != Symmetry::General && rows != columns {
        return Err(bad(at, format!("the header declares a symmetric matrix, but it is {rows}×{columns}")));
    }
    let body = lines.at;
    let entries = match (coordinate, symmetry) {
        (true, _) => entries,
        (false, Symmetry::General) => rows.saturating_mul(columns),
        (false, Symmetry::Symmetric | Symmetry::Hermitian) => rows.saturating_mul(rows + 1) / 2,
        (false, Symmetry::SkewSymmetric) => rows.saturating_mul(rows.saturating_sub(1)) / 2,
    };
    let amgx = amgx.unwrap_or_default();
    if amgx.has_vectors() && field == Field::Complex {
        return Err(bad(0, "an AmgX file with vectors and complex values is not supported".into()));
    }
    if field == Field::Complex && rows.max(columns) > u32::MAX as usize / 2 {
        let message =
            "the real form of a complex matrix with so many rows or columns does not fit 32-bit indices";
        return Err(bad(at, format!("{rows}×{columns}: {message}")));
    }
    if amgx.has_vectors() && !coordinate {
        return Err(bad(0, "an AmgX file with vectors after a dense array is not supported".into()));
    }
    Ok(Header { coordinate, field, symmetry, rows, columns, entries, body, amgx })
}

/// The numbers of an `array` file, one per line, as the full matrix by columns. The parts of a complex number
/// follow each other.
fn dense(path: &Path, text: &[u8], header: &Header) -> Result<Vec<f64>> {
    let (n, m) = (header.rows, header.columns);
    // One size may be 0 and the other huge, so both are checked. Without rows there are no columns to visit.
    believable(path, "rows", Some(n), text.len())?;
    let size = believable(path, "numbers", n.checked_mul(m), text.len())?;
    let m = if n == 0 { 0 } else { m };
    let parts = header.field.parts();
    let mut values = vec![0.0; size * parts];
    let mut lines = Lines { text, at: header.body };
    let mut read = 0;
    for j in 0..m {
        let first = match header.symmetry {
            Symmetry::General => 0,
            Symmetry::Symmetric | Symmetry::Hermitian => j,
            Symmetry::SkewSymmetric => j + 1,
        };
        for i in first..n {
            let Some((at, line)) = lines.content() else {
                let message =
                    format!("the file ends after {read} of {} numbers: it is cut short", header.entries);
                return Err(Error::parse(path, line_of(text, text.len()), message));
            };
            let bad = |message: String| {
                Error::parse(path, line_of(text, at), message + " in " + &excerpt(text, at))
            };
            let v = coordinate::number(line, header.field).map_err(bad)?;
            if header.symmetry == Symmetry::Hermitian && i == j && v[1] != 0.0 {
                return Err(bad(coordinate::NOT_REAL.into()));
            }
            read += 1;
            values[(j * n + i) * parts..][..parts].copy_from_slice(&v[..parts]);
            if header.symmetry != Symmetry::General && i != j {
                let v = header.symmetry.mirrored(v);
                values[(i * n + j) * parts..][..parts].copy_from_slice(&v[..parts]);
            }
        }
    }
    if let Some((at, _)) = lines.content() {
        let message =
            format!("the file has more than the {} numbers that its sizes announce", header.entries);
        return Err(Error::parse(path, line_of(text, at), message));
    }
    Ok(values)
}

/// Lines with their offsets.
struct Lines<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Lines<'a> {
    type Item = (usize, &'a [u8]);
    fn next(&mut self) -> Option<Self::Item> {
        if self.at >= self.text.len() {
            return None;
        }
        let (begin, rest) = (self.at, &self.text[self.at..]);
        let length = rest.iter().position(|&c| c == b'\n').unwrap_or(rest.len());
        self.at = begin + length + usize::from(length < rest.len());
        Some((begin, &rest[..length]))
    }
}

impl<'a> Lines<'a> {
    /// The next line that is neither blank nor a comment.
    fn content(&mut self) -> Option<(usize, &'a [u8])> {
        self.find(|(_, line)| line.iter().find(|c| !c.is_ascii_whitespace()).is_some_and(|&c| c != b'%'))
    }
}

fn words_of(line: &[u8]) -> impl Iterator<Item = &str> {
    let split = line.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty());
    split.map(|w| std::str::from_utf8(w).unwrap_or("\u{fffd}"))
}

/// The first six words in lower case: a valid line has five.
fn words(line: &[u8]) -> Vec<String> {
    words_of(&line[..line.len().min(1024)]).take(6).map(str::to_ascii_lowercase).collect()
}

/// Writes `coordinate real general`, 17 significant digits, row by row; the file appears whole or not at all.
///
/// # Errors
/// [`Error::Io`] with the path.
pub fn write(path: impl AsRef<Path>, a: &Csr) -> Result<()> {
    write_with(path, [a.rows(), a.columns(), a.nonzeros()], "real", |text, i| {
        let (col, values) = a.row(i);
        for (&j, &v) in col.iter().zip(values) {
            let _ = writeln!(text, "{} {} {v:.16e}", i + 1, j as usize + 1); // never fails
        }
    })
}

/// Writes the complex matrix of a real form, as [`write()`] writes a real one: `coordinate complex general`.
///
/// # Errors
/// Blocks that are not 2×2 of the form [[a, −b], [b, a]]; [`Error::Io`] with the path.
///
/// ```
/// use krylith::matrix::{Bsr, Csr};
/// use krylith_matrix::io::matrix_market;
/// # let path = std::env::temp_dir().join(format!("krylith-doc-complex-{}.mtx", std::process::id()));
/// let text = "%%MatrixMarket matrix coordinate complex general\n1 1 1\n1 1 3 4\n";
/// std::fs::write(&path, text).unwrap();
/// let a = matrix_market::read(&path)?;
/// assert_eq!(a, Csr::from_triplets(2, 2, &[(0, 0, 3.0), (0, 1, -4.0), (1, 0, 4.0), (1, 1, 3.0)])?);
/// matrix_market::write_complex(&path, &Bsr::from_csr(&a, 2)?)?;
/// assert_eq!(matrix_market::read(&path)?, a);
/// # std::fs::remove_file(&path).ok();
/// # Ok::<(), krylith::Error>(())
/// ```
pub fn write_complex(path: impl AsRef<Path>, a: &Bsr) -> Result<()> {
    let whole = |[re, minus, im, other]: &[f64; 4]| re == other && *minus == -im;
    let (blocks, rest) = a.values().as_chunks::<4>();
    if a.block() != 2 || !rest.is_empty() || !blocks.iter().all(whole) {
        let message = "the matrix is not the real form of a complex one: blocks [[a, −b], [b, a]]";
        return Err(Error::format(path.as_ref(), message));
    }
    let sizes = [a.block_rows(), a.columns() / 2, a.blocks()];
    write_with(path, sizes, "complex", |text, i| {
        for e in a.row_ptr()[i]..a.row_ptr()[i + 1] {
            let [re, _, im, _] = blocks[e];
            let column = a.col()[e] as usize + 1;
            let _ = writeln!(text, "{} {column} {re:.16e} {im:.16e}", i + 1); // never fails
        }
    })
}

/// Writes a matrix whose row i `line` appends to a text.
fn write_with(
    path: impl AsRef<Path>,
    [rows, columns, entries]: [usize; 3],
    field: &str,
    line: impl Fn(&mut String, usize) + Sync,
) -> Result<()> {
    const ROWS: usize = 4096; // a task
    const TASKS: usize = 64; // formatted at once, in memory
    super::atomic::write(path, |out| {
        writeln!(out, "%%MatrixMarket matrix coordinate {field} general")?;
        writeln!(out, "{rows} {columns} {entries}")?;
        for batch in (0..rows).step_by(ROWS * TASKS) {
            let end = rows.min(batch + ROWS * TASKS);
            let starts: Vec<usize> = (batch..end).step_by(ROWS).collect();
            let texts: Vec<String> = starts
                .par_iter()
                .map(|&start| {
                    let mut text = String::new();
                    (start..end.min(start + ROWS)).for_each(|i| line(&mut text, i));
                    text
                })
                .collect();
            for text in texts {
                out.write_all(text.as_bytes())?;
            }
        }
        Ok(())
    })
}

/// Writes `array real general` or `array complex general`, 17 significant digits, column by column; the file
/// appears whole or not at all.
///
/// # Errors
/// [`Error::Io`] with the path.
pub fn write_array(path: impl AsRef<Path>, array: &Array) -> Result<()> {
    super::atomic::write(path, |out| write_array_to(out, array))
}

/// Writes an array as [`write_array`] does, to a stream.
///
/// # Errors
/// An error of the stream.
pub fn write_array_to(out: &mut dyn Write, array: &Array) -> std::io::Result<()> {
    let (rows, columns) = array.rows_columns();
    let field = if array.is_complex() { "complex" } else { "real" };
    writeln!(out, "%%MatrixMarket matrix array {field} general\n% {WRITTEN}")?;
    writeln!(out, "{rows} {columns}")?;
    for (i, j) in (0..columns).flat_map(|j| (0..rows).map(move |i| (i, j))) {
        match array.number(i * columns + j) {
            [v] => writeln!(out, "{v:.16e}")?,
            parts => writeln!(out, "{:.16e} {:.16e}", parts[0], parts[1])?,
        }
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests;

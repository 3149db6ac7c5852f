//! Matrix Market: the header, dense arrays and writing; `coordinate` reads the sparse body.
//!
//! Boisvert, Pozo & Remington, *The Matrix Market Exchange Formats*, NISTIR 5935. The reader also accepts any
//! letter case in the header, blank lines and comments anywhere below it, and symmetric files that hold the
//! upper triangle instead of the lower. It reads `unsigned-integer`, which SciPy writes, as `integer`. Module
//! `amgx` reads AmgX's additions.

mod amgx;

use std::fmt::Write as _;
use std::io::Write;
use std::path::Path;

use rayon::prelude::*;

use super::array::{Array, transpose};
use super::coordinate::{self, Coordinates};
use super::source::{COMPLEX, believable, excerpt, line_of, load, mark, name_file};
use super::vector::WRITTEN;
use crate::matrix::Csr;
use crate::{Error, Result};
use amgx::AmgX;

/// The type of a file's values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)]
pub enum Field {
    Real,
    Integer,
    Pattern,
}

/// The entries that also represent their mirror image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[doc(hidden)]
pub enum Symmetry {
    General,
    Symmetric,
    SkewSymmetric,
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
    /// Largest number of lines after the header: one per entry and per number of AmgX's vectors. `None` on
    /// overflow.
    pub fn numbers(&self) -> Option<usize> {
        self.rows.checked_mul(self.amgx.vectors())?.checked_add(self.entries)
    }

    /// The block size that AmgX's line gives.
    pub fn block(&self) -> Option<usize> {
        self.amgx.block
    }

    /// True if vectors follow the entries.
    pub fn has_vectors(&self) -> bool {
        self.amgx.has_vectors()
    }
}

/// The contents of a file.
pub(super) struct Parsed {
    pub matrix: Csr,
    /// The block size that AmgX's line gives.
    pub block: Option<usize>,
    /// The right-hand side after the entries of an AmgX file.
    pub rhs: Option<Vec<f64>>,
}

/// Reads a sparse matrix: `coordinate` or `array`; real, integer or pattern (ones); general, symmetric or
/// skew-symmetric; plain or gzip.
///
/// Duplicates are summed in the file's order. Zeros of an `array` file are not stored, those of a
/// `coordinate` file are.
///
/// # Errors
/// With file and line: a malformed header, complex or hermitian values, fewer or more entries than announced,
/// an index of 0 or out of range, text that is not a number, NaN and infinities, text after a line's last
/// number.
pub fn read(path: impl AsRef<Path>) -> Result<Csr> {
    let path = path.as_ref();
    parse(path, &load(path, None)?)
}

/// Reads a dense array: shape `[n]` for one column, else `[rows, columns]`. A `coordinate` file is filled
/// with 0.
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
    let (block, plain) = (header.block(), |matrix| Parsed { matrix, block: header.block(), rhs: None });
    if header.coordinate {
        let (end, rhs) = header.amgx.behind(path, text, &header)?;
        let matrix = coordinate::read(&coordinates(path, &text[..end], &header)?)?;
        return Ok(Parsed { matrix, block, rhs });
    }
    let values = dense(path, text, &header)?;
    let (mut row_ptr, mut col, mut kept) = (Vec::with_capacity(header.rows + 1), Vec::new(), Vec::new());
    row_ptr.push(0);
    for i in 0..header.rows {
        for j in 0..header.columns {
            let v = values[j * header.rows + i];
            if v != 0.0 {
                col.push(j as u32);
                kept.push(v);
            }
        }
        row_ptr.push(col.len());
    }
    Csr::new(header.rows, header.columns, row_ptr, col, kept).map(plain).map_err(|e| name_file(path, e))
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
        let mut values = vec![0.0; size];
        for i in 0..rows {
            let (col, v) = sparse.row(i);
            for (&j, &v) in col.iter().zip(v) {
                values[i * columns + j as usize] = v;
            }
        }
        values
    } else {
        let by_columns = dense(path, text, &header)?;
        if columns == 1 { by_columns } else { transpose(&by_columns, columns) }
    };
    Array::new(if columns == 1 { vec![rows] } else { vec![rows, columns] }, values)
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
    // The shortest line of an entry is "1 1", of an array "1"; each but the last ends in a newline.
    let (shortest, rest) = (if header.coordinate { 4 } else { 2 }, text.len() - header.body);
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
        "complex" => {
            return Err(bad(0, COMPLEX.into()));
        }
        _ => return Err(bad(0, format!("the field is `{field}`; expected `real`, `integer` or `pattern`"))),
    };
    let symmetry = match &symmetry[..] {
        "general" => Symmetry::General,
        "symmetric" => Symmetry::Symmetric,
        "skew-symmetric" => Symmetry::SkewSymmetric,
        "hermitian" => {
            return Err(bad(
                0,
                "hermitian matrices are not supported: declare a real one `symmetric`".into(),
            ));
        }
        _ => {
            let known = "expected `general`, `symmetric` or `skew-symmetric`";
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
        (false, Symmetry::Symmetric) => rows.saturating_mul(rows + 1) / 2,
        (false, Symmetry::SkewSymmetric) => rows.saturating_mul(rows.saturating_sub(1)) / 2,
    };
    let amgx = amgx.unwrap_or_default();
    if amgx.has_vectors() && !coordinate {
        return Err(bad(0, "an AmgX file with vectors after a dense array is not supported".into()));
    }
    Ok(Header { coordinate, field, symmetry, rows, columns, entries, body, amgx })
}

/// The numbers of an `array` file, one per line, as the full matrix by columns.
fn dense(path: &Path, text: &[u8], header: &Header) -> Result<Vec<f64>> {
    let (n, m) = (header.rows, header.columns);
    // One size may be 0 and the other huge, so both are checked. Without rows there are no columns to visit.
    believable(path, "rows", Some(n), text.len())?;
    let size = believable(path, "numbers", n.checked_mul(m), text.len())?;
    let m = if n == 0 { 0 } else { m };
    let mut values = vec![0.0; size];
    let mut lines = Lines { text, at: header.body };
    let mut read = 0;
    for j in 0..m {
        let first = match header.symmetry {
            Symmetry::General => 0,
            Symmetry::Symmetric => j,
            Symmetry::SkewSymmetric => j + 1,
        };
        for i in first..n {
            let Some((at, line)) = lines.content() else {
                let message =
                    format!("the file ends after {read} of {} numbers: it is cut short", header.entries);
                return Err(Error::parse(path, line_of(text, text.len()), message));
            };
            let v = coordinate::number(line, header.field).map_err(|message| {
                Error::parse(path, line_of(text, at), message + " in " + &excerpt(text, at))
            })?;
            read += 1;
            values[j * n + i] = v;
            match header.symmetry {
                Symmetry::General => {}
                Symmetry::Symmetric => values[i * n + j] = v,
                Symmetry::SkewSymmetric => values[i * n + j] = -v,
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
    const ROWS: usize = 4096; // a task
    const TASKS: usize = 64; // formatted at once, in memory
    super::atomic::write(path, |out| {
        writeln!(out, "%%MatrixMarket matrix coordinate real general")?;
        writeln!(out, "{} {} {}", a.rows(), a.columns(), a.nonzeros())?;
        for batch in (0..a.rows()).step_by(ROWS * TASKS) {
            let end = a.rows().min(batch + ROWS * TASKS);
            let starts: Vec<usize> = (batch..end).step_by(ROWS).collect();
            let texts: Vec<String> = starts
                .par_iter()
                .map(|&start| {
                    let mut text = String::new();
                    for i in start..end.min(start + ROWS) {
                        let (col, values) = a.row(i);
                        for (&j, &v) in col.iter().zip(values) {
                            let _ = writeln!(text, "{} {} {v:.16e}", i + 1, j as usize + 1); // never fails
                        }
                    }
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

/// Writes `array real general`, 17 significant digits, column by column; the file appears whole or not at
/// all.
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
    writeln!(out, "%%MatrixMarket matrix array real general\n% {WRITTEN}")?;
    writeln!(out, "{rows} {columns}")?;
    for j in 0..columns {
        for i in 0..rows {
            writeln!(out, "{:.16e}", array.values()[i * columns + j])?;
        }
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests;

//! Harwell–Boeing and Rutherford–Boeing files: compressed columns as text in fixed-width Fortran formats.
//!
//! Duff, Grimes & Lewis, *Users' Guide for the Harwell–Boeing Sparse Matrix Collection*, TR/PA/92/86; *The
//! Rutherford–Boeing Sparse Matrix Collection*, RAL-TR-97-031. The two share their layout: a title, a line
//! with line counts, a line with type and sizes, a line of formats, then column pointers, row indices,
//! values. Harwell–Boeing files may also hold right-hand sides. The reader accepts assembled real, integer
//! and pattern matrices (a pattern gets ones). It ignores the line counts, which are not needed and often
//! wrong.

mod format;

use std::path::Path;

use super::columns::into_rows;
use super::matrix_market::Symmetry;
use super::number::quoted;
use super::source::{COMPLEX, excerpt, line_of, load};
use crate::matrix::Csr;
use crate::{Error, Result};
use format::{Field, LineFormat, integer, split};

/// Reads the matrix, with a symmetric one expanded, and the first of its right-hand sides, if it has any.
///
/// # Errors
/// With file and line: a malformed header; complex, hermitian or unassembled matrices; unsupported formats;
/// text that is not a number; indices out of range; NaN and infinities; a file that is cut short.
pub fn read(path: impl AsRef<Path>) -> Result<(Csr, Option<Vec<f64>>)> {
    let path = path.as_ref();
    parse(path, &load(path, None)?)
}

/// True if these bytes begin such a file: line counts in the second line, type and sizes in the third,
/// formats in the fourth.
pub(super) fn is_harwell_boeing(bytes: &[u8]) -> bool {
    let mut lines = bytes[..bytes.len().min(1024)].split(|&c| c == b'\n').skip(1);
    let mut next = || std::str::from_utf8(lines.next()?).ok();
    let (Some(counts), Some(sizes), Some(formats)) = (next(), next(), next()) else { return false };
    let whole =
        |text: &str| !text.trim().is_empty() && text.split_whitespace().all(|w| w.parse::<i64>().is_ok());
    let kind = sizes.as_bytes().first_chunk().is_some_and(|k: &[u8; 3]| {
        let k = k.map(|c| c.to_ascii_uppercase());
        b"RCPIQ".contains(&k[0]) && b"SUHZR".contains(&k[1]) && b"AE".contains(&k[2])
    });
    kind && whole(counts) && whole(&sizes[3..]) && formats.trim_start().starts_with('(')
}

/// Number of numbers, right-hand sides included, that a file with this beginning may hold; `None` if the
/// header is incomplete.
pub(super) fn announced(head: &[u8]) -> Option<usize> {
    let mut lines = head.split(|&c| c == b'\n').map(|line| std::str::from_utf8(line).unwrap_or_default());
    let counts = integers(lines.nth(1)?)?;
    let sizes = integers(lines.next()?.trim_start().get(3..)?)?;
    let size = |at: usize| sizes.get(at).and_then(|&n| usize::try_from(n).ok());
    let (rows, columns, entries) = (size(0)?, size(1)?, size(2)?);
    let sides: usize = match counts.get(4).is_some_and(|&n| n > 0) {
        // After the formats: the type of the right-hand sides, and their number.
        true => lines.nth(1)?.split_whitespace().nth(1)?.parse().ok()?,
        false => 0,
    };
    // An initial guess and a solution may belong to each right-hand side.
    let vectors = rows.checked_mul(sides)?.checked_mul(3)?;
    entries.checked_mul(2)?.checked_add(columns)?.checked_add(vectors)?.checked_add(rows)
}

pub(super) fn parse(path: &Path, text: &[u8]) -> Result<(Csr, Option<Vec<f64>>)> {
    let mut lines = Lines { path, text, at: 0, begin: 0 };
    let header = Header::read(&mut lines)?;
    let Header { rows, columns, entries, symmetry, .. } = header;

    let mut col_ptr = Vec::with_capacity(columns + 1);
    lines.numbers(&header.pointers, columns + 1, "column pointers", |_, text| {
        let before = col_ptr.last().map_or(1, |&p: &usize| p + 1);
        let wrong = |why: &str| format!("{} {why}", quoted(text));
        let pointer = integer(text)
            .and_then(|p| usize::try_from(p).ok())
            .ok_or_else(|| wrong("is not a column pointer (a whole number from 1)"))?;
        // Pointers count from 1.
        if pointer < before || pointer > entries + 1 || (col_ptr.is_empty() && pointer != 1) {
            return Err(wrong(
                "is not a valid column pointer (pointers start at 1, never decrease, and end at the number \
                 of entries + 1)",
            ));
        }
        col_ptr.push(pointer - 1);
        Ok(())
    })?;
    if col_ptr[columns] != entries {
        let message = format!(
            "the column pointers end at {}, but the header announces {entries} entries",
            col_ptr[columns]
        );
        return Err(lines.wrong(message));
    }
    let mut row = Vec::with_capacity(entries);
    let (mut column, mut triangles) = (0, [false; 2]);
    lines.numbers(&header.indices, entries, "row indices", |_, text| {
        let wrong = |why: &str| format!("{} {why}", quoted(text));
        let i = integer(text).ok_or_else(|| wrong("is not a row index (a whole number)"))?;
        let i = i.checked_sub(1).and_then(|i| usize::try_from(i).ok()).filter(|&i| i < rows);
        let i = i.ok_or_else(|| wrong(&format!("is not a row index from 1 to {rows}")))?;
        if symmetry != Symmetry::General {
            while col_ptr[column + 1] <= row.len() {
                column += 1;
            }
            match i.cmp(&column) {
                std::cmp::Ordering::Greater => triangles[0] = true,
                std::cmp::Ordering::Less => triangles[1] = true,
                std::cmp::Ordering::Equal => {}
            }
            if triangles == [true; 2] {
                return Err(wrong(
                    "is the row of an entry on the other side of the diagonal than earlier ones (a \
                     symmetric file may hold only one triangle)",
                ));
            }
        }
        row.push(i as u32); // rows fit: the header is checked
        Ok(())
    })?;
    let values = match &header.values {
        None => vec![1.0; entries],
        Some(format) => lines.reals(format, entries, "values")?,
    };
    let rhs = match &header.rhs {
        None => None,
        Some(format) => Some(lines.reals(format, rows, "numbers of the right-hand side")?),
    };
    if symmetry == Symmetry::SkewSymmetric
        && let Some(j) = (0..columns)
            .find(|&j| (col_ptr[j]..col_ptr[j + 1]).any(|p| row[p] as usize == j && values[p] != 0.0))
    {
        let message =
            format!("entry ({j}, {j}) is not zero, but the header declares a skew-symmetric matrix");
        return Err(Error::format(path, message));
    }
    let a = into_rows(path, [rows, columns], (col_ptr, row, values), symmetry, text.len())?;
    Ok((a, rhs))
}

/// The contents of the first four or five lines.
struct Header {
    rows: usize,
    columns: usize,
    entries: usize,
    symmetry: Symmetry,
    pointers: LineFormat,
    indices: LineFormat,
    /// `None` for a pattern.
    values: Option<LineFormat>,
    /// The format of full right-hand sides, if the file has them.
    rhs: Option<LineFormat>,
}

impl Header {
    fn read(lines: &mut Lines) -> Result<Self> {
        lines.text_line("the title")?;
        let counts = integers(lines.text_line("the line counts")?);
        let Some(counts) = counts.filter(|c| c.len() >= 3) else {
            return Err(lines.wrong("expected the line counts".into()));
        };
        let has_rhs = counts.get(4).is_some_and(|&n| n > 0);

        let line = lines.text_line("type and sizes")?;
        let (kind, sizes) = line.trim_start().split_at_checked(3).unwrap_or_default();
        let sizes = integers(sizes).unwrap_or_default();
        let kind = kind.to_ascii_uppercase();
        let &[field, structure, assembly] = kind.as_bytes() else {
            return Err(
                lines.wrong("expected the matrix's type and sizes, such as `RUA 100 100 460 0`".into())
            );
        };
        match field {
            b'R' | b'P' | b'I' => {}
            b'C' => return Err(lines.wrong(format!("the type is `{kind}`: {COMPLEX}"))),
            b'Q' => {
                return Err(lines.wrong(format!(
                    "the type is `{kind}`, whose values are in another file; give a file that contains the \
                     values"
                )));
            }
            _ => {
                return Err(lines.wrong(format!("the type `{kind}` is not known; try RUA, RSA or PUA")));
            }
        }
        let symmetry = match structure {
            b'U' | b'R' => Symmetry::General,
            b'S' => Symmetry::Symmetric,
            b'Z' => Symmetry::SkewSymmetric,
            b'H' => return Err(lines.wrong(format!("the type is `{kind}`, hermitian: {COMPLEX}"))),
            _ => {
                return Err(lines.wrong(format!("the type `{kind}` is not known; try RUA, RSA or PUA")));
            }
        };
        match assembly {
            b'A' => {}
            b'E' => {
                let message = format!(
                    "the type is `{kind}`, an unassembled finite-element matrix: assemble it before writing the file"
                );
                return Err(lines.wrong(message));
            }
            _ => {
                return Err(lines.wrong(format!("the type `{kind}` is not known; try RUA, RSA or PUA")));
            }
        }
        let size = |i: usize| sizes.get(i).and_then(|&n| usize::try_from(n).ok());
        let (Some(rows), Some(columns), Some(entries)) = (size(0), size(1), size(2)) else {
            return Err(lines.wrong("expected rows, columns and entries after the type".into()));
        };
        if rows > u32::MAX as usize || columns > u32::MAX as usize {
            return Err(lines.wrong(format!("a {rows}×{columns} matrix does not fit 32-bit indices")));
        }
        if symmetry != Symmetry::General && rows != columns {
            return Err(
                lines.wrong(format!("the header declares a symmetric matrix, but it is {rows}×{columns}"))
            );
        }
        // Each number takes at least one character.
        let len = lines.text.len();
        if columns >= len || entries > len {
            let message = format!(
                "the header announces {columns} columns and {entries} entries, but the file has only {len} bytes: it is cut short"
            );
            return Err(lines.wrong(message));
        }

        let line = lines.text_line("the formats")?;
        let formats: Vec<&str> = brackets(line);
        let pattern = field == b'P';
        let known = |lines: &Lines, at: Option<usize>, what: &str| {
            let text = at.and_then(|at| formats.get(at)).copied();
            let Some(text) = text else {
                return Err(lines
                    .wrong(format!("the header has no format for the {what}; expected one such as (16I5)")));
            };
            LineFormat::parse(text).ok_or_else(|| {
                lines.wrong(format!(
                    "the format `{text}` of the {what} is not supported; expected one such as (16I5) or (1P,5D16.8)"
                ))
            })
        };
        let pointers = known(lines, Some(0), "column pointers")?;
        let indices = known(lines, Some(1), "row indices")?;
        let values = if pattern { None } else { Some(known(lines, Some(2), "values")?) };
        let mut rhs = None;
        if has_rhs {
            // A pattern may leave out the format of its values.
            let last = formats.len().checked_sub(1).filter(|&at| at >= if pattern { 2 } else { 3 });
            let at = lines.begin;
            let line = lines.text_line("the type of the right-hand sides")?;
            // Sparse right-hand sides (`M`) are skipped: a solve needs them dense.
            if line.trim_start().starts_with(['F', 'f']) {
                let here = std::mem::replace(&mut lines.begin, at); // the format is the line before
                rhs = Some(known(lines, last, "right-hand sides")?);
                lines.begin = here;
            }
        }
        Ok(Self { rows, columns, entries, symmetry, pointers, indices, values, rhs })
    }
}

/// All words of a line as whole numbers; `None` if one is not.
fn integers(line: &str) -> Option<Vec<i64>> {
    line.split_whitespace().map(|w| w.parse().ok()).collect()
}

/// The outermost bracketed parts of a line, with their brackets.
fn brackets(line: &str) -> Vec<&str> {
    let (mut found, mut depth, mut begin) = (Vec::new(), 0usize, 0);
    for (at, c) in line.char_indices() {
        match c {
            '(' => {
                if depth == 0 {
                    begin = at;
                }
                depth += 1;
            }
            ')' if depth > 0 => {
                depth -= 1;
                if depth == 0 {
                    found.push(&line[begin..=at]);
                }
            }
            _ => {}
        }
    }
    found
}

/// Reads lines one after the other.
struct Lines<'a> {
    path: &'a Path,
    text: &'a [u8],
    /// Offset of the next line.
    at: usize,
    /// Offset of the line returned last.
    begin: usize,
}

impl<'a> Lines<'a> {
    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.text.get(self.at..).filter(|rest| !rest.is_empty())?;
        let length = rest.iter().position(|&c| c == b'\n').unwrap_or(rest.len());
        self.begin = self.at;
        self.at += length + 1;
        Some(rest[..length].strip_suffix(b"\r").unwrap_or(&rest[..length]))
    }

    /// An error about the line returned last.
    fn wrong(&self, message: String) -> Error {
        let message = format!("{message}, in {}", excerpt(self.text, self.begin));
        Error::parse(self.path, line_of(self.text, self.begin), message)
    }

    fn short(&self, what: &str) -> Error {
        let message = format!("the file ends before {what}: it is cut short");
        Error::parse(self.path, line_of(self.text, self.text.len()), message)
    }

    fn text_line(&mut self, what: &str) -> Result<&'a str> {
        let line = self.next().ok_or_else(|| self.short(what))?;
        Ok(std::str::from_utf8(line).unwrap_or("\u{fffd}"))
    }

    /// Passes the next `count` numbers to `each`, line by line; an error of `each` gets file and line.
    fn numbers(
        &mut self,
        format: &LineFormat,
        count: usize,
        what: &str,
        mut each: impl FnMut(&Field, &[u8]) -> Result<(), String>,
    ) -> Result<()> {
        let (mut done, mut number) = (0, 0);
        while done < count {
            let line = self
                .next()
                .ok_or_else(|| self.short(&format!("all {count} {what} are read ({done} found)")))?;
            if format.skips_blank_lines && line.trim_ascii().is_empty() {
                continue;
            }
            let fields = format.line(number);
            let fields = &fields[..fields.len().min(count - done)];
            let line = format.filled(line, fields);
            for (field, text) in fields.iter().zip(split(fields, &line)) {
                each(field, text).map_err(|message| self.wrong(message))?;
            }
            done += fields.len();
            number += 1;
        }
        Ok(())
    }

    fn reals(&mut self, format: &LineFormat, count: usize, what: &str) -> Result<Vec<f64>> {
        if count > self.text.len() {
            return Err(self.short(&format!("all {count} {what} are read")));
        }
        let mut values = Vec::with_capacity(count);
        self.numbers(format, count, what, |field, text| {
            values.push(field.real(text)?);
            Ok(())
        })?;
        Ok(values)
    }
}

#[cfg(test)]
pub(super) mod tests;

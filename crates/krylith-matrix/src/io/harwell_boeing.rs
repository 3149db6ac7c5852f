//! Harwell–Boeing and Rutherford–Boeing files: compressed columns as text in fixed-width Fortran formats.
//!
//! Duff, Grimes & Lewis, *Users' Guide for the Harwell–Boeing Sparse Matrix Collection*, TR/PA/92/86; *The
//! Rutherford–Boeing Sparse Matrix Collection*, RAL-TR-97-031. The two share their layout: a title, a line that counts
//! lines, a line of type and sizes, a line of formats, then column pointers, row indices, values; of the former also
//! right-hand sides. Read are real, integer and pattern matrices (ones), assembled. Counts of lines are not needed
//! and not believed.

mod format;

use std::path::Path;

use super::columns::into_rows;
use super::matrix_market::Symmetry;
use super::number::quoted;
use super::source::{COMPLEX, excerpt, line_of, load};
use crate::matrix::Csr;
use crate::{Error, Result};
use format::{Field, LineFormat, integer, split};

/// Reads the matrix, with the symmetric half expanded, and the first of its right-hand sides, if there are any.
///
/// # Errors
/// With file and line: a malformed header, complex, hermitian or unassembled matrices, formats that are not known, text that
/// is no number, indices out of range, NaN and infinities, a file that is cut short.
pub fn read(path: impl AsRef<Path>) -> Result<(Csr, Option<Vec<f64>>)> {
    let path = path.as_ref();
    parse(path, &load(path, None)?)
}

/// Whether these bytes begin as such a file does: the second line counts, the third has type and sizes, the fourth formats.
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

/// Numbers that a file which begins so may hold, right-hand sides included; `None` where its header is not complete.
pub(super) fn announced(head: &[u8]) -> Option<usize> {
    let mut lines = head.split(|&c| c == b'\n').map(|line| std::str::from_utf8(line).unwrap_or_default());
    let counts = integers(lines.nth(1)?)?;
    let sizes = integers(lines.next()?.trim_start().get(3..)?)?;
    let size = |at: usize| sizes.get(at).and_then(|&n| usize::try_from(n).ok());
    let (rows, columns, entries) = (size(0)?, size(1)?, size(2)?);
    let sides: usize = match counts.get(4).is_some_and(|&n| n > 0) {
        // Behind the formats: what right-hand sides are, and how many.
        true => lines.nth(1)?.split_whitespace().nth(1)?.parse().ok()?,
        false => 0,
    };
    // A guess and a solution may belong to each.
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
            .ok_or_else(|| wrong("is no column pointer"))?;
        // They count from 1.
        if pointer < before || pointer > entries + 1 || (col_ptr.is_empty() && pointer != 1) {
            return Err(wrong("is a column pointer that does not lie between its neighbours"));
        }
        col_ptr.push(pointer - 1);
        Ok(())
    })?;
    if col_ptr[columns] != entries {
        let message =
            format!("the column pointers end at {}, and there are {entries} entries", col_ptr[columns]);
        return Err(lines.wrong(message));
    }
    let mut row = Vec::with_capacity(entries);
    let (mut column, mut triangles) = (0, [false; 2]);
    lines.numbers(&header.indices, entries, "row indices", |_, text| {
        let wrong = |why: &str| format!("{} {why}", quoted(text));
        let i = integer(text).ok_or_else(|| wrong("is no row index"))?;
        let i = i.checked_sub(1).and_then(|i| usize::try_from(i).ok()).filter(|&i| i < rows);
        let i = i.ok_or_else(|| wrong("is a row index that is out of range"))?;
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
                    "is an entry on the other side of the diagonal: a symmetric file holds one triangle",
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
        let message = format!("entry ({j}, {j}) is not zero, and the matrix is called skew-symmetric");
        return Err(Error::format(path, message));
    }
    let a = into_rows(path, [rows, columns], (col_ptr, row, values), symmetry, text.len())?;
    Ok((a, rhs))
}

/// What the first four or five lines say.
struct Header {
    rows: usize,
    columns: usize,
    entries: usize,
    symmetry: Symmetry,
    pointers: LineFormat,
    indices: LineFormat,
    /// None of a pattern.
    values: Option<LineFormat>,
    /// Where full right-hand sides follow.
    rhs: Option<LineFormat>,
}

impl Header {
    fn read(lines: &mut Lines) -> Result<Self> {
        lines.text_line("the title")?;
        let counts = integers(lines.text_line("the numbers of lines")?);
        let Some(counts) = counts.filter(|c| c.len() >= 3) else {
            return Err(lines.wrong("expected the numbers of lines".into()));
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
            b'Q' => return Err(lines.wrong(format!("the type is `{kind}`: its values are in another file"))),
            _ => {
                return Err(
                    lines.wrong(format!("the type `{kind}` is not known; RUA, RSA, PUA are some that are"))
                );
            }
        }
        let symmetry = match structure {
            b'U' | b'R' => Symmetry::General,
            b'S' => Symmetry::Symmetric,
            b'Z' => Symmetry::SkewSymmetric,
            b'H' => return Err(lines.wrong(format!("the type is `{kind}`, hermitian: {COMPLEX}"))),
            _ => {
                return Err(
                    lines.wrong(format!("the type `{kind}` is not known; RUA, RSA, PUA are some that are"))
                );
            }
        };
        match assembly {
            b'A' => {}
            b'E' => {
                let message = format!(
                    "the type is `{kind}`, an unassembled matrix of finite elements: assemble it, and write the sum"
                );
                return Err(lines.wrong(message));
            }
            _ => {
                return Err(
                    lines.wrong(format!("the type `{kind}` is not known; RUA, RSA, PUA are some that are"))
                );
            }
        }
        let size = |i: usize| sizes.get(i).and_then(|&n| usize::try_from(n).ok());
        let (Some(rows), Some(columns), Some(entries)) = (size(0), size(1), size(2)) else {
            return Err(lines.wrong("expected rows, columns and entries behind the type".into()));
        };
        if rows > u32::MAX as usize || columns > u32::MAX as usize {
            return Err(lines.wrong(format!("a {rows}×{columns} matrix does not fit 32-bit indices")));
        }
        if symmetry != Symmetry::General && rows != columns {
            return Err(lines.wrong(format!("the matrix is called symmetric, but it is {rows}×{columns}")));
        }
        // Each number takes a character at least.
        let len = lines.text.len();
        if columns >= len || entries > len {
            let message = format!(
                "{columns} columns and {entries} entries are announced, and the file has {len} bytes: it is cut short"
            );
            return Err(lines.wrong(message));
        }

        let line = lines.text_line("the formats")?;
        let formats: Vec<&str> = brackets(line);
        let pattern = field == b'P';
        let known = |lines: &Lines, at: Option<usize>, what: &str| {
            let text = at.and_then(|at| formats.get(at)).copied();
            let Some(text) = text else {
                return Err(
                    lines.wrong(format!("there is no format of the {what}; expected one such as (16I5)"))
                );
            };
            LineFormat::parse(text).ok_or_else(|| {
                lines.wrong(format!(
                    "the format `{text}` of the {what} cannot be read; such as (16I5), (1P,5D16.8) and (3(1P,E24.16)) can"
                ))
            })
        };
        let pointers = known(lines, Some(0), "column pointers")?;
        let indices = known(lines, Some(1), "row indices")?;
        let values = if pattern { None } else { Some(known(lines, Some(2), "values")?) };
        let mut rhs = None;
        if has_rhs {
            // Of a pattern the values' format may be left out.
            let last = formats.len().checked_sub(1).filter(|&at| at >= if pattern { 2 } else { 3 });
            let at = lines.begin;
            let line = lines.text_line("the type of the right-hand sides")?;
            // Sparse right-hand sides, `M`, are none that a solve could take as they are.
            if line.trim_start().starts_with(['F', 'f']) {
                let here = std::mem::replace(&mut lines.begin, at); // the format is the line before
                rhs = Some(known(lines, last, "right-hand sides")?);
                lines.begin = here;
            }
        }
        Ok(Self { rows, columns, entries, symmetry, pointers, indices, values, rhs })
    }
}

/// All words of a line as whole numbers.
fn integers(line: &str) -> Option<Vec<i64>> {
    line.split_whitespace().map(|w| w.parse().ok()).collect()
}

/// What stands in brackets, with them.
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

/// Lines one after the other.
struct Lines<'a> {
    path: &'a Path,
    text: &'a [u8],
    /// Where the next line begins.
    at: usize,
    /// Where the line that was given last begins.
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

    /// An error about the line that was given last.
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

    /// Gives the next `count` numbers to `each`, line by line; what it refuses is named with its line.
    fn numbers(
        &mut self,
        format: &LineFormat,
        count: usize,
        what: &str,
        mut each: impl FnMut(&Field, &[u8]) -> Result<(), String>,
    ) -> Result<()> {
        let (mut done, mut number) = (0, 0);
        while done < count {
            let line =
                self.next().ok_or_else(|| self.short(&format!("{count} {what} are read; {done} were")))?;
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
            return Err(self.short(&format!("{count} {what} are read")));
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

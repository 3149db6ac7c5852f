//! Numbers in a plain text file: the same count in each line.

use std::io::Write;
use std::path::Path;

use super::array::Array;
use super::number;
use super::source::{line_of, mark};
use super::vector::WRITTEN;
use crate::{Error, Result};

/// Parses numbers separated by blanks, tabs or commas; lines that begin with `#` or `%` are comments.
pub(super) fn parse(path: &Path, text: &[u8]) -> Result<Array> {
    if text[..text.len().min(4096)].contains(&0) {
        let message = "the format of this vector is not recognised; give .npy, Matrix Market, a PETSc Vec, \
                       or numbers as text";
        return Err(Error::format(path, message));
    }
    let (mut values, mut columns, mut at) = (Vec::new(), None, mark(text));
    for line in text[at..].split(|&c| c == b'\n') {
        let begin = at;
        at += line.len() + 1;
        let bad = |message: String| Error::parse(path, line_of(text, begin), message);
        let first = line.iter().find(|c| !c.is_ascii_whitespace());
        if first.is_none_or(|c| matches!(c, b'#' | b'%')) {
            continue;
        }
        let before = values.len();
        for word in line.split(|&c| c.is_ascii_whitespace() || c == b',').filter(|w| !w.is_empty()) {
            values.push(number::whole(word).map_err(bad)?);
        }
        let here = values.len() - before;
        let expected = *columns.get_or_insert(here);
        if here != expected {
            return Err(bad(format!(
                "this line has {here} numbers, but the lines before it have {expected}"
            )));
        }
    }
    let columns = columns.unwrap_or(1).max(1);
    let rows = values.len() / columns;
    Array::new(if columns == 1 { vec![rows] } else { vec![rows, columns] }, values)
}

/// Writes one row per line, with 17 significant digits per number; complex numbers as NumPy does, `1e0+2e0j`.
pub(super) fn write_to(out: &mut dyn Write, array: &Array) -> std::io::Result<()> {
    let (rows, columns) = array.rows_columns();
    writeln!(out, "# {WRITTEN}")?;
    for i in 0..rows {
        for j in 0..columns {
            let blank = if j == 0 { "" } else { " " };
            match array.number(i * columns + j) {
                [v] => write!(out, "{blank}{v:.16e}")?,
                parts => write!(out, "{blank}{:.16e}{:+.16e}j", parts[0], parts[1])?,
            }
        }
        writeln!(out)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::source::torture;
    use super::*;

    #[test]
    fn lines_of_numbers() {
        let read = |text: &str| parse(Path::new("x.txt"), text.as_bytes());
        assert_eq!(read("# c\n1\n-2.5e3\r\n\n% c\n3").unwrap(), Array::vector(vec![1.0, -2500.0, 3.0]));
        assert_eq!(read("1, 2\n3\t4\n").unwrap(), Array::new(vec![2, 2], vec![1.0, 2.0, 3.0, 4.0]).unwrap());
        assert_eq!(read("1D0,0.4+1\n3.14-114 1d1\n").unwrap().values(), [1.0, 4.0, 3.14e-114, 10.0]);
        assert_eq!(read("").unwrap(), Array::vector(vec![]));
        for (text, word) in [
            ("1\nx\n", "x.txt:2: `x` is not a number"),
            ("1\n1D\n", "x.txt:2: `1D` is not a number: its exponent has no digits"),
            ("1\n\n1 2\n", "x.txt:3: this line has 2 numbers"),
            ("nan", "x.txt:1: `nan` is NaN"),
            ("1\0", "the format of this vector"),
            (",\n,\n1\n", "x.txt:3"),
        ] {
            let message = read(text).unwrap_err().to_string();
            assert!(message.contains(word), "{message}");
        }
    }

    #[test]
    fn damaged_files_never_panic() {
        torture(b"# c\n1 2.5e-3\n-4,5\n", parse);
    }
}

//! AmgX's files: Matrix Market with a line `%%AMGX 4 4 sorted rhs solution` below the first, and vectors
//! after the entries.
//!
//! The two numbers are the block size; the entries of blocks are still written one per line. `rhs` and
//! `solution` announce vectors in this order; the reader skips the solution. It does not support a separate
//! diagonal (`diagonal`) and indices from 0 (`base0`).

use std::path::Path;

use super::{Header, Lines, words_of};
use crate::io::coordinate::next_line;
use crate::io::number;
use crate::io::source::{excerpt, line_of};
use crate::{Error, Result};

/// The contents of AmgX's line.
#[derive(Default)]
pub struct AmgX {
    /// Rows and columns of a block.
    pub block: Option<usize>,
    rhs: bool,
    solution: bool,
}

impl AmgX {
    /// Parses a comment: `None` if it is not AmgX's line, else its contents or the reason why they are not
    /// supported.
    pub fn of(comment: &[u8]) -> Option<Result<Self, String>> {
        let mut words = words_of(comment).map(str::to_ascii_lowercase);
        if !words.next().is_some_and(|word| matches!(word.as_str(), "%%amgx" | "%%nvamg")) {
            return None;
        }
        let (mut amgx, mut sizes) = (Self::default(), Vec::new());
        for word in words {
            match (word.as_str(), word.parse::<usize>()) {
                ("rhs", _) => amgx.rhs = true,
                ("solution", _) => amgx.solution = true,
                ("sorted", _) => {}
                ("diagonal", _) => {
                    let message = "an AmgX file with a separate diagonal (`diagonal`) is not supported; \
                                   write the matrix with its diagonal among the entries";
                    return Some(Err(message.into()));
                }
                ("base0", _) => {
                    let message = "an AmgX file with indices from 0 (`base0`) is not supported; write it with indices from 1";
                    return Some(Err(message.into()));
                }
                (_, Ok(size)) if (1..=32).contains(&size) && sizes.len() < 2 => sizes.push(size),
                _ => {
                    return Some(Err(format!(
                        "the AmgX header line has the unknown word `{}`; expected block sizes, `rhs`, \
                         `solution` or `sorted`",
                        word.escape_debug()
                    )));
                }
            }
        }
        match sizes[..] {
            [rows, columns] if rows != columns => {
                return Some(Err(format!(
                    "the AmgX file has {rows}×{columns} blocks; only square blocks are supported"
                )));
            }
            [block, ..] if block > 1 => amgx.block = Some(block),
            _ => {}
        }
        Some(Ok(amgx))
    }

    /// True if vectors follow the entries.
    pub fn has_vectors(&self) -> bool {
        self.rhs || self.solution
    }

    /// Number of vectors that follow, which bounds the length of the file.
    pub fn vectors(&self) -> usize {
        usize::from(self.rhs) + usize::from(self.solution)
    }

    /// Returns where the entries end, and the right-hand side after them.
    pub fn behind(&self, path: &Path, text: &[u8], header: &Header) -> Result<(usize, Option<Vec<f64>>)> {
        let mut at = header.body;
        // A file that ends within its entries is reported by their reader.
        if self.vectors() == 0 || !(0..header.entries).all(|_| next_line(text, &mut at).is_some()) {
            return Ok((text.len(), None));
        }
        let end = at.min(text.len());
        let mut lines = Lines { text, at: end };
        let mut vector = |what: &str| {
            let mut values = Vec::new(); // grows as content arrives
            while values.len() < header.rows {
                let Some((begin, line)) = lines.content() else {
                    let message = format!(
                        "the file ends after {} of {} numbers of the {what} after the entries: it is cut short",
                        values.len(),
                        header.rows
                    );
                    return Err(Error::parse(path, line_of(text, text.len()), message));
                };
                for word in line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()) {
                    let bad = |why: String| {
                        let message = format!("in the {what}, {why} in {}", excerpt(text, begin));
                        Error::parse(path, line_of(text, begin), message)
                    };
                    values.push(number::whole(word).map_err(bad)?);
                    if values.len() > header.rows {
                        return Err(bad(format!(
                            "the line has more than the {} expected numbers",
                            header.rows
                        )));
                    }
                }
            }
            Ok(values)
        };
        let rhs = self.rhs.then(|| vector("right-hand side")).transpose()?;
        if self.solution {
            vector("solution")?;
        }
        if let Some((begin, _)) = lines.content() {
            let message = format!("unexpected text after the vectors: {}", excerpt(text, begin));
            return Err(Error::parse(path, line_of(text, begin), message));
        }
        Ok((end, rhs))
    }
}

//! AmgX's files: Matrix Market with a line `%%AMGX 4 4 sorted rhs solution` below the first, and vectors behind the entries.
//!
//! Two numbers are the size of blocks, whose entries stand one a line as in every file. `rhs` and `solution` announce vectors in this order;
//! the solution is passed over. A diagonal of its own (`diagonal`) and indices from 0 (`base0`) are not read.

use std::path::Path;

use super::{Header, Lines, words_of};
use crate::io::coordinate::next_line;
use crate::io::number;
use crate::io::source::{excerpt, line_of};
use crate::{Error, Result};

/// What the line says.
#[derive(Default)]
pub struct AmgX {
    /// Rows and columns of a block.
    pub block: Option<usize>,
    rhs: bool,
    solution: bool,
}

impl AmgX {
    /// Takes a comment apart; `None` for one that is no such line, else what it says or why it cannot be read.
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
                    let message = "an AmgX file with the diagonal behind the entries (`diagonal`), which is not read; \
                                   write the matrix with its diagonal among the entries";
                    return Some(Err(message.into()));
                }
                ("base0", _) => {
                    let message = "an AmgX file with indices from 0 (`base0`), which is not read; write it with indices from 1";
                    return Some(Err(message.into()));
                }
                (_, Ok(size)) if (1..=32).contains(&size) && sizes.len() < 2 => sizes.push(size),
                _ => {
                    return Some(Err(format!(
                        "an AmgX file with `{}`, which is not known; expected block sizes, `rhs`, `solution` and `sorted`",
                        word.escape_debug()
                    )));
                }
            }
        }
        match sizes[..] {
            [rows, columns] if rows != columns => {
                return Some(Err(format!(
                    "an AmgX file of {rows}×{columns} blocks; only square ones can be solved with"
                )));
            }
            [block, ..] if block > 1 => amgx.block = Some(block),
            _ => {}
        }
        Some(Ok(amgx))
    }

    /// Whether vectors follow the entries.
    pub fn has_vectors(&self) -> bool {
        self.rhs || self.solution
    }

    /// Vectors that follow, for a bound of the file's length.
    pub fn vectors(&self) -> usize {
        usize::from(self.rhs) + usize::from(self.solution)
    }

    /// Where the entries end, and the right-hand side behind them.
    pub fn behind(&self, path: &Path, text: &[u8], header: &Header) -> Result<(usize, Option<Vec<f64>>)> {
        let mut at = header.body;
        // A file that is cut short within its entries: their reader says so.
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
                        "the file ends after {} of {} numbers of the {what} behind the entries: it is cut short",
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
                            "there are more than the {} numbers that a vector has",
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
            let message =
                format!("something follows the vectors behind the entries: {}", excerpt(text, begin));
            return Err(Error::parse(path, line_of(text, begin), message));
        }
        Ok((end, rhs))
    }
}

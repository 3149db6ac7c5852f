//! Bounds the length of a stream: a pipe or unpacked data has no length of its own, and may never end.
//!
//! The first bytes identify the format, and its header bounds the length of the file. A longer stream is
//! refused, so the header also bounds the memory.

use std::io::Read;
use std::path::Path;

use super::{Kind, harwell_boeing, kind, matrix_market, numpy, petsc};
use crate::text::bytes;
use crate::{Error, Result};

/// Bytes accepted before a header is complete, and for comments and blanks after it.
const FREE: usize = 1 << 24;
/// Longest line of one entry, and longest single number, in bytes.
const LINE: usize = 256;
/// Bytes of text accepted for each wanted number: several columns, with blanks and comments between them.
const WANTED: usize = 512;
/// Bytes accepted for an archive that is compressed again or comes from a pipe.
const ARCHIVE: usize = 1 << 32;
/// Bytes after which the header is examined for the first time.
const BEGINNING: usize = 1 << 16;

/// Reads a stream to its end. A text without a header is bounded by `wanted` numbers, and unbounded for
/// `None`.
///
/// # Errors
/// An error of the stream, converted by `wrong`; more bytes than the header can need.
pub(super) fn read(
    path: &Path,
    stream: &mut dyn Read,
    wanted: Option<usize>,
    wrong: impl Fn(std::io::Error) -> Error,
) -> Result<Vec<u8>> {
    let (mut content, mut next) = (Vec::new(), BEGINNING);
    loop {
        let missing = (next - content.len()) as u64;
        let read = Read::take(&mut *stream, missing).read_to_end(&mut content).map_err(&wrong)?;
        if (read as u64) < missing {
            return Ok(content);
        }
        match Bound::of(path, &content, wanted) {
            // The reader of the format reports what is wrong with the header.
            Bound::NoFile => return Ok(content),
            Bound::Most { bytes, .. } if content.len() < bytes => {
                next = content.len().saturating_mul(2).min(bytes);
            }
            Bound::Most { bytes: most, why } => {
                // One more byte shows whether the stream ends here.
                if Read::take(&mut *stream, 1).read_to_end(&mut content).map_err(&wrong)? == 0 {
                    return Ok(content);
                }
                let message = format!(
                    "the file has more than {}, the most that {why} can need; it is damaged or in another \
                     format",
                    bytes(most as u64)
                );
                return Err(Error::format(path, message));
            }
        }
    }
}

enum Bound {
    /// At most this many bytes, for what the header announces.
    Most { bytes: usize, why: String },
    /// No known format begins like this.
    NoFile,
}

impl Bound {
    fn of(path: &Path, head: &[u8], wanted: Option<usize>) -> Self {
        let most = |bytes: Option<usize>, why: String| Self::Most { bytes: bytes.unwrap_or(usize::MAX), why };
        let numbers = |n: Option<usize>| n.and_then(|n| n.checked_mul(LINE)?.checked_add(FREE));
        let incomplete = || most(Some(FREE), "a header".into());
        match kind(path, head) {
            Kind::MatrixMarket => match matrix_market::announced(path, head) {
                Ok(header) => {
                    let why = format!(
                        "a {}×{} matrix with {} entries",
                        header.rows, header.columns, header.entries
                    );
                    most(numbers(header.numbers()), why)
                }
                Err(_) => incomplete(),
            },
            Kind::HarwellBoeing => match harwell_boeing::announced(head) {
                Some(n) => most(numbers(Some(n)), format!("{n} numbers")),
                None => incomplete(),
            },
            Kind::Npy => match numpy::announced(path, head) {
                Ok(n) => most(n.checked_add(BEGINNING), "the array that its header announces".into()),
                Err(_) => incomplete(),
            },
            Kind::Petsc => {
                let n = petsc::announced(head);
                most(n.and_then(|n| n.checked_add(FREE)), "its first object with a vector".into())
            }
            // These formats give their length only inside.
            Kind::Npz | Kind::Matlab => most(Some(ARCHIVE), "an archive from a pipe".into()),
            Kind::Unknown if head[..BEGINNING.min(head.len())].contains(&0) => Self::NoFile,
            Kind::Unknown => {
                let bytes = wanted.map(|n| n.saturating_mul(WANTED).saturating_add(FREE));
                most(bytes, format!("{} numbers", wanted.unwrap_or_default()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A beginning, and then one byte for ever.
    fn endless(head: &str, byte: u8, wanted: Option<usize>) -> String {
        let mut stream = head.as_bytes().chain(std::io::repeat(byte));
        let path = Path::new("x");
        read(path, &mut stream, wanted, |e| Error::io(path, e))
            .map_or_else(|e| e.to_string(), |c| format!("{} bytes", c.len()))
    }

    #[test]
    fn what_never_ends_is_bounded_by_its_header() {
        let mtx = "%%MatrixMarket matrix coordinate real general\n20 20 58\n1 1 1\n";
        let more = endless(mtx, b'\n', None);
        assert!(
            more.contains("x: the file has more than 16.0 MiB, the most that a 20×20 matrix with 58 entries"),
            "{more}"
        );
        assert!(endless("%%MatrixMarket matrix array real general\n9 1\n1\n", b' ', None).contains("9×1"));
        assert!(endless("%%MatrixMarket ", b'x', None).contains("most that a header can need"));
        let rua = "t\n 3 1 1 1\nRUA 3 3 3 0\n(4I2) (4I2) (3F4.1)\n 1 2";
        assert!(
            endless(rua, b'\n', None).contains("most that 12 numbers can need"),
            "{}",
            endless(rua, b'\n', None)
        );
        let npy = "\u{1}";
        assert_eq!(endless(npy, 0, Some(10)), format!("{BEGINNING} bytes")); // no format: its reader says so
        assert!(endless("1\n", b'\n', Some(10)).contains("most that 10 numbers can need"));
    }

    #[test]
    fn what_ends_within_its_bound_is_read_whole() {
        let text = format!("%%MatrixMarket matrix array real general\n30000 1\n{}", "1.5\n".repeat(30000));
        let path = Path::new("x");
        for stream in [&text[..], &"7\n".repeat(200_000), "", "1 2"] {
            let content = read(path, &mut stream.as_bytes(), Some(200_000), |e| Error::io(path, e)).unwrap();
            assert!(content == stream.as_bytes());
        }
    }
}

//! Writes vectors and arrays in the format that the file name's ending selects, and recognises Krylith's own
//! files.

use std::io::Write;
use std::path::Path;

use super::{Array, matrix_market, numpy, text};
use crate::{Error, Result};

/// Comment in the files that Krylith writes, if their format has comments.
pub(super) const WRITTEN: &str = "written by Krylith";

/// An output format of vectors.
///
/// # Examples
/// ```
/// use krylith::io::{Array, VectorFormat};
/// assert_eq!(VectorFormat::of("x.mtx"), Some(VectorFormat::MatrixMarket));
/// assert_eq!(VectorFormat::of("x.csv"), None);
/// let mut out = Vec::new();
/// VectorFormat::Text.write(&mut out, &Array::new(vec![1, 2], vec![0.5, -2.0])?).unwrap();
/// assert!(out.ends_with(b"\n5.0000000000000000e-1 -2.0000000000000000e0\n"));
/// # Ok::<(), krylith::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VectorFormat {
    /// NumPy's `.npy`.
    Npy,
    /// A Matrix Market array, `.mtx`.
    MatrixMarket,
    /// Numbers as text, one row per line, `.txt`.
    Text,
}

impl VectorFormat {
    /// File name endings that select a format.
    pub const ENDINGS: [&str; 3] = ["npy", "mtx", "txt"];

    /// The format that a file name's ending selects.
    pub fn of(path: impl AsRef<Path>) -> Option<Self> {
        let ending = path.as_ref().extension()?.to_str()?.to_ascii_lowercase();
        let at = Self::ENDINGS.iter().position(|known| *known == ending)?;
        Some([Self::Npy, Self::MatrixMarket, Self::Text][at])
    }

    /// Writes an array to a stream, every number with all its digits.
    ///
    /// # Errors
    /// An error of the stream.
    pub fn write(self, out: &mut dyn Write, array: &Array) -> std::io::Result<()> {
        match self {
            Self::Npy => numpy::write_to(out, array),
            Self::MatrixMarket => matrix_market::write_array_to(out, array),
            Self::Text => text::write_to(out, array),
        }
    }
}

/// Writes an array in the format that the file name's ending selects (`.npy`, `.mtx` or `.txt`); the file
/// appears whole or not at all.
///
/// # Errors
/// Another ending; [`Error::Io`] with the path.
///
/// ```
/// use krylith::io::{Array, read_vector, write_vector};
/// # let path = std::env::temp_dir().join(format!("krylith-doc-out-{}.mtx", std::process::id()));
/// let x = Array::vector(vec![0.1, 2.0]);
/// write_vector(&path, &x)?;
/// assert_eq!(read_vector(&path)?, x);
/// # std::fs::remove_file(&path).ok();
/// # Ok::<(), krylith::Error>(())
/// ```
pub fn write_vector(path: impl AsRef<Path>, array: &Array) -> Result<()> {
    let path = path.as_ref();
    let format = VectorFormat::of(path).ok_or_else(|| {
        let message = "the file name's ending selects the format; end the name in .npy, .mtx or .txt";
        Error::format(path, message)
    })?;
    super::atomic::write(path, |out| format.write(out, array))
}

/// True if a file with this beginning was written by Krylith: a vector, a report, a picture or a file for
/// ParaView. The first 4096 bytes are enough.
///
/// ```
/// let report = br#"{ "schema": 2, "krylith": "0.1.0" }"#;
/// assert!(krylith_matrix::io::is_own(report) && !krylith_matrix::io::is_own(b"my notes on Krylith\n"));
/// ```
pub fn is_own(head: &[u8]) -> bool {
    let has = |within: usize, word: &[u8]| {
        head[..head.len().min(within)].windows(word.len()).any(|found| found == word)
    };
    if head.starts_with(numpy::MAGIC) {
        return numpy::is_own(head);
    }
    let comment = head.starts_with(b"%%MatrixMarket") || head.starts_with(b"#") || head.starts_with(b"<?xml");
    comment && has(160, WRITTEN.as_bytes())
        || head.starts_with(b"{") && has(160, b"\"schema\":") && has(160, b"\"krylith\":")
        || head.starts_with(b"\x89PNG") && has(160, b"Software\0Krylith")
        || head.starts_with(b"<svg") && has(4096, b"class=\"f-paper\"")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::read_vector;

    #[test]
    fn each_ending_reads_back_and_is_known_as_our_own() {
        let dir = tempfile::tempdir().unwrap();
        let values = vec![0.1, 1.0 / 3.0, -5e-324, f64::MAX, 0.0, -2.5e-7];
        for shape in [vec![6], vec![2, 3], vec![3, 2]] {
            let array = Array::new(shape, values.clone()).unwrap();
            for name in ["x.npy", "x.mtx", "x.txt", "X.MTX"] {
                let path = dir.path().join(name);
                write_vector(&path, &array).unwrap();
                assert_eq!(read_vector(&path).unwrap(), array, "{name}");
                let bytes = std::fs::read(&path).unwrap();
                assert!(is_own(&bytes) && bytes.starts_with(b"\x93NUMPY") == name.ends_with("npy"), "{name}");
            }
        }
        for name in ["x.csv", "x", "x.mtx.gz", ".npy"] {
            let error = write_vector(dir.path().join(name), &Array::vector(vec![])).unwrap_err().to_string();
            assert!(error.contains(".npy, .mtx or .txt"), "{error}");
        }
    }

    #[test]
    fn files_of_others_are_not_our_own() {
        let numpy = crate::io::samples::npy("<f8", false, "(2,)", &[0; 16]);
        for other in [
            &numpy[..],
            b"",
            b"%%MatrixMarket matrix array real general\n1 1\n2\n",
            b"# 1\n2\n",
            b"{}",
            b"<svg>",
            b"\x89PNG",
        ] {
            assert!(!is_own(other), "{other:?}");
        }
    }
}

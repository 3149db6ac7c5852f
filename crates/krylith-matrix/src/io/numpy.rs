//! NumPy's `.npy`: arrays of one or two dimensions.
//!
//! The reader accepts f4, f8, c8, c16, signed and unsigned integers and booleans, in either byte order,
//! in C and Fortran order. The writer writes f8 or c16 in C order, little-endian. Integers above 2⁵³ are
//! rounded to the nearest f64.

use std::io::Write;
use std::ops::Range;
use std::path::Path;

use super::array::Array;
use super::source::{COMPLEX, load};
use crate::{Error, Result};

pub(super) const MAGIC: &[u8] = b"\x93NUMPY";

/// Blanks at the end of Krylith's headers beyond the alignment.
const OWN_BLANKS: usize = 128;

/// True if an array with this beginning has the header of [`write_to`].
pub(super) fn is_own(head: &[u8]) -> bool {
    let length = head.get(8..10).map_or(0, |n| usize::from(u16::from_le_bytes([n[0], n[1]])));
    let Some(header) = head.get(10..10 + length) else { return false };
    let blanks = header.iter().rev().skip(1).take_while(|c| **c == b' ').count();
    let kind = [&b"{'descr': '<f8'"[..], b"{'descr': '<c16'"].iter().any(|kind| header.starts_with(kind));
    head[6..8] == [1, 0] && kind && blanks >= OWN_BLANKS
}

/// Reads an array of one or two dimensions.
///
/// # Errors
/// Content that is cut short or malformed; text or object arrays; more dimensions; NaN and infinities.
pub fn read(path: impl AsRef<Path>) -> Result<Array> {
    let path = path.as_ref();
    parse(path, &load(path, None)?)
}

pub(super) fn parse(path: &Path, bytes: &[u8]) -> Result<Array> {
    let npy = open(path, bytes)?;
    let array = match npy.is_complex() {
        true => Array::complex(npy.shape.clone(), npy.complex())?,
        false => Array::new(npy.shape.clone(), npy.reals(path)?)?,
    };
    array.check_finite(path)?;
    Ok(array)
}

/// The header of an array of one or two dimensions, with its data.
#[doc(hidden)]
pub fn open<'a>(path: &Path, bytes: &'a [u8]) -> Result<Npy<'a>> {
    let npy = Npy::parse(path, "the array", bytes)?;
    if !(1..=2).contains(&npy.shape.len()) {
        let message = format!("the array has shape {:?}; expected one or two dimensions", npy.shape);
        return Err(Error::format(path, message));
    }
    Ok(npy)
}

/// Length in bytes of an array with this beginning.
pub(super) fn announced(path: &Path, head: &[u8]) -> Result<usize> {
    Npy::header(path, "the array", head)?
        .needed()
        .ok_or_else(|| Error::format(path, "the header announces an array of more than 2⁶⁴ bytes"))
}

/// Writes an array; the file appears whole or not at all.
///
/// # Errors
/// [`Error::Io`] with the path.
pub fn write(path: impl AsRef<Path>, array: &Array) -> Result<()> {
    super::atomic::write(path, |out| write_to(out, array))
}

/// Writes an array as [`write()`] does, to a stream such as standard output.
///
/// # Errors
/// An error of the stream.
pub fn write_to(out: &mut dyn Write, array: &Array) -> std::io::Result<()> {
    let shape = match *array.shape() {
        [n] => format!("({n},)"),
        [n, m] => format!("({n}, {m})"),
        _ => unreachable!("arrays have one or two dimensions"),
    };
    let kind = if array.is_complex() { "<c16" } else { "<f8" };
    let mut header = format!("{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}");
    // The data starts at a multiple of 64 bytes, and the header ends in a newline; magic, version and length
    // take 10 bytes. Krylith writes more blanks than NumPy, so that `is_own` recognises its files.
    let padding = OWN_BLANKS + (64 - (10 + header.len() + 1) % 64) % 64;
    header.extend(std::iter::repeat_n(' ', padding));
    header.push('\n');
    out.write_all(MAGIC)?;
    out.write_all(&[1, 0])?;
    out.write_all(&(header.len() as u16).to_le_bytes())?;
    out.write_all(header.as_bytes())?;
    array.values().iter().try_for_each(|v| out.write_all(&v.to_le_bytes()))
}

/// An array as stored in its file.
#[doc(hidden)]
pub struct Npy<'a> {
    /// Name for errors.
    name: String,
    /// NumPy's letter: `f`, `c`, `i`, `u`, `b`, `S`, `U`.
    kind: u8,
    /// Bytes per item; for `U`, characters of four bytes.
    size: usize,
    big_endian: bool,
    pub fortran: bool,
    pub shape: Vec<usize>,
    data: &'a [u8],
    /// Offset of the data.
    begin: usize,
}

impl<'a> Npy<'a> {
    /// Reads the header and checks that all announced data is present.
    pub fn parse(path: &Path, name: &str, bytes: &'a [u8]) -> Result<Self> {
        let npy = Self::header(path, name, bytes)?;
        match npy.needed().and_then(|n| npy.data.get(..n)) {
            Some(data) => Ok(Self { data, ..npy }),
            None => {
                let (shape, there) = (&npy.shape, npy.data.len());
                let message = format!(
                    "{name}: shape {shape:?} needs more than the {there} bytes of data: the file is cut short"
                );
                Err(Error::format(path, message))
            }
        }
    }

    /// Reads the header; the data may be longer or shorter than it announces.
    pub fn header(path: &Path, name: &str, bytes: &'a [u8]) -> Result<Self> {
        let bad = |message: &str| Error::format(path, format!("{name}: {message}"));
        let short = || bad("the .npy header is cut short");
        let rest =
            bytes.strip_prefix(MAGIC).ok_or_else(|| bad("not in .npy format: save it with numpy.save"))?;
        let (length, rest) = match *rest {
            [1, _, a, b, ref rest @ ..] => (u16::from_le_bytes([a, b]) as usize, rest),
            [2 | 3, _, a, b, c, d, ref rest @ ..] => (u32::from_le_bytes([a, b, c, d]) as usize, rest),
            [0 | 4.., ..] => {
                return Err(bad("the version of the .npy format is unknown; versions 1 to 3 are supported"));
            }
            _ => return Err(short()),
        };
        let header = rest.get(..length).ok_or_else(short)?;
        let header = String::from_utf8_lossy(header);
        let malformed = |what: &str| bad(&format!("the .npy header has no valid `{what}`"));
        let field = |key: &str| {
            let after = header.split_once(&format!("'{key}'"))?.1;
            Some(after.trim_start().strip_prefix(':')?.trim_start())
        };

        let descr = field("descr").ok_or_else(|| malformed("descr"))?;
        if descr.starts_with('[') {
            return Err(bad("arrays of records are not supported; save a plain numeric array"));
        }
        let descr =
            descr.strip_prefix('\'').and_then(|d| d.split('\'').next()).ok_or_else(|| malformed("descr"))?;
        let plain = descr.trim_start_matches(['<', '>', '|', '=']);
        let kind = plain.bytes().next().ok_or_else(|| malformed("descr"))?;
        let size: Option<usize> = plain.get(1..).and_then(|d| d.parse().ok());
        let readable = match (kind, size) {
            (b'f', Some(4 | 8)) | (b'i' | b'u', Some(1 | 2 | 4 | 8)) | (b'b', Some(1)) => true,
            (b'c', Some(8 | 16)) => true,
            (b'S' | b'U', Some(n)) => n <= 64,
            _ => false,
        };
        let (true, Some(size)) = (readable, size) else {
            let what = match kind {
                b'O' => "Python objects are not supported",
                _ => "this type is not supported",
            };
            let message = format!("{what} (`{descr}`); save the array as float64: x.astype('f8')");
            return Err(bad(&message));
        };

        let order = field("fortran_order").ok_or_else(|| malformed("fortran_order"))?;
        let fortran = match order {
            _ if order.starts_with("True") => true,
            _ if order.starts_with("False") => false,
            _ => return Err(malformed("fortran_order")),
        };
        let shape = field("shape").and_then(|s| s.strip_prefix('(')).and_then(|s| s.split_once(')'));
        let shape = shape.ok_or_else(|| malformed("shape"))?.0;
        let sizes = shape.split(',').map(str::trim).filter(|s| !s.is_empty());
        let shape: Option<Vec<usize>> = sizes.map(|s| s.trim_end_matches('L').parse().ok()).collect();
        let shape = shape.ok_or_else(|| malformed("shape"))?;

        let data = &rest[length..];
        Ok(Self {
            name: name.into(),
            kind,
            size,
            big_endian: descr.starts_with('>'),
            fortran,
            shape,
            data,
            begin: bytes.len() - data.len(),
        })
    }

    /// Offset of the data.
    pub fn begin(&self) -> usize {
        self.begin
    }

    /// Number of bytes that the shape needs; `None` on overflow.
    pub fn needed(&self) -> Option<usize> {
        let item = if self.kind == b'U' { 4 * self.size } else { self.size };
        self.shape.iter().try_fold(item, |n, &m| n.checked_mul(m))
    }

    /// A range of the numbers in the file's order.
    ///
    /// # Panics
    /// If the range goes beyond the array.
    pub fn window(&self, numbers: Range<usize>) -> Npy<'a> {
        let item = if self.kind == b'U' { 4 * self.size } else { self.size };
        let data = &self.data[numbers.start * item..numbers.end * item];
        Npy { name: self.name.clone(), shape: vec![numbers.len()], data, ..*self }
    }

    /// True if the numbers are complex.
    pub fn is_complex(&self) -> bool {
        self.kind == b'c'
    }

    /// The real and imaginary parts of complex numbers, in C order.
    fn complex(&self) -> Vec<f64> {
        let parts: Vec<f64> = match self.size {
            8 => self.items::<4>().map(|c| f32::from_le_bytes(c).into()).collect(),
            _ => self.items::<8>().map(f64::from_le_bytes).collect(),
        };
        self.c_order(parts.as_chunks::<2>().0.to_vec()).into_flattened()
    }

    /// The numbers as f64, in C order; complex ones are refused.
    pub fn reals(&self, path: &Path) -> Result<Vec<f64>> {
        if self.is_complex() {
            return Err(Error::format(path, format!("{}: complex numbers: {COMPLEX}", self.name)));
        }
        let values: Vec<f64> = match (self.kind, self.size) {
            (b'f', 4) => self.items::<4>().map(|c| f32::from_le_bytes(c).into()).collect(),
            (b'f', _) => self.items::<8>().map(f64::from_le_bytes).collect(),
            (b'u', 8) => self.items::<8>().map(|c| u64::from_le_bytes(c) as f64).collect(),
            _ => self.whole(path)?.into_iter().map(|n| n as f64).collect(),
        };
        Ok(self.c_order(values))
    }

    /// The numbers as integers, in C order; floating-point arrays are refused.
    pub fn integers(&self, path: &Path) -> Result<Vec<i64>> {
        Ok(self.c_order(self.whole(path)?))
    }

    fn whole(&self, path: &Path) -> Result<Vec<i64>> {
        Ok(match (self.kind, self.size) {
            (b'b', _) => self.items::<1>().map(|[c]| i64::from(c != 0)).collect(),
            (b'i', 1) => self.items().map(|c| i8::from_le_bytes(c).into()).collect(),
            (b'u', 1) => self.items().map(|c| u8::from_le_bytes(c).into()).collect(),
            (b'i', 2) => self.items().map(|c| i16::from_le_bytes(c).into()).collect(),
            (b'u', 2) => self.items().map(|c| u16::from_le_bytes(c).into()).collect(),
            (b'i', 4) => self.items().map(|c| i32::from_le_bytes(c).into()).collect(),
            (b'u', 4) => self.items().map(|c| u32::from_le_bytes(c).into()).collect(),
            (b'i', 8) => self.items().map(i64::from_le_bytes).collect(),
            // No index beyond i64 is in range, so the largest i64 fails the range check as well.
            (b'u', 8) => self.items().map(|c| u64::from_le_bytes(c).try_into().unwrap_or(i64::MAX)).collect(),
            _ => {
                let found = match self.kind {
                    b'f' => "floating-point numbers",
                    b'c' => "complex numbers",
                    _ => "text",
                };
                return Err(Error::format(path, format!("{}: expected integers, found {found}", self.name)));
            }
        })
    }

    /// The only string of an array without dimensions.
    pub fn text(&self) -> Option<String> {
        match self.kind {
            b'S' => String::from_utf8(self.data.iter().copied().filter(|&c| c != 0).collect()).ok(),
            b'U' => {
                let code = |c: [u8; 4]| char::from_u32(u32::from_le_bytes(c));
                self.items_of(self.data.as_chunks().0).map(code).filter(|&c| c != Some('\0')).collect()
            }
            _ => None,
        }
    }

    /// Items with their bytes in little-endian order.
    fn items<const B: usize>(&self) -> impl Iterator<Item = [u8; B]> {
        self.items_of(self.data.as_chunks().0)
    }

    fn items_of<'b, const B: usize>(
        &self,
        chunks: &'b [[u8; B]],
    ) -> impl Iterator<Item = [u8; B]> + use<'b, B> {
        let big_endian = self.big_endian;
        chunks.iter().map(move |&c| {
            let mut c = c;
            if big_endian {
                c.reverse();
            }
            c
        })
    }

    fn c_order<T: Copy>(&self, values: Vec<T>) -> Vec<T> {
        if !self.fortran || self.shape.len() < 2 || values.is_empty() {
            return values;
        }
        let mut strides = vec![1; self.shape.len()]; // in the file the first index runs fastest
        for d in 1..self.shape.len() {
            strides[d] = strides[d - 1] * self.shape[d - 1];
        }
        let mut index = vec![0; self.shape.len()];
        let mut out = Vec::with_capacity(values.len());
        let mut from = 0;
        while out.len() < values.len() {
            out.push(values[from]);
            for d in (0..index.len()).rev() {
                index[d] += 1;
                from += strides[d];
                if index[d] < self.shape[d] {
                    break;
                }
                from -= strides[d] * index[d];
                index[d] = 0;
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::super::samples::npy;
    use super::super::source::torture;
    use super::*;

    fn read(bytes: &[u8]) -> Result<Array> {
        parse(Path::new("x.npy"), bytes)
    }

    #[test]
    fn kinds_and_orders() {
        let expected = Array::new(vec![2, 3], vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        let c = [1i32, 2, 3, 4, 5, 6];
        let f = [1i32, 4, 2, 5, 3, 6];
        let bytes = |list: &[i32], to: &dyn Fn(i32) -> Vec<u8>| -> Vec<u8> {
            list.iter().flat_map(|&n| to(n)).collect()
        };
        type Encode<'a> = &'a dyn Fn(i32) -> Vec<u8>;
        let kinds: [(&str, Encode); 8] = [
            ("<f8", &|n| (n as f64).to_le_bytes().to_vec()),
            (">f8", &|n| (n as f64).to_be_bytes().to_vec()),
            ("<f4", &|n| (n as f32).to_le_bytes().to_vec()),
            (">f4", &|n| (n as f32).to_be_bytes().to_vec()),
            ("<i4", &|n| n.to_le_bytes().to_vec()),
            (">i8", &|n| (n as i64).to_be_bytes().to_vec()),
            ("<u8", &|n| (n as u64).to_le_bytes().to_vec()),
            ("|i1", &|n| (n as i8).to_le_bytes().to_vec()),
        ];
        for (descr, to) in kinds {
            assert_eq!(read(&npy(descr, false, "(2, 3)", &bytes(&c, to))).unwrap(), expected, "{descr}");
            assert_eq!(read(&npy(descr, true, "(2L, 3L)", &bytes(&f, to))).unwrap(), expected, "{descr}");
            let flat = read(&npy(descr, true, "(6,)", &bytes(&c, to))).unwrap();
            assert_eq!((flat.shape(), flat.values()), (&[6][..], expected.values()));
        }
        assert_eq!(read(&npy("|b1", false, "(2,)", &[0, 1])).unwrap().values(), [0.0, 1.0]);
    }

    #[test]
    fn complex_numbers() {
        let expected = Array::complex(vec![2, 2], vec![1.0, -1.0, 2.0, -2.0, 3.0, -3.0, 4.0, -4.0]).unwrap();
        let of = |list: [f64; 4], big: bool| -> Vec<u8> {
            let parts = list.iter().flat_map(|&v| [v, -v]);
            parts.flat_map(|v| if big { v.to_be_bytes() } else { v.to_le_bytes() }).collect()
        };
        let single: Vec<u8> = expected.values().iter().flat_map(|&v| (v as f32).to_le_bytes()).collect();
        assert_eq!(read(&npy("<c16", false, "(2, 2)", &of([1.0, 2.0, 3.0, 4.0], false))).unwrap(), expected);
        assert_eq!(read(&npy(">c16", true, "(2, 2)", &of([1.0, 3.0, 2.0, 4.0], true))).unwrap(), expected);
        assert_eq!(read(&npy("<c8", false, "(2, 2)", &single)).unwrap(), expected);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.npy");
        write(&path, &expected).unwrap();
        assert_eq!(super::read(&path).unwrap(), expected);
        assert!(is_own(&std::fs::read(&path).unwrap()));
    }

    #[test]
    fn three_dimensions_in_fortran_order() {
        let bytes = npy("|i1", true, "(2, 2, 2)", &[0, 4, 2, 6, 1, 5, 3, 7]);
        let npy = Npy::parse(Path::new("x"), "x", &bytes).unwrap();
        assert_eq!(npy.integers(Path::new("x")).unwrap(), [0, 1, 2, 3, 4, 5, 6, 7]);
    }

    #[test]
    fn errors_say_what() {
        let nan = f64::NAN.to_le_bytes();
        for (bytes, word) in [
            (b"nothing".to_vec(), "numpy.save"),
            (b"\x93NUMPY".to_vec(), "cut short"),
            (b"\x93NUMPY\x09\x00".to_vec(), "version"),
            (npy("<f8", false, "(2,)", &[0; 8]), "cut short"),
            (npy("<f8", false, "(18446744073709551615, 9)", &[0; 8]), "cut short"),
            (npy("<c32", false, "(1,)", &[0; 32]), "c32"),
            (npy("<c16", false, "(1, 1)", &[[0; 8], f64::NAN.to_le_bytes()].concat()), "entry (0, 0) is NaN"),
            (npy("|O", false, "(1,)", &[0; 8]), "objects"),
            (npy("<f2", false, "(1,)", &[0; 2]), "f2"),
            (npy("", false, "(1,)", &[0; 2]), "descr"),
            (npy("<f8", false, "(-1,)", &[0; 8]), "shape"),
            (npy("<f8", false, "()", &[0; 8]), "dimensions"),
            (npy("<f8", false, "(1, 1, 1)", &[0; 8]), "dimensions"),
            (npy("|S3", false, "(1,)", b"csr"), "text"),
            (npy("<f8", false, "(1, 1)", &nan), "entry (0, 0) is NaN"),
        ] {
            let message = read(&bytes).unwrap_err().to_string();
            assert!(message.contains("x.npy") && message.contains(word), "{word}: {message}");
        }
    }

    #[test]
    fn written_and_read_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.npy");
        let values = vec![0.1, -5e-324, f64::MAX, 3.0];
        for shape in [vec![4], vec![2, 2], vec![1, 4]] {
            let array = Array::new(shape, values.clone()).unwrap();
            write(&path, &array).unwrap();
            assert_eq!(super::read(&path).unwrap(), array);
            let bytes = std::fs::read(&path).unwrap();
            assert_eq!((bytes.len() - 32) % 64, 0);
        }
    }

    #[test]
    fn damaged_files_never_panic() {
        torture(&npy("<f8", true, "(2, 2)", &[7; 32]), parse);
        torture(&npy(">i4", false, "(3,)", &[7; 12]), parse);
    }
}

//! Data elements of a MAT-file: a tag with type and length, then the data, each padded to eight bytes.

use std::borrow::Cow;
use std::io::Read;
use std::path::Path;

use crate::{Error, Result};

/// `miUINT8`.
pub(super) const BYTES: u32 = 2;
/// `miMATRIX`.
pub(super) const MATRIX: u32 = 14;
/// `miCOMPRESSED`.
const COMPRESSED: u32 = 15;

/// A run of elements, and its location for errors.
pub(super) struct Elements<'a> {
    pub file: &'a Path,
    pub bytes: &'a [u8],
    pub at: usize,
    pub big_endian: bool,
    /// The origin of offsets in errors.
    pub place: &'a Place,
}

/// The source of a run of bytes.
pub(super) enum Place {
    /// The bytes begin at this byte of the file.
    File(usize),
    /// The bytes were unpacked from the element at this byte of the file.
    Unpacked(usize),
}

/// One element.
#[derive(Clone, Copy)]
pub(super) struct Element<'a> {
    pub kind: u32,
    pub data: &'a [u8],
    /// Offset of the element in its run.
    pub at: usize,
}

impl<'a> Elements<'a> {
    /// An error at byte `at` of this run.
    pub fn wrong(&self, at: usize, message: impl std::fmt::Display) -> Error {
        Error::format(
            self.file,
            match self.place {
                Place::File(begin) => format!("at byte {}: {message}", begin + at),
                Place::Unpacked(begin) => {
                    format!("at byte {at} of the data compressed at byte {begin}: {message}")
                }
            },
        )
    }

    fn word(&self, at: usize) -> Option<u32> {
        let bytes = *self.bytes.get(at..)?.first_chunk()?;
        Some(if self.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) })
    }

    /// The next element; `None` at the end.
    pub fn next(&mut self) -> Result<Option<Element<'a>>> {
        let at = self.at;
        // A few bytes may remain after the last element.
        if self.bytes.len() - at.min(self.bytes.len()) < 8 {
            return Ok(None);
        }
        let (Some(first), Some(second)) = (self.word(at), self.word(at + 4)) else { return Ok(None) };
        // A small element has its length in the upper half of the first word, and its data in the second.
        let (kind, begin, length, whole) = match first >> 16 {
            0 => {
                let length = second as usize;
                // Compressed elements are not padded.
                let padded = if first == COMPRESSED { length } else { length.next_multiple_of(8) };
                (first, at + 8, length, 8 + padded)
            }
            length @ 1..=4 => (first & 0xffff, at + 4, length as usize, 8),
            length => {
                return Err(self.wrong(
                    at,
                    format!("a small element has {length} bytes, but only 4 fit: the file is damaged"),
                ));
            }
        };
        let data = self.bytes.get(begin..).and_then(|rest| rest.get(..length)).ok_or_else(|| {
            let there = self.bytes.len() - begin;
            self.wrong(
                at,
                format!(
                    "an element of {length} bytes begins, but only {there} are left: the file is cut short"
                ),
            )
        })?;
        self.at = at + whole;
        Ok(Some(Element { kind, data, at }))
    }

    /// The next element; an error that calls it `what` if there is none.
    pub fn expect(&mut self, what: &str) -> Result<Element<'a>> {
        let at = self.at;
        self.next()?.ok_or_else(|| self.wrong(at, format!("{what} should follow: the file is cut short")))
    }

    /// Numbers of any type as f64.
    pub fn reals(&self, element: &Element, what: &str) -> Result<Vec<f64>> {
        let big = self.big_endian;
        macro_rules! numbers {
            ($t:ty) => {{
                let number = |c: &[u8; size_of::<$t>()]| {
                    if big { <$t>::from_be_bytes(*c) } else { <$t>::from_le_bytes(*c) }
                };
                element.data.as_chunks().0.iter().map(|c| number(c) as f64).collect()
            }};
        }
        Ok(match element.kind {
            1 => numbers!(i8),
            BYTES => numbers!(u8),
            3 => numbers!(i16),
            4 => numbers!(u16),
            5 => numbers!(i32),
            6 => numbers!(u32),
            7 => numbers!(f32),
            9 => numbers!(f64),
            12 => numbers!(i64),
            13 => numbers!(u64),
            kind => {
                return Err(self.wrong(element.at, format!("{what} have type {kind}, which is not numeric")));
            }
        })
    }

    /// 32-bit numbers, the type of indices and sizes.
    pub fn indices(&self, element: &Element, what: &str) -> Result<Vec<u32>> {
        if !matches!(element.kind, 5 | 6) {
            let message = format!("{what} have type {}; expected 32-bit integers", element.kind);
            return Err(self.wrong(element.at, message));
        }
        let word =
            |c: &[u8; 4]| if self.big_endian { u32::from_be_bytes(*c) } else { u32::from_le_bytes(*c) };
        let list: Vec<u32> = element.data.as_chunks().0.iter().map(word).collect();
        match list.iter().find(|&&n| n > i32::MAX as u32) {
            Some(&n) => Err(self.wrong(element.at, format!("{what} hold {}; expected 0 or more", n as i32))),
            None => Ok(list),
        }
    }
}

impl<'a> Element<'a> {
    /// The elements of an array, unpacked if it is compressed; `None` for an element that is not an array.
    pub fn array(&self, of: &Elements) -> Result<Option<(Cow<'a, [u8]>, Place)>> {
        let begin = match of.place {
            Place::File(begin) | Place::Unpacked(begin) => *begin,
        };
        match self.kind {
            MATRIX => Ok(Some((Cow::Borrowed(self.data), Place::File(begin + self.at + 8)))),
            COMPRESSED => {
                let damaged = |e: std::io::Error| {
                    of.wrong(self.at, format!("the compressed data is damaged or cut short ({e})"))
                };
                // The tag of the only element inside gives its length; memory grows as content arrives.
                let (mut plain, mut stream) = (Vec::new(), flate2::read::ZlibDecoder::new(self.data));
                stream.by_ref().take(8).read_to_end(&mut plain).map_err(damaged)?;
                let word =
                    |bytes| if of.big_endian { u32::from_be_bytes(bytes) } else { u32::from_le_bytes(bytes) };
                let length = plain
                    .get(4..)
                    .and_then(|tag| tag.first_chunk())
                    .map_or(0, |&bytes| u64::from(word(bytes)));
                // One more byte makes the decoder verify the checksum at the end.
                stream.take(length.next_multiple_of(8) + 1).read_to_end(&mut plain).map_err(damaged)?;
                let place = Place::Unpacked(begin + self.at);
                let mut inner = Elements {
                    file: of.file,
                    bytes: &plain,
                    at: 0,
                    big_endian: of.big_endian,
                    place: &place,
                };
                match inner.next()? {
                    Some(Element { kind: MATRIX, data, .. }) => {
                        let end = 8 + data.len();
                        plain.truncate(end);
                        plain.drain(..8);
                        Ok(Some((Cow::Owned(plain), place)))
                    }
                    _ => Ok(None),
                }
            }
            _ => Ok(None),
        }
    }
}

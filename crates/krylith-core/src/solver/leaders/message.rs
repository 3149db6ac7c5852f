//! Messages of several numbers and texts.

use crate::Result;
use crate::comm::wire::{Reader, Wire, packed};

/// A message that is being written.
#[derive(Default)]
pub(super) struct Writer(pub Vec<u8>);

impl Writer {
    pub fn word(&mut self, word: u64) {
        self.0.extend(word.to_le_bytes());
    }

    pub fn flag(&mut self, flag: bool) {
        self.word(u64::from(flag));
    }

    pub fn real(&mut self, number: f64) {
        self.word(number.to_bits());
    }

    /// Writes numbers after their count.
    pub fn numbers<T: Wire>(&mut self, numbers: &[T]) {
        self.word(numbers.len() as u64);
        self.0.extend(packed(numbers));
    }

    pub fn text(&mut self, text: &str) {
        self.numbers(text.as_bytes());
    }

    /// Writes a value that may be missing.
    pub fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.flag(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
    }

    /// Writes items after their count.
    pub fn list<T>(&mut self, items: &[T], mut write: impl FnMut(&mut Self, &T)) {
        self.word(items.len() as u64);
        items.iter().for_each(|item| write(self, item));
    }
}

/// A message that is being read.
pub(super) struct Parts<'a>(Reader<'a>);

impl<'a> Parts<'a> {
    pub fn new(bytes: &'a [u8], rank: usize) -> Self {
        Self(Reader::new(bytes, rank))
    }

    pub fn word(&mut self) -> Result<u64> {
        Ok(self.0.take::<u64>(1)?[0])
    }

    pub fn count(&mut self) -> Result<usize> {
        Ok(self.word()? as usize)
    }

    pub fn flag(&mut self) -> Result<bool> {
        Ok(self.word()? != 0)
    }

    pub fn real(&mut self) -> Result<f64> {
        Ok(f64::from_bits(self.word()?))
    }

    pub fn numbers<T: Wire>(&mut self) -> Result<Vec<T>> {
        let count = self.count()?;
        self.0.take(count)
    }

    pub fn text(&mut self) -> Result<String> {
        Ok(String::from_utf8_lossy(&self.numbers::<u8>()?).into_owned())
    }

    pub fn option<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T>) -> Result<Option<T>> {
        if self.flag()? { read(self).map(Some) } else { Ok(None) }
    }

    pub fn list<T>(&mut self, mut read: impl FnMut(&mut Self) -> Result<T>) -> Result<Vec<T>> {
        (0..self.count()?).map(|_| read(self)).collect()
    }
}
